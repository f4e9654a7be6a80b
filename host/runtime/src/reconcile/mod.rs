//! Reconciles one object: six stages, each in its own file. Each takes the type that the one before it returns.
//!
//! gather and diff read the cache; invoke runs the guest; validate checks the answer and records the reads; apply and
//! report make requests. Beside them, `collect` deletes children of deleted primaries, `finalize` handles the plugin's
//! finalizer, and `preview` replaces apply and report for a plugin in preview.
//!
//! The fields of these types are public within the crate, so the order is kept by [`reconcile`] alone. It deviates from it in these
//! cases: a primary that has left the filter, and one that is not selected by a Plugin that deletes what it does not select, have their
//! children pruned with an empty answer; one that is deleted with `orphan` lets go of them; a failure before the call goes straight to
//! the report. Before the report, the failure of the finalizer or the finding of `contest` is added to what `apply` returned.
//!
//! The finalizer is set before the call. The reconcile then ends, and the next one begins when the cache shows the finalizer. It is removed
//! when a primary that is being deleted has no children left. For a primary outside of `spec.namespaces` a Plugin writes nothing:
//! children stay as they are and are counted, its finalizer is removed, and its claims are withdrawn.
//!
//! For a paused primary the plugin is not called, and only a condition is written. One that is paused during a reconcile gets no further
//! write: the steps that are left change nothing, and there is no report. What is written depends on the annotation alone, so hosts that
//! overlap agree. A pause does not hold back what ends the primary for its Plugin: its deletion, that of the Plugin, and
//! `spec.namespaces`.

mod admit;
mod apply;
pub mod cleanup;
mod contest;
pub mod contribute;
mod diff;
pub mod finalize;
mod gather;
mod invoke;
mod preview;
mod report;
pub mod status;
mod validate;
pub mod write;

use std::sync::Arc;
use std::time::Duration;

use crate::context::HostContext;
use crate::context::competing_plugins::is_reconciled_by_another;
use crate::lanes::custody::is_orphaning;
use crate::lanes::lane::{Lane, RunMode};
use crate::lanes::primary::PrimaryRef;
use crate::queue::{Job, JobResult, ReconcileResult, RequeueAt, TriggerReason, Writes, WrittenBody};
use crate::telemetry::traces::Trace;
use pilothouse_cluster::apart::weigh;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Key, Name, Retry};

pub use crate::reconcile::write::requests::{is_shared, release_child};
pub use finalize::release_all;
use report::StatusWrite;

/// Reconciles one object once.
pub async fn reconcile(host: &Arc<HostContext>, lane: &Arc<Lane>, job: &Job) -> JobResult {
    let primary_ref = PrimaryRef {
        lane: job.lane,
        name: job.name.clone(),
    };
    if job.trigger.reason == TriggerReason::Requested {
        // Whoever requests it wants to know why it still fails.
        host.failure_log.recovered(&primary_ref);
    }
    let trace = host.traces.begin(&primary_ref, job);
    let ended = Box::pin(reconcile_traced(host, lane, job, &primary_ref, &trace)).await;
    host.traces.end(trace, &primary_ref, lane, job, &ended);
    if ended.failure.is_none() {
        host.failure_log.recovered(&primary_ref);
    }
    ended
}

