//! Whole reads, page by page, against what one replica that was told everything would show.

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::cluster::{Cluster, Fault, whole_table};
use super::replica::{PARTITIONS, Replica, keys};
use crate::coordinator::{
    Assembler, Consistency, Extent, Next, PageLimits, PagingState, ReadAnswer, ResultRow, Resume, Start,
};
use crate::model::naive::{
    TABLE, any_direction, any_mutation, any_slices, deletion, partition_key, row_key, rows, rows_between, static_value,
    value,
};
use crate::model::{
    ColumnId, Direction, Fragment, LiveColumns, Mutation, PageEnd, PagePosition, PartitionHeader, ReadCommand, Row,
    RowPosition, Slice, Target, Token, TokenRange,
};

const KEYS: i32 = 6;
const NOW_S: i64 = 100;

/// What a client asks for, and the sizes that cut it.
#[derive(Debug, Clone)]
struct Request {
    targets: Vec<(Target, Vec<Slice>)>,
    direction: Direction,
    level: Consistency,
    page: PageLimits,
    /// Rows of the whole read.
    limit: Option<u64>,
    /// Bytes after which a replica ends its answer.
    command_bytes: u32,
    /// Commands after which a page is given up before it is full.
    commands_max: u32,
}

impl Request {
    /// Everything, at ALL, in one page.
    fn whole() -> Request {
        Request {
            targets: vec![(Target::Scan(TokenRange::ALL), vec![Slice::all()])],
            direction: Direction::Forward,
            level: Consistency::All,
            page: PageLimits { rows: u32::MAX, bytes: u64::MAX, rows_per_partition: None },
            limit: None,
            command_bytes: u32::MAX,
            commands_max: 1_000,
        }
    }

    fn with_page_rows(rows: u32) -> Request {
        let whole = Request::whole();
        Request { page: PageLimits { rows, ..whole.page }, ..whole }
    }

    /// All rows that the request shows of `union`, without pages.
    fn expected(&self, union: &Replica) -> Vec<ResultRow> {
        let mut shown = Vec::new();
        for (target, slices) in &self.targets {
            for key in keys(target) {
                let fragments = union.partition(&key, &Slice::joined(slices), self.direction);
                let Some(Fragment::Partition(PartitionHeader { static_row, .. })) = fragments.first() else { continue };
                let static_row = static_row.clone().map(std::sync::Arc::new);
                let result = |clustering, row| ResultRow {
                    partition: key.clone(),
                    clustering,
                    static_row: static_row.clone(),
                    row,
                };
                let visible = fragments.iter().filter_map(|fragment| match fragment {
                    Fragment::Row(row_key, row) if row.is_visible_at(NOW_S) => Some((row_key.clone(), row.clone())),
                    _ => None,
                });
                let at_most = self.page.rows_per_partition.map_or(usize::MAX, |rows| rows as usize);
                let before = shown.len();
                shown.extend(visible.take(at_most).map(|(row_key, row)| result(Some(row_key), row)));
                let is_whole = *slices == [Slice::all()];
                if before == shown.len() && is_whole && static_row.as_ref().is_some_and(|row| row.is_visible_at(NOW_S))
                {
                    shown.push(result(None, Row::default()));
                }
            }
        }
        shown.truncate(self.limit.map_or(usize::MAX, |limit| limit as usize));
        shown
    }
}

/// Reads to the end as a server does; every paging state goes through its bytes.
fn pages(cluster: &mut Cluster, request: &Request) -> Vec<Vec<ResultRow>> {
    let mut state = PagingState { target: 0, start: Start::Beginning, rows_left: request.limit };
    let mut pages = Vec::new();
    loop {
        let (page, next) = page(cluster, request, &state);
        pages.push(page);
        assert!(pages.len() < 1_000, "the read goes round in circles");
        match next {
            Some(next) => state = PagingState::decode(&next.encode(1), 1).unwrap(),
            None => return pages,
        }
    }
}

fn columns() -> LiveColumns {
    (0..100).map(ColumnId).collect()
}

