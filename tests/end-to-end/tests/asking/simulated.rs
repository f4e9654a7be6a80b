//! A host on a simulated cluster that is asked on the same machine, with its key.

mod recording;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilothouse_end_to_end::program::{Folder, Process, component, ended};
use pilothouse_end_to_end::scrape::get;
use pilothouse_end_to_end::stage::{app_service, create, hostile};
use pilothouse_simulator::{Options, Simulator};
use serde_json::{Value, json};

/// An address at which nobody listens.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// A host that serves its API on this machine.
pub struct AskedHost {
    simulator: Simulator,
    process: Process,
    pub address: SocketAddr,
    pub folder: Folder,
    _serving: Box<dyn std::any::Any>,
}

impl AskedHost {
    pub async fn start(plugins: &[&str]) -> Self {
        Self::start_with(plugins, Folder::new(), &[]).await
    }

    /// Starts it with more options.
    async fn start_with(plugins: &[&str], folder: Folder, more: &[&str]) -> Self {
        let simulator = Simulator::new(Options::default());
        let (cluster, address) = (free_address(), free_address());
        let serving = simulator.serve(cluster).await.unwrap();
        let kubeconfig = folder.kubeconfig(&format!("http://{cluster}"), "there");
        let (listens, key) = (address.to_string(), folder.path("api.key"));
        let mut arguments = vec![
            "run",
            "--kubeconfig",
            &kubeconfig,
            "--install-crds",
            "--api-address",
            &listens,
        ];
        arguments.extend(["--api-key-file", &key, "--metrics-address", "off"]);
        arguments.extend(more);
        let components: Vec<String> = plugins.iter().map(|plugin| component(plugin)).collect();
        for component in &components {
            arguments.extend(["--plugin", component]);
        }
        let process = Process::start(&arguments);
        Self {
            simulator,
            process,
            address,
            folder,
            _serving: Box::new(serving),
        }
    }

    fn client(&self) -> Client {
        Client::new(self.simulator.service(), "default")
    }

    /// Runs a command: returns its exit code, its output, and its standard error.
    fn ask(&self, arguments: &[&str]) -> (i32, String, String) {
        let (host, key) = (format!("http://{}", self.address), self.folder.path("api.key"));
        let mut all = arguments.to_vec();
        all.extend(["--host", &host, "--api-key-file", &key]);
        ended(&all)
    }

    fn document(&self, arguments: &[&str]) -> Option<Value> {
        let (code, printed, _) = self.ask(&[arguments, &["-o", "json"]].concat());
        (code == 0).then(|| serde_json::from_str(&printed).unwrap())
    }

    /// Waits until an answer is as it is to be.
    pub async fn until(&mut self, what: &str, arguments: &[&str], is_so: impl Fn(&Value) -> bool) -> Value {
        let (host, key) = (format!("http://{}", self.address), self.folder.path("api.key"));
        let all = [arguments, &["--host", &host, "--api-key-file", &key, "-o", "json"]].concat();
        let look = |_: &Process| {
            let (code, printed, _) = ended(&all);
            let document: Option<Value> = (code == 0).then(|| serde_json::from_str(&printed).unwrap());
            document.filter(|document| is_so(document))
        };
        self.process.until(what, look).await
    }
}

fn api(client: Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::namespaced_with(client, "default", &ApiResource::from_gvk(&kind))
}

/// The kinds of the children that a controller has made for an object, as far as the host has seen them come.
fn children(view: &Value) -> Vec<&str> {
    let children = view["children"].as_array();
    children
        .into_iter()
        .flatten()
        .filter_map(|it| it["kind"].as_str())
        .collect()
}

