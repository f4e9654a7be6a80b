//! Traces reconciles: a span for each, with one for each of its stages, the guest's log lines as events, and links to
//! its cause: the previous run, or the run that wrote the changed object. Off unless a sink is set, at the cost of one
//! check. No decision depends on it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_core::plugin::contract::LogLevel;
use pilothouse_core::text::printable::shorten;
use pilothouse_core::{Failure, Key};
use pilothouse_traces::{FinishedSpan, SpanContext, SpanEvent, SpanLink, SpanOutcome, SpanSink, Value};
use tokio::time::Instant;

use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::process::clock::WallClock;
use crate::queue::{Job, JobResult, TriggerReason};

/// The most runs and the most written objects that links may refer to.
const MOST_LINKED: usize = 10_000;

/// The most log lines in a call's span, and the longest of them in bytes; the log has all.
const MOST_LINES: usize = 64;
const LONGEST_LINE: usize = 1024;

/// Sink of spans, and the ratio of traced reconciles.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// Sink of the spans.
    pub sink: SpanSink,
    /// Ratio of reconciles that are traced, from 0 to 1.
    pub ratio: f64,
}

/// The traces of a host.
pub struct Traces(Option<Tracer>);

struct Tracer {
    options: TraceOptions,
    clock: WallClock,
    links: Mutex<Links>,
}

/// Spans that links may refer to.
#[derive(Default)]
struct Links {
    running: HashMap<PrimaryRef, SpanContext>,
    runs: HashMap<PrimaryRef, SpanContext>,
    writes: HashMap<Key, SpanContext>,
}

/// Trace of one reconcile, if it is traced. Clones share it.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<RunningTrace>>);

struct RunningTrace {
    root: SpanContext,
    /// Links to its cause. Looked up at the start: the run may write again the object that triggered it.
    links: Vec<SpanLink>,
    sink: SpanSink,
    /// Start in nanoseconds since the epoch, and on the monotonic clock.
    began: u64,
    since: Instant,
    lines: Mutex<Lines>,
}

/// Log lines of the guest in the current stage.
#[derive(Default)]
struct Lines {
    kept: Vec<SpanEvent>,
    dropped: u32,
}

/// A running stage; its span ends on drop.
pub struct Stage {
    trace: Arc<RunningTrace>,
    name: &'static str,
    start: u64,
}

impl Traces {
    /// Makes traces with these options; `None`: nothing is traced.
    pub fn new(options: Option<TraceOptions>, clock: &WallClock) -> Self {
        Self(options.map(|options| Tracer {
            options,
            clock: clock.clone(),
            links: Mutex::default(),
        }))
    }

    /// Begins the trace of a reconcile.
    pub fn begin(&self, primary_ref: &PrimaryRef, job: &Job) -> Trace {
        let Some(Tracer { options, clock, links }) = &self.0 else {
            return Trace::default();
        };
        if fastrand::f64() >= options.ratio {
            // A link to an earlier run would hide this one.
            links.lock().forget(primary_ref);
            return Trace::default();
        }
        let root = SpanContext::root();
        let links = {
            let mut known = links.lock();
            known.running.insert(primary_ref.clone(), root);
            known.of(primary_ref, job)
        };
        Trace(Some(Arc::new(RunningTrace {
            root,
            links,
            sink: options.sink.clone(),
            began: clock.now().saturating_mul(1_000_000),
            since: Instant::now(),
            lines: Mutex::default(),
        })))
    }

    /// Records that a primary writes an object.
    pub fn wrote(&self, key: &Key, primary_ref: &PrimaryRef) {
        let Some(Tracer { links, .. }) = &self.0 else { return };
        let mut links = links.lock();
        match links.running.get(primary_ref).copied() {
            Some(context) => remember(&mut links.writes, key.clone(), context),
            // A write of an earlier run is not the cause of later triggers.
            None => drop(links.writes.remove(key)),
        }
    }

