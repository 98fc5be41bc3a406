//! A peer that asks things of the node under test.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use trefoil::codec::{Record, RecordKind};
use trefoil::metadata::ClusterState;
use trefoil::model::{Direction, NodeId, PartitionKey, ReadCommand, Slice, Stamp, Table, Target};
use trefoil_proto::convert::{key, mutation, peer};
use trefoil_proto::v1;
use trefoil_proto::v1::peer_operation::Op;

use super::site::{self, PATIENCE};
use crate::clock;
use crate::coordinate::Lane;
use crate::peers::{OutgoingReplies, ReplyQueue};

/// The peer, with the metadata it has.
pub struct Asking {
    lane: Arc<Lane>,
    state: ClusterState,
    queue: ReplyQueue,
    replies: OutgoingReplies,
    got: Vec<v1::PeerReply>,
}

impl Asking {
    pub fn new(lane: &Arc<Lane>, state: ClusterState) -> Asking {
        let (queue, replies) = ReplyQueue::open(v1::PeerMessage::default());
        Asking { lane: lane.clone(), state, queue, replies, got: Vec::new() }
    }

    /// Hands over a record of row `row` of `all.name`.
    pub fn write(&self, id: u64, name: &str, row: i64, timeout: Duration) {
        let table = self.table(name);
        let stamp = Stamp(clock::wall_us());
        let context = mutation::WriteContext { table, stamp, default_timestamp: None, request_id: b"" };
        let mutation =
            mutation::mutation(&context, key_of(table, row), site::mutation("all", row, "v").changes).unwrap();
        let kind = RecordKind::Nameless { composer: NodeId(2), known_through: Stamp(0) };
        let record = Record::encode(kind, table.keyspace, stamp, &mutation);
        self.ask(id, &key_of(table, row), Op::Write(record.bytes), timeout);
    }

    /// Asks for row `row` of `all.name`.
    pub fn read(&self, id: u64, name: &str, row: i64, timeout: Duration) {
        let key = key_of(self.table(name), row);
        let command = ReadCommand {
            table: self.table(name).id,
            target: Target::Partition(key.clone()),
            slices: vec![Slice::all()],
            direction: Direction::Forward,
            after: None,
            now_s: 0,
            limit_rows: 10,
            limit_bytes: 1 << 20,
        };
        self.ask(id, &key, Op::Read(peer::read_operation(&command)), timeout);
    }

    /// The next reply.
    pub async fn reply(&mut self) -> v1::PeerReply {
        while self.got.is_empty() {
            let message = tokio::time::timeout(PATIENCE, self.replies.next()).await;
            self.got = message.expect("a reply in time").unwrap().unwrap().replies;
        }
        self.got.remove(0)
    }

    fn ask(&self, id: u64, key: &PartitionKey, op: Op, timeout: Duration) {
        let ring = self.state.ring();
        let placement = ring.placement(ring.vnode_bits().vnode(key.token()));
        let timeout_ms = timeout.as_millis() as u32;
        self.lane.serve(NodeId(2), v1::PeerOperation { id, timeout_ms, placement, op: Some(op) }, &self.queue);
    }

    fn table(&self, name: &str) -> &Table {
        self.state.table_named("all", name).unwrap()
    }
}

fn key_of(table: &Table, row: i64) -> PartitionKey {
    key::partition_key(site::key(row), table).unwrap()
}
