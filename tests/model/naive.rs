//! The model: every part of every write is kept for ever, and each point of the data is decided anew, by looking at all
//! of them and applying the rules of the data model to the letter. Nothing of the engine is used here.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// A row's place: an int, ascending, and one of [`WORDS`], descending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub a: i32,
    pub b: usize,
}

/// Values of the second clustering column, ascending.
pub const WORDS: [&str; 4] = ["", "a", "a\0", "b"];

/// Something between rows: before or after all that begin with a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub a: Option<i32>,
    /// Only with `a`.
    pub b: Option<usize>,
    pub side: Side,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

/// Rows between two edges, perhaps none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub from: Edge,
    pub to: Edge,
}

/// A time to live and when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    pub ttl_s: u32,
    pub expiry_s: i64,
}

/// A deletion of more than a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Death {
    pub timestamp: i64,
    pub ldt_s: i64,
}

/// The bytes of a value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Value(pub Vec<u8>);

/// Short enough to be read where a history is printed.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(12)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if shown.len() < self.0.len() { write!(f, "..{}", self.0.len()) } else { Ok(()) }
    }
}

/// What a cell was set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Value(Value, Option<Lifetime>),
    Null { ldt_s: i64 },
}

/// One thing that a write says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// `None`: a static cell.
    Cell(Option<Place>, u32, i64, Content),
    /// An element of a column that has many, at a path of one byte.
    Element(Option<Place>, u32, u8, i64, Content),
    DeleteColumn(Option<Place>, u32, Death),
    Count(Place, u32, i64, Shard),
    Marker(Place, i64, Option<Lifetime>),
    DeleteRow(Place, Death),
    DeleteRange(Range, Death),
    DeletePartition(Death),
}

/// What one run of one node has added to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    pub node: u32,
    pub incarnation: u64,
    pub clock: u64,
    pub value: i64,
}

/// A write to one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub partition: u8,
    /// Microseconds of the clock that named it.
    pub stamp: i64,
    pub parts: Vec<Part>,
}

/// What there is at a point, looked at in some second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Value(i64, Value, Option<Lifetime>),
    /// It was there until its expiry.
    Expired(i64, Lifetime),
    Null(i64, i64),
    /// The greatest timestamp and the latest shard of each run.
    Count(i64, Vec<Shard>),
}

/// What there is of a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowSeen {
    pub marker: Option<Seen>,
    pub deletion: Option<Death>,
    pub cells: BTreeMap<u32, Seen>,
    /// Of columns that have many: their own deletions, and each element.
    pub column_deaths: BTreeMap<u32, Death>,
    pub elements: BTreeMap<(u32, u8), Seen>,
}

impl Part {
    /// The column that it is about, if it is about one.
    pub fn column(&self) -> Option<u32> {
        match self {
            Part::Cell(_, column, ..) | Part::Element(_, column, ..) => Some(*column),
            Part::DeleteColumn(_, column, _) | Part::Count(_, column, ..) => Some(*column),
            Part::Marker(..) | Part::DeleteRow(..) | Part::DeleteRange(..) | Part::DeletePartition(..) => None,
        }
    }
}

impl Place {
    /// The order of rows.
    pub fn order(self) -> (i32, Reverse<usize>) {
        (self.a, Reverse(self.b))
    }
}

impl Edge {
    pub const FIRST: Edge = Edge { a: None, b: None, side: Side::Before };
    pub const LAST: Edge = Edge { a: None, b: None, side: Side::After };

    /// Something that ascends as edges do.
    pub fn order(self) -> [(u8, i64); 3] {
        let side = |side| (if side == Side::Before { 0 } else { 2 }, 0);
        match (self.a, self.b) {
            (None, _) => [side(self.side), (0, 0), (0, 0)],
            (Some(a), None) => [(1, a.into()), side(self.side), (0, 0)],
            (Some(a), Some(b)) => [(1, a.into()), (1, -(b as i64)), side(self.side)],
        }
    }

    /// Whether the row lies behind it.
    pub fn precedes(self, place: Place) -> bool {
        let Some(a) = self.a else { return self.side == Side::Before };
        if a != place.a {
            return a < place.a;
        }
        match self.b {
            // The second column descends.
            Some(b) if b != place.b => b > place.b,
            _ => self.side == Side::Before,
        }
    }
}

impl Range {
    pub const ALL: Range = Range { from: Edge::FIRST, to: Edge::LAST };

    /// Whether it ends where it begins or before: no row can lie in it, whether there are any or not.
    pub fn is_empty(self) -> bool {
        self.from.order() >= self.to.order()
    }

    pub fn holds(self, place: Place) -> bool {
        self.from.precedes(place) && !self.to.precedes(place)
    }
}

impl Seen {
    pub fn is_value(&self) -> bool {
        matches!(self, Seen::Value(..) | Seen::Count(..))
    }
}

impl RowSeen {
    pub fn is_visible(&self) -> bool {
        let mut all = self.marker.iter().chain(self.cells.values()).chain(self.elements.values());
        all.any(Seen::is_value)
    }

