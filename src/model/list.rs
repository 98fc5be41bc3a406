//! Where the elements of a list lie: paths that are timeuuids, made of nothing but the request, so that doing a write
//! again, through whichever coordinator, writes the same elements.
//!
//! ```text
//! time      appended: the timestamp; prepended: as far before 1970 as the timestamp lies behind it, so that a later
//!           prepend lies before an earlier one. In steps of 100 ns since 1582, 60 bits
//! low half  variant 10 | 30 bits of a hash of the request | 32 bits: the how many-th element of the write
//! ```
//!
//! The bytes of the low half but the first have their sign bits flipped, as CQL compares them as signed: the elements of
//! one write lie in the order in which they were given.

use std::cmp::Ordering;

use bytes::Bytes;

use super::time::Timestamp;
use super::token::Token;

/// 100 ns steps from 1582-10-15, where the time of a UUID begins, to 1970.
const UNIX_EPOCH: u64 = 0x01b2_1dd2_1381_4000;
/// Steps of a microsecond.
const STEPS: u64 = 10;
/// Where the time of a UUID ends.
const TIME_MAX: u64 = (1 << 60) - 1;
/// The latest timestamp that can give an element its place, in microseconds since 1970: the year 2358, when what is
/// prepended would lie before 1582.
pub const LIST_TIMESTAMP_MAX: Timestamp = Timestamp((UNIX_EPOCH / STEPS) as i64 - 1);

const VERSION_1: u16 = 0x1000;
const VARIANT: u64 = 1 << 63;
/// The sign bits of the low half, but for its first byte.
const SIGNS: u64 = 0x0080_8080_8080_8080;

/// Gives paths to the elements that one write adds to lists.
#[derive(Debug, Clone)]
pub struct ListPaths {
    /// What the low halves begin with.
    request: u64,
    /// Elements so far.
    count: u32,
}

/// On which side of a list an element is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListEnd {
    /// Before all others.
    Front,
    /// Behind all others.
    Back,
}

impl ListPaths {
    /// The paths of a write that this request asks for. Two requests of one timestamp that change one list must differ
    /// in it.
    pub fn new(request_id: &[u8]) -> ListPaths {
        let hash = Token::of(request_id).0 as u64 >> 34;
        ListPaths { request: VARIANT | hash << 32, count: 0 }
    }

    /// The path of the next element; `None` if the timestamp, which gives it its place, lies before 1970 or behind
    /// [`LIST_TIMESTAMP_MAX`].
    pub fn next(&mut self, end: ListEnd, timestamp: Timestamp) -> Option<Bytes> {
        let since_1970 = u64::try_from(timestamp.0).ok().filter(|_| timestamp <= LIST_TIMESTAMP_MAX)? * STEPS;
        let time = match end {
            ListEnd::Back => UNIX_EPOCH + since_1970,
            ListEnd::Front => UNIX_EPOCH - 1 - since_1970,
        };
        let low = (self.request | u64::from(self.count)) ^ SIGNS;
        // A write has far fewer bytes than that many elements would take.
        self.count = self.count.wrapping_add(1);
        let mut path = [0; 16];
        path[..4].copy_from_slice(&(time as u32).to_be_bytes());
        path[4..6].copy_from_slice(&((time >> 32) as u16).to_be_bytes());
        path[6..8].copy_from_slice(&((time >> 48) as u16 | VERSION_1).to_be_bytes());
        path[8..].copy_from_slice(&low.to_be_bytes());
        Some(Bytes::copy_from_slice(&path))
    }
}

/// The order of the elements of a list by their paths: that of timeuuids in CQL. What is none, which nobody writes, comes
/// first.
pub fn compare_list_paths(a: &[u8], b: &[u8]) -> Ordering {
    place(a).cmp(&place(b)).then_with(|| a.cmp(b))
}

