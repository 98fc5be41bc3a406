//! The client: settings, the connection to a cluster, and the loop that every request goes through.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::transport::Channel;
use trefoil::model::{NodeId, Token};
use trefoil_proto::MESSAGE_BYTES_MAX;
use trefoil_proto::v1::cluster_client::ClusterClient;
use trefoil_proto::v1::{self, Consistency, Options, Outcome, pipe_answer, pipe_operation};

use crate::error::{Error, Result};
use crate::node::{CONNECT_TIMEOUT, Node, describe, endpoint};
use crate::retry::{ATTEMPTS_MAX, Budget, Decision, Failure, Repetition, backoff, decide};
use crate::routing::{Home, Reach, Topology};
use crate::schema::SchemaCache;

/// A watch of the topology that says nothing for so long is given up; the cluster speaks every thirty seconds.
const WATCH_SILENCE_MAX: Duration = Duration::from_secs(75);

/// Pause before another node is asked for the topology.
const WATCH_PAUSE: Duration = Duration::from_millis(200);

/// How a client behaves; all settings have defaults.
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    home: Home,
    consistency: Consistency,
    timeout: Duration,
    attempt_timeout: Duration,
    in_flight_max: usize,
}

impl ClientBuilder {
    /// The region that the client is in: its nodes are asked before those of others, and are the only ones that are asked
    /// at LOCAL levels. That of the node that is reached first if it is not set.
    pub fn region(mut self, region: impl Into<String>) -> ClientBuilder {
        self.home.region = Some(region.into());
        self
    }

    /// The zone that the client is in: its nodes are asked first. Without it replicas take turns.
    pub fn zone(mut self, zone: impl Into<String>) -> ClientBuilder {
        self.home.zone = Some(zone.into());
        self
    }

    /// The level of requests that name none; LOCAL_QUORUM if it is not set.
    pub fn consistency(mut self, consistency: Consistency) -> ClientBuilder {
        self.consistency = consistency;
        self
    }

    /// How long a request may take with all its attempts, if it does not say otherwise; 15 s if it is not set.
    pub fn timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeout = timeout;
        self
    }

    /// How long one attempt may take; 3 s if it is not set.
    pub fn attempt_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.attempt_timeout = timeout;
        self
    }

    /// How many operations may be in flight to one node; more wait their turn. 1,024 if it is not set.
    pub fn in_flight_max(mut self, operations: usize) -> ClientBuilder {
        self.in_flight_max = operations.max(1);
        self
    }

    /// Connects to the cluster: returns once its topology is known and one node is connected, or with an error after the
    /// timeout of requests.
    pub async fn connect(self) -> Result<Client> {
        Client::connect_with(self).await
    }
}

/// A connection to a cluster. Cheap to clone; clones share everything.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    /// Ends the watch when the last clone is dropped.
    _watcher: Arc<Watcher>,
}

#[derive(Debug)]
struct Watcher(JoinHandle<()>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What all clones of a client share with its tasks.
#[derive(Debug)]
pub(crate) struct Shared {
    settings: ClientBuilder,
    view: ArcSwapOption<View>,
    /// Told when the view or a connection changes.
    changed: watch::Sender<()>,
    /// The last failure to learn the topology.
    trouble: ArcSwap<String>,
    budget: Budget,
    /// Attempts beyond the first of their request.
    retries: AtomicU64,
    /// Requests that needed any.
    retried: AtomicU64,
    turn: AtomicU64,
    /// The greatest stamp seen in an answer.
    observed_stamp: AtomicI64,
    /// The last timestamp given out.
    last_timestamp: AtomicI64,
    request_prefix: u64,
    requests: AtomicU64,
    pub(crate) schema: SchemaCache,
}

/// The topology, and the nodes in it with their connections.
#[derive(Debug)]
struct View {
    home: Home,
    topology: Topology,
    nodes: BTreeMap<NodeId, Arc<Node>>,
}

/// What one request says about how it is done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestOptions {
    /// The client's if absent.
    pub(crate) consistency: Option<Consistency>,
    /// The client's if absent.
    pub(crate) timeout: Option<Duration>,
    /// Whether it may be sent again after an unknown outcome.
    pub(crate) repetition: Repetition,
}

impl Client {
    /// Settings for a client of the cluster that these addresses (`host:port`) belong to. One is enough; more help while
    /// nodes are down.
    pub fn builder<I: IntoIterator<Item: Into<String>>>(endpoints: I) -> ClientBuilder {
        ClientBuilder {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            home: Home::default(),
            consistency: Consistency::LocalQuorum,
            timeout: Duration::from_secs(15),
            attempt_timeout: Duration::from_secs(3),
            in_flight_max: 1_024,
        }
    }

