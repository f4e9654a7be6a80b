//! Manifest, defaults, validation and conversion of the gate, as functions of text.

#![cfg_attr(
    not(target_family = "wasm"),
    allow(dead_code, reason = "only the component calls it")
)]

use serde_json::{Value, json};

/// The most that a gate may have.
const LARGEST: i64 = 1000;

/// From here on a gate is warned of.
const LARGE: i64 = 100;

/// The lines that are logged while a gate of the behaviour `chatter` is converted, a kilobyte each.
const CHATTER: usize = 60;

/// The ConfigMap that has to be there for a gate of the behaviour `ask-leave`.
pub const LEAVE: &str = "leave";

/// The finalizer of gates, where the configuration asks for one.
const FINALIZER: &str = "gate.test.dev/gate";

/// Answer of `describe`. With `finalizer: true` in the configuration, gates get a finalizer; `defaulter` and
/// `validator` in it decide whether gates have one.
pub fn manifest(configuration: Option<&str>) -> String {
    let configuration = configuration.map(parse).unwrap_or_default();
    let finalizer = (configuration["finalizer"] == true).then_some(FINALIZER);
    json!({
        "name": env!("CARGO_PKG_NAME"),
        "version": env!("CARGO_PKG_VERSION"),
        "description": env!("CARGO_PKG_DESCRIPTION"),
        "controllers": [{
            "name": "gates",
            "kind": {"group": "gate.test.dev", "version": "v1", "kind": "Gate"},
            "fields": [".spec"],
            "finalizer": finalizer,
            "defaulter": configuration["defaulter"].as_bool(),
            "validator": configuration["validator"].as_bool(),
            "touches": [{"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "access": ["owned", "read"], "fields": [".data"]}],
        }],
        "crds": [include_str!("../crds/gates.gate.test.dev.yaml")],
        "configurationSchema": {"type": "object", "properties": {
            "finalizer": {"type": "boolean"}, "defaulter": {"type": "boolean"}, "validator": {"type": "boolean"}}},
    })
    .to_string()
}

/// The ConfigMap of a gate.
pub fn config_map(gate: &str) -> String {
    let gate = parse(gate);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": gate["metadata"]["name"]},
        "data": {"size": gate["spec"]["size"].to_string(), "colour": gate["spec"]["colour"].to_string()},
    })
    .to_string()
}

/// The gate with a colour.
pub fn with_colour(gate: &str) -> String {
    let mut gate = parse(gate);
    assert!(
        gate["spec"]["behaviour"] != "trap-at-defaults",
        "the gate was asked to trap"
    );
    if gate["spec"]["colour"].is_null() {
        gate["spec"]["colour"] = json!("blue");
    }
    gate.to_string()
}

/// Returns `true` if a gate has all fields that its defaulter sets.
pub fn is_complete(gate: &str) -> bool {
    !parse(gate)["spec"]["colour"].is_null()
}

/// Error in a field of a gate.
pub struct Problem {
    pub kind: Kind,
    pub path: &'static str,
    pub message: String,
}

/// Type of a field's error.
pub enum Kind {
    Required,
    Forbidden,
    NotFound,
    Invalid,
}

/// Warnings about a gate, or what is wrong with it. A gate of the behaviour `only-colour` wants a colour that no other gate of
/// its namespace has; `coloured` finds the ConfigMaps of those that have it.
pub fn judge(
    gate: &str,
    is_reconcile: bool,
    has_leave: impl Fn(&str) -> bool,
    coloured: impl Fn(&str, &str) -> Vec<String>,
) -> Result<Vec<String>, Vec<Problem>> {
    let problem = |kind, path, message: &str| Problem {
        kind,
        path,
        message: message.to_owned(),
    };
    let gate = parse(gate);
    let spec = &gate["spec"];
    match spec["behaviour"].as_str() {
        Some("trap") => panic!("the gate was asked to trap"),
        Some("loop") => loop {
            std::hint::black_box(());
        },
        Some("ask-leave") if !has_leave(gate["metadata"]["namespace"].as_str().unwrap_or_default()) => {
            let message = format!("there is no ConfigMap {LEAVE}");
            return Err(vec![problem(Kind::Forbidden, "spec.behaviour", &message)]);
        }
        Some("only-colour") => {
            let namespace = gate["metadata"]["namespace"].as_str().unwrap_or_default();
            let others = coloured(namespace, &spec["colour"].to_string());
            let others = others.iter().map(|other| parse(other)["metadata"]["name"].clone());
            if let Some(other) = others.into_iter().find(|name| *name != gate["metadata"]["name"]) {
                let message = format!("the gate {other} has this colour");
                return Err(vec![problem(Kind::Forbidden, "spec.colour", &message)]);
            }
        }
        Some("refuse-reconcile") if is_reconcile => {
            return Err(vec![problem(
                Kind::NotFound,
                "spec.behaviour",
                "it is reviewed before a reconcile",
            )]);
        }
        _ => {}
    }
    let size = spec["size"].as_i64();
    let mut errors = Vec::new();
    let range = format!("must be 0 to {LARGEST}");
    match size {
        None if spec["size"].is_null() => errors.push(problem(Kind::Required, "spec.size", &range)),
        Some(size) if (0..=LARGEST).contains(&size) => {}
        _ => errors.push(problem(Kind::Invalid, "spec.size", &range)),
    }
    if spec["colour"] == "invisible" {
        errors.push(problem(Kind::Invalid, "spec.colour", "must be one that can be seen"));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let large = size.is_some_and(|size| size > LARGE);
    Ok(large
        .then(|| format!("more than {LARGE} is much for a gate"))
        .into_iter()
        .collect())
}

/// Returns the log lines of a gate's conversion.
pub fn said(gate: &str) -> impl Iterator<Item = String> {
    let lines = if parse(gate)["spec"]["behaviour"] == "chatter" {
        CHATTER
    } else {
        0
    };
    (0..lines).map(|line| format!("line {line}: {}", "m".repeat(1000)))
}

/// The gate in another version: what is `size` in v1 is `count` in v2.
pub fn convert(gate: &str, api_version: &str) -> Result<String, String> {
    let mut gate = parse(gate);
    if gate["spec"]["behaviour"] == "stay" {
        return Err("this gate was asked to stay as it is".to_owned());
    }
    let (from, to) = if api_version.ends_with("/v2") {
        ("size", "count")
    } else {
        ("count", "size")
    };
    if let Some(spec) = gate["spec"].as_object_mut()
        && let Some(size) = spec.remove(from)
    {
        spec.insert(to.to_owned(), size);
    }
    gate["apiVersion"] = json!(api_version);
    Ok(gate.to_string())
}

fn parse(object: &str) -> Value {
    serde_json::from_str(object).expect("the host gives JSON")
}
