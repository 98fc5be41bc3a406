//! What a read touches: a point lookup one block, and a thread that must not block none.

use super::*;
use crate::Error;
use crate::model::Glance;

/// Partition 0: 100 rows in many blocks, under one long range deletion, with a static row in the first block.
fn wide() -> Data {
    let mut data = Data::default();
    let contents = data.at(0);
    (0..100).for_each(|b| contents.put(1, b, 50));
    contents.delete(before(&[1, 10]), after(&[1, 90]), 3);
    contents.static_row = Some(row(4, 10));
    data
}

/// Blocks that reading `slices` fetches from the disk.
fn fetched(data: &Data, slices: &[Slice], direction: Direction) -> u64 {
    let file = data.file(300);
    assert!(file.index.count() > 15, "the partition is not wide");
    read(&file, &partition_key(0), slices, direction, Access::Disk).unwrap();
    file.cache_usage().2
}

#[test]
fn a_point_lookup_fetches_one_block_and_one_for_the_static_row() {
    let mut data = wide();
    for direction in BOTH {
        for b in 20..100 {
            let slices = [Slice::one(&clustering(1, b))];
            assert_eq!(fetched(&data, &slices, direction), 2, "row {b} {direction:?}");
        }
    }
    data.at(0).static_row = None;
    for direction in BOTH {
        for b in 0..100 {
            let slices = [Slice::one(&clustering(1, b))];
            assert_eq!(fetched(&data, &slices, direction), 1, "row {b} {direction:?}");
        }
    }
}

fn partition(file: &Arc<Sstable>, key: &PartitionKey, slices: &[Slice]) -> Option<PartitionStream> {
    file.partition(key, slices, &[], Direction::Forward, Access::CachedOnly, &mut ReadCost::default()).unwrap()
}

#[test]
fn a_partition_that_is_not_there_costs_nothing() {
    let data = wide();
    let file = data.file(300);
    let absent = (1..1000).map(partition_key).filter(|key| !file.filter.may_hold_partition(key.token()));
    let mut asked = 0;
    for key in absent {
        assert!(partition(&file, &key, &[Slice::all()]).is_none());
        asked += 1;
    }
    assert!(asked > 900, "the filter lets too much through: {asked}");
}

#[test]
fn a_row_that_is_not_there_costs_nothing_unless_the_file_says_more_of_the_partition_than_rows() {
    let mut data = Data::default();
    (0..100).for_each(|b| data.at(0).put(1, b * 2, 50));
    let looked_into = |data: &Data| {
        let file = data.file(300);
        let key = partition_key(0);
        let is_read = |b: &i32| {
            let (slice, mut cost) = (Slice::one(&clustering(1, *b)), ReadCost::default());
            let row = rows_sought(&key, std::slice::from_ref(&slice)).pop();
            file.glance(&key, &slice, row, &Glance::Absent, Access::Disk, &mut cost).unwrap();
            cost.sstables_read > 0
        };
        assert!((0..100).map(|b| b * 2).all(|b| is_read(&b)), "a row is hidden");
        (0..99).map(|b| b * 2 + 1).filter(is_read).count()
    };
    assert!(looked_into(&data) < 10);
    let mut with_static = data.clone();
    with_static.at(0).static_row = Some(row(4, 10));
    assert_eq!(looked_into(&with_static), 99);
    let mut deleted = data.clone();
    deleted.at(0).deletion = Some(deletion(1));
    assert_eq!(looked_into(&deleted), 99);
    data.at(0).delete(before(&[1, 10]), after(&[1, 20]), 3);
    assert_eq!(looked_into(&data), 99);
}

#[test]
fn a_read_that_must_not_block_says_so_until_the_blocks_are_there() {
    let data = wide();
    let file = data.file(300);
    let key = partition_key(0);
    let missing = |result: Result<Vec<_>>| assert!(matches!(result, Err(Error::NotCached)), "{result:?}");
    for direction in BOTH {
        missing(read(&file, &key, &[Slice::all()], direction, Access::CachedOnly));
    }
    let some = [Slice::one(&clustering(1, 50))];
    let expected = read(&file, &key, &some, Direction::Forward, Access::Disk).unwrap();
    assert_eq!(read(&file, &key, &some, Direction::Forward, Access::CachedOnly).unwrap(), expected);
    missing(read(&file, &key, &[Slice::all()], Direction::Forward, Access::CachedOnly));
    // A stream that ran into a missing block has ended.
    let rest = [Slice { start: before(&[1, 50]), end: after(&[1, 99]) }];
    let mut stream = partition(&file, &key, &rest).unwrap().fragments;
    let error = std::iter::from_fn(|| stream.next().transpose()).find_map(Result::err).unwrap();
    assert!(matches!(error, Error::NotCached));
    assert_eq!(stream.next().unwrap(), None);
}

#[test]
fn a_cache_that_is_too_small_only_costs_reads() {
    let vfs = disk();
    let data = wide();
    data.build(&vfs, 300);
    let file = open_with(&vfs, &path(), Arc::new(BlockCache::new(1))).unwrap();
    let all = [Slice::all()];
    for direction in BOTH {
        let expected = data.partitions[&partition_key(0)].fragments(&partition_key(0), &all, direction);
        assert_eq!(read(&file, &partition_key(0), &all, direction, Access::Disk).unwrap(), expected);
    }
}

#[test]
fn without_slices_only_the_header_is_read() {
    let data = wide();
    let file = data.file(300);
    for direction in BOTH {
        let found = read(&file, &partition_key(0), &[], direction, Access::Disk).unwrap();
        assert!(matches!(&found[..], [Fragment::Partition(header)] if header.static_row.is_some()));
    }
    assert_eq!(file.cache_usage().2, 1);
}
