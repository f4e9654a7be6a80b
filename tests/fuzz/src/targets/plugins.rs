//! Target `plugins`: custom resources made by the schemas of the CRDs, reconciled by the plugins' own components under
//! the sandbox, with the host's limits. A plugin returns an answer or an error; it neither traps nor breaks the
//! contract.

use std::path::Path;
use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use pilothouse_core::status::reason::Reason;
use pilothouse_testkit::isolation::Isolated;
use serde_json::{Value, json};

use crate::generate;

/// The plugins, as `cargo xtask plugins` builds them.
const PLUGINS: [&str; 5] = [
    "app-service",
    "ecs-binding",
    "reverse-proxy",
    "service-ingress",
    "stream-ingress",
];

/// Reasons that no plugin's failure may have, whatever the object is.
const FAULTS: [Reason; 4] = [
    Reason::GuestTrap,
    Reason::GuestLimit,
    Reason::InvalidAnswer,
    Reason::Undeclared,
];

static LOADED: LazyLock<Vec<(&str, Isolated)>> = LazyLock::new(|| PLUGINS.map(|name| (name, load(name))).into());

fn load(name: &str) -> Isolated {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/plugins");
    Isolated::load(folder.join(format!("{name}.wasm")))
        .unwrap_or_else(|error| panic!("{error}; run `cargo xtask plugins`"))
}

pub(super) fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok((name, plugin)) = input.choose(&LOADED) else {
        return;
    };
    let Ok(object) = primary(plugin, &mut input) else {
        return;
    };
    // A failure without words would be as bad as a trap.
    if let Err(failed) = plugin.reconcile(&object) {
        let failure = &failed.failure;
        assert!(
            !FAULTS.contains(&failure.reason) && !failure.message.is_empty(),
            "{name} fails with {failure} for {object}"
        );
    }
}

/// An object of one of the plugin's primary kinds.
fn primary(plugin: &Isolated, input: &mut Unstructured<'_>) -> Result<Value> {
    let checked = plugin.manifest();
    let controller = input.choose(&checked.manifest.controllers)?;
    let kind = &controller.kind;
    let definition = checked
        .crds
        .iter()
        .find(|crd| crd.group == kind.group && crd.kind == kind.kind);
    let versions = definition.and_then(|crd| crd.definition["spec"]["versions"].as_array());
    let version = versions
        .into_iter()
        .flatten()
        .find(|version| version["name"] == *kind.version);
    let mut object = match version {
        Some(version) => generate::value(&version["schema"]["openAPIV3Schema"], input, 0)?,
        // A kind of Kubernetes itself: only the server knows its schema.
        None => json!({"spec": service(input)?}),
    };
    let filter = &controller.filter;
    let annotations: Vec<String> = filter.annotation.iter().cloned().collect();
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    object["metadata"] = json!({
        "name": "fuzzed", "namespace": "default", "uid": "f", "generation": 1,
        "labels": generate::marks(&[], input)?,
        "annotations": generate::marks(&annotations, input)?,
    });
    Ok(object)
}

/// Returns the spec of a Service.
fn service(input: &mut Unstructured<'_>) -> Result<Value> {
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {
        "type": {"type": "string", "enum": ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]},
        "clusterIP": text, "externalName": text,
        "selector": {"type": "object", "additionalProperties": text},
        "ports": {"type": "array", "items": {"type": "object", "required": ["port"], "properties": {
            "name": text, "protocol": text, "appProtocol": text,
            "port": {"type": "integer", "minimum": 1, "maximum": 65535},
            "targetPort": {"x-kubernetes-int-or-string": true},
            "nodePort": {"type": "integer", "minimum": 0, "maximum": 65535},
        }}},
    }});
    generate::value(&schema, input, 0)
}
