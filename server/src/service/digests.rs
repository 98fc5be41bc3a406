//! What this node tells others of what it holds of a vnode, in digests (`trefoil::store::digest`).

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tonic::Status;
use trefoil::model::{NodeId, PartitionKey, Stamp, Timestamp, Vnode};
use trefoil::store::digest::{DIGEST_BYTES, DigestPage, DigestRange, PartitionDigest, Summary};
use trefoil_proto::convert::schema as convert;
use trefoil_proto::v1;

use super::Control;

/// How long another node may take to read a whole vnode of a table.
const DIGEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Partitions that are looked at in one go where a summary is asked for.
const STEP: usize = 4_096;

/// Partitions that are told one by one at most, and bytes of their keys: an answer must fit in a message.
pub(super) const KEYS_MAX: usize = 4_096;
const KEY_BYTES_MAX: usize = 8 << 20;

/// What a node tells of a vnode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// Where a summary was asked for.
    pub(super) partitions: u64,
    pub(super) digest: Bytes,
    /// Everything stamped so or before is on every replica of the vnode.
    pub(super) known_through: Stamp,
    /// Where partitions were asked for.
    pub(super) page: DigestPage,
}

impl Control {
    /// What a node holds, or why it does not tell. A node that is not seen alive is not asked.
    pub(super) async fn digests(&self, node: NodeId, call: v1::DigestCall) -> Result<Told, String> {
        let answer = if node == self.shared().identity.node {
            self.own_digests(call).await.map_err(|status| status.message().to_owned())?
        } else if self.shared().peers.alive().contains(&node) {
            let body = Bytes::from(call.encode_to_vec());
            let answer = self.rpc().call(node, v1::CallKind::Digests, body, DIGEST_TIMEOUT).await;
            let answer = answer.map_err(|error| error.to_string())?;
            v1::DigestAnswer::decode(answer).map_err(|error| error.to_string())?
        } else {
            return Err("it is not seen alive".to_owned());
        };
        told(answer)
    }

    /// Answers another node, which has sent a [`v1::DigestCall`].
    pub(super) async fn answer_digests(&self, body: Bytes) -> Result<Bytes, Status> {
        let call = v1::DigestCall::decode(body).map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(self.own_digests(call).await?.encode_to_vec().into())
    }

    async fn own_digests(&self, call: v1::DigestCall) -> Result<v1::DigestAnswer, Status> {
        let bits = self.shared().identity.vnode_bits;
        let table =
            convert::table_id_to_model(&call.table).map_err(|invalid| v1::Error::invalid(invalid).into_status())?;
        if call.vnode >= bits.count() {
            return Err(Status::invalid_argument(format!("there is no vnode {}", call.vnode)));
        }
        let vnode = Vnode(call.vnode);
        let keyspace = self.state().table(table).map(|table| table.keyspace);
        let known = keyspace.map(|keyspace| self.shared().replication.known_through((keyspace, vnode)));
        let range = DigestRange {
            table,
            tokens: bits.range(vnode),
            after: (!call.after.is_empty()).then(|| PartitionKey::from_bytes(call.after)),
            now_s: call.now_s,
            purged_before: call.purged_before_us.map(Timestamp),
        };
        // One at a time: whoever compares a large table must not take the disk from everybody else.
        let turn = self.digesting().acquire_owned().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let (replica, limit) = (self.shared().replica.clone(), call.limit as usize);
        let looked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            match limit {
                0 => summary(range, |range| replica.store().partition_digests(range, STEP)),
                _ => Ok(listed(replica.store().partition_digests(&range, limit.min(KEYS_MAX))?)),
            }
        });
        let looked = looked.await.map_err(|error| Status::internal(error.to_string()))?;
        let answer = looked.map_err(|error: trefoil::Error| Status::unavailable(error.to_string()))?;
        Ok(v1::DigestAnswer { known_through_us: known.unwrap_or_default().0, ..answer })
    }
}

fn summary(
    mut range: DigestRange,
    page: impl Fn(&DigestRange) -> trefoil::Result<DigestPage>,
) -> trefoil::Result<v1::DigestAnswer> {
    let mut summary = Summary::default();
    loop {
        let DigestPage { partitions, has_more } = page(&range)?;
        partitions.iter().for_each(|partition| summary.add(partition));
        if !has_more {
            let digest = Bytes::copy_from_slice(&summary.digest());
            return Ok(v1::DigestAnswer { partitions: summary.partitions, digest, ..v1::DigestAnswer::default() });
        }
        range.after = partitions.last().map(|partition| partition.key.clone());
    }
}

fn listed(mut page: DigestPage) -> v1::DigestAnswer {
    let mut bytes = 0;
    let fit = page.partitions.iter().take_while(|partition| {
        bytes += partition.key.bytes().len();
        bytes <= KEY_BYTES_MAX
    });
    let fit = fit.count();
    page.has_more |= fit < page.partitions.len();
    page.partitions.truncate(fit);
    let key = |partition: PartitionDigest| v1::KeyDigest {
        key: partition.key.bytes().clone(),
        rows: partition.rows,
        digest: Bytes::copy_from_slice(&partition.digest),
    };
    let keys = page.partitions.into_iter().map(key).collect();
    v1::DigestAnswer { keys, has_more: page.has_more, ..v1::DigestAnswer::default() }
}

fn told(answer: v1::DigestAnswer) -> Result<Told, String> {
    let partition = |key: v1::KeyDigest| {
        let digest: [u8; DIGEST_BYTES] =
            key.digest.as_ref().try_into().map_err(|_| format!("a digest has {} bytes", key.digest.len()))?;
        Ok(PartitionDigest { key: PartitionKey::from_bytes(key.key), rows: key.rows, digest })
    };
    let partitions = answer.keys.into_iter().map(partition).collect::<Result<Vec<_>, String>>()?;
    if answer.has_more && partitions.is_empty() {
        return Err("it says that there is more and tells nothing".to_owned());
    }
    if partitions.windows(2).any(|pair| pair[0].key >= pair[1].key) {
        return Err("its partitions are not in order".to_owned());
    }
    let page = DigestPage { partitions, has_more: answer.has_more };
    let known_through = Stamp(answer.known_through_us);
    Ok(Told { partitions: answer.partitions, digest: answer.digest, known_through, page })
}
