//! No damaged file is ever read as if it were whole, and none makes a reader panic.

use super::super::block::Block;
use super::super::format;
use super::super::format::VERSION;
use super::super::index::Index;
use super::super::stats::Stats;
use super::super::vnodes::VnodeDirectory;
use super::*;
use crate::Class;

fn sample() -> Data {
    let mut data = Data::default();
    for key in 0..4 {
        (0..5).for_each(|a| data.at(key).put(a, 0, 20));
    }
    data.at(1).deletion = Some(deletion(2));
    data.at(2).static_row = Some(row(3, 8));
    data.at(2).delete(before(&[1]), after(&[3]), 4);
    data
}

fn bytes_of(vfs: &MemoryVfs) -> Vec<u8> {
    let file = vfs.open(&path()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn with_bytes(bytes: &[u8]) -> MemoryVfs {
    let vfs = disk();
    vfs.create(&path()).unwrap().write_at(bytes, 0).unwrap();
    vfs
}

/// Everything a store does with a file.
fn use_all(vfs: &MemoryVfs) -> Result<Vec<Fragment<EncodedRow>>> {
    let file = open(vfs)?;
    for key in (0..5).map(partition_key) {
        for direction in BOTH {
            read(&file, &key, &[Slice::all()], direction, Access::Disk)?;
            read(&file, &key, &[Slice::one(&clustering(3, 0))], direction, Access::Disk)?;
        }
    }
    collect(&mut file.scan(ScanRange::default(), &[Slice::all()], Direction::Reverse, Access::Disk)?)?;
    collect(&mut file.read_through()?)
}

#[test]
fn every_flipped_byte_is_an_error() {
    let vfs = disk();
    let meta = sample().build(&vfs, 200);
    let bytes = bytes_of(&vfs);
    assert!(bytes.len() <= 8192);
    assert!(use_all(&vfs).unwrap() == sample().all());
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let vfs = with_bytes(&damaged);
            match use_all(&vfs) {
                Ok(_) => panic!("byte {at} ^ {flip:02x} was not noticed"),
                Err(error) => assert_eq!(error.class(), Class::Corrupt, "byte {at} ^ {flip:02x}: {error}"),
            }
            assert!(open(&vfs).and_then(|file| file.verify(&meta.hash)).is_err(), "verified");
        }
    }
}

