//! Findings in descriptions, one mistake each.

use serde_json::{Value, json};

use super::*;
use crate::plugin::manifest;

fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "webs.x.dev"},
        "spec": {"group": "x.dev", "scope": "Namespaced", "names": {"kind": "Web", "plural": "webs"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "replicas": {"type": "integer"},
                        "ports": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer"}}}},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                        "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}
    })
}

fn controller() -> Value {
    json!({"name": "web", "kind": {"group": "x.dev", "version": "v1", "kind": "Web"}, "fields": [".spec.replicas"]})
}

fn findings(controller: &Value, crd: &Value, exports: Exports) -> Vec<String> {
    let manifest = json!({"name": "a", "version": "1.0.0", "controllers": [controller], "crds": [crd.to_string()]});
    let checked = manifest::parse(&manifest.to_string()).unwrap();
    let findings = check(&checked, exports);
    findings
        .iter()
        .map(|it| format!("{}: {}", it.severity, it.message))
        .collect()
}

/// The one finding after a change of the controller.
fn with(change: impl FnOnce(&mut Value)) -> String {
    let mut controller = controller();
    change(&mut controller);
    only(findings(&controller, &crd(), Exports::default()))
}

fn with_crd(change: impl FnOnce(&mut Value)) -> String {
    let mut crd = crd();
    change(&mut crd);
    only(findings(&controller(), &crd, Exports::default()))
}

fn only(mut findings: Vec<String>) -> String {
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

#[test]
fn a_crd_that_is_older_than_the_types_is_one_finding() {
    let mut controller = controller();
    let fields: Vec<String> = (0..13).map(|number| format!(".spec.new{number}")).collect();
    controller["fields"] = json!(fields);
    let found = only(findings(&controller, &crd(), Exports::default()));
    let words = "warning: controller web looks at .spec.new0, .spec.new1, .spec.new2, .spec.new3, .spec.new4 and 8 more of Web, which \
                 its CRD does not declare";
    assert!(found.starts_with(words), "{found}");
    assert!(
        found.contains("it is older than they are: run `pilothouse build`"),
        "{found}"
    );
}

#[test]
fn a_crd_that_no_api_server_takes_is_an_error() {
    let mut crd = crd();
    let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["items"] = json!({"type": "array", "items": true});
    let found = only(findings(&controller(), &crd, Exports::default()));
    let words = "error: API servers refuse the CRD webs.x.dev, because the schema of \"v1\" is not structural: .spec.items[] has true in \
                 place of a schema";
    assert!(found.starts_with(words), "{found}");
}

#[test]
fn a_filter_goes_with_no_generation_by_default() {
    let mut crd = crd();
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["status"]["default"] = json!({"observedGeneration": -1});
    assert_eq!(findings(&controller(), &crd, Exports::default()), Vec::<String>::new());
    let mut filtered = controller();
    filtered["filter"] = json!({"labelSelector": "app=web"});
    let found = only(findings(&filtered, &crd, Exports::default()));
    let words = "warning: controller web has a filter, and the CRD of Web has a default for status.observedGeneration";
    assert!(found.starts_with(words), "{found}");
}

#[test]
fn a_plain_list_of_conditions_is_advised_against() {
    let with_type = |list_type: Value| {
        let mut crd = crd();
        let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["status"] = json!({"type": "object", "properties": {"observedGeneration": {"type": "integer"}, "conditions": {
            "type": "array", "x-kubernetes-list-type": list_type,
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "required": ["type"],
                "properties": {"type": {"type": "string"}}}}}});
        let conditions = &mut schema["properties"]["status"]["properties"]["conditions"];
        if conditions["x-kubernetes-list-type"] == "map" {
            conditions["x-kubernetes-list-map-keys"] = json!(["type"]);
        }
        findings(&controller(), &crd, Exports::default())
    };
    for plain in [Value::Null, json!("atomic")] {
        let found = only(with_type(plain));
        assert!(
            found.starts_with("warning: \"v1\" of the CRD webs.x.dev replaces the list .status.conditions"),
            "{found}"
        );
        assert!(
            found.ends_with("x-kubernetes-list-type: map and x-kubernetes-list-map-keys: [type]"),
            "{found}"
        );
    }
    assert_eq!(with_type(json!("map")), Vec::<String>::new());
}

#[test]
fn a_description_that_agrees_with_itself_has_no_findings() {
    let mut controller = controller();
    controller["fields"] = json!([
        ".",
        ".metadata.labels",
        ".spec.ports[].port",
        ".spec.labels[\"a.b/c\"]",
        ".spec.template.spec.anything",
        ".status.x"
    ]);
    let mut crd = crd();
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    assert_eq!(findings(&controller, &crd, Exports::default()), Vec::<String>::new());
}

