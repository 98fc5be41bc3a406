//! Rows as lines of text: CSV or JSON, to any writer.

use std::io::{BufWriter, Write};

use clap::ValueEnum;
use trefoil::model::{Column, Table, Type, Value};
use trefoil_client::Row;

use super::error::{Error, Result};
use super::row::{Fault, place_of};
use super::{csv, json, text};

/// The formats of files of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object per line
    Jsonl,
    /// CSV with a header
    Csv,
}

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// One object per line.
    JsonLines,
    /// CSV with a header and this word for null.
    Csv {
        /// Never in quotes; a text that reads the same is put in quotes.
        null: &'a str,
    },
}

/// Prints rows.
pub struct Printer<'a, W: Write> {
    columns: Vec<(&'a str, &'a Type)>,
    form: Form<'a>,
    out: BufWriter<W>,
    line: String,
    scratch: String,
    /// Bytes written.
    pub bytes: u64,
}

/// The columns of `names`, or all of the table.
pub fn columns_of<'a>(table: &'a Table, names: Option<&[String]>) -> Result<Vec<&'a Column>, Fault> {
    match names {
        None => Ok(table.columns.iter().collect()),
        Some(names) => names.iter().map(|name| place_of(table, name).map(|place| &table.columns[place])).collect(),
    }
}

impl<'a, W: Write> Printer<'a, W> {
    /// Prints these columns of a table, in this order; all of them if there are no names. CSV begins with its header.
    pub fn new(table: &'a Table, names: Option<&[String]>, form: Form<'a>, out: W) -> Result<Printer<'a, W>> {
        let columns = columns_of(table, names)?.into_iter().map(|column| (column.name.as_str(), &column.ty)).collect();
        let (line, scratch) = (String::new(), String::new());
        let mut printer =
            Printer { columns, form, out: BufWriter::with_capacity(1 << 16, out), line, scratch, bytes: 0 };
        if let Form::Csv { null } = form {
            for (at, (name, _)) in printer.columns.iter().enumerate() {
                if at > 0 {
                    printer.line.push(',');
                }
                csv::print(name, null, &mut printer.line);
            }
            printer.write_line()?;
        }
        Ok(printer)
    }

    /// Prints one row.
    pub fn print(&mut self, row: &Row) -> Result<()> {
        match self.form {
            Form::JsonLines => self.print_json(row)?,
            Form::Csv { null } => self.print_csv(row, null)?,
        }
        self.write_line()
    }

    /// Writes what is left and gives the writer back.
    pub fn finish(mut self) -> Result<W> {
        self.out.flush().map_err(failed)?;
        self.out.into_inner().map_err(|error| failed(error.into_error()))
    }

    fn print_json(&mut self, row: &Row) -> Result<()> {
        self.line.push('{');
        for (at, (name, ty)) in self.columns.iter().enumerate() {
            if at > 0 {
                self.line.push(',');
            }
            json::print_string(name, &mut self.line);
            self.line.push(':');
            match stored(row, name, ty)? {
                Stored::Null => self.line.push_str("null"),
                Stored::Empty => self.line.push_str("\"\""),
                Stored::Value(value) => json::print_value(&value, ty, &mut self.line),
            }
        }
        self.line.push('}');
        Ok(())
    }

    fn print_csv(&mut self, row: &Row, null: &str) -> Result<()> {
        for (at, (name, ty)) in self.columns.iter().enumerate() {
            if at > 0 {
                self.line.push(',');
            }
            self.scratch.clear();
            match stored(row, name, ty)? {
                Stored::Null => {
                    self.line.push_str(null);
                    continue;
                }
                Stored::Empty => {}
                Stored::Value(value) => text::print(&value, ty, &mut self.scratch),
            }
            csv::print(&self.scratch, null, &mut self.line);
        }
        Ok(())
    }

    fn write_line(&mut self) -> Result<()> {
        self.line.push('\n');
        self.bytes += self.line.len() as u64;
        let written = self.out.write_all(self.line.as_bytes());
        self.line.clear();
        written.map_err(failed)
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::io("write to", "the output", source)
}

/// What stands in a column of a row.
enum Stored {
    Null,
    /// Legal in storage for every type, though only texts and blobs have a value for it.
    Empty,
    Value(Value),
}

fn stored(row: &Row, name: &str, ty: &Type) -> Result<Stored> {
    let Some(bytes) = row.bytes(name)? else { return Ok(Stored::Null) };
    match Value::decode(ty, &bytes) {
        Ok(Some(value)) => Ok(Stored::Value(value)),
        Ok(None) => Ok(Stored::Empty),
        Err(error) => Err(Fault::of(name, error.to_string()).into()),
    }
}