    /// A client with all defaults. See [`ClientBuilder::connect`].
    pub async fn connect(endpoint: impl Into<String>) -> Result<Client> {
        Client::builder([endpoint]).connect().await
    }

    async fn connect_with(settings: ClientBuilder) -> Result<Client> {
        let deadline = Instant::now() + settings.timeout;
        let budget = u32::try_from(settings.in_flight_max).unwrap_or(u32::MAX).saturating_mul(2);
        let shared = Arc::new(Shared {
            settings,
            view: ArcSwapOption::empty(),
            changed: watch::Sender::new(()),
            trouble: ArcSwap::from_pointee("no answer yet".to_owned()),
            budget: Budget::new(budget),
            retries: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            turn: AtomicU64::new(rand::random()),
            observed_stamp: AtomicI64::new(0),
            last_timestamp: AtomicI64::new(0),
            request_prefix: rand::random(),
            requests: AtomicU64::new(0),
            schema: SchemaCache::default(),
        });
        let watcher = Arc::new(Watcher(tokio::spawn(follow_topology(shared.clone()))));
        shared.plan(None, Reach::Anywhere, deadline).await?;
        Ok(Client { shared, _watcher: watcher })
    }

    /// The greatest stamp seen in an answer: what is written from now on is stamped later. Hand it to another client with
    /// [`Client::observe_stamp`] to order its writes behind what this one has seen.
    pub fn observed_stamp(&self) -> i64 {
        self.shared.observed_stamp.load(Ordering::Relaxed)
    }

    /// Takes over a stamp that somebody else has seen.
    pub fn observe_stamp(&self, stamp: i64) {
        self.shared.observed_stamp.fetch_max(stamp, Ordering::Relaxed);
    }

    /// How many attempts this client and its clones have made beyond the first of each request.
    pub fn retries(&self) -> u64 {
        self.shared.retries.load(Ordering::Relaxed)
    }

    /// How many requests of this client and its clones have needed more than one attempt.
    pub fn retried(&self) -> u64 {
        self.shared.retried.load(Ordering::Relaxed)
    }

    /// A channel to some node that is connected, for calls that are no reads or writes.
    pub(crate) async fn any_channel(&self) -> Result<Channel> {
        let deadline = Instant::now() + self.shared.settings.timeout;
        let plan = self.shared.plan(None, Reach::Anywhere, deadline).await?;
        plan.iter().find_map(|node| node.channel()).ok_or_else(|| self.shared.unreachable())
    }
}

impl Shared {
    /// How a request is done. `default_timestamp_us` is fixed here, once for all attempts.
    pub(crate) fn options(&self, request: &RequestOptions, default_timestamp_us: Option<i64>) -> Options {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let id = u128::from(self.request_prefix) << 64 | u128::from(number);
        Options {
            consistency: request.consistency.unwrap_or(self.settings.consistency).into(),
            default_timestamp_us,
            trace: false,
            idempotent: request.repetition == Repetition::Safe,
            request_id: Bytes::copy_from_slice(&id.to_be_bytes()),
            observed_stamp: self.observed_stamp.load(Ordering::Relaxed),
        }
    }

    /// Microseconds since 1970, later than any this client has given out and than any stamp it has seen.
    pub(crate) fn next_timestamp(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        rising(&self.last_timestamp, now.max(self.observed_stamp.load(Ordering::Relaxed).saturating_add(1)))
    }

    /// Sends a request until it succeeds, cannot succeed, or time is up. `again` makes the same operation for another
    /// attempt: few need one, so none is kept for it. `target` says whose key it is about.
    pub(crate) async fn execute(
        &self,
        op: pipe_operation::Op,
        again: impl Fn() -> Result<pipe_operation::Op>,
        target: Option<(&str, Token)>,
        request: &RequestOptions,
    ) -> Result<pipe_answer::Result> {
        self.budget.deposit();
        let started = Instant::now();
        let deadline = self.deadline(request);
        let reach = match request.consistency.unwrap_or(self.settings.consistency) {
            Consistency::LocalQuorum | Consistency::LocalOne | Consistency::Unspecified => Reach::Region,
            _ => Reach::Anywhere,
        };
        let mut attempt = Attempts { started, sent: 0, tries: 0, outcome: Outcome::NotApplied };
        let mut first = Some(op);
        loop {
            // A fresh plan for every round: nodes that were down may be back.
            let plan = self.plan(target, reach, deadline).await;
            for node in plan.map_err(|error| attempt.or_no_answer(error))? {
                let until = deadline.min(Instant::now() + self.settings.attempt_timeout);
                let op = first.take().map_or_else(&again, Ok)?;
                let failure = match node.call(op, until).await {
                    Ok(answer) => {
                        self.observe(&answer);
                        return Ok(answer);
                    }
                    Err(failure) => failure,
                };
                attempt.note(&failure);
                self.before_next(&mut attempt, failure, request.repetition, deadline).await?;
            }
        }
    }

