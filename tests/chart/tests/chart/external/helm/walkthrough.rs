//! docs/walkthrough.md, from nothing: the chart, a plugin with rights of its own, a plugin without the rights that it asks for, a
//! plugin that API servers ask, and four replicas of which one is killed.

use std::collections::BTreeMap;

use kube::api::{ListParams, PostParams};
use kube::core::DynamicObject;
use pilothouse_testkit::controlplane::AuditMark;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::bench::{Bench, NAMESPACE, RELEASE, Running, app_service, named, plugin, until};

const REPLICAS: usize = 4;
const SHARDS: usize = 16;
const NAMESPACES: usize = 100;
const OBJECTS: usize = 2000;

/// The namespaces with a gate.
const PAINTED: usize = 12;

/// Reconciles of one replica at once, each of which may have one write in flight.
const WORKERS: usize = 8;

fn tenant(number: usize) -> String {
    format!("tenant-{number:02}")
}

fn pod(number: usize) -> String {
    format!("pilothouse-{number}")
}

/// Returns the count of a replica's objects, as recorded in its Lease.
async fn load(bench: &Bench, pod: &str) -> u64 {
    let leases = bench.api(&named("coordination.k8s.io/v1", "Lease", Some(NAMESPACE), ""));
    let leases = leases.list(&ListParams::default()).await.unwrap();
    let its = leases.into_iter().filter(|lease| {
        let holder = lease.data["spec"]["holderIdentity"].as_str().unwrap_or_default();
        holder.rsplit_once('_').is_some_and(|(name, _)| name == pod)
    });
    let annotations = its.filter_map(|lease| lease.metadata.annotations?.remove("pilothouse.dev/loads"));
    let loads = annotations.map(|text| serde_json::from_str::<BTreeMap<usize, u64>>(&text).unwrap());
    loads.flat_map(BTreeMap::into_values).sum()
}

fn log(replicas: &[Running]) -> String {
    let logs: Vec<String> = replicas.iter().map(|running| running.process.log()).collect();
    logs.join("\n---\n")
}

/// Returns the count of shards of each replica.
async fn shares(bench: &Bench) -> BTreeMap<String, usize> {
    let leases = bench.api(&named("coordination.k8s.io/v1", "Lease", Some(NAMESPACE), ""));
    let mut shares = BTreeMap::new();
    for lease in leases.list(&ListParams::default()).await.unwrap() {
        let is_shard = lease
            .metadata
            .name
            .is_some_and(|name| name.starts_with("pilothouse-shard-"));
        let holder = lease.data["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if is_shard && !holder.is_empty() {
            *shares.entry(holder.to_owned()).or_default() += 1;
        }
    }
    shares
}

async fn create(bench: &Bench, from: usize, to: usize) {
    for number in from..to {
        let mut object = app_service(&format!("app-{number}"));
        object["metadata"]["namespace"] = json!(tenant(number % NAMESPACES));
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let namespaced = named("kosmos.io/v1", "AppService", Some(&tenant(number % NAMESPACES)), "");
        let created = bench.api(&namespaced).create(&PostParams::default(), &object).await;
        created.unwrap();
    }
}

async fn converge(bench: &Bench, objects: usize, replicas: &[Running]) {
    let all = bench.api(&named("kosmos.io/v1", "AppService", None, ""));
    let is_reconciled = |object: &&DynamicObject| {
        let conditions = object.data["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == "Reconciled" && it["status"] == "True")
    };
    let holds = async || {
        let objects_now = all.list(&ListParams::default()).await.unwrap().items;
        objects_now.iter().filter(is_reconciled).count() == objects
    };
    until(&format!("{objects} objects are reconciled"), holds, || log(replicas)).await;
}

fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|it| it["type"] == kind).cloned().unwrap_or_default()
}

