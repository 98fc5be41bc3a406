//! Whole nodes on the loopback: how one stops while others and its own clients go on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::net::TcpListener as Port;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use tokio::sync::mpsc::Sender;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use trefoil::metadata::Entry;
use trefoil::model::{
    ColumnDefinition, ColumnKind, CreateKeyspace, CreateTable, TableId, TableOptions, Type, VnodeBits,
};
use trefoil::ring::Zone;
use trefoil::vfs::memory::MemoryVfs;
use trefoil_proto::v1::data_client::DataClient;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op;

use super::*;

mod backup;

const PATIENCE: Duration = Duration::from_secs(30);

/// Three zones with a node in each, and a table with a copy in each.
async fn cluster() -> Vec<(Node, String)> {
    cluster_with(Default::default(), None).await
}

/// The same with settings.
async fn cluster_with(replication: ReplicationSettings, backup: Option<BackupSettings>) -> Vec<(Node, String)> {
    let ports: Vec<Port> = (0..6).map(|_| Port::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<String> = ports.iter().map(|port| port.local_addr().unwrap().to_string()).collect();
    drop(ports);
    let zone = |at: usize| Zone { region: "eu".into(), name: format!("z{at}") };
    let member = |at: usize| InitialMember { address: addresses[at].clone(), zone: zone(at) };
    let settings = |at: usize| NodeSettings {
        data_directory: "data".into(),
        peer_address: addresses[at].clone(),
        client_address: addresses[at + 3].clone(),
        birth: BirthConfig {
            cluster: "demo".into(),
            vnode_bits: VnodeBits::new(4).unwrap(),
            peer_address: addresses[at].clone(),
            client_address: addresses[at + 3].clone(),
            zone: zone(at),
            initial_members: (0..3).map(member).collect(),
        },
        store: StoreOptions {
            directory: "data/store".into(),
            segment_bytes: 8 << 20,
            log_kept_bytes_max: 0,
            memtable_budget_bytes: 64 << 20,
            cache_bytes: 1 << 20,
            snapshots: Default::default(),
        },
        compaction: crate::config::CompactionConfig::default().of_threads(),
        hints: crate::config::HintsConfig::default().bounds(),
        scrub: crate::config::ScrubConfig::default().of_thread(),
        replication: replication.clone(),
        backup: backup.clone(),
        limits: Limits {
            timeout_default: Duration::from_secs(10),
            timeout_max: Duration::from_secs(60),
            page_rows_default: 5_000,
            page_bytes_default: 1 << 20,
            mutation_bytes_max: 1 << 20,
        },
        guardrails: crate::config::GuardrailsConfig::default().of_requests(),
        admission: Arc::new(Admission::new(10_000, 64 << 20)),
        lanes: 1,
    };
    let start = |at: usize| {
        let vfs = MemoryVfs::new();
        vfs.create_dir(std::path::Path::new("data")).unwrap();
        Node::start(settings(at), Arc::new(vfs))
    };
    let started = tokio::time::timeout(PATIENCE, join_all((0..3).map(start))).await.expect("born in time");
    let nodes: Vec<Node> = started.into_iter().map(Result::unwrap).collect();
    for entry in [keyspace(), table()] {
        let epoch = nodes[0].log.propose(entry, PATIENCE).await.unwrap().epoch;
        eventually(|| nodes.iter().all(|node| node.shared.cluster.load().epoch() >= epoch)).await;
    }
    eventually(|| nodes.iter().all(|node| node.shared.peers.alive().len() == 3)).await;
    nodes.into_iter().zip(addresses.into_iter().skip(3)).collect()
}

fn keyspace() -> Entry {
    Entry::CreateKeyspace(CreateKeyspace { name: "ks".into(), replication: BTreeMap::new(), if_not_exists: false })
}

fn table() -> Entry {
    let column = |name: &str, ty, kind| ColumnDefinition { name: name.into(), ty, kind };
    let columns =
        vec![column("id", Type::Int, ColumnKind::PartitionKey), column("value", Type::Text, ColumnKind::Regular)];
    let (keyspace, name, options) = ("ks".into(), "t".into(), TableOptions::default());
    let table = CreateTable { keyspace, name, columns, options, if_not_exists: false };
    Entry::CreateTable { id: TableId(uuid::Uuid::from_u128(1)), table }
}

fn write(id: i64) -> v1::MutateRequest {
    let key = v1::Value { kind: Some(v1::value::Kind::Integer(id)) };
    let row = v1::RowWrite::default();
    let change = v1::Change { op: Some(v1::change::Op::Insert(row)), ..v1::Change::default() };
    let table = v1::TableRef { keyspace: "ks".into(), name: "t".into(), ..v1::TableRef::default() };
    v1::MutateRequest {
        options: Some(v1::Options { consistency: v1::Consistency::Quorum.into(), ..v1::Options::default() }),
        mutation: Some(v1::Mutation { table: Some(table), partition: vec![key], changes: vec![change] }),
    }
}

async fn eventually(is_so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    waited.await.expect("it became so in time");
}

/// Writes over a Pipe, one after the other, until the node says that it stops; answers what it said.
async fn write_until_refused(address: String, written: Arc<AtomicU64>) -> v1::Error {
    let mut client = DataClient::connect(format!("http://{address}")).await.unwrap();
    let (requests, receiver): (Sender<v1::PipeRequest>, _) = mpsc::channel(1);
    let mut answers = client.pipe(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    for id in 1.. {
        let operation = v1::PipeOperation { id, timeout_ms: 0, op: Some(Op::Mutate(write(id as i64))) };
        requests.send(v1::PipeRequest { operations: vec![operation] }).await.unwrap();
        let answer = answers.message().await.unwrap().unwrap().answers.remove(0);
        match answer.result {
            Some(Answer::Write(_)) => written.fetch_add(1, Ordering::Relaxed),
            Some(Answer::Error(error)) => return error,
            other => panic!("{other:?}"),
        };
    }
    panic!("it was never refused");
}

/// Writes through a node until told to end; answers the errors.
async fn write_on(address: String, written: Arc<AtomicU64>, end: Arc<AtomicBool>) -> Vec<Status> {
    let mut client = DataClient::connect(format!("http://{address}")).await.unwrap();
    let mut errors = Vec::new();
    let mut id = 1_000_000;
    while !end.load(Ordering::Relaxed) {
        id += 1;
        match client.mutate(write(id)).await {
            Ok(_) => drop(written.fetch_add(1, Ordering::Relaxed)),
            Err(error) => errors.push(error),
        }
    }
    errors
}

/// An open Pipe and the requests of other nodes kept a stopping node busy until its patience ended, and what came while it
/// flushed was never answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_stops_soon_while_its_clients_and_peers_go_on() {
    let mut nodes = cluster().await;
    let (stopping, address) = nodes.pop().unwrap();
    let (own, others, end) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let refused = tokio::spawn(write_until_refused(address, own.clone()));
    let errors = tokio::spawn(write_on(nodes[0].1.clone(), others.clone(), end.clone()));
    eventually(|| own.load(Ordering::Relaxed) > 20 && others.load(Ordering::Relaxed) > 20).await;
    let began = clock::now();
    stopping.stop().await.unwrap();
    assert!(clock::now().since_us(began) < STOP_PATIENCE.as_micros() as u64 / 2);
    let refused = refused.await.unwrap();
    assert_eq!((refused.status_code(), refused.outcome()), (Code::Unavailable, v1::Outcome::NotApplied));
    let before = others.load(Ordering::Relaxed);
    eventually(|| others.load(Ordering::Relaxed) > before + 20).await;
    assert_eq!(nodes[0].0.shared.peers.alive().len(), 2);
    end.store(true, Ordering::Relaxed);
    let errors = errors.await.unwrap();
    assert!(errors.is_empty(), "a quorum was there all the time: {errors:?}");
    for (node, _) in nodes {
        node.stop().await.unwrap();
    }
}
