//! Credentials that are looked at before anything is signed with them (B086).

use std::time::SystemTime;

use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::future;
use aws_sdk_s3::config::{Credentials, ProvideCredentials};

/// Another provider, but for credentials that are empty or have expired: those are an error, which is tried again like any
/// other. Whoever caches them asks again before they expire.
#[derive(Debug)]
pub(super) struct Checked<P>(pub P);

impl<P: ProvideCredentials> Checked<P> {
    async fn checked(&self) -> Result<Credentials, CredentialsError> {
        let credentials = self.0.provide_credentials().await?;
        let refuse = |reason: &str| Err(CredentialsError::invalid_configuration(format!("the credentials {reason}")));
        if credentials.access_key_id().is_empty() || credentials.secret_access_key().is_empty() {
            return refuse("that were provided are empty");
        }
        if credentials.expiry().is_some_and(|expiry| expiry <= SystemTime::now()) {
            return refuse("that were provided have expired");
        }
        Ok(credentials)
    }
}

impl<P: ProvideCredentials> ProvideCredentials for Checked<P> {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.checked())
    }
}
