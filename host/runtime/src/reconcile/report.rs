//! Owns the sixth stage: writes the status with its conditions, and emits events. Makes a request only if something has
//! changed.

use std::hash::{Hash as _, Hasher as _};

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::events::Regarding;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::answer::CheckedAnswer;
use pilothouse_core::canonical::digest;
use pilothouse_core::contract::{Event, EventType};
use pilothouse_core::host_conditions::{HostConditions, RECONCILED};
use pilothouse_core::reason::Reason;
use pilothouse_core::status::{self, PluginPart, StatusInput};
use pilothouse_core::{Failure, Key, Retry};
use serde_json::{Map, Value};

use super::apply::Applied;
use super::gather::Gathered;
use super::requests::{Requests, version};
use super::status_schema;
use crate::context::HostContext;
use crate::lane::Lane;
use crate::primary::PrimaryRef;
use crate::refusals::RefusedPart;
use crate::unpersisted::UnpersistedApply;
use crate::visibility;

/// The reason of the Warning event that tells of a failed reconcile.
const RECONCILE_FAILED: &str = "ReconcileFailed";

/// The most fields that a condition names.
const NAMED_FIELDS: usize = 5;

/// How a reconcile ended, and what was told of it.
pub struct Reported {
    /// The failure of an earlier stage, or one of this.
    pub failure: Option<Failure>,
    /// What of the status was written.
    pub written: StatusWrite,
}

impl Reported {
    /// The digest of the status that was written, by which the queue knows whether it is the one that was written before.
    pub fn said(&self) -> Option<u64> {
        match self.written {
            StatusWrite::Nothing => None,
            StatusWrite::OfHost(said) | StatusWrite::OfPlugin(said) => Some(said),
        }
    }
}

/// What of a status was written, with the digest of the whole status without its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusWrite {
    /// It is as it was.
    Nothing,
    /// What the host itself says: its conditions.
    OfHost(u64),
    /// What the plugin says.
    OfPlugin(u64),
}

/// What became of a status.
struct Stated {
    written: StatusWrite,
    /// Since when the object fails, as its status in the cluster says.
    failing_since: Option<String>,
}

impl Stated {
    fn new(written: StatusWrite, status: Option<&Value>) -> Self {
        Self {
            written,
            failing_since: status.and_then(failing_since).map(str::to_owned),
        }
    }
}

/// Since when an object fails, if its status says that it does.
fn failing_since(status: &Value) -> Option<&str> {
    let conditions = status["conditions"].as_array()?;
    let failed = conditions
        .iter()
        .find(|it| it["type"] == RECONCILED && it["status"] == "False");
    failed?["lastTransitionTime"].as_str()
}

/// Reports, and says how the reconcile ended.
pub async fn report(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    gathered: &Gathered,
    applied: Applied,
) -> Reported {
    let Applied {
        answer,
        failure,
        writes,
        unpersisted_fields,
        wake_at: _,
        // Kept to the end: so many report at once, and no more.
        turn: _turn,
    } = applied;
    let whole = StatusExtent::Whole(answer.as_ref());
    let mut stated = state(
        host,
        lane,
        primary_ref,
        gathered,
        whole,
        failure.as_ref(),
        &unpersisted_fields,
    )
    .await;
    let mut failure = failure;
    // The API server refuses what the plugin says of the status: that has to be said without it, and if need be without
    // all that was said before.
    for less in [StatusExtent::WithoutAnswer, StatusExtent::Bare] {
        match stated {
            Err(refused) if refused.retry == Retry::Change => {
                stated = state(host, lane, primary_ref, gathered, less, Some(&refused), &[]).await;
                failure.get_or_insert(refused);
            }
            _ => break,
        }
    }
    if let Err(refused) = &stated
        && refused.retry == Retry::Change
    {
        status_schema::say(host, lane, gathered, &refused.message).await;
    }
    let events = answer
        .as_ref()
        .map(|answer| answer.events.as_slice())
        .unwrap_or_default();
    let since = stated.as_ref().ok().and_then(|stated| stated.failing_since.as_deref());
    let told = tell(
        host,
        lane,
        gathered,
        events,
        failure.as_ref().map(|failure| (failure, since)),
    )
    .await;
    let object = &primary_ref.name;
    if let Some(failure) = &failure {
        let Failure {
            blame,
            reason,
            message,
            retry: _,
            at_least: _,
        } = failure;
        tracing::warn!(lane = lane.title(), %object, %blame, %reason, problem = message, "reconcile failed");
    } else {
        tracing::debug!(lane = lane.title(), %object, writes, "reconciled");
    }
    // What could not be said is said at the next try, even if nothing else is worth one.
    Reported {
        written: stated.as_ref().map_or(StatusWrite::Nothing, |stated| stated.written),
        failure: stated.and(told).err().or(failure),
    }
}

