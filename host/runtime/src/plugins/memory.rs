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
use pilothouse_cluster::install::is_defined;
use pilothouse_cluster::own::{KINDS_MANAGER, OwnResource};
use pilothouse_cluster::watch::is_before;
use pilothouse_core::Kind;
use pilothouse_core::former::{Made, Memory};
use pilothouse_core::grants::Grants;
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

/// How long it is waited for the resource as another write has left it.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// What was written last, and what was seen of what it is about.
#[derive(Default)]
pub struct Written {
    last: Mutex<Option<Entry>>,
    seen: Mutex<Seen>,
}

/// What the last look has seen.
#[derive(Default)]
struct Seen {
    cleared: Cleared,
    asked: GivenUp,
    looked: Option<Instant>,
}

struct Entry {
    /// Of the resource with this uid.
    uid: Arc<str>,
    /// In which version the resource has it; none if its server does not take it.
    version: Option<String>,
    memory: Memory,
}

impl Written {
    fn next_look(&self) -> Instant {
        *self.seen.lock().looked.get_or_insert_with(Instant::now) + LOOK
    }

    /// What the resource remembers. What was written last may not have been seen yet.
    fn known(&self, live: &OwnResource) -> Memory {
        match &*self.last.lock() {
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

/// Why nothing was written.
enum SendError {
    /// The resource is not as it was seen.
    Outdated,
    /// The request failed.
    Failed(String),
}

/// What has become of something that is remembered.
enum News {
    /// Nothing is left of it.
    Gone(Grants, Kind, Made),
    /// It is served in another version.
    Moved(Grants, Kind, Kind),
    /// Its primaries are.
    PrimaryMoved(Kind, Kind),
    /// No primary has the finalizer any more.
    Released(Kind, String),
}

impl News {
    fn apply(&self, known: &Memory) -> Memory {
        match self {
            Self::Gone(grants, kind, made) => known.forget(grants, kind, *made),
            Self::Moved(grants, from, to) => known.moved(grants, from, to),
            Self::PrimaryMoved(from, to) => known.primary_moved(from, to),
            Self::Released(primary, finalizer) => known.forget_finalizer(primary, finalizer),
        }
    }
}

/// When nothing was first seen to be left of something.
type Cleared = HashMap<(Kind, Kind, Option<Made>), Instant>;

impl Life {
    /// What the plugin's versions have made, or may have.
    pub fn known(&self) -> Memory {
        let own = self.own.as_ref();
        own.map(|own| self.written.known(&own.live.borrow()))
            .unwrap_or_default()
    }

    /// Sees to it that what these lanes make is remembered, before they take over. In preview nothing is made.
    pub async fn remember(&self, lanes: &[Arc<Lane>]) {
        self.until_done(|| self.write(|known| made_by(known, lanes))).await;
    }

    /// Looks after the memory of a version that runs; ends when another memory has to be followed.
    pub async fn mind_memory(&self, running: &Running) {
        let Some(own) = &self.own else {
            return std::future::pending().await;
        };
        let mut live = own.live.clone();
        loop {
            live.borrow_and_update();
            let known = self.known();
            // Another host may have forgotten what this version makes.
            if !is_remembered(&known, &running.lanes) {
                self.write_or_say(|known| made_by(known, &running.lanes)).await;
            } else if !is_followed(&known, &running.lanes) {
                return;
            }
            let looks = running
                .lanes
                .iter()
                .any(|lane| lane.is_former || !lane.former.is_empty());
            let gone = tokio::select! {
                changed = live.changed() => changed.is_err(),
                () = tokio::time::sleep_until(self.written.next_look()), if looks => {
                    // In a box of its own: every plugin that runs has room for this, and few ever come here.
                    let changes = Box::pin(self.look(&running.lanes)).await;
                    if !changes.is_empty() {
                        self.write_or_say(|known| changes.iter().fold(known.clone(), |known, change| change.apply(&known))).await;
                    }
                    false
                }
            };
            if gone {
                return std::future::pending().await;
            }
        }
    }

    /// Looks once what has become of what is remembered. What was seen outlives a version: a look that is broken off is
    /// made anew.
    async fn look(&self, lanes: &[Arc<Lane>]) -> Vec<News> {
        let Seen {
            mut cleared, mut asked, ..
        } = std::mem::take(&mut *self.written.seen.lock());
        let news = self.what_is_left(lanes, &mut cleared, &mut asked).await;
        *self.written.seen.lock() = Seen {
            cleared,
            asked,
            looked: Some(Instant::now()),
        };
        news
    }

    /// What has become of all that is remembered beside what these lanes make.
    async fn what_is_left(&self, lanes: &[Arc<Lane>], cleared: &mut Cleared, asked: &mut GivenUp) -> Vec<News> {
        let hub = &self.fleet.hub;
        let mut news = Vec::new();
        let mut is_over = |lane: &Lane, kind: &Kind, made, is_cleared: bool| {
            let what = (lane.grants.primary().clone(), kind.clone(), made);
            if !is_cleared {
                cleared.remove(&what);
                return false;
            }
            cleared.entry(what).or_insert_with(Instant::now).elapsed() >= FORGOTTEN_AFTER
        };
        for lane in lanes {
            hub.give_up(lane, asked);
            let primary = lane.grants.primary();
            if lane.is_former && hub.served.is_missing(primary) {
                if let Some(served) = self.served_elsewhere(primary).await {
                    news.push(News::PrimaryMoved(primary.clone(), served));
                    continue;
                }
                let is_undefined = matches!(is_defined(&self.fleet.client, primary).await, Ok(false));
                if is_over(lane, primary, Some(Made::Owned), is_undefined) {
                    self.collect(lane).await;
                }
            }
            for former in lane.former.iter() {
                let kind = &former.kind;
                let is_missing = hub.served.is_missing(kind);
                if is_missing && let Some(served) = self.served_elsewhere(kind).await {
                    news.push(News::Moved(lane.grants.clone(), kind.clone(), served));
                    continue;
                }
                let is_gone = is_missing && self.is_served_nowhere(kind).await;
                for made in Made::ALL.into_iter().filter(|made| former.reach_of(*made).is_some()) {
                    if is_over(lane, kind, Some(made), is_gone || hub.is_cleared(lane, former, made)) {
                        tracing::info!(
                            lane = lane.title(), %kind, ?made, "nothing is left of what an earlier version of the plugin made"
                        );
                        news.push(News::Gone(lane.grants.clone(), kind.clone(), made));
                    }
                }
            }
            if let Some(finalizer) = lane.finalizer.as_ref().filter(|_| lane.is_former) {
                let is_gone = hub.served.is_missing(primary) && self.is_served_nowhere(primary).await;
                if is_over(lane, primary, None, is_gone || hub.is_released(lane)) {
                    news.push(News::Released(primary.clone(), finalizer.clone()));
                }
            }
        }
        news
    }

    /// Deletes the children of a controller whose primaries are all gone with their definition, as far as Kubernetes does
    /// not. What cannot be deleted is tried again at the next look.
    async fn collect(&self, lane: &Lane) {
        for (served, child) in self.fleet.hub.left_behind(lane) {
            let (kind, object) = (&served.kind, &child.name);
            match lane.writer.delete(&served, &child).await {
                Ok(()) => {
                    tracing::info!(lane = lane.title(), %kind, %object, "collected, since the definition of its owner is gone");
                }
                Err(error) => tracing::debug!(lane = lane.title(), %kind, %object, %error, "cannot collect; retrying"),
            }
        }
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
            if let Some(index) = left.iter().position(same) {
                let mut lane = left.swap_remove(index);
                self.exchange(&mut lane, |lane| Lane {
                    finalizer: wanted.finalizer.clone(),
                    former: wanted.former.clone(),
                    ..lane.clone()
                });
                lanes.push(lane);
            } else {
                hub.put_lane(&wanted);
                watches.add(&wanted);
                lanes.push(wanted);
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

    async fn write_or_say(&self, change: impl Fn(&Memory) -> Memory) {
        if let Err(problem) = self.write(change).await {
            tracing::debug!(plugin = &*self.identity.name, "{problem}; retrying");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Changes what is remembered. Where the resource has changed meanwhile, what it says then is changed.
    async fn write(&self, change: impl Fn(&Memory) -> Memory) -> Result<(), String> {
        let Some(own) = &self.own else { return Ok(()) };
        let mut seen = own.live.clone();
        loop {
            let live = seen.borrow_and_update().clone();
            let known = self.written.known(&live);
            let memory = change(&known);
            if memory == known {
                return Ok(());
            }
            let turn = self.fleet.starting.acquire().await;
            let sent = self.send(own, &live, &memory).await;
            drop(turn);
            match sent {
                Ok(version) => {
                    *self.written.last.lock() = Some(Entry {
                        uid: live.uid.clone(),
                        version,
                        memory,
                    });
                    return Ok(());
                }
                Err(SendError::Outdated) => {
                    if tokio::time::timeout(SEEN_WITHIN, seen.changed()).await.is_err() {
                        return Err("the Plugin changes faster than it is seen".to_owned());
                    }
                }
                Err(SendError::Failed(problem)) => {
                    return Err(format!("cannot write to the Plugin's status what it makes: {problem}"));
                }
            }
        }
    }

    /// Writes what is remembered; the answer is the version that has it, none if there is none that could.
    async fn send(&self, own: &Own, live: &OwnResource, memory: &Memory) -> Result<Option<String>, SendError> {
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
                Err(error) if error.code() == Some(409) => return Err(SendError::Outdated),
                Err(error) => return Err(SendError::Failed(chain(&error))),
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
    known.and(making(lanes))
}

/// Whether a memory has all that lanes make.
fn is_remembered(known: &Memory, lanes: &[Arc<Lane>]) -> bool {
    known.covers(making(lanes))
}

fn making(lanes: &[Arc<Lane>]) -> impl Iterator<Item = (&Grants, Option<&str>)> {
    let makes = lanes
        .iter()
        .filter(|lane| lane.mode != Mode::Preview && !lane.is_former);
    makes.map(|lane| (&lane.grants, lane.finalizer.as_deref()))
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
        *written.last.lock() = Some(Entry {
            uid: "u".into(),
            version: Some("7".to_owned()),
            memory: ours.clone(),
        });
        assert_eq!(written.known(&live("6", &json!([]))), ours, "it is not seen yet");
        assert_eq!(written.known(&live("7", &entry("A"))), ours);
        assert_eq!(written.known(&live("8", &entry("B"))).owned[0].kind.kind, "B");
    }
}
