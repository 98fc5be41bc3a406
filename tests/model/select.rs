//! What a client is shown: visible rows with their static values, cut by limits, in pages that go through their state.

use std::sync::Arc;

use trefoil::coordinator::{
    Assembler, Consistency, Extent, Next, PageLimits, PagingState, ReadAction, ReadAnswer, ReadOp, Requirement,
    ResultRow, Start,
};
use trefoil::model::{ColumnId, ReadCommand, Row};
use trefoil::store::Access;

use super::naive::{Place, Range, RowSeen, Seen};
use super::run::Run;
use super::steps::{COLUMNS, STATIC_COLUMNS, Select, Target};
use super::{read, words};

/// Identifies the request in its paging states.
const FINGERPRINT: u64 = 1;
/// Far more pages than there are rows.
const PAGES_MAX: usize = 2_000;

/// A row with only what is visible of it.
#[derive(Debug, PartialEq)]
struct Shown {
    partition: u8,
    place: Option<Place>,
    statics: RowSeen,
    row: RowSeen,
}

pub fn check(run: &Run, select: &Select) {
    let expected = expected(run, select);
    let mut found = Vec::new();
    let mut state = PagingState { target: 0, start: Start::Beginning, rows_left: select.limit };
    for _ in 0..PAGES_MAX {
        let (rows, next) = page(run, select, &state);
        assert!(rows.len() <= select.page_rows as usize, "{} rows on a page of {select:?}", rows.len());
        let is_cut_otherwise = select.page_bytes.is_some() || select.commands.is_some();
        let is_full = rows.len() == select.page_rows as usize;
        found.extend(rows.into_iter().map(|row| shown(row, select.now_s)));
        match next {
            None => {
                assert_eq!(found, expected, "{select:?}");
                return;
            }
            Some(next) => {
                assert!(is_full || is_cut_otherwise, "a page ends that is not full: {select:?}");
                state = PagingState::decode(&next.encode(FINGERPRINT), FINGERPRINT).unwrap();
            }
        }
    }
    panic!("the pages of {select:?} do not end");
}

fn expected(run: &Run, select: &Select) -> Vec<Shown> {
    let mut all = Vec::new();
    for (target, slices) in &select.targets {
        for number in run.partitions() {
            let is_targeted = match target {
                Target::Partition(only) => *only == number,
                tokens => read::token_range(tokens).contains(words::partition_key(number).token()),
            };
            if is_targeted {
                all.extend(expected_of(run, select, slices, number));
            }
        }
    }
    all.truncate(select.limit.map_or(usize::MAX, |limit| limit as usize));
    all
}

fn expected_of(run: &Run, select: &Select, slices: &[Range], number: u8) -> Vec<Shown> {
    let partition = run.partition(run.tables[select.table], number);
    let statics = partition.static_row(&STATIC_COLUMNS, select.now_s);
    let mut places: Vec<Place> = run.places().collect();
    if select.is_reverse {
        places.reverse();
    }
    let asked = places.into_iter().filter(|place| slices.iter().any(|slice| slice.holds(*place)));
    let rows = asked.map(|place| (place, partition.row(place, &COLUMNS, select.now_s)));
    let rows = rows.filter(|(_, row)| row.is_visible());
    let at_most = select.rows_per_partition.map_or(usize::MAX, |rows| rows as usize);
    let show = |place, row| Shown { partition: number, place, statics: visible(statics.clone()), row };
    let mut shown: Vec<_> = rows.take(at_most).map(|(place, row)| show(Some(place), visible(row))).collect();
    if shown.is_empty() && slices == [Range::ALL] && statics.is_visible() {
        shown.push(show(None, RowSeen::default()));
    }
    shown
}

fn visible(row: RowSeen) -> RowSeen {
    RowSeen {
        marker: row.marker.filter(Seen::is_value),
        deletion: None,
        cells: row.cells.into_iter().filter(|(_, cell)| cell.is_value()).collect(),
        column_deaths: Default::default(),
        elements: row.elements.into_iter().filter(|(_, cell)| cell.is_value()).collect(),
    }
}

fn shown(row: ResultRow, now_s: i64) -> Shown {
    let number = (0..).find(|number| words::partition_key(*number) == row.partition).expect("a known partition");
    let seen = |row: &Row| visible(words::row_seen(row, now_s));
    Shown {
        partition: number,
        place: row.clustering.as_ref().map(words::place),
        statics: row.static_row.map(|row| seen(&row)).unwrap_or_default(),
        row: seen(&row.row),
    }
}

/// One page, as a coordinator makes it with one replica.
fn page(run: &Run, select: &Select, state: &PagingState) -> (Vec<ResultRow>, Option<PagingState>) {
    let left = state.rows_left.map_or(u32::MAX, |left| left.try_into().unwrap_or(u32::MAX));
    let limits = PageLimits {
        rows: select.page_rows.min(left),
        bytes: select.page_bytes.unwrap_or(u64::MAX),
        rows_per_partition: select.rows_per_partition,
    };
    let mut assembler = Assembler::new(limits, select.now_s, (0..100).map(ColumnId).collect(), state.start.resume());
    let mut after = state.start.resume().map(|resume| resume.position.clone());
    let mut target = state.target as usize;
    let mut commands = 0;
    let ended = loop {
        let Some((of, slices)) = select.targets.get(target) else { break None };
        if select.commands.is_some_and(|most| commands >= most) {
            let resume = after.map(|position| Start::Resume(assembler.pause(position)));
            break Some(resume.unwrap_or(Start::Beginning));
        }
        commands += 1;
        let is_whole = *slices == [Range::ALL];
        assembler.begin_target(if is_whole { Extent::WholePartitions } else { Extent::Slices });
        let command = ReadCommand {
            table: run.tables[select.table],
            target: read::engine_target(of),
            slices: slices.iter().map(|range| words::slice(*range)).collect(),
            direction: read::direction(select.is_reverse),
            after: after.clone(),
            now_s: select.now_s,
            limit_rows: assembler.wanted(),
            limit_bytes: select.answer_bytes.unwrap_or(u32::MAX),
        };
        match assembler.take(ask(run, command)).unwrap() {
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
    let rows_left = state.rows_left.map(|left| left - rows.len() as u64);
    let next = ended.filter(|_| rows_left != Some(0));
    (rows, next.map(|start| PagingState { target: target as u32, start, rows_left }))
}

fn ask(run: &Run, command: ReadCommand) -> ReadAnswer {
    let requirement = Requirement::new(Consistency::One, &[0], 0);
    let mut actions = Vec::new();
    let mut op = ReadOp::start(Arc::new(command), requirement, &[0], None, &mut actions).unwrap();
    assert!(matches!(actions.pop(), Some(ReadAction::Ask(0, _))));
    let page = run.store().read(op.command(), Access::Disk).unwrap();
    op.page(0, page, &mut actions);
    match actions.pop() {
        Some(ReadAction::Answer(Ok(answer))) => answer,
        other => panic!("{other:?}"),
    }
}
