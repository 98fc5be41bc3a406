//! A job from its intent to its manifest, seen to by one node at a time. Every step may be done again by another node that
//! takes over: nothing is kept here that the bucket and the nodes do not tell again.
//!
//! ```text
//!   every node: make a part ─► all ready, or absent for long ─► cut := later than every stamp in any part
//!     ─► every log archived and closed through the cut ─► complete? every object there? ─► manifest ─► index ─► intent: complete
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use prost::Message;
use tokio::time::Instant;
use trefoil::backup::{
    Absent, Chain, Incomplete, IndexEntry, Intent, Listed, ListedPart, ListedPiece, Manifest, Part, Phase, PieceHead,
    Scope, check, layout,
};
use trefoil::metadata::ClusterState;
use trefoil::model::{Keyspace, NodeId, Stamp};
use trefoil::ring::NodeState;
use trefoil_proto::convert::schema as convert;
use trefoil_proto::v1;
use trefoil_proto::v1::backup_call::Call;
use trefoil_s3::Creation;
use uuid::Uuid;

use super::keeper::Crew;
use super::{BackupSettings, JobError, Pauses, Trouble};
use crate::clock;

/// From one look at a job to the next.
const STEP: Duration = Duration::from_secs(1);

/// How often the driver says that it is there, at least.
const DRIVEN_EVERY: Duration = Duration::from_secs(15);

/// How long a node may take to tell of its part.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Objects that are asked for at once before a manifest is written.
const HEADS_AT_ONCE: usize = 16;

/// What came of a look at a job.
enum Step {
    /// It is not complete: it waits for this.
    Waits(String),
    /// It cannot become complete.
    Fails(String),
    /// The manifest is there and the index lists it.
    Complete,
}

/// A node as the job has seen it.
#[derive(Default)]
struct Seen {
    answer: Option<v1::BackupPart>,
    /// Since when it does not answer.
    silent_since: Option<Instant>,
}

/// A part as the bucket has it.
struct Read {
    part: Part,
    object: Listed,
}

struct Job {
    crew: Arc<Crew>,
    backup: Uuid,
    nodes: BTreeMap<NodeId, Seen>,
    parts: BTreeMap<NodeId, Read>,
    heads: BTreeMap<NodeId, Vec<PieceHead>>,
}

/// Sees to a job until it is over or another node does.
pub(super) async fn drive(crew: Arc<Crew>, backup: Uuid) {
    let mut job =
        Job { crew: crew.clone(), backup, nodes: BTreeMap::new(), parts: BTreeMap::new(), heads: BTreeMap::new() };
    let mut pauses = Pauses::default();
    loop {
        match job.look().await {
            Ok(Some(())) => {
                pauses.end();
                tokio::time::sleep(STEP).await;
            }
            Ok(None) => return,
            Err(error) => {
                crew.archive.failed("a step of a backup", error.to_string());
                pauses.wait().await;
            }
        }
    }
}

impl Job {
    /// One look. `None`: there is nothing more to do here.
    async fn look(&mut self) -> Result<Option<()>, Trouble> {
        let archive = self.crew.archive.clone();
        let Some((intent, _)) = archive.intent(self.backup).await? else { return Ok(None) };
        if intent.phase.is_over() {
            self.drop_parts().await;
            return Ok(None);
        }
        if intent.driver != self.crew.own() {
            return Ok(None);
        }
        let age = clock::wall_us().saturating_sub(intent.began_at.0);
        let step = if age > micros(archive.settings.give_up) {
            Step::Fails(format!("it took too long; it waited for this: {}", intent.reason))
        } else if intent.phase == Phase::Paused {
            Step::Waits("it is paused".to_owned())
        } else {
            self.advance(&intent).await?
        };
        match step {
            Step::Waits(reason) => {
                let late =
                    clock::wall_us().saturating_sub(intent.driven_at.0) > micros(driven_every(&archive.settings));
                if late || (intent.reason != reason && intent.phase == Phase::Running) {
                    self.say(|intent| intent.reason.clone_from(&reason)).await?;
                }
                Ok(Some(()))
            }
            Step::Fails(reason) => {
                tracing::error!(backup = %self.backup, reason, "a backup has failed");
                self.say(|intent| (intent.phase, intent.reason) = (Phase::Failed, reason.clone())).await?;
                archive.counts.failed.fetch_add(1, Ordering::Relaxed);
                Ok(Some(()))
            }
            Step::Complete => {
                self.say(|intent| (intent.phase, intent.reason) = (Phase::Complete, String::new())).await?;
                archive.counts.complete.fetch_add(1, Ordering::Relaxed);
                tracing::info!(backup = %self.backup, "a backup is complete");
                Ok(Some(()))
            }
        }
    }

