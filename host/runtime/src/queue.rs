//! Owns what is to be reconciled when: a lane for each controller, fair over lanes by time used, within a lane changes
//! before resyncs before retries, and one object at a time.
//!
//! Nothing here waits or does I/O; the time is given with each call.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use pilothouse_core::{Failure, Name, backoff};
use tokio::time::Instant;

use crate::lane::LaneId;

/// Runs in a row that may write before an object is slowed: a plugin whose answer depends on its own write, or somebody
/// who takes back what is written, would go on for ever.
const FREE_RUNS: u32 = 10;

/// After so long without a run that wrote, what comes next is not the same story.
const CALM: Duration = Duration::from_secs(10);

/// The longest that an object is slowed by.
const LONGEST_BRAKE: Duration = Duration::from_secs(30);

/// Storms that are remembered before the old ones are looked for and forgotten.
const REMEMBERED_STORMS: usize = 1000;

/// Why an object is in the queue; the first has precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// It, or something that it depends on, has changed.
    Change,
    /// Nothing is known to have changed: a start, a resync, a requeue.
    Resync,
    /// It failed before.
    Retry,
}

/// What became of a reconcile, as far as the queue is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It succeeded; run again at this time at the latest.
    Done { again: Option<Instant> },
    /// It failed; time may help. The cluster may have asked for a longer wait than the back-off's.
    Retry { at_least: Duration },
    /// It failed; only a change can help.
    AwaitChange,
    /// There is nothing to reconcile any more.
    Gone,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What became of it.
    pub verdict: Verdict,
    /// The guest's time, which fairness counts.
    pub used: Duration,
    /// Whether an object was written; the primary's own status apart.
    pub wrote: bool,
    /// Why it failed, for the plugin's account; the queue goes by the verdict.
    pub failure: Option<Failure>,
}

/// An object that is to be reconciled now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its lane.
    pub lane: LaneId,
    /// The primary.
    pub name: Name,
    /// Failures in a row before this one.
    pub failures: u32,
}

#[derive(Debug, Default)]
struct Item {
    queued: Option<Priority>,
    running: bool,
    /// Asked for while it was running.
    again: Option<Priority>,
    failures: u32,
    due: Option<Instant>,
    /// Writes of its own that the cache has not seen yet.
    unseen: u32,
}

impl Item {
    fn is_idle(&self) -> bool {
        let Self {
            queued,
            running,
            again,
            failures,
            due,
            unseen,
        } = self;
        queued.is_none() && !running && again.is_none() && *failures == 0 && due.is_none() && *unseen == 0
    }
}

/// Runs of an object that wrote something, each soon after the one before.
#[derive(Clone, Copy, Debug)]
struct Storm {
    runs: u32,
    last: Instant,
    brake: Duration,
}

impl Storm {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.last) > CALM + self.brake
    }
}

#[derive(Debug, Default)]
struct Lane {
    open: bool,
    storms: HashMap<Name, Storm>,
    items: HashMap<Name, Item>,
    ready: [VecDeque<Name>; 3],
    delayed: BTreeMap<Instant, HashSet<Name>>,
    running: usize,
    /// Time used, for fairness.
    used: Duration,
}

/// What a queue holds, for status and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Ready to run.
    pub ready: usize,
    /// Running now.
    pub running: usize,
    /// Waiting for a time.
    pub delayed: usize,
    /// Waiting for the cache to see their own writes.
    pub unseen: usize,
    /// Whose last run failed.
    pub failing: usize,
}

/// The queue of all lanes.
#[derive(Debug)]
pub struct Queue {
    lanes: HashMap<LaneId, Lane>,
    lane_limit: usize,
}

impl Queue {
    /// A queue that runs at most `lane_limit` objects of a lane at once.
    pub fn new(lane_limit: usize) -> Self {
        Self {
            lanes: HashMap::new(),
            lane_limit,
        }
    }

    /// Lets a lane run. It starts level with the lane that has used the least time, not with a credit.
    pub fn open(&mut self, lane: LaneId) {
        let level = self
            .lanes
            .values()
            .filter(|lane| lane.open)
            .map(|lane| lane.used)
            .min()
            .unwrap_or_default();
        let lane = self.lanes.entry(lane).or_default();
        lane.open = true;
        lane.used = lane.used.max(level);
    }

