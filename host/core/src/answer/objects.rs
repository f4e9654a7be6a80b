//! Checks a desired object: it has a namespace and a name, its kind is declared, and the plugin would see it again.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::KindFacts;
use super::after::Reference;
use super::options::{CheckedOptions, check_options};
use crate::answer::desired::{DesiredObject, PrimaryName, UnservedObject, invalid};
use crate::diff::canonical::canonical;
use crate::kubernetes::key::{Kind, Name};
use crate::kubernetes::served::ServedKind;
use crate::plugin::contract::{Desired, Ownership};
use crate::plugin::grants::{Grant, Grants};
use crate::plugin::manifest::{Access, Touch, is_label};
use crate::status::failure::{Failure, Retry};
use crate::status::reason::Reason;

/// A desired object that was checked, and those that it comes after, as the answer names them.
pub(super) struct CheckedDesire {
    pub(super) object: CheckedObject,
    pub(super) after: Vec<Reference>,
}

/// A desired object that was checked by itself.
pub(super) enum CheckedObject {
    /// An object that can be applied.
    Served(DesiredObject),
    /// The cluster does not serve its kind, which the plugin can do without.
    Unserved(UnservedObject),
}

/// Makes the object in canonical form.
pub(super) fn check_object(
    position: usize,
    wanted: &Desired,
    primary: &PrimaryName<'_>,
    grants: &Grants,
    served: &impl Fn(&Kind) -> Option<ServedKind>,
) -> Result<CheckedDesire, Failure> {
    let mut body: Map<String, Value> = serde_json::from_str(&wanted.object)
        .map_err(|error| invalid(format!("desired object {position} is not a JSON object: {error}")))?;
    let member = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(api_version), Some(kind)) = (member("apiVersion"), member("kind")) else {
        return Err(invalid(format!("desired object {position} lacks apiVersion or kind")));
    };
    let kind = Kind::from_api_version(api_version, kind);
    let metadata = body.get("metadata").and_then(Value::as_object);
    let text_of = |name: &str| {
        metadata
            .and_then(|it| it.get(name))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let Some(name) = text_of("name").filter(|name| !name.is_empty()) else {
        return Err(invalid(format!(
            "desired object {position}, a {}, has no metadata.name; a desired object is found by its name",
            kind.kind
        )));
    };
    if name.len() > 253 || name.contains(['/', '%']) || name == "." || name == ".." {
        return Err(invalid(format!(
            "desired object {position}, a {}, has the unusable name {name:?}",
            kind.kind
        )));
    }
    let touch = declared_touch(&kind, &name, wanted.ownership, grants)?;
    let given = text_of("namespace");
    let Some(served) = served(&kind) else {
        let failure = Failure::cluster(
            Reason::NotSynced,
            format!("{kind} {name} is desired, but the cluster does not serve the kind; install what brings it"),
        );
        if !touch.optional {
            return Err(failure);
        }
        let name = Name::new(given.as_deref().or(primary.name.namespace.as_deref()), &name);
        let CheckedOptions { after, .. } = check_options(position, wanted, &body, (&kind, &name), grants)?;
        let object = CheckedObject::Unserved(UnservedObject {
            kind: Arc::new(kind),
            name,
            may_be_cluster_scoped: given.is_none(),
            ownership: wanted.ownership,
            failure: failure.retry(Retry::Change),
        });
        return Ok(CheckedDesire { object, after });
    };
    let namespace = place(&kind, &name, given, primary, served.facts)?;
    let name = Name::new(namespace.as_deref(), &name);
    if let Some(problem) = grants
        .get(&kind)
        .and_then(|grant| outside(grant, primary.name, &name, &body, wanted.ownership))
    {
        return Err(undeclared(&kind, &name.name, &problem));
    }
    if wanted.ownership == Ownership::Owned && kind.same_kind(primary.kind) && name == *primary.name {
        return Err(invalid(format!(
            "{} {name} is desired by itself; an object cannot own itself",
            kind.kind
        )));
    }
    if wanted.ownership == Ownership::Contributed
        && served.facts.has_status
        && body.get("status").is_some_and(|status| !status.is_null())
    {
        return Err(invalid(format!(
            "desired object {position}, {} {name}, contributes a status, which is not written through the object itself; leave \
             status out of the contribution",
            kind.kind
        )));
    }
    canonical(&mut body, &kind, served.facts.has_status)
        .map_err(|error| invalid(format!("desired object {position}, {} {name}: {error}", kind.kind)))?;
    let CheckedOptions {
        lifecycle,
        yields,
        after,
        once,
    } = check_options(position, wanted, &body, (&kind, &name), grants)?;
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        match namespace {
            Some(namespace) => metadata.insert("namespace".to_owned(), Value::String(namespace)),
            None => metadata.remove("namespace"),
        };
    }
    let object = CheckedObject::Served(DesiredObject {
        served,
        name,
        body,
        lifecycle,
        yields,
        after: Vec::new(),
        once,
    });
    Ok(CheckedDesire { object, after })
}

