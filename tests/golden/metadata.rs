//! Entries of the metadata log, and the state of a cluster.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use trefoil::metadata::{Applied, Birth, ClusterState, Entry, Epoch, Member, apply, birth};
use trefoil::model::{
    AlterTable, AlterType, ColumnDefinition, ColumnKind, CompactionOptions, CreateKeyspace, CreateTable, CreateType,
    DropKeyspace, DropTable, DropType, Durability, Field, NodeId, OptionChanges, Order, Scaling, TableId, TableOptions,
    TruncateTable, Type, UserType, Vnode, VnodeBits,
};
use trefoil::ring::Zone;
use uuid::Uuid;

use crate::kept::golden;

fn table(id: u128, name: &str) -> Entry {
    let column = |name: &str, ty, kind| ColumnDefinition { name: name.into(), ty, kind };
    let table = CreateTable {
        keyspace: "shop".into(),
        name: name.into(),
        columns: vec![
            column("customer", Type::Uuid, ColumnKind::PartitionKey),
            column("year", Type::SmallInt, ColumnKind::PartitionKey),
            column("placed", Type::Timestamp, ColumnKind::Clustering(Order::Descending)),
            column("line", Type::Int, ColumnKind::Clustering(Order::Ascending)),
            column("name", Type::Text, ColumnKind::Static),
            column("price", Type::Decimal, ColumnKind::Regular),
        ],
        options: TableOptions {
            default_ttl_s: 86_400,
            lateness_s: 3_600,
            durability: Durability::Periodic,
            comment: "what was bought".into(),
            ..TableOptions::default()
        },
        if_not_exists: true,
    };
    Entry::CreateTable { id: TableId(Uuid::from_u128(id)), table }
}

fn alter_table() -> AlterTable {
    AlterTable {
        keyspace: "shop".into(),
        name: "orders".into(),
        expected_version: NonZeroU64::new(1),
        rename: vec![("placed".into(), "at".into())],
        drop: vec!["name".into(), "price".into()],
        add: vec![ColumnDefinition { name: "price".into(), ty: Type::VarInt, kind: ColumnKind::Regular }],
        set: OptionChanges {
            default_ttl_s: Some(3_600),
            durability: Some(Durability::Commit),
            comment: Some("what was paid".into()),
            compaction: Some(CompactionOptions::default()),
        },
        if_exists: true,
    }
}

fn address() -> UserType {
    let field = |name: &str, ty| Field { name: name.into(), ty };
    let lines = Type::List { element: Arc::new(Type::Text), frozen: true };
    UserType { fields: vec![field("lines", lines), field("zip", Type::Ascii)], ..UserType::named("shop", "address") }
}

fn alter_type() -> AlterType {
    let planet = Field { name: "planet".into(), ty: Type::Text };
    let rename = vec![("zip".into(), "code".into())];
    AlterType { keyspace: "shop".into(), name: "address".into(), rename, add: vec![planet] }
}

/// One entry of every kind, in an order in which each has its effect.
fn entries() -> [(&'static str, Entry); 11] {
    let replication = BTreeMap::from([("eu".to_string(), 2), ("us".to_string(), 1)]);
    let create_keyspace = CreateKeyspace { name: "shop".into(), replication, if_not_exists: false };
    let (keyspace, name) = ("shop".to_owned(), "address".to_owned());
    let truncate = TruncateTable { keyspace: "shop".into(), name: "orders".into() };
    let id = TableId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00b1));
    let drop_table = DropTable { keyspace: "shop".into(), name: "orders".into(), if_exists: false };
    [
        ("metadata-node-started", Entry::NodeStarted(NodeId(2))),
        ("metadata-create-keyspace", Entry::CreateKeyspace(create_keyspace)),
        ("metadata-create-table", table(0x0190_0000_0000_7000_8000_0000_0000_00a1, "orders")),
        ("metadata-alter-table", Entry::AlterTable(alter_table())),
        ("metadata-truncate-table", Entry::TruncateTable { id, table: truncate }),
        ("metadata-create-type", Entry::CreateType(CreateType { definition: address(), if_not_exists: false })),
        ("metadata-alter-type", Entry::AlterType(alter_type())),
        ("metadata-drop-type", Entry::DropType(DropType { keyspace, name, if_exists: true })),
        ("metadata-drop-table", Entry::DropTable(drop_table)),
        ("metadata-drop-keyspace", Entry::DropKeyspace(DropKeyspace { name: "shop".into(), if_exists: true })),
        (
            "metadata-withdrawn",
            Entry::Withdrawn { node: NodeId(2), vnodes: [(Vnode(0), 1), (Vnode(7), 300), (Vnode(1023), 1)].into() },
        ),
    ]
}

fn newborn() -> ClusterState {
    let members =
        [("eu", "a"), ("eu", "b"), ("us", "x"), ("eu", "a")].iter().zip(1..).map(|((region, zone), at)| Member {
            zone: Zone { region: region.to_string(), name: zone.to_string() },
            peer_address: format!("10.0.0.{at}:9441"),
            client_address: format!("10.0.0.{at}:9440"),
        });
    birth(&Birth {
        cluster: Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00c1),
        name: "demo".into(),
        vnode_bits: VnodeBits::new(3).expect("few"),
        members: members.collect(),
    })
    .expect("a cluster")
}

fn after(state: &ClusterState, index: u64, entry: &Entry) -> ClusterState {
    let (next, verdict) = apply(state, Epoch { generation: 0, index }, entry);
    assert_eq!(verdict, Ok(Applied::Changed), "{entry:?}");
    next
}

#[test]
fn entries_are_kept() {
    for (name, entry) in entries() {
        assert_eq!(Entry::decode(golden(name, &entry.encode())).expect("an entry"), entry, "{name}");
    }
}

/// Options of compaction that are not the default ones, which a table made before they existed does not have.
#[test]
fn options_of_compaction_are_kept() {
    let Entry::CreateTable { id, mut table } = table(0x0190_0000_0000_7000_8000_0000_0000_00a3, "carts") else {
        panic!("an entry that makes a table");
    };
    let scaling = vec![Scaling::Tiered(4), Scaling::Neutral, Scaling::Leveled(10)];
    table.options.compaction = CompactionOptions::new(scaling, 512, NonZeroU32::new(86_400)).expect("possible");
    let entry = Entry::CreateTable { id, table };
    let kept = golden("metadata-create-table-compaction", &entry.encode());
    assert_eq!(Entry::decode(kept).expect("an entry"), entry);
}

/// The placement of a new cluster is kept with it: nodes of different builds must share the vnodes out alike.
#[test]
fn a_state_is_kept() {
    let [started, keyspace, orders, _, _, _, _, _, drop, ..] = entries().map(|(_, entry)| entry);
    let mut state = newborn();
    let again = table(0x0190_0000_0000_7000_8000_0000_0000_00a2, "orders");
    for (entry, index) in [started, keyspace, orders, drop, again].iter().zip(3..) {
        state = after(&state, index, entry);
    }
    let kept = golden("cluster-state", &state.encode());
    assert_eq!(ClusterState::decode(kept).expect("a state"), state);
}

/// A state with types is of another version.
#[test]
fn a_state_with_types_is_kept() {
    let [_, keyspace, _, _, _, create, alter, ..] = entries().map(|(_, entry)| entry);
    let mut state = newborn();
    for (entry, index) in [keyspace, create, alter].iter().zip(3..) {
        state = after(&state, index, entry);
    }
    let kept = golden("cluster-state-types", &state.encode());
    assert_eq!(ClusterState::decode(kept).expect("a state"), state);
}