    /// Hands out nothing of a lane any more until it opens again. What runs, runs to its end.
    pub fn close(&mut self, lane: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.open = false;
        }
    }

    /// Whether a lane runs.
    pub fn is_open(&self, lane: LaneId) -> bool {
        self.lanes.get(&lane).is_some_and(|lane| lane.open)
    }

    /// Asks for a reconcile. What is queued already moves up if this is more urgent.
    pub fn push(&mut self, lane: LaneId, name: &Name, priority: Priority) {
        self.lanes.entry(lane).or_default().push(name, priority);
    }

    /// The next object, of the lane that has used the least time.
    pub fn pop(&mut self, now: Instant) -> Option<Job> {
        for lane in self.lanes.values_mut() {
            lane.wake_due(now);
        }
        let limit = self.lane_limit;
        let mut candidates: Vec<_> = self
            .lanes
            .iter_mut()
            .filter(|(_, lane)| lane.open && lane.running < limit && lane.has_ready())
            .collect();
        candidates.sort_by_key(|(id, lane)| (lane.used, **id));
        candidates.into_iter().find_map(|(id, lane)| {
            let (name, failures) = lane.take(now)?;
            Some(Job {
                lane: *id,
                name,
                failures,
            })
        })
    }

    /// When something is due that only waits for its time.
    pub fn next_due(&self) -> Option<Instant> {
        self.lanes
            .values()
            .filter(|lane| lane.open)
            .filter_map(|lane| lane.delayed.keys().next())
            .min()
            .copied()
    }

    /// A job is over.
    pub fn done(&mut self, job: &Job, ended: &Ended, now: Instant) {
        let Ended {
            verdict,
            used,
            wrote,
            failure: _,
        } = *ended;
        let Some(lane) = self.lanes.get_mut(&job.lane) else {
            return;
        };
        lane.running = lane.running.saturating_sub(1);
        lane.used += used;
        lane.brake(&job.name, wrote, now);
        let Some(item) = lane.items.get_mut(&job.name) else {
            return;
        };
        item.running = false;
        let again = item.again.take();
        let due = match verdict {
            Verdict::Done { again } => {
                item.failures = 0;
                again
            }
            Verdict::Retry { at_least } => {
                item.failures = item.failures.saturating_add(1);
                Some(now + backoff::delay(item.failures, seed(&job.name)).max(at_least))
            }
            Verdict::AwaitChange => {
                item.failures = item.failures.saturating_add(1);
                None
            }
            Verdict::Gone => {
                item.failures = 0;
                None
            }
        };
        if let Some(due) = due {
            lane.delay(&job.name, due);
        }
        if let Some(priority) = again {
            lane.push(&job.name, priority);
        }
        lane.tidy(&job.name);
    }

    /// The object wrote something that the cache has not seen: it does not run until it has.
    pub fn hold(&mut self, lane: LaneId, name: &Name) {
        self.lanes
            .entry(lane)
            .or_default()
            .items
            .entry(name.clone())
            .or_default()
            .unseen += 1;
    }

    /// The cache has seen one of the object's writes.
    pub fn release(&mut self, lane: LaneId, name: &Name) {
        let Some(lane) = self.lanes.get_mut(&lane) else { return };
        let Some(item) = lane.items.get_mut(name) else { return };
        item.unseen = item.unseen.saturating_sub(1);
        if item.unseen == 0
            && !item.running
            && let Some(priority) = item.queued.take()
        {
            lane.push(name, priority);
        }
        lane.tidy(name);
    }

    /// The object is gone: nothing of it is due any more. What runs, runs to its end.
    pub fn forget(&mut self, lane: LaneId, name: &Name) {
        let Some(lane) = self.lanes.get_mut(&lane) else { return };
        lane.undelay(name);
        if let Some(item) = lane.items.get_mut(name) {
            item.queued = None;
            item.again = None;
            item.failures = 0;
        }
        lane.tidy(name);
    }

    /// What a lane holds.
    pub fn depth(&self, lane: LaneId) -> Depth {
        let Some(lane) = self.lanes.get(&lane) else {
            return Depth::default();
        };
        let mut depth = Depth {
            running: lane.running,
            ..Depth::default()
        };
        for item in lane.items.values() {
            depth.unseen += usize::from(item.unseen > 0);
            depth.ready += usize::from(item.queued.is_some() && item.unseen == 0);
            depth.delayed += usize::from(item.due.is_some());
            depth.failing += usize::from(item.failures > 0);
        }
        depth
    }

    /// Whether nothing is to be done before a time comes or something changes.
    pub fn is_idle(&self) -> bool {
        self.lanes.values().all(|lane| {
            lane.running == 0
                && lane
                    .items
                    .values()
                    .all(|item| item.queued.is_none() && item.unseen == 0)
        })
    }

    /// How many objects are queued or held.
    pub fn waiting(&self) -> usize {
        self.lanes
            .values()
            .flat_map(|lane| lane.items.values())
            .filter(|item| item.queued.is_some())
            .count()
    }
}

