//! Wire and model, both ways, and nothing else: used by server and client alike.
//!
//! ```text
//! client request   v1::Mutation ─► mutation ─► model::Mutation          v1::ReadRequest ─► read ─► targets, slices, columns
//! client answer    model keys, rows ─► answer ─► v1::Row
//! nodes            model::ReadCommand ◄─► peer ◄─► v1::ReadOperation
//! schema           model::Table, DdlStatement ◄─► schema ◄─► v1::Table, v1::Ddl
//! ```
//!
//! What a client sends is checked here once and for all: behind this module there are only values that fit their
//! columns, complete keys, and timestamps within bounds. Whatever does not fit is answered with an
//! [`InvalidDetail`] that names the culprit.

use std::fmt;

use trefoil::Error as CoreError;

use crate::v1::cell_write::Op;
use crate::v1::{CellWrite, InvalidDetail, Value};

pub mod answer;
mod collection;
pub mod counter;
pub mod key;
pub mod mutation;
pub mod peer;
pub mod read;
pub mod schema;
#[cfg(test)]
mod tests;
pub mod types;
pub mod value;

/// The result of converting what a client sent.
pub type Result<T, E = InvalidDetail> = std::result::Result<T, E>;

impl CellWrite {
    /// Sets a column to a value, or to null.
    pub fn set(column: impl Into<String>, value: Value) -> CellWrite {
        CellWrite { column: column.into(), op: Some(Op::Value(value)) }
    }

    /// The value that the column is set to; `None` if something else becomes of it.
    pub fn value(&self) -> Option<&Value> {
        match &self.op {
            Some(Op::Value(value)) => Some(value),
            _ => None,
        }
    }
}

impl InvalidDetail {
    /// A request that can never be accepted, for this reason.
    pub fn new(reason: impl Into<String>) -> InvalidDetail {
        InvalidDetail { reason: reason.into(), ..InvalidDetail::default() }
    }

    /// The same, about this column.
    pub fn column(mut self, column: &str) -> InvalidDetail {
        self.column = column.to_owned();
        self
    }

    /// The same, about this table.
    pub fn table(mut self, keyspace: &str, table: &str) -> InvalidDetail {
        self.keyspace = keyspace.to_owned();
        self.table = table.to_owned();
        self
    }

    /// The same, about this element of a list in the request, counted from 0.
    pub fn op(mut self, index: usize) -> InvalidDetail {
        self.op_index = u32::try_from(index).ok();
        self
    }

    /// What the core found wrong with one value or key.
    pub fn from_core(error: &CoreError) -> InvalidDetail {
        InvalidDetail::new(error.to_string())
    }
}

impl fmt::Display for InvalidDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.table.is_empty() {
            write!(f, "{}.{}: ", self.keyspace, self.table)?;
        } else if !self.keyspace.is_empty() {
            write!(f, "{}: ", self.keyspace)?;
        }
        if let Some(index) = self.op_index {
            write!(f, "#{index}: ")?;
        }
        if !self.column.is_empty() {
            write!(f, "{}: ", self.column)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for InvalidDetail {}
