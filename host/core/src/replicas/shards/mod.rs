//! Owns how active replicas divide the work: namespaces into shards by the hash of their names, and shards among replicas.
//!
//! `hash` has ranges of hashes, `plan` says which ranges make up which shard, `cut` divides them by load, `assignment` says
//! which replica holds which shard, `partition` whose work an object is, and `review` who answers an admission review.

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
