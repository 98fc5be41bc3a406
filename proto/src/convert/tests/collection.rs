//! Columns with a cell for each element: what each operation writes, what a reader then sees, and what is refused.

use std::sync::Arc;

use bytes::Bytes;
use trefoil::model::reconcile::merge_rows;
use trefoil::model::usertype::{Field, UserType};
use trefoil::model::value::assembled;
use trefoil::model::{CellKind, Column, ColumnId, ColumnKind, Mutation, Row, Stamp, Table, Timestamp, Type};

use super::{int, partition, table, text};
use crate::convert::answer::Projector;
use crate::convert::mutation::{WriteContext, mutation};
use crate::convert::read::projection;
use crate::convert::{Result, key, value};
use crate::v1;
use crate::v1::cell_write::{Element, Op};
use crate::v1::{CellWrite, Change, Projection, RowWrite, Value, ValueForm};

/// 2026-01-01T00:00:00Z.
const NOW_S: i64 = 1_767_225_600;
const AT: i64 = NOW_S * 1_000_000;

const LIST: u32 = 8;

fn list() -> Type {
    Type::List { element: Arc::new(Type::Int), frozen: false }
}

fn set() -> Type {
    Type::Set { element: Arc::new(Type::Int), frozen: false }
}

fn map() -> Type {
    Type::Map { key: Arc::new(Type::Int), value: Arc::new(Type::Text), frozen: false }
}

fn user() -> Type {
    let field = |name: &str, ty| Field { name: name.to_owned(), ty };
    let fields = vec![field("a", Type::Int), field("b", Type::Text)];
    let definition = UserType { keyspace: "ks".to_owned(), name: "u".to_owned(), fields };
    Type::User { definition: Arc::new(definition), frozen: false }
}

/// The table of the other tests and `l list<int>, e set<int>, m map<int, text>, u u, f frozen<set<int>>,
/// es set<int> static`.
fn with_collections() -> Table {
    let mut table = table();
    let columns = [
        ("l", list(), ColumnKind::Regular),
        ("e", set(), ColumnKind::Regular),
        ("m", map(), ColumnKind::Regular),
        ("u", user(), ColumnKind::Regular),
        ("f", set().freeze(), ColumnKind::Regular),
        ("es", set(), ColumnKind::Static),
    ];
    let columns = columns.into_iter().zip(LIST..);
    let column = |((name, ty, kind), id): ((&str, Type, ColumnKind), u32)| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty,
        kind,
    };
    table.columns.extend(columns.map(column));
    table
}

