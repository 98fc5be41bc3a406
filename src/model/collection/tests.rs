//! Values taken apart and put together again.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use super::*;
use crate::model::list::{ListEnd, ListPaths};
use crate::model::usertype::{Field, UserType};
use crate::model::{Cell, CellKind, Deletion, Timestamp};

const AT: Timestamp = Timestamp(1_767_225_600_000_000);

fn int(number: i32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn list() -> Type {
    Type::List { element: Arc::new(Type::Int), frozen: false }
}

fn set(element: Type) -> Type {
    Type::Set { element: Arc::new(element), frozen: false }
}

fn map() -> Type {
    Type::Map { key: Arc::new(Type::Int), value: Arc::new(Type::Text), frozen: false }
}

fn user() -> Type {
    let field = |name: &str, ty| Field { name: name.to_owned(), ty };
    let fields = vec![field("a", Type::Int), field("b", Type::Text), field("c", Type::Int)];
    let definition = UserType { keyspace: "ks".to_owned(), name: "u".to_owned(), fields };
    Type::User { definition: Arc::new(definition), frozen: false }
}

fn live(value: Bytes) -> Cell {
    Cell { timestamp: AT, kind: CellKind::Live(value) }
}

/// The elements of a value as cells; those of lists at the end.
fn elements(ty: &Type, parts: Vec<Option<Bytes>>) -> Vec<(Bytes, Cell)> {
    let value = assembled(ty, parts).unwrap();
    let mut paths = ListPaths::new(b"request");
    let taken = take_apart(ty, &value, || Ok(paths.next(ListEnd::Back, AT).unwrap())).unwrap();
    taken.into_iter().map(|(path, value)| (path, live(value))).collect()
}

fn some(parts: &[Bytes]) -> Vec<Option<Bytes>> {
    parts.iter().cloned().map(Some).collect()
}

#[test]
fn values_come_back() {
    let cases = [
        (list(), some(&[int(3), int(-1), int(3)])),
        (set(Type::Int), some(&[int(-5), int(0), int(7)])),
        (set(Type::Text), some(&[text(""), text("a"), text("b")])),
        (map(), some(&[int(-2), text("x"), int(1), text("")])),
        (user(), vec![Some(int(1)), None, Some(int(2))]),
        (user(), vec![None, Some(text("b"))]),
    ];
    for (ty, parts) in cases {
        let complex = Complex::of(None, elements(&ty, parts.clone())).unwrap();
        let expected = assembled(&ty, parts).unwrap();
        assert_eq!(put_together(&ty, &complex, 0).unwrap(), Some(expected), "{ty}");
    }
}

#[test]
fn elements_are_shown_in_the_order_of_the_type() {
    // As bytes -1 lies behind 1.
    let complex = Complex::of(None, elements(&set(Type::Int), some(&[int(1), int(-1)]))).unwrap();
    assert_eq!(complex.cells[0].0, int(1));
    let expected = assembled(&set(Type::Int), some(&[int(-1), int(1)])).unwrap();
    assert_eq!(put_together(&set(Type::Int), &complex, 0).unwrap(), Some(expected));

    let mut paths = ListPaths::new(b"request");
    let mut at = |end, number| (paths.next(end, AT).unwrap(), live(int(number)));
    let cells = [at(ListEnd::Back, 2), at(ListEnd::Front, 0), at(ListEnd::Back, 3), at(ListEnd::Front, 1)];
    let complex = Complex::of(None, cells).unwrap();
    let expected = assembled(&list(), some(&[int(0), int(1), int(2), int(3)])).unwrap();
    assert_eq!(put_together(&list(), &complex, 0).unwrap(), Some(expected));
}

#[test]
fn only_live_elements_are_shown_and_none_is_null() {
    let expiring = CellKind::Expiring { value: text("e"), ttl_s: 10, expiry_s: 110 };
    let cells = [
        (int(1), Cell { timestamp: AT, kind: expiring }),
        (int(2), Cell { timestamp: AT, kind: CellKind::Tombstone { ldt_s: 100 } }),
    ];
    let complex = Complex::of(Some(Deletion { timestamp: Timestamp(1), ldt_s: 1 }), cells).unwrap();
    let expected = assembled(&map(), some(&[int(1), text("e")])).unwrap();
    assert_eq!(put_together(&map(), &complex, 109).unwrap(), Some(expected));
    assert_eq!(put_together(&map(), &complex, 110).unwrap(), None);
}

#[test]
fn fields_that_are_not_known_yet_are_left_out() {
    let cells = [(field_path(1), live(text("b"))), (field_path(3), live(int(9))), (text("x"), live(int(9)))];
    let complex = Complex::of(None, cells).unwrap();
    let expected = assembled(&user(), vec![None, Some(text("b"))]).unwrap();
    assert_eq!(put_together(&user(), &complex, 0).unwrap(), Some(expected));
}

#[test]
fn what_is_no_value_is_corrupt() {
    let complex = Complex::of(None, [(text("no int"), live(text("x")))]).unwrap();
    assert!(matches!(put_together(&map(), &complex, 0), Err(Error::Corrupt(_))));
    assert!(matches!(put_together(&Type::Int, &complex, 0), Err(Error::Invalid { .. })));
    assert!(take_apart(&list(), &text("cut"), || Ok(Bytes::new())).is_err());
}
