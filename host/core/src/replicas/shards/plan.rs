//! The plan that all replicas share: which ranges of hashes make up which shard, and which controllers are divided.

use serde::{Deserialize, Serialize};

use super::hash::{HashRange, HashRanges};
use super::partition::Divisions;

/// The highest number of shards. Each is a Lease that is renewed every few seconds.
pub const MOST_SHARDS: usize = 128;

/// The highest version. A higher number is always left to replace it with, whatever is written into a plan or a Lease.
pub const HIGHEST_VERSION: u64 = u64::MAX / 2;

/// The division of all namespaces into shards. A plan with a higher version replaces it as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ShardPlan {
    /// The version, one higher for each change.
    pub version: u64,
    /// The shards; their index is their name.
    pub shards: Vec<PlannedShard>,
    /// The division of each controller's work. Part of the plan, because all replicas must agree on it, too.
    #[serde(default)]
    pub controllers: Divisions,
}

/// One shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedShard {
    /// The hashes of its namespaces.
    pub ranges: HashRanges,
    /// The number of its objects when the plan was made.
    pub load: u64,
}

/// The reason why a plan cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not a plan.
    #[error("it is no plan of shards: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// No version could replace it, or it stands for no plan.
    #[error("its version is {0}; versions are 1 to {HIGHEST_VERSION}")]
    Version(u64),
    /// The plan has no shards, or too many.
    #[error("it has {0} shards; a plan has 1 to {MOST_SHARDS}")]
    Count(usize),
    /// A namespace would be in no shard, or in two.
    #[error("the hash {0:#018x} is in {1} shards; each has to be in one")]
    NotPartition(u64, usize),
}

impl ShardPlan {
    /// Parses a plan, and checks that each namespace is in exactly one shard.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let plan: Self = serde_json::from_str(text)?;
        plan.check()?;
        Ok(plan)
    }

    pub(super) fn check(&self) -> Result<(), PlanError> {
        if !(1..=HIGHEST_VERSION).contains(&self.version) {
            return Err(PlanError::Version(self.version));
        }
        if !(1..=MOST_SHARDS).contains(&self.shards.len()) {
            return Err(PlanError::Count(self.shards.len()));
        }
        let mut ranges: Vec<HashRange> = self.shards.iter().flat_map(|shard| shard.ranges.iter()).collect();
        ranges.sort_unstable();
        let mut next = Some(0);
        for range in ranges {
            match next {
                Some(next) if range.first() == next => {}
                Some(next) if range.first() > next => return Err(PlanError::NotPartition(next, 0)),
                _ => return Err(PlanError::NotPartition(range.first(), 2)),
            }
            next = range.last().checked_add(1);
        }
        match next {
            Some(next) => Err(PlanError::NotPartition(next, 0)),
            None => Ok(()),
        }
    }

    /// The plan as JSON.
    pub fn print(&self) -> String {
        serde_json::to_string(self).expect("it has no maps with keys that are no strings")
    }
}
