//! The yardstick: objects put and got by the library alone, some at once, with nothing of ours between.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_credential_types::Credentials;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Region, RequestChecksumCalculation, ResponseChecksumValidation, StalledStreamProtectionConfig,
};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::bucket::{ACCESS_KEY, Bucket, NAME, SECRET_KEY, Stored};
use crate::Result;

/// The library's client.
pub struct Plain {
    client: Arc<Client>,
    at_once: usize,
}

impl Plain {
    /// For so many requests at once.
    pub fn new(bucket: &Bucket, at_once: usize) -> Plain {
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "bench"))
            .region(Region::new("us-east-1"))
            .http_client(Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https())
            .endpoint_url(bucket.endpoint())
            .force_path_style(true)
            .retry_config(RetryConfig::disabled())
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Plain { client: Arc::new(Client::from_conf(config)), at_once }
    }

    /// How long it takes to put copies of these under `prefix`; they are in memory before that.
    pub async fn put(&self, objects: &[Stored], prefix: &str) -> Result<Duration> {
        let read =
            |object: &Stored| Ok((format!("{prefix}/{}", object.key), Bytes::from(std::fs::read(&object.file)?)));
        let bodies: Vec<(String, Bytes)> = objects.iter().map(read).collect::<Result<_>>()?;
        let started = Instant::now();
        let puts = stream::iter(bodies).map(|(key, body)| {
            let client = self.client.clone();
            tokio::spawn(async move {
                let put = client.put_object().bucket(NAME).key(key).body(ByteStream::from(body));
                put.send().await.map(drop)
            })
        });
        let mut puts = puts.buffer_unordered(self.at_once);
        while let Some(put) = puts.next().await {
            put??;
        }
        Ok(started.elapsed())
    }

    /// How long it takes to get these, and how many bytes came.
    pub async fn get(&self, objects: &[Stored]) -> Result<(Duration, u64)> {
        let keys: Vec<String> = objects.iter().map(|object| object.key.clone()).collect();
        let started = Instant::now();
        let gets = stream::iter(keys).map(|key| {
            let client = self.client.clone();
            tokio::spawn(async move {
                let got = client.get_object().bucket(NAME).key(key).send().await?;
                Ok::<_, crate::Error>(got.body.collect().await?.into_bytes().len() as u64)
            })
        });
        let mut gets = gets.buffer_unordered(self.at_once);
        let mut bytes = 0;
        while let Some(got) = gets.next().await {
            bytes += got??;
        }
        Ok((started.elapsed(), bytes))
    }
}
