//! Tracks the health of a plugin over all its lanes: its last failure, crashes, warnings and the rate limit of its log
//! lines.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_core::plugin::crash::{Advice, Census, CrashHistory};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Kind, Name, Tenant};
use pilothouse_crds::plugin::LastFailure;
use pilothouse_sandbox::LogSink;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lanes::primary::LaneId;
use crate::process::clock::WallClock;
use crate::process::log_limit::GuestLogLimiter;

/// Time for which a count of the objects that shows no need to slow the plugin stays valid.
const CENSUS_HOLDS: Duration = Duration::from_secs(10);

/// Health of one plugin. It outlives the lanes, and is reset by a new version or configuration (see
/// [`PluginHealth::reset_crashes`]).
#[derive(Default)]
pub struct PluginHealth {
    books: Mutex<HealthState>,
    /// Rate limit of its guests' log lines.
    pub log_limiter: GuestLogLimiter,
    /// Notified whenever the plugin's status may have changed.
    pub changed: Notify,
    /// Notified whenever the cluster forbids a request. One is for the task that reviews the host's rights, the other
    /// for the task that reviews the account's.
    pub forbidden: Notify,
    pub account_forbidden: Notify,
    stopped: Notify,
}

#[derive(Default)]
struct HealthState {
    history: CrashHistory<(LaneId, Name)>,
    /// The last census of the objects and its time.
    census: Option<(Instant, Census)>,
    last_failure: Option<Arc<LastFailure>>,
    /// Pause of all calls and its reason, until [`PluginHealth::stop`] takes it.
    stop: Option<(Duration, String)>,
    /// Reasons why the plugin does not work in full, by subject.
    warnings: BTreeMap<String, String>,
    /// The warnings that were also reported outside the status.
    told: BTreeMap<String, String>,
    /// Fields left out of statuses, by subject.
    omitted: BTreeMap<String, BTreeSet<String>>,
    /// Condition types that the plugin has returned, by primary kind.
    conditions: HashMap<Kind, Arc<BTreeSet<String>>>,
    /// Set if the plugin was stopped: running calls end, and nothing they report counts.
    is_stopped: bool,
}

/// Pause of a plugin after crashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginPause {
    /// Duration without calls.
    pub wait: Duration,
    /// Tenants that are paused.
    pub tenants: HashSet<Tenant>,
}

/// A reconcile that has ended.
#[derive(Clone, Copy, Debug)]
pub struct FinishedCall<'a> {
    /// Lane of the reconcile.
    pub lane: LaneId,
    /// The primary.
    pub object: &'a Name,
    /// Set if the primary still exists.
    pub is_there: bool,
    /// Set if the plugin was called.
    pub was_called: bool,
    /// The failure, if it failed.
    pub failure: Option<&'a Failure>,
}

/// The most omitted status fields and condition types that are remembered for one kind. The plugin may invent any
/// number of both.
const MOST_OMITTED: usize = 32;
const MOST_CONDITIONS: usize = 256;

/// Subject of the warning about inconsistencies in a plugin's description.
pub const ABOUT_DESCRIPTION: &str = "description";

/// Subject of the warning about status fields of a kind that are not written.
pub fn about_status(primary: &Kind) -> String {
    format!("status of {primary}")
}

/// Log sink for calls that belong to no object: describe and convert.
pub fn without_object(plugin: Arc<str>, health: Arc<PluginHealth>) -> LogSink {
    Box::new(move |level, message, fields| health.log_limiter.log(&plugin, None, level, message, fields))
}

impl PluginHealth {
    /// Records that a reconcile has ended. Returns the pause that the plugin gets, if any. `census` counts the plugin's
    /// objects; it is called only if the count matters, and without the lock of `books`: the state's lock is always
    /// taken before it.
    pub fn ended(
        &self,
        call: &FinishedCall<'_>,
        clock: &WallClock,
        census: impl FnOnce() -> Census,
    ) -> Option<PluginPause> {
        let FinishedCall {
            lane,
            object,
            is_there,
            was_called,
            failure,
        } = *call;
        let mut books = self.books.lock();
        if failure.is_some_and(|failure| failure.reason == Reason::Forbidden) {
            self.forbidden.notify_one();
            self.account_forbidden.notify_one();
        }
        if let Some(failure) = failure {
            books.last_failure = Some(Arc::new(LastFailure {
                blame: failure.blame.to_string(),
                object: Some(object.to_string()),
                message: format!("{}: {}", failure.reason, failure.message),
                time: clock.seconds(),
            }));
        }
        let (tenant, who) = (Tenant::of(object), (lane, object.clone()));
        let measure = match failure {
            _ if !is_there => {
                books.history.forget(&tenant, &who);
                None
            }
            Some(failure) if failure.is_crash() => {
                if books.record_crash(&tenant, &who) {
                    drop(books);
                    let census = census();
                    books = self.books.lock();
                    books.judge(census, failure)
                } else {
                    None
                }
            }
            _ if was_called => {
                books.history.succeeded(&tenant, &who);
                None
            }
            _ => None,
        };
        if books.stop.is_some() {
            self.stopped.notify_one();
        }
        drop(books);
        self.changed.notify_one();
        measure
    }

