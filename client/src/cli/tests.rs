//! Arguments: what is understood, what is refused, and with which exit code.

#![allow(clippy::unwrap_used, reason = "tests")]

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::*;

fn parse(arguments: &[&str]) -> Result<CommandLine, clap::Error> {
    CommandLine::try_parse_from([&["trefoil"], arguments].concat())
}

#[test]
fn the_definition_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn what_docs_show_is_understood() {
    let page = include_str!("../../../docs/cli.md");
    let shown = page.lines().filter_map(|line| line.strip_prefix("$ trefoil "));
    let mut count = 0;
    for line in shown {
        let command = line.split(" > ").next().unwrap_or(line);
        if let Err(error) = parse(&words(command).iter().map(String::as_str).collect::<Vec<_>>()) {
            panic!("trefoil {command}: {error}");
        }
        count += 1;
    }
    assert!(count > 15, "{count} examples");
}

/// The words of a shell line with single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn wrong_usage_is_refused_before_anything_is_asked() {
    let cases: [(&[&str], ErrorKind, &str); 14] = [
        (&["get", "flights", "{}"], ErrorKind::ValueValidation, "named like demo.flights"),
        (&["get", "a.b.c", "{}"], ErrorKind::ValueValidation, "named like demo.flights"),
        (&["get", "a.b", "{"], ErrorKind::ValueValidation, "EOF while parsing"),
        (&["put", "a.b", "[]"], ErrorKind::ValueValidation, "an object with one member per column"),
        (&["get", "a.b", "{}", "--limit", "0"], ErrorKind::ValueValidation, "--limit"),
        (&["get", "a.b"], ErrorKind::MissingRequiredArgument, "<JSON-KEY>"),
        (&["status", "--consistency", "SERIAL"], ErrorKind::ValueValidation, "LOCAL_QUORUM or EACH_QUORUM"),
        (&["status", "--consistency", "UNSPECIFIED"], ErrorKind::ValueValidation, "LOCAL_QUORUM or EACH_QUORUM"),
        (&["scan", "a.b", "--count", "--format", "csv"], ErrorKind::ArgumentConflict, "--format"),
        (&["import", "a.b", "f.csv", "--reject", "bad"], ErrorKind::MissingRequiredArgument, "--max-errors"),
        (&["import", "a.b", "f.csv", "--in-flight", "0"], ErrorKind::ValueValidation, "--in-flight"),
        (&["bench", "write", "--rate", "5", "--in-flight", "5"], ErrorKind::ArgumentConflict, "--rate"),
        (&["bench", "write", "--duration", "20"], ErrorKind::ValueValidation, "20s, 500ms or 2m"),
        (&["bench", "scan"], ErrorKind::InvalidValue, "write, read, mixed"),
    ];
    for (arguments, kind, text) in cases {
        let error = parse(arguments).unwrap_err();
        assert_eq!(error.kind(), kind, "{arguments:?}: {error}");
        assert!(error.to_string().contains(text), "{arguments:?}: {error}");
        assert_eq!(error.exit_code(), 2, "{arguments:?}");
    }
}

#[test]
fn global_options_stand_anywhere() {
    let line = parse(&["status", "--json", "--endpoint", "a:1,b:2", "--consistency", "each_quorum"]).unwrap();
    assert!(line.global.json);
    assert_eq!(line.global.endpoint, ["a:1", "b:2"]);
    assert_eq!(line.global.consistency, Consistency::EachQuorum);
}

#[test]
fn help_and_version_are_no_failures() {
    for flag in ["--help", "--version"] {
        assert_eq!(parse(&[flag]).unwrap_err().exit_code(), 0);
    }
}

/// Nothing listens there: the command fails with 1 and names the address.
#[test]
fn a_cluster_that_is_not_there_is_a_failure_not_wrong_usage() {
    let global = Global { endpoint: vec!["http://127.0.0.1:1".to_owned()], json: false, consistency: Consistency::One };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(global.connect_with(Duration::from_millis(300), 1)).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}
