//! The service `Schema`: changes go through the metadata log, and are answered once the nodes seen alive serve by them.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Request, Response, Status};
use trefoil::metadata::{Applied, ClusterState, Entry, Reason, Refusal};
use trefoil::model::TableId;
use trefoil::model::ddl::DdlStatement;
use trefoil_proto::convert::schema as convert;
use trefoil_proto::convert::types::user_type;
use trefoil_proto::v1;
use trefoil_proto::v1::schema_server::Schema;
use uuid::Uuid;

use super::Control;
use super::deadline;
use crate::metadata_log::ProposeError;
use crate::peers::epoch_to_proto;

/// How long the metadata log may take to decide.
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the nodes seen alive may take to apply what was decided.
const APPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The service.
pub(super) struct SchemaService {
    control: Arc<Control>,
}

impl SchemaService {
    pub(super) fn new(control: Arc<Control>) -> SchemaService {
        SchemaService { control }
    }
}

#[tonic::async_trait]
impl Schema for SchemaService {
    async fn apply(&self, request: Request<v1::ApplyRequest>) -> Result<Response<v1::ApplyResponse>, Status> {
        let timeout = deadline::timeout(request.metadata()).unwrap_or(PROPOSE_TIMEOUT).min(PROPOSE_TIMEOUT);
        let statement = request
            .into_inner()
            .ddl
            .ok_or_else(|| v1::InvalidDetail::new("the change of the schema is missing"))
            .and_then(convert::ddl_to_model)
            .map_err(|invalid| v1::Error::invalid(invalid).into_status())?;
        let names = names(&statement);
        let allowed = self.control.shared().guardrails.check_schema(&statement, &self.control.state());
        allowed.map_err(|invalid| v1::Error::invalid(invalid).into_status())?;
        // What was handed to the log goes on even if the caller is gone; it is to be waited for all the same.
        let proposed = self.control.log().propose(entry(statement), timeout).await;
        let proposed = proposed.map_err(|error| failure(error, names, &self.control.log().state()).into_status())?;
        let behind = self.control.applied_everywhere(proposed.epoch, APPLY_TIMEOUT).await;
        Ok(Response::new(v1::ApplyResponse {
            applied: proposed.applied == Applied::Changed,
            epoch: Some(epoch_to_proto(proposed.epoch)),
            nodes_behind: behind.into_iter().map(|node| node.0).collect(),
        }))
    }

    async fn describe(&self, request: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        let state = self.control.state();
        describe(&state, &request.into_inner()).map(Response::new).map_err(v1::Error::into_status)
    }
}

/// The entry that a statement becomes. The id of a new or emptied table is drawn here, once, for all nodes.
pub(super) fn entry(statement: DdlStatement) -> Entry {
    match statement {
        DdlStatement::CreateKeyspace(create) => Entry::CreateKeyspace(create),
        DdlStatement::DropKeyspace(drop) => Entry::DropKeyspace(drop),
        DdlStatement::CreateTable(table) => Entry::CreateTable { id: TableId(Uuid::new_v4()), table },
        DdlStatement::DropTable(drop) => Entry::DropTable(drop),
        DdlStatement::AlterTable(alter) => Entry::AlterTable(alter),
        DdlStatement::TruncateTable(table) => Entry::TruncateTable { id: TableId(Uuid::new_v4()), table },
        DdlStatement::CreateType(create) => Entry::CreateType(create),
        DdlStatement::AlterType(alter) => Entry::AlterType(alter),
        DdlStatement::DropType(drop) => Entry::DropType(drop),
    }
}

/// The keyspace and the table, if there is one, that a statement is about.
fn names(statement: &DdlStatement) -> (String, String) {
    match statement {
        DdlStatement::CreateKeyspace(create) => (create.name.clone(), String::new()),
        DdlStatement::DropKeyspace(drop) => (drop.name.clone(), String::new()),
        DdlStatement::CreateTable(create) => (create.keyspace.clone(), create.name.clone()),
        DdlStatement::DropTable(drop) => (drop.keyspace.clone(), drop.name.clone()),
        DdlStatement::AlterTable(alter) => (alter.keyspace.clone(), alter.name.clone()),
        DdlStatement::TruncateTable(truncate) => (truncate.keyspace.clone(), truncate.name.clone()),
        DdlStatement::CreateType(create) => (create.definition.keyspace.clone(), String::new()),
        DdlStatement::AlterType(alter) => (alter.keyspace.clone(), String::new()),
        DdlStatement::DropType(drop) => (drop.keyspace.clone(), String::new()),
    }
}

