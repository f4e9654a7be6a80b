//! Decides when a plugin whose calls keep crashing is slowed, stopped and retried. Callers pass the number of objects
//! by tenant.
//!
//! A crash first affects only its object and tenant: the work queue backs off. The plugin is slowed or stopped only if
//! it seems unable to serve anyone: if calls fail for most tenants and for at least three of them. Where there are
//! fewer, they must fail for all tenants and every object. Even then only the tenants for whom calls fail have to wait.
//! So the owner of one or two namespaces cannot slow others down, whatever their objects do to the plugin.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use crate::kubernetes::key::Tenant;
use crate::status::backoff;

/// Consecutive crashes without a pause; each further one causes a pause.
const FREE_CRASHES: u32 = 5;

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Consecutive crashes after which the plugin is stopped.
const LAST_CRASH: u32 = 15;

/// The number of tenants for whom calls must fail, or all if there are fewer.
const TENANTS: usize = 3;

/// The delay before the first retry of a stopped plugin, doubled with each further stop.
const FIRST_STOP: Duration = Duration::from_secs(10);

/// The longest delay before a retry.
const LONGEST_STOP: Duration = Duration::from_mins(5);

/// Calls that must succeed before a stopped plugin counts as healthy.
const SOUND: u32 = 5;

/// The highest number of tenants remembered as served. Beyond it all are forgotten, and counting starts again.
const MOST_SERVED: usize = 10_000;

/// The number of objects that a plugin serves, by tenant.
pub type Census = BTreeMap<Tenant, usize>;

/// The reaction to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Continue.
    Go,
    /// Pause calls for the failing tenants for this long.
    Pause(Duration),
    /// Stop calls for the failing tenants, and retry after this long.
    Stop(Duration),
}

/// The extent of failing calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    /// Some tenants, or some objects of few tenants.
    Partial,
    /// All tenants, of which there are few, and every object that was tried.
    WhereverTried,
    /// Most tenants; or all of few tenants, and every object.
    Everywhere,
}

/// The history of a plugin's calls. Its memory is bounded by the objects whose last call crashed, and the tenants.
#[derive(Clone, Debug)]
pub struct CrashHistory<O> {
    /// The objects whose last call crashed.
    crashed: HashMap<Tenant, HashSet<O>>,
    /// The tenants with a successful call since the history began.
    served: BTreeSet<Tenant>,
    /// Set if any call has succeeded.
    has_served: bool,
    /// Crashes since a call succeeded for a failing tenant.
    crashes: u32,
    stops: u32,
    successes: u32,
    slowed: bool,
}

impl<O> Default for CrashHistory<O> {
    fn default() -> Self {
        Self {
            crashed: HashMap::new(),
            served: BTreeSet::new(),
            has_served: false,
            crashes: 0,
            stops: 0,
            successes: 0,
            slowed: false,
        }
    }
}

impl<O: Eq + Hash + Clone> CrashHistory<O> {
    /// Records that a call for an object returned, with any result.
    pub fn succeeded(&mut self, tenant: &Tenant, object: &O) {
        self.has_served = true;
        // An object that is its own tenant fails or does not: nothing else is known of it.
        if matches!(tenant, Tenant::Namespace(_)) && !self.served.contains(tenant) {
            if self.served.len() >= MOST_SERVED {
                self.served.clear();
            }
            self.served.insert(tenant.clone());
        }
        self.successes = self.successes.saturating_add(1);
        if self.successes >= SOUND {
            self.stops = 0;
        }
        if self.crashed.contains_key(tenant) {
            self.reset_crash_count();
            self.forget(tenant, object);
        }
    }

    /// Forgets an object that is gone.
    pub fn forget(&mut self, tenant: &Tenant, object: &O) {
        let Some(objects) = self.crashed.get_mut(tenant) else {
            return;
        };
        objects.remove(object);
        if objects.is_empty() {
            self.crashed.remove(tenant);
        }
        if self.crashed.is_empty() {
            self.reset_crash_count();
        }
    }

    /// Records that a call for an object crashed. Returns whether [`Self::judge`] should follow.
    pub fn crashed(&mut self, tenant: &Tenant, object: &O) -> bool {
        self.crashes = self.crashes.saturating_add(1);
        self.crashed.entry(tenant.clone()).or_default().insert(object.clone());
        // After a stop, the first crashes are enough.
        self.crashes > if self.stops > 0 { 0 } else { FREE_CRASHES }
    }

    /// Reports whether [`Self::judge`] might act after a crash, given a recent census.
    pub fn is_suspect(&self, census: &Census) -> bool {
        self.spread(census) != Spread::Partial
    }