/// The answers to all writes of Deployments since then, by object, all of which were made as the plugin's account.
fn deployments(bench: &Bench, mark: AuditMark) -> BTreeMap<String, Vec<u16>> {
    let account = format!("system:serviceaccount:{NAMESPACE}:{RELEASE}");
    let acting = format!("system:serviceaccount:{NAMESPACE}:pilothouse-plugin-app-service");
    let mut codes = BTreeMap::<String, Vec<u16>>::new();
    for request in bench.control_plane.requests_since(mark).unwrap() {
        if request.account == account && request.is_write() && request.resource == "deployments" {
            assert_eq!(request.impersonated.as_deref(), Some(&*acting), "{request}");
            codes.entry(request.name).or_default().push(request.code);
        }
    }
    codes
}

/// Returns the message with which the API server refuses a gate, or an empty one.
async fn refusal(bench: &Bench, namespace: &str, spec: &Value) -> String {
    let mut gate = named("gate.test.dev/v1", "Gate", Some(namespace), "asked");
    gate["spec"] = spec.clone();
    let object: DynamicObject = serde_json::from_value(gate.clone()).unwrap();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let made = bench.api(&gate).create(&dry_run, &object).await;
    made.err().map(|error| error.to_string()).unwrap_or_default()
}

/// Waits until the API server calls the validator of the gates, which four replicas serve, and refuses as it does.
async fn gates_are_validated(bench: &Bench, replicas: &[Running]) {
    bench.install_plugin("gate").await;
    let is_refused = async || {
        let said = refusal(bench, "default", &json!({"size": -1})).await;
        said.contains("admission webhook") && said.contains("spec.size") && said.contains("must be 0 to 1000")
    };
    until("the API server refuses a bad gate", is_refused, || log(replicas)).await;
    assert_eq!(refusal(bench, "default", &json!({"size": 1})).await, "");
}

/// In these namespaces a gate is red; whether there may be another one is known to the replica that has the namespace's shard.
async fn paint(bench: &Bench, replicas: &[Running]) {
    for number in 0..PAINTED {
        let mut red = named("v1", "ConfigMap", Some(&tenant(number)), "first");
        red["data"] = json!({"colour": "\"red\""});
        bench.apply(&red).await;
    }
    let is_seen = async || second_red_gates(bench).await.is_empty();
    until("no other gate may be red", is_seen, || log(replicas)).await;
}

/// Returns the errors where another red gate is not refused as the plugin refuses it, or where a green one is.
async fn second_red_gates(bench: &Bench) -> Vec<String> {
    let mut wrong = Vec::new();
    for number in 0..PAINTED {
        let spec = |colour: &str| json!({"size": 1, "colour": colour, "behaviour": "only-colour"});
        let red = refusal(bench, &tenant(number), &spec("red")).await;
        if !red.contains("spec.colour: Forbidden: the gate \"first\" has this colour") {
            wrong.push(format!("red in {}: {red}", tenant(number)));
        }
        let green = refusal(bench, &tenant(number), &spec("green")).await;
        if !green.is_empty() {
            wrong.push(format!("green in {}: {green}", tenant(number)));
        }
    }
    wrong
}

/// Installs a plugin that asks for Secrets, and takes the right to read them away: the role, as it was granted.
async fn without_a_right(bench: &Bench, replicas: &[Running]) -> Value {
    let touches =
        json!([{"kind": {"group": "", "version": "v1", "kind": "Secret"}, "access": ["read"], "fields": [".data"]}]);
    let config = json!({"objects": "walk=through", "touches": touches});
    let config = bench.folder.file("reader.json", config.to_string());
    bench.install_configured("reader", &["--config", &config]).await;
    let mut role = named(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        None,
        "pilothouse-plugin-reader",
    );
    let granted = bench.find(&role).await.unwrap()["rules"].clone();
    let mut rules = granted.as_array().unwrap().clone();
    let is_about_secrets = |rule: &Value| rule["resources"] == json!(["secrets"]);
    assert!(rules.iter().any(is_about_secrets), "{granted}");
    rules.retain(|rule| !is_about_secrets(rule));
    role["rules"] = json!(rules);
    bench.apply(&role).await;
    let is_denied = async || {
        let granted = condition(&bench.find(&plugin("reader")).await.unwrap(), "Granted");
        let message = granted["message"].as_str().unwrap_or_default();
        granted["status"] == "False" && message.contains("secrets") && message.contains("pilothouse rights")
    };
    until("the Plugin says what is missing", is_denied, || log(replicas)).await;
    role["rules"] = granted;
    role
}

