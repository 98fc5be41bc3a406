//! All engines in turn, round after round, and what the rounds say together.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::de::DeserializeOwned;

use super::alone::{Findings, Step};
use super::phase::Phase;
use super::rows::{ROW_BYTES, VALUE_BYTES};
use super::{GROUP, Kind, compaction, opening};
use crate::data::ROWS_PER_PARTITION;
use crate::report::{Digits, Goal, Grid, Report};
use crate::sample::Spread;
use crate::{Result, machine};

/// No further round is begun if it would end behind this time for each million of rows.
const TIME_FOR_A_MILLION: Duration = Duration::from_secs(540);

/// A store of this size is opened, or a smaller one if there are few rows.
const OPENED_BYTES: u64 = 1 << 30;

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many rows.
    pub rows: u64,
    /// How often.
    pub rounds: usize,
    /// Which engines; none: all.
    pub engines: Vec<Kind>,
}

impl Options {
    /// Whether the page has a place for it.
    pub fn is_for_the_page(&self) -> bool {
        !cfg!(debug_assertions)
            && self.engines.is_empty()
            && self.rounds >= 3
            && [1_000_000, 10_000_000].contains(&self.rows)
    }

    fn kinds(&self) -> Vec<Kind> {
        if self.engines.is_empty() { Kind::value_variants().to_vec() } else { self.engines.clone() }
    }

    /// Rows as the phases need them: whole partitions, and enough for percentiles.
    fn rows(&self) -> u64 {
        self.rows.max(10_000).next_multiple_of(ROWS_PER_PARTITION)
    }
}

/// Everything that was found; of each engine, round by round.
#[derive(Default)]
struct Found {
    engines: BTreeMap<&'static str, Vec<Findings>>,
}

/// Measures.
pub fn run(options: &Options) -> Result<Report> {
    let (machine, begun, load_before) = (machine::look()?, Instant::now(), machine::load_average()?);
    let (rows, kinds) = (options.rows(), options.kinds());
    eprintln!("compaction and opening ...");
    let compaction: compaction::Findings = alone(&["compaction", "--rows", &rows.min(1_000_000).to_string()])?;
    let opened_bytes = OPENED_BYTES.min(rows * VALUE_BYTES as u64 * 6);
    let opening: opening::Findings = alone(&["opening", "--bytes", &opened_bytes.to_string()])?;
    let mut found = Found::default();
    let mut rounds = 0;
    let allowed = TIME_FOR_A_MILLION * u32::try_from(rows.div_ceil(1_000_000))?;
    let before_rounds = begun.elapsed();
    while rounds < options.rounds {
        let each = (begun.elapsed() - before_rounds) / rounds.max(1) as u32;
        if rounds > 0 && begun.elapsed() + each > allowed {
            eprintln!("{rounds} rounds have taken {:?}: no more", begun.elapsed());
            break;
        }
        // Every other round in reverse, so that nobody always comes first.
        let mut turn = kinds.clone();
        if rounds % 2 == 1 {
            turn.reverse();
        }
        for kind in turn {
            eprintln!("round {}: {} ...", rounds + 1, kind.name());
            found.engines.entry(kind.name()).or_default().push(through_all_steps(kind, rows)?);
        }
        rounds += 1;
    }
    let mut report = Report::new(machine, rounds);
    say_how(&mut report, rows);
    found.goals(&mut report);
    found.tables(&mut report, &kinds, rows);
    say_alone(&mut report, &compaction, &opening);
    report.took = begun.elapsed();
    report.load_average = (load_before, machine::load_average()?);
    Ok(report)
}

/// One engine, each part of its phases in a process of its own on the same files.
fn through_all_steps(kind: Kind, rows: u64) -> Result<Findings> {
    let directory = tempfile::tempdir()?;
    let (rows, mut found) = (rows.to_string(), Findings::default());
    for step in Step::value_variants() {
        let what = ["engine", "--kind", kind.name(), "--step", step.name(), "--rows", &rows];
        found.add(*step, alone_in(directory.path(), &what)?);
    }
    Ok(found)
}

/// Measures one thing in a process of its own, in a directory of its own.
fn alone<T: DeserializeOwned>(what: &[&str]) -> Result<T> {
    alone_in(tempfile::tempdir()?.path(), what)
}

