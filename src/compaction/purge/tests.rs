//! What goes and what stays, row by row, and the law: a read after a purge within its bounds answers as one before it.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::naive::{
    Naive, any_mutation_without_counters, delete_rows, deletion, partition_key, rows, static_value, value,
};
use crate::model::{ColumnId, Direction, Merge, Mutation, Slice};

const SECOND: i64 = 1_000_000;

struct Fragments(std::vec::IntoIter<Fragment<EncodedRow>>);

impl Stream<EncodedRow> for Fragments {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        Ok(self.0.next())
    }
}

fn encoded(fragment: Fragment<Row>) -> Fragment<EncodedRow> {
    match fragment {
        Fragment::Partition(PartitionHeader { key, deletion, static_row }) => {
            let static_row = static_row.map(|row| EncodedRow::encode(&row));
            Fragment::Partition(PartitionHeader { key, deletion, static_row })
        }
        Fragment::Row(key, row) => Fragment::Row(key, EncodedRow::encode(&row)),
        Fragment::Change(bound, deletion) => Fragment::Change(bound, deletion),
    }
}

fn decoded(fragment: Fragment<EncodedRow>) -> Fragment<Row> {
    match fragment {
        Fragment::Partition(PartitionHeader { key, deletion, static_row }) => {
            let static_row = static_row.map(|row| row.decode().unwrap());
            Fragment::Partition(PartitionHeader { key, deletion, static_row })
        }
        Fragment::Row(key, row) => Fragment::Row(key, row.decode().unwrap()),
        Fragment::Change(bound, deletion) => Fragment::Change(bound, deletion),
    }
}

fn stream(fragments: Vec<Fragment<Row>>) -> Fragments {
    Fragments(fragments.into_iter().map(encoded).collect::<Vec<_>>().into_iter())
}

fn all(mut stream: impl Stream<EncodedRow>) -> Vec<Fragment<Row>> {
    std::iter::from_fn(|| stream.next().unwrap()).map(decoded).collect()
}

fn of(mutations: &[Mutation]) -> Vec<Fragment<Row>> {
    let mut naive = Naive::default();
    mutations.iter().for_each(|mutation| naive.apply(mutation));
    naive.scan(&[Slice::all()], Direction::Forward)
}

/// What is left of these mutations, merged, at `now_s` below `limit`.
fn purged(mutations: &[Mutation], now_s: i64, limit: Option<i64>) -> Vec<Fragment<Row>> {
    all(Purge::new(stream(of(mutations)), now_s, None, |_| Ok(limit.map(Timestamp))))
}

fn cell(timestamp: i64, kind: CellKind) -> Row {
    Row { cells: vec![(ColumnId(1), Cell { timestamp: Timestamp(timestamp), kind })], ..Row::default() }
}

fn tombstone(timestamp: i64) -> Row {
    cell(timestamp, CellKind::Tombstone { ldt_s: timestamp.div_euclid(SECOND) })
}

fn complex(complex: Complex) -> Row {
    Row { complex: vec![(ColumnId(20), complex)], ..Row::default() }
}

/// A cell as an element of a map.
fn in_map((_, cell): (ColumnId, Cell)) -> (Bytes, Cell) {
    (Bytes::from_static(b"key"), cell)
}

fn expiring(timestamp: i64, ttl_s: u32, expiry_s: i64) -> Row {
    cell(timestamp, CellKind::Expiring { value: Bytes::from_static(b"v"), ttl_s, expiry_s })
}

/// G28: lateness 100 s, purged through 1,100 s: a tombstone at 999 s may go, one at 1,000 s not.
#[test]
fn g28_a_tombstone_goes_only_below_the_limit() {
    let limit = Some((1_100 - 100) * SECOND);
    for (at_s, goes) in [(999, true), (1_000, false)] {
        let t = at_s * SECOND;
        let row_deletion = rows(1, [(1, Row { deletion: Some(deletion(t)), ..Row::default() })]);
        let whole = Mutation { deletion: Some(deletion(t)), ..rows(1, []) };
        let column = rows(1, [(1, complex(Complex::deleted(deletion(t))))]);
        let element = Complex { deletion: None, cells: tombstone(t).cells.into_iter().map(in_map).collect() };
        let element = rows(1, [(1, complex(element))]);
        for mutation in [rows(1, [(1, tombstone(t))]), row_deletion, whole, delete_rows(1, 1, 5, t), column, element] {
            let left = purged(std::slice::from_ref(&mutation), i64::MAX, limit);
            assert_eq!(left.is_empty(), goes, "{mutation:?}");
            assert_eq!(purged(std::slice::from_ref(&mutation), i64::MAX, None), of(&[mutation]), "no limit, no purge");
        }
    }
}