fn bytes(number: i32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn whole(ty: &Type, parts: &[Bytes]) -> Value {
    value::raw(assembled(ty, parts.iter().cloned().map(Some).collect()).unwrap())
}

fn ints(ty: &Type, numbers: &[i32]) -> Value {
    whole(ty, &numbers.iter().copied().map(bytes).collect::<Vec<_>>())
}

fn pairs(pairs: &[(i32, &'static str)]) -> Value {
    let parts = pairs.iter().flat_map(|(key, value)| [bytes(*key), Bytes::from_static(value.as_bytes())]);
    whole(&map(), &parts.collect::<Vec<_>>())
}

fn element(path: Value, value: Value) -> Op {
    Op::SetElement(Element { path: Some(path), value: Some(value) })
}

fn written_by(request_id: &[u8], timestamp: i64, ttl_s: Option<u32>, writes: Vec<(&str, Op)>) -> Result<Mutation> {
    let table = with_collections();
    let context =
        WriteContext { table: &table, stamp: Stamp(AT), default_timestamp: Some(Timestamp(timestamp)), request_id };
    let cells = writes.into_iter().map(|(column, op)| CellWrite { column: column.to_owned(), op: Some(op) });
    let row = RowWrite { clustering: vec![int(5), text("x")], cells: cells.collect() };
    let change = Change { timestamp_us: None, ttl_s, op: Some(v1::change::Op::Update(row)) };
    mutation(&context, key::partition_key(partition(), &table)?, vec![change])
}

fn written(timestamp: i64, column: &str, op: Op) -> Row {
    let mutation = written_by(b"r", timestamp, None, vec![(column, op)]).unwrap();
    mutation.rows.into_iter().next().map_or_else(Row::default, |(_, row)| row)
}

fn refusal(column: &str, op: Op) -> String {
    written_by(b"r", AT, None, vec![(column, op)]).unwrap_err().reason
}

/// What a reader sees of a column.
fn seen(row: &Row, column: &str, now_s: i64) -> v1::Cell {
    let table = with_collections();
    let wanted = Projection {
        columns: vec![column.to_owned()],
        with_elements: true,
        value_form: ValueForm::Raw.into(),
        ..Projection::default()
    };
    let parts = projection(wanted, &table).unwrap();
    let projector = Projector::new(&table, &parts, now_s);
    projector.static_row(&[], &Row::default()).unwrap();
    let key = trefoil::model::ClusteringKey::encode(&[bytes(5), "x".into()], &table.clustering_types()).unwrap();
    projector.row(&[], &key, row, None).unwrap().cells.remove(0)
}

fn shown(row: &Row, column: &str) -> Option<Value> {
    seen(row, column, NOW_S).value
}

fn merged(rows: impl IntoIterator<Item = Row>) -> Row {
    rows.into_iter().fold(Row::default(), merge_rows)
}

#[test]
fn a_column_is_replaced_as_a_whole() {
    let first = written(AT, "e", Op::Value(ints(&set(), &[1, 2])));
    assert_eq!(shown(&first, "e"), Some(ints(&set(), &[1, 2])));
    let complex = first.complex(ColumnId(LIST + 1)).unwrap();
    assert_eq!(complex.deletion.unwrap().timestamp, Timestamp(AT - 1));
    assert!(complex.cells.iter().all(|(_, cell)| cell.kind == CellKind::Live(Bytes::new())));

    let later = written(AT + 1, "e", Op::Value(ints(&set(), &[3])));
    assert_eq!(shown(&merged([first.clone(), later]), "e"), Some(ints(&set(), &[3])));
    let same_time = written(AT, "e", Op::Value(ints(&set(), &[3])));
    assert_eq!(shown(&merged([first.clone(), same_time]), "e"), Some(ints(&set(), &[1, 2, 3])));
    let null = written(AT, "e", Op::Value(value::null()));
    assert_eq!(null.complex(ColumnId(LIST + 1)).unwrap().deletion.unwrap().timestamp, Timestamp(AT));
    assert_eq!(shown(&merged([first.clone(), null]), "e"), None);
    let empty = written(AT + 1, "e", Op::Value(ints(&set(), &[])));
    assert_eq!(shown(&merged([first, empty]), "e"), None, "an empty collection is null");
}

#[test]
fn elements_of_sets_and_maps_come_and_go() {
    let row = merged([
        written(AT, "e", Op::Append(ints(&set(), &[7, -1]))),
        written(AT + 1, "e", Op::Append(ints(&set(), &[3]))),
        written(AT + 2, "e", Op::Remove(ints(&set(), &[7, 9]))),
        written(AT + 3, "e", Op::DeleteElement(int(3))),
        written(AT, "m", Op::Append(pairs(&[(2, "two"), (-1, "minus"), (4, "four")]))),
        written(AT + 1, "m", element(int(2), text("zwei"))),
        written(AT + 2, "m", element(int(5), text("five"))),
        written(AT + 3, "m", element(int(5), value::null())),
        written(AT + 3, "m", Op::Remove(ints(&set(), &[4]))),
    ]);
    assert_eq!(shown(&row, "e"), Some(ints(&set(), &[-1])));
    assert_eq!(shown(&row, "m"), Some(pairs(&[(-1, "minus"), (2, "zwei")])));
    assert_eq!(seen(&row, "m", NOW_S).timestamp_us, Some(AT + 1), "the greatest of what is shown");
    assert!(row.is_visible_at(NOW_S));
    let row = merged([row, written(AT + 9, "m", Op::DeleteElement(int(2)))]);
    assert_eq!(shown(&row, "m"), Some(pairs(&[(-1, "minus")])));
}

#[test]
fn lists_grow_at_both_ends() {
    let row = merged([
        written(AT + 1, "l", Op::Append(ints(&list(), &[5, 6]))),
        written(AT, "l", Op::Value(ints(&list(), &[3, 4]))),
        written(AT + 2, "l", Op::Prepend(ints(&list(), &[1, 2]))),
        written(AT + 3, "l", Op::Prepend(ints(&list(), &[0]))),
        written(AT + 4, "l", Op::Append(ints(&list(), &[6]))),
    ]);
    assert_eq!(shown(&row, "l"), Some(ints(&list(), &[0, 1, 2, 3, 4, 5, 6, 6])));
    // By its id, an element is found without reading the list.
    let paths: Vec<Bytes> = row.complex(ColumnId(LIST)).unwrap().cells.iter().map(|(path, _)| path.clone()).collect();
    let id = |path: &Bytes| Value { kind: Some(v1::value::Kind::Uuid(path.clone())) };
    let replaced = merged(
        [row.clone()].into_iter().chain(paths.iter().map(|path| written(AT + 5, "l", element(id(path), int(8))))),
    );
    assert_eq!(shown(&replaced, "l"), Some(ints(&list(), &[8; 8])));
    let gone =
        merged([row].into_iter().chain(paths.iter().map(|path| written(AT + 5, "l", Op::DeleteElement(id(path))))));
    assert_eq!(shown(&gone, "l"), None);
}

/// Whatever a reader is told of an element names it where it is written.
#[test]
fn elements_are_answered_with_their_names_and_times() {
    let expiring = |column: &str, op: Op| {
        let mutation = written_by(b"r", AT + 1, Some(60), vec![(column, op)]).unwrap();
        mutation.rows.into_iter().next().unwrap().1
    };
    let row = merged([
        written(AT, "l", Op::Append(ints(&list(), &[5, 6]))),
        written(AT + 1, "l", Op::Prepend(ints(&list(), &[4]))),
        written(AT, "e", Op::Append(ints(&set(), &[7, -1]))),
        written(AT, "m", Op::Append(pairs(&[(2, "two")]))),
        expiring("m", element(int(3), text("three"))),
        written(AT, "u", element(text("b"), text("x"))),
    ]);
    let elements = |column: &str| seen(&row, column, NOW_S).elements;
    let names = |column: &str| elements(column).into_iter().map(|element| element.path.unwrap()).collect::<Vec<_>>();
    assert_eq!(names("e"), [-1i32, 7].map(|of| value::raw(Bytes::copy_from_slice(&of.to_be_bytes()))));
    assert_eq!(names("u"), [value::raw("b".into())]);
    let two = elements("m");
    let times: Vec<_> = two.iter().map(|of| (of.timestamp_us, of.ttl_s, of.expires_at_s)).collect();
    assert_eq!(times, [(AT, None, None), (AT + 1, Some(60), Some(NOW_S + 60))]);
    assert_eq!(seen(&row, "m", NOW_S + 60).elements.len(), 1, "what has expired is not shown");
    // In the order of the value, each by its id.
    let ids = names("l");
    assert_eq!(ids.len(), 3);
    let zero = ids.into_iter().enumerate().map(|(at, id)| {
        let v1::value::Kind::Raw(id) = id.kind.unwrap() else { panic!("asked for raw") };
        let id = Value { kind: Some(v1::value::Kind::Uuid(id)) };
        written(AT + 5, "l", element(id, int(at as i64)))
    });
    assert_eq!(shown(&merged(std::iter::once(row.clone()).chain(zero)), "l"), Some(ints(&list(), &[0, 1, 2])));
}

/// A request is sent again, perhaps through another node: with its id and timestamp it writes the same cells. Another
/// request of the same microsecond writes others.
#[test]
fn an_append_that_is_sent_again_is_the_same_append() {
    let append = |request: &[u8]| {
        let writes = vec![("l", Op::Append(ints(&list(), &[1, 2])))];
        written_by(request, AT, None, writes).unwrap().rows.remove(0).1
    };
    assert_eq!(append(b"one"), append(b"one"));
    assert_eq!(shown(&merged([append(b"one"), append(b"one")]), "l"), Some(ints(&list(), &[1, 2])));
    let both = merged([append(b"one"), append(b"other")]);
    assert_eq!(both.complex(ColumnId(LIST)).unwrap().cells.len(), 4);
}

#[test]
fn fields_are_set_one_by_one() {
    let row = merged([
        written(AT, "u", element(int(0), int(7))),
        written(AT, "u", element(text("b"), text("x"))),
        written(AT + 1, "u", Op::DeleteElement(text("a"))),
    ]);
    let only_b = value::raw(assembled(&user(), vec![None, Some("x".into())]).unwrap());
    assert_eq!(shown(&row, "u"), Some(only_b.clone()));
    let replaced = written(AT + 2, "u", Op::Value(only_b.clone()));
    assert_eq!(shown(&merged([row, replaced]), "u"), Some(only_b));
}

#[test]
fn time_to_live_is_that_of_each_element() {
    let with_ttl = |ttl_s, number| {
        let writes = vec![("e", Op::Append(ints(&set(), &[number])))];
        written_by(b"r", AT, Some(ttl_s), writes).unwrap().rows.remove(0).1
    };
    let row = merged([with_ttl(10, 1), with_ttl(20, 2)]);
    assert_eq!(seen(&row, "e", NOW_S + 9).value, Some(ints(&set(), &[1, 2])));
    assert_eq!(seen(&row, "e", NOW_S + 10).value, Some(ints(&set(), &[2])));
    assert_eq!(seen(&row, "e", NOW_S + 20), v1::Cell::default());
    assert_eq!((seen(&row, "e", NOW_S).ttl_s, seen(&row, "e", NOW_S).expires_at_s), (None, None));
}

#[test]
fn nothing_added_is_nothing_written() {
    let empty = || Op::Append(ints(&set(), &[]));
    let mutation = written_by(b"r", AT, None, vec![("e", empty())]).unwrap();
    assert!(mutation.is_empty());
    let mutation = written_by(b"r", AT, None, vec![("es", Op::Append(ints(&set(), &[1])))]).unwrap();
    assert_eq!(mutation.static_row.unwrap().complex.len(), 1);
}

#[test]
fn what_reads_before_it_writes_is_refused_and_says_why() {
    let index = refusal("l", element(int(0), int(1)));
    assert!(index.contains("by its index") && index.contains("reads the list first"), "{index}");
    assert_eq!(refusal("l", Op::DeleteElement(int(0))), index);
    let by_value = refusal("l", Op::Remove(ints(&list(), &[1])));
    assert!(by_value.contains("reads the list first"), "{by_value}");
}

#[test]
fn refusals_name_what_is_wrong() {
    let cases = [
        ("e", Op::Prepend(ints(&set(), &[1])), "`prepend` cannot be done to a set<int>: only lists have a front"),
        ("u", Op::Append(int(1)), "its fields are set one by one"),
        ("u", Op::Remove(int(1)), "its fields are deleted one by one"),
        ("u", element(text("z"), int(1)), "u has no such field"),
        ("u", element(int(2), int(1)), "u has no such field"),
        ("u", element(value::raw("a".into()), int(1)), "a field is named by its position"),
        ("e", element(int(1), int(1)), "an element of a set has no value"),
        ("m", element(value::null(), text("x")), "null has no elements and is none"),
        ("e", Op::Append(value::null()), "null has no elements and is none"),
        ("m", Op::SetElement(Element { path: Some(int(1)), value: None }), "the element has no value"),
        ("f", Op::Append(ints(&set(), &[1])), "is of type frozen<set<int>>, which has no elements of its own"),
        ("v", Op::DeleteElement(int(1)), "is of type int, which has no elements of its own"),
        ("l", Op::DeleteElement(value::raw(Bytes::new())), "the id of an element of a list is empty"),
        ("l", Op::DeleteElement(value::raw(vec![0; 16].into())), "timeuuid"),
    ];
    for (column, op, reason) in cases {
        let found = refusal(column, op.clone());
        assert!(found.contains(reason), "{column} {op:?}: {found}");
    }
    let twice = || ("e", Op::Append(ints(&set(), &[1])));
    let invalid = written_by(b"r", AT, None, vec![twice(), twice()]).unwrap_err();
    assert_eq!((invalid.reason.as_str(), invalid.column.as_str()), ("is written twice by one change", "e"));

    let mut long = with_collections();
    long.options.lateness_s = u32::MAX;
    let context =
        WriteContext { table: &long, stamp: Stamp(AT), default_timestamp: Some(Timestamp(-1)), request_id: b"" };
    let cells = vec![CellWrite { column: "l".to_owned(), op: Some(Op::Append(ints(&list(), &[1]))) }];
    let row = RowWrite { clustering: vec![int(5), text("x")], cells };
    let change = Change { timestamp_us: None, ttl_s: None, op: Some(v1::change::Op::Update(row)) };
    let before_1970 = mutation(&context, key::partition_key(partition(), &long).unwrap(), vec![change]).unwrap_err();
    assert!(before_1970.reason.contains("gives the elements no place"), "{}", before_1970.reason);
}
