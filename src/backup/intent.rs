//! A backup under way: who sees to it, and how far it has come. Changed by comparing, so that two who see to it do not
//! undo each other's steps.
//!
//! ```text
//! head    backup 16 | name | tag | scope | began at i64 | driver u32 | driven at i64 | cut i64 (0: none yet) | phase u8 | why
//!
//! running ◄──► paused          running ─► complete | failed         running, paused ─► cancelled
//! ```

use std::fmt;

use bytes::Bytes;
use uuid::Uuid;

use super::layout;
use super::manifest::Scope;
use super::object::{Kind, damaged, open_bare, seal};
use crate::Result;
use crate::codec::varint::put_bytes;
use crate::model::{NodeId, Stamp};

/// How long a backup may last, pauses included, in microseconds: a day. What prune condemns stays for longer, so that no
/// backup which began before relies on it (B080).
pub const LASTS_MAX_US: i64 = 24 * 3_600 * 1_000_000;

/// How far a backup has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is worked on.
    Running,
    /// Somebody wants it to wait.
    Paused,
    /// Somebody does not want it.
    Cancelled,
    /// It cannot become complete.
    Failed,
    /// Its manifest is there.
    Complete,
}

impl Phase {
    const ALL: [Phase; 5] = [Phase::Running, Phase::Paused, Phase::Cancelled, Phase::Failed, Phase::Complete];

    fn code(self) -> u8 {
        match self {
            Phase::Running => 1,
            Phase::Paused => 2,
            Phase::Cancelled => 3,
            Phase::Failed => 4,
            Phase::Complete => 5,
        }
    }

    /// Whether nothing will change any more.
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Cancelled | Phase::Failed | Phase::Complete)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Running => "running",
            Phase::Paused => "paused",
            Phase::Cancelled => "cancelled",
            Phase::Failed => "failed",
            Phase::Complete => "complete",
        })
    }
}

/// A backup under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The cluster.
    pub cluster: Uuid,
    /// The backup.
    pub backup: Uuid,
    /// What people call it.
    pub name: String,
    /// What it is kept for.
    pub tag: String,
    /// What it is of.
    pub scope: Scope,
    /// When it was begun.
    pub began_at: Stamp,
    /// Who sees to it.
    pub driver: NodeId,
    /// When that node last said so.
    pub driven_at: Stamp,
    /// The cut, once it is chosen.
    pub cut: Option<Stamp>,
    /// How far it has come.
    pub phase: Phase,
    /// What there is to say of that.
    pub reason: String,
}

impl Intent {
    /// Where it is.
    pub fn key(&self) -> String {
        layout::intent(self.backup)
    }

    /// Whether a manifest of it may still be written: one that has lasted too long has failed, whether that is written down
    /// or not.
    pub fn may_complete(&self, now: Stamp) -> bool {
        !self.phase.is_over() && now.0.saturating_sub(self.began_at.0) < LASTS_MAX_US
    }

    /// The object.
    pub fn encode(&self) -> Bytes {
        let mut out = self.backup.as_bytes().to_vec();
        put_bytes(&mut out, self.name.as_bytes());
        put_bytes(&mut out, self.tag.as_bytes());
        self.scope.put(&mut out);
        out.extend(self.began_at.0.to_le_bytes());
        out.extend(self.driver.0.to_le_bytes());
        out.extend(self.driven_at.0.to_le_bytes());
        out.extend(self.cut.map_or(0, |cut| cut.0).to_le_bytes());
        out.push(self.phase.code());
        put_bytes(&mut out, self.reason.as_bytes());
        seal(Kind::Intent, self.cluster, &out, &[])
    }

    /// Reads what [`Intent::encode`] wrote, from the object at `key`.
    pub fn decode(key: &str, bytes: &Bytes) -> Result<Intent> {
        let (cluster, mut reader) = open_bare(Kind::Intent, key, bytes)?;
        let intent = Intent {
            cluster,
            backup: Uuid::from_bytes(reader.array()?),
            name: reader.text()?,
            tag: reader.text()?,
            scope: Scope::read(&mut reader)?,
            began_at: Stamp(reader.i64()?),
            driver: NodeId(reader.u32()?),
            driven_at: Stamp(reader.i64()?),
            cut: Some(Stamp(reader.i64()?)).filter(|cut| cut.0 != 0),
            phase: {
                let code = reader.u8()?;
                let phase = Phase::ALL.into_iter().find(|phase| phase.code() == code);
                phase.ok_or_else(|| reader.corrupt(format!("no phase has number {code}")))?
            },
            reason: reader.text()?,
        };
        reader.end()?;
        if key != intent.key() {
            return Err(damaged(Kind::Intent, key, "it is another backup than its key says"));
        }
        Ok(intent)
    }
}
