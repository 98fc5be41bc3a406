//! A zone that is killed, and comes back, under a load that does not wait: requests begin at a fixed rate whatever becomes
//! of those before, and their time counts from when they were to begin.
//!
//! ```text
//! gunzip -c flights.csv.gz > flights.csv        # the whole of what tests/data/flights-sample.csv is a part of
//! TREFOIL_ZONE_FLIGHTS=flights.csv TREFOIL_ZONE_RATE=3000 cargo test --release -p trefoil-server --test cluster zone -- --nocapture
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use trefoil::model::Value;
use trefoil_client::Client;
use trefoil_proto::v1::Consistency::{One, Quorum};
use trefoil_proto::v1::TableRef;

use crate::cluster::Cluster;
use crate::door::table;
use crate::process::get;
use crate::verify::become_equal;
use crate::wait::until;

const SAMPLE: &str = include_str!("../data/flights-sample.csv");

/// The demo's keyspace and table.
const SCHEMA: &str = include_str!("../data/flights.cql");

/// Requests per second, unless `TREFOIL_ZONE_RATE` says otherwise.
const RATE: u32 = 300;

/// Of so many requests one may fail, or be sent more than twice.
const REQUESTS_PER_FAILURE: usize = 10_000;

/// Columns of flights that hold text; `time_hour` is a timestamp, and the others are numbers.
const TEXTS: [&str; 4] = ["carrier", "tailnum", "origin", "dest"];

/// The zone of the client, which is the one that dies: it has in flight there what it has in flight at all.
const ZONE: &str = "a";

/// Nobody sees more than one request of his sent a second time, and what the zone has missed comes to it by hints alone: of
/// flights nothing is read meanwhile, and nodes tell each other what they have once in a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_zone_that_dies_under_a_load_that_does_not_wait_shows_to_nobody() {
    let mut cluster = Cluster::start_taciturn().await;
    let schema: String = SCHEMA.lines().filter(|line| !line.starts_with("--")).collect();
    for statement in schema.split(';').filter(|statement| !statement.is_empty()) {
        cluster.door(1).apply(statement).await.unwrap();
    }
    let flights = Flights::load();
    let rate = std::env::var("TREFOIL_ZONE_RATE").map_or(RATE, |rate| rate.parse().unwrap());
    let client = Client::builder(cluster.endpoints()).zone(ZONE).consistency(Quorum).connect().await.unwrap();
    let load = Load::start(client.clone(), flights, rate);
    load.comes_to(load.total / 4).await;
    cluster.kill(1);
    load.comes_to(load.total / 4 * 3).await;
    cluster.start_one(1).await;
    let (total, work) = (load.total, load.work.clone());
    let failures = load.end().await;

    let (retried, retries) = (client.retried() as usize, client.retries() as usize);
    println!("{} of {total} requests failed, {retried} were sent again, {retries} times", failures.len());
    // Where the machine stops one of the others for seconds there is no quorum, and requests are sent until there is one.
    let apart =
        cluster.node(2).log().contains("link lost peer=3") || cluster.node(3).log().contains("link lost peer=2");
    if apart {
        println!("the nodes that live lost sight of each other: how often requests were sent is not looked at");
    }
    let sent_thrice = if apart { 0 } else { retries - retried };
    let noticed = failures.len() + sent_thrice;
    assert!(noticed <= total / REQUESTS_PER_FAILURE, "{retries} for {retried} requests, and {failures:#?}");
    let flights_table = TableRef { keyspace: "demo".to_owned(), name: "flights".to_owned(), ..TableRef::default() };
    for table in [Some(flights_table), table()] {
        become_equal(&cluster.door(2), table).await;
    }
    let delivered = hints_delivered(&cluster, 2).await + hints_delivered(&cluster, 3).await;
    println!("{delivered} hints were delivered");
    assert!(delivered as usize >= total / 6, "{delivered} hints, of what was written in half of the time");

    cluster.kill(2);
    cluster.kill(3);
    cluster.settled().await;
    let own = cluster.door(1).scan(One).await.unwrap();
    let acknowledged = work.acknowledged.lock().unwrap().clone();
    let lost = acknowledged.iter().filter(|key| own.binary_search(&(**key, **key)).is_err()).count();
    assert_eq!(lost, 0, "of {} acknowledged rows, at the node that was away", acknowledged.len());
}

/// How many hints a node has delivered.
async fn hints_delivered(cluster: &Cluster, id: u32) -> u64 {
    let metrics = get(cluster.node(id).place.http, "/metrics").await.unwrap();
    let line = |line: &str| line.strip_prefix("trefoil_hints_ended_total{how=\"delivered\"} ")?.parse().ok();
    metrics.lines().find_map(line).unwrap_or(0)
}

/// Requests in turns: a row of `app.kv`, a look at one that is there, a flight.
struct Load {
    total: usize,
    work: Arc<Work>,
    driver: JoinHandle<Vec<(Duration, Result<(), String>)>>,
}

/// What all requests share.
struct Work {
    client: Client,
    flights: Flights,
    begun: AtomicUsize,
    /// Keys of `app.kv` whose write was acknowledged.
    acknowledged: Mutex<Vec<i64>>,
}

