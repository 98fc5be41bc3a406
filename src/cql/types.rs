//! Types of columns, as words.
//!
//! ```text
//! int, text, ...            list<int>   set<int>   map<text, int>   tuple<int, text>   vector<float, 3>
//! frozen<list<int>>         frozen, as everything that lies inside of it and of tuples and vectors
//! address, "Address"        a user-defined type of the keyspace
//! ```

use std::sync::Arc;

use super::lexer::{Kind, is_reserved};
use super::parser::Parser;
use crate::Result;
use crate::model::types::TYPE_DEPTH_MAX;
use crate::model::{CreateType, Field, Type, UserType};

const COMPOSITES: [&str; 6] = ["frozen", "list", "map", "set", "tuple", "vector"];

/// Whether `word`, in lower case, is a type of CQL rather than the name of a user-defined one.
pub(super) fn is_type_word(word: &str) -> bool {
    COMPOSITES.contains(&word) || Type::from_word(word).is_some()
}

/// A type; user-defined ones of `keyspace` are named only.
pub(super) fn column_type(parser: &mut Parser, keyspace: &str) -> Result<Type> {
    let place = parser.place();
    let ty = TypeParser { parser, keyspace }.ty(1)?;
    // Only of the whole: what surrounds a type may freeze it.
    match ty.refused() {
        None => Ok(ty),
        Some(reason) => Err(place.error(format!("there is no type {ty}: {reason}"))),
    }
}

/// What follows `CREATE TYPE`.
pub(super) fn create_type(parser: &mut Parser) -> Result<CreateType> {
    let if_not_exists = parser.if_not_exists()?;
    let (keyspace, name) = parser.name_in_keyspace("the name of a type")?;
    parser.expect_symbol('(')?;
    let mut fields = Vec::new();
    loop {
        fields.push(field(parser, &keyspace)?);
        if parser.accept_symbol(')') {
            return Ok(CreateType { definition: UserType { keyspace, name, fields }, if_not_exists });
        }
        if !parser.accept_symbol(',') {
            return Err(parser.unexpected("',' or ')'"));
        }
    }
}

/// `name type`
pub(super) fn field(parser: &mut Parser, keyspace: &str) -> Result<Field> {
    let name = parser.name("the name of a field")?;
    Ok(Field { name, ty: column_type(parser, keyspace)? })
}

struct TypeParser<'a> {
    parser: &'a mut Parser,
    keyspace: &'a str,
}

impl TypeParser<'_> {
    fn ty(&mut self, depth: usize) -> Result<Type> {
        if depth > 2 * TYPE_DEPTH_MAX {
            let place = self.parser.place();
            return Err(place.error(format!("types lie in each other more than {TYPE_DEPTH_MAX} deep")));
        }
        let word = match &self.parser.token().kind {
            Kind::Word(word) => word.to_ascii_lowercase(),
            _ => String::new(),
        };
        if !COMPOSITES.contains(&word.as_str()) {
            return self.named(&word);
        }
        self.parser.accept_word(&word);
        self.parser.expect_symbol('<')?;
        let ty = match word.as_str() {
            "frozen" => self.ty(depth + 1)?.freeze(),
            "list" => Type::List { element: Arc::new(self.ty(depth + 1)?), frozen: false },
            "set" => Type::Set { element: Arc::new(self.ty(depth + 1)?), frozen: false },
            "map" => {
                let key = Arc::new(self.ty(depth + 1)?);
                self.parser.expect_symbol(',')?;
                Type::Map { key, value: Arc::new(self.ty(depth + 1)?), frozen: false }
            }
            "tuple" => self.tuple(depth)?,
            _ => self.vector(depth)?,
        };
        self.parser.expect_symbol('>')?;
        Ok(ty)
    }

    fn tuple(&mut self, depth: usize) -> Result<Type> {
        let mut elements = vec![self.ty(depth + 1)?.freeze()];
        while self.parser.accept_symbol(',') {
            elements.push(self.ty(depth + 1)?.freeze());
        }
        Ok(Type::Tuple(elements.into()))
    }

    fn vector(&mut self, depth: usize) -> Result<Type> {
        let element = Arc::new(self.ty(depth + 1)?.freeze());
        self.parser.expect_symbol(',')?;
        let place = self.parser.place();
        let dimension = self.parser.number("the number of dimensions")?;
        let too_many = || place.error(format!("a vector of {dimension} dimensions is too large"));
        Ok(Type::Vector { element, dimension: u16::try_from(dimension).map_err(|_| too_many())? })
    }

    /// A scalar type, or one that is defined elsewhere.
    fn named(&mut self, word: &str) -> Result<Type> {
        if let Some(ty) = Type::from_word(word) {
            self.parser.accept_word(word);
            return Ok(ty);
        }
        let is_name = !word.is_empty() && !is_reserved(word);
        if !is_name && !matches!(self.parser.token().kind, Kind::Quoted(_)) {
            let scalars = Type::SCALARS.iter().map(Type::word).collect::<Vec<_>>().join(", ");
            let expected =
                format!("a type: {scalars}, counter, {}, or the name of a user-defined type", COMPOSITES.join(", "));
            return Err(self.parser.unexpected(&expected));
        }
        let place = self.parser.place();
        let (keyspace, name) = self.parser.qualified_name("the name of a type", self.keyspace)?;
        if keyspace != self.keyspace {
            let reason = format!("found the type {keyspace}.{name}, expected one of the keyspace {}", self.keyspace);
            return Err(place.error(reason));
        }
        Ok(Type::User { definition: Arc::new(UserType::named(keyspace, name)), frozen: false })
    }
}
