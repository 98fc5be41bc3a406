//! The binary `trefoil` against a cluster of memory: what it prints, how it ends, and what it does when things fail.

#![allow(clippy::unwrap_used, reason = "tests")]

mod memory;
mod stopped;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value as Json;
use tempfile::TempDir;

use trefoil::model::Value;
use trefoil_proto::convert::value;
use trefoil_proto::v1::CellWrite;
use trefoil_proto::v1::cell_write::{Element, Op as CellOp};

use memory::{Fate, Fates, Memory};

const SCHEMA: &str = "\
CREATE KEYSPACE demo;

CREATE TABLE demo.flights (
    origin text,
    year int,
    airport text STATIC,
    day date,
    flight bigint,
    tail text,
    delay double,
    PRIMARY KEY ((origin, year), day, flight)
) WITH CLUSTERING ORDER BY (day ASC, flight DESC);
";

struct Cli {
    memory: Memory,
    directory: TempDir,
}

impl Cli {
    /// A cluster with the table `demo.flights`.
    async fn start(fates: Fates) -> Cli {
        let cli = Cli { memory: Memory::start(fates).await, directory: tempfile::tempdir().unwrap() };
        let schema = cli.file("schema.cql", SCHEMA);
        let out = cli.ok(&["schema", "apply", schema.to_str().unwrap()]).await;
        assert_eq!(out, "CREATE KEYSPACE demo: done\nCREATE TABLE demo.flights: done\n");
        cli
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_trefoil"));
        command.args(arguments).env("TREFOIL_ENDPOINT", format!("http://{}", self.memory.address()));
        command.kill_on_drop(true).output().await.unwrap()
    }

