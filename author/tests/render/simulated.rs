//! Tests of comparing with a live cluster, which is a simulated one.

use std::sync::Arc;

use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::documents;
use pilothouse_testkit::store::Store;
use tokio::runtime::Builder;

use super::*;

/// A simulated cluster with the CRDs in these folders, and how it is reached.
fn cluster(crds: &[&str]) -> (Store, String, Cluster) {
    let runtime = Arc::new(
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime starts"),
    );
    let cluster = runtime
        .block_on(Cluster::simulated_over_http())
        .expect("a port is free");
    let kubeconfig = cluster.host_kubeconfig().expect("it has one").display().to_string();
    let Cluster::Simulated(simulated) = &cluster else {
        panic!("it is simulated")
    };
    let mut store = Store::of(simulated.simulator().clone(), runtime);
    for folder in crds {
        for document in documents::read(&[root().join(folder)]).expect("the files are ours") {
            store.install(&document.object).expect("it is a CRD");
        }
    }
    (store, kubeconfig, cluster)
}

fn object(text: &str) -> serde_json::Value {
    let mut object = documents::parse(text.as_bytes(), Path::new("object.yaml"))
        .expect("it is YAML")
        .remove(0)
        .object;
    object["metadata"]["namespace"] = "default".into();
    object
}

#[test]
fn a_live_cluster_is_compared_and_not_changed() {
    let (mut store, kubeconfig, _cluster) = cluster(&["plugins/app-service/crds"]);
    let app = object(APP);
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

#[test]
fn an_object_of_another_kind_and_the_same_name_is_not_selected() {
    let (mut store, kubeconfig, _cluster) = cluster(&["plugins/reverse-proxy/crds"]);
    let http = "{apiVersion: nginx.lin2ur.cn/v1, kind: ReverseProxy, metadata: {name: web}, spec: {proxyPass: 'https://a.example.com', image: 'nginx:1'}}";
    let tcp = "{apiVersion: nginx.lin2ur.cn/v1, kind: TCPReverseProxy, metadata: {name: web}, spec: {servers: [{server: 'db.example.com:5432'}], image: 'nginx:1', protocol: TCP, servicePort: 5432}}";
    for text in [http, tcp] {
        store.create(&object(text)).unwrap();
    }
    let files = Files::new();
    let plugin = component("reverse-proxy");
    let shown = |file: &str| {
        let arguments = [
            "render",
            &plugin,
            "--diff",
            "cluster",
            "--kubeconfig",
            &kubeconfig,
            "-f",
            file,
        ];
        let ended = pilothouse(&arguments, "");
        assert_eq!(ended.code, 3, "{}{}", ended.printed, ended.said);
        let lines = ended.printed.lines().filter(|line| !line.starts_with(' '));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(shown(&files.file("http.yaml", http)), ["ReverseProxy default/web"]);
    assert_eq!(shown(&files.file("tcp.yaml", tcp)), ["TCPReverseProxy default/web"]);
}

#[test]
fn a_live_object_whose_render_fails_is_named_with_the_reason() {
    let (mut store, kubeconfig, _cluster) = cluster(&["tests/guests/hostile/crds"]);
    let hostile = |name: &str, behaviour: &str| {
        format!(
            "{{apiVersion: hostile.test.dev/v1, kind: Hostile, metadata: {{name: {name}}}, spec: {{behaviour: {behaviour}}}}}"
        )
    };
    store.create(&object(&hostile("bad", "trap"))).unwrap();
    store.create(&object(&hostile("good", "nothing"))).unwrap();
    let files = Files::new();
    let plugin = component("hostile");
    let live = |more: &[&str]| {
        let arguments = ["render", &plugin, "--diff", "cluster", "--kubeconfig", &kubeconfig];
        pilothouse(&[&arguments, more].concat(), "")
    };
    let ended = live(&[]);
    assert_eq!(ended.code, 3, "{}{}", ended.printed, ended.said);
    let failing = "the plugin fails for Hostile default/bad: the plugin trapped";
    assert!(ended.printed.contains(failing), "{}{}", ended.printed, ended.said);
    let ended = live(&["-f", &files.file("good.yaml", &hostile("good", "nothing"))]);
    assert_eq!(
        (ended.code, ended.printed.as_str()),
        (0, ""),
        "only that of -f counts: {}",
        ended.said
    );
}

#[test]
fn an_object_of_nobody_that_would_be_adopted_is_shown_as_such() {
    let (mut store, kubeconfig, _cluster) = cluster(&["tests/guests/wisher/crds"]);
    let there = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: theirs}}";
    store.create(&object(there)).unwrap();
    let wanted = there.replace("theirs", "ours");
    let wish = format!(
        "{{apiVersion: wishes.test.dev/v1, kind: Wish, metadata: {{name: it}}, spec: {{owns: [{{adopt: true, object: {wanted}}}]}}}}"
    );
    store.create(&object(&wish)).unwrap();
    let before = store.objects();
    let files = Files::new();
    let config = files.file("config.yaml", "{steers: [Wish], owns: [ConfigMap]}");
    let plugin = component("wisher");
    let ended = pilothouse(
        &[
            "render",
            &plugin,
            "--config",
            &config,
            "--diff",
            "cluster",
            "--kubeconfig",
            &kubeconfig,
        ],
        "",
    );
    let adopts = r#"Adopt ConfigMap default/settings; .data.a: "theirs" becomes "ours""#;
    assert_eq!(
        (ended.code, ended.printed.contains(adopts)),
        (3, true),
        "{}{}",
        ended.printed,
        ended.said
    );
    assert_eq!(store.objects(), before, "nothing was written");
}
