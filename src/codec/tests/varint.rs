//! Integers and the cursors.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::codec::varint::{Reader, put_bytes, put_prefixed, put_varint, put_zigzag};

proptest! {
    #[test]
    fn integers_come_back(value in any::<u64>(), shift in 0..64u32) {
        let value = value >> shift;
        let mut out = Vec::new();
        put_varint(&mut out, value);
        put_zigzag(&mut out, value as i64);
        let mut reader = Reader::new("test", out.into());
        prop_assert_eq!(reader.varint().unwrap(), value);
        prop_assert_eq!(reader.zigzag().unwrap(), value as i64);
        reader.end().unwrap();
    }

    #[test]
    fn a_prefix_is_that_of_the_bytes(before in vec(any::<u8>(), 0..3), body in vec(any::<u8>(), 0..300)) {
        let (mut prefixed, mut plain) = (before.clone(), before);
        put_prefixed(&mut prefixed, |out| out.extend_from_slice(&body));
        put_bytes(&mut plain, &body);
        prop_assert_eq!(prefixed, plain);
    }
}

#[test]
fn integers_that_are_too_long_or_too_large_are_refused() {
    let read =
        |bytes: &'static [u8]| Reader::new("test", Bytes::from_static(bytes)).varint().map_err(|e| e.to_string());
    assert_eq!(read(&[0x80, 0x00]).unwrap_err(), "test is corrupt at byte 2: an integer is longer than it needs to be");
    assert_eq!(
        read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).unwrap_err(),
        "test is corrupt at byte 10: an integer does not fit 64 bits"
    );
    assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).unwrap(), u64::MAX);
    assert_eq!(read(&[0x80]).unwrap_err(), "test is corrupt at byte 1: 1 more bytes expected, 0 left");
}

#[test]
fn what_is_taken_shares_the_memory() {
    let whole = Bytes::from_static(&[2, 7, 8, 9]);
    let mut reader = Reader::new("test", whole.clone());
    assert_eq!(reader.bytes().unwrap().as_ptr(), whole[1..].as_ptr());
    assert_eq!((reader.offset(), reader.remaining()), (3, 1));
    assert!(reader.take(2).is_err());
    assert_eq!(reader.rest(), &whole[3..]);
    reader.end().unwrap();
}
