//! The log on its way to the bucket, piece by piece.
//!
//! ```text
//!   start:  the last piece in the bucket ─► its end ─► go on from there          nothing local says how far it is
//!   piece:  told := what is closed now ─► log from the last end on ─► create log/<node>/<number> ─► the log may go
//! ```
//!
//! `told` is asked first and the log read after it, so everything stamped so or before is in what was read, unless that
//! ended early for its size: then the piece says what the one before said.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use trefoil::backup::{Piece, PieceHead, StateAt, layout};
use trefoil::commitlog::{LogRange, Logged, Position, Since};
use trefoil::model::{NodeId, Stamp, VnodeBits};
use trefoil::received::ReceivedSets;
use trefoil::store::Store;
use trefoil_s3::Creation;

use super::{Archive, LOOK, Pauses, Trouble, off_runtime};
use crate::clock;

/// Records of one piece, in bytes, about: so much log is not waited for any longer.
const PIECE_BYTES: usize = 16 << 20;

/// Where the archived log of a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The number of the last piece; 0: there is none.
    pub number: u64,
    /// Where in the log it ends.
    pub to: Position,
    /// Up to which stamp it is closed.
    pub told: Stamp,
}

impl Archive {
    /// The last piece, once the bucket has told.
    pub fn end(&self) -> Option<End> {
        *self.end.lock()
    }

    /// A backup waits until the log is closed through `cut`.
    pub(super) fn want(&self, cut: Stamp) {
        self.wanted.fetch_max(cut.0, Ordering::Relaxed);
    }

    /// The last piece of a node in the bucket. Numbers have no gaps at their end, so that a few listings find it, whatever was
    /// pruned at the beginning.
    pub(super) async fn last_piece(&self, node: NodeId) -> Result<Option<u64>, Trouble> {
        let prefix = layout::log_of(node);
        // There is one numbered `low`, unless it is 0, and none above `high`.
        let (mut low, mut high, mut jump) = (0_u64, u64::MAX, 0_u64);
        while low < high {
            let probe = low + jump.min((high - low) / 2);
            let page = self.door.list(&prefix, Some(&layout::piece(node, probe))).await?;
            let last = page.objects.iter().rev().find_map(|listed| layout::parse_piece(&listed.key));
            match last {
                None => (high, jump) = (probe, (probe - low) / 2),
                Some((_, last)) if page.more => (low, jump) = (last, jump.saturating_mul(2).max(1_000)),
                Some((_, last)) => (low, high) = (last, last),
            }
        }
        Ok(Some(low).filter(|number| *number > 0))
    }

