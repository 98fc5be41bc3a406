//! `trefoil sstable stats`: what a file says about its contents.

use std::fmt::Display;
use std::path::Path;

use serde_json::{Value as Json, json};
use trefoil::sstable::{Sstable, Stats, VnodeSpan};

use super::super::error::Result;
use super::super::text::hex;
use super::super::{Global, output, stopped};

/// Shows one file.
pub fn show(path: &Path, global: &Global) -> Result<()> {
    let sstable = stopped::open(path)?;
    if global.json {
        return output::line(&as_json(path, &sstable).to_string());
    }
    output::line(&path.display().to_string())?;
    for (name, text) in lines(&sstable) {
        output::line(&format!("  {name:<14}{text}"))?;
    }
    Ok(())
}

fn lines(sstable: &Sstable) -> Vec<(&'static str, String)> {
    let stats = sstable.stats();
    let directory = sstable.vnodes();
    let vnodes = match (directory.spans.first(), directory.spans.last()) {
        (Some(first), Some(last)) => format!(
            "{} of {}, from {} to {}",
            directory.spans.len(),
            directory.bits.count(),
            first.vnode.0,
            last.vnode.0
        ),
        _ => format!("0 of {}", directory.bits.count()),
    };
    let columns: Vec<_> = stats.columns.iter().map(|(id, ty)| format!("{} {}", id.0, ty)).collect();
    vec![
        ("table", stats.table.to_string()),
        (
            "size",
            format!("{} bytes, of which {} blocks take {}", sstable.bytes(), sstable.blocks(), sstable.block_bytes()),
        ),
        ("partitions", stats.partitions.to_string()),
        ("rows", stats.rows.to_string()),
        ("cells", stats.cells.to_string()),
        ("tombstones", stats.tombstones.to_string()),
        ("keys", bounds(stats.keys.as_ref().map(|(first, last)| (hex(first.bytes()), hex(last.bytes()))))),
        ("clustering", bounds(stats.clustering.as_ref().map(|(least, greatest)| (hex(least), hex(greatest))))),
        ("timestamps", bounds(stats.timestamps.map(|(min, max)| (min.0, max.0)))),
        ("expiries", bounds(stats.expiries_s)),
        ("deleted at", bounds(stats.ldts_s)),
        ("stamps", bounds(Some((stats.stamps.0.0, stats.stamps.1.0)))),
        ("vnodes", vnodes),
        ("columns", columns.join(", ")),
    ]
}

fn bounds(bounds: Option<(impl Display, impl Display)>) -> String {
    bounds.map_or("none".to_owned(), |(least, greatest)| format!("{least} to {greatest}"))
}

fn as_json(path: &Path, sstable: &Sstable) -> Json {
    let directory = sstable.vnodes();
    let mut json = stats_json(sstable.stats());
    json["file"] = path.display().to_string().into();
    json["id"] = sstable.id().to_string().into();
    json["bytes"] = sstable.bytes().into();
    json["blocks"] = sstable.blocks().into();
    json["block_bytes"] = sstable.block_bytes().into();
    json["vnode_count"] = directory.bits.count().into();
    json["vnodes"] = directory.spans.iter().map(span_json).collect();
    json
}

fn stats_json(stats: &Stats) -> Json {
    let columns = stats.columns.iter().map(|(id, ty)| json!({ "id": id.0, "type": ty.to_string() }));
    json!({
        "table": stats.table.to_string(),
        "partitions": stats.partitions,
        "rows": stats.rows,
        "cells": stats.cells,
        "tombstones": stats.tombstones,
        "keys": stats.keys.as_ref().map(|(first, last)| [hex(first.bytes()), hex(last.bytes())]),
        "clustering": stats.clustering.as_ref().map(|(least, greatest)| [hex(least), hex(greatest)]),
        "timestamps": stats.timestamps.map(|(min, max)| [min.0, max.0]),
        "expiries_s": stats.expiries_s.map(|(min, max)| [min, max]),
        "ldts_s": stats.ldts_s.map(|(min, max)| [min, max]),
        "stamps": [stats.stamps.0.0, stats.stamps.1.0],
        "must_read": stats.must_read,
        "columns": columns.collect::<Vec<_>>(),
    })
}

fn span_json(span: &VnodeSpan) -> Json {
    let bytes = span.blocks.end.saturating_sub(span.blocks.start);
    json!({ "vnode": span.vnode.0, "partitions": span.partitions, "rows": span.rows, "block_bytes": bytes })
}