    pub fn is_nothing(&self) -> bool {
        *self == RowSeen::default()
    }
}

/// Whether what is `found` is all that was `expected`, but for what may be gone because it is older than `forgotten`: what
/// says that something is deleted or has expired. Nothing else may be found in its place.
pub fn agrees(found: &RowSeen, expected: &RowSeen, forgotten: Option<i64>) -> bool {
    let one = |found: Option<&Seen>, expected: Option<&Seen>| {
        let is_evidence = |seen: &Seen| match seen {
            Seen::Null(timestamp, _) | Seen::Expired(timestamp, _) => {
                forgotten.is_some_and(|before| *timestamp < before)
            }
            Seen::Value(..) | Seen::Count(..) => false,
        };
        found == expected || (found.is_none() && expected.is_some_and(is_evidence))
    };
    let columns = found.cells.keys().chain(expected.cells.keys());
    let elements = found.elements.keys().chain(expected.elements.keys());
    let complex = found.column_deaths.keys().chain(expected.column_deaths.keys());
    one(found.marker.as_ref(), expected.marker.as_ref())
        && death_agrees(found.deletion, expected.deletion, forgotten)
        && columns.into_iter().all(|column| one(found.cells.get(column), expected.cells.get(column)))
        && elements.into_iter().all(|element| one(found.elements.get(element), expected.elements.get(element)))
        && complex.into_iter().all(|column| {
            let (found, expected) = (found.column_deaths.get(column), expected.column_deaths.get(column));
            death_agrees(found.copied(), expected.copied(), forgotten)
        })
}

/// As [`agrees`], of a deletion.
pub fn death_agrees(found: Option<Death>, expected: Option<Death>, forgotten: Option<i64>) -> bool {
    let is_old = |death: Death| forgotten.is_some_and(|before| death.timestamp < before);
    found == expected || (found.is_none() && expected.is_some_and(is_old))
}

/// Everything that was said of one partition.
#[derive(Debug, Clone, Default)]
pub struct Partition(Vec<Part>);

impl Partition {
    /// What a write says, of columns that are left.
    pub fn take(&mut self, write: &Write, is_left: impl Fn(u32) -> bool) {
        self.0.extend(write.parts.iter().filter(|part| part.column().is_none_or(&is_left)).cloned());
    }

    pub fn lose_column(&mut self, column: u32) {
        self.0.retain(|part| part.column() != Some(column));
    }

    /// The strongest deletion of the whole partition.
    pub fn death(&self) -> Option<Death> {
        let deaths = self.0.iter().filter_map(|part| match part {
            Part::DeletePartition(death) => Some(*death),
            _ => None,
        });
        deaths.max()
    }

    /// The strongest range deletion over a row, unless the partition's is as strong.
    pub fn range_death(&self, place: Place) -> Option<Death> {
        let deaths = self.0.iter().filter_map(|part| match part {
            Part::DeleteRange(range, death) if range.holds(place) => Some(*death),
            _ => None,
        });
        deaths.max().filter(|death| !covers(self.death(), death.timestamp))
    }

    /// What deletes everything of the row that is not later, except its own deletion.
    fn death_over(&self, place: Place) -> Option<Death> {
        // The later of the two; which of them does not matter for what they cover.
        self.death().max(self.range_death(place))
    }

    fn row_death(&self, place: Place) -> Option<Death> {
        let deaths = self.0.iter().filter_map(|part| match part {
            Part::DeleteRow(of, death) if *of == place => Some(*death),
            _ => None,
        });
        deaths.max().filter(|death| !covers(self.death_over(place), death.timestamp))
    }

    /// The strongest deletion of a row and of everything around it; of the partition, for what is static.
    fn cover(&self, at: Option<Place>) -> Option<Death> {
        match at {
            Some(place) => self.death_over(place).max(self.row_death(place)),
            None => self.death(),
        }
    }

    /// The winner of all versions of a cell that nothing covers; of a counter its shards, unless it was ever deleted.
    fn cell(&self, at: Option<Place>, column: u32, now_s: i64) -> Option<Seen> {
        let versions = self.0.iter().filter_map(|part| match part {
            Part::Cell(of, id, timestamp, content) if *of == at && *id == column => Some((*timestamp, content)),
            _ => None,
        });
        let cover = self.cover(at);
        winner(versions, cover, now_s).or_else(|| if cover.is_none() { self.count(at?, column) } else { None })
    }

    fn count(&self, place: Place, column: u32) -> Option<Seen> {
        let counts = self.0.iter().filter_map(|part| match part {
            Part::Count(of, id, timestamp, shard) if *of == place && *id == column => Some((*timestamp, *shard)),
            _ => None,
        });
        let timestamp = counts.clone().map(|(timestamp, _)| timestamp).max()?;
        let mut latest: BTreeMap<(u32, u64), Shard> = BTreeMap::new();
        for (_, shard) in counts {
            let held = latest.entry((shard.node, shard.incarnation)).or_insert(shard);
            if (held.clock, held.value) < (shard.clock, shard.value) {
                *held = shard;
            }
        }
        Some(Seen::Count(timestamp, latest.into_values().collect()))
    }

