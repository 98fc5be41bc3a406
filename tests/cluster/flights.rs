//! Real data comes back: all flights are loaded and backed up, a month of them is deleted by mistake, and the table as it was
//! before is restored under another name and compared with the file, line by line.
//!
//! `TREFOIL_FLIGHTS=flights.csv cargo test -p trefoil-server --test cluster flights -- --nocapture` takes them from that file,
//! all 336,776 of them, and prints what docs/performance.md tells; without the variable it is the sample of 3,007.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, TryStreamExt, stream};
use trefoil_client::{Client, Consistency, Row, Select, SnapshotOf, Write};
use trefoil_proto::v1::restore_request::{What, When};
use trefoil_proto::v1::{BackupPhase, RestoreRequest, TableRef};
use uuid::Uuid;

use crate::bucket::Bucket;
use crate::cluster::Cluster;
use crate::wait::until;

const SAMPLE: &str = include_str!("../data/flights-sample.csv");
const SCHEMA: &str = include_str!("../data/flights.cql");

const LIVE: &str = "demo.flights";
const RESTORED: &str = "demo.flights_before";

/// Columns that hold text; `time_hour` is an instant, all others are whole numbers.
const TEXTS: [&str; 4] = ["carrier", "tailnum", "origin", "dest"];
const KEY: [&str; 7] = ["origin", "year", "month", "day", "sched_dep_time", "carrier", "flight"];

/// What stands for a value that is missing.
const MISSING: &str = "NA";

/// The month that goes.
const MONTH: &str = "7";

/// Writes under way at once.
const IN_FLIGHT: usize = 256;

/// A file without quotes: its first line names the columns.
struct Flights {
    columns: Vec<String>,
    lines: Vec<Vec<String>>,
}

impl Flights {
    fn read() -> Flights {
        let named = std::env::var("TREFOIL_FLIGHTS").ok().map(|file| std::fs::read_to_string(file).unwrap());
        let text = named.as_deref().unwrap_or(SAMPLE);
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect());
        Flights { columns: lines.next().unwrap(), lines: lines.collect() }
    }

    fn field<'a>(&self, line: &'a [String], column: &str) -> &'a str {
        &line[self.columns.iter().position(|name| name == column).unwrap()]
    }

    fn is_of_month(&self, line: &[String]) -> bool {
        self.field(line, "month") == MONTH
    }

    /// A line as a row to be written.
    fn write(&self, client: &Client, line: &[String]) -> Write {
        let fields = self.columns.iter().zip(line).filter(|(_, text)| *text != MISSING);
        fields.fold(client.insert(LIVE), |write, (column, text)| match column.as_str() {
            column if TEXTS.contains(&column) => write.value(column, text.as_str()),
            "time_hour" => write.value("time_hour", instant_ms(text)),
            column => write.value(column, text.parse::<i64>().unwrap()),
        })
    }

    /// The row of a line, in a table.
    fn select(&self, client: &Client, table: &str, line: &[String]) -> Select {
        KEY.iter().fold(client.select(table), |select, column| {
            let text = self.field(line, column);
            if TEXTS.contains(column) {
                select.key(*column, text)
            } else {
                select.key(*column, text.parse::<i64>().unwrap())
            }
        })
    }

    /// A row as the line that it came from.
    fn line_of(&self, row: &Row) -> Vec<String> {
        let field = |column: &String| match column.as_str() {
            column if TEXTS.contains(&column) => row.get::<Option<String>>(column).unwrap(),
            column => row.get::<Option<i64>>(column).unwrap().map(|number| number.to_string()),
        };
        self.columns.iter().map(|column| field(column).unwrap_or_else(|| MISSING.to_owned())).collect()
    }

    /// A line with its instant as a number, as rows have it.
    fn expected(&self, line: &[String]) -> Vec<String> {
        let mut line = line.to_vec();
        let at = self.columns.iter().position(|name| name == "time_hour").unwrap();
        line[at] = instant_ms(&line[at]).to_string();
        line
    }
}