    /// What a command prints that succeeds.
    async fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        out
    }

    /// The exit code and the error of a command that fails.
    async fn fails(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments).await;
        assert!(!output.status.success(), "{arguments:?} succeeded: {}", texts(&output).0);
        (output.status.code().unwrap(), texts(&output).1)
    }

    async fn count(&self) -> String {
        self.ok(&["scan", "demo.flights", "--count"]).await.trim().to_owned()
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn always(_: u64) -> Fate {
    Fate::Done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn rows_are_put_read_and_deleted() {
    let cli = Cli::start(always).await;
    let put = async |row: &str| cli.ok(&["put", "demo.flights", row]).await;
    assert_eq!(
        put(r#"{"origin":"JFK","year":2013,"day":"2013-01-31","flight":9007199254740993,"delay":-1.5}"#).await,
        ""
    );
    put(r#"{"origin":"JFK","year":2013,"day":"2013-02-01","flight":1,"tail":"a \"b\""}"#).await;
    put(r#"{"origin":"LGA","year":2013,"airport":"La Guardia"}"#).await;

    let day = r#"{"origin":"JFK","year":2013,"day":"2013-01-31"}"#;
    let row = r#"{"origin":"JFK","year":2013,"day":"2013-01-31","flight":9007199254740993,"airport":null,"tail":null,"delay":-1.5}"#;
    assert_eq!(cli.ok(&["get", "demo.flights", day]).await, format!("{row}\n"));
    let lga =
        r#"{"origin":"LGA","year":2013,"day":null,"flight":null,"airport":"La Guardia","tail":null,"delay":null}"#;
    assert_eq!(cli.ok(&["get", "demo.flights", r#"{"origin":"LGA","year":2013}"#]).await, format!("{lga}\n"));
    assert_eq!(cli.count().await, "2");
    let csv = cli.ok(&["scan", "demo.flights", "--format", "csv", "--columns", "tail,origin", "--null", "NA"]).await;
    assert_eq!(sorted_lines(&csv), ["\"a \"\"b\"\"\",JFK", "NA,JFK", "NA,LGA", "tail,origin"]);

    cli.ok(&["delete", "demo.flights", day]).await;
    assert_eq!(cli.ok(&["get", "demo.flights", day]).await, "");
    let deleted = cli.ok(&["delete", "demo.flights", r#"{"origin":"JFK","year":2013}"#, "--json"]).await;
    assert!(json(&deleted)["timestamp_us"].is_i64());
    assert_eq!(json(&cli.ok(&["scan", "demo.flights", "--count", "--json"]).await)["rows"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_exported_can_be_imported_and_is_the_same() {
    let cli = Cli::start(always).await;
    let mut content = "flight,origin,tail,day,delay,year\n".to_owned();
    for at in 0..1_000 {
        let tail = ["NA", "\"NA\"", "\"a,b\"", "é"][at % 4];
        content += &format!("{at},JFK{},{tail},2013-01-{:02},{},2013\n", at % 3, at % 28 + 1, at as f64 / 2.0 + 0.25);
    }
    let file = cli.file("in.csv", &content);
    let imported = cli.ok(&["import", "demo.flights", file.to_str().unwrap(), "--null", "NA", "--json"]).await;
    let summary = json(&imported);
    assert_eq!(summary["rows"], 1_000);
    assert!(summary["requests"].as_u64().unwrap() < 100, "rows of one partition share requests: {summary}");
    assert!(summary["peak_memory_bytes"].as_u64().unwrap() > 0);
    assert_eq!(cli.count().await, "1000");

    for (name, format) in [("out.csv.gz", "csv"), ("out.jsonl", "jsonl")] {
        let out = cli.path(name);
        let out = out.to_str().unwrap();
        let summary = cli.ok(&["export", "demo.flights", out, "--format", format, "--null", "NA"]).await;
        assert!(summary.starts_with("1,000 rows, ") && summary.contains("peak memory"), "{summary}");
        assert!(!Path::new(&format!("{out}.part")).exists());
        let again = Cli::start(always).await;
        again.ok(&["import", "demo.flights", out, "--null", "NA"]).await;
        let columns = "flight,origin,tail,day,delay,year";
        let printed = again.ok(&["export", "demo.flights", "--columns", columns, "--null", "NA"]).await;
        assert_eq!(sorted_lines(&printed), sorted_lines(&content));
    }
}

/// Every fifth operation is lost on its way, some are lost on their way back: the client and the import send them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_import_outlives_failures_and_of_two_lines_the_later_wins() {
    let cli = Cli::start(|nth| match nth {
        nth if nth % 41 == 17 => Fate::Lost,
        nth if nth % 5 == 3 => Fate::Unavailable,
        _ => Fate::Done,
    })
    .await;
    let mut content = "origin,year,day,flight,delay\n".to_owned();
    for round in 0..3 {
        for at in 0..1_000 {
            content += &format!("A{},2013,2013-01-01,{at},{round}.0\n", at % 50);
        }
    }
    let file = cli.file("in.csv", &content);
    let out = cli.ok(&["import", "demo.flights", file.to_str().unwrap(), "--in-flight", "16", "--json"]).await;
    let summary = json(&out);
    assert_eq!(summary["rows"], 3_000);
    assert!(summary["retries"].as_u64().unwrap() > 0, "{summary}");
    assert_eq!(cli.count().await, "1000");
    let delays = cli.ok(&["scan", "demo.flights", "--columns", "delay"]).await;
    assert!(delays.lines().all(|line| line == r#"{"delay":2.0}"#), "an earlier line has won");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_bad_line_stops_an_import_which_then_goes_on() {
    let cli = Cli::start(always).await;
    let row = |at: usize, tail: &str| format!("JFK,2013,2013-01-01,{at},{tail}\n");
    let mut content = "origin,year,day,flight,tail\n".to_owned();
    (0..500).for_each(|at| content += &row(at, "x"));
    content += "JFK,2013,2013-01-01,many,x\n";
    (500..600).for_each(|at| content += &row(at, "x"));
    content += &row(600, "refuse me");
    (601..700).for_each(|at| content += &row(at, "x"));
    let file = cli.file("in.csv", &content);
    let import = ["import", "demo.flights", file.to_str().unwrap()];

    let (code, error) = cli.fails(&import).await;
    assert_eq!(code, 1);
    let expected = "error: line 502: column flight: \"many\" is no bigint; it is written in decimal digits\n\
                    500 rows were written; go on with --skip-lines 501 once the line is right, \
                    or leave it out with --skip-lines 502\n";
    assert_eq!(error, expected);
    assert_eq!(cli.count().await, "500");

    // The cluster refuses the row of line 603, and only that.
    let (code, error) = cli.fails(&[&import[..], &["--skip-lines", "502"]].concat()).await;
    assert_eq!(code, 1);
    assert!(error.starts_with("error: line 603: tail: is refused"), "{error}");
    assert!(error.contains("--skip-lines 602 once") && error.contains("--skip-lines 603"), "{error}");
    cli.ok(&[&import[..], &["--skip-lines", "603"]].concat()).await;
    assert_eq!(cli.count().await, "699");

    let reject = cli.path("bad.csv");
    let forgiven = ["--max-errors", "1", "--reject", reject.to_str().unwrap()];
    let (_, error) = cli.fails(&[&import[..], &forgiven].concat()).await;
    assert!(error.contains("line 502 left out: column flight"), "{error}");
    assert_eq!(std::fs::read_to_string(&reject).unwrap(), "JFK,2013,2013-01-01,many,x\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_schema_is_shown_as_statements_that_make_it() {
    let cli = Cli::start(always).await;
    let shown = cli.ok(&["schema", "show"]).await;
    let other = Cli { memory: Memory::start(always).await, directory: tempfile::tempdir().unwrap() };
    let file = other.file("shown.cql", &shown);
    other.ok(&["schema", "apply", file.to_str().unwrap()]).await;
    assert_eq!(other.ok(&["schema", "show", "demo.flights"]).await, shown);
    let columns = json(&cli.ok(&["schema", "show", "--json"]).await)["keyspaces"][0]["tables"][0]["columns"].clone();
    assert_eq!(columns[3]["descending"], true);

    let (code, error) = other.fails(&["schema", "apply", file.to_str().unwrap()]).await;
    assert_eq!(code, 1);
    assert!(error.starts_with("error: statement 1 (CREATE KEYSPACE demo): demo exists already"), "{error}");
    let bad = other.file("bad.cql", "CREATE KEYSPACE other;\nCREATE TABLE other.t (a int)");
    let (_, error) = other.fails(&["schema", "apply", bad.to_str().unwrap()]).await;
    assert!(error.contains("bad.cql: line 2") && error.ends_with("nothing was done\n"), "{error}");
    let (_, error) = cli.fails(&["schema", "show", "demo.none"]).await;
    assert_eq!(error, "error: there is no table demo.none; see `trefoil schema show`\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn errors_name_the_culprit() {
    let cli = Cli::start(always).await;
    let missing = cli.path("missing.csv");
    let missing = missing.to_str().unwrap();
    let text = cli.file("rows.txt", "");
    let text = text.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["get", "demo.none", r#"{"a":1}"#], 1, "there is no such table"),
        (&["get", "demo.flights", r#"{"origin":"JFK"}"#], 1, "column year: it is part of the key"),
        (&["put", "demo.flights", r#"{"origin":7}"#], 1, "column origin: 7 is no text"),
        (&["scan", "demo.flights", "--columns", "orign"], 1, "column orign: there is no such column in flights"),
        (&["scan", "demo.flights", "--format", "csv", "--null", "\""], 2, "--null takes no quotes"),
        (&["import", "demo.flights", missing], 1, "missing.csv: No such file"),
        (&["import", "demo.flights", text], 2, "add --format csv or --format jsonl"),
        (&["export", "demo.flights", "/nowhere/out.csv"], 1, "cannot create /nowhere/out.csv.part"),
        (&["flush", "demo.flights"], 1, "1 of 1 nodes failed"),
    ];
    for (arguments, expected, text) in cases {
        let (code, error) = cli.fails(arguments).await;
        assert_eq!(code, expected, "{arguments:?}: {error}");
        assert!(error.contains(text), "{arguments:?}: {error}");
    }
    let (_, error) = cli.fails(&["get", "demo.none", "{}", "--json"]).await;
    assert_eq!(json(&error)["exit_code"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_cluster_is_shown_to_people_and_programs() {
    let cli = Cli::start(always).await;
    let status = cli.ok(&["status"]).await;
    assert!(status.starts_with("cluster memory (01010101-0101-"), "{status}");
    assert!(status.contains("2.00 KiB") && status.contains("no answer"), "{status}");
    let trouble =
        "node 1: /data/x.sst of demo.flights is quarantined, vnodes 0-1, 3 cannot be read there: it is missing";
    assert!(status.contains(trouble), "{status}");
    let status = json(&cli.ok(&["status", "--json"]).await);
    assert_eq!(status["nodes"][0]["report"]["quarantined"][0]["vnodes"], serde_json::json!([[0, 1], [3, 3]]));
    assert_eq!(
        (&status["nodes"][0]["report"]["sstable_bytes"], &status["nodes"][1]["report"]),
        (&2_048.into(), &Json::Null)
    );
    let ring = cli.ok(&["ring"]).await;
    assert!(ring.contains("100.0 %") && ring.contains("one copy in every zone"), "{ring}");
    assert_eq!(json(&cli.ok(&["ring", "--json"]).await)["zones"][0]["owners"].as_array().unwrap().len(), 4);
    assert_eq!(cli.ok(&["flush"]).await, "node 1: flushed\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn snapshots_are_made_shown_and_removed_node_by_node() {
    let cli = Cli::start(always).await;
    let made = cli.ok(&["snapshot", "create", "a/b", "--table", "demo.flights"]).await;
    let line = "3 files, 2.00 KiB, in snapshots/07070707-0707-0707-0707-070707070707\n";
    assert_eq!(made, format!("node 1: {line}node 2: {line}"));
    let list = cli.ok(&["snapshot", "list"]).await;
    assert!(list.contains("a/b") && list.contains("2026-01-01T00:00:00Z") && list.contains("demo.flights"), "{list}");
    assert!(list.contains("node 2: 0 B held by snapshots alone"), "{list}");
    let list = cli.ok(&["snapshot", "list", "--json"]).await;
    let first = json(list.lines().next().unwrap());
    assert_eq!((&first["snapshots"][0]["name"], &first["error"]), (&"a/b".into(), &Json::Null));
    assert_eq!(first["snapshots"][0]["tables"][0]["table"], "flights");
    assert_eq!(cli.ok(&["snapshot", "remove", "a/b"]).await, "node 1: removed\nnode 2: removed\n");
    let (code, error) = cli.fails(&["snapshot", "remove", "a/b"]).await;
    assert_eq!((code, error.contains("no node has a snapshot \"a/b\"")), (1, true), "{error}");
    // One of them could not: the others have done it, and the command fails.
    let (code, error) = cli.fails(&["snapshot", "create", "half", "--keyspace", "demo"]).await;
    assert_eq!((code, error.contains("1 of 2 nodes failed")), (1, true), "{error}");
    assert_eq!(cli.fails(&["snapshot", "create", "x", "--keyspace", "a", "--table", "a.b"]).await.0, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn compaction_is_shown_node_by_node_and_begun() {
    let cli = Cli::start(always).await;
    let output = cli.run(&["compaction"]).await;
    let ((shown, error), code) = (texts(&output), output.status.code());
    let begin = "node 1: 1 running, backlog 4 files, 3.00 KiB\n  demo.flights: 4 files, 4.00 KiB, 25 % read\n\
                 node 2: it is not seen alive\n";
    assert!(shown.starts_with(begin) && shown.contains("2.5") && shown.contains("1.2"), "{shown}");
    assert_eq!((code, error.contains("1 of 2 nodes failed")), (Some(1), true), "{error}");
    let (lines, _) = texts(&cli.run(&["compaction", "--json"]).await);
    let first = json(lines.lines().next().unwrap());
    assert_eq!((&first["running"][0]["bytes_read"], &first["error"]), (&1_024.into(), &Json::Null));
    assert_eq!((&first["tables"][0]["read_amplification"], &first["backlog_files"]), (&3.into(), &4.into()));
    assert_eq!(cli.ok(&["compaction", "run", "demo.flights"]).await, "node 1: begun\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn replicas_are_compared_and_what_differs_is_named() {
    let cli = Cli::start(always).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let tables =
        ["kv", "flights", "same"].map(|name| format!("CREATE TABLE twin.{name} (key int PRIMARY KEY, value text);"));
    std::fs::write(file.path(), format!("CREATE KEYSPACE twin;{}", tables.concat())).unwrap();
    cli.ok(&["schema", "apply", file.path().to_str().unwrap()]).await;
    let same = cli.ok(&["verify", "twin.same"]).await;
    assert_eq!(same, "twin.same: 7 partitions compared, all replicas hold the same\n");
    let output = cli.run(&["verify", "twin.kv"]).await;
    let ((shown, error), code) = (texts(&output), output.status.code());
    let lines =
        "{\"key\":5}  node 3: nothing; node 1, 2: 2 rows (01010101)\ntwin.kv: 7 partitions compared, 2 differ\n";
    assert_eq!((shown.as_str(), code), (lines, Some(1)), "{error}");
    assert!(error.contains("2 partitions differ between replicas"), "{error}");
    let (lines, _) = texts(&cli.run(&["verify", "twin.kv", "--json"]).await);
    let (first, last) = lines.trim_end().split_once('\n').unwrap();
    assert_eq!((&json(first)["key"]["key"], &json(first)["held"][2]["digest"]), (&5.into(), &Json::Null));
    assert_eq!((&json(last)["equal"], &json(last)["differing_partitions"]), (&false.into(), &2.into()));
    // What was not compared is not equal.
    let output = cli.run(&["verify", "twin.flights"]).await;
    let ((shown, error), code) = (texts(&output), output.status.code());
    assert!(shown.contains("no difference was found; 1 of 2 vnodes could not be compared"), "{shown}");
    assert_eq!((code, error.contains("1 of 2 vnodes could not be compared")), (Some(1), true), "{error}");
    assert!(error.contains("node 3: it is not seen alive"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn elements_are_named_and_written_one_by_one() {
    let cli = Cli::start(always).await;
    let schema = cli.file(
        "users.cql",
        "CREATE TYPE demo.address (street text, number int);
         CREATE TABLE demo.users (id int PRIMARY KEY, phones map<text, bigint>, tags set<int>, log list<text>,
                                  home address, fixed frozen<set<int>>);",
    );
    cli.ok(&["schema", "apply", schema.to_str().unwrap()]).await;
    let key = r#"{"id":1}"#;
    let text = |text: &str| value::from_model(Value::Text(text.to_owned()));
    let int = |number: i64| value::from_model(Value::Integer(number));
    let ints = |numbers: &[i64]| value::from_model(Value::Set(numbers.iter().copied().map(Value::Integer).collect()));
    let element = |path, value| CellOp::SetElement(Element { path: Some(path), value: Some(value) });
    let id = "123e4567-e89b-12d3-a456-426614174000";
    let bytes = Value::Uuid(uuid::Uuid::parse_str(id).unwrap());
    let log = |texts: &[&str]| {
        value::from_model(Value::List(texts.iter().map(|text| Value::Text((*text).to_owned())).collect()))
    };
    let cases: &[(&[&str], &str, CellOp)] = &[
        (&["put", "phones", "home", "5551234"], "phones", element(text("home"), int(5_551_234))),
        (&["put", "phones", "home", "null"], "phones", element(text("home"), value::null())),
        (&["put", "home", "number", "7", "--ttl", "9"], "home", element(text("number"), int(7))),
        (&["put", "log", id, r#""a""#], "log", element(value::from_model(bytes.clone()), text("a"))),
        (&["delete", "tags", "-5"], "tags", CellOp::DeleteElement(int(-5))),
        (&["append", "tags", "[2,1]"], "tags", CellOp::Append(ints(&[2, 1]))),
        (&["append", "log", r#"["a","b"]"#], "log", CellOp::Append(log(&["a", "b"]))),
        (&["prepend", "log", r#"["a"]"#], "log", CellOp::Prepend(log(&["a"]))),
        (&["remove", "tags", "[3]"], "tags", CellOp::Remove(ints(&[3]))),
    ];
    for (words, column, op) in cases {
        let arguments = [&["element", words[0], "demo.users", key], &words[1..]].concat();
        assert_eq!(cli.ok(&arguments).await, "");
        let done = cli.memory.take_elements();
        assert_eq!(done, [CellWrite { column: (*column).to_owned(), op: Some(op.clone()) }], "{words:?}");
    }
    for (words, reason) in [
        (&["put", "fixed", "1", "1"][..], "no elements that are written one by one"),
        (&["put", "tags", "1", "1"], "an element of a set has no value"),
        (&["put", "home", "city", "1"], "there is no field city"),
        (&["put", "log", "0", r#""a""#], "no such element"),
        (&["append", "tags", r#"["a"]"#], "element 1"),
        (&["get", "nothing"], "there is no such column"),
    ] {
        let (code, error) = cli.fails(&[&["element", words[0], "demo.users", key], &words[1..]].concat()).await;
        assert_eq!((code, error.contains(reason)), (1, true), "{words:?}: {error}");
    }
    assert_eq!(cli.ok(&["element", "get", "demo.users", key, "tags"]).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_measurement_counts_what_was_done() {
    let cli = Cli::start(always).await;
    let small = ["--keys", "50", "--duration", "300ms", "--json"];
    for how in [["mixed", "--in-flight", "4"], ["read", "--rate", "500"], ["write", "--durability", "periodic"]] {
        let out = cli.ok(&[&["bench"], &how[..], &small].concat()).await;
        let measured = json(&out);
        let number = |name: &str| measured[name].as_f64().unwrap_or_else(|| panic!("{name}: {measured}"));
        assert!(number("ops") > 0.0 && number("errors") == 0.0 && number("retries") == 0.0, "{measured}");
        assert!(number("p50_us") > 0.0 && number("p50_us") <= number("p99_us"), "{measured}");
        assert!(number("p99_us") <= number("p999_us") && number("cpu_us_per_op") >= 0.0, "{measured}");
        if how[1] == "--rate" {
            assert_eq!(number("ops"), 150.0, "500 a second for 300 ms");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hints_are_shown_paused_and_dropped() {
    let cli = Cli::start(always).await;
    let output = cli.run(&["hints"]).await;
    let ((shown, error), code) = (texts(&output), output.status.code());
    assert!(shown.starts_with("node 2: it is not seen alive\n"), "{shown}");
    assert!(["4.00 KiB", "70 s", "waiting for the node"].iter().all(|text| shown.contains(text)), "{shown}");
    assert_eq!((code, error.contains("1 of 2 nodes failed")), (Some(1), true), "{error}");
    let paused = cli.ok(&["hints", "pause", "--node", "1"]).await;
    assert!(paused.contains("paused"), "{paused}");
    let told = json(&cli.ok(&["hints", "--node", "1", "--target", "3", "--json"]).await);
    assert_eq!(told["targets"][0]["refused_age"], 2, "{told}");
    let dropped = cli.ok(&["hints", "drop", "--node", "1", "--target", "3"]).await;
    let expected = "node 1: dropped 4.00 KiB of hints for node 3, which goes on missing what was in them until reads or a repair \
                    find it\n";
    assert_eq!(dropped, expected);
}
