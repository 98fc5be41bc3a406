//! What others have and this node lacks, fetched by name.
//!
//! ```text
//!   a name is told by others and missing here for a few seconds     (it may be on its way, as a write or as a hint)
//!     ─► one question to a replica that told it: your records of these names, so many bytes     CallKind REPLICATION
//!     ─► each is checked like any write that comes, and queued for the log
//! ```
//!
//! One question at a time for the whole node, and so many bytes in a second. What a replica does not have in its log any more is
//! asked of the others that told it; where none has it the whole vnode is compared (compare.rs), and then again after a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use trefoil::model::{Instant, NodeId};
use trefoil::received::{ReceivedSet, ReceivedSets, Slice};
use trefoil_proto::v1;

use super::compare::compare;
use super::task::{Peering, off_runtime};
use super::{Replication, wanted};
use crate::clock;

/// How long a name may be missing before it is fetched.
const PATIENCE: Duration = Duration::from_secs(4);

/// Slices in one question.
const SLICES_MAX: usize = 256;

/// Bytes of records in one answer; a record that is larger comes alone.
const ANSWER_BYTES_MAX: u64 = 2 << 20;

/// How long a replica may look through its log.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// After so long a replica that had nothing of a slice is asked again.
const AGAIN: Duration = Duration::from_secs(60);

/// What is being filled.
#[derive(Default)]
pub(super) struct Holes {
    running: Option<tokio::task::JoinHandle<()>>,
    /// Not before, as so many bytes came last.
    next: Instant,
    asked: Arc<Mutex<Asked>>,
}

/// Who had nothing, until when that is believed; and what came with the last answer.
#[derive(Default)]
struct Asked {
    in_vain: BTreeMap<(Slice, NodeId), Instant>,
    /// Slices that were compared, and may be again only then.
    compared: BTreeMap<Slice, Instant>,
    bytes: u64,
}

impl Holes {
    /// Takes the next step, if there is one to take.
    pub(super) fn fill(&mut self, peering: &Arc<Peering>) {
        let now = clock::now();
        if self.running.as_ref().is_some_and(|running| !running.is_finished()) || now < self.next {
            return;
        }
        let replication = &peering.shared.replication;
        let bytes = std::mem::take(&mut self.asked.lock().bytes);
        if self.running.take().is_some() && bytes > 0 {
            let rest_us = bytes.saturating_mul(1_000_000) / replication.settings.fetch_bytes_per_s.max(1);
            self.next = now.plus_us(rest_us);
            if rest_us > 0 {
                return;
            }
        }
        if let Some((node, wanted)) = self.question(peering, now) {
            self.running = Some(tokio::spawn(fetch(peering.clone(), node, wanted, self.asked.clone())));
        } else if let Some((slice, node)) = self.in_no_log(peering, now) {
            self.running = Some(tokio::spawn(compare_one(peering.clone(), slice, node, self.asked.clone())));
        }
    }

    /// A slice of which no live replica has in its log what is missing here, with one that has the names.
    fn in_no_log(&self, peering: &Peering, now: Instant) -> Option<(Slice, NodeId)> {
        let mut asked = self.asked.lock();
        asked.compared.retain(|_, until| *until > now);
        let alive = peering.shared.peers.alive();
        let exchange = peering.shared.replication.exchange.lock();
        let behind = exchange.behind(PATIENCE.as_micros() as u64, now);
        behind.into_iter().filter(|slice| !asked.compared.contains_key(slice)).find_map(|slice| {
            let holes = exchange.holes(slice);
            let has = holes.into_iter().filter(|(node, _)| alive.contains(node)).max_by_key(|(_, names)| names.count());
            has.map(|(node, _)| (slice, node))
        })
    }

