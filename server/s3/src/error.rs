//! What can go wrong with an object, as facts that a caller can act on.

use std::time::Duration;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The store or the way to it did not do its work, after all attempts. Later it may.
    Retry,
    /// There is no such object or bucket.
    NotFound,
    /// The object is not the one that was expected.
    Conflict,
    /// The store refuses this to whoever asked.
    Denied,
    /// What came is not what was asked for.
    Damaged,
    /// The request can never be fulfilled.
    Invalid,
}

/// Why something about an object failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{call} {place}: {reason}{}", self.advice())]
pub struct Error {
    /// What to do about it.
    pub class: Class,
    /// What was tried, for instance `GET`.
    pub call: &'static str,
    /// `s3://bucket/key`, or what stands for it.
    pub place: String,
    /// What came of it, with the status and the code of the store if it answered.
    pub reason: String,
    /// How long the store asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// An error of which no delay is known.
    pub fn new(class: Class, call: &'static str, place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error { class, call, place: place.into(), reason: reason.into(), retry_after: None }
    }

    /// Whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.class == Class::NotFound
    }

    /// Whether another object is there than was expected.
    pub fn is_conflict(&self) -> bool {
        self.class == Class::Conflict
    }

    fn advice(&self) -> &'static str {
        match self.class {
            Class::Retry => "; the endpoint or the way to it is to be looked at if this stays",
            Class::Denied => "; look at the policy of the role and at its credentials",
            Class::NotFound | Class::Conflict | Class::Damaged | Class::Invalid => "",
        }
    }
}
