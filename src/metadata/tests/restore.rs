//! Restores: what they make, whom they keep out, and how they end.

use super::*;
use crate::metadata::{RestoreBegun, RestoredTable};
use crate::model::{AlterType, CreateType, Field, UserType};

const RESTORE: Uuid = Uuid::from_u128(0xbeef);

fn after(state: &ClusterState, index: u64, entry: &Entry) -> ClusterState {
    let entry = Entry::decode(entry.encode().into()).unwrap();
    let (next, verdict) = apply(state, at(index), &entry);
    assert_eq!(verdict, Ok(Applied::Changed), "{entry:?}");
    assert_eq!(ClusterState::decode(next.encode().into()).unwrap(), next);
    next
}

fn refused(state: &ClusterState, entry: &Entry) -> Refusal {
    let (next, verdict) = apply(state, at(90), entry);
    assert_eq!(next, ClusterState { epoch: at(90), ..state.clone() });
    verdict.unwrap_err()
}

fn point() -> UserType {
    let field = |name: &str| Field { name: name.to_owned(), ty: Type::Double };
    UserType { keyspace: "old".to_owned(), name: "point".to_owned(), fields: vec![field("x"), field("y")] }
}

/// The table that comes back: its third column was dropped, and the fourth is of a user-defined type.
fn table(name: &str, id: u128) -> RestoredTable {
    let state = after(&birth(&seed()).unwrap(), 1, &create_keyspace("old", &[]));
    let state = after(&state, 2, &Entry::CreateType(CreateType { definition: point(), if_not_exists: false }));
    let mut ask = simple_table("old", name);
    ask.columns.push(column("gone", Type::Text, ColumnKind::Regular));
    ask.columns.push(column(
        "place",
        Type::User { definition: UserType::named("old", "point").into(), frozen: true },
        ColumnKind::Regular,
    ));
    let state = after(&state, 3, &Entry::CreateTable { id: TableId(Uuid::from_u128(id)), table: ask });
    let mut table = Table::clone(state.table_named("old", name).unwrap());
    table.columns.retain(|column| column.name != "gone");
    let next_column = state.next_column(table.id).unwrap().0;
    RestoredTable { keyspace: "old".to_owned(), table, next_column }
}

fn begun() -> RestoreBegun {
    RestoreBegun {
        restore: RESTORE,
        plan: Bytes::from_static(b"a plan"),
        keyspaces: vec![("old".to_owned(), BTreeMap::from([("eu".to_owned(), 2)]))],
        types: vec![point()],
        tables: vec![table("t", 0x51), table("u", 0x52)],
    }
}

#[test]
fn tables_come_back_with_their_columns_and_are_open_once_restored() {
    let empty = birth(&seed()).unwrap();
    let loading = after(&empty, 1, &Entry::RestoreBegun(begun()));
    let table = loading.table_named("old", "t").unwrap();
    assert_eq!(loading.restore_of(table.id), Some(RESTORE));
    assert_eq!(table.columns.iter().map(|column| column.id.0).collect::<Vec<_>>(), {
        let mut ids: Vec<u32> = (1..=table.columns.len() as u32 + 1).collect();
        ids.remove(ids.len() - 2);
        ids
    });
    assert!(loading.live_columns(table.id).is_some(), "the dropped column's cells would count");
    let place = table.columns.last().unwrap();
    assert!(matches!(&place.ty, Type::User { definition, .. } if definition.fields.len() == 2), "{:?}", place.ty);
    let (again, verdict) = apply(&loading, at(2), &Entry::RestoreBegun(begun()));
    assert_eq!((verdict, again.tables().count()), (Ok(Applied::AlreadySo), 2));
    let open = after(&loading, 3, &Entry::Restored(RESTORE));
    assert_eq!((open.restore_of(table.id), open.restores().len()), (None, 0));
    assert_eq!(apply(&open, at(4), &Entry::Restored(RESTORE)).1, Ok(Applied::AlreadySo));
}

