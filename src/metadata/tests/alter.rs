//! Tables that change: what is refused and by which name, and that nothing given up ever comes back.

use std::collections::BTreeMap;

use super::*;
use crate::model::{Column, ColumnId, Table};

fn alter(change: impl FnOnce(&mut AlterTable)) -> Entry {
    let mut alter = AlterTable { keyspace: "ks".into(), name: "t".into(), ..AlterTable::default() };
    change(&mut alter);
    Entry::AlterTable(alter)
}

fn added(name: &str, ty: Type, kind: ColumnKind) -> Entry {
    alter(|alter| alter.add = vec![column(name, ty, kind)])
}

fn dropped(name: &str) -> Entry {
    alter(|alter| alter.drop = vec![name.into()])
}

fn renamed(pairs: &[(&str, &str)]) -> Entry {
    alter(|alter| alter.rename = pairs.iter().map(|(old, new)| (old.to_string(), new.to_string())).collect())
}

fn truncate(id: u128) -> Entry {
    let table = TruncateTable { keyspace: "ks".into(), name: "t".into() };
    Entry::TruncateTable { id: TableId(Uuid::from_u128(id)), table }
}

fn after(state: &ClusterState, index: u64, entry: &Entry) -> ClusterState {
    let (next, verdict) = apply(state, at(index), entry);
    assert_eq!(verdict, Ok(Applied::Changed), "{entry:?}");
    next
}

fn columns(table: &Table) -> Vec<(u32, &str)> {
    table.columns.iter().map(|column| (column.id.0, column.name.as_str())).collect()
}

#[test]
fn what_cannot_be_altered_is_refused_by_the_name_of_the_culprit() {
    let clustering = ColumnKind::Clustering(Order::Ascending);
    let many = |alter: &mut AlterTable| {
        alter.add = (0..1_000).map(|at| column(&format!("c{at}"), Type::Int, ColumnKind::Regular)).collect();
    };
    let cases = [
        (alter(|alter| alter.name = "u".into()), Reason::UnknownTable, "table ks.u: there is no such table"),
        (
            alter(|alter| alter.keyspace = "no".into()),
            Reason::UnknownKeyspace,
            "keyspace no: there is no such keyspace",
        ),
        (dropped("colour"), Reason::UnknownColumn, "table ks.t: there is no column colour"),
        (dropped("id"), Reason::BadKey, "column id is part of the primary key and cannot be dropped"),
        (dropped("at"), Reason::BadKey, "column at is part of the primary key and cannot be dropped"),
        (added("value", Type::Int, ColumnKind::Regular), Reason::DuplicateColumn, "column value is defined twice"),
        (
            added("x", Type::Int, ColumnKind::PartitionKey),
            Reason::BadKey,
            "column x cannot be added to the primary key",
        ),
        (added("x", Type::Int, clustering), Reason::BadKey, "column x cannot be added to the primary key"),
        (added("", Type::Int, ColumnKind::Regular), Reason::BadName, "the name of a column is 1 to 192"),
        (alter(many), Reason::TooMany, "it has 1004 columns, at most 1000 are possible"),
        (renamed(&[("colour", "x")]), Reason::UnknownColumn, "there is no column colour"),
        (renamed(&[("value", "x")]), Reason::BadKey, "column value is not part of the primary key"),
        (renamed(&[("id", "value")]), Reason::DuplicateColumn, "column value is defined twice"),
        (renamed(&[("id", "x"), ("id", "y")]), Reason::DuplicateColumn, "column id is renamed twice"),
        (
            alter(|alter| alter.set.default_ttl_s = Some(u32::MAX)),
            Reason::BadOption,
            "default_time_to_live is 4294967295 s",
        ),
        (
            alter(|alter| alter.expected_version = NonZeroU64::new(2)),
            Reason::OtherVersion,
            "it has version 1, the change is meant for version 2",
        ),
        (truncate(1), Reason::Exists, "was given to another table before"),
    ];
    for (entry, reason, words) in cases {
        let refusal = refused(&entry);
        assert_eq!(refusal.reason, reason, "{entry:?}");
        assert!(refusal.to_string().contains(words), "{refusal} | {words}");
    }
    let flat =
        CreateTable { columns: vec![column("k", Type::Int, ColumnKind::PartitionKey)], ..simple_table("ks", "t") };
    let state = after(&birth(&seed()).unwrap(), 2, &create_keyspace("ks", &[]));
    let state = after(&state, 3, &create_table(1, flat));
    let (_, verdict) = apply(&state, at(4), &added("s", Type::Int, ColumnKind::Static));
    assert!(verdict.unwrap_err().to_string().contains("column s is static, which means nothing without clustering"));
}

#[test]
fn what_changes_nothing_is_no_new_version() {
    let state = with_table();
    for entry in [
        alter(|_| {}),
        alter(|alter| alter.set.comment = Some(String::new())),
        alter(|alter| (alter.name, alter.if_exists) = ("u".into(), true)),
        renamed(&[("id", "id")]),
    ] {
        let (next, verdict) = apply(&state, at(4), &entry);
        assert_eq!(verdict, Ok(Applied::AlreadySo), "{entry:?}");
        assert_eq!(next, ClusterState { epoch: at(4), ..state.clone() });
    }
}

