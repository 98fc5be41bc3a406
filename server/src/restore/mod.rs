//! Restores: what one will do, who sees it through, and what each node loads.
//!
//! ```text
//!   Restore service ─► plan: moment, tables with new ids, every object there? ─► RestoreBegun in the metadata
//!   driver, on the lowest node alive ─► share, on every node ─► all done ─► Restored: the tables are open
//! ```

mod driver;
mod plan;
pub mod share;

pub(crate) use driver::{call, run};
pub(crate) use plan::{Plan, failed, id, invalid, location, place, plan};