fn page(cluster: &mut Cluster, request: &Request, state: &PagingState) -> (Vec<ResultRow>, Option<PagingState>) {
    let limits = PageLimits {
        rows: request.page.rows.min(state.rows_left.map_or(u32::MAX, |left| left.try_into().unwrap_or(u32::MAX))),
        ..request.page
    };
    let mut assembler = Assembler::new(limits, NOW_S, columns(), state.start.resume());
    let mut after = state.start.resume().map(|resume| resume.position.clone());
    let mut target = state.target as usize;
    let mut commands = 0;
    let ended: Option<Start> = loop {
        let Some((tokens, slices)) = request.targets.get(target) else { break None };
        if commands >= request.commands_max {
            let resume = after.map(|position| Start::Resume(assembler.pause(position)));
            break Some(resume.unwrap_or(Start::Beginning));
        }
        commands += 1;
        let whole = *slices == [Slice::all()];
        assembler.begin_target(if whole { Extent::WholePartitions } else { Extent::Slices });
        let command = ReadCommand {
            target: tokens.clone(),
            slices: slices.clone(),
            direction: request.direction,
            after: after.clone(),
            now_s: NOW_S,
            limit_rows: assembler.wanted(),
            limit_bytes: request.command_bytes,
            ..whole_table()
        };
        let answer = cluster.execute(command, request.level).unwrap().unwrap();
        match assembler.take(answer).unwrap() {
            Next::ReadAfter(position) => after = Some(position),
            Next::PageFull(resume) => break Some(Start::Resume(resume)),
            Next::TooManyTombstones { .. } => panic!("there is no limit"),
            Next::Complete => {
                after = None;
                target += 1;
            }
        }
    };
    let rows = assembler.into_rows();
    assert!(rows.len() <= limits.rows as usize, "a page of {} holds {}", limits.rows, rows.len());
    let rows_left = state.rows_left.map(|left| left - rows.len() as u64);
    let next = ended.filter(|_| rows_left != Some(0));
    (rows, next.map(|start| PagingState { target: target as u32, start, rows_left }))
}

/// Reads all pages and puts them together.
fn read(cluster: &mut Cluster, request: &Request) -> Vec<ResultRow> {
    pages(cluster, request).into_iter().flatten().collect()
}

fn union(history: &[(Mutation, u64)]) -> Replica {
    let mut union = Replica::default();
    history.iter().for_each(|(mutation, _)| union.apply(mutation));
    union
}

/// Three replicas of which everyone was told everything.
fn equal_cluster(history: impl IntoIterator<Item = Mutation>) -> (Cluster, Replica) {
    let mut cluster = Cluster::of_three();
    history.into_iter().for_each(|mutation| cluster.write(0b111, &mutation));
    let union = cluster.replicas[0].clone();
    (cluster, union)
}

fn any_target() -> impl Strategy<Value = (Target, Vec<Slice>)> {
    let target = prop_oneof![
        1 => Just(Target::Scan(TokenRange::ALL)),
        1 => any::<i64>().prop_map(|token| Target::Scan(TokenRange { after: Some(Token(token)), up_to: None })),
        2 => (0..PARTITIONS).prop_map(|number| Target::Partition(partition_key(number))),
    ];
    (target, any_slices(KEYS))
}

fn any_page() -> impl Strategy<Value = PageLimits> {
    let rows_per_partition = proptest::option::of(1..4u32);
    (1..9u32, prop_oneof![1..200u64, Just(u64::MAX)], rows_per_partition)
        .prop_map(|(rows, bytes, rows_per_partition)| PageLimits { rows, bytes, rows_per_partition })
}

fn any_request() -> impl Strategy<Value = Request> {
    let targets = proptest::collection::vec(any_target(), 1..4);
    let sizes = (prop_oneof![1..300u32, Just(u32::MAX)], 1..5u32, proptest::option::of(1..20u64));
    (targets, any_direction(), any_page(), sizes).prop_map(
        |(targets, direction, page, (command_bytes, commands_max, limit))| Request {
            targets,
            direction,
            page,
            limit,
            command_bytes,
            commands_max,
            ..Request::whole()
        },
    )
}

/// Mutations, each told to as many replicas as a mask of three has bits: at least `least`.
fn any_history(least: u32) -> impl Strategy<Value = Vec<(Mutation, u64)>> {
    let told = (1..8u64).prop_filter("told to too few", move |told| told.count_ones() >= least);
    proptest::collection::vec((any_mutation(PARTITIONS, KEYS), told), 0..16)
}

