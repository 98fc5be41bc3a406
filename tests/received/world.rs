//! All replicas of one vnode, the network between them, their clocks, what befalls them, and the oracle that sees all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use rand::RngExt as _;
use rand::rngs::SmallRng;
use trefoil::model::{MutationName, NodeId, Stamp};
use trefoil::received::told::Told;

use crate::disk::{Disk, Mutation, Version};
use crate::loss::rebuild;
use crate::node::{Context, Effects, Message, Node, SLICE, THREADS, Thread};
use crate::settings::Settings;

/// How long it may take, once all trouble is over, until everything is everywhere and known to be.
const QUIET_US: i64 = 400_000_000;
/// When the history begins, so that clocks can step back.
const BEGIN_US: i64 = 10_000_000_000;

#[derive(Debug)]
enum Event {
    Deliver(NodeId, NodeId, Message),
    Step(NodeId, u64, Thread),
    ClientWrite,
    Fault,
    Start(NodeId),
    Quiet,
    /// A node hears of the placement's number.
    Placement(NodeId),
    /// A withdrawn node looks whether it can be rebuilt.
    Rebuild(NodeId),
}

pub struct World {
    settings: Settings,
    rng: SmallRng,
    now: i64,
    nodes: Vec<Node>,
    ids: Vec<NodeId>,
    /// How often each node started: what was to be done in an earlier run is not done.
    runs: Vec<u64>,
    /// Until when a thread, or all of a node, does nothing.
    paused: BTreeMap<(NodeId, Thread), i64>,
    /// Until when nothing reaches a node.
    cut_off: BTreeMap<NodeId, i64>,
    events: BinaryHeap<Reverse<(i64, u64)>>,
    what: BTreeMap<u64, Event>,
    next_event: u64,
    quiet: bool,
    mutations: Vec<Mutation>,
    names: BTreeSet<MutationName>,
    /// Mutations that somebody relied on to be nowhere for ever.
    void: BTreeSet<usize>,
    /// Up to where each node's word was checked.
    checked: BTreeMap<NodeId, Stamp>,
    told: BTreeMap<NodeId, Told>,
    /// The number of the slice's placement, by the metadata log.
    placement: u64,
    /// Disks as they once were.
    images: BTreeMap<NodeId, Disk>,
    /// How many disks lost something and were rebuilt.
    pub rebuilt: usize,
    /// How many deletions went.
    pub purges: usize,
}

type Checked = Result<(), String>;

impl World {
    /// Runs the history of a seed to its end, or to the first thing that must not be.
    pub fn run(seed: u64) -> Result<World, String> {
        let (settings, rng) = Settings::of(seed);
        let ids: Vec<_> = (1..=settings.replicas).map(NodeId).collect();
        let mut world = World {
            rng,
            now: BEGIN_US,
            nodes: Vec::new(),
            runs: vec![0; ids.len()],
            paused: BTreeMap::new(),
            cut_off: BTreeMap::new(),
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            next_event: 0,
            quiet: false,
            mutations: Vec::new(),
            names: BTreeSet::new(),
            void: BTreeSet::new(),
            checked: BTreeMap::new(),
            told: BTreeMap::new(),
            placement: 1,
            images: BTreeMap::new(),
            rebuilt: 0,
            purges: 0,
            settings,
            ids: ids.clone(),
        };
        for id in ids {
            let clock_off = world.rng.random_range(-100_000..100_000);
            world.nodes.push(Node {
                id,
                disk: Disk::default(),
                run: None,
                clock_off,
                started_at: 0,
                placement: 1,
                damaged: false,
            });
            world.after(0, Event::Start(id));
        }
        world.after(1_000_000, Event::ClientWrite);
        world.after(1_000_000, Event::Fault);
        world.after(world.settings.trouble_us, Event::Quiet);
        let end = BEGIN_US + world.settings.trouble_us + QUIET_US;
        while let Some(Reverse((at, number))) = world.events.pop() {
            if at > end {
                break;
            }
            world.now = at;
            let event = world.what.remove(&number).unwrap();
            world.on(event).map_err(|fault| format!("at {} s: {fault}", (at - BEGIN_US) as f64 / 1e6))?;
        }
        world.check_the_end()?;
        Ok(world)
    }

    fn after(&mut self, micros: i64, event: Event) {
        self.events.push(Reverse((self.now + micros, self.next_event)));
        self.what.insert(self.next_event, event);
        self.next_event += 1;
    }