/// Why the log did not take an entry that is about no single table.
pub(super) fn refused(error: ProposeError, state: &ClusterState) -> v1::Error {
    failure(error, (String::new(), String::new()), state)
}

fn failure(error: ProposeError, (keyspace, table): (String, String), state: &ClusterState) -> v1::Error {
    let text = error.to_string();
    match error {
        ProposeError::Refused(Refusal { reason: Reason::OtherVersion, .. }) => {
            let known = state.table_named(&keyspace, &table);
            let detail = v1::SchemaMismatchDetail {
                table_id: known.map(|table| convert::table_id(table.id)).unwrap_or_default(),
                version: known.map_or(0, |table| table.version),
                epoch: Some(epoch_to_proto(state.epoch())),
            };
            v1::Error { message: text, ..v1::Error::schema_mismatch(detail) }
        }
        ProposeError::Refused(Refusal { reason, .. }) => {
            let invalid = v1::InvalidDetail { reason: text.clone(), keyspace, table, ..v1::InvalidDetail::default() };
            let kind = v1::error_detail::Kind::Invalid(invalid);
            v1::Error::with(refusal_code(reason), text, v1::Outcome::NotApplied, kind)
        }
        ProposeError::TooLarge { .. } => v1::Error::invalid(v1::InvalidDetail::new(text)),
        ProposeError::Unavailable { .. } => v1::Error::new(Code::Unavailable, text, v1::Outcome::NotApplied),
        ProposeError::Unknown { .. } => v1::Error::new(Code::DeadlineExceeded, text, v1::Outcome::Unknown),
    }
}

fn refusal_code(reason: Reason) -> Code {
    match reason {
        Reason::Exists => Code::AlreadyExists,
        Reason::UnknownKeyspace
        | Reason::UnknownTable
        | Reason::UnknownColumn
        | Reason::UnknownType
        | Reason::UnknownNode => Code::NotFound,
        Reason::UnknownRegion
        | Reason::BadCopies
        | Reason::BadName
        | Reason::BadKey
        | Reason::KeyType
        | Reason::DuplicateColumn
        | Reason::BadOption
        | Reason::BadType
        | Reason::BadMembers => Code::InvalidArgument,
        Reason::TooMany | Reason::OtherVersion | Reason::InUse => Code::FailedPrecondition,
    }
}

/// The part of the schema that was asked for.
pub(super) fn describe(state: &ClusterState, request: &v1::DescribeRequest) -> Result<v1::DescribeResponse, v1::Error> {
    let v1::DescribeRequest { keyspace: only, table: only_table } = request;
    if only.is_empty() && !only_table.is_empty() {
        return Err(v1::Error::invalid(v1::InvalidDetail::new("a table is named without its keyspace")));
    }
    let not_found = |what: &str| v1::Error::not_found(v1::InvalidDetail::new(what).table(only, only_table));
    if !only.is_empty() && state.keyspace_named(only).is_none() {
        return Err(not_found("there is no such keyspace"));
    }
    if !only_table.is_empty() && state.table_named(only, only_table).is_none() {
        return Err(not_found("there is no such table"));
    }
    let mut keyspaces: Vec<_> =
        state.keyspaces().filter(|keyspace| only.is_empty() || keyspace.name == *only).collect();
    keyspaces.sort_by(|one, other| one.name.cmp(&other.name));
    let tables = keyspaces.iter().flat_map(|keyspace| {
        let tables = state.tables_in(keyspace).filter(|table| only_table.is_empty() || table.name == *only_table);
        tables.map(|table| convert::table(&keyspace.name, table))
    });
    let is_asked_for = |keyspace: &str| keyspaces.iter().any(|asked| asked.name == keyspace);
    let types = state.types().filter(|definition| is_asked_for(&definition.keyspace));
    let types = types.map(|definition| user_type(definition));
    Ok(v1::DescribeResponse {
        tables: tables.collect(),
        keyspaces: keyspaces.iter().map(|keyspace| convert::keyspace(keyspace)).collect(),
        epoch: Some(epoch_to_proto(state.epoch())),
        types: types.collect(),
    })
}
