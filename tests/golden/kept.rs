//! The files of `data/`: bytes in hex, of one thing each.
//!
//! A file is written once and then never again. `TREFOIL_GOLDEN=write cargo test --test golden` writes those that are
//! missing; a format that changes gets new names in a directory of its own version, and the old files stay with the
//! tests that decode them.
#![allow(clippy::disallowed_methods, reason = "the files are the test's own, not the store's")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use bytes::Bytes;

/// The kept bytes of `name`, which must be `bytes`: what is written today is what was always written.
pub fn golden(name: &str, bytes: &[u8]) -> Bytes {
    let kept = kept(name, bytes);
    assert_eq!(
        hex(bytes),
        hex(&kept),
        "{name} is now encoded (left) unlike the bytes that are kept (right): data of earlier builds would be unreadable"
    );
    kept
}

/// The kept bytes of `name`, for what may be written in many ways and must be readable in all of them. `bytes` are
/// written if the file is missing and writing was asked for.
pub fn kept(name: &str, bytes: &[u8]) -> Bytes {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data/v1").join(name).with_extension("hex");
    if !path.exists() {
        let asked = std::env::var("TREFOIL_GOLDEN").is_ok_and(|value| value == "write");
        assert!(asked, "{} is missing; TREFOIL_GOLDEN=write writes it", path.display());
        let mut file = File::create_new(&path).expect("a new file");
        file.write_all(hex(bytes).as_bytes()).expect("written");
    }
    let text = fs::read_to_string(&path).expect("a readable file");
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("hex digits");
    digits.chunks(2).map(byte).collect()
}

/// Pairs of digits, 32 to a line, which is how they are kept.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        let pairs: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{}", pairs.join(" ")).expect("a string takes all");
    }
    text
}