/// G29: the same bounds; a cell with ttl 50 that was written at 990 s and expired at 1,050 s may go from then on.
#[test]
fn g29_what_has_expired_goes_from_its_expiry_on() {
    let limit = Some(1_000 * SECOND);
    let written = [rows(1, [(1, expiring(990 * SECOND, 50, 1_050))])];
    assert_eq!(purged(&written, 1_049, limit), of(&written));
    assert_eq!(purged(&written, 1_050, limit), []);
    // Already found to have expired; a clock that was set back does not purge it before its time.
    let expired = [rows(1, [(1, cell(990 * SECOND, CellKind::Expired { ttl_s: 50, expiry_s: 1_050 }))])];
    assert_eq!(purged(&expired, 1_049, limit), of(&expired));
    assert_eq!(purged(&expired, 1_050, limit), []);
}

/// B121: expired cells became tombstones that needed a second compaction; or a file went whole although a live cell or a
/// newer deletion was in it.
#[test]
fn b121_what_has_expired_goes_at_once_and_nothing_else_with_it() {
    let marker = |kind| Some(Liveness { timestamp: Timestamp(5), kind });
    let inserted = Row { marker: marker(LivenessKind::Expiring { ttl_s: 10, expiry_s: 100 }), ..expiring(5, 10, 100) };
    assert_eq!(purged(&[rows(1, [(1, inserted.clone())])], 100, Some(6)), []);
    // Where it may not go yet it loses its value.
    let left = purged(&[rows(1, [(1, inserted.clone())])], 100, Some(5));
    let expired = Row {
        marker: marker(LivenessKind::Expired { ttl_s: 10, expiry_s: 100 }),
        ..cell(5, CellKind::Expired { ttl_s: 10, expiry_s: 100 })
    };
    assert_eq!(left, of(&[rows(1, [(1, expired)])]));
    // A live cell beside it, a row that lasts, a deletion that is too new.
    let mut mixed = inserted;
    mixed.cells.push((ColumnId(2), value("lives", 5).cells[0].1.clone()));
    let written = [rows(1, [(1, mixed), (2, value("lives", 5))]), delete_rows(1, 7, 9, 50)];
    let only_live = Row { cells: vec![(ColumnId(2), value("lives", 5).cells[0].1.clone())], ..Row::default() };
    let expected = of(&[rows(1, [(1, only_live), (2, value("lives", 5))]), delete_rows(1, 7, 9, 50)]);
    assert_eq!(purged(&written, 100, Some(6)), expected);
}

/// B041: a greatest timestamp that meant "nothing overlaps" kept tombstones of just that timestamp for ever. Here none is a
/// limit of its own; the greatest timestamp there is, is one like any other.
#[test]
fn b041_the_greatest_timestamp_is_no_sentinel() {
    let last = Deletion { timestamp: Timestamp(i64::MAX - 1), ldt_s: 0 };
    let newest = rows(1, [(1, Row { deletion: Some(last), ..Row::default() })]);
    assert_eq!(purged(std::slice::from_ref(&newest), 0, Some(i64::MAX)), []);
    assert_eq!(purged(std::slice::from_ref(&newest), 0, Some(i64::MAX - 1)).len(), 2);
    assert_eq!(purged(std::slice::from_ref(&newest), 0, None).len(), 2);
}

#[test]
fn a_partition_of_which_nothing_is_left_goes_with_its_header() {
    let keeps = rows(2, [(1, value("v", 1))]);
    let goes = [rows(1, [(1, tombstone(1)), (2, tombstone(2))]), delete_rows(1, 3, 4, 2)];
    let mut written = goes.to_vec();
    written.push(keeps.clone());
    written.push(Mutation { static_row: Some(static_value("s", 9)), ..rows(3, [(1, tombstone(1))]) });
    let expected = of(&[keeps, Mutation { static_row: Some(static_value("s", 9)), ..rows(3, []) }]);
    assert_eq!(purged(&written, 0, Some(3)), expected);
}

#[test]
fn range_deletions_stay_balanced_when_some_of_them_go() {
    let written =
        [delete_rows(1, 0, 5, 1), delete_rows(1, 3, 9, 5), delete_rows(1, 7, 12, 2), rows(1, [(20, value("v", 1))])];
    let expected = of(&[delete_rows(1, 3, 9, 5), rows(1, [(20, value("v", 1))])]);
    assert_eq!(purged(&written, 0, Some(3)), expected);
}

