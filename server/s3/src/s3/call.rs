//! One attempt at each request.

use std::ops::Range;

use aws_sdk_s3::error::SdkError;
use aws_sdk_s3::primitives::ByteStream;
use bytes::{Bytes, BytesMut};

use super::S3;
use super::attempt::Ask;
use crate::store::KEYS_PER_PAGE;
use crate::{Class, Error, KeyPage, Listed, Object, ObjectMeta, Result, Tag, UnfinishedUpload};

/// Most bytes for which there is room before they have come.
const ROOM_BYTES_MAX: u64 = 64 << 20;

impl S3 {
    pub(super) async fn get_once(&self, key: &str, range: Option<Range<u64>>) -> Result<Object> {
        let mut request = self.client.get_object().bucket(&self.location.bucket).key(self.location.key(key));
        if let Some(range) = &range {
            request = request.range(format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
        }
        let answer = request.send().await.map_err(|failed| self.failed("GET", key, &failed))?;
        let tag = Tag(answer.e_tag.unwrap_or_default());
        let whole = answer.content_range.as_deref().and_then(|range| range.rsplit('/').next()?.parse().ok());
        let told = answer.content_length.and_then(|length| u64::try_from(length).ok());
        let expected = range.as_ref().map(|range| range.end - range.start).or(told);
        let mut body = BytesMut::with_capacity(expected.unwrap_or(0).min(ROOM_BYTES_MAX) as usize);
        let mut stream = answer.body;
        while let Some(piece) = stream.next().await {
            let cut = |cause| Error::new(Class::Retry, "GET", self.place(key), format!("cut short: {cause}"));
            body.extend_from_slice(&piece.map_err(cut)?);
        }
        let came = body.len() as u64;
        if expected.is_some_and(|expected| expected != came) {
            let reason = format!("{came} bytes came of {}", expected.unwrap_or(0));
            // The store said so itself, or it gave what nobody asked for.
            let class = if told == Some(came) { Class::Damaged } else { Class::Retry };
            return Err(Error::new(class, "GET", self.place(key), reason));
        }
        Ok(Object { bytes: body.freeze(), whole_bytes: whole.unwrap_or(came), tag })
    }

    pub(super) async fn head_once(&self, key: &str) -> Result<ObjectMeta> {
        let request = self.client.head_object().bucket(&self.location.bucket).key(self.location.key(key));
        let answer = request.send().await.map_err(|failed| self.failed("HEAD", key, &failed))?;
        Ok(ObjectMeta {
            bytes: answer.content_length.and_then(|length| u64::try_from(length).ok()).unwrap_or(0),
            tag: Tag(answer.e_tag.unwrap_or_default()),
            modified_at_s: answer.last_modified.map_or(0, |at| at.secs()),
        })
    }

    pub(super) async fn create_once(&self, key: &str, body: Bytes) -> Result<Tag> {
        self.put_once(key, body, None).await
    }

    pub(super) async fn replace_once(&self, key: &str, body: Bytes, expected: Option<&Tag>) -> Result<Tag> {
        self.put_once(key, body, expected).await
    }

    async fn put_once(&self, key: &str, body: Bytes, expected: Option<&Tag>) -> Result<Tag> {
        let request = self.client.put_object().bucket(&self.location.bucket).key(self.location.key(key));
        let request = match expected {
            None => request.if_none_match("*"),
            Some(tag) => request.if_match(&tag.0),
        };
        let sent = request.body(ByteStream::from(body)).send().await;
        match sent {
            Ok(answer) => Ok(Tag(answer.e_tag.unwrap_or_default())),
            // What was to be replaced is gone: no less a conflict than if it were another.
            Err(failed) => {
                let error = self.failed("PUT", key, &failed);
                let is_gone = expected.is_some() && error.reason.contains("NoSuchKey");
                Err(if is_gone { Error { class: Class::Conflict, ..error } } else { error })
            }
        }
    }

    pub(super) async fn list_once(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage> {
        let request = self.client.list_objects_v2().bucket(&self.location.bucket).prefix(self.location.key(prefix));
        let request = request.max_keys(KEYS_PER_PAGE as i32).set_start_after(after.map(|key| self.location.key(key)));
        let answer = request.send().await.map_err(|failed| self.failed("LIST", prefix, &failed))?;
        let cut = self.location.key("").len();
        let listed = answer.contents.unwrap_or_default().into_iter().filter_map(|object| {
            Some(Listed {
                key: object.key?.get(cut..)?.to_owned(),
                bytes: object.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0),
                modified_at_s: object.last_modified.map_or(0, |at| at.secs()),
            })
        });
        Ok(KeyPage { objects: listed.collect(), more: answer.is_truncated.unwrap_or(false) })
    }

    pub(super) async fn delete_once(&self, key: &str) -> Result<()> {
        let request = self.client.delete_object().bucket(&self.location.bucket).key(self.location.key(key));
        request.send().await.map(drop).map_err(|failed| self.failed("DELETE", key, &failed))
    }

    pub(super) async fn give_up_once(&self, key: &str, id: &str) -> Result<()> {
        let request = self.client.abort_multipart_upload().bucket(&self.location.bucket);
        let request = request.key(self.location.key(key)).upload_id(id);
        request.send().await.map(drop).map_err(|failed| self.failed("DELETE", key, &failed))
    }

    pub(super) async fn list_uploads(&self, prefix: &str) -> Result<Vec<UnfinishedUpload>> {
        let ask = Ask { call: "LIST", key: prefix, bytes: 0 };
        let listed = self.attempts(ask, |_| self.list_uploads_once(prefix)).await;
        match listed {
            // 501: the store has no such listing.
            Err(error) if error.reason.starts_with("501") => Ok(Vec::new()),
            listed => listed,
        }
    }

    async fn list_uploads_once(&self, prefix: &str) -> Result<Vec<UnfinishedUpload>> {
        let request = self.client.list_multipart_uploads().bucket(&self.location.bucket);
        let sent = request.prefix(self.location.key(prefix)).send().await;
        let answer = sent.map_err(|failed: SdkError<_, _>| {
            let error = self.failed("LIST", prefix, &failed);
            if error.reason.starts_with("501") { Error { class: Class::Invalid, ..error } } else { error }
        })?;
        let cut = self.location.key("").len();
        let found = answer.uploads.unwrap_or_default().into_iter().filter_map(|upload| {
            Some(UnfinishedUpload {
                key: upload.key?.get(cut..)?.to_owned(),
                id: upload.upload_id?,
                begun_at_s: upload.initiated.map_or(0, |at| at.secs()),
            })
        });
        Ok(found.collect())
    }
}
