//! `trefoil schema`: keyspaces and tables, in the words of CQL.

use std::io::Read;

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use trefoil::cql;
use trefoil::model::{ColumnKind, CreateType, DdlStatement, Durability, Keyspace, Order, Table, UserType};
use trefoil_client::Schema;

use super::error::{Error, Result};
use super::{Global, output};

/// Makes, changes, empties, drops and shows keyspaces and tables.
#[derive(Debug, Subcommand)]
pub enum SchemaCommand {
    /// Apply the statements of a file, one after the other
    Apply(Apply),
    /// Print the statements that make the keyspaces and tables there are
    Show(Show),
}

/// Applies CREATE, ALTER, DROP and TRUNCATE statements. The whole file is read before the first is applied; at the first that is refused
/// the rest is left.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  trefoil schema apply flights.cql")]
pub struct Apply {
    /// A file of statements; - is the standard input
    #[arg(value_name = "FILE.cql")]
    file: String,
}

/// Prints statements that `schema apply` reads back.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil schema show
  trefoil schema show demo.flights")]
pub struct Show {
    /// Only this keyspace, or only this table of it
    #[arg(value_name = "KS[.TABLE]")]
    name: Option<String>,
}

impl SchemaCommand {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        match self {
            SchemaCommand::Apply(apply) => apply.run(global).await,
            SchemaCommand::Show(show) => show.run(global).await,
        }
    }
}

impl Apply {
    async fn run(self, global: &Global) -> Result<()> {
        let mut text = String::new();
        let read = match self.file.as_str() {
            "-" => std::io::stdin().read_to_string(&mut text),
            file => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
        };
        read.map_err(|source| Error::io("read", &self.file, source))?;
        let statements = cql::parse(&text).map_err(|error| Error::Statements { file: self.file.clone(), error })?;
        let client = global.connect().await?;
        for (at, statement) in statements.iter().enumerate() {
            let name = describe(statement);
            let response = client.apply(statement).await.map_err(|error| Error::Statement {
                number: at + 1,
                statement: name.clone(),
                error: Box::new(error),
            })?;
            if global.json {
                let behind = &response.nodes_behind;
                let done = json!({ "statement": name, "applied": response.applied, "nodes_behind": behind });
                output::line(&done.to_string())?;
                continue;
            }
            let done = if response.applied { "done" } else { "nothing to do" };
            output::line(&format!("{name}: {done}"))?;
            if !response.nodes_behind.is_empty() {
                output::note(&format!("warning: nodes {:?} have not applied it yet", response.nodes_behind));
            }
        }
        Ok(())
    }
}

fn describe(statement: &DdlStatement) -> String {
    match statement {
        DdlStatement::CreateKeyspace(create) => format!("CREATE KEYSPACE {}", create.name),
        DdlStatement::DropKeyspace(drop) => format!("DROP KEYSPACE {}", drop.name),
        DdlStatement::CreateTable(create) => format!("CREATE TABLE {}.{}", create.keyspace, create.name),
        DdlStatement::DropTable(drop) => format!("DROP TABLE {}.{}", drop.keyspace, drop.name),
        DdlStatement::AlterTable(alter) => format!("ALTER TABLE {}.{}", alter.keyspace, alter.name),
        DdlStatement::TruncateTable(truncate) => format!("TRUNCATE {}.{}", truncate.keyspace, truncate.name),
        DdlStatement::CreateType(CreateType { definition, .. }) => {
            format!("CREATE TYPE {}.{}", definition.keyspace, definition.name)
        }
        DdlStatement::AlterType(alter) => format!("ALTER TYPE {}.{}", alter.keyspace, alter.name),
        DdlStatement::DropType(drop) => format!("DROP TYPE {}.{}", drop.keyspace, drop.name),
    }
}

