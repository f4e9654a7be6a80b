//! The sixth stage: writes the status with its conditions, and emits events. Makes a request only if something has
//! changed.

use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::write::events::Regarding;
use pilothouse_core::answer::CheckedAnswer;
use pilothouse_core::diff::canonical::digest;
use pilothouse_core::diff::emptied::Emptied;
use pilothouse_core::plugin::contract::{Event, EventType};
use pilothouse_core::status::host_conditions::{HostConditions, RECONCILED, REWRITTEN};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::status::undeclared::undeclared_fields;
use pilothouse_core::status::{PluginPart, StatusInput};
use pilothouse_core::text::printable::{first_few, shorten};
use pilothouse_core::{Failure, Key, Retry, status};
use serde_json::{Map, Value};

use super::apply::Applied;
use super::gather::Gathered;
use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::lanes::pause::unclear_pause;
use crate::lanes::primary::PrimaryRef;
use crate::reconcile::status::live::{LiveStatus, without_times};
use crate::reconcile::status::schema;
use crate::reconcile::write::empty::Emptying;
use crate::reconcile::write::requests::{Requests, version};
use crate::state::tables::refusals::RefusedPart;
use crate::state::tables::visibility;

/// Reason of the Warning event about a failed reconcile.
const RECONCILE_FAILED: &str = "ReconcileFailed";

/// Reason of the Warning event about an annotation that cannot be interpreted.
const INVALID_ANNOTATION: &str = "InvalidAnnotation";

/// Reason of the event about an object that was taken over.
const ADOPTED: &str = "Adopted";

/// The most bytes of an event's message, by the server's validation.
const LONGEST_MESSAGE: usize = 1024;

/// Result of a reconcile, after its report.
pub struct Reported {
    /// The failure of an earlier stage, or of this one.
    pub failure: Option<Failure>,
    /// Part of the status that was written.
    pub written: StatusWrite,
}

impl Reported {
    /// Digest of the written status, by which the queue recognizes a repetition.
    pub fn said(&self) -> Option<u64> {
        match self.written {
            StatusWrite::Nothing => None,
            StatusWrite::OfHost(said) | StatusWrite::OfPlugin(said) => Some(said),
        }
    }
}

/// Part of a status that was written, with the digest of the whole status without its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusWrite {
    /// The status is unchanged.
    Nothing,
    /// The host's part: its conditions.
    OfHost(u64),
    /// The plugin's part.
    OfPlugin(u64),
}

/// Result of writing a status.
struct Stated {
    written: StatusWrite,
    /// Time since which the object fails, according to its status in the cluster.
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

/// Time since which an object fails, if its status says that it does.
fn failing_since(status: &Value) -> Option<&str> {
    let conditions = status["conditions"].as_array()?;
    let failed = conditions
        .iter()
        .find(|it| it["type"] == RECONCILED && it["status"] == "False");
    failed?["lastTransitionTime"].as_str()
}

/// Reports, and returns the result of the reconcile.
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
        adopted,
        rewritten_values,
        wake_at: _,
        // Held to the end: it bounds the number of concurrent reports.
        turn: _turn,
    } = applied;
    let whole = StatusExtent::Whole(answer.as_ref());
    let mut stated = write_status(
        host,
        lane,
        primary_ref,
        gathered,
        whole,
        failure.as_ref(),
        &Deviations {
            unpersisted: &unpersisted_fields,
            rewritten: &rewritten_values,
        },
    )
    .await;
    let mut refusal = None;
    // If the API server rejects the plugin's part of the status, the failure is reported without it, and, if need be,
    // without the part that was kept from before.
    for less in [StatusExtent::WithoutAnswer, StatusExtent::Bare] {
        match stated {
            Err(refused) if refused.retry == Retry::Change => {
                stated = write_status(
                    host,
                    lane,
                    primary_ref,
                    gathered,
                    less,
                    Some(&refused),
                    &Deviations::default(),
                )
                .await;
                refusal.get_or_insert(refused);
            }
            _ => break,
        }
    }
    let is_refused = refusal.is_some();
    if let Err(refused) = &stated
        && refused.retry == Retry::Change
    {
        schema::report_omission(host, lane, gathered, &refused.message).await;
        // Nothing of it was the plugin's.
        refusal = Some(refused.clone());
    }
    let failure = failure.or(refusal);
    let mut events = answer.as_ref().map(|answer| answer.events.clone()).unwrap_or_default();
    events.extend(adopted.iter().map(|title| adoption(title)));
    if failure.is_none() && !rewritten_values.is_empty() {
        events.push(Event {
            type_: EventType::Warning,
            reason: REWRITTEN.to_owned(),
            message: shorten(rewritten_message(&rewritten_values), LONGEST_MESSAGE),
        });
    }
    events.extend(unclear_pause(&gathered.object).map(|warning| Event {
        type_: EventType::Warning,
        reason: INVALID_ANNOTATION.to_owned(),
        message: warning,
    }));
    let since = stated.as_ref().ok().and_then(|stated| stated.failing_since.as_deref());
    let told = emit_events(
        host,
        lane,
        gathered,
        &events,
        failure.as_ref().map(|failure| (failure, since)),
    )
    .await;
    let object = &primary_ref.name;
    if let Some(failure) = &failure {
        if host.failure_log.take_news(lane, primary_ref, failure) {
            let Failure {
                blame,
                reason,
                message,
                retry: _,
                at_least: _,
            } = failure;
            tracing::warn!(lane = lane.title(), %object, %blame, %reason, problem = message, "reconcile failed");
        } else {
            tracing::debug!(lane = lane.title(), %object, reason = %failure.reason, "reconcile failed again");
        }
    } else {
        tracing::debug!(lane = lane.title(), %object, writes = writes.len(), "reconciled");
    }
    // What could not be said is said at the next try, even if nothing else is worth one. What was refused because its schema is
    // still missing may pass then.
    let written = stated.as_ref().map_or(StatusWrite::Nothing, |stated| stated.written);
    let mut failure = stated.and(told).err().or(failure);
    if is_refused && host.schemas.awaits_status(lane.grants.primary()) {
        failure = failure.map(|failure| failure.retry(Retry::Backoff));
    }
    Reported { failure, written }
}

