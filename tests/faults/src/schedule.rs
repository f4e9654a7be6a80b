//! Schedules: the faults of a run and their times, drawn from a seed. `world` injects them.

use std::fmt;

use fastrand::Rng;
use pilothouse_core::text::depth::MAX_DEPTH;
use serde::{Deserialize, Serialize};

use pilothouse_core::diff::canonical::DESIRED_ANNOTATION;
use serde_json::{Value, json};

/// The most faults of one schedule.
const MOST: usize = 6;

/// The greatest latency of a request and of a watch's event, in milliseconds.
const GREATEST_LATENCY: u64 = 400;

/// The most requests of a successor's start before which a late write is committed. Starts make about so many.
const START_REQUESTS: usize = 60;

/// Levels of objects that nest: one more than hosts read, more than their parser reads, and as many as the simulated cluster
/// takes without running out of stack.
const LEVELS: [usize; 3] = [MAX_DEPTH + 1, 200, 500];

/// Faults by the number of the host's write with which they begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Seed of everything else that is random in the run.
    pub seed: u64,
    /// The faults.
    pub strikes: Vec<Strike>,
}

/// A fault and its moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Strike {
    /// Its place among the faults that were drawn, by which `--keep` names it.
    pub number: usize,
    /// Number of the hosts' write at which it begins, counted from 0 over all of them.
    pub at: usize,
    /// Type of the fault.
    pub fault: Fault,
}

/// Before or after the server has carried out a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
    /// The write is not carried out, or only later.
    Before,
    /// The write is carried out, but the host gets no response.
    After,
}

/// Type of a fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    /// Writes take place, and their responses are lost.
    LostResponses { times: u32 },
    /// Connections break before anything takes place.
    Refused { times: u32 },
    /// The server answers with an error.
    Failing {
        code: u16,
        retry_after: Option<u32>,
        times: u32,
    },
    /// Writes meet a conflict.
    Conflicts { times: u32 },
    /// Requests are slow.
    Slow { seconds: u64, times: u32 },
    /// From here on requests, watch events and calls of guests take up to so long.
    Latency { milliseconds: u64 },
    /// Watches end, and are told 410 when they begin again.
    Gone { times: u32 },
    /// Watches end, and end again after so many events.
    Cut { after: u32, times: u32 },
    /// Watches end, and the next ones stay open and say nothing.
    Silent { times: u32 },
    /// Watches end, and lists and watches show an older state.
    Stale { changes: u64, times: u32 },
    /// The history is forgotten, watches end, and lists come in pages and expire between them.
    Compacted { pages: usize },
    /// A host is killed with a write in its hands, and another one is started.
    Killed { moment: Moment, again: u64 },
    /// A host is killed while a write is under way, which is carried out when its successor has made so many requests.
    LateWrite { requests: usize, again: u64 },
    /// A host is stopped as by SIGSTOP with a write in its hands, and continued later.
    Stopped {
        moment: Moment,
        seconds: u64,
        /// Starts another host meanwhile; the stopped one ends in order some time after it was continued.
        replaced: bool,
    },
    /// Another host is started, and the old one ends in order so many seconds later.
    Upgraded { overlap: u64 },
    /// So many hosts run all the time.
    Crowd { hosts: usize },
    /// The hosts' wall clock jumps by so many seconds.
    Clock { seconds: i64 },
    /// Another user deletes a child.
    Deleted,
    /// Another user deletes a child and creates another object of its name, while the watch of its kind is silent; it
    /// is deleted again after so many seconds.
    Recreated { seconds: u64 },
    /// Another user adds an annotation, a label and a finalizer to a child, and removes them again.
    Marked { seconds: u64 },
    /// A tenant with rights in one namespace creates objects there that pretend to belong to others.
    Forged { seconds: u64 },
    /// Objects of a tenant with rights in one namespace nest so many levels deep.
    Nested { levels: usize, seconds: u64 },
    /// A tenant with rights in one namespace creates primaries there that trap or fail, and edits each so often.
    Trapping { objects: usize, edits: usize, seconds: u64 },
    /// A webhook of one namespace denies what the hosts write there, and asks them to wait for years.
    RetryAfter {
        code: u16,
        /// Edits the waiting object when nothing denies it any more.
        edited: bool,
        seconds: u64,
    },
    /// A mutating webhook of others changes what hosts write of one kind.
    Rewritten { part: Part, seconds: u64 },
    /// Another user applies a child under the host's field manager.
    Impersonated,
    /// Another user changes a child so that the host's next apply is invalid.
    Intruded,
}

