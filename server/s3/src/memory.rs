//! A bucket in memory.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::store::{InOrder, KEYS_PER_PAGE, unread};
use crate::{
    Class, Creation, Error, KeyPage, Listed, Object, ObjectMeta, ObjectStore, Result, Source, Tag, UnfinishedUpload,
};

/// Objects in memory, with a clock that stands until it is set.
#[derive(Default)]
pub struct Memory {
    objects: Mutex<BTreeMap<String, Stored>>,
    now_s: AtomicI64,
    /// Versions are numbered over all objects.
    versions: AtomicI64,
}

#[derive(Clone)]
struct Stored {
    body: Bytes,
    version: i64,
    modified_at_s: i64,
}

impl Stored {
    fn tag(&self) -> Tag {
        Tag(self.version.to_string())
    }
}

impl Memory {
    /// Sets the clock by which objects are dated: seconds since 1970.
    pub fn set_now_s(&self, now_s: i64) {
        self.now_s.store(now_s, Ordering::Relaxed);
    }

    /// Puts an object in place of whatever is there: damage, for instance.
    pub fn put(&self, key: &str, body: Bytes) {
        let stored = self.stored(body);
        self.objects.lock().insert(key.to_owned(), stored);
    }

    fn stored(&self, body: Bytes) -> Stored {
        let version = self.versions.fetch_add(1, Ordering::Relaxed);
        Stored { body, version, modified_at_s: self.now_s.load(Ordering::Relaxed) }
    }

    fn make(&self, key: &str, body: Bytes) -> Creation {
        let mut objects = self.objects.lock();
        if objects.contains_key(key) {
            return Creation::AlreadyThere;
        }
        objects.insert(key.to_owned(), self.stored(body));
        Creation::New
    }
}

fn error(class: Class, call: &'static str, key: &str, reason: impl Into<String>) -> Error {
    Error::new(class, call, format!("memory://{key}"), reason)
}

impl ObjectStore for Memory {
    fn get<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> BoxFuture<'a, Result<Object>> {
        Box::pin(async move {
            let stored = self.objects.lock().get(key).cloned();
            let stored = stored.ok_or_else(|| error(Class::NotFound, "GET", key, "there is no such object"))?;
            let whole_bytes = stored.body.len() as u64;
            let bytes = match range {
                None => stored.body.clone(),
                Some(range) if range.start < range.end && range.end <= whole_bytes => {
                    stored.body.slice(range.start as usize..range.end as usize)
                }
                Some(range) => {
                    let reason = format!("bytes {}..{} are asked for of {whole_bytes}", range.start, range.end);
                    return Err(error(Class::Damaged, "GET", key, reason));
                }
            };
            Ok(Object { bytes, whole_bytes, tag: stored.tag() })
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<ObjectMeta>>> {
        Box::pin(async move {
            let objects = self.objects.lock();
            Ok(objects.get(key).map(|stored| ObjectMeta {
                bytes: stored.body.len() as u64,
                tag: stored.tag(),
                modified_at_s: stored.modified_at_s,
            }))
        })
    }

    fn create<'a>(&'a self, key: &'a str, body: Bytes) -> BoxFuture<'a, Result<Creation>> {
        Box::pin(async move { Ok(self.make(key, body)) })
    }

    fn upload<'a>(&'a self, key: &'a str, source: Arc<dyn Source>) -> BoxFuture<'a, Result<Creation>> {
        Box::pin(async move {
            let body = InOrder::new(source).next(u64::MAX);
            Ok(self.make(key, body.map_err(|failed| unread(format!("memory://{key}"), &failed))?))
        })
    }

    fn replace<'a>(&'a self, key: &'a str, body: Bytes, expected: Option<&'a Tag>) -> BoxFuture<'a, Result<Tag>> {
        Box::pin(async move {
            let mut objects = self.objects.lock();
            let found = objects.get(key).map(Stored::tag);
            if found.as_ref() != expected {
                return Err(error(Class::Conflict, "PUT", key, "another version is there than was expected"));
            }
            let stored = self.stored(body);
            let tag = stored.tag();
            objects.insert(key.to_owned(), stored);
            Ok(tag)
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<KeyPage>> {
        Box::pin(async move {
            let objects = self.objects.lock();
            let from = match after {
                Some(after) if after >= prefix => Bound::Excluded(after),
                _ => Bound::Included(prefix),
            };
            let found = objects.range::<str, _>((from, Bound::Unbounded));
            let mut found = found.take_while(|(key, _)| key.starts_with(prefix)).map(|(key, stored)| Listed {
                key: key.clone(),
                bytes: stored.body.len() as u64,
                modified_at_s: stored.modified_at_s,
            });
            let page = found.by_ref().take(KEYS_PER_PAGE).collect();
            Ok(KeyPage { objects: page, more: found.next().is_some() })
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.objects.lock().remove(key);
            Ok(())
        })
    }

    fn unfinished_uploads<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<UnfinishedUpload>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn give_up_upload<'a>(&'a self, _: &'a UnfinishedUpload) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
