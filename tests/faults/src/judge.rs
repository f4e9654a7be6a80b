//! Oracles: compare a run under faults with the run without.

use std::collections::{BTreeMap, BTreeSet};

use pilothouse_runtime::Depth;
use pilothouse_simulator::{Entry, Record, Simulator};
use pilothouse_testkit::host::Pause;
use pilothouse_testkit::requests::TEST_ACCOUNT;
use pilothouse_testkit::scenario::Scenario;
use serde::{Deserialize, Serialize};

use crate::copies::Original;
use crate::names::{NEIGHBOUR, TENANT, is_host, place};
use crate::snapshot::{Ends, Snapshot};
use crate::{copies, snapshot};

/// The most differences of one kind that are told.
const SHOWN: usize = 12;

/// Writes that a fault may cost beyond those of the run without faults, for each request that it affects.
const WRITES_PER_FAULT: usize = 12;

/// Maximum count of each host's writes of an object's status while one of several hosts does not see what the others
/// see: the hot-loop limiter lets the first ten pass, and then slows them to one in half a minute. Where a Plugin
/// changes, hosts with two versions of it revert each other's objects as often.
const WRITES_PER_DISPUTE: usize = 20;

/// Calls of guests that an object of a tenant may cost, or an edit of one: it fails, and is tried ever more seldom.
const CALLS_PER_ACT: usize = 16;

/// Resources that a host reads at intervals: to check its webhook configurations, or, where it serves none, to find
/// left-over ones that prevent writes of its objects.
const LOOKED_AFTER: [&str; 3] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "customresourcedefinitions",
];

/// Maximum count of objects that a host that lags may recreate although they are no longer wanted, until it notices.
const BEHIND: usize = 3;

/// Facts of the run without faults, for the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The hosts' writes.
    pub writes: usize,
    /// Count of guest calls.
    pub calls: usize,
    /// The same by number: verb, place and status.
    pub written: Vec<String>,
    /// The state when all steps are taken, and when the scenario has cleaned up.
    pub told: Snapshot,
    pub cleaned: Snapshot,
    /// Count of each object's deletions.
    pub ends: Ends,
    /// Count of the times a host removed each object's owner.
    pub disowned: BTreeMap<String, usize>,
    /// Objects that only hosts have written.
    pub children: BTreeSet<String>,
    /// Objects that a tenant can copy.
    pub originals: Vec<Original>,
    /// Failing primaries of each lane at the end.
    pub failing: BTreeMap<String, usize>,
}

impl Facts {
    /// Count of the objects whose status a host writes.
    fn statuses(&self) -> usize {
        let statuses = self.written.iter().filter_map(|write| {
            let (written, _) = write.split_once(" -> ")?;
            written.contains("/status ").then_some(written)
        });
        statuses.collect::<BTreeSet<_>>().len()
    }
}

/// Judges one run.
#[derive(Debug, Default)]
pub struct Judge {
    /// None in the run without faults.
    expected: Option<Facts>,
    /// Set if hosts check webhooks, which they do all the time.
    has_webhooks: bool,
    /// Set if Plugins change in the scenario.
    has_versions: bool,
    /// Facts of this run.
    pub found: Facts,
    /// Errors.
    pub problems: Vec<String>,
}

impl Judge {
    pub fn new(expected: Option<Facts>, scenario: &Scenario) -> Self {
        Self {
            expected,
            has_webhooks: scenario.serves_webhooks(),
            has_versions: scenario.resources,
            ..Self::default()
        }
    }

    /// Returns `true` if the cluster has reached the state that it reaches without faults.
    pub fn is_as_expected(&self, at: Pause, simulator: &Simulator) -> bool {
        let expected = self.expected.as_ref().map(|expected| state(expected, at));
        expected.is_none_or(|expected| *expected == snapshot::take(simulator.objects(), &simulator.journal()))
    }

    /// Compares the state.
    pub fn look(&mut self, at: Pause, simulator: &Simulator) {
        let state = snapshot::take(simulator.objects(), &simulator.journal());
        if let Some(expected) = &self.expected {
            let when = match at {
                Pause::Told => "at the end of the story",
                Pause::Cleaned => "after the story's objects were deleted",
            };
            let expected = self::state(expected, at);
            let differences = snapshot::differences(&state, expected);
            self.tell(&format!("the end state differs {when}"), differences);
        }
        match at {
            Pause::Told => self.found.told = state,
            Pause::Cleaned => self.found.cleaned = state,
        }
    }

