//! The fifth stage in preview: reports what would be written, and writes nothing. Makes only requests that read, once
//! for each plan.

use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::write::LiveObject;
use pilothouse_core::answer::desired::DesiredObject;
use pilothouse_core::diff::canonical::digest;
use pilothouse_core::diff::preview::{Preview, PreviewAction, PreviewedChange};
use pilothouse_core::diff::{Action, Difference};
use pilothouse_core::kubernetes::fields::FieldSet;
use pilothouse_core::ownership::adoption::{self, Adoption};
use pilothouse_core::{Failure, Key};
use serde_json::{Value, json};

use super::diff::{Planned, PlannedObject, key};
use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::reconcile::contribute;
use crate::reconcile::write::requests::Requests;

/// Stores and logs the changes of a plan.
pub async fn preview(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    planned: &Planned,
) -> Result<(), Failure> {
    let contributed = &planned.contributed;
    let targets = targets(host, primary_ref, contributed);
    let basis = basis(planned, &targets);
    if host.state.has_preview(primary_ref, &basis) {
        return Ok(());
    }
    let requests = Requests::new(host, lane, primary_ref);
    let mut changes = Vec::new();
    for step in &planned.steps {
        let change = change_of(lane, &requests, step).await?;
        let is_held = step.waits(lane);
        let after = step.desired.after.iter().filter(|_| is_held).map(ToString::to_string);
        changes.extend(change.map(|change| PreviewedChange {
            after: after.collect(),
            ..change.wanting(step.digest.clone())
        }));
    }
    let later = planned.later.iter().map(|(child, _)| child);
    for (served, child) in planned.prune.iter().chain(later) {
        changes.push(PreviewedChange::whole(
            PreviewAction::Delete,
            format!("{} {}", served.kind.kind, child.name),
        ));
    }
    let claims = contribute::take_all_apart(host, lane, contributed).await?;
    for (desired, (key, live)) in contributed.iter().zip(&targets) {
        // No object is created only to contribute to it, and one that is being deleted gets no contributions.
        if let (Some(live), Some(claim)) = (live.as_ref().filter(|live| !live.deleting), claims.get(key)) {
            let change = PreviewedChange::contribution(desired.title(), desired.kind(), &live.value(), claim);
            changes.extend(change.map(|change| change.wanting(digest(&json!(desired.body)))));
        }
    }
    let preview = Preview::new(basis, changes);
    let (lane, owner, more) = (lane.title(), &primary_ref.name, preview.more);
    for PreviewedChange {
        act,
        object,
        fields,
        more_fields,
        after,
        digest: _,
    } in &preview.changes
    {
        let fields = serde_json::to_string(fields).expect("paths and values are text");
        tracing::info!(lane, %owner, ?act, object, fields, more_fields, ?after, "would change");
    }
    tracing::info!(lane, %owner, changes = preview.changes.len() + more, "previewed");
    let unserved = planned.answer.unserved.first().map(|object| object.failure.clone());
    let failure = unserved.as_ref().map(|failure| failure.message.clone());
    host.state.put_preview(primary_ref, Preview { failure, ..preview });
    unserved.map_or(Ok(()), Err)
}

/// The change of one object, if any.
async fn change_of(
    lane: &Lane,
    requests: &Requests<'_>,
    step: &PlannedObject,
) -> Result<Option<PreviewedChange>, Failure> {
    let object = step.desired.title();
    match &step.action {
        Action::Create => Ok(Some(PreviewedChange::whole(PreviewAction::Create, object))),
        Action::Apply(_) | Action::Adopt(_) => {
            let live = requests.live(&step.desired.served, &step.desired.name).await;
            let live = live.map_err(|error| error.into_failure("look at", &object))?;
            let Some(live) = live else {
                return Ok(Some(PreviewedChange::whole(PreviewAction::Create, object)));
            };
            // Fields that no other manager took are ours; fields that were taken are not removed.
            let applied = match &step.action {
                Action::Apply(Difference::Desired) => live.object.entry(lane.writer.manager(), false),
                _ => None,
            };
            let applied: Option<FieldSet> = applied.map(|entry| entry.field_set());
            let shown = live.object.value();
            let change = PreviewedChange::update(object, step.desired.kind(), &shown, &step.sent(), applied.as_ref());
            Ok(Some(change))
        }
        Action::AdoptUnowned => adoption_of(lane, requests, step).await,
        Action::Rebind => Ok(Some(PreviewedChange::whole(PreviewAction::Update, object))),
        Action::Nothing | Action::Foreign | Action::CompetingPlugin(_) | Action::Wait | Action::Inherited => Ok(None),
    }
}

/// The change of an object of nobody that would be taken over, if it may be.
async fn adoption_of(
    lane: &Lane,
    requests: &Requests<'_>,
    step: &PlannedObject,
) -> Result<Option<PreviewedChange>, Failure> {
    let (object, desired) = (step.desired.title(), &step.desired);
    let live = requests.live(&desired.served, &desired.name).await;
    let live = live.map_err(|error| error.into_failure("look at", &object))?;
    let Some(LiveObject { object: live, managers }) = live else {
        return Ok(Some(PreviewedChange::whole(PreviewAction::Create, object)));
    };
    let Adoption::Apply(body) = adoption::judge(desired, &step.body, &managers, lane.writer.manager()) else {
        return Ok(None);
    };
    let change = PreviewedChange::update(object, desired.kind(), &live.value(), &body, None);
    Ok(Some(PreviewedChange {
        act: PreviewAction::Adopt,
        ..change
    }))
}

/// Targets of contributions as whole cached objects. The primary is requeued when one changes.
fn targets(
    host: &HostContext,
    primary_ref: &PrimaryRef,
    contributed: &[DesiredObject],
) -> Vec<(Key, Option<Arc<CachedObject>>)> {
    let target = |desired: &DesiredObject| {
        let DesiredObject { served, name, .. } = desired;
        let live = host.state.get(&served.kind, name);
        host.state
            .depend_on_obstacle(primary_ref, served, name, live.as_deref());
        (key(served, name), live)
    };
    contributed.iter().map(target).collect()
}

/// Inputs that decide the changes: desired objects, actions, and versions of live objects.
fn basis(planned: &Planned, targets: &[(Key, Option<Arc<CachedObject>>)]) -> String {
    let steps = planned.steps.iter().map(|step| {
        let live = step.live.as_ref().map(|live| (&*live.uid, &*live.resource_version));
        let live = live.filter(|_| step.action != Action::Nothing);
        json!([step.desired.title(), step.digest, format!("{:?}", step.action), live])
    });
    let prune = planned.prune.iter().chain(planned.later.iter().map(|(child, _)| child));
    let prune = prune.map(|(served, child)| json!([served.kind.kind, child.name.to_string(), &*child.uid]));
    let contributed = planned.contributed.iter().zip(targets).map(|(desired, (_, live))| {
        let live = live.as_ref().map(|live| (&*live.uid, &*live.resource_version));
        json!([desired.title(), desired.body, live])
    });
    digest(&Value::Array(steps.chain(prune).chain(contributed).collect()))
}
