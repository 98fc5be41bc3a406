//! What is known of one slice: own names, what each other replica told, and up to where all of them are equal.
//!
//! ```text
//!   Unheard ──every other replica told under the present placement──► Equal     reconciled = the lowest closed_through
//!                                                                     │   ▲     of all replicas, and rises with it
//!                                              a set grows: candidate ▼   │ all sets are equal
//!                                                                    Waiting    reconciled stands, until every set
//!                                                                     └───┘     has the candidate's names
//! ```
//!
//! A *candidate* is `(s, names)`: s, the lowest closed_through of all replicas at one moment, and the union of what
//! they had told then. By their promises a name stamped s or before that is not in the union is void: nobody told it,
//! and nobody will take it any more. So once all have the union, all mutations up to s are everywhere, whatever came
//! since. No stamp need be kept for that; the names younger than s that the union holds only make it wait for longer.

use std::borrow::Cow;

use crate::model::{Instant, MutationName, NodeId, Stamp};
use crate::received::ReceivedSet;
use crate::received::report::SliceReport;
use crate::received::told::{Floors, Reconciled, Told};

/// One slice, as one of its replicas sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct SliceState {
    /// The number of the placement in force; 0 before it is known.
    pub(super) placement: u64,
    /// The other replicas: serving, pending, and old owners that have not let go.
    pub(super) others: Vec<NodeId>,
    /// What this replica has, with the floors that its manifest has saved.
    pub(super) own: Told,
    /// Whether this replica may be counted.
    pub(super) standing: Standing,
    /// The number of the first report that lists what is above.
    pub(super) changed: u64,
    /// What the manifest has.
    pub(super) saved: Reconciled,
    /// What stamped so or before arrives is not applied, as deletions so old may be gone.
    pub(super) purged: Stamp,
    /// How many sessions forbid that `purged` rises.
    pub(super) pins: u32,
    /// Names without which nothing is answered: those that the peers held that were greeted at the start.
    pub(super) wanted: ReceivedSet,
    heard: Vec<(NodeId, SliceReport)>,
    /// Everything stamped so or before is in all replicas; more, while all sets are equal.
    through: Stamp,
    phase: Phase,
    /// Names that others told, all of them lacking here since then; later ones are looked at when these have come.
    missing: Option<(ReceivedSet, Instant)>,
}

/// Whether a replica has what it should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    /// As far as anybody knows.
    #[default]
    Whole,
    /// It lost something, or has not got everything yet: it tells nothing, and holds back whoever counts on it.
    Rebuilt,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Unheard,
    Equal,
    Waiting(Candidate),
}

/// What must be everywhere before `through` is reconciled.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    through: Stamp,
    names: ReceivedSet,
}

impl SliceState {
    /// What the manifest had when the node started. Nothing is known of the others yet.
    pub(super) fn restored(set: ReceivedSet, reconciled: Reconciled, purged: Stamp) -> SliceState {
        let own = Told::new(set, reconciled.floors.clone());
        SliceState { own, through: reconciled.through, saved: reconciled, purged, ..SliceState::default() }
    }

    /// Up to which stamp everything is in all replicas. `low`: the lowest closed_through of all of them.
    pub(super) fn through(&self, low: Stamp) -> Stamp {
        match self.phase {
            Phase::Equal => self.through.max(low),
            Phase::Unheard | Phase::Waiting(_) => self.through,
        }
    }

    /// Holds fast what is reconciled, before anything changes on which it rests.
    pub(super) fn freeze(&mut self, low: Stamp) {
        self.through = self.through(low);
        if self.phase == Phase::Equal {
            self.phase = Phase::Unheard;
        }
    }

    /// Other owners, or others whose word counts. What was told under another placement counts no more, but a peer that
    /// knows the new one already may have told under it.
    pub(super) fn place(&mut self, placement: u64, others: Vec<NodeId>) {
        self.placement = placement;
        self.heard.retain(|(node, _)| others.contains(node));
        self.others = others;
        self.phase = Phase::Unheard;
    }

    /// This replica tells nothing any more, or again.
    pub(super) fn stand(&mut self, standing: Standing) {
        self.standing = standing;
        self.phase = Phase::Unheard;
    }

    /// Another replica told this.
    pub(super) fn hear(&mut self, from: NodeId, report: SliceReport) {
        match self.heard.iter_mut().find(|(node, _)| *node == from) {
            Some((_, heard)) => *heard = report,
            None => self.heard.push((from, report)),
        }
    }

    /// What another replica told does not hold any more; whether it had told anything.
    pub(super) fn unhear(&mut self, from: NodeId) -> bool {
        let before = self.heard.len();
        self.heard.retain(|(node, _)| *node != from);
        self.heard.len() < before
    }

    /// What a node told last, under whatever placement.
    pub(super) fn heard(&self, from: NodeId) -> Option<&SliceReport> {
        self.heard.iter().find(|(node, _)| *node == from).map(|(_, heard)| heard)
    }

