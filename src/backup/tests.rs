//! What is written is read back; what was changed, cut or is somebody else's is refused by name.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use bytes::Bytes;
use uuid::Uuid;

use super::*;
use crate::codec::{CheckedRecord, RecordKind};
use crate::commitlog::{Logged, Position};
use crate::model::{
    ColumnId, KeyspaceId, Mutation, MutationName, NodeId, PartitionKey, Stamp, TableId, Type, Vnode, VnodeBits,
};
use crate::received::{ReceivedSet, ReceivedSets};
use crate::snapshot::{TableInfo, TableLabel};
use crate::sstable::SstableMeta;

const CLUSTER: Uuid = Uuid::from_u128(0x11);
const BACKUP: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001);
const BITS: u8 = 3;

fn bits() -> VnodeBits {
    VnodeBits::new(BITS).unwrap()
}

fn name(sequence: u64) -> MutationName {
    MutationName { origin: NodeId(1), incarnation: 1_700, sequence }
}

fn record(sequence: u64, stamp: i64) -> CheckedRecord {
    let key = PartitionKey::from_bytes(Bytes::copy_from_slice(format!("key number {sequence}").as_bytes()));
    let mutation = Mutation::new(TableId(Uuid::from_u128(5)), key);
    CheckedRecord::encode(RecordKind::Named(name(sequence)), KeyspaceId(1), Stamp(stamp), &mutation)
}

fn logged(sequence: u64) -> Logged {
    let end = Position { segment: 1, offset: 4_096 + sequence };
    Logged { end, record: record(sequence, 100 + sequence as i64) }
}

fn head(number: u64, from: u64, to: u64, told: i64) -> PieceHead {
    PieceHead {
        cluster: CLUSTER,
        node: NodeId(2),
        number,
        from: Position { segment: 1, offset: from },
        to: Position { segment: 1, offset: to },
        told: Stamp(told),
        made_at: Stamp(told + 60),
        records: 0,
        stamps: None,
        names: ReceivedSets::new(),
        states: vec![StateAt { applied_at: Stamp(5), state: Bytes::from_static(b"state") }],
    }
}

fn sets(last: u64) -> ReceivedSets {
    let mut set = ReceivedSet::default();
    (1..=last).for_each(|sequence| assert!(set.add(name(sequence))));
    ReceivedSets::from([((KeyspaceId(1), Vnode(3)), set)])
}

fn part() -> Part {
    let table = TableId(Uuid::from_u128(5));
    let label = TableLabel { keyspace: "app".to_owned(), table: "t".to_owned(), version: 3, definition: Bytes::new() };
    let meta =
        SstableMeta { id: Uuid::from_u128(9), table, bytes: 1_000, hash: [0xab; 32], stamps: (Stamp(10), Stamp(20)) };
    Part {
        cluster: CLUSTER,
        backup: BACKUP,
        node: NodeId(2),
        vnode_bits: bits(),
        made_at: Stamp(30),
        position: Position { segment: 1, offset: 5_000 },
        first_piece: 7,
        highest: Stamp(20),
        tables: vec![TableInfo { id: table, keyspace: KeyspaceId(1), label, columns: vec![(ColumnId(1), Type::Text)] }],
        files: vec![StoredFile { meta, suffix: Some(0x1234) }],
        received: sets(3),
        state: Bytes::from_static(b"state"),
    }
}

fn manifest() -> Manifest {
    let object = Listed::of(b"some bytes");
    Manifest {
        cluster: CLUSTER,
        backup: BACKUP,
        name: "nightly".to_owned(),
        tag: "keep".to_owned(),
        scope: Scope::Table(TableId(Uuid::from_u128(5))),
        began_at: Stamp(1),
        cut: Stamp(40),
        state: Bytes::from_static(b"state"),
        parts: vec![ListedPart { node: NodeId(2), object, files: 1, file_bytes: 1_000 }],
        pieces: vec![ListedPiece { node: NodeId(2), number: 7, object }],
        absent: vec![Absent { node: NodeId(3), reason: "down".to_owned() }],
    }
}

