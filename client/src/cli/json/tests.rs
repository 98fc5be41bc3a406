//! JSON of every type, and what is refused.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use trefoil::model::{Column, ColumnId, ColumnKind, KeyspaceId, Order, TableId, TableOptions, UserType};

use super::super::text::tests::{typed_value, value_of};
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Whatever somebody types or a file holds is read or refused, for every type, and so are the values that it becomes.
    #[test]
    fn no_text_makes_a_reader_panic(at in 0..160usize, cut in 0..12usize, put in "[]\\[{}\",:.0-9eEa-f\\\\u\u{e9}+ -]{0,8}") {
        const ROW: &str = "{\"p\": \"x\", \"q\": 1, \"c\": \"2026-01-01\", \"d\": -7, \"s\": 1.5e3, \"a\": null, \
                           \"t\": \"0190c000-0000-1000-8000-000000000000\", \"n\": 123456789012345678901, \"b\": true}";
        let at = at.min(ROW.len());
        let text = [&ROW[..at], &put, &ROW[(at + cut).min(ROW.len())..]].concat();
        let _ = (object(&text), read_row(&text, &table()), read_key(&text, &table()));
        let scalars = Type::SCALARS.into_iter();
        let made = scalars.clone().flat_map(|ty| [list(&ty), set(&ty), map(&ty, &Type::Text), user(&ty, &Type::Int)]);
        for ty in scalars.chain(made) {
            for json in [parse(&put), Ok(serde_json::Value::String(put.clone()))].into_iter().flatten() {
                if let Ok(Some(value)) = read_value(&json, &ty) {
                    let _ = value.encode(&ty);
                }
            }
            let _ = text::parse(&put, &ty);
        }
    }
}

fn list(element: &Type) -> Type {
    Type::List { element: Arc::new(element.clone()), frozen: true }
}

fn set(element: &Type) -> Type {
    Type::Set { element: Arc::new(element.clone()), frozen: true }
}

fn map(key: &Type, value: &Type) -> Type {
    Type::Map { key: Arc::new(key.clone()), value: Arc::new(value.clone()), frozen: true }
}

/// `first` of one type and `"a b"` of another.
fn user(first: &Type, second: &Type) -> Type {
    let field = |name: &str, ty: &Type| Field { name: name.to_owned(), ty: ty.clone() };
    let fields = vec![field("first", first), field("a \"b\"", second)];
    Type::User { definition: Arc::new(UserType { fields, ..UserType::named("k", "t") }), frozen: true }
}

/// A value of a type made of two others, in its one form.
fn composite_value() -> impl Strategy<Value = (Type, Value)> {
    let ordered = || prop::sample::select(Type::SCALARS.to_vec()).prop_filter("no order", |ty| *ty != Type::Duration);
    let shape = 0..8usize;
    (ordered(), ordered(), shape).prop_flat_map(|(one, other, shape)| {
        let ones = prop::collection::vec(value_of(one.clone()), 2);
        let others = prop::collection::vec(prop::option::of(value_of(other.clone())), 2);
        (ones, others).prop_map(move |(ones, others)| {
            let [first, second] = [ones[0].clone(), ones[1].clone()];
            let tuple = Value::Tuple(vec![Some(second.clone()), others[0].clone()]);
            let (ty, value) = match shape {
                0 => (list(&one), Value::List(ones)),
                1 => (set(&one), Value::Set(ones)),
                2 => (map(&one, &list(&one)), Value::Map(vec![(first, Value::List(ones))])),
                3 => (Type::Tuple([one.clone(), other.clone()].into()), tuple),
                4 => (user(&one, &other), tuple),
                5 => (Type::Vector { element: Arc::new(one.clone()), dimension: 2 }, Value::List(ones)),
                6 => (map(&user(&one, &other), &one), Value::Map(vec![(tuple, second)])),
                _ => (map(&set(&one), &user(&one, &other)), Value::Map(vec![(Value::Set(ones), tuple)])),
            };
            let bytes = value.encode(&ty).unwrap();
            let value = Value::decode(&ty, &bytes).unwrap().unwrap();
            (ty, value)
        })
    })
}

proptest! {
    #[test]
    fn values_made_of_values_read_as_what_was_printed((ty, value) in composite_value()) {
        let mut printed = String::new();
        print_value(&value, &ty, &mut printed);
        let bytes = value.encode(&ty).unwrap();
        let read = read_value(&parse(&printed).unwrap(), &ty).unwrap().unwrap();
        prop_assert_eq!(read.encode(&ty).unwrap(), bytes.clone(), "{}", printed);
        prop_assert_eq!(text::parse(&printed, &ty).unwrap().encode(&ty).unwrap(), bytes);
    }
}

