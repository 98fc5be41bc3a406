//! Faults that other databases had, by their names in `docs/testing.md`; and what a builder refuses.

use super::*;
use crate::Class;
use crate::vfs::faulty::{Fault, FaultyVfs, Operation};

/// Reads of a slice skipped a file whose rows lay outside it, and with it the partition deletion that the file held; the
/// deleted row of another replica came back.
#[test]
fn b004_a_slice_without_rows_still_answers_the_partition_deletion() {
    let mut data = Data::default();
    data.at(0).put(1, 1, 5);
    data.at(0).deletion = Some(deletion(1));
    let file = data.file(100);
    for direction in BOTH {
        for slice in [Slice { start: after(&[5]), end: Bound::top() }, Slice::one(&clustering(9, 9))] {
            let found = read(&file, &partition_key(0), &[slice], direction, Access::Disk).unwrap();
            assert!(matches!(&found[..], [Fragment::Partition(header)] if header.deletion == Some(deletion(1))));
        }
    }
}

/// Descending reads ignored range deletions.
#[test]
fn b014_descending_reads_see_the_same_range_deletions() {
    for block in [1, 40, 100, 10_000] {
        let mut data = Data::default();
        (0..10).for_each(|a| data.at(0).put(a, 0, 5));
        data.at(0).delete(before(&[2]), after(&[7]), 9);
        let file = data.file(block);
        let [up, down] =
            BOTH.map(|direction| read(&file, &partition_key(0), &[Slice::all()], direction, Access::Disk).unwrap());
        let mirrored: Vec<_> = ranges(&down).into_iter().rev().map(|range| (range.end, range.start)).collect();
        let ranges: Vec<_> = ranges(&up).into_iter().map(|range| (range.start, range.end)).collect();
        assert_eq!(ranges, [(before(&[2]), after(&[7]))]);
        assert_eq!(mirrored, ranges);
        assert_eq!(up.len(), down.len());
    }
}

/// Bounds of clustering values came from rows only; a read outside them skipped the file together with its range
/// deletion or static row.
#[test]
fn b023_clustering_bounds_hold_the_ends_of_range_deletions() {
    let mut data = Data::default();
    data.at(0).put(2, 2, 5);
    data.at(0).delete(before(&[1]), after(&[1]), 5);
    let file = data.file(100);
    let bounds = (before(&[1]).bytes().clone(), clustering(2, 2).bytes().clone());
    assert_eq!(file.stats().clustering, Some(bounds));
    assert!(!file.stats().must_read);
    let one = [Slice { start: before(&[1, 1]), end: after(&[1, 1]) }];
    let found = read(&file, &partition_key(0), &one, Direction::Forward, Access::Disk).unwrap();
    let clipped = RangeDeletion { start: one[0].start.clone(), end: one[0].end.clone(), deletion: deletion(5) };
    assert_eq!(ranges(&found), [clipped]);

    for contents in [
        Contents { deletion: Some(deletion(1)), ..Contents::default() },
        Contents { static_row: Some(row(1, 1)), ..Contents::default() },
    ] {
        let file = Data { partitions: [(partition_key(0), contents)].into() }.file(100);
        assert!(file.stats().must_read);
    }
}

/// With mixed clustering order a reversed read skipped a whole file.
#[test]
fn b034_mixed_clustering_order_reads_alike_in_both_directions() {
    let types = [(Type::Int, Order::Descending), (Type::Int, Order::Ascending)];
    let key = |a: i32, b: i32| ClusteringKey::encode(&[int(a), int(b)], &types).unwrap();
    let mut data = Data::default();
    (1..=3).for_each(|n| drop(data.at(0).rows.insert(key(n, n), row(1, 5))));
    let file = data.file(1);
    let rows = |slice: Slice, direction| -> Vec<ClusteringKey> {
        let found = read(&file, &partition_key(0), &[slice], direction, Access::Disk).unwrap();
        let rows = found.into_iter().filter_map(|fragment| match fragment {
            Fragment::Row(key, _) => Some(key),
            _ => None,
        });
        rows.collect()
    };
    assert_eq!(rows(Slice::all(), Direction::Forward), [key(3, 3), key(2, 2), key(1, 1)]);
    assert_eq!(rows(Slice::all(), Direction::Reverse), [key(1, 1), key(2, 2), key(3, 3)]);
    let tail = Slice { start: Bound::before(&[int(2), int(2)], &types).unwrap(), end: Bound::top() };
    assert_eq!(rows(tail.clone(), Direction::Forward), [key(2, 2), key(1, 1)]);
    assert_eq!(rows(tail, Direction::Reverse), [key(1, 1), key(2, 2)]);
}

/// A descending slice before the first row of an indexed partition that holds only range deletions answered an unbounded
/// deletion; read repair wrote it elsewhere and deleted live data for good.
#[test]
fn b100_a_descending_slice_beside_range_deletions_answers_none_of_them() {
    let mut data = Data::default();
    for day in 1..=30 {
        data.at(0).delete(before(&[2018, day]), after(&[2018, day]), i64::from(day));
    }
    let file = data.file(100);
    assert!(file.index.count() > 5);
    let earlier = [Slice { start: Bound::bottom(), end: before(&[2018]) }];
    let later = [Slice { start: after(&[2018]), end: Bound::top() }];
    for direction in BOTH {
        for slices in [&earlier, &later] {
            let found = read(&file, &partition_key(0), slices, direction, Access::Disk).unwrap();
            assert!(ranges(&found).is_empty(), "{found:?}");
        }
        let all = read(&file, &partition_key(0), &[Slice::all()], direction, Access::Disk).unwrap();
        assert_eq!(ranges(&all).len(), 30);
    }
}