/// The names by which `--faults` picks faults.
pub const NAMES: [&str; 27] = [
    "lost-responses",
    "refused",
    "failing",
    "conflicts",
    "slow",
    "latency",
    "gone",
    "cut",
    "silent",
    "stale",
    "compacted",
    "killed",
    "late-write",
    "stopped",
    "upgraded",
    "crowd",
    "clock",
    "deleted",
    "recreated",
    "marked",
    "forged",
    "nested",
    "trapping",
    "retry-after",
    "rewritten",
    "impersonated",
    "intruded",
];

impl Fault {
    /// Its name for `--faults`.
    pub fn name(&self) -> &'static str {
        let index = match self {
            Self::LostResponses { .. } => 0,
            Self::Refused { .. } => 1,
            Self::Failing { .. } => 2,
            Self::Conflicts { .. } => 3,
            Self::Slow { .. } => 4,
            Self::Latency { .. } => 5,
            Self::Gone { .. } => 6,
            Self::Cut { .. } => 7,
            Self::Silent { .. } => 8,
            Self::Stale { .. } => 9,
            Self::Compacted { .. } => 10,
            Self::Killed { .. } => 11,
            Self::LateWrite { .. } => 12,
            Self::Stopped { .. } => 13,
            Self::Upgraded { .. } => 14,
            Self::Crowd { .. } => 15,
            Self::Clock { .. } => 16,
            Self::Deleted => 17,
            Self::Recreated { .. } => 18,
            Self::Marked { .. } => 19,
            Self::Forged { .. } => 20,
            Self::Nested { .. } => 21,
            Self::Trapping { .. } => 22,
            Self::RetryAfter { .. } => 23,
            Self::Rewritten { .. } => 24,
            Self::Impersonated => 25,
            Self::Intruded => 26,
        };
        NAMES[index]
    }

    /// Returns `true` if everything happens in the order in which it was begun: hosts learn of changes in the order in
    /// which they were made, whatever their kinds, and no write is carried out after a later one.
    pub fn keeps_order(&self) -> bool {
        matches!(
            self,
            Self::LostResponses { .. }
                | Self::Conflicts { .. }
                | Self::Killed { .. }
                | Self::Upgraded { .. }
                | Self::Crowd { .. }
                | Self::Clock { .. }
                | Self::Marked { .. }
                | Self::Forged { .. }
                | Self::Nested { .. }
                | Self::Trapping { .. }
                | Self::RetryAfter { .. }
                | Self::Impersonated
                | Self::Intruded
        )
    }

    /// Returns `true` if other users change values of children.
    pub fn changes_values(&self) -> bool {
        matches!(self, Self::Rewritten { .. } | Self::Impersonated | Self::Intruded)
    }

    /// Tells whether a webhook strips owner references.
    pub fn strips_owners(&self) -> bool {
        matches!(self, Self::Rewritten { part: Part::Owner, .. })
    }

    /// Returns `true` if it is a tenant's doing, which concerns nobody else.
    pub fn is_of_tenant(&self) -> bool {
        matches!(
            self,
            Self::Forged { .. } | Self::Nested { .. } | Self::Trapping { .. } | Self::RetryAfter { .. }
        )
    }

    fn draw(index: usize, rng: &mut Rng) -> Self {
        let times = rng.u32(1..=6);
        let seconds = [1, 5, 30, 200][rng.usize(..4)];
        let moment = if rng.bool() { Moment::Before } else { Moment::After };
        match NAMES[index] {
            "lost-responses" => Self::LostResponses { times },
            "refused" => Self::Refused { times },
            "failing" => Self::Failing {
                code: [429, 500, 503, 504][rng.usize(..4)],
                retry_after: rng.bool().then(|| rng.u32(1..=20)),
                times,
            },
            "conflicts" => Self::Conflicts { times },
            "slow" => Self::Slow {
                seconds: rng.u64(1..=8),
                times,
            },
            "latency" => Self::Latency {
                milliseconds: rng.u64(1..=GREATEST_LATENCY),
            },
            "gone" => Self::Gone { times },
            "cut" => Self::Cut {
                after: rng.u32(0..3),
                times,
            },
            "silent" => Self::Silent { times },
            "stale" => Self::Stale {
                changes: rng.u64(1..=6),
                times,
            },
            "compacted" => Self::Compacted {
                pages: rng.usize(1..=3),
            },
            "killed" => Self::Killed {
                moment,
                again: rng.u64(0..=20),
            },
            "late-write" => Self::LateWrite {
                requests: rng.usize(0..=START_REQUESTS),
                again: rng.u64(0..=5),
            },
            "stopped" => Self::Stopped {
                moment,
                seconds,
                replaced: rng.bool(),
            },
            "upgraded" => Self::Upgraded {
                overlap: rng.u64(0..=15),
            },
            "crowd" => Self::Crowd {
                hosts: rng.usize(2..=3),
            },
            "clock" => Self::Clock {
                seconds: if rng.bool() { 3600 } else { -3600 },
            },
            "deleted" => Self::Deleted,
            "recreated" => Self::Recreated { seconds },
            "marked" => Self::Marked { seconds },
            "nested" => Self::Nested {
                levels: LEVELS[rng.usize(..LEVELS.len())],
                seconds,
            },
            "trapping" => Self::Trapping {
                objects: rng.usize(1..=4),
                edits: rng.usize(0..=8),
                seconds,
            },
            "retry-after" => Self::RetryAfter {
                code: [400, 403, 429, 500, 503][rng.usize(..5)],
                edited: rng.bool(),
                seconds,
            },
            "rewritten" => Self::Rewritten {
                part: Part::ALL[rng.usize(..Part::ALL.len())],
                seconds,
            },
            "impersonated" => Self::Impersonated,
            "intruded" => Self::Intruded,
            _ => Self::Forged { seconds },
        }
    }
}

