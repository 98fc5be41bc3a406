//! What happens when a replica has less than it told: it greets, notices, withdraws, and is rebuilt from the others.

use trefoil::model::{Instant, NodeId, Stamp};
use trefoil::received::ReceivedSet;
use trefoil::received::exchange::Exchange;
use trefoil::received::report::Report;
use trefoil::received::told::{Floors, Reconciled, Told};

use crate::disk::{Data, Manifest, Record};
use crate::node::{Context, Effects, Message, Node, SLICE};

/// What a greeted peer answers.
#[derive(Debug, Clone)]
pub struct Greeted {
    remembered: Option<Vec<u8>>,
    clock: Stamp,
    /// None of a peer that is starting itself: whether it has what it told is not known before it has greeted, and its new
    /// run, once heard of, would be taken for one that its disk should know.
    report: Option<Vec<u8>>,
}

impl Node {
    /// A peer starts: it is told what is known of it.
    pub fn answer_greeting(&mut self, from: NodeId) -> Vec<(NodeId, Message)> {
        let clock = self.disk.heard.get(&from).copied().unwrap_or_default();
        let Some(run) = &mut self.run else { return Vec::new() };
        let remembered = run.exchange.remembered(from).map(|report| report.encode());
        let report = run.open.then(|| run.exchange.report_for(from).encode());
        vec![(from, Message::Greeted(Greeted { remembered, clock, report }))]
    }

    /// A peer told what it knows of this node. Once all have, this one is open.
    pub fn on_greeted(&mut self, from: NodeId, greeted: Greeted, context: &mut Context, effects: &mut Effects) {
        let instant = self.instant(context.now);
        let Some(run) = &mut self.run else { return };
        if run.open || !run.to_greet.remove(&from) {
            return;
        }
        if let Some(report) = greeted.report {
            run.exchange.on_report(from, Report::decode(report.into()).unwrap(), instant);
        }
        let remembered = greeted.remembered.map(|bytes| Report::decode(bytes.into()).unwrap());
        let ceiling = run.ceiling_found;
        if !run.exchange.lost(from, remembered.as_ref(), greeted.clock, ceiling).is_empty() {
            self.withdraw(instant, effects);
        }
        // Whatever this node's clock was known to have reached, its next run is later.
        self.disk.ceiling = self.disk.ceiling.max(greeted.clock);
        let behind = greeted.clock > ceiling;
        let run = self.run.as_mut().unwrap();
        if behind {
            run.begin_again = true;
        }
        if run.to_greet.is_empty() {
            run.open = true;
            if run.begin_again {
                self.start(context);
                self.run.as_mut().unwrap().open = true;
            }
        }
    }

    /// One edit: nothing is told any more, and what is here is set aside.
    pub fn withdraw(&mut self, now: Instant, effects: &mut Effects) {
        let manifest = &mut self.disk.manifest;
        let reconciled = Reconciled { through: manifest.reconciled.through, floors: Floors::default() };
        let purged = manifest.purged;
        let replay_from = self.disk.log.len();
        self.disk.synced = replay_from;
        let data = Data::default();
        self.disk.manifest =
            Manifest { set: ReceivedSet::default(), reconciled, purged, replay_from, data, withdrawn: true };
        effects.withdrew = true;
        if let Some(run) = &mut self.run {
            run.memtable = Data::default();
            run.inserted = replay_from;
            run.own = ReceivedSet::default();
            run.pending.clear();
            run.waiters.clear();
            run.keeping = (0, Vec::new());
            run.exchange.withdraw(SLICE, now);
        }
    }
}

/// Rebuilds a withdrawn replica from all others, which have applied the entry and are whole: first they are made equal, then their
/// data is copied, and their sets are joined.
pub fn rebuild(nodes: &mut [Node], place: usize, placement: u64, now: i64) -> bool {
    let fits = |node: &Node| node.placement == placement && node.run.as_ref().is_some_and(|run| run.open);
    let sources = (0..nodes.len()).filter(|source| *source != place);
    let whole = |node: &Node| !node.disk.manifest.withdrawn;
    if !nodes.iter().all(fits) || !sources.clone().all(|source| whole(&nodes[source])) {
        return false;
    }
    // What any source has found to be reconciled held for all of them before they are read, whether the others know or not.
    let purged = sources.clone().map(|source| exchange(&nodes[source]).purged(SLICE)).max().unwrap();
    let mut all = Data::default();
    let mut told = Told::default();
    for source in sources.clone() {
        nodes[source].sync();
        let run = nodes[source].run.as_ref().unwrap();
        all.merge(&run.memtable);
        told.join(&Told::new(run.own.clone(), nodes[source].disk.manifest.reconciled.floors.clone()));
    }
    for source in sources {
        for (key, history) in &all.history {
            nodes[source].disk.log.push(Record::Nameless(*key, all.keys.get(key).copied(), history.clone()));
        }
        nodes[source].insert();
        nodes[source].sync();
    }
    let node = &mut nodes[place];
    let instant = node.instant(now);
    let through = node.disk.manifest.reconciled.through;
    let run = node.run.as_mut().unwrap();
    let manifest = &mut node.disk.manifest;
    manifest.set = told.set().clone();
    manifest.reconciled = Reconciled { through, floors: told.floors().clone() };
    manifest.purged = manifest.purged.max(purged);
    manifest.data = all.clone();
    manifest.withdrawn = false;
    run.memtable = all;
    run.own = told.set().clone();
    run.exchange.rebuilt(SLICE, told, manifest.purged, instant);
    true
}

fn exchange(node: &Node) -> &Exchange {
    &node.run.as_ref().unwrap().exchange
}
