//! Backups of whole nodes to a bucket in memory that fails when it is told to.

use std::collections::BTreeSet;

use tokio::time::timeout;
use trefoil::backup::{Index, Manifest, Part, Phase, Piece, layout};
use trefoil_s3::{Call, Fault, Faulty, Memory, ObjectStore};

use super::*;
use crate::backup::Bucket;

/// What fails at present, by what keys begin with.
type Plan = Arc<parking_lot::Mutex<Vec<(Call, &'static str, Fault)>>>;

struct Tried {
    nodes: Vec<(Node, String)>,
    bucket: Arc<Faulty>,
    plan: Plan,
    cluster: uuid::Uuid,
}

fn settings(bucket: Arc<dyn ObjectStore>) -> BackupSettings {
    BackupSettings {
        bucket: Bucket::Given(bucket),
        log_every: Duration::from_millis(300),
        closed_behind: CLOSED_BEHIND,
        every: None,
        keep_days: 1,
        keep_count: 1,
        absent_after: Duration::from_secs(2),
        give_up: Duration::from_secs(60),
    }
}

const CLOSED_BEHIND: Duration = Duration::from_millis(1_000);

async fn start() -> Tried {
    start_with(|settings| settings).await
}

async fn start_with(change: impl Fn(BackupSettings) -> BackupSettings) -> Tried {
    let plan = Plan::default();
    let asked = plan.clone();
    // Of each key the first answer is lost and later ones come, or nobody would ever learn anything: whoever asks again
    // finds what the lost call made.
    let mut lost = BTreeSet::new();
    let bucket = Arc::new(Faulty::new(Arc::new(Memory::default()), move |call, key| {
        let below = key.split_once('/').map_or(key, |(_, below)| below);
        let plan = asked.lock();
        let fault =
            plan.iter().find(|(at, prefix, _)| *at == call && below.starts_with(prefix)).map(|(.., fault)| *fault);
        fault.filter(|fault| *fault != Fault::AnswerLost || lost.insert((call as u8, key.to_owned())))
    }));
    let replication = ReplicationSettings {
        report: Duration::from_millis(100),
        closed_behind: CLOSED_BEHIND,
        ..ReplicationSettings::default()
    };
    let nodes = cluster_with(replication, Some(change(settings(bucket.clone())))).await;
    let cluster = nodes[0].0.shared.identity.cluster;
    Tried { nodes, bucket, plan, cluster }
}

impl Tried {
    fn archive(&self, node: usize) -> &Arc<Archive> {
        self.nodes[node].0.shared.archive.as_ref().unwrap()
    }

    async fn write(&self, ids: std::ops::Range<i64>) {
        let mut client = DataClient::connect(format!("http://{}", self.nodes[0].1)).await.unwrap();
        for id in ids {
            client.mutate(write(id)).await.unwrap();
        }
    }

    async fn begin(&self, node: usize) -> uuid::Uuid {
        let mut client = backup_client(&self.nodes[node].1).await;
        let job = client.create_backup(v1::CreateBackupRequest::default()).await.unwrap().into_inner();
        uuid::Uuid::from_slice(&job.backup).unwrap()
    }

    /// Waits until the backup is over.
    async fn end(&self, backup: uuid::Uuid) -> trefoil::backup::Intent {
        let ended = timeout(PATIENCE, async {
            loop {
                let intents = self.archive(0).intents().await.unwrap_or_default();
                if let Some(found) = intents.into_iter().find(|one| one.backup == backup && one.phase.is_over()) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        ended.await.expect("it ended in time")
    }

    async fn get(&self, key: &str) -> Bytes {
        self.bucket.get(&format!("{}/{key}", self.cluster), None).await.unwrap().bytes
    }

    /// Everything that the manifest lists is there and says what it should; answers the manifest.
    async fn check(&self, backup: uuid::Uuid) -> Manifest {
        let key = layout::backup(backup);
        let manifest = Manifest::decode(&key, &self.get(&key).await).unwrap();
        for listed in &manifest.parts {
            let key = layout::part(backup, listed.node);
            let part = Part::decode(&key, &self.get(&key).await).unwrap();
            assert!(part.highest < manifest.cut && part.made_at < manifest.cut);
            for file in &part.files {
                assert_eq!(self.get(&file.key()).await.len() as u64, file.meta.bytes);
            }
        }
        for listed in &manifest.pieces {
            let key = layout::piece(listed.node, listed.number);
            Piece::decode(&key, &self.get(&key).await).unwrap();
        }
        let index = Index::decode(&self.get(layout::INDEX).await).unwrap();
        assert!(index.entries.iter().any(|entry| entry.backup == backup));
        manifest
    }

    /// Waits until every file that the node has is in the bucket: compactions make new ones meanwhile.
    async fn has_files_of(&self, node: &Node) {
        let uploaded = timeout(PATIENCE, async {
            loop {
                let mut lacking = 0;
                for (file, _) in node.shared.replica.store().live_files() {
                    let key = format!("{}/{}", self.cluster, layout::file(&file.hash, None));
                    let found = self.bucket.head(&key).await.unwrap();
                    assert!(found.as_ref().is_none_or(|found| found.bytes == file.bytes), "{key}");
                    lacking += u64::from(found.is_none());
                }
                if lacking == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        uploaded.await.expect("all files are uploaded in time");
    }

    /// The pieces of a node follow on each other.
    async fn check_chain(&self, node: NodeId) {
        let listed = self.bucket.list(&format!("{}/{}", self.cluster, layout::log_of(node)), None).await.unwrap();
        let mut end = None;
        for number in 1..=listed.objects.len() as u64 {
            let key = layout::piece(node, number);
            let head = Piece::decode(&key, &self.get(&key).await).unwrap().head;
            assert!(end.is_none_or(|end| end == head.from), "piece {number} of node {}", node.0);
            end = Some(head.to);
        }
    }

    async fn stop(self) {
        for (node, _) in self.nodes {
            node.stop().await.unwrap();
        }
    }
}

async fn backup_client(address: &str) -> v1::backup_client::BackupClient<tonic::transport::Channel> {
    v1::backup_client::BackupClient::connect(format!("http://{address}")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_running_nodes_is_complete() {
    let tried = start().await;
    tried.write(0..50).await;
    let backup = tried.begin(1).await;
    tried.write(50..100).await;
    let ended = tried.end(backup).await;
    assert_eq!(ended.phase, Phase::Complete, "{}", ended.reason);
    let manifest = tried.check(backup).await;
    assert_eq!((manifest.parts.len(), manifest.absent.len()), (3, 0));
    let snapshots =
        || tried.nodes.iter().map(|(node, _)| node.shared.replica.store().snapshots().whole.len()).sum::<usize>();
    eventually(|| snapshots() == 0).await;
    assert!(tried.archive(0).standing().rpo.is_some());
    tried.stop().await;
}

/// B082 (Netflix/Priam): a failed upload had exhausted its retries and was never queued again, since the set of known files
/// held it: a silent gap. Here what is missing is asked of the bucket, so everything of an outage is there after it, in one
/// chain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b082_what_came_during_an_outage_is_uploaded_after_it() {
    let tried = start().await;
    tried.write(0..10).await;
    eventually(|| tried.nodes.iter().all(|(node, _)| node.shared.archive.as_ref().unwrap().end().is_some())).await;
    let everything = [Call::Get, Call::Head, Call::Create, Call::Replace, Call::List];
    *tried.plan.lock() = everything.map(|call| (call, "", Fault::Unreachable)).to_vec();
    for round in 1..5 {
        tried.write(round * 10..round * 10 + 10).await;
        for (node, _) in &tried.nodes {
            let replica = node.shared.replica.clone();
            tokio::task::spawn_blocking(move || replica.flush(None)).await.unwrap().unwrap();
        }
    }
    eventually(|| tried.archive(0).standing().files_waiting > 0).await;
    eventually(|| tried.archive(0).standing().troubles.len() > 1).await;
    let calls = tried.bucket.take_calls().len();
    assert!(calls < 1_000, "{calls} calls at a bucket that does not answer");
    tried.plan.lock().clear();
    for at in 0..3 {
        eventually(|| tried.archive(at).standing().files_waiting == 0).await;
        eventually(|| tried.archive(at).standing().troubles.is_empty()).await;
    }
    for (node, _) in &tried.nodes {
        tried.has_files_of(node).await;
        tried.check_chain(node.shared.identity.node).await;
    }
    tried.stop().await;
}

/// Answers that are lost make no piece twice and no gap, and a backup whose manifest was written is complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_change_nothing() {
    let tried = start().await;
    *tried.plan.lock() = vec![
        (Call::Create, "log/", Fault::AnswerLost),
        (Call::Create, "obj/", Fault::AnswerLost),
        (Call::Create, "part/", Fault::AnswerLost),
    ];
    tried.write(0..30).await;
    let backup = tried.begin(0).await;
    let ended = tried.end(backup).await;
    assert_eq!(ended.phase, Phase::Complete, "{}", ended.reason);
    tried.check(backup).await;
    for (node, _) in &tried.nodes {
        tried.check_chain(node.shared.identity.node).await;
    }
    tried.stop().await;
}

/// B035 (Netflix/Priam): errors of uploads were ignored and a snapshot with missing files was reported successful. Here it fails,
/// has no manifest, and the complete one before it is what there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b035_a_backup_with_a_file_that_cannot_be_uploaded_fails() {
    let tried = start_with(|settings| BackupSettings { give_up: Duration::from_secs(8), ..settings }).await;
    tried.write(0..10).await;
    let whole = tried.begin(0).await;
    assert_eq!(tried.end(whole).await.phase, Phase::Complete);
    *tried.plan.lock() = vec![(Call::Create, "obj/", Fault::Denied)];
    tried.write(10..20).await;
    let failing = tried.begin(1).await;
    let ended = tried.end(failing).await;
    assert_eq!(ended.phase, Phase::Failed);
    assert!(ended.reason.contains("makes its part"), "{}", ended.reason);
    let manifest = format!("{}/{}", tried.cluster, layout::backup(failing));
    assert_eq!(tried.bucket.head(&manifest).await.unwrap(), None);
    let index = Index::decode(&tried.get(layout::INDEX).await).unwrap();
    assert_eq!(index.entries.iter().map(|entry| entry.backup).collect::<Vec<_>>(), [whole]);
    tried.check(whole).await;
    tried.stop().await;
}

/// A file is damaged on the disk before it was uploaded: it does not come into the bucket under the hash that it had, the node
/// says so, and the backup is made of what the others have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_damaged_before_its_upload_is_quarantined_and_not_uploaded() {
    let tried = start().await;
    *tried.plan.lock() = vec![(Call::Head, "obj/", Fault::Unreachable)];
    tried.write(0..20).await;
    let replica = tried.nodes[0].0.shared.replica.clone();
    let flushed = replica.clone();
    tokio::task::spawn_blocking(move || flushed.flush(None)).await.unwrap().unwrap();
    let (damaged, _) = replica.store().live_files().into_iter().next().unwrap();
    let file = replica.store().open_sealed(damaged.id).unwrap().unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 50).unwrap();
    file.write_at(&[byte[0] ^ 1], 50).unwrap();
    tried.plan.lock().clear();
    eventually(|| replica.store().quarantined().iter().any(|file| file.id == damaged.id)).await;
    let backup = tried.begin(1).await;
    let ended = tried.end(backup).await;
    assert_eq!(ended.phase, Phase::Complete, "{}", ended.reason);
    let manifest = tried.check(backup).await;
    let gone = tried.nodes[0].0.shared.identity.node;
    assert_eq!(manifest.absent.iter().map(|absent| absent.node).collect::<Vec<_>>(), [gone]);
    let key = format!("{}/{}", tried.cluster, layout::file(&damaged.hash, None));
    assert_eq!(tried.bucket.head(&key).await.unwrap(), None);
    tried.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_goes_on_without_a_node_that_is_down_and_with_another_driver() {
    let mut tried = start().await;
    tried.write(0..20).await;
    // Its driver comes as far as the parts, and no further.
    *tried.plan.lock() = vec![(Call::Create, "part/", Fault::Unreachable)];
    let backup = tried.begin(2).await;
    eventually(|| tried.archive(0).part_progress(backup).is_some_and(|part| !part.trouble.is_empty())).await;
    let (driver, _) = tried.nodes.pop().unwrap();
    let gone = driver.shared.identity.node;
    driver.stop().await.unwrap();
    tried.plan.lock().clear();
    let ended = tried.end(backup).await;
    assert_eq!(ended.phase, Phase::Complete, "{}", ended.reason);
    assert_ne!(ended.driver, gone);
    let manifest = tried.check(backup).await;
    assert_eq!(manifest.absent.iter().map(|absent| absent.node).collect::<Vec<_>>(), [gone]);
    tried.stop().await;
}

/// Nothing that a node does needs the right to delete, and nothing is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_waits_goes_on_and_is_given_up_without_the_right_to_delete() {
    let tried = start().await;
    *tried.plan.lock() = vec![(Call::Delete, "", Fault::Denied), (Call::Create, "part/", Fault::Unreachable)];
    tried.write(0..10).await;
    let mut client = backup_client(&tried.nodes[1].1).await;
    let id = |backup: uuid::Uuid| Bytes::copy_from_slice(backup.as_bytes());
    let (first, second) = (tried.begin(0).await, tried.begin(0).await);
    let paused = client.pause_backup(v1::PauseBackupRequest { backup: id(first) }).await.unwrap().into_inner();
    assert_eq!(paused.phase(), v1::BackupPhase::Paused);
    client.cancel_backup(v1::CancelBackupRequest { backup: id(second) }).await.unwrap();
    tried.plan.lock().pop();
    assert_eq!(tried.end(second).await.phase, Phase::Cancelled);
    let again = client.resume_backup(v1::ResumeBackupRequest { backup: id(second) }).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    let resumed = client.resume_backup(v1::ResumeBackupRequest { backup: id(first) }).await.unwrap().into_inner();
    assert_eq!(resumed.phase(), v1::BackupPhase::Running);
    assert_eq!(tried.end(first).await.phase, Phase::Complete);
    tried.check(first).await;
    assert!(!tried.bucket.take_calls().iter().any(|(call, _)| *call == Call::Delete));
    let listed = client.list_backups(v1::ListBackupsRequest {}).await.unwrap().into_inner().backups;
    assert_eq!(listed.len(), 1);
    tried.stop().await;
}
