//! Additions to counters: sent once.

use std::time::Duration;

use trefoil::model::Value;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op;
use trefoil_proto::v1::{Consistency, CounterAdd, IncrementRequest, InvalidDetail, WriteResult};

use crate::client::{Client, RequestOptions};
use crate::error::Result;
use crate::place::{Equal, locate};
use crate::retry::Repetition;
use crate::schema::TableView;
use crate::value::IntoValue;
use crate::write::unexpected;

/// An addition to counters of one row. Made by [`Client::increment`].
///
/// Doing it twice adds twice, so it is sent again only where it is certain that nothing was done. After an unknown outcome
/// ([`crate::Error::outcome`]) nobody can say whether it counts.
#[derive(Debug, Clone)]
#[must_use = "an addition does nothing until it is sent"]
pub struct Increment {
    client: Client,
    table: String,
    key: Vec<(String, Option<Value>)>,
    adds: Vec<CounterAdd>,
    options: RequestOptions,
}

impl Client {
    /// Adds to counters of a row of `keyspace.table`; with the partition key alone, to static ones.
    pub fn increment(&self, table: impl Into<String>) -> Increment {
        let options = RequestOptions { repetition: Repetition::Unsafe, ..RequestOptions::default() };
        Increment { client: self.clone(), table: table.into(), key: Vec::new(), adds: Vec::new(), options }
    }
}

impl Increment {
    /// A column of the key and its value.
    pub fn key(mut self, column: impl Into<String>, value: impl IntoValue) -> Increment {
        self.key.push((column.into(), value.into_value()));
        self
    }

    /// Adds to this counter; negative to subtract.
    pub fn add(mut self, column: impl Into<String>, add: i64) -> Increment {
        self.adds.push(CounterAdd { column: column.into(), add });
        self
    }

    /// How many replicas must have it, instead of the client's level.
    pub fn consistency(mut self, consistency: Consistency) -> Increment {
        self.options.consistency = Some(consistency);
        self
    }

    /// How long it may take, instead of the client's timeout.
    pub fn timeout(mut self, timeout: Duration) -> Increment {
        self.options.timeout = Some(timeout);
        self
    }

    /// Sends it.
    pub async fn send(self) -> Result<WriteResult> {
        let deadline = self.client.shared.deadline(&self.options);
        let mut sight = self.client.sight(&self.table).await?;
        loop {
            match self.send_to(&sight.view).await {
                // A view that is out of date heals only what was surely not done.
                Err(error) if error.outcome() == trefoil_proto::v1::Outcome::NotApplied => {
                    sight.renew(&self.client, error, deadline).await?;
                }
                result => return result,
            }
        }
    }

    async fn send_to(&self, view: &TableView) -> Result<WriteResult> {
        let key: Vec<Equal<'_>> = self.key.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let located = locate(view, &key, &[])?;
        let Some((key, partition)) = located.partition else {
            return Err(view.place(InvalidDetail::new("the key is not given")));
        };
        let shared = &self.client.shared;
        let op = || {
            Op::Increment(IncrementRequest {
                options: Some(shared.options(&self.options, None)),
                table: Some(view.reference.clone()),
                partition: partition.clone(),
                clustering: located.prefix.clone(),
                adds: self.adds.clone(),
            })
        };
        let target = Some((view.keyspace.as_str(), key.token()));
        match shared.execute(op(), || Ok(op()), target, &self.options).await? {
            Answer::Write(result) => Ok(result),
            other => Err(unexpected(&other)),
        }
    }
}
