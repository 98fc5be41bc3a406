//! The thread that writes and delivers hints.

use std::collections::BTreeMap;
use std::time::Duration;

use trefoil::hints::{Hint, targets};
use trefoil::model::{Instant, NodeId};

use super::inbox::Wanted;
use super::target::{SYNC_INTERVAL, Target, TargetStatus};
use super::{Action, Ground, Hints};
use crate::clock;

/// How often it is looked who can be reached.
const LOOK: Duration = Duration::from_millis(100);

/// How soon a log that could not be opened is tried again.
const REOPEN: Duration = Duration::from_secs(10);

/// Works until the inbox is closed and empty.
pub(super) fn run(hints: &Hints, ground: Ground) {
    let mut thread = HintThread {
        hints,
        ground,
        targets: BTreeMap::new(),
        unopened: BTreeMap::new(),
        is_paused: false,
        next_sync: clock::after(SYNC_INTERVAL),
    };
    thread.open_all();
    thread.run();
}

struct HintThread<'a> {
    hints: &'a Hints,
    ground: Ground,
    targets: BTreeMap<NodeId, Target>,
    /// Nodes whose logs cannot be opened: when they are tried again, and what was refused meanwhile.
    unopened: BTreeMap<NodeId, (Instant, u64)>,
    /// What is paused for all nodes is so for those that come later.
    is_paused: bool,
    next_sync: Instant,
}

impl HintThread<'_> {
    /// Takes up what earlier runs have left.
    fn open_all(&mut self) {
        match targets(&*self.ground.vfs, &self.ground.directory) {
            Ok(nodes) => nodes.into_iter().for_each(|node| self.open(node)),
            Err(error) => tracing::error!(%error, "the directory of hints cannot be read"),
        }
    }

    fn run(&mut self) {
        let mut patience = Duration::ZERO;
        loop {
            let waiting = self.hints.inbox.take(patience);
            for (node, place, outcome) in waiting.outcomes {
                if let Some(target) = self.targets.get_mut(&node) {
                    target.outcome(place, outcome);
                }
            }
            self.keep(waiting.hints);
            let wake = if waiting.is_closed { None } else { self.drive() };
            if waiting.is_closed || self.next_sync <= clock::now() {
                self.targets.values_mut().for_each(Target::sync);
                self.next_sync = clock::after(SYNC_INTERVAL);
                self.tell();
            }
            for wanted in waiting.wanted {
                self.answer(wanted);
            }
            if waiting.is_closed {
                return;
            }
            let until_wake = wake.map_or(LOOK, |wake| Duration::from_micros(wake.since_us(clock::now())));
            patience = until_wake.min(LOOK);
        }
    }

    fn keep(&mut self, hints: Vec<(NodeId, Hint)>) {
        let mut by_target: BTreeMap<NodeId, Vec<Hint>> = BTreeMap::new();
        for (node, hint) in hints {
            by_target.entry(node).or_default().push(hint);
        }
        for (node, hints) in by_target {
            self.open(node);
            if let Some(target) = self.targets.get_mut(&node) {
                target.keep(&hints);
            } else if let Some((_, refused)) = self.unopened.get_mut(&node) {
                *refused += hints.len() as u64;
            }
        }
    }

    /// Opens the log of a node unless it is open, or has failed a moment ago.
    fn open(&mut self, node: NodeId) {
        let (next, refused) = self.unopened.get(&node).copied().unwrap_or_default();
        if self.targets.contains_key(&node) || clock::now() < next {
            return;
        }
        match Target::open(&self.ground, &self.hints.settings, node, refused) {
            Ok(mut target) => {
                target.pause(self.is_paused);
                self.unopened.remove(&node);
                self.targets.insert(node, target);
            }
            Err(error) => {
                tracing::error!(target_node = node.0, %error, "the hints for a node cannot be opened");
                self.unopened.insert(node, (clock::after(REOPEN), refused));
            }
        }
    }

    /// Delivers to each node what can be delivered now; when to go on at the latest.
    fn drive(&mut self) -> Option<Instant> {
        let due: Vec<NodeId> = self.unopened.keys().copied().collect();
        due.into_iter().for_each(|node| self.open(node));
        let postman = &*self.ground.postman;
        self.targets.values_mut().filter_map(|target| target.drive(postman)).min()
    }

    fn status(&mut self) -> BTreeMap<NodeId, TargetStatus> {
        let unopened = self.unopened.iter().map(|(node, (_, refused))| {
            (*node, TargetStatus { refused_disk: *refused, is_paused: self.is_paused, ..TargetStatus::default() })
        });
        let opened = self.targets.iter_mut().map(|(node, target)| (*node, target.status()));
        unopened.chain(opened).collect()
    }

    fn tell(&mut self) {
        let status = self.status();
        *self.hints.told.lock() = status;
    }

    fn answer(&mut self, Wanted { action, target, answer }: Wanted) {
        let mut dropped = BTreeMap::new();
        for (node, hints) in self.targets.iter_mut().filter(|(node, _)| target.is_none_or(|target| target == **node)) {
            match action {
                Action::Tell => {}
                Action::Pause => hints.pause(true),
                Action::Resume => hints.pause(false),
                Action::Drop => drop(dropped.insert(*node, hints.clear())),
            }
        }
        match (action, target) {
            (Action::Pause, None) => self.is_paused = true,
            (Action::Resume, None) => self.is_paused = false,
            _ => {}
        }
        let mut status = self.status();
        status.extend(dropped);
        status.retain(|node, _| target.is_none_or(|target| target == *node));
        // Whoever has asked may be gone.
        let _ = answer.send(status);
        self.tell();
    }
}