    fn on(&mut self, event: Event) -> Checked {
        match event {
            Event::Deliver(from, to, message) => {
                if self.cut_off.get(&to).is_some_and(|until| *until > self.now) && from != to {
                    return Ok(());
                }
                self.with(to, |node, context| node.receive(from, message, context))
            }
            Event::Step(id, run, thread) => self.step(id, run, thread),
            Event::ClientWrite => {
                self.client_write();
                Ok(())
            }
            Event::Fault => {
                if !self.quiet {
                    self.fault();
                    let between = self.settings.between_faults_us;
                    let wait = self.rng.random_range(0..2 * between);
                    self.after(wait, Event::Fault);
                }
                Ok(())
            }
            Event::Start(id) => {
                let place = id.0 as usize - 1;
                if self.nodes[place].run.is_none() {
                    // An older disk may have been withdrawn.
                    self.after(1_000_000, Event::Rebuild(id));
                    self.runs[place] += 1;
                    let run = self.runs[place];
                    THREADS.iter().for_each(|thread| self.after(1_000, Event::Step(id, run, *thread)));
                    return self.with(id, |node, context| {
                        node.start(context);
                        Effects::default()
                    });
                }
                Ok(())
            }
            Event::Quiet => {
                self.become_quiet();
                Ok(())
            }
            Event::Placement(id) => {
                let placement = self.placement;
                self.with(id, |node, context| {
                    node.place(placement, context);
                    Effects::default()
                })
            }
            Event::Rebuild(id) => self.rebuild(id),
        }
    }

    /// The entry that a node withdrew: everybody hears of it, some late.
    fn withdrawn(&mut self, id: NodeId) {
        self.placement += 1;
        self.told.remove(&id);
        self.nodes[id.0 as usize - 1].damaged = true;
        for place in 0..self.ids.len() {
            let wait = self.rng.random_range(0..20_000_000);
            self.after(wait, Event::Placement(self.ids[place]));
        }
        self.after(1_000_000, Event::Rebuild(id));
    }

    /// Everything that anybody relied on must be on the new disk too.
    fn rebuild(&mut self, id: NodeId) -> Checked {
        let place = id.0 as usize - 1;
        if !self.nodes[place].disk.manifest.withdrawn {
            return Ok(());
        }
        if !rebuild(&mut self.nodes, place, self.placement, self.now) {
            self.after(5_000_000, Event::Rebuild(id));
            return Ok(());
        }
        self.rebuilt += 1;
        self.nodes[place].damaged = false;
        let through = self.checked.values().copied().max().unwrap_or_default();
        let relied: Vec<_> = self.mutations.iter().filter(|mutation| mutation.stamp <= through).copied().collect();
        relied.iter().try_for_each(|mutation| {
            self.check_everywhere(mutation).map_err(|fault| format!("{id} is rebuilt: {fault}"))
        })
    }

    fn step(&mut self, id: NodeId, run: u64, thread: Thread) -> Checked {
        let place = id.0 as usize - 1;
        if self.runs[place] != run || self.nodes[place].run.is_none() {
            return Ok(());
        }
        let until = self.paused.get(&(id, thread)).copied().unwrap_or(0);
        if until > self.now {
            self.after(until - self.now, Event::Step(id, run, thread));
            return Ok(());
        }
        let most = match thread {
            Thread::Log => 100_000,
            Thread::Coordinator => 200_000,
            Thread::Reporter => 500_000,
            Thread::Keeper => 3_000_000,
            Thread::Filler => 10_000_000,
        };
        let wait = self.rng.random_range(1_000..most);
        self.after(wait, Event::Step(id, run, thread));
        self.with(id, |node, context| node.step(thread, context))
    }

    fn client_write(&mut self) {
        if self.quiet {
            return;
        }
        let key = self.rng.random_range(0..self.settings.keys);
        let before_us = self.rng.random_range(0..=self.settings.lateness_us);
        let to = self.rng.random_range(0..self.nodes.len());
        let delete = self.rng.random_range(0..3) == 0;
        self.nodes[to].client_write(key, before_us, delete);
        if self.rng.random_range(0..3) == 0 {
            let (from, of) = (self.rng.random_range(0..self.nodes.len()), self.rng.random_range(0..self.nodes.len()));
            let asked = self.nodes[from].ask_data(key, self.ids[of]);
            asked.into_iter().for_each(|(to, message)| self.send(self.ids[from], to, message));
        }
        let wait = self.rng.random_range(0..2 * self.settings.between_writes_us);
        self.after(wait, Event::ClientWrite);
    }

