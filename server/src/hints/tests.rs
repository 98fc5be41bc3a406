//! The thread of the hints, with a postman of the test's own and files in memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use trefoil::hints::delivery::Outcome;
use trefoil::hints::{Hint, Place};
use trefoil::model::{Identity, KeyspaceId, NodeId, Vnode, VnodeBits};
use trefoil::vfs::faulty::FaultyVfs;
use trefoil::vfs::memory::MemoryVfs;

use super::{Action, Ground, HintSettings, Hints, Postman, TargetStatus};

const TARGET: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

const SETTINGS: HintSettings =
    HintSettings { bytes_max: 1 << 20, window_s: 100, kept_s: 1_000, bytes_per_s: 1 << 30, queue_bytes: 1 << 20 };

/// What nodes do with hints.
#[derive(Default)]
struct Nodes {
    reachable: BTreeSet<NodeId>,
    answer: Option<Outcome>,
    sent: Vec<(NodeId, Place, u64)>,
}

/// Answers each hint at once, or not at all.
struct TestPostman {
    nodes: Mutex<Nodes>,
    hints: Mutex<Option<Arc<Hints>>>,
}

impl Postman for TestPostman {
    fn can_reach(&self, target: NodeId) -> bool {
        self.nodes.lock().reachable.contains(&target)
    }

    fn send(&self, target: NodeId, place: Place, hint: &Hint) -> Result<(), Outcome> {
        let mut nodes = self.nodes.lock();
        nodes.sent.push((target, place, number_of(hint)));
        if let Some(outcome) = nodes.answer {
            self.hints.lock().as_ref().unwrap().outcome(target, place, outcome);
        }
        Ok(())
    }
}

fn number_of(hint: &Hint) -> u64 {
    u64::from_be_bytes(*hint.record.first_chunk().unwrap())
}

/// A node that keeps hints; the same directory can be taken up by another run.
struct Site {
    hints: Arc<Hints>,
    postman: Arc<TestPostman>,
    vfs: FaultyVfs,
}

impl Site {
    fn new(settings: HintSettings) -> Site {
        Site::on(FaultyVfs::new(Arc::new(MemoryVfs::new())), settings)
    }

    fn on(vfs: FaultyVfs, settings: HintSettings) -> Site {
        let hints = Arc::new(Hints::new(settings));
        let postman = Arc::new(TestPostman { nodes: Mutex::default(), hints: Mutex::new(Some(hints.clone())) });
        let owner = Identity { cluster: uuid::Uuid::from_u128(1), node: NodeId(1), vnode_bits: VnodeBits::DEFAULT };
        let ground = Ground { vfs: Arc::new(vfs.clone()), directory: "/hints".into(), owner, postman: postman.clone() };
        hints.start(ground).unwrap();
        Site { hints, postman, vfs }
    }

    fn again(self, settings: HintSettings) -> Site {
        self.hints.stop();
        let vfs = self.vfs.clone();
        Site::on(vfs, settings)
    }

    fn keep(&self, target: NodeId, number: u64) {
        let mut record = number.to_be_bytes().to_vec();
        record.resize(1_000, 7);
        self.hints.keep(target, KeyspaceId(1), Vnode(5), Bytes::from(record));
    }

    fn answer(&self, outcome: Option<Outcome>) {
        self.postman.nodes.lock().answer = outcome;
    }

    fn reach(&self, targets: impl IntoIterator<Item = NodeId>) {
        self.postman.nodes.lock().reachable = targets.into_iter().collect();
    }

    fn sent(&self) -> Vec<u64> {
        self.postman.nodes.lock().sent.iter().map(|(.., number)| *number).collect()
    }

    async fn ask(&self, action: Action, target: NodeId) -> TargetStatus {
        self.hints.ask(action, Some(target)).await.unwrap().remove(&target).unwrap_or_default()
    }

