//! A table with a column of every type: what is written comes back from every node, before and after all were down, by its
//! type and as the bytes that were stored; rows come in the order of a key made of other values.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt;
use trefoil::model::Type;
use trefoil_client::{Client, Row, Value};
use trefoil_proto::v1::Consistency::{All, Quorum};

use crate::cluster::Cluster;

const TYPES: [&str; 2] = [
    "CREATE TYPE app.address (street text, number int, floors frozen<set<tinyint>>)",
    "CREATE TYPE app.\"Person\" (name text, homes frozen<list<address>>)",
];

const TABLE: &str = "CREATE TABLE app.every (
    k frozen<tuple<int, text>>, c1 frozen<list<int>>, c2 frozen<address>, c3 frozen<map<text, boolean>>, c4 vector<int, 2>,
    s set<text> static,
    t_ascii ascii, t_text text, t_blob blob, t_boolean boolean, t_tinyint tinyint, t_smallint smallint, t_int int,
    t_bigint bigint, t_varint varint, t_decimal decimal, t_float float, t_double double, t_date date, t_time time,
    t_timestamp timestamp, t_duration duration, t_uuid uuid, t_timeuuid timeuuid, t_inet inet,
    f_list frozen<list<text>>, f_set frozen<set<decimal>>, f_map frozen<map<timeuuid, frozen<list<duration>>>>,
    f_tuple tuple<int, frozen<\"Person\">, inet>, f_user frozen<\"Person\">, v_float vector<float, 3>, v_text vector<text, 2>,
    m_list list<double>, m_set set<bigint>, m_map map<frozen<address>, text>, m_user address,
    PRIMARY KEY (k, c1, c2, c3, c4)
) WITH CLUSTERING ORDER BY (c1 DESC, c2 ASC, c3 DESC, c4 ASC)";

/// A value of any type that is not trivial.
fn sample(ty: &Type, seed: i64) -> Value {
    let inside = |at: usize| ty.part(at).map(|part| sample(part, seed + at as i64)).unwrap();
    match ty {
        Type::Ascii => Value::Text(format!("a{seed}")),
        Type::Text => Value::Text(format!("é\0{seed}")),
        Type::Blob => Value::Blob(vec![0, 255, seed as u8].into()),
        Type::Boolean => Value::Boolean(seed % 2 == 0),
        Type::Float => Value::Float(seed as f32 / 4.0),
        Type::Double => Value::Double(-0.1 * seed as f64),
        Type::VarInt => Value::VarInt((i128::from(i64::MIN) * 7 + i128::from(seed)).into()),
        Type::Decimal => Value::Decimal { scale: 3, unscaled: (-1_000 + seed).into() },
        Type::Duration => Value::Duration { months: 1, days: 2, nanos: seed },
        Type::Uuid => Value::Uuid(uuid::Uuid::from_u128(seed as u128)),
        Type::TimeUuid => Value::Uuid(uuid::Uuid::from_u128(1 << 76 | seed as u128)),
        Type::Inet => Value::Inet("2001:db8::1".parse().unwrap()),
        Type::List { .. } => Value::List(vec![inside(0), inside(1), inside(0)]),
        Type::Set { .. } => Value::Set(vec![inside(1), inside(0), inside(1)]),
        Type::Map { .. } => Value::Map(vec![(inside(2), inside(3)), (inside(0), inside(1))]),
        Type::Tuple(elements) => Value::Tuple((0..elements.len()).map(|at| (at != 1).then(|| inside(at))).collect()),
        Type::User { definition, .. } => {
            Value::Tuple((0..definition.fields.len()).map(|at| (at != 1).then(|| inside(at))).collect())
        }
        Type::Vector { dimension, .. } => Value::List((0..usize::from(*dimension)).map(inside).collect()),
        // Integers of all widths, dates, times.
        _ => Value::Integer(seed),
    }
}

/// The value in its one form.
fn canonical(value: &Value, ty: &Type) -> Value {
    Value::decode(ty, &value.encode(ty).unwrap()).unwrap().unwrap()
}

