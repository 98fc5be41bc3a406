//! Writes: built by column names, sent as one mutation, or several in a batch.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use trefoil::model::{ColumnKind, Token, Value};
use trefoil_proto::convert::value;
use trefoil_proto::v1::batch_item::Result as ItemResult;
use trefoil_proto::v1::cell_write::{Element, Op as CellOp};
use trefoil_proto::v1::change::Op as ChangeOp;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op;
use trefoil_proto::v1::{
    BatchRequest, CellWrite, Change, Consistency, InvalidDetail, MutateRequest, Mutation, Options, Outcome, RowRef,
    RowWrite, WholePartition, WriteResult,
};

use crate::client::{Client, RequestOptions};
use crate::error::{Error, Result};
use crate::place::{Comparison, Equal, Limit, encode, locate};
use crate::retry::{Decision, Failure, Repetition, backoff, decide};
use crate::schema::TableView;
use crate::value::IntoValue;

/// How many times the failed writes of a batch are sent, at most.
const ROUNDS_MAX: u32 = 6;

/// What can be written as a row: pairs of column and value. A column that is left out stays as it is.
pub trait ToRow {
    /// Columns and their values; `None` is null.
    fn to_row(&self) -> Vec<(String, Option<Value>)>;
}

/// One write to one partition. Made by [`Client::insert`], [`Client::update`] and [`Client::delete`].
#[derive(Debug, Clone)]
#[must_use = "a write does nothing until it is sent"]
pub struct Write {
    client: Client,
    table: String,
    kind: Kind,
    values: Vec<(String, Option<Value>)>,
    limits: Vec<Limit>,
    deleted_columns: Vec<String>,
    /// What becomes of elements of columns that are not frozen.
    elements: Vec<CellWrite>,
    ttl_s: Option<u32>,
    timestamp_us: Option<i64>,
    options: RequestOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Insert,
    Update,
    Delete,
}

impl Client {
    /// Writes a row of `keyspace.table` and makes it exist even if all its columns are null.
    pub fn insert(&self, table: impl Into<String>) -> Write {
        Write::new(self, table.into(), Kind::Insert)
    }

    /// Writes columns of a row of `keyspace.table`, which exists as long as one of them is not null. With the partition
    /// key alone: static columns.
    pub fn update(&self, table: impl Into<String>) -> Write {
        Write::new(self, table.into(), Kind::Update)
    }

    /// Deletes from `keyspace.table`: the row of a whole key, the rows of a shorter one or of limits, or the partition if
    /// only its key is given. With [`Write::column`]: only these columns.
    pub fn delete(&self, table: impl Into<String>) -> Write {
        Write::new(self, table.into(), Kind::Delete)
    }

    /// Several writes in one request. Those of one partition of one table are made as a whole; each partition by itself.
    pub fn batch(&self) -> Batch {
        Batch { client: self.clone(), writes: Vec::new(), options: RequestOptions::default() }
    }
}

impl Write {
    fn new(client: &Client, table: String, kind: Kind) -> Write {
        Write {
            client: client.clone(),
            table,
            kind,
            values: Vec::new(),
            limits: Vec::new(),
            deleted_columns: Vec::new(),
            elements: Vec::new(),
            ttl_s: None,
            timestamp_us: None,
            options: RequestOptions::default(),
        }
    }

    /// A column and its value; `None` is null. Key columns too.
    pub fn value(mut self, column: impl Into<String>, value: impl IntoValue) -> Write {
        self.values.push((column.into(), value.into_value()));
        self
    }

    /// The same as [`Write::value`], for columns of the key.
    pub fn key(self, column: impl Into<String>, value: impl IntoValue) -> Write {
        self.value(column, value)
    }

    /// All columns of a row.
    pub fn row(mut self, row: &impl ToRow) -> Write {
        self.values.extend(row.to_row());
        self
    }

    /// Of a delete: this column only.
    pub fn column(mut self, column: impl Into<String>) -> Write {
        self.deleted_columns.push(column.into());
        self
    }

    /// Adds elements to a list, set or map that is not frozen: behind the others of a list; in a map they replace what
    /// stands at their keys. None of these operations on elements reads before it writes.
    pub fn append(self, column: impl Into<String>, elements: impl IntoValue) -> Write {
        self.element(column, CellOp::Append(wire(elements)))
    }

    /// Adds elements to a list that is not frozen, before the others.
    pub fn prepend(self, column: impl Into<String>, elements: impl IntoValue) -> Write {
        self.element(column, CellOp::Prepend(wire(elements)))
    }

