//! What data without a name may say of itself: that its sources held everything up to some stamp *before* they were read.
//!
//! What is reconciled is so on every replica, whoever knows it. So a coordinator that is a replica takes its own word, from long
//! enough ago that the reads it is about began later.

use std::collections::BTreeMap;

use trefoil::model::Stamp;
use trefoil::received::Slice;
use trefoil::received::told::Reconciled;

/// Two generations of what is reconciled.
#[derive(Debug, Default)]
pub(super) struct Known {
    latest: BTreeMap<Slice, Stamp>,
    before: BTreeMap<Slice, Stamp>,
}

impl Known {
    /// What was reconciled at the start: older than any read of this run.
    pub(super) fn new(restored: &BTreeMap<Slice, Reconciled>) -> Known {
        let latest: BTreeMap<Slice, Stamp> = restored.iter().map(|(slice, held)| (*slice, held.through)).collect();
        Known { before: latest.clone(), latest }
    }

    /// Takes in what was saved; what was saved the time before is old enough from now on.
    pub(super) fn rotate(&mut self, saved: &[(Slice, Reconciled)]) {
        self.before.clone_from(&self.latest);
        self.latest.extend(saved.iter().map(|(slice, held)| (*slice, held.through)));
    }

    /// What every source held that was read within the last period.
    pub(super) fn through(&self, slice: Slice) -> Stamp {
        self.before.get(&slice).copied().unwrap_or_default()
    }
}