fn intent() -> Intent {
    Intent {
        cluster: CLUSTER,
        backup: BACKUP,
        name: "nightly".to_owned(),
        tag: String::new(),
        scope: Scope::Keyspace(KeyspaceId(4)),
        began_at: Stamp(1),
        driver: NodeId(1),
        driven_at: Stamp(2),
        cut: None,
        phase: Phase::Paused,
        reason: "asked for".to_owned(),
    }
}

fn index() -> Index {
    let mut index = Index { cluster: CLUSTER, entries: Vec::new() };
    index.add(IndexEntry::of(&manifest()));
    index.add(IndexEntry { backup: Uuid::from_u128(8), cut: Stamp(4), ..IndexEntry::of(&manifest()) });
    index
}

fn condemned() -> Condemned {
    let keys = [part().key(), layout::piece(NodeId(2), 7), part().files[0].key()].into();
    Condemned { cluster: CLUSTER, prune: Uuid::from_u128(3), published_at: Stamp(1), keys }
}

fn lease(until: Stamp) -> Lease {
    Lease { cluster: CLUSTER, holder: Uuid::from_u128(3), until }
}

/// Reads an object of one kind.
type Read = fn(&str, &Bytes) -> crate::Result<()>;

/// Each kind: its key, its bytes, and its reader.
fn kinds() -> Vec<(String, Bytes, Read)> {
    let records: Vec<_> = (1..=40).map(logged).collect();
    let piece = Piece::new(head(7, 4_096, 9_000, 200), &records, bits());
    vec![
        (part().key(), part().encode(), |key, bytes| Part::decode(key, bytes).map(drop)),
        (piece.head.key(), piece.encode(), |key, bytes| {
            Piece::decode(key, bytes).and_then(|piece| piece.for_each(|_| Ok(())))
        }),
        (manifest().key(), manifest().encode(), |key, bytes| Manifest::decode(key, bytes).map(drop)),
        (layout::INDEX.to_owned(), index().encode(), |_, bytes| Index::decode(bytes).map(drop)),
        (intent().key(), intent().encode(), |key, bytes| Intent::decode(key, bytes).map(drop)),
        (condemned().key(), condemned().encode(), |key, bytes| Condemned::decode(key, bytes).map(drop)),
        (layout::LEASE.to_owned(), lease(Stamp(9)).encode(), |_, bytes| Lease::decode(bytes).map(drop)),
    ]
}

#[test]
fn what_is_written_is_read_back() {
    assert_eq!(Part::decode(&part().key(), &part().encode()).unwrap(), part());
    assert_eq!(Manifest::decode(&manifest().key(), &manifest().encode()).unwrap(), manifest());
    assert_eq!(Index::decode(&index().encode()).unwrap(), index());
    assert_eq!(Intent::decode(&intent().key(), &intent().encode()).unwrap(), intent());
    let cut = Intent { cut: Some(Stamp(77)), ..intent() };
    assert_eq!(Intent::decode(&cut.key(), &cut.encode()).unwrap(), cut);
}

#[test]
fn a_piece_tells_its_head_by_its_first_bytes_and_its_records_whole() {
    let records: Vec<_> = (1..=5_000).map(logged).collect();
    let piece = Piece::new(head(7, 4_096, 9_096, 200), &records, bits());
    let (key, bytes) = (piece.head.key(), piece.encode());
    assert_eq!((piece.head.records, piece.head.stamps), (5_000, Some((Stamp(101), Stamp(5_100)))));
    assert_eq!(piece.head.names.values().map(ReceivedSet::count).sum::<u64>(), 5_000);
    let Err(needed) = PieceHead::read(&key, &bytes.slice(..100)).unwrap() else { panic!("100 bytes are enough?") };
    assert!((needed as usize) < bytes.len());
    assert_eq!(PieceHead::read(&key, &bytes.slice(..needed as usize)).unwrap().unwrap(), piece.head);
    let read = Piece::decode(&key, &bytes).unwrap();
    let mut found = Vec::new();
    read.for_each(|logged| {
        found.push(logged);
        Ok(())
    })
    .unwrap();
    assert_eq!(found, records);
}

