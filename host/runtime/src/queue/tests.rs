//! Tests of the queue, on a paused clock.

use super::backlog::Backlog;
use super::hot_loop::{CALM, FREE_RUNS, LONGEST};
use super::*;

const A: LaneId = LaneId(0);
const B: LaneId = LaneId(1);
const C: LaneId = LaneId(2);

const DONE: ReconcileResult = ReconcileResult::Done { again: None };

fn name(name: &str) -> Name {
    Name::new(Some("n"), name)
}

fn with(workers: usize, per_plugin: usize) -> WorkQueue {
    WorkQueue::new(Capacity { workers, per_plugin })
}

fn open(queue: &mut WorkQueue, lane: LaneId, plugin: &str) {
    queue.open(lane, &Arc::from(plugin), format!("{plugin}/c"), None);
}

/// Two plugins of one lane each.
fn queue() -> WorkQueue {
    let mut queue = with(100, 10);
    open(&mut queue, A, "a");
    open(&mut queue, B, "b");
    queue
}

fn change(queue: &mut WorkQueue, lane: LaneId, object: &str) {
    queue.push(lane, &name(object), Priority::Change, TriggerReason::ObjectChanged);
}

fn tenant(namespace: &str) -> Tenant {
    Tenant::Namespace(namespace.into())
}

fn push_of(queue: &mut WorkQueue, lane: LaneId, namespace: &str, object: &str, priority: Priority) {
    queue.push(
        lane,
        &Name::new(Some(namespace), object),
        priority,
        TriggerReason::ObjectChanged,
    );
}

/// Number of runs, of these durations, before an object is reached.
fn reached_after(queue: &mut WorkQueue, object: &str, takes: impl Fn(&Job) -> Duration) -> usize {
    for run in 0.. {
        let job = queue.pop(Instant::now()).expect("it has not run yet");
        if &*job.name.name == object {
            return run;
        }
        end(queue, &job, DONE, takes(&job));
        assert!(run < 100_000, "{object} is never reached");
    }
    unreachable!("it was found or not")
}

fn pop(queue: &mut WorkQueue) -> Option<String> {
    queue.pop(Instant::now()).map(|job| job.name.name.to_string())
}

fn done(queue: &mut WorkQueue, lane: LaneId, object: &str, verdict: ReconcileResult) {
    let job = Job {
        lane,
        name: name(object),
        failures: 0,
        hot_loop: None,
        trigger: TriggerReason::ObjectChanged.into(),
        waited: Duration::ZERO,
    };
    end(queue, &job, verdict, Duration::from_millis(1));
}

fn end(queue: &mut WorkQueue, job: &Job, verdict: ReconcileResult, used: Duration) {
    let ended = JobResult {
        used,
        ..JobResult::unchanged(verdict)
    };
    queue.done(job, &ended, Instant::now());
}

fn backlog(queue: &WorkQueue, lane: LaneId) -> &Backlog {
    &queue.lanes[&lane].backlog
}

/// Runs this many jobs, each as long as its lane says. Returns the number of jobs by lane.
fn run(queue: &mut WorkQueue, jobs: u32, takes: impl Fn(LaneId) -> Duration) -> HashMap<LaneId, u32> {
    let mut ran = HashMap::new();
    for _ in 0..jobs {
        let job = queue.pop(Instant::now()).expect("there is enough to do");
        *ran.entry(job.lane).or_default() += 1;
        end(queue, &job, DONE, takes(job.lane));
    }
    ran
}

