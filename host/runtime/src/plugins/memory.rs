//! Owns what a plugin's resource remembers of its versions: the kinds that they own and contribute to, and the finalizers
//! that they set. It is written before anything is made, and shortened when nothing is left of what is not declared any
//! more. A plugin of the command line has no resource, and remembers nothing.
//!
//! Two hosts may run two versions of the plugin at the same time. So the memory is what the resource says, written only if
//! the resource has not changed since, and a version that runs sees to it that what it makes stays remembered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::own::{KINDS_MANAGER, OwnResource};
use pilothouse_cluster::watch::is_before;
use pilothouse_core::Kind;
use pilothouse_core::former::{Made, Memory};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Fleet;
use super::finish::Own;
use super::life::{Life, Running};
use super::prepare::former_lanes;
use crate::former::GivenUp;
use crate::lane::{Lane, Mode};

/// How often it is looked whether anything is left of earlier versions.
const LOOK: Duration = Duration::from_secs(10);

/// How long nothing must have been left before it is forgotten: another host may be about to make more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(20);

/// What was written last.
#[derive(Default)]
pub struct Written(Mutex<Option<Entry>>);

struct Entry {
    /// Of the resource with this uid.
    uid: Arc<str>,
    /// In which version the resource has it; none if its server does not take it.
    version: Option<String>,
    memory: Memory,
}

impl Written {
    /// What the resource remembers. What was written last may not have been seen yet.
    fn known(&self, live: &OwnResource) -> Memory {
        match &*self.0.lock() {
            Some(entry) if entry.uid == live.uid && entry.is_newer_than(live) => entry.memory.clone(),
            _ => read(&live.status),
        }
    }
}

impl Entry {
    fn is_newer_than(&self, live: &OwnResource) -> bool {
        self.version
            .as_deref()
            .is_none_or(|version| is_before(&live.resource_version, version))
    }
}

/// When nothing was first seen to be left of something.
type Cleared = HashMap<(Kind, Kind, Option<Made>), Instant>;

impl Life {
    /// What the plugin's versions have made, or may have.
    pub fn known(&self) -> Memory {
        let own = self.own.as_ref();
        own.map(|own| self.written.known(&own.live.borrow())).unwrap_or_default()
    }

    /// Sees to it that what these lanes make is remembered, before they take over. In preview nothing is made.
    pub async fn remember(&self, lanes: &[Arc<Lane>]) {
        self.until_done(|| self.write(made_by(&self.known(), lanes))).await;
    }

    /// Looks after the memory of a version that runs; ends when another memory has to be followed.
    pub async fn mind_memory(&self, running: &Running) {
        let Some(own) = &self.own else {
            return std::future::pending().await;
        };
        let mut live = own.live.clone();
        let (mut cleared, mut asked) = (Cleared::new(), GivenUp::new());
        let mut next_look = Instant::now() + LOOK;
        loop {
            live.borrow_and_update();
            let known = self.known();
            // Another host may have forgotten what this version makes.
            let needed = made_by(&known, &running.lanes);
            if needed != known {
                self.write_or_say(needed).await;
            } else if !is_followed(&known, &running.lanes) {
                return;
            }
            let looks = running.lanes.iter().any(|lane| lane.is_former || !lane.former.is_empty());
            let gone = tokio::select! {
                changed = live.changed() => changed.is_err(),
                () = tokio::time::sleep_until(next_look), if looks => {
                    next_look = Instant::now() + LOOK;
                    // In a box of its own: every plugin that runs has room for this, and few ever come here.
                    let left = Box::pin(self.what_is_left(&running.lanes, &mut cleared, &mut asked)).await;
                    if left != self.known() {
                        self.write_or_say(left).await;
                    }
                    false
                }
            };
            if gone {
                return std::future::pending().await;
            }
        }
    }

