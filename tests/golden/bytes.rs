//! The encodings of `codec`: rows, mutations, records, entries, frames, blocks. `docs/formats.md` explains them.

use bytes::Bytes;
use trefoil::codec::compress::{put_block, read_block};
use trefoil::codec::entry::{Entries, Trust, put_entry};
use trefoil::codec::frame::{Framed, put_frame, read_frame};
use trefoil::codec::mutation::{decode_mutation, encode_mutation};
use trefoil::codec::position::{put_position, read_position};
use trefoil::codec::varint::Reader;
use trefoil::codec::{EncodedRow, Record, RecordKind};
use trefoil::model::{
    Bound, Cell, CellKind, ClusteringKey, ColumnId, Complex, Counter, Deletion, Fragment, KeyspaceId, Liveness,
    LivenessKind, Mutation, MutationName, NodeId, PagePosition, PartitionHeader, PartitionKey, RangeDeletion, Row,
    RowPosition, Shard, Stamp, Stream, TableId, Timestamp,
};
use uuid::Uuid;

use crate::kept::{golden, kept};

/// 2026-01-01T00:00:00Z.
const NEW_YEAR_S: i64 = 1_767_225_600;
const NEW_YEAR: Timestamp = Timestamp(NEW_YEAR_S * 1_000_000);

fn cell(column: u32, timestamp: Timestamp, kind: CellKind) -> (ColumnId, Cell) {
    (ColumnId(column), Cell { timestamp, kind })
}

fn live(value: &'static [u8]) -> CellKind {
    CellKind::Live(Bytes::from_static(value))
}

fn before(micros: i64) -> Timestamp {
    Timestamp(NEW_YEAR.0 - micros)
}

/// What an INSERT of a text and an int leaves.
fn inserted() -> Row {
    Row {
        marker: Some(Liveness { timestamp: NEW_YEAR, kind: LivenessKind::Live }),
        cells: vec![cell(3, NEW_YEAR, live(b"clover")), cell(4, NEW_YEAR, live(&[0, 0, 0, 3]))],
        ..Row::default()
    }
}

/// A row of every kind of part.
fn mixed() -> Row {
    let expiring = CellKind::Expiring { value: Bytes::from_static(b"b"), ttl_s: 3_600, expiry_s: NEW_YEAR_S + 3_600 };
    let expired = CellKind::Expired { ttl_s: 60, expiry_s: NEW_YEAR_S - 40 };
    Row {
        marker: Some(Liveness {
            timestamp: NEW_YEAR,
            kind: LivenessKind::Expiring { ttl_s: 3_600, expiry_s: NEW_YEAR_S + 3_600 },
        }),
        deletion: Some(Deletion { timestamp: before(200), ldt_s: NEW_YEAR_S - 1 }),
        cells: vec![
            cell(3, NEW_YEAR, live(b"clover")),
            cell(4, NEW_YEAR, expiring),
            cell(5, before(100), expired),
            cell(300, before(1), CellKind::Tombstone { ldt_s: NEW_YEAR_S }),
        ],
        ..Row::default()
    }
}

/// A map that was overwritten and then changed, a set of which an element was removed, a list that became null.
fn complex() -> Row {
    let element = |path: &'static [u8], timestamp, kind| (Bytes::from_static(path), Cell { timestamp, kind });
    let expiring = CellKind::Expiring { value: Bytes::from_static(b"three"), ttl_s: 60, expiry_s: NEW_YEAR_S + 60 };
    let deletion = |micros| Deletion { timestamp: before(micros), ldt_s: NEW_YEAR_S };
    let map = vec![element(b"leaf", NEW_YEAR, expiring), element(b"stem", before(9), live(b"one"))];
    let set =
        vec![element(b"", before(5), live(b"")), element(b"a", before(4), CellKind::Tombstone { ldt_s: NEW_YEAR_S })];
    Row {
        cells: vec![cell(3, before(9), live(b"clover"))],
        complex: vec![
            (ColumnId(6), Complex { deletion: Some(deletion(10)), cells: map }),
            (ColumnId(7), Complex { deletion: None, cells: set }),
            (ColumnId(300), Complex::deleted(deletion(3))),
        ],
        ..Row::default()
    }
}

