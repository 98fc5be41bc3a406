//! Which types there can be, and what becomes of their names.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::model::usertype::resolved;

fn list(element: Type, frozen: bool) -> Type {
    Type::List { element: Arc::new(element), frozen }
}

fn set(element: Type) -> Type {
    Type::Set { element: Arc::new(element), frozen: false }
}

fn map(key: Type, value: Type) -> Type {
    Type::Map { key: Arc::new(key), value: Arc::new(value), frozen: false }
}

fn user(name: &str, frozen: bool) -> Type {
    Type::User { definition: Arc::new(UserType::named("ks", name)), frozen }
}

fn definition(name: &str, fields: &[Type]) -> UserType {
    let field = |(at, ty): (usize, &Type)| Field { name: format!("f{at}"), ty: ty.clone() };
    UserType { fields: fields.iter().enumerate().map(field).collect(), ..UserType::named("ks", name) }
}

#[test]
fn every_scalar_has_its_code_and_its_word() {
    for (ty, code) in Type::SCALARS.into_iter().chain([Type::Counter]).zip(1..) {
        assert_eq!(ty.code(), code);
        assert_eq!(Type::scalar(code), Some(ty.clone()));
        assert_eq!(Type::from_word(ty.word()), Some(ty));
    }
    assert_eq!(Type::scalar(0), None);
    assert_eq!(Type::scalar(21), None);
    assert_eq!(Type::scalar(32), None);
    assert_eq!(Type::from_word("varchar"), Some(Type::Text));
    assert_eq!(Type::from_word("list"), None);
}

#[test]
fn what_cannot_be_a_type_is_refused_with_the_reason() {
    let deep = (0..TYPE_DEPTH_MAX).fold(Type::Int, |inner, _| list(inner, true));
    let wide = Type::Tuple(vec![Type::Tuple(vec![Type::Int; 999].into()); 999].into());
    for (ty, reason) in [
        (list(list(Type::Int, false), false), "must be frozen: frozen<list<int>>"),
        (map(Type::Int, user("address", false)), "must be frozen: frozen<address>"),
        (list(Type::Counter, false), "counters cannot lie inside"),
        (set(Type::Duration), "durations have no order"),
        (set(Type::Tuple([Type::Int, Type::Duration].into())), "durations have no order"),
        (map(Type::Duration, Type::Int), "durations have no order"),
        (Type::Vector { element: Arc::new(Type::Float), dimension: 0 }, "1 to 8192 dimensions"),
        (Type::Vector { element: Arc::new(Type::Float), dimension: 8_193 }, "1 to 8192 dimensions"),
        (Type::Tuple([].into()), "1 to 1000 elements"),
        (deep, "more than 8 deep"),
        (wide, "more than 4000 types"),
    ] {
        let refused = ty.refused().unwrap();
        assert!(refused.contains(reason), "{refused}");
    }
    assert_eq!(map(Type::Text, Type::Duration).refused(), None);
    assert_eq!(list(list(Type::Int, true), false).refused(), None);
}

#[test]
fn keys_have_no_part_without_an_order() {
    assert_eq!(Type::Tuple([Type::Int, Type::Text].into()).refused_in_key(), None);
    assert_eq!(list(Type::Int, true).refused_in_key(), None);
    for ty in [
        list(Type::Int, false),
        list(Type::Decimal, true),
        Type::Tuple([Type::Int, Type::Duration].into()),
        Type::Counter,
        Type::User { definition: Arc::new(definition("t", &[Type::Decimal])), frozen: true },
    ] {
        assert!(ty.refused_in_key().is_some(), "{ty}");
    }
}

#[test]
fn freezing_reaches_all_that_lies_inside() {
    let ty = map(Type::Int, list(Type::Tuple([user("t", false)].into()), false));
    assert_eq!(ty.freeze().to_string(), "frozen<map<int, frozen<list<tuple<frozen<t>>>>>>");
    assert!(ty.is_complex() && !ty.freeze().is_complex());
}

#[test]
fn names_get_their_fields_in_whatever_order_they_were_given() {
    let named = vec![
        definition("outer", &[user("middle", true), Type::Int]),
        definition("middle", &[list(user("inner", true), true)]),
        definition("inner", &[Type::Text]),
    ];
    let known = resolved(named.clone()).unwrap();
    let whole = list(user("outer", true), false).resolved(&known).unwrap();
    let mut texts = 0;
    assert!(!whole.any(&mut |ty| {
        texts += usize::from(*ty == Type::Text);
        false
    }));
    assert_eq!(texts, 1);
    let missing = resolved(named[..2].to_vec()).unwrap_err();
    assert_eq!(missing.to_string(), "there is no type ks.inner");
    let circle = vec![definition("a", &[user("b", true)]), definition("b", &[user("a", true)])];
    assert!(resolved(circle).is_err());
}
