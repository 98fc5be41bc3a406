//! Types that people define: named fields, each with its type.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::types::{Type, UnknownType};

/// Most fields of a user-defined type: a field's place is stored in two bytes, and a value is read whole.
pub const FIELDS_MAX: usize = 1_000;

/// A user-defined type. Fields are never taken away and never change their place, so that a value that was written when
/// there were fewer stays readable: the fields that it lacks are null.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserType {
    /// The name of the keyspace that it lives in.
    pub keyspace: String,
    /// Its name; case counts.
    pub name: String,
    /// In order. None at all where only the name is known: in statements and entries, until the state of the cluster
    /// says what the fields are ([`Type::resolved`]).
    pub fields: Vec<Field>,
}

/// A field of a user-defined type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    /// Its name; case counts.
    pub name: String,
    /// What its values are.
    pub ty: Type,
}

impl UserType {
    /// The type as a statement names it.
    pub fn named(keyspace: impl Into<String>, name: impl Into<String>) -> UserType {
        UserType { keyspace: keyspace.into(), name: name.into(), fields: Vec::new() }
    }

    /// The same type, with the fields of the types that its fields name.
    pub fn resolved(&self, known: &UserTypes) -> Result<UserType, UnknownType> {
        let field = |field: &Field| Ok(Field { name: field.name.clone(), ty: field.ty.resolved(known)? });
        let fields = self.fields.iter().map(field).collect::<Result<_, UnknownType>>()?;
        Ok(UserType { keyspace: self.keyspace.clone(), name: self.name.clone(), fields })
    }

    /// The place of a field among the fields.
    pub fn position(&self, field: &str) -> Option<usize> {
        self.fields.iter().position(|known| known.name == field)
    }
}

/// User-defined types by keyspace and name.
pub type UserTypes = BTreeMap<(String, String), Arc<UserType>>;

/// Types whose fields only name other types, with what these names mean: each type may name any other that is given,
/// as long as none is made of itself. An error names one that is not given, or is.
pub fn resolved(mut named: Vec<UserType>) -> Result<UserTypes, UnknownType> {
    let mut known = UserTypes::new();
    while !named.is_empty() {
        let before = named.len();
        let mut missing = None;
        named.retain(|definition| match definition.resolved(&known) {
            Ok(whole) => {
                known.insert((whole.keyspace.clone(), whole.name.clone()), Arc::new(whole));
                false
            }
            Err(unknown) => {
                missing = Some(unknown);
                true
            }
        });
        if let Some(unknown) = missing.filter(|_| named.len() == before) {
            return Err(unknown);
        }
    }
    Ok(known)
}
