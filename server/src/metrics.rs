//! Every metric of a node, named once.
//!
//! What happens is counted where it happens, through handles that are made once; what *is* (bytes held, peers alive) is
//! looked at when `/metrics` is asked.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, LazyLock, OnceLock};

use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use parking_lot::Mutex;
use tonic::Code;
use trefoil::liveness::State;
use trefoil::metadata::ClusterState;
use trefoil::model::ReadCost;
use trefoil::ring::NodeState;
use trefoil::store::{CompactionStatus, ScrubStatus};

use crate::clock;
use crate::coordinate::{Guardrail, Kind, Shared};
use crate::hints::{Hints, TargetStatus};
use crate::service::compaction::table_name;

mod backup;
mod replication;

const REQUESTS: &str = "trefoil_requests_total";
const REQUEST_SECONDS: &str = "trefoil_request_seconds";
const READ_REPAIRS: &str = "trefoil_read_repair_mutations_total";
const READ_DIFFERS: &str = "trefoil_reads_differing_total";
const READ_SPECULATED: &str = "trefoil_reads_speculated_total";
const READ_SPECULATION_WON: &str = "trefoil_reads_speculation_won_total";
const GUARDRAIL_WARNINGS: &str = "trefoil_guardrail_warnings_total";
const LARGE_PARTITIONS: &str = "trefoil_large_partitions_total";
const GUARDRAIL_REFUSALS: &str = "trefoil_guardrail_refusals_total";
const READ_SSTABLES: &str = "trefoil_read_sstables";
const READ_BLOCKS: &str = "trefoil_read_blocks";
const READ_ROWS: &str = "trefoil_read_rows";
const READ_TOMBSTONES: &str = "trefoil_read_tombstones";
const READ_QUEUE: &str = "trefoil_read_queue";
const REQUESTS_IN_FLIGHT: &str = "trefoil_requests_in_flight";
const REQUEST_BYTES_IN_FLIGHT: &str = "trefoil_request_bytes_in_flight";
const LOG_QUEUE: &str = "trefoil_log_queue_records";
const LOG_BYTES: &str = "trefoil_log_bytes";
const LOG_KEPT_BYTES: &str = "trefoil_log_kept_bytes";
const LOG_UNARCHIVED_BYTES: &str = "trefoil_log_unarchived_bytes";
const LOG_UNARCHIVED_LOST: &str = "trefoil_log_unarchived_lost";
const MEMTABLE_BYTES: &str = "trefoil_memtable_bytes";
const MEMTABLES_FROZEN: &str = "trefoil_memtables_frozen";
const FLUSHES: &str = "trefoil_flushes_total";
const COMPACTIONS: &str = "trefoil_compactions_total";
const COMPACTIONS_RUNNING: &str = "trefoil_compactions_running";
const COMPACTION_BACKLOG_BYTES: &str = "trefoil_compaction_backlog_bytes";
const COMPACTION_BACKLOG_FILES: &str = "trefoil_compaction_backlog_files";
const COMPACTION_BYTES: &str = "trefoil_compaction_running_bytes";
const COMPACTION_BYTES_READ: &str = "trefoil_compaction_running_bytes_read";
const SCRUBBED_FILES: &str = "trefoil_scrub_files_total";
const SCRUBBED_BYTES: &str = "trefoil_scrub_bytes_total";
const SCRUB_DAMAGED: &str = "trefoil_scrub_damaged_total";
const SCRUB_WAITING_FILES: &str = "trefoil_scrub_waiting_files";
const SCRUB_WAITING_BYTES: &str = "trefoil_scrub_waiting_bytes";
const TABLE_SSTABLES: &str = "trefoil_table_sstables";
const TABLE_SSTABLE_BYTES: &str = "trefoil_table_sstable_bytes";
const TABLE_READ_AMPLIFICATION: &str = "trefoil_table_read_amplification";
const TABLE_WRITE_AMPLIFICATION: &str = "trefoil_table_write_amplification";
const TABLE_SPACE_AMPLIFICATION: &str = "trefoil_table_space_amplification";
const SSTABLES: &str = "trefoil_sstables";
const SSTABLE_BYTES: &str = "trefoil_sstable_bytes";
const QUARANTINED: &str = "trefoil_sstables_quarantined";
const LOG_FAILED: &str = "trefoil_log_failed";
const STORAGE_FAILED: &str = "trefoil_storage_failed";
const SNAPSHOTS: &str = "trefoil_snapshots";
const SNAPSHOT_ONLY_BYTES: &str = "trefoil_snapshot_only_bytes";
const TABLES_LEAVING: &str = "trefoil_tables_leaving";
const HINT_BYTES: &str = "trefoil_hint_bytes";
const HINT_OLDEST_SECONDS: &str = "trefoil_hint_oldest_seconds";
const HINT_FILES_DAMAGED: &str = "trefoil_hint_files_damaged";
const HINTS_WRITTEN: &str = "trefoil_hints_written_total";
const HINTS_ENDED: &str = "trefoil_hints_ended_total";
const HINTS_REFUSED: &str = "trefoil_hints_refused_total";
const CACHE_BYTES: &str = "trefoil_cache_bytes";
const CACHE_HITS: &str = "trefoil_cache_hits_total";
const CACHE_MISSES: &str = "trefoil_cache_misses_total";
const NODES: &str = "trefoil_nodes";
const NODES_ALIVE: &str = "trefoil_nodes_alive";
const PEER_ALIVE: &str = "trefoil_peer_alive";
const PEER_PHI: &str = "trefoil_peer_phi";
const PEER_ROUND_TRIP_SECONDS: &str = "trefoil_peer_round_trip_seconds";
const PEER_CLOCK_AHEAD_SECONDS: &str = "trefoil_peer_clock_ahead_seconds";
const CLOCK_OFF_SECONDS: &str = "trefoil_clock_off_seconds";
const EPOCH: &str = "trefoil_metadata_epoch";
const GENERATION: &str = "trefoil_metadata_generation";
const UPTIME_SECONDS: &str = "trefoil_uptime_seconds";
const BUILD: &str = "trefoil_build_info";

