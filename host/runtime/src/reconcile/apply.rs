//! The fifth stage: carries out the plan. Makes requests. If one object fails, the others are still applied. If an
//! object that is new in this answer could not be created, nothing is pruned in its namespace.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::write::LiveObject;
use pilothouse_core::answer::CheckedAnswer;
use pilothouse_core::answer::desired::UnservedObject;
use pilothouse_core::diff::contest::FieldTaker;
use pilothouse_core::diff::yielding;
use pilothouse_core::diff::{Action, Difference, contest};
use pilothouse_core::kubernetes::fields::LeafSemantics;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::kubernetes::values;
use pilothouse_core::kubernetes::values::ValueDifference;
use pilothouse_core::ownership::{Owner, OwnerLink, recreate};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::text::printable::{first_few, shorten};
use pilothouse_core::{Failure, Key, Retry, ownership};
use serde_json::Value;
use tokio::time::Instant;

use super::diff::{Decider, Planned, PlannedObject, is_held_by_collector, key};
use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::queue::{Cause, RequeueAt, TriggerReason, Writes, WrittenBody};
use crate::reconcile::contribute::{Contributed, ResumeSlot, contribute};
use crate::reconcile::write::collision::{Clearing, Successor};
use crate::reconcile::write::order::{OncePlan, Order, is_made};
use crate::reconcile::write::requests::{Deleted, Requests, version};
use crate::reconcile::write::takeover;
use crate::state::tables::history::Revert;
use crate::state::tables::refusals::RefusedPart;
use crate::state::tables::unpersisted::UnpersistedApply;
use crate::state::tables::visibility;

/// The most fields of a revert that are recorded, the longest of them in bytes, and the most managers.
const NAMED_FIELDS: usize = 5;
const LONGEST_FIELD: usize = 256;
const NAMED_TAKERS: usize = 3;

/// Result of the fifth stage, for the report.
#[derive(Default)]
pub struct Applied {
    /// The plugin's answer; `None` if there was none to carry out.
    pub answer: Option<CheckedAnswer>,
    /// The failure that decides when the object is retried.
    pub failure: Option<Failure>,
    /// Objects that were changed.
    pub writes: Writes,
    /// Desired fields that the server does not store, for the plugin's author.
    pub unpersisted_fields: Vec<String>,
    /// Objects of nobody that were taken over.
    pub adopted: Vec<String>,
    /// Values that the server stores in place of applied ones, for people.
    pub rewritten_values: Vec<String>,
    /// Time at which the answer would change without other changes, in milliseconds since the epoch.
    pub wake_at: Option<u64>,
    /// Slot in which the primary continues, if it had to wait for others.
    pub turn: Option<ResumeSlot>,
}

impl Applied {
    /// The result without any change, because of an earlier failure.
    pub fn nothing(failure: Failure) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }

    /// Time at which the object has to run again if nothing changes.
    pub fn again(&self, host: &HostContext) -> Option<RequeueAt> {
        let asked = self.answer.as_ref().and_then(|answer| answer.requeue_after);
        let moment = self
            .wake_at
            .map(|moment| moment.saturating_sub(host.clock.now()).max(1));
        let wait = [asked, moment].into_iter().flatten().min()?;
        Some(RequeueAt {
            at: Instant::now() + Duration::from_millis(wait),
            by_clock: moment.is_some(),
        })
    }

    /// Records a failure. A failure that time can help with takes precedence over one that waits for a change.
    pub fn fail(&mut self, failure: Failure) {
        match &self.failure {
            Some(first) if first.retry == Retry::Backoff || failure.retry == Retry::Change => {}
            _ => self.failure = Some(failure),
        }
    }
}

