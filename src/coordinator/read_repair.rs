//! Differing answers: what they say together, and what each replica lacks of it.
//!
//! Pages of one command may reach differently far, since limits count what each replica sees. All are cut to where the
//! shortest one ends; up to there every answer is complete, so that whatever is missing in one is truly missing there.
//! A page that lies outside what was asked, or that reaches no further than the page before it, is refused like one whose
//! bytes mean nothing: it would send a read round in circles.

use crate::Result;
use crate::codec::EncodedRow;
use crate::codec::entry::{Trust, read_entry};
use crate::codec::varint::Reader;
use crate::model::{
    Bound, ClusteringKey, Deletion, Direction, Fragment, Merge, Mutation, Page, PageEnd, PagePosition, PartitionHeader,
    PartitionKey, RangeDeletion, ReadCommand, Row, RowPosition, Stream, TableId, Target, reconcile,
};

/// What several pages say together.
#[derive(Debug)]
pub struct Merged {
    /// Everything up to `end`.
    pub fragments: Vec<Fragment<EncodedRow>>,
    /// Where the shortest page ended.
    pub end: PageEnd,
    /// Who lacks something.
    pub differences: Vec<Difference>,
}

/// What one replica lacks.
#[derive(Debug)]
pub struct Difference {
    /// The replica.
    pub replica: usize,
    /// Written to it, they make its state up to the end of the merge equal to the merge.
    pub mutations: Vec<Mutation>,
}

/// Merges pages of `command`. `Err`: this replica's page is not what a replica may send.
pub fn merge(command: &ReadCommand, pages: &[(usize, Page)]) -> Result<Merged, usize> {
    let direction = command.direction;
    let end = shortest(pages, direction);
    let mut answers = Vec::with_capacity(pages.len());
    for (replica, page) in pages {
        let fragments = decode(page, command).map_err(|_| *replica)?;
        answers.push((*replica, clip(fragments, &end, direction)));
    }
    let mut merge = Merge::new(answers.iter().map(|(_, all)| Fragments(all.clone().into_iter())).collect(), direction);
    let mut fragments = Vec::new();
    // Every answer was decoded and its order checked, so a failure here has no single culprit; blame the first.
    while let Some(fragment) = merge.next().map_err(|_| pages[0].0)? {
        fragments.push(fragment);
    }
    let whole = partitions(&fragments, direction);
    let mut differences = Vec::new();
    for (replica, answer) in &answers {
        let mutations = lacking(command.table, &whole, &partitions(answer, direction)).map_err(|_| *replica)?;
        if !mutations.is_empty() {
            differences.push(Difference { replica: *replica, mutations });
        }
    }
    Ok(Merged { fragments, end, differences })
}

/// Decodes a page that came from a peer and checks the order that [`crate::model::fragment`] promises, and that the page
/// is one of `command`.
pub fn decode(page: &Page, command: &ReadCommand) -> Result<Vec<Fragment<EncodedRow>>> {
    let mut reader = Reader::new("page", page.entries.clone());
    let mut order = Order { direction: command.direction, ..Order::default() };
    let mut fragments = Vec::new();
    while reader.remaining() > 0 {
        let fragment = read_entry(&mut reader, Trust::Checked)?;
        order.check(&fragment).map_err(|reason| reader.corrupt(reason))?;
        if matches!(&fragment, Fragment::Partition(header) if !is_asked(command, &header.key)) {
            return Err(reader.corrupt("a partition that was not asked for").into());
        }
        fragments.push(fragment);
    }
    order.finish().map_err(|reason| reader.corrupt(reason))?;
    if !is_progress(command, &page.end) {
        return Err(reader.corrupt("an end that is not behind the page before").into());
    }
    Ok(fragments)
}

fn is_asked(command: &ReadCommand, key: &PartitionKey) -> bool {
    let targeted = match &command.target {
        Target::Partition(only) => only == key,
        Target::Scan(tokens) => tokens.contains(key.token()),
    };
    targeted && command.after.as_ref().is_none_or(|after| after.partition <= *key)
}

