//! Writes that replicas refuse for another placement, or because they came too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tonic::Code;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil_proto::v1;
use trefoil_proto::v1::Consistency;
use trefoil_proto::v1::peer_operation::Op;
use trefoil_proto::v1::peer_reply::Result as PeerResult;
use trefoil_proto::v1::pipe_answer::Result as Answer;

use super::LONG;
use super::site::{Running, Site, error_of, write};

fn acknowledged() -> PeerResult {
    PeerResult::Acknowledged(v1::Acknowledged {})
}

fn stale() -> PeerResult {
    PeerResult::Stale(v1::Stale::default())
}

fn too_late() -> PeerResult {
    PeerResult::Failure(v1::PeerFailure { kind: v1::PeerFailureKind::TooLate.into(), message: "too late".into() })
}

/// Answers the first so many operations in one way and the rest in another.
fn does(peer: &Running, first: u32, then: fn() -> Option<PeerResult>, at_first: fn() -> PeerResult) {
    let asked = Arc::new(AtomicU32::new(0));
    peer.does(move |_| if asked.fetch_add(1, Ordering::Relaxed) < first { Some(at_first()) } else { then() });
}

fn records_of(peer: &Running) -> Vec<CheckedRecord> {
    let asked = peer.peer.asked.lock();
    let written = asked.iter().filter_map(|asked| match &asked.op {
        Some(Op::Write(record)) => Some(CheckedRecord::check(record.clone()).unwrap().0),
        _ => None,
    });
    written.collect()
}

/// The replicas have heard of another placement first: the same record is sent again until they agree.
#[tokio::test]
async fn a_write_is_made_again_when_placements_differ() {
    let site = Site::new().await;
    for peer in &site.peers {
        does(peer, 2, || Some(acknowledged()), stale);
    }
    let answer = site.ask(write("all", 1, Consistency::All), LONG).await;
    assert!(matches!(answer, Answer::Write(_)), "{answer:?}");
    let records = records_of(&site.peers[0]);
    assert!(records.len() >= 2 && records.iter().all(|record| record == &records[0]), "{}", records.len());
    // One that stays so is told of by the deadline, with the reason.
    site.peers.iter().for_each(|peer| peer.does(|_| Some(stale())));
    let answer = site.ask(write("all", 1, Consistency::All), Duration::from_millis(200)).await;
    assert_eq!(error_of(&answer), (Code::Aborted, v1::Outcome::Unknown));
    assert_eq!(site.lane.shared().admission.requests(), 0);
}

/// What one replica acknowledged under the old placement is no acknowledgement under the new one.
#[tokio::test]
async fn acknowledgements_of_a_write_that_is_made_again_are_counted_afresh() {
    let site = Site::new().await;
    does(&site.peers[0], 1, || None, acknowledged);
    does(&site.peers[1], 1, || Some(acknowledged()), stale);
    let answer = site.ask(write("all", 1, Consistency::All), Duration::from_millis(500)).await;
    assert_eq!(error_of(&answer), (Code::DeadlineExceeded, v1::Outcome::Unknown));
    assert_eq!(records_of(&site.peers[0]).len(), 2, "it was sent to both again");
}

/// The mutation gets a name that is not too late, and says otherwise what it said.
#[tokio::test]
async fn a_write_that_came_too_late_is_named_anew() {
    let site = Site::new().await;
    for peer in &site.peers {
        does(peer, 1, || Some(acknowledged()), too_late);
    }
    let Answer::Write(result) = site.ask(write("all", 1, Consistency::All), LONG).await else { panic!("it failed") };
    let records = records_of(&site.peers[0]);
    let [first, second] = records.as_slice() else { panic!("{} records", records.len()) };
    assert_ne!(first.kind(), second.kind());
    assert!(matches!(second.kind(), RecordKind::Named(_)) && second.stamp() > first.stamp());
    assert_eq!((result.stamp, result.timestamp_us), (second.stamp().0, first.stamp().timestamp().0));
    let mutation = |record: &CheckedRecord| record.bytes().slice(record.bytes().len() - 20..);
    assert_eq!((mutation(first), first.bytes().len()), (mutation(second), second.bytes().len()));
}

/// A name is recent when it is given: if that one is too late as well, clocks are so far apart that no other is better.
#[tokio::test]
async fn a_write_is_named_anew_once() {
    let site = Site::new().await;
    site.peers.iter().for_each(|peer| peer.does(|_| Some(too_late())));
    let answer = site.ask(write("all", 1, Consistency::Quorum), LONG).await;
    assert_eq!(error_of(&answer), (Code::Aborted, v1::Outcome::Unknown));
    assert_eq!(records_of(&site.peers[0]).len(), 2);
    assert_eq!(site.lane.shared().admission.requests(), 0);
}
