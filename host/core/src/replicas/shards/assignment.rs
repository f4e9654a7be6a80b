//! Decides which replica holds which shard. Each replica computes the same result from the same Leases, so no
//! coordinator is needed. Where replicas have seen different Leases for a moment, the Leases keep two of them from
//! holding one shard.

use std::collections::BTreeMap;

use super::plan::{PlannedShard, ShardPlan};

/// The load of each shard beside its objects, so that shards without objects are divided, too.
const BASE_LOAD: u128 = 1;

/// A shard as its Lease shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveShard<'a> {
    /// The number of its objects.
    pub load: u64,
    /// The replica that holds it, if any.
    pub holder: Option<&'a str>,
}

/// The replica that is to hold each shard; none if there is no replica.
pub type Assignment<'a> = Vec<Option<&'a str>>;

/// Divides shards among replicas by load. The holder keeps its shard, unless another replica has less load by more than
/// the shard's. So shards move only when replicas join and leave, and as few as possible.
pub fn assign<'a>(replicas: &[&'a str], shards: &[LiveShard<'_>]) -> Assignment<'a> {
    let mut used: BTreeMap<&'a str, u128> = replicas.iter().map(|replica| (*replica, 0)).collect();
    if used.is_empty() {
        return vec![None; shards.len()];
    }
    // Loads come from the plan, which may have any numbers; the type holds their sum.
    let cost = |index: usize| u128::from(shards[index].load) + BASE_LOAD;
    let mut assignment: Assignment<'a> = shards
        .iter()
        .enumerate()
        .map(|(index, shard)| {
            let (holder, used) = used.iter_mut().find(|(replica, _)| Some(**replica) == shard.holder)?;
            *used += cost(index);
            Some(*holder)
        })
        .collect();
    // The largest shards first: the smaller ones fill the gaps.
    let mut free: Vec<usize> = (0..shards.len()).filter(|index| assignment[*index].is_none()).collect();
    free.sort_by_key(|index| (std::cmp::Reverse(cost(*index)), *index));
    for index in free {
        let (replica, used) = least(&mut used);
        *used += cost(index);
        assignment[index] = Some(replica);
    }
    // Each move reduces the load of the busiest replica without making another the busiest, so the loop ends.
    while let Some((index, to)) = best_move(&assignment, &used, cost) {
        if let Some(from) = assignment[index].replace(to) {
            *used.entry(from).or_default() -= cost(index);
        }
        *used.entry(to).or_default() += cost(index);
    }
    assignment
}

/// The plan with the present loads, if that helps: the replica with the highest load, by the loads of the plan, would
/// then have at most three quarters of it. Smaller differences are not worth another version.
pub fn with_loads(plan: &ShardPlan, replicas: &[&str], live: &[LiveShard<'_>]) -> Option<ShardPlan> {
    let planned: Vec<LiveShard<'_>> = plan
        .shards
        .iter()
        .zip(live)
        .map(|(planned, live)| LiveShard {
            load: planned.load,
            holder: live.holder,
        })
        .collect();
    if planned.len() != live.len() || plan.shards.len() != live.len() {
        return None;
    }
    let most = |assignment: &Assignment<'_>| {
        let mut used: BTreeMap<Option<&str>, u128> = BTreeMap::new();
        for (holder, shard) in assignment.iter().zip(live) {
            *used.entry(*holder).or_default() += u128::from(shard.load) + BASE_LOAD;
        }
        used.into_values().max().unwrap_or_default()
    };
    let (before, after) = (most(&assign(replicas, &planned)), most(&assign(replicas, live)));
    let shard = |(planned, live): (&PlannedShard, &LiveShard<'_>)| PlannedShard {
        ranges: planned.ranges.clone(),
        load: live.load,
    };
    (after * 4 <= before * 3).then(|| ShardPlan {
        version: plan.version + 1,
        shards: plan.shards.iter().zip(live).map(shard).collect(),
        controllers: plan.controllers.clone(),
    })
}

/// The replica with the least load; of several the first by name.
fn least<'a, 'b>(used: &'b mut BTreeMap<&'a str, u128>) -> (&'a str, &'b mut u128) {
    let (replica, used) = used
        .iter_mut()
        .min_by_key(|(_, used)| **used)
        .expect("there is a replica");
    (*replica, used)
}

/// The shard to move from the busiest replica to the least busy one, if that brings their loads closer.
fn best_move<'a>(
    assignment: &Assignment<'a>,
    used: &BTreeMap<&'a str, u128>,
    cost: impl Fn(usize) -> u128,
) -> Option<(usize, &'a str)> {
    let (to, least) = used.iter().min_by_key(|(_, used)| **used)?;
    let (from, most) = used.iter().rev().max_by_key(|(_, used)| **used)?;
    let gap = most - least;
    let of_busiest = (0..assignment.len()).filter(|index| assignment[*index] == Some(*from));
    let helps = of_busiest.filter(|index| cost(*index) < gap);
    // The shard with a load closest to half of the gap.
    let best = helps.min_by_key(|index| ((2 * cost(*index)).abs_diff(gap), *index))?;
    Some((best, *to))
}
