//! User-defined types: what is refused and by which name, and that whatever is made of a type follows it.

use super::*;
use crate::model::{AlterType, Column, ColumnId, CreateType, DropType, Field, UserType};

fn field(name: &str, ty: Type) -> Field {
    Field { name: name.into(), ty }
}

fn named(name: &str) -> Type {
    Type::User { definition: Arc::new(UserType::named("ks", name)), frozen: true }
}

fn made(name: &str, fields: Vec<Field>) -> Entry {
    let definition = UserType { fields, ..UserType::named("ks", name) };
    Entry::CreateType(CreateType { definition, if_not_exists: false })
}

fn alter(name: &str, change: impl FnOnce(&mut AlterType)) -> Entry {
    let mut alter = AlterType { keyspace: "ks".into(), name: name.into(), ..AlterType::default() };
    change(&mut alter);
    Entry::AlterType(alter)
}

fn added(name: &str, fields: Vec<Field>) -> Entry {
    alter(name, |alter| alter.add = fields)
}

fn renamed(name: &str, pairs: &[(&str, &str)]) -> Entry {
    alter(name, |alter| alter.rename = pairs.iter().map(|(old, new)| (old.to_string(), new.to_string())).collect())
}

fn dropped(name: &str) -> Entry {
    Entry::DropType(DropType { keyspace: "ks".into(), name: name.into(), if_exists: false })
}

fn after(state: &ClusterState, index: u64, entry: &Entry) -> ClusterState {
    let (next, verdict) = apply(state, at(index), entry);
    assert_eq!(verdict, Ok(Applied::Changed), "{entry:?}");
    assert!(next.check().is_ok(), "{:?}", next.check());
    assert_eq!(ClusterState::decode(next.encode().into()).unwrap(), next);
    next
}

/// Types `address` and `person`, which is made of it.
fn with_types() -> ClusterState {
    let state = after(&with_table(), 4, &made("address", vec![field("street", Type::Text)]));
    let homes = Type::List { element: Arc::new(named("address")), frozen: true };
    after(&state, 5, &made("person", vec![field("name", Type::Text), field("homes", homes)]))
}

/// The same, and the column `who` of `ks.t` is a person, of this kind.
fn with_person(kind: ColumnKind) -> ClusterState {
    let mut state = with_types();
    let definition = state.types[&("ks".to_owned(), "person".to_owned())].clone();
    let known = state.tables.values_mut().next().unwrap();
    let mut table = Table::clone(&known.table);
    let ty = Type::User { definition, frozen: true };
    table.columns.push(Column { id: ColumnId(known.next_column), name: "who".into(), ty, kind });
    (known.table, known.next_column) = (Arc::new(table), known.next_column + 1);
    assert!(state.check().is_ok());
    state
}

