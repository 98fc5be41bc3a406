//! Every package that ends up in what we build has a licence that lets anyone use, change and sell the result.
//!
//! `cargo metadata` tells what the lock file holds for this platform; nothing is downloaded for it.

use std::process::Command;

use serde_json::Value;

/// What is fine, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("Apache-2.0", "our own"),
    ("MIT", "asks for its notice only"),
    ("BSD-2-Clause", "asks for its notice only"),
    ("BSD-3-Clause", "asks for its notice only, and that no one claims the authors' endorsement"),
    ("ISC", "asks for its notice only"),
    ("0BSD", "asks for nothing"),
    ("Zlib", "asks that altered sources say so"),
    ("BSL-1.0", "asks for its notice in sources only"),
    ("Unicode-3.0", "tables of characters: asks for its notice only"),
];

#[test]
fn every_dependency_has_a_licence_we_allow() {
    let refused: Vec<String> = packages()
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(is_allowed))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "licences that nobody has looked at:\n{}", refused.join("\n"));
}

#[test]
fn our_own_packages_are_under_apache_2() {
    for package in packages().iter().filter(|package| package["source"].is_null()) {
        assert_eq!(package["license"], "Apache-2.0", "{}", package["name"]);
    }
}

#[test]
fn expressions_are_understood() {
    for fine in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-3.0) AND Unicode-3.0", "(MIT)"] {
        assert!(is_allowed(fine), "{fine}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "Apache-2.0 WITH Some-exception", "(MIT"]
    {
        assert!(!is_allowed(bad), "{bad}");
    }
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &platform()])
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    assert!(packages.len() > 50, "cargo names hardly any packages: the test looks in the wrong place");
    packages
}

/// The triple that this test was built on.
fn platform() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc built this test");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host").to_owned()
}

/// Whether an SPDX expression can be met by allowed licences alone. An exception (`WITH`) is a licence of its own.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ").replace(" WITH ", "-with-");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any_of(&words, &mut at) && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize) -> bool {
    let mut allowed = all_of(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        allowed |= all_of(words, at);
    }
    allowed
}

fn all_of(words: &[&str], at: &mut usize) -> bool {
    let mut allowed = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        allowed &= one(words, at);
    }
    allowed
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let word = words.get(*at).copied().unwrap_or("");
    *at += 1;
    if word != "(" {
        return ALLOWED.iter().any(|(name, _)| *name == word);
    }
    let allowed = any_of(words, at);
    let closed = words.get(*at) == Some(&")");
    *at += 1;
    allowed && closed
}
