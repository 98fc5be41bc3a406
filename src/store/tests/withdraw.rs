//! A replica that has lost something: nothing of it is read or told, and what is left goes before it comes anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{KEYSPACE, Node, OTHER, identity, read_partition};
use crate::compaction::{Pace, Proceed, Unpaced};
use crate::model::naive::{TABLE, partition_key, rows, value};
use crate::model::{Direction, MutationName, NodeId, Stamp, Vnode};
use crate::received::told::{Floors, Told};
use crate::received::{ReceivedSet, Slice};
use crate::snapshot::Cause;
use crate::store::{Access, Cleared, SnapshotScope};
use crate::{Class, Error};

fn slice(partition: u8) -> Slice {
    (KEYSPACE, identity().vnode_bits.vnode(partition_key(partition).token()))
}

/// Two partitions in different vnodes.
fn apart() -> (u8, u8) {
    let other = (1..50).find(|other| slice(*other) != slice(0)).unwrap();
    (0, other)
}

/// Rows in two vnodes and two tables, in files, in memory, and in the log behind what is flushed.
fn node() -> Node {
    let (lost, kept) = apart();
    let mut node = Node::new();
    for partition in [lost, kept] {
        node.write(&rows(partition, [(1, value("file", 1))]));
        node.write(&crate::model::Mutation { table: OTHER, ..rows(partition, [(1, value("file", 1))]) });
    }
    node.flush();
    for partition in [lost, kept] {
        node.write(&rows(partition, [(2, value("memory", 2))]));
    }
    node
}

fn lost_vnode() -> BTreeSet<Vnode> {
    [slice(apart().0).1].into()
}

fn withdraw(node: &Node) {
    node.store.withdraw(&BTreeMap::from([(slice(apart().0), 4)])).unwrap();
}

/// What is left of the tables, whatever may be read.
fn is_withdrawn(node: &Node) {
    let (lost, kept) = apart();
    for access in [Access::Disk, Access::CachedOnly] {
        let refused = node.store.read(&read_partition(lost, Vec::new(), Direction::Forward), access).unwrap_err();
        assert!(matches!(refused, Error::Withdrawn { vnode, .. } if vnode == slice(lost).1), "{refused}");
        assert_eq!(refused.class(), Class::Unavailable);
    }
    assert_eq!(node.read(read_partition(kept, Vec::new(), Direction::Forward)).len(), 3);
    assert_eq!(*node.store.withdrawn(), BTreeMap::from([(slice(lost), 4)]));
    assert_eq!(node.store.received_of(slice(lost)), ReceivedSet::default());
    assert!(!node.store.received_of(slice(kept)).is_empty());
    let backup = node.store.create_backup_snapshot(uuid::Uuid::nil(), SnapshotScope::All, 1);
    assert!(matches!(backup, Err(Error::Withdrawn { .. })), "it could not hold this node's part");
}

fn told(sequences: impl IntoIterator<Item = u64>) -> Told {
    let mut set = ReceivedSet::default();
    for sequence in sequences {
        set.add(MutationName { origin: NodeId(9), incarnation: 1, sequence });
    }
    Told::new(set, Floors::default())
}

#[test]
fn what_was_withdrawn_is_neither_read_nor_told_though_the_log_is_replayed() {
    let mut node = node();
    withdraw(&node);
    is_withdrawn(&node);
    // A comparison with another replica that was begun before adds nothing.
    let adopted = node.store.adopt(slice(apart().0), told([1]).set());
    assert!(matches!(adopted, Err(Error::Invalid { .. })));
    // What comes meanwhile, on its way into the log before anybody knew, is not told either.
    node.write(&rows(apart().0, [(3, value("late", 3))]));
    is_withdrawn(&node);
    let node = node.checked();
    is_withdrawn(&node);
}

#[test]
fn only_what_was_withdrawn_goes_and_is_kept_aside_once() {
    let node = node();
    let (lost, kept) = apart();
    withdraw(&node);
    assert_eq!(node.store.clear_withdrawn(KEYSPACE, &lost_vnode(), 5_000_000, &Unpaced).unwrap(), Cleared::Whole);
    assert_eq!(node.store.clear_withdrawn(KEYSPACE, &lost_vnode(), 6_000_000, &Unpaced).unwrap(), Cleared::Whole);
    let snapshots = node.store.snapshots();
    let own: Vec<_> = snapshots.whole.values().filter(|snapshot| snapshot.cause == Cause::BeforeRebuild).collect();
    assert_eq!(own.len(), 2, "one of each table");
    assert!(own.iter().all(|snapshot| snapshot.cause.is_own() && snapshot.name.ends_with("-4")));
    for table in [TABLE, OTHER] {
        let view = node.store.memory.tables.load().get(&table).unwrap().view();
        let vnodes: Vec<Vnode> =
            view.files.iter().flat_map(|file| file.sstable.vnodes().spans.iter().map(|span| span.vnode)).collect();
        assert!(!vnodes.is_empty() && vnodes.iter().all(|vnode| *vnode == slice(kept).1), "{vnodes:?}");
    }
    let node = node.checked();
    // Nothing was logged since the start, and the log still holds what was told once.
    node.store.rebuilt(slice(lost), &told([1]), Stamp(7)).unwrap();
    let node = node.checked();
    assert_eq!(node.store.received_of(slice(lost)), *told([1]).set());
    assert_eq!(node.read(read_partition(lost, Vec::new(), Direction::Forward)), []);
    assert_eq!(node.read(read_partition(kept, Vec::new(), Direction::Forward)).len(), 3);
}