/// Whether an answer has anything to report that the status does not say yet.
pub fn has_news(object: &CachedObject, answer: &CheckedAnswer) -> bool {
    let live = visibility::status(object);
    let desired = status::desired_status(&StatusInput {
        plugin: part_of(answer),
        host: &HostConditions::succeeded(""),
        live: live.as_ref(),
        generation: object.generation,
        now: "",
    });
    status::says_more_than_the_host(&desired, live.as_ref())
}

async fn tell(
    host: &HostContext,
    lane: &Lane,
    gathered: &Gathered,
    events: &[Event],
    failure: Option<(&Failure, Option<&str>)>,
) -> Result<(), Failure> {
    let regarding = Regarding {
        kind: lane.grants.primary(),
        name: &gathered.object.name,
        uid: &gathered.object.uid,
    };
    let now = host.clock.microseconds();
    let refused = |error: RequestError| error.into_failure("emit an event on", &title(lane, gathered));
    for event in events {
        lane.recorder.record(&regarding, event, &now).await.map_err(refused)?;
    }
    let Some((failure, since)) = failure else {
        lane.recorder.recovered(regarding.uid);
        return Ok(());
    };
    // A child always goes before its successor comes; the condition says so.
    if failure.reason != Reason::Waiting {
        let event = Event {
            type_: EventType::Warning,
            reason: RECONCILE_FAILED.to_owned(),
            message: pilothouse_core::answer::shorten(failure.message.clone(), 1024),
        };
        let told = lane.recorder.record_failure(&regarding, &event, since, &now).await;
        told.map_err(refused)?;
    }
    Ok(())
}

/// How much is said of an object.
#[derive(Clone, Copy)]
enum StatusExtent<'a> {
    /// What the plugin says, and the host.
    Whole(Option<&'a CheckedAnswer>),
    /// What the host says, beside what the plugin said last.
    WithoutAnswer,
    /// What the host says.
    Bare,
}

impl StatusExtent<'_> {
    fn part(self) -> RefusedPart {
        match self {
            Self::Whole(_) => RefusedPart::Status,
            Self::WithoutAnswer => RefusedPart::StatusWithoutAnswer,
            Self::Bare => RefusedPart::BareStatus,
        }
    }
}

