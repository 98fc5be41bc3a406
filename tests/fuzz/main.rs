//! The deterministic twins of the fuzz targets: each decoder meets kept samples with bytes flipped, put in, taken out,
//! cut off and repeated, and bytes drawn from a seed. `cargo fuzz` looks further with the same functions.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the files are the repository's")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;
use trefoil::codec::varint::put_varint;
use trefoil_proto::v1::{self, value};

mod targets;

/// Random inputs, and damaged ones beside all flips and cuts, for each target.
const RANDOM: u64 = 2_000;
/// Longer samples are flipped at so many places only.
const FLIPPED_MOST: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Kept samples whose names begin with one of these.
fn kept(prefixes: &[&str]) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> =
        fs::read_dir(root().join("tests/golden/data/v1")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let is_one = |path: &&PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let samples: Vec<_> =
        paths.iter().filter(is_one).map(|path| targets::sample(&fs::read_to_string(path).unwrap())).collect();
    assert!(!samples.is_empty(), "no sample for {prefixes:?}");
    samples
}

/// What a decoder reads without complaint.
fn samples(target: &str) -> Vec<Vec<u8>> {
    // Frames end in a payload: what a target frames by itself is the payload of a kept file.
    let payloads = |prefix: &str, header: usize| {
        let files = kept(&[prefix]);
        let inside: Vec<_> = files.iter().map(|file| file[header + 8..].to_vec()).collect();
        [files, inside].concat()
    };
    match target {
        "frame" => kept(&["frame"]),
        "block" => kept(&["block-"]),
        "row" => kept(&["row-"]),
        "mutation" => kept(&["mutation-"]),
        "record" => kept(&["record-"]),
        "entry" => kept(&["entries"]),
        "position" => kept(&["positions"]),
        "hint_segment" => kept(&["hint-segment", "hints-acknowledged"]),
        "log_segment" => kept(&["log-segment"]),
        "sstable" => kept(&["sstable"]),
        "sstable_sections" => sections(),
        "sstable_block" => {
            kept(&["sstable"]).iter().map(|file| file[34..34 + usize::from(file[33])].to_vec()).collect()
        }
        "identity" => payloads("identity", 12),
        "manifest" => kept(&["manifest"]),
        "manifest_edit" => payloads("manifest", 12),
        "snapshot" => payloads("snapshot", 12),
        "backup_object" => backup_objects(),
        "received_set" => received_sets(),
        "report" => [kept(&["report"]), kept(&["reconciled"])].concat(),
        "metadata_entry" => kept(&["metadata-"]),
        "cluster_state" => kept(&["cluster-state"]),
        "refusal" => vec![
            trefoil::metadata::Refusal::new(
                trefoil::metadata::Reason::from_code(1).unwrap(),
                "table t",
                "there is none",
            )
            .encode(),
        ],
        "clock_ceiling" => vec![targets::sample("5452464c434c4b3108000000dd06643500401e18240a0600")],
        "restore_notes" => {
            let whole = targets::sample(concat!(
                "5452464c5253543101000000580000009b8297e9070707070707070707070707070707070707070707070707070707070707",
                "07070002000000000000000000000000000000010300020600a20200000000000000000000000000000000020001030000002211000000000000"
            ));
            vec![whole[20..].to_vec(), whole]
        }
        "wanted" => wanted_names(),
        "key" => ["610062", "406100ff620038", "407fffffff38", "407fffffffffffffff38", "00016100000162ff00", "4020"]
            .map(targets::sample)
            .into(),
        "value" => [
            "00",
            "61",
            "ffffffff",
            "0000000000000001",
            "c3a9",
            "0190000000007000800000000000c1ff",
            "020406",
            "0000000200000001610000000162",
            "00000001000000040000000700000001ff",
            "0000000400000007ffffffff",
        ]
        .map(targets::sample)
        .into(),
        "cql_text" => cql_texts(),
        "paging_state" => paging_states(),
        "read_request" | "write_request" | "schema_request" | "peer_read" => requests(target),
        other => panic!("{other} has no samples"),
    }
}

fn sections() -> Vec<Vec<u8>> {
    let file = kept(&["sstable"]).remove(0);
    let footer = file.len() - 112;
    let word = |at: usize| u64::from_le_bytes(file[footer + at..footer + at + 8].try_into().unwrap()) as usize;
    let section = |number: usize| {
        let (from, len) = (word(number * 20), word(number * 20 + 8));
        [&[number as u8], &file[from..from + len]].concat()
    };
    (0..4).map(section).collect()
}

