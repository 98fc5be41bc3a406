//! What a node has loaded of a restore, on disk, so that a restart need not begin anew.
//!
//! ```text
//! <restore>   TRFLRST1 | version u32 | frame (codec/frame.rs, salt 1) of:                         replaced by rename
//!             order 32 | done u8 | tables varint | table ... | logs varint | (node u32 | number u64) ...
//! table       id 16 | runs varint | (vnodes before it varint | its vnodes less one varint) ...
//! ```
//!
//! What it says is loaded is live in the store; more may be. What is lost of it costs no more than loading twice, which
//! changes nothing: so a file that does not read stands for none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use trefoil::Result;
use trefoil::codec::frame::{Framed, put_frame, read_frame};
use trefoil::codec::varint::{Reader, put_varint};
use trefoil::model::{NodeId, TableId, Vnode, VnodeBits};
use trefoil::vfs::Vfs;
use uuid::Uuid;

const MAGIC: &[u8; 8] = b"TRFLRST1";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 12;
const SALT: u64 = 1;

/// More than any grows to.
const BYTES_MAX: u64 = 64 << 20;

const TABLE_LEAST_BYTES: usize = 17;
const RUN_LEAST_BYTES: usize = 2;
const LOG_LEAST_BYTES: usize = 12;

/// What is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    /// A digest of what was ordered, and of what is the node's own of it: for another order they mean nothing.
    pub order: [u8; 32],
    /// Whether everything is.
    pub is_done: bool,
    /// Vnodes whose files are, by the table they went into.
    pub vnodes: BTreeMap<TableId, BTreeSet<Vnode>>,
    /// The last piece of each log whose records are, with all before it.
    pub logs: BTreeMap<NodeId, u64>,
}

impl Notes {
    /// The file.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = self.order.to_vec();
        payload.push(u8::from(self.is_done));
        put_varint(&mut payload, self.vnodes.len() as u64);
        for (table, vnodes) in &self.vnodes {
            payload.extend(table.0.as_bytes());
            let runs = runs(vnodes);
            put_varint(&mut payload, runs.len() as u64);
            let mut end = 0;
            for (first, last) in runs {
                put_varint(&mut payload, u64::from(first - end));
                put_varint(&mut payload, u64::from(last - first));
                end = last + 1;
            }
        }
        put_varint(&mut payload, self.logs.len() as u64);
        for (node, number) in &self.logs {
            payload.extend(node.0.to_le_bytes());
            payload.extend(number.to_le_bytes());
        }
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        put_frame(&mut out, SALT, &payload);
        out
    }

    /// Reads what [`Notes::encode`] wrote; `None` if it is something else.
    pub fn decode(bytes: &Bytes) -> Option<Notes> {
        let rest = bytes.strip_prefix(MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
        let Framed::Whole(payload, taken) = read_frame(&bytes.slice(HEADER_BYTES..), SALT) else { return None };
        if taken != rest.len() {
            return None;
        }
        let mut reader = Reader::new("notes of a restore", payload);
        let notes = read_notes(&mut reader).ok().flatten()?;
        reader.end().ok().map(|()| notes)
    }
}

fn read_notes(reader: &mut Reader) -> Result<Option<Notes>> {
    let mut notes = Notes { order: reader.array()?, ..Notes::default() };
    notes.is_done = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Ok(None),
    };
    for _ in 0..reader.count(TABLE_LEAST_BYTES)? {
        let table = TableId(Uuid::from_bytes(reader.array()?));
        let Some(vnodes) = read_vnodes(reader)? else { return Ok(None) };
        if notes.vnodes.last_key_value().is_some_and(|(last, _)| *last >= table) {
            return Ok(None);
        }
        notes.vnodes.insert(table, vnodes);
    }
    for _ in 0..reader.count(LOG_LEAST_BYTES)? {
        let (node, number) = (NodeId(reader.u32()?), reader.u64()?);
        if notes.logs.last_key_value().is_some_and(|(last, _)| *last >= node) {
            return Ok(None);
        }
        notes.logs.insert(node, number);
    }
    Ok(Some(notes))
}

fn read_vnodes(reader: &mut Reader) -> Result<Option<BTreeSet<Vnode>>> {
    let most = 1_u64 << VnodeBits::MAX;
    let (mut vnodes, mut end) = (BTreeSet::new(), 0_u64);
    for _ in 0..reader.count(RUN_LEAST_BYTES)? {
        let (gap, more) = (reader.varint()?, reader.varint()?);
        // No more of them than any cluster has, and no two runs that touch.
        let first = end.saturating_add(gap);
        let last = first.saturating_add(more);
        if last >= most || (gap == 0 && !vnodes.is_empty()) {
            return Ok(None);
        }
        vnodes.extend((first..=last).map(|number| Vnode(number as u32)));
        end = last + 1;
    }
    Ok(Some(vnodes))
}

/// Runs of vnodes, the first and the last of each.
pub(super) fn runs(vnodes: &BTreeSet<Vnode>) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for vnode in vnodes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == vnode.0 => *last = vnode.0,
            _ => runs.push((vnode.0, vnode.0)),
        }
    }
    runs
}

/// The notes of one restore in their file.
pub(super) struct NotesFile {
    vfs: Arc<dyn Vfs>,
    directory: PathBuf,
    restore: Uuid,
}

impl NotesFile {
    pub(super) fn new(vfs: Arc<dyn Vfs>, directory: PathBuf, restore: Uuid) -> NotesFile {
        NotesFile { vfs, directory, restore }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(self.restore.to_string())
    }

    /// What was noted; nothing if nothing was, or what was does not read.
    pub(super) fn read(&self) -> Result<Notes> {
        let path = self.path();
        if !self.vfs.exists(&path)? {
            return Ok(Notes::default());
        }
        let file = self.vfs.open(&path)?;
        let len = file.len()?.min(BYTES_MAX);
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(Notes::decode(&bytes.into()).unwrap_or_default())
    }

    /// Makes notes durable.
    pub(super) fn write(&self, notes: &Notes) -> Result<()> {
        self.vfs.create_dir(&self.directory)?;
        let temporary = self.directory.join(format!("{}.new", self.restore));
        if self.vfs.exists(&temporary)? {
            self.vfs.remove(&temporary)?;
        }
        let file = self.vfs.create(&temporary)?;
        file.write_at(&notes.encode(), 0)?;
        file.sync()?;
        self.vfs.rename(&temporary, &self.path())?;
        self.vfs.sync_dir(&self.directory)
    }

    /// Forgets them.
    pub(super) fn remove(&self) -> Result<()> {
        let path = self.path();
        if self.vfs.exists(&path)? {
            self.vfs.remove(&path)?;
            self.vfs.sync_dir(&self.directory)?;
        }
        Ok(())
    }
}
