//! What becomes of a mutation whose caller goes away at any point, and of one that a node with a wrong clock is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tonic::Code;
use trefoil::liveness::Heartbeat;
use trefoil::model::NodeId;
use trefoil_proto::v1;
use trefoil_proto::v1::Consistency;
use trefoil_proto::v1::peer_operation::Op;
use trefoil_proto::v1::peer_reply::Result as PeerResult;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op as Operation;

use super::site::{self, Site, error_of, eventually, multi_get, write};
use super::{LONG, foreign_key};
use crate::clock;

fn acknowledged() -> PeerResult {
    PeerResult::Acknowledged(v1::Acknowledged {})
}

fn was_sent(site: &Site, peer: usize) -> bool {
    site.peers[peer].peer.asked.lock().iter().any(|asked| matches!(asked.op, Some(Op::Write(_))))
}

async fn own_rows(site: &Site, id: i64) -> usize {
    let own = site.ask(Operation::Read(multi_get("all", id..id + 1, Consistency::LocalOne)), LONG).await;
    let Answer::Page(page) = own else { panic!("{own:?}") };
    page.rows.len()
}

/// When a caller goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    AtOnce,
    OnceAllWereSent,
    OnceOneHasAcknowledged,
}

/// B073: wherever its caller goes away, a mutation that was begun is handed to every replica, and everything that it held
/// is given back.
#[tokio::test]
async fn b073_a_call_that_is_dropped_anywhere_leaves_a_whole_mutation() {
    for gone in [Gone::AtOnce, Gone::OnceAllWereSent, Gone::OnceOneHasAcknowledged] {
        let site = Site::new().await;
        let may_acknowledge = Arc::new(AtomicBool::new(gone != Gone::OnceAllWereSent));
        let may = may_acknowledge.clone();
        site.peers[0].does(move |_| may.load(Ordering::Relaxed).then(acknowledged));
        let call = site.begin(write("all", 1, Consistency::All), Duration::from_millis(500));
        match gone {
            Gone::AtOnce => {}
            Gone::OnceAllWereSent => eventually(|| was_sent(&site, 0) && was_sent(&site, 1)).await,
            Gone::OnceOneHasAcknowledged => eventually(|| was_sent(&site, 0)).await,
        }
        drop(call);
        eventually(|| was_sent(&site, 0) && was_sent(&site, 1)).await;
        // The deadline ends it, since one replica is silent.
        eventually(|| site.lane.shared().admission.requests() == 0).await;
        assert_eq!(own_rows(&site, 1).await, 1, "{gone:?}");
    }
}

/// The same where the mutation was handed on: the replica coordinates it to its end, and its late answer meets nobody.
#[tokio::test]
async fn b073_a_dropped_call_that_was_handed_on_is_coordinated_all_the_same() {
    let site = Site::new().await;
    let id = foreign_key(&site);
    let done =
        || Some(PeerResult::Answer(v1::PipeAnswer { id: 0, result: Some(Answer::Write(v1::WriteResult::default())) }));
    site.peers.iter().for_each(|peer| peer.does(move |_| done()));
    drop(site.begin(write("two", id, Consistency::One), LONG));
    let asked = || site.peers.iter().map(|peer| peer.peer.asked.lock().len()).sum::<usize>();
    eventually(|| asked() == 1 && site.lane.shared().admission.requests() == 0).await;
    assert_eq!(asked(), 1, "it was done once");
}

/// The parts of a batch go on, each for itself, when nobody waits for any.
#[tokio::test]
async fn b073_a_dropped_batch_is_done_in_all_its_parts() {
    let site = Site::new().await;
    site.peers.iter().for_each(|peer| peer.does(|_| Some(acknowledged())));
    let mutations = (1..=5).map(|id| site::mutation("all", id, "v")).collect();
    let batch = v1::BatchRequest { options: site::options(Consistency::All), mutations };
    drop(site.begin(Operation::Batch(batch), LONG));
    eventually(|| site.lane.shared().admission.requests() == 0).await;
    for id in 1..=5 {
        assert_eq!(own_rows(&site, id).await, 1);
    }
    assert_eq!(site.peers[0].peer.asked.lock().len(), 5);
}