    /// The head of a piece in the bucket; `None` if there is no such piece.
    pub(super) async fn piece_head(&self, node: NodeId, number: u64) -> Result<Option<PieceHead>, Trouble> {
        match self.repository.head(node, number).await {
            Ok(head) => Ok(Some(head)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds out where to go on.
    pub(super) async fn resume(&self, store: &Arc<Store>) -> Result<End, Trouble> {
        let node = self.identity.node;
        let end = match self.last_piece(node).await? {
            None => End { number: 0, to: store.log_first(), told: Stamp::default() },
            Some(number) => {
                let head = self.piece_head(node, number).await?.ok_or(Trouble::PieceGone(number))?;
                End { number, to: head.to, told: head.told }
            }
        };
        self.advance(store, end).await?;
        Ok(end)
    }

    async fn advance(&self, store: &Arc<Store>, end: End) -> Result<(), Trouble> {
        *self.end.lock() = Some(end);
        let store = store.clone();
        off_runtime(move || store.set_archived(Some(end.to))).await
    }

    /// Ships one piece behind `end`. Answers whether there is more to be shipped at once.
    pub(super) async fn ship(&self, store: &Arc<Store>, end: End) -> Result<bool, Trouble> {
        let reading = store.clone();
        let Read { closed, range, is_behind_gap } = off_runtime(move || read(&reading, end.to)).await?;
        // Once, however often the piece behind it is tried.
        if is_behind_gap && self.gap_before.swap(end.number + 1, Ordering::Relaxed) != end.number + 1 {
            self.counts.gaps.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                archived = ?end.to, begins = ?range.from,
                "a part of the commit log went before it was archived: there is a gap, and restores to a time in it are refused"
            );
        }
        let bytes: usize = range.records.iter().map(|logged| logged.record.bytes().len()).sum();
        let is_cut = bytes >= PIECE_BYTES;
        let told = if is_cut { end.told } else { closed.max(end.told) };
        let states: Vec<StateAt> = self.states.lock().clone();
        let head = PieceHead {
            cluster: self.identity.cluster,
            node: self.identity.node,
            number: end.number + 1,
            from: range.from,
            to: range.to,
            told,
            made_at: Stamp(clock::wall_us()),
            records: 0,
            stamps: None,
            names: ReceivedSets::new(),
            states,
        };
        let (told_states, key, vnode_bits) = (head.states.len(), head.key(), self.identity.vnode_bits);
        let body = off_runtime(move || Ok(encode(head, &range.records, vnode_bits))).await?;
        let length = body.len() as u64;
        if self.door.create(&key, body).await? == Creation::AlreadyThere {
            // An attempt of ours whose answer was lost, or one before a restart: either way it is what comes next.
            let number = end.number + 1;
            let head = self.piece_head(self.identity.node, number).await?.ok_or(Trouble::PieceGone(number))?;
            self.advance(store, End { number, to: head.to, told: head.told }).await?;
            return Ok(true);
        }
        self.states.lock().drain(..told_states);
        self.counts.pieces.fetch_add(1, Ordering::Relaxed);
        self.counts.piece_bytes.fetch_add(length, Ordering::Relaxed);
        self.advance(store, End { number: end.number + 1, to: range.to, told }).await?;
        Ok(is_cut)
    }

    /// Whether a piece is due: it is time, much has come, or a backup waits for what it would say.
    fn is_due(&self, store: &Store, next: Instant) -> bool {
        let told = self.end().map_or(Stamp::default(), |end| end.told);
        let wanted = Stamp(self.wanted.load(Ordering::Relaxed));
        Instant::now() >= next
            || store.status().log_unarchived_bytes >= PIECE_BYTES as u64
            || (wanted > told && store.close_through(Stamp::default()) >= wanted)
    }
}

/// What was read of the log.
struct Read {
    /// Through which stamp the log is closed with what was read, if that was all.
    closed: Stamp,
    range: LogRange,
    /// Whether something is missing before it.
    is_behind_gap: bool,
}

/// The log behind `from`, or what is there by now.
fn read(store: &Store, mut from: Position) -> trefoil::Result<Read> {
    // First what is closed, then the log.
    let closed = store.close_through(Stamp::default());
    let mut is_behind_gap = false;
    loop {
        match store.log_since(from, PIECE_BYTES)? {
            Since::Records(range) => return Ok(Read { closed, range, is_behind_gap }),
            Since::Gone { first } => from = first,
            // The directory is of an earlier day than the archive: what it has now begins anew.
            Since::Ahead { .. } => from = store.log_first(),
        }
        is_behind_gap = true;
    }
}

fn encode(head: PieceHead, records: &[Logged], vnode_bits: VnodeBits) -> Bytes {
    Piece::new(head, records, vnode_bits).encode()
}

/// Ships the log, until it is dropped.
pub(super) async fn run(archive: Arc<Archive>, store: Arc<Store>) {
    const WHAT: &str = "the log";
    let mut pauses = Pauses::default();
    let mut next = Instant::now();
    let mut alarmed = false;
    loop {
        let resuming = archive.end().is_none();
        let shipped = match archive.end() {
            None => archive.resume(&store).await.map(|_| true),
            Some(end) if archive.is_due(&store, next) => archive.ship(&store, end).await,
            Some(_) => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
        };
        match shipped {
            Ok(more) => {
                archive.succeeded(WHAT);
                pauses.end();
                next = Instant::now() + if more { Duration::ZERO } else { archive.settings.log_every };
            }
            Err(error) => {
                archive.failed(WHAT, error.to_string());
                pauses.wait().await;
            }
        }
        if resuming {
            continue; // What came while the node was down is shipped first.
        }
        let behind = archive.standing().is_behind();
        if behind != std::mem::replace(&mut alarmed, behind) {
            match behind {
                true => tracing::error!(
                    "the archive of the commit log is behind: a loss of the cluster would cost more than is meant"
                ),
                false => tracing::info!("the archive of the commit log has caught up"),
            }
        }
    }
}