/// Carries the plan out.
///
/// Without the primary, nothing is desired and nothing is contributed.
pub async fn apply(
    host: &Arc<HostContext>,
    lane: &Arc<Lane>,
    primary_ref: &PrimaryRef,
    primary: Option<&CachedObject>,
    planned: Planned,
) -> Applied {
    let Planned {
        steps,
        prune,
        later,
        going,
        contributed,
        mut answer,
        owner,
        wake_at,
        sends_refused,
    } = planned;
    let unserved = std::mem::take(&mut answer.unserved);
    let mut work = PlanExecution {
        host,
        lane,
        primary_ref,
        requests: Requests::new(host, lane, primary_ref),
        order: Order::of(&steps, &owner),
        once: OncePlan::of(lane, &steps, &owner, primary),
        owner,
        sends_refused,
        applied: Applied {
            answer: Some(answer),
            wake_at,
            ..Applied::default()
        },
    };
    let desired: Vec<Key> = steps.iter().map(PlannedObject::key).collect();
    let unserved_keys: Vec<Vec<Key>> = unserved.iter().map(|object| object.keys().collect()).collect();
    let was_desired = |key: &Key, failure: &Failure| {
        host.state.was_desired(primary_ref, key)
            || primary.is_some_and(|primary| visibility::is_reported(lane, primary, failure))
    };
    let mut unmade = Vec::new();
    for (object, keys) in unserved.into_iter().zip(&unserved_keys) {
        work.depend_on_unserved(&object);
        unmade.extend(keys.iter().filter(|key| !was_desired(key, &object.failure)));
        work.applied.fail(object.failure);
    }
    for (step, key) in steps.into_iter().zip(&desired) {
        let was_made = is_made(&step, &work.owner);
        if let Err(failure) = work.carry_out(step).await {
            let is_new = !was_made && !was_desired(key, &failure);
            // The server has not answered whether it accepts the object.
            let is_unanswered = matches!(failure.reason, Reason::ClusterUnavailable | Reason::HostFault);
            if is_new || is_unanswered {
                unmade.push(key);
            }
            work.fail_step(failure);
        }
    }
    if let Some(primary) = primary {
        work.note_once(primary).await;
        let targets: Vec<_> = contributed.iter().map(|it| key(&it.served, &it.name)).collect();
        let Contributed { failures, wrote, turn } = contribute(host, lane, primary_ref, primary, contributed).await;
        work.applied.turn = turn;
        for target in targets.iter().filter(|_| wrote) {
            // It also has fields of others; a fight over it slows the target.
            work.applied.writes.record(target, WrittenBody::Unknown);
        }
        for failure in failures {
            work.applied.fail(failure);
        }
    }
    let mut held = HashSet::new();
    let mut staying = Vec::new();
    for (served, child) in prune {
        let namespace = &child.name.namespace;
        if let Some(unmade) = unmade.iter().find(|key| key.name.namespace == *namespace) {
            tracing::info!(
                lane = lane.title(), owner = %primary_ref.name, object = %child.name, kind = %served.kind, %unmade,
                "an object that is no longer desired stays until the new one can be made"
            );
            held.insert(namespace.clone());
            staying.push(format!("{} {}", served.kind.kind, child.name));
            continue;
        }
        if let Err(failure) = work.prune(&served, &child).await {
            work.applied.fail(failure);
        }
    }
    work.leave_for_later(&later);
    for (served, child) in going {
        work.applied.fail(work.wait_for_collector(&served, &child));
    }
    if let Some(failure) = work.applied.failure.as_mut().filter(|_| !staying.is_empty()) {
        // After a restart, the message also tells an object that delays pruning from one that was reported without it.
        let staying = first_few(staying.iter().map(String::as_str));
        failure.message = format!("{}; no longer desired, and kept until then: {staying}", failure.message);
    }
    let holds = |key: &&Key| unmade.contains(key) && held.contains(&key.name.namespace);
    host.state.record_desired(
        primary_ref,
        desired
            .iter()
            .chain(unserved_keys.iter().flatten())
            .filter(|key| !holds(key)),
    );
    work.applied
}

/// Number of times that a step is decided anew because the object has changed meanwhile.
const LOOKS: u32 = 3;

/// Result of a step.
pub enum StepResult {
    /// The step was carried out.
    Done,
    /// The object is not the one that the step was decided for; nothing was changed.
    Outdated(Box<RequestError>),
}

/// The failure of a step that waits until an object is deleted.
pub fn waiting(message: String) -> Failure {
    Failure::cluster(Reason::Waiting, message).retry(Retry::Change)
}

/// A plan that is being carried out.
pub struct PlanExecution<'a> {
    pub(super) host: &'a HostContext,
    pub(super) lane: &'a Lane,
    pub(super) primary_ref: &'a PrimaryRef,
    pub(super) requests: Requests<'a>,
    pub(super) owner: Owner,
    pub(super) sends_refused: bool,
    pub(super) order: Order,
    pub(super) once: OncePlan,
    pub(super) applied: Applied,
}

