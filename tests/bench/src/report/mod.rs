//! What a run has found, for people and for programs.

mod grid;
mod page;

use std::time::Duration;

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::sample::{Series, Spread};

pub use grid::{Digits, Grid};
pub use page::{Marks, page};

/// A run.
#[derive(Debug)]
pub struct Report {
    machine: Machine,
    rounds: usize,
    /// How long it took.
    pub took: Duration,
    /// Before and behind it.
    pub load_average: (f64, f64),
    tables: Vec<Table>,
    grids: Vec<Grid>,
    ratios: Vec<Ratio>,
    facts: Vec<String>,
}

/// Things that were measured in turn.
#[derive(Debug)]
pub struct Table {
    title: String,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    what: String,
    cpu_us: Spread,
    per_second: Spread,
    /// p50, p99 and p99.9 in microseconds, of all rounds together.
    latency_us: Option<[u64; 3]>,
}

/// Two things compared, round by round.
#[derive(Debug)]
struct Ratio {
    what: String,
    value: Spread,
    goal: Option<Goal>,
}

/// Where a ratio should lie.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// Not above.
    AtMost(f64),
    /// Not below.
    AtLeast(f64),
}

impl Report {
    /// An empty one.
    pub fn new(machine: Machine, rounds: usize) -> Report {
        let (tables, grids, ratios, facts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Report { machine, rounds, took: Duration::ZERO, load_average: (0.0, 0.0), tables, grids, ratios, facts }
    }

    /// The table of this title, begun if it is new.
    pub fn table(&mut self, title: &str) -> &mut Table {
        let at = self.tables.iter().position(|table| table.title == title).unwrap_or_else(|| {
            self.tables.push(Table { title: title.to_owned(), rows: Vec::new() });
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }

    /// Adds a table of other figures.
    pub fn grid(&mut self, grid: Grid) {
        self.grids.push(grid);
    }

    /// Adds a comparison without a goal.
    pub fn ratio(&mut self, what: String, value: Spread) {
        self.ratios.push(Ratio { what, value, goal: None });
    }

    /// Adds a comparison with a goal.
    pub fn goal(&mut self, what: String, value: Spread, goal: Goal) {
        self.ratios.push(Ratio { what, value, goal: Some(goal) });
    }

    /// Adds what was seen beside the figures, as a sentence without its full stop.
    pub fn fact(&mut self, fact: String) {
        self.facts.push(fact);
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let spread = |spread: &Spread| json!({ "median": spread.median, "min": spread.min, "max": spread.max });
        let row = |row: &Row| {
            json!({ "what": row.what, "cpu_us_per_op": spread(&row.cpu_us), "ops_per_s": spread(&row.per_second),
                    "latency_us": row.latency_us.map(|[p50, p99, p999]| json!({ "p50": p50, "p99": p99, "p999": p999 })) })
        };
        let table =
            |table: &Table| json!({ "title": table.title, "rows": table.rows.iter().map(row).collect::<Value>() });
        let ratio = |ratio: &Ratio| {
            let (at_most, at_least) = match ratio.goal {
                Some(Goal::AtMost(limit)) => (Some(limit), None),
                Some(Goal::AtLeast(limit)) => (None, Some(limit)),
                None => (None, None),
            };
            json!({ "what": ratio.what, "value": spread(&ratio.value), "at_most": at_most, "at_least": at_least,
                    "reached": ratio.goal.map(|goal| goal.is_reached_by(ratio.value.median)) })
        };
        json!({
            "machine": { "cores": self.machine.cores, "processor": self.machine.processor,
                         "memory_gib": self.machine.memory_gib, "kernel": self.machine.kernel },
            "rounds": self.rounds,
            "seconds": self.took.as_secs_f64(),
            "load_average": [self.load_average.0, self.load_average.1],
            "tables": self.tables.iter().map(table).collect::<Value>(),
            "grids": self.grids.iter().map(Grid::json).collect::<Value>(),
            "ratios": self.ratios.iter().map(ratio).collect::<Value>(),
            "facts": self.facts,
        })
    }
}

impl Table {
    /// Adds what was measured.
    pub fn row(&mut self, what: String, series: &Series) {
        let (cpu_us, per_second) = (series.cpu_us(), series.per_second());
        self.rows.push(Row { what, cpu_us, per_second, latency_us: None });
    }

    /// Adds what was measured, with p50, p99 and p99.9 in microseconds.
    pub fn row_with_latency(&mut self, what: String, series: &Series, latency_us: [u64; 3]) {
        self.row(what, series);
        if let Some(row) = self.rows.last_mut() {
            row.latency_us = Some(latency_us);
        }
    }
}

impl Goal {
    fn is_reached_by(self, value: f64) -> bool {
        match self {
            Goal::AtMost(limit) => value <= limit,
            Goal::AtLeast(limit) => value >= limit,
        }
    }
}
