//! What the manifest records: changes, and the state that they add up to.
//!
//! ```text
//! edit     change ...                                    one frame of the manifest: all of it or nothing
//! change   kind u8 | length varint | body                kinds from 80 on may be passed over by who does not know them
//!   01 file added      id 16 | table 16 | bytes varint | sha-256 32 | first stamp i64 | last stamp i64
//!   02 file removed    id 16
//!   03 flushed         table 16 | position                every record of the table that ends there or before is in a file
//!   04 table gone      table 16                           after its files were removed
//!   05 received set    keyspace varint | vnode varint | set (received)             replaces the one before
//!   06 replay from     position                           every record before it is in a file, or of a table that is gone
//!   07 next file       number varint                      numbers below it have named files
//!   08 reconciled      keyspace varint | vnode varint | reconciled (received)       rises only
//!   09 purged through  keyspace varint | vnode varint | stamp i64                    rises only
//!   0a withdrawn        keyspace varint | vnode varint | placement varint    what was had and told of the slice counts no more
//!   0b quarantined      id 16 | vnodes | reason bytes    a listed file that answers nothing; ends when it is removed
//!   0c rebuilt          keyspace varint | vnode varint | position           ends that; no name logged before counts
//!   81 table known     table (snapshot/manifest.rs)       takes the place of what was known; goes with the table
//! position segment varint | offset varint
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::Bytes;
use uuid::Uuid;

use super::quarantine::Quarantine;
use crate::codec::varint::{Reader, put_bytes, put_varint};
use crate::commitlog::Position;
use crate::model::{KeyspaceId, Stamp, TableId, Vnode};
use crate::received::told::{Floors, Reconciled};
use crate::received::{ReceivedSet, ReceivedSets, Slice};
use crate::snapshot::TableInfo;
use crate::sstable::SstableMeta;
use crate::{Corrupt, Result};

const FILE_ADDED: u8 = 1;
const FILE_REMOVED: u8 = 2;
const FLUSHED: u8 = 3;
const TABLE_GONE: u8 = 4;
const RECEIVED: u8 = 5;
const REPLAY_FROM: u8 = 6;
const NEXT_FILE: u8 = 7;
const RECONCILED: u8 = 8;
const PURGED_THROUGH: u8 = 9;
const WITHDRAWN: u8 = 10;
const FILE_QUARANTINED: u8 = 11;
const REBUILT: u8 = 12;
const TABLE_KNOWN: u8 = 0x81;

/// A kind with this bit may be passed over, and is kept, by a build that does not know it.
const OPTIONAL: u8 = 0x80;

/// One change of what is live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    FileAdded(SstableMeta),
    FileRemoved(Uuid),
    Flushed(TableId, Position),
    TableGone(TableId),
    Received(KeyspaceId, Vnode, ReceivedSet),
    ReplayFrom(Position),
    NextFile(u64),
    Reconciled(KeyspaceId, Vnode, Reconciled),
    PurgedThrough(KeyspaceId, Vnode, Stamp),
    Withdrawn(KeyspaceId, Vnode, u64),
    FileQuarantined(Uuid, Quarantine),
    Rebuilt(KeyspaceId, Vnode, Position),
    TableKnown(TableInfo),
    /// An optional change of a later version.
    Unknown(u8, Bytes),
}

impl Change {
    fn put(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let kind = self.put_body(&mut body);
        out.push(kind);
        put_bytes(out, &body);
    }