    /// What a node told, if it counts.
    pub(super) fn counted(&self, from: NodeId) -> Option<&Told> {
        self.heard(from).filter(|heard| heard.placement == self.placement)?.told.as_ref()
    }

    /// Whether another replica has told a name.
    pub(super) fn is_told(&self, name: MutationName) -> bool {
        self.others.iter().filter_map(|other| self.counted(*other)).any(|told| told.lists(name))
    }

    /// Decides anew, after something changed. `low`: the lowest closed_through of all replicas.
    pub(super) fn evaluate(&mut self, low: Stamp, now: Instant) {
        self.look_for_holes(now);
        let floors = self.floors();
        let phase = std::mem::take(&mut self.phase);
        let Some(sets) = self.sets(&floors) else { return };
        let mut reached = None;
        if let Phase::Waiting(mut candidate) = phase {
            floors.settle(&mut candidate.names);
            if !sets.iter().all(|set| set.covers(&candidate.names)) {
                self.phase = Phase::Waiting(candidate);
                return;
            }
            reached = Some(candidate.through);
        }
        self.phase = if sets.windows(2).all(|pair| pair[0] == pair[1]) {
            Phase::Equal
        } else {
            let mut names = ReceivedSet::default();
            sets.iter().for_each(|set| names.union(set));
            Phase::Waiting(Candidate { through: low, names })
        };
        self.through = self.through.max(reached.unwrap_or(self.through));
    }

    /// What every replica has told that is not settled, this one first; none if one has told nothing, or may not.
    fn sets(&self, floors: &Floors) -> Option<Vec<Cow<'_, ReceivedSet>>> {
        if self.placement == 0 || self.standing != Standing::Whole {
            return None;
        }
        let told = std::iter::once(Some(&self.own)).chain(self.others.iter().map(|other| self.counted(*other)));
        told.map(|told| Some(told?.above(floors))).collect()
    }

    /// The highest floors that anybody told who counts. Whoever tells anything is whole, and for such a one they hold.
    fn floors(&self) -> Floors {
        let mut floors = self.own.floors().clone();
        self.others.iter().filter_map(|other| self.counted(*other)).for_each(|told| floors.join(told.floors()));
        floors
    }

    /// What the manifest may be told: `through`, and the floors that follow from it and from what others say. `latest`:
    /// the latest run known of an origin.
    pub(super) fn reconciled(&self, low: Stamp, latest: impl Fn(NodeId) -> u64) -> Reconciled {
        let through = self.through(low);
        if self.standing != Standing::Whole {
            return Reconciled { through, floors: self.own.floors().clone() };
        }
        let mut floors = self.floors();
        let below = u64::try_from(through.0).unwrap_or(0);
        let mut earlier: Option<NodeId> = None;
        for (origin, incarnation, _) in self.own.set().runs() {
            if earlier == Some(origin) && incarnation <= below {
                floors.raise(origin, incarnation);
            }
            if incarnation < latest(origin) && latest(origin) <= below {
                floors.raise(origin, latest(origin));
            }
            earlier = Some(origin);
        }
        Reconciled { through, floors }
    }

    /// While mutations come there is always one on its way. A hole is what was missing, and is missing still.
    fn look_for_holes(&mut self, now: Instant) {
        if self.has_what_it_wanted() {
            self.wanted = ReceivedSet::default();
        }
        let mut lacking = ReceivedSet::default();
        self.holes().iter().for_each(|(_, names)| lacking.union(names));
        let still = self.missing.take().map(|(missing, since)| (missing.intersection(&lacking), since));
        let still = still.filter(|(missing, _)| !missing.is_empty());
        self.missing = still.or_else(|| (!lacking.is_empty()).then_some((lacking, now)));
    }

    /// Whether everything is here that the greeted peers held; what is settled is.
    pub(super) fn has_what_it_wanted(&self) -> bool {
        self.wanted.is_empty() || self.own.lacks(&Told::new(self.wanted.clone(), Floors::default())).is_empty()
    }

    /// Since when this replica has lacked something that others have told.
    pub(super) fn behind_since(&self) -> Option<Instant> {
        self.missing.as_ref().map(|(_, since)| *since)
    }

    /// The names that others have told and this replica lacks, by who has them.
    pub(super) fn holes(&self) -> Vec<(NodeId, ReceivedSet)> {
        let told = self.heard.iter().filter_map(|(node, heard)| Some((*node, heard.told.as_ref()?)));
        let lacks = told.map(|(node, told)| (node, self.own.lacks(told)));
        lacks.filter(|(_, names)| !names.is_empty()).collect()
    }

    /// The names that this replica has and another one did not tell, by who lacks them; none for those that do not
    /// count.
    pub(super) fn lacking(&self) -> Vec<(NodeId, Option<u64>)> {
        let lacks = |other: NodeId| Some(self.counted(other)?.lacks(&self.own).count());
        self.others.iter().map(|other| (*other, lacks(*other))).collect()
    }
}
