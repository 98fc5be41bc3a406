//! `trefoil check` and `trefoil sstable`: a stopped node's files, whole and damaged, without any cluster.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value as Json;
use tempfile::TempDir;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::metadata::encode_table;
use trefoil::model::{
    Bound, Cell, CellKind, ClusteringKey, Column, ColumnId, ColumnKind, CompactionOptions, Deletion, Durability,
    Identity, KeyspaceId, Liveness, LivenessKind, Mutation, MutationName, NodeId, Order, PartitionKey, RangeDeletion,
    Row, Stamp, Table, TableId, TableOptions, Timestamp, Type, VnodeBits,
};
use trefoil::snapshot::TableLabel;
use trefoil::store::{SnapshotScope, Store, StoreOptions, TableSpec};
use trefoil::vfs::disk::DiskVfs;
use uuid::Uuid;

use super::{json, texts};

const TABLE: TableId = TableId(Uuid::from_u128(7));
const CLUSTERING: [(Type, Order); 1] = [(Type::Int, Order::Ascending)];

/// A node's data directory with a store in it.
struct Node {
    directory: TempDir,
    /// `None` while it is stopped.
    store: Option<Store>,
    sequence: u64,
}

impl Node {
    /// A stopped one: two SSTables, and a record that is in the log alone.
    fn stopped() -> Node {
        let mut node = Node { directory: tempfile::tempdir().unwrap(), store: None, sequence: 0 };
        node.start();
        node.write(row(1));
        node.flush();
        node.write(deletions());
        node.write(row(2));
        node.flush();
        node.write(row(3));
        node.store = None;
        node
    }

    fn start(&mut self) {
        let options = StoreOptions {
            directory: self.path("store"),
            segment_bytes: 16 << 10,
            log_kept_bytes_max: 0,
            memtable_budget_bytes: 1 << 20,
            cache_bytes: 1 << 20,
            snapshots: Default::default(),
        };
        let identity =
            Identity { cluster: Uuid::from_u128(1), node: NodeId(5), vnode_bits: VnodeBits::new(2).unwrap() };
        let columns = vec![(ColumnId(1), Type::Text), (ColumnId(2), Type::Int)];
        let table = TableSpec {
            id: TABLE,
            keyspace: KeyspaceId(1),
            durability: Durability::Commit,
            lateness_s: 3_600,
            compaction: CompactionOptions::default(),
            content: Default::default(),
            live: None,
            clustering: CLUSTERING.to_vec(),
            columns,
            label: label(),
        };
        self.store = Some(Store::open(Arc::new(DiskVfs), options, identity, &[table]).unwrap());
    }

    fn write(&mut self, mutation: Mutation) {
        self.sequence += 1;
        let name = MutationName { origin: NodeId(5), incarnation: 1, sequence: self.sequence };
        let stamp = Stamp(self.sequence as i64);
        let record = CheckedRecord::encode(RecordKind::Named(name), KeyspaceId(1), stamp, &mutation);
        let store = self.store.as_ref().unwrap();
        let mut ends = Vec::new();
        store.append(std::slice::from_ref(&record), &mut ends).unwrap();
        store.sync().unwrap();
        store.insert(&record, ends[0]).unwrap();
    }