impl Show {
    async fn run(self, global: &Global) -> Result<()> {
        let schema = global.connect().await?.schema().await?;
        let selected = select(&schema, self.name.as_deref())?;
        if global.json {
            return output::line(&as_json(&schema, &selected).to_string());
        }
        // Whoever asks for one table gets the types of its keyspace too: it may be made of them.
        let types_of = |keyspace: &Keyspace| {
            let of = schema.types.values().filter(|definition| definition.keyspace == keyspace.name);
            of.map(|definition| &**definition).collect::<Vec<_>>()
        };
        let texts = selected.into_iter().map(|(keyspace, tables)| cql::describe(keyspace, types_of(keyspace), tables));
        let text = texts.collect::<Vec<_>>().join("\n");
        if text.is_empty() { Ok(()) } else { output::line(text.trim_end()) }
    }
}

/// Keyspaces with their tables: all, or those of a name.
fn select<'a>(schema: &'a Schema, name: Option<&str>) -> Result<Vec<(&'a Keyspace, Vec<&'a Table>)>> {
    let (keyspace_name, table_name) = match name.map(|name| name.split_once('.').ok_or(name)) {
        None => (None, None),
        Some(Err(keyspace)) => (Some(keyspace), None),
        Some(Ok((keyspace, table))) => (Some(keyspace), Some(table)),
    };
    let keyspaces = schema.keyspaces.iter().filter(|keyspace| keyspace_name.is_none_or(|name| name == keyspace.name));
    let selected: Vec<(&Keyspace, Vec<&Table>)> = keyspaces
        .map(|keyspace| {
            let own = schema.tables.iter().filter(|(of, _)| *of == keyspace.name).map(|(_, table)| table);
            (keyspace, own.filter(|table| table_name.is_none_or(|name| name == table.name)).collect())
        })
        .collect();
    match (keyspace_name, table_name) {
        (Some(name), _) if selected.is_empty() => Err(Error::Missing { what: "keyspace", name: name.to_owned() }),
        (Some(keyspace), Some(table)) if selected.iter().all(|(_, tables)| tables.is_empty()) => {
            Err(Error::Missing { what: "table", name: format!("{keyspace}.{table}") })
        }
        _ => Ok(selected),
    }
}

fn as_json(schema: &Schema, selected: &[(&Keyspace, Vec<&Table>)]) -> Json {
    let keyspaces = selected.iter().map(|(keyspace, tables)| {
        let tables: Vec<Json> = tables.iter().map(|table| table_json(table)).collect();
        let types = schema.types.values().filter(|definition| definition.keyspace == keyspace.name);
        let types: Vec<Json> = types.map(|definition| type_json(definition)).collect();
        json!({ "name": keyspace.name, "replication": keyspace.replication, "types": types, "tables": tables })
    });
    json!({ "keyspaces": keyspaces.collect::<Vec<_>>() })
}

fn type_json(definition: &UserType) -> Json {
    let fields = definition.fields.iter().map(|field| json!({ "name": field.name, "type": field.ty.to_string() }));
    json!({ "name": definition.name, "fields": fields.collect::<Vec<_>>() })
}

fn table_json(table: &Table) -> Json {
    let columns = table.columns.iter().map(|column| {
        let (kind, descending) = match column.kind {
            ColumnKind::PartitionKey => ("partition_key", false),
            ColumnKind::Clustering(order) => ("clustering", order == Order::Descending),
            ColumnKind::Static => ("static", false),
            ColumnKind::Regular => ("regular", false),
        };
        json!({ "name": column.name, "type": column.ty.to_string(), "kind": kind, "descending": descending })
    });
    let durability = match table.options.durability {
        Durability::Commit => "commit",
        Durability::Periodic => "periodic",
    };
    json!({
        "name": table.name,
        "id": table.id.to_string(),
        "version": table.version,
        "columns": columns.collect::<Vec<_>>(),
        "default_ttl_s": table.options.default_ttl_s,
        "lateness_s": table.options.lateness_s,
        "durability": durability,
        "comment": table.options.comment,
        "compaction": table.options.compaction.to_map(),
    })
}
