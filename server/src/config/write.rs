//! From a [`Config`] to the text of a file, with every setting explained. Reading it gives the same [`Config`].

use toml::Value;

use super::backup;
use super::settings::{
    self, CACHE_MIB, DROPPED_KEPT_DAYS, DROPPED_KEPT_MOST, LOG_KEPT_MIB, MEMTABLE_MIB, MUTATION_MIB_MAX, Number,
    PAGE_KIB_DEFAULT, PAGE_ROWS_DEFAULT, REQUEST_MIB_IN_FLIGHT, REQUESTS_IN_FLIGHT, SEGMENT_MIB, TIMEOUT_DEFAULT_MS,
    TIMEOUT_MAX_MS, runtimes,
};
use super::{
    CompactionConfig, Config, GuardrailsConfig, HintsConfig, LimitsConfig, ReplicationConfig, ScrubConfig,
    SnapshotsConfig,
};

impl Config {
    /// The text of a file that says this.
    pub fn to_toml(&self) -> String {
        [
            self.cluster_text(),
            self.node_text(),
            self.storage_text(),
            compaction_text(&self.compaction),
            scrub_text(&self.scrub),
            replication_text(&self.replication),
            snapshots_text(&self.snapshots),
            hints_text(&self.hints),
            self.backup.as_ref().map_or_else(backup::absent_text, backup::text),
            limits_text(&self.limits),
            guardrails_text(&self.guardrails),
            self.log_text(),
        ]
        .join("\n")
    }

    fn cluster_text(&self) -> String {
        let mut text = format!(
            "[cluster]\n\
             # For people.\n\
             name = {}\n\
             # A power of two from 1 to 65536; fixed for ever when the cluster begins; default 1024.\n\
             vnodes = {}\n\
             # The nodes that the cluster begins with, the same list in the same order on each of them;\n\
             # `address` is the peer_address.\n\
             initial_members = [\n",
            quoted(&self.cluster.name),
            self.cluster.vnodes.count()
        );
        for member in &self.cluster.initial_members {
            text += &format!(
                "  {{ address = \"{}\", region = {}, zone = {} }},\n",
                member.address,
                quoted(&member.zone.region),
                quoted(&member.zone.name)
            );
        }
        text + "]\n"
    }

    fn node_text(&self) -> String {
        let node = &self.node;
        format!(
            "[node]\n\
             # Relative to the directory of this file.\n\
             data_dir = {}\n\
             region = {}\n\
             zone = {}\n\
             # Loopback only, since there is no TLS yet. Defaults: ports 9440, 9441 and 9442 of 127.0.0.1.\n\
             client_address = \"{}\"\n\
             peer_address = \"{}\"\n\
             http_address = \"{}\"\n\
             {}",
            quoted(&node.data_dir.to_string_lossy()),
            quoted(&node.zone.region),
            quoted(&node.zone.name),
            node.client_address,
            node.peer_address,
            node.http_address,
            line(&Number { default: 0, ..runtimes() }, node.runtimes as u64),
        )
    }

    fn storage_text(&self) -> String {
        let storage = &self.storage;
        "[storage]\n".to_owned()
            + &line(&SEGMENT_MIB, storage.segment_mib)
            + &line(&LOG_KEPT_MIB, storage.log_kept_mib)
            + &line(&MEMTABLE_MIB, storage.memtable_mib)
            + &line(&CACHE_MIB, storage.cache_mib)
    }

    fn log_text(&self) -> String {
        format!(
            "[log]\n\
             # error, warn, info, debug or trace; default info.\n\
             level = \"{}\"\n\
             # text or json, one line per event, to standard error; default text.\n\
             format = \"{}\"\n",
            self.log.level.as_str().to_ascii_lowercase(),
            self.log.format
        )
    }
}

fn replication_text(replication: &ReplicationConfig) -> String {
    "[replication]\n".to_owned()
        + &line(&settings::REPORT_MS, replication.report_ms)
        + &line(&settings::CLOSED_BEHIND_S, replication.closed_behind_s)
        + &line(&settings::PURGE_AFTER_S, replication.purge_after_s)
        + &line(&settings::FETCH_MIB_PER_S, replication.fetch_mib_per_s)
        + "# true or false; default false: the node starts though no other one answers. Only where none is left for good.\n"
        + &format!("start_alone = {}\n", replication.start_alone)
}

