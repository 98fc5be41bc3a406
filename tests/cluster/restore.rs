//! What was backed up comes back: in any shape, as of any moment, whole or a table of it; and what is damaged is refused.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use tonic::Code;
use trefoil_client::Client;
use trefoil_proto::v1::Consistency::{All, Quorum};
use trefoil_proto::v1::backup_client::BackupClient;
use trefoil_proto::v1::change::Op;
use trefoil_proto::v1::restore_request::{What, When};
use trefoil_proto::v1::{
    BackupJob, BackupPhase, BackupStatusRequest, Change, CreateBackupRequest, MutateRequest, Mutation, RestoreRegion,
    RestoreRequest, RowRef, TableRef,
};
use trefoil_s3::local::HttpFault;
use uuid::Uuid;

use crate::bucket::Bucket;
use crate::cluster::Cluster;
use crate::door::{Door, options, table, timed, value};
use crate::process::Settings;
use crate::wait::until;

/// What a table should hold.
pub type Model = BTreeMap<i64, i64>;

/// A cluster with data, a bucket, and what the data was at some moments.
pub struct Past {
    pub bucket: Bucket,
    pub cluster: Cluster,
    pub id: Uuid,
    pub model: Model,
    steps: u64,
}

impl Past {
    pub async fn begin() -> Past {
        let bucket = Bucket::serve().await;
        let cluster = Cluster::start_with(1, bucket.settings()).await;
        let id = cluster_id(&cluster).await;
        Past { bucket, cluster, id, model: Model::new(), steps: 0 }
    }

    /// Writes, overwrites and deletes, each acknowledged at a quorum; nodes take turns.
    pub async fn live(&mut self, steps: u64) {
        for _ in 0..steps {
            self.steps += 1;
            let noise = self.steps.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            let (key, door) = ((noise % 200) as i64, self.cluster.door(1 + (self.steps % 3) as u32));
            if noise.is_multiple_of(4) {
                delete(&door, key).await;
                self.model.remove(&key);
            } else {
                let new = self.steps as i64;
                until("the write is acknowledged", async || door.write(key, new, Quorum).await.map_err(text)).await;
                self.model.insert(key, new);
            }
        }
    }

    /// A moment later than everything so far, and what there was at it.
    pub fn moment(&self) -> (i64, Model) {
        (now_us(), self.model.clone())
    }

    pub async fn back_up(&self) -> BackupJob {
        let door = self.cluster.door(1);
        let mut client = BackupClient::new(door.channel());
        let begun = client.create_backup(timed(CreateBackupRequest::default())).await.unwrap().into_inner();
        until("the backup is complete", async || {
            let asked = BackupStatusRequest { backup: begun.backup.clone() };
            let job = client.backup_status(timed(asked)).await.map_err(text)?.into_inner().jobs.remove(0);
            if job.phase() == BackupPhase::Complete { Ok(job) } else { Err(format!("{job:?}")) }
        })
        .await
    }

    pub fn request(&self, what: What, when: When) -> RestoreRequest {
        RestoreRequest {
            place: Some(self.bucket.place()),
            cluster: self.id.as_bytes().to_vec().into(),
            what: Some(what),
            when: Some(when),
            ..RestoreRequest::default()
        }
    }

    /// Waits until the archive reaches this moment.
    pub async fn archived(&self, at_us: i64) {
        let asked = self.request(What::Table(app_kv()), When::AtUs(at_us));
        let asked = RestoreRequest { table_as: "none".to_owned(), ..asked };
        let client = Client::connect(self.cluster.endpoints().remove(0)).await.unwrap();
        until("the archive reaches the moment", async || {
            client.plan_restore(asked.clone()).await.map(drop).map_err(text)
        })
        .await;
    }
}

pub fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64
}

pub fn app_kv() -> TableRef {
    table().unwrap()
}

async fn cluster_id(cluster: &Cluster) -> Uuid {
    let client = Client::connect(cluster.endpoints().remove(0)).await.unwrap();
    Uuid::from_slice(&client.status().await.unwrap().cluster_id).unwrap()
}

async fn delete(door: &Door, key: i64) {
    use trefoil_proto::v1::value::Kind;
    let change = Change { op: Some(Op::DeleteRow(RowRef::default())), ..Change::default() };
    let mutation = Mutation { table: table(), partition: vec![value(Kind::Integer(key))], changes: vec![change] };
    let request = MutateRequest { options: options(Quorum), mutation: Some(mutation) };
    until("the deletion is acknowledged", async || door.mutate(request.clone()).await.map_err(text)).await;
}

