//! Rows into the table, many requests in flight. Rows of one partition that stand near each other go into one request:
//! the cluster then writes them as one.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tonic::Code;
use trefoil::model::Value;
use trefoil_client::{Client, Error as ClientError, TableView};

use super::Stopped;
use super::source::{Chunk, NumberedRow, Position};
use crate::cli::error::Result;
use crate::cli::progress::Progress;
use crate::cli::put::insert;

/// How long one request may take, with the attempts of the client.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// For so long a row is tried again and again before the import stops: a node may need that to come back.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before a request that the client has given up is begun anew.
const PAUSE: Duration = Duration::from_millis(200);
/// Rows in one request, at most.
const GROUP_ROWS_MAX: usize = 64;
/// Bytes of lines in flight, at most (one request is always let through).
const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;

/// What a load has done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loaded {
    /// Rows that are in the table.
    pub rows: u64,
    /// Requests made.
    pub requests: u64,
    /// Requests sent again, by the client or by the load.
    pub retries: u64,
}

/// Rows of one partition.
type Group = Vec<NumberedRow>;

/// What is written, and where.
#[derive(Debug, Clone)]
pub struct Target<'a> {
    /// The cluster.
    pub client: &'a Client,
    /// The table's name with its keyspace.
    pub name: String,
    /// The table.
    pub view: Arc<TableView>,
}

/// A group that was tried.
struct Flown {
    rows: usize,
    bytes: usize,
    again: u64,
    refusal: Option<Refusal>,
}

/// Why a row is not in the table.
struct Refusal {
    /// The first line that is not, of the group or of all.
    undone: u64,
    /// The line that is at fault.
    line: u64,
    error: ClientError,
}

/// A load.
pub struct Load<'a> {
    target: Target<'a>,
    in_flight: usize,
    progress: Progress,
    position: Position,
    /// Groups that wait for room.
    ready: VecDeque<Group>,
    flying: FuturesUnordered<Pin<Box<dyn Future<Output = Flown> + 'a>>>,
    flying_bytes: usize,
    /// The last line that was taken.
    last_line: u64,
    loaded: Loaded,
    refusal: Option<Refusal>,
}

impl<'a> Load<'a> {
    /// A load of what comes behind `last_line`.
    pub fn new(
        target: Target<'a>,
        in_flight: usize,
        last_line: u64,
        progress: Progress,
        position: Position,
    ) -> Load<'a> {
        Load {
            target,
            in_flight,
            progress,
            position,
            ready: VecDeque::new(),
            flying: FuturesUnordered::new(),
            flying_bytes: 0,
            last_line,
            loaded: Loaded::default(),
            refusal: None,
        }
    }

    /// Writes what comes, until there is no more, a row is refused, or the user interrupts. What is in flight is waited
    /// for in any case.
    pub async fn run(mut self, mut chunks: mpsc::Receiver<Chunk>) -> Result<Loaded, Stopped> {
        let mut bad = None;
        let mut ended = false;
        let mut interrupted = false;
        let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
        while self.refusal.is_none() && !interrupted {
            self.take_off();
            if ended && self.flying.is_empty() {
                break;
            }
            tokio::select! {
                Some(flown) = self.flying.next() => self.land(flown),
                chunk = chunks.recv(), if self.ready.is_empty() && !ended => match chunk {
                    Some(Chunk::Rows(rows)) => self.queue(rows),
                    Some(Chunk::Bad(line, reason)) => {
                        bad = Some((line, reason));
                        ended = true;
                    }
                    None => ended = true,
                },
                _ = &mut interrupt => interrupted = true,
            }
        }
        drop(chunks);
        while let Some(flown) = self.flying.next().await {
            self.land(flown);
        }
        self.loaded.retries += self.target.client.retries();
        self.finish(bad, interrupted)
    }

    fn finish(self, bad: Option<(Option<u64>, String)>, interrupted: bool) -> Result<Loaded, Stopped> {
        let rows = self.loaded.rows;
        // Groups that were never begun are left only behind a refusal or an interrupt.
        let not_begun = self.ready.iter().flatten().map(|row| row.line).min();
        let done = |undone: u64| undone.min(not_begun.unwrap_or(u64::MAX)).saturating_sub(1);
        let all_taken = done(self.last_line + 1);
        if let Some(Refusal { undone, line, error }) = self.refusal {
            return Err(Stopped { line: Some(line), reason: error.to_string(), done_through: done(undone), rows });
        }
        if interrupted {
            return Err(Stopped { line: None, reason: "interrupted".to_owned(), done_through: all_taken, rows });
        }
        match bad {
            Some((line, reason)) => {
                let done_through = line.map_or(all_taken, |line| line - 1);
                Err(Stopped { line, reason, done_through, rows })
            }
            None => Ok(self.loaded),
        }
    }

    /// Sorts rows by partition. A row keeps its place behind others of its partition, which does not matter but reads well
    /// in logs.
    fn queue(&mut self, rows: Vec<NumberedRow>) {
        self.last_line = rows.last().map_or(self.last_line, |row| row.line);
        let mut groups: Vec<Group> = Vec::new();
        for row in rows {
            let same =
                |group: &&mut Group| group.len() < GROUP_ROWS_MAX && partition(group) == Some(&row.row.partition);
            match groups.iter_mut().rev().find(same) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        self.ready.extend(groups);
    }

    /// Begins as many requests as there is room for.
    fn take_off(&mut self) {
        while self.flying.len() < self.in_flight {
            let Some(group) = self.ready.front() else { return };
            let bytes: usize = group.iter().map(|row| row.bytes).sum();
            if !self.flying.is_empty() && self.flying_bytes + bytes > IN_FLIGHT_BYTES_MAX {
                return;
            }
            let Some(group) = self.ready.pop_front() else { return };
            self.flying_bytes += bytes;
            self.loaded.requests += 1;
            self.flying.push(Box::pin(write(self.target.clone(), group, bytes)));
        }
    }

    fn land(&mut self, flown: Flown) {
        self.flying_bytes -= flown.bytes;
        self.loaded.retries += flown.again;
        self.loaded.rows += flown.rows as u64;
        self.progress.at(self.position.packed(), self.loaded.rows);
        if let Some(refusal) = flown.refusal {
            self.refusal = Some(match self.refusal.take() {
                Some(other) => other.with(refusal),
                None => refusal,
            });
        }
    }
}

