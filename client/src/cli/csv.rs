//! CSV as RFC 4180 has it, with what an import needs beyond: the line each record begins at, its bytes as they were (for
//! the file of rejects), and whether a field stood in quotes, since a null does not.
//!
//! A record is read in bounded memory, so that a quote that is never closed does not swallow the rest of a large file.

use std::io::{self, BufRead, Read};

/// The longest record, in bytes; a row holds one mutation at most.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Where in a record the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote inside a quoted field: its end, or the first half of a doubled one.
    Quote,
}

/// Reads records.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// Lines read so far.
    lines: u64,
}

/// One record. Kept from one to the next for its buffers.
#[derive(Debug, Default)]
pub struct Record {
    /// The line it begins at, counted from 1.
    pub line: u64,
    /// Its bytes as they were, with the end of the line.
    pub raw: Vec<u8>,
    text: Vec<u8>,
    /// The end of each field in `text`, and whether it was in quotes.
    fields: Vec<(usize, bool)>,
}

/// A field of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its text, without quotes.
    pub text: &'a str,
    /// Whether it stood in quotes.
    pub quoted: bool,
}

/// What came of reading on.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A record.
    Record,
    /// What was read is no record; the next line may begin one.
    Bad(String),
    /// Nothing is left.
    End,
}

impl<R: BufRead> Reader<R> {
    /// Reads from `input`; a byte order mark at its beginning is skipped.
    pub fn new(mut input: R) -> io::Result<Reader<R>> {
        if input.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
            input.consume(3);
        }
        Ok(Reader { input, lines: 0 })
    }

    /// Reads the next record; empty lines are skipped.
    pub fn read(&mut self, record: &mut Record) -> io::Result<Next> {
        record.clear();
        let mut state = State::FieldStart;
        loop {
            let begin = record.raw.len();
            let room = RECORD_BYTES_MAX.saturating_sub(begin as u64);
            if (&mut self.input).take(room).read_until(b'\n', &mut record.raw)? == 0 {
                return Ok(if begin == 0 { Next::End } else { Next::Bad("a quote is never closed".to_owned()) });
            }
            if record.raw.len() as u64 == RECORD_BYTES_MAX {
                // Where the next record would begin is anybody's guess.
                let from = record.line.max(1);
                let reason = format!("the record from line {from} on is longer than {RECORD_BYTES_MAX} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            self.lines += 1;
            if begin == 0 {
                record.line = self.lines;
                if matches!(record.raw.as_slice(), b"\n" | b"\r\n") {
                    record.raw.clear();
                    continue;
                }
            }
            match record.take_line(begin, &mut state) {
                Ok(true) => return Ok(Next::Record),
                Ok(false) => {}
                Err(reason) => return Ok(Next::Bad(reason)),
            }
        }
    }
}

impl Record {
    fn clear(&mut self) {
        self.raw.clear();
        self.text.clear();
        self.fields.clear();
    }

    /// Takes the line that begins at `begin` of the raw bytes; whether the record ends with it.
    fn take_line(&mut self, begin: usize, state: &mut State) -> Result<bool, String> {
        let line = &self.raw[begin..];
        let content = line.strip_suffix(b"\n").unwrap_or(line);
        let content = content.strip_suffix(b"\r").unwrap_or(content);
        for &byte in content {
            *state = match (*state, byte) {
                (State::FieldStart, b'"') => State::Quoted,
                (State::FieldStart | State::Plain, b',') => {
                    self.fields.push((self.text.len(), false));
                    State::FieldStart
                }
                (State::Quote, b',') => {
                    self.fields.push((self.text.len(), true));
                    State::FieldStart
                }
                (State::Quoted, b'"') => State::Quote,
                (State::Quote, b'"') => {
                    self.text.push(b'"');
                    State::Quoted
                }
                (State::Quote, _) => {
                    let field = self.fields.len() + 1;
                    return Err(format!("field {field}: text follows the closing quote; quotes inside are doubled"));
                }
                (State::Quoted, _) => {
                    self.text.push(byte);
                    State::Quoted
                }
                (State::FieldStart | State::Plain, _) => {
                    self.text.push(byte);
                    State::Plain
                }
            };
        }
        if *state == State::Quoted {
            self.text.extend_from_slice(&line[content.len()..]);
            return Ok(false);
        }
        self.fields.push((self.text.len(), *state == State::Quote));
        Ok(true)
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// A field, or why it has no text. There are [`Record::len`].
    pub fn field(&self, at: usize) -> Result<Field<'_>, String> {
        let begin = at.checked_sub(1).map_or(0, |before| self.fields[before].0);
        let (end, quoted) = self.fields[at];
        match std::str::from_utf8(&self.text[begin..end]) {
            Ok(text) => Ok(Field { text, quoted }),
            Err(error) => Err(format!("not UTF-8 from byte {} of the field on", error.valid_up_to())),
        }
    }
}

/// Writes a field that is not null: in quotes where it must be, or where it would be taken for a null.
pub fn print(text: &str, null: &str, out: &mut String) {
    let special = |character| matches!(character, '"' | ',' | '\n' | '\r');
    if text != null && !text.contains(special) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for part in text.split_inclusive('"') {
        out.push_str(part);
        if part.ends_with('"') {
            out.push('"');
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests;
