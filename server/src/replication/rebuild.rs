//! A replica that holds less than it told: it withdraws, and is rebuilt from the others.
//!
//! ```text
//!   a file is quarantined, or a greeting tells of a loss
//!     ─► withdrawn: nothing of it is read, told or taken here                                     Store::withdraw
//!     ─► the metadata log gives the vnodes the next placement number                              Entry::Withdrawn
//!     ─► what is left in files goes, behind a snapshot                                            Store::clear_withdrawn
//!     ─► vnode by vnode: what the sources told ─► their pages, merged ─► what each lacks is given to it, and logged here
//!     ─► one edit: told again, read again                                                         Store::rebuilt
//! ```
//!
//! The sources are at least a quorum of the other replicas, whole, under the new number. They are made equal on the way: data that
//! was once written back without its name may be all that is left of a write whose name went with what was lost here.
//!
//! **Invariants:** what the sources told was taken before their data is read, so whatever it names is in the data; and it counts
//! only if they stand as they did when the last page has come. What any of them had found to be reconciled before holds for all
//! (decision 0016), so the data is known through the highest of that, and no source purges beyond it meanwhile: nothing is
//! reconciled while this replica tells nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::compaction::Unpaced;
use trefoil::coordinator::read_repair;
use trefoil::metadata::Entry;
use trefoil::model::{Instant, KeyspaceId, Mutation, NodeId, Page, PageEnd, Stamp, Table, Vnode};
use trefoil::received::Slice;
use trefoil::received::told::Told;
use trefoil::store::Cleared;
use trefoil_proto::v1;
use trefoil_proto::v1::replication_call::Call;

use super::Replication;
use super::compare::{ask, found, log_all, log_nameless, rest, their_page, whole_vnode};
use super::task::{Peering, off_runtime};
use crate::clock;

/// How long the metadata log may take to give vnodes their next number.
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// After so long what could not be rebuilt is tried again.
const AGAIN: Duration = Duration::from_secs(3);

/// The rebuilding of this node's slices, one attempt at a time.
#[derive(Default)]
pub(super) struct Rebuilding {
    running: Option<JoinHandle<()>>,
    /// Not before.
    next: Instant,
}

impl Rebuilding {
    /// Withdraws what is lost, and goes on with what is withdrawn.
    pub(super) fn step(&mut self, peering: &Arc<Peering>) {
        if self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        if self.running.take().is_some() {
            self.next = clock::after(AGAIN);
        }
        let store = peering.shared.replica.store();
        let is_work = !store.withdrawn().is_empty() || !store.quarantined().is_empty();
        if is_work && clock::now() >= self.next {
            self.running = Some(tokio::spawn(attempt(peering.clone())));
        }
    }
}

/// One attempt at everything that is lost.
async fn attempt(peering: Arc<Peering>) {
    if let Err(reason) = withdraw(&peering).await {
        tracing::warn!(reason, "what is lost here is not withdrawn yet; it is tried again");
        return;
    }
    let slices = peering.shared.replica.store().withdrawn();
    let keyspaces: BTreeSet<KeyspaceId> = slices.keys().map(|(keyspace, _)| *keyspace).collect();
    for keyspace in keyspaces {
        let vnodes = slices.keys().filter(|slice| slice.0 == keyspace).map(|slice| slice.1).collect();
        if let Err(reason) = rebuild_keyspace(&peering, keyspace, vnodes).await {
            tracing::warn!(keyspace = keyspace.0, reason, "vnodes are not rebuilt yet; it is tried again");
        }
    }
}

/// On the own disk first: a node that ends in between must not tell what it lost under the next number.
async fn withdraw(peering: &Peering) -> Result<(), String> {
    withdraw_quarantined(peering).await?;
    announce(peering).await
}

