//! Words to schema changes: what is understood, what is refused and with which words.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::model::arbitrary::{Users, any_type};
use crate::model::{
    AlterTable, AlterType, Column, ColumnDefinition, ColumnId, ColumnKind, CompactionOptions, CreateKeyspace,
    CreateTable, CreateType, DdlStatement, DropKeyspace, DropTable, DropType, Durability, Field, Keyspace, KeyspaceId,
    OptionChanges, Order, Scaling, Table, TableId, TableOptions, TruncateTable, Type, UserType,
};

fn column(name: &str, ty: Type, kind: ColumnKind) -> ColumnDefinition {
    ColumnDefinition { name: name.to_owned(), ty, kind }
}

fn one_table(text: &str) -> CreateTable {
    match parse(text).unwrap().as_slice() {
        [DdlStatement::CreateTable(table)] => table.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn keyspaces_are_made_and_dropped() {
    let text = "
        create keyspace if not exists Shop with replication = {'local': 3, 'eu-west': 2,};
        CREATE KEYSPACE \"Shop\";;
        DROP KEYSPACE IF EXISTS shop; DROP KEYSPACE shop";
    let made = |name: &str, replication: &[(&str, u32)], if_not_exists| {
        let replication = replication.iter().map(|(region, copies)| ((*region).to_owned(), *copies)).collect();
        DdlStatement::CreateKeyspace(CreateKeyspace { name: name.to_owned(), replication, if_not_exists })
    };
    let dropped = |if_exists| DdlStatement::DropKeyspace(DropKeyspace { name: "shop".to_owned(), if_exists });
    let expected =
        [made("shop", &[("eu-west", 2), ("local", 3)], true), made("Shop", &[], false), dropped(true), dropped(false)];
    assert_eq!(parse(text).unwrap(), expected);
}

#[test]
fn a_table_with_everything() {
    let table = one_table(
        "-- what was ordered
        CREATE TABLE IF NOT EXISTS shop.orders (
            region text, // of the customer
            customer int,
            note text STATIC,
            \"Day\" date,
            number varchar,
            /* in cents,
               never negative */
            total bigint,
            PRIMARY KEY ((region, customer), \"Day\", number)
        ) WITH CLUSTERING ORDER BY (\"Day\" DESC, number ASC)
            AND comment = 'what''s ordered -- not a comment'
            AND default_time_to_live = 86400 AND lateness = 7200 AND durability = 'periodic'
            AND compaction = {'scaling': 'T4, L10', 'window_s': 3600,};",
    );
    assert_eq!((table.keyspace.as_str(), table.name.as_str(), table.if_not_exists), ("shop", "orders", true));
    let expected = [
        column("region", Type::Text, ColumnKind::PartitionKey),
        column("customer", Type::Int, ColumnKind::PartitionKey),
        column("Day", Type::Date, ColumnKind::Clustering(Order::Descending)),
        column("number", Type::Text, ColumnKind::Clustering(Order::Ascending)),
        column("note", Type::Text, ColumnKind::Static),
        column("total", Type::BigInt, ColumnKind::Regular),
    ];
    assert_eq!(table.columns, expected);
    let options = TableOptions {
        default_ttl_s: 86_400,
        lateness_s: 7_200,
        durability: Durability::Periodic,
        comment: "what's ordered -- not a comment".to_owned(),
        compaction: CompactionOptions::new(
            vec![Scaling::Tiered(4), Scaling::Leveled(10)],
            256,
            std::num::NonZeroU32::new(3_600),
        )
        .unwrap(),
    };
    assert_eq!(table.options, options);
}

#[test]
fn the_keyspace_in_use_and_an_inline_key() {
    let statements =
        parse("USE Shop; create table T (K int primary key, v blob); drop table if exists other.t").unwrap();
    let table = CreateTable {
        keyspace: "shop".to_owned(),
        name: "t".to_owned(),
        columns: vec![column("k", Type::Int, ColumnKind::PartitionKey), column("v", Type::Blob, ColumnKind::Regular)],
        options: TableOptions::default(),
        if_not_exists: false,
    };
    let dropped = DropTable { keyspace: "other".to_owned(), name: "t".to_owned(), if_exists: true };
    assert_eq!(statements, [DdlStatement::CreateTable(table), DdlStatement::DropTable(dropped)]);
}

#[test]
fn tables_are_altered_and_truncated() {
    let statements = parse(
        "USE k; ALTER TABLE IF EXISTS t ADD (a int, \"B\" text static); ALTER TABLE t ADD c blob;
        ALTER TABLE o.t DROP a, \"B\"; ALTER TABLE t RENAME a TO b AND b TO a;
        ALTER TABLE t WITH comment = 'x' AND default_time_to_live = 5 AND durability = 'periodic'
            AND compaction = {'scaling': 'T4'};
        TRUNCATE TABLE t; TRUNCATE o.t",
    );
    let of = |keyspace: &str| AlterTable { keyspace: keyspace.into(), name: "t".into(), ..AlterTable::default() };
    let a = column("a", Type::Int, ColumnKind::Regular);
    let b = column("B", Type::Text, ColumnKind::Static);
    let c = column("c", Type::Blob, ColumnKind::Regular);
    let rename = vec![("a".to_owned(), "b".to_owned()), ("b".to_owned(), "a".to_owned())];
    let (comment, durability) = (Some("x".to_owned()), Some(Durability::Periodic));
    let compaction = Some(CompactionOptions::default());
    let set = OptionChanges { default_ttl_s: Some(5), durability, comment, compaction };
    let truncate = |keyspace: &str| TruncateTable { keyspace: keyspace.into(), name: "t".into() };
    let expected = [
        DdlStatement::AlterTable(AlterTable { add: vec![a, b], if_exists: true, ..of("k") }),
        DdlStatement::AlterTable(AlterTable { add: vec![c], ..of("k") }),
        DdlStatement::AlterTable(AlterTable { drop: vec!["a".to_owned(), "B".to_owned()], ..of("o") }),
        DdlStatement::AlterTable(AlterTable { rename, ..of("k") }),
        DdlStatement::AlterTable(AlterTable { set, ..of("k") }),
        DdlStatement::TruncateTable(truncate("k")),
        DdlStatement::TruncateTable(truncate("o")),
    ];
    assert_eq!(statements.unwrap(), expected);
}

#[test]
fn types_are_made_changed_dropped_and_printed_before_what_is_made_of_them() {
    let text = "CREATE TYPE IF NOT EXISTS k.address (street text, \"No\" frozen<list<int>>);
        ALTER TYPE k.address ADD zip ascii; ALTER TYPE k.address RENAME street TO road AND zip TO code;
        DROP TYPE IF EXISTS k.address; USE k; DROP TYPE address";
    let field = |name: &str, ty: Type| Field { name: name.into(), ty };
    let numbers = Type::List { element: Arc::new(Type::Int), frozen: true };
    let fields = vec![field("street", Type::Text), field("No", numbers)];
    let definition = UserType { fields, ..UserType::named("k", "address") };
    let alter = || AlterType { keyspace: "k".into(), name: "address".into(), ..AlterType::default() };
    let drop = |if_exists| DropType { keyspace: "k".into(), name: "address".into(), if_exists };
    let pair = |old: &str, new: &str| (old.to_owned(), new.to_owned());
    let expected = [
        DdlStatement::CreateType(CreateType { definition: definition.clone(), if_not_exists: true }),
        DdlStatement::AlterType(AlterType { add: vec![field("zip", Type::Ascii)], ..alter() }),
        DdlStatement::AlterType(AlterType { rename: vec![pair("street", "road"), pair("zip", "code")], ..alter() }),
        DdlStatement::DropType(drop(true)),
        DdlStatement::DropType(drop(false)),
    ];
    assert_eq!(parse(text).unwrap(), expected);
    let of_address = Type::User { definition: Arc::new(definition.clone()), frozen: true };
    let person = UserType { fields: vec![field("home", of_address)], ..UserType::named("k", "a_person") };
    let keyspace = Keyspace { id: KeyspaceId(1), name: "k".to_owned(), replication: BTreeMap::new() };
    let printed = "CREATE KEYSPACE k;

CREATE TYPE k.address (
    street text,
    \"No\" frozen<list<int>>
);

CREATE TYPE k.a_person (
    home frozen<address>
);
";
    assert_eq!(describe(&keyspace, [&person, &definition], []), printed);

    // A table by itself says what it is made of first.
    let of_person = Type::User { definition: Arc::new(person), frozen: true };
    let made = one_table("CREATE TABLE k.t (a int PRIMARY KEY, v text)");
    let mut table = table(made);
    table.columns[1].ty = Type::List { element: Arc::new(of_person), frozen: false };
    let alone = describe_with_types("k", &table);
    let types = printed.split_once("\n\n").unwrap().1;
    assert!(alone.starts_with(types) && alone.contains("v list<frozen<a_person>>"), "{alone}");
    assert_eq!(parse(&alone).unwrap().len(), 3);
}

#[test]
fn nothing_but_blanks_is_no_statement() {
    assert_eq!(parse("\u{feff} \r\n -- nothing\n ; /* ** */ //").unwrap(), []);
}

/// Text, where the error is, and words that it must contain.
const REFUSED: [(&str, &str, &str); 67] = [
    ("INSERT INTO k.t", "line 1, column 1", "found INSERT, expected CREATE, ALTER, DROP, TRUNCATE or USE"),
    ("ALTER KEYSPACE k", "line 1, column 7", "found KEYSPACE, expected TABLE or TYPE"),
    ("CREATE TYPE k.t", "line 1, column 16", "expected '('"),
    ("CREATE TYPE k.t ()", "line 1, column 18", "expected the name of a field"),
    ("ALTER TYPE k.t DROP f", "line 1, column 16", "fields are never dropped"),
    ("ALTER TABLE k.t v int", "line 1, column 17", "found v, expected ADD, DROP, RENAME or WITH"),
    ("ALTER TABLE k.t ADD v", "line 1, column 22", "expected a type"),
    ("ALTER TABLE k.t ADD (v int", "line 1, column 27", "expected ',' or ')'"),
    ("ALTER TABLE k.t ADD v int DROP w", "line 1, column 27", "found DROP, expected ';'"),
    ("ALTER TABLE k.t DROP", "line 1, column 21", "expected the name of a column"),
    ("ALTER TABLE k.t RENAME a b", "line 1, column 26", "found b, expected TO"),
    ("ALTER TABLE k.t WITH lateness = 1", "line 1, column 22", "fixed when the table is made"),
    ("ALTER TABLE k.t WITH CLUSTERING ORDER BY (a)", "line 1, column 22", "fixed when the table is made"),
    ("ALTER TABLE k.t WITH comment = 'a' AND comment = 'b'", "line 1, column 40", "given twice"),
    ("TRUNCATE TABLE", "line 1, column 15", "expected the name of a table"),
    ("TRUNCATE t", "line 1, column 10", "expected KEYSPACE.t, or USE"),
    ("CREATE INDEX ON k.t (v)", "line 1, column 8", "found INDEX, expected KEYSPACE, TABLE or TYPE"),
    ("DROP TYPE t", "line 1, column 11", "expected KEYSPACE.t, or USE"),
    ("CREATE KEYSPACE k CREATE KEYSPACE l", "line 1, column 19", "found CREATE, expected ';'"),
    ("CREATE KEYSPACE", "line 1, column 16", "found the end of the text, expected the name of a keyspace"),
    ("CREATE KEYSPACE 'k'", "line 1, column 17", "found the text 'k'"),
    ("CREATE KEYSPACE \"\"", "line 1, column 17", "expected the name of a keyspace"),
    ("CREATE KEYSPACE 2k", "line 1, column 17", "names that begin with a digit need quotes"),
    ("CREATE KEYSPACE Select", "line 1, column 17", "quote it"),
    ("CREATE KEYSPACE IF EXISTS k", "line 1, column 20", "found EXISTS, expected NOT"),
    ("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy'}", "line 1, column 39", "{'local': 3}"),
    ("CREATE KEYSPACE k WITH replication = {'replication_factor': 3}", "line 1, column 39", "{'local': 3}"),
    ("CREATE KEYSPACE k WITH replication = {'local': 0}", "line 1, column 48", "expected 1 or more"),
    (
        "CREATE KEYSPACE k WITH replication = {'local': -1}",
        "line 1, column 48",
        "found -1, expected the number of copies",
    ),
    ("CREATE KEYSPACE k WITH replication = {'local': 99999999999}", "line 1, column 48", "0 to 4294967295"),
    ("CREATE KEYSPACE k WITH replication = {'a': 1, 'a': 1}", "line 1, column 47", "given twice"),
    ("CREATE KEYSPACE k WITH replication = {'a' 1}", "line 1, column 43", "found 1, expected ':'"),
    ("CREATE KEYSPACE k WITH replication = {'a': 1", "line 1, column 45", "expected ',' or '}'"),
    ("CREATE KEYSPACE k WITH replication = {} AND replication = {}", "line 1, column 45", "given twice"),
    ("CREATE KEYSPACE k WITH durable_writes = true", "line 1, column 24", "durability is an option of tables"),
    ("CREATE KEYSPACE k; /* no end", "line 1, column 20", "no closing */"),
    ("CREATE KEYSPACE \"k", "line 1, column 17", "no closing \""),
    ("CREATE TABLE k.t (a int PRIMARY KEY) WITH comment = 'no end", "line 1, column 53", "no closing '"),
    ("CREATE TABLE t (a int PRIMARY KEY)", "line 1, column 14", "expected KEYSPACE.t, or USE"),
    ("CREATE TABLE k.t (a int)", "line 1, column 25", "no PRIMARY KEY"),
    ("CREATE TABLE k.t ()", "line 1, column 19", "found ')', expected the name of a column or PRIMARY KEY"),
    ("CREATE TABLE k.t (a int PRIMARY KEY,\n  a text)", "line 2, column 3", "the column a is declared twice"),
    ("CREATE TABLE k.t (a int PRIMARY KEY, b int PRIMARY KEY)", "line 1, column 44", "given twice"),
    ("CREATE TABLE k.t (a int PRIMARY KEY, PRIMARY KEY (a))", "line 1, column 38", "given twice"),
    ("CREATE TABLE k.t (a int, PRIMARY KEY (b))", "line 1, column 39", "the key column b is not declared"),
    ("CREATE TABLE k.t (a int, PRIMARY KEY (a, a))", "line 1, column 42", "twice"),
    ("CREATE TABLE k.t (a int, b int STATIC, PRIMARY KEY (a, b))", "line 1, column 56", "cannot be STATIC"),
    ("CREATE TABLE k.t (a int, PRIMARY KEY ())", "line 1, column 39", "expected the name of a column"),
    ("CREATE TABLE k.t (a int, PRIMARY KEY (a)", "line 1, column 41", "expected ',' or ')'"),
    ("CREATE TABLE k.t (a int PRIMARY KEY, c list<counter>)", "line 1, column 40", "counters cannot lie inside"),
    ("CREATE TABLE k.t (a int PRIMARY KEY, l list<list<int>>)", "line 1, column 40", "frozen<list<int>>"),
    ("CREATE TABLE k.t (a set<duration>)", "line 1, column 21", "durations have no order"),
    ("CREATE TABLE k.t (a list)", "line 1, column 25", "found ')', expected '<'"),
    ("CREATE TABLE k.t (a map<int>)", "line 1, column 28", "found '>', expected ','"),
    ("CREATE TABLE k.t (a vector<float, many>)", "line 1, column 35", "the number of dimensions"),
    ("CREATE TABLE k.t (a vector<float, 99999>)", "line 1, column 35", "99999 dimensions is too large"),
    ("CREATE TABLE k.t (a vector<float, 0>)", "line 1, column 21", "1 to 8192 dimensions"),
    ("CREATE TABLE k.t (a int PRIMARY KEY, u other.address)", "line 1, column 40", "one of the keyspace k"),
    ("CREATE TABLE k.t (a 'org.x.Y' PRIMARY KEY)", "line 1, column 21", "or the name of a user-defined type"),
    ("CREATE TABLE k.t (a select)", "line 1, column 21", "or the name of a user-defined type"),
    (
        "CREATE TABLE k.t (a int PRIMARY KEY) WITH gc_grace_seconds = 1",
        "line 1, column 43",
        "found the option gc_grace_seconds",
    ),
    ("CREATE TABLE k.t (a int PRIMARY KEY) WITH comment = 1", "line 1, column 53", "found 1, expected a text"),
    ("CREATE TABLE k.t (a int PRIMARY KEY) WITH lateness = 1.5", "line 1, column 55", "found '.', expected ';'"),
    ("CREATE TABLE k.t (a int PRIMARY KEY) WITH lateness = 1 AND lateness = 1", "line 1, column 60", "given twice"),
    (
        "CREATE TABLE k.t (a int PRIMARY KEY) WITH durability = 'never'",
        "line 1, column 56",
        "expected 'commit' or 'periodic'",
    ),
    (
        "CREATE TABLE k.t (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (a)",
        "line 1, column 79",
        "in the order of the key: (b)",
    ),
    (
        "CREATE TABLE k.t (a int, b int, c int, PRIMARY KEY (a, b, c)) WITH CLUSTERING ORDER BY (b)",
        "line 1, column 89",
        "ends too early, expected (b, c)",
    ),
];

#[test]
fn errors_say_where_what_was_found_and_what_was_expected() {
    for (text, place, words) in REFUSED {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{place}: ")), "{text}\n{error}");
        assert!(error.contains(words), "{text}\n{error}");
    }
}

#[test]
fn frozen_reaches_everything_inside() {
    let table = one_table("CREATE TABLE k.t (a frozen<list<map<int, address>>> PRIMARY KEY, v tuple<list<int>>)");
    assert_eq!(table.columns[0].ty.to_string(), "frozen<list<frozen<map<int, frozen<address>>>>>");
    assert_eq!(table.columns[1].ty.to_string(), "tuple<frozen<list<int>>>");
}

#[test]
fn columns_are_counted_in_characters_and_long_texts_cut() {
    let error = parse(&format!("CREATE\nKEYSPACE \"é\" '{}'", "é".repeat(1_000))).unwrap_err().to_string();
    assert!(error.starts_with("line 2, column 14: found the text 'éé"), "{error}");
    assert!(error.len() < 300, "{error}");
}

#[test]
fn a_schema_is_printed_readably() {
    let keyspace =
        Keyspace { id: KeyspaceId(1), name: "shop".to_owned(), replication: BTreeMap::from([("local".to_owned(), 3)]) };
    let text = "CREATE KEYSPACE shop WITH replication = {'local': 3};

CREATE TABLE shop.orders (
    customer int,
    \"Day\" date,
    note text STATIC,
    total bigint,
    PRIMARY KEY ((customer), \"Day\")
) WITH CLUSTERING ORDER BY (\"Day\" DESC)
    AND comment = 'what''s ordered'
    AND lateness = 3600
    AND durability = 'commit';
";
    let made = one_table(text.split_once("\n\n").unwrap().1);
    assert_eq!(describe(&keyspace, [], &[table(made)]), text);
}

/// The table that would be made of `made`.
fn table(made: CreateTable) -> Table {
    let columns = made.columns.into_iter().zip(0..);
    let columns = columns.map(|(column, id)| {
        let ColumnDefinition { name, ty, kind } = column;
        Column { id: ColumnId(id), name, ty, kind }
    });
    let (id, keyspace) = (TableId(uuid::Uuid::nil()), KeyspaceId(1));
    Table { id, keyspace, name: made.name, version: 1, columns: columns.collect(), options: made.options }
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9_]{0,8}",
        "[A-Za-z0-9_]{1,8}",
        "[ -~é]{1,8}",
        Just("select".to_owned()),
        Just("static".to_owned())
    ]
}

fn any_options() -> impl Strategy<Value = TableOptions> {
    let durability = prop_oneof![Just(Durability::Commit), Just(Durability::Periodic)];
    (any::<u32>(), any::<u32>(), durability, "[ -~\né']{0,20}", any_compaction()).prop_map(
        |(default_ttl_s, lateness_s, durability, comment, compaction)| TableOptions {
            default_ttl_s,
            lateness_s,
            durability,
            comment,
            compaction,
        },
    )
}

fn any_compaction() -> impl Strategy<Value = CompactionOptions> {
    let scaling = prop_oneof![
        Just(Scaling::Neutral),
        (3..=64u8).prop_map(Scaling::Tiered),
        (3..=64u8).prop_map(Scaling::Leveled)
    ];
    let scaling = proptest::collection::vec(scaling, 1..4);
    (scaling, 1..=1u32 << 20, any::<u32>()).prop_map(|(scaling, target_size_mib, window_s)| {
        CompactionOptions::new(scaling, target_size_mib, std::num::NonZeroU32::new(window_s)).unwrap()
    })
}

fn any_kind() -> impl Strategy<Value = ColumnKind> {
    use ColumnKind::{Clustering, PartitionKey, Regular, Static};
    let kinds = [PartitionKey, Clustering(Order::Ascending), Clustering(Order::Descending), Static, Regular];
    proptest::sample::select(kinds.to_vec())
}

fn any_columns() -> impl Strategy<Value = Vec<ColumnDefinition>> {
    let others = proptest::collection::btree_map(any_name(), (any_kind(), any_type(Users::Named)), 1..8);
    others.prop_map(|columns| {
        let columns = columns.into_iter().map(|(name, (kind, ty))| ColumnDefinition { name, ty, kind });
        let mut columns: Vec<_> = columns.collect();
        columns[0].kind = ColumnKind::PartitionKey;
        columns.sort_by_key(|column| match column.kind {
            ColumnKind::PartitionKey => 0,
            ColumnKind::Clustering(_) => 1,
            ColumnKind::Static | ColumnKind::Regular => 2,
        });
        columns
    })
}

fn any_table() -> impl Strategy<Value = CreateTable> {
    (any_name(), any_columns(), any_options()).prop_map(|(name, columns, options)| CreateTable {
        keyspace: "ks".to_owned(),
        name,
        columns,
        options,
        if_not_exists: false,
    })
}

proptest! {
    #[test]
    fn what_is_described_reads_back_as_the_same(
        replication in proptest::collection::btree_map("[ -~é]{1,8}", 1..=u32::MAX, 0..3),
        tables in proptest::collection::vec(any_table(), 0..3),
    ) {
        let name = "ks".to_owned();
        let keyspace = Keyspace { id: KeyspaceId(1), name: name.clone(), replication: replication.clone() };
        let described: Vec<Table> = tables.iter().cloned().map(table).collect();
        let text = describe(&keyspace, [], &described);
        let mut expected =
            vec![DdlStatement::CreateKeyspace(CreateKeyspace { name, replication, if_not_exists: false })];
        expected.extend(tables.into_iter().map(DdlStatement::CreateTable));
        prop_assert_eq!(parse(&text).map_err(|error| error.to_string()), Ok(expected), "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused_but_never_panics(text in "\\PC{0,60}", cut in 0..400usize) {
        let _ = parse(&text);
        let whole = "CREATE TABLE k.t (a int, \"b\" int, PRIMARY KEY ((a), b)) WITH comment = 'é' AND lateness = 1;";
        let cut: String = whole.chars().take(cut % whole.len()).collect();
        let _ = parse(&cut);
        let _ = parse(&format!("{cut}{text}"));
    }
}
