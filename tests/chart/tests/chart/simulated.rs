//! An upgrade of the host, and back: what has converged is not written again.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilothouse_end_to_end::program::{Folder, Process, component};
use pilothouse_end_to_end::scrape::{Scrape, get};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::host::free_address;
use pilothouse_testkit::requests::Request;
use rustix::process::Signal;
use serde_json::json;

const OBJECTS: usize = 1000;
/// A `pilothouse-host` of an earlier version, which is upgraded to this one; without it, `pilothouse run` is upgraded to
/// `pilothouse-host`.
const EARLIER_HOST: &str = "PILOTHOUSE_EARLIER_HOST";
/// An object that was reconciled once can still be waiting for what its children change.
const QUIET: Duration = Duration::from_secs(1);

/// Waits until a host has reconciled every object at least once and then wrote nothing for a while, and ends it.
async fn reconciles_all(mut process: Process, metrics: SocketAddr, cluster: &Cluster) {
    let all = u64::try_from(OBJECTS).unwrap();
    process
        .until("every object is reconciled", |_| {
            let (_, body) = get(metrics, "/metrics").ok()?;
            let scrape = Scrape(body);
            let count = scrape.count("pilothouse_reconciles_total", &["result=\"success\""])?;
            let waiting = scrape.count("pilothouse_queue_depth", &[])?;
            (count >= all && waiting == 0).then_some(())
        })
        .await;
    let mut mark = cluster.mark().unwrap();
    loop {
        tokio::time::sleep(QUIET).await;
        if !cluster.requests_since(mark).unwrap().iter().any(Request::is_write) {
            break;
        }
        mark = cluster.mark().unwrap();
    }
    process.signal(Signal::TERM);
    assert_eq!(process.ended().await.code(), Some(0), "{}", process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_upgrade_and_rollback_write_nothing_at_1000_objects() {
    let earlier = env::var_os(EARLIER_HOST).map(PathBuf::from);
    let (folder, cluster) = (Folder::new(), Cluster::simulated());
    let Cluster::Simulated(simulated) = &cluster else {
        unreachable!("it is simulated")
    };
    let serving = simulated
        .simulator()
        .serve((Ipv4Addr::LOCALHOST, 0).into())
        .await
        .unwrap();
    let kubeconfig = folder.kubeconfig(&format!("http://{}", serving.address()), "there");
    let plugin = component("app-service");
    let start = |metrics: SocketAddr, is_upgraded: bool| {
        let metrics = metrics.to_string();
        let options = [
            "--plugin",
            &plugin,
            "--kubeconfig",
            &kubeconfig,
            "--install-crds",
            "--metrics-address",
            &metrics,
        ];
        match &earlier {
            _ if is_upgraded => Process::start_host(&options),
            Some(earlier) => Process::start_other_host(earlier, &options),
            None => Process::start(&[&["run"][..], &options].concat()),
        }
    };
    let client = cluster.client().await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kosmos.io", "v1", "AppService"));
    let apps: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
    let metrics = free_address().unwrap();
    let mut first = start(metrics, false);
    first.says(&["plugin ready"]).await;
    for number in 0..OBJECTS {
        let app = json!({
            "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": format!("app-{number}")},
            "spec": {"size": 1, "image": "nginx:1", "ports": []},
        });
        let app: DynamicObject = serde_json::from_value(app).unwrap();
        let _ = apps.create(&PostParams::default(), &app).await.unwrap();
    }
    reconciles_all(first, metrics, &cluster).await;
    assert_eq!(apps.list(&ListParams::default()).await.unwrap().items.len(), OBJECTS);

    let mark = cluster.mark().unwrap();
    for is_upgraded in [true, false] {
        let metrics = free_address().unwrap();
        reconciles_all(start(metrics, is_upgraded), metrics, &cluster).await;
    }
    let writes: Vec<String> = cluster
        .requests_since(mark)
        .unwrap()
        .iter()
        .filter(|request| request.is_write())
        .map(ToString::to_string)
        .collect();
    assert_eq!(writes, Vec::<String>::new());
}
