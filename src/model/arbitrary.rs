//! Arbitrary types, for the property tests of everything that knows types.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;

use super::{Field, Type, UserType};

/// What is known of the user-defined types in an arbitrary type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Users {
    /// Their names.
    Named,
    /// Their names and fields.
    Whole,
}

/// A type that there can be, of one to four types in each other; user-defined ones lie in the keyspace `ks`.
pub(crate) fn any_type(users: Users) -> impl Strategy<Value = Type> {
    let leaf = select(Type::SCALARS.to_vec());
    let inside = leaf.prop_recursive(3, 12, 4, move |inner| composite(inner, users)).boxed();
    let whole = (inside, any::<bool>()).prop_map(|(ty, freeze)| if freeze { ty.freeze() } else { thawed(&ty) });
    whole.prop_filter("it cannot be", |ty| ty.refused().is_none())
}

fn composite(inner: BoxedStrategy<Type>, users: Users) -> BoxedStrategy<Type> {
    let element = inner.clone().prop_map(Arc::new);
    prop_oneof![
        element.clone().prop_map(|element| Type::List { element, frozen: true }),
        element.clone().prop_map(|element| Type::Set { element, frozen: true }),
        (element.clone(), element.clone()).prop_map(|(key, value)| Type::Map { key, value, frozen: true }),
        (element, 1..5u16).prop_map(|(element, dimension)| Type::Vector { element, dimension }),
        proptest::collection::vec(inner.clone(), 1..4).prop_map(|elements| Type::Tuple(elements.into())),
        ("[a-zA-Z]{1,3}|int|list|primary", proptest::collection::vec(("[a-z ]{1,3}", inner), 1..4)).prop_map(
            move |(name, fields)| {
                let fields = fields.into_iter().map(|(name, ty)| Field { name, ty }).collect();
                let fields = if users == Users::Whole { fields } else { Vec::new() };
                let definition = Arc::new(UserType { fields, ..UserType::named("ks", name) });
                Type::User { definition, frozen: true }
            }
        ),
    ]
    .boxed()
}

/// The same type, not frozen itself.
fn thawed(ty: &Type) -> Type {
    match ty.clone() {
        Type::List { element, .. } => Type::List { element, frozen: false },
        Type::Set { element, .. } => Type::Set { element, frozen: false },
        Type::Map { key, value, .. } => Type::Map { key, value, frozen: false },
        Type::User { definition, .. } => Type::User { definition, frozen: false },
        other => other,
    }
}
