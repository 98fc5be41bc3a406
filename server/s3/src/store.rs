//! What a bucket can be asked.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use trefoil::Corrupt;

use crate::{Class, Error, Result};

/// Keys of one page of a listing, at most.
pub const KEYS_PER_PAGE: usize = 1_000;

/// Objects by key. All calls are safe to repeat; each is answered within the limits of whoever made the door, or fails.
///
/// Keys are relative to what the door opens on, made of `[a-z0-9/-]`, and never begin with a slash.
pub trait ObjectStore: Send + Sync + 'static {
    /// The object, or the `range` of it, which must lie inside and not be empty. An object that is not there is
    /// [`crate::Class::NotFound`].
    fn get<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> BoxFuture<'a, Result<Object>>;

    /// What is known of the object, if it is there.
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<ObjectMeta>>>;

    /// Makes the object, unless one is there already: then that stays as it is, and nobody has compared them.
    fn create<'a>(&'a self, key: &'a str, body: Bytes) -> BoxFuture<'a, Result<Creation>>;

    /// As [`ObjectStore::create`], for what need not be in memory at once.
    fn upload<'a>(&'a self, key: &'a str, source: Arc<dyn Source>) -> BoxFuture<'a, Result<Creation>>;

    /// Puts `body` in place of the object tagged `expected`, or makes it if none is expected. If another one is there:
    /// [`crate::Class::Conflict`].
    fn replace<'a>(&'a self, key: &'a str, body: Bytes, expected: Option<&'a Tag>) -> BoxFuture<'a, Result<Tag>>;

    /// The keys that begin with `prefix` and come after `after`, ascending, a page of them.
    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<KeyPage>>;

    /// Removes the object; that there is none is fine.
    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Uploads below `prefix` that were begun and neither finished nor given up. A store that cannot tell says none.
    fn unfinished_uploads<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<UnfinishedUpload>>>;

    /// Gives such an upload up and frees what it holds.
    fn give_up_upload<'a>(&'a self, upload: &'a UnfinishedUpload) -> BoxFuture<'a, Result<()>>;
}

/// Every key below `prefix`, page by page.
pub(crate) async fn list_all(store: &dyn ObjectStore, prefix: &str) -> Result<Vec<Listed>> {
    let mut all: Vec<Listed> = Vec::new();
    loop {
        let after = all.last().map(|listed| listed.key.clone());
        let page = store.list(prefix, after.as_deref()).await?;
        all.extend(page.objects);
        if !page.more {
            return Ok(all);
        }
    }
}

impl dyn ObjectStore {
    /// All keys that begin with `prefix`, ascending.
    pub async fn list_all(&self, prefix: &str) -> Result<Vec<Listed>> {
        list_all(self, prefix).await
    }

    /// The object, if it is there.
    pub async fn find(&self, key: &str) -> Result<Found> {
        match self.get(key, None).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// An object that may not be there.
pub type Found = Option<Object>;

/// What was got of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The bytes that were asked for.
    pub bytes: Bytes,
    /// The length of the whole object.
    pub whole_bytes: u64,
    /// Its version.
    pub tag: Tag,
}

/// What is known of an object without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Its length.
    pub bytes: u64,
    /// Its version.
    pub tag: Tag,
    /// When it was made, by the store's clock: seconds since 1970.
    pub modified_at_s: i64,
}

/// Which version of an object this is. Only to be compared: it is no hash of anything (B085).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub String);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the making of an object ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// It was made.
    New,
    /// There was one. It may be the very same, made by an attempt whose answer was lost.
    AlreadyThere,
}

/// A page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// Ascending by key.
    pub objects: Vec<Listed>,
    /// Whether more come after the last one.
    pub more: bool,
}

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// When it was made, by the store's clock: seconds since 1970.
    pub modified_at_s: i64,
}

/// An upload in parts that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedUpload {
    /// The object it was to become.
    pub key: String,
    /// What the store calls it.
    pub id: String,
    /// When it was begun: seconds since 1970.
    pub begun_at_s: i64,
}

/// Something long that is read piece by piece, from threads that may block.
pub trait Source: Send + Sync + 'static {
    /// Its length.
    fn bytes(&self) -> u64;

    /// Bytes `range` of it, which lies inside. An upload reads it once, in order.
    fn read(&self, range: Range<u64>) -> trefoil::Result<Bytes>;

    /// What the SHA-256 of all of it must be, where that is known: if it is another one the object is not made, and the upload is
    /// [`crate::Class::Damaged`].
    fn sha256(&self) -> Option<[u8; 32]>;
}

/// A source that is read from its beginning to its end. The last of it is handed out only if all of it is what it must be.
pub(crate) struct InOrder {
    source: Arc<dyn Source>,
    at: u64,
    parts: i32,
    hash: Sha256,
}

impl InOrder {
    pub(crate) fn new(source: Arc<dyn Source>) -> InOrder {
        InOrder { source, at: 0, parts: 0, hash: Sha256::new() }
    }

    /// How many parts were read.
    pub(crate) fn parts(&self) -> i32 {
        self.parts
    }

    /// The next `bytes`, or what is left. Blocks.
    pub(crate) fn next(&mut self, bytes: u64) -> trefoil::Result<Bytes> {
        let range = self.at..self.at.saturating_add(bytes).min(self.source.bytes());
        let body = self.source.read(range.clone())?;
        self.at = range.end;
        self.parts += 1;
        let Some(wanted) = self.source.sha256() else { return Ok(body) };
        self.hash.update(&body);
        if self.at >= self.source.bytes() && std::mem::take(&mut self.hash).finalize()[..] != wanted[..] {
            return Err(
                Corrupt::new("object", "its SHA-256 is another one: it is damaged, and was not uploaded").into()
            );
        }
        Ok(body)
    }
}

/// Why a source was not uploaded that did not read: damage is told from what may heal.
pub(crate) fn unread(place: impl Into<String>, failed: &trefoil::Error) -> Error {
    let class = if failed.class() == trefoil::Class::Corrupt { Class::Damaged } else { Class::Invalid };
    Error::new(class, "PUT", place, failed.to_string())
}

impl Source for Bytes {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, range: Range<u64>) -> trefoil::Result<Bytes> {
        Ok(self.slice(range.start as usize..range.end as usize))
    }

    fn sha256(&self) -> Option<[u8; 32]> {
        None
    }
}
