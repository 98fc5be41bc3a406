//! The shape of the sources, counted so that it holds: which module may name which, where the back doors are, how
//! large files and functions grow.
//!
//! Rust lets the modules of a crate name each other in circles, and then no part can be read, tested or simulated by
//! itself. The crates split at I/O; inside them these tables rule. A new arrow is a design change: it comes with its
//! reason here and in `docs/architecture.md`, in the same commit.
//!
//! `cargo test --test layering -- --nocapture` prints the sizes.

#![allow(clippy::disallowed_methods, reason = "this test reads the sources themselves, not the files of a node")]
#![allow(clippy::print_stdout, reason = "the sizes are for people to look at")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A module of the core, the modules it may name besides its own, and why. `Error`, `Result`, `Class` and `Corrupt` are
/// open to all.
const ARROWS: &[(&str, &[&str], &str)] = &[
    ("model", &[], "what the data is; everything speaks it, so it names nothing"),
    ("vfs", &[], "the door to files knows no data"),
    ("error", &["model"], "an error names the table or the schema version it is about"),
    ("codec", &["model"], "bytes of the model"),
    ("received", &["model", "codec"], "sets of names, and their bytes"),
    ("cql", &["model"], "words to schema changes; knows neither files nor peers"),
    ("memtable", &["model", "codec"], "sorted rows in memory"),
    ("commitlog", &["model", "codec", "vfs", "received"], "the footer of a sealed segment lists the names within"),
    ("sstable", &["model", "codec", "vfs"], "sorted rows in a file"),
    (
        "compaction",
        &["model", "codec", "sstable"],
        "chooses among files and merges them; rows pass through as they are",
    ),
    (
        "store",
        &["model", "codec", "vfs", "memtable", "commitlog", "sstable", "compaction", "received", "snapshot"],
        "one node's data: the only place where log, memory and files meet",
    ),
    ("ring", &["model"], "tokens to owners"),
    ("metadata", &["model", "codec", "ring"], "the cluster's state; knows no data"),
    ("liveness", &["model", "codec", "ring", "received"], "pings carry what changed in the received sets"),
    ("repair", &["model", "codec", "ring", "received"], "compares replicas; knows neither files nor peers"),
    ("coordinator", &["model", "codec"], "replicas are indices here: neither nodes nor files nor liveness"),
    ("hints", &["model", "codec", "vfs", "ring"], "a log of its own for each peer"),
    (
        "snapshot",
        &["model", "codec", "vfs", "commitlog", "sstable", "received"],
        "a fixed set of files; below the store, which makes one before it lets go of a table",
    ),
    (
        "backup",
        &["model", "codec", "commitlog", "received", "ring", "metadata", "sstable", "snapshot"],
        "what is in a bucket and what follows from it: files, pieces of the log, sets and the cluster's state; requests are made elsewhere",
    ),
];

/// Each package and the Trefoil packages it may depend on.
const PACKAGES: &[(&str, &[&str])] = &[
    ("", &[]),
    ("proto", &["trefoil"]),
    ("server/s3", &["trefoil"]),
    ("client", &["trefoil", "trefoil-proto", "trefoil-s3"]),
    ("server", &["trefoil", "trefoil-proto", "trefoil-client", "trefoil-s3"]),
    ("tests/bench", &["trefoil", "trefoil-proto", "trefoil-client", "trefoil-s3"]),
];

/// Where the server may name the client: it runs a cluster of children for developers and talks to it as a client does.
const SERVER_NAMES_CLIENT_IN: &str = "server/src/dev";

/// What the core must not name in its code, the one module that may, and why.
const BACK_DOORS: &[(&str, Option<&str>, &str)] = &[
    ("std::fs", Some("vfs"), "files only via vfs, so that tests can lose power"),
    ("std::time", None, "time is handed in, so that a simulation can turn it"),
    ("std::thread", None, "threads belong to the server"),
    ("std::net::Tcp", None, "sockets belong to the server"),
    ("std::net::Udp", None, "sockets belong to the server"),
    ("std::process", None, "the core never ends the process"),
    ("std::env", None, "settings are handed in"),
    ("use std::{", None, "one line for each part of std, so that this list can see them"),
    ("tokio", None, "no runtime"),
    ("rand::rng(", None, "generators are handed in, seeded"),
    ("rand::random", None, "generators are handed in, seeded"),
    ("Uuid::new_v4", None, "generators are handed in, seeded"),
    ("Uuid::now_v7", None, "generators and time are handed in"),
];

/// Names of files that say that a concept is missing.
const HOMELESS: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// A source file: the lines that ship, and the number of those that test.
struct Source {
    /// Relative to the repository.
    path: String,
    code: Vec<String>,
    test_lines: usize,
}

