//! Tracks the observed Leases of shards and replicas, and since when.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::json;

use super::lease::{LeaseCandidate, LeaseRecord, LeaseStep, LeaseTimes};
use super::shards::{HIGHEST_VERSION, hash_of, peer_address};
use crate::status::backoff;

/// The annotations of a replica's Lease.
const PLAN: &str = "pilothouse.dev/plan";
const DIGEST: &str = "pilothouse.dev/plan-digest";
const SHARDS: &str = "pilothouse.dev/shards";
const OBJECTS: &str = "pilothouse.dev/objects";
const LOADS: &str = "pilothouse.dev/loads";
const ADDRESS: &str = "pilothouse.dev/webhook-address";

/// Prefix of the names of replicas' Leases.
const REPLICA: &str = "-replica-";

/// Prefix of the names of shards' Leases.
const SHARD: &str = "-shard-";

/// Maximum length of these names beyond the common prefix: a replica's has 16 digits.
pub const LONGEST_LEASE_SUFFIX: usize = REPLICA.len() + 16;

/// The Lease of a replica, without the prefix.
pub fn replica_lease(identity: &str) -> String {
    format!("{REPLICA}{:016x}", hash_of(identity))
}

/// The Lease of a shard, without the prefix.
pub fn shard_lease(shard: usize) -> String {
    format!("{SHARD}{shard}")
}

/// The ConfigMap with the plan of the replicas that share this Lease.
pub fn plan_name(lease: &str) -> String {
    format!("{lease}-shards")
}

/// Number of the shard that a Lease belongs to, by the name without the prefix. A Lease of another release may begin
/// with the same prefix, and has a longer name.
fn shard_of(name: &str) -> Option<usize> {
    let shard = name.strip_prefix(SHARD)?.parse().ok()?;
    (shard_lease(shard) == name).then_some(shard)
}

/// Returns `true` if a Lease is the one that its replica made. A release whose name begins like this one's may have a
/// Lease of such a name, without the annotations.
fn is_of_replica(name: &str, state: &ReplicaState) -> bool {
    name.starts_with(REPLICA) && name.len() == LONGEST_LEASE_SUFFIX && state.shards > 0
}

/// Minimum time for which the Lease of a removed replica is kept.
pub const KEPT: Duration = Duration::from_mins(10);

/// A Lease as it was read or written, with all that its next write needs.
pub trait StoredLease: Clone {
    /// Its spec.
    fn record(&self) -> &LeaseRecord;

    /// The state in its annotations, if it is a replica's.
    fn replica(&self) -> ReplicaState;
}

/// Size of a replica's work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkCount {
    /// Number of primaries by controller.
    pub by_controller: BTreeMap<String, u64>,
    /// Number of primaries by shard.
    pub by_shard: BTreeMap<usize, u64>,
}

/// State that a replica publishes in its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaState {
    /// Version of the plan that it works by; zero if it has none yet.
    pub plan: u64,
    /// Digest of that plan: it may have been edited without another version. Earlier versions of the host publish none.
    /// A later one that prints plans differently has to use another annotation, or an update of the replicas would look
    /// like two plans.
    pub digest: Option<u64>,
    /// The number of shards that it was started with.
    pub shards: usize,
    /// Size of its work.
    pub work: WorkCount,
    /// Address at which its webhook server listens for other replicas. A forged address gets no review: the server has
    /// to prove that it is a replica.
    pub address: Option<SocketAddr>,
}

impl ReplicaState {
    /// Returns `true` if both replicas work by the same plan.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.plan == other.plan && !self.disputes(other)
    }

    /// Returns `true` if both work by different plans of one version.
    fn disputes(&self, other: &Self) -> bool {
        self.plan == other.plan && self.digest.zip(other.digest).is_some_and(|(own, theirs)| own != theirs)
    }

    /// The annotations of the replica's Lease.
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

    /// Reads the annotations; invalid values of others count as absent.
    pub fn read<'a>(annotation: impl Fn(&'static str) -> Option<&'a str>) -> Self {
        fn value<T: DeserializeOwned + Default>(text: Option<&str>) -> T {
            serde_json::from_str(text.unwrap_or_default()).unwrap_or_default()
        }
        let plan: u64 = value(annotation(PLAN));
        Self {
            plan: if plan > HIGHEST_VERSION { 0 } else { plan },
            digest: value(annotation(DIGEST)),
            shards: value(annotation(SHARDS)),
            work: WorkCount {
                by_controller: value(annotation(OBJECTS)),
                by_shard: value(annotation(LOADS)),
            },
            address: annotation(ADDRESS).and_then(peer_address),
        }
    }
}

