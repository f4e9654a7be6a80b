//! Owns what has been seen of the Leases of shards and replicas, and since when.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use pilothouse_cluster::resources::lease::LiveLease;
use pilothouse_core::replicas::lease::{LeaseCandidate, LeaseRecord, LeaseStep, LeaseTimes};
use pilothouse_core::replicas::shards::{HIGHEST_VERSION, hash_of, peer_address};
use pilothouse_core::status::backoff;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::state::WorkCount;

/// The annotations of a replica's Lease.
const PLAN: &str = "pilothouse.dev/plan";
const DIGEST: &str = "pilothouse.dev/plan-digest";
const SHARDS: &str = "pilothouse.dev/shards";
const OBJECTS: &str = "pilothouse.dev/objects";
const LOADS: &str = "pilothouse.dev/loads";
const ADDRESS: &str = "pilothouse.dev/webhook-address";

/// The names of replicas' Leases begin so.
const REPLICA: &str = "-replica-";

/// And those of shards' Leases.
const SHARD: &str = "-shard-";

/// How much longer than the prefix the names of these Leases are, at most: a replica's has 16 digits.
pub const LONGEST_LEASE_SUFFIX: usize = REPLICA.len() + 16;

/// The Lease of a replica, without the prefix.
pub fn replica_lease(identity: &str) -> String {
    format!("{REPLICA}{:016x}", hash_of(identity))
}

/// The Lease of a shard, without the prefix.
pub fn shard_lease(shard: usize) -> String {
    format!("{SHARD}{shard}")
}

/// How long the Lease of a replica that is gone is kept, at least.
const KEPT: Duration = Duration::from_mins(10);

/// What a replica says of itself in its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaState {
    /// The version of the plan that it works by; zero if it has none yet.
    pub plan: u64,
    /// What that plan says, in short: somebody may have changed it without giving it another version. Earlier versions of the
    /// host say none. A later one that prints plans otherwise has to use another annotation, or an update of the replicas would
    /// look like two plans.
    pub digest: Option<u64>,
    /// The number of shards that it was started with.
    pub shards: usize,
    /// What it works at.
    pub work: WorkCount,
    /// Where its webhook server listens for other replicas. Somebody who writes another address there gets no review: the
    /// server has to prove that it is a replica.
    pub address: Option<SocketAddr>,
}

impl ReplicaState {
    /// Whether the replica works by the same plan as one that says so of itself.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.plan == other.plan && !self.disputes(other)
    }

    /// Whether the two work by different plans of one version.
    fn disputes(&self, other: &Self) -> bool {
        self.plan == other.plan && self.digest.zip(other.digest).is_some_and(|(own, theirs)| own != theirs)
    }

    pub fn annotations(&self) -> Vec<(&'static str, String)> {
        let WorkCount {
            by_controller,
            by_shard,
        } = &self.work;
        let mut annotations = vec![
            (PLAN, self.plan.to_string()),
            (SHARDS, self.shards.to_string()),
            (OBJECTS, json!(by_controller).to_string()),
            (LOADS, json!(by_shard).to_string()),
        ];
        annotations.extend(self.digest.map(|digest| (DIGEST, digest.to_string())));
        annotations.extend(self.address.map(|address| (ADDRESS, address.to_string())));
        annotations
    }

    /// What somebody else has written into an annotation counts as nothing.
    fn read(lease: &LiveLease) -> Self {
        fn value<T: DeserializeOwned + Default>(lease: &LiveLease, annotation: &str) -> T {
            let text = lease.annotation(annotation).unwrap_or_default();
            serde_json::from_str(text).unwrap_or_default()
        }
        let plan: u64 = value(lease, PLAN);
        Self {
            plan: if plan > HIGHEST_VERSION { 0 } else { plan },
            digest: value(lease, DIGEST),
            shards: value(lease, SHARDS),
            work: WorkCount {
                by_controller: value(lease, OBJECTS),
                by_shard: value(lease, LOADS),
            },
            address: lease.annotation(ADDRESS).and_then(peer_address),
        }
    }
}

/// Who takes part in dividing shards, and who holds each.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    pub replicas: Vec<String>,
    pub holders: Vec<Option<String>>,
}

/// All Leases that have been seen, by what follows the common prefix.
pub struct Peers {
    identity: String,
    times: LeaseTimes,
    leases: HashMap<String, SeenLease>,
}

struct SeenLease {
    candidate: LeaseCandidate,
    /// As it was read or written last; none if it is not there.
    live: Option<LiveLease>,
    /// What it says of its replica, if it is one's. It stays known after the Lease is deleted.
    state: ReplicaState,
}

