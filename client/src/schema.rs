//! Tables as this client has seen them: what turns names and values into keys and cells.
//!
//! Every request names the id and version it was built by, so that a table that was changed or made anew is noticed by
//! the cluster; the table is then fetched again and the request built anew.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use tokio::time::{Instant, sleep};
use tonic::Code;
use trefoil::model::{Column, Table, UserTypes};
use trefoil_proto::MESSAGE_BYTES_MAX;
use trefoil_proto::convert::schema::table_to_model;
use trefoil_proto::convert::types::user_types_to_model;
use trefoil_proto::v1::schema_client::SchemaClient;
use trefoil_proto::v1::{self, DescribeRequest, InvalidDetail, Outcome, TableRef};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::retry::backoff;
use crate::row::Heading;

/// A table as the client has seen it last.
#[derive(Debug)]
pub struct TableView {
    /// The keyspace's name.
    pub keyspace: String,
    /// Its columns and options.
    pub table: Table,
    pub(crate) reference: TableRef,
    /// What rows of all columns look like.
    pub(crate) heading: Arc<Heading>,
}

impl TableView {
    fn new(wire: v1::Table, types: &UserTypes) -> Result<TableView> {
        let (keyspace, name) = (wire.keyspace.clone(), wire.name.clone());
        let id: Bytes = wire.id.clone();
        let table = table_to_model(wire, types)?;
        let reference = TableRef { keyspace: keyspace.clone(), name, id, version: table.version };
        let heading = Arc::new(Heading::new(&table, None)?);
        Ok(TableView { keyspace, table, reference, heading })
    }

    /// The column called `name`, or an error that says what there is.
    pub fn column(&self, name: &str) -> Result<&Column> {
        self.table.column(name).ok_or_else(|| {
            let names: Vec<&str> = self.table.columns.iter().map(|column| column.name.as_str()).collect();
            let reason = format!("there is no such column; the columns are {}", names.join(", "));
            Error::Invalid(InvalidDetail::new(reason).column(name).table(&self.keyspace, &self.table.name))
        })
    }

    fn name(&self) -> String {
        format!("{}.{}", self.keyspace, self.table.name)
    }

    /// The same error, about this table.
    pub(crate) fn place(&self, invalid: InvalidDetail) -> Error {
        Error::Invalid(invalid.table(&self.keyspace, &self.table.name))
    }
}

/// Tables by `keyspace.table`.
#[derive(Debug, Default)]
pub(crate) struct SchemaCache {
    tables: RwLock<HashMap<String, Arc<TableView>>>,
}

/// How often a table is looked at anew for one request.
const RENEWALS_MAX: u32 = 10;

/// The table of one request, as the client sees it from attempt to attempt.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) view: Arc<TableView>,
    renewals: u32,
    /// Whether an attempt may have had an effect.
    doubtful: bool,
}

impl Sight {
    /// Fetches the table anew if that may heal the error, else gives the error back.
    ///
    /// While a change of the schema spreads, the node that was asked for the table may be ahead of the one that takes the
    /// request, or behind it: then the same is tried again a little later.
    pub(crate) async fn renew(&mut self, client: &Client, error: Error, deadline: Instant) -> Result<()> {
        self.doubtful |= error.is_schema_out_of_date() && error.outcome() == Outcome::Unknown;
        // What does not fit the table as it was seen may fit it as it is.
        let is_local = matches!(error, Error::Invalid(_));
        if !(is_local || error.is_schema_out_of_date()) || self.renewals >= RENEWALS_MAX || Instant::now() >= deadline {
            return Err(self.doubt(error));
        }
        self.renewals += 1;
        let fetched = client.refresh_table(&self.view.name()).await.map_err(|error| self.doubt(error))?;
        if fetched.reference == self.view.reference {
            if is_local {
                return Err(self.doubt(error));
            }
            sleep(backoff(self.renewals, 1.0)).await;
        }
        self.view = fetched;
        Ok(())
    }

    fn doubt(&self, error: Error) -> Error {
        if self.doubtful { error.doubtful() } else { error }
    }
}

impl Client {
    pub(crate) async fn sight(&self, name: &str) -> Result<Sight> {
        Ok(Sight { view: self.table(name).await?, renewals: 0, doubtful: false })
    }

    /// The table called `keyspace.table`, as seen last; fetched if it has not been seen yet.
    pub async fn table(&self, name: &str) -> Result<Arc<TableView>> {
        if let Some(table) = self.shared.schema.tables.read().get(name) {
            return Ok(table.clone());
        }
        self.refresh_table(name).await
    }

    /// The table called `keyspace.table`, as it is now.
    pub async fn refresh_table(&self, name: &str) -> Result<Arc<TableView>> {
        let Some((keyspace, table)) = name.split_once('.') else {
            return Err(InvalidDetail::new(format!("`{name}` is not of the form keyspace.table")).into());
        };
        let channel = self.any_channel().await?;
        let request = DescribeRequest { keyspace: keyspace.to_owned(), table: table.to_owned() };
        let mut client = SchemaClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let described = match client.describe(request).await {
            Ok(response) => response.into_inner(),
            Err(status) if status.code() == Code::NotFound => v1::DescribeResponse::default(),
            Err(status) => return Err(Error::from_status(&status)),
        };
        let found = described.tables.into_iter().find(|found| found.keyspace == keyspace && found.name == table);
        let Some(found) = found else {
            self.shared.schema.tables.write().remove(name);
            let invalid = InvalidDetail::new("there is no such table").table(keyspace, table);
            let error = Box::new(v1::Error::not_found(invalid));
            return Err(Error::Refused { error, outcome: Outcome::NotApplied, attempts: 1 });
        };
        let types = user_types_to_model(described.types)?;
        let view = Arc::new(TableView::new(found, &types)?);
        self.shared.schema.tables.write().insert(name.to_owned(), view.clone());
        Ok(view)
    }
}
