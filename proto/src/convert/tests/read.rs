//! Reads: targets, slices and projections; rows of pages.

use proptest::prelude::*;
use trefoil::model::{
    Cell, CellKind, ClusteringKey, ColumnId, Direction, Row, Slice, Table, Target, Timestamp, Token, TokenRange,
};

use super::{int, partition, table, text};
use crate::MULTI_GET_KEYS_MAX;
use crate::convert::answer::Projector;
use crate::convert::key::{Clustering, disjoint, partition_key};
use crate::convert::read::{Metadata, ReadParts, projection, read};
use crate::convert::{Result, value};
use crate::v1::read_request::Target as WireTarget;
use crate::v1::{self, ClusteringRange, Key, MultiGet, Projection, ReadRequest, TokenScan, ValueForm};

fn slice_of(ranges: Vec<ClusteringRange>) -> ReadRequest {
    target(WireTarget::Slice(v1::Slice { partition: partition(), ranges }))
}

fn target(target: WireTarget) -> ReadRequest {
    ReadRequest { target: Some(target), ..ReadRequest::default() }
}

fn scan(after_token: Option<i64>, up_to_token: Option<i64>) -> ReadRequest {
    target(WireTarget::Scan(TokenScan { after_token, up_to_token, ranges: vec![] }))
}

fn convert(request: ReadRequest) -> Result<ReadParts> {
    read(request, &table())
}

fn key(c: i64, d: &str, table: &Table) -> ClusteringKey {
    Clustering::new(table).key(vec![int(c), text(d)]).unwrap()
}

fn holds(slices: &[Slice], key: &ClusteringKey) -> bool {
    slices.iter().any(|slice| slice.start.bytes() < key.bytes() && key.bytes() < slice.end.bytes())
}

#[test]
fn a_range_goes_from_prefix_to_prefix() {
    let table = table();
    let range = |from: &[i64], from_exclusive, to: &[i64], to_exclusive| ClusteringRange {
        from: from.iter().copied().map(int).collect(),
        from_exclusive,
        to: to.iter().copied().map(int).collect(),
        to_exclusive,
    };
    let found = |range| {
        let parts = convert(slice_of(vec![range])).unwrap();
        let slices = parts.targets.first().map_or(vec![], |target| target.slices.clone());
        (0..5).filter(|c| holds(&slices, &key(*c, "x", &table))).collect::<Vec<_>>()
    };
    assert_eq!(found(range(&[], false, &[], false)), [0, 1, 2, 3, 4]);
    assert_eq!(found(range(&[1], false, &[3], false)), [1, 2, 3]);
    assert_eq!(found(range(&[1], true, &[3], true)), [2]);
    assert_eq!(found(range(&[], false, &[1], true)), [0]);
    assert_eq!(found(range(&[3], true, &[], false)), [4]);
    assert_eq!(
        found(range(&[3], false, &[1], false)),
        [] as [i64; 0],
        "a range without rows is an answer without rows"
    );
}

#[test]
fn a_descending_column_is_bounded_in_stored_order() {
    let table = table();
    let range = ClusteringRange { from: vec![int(1), text("y")], to: vec![int(1), text("x")], ..Default::default() };
    let parts = convert(slice_of(vec![range])).unwrap();
    let slices = &parts.targets[0].slices;
    assert!(holds(slices, &key(1, "y", &table)) && holds(slices, &key(1, "xx", &table)));
    assert!(!holds(slices, &key(1, "z", &table)) && !holds(slices, &key(1, "a", &table)));
}

proptest! {
    #[test]
    fn slices_are_disjoint_and_hold_the_same_rows(ranges in prop::collection::vec((0..9i64, any::<bool>(), 0..9i64, any::<bool>()), 1..6)) {
        let table = table();
        let clustering = Clustering::new(&table);
        let given: Vec<Slice> = ranges.into_iter().map(|(from, from_exclusive, to, to_exclusive)| {
            let range = ClusteringRange { from: vec![int(from)], from_exclusive, to: vec![int(to)], to_exclusive };
            clustering.range(range).unwrap()
        }).collect();
        let joined = disjoint(given.clone());
        prop_assert!(joined.iter().all(|slice| slice.start < slice.end));
        prop_assert!(joined.windows(2).all(|pair| pair[0].end < pair[1].start));
        for c in 0..9 {
            let key = key(c, "x", &table);
            prop_assert_eq!(holds(&joined, &key), holds(&given, &key));
        }
    }
}

#[test]
fn keys_are_read_one_after_the_other() {
    let table = table();
    let whole = Key { partition: partition(), clustering: vec![] };
    let one = Key { partition: vec![text("b"), int(2)], clustering: vec![int(1), text("x")] };
    let parts = convert(target(WireTarget::MultiGet(MultiGet { keys: vec![one.clone(), whole] }))).unwrap();
    let expected = partition_key(one.partition, &table).unwrap();
    assert_eq!(parts.targets[0].target, Target::Partition(expected));
    assert_eq!(parts.targets[0].slices, [Slice::one(&key(1, "x", &table))]);
    assert_eq!(parts.targets[1].slices, [Slice::all()]);
}

