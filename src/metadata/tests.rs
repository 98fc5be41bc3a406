//! The laws of entries and states on random histories, and every refusal by name.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroU64};

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use uuid::Uuid;

use super::*;
use crate::model::{
    AlterTable, ColumnDefinition, ColumnKind, CompactionOptions, CreateKeyspace, CreateTable, DropKeyspace, DropTable,
    Durability, OptionChanges, Order, Scaling, TableOptions, Token, TruncateTable, Type, Vnode, VnodeBits,
};
use crate::ring::Zone;

mod alter;
mod restore;
mod types;

fn member(number: u32, region: &str, zone: &str) -> Member {
    Member {
        zone: Zone { region: region.into(), name: zone.into() },
        peer_address: format!("10.0.0.{number}:9441"),
        client_address: format!("10.0.0.{number}:9440"),
    }
}

fn seed() -> Birth {
    let places = [("eu", "a"), ("eu", "b"), ("eu", "c"), ("us", "x"), ("eu", "a")];
    Birth {
        cluster: Uuid::from_u128(7),
        name: "demo".into(),
        vnode_bits: VnodeBits::new(4).unwrap(),
        members: places.iter().zip(1..).map(|((region, zone), number)| member(number, region, zone)).collect(),
    }
}

fn at(index: u64) -> Epoch {
    Epoch { generation: 0, index }
}

fn column(name: &str, ty: Type, kind: ColumnKind) -> ColumnDefinition {
    ColumnDefinition { name: name.into(), ty, kind }
}

fn create_keyspace(name: &str, replication: &[(&str, u32)]) -> Entry {
    let replication = replication.iter().map(|&(region, copies)| (region.to_string(), copies)).collect();
    Entry::CreateKeyspace(CreateKeyspace { name: name.into(), replication, if_not_exists: false })
}

fn simple_table(keyspace: &str, name: &str) -> CreateTable {
    CreateTable {
        keyspace: keyspace.into(),
        name: name.into(),
        columns: vec![
            column("id", Type::Uuid, ColumnKind::PartitionKey),
            column("at", Type::Timestamp, ColumnKind::Clustering(Order::Descending)),
            column("owner", Type::Text, ColumnKind::Static),
            column("value", Type::Double, ColumnKind::Regular),
        ],
        options: TableOptions::default(),
        if_not_exists: false,
    }
}

fn create_table(id: u128, table: CreateTable) -> Entry {
    Entry::CreateTable { id: TableId(Uuid::from_u128(id)), table }
}

/// A state with keyspace `ks` and table `ks.t`, and the index that comes next.
fn with_table() -> ClusterState {
    let state = birth(&seed()).unwrap();
    let (state, verdict) = apply(&state, at(2), &create_keyspace("ks", &[("eu", 3)]));
    assert_eq!(verdict, Ok(Applied::Changed));
    let (state, verdict) = apply(&state, at(3), &create_table(1, simple_table("ks", "t")));
    assert_eq!(verdict, Ok(Applied::Changed));
    state
}

fn refused(entry: &Entry) -> Refusal {
    let state = with_table();
    let (next, verdict) = apply(&state, at(4), entry);
    assert_eq!(next, ClusterState { epoch: at(4), ..state }, "a refused entry changes only the epoch");
    verdict.unwrap_err()
}

fn table_refused(change: impl FnOnce(&mut CreateTable)) -> Refusal {
    let mut table = simple_table("ks", "u");
    change(&mut table);
    refused(&create_table(2, table))
}

fn any_name() -> impl Strategy<Value = String> {
    select(vec!["a", "a", "a", "a", "b", "b", "C_3", "", "ä"]).prop_map(String::from)
}

fn any_column() -> impl Strategy<Value = ColumnDefinition> {
    let kind = select(vec![
        ColumnKind::PartitionKey,
        ColumnKind::Clustering(Order::Ascending),
        ColumnKind::Clustering(Order::Descending),
        ColumnKind::Static,
        ColumnKind::Regular,
    ]);
    (select(vec!["p", "q", "r", "s", "t"]), select(Type::SCALARS.to_vec()), kind)
        .prop_map(|(name, ty, kind)| column(name, ty, kind))
}