    /// Whether the budget allows one more attempt.
    pub(crate) fn may_repeat(&self) -> bool {
        self.budget.withdraw()
    }

    /// The time at which a request that begins now must have ended.
    pub(crate) fn deadline(&self, request: &RequestOptions) -> Instant {
        Instant::now() + request.timeout.unwrap_or(self.settings.timeout)
    }

    /// Waits until the next attempt may begin, or says why there is none.
    async fn before_next(
        &self,
        attempt: &mut Attempts,
        failure: Failure,
        repetition: Repetition,
        deadline: Instant,
    ) -> Result<()> {
        let delay = match decide(&failure, repetition) {
            Decision::GiveUp => return Err(attempt.give_up(failure)),
            Decision::NextNode if attempt.tries < ATTEMPTS_MAX => Duration::ZERO,
            Decision::Later { at_least } if attempt.tries < ATTEMPTS_MAX && self.budget.withdraw() => {
                at_least + backoff(attempt.tries, rand::random_range(0.0..=1.0))
            }
            Decision::NextNode | Decision::Later { .. } => return Err(attempt.give_up(failure)),
        };
        if Instant::now() + delay >= deadline {
            return Err(attempt.give_up(failure));
        }
        if !delay.is_zero() {
            sleep(delay).await;
        }
        self.retries.fetch_add(1, Ordering::Relaxed);
        if attempt.tries == 1 {
            self.retried.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The nodes to try, best first; at least one. Waits until there is one.
    async fn plan(&self, target: Option<(&str, Token)>, reach: Reach, deadline: Instant) -> Result<Vec<Arc<Node>>> {
        if let Some(plan) = self.plan_now(target, reach) {
            return Ok(plan);
        }
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if let Some(plan) = self.plan_now(target, reach) {
                return Ok(plan);
            }
            if timeout_at(deadline, changed.changed()).await.is_err() {
                return Err(self.unreachable());
            }
        }
    }

    fn plan_now(&self, target: Option<(&str, Token)>, reach: Reach) -> Option<Vec<Arc<Node>>> {
        let view = self.view.load();
        let view = view.as_ref()?;
        let usable = |id| view.nodes.get(&id).is_some_and(|node| node.is_up());
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let plan = view.topology.plan(&view.home, reach, target, usable, turn);
        (!plan.is_empty()).then(|| plan.iter().filter_map(|id| view.nodes.get(id).cloned()).collect())
    }

    fn unreachable(&self) -> Error {
        let reason = match self.view.load().is_some() {
            true => "no node that may take the request has a connection".to_owned(),
            false => self.trouble.load().to_string(),
        };
        Error::Unreachable { tried: self.addresses().join(", "), reason }
    }

    fn observe(&self, answer: &pipe_answer::Result) {
        let stamp = match answer {
            pipe_answer::Result::Write(write) => write.stamp,
            pipe_answer::Result::Page(page) => page.stamp,
            pipe_answer::Result::Batch(batch) => {
                let stamp = |item: &v1::BatchItem| match &item.result {
                    Some(v1::batch_item::Result::Write(write)) => write.stamp,
                    _ => 0,
                };
                batch.items.iter().map(stamp).max().unwrap_or(0)
            }
            pipe_answer::Result::Error(_) => 0,
        };
        self.observed_stamp.fetch_max(stamp, Ordering::Relaxed);
    }

    /// Known nodes that are connected, other known nodes, then the addresses given.
    fn addresses(&self) -> Vec<String> {
        let mut addresses = Vec::new();
        if let Some(view) = self.view.load().as_ref() {
            let (up, down): (Vec<_>, Vec<_>) = view.nodes.values().partition(|node| node.is_up());
            addresses.extend(up.iter().chain(&down).map(|node| node.address.clone()));
        }
        for endpoint in &self.settings.endpoints {
            if !addresses.contains(endpoint) {
                addresses.push(endpoint.clone());
            }
        }
        addresses
    }

    /// Whether somebody else has taken over an address of the cluster.
    fn is_of_another_cluster(&self, topology: &Topology) -> bool {
        self.view.load().as_ref().is_some_and(|view| view.topology.cluster != topology.cluster)
    }

    /// Takes over a topology, unless it is older than the present one.
    fn set_topology(&self, topology: Topology) {
        let before = self.view.load_full();
        if before.as_ref().is_some_and(|view| view.topology.epoch > topology.epoch) {
            return;
        }
        if before.as_ref().is_some_and(|view| view.topology == topology) {
            return;
        }
        let node = |(id, address): (NodeId, &str)| {
            let kept = before.as_ref().and_then(|view| view.nodes.get(&id)).filter(|node| node.address == address);
            let start = || Node::start(address.to_owned(), self.settings.in_flight_max, self.changed.clone());
            (id, kept.cloned().unwrap_or_else(|| Arc::new(start())))
        };
        let nodes = topology.addresses().map(node).collect();
        let home = match &before {
            Some(view) => view.home.clone(),
            None => Home {
                region: self.settings.home.region.clone().or_else(|| topology.told_in.clone()),
                zone: self.settings.home.zone.clone(),
            },
        };
        self.view.store(Some(Arc::new(View { home, topology, nodes })));
        self.changed.send_replace(());
    }
}

/// What has been tried of one request.
#[derive(Debug)]
struct Attempts {
    started: Instant,
    /// Attempts that reached a node, or may have.
    sent: u32,
    /// All attempts.
    tries: u32,
    /// Of all attempts together: one unknown outcome makes the whole unknown.
    outcome: Outcome,
}

impl Attempts {
    fn note(&mut self, failure: &Failure) {
        self.tries += 1;
        self.sent += u32::from(!matches!(failure, Failure::NotSent(_)));
        if failure.outcome() != Outcome::NotApplied {
            self.outcome = Outcome::Unknown;
        }
    }

