//! Rows and keys as JSON objects, one member per column; `docs/json.md` is this file for readers.
//!
//! Numbers keep all their digits in both directions: they never pass through a float on their way to an integer.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use trefoil::model::{Field, Table, Type, Value};

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

/// Whether values of the type are objects, in which a name could stand twice.
fn has_members(ty: &Type) -> bool {
    matches!(ty, Type::Map { .. } | Type::User { .. })
}

/// Any JSON in which no object has a name twice.
struct NoneTwice;

impl<'de> Deserialize<'de> for NoneTwice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NoneTwice, D::Error> {
        deserializer.deserialize_any(NoneTwice)
    }
}

impl<'de> Visitor<'de> for NoneTwice {
    type Value = NoneTwice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<NoneTwice, E> {
        Ok(NoneTwice)
    }

    fn visit_bool<E>(self, _: bool) -> Result<NoneTwice, E> {
        Ok(NoneTwice)
    }

    fn visit_i64<E>(self, _: i64) -> Result<NoneTwice, E> {
        Ok(NoneTwice)
    }

    fn visit_u64<E>(self, _: u64) -> Result<NoneTwice, E> {
        Ok(NoneTwice)
    }

    fn visit_f64<E>(self, _: f64) -> Result<NoneTwice, E> {
        Ok(NoneTwice)
    }

    fn visit_str<E>(self, _: &str) -> Result<NoneTwice, E> {
        Ok(NoneTwice)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<NoneTwice, A::Error> {
        while seq.next_element::<NoneTwice>()?.is_some() {}
        Ok(NoneTwice)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NoneTwice, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, NoneTwice)) = map.next_entry::<String, NoneTwice>()? {
            if let Some(name) = names.replace(name) {
                return Err(serde::de::Error::custom(format!("{} is given twice", text::shown(&name))));
            }
        }
        Ok(NoneTwice)
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
    if table.columns.iter().any(|column| column.ty.any(&mut has_members)) {
        serde_json::from_str::<NoneTwice>(text).map_err(|error| Fault::new(syntax(&error)))?;
    }
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

/// Any JSON, if no object in it has a name twice.
pub fn parse(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str::<NoneTwice>(text)
        .and_then(|NoneTwice| serde_json::from_str(text))
        .map_err(|error| error.to_string())
}

/// The value of a JSON value as a `ty`; `None` for null.
pub fn read_value(json: &serde_json::Value, ty: &Type) -> Result<Option<Value>, String> {
    use serde_json::Value as Json;
    match json {
        Json::Null => Ok(None),
        Json::Bool(value) if *ty == Type::Boolean => Ok(Some(Value::Boolean(*value))),
        Json::Number(number) if is_number(ty) => text::parse(number.as_str(), ty).map(Some),
        Json::String(text) if ty.is_scalar() && !is_number(ty) && *ty != Type::Boolean => {
            text::parse(text, ty).map(Some)
        }
        Json::String(text) if is_float(ty) && matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity") => {
            text::parse(text, ty).map(Some)
        }
        Json::Array(values) if !ty.is_scalar() && !has_members(ty) => read_array(values, ty).map(Some),
        Json::Object(members) if has_members(ty) => read_object(members, ty).map(Some),
        other => Err(format!("{} is no {}; {}", text::shown_json(other), ty, form(ty))),
    }
}

fn read_array(values: &[serde_json::Value], ty: &Type) -> Result<Value, String> {
    let read = |(at, value): (usize, &serde_json::Value)| match ty.part(at) {
        Some(part) => read_value(value, part).map_err(|reason| format!("element {}: {reason}", at + 1)),
        None => Err(format!("a {ty} has {at} elements, not {}", values.len())),
    };
    let read: Vec<Option<Value>> = values.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    if let Type::Tuple(elements) = ty {
        let whole = read.len() == elements.len();
        return if whole {
            Ok(Value::Tuple(read))
        } else {
            Err(format!("a {ty} has {} elements, not {}", elements.len(), read.len()))
        };
    }
    let whole = |(at, value): (usize, Option<Value>)| value.ok_or(format!("element {}: it cannot be null", at + 1));
    let elements = || read.into_iter().enumerate().map(whole).collect::<Result<_, _>>();
    match ty {
        Type::Set { .. } => elements().map(Value::Set),
        _ => elements().map(Value::List),
    }
}