fn alone_in<T: DeserializeOwned>(directory: &Path, what: &[&str]) -> Result<T> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("alone").arg("--directory").arg(directory.join("data")).args(what);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{what:?} has failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn say_how(report: &mut Report, rows: u64) {
    if cfg!(debug_assertions) {
        report.fact("built without optimisation: that it runs is all that this run says".to_owned());
    }
    let buffer = super::alone::limits(rows).write_buffer_bytes >> 20;
    report.fact(format!(
        "{rows} rows of {ROW_BYTES} bytes (text), {ROWS_PER_PARTITION} in a partition; written in groups of {GROUP}, each \
         handed to the operating system before the next, synced when a file is finished (all engines alike). Write buffer \
         {buffer} MiB, cache a tenth of the rows (cached reads: three times the rows), blocks of 16 KiB, lz4"
    ));
    report.fact(
        "cold: before every 100 reads the kernel was told to forget the files (posix_fadvise), the engine's cache held 1 MiB"
            .to_owned(),
    );
}

fn say_alone(report: &mut Report, compaction: &compaction::Findings, opening: &opening::Findings) {
    let spread = |numbers: &[f64]| Spread::of(numbers.iter().copied());
    let ratio = compaction.compaction.iter().zip(&compaction.lz4).map(|(compaction, lz4)| compaction / lz4);
    report.goal("compaction ÷ lz4 alone, bytes a second of CPU".to_owned(), Spread::of(ratio), Goal::AtLeast(0.35));
    let (size, files) = (opening.sstable_bytes as f64 / f64::from(1 << 30), opening.sstables);
    let what = format!("opening {size:.2} GiB in {files} files, clean log, seconds");
    report.goal(what, spread(&opening.cold_s), Goal::AtMost(2.0));
    let [merged, rows, lz4] = [&compaction.compaction, &compaction.rows, &compaction.lz4].map(|all| spread(all).median);
    report.fact(format!(
        "compaction of four files of interleaved rows: {:.0} MB and {:.2} million rows a second of CPU; lz4 alone: {:.0} MB",
        merged / 1e6,
        rows / 1e6,
        lz4 / 1e6
    ));
    let [warm, cpu] = [&opening.warm_s, &opening.cpu_s].map(|all| spread(all).median);
    report.fact(format!("opening the same again, files in the kernel's cache: {warm:.3} s; CPU {cpu:.3} s"));
}

impl Found {
    fn of(&self, kind: &str) -> &[Findings] {
        self.engines.get(kind).map_or(&[], Vec::as_slice)
    }

