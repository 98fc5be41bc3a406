//! One lane against peers that fail in every way: what it answers, and what it claims became of a write.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod again;
mod asking;
mod late;
mod outcomes;
mod site;

use std::time::Duration;

use tonic::Code;
use trefoil::metadata::Entry;
use trefoil::model::DropTable;
use trefoil_proto::v1;
use trefoil_proto::v1::Consistency;
use trefoil_proto::v1::peer_operation::Op;
use trefoil_proto::v1::peer_reply::Result as PeerResult;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op as Operation;

use asking::Asking;
use site::{Site, error_of, multi_get, write};

const LONG: Duration = Duration::from_secs(15);

/// A key of keyspace `two` that the node under test holds no copy of.
fn foreign_key(site: &Site) -> i64 {
    let state = site.lane.shared().cluster.load_full();
    let keyspace = state.keyspace_named("two").unwrap();
    let table = state.table_named("two", "t").unwrap();
    let is_foreign = |id: &i64| {
        let key = trefoil_proto::convert::key::partition_key(site::key(*id), table).unwrap();
        !state.ring().replicas(keyspace, key.token()).contains(site::OWN)
    };
    (0..1_000).find(is_foreign).unwrap()
}

fn refusal(outcome: v1::Outcome) -> PeerResult {
    let error = v1::Error::new(Code::ResourceExhausted, "full", outcome);
    PeerResult::Answer(v1::PipeAnswer { id: 0, result: Some(Answer::Error(error)) })
}

/// B011: the first replica was lost with the write on it, the next one refused: it said that nothing was applied, but of
/// the first nobody knows.
#[tokio::test]
async fn b011_a_refusal_after_a_lost_attempt_does_not_say_that_nothing_was_applied() {
    let mut site = Site::new().await;
    let id = foreign_key(&site);
    let asking = site.begin(write("two", id, Consistency::One), LONG);
    site::eventually(|| site.peers.iter().any(|peer| !peer.peer.asked.lock().is_empty())).await;
    let first = usize::from(site.peers[0].peer.asked.lock().is_empty());
    site.peers[1 - first].does(|_| Some(refusal(v1::Outcome::NotApplied)));
    site.peers[first].dies();
    let answer = site::answer(asking).await;
    assert_eq!(error_of(&answer), (Code::ResourceExhausted, v1::Outcome::Unknown));
}

#[tokio::test]
async fn what_no_replica_took_was_not_applied() {
    let site = Site::new().await;
    let id = foreign_key(&site);
    for peer in &site.peers {
        peer.does(|_| Some(refusal(v1::Outcome::NotApplied)));
    }
    let answer = site.ask(write("two", id, Consistency::One), LONG).await;
    assert_eq!(error_of(&answer), (Code::ResourceExhausted, v1::Outcome::NotApplied));
    let asked: usize = site.peers.iter().map(|peer| peer.peer.asked.lock().len()).sum();
    assert_eq!(asked, 2, "the second replica was tried before giving up");
}

/// Each key is a command of its own and its answer comes at once: a stack frame for each was more than a thread has.
#[test]
fn a_read_of_many_keys_takes_no_more_stack_than_one_of_few() {
    let small = std::thread::Builder::new().stack_size(512 << 10);
    let thread = small.spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let site = Site::new().await;
            let request = multi_get("all", 0..1_000, Consistency::One);
            let answer = site.ask(Operation::Read(request), LONG).await;
            assert!(matches!(answer, Answer::Page(page) if page.paging_state.is_empty()));
        });
    });
    thread.unwrap().join().unwrap();
}

#[tokio::test]
async fn an_operation_without_time_is_not_begun() {
    let site = Site::new().await;
    let answer = site.ask(write("all", 1, Consistency::Quorum), Duration::ZERO).await;
    assert_eq!(error_of(&answer), (Code::DeadlineExceeded, v1::Outcome::NotApplied));
    assert!(site.peers.iter().all(|peer| peer.peer.asked.lock().is_empty()));
}

