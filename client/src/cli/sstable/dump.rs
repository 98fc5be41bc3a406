//! `trefoil sstable dump`: what is in a file, a line for each fragment.
//!
//! ```text
//! {"file": ..., "id": ..., "table": ..., "columns": [{"id": 3, "type": "int"}, ...]}          before the others
//! {"partition": KEY, "token": ..., "deletion": DELETION, "static": [CELL, ...], "complex": [COMPLEX, ...]}
//! {"row": PLACE, "marker": MARKER, "deletion": DELETION, "cells": [CELL, ...], "complex": [COMPLEX, ...]}
//! {"change": PLACE, "deletion": DELETION or null}        the range deletion in force from here on
//! ```
//!
//! A complex column is `{"column": ..., "deletion": DELETION, "elements": [CELL with "path", ...]}`; a counter has `shards`
//! and their sum as `value`. Keys, places, paths and values are the stored bytes, in hex: a file knows types by column id, not names, and of keys not even
//! these. What a fragment does not have is left out. No more than a block is held at a time.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value as Json, json};
use trefoil::codec::EncodedRow;
use trefoil::model::{
    Cell, CellKind, ColumnId, Complex, Counter, Deletion, Fragment, Liveness, LivenessKind, PartitionHeader, Row,
    Stream, Type,
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
    let types: Types = sstable.stats().columns.iter().cloned().collect();
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
    let columns = stats.columns.iter().map(|(id, ty)| json!({ "id": id.0, "type": ty.to_string() }));
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
                let Row { cells, complex, .. } = row.decode()?;
                json.insert("static".into(), cells_json(&cells, types));
                json.extend(complex_json(&complex, types));
            }
        }
        Fragment::Row(key, row) => {
            let Row { marker, deletion, cells, complex } = row.decode()?;
            json.insert("row".into(), hex(key.bytes()).into());
            json.extend(marker.map(|marker| ("marker".into(), marker_json(marker))));
            json.extend(deletion.map(|deletion| ("deletion".into(), deletion_json(deletion))));
            json.insert("cells".into(), cells_json(&cells, types));
            json.extend(complex_json(&complex, types));
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
    let placed = |(column, cell): &(ColumnId, Cell)| {
        let mut json = cell_json(cell);
        put_column(&mut json, *column, types);
        json
    };
    cells.iter().map(placed).collect()
}

/// The complex columns, if there are any.
fn complex_json(columns: &[(ColumnId, Complex)], types: &Types) -> Option<(String, Json)> {
    let shown = |(column, complex): &(ColumnId, Complex)| {
        let elements = complex.cells.iter().map(|(path, cell)| {
            let mut json = cell_json(cell);
            json["path"] = hex(path).into();
            json
        });
        let mut json = json!({ "elements": elements.collect::<Vec<_>>() });
        if let Some(deletion) = complex.deletion {
            json["deletion"] = deletion_json(deletion);
        }
        put_column(&mut json, *column, types);
        json
    };
    (!columns.is_empty()).then(|| ("complex".into(), columns.iter().map(shown).collect()))
}

fn put_column(json: &mut Json, column: ColumnId, types: &Types) {
    json["column"] = column.0.into();
    json["type"] = types.get(&column).map(Type::to_string).into();
}

fn cell_json(cell: &Cell) -> Json {
    let mut json = match &cell.kind {
        CellKind::Live(value) => json!({ "kind": "live", "value": hex(value) }),
        CellKind::Expiring { value, ttl_s, expiry_s } => {
            json!({ "kind": "expiring", "value": hex(value), "ttl_s": ttl_s, "expiry_s": expiry_s })
        }
        CellKind::Expired { ttl_s, expiry_s } => json!({ "kind": "expired", "ttl_s": ttl_s, "expiry_s": expiry_s }),
        CellKind::Tombstone { ldt_s } => json!({ "kind": "tombstone", "ldt_s": ldt_s }),
        CellKind::Counter(counter) => {
            json!({ "kind": "counter", "value": counter.value(), "shards": shards_json(counter) })
        }
    };
    json["timestamp"] = cell.timestamp.0.into();
    json
}

fn shards_json(counter: &Counter) -> Json {
    let shown = counter.shards().iter().map(|shard| {
        json!({
            "node": shard.node.0,
            "incarnation": shard.incarnation,
            "clock": shard.clock,
            "value": shard.value,
        })
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;
    use trefoil::model::{ClusteringKey, NodeId, Shard, Timestamp};

    use super::*;

    #[test]
    fn elements_and_shards_are_shown() {
        let timestamp = Timestamp(7);
        let counter = Counter::new(Shard { node: NodeId(2), incarnation: 5, clock: 3, value: -4 });
        let element = (Bytes::from_static(b"k"), Cell { timestamp, kind: CellKind::Live(Bytes::from_static(b"v")) });
        let row = Row {
            cells: vec![(ColumnId(1), Cell { timestamp, kind: CellKind::Counter(counter) })],
            complex: vec![(ColumnId(2), Complex::replaced(timestamp, 9, [element]).unwrap())],
            ..Row::default()
        };
        let key = ClusteringKey::from_bytes(Bytes::from_static(&[0x38])).unwrap();
        let json = shown(Fragment::Row(key, EncodedRow::encode(&row)), &Types::new()).unwrap();
        let shards = json!([{ "node": 2, "incarnation": 5, "clock": 3, "value": -4 }]);
        let cell = json!({
            "kind": "counter", "value": -4, "shards": shards, "column": 1, "type": null, "timestamp": 7
        });
        assert_eq!(json["cells"], json!([cell]));
        let element = json!({ "kind": "live", "value": "0x76", "path": "0x6b", "timestamp": 7 });
        let column = json!({
            "column": 2, "type": null, "deletion": { "timestamp": 6, "ldt_s": 9 }, "elements": [element]
        });
        assert_eq!(json["complex"], json!([column]));
    }
}
