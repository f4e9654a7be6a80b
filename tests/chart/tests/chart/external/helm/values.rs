//! Values of the wrong type, and values that contradict each other: helm names the value before it touches a cluster.

use pilothouse_chart::folder;
use pilothouse_external::helm::Helm;
use serde_json::{Value, json};

fn refusal(values: &Value) -> String {
    let rendered = Helm::new(&folder(), "pilothouse", "pilothouse-system").template(values);
    let Err(failed) = rendered else {
        panic!("helm takes {values}");
    };
    failed.printed.errors
}

#[test]
fn a_value_of_a_wrong_type_is_refused_by_its_name() {
    for (values, words) in [
        (json!({"replicas": "two"}), &["replicas", "integer"][..]),
        (json!({"replicas": 10}), &["replicas", "9"]),
        (json!({"replica": 1}), &["replica"]),
        (
            json!({"webhooks": {"enabled": "yes"}}),
            &["webhooks/enabled", "boolean"],
        ),
        (json!({"webhooks": {"plugins": ["A_B"]}}), &["webhooks/plugins"]),
        (json!({"host": {"identity": "root"}}), &["host/identity"]),
        (json!({"host": {"workers": 0}}), &["host/workers"]),
        (json!({"metrics": {"port": 80}}), &["metrics/port"]),
        (json!({"crds": {"installedBy": "both"}}), &["crds/installedBy"]),
        (json!({"image": {"digest": "sha256:abc"}}), &["image/digest"]),
        (
            json!({"resources": {"limits": {"memory": "lots"}}}),
            &["resources/limits/memory"],
        ),
        (
            json!({"resources": {"requests": {"cpu": -1}}}),
            &["resources/requests/cpu"],
        ),
        (json!({"rbac": {"namespaces": "shop"}}), &["rbac/namespaces", "array"]),
        (
            json!({"artifacts": {"trust": "trust.yaml"}}),
            &["artifacts/trust", "object"],
        ),
        (
            json!({"leaderElection": {"leaseDuration": 1.5}}),
            &["leaderElection/leaseDuration"],
        ),
    ] {
        let said = refusal(&values).replace('.', "/");
        for words in words {
            assert!(said.contains(words), "{values}: {words}: {said}");
        }
    }
}

#[test]
fn values_that_contradict_each_other_are_refused_with_the_next_step() {
    for (values, words) in [
        (
            json!({"leaderElection": {"enabled": false}}),
            "both replicas would write; enable leader election, or set replicas to 1",
        ),
        (
            json!({"replicas": 1, "leaderElection": {"enabled": false, "shards": 4}}),
            "shards have Leases, too; enable leader election",
        ),
        (
            json!({"webhooks": {"enabled": true}}),
            "list the Plugins that have webhooks",
        ),
        (
            json!({"priorityClass": {"create": true}}),
            "name the PriorityClass to create",
        ),
    ] {
        let said = refusal(&values);
        assert!(said.contains(words), "{values}: {said}");
    }
}

#[test]
fn a_parent_chart_may_share_values_of_its_own() {
    let rendered = Helm::new(&folder(), "pilothouse", "pilothouse-system").template(&json!({"global": {"a": 1}}));
    assert!(rendered.unwrap().contains("kind: Deployment"));
}
