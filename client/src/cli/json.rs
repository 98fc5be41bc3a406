//! Rows and keys as JSON objects, one member per column; `docs/json.md` is this file for readers.
//!
//! Numbers keep all their digits in both directions: they never pass through a float on their way to an integer.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use trefoil::model::{Table, Type, Value};

use super::row::{Fault, Given, KeyInput, RowInput, checked, place_of};
use super::text;

/// The members of an object, in order. serde_json's own map would keep the last of two members of one name in silence.
struct Members(Vec<(String, serde_json::Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(Members)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(String, serde_json::Value)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one member per column")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(map.size_hint().unwrap_or(16));
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

/// An argument that is a JSON object, before there is a table to read it by.
pub fn object(text: &str) -> Result<String, String> {
    match serde_json::from_str::<Members>(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The row of a JSON object.
pub fn read_row(text: &str, table: &Table) -> Result<RowInput, Fault> {
    RowInput::new(table, read_members(text, table)?)
}

/// The key of a JSON object, or the beginning of one.
pub fn read_key(text: &str, table: &Table) -> Result<KeyInput, Fault> {
    KeyInput::new(table, read_members(text, table)?)
}

fn read_members(text: &str, table: &Table) -> Result<Vec<Given>, Fault> {
    let Members(members) = serde_json::from_str(text).map_err(|error| Fault::new(syntax(&error)))?;
    let mut given = vec![Given::Unset; table.columns.len()];
    for (name, value) in members {
        let place = place_of(table, &name)?;
        let column = &table.columns[place];
        if given[place] != Given::Unset {
            return Err(Fault::of(&name, "it is given twice"));
        }
        given[place] = match read_value(&value, &column.ty).map_err(|reason| Fault::of(&name, reason))? {
            Some(value) => checked(value, column)?,
            None => Given::Null,
        };
    }
    Ok(given)
}

/// What serde_json says, without its "at line 1": an object is one line of a file whose number is said elsewhere.
fn syntax(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    format!("no JSON object: {} at column {}", &text[..end], error.column())
}

/// The value of a JSON value as a `ty`; `None` for null.
pub fn read_value(json: &serde_json::Value, ty: &Type) -> Result<Option<Value>, String> {
    use serde_json::Value as Json;
    match json {
        Json::Null => Ok(None),
        Json::Bool(value) if *ty == Type::Boolean => Ok(Some(Value::Boolean(*value))),
        Json::Number(number) if is_number(ty) => text::parse(number.as_str(), ty).map(Some),
        Json::String(text) if !is_number(ty) && *ty != Type::Boolean => text::parse(text, ty).map(Some),
        Json::String(text) if is_float(ty) && matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity") => {
            text::parse(text, ty).map(Some)
        }
        other => Err(format!("{} is no {}; {}", text::shown_json(other), ty, form(ty))),
    }
}

/// How a value of the type is written in JSON.
fn form(ty: &Type) -> String {
    match ty {
        Type::Boolean => text::form(ty).to_owned(),
        Type::Float | Type::Double => "it is a number, or one of \"NaN\", \"Infinity\", \"-Infinity\"".to_owned(),
        ty if is_number(ty) => "it is a number without point or exponent, not in quotes".to_owned(),
        _ => format!("it is a string, {}", text::form(ty)),
    }
}

fn is_float(ty: &Type) -> bool {
    matches!(ty, Type::Float | Type::Double)
}

/// Whether values of the type are JSON numbers.
fn is_number(ty: &Type) -> bool {
    is_float(ty) || matches!(ty, Type::TinyInt | Type::SmallInt | Type::Int | Type::BigInt)
}

/// Writes a value, which is of type `ty`, as JSON.
pub fn print_value(value: &Value, ty: &Type, out: &mut String) {
    let bare = match value {
        Value::Boolean(_) => true,
        Value::Integer(_) => is_number(ty),
        Value::Float(value) => value.is_finite(),
        Value::Double(value) => value.is_finite(),
        _ => false,
    };
    match value {
        Value::Text(text) => print_string(text, out),
        _ if bare => text::print(value, ty, out),
        _ => {
            // No text form but that of texts has anything to escape.
            out.push('"');
            text::print(value, ty, out);
            out.push('"');
        }
    }
}

/// Writes a JSON string.
pub fn print_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if u32::from(control) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
pub mod tests;