/// Places that do not ascend, or lie outside of the piece, would cut it wrongly: they are refused, not believed.
#[test]
fn a_piece_whose_records_do_not_stand_where_it_says_is_refused() {
    let refused = |ends: [u64; 2]| {
        let at = |(sequence, offset)| Logged { end: Position { segment: 1, offset }, ..logged(sequence) };
        let records: Vec<_> = (1..=2).zip(ends).map(at).collect();
        Piece::new(head(7, 4_096, 9_000, 200), &records, bits()).for_each(|_| Ok(())).is_err()
    };
    assert!(!refused([4_097, 9_000]));
    assert!(refused([4_096, 5_000]) && refused([5_000, 5_000]) && refused([5_000, 9_001]) && refused([5_000, 4_999]));
}

#[test]
fn every_flipped_byte_and_every_cut_is_found() {
    for (key, bytes, read) in kinds() {
        read(&key, &bytes).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x55;
            let error = read(&key, &flipped.into()).expect_err("a flipped byte was not found");
            assert!(error.to_string().contains(&key), "byte {at} of {key}: {error}");
            assert!(read(&key, &bytes.slice(..at)).is_err(), "{key} cut to {at} bytes");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(read(&key, &longer.into()).is_err(), "{key} with a byte more");
    }
}

#[test]
fn an_object_under_another_key_is_refused() {
    for (key, bytes, read) in kinds().into_iter().filter(|(key, ..)| key != layout::INDEX && key != layout::LEASE) {
        let error = read(&format!("{key}0"), &bytes).unwrap_err();
        assert!(error.to_string().contains("than its key says"), "{error}");
    }
}

#[test]
fn a_newer_version_and_another_kind_are_told() {
    let mut newer = manifest().encode().to_vec();
    newer[8] = 9;
    let error = Manifest::decode(&manifest().key(), &newer.into()).unwrap_err();
    assert!(error.to_string().contains("format version 9"), "{error}");
    let error = Manifest::decode(&part().key(), &part().encode()).unwrap_err();
    assert!(error.to_string().contains("it is of kind 1"), "{error}");
}

/// A listing by prefix took node 101 for node 10. Here every part of a key has a fixed width and an end.
#[test]
fn b079_keys_are_exact() {
    assert_eq!(layout::piece(NodeId(10), 255), "log/0000000a/00000000000000ff");
    assert!(!layout::piece(NodeId(0x101), 1).starts_with(&layout::log_of(NodeId(0x10))));
    assert_eq!(layout::parse_piece("log/0000000a/00000000000000ff"), Some((NodeId(10), 255)));
    for wrong in ["log/a/ff", "log/0000000A/00000000000000ff", "log/0000000a/00000000000000ff/x", "log/../x", "obj/a/b"]
    {
        assert_eq!(layout::parse_piece(wrong), None, "{wrong}");
    }
    let key = layout::backup(BACKUP);
    assert_eq!(layout::parse_backup(layout::BACKUPS, &key), Some(BACKUP));
    assert_eq!(layout::parse_backup(layout::BACKUPS, &key.to_uppercase()), None);
    assert_eq!(layout::file(&[0xab; 32], Some(1)), format!("obj/ab/{}-00000001", "ab".repeat(32)));
}