#[test]
fn every_truncation_is_an_error_at_open() {
    let vfs = disk();
    sample().build(&vfs, 200);
    let bytes = bytes_of(&vfs);
    for len in 0..bytes.len() {
        let error = open(&with_bytes(&bytes[..len])).map(drop).unwrap_err();
        assert_eq!(error.class(), Class::Corrupt, "{len} bytes: {error}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(open(&with_bytes(&longer)).map(drop).unwrap_err().class(), Class::Corrupt);
}

/// A block that stands in the wrong file or at the wrong place has a right checksum of its own.
#[test]
fn a_block_of_another_place_is_an_error() {
    let mut data = Data::default();
    (0..6).for_each(|a| data.at(0).put(a, 0, 200));
    let vfs = disk();
    data.build(&vfs, 1);
    let file = open(&vfs).unwrap();
    let blocks: Vec<_> = (0..file.index.count()).map(|number| file.index.entry(number).unwrap()).collect();
    let (a, b) = blocks.windows(2).map(|pair| (pair[0], pair[1])).find(|(a, b)| a.len == b.len).unwrap();
    let mut bytes = bytes_of(&vfs);
    let (from, to, len) = (a.offset as usize, b.offset as usize, a.len as usize);
    bytes.copy_within(from..from + len, to);
    let error = use_all(&with_bytes(&bytes)).unwrap_err();
    assert_eq!(error.class(), Class::Corrupt);
}

#[test]
fn a_file_is_not_taken_for_one_of_another_hash_or_version() {
    let vfs = disk();
    let meta = sample().build(&vfs, 200);
    let file = open(&vfs).unwrap();
    file.verify(&meta.hash).unwrap();
    assert_eq!(file.verify(&[0; 32]).unwrap_err().class(), Class::Corrupt);
    let mut newer = bytes_of(&vfs);
    newer[8] = 3;
    let error = open(&with_bytes(&newer)).map(drop).unwrap_err();
    assert!(matches!(error, crate::Error::Corrupt(_)), "the footer says otherwise: {error}");
    let footer_version = newer.len() - 16;
    newer[footer_version] = 3;
    let error = open(&with_bytes(&newer)).map(drop).unwrap_err();
    assert!(matches!(error, crate::Error::Version { found: 3, .. }), "{error}");
}

/// What a file says of its contents is believed by reads, so it is verified, however right its checksums are.
#[test]
fn a_file_that_says_what_is_not_true_of_it_is_found() {
    let vfs = disk();
    sample().build(&vfs, 200);
    open(&vfs).unwrap().verify_unlisted().unwrap();
    type Lie = (&'static str, fn(&mut Sstable));
    let lies: [Lie; 5] = [
        ("statistics", |file| file.stats.tombstones -= 1),
        ("vnode directory", |file| file.vnodes.spans[0].rows += 1),
        ("vnode directory", |file| file.vnodes.spans[0].partitions -= 1),
        ("vnode directory", |file| file.vnodes.spans[0].blocks.end -= 1),
        ("vnode directory", |file| file.vnodes.spans.truncate(1)),
    ];
    for (what, lie) in lies {
        let mut file = open(&vfs).unwrap();
        lie(Arc::get_mut(&mut file).unwrap());
        let error = file.verify_unlisted().unwrap_err().to_string();
        assert!(error.contains(what) && error.contains(path().to_str().unwrap()), "{error}");
    }
}

/// Decoders behind a checksum meet only what a builder wrote, unless the builder is wrong; they do not panic then either.
#[test]
fn decoders_do_not_panic_on_damage_that_no_checksum_has_seen() {
    let vfs = disk();
    let data = sample();
    data.build(&vfs, 200);
    let file = open(&vfs).unwrap();
    let mut accepted = 0;
    for body in block_bodies(&file) {
        accepted += damaged(&body, |bytes| {
            let block = Block::decode(bytes)?;
            (0..block.len()).try_for_each(|entry| block.fragment(entry).map(drop))
        });
    }
    let index = section(&vfs, 0);
    damaged(&index, |bytes| {
        let index = Index::open(bytes, 1 << 20)?;
        (0..index.count().min(1000)).try_for_each(|block| index.entry(block).map(drop))
    });
    damaged(&section(&vfs, 2), |bytes| Stats::decode(bytes, VERSION).map(drop));
    damaged(&section(&vfs, 3), |bytes| VnodeDirectory::decode(bytes).map(drop));
    assert!(accepted > 0, "values may change unnoticed by a decoder, so something must have been accepted");
}

/// A file whose checksums are right and whose contents are not: a fault of the writer, or of memory. Whatever is read of it
/// ends, with an error or without, and the hash in the manifest tells.
#[test]
fn no_reader_panics_on_wrong_bytes_under_right_checksums() {
    let vfs = disk();
    let meta = sample().build(&vfs, 200);
    let bytes = bytes_of(&vfs);
    let id = Uuid::from_u128(7);
    let file = open(&vfs).unwrap();
    let (mut refused, mut tried) = (0, 0);
    let mut attempt = |damaged: &[u8]| {
        let vfs = with_bytes(damaged);
        tried += 1;
        refused += usize::from(use_all(&vfs).is_err());
        assert!(open(&vfs).and_then(|file| file.verify(&meta.hash)).is_err());
    };
    for number in 0..file.index.count() {
        let entry = file.index.entry(number).unwrap();
        let (from, crc) = (entry.offset as usize, entry.offset as usize + entry.len as usize - 4);
        for at in from..crc {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let right = format::block_crc(id, entry.offset, &damaged[from..crc]);
            damaged[crc..crc + 4].copy_from_slice(&right.to_le_bytes());
            attempt(&damaged);
        }
    }
    let footer = bytes.len() - format::FOOTER_BYTES;
    for number in 0..format::SECTIONS {
        let (from, to) = extent(&bytes, number);
        for at in from..to {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let right = format::section_crc(id, &damaged[from..to]).to_le_bytes();
            damaged[footer + number * 20 + 16..][..4].copy_from_slice(&right);
            let end = bytes.len() - 12;
            let right = crc32fast::hash(&damaged[footer..end]).to_le_bytes();
            damaged[end..end + 4].copy_from_slice(&right);
            attempt(&damaged);
        }
    }
    assert!(tried > 500 && refused > tried / 4, "{refused} of {tried} were refused");
}

fn damaged(bytes: &[u8], decode: impl Fn(Bytes) -> Result<()>) -> usize {
    decode(Bytes::copy_from_slice(bytes)).unwrap();
    let flipped = (0..bytes.len()).flat_map(|at| {
        (0..8).map(move |bit| {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << bit;
            damaged
        })
    });
    let cut = (0..bytes.len()).map(|len| bytes[..len].to_vec());
    flipped.chain(cut).filter(|damaged| decode(Bytes::copy_from_slice(damaged)).is_ok()).count()
}

fn block_bodies(file: &Sstable) -> Vec<Bytes> {
    let entries = (0..file.index.count()).map(|number| file.index.entry(number).unwrap());
    let bodies = entries.map(|entry| {
        let mut stored = vec![0; entry.len as usize - 4];
        file.file.read_at(&mut stored, entry.offset).unwrap();
        crate::codec::compress::read_block(stored.into(), 1 << 20).unwrap()
    });
    bodies.collect()
}

fn section(vfs: &MemoryVfs, number: usize) -> Bytes {
    let bytes = bytes_of(vfs);
    let (from, to) = extent(&bytes, number);
    Bytes::copy_from_slice(&bytes[from..to])
}

/// Where a section begins and ends, by the footer.
fn extent(bytes: &[u8], number: usize) -> (usize, usize) {
    let footer = bytes.len() - format::FOOTER_BYTES;
    let field = |at: usize| {
        let at = footer + number * 20 + at;
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
    };
    (field(0), field(0) + field(8))
}
