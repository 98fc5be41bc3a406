//! The file of an import: read, unpacked and parsed on a thread of its own, a few chunks ahead of the load.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::bufread::MultiGzDecoder;
use tokio::sync::mpsc;
use trefoil::model::Table;

use crate::cli::csv::{self, Next, Record};
use crate::cli::error::{Error, Result};
use crate::cli::progress::Progress;
use crate::cli::row::{Fault, Given, RowInput, checked, place_of};
use crate::cli::rows::Format;
use crate::cli::{json, text};

/// Lines handed on together, at most: among them rows of one partition find each other.
const CHUNK_LINES_MAX: usize = 256;
/// Bytes of lines handed on together, about.
const CHUNK_BYTES_FULL: usize = 1 << 20;
/// Chunks that wait for the load.
const CHUNKS_AHEAD: usize = 2;
/// The longest line of JSON, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// A row with what it needs to be written any number of times.
#[derive(Debug, Clone)]
pub struct NumberedRow {
    /// Its line in the file, counted from 1.
    pub line: u64,
    /// Rises with the line.
    pub timestamp_us: i64,
    /// The length of its line.
    pub bytes: usize,
    /// The row.
    pub row: RowInput,
}

/// What the thread hands on.
#[derive(Debug)]
pub enum Chunk {
    /// Some rows, in the order of their lines.
    Rows(Vec<NumberedRow>),
    /// There will be no more: a line is bad (its number and the fault), or the file is (no number).
    Bad(Option<u64>, String),
}

/// How far the file has been read; shared with the thread.
#[derive(Debug, Clone, Default)]
pub struct Position {
    packed: Arc<AtomicU64>,
    unpacked: Arc<AtomicU64>,
}

impl Position {
    /// Bytes of the file.
    pub fn packed(&self) -> u64 {
        self.packed.load(Ordering::Relaxed)
    }

    /// Bytes of lines.
    pub fn unpacked(&self) -> u64 {
        self.unpacked.load(Ordering::Relaxed)
    }
}

/// Counts what is read from a file.
struct Counting<R> {
    input: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

type Input = Box<dyn BufRead + Send>;

/// Bad lines: how many are forgiven, and where they go.
pub struct Rejects {
    left: u64,
    count: u64,
    file: Option<BufWriter<File>>,
}

impl Rejects {
    /// Forgives so many lines; they are written to a file, if there is one.
    pub fn new(max: u64, path: Option<&Path>) -> Result<Rejects> {
        let create = |path: &Path| File::create(path).map_err(|source| Error::file("create", path, source));
        Ok(Rejects { left: max, count: 0, file: path.map(create).transpose()?.map(BufWriter::new) })
    }

    /// Whether one more is forgiven; it is then written.
    fn take(&mut self, raw: &[u8]) -> io::Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.count += 1;
        if let Some(file) = &mut self.file {
            file.write_all(raw)?;
            if !raw.ends_with(b"\n") {
                file.write_all(b"\n")?;
            }
            file.flush()?;
        }
        Ok(true)
    }
}

/// Lines, one after the other, as rows.
pub struct Source {
    lines: Lines,
    table: Arc<Table>,
    null: String,
    skip_lines: u64,
    file_bytes: u64,
    position: Position,
    last_timestamp_us: i64,
}

enum Lines {
    Csv {
        reader: csv::Reader<Input>,
        record: Record,
        /// The place in the table of each field.
        places: Vec<usize>,
    },
    Json {
        input: Input,
        line: u64,
        raw: Vec<u8>,
    },
}

