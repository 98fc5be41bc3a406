//! Whether all replicas of a table hold the same: vnode by vnode, a digest each first, partition by partition where they
//! differ.
//!
//! ```text
//!   vnode ─► a summary from every replica ─ equal ─► done
//!              └ not equal ─► partitions, page by page, side by side ─► those that differ
//!                                └ any? wait, look again, a few times: writes under way are no difference
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{Stream, StreamExt, stream};
use tonic::Status;
use trefoil::metadata::ClusterState;
use trefoil::model::{Keyspace, NodeId, PartitionKey, Table, Vnode};
use trefoil::store::digest::{Difference, PartitionDigest, compare};
use trefoil_proto::convert::schema as convert;
use trefoil_proto::convert::value;
use trefoil_proto::v1;
use trefoil_proto::v1::ValueForm;

use super::Control;
use super::digests::{KEYS_MAX, Told};
use crate::clock;

/// Vnodes that are compared at once: so that one is asked for while another is read.
const AT_ONCE: usize = 4;

/// How often a difference is looked at again before it is one, and how long is waited before each.
const LOOKS_AGAIN: u32 = 3;
const SETTLE: Duration = Duration::from_millis(1_000);

/// Differing partitions that are named where the request does not say how many.
const NAMED_DEFAULT: u32 = 100;

/// Differing partitions of one vnode that are kept in memory; beyond these they are only counted.
const KEPT_MAX: usize = 10_000;

/// A table that is compared.
struct Verified {
    control: Arc<Control>,
    state: Arc<ClusterState>,
    keyspace: Arc<Keyspace>,
    table: Arc<Table>,
}

/// What was found of one vnode.
#[derive(Default)]
struct Found {
    partitions: u64,
    /// Who is meant by `held` of a difference.
    nodes: Vec<NodeId>,
    differing: Vec<Difference>,
    /// Those beyond the ones that were kept.
    uncounted: u64,
    /// Replicas that did not take part, and why.
    missing: Vec<(NodeId, String)>,
}

impl Control {
    /// Compares all replicas of a table. Ends with the message that has done all vnodes.
    pub(super) fn verify(
        self: &Arc<Self>,
        keyspace: Arc<Keyspace>,
        table: Arc<Table>,
        name_at_most: u32,
    ) -> impl Stream<Item = Result<v1::VerifyProgress, Status>> + Send + use<> {
        let state = self.state();
        let vnodes = state.ring().vnode_bits().count();
        let verified = Arc::new(Verified { control: self.clone(), state, keyspace, table });
        let mut told = Progress {
            verified: verified.clone(),
            left_to_name: if name_at_most == 0 { NAMED_DEFAULT } else { name_at_most } as usize,
            told: v1::VerifyProgress { vnodes, ..v1::VerifyProgress::default() },
            missing: BTreeMap::new(),
        };
        let compared = stream::iter(0..vnodes).map(move |vnode| {
            let verified = verified.clone();
            async move { verified.vnode(Vnode(vnode)).await }
        });
        compared.buffered(AT_ONCE).map(move |found| told.next(found))
    }
}

impl Verified {
    async fn vnode(&self, vnode: Vnode) -> Found {
        let replicas = self.state.ring().replicas_of(&self.keyspace, vnode);
        let nodes: Vec<NodeId> = replicas.nodes.iter().map(|replica| replica.node).collect();
        let mut call = v1::DigestCall {
            table: convert::table_id(self.table.id),
            vnode: vnode.0,
            now_s: clock::wall_us().div_euclid(1_000_000),
            ..v1::DigestCall::default()
        };
        let (mut nodes, mut summaries, mut missing) = self.ask(nodes, &call).await;
        call.purged_before_us = self.purged_before(&summaries);
        if !are_equal(&summaries) && call.purged_before_us.is_some() {
            // Below it a deletion may be gone from one replica and not yet from another.
            let (answered, again, silent) = self.ask(nodes, &call).await;
            (nodes, summaries) = (answered, again);
            missing.extend(silent);
        }
        if are_equal(&summaries) {
            let partitions = summaries.first().map_or(0, |summary| summary.partitions);
            return Found { partitions, missing, nodes, ..Found::default() };
        }
        let mut found = self.partitions(nodes, &call).await;
        for _ in 0..LOOKS_AGAIN {
            if found.differing.is_empty() {
                break;
            }
            tokio::time::sleep(SETTLE).await;
            call.now_s = clock::wall_us().div_euclid(1_000_000);
            let before = std::mem::take(&mut found.differing);
            let missing = std::mem::take(&mut found.missing);
            found = self.partitions(found.nodes, &call).await;
            found.missing.extend(missing);
            found.differing.retain(|one| before.iter().any(|other| other.key == one.key));
        }
        found.missing.extend(missing);
        found
    }

