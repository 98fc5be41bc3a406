//! What of a bucket is needed, and what may go.
//!
//! ```text
//!   kept backups      by age, by count, by tag; always the newest
//!     their objects   manifest, parts, files, pieces up to the cut
//!     their logs      every later piece, so that any time since the oldest of them can be had (not for those kept by a tag alone)
//!   under way         whatever the parts of a running or paused backup list, and the logs behind them
//!   young             everything that was made within the grace period: uploaded, and not yet listed by anybody
//! ```
//!
//! Everything else is unneeded. It goes by manifests alone, never by what a key begins with (B079); what is no key of ours is
//! never touched. Nothing is removed here: [`super::Condemned`] says how that happens.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::intent::Intent;
use super::layout::{self, Key};
use super::manifest::Manifest;
use super::part::Part;
use crate::model::{NodeId, Stamp};

const DAY_US: i64 = 24 * 3_600 * 1_000_000;

/// Which backups are kept. One that any of the rules keeps is kept; with neither days nor count all are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retention {
    /// Those whose cut is not older than so many days.
    pub days: Option<u32>,
    /// The newest ones, so many.
    pub count: Option<u32>,
    /// Those with one of these tags.
    pub tags: Vec<String>,
}

/// Why a backup is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// By age or count, or as the newest: with the logs behind it.
    Whole,
    /// For its tag alone: as of its cut.
    AtItsCut,
}

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its key.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// When it was made, by the store's clock.
    pub modified_at: Stamp,
}

/// All that is looked at.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Every object of the cluster. Listed before anything below was read.
    pub objects: Vec<Seen>,
    /// Every manifest.
    pub manifests: Vec<Manifest>,
    /// Every intent.
    pub intents: Vec<Intent>,
    /// The parts of all backups that are kept or under way.
    pub parts: Vec<Part>,
}

/// What is needed and what is not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    /// Objects that are needed, and their bytes.
    pub needed: (u64, u64),
    /// Objects that nobody needs, ascending by key.
    pub unneeded: Vec<Seen>,
    /// Objects that nobody needs yet, but that are too young to go.
    pub young: (u64, u64),
    /// Keys that are none of ours.
    pub strangers: Vec<String>,
}

impl Retention {
    /// The backups that are kept, and how.
    pub fn kept(&self, manifests: &[Manifest], now: Stamp) -> BTreeMap<Uuid, Kept> {
        let mut newest_first: Vec<&Manifest> = manifests.iter().collect();
        newest_first.sort_by_key(|manifest| std::cmp::Reverse((manifest.cut, manifest.backup)));
        let mut kept = BTreeMap::new();
        for (rank, manifest) in newest_first.into_iter().enumerate() {
            let young = |days: u32| now.0.saturating_sub(manifest.cut.0) <= i64::from(days).saturating_mul(DAY_US);
            let by_age = self.days.is_some_and(young);
            let by_count = self.count.is_some_and(|count| rank < count as usize);
            let all = self.days.is_none() && self.count.is_none();
            if rank == 0 || by_age || by_count || all {
                kept.insert(manifest.backup, Kept::Whole);
            } else if self.tags.contains(&manifest.tag) {
                kept.insert(manifest.backup, Kept::AtItsCut);
            }
        }
        kept
    }
}

/// The backups whose parts [`mark`] must know: kept ones and those under way.
pub fn parts_of(facts: &Facts, retention: &Retention, now: Stamp) -> BTreeSet<Uuid> {
    let under_way = facts.intents.iter().filter(|intent| intent.may_complete(now)).map(|intent| intent.backup);
    retention.kept(&facts.manifests, now).into_keys().chain(under_way).collect()
}

/// Tells what is needed. `grace_us`: nothing younger than that goes.
pub fn mark(facts: &Facts, retention: &Retention, now: Stamp, grace_us: i64) -> Marks {
    let needed = Needed::of(facts, retention, now);
    let mut marks = Marks::default();
    for object in &facts.objects {
        let Some(key) = Key::parse(&object.key) else {
            marks.strangers.push(object.key.clone());
            continue;
        };
        let count = if needed.needs(&object.key, &key) {
            &mut marks.needed
        } else if now.0.saturating_sub(object.modified_at.0) < grace_us {
            &mut marks.young
        } else {
            marks.unneeded.push(object.clone());
            continue;
        };
        count.0 += 1;
        count.1 = count.1.saturating_add(object.bytes);
    }
    marks
}

/// What is needed.
struct Needed {
    /// Single objects.
    keys: BTreeSet<String>,
    /// Backups under way, whose parts may come at any time.
    under_way: BTreeSet<Uuid>,
    /// Per node, the first piece of the logs that may be restored from. A node of which none is known keeps its whole log.
    logs: BTreeMap<NodeId, u64>,
}

impl Needed {
    fn of(facts: &Facts, retention: &Retention, now: Stamp) -> Needed {
        let kept = retention.kept(&facts.manifests, now);
        let running = facts.intents.iter().filter(|intent| intent.may_complete(now));
        let under_way: BTreeSet<Uuid> = running.map(|intent| intent.backup).collect();
        let mut keys = BTreeSet::new();
        for manifest in facts.manifests.iter().filter(|manifest| kept.contains_key(&manifest.backup)) {
            keys.insert(manifest.key());
            keys.insert(layout::intent(manifest.backup));
            keys.extend(manifest.parts.iter().map(|part| layout::part(manifest.backup, part.node)));
            keys.extend(manifest.pieces.iter().map(|piece| layout::piece(piece.node, piece.number)));
        }
        keys.extend(under_way.iter().map(|backup| layout::intent(*backup)));
        let mut logs: BTreeMap<NodeId, u64> = BTreeMap::new();
        for part in &facts.parts {
            let how = kept.get(&part.backup);
            let is_under_way = under_way.contains(&part.backup);
            if how.is_some() || is_under_way {
                keys.extend(part.files.iter().map(|file| file.key()));
            }
            if is_under_way || how == Some(&Kept::Whole) {
                let first = logs.entry(part.node).or_insert(part.first_piece);
                *first = (*first).min(part.first_piece);
            }
        }
        Needed { keys, under_way, logs }
    }

    fn needs(&self, text: &str, key: &Key) -> bool {
        let by_kind = match key {
            Key::Index | Key::Lease | Key::Condemned(_) => true,
            Key::Part(backup, _) => self.under_way.contains(backup),
            Key::Piece(node, number) => self.logs.get(node).is_none_or(|first| number >= first),
            Key::File(..) | Key::Manifest(_) | Key::Intent(_) => false,
        };
        by_kind || self.keys.contains(text)
    }
}

#[cfg(test)]
mod tests;