impl Schedule {
    /// Draws a schedule for a story in which hosts make so many writes, of the faults that are wanted.
    pub fn draw(seed: u64, writes: usize, is_wanted: impl Fn(&str) -> bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut strikes = Vec::new();
        for number in 0..rng.usize(1..=MOST) {
            let fault = Fault::draw(rng.usize(..NAMES.len()), &mut rng);
            let at = match fault {
                Fault::Crowd { .. } => 0,
                _ => rng.usize(..=writes),
            };
            strikes.push(Strike { number, at, fault });
        }
        strikes.retain(|strike| is_wanted(strike.fault.name()));
        Self { seed, strikes }
    }

    /// The same with these faults only.
    #[must_use]
    pub fn keep(&self, numbers: &[usize]) -> Self {
        let kept = self.strikes.iter().filter(|strike| numbers.contains(&strike.number));
        Self {
            seed: self.seed,
            strikes: kept.cloned().collect(),
        }
    }

    /// The numbers of its faults.
    pub fn numbers(&self) -> Vec<usize> {
        self.strikes.iter().map(|strike| strike.number).collect()
    }

    /// Count of the faults that delay a write, or keep a host from seeing that its objects are no longer wanted.
    pub fn late(&self) -> usize {
        let is_late = |fault: &Fault| {
            matches!(
                fault,
                Fault::LateWrite { .. }
                    | Fault::Stopped { .. }
                    | Fault::Slow { .. }
                    | Fault::Latency { .. }
                    | Fault::Gone { .. }
                    | Fault::Cut { .. }
                    | Fault::Silent { .. }
                    | Fault::Stale { .. }
                    | Fault::Compacted { .. }
            )
        };
        self.strikes.iter().filter(|strike| is_late(&strike.fault)).count()
    }

