//! Whatever is written is read back, in every shape of read, exactly as the naive table says.

use std::ops::Range;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::model::{TokenRange, Vnode};

/// A bound that often falls onto rows and onto other bounds.
fn bound() -> impl Strategy<Value = Bound> {
    (0..3usize, 0..6i32, 0..4i32, any::<bool>()).prop_map(|(components, a, b, is_after)| {
        let prefix = &[a, b][..components];
        if is_after { after(prefix) } else { before(prefix) }
    })
}

fn contents() -> impl Strategy<Value = Contents> {
    let len = prop_oneof![8 => 0..12usize, 2 => 30..80usize, 1 => Just(400usize)];
    let rows = prop_oneof![Just(0..1usize), Just(0..12), Just(16..24)]
        .prop_flat_map(move |count| vec((0..6i32, 0..4i32, len.clone()), count));
    let ranges = prop_oneof![2 => Just(0..1usize), 3 => Just(0..6)]
        .prop_flat_map(|count| vec((bound(), bound(), 0..3i64), count));
    let fixed = (option::weighted(0.3, 0..9i64), option::weighted(0.4, 0..60usize));
    (fixed, rows, ranges).prop_map(|((deleted, static_len), rows, ranges)| {
        let mut contents = Contents {
            deletion: deleted.map(deletion),
            static_row: static_len.map(|len| row(9, len)),
            ..Contents::default()
        };
        rows.into_iter().for_each(|(a, b, len)| contents.put(a, b, len));
        ranges.into_iter().for_each(|(start, end, timestamp)| contents.delete(start, end, timestamp));
        contents
    })
}

fn data() -> impl Strategy<Value = Data> {
    vec(contents(), 0..9).prop_map(|all| {
        let keys = (0..).map(partition_key);
        Data { partitions: keys.zip(all).collect() }
    })
}

/// Slices that ascend and do not overlap; some touch.
fn slices() -> impl Strategy<Value = Vec<Slice>> {
    let some = (vec(bound(), 0..8), any::<bool>()).prop_map(|(mut bounds, touching)| {
        bounds.sort();
        bounds.dedup();
        let step = if touching { 1 } else { 2 };
        let pairs = bounds.windows(2).step_by(step);
        pairs.map(|pair| Slice { start: pair[0].clone(), end: pair[1].clone() }).collect()
    });
    let one = (0..6i32, 0..4i32).prop_map(|(a, b)| vec![Slice::one(&clustering(a, b))]);
    prop_oneof![2 => Just(vec![Slice::all()]), 4 => some, 1 => one]
}

/// The bytes of the blocks that hold anything of each vnode, found by looking into all of them.
fn block_ranges(file: &Sstable) -> BTreeMap<Vnode, Range<u64>> {
    let mut ranges: BTreeMap<Vnode, Range<u64>> = BTreeMap::new();
    for number in 0..file.index.count() {
        let entry = file.index.entry(number).unwrap();
        let block = file.block(number, Access::Disk, &mut ReadCost::default()).unwrap();
        let begun = (0..block.len()).filter_map(|entry| match block.fragment(entry).unwrap() {
            Fragment::Partition(header) => Some(header.key.token()),
            _ => None,
        });
        let continued = block.continued().map(|continued| continued.key.token());
        for token in begun.chain(continued) {
            let range = ranges.entry(file.vnodes().bits.vnode(token)).or_insert(entry.offset..0);
            range.end = entry.offset + u64::from(entry.len);
        }
    }
    ranges
}

fn vnode_ranges(file: &Sstable) -> BTreeMap<Vnode, Range<u64>> {
    file.vnodes().spans.iter().map(|span| (span.vnode, span.blocks.clone())).collect()
}

/// A header alone that says no more than its key is as good as nothing: a file may be passed over for either.
fn telling(fragments: Vec<Fragment<EncodedRow>>) -> Vec<Fragment<EncodedRow>> {
    match &fragments[..] {
        [Fragment::Partition(header)] if header.deletion.is_none() && header.static_row.is_none() => Vec::new(),
        _ => fragments,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_read_of_a_partition_is_what_was_written(data in data(), slices in slices(), block in 1..300usize) {
        let file = data.file(block);
        for key in (0..12).map(partition_key) {
            for direction in BOTH {
                let expected = match data.partitions.get(&key) {
                    Some(contents) => contents.fragments(&key, &slices, direction),
                    None => Vec::new(),
                };
                let expected = telling(expected);
                let found = telling(read(&file, &key, &slices, direction, Access::Disk).unwrap());
                prop_assert_eq!(&found, &expected);
                let again = telling(read(&file, &key, &slices, direction, Access::CachedOnly).unwrap());
                prop_assert_eq!(&again, &expected, "from the cache");
            }
        }
    }

    #[test]
    fn every_scan_is_what_was_written(
        data in data(), slices in slices(), block in 1..300usize, from in 0..9u32, to in 0..9u32,
    ) {
        let file = data.file(block);
        let after = Some(partition_key(from).token());
        let up_to = Some(partition_key(to).token());
        let tokens = [
            TokenRange::ALL,
            TokenRange { after, up_to: None },
            TokenRange { after: None, up_to },
            TokenRange { after, up_to },
        ];
        for tokens in tokens {
            let mut resumed = vec![None];
            resumed.extend((0..9).map(|key| Some((partition_key(key).token(), partition_key(key).bytes().clone()))));
            for after in resumed {
                let range = ScanRange { after, tokens };
                for direction in BOTH {
                    let mut stream = file.scan(range.clone(), &slices, direction, Access::Disk).unwrap();
                    prop_assert_eq!(collect(&mut stream).unwrap(), data.scan(&range, &slices, direction));
                }
            }
        }
    }

    #[test]
    fn reading_through_and_verifying_agree(data in data(), block in 1..300usize) {
        let vfs = disk();
        let meta = data.build(&vfs, block);
        let file = open(&vfs).unwrap();
        prop_assert_eq!(collect(&mut file.read_through().unwrap()).unwrap(), data.all());
        prop_assert_eq!(file.cache_usage().0, 0);
        file.verify(&meta.hash).unwrap();
        prop_assert_eq!(meta.bytes, file.bytes());
        let mut partitions = 0;
        for span in &file.vnodes().spans {
            partitions += span.partitions;
            let inside = data.partitions.iter().filter(|(key, _)| file.vnodes().bits.vnode(key.token()) == span.vnode);
            prop_assert_eq!(span.rows, inside.map(|(_, contents)| contents.rows.len() as u64).sum::<u64>());
        }
        prop_assert_eq!(block_ranges(&file), vnode_ranges(&file));
        prop_assert_eq!(partitions, data.partitions.len() as u64);
        prop_assert_eq!(file.stats().partitions, partitions);
    }
}
