//! How fast files come into the bucket and a table comes back, beside the same objects put and got by the library alone.
//!
//! The bucket is stopped while rows are written and files are made of them; then it goes on, and everything is uploaded at
//! once. That ends with the last file, as the server dates it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use trefoil_client::Client;
use trefoil_proto::v1::restore_request::{What, When};
use trefoil_proto::v1::{RestorePlan, RestoreRequest, TableRef};
use uuid::Uuid;

use super::bucket::{Bucket, Stored};
use super::plain::Plain;
use super::{KEYSPACE, LOOK_AGAIN, Options, Side, TABLE, await_backup, begin_backup, foreground};
use crate::cluster::load::{Load, LoopPlan};
use crate::report::{Digits, Goal, Grid, Report};
use crate::sample::Spread;
use crate::{Result, cpu, data};

/// Three nodes with four files each under way; four workers each read at a restore.
const AT_ONCE: usize = 12;

/// Callers that write what is to be uploaded.
const WRITERS: usize = 256;

/// How long a restore may take.
const RESTORE_PATIENCE: Duration = Duration::from_secs(120);

/// One transfer: of ours, and of the library.
struct Transfer {
    bytes: u64,
    ours: Duration,
    plain_bytes: u64,
    plain: Duration,
    /// CPU of the nodes.
    cpu: Duration,
}

impl Transfer {
    fn rate(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.ours.as_secs_f64().max(1e-9)
    }

    fn plain_rate(&self) -> f64 {
        self.plain_bytes as f64 / 1e6 / self.plain.as_secs_f64().max(1e-9)
    }
}

/// Rounds of uploads, then of restores.
pub(super) fn measure(
    options: &Options,
    bucket: &Bucket,
    kept: &mut Side,
    bare: &Side,
    report: &mut Report,
) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let plain = Plain::new(bucket, AT_ONCE);
    let mut uploads = Vec::new();
    for number in 0..options.transfers {
        let (mut upload, objects) = upload(options, bucket, kept)?;
        upload.plain = runtime.block_on(plain.put(&objects, &format!("plain-{number}")))?;
        upload.plain_bytes = objects.iter().map(|object| object.bytes).sum();
        uploads.push(upload);
    }
    let backup = kept.runtime.block_on(begin_backup(&kept.client))?;
    kept.runtime.block_on(await_backup(&kept.client, backup))?;
    let asked = RestoreRequest {
        place: Some(bucket.place()),
        cluster: kept.runtime.block_on(kept.client.status())?.cluster_id,
        what: Some(What::Table(TableRef { keyspace: KEYSPACE.into(), name: TABLE.into(), ..TableRef::default() })),
        when: Some(When::Cut(true)),
        ..RestoreRequest::default()
    };
    let (mut restores, mut firsts) = (Vec::new(), Vec::new());
    for number in 0..options.transfers {
        let (mut restore, first) = restore(&asked, bare, &format!("restored_{number}"))?;
        let some = enough(bucket.objects("/obj/")?, restore.bytes);
        (restore.plain, restore.plain_bytes) = runtime.block_on(plain.get(&some))?;
        restores.push(restore);
        firsts.push(first.as_secs_f64());
    }
    list(&uploads, &restores, report);
    let first = Spread::of(firsts);
    let rows = kept.rows.load(Ordering::Relaxed);
    report.fact(format!(
        "a table of {rows} rows: first correct read {:.1} s ({:.1} to {:.1}) after the order to restore",
        first.median, first.min, first.max
    ));
    Ok(())
}