    /// Decides what to do after a crash, given the census.
    pub fn judge(&mut self, census: &Census) -> Advice {
        self.served.retain(|tenant| census.contains_key(tenant));
        let spread = self.spread(census);
        if spread == Spread::Partial {
            self.slowed = false;
            return Advice::Go;
        }
        self.successes = 0;
        let free = if self.stops > 0 { 0 } else { FREE_CRASHES };
        let last = match spread {
            Spread::Everywhere if self.stops > 0 => 1,
            // Each new try gets further, so a few objects that come first do not keep the others from ever being tried.
            Spread::WhereverTried => LAST_CRASH.saturating_mul(1 << self.stops.min(16)),
            Spread::Everywhere | Spread::Partial => LAST_CRASH,
        };
        if self.crashes >= last {
            return self.stop();
        }
        self.slowed = true;
        let over = self.crashes.saturating_sub(free).max(1);
        Advice::Pause(backoff::delay(over, 0).min(LONGEST_PAUSE))
    }

    /// The tenants for whom calls fail. They wait while a plugin is slowed or stopped.
    pub fn failing(&self, census: &Census) -> HashSet<Tenant> {
        let failing = census.keys().filter(|tenant| self.fails_for(tenant, census));
        failing.cloned().collect()
    }

    /// Reports whether calls are slowed.
    pub fn is_slowed(&self) -> bool {
        self.slowed
    }

    /// The number of consecutive crashes.
    pub fn crashes(&self) -> u32 {
        self.crashes
    }

    /// The extent of failing calls, given the census.
    fn spread(&self, census: &Census) -> Spread {
        let failing = census.keys().filter(|tenant| self.fails_for(tenant, census)).count();
        if failing >= TENANTS && 2 * failing > census.len() {
            return Spread::Everywhere;
        }
        let is_for_all = failing == census.len() && census.len() < TENANTS && !census.is_empty();
        let has_all_crashed = |(tenant, objects): (&Tenant, &usize)| self.has_crashed(tenant) >= *objects;
        if is_for_all && census.iter().all(has_all_crashed) {
            return Spread::Everywhere;
        }
        // As long as no call has succeeded, untried objects are no evidence for the plugin.
        if is_for_all && !self.has_served {
            Spread::WhereverTried
        } else {
            Spread::Partial
        }
    }

    /// Reports whether calls fail for a tenant: for most objects, or for all that were tried.
    fn fails_for(&self, tenant: &Tenant, census: &Census) -> bool {
        let crashed = self.has_crashed(tenant);
        let objects = census.get(tenant).copied().unwrap_or_default();
        crashed > 0 && (!self.served.contains(tenant) || 2 * crashed > objects)
    }

    fn has_crashed(&self, tenant: &Tenant) -> usize {
        self.crashed.get(tenant).map_or(0, HashSet::len)
    }

    /// Resets the number of consecutive crashes, and no longer slows calls.
    fn reset_crash_count(&mut self) {
        self.crashes = 0;
        self.slowed = false;
    }