/// Replicas that take part in dividing shards, and the holder of each shard.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// The identities of the replicas.
    pub replicas: Vec<String>,
    /// The holder of each shard, if it has one.
    pub holders: Vec<Option<String>>,
}

/// All observed Leases, by the name after the common prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peers<L> {
    identity: String,
    times: LeaseTimes,
    leases: BTreeMap<String, SeenLease<L>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeenLease<L> {
    candidate: LeaseCandidate,
    /// The Lease as last read or written; `None` if it does not exist.
    live: Option<L>,
    /// State of its replica, if it is a replica's. It stays known after the Lease is deleted.
    state: ReplicaState,
}

impl<L: StoredLease> Peers<L> {
    /// A replica that has seen nothing yet.
    pub fn new(identity: String, times: LeaseTimes) -> Self {
        Self {
            identity,
            times,
            leases: BTreeMap::new(),
        }
    }

    /// The identity of this replica.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the wait between two rounds, with jitter, so that replicas do not ask together.
    pub fn pause(&self, number: u64) -> Duration {
        let seed = hash_of(&self.identity).wrapping_add(number);
        backoff::jittered(self.times.retry_period, seed)
    }

    /// Records all Leases as they are now.
    pub fn observe(&mut self, mut listed: BTreeMap<String, L>, now: Duration) {
        for (name, seen) in &mut self.leases {
            seen.see(listed.remove(name), now);
        }
        for (name, lease) in listed {
            self.entry(&name).see(Some(lease), now);
        }
        // Replicas get a new name at each start.
        self.leases
            .retain(|_, seen| seen.live.is_some() || seen.candidate.holder(now).is_some());
    }

    /// Records a Lease that this replica has written.
    pub fn written(&mut self, name: &str, lease: L, now: Duration) {
        self.entry(name).see(Some(lease), now);
    }

    fn entry(&mut self, name: &str) -> &mut SeenLease<L> {
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

    /// The record with which a Lease is taken or renewed, and the Lease that it replaces; `None` if another replica
    /// holds it.
    pub fn next(&mut self, name: &str, now: Duration, time: &str) -> Option<(Option<L>, LeaseRecord)> {
        let SeenLease { candidate, live, .. } = self.entry(name);
        match candidate.next(live.as_ref().map(StoredLease::record), now, time) {
            LeaseStep::Write(record) => Some((live.clone(), record)),
            LeaseStep::Wait(_) => None,
        }
    }

    /// A Lease as last read or written, if this replica holds it.
    pub fn own(&self, name: &str) -> Option<&L> {
        let seen = self.leases.get(name).filter(|seen| !seen.candidate.is_named())?;
        let live = seen.live.as_ref();
        live.filter(|live| live.record().holder == self.identity)
    }

    /// A Lease as last read or written.
    pub fn live(&self, name: &str) -> Option<&L> {
        self.leases.get(name)?.live.as_ref()
    }

    /// Holder of a Lease.
    pub fn holder(&self, name: &str, now: Duration) -> Option<&str> {
        self.leases.get(name)?.candidate.holder(now)
    }

    fn replicas(&self, now: Duration) -> impl Iterator<Item = (&String, &str, &ReplicaState)> {
        let replicas = self.leases.iter().filter(|(name, _)| name.starts_with(REPLICA));
        replicas.filter_map(move |(name, seen)| Some((name, seen.candidate.holder(now)?, &seen.state)))
    }

    /// Address at which the webhook server of a living replica listens for others, if published.
    pub fn address_of(&self, identity: &str, now: Duration) -> Option<SocketAddr> {
        let mut replicas = self.replicas(now).filter(|(_, holder, _)| *holder == identity);
        replicas.next()?.2.address
    }

    /// States of other living replicas; `own` is this one's Lease.
    pub fn others<'a>(&'a self, own: &'a str, now: Duration) -> impl Iterator<Item = &'a ReplicaState> + 'a {
        let others = self.replicas(now).filter(move |(name, ..)| *name != own);
        others.map(|(_, _, state)| state)
    }

    /// Living replicas, except those whose Leases are deleted: earlier versions did that before they ended.
    fn staying(&self, now: Duration) -> impl Iterator<Item = (&String, &str, &ReplicaState)> {
        self.replicas(now).filter(|(name, ..)| self.live(name).is_some())
    }

    /// Living replicas that are not ending, by identity.
    pub fn living(&self, now: Duration) -> BTreeSet<String> {
        self.staying(now).map(|(_, holder, _)| holder.to_owned()).collect()
    }