/// A read that nobody waits for any more ends as others do.
#[tokio::test]
async fn a_dropped_read_gives_back_what_it_held() {
    let site = Site::new().await;
    drop(site.begin(Operation::Read(multi_get("all", 0..10, Consistency::All)), Duration::from_millis(50)));
    eventually(|| site.lane.shared().admission.requests() == 0).await;
}

/// A stamp that every replica refuses: nobody can say whether the own log keeps it.
#[tokio::test]
async fn a_refusal_for_the_clock_is_unknown_once_the_mutation_was_begun() {
    let site = Site::new().await;
    let refusal = || v1::PeerFailure { kind: v1::PeerFailureKind::Clock.into(), message: "too far ahead".into() };
    site.peers.iter().for_each(|peer| peer.does(move |_| Some(PeerResult::Failure(refusal()))));
    let answer = site.ask(write("all", 1, Consistency::Quorum), LONG).await;
    assert_eq!(error_of(&answer), (Code::Aborted, v1::Outcome::Unknown));
}

/// Lets both peers say that the own clock is so far ahead of theirs.
fn clocks_say(site: &Site, ahead_us: i64) {
    let peers = &site.lane.shared().peers;
    for node in [NodeId(2), NodeId(3)] {
        let link = peers.connected(node);
        for _ in 0..5 {
            let heartbeat = Heartbeat { unheard_us: Some(0), round_trip_us: Some(0), ahead_us: -ahead_us };
            peers.heartbeat(node, link, heartbeat);
        }
    }
    peers.refresh();
}

/// The node under test is a replica, and its clock is an hour ahead: another replica names what it is asked to write, at
/// the time that the others have. When the clock is right again it does so itself.
#[tokio::test]
async fn a_node_whose_clock_is_off_hands_mutations_on_until_it_is_right() {
    const HOUR_US: i64 = 3_600_000_000;
    let site = Site::new().await;
    let peers = &site.lane.shared().peers;
    clocks_say(&site, HOUR_US);
    assert_eq!(peers.own_clock_off(), Some(HOUR_US));
    let done = || PeerResult::Answer(v1::PipeAnswer { id: 0, result: Some(Answer::Write(v1::WriteResult::default())) });
    site.peers.iter().for_each(|peer| peer.does(move |op| matches!(op, Op::Forward(_)).then(done)));
    let answer = site.ask(write("all", 1, Consistency::Quorum), LONG).await;
    assert!(matches!(answer, Answer::Write(_)), "{answer:?}");
    let timestamp = site.peers.iter().find_map(|peer| match peer.peer.asked.lock().first()?.op.clone()? {
        Op::Forward(forward) => match forward.operation?.op? {
            Operation::Mutate(request) => request.options?.default_timestamp_us,
            _ => None,
        },
        _ => None,
    });
    let behind = clock::wall_us() - timestamp.unwrap();
    assert!((behind - HOUR_US).abs() < HOUR_US / 10, "{behind}");
    // Nobody takes it: it was not begun, and the reason is named.
    site.peers.iter().for_each(|peer| peer.does(|_| Some(super::refusal(v1::Outcome::NotApplied))));
    let answer = site.ask(write("all", 1, Consistency::Quorum), LONG).await;
    assert_eq!(error_of(&answer), (Code::ResourceExhausted, v1::Outcome::NotApplied));
    clocks_say(&site, 0);
    assert_eq!(peers.own_clock_off(), None);
    site.peers.iter().for_each(|peer| peer.does(|op| matches!(op, Op::Write(_)).then(acknowledged)));
    let answer = site.ask(write("all", 1, Consistency::All), LONG).await;
    assert!(matches!(answer, Answer::Write(_)), "{answer:?}");
}