/// Milliseconds since 1970 of an instant of 2013 or 2014 such as `2013-01-01T10:00:00Z`.
fn instant_ms(text: &str) -> i64 {
    const DAYS_BEFORE_MONTH: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    const DAYS_BEFORE_2013: i64 = 15_706;
    let field = |range: std::ops::Range<usize>| text[range].parse::<i64>().unwrap();
    let days =
        DAYS_BEFORE_2013 + (field(0..4) - 2013) * 365 + DAYS_BEFORE_MONTH[field(5..7) as usize - 1] + field(8..10) - 1;
    (((days * 24 + field(11..13)) * 60 + field(14..16)) * 60 + field(17..19)) * 1_000
}

fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// Every row of a table, counted by line.
async fn rows(client: &Client, table: &str, flights: &Flights) -> BTreeMap<Vec<String>, u64> {
    let mut counted = BTreeMap::new();
    let mut rows = client.select(table).stream();
    while let Some(row) = rows.next().await {
        *counted.entry(flights.line_of(&row.unwrap())).or_default() += 1;
    }
    counted
}

async fn back_up(client: &Client) {
    let begun = client.create_backup("flights", "", SnapshotOf::All).await.unwrap();
    let backup = Uuid::from_slice(&begun.backup).unwrap();
    until("the backup is complete", async || {
        let job = client.backup_status(Some(backup)).await.map_err(text)?.remove(0);
        if job.phase() == BackupPhase::Complete { Ok(()) } else { Err(format!("{job:?}")) }
    })
    .await;
}

async fn delete_the_month(client: &Client) {
    for origin in ["EWR", "JFK", "LGA"] {
        let month = MONTH.parse::<i64>().unwrap();
        client.delete(LIVE).key("origin", origin).key("year", 2013).key("month", month).send().await.unwrap();
    }
}

/// The story that the operator's handbook tells, with the clock in hand.
#[tokio::test(flavor = "multi_thread")]
async fn all_flights_come_back_after_a_wrong_delete() {
    let flights = Flights::read();
    let wanted: BTreeMap<Vec<String>, u64> = flights.lines.iter().map(|line| (flights.expected(line), 1)).collect();
    assert_eq!(wanted.len(), flights.lines.len(), "two lines are one flight");
    let bucket = Bucket::serve().await;
    let cluster = Cluster::start_with(1, bucket.settings()).await;
    let client = Client::builder(cluster.endpoints()).consistency(Consistency::Quorum).connect().await.unwrap();
    for statement in trefoil::cql::parse(SCHEMA).unwrap() {
        client.apply(&statement).await.unwrap();
    }
    let started = Instant::now();
    let writes = flights.lines.iter().map(|line| flights.write(&client, line).send());
    stream::iter(writes).buffer_unordered(IN_FLIGHT).try_for_each(async |_| Ok(())).await.unwrap();
    let loaded = started.elapsed();

    let started = Instant::now();
    back_up(&client).await;
    let backed_up = started.elapsed();
    let before_us = now_us();
    delete_the_month(&client).await;
    let stays = |line: &&Vec<String>| !flights.is_of_month(line);
    let left = flights.lines.iter().filter(stays).map(|line| (flights.expected(line), 1)).collect();
    assert!(wanted.len() > BTreeMap::len(&left));
    assert!(rows(&client, LIVE, &flights).await == left, "the deletion took another month");

    let asked = RestoreRequest {
        what: Some(What::Table(TableRef { keyspace: "demo".into(), name: "flights".into(), ..TableRef::default() })),
        when: Some(When::AtUs(before_us)),
        table_as: "flights_before".into(),
        ..RestoreRequest::default()
    };
    until("the archive reaches the moment", async || client.plan_restore(asked.clone()).await.map(drop).map_err(text))
        .await;
    let deleted = flights.lines.iter().find(|line| flights.is_of_month(line)).unwrap();
    let started = Instant::now();
    let began = client.run_restore(asked).await.unwrap();
    let (first, read) = until("a flight that was deleted is read", async || {
        let row = flights.select(&client, RESTORED, deleted).one().await.map_err(text)?;
        Ok::<_, String>((started.elapsed(), row.map(|row| flights.line_of(&row))))
    })
    .await;
    assert_eq!(read, Some(flights.expected(deleted)));
    assert!(rows(&client, RESTORED, &flights).await == wanted, "not every flight came back as it was");
    println!(
        "{} flights: loaded in {loaded:?}, backed up in {backed_up:?}, first correct read {first:?} after the order; {:?}",
        wanted.len(),
        began.plan.map(|plan| (plan.fetched_bytes, plan.requests, plan.objects)),
    );
}