impl Load {
    /// As many requests as it takes to write all flights.
    fn start(client: Client, flights: Flights, rate: u32) -> Load {
        let total = flights.rows.len() * 3;
        let work = Arc::new(Work { client, flights, begun: AtomicUsize::new(0), acknowledged: Mutex::default() });
        let driver = tokio::spawn(drive(work.clone(), total, Duration::from_secs(1) / rate));
        Load { total, work, driver }
    }

    /// Waits until so many requests were begun.
    async fn comes_to(&self, requests: usize) {
        let mut last = 0;
        while last < requests {
            let more = requests.min(last + 1_000);
            until("the load goes on", async || match self.work.begun.load(Ordering::Relaxed) {
                begun if begun < more => Err(format!("{begun} of {more}")),
                _ => Ok(()),
            })
            .await;
            last = more;
        }
    }

    /// Waits for its end: the requests that failed, and why. Prints how long the others took.
    async fn end(self) -> Vec<String> {
        let (mut times, mut failures) = (Vec::new(), Vec::new());
        for (took, result) in self.driver.await.unwrap() {
            match result {
                Ok(()) => times.push(took),
                Err(failure) => failures.push(format!("after {took:?}: {failure}")),
            }
        }
        times.sort_unstable();
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)] {
            println!("{name} {:?}", times[((times.len() - 1) as f64 * share) as usize]);
        }
        failures
    }
}

/// Begins each request when its time has come, and never waits for one before the last has begun.
async fn drive(work: Arc<Work>, total: usize, period: Duration) -> Vec<(Duration, Result<(), String>)> {
    let (start, mut requests) = (Instant::now(), JoinSet::new());
    for number in 0..total {
        let due = start + period * number as u32;
        sleep_until(due).await;
        let work = work.clone();
        requests.spawn(async move {
            work.begun.fetch_add(1, Ordering::Relaxed);
            let result = work.request(number).await;
            (due.elapsed(), result)
        });
    }
    requests.join_all().await
}

impl Work {
    async fn request(&self, number: usize) -> Result<(), String> {
        match number % 3 {
            0 => self.write(number as i64).await,
            1 => self.read(number).await,
            _ => self.flights.write(&self.client, number / 3).await,
        }
    }

    async fn write(&self, key: i64) -> Result<(), String> {
        let sent = self.client.insert("app.kv").key("k", key).value("v", key).send().await;
        sent.map_err(|error| format!("write of {key}: {error:?}"))?;
        self.acknowledged.lock().unwrap().push(key);
        Ok(())
    }

    /// Of what was written last, or somewhere before it.
    async fn read(&self, number: usize) -> Result<(), String> {
        let key = match self.acknowledged.lock().unwrap().as_slice() {
            [] => return Ok(()),
            keys if number.is_multiple_of(2) => keys[keys.len() - 1],
            keys => keys[number % keys.len()],
        };
        let row = self.client.select("app.kv").key("k", key).one().await;
        let row = row.map_err(|error| format!("read of {key}: {error:?}"))?;
        let found = row.map(|row| row.get::<i64>("v").unwrap());
        assert_eq!(found, Some(key), "it was acknowledged");
        Ok(())
    }
}

/// What is in a file of flights.
struct Flights {
    columns: Vec<String>,
    rows: Vec<Vec<Option<Value>>>,
}

impl Flights {
    /// Those of `TREFOIL_ZONE_FLIGHTS`, or the sample.
    fn load() -> Flights {
        let text = match std::env::var("TREFOIL_ZONE_FLIGHTS") {
            Ok(path) => std::fs::read_to_string(path).unwrap(),
            Err(_) => SAMPLE.to_owned(),
        };
        let mut lines = text.lines();
        let columns: Vec<String> = lines.next().unwrap().split(',').map(str::to_owned).collect();
        let row = |line: &str| line.split(',').zip(&columns).map(|(text, column)| flight_value(text, column)).collect();
        Flights { rows: lines.map(row).collect(), columns }
    }

    async fn write(&self, client: &Client, row: usize) -> Result<(), String> {
        let values = self.columns.iter().zip(&self.rows[row]);
        let insert = client.insert("demo.flights");
        let insert = values.fold(insert, |insert, (column, value)| insert.value(column, value.clone()));
        insert.send().await.map_err(|error| format!("flight {row}: {error:?}"))?;
        Ok(())
    }
}

fn flight_value(text: &str, column: &str) -> Option<Value> {
    match column {
        _ if text == "NA" => None,
        "time_hour" => Some(Value::Integer(hour_ms(text))),
        _ if TEXTS.contains(&column) => Some(Value::Text(text.to_owned())),
        _ => Some(Value::Integer(text.parse().unwrap())),
    }
}

/// Milliseconds since 1970 of `2013-MM-DDTHH:00:00Z`, or of the first hours of 2014.
fn hour_ms(text: &str) -> i64 {
    let number = |at: std::ops::Range<usize>| text[at].parse::<i64>().unwrap();
    let days_before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let days = 15_706 + (number(0..4) - 2_013) * 365 + days_before[number(5..7) as usize - 1] + number(8..10) - 1;
    (days * 24 + number(11..13)) * 3_600_000
}
