//! What a time is made of: the newest backup whose cut is not later, the logs behind its parts up to where they are closed
//! through that time, and the state of the cluster then.
//!
//! A time that the logs do not reach, or that lies behind a gap in them, is refused here, before anything is read of any table.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};
use trefoil::backup::{Chain, Covered, Incomplete, IndexEntry, Manifest, Part, PieceHead, Scope, check, covering};
use trefoil::commitlog::Logged;
use trefoil::metadata::ClusterState;
use trefoil::model::{Keyspace, NodeId, Stamp, TableId, VnodeBits};
use trefoil::received::{ReceivedSet, ReceivedSets, Slice};
use uuid::Uuid;

use super::{AT_ONCE, Repository, decoded, layout};
use crate::{Class, Error, Result};

/// A time, and what a cluster is brought back from as of then.
pub struct Moment {
    /// Everything stamped so or before counts, and nothing later.
    pub at: Stamp,
    /// The backup that it begins with.
    pub manifest: Manifest,
    /// The cluster as it was.
    pub state: ClusterState,
    /// What there is of each node.
    pub sources: BTreeMap<NodeId, Source>,
    /// Tables that a restore was loading at some moment between the backup and the time.
    loading: BTreeSet<TableId>,
}

/// What there is of a node.
pub struct Source {
    /// Its files.
    pub part: Part,
    /// Its log from there on, as far as the time needs it, without a gap.
    pub pieces: Vec<PieceHead>,
    /// The names that it has, of what is stamped at the time or before.
    pub names: ReceivedSets,
}

impl Source {
    /// Whether the node's files hold what a record of its log says: it stands before the part's position, or they were told
    /// of it otherwise.
    ///
    /// Such a record must not be read beside the files: a deletion may have been purged there together with what it deleted,
    /// which would come again without it. Names alone do not tell, since those that every replica had are forgotten.
    pub fn is_in_files(&self, logged: &Logged) -> bool {
        let Source { part, .. } = self;
        // What the part does not list it has no files of.
        if part.tables.binary_search_by_key(&logged.record.table(), |table| table.id).is_err() {
            return false;
        }
        let is_told = |(slice, name)| part.received.get(&slice).is_some_and(|set| set.contains(name));
        logged.end <= part.position || logged.record.name(part.vnode_bits).is_some_and(is_told)
    }
}

impl Repository {
    /// What the cluster at the time `at` is brought back from: `backup` if one is named, else the newest that fits. `wanted`
    /// says which backups hold what is asked for.
    pub async fn moment(&self, at: Stamp, backup: Option<Uuid>, wanted: impl Fn(&Scope) -> bool) -> Result<Moment> {
        let base = match backup {
            Some(backup) => backup,
            None => self.base(at, wanted).await?.backup,
        };
        let manifest = self.manifest(base).await?;
        if manifest.cut > at {
            return Err(refused(base, format!("its cut is at {} µs, which is later than {} µs", manifest.cut.0, at.0)));
        }
        let parts = self.parts(&manifest).await?;
        let (mut sources, mut present, mut faults) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut hint = "";
        for part in parts {
            let node = part.node;
            let (pieces, chain) = self.log_behind(&part, at).await?;
            match chain {
                Ok(chain) => drop(present.insert(node, chain)),
                Err(incomplete) => {
                    if matches!(incomplete, Incomplete::NotClosed { .. }) {
                        hint =
                            "; logs are archived up to a time some minutes after it, so that this may be asked again";
                    }
                    faults.push(incomplete.to_string());
                }
            }
            let names = self.names(&part, &pieces, at).await?;
            sources.insert(node, Source { part, pieces, names });
        }
        let (state, loading) = state_at(&manifest, &sources, at)?;
        let in_scope = |keyspace: &&Keyspace| match manifest.scope {
            Scope::All => true,
            Scope::Keyspace(id) => keyspace.id == id,
            Scope::Table(table) => state.table(table).is_some_and(|table| table.keyspace == keyspace.id),
        };
        let keyspaces = state.keyspaces().map(|keyspace| &**keyspace).filter(in_scope);
        check(&state, keyspaces, &present).map_err(|incomplete| {
            faults.insert(0, incomplete.to_string());
            refused(base, format!("it does not reach {} µs: {}{hint}", at.0, faults.join("; ")))
        })?;
        Ok(Moment { at, manifest, state, sources, loading })
    }

    /// The newest backup whose cut is not later.
    async fn base(&self, at: Stamp, wanted: impl Fn(&Scope) -> bool) -> Result<IndexEntry> {
        let index = self.index().await?;
        let fits = |entry: &&IndexEntry| entry.cut <= at && wanted(&entry.scope);
        let newest = index.entries.iter().filter(fits).max_by_key(|entry| (entry.cut, entry.backup));
        newest.cloned().ok_or_else(|| {
            let oldest = index.entries.iter().filter(|entry| wanted(&entry.scope)).map(|entry| entry.cut.0).min();
            let reason = match oldest {
                Some(cut) => format!("no backup has a cut at {} µs or before; the oldest cut is at {cut} µs", at.0),
                None => "no backup holds what is asked for".to_owned(),
            };
            Error::new(Class::Invalid, "read", layout::INDEX, reason)
        })
    }

