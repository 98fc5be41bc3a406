//! What a node keeps for others that missed it, and its delivery: the shell around [`HintLog`] and [`Delivery`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use trefoil::coordinator::{FailureReason, indices};
use trefoil::hints::delivery::{Delivery, Limits, Now, Outcome, Reach, Step};
use trefoil::hints::{Hint, HintLog, LogOptions, Place, targets};
use trefoil::model::{Identity, Instant, NodeId};
use trefoil::vfs::Vfs;

use super::event::{Message, Timer};
use super::log::{Job, Ticket};
use super::node::Node;
use super::scheduler::Sim;
use super::shape::{node_id, place_of};
use super::write::{TIMEOUT_US, Write};

const DIRECTORY: &str = "/node/hints";

/// How often it is looked who can be reached.
const LOOK_US: u64 = 500_000;

const LIMITS: Limits = Limits {
    window_hints: 16,
    window_bytes: 16 << 10,
    bytes_per_s: 64 << 10,
    kept_us: 120_000_000,
    pause_min_us: 50_000,
    pause_max_us: 5_000_000,
};

/// The hints for one node.
pub struct HintsFor {
    log: HintLog,
    delivery: Delivery,
    reach: Reach,
    /// Those sent, and until when an answer is waited for.
    sent: BTreeMap<Place, u64>,
    /// Those sent of which it is not known what became, and when they are too old.
    undecided: BTreeMap<Place, i64>,
}

impl HintsFor {
    fn open(vfs: Arc<dyn Vfs>, owner: Identity, target: NodeId) -> trefoil::Result<HintsFor> {
        let options = LogOptions {
            directory: Path::new(DIRECTORY).join(target.0.to_string()),
            owner,
            target,
            segment_bytes: 8 << 10,
            bytes_max: 64 << 10,
            window_us: 60_000_000,
        };
        let log = HintLog::open(vfs, options)?;
        let delivery = Delivery::new(LIMITS, log.acknowledged());
        Ok(HintsFor { log, delivery, reach: Reach::Away, sent: BTreeMap::new(), undecided: BTreeMap::new() })
    }

    pub fn is_drained(&self) -> bool {
        self.log.pending_bytes() == 0
    }

    fn outcome(&mut self, place: Place, outcome: Outcome, now: Instant) {
        if self.sent.remove(&place).is_some() {
            if !matches!(outcome, Outcome::Lost | Outcome::NotNow) {
                self.undecided.remove(&place);
            }
            self.delivery.outcome(place, outcome, now);
        }
    }
}

/// Takes up what earlier runs have left.
pub fn open_all(vfs: &Arc<dyn Vfs>, owner: Identity) -> trefoil::Result<BTreeMap<NodeId, HintsFor>> {
    vfs.create_dir(&PathBuf::from(DIRECTORY))?;
    let nodes = targets(&**vfs, Path::new(DIRECTORY))?;
    nodes.into_iter().map(|node| Ok((node, HintsFor::open(vfs.clone(), owner, node)?))).collect()
}

impl Node {
    /// Keeps hints for whoever misses a write by now.
    pub fn keep_hints(&mut self, sim: &Sim, write: &mut Write) {
        let wall_us = self.wall_us(sim);
        for replica in indices(write.op.take_missed()) {
            let (target, owner) = (write.nodes[replica].node, self.identity(sim));
            let hint = Hint {
                written_at_us: wall_us,
                keyspace: write.slice.0,
                vnode: write.slice.1,
                record: write.record.clone(),
            };
            let vfs: Arc<dyn Vfs> = Arc::new(self.disk.clone());
            // A disk that fails keeps no hints: the hole is filled otherwise.
            let kept = match self.running().hints.entry(target) {
                Entry::Occupied(kept) => kept.into_mut(),
                Entry::Vacant(vacant) => match HintsFor::open(vfs, owner, target) {
                    Ok(opened) => vacant.insert(opened),
                    Err(_) => continue,
                },
            };
            kept.log.append(&[hint], wall_us);
        }
    }