fn any_options() -> impl Strategy<Value = TableOptions> {
    let durability = select(vec![Durability::Commit, Durability::Periodic]);
    let scaling = prop_oneof![
        Just(Scaling::Neutral),
        (3..=64u8).prop_map(Scaling::Tiered),
        (3..=64u8).prop_map(Scaling::Leveled)
    ];
    let compaction = (vec(scaling, 1..4), 1..=1u32 << 20, any::<u32>())
        .prop_map(|(scaling, mib, window_s)| CompactionOptions::new(scaling, mib, NonZeroU32::new(window_s)).unwrap());
    let compaction = prop_oneof![Just(CompactionOptions::default()), compaction];
    (0u32..650_000_000, any::<u32>(), durability, ".{0,5}", compaction).prop_map(
        |(default_ttl_s, lateness_s, durability, comment, compaction)| TableOptions {
            default_ttl_s,
            lateness_s,
            durability,
            comment,
            compaction,
        },
    )
}

fn any_table() -> impl Strategy<Value = CreateTable> {
    let columns = prop_oneof![3 => Just(simple_table("a", "a").columns), 1 => vec(any_column(), 0..5)];
    (any_name(), any_name(), columns, any_options(), any::<bool>()).prop_map(
        |(keyspace, name, columns, options, if_not_exists)| CreateTable {
            keyspace,
            name,
            columns,
            options,
            if_not_exists,
        },
    )
}

/// Names of the columns of most tables, and others.
fn any_column_name() -> impl Strategy<Value = String> {
    select(vec!["id", "at", "owner", "value", "value", "p", "q", "r"]).prop_map(String::from)
}

fn any_alter() -> impl Strategy<Value = AlterTable> {
    let set = (any_options(), any::<[bool; 4]>()).prop_map(|(options, [ttl, durability, comment, compaction])| {
        OptionChanges {
            default_ttl_s: ttl.then_some(options.default_ttl_s),
            durability: durability.then_some(options.durability),
            comment: comment.then_some(options.comment),
            compaction: compaction.then_some(options.compaction),
        }
    });
    let set = prop_oneof![3 => Just(OptionChanges::default()), 1 => set];
    let add = (any_column(), any::<bool>()).prop_map(|(column, regular)| match regular {
        true => ColumnDefinition { kind: ColumnKind::Regular, ..column },
        false => column,
    });
    let version = prop_oneof![3 => Just(0u64), 1 => 1u64..4];
    let rename = vec((any_column_name(), any_column_name()), 0..2);
    let parts = (any_name(), any_name(), version, rename, vec(any_column_name(), 0..2), vec(add, 0..2), set);
    (parts, any::<bool>()).prop_map(|((keyspace, name, version, rename, drop, add, set), if_exists)| AlterTable {
        keyspace,
        name,
        expected_version: NonZeroU64::new(version),
        rename,
        drop,
        add,
        set,
        if_exists,
    })
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let regions = select(vec!["eu", "us", "mars"]).prop_map(String::from);
    let keyspace = (any_name(), btree_map(regions, 0u32..5, 0..2), any::<bool>());
    prop_oneof![
        1 => (0u32..8).prop_map(|node| Entry::NodeStarted(NodeId(node))),
        1 => (0u32..8, btree_map(0u32..20, 0u64..4, 0..5)).prop_map(|(node, vnodes)| {
            let vnodes = vnodes.into_iter().map(|(vnode, placement)| (Vnode(vnode), placement)).collect();
            Entry::Withdrawn { node: NodeId(node), vnodes }
        }),
        4 => keyspace.prop_map(|(name, replication, if_not_exists)| {
            Entry::CreateKeyspace(CreateKeyspace { name, replication, if_not_exists })
        }),
        2 => (any_name(), any::<bool>())
            .prop_map(|(name, if_exists)| Entry::DropKeyspace(DropKeyspace { name, if_exists })),
        5 => (0u128..30, any_table()).prop_map(|(id, table)| create_table(id, table)),
        3 => (any_name(), any_name(), any::<bool>())
            .prop_map(|(keyspace, name, if_exists)| Entry::DropTable(DropTable { keyspace, name, if_exists })),
        8 => any_alter().prop_map(Entry::AlterTable),
        3 => (0u128..30, any_name(), any_name()).prop_map(|(id, keyspace, name)| Entry::TruncateTable {
            id: TableId(Uuid::from_u128(id)),
            table: TruncateTable { keyspace, name },
        }),
    ]
}