#[tokio::test]
async fn a_write_is_answered_by_its_deadline_and_its_outcome_is_unknown() {
    let site = Site::new().await;
    let answer = site.ask(write("all", 1, Consistency::Quorum), Duration::from_millis(50)).await;
    assert_eq!(error_of(&answer), (Code::DeadlineExceeded, v1::Outcome::Unknown));
    assert_eq!(site.lane.shared().admission.requests(), 0);
    let within = |operation: &v1::PeerOperation| (1..=50).contains(&operation.timeout_ms);
    assert!(site.peers.iter().all(|peer| peer.peer.asked.lock().iter().all(within)));
}

#[tokio::test]
async fn a_write_is_acknowledged_at_its_level() {
    let site = Site::new().await;
    site.peers[1].does(|op| matches!(op, Op::Write(_)).then(|| PeerResult::Acknowledged(v1::Acknowledged {})));
    let answer = site.ask(write("all", 1, Consistency::Quorum), LONG).await;
    assert!(matches!(answer, Answer::Write(_)), "{answer:?}");
}

/// One node learnt of a table before another: what it sends at once waits there for the metadata.
#[tokio::test]
async fn what_comes_before_its_table_is_served_once_the_table_is_there() {
    let site = Site::new().await;
    let entry = site::create_table("all", "later");
    let mut asking = Asking::new(&site.lane, site.after(&entry));
    asking.write(1, "later", 1, LONG);
    asking.read(2, "later", 1, LONG);
    asking.write(3, "later", 2, Duration::from_millis(30));
    let late = asking.reply().await;
    assert!(matches!((late.id, &late.result), (3, Some(PeerResult::Stale(_)))), "{late:?}");
    site.apply(&entry);
    let mut served = [asking.reply().await, asking.reply().await];
    served.sort_by_key(|reply| reply.id);
    assert!(matches!(served[0].result, Some(PeerResult::Acknowledged(_))), "{served:?}");
    assert!(matches!(served[1].result, Some(PeerResult::Page(_))), "{served:?}");
    assert!(site.lane.serves_nobody());
}

#[tokio::test]
async fn what_is_asked_of_a_dropped_table_does_not_wait() {
    let site = Site::new().await;
    let mut asking =
        Asking::new(&site.lane, trefoil::metadata::ClusterState::clone(&site.lane.shared().cluster.load()));
    let drop = DropTable { keyspace: "all".into(), name: "t".into(), if_exists: false };
    site.apply(&Entry::DropTable(drop));
    asking.write(1, "t", 1, LONG);
    asking.read(2, "t", 1, LONG);
    let mut replies = [asking.reply().await, asking.reply().await];
    replies.sort_by_key(|reply| reply.id);
    assert!(matches!(replies[0].result, Some(PeerResult::Acknowledged(_))), "received without effect: {replies:?}");
    assert!(matches!(replies[1].result, Some(PeerResult::Stale(_))), "{replies:?}");
}

/// B115 and its kind: a refusal by the own log is a failed replica like any other, not a write that hangs.
#[tokio::test]
async fn a_write_after_the_log_has_stopped_is_answered_at_once() {
    let site = Site::new().await;
    site.lane.shared().replica.stop().unwrap();
    let answer = site.ask(write("all", 1, Consistency::All), LONG).await;
    assert_eq!(error_of(&answer), (Code::Aborted, v1::Outcome::Unknown));
}

/// A batch is atomic within a partition: two mutations of one that name its table or key in two ways are one write.
#[tokio::test]
async fn mutations_of_one_partition_are_one_write_however_they_name_it() {
    let site = Site::new().await;
    for peer in &site.peers {
        peer.does(|_| Some(PeerResult::Acknowledged(v1::Acknowledged {})));
    }
    let plain = site::mutation("all", 1, "a");
    let mut raw = site::mutation("all", 1, "b");
    raw.partition = vec![v1::Value { kind: Some(v1::value::Kind::Raw(vec![0, 0, 0, 1].into())) }];
    let mut with_id = site::mutation("all", 1, "c");
    let id = site.lane.shared().cluster.load().table_named("all", "t").unwrap().id;
    with_id.table.as_mut().unwrap().id = trefoil_proto::convert::schema::table_id(id);
    let mut wrong = site::mutation("all", 1, "d");
    wrong.partition.clear();
    let mutations = vec![plain, raw, wrong, with_id, site::mutation("all", 2, "e")];
    let batch = v1::BatchRequest { options: site::options(Consistency::All), mutations };
    let Answer::Batch(result) = site.ask(Operation::Batch(batch), LONG).await else { panic!("a batch was asked") };
    let stamps: Vec<Option<i64>> = result
        .items
        .iter()
        .map(|item| match &item.result {
            Some(v1::batch_item::Result::Write(write)) => Some(write.stamp),
            _ => None,
        })
        .collect();
    assert!(stamps[0].is_some() && stamps[0] == stamps[1] && stamps[0] == stamps[3], "{stamps:?}");
    assert!(stamps[2].is_none() && stamps[4].is_some() && stamps[4] != stamps[0], "{stamps:?}");
    assert_eq!(site.peers[0].peer.asked.lock().len(), 2);
}