/// Two counters, one of which a second run of a node has added to.
fn counters() -> Row {
    let shard = |node, incarnation, clock, value| Shard { node: NodeId(node), incarnation, clock, value };
    let counter = |shards| CellKind::Counter(Counter::of(shards).expect("shards"));
    let run = NEW_YEAR.0 as u64;
    Row {
        cells: vec![
            cell(1, NEW_YEAR, counter(vec![shard(1, run, 3, 10), shard(2, run - 7, 200, -4), shard(2, run, 1, 1)])),
            cell(2, before(1), counter(vec![shard(u32::MAX, u64::MAX, u64::MAX, i64::MIN)])),
        ],
        ..Row::default()
    }
}

fn rows() -> [(&'static str, Row); 10] {
    let only = |cells| Row { cells, ..Row::default() };
    let marker = |kind| Row { marker: Some(Liveness { timestamp: NEW_YEAR, kind }), ..Row::default() };
    [
        ("row-insert", inserted()),
        ("row-complex", complex()),
        ("row-counters", counters()),
        ("row-mixed", mixed()),
        ("row-deletion", Row { deletion: Some(Deletion { timestamp: NEW_YEAR, ldt_s: NEW_YEAR_S }), ..Row::default() }),
        ("row-marker-expired", marker(LivenessKind::Expired { ttl_s: 630_720_000, expiry_s: NEW_YEAR_S })),
        ("row-empty-value", only(vec![cell(0, NEW_YEAR, live(b""))])),
        ("row-null", only(vec![cell(7, NEW_YEAR, CellKind::Tombstone { ldt_s: NEW_YEAR_S })])),
        (
            "row-times-far-apart",
            only(vec![cell(1, Timestamp(i64::MAX), live(b"n")), cell(2, Timestamp::MIN, live(b"o"))]),
        ),
        ("row-columns-far-apart", only(vec![cell(0, NEW_YEAR, live(b"a")), cell(u32::MAX, NEW_YEAR, live(b"z"))])),
    ]
}

#[test]
fn rows_are_kept() {
    for (name, row) in rows() {
        let kept = golden(name, EncodedRow::encode(&row).bytes());
        assert_eq!(EncodedRow::checked(kept).expect(name).decode().expect(name), row, "{name}");
    }
}

#[test]
fn the_examples_of_the_documentation_are_the_kept_rows() {
    let page = include_str!("../../docs/formats.md");
    for (name, row) in [("row-mixed", mixed()), ("row-complex", complex()), ("row-counters", counters())] {
        let (_, example) = page.split_once(&format!("The sample `{name}`")).expect("the example");
        let lines = example.split("```").nth(1).expect("its drawing").lines().skip(1);
        let digits: Vec<&str> =
            lines.filter_map(|line| line.split("  ").next()).flat_map(str::split_whitespace).collect();
        let kept = golden(name, EncodedRow::encode(&row).bytes());
        let expected: Vec<String> = kept.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, expected, "{name}");
    }
}

fn partition() -> PartitionKey {
    PartitionKey::from_bytes(Bytes::from_static(b"EWR"))
}

/// A clustering key of one int.
fn clustering(number: u8) -> ClusteringKey {
    ClusteringKey::from_bytes(Bytes::from(vec![0x40, 0x80, 0, 0, number, 0x38])).expect("a key")
}

fn bound(number: u8, end: u8) -> Bound {
    Bound::from_bytes(Bytes::from(vec![0x40, 0x80, 0, 0, number, end])).expect("a bound")
}

fn deletion(micros: i64) -> Deletion {
    Deletion { timestamp: before(micros), ldt_s: NEW_YEAR_S }
}

fn static_row() -> Row {
    Row { cells: vec![cell(2, NEW_YEAR, live(b"static"))], ..Row::default() }
}

fn mutation_of_everything() -> Mutation {
    let range = |start, end, deletion| RangeDeletion { start, end, deletion };
    Mutation {
        table: TableId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001)),
        key: partition(),
        deletion: Some(deletion(1_000)),
        static_row: Some(static_row()),
        rows: vec![(clustering(1), inserted()), (clustering(2), mixed())],
        ranges: vec![
            range(bound(3, 0x20), bound(4, 0x20), deletion(500)),
            range(bound(4, 0x20), bound(5, 0x60), deletion(400)),
        ],
    }
}