    async fn until(&self, is_so: impl Fn(&Site, &TargetStatus) -> bool) -> TargetStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.ask(Action::Tell, TARGET).await;
            if is_so(self, &status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{status:?}, sent {:?}", self.sent());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test]
async fn hints_wait_for_their_node_and_are_delivered_once() {
    let site = Site::new(SETTINGS);
    (0..10).for_each(|number| site.keep(TARGET, number));
    site.keep(OTHER, 100);
    let status = site.until(|_, status| status.written == 10).await;
    assert!(status.pending_bytes > 10_000 && status.oldest_us.is_some() && !status.is_reachable);
    assert!(site.sent().is_empty());
    site.answer(Some(Outcome::Acknowledged));
    site.reach([TARGET]);
    let status = site.until(|_, status| status.delivered == 10).await;
    assert_eq!((status.pending_bytes, status.oldest_us), (0, None));
    assert_eq!(site.sent(), (0..10).collect::<Vec<_>>());
    assert!(site.ask(Action::Tell, OTHER).await.pending_bytes > 1_000);
}

#[tokio::test]
async fn the_next_run_delivers_what_is_left() {
    let site = Site::new(SETTINGS);
    (0..400).for_each(|number| site.keep(TARGET, number));
    site.until(|_, status| status.written == 400).await;
    site.reach([TARGET]);
    site.until(|site, _| site.sent().len() == 256).await;
    for (target, place, _) in site.postman.nodes.lock().sent[..100].iter().copied() {
        site.hints.outcome(target, place, Outcome::Acknowledged);
    }
    site.until(|_, status| status.delivered == 100).await;
    let site = site.again(SETTINGS);
    site.answer(Some(Outcome::Acknowledged));
    site.reach([TARGET]);
    site.until(|_, status| status.delivered == 300).await;
    assert_eq!(site.sent(), (100..400).collect::<Vec<_>>());
}

#[tokio::test]
async fn whoever_has_no_room_gets_the_hint_later() {
    let site = Site::new(SETTINGS);
    site.reach([TARGET]);
    site.answer(Some(Outcome::NotNow));
    site.keep(TARGET, 1);
    site.until(|site, _| site.sent().len() >= 2).await;
    site.answer(Some(Outcome::TooLate));
    let status = site.until(|_, status| status.too_late == 1).await;
    assert_eq!((status.pending_bytes, status.delivered), (0, 0));
}

#[tokio::test]
async fn nothing_is_delivered_while_paused_and_nothing_is_left_when_dropped() {
    let site = Site::new(SETTINGS);
    site.keep(TARGET, 1);
    site.until(|_, status| status.written == 1).await;
    assert!(site.ask(Action::Pause, TARGET).await.is_paused);
    site.answer(Some(Outcome::Acknowledged));
    site.reach([TARGET]);
    let status = site.until(|_, status| status.is_reachable).await;
    assert!(status.is_paused && site.sent().is_empty());
    let dropped = site.ask(Action::Drop, TARGET).await;
    assert!(dropped.dropped_bytes > 1_000 && dropped.pending_bytes == 0);
    site.keep(TARGET, 2);
    site.until(|_, status| status.written == 2).await;
    site.ask(Action::Resume, TARGET).await;
    site.until(|_, status| status.delivered == 1).await;
    assert_eq!(site.sent(), [2]);
}

/// What waits for the thread is bounded too, and what is beyond that is counted.
#[tokio::test]
async fn b119_what_does_not_fit_in_memory_is_counted() {
    let hints = Hints::new(HintSettings { queue_bytes: 10_000, ..SETTINGS });
    (0..100).for_each(|_| hints.keep(TARGET, KeyspaceId(1), Vnode(5), Bytes::from(vec![7; 1_000])));
    assert_eq!(hints.refused_queue(), 91);
}

#[tokio::test]
async fn bounds_and_a_full_disk_are_counted_and_end() {
    let site = Site::new(HintSettings { bytes_max: 8_000, ..SETTINGS });
    (0..20).for_each(|number| site.keep(TARGET, number));
    let status = site.until(|_, status| status.written + status.refused_bytes == 20).await;
    assert!(status.refused_bytes >= 13, "{status:?}");
    site.answer(Some(Outcome::Acknowledged));
    site.reach([TARGET]);
    site.until(|_, status| status.pending_bytes == 0).await;
    site.reach([]);
    site.vfs.fill();
    site.keep(TARGET, 20);
    site.until(|_, status| status.refused_disk == 1).await;
    site.vfs.make_room();
    site.keep(TARGET, 21);
    site.until(|_, status| status.pending_bytes > 0).await;
}