    /// The timestamps whose deletions any replica may have purged: what one of them knows to be everywhere is so.
    fn purged_before(&self, told: &[Told]) -> Option<i64> {
        let known = told.iter().map(|told| told.known_through.0).max().filter(|known| *known > 0)?;
        known.checked_sub(i64::from(self.table.options.lateness_s) * 1_000_000)
    }

    /// Compares partition by partition.
    async fn partitions(&self, nodes: Vec<NodeId>, call: &v1::DigestCall) -> Found {
        let mut call = v1::DigestCall { limit: KEYS_MAX as u32, ..call.clone() };
        let mut found = Found { nodes, ..Found::default() };
        loop {
            let (nodes, told, missing) = self.ask(found.nodes.clone(), &call).await;
            if !missing.is_empty() {
                // Whoever fell silent cannot be compared: the vnode is not, and what was found before is told.
                found.missing.extend(missing);
                return found;
            }
            found.nodes = nodes;
            let pages: Vec<_> = told.into_iter().map(|told| told.page).collect();
            let compared = compare(&pages);
            found.partitions += compared.partitions;
            let room = KEPT_MAX.saturating_sub(found.differing.len());
            found.uncounted += compared.differing.len().saturating_sub(room) as u64;
            found.differing.extend(compared.differing.into_iter().take(room));
            match compared.next {
                Some(next) => call.after = next.bytes().clone(),
                None => return found,
            }
        }
    }

    /// Asks all of them at once; those that answered with what they told, and the others.
    async fn ask(&self, nodes: Vec<NodeId>, call: &v1::DigestCall) -> (Vec<NodeId>, Vec<Told>, Vec<(NodeId, String)>) {
        let told = join_all(nodes.iter().map(|node| self.control.digests(*node, call.clone()))).await;
        let (mut answered, mut all, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for (node, told) in nodes.into_iter().zip(told) {
            match told {
                Ok(told) => {
                    answered.push(node);
                    all.push(told);
                }
                Err(reason) => missing.push((node, reason)),
            }
        }
        (answered, all, missing)
    }

    fn key(&self, key: &PartitionKey) -> Result<Vec<v1::Value>, Status> {
        let components =
            key.decode(&self.table.partition_types()).map_err(|error| Status::data_loss(error.to_string()))?;
        let typed = components.into_iter().zip(self.table.partition_key());
        Ok(typed.map(|(bytes, column)| value::from_bytes(bytes, &column.ty, ValueForm::Typed)).collect())
    }
}

fn are_equal(summaries: &[Told]) -> bool {
    summaries.windows(2).all(|pair| pair[0].digest == pair[1].digest)
}

/// What the client has been told.
struct Progress {
    verified: Arc<Verified>,
    left_to_name: usize,
    told: v1::VerifyProgress,
    missing: BTreeMap<NodeId, String>,
}

impl Progress {
    fn next(&mut self, found: Found) -> Result<v1::VerifyProgress, Status> {
        self.told.vnodes_done += 1;
        self.told.partitions += found.partitions;
        self.told.differing_partitions += found.differing.len() as u64 + found.uncounted;
        self.told.vnodes_not_compared += u32::from(!found.missing.is_empty());
        let mut progress = self.told.clone();
        for difference in found.differing.iter().take(self.left_to_name) {
            progress.differing.push(self.named(&found.nodes, difference)?);
        }
        self.left_to_name -= progress.differing.len();
        for (node, reason) in found.missing {
            if let Entry::Vacant(entry) = self.missing.entry(node) {
                progress.not_compared.push(v1::NotCompared { node: node.0, reason: reason.clone() });
                entry.insert(reason);
            }
        }
        Ok(progress)
    }

    fn named(&self, nodes: &[NodeId], difference: &Difference) -> Result<v1::DifferingPartition, Status> {
        let held = |(node, held): (&NodeId, &Option<PartitionDigest>)| v1::PartitionHeld {
            node: node.0,
            digest: held.as_ref().map(|held| bytes::Bytes::copy_from_slice(&held.digest)).unwrap_or_default(),
            rows: held.as_ref().map_or(0, |held| held.rows),
        };
        let key = self.verified.key(&difference.key)?;
        Ok(v1::DifferingPartition { key, held: nodes.iter().zip(&difference.held).map(held).collect() })
    }
}
