//! A host that has no more rights than those that are printed: its own, or those of the plugin's account.

use pilothouse_core::rights::objects::account_name;
use pilothouse_end_to_end::program::{Process, component};
use serde_json::{Value, json};

use super::{control_plane, named};
use crate::support::{Bench, command, until};

/// Rights of the host for itself: it reads back its events, and creates new ones.
fn rights_of_the_host() -> Value {
    json!([
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"], "verbs": ["list"],
        },
    ])
}

/// The same for a host that acts as the accounts of plugins: it reviews what these may do.
pub fn rights_of_an_acting_host() -> Value {
    let mut rules = rights_of_the_host();
    rules.as_array_mut().unwrap().push(json!({
        "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"],
    }));
    rules
}

/// Further rights of a host that runs the plugins of Plugin resources.
pub fn rights_to_plugins() -> [Value; 2] {
    [
        json!({"apiGroups": ["pilothouse.dev"], "resources": ["plugins"], "verbs": ["get", "list", "watch", "patch"]}),
        json!({"apiGroups": ["pilothouse.dev"], "resources": ["plugins/status"], "verbs": ["patch"]}),
    ]
}

/// An AppService, a TCPReverseProxy and a StreamIngress.
pub fn primaries() -> [Value; 3] {
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
    [app, proxy, stream]
}

