//! A hole that no log can fill: all of one vnode's data is compared with a replica that has the names, and made equal.
//!
//! ```text
//!   their set, and what they knew to be everywhere before      ─► refused here if deletions were purged since then
//!   every table of the keyspace, page by page, theirs and ours ─► what is missing here is logged, as data without a name
//!   all of it durable and visible                              ─► their set is adopted, in one edit of the manifest
//! ```
//!
//! **Invariant:** the set was taken before the data was read, so whatever it names is in the data; and it is adopted only once
//! the last piece of the data is in the log, of every table, under the placement that it began with.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc::UnboundedReceiver;
use trefoil::codec::varint::Reader;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::coordinator::read_repair;
use trefoil::model::{Direction, Durability, Mutation, NodeId, Page, PageEnd, ReadCommand, Stamp, Table, Target};
use trefoil::received::Slice;
use trefoil::received::told::Told;
use trefoil::store::Access;
use trefoil_proto::convert::peer as convert;
use trefoil_proto::v1;
use trefoil_proto::v1::replication_call::Call;

use super::Replication;
use super::task::{Peering, off_runtime};
use crate::clock;
use crate::replica::{Completion, Outcome, Ticket, WriteJob};

/// Size of a page.
const PAGE_BYTES: u32 = 256 << 10;

/// How long one page may take.
const PAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long what is missing may wait for the log.
const LOG_PATIENCE: Duration = Duration::from_secs(30);

/// Keeps deletions from being purged while data is on its way that may be older.
struct Pin<'a>(&'a Replication, Slice);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.exchange.lock().unpin(self.1);
    }
}

/// Compares one vnode with `node` and adopts its set.
pub(super) async fn compare(peering: &Peering, slice: Slice, node: NodeId) -> Result<(), String> {
    let replication = &peering.shared.replication;
    let placement = || peering.shared.cluster.load().ring().placement(slice.1);
    let began_with = placement();
    replication.exchange.lock().pin(slice);
    let _pin = Pin(replication, slice);
    let found = found(peering, node, slice).await?;
    if found.placement != began_with {
        return Err("it has another placement".to_owned());
    }
    let names = found.told.ok_or("it is being rebuilt itself")?.set().clone();
    if found.known_through < replication.exchange.lock().purged(slice) {
        return Err("deletions are purged here of which it does not know that everybody has had them".to_owned());
    }
    let written = Written { peering, slice, known_through: found.known_through };
    let state = peering.shared.cluster.load_full();
    for table in state.tables().filter(|table| table.keyspace == slice.0) {
        written.table(node, table).await?;
    }
    if placement() != began_with {
        return Err("the placement has changed".to_owned());
    }
    let store = replication.store.clone();
    let adopted = off_runtime(move || store.adopt(slice, &names)).await;
    adopted.ok_or("it was not finished")?.map_err(|error| error.to_string())
}

/// Asks another node about what it has, and waits for as long as a page may take.
pub(super) async fn ask(peering: &Peering, node: NodeId, call: Call) -> Result<Bytes, String> {
    let body = Bytes::from(v1::ReplicationCall { call: Some(call) }.encode_to_vec());
    let answer = peering.rpc.call(node, v1::CallKind::Replication, body, PAGE_TIMEOUT).await;
    answer.map_err(|error| error.to_string())
}

/// What another replica has of a slice.
pub(super) struct FoundTold {
    /// The number of its placement there.
    pub(super) placement: u64,
    /// None while it is being rebuilt.
    pub(super) told: Option<Told>,
    /// Every mutation stamped so or before was everywhere before this was answered, as far as reads go by it.
    pub(super) known_through: Stamp,
    /// The same, as it knows at this moment.
    pub(super) reconciled: Stamp,
    /// Deletions stamped so or before may be gone there.
    pub(super) purged: Stamp,
}

/// Asks another replica what it has of a slice.
pub(super) async fn found(peering: &Peering, node: NodeId, slice: Slice) -> Result<FoundTold, String> {
    let call = Call::Told(v1::ToldSlice { keyspace: slice.0.0, vnode: slice.1.0 });
    let found = v1::FoundSet::decode(ask(peering, node, call).await?).map_err(|error| error.to_string())?;
    let told = (!found.told.is_empty()).then(|| decode_told(found.told)).transpose()?;
    Ok(FoundTold {
        placement: found.placement,
        told,
        known_through: Stamp(found.known_through),
        reconciled: Stamp(found.reconciled),
        purged: Stamp(found.purged_through),
    })
}