    /// Removes these elements of a set, or what stands at these keys of a map, given as a set.
    pub fn remove(self, column: impl Into<String>, elements: impl IntoValue) -> Write {
        self.element(column, CellOp::Remove(wire(elements)))
    }

    /// Sets what stands at a key of a map, or a field of a user-defined type by its name; `None` deletes it.
    pub fn set_element(self, column: impl Into<String>, path: impl IntoValue, value: impl IntoValue) -> Write {
        let element = Element { path: Some(wire(path)), value: Some(wire(value)) };
        self.element(column, CellOp::SetElement(element))
    }

    /// Deletes what stands at a key of a map, an element of a set, or a field of a user-defined type by its name.
    pub fn delete_element(self, column: impl Into<String>, path: impl IntoValue) -> Write {
        self.element(column, CellOp::DeleteElement(wire(path)))
    }

    fn element(mut self, column: impl Into<String>, op: CellOp) -> Write {
        self.elements.push(CellWrite { column: column.into(), op: Some(op) });
        self
    }

    /// Of a delete: only rows whose first clustering column without a value is at least this.
    pub fn at_least(self, column: impl Into<String>, value: impl IntoValue) -> Write {
        self.limit(column.into(), Comparison::AtLeast, value)
    }

    /// Of a delete: only rows whose first clustering column without a value is more than this.
    pub fn more_than(self, column: impl Into<String>, value: impl IntoValue) -> Write {
        self.limit(column.into(), Comparison::MoreThan, value)
    }

    /// Of a delete: only rows whose first clustering column without a value is at most this.
    pub fn at_most(self, column: impl Into<String>, value: impl IntoValue) -> Write {
        self.limit(column.into(), Comparison::AtMost, value)
    }

    /// Of a delete: only rows whose first clustering column without a value is less than this.
    pub fn less_than(self, column: impl Into<String>, value: impl IntoValue) -> Write {
        self.limit(column.into(), Comparison::LessThan, value)
    }

    fn limit(mut self, column: String, comparison: Comparison, value: impl IntoValue) -> Write {
        self.limits.push((column, comparison, value.into_value()));
        self
    }

    /// What is written is gone after so many seconds; 0: never, whatever the table's default is.
    pub fn ttl_s(mut self, seconds: u32) -> Write {
        self.ttl_s = Some(seconds);
        self
    }

    /// Microseconds since 1970 that decide between versions, instead of the client's clock.
    pub fn timestamp_us(mut self, timestamp_us: i64) -> Write {
        self.timestamp_us = Some(timestamp_us);
        self
    }

    /// How many replicas must have it, instead of the client's level.
    pub fn consistency(mut self, consistency: Consistency) -> Write {
        self.options.consistency = Some(consistency);
        self
    }

    /// How long it may take with all attempts, instead of the client's timeout.
    pub fn timeout(mut self, timeout: Duration) -> Write {
        self.options.timeout = Some(timeout);
        self
    }

    /// Whether it may be sent again after an unknown outcome; [`Repetition::Safe`] if it is not set.
    pub fn repetition(mut self, repetition: Repetition) -> Write {
        self.options.repetition = repetition;
        self
    }

    /// Sends it.
    pub async fn send(self) -> Result<WriteResult> {
        // Fixed once, so that every attempt is the same write.
        let timestamp_us = self.timestamp_us.unwrap_or_else(|| self.client.shared.next_timestamp());
        let deadline = self.client.shared.deadline(&self.options);
        let mut sight = self.client.sight(&self.table).await?;
        loop {
            match self.send_to(&sight.view, timestamp_us).await {
                Err(error) => sight.renew(&self.client, error, deadline).await?,
                result => return result,
            }
        }
    }

    async fn send_to(&self, view: &TableView, timestamp_us: i64) -> Result<WriteResult> {
        let shared = &self.client.shared;
        let options = shared.options(&self.options, Some(timestamp_us));
        let operation = || {
            let (token, mutation) = self.build(view)?;
            let op = Op::Mutate(MutateRequest { options: Some(options.clone()), mutation: Some(mutation) });
            Ok((token, op))
        };
        let (token, op) = operation()?;
        let again = || operation().map(|(_, op)| op);
        match shared.execute(op, again, Some((&view.keyspace, token)), &self.options).await? {
            Answer::Write(result) => Ok(result),
            other => Err(unexpected(&other)),
        }
    }

