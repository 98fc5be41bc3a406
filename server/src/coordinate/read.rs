//! Reads that this node coordinates: one request becomes as many read commands as its page takes.
//!
//! ```text
//!   request ─► targets ─► a scan: runs of vnodes with the same replicas ─► ReadOp ─► Assembler ─┬─► page
//!                ▲                                                                               │
//!                └──────────── next command: from where the answer ended, or the next target ◄───┘
//! ```
//!
//! Every command has an id of its own in the slab, so that a late reply to one never meets the next. What happens to one
//! command is in `round.rs`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use trefoil::coordinator::{
    Assembler, Consistency, Extent, FailureReason, Next, PageLimits, PagingState, ReadAction, ReadAnswer, ReadError,
    ReadGuards, ReadOp, Requirement, Start,
};
use trefoil::model::{
    Instant, LiveColumns, NodeId, PagePosition, ReadCommand, Slice, Stamp, Target, Timestamp, Token, TokenRange, Vnode,
};
use trefoil::ring::Replicas;
use trefoil_proto::convert::{answer::Projector, peer as convert, read as parts};
use trefoil_proto::v1;
use trefoil_proto::v1::pipe_answer::Result as Answer;

use super::ops::Op;
use super::request::{Kind, Reply, Request};
use super::round::{Event, Round};
use super::{Lane, Place, failure};
use crate::clock;

/// Commands that one page may take before it is answered as far as it got: a scan of an empty table must end some time.
const COMMANDS_MAX: u32 = 4_096;

/// How soon a command is begun again that failed because nodes do not agree on the metadata.
const STALE_RETRY: Duration = Duration::from_millis(20);

/// A read that goes on from memory for longer lets others have their turn: a lane that does not answer its peers' pings
/// is taken for dead.
const RUN_US_MAX: u64 = 2_000;

/// A read under way.
pub(super) struct ReadSession {
    pub(super) request: Request,
    pub(super) place: Place,
    level: Consistency,
    parts: parts::ReadParts,
    fingerprint: u64,
    now_s: i64,
    rows_left: Option<u64>,
    assembler: Assembler,
    /// The target being read, by its index.
    target: usize,
    /// Where the next command of the target begins.
    after: Option<PagePosition>,
    /// For a scan: the tokens that no command has covered yet.
    remaining: TokenRange,
    commands: u32,
    /// Whether the answer is to say what it has cost.
    is_traced: bool,
    pub(super) round: Option<Round>,
    /// Its command waits to be begun again.
    stale: Option<Stale>,
}

/// A command that failed because nodes do not agree on the metadata.
struct Stale {
    /// By then they may.
    again_at: Instant,
    /// What is answered if there is no time left.
    error: v1::Error,
}

impl ReadSession {
    /// When it is to be looked at next.
    pub(super) fn due(&self) -> Instant {
        let look_at = match (&self.round, &self.stale) {
            (Some(round), _) => round.look_at,
            (None, stale) => stale.as_ref().map(|stale| stale.again_at),
        };
        look_at.map_or(self.request.deadline, |look_at| look_at.min(self.request.deadline))
    }

    pub(super) fn waits_for(&self, node: NodeId) -> bool {
        // Failing a replica that is not waited for changes nothing.
        self.round.as_ref().is_some_and(|round| round.nodes.iter().any(|replica| replica.node == node))
    }

    /// The command covered all it asked for: the next run of a scan, or the next target.
    fn next_target(&mut self, run: Option<TokenRange>) {
        self.after = None;
        match run {
            Some(run) if run.up_to != self.remaining.up_to && run.up_to.is_some() => self.remaining.after = run.up_to,
            _ => {
                self.target += 1;
                self.remaining = self.parts.targets.get(self.target).map_or(TokenRange::ALL, tokens_of);
            }
        }
    }
}

