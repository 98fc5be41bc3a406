//! `trefoil backup list` and `show`.

use clap::Args;
use serde_json::{Value as Json, json};
use trefoil::backup::{IndexEntry, Scope};
use trefoil::metadata::ClusterState;
use uuid::Uuid;

use super::super::error::Result;
use super::super::moment::shown;
use super::super::output::{Align, bytes};
use super::super::{Global, output};
use super::bucket::Bucket;

/// Shows the complete backups in a bucket: one request.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    bucket: Bucket,
}

/// Shows what a backup holds.
#[derive(Debug, Args)]
pub struct Show {
    /// Its id
    backup: Uuid,
    #[command(flatten)]
    bucket: Bucket,
}

impl List {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let index = self.bucket.open(global).await?.index().await?;
        if global.json {
            return index.entries.iter().try_for_each(|entry| output::line(&entry_json(entry).to_string()));
        }
        let columns = [
            ("cut", Align::Left),
            ("name", Align::Left),
            ("tag", Align::Left),
            ("of", Align::Left),
            ("objects", Align::Right),
            ("size", Align::Right),
            ("absent", Align::Right),
            ("id", Align::Left),
        ];
        let rows = index.entries.iter().map(|entry| {
            vec![
                shown(entry.cut),
                entry.name.clone(),
                entry.tag.clone(),
                of(&entry.scope).to_owned(),
                entry.objects.to_string(),
                bytes(entry.bytes),
                entry.absent.to_string(),
                entry.backup.to_string(),
            ]
        });
        output::line(&output::table(&columns, rows.collect()))
    }
}

impl Show {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let repository = self.bucket.open(global).await?;
        let manifest = repository.manifest(self.backup).await?;
        let state = ClusterState::decode(manifest.state.clone())?;
        let tables: Vec<String> = state
            .tables()
            .filter(|table| match manifest.scope {
                Scope::All => true,
                Scope::Keyspace(id) => table.keyspace == id,
                Scope::Table(id) => table.id == id,
            })
            .filter_map(|table| Some(format!("{}.{}", state.keyspace(table.keyspace)?.name, table.name)))
            .collect();
        let told = json!({
            "backup": entry_json(&IndexEntry::of(&manifest)),
            "began_at": shown(manifest.began_at),
            "cluster": state.name(),
            "cluster_id": repository.cluster().to_string(),
            "vnodes": state.ring().vnode_bits().count(),
            "tables": tables,
            "parts": manifest.parts.iter().map(|part| json!({
                "node": part.node.0, "files": part.files, "bytes": part.file_bytes,
            })).collect::<Vec<_>>(),
            "pieces": manifest.pieces.len(),
            "piece_bytes": manifest.pieces.iter().map(|piece| piece.object.bytes).sum::<u64>(),
            "absent": manifest.absent.iter().map(|absent| json!({
                "node": absent.node.0, "why": absent.reason,
            })).collect::<Vec<_>>(),
        });
        if global.json {
            return output::line(&told.to_string());
        }
        let text = serde_json::to_string_pretty(&told).unwrap_or_default();
        output::line(&text)
    }
}

fn entry_json(entry: &IndexEntry) -> Json {
    json!({
        "id": entry.backup.to_string(),
        "name": entry.name,
        "tag": entry.tag,
        "of": of(&entry.scope),
        "cut": shown(entry.cut),
        "cut_us": entry.cut.0,
        "objects": entry.objects,
        "bytes": entry.bytes,
        "absent": entry.absent,
    })
}

fn of(scope: &Scope) -> &'static str {
    match scope {
        Scope::All => "all",
        Scope::Keyspace(_) => "a keyspace",
        Scope::Table(_) => "a table",
    }
}
