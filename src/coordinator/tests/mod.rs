//! The coordinator's state machines, driven against replicas that live in memory.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod consistency;
mod digest;
mod guards;
mod pages;
mod paging;
mod read;
mod repair;
mod replica;
mod write;
