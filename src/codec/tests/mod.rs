//! Laws of the encodings: what is encoded comes back, and nothing else is accepted.
#![allow(clippy::unwrap_used, reason = "tests")]

mod arbitrary;
mod blocks;
mod entry;
mod mutation;
mod record;
mod row;
mod types;
mod varint;

use bytes::Bytes;

/// Decodes every damaged version of `sample`: each byte with each bit flipped, each proper prefix, a byte more. `decode`
/// answers what it accepted, encoded again; that must be the damaged bytes themselves.
fn refuses_damage(sample: &[u8], decode: impl Fn(Bytes) -> crate::Result<Vec<u8>>) {
    let accepted_is_canonical = |damaged: Vec<u8>| {
        let damaged = Bytes::from(damaged);
        if let Ok(again) = decode(damaged.clone()) {
            assert_eq!(again, damaged, "accepted, but encoded otherwise");
        }
    };
    for at in 0..sample.len() {
        for bit in 0..8 {
            let mut damaged = sample.to_vec();
            damaged[at] ^= 1 << bit;
            accepted_is_canonical(damaged);
        }
        assert!(decode(Bytes::copy_from_slice(&sample[..at])).is_err(), "the first {at} bytes were accepted");
    }
    let mut longer = sample.to_vec();
    longer.push(0);
    assert!(decode(Bytes::from(longer)).is_err(), "a byte behind the end was accepted");
}
