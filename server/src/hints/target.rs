//! The hints for one node: its log and their delivery.

use std::path::{Path, PathBuf};
use std::time::Duration;

use trefoil::hints::delivery::{Delivery, Limits, Now, Outcome, Reach, Step};
use trefoil::hints::{Bound, Hint, HintLog, LogOptions, Place};
use trefoil::model::{Instant, NodeId};

use super::{Ground, HintSettings, Postman};
use crate::clock;

/// Hints sent to one node and not acknowledged yet, and their bytes.
const WINDOW_HINTS: usize = 256;
const WINDOW_BYTES: usize = 4 << 20;

/// Pauses after a refusal.
const PAUSE_US: (u64, u64) = (50_000, 5_000_000);

/// Segments of a log of hints, unless the bound of all of them is small.
const SEGMENT_BYTES: u64 = 16 << 20;
const SEGMENTS_LEAST: u64 = 8;

/// Steps after which other nodes have their turn.
const STEPS_MAX: usize = 512;

/// How often what is acknowledged is made durable, and how long a hint is at most written and not durable.
pub(super) const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The hints for one node, for people and metrics. Counts are of this run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetStatus {
    /// Bytes that are not acknowledged.
    pub pending_bytes: u64,
    /// When the oldest of them was written, in microseconds since 1970.
    pub oldest_us: Option<i64>,
    /// Whether delivery is paused.
    pub is_paused: bool,
    /// Whether the node can be reached.
    pub is_reachable: bool,
    /// Written.
    pub written: u64,
    /// Acknowledged.
    pub delivered: u64,
    /// Too old to be delivered.
    pub expired: u64,
    /// Delivered too late to have an effect.
    pub too_late: u64,
    /// Refused for ever.
    pub unacceptable: u64,
    /// Not written because of the bound of bytes.
    pub refused_bytes: u64,
    /// Not written because of the bound of age.
    pub refused_age: u64,
    /// Not written, or lost again, because the disk failed.
    pub refused_disk: u64,
    /// Files that were set aside.
    pub damaged_files: u64,
    /// Bytes that an operator has just dropped.
    pub dropped_bytes: u64,
}

impl TargetStatus {
    /// Seconds since the oldest hint was written; 0 if there is none.
    pub fn oldest_s(&self) -> u64 {
        let age_us = self.oldest_us.map_or(0, |oldest| clock::wall_us().saturating_sub(oldest));
        u64::try_from(age_us / 1_000_000).unwrap_or(0)
    }

    /// Hints that should be there and are not.
    pub fn refused(&self) -> u64 {
        self.refused_bytes + self.refused_age + self.refused_disk
    }
}

/// The hints for one node.
pub(super) struct Target {
    node: NodeId,
    log: HintLog,
    delivery: Delivery,
    reach: Reach,
    status: TargetStatus,
    /// Whether the last attempt to write has failed: told of once.
    is_failing: bool,
}

impl Target {
    /// `refused`: hints that could not be kept while the log could not be opened.
    pub(super) fn open(
        ground: &Ground,
        settings: &HintSettings,
        node: NodeId,
        refused: u64,
    ) -> trefoil::Result<Target> {
        let options = LogOptions {
            directory: directory(&ground.directory, node),
            owner: ground.owner,
            target: node,
            segment_bytes: SEGMENT_BYTES.min(settings.bytes_max / SEGMENTS_LEAST),
            bytes_max: settings.bytes_max,
            window_us: microseconds(settings.window_s),
        };
        let log = HintLog::open(ground.vfs.clone(), options)?;
        let limits = Limits {
            window_hints: WINDOW_HINTS,
            window_bytes: WINDOW_BYTES,
            bytes_per_s: settings.bytes_per_s,
            kept_us: microseconds(settings.kept_s),
            pause_min_us: PAUSE_US.0,
            pause_max_us: PAUSE_US.1,
        };
        let delivery = Delivery::new(limits, log.acknowledged());
        let status = TargetStatus { refused_disk: refused, ..TargetStatus::default() };
        Ok(Target { node, log, delivery, reach: Reach::Away, status, is_failing: false })
    }

