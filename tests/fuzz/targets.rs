//! One function per decoder of bytes that come from a disk, a peer or a client. It must return, whatever the bytes are; and
//! what a strict decoder accepts must be exactly what its encoder writes.
//!
//! What stands behind a checksum is given to its decoder under a right one: no flipped bit gets there otherwise.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use prost::Message;
use sha2::{Digest, Sha256};
use trefoil::backup::{self, layout};
use trefoil::codec::compress::read_block;
use trefoil::codec::entry::{Trust, read_entry};
use trefoil::codec::frame::{put_frame, read_frame};
use trefoil::codec::mutation::decode_mutation;
use trefoil::codec::position::{put_position, read_position};
use trefoil::codec::varint::Reader;
use trefoil::codec::{CheckedRecord, EncodedRow, Record};
use trefoil::commitlog::{CommitLog, LogOptions, Position, SEGMENT_BYTES_MIN};
use trefoil::coordinator::{PagingState, read_repair};
use trefoil::hints::HintLog;
use trefoil::metadata::{ClusterState, Entry, Refusal};
use trefoil::model::{
    Bound, ClusteringKey, Direction, Identity, NodeId, Page, PageEnd, PartitionKey, ReadCommand, ScanRange, Slice,
    Stamp, Stream, Table, Target, TokenRange, Type, Value, VnodeBits,
};
use trefoil::received::ReceivedSet;
use trefoil::received::report::Report;
use trefoil::received::told::Reconciled;
use trefoil::sstable::{Access, BlockCache, Sstable};
use trefoil::store::Stopped;
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use trefoil::{cql, snapshot};
use trefoil_proto::convert;
use trefoil_proto::v1;
use trefoil_server::ceiling::CeilingFile;
use trefoil_server::replication;
use trefoil_server::restore::share::Notes;
use uuid::Uuid;

