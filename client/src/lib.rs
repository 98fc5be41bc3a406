//! The client of Trefoil.
//!
//! A [`Client`] knows the topology of its cluster and sends each request straight to a replica of its key, in its own
//! zone if it can, over one warm stream per node. Requests that fail are tried again where that is safe: elsewhere, after
//! growing delays, within a deadline and a budget. Every write carries the client's own timestamp, so that sending it
//! twice is the same as sending it once; what a client has read is older than whatever it writes next.
//!
//! ```no_run
//! use futures_util::TryStreamExt;
//! use trefoil_client::{Client, Consistency};
//!
//! # async fn example() -> trefoil_client::Result<()> {
//! let client = Client::builder(["127.0.0.1:9440"]).zone("a").connect().await?;
//!
//! client.insert("demo.flights").key("origin", "JFK").key("day", 3).value("delay", None::<i32>).ttl_s(3_600).send().await?;
//! client.update("demo.flights").key("origin", "JFK").key("day", 3).value("delay", 12).send().await?;
//!
//! let flight = client.select("demo.flights").key("origin", "JFK").key("day", 3).one().await?;
//! let delay: Option<i32> = flight.map(|row| row.get("delay")).transpose()?.flatten();
//! assert_eq!(delay, Some(12));
//!
//! let mut late = client.select("demo.flights").key("origin", "JFK").at_least("day", 2).consistency(Consistency::One).stream();
//! while let Some(row) = late.try_next().await? {
//!     println!("{}", row.get::<i32>("day")?);
//! }
//! client.delete("demo.flights").key("origin", "JFK").send().await?;
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! write, select ─► schema (names, values ─► keys, cells) ─► client: execute ─► routing (which nodes) ─► node ─► pipe
//!                                                              ▲ retry: decide, backoff, budget
//! ```

mod admin;
mod backup;
mod client;
mod error;
mod increment;
mod node;
mod pipe;
mod place;
mod restores;
mod retry;
mod routing;
mod row;
mod schema;
mod select;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use admin::{Schema, SnapshotOf};
pub use client::{Client, ClientBuilder};
pub use error::{Error, Result};
pub use increment::Increment;
pub use retry::Repetition;
pub use row::{CellMetadata, ElementMetadata, FromRow, Heading, Row, path_type};
pub use schema::TableView;
pub use select::{Page, Pages, Rows, Select};
pub use trefoil::model::{Token, TokenRange, Type, Value};
pub use trefoil_proto::v1::{Consistency, Outcome, ReadCost, WriteResult};
pub use value::{FromValue, IntoValue};
pub use write::{Batch, ToRow, Write};
