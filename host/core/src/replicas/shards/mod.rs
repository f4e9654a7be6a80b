//! Divides the work of active replicas: namespaces into shards by the hash of their names, and shards among replicas.
//!
//! `hash` has ranges of hashes, `plan` assigns ranges to shards, `cut` divides them by load, `assignment` decides which
//! replica holds which shard, `partition` which objects a replica reconciles, and `review` which replica answers an
//! admission review.

mod assignment;
mod cut;
mod hash;
mod partition;
mod plan;
mod review;
#[cfg(test)]
mod tests;

pub use assignment::{Assignment, LiveShard, assign, with_loads};
pub use cut::{NamespaceLoads, better_plan, first_plan, is_uneven};
pub use hash::{HashRange, HashRanges, hash_of};
pub use partition::{Division, Divisions, OwnedOf, OwnedWork};
pub use plan::{HIGHEST_VERSION, MOST_SHARDS, PlanError, PlannedShard, ShardPlan};
pub use review::{Answerer, HoldingReplica, NoHolder, ShardHolder, ShardHolders, peer_address};