#[test]
fn modules_name_only_what_lies_below_them() {
    let mut faults = Vec::new();
    for source in sources("src") {
        let module = source.module();
        if module == "lib" {
            continue;
        }
        let Some((_, allowed, _)) = ARROWS.iter().find(|(name, ..)| *name == module) else {
            faults.push(format!("{}: module {module} has no row in ARROWS", source.path));
            continue;
        };
        for (number, line) in source.statements() {
            for named in named_modules(line) {
                if named != module && !allowed.contains(&named) {
                    faults.push(format!("{}:{number}: {module} names {named}", source.path));
                }
            }
            if supers(line) >= source.depth() {
                faults.push(format!("{}:{number}: leaves its module by super::", source.path));
            }
        }
    }
    report(faults);
}

#[test]
fn packages_depend_only_on_those_below_them() {
    let mut faults = Vec::new();
    for (package, allowed) in PACKAGES {
        let manifest = read(&root().join(package).join("Cargo.toml"));
        for dependency in dependencies(&manifest).filter(|name| name.starts_with("trefoil")) {
            if !allowed.contains(&dependency) {
                faults.push(format!("package {package:?} depends on {dependency}"));
            }
        }
    }
    for source in sources("server/src").iter().filter(|source| !source.path.starts_with(SERVER_NAMES_CLIENT_IN)) {
        for (number, _) in source.statements().filter(|(_, line)| line.contains("trefoil_client")) {
            faults.push(format!("{}:{number}: only {SERVER_NAMES_CLIENT_IN}.rs may name the client", source.path));
        }
    }
    report(faults);
}

#[test]
fn the_core_has_no_back_doors() {
    let mut faults = Vec::new();
    for source in sources("src") {
        for (number, line) in source.statements() {
            for (door, keeper, reason) in BACK_DOORS {
                if line.contains(door) && *keeper != Some(source.module()) {
                    faults.push(format!("{}:{number}: {door}: {reason}", source.path));
                }
            }
        }
    }
    report(faults);
}

#[test]
fn imports_are_few_and_spelled_out() {
    let mut faults = Vec::new();
    for source in all_sources() {
        let mut seen = BTreeSet::new();
        for (number, line) in source.statements() {
            let Some(path) = line.strip_prefix("use crate::") else { continue };
            let module = path.rsplit_once("::").map_or(path, |(module, _)| module);
            let module = module.split_once("::{").map_or(module, |(module, _)| module);
            let module = if module.starts_with(|c: char| c.is_lowercase()) { module } else { "" };
            if !seen.insert(module) {
                faults.push(format!("{}:{number}: a second import of crate::{module}", source.path));
            }
        }
        for (number, line) in source.statements() {
            if line.trim_start().trim_start_matches("pub ").starts_with("use ") && line.contains("::*") {
                faults.push(format!("{}:{number}: a glob import hides what is used", source.path));
            }
        }
    }
    report(faults);
}

#[test]
fn files_say_what_they_are_and_are_small() {
    let mut faults = Vec::new();
    for source in all_sources() {
        let first = source.first_line();
        if !first.starts_with("//!") {
            faults.push(format!("{}: opens without //!", source.path));
        }
        if source.code.len() > FILE_LINES_MAX {
            faults.push(format!("{}: {} lines, {FILE_LINES_MAX} at most", source.path, source.code.len()));
        }
        if HOMELESS.iter().any(|name| Path::new(&source.path).file_stem().is_some_and(|stem| stem == *name)) {
            faults.push(format!("{}: name the concept that these functions belong to", source.path));
        }
    }
    report(faults);
}

#[test]
fn functions_are_small() {
    let mut faults = Vec::new();
    for source in all_sources() {
        for (number, name, lines) in functions(&source.code) {
            if lines > FUNCTION_LINES_MAX {
                faults.push(format!("{}:{number}: {name}: {lines} lines, {FUNCTION_LINES_MAX} at most", source.path));
            }
        }
    }
    report(faults);
}

/// Test targets are listed by hand, since some that lie in `tests/` belong to server or client: none may be forgotten.
#[test]
fn every_test_runs() {
    let manifests: String =
        ["Cargo.toml", "server/Cargo.toml", "client/Cargo.toml"].map(|path| read(&root().join(path))).concat();
    let mut faults = Vec::new();
    for entry in fs::read_dir(root().join("tests")).expect("the folder of the tests").flatten() {
        let path = if entry.path().is_dir() { entry.path().join("main.rs") } else { entry.path() };
        let name = relative(&path);
        if path.exists() && name.ends_with(".rs") && !manifests.contains(&format!("{name}\"")) {
            faults.push(format!("{name}: no [[test]] entry names it"));
        }
    }
    report(faults);
}