fn read_object(members: &serde_json::Map<String, serde_json::Value>, ty: &Type) -> Result<Value, String> {
    let place = |name: &str, reason: String| format!("{}: {reason}", text::shown(name));
    if let Type::Map { key, value: ty, .. } = ty {
        let pair = |(name, value): (&String, &serde_json::Value)| {
            let key = text::parse(name, key).map_err(|reason| place(name, reason))?;
            let value = read_value(value, ty).map_err(|reason| place(name, reason))?;
            Ok((key, value.ok_or_else(|| place(name, "it cannot be null".to_owned()))?))
        };
        return members.iter().map(pair).collect::<Result<_, String>>().map(Value::Map);
    }
    let fields: &[Field] = if let Type::User { definition, .. } = ty { &definition.fields } else { &[] };
    let mut values = vec![None; fields.len()];
    for (name, value) in members {
        let at = fields.iter().position(|field| field.name == *name).ok_or_else(|| {
            let known: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
            place(name, format!("there is no such field; the fields are {}", known.join(", ")))
        })?;
        values[at] = read_value(value, &fields[at].ty).map_err(|reason| place(name, reason))?;
    }
    Ok(Value::Tuple(values))
}

/// How a value of the type is written in JSON.
fn form(ty: &Type) -> String {
    match ty {
        Type::Boolean => text::form(ty).to_owned(),
        Type::Float | Type::Double => "it is a number, or one of \"NaN\", \"Infinity\", \"-Infinity\"".to_owned(),
        ty if !ty.is_scalar() => text::form(ty).to_owned(),
        ty if is_number(ty) => "it is a number without point or exponent, not in quotes".to_owned(),
        _ => format!("it is a string, {}", text::form(ty)),
    }
}

fn is_float(ty: &Type) -> bool {
    matches!(ty, Type::Float | Type::Double)
}

/// Whether values of the type are JSON numbers.
fn is_number(ty: &Type) -> bool {
    is_float(ty) || matches!(ty, Type::TinyInt | Type::SmallInt | Type::Int | Type::BigInt | Type::Counter)
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
        Value::List(values) | Value::Set(values) => print_array(values.iter().map(Some), ty, out),
        Value::Map(pairs) => print_map(pairs, ty, out),
        Value::Tuple(values) => match ty {
            Type::User { definition, .. } => print_fields(values, &definition.fields, out),
            _ => print_array(values.iter().map(Option::as_ref), ty, out),
        },
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

fn print_array<'a>(values: impl Iterator<Item = Option<&'a Value>>, ty: &Type, out: &mut String) {
    out.push('[');
    for (at, value) in values.enumerate() {
        if at > 0 {
            out.push(',');
        }
        print_part(value, ty.part(at), out);
    }
    out.push(']');
}

/// Keys are strings in JSON: they have their text form.
fn print_map(pairs: &[(Value, Value)], ty: &Type, out: &mut String) {
    out.push('{');
    for (at, (key, value)) in pairs.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        let mut name = String::new();
        if let Some(ty) = ty.part(0) {
            text::print(key, ty, &mut name);
        }
        print_string(&name, out);
        out.push(':');
        print_part(Some(value), ty.part(1), out);
    }
    out.push('}');
}

fn print_fields(values: &[Option<Value>], fields: &[Field], out: &mut String) {
    out.push('{');
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        print_string(&field.name, out);
        out.push(':');
        print_part(values.get(at).and_then(Option::as_ref), Some(&field.ty), out);
    }
    out.push('}');
}

fn print_part(value: Option<&Value>, ty: Option<&Type>, out: &mut String) {
    match (value, ty) {
        (Some(value), Some(ty)) => print_value(value, ty, out),
        _ => out.push_str("null"),
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
