//! JSON of every type, and what is refused.

#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use trefoil::model::{Column, ColumnId, ColumnKind, KeyspaceId, Order, TableId, TableOptions};

use super::super::text::tests::typed_value;
use super::*;

/// A table with columns of all kinds.
pub fn table() -> Table {
    use ColumnKind::{Clustering, PartitionKey, Regular, Static};
    let columns = [
        ("p", Type::Text, PartitionKey),
        ("q", Type::Int, PartitionKey),
        ("c", Type::Date, Clustering(Order::Ascending)),
        ("d", Type::BigInt, Clustering(Order::Descending)),
        ("s", Type::Double, Static),
        ("a", Type::Ascii, Regular),
        ("t", Type::TimeUuid, Regular),
        ("n", Type::VarInt, Regular),
        ("b", Type::Boolean, Regular),
    ];
    let column = |(id, (name, ty, kind)): (usize, (&str, Type, ColumnKind))| Column {
        id: ColumnId(id as u32),
        name: name.to_owned(),
        ty,
        kind,
    };
    Table {
        id: TableId(uuid::Uuid::nil()),
        keyspace: KeyspaceId(1),
        name: "flights".to_owned(),
        version: 1,
        columns: columns.into_iter().enumerate().map(column).collect(),
        options: TableOptions::default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_printed_is_json_and_reads_as_the_same((ty, value) in typed_value()) {
        let mut text = String::new();
        print_value(&value, &ty, &mut text);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read_value(&json, &ty), Ok(Some(value)));
    }
}

#[test]
fn integers_keep_all_their_digits() {
    let text = r#"{"p":"x","q":1,"c":"2013-01-31","d":9007199254740993,"n":"123456789012345678901234567890"}"#;
    let row = read_row(text, &table()).unwrap();
    assert_eq!(row.clustering[1], Value::Integer(9_007_199_254_740_993));
    assert_eq!(row.cells, [(7, Some(Value::VarInt("123456789012345678901234567890".parse().unwrap())))]);
}

#[test]
fn a_missing_member_is_unset_and_null_is_null() {
    let row = read_row(r#"{"p":"x","q":1,"c":"2013-01-31","d":1,"s":null,"b":false}"#, &table()).unwrap();
    assert_eq!(row.cells, [(4, None), (8, Some(Value::Boolean(false)))]);
}

#[test]
fn without_a_clustering_key_only_static_columns_are_written() {
    let printed = r#"{"p":"x","q":1,"c":null,"d":null,"s":1.5,"a":null,"t":null,"n":null,"b":null}"#;
    for text in [r#"{"p":"x","q":1,"s":1.5}"#, printed] {
        let row = read_row(text, &table()).unwrap();
        assert!(row.clustering.is_empty());
        assert_eq!(row.cells, [(4, Some(Value::Double(1.5)))]);
    }
}

#[test]
fn a_key_may_be_the_beginning_of_one() {
    let key = |text| read_key(text, &table()).map(|key| (key.partition.len(), key.clustering.len()));
    assert_eq!(key(r#"{"p":"x","q":1}"#), Ok((2, 0)));
    assert_eq!(key(r#"{"q":1,"c":"2013-01-31","p":"x"}"#), Ok((2, 1)));
    assert_eq!(key(r#"{"p":"x","q":1,"c":"2013-01-31","d":-1}"#), Ok((2, 2)));
}

#[test]
fn bad_rows_are_refused_by_column() {
    let cases = [
        (r#"{"q":1}"#, "column p: it is part of the key and must have a value"),
        (r#"{"p":null,"q":1}"#, "column p: it is part of the key"),
        (r#"{"p":"x","q":1}"#, "column c: it is part of the key"),
        (r#"{"p":"x","q":1,"c":"2013-01-31"}"#, "column d: it is part of the key"),
        (r#"{"p":"x","q":1,"d":1}"#, "column c: it is part of the key"),
        (
            r#"{"p":"x","q":1,"a":"y"}"#,
            "column c: the clustering key is missing; without one only static columns can be set, not a",
        ),
        (r#"{"p":"x","q":1,"z":1}"#, "column z: there is no such column in flights; it has p, q, c, d, s, a, t, n, b"),
        (r#"{"p":"x","q":1,"p":"y"}"#, "column p: it is given twice"),
        (r#"{"p":"x","q":null,"q":null}"#, "column q: it is given twice"),
        (r#"{"p":1}"#, "column p: 1 is no text; it is a string, any text"),
        (r#"{"p":"x","q":"1"}"#, "column q: \"1\" is no int; it is a number without point or exponent, not in quotes"),
        (r#"{"p":"x","q":1.5}"#, "column q: \"1.5\" is no int"),
        (r#"{"p":"x","q":1e0}"#, "column q: \"1e+0\" is no int"),
        (r#"{"p":"x","q":1,"n":5}"#, "column n: 5 is no varint; it is a string, it is written in decimal digits"),
        (r#"{"p":"x","q":1,"b":"true"}"#, "column b: \"true\" is no boolean; it is true or false"),
        (r#"{"p":"x","q":1,"s":"1.5"}"#, "column s: \"1.5\" is no double; it is a number, or one of"),
        (r#"{"p":"x","q":1,"a":"é"}"#, "column a: ascii: byte 0 is 0xc3"),
        (r#"{"p":"x","q":1,"t":"123e4567-e89b-42d3-a456-426614174000"}"#, "column t: timeuuid: a UUID of version 4"),
        (r#"{"p":"x","q":1,"a":{}}"#, "column a: {} is no ascii"),
        (r#"{"p":"x","q":1"#, "no JSON object: EOF while parsing an object at column 14"),
        (r#"[1]"#, "no JSON object: invalid type: sequence, expected an object with one member per column"),
        (r#"{"p":"x"} {"#, "no JSON object: trailing characters"),
    ];
    for (text, reason) in cases {
        let error = read_row(text, &table()).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{text}: {error}");
    }
}

#[test]
fn bad_keys_are_refused_by_column() {
    let cases = [
        (r#"{"p":"x"}"#, "column q: it is part of the key"),
        (r#"{"p":"x","q":1,"d":1}"#, "column c: it is part of the key"),
        (r#"{"p":"x","q":1,"c":null}"#, "column c: keys are never null"),
        (r#"{"p":"x","q":1,"a":"y"}"#, "column a: it is no part of the key; a key has key columns only"),
    ];
    for (text, reason) in cases {
        let error = read_key(text, &table()).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{text}: {error}");
    }
}