impl Lane {
    /// A page of a read.
    pub(super) fn read(self: &Arc<Self>, mut request: v1::ReadRequest, deadline: Instant, reply: Reply) {
        let (size, options) = (request.encoded_len(), request.options.take());
        let Some((under_way, options)) = self.admit(Kind::Read, size, options, deadline, reply) else { return };
        match self.plan_read(request, &options) {
            Ok(plan) => {
                let session = Box::new(plan.begin(under_way, self.shared.peers.wall_us()));
                self.run(session);
            }
            Err(error) => under_way.fail(error),
        }
    }

    fn plan_read(&self, mut request: v1::ReadRequest, options: &v1::Options) -> Result<Plan, v1::Error> {
        let level = failure::level(options)?;
        // An observed stamp that is not credible is no reason to refuse a read.
        let _ = self.shared.naming.observe(Stamp(options.observed_stamp));
        let place = self.place(request.table.take().as_ref())?;
        let (page_rows, page_bytes) = (std::mem::take(&mut request.page_rows), std::mem::take(&mut request.page_bytes));
        let paging_state = std::mem::take(&mut request.paging_state);
        let invalid =
            |invalid: v1::InvalidDetail| v1::Error::invalid(invalid.table(&place.keyspace.name, &place.table.name));
        self.shared.guardrails.check_ranges(&request).map_err(invalid)?;
        let fingerprint = fingerprint(&request, &place);
        let paging = match paging_state.is_empty() {
            true => None,
            false => Some(
                PagingState::decode(&paging_state, fingerprint)
                    .map_err(|error| invalid(v1::InvalidDetail::from_core(&error)))?,
            ),
        };
        let parts = parts::read(request, &place.table).map_err(invalid)?;
        let limits = &self.shared.limits;
        let rows_left = paging.as_ref().map_or(parts.limit, |state| state.rows_left);
        let page_rows = if page_rows == 0 { limits.page_rows_default } else { page_rows };
        let page_rows = rows_left.map_or(page_rows, |left| page_rows.min(u32::try_from(left).unwrap_or(u32::MAX)));
        let page_bytes = match page_bytes {
            0 => limits.page_bytes_default,
            bytes => bytes.min(limits.page_bytes_default),
        };
        let page = PageLimits {
            rows: page_rows.max(1),
            bytes: u64::from(page_bytes),
            rows_per_partition: parts.per_partition_limit,
        };
        let (guards, is_traced) = (self.shared.guardrails.of_reads(), options.trace);
        Ok(Plan { place, level, parts, fingerprint, rows_left, page, paging, guards, is_traced })
    }

    /// Runs the session until it waits for somebody else or is answered.
    pub(super) fn run(self: &Arc<Self>, session: Box<ReadSession>) {
        let began = clock::now();
        // A loop and no recursion: each of a thousand commands may be answered from memory at once.
        let mut next = Some(session);
        while let Some(session) = next {
            if clock::now().since_us(began) > RUN_US_MAX {
                let lane = self.clone();
                tokio::spawn(async move { lane.run(session) });
                return;
            }
            let Some((session, id, actions)) = self.next_command(session) else { return };
            next = self.carry_out(session, id, actions);
        }
    }

    /// The next command of the session with its first actions; `None` if the session was answered.
    fn next_command(&self, mut session: Box<ReadSession>) -> Option<(Box<ReadSession>, u64, Vec<ReadAction>)> {
        let Some(parts::ReadTarget { target, slices }) = session.parts.targets.get(session.target).cloned() else {
            self.answer_page(session, None);
            return None;
        };
        if session.commands >= COMMANDS_MAX || (session.commands > 0 && session.request.is_half_spent()) {
            self.pause(session);
            return None;
        }
        session.commands += 1;
        let whole = slices == [Slice::all()];
        session.assembler.begin_target(if whole { Extent::WholePartitions } else { Extent::Slices });
        let (target, replicas, run) = self.route(&session, target);
        // Equally near replicas share the partitions, each always asked for the same ones: that is what its cache holds.
        let turn = match &target {
            Target::Partition(key) => key.token().0 as usize,
            Target::Scan(_) => session.commands as usize,
        };
        let command = Arc::new(ReadCommand {
            table: session.place.table.id,
            target,
            slices,
            direction: session.parts.direction,
            after: session.after.clone(),
            now_s: session.now_s,
            limit_rows: session.assembler.wanted(),
            limit_bytes: self.shared.limits.page_bytes_default,
        });
        let state = &session.place.state;
        let regions: Vec<u16> = replicas.nodes.iter().map(|replica| replica.region.0).collect();
        let requirement = Requirement::new(session.level, &regions, self.shared.own_region(state).0);
        let order = self.order(state, &replicas, turn);
        let below = self.purged_below(&session.place, &command.target, run);
        let mut actions = Vec::new();
        match ReadOp::start(command, requirement, &order, below, &mut actions) {
            Ok(op) => {
                session.round = Some(Round::new(op, replicas.nodes, replicas.placement, run));
                let id = self.ops.lock().insert(Op::Stepping);
                Some((session, id, actions))
            }
            Err(unavailable) => {
                let error = failure::unavailable(session.level, unavailable);
                session.request.fail(error);
                None
            }
        }
    }

