//! What clients asked, what they were told, and what they may therefore see: the checker of every read.
//!
//! Each write has a number of its own, which its value carries. Timestamps decide between writes, so all that there is to
//! know of a place (one row of one partition of one table) is the greatest timestamp that surely is on so many replicas:
//!
//! ```text
//!   floor[w]   the greatest timestamp known to be on at least w of n replicas of the place
//!              raised by an acknowledgement that took w replicas, and by an answered read that took w replicas
//!   a read of r replicas must see floor[n - r + 1] or something later: the two sets share a replica
//! ```
//!
//! What it shows must have been sent, must not have been declared "not applied", and must not have expired. Where it shows
//! nothing, a deletion or an expiry at the floor or later must explain that. So an acknowledged write is seen by every later
//! read that overlaps it, no read goes back behind an earlier one, and what was deleted stays deleted.

use std::ops::Range;

use trefoil::codec::EncodedRow;
use trefoil::coordinator::ReadAnswer;
use trefoil::model::{
    Bound, Deletion, Direction, Durability, Fragment, PageEnd, PagePosition, PartitionKey, ReadCommand, RowPosition,
    Stamp, Target,
};

use super::schema::{PARTITIONS, ROWS, Schema};

/// Replicas that a place can have.
const REPLICAS_MAX: usize = 9;

/// What one write asks for.
#[derive(Debug, Clone)]
pub struct Change {
    pub table: usize,
    pub partition: u8,
    pub rows: Range<u8>,
    pub kind: Kind,
    /// So much before its stamp lies its timestamp, where the client chose one.
    pub back_us: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Put { ttl_s: u32 },
    Update { ttl_s: u32 },
    DeleteRow,
    DeleteRange,
    DeletePartition,
}

impl Change {
    pub fn timestamp(&self, stamp: Stamp) -> i64 {
        stamp.0 - self.back_us
    }

    /// Time to live and expiry, if it has one.
    pub fn expiry_s(&self, stamp: Stamp) -> Option<(u32, i64)> {
        match self.kind {
            Kind::Put { ttl_s } | Kind::Update { ttl_s } if ttl_s > 0 => {
                Some((ttl_s, stamp.seconds() + i64::from(ttl_s)))
            }
            _ => None,
        }
    }

    fn is_deletion(&self) -> bool {
        !matches!(self.kind, Kind::Put { .. } | Kind::Update { .. })
    }
}

/// What is known of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Under way, or nobody knows.
    Unknown,
    Acknowledged,
    NotApplied,
}

#[derive(Debug)]
struct Write {
    change: Change,
    outcome: Outcome,
    /// Timestamp and expiry, once a node has stamped it.
    stamped: Option<(i64, Option<i64>)>,
}

#[derive(Debug, Clone, Default)]
struct Place {
    /// The writes that concern it.
    writes: Vec<u32>,
    floors: Floors,
}

/// By number of replicas; index 0 is not used.
type Floors = [Option<i64>; REPLICAS_MAX + 1];

/// What a read must see, taken when it begins.
#[derive(Debug, Clone)]
pub struct Expected {
    table: usize,
    began_us: u64,
    /// Per place that the read covers.
    floors: Vec<(usize, Option<i64>)>,
}

pub struct History {
    writes: Vec<Write>,
    places: Vec<Place>,
    durabilities: Vec<Durability>,
    /// Copies of each table's data.
    copies: Vec<usize>,
    /// When a node lost power last: what a periodic table had acknowledged before may be gone from it.
    power_lost_us: u64,
}

impl History {
    pub fn new(schema: &Schema, copies: Vec<usize>) -> History {
        let places = schema.tables.len() * usize::from(PARTITIONS) * usize::from(ROWS);
        History {
            writes: Vec::new(),
            places: vec![Place::default(); places],
            durabilities: schema.tables.iter().map(|table| table.durability).collect(),
            copies,
            power_lost_us: 0,
        }
    }

    /// A client is about to send a write; its number.
    pub fn begin_write(&mut self, change: Change) -> u64 {
        let id = self.writes.len() as u64;
        for row in change.rows.clone() {
            self.places[place(change.table, change.partition, row)].writes.push(id as u32);
        }
        self.writes.push(Write { change, outcome: Outcome::Unknown, stamped: None });
        id
    }

    pub fn change(&self, write: u64) -> &Change {
        &self.writes[write as usize].change
    }

    /// A node has given the write its stamp.
    pub fn stamped(&mut self, write: u64, stamp: Stamp) {
        let write = &mut self.writes[write as usize];
        write.stamped = Some((write.change.timestamp(stamp), write.change.expiry_s(stamp).map(|(_, expiry)| expiry)));
    }

    pub fn not_applied(&mut self, write: u64) {
        self.writes[write as usize].outcome = Outcome::NotApplied;
    }

