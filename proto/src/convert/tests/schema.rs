//! Tables and changes of the schema survive the wire.

use std::num::{NonZeroU32, NonZeroU64};

use proptest::prelude::*;
use trefoil::model::ddl::{
    AlterTable, AlterType, ColumnDefinition, CreateKeyspace, CreateTable, CreateType, DdlStatement, DropKeyspace,
    DropTable, DropType, OptionChanges, TruncateTable,
};
use trefoil::model::usertype::UserTypes;
use trefoil::model::{
    Column, ColumnId, ColumnKind, CompactionOptions, Durability, Field, KeyspaceId, Order, Scaling, Table, TableId,
    TableOptions, Type, UserType,
};
use uuid::Uuid;

use crate::convert::schema;
use crate::v1;

fn kinds() -> impl Strategy<Value = ColumnKind> {
    prop::sample::select(vec![
        ColumnKind::PartitionKey,
        ColumnKind::Clustering(Order::Ascending),
        ColumnKind::Clustering(Order::Descending),
        ColumnKind::Static,
        ColumnKind::Regular,
    ])
}

fn definitions() -> impl Strategy<Value = Vec<ColumnDefinition>> {
    let definition = ("[a-zA-Z_]{1,9}", prop::sample::select(Type::SCALARS.to_vec()), kinds())
        .prop_map(|(name, ty, kind)| ColumnDefinition { name, ty, kind });
    prop::collection::vec(definition, 0..6)
}

fn compactions() -> impl Strategy<Value = CompactionOptions> {
    let scaling = prop::collection::vec((3..=64u8).prop_map(Scaling::Leveled), 1..3);
    (scaling, 1..=1_000u32, any::<u32>())
        .prop_map(|(scaling, mib, window_s)| CompactionOptions::new(scaling, mib, NonZeroU32::new(window_s)).unwrap())
}

fn options() -> impl Strategy<Value = TableOptions> {
    let durability = prop::sample::select(vec![Durability::Commit, Durability::Periodic]);
    (any::<u32>(), any::<u32>(), durability, ".{0,9}", compactions()).prop_map(
        |(default_ttl_s, lateness_s, durability, comment, compaction)| TableOptions {
            default_ttl_s,
            lateness_s,
            durability,
            comment,
            compaction,
        },
    )
}

fn alterations() -> impl Strategy<Value = AlterTable> {
    let durability = prop::sample::select(vec![None, Some(Durability::Commit), Some(Durability::Periodic)]);
    let set = (any::<Option<u32>>(), durability, prop::option::of(".{0,9}"), prop::option::of(compactions())).prop_map(
        |(default_ttl_s, durability, comment, compaction)| OptionChanges {
            default_ttl_s,
            durability,
            comment,
            compaction,
        },
    );
    let name = "[a-z]{1,9}";
    let rename = prop::collection::vec((name, name), 0..3);
    (name, name, any::<u64>(), rename, prop::collection::vec(name, 1..3), definitions(), set, any::<bool>()).prop_map(
        |(keyspace, name, version, rename, drop, add, set, if_exists)| {
            let expected_version = NonZeroU64::new(version);
            AlterTable { keyspace, name, expected_version, rename, drop, add, set, if_exists }
        },
    )
}

fn fields(least: usize) -> impl Strategy<Value = Vec<Field>> {
    let field = ("[a-z]{1,9}", prop::sample::select(Type::SCALARS.to_vec())).prop_map(|(name, ty)| Field { name, ty });
    prop::collection::vec(field, least..4)
}