/// Upper bounds of the latency histogram, in seconds.
const SECONDS: [f64; 18] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// gRPC codes have the numbers from 0 to 16.
const CODES: usize = 17;

static REQUEST_METRICS: LazyLock<Vec<OfKind>> =
    LazyLock::new(|| [Kind::Mutate, Kind::Batch, Kind::Read, Kind::Increment].into_iter().map(OfKind::new).collect());

/// Upper bounds of the histograms of what reads touch.
const COUNTS: [f64; 14] =
    [0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0];

static GUARDRAIL_METRICS: LazyLock<Vec<(Counter, Counter)>> = LazyLock::new(|| {
    let one = |guardrail: Guardrail| {
        let name = guardrail.name();
        (counter!(GUARDRAIL_WARNINGS, "guardrail" => name), counter!(GUARDRAIL_REFUSALS, "guardrail" => name))
    };
    Guardrail::ALL.into_iter().map(one).collect()
});

static READ_COST_METRICS: LazyLock<[Histogram; 4]> =
    LazyLock::new(|| [READ_SSTABLES, READ_BLOCKS, READ_ROWS, READ_TOMBSTONES].map(|name| histogram!(name)));

static READ_REPAIR_METRIC: LazyLock<Counter> = LazyLock::new(|| counter!(READ_REPAIRS));

static READ_ROUND_METRICS: LazyLock<[Counter; 3]> =
    LazyLock::new(|| [READ_DIFFERS, READ_SPECULATED, READ_SPECULATION_WON].map(|name| counter!(name)));

/// The metrics of one kind of request.
struct OfKind {
    outcomes: Vec<Counter>,
    seconds: Histogram,
}

impl OfKind {
    fn new(kind: Kind) -> OfKind {
        let outcome = |code| {
            let outcome = Code::from_i32(code as i32);
            counter!(REQUESTS, "kind" => kind.name(), "outcome" => outcome_name(outcome))
        };
        OfKind {
            outcomes: (0..CODES).map(outcome).collect(),
            seconds: histogram!(REQUEST_SECONDS, "kind" => kind.name()),
        }
    }
}

/// A request of a client was answered.
pub fn request(kind: Kind, code: Code, elapsed_us: u64) {
    let metrics = &REQUEST_METRICS[kind as usize];
    metrics.outcomes[code as usize].increment(1);
    metrics.seconds.record(elapsed_us as f64 / 1e6);
}

