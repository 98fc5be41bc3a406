//! The command line.
pub mod csv;
mod duration;
pub mod json;
pub mod row;
pub mod text;
