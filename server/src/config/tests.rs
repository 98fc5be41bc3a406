//! What files say, and what is said of files that are wrong.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::path::Path;

/// The least that a file has to say.
const LEAST: &str = r#"
[cluster]
name = "c"
initial_members = [{ address = "127.0.0.1:9441", region = "r", zone = "a" }]
[node]
data_dir = "data"
region = "r"
zone = "a"
"#;

fn parse(text: &str) -> Result<Config, Problem> {
    Config::parse(text, Path::new("/base"))
}

fn message(text: &str) -> String {
    parse(text).expect_err("the file is wrong").to_string()
}

#[test]
fn the_least_file_has_the_defaults() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.cluster.vnodes, VnodeBits::DEFAULT);
    assert_eq!(config.node.data_dir, Path::new("/base/data"));
    assert_eq!(config.node.client_address.to_string(), "127.0.0.1:9440");
    assert_eq!(config.node.http_address.to_string(), "127.0.0.1:9442");
    assert!(config.node.runtimes >= 1);
    assert_eq!(config.limits.mutation_mib_max, 16);
    assert_eq!(config.log, LogConfig { level: tracing::Level::INFO, format: LogFormat::Text });
    assert_eq!(config.store().segment_bytes, 64 << 20);
}

#[test]
fn what_is_written_reads_back() {
    let mut config = parse(LEAST).unwrap();
    config.node.data_dir = PathBuf::from("/a \"b\" \\ c");
    config.cluster.vnodes = VnodeBits::new(3).unwrap();
    config.storage = StorageConfig { segment_mib: 48, log_kept_mib: 7, memtable_mib: 33, cache_mib: 9 };
    config.snapshots = SnapshotsConfig { before_drop: false, dropped_kept_days: 3, dropped_kept_most: 4 };
    config.compaction = CompactionConfig { threads: 3, mib_per_s: 5 };
    config.hints = HintsConfig { mib_per_node: 2, window_s: 3, kept_s: 4, mib_per_s: 5, queue_mib: 6 };
    config.scrub = ScrubConfig { every_days: 0, mib_per_s: 6 };
    config.limits.page_kib_default = 77;
    config.guardrails.tombstones_max = 7;
    config.log = LogConfig { level: tracing::Level::DEBUG, format: LogFormat::Json };
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
}

/// Each line is put into its section of a file that is right without it.
#[test]
fn a_wrong_setting_is_named() {
    let cases: &[(&str, &str, &str)] = &[
        ("storage", "segment_mib = 47", "storage.segment_mib = 47: must be a whole number from 48 to 1024"),
        ("storage", "segment_mib = \"64\"", "storage.segment_mib = \"64\": must be a whole number from 48 to 1024"),
        ("storage", "cache_mib = -1", "storage.cache_mib = -1: must be a whole number from 8 to 1048576"),
        ("storage", "memtable_mib = 1.5", "storage.memtable_mib = 1.5: must be a whole number from 8 to 1048576"),
        (
            "storage",
            "memtables_mib = 64",
            "storage.memtables_mib is not a setting; storage has segment_mib, log_kept_mib, memtable_mib, cache_mib",
        ),
        ("snapshots", "before_drop = 1", "snapshots.before_drop = 1: must be true or false"),
        (
            "limits",
            "timeout_default_ms = 61000",
            "limits.timeout_default_ms = 61000: must not be more than timeout_max_ms = 60000",
        ),
        ("limits", "mutation_mib_max = 17", "limits.mutation_mib_max = 17: must be a whole number from 1 to 16"),
        (
            "guardrails",
            "value_kib_max = 8193",
            "guardrails.value_kib_max = 8193: must be a whole number from 1 to 8192",
        ),
        ("log", "level = \"loud\"", "log.level = \"loud\": must be one of error, warn, info, debug, trace"),
        ("log", "format = 1", "log.format = 1: must be one of text, json"),
        (
            "tls",
            "key = \"k\"",
            "tls is not a setting; the file has cluster, node, storage, compaction, scrub, replication, snapshots, hints, backup, limits, guardrails, log",
        ),
    ];
    for (section, line, expected) in cases {
        assert_eq!(message(&format!("{LEAST}\n[{section}]\n{line}\n")), *expected);
    }
}