    /// `ours` over `theirs`, round by round; nothing if either was not measured.
    fn ratio(&self, ours: &str, theirs: &str, figure: impl Fn(&Findings) -> f64) -> Option<Spread> {
        let pairs = self.of(ours).iter().zip(self.of(theirs));
        let ratios: Vec<f64> = pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)).collect();
        (!ratios.is_empty()).then(|| Spread::of(ratios))
    }

    fn goals(&self, report: &mut Report) {
        let mut compare = |what: &str, theirs: &str, goal: Option<Goal>, figure: &dyn Fn(&Findings) -> f64| {
            let Some(ratio) = self.ratio("trefoil", theirs, figure) else { return };
            let what = format!("{what}, trefoil ÷ {theirs}");
            match goal {
                Some(goal) => report.goal(what, ratio, goal),
                None => report.ratio(what, ratio),
            }
        };
        let rate = |phase: fn(&Findings) -> &Phase| move |found: &Findings| 1.0 / phase(found).cpu_us();
        let cpu = |phase: fn(&Findings) -> &Phase| move |found: &Findings| phase(found).cpu_us();
        let [fjall, rocksdb, plain] = ["fjall", "rocksdb", "plain"];
        let load = "load with compaction, rows a second of CPU";
        compare(load, fjall, Some(Goal::AtLeast(1.2)), &rate(|found| &found.load));
        compare(load, rocksdb, Some(Goal::AtLeast(1.5)), &rate(|found| &found.load));
        compare(load, plain, None, &rate(|found| &found.load));
        for theirs in [fjall, rocksdb] {
            compare("overwrites, rows a second of CPU", theirs, None, &rate(|found| &found.overwrite));
        }
        compare("cached read of a row, CPU", rocksdb, Some(Goal::AtMost(1.3)), &cpu(|found| &found.cached));
        compare("cached read of a row, CPU", fjall, None, &cpu(|found| &found.cached));
        compare("cached read of a row, CPU", plain, None, &cpu(|found| &found.cached));
        compare("read of a row that is not there, CPU", rocksdb, None, &cpu(|found| &found.absent));
        compare("scan of 100 rows, CPU", rocksdb, Some(Goal::AtMost(0.8)), &cpu(|found| &found.scan));
        compare("scan of 100 rows, CPU", fjall, None, &cpu(|found| &found.scan));
        compare("scan of 100 rows, CPU", plain, None, &cpu(|found| &found.scan));
        let over_budget = |found: &Findings| {
            found.overwrite.peak_bytes.saturating_sub(found.own_bytes) as f64 / found.budget_bytes as f64
        };
        if !self.of("trefoil").is_empty() {
            let measured = Spread::of(self.of("trefoil").iter().map(over_budget));
            report.ratio("memory at most, overwrites, ÷ write buffers and cache".to_owned(), measured);
        }
    }

    fn tables(&self, report: &mut Report, kinds: &[Kind], rows: u64) {
        report.grid(self.writes(kinds, "Load of all rows in random order, until at rest", rows, |found| {
            (&found.load, found.loaded_bytes, found.loaded_files)
        }));
        let title = "As many rows overwritten, half of them drawn by Zipf's law, until at rest";
        report.grid(
            self.writes(kinds, title, rows, |found| {
                (&found.overwrite, found.overwritten_bytes, found.overwritten_files)
            }),
        );
        report.grid(self.reads(kinds, "Read of a row, uniform, all blocks cached", |found| &found.cached));
        report.grid(self.reads(kinds, "Read of a row, Zipf, all blocks cached", |found| &found.cached_zipf));
        report.grid(self.reads(kinds, "Read of a row that is not there", |found| &found.absent));
        report.grid(self.reads(kinds, "Scan of 100 rows of a partition, all blocks cached", |found| &found.scan));
        report.grid(self.reads(kinds, "Read of a row, uniform, cache of a tenth, behind the overwrites", |found| {
            &found.small_cache
        }));
        report.grid(self.reads(kinds, "Read of a row, uniform, cold", |found| &found.cold));
        report.grid(self.reads(kinds, "Read of a row, Zipf, cold", |found| &found.cold_zipf));
    }

    fn writes(&self, kinds: &[Kind], title: &str, rows: u64, phase: fn(&Findings) -> (&Phase, u64, u64)) -> Grid {
        let mut grid = Grid::new(
            title.to_owned(),
            vec![
                ("CPU, µs a row", Digits::Two),
                ("rows a second of CPU", Digits::Thousands),
                ("rows a second", Digits::Thousands),
                ("p50, µs a group", Digits::Two),
                ("p99", Digits::Two),
                ("p99.9", Digits::Two),
                ("written ÷ rows", Digits::Two),
                ("on disk ÷ rows", Digits::Two),
                ("files", Digits::Two),
                ("memory, MiB", Digits::Two),
            ],
        );
        let user_bytes = (rows * ROW_BYTES) as f64;
        for kind in kinds {
            let all = self.of(kind.name());
            let of = |figure: &dyn Fn(&Phase, f64, f64) -> f64| {
                Spread::of(all.iter().map(|found| {
                    let (phase, bytes, files) = phase(found);
                    figure(phase, bytes as f64, files as f64)
                }))
            };
            grid.row(
                kind.name(),
                vec![
                    of(&|phase, _, _| phase.cpu_us()),
                    of(&|phase, _, _| 1e6 / phase.cpu_us()),
                    of(&|phase, _, _| phase.ops as f64 / phase.wall_s),
                    of(&|phase, _, _| phase.latency_us[0]),
                    of(&|phase, _, _| phase.latency_us[1]),
                    of(&|phase, _, _| phase.latency_us[2]),
                    of(&|phase, _, _| phase.written as f64 / user_bytes),
                    of(&|_, bytes, _| bytes / user_bytes),
                    of(&|_, _, files| files),
                    of(&|phase, _, _| phase.peak_bytes as f64 / f64::from(1 << 20)),
                ],
            );
        }
        grid
    }

    fn reads(&self, kinds: &[Kind], title: &str, phase: fn(&Findings) -> &Phase) -> Grid {
        let mut grid = Grid::new(
            title.to_owned(),
            vec![
                ("CPU, µs a read", Digits::Two),
                ("reads a second", Digits::Thousands),
                ("p50, µs", Digits::Two),
                ("p99", Digits::Two),
                ("p99.9", Digits::Two),
                ("KiB from the disk", Digits::Two),
                ("memory, MiB", Digits::Two),
            ],
        );
        for kind in kinds {
            let all = self.of(kind.name());
            let of = |figure: &dyn Fn(&Phase) -> f64| Spread::of(all.iter().map(|found| figure(phase(found))));
            grid.row(
                kind.name(),
                vec![
                    of(&Phase::cpu_us),
                    of(&|phase| phase.ops as f64 / phase.wall_s),
                    of(&|phase| phase.latency_us[0]),
                    of(&|phase| phase.latency_us[1]),
                    of(&|phase| phase.latency_us[2]),
                    of(&|phase| phase.read_from_disk as f64 / 1024.0 / phase.ops as f64),
                    of(&|phase| phase.peak_bytes as f64 / f64::from(1 << 20)),
                ],
            );
        }
        grid
    }
}