/// A request was near a limit.
pub fn guardrail_warning(guardrail: Guardrail) {
    GUARDRAIL_METRICS[guardrail as usize].0.increment(1);
}

/// A request was beyond a limit.
pub fn guardrail_refusal(guardrail: Guardrail) {
    GUARDRAIL_METRICS[guardrail as usize].1.increment(1);
}

/// A read is done that has cost so much.
pub fn read_cost(cost: &ReadCost) {
    let numbers = [cost.sstables_read, cost.blocks_cached + cost.blocks_read, cost.rows, cost.tombstones];
    for (histogram, number) in READ_COST_METRICS.iter().zip(numbers) {
        histogram.record(number as f64);
    }
}

/// Replicas differed and mutations were written back.
pub fn read_repair(mutations: usize) {
    READ_REPAIR_METRIC.increment(mutations as u64);
}

/// Answers of replicas differed: the pages of all were asked for.
pub fn read_differs() {
    READ_ROUND_METRICS[0].increment(1);
}

/// A read asked one replica more, since others were late.
pub fn read_speculated() {
    READ_ROUND_METRICS[1].increment(1);
}

/// That one answered before one that was late.
pub fn read_speculation_won() {
    READ_ROUND_METRICS[2].increment(1);
}

/// Begins to count, for this process: to be called before anything is counted. Fails if something else counts already.
pub fn install() -> io::Result<PrometheusHandle> {
    let mut builder = PrometheusBuilder::new().set_buckets(&SECONDS).map_err(io::Error::other)?;
    for name in [READ_SSTABLES, READ_BLOCKS, READ_ROWS, READ_TOMBSTONES] {
        let of_counts = Matcher::Full(name.to_owned());
        builder = builder.set_buckets_for_metric(of_counts, &COUNTS).map_err(io::Error::other)?;
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(io::Error::other)?;
    describe();
    // Counters that stand at 0 are shown from the first moment on.
    LazyLock::force(&REQUEST_METRICS);
    LazyLock::force(&READ_REPAIR_METRIC);
    LazyLock::force(&READ_ROUND_METRICS);
    LazyLock::force(&GUARDRAIL_METRICS);
    LazyLock::force(&READ_COST_METRICS);
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

/// The text of `/metrics`: what was counted, and what `node`, once it stands, is.
pub fn render(handle: &PrometheusHandle, node: &OnceLock<Arc<Shared>>) -> String {
    gauge!(UPTIME_SECONDS).set(clock::now().0 as f64 / 1e6);
    if let Some(shared) = node.get() {
        look_at(shared);
    }
    handle.render()
}

fn look_at(shared: &Shared) {
    replication::look_at(&shared.replication);
    backup::look_at(shared.archive.as_deref());
    gauge!(REQUESTS_IN_FLIGHT).set(shared.admission.requests() as f64);
    gauge!(REQUEST_BYTES_IN_FLIGHT).set(shared.admission.bytes() as f64);
    gauge!(READ_QUEUE).set(shared.replica.queued_reads() as f64);
    gauge!(LOG_QUEUE).set(shared.replica.queued_writes() as f64);
    let store = shared.replica.store().status();
    gauge!(LOG_BYTES).set(store.log_bytes as f64);
    gauge!(LOG_KEPT_BYTES).set(store.log_kept_bytes as f64);
    gauge!(LOG_UNARCHIVED_BYTES).set(store.log_unarchived_bytes as f64);
    gauge!(LOG_UNARCHIVED_LOST).set(store.log_unarchived_lost as f64);
    gauge!(MEMTABLE_BYTES).set(store.memtable_bytes as f64);
    gauge!(MEMTABLES_FROZEN).set(store.memtables_frozen as f64);
    gauge!(SSTABLES).set(store.sstables as f64);
    gauge!(SSTABLE_BYTES).set(store.sstable_bytes as f64);
    gauge!(QUARANTINED).set(store.sstables_quarantined as f64);
    gauge!(LOG_FAILED).set(if shared.replica.store().log_failure().is_some() { 1.0 } else { 0.0 });
    gauge!(STORAGE_FAILED).set(if shared.storage_failure().is_some() { 1.0 } else { 0.0 });
    gauge!(SNAPSHOTS).set(store.snapshots as f64);
    gauge!(SNAPSHOT_ONLY_BYTES).set(store.snapshot_only_bytes as f64);
    gauge!(TABLES_LEAVING).set(store.tables_leaving as f64);
    gauge!(CACHE_BYTES).set(store.cache_bytes as f64);
    counter!(CACHE_HITS).absolute(store.cache_hits);
    counter!(CACHE_MISSES).absolute(store.cache_misses);
    counter!(FLUSHES).absolute(store.flushes);
    counter!(COMPACTIONS).absolute(store.compactions);
    counter!(LARGE_PARTITIONS).absolute(store.large_partitions);
    look_at_hints(&shared.hints);
    let state = shared.cluster.load();
    look_at_compaction(&state, &shared.replica.store().compaction_status(clock::wall_us().div_euclid(1_000_000)));
    look_at_scrub(&shared.replica.scrub_status());
    let nodes = state.ring().nodes().filter(|node| node.state != NodeState::Gone);
    gauge!(NODES).set(nodes.count() as f64);
    gauge!(NODES_ALIVE).set(shared.peers.alive().len() as f64);
    gauge!(CLOCK_OFF_SECONDS).set(shared.peers.own_clock_off().unwrap_or(0) as f64 / 1e6);
    look_at_peers(shared);
    gauge!(EPOCH).set(state.epoch().index as f64);
    gauge!(GENERATION).set(f64::from(state.epoch().generation));
}

fn look_at_hints(hints: &Hints) {
    let told = hints.status();
    let sum = |of: fn(&TargetStatus) -> u64| told.values().map(of).sum::<u64>();
    gauge!(HINT_BYTES).set(sum(|status| status.pending_bytes) as f64);
    gauge!(HINT_OLDEST_SECONDS).set(told.values().map(TargetStatus::oldest_s).max().unwrap_or(0) as f64);
    gauge!(HINT_FILES_DAMAGED).set(sum(|status| status.damaged_files) as f64);
    counter!(HINTS_WRITTEN).absolute(sum(|status| status.written));
    let ended = [
        ("delivered", sum(|status| status.delivered)),
        ("expired", sum(|status| status.expired)),
        ("too_late", sum(|status| status.too_late)),
        ("unacceptable", sum(|status| status.unacceptable)),
    ];
    for (how, count) in ended {
        counter!(HINTS_ENDED, "how" => how).absolute(count);
    }
    let refused = [
        ("queue", hints.refused_queue()),
        ("bytes", sum(|status| status.refused_bytes)),
        ("age", sum(|status| status.refused_age)),
        ("disk", sum(|status| status.refused_disk)),
    ];
    for (bound, count) in refused {
        counter!(HINTS_REFUSED, "bound" => bound).absolute(count);
    }
}

fn describe_hints() {
    describe_gauge!(HINT_BYTES, Unit::Bytes, "Hints kept for other nodes and not acknowledged");
    describe_gauge!(HINT_OLDEST_SECONDS, Unit::Seconds, "Age of the oldest of them");
    describe_gauge!(HINT_FILES_DAMAGED, "Files of hints that do not read and were set aside");
    describe_counter!(HINTS_WRITTEN, "Hints written");
    describe_counter!(HINTS_ENDED, "Hints that are not kept any more, by how they ended");
    describe_counter!(HINTS_REFUSED, "Writes that a node has missed and that became no hint, by the bound they met");
}

fn look_at_peers(shared: &Shared) {
    for view in shared.peers.views() {
        let labels = [("node", view.node.0.to_string())];
        gauge!(PEER_ALIVE, &labels).set(if view.state == State::Alive { 1.0 } else { 0.0 });
        gauge!(PEER_PHI, &labels).set(view.phi);
        gauge!(PEER_ROUND_TRIP_SECONDS, &labels).set(view.round_trip_us.unwrap_or(0) as f64 / 1e6);
        gauge!(PEER_CLOCK_AHEAD_SECONDS, &labels).set(view.ahead_us.unwrap_or(0) as f64 / 1e6);
    }
}

fn look_at_scrub(status: &ScrubStatus) {
    counter!(SCRUBBED_FILES).absolute(status.files);
    counter!(SCRUBBED_BYTES).absolute(status.bytes);
    counter!(SCRUB_DAMAGED).absolute(status.damaged);
    gauge!(SCRUB_WAITING_FILES).set(status.waiting_files as f64);
    gauge!(SCRUB_WAITING_BYTES).set(status.waiting_bytes as f64);
}

/// The tables that were shown last: those that are gone are shown as 0, since a gauge stays until it is set.
static TABLES_SHOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn look_at_compaction(state: &ClusterState, status: &CompactionStatus) {
    gauge!(COMPACTIONS_RUNNING).set(status.running.len() as f64);
    gauge!(COMPACTION_BACKLOG_BYTES).set(status.backlog_bytes() as f64);
    gauge!(COMPACTION_BACKLOG_FILES).set(status.backlog_files() as f64);
    gauge!(COMPACTION_BYTES).set(status.running.iter().map(|running| running.bytes).sum::<u64>() as f64);
    gauge!(COMPACTION_BYTES_READ).set(status.running.iter().map(|running| running.bytes_read).sum::<u64>() as f64);
    let set = |table: &str, numbers: [f64; 5]| {
        let names = [
            TABLE_SSTABLES,
            TABLE_SSTABLE_BYTES,
            TABLE_READ_AMPLIFICATION,
            TABLE_WRITE_AMPLIFICATION,
            TABLE_SPACE_AMPLIFICATION,
        ];
        for (name, number) in names.into_iter().zip(numbers) {
            gauge!(name, "table" => table.to_owned()).set(number);
        }
    };
    let mut shown = TABLES_SHOWN.lock();
    let mut present = BTreeSet::new();
    for files in &status.tables {
        let Some((keyspace, table)) = table_name(state, files.table) else { continue };
        let name = format!("{keyspace}.{table}");
        let counts = [files.files as f64, files.bytes as f64, files.read_amplification as f64];
        set(&name, [counts[0], counts[1], counts[2], files.write_amplification, files.space_amplification]);
        present.insert(name);
    }
    shown.difference(&present).for_each(|gone| set(gone, [0.0; 5]));
    *shown = present;
}

fn describe_compaction() {
    describe_counter!(SCRUBBED_FILES, "Files read again, to see whether they are whole");
    describe_counter!(SCRUBBED_BYTES, Unit::Bytes, "Bytes read for that");
    describe_counter!(SCRUB_DAMAGED, "Files found damaged so");
    describe_gauge!(SCRUB_WAITING_FILES, "Files whose turn to be read again has come");
    describe_gauge!(SCRUB_WAITING_BYTES, Unit::Bytes, "Files whose turn to be read again has come");
    describe_gauge!(COMPACTIONS_RUNNING, "Compactions that are being carried out");
    describe_gauge!(COMPACTION_BACKLOG_BYTES, Unit::Bytes, "Files to be compacted, as far as they are not read yet");
    describe_gauge!(COMPACTION_BACKLOG_FILES, "Files that wait to be compacted or are being compacted");
    describe_gauge!(COMPACTION_BYTES, Unit::Bytes, "Files that are being compacted");
    describe_gauge!(COMPACTION_BYTES_READ, Unit::Bytes, "Of these, what was read");
    describe_gauge!(TABLE_SSTABLES, "SSTables of a table");
    describe_gauge!(TABLE_SSTABLE_BYTES, Unit::Bytes, "SSTables of a table");
    describe_gauge!(TABLE_READ_AMPLIFICATION, "Files that a read of one partition may have to open, at most");
    describe_gauge!(TABLE_WRITE_AMPLIFICATION, "Bytes written to files since the start for each byte flushed");
    describe_gauge!(TABLE_SPACE_AMPLIFICATION, "Bytes of files for each byte if no row stood in two of them");
}

fn describe() {
    replication::describe();
    backup::describe();
    describe_compaction();
    describe_hints();
    describe_counter!(REQUESTS, "Requests of clients that were answered, by kind and gRPC code");
    describe_histogram!(REQUEST_SECONDS, Unit::Seconds, "Time from taking a request to its answer, by kind");
    describe_counter!(READ_REPAIRS, "Mutations written back because replicas differed");
    describe_counter!(READ_DIFFERS, "Read commands of which replicas gave different answers");
    describe_counter!(READ_SPECULATED, "Read commands that asked one replica more since others were late");
    describe_counter!(READ_SPECULATION_WON, "Of these, those where it answered before one that was late");
    describe_counter!(GUARDRAIL_WARNINGS, "Requests that were done although they are near a limit");
    describe_counter!(GUARDRAIL_REFUSALS, "Requests that were refused because they are beyond a limit");
    describe_counter!(
        LARGE_PARTITIONS,
        "Partitions above guardrails.partition_mib_warn or partition_rows_warn in a file written"
    );
    describe_histogram!(READ_SSTABLES, "SSTables that a page was looked for in, on all replicas");
    describe_histogram!(READ_BLOCKS, "Blocks that a page has touched, cached ones too");
    describe_histogram!(READ_ROWS, "Versions of rows that a page has touched");
    describe_histogram!(READ_TOMBSTONES, "Tombstones that a page has met");
    describe_gauge!(READ_QUEUE, "Reads that wait for a thread that may go to the disk");
    describe_gauge!(REQUESTS_IN_FLIGHT, "Requests of clients under way");
    describe_gauge!(REQUEST_BYTES_IN_FLIGHT, Unit::Bytes, "Their size");
    describe_gauge!(LOG_QUEUE, "Records that wait for the commit log");
    describe_gauge!(LOG_BYTES, Unit::Bytes, "Commit log that a start would replay");
    describe_gauge!(LOG_KEPT_BYTES, Unit::Bytes, "Commit log that is kept only for other replicas or the archive");
    describe_gauge!(LOG_UNARCHIVED_BYTES, Unit::Bytes, "Commit log that is not archived yet");
    describe_gauge!(LOG_UNARCHIVED_LOST, "Segments of the log that went before they were archived");
    describe_gauge!(MEMTABLE_BYTES, Unit::Bytes, "Memory held by memtables");
    describe_gauge!(MEMTABLES_FROZEN, "Memtables that wait for their flush");
    describe_counter!(FLUSHES, "Memtables written to files");
    describe_counter!(COMPACTIONS, "Compactions finished");
    describe_gauge!(SSTABLES, "Live SSTables");
    describe_gauge!(SSTABLE_BYTES, Unit::Bytes, "Their size");
    describe_gauge!(QUARANTINED, "Files that are damaged or missing, and answer nothing");
    describe_gauge!(LOG_FAILED, "1 if the commit log takes no more writes until the node is started again");
    describe_gauge!(STORAGE_FAILED, "1 while files cannot be written: a full disk, a failing one");
    describe_gauge!(SNAPSHOTS, "Snapshots, damaged ones included");
    describe_gauge!(SNAPSHOT_ONLY_BYTES, Unit::Bytes, "Files that only snapshots hold");
    describe_gauge!(TABLES_LEAVING, "Tables that are gone and whose data has not followed yet");
    describe_gauge!(CACHE_BYTES, Unit::Bytes, "Decoded blocks held");
    describe_counter!(CACHE_HITS, "Reads of blocks that were held");
    describe_counter!(CACHE_MISSES, "Reads of blocks that had to be read from files");
    describe_gauge!(NODES, "Nodes of the cluster");
    describe_gauge!(NODES_ALIVE, "Nodes seen alive, this one included");
    describe_gauge!(PEER_ALIVE, "1 if this node sees the other one alive");
    describe_gauge!(PEER_PHI, "The doubt that the other node is alive, as a power of ten");
    describe_gauge!(PEER_ROUND_TRIP_SECONDS, Unit::Seconds, "The last round trip to the other node");
    describe_gauge!(PEER_CLOCK_AHEAD_SECONDS, Unit::Seconds, "How far the other node's clock is ahead of this one's");
    describe_gauge!(
        CLOCK_OFF_SECONDS,
        Unit::Seconds,
        "How far a majority says that this node's clock is ahead; 0: it is right"
    );
    describe_gauge!(EPOCH, "Place in the metadata log of the last entry applied");
    describe_gauge!(GENERATION, "How often the metadata log was recovered by force");
    describe_gauge!(UPTIME_SECONDS, Unit::Seconds, "Time since the start of the process");
    describe_gauge!(BUILD, "1, with the release as a label");
}

/// A gRPC code as its specification writes it.
fn outcome_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
