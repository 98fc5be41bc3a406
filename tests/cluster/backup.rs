//! Backups of real nodes to a real S3 server, over HTTP, that grants no right to delete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tokio::net::TcpListener;
use trefoil_client::{Client, SnapshotOf};
use trefoil_proto::v1::{BackupJob, BackupPhase, Consistency};
use trefoil_s3::local::{Credentials, HttpFault, LocalS3, Request};
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::process::Settings;
use crate::wait::until;

const BUCKET: &str = "backups";
const KEYS: [&str; 2] = ["anybody", "a secret of the test"];

/// A bucket, and how often somebody wanted to delete.
struct Store {
    server: LocalS3,
    deletes: Arc<AtomicU64>,
    _directory: TempDir,
}

impl Store {
    async fn start() -> Store {
        let directory = tempfile::tempdir().unwrap();
        LocalS3::make_bucket(directory.path(), BUCKET).unwrap();
        let deletes = Arc::<AtomicU64>::default();
        let counted = deletes.clone();
        let hook = move |request: &Request| {
            let is_delete = request.method.as_str() == "DELETE";
            is_delete.then(|| {
                counted.fetch_add(1, Ordering::Relaxed);
                HttpFault::Answers(403, "AccessDenied")
            })
        };
        let credentials = Credentials { access_key: KEYS[0].to_owned(), secret_key: KEYS[1].to_owned() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = LocalS3::serve(listener, directory.path(), &credentials, Some(Arc::new(hook))).unwrap();
        Store { server, deletes, _directory: directory }
    }

    /// Three nodes that back up to it.
    async fn cluster(&self) -> Cluster {
        let backup = format!(
            "[backup]\nendpoint = \"{}\"\nregion = \"eu-west-1\"\nbucket = \"{BUCKET}\"\nprefix = \"trefoil/test\"\n\
             path_style = true\nlog_every_s = 5\nevery_h = 0\nabsent_after_s = 5\n",
            self.server.endpoint()
        );
        let replication = "report_ms = 200\nclosed_behind_s = 2\n".to_owned();
        let mut cluster = Cluster::prepare(1, Settings { backup, replication, ..Settings::default() });
        for id in cluster.ids() {
            cluster.node_mut(id).set_variable("AWS_ACCESS_KEY_ID", KEYS[0]);
            cluster.node_mut(id).set_variable("AWS_SECRET_ACCESS_KEY", KEYS[1]);
        }
        cluster.begin().await;
        cluster
    }
}

async fn client(cluster: &Cluster, id: u32) -> Client {
    Client::builder([cluster.node(id).place.client.to_string()]).connect().await.unwrap()
}

/// Waits until the backup is over, as node `id` tells.
async fn end(cluster: &Cluster, id: u32, backup: Uuid) -> BackupJob {
    let client = client(cluster, id).await;
    until("the backup is over", async || {
        let jobs = client.backup_status(Some(backup)).await.map_err(|error| error.to_string())?;
        match jobs.into_iter().next() {
            Some(job) if !matches!(job.phase(), BackupPhase::Running | BackupPhase::Paused) => Ok(job),
            job => Err(format!("{job:?}")),
        }
    })
    .await
}

/// The node that sees to a backup is killed, starts again and goes on; meanwhile the others are written to. In the end there are
/// two complete backups, and nobody has wanted to delete anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_become_complete_though_their_driver_is_killed() {
    let store = Store::start().await;
    let mut cluster = store.cluster().await;
    let door = cluster.door(1);
    for key in 0..100 {
        door.write(key, key, Consistency::Quorum).await.unwrap();
    }
    let begin = async |cluster: &Cluster, id: u32| {
        let job = client(cluster, id).await.create_backup("a name", "a tag", SnapshotOf::All).await.unwrap();
        Uuid::from_slice(&job.backup).unwrap()
    };
    let whole = begin(&cluster, 1).await;
    let job = end(&cluster, 2, whole).await;
    assert_eq!(job.phase(), BackupPhase::Complete, "{job:?}");
    let killed = begin(&cluster, 3).await;
    cluster.kill(3);
    for key in 100..120 {
        door.write(key, key, Consistency::Quorum).await.unwrap();
    }
    cluster.start_one(3).await;
    let job = end(&cluster, 1, killed).await;
    assert_eq!(job.phase(), BackupPhase::Complete, "{job:?}");
    let listed = client(&cluster, 2).await.backups_complete().await.unwrap();
    let ids: Vec<Uuid> = listed.iter().map(|backup| Uuid::from_slice(&backup.backup).unwrap()).collect();
    assert_eq!(ids, [whole, killed]);
    assert!(listed.iter().all(|backup| backup.name == "a name" && backup.tag == "a tag" && backup.absent <= 1));
    let location = client(&cluster, 2).await.backup_location().await.unwrap();
    let place = location.place.unwrap_or_default();
    assert_eq!((place.bucket.as_str(), place.prefix.as_str()), (BUCKET, "trefoil/test"));
    assert_eq!(store.deletes.load(Ordering::Relaxed), 0);
}