    fn put_body(&self, body: &mut Vec<u8>) -> u8 {
        match self {
            Change::FileAdded(meta) => {
                meta.put(body);
                FILE_ADDED
            }
            Change::FileRemoved(id) => {
                body.extend(id.as_bytes());
                FILE_REMOVED
            }
            Change::Flushed(table, position) => {
                body.extend(table.0.as_bytes());
                position.put(body);
                FLUSHED
            }
            Change::TableGone(table) => {
                body.extend(table.0.as_bytes());
                TABLE_GONE
            }
            Change::Received(keyspace, vnode, set) => {
                put_slice(body, *keyspace, *vnode);
                set.encode(body);
                RECEIVED
            }
            Change::ReplayFrom(position) => {
                position.put(body);
                REPLAY_FROM
            }
            Change::NextFile(number) => {
                put_varint(body, *number);
                NEXT_FILE
            }
            Change::FileQuarantined(id, quarantine) => {
                body.extend(id.as_bytes());
                quarantine.put(body);
                FILE_QUARANTINED
            }
            Change::TableKnown(info) => {
                info.put(body);
                TABLE_KNOWN
            }
            Change::Reconciled(keyspace, vnode, reconciled) => {
                put_slice(body, *keyspace, *vnode);
                reconciled.encode(body);
                RECONCILED
            }
            Change::PurgedThrough(keyspace, vnode, stamp) => {
                put_slice(body, *keyspace, *vnode);
                body.extend(stamp.0.to_le_bytes());
                PURGED_THROUGH
            }
            Change::Withdrawn(keyspace, vnode, placement) => {
                put_slice(body, *keyspace, *vnode);
                put_varint(body, *placement);
                WITHDRAWN
            }
            Change::Rebuilt(keyspace, vnode, position) => {
                put_slice(body, *keyspace, *vnode);
                position.put(body);
                REBUILT
            }
            Change::Unknown(kind, bytes) => {
                body.extend(bytes);
                *kind
            }
        }
    }

    fn read(kind: u8, body: Bytes) -> Result<Change> {
        let mut reader = Reader::new("manifest change", body);
        let change = match kind {
            FILE_ADDED => Change::FileAdded(SstableMeta::read(&mut reader)?),
            FILE_REMOVED => Change::FileRemoved(Uuid::from_bytes(reader.array()?)),
            FLUSHED => Change::Flushed(read_table(&mut reader)?, Position::read(&mut reader)?),
            TABLE_GONE => Change::TableGone(read_table(&mut reader)?),
            RECEIVED => {
                let (keyspace, vnode) = (KeyspaceId(reader.varint_u32()?), Vnode(reader.varint_u32()?));
                Change::Received(keyspace, vnode, ReceivedSet::decode(&mut reader)?)
            }
            REPLAY_FROM => Change::ReplayFrom(Position::read(&mut reader)?),
            NEXT_FILE => Change::NextFile(reader.varint()?),
            FILE_QUARANTINED => {
                Change::FileQuarantined(Uuid::from_bytes(reader.array()?), Quarantine::read(&mut reader)?)
            }
            TABLE_KNOWN => Change::TableKnown(TableInfo::read(&mut reader)?),
            RECONCILED => {
                let (keyspace, vnode) = read_slice(&mut reader)?;
                Change::Reconciled(keyspace, vnode, Reconciled::decode(&mut reader)?)
            }
            PURGED_THROUGH => {
                let (keyspace, vnode) = read_slice(&mut reader)?;
                Change::PurgedThrough(keyspace, vnode, Stamp(reader.i64()?))
            }
            WITHDRAWN => {
                let (keyspace, vnode) = read_slice(&mut reader)?;
                Change::Withdrawn(keyspace, vnode, reader.varint()?)
            }
            REBUILT => {
                let (keyspace, vnode) = read_slice(&mut reader)?;
                Change::Rebuilt(keyspace, vnode, Position::read(&mut reader)?)
            }
            optional if optional & OPTIONAL != 0 => Change::Unknown(optional, reader.rest()),
            required => {
                let reason = format!("it needs a newer build: change of kind {required} is not known to this one");
                return Err(Corrupt::new("manifest", reason).into());
            }
        };
        reader.end()?;
        Ok(change)
    }
}

fn read_table(reader: &mut Reader) -> Result<TableId> {
    Ok(TableId(Uuid::from_bytes(reader.array()?)))
}

