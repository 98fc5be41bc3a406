//! Random partitions from several sources against a model that looks at every row on its own.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::ranges::tests::{ROWS, any_bound, any_ranges, key};
use crate::model::reconcile::tests::{any_deletion, any_row, any_static_row};
use crate::model::reconcile::{merge_rows, shadow_row};
use crate::model::{Bound, Cell, CellKind, ColumnId, Ranges, Row, Slice, Timestamp};

/// What one source holds of one partition; its rows are not yet under its own deletions.
#[derive(Debug, Clone, Default)]
struct Content {
    deletion: Option<Deletion>,
    static_row: Option<Row>,
    rows: BTreeMap<u8, Row>,
    ranges: Vec<(Bound, Bound, Deletion)>,
}

/// One source: its partitions by a number that stands for their key.
type Contents = BTreeMap<u8, Content>;

fn partition(number: u8) -> PartitionKey {
    PartitionKey::from_bytes(Bytes::from(vec![number]))
}

fn any_content() -> impl Strategy<Value = Content> {
    let deletion = proptest::option::weighted(0.2, any_deletion());
    let static_row = proptest::option::weighted(0.3, any_static_row());
    let rows = proptest::collection::btree_map(0..ROWS, any_row(), 0..6);
    (deletion, static_row, rows, any_ranges()).prop_map(|(deletion, static_row, rows, ranges)| Content {
        deletion,
        static_row,
        rows,
        ranges,
    })
}

fn any_sources() -> impl Strategy<Value = Vec<Contents>> {
    proptest::collection::vec(proptest::collection::btree_map(0..3u8, any_content(), 0..3), 0..6)
}

fn position(fragment: &Fragment<Row>) -> Bytes {
    match fragment {
        Fragment::Partition(_) => Bytes::new(),
        Fragment::Row(key, _) => key.bytes().clone(),
        Fragment::Change(bound, _) => bound.bytes().clone(),
    }
}

impl Content {
    fn fragments(&self, number: u8, slice: &Slice, direction: Direction) -> Vec<Fragment<Row>> {
        let mut ranges = Ranges::new();
        for (start, end, deletion) in &self.ranges {
            ranges.add(start.clone(), end.clone(), *deletion);
        }
        let rows = self.rows.iter().filter(|(row, _)| inside(slice, **row));
        let mut body: Vec<_> = rows.map(|(row, content)| Fragment::Row(key(*row), content.clone())).collect();
        body.extend(ranges.changes(slice, direction).map(|(bound, deletion)| Fragment::Change(bound, deletion)));
        body.sort_by_key(position);
        if direction == Direction::Reverse {
            body.reverse();
        }
        let header =
            PartitionHeader { key: partition(number), deletion: self.deletion, static_row: self.static_row.clone() };
        body.insert(0, Fragment::Partition(header));
        body
    }
}

fn inside(slice: &Slice, row: u8) -> bool {
    slice.start.bytes() < key(row).bytes() && key(row).bytes() < slice.end.bytes()
}

struct Listed(std::vec::IntoIter<Result<Fragment<Row>>>);

impl Stream<Row> for Listed {
    fn next(&mut self) -> Result<Option<Fragment<Row>>> {
        self.0.next().transpose()
    }
}

fn listed(fragments: Vec<Fragment<Row>>) -> Listed {
    Listed(fragments.into_iter().map(Ok).collect::<Vec<_>>().into_iter())
}

fn stream(contents: &Contents, slice: &Slice, direction: Direction) -> Listed {
    let mut numbers: Vec<u8> = contents.keys().copied().collect();
    numbers.sort_by_key(|number| partition(*number));
    listed(numbers.into_iter().flat_map(|number| contents[&number].fragments(number, slice, direction)).collect())
}

fn collect<S: Stream<Row>>(mut stream: S) -> Result<Vec<Fragment<Row>>> {
    let mut fragments = Vec::new();
    while let Some(fragment) = stream.next()? {
        fragments.push(fragment);
    }
    Ok(fragments)
}

fn merged(sources: &[Contents], slice: &Slice, direction: Direction) -> Vec<Fragment<Row>> {
    let sources = sources.iter().map(|contents| stream(contents, slice, direction)).collect();
    collect(Merge::new(sources, direction)).unwrap()
}

/// What a reader makes of a stream: per partition its header, its rows, and the deletion in force at every row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    key: PartitionKey,
    deletion: Option<Deletion>,
    static_row: Option<Row>,
    rows: BTreeMap<u8, Row>,
    in_force: Vec<Option<Deletion>>,
}

