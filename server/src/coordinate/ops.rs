//! What is under way on a lane.

use slab::Slab;
use trefoil::model::{Instant, NodeId};

use super::counting::Counting;
use super::forward::Forward;
use super::hinted::Hinted;
use super::read::ReadSession;
use super::served::Served;
use super::write::Write;

/// One thing under way.
pub(super) enum Op {
    /// A write that this node coordinates.
    Write(Box<Write>),
    /// A read that this node coordinates.
    Read(Box<ReadSession>),
    /// A request that was handed on.
    Forward(Box<Forward>),
    /// An addition to counters that waits for the own replica.
    Counting(Box<Counting>),
    /// Something that the own replica does for a peer.
    Served(Served),
    /// A hint on its way.
    Hint(Hinted),
    /// A read that is taking a step right now, on this lane's thread.
    Stepping,
}

impl Op {
    /// When something is to be done about it: its deadline, or before.
    fn due(&self) -> Option<Instant> {
        match self {
            Op::Write(write) => Some(write.due()),
            Op::Read(read) => Some(read.due()),
            Op::Forward(forward) => Some(forward.deadline()),
            Op::Counting(counting) => counting.deadline(),
            Op::Hint(hinted) => Some(hinted.deadline),
            // The own replica always completes.
            Op::Served(_) | Op::Stepping => None,
        }
    }

    fn waits_for(&self, node: NodeId) -> bool {
        match self {
            Op::Write(write) => write.waits_for(node),
            Op::Read(read) => read.waits_for(node),
            Op::Forward(forward) => forward.node == node,
            Op::Hint(hinted) => hinted.node == node,
            Op::Counting(_) | Op::Served(_) | Op::Stepping => false,
        }
    }
}

/// The slab of a lane. An id is a slot and the generation of its use.
#[derive(Default)]
pub(super) struct Ops {
    slots: Slab<(u32, Op)>,
    generation: u32,
}

impl Ops {
    /// Puts something under way and answers its id.
    pub(super) fn insert(&mut self, op: Op) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        let slot = self.slots.insert((self.generation, op));
        u64::from(self.generation) << 32 | slot as u64
    }

    /// The operation of an id; `None` if it is over.
    pub(super) fn get(&mut self, id: u64) -> Option<&mut Op> {
        let (generation, op) = self.slots.get_mut((id & 0xffff_ffff) as usize)?;
        (u64::from(*generation) == id >> 32).then_some(op)
    }

    /// Puts another operation in the place of an id and answers the one that was there.
    pub(super) fn replace(&mut self, id: u64, op: Op) -> Option<Op> {
        self.get(id).map(|place| std::mem::replace(place, op))
    }

    /// Takes the operation of an id out if it is of the kind that `pick` accepts.
    pub(super) fn remove_if(&mut self, id: u64, pick: impl FnOnce(&Op) -> bool) -> Option<Op> {
        self.get(id).filter(|op| pick(op))?;
        self.slots.try_remove((id & 0xffff_ffff) as usize).map(|(_, op)| op)
    }

    /// Takes the operation of an id out.
    pub(super) fn remove(&mut self, id: u64) -> Option<Op> {
        self.remove_if(id, |_| true)
    }

    /// Ids of what is due.
    pub(super) fn due(&self, now: Instant) -> Vec<u64> {
        self.ids(|op| op.due().is_some_and(|due| due <= now))
    }

    /// Ids of what waits for a node.
    pub(super) fn waiting_for(&self, node: NodeId) -> Vec<u64> {
        self.ids(|op| op.waits_for(node))
    }

    /// Ids of writes that this node coordinates.
    pub(super) fn ids_of_writes(&self) -> Vec<u64> {
        self.ids(|op| matches!(op, Op::Write(_)))
    }

    /// Whether nothing is under way for peers.
    pub(super) fn serves_nobody(&self) -> bool {
        !self.slots.iter().any(|(_, (_, op))| matches!(op, Op::Served(_)))
    }

    fn ids(&self, admit: impl Fn(&Op) -> bool) -> Vec<u64> {
        let admitted = self.slots.iter().filter(|(_, (_, op))| admit(op));
        admitted.map(|(slot, (generation, _))| u64::from(*generation) << 32 | slot as u64).collect()
    }
}