    fn give_up(&self, failure: Failure) -> Error {
        match failure {
            Failure::Refused(error) => {
                Error::Refused { error: Box::new(error), outcome: self.outcome, attempts: self.sent }
            }
            other => self.no_answer(other.reason()),
        }
    }

    fn no_answer(&self, reason: String) -> Error {
        Error::NoAnswer { outcome: self.outcome, waited: self.started.elapsed(), attempts: self.sent, reason }
    }

    /// "Unreachable" is said only of a request that was never sent.
    fn or_no_answer(&self, unreachable: Error) -> Error {
        if self.sent == 0 { unreachable } else { self.no_answer(unreachable.to_string()) }
    }
}

/// The next number of a clock that never stands still.
fn rising(last: &AtomicI64, now: i64) -> i64 {
    let next = |last: i64| Some(now.max(last.saturating_add(1)));
    match last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
        Ok(before) | Err(before) => now.max(before.saturating_add(1)),
    }
}

/// Keeps the view what the cluster says it is, by watching one node after the other.
async fn follow_topology(shared: Arc<Shared>) {
    loop {
        for address in shared.addresses() {
            let reason = watch_topology(&shared, &address).await;
            tracing::debug!(address, reason, "watch of the topology ended");
            shared.trouble.store(Arc::new(format!("{address}: {reason}")));
            sleep(WATCH_PAUSE).await;
        }
    }
}

/// Watches one node until that ends; why it did.
async fn watch_topology(shared: &Shared, address: &str) -> String {
    let endpoint = match endpoint(address) {
        Ok(endpoint) => endpoint,
        Err(error) => return describe(&error),
    };
    let channel = match endpoint.connect().await {
        Ok(channel) => channel,
        Err(error) => return describe(&error),
    };
    let mut client = ClusterClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let mut topologies = match timeout(CONNECT_TIMEOUT, client.watch(v1::WatchRequest {})).await {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => return status.message().to_owned(),
        Err(_) => return "the node takes no watch".to_owned(),
    };
    loop {
        match timeout(WATCH_SILENCE_MAX, topologies.message()).await {
            Ok(Ok(Some(message))) => match Topology::new(message) {
                Ok(topology) if shared.is_of_another_cluster(&topology) => {
                    return "it belongs to another cluster now".to_owned();
                }
                Ok(topology) => shared.set_topology(topology),
                Err(reason) => return format!("its topology makes no sense: {reason}"),
            },
            Ok(Ok(None)) => return "the node has ended the watch".to_owned(),
            Ok(Err(status)) => return status.message().to_owned(),
            Err(_) => return "the node has fallen silent".to_owned(),
        }
    }
}

#[cfg(test)]
impl Shared {
    /// What tests wait for.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn nodes_up(&self) -> usize {
        self.view.load().as_ref().map_or(0, |view| view.nodes.values().filter(|node| node.is_up()).count())
    }

    pub(crate) fn epoch(&self) -> Option<(u32, u64)> {
        self.view.load().as_ref().map(|view| view.topology.epoch)
    }
}
