//! Tests of the rendered chart: it is compared with golden files, its roles grant nothing forbidden, and it equals the
//! manifests for kustomize. `UPDATE_GOLDEN=1` writes the files.

use std::path::{Path, PathBuf};
use std::{env, fs};

use pilothouse_chart::folder;
use pilothouse_external::helm::{Helm, kustomize};
use serde_json::{Value, json};
use similar::TextDiff;

/// Values by the names of their golden files.
pub fn variants() -> [(&'static str, Value); 5] {
    let everything = json!({
        "fullnameOverride": "harbour",
        "image": {"repository": "registry.example.com/host", "tag": "1.2.3", "digest": format!("sha256:{}", "0".repeat(64)),
            "pullPolicy": "Always", "pullSecrets": ["image"]},
        "replicas": 3, "leaderElection": {"shards": 12},
        "host": {"log": "info,pilothouse_runtime=debug", "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}], "extraArguments": ["--context", "a b"]},
        "plugins": {"selector": "team in (a,b)", "volume": {"persistentVolumeClaim": {"claimName": "plugins", "readOnly": true}}},
        "artifacts": {
            "trust": {"default": "refuse", "repositories": [{"match": "registry.example.com/**", "keys": [{"file": "key.pub"}]}]},
            "registries": {"registries": [{"host": "registry.example.com", "certificateAuthorities": ["ca.crt"]}]},
            "files": {"key.pub": "-----BEGIN PUBLIC KEY-----\n", "ca.crt": "a: b\n"},
            "pullSecrets": ["registry"], "cacheSize": 512,
        },
        "webhooks": {"enabled": true, "plugins": ["reverse-proxy"], "convertedCrds": ["gates.test.dev"], "clientCa": "api-servers"},
        "metrics": {"serviceMonitor": {"enabled": true, "interval": "1m", "labels": {"release": "prometheus"}}},
        "networkPolicy": {
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "webhooksFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "egress": [{"ports": [{"port": 6443}]}],
        },
        "resources": {"requests": {"cpu": 1}},
        "priorityClass": {"create": true, "name": "operators"},
        "cache": {"existingClaim": "cache"},
        "commonLabels": {"example.com/team": "platform", "stage": "test"},
        "extraVolumes": [{"name": "authorities", "configMap": {"name": "authorities"}}],
        "extraVolumeMounts": [{"name": "authorities", "mountPath": "/etc/ssl/certs", "readOnly": true}],
        "hostNetwork": true,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "control-plane", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"team": "platform"},
        "podAnnotations": {"example.com/a": "1"},
        "serviceAccount": {"annotations": {"example.com/b": "2"}},
        "policies": {"reservedMetadata": {"enabled": true, "otherHosts": ["team-b"], "resources": [
            {"apiGroups": [""], "resources": ["services", "services/status"]}, {"apiGroups": ["apps"], "resources": ["deployments"]}]}},
    });
    let fixed = json!([
        {
            "name": "shop", "artifact": "oci://registry.example.com/shop:1", "wasi": "inert",
            "configuration": {"host": "example.com", "size": 1_000_000}, "limits": {"readBytes": 33_554_432},
            "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "watch"]}],
        },
        {"name": "web", "file": "team/web.wasm"},
    ]);
    [
        ("default", json!({})),
        ("everything", everything),
        (
            "some-namespaces",
            json!({
                "crds": {"installedBy": "nobody"}, "rbac": {"namespaces": ["shop", "stage"]},
                "webhooks": {"enabled": true, "plugins": ["reverse-proxy"], "configurations": "installer"},
                "networkPolicy": {"webhooksFrom": "any"},
            }),
        ),
        (
            "roles-only",
            json!({
                "plugins": {"static": fixed, "volume": {"configMap": {"name": "components"}}, "pullSecret": "registry"},
                "rbac": {"clusterRole": false, "namespaces": ["shop", "stage"]},
                "host": {"identity": "none"}, "api": {"enabled": false},
            }),
        ),
        (
            "one-replica",
            json!({
                "replicas": 1, "leaderElection": {"enabled": false}, "crds": {"installedBy": "host"},
                "host": {"identity": "none", "logFormat": "text"}, "podDisruptionBudget": {"enabled": false},
                "networkPolicy": {"enabled": false}, "topologySpread": [],
                "serviceAccount": {"create": false, "name": "existing"}, "rbac": {"create": false},
            }),
        ),
    ]
}

fn helm() -> Helm {
    Helm::new(&folder(), "pilothouse", "pilothouse-system")
}

pub fn documents(yaml: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// Compares a text with a file, or writes the file.
fn is_golden(path: &Path, text: &str) {
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, text).unwrap();
        return;
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    let difference = TextDiff::from_lines(kept.as_str(), text);
    assert!(
        kept == text,
        "{} is not what the chart renders; UPDATE_GOLDEN=1 writes it:\n{}",
        path.display(),
        difference.unified_diff()
    );
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/chart/golden/{name}.yaml"))
}

#[test]
fn helm_finds_nothing_to_say_about_the_chart() {
    for (name, values) in variants() {
        let said = helm().lint(&values).unwrap_or_else(|failed| panic!("{name}: {failed}"));
        assert!(said.output.contains("0 chart(s) failed"), "{name}: {}", said.output);
    }
}

#[test]
fn the_chart_renders_the_golden_files() {
    for (name, values) in variants() {
        let rendered = helm()
            .template(&values)
            .unwrap_or_else(|failed| panic!("{name}: {failed}"));
        // The CRD is long, and a test of its own compares it.
        let parts = rendered.split_inclusive("---\n");
        let text: String = parts
            .filter(|part| !part.contains("kind: CustomResourceDefinition"))
            .collect();
        is_golden(&golden(name), &text);
    }
}

#[test]
fn the_chart_has_the_crd_of_the_host_and_keeps_it() {
    let rendered = documents(&helm().template(&json!({})).unwrap());
    let crds: Vec<&Value> = rendered
        .iter()
        .filter(|document| document["kind"] == "CustomResourceDefinition")
        .collect();
    let text = fs::read_to_string(folder().join("../../crds/yaml/plugins.pilothouse.dev.yaml")).unwrap();
    let expected: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(crds.len(), 1);
    assert_eq!(crds[0]["spec"], expected["spec"]);
    assert_eq!(crds[0]["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
}

#[test]
fn the_crd_is_installed_by_the_chart_or_the_host_not_both() {
    for (installer, has_crd, host_installs) in [("chart", true, false), ("host", false, true), ("nobody", false, false)]
    {
        let rendered = helm().template(&json!({"crds": {"installedBy": installer}})).unwrap();
        let found = (
            rendered.contains("kind: CustomResourceDefinition"),
            rendered.contains("--install-crds=host\n"),
        );
        assert_eq!(found, (has_crd, host_installs), "{installer}");
    }
}

#[test]
fn the_host_has_no_right_without_a_limit() {
    for (name, values) in variants() {
        for role in documents(&helm().template(&values).unwrap()) {
            let is_cluster_role = role["kind"] == "ClusterRole";
            // What the values say, and what people may do.
            let role_name = role["metadata"]["name"].as_str().unwrap();
            if role_name.contains("-static-") || role_name.ends_with(":view") || role_name.ends_with(":edit") {
                continue;
            }
            for rule in role["rules"].as_array().into_iter().flatten() {
                let texts = |field: &str| -> Vec<String> {
                    let texts = rule[field].as_array().into_iter().flatten();
                    texts.map(|text| text.as_str().unwrap().to_owned()).collect()
                };
                let (resources, verbs, names) = (texts("resources"), texts("verbs"), texts("resourceNames"));
                let about = format!("{name}: {rule}");
                for refused in ["*", "escalate", "bind", "impersonate", "deletecollection"] {
                    assert!(!verbs.iter().any(|verb| verb == refused), "{about}");
                }
                assert!(
                    ![texts("apiGroups"), resources.clone()]
                        .concat()
                        .contains(&"*".to_owned()),
                    "{about}"
                );
                if resources.contains(&"secrets".to_owned()) {
                    assert!(!is_cluster_role && !names.is_empty(), "{about}");
                }
                // Replicas make the names of their Leases themselves.
                let is_of_leases = !is_cluster_role && resources == ["leases"];
                let changes = !is_of_leases && verbs.iter().any(|verb| matches!(&**verb, "update" | "delete"));
                assert!(!changes || !names.is_empty(), "{about}");
            }
        }
    }
}

/// An upgrade changes the Role first, while replicas with the values before still run.
#[test]
fn the_rights_to_hand_over_depend_on_no_value() {
    let rules = |values: &Value| -> Vec<Value> {
        let documents = documents(&helm().template(values).unwrap());
        let role = documents
            .into_iter()
            .find(|document| document["kind"] == "Role")
            .unwrap();
        let rules = role["rules"].as_array().unwrap().iter();
        let is_of_replicas =
            |rule: &&Value| rule["resources"] == json!(["leases"]) || rule["resources"] == json!(["configmaps"]);
        rules.filter(is_of_replicas).cloned().collect()
    };
    let by_default = rules(&json!({}));
    assert_eq!(by_default.len(), 4, "{by_default:?}");
    for values in [
        json!({"leaderElection": {"shards": 12}}),
        json!({"replicas": 1, "leaderElection": {"enabled": false}}),
        json!({"replicas": 1}),
    ] {
        assert_eq!(rules(&values), by_default, "{values}");
    }
}

#[test]
fn without_a_cluster_role_all_is_in_the_named_namespaces() {
    let (_, values) = variants().into_iter().find(|(name, _)| *name == "roles-only").unwrap();
    let documents = documents(&helm().template(&values).unwrap());
    for document in &documents {
        let namespace = document["metadata"]["namespace"].as_str().unwrap_or_default();
        assert!(
            ["pilothouse-system", "shop", "stage"].contains(&namespace),
            "{document}"
        );
        assert!(
            document["kind"] == "Role" || document["kind"] == "RoleBinding" || namespace == "pilothouse-system",
            "{document}"
        );
    }
    let names = |namespace: &str| -> Vec<&str> {
        let roles = documents.iter().filter(|document| document["kind"] == "Role");
        let here = roles.filter(|role| role["metadata"]["namespace"] == namespace);
        here.map(|role| role["metadata"]["name"].as_str().unwrap()).collect()
    };
    for namespace in ["shop", "stage"] {
        assert_eq!(
            names(namespace),
            [
                "pilothouse-system:pilothouse-events",
                "pilothouse-system:pilothouse-static-shop"
            ]
        );
    }
}

#[test]
fn static_plugins_have_a_cluster_role_each_and_none_to_plugins() {
    let values = json!({
        "host": {"identity": "none"},
        "plugins": {"static": [{"name": "shop", "artifact": "oci://registry.example.com/shop:1",
            "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}]}]},
    });
    let rendered = helm().template(&values).unwrap();
    let documents = documents(&rendered);
    let role = documents.iter().find(|document| {
        document["kind"] == "ClusterRole" && document["metadata"]["name"] == "pilothouse-system:pilothouse-static-shop"
    });
    assert_eq!(role.unwrap()["rules"][0]["resources"], json!(["deployments"]));
    for right in ["resources: [plugins]", "resources: [plugins/status]"] {
        assert!(!rendered.contains(right), "{rendered}");
    }
    assert!(!rendered.contains("kind: CustomResourceDefinition") && !rendered.contains("AdmissionPolicy"));
    assert!(!rendered.contains("aggregate-to-") && !rendered.contains("helm.sh/hook"));
}

#[test]
fn pods_use_the_network_volumes_and_labels_that_the_values_name() {
    let deployment = |values: &Value| {
        let rendered = documents(&helm().template(values).unwrap());
        rendered
            .into_iter()
            .find(|document| document["kind"] == "Deployment")
            .unwrap()["spec"]["template"]
            .clone()
    };
    let pod = deployment(&json!({}))["spec"].clone();
    assert!(pod["hostNetwork"].is_null() && pod["dnsPolicy"].is_null());
    assert_eq!(
        pod["volumes"][0],
        json!({"name": "cache", "emptyDir": {"sizeLimit": "2Gi"}})
    );
    for (values, dns, cache) in [
        (
            json!({"hostNetwork": true, "cache": {"volume": {"hostPath": {"path": "/var/cache"}}}}),
            "ClusterFirstWithHostNet",
            json!({"name": "cache", "hostPath": {"path": "/var/cache"}}),
        ),
        (
            json!({"hostNetwork": true, "dnsPolicy": "Default", "cache": {"existingClaim": "mine"}}),
            "Default",
            json!({"name": "cache", "persistentVolumeClaim": {"claimName": "mine"}}),
        ),
    ] {
        let pod = deployment(&values)["spec"].clone();
        assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&json!(true), &json!(dns)));
        assert_eq!(pod["volumes"][0], cache);
    }
    // Labels of a pod stand before those of all objects, and select no pods.
    let labelled = deployment(&json!({"commonLabels": {"team": "a", "stage": "test"}, "podLabels": {"team": "b"}}));
    let labels = &labelled["metadata"]["labels"];
    assert_eq!((&labels["team"], &labels["stage"]), (&json!("b"), &json!("test")));
    let rendered = helm().template(&json!({"commonLabels": {"team": "a"}})).unwrap();
    for document in documents(&rendered) {
        assert_eq!(document["metadata"]["labels"]["team"], "a", "{document}");
        assert!(
            document["spec"]["selector"]["matchLabels"]["team"].is_null(),
            "{document}"
        );
    }
}

/// The policies of deploy/ are for those who do without the chart. They differ in their names.
#[test]
fn the_policies_of_the_chart_are_those_of_deploy() {
    let text = |name: &str| fs::read_to_string(folder().join("..").join(name)).unwrap();
    let reserved = documents(&text("policy.yaml"));
    let resources = reserved[1]["spec"]["matchResources"]["resourceRules"]
        .as_array()
        .unwrap()
        .iter();
    let resources: Vec<Value> = resources
        .map(|rule| json!({"apiGroups": rule["apiGroups"], "resources": rule["resources"]}))
        .collect();
    let values = json!({"policies": {"reservedMetadata": {"enabled": true, "resources": resources}}});
    let rendered = documents(&helm().template(&values).unwrap());
    for (kept, policy) in [
        (documents(&text("plugin-policy.yaml")), "plugins"),
        (reserved, "reserved"),
    ] {
        let name = format!("{policy}.pilothouse.pilothouse-system.pilothouse.dev");
        for mut expected in kept {
            let is_it = |it: &&Value| it["kind"] == expected["kind"] && it["metadata"]["name"] == name;
            let found = rendered.iter().find(is_it).unwrap();
            if expected["kind"] == "ValidatingAdmissionPolicyBinding" {
                expected["spec"]["policyName"] = json!(name);
            }
            assert_eq!(found["spec"], expected["spec"], "{name}");
        }
    }
}

#[test]
fn the_rules_and_the_dashboard_of_the_chart_are_those_of_deploy() {
    let values = json!({"monitoring": {
        "prometheusRule": {"enabled": true, "labels": {"release": "prometheus"}, "runbookUrl": "https://example.com/runbooks.html"},
        "dashboard": {"enabled": true},
    }});
    let rendered = documents(&helm().template(&values).unwrap());
    let of = |kind: &str, name: &str| {
        let is_it = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
        rendered
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let read = |file: &str| fs::read_to_string(folder().join("../monitoring").join(file)).unwrap();
    let rules = of("PrometheusRule", "pilothouse");
    assert_eq!(rules["metadata"]["labels"]["release"], "prometheus");
    let linked = read("alerts.yaml").replace("docs/runbooks.md#", "https://example.com/runbooks.html#");
    let linked: Value = serde_saphyr::from_str(&linked).unwrap();
    assert_eq!(rules["spec"], linked);
    let dashboard = of("ConfigMap", "pilothouse-dashboard");
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(dashboard["data"]["pilothouse.json"], read("dashboard.json"));
    let default = helm().template(&json!({})).unwrap();
    assert!(!default.contains("PrometheusRule") && !default.contains("grafana_dashboard"));
}

#[test]
fn the_policy_for_plugins_concerns_those_that_the_host_selects() {
    let selector = "team in (a,b),!legacy,tier notin (c),x=1,y==2,z!=3,here";
    let policy_of = |values: &Value| {
        let rendered = documents(&helm().template(values).unwrap());
        let is_it = |document: &Value| {
            let name = document["metadata"]["name"].as_str().unwrap();
            document["kind"] == "ValidatingAdmissionPolicy" && name.starts_with("plugins.")
        };
        let policy = rendered.into_iter().find(is_it);
        policy.map(|policy| policy["spec"].clone())
    };
    let selected = policy_of(&json!({"plugins": {"selector": selector}})).unwrap();
    let requirement = |key: &str, operator: &str, values: &[&str]| {
        if values.is_empty() {
            return json!({"key": key, "operator": operator});
        }
        json!({"key": key, "operator": operator, "values": values})
    };
    assert_eq!(
        selected["matchConstraints"]["objectSelector"]["matchExpressions"],
        json!([
            requirement("team", "In", &["a", "b"]),
            requirement("legacy", "DoesNotExist", &[]),
            requirement("tier", "NotIn", &["c"]),
            requirement("x", "In", &["1"]),
            requirement("y", "In", &["2"]),
            requirement("z", "NotIn", &["3"]),
            requirement("here", "Exists", &[]),
        ])
    );
    // A Plugin that gets its labels later has not been checked before.
    let condition = selected["matchConditions"][0]["expression"].as_str().unwrap();
    assert!(condition.contains("labels"), "{condition}");
    let all = policy_of(&json!({})).unwrap();
    assert!(all["matchConstraints"]["objectSelector"].is_null());
    assert!(
        !all["matchConditions"][0]["expression"]
            .as_str()
            .unwrap()
            .contains("labels")
    );
    for values in [
        json!({"policies": {"plugins": false}}),
        json!({"host": {"identity": "none"}}),
    ] {
        assert_eq!(policy_of(&values), None, "{values}");
    }
}

/// The name of the image in the manifests for kustomize: nothing has this name, and it says what to do.
const INSTRUCTION: &str = "set-your-image.in-kustomization-yaml.invalid/pilothouse-host";

/// The manifests for kustomize are what the chart renders, without the labels that say that Helm has installed them.
#[test]
fn the_manifests_for_kustomize_are_those_of_the_chart() {
    let manifests = folder().join("../kustomize");
    let rendered = helm().template(&json!({"image": {"repository": INSTRUCTION}})).unwrap();
    let mut text =
        "# Generated from deploy/chart: tests/chart/tests/chart/external/helm/rendering.rs says how.\n".to_owned();
    let mut names = Vec::new();
    let is_of_helm = |document: &Value| document["metadata"]["name"].as_str().unwrap().contains("uninstall");
    for mut document in documents(&rendered)
        .into_iter()
        .filter(|document| !is_of_helm(document))
    {
        let labels = "/metadata/labels";
        if let Some(labels) = document.pointer_mut(labels).and_then(Value::as_object_mut) {
            labels.remove("helm.sh/chart");
            labels.insert("app.kubernetes.io/managed-by".to_owned(), json!("kustomize"));
        }
        if let Some(annotations) = document
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.remove("helm.sh/resource-policy");
        }
        names.push(format!("{} {}", document["kind"], document["metadata"]["name"]));
        text.extend(["---\n", &serde_saphyr::to_string(&sorted(document)).unwrap()]);
    }
    is_golden(&manifests.join("host.yaml"), &text);
    let built = documents(&kustomize(&manifests).unwrap());
    let built: Vec<String> = built
        .iter()
        .map(|document| format!("{} {}", document["kind"], document["metadata"]["name"]))
        .collect();
    assert!(
        built.contains(&"\"Namespace\" \"pilothouse-system\"".to_owned()),
        "{built:?}"
    );
    for name in &names {
        assert!(built.contains(name), "{name}: {built:?}");
    }
}

/// Sorts members by their names; serde_json keeps their order or not depending on what else is built.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(members) => {
            let mut members: Vec<_> = members.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(members.into_iter().collect())
        }
        scalar => scalar,
    }
}