fn put_slice(body: &mut Vec<u8>, keyspace: KeyspaceId, vnode: Vnode) {
    put_varint(body, u64::from(keyspace.0));
    put_varint(body, u64::from(vnode.0));
}

fn read_slice(reader: &mut Reader) -> Result<Slice> {
    Ok((KeyspaceId(reader.varint_u32()?), Vnode(reader.varint_u32()?)))
}

/// The payload of one edit.
pub(super) fn encode_edit(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    changes.iter().for_each(|change| change.put(&mut out));
    out
}

/// Reads what [`encode_edit`] wrote.
pub(super) fn decode_edit(payload: Bytes) -> Result<Vec<Change>> {
    let mut reader = Reader::new("manifest edit", payload);
    let mut changes = Vec::new();
    while reader.remaining() > 0 {
        let kind = reader.u8()?;
        changes.push(Change::read(kind, reader.bytes()?)?);
    }
    Ok(changes)
}

/// What is live: the sum of all edits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Live files.
    pub(super) files: BTreeMap<Uuid, SstableMeta>,
    /// Those of them that answer nothing.
    pub(super) quarantined: BTreeMap<Uuid, Quarantine>,
    /// Per table: every record that ends there or before is in a file. A table that is missing here was never flushed
    /// (B098).
    pub(super) flushed: BTreeMap<TableId, Position>,
    /// What was told, or may be, as of `replay_from`.
    pub(super) received: ReceivedSets,
    /// Every name stamped at or before that any replica told of is on all of them.
    pub(super) reconciled: BTreeMap<Slice, Reconciled>,
    /// Everything stamped before is on every replica, and has been for long: what may be purged is counted from here.
    pub(super) purged_through: BTreeMap<(KeyspaceId, Vnode), Stamp>,
    /// Slices of which something was lost, each with the number of the placement under which it was told.
    pub(super) withdrawn: BTreeMap<Slice, u64>,
    /// Slices that were rebuilt: names in the log up to this position are not among what is had.
    pub(super) named_from: BTreeMap<Slice, Position>,
    /// Where replay begins.
    pub(super) replay_from: Position,
    /// The number of the next file.
    pub(super) next_file: u64,
    /// Tables whose data is not gone, so far as they are known by more than their id.
    pub(super) tables: BTreeMap<TableId, TableInfo>,
    /// Optional changes of a later version, as they came.
    unknown: Vec<(u8, Bytes)>,
}

impl State {
    /// Applies one edit; an error, which leaves a part applied, if it contradicts the state.
    pub(super) fn apply(&mut self, changes: Vec<Change>) -> Result<()> {
        changes.into_iter().try_for_each(|change| self.apply_one(change))
    }