#[tokio::test(start_paused = true)]
async fn who_is_paused_waits_and_the_others_go_on() {
    let mut queue = queue();
    let tenants = HashSet::from([tenant("n")]);
    queue.pause("a", tenants, Instant::now() + Duration::from_secs(2));
    change(&mut queue, A, "paused");
    change(&mut queue, B, "other");
    push_of(&mut queue, A, "m", "of-another-tenant", Priority::Retry);
    assert_eq!(pop(&mut queue).as_deref(), Some("of-another-tenant"));
    assert_eq!(pop(&mut queue).as_deref(), Some("other"));
    assert_eq!(pop(&mut queue), None);
    let due = queue.next_due().expect("the pause ends");
    assert_eq!(due - Instant::now(), Duration::from_secs(2));
    tokio::time::sleep_until(due).await;
    assert_eq!(pop(&mut queue).as_deref(), Some("paused"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_lane_that_is_removed() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    queue.close(A);
    assert_eq!(pop(&mut queue), None);
    queue.remove(A);
    assert!(queue.is_idle() && !queue.is_open(A));
    open(&mut queue, A, "a");
    assert_eq!(pop(&mut queue), None);
}

#[tokio::test(start_paused = true)]
async fn changes_come_before_wakes_before_resyncs_before_retries() {
    let mut queue = queue();
    queue.push(A, &name("retry"), Priority::Retry, TriggerReason::ObjectChanged);
    queue.push(A, &name("resync"), Priority::Resync, TriggerReason::ObjectChanged);
    queue.push(A, &name("woken"), Priority::Wake, TriggerReason::ObjectChanged);
    queue.push(A, &name("change"), Priority::Change, TriggerReason::ObjectChanged);
    queue.push(A, &name("resync"), Priority::Retry, TriggerReason::ObjectChanged);
    queue.push(A, &name("retry"), Priority::Change, TriggerReason::ObjectChanged);
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).collect();
    assert_eq!(order, ["change", "retry", "woken", "resync"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_object_does_not_wait_behind_a_backlog() {
    let mut queue = queue();
    for number in 0..10_000 {
        queue.push(
            A,
            &name(&format!("resync-{number}")),
            Priority::Resync,
            TriggerReason::ObjectChanged,
        );
        queue.push(
            A,
            &name(&format!("woken-{number}")),
            Priority::Wake,
            TriggerReason::ObjectChanged,
        );
    }
    change(&mut queue, A, "new");
    assert_eq!(pop(&mut queue).as_deref(), Some("new"));
}

#[tokio::test(start_paused = true)]
async fn an_object_runs_once_at_a_time_and_again_if_asked_meanwhile() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    assert_eq!(pop(&mut queue).as_deref(), Some("x"));
    change(&mut queue, A, "x");
    change(&mut queue, A, "x");
    assert_eq!(pop(&mut queue), None);
    done(&mut queue, A, "x", DONE);
    assert_eq!(pop(&mut queue).as_deref(), Some("x"));
    done(&mut queue, A, "x", DONE);
    assert_eq!(pop(&mut queue), None);
    assert!(
        queue.is_idle() && backlog(&queue, A).is_empty(),
        "nothing is kept of what is idle"
    );
}

#[tokio::test(start_paused = true)]
async fn plugins_share_by_time_used_however_many_lanes_they_have() {
    let mut queue = with(1, 1);
    open(&mut queue, A, "a");
    open(&mut queue, B, "b");
    open(&mut queue, C, "b");
    for number in 0..300 {
        for lane in [A, B, C] {
            change(&mut queue, lane, &format!("{number}"));
        }
    }
    let ran = run(&mut queue, 200, |lane| {
        Duration::from_millis(if lane == A { 10 } else { 1 })
    });
    assert!((15..=25).contains(&ran[&A]), "{ran:?}");
    assert!(ran[&B].abs_diff(ran[&C]) <= 2, "{ran:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_cluster_counts_as_used() {
    let mut queue = with(1, 1);
    open(&mut queue, A, "a");
    open(&mut queue, B, "b");
    for number in 0..100 {
        change(&mut queue, A, &format!("{number}"));
        change(&mut queue, B, &format!("{number}"));
    }
    let mut ran = HashMap::<LaneId, u32>::new();
    for _ in 0..55 {
        let job = queue.pop(Instant::now()).unwrap();
        tokio::time::advance(Duration::from_millis(if job.lane == A { 10 } else { 1 })).await;
        *ran.entry(job.lane).or_default() += 1;
        end(&mut queue, &job, DONE, Duration::from_micros(50));
    }
    assert!(ran[&A] <= 7, "{ran:?}");
}

#[tokio::test(start_paused = true)]
async fn who_comes_late_or_has_been_idle_has_no_credit() {
    let mut queue = with(1, 1);
    open(&mut queue, A, "a");
    open(&mut queue, C, "c");
    for number in 0..300 {
        change(&mut queue, A, &format!("{number}"));
    }
    run(&mut queue, 100, |_| Duration::from_secs(1));
    open(&mut queue, B, "b");
    for number in 0..300 {
        change(&mut queue, B, &format!("{number}"));
        change(&mut queue, C, &format!("{number}"));
    }
    let ran = run(&mut queue, 30, |_| Duration::from_secs(1));
    assert!([A, B, C].iter().all(|lane| (9..=11).contains(&ran[lane])), "{ran:?}");
}

#[tokio::test(start_paused = true)]
async fn what_runs_counts_before_it_is_over() {
    let mut queue = with(8, 8);
    open(&mut queue, A, "slow");
    open(&mut queue, B, "quick");
    for number in 0..100 {
        change(&mut queue, A, &format!("{number}"));
        change(&mut queue, B, &format!("{number}"));
    }
    // Their usual times become known.
    run(&mut queue, 60, |lane| {
        Duration::from_millis(if lane == A { 100 } else { 1 })
    });
    let at_once: Vec<_> = std::iter::from_fn(|| queue.pop(Instant::now())).collect();
    let slow = at_once.iter().filter(|job| job.lane == A).count();
    assert!(slow <= 2, "{slow} of {}", at_once.len());
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_kept_free_for_a_plugin_with_little_to_do() {
    let mut queue = with(8, 4);
    for (lane, plugin) in [(A, "a"), (B, "b")] {
        open(&mut queue, lane, plugin);
        for number in 0..10 {
            change(&mut queue, lane, &format!("{number}"));
        }
    }
    while queue.pop(Instant::now()).is_some() {}
    assert_eq!(queue.running, 6, "a quarter is kept free");
    open(&mut queue, C, "c");
    change(&mut queue, C, "x");
    change(&mut queue, C, "y");
    assert_eq!(pop(&mut queue).as_deref(), Some("x"));
    assert_eq!(pop(&mut queue), None);
}

#[tokio::test(start_paused = true)]
async fn a_lane_waits_until_open_and_respects_its_plugins_limit() {
    let mut queue = with(100, 2);
    for object in ["x", "y", "z"] {
        change(&mut queue, A, object);
    }
    change(&mut queue, B, "w");
    assert_eq!(pop(&mut queue), None);
    open(&mut queue, A, "a");
    open(&mut queue, B, "a");
    assert!(pop(&mut queue).is_some() && pop(&mut queue).is_some());
    assert_eq!(pop(&mut queue), None);
    queue.open(C, &Arc::from("c"), "c/c".to_owned(), Some(1));
    change(&mut queue, C, "p");
    change(&mut queue, C, "q");
    assert_eq!(pop(&mut queue).as_deref(), Some("p"));
    assert_eq!(pop(&mut queue), None, "its own limit is 1");
    done(&mut queue, A, "x", DONE);
    assert!(pop(&mut queue).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_closes_keeps_what_it_has_and_ends_what_runs() {
    let mut queue = with(1, 1);
    open(&mut queue, A, "a");
    change(&mut queue, A, "x");
    change(&mut queue, A, "y");
    let job = queue.pop(Instant::now()).unwrap();
    queue.close(A);
    end(&mut queue, &job, DONE, Duration::ZERO);
    assert_eq!(pop(&mut queue), None);
    open(&mut queue, A, "a");
    assert_eq!(pop(&mut queue).as_deref(), Some("y"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_returns_after_its_backoff_and_a_change_precedes_it() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    pop(&mut queue);
    let at_least = Duration::ZERO;
    let edited = Duration::ZERO;
    done(&mut queue, A, "x", ReconcileResult::Retry { at_least, edited });
    assert_eq!(pop(&mut queue), None);
    assert_eq!(queue.depth(A, Instant::now()).failing, 1);
    let due = queue.next_due().unwrap();
    tokio::time::advance(due - Instant::now()).await;
    let job = queue.pop(Instant::now()).unwrap();
    assert_eq!(job.failures, 1);
    end(
        &mut queue,
        &job,
        ReconcileResult::Retry { at_least, edited },
        Duration::ZERO,
    );
    change(&mut queue, A, "x");
    let job = queue.pop(Instant::now()).unwrap();
    assert_eq!(job.failures, 2);
    assert_eq!(
        queue.next_due(),
        None,
        "the back-off ends with the run that the change brought"
    );
    end(&mut queue, &job, DONE, Duration::ZERO);
    assert!(backlog(&queue, A).is_empty());
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_even_if_something_changes() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    pop(&mut queue);
    let at_least = Duration::from_mins(1);
    let edited = Duration::ZERO;
    done(&mut queue, A, "x", ReconcileResult::Retry { at_least, edited });
    change(&mut queue, A, "x");
    assert_eq!(pop(&mut queue), None);
    assert!(queue.next_due().unwrap() >= Instant::now() + at_least);
    tokio::time::advance(at_least).await;
    queue.push(A, &name("resync"), Priority::Resync, TriggerReason::ObjectChanged);
    assert_eq!(pop(&mut queue).as_deref(), Some("x"), "it is still a change");
    done(&mut queue, A, "x", DONE);
    pop(&mut queue);
    done(&mut queue, A, "resync", DONE);
    assert!(backlog(&queue, A).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_edit_runs_before_the_time_that_was_asked_for() {
    for edited in [Duration::ZERO, Duration::from_secs(10)] {
        for while_it_runs in [true, false] {
            let mut queue = queue();
            change(&mut queue, A, "x");
            pop(&mut queue);
            let edit = |queue: &mut WorkQueue| {
                queue.push_for(
                    A,
                    &name("x"),
                    Priority::Change,
                    Cause::Edit,
                    TriggerReason::ObjectChanged,
                );
            };
            if while_it_runs {
                edit(&mut queue);
            }
            let at_least = Duration::from_mins(5);
            done(&mut queue, A, "x", ReconcileResult::Retry { at_least, edited });
            if !while_it_runs {
                change(&mut queue, A, "x");
                assert_eq!(pop(&mut queue), None, "it was no edit");
                edit(&mut queue);
            }
            if !edited.is_zero() {
                assert_eq!(pop(&mut queue), None);
                tokio::time::advance(edited).await;
            }
            assert_eq!(pop(&mut queue).as_deref(), Some("x"), "{edited:?} {while_it_runs}");
            done(&mut queue, A, "x", ReconcileResult::Retry { at_least, edited });
            change(&mut queue, A, "x");
            assert_eq!(pop(&mut queue), None, "the edit has had its run");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_class_waits_behind_a_busy_one_for_more_than_a_few_runs() {
    let mut queue = with(1, 1);
    open(&mut queue, A, "a");
    let classes = [Priority::New, Priority::Wake, Priority::Resync, Priority::Retry];
    for priority in classes {
        queue.push(
            A,
            &name(&format!("{priority:?}")),
            priority,
            TriggerReason::ObjectChanged,
        );
    }
    let mut waiting: Vec<_> = classes.iter().map(|priority| format!("{priority:?}")).collect();
    for run in 0..10_000 {
        change(&mut queue, A, &format!("change-{run}"));
        change(&mut queue, A, &format!("another-{run}"));
        let job = queue.pop(Instant::now()).unwrap();
        waiting.retain(|name| **name != *job.name.name);
        end(&mut queue, &job, DONE, Duration::from_millis(5));
        if waiting.is_empty() {
            let most = (ready_queue::PASSED_OVER as usize + 1) * 2;
            assert!(run <= most, "{run}");
            return;
        }
    }
    panic!("these starve: {waiting:?}");
}

#[tokio::test(start_paused = true)]
async fn no_tenants_load_delays_another_tenants_single_object() {
    for priority in [Priority::Change, Priority::Wake, Priority::Resync, Priority::Retry] {
        let mut queue = with(1, 1);
        open(&mut queue, A, "a");
        for number in 0..10_000 {
            let theirs = if number % 2 == 0 {
                Priority::Change
            } else {
                Priority::Wake
            };
            push_of(&mut queue, A, "greedy", &format!("{number}"), theirs);
        }
        push_of(&mut queue, A, "modest", "mine", priority);
        let runs = reached_after(&mut queue, "mine", |_| Duration::from_millis(3));
        let most = if priority == Priority::Change { 1 } else { 25 };
        assert!(runs <= most, "{priority:?}: {runs}");
    }
}

#[tokio::test(start_paused = true)]
async fn tenants_share_by_time_used_whatever_each_run_takes() {
    let mut queue = with(1, 1);
    open(&mut queue, A, "a");
    for number in 0..1000 {
        push_of(&mut queue, A, "slow", &format!("slow-{number}"), Priority::Change);
        push_of(&mut queue, A, "quick", &format!("quick-{number}"), Priority::Change);
    }
    let (mut slow, mut quick) = (0, 0);
    for _ in 0..500 {
        let job = queue.pop(Instant::now()).unwrap();
        let is_slow = job.name.namespace.as_deref() == Some("slow");
        *(if is_slow { &mut slow } else { &mut quick }) += 1;
        let takes = if is_slow {
            Duration::from_millis(100)
        } else {
            Duration::from_millis(2)
        };
        end(&mut queue, &job, DONE, takes);
    }
    assert!(slow <= 12, "{slow} slow runs, {quick} quick ones");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_long_runs_leaves_a_worker_to_others() {
    let mut queue = with(100, 8);
    open(&mut queue, A, "a");
    for number in 0..100 {
        push_of(&mut queue, A, "greedy", &format!("{number}"), Priority::Change);
    }
    let begun = std::iter::from_fn(|| queue.pop(Instant::now())).count();
    assert_eq!(begun, 6, "a quarter of the plugin's workers is kept");
    push_of(&mut queue, A, "modest", "mine", Priority::Resync);
    assert_eq!(pop(&mut queue).as_deref(), Some("mine"));
    assert_eq!(pop(&mut queue), None);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_tenants_that_have_nothing_to_do() {
    let mut queue = with(1, 1);
    open(&mut queue, A, "a");
    for number in 0..1000 {
        push_of(&mut queue, A, &format!("{number}"), "x", Priority::Change);
        queue.push(
            A,
            &Name::new(None, &format!("{number}")),
            Priority::Wake,
            TriggerReason::ObjectChanged,
        );
    }
    while let Some(job) = queue.pop(Instant::now()) {
        end(&mut queue, &job, DONE, Duration::from_millis(2));
    }
    assert_eq!(backlog(&queue, A).tenants(), 0);
    push_of(&mut queue, A, "n", "forgotten", Priority::Change);
    queue.forget(A, &Name::new(Some("n"), "forgotten"));
    assert_eq!(backlog(&queue, A).tenants(), 0);
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_time_of_day_are_requeued_when_the_clock_jumps() {
    let mut queue = queue();
    let again = |by_clock| {
        let at = Instant::now() + Duration::from_hours(1);
        let again = Some(RequeueAt { at, by_clock });
        ReconcileResult::Done { again }
    };
    for (object, by_clock) in [("by-clock", true), ("by-timer", false)] {
        change(&mut queue, A, object);
        pop(&mut queue);
        done(&mut queue, A, object, again(by_clock));
    }
    assert!(queue.waits_for_clock());
    queue.clock_jumped(Instant::now());
    assert_eq!(pop(&mut queue).as_deref(), Some("by-clock"));
    assert_eq!(pop(&mut queue), None);
    assert!(!queue.waits_for_clock());
    done(
        &mut queue,
        A,
        "by-clock",
        ReconcileResult::AwaitChange {
            again: Some(RequeueAt {
                at: Instant::now(),
                by_clock: true,
            }),
        },
    );
    assert!(
        queue.waits_for_clock(),
        "the time is something that a failure may wait for"
    );
    assert_eq!(pop(&mut queue), None, "but not without a pause");
    queue.forget(A, &name("by-clock"));
    assert!(!queue.waits_for_clock());
}

#[tokio::test(start_paused = true)]
async fn a_requeue_comes_at_its_time() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    pop(&mut queue);
    let again = Some(RequeueAt::at(Instant::now() + Duration::from_secs(7)));
    done(&mut queue, A, "x", ReconcileResult::Done { again });
    tokio::time::advance(Duration::from_secs(6)).await;
    assert_eq!(pop(&mut queue), None);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(queue.pop(Instant::now()).unwrap().failures, 0);
}

#[tokio::test(start_paused = true)]
async fn what_awaits_a_change_has_no_time() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    pop(&mut queue);
    done(&mut queue, A, "x", ReconcileResult::AwaitChange { again: None });
    assert_eq!(queue.next_due(), None);
    change(&mut queue, A, "x");
    assert_eq!(queue.pop(Instant::now()).unwrap().failures, 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_does_not_run_before_the_cache_has_seen_its_writes() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    pop(&mut queue);
    queue.hold(A, &name("x"));
    queue.hold(A, &name("x"));
    change(&mut queue, A, "x");
    done(&mut queue, A, "x", DONE);
    assert_eq!(pop(&mut queue), None);
    queue.release(A, &name("x"));
    assert_eq!(pop(&mut queue), None);
    queue.release(A, &name("x"));
    assert_eq!(pop(&mut queue).as_deref(), Some("x"));
}

#[tokio::test(start_paused = true)]
async fn only_what_becomes_ready_is_worth_a_look() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    assert!(queue.take_ready_signal() && !queue.take_ready_signal());
    change(&mut queue, A, "x");
    pop(&mut queue);
    queue.hold(A, &name("x"));
    change(&mut queue, A, "x");
    done(&mut queue, A, "x", DONE);
    assert!(!queue.take_ready_signal(), "it was queued, it ran, and now it is held");
    queue.release(A, &name("x"));
    assert!(queue.take_ready_signal());
    assert_eq!(pop(&mut queue).as_deref(), Some("x"));
    done(&mut queue, A, "x", DONE);
    queue.hold(A, &name("x"));
    queue.release(A, &name("x"));
    assert!(!queue.take_ready_signal(), "nothing was to be done after its write");
}

#[tokio::test(start_paused = true)]
async fn a_time_that_comes_while_it_is_held_is_not_lost() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    pop(&mut queue);
    queue.hold(A, &name("x"));
    let again = Some(RequeueAt::at(Instant::now() + Duration::from_secs(1)));
    done(&mut queue, A, "x", ReconcileResult::Done { again });
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(pop(&mut queue), None);
    queue.release(A, &name("x"));
    assert_eq!(pop(&mut queue).as_deref(), Some("x"));
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_not_due_any_more() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    queue.forget(A, &name("x"));
    assert_eq!(pop(&mut queue), None);
    assert!(backlog(&queue, A).is_empty());
    queue.push(A, &name("x"), Priority::Resync, TriggerReason::ObjectChanged);
    assert_eq!(pop(&mut queue).as_deref(), Some("x"));
    done(&mut queue, A, "x", ReconcileResult::Gone);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_while_it_runs_is_not_remembered_as_failing() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    assert_eq!(pop(&mut queue).as_deref(), Some("x"));
    queue.forget(A, &name("x"));
    done(&mut queue, A, "x", ReconcileResult::AwaitChange { again: None });
    assert_eq!(queue.depth(A, Instant::now()).failing, 0);
    assert!(backlog(&queue, A).is_empty());
}

#[tokio::test(start_paused = true)]
async fn depth_and_age_can_be_seen() {
    let mut queue = queue();
    change(&mut queue, A, "x");
    tokio::time::advance(Duration::from_secs(3)).await;
    change(&mut queue, A, "y");
    change(&mut queue, A, "x");
    let depth = queue.depth(A, Instant::now());
    assert_eq!((depth.ready, depth.oldest), (2, Duration::from_secs(3)));
    pop(&mut queue);
    let depth = queue.depth(A, Instant::now());
    assert_eq!((depth.ready, depth.running, depth.oldest), (1, 1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn the_depth_is_what_a_look_at_each_object_would_count() {
    let mut queue = queue();
    let mut jobs: Vec<Job> = Vec::new();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let (object, now) = (format!("o{}", random.u8(..8)), Instant::now());
        match random.u8(..12) {
            0..=2 => {
                let priority = [Priority::Change, Priority::Wake, Priority::Retry][random.usize(..3)];
                queue.push(A, &name(&object), priority, TriggerReason::ObjectChanged);
            }
            3 => queue.hold(A, &name(&object)),
            4 | 5 => queue.release(A, &name(&object)),
            6 => queue.forget(A, &name(&object)),
            7 => queue.clock_jumped(now),
            8 => tokio::time::advance(Duration::from_millis(random.u64(..2000))).await,
            9 => jobs.extend(queue.pop(now)),
            _ if jobs.is_empty() => {}
            _ => {
                let job = jobs.swap_remove(random.usize(..jobs.len()));
                let again = Some(RequeueAt {
                    at: now + Duration::from_secs(1),
                    by_clock: random.bool(),
                });
                let verdict = match random.u8(..5) {
                    0 => ReconcileResult::Done { again },
                    1 => ReconcileResult::AwaitChange { again },
                    2 => ReconcileResult::Gone,
                    3 => ReconcileResult::Retry {
                        at_least: Duration::from_secs(2),
                        edited: Duration::ZERO,
                    },
                    _ => DONE,
                };
                end(&mut queue, &job, verdict, Duration::from_millis(1));
            }
        }
        let now = Instant::now();
        assert_eq!(queue.depth(A, now), backlog(&queue, A).counted_depth(now));
    }
}

mod hot_loops {
    use pilothouse_core::status::reason::Reason;
    use pilothouse_core::{Failure, Key, Kind};

    use super::*;

    /// The nth run of a loop: its cause, the object that had changed, and how it ended.
    type RunOfLoop<'a> = &'a dyn Fn(usize) -> (Cause, Option<&'static str>, JobResult);

    fn child(name: &str) -> Key {
        Key::new(Arc::new(Kind::new("", "v1", "Pod")), Name::new(Some("n"), name))
    }

    /// A run that wrote the objects, each with its body.
    fn wrote_these(objects: &[(&str, WrittenBody)]) -> JobResult {
        let mut writes = Writes::default();
        for (object, body) in objects {
            writes.record(&child(object), *body);
        }
        JobResult {
            writes,
            ..JobResult::unchanged(DONE)
        }
    }

    /// A run that wrote the same as always.
    fn wrote(contention: Option<&Arc<Failure>>) -> JobResult {
        JobResult {
            contention: contention.cloned(),
            ..wrote_these(&[("child", WrittenBody::of(&1))])
        }
    }

    /// Runs `x` as often as the queue allows within a time; each run writes and is requested again.
    async fn rage(queue: &mut WorkQueue, time: Duration) -> u32 {
        rage_by(queue, time, Cause::Others, &wrote(None)).await
    }

    /// Runs `x` once for each item, after others, or the host, have changed an object, as soon as the queue allows.
    /// Returns the time that took, and the number of the first run with a hot loop.
    async fn run_all(
        queue: &mut WorkQueue,
        pace: Duration,
        runs: impl IntoIterator<Item = (Cause, Option<&str>, JobResult)>,
    ) -> (Duration, Option<usize>) {
        let (begun, mut told) = (Instant::now(), None);
        for (number, (cause, changed, ended)) in runs.into_iter().enumerate() {
            let object = changed.map(|changed| Arc::new(child(changed)));
            let trigger = Trigger {
                reason: TriggerReason::DependencyChanged,
                object,
            };
            queue.push_for(A, &name("x"), Priority::Wake, cause, trigger);
            let job = loop {
                match queue.pop(Instant::now()) {
                    Some(job) => break job,
                    None => tokio::time::sleep_until(queue.next_due().unwrap()).await,
                }
            };
            if job.hot_loop.is_some() {
                told = told.or(Some(number + 1));
            }
            queue.done(&job, &ended, Instant::now());
            tokio::time::advance(pace).await;
        }
        (begun.elapsed(), told)
    }

    #[tokio::test(start_paused = true)]
    async fn an_ordered_rollout_is_not_slowed() {
        let mut queue = queue();
        let pods: Vec<String> = (0..14).map(|number| format!("pod-{number}")).collect();
        let steps = pods.iter().enumerate().flat_map(|(number, pod)| {
            let made = JobResult {
                reported: true,
                ..wrote_these(&[(pod, WrittenBody::of(&1))])
            };
            // The pod before is ready; then the cache shows the new one, which the status counts.
            let ready = number.checked_sub(1).map(|before| &*pods[before]);
            [(Cause::Others, ready, made), (Cause::Echo, Some(&**pod), reported())]
        });
        let (took, told) = run_all(&mut queue, Duration::from_millis(500), steps).await;
        assert_eq!((took, told), (Duration::from_secs(14), None));
        let torn_down = pods.iter().rev().map(|pod| {
            let pruned = wrote_these(&[(pod, WrittenBody::Gone)]);
            (Cause::Echo, Some(&**pod), pruned)
        });
        let mut queue = self::queue();
        let (took, told) = run_all(&mut queue, Duration::from_secs(1), torn_down).await;
        assert_eq!((took, told), (Duration::from_secs(14), None), "each is another one");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_others_do_not_slow_whoever_follows_them() {
        let follow = |number: usize| {
            let written = wrote_these(&[("child", WrittenBody::of(&number))]);
            let echo = reported();
            [
                (Cause::Others, Some("source"), written),
                (Cause::Echo, Some("child"), echo),
            ]
        };
        let (_, told) = run_all(&mut queue(), Duration::from_secs(1), (0..200).flat_map(follow)).await;
        assert_eq!(told, None, "a source that is changed every two seconds");
        let (_, told) = run_all(&mut queue(), Duration::from_millis(5), (0..200).flat_map(follow)).await;
        assert_eq!(told, None, "or two hundred times a second");
        let by_turns = |number: usize| {
            let body = if number.is_multiple_of(2) {
                WrittenBody::of(&1)
            } else {
                WrittenBody::Gone
            };
            (Cause::Others, Some("source"), wrote_these(&[("child", body)]))
        };
        let (_, told) = run_all(&mut queue(), Duration::from_secs(1), (0..100).map(by_turns)).await;
        assert_eq!(told, None, "a source that comes and goes");
        let canary = |step: usize| {
            let written = wrote_these(&[("child", WrittenBody::of(&step))]);
            (Cause::Others, Some("child"), written)
        };
        let (_, told) = run_all(&mut queue(), Duration::from_secs(1), (0..100).map(canary)).await;
        assert_eq!(told, None, "a child that is changed in steps, each when it is ready");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hot_loop_is_found_within_fifteen_runs() {
        let counted = |number: usize| wrote_these(&[("child", WrittenBody::of(&number))]);
        let loops: [(&str, RunOfLoop<'_>); 8] = [
            ("a counter in a child", &|number| {
                (Cause::Echo, Some("child"), counted(number))
            }),
            ("a clock in a child", &|number| (Cause::Ours, None, counted(number))),
            ("the child of another primary", &|number| {
                (Cause::Ours, Some("other"), counted(number))
            }),
            (
                "a counter in a Deployment, whose controller answers",
                &|number| match number % 2 {
                    0 => (Cause::Echo, Some("child"), counted(number)),
                    _ => (Cause::Others, Some("child"), counted(number)),
                },
            ),
            ("somebody deletes or overwrites a child", &|_| {
                (Cause::Others, Some("child"), counted(1))
            }),
            ("the same while others change something", &|number| match number % 2 {
                0 => (Cause::Others, Some("child"), counted(1)),
                _ => (Cause::Others, Some("source"), counted(1)),
            }),
            ("a child that is made and pruned by turns", &|number| match number % 2 {
                0 => (Cause::Echo, Some("child"), counted(1)),
                _ => (Cause::Echo, Some("child"), wrote_these(&[("child", WrittenBody::Gone)])),
            }),
            ("a child of another name each time", &|number| {
                let [old, new] = [number, number + 1].map(|number| format!("child-{number}"));
                let writes = [(&*old, WrittenBody::Gone), (&*new, WrittenBody::of(&1))];
                (Cause::Echo, None, wrote_these(&writes))
            }),
        ];
        for (what, run) in loops {
            let (_, told) = run_all(&mut queue(), Duration::from_millis(50), (0..20).map(run)).await;
            assert!(told.is_some_and(|told| (10..=15).contains(&told)), "{what}: {told:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_through_what_a_controller_notes_is_found() {
        let noted = |number: usize| {
            let written = wrote_these(&[("child", WrittenBody::of(&number))]);
            (Cause::Others, Some("child"), written)
        };
        let (_, told) = run_all(&mut queue(), Duration::from_millis(50), (0..40).map(noted)).await;
        assert!(told.is_some_and(|told| told <= 25), "{told:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_others_caused_is_no_part_of_a_hot_loop() {
        for (cause, by_itself) in [(Cause::Ours, true), (Cause::Others, false), (Cause::Edit, false)] {
            let mut queue = queue();
            let fight = |_| (Cause::Others, Some("child"), wrote(None));
            run_all(&mut queue, Duration::from_millis(50), (0..12).map(fight)).await;
            queue.push_for(A, &name("x"), Priority::Change, cause, TriggerReason::ObjectChanged);
            let hot_loop = loop {
                match queue.pop(Instant::now()) {
                    Some(job) => {
                        queue.done(&job, &wrote(None), Instant::now());
                        break job.hot_loop.expect("it is slowed");
                    }
                    None => tokio::time::sleep_until(queue.next_due().unwrap()).await,
                }
            };
            assert_eq!(hot_loop.by_itself, by_itself, "{cause:?}");
            assert_eq!(hot_loop.writes.of(&child("child")), Some(WrittenBody::of(&1)));
        }
    }

    /// Runs `x` as often as the queue allows within a time, with this cause and result.
    async fn rage_by(queue: &mut WorkQueue, time: Duration, cause: Cause, ended: &JobResult) -> u32 {
        let mut runs = 0;
        let begun = Instant::now();
        while begun.elapsed() < time {
            queue.push_for(A, &name("x"), Priority::Change, cause, TriggerReason::ObjectChanged);
            match queue.pop(Instant::now()) {
                Some(job) => {
                    runs += 1;
                    queue.done(&job, ended, Instant::now());
                    // Or an edit would go on for ever within a moment.
                    tokio::time::advance(Duration::from_millis(10)).await;
                }
                None => tokio::time::sleep_until(queue.next_due().unwrap()).await,
            }
        }
        runs
    }

    fn reported() -> JobResult {
        JobResult {
            reported: true,
            ..JobResult::unchanged(DONE)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_wakes_its_own_object_again_and_again_is_slowed() {
        let mut queue = queue();
        let runs = rage_by(&mut queue, Duration::from_mins(10), Cause::Ours, &reported()).await;
        assert!((FREE_RUNS..60).contains(&runs), "{runs} runs in ten minutes");
        tokio::time::sleep_until(queue.next_due().unwrap()).await;
        let job = queue.pop(Instant::now()).unwrap();
        assert!(
            job.hot_loop.is_some_and(|hot_loop| hot_loop.of_status),
            "it is known what it is"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_wake_each_other_are_slowed_without_each_writing() {
        let mut queue = queue();
        let mut runs = 0;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_mins(10) {
            queue.push_for(A, &name("x"), Priority::Wake, Cause::Ours, TriggerReason::ObjectChanged);
            match queue.pop(Instant::now()) {
                Some(job) => {
                    runs += 1;
                    let ended = if runs % 2 == 0 {
                        reported()
                    } else {
                        JobResult::unchanged(DONE)
                    };
                    queue.done(&job, &ended, Instant::now());
                }
                None => tokio::time::sleep_until(queue.next_due().unwrap()).await,
            }
        }
        assert!(runs < 150, "{runs} runs in ten minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_follows_a_rollout_may_be_written_more_often() {
        let mut queue = queue();
        let runs = rage_by(&mut queue, Duration::from_millis(500), Cause::Others, &reported()).await;
        assert_eq!(runs, 50, "a rollout of fifty steps is not slowed");
        let runs = rage_by(&mut queue, Duration::from_secs(10), Cause::Others, &reported()).await;
        assert_eq!(runs, 1000, "nor one that others keep going");
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_somebody_takes_back_each_time_is_slowed() {
        for others_between in [0, 1, 2] {
            let mut queue = queue();
            let said = JobResult {
                said: Some(7),
                ..JobResult::unchanged(DONE)
            };
            let (mut runs, mut writes) = (0, 0);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_mins(10) {
                queue.push_for(
                    A,
                    &name("x"),
                    Priority::Change,
                    Cause::Others,
                    TriggerReason::ObjectChanged,
                );
                match queue.pop(Instant::now()) {
                    Some(job) => {
                        runs += 1;
                        let writes_now = runs % (others_between + 1) == 0;
                        writes += u32::from(writes_now);
                        let ended = if writes_now {
                            said.clone()
                        } else {
                            JobResult::unchanged(DONE)
                        };
                        queue.done(&job, &ended, Instant::now());
                        tokio::time::advance(Duration::from_millis(10)).await;
                    }
                    None => tokio::time::sleep_until(queue.next_due().unwrap()).await,
                }
            }
            assert!(
                (FREE_RUNS..60).contains(&writes),
                "{writes} writes in ten minutes, {others_between} between them"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_contention_is_reported_once_where_the_status_is_reverted() {
        let mut queue = queue();
        let contention = Arc::new(Failure::cluster(Reason::Contested, "they fight"));
        let said = JobResult {
            said: Some(7),
            contention: Some(contention.clone()),
            ..JobResult::unchanged(DONE)
        };
        rage_by(&mut queue, Duration::from_secs(3), Cause::Others, &said).await;
        tokio::time::sleep_until(queue.next_due().unwrap()).await;
        let hot_loop = queue.pop(Instant::now()).unwrap().hot_loop.expect("it is slowed");
        assert!(hot_loop.repeats, "{hot_loop:?}");
        assert_eq!(hot_loop.lasting_contention(), None);
        let told = HotLoop {
            contention: Some(contention.clone()),
            ..HotLoop::default()
        };
        assert_eq!(told.lasting_contention(), Some(contention));
    }

    #[tokio::test(start_paused = true)]
    async fn edits_do_not_slow_an_object_but_crashes_do() {
        let mut queue = queue();
        for ended in [wrote(None), reported()] {
            // A reverted write counts, but each edit costs the editor a write, too.
            let runs = rage_by(&mut queue, Duration::from_secs(5), Cause::Edit, &ended).await;
            assert_eq!(runs, 500);
        }
        let failure = Some(Failure::guest(Reason::GuestTrap, "it trapped"));
        let crashed = JobResult {
            failure,
            ..JobResult::unchanged(ReconcileResult::AwaitChange { again: None })
        };
        let runs = rage_by(&mut queue, Duration::from_mins(10), Cause::Edit, &crashed).await;
        assert!((FREE_RUNS..60).contains(&runs), "{runs} runs in ten minutes");
        queue.forget(A, &name("x"));
        change(&mut queue, A, "y");
        assert_eq!(pop(&mut queue).as_deref(), Some("y"), "no other object waits for it");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_in_a_hot_loop_is_slowed_until_it_is_calm() {
        let mut queue = queue();
        let runs = rage(&mut queue, Duration::from_mins(10)).await;
        assert!((FREE_RUNS..60).contains(&runs), "{runs} runs in ten minutes");
        queue.forget(A, &name("x"));
        tokio::time::advance(2 * (LONGEST + CALM)).await;
        change(&mut queue, A, "x");
        let job = queue.pop(Instant::now()).expect("it is calm again");
        assert_eq!(job.hot_loop, None);
        queue.done(&job, &wrote(None), Instant::now());
        change(&mut queue, A, "x");
        assert!(queue.pop(Instant::now()).is_some(), "and may write again at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_without_writes_ends_a_hot_loop_that_is_not_slowed_yet() {
        let mut queue = queue();
        for number in 0..10 * FREE_RUNS {
            queue.push_for(A, &name("x"), Priority::Change, Cause::Ours, TriggerReason::Timer);
            let job = queue.pop(Instant::now()).expect("it is not slowed");
            let ended = wrote_these(&[("child", WrittenBody::of(&number))]);
            queue.done(&job, &ended, Instant::now());
            change(&mut queue, A, "x");
            let job = queue.pop(Instant::now()).expect("it is not slowed");
            assert_eq!(job.hot_loop, None);
            end(&mut queue, &job, DONE, Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_contention_is_kept_until_the_hot_loop_ends() {
        let mut queue = queue();
        rage(&mut queue, Duration::from_secs(3)).await;
        let contention = Arc::new(Failure::cluster(Reason::Contested, "they fight"));
        let told = |job: &Job| {
            let hot_loop = job.hot_loop.as_ref().expect("it is slowed");
            (hot_loop.contention.clone(), hot_loop.over)
        };
        tokio::time::sleep_until(queue.next_due().unwrap()).await;
        let job = queue.pop(Instant::now()).unwrap();
        assert_eq!(told(&job), (None, false), "nobody has found out yet");
        queue.done(&job, &wrote(Some(&contention)), Instant::now());

        tokio::time::sleep_until(queue.lanes[&A].backlog.next_due().unwrap() - CALM).await;
        change(&mut queue, A, "x");
        let job = queue.pop(Instant::now()).unwrap();
        assert_eq!(told(&job), (Some(contention.clone()), false));
        end(&mut queue, &job, DONE, Duration::ZERO);

        let calm = queue.next_due().expect("it runs again when the hot loop may be over");
        tokio::time::sleep_until(calm).await;
        let job = queue.pop(Instant::now()).unwrap();
        assert_eq!(told(&job), (Some(contention.clone()), true));
        assert_eq!(
            job.trigger.reason,
            TriggerReason::HotLoop,
            "the plugin has asked for nothing"
        );
        end(&mut queue, &job, DONE, Duration::ZERO);
        assert_eq!(queue.next_due(), None);
        assert!(backlog(&queue, A).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_after_a_calm_is_still_in_the_hot_loop() {
        let mut queue = queue();
        let mut runs = 0;
        change(&mut queue, A, "x");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_mins(20) {
            let Some(job) = queue.pop(Instant::now()) else {
                tokio::time::sleep_until(queue.next_due().unwrap()).await;
                continue;
            };
            runs += 1;
            queue.done(&job, &wrote(None), Instant::now());
            // Nobody asks for it while it is slowed.
            if runs <= FREE_RUNS {
                change(&mut queue, A, "x");
            }
        }
        assert!((20..60).contains(&runs), "{runs} runs in twenty minutes");
    }
}
