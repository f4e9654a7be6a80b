//! Calls webhooks about writes of clients: their order, the use of their answers, and the server's messages where they
//! refuse or fail. Writes of the simulated controllers and of subresources other than `status` call none.

pub(crate) mod call;
pub(crate) mod consultation;
mod matching;
mod review;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::apply::book::Book;
use crate::custom::Nulls;
use crate::failure::Failure;
use crate::kinds::{Resource, Storage};
use crate::objects::{Call, body};
use crate::patch;
use crate::state::State;
use matching::Subject;
use review::Verdict;

const GROUP: &str = "admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";

/// Resources that no webhook is called about, or nobody could fix a broken one.
const EXEMPT: [&str; 4] = [
    MUTATING,
    VALIDATING,
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];

/// A webhook's patience where its configuration does not say.
const DEFAULT_TIMEOUT_SECONDS: u64 = 10;

/// Calls the mutating webhooks about a created or changed object.
pub(crate) fn mutate(state: &mut State, call: &Call, object: &mut Value, old: Option<&Value>) -> Result<(), Failure> {
    let hooks = hooks(state, call, MUTATING);
    let managed = object["metadata"].get("managedFields").cloned();
    let mut asked = BTreeSet::new();
    let mut again = BTreeSet::new();
    for (index, hook) in hooks.iter().enumerate() {
        if change(state, call, hook, object, old)? {
            again.append(&mut asked);
        }
        if hook["reinvocationPolicy"] == "IfNeeded" {
            asked.insert(index);
        }
    }
    // Those who have not seen what came after them are asked a second time, but not a third.
    for index in again {
        change(state, call, &hooks[index], object, old)?;
    }
    keep_readable(state, object, managed);
    Ok(())
}

/// Restores managedFields if webhooks made them unreadable. Readable ones are the webhooks' to write.
fn keep_readable(state: &mut State, object: &mut Value, managed: Option<Value>) {
    let (Err(fault), Some(managed)) = (Book::read(object["metadata"].get("managedFields")), managed) else {
        return;
    };
    object["metadata"]["managedFields"] = managed;
    let warning = format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
         admission controller; please fix your requests: {fault}"
    );
    if let Some(consultation) = &mut state.consultation {
        consultation.warn(vec![warning]);
    }
}

/// Calls the validating webhooks about a write; without an object it is a deletion.
pub(crate) fn validate(
    state: &mut State,
    call: &Call,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    for hook in hooks(state, call, VALIDATING) {
        ask(state, &hook, &subject(call, object, old), false)?;
    }
    Ok(())
}

/// Returns the webhooks of all configurations in the order of their names; none for exempt resources.
fn hooks(state: &State, call: &Call, plural: &str) -> Vec<Value> {
    let resource = &call.resource;
    let is_exempt = resource.group == GROUP && EXEMPT.contains(&resource.plural.as_str());
    let is_part = !["", "status"].contains(&call.subresource.as_str());
    if state.consultation.is_none() || is_exempt || is_part {
        return Vec::new();
    }
    let storage = Storage::new(GROUP, plural);
    let configurations = state.store.list(&storage);
    configurations
        .flat_map(|configuration| configuration["webhooks"].as_array().cloned().unwrap_or_default())
        .collect()
}

fn subject<'a>(call: &'a Call, object: Option<&'a Value>, old: Option<&'a Value>) -> Subject<'a> {
    let operation = match (object, old) {
        (Some(_), None) => "CREATE",
        (Some(_), Some(_)) => "UPDATE",
        (None, _) => "DELETE",
    };
    Subject {
        call,
        operation,
        object,
        old,
    }
}

/// Applies a webhook's patch, and returns `true` if the object changed.
fn change(
    state: &mut State,
    call: &Call,
    hook: &Value,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<bool, Failure> {
    let Some((resource, verdict)) = ask(state, hook, &subject(call, Some(object), old), true)? else {
        return Ok(false);
    };
    let Some(operations) = verdict.patch else {
        return Ok(false);
    };
    let own = &call.resource;
    let shown = Subject::shown(&resource, own, Some(object)).expect("there is an object");
    let mut changed = shown.clone();
    patch::json::apply(&mut changed, &operations).map_err(|error| Failure::internal(error.to_string()))?;
    if changed == shown {
        return Ok(false);
    }
    let changed = Subject::shown(own, &resource, Some(&changed)).expect("there is an object");
    let (changed, _) = body::typed(own, changed, Nulls::Dropped)?;
    *object = changed;
    Ok(true)
}

/// The verdict of one webhook, and the version that it was asked in; none where it is not asked, or fails and may.
fn ask(
    state: &mut State,
    hook: &Value,
    subject: &Subject<'_>,
    mutating: bool,
) -> Result<Option<(Arc<Resource>, Verdict)>, Failure> {
    let name = hook["name"].as_str().unwrap_or_default();
    let Some(resource) = matching::chosen(state, hook, subject)? else {
        return Ok(None);
    };
    if subject.call.options.dry_run
        && !["None", "NoneOnDryRun"].contains(&hook["sideEffects"].as_str().unwrap_or_default())
    {
        return Err(Failure::bad_request(format!(
            "admission webhook {name:?} does not support dry run"
        )));
    }
    let question = review::question(&resource, subject);
    let client = call::resolved(state, &hook["clientConfig"]);
    let timeout = Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_TIMEOUT_SECONDS));
    let consultation = state
        .consultation
        .as_mut()
        .expect("webhooks are only listed within one");
    let (uid, reply) = consultation.ask(&client, timeout, question)?;
    let verdict = reply
        .map_err(|error| format!("failed to call webhook: {error}"))
        .and_then(|answer| {
            review::read(&answer, &uid, mutating).map_err(|error| format!("received invalid webhook response: {error}"))
        });
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(_) if hook["failurePolicy"] == "Ignore" => return Ok(None),
        Err(error) => return Err(Failure::internal(format!("failed calling webhook {name:?}: {error}"))),
    };
    consultation.warn(verdict.warnings.clone());
    if verdict.allowed {
        Ok(Some((resource, verdict)))
    } else {
        Err(Failure::denied(name, &verdict.status))
    }
}
