//! One read command at one level, from the choice of replicas to an answer that cannot go back in time.
//!
//! ```text
//! ask the nearest replicas that meet the level ──► all pages equal ─────────────────────────────────► answer
//!        │ one fails: ask the next nearest             │ they differ
//!        ▼                                             ▼
//!   nobody left: Failed                 ask every other live replica in the level's scope
//!                                                      ▼
//!                              merge up to where the shortest page reaches ─► write back what each lacks
//!                                                                              ▼ the level is met by replicas
//!                                                                                that have all of it
//!                                                                            answer
//! ```
//!
//! Every replica of the scope that is alive is drawn in once answers differ: a quorum of (lost, stale) would else spread
//! the older value over the only copy of the newer one (B037). Replicas that already have everything count for the
//! repair without being written to (B115).

use std::sync::Arc;

use super::consistency::{ReplicaMask, Requirement, bit, indices};
use super::read_repair::{self, Difference};
use super::write::{FailureReason, Unavailable};
use crate::codec::EncodedRow;
use crate::model::{Fragment, Mutation, Page, PageEnd, ReadCommand};

/// What the shell is to do. Everything asked for is answered by an event, or by [`ReadOp::expire`].
#[derive(Debug)]
pub enum ReadAction {
    /// Ask this replica.
    Ask(usize),
    /// Write these back to this replica, as data without a name.
    Repair(usize, Vec<Mutation>),
    /// The read is over.
    Answer(Result<ReadAnswer, ReadError>),
}

/// What the replicas hold together, as far as `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadAnswer {
    /// Merged fragments, tombstones included.
    pub fragments: Vec<Fragment<EncodedRow>>,
    /// How far they reach.
    pub end: PageEnd,
    /// Whether the replicas differed.
    pub repaired: bool,
}

/// Why a read has no answer. Nothing was changed but for the better.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// The deadline passed.
    Timeout {
        /// Answers that the level demands.
        required: u32,
        /// Those that came (while repairing: replicas known to have everything).
        received: u32,
        /// Whether data had come and only its repair was missing.
        data_present: bool,
    },
    /// So many replicas failed that the level cannot be met.
    Failed {
        /// Answers that the level demands.
        required: u32,
        /// Those that came (while repairing: replicas known to have everything).
        received: u32,
        /// Who failed, and why.
        reasons: Vec<(usize, FailureReason)>,
    },
}

/// One read under way.
#[derive(Debug)]
pub struct ReadOp {
    command: Arc<ReadCommand>,
    requirement: Requirement,
    /// Live replicas in the level's scope, nearest first, that were not asked yet.
    spare: Vec<usize>,
    outstanding: ReplicaMask,
    pages: Vec<(usize, Page)>,
    failures: Vec<(usize, FailureReason)>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Waiting for as many pages as the level needs.
    Asking,
    /// Pages differed: waiting for every other live replica.
    Widening,
    /// Waiting until enough replicas have everything.
    Repairing {
        have: ReplicaMask,
        answer: ReadAnswer,
    },
    Over,
}

impl ReadOp {
    /// Begins a read. `alive` are the live replicas, nearest first.
    pub fn start(
        command: Arc<ReadCommand>,
        requirement: Requirement,
        alive: &[usize],
        out: &mut Vec<ReadAction>,
    ) -> Result<ReadOp, Unavailable> {
        let scope = requirement.scope();
        let mut spare: Vec<usize> = alive.iter().copied().filter(|replica| scope & bit(*replica) != 0).collect();
        let live = spare.iter().fold(0, |mask, replica| mask | bit(*replica));
        if !requirement.met_by(live) {
            return Err(Unavailable { required: requirement.required(), alive: requirement.counted(live) });
        }
        let first = requirement.choose(&spare, 0);
        spare.retain(|replica| first & bit(*replica) == 0);
        out.extend(indices(first).map(ReadAction::Ask));
        Ok(ReadOp {
            command,
            requirement,
            spare,
            outstanding: first,
            pages: Vec::new(),
            failures: Vec::new(),
            phase: Phase::Asking,
        })
    }

    /// The command that every replica is asked.
    pub fn command(&self) -> &Arc<ReadCommand> {
        &self.command
    }

    /// A replica answered.
    pub fn page(&mut self, replica: usize, page: Page, out: &mut Vec<ReadAction>) {
        if self.outstanding & bit(replica) == 0 || !matches!(self.phase, Phase::Asking | Phase::Widening) {
            return;
        }
        self.outstanding &= !bit(replica);
        self.pages.push((replica, page));
        self.advance(out);
    }

    /// A replica took what was written back to it.
    pub fn repaired(&mut self, replica: usize, out: &mut Vec<ReadAction>) {
        if let Phase::Repairing { have, .. } = &mut self.phase {
            *have |= bit(replica) & self.outstanding;
            self.outstanding &= !bit(replica);
            self.finish_repair(out);
        }
    }

