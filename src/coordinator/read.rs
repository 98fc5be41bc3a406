//! One read command at one level, from the choice of replicas to an answer that cannot go back in time.
//!
//! ```text
//! a page of the best replica, digests of as many others as the level needs ──► all say the same ──────► answer
//!        │ one fails, or is slow: ask the next best      │ they differ
//!        ▼                                               ▼
//!   nobody left: Failed                 ask every live replica in the level's scope for its page
//!                                                        ▼
//!                              merge up to where the shortest page reaches ─► write back what each lacks
//!                                                                              ▼ the level is met by replicas
//!                                                                                that have all of it
//!                                                                            answer
//! ```
//!
//! Every replica of the scope that is alive is drawn in once answers differ: a quorum of (lost, stale) would else spread
//! the older value over the only copy of the newer one (B037). Replicas that already have everything count for the
//! repair without being written to (B115). A replica that stays silent then is not waited for to the deadline: once
//! [`ReadOp::settle`] says that it took long enough, those that did answer are merged if they meet the level, which is
//! all that a quorum's promise needs.

use std::sync::Arc;

use super::consistency::{ReplicaMask, Requirement, bit, indices};
use super::digest::{Digest, Unseen, digest};
use super::read_repair::{self, Difference};
use super::write::{FailureReason, Unavailable};
use crate::codec::EncodedRow;
use crate::model::{Fragment, Mutation, Page, PageEnd, ReadCommand, Timestamp};

/// What a replica is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Its page.
    Page,
    /// The digest of its page; the page does as well.
    Digest,
}

/// What the shell is to do. Everything asked for is answered by an event, or by [`ReadOp::expire`].
#[derive(Debug)]
pub enum ReadAction {
    /// Ask this replica.
    Ask(usize, Want),
    /// Write these back to this replica, as data without a name.
    Repair(usize, Vec<Mutation>),
    /// The read is over.
    Answer(Result<ReadAnswer, ReadError>),
}

/// What a read waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// As many answers as the level needs.
    Answers,
    /// The pages of every live replica, since answers differ.
    Pages,
    /// That enough replicas have taken what they lacked.
    Repairs,
    /// Nothing: it is over.
    Nothing,
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
    unseen: Unseen,
    /// The live replicas in the level's scope, best first.
    order: Vec<usize>,
    /// Those that were asked for anything yet.
    asked: ReplicaMask,
    /// Those that owe a page.
    owe_page: ReplicaMask,
    /// Those that owe a digest.
    owe_digest: ReplicaMask,
    /// Those that were written to and have not acknowledged.
    owe_repair: ReplicaMask,
    pages: Vec<(usize, Page)>,
    /// The first page decoded, and its digest, once it was compared with another answer.
    decoded: Option<(Vec<Fragment<EncodedRow>>, Digest)>,
    digests: Vec<(usize, Digest)>,
    failures: Vec<(usize, FailureReason)>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Waiting for a page and as many digests as the level needs.
    Asking,
    /// Answers differed: waiting for the pages of every other live replica.
    Widening,
    /// Waiting until enough replicas have everything.
    Repairing {
        have: ReplicaMask,
        answer: ReadAnswer,
    },
    Over,
}

impl ReadOp {
    /// Begins a read. `alive` are the live replicas, best first. Deletions with timestamps before `below`, a bound below
    /// which all replicas are known to have the same, do not make digests differ.
    pub fn start(
        command: Arc<ReadCommand>,
        requirement: Requirement,
        alive: &[usize],
        below: Option<Timestamp>,
        out: &mut Vec<ReadAction>,
    ) -> Result<ReadOp, Unavailable> {
        let scope = requirement.scope();
        let order: Vec<usize> = alive.iter().copied().filter(|replica| scope & bit(*replica) != 0).collect();
        let live = order.iter().fold(0, |mask, replica| mask | bit(*replica));
        if !requirement.met_by(live) {
            return Err(Unavailable { required: requirement.required(), alive: requirement.counted(live) });
        }
        let unseen = Unseen { now_s: command.now_s, below };
        let mut op = ReadOp {
            command,
            requirement,
            unseen,
            order,
            asked: 0,
            owe_page: 0,
            owe_digest: 0,
            owe_repair: 0,
            pages: Vec::new(),
            decoded: None,
            digests: Vec::new(),
            failures: Vec::new(),
            phase: Phase::Asking,
        };
        op.ask_enough(out);
        Ok(op)
    }

    /// The command that every replica is asked.
    pub fn command(&self) -> &Arc<ReadCommand> {
        &self.command
    }

    /// What does not show in the digests that replicas are asked for.
    pub fn unseen(&self) -> Unseen {
        self.unseen
    }

    /// What the read waits for.
    pub fn waiting(&self) -> Waiting {
        match self.phase {
            Phase::Asking => Waiting::Answers,
            Phase::Widening => Waiting::Pages,
            Phase::Repairing { .. } => Waiting::Repairs,
            Phase::Over => Waiting::Nothing,
        }
    }

    /// The replicas of which an answer is still due.
    pub fn outstanding(&self) -> ReplicaMask {
        self.owe_page | self.owe_digest
    }

