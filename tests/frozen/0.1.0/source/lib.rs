//! A plugin that uses everything that the contract 0.1.0 has, and nothing that came later. It speaks the contract without an
//! SDK. What it does is what tests/end-to-end/tests/frozen expects; its component is never built again.

use serde_json::{Value, json};

wit_bindgen::generate!({ path: "plugin.wit", world: "plugin-with-everything" });

use exports::pilothouse::plugin::{converter, defaulter, finalizer, manifest, reconciler, validator};
use pilothouse::plugin::admission::{FieldErrorKind, Phase};
use pilothouse::plugin::log::{Level, log};
use pilothouse::plugin::types::{
    Condition, ConditionStatus, Desired, Event, EventType, Failure, GroupVersionKind, Lifecycle, ListOptions, Outcome,
    Ownership, Request,
};
use pilothouse::plugin::{clock, cluster};

struct Relic;

export!(Relic);

/// The largest size that is accepted, and the one that is warned of.
const LARGEST: i64 = 100;
const LARGE: i64 = 10;

impl manifest::Guest for Relic {
    fn describe(configuration: Option<String>) -> Result<String, String> {
        let configuration = configuration.map(|text| parse(&text)).unwrap_or_default();
        let suffix = &configuration["suffix"];
        if !suffix.is_null() && !suffix.is_string() {
            return Err("suffix: must be a text".to_owned());
        }
        let config_map = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
        Ok(json!({
            "name": "relic",
            "version": "1.0.0",
            "description": "Uses everything that the contract 0.1.0 has.",
            "controllers": [{
                "name": "relics",
                "kind": {"group": "frozen.test.dev", "version": "v1", "kind": "Relic"},
                "fields": [".spec"],
                "filter": {"labelSelector": "!ignored"},
                "finalizer": "frozen.test.dev/relic",
                "failureReason": "Failure",
                "admission": {"failurePolicy": "Fail", "timeoutSeconds": 3},
                "touches": [
                    {"kind": config_map, "access": ["owned", "read"], "fields": [".data"]},
                    {"kind": {"group": "", "version": "v1", "kind": "Service"}, "access": ["contributed"]},
                    {"kind": {"group": "frozen.test.dev", "version": "v1", "kind": "Nowhere"},
                     "access": ["read"], "scope": "Any", "namespaces": ["a", "b"], "names": ["one"], "optional": true},
                ],
            }],
            "crds": [include_str!("../crd.yaml")],
            "configurationSchema": {"type": "object", "properties": {"suffix": {"type": "string"}}},
        })
        .to_string())
    }
}

impl reconciler::Guest for Relic {
    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        let relic = parse(&request.object);
        let name = text(&relic["metadata"]["name"]);
        let namespace = text(&relic["metadata"]["namespace"]);
        let size = relic["spec"]["size"].to_string();
        for (level, word) in [
            (Level::Trace, "trace"),
            (Level::Debug, "debug"),
            (Level::Info, "info"),
            (Level::Warn, "warn"),
            (Level::Error, "error"),
        ] {
            log(level, &format!("{name} at level {word}"), &[("size".to_owned(), size.clone())]);
        }
        match text(&relic["spec"]["does"]).as_str() {
            "fail-transiently" => return Err(Failure::Transient(format!("not yet, attempt {}", request.attempt))),
            "fail-permanently" => return Err(Failure::Permanent("never".to_owned())),
            "trap" => panic!("it was asked to trap"),
            _ => {}
        }
        let source = cluster::get(&config_map(), Some(&namespace), &format!("{name}-source"));
        let source = source.map(|object| text(&parse(&object)["data"]["text"])).unwrap_or_default();
        let listed = cluster::list(
            &config_map(),
            &ListOptions {
                namespace: Some(namespace.clone()),
                label_selector: Some("relic in (yes,perhaps)".to_owned()),
                field_selector: vec![(".data.kind".to_owned(), "listed".to_owned())],
                limit: Some(2),
            },
        );
        let listed: Vec<String> = listed.iter().map(|object| text(&parse(object)["metadata"]["name"])).collect();
        let nowhere = GroupVersionKind {
            group: "frozen.test.dev".to_owned(),
            version: "v1".to_owned(),
            kind: "Nowhere".to_owned(),
        };
        let is_nowhere = cluster::get(&nowhere, Some("a"), "one").is_none();
        let minute = clock::now(60_000) / 60_000;
        let has_come = clock::reached(relic["spec"]["until"].as_u64().unwrap_or_default());
        let suffix = text(&parse(&request.configuration)["suffix"]);

