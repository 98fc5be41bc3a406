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
//! and their sum as `value`. What a fragment does not have is left out. No more than a block is held at a time.
//!
//! A file knows the types of its columns by their numbers: values and paths are shown as docs/json.md says. Names of
//! columns and what keys are made of stand in the manifest beside the file. Where there is one keys and places are objects,
//! else the stored bytes in hex (the head says which); bounds of ranges always are, and bytes that are no value of their type.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};
use trefoil::codec::EncodedRow;
use trefoil::model::{
    Cell, CellKind, ClusteringKey, Column, ColumnId, Complex, Counter, Deletion, Fragment, Liveness, LivenessKind,
    PartitionHeader, PartitionKey, Row, Stream, Table, TableId, Type, Value,
};
use trefoil::sstable::Sstable;

use super::super::error::{Error, Result};
use super::super::text::hex;
use super::super::{json as rows, stopped};

/// What is known of a file's contents.
struct Shape<'a> {
    types: BTreeMap<ColumnId, Type>,
    /// From the manifest beside the file, if there is one that knows the table.
    table: Option<&'a Table>,
}

/// Prints one file; `tables` are those of which a manifest tells.
pub fn dump(path: &Path, tables: &BTreeMap<TableId, Table>) -> Result<()> {
    let sstable = stopped::open(path)?;
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let dumped = print(path, &sstable, tables.get(&sstable.stats().table), &mut out);
    // What was read before a fault is whole.
    out.flush().map_err(Error::stdout)?;
    dumped
}

fn print(path: &Path, sstable: &Arc<Sstable>, table: Option<&Table>, out: &mut impl Write) -> Result<()> {
    let placed = |error: trefoil::Error| error.in_file(path, 0);
    let shape = Shape { types: sstable.stats().columns.iter().cloned().collect(), table };
    line(out, &head(path, sstable, &shape))?;
    let mut stream = sstable.read_through().map_err(placed)?;
    while let Some(fragment) = stream.next().map_err(placed)? {
        line(out, &shown(fragment, &shape).map_err(placed)?)?;
    }
    Ok(())
}

fn line(out: &mut impl Write, json: &Json) -> Result<()> {
    writeln!(out, "{json}").map_err(Error::stdout)
}

fn head(path: &Path, sstable: &Sstable, shape: &Shape<'_>) -> Json {
    let stats = sstable.stats();
    let columns = stats.columns.iter().map(|(id, ty)| {
        let name = shape.column(*id).map(|column| column.name.as_str());
        json!({ "id": id.0, "name": name, "type": ty.to_string() })
    });
    json!({
        "file": path.display().to_string(),
        "id": sstable.id().to_string(),
        "table": stats.table.to_string(),
        "keys": if shape.table.is_some() { "json" } else { "hex" },
        "columns": columns.collect::<Vec<_>>(),
    })
}

impl Shape<'_> {
    fn column(&self, id: ColumnId) -> Option<&Column> {
        self.table?.columns.iter().find(|column| column.id == id)
    }

    fn partition(&self, key: &PartitionKey) -> Json {
        let object = |table: &Table| {
            let components = key.decode(&table.partition_types()).ok()?;
            Some(components_json(table.partition_key(), &components))
        };
        self.table.and_then(object).unwrap_or_else(|| hex(key.bytes()).into())
    }

    fn place(&self, key: &ClusteringKey) -> Json {
        let object = |table: &Table| {
            let components = key.decode(&table.clustering_types()).ok()?;
            Some(components_json(table.clustering().map(|(column, _)| column), &components))
        };
        self.table.and_then(object).unwrap_or_else(|| hex(key.bytes()).into())
    }
}

fn components_json<'a>(columns: impl Iterator<Item = &'a Column>, components: &[Bytes]) -> Json {
    let member = |(column, bytes): (&Column, &Bytes)| (column.name.clone(), typed(bytes, Some(&column.ty)));
    Json::Object(columns.zip(components).map(member).collect())
}

/// A value by its type; the stored bytes where it has none, or is none of it.
fn typed(bytes: &Bytes, ty: Option<&Type>) -> Json {
    let read = ty.and_then(|ty| match Value::decode(ty, bytes) {
        Ok(Some(value)) => {
            let mut text = String::new();
            rows::print_value(&value, ty, &mut text);
            serde_json::from_str(&text).ok()
        }
        Ok(None) => Some("".into()),
        Err(_) => None,
    });
    read.unwrap_or_else(|| hex(bytes).into())
}

