//! What goes wrong, and how it ends.

use super::cluster::Cluster;
use super::event::Event;
use super::random::Random;

/// No clock is further ahead than this.
pub const AHEAD_US: i64 = 400_000;

/// Something that goes wrong, or comes right again.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The process dies; what it had written stays in the page cache.
    Kill(usize),
    /// What was not synced is gone.
    PowerLoss(usize),
    /// The power goes in the midst of one of the next calls.
    PowerWithin(usize, u64),
    Cut(Vec<(usize, usize)>),
    Mend(Vec<(usize, usize)>),
    /// A connection breaks.
    Break(usize, usize),
    Slow(usize, u64),
    Unruly(u64),
    /// The clock is set forward or back.
    Step(usize, i64),
    DiskFull(usize),
    DiskFree(usize),
    /// A node stays away for long.
    Leave(usize, u64),
    Return(usize),
    /// The thread that logs hangs in a sync, at a node that nobody hears.
    Hang(usize, u64),
}

impl Fault {
    fn name(&self) -> &'static str {
        match self {
            Fault::Kill(_) => "processes killed",
            Fault::PowerLoss(_) | Fault::PowerWithin(..) => "losses of power",
            Fault::Cut(_) => "partitions",
            Fault::Mend(_) => "wires mended",
            Fault::Break(..) => "connections broken",
            Fault::Slow(..) => "slow nodes",
            Fault::Unruly(_) => "unruly networks",
            Fault::Step(..) => "clocks set",
            Fault::DiskFull(_) | Fault::DiskFree(_) => "full disks",
            Fault::Leave(..) | Fault::Return(_) => "nodes away",
            Fault::Hang(..) => "syncs that hang",
        }
    }
}

impl Cluster {
    /// The next thing goes wrong after a while.
    pub fn plan_fault(&mut self) {
        let Some(calm_us) = self.sim.shape.calm_us else { return };
        let delay = self.sim.delay(10_000, calm_us * 2);
        self.sim.after(delay, Event::Trouble);
    }

    pub fn draw_fault(&mut self) -> Fault {
        let nodes = self.nodes.len();
        let random = &mut self.sim.random;
        let node = random.below(nodes as u64) as usize;
        let other = (node + 1 + random.below(nodes as u64 - 1) as usize) % nodes;
        match random.below(21) {
            0..=2 => Fault::Kill(node),
            3..=5 => Fault::PowerLoss(node),
            6..=7 => Fault::PowerWithin(node, 1 + random.below(60)),
            8 => Fault::Cut(vec![(node, other)]),
            9 => Fault::Cut(vec![(node, other), (other, node)]),
            10..=11 => Fault::Cut(around(&[node], nodes, random)),
            12 => {
                let zone = self.sim.shape.zones[node];
                let inside: Vec<usize> = (0..nodes).filter(|at| self.sim.shape.zones[*at] == zone).collect();
                Fault::Cut(around(&inside, nodes, random))
            }
            13 => Fault::Break(node, other),
            14 => Fault::Slow(node, *random.pick(&[5, 50, 500])),
            15 => Fault::Unruly(*random.pick(&[5, 50])),
            16..=17 => Fault::Step(node, random.between(-400_000, AHEAD_US)),
            18 => Fault::DiskFull(node),
            19 => Fault::Hang(node, 5_000_000 + random.below(110_000_000)),
            _ => Fault::Leave(node, 20_000_000 + random.below(100_000_000)),
        }
    }

