//! A table of any figures: one row for each thing that is compared, one column for each figure. The page shows how far
//! the first figure of each row spreads, and medians of the others; JSON has it all.

use std::fmt::Write;

use serde_json::{Value, json};

use super::page::{spread, thousands, two_digits};
use crate::sample::Spread;

/// See the module.
#[derive(Debug)]
pub struct Grid {
    title: String,
    columns: Vec<(&'static str, Digits)>,
    rows: Vec<(String, Vec<Spread>)>,
}

/// How a column's numbers are shown.
#[derive(Debug, Clone, Copy)]
pub enum Digits {
    /// Two that count.
    Two,
    /// In thousands where they are large.
    Thousands,
}

impl Grid {
    /// An empty one.
    pub fn new(title: String, columns: Vec<(&'static str, Digits)>) -> Grid {
        Grid { title, columns, rows: Vec::new() }
    }

    /// Adds a row; one figure for each column.
    pub fn row(&mut self, what: &str, figures: Vec<Spread>) {
        self.rows.push((what.to_owned(), figures));
    }

    pub(super) fn markdown(&self, text: &mut String) {
        let heads: String = self.columns.iter().map(|(head, _)| format!(" {head} |")).collect();
        let _ = write!(text, "\n| {} |{heads}\n|---|{}\n", self.title, "---|".repeat(self.columns.len()));
        for (what, figures) in &self.rows {
            let _ = write!(text, "| {what} |");
            for (at, (figure, (_, digits))) in figures.iter().zip(&self.columns).enumerate() {
                let number = match digits {
                    Digits::Two => two_digits,
                    Digits::Thousands => thousands,
                };
                let shown = if at == 0 { spread(figure, number) } else { number(figure.median) };
                let _ = write!(text, " {shown} |");
            }
            text.push('\n');
        }
    }

    pub(super) fn json(&self) -> Value {
        let row = |(what, figures): &(String, Vec<Spread>)| {
            let figures = figures.iter().zip(&self.columns).map(|(figure, (head, _))| {
                let Spread { median, min, max } = figure;
                ((*head).to_owned(), json!({ "median": median, "min": min, "max": max }))
            });
            json!({ "what": what, "figures": figures.collect::<serde_json::Map<_, _>>() })
        };
        json!({ "title": self.title, "rows": self.rows.iter().map(row).collect::<Value>() })
    }
}