#[test]
fn nobody_changes_a_table_under_restore() {
    let loading = after(&birth(&seed()).unwrap(), 1, &Entry::RestoreBegun(begun()));
    let (keyspace, name) = ("old".to_owned(), "t".to_owned());
    let drop = DropTable { keyspace: keyspace.clone(), name: name.clone(), if_exists: true };
    let truncate = TruncateTable { keyspace: keyspace.clone(), name: name.clone() };
    let entries = [
        Entry::DropTable(drop),
        Entry::TruncateTable { id: TableId(Uuid::from_u128(0x99)), table: truncate },
        Entry::DropKeyspace(DropKeyspace { name: keyspace, if_exists: true }),
    ];
    for entry in entries {
        let refusal = refused(&loading, &entry);
        assert_eq!(refusal.reason, Reason::InUse, "{entry:?}");
        assert!(refusal.to_string().contains(&RESTORE.to_string()), "{refusal}");
    }
}

#[test]
fn what_a_restore_made_goes_when_it_is_given_up() {
    let empty = birth(&seed()).unwrap();
    let loading = after(&empty, 1, &Entry::RestoreBegun(begun()));
    let gone = after(&loading, 2, &Entry::RestoreGivenUp(RESTORE));
    assert_eq!((gone.keyspaces().count(), gone.tables().count(), gone.types().count()), (0, 0, 0));
    assert!(gone.is_dropped(TableId(Uuid::from_u128(0x51))));
    let refusal = refused(&gone, &Entry::RestoreBegun(begun()));
    assert_eq!(refusal.reason, Reason::Exists, "an id was given twice");

    let kept = after(
        &loading,
        2,
        &Entry::CreateTable { id: TableId(Uuid::from_u128(0x77)), table: simple_table("old", "own") },
    );
    let gone = after(&kept, 3, &Entry::RestoreGivenUp(RESTORE));
    assert_eq!((gone.keyspaces().count(), gone.tables().count()), (1, 1), "the keyspace is used by now");
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let state = after(&birth(&seed()).unwrap(), 1, &create_keyspace("old", &[]));
    let taken =
        after(&state, 2, &Entry::CreateTable { id: TableId(Uuid::from_u128(1)), table: simple_table("old", "u") });
    assert_eq!(refused(&taken, &Entry::RestoreBegun(begun())).reason, Reason::Exists);
    let other = UserType { fields: point().fields[..1].to_vec(), ..point() };
    let other = after(&state, 2, &Entry::CreateType(CreateType { definition: other, if_not_exists: false }));
    assert_eq!(refused(&other, &Entry::RestoreBegun(begun())).reason, Reason::Exists);
    let same = after(&state, 2, &Entry::CreateType(CreateType { definition: point(), if_not_exists: false }));
    after(&same, 3, &Entry::RestoreBegun(begun()));
    let nowhere =
        RestoreBegun { keyspaces: vec![("old".to_owned(), BTreeMap::from([("mars".to_owned(), 1)]))], ..begun() };
    assert_eq!(refused(&birth(&seed()).unwrap(), &Entry::RestoreBegun(nowhere)).reason, Reason::UnknownRegion);
    let homeless = RestoreBegun { keyspaces: Vec::new(), ..begun() };
    assert_eq!(refused(&birth(&seed()).unwrap(), &Entry::RestoreBegun(homeless)).reason, Reason::UnknownKeyspace);
    let typeless = RestoreBegun { types: Vec::new(), ..begun() };
    assert_eq!(refused(&state, &Entry::RestoreBegun(typeless)).reason, Reason::UnknownType);
    let mut early = begun();
    early.tables[0].next_column = 2;
    assert_eq!(refused(&state, &Entry::RestoreBegun(early)).reason, Reason::DuplicateColumn);
}

#[test]
fn a_type_may_change_while_a_table_made_of_it_is_under_restore() {
    let loading = after(&birth(&seed()).unwrap(), 1, &Entry::RestoreBegun(begun()));
    let add = vec![Field { name: "z".to_owned(), ty: Type::Double }];
    let alter = AlterType { keyspace: "old".to_owned(), name: "point".to_owned(), rename: Vec::new(), add };
    let changed = after(&loading, 2, &Entry::AlterType(alter));
    assert_eq!(changed.restores(), loading.restores());
}