/// Objects that the plugins need: an ingress-nginx, and a Service behind it.
pub fn around() -> [Value; 4] {
    let mut front = named("Service", Some("ingress-nginx"), "ingress-nginx-controller");
    front["spec"] = json!({"ports": [{"name": "http", "port": 80}]});
    let mut postgres = named("Service", Some("default"), "postgres");
    postgres["spec"] = json!({"ports": [{"name": "sql", "port": 5433}]});
    let config_map = |name| named("ConfigMap", Some("ingress-nginx"), name);
    [config_map("tcp-services"), config_map("udp-services"), front, postgres]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_works_with_the_rights_that_are_printed() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
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
            &[
                "install",
                &component,
                "--host-account",
                "pilothouse",
                "--identity",
                "none",
                "-o",
                "yaml",
            ],
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

    let tcp = named("ConfigMap", Some("ingress-nginx"), "tcp-services");
    bench.apply(&around()).await;
    let [app, proxy, stream] = primaries();
    bench.apply(&[app.clone(), proxy.clone(), stream.clone()]).await;
    for object in [&app, &proxy, &stream] {
        let is_reconciled = async || bench.has_true(object, "Reconciled").await;
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
async fn an_impersonating_host_has_only_the_plugin_accounts_rights() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    let plugin = format!("acting={}", component("app-service"));
    let account = account_name("acting");
    bench.namespace("acting-system").await;
    let documents = installed(&bench, &plugin, "acting-system", "impersonate").await;
    let kubeconfig = bench
        .account("acting-system", "host", &rights_of_an_acting_host())
        .await;
    let mark = control_plane.mark().unwrap();
    let host = Process::start(&[
        "run",
        "--kubeconfig",
        &kubeconfig,
        "--plugin",
        &plugin,
        "--identity",
        "impersonate",
        "--namespace",
        "acting-system",
    ]);
    bench.namespace("acted-on").await;
    let app = json!({
        "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": "web", "namespace": "acted-on"},
        "spec": {"size": 1, "image": "nginx:1", "ports": [{"port": 80, "targetPort": 80, "nodePort": 30108}]},
    });
    bench.apply(std::slice::from_ref(&app)).await;
    let reconciled = async |status: &str, words: &str| {
        let found = bench.find(&app).await.unwrap();
        let conditions = found["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let says = |it: &Value| it["message"].as_str().is_some_and(|message| message.contains(words));
        conditions.any(|it| it["type"] == "Reconciled" && it["status"] == status && says(it))
    };
    until("it is reconciled", async || reconciled("True", "").await, || host.log()).await;

    // What the account may not do, is not done.
    let user = format!("system:serviceaccount:acting-system:{account}");
    let role = documents
        .iter()
        .find(|document| document["kind"] == "ClusterRole" && document["metadata"]["name"] == account)
        .unwrap();
    let mut narrowed = role.clone();
    narrowed["rules"]
        .as_array_mut()
        .unwrap()
        .retain(|rule| rule["resources"][0] != "deployments");
    bench.apply(&[narrowed]).await;
    let mut larger = app.clone();
    larger["spec"]["size"] = json!(2);
    bench.apply(&[larger]).await;
    until(
        "the refusal is reported",
        async || reconciled("False", &user).await,
        || host.log(),
    )
    .await;
    let words = "may not create, delete, get, list, patch, watch deployments.apps in all namespaces; grant these rights: \
                 pilothouse rights acting=";
    let is_said = async || !host.lines(&[&user, words]).is_empty();
    until("the missing rights are named", is_said, || host.log()).await;
    let line = host.lines(&[&user, words]).pop().unwrap();
    bench.apply(&granted_by(&line, &bench).await).await;
    let deployment = named("Deployment", Some("acted-on"), "web");
    let is_larger = async || bench.find(&deployment).await.unwrap()["spec"]["replicas"] == 2;
    until("it goes on by itself", is_larger, || host.log()).await;

    let mut requests = control_plane.requests_since(mark).unwrap();
    requests.retain(|request| request.account == "system:serviceaccount:acting-system:host");
    let is_own =
        |resource: &str| ["events", "customresourcedefinitions"].contains(&resource) || resource.starts_with("self");
    let in_own_name: Vec<String> = requests
        .iter()
        .filter(|it| (it.is_write() || it.verb == "get") && !it.resource.is_empty() && !is_own(&it.resource))
        .filter(|it| it.impersonated.as_deref() != Some(&*user))
        .map(ToString::to_string)
        .collect();
    assert_eq!(in_own_name, Vec::<String>::new());
    assert!(
        requests
            .iter()
            .any(|it| it.impersonated.is_some() && it.verb == "patch"),
        "the log is read"
    );
    let deleted = bench.api(&app).delete("web", &kube::api::DeleteParams::default()).await;
    assert!(deleted.is_ok());
    until("it is gone", async || bench.find(&app).await.is_none(), || host.log()).await;
}

/// The objects that the command prints which a line of the log says to apply.
async fn granted_by(line: &str, bench: &Bench<'_>) -> Vec<Value> {
    let (_, command_line) = line.split_once("grant these rights: pilothouse ").unwrap();
    let (command_line, _) = command_line
        .split_once(" | kubectl apply --server-side --force-conflicts -f -")
        .unwrap();
    let arguments: Vec<&str> = command_line.split(' ').collect();
    let (code, yaml, said) = command(&arguments, &bench.admin).await;
    assert_eq!(code, 0, "{arguments:?}: {said}");
    serde_saphyr::from_multiple(&yaml).unwrap()
}

/// Applies all but the Plugin of what is printed for a host with the account `host` in this namespace.
pub async fn installed(bench: &Bench<'_>, plugin: &str, namespace: &str, identity: &str) -> Vec<Value> {
    let arguments = [
        "--host-namespace",
        namespace,
        "--host-account",
        "host",
        "--identity",
        identity,
    ];
    let documents = without_plugin(bench, plugin, &arguments).await;
    bench.apply(&documents).await;
    documents
}

/// Returns the output of `install` with these arguments, but for the Plugin, which comes last.
async fn without_plugin(bench: &Bench<'_>, plugin: &str, arguments: &[&str]) -> Vec<Value> {
    let command_line = [&["install", plugin][..], arguments, &["-o", "yaml"]].concat();
    let (code, yaml, said) = command(&command_line, &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
    documents.pop();
    documents
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_tokens_acts_as_the_account_or_reports_its_lack() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    let plugin = format!("token={}", component("app-service"));
    let account = account_name("token");
    bench.namespace("token-system").await;
    let documents = installed(&bench, &plugin, "token-system", "token").await;
    let kubeconfig = bench.account("token-system", "host", &rights_of_an_acting_host()).await;
    let own = documents.iter().find(|document| document["kind"] == "ServiceAccount");
    let own = own.unwrap().clone();
    let deleted = bench
        .api(&own)
        .delete(&account, &kube::api::DeleteParams::default())
        .await;
    assert!(deleted.is_ok());
    let mark = control_plane.mark().unwrap();
    let host = Process::start(&[
        "run",
        "--kubeconfig",
        &kubeconfig,
        "--plugin",
        &plugin,
        "--identity",
        "token",
        "--namespace",
        "token-system",
    ]);
    bench.namespace("token-shop").await;
    let app = json!({
        "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": "web", "namespace": "token-shop"},
        "spec": {"size": 1, "image": "nginx:1", "ports": [{"port": 80, "targetPort": 80, "nodePort": 30109}]},
    });
    bench.apply(std::slice::from_ref(&app)).await;
    let words = format!("create it: kubectl create serviceaccount {account} --namespace token-system");
    let is_said = async || !host.lines(&[&words]).is_empty();
    until("the missing account is named", is_said, || host.log()).await;
    let deployment = named("Deployment", Some("token-shop"), "web");
    assert_eq!(bench.find(&deployment).await, None);
    bench.apply(&[own]).await;
    let is_made = async || bench.find(&deployment).await.is_some();
    until("it goes on by itself", is_made, || host.log()).await;

    let user = format!("system:serviceaccount:token-system:{account}");
    let requests = control_plane.requests_since(mark).unwrap();
    let of = |account: &str, is_meant: &dyn Fn(&pilothouse_testkit::requests::Request) -> bool| {
        let mut requests = requests.iter().filter(|request| request.account == account);
        requests.any(is_meant)
    };
    assert!(of(&user, &|request| request.verb == "patch"
        && request.resource == "deployments"));
    assert!(of("system:serviceaccount:token-system:host", &|request| {
        request.subresource == "token" && request.name == account
    }));
    assert!(requests.iter().all(|request| request.impersonated.is_none()));
    let deleted = bench.api(&app).delete("web", &kube::api::DeleteParams::default()).await;
    assert!(deleted.is_ok());
    until("it is gone", async || bench.find(&app).await.is_none(), || host.log()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_for_some_namespaces_works_without_a_cluster_role() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    let (system, account) = ("narrow-system", "narrow");
    for namespace in ["narrow-shop", "narrow-bank"] {
        bench.namespace(namespace).await;
    }
    // It is bound to a ClusterRole that grants nothing.
    let kubeconfig = bench.account(system, account, &json!([])).await;
    let plugin = format!("narrow={}", component("app-service"));
    let arguments = [
        &["--namespaces", "narrow-shop", "--host-namespace", system][..],
        &["--host-account", account, "--host-in-namespaces", "--identity", "none"],
    ];
    let documents = without_plugin(&bench, &plugin, &arguments.concat()).await;
    let cluster_roles = documents
        .iter()
        .filter(|it| it["kind"].as_str().unwrap().starts_with("ClusterRole"));
    assert_eq!(cluster_roles.count(), 0, "{documents:#?}");
    bench.apply(&documents).await;
    let rbac = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "narrow-events", "namespace": "narrow-shop"});
    let events = json!([
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
    ]);
    bench
        .apply(&[
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": events}),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "narrow-events"},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": system}],
            }),
        ])
        .await;
    let mark = control_plane.mark().unwrap();
    let host = Process::start(&[
        "run",
        "--kubeconfig",
        &kubeconfig,
        "--plugin",
        &plugin,
        "--watch-namespaces",
        "narrow-shop",
    ]);
    let app = |namespace: &str, port: u16| {
        json!({
            "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": "web", "namespace": namespace},
            "spec": {"size": 1, "image": "nginx:1", "ports": [{"port": 80, "targetPort": 80, "nodePort": port}]},
        })
    };
    let (seen, unseen) = (app("narrow-shop", 30_151), app("narrow-bank", 30_152));
    bench.apply(&[unseen.clone(), seen.clone()]).await;
    let deployment = named("Deployment", Some("narrow-shop"), "web");
    let made = async || bench.find(&deployment).await.is_some();
    until("the Deployment is made", made, || host.log()).await;
    let mut changed = deployment.clone();
    changed["spec"] = json!({"replicas": 3});
    bench.apply(&[changed]).await;
    let is_reverted = async || bench.find(&deployment).await.unwrap()["spec"]["replicas"] == 1;
    until("the edit is reverted", is_reverted, || host.log()).await;
    assert!(bench.find(&unseen).await.unwrap()["status"]["conditions"].is_null());
    assert!(
        bench
            .find(&named("Deployment", Some("narrow-bank"), "web"))
            .await
            .is_none()
    );

    let account = format!("system:serviceaccount:{system}:{account}");
    let mut requests = control_plane.requests_since(mark).unwrap();
    requests.retain(|request| request.account == account && request.code == 403);
    // What is of cluster scope, and what the host does without.
    let optional = [
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ];
    let denied: Vec<String> = requests
        .iter()
        .filter(|request| !optional.contains(&&*request.resource))
        .map(ToString::to_string)
        .collect();
    assert_eq!(denied, Vec::<String>::new(), "{}", host.log());
    assert!(!requests.is_empty(), "the log of requests is read");
}