/// Names of keyspaces and tables stood in paths, where `..`, slashes and `snapshots` were taken for something else. Here keys are
/// numbers, and what is not exactly a key that we would make is none of ours.
#[test]
fn b091_keys_are_numbers_and_nothing_else_is_a_key() {
    let keys = [
        layout::Key::File([0xab; 32], None),
        layout::Key::File([0xab; 32], Some(1)),
        layout::Key::Piece(NodeId(10), 255),
        layout::Key::Part(BACKUP, NodeId(2)),
        layout::Key::Manifest(BACKUP),
        layout::Key::Intent(BACKUP),
        layout::Key::Condemned(BACKUP),
        layout::Key::Index,
        layout::Key::Lease,
    ];
    for key in keys {
        let text = key.text();
        assert_eq!(layout::Key::parse(&text), Some(key), "{text}");
        assert!(text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "/-".contains(c)), "{text}");
        for wrong in
            [format!("{text}/"), format!("/{text}"), format!("{text}0"), text.to_uppercase(), format!(" {text}")]
        {
            assert_eq!(layout::Key::parse(&wrong), None, "{wrong}");
        }
    }
    let hash = "ab".repeat(32);
    let wrong =
        [format!("obj/ac/{hash}"), format!("obj/ab/{hash}-00000000"), format!("obj/ab/../{hash}"), "part/x/y".into()];
    wrong.iter().for_each(|wrong| assert_eq!(layout::Key::parse(wrong), None, "{wrong}"));
}

#[test]
fn one_run_at_a_time_may_prune() {
    let (one, other) = (Uuid::from_u128(3), Uuid::from_u128(4));
    let take = |present, holder, now| Lease::taken(CLUSTER, present, holder, Stamp(now), 10);
    assert_eq!(take(None, one, 5).unwrap(), lease(Stamp(15)));
    assert_eq!(take(Some(lease(Stamp(15))), one, 8).unwrap(), lease(Stamp(18)), "renewed");
    assert!(take(Some(lease(Stamp(15))), other, 14).is_err());
    assert_eq!(take(Some(lease(Stamp(15))), other, 15).unwrap().holder, other);
}

#[test]
fn a_chain_goes_on_from_its_part_without_a_gap_until_it_is_closed() {
    let part = part();
    let heads = [head(7, 4_096, 6_000, 10), head(8, 6_000, 6_000, 30), head(9, 6_000, 8_000, 41)];
    assert_eq!(Chain::of(&part, &heads, Stamp(41)), Ok(Chain { pieces: 3 }));
    assert_eq!(Chain::of(&part, &heads, Stamp(30)), Ok(Chain { pieces: 2 }));
    assert_eq!(
        Chain::of(&part, &heads, Stamp(42)),
        Err(Incomplete::NotClosed { node: NodeId(2), told: Some(Stamp(41)) })
    );
    assert_eq!(Chain::of(&part, &[], Stamp(1)), Err(Incomplete::NotClosed { node: NodeId(2), told: None }));
    let gap = |piece| Err(Incomplete::Gap { node: NodeId(2), piece });
    assert_eq!(Chain::of(&part, &heads[1..], Stamp(41)), gap(7), "its first piece is missing");
    assert_eq!(Chain::of(&part, &[heads[0].clone(), heads[2].clone()], Stamp(41)), gap(8));
    let late = [head(7, 5_001, 6_000, 50)];
    assert_eq!(Chain::of(&part, &late, Stamp(41)), gap(7), "it begins behind the part");
    let torn = [head(7, 4_096, 6_000, 10), head(8, 6_100, 7_000, 50)];
    assert_eq!(Chain::of(&part, &torn, Stamp(41)), gap(8), "it begins behind the end of the one before");
}

#[test]
fn one_copy_is_read_if_it_has_all_names() {
    let set = |last| sets(last).into_values().next().unwrap();
    let slice = |vnode| (KeyspaceId(1), Vnode(vnode));
    let equal = BTreeMap::from([(NodeId(1), set(5)), (NodeId(2), set(5)), (NodeId(3), set(4))]);
    assert_eq!(covering(slice(0), &equal), Covered::ByOne(NodeId(1)));
    assert_eq!(covering(slice(15), &equal), Covered::ByOne(NodeId(1)));
    assert_eq!(covering(slice(16), &equal), Covered::ByOne(NodeId(2)));
    let mut holes = set(5);
    holes = holes.difference(&set(1));
    let torn = BTreeMap::from([(NodeId(1), holes), (NodeId(2), set(4))]);
    assert_eq!(covering(slice(0), &torn), Covered::ByAll);
}
