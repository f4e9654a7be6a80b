//! Explains rights to users: the actions that a plugin will be able to take, and rights stronger than they seem.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::objects::RBAC_GROUP;
use super::rules::{Place, Resource, Rules, Verb};

/// The resources whose objects run Pods.
const RUNS_PODS: [(&str, &str); 8] = [
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
];

/// The allowed actions: a line for each place, and below it a line for each resource.
pub fn explained(rules: &Rules) -> String {
    let mut text = String::new();
    for (place, rules) in rules.places() {
        let _ = match place {
            Place::Cluster => writeln!(text, "in all namespaces, and with objects that are in none:"),
            Place::Namespace(namespace) => writeln!(text, "in namespace {namespace}:"),
        };
        let width = rules
            .values()
            .map(|verbs| actions(verbs).len())
            .max()
            .unwrap_or_default();
        for (resource, verbs) in rules {
            let _ = writeln!(text, "  {:<width$}  {}", actions(verbs), named(resource));
        }
    }
    text
}

/// The rights that give more power than they seem to, a sentence each.
pub fn cautions(rules: &Rules) -> Vec<String> {
    let mut cautions = Vec::new();
    for (place, rules) in rules.places() {
        let place = match place {
            Place::Cluster => "in all namespaces".to_owned(),
            Place::Namespace(namespace) => format!("in namespace {namespace}"),
        };
        let runs: Vec<&str> = resources(rules, |resource, verbs| {
            let writes = verbs.contains(&Verb::Create) || verbs.contains(&Verb::Patch);
            writes && RUNS_PODS.contains(&(resource.group.as_str(), resource.resource.as_str()))
        });
        if !runs.is_empty() {
            cautions.push(format!(
                "by {} it can run Pods {place}, with each Secret and ServiceAccount that is there",
                runs.join(", ")
            ));
        }
        let reads = |resource: &Resource, verbs: &BTreeSet<Verb>| {
            let is_read = verbs.contains(&Verb::Get) || verbs.contains(&Verb::List);
            is_read && resource.group.is_empty() && resource.resource == "secrets" && resource.names.is_empty()
        };
        if !resources(rules, reads).is_empty() {
            cautions.push(format!("it can read the content of every Secret {place}"));
        }
        let grants = |resource: &Resource, verbs: &BTreeSet<Verb>| {
            let writes = verbs.contains(&Verb::Create) || verbs.contains(&Verb::Patch);
            let group = resource.group.as_str();
            writes && (group == RBAC_GROUP || group == "admissionregistration.k8s.io")
        };
        let grants = resources(rules, grants);
        if !grants.is_empty() {
            cautions.push(format!(
                "by {} it can change what others may do {place}",
                grants.join(", ")
            ));
        }
    }
    cautions
}

fn resources(
    rules: &BTreeMap<Resource, BTreeSet<Verb>>,
    is_meant: impl Fn(&Resource, &BTreeSet<Verb>) -> bool,
) -> Vec<&str> {
    let meant = rules.iter().filter(|(resource, verbs)| is_meant(resource, verbs));
    meant.map(|(resource, _)| resource.resource.as_str()).collect()
}

fn actions(verbs: &BTreeSet<Verb>) -> String {
    let mut actions = Vec::new();
    if verbs.contains(&Verb::Get) || verbs.contains(&Verb::List) || verbs.contains(&Verb::Watch) {
        actions.push("read");
    }
    for (verb, action) in [
        (Verb::Create, "create"),
        (Verb::Patch, "change"),
        (Verb::Delete, "delete"),
        (Verb::Default, "set defaults at admission"),
        (Verb::Validate, "refuse at admission"),
    ] {
        if verbs.contains(&verb) {
            actions.push(action);
        }
    }
    actions.join(", ")
}

/// The resource for messages: `deployments.apps` or `appservices.kosmos.io/status`.
pub(super) fn qualified(group: &str, resource: &str) -> String {
    let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let mut text = plural.to_owned();
    for (separator, part) in [(".", group), ("/", subresource)] {
        if !part.is_empty() {
            text.extend([separator, part]);
        }
    }
    text
}

fn named(resource: &Resource) -> String {
    let Resource { group, resource, names } = resource;
    let mut text = qualified(group, resource);
    if !names.is_empty() {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        text.extend([" named ", &names.join(", ")]);
    }
    text
}