    /// A client was told that `replicas` have what it sent at `began_us`.
    pub fn acknowledged(&mut self, write: u64, replicas: usize, began_us: u64) {
        let Write { change, outcome, stamped } = &mut self.writes[write as usize];
        *outcome = Outcome::Acknowledged;
        let (change, Some((timestamp, _))) = (change.clone(), *stamped) else { return };
        if self.is_forgotten(change.table, began_us) {
            return;
        }
        for row in change.rows {
            raise(&mut self.places[place(change.table, change.partition, row)].floors, replicas, timestamp);
        }
    }

    /// A node has lost power.
    pub fn power_lost(&mut self, now_us: u64) {
        self.power_lost_us = now_us;
        for (table, durability) in self.durabilities.iter().enumerate() {
            if *durability == Durability::Periodic {
                let first = place(table, 0, 0);
                let places = &mut self.places[first..first + usize::from(PARTITIONS) * usize::from(ROWS)];
                places.iter_mut().for_each(|place| place.floors = Floors::default());
            }
        }
    }

    /// Whether what began then may have been lost by one node's power.
    fn is_forgotten(&self, table: usize, began_us: u64) -> bool {
        self.durabilities[table] == Durability::Periodic && began_us <= self.power_lost_us
    }

    /// What a read of these rows that asks `replicas` must see.
    pub fn expect(
        &self,
        table: usize,
        partitions: Range<u8>,
        rows: Range<u8>,
        replicas: usize,
        now_us: u64,
    ) -> Expected {
        let shared = (self.copies[table] + 1).saturating_sub(replicas).max(1);
        let all = partitions.flat_map(|partition| rows.clone().map(move |row| place(table, partition, row)));
        let floors = all.map(|place| (place, self.places[place].floors[shared])).collect();
        Expected { table, began_us: now_us, floors }
    }

    /// Checks what a read showed: the write that each place's value is of. `now_s`: the second it was read as of, least
    /// and greatest.
    pub fn check(&mut self, expected: &Expected, shown: &[(u8, u8, u64)], now_s: (i64, i64)) -> Result<(), String> {
        let is_forgotten = self.is_forgotten(expected.table, expected.began_us);
        let mut shown: Vec<(usize, u64)> =
            shown.iter().map(|(partition, row, id)| (place(expected.table, *partition, *row), *id)).collect();
        shown.sort_unstable();
        if let Some(twice) = shown.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("{} came twice in one read", self.describe(twice[0].0)));
        }
        for (place, _) in &shown {
            if !expected.floors.iter().any(|(covered, _)| covered == place) {
                return Err(format!("{} was not asked for", self.describe(*place)));
            }
        }
        for (place, floor) in &expected.floors {
            let value = shown.binary_search_by_key(place, |(place, _)| *place).ok().map(|at| shown[at].1);
            let floor = floor.filter(|_| !is_forgotten);
            self.check_place(*place, value, floor, now_s)
                .map_err(|fault| format!("{}: {fault}", self.describe(*place)))?;
        }
        Ok(())
    }

    fn check_place(&self, at: usize, value: Option<u64>, floor: Option<i64>, now_s: (i64, i64)) -> Result<(), String> {
        let Some(id) = value else {
            let Some(floor) = floor else { return Ok(()) };
            return match self.is_explained(at, floor, now_s.1) {
                true => Ok(()),
                false => Err(format!("nothing is seen where {} was acknowledged or seen", self.of(at, floor))),
            };
        };
        let Some(write) = self.writes.get(id as usize).filter(|_| self.places[at].writes.contains(&(id as u32))) else {
            return Err(format!("the value of write {id}, which was never sent there"));
        };
        match (write.outcome, write.stamped) {
            (Outcome::NotApplied, _) => Err(format!("write {id} was declared not applied")),
            (_, None) => Err(format!("write {id} was never stamped")),
            (_, Some((_, Some(expiry)))) if expiry <= now_s.0 => Err(format!("write {id} has expired")),
            (_, Some((timestamp, _))) if floor.is_some_and(|floor| timestamp < floor) => Err(format!(
                "write {id} at {timestamp} is seen where {} was acknowledged or seen",
                self.of(at, floor.unwrap_or_default())
            )),
            _ => Ok(()),
        }
    }

    /// Whether something at this timestamp or later may show nothing.
    fn is_explained(&self, at: usize, floor: i64, now_s: i64) -> bool {
        self.places[at].writes.iter().any(|id| {
            let write = &self.writes[*id as usize];
            write.outcome != Outcome::NotApplied
                && write.stamped.is_some_and(|(timestamp, expiry)| {
                    timestamp >= floor && (write.change.is_deletion() || expiry.is_some_and(|expiry| expiry <= now_s))
                })
        })
    }

    /// The writes of a place at this timestamp.
    fn of(&self, at: usize, timestamp: i64) -> String {
        let is_it = |id: &&u32| self.writes[**id as usize].stamped.is_some_and(|(own, _)| own == timestamp);
        let all = self.places[at].writes.iter().filter(is_it);
        let all: Vec<String> = all.map(|id| format!("{id} ({:?})", self.writes[*id as usize].change.kind)).collect();
        format!("write {} at {timestamp}", all.join(", "))
    }

    fn describe(&self, at: usize) -> String {
        let (rows, partitions) = (usize::from(ROWS), usize::from(PARTITIONS));
        let (table, partition, row) = (at / rows / partitions, at / rows % partitions, at % rows);
        format!("table {table} partition {partition} row {row}")
    }

    /// The replicas have answered a command: what its answer says is on `replicas` of them.
    pub fn answered(
        &mut self,
        schema: &Schema,
        command: &ReadCommand,
        answer: &ReadAnswer,
        replicas: usize,
        began_us: u64,
    ) {
        let Some(table) = schema.table_of(command.table) else { return };
        if self.is_forgotten(table, began_us) {
            return;
        }
        for (key, versions) in versions(&answer.fragments) {
            let Some(partition) = key.bytes().first().copied() else { continue };
            for row in 0..ROWS {
                if !covers(schema, command, &answer.end, &key, row) {
                    continue;
                }
                if let Some(version) = versions.of(schema, row, command.direction) {
                    raise(&mut self.places[place(table, partition, row)].floors, replicas, version);
                }
            }
        }
    }

    /// What is there in the end must be everything that any replica has acknowledged.
    pub fn expect_everything(&self, table: usize, now_us: u64) -> Expected {
        self.expect(table, 0..PARTITIONS, 0..ROWS, self.copies[table], now_us)
    }
}