/// Withdraws the vnodes that quarantined files may hold, where others have them too. A table that is being restored loads
/// the file's rows anew by itself.
async fn withdraw_quarantined(peering: &Peering) -> Result<(), String> {
    let replication = peering.shared.replication.clone();
    // The disk may not know yet of what was withdrawn before: it was full, say.
    let store = replication.store.clone();
    let known = off_runtime(move || store.withdraw(&store.withdrawn())).await;
    known.ok_or("it was not finished")?.map_err(|error| error.to_string())?;
    let state = peering.shared.cluster.load_full();
    let own = peering.shared.identity.node;
    let mut lost: BTreeMap<Slice, u64> = BTreeMap::new();
    let withdrawn = replication.store.withdrawn();
    for file in replication.store.quarantined() {
        let Some(table) = state.table(file.table).filter(|table| state.restore_of(table.id).is_none()) else {
            continue;
        };
        let Some(keyspace) = state.keyspace(table.keyspace) else { continue };
        for vnode in file.vnodes.iter().flat_map(|(first, last)| (first.0..=last.0).map(Vnode)) {
            let replicas = state.ring().replicas_of(keyspace, vnode);
            let has_others = replicas.contains(own) && replicas.nodes.len() > 1;
            if has_others && !withdrawn.contains_key(&(keyspace.id, vnode)) {
                lost.insert((keyspace.id, vnode), replicas.placement);
            }
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    tracing::error!(
        vnodes = lost.len(),
        "a quarantined file held something of these vnodes: they are rebuilt from the other replicas"
    );
    let done = off_runtime(move || replication.withdraw(&lost)).await;
    done.ok_or("it was not finished")?.map_err(|error| error.to_string())
}

/// Has the metadata log give the next number to the placements under which withdrawn slices were told.
async fn announce(peering: &Peering) -> Result<(), String> {
    let withdrawn = peering.shared.replica.store().withdrawn();
    let state = peering.shared.cluster.load_full();
    let mut vnodes: BTreeMap<Vnode, u64> = BTreeMap::new();
    for ((_, vnode), placement) in withdrawn.iter() {
        if state.ring().placement(*vnode) <= *placement {
            vnodes.insert(*vnode, state.ring().placement(*vnode));
        }
    }
    if vnodes.is_empty() {
        return Ok(());
    }
    let entry = Entry::Withdrawn { node: peering.shared.identity.node, vnodes };
    let proposed = peering.log.propose(entry, PROPOSE_TIMEOUT).await.map_err(|error| error.to_string())?;
    if peering.shared.cluster.load().epoch() < proposed.epoch {
        return Err("this node has yet to apply it".to_owned());
    }
    Ok(())
}

async fn rebuild_keyspace(peering: &Peering, keyspace: KeyspaceId, vnodes: BTreeSet<Vnode>) -> Result<(), String> {
    let replication = peering.shared.replication.clone();
    let state = peering.shared.cluster.load_full();
    let under_restore = |table: &&Arc<Table>| table.keyspace == keyspace && state.restore_of(table.id).is_some();
    if let Some(table) = state.tables().find(|table| under_restore(table)) {
        return Err(format!("table {} is being restored", table.name));
    }
    if state.keyspace(keyspace).is_none() {
        // Nobody asks for it, and its tables go.
        return Ok(());
    }
    // As long as nobody can give it, what is left stays where it is.
    let mut ready: BTreeSet<Vnode> = BTreeSet::new();
    let mut obstacle = None;
    for vnode in vnodes {
        match Sources::find(peering, (keyspace, vnode)).await {
            Ok(_) => drop(ready.insert(vnode)),
            Err(reason) => obstacle = Some(reason),
        }
    }
    if !ready.is_empty() {
        let (store, vnodes) = (replication.store.clone(), ready.clone());
        let cleared = off_runtime(move || store.clear_withdrawn(keyspace, &vnodes, clock::wall_us(), &Unpaced));
        match cleared.await.ok_or("it was not finished")?.map_err(|error| error.to_string())? {
            Cleared::Whole => {}
            Cleared::NotYet => return Err("files that hold something of it are being compacted".to_owned()),
        }
    }
    for vnode in ready {
        match rebuild((peering, keyspace, vnode)).await {
            Ok(()) => {}
            Err(reason) => obstacle = Some(reason),
        }
    }
    obstacle.map_or(Ok(()), Err)
}

/// The replicas that a slice is rebuilt from, with what each had told before its data is read.
struct Sources {
    placement: u64,
    nodes: Vec<NodeId>,
    told: Told,
    /// Every mutation stamped so or before is in the data of all of them.
    known_through: Stamp,
    /// What any of them may have purged.
    purged: Stamp,
}

impl Sources {
    async fn find(peering: &Peering, slice: Slice) -> Result<Sources, String> {
        let state = peering.shared.cluster.load_full();
        let keyspace = state.keyspace(slice.0).ok_or("the keyspace is gone")?;
        let replicas = state.ring().replicas_of(keyspace, slice.1);
        let own = peering.shared.identity.node;
        let (mut others, mut why_not): (Vec<NodeId>, Vec<String>) = (Vec::new(), Vec::new());
        let alive = peering.shared.peers.alive().clone();
        for node in replicas.nodes.iter().map(|replica| replica.node).filter(|node| *node != own) {
            match alive.contains(&node) {
                true => others.push(node),
                false => why_not.push(format!("node {} is not seen alive", node.0)),
            }
        }
        let needed = (replicas.nodes.len() - 1) / 2 + 1;
        let answers = join_all(others.iter().map(|node| found(peering, *node, slice))).await;
        let mut sources = Sources {
            placement: replicas.placement,
            nodes: Vec::new(),
            told: Told::default(),
            known_through: peering.shared.replication.exchange.lock().reconciled(slice),
            purged: Stamp::default(),
        };
        for (node, answer) in others.iter().zip(answers) {
            match answer {
                Ok(found) if found.placement != replicas.placement => {
                    why_not.push(format!("node {} has another placement", node.0))
                }
                Ok(found) => match found.told {
                    Some(told) => {
                        sources.nodes.push(*node);
                        sources.told.join(&told);
                        sources.known_through = sources.known_through.max(found.reconciled);
                        sources.purged = sources.purged.max(found.purged);
                    }
                    None => why_not.push(format!("node {} is being rebuilt itself", node.0)),
                },
                Err(reason) => why_not.push(format!("node {}: {reason}", node.0)),
            }
        }
        if sources.nodes.len() < needed {
            let (found, why_not) = (sources.nodes.len(), why_not.join(", "));
            return Err(format!("{needed} other replicas are needed and {found} can give it ({why_not})"));
        }
        Ok(sources)
    }
}

/// Rebuilds one slice: everything that the sources have is logged here, and what each of them lacks is given to it.
async fn rebuild((peering, keyspace, vnode): (&Peering, KeyspaceId, Vnode)) -> Result<(), String> {
    let slice = (keyspace, vnode);
    let replication = peering.shared.replication.clone();
    let sources = Sources::find(peering, slice).await?;
    let copying = Copying { peering, slice, sources };
    let state = peering.shared.cluster.load_full();
    for table in state.tables().filter(|table| table.keyspace == keyspace) {
        copying.table(table).await?;
    }
    let Copying { sources, .. } = copying;
    // All of them as they were, and whoever was none of them may be none now.
    let after = Sources::find(peering, slice).await?;
    let own = peering.shared.cluster.load().ring().placement(vnode);
    if (after.placement, &after.nodes) != (sources.placement, &sources.nodes) || own != sources.placement {
        return Err("the replicas that it comes from have changed".to_owned());
    }
    if after.purged > sources.known_through {
        return Err("a replica that it comes from has purged more meanwhile".to_owned());
    }
    let tables = |state: &trefoil::metadata::ClusterState| -> Vec<_> {
        state.tables().filter(|table| table.keyspace == keyspace).map(|table| table.id).collect()
    };
    if tables(&state) != tables(&peering.shared.cluster.load()) {
        return Err("tables have come or gone".to_owned());
    }
    let (told, purged) = (sources.told, after.purged);
    let done = off_runtime(move || replication.rebuilt(slice, told, purged)).await;
    done.ok_or("it was not finished")?.map_err(|error| error.to_string())?;
    peering.shared.replication.counts.rebuilt.fetch_add(1, Ordering::Relaxed);
    tracing::info!(keyspace = keyspace.0, vnode = vnode.0, "a vnode was rebuilt from the other replicas");
    Ok(())
}

/// Data on its way from the sources to here.
struct Copying<'a> {
    peering: &'a Peering,
    slice: Slice,
    sources: Sources,
}

impl Copying<'_> {
    async fn table(&self, table: &Table) -> Result<(), String> {
        let replication = &self.peering.shared.replication;
        let mut command = whole_vnode(replication, self.slice, table);
        loop {
            let asked = self.sources.nodes.iter().map(|node| their_page(self.peering, *node, &command));
            let answers: Result<Vec<Page>, String> = join_all(asked).await.into_iter().collect();
            let answers = answers?;
            let bytes = answers.iter().map(|page| page.entries.len() as u64).sum::<u64>();
            replication.counts.compared_bytes.fetch_add(bytes, Ordering::Relaxed);
            // Here is nothing; what the others have beyond that is all there is.
            let own = Page { entries: Bytes::new(), end: PageEnd::Complete };
            let pages: Vec<(usize, Page)> = std::iter::once(own).chain(answers).enumerate().collect();
            let merged = read_repair::merge(&command, &pages).map_err(|_| "a page means nothing".to_owned())?;
            for difference in merged.differences {
                match difference.replica.checked_sub(1) {
                    None => {
                        log_nameless(self.peering, self.slice, self.sources.known_through, difference.mutations).await?
                    }
                    Some(source) => self.give(self.sources.nodes[source], difference.mutations).await?,
                }
            }
            rest(replication, bytes).await;
            match merged.end {
                PageEnd::Complete => return Ok(()),
                PageEnd::At(position) => command.after = Some(position),
            }
        }
    }

    /// Gives a source what it lacks, and waits until it has it for good.
    async fn give(&self, node: NodeId, mutations: Vec<Mutation>) -> Result<(), String> {
        let composer = self.peering.shared.identity.node;
        let kind = RecordKind::Nameless { composer, known_through: self.sources.known_through };
        let made_at = Stamp(clock::wall_us());
        let records = mutations
            .iter()
            .map(|mutation| CheckedRecord::encode(kind, self.slice.0, made_at, mutation).bytes().clone())
            .collect();
        let call = Call::Give(v1::GiveRecords {
            keyspace: self.slice.0.0,
            vnode: self.slice.1.0,
            placement: self.sources.placement,
            records,
        });
        ask(self.peering, node, call).await.map(drop)
    }
}