fn told(history: &[(Mutation, u64)]) -> Cluster {
    let mut cluster = Cluster::of_three();
    history.iter().for_each(|(mutation, told)| cluster.write(*told, mutation));
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever was lost where, and wherever pages and answers are cut: all pages together are what was written, once
    /// each and in order.
    #[test]
    fn pages_together_are_the_whole(history in any_history(1), request in any_request()) {
        let mut cluster = told(&history);
        prop_assert_eq!(read(&mut cluster, &request), request.expected(&union(&history)));
    }

    /// What a quorum took, a quorum reads.
    #[test]
    fn quorums_overlap(history in any_history(2), request in any_request(), nearest in 0..3usize) {
        let mut cluster = told(&history);
        cluster.nearest_first.rotate_left(nearest);
        let request = Request { level: Consistency::Quorum, ..request };
        prop_assert_eq!(read(&mut cluster, &request), request.expected(&union(&history)));
    }

    /// The same in whatever order answers come, with one more asked at any time and silent ones left behind, and with the
    /// page of a replica that fails asked of another.
    #[test]
    fn quorums_overlap_in_any_order(
        history in any_history(2), request in any_request(), nearest in 0..3usize, seed in any::<u64>(),
        fault in proptest::sample::select(vec![Fault::None, Fault::Fails, Fault::Silent, Fault::Malformed]),
    ) {
        let mut cluster = told(&history);
        cluster.nearest_first.rotate_left(nearest);
        // One that is silent from the beginning is seen by whoever looks, if it is not the one that others stand in for.
        cluster.faults[usize::from(fault != Fault::Silent)] = fault;
        if fault == Fault::Silent {
            cluster.nearest_first = vec![1, 2, 0];
        }
        cluster.mix = Some(StdRng::seed_from_u64(seed));
        let request = Request { level: Consistency::Quorum, ..request };
        prop_assert_eq!(read(&mut cluster, &request), request.expected(&union(&history)));
    }

    /// A read of everything at ALL leaves all replicas equal.
    #[test]
    fn a_whole_read_makes_replicas_equal(history in any_history(1), page in any_page(), command_bytes in 1..300u32) {
        let mut cluster = told(&history);
        read(&mut cluster, &Request { page, command_bytes, ..Request::whole() });
        if page.rows_per_partition.is_none() {
            prop_assert!(cluster.holds_the_same_everywhere());
        }
    }
}

/// B007: rows 0 to 9, row 3 deleted. For every page size all nine rows come, and the end only after row 9.
#[test]
fn b007_a_page_that_begins_with_a_deleted_row_is_not_the_last() {
    let deleted = Row { deletion: Some(deletion(2)), ..Row::default() };
    let history = [rows(0, (0..10).map(|key| (key, value("v", 1)))), rows(0, [(3, deleted)])];
    for size in 1..=10 {
        for direction in [Direction::Forward, Direction::Reverse] {
            let (mut cluster, union) = equal_cluster(history.clone());
            let request = Request { direction, ..Request::with_page_rows(size) };
            let shown = read(&mut cluster, &request);
            assert_eq!(shown.len(), 9, "pages of {size}");
            assert_eq!(shown, request.expected(&union));
        }
    }
}

/// B016: partitions of static values alone were skipped, doubled or repeated where a page ended at them.
#[test]
fn b016_partitions_of_static_values_alone_come_once() {
    let with_static = |number, row| Mutation { static_row: Some(static_value("s", 1)), ..rows(number, row) };
    let history =
        [with_static(1, vec![]), with_static(2, vec![(1, value("a", 1)), (2, value("b", 1))]), with_static(3, vec![])];
    for size in 1..=5 {
        let (mut cluster, union) = equal_cluster(history.clone());
        let request = Request::with_page_rows(size);
        let shown = read(&mut cluster, &request);
        let mut places: Vec<_> = shown.iter().map(|row| (row.partition.clone(), row.clustering.clone())).collect();
        assert_eq!(shown, request.expected(&union), "pages of {size}");
        places.sort();
        places.dedup();
        assert_eq!(places.len(), 4, "pages of {size}");
        let beyond = vec![(Target::Partition(partition_key(2)), vec![rows_between(100, i32::MAX)])];
        assert_eq!(read(&mut cluster, &Request { targets: beyond, ..request }), []);
    }
}

