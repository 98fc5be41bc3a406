//! Data that expires, through the whole range of time.

use super::faults::in_every_form;
use super::read_partition;
use crate::model::naive::{rows, rows_between};
use crate::model::time::{EXPIRY_MAX_S, TTL_MAX_S};
use crate::model::{
    Cell, CellKind, ColumnId, Direction, Fragment, Liveness, LivenessKind, ReadCommand, Row, Timestamp,
};

/// B019: now and time to live together ran over 31 bits of seconds (2038): rows were dead at once, and compaction removed
/// them for good. Expiries are 64 bits wide in memory and in files, up to the year 2106, beyond which writes are refused.
#[test]
fn b019_what_expires_after_2038_lives_until_then() {
    const IN_2026_S: i64 = 1_767_225_600;
    const IN_2037_S: i64 = 2_145_830_400;
    let expiring = |now_s: i64, ttl_s: u32| {
        let (timestamp, expiry_s) = (Timestamp(now_s * 1_000_000), now_s + i64::from(ttl_s));
        let kind = CellKind::Expiring { value: bytes::Bytes::from_static(b"v"), ttl_s, expiry_s };
        let marker = Some(Liveness { timestamp, kind: LivenessKind::Expiring { ttl_s, expiry_s } });
        (expiry_s, Row { marker, cells: vec![(ColumnId(1), Cell { timestamp, kind })], ..Row::default() })
    };
    let written = [
        expiring(IN_2026_S, TTL_MAX_S),
        expiring(IN_2037_S, 30 * 86_400),
        expiring(EXPIRY_MAX_S - i64::from(TTL_MAX_S), TTL_MAX_S),
    ];
    let numbered = || written.iter().zip(1i32..);
    let mutations: Vec<_> = numbered().map(|((_, row), number)| rows(1, [(number, row.clone())])).collect();
    in_every_form(&mutations, |node| {
        for ((expiry_s, _), number) in numbered() {
            let is_visible = |now_s| {
                let slices = vec![rows_between(number, number)];
                let found = node.read(ReadCommand { now_s, ..read_partition(1, slices, Direction::Forward) });
                found.iter().any(|one| matches!(one, Fragment::Row(_, row) if row.is_visible_at(now_s)))
            };
            let times = [IN_2026_S, i64::from(i32::MAX), i64::from(i32::MAX) + 1, *expiry_s - 1, *expiry_s];
            let seen = times.map(is_visible);
            assert_eq!(seen, times.map(|now_s| now_s < *expiry_s), "row {number}, which expires at {expiry_s}");
        }
    });
}
