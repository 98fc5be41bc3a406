//! What a node does with a request: whom to ask, when enough have answered, what to answer. State machines only; the
//! server sends, waits and keeps the time.
//!
//! ```text
//! write   Requirement::new(level, regions) ─► WriteOp::start(alive) ─► send to all live replicas
//!         acknowledge / fail / expire ─► the answer, once
//! read    nearest_first ─► ReadOp (page and digests, widen, merge, repair) ─► Assembler (rows, limits) ─► ReadOp from there, or a page
//! ```
//!
//! **Invariants:** an acknowledgement counts once, by replica · whether a level can be met is decided before anything is
//! sent (B110) · what lies outside a level's scope is neither asked nor repaired (B109) · an answer is complete up to
//! its end position and says nothing beyond.

pub mod assemble;
pub mod choice;
pub mod consistency;
pub mod digest;
pub mod paging;
pub mod plan;
pub mod read;
pub mod read_repair;
#[cfg(test)]
mod tests;
pub mod write;

pub use assemble::{Assembler, Extent, LargeRow, Next, PageLimits, ReadGuards, ResultRow};
pub use choice::{Budget, Speed};
pub use consistency::{Consistency, REPLICAS_MAX, ReplicaMask, Requirement, bit, indices};
pub use digest::{Digest, Unseen, digest};
pub use paging::{PagingState, Resume, Start};
pub use plan::{Distance, Load, best_first, nearest_first};
pub use read::{ReadAction, ReadAnswer, ReadError, ReadOp, Waiting, Want};
pub use write::{FailureReason, Unavailable, WriteError, WriteOp};
