//! A bucket of any S3-compatible store.
//!
//! ```text
//!   call ─► gate (requests at once, bytes in a second) ─► attempt, with a deadline by its bytes ─► answer, its length checked
//!             ▲                                              │ failed, and may be better later
//!             └───────────── pause, longer each time ◄───────┘
//! ```
//!
//! Attempts, pauses and deadlines are ours, not those of the library: it retries nothing, so that what is tried is counted once and
//! a delay that the store asks for is kept (B083). Where much fails, little of it is tried again: the retries of all requests
//! together have a budget.

mod attempt;
mod call;
mod credentials;
mod traffic;
mod upload;

use std::ops::Range;
use std::sync::Arc;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, IdentityCache, ProvideCredentials, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use bytes::Bytes;
use futures_util::future::BoxFuture;

use self::attempt::Ask;
use self::credentials::Held;
use self::traffic::Budget;
pub use self::traffic::{Asked, Traffic};
use crate::limits::Gate;
use crate::{
    Class, Creation, Error, KeyPage, Limits, Location, Object, ObjectMeta, ObjectStore, Result, Source, Tag,
    UnfinishedUpload,
};

/// The door to one location.
pub struct S3 {
    client: Client,
    location: Location,
    limits: Limits,
    gate: Gate,
    credentials: Held,
    budget: Budget,
    traffic: Arc<Traffic>,
}

impl S3 {
    /// Opens the door with credentials of the standard chain: environment, profile, web identity, instance role. No request is
    /// made, save those that the chain needs to find out where credentials come from.
    pub async fn connect(location: Location, limits: Limits) -> Result<S3> {
        let shared = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http_client())
            .region(Region::new(location.region.clone()))
            .load()
            .await;
        let none =
            || Error::new(Class::Denied, "connect", location.to_string(), "the environment names no credentials");
        let credentials = shared.credentials_provider().ok_or_else(none)?;
        S3::new(location, limits, credentials)
    }

    /// Opens the door with the credentials that `provider` tells; it is asked when they are needed and again before they
    /// expire (B086). No request is made.
    pub fn new(location: Location, limits: Limits, provider: impl ProvideCredentials + 'static) -> Result<S3> {
        location.check()?;
        let credentials = Held::new(provider);
        let mut config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(credentials.clone())
            // Ours are held, and let go where a store says that they have expired.
            .identity_cache(IdentityCache::no_cache())
            .region(Region::new(location.region.clone()))
            .http_client(http_client())
            .force_path_style(location.path_style)
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(limits.connect).build())
            // Chunked trailers are refused by some stores; our own hashes are checked in any case.
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            // Our deadlines know how many bytes are moved, and do not end an upload on a machine that is busy.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        if let Some(endpoint) = &location.endpoint {
            config = config.endpoint_url(endpoint);
        }
        let gate = Gate::new(&limits);
        let client = Client::from_conf(config.build());
        let (budget, traffic) = (Budget::full(), Arc::default());
        Ok(S3 { client, location, limits, gate, credentials, budget, traffic })
    }

    /// What was asked through it so far.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Where it leads.
    pub fn location(&self) -> &Location {
        &self.location
    }

    fn place(&self, key: &str) -> String {
        if key.is_empty() { self.location.to_string() } else { format!("{}/{key}", self.location) }
    }
}

impl ObjectStore for S3 {
    fn get<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> BoxFuture<'a, Result<Object>> {
        Box::pin(async move {
            let Some(range) = range else {
                // How long it may take is known only once it is known how long it is.
                let Some(meta) = self.head(key).await? else {
                    return Err(Error::new(Class::NotFound, "GET", self.place(key), "there is no such object"));
                };
                let ask = Ask { call: "GET", key, bytes: meta.bytes };
                return self.attempts(ask, |_| self.get_once(key, None)).await;
            };
            let ask = Ask { call: "GET", key, bytes: range.end.saturating_sub(range.start) };
            self.attempts(ask, |_| self.get_once(key, Some(range.clone()))).await
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<ObjectMeta>>> {
        Box::pin(async move {
            let ask = Ask { call: "HEAD", key, bytes: 0 };
            match self.attempts(ask, |_| self.head_once(key)).await {
                Ok(meta) => Ok(Some(meta)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn create<'a>(&'a self, key: &'a str, body: Bytes) -> BoxFuture<'a, Result<Creation>> {
        Box::pin(async move {
            let ask = Ask { call: "PUT", key, bytes: body.len() as u64 };
            let made = self.attempts(ask, |_| self.create_once(key, body.clone())).await;
            created(made.map(drop))
        })
    }

    fn upload<'a>(&'a self, key: &'a str, source: Arc<dyn Source>) -> BoxFuture<'a, Result<Creation>> {
        Box::pin(self.upload_source(key, source))
    }

    fn replace<'a>(&'a self, key: &'a str, body: Bytes, expected: Option<&'a Tag>) -> BoxFuture<'a, Result<Tag>> {
        Box::pin(async move {
            let ask = Ask { call: "PUT", key, bytes: body.len() as u64 };
            let put = self.attempts(ask, |_| self.replace_once(key, body.clone(), expected)).await;
            match put {
                // It may be our own, of an attempt whose answer was lost.
                Err(error) if error.is_conflict() => match self.get(key, None).await {
                    Ok(found) if found.bytes == body => Ok(found.tag),
                    Ok(_) => Err(error),
                    Err(unread) if unread.is_not_found() => Err(error),
                    Err(unread) => Err(unread),
                },
                put => put,
            }
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<KeyPage>> {
        Box::pin(async move {
            let ask = Ask { call: "LIST", key: prefix, bytes: 0 };
            self.attempts(ask, |_| self.list_once(prefix, after)).await
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let ask = Ask { call: "DELETE", key, bytes: 0 };
            match self.attempts(ask, |_| self.delete_once(key)).await {
                Err(error) if !error.is_not_found() => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn unfinished_uploads<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<UnfinishedUpload>>> {
        Box::pin(self.list_uploads(prefix))
    }

    fn give_up_upload<'a>(&'a self, upload: &'a UnfinishedUpload) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let ask = Ask { call: "DELETE", key: &upload.key, bytes: 0 };
            match self.attempts(ask, |_| self.give_up_once(&upload.key, &upload.id)).await {
                Err(error) if !error.is_not_found() => Err(error),
                _ => Ok(()),
            }
        })
    }
}

fn http_client() -> SharedHttpClient {
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}

/// That another object is there is no failure of making one.
fn created(made: Result<()>) -> Result<Creation> {
    match made {
        Ok(()) => Ok(Creation::New),
        Err(error) if error.is_conflict() => Ok(Creation::AlreadyThere),
        Err(error) => Err(error),
    }
}