#[test]
fn scans_have_exclusive_and_inclusive_ends() {
    let parts =
        convert(ReadRequest { reversed: true, limit: 3, per_partition_limit: 2, ..scan(Some(-5), None) }).unwrap();
    assert_eq!(parts.targets[0].target, Target::Scan(TokenRange { after: Some(Token(-5)), up_to: None }));
    assert_eq!((parts.direction, parts.limit, parts.per_partition_limit), (Direction::Reverse, Some(3), Some(2)));
    assert!(convert(scan(Some(5), Some(5))).unwrap().targets.is_empty());
}

#[test]
fn what_is_refused_names_the_culprit() {
    let columns = |names: &[&str]| ReadRequest {
        projection: Some(Projection { columns: names.iter().map(ToString::to_string).collect(), ..Default::default() }),
        ..slice_of(vec![])
    };
    let keys = |keys| target(WireTarget::MultiGet(MultiGet { keys }));
    let cases = [
        (ReadRequest::default(), "the read has no target"),
        (target(WireTarget::Slice(v1::Slice::default())), "0 values for the partition key (p, q)"),
        (columns(&["v", "nope"]), "nope: there is no such column"),
        (columns(&["v", "v"]), "v: is named twice"),
        (keys(vec![]), "0 keys; 1 to 1000 are possible"),
        (keys(vec![Key::default(); MULTI_GET_KEYS_MAX + 1]), "1001 keys"),
        (keys(vec![Key { partition: vec![int(1), int(1)], clustering: vec![] }]), "#0: p: is of type text"),
        (
            slice_of(vec![ClusteringRange::default(), ClusteringRange { to_exclusive: true, ..Default::default() }]),
            "#1: ",
        ),
    ];
    for (request, reason) in cases {
        let refused = convert(request).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused:?} does not say {reason:?}");
    }
}

#[test]
fn rows_come_by_projection() {
    let table = table();
    let cell = |kind| Cell { timestamp: Timestamp(3), kind };
    let expiring = CellKind::Expiring { value: vec![0, 0, 0, 9].into(), ttl_s: 10, expiry_s: 110 };
    let row = Row {
        cells: vec![(ColumnId(6), cell(expiring)), (ColumnId(7), cell(CellKind::Tombstone { ldt_s: 1 }))],
        ..Row::default()
    };
    let statics = Row { cells: vec![(ColumnId(5), cell(CellKind::Live("st".into())))], ..Row::default() };
    let wanted = Projection {
        columns: ["s", "c", "w", "v"].map(String::from).to_vec(),
        with_metadata: true,
        ..Default::default()
    };
    let parts = projection(wanted, &table).unwrap();
    assert_eq!(parts.metadata, Metadata::With);
    let key = key(5, "x", &table);
    let partition = partition_key(partition(), &table).unwrap();
    let answer = |now_s| {
        let projector = Projector::new(&table, &parts, now_s);
        let partition = projector.partition(&partition).unwrap();
        projector.row(&partition, &key, &row, Some(&statics)).unwrap()
    };
    let alive = answer(109);
    assert_eq!((alive.partition, alive.clustering), (super::partition(), vec![int(5), text("x")]));
    let names: Vec<String> =
        Projector::new(&table, &parts, 0).columns().into_iter().map(|column| column.name).collect();
    assert_eq!(names, ["s", "w", "v"]);
    assert_eq!(alive.cells[0].value, Some(text("st")));
    assert_eq!(alive.cells[1], v1::Cell::default());
    let mut v = v1::Cell { value: Some(int(9)), timestamp_us: Some(3), ..Default::default() };
    (v.ttl_s, v.expires_at_s) = (Some(10), Some(110));
    assert_eq!(alive.cells[2], v);
    assert_eq!(answer(110).cells[2], v1::Cell::default(), "dead from its expiry on");
}

#[test]
fn raw_rows_and_rows_of_statics_alone() {
    let table = table();
    let wanted = Projection { value_form: ValueForm::Raw.into(), omit_columns: true, ..Default::default() };
    let parts = projection(wanted, &table).unwrap();
    let projector = Projector::new(&table, &parts, 0);
    let partition = projector.partition(&partition_key(partition(), &table).unwrap()).unwrap();
    assert_eq!(partition, [value::raw("a".into()), value::raw(vec![0, 0, 0, 1].into())]);
    let cell = Cell { timestamp: Timestamp(3), kind: CellKind::Live("st".into()) };
    let statics = Row { cells: vec![(ColumnId(5), cell)], ..Row::default() };
    let row = projector.static_row(&partition, &statics).unwrap();
    assert!(row.static_only && row.clustering.is_empty() && projector.columns().is_empty());
    assert_eq!(row.cells.len(), 3);
    assert_eq!(row.cells[0].value, Some(value::raw("st".into())));
}