impl Lane {
    fn push(&mut self, name: &Name, priority: Priority) {
        let item = self.items.entry(name.clone()).or_default();
        if item.running {
            item.again = Some(item.again.map_or(priority, |before| before.min(priority)));
            return;
        }
        if item.queued.is_some_and(|before| before <= priority) {
            return;
        }
        item.queued = Some(priority);
        if item.unseen == 0 {
            self.ready[priority as usize].push_back(name.clone());
        }
    }

    fn has_ready(&self) -> bool {
        self.ready.iter().any(|ready| !ready.is_empty())
    }

    fn take(&mut self, now: Instant) -> Option<(Name, u32)> {
        for priority in [Priority::Change, Priority::Resync, Priority::Retry] {
            while let Some(name) = self.ready[priority as usize].pop_front() {
                // An entry is stale when the object was forgotten, held, or moved to a more urgent list since.
                let Some(item) = self.items.get_mut(&name) else {
                    continue;
                };
                if item.queued != Some(priority) || item.running || item.unseen > 0 {
                    continue;
                }
                item.queued = None;
                if let Some(calm) = self.storms.get(&name).map(|storm| storm.last + storm.brake)
                    && calm > now
                {
                    self.delay(&name, calm);
                    continue;
                }
                item.running = true;
                let failures = item.failures;
                self.undelay(&name);
                self.running += 1;
                return Some((name, failures));
            }
        }
        None
    }

    /// Slows an object that writes again and again; one run that has nothing to write ends the story.
    fn brake(&mut self, name: &Name, wrote: bool, now: Instant) {
        if !wrote {
            self.storms.remove(name);
            return;
        }
        if self.storms.len() >= REMEMBERED_STORMS {
            self.storms.retain(|_, storm| !storm.is_over(now));
        }
        let before = self.storms.get(name).filter(|storm| !storm.is_over(now));
        let runs = before.map_or(0, |storm| storm.runs) + 1;
        let brake = match runs.checked_sub(FREE_RUNS) {
            None | Some(0) => Duration::ZERO,
            Some(over) => backoff::delay(over, seed(name)).min(LONGEST_BRAKE),
        };
        self.storms.insert(name.clone(), Storm { runs, last: now, brake });
    }

    fn delay(&mut self, name: &Name, due: Instant) {
        self.undelay(name);
        self.items.entry(name.clone()).or_default().due = Some(due);
        self.delayed.entry(due).or_default().insert(name.clone());
    }

    fn undelay(&mut self, name: &Name) {
        let Some(due) = self.items.get_mut(name).and_then(|item| item.due.take()) else {
            return;
        };
        if let Some(names) = self.delayed.get_mut(&due) {
            names.remove(name);
            if names.is_empty() {
                self.delayed.remove(&due);
            }
        }
    }

    fn wake_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if *entry.key() > now {
                return;
            }
            for name in entry.remove() {
                let failed = self.items.get_mut(&name).is_some_and(|item| {
                    item.due = None;
                    item.failures > 0
                });
                self.push(&name, if failed { Priority::Retry } else { Priority::Resync });
            }
        }
    }

    fn tidy(&mut self, name: &Name) {
        if self.items.get(name).is_some_and(Item::is_idle) {
            self.items.remove(name);
        }
    }
}