    /// Below which timestamps deletions may be gone on some replicas and not yet on others: they make no difference there.
    fn purged_below(&self, place: &Place, target: &Target, run: Option<TokenRange>) -> Option<Timestamp> {
        let bits = place.state.ring().vnode_bits();
        let (first, last) = match (target, run) {
            (Target::Partition(key), _) => (bits.vnode(key.token()), bits.vnode(key.token())),
            (Target::Scan(_), run) => {
                let run = run.unwrap_or(TokenRange::ALL);
                let first = run.after.map_or(Vnode(0), |after| bits.vnode(Token(after.0.saturating_add(1))));
                (first, run.up_to.map_or(Vnode(bits.count() - 1), |up_to| bits.vnode(up_to)))
            }
        };
        let known = |vnode| self.shared.replication.known_through((place.keyspace.id, Vnode(vnode)));
        let through = (first.0..=last.0).map(known).min().filter(|through| *through > Stamp::default())?;
        let lateness_us = i64::from(place.table.options.lateness_s) * 1_000_000;
        Some(Timestamp(through.0.saturating_sub(lateness_us)))
    }

    /// Answers a page that is not full: enough was done for one request.
    fn pause(&self, session: Box<ReadSession>) {
        let start = match (session.after.clone(), session.remaining.after) {
            (Some(position), _) => Start::Resume(session.assembler.pause(position)),
            (None, Some(token)) => Start::Behind(token),
            (None, None) => Start::Beginning,
        };
        self.answer_page(session, Some(start));
    }

    /// Who holds the target. For a scan: the longest run of vnodes from where it stands that have the same replicas.
    fn route(&self, session: &ReadSession, target: Target) -> (Target, Replicas, Option<TokenRange>) {
        let ring = session.place.state.ring();
        let bits = ring.vnode_bits();
        if let Target::Partition(key) = &target {
            let replicas = ring.replicas(&session.place.keyspace, key.token());
            return (target, replicas, None);
        }
        let first = session.remaining.after.map_or(Token(i64::MIN), |after| Token(after.0.saturating_add(1)));
        let mut vnode = bits.vnode(first);
        let mut replicas = ring.replicas_of(&session.place.keyspace, vnode);
        // The ring lists replicas in another order for each vnode; which ones they are is what matters here.
        replicas.nodes.sort_unstable_by_key(|replica| replica.node);
        let last = session.remaining.up_to.map_or(Vnode(bits.count() - 1), |up_to| bits.vnode(up_to));
        while vnode < last {
            let mut next = ring.replicas_of(&session.place.keyspace, Vnode(vnode.0 + 1));
            next.nodes.sort_unstable_by_key(|replica| replica.node);
            if next.nodes != replicas.nodes {
                break;
            }
            vnode = next.vnode;
        }
        let end = bits.range(vnode).up_to;
        let up_to = match (end, session.remaining.up_to) {
            (Some(end), Some(up_to)) => Some(end.min(up_to)),
            (end, up_to) => end.or(up_to),
        };
        let run = TokenRange { after: session.remaining.after, up_to };
        replicas.placement = ring.placement_in(run);
        (Target::Scan(run), replicas, Some(run))
    }

