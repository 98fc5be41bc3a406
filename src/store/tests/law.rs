//! The store against the naive model: whatever is written, flushed, compacted and reopened in between, every read
//! answers the same.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::{Node, decode, joined, scan};
use crate::compaction::Unpaced;
use crate::model::naive::{Naive, TABLE, any_direction, any_mutation, any_slices, partition_key, row_key, rows, value};
use crate::model::{
    Cell, CellKind, ColumnId, Counter, Direction, Fragment, Liveness, LivenessKind, Mutation, NodeId, ReadCommand, Row,
    Shard, Slice, Target, Timestamp, TokenRange,
};
use crate::store::Access;

const PARTITIONS: u8 = 4;
const KEYS: i32 = 12;

#[derive(Debug, Clone)]
enum Step {
    Write(Mutation),
    /// A file of its own, so that compactions come about.
    WriteAndFlush(Mutation),
    Flush,
    Compact,
    Restart,
    Read(Shape),
}

#[derive(Debug, Clone)]
struct Shape {
    /// `None`: a scan.
    partition: Option<u8>,
    /// Ends of a scan, as partitions by number.
    tokens: (Option<u8>, Option<u8>),
    /// `None`: what an empty list means.
    slices: Option<Vec<Slice>>,
    direction: Direction,
    limit_rows: u32,
    limit_bytes: u32,
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let end = || proptest::option::weighted(0.3, 0..PARTITIONS);
    (
        proptest::option::of(0..PARTITIONS + 1),
        (end(), end()),
        proptest::option::of(any_slices(KEYS)),
        any_direction(),
        prop_oneof![1u32..5, Just(1_000)],
        prop_oneof![Just(1u32), 1u32..200, Just(1 << 20)],
    )
        .prop_map(|(partition, tokens, slices, direction, limit_rows, limit_bytes)| Shape {
            partition,
            tokens,
            slices,
            direction,
            limit_rows,
            limit_bytes,
        })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any_mutation(PARTITIONS, KEYS).prop_map(Step::Write),
        4 => any_mutation(PARTITIONS, KEYS).prop_map(Step::WriteAndFlush),
        1 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Restart),
        4 => any_shape().prop_map(Step::Read),
    ]
}

fn check(node: &Node, naive: &Naive, shape: &Shape) {
    let tokens = TokenRange {
        after: shape.tokens.0.map(|number| partition_key(number).token()),
        up_to: shape.tokens.1.map(|number| partition_key(number).token()),
    };
    let target = match shape.partition {
        Some(number) => Target::Partition(partition_key(number)),
        None => Target::Scan(tokens),
    };
    let command = ReadCommand {
        target,
        slices: shape.slices.clone().unwrap_or_default(),
        direction: shape.direction,
        limit_rows: shape.limit_rows,
        limit_bytes: shape.limit_bytes,
        ..scan()
    };
    let slices = Slice::joined(shape.slices.as_deref().unwrap_or(&[Slice::all()]));
    let numbers: Vec<u8> = match shape.partition {
        Some(number) => vec![number],
        None => (0..PARTITIONS).filter(|number| tokens.contains(partition_key(*number).token())).collect(),
    };
    let mut keys: Vec<_> = numbers.into_iter().map(partition_key).collect();
    keys.sort();
    let expected: Vec<_> = keys.iter().flat_map(|key| naive.partition(key, &slices, shape.direction)).collect();
    let pages = node.pages(command);
    for page in &pages {
        let visible = page.iter().filter(|one| matches!(one, Fragment::Row(_, row) if row.is_visible_at(100))).count();
        assert!(visible <= shape.limit_rows as usize, "{visible} rows on a page of {}", shape.limit_rows);
    }
    assert_eq!(joined(pages), expected, "{shape:?}");
}

