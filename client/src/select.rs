//! Reads: built by column names, answered as rows, page by page.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use trefoil::model::{Token, TokenRange, Value};
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op;
use trefoil_proto::v1::read_request::Target;
use trefoil_proto::v1::{
    self, Consistency, InvalidDetail, Projection, ReadCost, ReadPage, ReadRequest, TokenScan, ValueForm,
};

use crate::client::{Client, RequestOptions};
use crate::error::Result;
use crate::place::{Comparison, Equal, Limit, Located, locate};
use crate::row::{FromRow, Heading, Row};
use crate::schema::TableView;
use crate::value::IntoValue;
use crate::write::unexpected;

/// Rows as they come, fetched page by page. After an error there are no more.
pub type Rows<T = Row> = Pin<Box<dyn Stream<Item = Result<T>> + Send>>;

/// Pages as they come, each with what the cluster says of it. After an error there are no more.
pub type Pages = Pin<Box<dyn Stream<Item = Result<Page>> + Send>>;

/// What one request of a read has brought.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Its rows; there may be none although more pages follow.
    pub rows: Vec<Row>,
    /// What was found and is near a limit of the cluster, for people.
    pub warnings: Vec<String>,
    /// What it has cost, if [`Select::trace`] asked for it.
    pub cost: Option<ReadCost>,
}

/// A read of one partition, or of all in a range of tokens. Made by [`Client::select`].
#[derive(Debug, Clone)]
#[must_use = "a read does nothing until its rows are asked for"]
pub struct Select {
    client: Client,
    table: String,
    columns: Option<Vec<String>>,
    metadata: bool,
    elements: bool,
    equal: Vec<(String, Option<Value>)>,
    limits: Vec<Limit>,
    tokens: TokenRange,
    reversed: bool,
    limit: u64,
    per_partition_limit: u32,
    page_rows: u32,
    page_bytes: u32,
    trace: bool,
    options: RequestOptions,
}

impl Client {
    /// Reads rows of `keyspace.table`: of one partition if its key is given, else of all.
    pub fn select(&self, table: impl Into<String>) -> Select {
        Select {
            client: self.clone(),
            table: table.into(),
            columns: None,
            metadata: false,
            elements: false,
            equal: Vec::new(),
            limits: Vec::new(),
            tokens: TokenRange::ALL,
            reversed: false,
            limit: 0,
            per_partition_limit: 0,
            page_rows: 0,
            page_bytes: 0,
            trace: false,
            options: RequestOptions::default(),
        }
    }
}