/// Type, JSON, and CQL bytes: through the bytes and back. The examples of `docs/json.md` stand here.
#[test]
fn every_type_has_its_json() {
    let cases = [
        (Type::Counter, "-5", "fffffffffffffffb"),
        (list(&Type::Int), "[]", "00000000"),
        (list(&Type::Text), r#"["","é","\""]"#, "00000003 00000000 00000002 c3a9 00000001 22"),
        (
            list(&Type::Float),
            r#"[0.1,"NaN","-Infinity"]"#,
            "00000003 00000004 3dcccccd 00000004 7fc00000 00000004 ff800000",
        ),
        (set(&Type::BigInt), "[-1,9007199254740993]", "00000002 00000008 ffffffffffffffff 00000008 0020000000000001"),
        (
            map(&Type::Text, &Type::Int),
            r#"{"":-1,"a":1}"#,
            "00000002 00000000 00000004 ffffffff 00000001 61 00000004 00000001",
        ),
        (
            map(&Type::Int, &Type::Blob),
            r#"{"-1":"0x","7":"0xff"}"#,
            "00000002 00000004 ffffffff 00000000 00000004 00000007 00000001 ff",
        ),
        (
            map(&list(&Type::Int), &Type::Boolean),
            r#"{"[1]":true}"#,
            "00000001 0000000c 00000001 00000004 00000001 00000001 01",
        ),
        (Type::Tuple([Type::Int, Type::Text].into()), r#"[null,"a"]"#, "ffffffff 00000001 61"),
        (user(&Type::Int, &Type::Date), r#"{"first":1,"a \"b\"":null}"#, "00000004 00000001"),
        (user(&Type::Int, &Type::Date), r#"{"first":null,"a \"b\"":"1970-01-01"}"#, "ffffffff 00000004 80000000"),
        (user(&Type::Int, &Type::Date), r#"{"first":null,"a \"b\"":null}"#, ""),
        (Type::Vector { element: Arc::new(Type::Float), dimension: 2 }, "[1.0,-0.5]", "3f800000 bf000000"),
        (
            list(&user(&Type::Int, &set(&Type::Int))),
            r#"[{"first":1,"a \"b\"":[]}]"#,
            "00000001 00000010 00000004 00000001 00000004 00000000",
        ),
    ];
    for (ty, json, hex) in cases {
        let digits: Vec<char> = hex.chars().filter(|digit| *digit != ' ').collect();
        let bytes = digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap());
        let bytes: Bytes = bytes.collect();
        let value = read_value(&parse(json).unwrap(), &ty).unwrap().unwrap();
        assert_eq!(value.encode(&ty).unwrap(), bytes, "{ty} {json}");
        let mut printed = String::new();
        print_value(&Value::decode(&ty, &bytes).unwrap().unwrap(), &ty, &mut printed);
        assert_eq!(printed, json, "{ty}");
    }
}

#[test]
fn what_is_no_value_made_of_values_is_refused_with_the_place() {
    let cases = [
        (list(&Type::Int), r#"[1,null]"#, "element 2: it cannot be null"),
        (list(&Type::Int), r#"[1,"2"]"#, "element 2: \"2\" is no int"),
        (list(&Type::Int), r#"{}"#, "{} is no frozen<list<int>>; it is a JSON array"),
        (list(&Type::Int), r#"5"#, "5 is no frozen<list<int>>"),
        (map(&Type::Int, &Type::Int), r#"[]"#, "[] is no frozen<map<int, int>>; it is a JSON object"),
        (map(&Type::Int, &Type::Int), r#"{"a":1}"#, "\"a\": \"a\" is no int"),
        (map(&Type::Int, &Type::Int), r#"{"1":null}"#, "\"1\": it cannot be null"),
        (Type::Tuple([Type::Int, Type::Int].into()), r#"[1]"#, "has 2 elements, not 1"),
        (Type::Tuple([Type::Int].into()), r#"[1,2]"#, "has 1 elements, not 2"),
        (user(&Type::Int, &Type::Int), r#"{"third":1}"#, "there is no such field; the fields are first"),
    ];
    for (ty, json, reason) in cases {
        let error = read_value(&parse(json).unwrap(), &ty).unwrap_err();
        assert!(error.contains(reason), "{ty} {json}: {error}");
    }
    assert!(parse(r#"{"a":[{"b":1,"b":2}]}"#).unwrap_err().contains("\"b\" is given twice"));
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
