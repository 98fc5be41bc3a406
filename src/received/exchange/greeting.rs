//! What a node that starts is told about itself, and what it must have before it answers.
//!
//! ```text
//!  starting node          a peer, which may be starting itself
//!      ── greet ──────────►  remembered(n): what n told last; and the highest clock ever heard from n, from its disk
//!      ◄─ both, and its own report, whole ──
//!   lost(...) is not empty: the disk holds less than was told ──► withdraw these slices
//!   heard its report:       wanted = the names it holds that are not here ──► no reads of the slice until all are here
//! ```
//!
//! A data directory may be older than what its node said with it: a disk image was put back, a volume came from a
//! snapshot. Nothing on the disk itself tells; only those who listened know. So before a node names, accepts or answers
//! anything it greets every peer that it can reach, and at least one.
//!
//! A peer that is starting itself answers with what it remembers and without a report of its own: it does not know yet
//! whether it has what it told, and whoever heard of its new run would tell it a clock that its disk cannot know, which is
//! a loss where nothing was lost.

use super::{Exchange, Standing};
use crate::model::{NodeId, Stamp};
use crate::received::Slice;
use crate::received::report::{Report, SliceReport};
use crate::received::told::{Floors, Told};

impl Exchange {
    /// What `peer` told last, as a report of its own, if it told anything in this run.
    pub fn remembered(&self, peer: NodeId) -> Option<Report> {
        let known = self.peers.get(&peer)?;
        let slices = self.slices.iter().filter_map(|(slice, state)| Some((*slice, state.heard(peer)?.clone())));
        Some(Report {
            number: known.taken?,
            base: 0,
            acked: None,
            closed_through: known.closed?,
            slices: slices.collect(),
        })
    }

    /// What a peer's clock had reached for certain, by its reports: what is to be kept on disk for its next greeting. That it
    /// promises from a distance behind its clock is left out of account, since the distance is a setting that may change from run
    /// to run: a disk that is older by less than that lacks nothing that anybody has purged or forgotten.
    pub fn clock_of(&self, peer: NodeId) -> Option<Stamp> {
        let known = self.peers.get(&peer)?;
        let begun = Stamp(i64::try_from(known.newest?.incarnation).unwrap_or(i64::MAX));
        Some(begun.max(known.closed?))
    }

    /// Everything, for a peer that starts and has forgotten what it was told.
    pub fn report_for_greeting(&mut self, peer: NodeId) -> Report {
        if let Some(known) = self.peers.get_mut(&peer) {
            known.acked = 0;
        }
        self.report_for(peer)
    }

    /// The slices of which this node holds less than it told. `remembered`: what the greeted peer has of it; `clock`:
    /// the highest clock that the peer ever heard of it; `ceiling`: that of the clock, as found on the disk, above
    /// everything that its runs can have told.
    ///
    /// If the clock was ahead of the ceiling the disk is an older one, and everything counts as lost that was told to
    /// this peer.
    pub fn lost(&self, greeted: NodeId, remembered: Option<&Report>, clock: Stamp, ceiling: Stamp) -> Vec<Slice> {
        let set_back = clock > ceiling;
        let shared = self.slices.iter().filter(|(_, state)| state.others.contains(&greeted));
        let whole = shared.filter(|(_, state)| state.standing == Standing::Whole);
        let told = |slice: &Slice| -> Option<&SliceReport> {
            let slices = &remembered?.slices;
            Some(&slices[slices.binary_search_by_key(slice, |(slice, _)| *slice).ok()?].1)
        };
        let less = |slice: &Slice, placement: u64, own: &Told| {
            let told = told(slice).filter(|told| told.placement == placement).and_then(|told| told.told.as_ref());
            told.is_some_and(|told| !own.covers(told))
        };
        whole
            .filter(|(slice, state)| set_back || less(slice, state.placement, &state.own))
            .map(|(slice, _)| *slice)
            .collect()
    }

    /// The greeted peer's report has been taken in: what it holds of the slices and is missing here is wanted.
    pub fn want(&mut self, greeted: NodeId) {
        for state in self.slices.values_mut() {
            if let Some(told) = state.counted(greeted) {
                let lacking = state.own.lacks(told);
                state.wanted.union(&lacking);
            }
        }
    }

    /// The slices whose reads may not be answered yet.
    pub fn withheld(&self) -> Vec<Slice> {
        self.slices.keys().filter(|slice| !self.may_answer(**slice)).copied().collect()
    }

    /// What is settled of a slice, as it is told.
    pub fn floors(&self, slice: Slice) -> Floors {
        self.slices.get(&slice).map(|state| state.own.floors().clone()).unwrap_or_default()
    }

    /// Whether this replica may be counted: it has what it told, as far as anybody knows.
    pub fn is_whole(&self, slice: Slice) -> bool {
        self.slices.get(&slice).is_none_or(|state| state.standing == Standing::Whole)
    }

    /// Whether reads of a slice may be answered: everything that was wanted has come, and nothing is being rebuilt.
    pub fn may_answer(&self, slice: Slice) -> bool {
        self.slices.get(&slice).is_none_or(|state| state.standing == Standing::Whole && state.has_what_it_wanted())
    }
}
