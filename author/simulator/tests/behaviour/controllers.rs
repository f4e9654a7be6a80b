//! Garbage collection, namespaces, Deployments and definitions.

use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, Client};

fn owner(object: &Value, extra: &Value) -> Value {
    let mut reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
    for (name, value) in extra.as_object().into_iter().flatten() {
        reference[name] = value.clone();
    }
    reference
}

#[tokio::test(start_paused = true)]
async fn what_an_owner_leaves_behind_is_collected() {
    let client = Client::quiet();
    let parent = client.config_map("parent", json!({})).await;
    client
        .config_map("child", json!({"ownerReferences": [owner(&parent, &json!({}))]}))
        .await;
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/child")).await.0, 200);
    client
        .send("DELETE", &format!("{CONFIG_MAPS}/parent"), Value::Null)
        .await;
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/child")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_another_namespace_counts_as_absent() {
    let client = Client::quiet();
    let parent = client.config_map("parent", json!({})).await;
    let child = json!({"metadata": {"name": "child", "ownerReferences": [owner(&parent, &json!({}))]}});
    let (status, _) = client
        .send("POST", "/api/v1/namespaces/kube-public/configmaps", child)
        .await;
    assert_eq!(status, 201);
    assert_eq!(
        client.get("/api/v1/namespaces/kube-public/configmaps/child").await.0,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn one_living_owner_keeps_an_object_and_the_dead_reference_goes() {
    let client = Client::quiet();
    let (one, two) = (
        client.config_map("one", json!({})).await,
        client.config_map("two", json!({})).await,
    );
    client
        .config_map(
            "child",
            json!({"ownerReferences": [owner(&one, &json!({})), owner(&two, &json!({}))]}),
        )
        .await;
    client.send("DELETE", &format!("{CONFIG_MAPS}/one"), Value::Null).await;
    let (_, child) = client.get(&format!("{CONFIG_MAPS}/child")).await;
    assert_eq!(child["metadata"]["ownerReferences"], json!([owner(&two, &json!({}))]));
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_waits_and_orphaning_releases_children() {
    let client = Client::quiet();
    let parent = client.config_map("parent", json!({})).await;
    let blocking = owner(&parent, &json!({"blockOwnerDeletion": true}));
    client
        .config_map(
            "child",
            json!({"ownerReferences": [blocking], "finalizers": ["example.com/hold"]}),
        )
        .await;
    let (_, waiting) = client
        .send(
            "DELETE",
            &format!("{CONFIG_MAPS}/parent?propagationPolicy=Foreground"),
            Value::Null,
        )
        .await;
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let (_, child) = client.get(&format!("{CONFIG_MAPS}/child")).await;
    assert!(child["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/parent")).await.0, 200);
    client
        .send(
            "PATCH",
            &format!("{CONFIG_MAPS}/child"),
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/child")).await.0, 404);
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/parent")).await.0, 404);

    let parent = client.config_map("parent", json!({})).await;
    client
        .config_map("child", json!({"ownerReferences": [owner(&parent, &json!({}))]}))
        .await;
    client
        .send(
            "DELETE",
            &format!("{CONFIG_MAPS}/parent?propagationPolicy=Orphan"),
            Value::Null,
        )
        .await;
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/parent")).await.0, 404);
    let (status, child) = client.get(&format!("{CONFIG_MAPS}/child")).await;
    assert_eq!((status, child["metadata"].get("ownerReferences")), (200, None));
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_refuses_creates_and_goes_when_empty() {
    let client = Client::new();
    client
        .send("POST", "/api/v1/namespaces", json!({"metadata": {"name": "ns"}}))
        .await;
    let path = "/api/v1/namespaces/ns/configmaps";
    assert_eq!(client.get(&format!("{path}/kube-root-ca.crt")).await.0, 200);
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    assert_eq!(client.send("POST", path, held).await.0, 201);
    client.send("DELETE", "/api/v1/namespaces/ns", Value::Null).await;
    let (_, namespace) = client.get("/api/v1/namespaces/ns").await;
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert_eq!(client.get(&format!("{path}/kube-root-ca.crt")).await.0, 404);
    let (status, refusal) = client.send("POST", path, json!({"metadata": {"name": "new"}})).await;
    assert_eq!(
        (status, &refusal["details"]["causes"][0]["reason"]),
        (403, &json!("NamespaceTerminating"))
    );
    client
        .send(
            "PATCH",
            &format!("{path}/held"),
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    assert_eq!(client.get("/api/v1/namespaces/ns").await.0, 404);
}

pub fn deployment(image: &str, replicas: u32) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

#[tokio::test(start_paused = true)]
async fn a_deployment_becomes_available_and_rolls_over() {
    let client = Client::new();
    client.send("POST", DEPLOYMENTS, deployment("one", 2)).await;
    let (_, first) = client.get(&format!("{DEPLOYMENTS}/web")).await;
    assert_eq!(first["status"]["availableReplicas"], 2);
    assert_eq!(first["status"]["observedGeneration"], 1);
    let conditions = first["status"]["conditions"].as_array().expect("there are conditions");
    let available = conditions
        .iter()
        .find(|condition| condition["type"] == "Available")
        .expect("Available is among them");
    assert_eq!(available["status"], "True");
    client
        .send("PUT", &format!("{DEPLOYMENTS}/web"), deployment("two", 3))
        .await;
    let (_, second) = client.get(&format!("{DEPLOYMENTS}/web")).await;
    assert_eq!(
        (&second["status"]["updatedReplicas"], &second["status"]["replicas"]),
        (&json!(3), &json!(3))
    );
    let (_, sets) = client.get("/apis/apps/v1/namespaces/default/replicasets").await;
    let mut replicas: Vec<i64> = sets["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|set| set["spec"]["replicas"].as_i64().expect("a number of replicas"))
        .collect();
    replicas.sort_unstable();
    assert_eq!(replicas, [0, 3]);
    client.send("DELETE", &format!("{DEPLOYMENTS}/web"), Value::Null).await;
    assert_eq!(
        client.get("/api/v1/namespaces/default/pods").await.1["items"],
        json!([])
    );
}

fn definition() -> Value {
    json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

#[tokio::test(start_paused = true)]
async fn a_crd_is_served_at_once_and_takes_its_objects_along() {
    let client = Client::quiet();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let things = "/apis/example.com/v1/namespaces/default/things";
    assert_eq!(client.get(things).await.0, 404);
    client.send("POST", definitions, definition()).await;
    let (_, served) = client.get(&format!("{definitions}/things.example.com")).await;
    let conditions: Vec<&Value> = served["status"]["conditions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|condition| &condition["type"])
        .collect();
    assert_eq!(conditions, ["NamesAccepted", "Established"]);
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}});
    assert_eq!(client.send("POST", things, thing).await.0, 201);
    let mut watch = client.watch(&format!("{things}?watch=1")).await;
    assert_eq!(watch.kinds(1).await, ["ADDED"]);
    client
        .send("DELETE", &format!("{definitions}/things.example.com"), Value::Null)
        .await;
    assert_eq!(watch.kinds(1).await, ["DELETED"]);
    assert!(watch.next().await.is_none());
    assert_eq!(client.get(things).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_claim_goes_once_no_pod_uses_it() {
    let client = Client::quiet();
    let (claims, pods) = (
        "/api/v1/namespaces/default/persistentvolumeclaims",
        "/api/v1/namespaces/default/pods",
    );
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let pod = json!({"metadata": {"name": "user"}, "spec": {
        "containers": [{"name": "a", "image": "a"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }});
    let account = json!({"metadata": {"name": "default"}});
    client
        .send("POST", "/api/v1/namespaces/default/serviceaccounts", account)
        .await;
    for (path, object) in [(claims, claim), (pods, pod)] {
        assert_eq!(client.send("POST", path, object).await.0, 201);
    }
    client.send("DELETE", &format!("{claims}/data"), Value::Null).await;
    let (status, held) = client.get(&format!("{claims}/data")).await;
    assert_eq!((status, held["metadata"]["deletionTimestamp"].is_string()), (200, true));
    client.send("DELETE", &format!("{pods}/user"), Value::Null).await;
    assert_eq!(client.get(&format!("{claims}/data")).await.0, 404);
}