    /// The mutation, and the token of its partition.
    fn build(&self, view: &TableView) -> Result<(Token, Mutation)> {
        let mut key: Vec<Equal<'_>> = Vec::with_capacity(self.values.len());
        let mut cells = Vec::with_capacity(self.values.len() + self.deleted_columns.len());
        for (name, value) in &self.values {
            let column = view.column(name)?;
            if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering(_)) {
                key.push((name, value));
                continue;
            }
            if self.kind == Kind::Delete {
                let reason = "is not part of the key; columns to delete are named without a value";
                return Err(view.place(InvalidDetail::new(reason).column(name)));
            }
            let value = match value {
                Some(value) => value::raw(encode(view, column, value)?),
                None => value::null(),
            };
            cells.push(CellWrite::set(name, value));
        }
        let deleted = |name: &String| CellWrite::set(name, value::null());
        cells.extend(self.deleted_columns.iter().map(deleted));
        for write in &self.elements {
            view.column(&write.column)?;
            cells.push(write.clone());
        }
        let located = locate(view, &key, &self.limits)?;
        let Some((key, partition)) = located.partition else {
            return Err(view.place(InvalidDetail::new("the key is not given")));
        };
        if self.kind != Kind::Delete && !(self.deleted_columns.is_empty() && self.limits.is_empty()) {
            return Err(view.place(InvalidDetail::new("limits and columns without a value are for deletes")));
        }
        let write = RowWrite { clustering: located.prefix.clone(), cells };
        let op = match self.kind {
            Kind::Insert => ChangeOp::Insert(write),
            Kind::Update => ChangeOp::Update(write),
            Kind::Delete if !write.cells.is_empty() => ChangeOp::Update(write),
            Kind::Delete if located.prefix.len() == view.table.clustering().count() && !located.prefix.is_empty() => {
                ChangeOp::DeleteRow(RowRef { clustering: located.prefix })
            }
            Kind::Delete => match located.range {
                Some(range) => ChangeOp::DeleteRange(range),
                None => ChangeOp::DeletePartition(WholePartition {}),
            },
        };
        let change = Change { timestamp_us: self.timestamp_us, ttl_s: self.ttl_s, op: Some(op) };
        let mutation = Mutation { table: Some(view.reference.clone()), partition, changes: vec![change] };
        Ok((key.token(), mutation))
    }
}

/// A value in its typed form; the node checks whether it fits its column.
fn wire(value: impl IntoValue) -> trefoil_proto::v1::Value {
    value.into_value().map_or_else(value::null, value::from_model)
}

/// Several writes in one request. Made by [`Client::batch`].
#[derive(Debug, Clone)]
#[must_use = "a batch does nothing until it is sent"]
pub struct Batch {
    client: Client,
    writes: Vec<Write>,
    options: RequestOptions,
}

impl Batch {
    /// Adds a write. Its own level, timeout and repetition do not count, those of the batch do.
    pub fn with(mut self, write: Write) -> Batch {
        self.writes.push(write);
        self
    }

    /// How many replicas must have each write, instead of the client's level.
    pub fn consistency(mut self, consistency: Consistency) -> Batch {
        self.options.consistency = Some(consistency);
        self
    }

    /// How long it may take with all attempts, instead of the client's timeout.
    pub fn timeout(mut self, timeout: Duration) -> Batch {
        self.options.timeout = Some(timeout);
        self
    }

    /// Sends it to a replica of the first write: one result for each write, in their order. Writes that failed in a way that
    /// time heals are sent again, those of one partition still as a whole.
    pub async fn send(self) -> Result<Vec<Result<WriteResult>>> {
        // Fixed once, id and timestamp: what is sent again is the same write.
        let options = self.client.shared.options(&self.options, Some(self.client.shared.next_timestamp()));
        let deadline = self.client.shared.deadline(&self.options);
        let mut progress = Progress::new(self.writes.len());
        let mut pending: Vec<usize> = (0..self.writes.len()).collect();
        while !pending.is_empty() {
            progress.round += 1;
            let items = match self.send_some(&pending, &options, deadline).await {
                Ok(items) => items,
                Err(error) if progress.round == 1 && !error.is_schema_out_of_date() => return Err(error),
                Err(error) => pending.iter().map(|_| Err(error.clone())).collect(),
            };
            pending = self.sort_out(&pending, items, &mut progress);
            if progress.stale && !pending.is_empty() {
                self.refresh_tables(&pending).await?;
                progress.stale = false;
            }
            if Instant::now() + progress.delay < deadline && !pending.is_empty() {
                sleep(progress.delay).await;
            }
        }
        Ok(progress.results.into_iter().flatten().collect())
    }