    pub fn on_fault(&mut self, fault: Fault) {
        self.sim.note(|| format!("FAULT {fault:?}"));
        self.sim.count(fault.name());
        let ends = |fault: Fault, random: &mut Random| (random.below(30_000_000), Fault::clone(&fault));
        match fault {
            Fault::Kill(node) => self.kill(node),
            Fault::PowerLoss(node) => self.lose_power(node),
            Fault::PowerWithin(node, calls) => {
                let memory = &self.nodes[node].memory;
                memory.power_off_at(memory.operations() + calls);
                self.nodes[node].is_failing = true;
                let delay = self.sim.delay(1_000, 3_000_000);
                self.sim.after(delay, Event::Fault(Fault::PowerLoss(node)));
            }
            Fault::Cut(wires) => {
                wires.iter().for_each(|(from, to)| self.sim.network.cut(*from, *to));
                // Wire by wire, in another order, so that groups of all shapes come about.
                for wire in wires {
                    let (delay, mend) = ends(Fault::Mend(vec![wire]), &mut self.sim.random);
                    self.sim.after(delay, Event::Fault(mend));
                }
            }
            Fault::Mend(wires) => wires.iter().for_each(|(from, to)| self.sim.network.mend(*from, *to)),
            Fault::Break(node, peer) => {
                if self.nodes[node].process.is_some() {
                    self.nodes[node].hang_up(&mut self.sim, peer);
                }
            }
            Fault::Slow(node, times) => {
                self.sim.network.slowness[node] = times;
                if times > 1 {
                    let (delay, end) = ends(Fault::Slow(node, 1), &mut self.sim.random);
                    self.sim.after(delay, Event::Fault(end));
                }
            }
            Fault::Unruly(share) => {
                self.sim.network.unruly = share;
                if share > 0 {
                    let (delay, end) = ends(Fault::Unruly(0), &mut self.sim.random);
                    self.sim.after(delay, Event::Fault(end));
                }
            }
            Fault::Step(node, by_us) => self.nodes[node].skew_us = by_us,
            Fault::DiskFull(node) => {
                self.nodes[node].disk.fill();
                let (delay, end) = ends(Fault::DiskFree(node), &mut self.sim.random);
                self.sim.after(delay, Event::Fault(end));
            }
            Fault::DiskFree(node) => self.nodes[node].disk.make_room(),
            Fault::Leave(node, for_us) => {
                self.nodes[node].is_away = true;
                self.kill(node);
                self.sim.after(for_us, Event::Fault(Fault::Return(node)));
            }
            Fault::Hang(node, for_us) => self.hang(node, for_us),
            Fault::Return(node) => {
                self.nodes[node].is_away = false;
                self.sim.after(0, Event::Start { node });
            }
        }
    }

    fn hang(&mut self, node: usize, for_us: u64) {
        if let Some(process) = &mut self.nodes[node].process {
            process.log.hangs_until_us = self.sim.now_us + for_us;
            let wires = around(&[node], self.nodes.len(), &mut self.sim.random);
            self.on_fault(Fault::Cut(wires));
        }
    }

    fn kill(&mut self, node: usize) {
        if self.nodes[node].process.is_none() {
            return;
        }
        self.nodes[node].stop(&mut self.sim);
        for peer in self.sim.network.peers(node) {
            if self.sim.network.close(node, peer) {
                self.sim.after(1_000, Event::Hangup { node: peer, peer: node });
            }
        }
        self.restart_later(node);
    }

    /// Peers hear nothing of it.
    fn lose_power(&mut self, node: usize) {
        self.nodes[node].stop(&mut self.sim);
        for peer in self.sim.network.peers(node) {
            self.sim.network.close(node, peer);
        }
        let seed = self.sim.random.next();
        self.nodes[node].memory.crash(seed);
        self.nodes[node].is_failing = false;
        self.sim.history.power_lost(self.sim.now_us);
        self.restart_later(node);
    }

    fn restart_later(&mut self, node: usize) {
        let most = *self.sim.random.pick(&[200_000, 2_000_000, 20_000_000]);
        let delay = self.sim.delay(50_000, most);
        self.sim.after(delay, Event::Start { node });
        // Meanwhile somebody may set its clock; far off it is for a while only.
        if self.sim.random.one_in(3) {
            let far = if self.sim.random.one_in(3) { -4_000_000 } else { -400_000 };
            self.nodes[node].skew_us = self.sim.random.between(far, AHEAD_US);
            let right = self.sim.random.between(-200_000, 200_000);
            self.sim.after(delay + 8_000_000, Event::Fault(Fault::Step(node, right)));
        }
    }

    /// Everything that is broken comes right.
    pub fn heal(&mut self) {
        self.sim.network.mend_all();
        self.sim.network.strays = 0;
        for node in 0..self.nodes.len() {
            if self.nodes[node].is_failing {
                self.lose_power(node);
            }
            self.nodes[node].disk.make_room();
            if let Some(process) = &mut self.nodes[node].process {
                process.log.hangs_until_us = 0;
            }
            self.nodes[node].is_away = false;
            self.nodes[node].skew_us = self.nodes[node].skew_us.clamp(-100_000, 100_000);
            self.sim.after(0, Event::Start { node });
        }
    }
}

/// The wires between these nodes and all others, in both directions or one.
fn around(inside: &[usize], nodes: usize, random: &mut Random) -> Vec<(usize, usize)> {
    let ways = random.below(4);
    let pairs = inside.iter().flat_map(|a| (0..nodes).filter(|b| !inside.contains(b)).map(move |b| (*a, b)));
    let both = pairs.flat_map(|(a, b)| [(a, b), (b, a)].into_iter().enumerate());
    both.filter(|(way, _)| ways >= 2 || *way == ways as usize).map(|(_, wire)| wire).collect()
}
