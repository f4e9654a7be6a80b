//! Tests that a real API server accepts everything that the chart renders and that kustomize builds from the manifests:
//! each object is applied in a dry run with strict field validation.

use kube::api::{Patch, PatchParams, ValidationDirective};
use pilothouse_chart::folder;
use pilothouse_external::helm::kustomize;
use serde_json::{Value, json};

use super::bench::{Bench, named, until};
use super::rendering::{documents, variants};

/// The CRD of ServiceMonitor as far as the chart uses it: names and types are those of the Prometheus Operator.
fn service_monitors() -> Value {
    let text = json!({"type": "string"});
    let duration = json!({
        "type": "string", "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
    });
    let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let endpoint = json!({"type": "object", "properties": {"port": text, "path": text, "interval": duration}});
    let spec = json!({
        "type": "object", "required": ["endpoints", "selector"], "properties": {
            "jobLabel": text, "selector": {"type": "object", "properties": {"matchLabels": labels}},
            "endpoints": {"type": "array", "items": endpoint},
        },
    });
    let mut crd = named(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        None,
        "servicemonitors.monitoring.coreos.com",
    );
    crd["spec"] = json!({
        "group": "monitoring.coreos.com", "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor"},
        "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        }],
    });
    crd
}

/// Returns the error if the API server would refuse an object.
async fn refusal(bench: &Bench, object: &Value) -> Option<String> {
    let mut by = PatchParams::apply("test").dry_run();
    by.field_validation = Some(ValidationDirective::Strict);
    let name = object["metadata"]["name"].as_str().unwrap();
    let applied = bench.api(object).patch(name, &by, &Patch::Apply(object)).await;
    let error = applied.err()?;
    Some(format!("{} {name}: {error}", object["kind"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_takes_all_that_the_chart_and_kustomize_render() {
    let bench = Bench::new().await;
    for namespace in ["shop", "stage"] {
        bench.apply(&named("v1", "Namespace", None, namespace)).await;
    }
    bench.apply(&service_monitors()).await;
    let mut monitor = named(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        Some(bench.namespace),
        "probe",
    );
    monitor["spec"] = json!({"selector": {}, "endpoints": []});
    let is_served = async || refusal(&bench, &monitor).await.is_none();
    until("ServiceMonitors are served", is_served, String::new).await;
    let mut all = vec![("kustomize", kustomize(&folder().join("../kustomize")).unwrap())];
    for (name, values) in variants() {
        all.push((name, bench.helm().template(&values).unwrap()));
    }
    let mut kinds = Vec::new();
    for (name, rendered) in all {
        for object in documents(&rendered) {
            let refused = refusal(&bench, &object).await;
            assert_eq!(refused, None, "{name}: {object}");
            kinds.push(object["kind"].as_str().unwrap().to_owned());
        }
    }
    for kind in [
        "ServiceMonitor",
        "PriorityClass",
        "NetworkPolicy",
        "ValidatingAdmissionPolicy",
    ] {
        assert!(kinds.iter().any(|it| it == kind), "{kind} in {kinds:?}");
    }
    // Not because nothing is looked at.
    let mut wrong = named("v1", "Service", Some(bench.namespace), "wrong");
    wrong["spec"] = json!({"ports": [{"port": 80, "targetPorts": 80}]});
    let said = refusal(&bench, &wrong).await.unwrap_or_default();
    assert!(said.contains("targetPorts"), "{said}");
    monitor["spec"]["jobLabels"] = json!("name");
    let said = refusal(&bench, &monitor).await.unwrap_or_default();
    assert!(said.contains("jobLabels"), "{said}");
}