    /// Writes hints to the log.
    pub(super) fn keep(&mut self, hints: &[Hint]) {
        let appended = self.log.append(hints, clock::wall_us());
        self.status.written += appended.written;
        self.status.refused_disk += appended.failed;
        match appended.refused {
            Some((Bound::Bytes, count)) => self.status.refused_bytes += count,
            Some((Bound::Age, count)) => self.status.refused_age += count,
            None => {}
        }
        match &appended.error {
            Some(error) => self.tell_failure(error),
            None => self.is_failing &= appended.written == 0,
        }
    }

    fn tell_failure(&mut self, error: &trefoil::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(target_node = self.node.0, %error, "hints cannot be written; what the node misses stays missing");
        }
    }

    /// What became of a hint.
    pub(super) fn outcome(&mut self, place: Place, outcome: Outcome) {
        self.delivery.outcome(place, outcome, clock::now());
    }

    pub(super) fn pause(&mut self, is_paused: bool) {
        self.status.is_paused = is_paused;
    }

    /// Forgets every hint; the bytes are in the next status alone.
    pub(super) fn clear(&mut self) -> TargetStatus {
        let bytes = self.log.pending_bytes();
        let cleared = self.log.clear();
        self.delivery.restart(self.log.acknowledged());
        let dropped_bytes = match cleared {
            Ok(()) => bytes,
            Err(error) => {
                tracing::error!(target_node = self.node.0, %error, "files of dropped hints cannot be removed");
                bytes.saturating_sub(self.log.pending_bytes())
            }
        };
        tracing::warn!(
            target_node = self.node.0,
            dropped_bytes,
            "hints were dropped; what the node has missed stays missing"
        );
        TargetStatus { dropped_bytes, ..self.status() }
    }

    /// Sends what can be sent; when to look again, if nothing happens before.
    pub(super) fn drive(&mut self, postman: &dyn Postman) -> Option<Instant> {
        self.status.is_reachable = postman.can_reach(self.node);
        let reach = if self.status.is_reachable && !self.status.is_paused { Reach::Alive } else { Reach::Away };
        if std::mem::replace(&mut self.reach, reach) != reach && reach == Reach::Alive {
            self.delivery.came_back();
        }
        let wait = self.steps(postman);
        if let Err(error) = self.log.acknowledge(self.delivery.acknowledged()) {
            tracing::warn!(target_node = self.node.0, %error, "files of delivered hints cannot be removed");
        }
        wait
    }

    fn steps(&mut self, postman: &dyn Postman) -> Option<Instant> {
        for _ in 0..STEPS_MAX {
            let now = Now { instant: clock::now(), wall_us: clock::wall_us() };
            match self.delivery.step(self.log.end(), self.reach, now) {
                Step::Wait(until) => return until,
                Step::Send(place, hint) => {
                    if let Err(outcome) = postman.send(self.node, place, &hint) {
                        self.outcome(place, outcome);
                    }
                }
                Step::Load(from, bytes) => match self.log.load(from, bytes) {
                    Ok(loaded) if loaded.next == from => return None,
                    Ok(loaded) => self.delivery.loaded(loaded.hints, loaded.next),
                    Err(error) => {
                        tracing::warn!(target_node = self.node.0, %error, "hints cannot be read");
                        return Some(now.instant.plus_us(PAUSE_US.1));
                    }
                },
            }
        }
        Some(clock::now())
    }

    /// Makes durable what was written, and how far it is acknowledged.
    pub(super) fn sync(&mut self) {
        if let Err(error) = self.log.sync() {
            self.tell_failure(&error);
        }
        if let Err(error) = self.log.save() {
            tracing::warn!(target_node = self.node.0, %error, "what is delivered of hints cannot be saved");
        }
    }

    pub(super) fn status(&mut self) -> TargetStatus {
        let counts = self.delivery.counts();
        TargetStatus {
            pending_bytes: self.log.pending_bytes(),
            oldest_us: self.log.oldest_us(),
            delivered: counts.delivered,
            expired: counts.expired,
            too_late: counts.too_late,
            unacceptable: counts.unacceptable,
            refused_disk: self.status.refused_disk + self.log.lost(),
            damaged_files: self.log.damaged(),
            ..self.status.clone()
        }
    }
}

fn directory(all: &Path, node: NodeId) -> PathBuf {
    all.join(node.0.to_string())
}

fn microseconds(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX)
}
