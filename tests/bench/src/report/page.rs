//! The report as Markdown, and its place in the documentation.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{Goal, Report, Row, Table};
use crate::Result;
use crate::sample::Spread;

/// The lines between which a part of the page is written by a command.
#[derive(Debug, Clone)]
pub struct Marks {
    begin: String,
    end: String,
}

impl Marks {
    /// Those of `report`.
    pub fn of_report() -> Marks {
        Marks::of("measured", "report")
    }

    /// Those of `engine` for so many rows.
    pub fn of_engines(rows: u64) -> Marks {
        Marks::of(&format!("engines, {rows} rows"), "engine")
    }

    /// Those of `backup`.
    pub fn of_backup() -> Marks {
        Marks::of("backup", "backup")
    }

    fn of(what: &str, command: &str) -> Marks {
        let begin = format!("<!-- {what}: begin, written by trefoil-bench {command} -->");
        Marks { begin, end: format!("<!-- {what}: end -->") }
    }
}

/// The page that tells of performance.
pub fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance.md")
}

impl Report {
    /// The tables of the report.
    pub fn markdown(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "Machine: {} cores ({}), {} GiB, Linux {}. Load average before and behind the run: {:.1} and {:.1}.\n\
             Rounds: {}, alternating; the run took {} s. Figures are medians (least to most).\n",
            machine.cores,
            machine.processor,
            machine.memory_gib,
            machine.kernel,
            self.load_average.0,
            self.load_average.1,
            self.rounds,
            self.took.as_secs(),
        );
        if !self.ratios.is_empty() {
            text += "\n| ratio, within one round | measured | goal | reached |\n|---|---|---|---|\n";
        }
        for ratio in &self.ratios {
            let (goal, reached) = match ratio.goal {
                Some(goal) => (goal.to_string(), if goal.is_reached_by(ratio.value.median) { "yes" } else { "**no**" }),
                None => (String::new(), ""),
            };
            let _ = writeln!(text, "| {} | {} | {goal} | {reached} |", ratio.what, spread(&ratio.value, two_digits));
        }
        if !self.facts.is_empty() {
            text.push('\n');
        }
        self.facts.iter().for_each(|fact| text += &format!("- {fact}.\n"));
        self.tables.iter().for_each(|table| table.markdown(&mut text));
        self.grids.iter().for_each(|grid| grid.markdown(&mut text));
        text
    }

    /// Puts the report in the place of the last one.
    pub fn rewrite(&self, file: &Path, marks: &Marks) -> Result<()> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let missing = || format!("{}: the lines {} and {} are missing", file.display(), marks.begin, marks.end);
        let rewritten = between_marks(&text, marks, &self.markdown()).ok_or_else(missing)?;
        Ok(std::fs::write(file, rewritten)?)
    }
}

fn between_marks(text: &str, Marks { begin, end }: &Marks, inside: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, behind) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{inside}\n{end}{behind}"))
}

impl Table {
    fn markdown(&self, text: &mut String) {
        let has_latency = self.rows.iter().any(|row| row.latency_us.is_some());
        let (head, rule) = if has_latency { (" p50 / p99 / p99.9, ms |", "---|") } else { ("", "") };
        let _ = write!(
            text,
            "\n| {} | CPU, µs an operation | operations a second |{head}\n|---|---|---|{rule}\n",
            self.title
        );
        for Row { what, cpu_us, per_second, latency_us } in &self.rows {
            let (cpu_us, per_second) = (spread(cpu_us, two_digits), spread(per_second, thousands));
            let _ = write!(text, "| {what} | {cpu_us} | {per_second} |");
            if let Some(latency) = latency_us {
                let [p50, p99, p999] = latency.map(|us| format!("{:.1}", us as f64 / 1e3));
                let _ = write!(text, " {p50} / {p99} / {p999} |");
            }
            text.push('\n');
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Goal::AtMost(limit) => write!(f, "≤ {limit}"),
            Goal::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

pub(super) fn spread(spread: &Spread, number: fn(f64) -> String) -> String {
    format!("{} ({} to {})", number(spread.median), number(spread.min), number(spread.max))
}

/// Two digits that count.
pub(super) fn two_digits(number: f64) -> String {
    match number {
        0.0..1.0 => format!("{number:.2}"),
        1.0..10.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

pub(super) fn thousands(number: f64) -> String {
    match number {
        0.0..10_000.0 => format!("{number:.0}"),
        _ => format!("{:.0}k", number / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::{Marks, between_marks, thousands, two_digits};

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let marks = Marks::of_engines(1000);
        let Marks { begin, end } = &marks;
        let page = format!("# Title\n{begin}\nold\n{end}\nbehind\n");
        assert_eq!(between_marks(&page, &marks, "new"), Some(format!("# Title\n{begin}\nnew\n{end}\nbehind\n")));
        assert_eq!(between_marks(&page, &Marks::of_report(), "new"), None);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.123, 1.26, 45.2].map(two_digits), ["0.12", "1.3", "45"]);
        assert_eq!([812.0, 123_456.0].map(thousands), ["812", "123k"]);
    }
}