impl PlanExecution<'_> {
    /// Carries out a step. If the object is not the one that the step was decided for, the step is decided anew from a
    /// live read.
    async fn carry_out(&mut self, mut step: PlannedObject) -> Result<(), Failure> {
        if self.is_held_back() {
            return Ok(());
        }
        let mut looks = 0;
        loop {
            self.wait_for_others(&step)?;
            let error = match self.act(&step).await? {
                StepResult::Done => return Ok(()),
                StepResult::Outdated(error) => error,
            };
            if looks == LOOKS {
                return Err(error.into_failure("apply", &step.desired.title()));
            }
            looks += 1;
            step = self.look_again(step).await?;
        }
    }

    /// Returns `true` if nothing is written for the primary any more; its change has queued it. It is paused, or deleted
    /// with orphan propagation: an owner reference written then would let the garbage collector delete the object.
    pub(super) fn is_held_back(&self) -> bool {
        let name = &self.primary_ref.name;
        self.host.state.holds_writes_back(self.lane, name, &self.owner.uid)
    }

    async fn act(&mut self, step: &PlannedObject) -> Result<StepResult, Failure> {
        match &step.action {
            Action::Nothing => {
                self.recall_unpersisted(step);
                if let Some(live) = &step.live {
                    self.remember_made(step, || live.clone());
                }
                Ok(StepResult::Done)
            }
            Action::Create if self.is_noted(step).await? => Ok(StepResult::Done),
            Action::Create => {
                self.refused_before(step)?;
                self.create(step).await
            }
            Action::Apply(difference) => {
                self.refused_before(step)?;
                self.update_yielding(step, difference).await
            }
            Action::Foreign => {
                self.depend_on_obstacle(step);
                self.refused_before(step)?;
                if self.take_over(step, &self.lane.former_managers).await? {
                    return self.update_yielding(step, &Difference::Desired).await;
                }
                Err(self.foreign(step))
            }
            Action::AdoptUnowned => {
                self.refused_before(step)?;
                if self.take_over(step, &self.lane.former_managers).await? {
                    return self.update_yielding(step, &Difference::Desired).await;
                }
                self.adopt(step).await
            }
            Action::CompetingPlugin(manager) => {
                self.depend_on_obstacle(step);
                self.host.state.wait_for_plugin(manager, self.primary_ref);
                if Decider::new(self.host, self.lane, &self.owner).decide(step).action != step.action {
                    // The plugin released it before this primary was recorded as waiting.
                    self.host
                        .state
                        .requeue(self.primary_ref, Cause::Others, TriggerReason::PluginLeft);
                }
                Err(held_by_plugin(step, manager))
            }
            Action::Adopt(manager) => {
                let mut former = self.lane.former_managers.clone();
                former.push(manager.clone());
                self.take_over(step, &former).await?;
                if step.desired.lifecycle.create_only {
                    return self.rebind(step).await;
                }
                self.update_yielding(step, &Difference::Desired).await
            }
            Action::Rebind => self.rebind(step).await,
            Action::Wait => {
                self.depend_on_obstacle(step);
                Err(waiting(format!(
                    "{} is being deleted; the host recreates it once it is gone",
                    step.desired.title()
                )))
            }
            Action::Inherited => {
                self.depend_on_obstacle(step);
                Err(waiting(format!(
                    "{} belongs to a predecessor of this object and will be collected; it is made again once it is gone",
                    step.desired.title()
                )))
            }
        }
    }

    /// Decides a step anew from a live read of the object. The primary runs again only after the cache shows that
    /// version.
    async fn look_again(&self, step: PlannedObject) -> Result<PlannedObject, Failure> {
        let live = self.requests.live(&step.desired.served, &step.desired.name).await;
        let live = live.map_err(|error| error.into_failure("look at", &step.desired.title()))?;
        let live = live.map(|live| Arc::new(live.object));
        if let Some(live) = &live {
            let key = key(&step.desired.served, &step.desired.name);
            self.host.state.await_version(key, version(live), self.primary_ref);
        }
        let step = PlannedObject { live, ..step };
        let decision = Decider::new(self.host, self.lane, &self.owner).decide(&step);
        Ok(step.with(decision))
    }

    pub(super) fn wrote(&mut self, step: &PlannedObject, body: WrittenBody) {
        let key = key(&step.desired.served, &step.desired.name);
        self.applied.writes.record(&key, body);
    }

    pub(super) fn depend_on_obstacle(&self, step: &PlannedObject) {
        let live = step.live.as_deref();
        self.host
            .state
            .depend_on_obstacle(self.primary_ref, &step.desired.served, &step.desired.name, live);
    }

    /// Waits for the kind of an object. If the cluster serves it since the answer was checked, nobody else would wake the primary.
    fn depend_on_unserved(&self, object: &UnservedObject) {
        let (state, kind) = (&self.host.state, &object.kind);
        state.depend_on_unserved(self.primary_ref, kind, &object.name);
        if self.lane.served(kind).is_some() {
            state.requeue(self.primary_ref, Cause::Others, TriggerReason::Started);
        }
    }

    pub(super) fn foreign(&self, step: &PlannedObject) -> Failure {
        self.depend_on_obstacle(step);
        let failure = Failure::cluster(
            Reason::ForeignObject,
            format!(
                "{} exists and belongs to somebody else, so the host does not change it; delete or rename it, or rename this object",
                step.desired.title()
            ),
        )
        .retry(Retry::Change);
        self.remember_refusal(step, &failure);
        failure
    }

    /// Returns the failure with which the server rejected the same before, if nothing has changed since.
    fn refused_before(&self, step: &PlannedObject) -> Result<(), Failure> {
        let key = key(&step.desired.served, &step.desired.name);
        let live = step.live.as_deref();
        let known = self
            .host
            .state
            .refusal(&key, RefusedPart::Main, &refusal_digest(step), live);
        known.filter(|_| !self.sends_refused).map_or(Ok(()), Err)
    }

    /// Returns the failure of a rejected request, and remembers it if it is permanent.
    pub(super) fn refused(&self, step: &PlannedObject, verb: &str, error: RequestError) -> Failure {
        let failure = match self.without_namespace(step, &error) {
            Some(failure) => failure,
            None => error.into_failure(verb, &step.desired.title()),
        };
        if failure.retry == Retry::Change {
            self.remember_refusal(step, &failure);
        }
        failure
    }

    pub(super) fn remember_refusal(&self, step: &PlannedObject, failure: &Failure) {
        let refused = (key(&step.desired.served, &step.desired.name), RefusedPart::Main);
        let live = step.live.as_deref();
        self.host
            .state
            .record_refusal(refused, &refusal_digest(step), live, failure.clone());
    }

    /// Updates an object that may yield fields: a live read shows who else holds them, and the apply is for that version.
    async fn update_yielding(&mut self, step: &PlannedObject, difference: &Difference) -> Result<StepResult, Failure> {
        let PlannedObject { desired, body, .. } = step;
        if desired.yields.is_empty() {
            return self.update(step, difference).await;
        }
        let live = self.requests.live(&desired.served, &desired.name).await;
        let live = live.map_err(|error| error.into_failure("look at", &desired.title()))?;
        let is_it = |live: &LiveObject| step.live.as_ref().is_some_and(|known| known.uid == live.object.uid);
        let Some(LiveObject { object, managers }) = live.filter(is_it) else {
            return Err(changed_meanwhile(&desired.title()));
        };
        let manager = self.lane.writer.manager();
        let ours = object.entry(manager, false).map(|entry| entry.field_set());
        let others = yielding::others(&managers, manager);
        let step = PlannedObject {
            desired: desired.clone(),
            body: body.clone(),
            digest: step.digest.clone(),
            yielded: yielding::yielded(&desired.yields, body, ours.as_ref(), &others),
            live: Some(Arc::new(object)),
            action: step.action.clone(),
        };
        self.update(&step, difference).await
    }

    async fn update(&mut self, step: &PlannedObject, difference: &Difference) -> Result<StepResult, Failure> {
        let Some(live) = &step.live else {
            return Err(unknown_object(step));
        };
        let held = live.entry(self.lane.writer.manager(), false).is_some();
        if !held && !matches!(step.action, Action::Foreign | Action::AdoptUnowned | Action::Adopt(_)) {
            self.take_over(step, &self.lane.former_managers).await?;
        }
        if *difference == Difference::Values && self.is_another_form(step).await? {
            return Ok(StepResult::Done);
        }
        // An object of an earlier operator, or one that others have changed, is not recreated.
        let is_ours = matches!(step.action, Action::Apply(Difference::Desired)) && held && live.digest.is_some();
        if step.desired.lifecycle.replace && is_ours {
            self.replace_if_other(step).await?;
        }
        if held {
            self.make_again(step).await?;
        }
        let (takers, yields) = (self.takers(step, difference).await, !step.desired.yields.is_empty());
        let object = match self.apply_past_others(step, live).await? {
            Ok(object) => object,
            Err(error) if error.is_about_another_object() || (yields && error.code() == Some(409)) => {
                return Ok(StepResult::Outdated(Box::new(error)));
            }
            Err(error) if error.invalid_fields().is_some() => return Err(self.cannot_be_changed(step, error).await),
            Err(error) => return Err(self.refused(step, "apply", error)),
        };
        let is_changed = object.resource_version != live.resource_version;
        self.wrote(
            step,
            if is_changed {
                WrittenBody::of(&step.digest)
            } else {
                WrittenBody::Unknown
            },
        );
        match difference {
            Difference::Drift(fields) => {
                let managers: Vec<&str> = takers.iter().map(|taker| &*taker.manager).take(NAMED_TAKERS).collect();
                let more = fields.len().saturating_sub(NAMED_FIELDS);
                tracing::info!(
                    lane = self.lane.title(), owner = %self.primary_ref.name, object = step.desired.title(),
                    fields = ?&fields[..fields.len() - more], more, ?managers, "reverted drift"
                );
                self.record_revert(step, fields, takers);
            }
            Difference::Yield(fields) => {
                tracing::info!(
                    lane = self.lane.title(), owner = %self.primary_ref.name, object = step.desired.title(), ?fields,
                    "left fields to another manager"
                );
            }
            Difference::Desired | Difference::Values | Difference::ApiVersion | Difference::Unclear => {
                tracing::info!(lane = self.lane.title(), owner = %self.primary_ref.name, object = step.desired.title(), "updated");
            }
        }
        self.remember_unpersisted(step, &object);
        Ok(StepResult::Done)
    }

    /// Finds the managers that have taken the fields to be set again; empty if that fails. It costs one request for
    /// each drift, because the cache does not keep the fields of others.
    async fn takers(&self, step: &PlannedObject, difference: &Difference) -> Vec<FieldTaker> {
        let Difference::Drift(fields) = difference else {
            return Vec::new();
        };
        let writer = &self.lane.writer;
        let live = writer.live_whole(&step.desired.served, &step.desired.name).await;
        let live = live.ok().flatten().unwrap_or_default();
        contest::takers(fields, &step.body, &live, writer.manager())
    }

    pub(super) fn record_revert(&self, step: &PlannedObject, fields: &[String], mut takers: Vec<FieldTaker>) {
        let named = |fields: &[String]| {
            let named = fields.iter().take(NAMED_FIELDS);
            named.map(|field| shorten(field.clone(), LONGEST_FIELD)).collect()
        };
        takers.truncate(NAMED_TAKERS);
        for taker in &mut takers {
            taker.fields = named(&taker.fields);
        }
        let revert = Revert {
            at: self.host.clock.now(),
            object: Arc::new(key(&step.desired.served, &step.desired.name)),
            takers,
            fields: named(fields),
            more_fields: fields.len().saturating_sub(NAMED_FIELDS),
        };
        self.host.state.record_revert(self.primary_ref, revert);
    }

    /// Takes over fields of former managers. Returns `true` if the object is ours now.
    async fn take_over(&self, step: &PlannedObject, former: &[String]) -> Result<bool, Failure> {
        if former.is_empty() {
            return Ok(false);
        }
        let live = self.requests.live(&step.desired.served, &step.desired.name).await;
        let live = live.map_err(|error| error.into_failure("look at", &step.desired.title()))?;
        match live {
            Some(live) => takeover::take_over(&self.requests, self.lane, &self.owner, step, live, former).await,
            None => Ok(false),
        }
    }

    /// Updates the owner and the deletion behaviour in the metadata of an object whose other fields must not change.
    async fn rebind(&mut self, step: &PlannedObject) -> Result<StepResult, Failure> {
        let (Some(known), title) = (&step.live, step.desired.title()) else {
            return Err(unknown_object(step));
        };
        let live = self.requests.live(&step.desired.served, &step.desired.name).await;
        let live = live.map_err(|error| error.into_failure("look at", &title))?;
        let Some(LiveObject { object, .. }) = live.filter(|live| live.object.uid == known.uid) else {
            return Err(changed_meanwhile(&title));
        };
        let bond = OwnerLink::of(&step.desired, &self.owner);
        let propagation = step.desired.lifecycle.propagation;
        let members = ownership::rebind(&object.value()["metadata"], &self.owner, bond, propagation);
        if members.is_empty() {
            self.remember_made(step, || Arc::new(object));
            return Ok(StepResult::Done);
        }
        let key = key(&step.desired.served, &step.desired.name);
        let writer = &self.lane.writer;
        let sent = self.requests.tracked(
            key,
            writer.set_metadata(&step.desired.served, &object, &members),
            version,
        );
        match sent.await {
            Ok(object) => {
                self.remember_made(step, || Arc::new(object));
                self.wrote(step, WrittenBody::of(&(&step.digest, bond, propagation)));
                tracing::info!(lane = self.lane.title(), owner = %self.primary_ref.name, object = title, ?bond, "changed the owner of the object");
                Ok(StepResult::Done)
            }
            Err(error) if matches!(error.code(), Some(404 | 409 | 422)) => Err(changed_meanwhile(&title)),
            Err(error) => Err(error.into_failure("change the owner of", &title)),
        }
    }

    /// Applies an object of ours. If fields of others make the result invalid, they are removed first.
    async fn apply_past_others(
        &mut self,
        step: &PlannedObject,
        live: &CachedObject,
    ) -> Result<Result<CachedObject, RequestError>, Failure> {
        match self.requests.apply_over(step, live).await {
            Err(error) if error.invalid_fields().is_some() && !error.is_about_another_object() => {
                match self.clear(step, &live.uid).await? {
                    Clearing::Cleared => Ok(self.requests.apply_over(step, live).await.map(|sent| sent.object)),
                    Clearing::NotFound => Ok(Err(error)),
                }
            }
            sent => Ok(sent.map(|sent| sent.object)),
        }
    }

    /// Ends an update that the server rejects independently of the fields of others. If the server would create the
    /// same object, the rejection is about an immutable field: the object is deleted if the plugin asks for that.
    async fn cannot_be_changed(&mut self, step: &PlannedObject, refused: RequestError) -> Failure {
        let title = step.desired.title();
        let live = match self.live_whole(step).await {
            Ok(live) => live,
            Err(failure) => return failure,
        };
        let problem = format!("cannot apply {title}: the API server refuses it: {refused}");
        let recreate = step.desired.lifecycle.recreate || step.desired.lifecycle.replace;
        match self.try_successor(step, &live).await {
            Successor::Refused(error) => self.refused(step, "apply", error),
            successor if recreate => self.renew(step, &live, successor, &problem, "a field is immutable").await,
            Successor::Accepted => self.refused_for_good(
                step,
                format!(
                    "{problem}; the field cannot be changed in place: delete {title}, which is then made anew, or take the change \
                     back; a plugin can ask for lifecycle recreate"
                ),
            ),
            Successor::Unknown(_) => self.refused(step, "apply", refused),
        }
    }

    /// Deletes an object with lifecycle `replace` if something else is desired than before, unless applying would leave
    /// its content as it is, or is rejected.
    async fn replace_if_other(&mut self, step: &PlannedObject) -> Result<(), Failure> {
        let live = self.live_whole(step).await?;
        let (served, name) = (&step.desired.served, &step.desired.name);
        let (writer, uid) = (&self.lane.writer, live["metadata"]["uid"].as_str().unwrap_or_default());
        let sent = step.sent();
        let tried = self
            .requests
            .with_retries(|| writer.try_apply(served, name, &sent, uid));
        let successor = match tried.await {
            Ok(stored) if recreate::has_same_content(&live, &stored) => return Ok(()),
            Ok(_) => self.try_successor(step, &live).await,
            Err(error) if error.is_without_dry_run() => Successor::Unknown(error),
            // The apply itself reports the problem.
            Err(error) if error.is_for_good() || error.is_about_another_object() => return Ok(()),
            Err(error) => return Err(error.into_failure("try to apply", &step.desired.title())),
        };
        let problem = format!("{} is to be replaced", step.desired.title());
        Err(self
            .renew(step, &live, successor, &problem, "something else is desired")
            .await)
    }

    /// Deletes an object whose successor the server accepts.
    pub(super) async fn renew(
        &mut self,
        step: &PlannedObject,
        live: &Value,
        successor: Successor,
        problem: &str,
        cause: &str,
    ) -> Failure {
        let title = step.desired.title();
        match successor {
            Successor::Accepted => self.delete_predecessor(step, live, cause).await,
            Successor::Refused(error) => self.refused(step, "apply", error),
            Successor::Unknown(error) if error.is_without_dry_run() => self.refused_for_good(
                step,
                format!(
                    "{problem}; it is not recreated, because a webhook keeps the host from trying first whether its successor is \
                     accepted: {error}; delete {title}, which is then made anew, or let the webhook support dry runs (sideEffects: \
                     None)"
                ),
            ),
            Successor::Unknown(error) => error.into_failure("try the successor of", &title),
        }
    }

    /// The whole live object of a step.
    pub(super) async fn live_whole(&self, step: &PlannedObject) -> Result<Value, Failure> {
        let Some(known) = &step.live else {
            return Err(unknown_object(step));
        };
        let writer = &self.lane.writer;
        let live = writer.live_whole(&step.desired.served, &step.desired.name).await;
        let live = live.ok().flatten().filter(|live| live["metadata"]["uid"] == *known.uid);
        live.ok_or_else(|| changed_meanwhile(&step.desired.title()))
    }

    fn refused_for_good(&self, step: &PlannedObject, message: String) -> Failure {
        let failure = Failure::guest(Reason::Refused, message);
        self.remember_refusal(step, &failure);
        failure
    }

    /// Deletes an object; it is recreated after its deletion was observed.
    async fn delete_predecessor(&mut self, step: &PlannedObject, live: &Value, cause: &str) -> Failure {
        if let Err(failure) = self.delete_followers(step).await {
            return failure;
        }
        let (served, title) = (&step.desired.served, step.desired.title());
        self.depend_on_obstacle(step);
        let chosen = step.desired.lifecycle.propagation;
        let propagation = chosen.unwrap_or_else(|| recreate::propagation(step.desired.kind(), live, &step.body));
        let object = match CachedObject::read(&live.to_string(), step.desired.kind(), &Projection::whole()) {
            Ok(object) => object,
            Err(error) => return Failure::host(Reason::HostFault, format!("{title} cannot be read: {error}")),
        };
        match self.requests.delete_with(served, &object, Some(propagation)).await {
            Ok(_) => {
                self.wrote(step, WrittenBody::Gone);
                tracing::info!(
                    lane = self.lane.title(), owner = %self.primary_ref.name, object = title, cause, ?propagation,
                    "deleted the object to recreate it"
                );
                waiting(format!(
                    "{title} is deleted, because {cause}; the host recreates it once it is gone"
                ))
            }
            Err(error) => error.into_failure("delete", &title),
        }
    }

    async fn prune(&mut self, served: &ServedKind, child: &CachedObject) -> Result<(), Failure> {
        if self.is_held_back() {
            return Ok(());
        }
        let title = format!("{} {}", served.kind.kind, child.name);
        match self.requests.delete(served, child).await {
            Ok(Deleted::Now) => {
                self.applied.writes.record(&key(served, &child.name), WrittenBody::Gone);
                tracing::info!(lane = self.lane.title(), owner = %self.primary_ref.name, object = title, "pruned");
                if is_held_by_collector(self.lane, child) {
                    return Err(self.wait_for_collector(served, child));
                }
                Ok(())
            }
            Ok(Deleted::Released) => {
                self.applied.writes.record(&key(served, &child.name), WrittenBody::Gone);
                Ok(())
            }
            // Another writer was faster.
            Ok(Deleted::Before) => Ok(()),
            Err(error) => Err(error.into_failure("delete", &title)),
        }
    }

    /// The failure of a pruned object that the garbage collector holds. The primary runs again once the object changes.
    fn wait_for_collector(&self, served: &ServedKind, child: &CachedObject) -> Failure {
        let state = &self.host.state;
        state.depend_on_obstacle(self.primary_ref, served, &child.name, Some(child));
        waiting(format!(
            "{} {} is no longer desired, and is being deleted; the garbage collector deals with its dependents first",
            served.kind.kind, child.name
        ))
    }

    /// Finds out whether values that this process has not applied itself only differ in their form. Makes one request,
    /// and remembers the form.
    async fn is_another_form(&mut self, step: &PlannedObject) -> Result<bool, Failure> {
        let key = key(&step.desired.served, &step.desired.name);
        let Some(known) = &step.live else {
            return Ok(false);
        };
        if self.host.state.unpersisted(&key).is_some() {
            return Ok(false);
        }
        let live = self.requests.live(&step.desired.served, &step.desired.name).await;
        let live = live.map_err(|error| error.into_failure("look at", &step.desired.title()))?;
        let Some(LiveObject { object, .. }) = live.filter(|live| live.object.uid == known.uid) else {
            return Ok(false);
        };
        let is_same = self.rewritten(step, &object).is_empty();
        if is_same {
            self.remember_unpersisted(step, &object);
        }
        Ok(is_same)
    }

    /// Values of a stored object that differ from those of the body.
    fn rewritten(&self, step: &PlannedObject, object: &CachedObject) -> Vec<ValueDifference> {
        let Some(entry) = object.entry(self.lane.writer.manager(), false) else {
            return Vec::new();
        };
        values::differences(&entry.field_set(), &step.sent(), &object.value(), step.desired.kind())
    }

    /// Remembers fields that the server did not store, as found right after our own apply, so that they cost one
    /// request and not one for each reconcile. Values that it rewrites, or stores in another form, are remembered
    /// likewise.
    pub(super) fn remember_unpersisted(&mut self, step: &PlannedObject, object: &CachedObject) {
        self.remember_made(step, || Arc::new(object.clone()));
        let key = key(&step.desired.served, &step.desired.name);
        let entry = object.entry(self.lane.writer.manager(), false);
        let set = entry.map(|entry| entry.field_set());
        let missing = set
            .as_ref()
            .map(|set| set.missing(&step.sent(), LeafSemantics::AsApplied).paths)
            .unwrap_or_default();
        // Our own apply changed nothing, so no field had been taken: the merge types of the kind have changed.
        let was_whole = matches!(step.action, Action::Apply(Difference::Drift(_)))
            && missing.is_empty()
            && entry.map(|entry| entry.fields()) == step.entry(self.lane).map(|entry| entry.fields());
        if was_whole {
            self.host.schemas.forget(step.desired.kind());
        }
        // An entry that the types of its kind do not explain is complete as our own apply has left it.
        let is_remembered = was_whole || step.action == Action::Apply(Difference::Unclear);
        let has_its_values = object.digest.as_deref() == Some(&*step.digest)
            && entry.zip(set.as_ref()).is_some_and(|(entry, set)| {
                values::fingerprint(set, &step.sent(), step.desired.kind()) == entry.values
            });
        if missing.is_empty() && has_its_values && !is_remembered {
            self.host.state.applied(key, None);
            return;
        }
        let rewritten = if has_its_values {
            Vec::new()
        } else {
            self.rewritten(step, object)
        };
        let unpersisted = UnpersistedApply {
            digest: step.digest.as_str().into(),
            left: UnpersistedApply::left_of(entry, object),
            rewritten: rewritten.into(),
        };
        self.report_unpersisted(step, &missing, &unpersisted.rewritten);
        self.host.state.applied(key, Some(unpersisted));
    }

    /// Reports the remembered differences of an object that was left alone because of them. They are forgotten if
    /// another writer, for example another host, has changed them since.
    fn recall_unpersisted(&mut self, step: &PlannedObject) {
        let key = key(&step.desired.served, &step.desired.name);
        let (Some(unpersisted), Some(live)) = (self.host.state.unpersisted(&key), &step.live) else {
            return;
        };
        let entry = step.entry(self.lane);
        if unpersisted.left != UnpersistedApply::left_of(entry, live) {
            self.host.state.applied(key, None);
            return;
        }
        let set = entry.map(|entry| entry.field_set()).unwrap_or_default();
        let missing = set.missing(&step.sent(), LeafSemantics::AsApplied);
        self.report_unpersisted(step, &missing.paths, &unpersisted.rewritten);
    }

    fn report_unpersisted(&mut self, step: &PlannedObject, missing: &[String], rewritten: &[ValueDifference]) {
        let title = step.desired.title();
        // A field that is not stored at all is named once.
        let also: HashSet<&str> = rewritten.iter().map(|it| it.path.as_str()).collect();
        let missing = missing.iter().filter(|path| !also.contains(path.as_str()));
        let named = missing.map(|path| format!("{path} of {title}"));
        self.applied.unpersisted_fields.extend(named);
        let named = rewritten.iter().map(|ValueDifference { path, applied, stored }| {
            format!("{path} of {title} is {stored} in place of {applied}")
        });
        self.applied.rewritten_values.extend(named);
    }
}