/// A decoder: how it is called, the file it stands in (from the root of the repository), and the function.
pub type Decoder = (&'static str, &'static [&'static str], fn(&[u8]));

/// All of them.
pub const TARGETS: &[Decoder] = &[
    ("frame", &["src/codec/frame.rs"], frame),
    ("block", &["src/codec/compress.rs"], block),
    ("row", &["src/codec/row.rs", "src/codec/row/view.rs", "src/codec/row/shards.rs"], row),
    ("mutation", &["src/codec/mutation.rs"], mutation),
    ("record", &["src/codec/record.rs", "src/codec/skim.rs"], record),
    ("entry", &["src/codec/entry.rs", "src/coordinator/read_repair.rs"], entry),
    ("position", &["src/codec/position.rs"], position),
    ("log_segment", &["src/commitlog/segment.rs", "src/commitlog/footer.rs", "src/commitlog/replay.rs"], log_segment),
    ("hint_segment", &["src/hints/segment.rs", "src/hints/progress.rs"], hint_segment),
    ("sstable", &["src/sstable/format.rs", "src/sstable/reader.rs"], sstable),
    (
        "sstable_sections",
        &["src/sstable/index.rs", "src/sstable/bloom.rs", "src/sstable/stats.rs", "src/sstable/vnodes.rs"],
        sstable_sections,
    ),
    ("sstable_block", &["src/sstable/block.rs"], sstable_block),
    ("identity", &["src/store/identity.rs"], identity),
    ("manifest", &["src/store/manifest.rs"], manifest),
    ("manifest_edit", &["src/store/change.rs"], manifest_edit),
    ("snapshot", &["src/snapshot/manifest.rs", "src/snapshot/directory.rs"], snapshot),
    (
        "backup_object",
        &[
            "src/backup/object.rs",
            "src/backup/part.rs",
            "src/backup/piece.rs",
            "src/backup/manifest.rs",
            "src/backup/index.rs",
            "src/backup/intent.rs",
            "src/backup/condemned.rs",
            "src/backup/layout.rs",
        ],
        backup_object,
    ),
    ("received_set", &["src/received/mod.rs"], received_set),
    ("report", &["src/received/report.rs", "src/received/told.rs"], report),
    ("metadata_entry", &["src/metadata/entry.rs", "src/metadata/parts.rs", "src/codec/types.rs"], metadata_entry),
    ("cluster_state", &["src/metadata/snapshot.rs"], cluster_state),
    ("refusal", &["src/metadata/refusal.rs"], refusal),
    ("clock_ceiling", &["server/src/ceiling.rs"], clock_ceiling),
    ("restore_notes", &["server/src/restore/share/notes.rs"], restore_notes),
    ("wanted", &["server/src/replication/wanted.rs"], wanted),
    ("key", &["src/model/key.rs", "src/model/ordered.rs"], key),
    ("value", &["src/model/value.rs", "src/model/duration.rs"], value),
    ("cql_text", &["src/cql/lexer.rs", "src/cql/parser.rs", "src/cql/table.rs"], cql_text),
    ("paging_state", &["src/coordinator/paging.rs"], paging_state),
    ("read_request", &["proto/src/convert/read.rs", "proto/src/convert/key.rs"], read_request),
    ("write_request", &["proto/src/convert/mutation.rs", "proto/src/convert/value.rs"], write_request),
    ("schema_request", &["proto/src/convert/schema.rs"], schema_request),
    ("peer_read", &["proto/src/convert/peer.rs"], peer_read),
];

/// Far more than any of these decodes to.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The bytes of a kept sample.
pub fn sample(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

static SSTABLE: LazyLock<Vec<u8>> = LazyLock::new(|| sample(include_str!("../golden/data/v1/sstable.hex")));
static MANIFEST: LazyLock<Vec<u8>> = LazyLock::new(|| sample(include_str!("../golden/data/v1/manifest.hex")));
static SNAPSHOT: LazyLock<Vec<u8>> = LazyLock::new(|| sample(include_str!("../golden/data/v1/snapshot.hex")));
static PIECE: LazyLock<Vec<u8>> = LazyLock::new(|| sample(include_str!("../golden/data/v1/backup-piece.hex")));
static IDENTITY: LazyLock<Vec<u8>> = LazyLock::new(|| sample(include_str!("../golden/data/v1/identity.hex")));

/// The tables of the kept cluster state.
static TABLES: LazyLock<Vec<Arc<Table>>> = LazyLock::new(|| {
    let state = Bytes::from(sample(include_str!("../golden/data/v1/cluster-state.hex")));
    ClusterState::decode(state).expect("the sample is whole").tables().cloned().collect()
});

/// Every scalar, and types of each kind around them.
static TYPES: LazyLock<Vec<Type>> = LazyLock::new(|| {
    let frozen = true;
    let mut types: Vec<Type> = Type::SCALARS.into();
    for element in [Type::Int, Type::Text, Type::VarInt].map(Arc::new) {
        types.push(Type::List { element: element.clone(), frozen });
        types.push(Type::Set { element: element.clone(), frozen });
        types.push(Type::Map { key: element.clone(), value: Arc::new(Type::Blob), frozen });
        types.push(Type::Vector { element, dimension: 2 });
    }
    types.push(Type::Tuple([Type::Int, types[20].clone()].into()));
    types
});

fn bytes(data: &[u8]) -> Bytes {
    Bytes::copy_from_slice(data)
}

/// Files in memory, in directories that exist.
fn files(files: &[(&str, &[u8])]) -> Arc<dyn Vfs> {
    let vfs = MemoryVfs::new();
    for (path, contents) in files {
        let path = Path::new(path);
        vfs.create_dir(path.parent().expect("a directory")).expect("made");
        vfs.create(path).and_then(|file| file.write_at(contents, 0)).expect("written");
    }
    Arc::new(vfs)
}

fn framed(before: &[u8], salt: u64, payload: &[u8]) -> Vec<u8> {
    let mut file = before.to_vec();
    if !payload.is_empty() {
        put_frame(&mut file, salt, payload);
    }
    file
}

pub fn frame(data: &[u8]) {
    let salt = data.first().map_or(0, |byte| u64::from(*byte));
    let _ = read_frame(&bytes(data), salt);
}

pub fn block(data: &[u8]) {
    if let Ok(body) = read_block(bytes(data), BLOCK_BYTES_MAX) {
        assert!(body.len() <= BLOCK_BYTES_MAX);
    }
}

pub fn row(data: &[u8]) {
    let unchecked = EncodedRow::trusted(bytes(data));
    let _ = (unchecked.decode(), unchecked.is_visible_at(0), unchecked.newest_timestamp());
    let Ok(row) = EncodedRow::checked(bytes(data)) else { return };
    let decoded = row.decode().expect("a row that was checked");
    assert_eq!(EncodedRow::encode(&decoded).bytes(), row.bytes(), "accepted, and not as it is written");
}

pub fn mutation(data: &[u8]) {
    if let Ok(view) = trefoil::codec::mutation::view::MutationView::new(data) {
        let _ = (view.rows.clone().count(), view.ranges());
    }
    let _ = trefoil::codec::mutation::token_of(data);
    if let Ok(mutation) = decode_mutation(bytes(data)) {
        for (_, row) in &mutation.rows {
            row.decode().expect("rows were checked");
        }
    }
}

pub fn record(data: &[u8]) {
    if let Ok(record) = Record::decode(bytes(data)) {
        mutation(&record.mutation);
        let checked = CheckedRecord::check(record.bytes);
        assert_eq!(checked.is_ok(), decode_mutation(record.mutation).is_ok(), "one of the two checks less");
    }
}

/// Entries as a replica answers them, and as whoever merges them takes them.
pub fn entry(data: &[u8]) {
    for trust in [Trust::Checked, Trust::Trusted] {
        let mut reader = Reader::new("entries", bytes(data));
        while reader.remaining() > 0 && read_entry(&mut reader, trust).is_ok() {}
    }
    let mut command = ReadCommand {
        table: TABLES[0].id,
        target: Target::Scan(TokenRange::ALL),
        slices: vec![Slice::all()],
        direction: Direction::Forward,
        after: None,
        now_s: 0,
        limit_rows: 10,
        limit_bytes: 1_000,
    };
    for direction in [Direction::Forward, Direction::Reverse] {
        command.direction = direction;
        let page = Page { entries: bytes(data), end: PageEnd::Complete };
        let _ = read_repair::decode(&page, &command);
    }
}

pub fn position(data: &[u8]) {
    let mut reader = Reader::new("position", bytes(data));
    if let Ok(position) = read_position(&mut reader) {
        let mut again = Vec::new();
        put_position(&mut again, &position);
        assert_eq!(again, data[..data.len() - reader.remaining()], "accepted, and not as it is written");
    }
}

pub fn log_segment(data: &[u8]) {
    let vfs = files(&[("/log/00000000000000000001.log", data)]);
    let cluster = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00c1);
    let owner = Identity { cluster, node: NodeId(2), vnode_bits: VnodeBits::DEFAULT };
    let options = LogOptions { directory: "/log".into(), segment_bytes: SEGMENT_BYTES_MIN, owner, kept_bytes_max: 0 };
    let mut each = |replayed: trefoil::commitlog::Replayed| {
        record(replayed.record.bytes());
        Ok(())
    };
    let _ = CommitLog::examine(&*vfs, Path::new("/log"), owner, Position::default(), &mut each);
    let _ = CommitLog::open(vfs, options, Position::default(), &mut each);
}

/// The same bytes as a file of hints and as the file that says what is acknowledged of them.
pub fn hint_segment(data: &[u8]) {
    let vfs = files(&[("/hints/3/00000000000000000001.hints", data), ("/hints/3/acknowledged", data)]);
    let cluster = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00c1);
    let options = trefoil::hints::LogOptions {
        directory: "/hints/3".into(),
        owner: Identity { cluster, node: NodeId(2), vnode_bits: VnodeBits::DEFAULT },
        target: NodeId(3),
        segment_bytes: 1 << 20,
        bytes_max: 1 << 30,
        window_us: i64::MAX,
    };
    let Ok(mut log) = HintLog::open(vfs, options) else { return };
    let _ = log.oldest_us();
    let mut from = log.acknowledged();
    while let Ok(loaded) = log.load(from, 100) {
        loaded.hints.iter().for_each(|stored| record(&stored.hint.record));
        if loaded.next == from {
            break;
        }
        from = loaded.next;
    }
    let _ = log.acknowledge(from);
}

/// Everything that a store does with a file.
pub fn sstable(data: &[u8]) {
    let vfs = files(&[("/data/file.sst", data)]);
    let cache = Arc::new(BlockCache::new(1 << 16));
    let Ok(file) = Sstable::open(&*vfs, Path::new("/data/file.sst"), cache).map(Arc::new) else { return };
    let _ = file.verify_unlisted();
    let read = |mut stream: trefoil::sstable::FragmentStream| while let Ok(Some(_)) = stream.next() {};
    for direction in [Direction::Forward, Direction::Reverse] {
        let _ = file.scan(ScanRange::default(), &[Slice::all()], direction, Access::Disk).map(read);
        let key = PartitionKey::from_bytes(Bytes::from_static(b"EWR"));
        let mut cost = Default::default();
        let stream = file.partition(&key, &[Slice::all()], &[], direction, Access::Disk, &mut cost);
        let _ = stream.map(|stream| stream.map(|stream| read(stream.fragments)));
    }
    let _ = file.read_through().map(read);
}

const HEADER_BYTES: usize = 32;
const FOOTER_BYTES: usize = 112;
const SECTION_BYTES: usize = 20;
const FILE_ID: std::ops::Range<usize> = 12..28;

fn word(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize
}

/// The first byte names a section of the sample; the rest takes its place, under right checksums.
pub fn sstable_sections(data: &[u8]) {
    let Some((which, contents)) = data.split_first() else { return };
    let file = &*SSTABLE;
    let footer = &file[file.len() - FOOTER_BYTES..];
    let blocks_end = word(footer, 0);
    let mut made = file[..blocks_end].to_vec();
    let mut new_footer = Vec::new();
    for number in 0..4 {
        let (offset, len) = (word(footer, number * SECTION_BYTES), word(footer, number * SECTION_BYTES + 8));
        let section = if number == usize::from(which % 4) { contents } else { &file[offset..offset + len] };
        new_footer.extend((made.len() as u64).to_le_bytes());
        new_footer.extend((section.len() as u64).to_le_bytes());
        new_footer.extend(crc32fast::hash(&[&file[FILE_ID], section].concat()).to_le_bytes());
        made.extend(section);
    }
    new_footer.extend(&footer[4 * SECTION_BYTES..FOOTER_BYTES - 12]);
    let crc = crc32fast::hash(&new_footer);
    new_footer.extend(crc.to_le_bytes());
    new_footer.extend(&footer[FOOTER_BYTES - 8..]);
    made.extend(new_footer);
    sstable(&made);
}

/// The first of the sample's blocks, stored without compression, is made of these bytes; index and the rest stay.
pub fn sstable_block(data: &[u8]) {
    let mut made = SSTABLE.clone();
    let footer = made.len() - FOOTER_BYTES;
    // Kind, length, body, checksum; the sample's blocks are short, so that the length takes one byte.
    let body_len = usize::from(made[HEADER_BYTES + 1]);
    let body = HEADER_BYTES..HEADER_BYTES + 2 + body_len;
    if body.end + 4 > word(&made, footer) {
        return;
    }
    for (to, from) in made[HEADER_BYTES + 2..body.end].iter_mut().zip(data) {
        *to = *from;
    }
    let covered = [&made[FILE_ID], &(HEADER_BYTES as u64).to_le_bytes(), &made[body.clone()]].concat();
    let crc = crc32fast::hash(&covered);
    made[body.end..body.end + 4].copy_from_slice(&crc.to_le_bytes());
    sstable(&made);
}

fn check_directory(identity: &[u8], manifest: &[u8]) {
    let vfs = files(&[("/node/IDENTITY", identity), ("/node/MANIFEST", manifest)]);
    let stopped = Stopped::open(vfs, Path::new("/node")).expect("it is a directory of a store");
    let _ = stopped.files();
    let _ = stopped.check();
}

/// As it is, and as what stands in its frame.
pub fn identity(data: &[u8]) {
    check_directory(data, &MANIFEST);
    check_directory(&framed(&IDENTITY[..12], 0, data), &MANIFEST);
}

pub fn manifest(data: &[u8]) {
    check_directory(&IDENTITY, data);
}

/// Changes, as the first edit of a manifest and as one that follows.
pub fn manifest_edit(data: &[u8]) {
    check_directory(&IDENTITY, &framed(&MANIFEST[..12], 12, data));
    check_directory(&IDENTITY, &framed(&MANIFEST, MANIFEST.len() as u64, data));
}

pub fn snapshot(data: &[u8]) {
    for file in [data, &framed(&SNAPSHOT[..12], 0, data)] {
        let vfs = files(&[("/snapshot/SNAPSHOT", file)]);
        let _ = snapshot::read(&*vfs, Path::new("/snapshot"));
    }
}

/// Bytes of a bucket as every kind of object, as the head of one under a right hash, and as the records of a piece.
pub fn backup_object(data: &[u8]) {
    let heads = (1..=7).map(|kind| sealed(kind, data, None));
    let piece_head = &PIECE[37..37 + usize::from(PIECE[29])];
    for object in heads.chain([bytes(data), sealed(2, piece_head, Some(data))]) {
        read_backup_object(&object);
    }
    let _ = std::str::from_utf8(data).map(layout::Key::parse);
}

fn read_backup_object(object: &Bytes) {
    let backup = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00b1);
    let piece = layout::piece(NodeId(3), 41);
    let _ = backup::Part::decode(&layout::part(backup, NodeId(3)), object);
    let _ = backup::PieceHead::read(&piece, object);
    if let Ok(piece) = backup::Piece::decode(&piece, object) {
        let _ = piece.for_each(|logged| logged.record.mutation()?.check().map(drop));
    }
    let _ = backup::Manifest::decode(&layout::backup(backup), object);
    if let Ok(index) = backup::Index::decode(object) {
        assert_eq!(index.encode(), object);
    }
    let _ = backup::Intent::decode(&layout::intent(backup), object);
    let _ = backup::Condemned::decode(&layout::condemned(Uuid::from_u128(7)), object);
    let _ = backup::Lease::decode(object);
}

