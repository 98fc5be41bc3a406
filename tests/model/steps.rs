//! What happens in a history: drawn from a seed before anything is run, each step complete in itself, so that a history
//! from which steps were taken out is a history too.

use super::naive::{
    Columns, Content, Death, Edge, Lifetime, PATHS, Part, Place, Range, Shard, Side, Value, WORDS, Write,
};
use super::random::Random;

/// Partitions that are written; one more is only read.
pub const PARTITIONS: u8 = 4;
/// Regular columns with one value.
pub const SIMPLE: [u32; 3] = [1, 2, 3];
/// Regular columns with one value that a table has once they were added, in this order.
pub const LATE: [u32; 2] = [5, 6];
/// The one column of the second table where that is one of counters.
pub const COUNTER: u32 = 20;
pub const COUNTING_TABLE: usize = 1;
/// What is looked for in a row of any table.
pub const COLUMNS: Columns = Columns { simple: &[1, 2, 3, LATE[0], LATE[1], COUNTER], complex: &[4] };
pub const STATIC_COLUMNS: Columns = Columns { simple: &[8, 9], complex: &[10] };
const SECOND_US: i64 = 1_000_000;

#[derive(Debug, Clone)]
pub enum Step {
    /// Writes in one group: table and write each.
    Write(Vec<(usize, Write)>, Mode),
    Sync,
    /// The memtable that frees most.
    FlushNext,
    /// One table.
    Flush(usize),
    FlushAll,
    /// What is most urgent, in this second.
    Compact(i64),
    /// As few files of a table as there can be.
    CompactTable(usize, i64),
    /// All that was named up to this stamp is known to be everywhere: deletions that lie further back may be purged.
    Reconciled(i64),
    /// The process ends and begins again.
    Reopen(Ending),
    /// Power is lost after so many calls of the file system in the steps, or behind them. The seed decides what is left.
    PowerLoss {
        during: Vec<Step>,
        calls: u64,
        seed: u64,
        interrupted: Option<(u64, u64)>,
    },
    /// The next of [`LATE`] comes to a table.
    AddColumn(usize),
    /// A column of a table goes, with all that was written to it.
    DropColumn(usize, u32),
    /// A table goes, and another takes its place.
    Drop(usize),
    /// What is there now is kept by itself, and looked at in the end.
    Snapshot,
    FillDisk,
    MakeRoom,
    /// What one replica answers.
    Read(Read),
    /// What a client is shown.
    Select(Select),
}

