//! The reading of files: lines, faults, rejects.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;

use super::source::{Chunk, NumberedRow};
use super::*;
use crate::cli::json::tests::table;
use crate::cli::row::{Given, RowInput};
use trefoil::model::Value;

const HEADER: &str = "q,p,d,c,s\n";

/// The line that is bad, if it is one, and why.
type Bad = (Option<u64>, String);

/// What the thread hands on of a file: rows, how it ended, and how many lines it left out.
fn read(name: &str, content: &[u8], skip: u64, rejects: Rejects) -> (Vec<NumberedRow>, Option<Bad>, u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, content).unwrap();
    let format = if name.contains("csv") { Format::Csv } else { Format::Jsonl };
    let source = Source::open(&path, format, table().into(), "NA".to_owned(), skip).unwrap();
    let (mut chunks, thread) = source.start(rejects, Progress::of_file(0));
    let (mut rows, mut bad) = (Vec::new(), None);
    while let Some(chunk) = chunks.blocking_recv() {
        match chunk {
            Chunk::Rows(more) => rows.extend(more),
            Chunk::Bad(line, reason) => bad = Some((line, reason)),
        }
    }
    (rows, bad, thread.join().unwrap())
}

fn none() -> Rejects {
    Rejects::new(0, None).unwrap()
}

fn lines(rows: &[NumberedRow]) -> Vec<u64> {
    rows.iter().map(|row| row.line).collect()
}

#[test]
fn rows_come_with_their_lines_and_rising_timestamps() {
    let mut content = HEADER.to_owned();
    for at in 0..1_000 {
        content += &format!("1,x{},{at},2013-01-31,NA\n", at % 3);
    }
    let (rows, bad, _) = read("rows.csv", content.as_bytes(), 0, none());
    assert_eq!(bad, None);
    assert_eq!(lines(&rows), (2..1_002).collect::<Vec<_>>());
    assert!(rows.is_sorted_by(|a, b| a.timestamp_us < b.timestamp_us));
    let given = |value: i64| Given::Value(Value::Integer(value));
    let mut first = vec![Given::Value(Value::Text("x0".to_owned())), given(1), given(15_736), given(0), Given::Null];
    first.extend(vec![Given::Unset; 4]);
    assert_eq!(rows[0].row, RowInput::new(&table(), first).unwrap());
}

#[test]
fn packed_files_are_unpacked() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(b"{\"p\":\"x\",\"q\":1,\"s\":1.5}\n\n{\"p\":\"x\",\"q\":2,\"s\":2}").unwrap();
    let mut packed = packer.finish().unwrap();
    let (rows, bad, _) = read("rows.jsonl.gz", &packed, 0, none());
    assert_eq!((lines(&rows), bad), (vec![1, 3], None));
    packed.truncate(packed.len() / 2);
    let (_, bad, _) = read("rows.jsonl.gz", &packed, 0, none());
    let (line, reason) = bad.unwrap();
    assert!(line.is_none() && reason.starts_with("cannot read the file"), "{reason}");
}

#[test]
fn a_bad_line_ends_the_reading_with_its_number_and_column() {
    let content = format!("{HEADER}1,x,1,2013-01-31,1.5\n1,y,2,2013-02-30,NA\n1,z,3,2013-01-31,1\n");
    let (rows, bad, _) = read("rows.csv", content.as_bytes(), 0, none());
    assert_eq!(lines(&rows), [2]);
    assert_eq!(bad, Some((Some(3), "column c: 2013-02-30 is not in the calendar".to_owned())));
    // And so it goes on.
    let (rows, bad, _) = read("rows.csv", content.as_bytes(), 3, none());
    assert_eq!((lines(&rows), bad), (vec![4], None));
}

#[test]
fn bad_lines_are_refused_for_what_they_are() {
    let cases: [(&[u8], &str); 5] = [
        (b"1,x\n", "2 fields, the header has 5"),
        (b"1,x,1,NA,NA\n", "column c: it is part of the key and must have a value"),
        (b"NA,x,1,2013-01-31,NA\n", "column q: it is part of the key and must have a value"),
        (b"1,\xff,1,2013-01-31,NA\n", "column p: not UTF-8 from byte 0 of the field on"),
        (b"1,\"x,1,2013-01-31,NA\n", "a quote is never closed"),
    ];
    for (line, reason) in cases {
        let (_, bad, _) = read("rows.csv", &[HEADER.as_bytes(), line].concat(), 0, none());
        assert_eq!(bad, Some((Some(2), reason.to_owned())));
    }
}

#[test]
fn forgiven_lines_are_kept_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let reject = directory.path().join("bad.csv");
    let content = format!("{HEADER}1,x,1\n1,y,2,2013-01-31,\"b\"\"ad\"\r\n1,z,3,2013-01-31,1\n1,last\n");
    let (rows, bad, count) = read("rows.csv", content.as_bytes(), 0, Rejects::new(2, Some(&reject)).unwrap());
    assert_eq!((lines(&rows), count), (vec![4], 2));
    assert_eq!(bad, Some((Some(5), "2 fields, the header has 5".to_owned())));
    let kept = std::fs::read(&reject).unwrap();
    assert_eq!(String::from_utf8(kept).unwrap(), "1,x,1\n1,y,2,2013-01-31,\"b\"\"ad\"\r\n");
}

#[test]
fn a_header_must_name_columns_and_the_whole_partition_key() {
    let cases = [
        ("", "the file is empty; CSV begins with a header"),
        ("p,z\n", "column z: there is no such column in flights"),
        ("p,q,p\n", "column p: the header has it twice"),
        ("p,c,d\n", "column q: it is part of the key, and the header does not have it"),
    ];
    for (header, reason) in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.csv");
        std::fs::write(&path, header).unwrap();
        let opened = Source::open(&path, Format::Csv, table().into(), String::new(), 0);
        let error = opened.err().unwrap().to_string();
        assert!(error.starts_with(reason), "{header:?}: {error}");
    }
}

#[test]
fn a_stop_says_how_to_go_on() {
    let stopped = Stopped { line: Some(17), reason: "column c: x".to_owned(), done_through: 16, rows: 15 };
    assert_eq!(
        stopped.to_string(),
        "line 17: column c: x\n15 rows were written; go on with --skip-lines 16 once the line is right, \
         or leave it out with --skip-lines 17"
    );
    let stopped = Stopped { line: None, reason: "interrupted".to_owned(), done_through: 3, rows: 2 };
    assert_eq!(stopped.to_string(), "interrupted\n2 rows were written; go on with --skip-lines 3");
}