/// An object of a backup, with hashes that fit.
fn sealed(kind: u8, head: &[u8], body: Option<&[u8]>) -> Bytes {
    let mut out =
        [&b"TRFLBKP1\x01\0\0\0"[..], &[kind][..], &[7; 16][..], &(head.len() as u64).to_le_bytes()[..], head].concat();
    out.extend(Sha256::digest(&out));
    if let Some(body) = body {
        out.extend(body);
        out.extend(Sha256::digest(&out));
    }
    out.into()
}

pub fn received_set(data: &[u8]) {
    let mut reader = Reader::new("received set", bytes(data));
    if let Ok(set) = ReceivedSet::decode(&mut reader) {
        let mut again = Vec::new();
        set.encode(&mut again);
        assert_eq!(again, data[..data.len() - reader.remaining()], "accepted, and not as it is written");
    }
}

pub fn report(data: &[u8]) {
    if let Ok(report) = Report::decode(bytes(data)) {
        assert_eq!(report.encode(), data, "accepted, and not as it is written");
    }
    let mut reader = Reader::new("reconciled", bytes(data));
    if let Ok(reconciled) = Reconciled::decode(&mut reader) {
        let mut again = Vec::new();
        reconciled.encode(&mut again);
        assert_eq!(again, data[..data.len() - reader.remaining()], "accepted, and not as it is written");
    }
}

