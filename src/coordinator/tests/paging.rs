//! Paging states: what a client may hand back, and what it may not.

use bytes::Bytes;
use proptest::prelude::*;

use crate::coordinator::{PagingState, Resume, Start};
use crate::model::naive::{partition_key, row_key};
use crate::model::{PagePosition, RowPosition, Token};

fn any_position() -> impl Strategy<Value = PagePosition> {
    let row = prop_oneof![
        Just(RowPosition::Header),
        any::<i32>().prop_map(|key| RowPosition::After(row_key(key))),
        any::<i32>().prop_map(|key| RowPosition::At(row_key(key).before())),
        Just(RowPosition::End),
    ];
    (any::<u8>(), row).prop_map(|(number, row)| PagePosition { partition: partition_key(number), row })
}

fn any_state() -> impl Strategy<Value = PagingState> {
    let resume =
        (any_position(), any::<u32>()).prop_map(|(position, rows_in_partition)| Resume { position, rows_in_partition });
    let start = prop_oneof![
        Just(Start::Beginning),
        any::<i64>().prop_map(|token| Start::Behind(Token(token))),
        resume.prop_map(Start::Resume),
    ];
    (any::<u32>(), start, proptest::option::of(1..u64::MAX)).prop_map(|(target, start, rows_left)| PagingState {
        target,
        start,
        rows_left,
    })
}

proptest! {
    #[test]
    fn a_state_comes_back_as_it_was_and_to_its_own_request_alone(state in any_state(), fingerprint in any::<u64>()) {
        let bytes = state.encode(fingerprint);
        prop_assert_eq!(PagingState::decode(&bytes, fingerprint).unwrap(), state);
        let refused = PagingState::decode(&bytes, fingerprint ^ 1).unwrap_err().to_string();
        prop_assert!(refused.contains("another request"), "{}", refused);
    }

    #[test]
    fn damage_is_noticed_in_every_byte(state in any_state(), flip in 1..=255u8) {
        let bytes = state.encode(7);
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= flip;
            prop_assert!(PagingState::decode(&Bytes::from(damaged), 7).is_err(), "byte {}", at);
            prop_assert!(PagingState::decode(&bytes.slice(..at), 7).is_err(), "cut to {} bytes", at);
        }
    }

    /// A right checksum proves nothing: whoever makes one up is refused, or names a place, and breaks nothing.
    #[test]
    fn what_somebody_made_up_breaks_nothing(mut body in proptest::collection::vec(any::<u8>(), 0..40), ours in any::<bool>()) {
        if ours {
            body.splice(0..0, [1, 7, 0, 0, 0, 0, 0, 0, 0]);
        }
        let crc = crc32fast::hash(&body);
        body.extend_from_slice(&crc.to_le_bytes());
        let _ = PagingState::decode(&Bytes::from(body), 7);
    }
}

#[test]
fn a_state_of_a_later_version_says_so() {
    let mut bytes = PagingState { target: 0, start: Start::Beginning, rows_left: None }.encode(7).to_vec();
    bytes[0] = 2;
    let crc_at = bytes.len() - 4;
    let crc = crc32fast::hash(&bytes[..crc_at]);
    bytes[crc_at..].copy_from_slice(&crc.to_le_bytes());
    let refused = PagingState::decode(&Bytes::from(bytes), 7).unwrap_err().to_string();
    assert!(refused.contains("version 2"), "{refused}");
}