    /// Changes the intent, as long as this node is its driver.
    async fn say(&self, change: impl Fn(&mut Intent)) -> Result<(), Trouble> {
        let own = self.crew.own();
        let said = self.crew.archive.change(self.backup, |intent| {
            if intent.driver != own {
                return false;
            }
            change(intent);
            intent.driven_at = Stamp(clock::wall_us());
            true
        });
        match said.await {
            // The next look finds out.
            Ok(_) | Err(JobError::Over(..) | JobError::Unknown(_)) => Ok(()),
            Err(JobError::Bucket(reason)) => Err(Trouble::Intent(reason)),
        }
    }

    async fn advance(&mut self, intent: &Intent) -> Result<Step, Trouble> {
        self.ask_nodes(intent).await;
        let patience = self.crew.archive.settings.absent_after;
        if let Some(node) = self.nodes.iter().find(|(_, seen)| !seen.is_settled(patience)).map(|(node, _)| node.0) {
            return Ok(Step::Waits(format!("node {node} makes its part")));
        }
        self.read_parts().await?;
        let stamps = self.parts.values().map(|read| read.part.highest.max(read.part.made_at));
        let Some(latest) = stamps.max() else {
            return Ok(self.short_of("no node has a part".to_owned()));
        };
        let Some(cut) = intent.cut.filter(|cut| *cut > latest) else {
            let cut = Stamp(latest.0 + 1);
            self.say(|intent| intent.cut = Some(cut)).await?;
            return Ok(Step::Waits("the logs of all nodes".to_owned()));
        };
        let (mut chains, mut gaps) = (BTreeMap::new(), BTreeMap::new());
        for node in self.parts.keys().copied().collect::<Vec<_>>() {
            match self.chain(node, cut).await? {
                Ok(chain) => drop(chains.insert(node, chain)),
                Err(gap @ Incomplete::Gap { .. }) => drop(gaps.insert(node, gap.to_string())),
                Err(late) if self.nodes.get(&node).is_some_and(|seen| seen.is_absent(patience)) => {
                    gaps.insert(node, late.to_string());
                }
                Err(_) => return Ok(Step::Waits(format!("the log of node {} is archived through the cut", node.0))),
            }
        }
        let state = self.state_at(cut)?;
        if let Err(incomplete) = check(&state, keyspaces(&state, intent.scope), &chains) {
            return Ok(self.short_of(incomplete.to_string()));
        }
        self.finish(intent, cut, &state, &chains, &gaps).await
    }

    /// What there is does not suffice: nodes that are away may come back, others will have no more than now.
    fn short_of(&self, reason: String) -> Step {
        let is_waited_for = self.nodes.values().any(|seen| seen.silent_since.is_some());
        if is_waited_for { Step::Waits(reason) } else { Step::Fails(reason) }
    }

    /// Asks every node to make its part, or to tell how far it is.
    async fn ask_nodes(&mut self, intent: &Intent) {
        let state = self.crew.shared.cluster.load_full();
        let nodes: Vec<NodeId> =
            state.ring().nodes().filter(|node| node.state != NodeState::Gone).map(|node| node.id).collect();
        let (keyspace, table) = match intent.scope {
            Scope::All => (None, Bytes::new()),
            Scope::Keyspace(id) => (Some(id.0), Bytes::new()),
            Scope::Table(id) => (None, convert::table_id(id)),
        };
        let make = v1::MakePart { keyspace, table, cut_us: intent.cut.unwrap_or_default().0 };
        let call = v1::BackupCall { backup: uuid_bytes(self.backup), call: Some(Call::Make(make)) };
        let answers = join_all(nodes.iter().map(|node| self.crew.ask(*node, &call))).await;
        self.nodes.retain(|node, _| nodes.contains(node));
        for (node, answer) in nodes.into_iter().zip(answers) {
            let seen = self.nodes.entry(node).or_default();
            match answer {
                Ok(answer) => (seen.answer, seen.silent_since) = (Some(answer), None),
                Err(_) => drop(seen.silent_since.get_or_insert_with(Instant::now)),
            }
        }
    }