/// Tests of faults that others had are listed for whoever asks whether this store has them too.
#[test]
fn every_fault_by_name_is_listed() {
    let page = read(&root().join("docs/testing.md"));
    let mut paths = Vec::new();
    for folder in ["src", "proto/src", "server/src", "server/s3/src", "client/src", "tests"] {
        walk(&root().join(folder), &mut paths);
    }
    let texts: Vec<String> = paths.iter().map(|path| read(path)).collect();
    let names: BTreeSet<&str> = texts.iter().flat_map(|text| fault_tests(text)).collect();
    let listed: BTreeSet<&str> = page.split('`').filter(|word| is_fault_test(word)).collect();
    let mut faults: Vec<String> =
        names.difference(&listed).map(|name| format!("docs/testing.md lacks `{name}`")).collect();
    faults.extend(listed.difference(&names).map(|name| format!("docs/testing.md lists `{name}`, and there is none")));
    report(faults);
}

/// The names of tests in a source that stand for faults of others: `b` and three digits.
fn fault_tests(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (_, name) = line.split_once("fn ")?;
        name.split('(').next().filter(|name| is_fault_test(name))
    })
}

fn is_fault_test(name: &str) -> bool {
    let number = name.strip_prefix('b').and_then(|rest| rest.get(..3));
    number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
        && name.as_bytes().get(4) == Some(&b'_')
}

#[test]
fn sizes_for_people() {
    let all = all_sources();
    let files: Vec<usize> = all.iter().map(|source| source.code.len()).filter(|lines| *lines > 0).collect();
    let functions: Vec<usize> =
        all.iter().flat_map(|source| functions(&source.code).into_iter().map(|(.., lines)| lines)).collect();
    let code: usize = files.iter().sum();
    let comments =
        all.iter().flat_map(|source| &source.code).filter(|line| line.trim_start().starts_with("//")).count();
    let tests: usize = all.iter().map(|source| source.test_lines).sum::<usize>() + lines_under("tests");
    println!("files: {}, median {} lines, {} at most", files.len(), median(&files), most(&files));
    println!("functions: {}, median {} lines, {} at most", functions.len(), median(&functions), most(&functions));
    println!("lines: {code}, of which comments {} %; lines of tests {tests}", comments * 100 / code.max(1));
    assert!(files.len() > 50 && functions.len() > 200, "the counting itself is broken");
}

/// The counters are tests' foundations: they are tried on text whose counts are known.
#[test]
fn the_counters_count() {
    let text = "//! A.\nuse crate::b::C;\n\nimpl A {\n    pub fn one(&self) {\n        x();\n    }\n    fn two() {}\n}\n\
                #[cfg(test)]\nmod tests {\n    fn hidden() {\n    }\n}\nfn three(\n    a: u8,\n) {\n}\n";
    let (code, test_lines) = without_tests(text);
    assert_eq!(test_lines, 5);
    let found: Vec<_> = functions(&code).into_iter().map(|(_, name, lines)| (name, lines)).collect();
    assert_eq!(found, [("one".to_owned(), 3), ("two".to_owned(), 1), ("three".to_owned(), 4)]);
    assert_eq!(named_modules("use crate::b::C; crate::Error; crate::d::E").collect::<Vec<_>>(), ["b", "d"]);
    assert_eq!(named_modules("pub(in crate::codec) fn x() {").count(), 1);
    assert_eq!(supers("use super::super::super::x;"), 3);
    assert_eq!(supers("super::a(super::super::b)"), 2);
    assert_eq!(
        dependencies("[dependencies]\na.workspace = true\n[dev-dependencies]\nb = 1\n").collect::<Vec<_>>(),
        ["a"]
    );
}

impl Source {
    /// The top module it belongs to.
    fn module(&self) -> &str {
        let inside = self.path.split_once("src/").map_or("", |(_, inside)| inside);
        inside.split(['/', '.']).next().unwrap_or("")
    }

    /// How many `super::` lead to the root of the crate.
    fn depth(&self) -> usize {
        let inside = self.path.split_once("src/").map_or("", |(_, inside)| inside);
        inside.split('/').count() - usize::from(inside.ends_with("/mod.rs"))
    }

    fn first_line(&self) -> String {
        read(&root().join(&self.path)).lines().next().unwrap_or("").to_owned()
    }