    /// Checks that no requests are sent any more; watches are renewed all the time.
    pub fn hear(&mut self, requests: &[Record]) {
        let asked = requests
            .iter()
            .filter(|it| is_host(&it.user_agent) && it.verb != "watch");
        let looks_after = |it: &&Record| {
            let is_secret = self.has_webhooks && it.resource == "secrets";
            // How a kind's lists merge is asked once per start, when an object of it is compared for the first time.
            let is_schema = it.uri.starts_with("/openapi/v3/");
            !it.write && (is_secret || is_schema || LOOKED_AFTER.iter().any(|plural| it.resource == *plural))
        };
        let asked = asked.filter(|it| !looks_after(it));
        let asked = asked
            .map(|it| format!("{} {} -> {}", it.verb, it.uri, it.status))
            .collect();
        self.tell("requests after everything has converged", asked);
    }

    /// Checks that objects left in the queues are left in the run without faults too.
    pub fn weigh(&mut self, at: Pause, depths: &[(String, Depth)]) {
        let mut failing = BTreeMap::new();
        let mut waiting = Vec::new();
        for (lane, depth) in depths {
            let Depth {
                ready,
                running,
                delayed: _,
                unseen,
                failing: failed,
                stalled: _,
                oldest: _,
            } = *depth;
            if ready + running + unseen > 0 {
                waiting.push(format!("{lane}: {depth:?}"));
            }
            let most = failing.entry(lane.clone()).or_insert(0);
            *most = failed.max(*most);
        }
        self.tell("something waits without a reason", waiting);
        if at == Pause::Told {
            // With webhooks, whether an object was judged before or is judged by the lane is a matter of time.
            if let Some(expected) = &self.expected
                && expected.failing != failing
                && !self.has_webhooks
            {
                let line = format!("{failing:?}, and {:?} without faults", expected.failing);
                self.tell("primaries are failing", vec![line]);
            }
            self.found.failing = failing;
        }
    }

    /// Judges all that has happened, once it is over.
    ///
    /// A host that is behind, because it was stopped or another one was faster, may make anew what is not desired any more;
    /// it is then deleted once more. So what goes in the run without faults may go more often, and nothing else may. Which of
    /// the host and the garbage collector deletes what a late write made anew is a matter of time.
    pub fn conclude(
        &mut self,
        simulator: &Simulator,
        hosts: usize,
        late: usize,
        deleted: &BTreeMap<String, usize>,
        acts: usize,
        strips_owners: bool,
    ) {
        let (journal, requests) = (simulator.journal(), simulator.requests().all());
        let by_host = |entry: &Entry| is_host(&entry.author.user_agent);
        let writes: Vec<&Record> = requests
            .iter()
            .filter(|it| it.write && is_host(&it.user_agent))
            .collect();
        self.found.writes = writes.len();
        self.found.written = writes.iter().map(|it| written(it)).collect();
        self.found.ends = snapshot::ends(&journal, by_host);
        self.found.disowned = disowned(&journal, by_host);
        self.found.children = children(&journal, by_host);
        self.found.originals = copies::originals(&journal, by_host);
        let lost = lost_finalizers(&journal, by_host);
        self.tell("a host took a finalizer off that was not its own", lost);
        let Some(expected) = self.expected.clone() else { return };
        let injected = usize::try_from(simulator.faults().injected()).unwrap_or(usize::MAX);
        let others = deleted.values().sum::<usize>() + acts;
        let disputed = if hosts > 1 { late * expected.statuses() } else { 0 };
        let each = expected.writes + WRITES_PER_FAULT * (1 + injected + others) + WRITES_PER_DISPUTE * disputed;
        let allowed = each * hosts;
        if self.found.writes > allowed {
            let line = format!(
                "{} writes, {} without faults, {allowed} allowed for {hosts} hosts, {injected} faults, {others} deletions and acts \
                 of a tenant, and {disputed} statuses in dispute",
                self.found.writes, expected.writes
            );
            self.tell("too many writes", vec![line]);
        }
        let behind = if self.has_versions { WRITES_PER_DISPUTE } else { BEHIND };
        let more = |what: &str, found: &BTreeMap<String, usize>, usually: &BTreeMap<String, usize>| {
            let of = |all: &BTreeMap<String, usize>, place: &str| all.get(place).copied().unwrap_or_default();
            let mut lines = Vec::new();
            for (place, count) in found {
                let usual = of(usually, place);
                let usually_goes = usual > 0 || late > 0 && of(&expected.ends.went, place) > 0;
                let again = if usually_goes { behind * (hosts - 1 + late) } else { 0 };
                let allowed = usual + again + of(deleted, place);
                if *count > allowed && !is_tenants(place) {
                    lines.push(format!("{place} {what} {count} times, {allowed} would be right"));
                }
            }
            lines
        };
        let went = more("went", &self.found.ends.went, &expected.ends.went);
        self.tell("something was deleted that the scenario did not delete", went);
        if strips_owners {
            return;
        }
        let asked = more("was deleted by hosts", &self.found.ends.asked, &expected.ends.asked);
        self.tell("a host deleted what it does not delete without faults", asked);
        let disowned = more("lost its owner", &self.found.disowned, &expected.disowned);
        self.tell("a host gave a child up that was its own", disowned);
    }

