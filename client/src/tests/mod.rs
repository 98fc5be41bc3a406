//! The client against a cluster of fake nodes, in this process, over real connections.

#![allow(clippy::unwrap_used, reason = "tests")]

mod fake;

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::stream::{self, StreamExt};
use tonic::Code;
use trefoil_proto::convert::value;
use trefoil_proto::v1::change::Op as ChangeOp;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op;
use trefoil_proto::v1::{self, ReadPage, SchemaMismatchDetail, TimeoutDetail, WriteResult};

use self::fake::{Cluster, Reply};
use crate::{Client, Error, FromRow, Outcome, Repetition, Result, Row, ToRow, Value, Write};

fn written() -> Reply {
    Reply::Answer(Answer::Write(WriteResult { stamp: 1, ..WriteResult::default() }))
}

fn refused(error: v1::Error) -> Reply {
    Reply::Answer(Answer::Error(error))
}

async fn connect(cluster: &Cluster) -> Client {
    Client::builder([cluster.address(1)]).zone("b").attempt_timeout(Duration::from_secs(5)).connect().await.unwrap()
}

fn insert(client: &Client, c: i32) -> Write {
    client.insert("ks.t").key("p", "a").key("c", c).value("v", 7)
}

fn mutation_of(op: &Op) -> &v1::Mutation {
    match op {
        Op::Mutate(request) => request.mutation.as_ref().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_write_goes_to_the_replica_of_the_own_zone_with_all_it_needs() {
    let cluster = Cluster::start(|_, _, _| written()).await;
    let client = connect(&cluster).await;
    cluster.all_up(&client).await;
    insert(&client, 5).ttl_s(60).send().await.unwrap();
    insert(&client, 6).send().await.unwrap();
    let seen = cluster.seen();
    assert_eq!(seen.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [2, 2]);
    let requests = seen.iter().map(|(_, op)| match op {
        Op::Mutate(request) => (request.options.clone().unwrap(), mutation_of(op)),
        other => panic!("{other:?}"),
    });
    let (options, mutations): (Vec<_>, Vec<_>) = requests.unzip();
    assert!(options[0].default_timestamp_us.unwrap() < options[1].default_timestamp_us.unwrap());
    assert_ne!(options[0].request_id, options[1].request_id);
    assert_eq!((options[0].observed_stamp, options[1].observed_stamp), (0, 1));
    assert!(options[0].idempotent);
    let change = &mutations[0].changes[0];
    assert_eq!((change.ttl_s, mutations[0].partition.clone()), (Some(60), vec![value::raw("a".into())]));
    let Some(ChangeOp::Insert(write)) = &change.op else { panic!("{change:?}") };
    assert_eq!(write.clustering, [value::raw(vec![0, 0, 0, 5].into())]);
    assert_eq!(write.cells[0].value(), Some(&value::raw(vec![0, 0, 0, 7].into())));
}

#[tokio::test]
async fn deletes_are_as_wide_as_their_key() {
    let cluster = Cluster::start(|_, _, _| written()).await;
    let client = connect(&cluster).await;
    let delete = || client.delete("ks.t").key("p", "a");
    delete().send().await.unwrap();
    delete().key("c", 1).send().await.unwrap();
    delete().key("c", 1).column("v").send().await.unwrap();
    delete().more_than("c", 1).at_most("c", 3).send().await.unwrap();
    let seen = cluster.seen();
    let ops: Vec<_> = seen.iter().map(|(_, op)| mutation_of(op).changes[0].op.clone().unwrap()).collect();
    assert!(matches!(ops[0], ChangeOp::DeletePartition(_)));
    assert!(matches!(&ops[1], ChangeOp::DeleteRow(row) if row.clustering.len() == 1));
    assert!(matches!(&ops[2], ChangeOp::Update(write) if write.cells[0].value() == Some(&value::null())));
    let ChangeOp::DeleteRange(range) = &ops[3] else { panic!("{:?}", ops[3]) };
    // `c` is descending: the larger bound comes first.
    assert_eq!(range.from, [value::raw(vec![0, 0, 0, 3].into())]);
    assert_eq!(range.to, [value::raw(vec![0, 0, 0, 1].into())]);
    assert_eq!((range.from_exclusive, range.to_exclusive), (false, true));
}

#[tokio::test]
async fn what_the_client_can_see_by_itself_is_refused_before_it_is_sent() {
    let cluster = Cluster::start(|_, _, _| written()).await;
    let client = connect(&cluster).await;
    let select = || client.select("ks.t");
    let cases = [
        (
            insert(&client, 1).value("x", 1).send().await.map(drop),
            "x: there is no such column; the columns are p, c, s, v",
        ),
        (insert(&client, 1).value("v", "text").send().await.map(drop), "v: int"),
        (insert(&client, 1).value("v", i64::MAX).send().await.map(drop), "v: int"),
        (client.insert("ks.t").key("c", 1).send().await.map(drop), "p: is part of the partition key and is not given"),
        (insert(&client, 1).key("p", "b").send().await.map(drop), "p: is given twice"),
        (client.insert("ks.t").key("p", None::<&str>).send().await.map(drop), "p: null in a key"),
        (insert(&client, 1).column("v").send().await.map(drop), "are for deletes"),
        (client.delete("ks.t").key("p", "a").value("v", 1).send().await.map(drop), "v: is not part of the key"),
        (client.delete("ks.t").send().await.map(drop), "the key is not given"),
        (select().key("v", 1).one().await.map(drop), "v: is not part of the key"),
        (select().key("p", "a").at_least("c", 1).at_least("c", 2).one().await.map(drop), "c: is limited twice"),
        (select().columns(["x"]).one().await.map(drop), "x: there is no such column"),
        (client.select("t").one().await.map(drop), "`t` is not of the form keyspace.table"),
    ];
    for (result, reason) in cases {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(reason), "{error} does not say {reason:?}");
        assert_eq!((error.outcome(), error.code()), (Outcome::NotApplied, Code::InvalidArgument));
    }
    assert!(cluster.seen().is_empty());
    assert_eq!(
        select().key("p", "a").one().await.map(drop).unwrap_err().code(),
        Code::InvalidArgument,
        "a write's answer"
    );
    assert_eq!(client.insert("ks.none").send().await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn overload_is_waited_out_elsewhere() {
    let cluster = Cluster::start(|_, _, nth| match nth {
        0 | 1 => refused(v1::Error::overloaded("requests", Duration::from_millis(1))),
        _ => written(),
    })
    .await;
    let client = connect(&cluster).await;
    cluster.all_up(&client).await;
    insert(&client, 1).send().await.unwrap();
    let mut nodes: Vec<u32> = cluster.seen().iter().map(|(node, _)| *node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2, 3], "each node once");
    let timestamps = cluster.seen().into_iter().map(|(_, op)| match op {
        Op::Mutate(request) => request.options.unwrap().default_timestamp_us,
        other => panic!("{other:?}"),
    });
    let mut timestamps: Vec<_> = timestamps.collect();
    timestamps.dedup();
    assert_eq!(timestamps.len(), 1, "every attempt is the same write");
}

/// B011: a write whose outcome is unknown was sent again as if nothing had happened. It is sent again only if the caller
/// has not forbidden it; the caller is told that the outcome is unknown.
#[tokio::test]
async fn b011_a_write_that_must_not_be_repeated_is_not() {
    let cluster = Cluster::start(|_, _, nth| match nth {
        0 => refused(v1::Error::timeout(TimeoutDetail::default(), Outcome::Unknown)),
        _ => written(),
    })
    .await;
    let client = connect(&cluster).await;
    let error = insert(&client, 1).repetition(Repetition::Unsafe).send().await.unwrap_err();
    assert_eq!((error.outcome(), error.code()), (Outcome::Unknown, Code::DeadlineExceeded));
    assert_eq!(cluster.seen().len(), 1);
    insert(&client, 1).send().await.unwrap();
}

/// One attempt whose outcome is unknown makes the whole unknown, whatever the last one says.
#[tokio::test]
async fn an_unknown_outcome_is_not_forgotten() {
    let cluster = Cluster::start(|_, _, nth| match nth {
        0 => refused(v1::Error::timeout(TimeoutDetail::default(), Outcome::Unknown)),
        _ => refused(v1::Error::invalid(v1::InvalidDetail::new("too late by now"))),
    })
    .await;
    let client = connect(&cluster).await;
    let error = insert(&client, 1).send().await.unwrap_err();
    assert_eq!((error.outcome(), error.code()), (Outcome::Unknown, Code::InvalidArgument));
}

#[tokio::test]
async fn what_was_in_flight_to_a_lost_node_is_sent_to_another() {
    let cluster = Cluster::start(|node, _, _| if node == 2 { Reply::HangUp } else { written() }).await;
    let client = connect(&cluster).await;
    cluster.all_up(&client).await;
    let writes = (0..100).map(|c| insert(&client, c).send());
    let results: Result<Vec<_>> = stream::iter(writes).buffer_unordered(50).try_collect().await;
    results.unwrap();
}

#[tokio::test]
async fn without_any_node_the_request_fails_in_time_and_says_that_nothing_was_sent() {
    let builder = Client::builder(["127.0.0.1:1"]).timeout(Duration::from_millis(300));
    let error = builder.connect().await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { tried, .. } if tried == "127.0.0.1:1"), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
}

#[tokio::test]
async fn changes_of_the_topology_are_followed() {
    let cluster = Cluster::start(|_, _, _| written()).await;
    let client = connect(&cluster).await;
    cluster.all_up(&client).await;
    insert(&client, 1).send().await.unwrap();
    cluster.change(|topology| {
        topology.epoch.as_mut().unwrap().index += 1;
        topology.nodes[1].zone = "c".to_owned();
        topology.nodes[2].zone = "b".to_owned();
        let owners = std::mem::take(&mut topology.zones[1].owners);
        topology.zones[1].owners = std::mem::replace(&mut topology.zones[2].owners, owners);
    });
    cluster.until(|| client.shared.epoch() == Some((0, 2)), &client).await;
    insert(&client, 1).send().await.unwrap();
    assert_eq!(cluster.seen().iter().map(|(node, _)| *node).collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test]
async fn a_table_that_has_changed_is_fetched_again_once() {
    let cluster = Cluster::start(|_, op, _| match mutation_of(op).table.as_ref().unwrap().version {
        1 => refused(v1::Error::schema_mismatch(SchemaMismatchDetail::default())),
        _ => written(),
    })
    .await;
    let client = connect(&cluster).await;
    client.table("ks.t").await.unwrap();
    cluster.table_version.store(2, Ordering::Relaxed);
    insert(&client, 1).send().await.unwrap();
    assert_eq!(cluster.seen().len(), 2);
    cluster.table_version.store(1, Ordering::Relaxed);
    client.refresh_table("ks.t").await.unwrap();
    let error = insert(&client, 1).send().await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "not for ever");
}

/// `rows` rows of three columns, from the position that the paging state says.
fn page(read: &v1::ReadRequest, total: usize) -> Reply {
    let begin = read.paging_state.first().map_or(0, |at| usize::from(*at));
    let end = total.min(begin + read.page_rows as usize);
    let int = |n: usize| value::raw((n as i32).to_be_bytes().to_vec().into());
    let row = |n| v1::Row {
        partition: vec![value::raw("a".into())],
        clustering: vec![int(n)],
        cells: vec![v1::Cell::default(), v1::Cell { value: Some(int(n * 2)), ..Default::default() }],
        static_only: false,
    };
    let paging_state = if end < total { vec![end as u8].into() } else { Default::default() };
    Reply::Answer(Answer::Page(ReadPage { rows: (begin..end).map(row).collect(), paging_state, ..Default::default() }))
}

fn read_of(op: &Op) -> &v1::ReadRequest {
    match op {
        Op::Read(read) => read,
        other => panic!("{other:?}"),
    }
}

/// B065: the position of the next page was taken from somewhere else than the page, and results ended after the first.
#[tokio::test]
async fn b065_the_next_page_begins_where_the_page_says() {
    let cluster = Cluster::start(|_, op, _| page(read_of(op), 25)).await;
    let client = connect(&cluster).await;
    let rows: Vec<Row> = client.select("ks.t").key("p", "a").page_rows(10).all().await.unwrap();
    let numbers: Vec<i32> = rows.iter().map(|row| row.get("c").unwrap()).collect();
    assert_eq!(numbers, (0..25).collect::<Vec<_>>());
    assert_eq!(cluster.seen().len(), 3);
}

/// B074: one plan and one retry state served all pages of a scan, so that a node that had failed once was never tried again
/// and long scans died. Here every node fails again and again.
#[tokio::test]
async fn b074_a_long_scan_outlives_nodes_that_fail_now_and_then() {
    let cluster = Cluster::start(|_, op, nth| match nth % 3 {
        0 | 1 => refused(v1::Error::unavailable(v1::UnavailableDetail::default())),
        _ => page(read_of(op), 100),
    })
    .await;
    let client = connect(&cluster).await;
    cluster.all_up(&client).await;
    let rows = client.select("ks.t").page_rows(2).all().await.unwrap();
    assert_eq!(rows.len(), 100);
}

#[tokio::test]
async fn an_empty_page_is_not_the_end() {
    let cluster = Cluster::start(|_, op, _| match read_of(op).paging_state.is_empty() {
        true => Reply::Answer(Answer::Page(ReadPage { paging_state: vec![0].into(), ..Default::default() })),
        false => page(read_of(op), 1),
    })
    .await;
    let client = connect(&cluster).await;
    assert_eq!(client.select("ks.t").page_rows(5).all().await.unwrap().len(), 1);
}

#[derive(Debug, PartialEq)]
struct Flight {
    p: String,
    c: i32,
    v: Option<i64>,
}

impl FromRow for Flight {
    fn from_row(row: &Row) -> Result<Flight> {
        Ok(Flight { p: row.get("p")?, c: row.get("c")?, v: row.get("v")? })
    }
}

impl ToRow for Flight {
    fn to_row(&self) -> Vec<(String, Option<Value>)> {
        use crate::IntoValue;
        let Flight { p, c, v } = self;
        vec![
            ("p".to_owned(), p.as_str().into_value()),
            ("c".to_owned(), c.into_value()),
            ("v".to_owned(), v.into_value()),
        ]
    }
}

#[tokio::test]
async fn rows_are_read_and_written_as_types() {
    let cluster = Cluster::start(|_, op, _| if let Op::Read(read) = op { page(read, 3) } else { written() }).await;
    let client = connect(&cluster).await;
    let flights: Vec<Flight> = client.select("ks.t").page_rows(2).stream_as::<Flight>().try_collect().await.unwrap();
    assert_eq!(flights[2], Flight { p: "a".to_owned(), c: 2, v: Some(4) });
    client.insert("ks.t").row(&flights[2]).send().await.unwrap();
    let row = client.select("ks.t").page_rows(1).one().await.unwrap().unwrap();
    assert_eq!(row.get::<Option<String>>("s").unwrap(), None);
    for (result, reason) in [
        (row.get::<String>("s").map(drop), "column s: it is null"),
        (row.get::<String>("v").map(drop), "column v: Integer(0) is not of type String"),
        (row.get::<i32>("w").map(drop), "column w: the answer does not have it"),
    ] {
        assert!(result.unwrap_err().to_string().starts_with(reason));
    }
}

fn batch_of(op: &Op) -> &v1::BatchRequest {
    match op {
        Op::Batch(batch) => batch,
        other => panic!("{other:?}"),
    }
}

fn items(results: impl IntoIterator<Item = Option<v1::Error>>) -> Reply {
    let item = |error| match error {
        None => v1::batch_item::Result::Write(WriteResult { stamp: 5, ..WriteResult::default() }),
        Some(error) => v1::batch_item::Result::Error(error),
    };
    let items = results.into_iter().map(|error| v1::BatchItem { result: Some(item(error)) });
    Reply::Answer(Answer::Batch(v1::BatchResult { items: items.collect(), warnings: Vec::new() }))
}

#[tokio::test]
async fn a_batch_answers_for_each_write_and_sends_again_only_what_failed() {
    let cluster = Cluster::start(move |_, op, nth| match nth {
        0 => {
            let busy = || Some(v1::Error::overloaded("bytes", Duration::from_millis(1)));
            let wrong = v1::Error::invalid(v1::InvalidDetail::new("wrong"));
            items([None, busy(), Some(wrong), busy()])
        }
        _ => items(batch_of(op).mutations.iter().map(|_| None)),
    })
    .await;
    let client = connect(&cluster).await;
    let batch = (0..4).fold(client.batch(), |batch, c| batch.with(insert(&client, c)));
    let results = batch.send().await.unwrap();
    let ok: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, true, false, true]);
    assert_eq!(results[2].as_ref().unwrap_err().code(), Code::InvalidArgument);
    let seen = cluster.seen();
    let (first, second) = (batch_of(&seen[0].1), batch_of(&seen[1].1));
    assert_eq!(second.mutations, [first.mutations[1].clone(), first.mutations[3].clone()]);
    let timestamp = |batch: &v1::BatchRequest| batch.options.as_ref().unwrap().default_timestamp_us;
    assert_eq!(timestamp(first), timestamp(second));
    assert_eq!(client.observed_stamp(), 5);
    assert!(client.batch().send().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_batch_does_not_forget_an_unknown_outcome() {
    let cluster = Cluster::start(|_, _, nth| match nth {
        0 => items([Some(v1::Error::timeout(TimeoutDetail::default(), Outcome::Unknown)), None]),
        _ => items([Some(v1::Error::invalid(v1::InvalidDetail::new("too late by now")))]),
    })
    .await;
    let client = connect(&cluster).await;
    let batch = || client.batch().with(insert(&client, 1)).with(insert(&client, 2));
    let results = batch().send().await.unwrap();
    assert_eq!(results[0].as_ref().unwrap_err().outcome(), Outcome::Unknown);
    assert!(results[1].is_ok());
}

#[tokio::test]
async fn a_batch_fetches_a_changed_table_again() {
    let cluster = Cluster::start(|_, op, _| {
        let mismatch = |mutation: &v1::Mutation| {
            let old = mutation.table.as_ref().unwrap().version == 1;
            old.then(|| v1::Error::schema_mismatch(SchemaMismatchDetail::default()))
        };
        items(batch_of(op).mutations.iter().map(mismatch))
    })
    .await;
    let client = connect(&cluster).await;
    client.table("ks.t").await.unwrap();
    cluster.table_version.store(2, Ordering::Relaxed);
    let results = client.batch().with(insert(&client, 1)).send().await.unwrap();
    assert!(results[0].is_ok());
}

/// Small windows make the transport end a connection that carries many small answers. One channel, offered far more than it
/// takes at a time, must answer all of them without a new connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_calls_in_flight_do_not_break_a_channel() {
    let cluster = Cluster::start(|_, _, _| written()).await;
    // However slow the machine is: an attempt that is given up would be sent again, and be counted.
    let patient = Duration::from_secs(300);
    let builder = Client::builder([cluster.address(1)]).zone("b").timeout(patient).attempt_timeout(patient);
    let client = builder.connect().await.unwrap();
    cluster.all_up(&client).await;
    let opened = cluster.pipes.load(Ordering::Relaxed);
    let calls = (0..20_000).map(|c| insert(&client, c).send());
    let results: Result<Vec<_>> = stream::iter(calls).buffer_unordered(20_000).try_collect().await;
    assert_eq!(results.unwrap().len(), 20_000);
    assert_eq!(cluster.pipes.load(Ordering::Relaxed), opened);
    assert_eq!(cluster.seen().len(), 20_000, "none was sent twice");
}