impl Select {
    /// Only these columns beside the key's; none at all reads keys only.
    pub fn columns<I: IntoIterator<Item: Into<String>>>(mut self, columns: I) -> Select {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Where values come from too: see [`Row::metadata`].
    pub fn with_metadata(mut self) -> Select {
        self.metadata = true;
        self
    }

    /// Where the elements of values come from too, and how they are named: see [`Row::elements`].
    pub fn with_elements(mut self) -> Select {
        self.elements = true;
        self
    }

    /// Only rows with this value in a column of the key: all of the partition key, then any number of clustering columns in
    /// their order.
    pub fn key(mut self, column: impl Into<String>, value: impl IntoValue) -> Select {
        self.equal.push((column.into(), value.into_value()));
        self
    }

    /// Only rows whose first clustering column without a value is at least this.
    pub fn at_least(self, column: impl Into<String>, value: impl IntoValue) -> Select {
        self.limited(column.into(), Comparison::AtLeast, value)
    }

    /// Only rows whose first clustering column without a value is more than this.
    pub fn more_than(self, column: impl Into<String>, value: impl IntoValue) -> Select {
        self.limited(column.into(), Comparison::MoreThan, value)
    }

    /// Only rows whose first clustering column without a value is at most this.
    pub fn at_most(self, column: impl Into<String>, value: impl IntoValue) -> Select {
        self.limited(column.into(), Comparison::AtMost, value)
    }

    /// Only rows whose first clustering column without a value is less than this.
    pub fn less_than(self, column: impl Into<String>, value: impl IntoValue) -> Select {
        self.limited(column.into(), Comparison::LessThan, value)
    }

    fn limited(mut self, column: String, comparison: Comparison, value: impl IntoValue) -> Select {
        self.limits.push((column, comparison, value.into_value()));
        self
    }

    /// Of a read of all partitions: only those with a token in the range.
    pub fn tokens(mut self, tokens: TokenRange) -> Select {
        self.tokens = tokens;
        self
    }

    /// The rows of each partition from last to first.
    pub fn reversed(mut self) -> Select {
        self.reversed = true;
        self
    }

    /// At most so many rows; 0: all.
    pub fn limit(mut self, rows: u64) -> Select {
        self.limit = rows;
        self
    }

    /// At most so many rows of each partition; 0: all.
    pub fn per_partition_limit(mut self, rows: u32) -> Select {
        self.per_partition_limit = rows;
        self
    }

    /// Rows fetched at a time; 0: as the node thinks fit.
    pub fn page_rows(mut self, rows: u32) -> Select {
        self.page_rows = rows;
        self
    }

    /// Bytes fetched at a time, about; 0: as the node thinks fit.
    pub fn page_bytes(mut self, bytes: u32) -> Select {
        self.page_bytes = bytes;
        self
    }

    /// Pages say what they have cost: see [`Page::cost`].
    pub fn trace(mut self) -> Select {
        self.trace = true;
        self
    }

    /// How many replicas must answer, instead of the client's level.
    pub fn consistency(mut self, consistency: Consistency) -> Select {
        self.options.consistency = Some(consistency);
        self
    }

    /// How long each page may take with all attempts, instead of the client's timeout.
    pub fn timeout(mut self, timeout: Duration) -> Select {
        self.options.timeout = Some(timeout);
        self
    }

    /// The first row, if there is one.
    pub async fn one(self) -> Result<Option<Row>> {
        let select = self.limit(1);
        let (mut prepared, mut page) = select.first_page().await?;
        loop {
            if let Some(row) = page.rows.pop() {
                return Row::new(&prepared.heading, row).map(Some);
            }
            if page.paging_state.is_empty() {
                return Ok(None);
            }
            (prepared, page) = select.next_page(prepared, page.paging_state).await?;
        }
    }

    /// All rows at once.
    pub async fn all(self) -> Result<Vec<Row>> {
        self.stream().try_collect().await
    }

    /// All rows, as they come. Every page is a request of its own, with its own choice of node and its own attempts, so
    /// that a long read outlives nodes that come and go.
    pub fn stream(self) -> Rows {
        Box::pin(self.pages().map_ok(|page| stream::iter(page.rows.into_iter().map(Ok))).try_flatten())
    }

    /// All rows, as [`Select::stream`] has them, page by page.
    pub fn pages(self) -> Pages {
        Box::pin(stream::try_unfold(Paging::Begin(Box::new(self)), Paging::next))
    }

    /// The same as something else than [`Row`]s.
    pub fn stream_as<T: FromRow + Send + 'static>(self) -> Rows<T> {
        Box::pin(self.stream().map(|row| row.and_then(Row::into_typed)))
    }

    async fn first_page(&self) -> Result<(Prepared, ReadPage)> {
        let deadline = self.client.shared.deadline(&self.options);
        let mut sight = self.client.sight(&self.table).await?;
        loop {
            match self.try_page(&sight.view, Bytes::new()).await {
                Err(error) => sight.renew(&self.client, error, deadline).await?,
                result => return result,
            }
        }
    }

    /// The page behind `paging_state`, by the table as it is now: a table may be altered while it is read. One that was
    /// emptied or made anew is another table, and no page of it continues the read.
    async fn next_page(&self, prepared: Prepared, paging_state: Bytes) -> Result<(Prepared, ReadPage)> {
        let error = match self.page(&prepared, paging_state.clone()).await {
            Err(error) if error.is_schema_out_of_date() => error,
            result => return result.map(|page| (prepared, page)),
        };
        let deadline = self.client.shared.deadline(&self.options);
        let mut sight = self.client.sight(&self.table).await?;
        let mut last = error;
        loop {
            sight.renew(&self.client, last.clone(), deadline).await?;
            if prepared.table_id() != sight.view.reference.id {
                return Err(last);
            }
            match self.try_page(&sight.view, paging_state.clone()).await {
                Err(error) => last = error,
                result => return result,
            }
        }
    }

    async fn try_page(&self, view: &TableView, paging_state: Bytes) -> Result<(Prepared, ReadPage)> {
        let prepared = self.prepare(view)?;
        let page = self.page(&prepared, paging_state).await?;
        Ok((prepared, page))
    }

