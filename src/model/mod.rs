//! What the data is: plain values, no files, no clock, no bytes of any format.
//!
//! ```text
//! Keyspace ─► Table ─► Partition   key, token; Deletion?; static Row?
//!                        │
//!                        ├─► Row      ClusteringKey; Liveness? (the marker); Deletion?; Cells by column id;
//!                        │          Complex columns: Deletion?; Cells by path
//!                        └─► Range    Bound .. Bound; Deletion
//! ```
//!
//! Two versions of anything become one by [`reconcile`], a pure function of the stored fields: commutative,
//! associative, idempotent, and independent of when a replica compacted or looked at its clock. [`merge`] applies it
//! to any number of sorted runs. All values are CQL wire bytes ([`Value`] is their typed face).

#[cfg(test)]
pub(crate) mod arbitrary;
pub mod cell;
pub mod collection;
pub mod compaction;
pub mod complex;
pub mod cost;
pub mod counter;
pub mod ddl;
mod duration;
pub mod fragment;
pub mod key;
pub mod list;
pub mod lone;
pub mod merge;
pub mod mutation;
#[cfg(test)]
pub(crate) mod naive;
pub mod name;
mod ordered;
pub mod query;
pub mod ranges;
pub mod reconcile;
pub mod row;
pub mod schema;
pub mod time;
pub mod token;
pub mod types;
pub mod usertype;
pub mod value;

pub use cell::{Cell, CellKind, Deletion, Liveness, LivenessKind};
pub use compaction::{CompactionOptions, Scaling};
pub use complex::Complex;
pub use cost::ReadCost;
pub use counter::{Counter, Shard};
pub use ddl::{
    AlterTable, AlterType, ColumnDefinition, CreateKeyspace, CreateTable, CreateType, DdlStatement, DropKeyspace,
    DropTable, DropType, OptionChanges, TruncateTable,
};
pub use fragment::{Direction, Fragment, PartitionHeader};
pub use key::{Bound, ClusteringKey, Edge, PartitionKey, Slice};
pub use lone::{Glance, Lone};
pub use merge::{Merge, Reconcile, Step, Stream};
pub use mutation::{Mutation, MutationBuilder, RangeDeletion};
pub use name::{Identity, MutationName, NodeId};
pub use query::{Page, PageEnd, PagePosition, ReadCommand, RowPosition, ScanRange, Target};
pub use ranges::Ranges;
pub use row::{Place, Row};
pub use schema::{
    Column, ColumnId, ColumnKind, Durability, Keyspace, KeyspaceId, LiveColumns, Order, Table, TableId, TableOptions,
};
pub use time::{Instant, Stamp, Timestamp};
pub use token::{Token, TokenRange, Vnode, VnodeBits, fingerprint};
pub use types::Type;
pub use usertype::{Field, UserType, UserTypes};
pub use value::Value;