/// Writes the status if it differs.
async fn state(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    gathered: &Gathered,
    extent: StatusExtent<'_>,
    failure: Option<&Failure>,
    unpersisted_fields: &[String],
) -> Result<Stated, Failure> {
    let Some(served) = lane.served(lane.grants.primary()) else {
        return Ok(Stated::new(StatusWrite::Nothing, None));
    };
    if !lane.brings_crd {
        return Ok(Stated::new(StatusWrite::Nothing, None));
    }
    if !served.facts.has_status {
        let problem = status::without_subresource(&lane.grants.primary().kind);
        status_schema::say(host, lane, gathered, &problem).await;
        return Ok(Stated::new(StatusWrite::Nothing, None));
    }
    let object = &gathered.object;
    let live = visibility::status(object);
    let key = Key::new(served.kind.clone(), object.name.clone());
    let answer = match extent {
        StatusExtent::Whole(answer) => answer,
        StatusExtent::WithoutAnswer | StatusExtent::Bare => None,
    };
    // A call that failed says nothing about the plugin's part of the status: what was there stays.
    let kept = match extent {
        StatusExtent::Whole(None) | StatusExtent::WithoutAnswer => own_part(object, lane, live.as_ref()),
        StatusExtent::Whole(Some(_)) | StatusExtent::Bare => None,
    };
    let whole = status::desired_status(&StatusInput {
        plugin: match (answer, &kept) {
            (Some(answer), _) => part_of(answer),
            (None, Some(kept)) => PluginPart::Kept(kept),
            (None, None) => PluginPart::Omitted,
        },
        host: &host_conditions(lane, failure, unpersisted_fields),
        live: live.as_ref(),
        generation: object.generation,
        now: &host.clock.seconds(),
    });
    let own = answer.and_then(|answer| answer.status.as_ref());
    let mut is_asked = lane.asks_for_schema;
    loop {
        let (desired, is_fitted) = status_schema::fitted(host, lane, gathered, whole.clone(), own, is_asked).await;
        if is_as_desired(host, lane, &key, object, live.as_ref(), &desired) {
            return Ok(Stated::new(StatusWrite::Nothing, live.as_ref()));
        }
        let asked = digest(&Value::Object(without_times(&desired)));
        let refused = host.state.refusal(&key, extent.part(), &asked, Some(object));
        let failure = match refused {
            Some(failure) => failure,
            None => match send(host, lane, primary_ref, gathered, &served, &desired).await {
                Ok(Some(object)) => {
                    if answer.is_some() {
                        host.state.forget_refusal(key.clone(), extent.part());
                    }
                    if !remember(host, lane, key, &object, &desired) && !is_fitted {
                        // It was taken and dropped: what the schema says about that is told.
                        status_schema::fitted(host, lane, gathered, whole, None, true).await;
                    }
                    let written = if status::says_more_than_the_host(&desired, live.as_ref()) {
                        StatusWrite::OfPlugin(said(&asked))
                    } else {
                        StatusWrite::OfHost(said(&asked))
                    };
                    let sent = failure.and_then(|_| visibility::status(&object));
                    return Ok(Stated::new(written, sent.as_ref()));
                }
                // It went meanwhile: there is nothing left to report to.
                Ok(None) => return Ok(Stated::new(StatusWrite::Nothing, None)),
                Err(failure) => failure,
            },
        };
        if failure.retry == Retry::Backoff {
            return Err(failure);
        }
        let refused = (key.clone(), extent.part());
        host.state.note_refusal(refused, &asked, Some(object), failure.clone());
        if is_asked || is_fitted {
            return Err(failure);
        }
        // Perhaps it is refused for what its schema does not declare.
        is_asked = true;
    }
}

/// Applies the status; none if there is nothing left to report to.
async fn send(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    gathered: &Gathered,
    served: &ServedKind,
    desired: &Map<String, Value>,
) -> Result<Option<CachedObject>, Failure> {
    let object = &gathered.object;
    let key = Key::new(served.kind.clone(), object.name.clone());
    let requests = Requests::new(host, lane, primary_ref);
    let sent = requests.with_conflict_retries(|| {
        let request = lane.writer.apply_status(served, &object.name, &object.uid, desired);
        requests.tracked(key.clone(), request, version)
    });
    match sent.await {
        Ok(object) => Ok(Some(object)),
        // It went meanwhile.
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) if error.code() == Some(409) && has_successor(&requests, served, object).await => Ok(None),
        Err(error) => Err(error.into_failure("report the status of", &title(lane, gathered))),
    }
}

