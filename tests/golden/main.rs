//! What must never come out differently: the outcome of merges, and the bytes of every persisted kind, kept as files.

mod backup;
mod bytes;
mod hints;
mod kept;
mod log;
mod merge;
mod metadata;
mod received;
mod sstable;
mod store;
