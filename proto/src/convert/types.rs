//! Types of columns, and user-defined types.
//!
//! On the wire a user-defined type is only named, and its keyspace is that of whatever names it.

use std::sync::Arc;

use trefoil::model::types::TYPE_DEPTH_MAX;
use trefoil::model::usertype::{self, UserTypes};
use trefoil::model::{Field as ModelField, Type as ModelType, UserType as ModelUserType};

use super::Result;
use crate::v1::r#type::{Kind, Map, Tuple, Vector};
use crate::v1::user_type::Field;
use crate::v1::{InvalidDetail, Type, UserType};

/// The wire form of a type.
pub fn ty(ty: &ModelType) -> Type {
    let boxed = |element: &ModelType| Box::new(self::ty(element));
    let (kind, frozen) = match ty {
        ModelType::List { element, frozen } => (Kind::List(boxed(element)), *frozen),
        ModelType::Set { element, frozen } => (Kind::Set(boxed(element)), *frozen),
        ModelType::Map { key, value, frozen } => {
            (Kind::Map(Box::new(Map { key: Some(boxed(key)), value: Some(boxed(value)) })), *frozen)
        }
        ModelType::Tuple(elements) => (Kind::Tuple(Tuple { elements: elements.iter().map(self::ty).collect() }), false),
        ModelType::User { definition, frozen } => (Kind::Udt(definition.name.clone()), *frozen),
        ModelType::Vector { element, dimension } => {
            let vector = Vector { element: Some(boxed(element)), dimension: u32::from(*dimension) };
            (Kind::Vector(Box::new(vector)), false)
        }
        scalar => (Kind::Scalar(i32::from(scalar.code())), false),
    };
    Type { kind: Some(kind), frozen }
}

/// A type from its wire form; user-defined types of `keyspace` are named only.
pub fn ty_to_model(ty: Type, keyspace: &str) -> Result<ModelType> {
    let ty = converted(ty, keyspace, 1)?;
    match ty.refused() {
        None => Ok(ty),
        Some(reason) => Err(InvalidDetail::new(format!("cannot be of type {ty}: {reason}"))),
    }
}

fn converted(ty: Type, keyspace: &str, depth: usize) -> Result<ModelType> {
    if depth > TYPE_DEPTH_MAX {
        return Err(InvalidDetail::new(format!("has types that lie in each other more than {TYPE_DEPTH_MAX} deep")));
    }
    let Some(kind) = ty.kind else { return Err(unknown()) };
    let frozen = ty.frozen;
    if frozen && matches!(kind, Kind::Scalar(_) | Kind::Tuple(_) | Kind::Vector(_)) {
        return Err(InvalidDetail::new(
            "is said to be frozen, but only lists, sets, maps and user-defined types can be",
        ));
    }
    let inside = |ty: Type| converted(ty, keyspace, depth + 1);
    let boxed = |ty: Option<Box<Type>>| inside(*ty.ok_or_else(unknown)?).map(Arc::new);
    Ok(match kind {
        Kind::Scalar(code) => u8::try_from(code).ok().and_then(ModelType::scalar).ok_or_else(unknown)?,
        Kind::List(element) => ModelType::List { element: boxed(Some(element))?, frozen },
        Kind::Set(element) => ModelType::Set { element: boxed(Some(element))?, frozen },
        Kind::Map(map) => ModelType::Map { key: boxed(map.key)?, value: boxed(map.value)?, frozen },
        Kind::Tuple(tuple) => ModelType::Tuple(tuple.elements.into_iter().map(inside).collect::<Result<_>>()?),
        Kind::Udt(name) => ModelType::User { definition: Arc::new(ModelUserType::named(keyspace, name)), frozen },
        Kind::Vector(vector) => {
            let too_large = || InvalidDetail::new(format!("is a vector of {} dimensions", vector.dimension));
            let dimension = u16::try_from(vector.dimension).map_err(|_| too_large())?;
            ModelType::Vector { element: boxed(vector.element)?, dimension }
        }
    })
}

fn unknown() -> InvalidDetail {
    InvalidDetail::new("has no known type")
}

/// The wire form of a user-defined type.
pub fn user_type(definition: &ModelUserType) -> UserType {
    UserType {
        keyspace: definition.keyspace.clone(),
        name: definition.name.clone(),
        fields: fields(&definition.fields),
    }
}

/// A user-defined type from its wire form; the types that its fields name are named only.
pub fn user_type_to_model(definition: UserType) -> Result<ModelUserType> {
    let UserType { keyspace, name, fields } = definition;
    if fields.is_empty() {
        return Err(InvalidDetail::new(format!("type {keyspace}.{name} has no fields")));
    }
    let fields = fields_to_model(fields, &keyspace, &name)?;
    Ok(ModelUserType { keyspace, name, fields })
}

/// The wire form of fields.
pub(super) fn fields(fields: &[ModelField]) -> Vec<Field> {
    fields.iter().map(|field| Field { name: field.name.clone(), r#type: Some(ty(&field.ty)) }).collect()
}

/// Fields of the type `keyspace.name` from their wire form.
pub(super) fn fields_to_model(fields: Vec<Field>, keyspace: &str, name: &str) -> Result<Vec<ModelField>> {
    let place =
        |invalid: InvalidDetail| InvalidDetail::new(format!("type {keyspace}.{name}: a field {}", invalid.reason));
    let field = |field: Field| {
        let ty = ty_to_model(field.r#type.unwrap_or_default(), keyspace).map_err(place)?;
        Ok(ModelField { name: field.name, ty })
    };
    fields.into_iter().map(field).collect()
}

/// The user-defined types of a description, with the fields of the types that they name.
pub fn user_types_to_model(definitions: Vec<UserType>) -> Result<UserTypes> {
    let named = definitions.into_iter().map(user_type_to_model).collect::<Result<_>>()?;
    usertype::resolved(named).map_err(|unknown| InvalidDetail::new(unknown.to_string()))
}