    /// Records that a primary was deleted.
    pub fn gone(&self, lane: LaneId, object: &Name) {
        let (tenant, who) = (Tenant::of(object), (lane, object.clone()));
        self.books.lock().history.forget(&tenant, &who);
        // No reconcile will end and report the new number of objects.
        self.changed.notify_one();
    }

    /// Waits until the plugin has to be stopped. Returns for how long, and why.
    pub async fn stop(&self) -> (Duration, String) {
        loop {
            let stopped = self.stopped.notified();
            if let Some(stop) = self.books.lock().stop.take() {
                return stop;
            }
            stopped.await;
        }
    }

    /// Returns `true` if the plugin was stopped and not resumed.
    pub fn is_stopped(&self) -> bool {
        self.books.lock().is_stopped
    }

    /// Allows calls again.
    pub fn resume(&self) {
        let mut books = self.books.lock();
        books.stop = None;
        books.is_stopped = false;
    }

    /// Forgets all crashes, for another version or configuration.
    pub fn reset_crashes(&self) {
        let mut books = self.books.lock();
        books.history = CrashHistory::default();
        books.census = None;
    }

    /// Sets a warning: the plugin's status shows it until it is cleared.
    pub fn set_warning(&self, about: &str, warning: &str) {
        let before = self.books.lock().warnings.insert(about.to_owned(), warning.to_owned());
        if before.as_deref() != Some(warning) {
            self.changed.notify_one();
        }
    }

    /// Sets a warning that is also reported outside the status. Returns `true` if that report is still due.
    pub fn warn(&self, about: &str, warning: &str) -> bool {
        self.set_warning(about, warning);
        let before = self.books.lock().told.insert(about.to_owned(), warning.to_owned());
        before.as_deref() != Some(warning)
    }

    /// Adds fields that are left out of a kind's statuses. Returns all of them if any is new.
    pub fn omit(&self, about: &str, fields: BTreeSet<String>) -> Option<BTreeSet<String>> {
        if fields.is_empty() {
            return None;
        }
        let mut books = self.books.lock();
        let known = books.omitted.entry(about.to_owned()).or_default();
        let before = known.len();
        known.extend(fields);
        while known.len() > MOST_OMITTED.max(before) {
            known.pop_last();
        }
        (known.len() > before).then(|| known.clone())
    }

    /// Adds condition types that the plugin has returned for a kind in any version. Returns all of them.
    pub fn give_conditions<'a>(&self, kind: &Kind, types: impl Iterator<Item = &'a str>) -> Arc<BTreeSet<String>> {
        let mut books = self.books.lock();
        let given = books.conditions.entry(kind.clone()).or_default();
        for name in types {
            if given.len() < MOST_CONDITIONS && !given.contains(name) {
                Arc::make_mut(given).insert(name.to_owned());
            }
        }
        given.clone()
    }

    /// Clears a warning. Returns `true` if it was set.
    pub fn clear(&self, about: &str) -> bool {
        let mut books = self.books.lock();
        books.told.remove(about);
        books.omitted.remove(about);
        let was_there = books.warnings.remove(about).is_some();
        drop(books);
        if was_there {
            self.changed.notify_one();
        }
        was_there
    }

    /// Returns `true` if there is a warning about the subject.
    pub fn has_warning(&self, about: &str) -> bool {
        self.books.lock().warnings.contains_key(about)
    }

    /// The warning about a subject.
    pub fn warning(&self, about: &str) -> Option<String> {
        self.books.lock().warnings.get(about).cloned()
    }

    /// All warnings.
    pub fn warnings(&self) -> Vec<String> {
        self.books.lock().warnings.values().cloned().collect()
    }

    /// The last failure since the host started.
    pub fn last_failure(&self) -> Option<Arc<LastFailure>> {
        self.books.lock().last_failure.clone()
    }

    /// Number of crashes in a row for which the plugin is slowed, if it is.
    pub fn slowed_for(&self) -> Option<u32> {
        let books = self.books.lock();
        books.history.is_slowed().then(|| books.history.crashes())
    }
}