    /// Judges how often guests were called where nothing happens but what tenants do: what fails is called ever more seldom.
    pub fn count_calls(&mut self, calls: usize, acts: usize, is_of_tenants: bool) {
        self.found.calls = calls;
        let Some(expected) = self.expected.as_ref().filter(|_| is_of_tenants) else {
            return;
        };
        let allowed = expected.calls + CALLS_PER_ACT * (1 + acts);
        if calls > allowed {
            let usual = expected.calls;
            let line = format!("{calls} calls, {usual} without faults, {allowed} allowed for {acts} acts of a tenant");
            self.tell("too many calls of guests", vec![line]);
        }
    }

    fn tell(&mut self, what: &str, mut lines: Vec<String>) {
        if lines.is_empty() {
            return;
        }
        let more = lines.len().saturating_sub(SHOWN);
        lines.truncate(SHOWN);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        self.problems.push(format!("{what}:\n    {}", lines.join("\n    ")));
    }
}

fn is_tenants(place: &str) -> bool {
    [TENANT, NEIGHBOUR]
        .iter()
        .any(|namespace| place.contains(&format!(" {namespace}/")))
}

fn state(facts: &Facts, at: Pause) -> &Snapshot {
    match at {
        Pause::Told => &facts.told,
        Pause::Cleaned => &facts.cleaned,
    }
}

/// A write for people.
pub fn written(record: &Record) -> String {
    let part = if record.subresource.is_empty() {
        record.resource.clone()
    } else {
        format!("{}/{}", record.resource, record.subresource)
    };
    let place = place(
        &part,
        record.namespace.as_deref().unwrap_or_default(),
        record.name.as_deref().unwrap_or_default(),
    );
    format!("{} {place} -> {}", record.verb, record.status)
}

fn place_of(entry: &Entry) -> String {
    let metadata = &entry.after["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default();
    place(&entry.resource, text("namespace"), text("name"))
}

/// Finalizers that a host removed and no host ever set.
fn lost_finalizers(journal: &[Entry], by_host: impl Fn(&Entry) -> bool) -> Vec<String> {
    let of = |object: &serde_json::Value| -> BTreeSet<String> {
        let all = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        all.filter_map(|it| it.as_str().map(str::to_owned)).collect()
    };
    let mut own = BTreeSet::new();
    let mut lost = Vec::new();
    for entry in journal.iter().filter(|entry| by_host(entry)) {
        let before = entry.before.as_ref().map(|before| of(before)).unwrap_or_default();
        let after = of(&entry.after);
        own.extend(after.difference(&before).cloned());
        for finalizer in before.difference(&after) {
            if !own.contains(finalizer) && !is_known(finalizer) {
                lost.push(format!("{}: {finalizer}", place_of(entry)));
            }
        }
    }
    lost
}

/// Finalizers of plugins, which a scenario may have an object begin with.
fn is_known(finalizer: &str) -> bool {
    finalizer.starts_with("wishes.test.dev/")
}

/// Count of the writes of hosts that have removed an object's owner without deleting the object.
fn disowned(journal: &[Entry], by_host: impl Fn(&Entry) -> bool) -> BTreeMap<String, usize> {
    let mut disowned = BTreeMap::new();
    for entry in journal.iter().filter(|entry| by_host(entry) && !entry.deleted) {
        let Some(before) = &entry.before else { continue };
        // Another owner of the same name may have taken it over.
        if !owners(before).is_empty() && owners(&entry.after).is_empty() {
            *disowned.entry(place_of(entry)).or_insert(0) += 1;
        }
    }
    disowned
}

/// The uids of who owns an object.
fn owners(object: &serde_json::Value) -> BTreeSet<String> {
    let metadata = &object["metadata"];
    let references = metadata["ownerReferences"].as_array().into_iter().flatten();
    let uids = references.filter_map(|it| it["uid"].as_str());
    let label = metadata["labels"]["pilothouse.dev/owner"].as_str();
    uids.chain(label).map(str::to_owned).collect()
}

/// Objects that only hosts have written, besides the cluster's own controllers.
fn children(journal: &[Entry], by_host: impl Fn(&Entry) -> bool) -> BTreeSet<String> {
    let mut children = BTreeSet::new();
    let mut touched = BTreeSet::new();
    for entry in journal {
        if entry.author.user_agent == TEST_ACCOUNT {
            touched.insert(place_of(entry));
        } else if by_host(entry) && entry.before.is_none() {
            children.insert(place_of(entry));
        }
    }
    children.retain(|place| !touched.contains(place));
    children
}
