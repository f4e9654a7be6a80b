//! Behaviours about objects: objects that the host or the API server refuses, forbidden reads, and answers that never
//! settle.

use pilothouse_plugin::raw::types::{self, ListOptions, Outcome, Ownership};
use pilothouse_plugin::raw::{clock, cluster};
use serde_json::{Value, json};

use crate::answers::{config_map, config_map_json, config_map_with, lower, outcome};
use crate::behaviour::{Behaviour, Given};
use crate::{CONFIG_MAP, SECRET};

/// The answer, if the behaviour is one of these.
pub fn of(behaviour: Behaviour, given: &Given) -> Option<Outcome> {
    let Given {
        name, namespace, text, ..
    } = given;
    let data = json!({"text": text});
    let metadata = json!({"name": name, "namespace": namespace});
    let owning = |object: Value| outcome([object.to_string()]);
    Some(match behaviour {
        Behaviour::Nothing => outcome([]),

        Behaviour::BrokenJson => outcome([r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"#.to_owned()]),
        Behaviour::NotAnObject => owning(json!([{"apiVersion": "v1", "kind": "ConfigMap"}])),
        Behaviour::Nameless => {
            owning(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace}, "data": data}))
        }
        Behaviour::Kindless => owning(json!({"metadata": metadata, "data": data})),
        Behaviour::UndeclaredKind => owning(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})),
        Behaviour::SameNameTwice => outcome([
            config_map_json(name, namespace, &json!({"text": "one"})),
            config_map_json(name, namespace, &json!({"text": "other"})),
        ]),
        Behaviour::OtherNamespace => {
            let mut deployment = deployment(given, &json!({"replicas": 1}));
            deployment["metadata"]["namespace"] = json!(text);
            owning(deployment)
        }
        Behaviour::UndeclaredContribution => contributed(config_map(given)),

        Behaviour::UndeclaredRead => {
            let found = cluster::get(&lower(SECRET), Some(namespace), text);
            config_map_with(given, if found.is_some() { "present" } else { "absent" })
        }
        Behaviour::UndeclaredField => found_by(given, None, &[(".immutable", "true")]),
        Behaviour::BrokenSelector => found_by(given, Some("a in (b"), &[]),

        Behaviour::WrongType => outcome([config_map_json(name, namespace, &json!({"text": 7}))]),
        Behaviour::UnknownField => owning(deployment(given, &json!({"replicas": 1, "nonsense": true}))),
        Behaviour::InvalidValue => owning(deployment(given, &json!({"replicas": -1}))),
        Behaviour::InvalidName => outcome([config_map_json("Not_A_Name!", namespace, &data)]),

        Behaviour::InOrder => in_order(given),
        Behaviour::Copy => config_map_with(given, &text_of(given, text).unwrap_or_default()),

        Behaviour::DiffersByClock => config_map_with(given, &clock::now(1000).to_string()),
        Behaviour::DiffersByRead => config_map_with(given, &(written(given) + 1).to_string()),
        Behaviour::DiffersByOrder => config_map_with(given, if given.is_text_first { "text" } else { "behaviour" }),
        Behaviour::DiffersByListOrder => config_map_with(given, given.notes.first().map_or("", String::as_str)),
        Behaviour::DiffersByAttempt => config_map_with(given, &given.attempt.to_string()),
        _ => return None,
    })
}

/// The same objects as someone else's.
fn contributed(mut outcome: Outcome) -> Outcome {
    for types::Desired { ownership, .. } in &mut outcome.desired {
        *ownership = Ownership::Contributed;
    }
    outcome
}

/// A Deployment whose pod template has no container.
fn deployment(given: &Given, spec: &Value) -> Value {
    let Given { name, namespace, .. } = given;
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": name}});
    spec["template"] = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": []}});
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
}

fn found_by(given: &Given, labels: Option<&str>, fields: &[(&str, &str)]) -> Outcome {
    let fields = fields
        .iter()
        .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()))
        .collect();
    let options = ListOptions {
        namespace: Some(given.namespace.clone()),
        label_selector: labels.map(str::to_owned),
        field_selector: fields,
        limit: None,
    };
    let found = cluster::list(&lower(CONFIG_MAP), &options);
    config_map_with(given, &format!("found {}", found.len()))
}

/// ConfigMaps that are made one after the other.
fn in_order(given: &Given) -> Outcome {
    let name = |number: usize| format!("{}-{number}", given.name);
    let present = (0..).map_while(|number| data_of(given, &name(number)));
    let ready: Vec<bool> = present.map(|data| data["ready"].is_string()).collect();
    let (present, wanted) = (ready.len(), given.count_or(0));
    let next = if present > wanted {
        present - 1
    } else {
        let is_ready = ready.last().is_none_or(|ready| *ready);
        (present + usize::from(is_ready)).min(wanted)
    };
    let objects = (0..next).map(|number| config_map_json(&name(number), &given.namespace, &json!({"text": "pod"})));
    let told = format!(
        "{} of {present} are ready",
        ready.iter().filter(|ready| **ready).count()
    );
    Outcome {
        status: Some(json!({"text": told}).to_string()),
        ..outcome(objects)
    }
}

/// The number in the ConfigMap that was written before.
fn written(given: &Given) -> u64 {
    let text = text_of(given, &given.name);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn text_of(given: &Given, name: &str) -> Option<String> {
    data_of(given, name)?["text"].as_str().map(str::to_owned)
}

fn data_of(given: &Given, name: &str) -> Option<Value> {
    let present = cluster::get(&lower(CONFIG_MAP), Some(&given.namespace), name)?;
    let present: Value = serde_json::from_str(&present).ok()?;
    Some(present["data"].clone())
}