    /// The pieces behind a part, without a gap, up to the one that closes the time; and whether one does.
    async fn log_behind(&self, part: &Part, at: Stamp) -> Result<(Vec<PieceHead>, Result<Chain, Incomplete>)> {
        let numbers = self.pieces(part.node, part.first_piece).await?;
        let mut heads: Vec<PieceHead> = Vec::new();
        for some in numbers.chunks(AT_ONCE) {
            let asked = some.iter().map(|number| self.head(part.node, *number));
            let more: Vec<PieceHead> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
            heads.extend(more);
            match Chain::of(part, &heads, at) {
                Ok(chain) => {
                    heads.truncate(chain.pieces);
                    return Ok((heads, Ok(chain)));
                }
                Err(Incomplete::NotClosed { .. }) => {}
                Err(gap) => {
                    let whole = whole_prefix(part, &heads);
                    heads.truncate(whole);
                    return Ok((heads, Err(gap)));
                }
            }
        }
        let open = Incomplete::NotClosed { node: part.node, told: heads.last().map(|head| head.told) };
        Ok((heads, Err(open)))
    }

    /// The names in a part and the pieces behind it, without those that are stamped later: a piece that has some is read.
    async fn names(&self, part: &Part, pieces: &[PieceHead], at: Stamp) -> Result<ReceivedSets> {
        let mut names = part.received.clone();
        for head in pieces {
            if head.stamps.is_none_or(|(_, highest)| highest <= at) {
                for (slice, set) in &head.names {
                    names.entry(*slice).or_default().union(set);
                }
                continue;
            }
            let piece = self.piece(head.node, head.number).await?;
            let add = piece.for_each(|Logged { record, .. }| {
                if let Some((slice, name)) = record.name(part.vnode_bits).filter(|_| record.stamp() <= at) {
                    names.entry(slice).or_default().add(name);
                }
                Ok(())
            });
            decoded(&head.key(), add)?;
        }
        Ok(names)
    }
}

impl Moment {
    /// Refuses a table that a restore was loading since the backup was made: what is loaded is in no log, so the backup and the
    /// logs behind it do not hold all of it.
    pub fn check_whole(&self, table: TableId) -> Result<()> {
        if !self.loading.contains(&table) {
            return Ok(());
        }
        let name = self.state.table(table).map_or_else(|| table.to_string(), |table| table.name.clone());
        let text = "was loaded by a restore after this backup, which does not hold what was loaded: begin with a backup that was made later";
        Err(refused(self.manifest.backup, format!("table {name} {text}")))
    }

    /// The number of the cluster's vnodes.
    pub fn vnode_bits(&self) -> VnodeBits {
        self.state.ring().vnode_bits()
    }

    /// Whose copies of a slice amount to all of them: one node's if that is known to have every name, else all nodes'.
    ///
    /// Where a vnode's placement was ever renumbered all are read: whoever lost something may have handed out before, without
    /// its name, what is left nowhere else.
    pub fn copies(&self, slice: Slice) -> Vec<NodeId> {
        let replicas = self.state.keyspace(slice.0).map(|keyspace| self.state.ring().replicas_of(keyspace, slice.1));
        let is_plain = replicas.as_ref().is_some_and(|replicas| replicas.placement == 1);
        let set = |source: &Source| source.names.get(&slice).cloned().unwrap_or_default();
        let holds = |node: &NodeId| replicas.as_ref().is_some_and(|replicas| replicas.contains(*node));
        let sets: BTreeMap<NodeId, ReceivedSet> = self
            .sources
            .iter()
            .filter(|(node, source)| holds(node) || source.names.contains_key(&slice))
            .map(|(node, source)| (*node, set(source)))
            .collect();
        match covering(slice, &sets) {
            Covered::ByOne(node) if is_plain => vec![node],
            Covered::ByOne(_) | Covered::ByAll => self.sources.keys().copied().collect(),
        }
    }
}

/// How many of these pieces follow the part and each other.
fn whole_prefix(part: &Part, heads: &[PieceHead]) -> usize {
    let (mut number, mut end) = (part.first_piece, None);
    let follow = heads.iter().take_while(|head| {
        let follows = head.number == number && end.map_or(head.from <= part.position, |end| end == head.from);
        (number, end) = (number.saturating_add(1), Some(head.to));
        follows
    });
    follow.count()
}

/// The latest state that any node had applied by then, and the tables that were under restore in any since the backup.
fn state_at(
    manifest: &Manifest,
    sources: &BTreeMap<NodeId, Source>,
    at: Stamp,
) -> Result<(ClusterState, BTreeSet<TableId>)> {
    let under_restore =
        |state: &ClusterState| state.restores().values().flat_map(|restore| restore.tables.clone()).collect();
    let mut newest = decoded(&manifest.key(), ClusterState::decode(manifest.state.clone()))?;
    let mut loading: BTreeSet<TableId> = under_restore(&newest);
    for head in sources.values().flat_map(|source| &source.pieces) {
        for state in head.states.iter().filter(|state| state.applied_at <= at) {
            let state = decoded(&head.key(), ClusterState::decode(state.state.clone()))?;
            loading.append(&mut under_restore(&state));
            if state.epoch() > newest.epoch() {
                newest = state;
            }
        }
    }
    Ok((newest, loading))
}

fn refused(backup: Uuid, reason: String) -> Error {
    Error::new(Class::Invalid, "read", layout::backup(backup), reason)
}