    /// What there is to remember beside what these lanes make.
    async fn what_is_left(&self, lanes: &[Arc<Lane>], cleared: &mut Cleared, asked: &mut GivenUp) -> Memory {
        let hub = &self.fleet.hub;
        let mut known = self.known();
        let mut is_over = |lane: &Lane, kind: &Kind, made, is_cleared: bool| {
            let what = (lane.grants.primary().clone(), kind.clone(), made);
            if !is_cleared {
                cleared.remove(&what);
                return false;
            }
            let is_over = cleared.entry(what).or_insert_with(Instant::now).elapsed() >= FORGOTTEN_AFTER;
            if is_over {
                tracing::info!(lane = lane.title(), %kind, ?made, "nothing is left of what an earlier version of the plugin made");
            }
            is_over
        };
        for lane in lanes {
            hub.give_up(lane, asked);
            let primary = lane.grants.primary();
            if lane.is_former && hub.served.is_missing(primary) {
                if let Some(served) = self.served_elsewhere(primary).await {
                    known = known.primary_moved(primary, &served);
                    continue;
                }
            }
            for former in lane.former.iter() {
                let kind = &former.kind;
                let is_missing = hub.served.is_missing(kind);
                if is_missing && let Some(served) = self.served_elsewhere(kind).await {
                    known = known.moved(&lane.grants, kind, &served);
                    continue;
                }
                let is_gone = is_missing && self.is_served_nowhere(kind).await;
                for made in Made::ALL.into_iter().filter(|made| former.reach_of(*made).is_some()) {
                    if is_over(lane, kind, Some(made), is_gone || hub.is_cleared(lane, former, made)) {
                        known = known.forget(&lane.grants, kind, made);
                    }
                }
            }
            if let Some(finalizer) = lane.finalizer.as_ref().filter(|_| lane.is_former) {
                let is_gone = hub.served.is_missing(primary) && self.is_served_nowhere(primary).await;
                if is_over(lane, primary, None, is_gone || hub.is_released(lane)) {
                    known = known.forget_finalizer(primary, finalizer);
                }
            }
        }
        known
    }

    /// The version of a kind in which it is served, where its own is not.
    async fn served_elsewhere(&self, kind: &Kind) -> Option<Kind> {
        // What cannot be asked now is asked again.
        let served = self.fleet.watches.served_version(kind).await.ok().flatten();
        served.filter(|served| served != kind)
    }

    async fn is_served_nowhere(&self, kind: &Kind) -> bool {
        matches!(self.fleet.watches.served_version(kind).await, Ok(None))
    }

    /// Watches for what is remembered, and for nothing else of earlier versions.
    pub async fn follow_memory(&self, mut running: Running) -> Running {
        let Fleet { hub, watches, .. } = &*self.fleet;
        let known = self.known();
        let (mut lanes, formers): (Vec<_>, Vec<_>) = running.lanes.into_iter().partition(|lane| !lane.is_former);
        let mut left = formers;
        for wanted in former_lanes(&lanes, &known, hub) {
            let same = |lane: &Arc<Lane>| lane.grants.primary() == wanted.grants.primary();
            match left.iter().position(same) {
                Some(index) => {
                    let mut lane = left.swap_remove(index);
                    self.exchange(&mut lane, |lane| Lane {
                        finalizer: wanted.finalizer.clone(),
                        former: wanted.former.clone(),
                        ..lane.clone()
                    });
                    lanes.push(lane);
                }
                None => {
                    hub.put_lane(&wanted);
                    watches.add(&wanted);
                    lanes.push(wanted);
                }
            }
        }
        for lane in lanes.iter_mut().filter(|lane| !lane.is_former) {
            let former = known.former(&lane.grants);
            self.exchange(lane, |lane| Lane {
                former: former.into(),
                ..lane.clone()
            });
        }
        self.remove(&left).await;
        running.lanes = lanes;
        self.standing.set(|known| known.lanes.clone_from(&running.lanes));
        running
    }

    fn exchange(&self, lane: &mut Arc<Lane>, change: impl FnOnce(&Lane) -> Lane) {
        let other = Arc::new(change(lane));
        if *other.former == *lane.former && other.finalizer == lane.finalizer {
            return;
        }
        let Fleet { hub, watches, .. } = &*self.fleet;
        hub.exchange_lane(&other);
        watches.add(&other);
        watches.remove(lane);
        hub.push_all(&other);
        *lane = other;
    }