    /// Identities of the replicas that are not ending, have this number of shards and work by this plan. A replica that
    /// has not read the plan can take nothing, and neither can an identity that was written into the Lease of another
    /// replica.
    pub fn taking_part(&self, shards: usize, plan: u64, now: Duration) -> Vec<&str> {
        let part = self.staying(now).filter(|(name, holder, state)| {
            **name == replica_lease(holder) && state.shards == shards && state.plan == plan
        });
        let part: BTreeSet<&str> = part.map(|(_, holder, _)| holder).collect();
        part.into_iter().collect()
    }

    /// Returns `true` if a replica works by another plan of the version by which this one does.
    pub fn is_disputed(&self, own: &str, now: Duration) -> bool {
        let state = self.leases.get(own).map(|seen| &seen.state);
        state.is_some_and(|state| self.others(own, now).any(|other| state.disputes(other)))
    }

    /// Returns `true` if the leader takes part in dividing the work, or there is none. A leader that was started
    /// without --shards considers all of it its own.
    pub fn leader_takes_part(&self, now: Duration) -> bool {
        // A replica that ends releases its own Lease before that of the leader.
        let is_replica = |leader: &str| self.leases.contains_key(&replica_lease(leader));
        self.holder("", now).is_none_or(is_replica)
    }

    /// A living replica that takes part in dividing the work, if there is one.
    pub fn any_replica(&self, now: Duration) -> Option<&str> {
        self.replicas(now).map(|(_, holder, _)| holder).min()
    }

    /// Leases of replicas that have ended, and of shards from this number on, which no replica holds any more. Those of
    /// replicas that ended in order are kept until all others have seen their release: one that only saw the deletion
    /// would wait until it expires. The others are kept for some time.
    pub fn abandoned(&self, shards: usize, kept: Duration, now: Duration) -> Vec<(String, L)> {
        let abandoned = self.left(shards).filter(|(_, seen, live)| {
            let is_given_back = live.record().holder.is_empty();
            let kept = if is_given_back { self.times.duration * 2 } else { kept };
            let is_old = seen
                .candidate
                .unchanged_for(now)
                .is_some_and(|unchanged| unchanged >= kept);
            is_old && seen.candidate.holder(now).is_none()
        });
        abandoned.map(|(name, _, live)| (name.clone(), live.clone())).collect()
    }

    /// Returns `true` if there are Leases of replicas, or of shards from this number on.
    pub fn has_any_of(&self, shards: usize) -> bool {
        self.left(shards).next().is_some()
    }

    fn left(&self, shards: usize) -> impl Iterator<Item = (&String, &SeenLease<L>, &L)> {
        let is_left = move |name: &str, seen: &SeenLease<L>| {
            is_of_replica(name, &seen.state) || shard_of(name).is_some_and(|shard| shard >= shards)
        };
        let left = self.leases.iter().filter(move |(name, seen)| is_left(name, seen));
        left.filter_map(|(name, seen)| Some((name, seen, seen.live.as_ref()?)))
    }

    /// Numbers of shards with which the replicas that are not ending were started.
    pub fn counts(&self, now: Duration) -> BTreeSet<usize> {
        self.staying(now).map(|(.., state)| state.shards).collect()
    }

    /// Number of objects in each shard of a plan, according to the replicas that hold them and work by it; `None` if
    /// that is not known for each.
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

    /// Replicas among which this number of shards is divided, and the holders.
    pub fn shares(&self, shards: usize, plan: u64, now: Duration) -> Shares {
        let owned = |name: &str| name.to_owned();
        Shares {
            replicas: self.taking_part(shards, plan, now).into_iter().map(owned).collect(),
            holders: (0..shards)
                .map(|shard| self.holder(&shard_lease(shard), now).map(owned))
                .collect(),
        }
    }

    /// Returns `true` if a replica that worked by another plan has ended, and left the Lease of a shard, or that of the
    /// leader, to expire. Its last writes may still take effect, in namespaces that this plan has in other shards, or
    /// for controllers whose work it divides differently.
    pub fn has_left_work(&self, plan: Option<u64>, now: Duration) -> bool {
        let is_of_work = |name: &str| name.is_empty() || name.starts_with(SHARD);
        let mut leases = self.leases.iter().filter(|(name, _)| is_of_work(name));
        leases.any(|(_, seen)| {
            let Some(holder) = seen.candidate.holder(now) else {
                return false;
            };
            // Nothing is known of a holder that is no replica.
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

impl<L: StoredLease> SeenLease<L> {
    fn see(&mut self, live: Option<L>, now: Duration) {
        self.candidate.observe(live.as_ref().map(StoredLease::record), now);
        if let Some(live) = &live {
            let before = std::mem::replace(&mut self.state, live.replica());
            // A replica that has worked by a plan never works by none again, and may still write by it: the Lease was
            // edited.
            if self.state.plan == 0 {
                (self.state.plan, self.state.digest) = (before.plan, before.digest);
            }
        }
        self.live = live;
    }
}