fn is_progress(command: &ReadCommand, end: &PageEnd) -> bool {
    let PageEnd::At(position) = end else { return true };
    let is_behind = |after: &PagePosition| PageEnd::At(after.clone()).compare(end, command.direction).is_lt();
    is_asked(command, &position.partition) && command.after.as_ref().is_none_or(is_behind)
}

/// Checks a stream's order as it goes by.
#[derive(Default)]
struct Order {
    direction: Direction,
    partition: Option<PartitionKey>,
    place: Option<bytes::Bytes>,
    in_force: Option<Deletion>,
}

impl Order {
    fn check(&mut self, fragment: &Fragment<EncodedRow>) -> Result<(), &'static str> {
        match fragment {
            Fragment::Partition(header) => {
                self.finish()?;
                if self.partition.as_ref().is_some_and(|before| *before >= header.key) {
                    return Err("partitions do not ascend");
                }
                self.partition = Some(header.key.clone());
                self.place = None;
                Ok(())
            }
            Fragment::Row(key, _) => self.step(key.bytes()),
            Fragment::Change(bound, deletion) => {
                if self.in_force == *deletion {
                    return Err("a change that changes nothing");
                }
                self.in_force = *deletion;
                self.step(bound.bytes())
            }
        }
    }

    fn step(&mut self, place: &bytes::Bytes) -> Result<(), &'static str> {
        if self.partition.is_none() {
            return Err("a row before any partition");
        }
        if self.place.as_ref().is_some_and(|before| self.direction.order(before.cmp(place)).is_ge()) {
            return Err("rows are out of order");
        }
        self.place = Some(place.clone());
        Ok(())
    }

    fn finish(&self) -> Result<(), &'static str> {
        if self.in_force.is_some() { Err("a range deletion that never ends") } else { Ok(()) }
    }
}

struct Fragments(std::vec::IntoIter<Fragment<EncodedRow>>);

impl Stream<EncodedRow> for Fragments {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        Ok(self.0.next())
    }
}

fn shortest(pages: &[(usize, Page)], direction: Direction) -> PageEnd {
    let mut ends = pages.iter().map(|(_, page)| &page.end);
    let first = ends.next().cloned().unwrap_or(PageEnd::Complete);
    ends.fold(first, |end, other| if other.compare(&end, direction).is_lt() { other.clone() } else { end })
}

/// The fragments up to `end`; a deletion in force there is closed.
fn clip(fragments: Vec<Fragment<EncodedRow>>, end: &PageEnd, direction: Direction) -> Vec<Fragment<EncodedRow>> {
    let PageEnd::At(position) = end else { return fragments };
    let mut kept = Vec::with_capacity(fragments.len());
    let mut bound: Option<Bound> = None;
    let mut inside = false;
    let mut in_force = None;
    for fragment in fragments {
        match &fragment {
            Fragment::Partition(header) if header.key > position.partition => break,
            Fragment::Partition(header) => {
                inside = header.key == position.partition;
                bound = position.row.bound(direction);
            }
            Fragment::Row(key, _) if inside && !is_before(key.bytes(), position, bound.as_ref(), direction) => break,
            Fragment::Change(at, _) if inside && !is_before(at.bytes(), position, bound.as_ref(), direction) => break,
            Fragment::Change(_, deletion) => in_force = *deletion,
            Fragment::Row(..) => {}
        }
        kept.push(fragment);
    }
    if let (Some(bound), Some(_)) = (bound, in_force) {
        kept.push(Fragment::Change(bound, None));
    }
    kept
}

fn is_before(place: &bytes::Bytes, position: &PagePosition, bound: Option<&Bound>, direction: Direction) -> bool {
    match (&position.row, bound) {
        (RowPosition::End, _) => true,
        (_, Some(bound)) => direction.order(place.cmp(bound.bytes())).is_lt(),
        (_, None) => false,
    }
}

