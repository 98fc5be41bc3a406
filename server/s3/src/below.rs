//! A part of a bucket, by what its keys begin with.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::{Creation, KeyPage, Object, ObjectMeta, ObjectStore, Result, Source, Tag, UnfinishedUpload};

/// Everything below a prefix of another store; keys are told without it.
pub struct Below {
    store: Arc<dyn ObjectStore>,
    /// Ends with a slash, so that nothing of a longer name is taken for it (B079).
    prefix: String,
}

impl Below {
    /// What is below `prefix/` in `store`.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Below {
        Below { store, prefix: format!("{}/", prefix.trim_matches('/')) }
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

impl ObjectStore for Below {
    fn get<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> BoxFuture<'a, Result<Object>> {
        Box::pin(async move { self.store.get(&self.key(key), range).await })
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<ObjectMeta>>> {
        Box::pin(async move { self.store.head(&self.key(key)).await })
    }

    fn create<'a>(&'a self, key: &'a str, body: Bytes) -> BoxFuture<'a, Result<Creation>> {
        Box::pin(async move { self.store.create(&self.key(key), body).await })
    }

    fn upload<'a>(&'a self, key: &'a str, source: Arc<dyn Source>) -> BoxFuture<'a, Result<Creation>> {
        Box::pin(async move { self.store.upload(&self.key(key), source).await })
    }

    fn replace<'a>(&'a self, key: &'a str, body: Bytes, expected: Option<&'a Tag>) -> BoxFuture<'a, Result<Tag>> {
        Box::pin(async move { self.store.replace(&self.key(key), body, expected).await })
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<KeyPage>> {
        Box::pin(async move {
            let after = after.map(|after| self.key(after));
            let mut page = self.store.list(&self.key(prefix), after.as_deref()).await?;
            for listed in &mut page.objects {
                listed.key.drain(..self.prefix.len().min(listed.key.len()));
            }
            Ok(page)
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.store.delete(&self.key(key)).await })
    }

    fn unfinished_uploads<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<UnfinishedUpload>>> {
        Box::pin(async move {
            let mut uploads = self.store.unfinished_uploads(&self.key(prefix)).await?;
            for upload in &mut uploads {
                upload.key.drain(..self.prefix.len().min(upload.key.len()));
            }
            Ok(uploads)
        })
    }

    fn give_up_upload<'a>(&'a self, upload: &'a UnfinishedUpload) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let upload = UnfinishedUpload { key: self.key(&upload.key), ..upload.clone() };
            self.store.give_up_upload(&upload).await
        })
    }
}