    async fn refresh_tables(&self, places: &[usize]) -> Result<()> {
        let tables: BTreeSet<&str> = places.iter().map(|place| self.writes[*place].table.as_str()).collect();
        for table in tables {
            self.client.refresh_table(table).await?;
        }
        Ok(())
    }

    /// Sends the writes of these places; one result for each.
    async fn send_some(
        &self,
        places: &[usize],
        options: &Options,
        deadline: Instant,
    ) -> Result<Vec<Result<WriteResult>>> {
        let shared = &self.client.shared;
        let mut mutations = Vec::with_capacity(places.len());
        let mut target = None;
        for &place in places {
            let write = &self.writes[place];
            let view = self.client.table(&write.table).await?;
            let (token, mutation) = write.build(&view).map_err(|error| at_index(error, place))?;
            target.get_or_insert_with(|| (view.keyspace.clone(), token));
            mutations.push(mutation);
        }
        let op = Op::Batch(BatchRequest { options: Some(options.clone()), mutations });
        let target = target.as_ref().map(|(keyspace, token)| (keyspace.as_str(), *token));
        let timeout = Some(deadline.saturating_duration_since(Instant::now()));
        match shared.execute(op.clone(), || Ok(op.clone()), target, &RequestOptions { timeout, ..self.options }).await?
        {
            Answer::Batch(batch) if batch.items.len() == places.len() => {
                Ok(batch.items.into_iter().map(|item| item_result(item.result)).collect())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Keeps what is final; the places of what is to be sent again.
    fn sort_out(&self, places: &[usize], items: Vec<Result<WriteResult>>, progress: &mut Progress) -> Vec<usize> {
        let mut at_least = Duration::ZERO;
        let mut again = Vec::new();
        for (&place, mut item) in places.iter().zip(items) {
            progress.doubtful[place] |= item.as_ref().is_err_and(|error| error.outcome() != Outcome::NotApplied);
            if progress.doubtful[place] {
                item = item.map_err(Error::doubtful);
            }
            let decision = match &item {
                Err(Error::Refused { error, .. }) => {
                    decide(&Failure::Refused((**error).clone()), self.options.repetition)
                }
                _ => Decision::GiveUp,
            };
            let stale = item.as_ref().is_err_and(Error::is_schema_out_of_date);
            match decision {
                _ if stale && progress.round == 1 => {
                    progress.stale = true;
                    again.push(place);
                }
                Decision::Later { at_least: asked }
                    if progress.round < ROUNDS_MAX && self.client.shared.may_repeat() =>
                {
                    at_least = at_least.max(asked);
                    again.push(place);
                }
                _ => progress.results[place] = Some(item),
            }
        }
        progress.delay = at_least + backoff(progress.round, rand::random_range(0.0..=1.0));
        again
    }
}

/// What has become of the writes of a batch, by their places.
struct Progress {
    /// How many times a request was sent.
    round: u32,
    results: Vec<Option<Result<WriteResult>>>,
    /// Whose outcome was unknown once; it stays so, whatever a later round says.
    doubtful: Vec<bool>,
    /// A table has changed.
    stale: bool,
    /// Before the next round.
    delay: Duration,
}

impl Progress {
    fn new(writes: usize) -> Progress {
        let results = (0..writes).map(|_| None).collect();
        Progress { round: 0, results, doubtful: vec![false; writes], stale: false, delay: Duration::ZERO }
    }
}

fn item_result(item: Option<ItemResult>) -> Result<WriteResult> {
    let error = match item {
        Some(ItemResult::Write(result)) => return Ok(result),
        Some(ItemResult::Error(error)) => error,
        None => trefoil_proto::v1::Error::default(),
    };
    let outcome = error.outcome();
    Err(Error::Refused { error: Box::new(error), outcome, attempts: 1 })
}

fn at_index(error: Error, index: usize) -> Error {
    match error {
        Error::Invalid(invalid) => Error::Invalid(invalid.op(index)),
        other => other,
    }
}

/// An answer of another kind than the question.
pub(crate) fn unexpected(answer: &Answer) -> Error {
    let kind = match answer {
        Answer::Write(_) => "a write",
        Answer::Batch(_) => "a batch",
        Answer::Page(_) => "a page",
        Answer::Error(_) => "an error",
    };
    Error::Column { column: String::new(), reason: format!("the node answered as to {kind}") }
}