async fn write(client: &Client, seed: i64) {
    let view = client.table("app.every").await.unwrap();
    let mut write = client.insert("app.every").consistency(All);
    for column in &view.table.columns {
        // One partition; the static column is written by each row alike.
        let seed = if matches!(column.name.as_str(), "k" | "s") { 1 } else { seed };
        write = write.value(&column.name, sample(&column.ty, seed));
    }
    write.send().await.unwrap();
}

async fn rows(client: &Client) -> Vec<Row> {
    let key = (1i32, None::<String>);
    client.select("app.every").key("k", key).consistency(Quorum).stream().try_collect().await.unwrap()
}

async fn everything_is_there(cluster: &Cluster) {
    for id in cluster.ids() {
        let endpoint = cluster.endpoints().swap_remove(id as usize - 1);
        let client = Client::builder([endpoint]).connect().await.unwrap();
        let view = client.table("app.every").await.unwrap();
        let rows = rows(&client).await;
        assert_eq!(rows.len(), 3, "by node {id}");
        // The first clustering column descends.
        for (row, seed) in rows.iter().zip([7, 6, 5]) {
            for (column, value) in view.table.columns.iter().zip(row.values().unwrap()) {
                let seed = if matches!(column.name.as_str(), "k" | "s") { 1 } else { seed };
                assert_eq!(value, Some(canonical(&sample(&column.ty, seed), &column.ty)), "{} by {id}", column.name);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_every_type_come_back_from_every_node_and_after_a_restart() {
    let mut cluster = Cluster::start(1).await;
    for statement in TYPES.into_iter().chain([TABLE]) {
        cluster.door(1).apply(statement).await.unwrap();
    }
    let client = Client::builder(cluster.endpoints()).connect().await.unwrap();
    for seed in [6, 5, 7] {
        write(&client, seed).await;
    }
    everything_is_there(&cluster).await;
    client.flush(Some("app.every")).await.unwrap();
    write(&client, 6).await;
    cluster.kill_all();
    cluster.start_all().await;
    everything_is_there(&cluster).await;

    let row = rows(&Client::builder(cluster.endpoints()).connect().await.unwrap()).await.remove(0);
    assert_eq!(row.get::<Vec<f32>>("v_float").unwrap(), [7.0 / 4.0, 2.0, 9.0 / 4.0]);
    assert_eq!(row.get::<BTreeSet<i64>>("m_set").unwrap(), BTreeSet::from([7, 8]));
    assert_eq!(row.get::<Vec<f64>>("m_list").unwrap().len(), 3);
    type Key = (Option<String>, Option<i32>, BTreeSet<i8>);
    let keys: BTreeMap<Key, String> = row.get("m_map").unwrap();
    assert_eq!(keys.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_column_is_refused_by_name_and_reason() {
    let cluster = Cluster::start(1).await;
    for (columns, reason) in [
        (
            "k int primary key, v list<frozen<missing>>",
            "column v is of type list<frozen<missing>>: there is no type app.missing",
        ),
        ("k list<int> primary key", "column k of type list<int> cannot be in a key: only a frozen one"),
        ("k frozen<list<decimal>> primary key", "column k of type frozen<list<decimal>> cannot be in a key: decimals"),
        ("k tuple<int, duration> primary key", "cannot be in a key: durations have no order"),
        ("k counter primary key", "column k of type counter cannot be in a key"),
        ("k int primary key, c counter, v int", "column c is a counter and column v is none"),
    ] {
        let status = cluster.door(1).apply(&format!("CREATE TABLE app.bad ({columns})")).await.unwrap_err();
        let text = format!("{status:?}");
        assert!(text.contains(reason), "{columns}: {text}");
    }
}

fn address(road: &str, number: Option<i64>, zip: Option<&str>) -> Value {
    let text = |text: &str| Value::Text(text.to_owned());
    Value::Tuple(vec![Some(text(road)), number.map(Value::Integer), zip.map(text)])
}

/// Rows written before and after the type has grown, as each node answers them.
async fn addresses_are_whole(cluster: &Cluster) {
    for endpoint in cluster.endpoints() {
        let client = Client::builder([endpoint.clone()]).connect().await.unwrap();
        let Type::User { definition, .. } =
            client.table("app.users").await.unwrap().table.column("home").unwrap().ty.clone()
        else {
            panic!("it is a user-defined type")
        };
        let names: Vec<&str> = definition.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["road", "number", "zip"], "by {endpoint}");
        for (id, zip) in [(1, None), (2, Some("8001"))] {
            let select = client.select("app.users").key("id", id).consistency(All);
            let row = select.one().await.unwrap().unwrap();
            let whole = address("Bahnhof", Some(7), zip);
            // Of the first row one field was set after the type had grown.
            let home = if id == 1 { address("Bahnhof", Some(7), Some("3000")) } else { whole.clone() };
            assert_eq!(row.get::<Value>("home").unwrap(), home, "row {id} by {endpoint}");
            assert_eq!(row.get::<Value>("past").unwrap(), Value::List(vec![whole.clone(), whole.clone()]));
            let at = Value::Map(vec![(Value::Text("work".to_owned()), whole)]);
            assert_eq!(row.get::<Value>("others").unwrap(), at, "row {id} by {endpoint}");
        }
    }
}

/// One node is down while the type grows and a field gets another name.
#[tokio::test(flavor = "multi_thread")]
async fn a_type_grows_under_everything_that_is_made_of_it() {
    let mut cluster = Cluster::start(1).await;
    for statement in [
        "CREATE TYPE app.address (street text, number int)",
        "CREATE TYPE app.place (x int, y int)",
        "CREATE TABLE app.users (id int PRIMARY KEY, home address, past list<frozen<address>>,
                                 others map<text, frozen<address>>)",
        "CREATE TABLE app.placed (k frozen<place> PRIMARY KEY, v int)",
    ] {
        cluster.door(1).apply(statement).await.unwrap();
    }
    let write = async |client: &Client, id: i32, value: Value| {
        let write = client.insert("app.users").key("id", id).value("home", value.clone());
        let write = write.value("past", Value::List(vec![value.clone(), value.clone()]));
        let others = Value::Map(vec![(Value::Text("work".to_owned()), value)]);
        write.value("others", others).consistency(Quorum).send().await.unwrap();
    };
    let client = Client::builder(cluster.endpoints()).connect().await.unwrap();
    let before = Value::Tuple(vec![Some(Value::Text("Bahnhof".to_owned())), Some(Value::Integer(7))]);
    write(&client, 1, before).await;
    client.flush(Some("app.users")).await.unwrap();
    cluster.kill(2);
    cluster.door(1).apply("ALTER TYPE app.address ADD zip text").await.unwrap();
    cluster.door(3).apply("ALTER TYPE app.address RENAME street TO road").await.unwrap();
    let endpoints = [1, 3].map(|id| cluster.node(id).place.client.to_string());
    let client = Client::builder(endpoints).connect().await.unwrap();
    write(&client, 2, address("Bahnhof", Some(7), Some("8001"))).await;
    let zip = client.update("app.users").key("id", 1).set_element("home", "zip", "3000");
    zip.consistency(Quorum).send().await.unwrap();
    cluster.start_one(2).await;
    addresses_are_whole(&cluster).await;
    for (statement, reason) in [
        ("ALTER TYPE app.place ADD z int", "primary key"),
        ("ALTER TYPE app.address ADD zip text", "zip"),
        ("DROP TYPE app.address", "users"),
    ] {
        let refused = cluster.door(2).apply(statement).await.unwrap_err();
        assert!(refused.message.contains(reason), "{statement}: {refused:?}");
    }
    client.flush(Some("app.users")).await.unwrap();
    cluster.kill_all();
    cluster.start_all().await;
    addresses_are_whole(&cluster).await;
}
