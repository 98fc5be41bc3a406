//! What one replica answers, point by point: every row, every cell with its evidence, and which range deletion is in
//! force at every place, whatever the limits that cut the answer into pages.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use trefoil::codec::entry::{Trust, put_entry, read_entry};
use trefoil::codec::varint::Reader;
use trefoil::model::{
    self, Bound, ClusteringKey, Deletion, Direction, Fragment, Merge, Page, PageEnd, ReadCommand, Stream, TableId,
    TokenRange,
};
use trefoil::snapshot::{Directory, Snapshot};
use trefoil::sstable::{BlockCache, Sstable, file_name};
use trefoil::store::Access;
use trefoil::vfs::memory::MemoryVfs;

use super::naive::{Death, Partition, Place, Range, RowSeen, agrees, death_agrees};
use super::run::Run;
use super::steps::{COLUMNS, PARTITIONS, Read, STATIC_COLUMNS, Target};
use super::words;

/// Far more pages than the data has fragments.
const PAGES_MAX: usize = 2_000;

/// What an answer says of one partition.
#[derive(Debug, Default)]
struct Found {
    death: Option<Death>,
    static_row: RowSeen,
    rows: Vec<(Place, RowSeen)>,
    /// Places in ascending order between which a range deletion is in force.
    in_force: Vec<(Bound, Bound, Death)>,
}

pub fn check(run: &Run, read: &Read) {
    let slices = read.slices.clone().unwrap_or(vec![Range::ALL]);
    let found = answer(run, read);
    let is_targeted = |number: &u8| match read.target {
        Target::Partition(only) => only == *number,
        Target::Tokens(..) => token_range(&read.target).contains(words::partition_key(*number).token()),
    };
    // Who asks for no rows is told nothing, of deletions and static values neither.
    let asks_for_nothing = slices.iter().all(|slice| slice.is_empty());
    let is_told = |number: &u8| is_targeted(number) && !asks_for_nothing;
    let targeted: Vec<u8> = run.partitions().into_iter().filter(is_told).collect();
    let mut expected_order = Vec::new();
    for number in targeted {
        let partition = run.partition(run.tables[read.table], number);
        let found = found.iter().find(|(found, _)| *found == number);
        let told = Told { partition: &partition, forgotten: run.forgotten_before(run.tables[read.table]) };
        if check_partition(run, &told, read, &slices, number, found) {
            expected_order.push(number);
        }
    }
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), expected_order, "partitions of {read:?}");
}

/// Everything, read in several ways.
pub fn check_everything(run: &Run, now_s: i64) {
    for table in 0..run.tables.len() {
        for (is_reverse, limit_rows, limit_bytes) in
            [(false, u32::MAX, u32::MAX), (true, u32::MAX, u32::MAX), (false, 1, u32::MAX), (true, 3, 100)]
        {
            let target = Target::Tokens(None, None);
            check(run, &Read { table, target, slices: None, is_reverse, now_s, limit_rows, limit_bytes });
        }
    }
}

/// What the files of a snapshot say together.
pub fn check_snapshot(
    vfs: &MemoryVfs,
    directory: &Path,
    snapshot: &Snapshot,
    held: &BTreeMap<(TableId, u8), Partition>,
    run: &Run,
    now_s: i64,
) {
    let directory = Directory::new(Arc::new(vfs.clone()), directory.to_owned()).of(snapshot.id);
    let cache = Arc::new(BlockCache::new(1 << 20));
    for table in &snapshot.tables {
        let files = snapshot.files.iter().filter(|meta| meta.table == table.id);
        let streams = files.map(|meta| {
            let file = Arc::new(Sstable::open(vfs, &directory.join(file_name(meta.id)), cache.clone()).unwrap());
            file.read_through().unwrap()
        });
        let mut merged = Merge::new(streams.collect(), Direction::Forward);
        let mut entries = Vec::new();
        while let Some(fragment) = merged.next().unwrap() {
            put_entry(&mut entries, &fragment);
        }
        let target = Target::Tokens(None, None);
        let (is_reverse, limit_rows, limit_bytes) = (false, u32::MAX, u32::MAX);
        let read = Read { table: 0, target, slices: None, is_reverse, now_s, limit_rows, limit_bytes };
        let mut answer = Answer { read: &read, partitions: Vec::new(), last_row: None };
        answer.take_page(entries.into());
        for number in run.partitions() {
            let nothing = Partition::default();
            let partition = held.get(&(table.id, number)).unwrap_or(&nothing);
            let found = answer.partitions.iter().find(|(found, _)| *found == number);
            let told = Told { partition, forgotten: run.forgotten_before(table.id) };
            check_partition(run, &told, &read, &[Range::ALL], number, found);
        }
    }
}

