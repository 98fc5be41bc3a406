//! `KEYSPACE.TABLE`, as an argument.

use std::fmt;
use std::str::FromStr;

/// The name of a table with its keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
}

impl FromStr for TableName {
    type Err = String;

    fn from_str(text: &str) -> Result<TableName, String> {
        match text.split_once('.') {
            Some((keyspace, table)) if !keyspace.is_empty() && !table.is_empty() && !table.contains('.') => {
                Ok(TableName { keyspace: keyspace.to_owned(), table: table.to_owned() })
            }
            _ => Err("a table is named like demo.flights, with its keyspace".to_owned()),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.keyspace, self.table)
    }
}
