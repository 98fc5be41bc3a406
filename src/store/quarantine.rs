//! Files that are not what was written: taken out of use, and told.
//!
//! ```text
//!   corrupt or unreadable (a read, a compaction, a scrub, a start) ─► out of the view ─► manifest edit ─► status, metrics
//!   at the next start: whole again, to the last byte? ─► back in use
//! ```
//!
//! A quarantined file answers nothing. Nor may reads go on without it: what it held may delete what other files hold. So
//! reads of the table in the vnodes that it covers fail here, and others serve them. Writes go on.
//!
//! The view changes first, the manifest after: where the edit fails the file is out of use all the same, the edit is tried
//! again, and after a restart the damage is found again. A file that is missing is treated alike, unless the manifest
//! itself has lost its end: then nobody knows what should be there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::Store;
use super::change::Change;
use super::table::Table;
use super::view::View;
use crate::codec::varint::{Reader, put_bytes, put_varint};
use crate::model::{KeyspaceId, ReadCommand, TableId, Target, Token, Vnode, VnodeBits};
use crate::snapshot::TableLabel;
use crate::sstable::{Access, Sstable, SstableMeta};
use crate::{Corrupt, Error, Result};

/// A reason is cut off behind so many bytes.
const REASON_BYTES_MAX: usize = 1_024;

/// A run of vnodes takes at least this many bytes.
const RUN_LEAST_BYTES: usize = 2;

/// Why a file is out of use, and what it may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quarantine {
    /// Runs of vnodes, first and last of each, ascending.
    pub(super) vnodes: Vec<(Vnode, Vnode)>,
    pub(super) reason: String,
}

/// A listed file that is out of use.
#[derive(Debug, Clone)]
pub(super) struct QuarantinedMeta {
    pub(super) meta: SstableMeta,
    pub(super) quarantine: Quarantine,
}

/// A file that answers nothing, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedFile {
    /// The file.
    pub id: Uuid,
    /// Where it is, or should be.
    pub path: PathBuf,
    /// Its table.
    pub table: TableId,
    /// What people call the table.
    pub label: TableLabel,
    /// The vnodes of the table that cannot be read on this node: first and last of each run, ascending.
    pub vnodes: Vec<(Vnode, Vnode)>,
    /// What is wrong with it.
    pub reason: String,
}

impl Quarantine {
    /// Of a file of which nobody can say what it holds.
    pub(super) fn of_everything(bits: VnodeBits, reason: &str) -> Quarantine {
        Quarantine::new(vec![(Vnode(0), Vnode(bits.count() - 1))], reason)
    }

    /// Of a file whose directory of vnodes was read and checked.
    fn of(sstable: &Sstable, reason: &str) -> Quarantine {
        let mut runs: Vec<(Vnode, Vnode)> = Vec::new();
        for span in &sstable.vnodes().spans {
            match runs.last_mut() {
                Some((_, last)) if last.0 + 1 == span.vnode.0 => *last = span.vnode,
                _ => runs.push((span.vnode, span.vnode)),
            }
        }
        Quarantine::new(runs, reason)
    }

    fn new(vnodes: Vec<(Vnode, Vnode)>, reason: &str) -> Quarantine {
        let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
        Quarantine { vnodes, reason: reason[..end.unwrap_or(0)].to_owned() }
    }

    /// Whether the file may hold anything of these vnodes, both included.
    pub(super) fn touches(&self, first: Vnode, last: Vnode) -> bool {
        self.vnodes.iter().any(|(from, to)| *from <= last && *to >= first)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.vnodes.len() as u64);
        for (first, last) in &self.vnodes {
            put_varint(out, u64::from(first.0));
            put_varint(out, u64::from(last.0));
        }
        put_bytes(out, self.reason.as_bytes());
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Quarantine> {
        let mut vnodes: Vec<(Vnode, Vnode)> = Vec::new();
        for _ in 0..reader.count(RUN_LEAST_BYTES)? {
            let (first, last) = (Vnode(reader.varint_u32()?), Vnode(reader.varint_u32()?));
            if first > last || vnodes.last().is_some_and(|(_, before)| *before >= first) {
                return Err(reader.corrupt("runs of vnodes are not in ascending order").into());
            }
            vnodes.push((first, last));
        }
        let reason: Bytes = reader.bytes()?;
        let reason = String::from_utf8(reason.into()).map_err(|_| reader.corrupt("a reason is not UTF-8"))?;
        Ok(Quarantine { vnodes, reason })
    }
}

impl Store {
    /// Refuses a read that a quarantined file might have a part in, or something else that was lost.
    pub(super) fn admit(&self, keyspace: KeyspaceId, view: &View, command: &ReadCommand) -> Result<()> {
        let withdrawn = self.memory.withdrawn.load();
        if view.quarantined.is_empty() && withdrawn.is_empty() {
            return Ok(());
        }
        let Some((first, last)) = vnodes_of(command, self.identity.vnode_bits) else { return Ok(()) };
        if let Some(((_, vnode), _)) = withdrawn.range((keyspace, first)..=(keyspace, last)).next() {
            return Err(Error::Withdrawn { table: command.table, vnode: *vnode });
        }
        match view.quarantined.iter().find(|file| file.quarantine.touches(first, last)) {
            None => Ok(()),
            Some(file) => Err(self.quarantined_error(file)),
        }
    }

