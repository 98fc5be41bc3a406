//! CSV as others write it, and what must not be taken for it.

#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

type Fields = Vec<(String, bool)>;

/// Lines, fields and raw bytes of all records, and what was bad.
fn read_all(bytes: &[u8]) -> Vec<(u64, Result<Fields, String>, Vec<u8>)> {
    let mut reader = Reader::new(bytes).unwrap();
    let mut record = Record::default();
    let mut all = Vec::new();
    loop {
        let fields = match reader.read(&mut record).unwrap() {
            Next::End => return all,
            Next::Bad(reason) => Err(reason),
            Next::Record => (0..record.len())
                .map(|at| record.field(at).map(|field| (field.text.to_owned(), field.quoted)))
                .collect(),
        };
        all.push((record.line, fields, record.raw.clone()));
    }
}

fn texts(bytes: &[u8]) -> Vec<Vec<String>> {
    let fields = |(_, fields, _): (u64, Result<Fields, String>, Vec<u8>)| {
        fields.unwrap().into_iter().map(|(text, _)| text).collect()
    };
    read_all(bytes).into_iter().map(fields).collect()
}

#[test]
fn lines_are_counted_whatever_their_ends_and_contents() {
    let bytes = b"a,b\r\n\r\n1,\"x\r\ny\"\n\n\n2,z";
    let all = read_all(bytes);
    let lines: Vec<u64> = all.iter().map(|(line, ..)| *line).collect();
    assert_eq!(lines, [1, 3, 7]);
    assert_eq!(all[1].1.as_ref().unwrap()[1], ("x\r\ny".to_owned(), true));
    assert_eq!(all[1].2, b"1,\"x\r\ny\"\n");
    assert_eq!(all[2].1.as_ref().unwrap(), &[("2".to_owned(), false), ("z".to_owned(), false)]);
}

#[test]
fn quotes_tell_texts_from_nulls() {
    let all = read_all(b"NA,\"NA\",,\"\"\n");
    let expected = [("NA", false), ("NA", true), ("", false), ("", true)];
    assert_eq!(all[0].1.as_ref().unwrap(), &expected.map(|(text, quoted)| (text.to_owned(), quoted)));
}

#[test]
fn a_bad_record_does_not_end_the_reading() {
    let all = read_all(b"\"a\"b,c\nd,e\n\xff,f\n\"g");
    assert_eq!(all[0].1.as_ref().unwrap_err(), "field 1: text follows the closing quote; quotes inside are doubled");
    assert!(all[1].1.is_ok());
    assert_eq!(all[2].1.as_ref().unwrap_err(), "not UTF-8 from byte 0 of the field on");
    assert_eq!((all[3].0, all[3].1.as_ref().unwrap_err().as_str()), (4, "a quote is never closed"));
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_field() {
    assert_eq!(texts(b"\xef\xbb\xbfa,b\n"), [["a", "b"]]);
}

proptest! {
    #[test]
    fn what_is_printed_reads_as_the_same(
        fields in prop::collection::vec("[a,\"\r\n é]{0,5}|NA", 1..5),
        nulls in prop::collection::vec(any::<bool>(), 5),
    ) {
        let mut text = String::new();
        for (at, (field, null)) in fields.iter().zip(&nulls).enumerate() {
            if at > 0 {
                text.push(',');
            }
            if *null { text.push_str("NA") } else { print(field, "NA", &mut text) }
        }
        text.push_str("\nlast\n");
        let all = read_all(text.as_bytes());
        let is_blank = text.starts_with('\n');
        prop_assert_eq!(all.len(), if is_blank { 1 } else { 2 });
        if !is_blank {
            let read = all[0].1.as_ref().unwrap();
            for (((text, quoted), field), null) in read.iter().zip(&fields).zip(&nulls) {
                prop_assert_eq!(text == "NA" && !quoted, *null);
                prop_assert!(*null || text == field);
            }
        }
    }

    /// The csv crate reads the same fields.
    #[test]
    fn fields_are_those_that_others_read(
        rows in prop::collection::vec(prop::collection::vec("[a,\"\n ]{0,4}", 2..4), 1..5),
    ) {
        let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
        for row in &rows {
            writer.write_record(row).unwrap();
        }
        let bytes = writer.into_inner().unwrap();
        prop_assert_eq!(texts(&bytes), rows);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(prop::sample::select(b"a,\"\r\n\xff".to_vec()), 0..40)) {
        read_all(&bytes);
    }
}
