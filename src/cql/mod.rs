//! Words: CQL's data definition language, read and printed.
//!
//! ```text
//! statements ──lexer──► tokens with places ──parser──► DdlStatement (model::ddl)      metadata decides what becomes of it
//! Keyspace, Table ──describe──► statements that read back as the same
//! ```
//!
//! Understood: CREATE and DROP of KEYSPACE, TABLE and TYPE, ALTER of TABLE and TYPE, TRUNCATE, and USE. What CQL has beyond that is refused by its name, so that
//! nothing is understood in part. Every error says where it is, what stands there and what would be right.

mod alter;
mod describe;
mod lexer;
mod parser;
mod table;
mod types;

pub use describe::{describe, describe_with_types};
pub use parser::parse;

#[cfg(test)]
mod tests;