fn mutation_of_one_row() -> Mutation {
    let table = TableId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
    Mutation { rows: vec![(clustering(1), inserted())], ..Mutation::new(table, partition()) }
}

#[test]
fn mutations_are_kept() {
    for (name, mutation) in [("mutation-row", mutation_of_one_row()), ("mutation-everything", mutation_of_everything())]
    {
        let mut encoded = Vec::new();
        encode_mutation(&mutation, &mut encoded);
        let parts = decode_mutation(golden(name, &encoded)).expect(name);
        assert_eq!((parts.table, &parts.key, parts.deletion), (mutation.table, &mutation.key, mutation.deletion));
        assert_eq!(parts.static_row.map(|row| row.decode().expect(name)), mutation.static_row);
        let rows: Vec<_> = parts.rows.into_iter().map(|(key, row)| (key, row.decode().expect(name))).collect();
        assert_eq!((rows, parts.ranges), (mutation.rows, mutation.ranges));
    }
}

#[test]
fn records_are_kept() {
    let name = MutationName { origin: NodeId(2), incarnation: NEW_YEAR.0 as u64, sequence: 77 };
    let nameless = RecordKind::Nameless { composer: NodeId(3), known_through: Stamp(NEW_YEAR.0 - 1) };
    for (file, kind) in [("record-named", RecordKind::Named(name)), ("record-nameless", nameless)] {
        let record = Record::encode(kind, KeyspaceId(5), Stamp(NEW_YEAR.0), &mutation_of_one_row());
        assert_eq!(Record::decode(golden(file, &record.bytes)).expect(file), record);
    }
}

#[test]
fn entries_are_kept() {
    let fragments = [
        Fragment::Partition(PartitionHeader {
            key: partition(),
            deletion: Some(deletion(1_000)),
            static_row: Some(EncodedRow::encode(&static_row())),
        }),
        Fragment::Row(clustering(1), EncodedRow::encode(&inserted())),
        Fragment::Change(bound(3, 0x20), Some(deletion(500))),
        Fragment::Change(bound(5, 0x60), None),
        Fragment::Partition(PartitionHeader {
            key: PartitionKey::from_bytes(Bytes::from_static(b"JFK")),
            deletion: None,
            static_row: None,
        }),
    ];
    let mut encoded = Vec::new();
    for fragment in &fragments {
        put_entry(&mut encoded, fragment);
    }
    let mut entries = Entries::new(golden("entries", &encoded), Trust::Checked);
    for fragment in fragments {
        assert_eq!(entries.next().expect("an entry"), Some(fragment));
    }
    assert_eq!(entries.next().expect("the end"), None);
}

#[test]
fn positions_are_kept() {
    let rows =
        [RowPosition::Header, RowPosition::After(clustering(1)), RowPosition::At(bound(2, 0x60)), RowPosition::End];
    let positions = rows.map(|row| PagePosition { partition: partition(), row });
    let mut encoded = Vec::new();
    for position in &positions {
        put_position(&mut encoded, position);
    }
    let mut reader = Reader::new("positions", golden("positions", &encoded));
    for position in positions {
        assert_eq!(read_position(&mut reader).expect("a position"), position);
    }
    reader.end().expect("the end");
}

#[test]
fn frames_are_kept() {
    let mut framed = Vec::new();
    put_frame(&mut framed, 0x0123_4567_89ab_cdef, b"a payload");
    let kept = golden("frame", &framed);
    let whole = Framed::Whole(Bytes::from_static(b"a payload"), kept.len());
    assert_eq!(read_frame(&kept, 0x0123_4567_89ab_cdef), whole);
}

#[test]
fn blocks_are_kept() {
    let mut stored = Vec::new();
    put_block(&mut stored, b"too short to shrink");
    let kept_stored = golden("block-stored", &stored);
    assert_eq!(read_block(kept_stored, 64).expect("a block"), Bytes::from_static(b"too short to shrink"));

    // Another release of the compressor may find other bytes; what it once found must stay readable.
    let body = b"three leaves, ".repeat(20);
    let mut packed = Vec::new();
    put_block(&mut packed, &body);
    assert_eq!(read_block(kept("block-lz4", &packed), body.len()).expect("a block"), body);
}