/// Reports that an object is paused.
pub async fn report_paused(host: &HostContext, lane: &Lane, primary_ref: &PrimaryRef, gathered: &Gathered) -> Reported {
    let stated = write_status(
        host,
        lane,
        primary_ref,
        gathered,
        StatusExtent::Paused,
        None,
        &Deviations::default(),
    )
    .await;
    Reported {
        written: stated.as_ref().map_or(StatusWrite::Nothing, |stated| stated.written),
        failure: stated.err(),
    }
}

/// The event about an object that was taken over.
fn adoption(title: &str) -> Event {
    Event {
        type_: EventType::Normal,
        reason: ADOPTED.to_owned(),
        message: shorten(
            format!("{title} existed and belonged to nobody; it was taken over"),
            LONGEST_MESSAGE,
        ),
    }
}

/// Returns `true` if an answer has a status that is not written yet.
pub fn has_news(object: &CachedObject, answer: &CheckedAnswer) -> bool {
    let live = visibility::status(object);
    let desired = status::desired_status(&StatusInput {
        plugin: part_of(answer),
        host: &HostConditions::succeeded(""),
        live: live.as_ref(),
        generation: object.generation,
        now: "",
        given: None,
    });
    status::says_more_than_the_host(&desired, live.as_ref())
}

async fn emit_events(
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
    // A child is always deleted before its successor is created; the condition reports that.
    if failure.reason != Reason::Waiting {
        let event = Event {
            type_: EventType::Warning,
            reason: RECONCILE_FAILED.to_owned(),
            message: shorten(failure.message.clone(), LONGEST_MESSAGE),
        };
        let told = lane.recorder.record_failure(&regarding, &event, since, &now).await;
        told.map_err(refused)?;
    }
    Ok(())
}

/// Extent of a status.
#[derive(Clone, Copy)]
enum StatusExtent<'a> {
    /// The plugin's part and the host's.
    Whole(Option<&'a CheckedAnswer>),
    /// The host's part, beside the plugin's last one.
    WithoutAnswer,
    /// The host's part.
    Bare,
    /// The host's part for a paused object, beside the plugin's last one.
    Paused,
}

impl StatusExtent<'_> {
    fn part(self) -> RefusedPart {
        match self {
            Self::Whole(_) => RefusedPart::Status,
            Self::WithoutAnswer | Self::Paused => RefusedPart::StatusWithoutAnswer,
            Self::Bare => RefusedPart::BareStatus,
        }
    }
}