fn statements() -> impl Strategy<Value = DdlStatement> {
    let name = || "[a-z]{1,9}".prop_map(String::from);
    prop_oneof![
        (name(), prop::collection::btree_map("[a-z]{1,4}", any::<u32>(), 0..3), any::<bool>()).prop_map(
            |(name, replication, if_not_exists)| {
                DdlStatement::CreateKeyspace(CreateKeyspace { name, replication, if_not_exists })
            }
        ),
        (name(), any::<bool>())
            .prop_map(|(name, if_exists)| DdlStatement::DropKeyspace(DropKeyspace { name, if_exists })),
        (name(), name(), definitions(), options(), any::<bool>()).prop_map(
            |(keyspace, name, columns, options, if_not_exists)| {
                DdlStatement::CreateTable(CreateTable { keyspace, name, columns, options, if_not_exists })
            }
        ),
        (name(), name(), any::<bool>()).prop_map(|(keyspace, name, if_exists)| {
            DdlStatement::DropTable(DropTable { keyspace, name, if_exists })
        }),
        alterations().prop_map(DdlStatement::AlterTable),
        (name(), name(), fields(1), any::<bool>()).prop_map(|(keyspace, name, fields, if_not_exists)| {
            let definition = UserType { keyspace, name, fields };
            DdlStatement::CreateType(CreateType { definition, if_not_exists })
        }),
        (name(), name(), fields(0), name(), name()).prop_map(|(keyspace, name, add, old, new)| {
            DdlStatement::AlterType(AlterType { keyspace, name, rename: vec![(old, new)], add })
        }),
        (name(), name(), any::<bool>())
            .prop_map(|(keyspace, name, if_exists)| { DdlStatement::DropType(DropType { keyspace, name, if_exists }) }),
        (name(), name()).prop_map(|(keyspace, name)| DdlStatement::TruncateTable(TruncateTable { keyspace, name })),
    ]
}

proptest! {
    #[test]
    fn a_change_of_the_schema_survives_the_wire(statement in statements()) {
        prop_assert_eq!(schema::ddl_to_model(schema::ddl(&statement)), Ok(statement));
    }

    #[test]
    fn a_table_survives_the_wire(
        columns in definitions(), options in options(), id in any::<u128>(), version in any::<u64>(), keyspace in any::<u32>(),
    ) {
        let columns = columns.into_iter().enumerate().map(|(at, definition)| Column {
            id: ColumnId(at as u32), name: definition.name, ty: definition.ty, kind: definition.kind,
        });
        let table = Table {
            id: TableId(Uuid::from_u128(id)), keyspace: KeyspaceId(keyspace), name: "t".to_owned(), version,
            columns: columns.collect(), options,
        };
        let wire = schema::table("ks", &table);
        prop_assert_eq!(&wire.keyspace, "ks");
        prop_assert_eq!(schema::table_to_model(wire, &UserTypes::new()), Ok(table));
    }
}

#[test]
fn changes_that_make_no_sense_are_refused_by_name() {
    let column = |ty: i32, kind: v1::ColumnKind, descending| v1::Column {
        name: "c".to_owned(),
        r#type: Some(v1::Type { kind: Some(v1::r#type::Kind::Scalar(ty)), frozen: false }),
        kind: kind.into(),
        descending,
        id: 0,
    };
    let table = |column| {
        let table = v1::Table { keyspace: "k".into(), name: "t".into(), columns: vec![column], ..Default::default() };
        v1::ddl::Op::CreateTable(v1::CreateTable { table: Some(table), if_not_exists: false })
    };
    let cases = [
        (None, "the change of the schema is missing"),
        (Some(v1::ddl::Op::CreateKeyspace(v1::CreateKeyspace::default())), "the keyspace is missing"),
        (Some(v1::ddl::Op::CreateTable(v1::CreateTable::default())), "the table is missing"),
        (Some(table(column(0, v1::ColumnKind::Regular, false))), "k.t: c: has no known type"),
        (Some(table(column(21, v1::ColumnKind::Regular, false))), "k.t: c: has no known type"),
        (Some(table(column(7, v1::ColumnKind::Unspecified, false))), "k.t: c: has no known kind"),
        (Some(table(column(7, v1::ColumnKind::Static, true))), "k.t: c: is descending but not a clustering column"),
    ];
    let alter = |alter: v1::AlterTable| {
        Some(v1::ddl::Op::AlterTable(v1::AlterTable { keyspace: "k".into(), name: "t".into(), ..alter }))
    };
    let set_options = Some(v1::OptionChanges { durability: 9, ..Default::default() });
    let alterations = [
        (alter(v1::AlterTable::default()), "k.t: the alteration changes nothing"),
        (alter(v1::AlterTable { set_options, ..Default::default() }), "k.t: durability 9 is not known"),
        (
            alter(v1::AlterTable { add: vec![column(0, v1::ColumnKind::Regular, false)], ..Default::default() }),
            "k.t: c: has no known type",
        ),
    ];
    for (op, reason) in cases.into_iter().chain(alterations) {
        let refused = schema::ddl_to_model(v1::Ddl { op }).unwrap_err();
        assert_eq!(refused.to_string(), reason);
    }
}