#[tokio::test]
async fn nonsense_is_refused_before_anything_is_sent() {
    let site = Site::new().await;
    let with = |options: v1::Options| {
        let mutation = Some(site::mutation("all", 1, "v"));
        Operation::Mutate(v1::MutateRequest { options: Some(options), mutation })
    };
    for options in [
        v1::Options { consistency: 77, ..v1::Options::default() },
        v1::Options { request_id: vec![b'x'; 65].into(), ..v1::Options::default() },
    ] {
        let answer = site.ask(with(options), LONG).await;
        assert_eq!(error_of(&answer), (Code::InvalidArgument, v1::Outcome::NotApplied));
    }
    let mut read = multi_get("all", 0..1, Consistency::One);
    read.paging_state = vec![7; 40].into();
    let answer = site.ask(Operation::Read(read), LONG).await;
    assert_eq!(error_of(&answer), (Code::InvalidArgument, v1::Outcome::NotApplied));
    assert!(site.peers.iter().all(|peer| peer.peer.asked.lock().is_empty()));
    assert_eq!(site.lane.shared().admission.requests(), 0);
}

/// A stamp that is not credible must not carry the clock away.
#[tokio::test]
async fn an_observed_stamp_of_the_far_future_changes_nothing() {
    let site = Site::new().await;
    let options = v1::Options { observed_stamp: i64::MAX, ..site::options(Consistency::One).unwrap() };
    let mutation = Some(site::mutation("all", 1, "v"));
    let request = v1::MutateRequest { options: Some(options), mutation };
    let answer = site.ask(Operation::Mutate(request), LONG).await;
    assert!(matches!(answer, Answer::Write(result) if result.stamp <= crate::clock::wall_us() + 500_000));
}

/// The lane that reads also answers the pings of peers: a long read from memory must not keep it to itself.
#[tokio::test]
async fn a_long_read_from_memory_lets_others_have_their_turn() {
    let site = Site::new().await;
    let mut reading = site.begin(Operation::Read(multi_get("all", 0..1_000, Consistency::One)), LONG);
    assert!(reading.try_recv().is_err(), "it was read in one go");
    assert!(matches!(site::answer(reading).await, Answer::Page(_)));
}

/// B115: the node under test lacks a row of which its peers have two versions. The newer one is answered once a quorum
/// has it, though the peer that has the older one refuses what is written back.
#[tokio::test]
async fn b115_a_replica_that_refuses_repairs_does_not_fail_reads() {
    let site = Site::new().await;
    let newer = site.page(1, 2, "newer");
    let page = newer.clone();
    site.peers[0].does(move |op| match op {
        Op::Read(_) => Some(PeerResult::Page(page.clone())),
        _ => Some(PeerResult::Acknowledged(v1::Acknowledged {})),
    });
    let older = site.page(1, 1, "older");
    site.peers[1].does(move |op| match op {
        Op::Read(_) => Some(PeerResult::Page(older.clone())),
        _ => Some(PeerResult::Failure(v1::PeerFailure {
            kind: v1::PeerFailureKind::Unavailable.into(),
            message: "the disk is full".into(),
        })),
    });
    let answer = site.ask(Operation::Read(multi_get("all", 1..2, Consistency::Quorum)), LONG).await;
    let Answer::Page(page) = answer else { panic!("{answer:?}") };
    let value = page.rows[0].cells[0].value.as_ref().unwrap().kind.clone();
    assert_eq!(value, Some(v1::value::Kind::Text("newer".into())));
    let own = site.ask(Operation::Read(multi_get("all", 1..2, Consistency::LocalOne)), LONG).await;
    assert!(matches!(own, Answer::Page(page) if page.rows.len() == 1), "the own replica was repaired");
}
