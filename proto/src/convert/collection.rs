//! Writes of columns that have a cell for each element: lists, sets, maps and user-defined types that are not frozen.
//!
//! ```text
//! value           what was there before is deleted, then come the elements; null deletes what was there
//! append          list, behind the others · set · map: the elements
//! prepend         list, before the others
//! remove          set: elements · map: keys, given as a set
//! set_element     map: at a key · user-defined type: a field, by position or name · list: the element of an id
//! delete_element  set: an element · and as for set_element
//! ```
//!
//! All of these write without reading. What CQL offers beyond that for lists (by index, by value) reads first, and is
//! refused.

use std::sync::Arc;

use bytes::Bytes;
use trefoil::model::collection::{field_path, take_apart};
use trefoil::model::list::{LIST_TIMESTAMP_MAX, ListEnd, ListPaths};
use trefoil::model::value::{assembled, parts};
use trefoil::model::{Cell, Complex, Deletion, Type};

use super::mutation::Validity;
use super::{Result, value};
use crate::v1::cell_write::{Element, Op};
use crate::v1::value::Kind;
use crate::v1::{InvalidDetail, Value};

/// What one change does to one complex column.
pub(super) struct ComplexWrite<'a> {
    /// The column's type.
    pub ty: &'a Type,
    /// Timestamp and time to live of the elements.
    pub validity: Validity,
    /// The paths of elements of lists.
    pub paths: &'a mut ListPaths,
}

