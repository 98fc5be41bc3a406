//! Large objects, in parts.
//!
//! ```text
//!   begin ─► part 1, part 2, ... some at once, each tried again by itself ─► complete, unless an object is there
//!     └───────────── anything failed: give up, so that the parts are not paid for
//! ```

use std::ops::Range;
use std::sync::Arc;

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::task::spawn_blocking;

use super::attempt::Ask;
use super::{S3, created};
use crate::{Class, Creation, Error, Result, Source};

/// Parts of one object that are under way at once: each is in memory meanwhile.
const PARTS_AT_ONCE: usize = 4;

impl S3 {
    pub(super) async fn upload_source(&self, key: &str, source: Arc<dyn Source>) -> Result<Creation> {
        let bytes = source.bytes();
        if bytes <= self.limits.part_bytes(bytes) {
            let body = self.read(key, source, 0..bytes).await?;
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
        let bytes = source.bytes();
        let size = self.limits.part_bytes(bytes);
        let ranges = (0..bytes.div_ceil(size)).map(|part| part * size..((part + 1) * size).min(bytes));
        let parts = stream::iter(ranges.enumerate())
            .map(|(at, range)| self.send_part(key, id, at as i32 + 1, source.clone(), range))
            .buffered(PARTS_AT_ONCE.min(self.limits.requests_at_once.max(1)));
        parts.try_collect().await
    }

    async fn send_part(
        &self,
        key: &str,
        id: &str,
        number: i32,
        source: Arc<dyn Source>,
        range: Range<u64>,
    ) -> Result<CompletedPart> {
        let body = self.read(key, source, range).await?;
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

    /// Reads away from the runtime's threads.
    async fn read(&self, key: &str, source: Arc<dyn Source>, range: Range<u64>) -> Result<Bytes> {
        let unread = |reason: String| Error::new(Class::Invalid, "PUT", self.place(key), reason);
        let read = spawn_blocking(move || source.read(range)).await;
        read.map_err(|stopped| unread(stopped.to_string()))?.map_err(|failed| unread(failed.to_string()))
    }
}