/// Writes the status if it differs.
async fn write_status(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    gathered: &Gathered,
    extent: StatusExtent<'_>,
    failure: Option<&Failure>,
    deviations: &Deviations<'_>,
) -> Result<Stated, Failure> {
    let Some(served) = lane.served(lane.grants.primary()) else {
        return Ok(Stated::new(StatusWrite::Nothing, None));
    };
    if !lane.brings_crd {
        return Ok(Stated::new(StatusWrite::Nothing, None));
    }
    if !served.facts.has_status {
        let problem = status::without_subresource(&lane.grants.primary().kind);
        schema::report_omission(host, lane, gathered, &problem).await;
        return Ok(Stated::new(StatusWrite::Nothing, None));
    }
    let key = Key::new(served.kind.clone(), gathered.object.name.clone());
    let answer = match extent {
        StatusExtent::Whole(answer) => answer,
        StatusExtent::WithoutAnswer | StatusExtent::Bare | StatusExtent::Paused => None,
    };
    let own = answer.and_then(|answer| answer.status.as_ref());
    let mut object = gathered.object.clone();
    let mut is_asked = lane.asks_for_schema;
    let mut looks = 0;
    loop {
        let schema = schema::known(host, lane, is_asked).await;
        let live = LiveStatus::new(lane, object.clone(), schema);
        // A failed call says nothing about the plugin's part of the status: the present one stays.
        let kept = match extent {
            StatusExtent::Whole(None) | StatusExtent::WithoutAnswer | StatusExtent::Paused => live.own_part(),
            StatusExtent::Whole(Some(_)) | StatusExtent::Bare => None,
        };
        let given = live.given_conditions(lane, answer);
        let (conditions, generation) = match extent {
            // The generation of a paused object is not examined: it stays in progress, and an edit costs no write.
            StatusExtent::Paused => (HostConditions::paused(), live.observed_generation()),
            _ => (host_conditions(lane, failure, deviations), gathered.object.generation),
        };
        let whole = status::desired_status(&StatusInput {
            plugin: match (answer, &kept) {
                (Some(answer), _) => part_of(answer),
                (None, Some(kept)) => PluginPart::Kept(kept),
                (None, None) => PluginPart::Omitted,
            },
            host: &conditions,
            live: live.status.as_ref(),
            generation,
            now: &host.clock.seconds(),
            given: given.as_deref(),
        });
        let desired = schema::fitted(host, lane, gathered, live.schema.as_deref(), whole, own).await;
        if live.is_as_desired(host, &key, &desired) {
            return Ok(Stated::new(StatusWrite::Nothing, live.status.as_ref()));
        }
        if !is_asked && live.needs_schema() {
            is_asked = true;
            continue;
        }
        let asked = digest(&Value::Object(without_times(&desired)));
        let refused = host.state.refusal(&key, extent.part(), &asked, Some(&object));
        let failure = match refused {
            Some(failure) => failure,
            None => match send(host, lane, primary_ref, &served, &live, &desired, extent).await {
                Ok(Sent::Written(object)) => {
                    if answer.is_some() {
                        host.state.forget_refusal(key.clone(), extent.part());
                    }
                    let stored = LiveStatus::new(lane, Arc::new(object), live.schema.clone());
                    if !stored.remember(host, key, &desired) {
                        report_dropped(host, lane, gathered, &stored, &desired).await;
                    }
                    let written = if status::says_more_than_the_host(&desired, live.status.as_ref()) {
                        StatusWrite::OfPlugin(said(&asked))
                    } else {
                        StatusWrite::OfHost(said(&asked))
                    };
                    let sent = failure.and(stored.status);
                    return Ok(Stated::new(written, sent.as_ref()));
                }
                // Its schema is asked for; without it, the rest is sent.
                Ok(Sent::Undeclared) => {
                    is_asked = true;
                    continue;
                }
                // The object was deleted meanwhile: there is nothing to report to.
                Ok(Sent::Gone) => return Ok(Stated::new(StatusWrite::Nothing, None)),
                Ok(Sent::Outdated(_, now)) if looks < LOOKS => {
                    looks += 1;
                    object = now;
                    continue;
                }
                Ok(Sent::Outdated(failure, _)) | Err(failure) => failure,
            },
        };
        if failure.retry == Retry::Backoff {
            return Err(failure);
        }
        let refused = (key.clone(), extent.part());
        host.state
            .record_refusal(refused, &asked, Some(&object), failure.clone());
        if is_asked || live.schema.is_some() {
            return Err(failure);
        }
        // The rejection may be about a field that its schema does not declare.
        is_asked = true;
    }
}

/// Reports fields that the schema drops from an accepted status, unless they were known before.
async fn report_dropped(
    host: &HostContext,
    lane: &Lane,
    gathered: &Gathered,
    stored: &LiveStatus,
    desired: &Map<String, Value>,
) {
    if stored.schema.is_none()
        && let Some(schema) = schema::known(host, lane, true).await
    {
        schema::fitted(host, lane, gathered, Some(&schema), desired.clone(), None).await;
    }
}

/// Number of times that a status is made anew because another writer has changed the object meanwhile.
const LOOKS: u32 = 3;

