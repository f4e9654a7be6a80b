//! Decides where shards begin and end: at existing namespaces, so that each shard has about the same number of objects.
//!
//! Equal ranges of hashes do not suffice: short names that differ in their last letters have hashes that differ little,
//! so `tenant-00` to `tenant-99` are all in one range of 64.

use std::collections::BTreeMap;

use super::hash::{HashRange, HashRanges, hash_of};
use super::partition::Divisions;
use super::plan::{PlannedShard, ShardPlan};

/// A plan is replaced if a shard has more than this many times the mean load,
const TOO_MUCH: u128 = 2;

/// and if the largest shard of the new plan has at most three quarters of that.
const WORTH_IT: (u64, u64) = (3, 4);

/// The number of objects of each namespace, by the hash of its name.
#[derive(Clone, Debug, Default)]
pub struct NamespaceLoads(BTreeMap<u64, u64>);

impl NamespaceLoads {
    /// Counts objects of a namespace.
    pub fn add(&mut self, namespace: &str, objects: u64) {
        *self.0.entry(hash_of(namespace)).or_default() += objects;
    }

    fn of(&self, ranges: &HashRanges) -> u64 {
        let of_range = |range: HashRange| {
            self.0
                .range(range.first()..=range.last())
                .map(|(_, load)| load)
                .sum::<u64>()
        };
        ranges.iter().map(of_range).sum()
    }
}

/// The first plan, or the first with this number of shards.
pub fn first_plan(version: u64, shards: usize, loads: &NamespaceLoads) -> ShardPlan {
    let starts = starts(shards, loads);
    let ends = starts[1..].iter().map(|next| next - 1).chain([u64::MAX]);
    let shard = |(first, last): (&u64, u64)| {
        let ranges: HashRanges = HashRange::new(*first, last).into_iter().collect();
        PlannedShard {
            load: loads.of(&ranges),
            ranges,
        }
    };
    ShardPlan {
        version,
        shards: starts.iter().zip(ends).map(shard).collect(),
        controllers: Divisions::default(),
    }
}

/// Reports whether one of these shards has so much more than the mean that a new division may be worthwhile.
pub fn is_uneven(loads: &[u64]) -> bool {
    // Replicas publish their loads in Leases, which may have any numbers.
    let loads = || loads.iter().map(|load| u128::from(*load));
    loads().max().unwrap_or_default() * loads().count() as u128 > loads().sum::<u128>() * TOO_MUCH
}

/// A better plan, if the load is divided unevenly and can be divided better.
pub fn better_plan(plan: &ShardPlan, loads: &NamespaceLoads) -> Option<ShardPlan> {
    let now: Vec<u64> = plan.shards.iter().map(|shard| loads.of(&shard.ranges)).collect();
    let most = now.iter().max()?;
    if !is_uneven(&now) {
        return None;
    }
    let mut better = first_plan(plan.version + 1, plan.shards.len(), loads);
    better.controllers.clone_from(&plan.controllers);
    let least = better.shards.iter().map(|shard| shard.load).max()?;
    let (part, of) = WORTH_IT;
    (least * of <= most * part).then_some(better)
}

/// The first hash of each shard; that of the first shard is zero.
fn starts(shards: usize, loads: &NamespaceLoads) -> Vec<u64> {
    let loads: Vec<(u64, u64)> = loads.0.iter().map(|(hash, load)| (*hash, (*load).max(1))).collect();
    let mut starts = cut_within(&loads, shards, least_capacity(&loads, shards));
    while starts.len() < shards {
        // Shards with several namespaces are divided first, and then the widest ones, because new namespaces may have
        // any hash.
        let next = heaviest_cut(&loads, &starts).unwrap_or_else(|| widest_cut(&starts));
        starts.push(next);
        starts.sort_unstable();
    }
    starts
}

/// The smallest possible load of the largest shard.
fn least_capacity(loads: &[(u64, u64)], shards: usize) -> u64 {
    let (mut low, mut high) = (
        loads.iter().map(|(_, load)| *load).max().unwrap_or(1),
        loads.iter().map(|(_, load)| *load).sum::<u64>().max(1),
    );
    while low < high {
        let middle = low + (high - low) / 2;
        if cut_within(loads, usize::MAX, middle).len() <= shards {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The first hash of each shard, if none may have more than `capacity`.
fn cut_within(loads: &[(u64, u64)], shards: usize, capacity: u64) -> Vec<u64> {
    let (mut starts, mut filled) = (vec![0], 0);
    for (hash, load) in loads {
        if filled > 0 && filled + load > capacity && starts.len() < shards {
            starts.push(*hash);
            filled = 0;
        }
        filled += load;
    }
    starts
}

/// The best cut through the shard with the highest load, among those with several namespaces.
fn heaviest_cut(loads: &[(u64, u64)], starts: &[u64]) -> Option<u64> {
    let ends = starts[1..].iter().map(|next| next - 1).chain([u64::MAX]);
    let within = starts.iter().zip(ends).map(|(first, last)| {
        let begin = loads.partition_point(|(hash, _)| hash < first);
        let end = loads.partition_point(|(hash, _)| *hash <= last);
        &loads[begin..end]
    });
    let total = |shard: &&[(u64, u64)]| shard.iter().map(|(_, load)| load).sum::<u64>();
    let heaviest = within.filter(|shard| shard.len() > 1).max_by_key(total)?;
    let half = total(&heaviest) / 2;
    let mut filled = heaviest[0].1;
    for (hash, load) in &heaviest[1..heaviest.len() - 1] {
        if filled + load / 2 >= half {
            return Some(*hash);
        }
        filled += load;
    }
    heaviest.last().map(|(hash, _)| *hash)
}

/// The middle of the widest shard.
fn widest_cut(starts: &[u64]) -> u64 {
    let ends = starts[1..].iter().map(|next| next - 1).chain([u64::MAX]);
    let widest = starts.iter().zip(ends).max_by_key(|(first, last)| last - **first);
    widest.map_or(1 << 63, |(first, last)| first + (last - first) / 2 + 1)
}
