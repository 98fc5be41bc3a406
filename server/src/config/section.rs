//! One section of the file: settings are taken out one by one, what is left over is unknown.

use std::net::SocketAddr;
use std::str::FromStr;

use toml::{Table, Value};

use super::Problem;
use super::settings::Number;

/// A section that is being read.
pub(super) struct Section {
    name: String,
    table: Table,
    known: Vec<&'static str>,
}

impl Section {
    /// The whole file as a section without a name.
    pub(super) fn root(table: Table) -> Section {
        Section { name: String::new(), table, known: Vec::new() }
    }

    /// A section of this section; empty if it is not there.
    pub(super) fn section(&mut self, key: &'static str) -> Result<Section, Problem> {
        match self.take(key) {
            None => Ok(Section { name: key.to_owned(), table: Table::new(), known: Vec::new() }),
            Some(Value::Table(table)) => Ok(Section { name: key.to_owned(), table, known: Vec::new() }),
            Some(other) => Err(self.wrong(key, &other, format!("is a section; write [{key}]"))),
        }
    }

    /// Whether there is such a setting or section.
    pub(super) fn has(&mut self, key: &'static str) -> bool {
        let found = self.table.contains_key(key);
        if !found {
            self.known.push(key);
        }
        found
    }

    /// A list of small tables, each as a section called `name[index]`.
    pub(super) fn tables(&mut self, key: &'static str, right: &str) -> Result<Vec<Section>, Problem> {
        let value = self.take(key).ok_or_else(|| self.missing(key, right))?;
        let Value::Array(items) = value else { return Err(self.wrong(key, &value, right.to_owned())) };
        let place = self.place(key);
        let section = |(index, item)| match item {
            Value::Table(table) => Ok(Section { name: format!("{place}[{index}]"), table, known: Vec::new() }),
            other => Err(Problem::Value {
                setting: format!("{place}[{index}]"),
                value: other.to_string(),
                reason: right.to_owned(),
            }),
        };
        items.into_iter().enumerate().map(section).collect()
    }

    /// A number within its range.
    pub(super) fn number(&mut self, number: &Number) -> Result<u64, Problem> {
        let Some(value) = self.take(number.key) else { return Ok(number.default) };
        let found = value.as_integer().and_then(|value| u64::try_from(value).ok());
        found.filter(|found| (number.min..=number.max).contains(found)).ok_or_else(|| {
            let reason = format!("must be a whole number from {} to {}", number.min, number.max);
            self.wrong(number.key, &value, reason)
        })
    }

    /// True or false.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> Result<bool, Problem> {
        let Some(value) = self.take(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.wrong(key, &value, "must be true or false".to_owned()))
    }

    /// A text that has to be there and fits `is_right`.
    pub(super) fn text(
        &mut self,
        key: &'static str,
        right: &str,
        is_right: impl Fn(&str) -> bool,
    ) -> Result<String, Problem> {
        match self.take(key) {
            None => Err(self.missing(key, right)),
            Some(Value::String(text)) if is_right(&text) => Ok(text),
            Some(other) => Err(self.wrong(key, &other, format!("must be {right}"))),
        }
    }

    /// As [`Section::text`], for what may be left out.
    pub(super) fn text_or_none(
        &mut self,
        key: &'static str,
        right: &str,
        is_right: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, Problem> {
        if !self.has(key) {
            return Ok(None);
        }
        self.text(key, right, is_right).map(Some)
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
        default: T,
    ) -> Result<T, Problem> {
        let Some(value) = self.take(key) else { return Ok(default) };
        let found = words.iter().find(|(word, _)| value.as_str() == Some(word));
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(key, &value, format!("must be one of {}", words.join(", ")))
        })
    }

    /// Where to listen, or where another node does: on this machine only, as long as nothing is encrypted.
    pub(super) fn address(&mut self, key: &'static str, default: Option<SocketAddr>) -> Result<SocketAddr, Problem> {
        const RIGHT: &str = "an IP address and a port, as in \"127.0.0.1:9440\"";
        let Some(value) = self.take(key) else { return default.ok_or_else(|| self.missing(key, RIGHT)) };
        let address = value.as_str().and_then(|text| SocketAddr::from_str(text).ok());
        let address = address
            .filter(|address| address.port() != 0)
            .ok_or_else(|| self.wrong(key, &value, format!("must be {RIGHT}")))?;
        if !address.ip().is_loopback() {
            let reason = "must be a loopback address, as 127.0.0.1: there is no TLS yet, so that nothing may be \
                          reached from other machines";
            return Err(self.wrong(key, &value, reason.to_owned()));
        }
        Ok(address)
    }

    /// The value of a setting that has a form of its own.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    /// Nothing may be left over.
    pub(super) fn end(self) -> Result<(), Problem> {
        let Some(key) = self.table.keys().next() else { return Ok(()) };
        Err(Problem::Unknown {
            setting: self.place(key),
            section: if self.name.is_empty() { "the file".to_owned() } else { self.name },
            known: self.known.join(", "),
        })
    }

    /// A value that cannot be.
    pub(super) fn wrong(&self, key: &str, value: &Value, reason: String) -> Problem {
        Problem::Value { setting: self.place(key), value: value.to_string(), reason }
    }

    fn missing(&self, key: &str, right: &str) -> Problem {
        Problem::Missing { setting: self.place(key), reason: format!("it must be {right}") }
    }

    fn place(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }
}