impl Replication {
    /// These slices are neither told, read nor taken here until they are rebuilt. Blocks.
    pub(super) fn withdraw(&self, lost: &BTreeMap<Slice, u64>) -> trefoil::Result<()> {
        if !lost.is_empty() {
            let mut exchange = self.exchange.lock();
            let now = clock::now();
            lost.keys().for_each(|slice| exchange.withdraw(*slice, now));
            drop(exchange);
            self.store.withdraw(lost)?;
        }
        self.look_what_is_withheld();
        Ok(())
    }

    /// A slice has everything again that its sources had told. Blocks.
    fn rebuilt(&self, slice: Slice, told: Told, purged: Stamp) -> trefoil::Result<()> {
        self.store.rebuilt(slice, &told, purged)?;
        self.exchange.lock().rebuilt(slice, told, purged, clock::now());
        self.look_what_is_withheld();
        Ok(())
    }
}

impl Peering {
    /// Takes what another replica gives this one, which lacks it; answers once it is durable and can be read.
    pub async fn take_given(&self, given: v1::GiveRecords) -> Result<(), String> {
        let slice = (KeyspaceId(given.keyspace), Vnode(given.vnode));
        let replication = &self.shared.replication;
        if self.shared.cluster.load().ring().placement(slice.1) != given.placement {
            return Err("it is given under another placement".to_owned());
        }
        if !replication.exchange.lock().is_whole(slice) {
            return Err("this replica is being rebuilt itself".to_owned());
        }
        let mut records = Vec::with_capacity(given.records.len());
        for record in given.records {
            let (record, _) = CheckedRecord::check(record).map_err(|error| error.to_string())?;
            let vnode = replication.identity.vnode_bits.vnode(record.token());
            if !matches!(record.kind(), RecordKind::Nameless { .. }) || (record.keyspace(), vnode) != slice {
                return Err("a record is given that has a name, or is of another vnode".to_owned());
            }
            records.push(record);
        }
        log_all(self, records).await
    }
}