impl Refusal {
    /// Of two, the one of the earlier line; nothing from the first undone line on counts as done.
    fn with(self, other: Refusal) -> Refusal {
        let undone = self.undone.min(other.undone);
        let first = if other.line < self.line { other } else { self };
        Refusal { undone, ..first }
    }
}

fn partition(group: &Group) -> Option<&Vec<Value>> {
    group.first().map(|row| &row.row.partition)
}

/// Writes a group, again and again where that may help.
async fn write(target: Target<'_>, group: Group, bytes: usize) -> Flown {
    let until = Instant::now() + PATIENCE;
    let rows = group.len();
    let mut left = group;
    let mut again = 0;
    loop {
        let failed = send(&target, left).await;
        let Some((first, _)) = failed.first() else { return Flown { rows, bytes, again, refusal: None } };
        let undone = first.line;
        let patient = Instant::now() < until;
        if let Some((row, error)) = failed.iter().find(|(_, error)| !patient || !heals(error)) {
            let refusal = Refusal { undone, line: row.line, error: error.clone() };
            return Flown { rows: rows - failed.len(), bytes, again, refusal: Some(refusal) };
        }
        left = failed.into_iter().map(|(row, _)| row).collect();
        again += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Sends rows once; those that failed, in the order of their lines.
async fn send(target: &Target<'_>, group: Group) -> Vec<(NumberedRow, ClientError)> {
    let write = |row: &NumberedRow| {
        insert(target.client, &target.name, &target.view.table, &row.row).timestamp_us(row.timestamp_us)
    };
    if group.len() > 1 {
        let batch = group.iter().fold(target.client.batch(), |batch, row| batch.with(write(row)));
        match batch.send().await {
            Ok(results) => {
                let failed = group.into_iter().zip(results);
                return failed.filter_map(|(row, result)| result.err().map(|error| (row, error))).collect();
            }
            Err(error) if heals(&error) => return group.into_iter().map(|row| (row, error.clone())).collect(),
            // One row is at fault; alone each of them says which.
            Err(_) => {}
        }
    }
    let mut failed = Vec::new();
    for row in group {
        if let Err(error) = write(&row).send().await {
            failed.push((row, error));
        }
    }
    failed
}

/// Whether the same request may succeed later.
fn heals(error: &ClientError) -> bool {
    matches!(
        error.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Aborted | Code::ResourceExhausted | Code::Cancelled
    )
}
