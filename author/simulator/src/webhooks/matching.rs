//! Decides which webhooks match a write: rules, scope, selectors and match conditions.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::expression;
use crate::failure::Failure;
use crate::kinds::Resource;
use crate::objects::Call;
use crate::selector::matches_labels;
use crate::state::State;

use super::review;

/// Write that a webhook could be called about.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) call: &'a Call,
    pub(super) operation: &'static str,
    /// New object; None where it is deleted.
    pub(super) object: Option<&'a Value>,
    /// Old object; None where it is created.
    pub(super) old: Option<&'a Value>,
}

impl Subject<'_> {
    pub(super) fn name(&self) -> &str {
        let object = self.object.or(self.old);
        object
            .and_then(|object| object["metadata"]["name"].as_str())
            .unwrap_or_default()
    }

    /// A namespace is in itself.
    pub(super) fn namespace(&self) -> &str {
        if self.is_namespace() {
            return self.name();
        }
        self.call.namespace.as_deref().unwrap_or_default()
    }

    fn is_namespace(&self) -> bool {
        self.call.resource.is_builtin("", "namespaces")
    }

    /// The object in another version.
    pub(super) fn shown(resource: &Resource, own: &Resource, object: Option<&Value>) -> Option<Value> {
        let object = object?;
        if resource.version == own.version {
            return Some(object.clone());
        }
        Some(resource.show(&own.store(object.clone())).into_owned())
    }
}

/// The resource in the version that the webhook wants to be asked about; None where it does not want to be asked.
pub(super) fn chosen(state: &State, hook: &Value, subject: &Subject<'_>) -> Result<Option<Arc<Resource>>, Failure> {
    let own = &subject.call.resource;
    let by_rules = |resource: &Resource| {
        let rules = hook["rules"].as_array().into_iter().flatten();
        rules.into_iter().any(|rule| is_ruled(rule, resource, subject))
    };
    let equivalent = || {
        let same = |other: &&Arc<Resource>| other.storage == own.storage && other.version != own.version;
        let mut others = state.kinds.all().filter(same);
        others.find(|other| by_rules(other)).cloned()
    };
    let chosen = if by_rules(own) {
        Some(own.clone())
    } else if hook["matchPolicy"] == "Exact" {
        None
    } else {
        equivalent()
    };
    let Some(resource) = chosen else { return Ok(None) };
    if !is_in_namespace(state, hook, subject) || !has_labels(hook, subject) {
        return Ok(None);
    }
    Ok(meets_conditions(state, hook, &resource, subject)?.then_some(resource))
}

fn is_ruled(rule: &Value, resource: &Resource, subject: &Subject<'_>) -> bool {
    let has = |member: &str, wanted: &str| {
        let words = rule[member].as_array().into_iter().flatten();
        words.into_iter().any(|word| word == "*" || word == wanted)
    };
    let subresource = subject.call.subresource.as_str();
    let resources = rule["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let mut resources = resources.map(|text| text.split_once('/').unwrap_or((text, "")));
    let in_namespace = !subject.namespace().is_empty() && !subject.is_namespace();
    let in_scope = match rule["scope"].as_str() {
        Some("Namespaced") => in_namespace,
        Some("Cluster") => !in_namespace,
        _ => true,
    };
    let is_resource = |(plural, part): (&str, &str)| {
        (plural == "*" || plural == resource.plural)
            && (part == subresource || (part == "*" && plural != "*") || (plural, part) == ("*", "*"))
    };
    in_scope
        && has("operations", subject.operation)
        && has("apiGroups", &resource.group)
        && has("apiVersions", &resource.version)
        && resources.any(is_resource)
}

/// Objects that are in no namespace are not chosen by it.
fn is_in_namespace(state: &State, hook: &Value, subject: &Subject<'_>) -> bool {
    let selector = &hook["namespaceSelector"];
    if subject.namespace().is_empty() {
        return true;
    }
    let stored = state.get("", "namespaces", "", subject.namespace());
    let namespace = if subject.is_namespace() {
        subject.object.or(subject.old)
    } else {
        stored.map(|namespace| &**namespace)
    };
    namespace.is_none_or(|namespace| matches_labels(selector, &namespace["metadata"]["labels"]))
}

/// Either as it is or as it is going to be.
fn has_labels(hook: &Value, subject: &Subject<'_>) -> bool {
    let mut objects = [subject.object, subject.old].into_iter().flatten();
    objects.any(|object| matches_labels(&hook["objectSelector"], &object["metadata"]["labels"]))
}

/// All must hold. A condition that cannot be evaluated counts as one that holds; one that fails counts as the failure policy
/// says, unless another one does not hold.
fn meets_conditions(
    state: &State,
    hook: &Value,
    resource: &Arc<Resource>,
    subject: &Subject<'_>,
) -> Result<bool, Failure> {
    let own = &subject.call.resource;
    let shown = |object| Subject::shown(resource, own, object).unwrap_or(Value::Null);
    let conditions = hook["matchConditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if conditions.is_empty() {
        return Ok(true);
    }
    let (object, old) = (shown(subject.object), shown(subject.old));
    let request = review::request(resource, subject);
    let namespace = state.get("", "namespaces", "", subject.namespace());
    let namespace = namespace.map_or(Value::Null, |namespace| (**namespace).clone());
    let variables = [
        ("object", &object),
        ("oldObject", &old),
        ("request", &request),
        ("namespaceObject", &namespace),
    ];
    let mut failed = None;
    for condition in conditions {
        let text = condition["expression"].as_str().unwrap_or_default();
        match expression::run(text, &variables) {
            Some(Ok(cel::Value::Bool(false))) => return Ok(false),
            Some(Err(error)) => failed = failed.or(Some((text, error))),
            _ => {}
        }
    }
    match failed {
        None => Ok(true),
        Some(_) if hook["failurePolicy"] == json!("Ignore") => Ok(false),
        Some((text, error)) => {
            let cause = format!("expression '{text}' resulted in error: {error}");
            Err(Failure::forbidden(&own.group, &own.plural, subject.name(), &cause))
        }
    }
}
