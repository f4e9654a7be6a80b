//! Checks the options of a desired object: the host knows them, the manifest lists them, and they suit the object.

use serde_json::{Map, Value};

use super::after::Reference;
use crate::answer::desired::invalid;
use crate::kubernetes::key::{Kind, Name};
use crate::kubernetes::path::FieldPath;
use crate::ownership::once::is_token;
use crate::plugin::contract::{Desired, Lifecycle, Ownership, Propagation};
use crate::plugin::grants::Grants;
use crate::plugin::manifest::{ADOPT, AFTER, MAX_OPTION, ONCE, PROPAGATION, REPLACE, YIELD};
use crate::status::failure::Failure;
use crate::text::printable::shorten;

/// Kinds of which a deletion takes everything within the object, whatever the propagation.
const CONTAINERS: [(&str, &str); 2] = [("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition")];

/// The most fields that one object yields.
const MAX_YIELDS: usize = 32;

/// The options of a desired object, checked.
pub(super) struct CheckedOptions {
    /// Its lifecycle.
    pub(super) lifecycle: Lifecycle,
    /// The fields that it yields.
    pub(super) yields: Vec<FieldPath>,
    /// The objects that it comes after, as the answer names them.
    pub(super) after: Vec<Reference>,
    /// The token with which it is made once.
    pub(super) once: Option<String>,
}

/// Checks the options of a desired object; `body` is that of the answer.
pub(super) fn check_options(
    position: usize,
    wanted: &Desired,
    body: &Map<String, Value>,
    (kind, name): (&Kind, &Name),
    grants: &Grants,
) -> Result<CheckedOptions, Failure> {
    read(wanted, body, kind, grants).map_err(|problem| {
        let controller = grants.controller();
        invalid(format!(
            "controller {controller}: desired object {position}, {} {name}, {problem}",
            kind.kind
        ))
    })
}

fn read(wanted: &Desired, body: &Map<String, Value>, kind: &Kind, grants: &Grants) -> Result<CheckedOptions, String> {
    let options: Map<String, Value> = serde_json::from_str(&wanted.options)
        .map_err(|error| format!("has options that are not a JSON object: {error}"))?;
    let (mut lifecycle, mut yields, mut after) = (wanted.lifecycle, Vec::new(), Vec::new());
    let mut once = None;
    for (option, value) in &options {
        let wrong = |is: &str| {
            let value = shorten(value.to_string(), MAX_OPTION);
            format!("has the option {option:?} with {value}; it is {is}")
        };
        match option.as_str() {
            REPLACE => lifecycle.replace = value.as_bool().ok_or_else(|| wrong("true or false"))?,
            PROPAGATION => {
                let policy = value.as_str().and_then(Propagation::parse);
                lifecycle.propagation = Some(policy.ok_or_else(|| wrong("Background, Foreground or Orphan"))?);
            }
            ADOPT => {
                lifecycle.adopt = match value.as_str() {
                    Some("Never") => false,
                    Some("IfUnowned") => true,
                    _ => return Err(wrong("Never or IfUnowned")),
                };
            }
            YIELD => yields = read_yields(value, body)?.ok_or_else(|| wrong("a list of at most 32 field paths"))?,
            AFTER => {
                after = Reference::read_all(value).ok_or_else(|| {
                    wrong("a list of at most 32 objects, each with apiVersion, kind, name and, if it has another one, namespace")
                })?;
            }
            ONCE => {
                let token = value.as_str().filter(|token| is_token(token));
                let token = token.ok_or_else(|| wrong("a text of 1 to 128 bytes without control characters"))?;
                once = Some(token.to_owned());
            }
            _ => {
                return Err(format!(
                    "has the option {:?}, which this host does not know; update the host, or remove the option",
                    shorten(option.clone(), MAX_OPTION)
                ));
            }
        }
        if !grants.lists_option(option) {
            return Err(format!(
                "has the option {option:?}, which the manifest does not list; add it to options of the controller"
            ));
        }
    }
    let has_options = lifecycle != wanted.lifecycle || !yields.is_empty() || !after.is_empty() || once.is_some();
    if let Some(option) = options.keys().next().filter(|_| has_options)
        && wanted.ownership == Ownership::Contributed
    {
        return Err(format!(
            "is contributed and has the option {option:?}, which only owned objects have"
        ));
    }
    for (option, is_set) in [
        (REPLACE, lifecycle.replace),
        (YIELD, !yields.is_empty()),
        (ONCE, once.is_some()),
    ] {
        if is_set && lifecycle.create_only {
            return Err(format!(
                "has the option {option:?} and the lifecycle create-only, which says that it is never changed; leave one of the two out"
            ));
        }
    }
    let is_container = CONTAINERS.contains(&(kind.group.as_str(), kind.kind.as_str()));
    if lifecycle.propagation == Some(Propagation::Orphan) && is_container {
        return Err(format!(
            "has the option {PROPAGATION:?} with \"Orphan\", but a {} is deleted with everything in it; leave the option out, or \
             keep the object with the lifecycle keep",
            kind.kind
        ));
    }
    Ok(CheckedOptions {
        lifecycle,
        yields,
        after,
        once,
    })
}

/// Reads the paths that an object yields; none if the value is no list of texts, or too long. Each path leads through
/// members of objects to a field that the body sets, and that does not identify the object.
fn read_yields(value: &Value, body: &Map<String, Value>) -> Result<Option<Vec<FieldPath>>, String> {
    let Some(items) = value.as_array().filter(|items| items.len() <= MAX_YIELDS) else {
        return Ok(None);
    };
    let mut paths = Vec::with_capacity(items.len());
    for item in items {
        let Some(text) = item.as_str() else { return Ok(None) };
        let fault = |problem: &str| Err(format!("has the option {YIELD:?} with {text:?}, {problem}"));
        let path = match FieldPath::parse(text) {
            Ok(path) => path,
            Err(error) => return Err(format!("has the option {YIELD:?}: {error}")),
        };
        let names: Option<Vec<&str>> = path.names().collect();
        match names.as_deref() {
            None => return fault("which leads into a list; yield the list, or leave the path out"),
            Some([] | ["apiVersion" | "kind" | "metadata"] | ["metadata", _]) => {
                return fault(
                    "which the host needs; yield fields beside the metadata, or single labels and annotations",
                );
            }
            Some(_) => {}
        }
        if path.member_of(body).is_none_or(Value::is_null) {
            return fault("which the object does not set; set the field, or leave the path out");
        }
        paths.push(path);
    }
    Ok(Some(paths))
}
