//! What the cache of blocks keeps, and what it does not let go for a scan.

use super::*;

/// Partition 0 with so many rows, each in a block of its own.
fn many(rows: i32) -> Data {
    let mut data = Data::default();
    (0..rows).for_each(|b| data.at(0).put(1, b, 900));
    data
}

const BLOCK: usize = 1_000;

/// Weight of one of those blocks, about.
const BLOCK_WEIGHT: u64 = 1_200;

fn cached(data: &Data, bytes: u64) -> Arc<Sstable> {
    let vfs = disk();
    data.build(&vfs, BLOCK);
    open_with(&vfs, &path(), Arc::new(BlockCache::new(bytes))).unwrap()
}

fn look_up(file: &Arc<Sstable>, row: i32, access: Access) -> Result<Vec<Fragment<EncodedRow>>> {
    read(file, &partition_key(0), &[Slice::one(&clustering(1, row))], Direction::Forward, access)
}

/// A scan of everything, a backup by reads or a full count, reads each block once: what is asked for again and again
/// stays.
#[test]
fn a_scan_does_not_push_out_what_is_in_use() {
    let data = many(3_000);
    let file = cached(&data, 600 * BLOCK_WEIGHT);
    let hot: Vec<i32> = (0..3_000).step_by(30).collect();
    for _ in 0..4 {
        hot.iter().for_each(|row| drop(look_up(&file, *row, Access::Disk).unwrap()));
    }
    let everything = ScanRange::default();
    for _ in 0..2 {
        let mut scan = file.scan(everything.clone(), &[Slice::all()], Direction::Forward, Access::Disk).unwrap();
        assert_eq!(collect(&mut scan).unwrap().len(), 3_001);
    }
    let left = hot.iter().filter(|row| look_up(&file, **row, Access::CachedOnly).is_ok()).count();
    assert!(left * 10 >= hot.len() * 9, "of {} blocks in use the scan left {left}", hot.len());
}

/// Compaction reads past the cache: nothing comes in, nothing goes.
#[test]
fn compaction_leaves_the_cache_as_it_is() {
    let data = many(200);
    let file = cached(&data, 1 << 20);
    (0..10).for_each(|row| drop(look_up(&file, row, Access::Disk).unwrap()));
    let before = file.cache_usage();
    let mut all = file.read_through().unwrap();
    assert_eq!(collect(&mut all).unwrap().len(), 201);
    assert_eq!(file.cache_usage(), before);
}

/// The budget holds whatever is read, with what each block costs beside its bytes.
#[test]
fn the_budget_holds() {
    let data = many(1_000);
    for budget in [1, 50 * BLOCK_WEIGHT, 300 * BLOCK_WEIGHT] {
        let file = cached(&data, budget);
        for row in (0..2_000).map(|at| (at * 7_919) % 1_000) {
            look_up(&file, row, Access::Disk).unwrap();
            let (held, ..) = file.cache_usage();
            assert!(held <= budget, "{held} bytes of {budget}");
        }
    }
    let file = cached(&data, 1 << 30);
    (0..1_000).for_each(|row| drop(look_up(&file, row, Access::Disk).unwrap()));
    let (held, ..) = file.cache_usage();
    let least = 1_000 * (900 + CACHED_BLOCK_OVERHEAD_BYTES);
    assert!(held >= least, "{held} bytes for 1,000 blocks of 900 and what they cost beside them");
}