/// Each pair is a part of the least file and what stands there instead.
#[test]
fn a_wrong_beginning_is_named() {
    let cases: &[(&str, &str, &str)] = &[
        ("name = \"c\"", "", "cluster.name is missing: it must be a name of 1 to 64 letters, digits, '-', '_' and '.'"),
        ("name = \"c\"", "name = \"a b\"", "cluster.name = \"a b\": must be a name of 1 to 64 letters"),
        (
            "name = \"c\"",
            "name = \"c\"\nvnodes = 1000",
            "cluster.vnodes = 1000: must be a power of two from 1 to 65536",
        ),
        ("name = \"c\"", "name = \"c\"\nvnodes = 131072", "cluster.vnodes = 131072: must be a power of two"),
        ("name = \"c\"", "name = c", "line 3 is not TOML: "),
        (
            "[{ address = \"127.0.0.1:9441\", region = \"r\", zone = \"a\" }]",
            "[]",
            "cluster.initial_members = []: must be a list of { address = ",
        ),
        ("[{ address = \"127.0.0.1:9441\",", "[3, {", "cluster.initial_members[0] = 3: a list of { address = "),
        (
            "127.0.0.1:9441",
            "node-1:9441",
            "cluster.initial_members[0].address = \"node-1:9441\": must be an IP address",
        ),
        (
            "127.0.0.1:9441",
            "127.0.0.1:0",
            "cluster.initial_members[0].address = \"127.0.0.1:0\": must be an IP address",
        ),
        (
            "127.0.0.1:9441",
            "10.0.0.1:9441",
            "cluster.initial_members[0].address = \"10.0.0.1:9441\": must be a loopback address, as 127.0.0.1: there is \
             no TLS yet",
        ),
        ("zone = \"a\" }", "zone = \"a\", rack = 1 }", "cluster.initial_members[0].rack is not a setting"),
        (
            "zone = \"a\" }]",
            "zone = \"a\" }, { address = \"127.0.0.1:9441\", region = \"r\", zone = \"b\" }]",
            "cluster.initial_members[1].address = \"127.0.0.1:9441\": is listed twice",
        ),
        ("data_dir = \"data\"", "", "node.data_dir is missing: it must be the directory for the node's data"),
        (
            "zone = \"a\"\n",
            "zone = \"a\"\nclient_address = \"0.0.0.0:9440\"",
            "node.client_address = \"0.0.0.0:9440\": must be a loopback address",
        ),
        (
            "zone = \"a\"\n",
            "zone = \"a\"\nhttp_address = \"127.0.0.1:9440\"",
            "node.http_address = \"127.0.0.1:9440\": client_address, peer_address and http_address must be three",
        ),
        ("[node]", "[[node]]", "node = [{ data_dir = \"data\", region = \"r\", zone = \"a\" }]: is a section"),
    ];
    for (part, instead, expected) in cases {
        assert!(LEAST.contains(part), "{part}");
        let found = message(&LEAST.replace(part, instead));
        assert!(found.starts_with(expected), "{instead}: {found}");
    }
}

#[test]
fn the_file_is_named() {
    let missing = Config::load(Path::new("/does/not/exist.toml")).unwrap_err().to_string();
    assert!(missing.starts_with("/does/not/exist.toml: cannot be read: "), "{missing}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.toml");
    std::fs::write(&file, LEAST.replace("zone = \"a\"\n", "zones = \"a\"\n")).unwrap();
    let wrong = Config::load(&file).unwrap_err().to_string();
    assert!(wrong.starts_with(&format!("{}: node.zone is missing", file.display())), "{wrong}");
    std::fs::write(&file, LEAST).unwrap();
    assert_eq!(Config::load(&file).unwrap().node.data_dir, directory.path().join("data"));
}

/// The page for operators shows every setting once; it is printed here, so that it cannot differ.
#[test]
fn the_page_for_operators_shows_this_file() {
    let page = include_str!("../../../docs/operations.md");
    let member = |index: u16, zone: &str| MemberConfig {
        address: ([127, 0, 0, 1], 9441 + 10 * index).into(),
        zone: Zone { region: "local".to_owned(), name: zone.to_owned() },
    };
    let cluster = ClusterConfig {
        name: "example".to_owned(),
        vnodes: VnodeBits::DEFAULT,
        initial_members: vec![member(0, "a"), member(1, "b"), member(2, "c")],
    };
    let node = NodeConfig {
        data_dir: PathBuf::from("data"),
        zone: member(0, "a").zone,
        client_address: ([127, 0, 0, 1], 9440).into(),
        peer_address: ([127, 0, 0, 1], 9441).into(),
        http_address: ([127, 0, 0, 1], 9442).into(),
        runtimes: 1,
    };
    let text = Config::of_member(cluster, node).to_toml();
    assert!(page.contains(&format!("```toml\n{text}```\n")), "docs/operations.md must show this:\n{text}");
}
