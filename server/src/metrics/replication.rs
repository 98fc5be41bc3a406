//! What replicas know of each other.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::replication::Replication;

const REPORTS: &str = "trefoil_replication_reports_total";
const REPORT_BYTES: &str = "trefoil_replication_report_bytes_total";
const VNODES_TOLD: &str = "trefoil_replication_vnodes_told_total";
const TOO_LATE: &str = "trefoil_replication_too_late_total";
const FETCHED: &str = "trefoil_replication_records_fetched_total";
const COMPARED_BYTES: &str = "trefoil_replication_compared_bytes_total";
const ADOPTED: &str = "trefoil_replication_vnodes_compared_total";
const REBUILT: &str = "trefoil_replication_vnodes_rebuilt_total";
const WITHDRAWN: &str = "trefoil_replication_vnodes_withdrawn";
const WITHHELD: &str = "trefoil_replication_vnodes_not_read";
const HOLES: &str = "trefoil_replication_holes";
const VNODES_BEHIND: &str = "trefoil_replication_vnodes_behind";
const LAG_SECONDS: &str = "trefoil_replication_lag_seconds";
const PURGE_LAG_SECONDS: &str = "trefoil_replication_purge_lag_seconds";

/// Shows what is so now.
pub(super) fn look_at(replication: &Replication) {
    let counts = replication.counts();
    let show = |name: &'static str, count: &AtomicU64| counter!(name).absolute(count.load(Ordering::Relaxed));
    show(REPORTS, &counts.reports);
    show(REPORT_BYTES, &counts.report_bytes);
    show(VNODES_TOLD, &counts.slices_told);
    show(TOO_LATE, &counts.too_late);
    show(FETCHED, &counts.fetched);
    show(COMPARED_BYTES, &counts.compared_bytes);
    show(ADOPTED, &counts.adopted);
    show(REBUILT, &counts.rebuilt);
    let summaries = replication.summaries();
    let sum = |of: fn(&crate::replication::Summary) -> u64| summaries.values().map(of).sum::<u64>() as f64;
    let most = |of: fn(&crate::replication::Summary) -> f64| summaries.values().map(of).fold(0.0, f64::max);
    gauge!(HOLES).set(sum(|summary| summary.holes));
    gauge!(VNODES_BEHIND).set(sum(|summary| summary.vnodes_behind));
    gauge!(WITHDRAWN).set(sum(|summary| summary.vnodes_withdrawn));
    gauge!(WITHHELD).set(sum(|summary| summary.vnodes_not_read));
    gauge!(LAG_SECONDS).set(most(|summary| summary.lag_s));
    gauge!(PURGE_LAG_SECONDS).set(most(|summary| summary.purge_lag_s));
}

/// What they mean.
pub(super) fn describe() {
    describe_counter!(REPORTS, "Reports of what this node has, sent to other replicas");
    describe_counter!(REPORT_BYTES, Unit::Bytes, "Reports of what this node has, sent to other replicas");
    describe_counter!(VNODES_TOLD, "Vnodes of a keyspace that had changed and were told of in reports");
    describe_counter!(TOO_LATE, "Records that came after this node had promised to take nothing so old");
    describe_counter!(FETCHED, "Records that were missing here and came from another replica's log");
    describe_counter!(COMPARED_BYTES, Unit::Bytes, "Data that was read to compare this replica with another");
    describe_counter!(ADOPTED, "Vnodes that lacked writes no log had, compared with another replica and made whole");
    describe_counter!(
        REBUILT,
        "Vnodes of a keyspace of which something was lost here, and that came anew from the others"
    );
    describe_gauge!(WITHDRAWN, "Vnodes of a keyspace of which something was lost here, and that wait to come anew");
    describe_gauge!(WITHHELD, "Vnodes of a keyspace that are not read here, since others have what is missing");
    describe_gauge!(HOLES, "Writes that other replicas have and this one lacks");
    describe_gauge!(VNODES_BEHIND, "Vnodes of a keyspace in which it lacks any");
    describe_gauge!(LAG_SECONDS, Unit::Seconds, "Age of what is known to be on all replicas, in the worst vnode");
    describe_gauge!(PURGE_LAG_SECONDS, Unit::Seconds, "Age of deletions that may go, in the worst vnode");
}
