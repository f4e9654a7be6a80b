//! Installations on a real API server, which is the judge of rights.

use pilothouse_core::rights::objects::account_name;
use pilothouse_end_to_end::components::root;
use pilothouse_end_to_end::program::{Process, component};
use pilothouse_testkit::controlplane::{ControlPlane, Options};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::{Bench, command, until};

/// What the host needs for itself: it reads back its events, and makes new ones.
fn rights_of_the_host() -> Value {
    json!([
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["list", "watch"]},
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"], "verbs": ["list"],
        },
    ])
}

fn named(kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let api_version = match kind {
        "ServiceAccount" | "ConfigMap" | "Service" => "v1",
        "Deployment" => "apps/v1",
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        "Plugin" => "pilothouse.dev/v1alpha1",
        _ => "rbac.authorization.k8s.io/v1",
    };
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

async fn plugin_kind(bench: &Bench<'_>) {
    let text = std::fs::read_to_string(root().join("crds/yaml/plugins.pilothouse.dev.yaml")).unwrap();
    let definition: Value = serde_saphyr::from_str(&text).unwrap();
    bench.apply(&[definition]).await;
    let plugins = bench.api(&named("Plugin", None, "any"));
    until(
        "Plugins are served",
        async || plugins.get_opt("any").await.is_ok(),
        String::new,
    )
    .await;
}

/// The one control plane of these tests. It checks who may set owner references, which not every cluster does.
async fn control_plane() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    let options = Options {
        apiserver_arguments: vec!["--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned()],
        ..Options::default()
    };
    SHARED
        .get_or_init(async || ControlPlane::start(options).await.unwrap())
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_works_with_the_rights_that_are_printed() {
    let control_plane = control_plane().await;
    let bench = Bench::new(control_plane).await;
    for namespace in ["pilothouse-system", "ingress-nginx"] {
        bench.namespace(namespace).await;
    }
    let kubeconfig = bench
        .account("pilothouse-system", "pilothouse", &rights_of_the_host())
        .await;
    let mut arguments = vec!["run".to_owned(), "--kubeconfig".to_owned(), kubeconfig];
    for plugin in ["app-service", "reverse-proxy", "stream-ingress"] {
        let component = component(plugin);
        let (code, yaml, said) = command(
            &["install", &component, "--host-account", "pilothouse", "-o", "yaml"],
            &bench.admin,
        )
        .await;
        assert_eq!(code, 0, "{said}");
        let mut documents: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        // A host with --plugin needs no Plugin.
        documents.pop();
        bench.apply(&documents).await;
        arguments.extend(["--plugin".to_owned(), component]);
    }
    let mark = control_plane.mark().unwrap();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let host = Process::start(&arguments);

    let app = json!({
        "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"size": 1, "image": "nginx:1", "ports": [{"port": 80, "targetPort": 80, "nodePort": 30107}]},
    });
    let proxy = json!({
        "apiVersion": "nginx.lin2ur.cn/v1", "kind": "TCPReverseProxy", "metadata": {"name": "db", "namespace": "default"},
        "spec": {"servers": [{"server": "a.example.com:5432"}], "servicePort": 5432},
    });
    let stream = json!({
        "apiVersion": "nginx-stream.jeffthecoder.xyz/v1beta1", "kind": "StreamIngress",
        "metadata": {"name": "sql", "namespace": "default"},
        "spec": {"listen": 7001, "upstream": {"service": "postgres", "port": 5433}},
    });
    let mut front = named("Service", Some("ingress-nginx"), "ingress-nginx-controller");
    front["spec"] = json!({"ports": [{"name": "http", "port": 80}]});
    let mut postgres = named("Service", Some("default"), "postgres");
    postgres["spec"] = json!({"ports": [{"name": "sql", "port": 5433}]});
    let tcp = named("ConfigMap", Some("ingress-nginx"), "tcp-services");
    bench
        .apply(&[
            tcp.clone(),
            named("ConfigMap", Some("ingress-nginx"), "udp-services"),
            front,
            postgres,
        ])
        .await;
    bench.apply(&[app.clone(), proxy.clone(), stream.clone()]).await;
    for object in [&app, &proxy, &stream] {
        let is_reconciled = async || {
            let found = bench.find(object).await.unwrap();
            let conditions = found["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == "Reconciled" && it["status"] == "True")
        };
        until(&format!("{} is reconciled", object["kind"]), is_reconciled, || {
            host.log()
        })
        .await;
    }

    // Drift, pruning, a finalizer, and what is contributed no more.
    let service = named("Service", Some("default"), "web");
    let deployment = named("Deployment", Some("default"), "web");
    let mut changed = deployment.clone();
    changed["spec"] = json!({"replicas": 3});
    bench.apply(&[changed]).await;
    let is_reverted = async || bench.find(&deployment).await.unwrap()["spec"]["replicas"] == 1;
    until("the edit is reverted", is_reverted, || host.log()).await;
    let mut closed = app.clone();
    closed["spec"]["ports"] = json!([]);
    bench.apply(&[closed]).await;
    until(
        "the Service is pruned",
        async || bench.find(&service).await.is_none(),
        || host.log(),
    )
    .await;
    for object in [&proxy, &stream, &app] {
        let name = object["metadata"]["name"].as_str().unwrap();
        let _ = bench
            .api(object)
            .delete(name, &kube::api::DeleteParams::default())
            .await
            .unwrap();
        let is_gone = async || bench.find(object).await.is_none();
        until(&format!("{} is gone", object["kind"]), is_gone, || host.log()).await;
    }
    let is_given_up = async || bench.find(&tcp).await.unwrap()["data"]["7001"].is_null();
    until("the port is given up", is_given_up, || host.log()).await;

    let account = "system:serviceaccount:pilothouse-system:pilothouse";
    let mut requests = control_plane.requests_since(mark).unwrap();
    requests.retain(|request| request.account == account);
    assert!(
        requests.iter().any(|request| request.verb == "delete"),
        "the log of requests is read"
    );
    let denied: Vec<String> = requests
        .iter()
        .filter(|it| it.code == 403)
        .map(ToString::to_string)
        .collect();
    assert_eq!(denied, Vec::<String>::new(), "{}", host.log());
    assert_eq!(host.lines(&["may not"]), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_is_repeated_narrowed_and_taken_away() {
    let control_plane = control_plane().await;
    let bench = Bench::new(control_plane).await;
    for namespace in ["pilothouse-system", "first", "second"] {
        bench.namespace(namespace).await;
    }
    plugin_kind(&bench).await;
    let plugin = format!("shop={}", component("app-service"));
    let name = account_name("shop");
    let (code, printed, said) = command(&["install", &plugin], &bench.admin).await;
    assert_eq!(code, 1, "{printed}");
    assert!(
        said.contains("there is no terminal to ask on") && said.contains("--yes"),
        "{said}"
    );
    for words in [
        "Plugin shop: app-service ",
        "read, create, change, delete  deployments.apps",
        "caution: by deployments it can run Pods in all namespaces",
        &format!("  ClusterRole {name}\n"),
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert_eq!(bench.find(&named("Plugin", None, "shop")).await, None);

    let (code, printed, said) = command(&["install", &plugin, "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    let done: Vec<&str> = printed.lines().filter(|line| line.ends_with(" created")).collect();
    let expected = [
        format!("ServiceAccount pilothouse-system/{name} created"),
        format!("ClusterRole {name} created"),
        format!("ClusterRoleBinding {name} created"),
        "Plugin shop created".to_owned(),
    ];
    assert_eq!(done, expected);
    let (code, printed, said) = command(&["install", &plugin, "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        !printed.contains(" created\n") && !printed.contains(" changed\n"),
        "{printed}"
    );
    assert!(printed.contains(&format!("ClusterRole {name} unchanged")), "{printed}");

    // A rule that somebody has added goes, and what is granted no more goes with it.
    let widened = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let mut role = named("ClusterRole", None, &name);
    role["rules"] = widened.clone();
    bench.apply(&[role.clone()]).await;
    let (code, printed, said) = command(&["install", &plugin, "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    assert!(printed.contains(&format!("ClusterRole {name} changed")), "{printed}");
    assert_ne!(bench.find(&role).await.unwrap()["rules"], widened);
    let (code, printed, said) = command(
        &["install", &plugin, "--namespaces", "first,second", "--yes"],
        &bench.admin,
    )
    .await;
    assert_eq!(code, 0, "{said}");
    assert!(printed.contains(&format!("ClusterRole {name} deleted")), "{printed}");
    assert_eq!(bench.find(&role).await, None);
    assert!(bench.find(&named("RoleBinding", Some("second"), &name)).await.is_some());
    let spec = bench.find(&named("Plugin", None, "shop")).await.unwrap();
    assert_eq!(spec["spec"]["namespaces"], json!(["first", "second"]));

    let (code, printed, said) = command(&["uninstall", "shop", "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        printed.contains("Its deletionPolicy is Orphan") && printed.contains("Plugin shop deleted"),
        "{printed}"
    );
    for gone in [
        named("Plugin", None, "shop"),
        named("Role", Some("first"), &name),
        named("ServiceAccount", Some("pilothouse-system"), &name),
    ] {
        assert_eq!(bench.find(&gone).await, None);
    }
    let definition = named("CustomResourceDefinition", None, "appservices.kosmos.io");
    assert!(bench.find(&definition).await.is_some(), "users' objects stay");
    let (code, printed, _) = command(&["uninstall", "shop", "--yes"], &bench.admin).await;
    assert_eq!(
        (code, printed.contains("there is no Plugin shop")),
        (0, true),
        "{printed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_granted_is_named_with_the_next_step() {
    let control_plane = control_plane().await;
    let bench = Bench::new(control_plane).await;
    bench.namespace("pilothouse-system").await;
    plugin_kind(&bench).await;
    let component = component("service-ingress");
    let install = |name: &str, more: &[&str]| {
        let plugin = format!("{name}={component}");
        let mut arguments = vec!["install".to_owned(), plugin, "--yes".to_owned()];
        arguments.extend(more.iter().map(|it| (*it).to_owned()));
        arguments
    };
    let fails = async |arguments: Vec<String>, kubeconfig: &str, words: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (code, printed, said) = command(&arguments, kubeconfig).await;
        assert_eq!(code, 1, "{printed}");
        for words in words {
            assert!(said.contains(words), "{words}: {said}");
        }
    };
    let looks = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]});
    let grants = json!({
        "apiGroups": ["", "rbac.authorization.k8s.io", "pilothouse.dev"],
        "resources": ["serviceaccounts", "clusterroles", "clusterrolebindings", "plugins"], "verbs": ["create", "patch"],
    });
    let limited = bench.account("people", "limited", &json!([looks, grants])).await;
    fails(
        install("escalated", &[]),
        &limited,
        &[
            "it grants rights that you do not have yourself",
            "create, patch, delete ingresses.networking.k8s.io",
            "-o yaml",
        ],
    )
    .await;
    assert_eq!(
        bench.find(&named("Plugin", None, "escalated")).await,
        None,
        "the Plugin comes last"
    );
    let looker = bench.account("people", "looker", &json!([looks])).await;
    fails(
        install("looked", &[]),
        &looker,
        &["cannot apply ServiceAccount", "people:looker", "-o yaml"],
    )
    .await;

    let admin = bench.admin.clone();
    fails(
        install("nowhere", &["--namespaces", "not-there"]),
        &admin,
        &["there is no namespace not-there; create it"],
    )
    .await;
    bench.namespace("going").await;
    let mut held = named("ConfigMap", Some("going"), "held");
    held["metadata"]["finalizers"] = json!(["test.dev/held"]);
    bench.apply(&[held.clone()]).await;
    let going = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}});
    let _ = bench
        .api(&going)
        .delete("going", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    fails(
        install("going", &["--namespaces", "going"]),
        &admin,
        &["namespace going is being deleted"],
    )
    .await;
    held["metadata"]["finalizers"] = json!([]);
    bench.apply(&[held]).await;

    // Somebody has prepared a role of the name that the installation would use.
    let name = account_name("prepared");
    let mut role = named("ClusterRole", None, &name);
    role["rules"] = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]);
    bench.apply(&[role.clone()]).await;
    fails(
        install("prepared", &[]),
        &admin,
        &[&format!("ClusterRole {name} exists and is not one that pilothouse")],
    )
    .await;
    assert_eq!(bench.find(&role).await.unwrap()["rules"], role["rules"]);
    let binding = named("ClusterRoleBinding", None, &account_name("bound"));
    let mut other = binding.clone();
    other["metadata"]["labels"] =
        json!({"app.kubernetes.io/managed-by": "pilothouse", "pilothouse.dev/plugin": "bound"});
    other["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    bench.apply(&[other]).await;
    fails(install("bound", &[]), &admin, &["binds another role"]).await;
    assert!(bench.find(&binding).await.unwrap()["subjects"].is_null());

    // A Plugin that somebody else looks after.
    let mut plugin = named("Plugin", None, "kept");
    plugin["spec"] = json!({"source": {"file": "elsewhere.wasm"}});
    bench.apply(&[plugin.clone()]).await;
    fails(
        install("kept", &[]),
        &admin,
        &["Plugin kept exists", ".spec.source.file (test)"],
    )
    .await;
}