#[tokio::test(flavor = "multi_thread")]
async fn from_nothing_to_four_replicas_of_which_one_is_killed() {
    let bench = Bench::new().await;
    let times = json!({"shards": SHARDS, "leaseDuration": 4, "renewDeadline": 3, "retryPeriod": 1});
    let host = json!({"logFormat": "text", "workers": WORKERS});
    let webhooks = json!({"enabled": true, "plugins": ["gate"], "convertedCrds": ["gates.gate.test.dev"]});
    bench
        .helm()
        .install(&json!({"replicas": REPLICAS, "leaderElection": times, "host": host, "webhooks": webhooks}))
        .unwrap();
    bench.install_plugin("app-service").await;
    let token = bench.token("host-token").await;
    let kubeconfig = bench.kubeconfig("host.yaml", &json!({"token": token}));
    let mut replicas: Vec<Running> = Vec::new();
    for number in 0..REPLICAS {
        // API servers ask the first one, as a Service may have them do.
        let asked = replicas.first().map(|first| first.webhooks);
        replicas.push(bench.start_behind(asked, &pod(number), &kubeconfig).await);
    }
    let is_shared = async |replicas: usize| {
        let shares = shares(&bench).await;
        shares.len() == replicas && shares.values().sum::<usize>() == SHARDS
    };
    let four_share = async || is_shared(REPLICAS).await;
    until("four replicas share all shards", four_share, || log(&replicas)).await;

    // A sample, and its child by the plugin's own account.
    let mark = bench.control_plane.mark().unwrap();
    bench.apply(&app_service("sample")).await;
    bench.is_reconciled(&app_service("sample"), &replicas[0]).await;
    assert_eq!(
        deployments(&bench, mark),
        BTreeMap::from([("sample".to_owned(), vec![201])])
    );

    gates_are_validated(&bench, &replicas).await;
    let role = without_a_right(&bench, &replicas).await;

    // 2,000 objects, while everything else runs.
    for number in 0..NAMESPACES {
        bench.apply(&named("v1", "Namespace", None, &tenant(number))).await;
    }
    paint(&bench, &replicas).await;
    let mark = bench.control_plane.mark().unwrap();
    create(&bench, 0, OBJECTS / 2).await;
    // The one that is to be killed has work, and so have all others: the shards are cut anew when their loads are known.
    let all_work = async || {
        for number in 0..REPLICAS {
            if load(&bench, &pod(number)).await == 0 {
                return false;
            }
        }
        true
    };
    until("all replicas work", all_work, || log(&replicas)).await;
    create(&bench, OBJECTS / 2, OBJECTS / 2 + NAMESPACES).await;
    replicas[1].process.signal(Signal::KILL);
    let killed = replicas.remove(1);
    // Its shards have nobody for some seconds; live reads answer.
    assert_eq!(
        second_red_gates(&bench).await,
        Vec::<String>::new(),
        "{}",
        log(&replicas)
    );
    create(&bench, OBJECTS / 2 + NAMESPACES, OBJECTS).await;
    converge(&bench, OBJECTS + 1, &replicas).await;
    drop(killed);
    let three_share = async || is_shared(REPLICAS - 1).await;
    until("three replicas share all shards", three_share, || log(&replicas)).await;
    let mut codes = deployments(&bench, mark);
    assert_eq!(codes.len(), OBJECTS, "none is lost");
    codes.retain(|_, codes| *codes != [201]);
    let others: usize = codes.values().map(Vec::len).sum();
    assert!(others <= 2 * WORKERS, "only what was in flight is repeated: {codes:?}");

    // The right is granted, and the plugin runs.
    bench.apply(&role).await;
    let is_granted = async || condition(&bench.find(&plugin("reader")).await.unwrap(), "Granted")["status"] == "True";
    until("the Plugin has its rights", is_granted, || log(&replicas)).await;
    for running in replicas {
        running.stop().await;
    }
}