    async fn page(&self, prepared: &Prepared, paging_state: Bytes) -> Result<ReadPage> {
        let shared = &self.client.shared;
        let options = Some(v1::Options { trace: self.trace, ..shared.options(&self.options, None) });
        let op = || {
            let (options, paging_state) = (options.clone(), paging_state.clone());
            Op::Read(ReadRequest { options, paging_state, ..prepared.request.clone() })
        };
        let target = prepared.token.map(|token| (prepared.keyspace.as_str(), token));
        match shared.execute(op(), || Ok(op()), target, &self.options).await? {
            Answer::Page(page) => Ok(page),
            other => Err(unexpected(&other)),
        }
    }

    fn prepare(&self, view: &TableView) -> Result<Prepared> {
        let equal: Vec<Equal<'_>> = self.equal.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let Located { partition, range, .. } = locate(view, &equal, &self.limits)?;
        let (token, target) = match partition {
            Some((key, partition)) => {
                if self.tokens != TokenRange::ALL {
                    return Err(view.place(InvalidDetail::new("a read of one partition has no range of tokens")));
                }
                let ranges = range.into_iter().collect();
                (Some(key.token()), Target::Slice(v1::Slice { partition, ranges }))
            }
            None => {
                let token = |token: Option<Token>| token.map(|token| token.0);
                let (after_token, up_to_token) = (token(self.tokens.after), token(self.tokens.up_to));
                (None, Target::Scan(TokenScan { after_token, up_to_token, ranges: Vec::new() }))
            }
        };
        let heading = match &self.columns {
            None => view.heading.clone(),
            Some(names) => Arc::new(Heading::new(&view.table, Some(names)).map_err(|invalid| view.place(invalid))?),
        };
        let request = ReadRequest {
            table: Some(view.reference.clone()),
            projection: Some(Projection {
                columns: self.projected(view),
                with_metadata: self.metadata,
                with_elements: self.elements,
                value_form: ValueForm::Raw.into(),
                omit_columns: true,
            }),
            target: Some(target),
            reversed: self.reversed,
            limit: self.limit,
            per_partition_limit: self.per_partition_limit,
            page_rows: self.page_rows,
            page_bytes: self.page_bytes,
            ..ReadRequest::default()
        };
        Ok(Prepared { keyspace: view.keyspace.clone(), token, heading, request })
    }

    /// On the wire no names stand for all columns, so "keys only" names a key column.
    fn projected(&self, view: &TableView) -> Vec<String> {
        match &self.columns {
            None => Vec::new(),
            Some(names) if names.is_empty() => view.table.partition_key().take(1).map(|key| key.name.clone()).collect(),
            Some(names) => names.clone(),
        }
    }
}

/// A read as it is sent for every page, but for options and paging state.
#[derive(Debug)]
struct Prepared {
    keyspace: String,
    token: Option<Token>,
    heading: Arc<Heading>,
    request: ReadRequest,
}

impl Prepared {
    fn table_id(&self) -> &[u8] {
        self.request.table.as_ref().map_or(&[], |table| &table.id)
    }
}

/// How far a read has come. The next page's position is that of the page before, never anything else (B065).
enum Paging {
    Begin(Box<Select>),
    Next(Box<(Select, Prepared, Bytes)>),
    End,
}

impl Paging {
    async fn next(self) -> Result<Option<(Page, Paging)>> {
        let (select, prepared, page) = match self {
            Paging::End => return Ok(None),
            Paging::Begin(select) => {
                let (prepared, page) = select.first_page().await?;
                (*select, prepared, page)
            }
            Paging::Next(state) => {
                let (select, prepared, paging_state) = *state;
                let (prepared, page) = select.next_page(prepared, paging_state).await?;
                (select, prepared, page)
            }
        };
        let rows = page.rows.into_iter().map(|row| Row::new(&prepared.heading, row)).collect::<Result<Vec<_>>>()?;
        let (warnings, cost) = (page.warnings, page.cost);
        let next = match page.paging_state {
            state if state.is_empty() => Paging::End,
            state => Paging::Next(Box::new((select, prepared, state))),
        };
        Ok(Some((Page { rows, warnings, cost }, next)))
    }
}