impl Peers {
    pub fn new(identity: String, times: LeaseTimes) -> Self {
        Self {
            identity,
            times,
            leases: HashMap::new(),
        }
    }

    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The wait between two rounds, with jitter, so that replicas do not ask together.
    pub fn pause(&self, number: u64) -> Duration {
        let seed = hash_of(&self.identity).wrapping_add(number);
        backoff::jittered(self.times.retry_period, seed)
    }

    /// Takes note of all Leases as they are now.
    pub fn observe(&mut self, mut listed: BTreeMap<String, LiveLease>, now: Duration) {
        for (name, seen) in &mut self.leases {
            seen.see(listed.remove(name), now);
        }
        for (name, lease) in listed {
            self.entry(&name).see(Some(lease), now);
        }
        // Replicas come with a new name each time.
        self.leases
            .retain(|_, seen| seen.live.is_some() || seen.candidate.holder(now).is_some());
    }

    /// A Lease was written by this replica.
    pub fn written(&mut self, name: &str, lease: LiveLease, now: Duration) {
        self.entry(name).see(Some(lease), now);
    }

    fn entry(&mut self, name: &str) -> &mut SeenLease {
        let Self {
            identity,
            times,
            leases,
        } = self;
        leases.entry(name.to_owned()).or_insert_with(|| SeenLease {
            candidate: LeaseCandidate::new(identity.clone(), *times),
            live: None,
            state: ReplicaState::default(),
        })
    }

    /// What to write into a Lease to take or renew it, and what it has to be written over; none if another holds it.
    pub fn next(&mut self, name: &str, now: Duration, time: &str) -> Option<(Option<LiveLease>, LeaseRecord)> {
        let SeenLease { candidate, live, .. } = self.entry(name);
        match candidate.next(live.as_ref().map(|live| &live.record), now, time) {
            LeaseStep::Write(record) => Some((live.clone(), record)),
            LeaseStep::Wait(_) => None,
        }
    }

    /// A Lease as it was read or written last, if this replica holds it.
    pub fn own(&self, name: &str) -> Option<&LiveLease> {
        let seen = self.leases.get(name).filter(|seen| !seen.candidate.is_named())?;
        let live = seen.live.as_ref();
        live.filter(|live| live.record.holder == self.identity)
    }

    /// A Lease as it was read or written last.
    pub fn live(&self, name: &str) -> Option<&LiveLease> {
        self.leases.get(name)?.live.as_ref()
    }

    /// Who holds a Lease.
    pub fn holder(&self, name: &str, now: Duration) -> Option<&str> {
        self.leases.get(name)?.candidate.holder(now)
    }

    fn replicas(&self, now: Duration) -> impl Iterator<Item = (&String, &str, &ReplicaState)> {
        let replicas = self.leases.iter().filter(|(name, _)| name.starts_with(REPLICA));
        replicas.filter_map(move |(name, seen)| Some((name, seen.candidate.holder(now)?, &seen.state)))
    }

    /// Where the webhook server of a replica that lives listens for others, if it says so.
    pub fn address_of(&self, identity: &str, now: Duration) -> Option<SocketAddr> {
        let mut replicas = self.replicas(now).filter(|(_, holder, _)| *holder == identity);
        replicas.next()?.2.address
    }