/// The digest of what was refused. An adoption depends on fields and owners, whose changes leave the generation as it is.
fn refusal_digest(step: &PlannedObject) -> Cow<'_, str> {
    match (&step.action, &step.live) {
        (Action::AdoptUnowned, Some(live)) => format!("adopt {} {}", step.digest, live.resource_version).into(),
        _ => (&*step.digest).into(),
    }
}

/// The failure for an object that another plugin applies.
fn held_by_plugin(step: &PlannedObject, manager: &str) -> Failure {
    Failure::cluster(
        Reason::ForeignObject,
        format!(
            "{} is applied by another plugin, with the field manager {manager}, and is left alone: have one of the two \
             plugins give it another name, or remove that plugin or this object from its namespaces",
            step.desired.title()
        ),
    )
    .retry(Retry::Change)
}

pub(super) fn changed_meanwhile(title: &str) -> Failure {
    Failure::cluster(
        Reason::ClusterUnavailable,
        format!("{title} was changed or replaced by somebody else meanwhile; retrying"),
    )
}

fn unknown_object(step: &PlannedObject) -> Failure {
    Failure::host(
        Reason::HostFault,
        format!(
            "{} is to be changed, but is not in the cache; this is a bug of the host, which retries",
            step.desired.title()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_failures_one_that_time_can_help_with_decides() {
        let change = || Failure::user(Reason::Invalid, "a field").retry(Retry::Change);
        let backoff = || Failure::cluster(Reason::ClusterUnavailable, "busy").retry(Retry::Backoff);
        for (failures, decides) in [
            ([change(), backoff()], backoff()),
            ([backoff(), change()], backoff()),
            ([change(), waiting("a child".to_owned())], change()),
        ] {
            let [first, second] = failures;
            let mut applied = Applied::nothing(first);
            applied.fail(second);
            assert_eq!(applied.failure, Some(decides));
        }
    }
}
