//! Values as text: one form for each type, the same in JSON strings, CSV fields and error messages.
//!
//! The forms stand in `docs/json.md`. **Invariant:** what [`print`] writes, [`parse`] reads as an equal value, and each
//! value has one form only (of a NaN the payload is lost; that is the one exception). [`parse`] takes nothing that
//! would have to be rounded, cut or guessed at.

use std::fmt::Write;

use jiff::civil::{Date, Time};
use jiff::{Timestamp, Unit};
use num_bigint::BigInt;
use trefoil::model::{Type, Value};
use uuid::Uuid;

use super::{duration, json};

/// The most digits of a varint or a decimal: reading takes time with the square of them.
const DIGITS_MAX: usize = 100_000;
/// Decimals are written with so many zeros after the point at most, before they get an exponent.
const LEADING_ZEROS_MAX: usize = 6;
/// Days from 0000-01-01 to 1970-01-01.
const DAY_FIRST: i64 = -719_528;
/// Days from 1970-01-01 to 9999-12-31.
const DAY_LAST: i64 = 2_932_896;
const MS_PER_DAY: i64 = 86_400_000;
/// The first instant of the calendar: 0000-01-01T00:00:00Z.
const MS_FIRST: i64 = DAY_FIRST * MS_PER_DAY;
/// The last one, 9999-12-30T21:59:59.999Z: every time zone has a year of four digits until then.
const MS_LAST: i64 = 253_402_207_199_999;

/// The value of `text` as a `ty`, or why it is none.
pub fn parse(text: &str, ty: &Type) -> Result<Value, String> {
    let value = match ty {
        Type::Ascii | Type::Text => Some(Value::Text(text.to_owned())),
        Type::Blob => blob(text),
        Type::Boolean => text.parse().ok().map(Value::Boolean),
        Type::TinyInt => integer::<i8>(text)?,
        Type::SmallInt => integer::<i16>(text)?,
        Type::Int => integer::<i32>(text)?,
        Type::BigInt | Type::Counter => integer::<i64>(text)?,
        Type::VarInt => digits(text)?.map(Value::VarInt),
        Type::Decimal => decimal(text)?,
        Type::Float => float(text, f32::NAN, f32::INFINITY, f32::is_finite)?.map(Value::Float),
        Type::Double => float(text, f64::NAN, f64::INFINITY, f64::is_finite)?.map(Value::Double),
        Type::Date => date(text)?,
        Type::Time => time(text),
        Type::Timestamp => timestamp(text)?,
        Type::Duration => Some(duration::parse(text)?),
        Type::Uuid | Type::TimeUuid => uuid(text),
        Type::Inet => text.parse().ok().map(Value::Inet),
        _ => return composite(text, ty),
    };
    value.ok_or_else(|| format!("{} is no {}; {}", shown(text), ty, form(ty)))
}

/// A value that is made of others stands as JSON wherever it is a text.
fn composite(text: &str, ty: &Type) -> Result<Value, String> {
    let json = json::parse(text).map_err(|reason| format!("{} is no {ty}; {}: {reason}", shown(text), form(ty)))?;
    match json::read_value(&json, ty)? {
        Some(value) => Ok(value),
        None => Err(format!("{} is no {ty}; {}", shown(text), form(ty))),
    }
}

/// Writes a value of type `ty`; nothing if it is not one, which no table holds.
pub fn print(value: &Value, ty: &Type, out: &mut String) {
    // Writing to a String does not fail.
    let _ = match value {
        Value::Boolean(value) => write!(out, "{value}"),
        Value::Integer(value) => match ty {
            Type::Date => print_date(*value, out),
            Type::Time => print_time(*value, out),
            Type::Timestamp => print_timestamp(*value, out),
            _ => write!(out, "{value}"),
        },
        Value::Float(value) if value.is_finite() => write!(out, "{value:?}"),
        Value::Float(value) => out.write_str(infinite(f64::from(*value))),
        Value::Double(value) if value.is_finite() => write!(out, "{value:?}"),
        Value::Double(value) => out.write_str(infinite(*value)),
        Value::Text(value) => out.write_str(value),
        Value::Blob(bytes) => print_blob(bytes, out),
        Value::Uuid(value) => write!(out, "{value}"),
        Value::Inet(value) => write!(out, "{value}"),
        Value::VarInt(value) => write!(out, "{value}"),
        Value::Decimal { scale, unscaled } => print_decimal(*scale, unscaled, out),
        Value::Duration { months, days, nanos } => duration::print(*months, *days, *nanos, out),
        Value::List(_) | Value::Set(_) | Value::Map(_) | Value::Tuple(_) => {
            json::print_value(value, ty, out);
            Ok(())
        }
    };
}