    /// A command is over: answers the session, or the request.
    pub(super) fn take_answer(
        &self,
        mut session: Box<ReadSession>,
        result: Result<ReadAnswer, ReadError>,
    ) -> Option<Box<ReadSession>> {
        let round = session.round.take()?;
        self.note_end(&round);
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                let is_stale = is_stale(&error);
                let error = failure::read(session.level, error, |at| round.nodes[at].node);
                match is_stale {
                    true => self.wait_for_metadata(session, error),
                    false => session.request.fail(error),
                }
                return None;
            }
        };
        match session.assembler.take(answer) {
            Err(error) => {
                let text = format!("the answer of the replicas cannot be read: {error}");
                session.request.fail(v1::Error::new(tonic::Code::DataLoss, text, v1::Outcome::NotApplied));
                None
            }
            Ok(Next::TooManyTombstones { partition, found }) => {
                let error = self.shared.guardrails.too_many_tombstones(&partition, found, &session.place);
                session.request.cost.tombstones = found;
                session.request.fail(error);
                None
            }
            Ok(Next::PageFull(resume)) => {
                self.answer_page(session, Some(Start::Resume(resume)));
                None
            }
            Ok(Next::ReadAfter(position)) => {
                session.after = Some(position);
                Some(session)
            }
            Ok(Next::Complete) => {
                session.next_target(round.run);
                Some(session)
            }
        }
    }

    /// The nodes do not agree on the metadata, and whoever is behind has begun to fetch them: begins the command again
    /// soon, by the metadata of then.
    fn wait_for_metadata(&self, mut session: Box<ReadSession>, error: v1::Error) {
        let again_at = clock::after(STALE_RETRY);
        if again_at >= session.request.deadline {
            return session.request.fail(error);
        }
        session.stale = Some(Stale { again_at, error });
        self.ops.lock().insert(Op::Read(session));
    }

    /// Begins the command of a session again that has waited for metadata, unless its table is gone.
    fn begin_again(self: &Arc<Self>, mut session: Box<ReadSession>) {
        let Some(Stale { error, .. }) = session.stale.take() else { return };
        let state = self.shared.cluster.load_full();
        let keyspace = state.keyspace(session.place.keyspace.id).cloned();
        match keyspace.filter(|_| state.table(session.place.table.id).is_some()) {
            Some(keyspace) if clock::now() < session.request.deadline => {
                session.place = Place { state, keyspace, table: session.place.table.clone() };
                // It counts once.
                session.commands -= 1;
                self.run(session);
            }
            _ => session.request.fail(error),
        }
    }

    /// The time has come to look at a read: its deadline, or before.
    pub(super) fn read_due(self: &Arc<Self>, id: u64) {
        let mut ops = self.ops.lock();
        let Some(Op::Read(session)) = ops.get(id) else { return };
        let deadline = session.request.deadline;
        if session.round.is_some() {
            drop(ops);
            let event = if deadline <= clock::now() { Event::Expired } else { Event::Late };
            return self.read_event(id, event);
        }
        if let Some(Op::Read(session)) = ops.remove(id) {
            drop(ops);
            self.begin_again(session);
        }
    }

    /// Answers the page. `next`: `None` if it is the last; else where the next one begins within the present target.
    fn answer_page(&self, session: Box<ReadSession>, next: Option<Start>) {
        let ReadSession { mut request, place, parts, fingerprint, now_s, rows_left, assembler, target, .. } = *session;
        let warnings = self.shared.guardrails.check_page(&assembler, &place);
        request.cost.tombstones = assembler.tombstones();
        let cost = session
            .is_traced
            .then(|| v1::ReadCost { commands: u64::from(session.commands), ..convert::read_cost(&request.cost) });
        let results = assembler.into_rows();
        let rows_left = rows_left.map(|left| left.saturating_sub(results.len() as u64));
        let paging_state = match next {
            Some(start) if rows_left != Some(0) => {
                PagingState { target: target as u32, start, rows_left }.encode(fingerprint)
            }
            _ => Bytes::new(),
        };
        let projector = Projector::new(&place.table, &parts.projection, now_s);
        match rows(&projector, &results) {
            Ok(rows) => request.finish(Answer::Page(v1::ReadPage {
                columns: projector.columns(),
                rows,
                paging_state,
                stamp: self.shared.peers.wall_us(),
                table_version: place.table.version,
                warnings,
                cost,
            })),
            Err(error) => {
                let text = format!("stored keys do not fit the table: {error}");
                request.fail(v1::Error::new(tonic::Code::DataLoss, text, v1::Outcome::NotApplied));
            }
        }
    }
}