    /// Ends the trace of a reconcile.
    pub fn end(&self, trace: Trace, primary_ref: &PrimaryRef, lane: &Lane, job: &Job, ended: &JobResult) {
        let (Some(Tracer { links, .. }), Trace(Some(trace))) = (&self.0, trace) else {
            return;
        };
        {
            let mut known = links.lock();
            known.running.remove(primary_ref);
            remember(&mut known.runs, primary_ref.clone(), trace.root);
        }
        let mut attributes = vec![
            ("pilothouse.plugin", Value::from(&*lane.plugin)),
            ("pilothouse.controller", Value::from(lane.controller.as_str())),
            ("pilothouse.object.kind", Value::from(lane.grants.primary().title())),
            ("pilothouse.object.name", Value::from(&*job.name.name)),
            ("pilothouse.trigger", Value::from(job.trigger.reason.as_str())),
            ("pilothouse.queued_ms", milliseconds(job.waited)),
            ("pilothouse.call_ms", milliseconds(ended.used)),
            ("pilothouse.failures_before", Value::from(u64::from(job.failures))),
            (
                "pilothouse.wrote",
                Value::from(!ended.writes.is_empty() || ended.said.is_some()),
            ),
        ];
        if let Some(namespace) = &job.name.namespace {
            attributes.push(("k8s.namespace.name", Value::from(&**namespace)));
        }
        if let Some(object) = &job.trigger.object {
            attributes.push(("pilothouse.trigger.object", Value::from(object.to_string())));
        }
        if let Some(Failure { blame, reason, .. }) = &ended.failure {
            attributes.push(("pilothouse.failure.blame", Value::from(blame.to_string())));
            attributes.push(("pilothouse.failure.reason", Value::from(reason.as_str())));
        }
        let failure = ended.failure.as_ref();
        trace.sink.put(FinishedSpan {
            context: trace.root,
            parent: None,
            name: "reconcile",
            start: trace.began,
            end: trace.now(),
            attributes,
            events: Vec::new(),
            dropped_events: 0,
            links: trace.links.clone(),
            outcome: failure.map_or(SpanOutcome::Unset, |failure| {
                SpanOutcome::Error(shorten(failure.message.clone(), LONGEST_LINE))
            }),
        });
    }
}