#[test]
fn what_was_rebuilt_has_the_names_of_its_sources_and_none_of_its_own_from_before() {
    let (lost, _) = apart();
    let node = node();
    withdraw(&node);
    node.store.clear_withdrawn(KEYSPACE, &lost_vnode(), 5_000_000, &Unpaced).unwrap();
    node.store.rebuilt(slice(lost), &told([1, 2]), Stamp(7)).unwrap();
    let check = |node: &Node, names: &[(u32, u64)]| {
        let set = node.store.received_of(slice(lost));
        let has = |origin, sequence| set.contains(MutationName { origin: NodeId(origin), incarnation: 1, sequence });
        assert!(names.iter().all(|(origin, sequence)| has(*origin, *sequence)), "{set:?}");
        assert_eq!(set.count(), names.len() as u64, "{set:?}");
        assert!(node.store.withdrawn().is_empty());
        assert_eq!(node.store.saved_purged_through()[&slice(lost)], Stamp(7));
    };
    check(&node, &[(9, 1), (9, 2)]);
    let mut node = node.checked();
    check(&node, &[(9, 1), (9, 2)]);
    // What comes from now on counts.
    node.sequence = 50;
    node.write(&rows(lost, [(4, value("new", 4))]));
    check(&node, &[(9, 1), (9, 2), (5, 51)]);
    let node = node.checked();
    check(&node, &[(9, 1), (9, 2), (5, 51)]);
    assert_eq!(node.read(read_partition(lost, Vec::new(), Direction::Forward)).len(), 2);
}

/// A flush had taken the sets for its edit before the withdrawal, and listed them behind it.
#[test]
fn an_edit_that_was_prepared_before_a_withdrawal_brings_no_names_back() {
    use crate::store::change::{Change, State};
    let (keyspace, vnode) = slice(apart().0);
    let mut state = State::default();
    let received = |names| Change::Received(keyspace, vnode, told(names).set().clone());
    state.apply(vec![received(1..3), Change::Withdrawn(keyspace, vnode, 4)]).unwrap();
    state.apply(vec![received(1..3)]).unwrap();
    assert!(state.received.is_empty());
    let mut again = State::default();
    again.apply(state.as_edit()).unwrap();
    assert_eq!(again, state);
    state.apply(vec![Change::Rebuilt(keyspace, vnode, Default::default()), received(5..6)]).unwrap();
    assert_eq!(state.received[&(keyspace, vnode)], *told([5]).set());
}

/// A stop in the midst leaves what was there, and the next attempt goes on.
#[test]
fn clearing_that_is_stopped_goes_on_later() {
    struct Never;
    impl Pace for Never {
        fn spend(&self, _: u64) -> Proceed {
            Proceed::Stop
        }
    }
    let node = node();
    withdraw(&node);
    let stopped = node.store.clear_withdrawn(KEYSPACE, &lost_vnode(), 5_000_000, &Never);
    assert!(matches!(stopped, Err(Error::Stopped)));
    let node = node.checked();
    is_withdrawn(&node);
    assert_eq!(node.store.clear_withdrawn(KEYSPACE, &lost_vnode(), 6_000_000, &Unpaced).unwrap(), Cleared::Whole);
}

/// Power is lost at each call of withdrawal, clearing and rebuild in turn: afterwards the slice is whole as it was, withdrawn, or
/// rebuilt, and never told with names that it lost.
#[test]
fn a_withdrawal_survives_the_loss_of_power_at_every_call() {
    use crate::vfs::memory::MemoryVfs;
    let (lost, _) = apart();
    let mut at = 0;
    loop {
        let vfs = Arc::new(MemoryVfs::new());
        let mut node = Node::on(vfs.clone());
        for partition in [lost, apart().1] {
            node.write(&rows(partition, [(1, value("file", 1))]));
        }
        node.flush();
        node.write(&rows(lost, [(2, value("memory", 2))]));
        let begun = vfs.operations();
        vfs.power_off_at(begun + at);
        let run = || -> crate::Result<()> {
            node.store.withdraw(&BTreeMap::from([(slice(lost), 4)]))?;
            node.store.clear_withdrawn(KEYSPACE, &lost_vnode(), 5_000_000, &Unpaced)?;
            node.store.rebuilt(slice(lost), &told([1]), Stamp(7))
        };
        let done = run();
        drop(node.store);
        vfs.crash(at);
        let node = Node { sequence: 9, ..Node::opened(vfs, node.tables, identity()) };
        let set = node.store.received_of(slice(lost));
        let own = set.contains(MutationName { origin: NodeId(5), incarnation: 1, sequence: 1 });
        match (node.store.withdrawn().is_empty(), own) {
            (true, true) => assert_eq!(node.read(read_partition(lost, Vec::new(), Direction::Forward)).len(), 3),
            (true, false) => assert_eq!(set, *told([1]).set()),
            (false, own) => assert!(!own && set.is_empty(), "{set:?}"),
        }
        if done.is_ok() {
            assert!(at > 10, "{at} calls");
            return;
        }
        at += 1;
    }
}
