//! The cluster state that this node holds, in memory and on disk, and the last entries that led to it.

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use trefoil::Result;
use trefoil::codec::varint::{Reader, put_bytes, put_varint};
use trefoil::metadata::{ClusterState, Entry, Epoch, Verdict, apply};
use trefoil::model::NodeId;

use super::files::{Files, Position, Saved};

/// Most entries kept for peers that are a little behind; who is further behind gets the whole state.
const TAIL_ENTRIES_MAX: usize = 64;

/// The state and its bytes on disk. Only one of Raft and the puller advances it, Raft where the node votes.
pub(super) struct Held {
    me: NodeId,
    files: Files,
    state: ArcSwap<ClusterState>,
    epoch: watch::Sender<Epoch>,
    tail: Mutex<Tail>,
}

/// Entries after `from`, without a gap up to the state.
struct Tail {
    from: Epoch,
    entries: VecDeque<(u64, Bytes)>,
}

/// The next state, not yet durable: nobody may see it.
pub(super) struct Advance {
    pub(super) state: Arc<ClusterState>,
    entries: Vec<(u64, Bytes)>,
}

impl Held {
    pub(super) fn new(files: Files, saved: Saved) -> (Arc<Held>, Position) {
        let epoch = saved.state.epoch();
        let held = Held {
            me: saved.node,
            files,
            state: ArcSwap::from_pointee(saved.state),
            epoch: watch::Sender::new(epoch),
            tail: Mutex::new(Tail { from: epoch, entries: VecDeque::new() }),
        };
        (Arc::new(held), saved.position)
    }

    pub(super) fn me(&self) -> NodeId {
        self.me
    }

    pub(super) fn state(&self) -> Arc<ClusterState> {
        self.state.load_full()
    }

    pub(super) fn watch(&self) -> watch::Receiver<Epoch> {
        self.epoch.subscribe()
    }

    pub(super) fn advance(&self) -> Advance {
        Advance { state: self.state(), entries: Vec::new() }
    }

    /// Makes what was advanced to durable, then visible. Blocks on the disk.
    pub(super) fn publish(&self, advance: Advance, position: &Position) -> Result<()> {
        self.files.write_state(self.me, position, &advance.state)?;
        self.tail.lock().extend(advance.entries);
        self.show(advance.state);
        Ok(())
    }

    /// Makes a whole state durable, then visible, unless a later one is held already. Blocks on the disk.
    pub(super) fn replace(&self, state: ClusterState, position: &Position) -> Result<()> {
        let held = self.state();
        let later = if state.epoch() > held.epoch() { Arc::new(state) } else { Arc::clone(&held) };
        self.files.write_state(self.me, position, &later)?;
        if !Arc::ptr_eq(&later, &held) {
            *self.tail.lock() = Tail { from: later.epoch(), entries: VecDeque::new() };
            self.show(later);
        }
        Ok(())
    }

    fn show(&self, state: Arc<ClusterState>) {
        let epoch = state.epoch();
        self.state.store(state);
        self.epoch.send_replace(epoch);
    }

    /// The answer to a peer that has `after`: what it lacks.
    pub(super) fn newer_than(&self, after: Epoch) -> News {
        let tail = self.tail.lock();
        let state = self.state();
        if state.epoch() <= after {
            return News::Nothing;
        }
        if after >= tail.from && after.generation == state.epoch().generation {
            let lacking = tail.entries.iter().filter(|(index, _)| *index > after.index);
            return News::Entries(lacking.cloned().collect());
        }
        News::State(state.encode().into())
    }
}

impl Tail {
    fn extend(&mut self, entries: Vec<(u64, Bytes)>) {
        self.entries.extend(entries);
        while self.entries.len() > TAIL_ENTRIES_MAX {
            if let Some((index, _)) = self.entries.pop_front() {
                self.from.index = index;
            }
        }
    }
}

impl Advance {
    /// Applies the entry at `index`; nothing if the state contains it already.
    pub(super) fn apply(&mut self, index: u64, bytes: Bytes) -> Result<Option<Verdict>> {
        let epoch = Epoch { index, ..self.state.epoch() };
        if epoch <= self.state.epoch() {
            return Ok(None);
        }
        let entry = Entry::decode(bytes.clone())?;
        let (next, verdict) = apply(&self.state, epoch, &entry);
        self.state = Arc::new(next);
        self.entries.push((index, bytes));
        Ok(Some(verdict))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// What a node that is behind gets to hear.
///
/// `0` | `1`, count varint, (index varint, bytes) ... | `2`, state
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    Entries(Vec<(u64, Bytes)>),
    State(Bytes),
}

impl News {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            News::Nothing => out.push(0),
            News::Entries(entries) => {
                out.push(1);
                put_varint(&mut out, entries.len() as u64);
                for (index, bytes) in entries {
                    put_varint(&mut out, *index);
                    put_bytes(&mut out, bytes);
                }
            }
            News::State(state) => {
                out.push(2);
                out.extend_from_slice(state);
            }
        }
        out.into()
    }

    pub(super) fn decode(bytes: Bytes) -> Result<News> {
        let mut reader = Reader::new("metadata news", bytes);
        let news = match reader.u8()? {
            0 => News::Nothing,
            1 => {
                let count = reader.varint()?;
                if count > reader.remaining() as u64 {
                    return Err(reader.corrupt(format!("{count} entries in {} bytes", reader.remaining())).into());
                }
                let entries: Result<_> = (0..count).map(|_| Ok((reader.varint()?, reader.bytes()?))).collect();
                News::Entries(entries?)
            }
            2 => News::State(reader.rest()),
            other => return Err(reader.corrupt(format!("no news has kind {other}")).into()),
        };
        reader.end()?;
        Ok(news)
    }
}