fn place(table: usize, partition: u8, row: u8) -> usize {
    (table * usize::from(PARTITIONS) + usize::from(partition)) * usize::from(ROWS) + usize::from(row)
}

fn raise(floors: &mut Floors, replicas: usize, timestamp: i64) {
    floors[1..=replicas.min(REPLICAS_MAX)].iter_mut().for_each(|floor| *floor = (*floor).max(Some(timestamp)));
}

/// What an answer says of one partition.
#[derive(Default)]
struct Versions<'a> {
    deletion: Option<i64>,
    rows: Vec<(&'a [u8], i64)>,
    changes: Vec<(&'a Bound, Option<Deletion>)>,
}

fn versions(fragments: &[Fragment<EncodedRow>]) -> Vec<(PartitionKey, Versions<'_>)> {
    let mut all: Vec<(PartitionKey, Versions<'_>)> = Vec::new();
    for fragment in fragments {
        match (fragment, all.last_mut()) {
            (Fragment::Partition(header), _) => {
                let deletion = header.deletion.map(|deletion| deletion.timestamp.0);
                all.push((header.key.clone(), Versions { deletion, ..Versions::default() }));
            }
            (Fragment::Row(key, row), Some((_, versions))) => {
                let newest = row.decode().ok().and_then(|row| row.newest_timestamp());
                versions.rows.extend(newest.map(|newest| (&key.bytes()[..], newest.0)));
            }
            (Fragment::Change(bound, deletion), Some((_, versions))) => versions.changes.push((bound, *deletion)),
            (_, None) => {}
        }
    }
    all
}

impl Versions<'_> {
    /// The greatest timestamp that is said of a row.
    fn of(&self, schema: &Schema, row: u8, direction: Direction) -> Option<i64> {
        let key = schema.row(row).bytes();
        let own = self.rows.iter().find(|(other, _)| *other == key).map(|(_, newest)| *newest);
        let is_before = |bound: &Bound| direction.order(bound.bytes().cmp(key)).is_lt();
        let range = self.changes.iter().rfind(|(bound, _)| is_before(bound)).and_then(|(_, deletion)| *deletion);
        own.max(self.deletion).max(range.map(|deletion| deletion.timestamp.0))
    }
}

/// Whether an answer that reaches to `end` says everything of a row.
fn covers(schema: &Schema, command: &ReadCommand, end: &PageEnd, key: &PartitionKey, row: u8) -> bool {
    let is_target = match &command.target {
        Target::Partition(only) => only == key,
        Target::Scan(tokens) => tokens.contains(key.token()),
    };
    let row_key = schema.row(row);
    let (before, after) = (row_key.before(), row_key.after());
    let is_in =
        command.slices.is_empty() || command.slices.iter().any(|slice| slice.start <= before && after <= slice.end);
    let at = |position| PageEnd::At(PagePosition { partition: key.clone(), row: position });
    let own = at(RowPosition::After(row_key.clone()));
    let is_behind =
        command.after.as_ref().is_none_or(|from| PageEnd::At(from.clone()).compare(&own, command.direction).is_lt());
    is_target && is_in && is_behind && own.compare(end, command.direction).is_le()
}