/// Time and low half, to be compared as numbers.
fn place(path: &[u8]) -> Option<(u64, u64)> {
    let path: [u8; 16] = path.try_into().ok()?;
    let (high, low) = ((u128::from_be_bytes(path) >> 64) as u64, u128::from_be_bytes(path) as u64);
    let time = (high >> 32) | (high >> 16 & 0xffff) << 32 | (high & 0x0fff) << 48;
    Some((time & TIME_MAX, low ^ 0x8080_8080_8080_8080))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use uuid::{Uuid, Variant};

    use super::*;
    use crate::model::Type;
    use crate::model::value::validate;

    fn paths(request: &[u8], end: ListEnd, timestamp: i64, count: usize) -> Vec<Bytes> {
        let mut paths = ListPaths::new(request);
        (0..count).map(|_| paths.next(end, Timestamp(timestamp)).unwrap()).collect()
    }

    fn is_sorted(paths: &[Bytes]) -> bool {
        paths.windows(2).all(|pair| compare_list_paths(&pair[0], &pair[1]).is_lt())
    }

    #[test]
    fn elements_of_one_write_lie_in_their_order() {
        for end in [ListEnd::Front, ListEnd::Back] {
            let all = paths(b"a request", end, 1_767_225_600_000_000, 70_000);
            assert!(is_sorted(&all));
        }
    }

    #[test]
    fn a_path_is_a_timeuuid_of_its_timestamp() {
        let at = 1_767_225_600_000_000;
        let path = &paths(b"r", ListEnd::Back, at, 1)[0];
        validate(&Type::TimeUuid, path).unwrap();
        let uuid = Uuid::from_slice(path).unwrap();
        assert_eq!((uuid.get_version_num(), uuid.get_variant()), (1, Variant::RFC4122));
        let (seconds, nanos) = uuid.get_timestamp().unwrap().to_unix();
        assert_eq!(seconds as i64 * 1_000_000 + i64::from(nanos) / 1_000, at);
        // Kept: what a retry through another release must write again.
        assert_eq!(uuid.to_string(), "d0c3c000-e6a4-11f0-b119-a45680808080");
    }

    #[test]
    fn timestamps_without_a_place_are_refused() {
        let place = |end, timestamp| ListPaths::new(b"").next(end, Timestamp(timestamp));
        for end in [ListEnd::Front, ListEnd::Back] {
            assert!(place(end, 0).is_some() && place(end, LIST_TIMESTAMP_MAX.0).is_some());
            assert_eq!((place(end, -1), place(end, LIST_TIMESTAMP_MAX.0 + 1)), (None, None));
            assert_eq!((place(end, i64::MAX), place(end, Timestamp::MIN.0)), (None, None));
        }
    }

    proptest! {
        #[test]
        fn later_writes_lie_further_out(a in 0..LIST_TIMESTAMP_MAX.0, b in 0..LIST_TIMESTAMP_MAX.0, who in any::<[u64; 2]>()) {
            let [first, second] = [a.min(b), a.max(b) + 1];
            let path = |who: usize, end, timestamp| paths(&[who as u8], end, timestamp, 1).remove(0);
            let list = [
                path(who[0] as usize, ListEnd::Front, second),
                path(who[1] as usize, ListEnd::Front, first),
                path(who[1] as usize, ListEnd::Back, first),
                path(who[0] as usize, ListEnd::Back, second),
            ];
            prop_assert!(is_sorted(&list), "{list:02x?}");
        }

        #[test]
        fn the_same_request_gives_the_same_paths_and_another_others(request in any::<u64>(), other in any::<u64>()) {
            prop_assume!(request != other);
            let of = |request: u64| paths(&request.to_be_bytes(), ListEnd::Back, 7, 3);
            prop_assert_eq!(of(request), of(request));
            prop_assert!(of(request).iter().all(|path| !of(other).contains(path)));
        }

        /// In keys timeuuids are ordered by their encoding: in lists by the same order.
        #[test]
        fn the_order_is_that_of_timeuuids_in_keys(a in any::<[u8; 16]>(), b in any::<[u8; 16]>()) {
            let timeuuid = |mut bytes: [u8; 16]| {
                bytes[6] = bytes[6] & 0x0f | 0x10;
                Bytes::copy_from_slice(&bytes)
            };
            let (a, b) = (timeuuid(a), timeuuid(b));
            let key = |value: &Bytes| {
                let ascending = [(Type::TimeUuid, crate::model::Order::Ascending)];
                crate::model::ClusteringKey::encode(std::slice::from_ref(value), &ascending).unwrap()
            };
            prop_assert_eq!(compare_list_paths(&a, &b), key(&a).cmp(&key(&b)));
        }
    }
}