/// How a value of the type is written, for those who wrote something else.
pub fn form(ty: &Type) -> &'static str {
    match ty {
        Type::Ascii | Type::Text => "any text",
        Type::Blob => "it is written as 0x and pairs of hex digits",
        Type::Boolean => "it is true or false",
        Type::TinyInt | Type::SmallInt | Type::Int | Type::BigInt | Type::Counter | Type::VarInt => {
            "it is written in decimal digits"
        }
        Type::Decimal => "it is written like -12.50 or 1e-9",
        Type::Float | Type::Double => "it is a number, NaN, Infinity or -Infinity",
        Type::Date => "it is written like 2013-01-31",
        Type::Time => "it is written like 23:59:59.5, from 00:00:00 on",
        Type::Timestamp => "it is written like 2013-01-31T23:59:59.5Z",
        Type::Duration => "it is written like 1y2mo3d4h5m6s7ms8us9ns",
        Type::Uuid | Type::TimeUuid => "it is written like 123e4567-e89b-12d3-a456-426614174000",
        Type::Inet => "it is an IPv4 or IPv6 address",
        Type::List { .. } | Type::Set { .. } => "it is a JSON array",
        Type::Vector { .. } => "it is a JSON array of as many elements as it has dimensions",
        Type::Tuple(_) => "it is a JSON array of all its elements",
        Type::Map { .. } => "it is a JSON object",
        Type::User { .. } => "it is a JSON object with a member per field",
    }
}

/// A text in quotes, cut where it is long.
pub fn shown(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A JSON value, cut where it is long.
pub fn shown_json(json: &serde_json::Value) -> String {
    match json {
        serde_json::Value::String(text) => shown(text),
        other => {
            let text = other.to_string();
            match text.char_indices().nth(60) {
                Some((end, _)) => format!("{}...", &text[..end]),
                None => text,
            }
        }
    }
}

/// Whether it is decimal digits, with an optional minus in front.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn integer<T: TryFrom<i64>>(text: &str) -> Result<Option<Value>, String> {
    if !is_integer(text) {
        return Ok(None);
    }
    match text.parse::<i64>().ok().filter(|&value| T::try_from(value).is_ok()) {
        Some(value) => Ok(Some(Value::Integer(value))),
        None => {
            let last = u64::MAX >> (65 - 8 * size_of::<T>());
            Err(format!("{} is out of range; it holds -{} to {last}", shown(text), last + 1))
        }
    }
}

fn digits(text: &str) -> Result<Option<BigInt>, String> {
    if !is_integer(text) {
        return Ok(None);
    }
    if text.len() > DIGITS_MAX {
        return Err(format!("{} digits, at most {DIGITS_MAX} are read", text.len()));
    }
    Ok(text.parse().ok())
}

/// `[-]digits[.digits][e[-]digits]`; the digits after the point and the exponent make the scale.
fn decimal(text: &str) -> Result<Option<Value>, String> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.strip_prefix('+').unwrap_or(exponent)),
        None => (text, "0"),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction_given = number.len() > whole.len();
    if !is_integer(whole) || !is_integer(exponent) || (fraction_given && !is_plain_digits(fraction)) {
        return Ok(None);
    }
    let Some(unscaled) = digits(&[whole, fraction].concat())? else { return Ok(None) };
    let scale = exponent.parse::<i64>().ok().and_then(|exponent| (fraction.len() as i64).checked_sub(exponent));
    match scale.and_then(|scale| i32::try_from(scale).ok()) {
        Some(scale) => Ok(Some(Value::Decimal { scale, unscaled })),
        None => Err(format!("{} has an exponent out of range; a scale has 32 bits", shown(text))),
    }
}

fn is_plain_digits(text: &str) -> bool {
    is_integer(text) && !text.starts_with('-')
}

fn print_decimal(scale: i32, unscaled: &BigInt, out: &mut String) -> std::fmt::Result {
    let text = unscaled.to_string();
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    match usize::try_from(scale) {
        Ok(0) => write!(out, "{text}"),
        Ok(scale) if scale < digits.len() + LEADING_ZEROS_MAX => {
            let padded = format!("{digits:0>width$}", width = scale + 1);
            let (whole, fraction) = padded.split_at(padded.len() - scale);
            write!(out, "{sign}{whole}.{fraction}")
        }
        _ => write!(out, "{text}e{}", -i64::from(scale)),
    }
}

fn float<F>(text: &str, nan: F, infinity: F, is_finite: fn(F) -> bool) -> Result<Option<F>, String>
where
    F: std::str::FromStr + std::ops::Neg<Output = F> + Copy,
{
    match text {
        "NaN" => return Ok(Some(nan)),
        "Infinity" => return Ok(Some(infinity)),
        "-Infinity" => return Ok(Some(-infinity)),
        _ => {}
    }
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if !unsigned.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(None);
    }
    match text.parse::<F>() {
        Ok(value) if is_finite(value) => Ok(Some(value)),
        Ok(_) => Err(format!("{} is out of range", shown(text))),
        Err(_) => Ok(None),
    }
}