    /// A replica answered its page.
    pub fn page(&mut self, replica: usize, page: Page, out: &mut Vec<ReadAction>) {
        let is_due = self.outstanding() & bit(replica) != 0;
        if !is_due || !matches!(self.phase, Phase::Asking | Phase::Widening) {
            return;
        }
        self.owe_page &= !bit(replica);
        self.owe_digest &= !bit(replica);
        self.digests.retain(|(other, _)| *other != replica);
        self.pages.push((replica, page));
        self.advance(out);
    }

    /// A replica answered the digest of its page.
    pub fn digest(&mut self, replica: usize, digest: Digest, out: &mut Vec<ReadAction>) {
        if self.owe_digest & bit(replica) == 0 {
            return;
        }
        self.owe_digest &= !bit(replica);
        if matches!(self.phase, Phase::Asking) {
            self.digests.push((replica, digest));
            self.advance(out);
        }
    }

    /// A replica took what was written back to it.
    pub fn repaired(&mut self, replica: usize, out: &mut Vec<ReadAction>) {
        if let Phase::Repairing { have, .. } = &mut self.phase {
            *have |= bit(replica) & self.owe_repair;
            self.owe_repair &= !bit(replica);
            self.finish_repair(out);
        }
    }

    /// A replica could not do what it was asked, or nobody knows.
    pub fn fail(&mut self, replica: usize, reason: FailureReason, out: &mut Vec<ReadAction>) {
        if (self.outstanding() | self.owe_repair) & bit(replica) == 0 {
            return;
        }
        self.owe_page &= !bit(replica);
        self.owe_digest &= !bit(replica);
        let owed_repair = self.owe_repair & bit(replica) != 0;
        self.owe_repair &= !bit(replica);
        match self.phase {
            Phase::Asking | Phase::Widening => {
                self.failures.push((replica, reason));
                self.advance(out);
            }
            Phase::Repairing { .. } if owed_repair => {
                self.failures.push((replica, reason));
                self.finish_repair(out);
            }
            Phase::Repairing { .. } | Phase::Over => {}
        }
    }

    /// The answers are slower than usual: asks one replica more, if one could stand in for those that are due, and
    /// answers which.
    pub fn speculate(&mut self, out: &mut Vec<ReadAction>) -> Option<usize> {
        let next = self.stand_in()?;
        let want = if self.pages.is_empty() { Want::Page } else { Want::Digest };
        self.ask(next, want, out);
        Some(next)
    }

    /// Whether [`ReadOp::speculate`] would ask anybody.
    pub fn can_speculate(&self) -> bool {
        self.stand_in().is_some()
    }

    fn stand_in(&self) -> Option<usize> {
        if !matches!(self.phase, Phase::Asking) {
            return None;
        }
        let answered = self.answered();
        let counted = |replicas| self.requirement.counted(replicas);
        self.unasked().find(|replica| counted(answered | bit(*replica)) > counted(answered))
    }

