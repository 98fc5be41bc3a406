//! Any node ends at any step of a backup or of a restore, as steps are seen from the bucket: requests of it fail, the node is
//! killed, the bucket serves again, the node starts. By default each step has one victim; `TREFOIL_STEPS=all` has each node be
//! the victim at each step.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use trefoil::backup::{Index, Manifest, Part, Piece, layout};
use trefoil_client::Client;
use trefoil_proto::v1::backup_client::BackupClient;
use trefoil_proto::v1::restore_request::{What, When};
use trefoil_proto::v1::{BackupPhase, BackupStatusRequest, CreateBackupRequest, RestoreRequest};
use trefoil_s3::local::HttpFault;

use crate::bucket::Bucket;
use crate::door::timed;
use crate::restore::{Past, app_kv, text};
use crate::wait::until;

/// What a backup writes, in this order.
const WRITES: [&str; 6] = ["/intent/", "/log/", "/obj/", "/part/", "/backup/", "/index"];

/// What a restore reads, in this order.
const READS: [&str; 5] = ["/index", "/backup/", "/part/", "/obj/", "/log/"];

/// Each step with who ends at it.
fn victims(steps: &[&'static str]) -> Vec<(&'static str, u32)> {
    let all = std::env::var("TREFOIL_STEPS").is_ok_and(|which| which == "all");
    let of_one = |(at, step): (usize, &&'static str)| {
        let victims = if all { 1..=3 } else { 1 + at as u32 % 3..=1 + at as u32 % 3 };
        victims.map(|victim| (*step, victim)).collect::<Vec<_>>()
    };
    steps.iter().enumerate().flat_map(of_one).collect()
}

/// From now on the requests of one step fail, so that nothing gets beyond it; says whether one has come.
fn stop_at(bucket: &Bucket, method: &'static str, step: &'static str) -> Arc<AtomicBool> {
    let reached = Arc::<AtomicBool>::default();
    let seen = reached.clone();
    bucket.fail(move |request| {
        let is_it = request.method.as_str() == method && request.path.contains(step);
        is_it.then(|| {
            seen.store(true, Relaxed);
            HttpFault::Closes
        })
    });
    reached
}

async fn reached(step: &str, reached: &AtomicBool) {
    until(&format!("{step} is asked for"), async || if reached.load(Relaxed) { Ok(()) } else { Err("it is not") })
        .await;
}

/// Every object of every complete backup is there and says what it should.
fn check(past: &Past) {
    let object = |key: &str| past.bucket.object(&format!("{}/{key}", past.id)).unwrap_or_else(|| panic!("no {key}"));
    for entry in Index::decode(&object(layout::INDEX)).unwrap().entries {
        let key = layout::backup(entry.backup);
        let manifest = Manifest::decode(&key, &object(&key)).unwrap();
        for listed in &manifest.parts {
            let key = layout::part(entry.backup, listed.node);
            let part = Part::decode(&key, &object(&key)).unwrap();
            part.files.iter().for_each(|file| assert_eq!(object(&file.key()).len() as u64, file.meta.bytes));
        }
        for listed in &manifest.pieces {
            let key = layout::piece(listed.node, listed.number);
            Piece::decode(&key, &object(&key)).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_survives_the_end_of_a_node_at_every_step() {
    let mut past = Past::begin().await;
    for (step, victim) in victims(&WRITES) {
        past.live(20).await;
        past.cluster.door(victim).flush(victim).await;
        let reached_it = stop_at(&past.bucket, "PUT", step);
        // Whoever is asked writes the intent, and may end over it.
        let by = 1 + victim % 3;
        let door = past.cluster.door(by);
        let asking = tokio::spawn(async move {
            BackupClient::new(door.channel()).create_backup(timed(CreateBackupRequest::default())).await
        });
        reached(step, &reached_it).await;
        past.cluster.kill(victim);
        past.bucket.fail(|_| None);
        past.cluster.start_one(victim).await;
        let begun = match asking.await.unwrap() {
            Ok(begun) => begun.into_inner().backup,
            Err(status) => panic!("{step}: node {by} was there all the time: {status}"),
        };
        let client = past.cluster.door(by);
        let job = until("the backup is over", async || {
            let asked = BackupStatusRequest { backup: begun.clone() };
            let jobs = BackupClient::new(client.channel()).backup_status(timed(asked)).await.map_err(text)?;
            let job = jobs.into_inner().jobs.into_iter().next().ok_or("it is not known yet")?;
            match job.phase() {
                BackupPhase::Running | BackupPhase::Paused => Err(format!("{job:?}")),
                _ => Ok(job),
            }
        })
        .await;
        assert_eq!(job.phase(), BackupPhase::Complete, "{step}, node {victim}: {job:?}");
        check(&past);
    }
    let (at, then) = past.moment();
    past.archived(at).await;
    restored(&past, "all_of_it", at).await;
    assert!(found(&past, "all_of_it").await == then);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_survives_the_end_of_a_node_at_every_step() {
    let mut past = Past::begin().await;
    past.live(150).await;
    past.back_up().await;
    past.live(50).await;
    let (at, then) = past.moment();
    past.archived(at).await;
    for (number, (step, victim)) in victims(&READS).into_iter().enumerate() {
        let name = format!("again_{number}");
        let reached_it = stop_at(&past.bucket, "GET", step);
        // Another node is asked than the one that ends: it plans, every node loads.
        let by = 1 + victim % 3;
        let asked = Client::connect(past.cluster.node(by).place.client.to_string()).await.unwrap();
        let ordered = request(&past, &name, at);
        let asking = tokio::spawn(async move { asked.run_restore(ordered).await });
        reached(step, &reached_it).await;
        past.cluster.kill(victim);
        past.bucket.fail(|_| None);
        past.cluster.start_one(victim).await;
        // Who plans may have given up meanwhile, having made nothing, or be at it.
        if asking.await.unwrap().is_err() {
            until("the restore is begun", async || {
                let again = client(&past).await.run_restore(request(&past, &name, at)).await.map(drop).map_err(text);
                again.or_else(|error| if error.contains("exists already") { Ok(()) } else { Err(error) })
            })
            .await;
        }
        done(&past).await;
        assert!(found(&past, &name).await == then, "{step}, node {victim}");
    }
}

fn request(past: &Past, name: &str, at: i64) -> RestoreRequest {
    RestoreRequest { table_as: name.to_owned(), ..past.request(What::Table(app_kv()), When::AtUs(at)) }
}

async fn client(past: &Past) -> Client {
    Client::connect(past.cluster.endpoints().remove(0)).await.unwrap()
}

async fn restored(past: &Past, name: &str, at: i64) {
    client(past).await.run_restore(request(past, name, at)).await.unwrap();
    done(past).await;
}

async fn done(past: &Past) {
    let client = client(past).await;
    until("no restore is under way", async || {
        let restores = client.restores(None).await.map_err(text)?;
        if restores.is_empty() { Ok(()) } else { Err(format!("{restores:?}")) }
    })
    .await;
}

/// What a table holds that was restored.
async fn found(past: &Past, name: &str) -> crate::restore::Model {
    let client = client(past).await;
    let rows = client.select(format!("app.{name}")).all().await.unwrap();
    rows.iter().map(|row| (row.get("k").unwrap(), row.get("v").unwrap())).collect()
}