/// An empty cluster with a node in each of these zones.
pub async fn empty(past: &Past, zones: &[&str], settings: Settings) -> Cluster {
    let settings = Settings { cluster_name: "again".to_owned(), backup: past.bucket.settings().backup, ..settings };
    let mut cluster = Cluster::prepare_in(zones, settings);
    cluster.start_all().await;
    cluster
}

/// Restores, and returns once the tables are open.
async fn restore(cluster: &Cluster, request: RestoreRequest) {
    let client = Client::connect(cluster.endpoints().remove(0)).await.unwrap();
    let began = client.run_restore(request).await.unwrap();
    let restore = Uuid::from_slice(&began.restore).unwrap();
    until("the restore is done", async || {
        let restores = client.restores(Some(restore)).await.map_err(text)?;
        if restores.is_empty() { Ok(()) } else { Err(format!("{restores:?}")) }
    })
    .await;
}

/// What every replica has, in the table of `SCHEMA`.
pub async fn rows(cluster: &Cluster) -> Model {
    let door = cluster.door(1);
    until("all replicas answer", async || door.scan(All).await.map_err(text)).await.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_comes_back_in_any_shape_as_of_any_moment() {
    let mut past = Past::begin().await;
    past.live(400).await;
    past.back_up().await;
    past.live(300).await;
    let (at, then) = past.moment();
    past.live(300).await;
    past.archived(at).await;
    let (last, model) = past.moment();
    past.archived(last).await;
    past.cluster.kill_all();

    let local = Settings::default();
    let same = empty(&past, &["a", "b", "c"], local.clone()).await;
    restore(&same, past.request(What::All(true), When::AtUs(at))).await;
    assert!(rows(&same).await == then, "as of a moment between two backups");
    drop(same);

    let two = empty(&past, &["a", "b"], local.clone()).await;
    restore(&two, past.request(What::All(true), When::AtUs(last))).await;
    assert!(rows(&two).await == model, "two zones");
    drop(two);

    let elsewhere = Settings { region: "elsewhere".to_owned(), vnodes: 16, ..local };
    let five = empty(&past, &["x", "y", "z", "x", "y"], elsewhere).await;
    restore(&five, past.request(What::All(true), When::Latest(true))).await;
    assert!(rows(&five).await == model, "five nodes, other zones, another region, other vnodes");
    five.door(1).write(1_000, 1, Quorum).await.unwrap();
    assert_eq!(five.door(2).read(1_000, Quorum).await.unwrap(), Some(1), "it is a cluster like any other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_comes_back_beside_the_one_that_lost_something() {
    let mut past = Past::begin().await;
    past.live(200).await;
    past.back_up().await;
    past.live(100).await;
    let (at, then) = past.moment();
    // The mistake.
    let keys: Vec<i64> = past.model.keys().copied().collect();
    for key in keys {
        delete(&past.cluster.door(1), key).await;
    }
    past.archived(at).await;
    let whole = past.request(What::All(true), When::AtUs(at));
    let client = Client::connect(past.cluster.endpoints().remove(0)).await.unwrap();
    let refused = client.plan_restore(whole).await.unwrap_err();
    assert!(refused.to_string().contains("without keyspaces"), "{refused}");
    let over = past.request(What::Table(app_kv()), When::AtUs(at));
    let refused = client.run_restore(over.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("exists already"), "{refused}");

    restore(&past.cluster, RestoreRequest { table_as: "before".to_owned(), ..over }).await;
    let found = client.select("app.before").all().await.unwrap();
    assert_eq!(found.len(), then.len());
    assert!(rows(&past.cluster).await.is_empty(), "the live table is as it was");
}

/// A region that keyspaces name must be there, by its name or another.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_goes_by_placement_and_regions_may_be_called_otherwise() {
    let mut past = Past::begin().await;
    let door = past.cluster.door(1);
    door.apply("CREATE KEYSPACE placed WITH replication = {'local': 3}").await.unwrap();
    door.apply("CREATE TABLE placed.t (k bigint PRIMARY KEY, v bigint)").await.unwrap();
    past.live(50).await;
    past.back_up().await;
    past.cluster.kill_all();

    let settings = Settings { region: "far".to_owned(), ..Settings::default() };
    let far = empty(&past, &["p", "q"], settings).await;
    let request = past.request(What::All(true), When::Cut(true));
    let client = Client::connect(far.endpoints().remove(0)).await.unwrap();
    let refused = client.run_restore(request.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("there is no region \"local\""), "{refused}");
    let region = RestoreRegion { old: "local".to_owned(), new: "far".to_owned(), copies: 2 };
    restore(&far, RestoreRequest { regions: vec![region], ..request }).await;
    assert!(rows(&far).await == past.model);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_or_missing_is_refused_by_name_before_anything_serves() {
    let mut past = Past::begin().await;
    past.live(200).await;
    past.back_up().await;
    past.cluster.kill_all();
    let fresh = empty(&past, &["a", "b", "c"], Settings::default()).await;
    let client = Client::connect(fresh.endpoints().remove(0)).await.unwrap();
    let request = past.request(What::All(true), When::Cut(true));
    client.plan_restore(request.clone()).await.unwrap();
    for part in ["/obj/", "/part/", "/backup/", "/index"] {
        let object = past.bucket.objects(part).into_iter().next().unwrap();
        let key: String = object.file_name().unwrap().to_string_lossy().chars().take(36).collect();
        let bytes = std::fs::read(&object).unwrap();
        let damages: [(&str, Option<Vec<u8>>); 2] =
            [("missing", None), ("cut short", Some(bytes[..bytes.len() / 2].to_vec()))];
        for (damage, left) in damages {
            match left {
                Some(left) => std::fs::write(&object, left).unwrap(),
                None => std::fs::remove_file(&object).unwrap(),
            }
            let refused = client.run_restore(request.clone()).await.expect_err(damage);
            let is_named = refused.to_string().contains(&key) || part == "/index";
            assert!(is_named, "{damage} {}: {refused}", object.display());
            assert_ne!(refused.code(), Code::Internal, "{refused}");
        }
        std::fs::write(&object, &bytes).unwrap();
    }
    assert!(client.schema().await.unwrap().keyspaces.is_empty(), "a refused restore made something");
    restore(&fresh, request).await;
    assert!(rows(&fresh).await == past.model);
}

/// Nothing but data and schema comes back: another id, other names.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_cluster_is_another_one() {
    let mut past = Past::begin().await;
    past.live(30).await;
    past.back_up().await;
    past.cluster.kill_all();
    let mut fresh = empty(&past, &["a", "b", "c"], Settings::default()).await;
    restore(&fresh, past.request(What::All(true), When::Cut(true))).await;
    assert_ne!(cluster_id(&fresh).await, past.id);
    for id in 1..=3 {
        fresh.kill(id);
        fresh.start_one(id).await;
    }
    assert!(rows(&fresh).await == past.model, "after every node was started again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_survives_the_end_of_any_node_and_a_bucket_that_is_busy() {
    let mut past = Past::begin().await;
    past.live(300).await;
    past.back_up().await;
    past.live(100).await;
    let (at, then) = past.moment();
    past.archived(at).await;
    past.cluster.kill_all();
    let mut fresh = empty(&past, &["a", "b", "c"], Settings::default()).await;
    let client = Client::connect(fresh.endpoints().remove(0)).await.unwrap();
    // Now and then the bucket does not serve.
    let asked = AtomicU64::new(0);
    past.bucket.fail(move |request| {
        let is_one = request.method == "GET" && asked.fetch_add(1, Relaxed) % 7 == 3;
        is_one.then_some(HttpFault::Answers(503, "SlowDown"))
    });
    // So slow that it is under way when nodes end.
    let request = RestoreRequest { bytes_per_s: 20_000, ..past.request(What::All(true), When::AtUs(at)) };
    let began = client.run_restore(request).await.unwrap();
    for id in [1, 3, 2] {
        fresh.kill(id);
        fresh.start_one(id).await;
    }
    let restore = Uuid::from_slice(&began.restore).unwrap();
    until("the restore is done", async || {
        let restores = client.restores(Some(restore)).await.map_err(text)?;
        if restores.is_empty() { Ok(()) } else { Err(format!("{restores:?}")) }
    })
    .await;
    assert!(rows(&fresh).await == then);
}