/// Everything that was made while the bucket stood still.
fn upload(options: &Options, bucket: &Bucket, kept: &mut Side) -> Result<(Transfer, Vec<Stored>)> {
    kept.cluster.await_rest(&[])?;
    bucket.pause()?;
    let plan = LoopPlan {
        in_flight: WRITERS,
        warm_up: Duration::ZERO,
        window: options.load,
        pause: Duration::ZERO,
        nodes: kept.cluster.pids(),
    };
    let made = foreground::write_for(kept, &plan, &mut Load::new()?)
        .and_then(|()| kept.flush())
        .and_then(|()| kept.cluster.await_rest(&["trefoil_backup_files_waiting"]));
    let (begun, cpu_before) = (SystemTime::now(), cpu::of_processes(&kept.cluster.pids())?);
    bucket.resume()?;
    made?;
    // The first look may fall between two passes over the files.
    std::thread::sleep(Duration::from_secs(1));
    kept.cluster.await_rest(&[])?;
    let cpu = cpu::of_processes(&kept.cluster.pids())? - cpu_before;
    let is_new = |object: &Stored| object.at >= begun;
    let files: Vec<Stored> = bucket.objects("/obj/")?.into_iter().filter(is_new).collect();
    let ended = files.iter().map(|object| object.at).max().ok_or("nothing was uploaded")?;
    let logs = bucket.objects("/log/")?.into_iter().filter(|object| is_new(object) && object.at <= ended);
    let objects: Vec<Stored> = files.iter().cloned().chain(logs).collect();
    let bytes = objects.iter().map(|object| object.bytes).sum();
    let ours = ended.duration_since(begun)?;
    Ok((Transfer { bytes, ours, plain_bytes: 0, plain: Duration::ZERO, cpu }, objects))
}

/// The table under another name in a cluster that does not back up; and how long it took until a row was read.
fn restore(asked: &RestoreRequest, to: &Side, name: &str) -> Result<(Transfer, Duration)> {
    to.cluster.await_rest(&[])?;
    let asked = RestoreRequest { table_as: name.to_owned(), ..asked.clone() };
    let (client, pids) = (to.client.clone(), to.cluster.pids());
    to.runtime
        .block_on(async {
            let (started, cpu_before) = (Instant::now(), cpu::of_processes(&pids)?);
            let began = client.run_restore(asked).await?;
            let first = first_read(&client, &format!("{KEYSPACE}.{name}"), started).await?;
            let restore = Uuid::from_slice(&began.restore)?;
            while !client.restores(Some(restore)).await?.is_empty() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            let (ours, cpu) = (started.elapsed(), cpu::of_processes(&pids)? - cpu_before);
            let RestorePlan { fetched_bytes: bytes, .. } = began.plan.unwrap_or_default();
            Ok((Transfer { bytes, ours, plain_bytes: 0, plain: Duration::ZERO, cpu }, first))
        })
        .map_err(|error| to.told(error))
}

async fn first_read(client: &Client, table: &str, started: Instant) -> Result<Duration> {
    loop {
        let read = client.select(table).key("k", 0_i64).one().await;
        match read {
            Ok(Some(row)) if row.bytes("v")? == Some(data::value(0)) => return Ok(started.elapsed()),
            Ok(other) => return Err(format!("row 0 of {table} came back as {other:?}").into()),
            Err(error) if started.elapsed() > RESTORE_PATIENCE => return Err(error.into()),
            Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

/// The newest objects that have so many bytes together.
fn enough(mut objects: Vec<Stored>, bytes: u64) -> Vec<Stored> {
    objects.sort_by_key(|object| std::cmp::Reverse(object.at));
    let mut sum = 0;
    let taken = objects.into_iter().take_while(|object| {
        let is_wanted = sum < bytes;
        sum += object.bytes;
        is_wanted
    });
    taken.collect()
}

fn list(uploads: &[Transfer], restores: &[Transfer], report: &mut Report) {
    let ratio = |all: &[Transfer]| Spread::of(all.iter().map(|one| one.rate() / one.plain_rate()));
    let what = "backup of all files at once, bytes a second ÷ plain PUT of the same objects, 12 at once";
    report.goal(what.into(), ratio(uploads), Goal::AtLeast(0.8));
    let what = "restore of a table, bytes fetched a second ÷ plain GET, 12 at once";
    report.goal(what.into(), ratio(restores), Goal::AtLeast(0.8));
    let columns = vec![
        ("MB a second", Digits::Two),
        ("plain, MB a second", Digits::Two),
        ("MB", Digits::Two),
        ("seconds", Digits::Two),
        ("CPU of the nodes, seconds", Digits::Two),
    ];
    let mut grid = Grid::new("To and from the bucket".to_owned(), columns);
    for (what, all) in [("backup of all files at once", uploads), ("restore of a table to three nodes", restores)] {
        let of = |figure: fn(&Transfer) -> f64| Spread::of(all.iter().map(figure));
        let figures = vec![
            of(Transfer::rate),
            of(Transfer::plain_rate),
            of(|one| one.bytes as f64 / 1e6),
            of(|one| one.ours.as_secs_f64()),
            of(|one| one.cpu.as_secs_f64()),
        ];
        grid.row(what, figures);
    }
    report.grid(grid);
}
