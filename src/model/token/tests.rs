//! Golden tokens (computed with the drivers' own hash), and the laws of vnodes.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::{PartitionKey, Type};

#[test]
fn tokens_of_single_components_are_the_drivers() {
    let ascending: Vec<u8> = (0..16).collect();
    let cases: [(&[u8], i64); 12] = [
        (&[0x61], -8839064797231613815),
        (&[0x00], 5048724184180415669),
        (&[0x80], -5284281814142962636),
        (&[0xff], -4442228696663692417),
        (b"key1", 1573573083296714675),
        (&[0xc3, 0xa9], 5461403030378599040),
        (&1i32.to_be_bytes(), -4069959284402364209),
        (&(-1i32).to_be_bytes(), 7297452126230313552),
        (&(-1i64).to_be_bytes(), 7071048584287372947),
        (&ascending, 4920504430128807728),
        (&[0xff; 15], -2195530867418009455),
        (&[0xfe; 31], -3389072035023731038),
    ];
    for (key, token) in cases {
        assert_eq!(Token::of(key), Token(token), "key {key:02x?}");
    }
}

#[test]
fn tokens_of_composite_keys_are_the_drivers() {
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let cases = [
        ([text("a"), Bytes::copy_from_slice(&1i32.to_be_bytes())], [Type::Text, Type::Int], 8247712171917364652),
        ([text("é"), Bytes::from_static(&[0x80])], [Type::Text, Type::Blob], -1191870352082927165),
        ([text(""), text("x")], [Type::Text, Type::Text], -3884662248573342722),
    ];
    for (components, types, token) in cases {
        let key = PartitionKey::encode(&components, &types).unwrap();
        assert_eq!(key.token(), Token(token), "key {components:02x?}");
    }
}

#[test]
fn vnode_bits_end_at_their_limit() {
    assert_eq!(VnodeBits::new(0).unwrap().count(), 1);
    assert_eq!(VnodeBits::new(VnodeBits::MAX).unwrap().count(), 65_536);
    assert_eq!(VnodeBits::new(VnodeBits::MAX + 1), None);
    assert_eq!(VnodeBits::DEFAULT.count(), 1_024);
}

#[test]
fn one_vnode_is_the_whole_ring() {
    let bits = VnodeBits::new(0).unwrap();
    assert_eq!(bits.range(Vnode(0)), TokenRange::ALL);
    for token in [i64::MIN, -1, 0, i64::MAX] {
        assert_eq!(bits.vnode(Token(token)), Vnode(0));
    }
}

#[test]
fn vnodes_tile_the_ring_in_order() {
    for bits in [0, 1, 10, VnodeBits::MAX] {
        let bits = VnodeBits::new(bits).unwrap();
        let mut end = None;
        for number in 0..bits.count() {
            let range = bits.range(Vnode(number));
            assert_eq!(range.after, end, "vnode {number} of {} begins where the one before ends", bits.count());
            if let Some(last) = range.up_to {
                assert_eq!(bits.vnode(last), Vnode(number));
                assert_eq!(bits.vnode(Token(last.0 + 1)), Vnode(number + 1));
            }
            end = range.up_to;
        }
        assert_eq!(end, None, "the last vnode reaches the end of the ring");
        assert_eq!(bits.vnode(Token(i64::MIN)), Vnode(0));
        assert_eq!(bits.vnode(Token(i64::MAX)), Vnode(bits.count() - 1));
    }
}

proptest! {
    #[test]
    fn a_token_lies_in_the_range_of_its_vnode_and_in_no_neighbour(token: i64, bits in 0..=VnodeBits::MAX) {
        let (token, bits) = (Token(token), VnodeBits::new(bits).unwrap());
        let vnode = bits.vnode(token);
        prop_assert!(bits.range(vnode).contains(token));
        if vnode.0 > 0 {
            prop_assert!(!bits.range(Vnode(vnode.0 - 1)).contains(token));
        }
        if vnode.0 + 1 < bits.count() {
            prop_assert!(!bits.range(Vnode(vnode.0 + 1)).contains(token));
        }
    }
}
