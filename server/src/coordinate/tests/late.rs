//! Reads of which a replica is late, silent or of another opinion on the metadata.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use trefoil_proto::v1;
use trefoil_proto::v1::Consistency;
use trefoil_proto::v1::peer_operation::Op;
use trefoil_proto::v1::peer_reply::Result as PeerResult;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op as Operation;

use super::site::{self, Site, multi_get};
use crate::clock;

const LONG: Duration = Duration::from_secs(20);

/// Far less than that: it was not waited for to the deadline.
const SOON_US: u64 = 8_000_000;

fn read(level: Consistency) -> Operation {
    Operation::Read(multi_get("all", 1..2, level))
}

fn value_of(answer: &Answer) -> Option<v1::value::Kind> {
    let Answer::Page(page) = answer else { panic!("{answer:?}") };
    page.rows.first()?.cells[0].value.as_ref()?.kind.clone()
}

/// Answers nothing, as a replica that has nothing does.
fn nothing() -> PeerResult {
    PeerResult::Page(v1::ReplicaPage::default())
}

#[tokio::test]
async fn a_read_asks_one_more_when_a_replica_is_late() {
    for silent in [0, 1] {
        let site = Site::new().await;
        site.peers[1 - silent].does(|op| matches!(op, Op::Read(_)).then(nothing));
        let began = clock::now();
        // Whichever of the two it asks first, over several partitions both are.
        for id in 0..4 {
            let read = Operation::Read(multi_get("all", id..id + 1, Consistency::Quorum));
            assert_eq!(value_of(&site.ask(read, LONG).await), None);
        }
        assert!(clock::now().since_us(began) < SOON_US, "a silent replica was waited for");
    }
}

/// Two replicas have a row that the own one lacks, and one of them is silent: the read goes on with a quorum of two.
#[tokio::test]
async fn a_silent_replica_does_not_hold_up_a_read_that_differs() {
    for silent in [0, 1] {
        let site = Site::new().await;
        let page = site.page(1, 2, "newer");
        site.peers[1 - silent].does(move |op| match op {
            Op::Read(_) => Some(PeerResult::Page(page.clone())),
            _ => Some(PeerResult::Acknowledged(v1::Acknowledged {})),
        });
        let began = clock::now();
        let answer = site.ask(read(Consistency::Quorum), LONG).await;
        assert_eq!(value_of(&answer), Some(v1::value::Kind::Text("newer".into())));
        assert!(clock::now().since_us(began) < SOON_US, "a silent replica was waited for");
        let own = site.ask(read(Consistency::LocalOne), LONG).await;
        assert_eq!(value_of(&own), value_of(&answer), "the own replica was repaired");
    }
}

/// A digest of a page is asked of whoever is not asked for the page.
#[tokio::test]
async fn others_are_asked_for_digests() {
    let site = Site::new().await;
    site.peers.iter().for_each(|peer| peer.does(|op| matches!(op, Op::Read(_)).then(nothing)));
    site.ask(read(Consistency::All), LONG).await;
    for peer in &site.peers {
        let asked = peer.peer.asked.lock();
        assert!(matches!(&asked[0].op, Some(Op::Read(read)) if read.digest_only), "{asked:?}");
    }
}

/// Replicas that have other metadata say so until they have fetched: the read is made again, and not given up.
#[tokio::test]
async fn a_read_is_made_again_when_metadata_differ() {
    let site = Site::new().await;
    for peer in &site.peers {
        let asked = Arc::new(AtomicU32::new(0));
        peer.does(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Some(PeerResult::Stale(v1::Stale::default())),
            _ => Some(nothing()),
        });
    }
    let answer = site.ask(read(Consistency::All), LONG).await;
    assert_eq!(value_of(&answer), None);
    // One that stays so is told of by the deadline, with the reason.
    site.peers.iter().for_each(|peer| peer.does(|_| Some(PeerResult::Stale(v1::Stale::default()))));
    let answer = site.ask(read(Consistency::All), Duration::from_millis(100)).await;
    assert_eq!(site::error_of(&answer), (tonic::Code::Aborted, v1::Outcome::NotApplied));
    assert_eq!(site.lane.shared().admission.requests(), 0);
}
