//! Credentials that are looked at before anything is signed with them (B086), held while they are good, and asked for anew as soon
//! as a store says that they have expired.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::future;
use aws_sdk_s3::config::{Credentials, ProvideCredentials, SharedCredentialsProvider};
use tokio::sync::Mutex;

/// Credentials are asked for again when they expire sooner than this.
const BEFORE_EXPIRY: Duration = Duration::from_secs(5 * 60);

/// Those that do not say when they expire are asked for again after this.
const HELD_AT_MOST: Duration = Duration::from_secs(15 * 60);

/// What another provider tells, for as long as that is good.
#[derive(Debug, Clone)]
pub(super) struct Held(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    provider: SharedCredentialsProvider,
    /// What it told last, and when to ask it again. Locked while it is asked, so that one request does it for all.
    last: Mutex<Option<(Credentials, SystemTime)>>,
    /// Whether a store has refused them.
    is_refused: AtomicBool,
}

impl Held {
    pub(super) fn new(provider: impl ProvideCredentials + 'static) -> Held {
        let provider = SharedCredentialsProvider::new(provider);
        Held(Arc::new(Inner { provider, last: Mutex::default(), is_refused: AtomicBool::new(false) }))
    }

    /// A store says that they have expired, whatever they say of themselves: the next request asks for others.
    pub(super) fn forget(&self) {
        self.0.is_refused.store(true, Ordering::Relaxed);
    }

    async fn credentials(&self) -> Result<Credentials, CredentialsError> {
        let Inner { provider, last, is_refused } = &*self.0;
        let mut last = last.lock().await;
        let now = SystemTime::now();
        if is_refused.swap(false, Ordering::Relaxed) {
            *last = None;
        }
        if let Some((credentials, until)) = &*last
            && now < *until
        {
            return Ok(credentials.clone());
        }
        let told = provider.provide_credentials().await.and_then(|told| checked(told, now));
        match (told, &*last) {
            (Ok(told), _) => {
                let expires = told.expiry().and_then(|expiry| expiry.checked_sub(BEFORE_EXPIRY));
                *last = Some((told.clone(), expires.unwrap_or(now + HELD_AT_MOST)));
                Ok(told)
            }
            // It is asked before they expire, and need not answer at once.
            (Err(_), Some((before, _))) if before.expiry().is_some_and(|expiry| now < expiry) => Ok(before.clone()),
            (Err(error), _) => Err(error),
        }
    }
}

/// Refuses credentials that are empty or have expired; that is tried again like any other error.
fn checked(credentials: Credentials, now: SystemTime) -> Result<Credentials, CredentialsError> {
    let refuse = |reason: &str| Err(CredentialsError::invalid_configuration(format!("the credentials {reason}")));
    if credentials.access_key_id().is_empty() || credentials.secret_access_key().is_empty() {
        return refuse("that were provided are empty");
    }
    if credentials.expiry().is_some_and(|expiry| expiry <= now) {
        return refuse("that were provided have expired");
    }
    Ok(credentials)
}

impl ProvideCredentials for Held {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.credentials())
    }
}