    fn fault(&mut self) {
        let place = self.rng.random_range(0..self.nodes.len());
        let id = self.ids[place];
        let long = *[100_000i64, 3_000_000, 30_000_000, 150_000_000].get(self.rng.random_range(0..4)).unwrap();
        let length = self.rng.random_range(0..long);
        match self.rng.random_range(0..10) {
            0..3 => {
                let thread = THREADS[self.rng.random_range(0..THREADS.len())];
                self.paused.insert((id, thread), self.now + length);
            }
            3 => THREADS.iter().for_each(|thread| {
                self.paused.insert((id, *thread), self.now + length);
            }),
            4 | 5 => {
                self.cut_off.insert(id, self.now + length);
            }
            6 if self.settings.losses => self.lose(place, length),
            kind => self.stop(place, kind < 9, length),
        }
    }

    /// A file is damaged and quarantined; or the directory becomes what it was some time ago. One at a time, as what two
    /// disks lose nobody can give back.
    fn lose(&mut self, place: usize, length: i64) {
        if self.nodes.iter().any(|node| node.damaged) {
            return;
        }
        let id = self.ids[place];
        let image = self.images.insert(id, self.nodes[place].disk.clone());
        let set_back = self.rng.random();
        match image {
            Some(image) if set_back && self.nodes[place].run.is_some() => {
                self.stop(place, true, length);
                self.nodes[place].disk = image;
                self.nodes[place].disk.lose_power(&mut self.rng);
                self.nodes[place].damaged = true;
                self.told.remove(&id);
            }
            _ if self.nodes[place].run.as_ref().is_some_and(|run| run.open) => {
                let mut effects = Effects::default();
                let now = self.nodes[place].instant(self.now);
                self.nodes[place].withdraw(now, &mut effects);
                self.withdrawn(id);
            }
            _ => {}
        }
    }

    /// Loses a node's power, or kills it, for some time; its clock may be another when it comes back.
    fn stop(&mut self, place: usize, power: bool, length: i64) {
        if self.nodes[place].run.take().is_none() {
            return;
        }
        if power {
            self.nodes[place].disk.lose_power(&mut self.rng);
        }
        if self.rng.random_range(0..3) == 0 {
            self.nodes[place].clock_off = match self.rng.random_range(0..3) {
                0 => self.rng.random_range(-3_600_000_000..0),
                1 => self.rng.random_range(-100_000_000..10_000_000),
                _ => self.rng.random_range(-100_000..100_000),
            };
        }
        self.after(length, Event::Start(self.ids[place]));
    }

    /// Nothing is lost or late any more, every node runs, and every clock is right.
    fn become_quiet(&mut self) {
        self.quiet = true;
        self.settings.lost = 0;
        self.settings.late = 0;
        self.settings.forgotten = 0;
        self.paused.clear();
        self.cut_off.clear();
        for place in 0..self.nodes.len() {
            self.nodes[place].clock_off = self.rng.random_range(-100_000..100_000);
            self.after(0, Event::Start(self.ids[place]));
        }
    }

