//! Objects of a backup.

use std::collections::BTreeSet;

use bytes::Bytes;
use trefoil::backup::{
    Absent, Condemned, Index, IndexEntry, Intent, Lease, Listed, ListedPart, ListedPiece, Manifest, Part, Phase, Piece,
    PieceHead, Scope, StateAt, StoredFile,
};
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::commitlog::{Logged, Position};
use trefoil::model::{
    ColumnId, KeyspaceId, Mutation, MutationName, NodeId, PartitionKey, Stamp, TableId, Type, Vnode, VnodeBits,
};
use trefoil::received::{ReceivedSet, ReceivedSets};
use trefoil::snapshot::{TableInfo, TableLabel};
use trefoil::sstable::SstableMeta;
use uuid::Uuid;

use crate::kept::{golden, kept};

const CLUSTER: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00c1);
const BACKUP: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00b1);
const TABLE: TableId = TableId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
const NEW_YEAR: Stamp = Stamp(1_767_225_600_000_000);

fn name(sequence: u64) -> MutationName {
    MutationName { origin: NodeId(2), incarnation: NEW_YEAR.0 as u64, sequence }
}

fn after(micros: i64) -> Stamp {
    Stamp(NEW_YEAR.0 + micros)
}

fn part() -> Part {
    let label = TableLabel {
        keyspace: "demo".to_owned(),
        table: "kv".to_owned(),
        version: 7,
        definition: Bytes::from_static(b"definition"),
    };
    let mut set = ReceivedSet::default();
    [1, 2, 3, 9].into_iter().for_each(|sequence| assert!(set.add(name(sequence))));
    let file = |id, suffix| {
        let meta = SstableMeta {
            id: Uuid::from_u128(id),
            table: TABLE,
            bytes: 70_000,
            hash: [0xab; 32],
            stamps: (NEW_YEAR, after(9)),
        };
        StoredFile { meta, suffix }
    };
    Part {
        cluster: CLUSTER,
        backup: BACKUP,
        node: NodeId(3),
        vnode_bits: VnodeBits::new(4).expect("few"),
        made_at: after(60_000_000),
        position: Position { segment: 12, offset: 4_711 },
        first_piece: 40,
        highest: after(9),
        tables: vec![TableInfo { id: TABLE, keyspace: KeyspaceId(1), label, columns: vec![(ColumnId(1), Type::Text)] }],
        files: vec![file(1, None), file(2, Some(0x0102_0304))],
        received: ReceivedSets::from([((KeyspaceId(1), Vnode(5)), set)]),
        state: Bytes::from_static(b"a state"),
    }
}

fn piece() -> Piece {
    let records: Vec<Logged> = (1..=3)
        .map(|sequence| {
            let mutation = Mutation::new(TABLE, PartitionKey::from_bytes(Bytes::from_static(b"EWR")));
            let kind = RecordKind::Named(name(sequence));
            let record = CheckedRecord::encode(kind, KeyspaceId(1), after(sequence as i64), &mutation);
            Logged {
                end: Position { segment: 12 + sequence / 3, offset: 4_711 + sequence - 4_700 * (sequence / 3) },
                record,
            }
        })
        .collect();
    let head = PieceHead {
        cluster: CLUSTER,
        node: NodeId(3),
        number: 41,
        from: Position { segment: 12, offset: 4_711 },
        to: Position { segment: 13, offset: 128 },
        told: after(5),
        made_at: after(60_000_005),
        records: 0,
        stamps: None,
        names: ReceivedSets::new(),
        states: vec![StateAt { applied_at: after(2), state: Bytes::from_static(b"a state") }],
    };
    Piece::new(head, &records, VnodeBits::new(4).expect("few"))
}

fn manifest() -> Manifest {
    let object = Listed::of(b"an object");
    Manifest {
        cluster: CLUSTER,
        backup: BACKUP,
        name: "new year".to_owned(),
        tag: "yearly".to_owned(),
        scope: Scope::Table(TABLE),
        began_at: NEW_YEAR,
        cut: after(10),
        state: Bytes::from_static(b"a state"),
        parts: vec![ListedPart { node: NodeId(3), object, files: 2, file_bytes: 140_000 }],
        pieces: vec![ListedPiece { node: NodeId(3), number: 40, object }],
        absent: vec![Absent { node: NodeId(4), reason: "it does not answer".to_owned() }],
    }
}

fn intent() -> Intent {
    Intent {
        cluster: CLUSTER,
        backup: BACKUP,
        name: "new year".to_owned(),
        tag: String::new(),
        scope: Scope::Keyspace(KeyspaceId(1)),
        began_at: NEW_YEAR,
        driver: NodeId(1),
        driven_at: after(30),
        cut: Some(after(10)),
        phase: Phase::Paused,
        reason: "asked for".to_owned(),
    }
}

#[test]
fn objects_of_a_backup_are_kept() {
    let part_kept = golden("backup-part", &part().encode());
    assert_eq!(Part::decode(&part().key(), &part_kept).expect("a part"), part());
    let manifest_kept = golden("backup-manifest", &manifest().encode());
    assert_eq!(Manifest::decode(&manifest().key(), &manifest_kept).expect("a manifest"), manifest());
    let all = Manifest { scope: Scope::All, parts: vec![], pieces: vec![], absent: vec![], ..manifest() };
    assert_eq!(Manifest::decode(&all.key(), &golden("backup-manifest-empty", &all.encode())).expect("one"), all);
    let index = Index { cluster: CLUSTER, entries: vec![IndexEntry::of(&manifest())] };
    assert_eq!(Index::decode(&golden("backup-index", &index.encode())).expect("an index"), index);
    let intent_kept = golden("backup-intent", &intent().encode());
    assert_eq!(Intent::decode(&intent().key(), &intent_kept).expect("an intent"), intent());
}

#[test]
fn a_piece_of_a_log_is_kept() {
    // Another release of the compressor may find other bytes; what it once found must stay readable.
    let bytes = kept("backup-piece-2", &piece().encode());
    let found = Piece::decode(&piece().head.key(), &bytes).expect("a piece");
    assert_eq!(found.head, piece().head);
    assert_eq!(records(&found), records(&piece()));
}

/// In the first version a record did not say where it ends: no sooner than the piece does, as far as anybody knows.
#[test]
fn a_piece_of_the_first_version_is_readable() {
    let bytes = kept("backup-piece", &[]);
    let found = Piece::decode(&piece().head.key(), &bytes).expect("a piece");
    assert_eq!(found.head, piece().head);
    let expected = records(&piece()).into_iter().map(|logged| Logged { end: found.head.to, ..logged });
    assert_eq!(records(&found), expected.collect::<Vec<_>>());
}

fn records(piece: &Piece) -> Vec<Logged> {
    let mut all = Vec::new();
    let taken = piece.for_each(|logged| {
        all.push(logged);
        Ok(())
    });
    taken.expect("whole");
    all
}

#[test]
fn what_prune_writes_is_kept() {
    let keys = BTreeSet::from([part().key(), piece().head.key(), part().files[1].key()]);
    let condemned = Condemned { cluster: CLUSTER, prune: Uuid::from_u128(7), published_at: NEW_YEAR, keys };
    let bytes = golden("backup-condemned", &condemned.encode());
    assert_eq!(Condemned::decode(&condemned.key(), &bytes).expect("a list"), condemned);
    let lease = Lease { cluster: CLUSTER, holder: Uuid::from_u128(7), until: after(1) };
    assert_eq!(Lease::decode(&golden("backup-lease", &lease.encode())).expect("a lease"), lease);
}