    /// Stops the plugin. The history is reset for the retry.
    fn stop(&mut self) -> Advice {
        let wait = FIRST_STOP.saturating_mul(1 << self.stops.min(10)).min(LONGEST_STOP);
        self.stops = self.stops.saturating_add(1);
        self.reset_crash_count();
        self.crashed.clear();
        self.served.clear();
        self.has_served = false;
        Advice::Stop(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type History = CrashHistory<usize>;

    fn tenant(index: usize) -> Tenant {
        Tenant::Namespace(format!("n{index}").into())
    }

    /// A census with equally many objects for each tenant.
    fn census(tenants: usize, objects: usize) -> Census {
        (0..tenants).map(|index| (tenant(index), objects)).collect()
    }

    fn crash(history: &mut History, of: usize, object: usize, census: &Census) -> Advice {
        if history.crashed(&tenant(of), &object) {
            history.judge(census)
        } else {
            Advice::Go
        }
    }

    /// The advice after each of so many crashes, of one object of each tenant in turn.
    fn advices(history: &mut History, crashes: usize, census: &Census) -> Vec<Advice> {
        let tenants = census.len();
        (0..crashes)
            .map(|index| crash(history, index % tenants, index / tenants, census))
            .collect()
    }

    fn pauses(advice: &Advice) -> bool {
        matches!(advice, Advice::Pause(_))
    }

    #[test]
    fn a_plugin_that_always_crashes_is_slowed_then_stopped() {
        for tenants in [1, 2, 3, 5] {
            let census = census(tenants, 15_usize.div_ceil(tenants));
            let total: usize = census.values().sum();
            let advices = advices(&mut History::default(), total, &census);
            assert!(advices[..5].iter().all(|advice| *advice == Advice::Go), "{advices:?}");
            assert!(advices[5..14].iter().all(pauses), "{tenants}: {advices:?}");
            assert!(advices.contains(&Advice::Stop(FIRST_STOP)), "{tenants}: {advices:?}");
        }
    }

    #[test]
    fn each_new_try_that_crashes_waits_longer_up_to_the_longest() {
        let (mut history, census) = (History::default(), census(4, 5));
        advices(&mut history, 15, &census);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let again = advices(&mut history, 3, &census);
            let wait = again.iter().find_map(|advice| match advice {
                Advice::Stop(wait) => Some(wait.as_secs()),
                _ => None,
            });
            waits.push(wait.expect("a plugin that was stopped has few tries"));
        }
        assert_eq!(waits, [20, 40, 80, 160, 300, 300, 300, 300]);
    }

    #[test]
    fn who_has_one_or_two_namespaces_cannot_slow_others() {
        for (tenants, of_adversary) in [(2, 1), (3, 1), (3, 2), (4, 2), (100, 2)] {
            for is_first in [true, false] {
                let (mut history, census) = (History::default(), census(tenants, 50));
                if !is_first {
                    for index in of_adversary..tenants {
                        history.succeeded(&tenant(index), &0);
                    }
                }
                for index in 0..1000 {
                    let advice = crash(&mut history, index % of_adversary, index / of_adversary % 50, &census);
                    assert_eq!(
                        advice,
                        Advice::Go,
                        "{tenants} {of_adversary} {is_first}: after {index} crashes"
                    );
                    // What the adversary's other objects do is not of any use to it.
                    if index % 7 == 0 {
                        history.succeeded(&tenant(0), &(index % 50));
                    }
                }
                assert!(!history.is_slowed());
            }
        }
    }

    #[test]
    fn who_is_served_does_not_wait_when_the_others_do() {
        let (mut history, census) = (History::default(), census(5, 4));
        history.succeeded(&tenant(4), &0);
        let mut advice = Advice::Go;
        for index in 0..12 {
            history.succeeded(&tenant(4), &1);
            advice = crash(&mut history, index % 4, index / 4, &census);
        }
        assert!(pauses(&advice), "{advice:?}");
        assert_eq!(history.failing(&census), (0..4).map(tenant).collect());
    }

    #[test]
    fn a_few_bad_objects_of_everybody_are_no_crash_of_the_plugin() {
        let (mut history, census) = (History::default(), census(5, 10));
        for object in 0..10 {
            (0..5).for_each(|index| history.succeeded(&tenant(index), &object));
        }
        for round in 0..100 {
            for index in 0..5 {
                assert_eq!(crash(&mut history, index, round % 5, &census), Advice::Go);
            }
        }
        assert!(history.failing(&census).is_empty());
    }

    #[test]
    fn with_few_tenants_every_object_has_to_crash_before_a_stop() {
        let (mut history, census) = (History::default(), census(1, 20));
        history.succeeded(&tenant(0), &19);
        for round in 0..5 {
            for object in 0..19 {
                assert_eq!(crash(&mut history, 0, object, &census), Advice::Go, "{round} {object}");
            }
        }
        assert_eq!(crash(&mut history, 0, 19, &census), Advice::Stop(FIRST_STOP));
    }

    #[test]
    fn good_objects_behind_many_bad_ones_are_reached_in_the_end() {
        let (mut history, census) = (History::default(), census(1, 101));
        for stops in 0..10 {
            let stopped = (0..100).any(|object| matches!(crash(&mut history, 0, object, &census), Advice::Stop(_)));
            if !stopped {
                history.succeeded(&tenant(0), &100);
                assert!(stops < 4 && !history.is_slowed());
                return;
            }
        }
        panic!("the same objects are tried each time");
    }

    #[test]
    fn a_call_that_ends_well_makes_good_what_was_before() {
        let (mut history, census) = (History::default(), census(3, 100));
        advices(&mut history, 9, &census);
        assert!(history.is_slowed());
        history.succeeded(&tenant(1), &1);
        assert!(!history.is_slowed());
        let again = advices(&mut history, 5, &census);
        assert!(again.iter().all(|advice| *advice == Advice::Go), "{again:?}");
    }

    #[test]
    fn a_plugin_that_is_sound_again_has_its_free_crashes_back() {
        let (mut history, census) = (History::default(), census(3, 100));
        advices(&mut history, 15, &census);
        for object in 0..SOUND as usize {
            history.succeeded(&tenant(0), &object);
        }
        let again = advices(&mut history, 5, &census);
        assert!(again.iter().all(|advice| *advice == Advice::Go), "{again:?}");
    }

    #[test]
    fn what_is_gone_is_not_remembered() {
        let mut history = History::default();
        for object in 0..1000 {
            history.crashed(&tenant(0), &object);
            history.forget(&tenant(0), &object);
        }
        assert!(history.crashed.is_empty() && history.crashes() == 0);
    }
}