/// Two range deletions that touch: where a read ended exactly between them the second was opened and never closed.
#[test]
fn b103_reads_that_end_where_two_range_deletions_touch_are_balanced() {
    let mut data = Data::default();
    (0..10).for_each(|a| data.at(0).put(a, 0, 5));
    data.at(0).delete(before(&[1]), before(&[5]), 1);
    data.at(0).delete(before(&[5]), after(&[9]), 2);
    let slices = [
        (Slice { start: before(&[1]), end: before(&[5]) }, 1),
        (Slice { start: after(&[0]), end: after(&[5]) }, 2),
        (Slice { start: before(&[5]), end: after(&[5]) }, 1),
        (Slice { start: before(&[5]), end: before(&[5]) }, 0),
        (Slice { start: after(&[9]), end: Bound::top() }, 0),
    ];
    for block in [1, 50, 10_000] {
        let file = data.file(block);
        for direction in BOTH {
            for (slice, expected) in &slices {
                let found =
                    read(&file, &partition_key(0), std::slice::from_ref(slice), direction, Access::Disk).unwrap();
                assert_eq!(ranges(&found).len(), *expected, "{slice:?}");
            }
        }
    }
}

/// A writer that took back a half-written row lost bytes at the next chunk. Here nothing is ever taken back; sizes around
/// that of a block, of bytes that do not compress and of bytes that do.
#[test]
fn b113_rows_of_every_size_around_a_block_come_back() {
    const BLOCK: usize = 4096;
    let empty = row(5, 0).bytes().len();
    for len in [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 100].into_iter().flat_map(|len| len - empty - 20..len + 3) {
        let mut data = Data::default();
        (0..3).for_each(|b| data.at(0).put(1, b, len));
        data.at(0).put(2, 0, 10);
        let zeros = CellKind::Live(vec![0; len].into());
        let cells = vec![(ColumnId(3), Cell { timestamp: Timestamp(1), kind: zeros })];
        data.at(1).rows.insert(clustering(1, 1), EncodedRow::encode(&Row { cells, ..Row::default() }));
        let file = data.file(BLOCK);
        assert!(collect(&mut file.read_through().unwrap()).unwrap() == data.all(), "{len} bytes");
    }
}

#[test]
fn a_builder_refuses_disorder_and_then_does_not_finish() {
    let header = |key| Fragment::Partition(PartitionHeader { key, deletion: None, static_row: None });
    let mut keys = [partition_key(0), partition_key(1)];
    keys.sort();
    let [low, high] = keys;
    let place = |a| Fragment::Row(clustering(a, 0), row(1, 1));
    let change = |a, to: Option<i64>| Fragment::Change(before(&[a]), to.map(deletion));
    let cases: [(&str, Vec<Fragment<EncodedRow>>); 9] = [
        ("row first", vec![place(1)]),
        ("partitions descend", vec![header(high.clone()), header(low.clone())]),
        ("partition twice", vec![header(low.clone()), header(low.clone())]),
        ("rows descend", vec![header(low.clone()), place(2), place(1)]),
        ("row twice", vec![header(low.clone()), place(1), place(1)]),
        ("closed, not open", vec![header(low.clone()), change(1, None)]),
        ("opened twice alike", vec![header(low.clone()), change(1, Some(1)), change(2, Some(1))]),
        ("change behind a row of its place", vec![header(low.clone()), place(1), change(1, Some(1))]),
        ("not closed at the next partition", vec![header(low.clone()), change(1, Some(1)), header(high.clone())]),
    ];
    for (name, fragments) in cases {
        let mut builder = Builder::create(&disk(), options(100)).unwrap();
        let (last, fine) = fragments.split_last().unwrap();
        fine.iter().for_each(|fragment| builder.add(fragment).unwrap());
        assert_eq!(builder.add(last).unwrap_err().class(), Class::Invalid, "{name}");
        assert_eq!(builder.add(&header(high.clone())).unwrap_err().class(), Class::Invalid, "{name}: went on");
        assert!(builder.finish().is_err(), "{name}: finished");
    }
    let mut builder = Builder::create(&disk(), options(100)).unwrap();
    [header(low), change(1, Some(1))].iter().for_each(|fragment| builder.add(fragment).unwrap());
    assert_eq!(builder.finish().unwrap_err().class(), Class::Invalid, "not closed at the end");
}

#[test]
fn a_builder_whose_disk_fails_does_not_finish() {
    let mut data = Data::default();
    (0..200).for_each(|a| data.at(0).put(a, 0, 3000));
    // The third write and the sync are those of `finish`.
    for (operation, nth) in [(Operation::Write, 1), (Operation::Write, 2), (Operation::Write, 3), (Operation::Sync, 1)]
    {
        let vfs = FaultyVfs::new(Arc::new(disk()));
        let mut builder = Builder::create(&vfs, options(4096)).unwrap();
        vfs.fail(operation, nth, Fault::Full);
        let added: Result<()> = data.all().iter().try_for_each(|fragment| builder.add(fragment));
        let finished = builder.finish();
        assert_eq!(finished.unwrap_err().class(), Class::Unavailable, "{operation:?} {nth}");
        assert_eq!(added.is_err(), operation == Operation::Write && nth < 3);
    }
}

/// A finished file is there after a power loss once its directory was synced.
#[test]
fn a_finished_file_survives_a_power_loss() {
    let mut data = Data::default();
    (0..50).for_each(|a| data.at(0).put(a, 0, 100));
    for seed in 0..20 {
        let vfs = disk();
        let meta = data.build(&vfs, 1000);
        vfs.sync_dir(&directory()).unwrap();
        vfs.crash(seed);
        open(&vfs).unwrap().verify(&meta.hash).unwrap();
    }
}
