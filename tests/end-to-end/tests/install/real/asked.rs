//! The verbs `pilothouse-default` and `pilothouse-validate`: API servers ask a plugin only while its account has them.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Error;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use pilothouse_core::rights::objects::account_name;
use pilothouse_end_to_end::program::{Folder, Process, component};
use pilothouse_end_to_end::webhooks::{Asker, gate_review};
use pilothouse_testkit::host::free_address;
use serde_json::{Value, json};

use super::forwarding::{clean_up, rights_of_a_replica};
use super::host::rights_to_plugins;
use super::{control_plane, named, plugin_kind};
use crate::support::{Bench, command, until};

const SYSTEM: &str = "asked-system";
/// A namespace of gates, and one in which no ConfigMap can be made for them.
const OPEN: &str = "asked-open";
const FULL: &str = "asked-full";

const CONFIGURATIONS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

fn configuration(kind: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "pilothouse-asked"},
    })
}

fn gate(namespace: &str, size: i64) -> Value {
    json!({
        "apiVersion": "gate.test.dev/v1", "kind": "Gate", "metadata": {"name": "asked", "namespace": namespace},
        "spec": {"size": size},
    })
}

/// A host with the plugin `asked`.
struct Asked<'a> {
    bench: &'a Bench<'a>,
    host: Process,
    asker: Arc<Asker>,
}

impl Asked<'_> {
    /// Asks the API server whether a gate of this size may be made.
    async fn made(&self, size: i64) -> Result<DynamicObject, Error> {
        let mut gate = gate(OPEN, size);
        gate["metadata"]["name"] = json!("another");
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let object = serde_json::from_value(gate.clone()).unwrap();
        self.bench.api(&gate).create(&dry_run, &object).await
    }

    /// Returns `true` each if the API server calls the defaulter and the validator about a gate.
    async fn is_asked(&self) -> [bool; 2] {
        let (bad, good) = (self.made(-1).await, self.made(1).await);
        let is_refused = match bad {
            Ok(_) => false,
            Err(Error::Api(status)) if status.code == 422 => true,
            Err(error) => panic!("{error}\n{}", self.host.log()),
        };
        [good.unwrap().data["spec"]["colour"] == "blue", is_refused]
    }

    /// Returns `true` if the host allows a bad gate when it is called in spite of it.
    async fn allows_bad_gates(&self) -> bool {
        let review = gate_review(&json!({"size": -1})).to_string();
        let asker = self.asker.clone();
        let ask = move || asker.ask("POST", "/validate/asked/gates", "application/json", review.as_bytes());
        let (code, answer) = tokio::task::spawn_blocking(ask).await.unwrap().unwrap();
        assert_eq!(code, 200, "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()["response"]["allowed"] == true
    }

    /// Returns `true` for each of the configurations that exists.
    async fn configured(&self) -> [bool; 2] {
        let mut found = [false; 2];
        for (found, kind) in found.iter_mut().zip(CONFIGURATIONS) {
            *found = self.bench.find(&configuration(kind)).await.is_some();
        }
        found
    }

    /// Returns the warning about admission in the Plugin's status.
    async fn warning(&self) -> String {
        let plugin = self.bench.find(&named("Plugin", None, "asked")).await.unwrap();
        let warnings = plugin["status"]["warnings"].as_array();
        let mut warnings = warnings.into_iter().flatten().filter_map(Value::as_str);
        let about = "API servers do not ask the plugin at admission";
        warnings
            .find(|warning| warning.contains(about))
            .unwrap_or_default()
            .to_owned()
    }

    /// Waits until something holds. Meanwhile a request of the plugin's account is denied again and again, after which the
    /// host reviews its rights: otherwise that takes four minutes.
    async fn until_reviewed(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let gate = gate(FULL, 1);
        let mut size = 1;
        let holds = async || {
            size = 3 - size;
            let patch = Patch::Merge(json!({"spec": {"size": size}}));
            let patched = self
                .bench
                .api(&gate)
                .patch("asked", &PatchParams::default(), &patch)
                .await;
            assert!(patched.is_ok(), "{patched:?}\n{}", self.host.log());
            tokio::time::sleep(Duration::from_millis(500)).await;
            holds().await
        };
        until(what, holds, || self.host.log()).await;
    }
}

/// Grants the account these rights of the plugin but for some verbs.
async fn grant_all_but(bench: &Bench<'_>, rules: &Value, withheld: &[&str]) {
    let mut role = named("ClusterRole", None, &account_name("asked"));
    role["rules"] = rules.clone();
    for rule in role["rules"].as_array_mut().unwrap() {
        let verbs = rule["verbs"].as_array_mut().unwrap();
        verbs.retain(|verb| !withheld.contains(&verb.as_str().unwrap()));
    }
    bench.apply(&[role]).await;
}

/// Has every ConfigMap refused in a namespace.
async fn close(bench: &Bench<'_>, namespace: &str) {
    let api_version = "admissionregistration.k8s.io/v1";
    let metadata = json!({"name": "asked-full"});
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]});
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    bench
        .apply(&[
            json!({
                "apiVersion": api_version, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
                "spec": {
                    "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
                    "validations": [{"expression": "false", "message": "no ConfigMap is wanted here"}],
                },
            }),
            json!({
                "apiVersion": api_version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
                "spec": {"policyName": "asked-full", "validationActions": ["Deny"]},
            }),
        ])
        .await;
    let map = named("ConfigMap", Some(namespace), "probe");
    let probe: DynamicObject = serde_json::from_value(map.clone()).unwrap();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let is_closed = async || bench.api(&map).create(&dry_run, &probe).await.is_err();
    until("the policy is in force", is_closed, String::new).await;
}