/// One partition of a decoded answer.
struct Partition<'a> {
    header: &'a PartitionHeader<EncodedRow>,
    rows: Vec<(&'a ClusteringKey, &'a EncodedRow)>,
    ranges: Vec<RangeDeletion>,
}

fn partitions(fragments: &[Fragment<EncodedRow>], direction: Direction) -> Vec<Partition<'_>> {
    let mut all: Vec<Partition<'_>> = Vec::new();
    let mut open: Option<(&Bound, Deletion)> = None;
    for fragment in fragments {
        match (fragment, all.last_mut()) {
            (Fragment::Partition(header), _) => all.push(Partition { header, rows: Vec::new(), ranges: Vec::new() }),
            (Fragment::Row(key, row), Some(partition)) => partition.rows.push((key, row)),
            (Fragment::Change(at, next), Some(partition)) => {
                if let Some((from, deletion)) = open.take() {
                    let (start, end) = match direction {
                        Direction::Forward => (from, at),
                        Direction::Reverse => (at, from),
                    };
                    partition.ranges.push(RangeDeletion { start: start.clone(), end: end.clone(), deletion });
                }
                open = next.map(|deletion| (at, deletion));
            }
            (Fragment::Row(..) | Fragment::Change(..), None) => {}
        }
    }
    if direction == Direction::Reverse {
        for partition in &mut all {
            partition.rows.reverse();
            partition.ranges.reverse();
        }
    }
    all
}

/// What `answer` lacks of `whole`, as mutations.
fn lacking(table: TableId, whole: &[Partition<'_>], answer: &[Partition<'_>]) -> Result<Vec<Mutation>> {
    let mut mutations = Vec::new();
    let mut answer = answer.iter().peekable();
    for partition in whole {
        while answer.next_if(|other| other.header.key < partition.header.key).is_some() {}
        let own = answer.next_if(|other| other.header.key == partition.header.key);
        let mutation = lacking_in_partition(table, partition, own)?;
        if !mutation.is_empty() {
            mutations.push(mutation);
        }
    }
    Ok(mutations)
}

fn lacking_in_partition(table: TableId, whole: &Partition<'_>, own: Option<&Partition<'_>>) -> Result<Mutation> {
    let mut mutation = Mutation::new(table, whole.header.key.clone());
    let own_header = own.map(|own| own.header);
    if whole.header.deletion != own_header.and_then(|header| header.deletion) {
        mutation.deletion = whole.header.deletion;
    }
    let own_static = own_header.and_then(|header| header.static_row.as_ref());
    if let Some(row) = &whole.header.static_row {
        mutation.static_row = lacking_in_row(row, own_static)?;
    }
    let no_rows = Vec::new();
    let mut own_rows = own.map_or(&no_rows, |own| &own.rows).iter().peekable();
    for (key, row) in &whole.rows {
        while own_rows.next_if(|(other, _)| other < key).is_some() {}
        let own = own_rows.next_if(|(other, _)| other == key).map(|(_, own)| *own);
        mutation.rows.extend(lacking_in_row(row, own)?.map(|row| ((*key).clone(), row)));
    }
    if own.map_or(&[][..], |own| &own.ranges) != whole.ranges.as_slice() {
        mutation.ranges.clone_from(&whole.ranges);
    }
    Ok(mutation)
}

/// Only the cells and elements that differ: a replica that lacks one element of a large collection is sent that one.
fn lacking_in_row(whole: &EncodedRow, own: Option<&EncodedRow>) -> Result<Option<Row>> {
    match own {
        None => whole.decode().map(Some),
        Some(own) if own == whole => Ok(None),
        Some(own) => Ok(Some(reconcile::lacking(&whole.decode()?, &own.decode()?)).filter(|row| !row.is_empty())),
    }
}