    /// Returns `true` if all faults of the hosts come from tenants.
    pub fn is_of_tenants(&self) -> bool {
        self.strikes.iter().all(|strike| strike.fault.is_of_tenant())
    }

    /// Tells whether a webhook strips owner references.
    pub fn strips_owners(&self) -> bool {
        self.strikes.iter().any(|strike| strike.fault.strips_owners())
    }

    /// Count of the hosts that run from the beginning.
    pub fn hosts(&self) -> usize {
        let crowds = self.strikes.iter().filter_map(|strike| match strike.fault {
            Fault::Crowd { hosts } => Some(hosts),
            _ => None,
        });
        crowds.max().unwrap_or(1)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Strike { number, at, fault } in &self.strikes {
            writeln!(formatter, "  {number}: from write {at} on: {fault:?}")?;
        }
        Ok(())
    }
}

/// Parts of an object that a mutating webhook changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// A value that the plugin desires.
    Value,
    /// The host's annotation is stripped.
    Digest,
    /// The owner references are stripped.
    Owner,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Value, Self::Digest, Self::Owner];

    pub fn change(self, object: &mut Value) {
        let Some(metadata) = object["metadata"].as_object_mut() else {
            return;
        };
        match self {
            Self::Digest => {
                let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
                annotations.map(|annotations| annotations.remove(DESIRED_ANNOTATION));
            }
            Self::Owner => _ = metadata.remove("ownerReferences"),
            Self::Value => change_value(object),
        }
    }
}

/// Changes one value that the owner desires, where the kind has one that nothing else depends on.
pub(crate) fn change_value(object: &mut Value) {
    let fields = owners_entry(object).map(|entry| &entry["fieldsV1"]["f:data"]);
    let key = fields
        .and_then(Value::as_object)
        .and_then(|fields| fields.keys().next());
    let key = key.and_then(|key| key.strip_prefix("f:")).map(str::to_owned);
    if object["spec"]["replicas"].is_u64() {
        object["spec"]["replicas"] = json!(0);
    }
    if let Some(value) = key.and_then(|key| object.get_mut("data")?.get_mut(key)) {
        *value = json!("cmV3cml0dGVu");
    }
}

/// The entry in managedFields of the plugin that owns an object; what others contribute has another one.
pub(crate) fn owners_entry(object: &Value) -> Option<&Value> {
    let mut entries = object["metadata"]["managedFields"].as_array()?.iter();
    entries.find(|entry| {
        let manager = entry["manager"].as_str().and_then(|it| it.strip_prefix("pilothouse/"));
        manager.is_some_and(|plugin| !plugin.contains('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_one_schedule_and_narrowing_it_moves_nothing() {
        let whole = Schedule::draw(7, 30, |_| true);
        assert_eq!(whole, Schedule::draw(7, 30, |_| true));
        assert_ne!(whole.strikes, Schedule::draw(8, 30, |_| true).strikes);
        for strike in &whole.strikes {
            let narrowed = Schedule::draw(7, 30, |name| name == strike.fault.name());
            assert!(narrowed.strikes.contains(strike), "{narrowed} of {whole}");
            assert_eq!(whole.keep(&[strike.number]).strikes, std::slice::from_ref(strike));
        }
    }

    #[test]
    fn every_fault_is_drawn_and_has_its_own_name() {
        let mut rng = Rng::with_seed(1);
        for (index, name) in NAMES.iter().enumerate() {
            assert_eq!(Fault::draw(index, &mut rng).name(), *name);
        }
    }
}