        let shared = relic["spec"]["shared"].as_str();
        let mut desired = vec![
            owned(&name, json!({"text": format!("{source}{suffix}"), "listed": listed.join(",")}), Lifecycle::empty()),
            owned(&format!("{name}-once"), json!({"size": size}), Lifecycle::CREATE_ONLY | Lifecycle::KEEP),
            owned(&format!("{name}-anew"), json!({"size": size}), Lifecycle::RECREATE),
        ];
        desired.extend(shared.map(|service| Desired {
            object: json!({"apiVersion": "v1", "kind": "Service", "metadata": {
                "name": service, "annotations": {"frozen.test.dev/relic": name}}})
            .to_string(),
            ownership: Ownership::Contributed,
            lifecycle: Lifecycle::empty(),
            options: "{}".to_owned(),
        }));
        Ok(Outcome {
            desired,
            status: Some(json!({"minute": minute, "listed": listed, "nowhere": is_nowhere}).to_string()),
            conditions: vec![
                condition("Come", if has_come { ConditionStatus::True } else { ConditionStatus::False }),
                condition("Known", ConditionStatus::Unknown),
            ],
            events: vec![
                event(EventType::Normal, "Seen"),
                event(EventType::Warning, "Old"),
            ],
            requeue_after: Some(3_600_000),
            extensions: Some(request.extensions),
        })
    }
}

impl finalizer::Guest for Relic {
    fn finalize(request: Request) -> Result<finalizer::Finalization, Failure> {
        let relic = parse(&request.object);
        let name = text(&relic["metadata"]["name"]);
        let namespace = text(&relic["metadata"]["namespace"]);
        if cluster::get(&config_map(), Some(&namespace), &format!("{name}-hold")).is_none() {
            return Ok(finalizer::Finalization::Done);
        }
        Ok(finalizer::Finalization::Pending(Outcome {
            desired: vec![owned(&name, json!({"text": "goes"}), Lifecycle::empty())],
            status: Some(json!({"goes": true}).to_string()),
            conditions: Vec::new(),
            events: Vec::new(),
            requeue_after: None,
            extensions: None,
        }))
    }
}

impl defaulter::Guest for Relic {
    fn apply_defaults(review: defaulter::Review) -> Result<String, Vec<defaulter::FieldError>> {
        let mut relic = parse(&review.object.unwrap_or_default());
        if !relic["spec"].is_object() {
            return Err(vec![error(FieldErrorKind::Required, "spec", "say what it is")]);
        }
        if relic["spec"]["size"].is_null() {
            relic["spec"]["size"] = json!(1);
        }
        Ok(relic.to_string())
    }
}

impl validator::Guest for Relic {
    fn validate(review: validator::Review) -> Result<Vec<String>, Vec<validator::FieldError>> {
        let relic = parse(&review.object.unwrap_or_default());
        let old = review.old_object.map(|old| parse(&old)).unwrap_or_default();
        let size = relic["spec"]["size"].as_i64().unwrap_or_default();
        let mut errors = Vec::new();
        if size > LARGEST {
            errors.push(error(FieldErrorKind::Invalid, "spec.size", &format!("must be at most {LARGEST}")));
        }
        if review.phase == Phase::Update && old["spec"]["size"].as_i64().is_some_and(|old| size < old) {
            let by = review.user_info.map(|user| user.username).unwrap_or_default();
            errors.push(error(FieldErrorKind::Forbidden, "spec.size", &format!("{by} may not make it smaller")));
        }
        match text(&relic["spec"]["does"]).as_str() {
            "duplicate" => errors.push(error(FieldErrorKind::Duplicate, "spec.does", "")),
            "get-lost" => errors.push(error(FieldErrorKind::NotFound, "spec.does", "")),
            _ => {}
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let large = size > LARGE;
        Ok(large.then(|| format!("more than {LARGE} is much")).into_iter().collect())
    }
}

impl converter::Guest for Relic {
    fn convert(object: String, api_version: String) -> Result<String, String> {
        let mut relic = parse(&object);
        if relic["spec"]["does"] == "stay" {
            return Err("it stays as it is".to_owned());
        }
        relic["apiVersion"] = json!(api_version);
        Ok(relic.to_string())
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn config_map() -> GroupVersionKind {
    GroupVersionKind {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
    }
}

fn owned(name: &str, data: Value, lifecycle: Lifecycle) -> Desired {
    Desired {
        object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}).to_string(),
        ownership: Ownership::Owned,
        lifecycle,
        options: "{}".to_owned(),
    }
}

fn condition(type_: &str, status: ConditionStatus) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status,
        reason: "Asked".to_owned(),
        message: "as the relic says".to_owned(),
    }
}

fn event(type_: EventType, reason: &str) -> Event {
    Event {
        type_,
        reason: reason.to_owned(),
        message: "the relic was reconciled".to_owned(),
    }
}

fn error(kind: FieldErrorKind, path: &str, message: &str) -> validator::FieldError {
    validator::FieldError {
        kind,
        path: path.to_owned(),
        message: message.to_owned(),
    }
}