impl HealthState {
    /// Records a crash. Returns `true` if the objects have to be counted to decide on a pause.
    fn record_crash(&mut self, tenant: &Tenant, who: &(LaneId, Name)) -> bool {
        let is_worth_a_look = self.history.crashed(tenant, who);
        let counted = self.census.as_ref();
        let counted = counted.filter(|(when, _)| when.elapsed() < CENSUS_HOLDS);
        let is_well = counted.is_some_and(|(_, census)| !self.history.is_suspect(census));
        is_worth_a_look && !is_well && !self.is_stopped
    }

    fn judge(&mut self, census: Census, failure: &Failure) -> Option<PluginPause> {
        let (_, census) = self.census.insert((Instant::now(), census));
        // Another reconcile may have ended while the objects were counted.
        if self.is_stopped {
            return None;
        }
        let tenants = self.history.failing(census);
        let wait = match self.history.judge(census) {
            Advice::Go => return None,
            Advice::Pause(wait) => wait,
            Advice::Stop(wait) => {
                self.stop = Some((wait, failure.message.clone()));
                self.is_stopped = true;
                wait
            }
        };
        Some(PluginPause { wait, tenants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(index: usize) -> Name {
        Name::new(Some(&format!("n{}", index % 3)), &format!("o{index}"))
    }

    fn ended(health: &PluginHealth, clock: &WallClock, index: usize, failure: Option<&Failure>) -> Option<PluginPause> {
        let call = FinishedCall {
            lane: LaneId(0),
            object: &name(index),
            is_there: true,
            was_called: true,
            failure,
        };
        health.ended(&call, clock, || {
            (0..3).map(|index| (Tenant::of(&name(index)), 100)).collect()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn only_crashes_stop_a_plugin_and_the_last_failure_is_kept() {
        let (health, clock) = (PluginHealth::default(), WallClock::starting_at(1_767_323_045_000));
        let trap = Failure::guest(Reason::GuestTrap, "the plugin trapped");
        let other = Failure::user(Reason::Failure, "no such port");
        for index in 0..100 {
            assert_eq!(ended(&health, &clock, index, Some(&other)), None);
        }
        assert_eq!(health.last_failure().unwrap().blame, "user");
        health.reset_crashes();
        for index in 0..15 {
            ended(&health, &clock, index, Some(&trap));
        }
        let (_, why) = health.stop().await;
        assert_eq!(why, "the plugin trapped");
        let last = health.last_failure().unwrap();
        assert_eq!((&*last.blame, last.object.as_deref()), ("guest", Some("n2/o14")));
        assert_eq!(last.time, "2026-01-02T03:04:05Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_version_begins_without_the_old_ones_crashes() {
        let (health, clock) = (PluginHealth::default(), WallClock::System);
        let trap = Failure::guest(Reason::GuestLimit, "limit callMilliseconds");
        for index in 0..14 {
            ended(&health, &clock, index, Some(&trap));
        }
        assert_eq!(health.slowed_for(), Some(14));
        health.reset_crashes();
        assert_eq!(health.slowed_for(), None);
        assert_eq!(ended(&health, &clock, 1, Some(&trap)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_counted_seldom_while_one_tenant_crashes() {
        let (health, clock) = (PluginHealth::default(), WallClock::System);
        let trap = Failure::guest(Reason::GuestTrap, "the plugin trapped");
        let mut counted = 0;
        for _ in 0..1000 {
            let call = FinishedCall {
                lane: LaneId(0),
                object: &name(0),
                is_there: true,
                was_called: true,
                failure: Some(&trap),
            };
            let measure = health.ended(&call, &clock, || {
                counted += 1;
                assert!(health.books.try_lock().is_some(), "it is counted without this lock");
                (0..3).map(|index| (Tenant::of(&name(index)), 100)).collect()
            });
            assert_eq!(measure, None);
        }
        assert_eq!(counted, 1);
    }
}