impl Step {
    /// The clock of a step that looks at it.
    pub fn now_s(&self) -> Option<i64> {
        match self {
            Step::Read(read) => Some(read.now_s),
            Step::Select(select) => Some(select.now_s),
            Step::Compact(now_s) | Step::CompactTable(_, now_s) => Some(*now_s),
            Step::PowerLoss { during, .. } => during.iter().filter_map(Step::now_s).max(),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Visible once durable.
    Commit,
    /// Visible at once, durable directly afterwards.
    Periodic,
    /// Visible at once, durable some time.
    Lazy,
    /// Visible once durable, and no name bears witness of it: as what a read repair writes back.
    Repair,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Closed,
    Killed,
}

#[derive(Debug, Clone)]
pub enum Target {
    Partition(u8),
    /// Tokens behind that of the one partition, up to that of the other.
    Tokens(Option<u8>, Option<u8>),
}

#[derive(Debug, Clone)]
pub struct Read {
    pub table: usize,
    pub target: Target,
    /// Ascending, not overlapping; `None`: all rows, by saying nothing.
    pub slices: Option<Vec<Range>>,
    pub is_reverse: bool,
    pub now_s: i64,
    pub limit_rows: u32,
    pub limit_bytes: u32,
}

#[derive(Debug, Clone)]
pub struct Select {
    pub table: usize,
    pub targets: Vec<(Target, Vec<Range>)>,
    pub is_reverse: bool,
    pub now_s: i64,
    pub page_rows: u32,
    pub page_bytes: Option<u64>,
    pub rows_per_partition: Option<u32>,
    pub limit: Option<u64>,
    /// Bytes after which the replica ends an answer.
    pub answer_bytes: Option<u32>,
    /// Commands after which a page ends that is not full.
    pub commands: Option<u32>,
}

/// How much there is in a history at one time.
#[derive(Debug, Clone, Copy)]
pub struct Width {
    /// Values of the first clustering column that are written, from 0; one less and one more are only read.
    pub numbers: i32,
    /// Memory for memtables. Where there is little, writes meet its limit.
    pub memtables_bytes: u64,
    pub segment_bytes: u64,
    /// A write has up to so many operations.
    operations: u64,
    /// One value in so many is as long as a file's block is wide, or a good part of it.
    long_values_one_in: u64,
    /// Whether the second table is one of counters.
    pub counts: bool,
    /// How far behind its stamp a timestamp may be.
    pub lateness_s: i64,
    /// One of the ways in which files are compacted.
    pub compaction: usize,
}

/// Few rows, met again and again.
const NARROW: Width = Width {
    numbers: 4,
    memtables_bytes: 12 << 10,
    segment_bytes: 16 << 10,
    operations: 4,
    long_values_one_in: 40,
    counts: false,
    lateness_s: 8,
    compaction: 0,
};
/// Partitions over several blocks, and memtables that sort their rows otherwise.
const WIDE: Width = Width {
    numbers: 16,
    memtables_bytes: 400 << 10,
    segment_bytes: 256 << 10,
    operations: 16,
    long_values_one_in: 4,
    counts: false,
    lateness_s: 8,
    compaction: 0,
};

/// One history.
#[derive(Debug, Clone)]
pub struct History {
    pub width: Width,
    pub steps: Vec<Step>,
}

/// Steps of a history, at least and at most: the model looks at all that was written for each point of an answer.
const STEPS: (i64, i64) = (60, 700);
/// One history in so many is wide, and shorter.
const WIDE_ONE_IN: u64 = 5;
const WIDE_STEPS: (i64, i64) = (60, 250);

pub fn history(seed: u64) -> History {
    let mut random = Random::new(seed);
    let is_wide = random.one_in(WIDE_ONE_IN);
    let (width, (least, most)) = if is_wide { (WIDE, WIDE_STEPS) } else { (NARROW, STEPS) };
    let counts = random.one_in(3);
    let lateness_s = if random.one_in(4) { 3_600 } else { width.lateness_s };
    let width = Width { counts, lateness_s, compaction: random.below(4) as usize, ..width };
    let steps = random.between(least, most);
    let mut source = Source {
        width,
        random,
        now_us: 1_700_000_000 * SECOND_US,
        recent: Vec::new(),
        expiries: Vec::new(),
        rivals: Vec::new(),
    };
    let steps = (0..steps).map(|_| source.step()).collect();
    History { width, steps }
}

struct Source {
    width: Width,
    random: Random,
    /// The clock.
    now_us: i64,
    /// Timestamps given before, to be given again.
    recent: Vec<i64>,
    /// Seconds at which something expires that was written lately.
    expiries: Vec<i64>,
    /// Partition and part of late writes, to be met again at the same timestamp.
    rivals: Vec<(u8, Part)>,
}

impl Source {
    fn step(&mut self) -> Step {
        self.advance();
        match self.random.below(100) {
            0..46 => self.write(),
            46..47 => Step::Sync,
            47..54 => self.background(),
            54..57 => Step::Compact(self.now_s()),
            57..61 => Step::CompactTable(self.table(), self.now_s()),
            61..63 => Step::Reconciled(self.now_us - self.random.between(0, 6 * SECOND_US)),
            63..65 => self.restart(),
            65..67 => self.power_loss(),
            67..68 => self.disk(),
            68..86 => Step::Read(self.read()),
            _ => Step::Select(self.select()),
        }
    }

    /// The clock goes on: mostly by less than a second, now and then to just where something expires, rarely far.
    fn advance(&mut self) {
        self.now_us += 1 + self.random.below(900_000) as i64;
        if self.random.one_in(400) {
            self.now_us += self.random.between(1, 200_000) * SECOND_US;
        } else if self.random.one_in(30) {
            self.now_us += self.random.between(1, 60) * SECOND_US;
        } else if self.random.one_in(6) && !self.expiries.is_empty() {
            let at = self.random.below(self.expiries.len() as u64) as usize;
            let to = self.expiries.swap_remove(at) * SECOND_US + self.random.below(2) as i64 - 1;
            if (self.now_us..self.now_us + 300 * SECOND_US).contains(&to) {
                self.now_us = to;
            }
        }
    }

    fn now_s(&self) -> i64 {
        self.now_us.div_euclid(SECOND_US)
    }

    fn lateness_us(&self) -> i64 {
        self.width.lateness_s * SECOND_US
    }

    fn table(&mut self) -> usize {
        usize::from(self.random.one_in(4))
    }

    fn background(&mut self) -> Step {
        match self.random.below(6) {
            0 => Step::Flush(self.table()),
            1 => Step::FlushAll,
            _ => Step::FlushNext,
        }
    }

    fn restart(&mut self) -> Step {
        match self.random.below(12) {
            0 => Step::Drop(self.table()),
            7 if self.random.one_in(3) => {
                let columns = [SIMPLE[2], COLUMNS.complex[0], STATIC_COLUMNS.simple[0], LATE[0]];
                Step::DropColumn(self.table(), *self.random.pick(&columns))
            }
            8 if self.random.one_in(2) => Step::AddColumn(self.table()),
            1 | 2 => Step::Snapshot,
            3..7 => Step::Reopen(Ending::Closed),
            _ => Step::Reopen(Ending::Killed),
        }
    }

    fn power_loss(&mut self) -> Step {
        let during = (0..self.random.below(4)).map(|_| match self.random.below(5) {
            0 => Step::CompactTable(self.table(), self.now_s()),
            1 | 2 => self.background(),
            _ => self.write(),
        });
        let during = during.collect();
        Step::PowerLoss {
            during,
            calls: 1 + self.random.below(50),
            seed: self.random.next(),
            interrupted: self.random.maybe(4, |random| (1 + random.below(60), random.next())),
        }
    }

    fn disk(&mut self) -> Step {
        if self.random.one_in(3) { Step::FillDisk } else { Step::MakeRoom }
    }

    fn write(&mut self) -> Step {
        let writes = if self.random.one_in(8) { 2 + self.random.below(3) } else { 1 };
        let modes = [Mode::Commit, Mode::Commit, Mode::Commit, Mode::Periodic, Mode::Lazy, Mode::Repair];
        let mode = *self.random.pick(&modes);
        if self.width.numbers > NARROW.numbers && self.random.one_in(20) {
            return self.fill();
        }
        let one = |source: &mut Source| {
            source.now_us += 1;
            let table = source.table();
            if table == COUNTING_TABLE && source.width.counts {
                let partition = source.random.below(PARTITIONS.into()) as u8;
                return (table, Write { partition, stamp: source.now_us, parts: vec![source.counting()] });
            }
            if source.random.one_in(6)
                && let Some((partition, parts)) = source.rival()
            {
                return (table, Write { partition, stamp: source.now_us, parts });
            }
            let partition = source.random.below(PARTITIONS.into()) as u8;
            let operations = if source.random.one_in(5) { 2 + source.random.below(source.width.operations) } else { 1 };
            let parts: Vec<Part> = (0..operations).flat_map(|_| source.operation()).collect();
            source.remember(partition, &parts);
            (table, Write { partition, stamp: source.now_us, parts })
        };
        Step::Write((0..writes).map(|_| one(self)).collect(), mode)
    }

    /// What may be done to a table of counters.
    fn counting(&mut self) -> Part {
        let (place, timestamp) = (self.place(), self.timestamp());
        let death = Death { timestamp, ldt_s: self.now_s() };
        match self.random.below(20) {
            0 => Part::Cell(Some(place), COUNTER, timestamp, Content::Null { ldt_s: death.ldt_s }),
            1 => Part::DeleteRow(place, death),
            2 if self.random.one_in(3) => Part::DeleteRange(self.range(), death),
            3 if self.random.one_in(6) => Part::DeletePartition(death),
            _ => {
                let shard = Shard {
                    node: 1 + self.random.below(3) as u32,
                    incarnation: 1 + self.random.below(2),
                    clock: 1 + self.random.below(12),
                    value: self.random.between(-5, 1_000),
                };
                Part::Count(place, COUNTER, timestamp, shard)
            }
        }
    }

    /// Rows in one partition, one write each: enough that a memtable keeps them otherwise, and a file in several blocks.
    fn fill(&mut self) -> Step {
        let (table, partition) = (0, self.random.below(PARTITIONS.into()) as u8);
        let mut writes = Vec::new();
        for _ in 0..60 {
            self.now_us += 1;
            let timestamp = self.now_us;
            writes.push((table, Write { partition, stamp: timestamp, parts: self.cells(timestamp, true) }));
        }
        Step::Write(writes, Mode::Commit)
    }

    fn remember(&mut self, partition: u8, parts: &[Part]) {
        if let Some(part) = parts.last() {
            self.rivals.push((partition, part.clone()));
            if self.rivals.len() > 5 {
                self.rivals.remove(0);
            }
        }
    }

    /// Something that was written before, at the same timestamp once more, and otherwise a little different: who wins is up
    /// to the last of the rules.
    fn rival(&mut self) -> Option<(u8, Vec<Part>)> {
        if self.rivals.is_empty() {
            return None;
        }
        let (partition, part) = self.random.pick(&self.rivals).clone();
        let (now_s, now_us) = (self.now_s(), self.now_us);
        let later = |death: Death| Death { ldt_s: now_s, ..death };
        let timestamp_of = |part: &Part| match part {
            Part::Cell(_, _, timestamp, _)
            | Part::Element(_, _, _, timestamp, _)
            | Part::Count(_, _, timestamp, _)
            | Part::Marker(_, timestamp, _) => *timestamp,
            Part::DeleteColumn(_, _, death)
            | Part::DeleteRow(_, death)
            | Part::DeleteRange(_, death)
            | Part::DeletePartition(death) => death.timestamp,
        };
        if timestamp_of(&part) < now_us - self.lateness_us() {
            return None;
        }
        if let Part::DeleteRow(_, death) | Part::DeleteRange(_, death) | Part::DeletePartition(death) = &part
            && !self.random.one_in(4)
        {
            return Some((partition, self.late_for(&part, *death)));
        }
        let part = match part {
            Part::Cell(at, column, timestamp, Content::Value(_, Some(lifetime))) => {
                let lifetime = self.rival_lifetime(lifetime);
                Part::Cell(at, column, timestamp, self.content(lifetime))
            }
            Part::Element(at, column, path, timestamp, _) => {
                let lifetime = self.lifetime();
                Part::Element(at, column, path, timestamp, self.content(lifetime))
            }
            Part::DeleteColumn(at, column, death) => Part::DeleteColumn(at, column, later(death)),
            Part::Count(..) => return None,
            Part::Cell(at, column, timestamp, _) => {
                let lifetime = self.lifetime();
                Part::Cell(at, column, timestamp, self.content(lifetime))
            }
            Part::Marker(place, timestamp, Some(lifetime)) => {
                Part::Marker(place, timestamp, self.rival_lifetime(lifetime))
            }
            Part::Marker(place, timestamp, None) => Part::Marker(place, timestamp, self.lifetime()),
            Part::DeleteRow(place, death) => Part::DeleteRow(place, later(death)),
            Part::DeleteRange(range, death) => Part::DeleteRange(range, later(death)),
            Part::DeletePartition(death) => Part::DeletePartition(later(death)),
        };
        Some((partition, vec![part]))
    }

    /// A row that a deletion has deleted before it comes.
    fn late_for(&mut self, part: &Part, death: Death) -> Vec<Part> {
        let mut place = self.place();
        match part {
            Part::DeleteRow(of, _) => place = *of,
            Part::DeleteRange(range, _) => {
                let others = (0..8).map(|_| self.place()).collect::<Vec<_>>();
                place = others.into_iter().find(|place| range.holds(*place)).unwrap_or(place);
            }
            _ => {}
        }
        let timestamp = death.timestamp - self.random.below(2) as i64 * self.random.between(0, SECOND_US);
        let timestamp = timestamp.max(self.now_us - self.lateness_us());
        let column = *self.random.pick(&SIMPLE);
        vec![Part::Cell(Some(place), column, timestamp, self.content(None)), Part::Marker(place, timestamp, None)]
    }

    /// The same end by a time to live that began now, if it is still to come.
    fn rival_lifetime(&mut self, Lifetime { expiry_s, .. }: Lifetime) -> Option<Lifetime> {
        let left_s = expiry_s - self.now_s();
        if left_s > 0 && !self.random.one_in(4) {
            return Some(Lifetime { ttl_s: left_s as u32, expiry_s });
        }
        self.lifetime()
    }

    fn operation(&mut self) -> Vec<Part> {
        let timestamp = self.timestamp();
        let death = Death { timestamp, ldt_s: self.now_s() };
        match self.random.below(100) {
            0..30 => self.cells(timestamp, false),
            30..64 => self.cells(timestamp, true),
            64..74 => {
                let (columns, lifetime) = (STATIC_COLUMNS, self.lifetime());
                if self.random.one_in(3) {
                    return self.complex(None, columns.complex[0], timestamp, lifetime);
                }
                let column = *self.random.pick(columns.simple);
                vec![Part::Cell(None, column, timestamp, self.content(lifetime))]
            }
            74..85 => vec![Part::DeleteRow(self.place(), death)],
            85..97 => vec![Part::DeleteRange(self.range(), death)],
            _ => vec![Part::DeletePartition(death)],
        }
    }

    /// An UPDATE of a row, or an INSERT.
    fn cells(&mut self, timestamp: i64, inserts: bool) -> Vec<Part> {
        let (place, lifetime) = (self.place(), self.lifetime());
        let mut parts = Vec::new();
        if self.random.one_in(4) {
            parts.extend(self.complex(Some(place), COLUMNS.complex[0], timestamp, lifetime));
        }
        for (columns, one_in) in [(&SIMPLE[..], 2), (&LATE, 4)] {
            for column in columns {
                if self.random.one_in(one_in) {
                    parts.push(Part::Cell(Some(place), *column, timestamp, self.content(lifetime)));
                }
            }
        }
        if inserts {
            parts.push(Part::Marker(place, timestamp, lifetime));
        }
        parts
    }

    /// Elements of a column that are written one by one, or all at once: then what was there before goes.
    fn complex(&mut self, at: Option<Place>, column: u32, timestamp: i64, lifetime: Option<Lifetime>) -> Vec<Part> {
        let mut parts = Vec::new();
        let ldt_s = self.now_s();
        match self.random.below(6) {
            0 => parts.push(Part::DeleteColumn(at, column, Death { timestamp, ldt_s })),
            1 | 2 if timestamp > self.now_us - self.lateness_us() => {
                parts.push(Part::DeleteColumn(at, column, Death { timestamp: timestamp - 1, ldt_s }));
            }
            _ => {}
        }
        for path in 0..PATHS {
            if self.random.one_in(2) {
                parts.push(Part::Element(at, column, path, timestamp, self.content(lifetime)));
            }
        }
        parts
    }

    /// Mostly the stamp; often one that was given before, or the whole second; now and then late or from the future.
    fn timestamp(&mut self) -> i64 {
        let now = self.now_us;
        let timestamp = match self.random.below(20) {
            0..8 => now,
            8..12 if !self.recent.is_empty() => *self.random.pick(&self.recent.clone()),
            12..15 => self.now_s() * SECOND_US,
            15 => now - self.random.between(0, 20 * SECOND_US),
            16 => now - self.random.between(0, self.lateness_us()),
            17 => now - self.lateness_us(),
            18 => now + self.random.between(0, 5 * SECOND_US),
            _ if self.random.one_in(20) => now + 3 * 86_400 * SECOND_US,
            _ => now,
        };
        let timestamp = timestamp.max(now - self.lateness_us());
        self.recent.push(timestamp);
        if self.recent.len() > 6 {
            self.recent.remove(0);
        }
        timestamp
    }

    fn lifetime(&mut self) -> Option<Lifetime> {
        let ttl_s = match self.random.below(10) {
            0..3 => 1 + self.random.below(6) as u32,
            3 => *self.random.pick(&[60, 3_600, 630_720_000]),
            _ => return None,
        };
        let expiry_s = self.now_s() + i64::from(ttl_s);
        if ttl_s < 100 {
            self.expiries.push(expiry_s);
        }
        Some(Lifetime { ttl_s, expiry_s })
    }

    fn content(&mut self, lifetime: Option<Lifetime>) -> Content {
        if self.random.one_in(6) {
            return Content::Null { ldt_s: self.now_s() };
        }
        let value = match self.random.below(self.width.long_values_one_in) {
            0 => vec![self.random.below(256) as u8; 2_000],
            1 => format!("{:0200}", self.random.below(1_000)).into_bytes(),
            _ => self.random.pick(&[&b""[..], b"a", b"a\0", b"ab", &[0xff], &[0x7f], &[0x80]]).to_vec(),
        };
        Content::Value(Value(value), lifetime)
    }

    fn place(&mut self) -> Place {
        let a = self.random.below(self.width.numbers as u64) as i32;
        Place { a, b: self.random.below(WORDS.len() as u64) as usize }
    }

    fn edge(&mut self) -> Edge {
        let (place, which) = (self.place(), self.random.below(8));
        Edge {
            a: (which > 0).then_some(place.a),
            b: (which > 3).then_some(place.b),
            side: if self.random.one_in(2) { Side::Before } else { Side::After },
        }
    }

    /// Any two edges, the wrong way round too; but mostly the right one.
    fn range(&mut self) -> Range {
        match self.random.below(8) {
            0 => Range { from: Edge::FIRST, to: self.edge() },
            1 => Range { from: self.edge(), to: Edge::LAST },
            2 => {
                let edge = self.edge();
                Range { from: Edge { side: Side::Before, ..edge }, to: Edge { side: Side::After, ..edge } }
            }
            _ => {
                let (one, two) = (self.edge(), self.edge());
                let is_turned = !self.random.one_in(10) && two.order() < one.order();
                if is_turned { Range { from: two, to: one } } else { Range { from: one, to: two } }
            }
        }
    }

    /// Ascending, not overlapping; they may touch and be empty.
    fn slices(&mut self) -> Vec<Range> {
        if self.random.one_in(3) {
            return vec![Range::ALL];
        }
        if self.random.one_in(4) {
            let Place { a, b } = self.place();
            let edge = |side| Edge { a: Some(a), b: Some(b), side };
            return vec![Range { from: edge(Side::Before), to: edge(Side::After) }];
        }
        let mut edges: Vec<Edge> = (0..2 * (1 + self.random.below(3))).map(|_| self.edge()).collect();
        edges.sort_by_key(|edge| edge.order());
        edges.chunks(2).map(|pair| Range { from: pair[0], to: pair[1] }).collect()
    }

    fn target(&mut self) -> Target {
        let partition = |random: &mut Random| random.below(u64::from(PARTITIONS) + 1) as u8;
        match self.random.below(5) {
            0 => Target::Tokens(None, None),
            1 => Target::Tokens(self.random.maybe(2, partition), self.random.maybe(2, partition)),
            _ => Target::Partition(partition(&mut self.random)),
        }
    }

    fn read(&mut self) -> Read {
        Read {
            table: self.table(),
            target: self.target(),
            slices: if self.random.one_in(4) { None } else { Some(self.slices()) },
            is_reverse: self.random.one_in(2),
            now_s: self.now_s(),
            limit_rows: if self.random.one_in(3) { u32::MAX } else { 1 + self.random.below(6) as u32 },
            limit_bytes: match self.random.below(8) {
                0 => 1,
                1 => 1 + self.random.below(300) as u32,
                _ => u32::MAX,
            },
        }
    }

    /// Now and then of someone who takes large pages and gives each up after the first small answer.
    fn select(&mut self) -> Select {
        let select = self.any_select();
        if !self.random.one_in(8) {
            return select;
        }
        let answer_bytes = Some(1 + self.random.below(150) as u32);
        Select { page_rows: 5_000, page_bytes: None, answer_bytes, commands: Some(1), ..select }
    }

    fn any_select(&mut self) -> Select {
        Select {
            table: self.table(),
            targets: (0..1 + self.random.below(2)).map(|_| (self.target(), self.slices())).collect(),
            is_reverse: self.random.one_in(2),
            now_s: self.now_s(),
            page_rows: if self.random.one_in(4) { 5_000 } else { 1 + self.random.below(7) as u32 },
            page_bytes: self.random.maybe(8, |random| 1 + random.below(300)),
            rows_per_partition: self.random.maybe(4, |random| 1 + random.below(4) as u32),
            limit: self.random.maybe(4, |random| 1 + random.below(15)),
            answer_bytes: self.random.maybe(4, |random| 1 + random.below(300) as u32),
            commands: self.random.maybe(6, |random| 1 + random.below(4) as u32),
        }
    }
}