    fn apply_one(&mut self, change: Change) -> Result<()> {
        match change {
            Change::FileAdded(meta) => match self.files.entry(meta.id) {
                Entry::Occupied(_) => return Err(contradiction(format!("file {} is added twice", meta.id))),
                Entry::Vacant(vacant) => drop(vacant.insert(meta)),
            },
            Change::FileRemoved(id) => {
                if self.files.remove(&id).is_none() {
                    return Err(contradiction(format!("file {id} is removed and was not there")));
                }
                self.quarantined.remove(&id);
            }
            Change::Flushed(table, position) => {
                let held = self.flushed.entry(table).or_default();
                *held = position.max(*held);
            }
            Change::TableGone(table) => {
                if let Some(left) = self.files.values().find(|meta| meta.table == table) {
                    return Err(contradiction(format!("table {table} is gone but has file {}", left.id)));
                }
                self.flushed.remove(&table);
                self.tables.remove(&table);
            }
            // A flush that was begun before a withdrawal tells of a set that counts no more.
            Change::Received(keyspace, vnode, _) if self.withdrawn.contains_key(&(keyspace, vnode)) => {}
            Change::Received(keyspace, vnode, set) => drop(self.received.insert((keyspace, vnode), set)),
            Change::ReplayFrom(position) => self.replay_from = position.max(self.replay_from),
            Change::Withdrawn(keyspace, vnode, placement) => {
                let slice = (keyspace, vnode);
                self.withdrawn.insert(slice, placement);
                self.received.remove(&slice);
                if let Some(held) = self.reconciled.get_mut(&slice) {
                    held.floors = Floors::default();
                }
            }
            Change::Rebuilt(keyspace, vnode, position) => {
                self.withdrawn.remove(&(keyspace, vnode));
                self.named_from.insert((keyspace, vnode), position);
            }
            Change::Reconciled(keyspace, vnode, reconciled) => {
                let held = self.reconciled.entry((keyspace, vnode)).or_default();
                held.through = reconciled.through.max(held.through);
                held.floors.join(&reconciled.floors);
            }
            Change::PurgedThrough(keyspace, vnode, stamp) => {
                let held = self.purged_through.entry((keyspace, vnode)).or_insert(stamp);
                *held = stamp.max(*held);
            }
            Change::NextFile(number) => self.next_file = number.max(self.next_file),
            Change::FileQuarantined(id, quarantine) => {
                if !self.files.contains_key(&id) {
                    return Err(contradiction(format!("file {id} is quarantined and was not there")));
                }
                self.quarantined.insert(id, quarantine);
            }
            Change::TableKnown(info) => drop(self.tables.insert(info.id, info)),
            Change::Unknown(kind, body) => self.unknown.push((kind, body)),
        }
        Ok(())
    }

    /// The edit by which a table goes with all its files; empty if nothing is known of it.
    pub(super) fn without_table(&self, table: TableId) -> Vec<Change> {
        let files = self.files.values().filter(|meta| meta.table == table);
        let mut changes: Vec<_> = files.map(|meta| Change::FileRemoved(meta.id)).collect();
        if !changes.is_empty() || self.flushed.contains_key(&table) || self.tables.contains_key(&table) {
            changes.push(Change::TableGone(table));
        }
        changes
    }

    /// The edit that leads from nothing to this state.
    pub(super) fn as_edit(&self) -> Vec<Change> {
        let files = self.files.values().cloned().map(Change::FileAdded);
        let flushed = self.flushed.iter().map(|(table, position)| Change::Flushed(*table, *position));
        let rebuilt = self.named_from.iter();
        let rebuilt = rebuilt.map(|((keyspace, vnode), from)| Change::Rebuilt(*keyspace, *vnode, *from));
        let withdrawn = self.withdrawn.iter();
        let withdrawn =
            withdrawn.map(|((keyspace, vnode), placement)| Change::Withdrawn(*keyspace, *vnode, *placement));
        let received =
            self.received.iter().map(|((keyspace, vnode), set)| Change::Received(*keyspace, *vnode, set.clone()));
        let reconciled = self.reconciled.iter();
        let reconciled =
            reconciled.map(|((keyspace, vnode), held)| Change::Reconciled(*keyspace, *vnode, held.clone()));
        let purged = self.purged_through.iter();
        let purged = purged.map(|((keyspace, vnode), stamp)| Change::PurgedThrough(*keyspace, *vnode, *stamp));
        let unknown = self.unknown.iter().map(|(kind, body)| Change::Unknown(*kind, body.clone()));
        let quarantined = self.quarantined.iter().map(|(id, file)| Change::FileQuarantined(*id, file.clone()));
        let known = self.tables.values().cloned().map(Change::TableKnown);
        let numbers = [Change::ReplayFrom(self.replay_from), Change::NextFile(self.next_file)];
        files
            .chain(quarantined)
            .chain(flushed)
            .chain(known)
            .chain(rebuilt)
            .chain(withdrawn)
            .chain(received)
            .chain(reconciled)
            .chain(purged)
            .chain(unknown)
            .chain(numbers)
            .collect()
    }
}

fn contradiction(reason: String) -> crate::Error {
    Corrupt::new("manifest", reason).into()
}