    /// Reads the parts that are in the bucket, each once; that of a node that is away, too.
    async fn read_parts(&mut self) -> Result<(), Trouble> {
        for (node, seen) in &self.nodes {
            let has_none = seen.answer.as_ref().is_some_and(|answer| answer.stage() == v1::BackupPartStage::Failed);
            if has_none || self.parts.contains_key(node) {
                continue;
            }
            let key = layout::part(self.backup, *node);
            if let Some(found) = self.crew.archive.door.find(&key).await? {
                let part = Part::decode(&key, &found.bytes)?;
                self.parts.insert(*node, Read { part, object: Listed::of(&found.bytes) });
            }
        }
        Ok(())
    }

    /// Reads what the log of a node has got since the last look, and how far it goes.
    async fn chain(&mut self, node: NodeId, cut: Stamp) -> Result<Result<Chain, Incomplete>, Trouble> {
        let Some(Read { part, .. }) = self.parts.get(&node) else {
            return Ok(Err(Incomplete::NotClosed { node, told: None }));
        };
        let heads = self.heads.entry(node).or_default();
        let told = self.nodes.get(&node).and_then(|seen| seen.answer.as_ref()).map_or(0, |answer| answer.log_told_us);
        let is_silent = self.nodes.get(&node).is_some_and(|seen| seen.silent_since.is_some());
        // While the node says that it is not so far, the bucket need not be asked.
        if told >= cut.0 || is_silent {
            loop {
                let done = heads.last().is_some_and(|head| head.told >= cut && head.to >= part.position);
                let next = part.first_piece + heads.len() as u64;
                let head = if done { None } else { self.crew.archive.piece_head(node, next).await? };
                match head {
                    Some(head) => heads.push(head),
                    None => break,
                }
            }
        }
        Ok(Chain::of(part, heads, cut))
    }

    /// The newest state of the cluster that some node came to know before the cut.
    fn state_at(&self, cut: Stamp) -> Result<ClusterState, Trouble> {
        let in_parts = self.parts.values().map(|read| &read.part.state);
        let in_pieces = self.heads.values().flatten().flat_map(|head| &head.states);
        let in_pieces = in_pieces.filter(|known| known.applied_at <= cut).map(|known| &known.state);
        let mut newest: Option<ClusterState> = None;
        for bytes in in_parts.chain(in_pieces) {
            let state = ClusterState::decode(bytes.clone())?;
            if newest.as_ref().is_none_or(|newest| newest.epoch() < state.epoch()) {
                newest = Some(state);
            }
        }
        newest.ok_or_else(|| Trouble::Intent("no part says what the cluster is like".to_owned()))
    }

    /// Writes the manifest, once everything that it lists is seen to be there, and then lists it.
    async fn finish(
        &self,
        intent: &Intent,
        cut: Stamp,
        state: &ClusterState,
        chains: &BTreeMap<NodeId, Chain>,
        gaps: &BTreeMap<NodeId, String>,
    ) -> Result<Step, Trouble> {
        let archive = &self.crew.archive;
        let mut manifest = Manifest {
            cluster: intent.cluster,
            backup: intent.backup,
            name: intent.name.clone(),
            tag: intent.tag.clone(),
            scope: intent.scope,
            began_at: intent.began_at,
            cut,
            state: state.encode().into(),
            parts: Vec::new(),
            pieces: Vec::new(),
            absent: self.absent(chains, gaps),
        };
        let mut files = BTreeMap::new();
        for (node, chain) in chains {
            let Some(Read { part, object }) = self.parts.get(node) else { continue };
            files.extend(part.files.iter().map(|file| (file.key(), file.meta.bytes)));
            let (count, file_bytes) = (part.files.len() as u64, part.bytes());
            manifest.parts.push(ListedPart { node: *node, object: *object, files: count, file_bytes });
            for number in (part.first_piece..).take(chain.pieces) {
                let object = archive.door.get(&layout::piece(*node, number), None).await?;
                manifest.pieces.push(ListedPiece { node: *node, number, object: Listed::of(&object.bytes) });
            }
        }
        self.are_there(files).await?;
        // All that took its time: prune relies on no manifest being written of a backup that has lasted too long (B080).
        if !self.may_complete().await? {
            return Ok(Step::Waits("it may not be completed any more by this node".to_owned()));
        }
        let (key, body) = (manifest.key(), manifest.encode());
        if archive.door.create(&key, body).await? == Creation::AlreadyThere {
            // Of whoever drove it before; what was said first counts.
            let found = archive.door.get(&key, None).await?;
            manifest = Manifest::decode(&key, &found.bytes)?;
        }
        archive.change_index(|index| index.add(IndexEntry::of(&manifest))).await?;
        Ok(Step::Complete)
    }

