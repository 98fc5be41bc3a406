//! Replicas and the shell around [`ReadOp`] in its smallest form: every action is carried out at once, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::RngExt;
use rand::rngs::StdRng;

use super::replica::Replica;
use crate::coordinator::{
    Consistency, FailureReason, ReadAction, ReadAnswer, ReadError, ReadOp, ReplicaMask, Requirement, Unavailable, Want,
    digest, indices,
};
use crate::model::naive::TABLE;
use crate::model::{Direction, Mutation, Page, PageEnd, ReadCommand, Slice, Target, Timestamp, TokenRange};

/// What is wrong with a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fault {
    #[default]
    None,
    /// Known to be dead.
    Dead,
    /// Fails whatever it is asked.
    Fails,
    /// Reads, but has no room for writes.
    RefusesWrites,
    /// Answers bytes that mean nothing.
    Malformed,
    /// Answers nothing.
    Silent,
}

/// The replicas of all partitions, and the coordinator beside replica 0.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) replicas: Vec<Replica>,
    pub(super) faults: Vec<Fault>,
    /// Region of each replica; the coordinator is in region 0.
    pub(super) regions: Vec<u16>,
    /// Whom the coordinator was told is nearest.
    pub(super) nearest_first: Vec<usize>,
    /// Below which deletions do not show in digests.
    pub(super) below: Option<Timestamp>,
    /// In what order things happen; `None`: as they were asked for.
    pub(super) mix: Option<StdRng>,
    /// What happened, a word and a replica each.
    pub(super) log: Vec<String>,
}

impl Cluster {
    /// A region of three.
    pub(super) fn of_three() -> Cluster {
        Cluster::of_regions(&[0, 0, 0])
    }

    pub(super) fn of_regions(regions: &[u16]) -> Cluster {
        Cluster {
            replicas: vec![Replica::default(); regions.len()],
            faults: vec![Fault::None; regions.len()],
            regions: regions.to_vec(),
            nearest_first: (0..regions.len()).collect(),
            below: None,
            mix: None,
            log: Vec::new(),
        }
    }

    /// Tells the replicas of a mask.
    pub(super) fn write(&mut self, mask: ReplicaMask, mutation: &Mutation) {
        indices(mask).for_each(|replica| self.replicas[replica].apply(mutation));
    }

    /// Runs one command to its end. Whoever is told nothing more by then runs into the deadline.
    pub(super) fn execute(
        &mut self,
        command: ReadCommand,
        level: Consistency,
    ) -> Result<Result<ReadAnswer, ReadError>, Unavailable> {
        let requirement = Requirement::new(level, &self.regions, 0);
        let alive: Vec<usize> =
            self.nearest_first.iter().copied().filter(|replica| self.faults[*replica] != Fault::Dead).collect();
        let mut actions = Vec::new();
        let mut op = ReadOp::start(Arc::new(command), requirement, &alive, self.below, &mut actions)?;
        let mut queue = VecDeque::from(actions);
        let mut answer = None;
        let mut has_settled = false;
        loop {
            let mut out = Vec::new();
            if let Some(mix) = &mut self.mix {
                // What is under way comes in any order, and the shell may find that it takes long at any time.
                let turn = mix.random_range(0..queue.len().max(1));
                queue.rotate_left(turn);
                match mix.random_range(0..8) {
                    0 => drop(op.speculate(&mut out)),
                    1 => op.settle(&mut out),
                    _ => {}
                }
            }
            queue.extend(out.drain(..));
            let Some(action) = queue.pop_front() else {
                if std::mem::replace(&mut has_settled, true) {
                    break;
                }
                op.settle(&mut out);
                if !out.is_empty() {
                    self.log.push("settle".to_owned());
                }
                queue.extend(out);
                continue;
            };
            match action {
                ReadAction::Ask(replica, want) => self.ask(&mut op, replica, want, &mut out),
                ReadAction::Repair(replica, mutations) => self.repair(&mut op, replica, &mutations, &mut out),
                ReadAction::Answer(result) => assert!(answer.replace(result).is_none(), "a read is answered once"),
            }
            queue.extend(out);
        }
        let mut out = Vec::new();
        op.expire(&mut out);
        match (answer, out.pop()) {
            (Some(answer), None) => Ok(answer),
            (None, Some(ReadAction::Answer(late))) => Ok(late),
            other => panic!("answered twice, or never: {other:?}"),
        }
    }

    fn ask(&mut self, op: &mut ReadOp, replica: usize, want: Want, out: &mut Vec<ReadAction>) {
        let word = if want == Want::Page { "ask" } else { "digest" };
        self.log.push(format!("{word} {replica}"));
        match self.faults[replica] {
            Fault::Dead => panic!("a dead replica was asked"),
            Fault::Fails => op.fail(replica, FailureReason::Disconnected, out),
            Fault::Silent => {}
            Fault::Malformed => {
                op.page(replica, Page { entries: vec![0xee].into(), end: PageEnd::Complete }, out);
            }
            Fault::None | Fault::RefusesWrites => {
                let page = self.replicas[replica].read(op.command());
                match want {
                    Want::Page => op.page(replica, page, out),
                    Want::Digest => op.digest(replica, digest(&page, op.unseen()).unwrap(), out),
                }
            }
        }
    }

    fn repair(&mut self, op: &mut ReadOp, replica: usize, mutations: &[Mutation], out: &mut Vec<ReadAction>) {
        self.log.push(format!("repair {replica}"));
        if self.faults[replica] == Fault::RefusesWrites {
            return op.fail(replica, FailureReason::Storage, out);
        }
        mutations.iter().for_each(|mutation| self.replicas[replica].apply(mutation));
        op.repaired(replica, out);
    }

    pub(super) fn holds_the_same_everywhere(&self) -> bool {
        self.replicas.windows(2).all(|pair| pair[0].everything() == pair[1].everything())
    }
}

/// A read of everything, to be narrowed.
pub(super) fn whole_table() -> ReadCommand {
    ReadCommand {
        table: TABLE,
        target: Target::Scan(TokenRange::ALL),
        slices: vec![Slice::all()],
        direction: Direction::Forward,
        after: None,
        now_s: 100,
        limit_rows: u32::MAX,
        limit_bytes: u32::MAX,
    }
}
