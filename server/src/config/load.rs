//! From the file to a [`Config`].

use std::path::{Path, PathBuf};

use toml::{Table, Value};
use tracing::Level;
use trefoil::model::VnodeBits;
use trefoil::ring::Zone;

use super::backup;
use super::section::Section;
use super::settings;
use super::settings::{
    CACHE_MIB, DROPPED_KEPT_DAYS, DROPPED_KEPT_MOST, LOG_KEPT_MIB, MEMTABLE_MIB, MUTATION_MIB_MAX, PAGE_KIB_DEFAULT,
    PAGE_ROWS_DEFAULT, REQUEST_MIB_IN_FLIGHT, REQUESTS_IN_FLIGHT, SEGMENT_MIB, TIMEOUT_DEFAULT_MS, TIMEOUT_MAX_MS,
    addresses, runtimes,
};
use super::{
    ClusterConfig, CompactionConfig, Config, ConfigError, GuardrailsConfig, HintsConfig, LimitsConfig, LogConfig,
    LogFormat, MemberConfig, NodeConfig, Problem, ReplicationConfig, ScrubConfig, SnapshotsConfig, StorageConfig,
};

/// Longest name of a cluster, region or zone.
const NAME_CHARS_MAX: usize = 64;

const NAME: &str = "a name of 1 to 64 letters, digits, '-', '_' and '.'";
const MEMBERS: &str = "a list of { address = \"127.0.0.1:9441\", region = \"local\", zone = \"a\" }, one for each node \
                       that the cluster begins with";

impl Config {
    /// Reads and checks a file. A relative `node.data_dir` is taken from the directory of the file.
    pub fn load(file: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(file).map_err(Problem::from);
        let base = file.parent().unwrap_or(Path::new(""));
        let config = text.and_then(|text| Config::parse(&text, base));
        config.map_err(|problem| ConfigError { file: file.to_owned(), problem })
    }

    /// Checks the text of a file; a relative `node.data_dir` is taken from `base`.
    pub fn parse(text: &str, base: &Path) -> Result<Config, Problem> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
            let reason = error.message().lines().collect::<Vec<_>>().join(", ");
            Problem::Syntax { line: before.matches('\n').count() + 1, reason }
        })?;
        let mut root = Section::root(table);
        let config = Config {
            cluster: cluster(root.section("cluster")?)?,
            node: node(root.section("node")?, base)?,
            storage: storage(root.section("storage")?)?,
            compaction: compaction(root.section("compaction")?)?,
            scrub: scrub(root.section("scrub")?)?,
            replication: replication(root.section("replication")?)?,
            snapshots: snapshots(root.section("snapshots")?)?,
            hints: hints(root.section("hints")?)?,
            backup: root.has("backup").then(|| backup::load(root.section("backup")?)).transpose()?,
            limits: limits(root.section("limits")?)?,
            guardrails: guardrails(root.section("guardrails")?)?,
            log: log(root.section("log")?)?,
        };
        root.end()?;
        Ok(config)
    }
}

fn is_name(text: &str) -> bool {
    let possible = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(possible)
}

fn zone(section: &mut Section) -> Result<Zone, Problem> {
    Ok(Zone { region: section.text("region", NAME, is_name)?, name: section.text("zone", NAME, is_name)? })
}

fn cluster(mut section: Section) -> Result<ClusterConfig, Problem> {
    let name = section.text("name", NAME, is_name)?;
    let vnodes = vnodes(&mut section)?;
    let mut initial_members: Vec<MemberConfig> = Vec::new();
    for mut item in section.tables("initial_members", MEMBERS)? {
        let address = item.address("address", None)?;
        if initial_members.iter().any(|member| member.address == address) {
            return Err(item.wrong("address", &Value::String(address.to_string()), "is listed twice".to_owned()));
        }
        initial_members.push(MemberConfig { address, zone: zone(&mut item)? });
        item.end()?;
    }
    if initial_members.is_empty() {
        return Err(section.wrong("initial_members", &Value::Array(Vec::new()), format!("must be {MEMBERS}")));
    }
    section.end()?;
    Ok(ClusterConfig { name, vnodes, initial_members })
}

fn vnodes(section: &mut Section) -> Result<VnodeBits, Problem> {
    let Some(value) = section.take("vnodes") else { return Ok(VnodeBits::DEFAULT) };
    let count = value.as_integer().and_then(|value| u32::try_from(value).ok());
    let count = count.filter(|count| count.is_power_of_two());
    let bits = count.and_then(|count| u8::try_from(count.trailing_zeros()).ok()).and_then(VnodeBits::new);
    bits.ok_or_else(|| {
        section.wrong("vnodes", &value, format!("must be a power of two from 1 to {}", 1u32 << VnodeBits::MAX))
    })
}

fn node(mut section: Section, base: &Path) -> Result<NodeConfig, Problem> {
    let data_dir = section.text("data_dir", "the directory for the node's data", |text| !text.is_empty())?;
    let zone = zone(&mut section)?;
    let [client, peer, http] = addresses();
    let client_address = section.address("client_address", Some(client))?;
    let peer_address = section.address("peer_address", Some(peer))?;
    let http_address = section.address("http_address", Some(http))?;
    for (key, address, others) in [
        ("peer_address", peer_address, [client_address, http_address]),
        ("http_address", http_address, [client_address, peer_address]),
    ] {
        if others.contains(&address) {
            let reason = "client_address, peer_address and http_address must be three different ones".to_owned();
            return Err(section.wrong(key, &Value::String(address.to_string()), reason));
        }
    }
    let runtimes = section.number(&runtimes())? as usize;
    section.end()?;
    let data_dir = base.join(PathBuf::from(data_dir));
    Ok(NodeConfig { data_dir, zone, client_address, peer_address, http_address, runtimes })
}