async fn reconcile_traced(
    host: &Arc<HostContext>,
    lane: &Arc<Lane>,
    job: &Job,
    primary_ref: &PrimaryRef,
    trace: &Trace,
) -> JobResult {
    let collected = match lane.mode {
        RunMode::Active | RunMode::Finishing => {
            let collecting = Box::pin(cleanup::collect::collect(host, lane, primary_ref));
            trace.within("collect", collecting).await
        }
        RunMode::Preview => Ok(()),
    };
    let gathered = trace.within("gather", async { gather::gather(host, lane, job) }).await;
    let mut ended = match gathered {
        gather::GatherResult::Selected(gathered)
            if has_gone_with_a_child(host, lane, primary_ref, &gathered.object).await =>
        {
            // The primary's watch is behind, and will requeue it.
            JobResult::unchanged(ReconcileResult::Done { again: None })
        }
        gather::GatherResult::Selected(gathered)
            if cleanup::orphan::was_missed(host, lane, primary_ref, &gathered.object, &gathered.owner).await =>
        {
            let gather::Gathered { object, owner, .. } = gathered;
            orphaned(host, lane, primary_ref, gather::ExcludedPrimary { object, owner }).await
        }
        gather::GatherResult::Selected(gathered)
            if gathered.object.deleting && !lane.finalizers_of(&gathered.object).any(|it| lane.declares(it)) =>
        {
            Box::pin(finalize_former(host, lane, primary_ref, job, gathered, trace)).await
        }
        gather::GatherResult::Selected(gathered) => {
            weigh(gathered.object.bytes()).await;
            Box::pin(reconcile_selected(host, lane, primary_ref, job, gathered, trace)).await
        }
        gather::GatherResult::Paused(gathered) => pause(host, lane, primary_ref, job, &gathered).await,
        gather::GatherResult::Filtered(left) => leave(host, lane, primary_ref, left).await,
        gather::GatherResult::Orphaning(left) => orphaned(host, lane, primary_ref, left).await,
        gather::GatherResult::Unselected(left) => unselect(host, lane, primary_ref, left).await,
        gather::GatherResult::Gone => {
            host.state.forget_primary(lane, primary_ref);
            JobResult::unchanged(ReconcileResult::Gone)
        }
        gather::GatherResult::Kept => JobResult::unchanged(ReconcileResult::Done { again: None }),
    };
    if let Err(failure) = collected {
        if host.failure_log.take_news(lane, primary_ref, &failure) {
            tracing::warn!(lane = lane.title(), object = %primary_ref.name, %failure, "cannot collect what an object left");
        }
        if matches!(ended.verdict, ReconcileResult::Done { .. } | ReconcileResult::Gone) {
            ended.verdict = verdict(Some(&failure), None);
            ended.failure = Some(failure);
        }
    }
    ended
}