/// What was said of a partition, and before when deletions may be forgotten.
struct Told<'a> {
    partition: &'a Partition,
    forgotten: Option<i64>,
}

/// Whether there is anything to say of the partition within the slices.
fn check_partition(
    run: &Run,
    Told { partition, forgotten }: &Told<'_>,
    read: &Read,
    slices: &[Range],
    number: u8,
    found: Option<&(u8, Found)>,
) -> bool {
    let nothing = Found::default();
    let found = found.map_or(&nothing, |(_, found)| found);
    let about = || format!("partition {number} in {read:?}");
    let is_same = |found: &RowSeen, expected: &RowSeen, what: &dyn Fn() -> String| {
        assert!(agrees(found, expected, *forgotten), "{}\n found: {found:?}\n right: {expected:?}", what());
    };
    let is_same_death = |found: Option<Death>, expected: Option<Death>, what: &dyn Fn() -> String| {
        assert!(death_agrees(found, expected, *forgotten), "{}\n found: {found:?}\n right: {expected:?}", what());
    };
    is_same_death(found.death, partition.death(), &|| format!("the deletion of {}", about()));
    let statics = partition.static_row(&STATIC_COLUMNS, read.now_s);
    is_same(&found.static_row, &statics, &|| format!("the static row of {}", about()));
    let mut says_something = found.death.is_some() || !found.static_row.is_nothing();
    let mut rows: BTreeMap<_, _> = found.rows.iter().map(|(place, row)| (place.order(), row)).collect();
    assert_eq!(rows.len(), found.rows.len(), "a row comes twice in {}", about());
    for place in run.places() {
        let is_asked = slices.iter().any(|slice| slice.holds(place));
        let row = rows.remove(&place.order()).cloned().unwrap_or_default();
        let death = in_force(&found.in_force, place);
        let (expected, expected_death) = match is_asked {
            true => (partition.row(place, &COLUMNS, read.now_s), partition.range_death(place)),
            false => Default::default(),
        };
        is_same(&row, &expected, &|| format!("{place:?} of {}", about()));
        is_same_death(death, expected_death, &|| format!("the range deletion over {place:?} of {}", about()));
        says_something |= !row.is_nothing() || death.is_some();
    }
    assert!(rows.is_empty(), "rows that nobody wrote in {}: {rows:?}", about());
    // A range deletion may lie between all the places there are.
    says_something || !found.in_force.is_empty()
}

fn in_force(intervals: &[(Bound, Bound, Death)], place: Place) -> Option<Death> {
    let key = words::row_key(place);
    let holds =
        |interval: &&(Bound, Bound, Death)| interval.0.bytes() <= key.bytes() && key.bytes() <= interval.1.bytes();
    let mut found = intervals.iter().filter(holds);
    let death = found.next().map(|interval| interval.2);
    assert!(found.next().is_none(), "two range deletions are in force at {place:?}");
    death
}

pub fn token_range(target: &Target) -> TokenRange {
    let token = |number: Option<u8>| number.map(|number| words::partition_key(number).token());
    match target {
        Target::Partition(_) => TokenRange::ALL,
        Target::Tokens(after, up_to) => TokenRange { after: token(*after), up_to: token(*up_to) },
    }
}

pub fn direction(is_reverse: bool) -> Direction {
    if is_reverse { Direction::Reverse } else { Direction::Forward }
}

pub fn engine_target(target: &Target) -> model::Target {
    match target {
        Target::Partition(number) => model::Target::Partition(words::partition_key(*number)),
        tokens => model::Target::Scan(token_range(tokens)),
    }
}

fn command(table: TableId, read: &Read) -> ReadCommand {
    ReadCommand {
        table,
        target: engine_target(&read.target),
        slices: read.slices.iter().flatten().map(|range| words::slice(*range)).collect(),
        direction: direction(read.is_reverse),
        after: None,
        now_s: read.now_s,
        limit_rows: read.limit_rows,
        limit_bytes: read.limit_bytes,
    }
}

