//! Columns with a cell for each element: what nodes hold of them differs element by element, and is mended so.

use std::collections::BTreeSet;

use trefoil_client::Value as ModelValue;
use trefoil_proto::v1::Consistency::{self, All, One, Quorum};
use trefoil_proto::v1::cell_write::{Element, Op};
use trefoil_proto::v1::change::Op as ChangeOp;
use trefoil_proto::v1::value::{Entries, Items, Kind};
use trefoil_proto::v1::{
    CellWrite, Change, Error, MutateRequest, Mutation, Options, ReadRequest, RowWrite, Slice, TableRef, Value,
    WriteResult,
};

use crate::cluster::Cluster;
use crate::door::{options, value};

const TABLE: &str = "CREATE TABLE app.c (k bigint PRIMARY KEY, l list<bigint>, s set<bigint>, m map<bigint, text>)";

fn table() -> Option<TableRef> {
    Some(TableRef { keyspace: "app".to_owned(), name: "c".to_owned(), ..TableRef::default() })
}

fn int(number: i64) -> Value {
    value(Kind::Integer(number))
}

fn text(text: &str) -> Value {
    value(Kind::Text(text.to_owned()))
}

fn items(numbers: &[i64]) -> Items {
    Items { items: numbers.iter().copied().map(int).collect() }
}

fn list(numbers: &[i64]) -> Value {
    value(Kind::List(items(numbers)))
}

fn set(numbers: &[i64]) -> Value {
    value(Kind::Set(items(numbers)))
}

fn map(pairs: &[(i64, &str)]) -> Value {
    let keys = pairs.iter().map(|(key, _)| int(*key)).collect();
    value(Kind::Map(Entries { keys, values: pairs.iter().map(|(_, value)| text(value)).collect() }))
}

/// A change of some columns of row 1, which need not be there before.
fn request(changes: Vec<(&str, Op)>, level: Consistency) -> MutateRequest {
    let cells = changes.into_iter().map(|(column, op)| CellWrite { column: column.to_owned(), op: Some(op) });
    let update = ChangeOp::Update(RowWrite { clustering: Vec::new(), cells: cells.collect() });
    let changes = vec![Change { op: Some(update), ..Change::default() }];
    MutateRequest {
        options: options(level),
        mutation: Some(Mutation { table: table(), partition: vec![int(1)], changes }),
    }
}

async fn write(
    cluster: &Cluster,
    node: u32,
    changes: Vec<(&str, Op)>,
    level: Consistency,
) -> Result<WriteResult, Error> {
    cluster.door(node).mutate(request(changes, level)).await
}

/// The list, the set and the map of row 1.
async fn read(cluster: &Cluster, node: u32, level: Consistency) -> [Option<Value>; 3] {
    let slice = Slice { partition: vec![int(1)], ranges: Vec::new() };
    let request = ReadRequest {
        options: options(level),
        table: table(),
        target: Some(trefoil_proto::v1::read_request::Target::Slice(slice)),
        ..ReadRequest::default()
    };
    let mut page = cluster.door(node).read_page(request).await.unwrap();
    assert!(page.rows.len() <= 1, "one key is one row");
    let cells = page.rows.pop().map_or_else(Vec::new, |row| row.cells);
    let mut values = cells.into_iter().map(|cell| cell.value);
    std::array::from_fn(|_| values.next().flatten())
}

async fn start() -> Cluster {
    let cluster = Cluster::start_taciturn().await;
    cluster.door(1).apply(TABLE).await.unwrap();
    cluster
}

/// One of three nodes is down while elements come and go. Afterwards it has them all, and can answer alone.
#[tokio::test(flavor = "multi_thread")]
async fn collections_at_quorum_outlive_a_node_and_are_mended_on_another() {
    let mut cluster = start().await;
    cluster.pause_hints().await;
    let whole = vec![
        ("l", Op::Value(list(&[3, 4]))),
        ("s", Op::Value(set(&[7, -1, 7]))),
        ("m", Op::Value(map(&[(2, "two"), (-5, "minus")]))),
    ];
    write(&cluster, 1, whole, All).await.unwrap();
    cluster.kill(3);
    cluster.settled().await;
    write(&cluster, 2, vec![("l", Op::Append(list(&[5, 6])))], Quorum).await.unwrap();
    write(&cluster, 1, vec![("l", Op::Prepend(list(&[1, 2])))], Quorum).await.unwrap();
    write(&cluster, 2, vec![("s", Op::Append(set(&[0])))], Quorum).await.unwrap();
    write(&cluster, 1, vec![("s", Op::Remove(set(&[7])))], Quorum).await.unwrap();
    let set_two = Op::SetElement(Element { path: Some(int(2)), value: Some(text("zwei")) });
    write(&cluster, 2, vec![("m", set_two)], Quorum).await.unwrap();
    write(&cluster, 1, vec![("m", Op::DeleteElement(int(-5)))], Quorum).await.unwrap();
    let expected = [Some(list(&[1, 2, 3, 4, 5, 6])), Some(set(&[-1, 0])), Some(map(&[(2, "zwei")]))];
    for reader in [1, 2] {
        assert_eq!(read(&cluster, reader, Quorum).await, expected, "by node {reader}");
    }
    cluster.start_one(3).await;
    assert_eq!(read(&cluster, 3, All).await, expected);
    cluster.kill(1);
    cluster.kill(2);
    cluster.settled().await;
    assert_eq!(read(&cluster, 3, One).await, expected, "node 3 has all of it itself now");
}