    /// Those that owe their page have had time enough: goes on without them if the level is met.
    pub fn settle(&mut self, out: &mut Vec<ReadAction>) {
        if matches!(self.phase, Phase::Widening) && self.requirement.met_by(self.paged()) {
            self.merge(out);
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

    fn paged(&self) -> ReplicaMask {
        self.pages.iter().fold(0, |mask, (replica, _)| mask | bit(*replica))
    }

    fn answered(&self) -> ReplicaMask {
        self.digests.iter().fold(self.paged(), |mask, (replica, _)| mask | bit(*replica))
    }

    /// Replicas that were not asked yet, best first.
    fn unasked(&self) -> impl Iterator<Item = usize> {
        self.order.iter().copied().filter(|replica| self.asked & bit(*replica) == 0)
    }

    fn has_failed(&self, replica: usize) -> bool {
        self.failures.iter().any(|(failed, _)| *failed == replica)
    }

    fn ask(&mut self, replica: usize, want: Want, out: &mut Vec<ReadAction>) {
        self.asked |= bit(replica);
        match want {
            Want::Page => self.owe_page |= bit(replica),
            Want::Digest => self.owe_digest |= bit(replica),
        }
        out.push(ReadAction::Ask(replica, want));
    }

    /// Asks as many replicas as the level needs beside those that answered or are to, one of them for its page.
    fn ask_enough(&mut self, out: &mut Vec<ReadAction>) {
        let unasked: Vec<usize> = self.unasked().collect();
        let more = self.requirement.choose(&unasked, self.answered() | self.outstanding());
        let mut page_of = None;
        if self.pages.is_empty() && self.owe_page == 0 {
            // Where nobody else is left, a replica of which the digest is known or due is asked for its page as well.
            let candidates = if more != 0 { more } else { self.answered() | self.outstanding() };
            let may_have_it = |replica: &usize| candidates & bit(*replica) != 0 && !self.has_failed(*replica);
            page_of = self.order.iter().copied().find(may_have_it);
        }
        if let Some(replica) = page_of {
            self.ask(replica, Want::Page, out);
        }
        indices(more)
            .filter(|replica| Some(*replica) != page_of)
            .for_each(|replica| self.ask(replica, Want::Digest, out));
    }

    /// Goes on after an answer or a failure.
    fn advance(&mut self, out: &mut Vec<ReadAction>) {
        match self.phase {
            Phase::Asking => {
                self.ask_enough(out);
                self.compare(out);
            }
            Phase::Widening if self.owe_page == 0 && self.requirement.met_by(self.paged()) => self.merge(out),
            Phase::Widening if !self.requirement.met_by(self.paged() | self.owe_page) => self.give_up(out),
            Phase::Widening | Phase::Repairing { .. } | Phase::Over => {}
        }
    }

    /// Compares what has come: one that differs is enough to widen, and as many as the level needs to answer.
    fn compare(&mut self, out: &mut Vec<ReadAction>) {
        let answered = self.answered();
        if !self.requirement.met_by(answered | self.outstanding()) || (self.pages.is_empty() && self.owe_page == 0) {
            return self.give_up(out);
        }
        if self.pages.is_empty() || (answered.count_ones() == 1 && !self.requirement.met_by(answered)) {
            return;
        }
        match self.all_equal() {
            Err(broken) => self.drop_broken(broken, out),
            Ok(false) => self.widen(out),
            Ok(true) if self.requirement.met_by(answered) => self.answer_equal(out),
            Ok(true) => {}
        }
    }

    /// Whether every answer says the same. `Err`: what this replica sent means nothing.
    fn all_equal(&mut self) -> Result<bool, usize> {
        let (first, page) = &self.pages[0];
        if self.digests.is_empty() && self.pages.iter().all(|(_, other)| other == page) {
            return Ok(true);
        }
        let own = match self.decoded {
            Some((_, own)) => own,
            None => {
                // It is looked at before it is compared: bytes that mean nothing have no digest.
                let fragments = read_repair::decode(page, &self.command).map_err(|_| *first)?;
                let own = digest(page, self.unseen).map_err(|_| *first)?;
                self.decoded = Some((fragments, own));
                own
            }
        };
        for (replica, page) in &self.pages[1..] {
            read_repair::decode(page, &self.command).map_err(|_| *replica)?;
            if digest(page, self.unseen).map_err(|_| *replica)? != own {
                return Ok(false);
            }
        }
        Ok(self.digests.iter().all(|(_, digest)| *digest == own))
    }

    /// What a replica sent means nothing: it has failed.
    fn drop_broken(&mut self, broken: usize, out: &mut Vec<ReadAction>) {
        self.pages.retain(|(replica, _)| *replica != broken);
        self.decoded = None;
        self.failures.push((broken, FailureReason::Malformed));
        self.advance(out);
    }

    /// Answers differ: every live replica's page is wanted.
    fn widen(&mut self, out: &mut Vec<ReadAction>) {
        self.phase = Phase::Widening;
        let known = self.paged() | self.owe_page;
        for replica in self.order.clone() {
            if known & bit(replica) == 0 && !self.has_failed(replica) {
                self.ask(replica, Want::Page, out);
            }
        }
        self.digests.clear();
        self.advance(out);
    }

    /// All answers say the same: the first page is the answer.
    fn answer_equal(&mut self, out: &mut Vec<ReadAction>) {
        let (replica, page) = &self.pages[0];
        let decoded = self.decoded.take().map(|(fragments, _)| Ok(fragments));
        match decoded.unwrap_or_else(|| read_repair::decode(page, &self.command)) {
            Ok(fragments) => {
                let end = page.end.clone();
                self.phase = Phase::Over;
                out.push(ReadAction::Answer(Ok(ReadAnswer { fragments, end, repaired: false })));
            }
            Err(_) => self.drop_broken(*replica, out),
        }
    }

    /// Pages differ: merge them, and write back what each replica lacks.
    fn merge(&mut self, out: &mut Vec<ReadAction>) {
        match read_repair::merge(&self.command, &self.pages) {
            Ok(merged) => {
                let lacking = merged.differences.iter().fold(0, |mask, difference| mask | bit(difference.replica));
                let answer = ReadAnswer { fragments: merged.fragments, end: merged.end, repaired: lacking != 0 };
                self.owe_repair = lacking;
                self.phase = Phase::Repairing { have: self.paged() & !lacking, answer };
                for Difference { replica, mutations } in merged.differences {
                    out.push(ReadAction::Repair(replica, mutations));
                }
                self.finish_repair(out);
            }
            Err(broken) => self.drop_broken(broken, out),
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
        } else if !self.requirement.met_by(*have | self.owe_repair) {
            self.give_up(out);
        }
    }

    /// So many have failed that the level cannot be met.
    fn give_up(&mut self, out: &mut Vec<ReadAction>) {
        let had = if let Phase::Repairing { have, .. } = self.phase { have } else { self.answered() };
        let received = self.requirement.counted(had);
        self.phase = Phase::Over;
        out.push(ReadAction::Answer(Err(ReadError::Failed {
            required: self.requirement.required(),
            received,
            reasons: self.failures.clone(),
        })));
    }
}