/// Whether another object has taken the name of one, so that nothing can be said of that one any more.
async fn has_successor(requests: &Requests<'_>, served: &ServedKind, object: &CachedObject) -> bool {
    match requests.live(served, &object.name).await {
        Ok(live) => live.is_none_or(|live| live.object.uid != object.uid),
        Err(_) => false,
    }
}

fn title(lane: &Lane, gathered: &Gathered) -> String {
    format!("{} {}", lane.grants.primary().kind, gathered.object.name)
}

fn part_of(answer: &CheckedAnswer) -> PluginPart<'_> {
    PluginPart::Answered {
        status: answer.status.as_ref(),
        conditions: &answer.conditions,
    }
}

fn host_conditions(lane: &Lane, failure: Option<&Failure>, unpersisted_fields: &[String]) -> HostConditions {
    match failure {
        Some(failure) => HostConditions::failed(failure, lane.failure_reason.as_deref()),
        None if unpersisted_fields.is_empty() => HostConditions::succeeded("all is as desired"),
        None => {
            let named = unpersisted_fields
                .iter()
                .take(NAMED_FIELDS)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            let more = unpersisted_fields.len().saturating_sub(NAMED_FIELDS);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            HostConditions::succeeded(format!(
                "all is as desired, but the API server does not keep {named}{more}"
            ))
        }
    }
}

/// The fields of the live status that this plugin applied, conditions apart: they are merged by type anyway.
fn own_part(object: &CachedObject, lane: &Lane, live: Option<&Value>) -> Option<Map<String, Value>> {
    let fields = object.entry(lane.writer.manager(), true)?.field_set();
    let own = fields.below("status")?;
    let mut part = live?.as_object()?.clone();
    part.retain(|name, _| own.below(name).is_some());
    let conditions = part.get_mut("conditions").and_then(Value::as_array_mut);
    if let Some(conditions) = conditions {
        let list = own.below("conditions")?;
        conditions.retain(|condition| list.has_item_like(condition));
    }
    Some(part)
}

fn is_as_desired(
    host: &HostContext,
    lane: &Lane,
    key: &Key,
    object: &CachedObject,
    live: Option<&Value>,
    desired: &Map<String, Value>,
) -> bool {
    let fields = object.entry(lane.writer.manager(), true).map(|entry| entry.field_set());
    if status::status_is_as_desired(desired, live, fields.as_ref()) {
        return true;
    }
    let unpersisted = host.state.unpersisted(key);
    unpersisted.is_some_and(|unpersisted| unpersisted == unpersisted_status(desired, live))
}

/// What the server made of a status that it did not keep as it was sent is remembered, so that it is sent once. Says whether
/// it is as desired.
fn remember(host: &HostContext, lane: &Lane, key: Key, object: &CachedObject, desired: &Map<String, Value>) -> bool {
    let live = visibility::status(object);
    let fields = object.entry(lane.writer.manager(), true).map(|entry| entry.field_set());
    let is_as_desired = status::status_is_as_desired(desired, live.as_ref(), fields.as_ref());
    let unpersisted = (!is_as_desired).then(|| unpersisted_status(desired, live.as_ref()));
    host.state.status_applied(key, unpersisted);
    is_as_desired
}

/// A digest's beginning, which is enough to compare two statuses of one object.
fn said(digest: &str) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    digest.hash(&mut hasher);
    hasher.finish()
}

fn unpersisted_status(desired: &Map<String, Value>, live: Option<&Value>) -> UnpersistedApply {
    UnpersistedApply {
        digest: digest(&Value::Object(without_times(desired))).into(),
        left: digest(live.unwrap_or(&Value::Null)).into(),
    }
}

/// A status as it is compared with an earlier one: where the server drops conditions, their times are new each time.
fn without_times(desired: &Map<String, Value>) -> Map<String, Value> {
    let mut desired = desired.clone();
    for condition in desired
        .get_mut("conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
        }
    }
    desired
}