    fn with(&mut self, id: NodeId, act: impl FnOnce(&mut Node, &mut Context) -> Effects) -> Checked {
        let mut context = Context {
            now: self.now,
            settings: &self.settings,
            nodes: &self.ids,
            mutations: &mut self.mutations,
            rng: &mut self.rng,
        };
        let effects = act(&mut self.nodes[id.0 as usize - 1], &mut context);
        if effects.withdrew {
            self.withdrawn(id);
        }
        let node = &mut self.nodes[id.0 as usize - 1];
        if node.run.as_ref().is_some_and(|run| run.open) && !node.disk.manifest.withdrawn {
            // A directory that was set back and lacks nothing of what was told is as good as any.
            node.damaged = false;
        }
        self.check(id, &effects)?;
        effects.send.into_iter().for_each(|(to, message)| self.send(id, to, message));
        Ok(())
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        let cut = self.cut_off.get(&from).is_some_and(|until| *until > self.now);
        if cut && from != to {
            return;
        }
        let copies = if self.rng.random_range(0..100) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            if let Some(transit) = self.settings.transit_us(&mut self.rng) {
                self.after(transit, Event::Deliver(from, to, message.clone()));
            }
        }
    }

    /// What must hold after whatever a node did.
    fn check(&mut self, id: NodeId, effects: &Effects) -> Checked {
        while self.names.len() < self.mutations.len() {
            let named = self.mutations[self.names.len()];
            if !self.names.insert(named.name) {
                return Err(format!("two mutations are named {:?}", named.name));
            }
        }
        if let Some((_, report)) = &effects.told {
            for (_, slice) in &report.slices {
                self.check_told(id, slice.told.clone().unwrap_or_default())?;
            }
        }
        for (key, version) in &effects.purged {
            self.purges += 1;
            self.check_purge(id, *key, *version)?;
        }
        self.check_acks(id, effects)?;
        self.check_void(id)?;
        self.check_reconciled(id)
    }

    /// What is acknowledged is here.
    fn check_acks(&self, id: NodeId, effects: &Effects) -> Checked {
        let here = self.nodes[id.0 as usize - 1].run.as_ref().map(|run| &run.memtable);
        for (_, message) in &effects.send {
            let Message::Ack(acked) = message else { continue };
            let mutation = &self.mutations[*acked];
            if !here.is_some_and(|data| data.has(mutation)) {
                return Err(format!("{id} acknowledges {mutation:?}, which it has not"));
            }
        }
        Ok(())
    }

    /// What was told is durable, and is told for ever.
    fn check_told(&mut self, id: NodeId, told: Told) -> Checked {
        let before = self.told.get(&id).cloned().unwrap_or_default();
        if !told.covers(&before) {
            return Err(format!("{id} tells {told:?} and no more {before:?}"));
        }
        let disk = &self.nodes[id.0 as usize - 1].disk;
        let fresh = told.set().difference(before.set());
        let lost = self.mutations.iter().find(|mutation| fresh.contains(mutation.name) && !disk.holds(mutation));
        if let Some(lost) = lost {
            return Err(format!("{id} tells of {:?}, which a loss of power would take", lost.name));
        }
        self.told.insert(id, told);
        Ok(())
    }

    /// Whatever is as old as a deletion that goes is everywhere, or nowhere for ever.
    fn check_purge(&mut self, id: NodeId, key: u8, gone: Version) -> Checked {
        let older: Vec<_> =
            self.mutations.iter().filter(|mutation| mutation.key == key && mutation.ts <= gone.ts).copied().collect();
        older.iter().try_for_each(|mutation| {
            self.check_everywhere(mutation).map_err(|fault| format!("{id} purges {gone:?} of {key}: {fault}"))
        })
    }

    fn check_reconciled(&mut self, id: NodeId) -> Checked {
        let Some(run) = &self.nodes[id.0 as usize - 1].run else { return Ok(()) };
        let through = run.exchange.reconciled(SLICE);
        let before = self.checked.insert(id, through).unwrap_or_default();
        if through < before {
            // After a start it is what the manifest has.
            self.checked.insert(id, before);
            return Ok(());
        }
        let within = |mutation: &&Mutation| mutation.stamp > before && mutation.stamp <= through;
        let reached: Vec<_> = self.mutations.iter().filter(within).copied().collect();
        reached.iter().try_for_each(|mutation| {
            self.check_everywhere(mutation).map_err(|fault| format!("{id} is reconciled through {through:?}: {fault}"))
        })
    }

    fn check_everywhere(&mut self, mutation: &Mutation) -> Checked {
        let lacks = self.nodes.iter().find(|node| !node.damaged && !node.disk.holds(mutation));
        let Some(lacks) = lacks else { return Ok(()) };
        if let Some(has) = self.nodes.iter().find(|node| !node.damaged && node.has(mutation)) {
            return Err(format!("{} has {mutation:?} and {} has not", has.id, lacks.id));
        }
        self.void.insert(mutation.id);
        Ok(())
    }

    fn check_void(&self, id: NodeId) -> Checked {
        let node = &self.nodes[id.0 as usize - 1];
        if node.damaged {
            return Ok(());
        }
        match self.void.iter().find(|void| node.has(&self.mutations[**void])) {
            Some(void) => Err(format!("{id} took {:?}, which was void", self.mutations[*void])),
            None => Ok(()),
        }
    }

    /// After the quiet all replicas are equal, and know it.
    fn check_the_end(&mut self) -> Checked {
        let last = self.mutations.iter().map(|mutation| mutation.stamp).max().unwrap_or_default();
        let data = |node: &Node| node.run.as_ref().map(|run| run.memtable.visible()).unwrap_or_default();
        let first = data(&self.nodes[0]);
        for node in &self.nodes {
            let run = node.run.as_ref().ok_or(format!("{} does not run", node.id))?;
            let status = run.exchange.status().next();
            if run.exchange.reconciled(SLICE) < last {
                return Err(format!("{} never knows {last:?} to be everywhere: {status:?}", node.id));
            }
            if data(node) != first {
                return Err(format!("{} has {:?} and {} has {first:?}", node.id, data(node), self.ids[0]));
            }
        }
        Ok(())
    }
}