/// Reads a stream and checks its invariants on the way.
fn read(fragments: &[Fragment<Row>], direction: Direction) -> Vec<Seen> {
    let mut seen: Vec<Seen> = Vec::new();
    let mut open = None;
    let mut last: Option<Bytes> = None;
    for fragment in fragments {
        let position = position(fragment);
        if let Fragment::Partition(header) = fragment {
            assert_eq!(open, None, "left open");
            assert!(seen.last().is_none_or(|before| before.key < header.key));
            let PartitionHeader { key, deletion, static_row } = header.clone();
            let in_force = vec![None; usize::from(ROWS)];
            seen.push(Seen { key, deletion, static_row, rows: BTreeMap::new(), in_force });
            last = None;
            continue;
        }
        let ordered = |last: &Bytes| compare(direction, Some(last), Some(&position)) == Ordering::Less;
        assert!(last.as_ref().is_none_or(ordered), "{fragments:?}");
        let partition = seen.last_mut().unwrap();
        match fragment {
            Fragment::Change(_, deletion) => {
                assert_ne!(open, *deletion, "a change that changes nothing");
                open = *deletion;
                let behind = |row: u8| compare(direction, Some(&position), Some(key(row).bytes())) == Ordering::Less;
                (0..ROWS).filter(|row| behind(*row)).for_each(|row| partition.in_force[usize::from(row)] = open);
            }
            Fragment::Row(at, row) => {
                let number = (0..ROWS).find(|row| key(*row) == *at).unwrap();
                partition.rows.insert(number, row.clone());
            }
            Fragment::Partition(_) => {}
        }
        last = Some(position);
    }
    assert_eq!(open, None, "left open");
    seen
}

/// The same, found by looking at every row on its own.
fn naive(sources: &[Contents], slice: &Slice) -> Vec<Seen> {
    let mut numbers: Vec<u8> = (0..3).filter(|number| sources.iter().any(|s| s.contains_key(number))).collect();
    numbers.sort_by_key(|number| partition(*number));
    let seen = numbers.into_iter().map(|number| {
        let contents: Vec<&Content> = sources.iter().filter_map(|source| source.get(&number)).collect();
        let deletion = contents.iter().filter_map(|content| content.deletion).max();
        let under = |row: Row, covering: Option<Deletion>| match covering {
            Some(covering) => shadow_row(row, covering),
            None => Some(row),
        };
        let static_row = contents.iter().filter_map(|content| content.static_row.clone()).reduce(merge_rows);
        let mut rows = BTreeMap::new();
        let mut in_force = Vec::new();
        for row in 0..ROWS {
            let at = key(row);
            let ranges = contents.iter().flat_map(|content| &content.ranges);
            let covering = ranges.filter(|(start, end, _)| start.bytes() < at.bytes() && at.bytes() < end.bytes());
            let strongest = covering.map(|(_, _, deletion)| *deletion).max().filter(|_| inside(slice, row));
            in_force.push(strongest.filter(|range| deletion.is_none_or(|whole| !whole.covers(range.timestamp))));
            let versions = contents.iter().filter_map(|content| content.rows.get(&row).cloned());
            let version = versions.reduce(merge_rows).filter(|_| inside(slice, row));
            rows.extend(version.and_then(|version| under(version, deletion.max(strongest))).map(|left| (row, left)));
        }
        let static_row = static_row.and_then(|static_row| under(static_row, deletion));
        Seen { key: partition(number), deletion, static_row, rows, in_force }
    });
    comparable(seen.collect())
}

/// Ranges may lie between rows, where no row shows them: what `naive` cannot see is left out of the comparison.
fn comparable(mut seen: Vec<Seen>) -> Vec<Seen> {
    seen.retain(|seen| {
        let bare = seen.deletion.is_none() && seen.static_row.is_none();
        !bare || !seen.rows.is_empty() || seen.in_force.iter().any(Option::is_some)
    });
    seen
}