/// Installs the plugin, with a component in this folder: a kubeconfig for its host, and the rules of its account.
async fn install(bench: &Bench<'_>, folder: &Folder) -> (String, Value) {
    let mut rules = rights_of_a_replica();
    rules.as_array_mut().unwrap().extend(rights_to_plugins());
    let kubeconfig = bench.account(SYSTEM, "host", &rules).await;
    let bytes = std::fs::read(component("gate")).unwrap();
    let plugin = format!("asked={}", folder.file("gate.wasm", bytes));
    let arguments = [
        ["install", &plugin, "--yes", "--wait=false", "--host-namespace", SYSTEM].as_slice(),
        &["--host-account", "host", "--identity", "impersonate"],
    ]
    .concat();
    let (code, _, said) = command(&arguments, &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    let role = bench.find(&named("ClusterRole", None, &account_name("asked"))).await;
    (kubeconfig, role.unwrap()["rules"].clone())
}

/// Starts a host, and waits until its webhooks are set up.
async fn start<'a>(bench: &'a Bench<'a>, folder: &Folder, kubeconfig: &str) -> Asked<'a> {
    let address = free_address().unwrap();
    let (directory, listen, url) = (folder.path(""), address.to_string(), format!("https://{address}"));
    let secret = format!("{SYSTEM}/webhooks");
    let arguments = [
        ["run", "--kubeconfig", kubeconfig, "--plugin-dir", &directory].as_slice(),
        &["--plugin-selector", "pilothouse.dev/plugin=asked"],
        &["--identity", "impersonate", "--namespace", SYSTEM],
        &[
            "--webhook-listen",
            &listen,
            "--webhook-url",
            &url,
            "--webhook-secret",
            &secret,
        ],
    ]
    .concat();
    let host = Process::start(&arguments);
    // A conversion takes no verb, and is set after the configurations would have been made.
    let definition = named("CustomResourceDefinition", None, "gates.gate.test.dev");
    let converts = async || bench.find(&definition).await.unwrap()["spec"]["conversion"]["strategy"] == "Webhook";
    until("the webhooks are set up", converts, || host.log()).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "webhooks", "namespace": SYSTEM}});
    let secret = bench.find(&secret).await.unwrap();
    let bundle = STANDARD.decode(secret["data"]["ca.crt"].as_str().unwrap()).unwrap();
    let asker = Arc::new(Asker::new(address, &String::from_utf8(bundle).unwrap()));
    Asked { bench, host, asker }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_exist_only_while_the_plugins_account_has_the_verbs() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    plugin_kind(&bench).await;
    clean_up(&bench).await;
    for namespace in [OPEN, FULL] {
        bench.namespace(namespace).await;
    }
    close(&bench, FULL).await;
    let folder = Folder::new();
    let (kubeconfig, rules) = install(&bench, &folder).await;
    grant_all_but(&bench, &rules, &["pilothouse-default", "pilothouse-validate"]).await;
    let asked = start(&bench, &folder, &kubeconfig).await;

    // Without the verbs the plugin runs and is not asked, and the status says what to do.
    assert_eq!(asked.configured().await, [false, false], "{}", asked.host.log());
    let is_told = async || !asked.warning().await.is_empty();
    until("the missing verbs are told", is_told, || asked.host.log()).await;
    let user = format!("system:serviceaccount:{SYSTEM}:{}", account_name("asked"));
    let words = format!(
        "API servers do not ask the plugin at admission: user {user:?} may not pilothouse-default, pilothouse-validate \
         gates.gate.test.dev in all namespaces; grant these rights: pilothouse rights asked=gate.wasm --host-namespace {SYSTEM} \
         | kubectl apply --server-side --force-conflicts -f -"
    );
    assert_eq!(asked.warning().await, words);
    assert_eq!(asked.is_asked().await, [false, false]);
    assert!(asked.allows_bad_gates().await);
    bench.apply(&[gate(OPEN, 1), gate(FULL, 1)]).await;
    let map = named("ConfigMap", Some(OPEN), "asked");
    let is_made = async || bench.find(&map).await.is_some();
    until("it reconciles all the same", is_made, || asked.host.log()).await;

    grant_all_but(&bench, &rules, &[]).await;
    let both = async || asked.configured().await == [true, true] && asked.is_asked().await == [true, true];
    asked.until_reviewed("API servers ask", both).await;
    assert!(!asked.allows_bad_gates().await);
    let is_over = async || asked.warning().await.is_empty();
    until("the warning goes", is_over, || asked.host.log()).await;

    // What is revoked ends, for one interface without the other.
    grant_all_but(&bench, &rules, &["pilothouse-validate"]).await;
    let one = async || asked.configured().await == [true, false];
    asked.until_reviewed("the validator is not asked any more", one).await;
    until(
        "API servers know",
        async || asked.is_asked().await == [true, false],
        || asked.host.log(),
    )
    .await;
    assert!(
        asked.allows_bad_gates().await,
        "the host answers what API servers should not ask"
    );
    let told = asked.warning().await;
    assert!(
        told.contains("may not pilothouse-validate gates.gate.test.dev"),
        "{told}"
    );

    for namespace in [OPEN, FULL] {
        let gate = gate(namespace, 1);
        let deleted = bench.api(&gate).delete("asked", &DeleteParams::default()).await;
        assert!(deleted.is_ok(), "{deleted:?}");
    }
    let (code, _, said) = command(&["uninstall", "asked", "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}\n{}", asked.host.log());
    let is_gone = async || asked.configured().await == [false, false];
    until("the configurations go with the plugin", is_gone, || asked.host.log()).await;
    drop(asked);
    clean_up(&bench).await;
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
        let object =
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "asked-full"}});
        let deleted = bench.api(&object).delete("asked-full", &DeleteParams::default()).await;
        assert!(deleted.is_ok(), "{deleted:?}");
    }
}