/// A read that was checked and is not begun yet.
struct Plan {
    place: Place,
    level: Consistency,
    parts: parts::ReadParts,
    fingerprint: u64,
    rows_left: Option<u64>,
    page: PageLimits,
    paging: Option<PagingState>,
    guards: ReadGuards,
    is_traced: bool,
}

impl Plan {
    fn begin(self, request: Request, wall_us: i64) -> ReadSession {
        let now_s = wall_us.div_euclid(1_000_000);
        let start = self.paging.as_ref().map_or(&Start::Beginning, |state| &state.start);
        let resume = start.resume();
        let live = LiveColumns::of(&self.place.table);
        let assembler = Assembler::new(self.page, now_s, live, resume).guarded(self.guards);
        let target = self.paging.as_ref().map_or(0, |state| state.target as usize);
        let after = resume.map(|resume| resume.position.clone());
        let mut remaining = self.parts.targets.get(target).map_or(TokenRange::ALL, tokens_of);
        if let Start::Behind(token) = start {
            remaining.after = remaining.after.max(Some(*token));
        } else if let Some(position) = &after {
            // Partitions before the position have been answered; the one it lies in may go on.
            remaining.after = position.partition.token().0.checked_sub(1).map(Token).max(remaining.after);
        }
        ReadSession {
            request,
            place: self.place,
            level: self.level,
            parts: self.parts,
            fingerprint: self.fingerprint,
            now_s,
            rows_left: self.rows_left,
            assembler,
            target,
            after,
            remaining,
            commands: 0,
            is_traced: self.is_traced,
            round: None,
            stale: None,
        }
    }
}

fn tokens_of(target: &parts::ReadTarget) -> TokenRange {
    match &target.target {
        Target::Scan(range) => *range,
        Target::Partition(_) => TokenRange::ALL,
    }
}

/// Whether the nodes that failed do not agree with this one on the metadata.
fn is_stale(error: &ReadError) -> bool {
    match error {
        ReadError::Failed { reasons, .. } => reasons.iter().any(|(_, reason)| *reason == FailureReason::Stale),
        ReadError::Timeout { .. } => false,
    }
}

/// What must stay the same from page to page: what is left of a request without its options, table, page sizes and state.
fn fingerprint(rest: &v1::ReadRequest, place: &Place) -> u64 {
    let mut bytes = rest.encode_to_vec();
    bytes.extend_from_slice(place.table.id.0.as_bytes());
    Token::of(&bytes).0 as u64
}

fn rows(projector: &Projector<'_>, results: &[trefoil::coordinator::ResultRow]) -> trefoil::Result<Vec<v1::Row>> {
    let mut rows = Vec::with_capacity(results.len());
    let mut partition: Option<(&trefoil::model::PartitionKey, Vec<v1::Value>)> = None;
    for result in results {
        if partition.as_ref().is_none_or(|(key, _)| **key != result.partition) {
            partition = Some((&result.partition, projector.partition(&result.partition)?));
        }
        let Some((_, values)) = &partition else { continue };
        rows.push(match (&result.clustering, &result.static_row) {
            (Some(key), static_row) => projector.row(values, key, &result.row, static_row.as_deref())?,
            (None, Some(static_row)) => projector.static_row(values, static_row)?,
            (None, None) => continue,
        });
    }
    Ok(rows)
}