    /// Whether the backup is still wanted, not too old, and this node's to see to: as the bucket has it now.
    async fn may_complete(&self) -> Result<bool, Trouble> {
        let found = self.crew.archive.intent(self.backup).await?;
        let is_own = |intent: &Intent| intent.driver == self.crew.own() && intent.phase == Phase::Running;
        Ok(found.is_some_and(|(intent, _)| is_own(&intent) && intent.may_complete(Stamp(clock::wall_us()))))
    }

    async fn are_there(&self, files: BTreeMap<String, u64>) -> Result<(), Trouble> {
        let door = &self.crew.archive.door;
        let all = stream::iter(files).map(async |(key, bytes)| match door.head(&key).await? {
            Some(found) if found.bytes == bytes => Ok(()),
            found => Err(Trouble::OtherLength(key, found.map_or(0, |found| found.bytes), bytes)),
        });
        all.buffer_unordered(HEADS_AT_ONCE).try_collect::<()>().await
    }

    fn absent(&self, chains: &BTreeMap<NodeId, Chain>, gaps: &BTreeMap<NodeId, String>) -> Vec<Absent> {
        let reason = |node: &NodeId, seen: &Seen| {
            let told = seen.answer.as_ref().map(|answer| answer.trouble.clone()).filter(|told| !told.is_empty());
            gaps.get(node).cloned().or(told).unwrap_or_else(|| "it did not answer".to_owned())
        };
        let without = self.nodes.iter().filter(|(node, _)| !chains.contains_key(node));
        without.map(|(node, seen)| Absent { node: *node, reason: reason(node, seen) }).collect()
    }

    /// Best effort: a node that is not reached finds out by itself.
    async fn drop_parts(&self) {
        let state = self.crew.shared.cluster.load_full();
        let call = v1::BackupCall { backup: uuid_bytes(self.backup), call: Some(Call::Drop(v1::DropPart {})) };
        let nodes: BTreeSet<NodeId> = state.ring().nodes().map(|node| node.id).collect();
        join_all(nodes.iter().map(|node| self.crew.ask(*node, &call))).await;
    }
}

impl Seen {
    /// Whether nothing more is to be expected of it for now.
    fn is_settled(&self, patience: Duration) -> bool {
        let stage = self.answer.as_ref().map(v1::BackupPart::stage);
        matches!(stage, Some(v1::BackupPartStage::Ready | v1::BackupPartStage::Failed)) || self.is_absent(patience)
    }

    fn is_absent(&self, patience: Duration) -> bool {
        self.silent_since.is_some_and(|since| since.elapsed() >= patience)
    }
}

impl Crew {
    /// What a node says of its part.
    pub(crate) async fn ask(&self, node: NodeId, call: &v1::BackupCall) -> Result<v1::BackupPart, String> {
        if node == self.own() {
            return self.answer(call.clone()).await.map_err(|status| status.message().to_owned());
        }
        let body = Bytes::from(call.encode_to_vec());
        let answer = self.rpc.call(node, v1::CallKind::Backup, body, CALL_TIMEOUT).await;
        let answer = answer.map_err(|error| error.to_string())?;
        v1::BackupPart::decode(answer).map_err(|error| error.to_string())
    }
}

fn keyspaces(state: &ClusterState, scope: Scope) -> impl Iterator<Item = &Keyspace> {
    let of_table = match scope {
        Scope::Table(table) => state.tables().find(|known| known.id == table).map(|table| table.keyspace),
        _ => None,
    };
    state.keyspaces().map(|keyspace| &**keyspace).filter(move |keyspace| match scope {
        Scope::All => true,
        Scope::Keyspace(id) => keyspace.id == id,
        Scope::Table(_) => Some(keyspace.id) == of_table,
    })
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// How often the driver of a backup says that it is there: several times before others lose their patience.
pub(super) fn driven_every(settings: &BackupSettings) -> Duration {
    DRIVEN_EVERY.min(settings.absent_after / 3)
}

pub(super) fn uuid_bytes(id: Uuid) -> Bytes {
    Bytes::copy_from_slice(id.as_bytes())
}