/// Objects as they are, and their heads, which the target seals by itself.
fn backup_objects() -> Vec<Vec<u8>> {
    let objects = kept(&["backup-"]);
    let head =
        |object: &Vec<u8>| object[37..37 + u64::from_le_bytes(object[29..37].try_into().unwrap()) as usize].to_vec();
    let heads: Vec<_> = objects.iter().map(head).collect();
    [objects, heads].concat()
}

fn received_sets() -> Vec<Vec<u8>> {
    let mut set = Vec::new();
    put_varint(&mut set, 2);
    for origin in [1u32, 2] {
        set.extend(origin.to_le_bytes());
        set.extend(77u64.to_le_bytes());
        for number in [2, 0, 3, 5, 1_000] {
            put_varint(&mut set, number);
        }
    }
    vec![set]
}

/// Of no slice, and of three.
fn wanted_names() -> Vec<Vec<u8>> {
    let mut three = vec![3];
    for (keyspace, vnode) in [(0, 3), (3, 0), (3, 4_000)] {
        put_varint(&mut three, keyspace);
        put_varint(&mut three, vnode);
        three.extend(&received_sets()[0]);
    }
    vec![vec![0], three]
}

fn cql_texts() -> Vec<Vec<u8>> {
    [
        "CREATE TABLE k.t (a int, b text, \"C\" blob STATIC, PRIMARY KEY ((a), b)) WITH CLUSTERING ORDER BY (b DESC) AND \
         default_time_to_live = 10 AND comment = 'it''s'; -- end\nDROP TABLE IF EXISTS k.t",
        "CREATE KEYSPACE IF NOT EXISTS k WITH replication = {'eu': 3}; /* x */",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

fn paging_states() -> Vec<Vec<u8>> {
    let with = |start: &[u8]| [&[1][..], &5u64.to_le_bytes(), &[7, 0], start].concat();
    let position = kept(&["positions"]).remove(0);
    vec![with(&[0]), with(&[1, 1, 2, 3, 4, 5, 6, 7, 8]), with(&[&[2, 3][..], &position].concat())]
}

fn requests(target: &str) -> Vec<Vec<u8>> {
    let text = |text: &str| v1::Value { kind: Some(value::Kind::Text(text.into())) };
    let number = |number| v1::Value { kind: Some(value::Kind::Integer(number)) };
    let row = v1::RowWrite {
        clustering: vec![number(7), text("x")],
        cells: vec![v1::CellWrite::set("name", text("Newark"))],
    };
    let change = v1::Change { timestamp_us: Some(1), ttl_s: Some(5), op: Some(v1::change::Op::Insert(row)) };
    let slice = v1::Slice { partition: vec![text("EWR")], ranges: vec![v1::ClusteringRange::default()] };
    match target {
        "read_request" => vec![
            v1::ReadRequest { target: Some(v1::read_request::Target::Slice(slice)), limit: 5, ..Default::default() }
                .encode_to_vec(),
        ],
        "write_request" => vec![
            v1::MutateRequest {
                mutation: Some(v1::Mutation {
                    partition: vec![text("EWR")],
                    changes: vec![change],
                    ..Default::default()
                }),
                ..Default::default()
            }
            .encode_to_vec(),
        ],
        "schema_request" => {
            let statements = cql_texts();
            let parse = |text: &Vec<u8>| trefoil::cql::parse(std::str::from_utf8(text).unwrap()).unwrap();
            let ddl = statements.iter().flat_map(parse).map(|one| trefoil_proto::convert::schema::ddl(&one));
            ddl.map(|ddl| ddl.encode_to_vec()).collect()
        }
        _ => {
            let operation = v1::ReadOperation {
                table: vec![7; 16].into(),
                target: Some(v1::read_operation::Target::Partition(b"EWR".to_vec().into())),
                limit_rows: 5,
                ..Default::default()
            };
            let page = v1::ReplicaPage { entries: kept(&["entries"]).remove(0).into(), ..Default::default() };
            vec![operation.encode_to_vec(), page.encode_to_vec()]
        }
    }
}

/// Steele and Vigna's splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        // Lengths, flags and limits are where faults are.
        if self.below(3) == 0 { [0, 1, 2, 0x7f, 0x80, 0xff][self.below(6)] } else { self.below(256) as u8 }
    }

    /// A few changes of a sample.
    fn damage(&mut self, sample: &[u8]) -> Vec<u8> {
        let mut bytes = sample.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.byte()),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => {
                    let from = self.below(at + 1);
                    let again = bytes[from..at].to_vec();
                    bytes.splice(at..at, again);
                }
                4 => bytes.extend((0..self.below(9)).map(|_| 0xff)),
                _ if at < bytes.len() => bytes[at] = self.byte(),
                _ => {}
            }
        }
        bytes
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(80)).map(|_| self.byte()).collect()
    }
}