#[test]
fn what_cannot_be_a_type_is_refused_by_the_name_of_the_culprit() {
    let state = with_person(ColumnKind::Regular);
    let list = Type::List { element: Arc::new(Type::Int), frozen: false };
    let foreign = Type::User { definition: Arc::new(UserType::named("else", "far")), frozen: true };
    let many = (0..1_001).map(|at| field(&format!("f{at}"), Type::Int)).collect();
    let elsewhere = UserType { fields: vec![field("f", Type::Int)], ..UserType::named("no", "t") };
    let cases = [
        (made("address", vec![field("f", Type::Int)]), Reason::Exists, "type ks.address: it exists already"),
        (
            Entry::CreateType(CreateType { definition: elsewhere, if_not_exists: true }),
            Reason::UnknownKeyspace,
            "keyspace no: there is no such keyspace",
        ),
        (made("a;b", vec![field("f", Type::Int)]), Reason::BadName, "type \"a;b\""),
        (made("t", Vec::new()), Reason::TooMany, "it has 0 fields, 1 to 1000 are possible"),
        (made("t", many), Reason::TooMany, "it has 1001 fields"),
        (
            made("t", vec![field("f", Type::Int), field("f", Type::Int)]),
            Reason::DuplicateColumn,
            "field f is defined twice",
        ),
        (made("t", vec![field("", Type::Int)]), Reason::BadName, "the name of a field"),
        (made("t", vec![field("f", list.clone())]), Reason::BadType, "must be frozen"),
        (made("t", vec![field("f", Type::Counter)]), Reason::BadType, "counters cannot lie inside"),
        (made("t", vec![field("f", named("nobody"))]), Reason::UnknownType, "nobody"),
        (made("t", vec![field("f", named("t"))]), Reason::UnknownType, "ks.t"),
        (made("t", vec![field("f", foreign)]), Reason::UnknownType, "type far lies in another keyspace"),
        (added("nobody", vec![field("f", Type::Int)]), Reason::UnknownType, "type ks.nobody: there is no such"),
        (added("address", vec![field("street", Type::Int)]), Reason::DuplicateColumn, "field street is defined twice"),
        (added("address", vec![field("of", named("person"))]), Reason::UnknownType, "made of the type itself"),
        (added("address", vec![field("f", list)]), Reason::BadType, "must be frozen"),
        (renamed("address", &[("road", "x")]), Reason::UnknownColumn, "there is no field road"),
        (renamed("person", &[("name", "homes")]), Reason::DuplicateColumn, "field homes is defined twice"),
        (renamed("person", &[("name", "a"), ("name", "b")]), Reason::DuplicateColumn, "field name is renamed twice"),
        (dropped("nobody"), Reason::UnknownType, "there is no such user-defined type"),
        (dropped("address"), Reason::InUse, "type ks.address: field homes of type ks.person is made of it"),
        (dropped("person"), Reason::InUse, "type ks.person: column who of table ks.t is made of it"),
    ];
    for (entry, reason, words) in cases {
        let (next, verdict) = apply(&state, at(9), &entry);
        assert_eq!(next, ClusterState { epoch: at(9), ..state.clone() }, "{entry:?}");
        let refusal = verdict.unwrap_err();
        assert_eq!(refusal.reason, reason, "{refusal}");
        assert!(refusal.to_string().contains(words), "{refusal} | {words}");
    }
}

#[test]
fn what_is_made_of_a_type_follows_it() {
    let state = with_person(ColumnKind::Regular);
    let version = |state: &ClusterState| state.table_named("ks", "t").unwrap().version;
    let both = alter("address", |alter| {
        alter.rename = vec![("street".into(), "road".into())];
        alter.add = vec![field("zip", Type::Ascii)];
    });
    let next = after(&state, 9, &both);
    assert_eq!(version(&next), version(&state) + 1, "whoever knows the table by its old fields is told");
    let who = next.table_named("ks", "t").unwrap().column("who").unwrap().ty.clone();
    let names: Vec<String> = fields_in(&who);
    assert_eq!(names, ["name", "homes", "road", "zip"]);
    let (same, verdict) = apply(&next, at(10), &renamed("address", &[("road", "road")]));
    assert_eq!((verdict, version(&same)), (Ok(Applied::AlreadySo), version(&next)));
    let other = after(&next, 10, &made("lonely", vec![field("f", Type::Int)]));
    let other = after(&other, 11, &added("lonely", vec![field("g", Type::Int)]));
    assert_eq!(version(&other), version(&next), "a table that is not made of it stays what it is");
    after(&other, 12, &dropped("lonely"));
}

/// The names of all fields, outer ones first.
fn fields_in(ty: &Type) -> Vec<String> {
    let own = match ty {
        Type::User { definition, .. } => definition.fields.iter().map(|field| field.name.clone()).collect(),
        _ => Vec::new(),
    };
    own.into_iter().chain(ty.parts().into_iter().flat_map(fields_in)).collect()
}

