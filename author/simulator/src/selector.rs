//! Parses label and field selectors, and matches objects against them.

use serde_json::Value;

use crate::failure::Failure;
use crate::kinds::Resource;

/// Fields of built-in kinds, beside metadata.name and metadata.namespace, that lists can be selected by.
const SELECTABLE: &[(&str, &[&str])] = &[
    (
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
            // events.k8s.io names them otherwise.
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reportingController",
        ],
    ),
    (
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
    ),
    ("secrets", &["type"]),
    ("namespaces", &["status.phase"]),
    ("nodes", &["spec.unschedulable"]),
    ("services", &["spec.clusterIP", "spec.type"]),
    ("replicasets", &["status.replicas"]),
    ("replicationcontrollers", &["status.replicas"]),
    ("jobs", &["status.successful"]),
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

/// Selection of objects by a list or a watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<(String, Condition)>,
    /// Path, whether it must be equal, value.
    fields: Vec<(String, bool, String)>,
}

impl Selector {
    pub(crate) fn parse(labels: &str, fields: &str, resource: &Resource) -> Result<Self, Failure> {
        let labels = parse_labels(labels).map_err(|fault| {
            let shown = format!("unable to parse requirement: {fault}");
            Failure::bad_request(shown)
        })?;
        let fields = parse_fields(fields)?;
        for (path, _, _) in &fields {
            if !selectable(resource, path) {
                let has_own = SELECTABLE.iter().any(|(plural, _)| *plural == resource.plural);
                let problem = if resource.custom.is_some() || has_own {
                    format!("field label not supported: {path}")
                } else {
                    format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                };
                return Err(Failure::bad_request(problem));
            }
        }
        Ok(Self { labels, fields })
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels
            .iter()
            .all(|(key, condition)| meets(labels[key].as_str(), condition))
            && self
                .fields
                .iter()
                .all(|(path, equal, value)| (field(object, path) == *value) == *equal)
    }
}

/// Matches labels against a selector as objects carry one: `matchLabels` and `matchExpressions`. An empty one matches
/// all.
pub(crate) fn matches_labels(selector: &Value, labels: &Value) -> bool {
    let has = |key: &str, condition: &Condition| meets(labels[key].as_str(), condition);
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut conditions = equal.map(|(key, value)| (key.as_str(), Condition::In(vec![text(value)])));
    let mut expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|expression| {
            let values = expression["values"]
                .as_array()
                .into_iter()
                .flatten()
                .map(text)
                .collect();
            let condition = match expression["operator"].as_str() {
                Some("In") => Condition::In(values),
                Some("NotIn") => Condition::NotIn(values),
                Some("DoesNotExist") => Condition::Absent,
                _ => Condition::Exists,
            };
            (expression["key"].as_str().unwrap_or_default(), condition)
        });
    conditions.all(|(key, condition)| has(key, &condition)) && expressions.all(|(key, condition)| has(key, &condition))
}

fn selectable(resource: &Resource, path: &str) -> bool {
    if path == "metadata.name" || (path == "metadata.namespace" && resource.namespaced) {
        return true;
    }
    if let Some(custom) = &resource.custom {
        return custom
            .selectable
            .iter()
            .any(|selectable| selectable.trim_start_matches('.') == path);
    }
    SELECTABLE
        .iter()
        .any(|(plural, paths)| *plural == resource.plural && paths.contains(&path))
}