/// The same stream read the other way: changes move to the other end of what they cover.
fn mirrored(fragments: &[Fragment<Row>]) -> Vec<Fragment<Row>> {
    let mut mirrored = Vec::new();
    let mut body: Vec<Fragment<Row>> = Vec::new();
    let mut before = None;
    for fragment in fragments {
        match fragment {
            Fragment::Partition(_) => {
                mirrored.extend(body.drain(..).rev());
                mirrored.push(fragment.clone());
            }
            Fragment::Row(..) => body.push(fragment.clone()),
            Fragment::Change(bound, deletion) => {
                body.push(Fragment::Change(bound.clone(), before));
                before = *deletion;
            }
        }
    }
    mirrored.extend(body.drain(..).rev());
    mirrored
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_row_is_what_all_sources_say_of_it(sources in any_sources(), start in any_bound(), end in any_bound()) {
        for slice in [Slice::all(), Slice { start, end }] {
            let expected = naive(&sources, &slice);
            for direction in [Direction::Forward, Direction::Reverse] {
                let found = read(&merged(&sources, &slice, direction), direction);
                prop_assert_eq!(&comparable(found), &expected);
            }
        }
    }

    /// Descending reads ignored range deletions that another source held than the rows.
    #[test]
    fn b014_a_reverse_read_is_the_mirror_of_the_forward_read(sources in any_sources()) {
        let forward = merged(&sources, &Slice::all(), Direction::Forward);
        let reverse = merged(&sources, &Slice::all(), Direction::Reverse);
        prop_assert_eq!(mirrored(&forward), reverse.clone());
        prop_assert_eq!(mirrored(&reverse), forward);
    }

    #[test]
    fn merging_in_steps_or_in_another_order_is_the_same(sources in any_sources(), at in 0..6usize) {
        let at = at.min(sources.len());
        for direction in [Direction::Forward, Direction::Reverse] {
            let whole = merged(&sources, &Slice::all(), direction);
            let (left, right) = sources.split_at(at);
            let halves = [right, left].map(|half| listed(merged(half, &Slice::all(), direction)));
            prop_assert_eq!(&collect(Merge::new(halves.into(), direction)).unwrap(), &whole);
            let twice = vec![listed(whole.clone()), listed(whole.clone())];
            prop_assert_eq!(&collect(Merge::new(twice, direction)).unwrap(), &whole);
        }
    }
}

fn at(timestamp: i64) -> Deletion {
    Deletion { timestamp: Timestamp(timestamp), ldt_s: 100 }
}

fn row(timestamp: i64) -> Row {
    let cell = Cell { timestamp: Timestamp(timestamp), kind: CellKind::Live(Bytes::from_static(b"v")) };
    Row { cells: vec![(ColumnId(1), cell)], ..Row::default() }
}

fn header(number: u8) -> Fragment<Row> {
    Fragment::Partition(PartitionHeader { key: partition(number), deletion: None, static_row: None })
}

/// A read error of one source was cleared later on, and the scan went on without that source as if nothing were wrong.
#[test]
fn b112_an_error_of_one_source_ends_the_merge_for_good() {
    let failing = || {
        let fragments = vec![
            Ok(header(1)),
            Ok(Fragment::Row(key(1), row(1))),
            Err(Corrupt::new("block", "checksum").into()),
            Ok(Fragment::Row(key(5), row(1))),
        ];
        Listed(fragments.into_iter())
    };
    let healthy = || listed((0..9).map(|n| Fragment::Row(key(n), row(2))).fold(vec![header(1)], push));
    let mut merge = Merge::new(vec![healthy(), failing(), healthy()], Direction::Forward);
    let before = std::iter::from_fn(|| merge.next().ok().flatten()).count();
    assert!(before <= 3, "{before} fragments before the error");
    for _ in 0..3 {
        assert!(matches!(merge.next(), Err(Error::Corrupt(corrupt)) if corrupt.reason == "checksum"));
    }
}

fn push(mut fragments: Vec<Fragment<Row>>, fragment: Fragment<Row>) -> Vec<Fragment<Row>> {
    fragments.push(fragment);
    fragments
}

#[test]
fn b112_a_source_out_of_order_is_corrupt() {
    let (first, second) = if partition(1) < partition(2) { (1, 2) } else { (2, 1) };
    let change = |n: u8, deletion| Fragment::Change(key(n).after(), deletion);
    let rows = |n: u8| Fragment::Row(key(n), row(1));
    let broken = [
        vec![rows(1)],
        vec![change(1, Some(at(1)))],
        vec![header(first), rows(2), rows(1)],
        vec![header(first), rows(2), rows(2)],
        vec![header(first), rows(2), change(1, None)],
        vec![header(first), change(1, Some(at(1)))],
        vec![header(first), change(1, Some(at(1))), header(second)],
        vec![header(second), rows(1), header(first)],
        vec![header(first), rows(1), header(first), rows(2)],
    ];
    for fragments in broken {
        for beside in [vec![], vec![header(first), rows(1), rows(3)]] {
            let sources = vec![listed(beside.clone()), listed(fragments.clone())];
            let answer = collect(Merge::new(sources, Direction::Forward));
            assert!(matches!(answer, Err(Error::Corrupt(_))), "{fragments:?}: {answer:?}");
        }
    }
}

/// A row that must not be looked into.
#[derive(Debug, PartialEq)]
struct Sealed(u8);

impl Reconcile for Sealed {
    fn merge(self, _other: Self) -> Result<Self> {
        panic!("merged")
    }

