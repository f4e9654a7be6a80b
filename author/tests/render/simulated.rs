//! Owns the tests of comparing with a live cluster, which is a simulated one.

use std::sync::Arc;

use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::documents;
use pilothouse_testkit::store::Store;
use tokio::runtime::Builder;

use super::*;

#[test]
fn a_live_cluster_is_compared_and_not_changed() {
    let runtime = Arc::new(
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap(),
    );
    let cluster = runtime.block_on(Cluster::simulated_over_http()).unwrap();
    let kubeconfig = cluster.host_kubeconfig().unwrap().display().to_string();
    let Cluster::Simulated(simulated) = &cluster else {
        panic!("it is simulated")
    };
    let mut store = Store::of(simulated.simulator().clone(), runtime.clone());
    for document in documents::read(&[root().join("plugins/app-service/crds")]).unwrap() {
        store.install(&document.object).unwrap();
    }
    let mut app = documents::parse(APP.as_bytes(), Path::new("app.yaml"))
        .unwrap()
        .remove(0)
        .object;
    app["metadata"]["namespace"] = "default".into();
    store.create(&app).unwrap();
    let before = store.objects();
    let plugin = component("app-service");
    let live = |more: &[&str]| {
        let arguments = ["render", &plugin, "--diff", "cluster", "--kubeconfig", &kubeconfig];
        pilothouse(&[&arguments, more].concat(), "")
    };
    let ended = live(&[]);
    assert_eq!(
        (ended.code, ended.printed.contains("Create Deployment default/web")),
        (3, true),
        "{}{}",
        ended.printed,
        ended.said
    );
    assert_eq!(store.objects(), before, "nothing was written");
    let files = Files::new();
    let other = files.file("other.yaml", &APP.replace("name: web", "name: other"));
    let ended = live(&["-f", &other]);
    assert_eq!(
        (ended.code, ended.printed.as_str()),
        (0, ""),
        "only the objects of -f are looked at: {}",
        ended.said
    );
}
