//! `kubectl pilothouse status` and `why` where the chart is installed: through the API server's proxy and the Service of the
//! chart, with a token for the host's own account, as the commands ask unless they are told otherwise.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use kube::api::{ListParams, Patch, PatchParams};
use pilothouse_end_to_end::program::ended;
use serde_json::{Value, json};

use super::bench::{Bench, NAMESPACE, RELEASE, app_service, named, until};

/// An address of this machine to which an API server proxies: it refuses loopback addresses. No packet is sent.
fn own_address() -> SocketAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").expect("the machine has a network");
    let address: IpAddr = socket.local_addr().unwrap().ip();
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap()
}

/// Leads the Service of the chart to a pod of its Deployment at this address, in place of the kubelet and of the controller that
/// would make the endpoints.
async fn lead_to_pod(bench: &Bench, at: SocketAddr) {
    let pods = bench.api(&named("v1", "Pod", Some(NAMESPACE), ""));
    let these = ListParams::default().labels("app.kubernetes.io/name=pilothouse");
    let pod = RefCell::new(String::new());
    let is_there = async || {
        let found = pods.list(&these).await.unwrap().items.pop();
        let name = found.and_then(|found| found.metadata.name);
        name.map(|name| pod.replace(name)).is_some()
    };
    until("the ReplicaSet makes a pod", is_there, String::new).await;
    let (name, ip) = (pod.into_inner(), at.ip().to_string());
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
    let by = PatchParams::default();
    let _ = pods.patch_status(&name, &by, &Patch::Merge(status)).await.unwrap();
    let mut endpoints = named("v1", "Endpoints", Some(NAMESPACE), RELEASE);
    let target = json!({"kind": "Pod", "name": name, "namespace": NAMESPACE});
    endpoints["subsets"] = json!([{
        "addresses": [{"ip": ip, "targetRef": target}], "ports": [{"name": "api", "port": at.port()}],
    }]);
    bench.apply(&endpoints).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_sees_failures_with_the_charts_account() {
    let mut bench = Bench::new().await;
    let at = own_address();
    bench.asked_at = Some(at);
    bench
        .helm()
        .install(&json!({"host": {"logFormat": "text"}, "replicas": 1}))
        .unwrap();
    lead_to_pod(&bench, at).await;
    bench.install_plugin("app-service").await;
    let running = bench.started().await;
    bench.apply(&app_service("web")).await;
    bench.is_reconciled(&app_service("web"), &running).await;
    // An object that somebody else has made is in the way of this one's child.
    let mut foreign = named("apps/v1", "Deployment", Some("default"), "blocked");
    let labels = json!({"app": "foreign"});
    let containers = json!([{"name": "a", "image": "b"}]);
    foreign["spec"] = json!({
        "replicas": 0, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    });
    bench.apply(&foreign).await;
    bench.apply(&app_service("blocked")).await;

    let last = RefCell::new(String::new());
    let ask = async |arguments: &[&str]| {
        let all = [arguments, &["-o", "json", "--kubeconfig", &bench.admin]].concat();
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        let run = move || ended(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let (code, printed, said) = tokio::task::spawn_blocking(run).await.unwrap();
        let document: Value = serde_json::from_str(&printed).unwrap_or_default();
        last.replace(format!("{code} {document} {said}"));
        document
    };
    let log = || format!("{}\n{}", last.borrow(), running.process.log());
    let fails = async || {
        let document = ask(&["status"]).await;
        let failing = &document["failing"][0];
        (&failing["object"]["name"], &failing["failure"]["reason"]) == (&json!("blocked"), &json!("ForeignObject"))
            && document["failingNotListed"] == 0
    };
    until("the object that fails is listed", fails, log).await;
    let has_children = async || {
        let controller = ask(&["why", "appservice/web"]).await["controllers"][0].take();
        let children = controller["children"].as_array();
        children.is_some_and(|children| children.iter().any(|child| child["kind"] == "Deployment"))
            && controller["childrenNotListed"] == 0
            && controller["runs"].as_array().is_some_and(|runs| !runs.is_empty())
    };
    until("the object is explained with its children", has_children, log).await;
    running.stop().await;
}
