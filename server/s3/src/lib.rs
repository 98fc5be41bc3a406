//! The door to S3: objects by key, whatever the endpoint; the limits under which they are moved; and files that are objects.
//!
//! ```text
//!   ObjectStore      get, head, create, replace, upload, list, delete         store.rs
//!     ├─ S3          any S3-compatible endpoint: retries, deadlines, limits   s3/
//!     ├─ Memory      a bucket in memory                                       memory.rs
//!     ├─ Faulty      any of them, failing by plan                             faulty.rs
//!     └─ Below       any of them, under a prefix                              below.rs
//!   ObjectFiles      a read-only `vfs` whose files are objects                files.rs
//!   repository       the backups of one cluster, for whoever reads them       repository/
//!   local            an S3 of one's own on loopback (feature `local`)         local/
//! ```
//!
//! One suite of tests runs on all of them. Nothing is overwritten by accident: an object is made by `create` or `upload`, which
//! find out that it is there already, or changed by `replace`, which compares first.
//!
//! **Invariants:** no byte of an object goes through a file of this machine on its way · what is answered has the length that
//! was asked for · an error names the object, what was tried and what to do · credentials appear nowhere.

mod below;
mod error;
mod faulty;
mod files;
mod limits;
#[cfg(feature = "local")]
pub mod local;
mod location;
mod memory;
pub mod repository;
mod s3;
mod store;
#[cfg(test)]
mod tests;

pub use below::Below;
pub use error::{Class, Error, Result};
pub use faulty::{Call, Fault, Faulty};
pub use files::{ObjectFiles, Whereabouts};
pub use limits::Limits;
pub use location::Location;
pub use memory::Memory;
pub use s3::{Asked, S3, Traffic};
pub use store::{
    Creation, Found, KEYS_PER_PAGE, KeyPage, Listed, Object, ObjectMeta, ObjectStore, Source, Tag, UnfinishedUpload,
};
