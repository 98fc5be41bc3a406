//! Where objects are.

use std::fmt;

use crate::{Class, Error, Result};

/// A bucket, the way to it, and where in it objects are kept. Credentials are no part of it: they come by the usual chain
/// of environment, profile, web identity and instance role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// `http://` or `https://`, host and port; none: AWS itself.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// What all keys begin with, without slashes at its ends; may be empty.
    pub prefix: String,
    /// Whether the bucket stands in the path, not in the host: what most stores other than AWS want.
    pub path_style: bool,
}

/// Longest prefix, in bytes: keys of S3 have 1,024, and ours need some 140 of them.
const PREFIX_BYTES_MAX: usize = 512;

impl Location {
    /// Refuses what no store would take, or what would make keys that mean something else.
    pub fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::new(Class::Invalid, "location", self.to_string(), reason));
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        let Location { bucket, prefix, endpoint, region, .. } = self;
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_name) {
            return refuse(format!(
                "bucket {bucket:?} must have 3 to 63 characters, small letters, digits, dots and hyphens"
            ));
        }
        if region.is_empty() || !region.chars().all(is_name) {
            return refuse(format!("region {region:?} must be made of small letters, digits and hyphens"));
        }
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(is_key);
        if !prefix.is_empty() && (prefix.len() > PREFIX_BYTES_MAX || !prefix.split('/').all(is_part)) {
            return refuse(format!(
                "prefix {prefix:?} must be words of letters, digits and -_.= with single slashes between them, at most \
                 {PREFIX_BYTES_MAX} bytes"
            ));
        }
        match endpoint {
            Some(endpoint) if !is_endpoint(endpoint) => {
                refuse(format!("endpoint {endpoint:?} must be http:// or https://, a host and perhaps a port"))
            }
            _ => Ok(()),
        }
    }

    /// The whole key of what is called `key` here.
    pub(crate) fn key(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) }
    }
}

fn is_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '=')
}

/// A scheme and an authority without anything secret in it.
fn is_endpoint(endpoint: &str) -> bool {
    let rest = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    rest.is_some_and(|host| {
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '[' | ']'))
    })
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}
