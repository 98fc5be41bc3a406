//! The one clock and the one queue: whatever happens, happens here, in an order that the seed decides.

use std::collections::BTreeMap;

use super::event::Event;
use super::history::History;
use super::network::Network;
use super::oracle::Oracle;
use super::random::Random;
use super::shape::Shape;

/// Wall time when a simulation begins, in microseconds since 1970.
pub const EPOCH_US: i64 = 1_700_000_000_000_000;

/// How often what has happened: what seeds reach.
pub type Tally = BTreeMap<&'static str, u64>;

/// What all parts of a simulation share: all but the nodes.
pub struct Sim {
    /// Simulated microseconds since the beginning.
    pub now_us: u64,
    pub random: Random,
    pub network: Network,
    pub history: History,
    pub shape: Shape,
    pub oracle: Oracle,
    /// Why the run is over.
    pub failure: Option<String>,
    /// Everything that has happened, as one number.
    pub hash: u64,
    pub events: u64,
    /// How often what has happened.
    pub tally: Tally,
    queue: BTreeMap<(u64, u64), Event>,
    order: u64,
    trace: Option<Vec<String>>,
}

impl Sim {
    pub fn new(seed: u64, shape: Shape, random: Random, is_traced: bool) -> Sim {
        let mut network = Network::new(shape.regions.clone(), shape.latency_us);
        network.strays = shape.strays;
        let history = History::new(&shape.schema, shape.copies());
        Sim {
            now_us: 0,
            random,
            network,
            history,
            shape,
            oracle: Oracle::default(),
            failure: None,
            hash: seed,
            events: 0,
            tally: Tally::new(),
            queue: BTreeMap::new(),
            order: 0,
            trace: is_traced.then(Vec::new),
        }
    }

    /// Lets something happen after so many microseconds.
    pub fn after(&mut self, delay_us: u64, event: Event) {
        self.at(self.now_us + delay_us, event);
    }

    pub fn at(&mut self, at_us: u64, event: Event) {
        self.order += 1;
        self.queue.insert((at_us.max(self.now_us), self.order), event);
    }

    /// What happens next; the clock goes on to it.
    pub fn next(&mut self) -> Option<Event> {
        let ((at_us, order), event) = self.queue.pop_first()?;
        self.now_us = at_us;
        self.events += 1;
        self.mix(at_us);
        self.mix(order);
        Some(event)
    }

    /// Makes a fact part of the hash.
    pub fn mix(&mut self, fact: u64) {
        self.hash = (self.hash ^ fact).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// Something has happened once more.
    pub fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// A line of the trace, made only if somebody reads it.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.6} {}", self.now_us as f64 / 1e6, line()));
        }
    }

    pub fn trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// Something is not as it must be: the run ends.
    pub fn fail(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.note(|| format!("FAILURE {what}"));
        self.failure.get_or_insert(what);
    }

    /// `from..to` microseconds.
    pub fn delay(&mut self, from_us: u64, to_us: u64) -> u64 {
        from_us + self.random.below(to_us - from_us)
    }
}