pub fn metadata_entry(data: &[u8]) {
    if let Ok(entry) = Entry::decode(bytes(data)) {
        assert_eq!(Entry::decode(entry.encode().into()).expect("what it wrote itself"), entry);
    }
}

pub fn cluster_state(data: &[u8]) {
    if let Ok(state) = ClusterState::decode(bytes(data)) {
        state.check().expect("the invariants of a state that was read");
        assert_eq!(state.encode(), data, "accepted, and not as it is written");
    }
    let _ = trefoil::metadata::decode_table(bytes(data));
}

pub fn refusal(data: &[u8]) {
    let _ = Refusal::decode(bytes(data));
}

pub fn clock_ceiling(data: &[u8]) {
    for file in [data, &framed(b"TRFLCLK1", 1, data)] {
        let _ = CeilingFile::new(files(&[("/node/clock", file)]), Path::new("/node")).read();
    }
}

pub fn restore_notes(data: &[u8]) {
    for file in [data, &framed(b"TRFLRST1\x01\0\0\0", 1, data)] {
        if let Some(notes) = Notes::decode(&bytes(file)) {
            assert_eq!(notes.encode(), file, "accepted, and not as it is written");
        }
    }
}

pub fn wanted(data: &[u8]) {
    if let Ok(names) = replication::wanted::decode(bytes(data)) {
        assert_eq!(replication::wanted::encode(&names), data, "accepted, and not as it is written");
    }
}