    /// The keyspace and the first and last vnode of which a read may ask anything; `None` if it asks for nothing, or its table
    /// is not known.
    pub fn asked(&self, command: &ReadCommand) -> Option<(KeyspaceId, Vnode, Vnode)> {
        let keyspace = self.memory.tables.load().get(&command.table)?.spec().keyspace;
        let (first, last) = vnodes_of(command, self.identity.vnode_bits)?;
        Some((keyspace, first, last))
    }

    /// That a file cannot be used.
    pub(super) fn quarantined_error(&self, file: &QuarantinedMeta) -> Error {
        let QuarantinedMeta { meta, quarantine } = file;
        let (table, file, reason) = (meta.table, self.file_path(meta.id), quarantine.reason.clone());
        Error::Quarantined { table, file, reason }
    }

    /// What a failed read answers; if it came upon a corrupt file, that is out of use from now on.
    pub(super) fn on_failed_read(&self, table: &Arc<Table>, error: Error, access: Access) -> Error {
        match (&error, access) {
            // Whoever must not block leaves it to a thread that may: an edit of the manifest follows.
            (Error::Corrupt(_), Access::CachedOnly) => Error::NotCached,
            (_, Access::CachedOnly) => error,
            (_, Access::Disk) => {
                self.quarantine_for(table, &error);
                error
            }
        }
    }

    /// Takes the file that an error tells damage of out of use; whether it tells of any.
    pub(super) fn quarantine_for(&self, table: &Arc<Table>, error: &Error) -> bool {
        let damage = error.damage();
        damage.iter().for_each(|damage| self.quarantine(table, damage));
        damage.is_some()
    }

    /// Takes the file that a finding names out of use, if it is a live one of the table.
    fn quarantine(&self, table: &Arc<Table>, corrupt: &Corrupt) {
        let is_it = |id: Uuid| corrupt.file.as_deref() == Some(self.file_path(id).as_path());
        let manifest = self.manifest.lock();
        let view = table.view();
        let Some(file) = view.files.iter().find(|file| is_it(file.meta.id)) else { return };
        let quarantine = Quarantine::of(&file.sstable, &corrupt.to_string());
        tell(&self.file_path(file.meta.id), table, &quarantine);
        let quarantined = QuarantinedMeta { meta: file.meta.clone(), quarantine };
        table.change_view(|view| view.with_quarantined(Arc::new(quarantined)));
        drop(manifest);
        if let Err(error) = self.save_quarantines() {
            tracing::error!(%error, "the manifest does not say yet that a file is quarantined; it is tried again");
        }
    }

    /// Makes the manifest say which files are out of use, and which are back, if it does not.
    pub fn save_quarantines(&self) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let mut changes = Vec::new();
        for table in self.memory.holders() {
            let view = table.view();
            let state = manifest.state();
            let unsaved = view.quarantined.iter().filter(|file| !state.quarantined.contains_key(&file.meta.id));
            changes.extend(unsaved.map(|file| Change::FileQuarantined(file.meta.id, file.quarantine.clone())));
            let back = view.files.iter().filter(|file| state.quarantined.contains_key(&file.meta.id));
            changes.extend(
                back.flat_map(|file| [Change::FileRemoved(file.meta.id), Change::FileAdded(file.meta.clone())]),
            );
        }
        if changes.is_empty() { Ok(()) } else { manifest.commit(changes) }
    }

    /// The files that are out of use.
    pub fn quarantined(&self) -> Vec<QuarantinedFile> {
        let mut all = Vec::new();
        for table in self.memory.holders() {
            let label = &table.spec().label;
            all.extend(table.view().quarantined.iter().map(|file| QuarantinedFile {
                id: file.meta.id,
                path: self.file_path(file.meta.id),
                table: file.meta.table,
                label: label.clone(),
                vnodes: file.quarantine.vnodes.clone(),
                reason: file.quarantine.reason.clone(),
            }));
        }
        all
    }
}

/// Says loudly that a file is out of use.
pub(super) fn tell(path: &Path, table: &Table, quarantine: &Quarantine) {
    let spec = table.spec();
    let TableLabel { keyspace, table, .. } = &spec.label;
    let vnodes: u64 = quarantine.vnodes.iter().map(|(first, last)| u64::from(last.0 - first.0) + 1).sum();
    tracing::error!(
        file = %path.display(),
        table = %format_args!("{keyspace}.{table} ({})", spec.id),
        vnodes,
        reason = quarantine.reason,
        "a file is quarantined: it answers nothing, and reads of its vnodes of this table fail on this node"
    );
}

/// The first and the last vnode that a read may ask anything of; `None` if it asks for nothing.
fn vnodes_of(command: &ReadCommand, bits: VnodeBits) -> Option<(Vnode, Vnode)> {
    match &command.target {
        Target::Partition(key) => Some((bits.vnode(key.token()), bits.vnode(key.token()))),
        Target::Scan(tokens) => {
            let next = |token: Token| token.0.checked_add(1).map(Token);
            let begin = match (tokens.after, &command.after) {
                (_, Some(position)) => position.partition.token().max(tokens.after.unwrap_or(Token(i64::MIN))),
                (Some(after), None) => next(after)?,
                (None, None) => Token(i64::MIN),
            };
            let end = tokens.up_to.unwrap_or(Token(i64::MAX));
            (begin <= end).then(|| (bits.vnode(begin), bits.vnode(end)))
        }
    }
}