/// The triggers of the last runs, each with the object that it was about.
fn triggers(document: &Value) -> Vec<String> {
    let runs = document["controllers"][0]["runs"].as_array().unwrap();
    let trigger = |run: &Value| {
        let by = &run["triggeredBy"];
        let by = by
            .is_object()
            .then(|| format!(" {} {}", by["kind"], by["name"]).replace('"', ""));
        format!("{}{}", run["trigger"].as_str().unwrap(), by.unwrap_or_default())
    };
    runs.iter().map(trigger).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_explained_with_children_runs_and_reverts() {
    let mut host = AskedHost::start(&["app-service"]).await;
    create_when_served(&mut host, &app_service("web")).await;
    let why = ["why", "appservice/web"];
    let document = host
        .until("it is reconciled, and its children are seen", &why, |document| {
            let view = &document["controllers"][0];
            view["runs"][0]["result"] == "Success" && view["state"] == "Idle" && children(view).contains(&"Deployment")
        })
        .await;
    let view = &document["controllers"][0];
    assert_eq!(document["object"]["apiVersion"], "kosmos.io/v1");
    assert_eq!(
        (&view["plugin"], &view["synced"]),
        (&json!("app-service"), &json!(true))
    );
    let first = triggers(&document).pop().unwrap();
    assert!(first == "ObjectChanged" || first == "Started", "{first}");

    // Somebody edits the child under a name of their own.
    let deployments = api(host.client(), "apps", "v1", "Deployment");
    let patch = Patch::Merge(json!({"spec": {"replicas": 7}}));
    deployments
        .patch(
            "web",
            &PatchParams {
                field_manager: Some("eve".to_owned()),
                ..PatchParams::default()
            },
            &patch,
        )
        .await
        .unwrap();
    let document = host
        .until("the edit is reverted, and said to be", &why, |document| {
            let is_reverted = document["controllers"][0]["reverted"][0]["object"]["kind"] == "Deployment";
            is_reverted && triggers(document).contains(&"ChildChanged Deployment web".to_owned())
        })
        .await;
    let revert = &document["controllers"][0]["reverted"][0];
    assert_eq!(revert["fields"], json!([".spec.replicas"]));
    assert_eq!(revert["managers"][0]["manager"], "eve", "{revert}");
    assert_eq!(revert["managers"][0]["fields"], json!([".spec.replicas"]));
    let (code, printed, said) = host.ask(&why);
    assert_eq!((code, &*said), (0, ""));
    assert!(
        printed.starts_with("AppService default/web\n") && printed.contains("had been written by eve"),
        "{printed}"
    );
    assert!(!printed.contains('\u{1b}'), "no colours but on a terminal");

    // The child leads to its owner.
    for named in ["deploy/web", "deploy.apps/web", "aps/web", "DEPLOYMENTS/web"] {
        let short = host.document(&["why", named]);
        assert!(short.is_some_and(|document| document["exists"] == true), "{named}");
    }
    let document = host.document(&["why", "deployments.apps/web"]).unwrap();
    assert_eq!(document["madeFor"][0]["object"]["kind"], "AppService");
    let (code, _, said) = host.ask(&["why", "appservice/nobody"]);
    assert!(
        code == 1 && said.contains("does not know AppService default/nobody"),
        "{said}"
    );
    let (code, _, said) = host.ask(&["why", "pod/web"]);
    assert!(code == 1 && said.contains("no plugin of this host"), "{said}");
}

/// Creates an object as soon as its kind is served.
pub async fn create_when_served(host: &mut AskedHost, object: &Value) {
    host.until("the plugin is ready", &["status"], |document| {
        document["plugins"][0]["ready"] == true
    })
    .await;
    create(host.client(), object).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_explained_with_all_reads_of_its_last_call() {
    let mut host = AskedHost::start(&["stream-ingress"]).await;
    let named = |kind: &str, namespace: Option<&str>, name: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let ports = json!({"ports": [{"port": 5432}]});
    for object in [
        named("Namespace", None, "ingress-nginx", json!({})),
        named(
            "Service",
            Some("ingress-nginx"),
            "ingress-nginx-controller",
            ports.clone(),
        ),
    ] {
        create(host.client(), &object).await;
    }
    let stream = json!({
        "apiVersion": "nginx-stream.jeffthecoder.xyz/v1beta1", "kind": "StreamIngress",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"listen": 7001, "upstream": {"service": "postgres", "port": 5432}},
    });
    create_when_served(&mut host, &stream).await;
    let why = ["why", "streamingress/db"];
    // In the order of their names, as far as the plugin has read them.
    let depends_on = |document: &Value| {
        let reads = document["controllers"][0]["dependsOn"].as_array().cloned();
        let reads = reads.unwrap_or_default().into_iter().map(|read| {
            let text = |member: &str| read[member].as_str().unwrap_or("-").to_owned();
            let place = format!("{}/{}", text("namespace"), text("name"));
            format!("{} {} {place} {}", text("read"), text("kind"), text("selector"))
        });
        let mut reads: Vec<String> = reads.collect();
        reads.sort();
        reads
    };
    let rivals = "List StreamIngress -/- .spec.listen has a given value";
    let document = host
        .until("its upstream is missed", &why, |document| {
            depends_on(document).len() == 3
        })
        .await;
    let reads = [
        "Get ConfigMap ingress-nginx/tcp-services -",
        "Get Service default/postgres -",
        rivals,
    ];
    assert_eq!(depends_on(&document), reads);
    assert_eq!(document["controllers"][0]["dependsOnNotListed"], 0);

    // What it read comes, which has it read on.
    create(host.client(), &named("Service", Some("default"), "postgres", ports)).await;
    // What a call has read is known before its run is over.
    let because = "DependencyChanged Service postgres".to_owned();
    let document = host
        .until("the ConfigMap is missed", &why, |document| {
            depends_on(document).len() == 3 && triggers(document).contains(&because)
        })
        .await;
    assert_eq!(depends_on(&document), reads);
    let (code, printed, said) = host.ask(&why);
    assert_eq!((code, &*said), (0, ""));
    let lines = [
        "\n  Depends on\n",
        "\n    ConfigMap ingress-nginx/tcp-services\n",
        "\n    Service default/postgres\n",
        "\n    each StreamIngress in all namespaces with .spec.listen has a given value\n",
    ];
    assert!(lines.iter().all(|line| printed.contains(line)), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_names_failing_objects_with_cause_and_top_counts() {
    let mut host = AskedHost::start(&["hostile"]).await;
    create_when_served(&mut host, &hostile("bad", &json!({"behaviour": "trap"}))).await;
    create(host.client(), &hostile("good", &json!({"behaviour": "config-map"}))).await;
    let document = host
        .until("the failure is told", &["status"], |document| {
            document["failing"][0]["object"]["name"] == "bad"
                && document["plugins"][0]["controllers"][0]["objects"] == 2
        })
        .await;
    let failing = &document["failing"][0];
    assert_eq!(failing["failure"]["reason"], "GuestTrap");
    assert_eq!(failing["failure"]["blame"], "guest");
    assert!(
        failing["failure"]["nextStep"].as_str().unwrap().contains("author"),
        "{failing}"
    );
    assert_eq!(document["plugins"][0]["controllers"][0]["failing"], 1);
    let (code, printed, said) = host.ask(&["status", "--check"]);
    assert!(
        printed.contains("Hostile default/bad: GuestTrap (blame: plugin)"),
        "{printed}"
    );
    assert_eq!(
        (code, &*said),
        (3, "error: 0 plugins are not ready, and 1 object fails\n")
    );
    let usage = host
        .until("both are counted", &["top"], |document| {
            document["plugins"][0]["reconciles"].as_u64() >= Some(2)
        })
        .await;
    let plugin = &usage["plugins"][0];
    assert!(plugin["failures"].as_u64() >= Some(1), "{plugin}");
    assert!(
        plugin["requests"].as_u64() >= Some(2) && plugin["largestCallBytes"].as_u64() > Some(0),
        "{plugin}"
    );
    assert!(
        plugin["reconcileSeconds"].as_f64() > Some(0.0) && plugin["objects"] == 2,
        "{plugin}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_local_client_is_answered_without_the_hosts_key() {
    let mut host = AskedHost::start(&["app-service"]).await;
    host.until("it answers", &["status"], |_| true).await;
    let address = host.address;
    for path in [
        "/api/v1/status",
        "/api/v1/usage",
        "/api/v1/objects?kind=AppService&name=a",
    ] {
        let (code, body) = get(address, path).unwrap();
        assert_eq!(code, 401, "{path}: {body}");
        assert!(!body.contains("app-service"), "{body}");
    }
    assert_eq!(get(address, "/").unwrap().0, 404);
    // A key of somebody else.
    let wrong = host.folder.file("wrong.key", "0".repeat(64));
    let url = format!("http://{address}");
    let (code, _, said) = ended(&["status", "--host", &url, "--api-key-file", &wrong]);
    assert!(code == 1 && said.contains("show the key of this host"), "{said}");
    let absent = host.folder.path("absent.key");
    let (code, _, said) = ended(&["status", "--host", &url, "--api-key-file", &absent]);
    assert!(code == 1 && said.contains("there is no key in"), "{said}");
    let (code, _, said) = ended(&["status", "--host", "http://192.0.2.1:80"]);
    assert!(code == 2 && said.contains("not on this machine"), "{said}");
}
