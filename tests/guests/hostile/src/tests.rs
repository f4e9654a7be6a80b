//! That the guest is as hostile as its names promise. What needs a host is tested in the sandbox.

use pilothouse_plugin::raw::RawPlugin;
use pilothouse_plugin::raw::types::{Failure, Outcome, Request};
use serde_json::{Value, json};

use crate::Hostile;

fn reconcile(spec: &Value, attempt: u32) -> Result<Outcome, Failure> {
    let object = json!({
        "apiVersion": "hostile.test.dev/v1", "kind": "Hostile", "metadata": {"name": "it", "namespace": "here"},
        "spec": spec,
    });
    Hostile::reconcile(Request {
        object: object.to_string(),
        configuration: "{}".to_owned(),
        attempt,
        extensions: "{}".to_owned(),
    })
}

fn behave(behaviour: &str) -> Outcome {
    reconcile(&json!({"behaviour": behaviour, "text": "hello"}), 0).unwrap()
}

fn objects(outcome: &Outcome) -> Vec<Value> {
    outcome
        .desired
        .iter()
        .map(|desired| serde_json::from_str(&desired.object).unwrap())
        .collect()
}

fn describe(what: &str) -> Result<Value, String> {
    let manifest = Hostile::describe(Some(json!({"describe": what}).to_string()))?;
    serde_json::from_str(&manifest).map_err(|error| format!("not JSON: {error}"))
}

#[test]
fn the_good_answer_is_one_config_map_a_status_and_a_condition() {
    for outcome in [behave("config-map"), behave("configmap")] {
        let metadata = json!({"name": "it", "namespace": "here"});
        let config_map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "hello"}});
        assert_eq!(objects(&outcome), [config_map]);
        assert_eq!(outcome.status.as_deref(), Some(r#"{"text":"hello"}"#));
        assert_eq!(outcome.conditions[0].type_, "Behaved");
    }
}

#[test]
fn an_unknown_behaviour_is_refused_by_name() {
    let Err(Failure::Permanent(message)) = reconcile(&json!({"behaviour": "be-nice"}), 0) else {
        panic!("it is unknown")
    };
    assert!(message.contains("unknown variant `be-nice`"), "{message}");
}

#[test]
fn what_counts_is_counted_as_the_resource_says() {
    assert_eq!(behave("many-objects").desired.len(), 10_001);
    let counted = |behaviour: &str, count: u32| reconcile(&json!({"behaviour": behaviour, "count": count}), 0).unwrap();
    assert_eq!(counted("many-objects", 3).desired.len(), 3);
    assert_eq!(counted("many-events", 3).events.len(), 3);
    assert_eq!(objects(&counted("huge-output", 5))[0]["data"]["text"], "xxxxx");
}

#[test]
fn what_is_wrong_is_wrong() {
    for broken in ["broken-json", "status-broken"] {
        let outcome = behave(broken);
        let text = outcome.status.as_deref().unwrap_or(&outcome.desired[0].object);
        assert!(serde_json::from_str::<Value>(text).is_err(), "{broken}");
    }
    assert!(objects(&behave("not-an-object"))[0].is_array());
    assert_eq!(objects(&behave("nameless"))[0]["metadata"]["name"], Value::Null);
    assert_eq!(objects(&behave("kindless"))[0]["kind"], Value::Null);
    assert_eq!(objects(&behave("undeclared-kind"))[0]["kind"], "Secret");
    assert_eq!(objects(&behave("other-namespace"))[0]["metadata"]["namespace"], "hello");
    assert_eq!(objects(&behave("wrong-type"))[0]["data"]["text"], 7);
    assert_eq!(objects(&behave("unknown-field"))[0]["spec"]["nonsense"], true);
    let twice = objects(&behave("same-name-twice"));
    assert_eq!(twice[0]["metadata"], twice[1]["metadata"]);
    assert_ne!(twice[0], twice[1]);
    assert_eq!(behave("empty-event-reason").events[0].reason, "");
    assert_eq!(behave("requeue-at-once").requeue_after, Some(0));
    assert_eq!(behave("requeue-never").requeue_after, Some(u64::MAX));
    let at_attempt = |attempt| objects(&reconcile(&json!({"behaviour": "differs-by-attempt"}), attempt).unwrap());
    assert_ne!(at_attempt(0), at_attempt(1));
}

#[test]
fn what_fails_at_first_ends_well() {
    let spec = json!({"behaviour": "fail-at-first", "text": "not yet"});
    for attempt in [0, 1] {
        assert!(matches!(reconcile(&spec, attempt), Err(Failure::Transient(message)) if message == "not yet"));
    }
    assert_eq!(reconcile(&spec, 2).unwrap().desired.len(), 1);
}

#[test]
fn describing_obeys_the_configuration() {
    assert_eq!(describe("normal").unwrap()["name"], "hostile");
    assert_eq!(describe("unknown-member").unwrap()["surprise"], true);
    assert_eq!(
        describe("unserved-kind").unwrap()["controllers"][0]["touches"][2]["kind"]["kind"],
        "Unserved"
    );
    assert!(describe("garbage").unwrap_err().starts_with("not JSON"));
    assert!(
        describe("refuse")
            .unwrap_err()
            .starts_with("describe: this configuration")
    );
    assert!(
        describe("nonsense")
            .unwrap_err()
            .starts_with("configuration: unknown variant `nonsense`")
    );
}