/// The touch by which the manifest allows a desired object.
fn declared_touch<'a>(kind: &Kind, name: &str, ownership: Ownership, grants: &'a Grants) -> Result<&'a Touch, Failure> {
    let access = match ownership {
        Ownership::Owned => Access::Owned,
        Ownership::Contributed => Access::Contributed,
    };
    let word = word(access);
    let problem = match grants.get(kind) {
        Some(grant) if grant.allows(access) => return Ok(&grant.touch),
        Some(_) => format!("the manifest declares the kind without access {word}"),
        None => "the manifest does not declare the kind".to_owned(),
    };
    let problem = format!("{problem}; declare it under touches with access {word}");
    Err(undeclared(kind, name, &problem))
}

/// Describes how an object lies outside of the plugin's declared objects of its kind, so that the plugin would not see
/// it again. None if it lies within.
fn outside(
    grant: &Grant,
    primary: &Name,
    name: &Name,
    body: &Map<String, Value>,
    ownership: Ownership,
) -> Option<String> {
    let Touch {
        kind: _,
        access: _,
        fields: _,
        label_selector,
        scope: _,
        namespaces: _,
        names,
        optional: _,
    } = &grant.touch;
    let namespace = name.namespace.as_deref();
    if let Some(problem) = grant.outside(primary, namespace) {
        let place = namespace.map_or_else(|| "it is cluster-scoped".to_owned(), |it| format!("in namespace {it}"));
        return Some(format!("{place}, {problem}"));
    }
    if !names.is_empty() && !names.iter().any(|it| **it == *name.name) {
        return Some("its name is outside the names that the manifest declares; add it under touches".to_owned());
    }
    // The labels of another owner's object are checked when the live object is found.
    if ownership == Ownership::Contributed {
        return None;
    }
    let own = body.get("metadata").and_then(|metadata| metadata.get("labels"));
    let label = |key: &str| own.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let labels = label_selector.as_ref().filter(|labels| !labels.matches(label))?;
    Some(format!(
        "its labels do not match {labels}, which the manifest declares; give it these labels"
    ))
}

fn undeclared(kind: &Kind, name: &str, problem: &str) -> Failure {
    Failure::guest(Reason::Undeclared, format!("{kind} {name} is desired, but {problem}"))
}

/// The access as the manifest spells it.
fn word(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Owned => "owned",
        Access::Contributed => "contributed",
    }
}

/// The namespace of a desired object: the primary's where it gives none.
fn place(
    kind: &Kind,
    name: &str,
    namespace: Option<String>,
    primary: &PrimaryName<'_>,
    facts: KindFacts,
) -> Result<Option<String>, Failure> {
    if !facts.namespaced {
        return Ok(None);
    }
    let home = primary.name.namespace.as_deref().map(str::to_owned);
    match namespace.filter(|namespace| !namespace.is_empty()).or(home) {
        // The namespace becomes part of a path.
        Some(namespace) if !is_label(&namespace) => Err(invalid(format!(
            "{kind} {name} is desired in the unusable namespace {namespace:?}"
        ))),
        Some(namespace) => Ok(Some(namespace)),
        None => Err(invalid(format!(
            "{kind} {name} is desired without a namespace, and the primary has none to give it"
        ))),
    }
}