/// Returns `true` if a primary that has lost a child, or a child's owner reference, to another writer is deleted or
/// being deleted. If its own watch is behind that of the child, for example during a relist, the cache does not show
/// that: the child would be recreated and collected again and again. An API server that does not answer is no reason to
/// wait.
async fn has_gone_with_a_child(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> bool {
    if !host.state.take_lost_child(primary_ref) || object.deleting {
        return false;
    }
    let Some(served) = lane.served(lane.grants.primary()) else {
        return false;
    };
    let is_gone = match lane.writer.live(&served, &primary_ref.name).await {
        Ok(Some(live)) if live.object.uid == object.uid => {
            if is_orphaning(&live.object) {
                host.state.orphan(&object.uid);
            }
            live.object.deleting
        }
        Ok(_) => true,
        Err(_) => false,
    };
    if !is_gone {
        host.state.forget_unbound(lane, &object.uid);
    }
    is_gone
}

/// Finalizes an object that is being deleted and has only the finalizer of an earlier version, if the host has set that.
async fn finalize_former(
    host: &Arc<HostContext>,
    lane: &Arc<Lane>,
    primary_ref: &PrimaryRef,
    job: &Job,
    gathered: gather::Gathered,
    trace: &Trace,
) -> JobResult {
    match finalize::former_finalizers(host, lane, primary_ref, &gathered.object).await {
        Ok(ours) if ours.is_empty() => {
            host.state.forget_primary(lane, primary_ref);
            JobResult::unchanged(ReconcileResult::Gone)
        }
        Ok(_) if lane.finalizer.is_some() => {
            Box::pin(reconcile_selected(host, lane, primary_ref, job, gathered, trace)).await
        }
        Ok(_) if lane.mode == RunMode::Preview => without_writes(None),
        // This version has nothing to do before the object goes.
        Ok(_) => {
            let released = finalize::release_unconditionally(host, lane, primary_ref, &gathered.object);
            without_writes(released.await.err())
        }
        Err(failure) => told(host, lane, primary_ref, &gathered, failure).await,
    }
}

async fn reconcile_selected(
    host: &Arc<HostContext>,
    lane: &Arc<Lane>,
    primary_ref: &PrimaryRef,
    job: &Job,
    gathered: gather::Gathered,
    trace: &Trace,
) -> JobResult {
    let object = &gathered.object;
    if let Some(failure) = &gathered.unreadable {
        if lane.mode == RunMode::Preview {
            return previewed(host, lane, primary_ref, Err(failure.clone())).await;
        }
        return told(host, lane, primary_ref, &gathered, failure.clone()).await;
    }
    if lane.mode == RunMode::Active && !object.deleting {
        let set = finalize::set(host, lane, primary_ref, object);
        match trace.within("set_finalizer", set).await {
            Ok(false) => {}
            Ok(true) => {
                return JobResult {
                    writes: finalizer_write(lane, primary_ref),
                    ..without_writes(None)
                };
            }
            Err(failure) => return told(host, lane, primary_ref, &gathered, failure).await,
        }
    }
    let invoking = invoke::invoke(host, lane, &gathered, trace);
    let mut invoked = trace.within("invoke", invoking).await;
    // Held until the answer has been carried out and reported.
    let _room = invoked.make_room(host, lane, Some(primary_ref)).await;
    let (used, is_done) = (invoked.used, invoked.is_done);
    let wake_at = invoked.view.as_ref().and_then(|view| view.wake_at);
    let validate = validate::validate(host, lane, &gathered, primary_ref, invoked);
    let validated = trace.within("validate", validate).await;
    let planned = match validated {
        Ok(answer) => Ok(trace.within("diff", plan(host, lane, job, &gathered, answer)).await),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = &planned
        && failure.reason == Reason::NotSynced
        && !host.state.is_open(lane.id)
    {
        // A kind was removed during the call. Everything is reconciled again when the lane opens; until then the lane's
        // closing has reported all there is.
        return without_writes(Some(failure.clone()));
    }
    if lane.mode == RunMode::Preview {
        return JobResult {
            used,
            ..previewed(host, lane, primary_ref, planned).await
        };
    }
    let contention = match &planned {
        Ok(planned) => contest::find_contention(lane, job, object, planned).await,
        Err(_) => None,
    };
    let applied = match planned {
        Ok(planned) => {
            let _stage = trace.stage("apply");
            apply::apply(host, lane, primary_ref, Some(object), planned).await
        }
        Err(failure) => apply::Applied {
            wake_at,
            ..apply::Applied::nothing(failure)
        },
    };
    if host.state.is_paused(lane, &job.name) {
        return interrupted(used, applied.writes);
    }
    let (again, writes) = (applied.again(host), applied.writes.clone());
    let mut unreleased = None;
    if is_done && applied.failure.is_none() {
        let release = finalize::release(host, lane, primary_ref, object);
        match trace.within("release_finalizer", release).await {
            Ok(()) => return without_writes(None),
            Err(failure) => unreleased = Some(failure),
        }
    }
    let to_report = apply::Applied {
        // A plugin that is done has nothing more to report; its last status stays.
        answer: applied.answer.filter(|_| !is_done),
        failure: applied
            .failure
            .or(unreleased)
            .or_else(|| contention.as_deref().cloned()),
        ..applied
    };
    let stage = trace.stage("report");
    let reported = report::report(host, lane, primary_ref, &gathered, to_report).await;
    drop(stage);
    let said = reported.said();
    if said.is_some() && job.hot_loop.as_ref().is_some_and(|hot_loop| hot_loop.repeats) {
        tracing::warn!(
            lane = lane.title(), object = %job.name,
            "the status is written again and again, because somebody takes it back; does another host run the same plugin?"
        );
    }
    let report::Reported { failure, written } = reported;
    JobResult {
        verdict: verdict(failure.as_ref(), again),
        used,
        writes,
        reported: counts(&written, job),
        said,
        failure,
        contention,
    }
}

/// Compares an answer with the cache.
async fn plan(
    host: &HostContext,
    lane: &Lane,
    job: &Job,
    gathered: &gather::Gathered,
    answer: validate::Validated,
) -> diff::Planned {
    let is_resync = job.trigger.reason == TriggerReason::Resync;
    diff::Planned {
        sends_refused: job.trigger.reason == TriggerReason::Requested,
        ..diff::diff(host, lane, &gathered.owner, answer, is_resync).await
    }
}

/// Ends a reconcile whose primary was paused meanwhile; the next one reports that.
fn interrupted(used: Duration, writes: Writes) -> JobResult {
    JobResult {
        used,
        writes,
        ..without_writes(None)
    }
}

/// Reports a reconcile that failed before the plugin was called.
async fn told(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    gathered: &gather::Gathered,
    failure: Failure,
) -> JobResult {
    let applied = apply::Applied::nothing(failure);
    let reported = report::report(host, lane, primary_ref, gathered, applied).await;
    JobResult {
        said: reported.said(),
        ..without_writes(reported.failure)
    }
}

/// The finalizer of a primary as a write: repeated only if another writer removes it.
fn finalizer_write(lane: &Lane, primary_ref: &PrimaryRef) -> Writes {
    let key = Key::new(Arc::new(lane.grants.primary().clone()), primary_ref.name.clone());
    let mut writes = Writes::default();
    writes.record(&key, WrittenBody::of(&lane.finalizer));
    writes
}

/// Reports that a primary waits because its controller does not run. Returns the failure of that report.
pub async fn report_waiting(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: Arc<CachedObject>,
    failure: Failure,
) -> Option<Failure> {
    let gathered = gather::Gathered::unasked(lane, object, Some(failure.clone()));
    let applied = apply::Applied::nothing(failure.clone());
    let reported = report::report(host, lane, primary_ref, &gathered, applied).await;
    reported.failure.filter(|told| *told != failure)
}

/// Returns `true` if the write of a status counts for the hot-loop limiter.
fn counts(written: &StatusWrite, job: &Job) -> bool {
    match written {
        StatusWrite::Nothing => false,
        // In a hot loop the host reports that, and reports otherwise when it is over.
        StatusWrite::OfHost(_) => job.hot_loop.is_none(),
        StatusWrite::OfPlugin(_) => true,
    }
}

/// Calls a lane's plugin for an object on trial, and returns its failure. The answer is dropped: plugins are pure.
pub async fn try_out(host: &Arc<HostContext>, lane: &Arc<Lane>, name: &Name) -> Option<Failure> {
    let job = Job {
        lane: lane.id,
        name: name.clone(),
        failures: 0,
        hot_loop: None,
        trigger: TriggerReason::NewVersion.into(),
        waited: Duration::ZERO,
    };
    let gather::GatherResult::Selected(gathered) = gather::gather(host, lane, &job) else {
        return None;
    };
    if gathered.unreadable.is_some() {
        return None;
    }
    let mut invoked = invoke::invoke(host, lane, &gathered, &Trace::default()).await;
    let _room = invoked.make_room(host, lane, None).await;
    validate::check(lane, &gathered, invoked.result).err()
}

/// Reports that an object is paused, and changes nothing else.
async fn pause(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    job: &Job,
    gathered: &gather::Gathered,
) -> JobResult {
    let is_reconciled = lane.reconciles(&gathered.object);
    host.state.pause(lane, primary_ref, is_reconciled);
    if !is_reconciled || lane.mode == RunMode::Preview {
        return without_writes(None);
    }
    let reported = report::report_paused(host, lane, primary_ref, gathered).await;
    if let Some(failure) = &reported.failure
        && host.failure_log.take_news(lane, primary_ref, failure)
    {
        tracing::warn!(lane = lane.title(), object = %primary_ref.name, %failure, "cannot report that an object is paused");
    }
    JobResult {
        reported: counts(&reported.written, job),
        said: reported.said(),
        ..without_writes(reported.failure)
    }
}

/// Cleans up after an object that has left the filter: nothing is desired of it any more.
async fn leave(
    host: &Arc<HostContext>,
    lane: &Arc<Lane>,
    primary_ref: &PrimaryRef,
    left: gather::ExcludedPrimary,
) -> JobResult {
    let gather::ExcludedPrimary { object, owner } = left;
    host.state.leave_filter(lane, primary_ref);
    let planned = diff::diff(host, lane, &owner, validate::Validated::nothing(), false).await;
    if lane.mode == RunMode::Preview {
        return previewed(host, lane, primary_ref, Ok(planned)).await;
    }
    let applied = apply::apply(host, lane, primary_ref, None, planned).await;
    let is_held = lane.has_finalized(&object);
    let failure = match applied.failure {
        None => finalize::release(host, lane, primary_ref, &object).await.err(),
        failure => failure,
    };
    if let Some(failure) = &failure {
        tracing::warn!(lane = lane.title(), object = %primary_ref.name, %failure, "cannot clean up after an object");
    }
    let mut writes = applied.writes;
    if is_held {
        writes.extend(finalizer_write(lane, primary_ref));
    }
    JobResult {
        writes,
        ..without_writes(failure)
    }
}

/// Releases the children of an object that is deleted with orphan propagation.
async fn orphaned(
    host: &Arc<HostContext>,
    lane: &Arc<Lane>,
    primary_ref: &PrimaryRef,
    left: gather::ExcludedPrimary,
) -> JobResult {
    let gather::ExcludedPrimary { object, owner } = left;
    if lane.mode == RunMode::Preview {
        return without_writes(None);
    }
    let let_go = cleanup::orphan::release_orphaned(host, lane, primary_ref, &object, &owner).await;
    if let Err(failure) = &let_go
        && host.failure_log.take_news(lane, primary_ref, failure)
    {
        tracing::warn!(
            lane = lane.title(), object = %primary_ref.name, %failure,
            "cannot let go of an object that is deleted with `orphan`"
        );
    }
    let writes = match let_go {
        Ok(true) => finalizer_write(lane, primary_ref),
        Ok(false) | Err(_) => Writes::default(),
    };
    JobResult {
        writes,
        ..without_writes(let_go.err())
    }
}

/// Releases an object in a namespace that the Plugin no longer selects. Its children stay, unless the Plugin prunes
/// them. If another Plugin selects the object, everything is left to that one.
async fn unselect(
    host: &Arc<HostContext>,
    lane: &Arc<Lane>,
    primary_ref: &PrimaryRef,
    left: gather::ExcludedPrimary,
) -> JobResult {
    let gather::ExcludedPrimary { object, owner } = left;
    host.state.forget_primary(lane, primary_ref);
    let is_handed_over = is_reconciled_by_another(&host.state.lanes(), lane, &object);
    if lane.mode != RunMode::Active || is_handed_over {
        return JobResult::unchanged(ReconcileResult::Done { again: None });
    }
    let mut failure = None;
    if lane.prunes_unselected {
        let planned = diff::diff(host, lane, &owner, validate::Validated::nothing(), false).await;
        failure = apply::apply(host, lane, primary_ref, None, planned).await.failure;
    }
    if failure.is_none() {
        failure = finalize::unselect(host, lane, primary_ref, &object).await.err();
    }
    if let Some(failure) = &failure
        && host.failure_log.take_news(lane, primary_ref, failure)
    {
        tracing::warn!(
            lane = lane.title(), object = %primary_ref.name, %failure,
            "cannot let go of an object outside of spec.namespaces; retrying"
        );
    }
    without_writes(failure)
}

/// Ends a reconcile in preview; a failure is stored and logged.
async fn previewed(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    planned: Result<diff::Planned, Failure>,
) -> JobResult {
    let failure = match planned {
        Ok(planned) => preview::preview(host, lane, primary_ref, &planned).await.err(),
        Err(failure) => Some(failure),
    };
    if let Some(failure) = &failure {
        host.state.fail_preview(primary_ref, &failure.message);
    }
    if let Some(failure) = &failure
        && host.failure_log.take_news(lane, primary_ref, failure)
    {
        tracing::warn!(lane = lane.title(), object = %primary_ref.name, %failure, "cannot preview");
    }
    without_writes(failure)
}

/// The result of a reconcile without writes that the queue has to know.
fn without_writes(failure: Option<Failure>) -> JobResult {
    JobResult {
        verdict: verdict(failure.as_ref(), None),
        used: Duration::ZERO,
        writes: Writes::default(),
        reported: false,
        said: None,
        failure,
        contention: None,
    }
}

fn verdict(failure: Option<&Failure>, again: Option<RequeueAt>) -> ReconcileResult {
    match failure {
        None => ReconcileResult::Done { again },
        Some(failure) if failure.retry == Retry::Backoff => ReconcileResult::Retry {
            at_least: failure.at_least,
            edited: failure.wait_after_edit(),
        },
        // The wall clock is an input; a requeue, in contrast, is part of an answer that was not carried out.
        Some(_) => ReconcileResult::AwaitChange {
            again: again.filter(|again| again.by_clock),
        },
    }
}
