//! Consistency levels: how many replicas must have acknowledged, and which ones count.

use std::fmt;

/// A set of replicas of one vnode, by their index in the ring's list: bit i is replica i.
pub type ReplicaMask = u64;

/// The most replicas one vnode can have: what fits a [`ReplicaMask`].
pub const REPLICAS_MAX: usize = 64;

/// What a request asks for. `docs/consistency.md` states each level's promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Consistency {
    /// One replica, anywhere.
    One,
    /// Two replicas, anywhere.
    Two,
    /// Three replicas, anywhere.
    Three,
    /// More than half of all replicas of all regions.
    Quorum,
    /// Every replica.
    All,
    /// One replica of the coordinator's region.
    LocalOne,
    /// More than half of the replicas of the coordinator's region.
    #[default]
    LocalQuorum,
    /// More than half of the replicas of each region.
    EachQuorum,
}

impl Consistency {
    /// All levels.
    pub const EVERY: [Consistency; 8] = [
        Consistency::One,
        Consistency::Two,
        Consistency::Three,
        Consistency::Quorum,
        Consistency::All,
        Consistency::LocalOne,
        Consistency::LocalQuorum,
        Consistency::EachQuorum,
    ];

    /// The word that stands for it.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::One => "ONE",
            Consistency::Two => "TWO",
            Consistency::Three => "THREE",
            Consistency::Quorum => "QUORUM",
            Consistency::All => "ALL",
            Consistency::LocalOne => "LOCAL_ONE",
            Consistency::LocalQuorum => "LOCAL_QUORUM",
            Consistency::EachQuorum => "EACH_QUORUM",
        }
    }

    /// The level of a word, in any case.
    pub fn from_name(name: &str) -> Option<Consistency> {
        Consistency::EVERY.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a level demands of one vnode's replicas: so many out of each of these groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    groups: Vec<Group>,
    replicas: ReplicaMask,
}

/// `needed` of the replicas in `members`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    members: ReplicaMask,
    needed: u32,
}

impl Requirement {
    /// The demand of `level` where `regions[i]` is the region of replica i, in regions numbered by the caller, and
    /// `local` that of the coordinator. At most [`REPLICAS_MAX`] replicas. Without replicas no level can be met.
    pub fn new(level: Consistency, regions: &[u16], local: u16) -> Requirement {
        debug_assert!(regions.len() <= REPLICAS_MAX, "the metadata log refuses such a topology");
        let all = mask_where(regions, |_| true);
        let own = mask_where(regions, |region| region == local);
        let groups = match level {
            Consistency::One => vec![Group { members: all, needed: 1 }],
            Consistency::Two => vec![Group { members: all, needed: 2 }],
            Consistency::Three => vec![Group { members: all, needed: 3 }],
            Consistency::Quorum => vec![Group { members: all, needed: quorum(all) }],
            Consistency::All => vec![Group { members: all, needed: all.count_ones().max(1) }],
            Consistency::LocalOne => vec![Group { members: own, needed: 1 }],
            Consistency::LocalQuorum => vec![Group { members: own, needed: quorum(own) }],
            Consistency::EachQuorum => each_region(regions),
        };
        Requirement { groups, replicas: all }
    }

    /// All replicas, whether they can count or not.
    pub fn replicas(&self) -> ReplicaMask {
        self.replicas
    }

    /// Whether these replicas are enough.
    pub fn met_by(&self, replicas: ReplicaMask) -> bool {
        self.groups.iter().all(|group| (replicas & group.members).count_ones() >= group.needed)
    }

    /// How many replicas must acknowledge in all.
    pub fn required(&self) -> u32 {
        self.groups.iter().map(|group| group.needed).sum()
    }

    /// How many of the acknowledgements demanded `replicas` give; as many as are required if the level is met, and only
    /// then: more of one region than it needs make up for none of another.
    pub fn counted(&self, replicas: ReplicaMask) -> u32 {
        self.groups.iter().map(|group| (replicas & group.members).count_ones().min(group.needed)).sum()
    }

    /// The replicas that can count: for a local level, those of the coordinator's region alone (B109).
    pub fn scope(&self) -> ReplicaMask {
        self.groups.iter().fold(0, |scope, group| scope | group.members)
    }

    /// The fewest replicas out of `candidates` (best first) that meet the demand together with `have`; as many as there
    /// are if they do not suffice.
    pub fn choose(&self, candidates: &[usize], have: ReplicaMask) -> ReplicaMask {
        let mut chosen = have;
        for group in &self.groups {
            for &replica in candidates {
                if (chosen & group.members).count_ones() >= group.needed {
                    break;
                }
                chosen |= group.members & bit(replica);
            }
        }
        chosen & !have
    }
}

/// The mask of one replica.
pub fn bit(replica: usize) -> ReplicaMask {
    1 << replica
}

/// The indices in a mask, ascending.
pub fn indices(mut mask: ReplicaMask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(lowest)
    })
}

fn quorum(members: ReplicaMask) -> u32 {
    members.count_ones() / 2 + 1
}

fn mask_where(regions: &[u16], admit: impl Fn(u16) -> bool) -> ReplicaMask {
    regions.iter().enumerate().filter(|(_, region)| admit(**region)).fold(0, |mask, (at, _)| mask | bit(at))
}

fn each_region(regions: &[u16]) -> Vec<Group> {
    if regions.is_empty() {
        return vec![Group { members: 0, needed: 1 }];
    }
    let mut groups: Vec<Group> = Vec::new();
    for (at, region) in regions.iter().enumerate() {
        let members = mask_where(regions, |other| other == *region);
        if members.trailing_zeros() as usize == at {
            groups.push(Group { members, needed: quorum(members) });
        }
    }
    groups
}