    /// Sends what can be sent to whom it is for.
    pub fn deliver_hints(&mut self, sim: &mut Sim) {
        let (now_us, now) = (sim.now_us, Now { instant: Instant(sim.now_us), wall_us: self.wall_us(sim) });
        let own = self.id();
        let process = self.running();
        let (mut letters, mut forgotten) = (Vec::new(), None);
        for (node, target) in &mut process.hints {
            let is_reached = *node == own || process.liveness.is_alive(*node, now.instant);
            let reach = if is_reached { Reach::Alive } else { Reach::Away };
            if std::mem::replace(&mut target.reach, reach) != reach && reach == Reach::Alive {
                target.delivery.came_back();
            }
            let late: Vec<Place> =
                target.sent.iter().filter(|(_, until)| **until < now_us).map(|(at, _)| *at).collect();
            late.into_iter().for_each(|place| target.outcome(place, Outcome::Lost, now.instant));
            loop {
                match target.delivery.step(target.log.end(), reach, now) {
                    Step::Wait(_) => break,
                    Step::Send(place, hint) => {
                        target.sent.insert(place, now_us + TIMEOUT_US);
                        target.undecided.insert(place, hint.written_at_us + LIMITS.kept_us);
                        letters.push((*node, place, hint));
                    }
                    Step::Load(from, bytes) => match target.log.load(from, bytes) {
                        Ok(loaded) if loaded.next == from => break,
                        Ok(loaded) => target.delivery.loaded(loaded.hints, loaded.next),
                        Err(_) => break,
                    },
                }
            }
            let through = target.delivery.acknowledged();
            let done = target.undecided.range(..=through).find(|(_, until)| **until >= now.wall_us);
            forgotten = forgotten.or(done.map(|(place, _)| (*node, *place)));
            target.undecided.retain(|place, _| *place > through);
            let _ = target.log.acknowledge(through);
            let _ = target.log.sync();
            let _ = target.log.save();
        }
        if let Some((node, place)) = forgotten {
            sim.fail(format!("n{} takes a hint for {node} at {place:?} for delivered", self.at));
        }
        for (node, place, hint) in letters {
            sim.note(|| format!("n{} delivers a hint to {node}, {place:?}", self.at));
            if let Err(reason) = self.send_hint(sim, node, place, &hint) {
                self.on_hint_outcome(sim, node, place, Err(reason));
            }
        }
        self.timer(sim, LOOK_US, Timer::Hints);
    }

    fn send_hint(&mut self, sim: &mut Sim, node: NodeId, place: Place, hint: &Hint) -> Result<(), FailureReason> {
        let (record, placement) = (hint.record.clone(), sim.shape.ring.placement(hint.vnode));
        if node == self.id() {
            return self.take_hint(sim, record, placement, Ticket::OwnHint(place));
        }
        self.send(sim, place_of(node), Message::Hint { place, placement, record })
    }

    /// A hint comes: the same tests as for a write.
    pub fn take_hint(
        &mut self,
        sim: &mut Sim,
        record: Bytes,
        placement: u64,
        ticket: Ticket,
    ) -> Result<(), FailureReason> {
        let (record, durability) = self.check_write(sim, record, placement)?;
        let deadline_us = sim.now_us + TIMEOUT_US;
        self.submit(sim, Job { record, durability, deadline_us, ticket })
    }

    /// What became of a hint that was sent.
    pub fn on_hint_outcome(&mut self, sim: &mut Sim, node: NodeId, place: Place, outcome: Result<(), FailureReason>) {
        let outcome = match outcome {
            Ok(()) => {
                sim.count("hints delivered");
                Outcome::Acknowledged
            }
            Err(FailureReason::TooLate) => Outcome::TooLate,
            Err(FailureReason::Malformed) => Outcome::Unacceptable,
            Err(FailureReason::Disconnected | FailureReason::Expired) => Outcome::Lost,
            Err(_) => Outcome::NotNow,
        };
        if let Some(target) = self.running().hints.get_mut(&node) {
            target.outcome(place, outcome, Instant(sim.now_us));
        }
    }

    /// What was sent on a connection that is gone is sent again.
    pub fn hints_lost(&mut self, sim: &Sim, peer: usize) {
        let Some(target) = self.running().hints.get_mut(&node_id(peer)) else { return };
        let sent: Vec<Place> = target.sent.keys().copied().collect();
        sent.into_iter().for_each(|place| target.outcome(place, Outcome::Lost, Instant(sim.now_us)));
    }
}