    /// The strongest deletion of a column that has many elements, by itself.
    fn own_column_death(&self, at: Option<Place>, column: u32) -> Option<Death> {
        let deaths = self.0.iter().filter_map(|part| match part {
            Part::DeleteColumn(of, id, death) if *of == at && *id == column => Some(*death),
            _ => None,
        });
        deaths.max()
    }

    fn element(&self, at: Option<Place>, column: u32, path: u8, now_s: i64) -> Option<Seen> {
        let versions = self.0.iter().filter_map(|part| match part {
            Part::Element(of, id, element, timestamp, content) if *of == at && *id == column && *element == path => {
                Some((*timestamp, content))
            }
            _ => None,
        });
        winner(versions, self.cover(at).max(self.own_column_death(at, column)), now_s)
    }

    fn marker(&self, place: Place, now_s: i64) -> Option<Seen> {
        let cover = self.cover(Some(place));
        let versions = self.0.iter().filter_map(|part| match part {
            Part::Marker(of, timestamp, lifetime) if *of == place => Some((*timestamp, *lifetime)),
            _ => None,
        });
        let as_cell = |lifetime| Content::Value(Value::default(), lifetime);
        let (timestamp, lifetime) = versions
            .filter(|(timestamp, _)| !covers(cover, *timestamp))
            .max_by(|a, b| rank(a.0, &as_cell(a.1)).cmp(&rank(b.0, &as_cell(b.1))))?;
        Some(seen(timestamp, &Value::default(), lifetime, now_s))
    }

    pub fn row(&self, place: Place, columns: &Columns, now_s: i64) -> RowSeen {
        let (marker, deletion) = (self.marker(place, now_s), self.row_death(place));
        RowSeen { marker, deletion, ..self.columns(Some(place), columns, now_s) }
    }

    pub fn static_row(&self, columns: &Columns, now_s: i64) -> RowSeen {
        self.columns(None, columns, now_s)
    }

    fn columns(&self, at: Option<Place>, Columns { simple, complex }: &Columns, now_s: i64) -> RowSeen {
        let cells = simple.iter().filter_map(|column| Some((*column, self.cell(at, *column, now_s)?)));
        let cover = self.cover(at);
        let column_deaths = complex.iter().filter_map(|column| {
            let death = self.own_column_death(at, *column)?;
            (!covers(cover, death.timestamp)).then_some((*column, death))
        });
        let paths = complex.iter().flat_map(|column| (0..PATHS).map(move |path| (*column, path)));
        let elements =
            paths.filter_map(|(column, path)| Some(((column, path), self.element(at, column, path, now_s)?)));
        let (cells, column_deaths, elements) = (cells.collect(), column_deaths.collect(), elements.collect());
        RowSeen { cells, column_deaths, elements, ..RowSeen::default() }
    }
}

/// The columns of a row, or the static ones.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    pub simple: &'static [u32],
    /// Those that have many elements.
    pub complex: &'static [u32],
}

/// Elements of a column that are written.
pub const PATHS: u8 = 3;

fn winner<'a>(versions: impl Iterator<Item = (i64, &'a Content)>, cover: Option<Death>, now_s: i64) -> Option<Seen> {
    let (timestamp, content) = versions
        .filter(|(timestamp, _)| !covers(cover, *timestamp))
        .max_by(|a, b| rank(a.0, a.1).cmp(&rank(b.0, b.1)))?;
    Some(match content {
        Content::Null { ldt_s } => Seen::Null(timestamp, *ldt_s),
        Content::Value(value, lifetime) => seen(timestamp, value, *lifetime, now_s),
    })
}

/// Equal timestamps: the deletion wins.
fn covers(death: Option<Death>, timestamp: i64) -> bool {
    death.is_some_and(|death| death.timestamp >= timestamp)
}

/// The order of versions, larger wins: timestamp; tombstones before what expires before what stays; then the local
/// deletion time or the expiry; then the smaller time to live; then the larger value.
fn rank(timestamp: i64, content: &Content) -> (i64, u8, i64, Reverse<u32>, &[u8]) {
    match content {
        Content::Null { ldt_s } => (timestamp, 2, *ldt_s, Reverse(0), &[]),
        Content::Value(value, Some(Lifetime { ttl_s, expiry_s })) => {
            (timestamp, 1, *expiry_s, Reverse(*ttl_s), value.0.as_slice())
        }
        Content::Value(value, None) => (timestamp, 0, 0, Reverse(0), value.0.as_slice()),
    }
}

fn seen(timestamp: i64, value: &Value, lifetime: Option<Lifetime>, now_s: i64) -> Seen {
    match lifetime {
        Some(lifetime) if lifetime.expiry_s <= now_s => Seen::Expired(timestamp, lifetime),
        lifetime => Seen::Value(timestamp, value.clone(), lifetime),
    }
}
