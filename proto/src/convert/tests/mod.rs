//! Laws of the conversions, and a table of what clients get wrong.

#![allow(clippy::unwrap_used, reason = "tests")]

mod schema;