/// B043 on the side of the schema: a column that is dropped and added again is another column.
#[test]
fn b043_a_name_that_comes_back_is_another_column() {
    let state = after(&with_table(), 4, &dropped("value"));
    let state = after(&state, 5, &added("value", Type::Text, ColumnKind::Regular));
    let table = state.table_named("ks", "t").unwrap();
    assert_eq!(columns(table), [(1, "id"), (2, "at"), (3, "owner"), (5, "value")]);
    assert_eq!((table.version, state.next_column(table.id)), (3, Some(ColumnId(6))));
    let both = alter(|alter| {
        alter.drop = vec!["value".into()];
        alter.add = vec![column("value", Type::Int, ColumnKind::Regular)];
    });
    let state = after(&state, 6, &both);
    let table = state.table_named("ks", "t").unwrap();
    assert_eq!(columns(table), [(1, "id"), (2, "at"), (3, "owner"), (6, "value")]);
    assert_eq!(table.version, 4, "one change is one version");
}

#[test]
fn two_columns_may_swap_their_names_and_keep_their_places() {
    let state = after(&with_table(), 4, &renamed(&[("id", "at"), ("at", "id")]));
    let table = state.table_named("ks", "t").unwrap();
    assert_eq!(columns(table), [(1, "at"), (2, "id"), (3, "owner"), (4, "value")]);
    assert_eq!(table.columns[0].kind, ColumnKind::PartitionKey);
}

#[test]
fn options_are_set_one_by_one() {
    let set = |set: OptionChanges| alter(|alter| alter.set = set);
    let state = after(&with_table(), 4, &set(OptionChanges { default_ttl_s: Some(60), ..OptionChanges::default() }));
    let changes =
        OptionChanges { comment: Some("x".into()), durability: Some(Durability::Periodic), ..OptionChanges::default() };
    let state = after(&state, 5, &set(changes));
    let options = &state.table_named("ks", "t").unwrap().options;
    let expected = TableOptions {
        default_ttl_s: 60,
        durability: Durability::Periodic,
        comment: "x".into(),
        ..TableOptions::default()
    };
    assert_eq!(*options, expected);
}

/// B032 on the side of the schema: that a table was emptied is one entry that nothing takes back.
#[test]
fn b032_a_truncated_table_goes_on_under_another_id() {
    let state = after(&with_table(), 4, &dropped("value"));
    let before = state.table_named("ks", "t").unwrap().clone();
    let state = after(&state, 5, &truncate(2));
    let table = state.table_named("ks", "t").unwrap();
    assert_eq!(table.id, TableId(Uuid::from_u128(2)));
    assert_eq!(**table, Table { id: table.id, version: before.version + 1, ..Table::clone(&before) });
    assert!(state.is_dropped(before.id) && state.table(before.id).is_none());
    assert_eq!(state.next_column(table.id), Some(ColumnId(5)), "a dropped column's number is not given again");
    for id in [1, 2] {
        let (_, verdict) = apply(&state, at(6), &truncate(id));
        assert_eq!(verdict.unwrap_err().reason, Reason::Exists, "an id that was used");
    }
    let drop = Entry::DropTable(DropTable { keyspace: "ks".into(), name: "t".into(), if_exists: false });
    let state = after(&state, 7, &drop);
    assert!(state.is_dropped(before.id) && state.is_dropped(TableId(Uuid::from_u128(2))));
}

/// Every column there ever was.
type Columns = BTreeMap<(TableId, ColumnId), Column>;

fn all_columns(state: &ClusterState) -> Columns {
    let of = |table: &Arc<Table>| -> Vec<_> {
        table.columns.iter().map(|column| ((table.id, column.id), column.clone())).collect()
    };
    state.tables().flat_map(of).collect()
}

proptest! {
    #[test]
    fn a_number_of_a_column_means_one_column_for_ever(entries in vec(any_entry(), 1..60)) {
        let mut state = with_table();
        let mut ever = all_columns(&state);
        for (entry, index) in entries.iter().zip(4..) {
            // The names of the generator, turned into those of a table that is there.
            let entry = match entry.clone() {
                Entry::AlterTable(alter) => {
                    Entry::AlterTable(AlterTable { keyspace: "ks".into(), name: "t".into(), ..alter })
                }
                other => other,
            };
            let (next, verdict) = apply(&state, at(index), &entry);
            for (place, column) in all_columns(&next) {
                let known = ever.entry(place).or_insert_with(|| column.clone());
                prop_assert_eq!((known.ty.clone(), known.kind), (column.ty, column.kind));
                let was_there = all_columns(&state).contains_key(&place);
                let table = next.table(place.0).unwrap();
                let is_new = state.next_column(place.0).is_none_or(|next| place.1 >= next);
                prop_assert!(was_there || is_new, "column {} of version {} is back", place.1.0, table.version);
            }
            if let Entry::AlterTable(_) = entry {
                let version = |state: &ClusterState| state.table_named("ks", "t").map(|table| table.version);
                let risen = u64::from(verdict == Ok(Applied::Changed));
                prop_assert_eq!(version(&next), version(&state).map(|version| version + risen));
            }
            state = next;
        }
    }
}