    /// Lines that are no comments, numbered from 1 (tests left out, so numbers are exact only above them).
    fn statements(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.code.iter().enumerate().map(|(at, line)| (at + 1, line.as_str()));
        numbered.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

/// The modules after each `crate::` of a line; items of the root (they begin with a capital) left out.
fn named_modules(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).filter_map(|rest| {
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        name.starts_with(|c: char| c.is_lowercase()).then_some(name)
    })
}

/// The longest chain of `super::` in a line.
fn supers(line: &str) -> usize {
    let mut most = 0;
    let mut rest = line;
    while let Some(at) = rest.find("super::") {
        rest = &rest[at..];
        let mut chain = 0;
        while let Some(after) = rest.strip_prefix("super::") {
            chain += 1;
            rest = after;
        }
        most = most.max(chain);
    }
    most
}

/// The names under `[dependencies]` and `[build-dependencies]` of a manifest.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            inside = line == "[dependencies]" || line == "[build-dependencies]";
            return None;
        }
        let name = line.split(['.', ' ', '=']).next().filter(|name| !name.is_empty() && !name.starts_with('#'));
        name.filter(|_| inside)
    })
}

/// Each function of formatted code: its line, its name, its lines from `fn` to the closing brace.
fn functions(code: &[String]) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for (at, line) in code.iter().enumerate() {
        let trimmed = line.trim_start();
        let words = ["pub ", "pub(crate) ", "pub(super) ", "const ", "async "];
        let bare = words.iter().fold(trimmed, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
        let Some(rest) = bare.strip_prefix("fn ") else { continue };
        let name = rest.split(['(', '<']).next().unwrap_or("").to_owned();
        let indent = &line[..line.len() - trimmed.len()];
        let close = format!("{indent}}}");
        // The head ends where a brace opens the body, or with a semicolon in a trait.
        let head_end = code[at..].iter().position(|line| line.ends_with([';', '{', '}'])).unwrap_or(0) + at;
        if code[head_end].ends_with('{') {
            let end = code[head_end..].iter().position(|line| *line == close).unwrap_or(0) + head_end;
            found.push((at + 1, name, end - at + 1));
        } else if code[head_end].ends_with('}') {
            found.push((at + 1, name, head_end - at + 1));
        }
    }
    found
}

/// The code of a file without modules that are compiled for tests only, and the lines these have.
fn without_tests(text: &str) -> (Vec<String>, usize) {
    let lines: Vec<&str> = text.lines().collect();
    let mut code = Vec::new();
    let mut tests = 0;
    let mut at = 0;
    while at < lines.len() {
        let opens = |line: &&str| line.starts_with("mod ") && line.ends_with('{');
        let module = (lines[at] == "#[cfg(test)]").then(|| lines[at..].iter().take(4).position(opens)).flatten();
        match module {
            Some(offset) => {
                let body = at + offset;
                let end = lines[body..].iter().position(|line| *line == "}").map_or(lines.len() - 1, |end| body + end);
                tests += end - at + 1;
                at = end + 1;
            }
            None => {
                code.push(lines[at].to_owned());
                at += 1;
            }
        }
    }
    (code, tests)
}

/// The files that a `#[cfg(test)] mod name;` of this file stands for, as path prefixes.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let folder = path.strip_suffix("/mod.rs").or(path.strip_suffix("/lib.rs")).or(path.strip_suffix(".rs"));
    let lines: Vec<&str> = text.lines().collect();
    let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").filter_map(|pair| {
        let declaration = pair[1].strip_suffix(';')?;
        declaration.rsplit_once("mod ").map(|(_, name)| name)
    });
    declared.map(|name| format!("{}/{name}", folder.unwrap_or(path))).collect()
}

fn all_sources() -> Vec<Source> {
    PACKAGES.iter().flat_map(|(package, _)| sources(&format!("{package}/src"))).collect()
}

/// The sources in a folder; those that are tests through and through have no code.
fn sources(folder: &str) -> Vec<Source> {
    let mut paths = Vec::new();
    walk(&root().join(folder.trim_start_matches('/')), &mut paths);
    let texts: Vec<(String, String)> = paths.iter().map(|path| (relative(path), read(path))).collect();
    let tests: Vec<String> = texts.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_test =
        |path: &str| tests.iter().any(|test| path == format!("{test}.rs") || path.starts_with(&format!("{test}/")));
    let split = texts.into_iter().map(|(path, text)| {
        let (code, test_lines) = if is_test(&path) { (Vec::new(), text.lines().count()) } else { without_tests(&text) };
        Source { path, code, test_lines }
    });
    split.collect()
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a folder that can be listed").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            walk(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn lines_under(folder: &str) -> usize {
    let mut paths = Vec::new();
    walk(&root().join(folder), &mut paths);
    paths.iter().map(|path| read(path).lines().count()).sum()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().into_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn median(numbers: &[usize]) -> usize {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

fn most(numbers: &[usize]) -> usize {
    numbers.iter().copied().max().unwrap_or(0)
}

fn report(faults: Vec<String>) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
