//! What a record is held against, and names as they are asked for.
#![allow(clippy::unwrap_used, reason = "tests")]

use trefoil::model::{KeyspaceId, Mutation, MutationName, PartitionKey, TableId, VnodeBits};
use trefoil::received::report::{ReportNumber, SliceReport};
use trefoil::received::told::{Floors, Reconciled, Told};
use trefoil::received::{ReceivedSet, ReceivedSets};
use trefoil::store::StoreOptions;
use trefoil::vfs::memory::MemoryVfs;

use super::*;

const KEYSPACE: KeyspaceId = KeyspaceId(3);
const OTHER: NodeId = NodeId(2);

fn identity() -> Identity {
    Identity { cluster: uuid::Uuid::from_u128(1), node: NodeId(1), vnode_bits: VnodeBits::new(2).unwrap() }
}

fn store() -> Arc<Store> {
    let options = StoreOptions {
        directory: "/node".into(),
        segment_bytes: 1 << 20,
        log_kept_bytes_max: 0,
        memtable_budget_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        snapshots: Default::default(),
    };
    Arc::new(Store::open(Arc::new(MemoryVfs::new()), options, identity(), &[]).unwrap())
}

fn replication(store: &Arc<Store>, closed: i64) -> Replication {
    let heard = HeardClocks::open(Arc::new(MemoryVfs::new()), std::path::Path::new("/node")).unwrap();
    Replication::new(identity(), 1, Stamp(closed), store.clone(), Arc::new(heard), ReplicationSettings::default())
}

fn name(sequence: u64) -> MutationName {
    MutationName { origin: OTHER, incarnation: 7, sequence }
}

/// A record of a table that is not there: it is received without effect.
fn record(kind: RecordKind, stamp: i64) -> CheckedRecord {
    let mutation = Mutation::new(TableId(uuid::Uuid::from_u128(9)), PartitionKey::from_bytes(vec![0, 1].into()));
    CheckedRecord::encode(kind, KEYSPACE, Stamp(stamp), &mutation)
}

fn named(sequence: u64, stamp: i64) -> CheckedRecord {
    record(RecordKind::Named(name(sequence)), stamp)
}

fn slice() -> Slice {
    (KEYSPACE, identity().vnode_bits.vnode(named(1, 1).token()))
}

/// Another replica tells that it has these.
fn tell(replication: &Replication, number: u64, sequences: impl IntoIterator<Item = u64>) {
    let mut set = ReceivedSet::default();
    for sequence in sequences {
        set.add(name(sequence));
    }
    let told = Some(Told::new(set, Floors::default()));
    let report = Report {
        number: ReportNumber { incarnation: 7, number },
        base: 0,
        acked: None,
        closed_through: Stamp(0),
        slices: vec![(slice(), SliceReport { placement: 1, told })],
    };
    replication.exchange.lock().place(slice(), 1, &[NodeId(1), OTHER], clock::now());
    replication.on_report(OTHER, report.encode().into());
}

#[test]
fn a_record_older_than_the_promise_is_refused_unless_another_replica_has_it() {
    let store = store();
    let replication = replication(&store, 100);
    assert_eq!(crate::replica::judge(&replication, &named(1, 101)), Judgement::Apply);
    assert_eq!(crate::replica::judge(&replication, &named(1, 100)), Judgement::TooLate);
    assert_eq!(replication.counts().too_late.load(Ordering::Relaxed), 1);
    tell(&replication, 1, [1]);
    assert_eq!(crate::replica::judge(&replication, &named(1, 100)), Judgement::Apply);
    assert_eq!(crate::replica::judge(&replication, &named(2, 100)), Judgement::TooLate);
}

#[test]
fn a_record_that_is_here_is_acknowledged_and_not_applied_again() {
    let store = store();
    let replication = replication(&store, 100);
    let mut ends = Vec::new();
    store.append(&[named(1, 90)], &mut ends).unwrap();
    store.sync().unwrap();
    store.insert(&named(1, 90), ends[0]).unwrap();
    assert_eq!(replication.judge(&named(1, 90)), Judgement::Received);
}

/// Data without a name that was read before the last deletions were known to be everywhere could bring back what they
/// deleted.
#[test]
fn data_without_a_name_is_refused_once_later_deletions_may_be_gone() {
    let store = store();
    store.save_reconciled(&[(slice(), Reconciled { through: Stamp(80), floors: Floors::default() })]).unwrap();
    store.raise_purged_through(&[(slice().0, slice().1, Stamp(50))]).unwrap();
    let replication = replication(&store, 100);
    let nameless = |through: i64| record(RecordKind::Nameless { composer: OTHER, known_through: Stamp(through) }, 500);
    assert_eq!(crate::replica::judge(&replication, &nameless(49)), Judgement::TooLate);
    assert_eq!(crate::replica::judge(&replication, &nameless(50)), Judgement::Apply);
    // What this node says of data that it has read itself.
    assert_eq!(replication.known_through(slice()), Stamp(80));
}

/// What is told to be closed is below whatever is on its way into the log.
#[test]
fn nothing_is_told_that_may_still_come() {
    let store = store();
    let replication = replication(&store, 0);
    store.begin_append(Stamp(40));
    replication.close(Stamp(60));
    assert_eq!(replication.published(), Stamp(60));
    assert_eq!(replication.exchange.lock().report_for(OTHER).closed_through, Stamp(39));
    store.cancel_append();
    replication.close(Stamp(70));
    assert_eq!(replication.exchange.lock().report_for(OTHER).closed_through, Stamp(70));
}

#[test]
fn wanted_names_are_read_as_they_were_written_and_nothing_else_is() {
    let mut names = ReceivedSets::new();
    for (keyspace, vnode) in [(0, 3), (3, 0), (3, 4_000)] {
        let set = names.entry((KeyspaceId(keyspace), Vnode(vnode))).or_default();
        for sequence in (1..=u64::from(vnode) % 97 + 9).filter(|sequence| sequence % 3 != 0) {
            set.add(name(sequence));
        }
    }
    let bytes = wanted::encode(&names);
    assert_eq!(wanted::decode(bytes.clone().into()).unwrap(), names);
    for cut in 0..bytes.len() {
        assert!(wanted::decode(Bytes::copy_from_slice(&bytes[..cut])).is_err(), "cut at {cut}");
    }
    for (at, flip) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))) {
        let mut other = bytes.clone();
        other[at] ^= flip;
        if let Ok(read) = wanted::decode(other.into()) {
            assert_eq!(wanted::decode(wanted::encode(&read).into()).unwrap(), read);
        }
    }
}