fn storage(mut section: Section) -> Result<StorageConfig, Problem> {
    let config = StorageConfig {
        segment_mib: section.number(&SEGMENT_MIB)?,
        log_kept_mib: section.number(&LOG_KEPT_MIB)?,
        memtable_mib: section.number(&MEMTABLE_MIB)?,
        cache_mib: section.number(&CACHE_MIB)?,
    };
    section.end()?;
    Ok(config)
}

fn replication(mut section: Section) -> Result<ReplicationConfig, Problem> {
    let config = ReplicationConfig {
        report_ms: section.number(&settings::REPORT_MS)?,
        closed_behind_s: section.number(&settings::CLOSED_BEHIND_S)?,
        purge_after_s: section.number(&settings::PURGE_AFTER_S)?,
        fetch_mib_per_s: section.number(&settings::FETCH_MIB_PER_S)?,
        start_alone: section.flag("start_alone", false)?,
    };
    section.end()?;
    Ok(config)
}

fn compaction(mut section: Section) -> Result<CompactionConfig, Problem> {
    let threads = section.number(&settings::threads())?;
    let mib_per_s = section.number(&settings::MIB_PER_S)?;
    section.end()?;
    Ok(CompactionConfig { threads, mib_per_s })
}

fn scrub(mut section: Section) -> Result<ScrubConfig, Problem> {
    let every_days = section.number(&settings::SCRUB_EVERY_DAYS)?;
    let mib_per_s = section.number(&settings::SCRUB_MIB_PER_S)?;
    section.end()?;
    Ok(ScrubConfig { every_days, mib_per_s })
}

fn snapshots(mut section: Section) -> Result<SnapshotsConfig, Problem> {
    let config = SnapshotsConfig {
        before_drop: section.flag("before_drop", SnapshotsConfig::default().before_drop)?,
        dropped_kept_days: section.number(&DROPPED_KEPT_DAYS)?,
        dropped_kept_most: section.number(&DROPPED_KEPT_MOST)?,
    };
    section.end()?;
    Ok(config)
}

fn hints(mut section: Section) -> Result<HintsConfig, Problem> {
    let config = HintsConfig {
        mib_per_node: section.number(&settings::HINT_MIB_PER_NODE)?,
        window_s: section.number(&settings::HINT_WINDOW_S)?,
        kept_s: section.number(&settings::HINT_KEPT_S)?,
        mib_per_s: section.number(&settings::HINT_MIB_PER_S)?,
        queue_mib: section.number(&settings::HINT_QUEUE_MIB)?,
    };
    section.end()?;
    Ok(config)
}

fn limits(mut section: Section) -> Result<LimitsConfig, Problem> {
    let config = LimitsConfig {
        requests_in_flight: section.number(&REQUESTS_IN_FLIGHT)?,
        request_mib_in_flight: section.number(&REQUEST_MIB_IN_FLIGHT)?,
        timeout_default_ms: section.number(&TIMEOUT_DEFAULT_MS)?,
        timeout_max_ms: section.number(&TIMEOUT_MAX_MS)?,
        page_rows_default: section.number(&PAGE_ROWS_DEFAULT)?,
        page_kib_default: section.number(&PAGE_KIB_DEFAULT)?,
        mutation_mib_max: section.number(&MUTATION_MIB_MAX)?,
    };
    if config.timeout_default_ms > config.timeout_max_ms {
        let value = Value::Integer(config.timeout_default_ms as i64);
        let reason = format!("must not be more than timeout_max_ms = {}", config.timeout_max_ms);
        return Err(section.wrong("timeout_default_ms", &value, reason));
    }
    section.end()?;
    Ok(config)
}

fn guardrails(mut section: Section) -> Result<GuardrailsConfig, Problem> {
    let config = GuardrailsConfig {
        value_kib_warn: section.number(&settings::VALUE_KIB_WARN)?,
        value_kib_max: section.number(&settings::VALUE_KIB_MAX)?,
        row_kib_warn: section.number(&settings::ROW_KIB_WARN)?,
        row_kib_max: section.number(&settings::ROW_KIB_MAX)?,
        key_bytes_warn: section.number(&settings::KEY_BYTES_WARN)?,
        partition_mib_warn: section.number(&settings::PARTITION_MIB_WARN)?,
        partition_rows_warn: section.number(&settings::PARTITION_ROWS_WARN)?,
        tombstones_warn: section.number(&settings::TOMBSTONES_WARN)?,
        tombstones_max: section.number(&settings::TOMBSTONES_MAX)?,
        ranges_max: section.number(&settings::RANGES_MAX)?,
        batch_mutations_warn: section.number(&settings::BATCH_MUTATIONS_WARN)?,
        batch_mutations_max: section.number(&settings::BATCH_MUTATIONS_MAX)?,
        batch_kib_warn: section.number(&settings::BATCH_KIB_WARN)?,
        tables_max: section.number(&settings::TABLES_MAX)?,
        tables_per_keyspace_max: section.number(&settings::TABLES_PER_KEYSPACE_MAX)?,
        columns_max: section.number(&settings::COLUMNS_MAX)?,
    };
    section.end()?;
    Ok(config)
}

fn log(mut section: Section) -> Result<LogConfig, Problem> {
    let levels = [
        ("error", Level::ERROR),
        ("warn", Level::WARN),
        ("info", Level::INFO),
        ("debug", Level::DEBUG),
        ("trace", Level::TRACE),
    ];
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let default = LogConfig::default();
    let config = LogConfig {
        level: section.word("level", &levels, default.level)?,
        format: section.word("format", &formats, default.format)?,
    };
    section.end()?;
    Ok(config)
}
