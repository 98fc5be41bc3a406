//! What one read asks of one replica, and how far the answer reaches.
//!
//! Pages are positions, not counts. A replica answers fragments up to a limit and says how far it got
//! ([`PageEnd`]); whoever merges several answers trusts each only up to its own end, and asks again from there. Nothing
//! but the position crosses from one page to the next.

use std::cmp::Ordering;

use bytes::Bytes;

use super::fragment::Direction;
use super::key::{Bound, ClusteringKey, PartitionKey, Slice};
use super::schema::TableId;
use super::token::{Token, TokenRange};

/// A read of one table, as a replica executes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadCommand {
    /// The table.
    pub table: TableId,
    /// Which partitions.
    pub target: Target,
    /// Which rows of each partition: ascending, not overlapping. Empty: all rows.
    pub slices: Vec<Slice>,
    /// The order of rows inside each partition.
    pub direction: Direction,
    /// Where the page before ended; `None` for the first page.
    pub after: Option<PagePosition>,
    /// The coordinator's clock, seconds since 1970: decides what is expired, the same on every replica.
    pub now_s: i64,
    /// Stop after this many visible rows; a partition of which only static values are visible counts as one. At least 1.
    ///
    /// There is no limit per partition here: a replica that left out the rest of a partition could not be merged with
    /// one that has a deletion there. The coordinator applies it after the merge.
    pub limit_rows: u32,
    /// Stop once the encoded answer is this large; at least one fragment is always answered.
    pub limit_bytes: u32,
}

/// Which partitions a read touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One partition.
    Partition(PartitionKey),
    /// All partitions with a token in the range, in order of (token, key bytes).
    Scan(TokenRange),
}

/// A place between two rows of a read, in the direction of the read. It exists whether or not the row it was taken from
/// still does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagePosition {
    /// The partition.
    pub partition: PartitionKey,
    /// The place in it.
    pub row: RowPosition,
}

/// A place within a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowPosition {
    /// After the partition's header (its deletion and static row), before its first row.
    Header,
    /// After everything up to and including this row, in the direction of the read.
    After(ClusteringKey),
    /// After everything up to this bound, in the direction of the read (a page that ended among tombstones).
    At(Bound),
    /// After the last row.
    End,
}

/// How far an answer reaches. The answer is complete up to there and says nothing about what lies behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageEnd {
    /// Everything the command targets has been answered.
    Complete,
    /// A limit cut the answer at this place.
    At(PagePosition),
}

/// The partitions that a source is asked to scan, in order of (token, key bytes).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScanRange {
    /// Only partitions behind this one, if given.
    pub after: Option<(Token, Bytes)>,
    /// Only tokens within.
    pub tokens: TokenRange,
}

/// A replica's answer to a [`ReadCommand`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Encoded fragments (codec/entry.rs): merged, tombstones included, clipped to the slices and to `end`. A page that
    /// goes on within a partition begins with its header again, and with the range deletion in force there; it ends
    /// behind them.
    pub entries: Bytes,
    /// How far it reaches.
    pub end: PageEnd,
}

impl PageEnd {
    /// Compares how far two answers reach, in the direction of the read.
    pub fn compare(&self, other: &PageEnd, direction: Direction) -> Ordering {
        match (self, other) {
            (PageEnd::Complete, PageEnd::Complete) => Ordering::Equal,
            (PageEnd::Complete, PageEnd::At(_)) => Ordering::Greater,
            (PageEnd::At(_), PageEnd::Complete) => Ordering::Less,
            (PageEnd::At(a), PageEnd::At(b)) => {
                a.partition.cmp(&b.partition).then_with(|| a.row.compare(&b.row, direction))
            }
        }
    }
}

impl RowPosition {
    /// Compares two places within one partition, in the direction of the read.
    pub fn compare(&self, other: &RowPosition, direction: Direction) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| match (self.bound(direction), other.bound(direction)) {
            (Some(a), Some(b)) => direction.order(a.bytes().cmp(b.bytes())),
            _ => Ordering::Equal,
        })
    }

    /// The place as a bound: everything before it, in the direction of the read, lies before this position. `None` for
    /// the header and the end, which lie outside all rows.
    pub fn bound(&self, direction: Direction) -> Option<Bound> {
        match (self, direction) {
            (RowPosition::After(key), Direction::Forward) => Some(key.after()),
            (RowPosition::After(key), Direction::Reverse) => Some(key.before()),
            (RowPosition::At(bound), _) => Some(bound.clone()),
            (RowPosition::Header | RowPosition::End, _) => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            RowPosition::Header => 0,
            RowPosition::After(_) | RowPosition::At(_) => 1,
            RowPosition::End => 2,
        }
    }
}
