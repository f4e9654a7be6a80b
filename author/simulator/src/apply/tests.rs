//! Behaviour of server-side apply that was seen on a real API server.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::types::Type;
use super::update::{Versions, Writer, apply, update};
use crate::failure::Failure;
use crate::fields::Set;
use crate::schema::definition;

struct Plain(&'static str);

impl Versions for Plain {
    fn kind(&self, version: &str) -> Option<Type<'_>> {
        (version == "v1").then(|| Type::of(definition(self.0).expect("the test names a served kind")))
    }

    fn convert<'v>(&self, object: &'v Value, _version: &str) -> Cow<'v, Value> {
        Cow::Borrowed(object)
    }

    fn nothing(&self, _version: &str) -> Value {
        nothing()
    }

    fn ignored(&self, _version: &str) -> &Set {
        static STATUS: LazyLock<Set> = LazyLock::new(|| Set::of_fields(&[&["status"]]));
        &STATUS
    }
}

const CONFIG_MAP: Plain = Plain("io.k8s.api.core.v1.ConfigMap");

fn writer(manager: &str) -> Writer<'_> {
    Writer {
        manager,
        version: "v1",
        subresource: "",
        time: "2026-01-01T00:00:00Z",
    }
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}, "data": data})
}

fn nothing() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
}

fn applied(live: &Value, manager: &str, data: &Value) -> Result<Value, Failure> {
    let mut object = apply(&CONFIG_MAP, live, &config_map(data), &writer(manager), false)?;
    object["metadata"]["uid"] = json!("1");
    Ok(object)
}

#[test]
fn an_unapplied_field_goes_unless_another_manager_applies_it() {
    let live = applied(&nothing(), "one", &json!({"a": "1", "b": "2"})).expect("the first apply creates");
    let live = applied(&live, "two", &json!({"b": "2", "c": "3"})).expect("equal values do not conflict");
    let live = applied(&live, "one", &json!({})).expect("removing does not conflict");
    assert_eq!(live["data"], json!({"b": "2", "c": "3"}));
}

#[test]
fn another_value_for_a_field_of_another_manager_is_a_conflict() {
    let live = applied(&nothing(), "one", &json!({"a": "1"})).expect("the first apply creates");
    let failure = applied(&live, "two", &json!({"a": "2"})).expect_err("the field is another manager's");
    assert_eq!(
        failure.message,
        "Apply failed with 1 conflict: conflict with \"one\": .data.a"
    );
    let forced = apply(
        &CONFIG_MAP,
        &live,
        &config_map(&json!({"a": "2"})),
        &writer("two"),
        true,
    )
    .expect("force wins");
    assert_eq!(forced["metadata"]["managedFields"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_update_takes_fields_from_the_appliers_entry() {
    let live = applied(&nothing(), "one", &json!({"a": "1", "b": "2"})).expect("the first apply creates");
    let mut new = live.clone();
    new["data"]["a"] = json!("9");
    update(&CONFIG_MAP, &live, &mut new, &writer("one"));
    let fields = &new["metadata"]["managedFields"];
    assert_eq!(fields[0]["operation"], "Apply");
    assert_eq!(fields[0]["fieldsV1"], json!({"f:data": {"f:b": {}}}));
    assert_eq!(fields[1]["operation"], "Update");
    assert_eq!(fields[1]["fieldsV1"], json!({"f:data": {"f:a": {}}}));
}

#[test]
fn a_type_error_is_code_500_without_a_reason() {
    let failure = applied(&nothing(), "one", &json!({"a": 1})).expect_err("data holds strings");
    assert_eq!(failure.code.as_u16(), 500);
    assert_eq!(failure.reason, "");
    assert_eq!(
        failure.message,
        "failed to create typed patch object (b/a; /v1, Kind=ConfigMap): .data.a: expected string, got \
         &value.valueUnstructured{Value:1}"
    );
}
