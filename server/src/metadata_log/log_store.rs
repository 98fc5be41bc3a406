//! Raft's log: all of it in memory, every change of it on disk before it is answered.

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogReader, StorageIOError};
use parking_lot::{Mutex, RwLock};

use super::files::{Files, LogFile, Logged};
use super::types::{Entry, LogId, StorageError, Types, Vote, VoterId};

/// The log, the vote, and a view of the log that readers hold without waiting for the disk.
#[derive(Clone)]
pub(super) struct LogStore {
    files: Files,
    file: Arc<Mutex<LogFile>>,
    logged: Arc<RwLock<Logged>>,
}

impl LogStore {
    pub(super) fn open(files: Files) -> trefoil::Result<LogStore> {
        files.settle()?;
        let (file, logged) = LogFile::open(files.clone())?;
        Ok(LogStore { files, file: Arc::new(Mutex::new(file)), logged: Arc::new(RwLock::new(logged)) })
    }

    /// Runs a change of the log file on a thread that may block.
    async fn on_file(
        &self,
        change: impl FnOnce(&mut LogFile) -> trefoil::Result<()> + Send + 'static,
    ) -> Result<(), StorageError> {
        let file = Arc::clone(&self.file);
        blocking(ErrorSubject::Logs, ErrorVerb::Write, move || change(&mut file.lock())).await
    }
}

/// Runs file work on a thread that may block, and turns its errors into Raft's.
pub(super) async fn blocking<T: Send + 'static>(
    subject: ErrorSubject<VoterId>,
    verb: ErrorVerb,
    work: impl FnOnce() -> trefoil::Result<T> + Send + 'static,
) -> Result<T, StorageError> {
    let failed = |error: AnyError| StorageError::from(StorageIOError::new(subject, verb, error));
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(AnyError::new(&error))),
        Err(error) => Err(failed(AnyError::new(&error))),
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        Ok(self.logged.read().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let logged = self.logged.read();
        Ok(LogState { last_purged_log_id: logged.purged, last_log_id: logged.last() })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let (files, vote) = (self.files.clone(), *vote);
        blocking(ErrorSubject::Vote, ErrorVerb::Write, move || files.write_vote(&vote)).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        let files = self.files.clone();
        blocking(ErrorSubject::Vote, ErrorVerb::Read, move || files.read_vote()).await
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let copy = entries.clone();
        self.on_file(move |file| file.append(&copy)).await?;
        self.logged.write().entries.extend(entries.into_iter().map(|entry| (entry.log_id.index, entry)));
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.on_file(move |file| file.truncate(log_id.index)).await?;
        self.logged.write().entries.split_off(&log_id.index);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let kept = {
            let logged = self.logged.read();
            let entries = logged.entries.range(log_id.index + 1..).map(|(index, entry)| (*index, entry.clone()));
            Logged { purged: Some(log_id), entries: entries.collect() }
        };
        let file = Arc::clone(&self.file);
        let kept = blocking(ErrorSubject::Logs, ErrorVerb::Delete, move || {
            file.lock().rewrite(&kept)?;
            Ok(kept)
        })
        .await?;
        *self.logged.write() = kept;
        Ok(())
    }
}
