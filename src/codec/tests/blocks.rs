//! Frames and compressed blocks.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::refuses_damage;
use crate::codec::compress::{put_block, read_block};
use crate::codec::frame::{FRAME_HEADER_BYTES, Framed, put_frame, read_frame};

fn frame(salt: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, salt, payload);
    out
}

fn block(body: &[u8]) -> Bytes {
    let mut out = Vec::new();
    put_block(&mut out, body);
    out.into()
}

proptest! {
    #[test]
    fn a_frame_comes_back(salt in any::<u64>(), payload in vec(any::<u8>(), 1..200), behind in vec(any::<u8>(), 0..9)) {
        let framed = frame(salt, &payload);
        let len = framed.len();
        prop_assert_eq!(len, FRAME_HEADER_BYTES + payload.len());
        let bytes = Bytes::from([framed, behind].concat());
        prop_assert_eq!(read_frame(&bytes, salt), Framed::Whole(payload.into(), len));
        prop_assert_eq!(read_frame(&bytes, !salt), Framed::Broken("the checksum does not fit"));
    }

    #[test]
    fn a_block_comes_back(body in vec(0..4u8, 0..600)) {
        prop_assert_eq!(read_block(block(&body), body.len()).unwrap(), body);
    }

    #[test]
    fn any_bytes_are_a_block_or_refused(kind in 0..3u8, rest in vec(any::<u8>(), 0..60)) {
        let bytes: Vec<u8> = [kind].into_iter().chain(rest).collect();
        if let Ok(body) = read_block(bytes.into(), 4096) {
            prop_assert!(body.len() <= 4096);
        }
    }
}

#[test]
fn a_damaged_frame_is_broken() {
    let sample = frame(7, b"a payload");
    for at in 0..sample.len() {
        for bit in 0..8 {
            let mut damaged = sample.clone();
            damaged[at] ^= 1 << bit;
            assert!(matches!(read_frame(&damaged.into(), 7), Framed::Broken(_)), "byte {at}, bit {bit}");
        }
        assert!(matches!(read_frame(&Bytes::copy_from_slice(&sample[..at]), 7), Framed::Broken(_)), "{at} bytes");
    }
}

#[test]
fn unwritten_bytes_are_empty() {
    assert_eq!(read_frame(&Bytes::from_static(&[0; 64]), 3), Framed::Empty);
    assert_eq!(read_frame(&Bytes::from_static(&[0; 8]), 3), Framed::Empty);
    assert_eq!(read_frame(&Bytes::from_static(&[0, 0, 0, 0, 1, 0, 0, 0, 0]), 3), Framed::Broken("a frame of no bytes"));
}

#[test]
fn what_does_not_shrink_is_stored() {
    let body: Vec<u8> = (0..=255).collect();
    let stored = block(&body);
    assert_eq!(stored[0], 0);
    assert_eq!(stored.len(), 3 + body.len());
    assert_eq!(read_block(stored.clone(), 256).unwrap().as_ptr(), stored[3..].as_ptr(), "sliced, not copied");
    refuses_damage(&stored, |bytes| read_block(bytes, 256).map(|body| block(&body).to_vec()));

    let repeated = block(&[7; 256]);
    assert_eq!(repeated[0], 1);
    assert!(repeated.len() < 32);
}

#[test]
fn compressing_what_does_not_shrink_is_refused() {
    let body: Vec<u8> = (0..=255).collect();
    let mut block = vec![1, 0x80, 0x02];
    block.extend(lz4_flex::block::compress(&body));
    let refusal = read_block(block.into(), 256).unwrap_err().to_string();
    assert!(refusal.ends_with("compressed, although that makes it no smaller"), "{refusal}");
}

#[test]
fn a_length_beyond_the_maximum_is_refused_before_it_is_allocated() {
    let mut huge = vec![1];
    crate::codec::varint::put_varint(&mut huge, u64::MAX);
    huge.push(0);
    let refusal = read_block(huge.into(), 1 << 20).unwrap_err().to_string();
    assert!(refusal.ends_with("18446744073709551615 bytes uncompressed; at most 1048576 were expected"), "{refusal}");
}