    /// Whom to ask for what: the live replica that has most slices with something that is missing here.
    fn question(&self, peering: &Peering, now: Instant) -> Option<(NodeId, ReceivedSets)> {
        let mut asked = self.asked.lock();
        asked.in_vain.retain(|_, until| *until > now);
        let alive = peering.shared.peers.alive();
        let exchange = peering.shared.replication.exchange.lock();
        let mut by_node: BTreeMap<NodeId, ReceivedSets> = BTreeMap::new();
        for slice in exchange.behind(PATIENCE.as_micros() as u64, now) {
            for (node, names) in exchange.holes(slice) {
                let wanted = by_node.entry(node).or_default();
                let is_open = alive.contains(&node) && !asked.in_vain.contains_key(&(slice, node));
                if is_open && wanted.len() < SLICES_MAX {
                    wanted.insert(slice, names);
                }
            }
        }
        by_node.into_iter().filter(|(_, wanted)| !wanted.is_empty()).max_by_key(|(_, wanted)| wanted.len())
    }
}

async fn fetch(peering: Arc<Peering>, node: NodeId, wanted: ReceivedSets, asked: Arc<Mutex<Asked>>) {
    let names: u64 = wanted.values().map(ReceivedSet::count).sum();
    tracing::info!(peer = node.0, slices = wanted.len(), names, "fetching what is missing here");
    let call = v1::ReplicationCall {
        call: Some(v1::replication_call::Call::Fetch(v1::FetchRecords {
            wanted: wanted::encode(&wanted).into(),
            bytes_max: ANSWER_BYTES_MAX,
        })),
    };
    let body = Bytes::from(call.encode_to_vec());
    let answer = peering.rpc.call(node, v1::CallKind::Replication, body, FETCH_TIMEOUT).await;
    let records = answer
        .map_err(|error| error.to_string())
        .and_then(|body| v1::FoundRecords::decode(body).map(|found| found.records).map_err(|error| error.to_string()));
    let again = clock::after(AGAIN);
    match records {
        Ok(records) if records.is_empty() => {
            let mut asked = asked.lock();
            asked.in_vain.extend(wanted.keys().map(|slice| ((*slice, node), again)));
            tracing::info!(peer = node.0, names, "its log does not have them any more");
        }
        Ok(records) => {
            let counts = peering.shared.replication.counts();
            asked.lock().bytes += records.iter().map(|record| record.len() as u64).sum::<u64>();
            let taken = records.into_iter().filter(|record| peering.lane.take_found(record.clone())).count();
            counts.fetched.fetch_add(taken as u64, Ordering::Relaxed);
            if taken == 0 {
                asked.lock().in_vain.extend(wanted.keys().map(|slice| ((*slice, node), again)));
            }
        }
        Err(reason) => {
            tracing::info!(peer = node.0, reason, "what is missing here could not be fetched; it is tried again")
        }
    }
}

async fn compare_one(peering: Arc<Peering>, slice: Slice, node: NodeId, asked: Arc<Mutex<Asked>>) {
    let (keyspace, vnode) = (slice.0.0, slice.1.0);
    tracing::warn!(peer = node.0, keyspace, vnode, "no log has what is missing here: the whole vnode is compared");
    asked.lock().compared.insert(slice, clock::after(AGAIN));
    match compare(&peering, slice, node).await {
        Ok(()) => drop(peering.shared.replication.counts().adopted.fetch_add(1, Ordering::Relaxed)),
        Err(reason) => tracing::warn!(peer = node.0, keyspace, vnode, reason, "it could not be; it is tried again"),
    }
}

impl Replication {
    /// Answers another node that lacks names.
    pub async fn found(self: &Arc<Self>, fetch: v1::FetchRecords) -> trefoil::Result<v1::FoundRecords> {
        let wanted = wanted::decode(fetch.wanted)?;
        let bytes_max = usize::try_from(fetch.bytes_max.min(ANSWER_BYTES_MAX)).unwrap_or(usize::MAX);
        let replication = self.clone();
        let records = off_runtime(move || replication.store.records_named(&wanted, bytes_max)).await;
        Ok(v1::FoundRecords { records: records.unwrap_or(Ok(Vec::new()))? })
    }
}