impl Source {
    /// Opens a file and reads its header.
    pub fn open(path: &Path, format: Format, table: Arc<Table>, null: String, skip_lines: u64) -> Result<Source> {
        let position = Position::default();
        let opened = |source| Error::file("read", path, source);
        let (input, file_bytes): (Box<dyn Read + Send>, u64) = if path == Path::new("-") {
            (Box::new(io::stdin()), 0)
        } else {
            let file = File::open(path).map_err(opened)?;
            let bytes = file.metadata().map_err(opened)?.len();
            (Box::new(file), bytes)
        };
        let counted = BufReader::with_capacity(1 << 16, Counting { input, bytes: position.packed.clone() });
        let input: Input = if path.extension().is_some_and(|extension| extension == "gz") {
            Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(counted)))
        } else {
            Box::new(counted)
        };
        let lines = match format {
            Format::Jsonl => Lines::Json { input, line: 0, raw: Vec::new() },
            Format::Csv => {
                let mut reader = csv::Reader::new(input).map_err(opened)?;
                let mut record = Record::default();
                let places = match reader.read(&mut record).map_err(opened)? {
                    Next::Record => header(&record, &table)?,
                    Next::Bad(reason) => return Err(Fault::new(format!("the header: {reason}")).into()),
                    Next::End => return Err(Fault::new("the file is empty; CSV begins with a header").into()),
                };
                Lines::Csv { reader, record, places }
            }
        };
        Ok(Source { lines, table, null, skip_lines, file_bytes, position, last_timestamp_us: 0 })
    }

    /// The size of the file; 0 if it is not known.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// How far the file has been read, from now on.
    pub fn position(&self) -> Position {
        self.position.clone()
    }

    /// Reads on a thread; it ends with the number of rejected lines.
    pub fn start(mut self, mut rejects: Rejects, progress: Progress) -> (mpsc::Receiver<Chunk>, JoinHandle<u64>) {
        let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
        let thread = std::thread::spawn(move || {
            loop {
                let mut rows = Vec::with_capacity(CHUNK_LINES_MAX);
                let end = self.fill(&mut rows, &mut rejects, &progress);
                // The load takes no more once it has failed.
                let taken = rows.is_empty() || sender.blocking_send(Chunk::Rows(rows)).is_ok();
                match end {
                    End::More if taken => {}
                    End::Bad(line, reason) if taken => {
                        let _ = sender.blocking_send(Chunk::Bad(line, reason));
                        return rejects.count;
                    }
                    _ => return rejects.count,
                }
            }
        });
        (receiver, thread)
    }

    /// Fills a chunk.
    fn fill(&mut self, rows: &mut Vec<NumberedRow>, rejects: &mut Rejects, progress: &Progress) -> End {
        let mut bytes = 0;
        while rows.len() < CHUNK_LINES_MAX && bytes < CHUNK_BYTES_FULL {
            let (line, row) = match self.next_row() {
                Ok(Some(next)) => next,
                Ok(None) => return End::File,
                Err(error) => return End::Bad(None, format!("cannot read the file: {error}")),
            };
            let length = self.raw().len();
            bytes += length;
            self.position.unpacked.fetch_add(length as u64, Ordering::Relaxed);
            if line <= self.skip_lines {
                continue;
            }
            match row {
                Ok(row) => {
                    self.last_timestamp_us = now_us().max(self.last_timestamp_us + 1);
                    rows.push(NumberedRow { line, timestamp_us: self.last_timestamp_us, bytes: length, row });
                }
                Err(fault) => match rejects.take(self.raw()) {
                    Ok(true) => progress.note(&format!("line {line} left out: {fault}")),
                    Ok(false) => return End::Bad(Some(line), fault.to_string()),
                    Err(error) => return End::Bad(None, format!("cannot write the file of rejects: {error}")),
                },
            }
        }
        End::More
    }

    /// The number of the next line and its row.
    fn next_row(&mut self) -> io::Result<Option<(u64, Result<RowInput, Fault>)>> {
        let table = &self.table;
        match &mut self.lines {
            Lines::Csv { reader, record, places } => {
                let next = reader.read(record)?;
                let row = match next {
                    Next::End => return Ok(None),
                    Next::Bad(reason) => Err(Fault::new(reason)),
                    Next::Record if record.line <= self.skip_lines => Err(Fault::new("skipped")),
                    Next::Record => csv_row(record, places, &self.null, table),
                };
                Ok(Some((record.line, row)))
            }
            Lines::Json { input, line, raw } => loop {
                raw.clear();
                if input.as_mut().take(LINE_BYTES_MAX).read_until(b'\n', raw)? == 0 {
                    return Ok(None);
                }
                *line += 1;
                if raw.len() as u64 == LINE_BYTES_MAX && !raw.ends_with(b"\n") {
                    let reason = format!("line {line} is longer than {LINE_BYTES_MAX} bytes");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                }
                if *line > self.skip_lines && !raw.trim_ascii().is_empty() {
                    return Ok(Some((*line, json_row(raw, table))));
                }
            },
        }
    }

    fn raw(&self) -> &[u8] {
        match &self.lines {
            Lines::Csv { record, .. } => &record.raw,
            Lines::Json { raw, .. } => raw,
        }
    }
}

/// Why a chunk ends.
enum End {
    /// It is full.
    More,
    /// So does the file.
    File,
    /// A line is bad, or the file is.
    Bad(Option<u64>, String),
}

fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// The places in the table of the columns of a header.
fn header(record: &Record, table: &Table) -> Result<Vec<usize>, Fault> {
    let mut places = Vec::with_capacity(record.len());
    for at in 0..record.len() {
        let name = record.field(at).map_err(|reason| Fault::new(format!("the header: {reason}")))?.text;
        let place = place_of(table, name)?;
        if places.contains(&place) {
            return Err(Fault::of(name, "the header has it twice"));
        }
        places.push(place);
    }
    match table.partition_key().find(|column| !places.iter().any(|place| table.columns[*place].name == column.name)) {
        Some(column) => Err(Fault::of(&column.name, "it is part of the key, and the header does not have it")),
        None => Ok(places),
    }
}

fn csv_row(record: &Record, places: &[usize], null: &str, table: &Table) -> Result<RowInput, Fault> {
    if record.len() != places.len() {
        return Err(Fault::new(format!("{} fields, the header has {}", record.len(), places.len())));
    }
    let mut given = vec![Given::Unset; table.columns.len()];
    for (at, place) in places.iter().enumerate() {
        let column = &table.columns[*place];
        let fault = |reason| Fault::of(&column.name, reason);
        let field = record.field(at).map_err(fault)?;
        given[*place] = if !field.quoted && field.text == null {
            Given::Null
        } else {
            checked(text::parse(field.text, &column.ty).map_err(fault)?, column)?
        };
    }
    RowInput::new(table, given)
}

fn json_row(raw: &[u8], table: &Table) -> Result<RowInput, Fault> {
    match std::str::from_utf8(raw) {
        Ok(text) => json::read_row(text.trim_end(), table),
        Err(error) => Err(Fault::new(format!("not UTF-8 from byte {} of the line on", error.valid_up_to()))),
    }
}
