//! A store that fails as it is told.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::{Class, Creation, Error, KeyPage, Object, ObjectMeta, ObjectStore, Result, Source, Tag, UnfinishedUpload};

/// What was asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// GET
    Get,
    /// HEAD
    Head,
    /// PUT that makes an object
    Create,
    /// PUT that replaces one
    Replace,
    /// A listing
    List,
    /// DELETE
    Delete,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Call::Get => "GET",
            Call::Head => "HEAD",
            Call::Create | Call::Replace => "PUT",
            Call::List => "LIST",
            Call::Delete => "DELETE",
        }
    }
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done, as after the last attempt at an endpoint that does not answer.
    Unreachable,
    /// It is done, and nobody learns of it.
    AnswerLost,
    /// The role may not.
    Denied,
    /// The call never returns.
    Stalls,
}

/// Decides on each call.
type Plan = dyn FnMut(Call, &str) -> Option<Fault> + Send;

/// Another store, but for the calls that a plan lets fail.
pub struct Faulty {
    store: Arc<dyn ObjectStore>,
    plan: Mutex<Box<Plan>>,
    calls: Mutex<VecDeque<(Call, String)>>,
}

impl Faulty {
    /// `store`, failing where `plan` says so.
    pub fn new(store: Arc<dyn ObjectStore>, plan: impl FnMut(Call, &str) -> Option<Fault> + Send + 'static) -> Faulty {
        Faulty { store, plan: Mutex::new(Box::new(plan)), calls: Mutex::default() }
    }

    /// What was asked since this was asked last, in order.
    pub fn take_calls(&self) -> Vec<(Call, String)> {
        self.calls.lock().drain(..).collect()
    }

    async fn run<T>(&self, call: Call, key: &str, done: BoxFuture<'_, Result<T>>) -> Result<T> {
        self.calls.lock().push_back((call, key.to_owned()));
        let fault = (self.plan.lock())(call, key);
        let fail = |class, reason: &str| Err(Error::new(class, call.name(), format!("faulty://{key}"), reason));
        match fault {
            None => done.await,
            Some(Fault::Unreachable) => fail(Class::Retry, "the endpoint does not answer"),
            Some(Fault::AnswerLost) => done.await.and_then(|_| fail(Class::Retry, "the answer was lost")),
            Some(Fault::Denied) => fail(Class::Denied, "403 AccessDenied"),
            Some(Fault::Stalls) => std::future::pending().await,
        }
    }
}

impl ObjectStore for Faulty {
    fn get<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> BoxFuture<'a, Result<Object>> {
        Box::pin(self.run(Call::Get, key, self.store.get(key, range)))
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<ObjectMeta>>> {
        Box::pin(self.run(Call::Head, key, self.store.head(key)))
    }

    fn create<'a>(&'a self, key: &'a str, body: Bytes) -> BoxFuture<'a, Result<Creation>> {
        Box::pin(self.run(Call::Create, key, self.store.create(key, body)))
    }

    fn upload<'a>(&'a self, key: &'a str, source: Arc<dyn Source>) -> BoxFuture<'a, Result<Creation>> {
        Box::pin(self.run(Call::Create, key, self.store.upload(key, source)))
    }

    fn replace<'a>(&'a self, key: &'a str, body: Bytes, expected: Option<&'a Tag>) -> BoxFuture<'a, Result<Tag>> {
        Box::pin(self.run(Call::Replace, key, self.store.replace(key, body, expected)))
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<KeyPage>> {
        Box::pin(self.run(Call::List, prefix, self.store.list(prefix, after)))
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.run(Call::Delete, key, self.store.delete(key)))
    }

    fn unfinished_uploads<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<UnfinishedUpload>>> {
        Box::pin(self.run(Call::List, prefix, self.store.unfinished_uploads(prefix)))
    }

    fn give_up_upload<'a>(&'a self, upload: &'a UnfinishedUpload) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.run(Call::Delete, &upload.key, self.store.give_up_upload(upload)))
    }
}