fn decode_told(bytes: Bytes) -> Result<Told, String> {
    let mut reader = Reader::new("what a replica told", bytes);
    let told = Told::decode(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(told)
}

/// A page of what another replica has, durable there.
pub(super) async fn their_page(peering: &Peering, node: NodeId, command: &ReadCommand) -> Result<Page, String> {
    let answer = ask(peering, node, Call::Page(convert::read_operation(command))).await?;
    let page = v1::ReplicaPage::decode(answer).map_err(|error| error.to_string())?;
    convert::page(page).map(|(page, _)| page).map_err(|error| error.to_string())
}

/// Logs data without a name, and waits until all of it is durable and visible: in a `periodic` table, too, since the set
/// that is adopted speaks of it.
pub(super) async fn log_nameless(
    peering: &Peering,
    slice: Slice,
    known_through: Stamp,
    mutations: Vec<Mutation>,
) -> Result<(), String> {
    let composer = peering.shared.identity.node;
    let kind = RecordKind::Nameless { composer, known_through };
    let made_at = Stamp(clock::wall_us());
    let encode = |mutation: &Mutation| CheckedRecord::encode(kind, slice.0, made_at, mutation);
    log_all(peering, mutations.iter().map(encode).collect()).await
}

/// Logs records that nobody else waits for.
pub(super) async fn log_all(peering: &Peering, records: Vec<CheckedRecord>) -> Result<(), String> {
    let mut completions = peering.found.lock().await;
    let (mut queued, mut refused) = (0, Ok(()));
    for record in records {
        let ticket = Ticket { lane: peering.found_lane, id: 0 };
        let job = WriteJob { record, durability: Durability::Commit, deadline: clock::after(LOG_PATIENCE), ticket };
        refused = peering.shared.replica.submit(job).map_err(|(_, text)| text);
        if refused.is_err() {
            break;
        }
        queued += 1;
    }
    wait(&mut completions, queued).await.and(refused)
}

async fn wait(completions: &mut UnboundedReceiver<Vec<Completion>>, mut left: u64) -> Result<(), String> {
    let mut failed = None;
    while left > 0 {
        let Some(done) = completions.recv().await else { return Err("the node is stopping".to_owned()) };
        for Completion { outcome, .. } in done {
            left = left.saturating_sub(1);
            if let Outcome::Failed(_, text) = outcome {
                failed = Some(text);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// What was missing here and is being written.
struct Written<'a> {
    peering: &'a Peering,
    slice: Slice,
    known_through: Stamp,
}

impl Written<'_> {
    /// Makes one table here have what it has there.
    async fn table(&self, node: NodeId, table: &Table) -> Result<(), String> {
        let replication = self.peering.shared.replication.clone();
        let mut command = whole_vnode(&replication, self.slice, table);
        loop {
            let theirs = their_page(self.peering, node, &command).await?;
            let (store, asked) = (replication.store.clone(), command.clone());
            let own = off_runtime(move || store.read(&asked, Access::Disk)).await.ok_or("it was not finished")?;
            let own = own.map_err(|error| error.to_string())?;
            let bytes = (theirs.entries.len() + own.entries.len()) as u64;
            replication.counts.compared_bytes.fetch_add(bytes, Ordering::Relaxed);
            let merged = read_repair::merge(&command, &[(0, own), (1, theirs)]);
            let merged = merged.map_err(|_| "a page means nothing".to_owned())?;
            let missing = merged.differences.into_iter().filter(|difference| difference.replica == 0);
            for difference in missing {
                log_nameless(self.peering, self.slice, self.known_through, difference.mutations).await?;
            }
            rest(&replication, bytes).await;
            match merged.end {
                PageEnd::Complete => return Ok(()),
                PageEnd::At(position) => command.after = Some(position),
            }
        }
    }
}

/// The first page of everything that is stored of a table in a vnode; nothing counts as expired.
pub(super) fn whole_vnode(replication: &Replication, slice: Slice, table: &Table) -> ReadCommand {
    ReadCommand {
        table: table.id,
        target: Target::Scan(replication.identity.vnode_bits.range(slice.1)),
        slices: Vec::new(),
        direction: Direction::Forward,
        after: None,
        now_s: 0,
        limit_rows: u32::MAX,
        limit_bytes: PAGE_BYTES,
    }
}

/// After so many bytes of others: not more than so many in a second.
pub(super) async fn rest(replication: &Replication, bytes: u64) {
    let rest_us = bytes.saturating_mul(1_000_000) / replication.settings.fetch_bytes_per_s.max(1);
    tokio::time::sleep(Duration::from_micros(rest_us)).await;
}

impl Replication {
    /// Tells another replica what this one has of a slice, before that one reads it.
    pub async fn told(self: &Arc<Self>, placement: u64, slice: Slice) -> trefoil::Result<v1::FoundSet> {
        let known_through = self.known_through(slice).0;
        let (is_whole, floors, reconciled, purged) = {
            let exchange = self.exchange.lock();
            let (reconciled, purged) = (exchange.reconciled(slice), exchange.purged(slice));
            (exchange.is_whole(slice), exchange.floors(slice), reconciled, purged)
        };
        let mut told = Vec::new();
        if is_whole {
            let store = self.store.clone();
            let names = off_runtime(move || store.received_of(slice)).await.unwrap_or_default();
            Told::new(names, floors).encode(&mut told);
        }
        let (reconciled, purged_through) = (reconciled.0, purged.0);
        Ok(v1::FoundSet { placement, known_through, told: told.into(), reconciled, purged_through })
    }

    /// A page for another replica. What it shows is durable: it may be all that is left of it.
    pub async fn page(self: &Arc<Self>, read: v1::ReadOperation) -> trefoil::Result<v1::ReplicaPage> {
        let command = convert::read_command(read)?;
        let store = self.store.clone();
        let page = off_runtime(move || {
            let page = store.read_with_cost(&command, Access::Disk)?;
            store.sync()?;
            Ok(page)
        });
        let (page, cost) = page.await.unwrap_or(Err(trefoil::Error::Stopped))?;
        Ok(convert::replica_page(page, &cost))
    }
}
