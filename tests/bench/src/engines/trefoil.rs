//! The store of a node, driven as a node drives it: one thread writes, another flushes, a third compacts.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use trefoil::codec::CheckedRecord;
use trefoil::codec::entry::{Entries, Trust};
use trefoil::codec::row::view::{CellView, KindView};
use trefoil::compaction::Unpaced;
use trefoil::model::{Fragment, ReadCommand, Slice, Stream};
use trefoil::store::{Access, Store};

use super::{Engine, Found, GROUP, Limits, Read, Row};
use crate::data::{self, ROWS_PER_PARTITION};
use crate::{Result, engine};

/// How long a writer waits before it looks again whether a flush has made room.
const PATIENCE: Duration = Duration::from_micros(200);

pub struct Trefoil {
    store: Arc<Store>,
    flushing: Worker,
    compacting: Worker,
    names: data::Names,
    records: Vec<CheckedRecord>,
    commands: Vec<ReadCommand>,
    ends: Vec<trefoil::commitlog::Position>,
}

impl Trefoil {
    pub fn open(directory: &Path, limits: Limits) -> Result<Trefoil> {
        // Flushing begins at half of the budget.
        let store = engine::store::open_with(directory, 2 * limits.write_buffer_bytes, limits.cache_bytes)?;
        let store = Arc::new(store);
        let compacting = Worker::start(&store, |store| {
            while store.compact_next(0, &Unpaced)? {}
            Ok(())
        });
        let wake = compacting.waker();
        let flushing = Worker::start(&store, move |store| {
            store.prepare_log()?;
            while store.wants_flush() && store.flush_next()? {
                wake.wake();
            }
            Ok(())
        });
        let (records, commands, ends) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Trefoil {
            names: data::Names::behind(store.last_stamp())?,
            store,
            flushing,
            compacting,
            records,
            commands,
            ends,
        })
    }

    fn append(&mut self, from: usize) -> Result<()> {
        let group = &self.records[from..self.records.len().min(from + GROUP)];
        loop {
            self.ends.clear();
            match self.store.append(group, &mut self.ends) {
                Err(trefoil::Error::Busy { .. }) => {
                    self.flushing.check()?;
                    sleep(PATIENCE);
                }
                outcome => return Ok(outcome?),
            }
        }
    }
}

impl Engine for Trefoil {
    fn prepare_rows(&mut self, rows: &[Row]) -> Result<()> {
        self.records.clear();
        for row in rows {
            self.records.push(self.names.record(&row.mutation()?));
        }
        Ok(())
    }

    fn put(&mut self, from: usize) -> Result<()> {
        self.append(from)?;
        for (record, end) in self.records[from..].iter().zip(&self.ends) {
            self.store.insert(record, *end)?;
        }
        if self.store.wants_flush() {
            self.flushing.waker().wake();
        }
        Ok(())
    }

    fn prepare_reads(&mut self, reads: &[Read]) -> Result<()> {
        self.commands.clear();
        for read in reads {
            self.commands.push(match *read {
                Read::Row(number) => engine::store::command(number, Slice::one(&data::clustering(number)?), 1)?,
                Read::Absent(number) => engine::store::command(number, Slice::one(&data::clustering(number)?), 1)?,
                Read::Partition(number) => engine::store::command(number, Slice::all(), ROWS_PER_PARTITION as u32)?,
            });
        }
        Ok(())
    }

    fn read(&mut self, at: usize) -> Result<Found> {
        let page = self.store.read(&self.commands[at], Access::Disk)?;
        let mut found = Found::default();
        let mut entries = Entries::new(page.entries, Trust::Trusted);
        while let Some(fragment) = entries.next()? {
            let Fragment::Row(_, row) = fragment else { continue };
            for part in row.view()?.parts {
                if let Some(CellView { kind: KindView::Live(value), .. }) = part?.cell() {
                    found.value(value);
                }
            }
        }
        Ok(found)
    }

    fn settle(&mut self) -> Result<()> {
        self.store.flush(None)?;
        // Compactions run side by side: none may be under way when nothing more is found to do.
        let _paused = self.compacting.paused();
        while self.store.compact_next(0, &Unpaced)? {}
        self.flushing.check()?;
        self.compacting.check()
    }

    fn files(&self) -> Result<u64> {
        Ok(self.store.status().sstables)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Trefoil { store, flushing, compacting, .. } = *self;
        flushing.end()?;
        compacting.end()?;
        Ok(store.close()?)
    }
}

/// A thread that works each time it is woken.
struct Worker {
    waker: Waker,
    thread: JoinHandle<()>,
    failure: Arc<Mutex<Option<crate::Error>>>,
    /// Held while it works.
    working: Arc<Mutex<()>>,
}

#[derive(Clone)]
struct Waker(SyncSender<()>);

impl Waker {
    fn wake(&self) {
        // Full: it will look again anyway. Without a receiver it has failed, which `check` tells.
        if let Err(TrySendError::Full(()) | TrySendError::Disconnected(())) = self.0.try_send(()) {}
    }
}

impl Worker {
    fn start(store: &Arc<Store>, work: impl Fn(&Store) -> Result<()> + Send + 'static) -> Worker {
        let (sender, wakes): (_, Receiver<()>) = sync_channel(1);
        let failure = Arc::new(Mutex::new(None));
        let working = Arc::new(Mutex::new(()));
        let (store, told, held) = (Arc::clone(store), Arc::clone(&failure), Arc::clone(&working));
        let thread = spawn(move || {
            let failed = wakes.iter().find_map(|()| {
                let _working = held.lock().unwrap_or_else(PoisonError::into_inner);
                work(&store).err()
            });
            *told.lock().unwrap_or_else(PoisonError::into_inner) = failed;
        });
        Worker { waker: Waker(sender), thread, failure, working }
    }

    /// Waits until it is idle, and keeps it so.
    fn paused(&self) -> MutexGuard<'_, ()> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The error that has ended it, if one has.
    fn check(&self) -> Result<()> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    fn end(self) -> Result<()> {
        let Worker { waker, thread, failure, .. } = self;
        drop(waker);
        thread.join().map_err(|_| "a thread of the store panicked")?;
        failure.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}