/// The bytes of a key that was written with fewer fields are not those of the same key with more.
#[test]
fn no_field_comes_to_a_type_that_a_key_is_made_of() {
    let mut state = with_person(ColumnKind::Regular);
    let known = state.tables.values_mut().next().unwrap();
    let mut table = Table::clone(&known.table);
    let who = table.columns.pop().unwrap();
    table.columns.insert(1, Column { kind: ColumnKind::PartitionKey, ..who });
    known.table = Arc::new(table);
    for name in ["person", "address"] {
        let (_, verdict) = apply(&state, at(9), &added(name, vec![field("f", Type::Int)]));
        let refusal = verdict.unwrap_err();
        assert_eq!(refusal.reason, Reason::InUse);
        assert!(refusal.to_string().contains("column who of table ks.t, part of its primary key"), "{refusal}");
    }
    after(&state, 9, &renamed("address", &[("street", "road")]));
}

#[test]
fn a_dropped_keyspace_takes_its_types_along() {
    let drop = Entry::DropKeyspace(DropKeyspace { name: "ks".into(), if_exists: false });
    let state = after(&with_types(), 9, &drop);
    assert_eq!(state.types().count(), 0);
    let state = after(&state, 10, &create_keyspace("ks", &[]));
    after(&state, 11, &made("address", vec![field("other", Type::Int)]));
}

#[test]
fn a_state_whose_types_do_not_fit_is_corrupt() {
    let state = with_types();
    let bytes = |state: &ClusterState| Bytes::from(state.encode());
    let mut lonely = state.clone();
    lonely.types.remove(&("ks".to_owned(), "address".to_owned()));
    assert!(ClusterState::decode(bytes(&lonely)).unwrap_err().to_string().contains("address"));
    let mut nowhere = state;
    nowhere.keyspaces.clear();
    nowhere.tables.clear();
    assert!(ClusterState::decode(bytes(&nowhere)).unwrap_err().to_string().contains("lies in no keyspace"));
}

fn any_field() -> impl Strategy<Value = Field> {
    let ty = prop_oneof![
        2 => select(vec![Type::Int, Type::Text, Type::Duration, Type::Counter]),
        3 => select(vec!["a", "b", "C_3"]).prop_map(|name| {
            Type::User { definition: Arc::new(UserType::named("a", name)), frozen: true }
        }),
    ];
    (select(vec!["p", "q", "r", "s"]), ty).prop_map(|(name, ty)| field(name, ty))
}

fn any_type_entry() -> impl Strategy<Value = Entry> {
    let pair = || (select(vec!["p", "q", "r"]), select(vec!["p", "s", "t"]));
    let pair = pair().prop_map(|(old, new)| (old.to_owned(), new.to_owned()));
    prop_oneof![
        5 => (any_name(), any_name(), vec(any_field(), 1..3), any::<bool>()).prop_map(
            |(keyspace, name, fields, if_not_exists)| {
                let definition = UserType { keyspace, name, fields };
                Entry::CreateType(CreateType { definition, if_not_exists })
            }
        ),
        4 => (any_name(), any_name(), vec(pair, 0..2), vec(any_field(), 0..3))
            .prop_map(|(keyspace, name, rename, add)| Entry::AlterType(AlterType { keyspace, name, rename, add })),
        2 => (any_name(), any_name(), any::<bool>())
            .prop_map(|(keyspace, name, if_exists)| Entry::DropType(DropType { keyspace, name, if_exists })),
    ]
}

proptest! {
    #[test]
    fn histories_with_types_keep_every_invariant(
        entries in vec(prop_oneof![1 => any_entry(), 3 => any_type_entry()], 1..60),
    ) {
        let mut state = birth(&seed()).unwrap();
        state = apply(&state, at(2), &create_keyspace("a", &[])).0;
        for (entry, index) in entries.iter().zip(3..) {
            prop_assert_eq!(&Entry::decode(entry.encode().into()).unwrap(), entry);
            let (next, verdict) = apply(&state, at(index), entry);
            prop_assert!(next.check().is_ok(), "{:?} after {:?}", next.check(), entry);
            if verdict != Ok(Applied::Changed) {
                prop_assert_eq!(&next, &ClusterState { epoch: at(index), ..state.clone() });
            }
            let decoded = ClusterState::decode(next.encode().into()).unwrap();
            prop_assert_eq!(&decoded, &next);
            state = next;
        }
    }
}