/// A seed for the jitter that is the same in each run: FNV-1a over the object's place.
fn seed(name: &Name) -> u64 {
    let text = name
        .namespace
        .iter()
        .chain([&name.name])
        .flat_map(|part| part.bytes().chain([0]));
    text.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LaneId = LaneId(0);
    const B: LaneId = LaneId(1);

    fn name(name: &str) -> Name {
        Name::new(Some("n"), name)
    }

    fn queue() -> Queue {
        let mut queue = Queue::new(10);
        queue.open(A);
        queue.open(B);
        queue
    }

    fn pop(queue: &mut Queue) -> Option<String> {
        queue.pop(Instant::now()).map(|job| job.name.name.to_string())
    }

    fn done(queue: &mut Queue, lane: LaneId, object: &str, verdict: Verdict) {
        let job = Job {
            lane,
            name: name(object),
            failures: 0,
        };
        end(queue, &job, verdict, Duration::from_millis(1));
    }

    fn end(queue: &mut Queue, job: &Job, verdict: Verdict, used: Duration) {
        let ended = Ended {
            verdict,
            used,
            wrote: false,
            failure: None,
        };
        queue.done(job, &ended, Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_writes_again_and_again_is_slowed_until_it_is_calm() {
        let mut queue = queue();
        let wrote = Ended {
            verdict: DONE,
            used: Duration::ZERO,
            wrote: true,
            failure: None,
        };
        let mut runs = 0;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_mins(10) {
            queue.push(A, &name("x"), Priority::Change);
            match queue.pop(Instant::now()) {
                Some(job) => {
                    runs += 1;
                    queue.done(&job, &wrote, Instant::now());
                }
                None => tokio::time::sleep_until(queue.next_due().unwrap()).await,
            }
        }
        assert!((FREE_RUNS..60).contains(&runs), "{runs} runs in ten minutes");
        queue.forget(A, &name("x"));
        tokio::time::advance(LONGEST_BRAKE + CALM + Duration::from_secs(1)).await;
        queue.push(A, &name("x"), Priority::Change);
        let job = queue.pop(Instant::now()).expect("it is calm again");
        queue.done(&job, &wrote, Instant::now());
        queue.push(A, &name("x"), Priority::Change);
        assert!(queue.pop(Instant::now()).is_some(), "and may write again at once");
    }

    const DONE: Verdict = Verdict::Done { again: None };

    #[tokio::test(start_paused = true)]
    async fn changes_come_before_resyncs_before_retries() {
        let mut queue = queue();
        queue.push(A, &name("retry"), Priority::Retry);
        queue.push(A, &name("resync"), Priority::Resync);
        queue.push(A, &name("change"), Priority::Change);
        queue.push(A, &name("resync"), Priority::Retry);
        queue.push(A, &name("retry"), Priority::Change);
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).collect();
        assert_eq!(order, ["change", "retry", "resync"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_runs_once_at_a_time_and_again_if_asked_meanwhile() {
        let mut queue = queue();
        queue.push(A, &name("x"), Priority::Change);
        assert_eq!(pop(&mut queue).as_deref(), Some("x"));
        queue.push(A, &name("x"), Priority::Change);
        queue.push(A, &name("x"), Priority::Change);
        assert_eq!(pop(&mut queue), None);
        done(&mut queue, A, "x", DONE);
        assert_eq!(pop(&mut queue).as_deref(), Some("x"));
        done(&mut queue, A, "x", DONE);
        assert_eq!(pop(&mut queue), None);
        assert!(
            queue.is_idle() && queue.lanes[&A].items.is_empty(),
            "nothing is kept of what is idle"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn lanes_share_by_time_used() {
        let mut queue = queue();
        for number in 0..30 {
            queue.push(A, &name(&format!("a{number}")), Priority::Change);
            queue.push(B, &name(&format!("b{number}")), Priority::Change);
        }
        let mut ran = HashMap::<LaneId, u32>::new();
        for _ in 0..22 {
            let job = queue.pop(Instant::now()).unwrap();
            let used = Duration::from_millis(if job.lane == A { 10 } else { 1 });
            end(&mut queue, &job, DONE, used);
            *ran.entry(job.lane).or_default() += 1;
        }
        assert!(ran[&A] <= 3 && ran[&B] >= 19, "{ran:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_opens_late_has_no_credit() {
        let mut queue = Queue::new(1);
        queue.open(A);
        queue.push(A, &name("x"), Priority::Change);
        let job = queue.pop(Instant::now()).unwrap();
        end(&mut queue, &job, DONE, Duration::from_secs(100));
        queue.open(B);
        assert_eq!(queue.lanes[&B].used, Duration::from_secs(100));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_comes_back_after_its_back_off_and_a_change_comes_first() {
        let mut queue = queue();
        queue.push(A, &name("x"), Priority::Change);
        pop(&mut queue);
        done(
            &mut queue,
            A,
            "x",
            Verdict::Retry {
                at_least: Duration::ZERO,
            },
        );
        assert_eq!(pop(&mut queue), None);
        let due = queue.next_due().unwrap();
        tokio::time::advance(due - Instant::now()).await;
        let job = queue.pop(Instant::now()).unwrap();
        assert_eq!(job.failures, 1);
        end(
            &mut queue,
            &job,
            Verdict::Retry {
                at_least: Duration::from_mins(1),
            },
            Duration::ZERO,
        );
        assert!(queue.next_due().unwrap() >= Instant::now() + Duration::from_mins(1));
        queue.push(A, &name("x"), Priority::Change);
        let job = queue.pop(Instant::now()).unwrap();
        assert_eq!(job.failures, 2);
        assert_eq!(
            queue.next_due(),
            None,
            "the back-off ends with the run that the change brought"
        );
        end(&mut queue, &job, DONE, Duration::ZERO);
        assert!(queue.lanes[&A].items.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_awaits_a_change_has_no_time() {
        let mut queue = queue();
        queue.push(A, &name("x"), Priority::Change);
        pop(&mut queue);
        done(&mut queue, A, "x", Verdict::AwaitChange);
        assert_eq!(queue.next_due(), None);
        queue.push(A, &name("x"), Priority::Change);
        assert_eq!(queue.pop(Instant::now()).unwrap().failures, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_does_not_run_before_the_cache_has_seen_its_writes() {
        let mut queue = queue();
        queue.push(A, &name("x"), Priority::Change);
        pop(&mut queue);
        queue.hold(A, &name("x"));
        queue.hold(A, &name("x"));
        queue.push(A, &name("x"), Priority::Change);
        done(&mut queue, A, "x", DONE);
        assert_eq!(pop(&mut queue), None);
        queue.release(A, &name("x"));
        assert_eq!(pop(&mut queue), None);
        queue.release(A, &name("x"));
        assert_eq!(pop(&mut queue).as_deref(), Some("x"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_comes_while_it_is_held_is_not_lost() {
        let mut queue = queue();
        queue.push(A, &name("x"), Priority::Change);
        pop(&mut queue);
        queue.hold(A, &name("x"));
        done(
            &mut queue,
            A,
            "x",
            Verdict::Done {
                again: Some(Instant::now() + Duration::from_secs(1)),
            },
        );
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(pop(&mut queue), None);
        queue.release(A, &name("x"));
        assert_eq!(pop(&mut queue).as_deref(), Some("x"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_is_not_due_any_more() {
        let mut queue = queue();
        queue.push(A, &name("x"), Priority::Change);
        queue.forget(A, &name("x"));
        assert_eq!(pop(&mut queue), None);
        assert!(queue.lanes[&A].items.is_empty());
        queue.push(A, &name("x"), Priority::Resync);
        assert_eq!(pop(&mut queue).as_deref(), Some("x"));
        done(&mut queue, A, "x", Verdict::Gone);
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_waits_until_it_is_open_and_runs_no_more_than_its_limit() {
        let mut queue = Queue::new(2);
        for object in ["x", "y", "z"] {
            queue.push(A, &name(object), Priority::Change);
        }
        assert_eq!(pop(&mut queue), None);
        queue.open(A);
        assert!(pop(&mut queue).is_some() && pop(&mut queue).is_some());
        assert_eq!(pop(&mut queue), None);
        done(&mut queue, A, "x", DONE);
        assert_eq!(pop(&mut queue).as_deref(), Some("z"));
    }
}
