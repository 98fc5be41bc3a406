//! Intents: what backups are under way, as everybody may read and change them by comparing.

use std::sync::Arc;

use trefoil::backup::{Index, Intent, Phase, Scope, layout};
use trefoil::model::Stamp;
use trefoil_s3::{Creation, Tag};
use uuid::Uuid;

use super::{Archive, Trouble};
use crate::clock;

/// Attempts at changing what others change, too.
const ATTEMPTS: usize = 20;

/// Intents of this age are over, whatever they say: no backup may take so long.
const LOOK_BACK_S: i64 = 14 * 24 * 3_600;

/// A backup that somebody wants.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// What people call it.
    pub name: String,
    /// What it is kept for.
    pub tag: String,
    /// What it is of.
    pub scope: Scope,
}

/// Why nothing came of what somebody wanted of a backup.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The bucket did not do it.
    #[error("{0}")]
    Bucket(String),
    /// There is no such backup under way.
    #[error("there is no backup {0}")]
    Unknown(Uuid),
    /// It is too late.
    #[error("backup {0} is {1} already")]
    Over(Uuid, Phase),
}

impl From<Trouble> for JobError {
    fn from(trouble: Trouble) -> JobError {
        JobError::Bucket(trouble.to_string())
    }
}

impl Archive {
    /// Announces a backup that this node will see to.
    pub(super) async fn announce(&self, job: NewJob) -> Result<Intent, Trouble> {
        let now = Stamp(clock::wall_us());
        let intent = Intent {
            cluster: self.identity.cluster,
            backup: Uuid::now_v7(),
            name: job.name,
            tag: job.tag,
            scope: job.scope,
            began_at: now,
            driver: self.identity.node,
            driven_at: now,
            cut: None,
            phase: Phase::Running,
            reason: String::new(),
        };
        // Its id is new, so that what is there already is ours.
        let (Creation::New | Creation::AlreadyThere) = self.door.create(&intent.key(), intent.encode()).await?;
        Ok(intent)
    }

    /// The intent of a backup.
    pub(super) async fn intent(&self, backup: Uuid) -> Result<Option<(Intent, Tag)>, Trouble> {
        let key = layout::intent(backup);
        let Some(found) = self.door.find(&key).await? else { return Ok(None) };
        Ok(Some((Intent::decode(&key, &found.bytes)?, found.tag)))
    }

    /// As it was when it was read, if it was over: then it does not change any more.
    async fn intent_or_known(&self, backup: Uuid) -> Result<Option<Intent>, Trouble> {
        if let Some(known) = self.over.lock().get(&backup) {
            return Ok(Some(known.clone()));
        }
        let found = self.intent(backup).await?.map(|(intent, _)| intent);
        if let Some(intent) = found.as_ref().filter(|intent| intent.phase.is_over()) {
            self.over.lock().insert(backup, intent.clone());
        }
        Ok(found)
    }

    /// Changes an intent that is not over, however often others change it meanwhile. What `change` refuses stays as it is.
    pub async fn change(&self, backup: Uuid, change: impl Fn(&mut Intent) -> bool) -> Result<Intent, JobError> {
        for _ in 0..ATTEMPTS {
            let (mut intent, tag) = self.intent(backup).await?.ok_or(JobError::Unknown(backup))?;
            if intent.phase.is_over() {
                return Err(JobError::Over(backup, intent.phase));
            }
            if !change(&mut intent) {
                return Ok(intent);
            }
            match self.door.replace(&intent.key(), intent.encode(), Some(&tag)).await {
                Ok(_) => return Ok(intent),
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(Trouble::from(error).into()),
            }
        }
        Err(JobError::Bucket(format!("the intent of backup {backup} is changed by others all the time")))
    }

    /// The intents of the last days, the oldest first.
    pub async fn intents(&self) -> Result<Vec<Intent>, JobError> {
        let since_ms = (clock::wall_us() / 1_000 - LOOK_BACK_S * 1_000).max(0) as u128;
        // Ids of backups begin with the time.
        let mut after = layout::intent(Uuid::from_u128(since_ms << 80));
        self.over.lock().retain(|backup, _| layout::intent(*backup) > after);
        let mut intents = Vec::new();
        loop {
            let page = self.door.list(layout::INTENTS, Some(&after)).await.map_err(Trouble::from)?;
            for listed in &page.objects {
                if let Some(backup) = layout::parse_backup(layout::INTENTS, &listed.key) {
                    intents.extend(self.intent_or_known(backup).await?);
                }
            }
            match page.objects.last() {
                Some(last) if page.more => after = last.key.clone(),
                _ => return Ok(intents),
            }
        }
    }

    /// The index, and its version; empty where there is none yet.
    pub(super) async fn index_and_tag(&self) -> Result<(Index, Option<Tag>), Trouble> {
        match self.door.find(layout::INDEX).await? {
            Some(found) => Ok((Index::decode(&found.bytes)?, Some(found.tag))),
            None => Ok((Index { cluster: self.identity.cluster, entries: Vec::new() }, None)),
        }
    }

    /// All complete backups.
    pub async fn index(&self) -> Result<Index, JobError> {
        let (index, _) = self.index_and_tag().await?;
        self.saw(&index);
        Ok(index)
    }

    pub(super) fn saw(&self, index: &Index) {
        let newest = index.entries.last().map(|entry| (entry.began_at, entry.cut));
        *self.newest.lock() = newest;
    }

    /// Changes the index, however often others change it meanwhile.
    pub(super) async fn change_index(self: &Arc<Self>, change: impl Fn(&mut Index)) -> Result<(), Trouble> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let (mut index, tag) = self.index_and_tag().await?;
            change(&mut index);
            match self.door.replace(layout::INDEX, index.encode(), tag.as_ref()).await {
                Ok(_) => {
                    self.saw(&index);
                    return Ok(());
                }
                Err(error) if error.is_conflict() => last = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        last.map_or(Ok(()), |error| Err(error.into()))
    }
}
