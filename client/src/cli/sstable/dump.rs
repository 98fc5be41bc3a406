//! `trefoil sstable dump`: what is in a file, a line for each fragment.
//!
//! ```text
//! {"file": ..., "id": ..., "table": ..., "columns": [{"id": 3, "type": "int"}, ...]}          before the others
//! {"partition": KEY, "token": ..., "deletion": DELETION, "static": [CELL, ...]}
//! {"row": PLACE, "marker": MARKER, "deletion": DELETION, "cells": [CELL, ...]}
//! {"change": PLACE, "deletion": DELETION or null}        the range deletion in force from here on
//! ```
//!
//! Keys, places and values are the stored bytes, in hex: a file knows types by column id, not names, and of keys not even
//! these. What a fragment does not have is left out. No more than a block is held at a time.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value as Json, json};
use trefoil::codec::EncodedRow;
use trefoil::model::{
    Cell, CellKind, ColumnId, Deletion, Fragment, Liveness, LivenessKind, PartitionHeader, Row, Stream, Type,
};
use trefoil::sstable::Sstable;

use super::super::error::{Error, Result};
use super::super::stopped;
use super::super::text::hex;

/// The types of a file's columns.
type Types = BTreeMap<ColumnId, Type>;

/// Prints one file.
pub fn dump(path: &Path) -> Result<()> {
    let sstable = stopped::open(path)?;
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let dumped = print(path, &sstable, &mut out);
    // What was read before a fault is whole.
    out.flush().map_err(Error::stdout)?;
    dumped
}

fn print(path: &Path, sstable: &std::sync::Arc<Sstable>, out: &mut impl Write) -> Result<()> {
    let placed = |error: trefoil::Error| error.in_file(path, 0);
    let types: Types = sstable.stats().columns.iter().copied().collect();
    line(out, &head(path, sstable))?;
    let mut stream = sstable.read_through().map_err(placed)?;
    while let Some(fragment) = stream.next().map_err(placed)? {
        line(out, &shown(fragment, &types).map_err(placed)?)?;
    }
    Ok(())
}

fn line(out: &mut impl Write, json: &Json) -> Result<()> {
    writeln!(out, "{json}").map_err(Error::stdout)
}

fn head(path: &Path, sstable: &Sstable) -> Json {
    let stats = sstable.stats();
    let columns = stats.columns.iter().map(|(id, ty)| json!({ "id": id.0, "type": ty.name() }));
    json!({
        "file": path.display().to_string(),
        "id": sstable.id().to_string(),
        "table": stats.table.to_string(),
        "columns": columns.collect::<Vec<_>>(),
    })
}

fn shown(fragment: Fragment<EncodedRow>, types: &Types) -> trefoil::Result<Json> {
    let mut json = Map::new();
    match fragment {
        Fragment::Partition(PartitionHeader { key, deletion, static_row }) => {
            json.insert("partition".into(), hex(key.bytes()).into());
            json.insert("token".into(), key.token().0.into());
            json.extend(deletion.map(|deletion| ("deletion".into(), deletion_json(deletion))));
            if let Some(row) = static_row {
                json.insert("static".into(), cells_json(&row.decode()?.cells, types));
            }
        }
        Fragment::Row(key, row) => {
            let Row { marker, deletion, cells } = row.decode()?;
            json.insert("row".into(), hex(key.bytes()).into());
            json.extend(marker.map(|marker| ("marker".into(), marker_json(marker))));
            json.extend(deletion.map(|deletion| ("deletion".into(), deletion_json(deletion))));
            json.insert("cells".into(), cells_json(&cells, types));
        }
        Fragment::Change(bound, deletion) => {
            json.insert("change".into(), hex(bound.bytes()).into());
            json.insert("deletion".into(), deletion.map_or(Json::Null, deletion_json));
        }
    }
    Ok(json.into())
}

fn deletion_json(deletion: Deletion) -> Json {
    json!({ "timestamp": deletion.timestamp.0, "ldt_s": deletion.ldt_s })
}

fn marker_json(marker: Liveness) -> Json {
    let timestamp = marker.timestamp.0;
    match marker.kind {
        LivenessKind::Live => json!({ "kind": "live", "timestamp": timestamp }),
        LivenessKind::Expiring { ttl_s, expiry_s } => {
            json!({ "kind": "expiring", "timestamp": timestamp, "ttl_s": ttl_s, "expiry_s": expiry_s })
        }
        LivenessKind::Expired { ttl_s, expiry_s } => {
            json!({ "kind": "expired", "timestamp": timestamp, "ttl_s": ttl_s, "expiry_s": expiry_s })
        }
    }
}

fn cells_json(cells: &[(ColumnId, Cell)], types: &Types) -> Json {
    cells.iter().map(|(column, cell)| cell_json(*column, cell, types)).collect()
}

fn cell_json(column: ColumnId, cell: &Cell, types: &Types) -> Json {
    let mut json = match &cell.kind {
        CellKind::Live(value) => json!({ "kind": "live", "value": hex(value) }),
        CellKind::Expiring { value, ttl_s, expiry_s } => {
            json!({ "kind": "expiring", "value": hex(value), "ttl_s": ttl_s, "expiry_s": expiry_s })
        }
        CellKind::Expired { ttl_s, expiry_s } => json!({ "kind": "expired", "ttl_s": ttl_s, "expiry_s": expiry_s }),
        CellKind::Tombstone { ldt_s } => json!({ "kind": "tombstone", "ldt_s": ldt_s }),
    };
    json["column"] = column.0.into();
    json["type"] = types.get(&column).map(|ty| ty.name()).into();
    json["timestamp"] = cell.timestamp.0.into();
    json
}