fn milliseconds(time: std::time::Duration) -> Value {
    Value::from(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

impl Links {
    /// Forgets earlier runs of a primary whose present run is not traced.
    fn forget(&mut self, primary_ref: &PrimaryRef) {
        self.running.remove(primary_ref);
        self.runs.remove(primary_ref);
    }

    /// Links to the cause of a job, as far as that was traced.
    fn of(&self, primary_ref: &PrimaryRef, job: &Job) -> Vec<SpanLink> {
        let written = job
            .trigger
            .object
            .as_ref()
            .and_then(|object| self.writes.get(&**object));
        let written = written.map(|to| SpanLink {
            to: *to,
            reason: "wrote_trigger",
        });
        let follows = matches!(
            job.trigger.reason,
            TriggerReason::Retry
                | TriggerReason::Timer
                | TriggerReason::HotLoop
                | TriggerReason::WriteOvertaken
                | TriggerReason::Watchdog
        );
        let before = self.runs.get(primary_ref).filter(|_| follows).map(|to| SpanLink {
            to: *to,
            reason: "previous_run",
        });
        written.into_iter().chain(before).collect()
    }
}

/// Remembers a span, and drops all earlier ones if there are too many.
fn remember<K: Eq + Hash>(known: &mut HashMap<K, SpanContext>, key: K, context: SpanContext) {
    if known.len() >= MOST_LINKED && !known.contains_key(&key) {
        known.clear();
    }
    known.insert(key, context);
}

impl Trace {
    /// Runs a stage within a span of this name.
    pub async fn within<F: Future>(&self, name: &'static str, stage: F) -> F::Output {
        let _stage = self.stage(name);
        stage.await
    }

    /// Begins a stage; its span ends when the returned guard is dropped.
    pub fn stage(&self, name: &'static str) -> Option<Stage> {
        let trace = self.0.clone()?;
        let start = trace.now();
        Some(Stage { trace, name, start })
    }

    /// Records a log line of the guest.
    pub fn line(&self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let Some(trace) = &self.0 else { return };
        let mut lines = trace.lines.lock();
        if lines.kept.len() >= MOST_LINES {
            lines.dropped = lines.dropped.saturating_add(1);
            return;
        }
        let level = format!("{level:?}").to_uppercase();
        let text = |text: &str| Value::Text(shorten(text.to_owned(), LONGEST_LINE));
        let more = fields
            .iter()
            .map(|(name, value)| (shorten(name.clone(), LONGEST_LINE), text(value)));
        let attributes = [
            ("level".to_owned(), Value::Text(level)),
            ("message".to_owned(), text(message)),
        ];
        lines.kept.push(SpanEvent {
            time: trace.now(),
            name: "log".to_owned(),
            attributes: attributes.into_iter().chain(more).collect(),
        });
    }
}

impl RunningTrace {
    fn now(&self) -> u64 {
        let passed = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.began.saturating_add(passed)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let Self { trace, name, start } = self;
        let Lines { kept, dropped } = std::mem::take(&mut *trace.lines.lock());
        trace.sink.put(FinishedSpan {
            context: trace.root.sibling(),
            parent: Some(trace.root.span),
            name,
            start: *start,
            end: trace.now(),
            attributes: Vec::new(),
            events: kept,
            dropped_events: dropped,
            links: Vec::new(),
            outcome: SpanOutcome::Unset,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pilothouse_traces::{ExportOptions, Exporter};

    use super::*;
    use crate::queue::{ReconcileResult, Trigger};
    use crate::test_support::{TestHost, child_kind, controller, name, primary};

    #[tokio::test(start_paused = true)]
    async fn a_link_refers_to_the_previous_run_only_if_it_was_traced() {
        let host = TestHost::new().await;
        let lane = host.lane("p", controller(&[]));
        let options = ExportOptions {
            endpoint: "http://127.0.0.1:9/v1/traces".parse().unwrap(),
            instance: "test".to_owned(),
            version: "1",
        };
        let (_exporter, sink) = Exporter::new(options).unwrap();
        let mut traces = Traces::new(Some(TraceOptions { sink, ratio: 1.0 }), &WallClock::starting_at(0));
        let key = Key {
            kind: child_kind().into(),
            name: name("child"),
        };
        let job = |trigger: Trigger| Job {
            lane: lane.id,
            name: name("a"),
            failures: 0,
            hot_loop: None,
            trigger,
            waited: Duration::ZERO,
        };
        let retried = || {
            job(Trigger {
                reason: TriggerReason::Retry,
                object: None,
            })
        };
        let changed = || job(Trigger::of(TriggerReason::ChildChanged, Arc::new(key.clone())));
        let (it, other) = (primary(&lane, "a"), primary(&lane, "b"));
        // A run that writes the child: its span, as far as it has one, and what the trace of the next runs is linked to.
        let run = |traces: &Traces| {
            let trace = traces.begin(&it, &retried());
            let links = trace.0.as_ref().map(|trace| trace.links.clone());
            traces.wrote(&key, &it);
            let ended = JobResult::unchanged(ReconcileResult::Done { again: None });
            traces.end(trace, &it, &lane, &retried(), &ended);
            links
        };
        let linked = |traces: &Traces| traces.begin(&other, &changed()).0.unwrap().links.len();
        assert_eq!(run(&traces).map(|links| links.len()), Some(0));
        assert_eq!(run(&traces).map(|links| links.len()), Some(1), "to the run before");
        assert_eq!(linked(&traces), 1, "to the run that wrote the child");
        traces.0.as_mut().unwrap().options.ratio = 0.0;
        assert!(run(&traces).is_none(), "it is not traced");
        traces.0.as_mut().unwrap().options.ratio = 1.0;
        assert_eq!(linked(&traces), 0);
        assert_eq!(run(&traces).map(|links| links.len()), Some(0));
    }
}