#[test]
fn the_limit_is_asked_for_candidates_only_and_once_for_each_partition() {
    let written = [
        rows(1, [(1, value("v", 1)), (2, expiring(1, 5, 1_000))]),
        rows(2, [(1, tombstone(1)), (2, tombstone(2)), (3, value("v", 1))]),
    ];
    let mut asked = Vec::new();
    let mut purge = Purge::new(stream(of(&written)), 10, None, |key: &PartitionKey| {
        asked.push(key.clone());
        Ok(Some(Timestamp(2)))
    });
    while purge.next().unwrap().is_some() {}
    drop(purge);
    assert_eq!(asked, [partition_key(2)]);
}

#[test]
fn the_least_timestamp_is_that_of_anything() {
    let least = |mutations: &[Mutation]| least_timestamp(&mut stream(of(mutations))).unwrap().map(|least| least.0);
    assert_eq!(least(&[]), None);
    let base = rows(1, [(1, value("v", 50))]);
    let parts = [
        Mutation { deletion: Some(deletion(7)), ..rows(1, []) },
        Mutation { static_row: Some(static_value("s", 7)), ..rows(1, []) },
        rows(1, [(2, Row { deletion: Some(deletion(7)), ..Row::default() })]),
        rows(1, [(2, tombstone(7))]),
        rows(1, [(2, complex(Complex::deleted(deletion(7))))]),
        rows(
            1,
            [(2, complex(Complex { deletion: None, cells: tombstone(7).cells.into_iter().map(in_map).collect() }))],
        ),
        rows(1, [(2, Row { cells: Vec::new(), ..value("", 7) })]),
        delete_rows(1, 5, 6, 7),
    ];
    for part in parts {
        assert_eq!(least(&[base.clone(), part]), Some(7));
    }
    assert_eq!(least(&[base]), Some(50));
}

/// What a reader at `now_s` sees: live values, by row; deletions and what has expired are nothing.
fn visible(fragments: &[Fragment<Row>], now_s: i64) -> Vec<String> {
    let live = |row: &Row| {
        let cells: Vec<_> = row.all_cells().filter_map(|(place, cell)| Some((place, cell.value_at(now_s)?))).collect();
        format!("{cells:?}")
    };
    let mut partition = None;
    let mut seen = Vec::new();
    for fragment in fragments {
        match fragment {
            Fragment::Partition(header) => {
                partition = Some(header.key.clone());
                let row = header.static_row.as_ref().filter(|row| row.is_visible_at(now_s));
                seen.extend(row.map(|row| format!("{partition:?} {}", live(row))));
            }
            Fragment::Row(key, row) if row.is_visible_at(now_s) => {
                seen.push(format!("{partition:?} {key:?} {}", live(row)));
            }
            _ => {}
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Some mutations are compacted, others are outside; the limit is what the rules make it. Later reads see the same,
    /// whatever of the outside comes to it.
    #[test]
    fn a_purge_within_its_limit_changes_no_read(
        inside in proptest::collection::vec(any_mutation_without_counters(3, 6), 1..12),
        outside in proptest::collection::vec(any_mutation_without_counters(3, 6), 0..6),
        late in proptest::collection::vec(any_mutation_without_counters(3, 6), 0..4),
        time_limit in 0i64..25,
        now_s in 85i64..115,
    ) {
        // What arrives later is not older than the limit of time.
        let late: Vec<Mutation> = late
            .into_iter()
            .filter(|mutation| {
                let least = least_timestamp(&mut stream(of(std::slice::from_ref(mutation)))).unwrap();
                least.is_none_or(|least| least.0 >= time_limit)
            })
            .collect();
        let limit = |key: &PartitionKey| {
            let mut naive = Naive::default();
            // Of each apart: what one of them covers in another is still there.
            let mut least = Timestamp(time_limit);
            for mutation in outside.iter().filter(|mutation| mutation.key == *key) {
                naive.apply(mutation);
                let own = least_timestamp(&mut stream(of(std::slice::from_ref(mutation)))).unwrap();
                least = own.map_or(least, |own| own.min(least));
            }
            Ok(Some(least))
        };
        let left = all(Purge::new(stream(of(&inside)), now_s, None, limit));
        for others in [[&outside[..], &[]].concat(), [&outside[..], &late].concat()] {
            let merged = |inside: &[Fragment<Row>]| {
                all(Merge::new(vec![stream(inside.to_vec()), stream(of(&others))], Direction::Forward))
            };
            let (before, after) = (merged(&of(&inside)), merged(&left));
            for later_s in [now_s, now_s + 7, 1_000] {
                prop_assert_eq!(visible(&before, later_s), visible(&after, later_s), "at {}", later_s);
            }
        }
        // Purging what was purged changes nothing.
        prop_assert_eq!(all(Purge::new(stream(left.clone()), now_s, None, limit)), left);
    }
}
