//! Attempts at a request: what may be better later, and when it is tried again.

use std::fmt::Debug;
use std::time::Duration;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::RequestId;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use tokio::time::{sleep, timeout};

use super::S3;
use crate::{Class, Error, Result};

/// Longest delay that is granted to a store that asks for one.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// What is asked.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub call: &'static str,
    pub key: &'a str,
    /// About how many bytes are moved.
    pub bytes: u64,
}

impl S3 {
    /// Runs `once` until it succeeds, fails for good, or was tried as often as the limits allow. It is told how many attempts
    /// there were before.
    pub(super) async fn attempts<T, F>(&self, ask: Ask<'_>, mut once: impl FnMut(u32) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut attempt = 0;
        self.budget.earn();
        loop {
            let done = self.attempt(ask, once(attempt)).await;
            self.traffic.note(ask, attempt, done.as_ref().err());
            let error = match done {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            attempt += 1;
            if error.class != Class::Retry || attempt >= self.limits.attempts {
                return Err(error);
            }
            if !self.budget.spend() {
                let reason = format!("{}; it was not tried again, since so many requests fail", error.reason);
                return Err(Error { reason, ..error });
            }
            tracing::debug!(%error, attempt, "a request to the object store is tried again");
            let pause = self.limits.pause_before(attempt, rand::random::<f64>());
            sleep(error.retry_after.map_or(pause, |asked| pause.max(asked.min(RETRY_AFTER_MAX)))).await;
        }
    }

    async fn attempt<T>(&self, ask: Ask<'_>, once: impl Future<Output = Result<T>>) -> Result<T> {
        let _permit = self.gate.enter(ask.bytes).await;
        let deadline = self.limits.deadline(ask.bytes);
        timeout(deadline, once).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", deadline.as_secs_f64());
            Err(Error::new(Class::Retry, ask.call, self.place(ask.key), reason))
        })
    }

    /// What the library says of a request that failed.
    pub(super) fn failed<E>(&self, call: &'static str, key: &str, failed: &SdkError<E, HttpResponse>) -> Error
    where
        E: ProvideErrorMetadata + Debug + std::error::Error + 'static,
    {
        let Some(response) = failed.raw_response() else {
            let class = if matches!(failed, SdkError::ConstructionFailure(_)) { Class::Invalid } else { Class::Retry };
            return Error::new(class, call, self.place(key), causes(failed));
        };
        let status = response.status().as_u16();
        let (code, message) = (failed.code().unwrap_or_default(), failed.message().unwrap_or_default());
        if matches!(code, "ExpiredToken" | "ExpiredTokenException") {
            self.credentials.forget();
        }
        let mut reason = format!("{status} {code} {message}").trim().to_owned();
        if let Some(id) = response.request_id() {
            reason.push_str(&format!(" (request {id})"));
        }
        let retry_after = response.headers().get("retry-after").and_then(|value| value.trim().parse().ok());
        Error {
            retry_after: retry_after.map(Duration::from_secs),
            ..Error::new(class_of(status, code), call, self.place(key), reason)
        }
    }
}

/// What a status means, together with the code that comes with it.
fn class_of(status: u16, code: &str) -> Class {
    match (status, code) {
        // Those that are fetched for the next attempt are newer.
        (_, "ExpiredToken" | "ExpiredTokenException" | "RequestTimeTooSkewed" | "RequestTimeout") => Class::Retry,
        // Another request for the same key was under way, perhaps one that removes: nothing is known of what is there now.
        (409, "ConditionalRequestConflict" | "OperationAborted") => Class::Retry,
        (404, _) => Class::NotFound,
        (409 | 412, _) => Class::Conflict,
        (401 | 403, _) => Class::Denied,
        (416, _) => Class::Damaged,
        (408 | 429 | 500.., _) => Class::Retry,
        (200..300, _) => Class::Retry,
        _ => Class::Invalid,
    }
}

/// An error with all that caused it, since the library's own texts say hardly more than that there was one.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
