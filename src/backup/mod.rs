//! What a backup is made of, as it stands in a bucket, and what follows from it. No request is made here.
//!
//! ```text
//!   every node   SSTable ──as soon as it exists──► obj/..             log ──piece by piece──► log/<node>/<number>
//!   a backup     snapshot of each node ─► part/<backup>/<node>
//!                cut: later than every stamp in the parts ─► each log archived until it is closed through the cut
//!                all there ─► backup/<backup>, written last ─► index
//!   a restore    to T >= cut: the files of the parts, and all archived records stamped at or before T
//! ```
//!
//! Files cannot be cut by stamps, records can: so the files of a backup lie wholly before its cut, and everything later comes from
//! the log. What is restored to T is what all mutations stamped at or before T amount to: a prefix of history,
//! since whoever has seen a mutation stamps later than it.
//!
//! **Invariants:** an object is never changed once it is there, but for the index and intents · every own object carries its
//! kind, version, cluster and hash · keys are made of ids and numbers alone · a manifest is the only definition of a
//! backup, and lists nothing that is not there (B035).

mod complete;
mod condemned;
mod index;
mod intent;
pub mod layout;
mod manifest;
pub mod mark;
mod object;
mod part;
mod piece;
#[cfg(test)]
mod simulation;
mod source;
#[cfg(test)]
mod tests;

pub use complete::{Chain, Incomplete, check};
pub use condemned::{Condemned, Lease};
pub use index::{Index, IndexEntry};
pub use intent::{Intent, LASTS_MAX_US, Phase};
pub use manifest::{Absent, Listed, ListedPart, ListedPiece, Manifest, Scope};
pub use object::{Head, HeadRead, Kind};
pub use part::{Part, StoredFile};
pub use piece::{Piece, PieceHead, StateAt};
pub use source::{Covered, covering};
