//! The wires between nodes: a connection of each pair, and what can happen to either direction of it.
//!
//! A message is in order behind those before it unless the network is unruly; it is lost in silence while its direction is
//! cut, and with the connection when that breaks. Each side finds out by itself that a connection is gone: at once if the
//! other process died, by its own silence if the other machine did.

use std::collections::BTreeMap;

use super::random::Random;

/// What may be wrong with a direction.
#[derive(Debug, Clone, Copy, Default)]
struct Wire {
    is_cut: bool,
    /// When the last message in order arrives.
    last_us: u64,
}

/// One connection, as each of its ends sees it.
#[derive(Debug, Clone, Copy, Default)]
struct Connection {
    /// Rises whenever it breaks; what was sent before never arrives.
    generation: u64,
    /// Whether the lower and the higher node take it for open.
    is_open: [bool; 2],
}

#[derive(Debug)]
pub struct Network {
    nodes: usize,
    wires: BTreeMap<(usize, usize), Wire>,
    connections: BTreeMap<(usize, usize), Connection>,
    /// Region of each node.
    regions: Vec<u16>,
    /// How much slower each node is than it should be.
    pub slowness: Vec<u64>,
    /// Of a thousand messages so many are lost, doubled, or delivered out of order.
    pub unruly: u64,
    /// Of ten thousand messages so many come once more, long after whatever they were sent over is gone.
    pub strays: u64,
    latency_us: u64,
}

/// The generation of a message that arrives over whatever there is.
pub const STRAY: u64 = u64::MAX;

/// When a message arrives; twice if it is doubled, never if it is lost.
pub type Arrivals = [Option<u64>; 2];

impl Network {
    pub fn new(regions: Vec<u16>, latency_us: u64) -> Network {
        let nodes = regions.len();
        let pairs = (0..nodes).flat_map(|from| (0..nodes).filter(move |to| *to != from).map(move |to| (from, to)));
        let pairs: Vec<_> = pairs.collect();
        Network {
            nodes,
            wires: pairs.iter().map(|pair| (*pair, Wire::default())).collect(),
            connections: pairs.iter().filter(|(a, b)| a < b).map(|pair| (*pair, Connection::default())).collect(),
            regions,
            slowness: vec![1; nodes],
            unruly: 0,
            strays: 0,
            latency_us,
        }
    }

    fn connection(&mut self, a: usize, b: usize) -> (&mut Connection, usize) {
        let side = usize::from(a > b);
        (self.connections.get_mut(&(a.min(b), a.max(b))).unwrap(), side)
    }

    /// Sends a message; `None` if the sender knows that there is no connection. Else its generation and when it arrives.
    pub fn send(&mut self, from: usize, to: usize, now_us: u64, random: &mut Random) -> Option<(u64, Arrivals)> {
        let (connection, side) = self.connection(from, to);
        if !connection.is_open[side] {
            return None;
        }
        let generation = connection.generation;
        let far = if self.regions[from] == self.regions[to] { 1 } else { 20 };
        let slow = self.slowness[from].max(self.slowness[to]);
        let usual = (self.latency_us + random.below(self.latency_us + 1)) * far * slow;
        let is_odd = |random: &mut Random, unruly: u64| unruly > 0 && random.below(1_000) < unruly;
        let wire = self.wires.get_mut(&(from, to)).unwrap();
        if wire.is_cut || is_odd(random, self.unruly) {
            return Some((generation, [None, None]));
        }
        if is_odd(random, self.unruly) {
            let late = usual + random.below(3_000_000);
            return Some((generation, [Some(now_us + usual), Some(now_us + late)]));
        }
        if is_odd(random, self.unruly) {
            return Some((generation, [Some(now_us + usual + random.below(3_000_000)), None]));
        }
        wire.last_us = (now_us + usual).max(wire.last_us + 1);
        Some((generation, [Some(wire.last_us), None]))
    }

    /// When a copy of a message comes that nobody expects any more.
    pub fn stray(&self, now_us: u64, random: &mut Random) -> Option<u64> {
        (random.below(10_000) < self.strays).then(|| now_us + 10_000_000 + random.below(140_000_000))
    }

    /// Whether a message of this generation is still heard by `to`.
    pub fn is_heard(&mut self, from: usize, to: usize, generation: u64) -> bool {
        if generation == STRAY {
            return true;
        }
        let (connection, side) = self.connection(to, from);
        connection.generation == generation && connection.is_open[side]
    }

    /// Whether a connection can be made.
    pub fn is_passable(&self, a: usize, b: usize) -> bool {
        !self.wires[&(a, b)].is_cut && !self.wires[&(b, a)].is_cut
    }

    /// Both sides have a new connection.
    pub fn open(&mut self, a: usize, b: usize) {
        let (connection, _) = self.connection(a, b);
        connection.generation += 1;
        connection.is_open = [true; 2];
        for pair in [(a, b), (b, a)] {
            self.wires.get_mut(&pair).unwrap().last_us = 0;
        }
    }

    pub fn is_open(&mut self, node: usize, peer: usize) -> bool {
        let (connection, side) = self.connection(node, peer);
        connection.is_open[side]
    }

    /// This end gives the connection up: nothing more arrives at either. Whether the other end takes it for open.
    pub fn close(&mut self, node: usize, peer: usize) -> bool {
        let (connection, side) = self.connection(node, peer);
        connection.generation += 1;
        connection.is_open[side] = false;
        connection.is_open[1 - side]
    }

    /// The other end has heard that it is gone; whether it had not known.
    pub fn found_closed(&mut self, node: usize, peer: usize) -> bool {
        let (connection, side) = self.connection(node, peer);
        let is_news = connection.is_open[side] && !connection.is_open[1 - side];
        if is_news {
            connection.is_open[side] = false;
        }
        is_news
    }

    pub fn cut(&mut self, from: usize, to: usize) {
        self.wires.get_mut(&(from, to)).unwrap().is_cut = true;
    }

    pub fn mend(&mut self, from: usize, to: usize) {
        self.wires.get_mut(&(from, to)).unwrap().is_cut = false;
    }

    pub fn mend_all(&mut self) {
        self.wires.values_mut().for_each(|wire| wire.is_cut = false);
        self.slowness.iter_mut().for_each(|slowness| *slowness = 1);
        self.unruly = 0;
    }

    pub fn peers(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.nodes).filter(move |peer| *peer != node)
    }
}