/// Runs one decoder, and says on which bytes it panicked.
fn decode(name: &str, decoder: fn(&[u8]), bytes: &[u8]) {
    if std::panic::catch_unwind(|| decoder(bytes)).is_err() {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{name} on {hex}");
    }
}

fn every_decoder_stands(range: impl Fn(usize) -> bool) {
    for (number, (name, _, decoder)) in targets::TARGETS.iter().enumerate().filter(|(number, _)| range(*number)) {
        let mut random = Random(number as u64);
        let samples = samples(name);
        for sample in &samples {
            decode(name, *decoder, sample);
            let step = sample.len().div_ceil(FLIPPED_MOST).max(1);
            for at in (0..sample.len()).step_by(step) {
                let mut flipped = sample.clone();
                flipped[at] ^= 1 << (at % 8);
                decode(name, *decoder, &flipped);
                flipped[at] = 0xff;
                decode(name, *decoder, &flipped);
                decode(name, *decoder, &sample[..at]);
            }
        }
        for _ in 0..RANDOM {
            let sample = &samples[random.below(samples.len())];
            let damaged = random.damage(sample);
            decode(name, *decoder, &damaged);
            decode(name, *decoder, &random.bytes());
        }
    }
}

#[test]
fn every_decoder_stands_damaged_samples_and_random_bytes() {
    let halves = 2;
    std::thread::scope(|scope| {
        for half in 0..halves {
            scope.spawn(move || every_decoder_stands(|number| number % halves == half));
        }
    });
}

/// Samples are read for what they are: else their damage would try nothing.
#[test]
fn samples_are_decoded() {
    for (name, decodes) in [("row", row_decodes as fn(&[u8]) -> bool), ("received_set", set_decodes)] {
        assert!(samples(name).iter().all(|sample| decodes(sample)), "{name}");
    }
}

fn row_decodes(bytes: &[u8]) -> bool {
    trefoil::codec::EncodedRow::checked(bytes.to_vec().into()).is_ok()
}

fn set_decodes(bytes: &[u8]) -> bool {
    let mut reader = trefoil::codec::varint::Reader::new("set", bytes.to_vec().into());
    trefoil::received::ReceivedSet::decode(&mut reader).is_ok() && reader.end().is_ok()
}

/// For each function there is a target of `cargo fuzz`, and no target without one.
#[test]
fn targets_and_twins_are_the_same() {
    let fuzz = root().join("tests/fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let names: BTreeSet<String> = targets::TARGETS.iter().map(|(name, ..)| name.to_string()).collect();
    let files: BTreeSet<String> = fs::read_dir(fuzz.join("fuzz_targets"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(files, names);
    for name in &names {
        let target = fs::read_to_string(fuzz.join("fuzz_targets").join(format!("{name}.rs"))).unwrap();
        assert!(target.contains(&format!("targets::{name}(data)")), "{name}");
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is not in Cargo.toml");
    }
}

/// Every source with a decoder of foreign bytes is named by a target.
#[test]
fn every_decoder_has_a_target() {
    let named: BTreeSet<&str> = targets::TARGETS.iter().flat_map(|(_, files, _)| files.iter().copied()).collect();
    for file in &named {
        assert!(root().join(file).exists(), "{file} is named by a target, and there is none");
    }
    let mut sources = Vec::new();
    for folder in ["src", "proto/src/convert"] {
        walk(&root().join(folder), &mut sources);
    }
    let mut missing = Vec::new();
    let words = ["fn decode", "fn read_type(", "Reader::new(\"", "fn from_bytes("];
    for path in sources {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let decodes = words.iter().any(|word| text.contains(word));
        let is_one = named.contains(name.as_str()) || ELSEWHERE.contains(&name.as_str());
        if decodes && !is_one {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "decoders that no target in tests/fuzz/targets.rs names: {missing:?}");
}

/// Sources that only call decoders of others, or are the reader itself that all of them use.
const ELSEWHERE: [&str; 3] = ["src/codec/varint.rs", "src/coordinator/assemble.rs", "proto/src/convert/answer.rs"];

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            walk(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}
