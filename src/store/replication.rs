//! What replicas tell each other of a node's data, and what they get from its log.
//!
//! ```text
//!   begin(lowest) ─► late ones refused ─► append ─► sync, insert ─► told        the one thread that logs
//!   close(c) ─► sets that have grown ─► report                                  once a second
//! ```
//!
//! **Invariant (the promise):** once [`Store::close_through`] has answered s, the sets taken after it hold every named record
//! stamped at or before s that this node will ever have, except for what another replica lists already. Whoever logs first says
//! what it is about to log and then looks at the promise; whoever promises first does so and then looks at what is about to be
//! logged. Both under one lock, so that one of them sees the other.

use std::collections::BTreeMap;

use super::Store;
use super::change::Change;
use crate::commitlog::{Everywhere, Named, Reading};
use crate::model::{MutationName, Stamp};
use crate::received::told::Reconciled;
use crate::received::{ReceivedSet, ReceivedSets, Slice};
use crate::{Error, Result};

impl Store {
    /// Says that records stamped from `lowest` on are about to be logged, and answers what was promised: those of them that
    /// are stamped at or before must be looked at ([`Store::has_name`]). To be called before each [`Store::append`] by the
    /// thread that calls it.
    pub fn begin_append(&self, lowest: Stamp) -> Stamp {
        self.memory.names.lock().begin(lowest)
    }

    /// Nothing of what was begun last is logged after all, nor was it tried.
    pub fn cancel_append(&self) {
        self.memory.names.lock().cancel();
    }

    /// Promises to log nothing named that is stamped at or before `through`, except for names that another replica lists.
    /// Answers up to where that holds for the sets as they are from now on: below whatever is being logged.
    pub fn close_through(&self, through: Stamp) -> Stamp {
        self.memory.names.lock().close(through)
    }

    /// What is promised.
    pub fn closed_through(&self) -> Stamp {
        self.memory.names.lock().closed_through()
    }

    /// Whether the name's record is fsynced and inserted here.
    pub fn has_name(&self, slice: Slice, name: MutationName) -> bool {
        self.memory.names.lock().has(slice, name)
    }

    /// What is fsynced and inserted of one slice.
    pub fn received_of(&self, slice: Slice) -> ReceivedSet {
        self.memory.names.lock().of(slice)
    }

    /// Adds names whose data came without them: all of it is in the log, durable, or in files. In one edit of the manifest,
    /// since no record in the log says so.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the slice was withdrawn meanwhile: its data goes, that of these names too.
    pub fn adopt(&self, slice: Slice, names: &ReceivedSet) -> Result<()> {
        self.sync()?;
        let mut manifest = self.manifest.lock();
        if self.memory.withdrawn.load().contains_key(&slice) {
            return Err(Error::invalid(format!("names of vnode {}", slice.1.0), "it is being rebuilt"));
        }
        let mut set = self.memory.names.lock().of(slice);
        set.union(names);
        manifest.commit(vec![Change::Received(slice.0, slice.1, set)])?;
        self.memory.names.lock().adopted(slice, names);
        Ok(())
    }

    /// The received sets that have grown since this was asked before; costs nothing where none has.
    pub fn take_grown(&self) -> Vec<(Slice, ReceivedSet)> {
        self.memory.names.lock().take_grown()
    }

    /// What the manifest says is reconciled.
    pub fn saved_reconciled(&self) -> BTreeMap<Slice, Reconciled> {
        self.manifest.lock().state().reconciled.clone()
    }

    /// What the manifest says may be purged.
    pub fn saved_purged_through(&self) -> BTreeMap<Slice, Stamp> {
        self.manifest.lock().state().purged_through.clone()
    }

    /// Makes durable what is reconciled, and forgets the runs below it. Never lowers anything.
    pub fn save_reconciled(&self, reconciled: &[(Slice, Reconciled)]) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let known = &manifest.state().reconciled;
        let is_news = |(slice, news): &&(Slice, Reconciled)| {
            known.get(slice).is_none_or(|held| held.through < news.through || !held.floors.covers(&news.floors))
        };
        let change =
            |((keyspace, vnode), news): &(Slice, Reconciled)| Change::Reconciled(*keyspace, *vnode, news.clone());
        let changes: Vec<_> = reconciled.iter().filter(is_news).map(change).collect();
        if changes.is_empty() {
            return Ok(());
        }
        manifest.commit(changes)?;
        let mut names = self.memory.names.lock();
        reconciled.iter().for_each(|(slice, news)| names.forget(*slice, &news.floors));
        Ok(())
    }

    /// Lets the log go that was kept for names that by now every replica holds: in each slice those stamped at or before.
    /// Slices that are missing are nobody else's. Until this is called first, the log is kept up to its bound of bytes.
    pub fn held_everywhere(&self, everywhere: Everywhere) -> Result<()> {
        self.log.lock().held_everywhere(everywhere)
    }

    /// Lets go the log that is kept for others only: the disk is full, and whoever lacks names in it can be made whole
    /// without.
    pub fn give_up_kept_log(&self) -> Result<()> {
        self.log.lock().give_up_kept()
    }

    /// Finds out what one segment from before the start holds; whether there was one to be read. Blocks.
    pub fn read_kept_log(&self) -> Result<bool> {
        let unread = self.log.lock().unread();
        let Some(reading) = unread else { return Ok(false) };
        self.read_log(&reading, &ReceivedSets::default(), usize::MAX, &mut Named::default())?;
        Ok(true)
    }

    /// The records of these names that the log still has, until they take `bytes_max`; at least one if there is any. Blocks.
    pub fn records_named(&self, wanted: &ReceivedSets, bytes_max: usize) -> Result<Vec<bytes::Bytes>> {
        let mut named = Named::default();
        let holding = self.log.lock().holding(wanted);
        for reading in holding {
            if named.is_full(bytes_max) {
                break;
            }
            self.read_log(&reading, wanted, bytes_max, &mut named)?;
        }
        Ok(named.records)
    }

    fn read_log(&self, reading: &Reading, wanted: &ReceivedSets, bytes_max: usize, named: &mut Named) -> Result<()> {
        let found = reading.find(&*self.vfs, wanted, bytes_max, named);
        let mut log = self.log.lock();
        match found {
            Ok(Some(contents)) => log.learn(reading, contents),
            Ok(None) => {}
            // It was recycled while it was read: then it is no part of the log any more.
            Err(_) if !log.has(reading) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