pub fn key(data: &[u8]) {
    for table in &*TABLES {
        let partition = PartitionKey::from_bytes(bytes(data));
        if let Ok(components) = partition.decode(&table.partition_types()) {
            let _ = PartitionKey::encode(&components, &table.partition_types());
        }
        if let Ok(key) = ClusteringKey::from_bytes(bytes(data))
            && let Ok(components) = key.decode(&table.clustering_types())
            && let Ok(again) = ClusteringKey::encode(&components, &table.clustering_types())
        {
            assert_eq!(again, key, "accepted, and not as it is written");
        }
    }
    if let Ok(bound) = Bound::from_bytes(bytes(data)) {
        assert_eq!(bound.bytes(), data);
    }
}

pub fn value(data: &[u8]) {
    for ty in &*TYPES {
        if let Ok(Some(value)) = Value::decode(ty, &bytes(data)) {
            let _ = value.encode(ty).expect("a value is of the type it was read as");
        }
    }
}

pub fn cql_text(data: &[u8]) {
    let _ = cql::parse(&String::from_utf8_lossy(data));
}

/// As it is, and under a right checksum.
pub fn paging_state(data: &[u8]) {
    let sealed = [data, &crc32fast::hash(data).to_le_bytes()].concat();
    let fingerprint = data.get(1..9).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight")));
    for state in [bytes(data), sealed.into()] {
        if let Ok(decoded) = PagingState::decode(&state, fingerprint) {
            assert_eq!(decoded.encode(fingerprint), state, "accepted, and not as it is written");
        }
    }
}