/// Reads of one row answer the bytes of the general path, which a second slice, though empty, makes a read take.
fn check_lone_rows(node: &Node, naive: &Naive, number: u8, now_s: i64) {
    let read = |slices: Vec<Slice>, limit_bytes: u32| {
        let target = Target::Partition(partition_key(number));
        let command = ReadCommand { target, slices, now_s, limit_rows: 1, limit_bytes, ..scan() };
        node.store.read(&command, Access::Disk).unwrap()
    };
    let nothing = Slice { start: Slice::all().end, end: Slice::all().start };
    for slice in (0..KEYS).map(|key| Slice::one(&row_key(key))).chain([Slice::all()]) {
        for limit_bytes in [1, 1 << 20] {
            let general = read(vec![slice.clone(), nothing.clone()], limit_bytes);
            assert_eq!(read(vec![slice.clone()], limit_bytes), general, "{slice:?}");
        }
        if slice != Slice::all() {
            // Both ways ask the filters of files for rows; the model has none.
            let expected = naive.partition(&partition_key(number), std::slice::from_ref(&slice), Direction::Forward);
            assert_eq!(decode(read(vec![slice.clone()], 1 << 20).entries), expected, "{slice:?}");
        }
    }
    assert_eq!(read(vec![], 1), read(vec![Slice::all(), nothing], 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_store_answers_what_the_naive_model_says(
        steps in proptest::collection::vec(any_step(), 1..60),
        rows_alone in any::<bool>(),
    ) {
        let mut node = Node::new();
        let mut naive = Naive::default();
        for mut step in steps {
            if let (true, Step::Write(mutation) | Step::WriteAndFlush(mutation)) = (rows_alone, &mut step) {
                // What lies beyond rows makes reads take another way.
                *mutation = Mutation { rows: std::mem::take(&mut mutation.rows), ..Mutation::new(TABLE, mutation.key.clone()) };
            }
            match step {
                Step::Write(mutation) => {
                    node.write(&mutation);
                    naive.apply(&mutation);
                }
                Step::WriteAndFlush(mutation) => {
                    node.write(&mutation);
                    naive.apply(&mutation);
                    node.store.flush_next().unwrap();
                }
                Step::Flush => node.flush(),
                Step::Compact => drop(node.store.compact_next(0, &Unpaced).unwrap()),
                Step::Restart => node = node.restart(),
                Step::Read(shape) => check(&node, &naive, &shape),
            }
        }
        for number in 0..PARTITIONS {
            check_lone_rows(&node, &naive, number, 100);
        }
        node = node.checked();
        let everything = decode(node.store.read(&scan(), Access::Disk).unwrap().entries);
        prop_assert_eq!(everything, naive.scan(&[Slice::all()], Direction::Forward));
    }
}

/// Rows as an INSERT of some columns writes them, or an UPDATE, with the timestamps of one file.
fn any_written_row(timestamps: std::ops::Range<i64>) -> impl Strategy<Value = Row> {
    let kind = prop_oneof![
        8 => Just(CellKind::Live("v".into())),
        1 => Just(CellKind::Expiring { value: "w".into(), ttl_s: 5, expiry_s: 99 }),
        1 => Just(CellKind::Tombstone { ldt_s: 90 }),
        1 => (1..3u64).prop_map(|clock| CellKind::Counter(Counter::of(vec![shard(clock)]).unwrap())),
    ];
    let cell = move |column| {
        let cell = (timestamps.clone(), kind.clone());
        let cell = cell.prop_map(|(timestamp, kind)| Cell { timestamp: Timestamp(timestamp), kind });
        proptest::option::weighted(0.8, cell.prop_map(move |cell| (ColumnId(column), cell)))
    };
    let marker = proptest::option::weighted(0.8, Just(LivenessKind::Live));
    (marker, cell(1), cell(2)).prop_map(|(marker, first, second)| {
        let cells: Vec<_> = first.into_iter().chain(second).collect();
        let timestamp = cells.iter().map(|(_, cell)| cell.timestamp).min().unwrap_or(Timestamp(3));
        let marker = marker.or(cells.is_empty().then_some(LivenessKind::Live));
        Row { marker: marker.map(|kind| Liveness { timestamp, kind }), cells, ..Row::default() }
    })
}

fn shard(clock: u64) -> Shard {
    Shard { node: NodeId(clock as u32), incarnation: 1, clock, value: 7 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// What `sstable::skip` says of a file of older versions: passed over or not, the answer is the same.
    #[test]
    fn a_row_is_answered_alike_whether_older_files_are_looked_into_or_not(
        oldest in any_written_row(0..6),
        older in any_written_row(2..9),
        newer in any_written_row(4..12),
        is_flushed in any::<bool>(),
    ) {
        let mut node = Node::new();
        for row in [oldest, older] {
            node.write(&rows(0, [(0, row)]));
            node.flush();
        }
        node.write(&rows(0, [(0, newer)]));
        if is_flushed {
            node.flush();
        }
        let (mut general, mut direct) = (Vec::new(), Vec::new());
        for (slices, answers) in [(vec![Slice::one(&row_key(0))], &mut direct), (vec![], &mut general)] {
            let target = Target::Partition(partition_key(0));
            let command = ReadCommand { target, slices, direction: Direction::Reverse, ..scan() };
            for direction in [Direction::Forward, Direction::Reverse] {
                answers.push(node.store.read(&ReadCommand { direction, ..command.clone() }, Access::Disk).unwrap());
            }
        }
        prop_assert_eq!(direct, general);
    }
}

/// Readers look while memtables are frozen, flushed and merged: what was inserted before a read began is in it.
#[test]
fn no_read_misses_a_row_while_memtables_and_files_change() {
    let mut node = Node::new();
    let records: Vec<_> = (0..400).map(|row| node.record(&rows(row as u8 % 4, [(row, value("v", 1))]))).collect();
    let inserted = AtomicUsize::new(0);
    let is_done = || inserted.load(Ordering::SeqCst) == records.len();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done() {
                node.store.flush_next().unwrap();
            }
        });
        scope.spawn(|| {
            while !is_done() {
                node.store.compact_next(0, &Unpaced).unwrap();
            }
        });
        for direction in [Direction::Forward, Direction::Reverse] {
            let (node, inserted, is_done) = (&node, &inserted, &is_done);
            scope.spawn(move || {
                while !is_done() {
                    let before = inserted.load(Ordering::SeqCst);
                    let found = node.read(ReadCommand { direction, limit_rows: 30, ..scan() });
                    let found = found.iter().filter(|fragment| matches!(fragment, Fragment::Row(..))).count();
                    assert!(found >= before, "{found} rows after {before}");
                }
            });
        }
        for record in &records {
            let mut ends = Vec::new();
            node.store.append(std::slice::from_ref(record), &mut ends).unwrap();
            node.store.insert(record, ends[0]).unwrap();
            inserted.fetch_add(1, Ordering::SeqCst);
        }
    });
    node.checked();
}
