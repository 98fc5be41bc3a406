//! What must never come out differently: the outcome of merges.

mod merge;