    async fn write_or_say(&self, memory: Memory) {
        if let Err(problem) = self.write(memory).await {
            tracing::debug!(plugin = &*self.identity.name, "{problem}; retrying");
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn write(&self, memory: Memory) -> Result<(), String> {
        let Some(own) = &self.own else { return Ok(()) };
        let live = own.live.borrow().clone();
        if memory == self.written.known(&live) {
            return Ok(());
        }
        let _turn = self.fleet.starting.acquire().await;
        let version = match self.send(own, &live, &memory).await {
            Ok(version) => version,
            Err(problem) => return Err(format!("cannot write to the Plugin's status what it makes: {problem}")),
        };
        *self.written.0.lock() = Some(Entry {
            uid: live.uid.clone(),
            version,
            memory,
        });
        Ok(())
    }

    /// Writes what is remembered; the answer is the version that has it, none if there is none that could.
    async fn send(&self, own: &Own, live: &OwnResource, memory: &Memory) -> Result<Option<String>, String> {
        let Memory {
            owned,
            contributed,
            finalizers,
        } = memory;
        let whole = json!({"ownedKinds": owned, "contributedKinds": contributed, "finalizers": finalizers});
        // What an older CRD has.
        let least = json!({"ownedKinds": owned});
        let mut refusal = None;
        for status in [whole, least] {
            let written = Box::pin(own.kind.apply_unchanged_status(live, &status, KINDS_MANAGER)).await;
            match written {
                Ok(resource) if refusal.is_none() => return Ok(Some(resource.resource_version)),
                Ok(_) => break,
                // There is nothing to remember of a resource that is gone.
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) if error.is_for_good() => refusal = Some(chain(&error)),
                Err(error) => return Err(chain(&error)),
            }
        }
        // A server that refuses it for good keeps no plugin from running.
        tracing::warn!(
            plugin = &*live.name,
            problem = refusal,
            "the Plugin's status cannot remember which kinds it owns; install the CRD of this host (--install-crds does so): \
             until then what a later version does not declare any more may stay"
        );
        Ok(None)
    }
}

/// A memory with what lanes make.
fn made_by(known: &Memory, lanes: &[Arc<Lane>]) -> Memory {
    let makes = lanes.iter().filter(|lane| lane.mode != Mode::Preview && !lane.is_former);
    known.and(makes.map(|lane| (&lane.grants, lane.finalizer.as_deref())))
}

/// Whether lanes watch for all that is remembered, and for nothing else of earlier versions.
fn is_followed(known: &Memory, lanes: &[Arc<Lane>]) -> bool {
    let own = lanes.iter().filter(|lane| !lane.is_former).map(|lane| &lane.grants);
    let left = known.without_controller(own);
    let formers = lanes.iter().filter(|lane| lane.is_former);
    let has_lane = |(primary, finalizer): &(Kind, Option<String>)| {
        let mut same = formers.clone();
        same.any(|lane| lane.grants.primary() == primary && lane.finalizer == *finalizer)
    };
    lanes.iter().all(|lane| *lane.former == *known.former(&lane.grants))
        && formers.clone().count() == left.len()
        && left.iter().all(has_lane)
}

/// What a status remembers. An entry that another version of the host wrote in another form is passed over.
fn read(status: &Value) -> Memory {
    Memory {
        owned: entries(&status["ownedKinds"]),
        contributed: entries(&status["contributedKinds"]),
        finalizers: entries(&status["finalizers"]),
    }
}

fn entries<T: DeserializeOwned>(list: &Value) -> Vec<T> {
    let entries = list.as_array().into_iter().flatten();
    entries.filter_map(|entry| T::deserialize(entry).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_cannot_be_read_does_not_hide_the_others() {
        let kind = |kind: &str| json!({"group": "", "version": "v1", "kind": kind});
        let status =
            json!({"ownedKinds": [{"primary": kind("P"), "kind": "A"}, {"primary": kind("P"), "kind": kind("B")}]});
        let known = read(&status);
        assert_eq!((known.owned.len(), &*known.owned[0].kind.kind), (1, "B"));
        assert_eq!(read(&Value::Null), Memory::default());
    }

    fn live(version: &str, kinds: &Value) -> OwnResource {
        OwnResource {
            name: "p".into(),
            uid: "u".into(),
            resource_version: version.to_owned(),
            generation: Some(1),
            created: String::new(),
            deleting: false,
            finalizers: Vec::new(),
            spec: Value::Null,
            status: json!({"ownedKinds": kinds}),
        }
    }

    #[test]
    fn what_another_host_wrote_after_us_counts_and_what_was_seen_before_does_not() {
        let kind = |kind: &str| json!({"group": "", "version": "v1", "kind": kind});
        let entry = |name: &str| json!([{"primary": kind("P"), "kind": kind(name)}]);
        let ours = read(&json!({"ownedKinds": entry("A")}));
        let written = Written::default();
        *written.0.lock() = Some(Entry {
            uid: "u".into(),
            version: Some("7".to_owned()),
            memory: ours.clone(),
        });
        assert_eq!(written.known(&live("6", &json!([]))), ours, "it is not seen yet");
        assert_eq!(written.known(&live("7", &entry("A"))), ours);
        assert_eq!(written.known(&live("8", &entry("B"))).owned[0].kind.kind, "B");
    }
}
