//! Large objects, in parts.
//!
//! ```text
//!   begin ─► part 1, part 2, ... some at once, each tried again by itself ─► complete, unless an object is there
//!     └───────────── anything failed: give up, so that the parts are not paid for
//! ```
//!
//! Parts are read one after the other and sent beside each other: the last one is sent only if the hash of all is what it must be.

use std::sync::Arc;

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::attempt::Ask;
use super::{S3, created};
use crate::store::{InOrder, unread};
use crate::{Class, Creation, Error, Result, Source};

/// Parts of one object that are under way at once: each is in memory meanwhile.
const PARTS_AT_ONCE: usize = 4;

impl S3 {
    pub(super) async fn upload_source(&self, key: &str, source: Arc<dyn Source>) -> Result<Creation> {
        let bytes = source.bytes();
        if bytes <= self.limits.part_bytes(bytes) {
            let (_, body) = self.read(key, Arc::new(Mutex::new(InOrder::new(source))), bytes).await?;
            let ask = Ask { call: "PUT", key, bytes };
            return created(self.attempts(ask, |_| self.create_once(key, body.clone())).await.map(drop));
        }
        let ask = Ask { call: "PUT", key, bytes: 0 };
        let id = self.attempts(ask, |_| self.begin_once(key)).await?;
        let done = self.send_parts(key, &id, source).await;
        let made = match done {
            Ok(parts) => {
                created(self.attempts(ask, |before| self.complete_once(key, &id, parts.clone(), before)).await)
            }
            Err(error) => Err(error),
        };
        if !matches!(made, Ok(Creation::New))
            && let Err(error) = self.give_up_once(key, &id).await
            && !error.is_not_found()
        {
            tracing::warn!(%error, "an upload in parts could not be given up; its parts stay until prune finds them");
        }
        made
    }

    async fn begin_once(&self, key: &str) -> Result<String> {
        let request = self.client.create_multipart_upload().bucket(&self.location.bucket).key(self.location.key(key));
        let answer = request.send().await.map_err(|failed| self.failed("PUT", key, &failed))?;
        let none = || Error::new(Class::Damaged, "PUT", self.place(key), "the store began an upload without an id");
        answer.upload_id.ok_or_else(none)
    }

    async fn send_parts(&self, key: &str, id: &str, source: Arc<dyn Source>) -> Result<Vec<CompletedPart>> {
        let size = self.limits.part_bytes(source.bytes());
        let count = source.bytes().div_ceil(size);
        let reading = Arc::new(Mutex::new(InOrder::new(source)));
        let parts = stream::iter(0..count).map(|_| self.send_next(key, id, reading.clone(), size));
        let parts = parts.buffer_unordered(PARTS_AT_ONCE.min(self.limits.requests_at_once.max(1)));
        let mut parts: Vec<CompletedPart> = parts.try_collect().await?;
        parts.sort_by_key(|part| part.part_number);
        Ok(parts)
    }

    /// Whoever comes to read next takes the next part, so that no part waits for another one's way to the store.
    async fn send_next(&self, key: &str, id: &str, reading: Arc<Mutex<InOrder>>, size: u64) -> Result<CompletedPart> {
        let (number, body) = self.read(key, reading, size).await?;
        let ask = Ask { call: "PUT", key, bytes: body.len() as u64 };
        let tag = self.attempts(ask, |_| self.part_once(key, id, number, body.clone())).await?;
        Ok(CompletedPart::builder().part_number(number).e_tag(tag).build())
    }

    async fn part_once(&self, key: &str, id: &str, number: i32, body: Bytes) -> Result<String> {
        let request = self.client.upload_part().bucket(&self.location.bucket).key(self.location.key(key));
        let request = request.upload_id(id).part_number(number).body(ByteStream::from(body));
        let answer = request.send().await.map_err(|failed| self.failed("PUT", key, &failed))?;
        Ok(answer.e_tag.unwrap_or_default())
    }

    async fn complete_once(&self, key: &str, id: &str, parts: Vec<CompletedPart>, attempts_before: u32) -> Result<()> {
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let request = self.client.complete_multipart_upload().bucket(&self.location.bucket);
        let request = request.key(self.location.key(key)).upload_id(id).multipart_upload(parts).if_none_match("*");
        let error = match request.send().await.map_err(|failed| self.failed("PUT", key, &failed)) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        // An attempt before may have completed it, and its answer was lost: then the object is there, and the upload gone, which
        // some stores call denied.
        let is_denied_now = error.class == Class::Denied && attempts_before > 0;
        if !error.is_not_found() && !is_denied_now {
            return Err(error);
        }
        match self.head_once(key).await {
            Ok(_) => Err(Error { class: Class::Conflict, ..error }),
            Err(unseen) if !unseen.is_not_found() => Err(unseen),
            Err(_) if is_denied_now => Err(error),
            // The store has let go of the parts, and of nothing else: all of it can be sent anew.
            Err(_) => Err(Error { class: Class::Retry, ..error }),
        }
    }

    /// Reads the next part away from the runtime's threads; answers its number too.
    async fn read(&self, key: &str, reading: Arc<Mutex<InOrder>>, bytes: u64) -> Result<(i32, Bytes)> {
        let read = spawn_blocking(move || {
            let mut reading = reading.lock();
            let body = reading.next(bytes)?;
            Ok((reading.parts(), body))
        });
        let read =
            read.await.map_err(|stopped| Error::new(Class::Invalid, "PUT", self.place(key), stopped.to_string()))?;
        read.map_err(|failed| unread(self.place(key), &failed))
    }
}