    fn flush(&self) {
        self.store.as_ref().unwrap().flush(None).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The paths of files in a folder of the store, and their bytes.
    fn files(&self, folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = std::fs::read_dir(self.path("store").join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        let mut files: Vec<_> = paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
        files.sort();
        files
    }

    fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
        ["", "data", "log"].into_iter().flat_map(|folder| self.files(folder)).collect()
    }

    fn sstable(&self, at: usize) -> String {
        self.files("data")[at].0.to_str().unwrap().to_owned()
    }

    fn folder(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

/// `demo.t (p text, c int, v text, n int, PRIMARY KEY (p, c))`, with the numbers that columns have here.
fn label() -> TableLabel {
    let column = |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.to_owned(), ty, kind };
    let columns = vec![
        column(3, "p", Type::Text, ColumnKind::PartitionKey),
        column(4, "c", Type::Int, ColumnKind::Clustering(Order::Ascending)),
        column(1, "v", Type::Text, ColumnKind::Regular),
        column(2, "n", Type::Int, ColumnKind::Regular),
    ];
    let (name, options) = ("t".to_owned(), TableOptions::default());
    let table = Table { id: TABLE, keyspace: KeyspaceId(1), name: name.clone(), version: 1, columns, options };
    let definition = encode_table(&Arc::new(table));
    TableLabel { keyspace: "demo".to_owned(), table: name, version: 1, definition }
}

fn text(value: &str) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

fn place(number: i32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn row(number: i32) -> Mutation {
    let timestamp = Timestamp(i64::from(number));
    let live = Cell { timestamp, kind: CellKind::Live(text("one")) };
    let expiring = CellKind::Expiring { value: place(number), ttl_s: 60, expiry_s: 1_000 };
    let row = Row {
        marker: Some(Liveness { timestamp, kind: LivenessKind::Live }),
        cells: vec![(ColumnId(1), live), (ColumnId(2), Cell { timestamp, kind: expiring })],
        ..Row::default()
    };
    let key = ClusteringKey::encode(&[place(number)], &CLUSTERING).unwrap();
    let partition = PartitionKey::encode(&[text("p")], &[Type::Text]).unwrap();
    Mutation { rows: vec![(key, row)], ..Mutation::new(TABLE, partition) }
}

fn deletions() -> Mutation {
    let bound = |number| Bound::before(&[place(number)], &CLUSTERING).unwrap();
    let range =
        RangeDeletion { start: bound(5), end: bound(9), deletion: Deletion { timestamp: Timestamp(4), ldt_s: 50 } };
    let deletion = Some(Deletion { timestamp: Timestamp(0), ldt_s: 40 });
    Mutation { rows: Vec::new(), deletion, ranges: vec![range], ..row(1) }
}

/// Runs `trefoil` where no cluster could be asked.
fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    command.args(arguments).env("TREFOIL_ENDPOINT", "http://127.0.0.1:1").output().unwrap()
}

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    let (out, err) = texts(&output);
    assert!(output.status.success() && err.is_empty(), "{arguments:?}: {out}{err}");
    out
}

/// What a command prints, on both outputs, that ends with 1.
fn fails(arguments: &[&str]) -> (String, String) {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    texts(&output)
}

fn damage(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_stopped_node_is_checked_and_left_as_it_was() {
    let node = Node::stopped();
    let before = node.everything();
    let said = ok(&["check", "--dir", &node.folder("")]);
    assert!(said.starts_with("node 5 of cluster 00000000-0000-0000-0000-000000000001: 2 SSTables, "), "{said}");
    assert!(said.ends_with(" records; nothing is wrong\n"), "{said}");
    let report = json(&ok(&["check", "--dir", &node.folder("store"), "--json"]));
    assert_eq!((&report["node"], &report["sstables"]), (&5.into(), &2.into()));
    assert_eq!((&report["findings"], &report["notes"]), (&Json::Array(Vec::new()), &Json::Array(Vec::new())));
    ok(&["sstable", "verify", &node.folder("store/data")]);
    assert_eq!(node.everything(), before);
}

#[test]
fn a_damaged_store_is_told_by_file_and_place() {
    let node = Node::stopped();
    let sstable = node.sstable(0);
    damage(Path::new(&sstable), 40);
    std::fs::remove_file(node.sstable(1)).unwrap();
    let (out, err) = fails(&["check", "--dir", &node.folder("")]);
    assert!(out.contains(&sstable) && out.contains(".sst: a file that the manifest lists is missing"), "{out}");
    assert_eq!(err, "error: faults found: 2\n");
    let (out, err) = fails(&["check", "--dir", &node.folder(""), "--json"]);
    let findings = json(&out)["findings"].clone();
    let found = findings.as_array().unwrap().iter().find(|finding| finding["file"] == sstable.as_str());
    assert!(
        found.is_some_and(|finding| finding["offset"] == 32 && finding["error"].as_str().unwrap().contains("checksum")),
        "{findings}"
    );
    assert_eq!(json(&err)["exit_code"], 1);

    let (out, _) = fails(&["sstable", "verify", &node.folder("store/data")]);
    assert!(out.contains(&sstable), "{out}");
    let (out, err) = fails(&["sstable", "dump", &sstable]);
    assert!(out.starts_with("{\"columns\":") && err.contains(&format!("{sstable} at byte 32")), "{out}{err}");
}

#[test]
fn a_running_node_is_refused() {
    let mut node = Node::stopped();
    node.start();
    let (store, sstable) = (node.folder("store"), node.sstable(0));
    let cases: [&[&str]; 4] = [
        &["check", "--dir", &node.folder("")],
        &["sstable", "dump", &sstable],
        &["sstable", "stats", &sstable],
        &["sstable", "verify", &node.folder("store/data")],
    ];
    for arguments in cases {
        let (out, err) = fails(arguments);
        assert_eq!(out, "");
        assert!(err.contains(&store) && err.ends_with("is in use by another process; stop it first\n"), "{err}");
    }
}

#[test]
fn an_sstable_is_dumped_with_everything_in_it() {
    let node = Node::stopped();
    let lines = |at| ok(&["sstable", "dump", &node.sstable(at)]).lines().map(json).collect::<Vec<_>>();
    let both = [lines(0), lines(1)];
    let dumped = both.iter().max_by_key(|lines| lines.len()).unwrap();
    let [head, partition, row, opened, closed] = &dumped[..] else { panic!("{dumped:?}") };
    assert_eq!(head["columns"][1], json(r#"{"id":2,"name":"n","type":"int"}"#));
    assert_eq!(head["keys"], "json");
    assert_eq!(head["table"], TABLE.to_string());
    assert_eq!(partition["deletion"], json(r#"{"timestamp":0,"ldt_s":40}"#));
    assert!(partition["partition"] == json(r#"{"p":"p"}"#) && partition["token"].is_i64());
    assert_eq!(row["row"], json(r#"{"c":2}"#));
    assert_eq!(row["marker"], json(r#"{"kind":"live","timestamp":2}"#));
    let text = r#"{"column":1,"kind":"live","timestamp":2,"type":"text","name":"v","value":"one"}"#;
    let int =
        r#"{"column":2,"expiry_s":1000,"kind":"expiring","timestamp":2,"ttl_s":60,"type":"int","name":"n","value":2}"#;
    assert_eq!(row["cells"], Json::Array(vec![json(text), json(int)]));
    assert_eq!(opened["deletion"], json(r#"{"timestamp":4,"ldt_s":50}"#));
    assert!(closed["deletion"].is_null() && closed["change"].is_string());

    // Without a manifest nobody knows what keys are made of, and what columns are called.
    let copy = tempfile::tempdir().unwrap();
    let alone = copy.path().join("alone.sst");
    std::fs::copy(node.sstable(0), &alone).unwrap();
    let lines: Vec<Json> = ok(&["sstable", "dump", alone.to_str().unwrap()]).lines().map(json).collect();
    assert!(lines[0]["keys"] == "hex" && lines[0]["columns"][1]["name"].is_null(), "{}", lines[0]);
    assert!(lines[1]["partition"].as_str().unwrap().starts_with("0x"), "{}", lines[1]);
    assert_eq!(lines[2]["cells"][0]["value"], "one");

    let whole = ok(&["sstable", "dump", &node.folder("store/data")]);
    assert_eq!(whole.lines().count(), both[0].len() + both[1].len());
}

#[test]
fn the_statistics_of_an_sstable_are_shown() {
    let node = Node::stopped();
    let shown = ok(&["sstable", "stats", &node.folder("store/data"), "--json"]);
    let stats: Vec<Json> = shown.lines().map(json).collect();
    assert_eq!(stats.len(), 2);
    let with_deletions = stats.iter().find(|stats| stats["tombstones"] != 0).unwrap();
    assert_eq!((&with_deletions["partitions"], &with_deletions["rows"]), (&1.into(), &1.into()));
    assert_eq!(with_deletions["timestamps"], json("[0,4]"));
    assert_eq!(with_deletions["ldts_s"], json("[40,50]"));
    assert_eq!((&with_deletions["vnode_count"], &with_deletions["vnodes"][0]["rows"]), (&4.into(), &1.into()));
    let shown = ok(&["sstable", "stats", &node.sstable(0)]);
    assert!(shown.starts_with(&node.sstable(0)) && shown.contains("  columns       1 text, 2 int\n"), "{shown}");
}

#[test]
fn files_are_verified_with_and_without_a_manifest() {
    let node = Node::stopped();
    let listed = ok(&["sstable", "verify", &node.sstable(0)]);
    assert!(listed.ends_with("bytes, as the manifest lists it\n"), "{listed}");

    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy.sst");
    std::fs::copy(node.sstable(0), &copy).unwrap();
    let copy = copy.to_str().unwrap();
    let unlisted = json(&ok(&["sstable", "verify", copy, "--json"]));
    assert_eq!((&unlisted["file"], &unlisted["listed"]), (&copy.into(), &false.into()));

    std::fs::copy(node.sstable(1), node.sstable(0)).unwrap();
    let (out, _) = fails(&["sstable", "verify", &node.sstable(0)]);
    assert!(out.contains("SHA-256"), "{out}");
}

#[test]
fn garbage_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().to_str().unwrap();
    assert!(fails(&["sstable", "stats", folder]).1.contains(&format!("there is no .sst file in {folder}")));
    assert!(
        fails(&["check", "--dir", folder]).1.contains(&format!("{folder}: it holds neither MANIFEST nor IDENTITY"))
    );
    assert!(fails(&["sstable", "dump", "/nowhere.sst"]).1.contains("cannot open /nowhere.sst"));
    let contents = [Vec::new(), vec![0; 10], vec![0xff; 5_000], b"TRFLSST1".repeat(100)];
    for (at, content) in contents.into_iter().enumerate() {
        std::fs::write(directory.path().join(format!("{at}.sst")), content).unwrap();
    }
    for command in ["dump", "stats", "verify"] {
        let (out, err) = fails(&["sstable", command, folder]);
        let said = out + &err;
        assert!((0..4).all(|at| said.contains(&format!("/{at}.sst"))), "{said}");
        assert!(said.ends_with("error: faults found: 4\n"), "{said}");
    }
    for name in ["MANIFEST", "IDENTITY"] {
        std::fs::write(directory.path().join(name), b"TRFLMAN1 and then nothing of the kind").unwrap();
    }
    let (out, _) = fails(&["check", "--dir", folder]);
    assert!(["MANIFEST", "IDENTITY"].iter().all(|name| out.contains(&format!("{folder}/{name}"))), "{out}");
    assert!(fails(&["sstable", "verify", folder]).0.contains("MANIFEST"), "the manifest is damaged");
}

/// While the node runs on, and after its table was dropped: a snapshot is read by itself, and with others.
#[test]
fn rows_come_back_from_the_directories_of_snapshots() {
    let mut node = Node::stopped();
    node.start();
    let store = node.store.as_ref().unwrap();
    let made = store.create_snapshot("one", SnapshotScope::All, 1).unwrap();
    let first = node.folder(&format!("store/snapshots/{}", made.id));
    node.write(Mutation { rows: Vec::new(), ..deletions() });
    node.write(row(7));
    let store = node.store.as_ref().unwrap();
    store.set_tables(&[]).unwrap();
    store.let_go(2).unwrap();
    let dropped = store.snapshots().whole.values().find(|snapshot| snapshot.id != made.id).cloned().unwrap();
    let second = node.folder(&format!("store/snapshots/{}", dropped.id));

    ok(&["sstable", "verify", &first]);
    assert!(ok(&["sstable", "verify", &second, "--json"]).lines().all(|line| json(line)["listed"] == true));
    let export = |arguments: &[&str]| {
        let output = run(&[&["snapshot", "export", "--table", "demo.t"], arguments].concat());
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{out}{err}");
        out
    };
    // What was written with a time to live has long expired.
    assert_eq!(export(&[&first, "--null", "-"]), "p,c,v,n\np,1,one,-\np,2,one,-\np,3,one,-\n");
    let merged = export(&[&first, &second, "--format", "jsonl"]);
    let places: Vec<i64> = merged.lines().map(|line| json(line)["c"].as_i64().unwrap()).collect();
    assert_eq!(places, [1, 2, 3, 7]);
    let schema = export(&[&second, "--schema"]);
    assert!(schema.starts_with("CREATE TABLE demo.t (\n    p text,\n    c int,\n"), "{schema}");

    let (_, err) = fails(&["snapshot", "export", "--table", "demo.other", &first]);
    assert!(err.contains("does not hold demo.other"), "{err}");
    let (_, err) = fails(&["snapshot", "export", "--table", "demo.t", &node.folder("store")]);
    assert!(err.contains("holds no SNAPSHOT"), "{err}");
    // A damaged file gives no rows of its own, and the command fails.
    damage(&Path::new(&first).join(format!("{}.sst", made.files[0].id)), 60);
    fails(&["snapshot", "export", "--table", "demo.t", &first]);
}
