//! `helm uninstall` with a plugin left behind that has webhooks and a finalizer: Kubernetes deletes the webhook configurations
//! with the release, and the rest goes as docs/installation.md says.

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::bench::{Bench, NAMESPACE, RELEASE, Running, named, plugin, requests, secret, until};

const FINALIZER: &str = "gate.test.dev/gate";

fn gate(name: &str, size: i64) -> Value {
    let mut gate = named("gate.test.dev/v1", "Gate", Some("default"), name);
    gate["spec"] = json!({"size": size});
    gate
}

/// Creates a gate, and returns the message of its refusal, or an empty one.
async fn attempt(bench: &Bench, name: &str, size: i64) -> String {
    let object: DynamicObject = serde_json::from_value(gate(name, size)).unwrap();
    let made = bench
        .api(&gate(name, size))
        .create(&PostParams::default(), &object)
        .await;
    made.err().map(|error| error.to_string()).unwrap_or_default()
}

/// The uids of the webhook configurations of the release, each with the uids of its owners.
async fn configurations(bench: &Bench) -> Vec<(String, Vec<String>)> {
    let label = format!("pilothouse.dev/webhooks={NAMESPACE}.pilothouse-webhooks");
    let mut found = Vec::new();
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let configurations = bench.api(&named("admissionregistration.k8s.io/v1", kind, None, ""));
        let listed = configurations
            .list(&ListParams::default().labels(&label))
            .await
            .unwrap();
        found.extend(listed.items.into_iter().map(|it| {
            let owners = it.metadata.owner_references.unwrap_or_default().into_iter();
            (it.metadata.uid.unwrap(), owners.map(|owner| owner.uid).collect())
        }));
    }
    found
}

fn role() -> Value {
    let name = format!("{NAMESPACE}:{RELEASE}");
    named("rbac.authorization.k8s.io/v1", "ClusterRole", None, &name)
}