/// Each of two nodes has elements that nobody else has. One read makes all nodes hold all of them; a column that was
/// emptied on one node only stays as it was where that was not known, until the read.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_hold_different_elements_hold_all_of_them_after_a_read() {
    let cluster = start().await;
    cluster.pause_hints().await;
    let before = vec![("l", Op::Value(list(&[2]))), ("s", Op::Value(set(&[2]))), ("m", Op::Value(map(&[(2, "old")])))];
    write(&cluster, 1, before, All).await.unwrap();
    let alone = [
        (
            1,
            vec![
                ("l", Op::Append(list(&[3]))),
                ("s", Op::Append(set(&[1]))),
                ("m", Op::Value(value(Kind::Null(Default::default())))),
            ],
        ),
        (2, vec![("l", Op::Prepend(list(&[1]))), ("s", Op::Remove(set(&[2]))), ("m", Op::Append(map(&[(3, "new")])))]),
    ];
    for (node, changes) in alone {
        let others = cluster.ids().filter(|id| *id != node).collect::<Vec<_>>();
        others.iter().for_each(|id| cluster.node(*id).pause());
        cluster.sees_alive(node, &BTreeSet::from([node])).await;
        write(&cluster, node, changes, One).await.unwrap();
        others.iter().for_each(|id| cluster.node(*id).resume());
        cluster.settled().await;
    }
    let expected = [Some(list(&[1, 2, 3])), Some(set(&[1])), Some(map(&[(3, "new")]))];
    assert_eq!(read(&cluster, 3, One).await, [Some(list(&[2])), Some(set(&[2])), Some(map(&[(2, "old")]))]);
    assert_eq!(read(&cluster, 3, All).await, expected);
    for node in cluster.ids() {
        assert_eq!(read(&cluster, node, One).await, expected, "node {node} by itself");
    }
}

/// A request that is sent again with its id and timestamp, through another node, adds its elements once; without an id two
/// requests of one timestamp are two, whoever takes them.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_is_sent_again_is_made_once() {
    let cluster = start().await;
    let at = 1_767_225_600_000_000;
    let table = "CREATE TABLE app.h (k bigint PRIMARY KEY, l list<bigint>) WITH lateness = 630720000";
    cluster.door(1).apply(table).await.unwrap();
    let append = |id: &'static [u8]| {
        let mut request = request(vec![("l", Op::Append(list(&[1, 2])))], Quorum);
        request.options = Some(Options {
            request_id: id.into(),
            default_timestamp_us: Some(at),
            ..request.options.unwrap_or_default()
        });
        let mutation = request.mutation.as_mut().unwrap();
        mutation.table.as_mut().unwrap().name = "h".to_owned();
        request
    };
    let length = async || {
        let slice = Slice { partition: vec![int(1)], ranges: Vec::new() };
        let request = ReadRequest {
            options: options(Quorum),
            table: Some(TableRef { name: "h".to_owned(), ..table_ref() }),
            target: Some(trefoil_proto::v1::read_request::Target::Slice(slice)),
            ..ReadRequest::default()
        };
        let page = cluster.door(2).read_page(request).await.unwrap();
        match &page.rows[0].cells[0].value.as_ref().unwrap().kind {
            Some(Kind::List(items)) => items.items.len(),
            other => panic!("{other:?}"),
        }
    };
    for node in [1, 2, 3, 1] {
        cluster.door(node).mutate(append(b"the same")).await.unwrap();
    }
    assert_eq!(length().await, 2);
    for node in [1, 2, 2] {
        cluster.door(node).mutate(append(b"")).await.unwrap();
    }
    assert_eq!(length().await, 8);
}

fn table_ref() -> TableRef {
    table().unwrap()
}

/// The same operations through the client library.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_library_writes_elements() {
    let cluster = start().await;
    let client = trefoil_client::Client::builder(cluster.endpoints()).connect().await.unwrap();
    let integers = |numbers: &[i64]| numbers.iter().copied().map(ModelValue::Integer).collect::<Vec<_>>();
    let update = || client.update("app.c").key("k", 1i64);
    let new = ModelValue::Map(vec![(ModelValue::Integer(1), ModelValue::Text("one".to_owned()))]);
    update()
        .append("l", ModelValue::List(integers(&[2, 3])))
        .append("s", ModelValue::Set(integers(&[9, 4])))
        .append("m", new)
        .send()
        .await
        .unwrap();
    let front = update().prepend("l", ModelValue::List(integers(&[1])));
    front.remove("s", ModelValue::Set(integers(&[9]))).set_element("m", 5i64, "five").send().await.unwrap();
    client.delete("app.c").key("k", 1i64).delete_element("m", 1i64).send().await.unwrap();
    let expected = [Some(list(&[1, 2, 3])), Some(set(&[4])), Some(map(&[(5, "five")]))];
    assert_eq!(read(&cluster, 2, All).await, expected);
    let refused = update().remove("l", ModelValue::List(integers(&[1]))).send().await.unwrap_err();
    assert!(refused.to_string().contains("reads the list first"), "{refused}");
}