pub fn read_request(data: &[u8]) {
    let Ok(request) = v1::ReadRequest::decode(data) else { return };
    for table in &*TABLES {
        let _ = convert::read::read(request.clone(), table);
    }
}

pub fn write_request(data: &[u8]) {
    let Ok(v1::MutateRequest { mutation: Some(mutation), .. }) = v1::MutateRequest::decode(data) else { return };
    for table in &*TABLES {
        let key = convert::key::partition_key(mutation.partition.clone(), table);
        let key = key.unwrap_or_else(|_| PartitionKey::from_bytes(Bytes::from_static(b"p")));
        let context =
            convert::mutation::WriteContext { table, stamp: Stamp(1 << 40), default_timestamp: None, request_id: b"r" };
        if let Ok(made) = convert::mutation::mutation(&context, key, mutation.changes.clone()) {
            let mut encoded = Vec::new();
            trefoil::codec::mutation::encode_mutation(&made, &mut encoded);
            decode_mutation(encoded.into()).expect("what a request becomes can be read back");
        }
    }
}

pub fn schema_request(data: &[u8]) {
    if let Ok(ddl) = v1::Ddl::decode(data) {
        let _ = convert::schema::ddl_to_model(ddl);
    }
    if let Ok(table) = v1::Table::decode(data) {
        let _ = convert::schema::table_to_model(table, &Default::default());
    }
}

pub fn peer_read(data: &[u8]) {
    if let Ok(operation) = v1::ReadOperation::decode(data) {
        let _ = convert::peer::wanted_digest(&operation);
        let _ = convert::peer::read_command(operation);
    }
    if let Ok(page) = v1::ReplicaPage::decode(data)
        && convert::peer::digest(&page).is_ok()
        && let Ok((page, _)) = convert::peer::page(page)
    {
        entry(&page.entries);
    }
}
