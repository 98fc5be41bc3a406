//! What one read asks of one replica, and how far the answer reaches.
//!
//! Pages are positions, not counts. A replica answers fragments up to a limit and says how far it got
//! ([`PageEnd`]); whoever merges several answers trusts each only up to its own end, and asks again from there. Nothing
//! but the position crosses from one page to the next.

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
    /// Stop after this many visible rows. At least 1.
    pub limit_rows: u32,
    /// Stop after this many visible rows of one partition; 0: no such limit.
    pub limit_rows_per_partition: u32,
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
    /// Encoded fragments (codec/entry.rs): merged, tombstones included, clipped to the slices and to `end`.
    pub entries: Bytes,
    /// How far it reaches.
    pub end: PageEnd,
}