/// Result of sending a status.
enum Sent {
    /// The status was written; the object as it is now.
    Written(CachedObject),
    /// The server does not declare fields of it, which are left out from now on.
    Undeclared,
    /// The object does not exist any more.
    Gone,
    /// The object has changed meanwhile; the failure to return if it keeps changing, and the object as it is now.
    Outdated(Failure, Arc<CachedObject>),
}

/// Applies the status. A list of conditions that is replaced as a whole is only sent for this version of the object,
/// because others may have changed it meanwhile.
async fn send(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    served: &ServedKind,
    live: &LiveStatus,
    desired: &Map<String, Value>,
    extent: StatusExtent<'_>,
) -> Result<Sent, Failure> {
    let (object, is_plain) = (&live.object, live.is_plain());
    let key = Key::new(served.kind.clone(), object.name.clone());
    let requests = Requests::new(host, lane, primary_ref);
    let title = format!("{} {}", lane.grants.primary().kind, object.name);
    let body = Map::from_iter([("status".to_owned(), Value::Object(desired.clone()))]);
    let emptying = Emptying {
        served,
        name: &object.name,
        uid: &object.uid,
        subresource: Some("status"),
        body: &body,
    };
    let emptied = if live
        .fields()
        .is_some_and(|fields| Emptied::Objects.is_in(&body, fields))
    {
        let emptied = requests.empty(emptying, Emptied::Objects).await;
        emptied.map_err(|error| error.into_failure("report the status of", &title))?
    } else {
        None
    };
    let version_now = &emptied.as_ref().unwrap_or(object).resource_version;
    let at_version = is_plain.then_some(&**version_now);
    let apply = || {
        let request = lane
            .writer
            .apply_status(served, &object.name, &object.uid, at_version, desired);
        requests.tracked(key.clone(), request, version)
    };
    let sent = if is_plain {
        requests.with_retries(apply).await
    } else {
        requests.with_conflict_retries(apply).await
    };
    let error = match sent {
        Ok(object) => return Ok(Sent::Written(object)),
        // The object was deleted meanwhile.
        Err(error) if error.is_not_found() => return Ok(Sent::Gone),
        Err(error) => error,
    };
    let now = match error.code() {
        Some(409) => requests.live(served, &object.name).await.ok(),
        _ => None,
    };
    if host
        .schemas
        .note_undeclared(&served.kind, undeclared_fields(&error.to_string()))
    {
        return Ok(Sent::Undeclared);
    }
    let failure = match extent {
        StatusExtent::Bare if error.is_for_good() => refused_conditions(&title, &error),
        _ => error.into_failure("report the status of", &title),
    };
    match now {
        Some(Some(now)) if now.object.uid == object.uid => Ok(Sent::Outdated(failure, Arc::new(now.object))),
        // Another object has the name now, so nothing can be reported.
        Some(_) => Ok(Sent::Gone),
        None => Err(failure),
    }
}

/// The server refuses what the host writes of its own.
fn refused_conditions(title: &str, error: &RequestError) -> Failure {
    Failure::cluster(
        Reason::Refused,
        format!(
            "cannot report the status of {title}: the API server refuses the conditions and the observedGeneration that the host \
             writes: {error}; correct the schema of the status in the CRD"
        ),
    )
    .retry(Retry::Change)
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

/// The parts of an accepted answer that the server does not store as they were sent.
#[derive(Default)]
struct Deviations<'a> {
    /// Fields that it drops.
    unpersisted: &'a [String],
    /// Fields in which it stores other values.
    rewritten: &'a [String],
}

fn host_conditions(lane: &Lane, failure: Option<&Failure>, deviations: &Deviations<'_>) -> HostConditions {
    let Deviations { unpersisted, rewritten } = *deviations;
    match failure {
        Some(failure) => HostConditions::failed(failure, lane.failure_reason.as_deref()),
        None if !rewritten.is_empty() => HostConditions::rewritten(rewritten_message(rewritten)),
        None if unpersisted.is_empty() => HostConditions::succeeded("all is as desired"),
        None => HostConditions::succeeded(format!(
            "all is as desired, but the API server does not keep {}",
            first_few(unpersisted.iter().map(String::as_str))
        )),
    }
}

fn rewritten_message(rewritten: &[String]) -> String {
    let named = first_few(rewritten.iter().map(String::as_str));
    format!("all is applied, but something rewrites it, such as a mutating webhook or policy: {named}")
}

/// Beginning of a digest, enough to compare two statuses of one object.
fn said(digest: &str) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    digest.hash(&mut hasher);
    hasher.finish()
}