/// The path of an element of a column, and the type of its value.
fn element<'a>(path: &Bytes, ty: Option<&'a Type>) -> (Json, Option<&'a Type>) {
    match ty {
        Some(Type::List { element, .. }) => (typed(path, Some(&Type::TimeUuid)), Some(element)),
        Some(Type::Set { element, .. }) => (typed(path, Some(element)), None),
        Some(Type::Map { key, value, .. }) => (typed(path, Some(key)), Some(value)),
        Some(Type::User { definition, .. }) => {
            let position = path.as_ref().try_into().map(|bytes| usize::from(u16::from_be_bytes(bytes)));
            match position.ok().and_then(|position| definition.fields.get(position)) {
                Some(field) => (field.name.as_str().into(), Some(&field.ty)),
                None => (hex(path).into(), None),
            }
        }
        _ => (hex(path).into(), None),
    }
}

fn shown(fragment: Fragment<EncodedRow>, shape: &Shape<'_>) -> trefoil::Result<Json> {
    let mut json = Map::new();
    match fragment {
        Fragment::Partition(PartitionHeader { key, deletion, static_row }) => {
            json.insert("partition".into(), shape.partition(&key));
            json.insert("token".into(), key.token().0.into());
            json.extend(deletion.map(|deletion| ("deletion".into(), deletion_json(deletion))));
            if let Some(row) = static_row {
                let Row { cells, complex, .. } = row.decode()?;
                json.insert("static".into(), cells_json(&cells, shape));
                json.extend(complex_json(&complex, shape));
            }
        }
        Fragment::Row(key, row) => {
            let Row { marker, deletion, cells, complex } = row.decode()?;
            json.insert("row".into(), shape.place(&key));
            json.extend(marker.map(|marker| ("marker".into(), marker_json(marker))));
            json.extend(deletion.map(|deletion| ("deletion".into(), deletion_json(deletion))));
            json.insert("cells".into(), cells_json(&cells, shape));
            json.extend(complex_json(&complex, shape));
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

fn cells_json(cells: &[(ColumnId, Cell)], shape: &Shape<'_>) -> Json {
    let placed = |(column, cell): &(ColumnId, Cell)| {
        let mut json = cell_json(cell, shape.types.get(column));
        put_column(&mut json, *column, shape);
        json
    };
    cells.iter().map(placed).collect()
}

/// The complex columns, if there are any.
fn complex_json(columns: &[(ColumnId, Complex)], shape: &Shape<'_>) -> Option<(String, Json)> {
    let shown = |(column, complex): &(ColumnId, Complex)| {
        let elements = complex.cells.iter().map(|(path, cell)| {
            let (path, ty) = element(path, shape.types.get(column));
            let mut json = cell_json(cell, ty);
            json["path"] = path;
            json
        });
        let mut json = json!({ "elements": elements.collect::<Vec<_>>() });
        if let Some(deletion) = complex.deletion {
            json["deletion"] = deletion_json(deletion);
        }
        put_column(&mut json, *column, shape);
        json
    };
    (!columns.is_empty()).then(|| ("complex".into(), columns.iter().map(shown).collect()))
}

fn put_column(json: &mut Json, column: ColumnId, shape: &Shape<'_>) {
    json["column"] = column.0.into();
    json["type"] = shape.types.get(&column).map(Type::to_string).into();
    if let Some(column) = shape.column(column) {
        json["name"] = column.name.as_str().into();
    }
}

fn cell_json(cell: &Cell, ty: Option<&Type>) -> Json {
    let mut json = match &cell.kind {
        CellKind::Live(value) => json!({ "kind": "live", "value": typed(value, ty) }),
        CellKind::Expiring { value, ttl_s, expiry_s } => {
            json!({ "kind": "expiring", "value": typed(value, ty), "ttl_s": ttl_s, "expiry_s": expiry_s })
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

    use trefoil::model::{NodeId, Shard, Timestamp};

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
        let text = || Arc::new(Type::Text);
        let types = BTreeMap::from([(ColumnId(2), Type::Map { key: text(), value: text(), frozen: false })]);
        let json = shown(Fragment::Row(key, EncodedRow::encode(&row)), &Shape { types, table: None }).unwrap();
        let shards = json!([{ "node": 2, "incarnation": 5, "clock": 3, "value": -4 }]);
        let cell = json!({
            "kind": "counter", "value": -4, "shards": shards, "column": 1, "type": null, "timestamp": 7
        });
        assert_eq!(json["cells"], json!([cell]));
        let element = json!({ "kind": "live", "value": "v", "path": "k", "timestamp": 7 });
        let column = json!({
            "column": 2, "type": "map<text, text>", "deletion": { "timestamp": 6, "ldt_s": 9 }, "elements": [element]
        });
        assert_eq!(json["complex"], json!([column]));
    }
}