    /// What other replicas that live say of themselves; `own` is this one's Lease.
    pub fn others<'a>(&'a self, own: &'a str, now: Duration) -> impl Iterator<Item = &'a ReplicaState> + 'a {
        let others = self.replicas(now).filter(move |(name, ..)| *name != own);
        others.map(|(_, _, state)| state)
    }

    /// The replicas that live, but for those whose Leases are deleted: earlier versions did that when they were about to end.
    fn staying(&self, now: Duration) -> impl Iterator<Item = (&String, &str, &ReplicaState)> {
        self.replicas(now).filter(|(name, ..)| self.live(name).is_some())
    }

    /// The replicas that live and stay, by identity.
    pub fn living(&self, now: Duration) -> BTreeSet<String> {
        self.staying(now).map(|(_, holder, _)| holder.to_owned()).collect()
    }

    /// The replicas that stay, have so many shards and work by a plan, by name. A replica that has not read the plan can take
    /// nothing, and neither can an identity that somebody has written into the Lease of another replica.
    pub fn taking_part(&self, shards: usize, plan: u64, now: Duration) -> Vec<&str> {
        let part = self.staying(now).filter(|(name, holder, state)| {
            **name == replica_lease(holder) && state.shards == shards && state.plan == plan
        });
        let part: BTreeSet<&str> = part.map(|(_, holder, _)| holder).collect();
        part.into_iter().collect()
    }

    /// Whether a replica works by another plan of the version by which this one does.
    pub fn is_disputed(&self, own: &str, now: Duration) -> bool {
        let state = self.leases.get(own).map(|seen| &seen.state);
        state.is_some_and(|state| self.others(own, now).any(|other| state.disputes(other)))
    }

    /// Whether the leader takes part in dividing the work, or there is none. Another one, which was started without --shards,
    /// believes that all of it is its own.
    pub fn leader_takes_part(&self, now: Duration) -> bool {
        // One that ends gives its own Lease back before that of the leader.
        let is_replica = |leader: &str| self.leases.contains_key(&replica_lease(leader));
        self.holder("", now).is_none_or(is_replica)
    }

    /// A replica that takes part in dividing the work and lives, if there is one.
    pub fn any_replica(&self, now: Duration) -> Option<&str> {
        self.replicas(now).map(|(_, holder, _)| holder).min()
    }

    /// The Leases of replicas that have been gone for long. That of one that has ended in order is kept until all others have
    /// seen that it was given back: who saw it deleted only would wait until it ends.
    pub fn abandoned(&self, now: Duration) -> Vec<(String, LiveLease)> {
        let of_replicas = self.leases.iter().filter(|(name, _)| name.starts_with(REPLICA));
        let abandoned = of_replicas.filter(|(_, seen)| {
            let is_given_back = seen.live.as_ref().is_some_and(|live| live.record.holder.is_empty());
            let kept = if is_given_back { self.times.duration * 2 } else { KEPT };
            let is_old = seen
                .candidate
                .unchanged_for(now)
                .is_some_and(|unchanged| unchanged > kept);
            is_old && seen.candidate.holder(now).is_none()
        });
        abandoned
            .filter_map(|(name, seen)| Some((name.clone(), seen.live.clone()?)))
            .collect()
    }

    /// The numbers of shards with which the replicas that stay were started.
    pub fn counts(&self, now: Duration) -> BTreeSet<usize> {
        self.staying(now).map(|(.., state)| state.shards).collect()
    }

    /// How many objects each shard of a plan has, as the replicas say that hold them and work by it; none if that is not known of
    /// each.
    pub fn loads(&self, shards: usize, plan: u64, now: Duration) -> Option<Vec<u64>> {
        let load = |shard: usize| {
            let holder = self.holder(&shard_lease(shard), now)?;
            let mut holders = self
                .staying(now)
                .filter(|(_, identity, state)| *identity == holder && state.plan == plan);
            holders.find_map(|(.., state)| state.work.by_shard.get(&shard)).copied()
        };
        (0..shards).map(load).collect()
    }

    /// The replicas among which so many shards are divided, and who holds each.
    pub fn shares(&self, shards: usize, plan: u64, now: Duration) -> Shares {
        let owned = |name: &str| name.to_owned();
        Shares {
            replicas: self.taking_part(shards, plan, now).into_iter().map(owned).collect(),
            holders: (0..shards)
                .map(|shard| self.holder(&shard_lease(shard), now).map(owned))
                .collect(),
        }
    }

    /// Whether a replica that worked by another plan has ended, and left the Lease of a shard, or that of the leader, to end by
    /// itself. Its last writes may still take effect, in namespaces that this plan has in other shards, or for controllers whose
    /// work it divides otherwise.
    pub fn has_left_work(&self, plan: Option<u64>, now: Duration) -> bool {
        let is_of_work = |name: &str| name.is_empty() || name.starts_with(SHARD);
        let mut leases = self.leases.iter().filter(|(name, _)| is_of_work(name));
        leases.any(|(_, seen)| {
            let Some(holder) = seen.candidate.holder(now) else {
                return false;
            };
            // Of somebody who is no replica nothing is known.
            self.leases.get(&replica_lease(holder)).is_some_and(|replica| {
                let has_ended = replica.candidate.holder(now) != Some(holder);
                has_ended && Some(replica.state.plan) != plan
            })
        })
    }

    /// The latest plan that a replica works by.
    pub fn latest_plan(&self, now: Duration) -> u64 {
        self.replicas(now)
            .map(|(_, _, state)| state.plan)
            .max()
            .unwrap_or_default()
    }
}

impl SeenLease {
    fn see(&mut self, live: Option<LiveLease>, now: Duration) {
        self.candidate.observe(live.as_ref().map(|live| &live.record), now);
        if let Some(live) = &live {
            let before = std::mem::replace(&mut self.state, ReplicaState::read(live));
            // Who has worked by a plan never works by none again, and may still write by it: somebody has changed the Lease.
            if self.state.plan == 0 {
                (self.state.plan, self.state.digest) = (before.plan, before.digest);
            }
        }
        self.live = live;
    }
}