#[test]
fn unknown_field_is_named_with_the_most_similar_one() {
    let said = with(|it| it["fields"] = json!([".spec.replica"]));
    assert!(
        said.starts_with("warning: controller web looks at .spec.replica of Web, which its CRD does not declare")
            && said.contains(".spec has no replica; is replicas meant?"),
        "{said}"
    );
    let said = with(|it| it["fields"] = json!([".spec.ports.port"]));
    assert!(
        said.contains(".spec.ports is a list; write .spec.ports[].port"),
        "{said}"
    );
    let said = with(|it| it["fields"] = json!([".spec.replicas[]"]));
    assert!(said.contains(".spec.replicas is no list"), "{said}");
    let said = with_crd(|it| {
        it["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]);
    });
    assert!(
        said.contains("printer column \"Size\"") && said.contains(".spec has no size"),
        "{said}"
    );
    let said =
        with_crd(|it| it["spec"]["versions"][0]["subresources"]["scale"] = json!({"specReplicasPath": ".spec.count"}));
    assert!(said.contains("specReplicasPath"), "{said}");
}

#[test]
fn a_spec_of_which_no_field_is_listed_is_missed() {
    for fields in [json!([]), json!([".metadata.labels"])] {
        let said = with(|it| it["fields"] = fields);
        assert!(
            said.starts_with("warning: controller web lists no fields of x.dev/v1 Web but its metadata")
                && said.contains("fields: [\".spec\"]"),
            "{said}"
        );
    }
    let mut controller = controller();
    controller["fields"] = json!([]);
    let mut crd = crd();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({"type": "object"});
    let found = findings(&controller, &crd, Exports::default());
    assert_eq!(found, Vec::<String>::new(), "there is nothing to list");
}

#[test]
fn a_version_that_the_crd_does_not_serve_is_an_error() {
    let said = with(|it| it["kind"]["version"] = json!("v2"));
    assert!(
        said.starts_with("error: ") && said.contains("the CRD webs.x.dev has only v1"),
        "{said}"
    );
    let said = with_crd(|it| it["spec"]["versions"][0]["served"] = json!(false));
    assert!(
        said.starts_with("error: ") && said.contains("does not serve v1"),
        "{said}"
    );
}

#[test]
fn interfaces_and_manifest_have_to_agree() {
    let said = with(|it| it["finalizer"] = json!("x.dev/web"));
    assert!(
        said.starts_with("error: ") && said.contains("does not export the interface finalizer"),
        "{said}"
    );
    let said = with(|it| it["admission"] = json!({}));
    assert!(said.contains("exports neither defaulter nor validator"), "{said}");
    let exports = |change: fn(&mut Exports)| {
        let mut exports = Exports::default();
        change(&mut exports);
        only(findings(&controller(), &crd(), exports))
    };
    assert!(exports(|it| it.finalizer = true).contains("no controller names a finalizer"));
    assert!(exports(|it| it.converter = true).contains("brings no CRD with several versions"));
    let said = with_crd(|it| it["spec"]["conversion"] = json!({"strategy": "Webhook"}));
    assert!(
        said.starts_with("error: ") && said.contains("does not export the interface converter"),
        "{said}"
    );
}

#[test]
fn declared_defaulter_or_validator_must_match_the_exports() {
    for interface in ["defaulter", "validator"] {
        let said = with(|it| it[interface] = json!(true));
        assert!(
            said.starts_with("error: controller web has a")
                && said.contains(&format!("not export the interface {interface}")),
            "{said}"
        );
        let exports = Exports {
            defaulter: interface == "defaulter",
            validator: interface == "validator",
            ..Exports::default()
        };
        let found = |declared: Value| {
            let mut controller = controller();
            controller[interface] = declared;
            findings(&controller, &crd(), exports)
        };
        assert_eq!((found(json!(null)), found(json!(true))), (Vec::new(), Vec::new()));
        let said = only(found(json!(false)));
        assert!(
            said.starts_with("warning: ") && said.contains(&format!("every controller says {interface}: false")),
            "{said}"
        );
    }
    let mut controller = controller();
    controller["admission"] = json!({});
    controller["defaulter"] = json!(false);
    let exports = Exports {
        defaulter: true,
        ..Exports::default()
    };
    let said = findings(&controller, &crd(), exports).join("\n");
    assert!(
        said.contains("has neither defaulter nor validator for its kind"),
        "{said}"
    );
}

#[test]
fn what_is_cluster_scoped_is_not_touched_in_a_namespace() {
    let touch = |kind: &str| json!([{"kind": {"group": "rbac.authorization.k8s.io", "version": "v1", "kind": kind}, "access": ["owned"]}]);
    let said = with(|it| it["touches"] = touch("ClusterRole"));
    assert!(
        said.starts_with("error: controller web owns rbac.authorization.k8s.io/v1 ClusterRole in the namespace")
            && said.contains("scope \"Any\""),
        "{said}"
    );
    let mut controller = controller();
    controller["touches"] = touch("Role");
    assert_eq!(findings(&controller, &crd(), Exports::default()), Vec::<String>::new());
}

#[test]
fn unused_crd_and_crd_without_status_fields_are_reported() {
    let said = with(|it| it["kind"] = json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert!(
        said.contains("brings the CRD webs.x.dev, but no controller reconciles or touches Web"),
        "{said}"
    );
    let said = with_crd(|it| it["spec"]["versions"][0]["subresources"] = json!(null));
    assert!(said.contains("has no subresource status"), "{said}");
}