fn infinite(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

fn blob(text: &str) -> Option<Value> {
    let hex = text.strip_prefix("0x")?.as_bytes();
    if !hex.len().is_multiple_of(2) {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let bytes = hex.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?));
    bytes.collect::<Option<Vec<u8>>>().map(|bytes| Value::Blob(bytes.into()))
}

/// Bytes as a blob is printed.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = print_blob(bytes, &mut out);
    out
}

fn print_blob(bytes: &[u8], out: &mut String) -> std::fmt::Result {
    out.reserve(2 + 2 * bytes.len());
    out.push_str("0x");
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}

fn uuid(text: &str) -> Option<Value> {
    let value = Uuid::try_parse(text).ok()?;
    (text.len() == 36).then_some(Value::Uuid(value))
}

/// Whether `text` begins like `pattern`, where a 0 stands for any digit.
fn begins_like(text: &str, pattern: &str) -> bool {
    text.len() >= pattern.len()
        && text.bytes().zip(pattern.bytes()).all(|(byte, like)| match like {
            b'0' => byte.is_ascii_digit(),
            _ => byte == like,
        })
}

fn date(text: &str) -> Result<Option<Value>, String> {
    if is_integer(text) {
        return number(text, "days", DAY_FIRST..=DAY_LAST, print_date);
    }
    if text.len() != 10 || !begins_like(text, "0000-00-00") {
        return Ok(None);
    }
    let date: Date = text.parse().map_err(|_| format!("{text} is not in the calendar"))?;
    Ok(epoch().until((Unit::Day, date)).ok().map(|span| Value::Integer(span.get_days().into())))
}

fn print_date(days: i64, out: &mut String) -> std::fmt::Result {
    if !(DAY_FIRST..=DAY_LAST).contains(&days) {
        return write!(out, "{days}");
    }
    let date = epoch().saturating_add(jiff::Span::new().days(days));
    write!(out, "{date}")
}

const fn epoch() -> Date {
    Date::constant(1970, 1, 1)
}

fn time(text: &str) -> Option<Value> {
    // Sixty is a leap second to others; a day of this type has none.
    if !begins_like(text, "00:00:00") || text[6..].starts_with("60") {
        return None;
    }
    let time: Time = match text[8..].strip_prefix('.') {
        None if text.len() == 8 => text.parse().ok()?,
        Some(fraction) if is_plain_digits(fraction) => text.parse().ok()?,
        _ => return None,
    };
    let seconds = (i64::from(time.hour()) * 60 + i64::from(time.minute())) * 60 + i64::from(time.second());
    Some(Value::Integer(seconds * 1_000_000_000 + i64::from(time.subsec_nanosecond())))
}

fn print_time(nanos: i64, out: &mut String) -> std::fmt::Result {
    let seconds = nanos.div_euclid(1_000_000_000);
    write!(out, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)?;
    match nanos.rem_euclid(1_000_000_000) {
        0 => Ok(()),
        fraction => write!(out, ".{}", format!("{fraction:09}").trim_end_matches('0')),
    }
}

fn timestamp(text: &str) -> Result<Option<Value>, String> {
    if is_integer(text) {
        return number(text, "milliseconds", MS_FIRST..=MS_LAST, print_timestamp);
    }
    if !begins_like(text, "0000-00-00T00:00:00") || text.ends_with(']') {
        return Ok(None);
    }
    let Ok(instant) = text.parse::<Timestamp>() else { return Ok(None) };
    if instant.subsec_nanosecond() % 1_000_000 != 0 {
        return Err(format!("{} is finer than a millisecond", shown(text)));
    }
    Ok(Some(Value::Integer(instant.as_millisecond())))
}

fn print_timestamp(ms: i64, out: &mut String) -> std::fmt::Result {
    match Timestamp::from_millisecond(ms) {
        Ok(instant) if (MS_FIRST..=MS_LAST).contains(&ms) => write!(out, "{instant}"),
        _ => write!(out, "{ms}"),
    }
}

/// A number that stands for a day or an instant outside the calendar. Inside of it the calendar's form is asked for, so
/// that a year or a number of seconds is not taken for something else.
fn number(
    text: &str,
    unit: &str,
    calendar: std::ops::RangeInclusive<i64>,
    print: fn(i64, &mut String) -> std::fmt::Result,
) -> Result<Option<Value>, String> {
    let value = text.parse::<i64>().map_err(|_| format!("{} is out of range", shown(text)))?;
    if calendar.contains(&value) {
        let mut form = String::new();
        let _ = print(value, &mut form);
        return Err(format!("{text} is a number; if {unit} since 1970 are meant, it is written {form}"));
    }
    Ok(Some(Value::Integer(value)))
}

#[cfg(test)]
pub mod tests;
