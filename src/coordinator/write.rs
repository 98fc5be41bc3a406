//! One write, from the moment its replicas are known to its answer.
//!
//! The write goes to every live replica whatever the level, and goes on after the answer. Acknowledgements are a *set*
//! of replicas, so that none counts twice. Once a mutation was handed to any replica (or the own log), no error says
//! more than "unknown": [`Unavailable`] alone means that nothing was begun.

use super::consistency::{ReplicaMask, Requirement, bit};

/// Why a replica did not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureReason {
    /// The connection broke, or the node was seen dead, while the request was under way.
    Disconnected,
    /// The replica had no room.
    Overloaded,
    /// The replica's storage failed: failed sync, corrupt file.
    Storage,
    /// The replica's disk is full.
    DiskFull,
    /// The request was made for another placement of the vnode or another state of the schema.
    Stale,
    /// The stamp is too far ahead of the replica's clock.
    Clock,
    /// The replica could not read the request.
    Malformed,
    /// The deadline had passed when the replica came to it.
    Expired,
    /// The answer does not fit in a message.
    TooLarge,
    /// The stamp is older than what the replica has promised to take: it can take effect no more under its name.
    TooLate,
}

impl FailureReason {
    /// The word that stands for it in error details.
    pub fn name(self) -> &'static str {
        match self {
            FailureReason::Disconnected => "disconnected",
            FailureReason::Overloaded => "overloaded",
            FailureReason::Storage => "storage",
            FailureReason::DiskFull => "disk full",
            FailureReason::Stale => "stale",
            FailureReason::Clock => "clock",
            FailureReason::Malformed => "malformed",
            FailureReason::Expired => "expired",
            FailureReason::TooLarge => "too large",
            FailureReason::TooLate => "too late",
        }
    }
}

/// Too few live replicas; nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable {
    /// Acknowledgements that the level demands.
    pub required: u32,
    /// Live replicas that could give one.
    pub alive: u32,
}

/// Why a write that was begun is not acknowledged. It may be applied yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// The deadline passed.
    Timeout {
        /// Acknowledgements that the level demands.
        required: u32,
        /// Those that came.
        received: u32,
    },
    /// So many replicas failed that the level cannot be met any more.
    Failed {
        /// Acknowledgements that the level demands.
        required: u32,
        /// Those that came.
        received: u32,
        /// Who failed, and why.
        reasons: Vec<(usize, FailureReason)>,
    },
}

/// One write under way.
#[derive(Debug)]
pub struct WriteOp {
    requirement: Requirement,
    targets: ReplicaMask,
    acknowledged: ReplicaMask,
    failures: Vec<(usize, FailureReason)>,
    answered: bool,
    expired: bool,
    /// Replicas that [`WriteOp::take_missed`] has told of.
    hinted: ReplicaMask,
}

impl WriteOp {
    /// Begins a write to the `alive` replicas: send it to all of them, or refuse it.
    pub fn start(requirement: Requirement, alive: ReplicaMask) -> Result<WriteOp, Unavailable> {
        if !requirement.met_by(alive) {
            return Err(Unavailable { required: requirement.required(), alive: requirement.counted(alive) });
        }
        Ok(WriteOp {
            requirement,
            targets: alive,
            acknowledged: 0,
            failures: Vec::new(),
            answered: false,
            expired: false,
            hinted: 0,
        })
    }

    /// The replicas to send it to.
    pub fn targets(&self) -> ReplicaMask {
        self.targets
    }

    /// The targets of which nothing was heard yet.
    pub fn outstanding(&self) -> ReplicaMask {
        self.failures.iter().fold(self.targets & !self.acknowledged, |mask, (replica, _)| mask & !bit(*replica))
    }

    /// Replicas that miss the mutation, each told of once: those that it was not sent to, that failed, or that had not
    /// acknowledged by the deadline, however soon the level was met. Each is to get a hint. One that can never take it gets
    /// none.
    pub fn take_missed(&mut self) -> ReplicaMask {
        let never = |reason: &FailureReason| matches!(reason, FailureReason::Malformed | FailureReason::TooLate);
        let failed = self.failures.iter().filter(|(_, reason)| !never(reason));
        let failed = failed.fold(0, |mask, (replica, _)| mask | bit(*replica));
        let silent = if self.expired { self.outstanding() } else { 0 };
        let not_sent = self.requirement.replicas() & !self.targets;
        let missed = (not_sent | failed | silent) & !self.acknowledged & !self.hinted;
        self.hinted |= missed;
        missed
    }

    /// A replica has the mutation, as durable as its table wants it. `Some`: answer now.
    pub fn acknowledge(&mut self, replica: usize) -> Option<Result<(), WriteError>> {
        self.acknowledged |= bit(replica) & self.targets;
        (!self.answered && self.requirement.met_by(self.acknowledged)).then(|| {
            self.answered = true;
            Ok(())
        })
    }

    /// A replica did not take the mutation, or nobody knows. `Some`: answer now.
    pub fn fail(&mut self, replica: usize, reason: FailureReason) -> Option<Result<(), WriteError>> {
        if self.outstanding() & bit(replica) == 0 {
            return None;
        }
        self.failures.push((replica, reason));
        let possible = self.acknowledged | self.outstanding();
        (!self.answered && !self.requirement.met_by(possible)).then(|| {
            self.answered = true;
            Err(WriteError::Failed {
                required: self.requirement.required(),
                received: self.requirement.counted(self.acknowledged),
                reasons: self.failures.clone(),
            })
        })
    }

    /// The deadline has passed. `Some`: answer now.
    pub fn expire(&mut self) -> Option<Result<(), WriteError>> {
        self.expired = true;
        (!self.answered).then(|| {
            self.answered = true;
            Err(WriteError::Timeout {
                required: self.requirement.required(),
                received: self.requirement.counted(self.acknowledged),
            })
        })
    }
}
