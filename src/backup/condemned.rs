//! What a run of prune is about to remove, and who may prune.
//!
//! ```text
//! condemned   prune 16 | published at i64 | keys varint | key bytes ...      ascending
//! lease       holder 16 | until i64
//! ```
//!
//! Prune publishes first, waits for longer than a backup may last, looks again at what is needed, and removes the rest. A backup
//! that began before the publication is over by then, and its manifest speaks for what it needs. One that began later has
//! read this list, and stores what it meets there once more, under a key with a suffix (B080).

use std::collections::BTreeSet;

use bytes::Bytes;
use uuid::Uuid;

use super::layout;
use super::object::{Kind, damaged, open_bare, seal};
use crate::codec::varint::{put_bytes, put_varint};
use crate::model::Stamp;
use crate::{Error, Result};

/// Objects that will be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condemned {
    /// The cluster.
    pub cluster: Uuid,
    /// The run of prune that published it.
    pub prune: Uuid,
    /// When it was published, by the clock of whoever did.
    pub published_at: Stamp,
    /// Keys of the objects.
    pub keys: BTreeSet<String>,
}

/// The right to prune: one run at a time has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The cluster.
    pub cluster: Uuid,
    /// The run that has it.
    pub holder: Uuid,
    /// Until when, unless it is renewed or given back.
    pub until: Stamp,
}

impl Condemned {
    /// Where it is.
    pub fn key(&self) -> String {
        layout::condemned(self.prune)
    }

    /// The object.
    pub fn encode(&self) -> Bytes {
        let mut out = self.prune.as_bytes().to_vec();
        out.extend(self.published_at.0.to_le_bytes());
        put_varint(&mut out, self.keys.len() as u64);
        self.keys.iter().for_each(|key| put_bytes(&mut out, key.as_bytes()));
        seal(Kind::Condemned, self.cluster, &out, &[])
    }

    /// Reads what [`Condemned::encode`] wrote, from the object at `key`.
    pub fn decode(key: &str, bytes: &Bytes) -> Result<Condemned> {
        let (cluster, mut reader) = open_bare(Kind::Condemned, key, bytes)?;
        let prune = Uuid::from_bytes(reader.array()?);
        let published_at = Stamp(reader.i64()?);
        let mut keys = BTreeSet::new();
        for _ in 0..reader.count(2)? {
            let text = reader.text()?;
            if layout::Key::parse(&text).is_none() || keys.last().is_some_and(|last| *last >= text) {
                return Err(damaged(Kind::Condemned, key, &format!("{text:?} is no key, or does not ascend")));
            }
            keys.insert(text);
        }
        reader.end()?;
        let condemned = Condemned { cluster, prune, published_at, keys };
        if key != condemned.key() {
            return Err(damaged(Kind::Condemned, key, "it is another list than its key says"));
        }
        Ok(condemned)
    }
}

impl Lease {
    /// The lease of `holder` for the time after `now`, given the one that there is; refused while another run has it.
    pub fn taken(cluster: Uuid, present: Option<Lease>, holder: Uuid, now: Stamp, for_us: i64) -> Result<Lease> {
        if let Some(lease) = present.filter(|lease| lease.holder != holder && lease.until > now) {
            let seconds = (lease.until.0.saturating_sub(now.0)) / 1_000_000;
            let reason = format!("run {} has it, for {seconds} s more unless it ends earlier", lease.holder);
            return Err(Error::invalid("right to prune", reason));
        }
        Ok(Lease { cluster, holder, until: Stamp(now.0.saturating_add(for_us)) })
    }

    /// The object.
    pub fn encode(&self) -> Bytes {
        let mut out = self.holder.as_bytes().to_vec();
        out.extend(self.until.0.to_le_bytes());
        seal(Kind::Lease, self.cluster, &out, &[])
    }

    /// Reads what [`Lease::encode`] wrote.
    pub fn decode(bytes: &Bytes) -> Result<Lease> {
        let (cluster, mut reader) = open_bare(Kind::Lease, layout::LEASE, bytes)?;
        let lease = Lease { cluster, holder: Uuid::from_bytes(reader.array()?), until: Stamp(reader.i64()?) };
        reader.end()?;
        Ok(lease)
    }
}
