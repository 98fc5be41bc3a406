//! All printing: results to the standard output, everything about them to the standard error.

use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use super::error::{Error, Result};

/// Prints a result and ends the line.
pub fn line(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(b"\n"));
    printed.and_then(|()| stdout.flush()).map_err(Error::stdout)
}

/// Tells a person something. A closed standard error is no reason to fail.
pub fn note(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.write_all(b"\n"));
}

/// How a column of a table is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table for people.
pub fn table(columns: &[(&str, Align)], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(columns.iter().map(|(name, _)| *name));
    for (at, (_, align)) in columns.iter().enumerate() {
        if let Some(column) = table.column_mut(at) {
            column.set_padding((0, 2));
            if *align == Align::Right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table.add_rows(rows);
    table.trim_fmt()
}

/// A number of bytes for people.
pub fn bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}