    fn under(self, _deletion: Deletion) -> Result<Option<Self>> {
        panic!("looked into")
    }
}

struct Numbered(std::vec::IntoIter<Fragment<Sealed>>);

impl Stream<Sealed> for Numbered {
    fn next(&mut self) -> Result<Option<Fragment<Sealed>>> {
        Ok(self.0.next())
    }
}

#[test]
fn a_row_of_one_source_under_no_deletion_is_not_looked_into() {
    let source = |rows: &[u8], covered: u8| {
        let header = PartitionHeader { key: partition(1), deletion: None, static_row: Some(Sealed(rows[0])) };
        let mut body: Vec<_> = rows.iter().map(|n| Fragment::Row(key(*n), Sealed(*n))).collect();
        body.push(Fragment::Change(key(covered).before(), Some(at(9))));
        body.push(Fragment::Change(key(covered).after(), None));
        body.sort_by_key(|fragment| position_of(fragment).unwrap().to_vec());
        body.insert(0, Fragment::Partition(header));
        Numbered(body.into_iter())
    };
    let mut other = source(&[2, 3, 7], 8);
    other.0.next();
    let bare = PartitionHeader { key: partition(1), deletion: None, static_row: None };
    let other = Numbered(std::iter::once(Fragment::Partition(bare)).chain(other.0).collect::<Vec<_>>().into_iter());
    let mut merge = Merge::new(vec![source(&[1, 4, 9], 5), other], Direction::Forward);
    let mut rows = Vec::new();
    while let Some(fragment) = merge.next().unwrap() {
        rows.extend(if let Fragment::Row(_, Sealed(row)) = fragment { Some(row) } else { None });
    }
    assert_eq!(rows, [1, 2, 3, 4, 7, 9]);
}

#[test]
fn a_partition_of_which_nothing_remains_is_left_out() {
    let deleted = Content { deletion: Some(at(5)), ..Content::default() };
    let shadowed = Content {
        static_row: Some(row(5)),
        rows: BTreeMap::from([(1, row(5))]),
        ranges: vec![(key(1).before(), key(3).after(), at(4))],
        ..Content::default()
    };
    let bare = Contents::from([(1, Content::default())]);
    assert_eq!(merged(&[bare.clone(), bare], &Slice::all(), Direction::Forward), []);
    let both = [Contents::from([(1, deleted.clone())]), Contents::from([(1, shadowed)])];
    let only_header = deleted.fragments(1, &Slice::all(), Direction::Forward);
    assert_eq!(merged(&both, &Slice::all(), Direction::Forward), only_header);
}

/// A read of several slices repeated the range deletion at each of them.
#[test]
fn b031_a_range_is_clipped_to_each_slice_and_never_repeated() {
    let content = Content {
        rows: (1..5).map(|n| (n, row(2))).collect(),
        ranges: vec![(key(1).before(), key(9).after(), at(1))],
        ..Content::default()
    };
    let source = || {
        let mut fragments = Vec::new();
        for (first, last) in [(1, 2), (3, 4)] {
            let slice = Slice { start: key(first).before(), end: key(last).after() };
            let part = content.fragments(1, &slice, Direction::Forward);
            fragments.extend(part.into_iter().skip(usize::from(first > 1)));
        }
        listed(fragments)
    };
    let found = collect(Merge::new(vec![source(), source()], Direction::Forward)).unwrap();
    let changes = found.iter().filter(|fragment| matches!(fragment, Fragment::Change(..))).count();
    assert_eq!(changes, 4, "{found:?}");
    assert_eq!(read(&found, Direction::Forward)[0].rows.len(), 4);
}

/// Snapshots of several versions lost a newer range that began where an older one had been split.
#[test]
fn b101_versions_of_ranges_from_several_sources() {
    let ranges = |ranges: &[(u8, Bound, i64)]| {
        let ranges = ranges.iter().map(|(start, end, timestamp)| (key(*start).before(), end.clone(), at(*timestamp)));
        Contents::from([(1, Content { ranges: ranges.collect(), ..Content::default() })])
    };
    let older = ranges(&[(1, key(3).after(), 0)]);
    let newer = ranges(&[(1, key(2).before(), 1), (2, key(4).after(), 2)]);
    let x = Contents::from([(1, Content { rows: BTreeMap::from([(3, row(1))]), ..Content::default() })]);
    let found = merged(&[older, newer, x], &Slice::all(), Direction::Forward);
    let change = |bound, deletion| Fragment::Change(bound, deletion);
    assert_eq!(
        found[1..],
        [change(key(1).before(), Some(at(1))), change(key(2).before(), Some(at(2))), change(key(4).after(), None)]
    );
}