/// Table ids that are or were in use.
fn spent(state: &ClusterState) -> BTreeSet<TableId> {
    state.tables().map(|table| table.id).chain(state.dropped.iter().copied()).collect()
}

proptest! {
    #[test]
    fn histories_are_deterministic_and_keep_every_invariant(
        entries in vec(any_entry(), 0..60),
        token in any::<i64>(),
    ) {
        let mut state = birth(&seed()).unwrap();
        for (entry, index) in entries.iter().zip(2..) {
            let bytes = entry.encode();
            prop_assert_eq!(&Entry::decode(bytes.into()).unwrap(), entry);
            let (next, verdict) = apply(&state, at(index), entry);
            prop_assert_eq!(apply(&state, at(index), entry), (next.clone(), verdict.clone()));
            prop_assert!(next.check().is_ok());
            prop_assert!(spent(&next).is_superset(&spent(&state)), "no table id is forgotten");
            if verdict != Ok(Applied::Changed) {
                prop_assert_eq!(&next, &ClusterState { epoch: at(index), ..state.clone() });
            }
            if let Err(refusal) = verdict {
                prop_assert_eq!(Refusal::decode(refusal.encode().into()).unwrap(), refusal);
            }
            let bytes = next.encode();
            let decoded = ClusterState::decode(bytes.clone().into()).unwrap();
            prop_assert_eq!(decoded.encode(), bytes);
            prop_assert_eq!(&decoded, &next);
            for keyspace in next.keyspaces() {
                let replicas = next.ring().replicas(keyspace, Token(token));
                let zones: BTreeSet<_> = replicas.nodes.iter().map(|replica| replica.zone).collect();
                prop_assert_eq!(zones.len(), replicas.len());
                prop_assert!(!replicas.is_empty());
            }
            state = next;
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_another_value_and_never_a_panic(
        entry in any_entry(),
        place in any::<prop::sample::Index>(),
        flip in 1u8..,
        cut in any::<prop::sample::Index>(),
    ) {
        for bytes in [entry.encode(), with_table().encode()] {
            let mut flipped = bytes.clone();
            flipped[place.index(bytes.len())] ^= flip;
            let flipped = Bytes::from(flipped);
            if let Ok(entry) = Entry::decode(flipped.clone()) {
                prop_assert_eq!(entry.encode(), &flipped[..], "one value has one encoding");
            }
            if let Ok(state) = ClusterState::decode(flipped.clone()) {
                prop_assert_eq!(state.encode(), &flipped[..], "one value has one encoding");
            }
            let cut = Bytes::from(bytes.clone()).slice(..cut.index(bytes.len()));
            prop_assert!(Entry::decode(cut.clone()).is_err());
            prop_assert!(ClusterState::decode(cut).is_err());
        }
    }
}

#[test]
fn a_cluster_is_born_with_its_nodes_numbered_in_order() {
    let state = birth(&seed()).unwrap();
    let ids: Vec<u32> = state.ring().nodes().map(|node| node.id.0).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    assert_eq!(state.ring().zones_in("eu"), 3);
    assert_eq!(state.epoch(), at(0));
}

#[test]
fn contradicting_members_make_no_cluster() {
    let reason = |change: fn(&mut Birth)| {
        let mut seed = seed();
        change(&mut seed);
        birth(&seed).unwrap_err().reason
    };
    assert_eq!(reason(|seed| seed.members.clear()), Reason::BadMembers);
    assert_eq!(reason(|seed| seed.members[1].peer_address = "10.0.0.1:9441".into()), Reason::BadMembers);
    assert_eq!(reason(|seed| seed.members[1].client_address = String::new()), Reason::BadMembers);
    assert_eq!(reason(|seed| seed.members[1].zone.name = "a/b".into()), Reason::BadName);
    assert_eq!(reason(|seed| seed.name = String::new()), Reason::BadName);
}

#[test]
fn every_refusal_says_its_reason() {
    let reason = |entry| refused(&entry).reason;
    assert_eq!(reason(Entry::NodeStarted(NodeId(6))), Reason::UnknownNode);
    assert_eq!(reason(Entry::Withdrawn { node: NodeId(6), vnodes: [(Vnode(0), 1)].into() }), Reason::UnknownNode);
    assert_eq!(reason(create_keyspace("ks", &[])), Reason::Exists);
    assert_eq!(reason(create_keyspace("k", &[("mars", 1)])), Reason::UnknownRegion);
    assert_eq!(reason(create_keyspace("k", &[("us", 2)])), Reason::BadCopies);
    assert_eq!(reason(create_keyspace("k", &[("us", 0)])), Reason::BadCopies);
    assert_eq!(reason(create_keyspace(&"k".repeat(49), &[])), Reason::BadName);
    assert_eq!(reason(create_table(2, simple_table("none", "t"))), Reason::UnknownKeyspace);
    assert_eq!(reason(create_table(2, simple_table("ks", "t"))), Reason::Exists);
    assert_eq!(reason(create_table(1, simple_table("ks", "u"))), Reason::Exists, "the id is taken");
    let drop = |keyspace: &str| DropTable { keyspace: keyspace.into(), name: "u".into(), if_exists: false };
    assert_eq!(reason(Entry::DropTable(drop("ks"))), Reason::UnknownTable);
    assert_eq!(reason(Entry::DropTable(drop("none"))), Reason::UnknownKeyspace);
    let drop = DropKeyspace { name: "none".into(), if_exists: false };
    assert_eq!(reason(Entry::DropKeyspace(drop)), Reason::UnknownKeyspace);
}

#[test]
fn a_table_that_makes_no_sense_is_refused() {
    let reason = |change: fn(&mut CreateTable)| table_refused(change).reason;
    assert_eq!(reason(|table| drop(table.columns.remove(0))), Reason::BadKey);
    assert_eq!(reason(|table| table.columns.swap(0, 1)), Reason::BadKey);
    assert_eq!(reason(|table| drop(table.columns.remove(1))), Reason::BadKey, "static without clustering");
    assert_eq!(reason(|table| table.columns[0].ty = Type::Decimal), Reason::KeyType);
    assert_eq!(reason(|table| table.columns[1].ty = Type::Duration), Reason::KeyType);
    assert_eq!(reason(|table| table.columns[3].name = "at".into()), Reason::DuplicateColumn);
    assert_eq!(reason(|table| table.columns[3].name = "x".repeat(193)), Reason::BadName);
    assert_eq!(reason(|table| table.name = "semi;colon".into()), Reason::BadName);
    assert_eq!(reason(|table| table.options.default_ttl_s = u32::MAX), Reason::BadOption);
    assert_eq!(reason(|table| table.columns[3].ty = Type::Counter), Reason::BadType, "beside one that is none");
    assert_eq!(reason(|table| table.columns[0].ty = Type::Counter), Reason::KeyType);
    let with_ttl = |table: &mut CreateTable| {
        (table.columns[2].ty, table.columns[3].ty) = (Type::Counter, Type::Counter);
        table.options.default_ttl_s = 1;
    };
    assert_eq!(reason(with_ttl), Reason::BadOption);
    assert_eq!(reason(|table| table.options.comment = "x".repeat(5_000)), Reason::BadOption);
    let many = |table: &mut CreateTable| {
        let more = (0..1_000).map(|at| column(&format!("c{at}"), Type::Int, ColumnKind::Regular));
        table.columns.extend(more);
    };
    let refusal = table_refused(many);
    assert_eq!(refusal.reason, Reason::TooMany);
    assert_eq!(refusal.to_string(), "table ks.u: it has 1004 columns, at most 1000 are possible");
}

#[test]
fn what_is_so_already_may_be_asked_for() {
    let state = with_table();
    let mut table = simple_table("ks", "t");
    table.if_not_exists = true;
    let keyspace = CreateKeyspace { name: "ks".into(), replication: BTreeMap::new(), if_not_exists: true };
    let drop_table = |keyspace: &str| DropTable { keyspace: keyspace.into(), name: "u".into(), if_exists: true };
    let asks = [
        create_table(9, table),
        Entry::CreateKeyspace(keyspace),
        Entry::DropKeyspace(DropKeyspace { name: "none".into(), if_exists: true }),
        Entry::DropTable(drop_table("ks")),
        Entry::DropTable(drop_table("none")),
    ];
    for ask in asks {
        let (next, verdict) = apply(&state, at(4), &ask);
        assert_eq!(verdict, Ok(Applied::AlreadySo), "{ask:?}");
        assert_eq!(next, ClusterState { epoch: at(4), ..state.clone() });
    }
}

#[test]
fn a_dropped_keyspace_takes_its_tables_along_and_no_number_comes_back() {
    let state = with_table();
    let table = TableId(Uuid::from_u128(1));
    let drop = Entry::DropKeyspace(DropKeyspace { name: "ks".into(), if_exists: false });
    let (state, verdict) = apply(&state, at(4), &drop);
    assert_eq!(verdict, Ok(Applied::Changed));
    assert_eq!((state.tables().count(), state.is_dropped(table)), (0, true));
    let (state, _) = apply(&state, at(5), &create_keyspace("ks", &[]));
    assert_eq!(state.keyspace_named("ks").unwrap().id, KeyspaceId(2));
    let (state, verdict) = apply(&state, at(6), &create_table(1, simple_table("ks", "t")));
    assert_eq!(verdict.unwrap_err().reason, Reason::Exists, "a late copy of the first request makes no second table");
    let (state, verdict) = apply(&state, at(7), &create_table(2, simple_table("ks", "t")));
    assert_eq!(verdict, Ok(Applied::Changed));
    let keyspace = state.keyspace_named("ks").unwrap();
    assert_eq!(state.tables_in(keyspace).map(|table| table.id.0.as_u128()).collect::<Vec<_>>(), [2]);
    assert_eq!(state.table_named("ks", "t").unwrap().columns[3].id.0, 4);
}

#[test]
fn a_state_whose_invariants_are_broken_is_corrupt() {
    let mut state = with_table();
    state.next_keyspace = 1;
    let error = ClusterState::decode(state.encode().into()).unwrap_err();
    assert!(matches!(&error, Error::Corrupt(_)), "{error}");
    assert!(error.to_string().contains("keyspace ks has number 1 too early"), "{error}");
}

#[test]
fn what_a_node_withdraws_gets_the_next_number_once() {
    let state = birth(&seed()).unwrap();
    let of = NodeId(1);
    let entry = Entry::Withdrawn { node: of, vnodes: (0..4).map(|vnode| (Vnode(vnode), 1)).collect() };
    let (next, verdict) = apply(&state, at(1), &entry);
    assert_eq!(verdict, Ok(Applied::Changed));
    for vnode in (0..4).map(Vnode) {
        let raised = u64::from(state.ring.owns(of, vnode));
        assert_eq!(next.ring.placement(vnode), 1 + raised);
        assert_eq!(next.ring.owners(), state.ring.owners());
    }
    assert_eq!(apply(&next, at(2), &entry).1, Ok(Applied::AlreadySo));
    let elsewhere = Entry::Withdrawn { node: of, vnodes: [(Vnode(1 << 30), 0)].into() };
    assert_eq!(apply(&next, at(2), &elsewhere).1, Ok(Applied::AlreadySo));
}