fn field(object: &Value, path: &str) -> String {
    match path {
        "source" => text(&object["source"]["component"]),
        "spec.unschedulable" | "spec.hostNetwork" => path
            .split('.')
            .fold(object, |value, step| &value[step])
            .as_bool()
            .unwrap_or(false)
            .to_string(),
        "status.successful" => object["status"]["succeeded"].as_i64().unwrap_or(0).to_string(),
        "status.replicas" => object["status"]["replicas"].as_i64().unwrap_or(0).to_string(),
        // Events are stored in their core form.
        "reportingController" => text(&object["reportingComponent"]),
        _ => {
            let path = match path.strip_prefix("regarding.") {
                Some(rest) => format!("involvedObject.{rest}"),
                None => path.to_owned(),
            };
            text(path.split('.').fold(object, |value, step| &value[step]))
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn meets(label: Option<&str>, condition: &Condition) -> bool {
    let number = || label.and_then(|label| label.parse::<i64>().ok());
    match condition {
        Condition::In(values) => label.is_some_and(|label| values.iter().any(|value| value == label)),
        Condition::NotIn(values) => !label.is_some_and(|label| values.iter().any(|value| value == label)),
        Condition::Exists => label.is_some(),
        Condition::Absent => label.is_none(),
        Condition::Greater(bound) => number().is_some_and(|number| number > *bound),
        Condition::Less(bound) => number().is_some_and(|number| number < *bound),
    }
}

fn parse_labels(text: &str) -> Result<Vec<(String, Condition)>, String> {
    split_top_level(text)
        .into_iter()
        .filter(|part| !part.trim().is_empty())
        .map(|part| requirement(part.trim()))
        .collect()
}

/// Splits at commas outside parentheses.
fn split_top_level(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(text: &str) -> Result<(String, Condition), String> {
    if let Some(key) = text.strip_prefix('!') {
        return Ok((key.trim().to_owned(), Condition::Absent));
    }
    if let Some((head, rest)) = text.split_once('(') {
        let values = rest
            .strip_suffix(')')
            .ok_or_else(|| format!("found '{text}', expected: ',', or ')'"))?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => Ok((key.to_owned(), Condition::In(values))),
            (Some(key), Some("notin"), None) => Ok((key.to_owned(), Condition::NotIn(values))),
            _ => Err(format!("found '{head}', expected: in, notin, =, ==, !=, gt, lt")),
        };
    }
    let pair = |operator: &str| {
        text.split_once(operator)
            .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
    };
    if let Some((key, value)) = pair("!=") {
        return Ok((key, Condition::NotIn(vec![value])));
    }
    if let Some((key, value)) = pair("==").or_else(|| pair("=")) {
        if key.is_empty() {
            return Err("<nil>: found '=', expected: !, identifier, or 'end of string'".to_owned());
        }
        return Ok((key, Condition::In(vec![value])));
    }
    let number = |value: String| value.parse::<i64>().map_err(|_| format!("{value:?} is not an integer"));
    if let Some((key, value)) = pair(">") {
        return number(value).map(|bound| (key, Condition::Greater(bound)));
    }
    if let Some((key, value)) = pair("<") {
        return number(value).map(|bound| (key, Condition::Less(bound)));
    }
    if text.contains(char::is_whitespace) {
        let second = text.split_whitespace().nth(1).unwrap_or_default();
        return Err(format!("found '{second}', expected: in, notin, =, ==, !=, gt, lt"));
    }
    Ok((text.to_owned(), Condition::Exists))
}

fn parse_fields(text: &str) -> Result<Vec<(String, bool, String)>, Failure> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let found = part
                .split_once("!=")
                .map(|pair| (pair, false))
                .or_else(|| part.split_once("==").map(|pair| (pair, true)))
                .or_else(|| part.split_once('=').map(|pair| (pair, true)));
            found
                .map(|((path, value), equal)| (path.to_owned(), equal, value.to_owned()))
                .ok_or_else(|| Failure::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;
    use serde_json::json;

    fn selector(labels: &str, fields: &str) -> Selector {
        let kinds = Kinds::builtin();
        let events = kinds.get("", "v1", "events").expect("events are served");
        Selector::parse(labels, fields, events).expect("the test's selector parses")
    }

    #[test]
    fn label_selectors_know_sets_equality_and_existence() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        for (text, expected) in [
            ("app=web,tier in (front, back)", true),
            ("app!=web", false),
            ("tier notin (back)", true),
            ("!gone,app", true),
            ("gone", false),
        ] {
            assert_eq!(selector(text, "").matches(&object), expected, "{text}");
        }
    }

    #[test]
    fn selectors_of_objects_know_the_same() {
        let labels = json!({"app": "web", "tier": "front"});
        let matches = |selector: &Value| matches_labels(selector, &labels);
        assert!(matches(&json!({})));
        assert!(matches(
            &json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]})
        ));
        assert!(!matches(&json!({"matchLabels": {"app": "db"}})));
        assert!(!matches(
            &json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]})
        ));
    }

    #[test]
    fn events_are_selected_by_what_they_are_about() {
        let object = json!({"metadata": {"name": "a"}, "involvedObject": {"uid": "1"}, "reason": "Failed"});
        assert!(selector("", "involvedObject.uid=1,reason!=Ok").matches(&object));
        assert!(!selector("", "metadata.name=b").matches(&object));
    }
}
