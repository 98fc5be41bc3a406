//! What goes to the backups.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::backup::Archive;

const RPO_SECONDS: &str = "trefoil_backup_rpo_seconds";
const RPO_MAX_SECONDS: &str = "trefoil_backup_rpo_max_seconds";
const NEWEST_SECONDS: &str = "trefoil_backup_newest_age_seconds";
const FILES_WAITING: &str = "trefoil_backup_files_waiting";
const FILES: &str = "trefoil_backup_files_total";
const FILE_BYTES: &str = "trefoil_backup_file_bytes_total";
const PIECES: &str = "trefoil_backup_log_pieces_total";
const PIECE_BYTES: &str = "trefoil_backup_log_bytes_total";
const GAPS: &str = "trefoil_backup_log_gaps_total";
const FAILURES: &str = "trefoil_backup_failures_total";
const REQUESTS: &str = "trefoil_backup_requests_total";
const REQUEST_FAILURES: &str = "trefoil_backup_request_failures_total";
const REQUEST_RETRIES: &str = "trefoil_backup_request_retries_total";
const REQUEST_BYTES: &str = "trefoil_backup_request_bytes_total";
const JOBS: &str = "trefoil_backup_jobs_total";

/// Shows what is so now; of a node without backups, nothing.
pub(super) fn look_at(archive: Option<&Archive>) {
    let Some(archive) = archive else { return };
    let standing = archive.standing();
    if let Some(rpo) = standing.rpo {
        gauge!(RPO_SECONDS).set(rpo.as_secs_f64());
    }
    if let Some(age) = standing.newest_age {
        gauge!(NEWEST_SECONDS).set(age.as_secs_f64());
    }
    gauge!(RPO_MAX_SECONDS).set(standing.rpo_max.as_secs_f64());
    gauge!(FILES_WAITING).set(standing.files_waiting as f64);
    let counts = archive.counts();
    let show = |name: &'static str, count: &AtomicU64| counter!(name).absolute(count.load(Ordering::Relaxed));
    show(FILES, &counts.files);
    show(FILE_BYTES, &counts.file_bytes);
    show(PIECES, &counts.pieces);
    show(PIECE_BYTES, &counts.piece_bytes);
    show(GAPS, &counts.gaps);
    show(FAILURES, &counts.failures);
    for (end, count) in [("complete", &counts.complete), ("failed", &counts.failed)] {
        counter!(JOBS, "end" => end).absolute(count.load(Ordering::Relaxed));
    }
    for (call, asked) in archive.traffic().into_iter().flat_map(|traffic| traffic.all()) {
        counter!(REQUESTS, "call" => call).absolute(asked.requests);
        counter!(REQUEST_FAILURES, "call" => call).absolute(asked.failures);
        counter!(REQUEST_RETRIES, "call" => call).absolute(asked.retries);
        counter!(REQUEST_BYTES, "call" => call).absolute(asked.bytes);
    }
}

/// What they mean.
pub(super) fn describe() {
    describe_gauge!(RPO_SECONDS, Unit::Seconds, "Age of the newest write that a loss of the cluster now might cost");
    describe_gauge!(RPO_MAX_SECONDS, Unit::Seconds, "More than this is too much");
    describe_gauge!(NEWEST_SECONDS, Unit::Seconds, "Age of the newest complete backup");
    describe_gauge!(FILES_WAITING, "SSTables that are not in the backup bucket yet");
    describe_counter!(FILES, "SSTables uploaded");
    describe_counter!(FILE_BYTES, Unit::Bytes, "SSTables uploaded");
    describe_counter!(PIECES, "Pieces of the commit log uploaded");
    describe_counter!(PIECE_BYTES, Unit::Bytes, "Pieces of the commit log uploaded");
    describe_counter!(GAPS, "Stretches of the commit log that went before they were archived");
    describe_counter!(FAILURES, "Steps of backing up that failed and were tried again");
    describe_counter!(REQUESTS, "Requests to the bucket, retries among them, by kind");
    describe_counter!(REQUEST_FAILURES, "Requests to the bucket that failed, by kind");
    describe_counter!(REQUEST_RETRIES, "Requests to the bucket that were made again, by kind");
    describe_counter!(REQUEST_BYTES, Unit::Bytes, "Objects moved: by PUT to the bucket, by GET from it");
    describe_counter!(JOBS, "Backups that this node saw to and that are over, by how they ended");
}