impl ComplexWrite<'_> {
    /// What `op` writes; `None` if that is nothing: no elements are added or removed.
    pub fn written(&mut self, op: Op) -> Result<Option<Complex>> {
        match op {
            Op::Value(value) if is_null(&value) => {
                let Validity { timestamp, now_s, .. } = self.validity;
                Ok(Some(Complex::deleted(Deletion { timestamp, ldt_s: now_s })))
            }
            Op::Value(value) => {
                let elements = self.elements(value, ListEnd::Back)?;
                Ok(Complex::replaced(self.validity.timestamp, self.validity.now_s, elements))
            }
            Op::Append(value) => match self.ty {
                Type::List { .. } | Type::Set { .. } | Type::Map { .. } => self.added(value, ListEnd::Back),
                _ => Err(self.refused("append", "its fields are set one by one, by `set_element`")),
            },
            Op::Prepend(value) => match self.ty {
                Type::List { .. } => self.added(value, ListEnd::Front),
                _ => Err(self.refused("prepend", "only lists have a front")),
            },
            Op::Remove(value) => self.removed(value),
            Op::SetElement(Element { path, value }) => {
                let value = value.ok_or_else(|| InvalidDetail::new("the element has no value; null deletes it"))?;
                self.set_element(path.unwrap_or_default(), value).map(Some)
            }
            Op::DeleteElement(path) => {
                let path = self.path(path)?;
                Ok(Complex::of(None, [(path, self.validity.cell(None))]))
            }
        }
    }

    fn added(&mut self, value: Value, end: ListEnd) -> Result<Option<Complex>> {
        Ok(Complex::of(None, self.elements(value, end)?))
    }

    /// The cells of the elements of a whole value.
    fn elements(&mut self, value: Value, end: ListEnd) -> Result<Vec<(Bytes, Cell)>> {
        let (ty, validity) = (self.ty, self.validity);
        let bytes = not_null(value::to_bytes(value, ty)?)?;
        let path = || {
            self.paths.next(end, validity.timestamp).ok_or_else(|| {
                let reason = format!(
                    "timestamp {} µs gives the elements no place; it must lie between 0 and {} µs",
                    validity.timestamp.0, LIST_TIMESTAMP_MAX.0
                );
                trefoil::Error::invalid(ty.to_string(), reason)
            })
        };
        let elements = take_apart(ty, &bytes, path).map_err(refused_by_core)?;
        Ok(elements.into_iter().map(|(path, value)| (path, validity.cell(Some(value)))).collect())
    }

    fn removed(&mut self, value: Value) -> Result<Option<Complex>> {
        let keys = match self.ty {
            Type::Set { .. } => self.ty.clone(),
            Type::Map { key, .. } => Type::Set { element: key.clone(), frozen: false },
            Type::List { .. } => {
                let reason = "removing the elements of a value reads the list first; elements are deleted by their ids";
                return Err(self.refused("remove", reason));
            }
            _ => return Err(self.refused("remove", "its fields are deleted one by one, by `delete_element`")),
        };
        let bytes = not_null(value::to_bytes(value, &keys)?)?;
        let no_list = || Err(trefoil::Error::invalid(keys.to_string(), "is no list"));
        let elements = take_apart(&keys, &bytes, no_list).map_err(refused_by_core)?;
        let removed = elements.into_iter().map(|(path, _)| (path, self.validity.cell(None)));
        Ok(Complex::of(None, removed))
    }

    fn set_element(&self, path: Value, value: Value) -> Result<Complex> {
        let (named, of) = match self.ty {
            Type::Map { value: of, .. } => (self.path(path)?, &**of),
            Type::List { element: of, .. } => (self.path(path)?, &**of),
            Type::User { definition, .. } => {
                let position = self.field(&path)?;
                (field_path(position), &definition.fields[position].ty)
            }
            _ => return Err(self.refused("set_element", "an element of a set has no value; `append` adds it")),
        };
        let value = match value::to_bytes(value, of)? {
            Some(value) => Some(inside(of, value)?),
            None => None,
        };
        Ok(Complex { deletion: None, cells: vec![(named, self.validity.cell(value))] })
    }

    /// Where an element lies that a request names.
    fn path(&self, path: Value) -> Result<Bytes> {
        match self.ty {
            Type::Map { key: named, .. } | Type::Set { element: named, .. } => {
                let path = not_null(value::to_bytes(path, named)?)?;
                // As the element of a set, since it has the limits and the one form of those.
                one_part(Type::Set { element: named.clone(), frozen: true }, path)
            }
            Type::List { .. } => match path.kind {
                Some(Kind::Integer(_)) => Err(InvalidDetail::new(
                    "an element of a list cannot be named by its index, as that reads the list first; it is named by \
                     its id, a timeuuid",
                )),
                _ => {
                    let id = not_null(value::to_bytes(path, &Type::TimeUuid)?)?;
                    if id.is_empty() {
                        return Err(InvalidDetail::new("the id of an element of a list is empty"));
                    }
                    Ok(id)
                }
            },
            _ => self.field(&path).map(field_path),
        }
    }

    /// The position of a field of a user-defined type.
    fn field(&self, path: &Value) -> Result<usize> {
        let Type::User { definition, .. } = self.ty else {
            return Err(InvalidDetail::new(format!("{} has no fields", self.ty)));
        };
        let position = match &path.kind {
            Some(Kind::Text(name)) => definition.position(name),
            Some(Kind::Integer(position)) => {
                usize::try_from(*position).ok().filter(|position| *position < definition.fields.len())
            }
            _ => {
                return Err(InvalidDetail::new(
                    "a field is named by its position, an `integer`, or its name, a `text`",
                ));
            }
        };
        position.ok_or_else(|| InvalidDetail::new(format!("{} has no such field", self.ty)))
    }

    fn refused(&self, op: &str, why: &str) -> InvalidDetail {
        InvalidDetail::new(format!("`{op}` cannot be done to a {}: {why}", self.ty))
    }
}

/// The bytes that a value has inside of another.
fn inside(ty: &Type, value: Bytes) -> Result<Bytes> {
    one_part(Type::List { element: Arc::new(ty.clone()), frozen: true }, value)
}

/// The only part of a value that is made of it.
fn one_part(ty: Type, part: Bytes) -> Result<Bytes> {
    let whole = assembled(&ty, vec![Some(part)]).map_err(refused_by_core)?;
    let part = parts(&ty, &whole).map_err(refused_by_core)?.pop().flatten();
    not_null(part)
}

fn refused_by_core(error: trefoil::Error) -> InvalidDetail {
    InvalidDetail::from_core(&error)
}

fn is_null(value: &Value) -> bool {
    matches!(value.kind, Some(Kind::Null(_)))
}

fn not_null(bytes: Option<Bytes>) -> Result<Bytes> {
    bytes.ok_or_else(|| InvalidDetail::new("null has no elements and is none"))
}