fn compaction_text(compaction: &CompactionConfig) -> String {
    "[compaction]\n".to_owned()
        + &line(&Number { default: 0, ..settings::threads() }, compaction.threads)
        + &line(&settings::MIB_PER_S, compaction.mib_per_s)
}

fn scrub_text(scrub: &ScrubConfig) -> String {
    "[scrub]\n".to_owned()
        + &line(&settings::SCRUB_EVERY_DAYS, scrub.every_days)
        + &line(&settings::SCRUB_MIB_PER_S, scrub.mib_per_s)
}

fn snapshots_text(snapshots: &SnapshotsConfig) -> String {
    format!(
        "[snapshots]\n\
         # true or false; default true: the data of a table that is dropped or truncated is kept in a snapshot first.\n\
         before_drop = {}\n",
        snapshots.before_drop
    ) + &line(&DROPPED_KEPT_DAYS, snapshots.dropped_kept_days)
        + &line(&DROPPED_KEPT_MOST, snapshots.dropped_kept_most)
}

fn hints_text(hints: &HintsConfig) -> String {
    "[hints]\n".to_owned()
        + &line(&settings::HINT_MIB_PER_NODE, hints.mib_per_node)
        + &line(&settings::HINT_WINDOW_S, hints.window_s)
        + &line(&settings::HINT_KEPT_S, hints.kept_s)
        + &line(&settings::HINT_MIB_PER_S, hints.mib_per_s)
        + &line(&settings::HINT_QUEUE_MIB, hints.queue_mib)
}

fn limits_text(limits: &LimitsConfig) -> String {
    "[limits]\n".to_owned()
        + &line(&REQUESTS_IN_FLIGHT, limits.requests_in_flight)
        + &line(&REQUEST_MIB_IN_FLIGHT, limits.request_mib_in_flight)
        + &line(&TIMEOUT_DEFAULT_MS, limits.timeout_default_ms)
        + &line(&TIMEOUT_MAX_MS, limits.timeout_max_ms)
        + &line(&PAGE_ROWS_DEFAULT, limits.page_rows_default)
        + &line(&PAGE_KIB_DEFAULT, limits.page_kib_default)
        + &line(&MUTATION_MIB_MAX, limits.mutation_mib_max)
}

fn guardrails_text(guardrails: &GuardrailsConfig) -> String {
    "[guardrails]\n".to_owned()
        + &line(&settings::VALUE_KIB_WARN, guardrails.value_kib_warn)
        + &line(&settings::VALUE_KIB_MAX, guardrails.value_kib_max)
        + &line(&settings::ROW_KIB_WARN, guardrails.row_kib_warn)
        + &line(&settings::ROW_KIB_MAX, guardrails.row_kib_max)
        + &line(&settings::KEY_BYTES_WARN, guardrails.key_bytes_warn)
        + &line(&settings::PARTITION_MIB_WARN, guardrails.partition_mib_warn)
        + &line(&settings::PARTITION_ROWS_WARN, guardrails.partition_rows_warn)
        + &line(&settings::TOMBSTONES_WARN, guardrails.tombstones_warn)
        + &line(&settings::TOMBSTONES_MAX, guardrails.tombstones_max)
        + &line(&settings::RANGES_MAX, guardrails.ranges_max)
        + &line(&settings::BATCH_MUTATIONS_WARN, guardrails.batch_mutations_warn)
        + &line(&settings::BATCH_MUTATIONS_MAX, guardrails.batch_mutations_max)
        + &line(&settings::BATCH_KIB_WARN, guardrails.batch_kib_warn)
        + &line(&settings::TABLES_MAX, guardrails.tables_max)
        + &line(&settings::TABLES_PER_KEYSPACE_MAX, guardrails.tables_per_keyspace_max)
        + &line(&settings::COLUMNS_MAX, guardrails.columns_max)
}

/// A number with what it means; a default of 0 is one that the meaning tells.
pub(super) fn line(number: &Number, value: u64) -> String {
    let Number { key, min, max, default, about } = number;
    let default = if *default == 0 { String::new() } else { format!("; default {default}") };
    format!("# {min} to {max}{default}: {about}.\n{key} = {value}\n")
}

pub(super) fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