/// B025: a hundred large rows, of which one replica holds small old versions only. Answers end at different rows, none
/// of which is the end of the data.
#[test]
fn b025_answers_cut_by_size_are_not_the_end() {
    let large = "x".repeat(1_000);
    let mut cluster = Cluster::of_three();
    cluster.write(0b111, &rows(0, (0..100).map(|key| (key, value("small", 1)))));
    cluster.write(0b011, &rows(0, (0..100).map(|key| (key, value(&large, 2)))));
    let request = Request { level: Consistency::Quorum, command_bytes: 10_000, ..Request::with_page_rows(1_000) };
    cluster.nearest_first = vec![2, 0, 1];
    let shown = read(&mut cluster, &request);
    assert_eq!(shown.len(), 100);
    assert!(shown.iter().all(|row| row.row.cells[0].1.value_at(NOW_S).unwrap().len() == 1_000));
    assert!(cluster.holds_the_same_everywhere());
}

/// B050: five partitions with a static value and a row, one deleted. A limit counts what is shown, and a page that ends
/// with a row of which only expired cells are left loses nothing.
#[test]
fn b050_limits_count_what_is_shown() {
    let partition = |number| Mutation {
        static_row: Some(static_value("s", 1)),
        ..rows(number, [(0, value("a", 1)), (1, Row::default())])
    };
    let deleted = keys(&Target::Scan(TokenRange::ALL))[1].clone();
    let mut history: Vec<Mutation> = (0..PARTITIONS).map(partition).collect();
    history.iter_mut().for_each(|mutation| mutation.rows.retain(|(_, row)| !row.is_empty()));
    history.push(Mutation { deletion: Some(deletion(2)), ..Mutation::new(TABLE, deleted.clone()) });
    for size in 1..=4 {
        for limit in 1..=4 {
            let (mut cluster, union) = equal_cluster(history.clone());
            let request = Request { limit: Some(limit), ..Request::with_page_rows(size) };
            let shown = read(&mut cluster, &request);
            assert_eq!(shown.len() as u64, limit, "pages of {size}");
            assert!(shown.iter().all(|row| row.partition != deleted));
            assert_eq!(shown, request.expected(&union));
        }
    }
}

/// A page given up within a partition, before anything of it was seen, still knows what pages before it had shown: else
/// a limit per partition would begin anew.
#[test]
fn a_page_given_up_early_remembers_what_was_shown_before_it() {
    let position = |row| PagePosition { partition: partition_key(0), row };
    let shown = Resume { position: position(RowPosition::After(row_key(1))), rows_in_partition: 2 };
    let limits = PageLimits { rows: 10, bytes: u64::MAX, rows_per_partition: Some(3) };
    let mut assembler = Assembler::new(limits, NOW_S, columns(), Some(&shown));
    let end = position(RowPosition::At(row_key(5).before()));
    let nothing = ReadAnswer { fragments: Vec::new(), end: PageEnd::At(end.clone()), repaired: false };
    assert_eq!(assembler.take(nothing).unwrap(), Next::ReadAfter(end.clone()));
    assert_eq!(assembler.pause(end.clone()), Resume { position: end, rows_in_partition: 2 });
}

/// Partitions of static values alone, each a target of its own: what the end of a target shows may fill the page, and
/// the next target must not add to it.
#[test]
fn a_page_filled_at_the_end_of_a_target_is_full() {
    let partition = |number| Mutation { static_row: Some(static_value("s", 1)), ..rows(number, []) };
    let (mut cluster, _) = equal_cluster((0..3).map(partition));
    let targets = (0..3).map(|number| (Target::Partition(partition_key(number)), vec![Slice::all()])).collect();
    let shown = pages(&mut cluster, &Request { targets, ..Request::with_page_rows(1) });
    assert_eq!(shown.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 0]);
}

/// Static values are answered with every row: they count for every row, or a page of small rows is as large as it likes.
#[test]
fn static_values_fill_pages_too() {
    let mut mutation = rows(0, (0..10).map(|row| (row, value("v", 1))));
    mutation.static_row = Some(static_value(&"s".repeat(1_000), 1));
    let (mut cluster, _) = equal_cluster([mutation]);
    let page = PageLimits { bytes: 3_000, ..Request::whole().page };
    let shown = pages(&mut cluster, &Request { page, ..Request::whole() });
    assert_eq!(shown.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 1]);
}