    /// A replica could not do what it was asked, or nobody knows.
    pub fn fail(&mut self, replica: usize, reason: FailureReason, out: &mut Vec<ReadAction>) {
        if self.outstanding & bit(replica) == 0 {
            return;
        }
        self.outstanding &= !bit(replica);
        self.failures.push((replica, reason));
        match self.phase {
            Phase::Asking => {
                self.replace_failed(out);
                self.advance(out);
            }
            Phase::Widening => self.advance(out),
            Phase::Repairing { .. } => self.finish_repair(out),
            Phase::Over => {}
        }
    }

    /// The deadline has passed.
    pub fn expire(&mut self, out: &mut Vec<ReadAction>) {
        let (received, data_present) = match &self.phase {
            Phase::Over => return,
            Phase::Repairing { have, .. } => (self.requirement.counted(*have), true),
            Phase::Asking | Phase::Widening => (self.requirement.counted(self.answered()), !self.pages.is_empty()),
        };
        self.phase = Phase::Over;
        let required = self.requirement.required();
        out.push(ReadAction::Answer(Err(ReadError::Timeout { required, received, data_present })));
    }

    fn answered(&self) -> ReplicaMask {
        self.pages.iter().fold(0, |mask, (replica, _)| mask | bit(*replica))
    }

    /// Asks the next nearest replicas in place of those that failed.
    fn replace_failed(&mut self, out: &mut Vec<ReadAction>) {
        let more = self.requirement.choose(&self.spare, self.answered() | self.outstanding);
        self.spare.retain(|replica| more & bit(*replica) == 0);
        self.outstanding |= more;
        out.extend(indices(more).map(ReadAction::Ask));
    }

    /// Goes on once nothing is outstanding.
    fn advance(&mut self, out: &mut Vec<ReadAction>) {
        if self.outstanding != 0 {
            if !self.requirement.met_by(self.answered() | self.outstanding) {
                self.give_up(self.requirement.counted(self.answered()), out);
            }
            return;
        }
        if !self.requirement.met_by(self.answered()) {
            self.give_up(self.requirement.counted(self.answered()), out);
        } else if self.pages.windows(2).all(|pair| pair[0].1 == pair[1].1) {
            self.answer_equal(out);
        } else if matches!(self.phase, Phase::Asking) && !self.spare.is_empty() {
            self.phase = Phase::Widening;
            for replica in std::mem::take(&mut self.spare) {
                self.outstanding |= bit(replica);
                out.push(ReadAction::Ask(replica));
            }
        } else {
            self.merge(out);
        }
    }

    /// All pages are the same bytes: one of them is the answer.
    fn answer_equal(&mut self, out: &mut Vec<ReadAction>) {
        match read_repair::decode(&self.pages[0].1, &self.command) {
            Ok(fragments) => {
                let end = self.pages[0].1.end.clone();
                self.phase = Phase::Over;
                out.push(ReadAction::Answer(Ok(ReadAnswer { fragments, end, repaired: false })));
            }
            Err(_) => {
                for (replica, _) in std::mem::take(&mut self.pages) {
                    self.failures.push((replica, FailureReason::Malformed));
                }
                self.replace_failed(out);
                self.advance(out);
            }
        }
    }

    /// Pages differ: merge them, and write back what each replica lacks.
    fn merge(&mut self, out: &mut Vec<ReadAction>) {
        match read_repair::merge(&self.command, &self.pages) {
            Ok(merged) => {
                let lacking = merged.differences.iter().fold(0, |mask, difference| mask | bit(difference.replica));
                let answer = ReadAnswer { fragments: merged.fragments, end: merged.end, repaired: lacking != 0 };
                self.outstanding = lacking;
                self.phase = Phase::Repairing { have: self.answered() & !lacking, answer };
                for Difference { replica, mutations } in merged.differences {
                    out.push(ReadAction::Repair(replica, mutations));
                }
                self.finish_repair(out);
            }
            Err(broken) => {
                self.pages.retain(|(replica, _)| *replica != broken);
                self.failures.push((broken, FailureReason::Malformed));
                self.advance(out);
            }
        }
    }

    /// Answers once enough replicas have everything, or cannot have it any more.
    fn finish_repair(&mut self, out: &mut Vec<ReadAction>) {
        let Phase::Repairing { have, answer } = &mut self.phase else { return };
        if self.requirement.met_by(*have) {
            let answer = ReadAnswer {
                fragments: std::mem::take(&mut answer.fragments),
                end: answer.end.clone(),
                repaired: answer.repaired,
            };
            self.phase = Phase::Over;
            out.push(ReadAction::Answer(Ok(answer)));
        } else if !self.requirement.met_by(*have | self.outstanding) {
            let received = self.requirement.counted(*have);
            self.give_up(received, out);
        }
    }

    fn give_up(&mut self, received: u32, out: &mut Vec<ReadAction>) {
        self.phase = Phase::Over;
        out.push(ReadAction::Answer(Err(ReadError::Failed {
            required: self.requirement.required(),
            received,
            reasons: self.failures.clone(),
        })));
    }
}
