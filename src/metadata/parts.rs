//! Parts that entries and snapshots of the state share. The layouts are drawn in `docs/formats.md`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use uuid::Uuid;

use crate::codec::types::{UserTypes, put_type, take_type};
use crate::codec::varint::{Reader, put_bytes, put_varint};
use crate::model::{ColumnKind, CompactionOptions, Durability, Order, Scaling, TableOptions, Type, VnodeBits};
use crate::ring::Zone;
use crate::{Error, Result};

/// Beside the durability of a table: options of compaction follow.
const HAS_COMPACTION: u8 = 0x80;
/// Scaling of a level: N.
const NEUTRAL: u8 = 0;
/// Beside the fan of a level's scaling: L rather than T.
const LEVELED: u8 = 0x80;

/// Appends text behind its length in bytes.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// Reads 16 bytes as a uuid.
pub(super) fn uuid(reader: &mut Reader) -> Result<Uuid> {
    let bytes = reader.take(16)?;
    Uuid::from_slice(&bytes).map_err(|_| reader.corrupt("16 bytes of a uuid expected").into())
}

/// Reads 0 or 1.
pub(super) fn flag(reader: &mut Reader) -> Result<bool> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.corrupt(format!("0 or 1 expected, {other} found")).into()),
    }
}

/// Reads `count` things, each at least one byte long: a count that the bytes cannot hold is found before anything grows.
pub(super) fn list<T>(reader: &mut Reader, mut read: impl FnMut(&mut Reader) -> Result<T>) -> Result<Vec<T>> {
    let count = reader.varint()?;
    if count > reader.remaining() as u64 {
        return Err(reader.corrupt(format!("{count} things in {} bytes", reader.remaining())).into());
    }
    (0..count).map(|_| read(reader)).collect()
}

/// A [`list`] whose things strictly ascend by a key.
pub(super) fn ascending<K: Ord + Clone, V>(
    reader: &mut Reader,
    mut read: impl FnMut(&mut Reader) -> Result<(K, V)>,
) -> Result<BTreeMap<K, V>> {
    let mut last: Option<K> = None;
    let pairs = list(reader, |reader| {
        let (key, value) = read(reader)?;
        if last.as_ref().is_some_and(|last| *last >= key) {
            return Err(Error::Corrupt(reader.corrupt("a list is not in ascending order")));
        }
        last = Some(key.clone());
        Ok((key, value))
    })?;
    Ok(pairs.into_iter().collect())
}

pub(super) fn vnode_bits(reader: &mut Reader) -> Result<VnodeBits> {
    let bits = reader.u8()?;
    VnodeBits::new(bits).ok_or_else(|| reader.corrupt(format!("2^{bits} vnodes are too many")).into())
}

pub(super) fn put_zone(out: &mut Vec<u8>, zone: &Zone) {
    put_text(out, &zone.region);
    put_text(out, &zone.name);
}

pub(super) fn zone(reader: &mut Reader) -> Result<Zone> {
    Ok(Zone { region: reader.text()?, name: reader.text()? })
}

pub(super) fn put_replication(out: &mut Vec<u8>, replication: &BTreeMap<String, u32>) {
    put_varint(out, replication.len() as u64);
    for (region, copies) in replication {
        put_text(out, region);
        put_varint(out, u64::from(*copies));
    }
}

pub(super) fn replication(reader: &mut Reader) -> Result<BTreeMap<String, u32>> {
    ascending(reader, |reader| Ok((reader.text()?, reader.varint_u32()?)))
}

/// Appends what a column is: `type | kind u8`. User-defined types are named only.
pub(super) fn put_column_nature(out: &mut Vec<u8>, ty: &Type, kind: ColumnKind) {
    put_type(out, ty, UserTypes::Named);
    out.push(match kind {
        ColumnKind::PartitionKey => 1,
        ColumnKind::Clustering(Order::Ascending) => 2,
        ColumnKind::Clustering(Order::Descending) => 3,
        ColumnKind::Static => 4,
        ColumnKind::Regular => 5,
    });
}

pub(super) fn column_nature(reader: &mut Reader) -> Result<(Type, ColumnKind)> {
    let ty = take_type(reader, UserTypes::Named)?;
    let kind = match reader.u8()? {
        1 => ColumnKind::PartitionKey,
        2 => ColumnKind::Clustering(Order::Ascending),
        3 => ColumnKind::Clustering(Order::Descending),
        4 => ColumnKind::Static,
        5 => ColumnKind::Regular,
        other => return Err(reader.corrupt(format!("no kind of column has number {other}")).into()),
    };
    Ok((ty, kind))
}

pub(super) fn put_options(out: &mut Vec<u8>, options: &TableOptions) {
    let TableOptions { default_ttl_s, lateness_s, durability, comment, compaction } = options;
    put_varint(out, u64::from(*default_ttl_s));
    put_varint(out, u64::from(*lateness_s));
    let own_compaction = *compaction != CompactionOptions::default();
    out.push(
        if own_compaction { HAS_COMPACTION } else { 0 }
            | match durability {
                Durability::Commit => 1,
                Durability::Periodic => 2,
            },
    );
    put_text(out, comment);
    if own_compaction {
        put_compaction(out, compaction);
    }
}

pub(super) fn put_compaction(out: &mut Vec<u8>, compaction: &CompactionOptions) {
    let levels = compaction.scaling_by_level();
    put_varint(out, levels.len() as u64);
    for scaling in levels {
        out.push(match scaling {
            Scaling::Neutral => NEUTRAL,
            Scaling::Tiered(fan) => *fan,
            Scaling::Leveled(fan) => LEVELED | fan,
        });
    }
    put_varint(out, u64::from(compaction.target_size_mib()));
    put_varint(out, compaction.window_s().map_or(0, |window| u64::from(window.get())));
}

pub(super) fn compaction(reader: &mut Reader) -> Result<CompactionOptions> {
    let scaling = list(reader, |reader| {
        Ok(match reader.u8()? {
            NEUTRAL => Scaling::Neutral,
            code if code & LEVELED != 0 => Scaling::Leveled(code & !LEVELED),
            fan => Scaling::Tiered(fan),
        })
    })?;
    let (target_size_mib, window_s) = (reader.varint_u32()?, NonZeroU32::new(reader.varint_u32()?));
    CompactionOptions::new(scaling, target_size_mib, window_s)
        .map_err(|error| Error::Corrupt(reader.corrupt(error.to_string())))
}

pub(super) fn options(reader: &mut Reader) -> Result<TableOptions> {
    let default_ttl_s = reader.varint_u32()?;
    let lateness_s = reader.varint_u32()?;
    let code = reader.u8()?;
    let durability = match code & !HAS_COMPACTION {
        1 => Durability::Commit,
        2 => Durability::Periodic,
        other => return Err(reader.corrupt(format!("no durability has number {other}")).into()),
    };
    let comment = reader.text()?;
    let compaction = if code & HAS_COMPACTION != 0 { compaction(reader)? } else { CompactionOptions::default() };
    if code & HAS_COMPACTION != 0 && compaction == CompactionOptions::default() {
        return Err(reader.corrupt("options of compaction that are the default ones").into());
    }
    Ok(TableOptions { default_ttl_s, lateness_s, durability, comment, compaction })
}