/// All pages of an answer, put together; each must be well-formed by itself and go on where the one before ended.
fn answer(run: &Run, read: &Read) -> Vec<(u8, Found)> {
    let mut command = command(run.tables[read.table], read);
    let mut answer = Answer { read, partitions: Vec::new(), last_row: None };
    for _ in 0..PAGES_MAX {
        let Page { entries, end } = run.store().read(&command, Access::Disk).unwrap();
        let bytes = entries.len();
        let shown = answer.take_page(entries);
        assert!(shown.rows <= read.limit_rows, "{} rows on a page of {read:?}", shown.rows);
        let PageEnd::At(position) = end else { return answer.partitions };
        let is_full = shown.rows.saturating_add(shown.static_rows) >= read.limit_rows;
        assert!(is_full || bytes >= read.limit_bytes as usize, "a page ends that is not full: {read:?}");
        if let Some(before) = command.after.replace(position.clone()) {
            let order = PageEnd::At(before.clone()).compare(&PageEnd::At(position.clone()), command.direction);
            assert!(order.is_lt(), "after {before:?} the next page ends at {position:?}");
        }
    }
    panic!("the pages of {read:?} do not end");
}

struct Answer<'a> {
    read: &'a Read,
    partitions: Vec<(u8, Found)>,
    /// The last row of the last partition, to see the order over all pages.
    last_row: Option<ClusteringKey>,
}

/// What a limit of rows counts.
#[derive(Default)]
struct Shown {
    rows: u32,
    /// Partitions that begin on the page and show static values.
    static_rows: u32,
}

impl Answer<'_> {
    fn take_page(&mut self, entries: Bytes) -> Shown {
        let mut reader = Reader::new("page", entries);
        let mut shown = Shown::default();
        let mut open: Option<(Bound, Deletion)> = None;
        let mut has_partition = false;
        while reader.remaining() > 0 {
            match read_entry(&mut reader, Trust::Checked).unwrap() {
                Fragment::Partition(header) => {
                    assert!(open.is_none(), "a partition ends within a range deletion");
                    has_partition = true;
                    let static_row = header.static_row.map(|row| row.decode().unwrap()).unwrap_or_default();
                    let static_row = words::row_seen(&static_row, self.read.now_s);
                    shown.static_rows += u32::from(static_row.is_visible());
                    self.begin(&header.key, header.deletion.map(words::death), static_row);
                }
                Fragment::Row(key, row) => {
                    assert!(has_partition, "a page decodes by itself");
                    let row = words::row_seen(&row.decode().unwrap(), self.read.now_s);
                    shown.rows += u32::from(row.is_visible());
                    self.row(key, row);
                }
                Fragment::Change(bound, deletion) => {
                    assert!(has_partition, "a page decodes by itself");
                    self.change(&mut open, bound, deletion);
                }
            }
        }
        assert!(open.is_none(), "a page ends within a range deletion");
        shown
    }

    fn begin(&mut self, key: &model::PartitionKey, death: Option<Death>, static_row: RowSeen) {
        let number = (0..=PARTITIONS).find(|number| words::partition_key(*number) == *key).expect("a known partition");
        if let Some((last, found)) = self.partitions.last()
            && *last == number
        {
            assert_eq!((found.death, &found.static_row), (death, &static_row), "the header changes between pages");
            return;
        }
        self.last_row = None;
        self.partitions.push((number, Found { death, static_row, ..Found::default() }));
    }

    fn row(&mut self, key: ClusteringKey, row: RowSeen) {
        if let Some(last) = &self.last_row {
            let order = direction(self.read.is_reverse).order(last.cmp(&key));
            assert!(order.is_lt(), "{key:?} comes after {last:?}");
        }
        let place = words::place(&key);
        self.last_row = Some(key);
        self.found().rows.push((place, row));
    }

    fn change(&mut self, open: &mut Option<(Bound, Deletion)>, bound: Bound, deletion: Option<Deletion>) {
        let before = open.take();
        assert_ne!(before.as_ref().map(|(_, deletion)| *deletion), deletion, "a change that changes nothing");
        if let Some((from, deletion)) = before {
            let (start, end) = if self.read.is_reverse { (bound.clone(), from) } else { (from, bound.clone()) };
            assert!(start < end, "changes in the wrong order");
            self.found().in_force.push((start, end, words::death(deletion)));
        }
        *open = deletion.map(|deletion| (bound, deletion));
    }

    fn found(&mut self) -> &mut Found {
        &mut self.partitions.last_mut().expect("a partition has begun").1
    }
}