async fn uid_of_role(bench: &Bench) -> String {
    let role = bench.find(&role()).await.unwrap();
    role["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Waits until both configurations are there, with the live ClusterRole as their only owner.
async fn until_owned(bench: &Bench, running: &Running) {
    let owner = uid_of_role(bench).await;
    let are_owned = async || {
        let found = configurations(bench).await;
        found.len() == 2 && found.iter().all(|(_, owners)| *owners == [owner.as_str()])
    };
    until("the ClusterRole owns both configurations", are_owned, || {
        running.process.log()
    })
    .await;
}

/// The commands of docs/installation.md for a release that was uninstalled before its plugins: first the conversion, without
/// which no other version can be read. The CRD itself has no owner.
async fn what_is_left_goes(bench: &Bench) {
    let definition = named(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        None,
        "gates.gate.test.dev",
    );
    let left = bench.find(&definition).await.unwrap();
    assert_eq!(left["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(left["spec"]["conversion"]["strategy"], "Webhook");
    let patch = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    let definitions = bench.api(&definition);
    let (by, patch) = (PatchParams::default(), Patch::Merge(&patch));
    let patched = definitions.patch("gates.gate.test.dev", &by, &patch).await;
    assert!(patched.is_ok(), "{patched:?}");
    bench.delete(&gate("good", 1)).await;
    assert!(
        bench.find(&gate("good", 1)).await.is_some(),
        "it waits for its finalizer"
    );
    bench.pilothouse(&["release", FINALIZER, "--yes"]).await;
    let is_gone = async || bench.find(&gate("good", 1)).await.is_none();
    until("the gate is gone", is_gone, String::new).await;
    // The Plugin has a finalizer, too, because its controllers have one.
    bench.delete(&plugin("gate")).await;
    assert!(bench.find(&plugin("gate")).await.is_some(), "it waits for its host");
    let release = [
        "release",
        "pilothouse.dev/plugin",
        "--kind",
        "Plugin.pilothouse.dev",
        "--yes",
    ];
    bench.pilothouse(&release).await;
    assert_eq!(bench.find(&plugin("gate")).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_configurations_are_uninstalled_with_the_release() {
    let bench = Bench::new().await;
    let values = |port: u16| {
        json!({
            "host": {"logFormat": "text"},
            "webhooks": {"enabled": true, "plugins": ["gate"], "convertedCrds": ["gates.gate.test.dev"], "port": port},
            "networkPolicy": {"webhooksFrom": "any"},
        })
    };
    bench.helm().install(&values(9443)).unwrap();
    let config = bench.folder.file("gate.json", r#"{"finalizer": true}"#);
    bench.install_configured("gate", &["--config", &config]).await;
    let mark = bench.control_plane.mark().unwrap();
    let running = bench.started().await;
    let mut tries = 0;
    let is_judged = async || {
        tries += 1;
        attempt(&bench, &format!("bad-{tries}"), -1)
            .await
            .contains("admission webhook")
    };
    until("the API server asks the host", is_judged, || running.process.log()).await;
    assert_eq!(attempt(&bench, "good", 1).await, "");
    let has_finalizer = async || bench.find(&gate("good", 1)).await.unwrap()["metadata"]["finalizers"][0] == FINALIZER;
    until("the gate has its finalizer", has_finalizer, || running.process.log()).await;
    until_owned(&bench, &running).await;
    let certificates = async || {
        bench
            .find(&secret("pilothouse-webhooks"))
            .await
            .map(|secret| secret["data"].clone())
    };
    let before = (certificates().await.unwrap(), uid_of_role(&bench).await);
    assert!(before.0["tls.crt"].is_string(), "{}", before.0);
    let denied: Vec<String> = requests(&bench, mark)
        .into_iter()
        .filter(|request| request.code == 403)
        .map(|request| request.to_string())
        .collect();
    assert_eq!(denied, Vec::<String>::new(), "{}", running.process.log());

    // Another revision: certificates and role stay, and the configurations with the same uids.
    let made = configurations(&bench).await;
    bench.helm().upgrade(&values(9444)).unwrap();
    running.stop().await;
    let mark = bench.control_plane.mark().unwrap();
    let running = bench.started().await;
    let has_looked = async || {
        let mut asked = requests(&bench, mark).into_iter();
        asked.any(|request| request.verb == "list" && request.resource == "validatingwebhookconfigurations")
    };
    until("the host has looked at its configurations", has_looked, || {
        running.process.log()
    })
    .await;
    assert_eq!((certificates().await.unwrap(), uid_of_role(&bench).await), before);
    until_owned(&bench, &running).await;
    assert_eq!(configurations(&bench).await, made, "an upgrade leaves them as they are");
    running.stop().await;

    // The role is made anew, with another uid: what had the old one as its owner goes, and a host makes it again.
    bench.delete(&role()).await;
    let are_gone = async || configurations(&bench).await.is_empty();
    until("the configurations go with their owner", are_gone, String::new).await;
    bench.helm().upgrade(&values(9443)).unwrap();
    assert_ne!(uid_of_role(&bench).await, before.1);
    let running = bench.started().await;
    until_owned(&bench, &running).await;
    let is_judged = async || attempt(&bench, "bad", -1).await.contains("admission webhook");
    until("the API server asks the host", is_judged, || running.process.log()).await;

    // The host still runs for a moment, as pods do that are being stopped, and cannot make them again.
    bench.helm().uninstall_without_hooks().unwrap();
    assert_eq!(certificates().await, None);
    let are_gone = async || configurations(&bench).await.is_empty();
    until("the configurations go with the release", are_gone, || {
        running.process.log()
    })
    .await;
    running.stop().await;
    assert_eq!(configurations(&bench).await, Vec::new());
    let passes = async || attempt(&bench, "late", 1).await.is_empty();
    until("objects can be made without the host", passes, String::new).await;
    what_is_left_goes(&bench).await;
}
