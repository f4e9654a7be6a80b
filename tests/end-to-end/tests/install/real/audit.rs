//! All plugins of this repository with exactly the rights that are printed, on an API server with RBAC: its audit log is
//! compared with the grants. No request is refused, and no right is granted that is not used.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use pilothouse_core::rights::objects::{account_name, act_name, watch_name};
use pilothouse_end_to_end::program::{Process, component};
use pilothouse_testkit::controlplane::AuditMark;
use pilothouse_testkit::requests::Request;
use serde_json::{Value, json};

use super::host::{around, installed, primaries, rights_of_an_acting_host};
use super::{control_plane, named};
use crate::support::{Bench, until};

const PLUGINS: [&str; 5] = [
    "app-service",
    "ecs-binding",
    "reverse-proxy",
    "service-ingress",
    "stream-ingress",
];

const SYSTEM: &str = "audit-system";

/// Reason why a right to read single objects of a kind is unused where the kind is owned or contributed to.
const READ_WHERE_REFUSED: &str = "an object is read past the cache where a write of it was refused or its answer was lost, which \
                                  this test provokes for the Deployments of app-service";

/// The same where it is a primary kind.
const READ_WITHOUT_CHILDREN: &str = "a primary is read past the cache where somebody else has deleted a child that it owns, and \
                                     these own none; or where a write of it was refused";

/// Rights that no request of this test uses: the plugin (empty: each), verb and resource (empty: each), and the reason.
const UNUSED: [(&str, &str, &str, &str); 12] = [
    ("app-service", "get", "services", READ_WHERE_REFUSED),
    ("reverse-proxy", "get", "configmaps", READ_WHERE_REFUSED),
    ("reverse-proxy", "get", "deployments", READ_WHERE_REFUSED),
    ("reverse-proxy", "get", "services", READ_WHERE_REFUSED),
    ("service-ingress", "get", "ingresses", READ_WHERE_REFUSED),
    ("stream-ingress", "get", "configmaps", READ_WHERE_REFUSED),
    ("stream-ingress", "get", "services", READ_WHERE_REFUSED),
    ("ecs-binding", "get", "ecsbinding", READ_WITHOUT_CHILDREN),
    ("stream-ingress", "get", "streamingresses", READ_WITHOUT_CHILDREN),
    (
        "",
        "pilothouse-default",
        "",
        "the host asks whether it is granted; it serves no webhooks here",
    ),
    ("", "pilothouse-validate", "", "the same"),
    (
        "app-service",
        "delete",
        "deployments",
        "an AppService always has its Deployment, which goes with it by garbage collection; it is deleted only when the Plugin \
         is, with deletionPolicy Delete",
    ),
];

/// One verb on one resource in one place, of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    plugin: String,
    verb: String,
    group: String,
    resource: String,
    /// Empty: in all namespaces.
    namespace: String,
    /// Empty: of every name.
    name: String,
}

impl Grant {
    fn is_watch(&self) -> bool {
        matches!(&*self.verb, "list" | "watch")
    }

    /// Returns `true` if a request needs this right of the plugin, or of the host for it.
    fn is_used_by(&self, request: &Request) -> bool {
        let resource = match request.subresource.as_str() {
            "" => request.resource.clone(),
            subresource => format!("{}/{subresource}", request.resource),
        };
        // A create by server-side apply is logged as what it is sent as.
        let is_create = self.verb == "create" && request.verb == "patch" && request.code == 201;
        let is_watch = self.is_watch();
        // The watches are shared: one of them may reach further than this plugin needs.
        let is_there = self.namespace == request.namespace || (is_watch && request.namespace.is_empty());
        (self.verb == request.verb || is_create)
            && self.group == request.group
            && self.resource == resource
            && (self.namespace.is_empty() || is_there)
            && (self.name.is_empty() || self.name == request.name || is_watch)
    }
}

/// Returns the grants of the roles of this name, for a plugin.
fn grants(plugin: &str, name: &str, documents: &[Value]) -> Vec<Grant> {
    let texts = |value: &Value| -> Vec<String> {
        let values = value.as_array().into_iter().flatten();
        values.map(|value| value.as_str().unwrap().to_owned()).collect()
    };
    let is_role = |document: &&Value| {
        let kind = document["kind"].as_str().unwrap();
        kind.ends_with("Role") && document["metadata"]["name"] == name
    };
    let mut grants = Vec::new();
    for role in documents.iter().filter(is_role) {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().unwrap() {
            let mut names = texts(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for name in names {
                for verb in texts(&rule["verbs"]) {
                    grants.push(Grant {
                        plugin: plugin.to_owned(),
                        verb,
                        group: texts(&rule["apiGroups"])[0].clone(),
                        resource: texts(&rule["resources"])[0].clone(),
                        namespace: namespace.to_owned(),
                        name: name.clone(),
                    });
                }
            }
        }
    }
    grants
}

/// Returns the plugins' primaries beside [`primaries`].
fn more_primaries() -> [Value; 5] {
    let mut service = named("Service", Some("default"), "front");
    service["metadata"]["annotations"] = json!({"ingress/http": ""});
    service["spec"] = json!({"ports": [{"name": "http", "port": 80}]});
    let mut binding = named("EcsBinding", None, "audit-web");
    binding["spec"] = json!({"id": "i-1", "name": "web", "nodename": "audit-node", "innerip": "10.1.0.1"});
    let mut resolver = named("Service", Some("default"), "resolver");
    resolver["spec"] = json!({"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]});
    let udp = json!({
        "apiVersion": "nginx-stream.jeffthecoder.xyz/v1beta1", "kind": "StreamIngress",
        "metadata": {"name": "dns", "namespace": "default"},
        "spec": {"listen": 7053, "protocol": "UDP", "upstream": {"service": "resolver", "port": 53}},
    });
    let site = json!({
        "apiVersion": "nginx.lin2ur.cn/v1", "kind": "ReverseProxy",
        "metadata": {"name": "site", "namespace": "default"}, "spec": {"proxyPass": "https://example.com"},
    });
    [service, binding, resolver, udp, site]
}

async fn merge(bench: &Bench<'_>, object: &Value, patch: Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let api = bench.api(object);
    let merged = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    assert!(merged.is_ok(), "{merged:?}");
}

async fn delete(bench: &Bench<'_>, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let deleted = bench.api(object).delete(name, &DeleteParams::default()).await;
    assert!(deleted.is_ok(), "{deleted:?}");
}

/// Makes Deployments of others at the moment in which the host makes its own of the same name, until it was too late once: it
/// then looks at the object that is there. Each such read has to be made as the plugin's account.
async fn reads_past_the_cache(bench: &Bench<'_>, mark: AuditMark, host: &Process) {
    let mut number = 0;
    let reads = || {
        let mut requests = bench.control_plane.requests_since(mark).unwrap();
        requests.retain(|it| it.verb == "get" && it.resource == "deployments" && it.name.starts_with("race-"));
        requests.retain(|it| it.account == format!("system:serviceaccount:{SYSTEM}:host"));
        requests
    };
    let is_read = async || {
        number += 1;
        let name = format!("race-{number}");
        let app = json!({
            "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": name, "namespace": "default"},
            "spec": {"size": 1, "image": "nginx:1"},
        });
        let labels = json!({"app": "another"});
        let mut deployment = named("Deployment", Some("default"), &name);
        deployment["spec"] = json!({
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "it", "image": "nginx:1"}]}},
        });
        let [apps, deployments] = [&app, &deployment].map(|object| bench.api(object));
        let [app, deployment] = [app, deployment].map(|object| serde_json::from_value(object).unwrap());
        let post = PostParams::default();
        let late = async {
            // From none to nine milliseconds after the AppService.
            tokio::time::sleep(Duration::from_millis(number % 10)).await;
            deployments.create(&post, &deployment).await
        };
        let (app, deployment) = tokio::join!(apps.create(&post, &app), late);
        assert!(app.is_ok(), "{app:?}");
        let is_own = matches!(&deployment, Err(kube::Error::Api(status)) if status.code == 409);
        assert!(deployment.is_ok() || is_own, "{deployment:?}");
        // The host has decided whose the Deployment is.
        let app = named("AppService", Some("default"), &name);
        let is_told = async || {
            let found = bench.find(&app).await.unwrap();
            let conditions = found["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == "Reconciled" && it["status"] == if is_own { "True" } else { "False" })
        };
        until("the host has looked", is_told, || host.log()).await;
        delete(bench, &app).await;
        if !is_own {
            delete(bench, &named("Deployment", Some("default"), &name)).await;
        }
        !reads().is_empty()
    };
    until("the host reads past its cache", is_read, || host.log()).await;
    let user = format!("system:serviceaccount:{SYSTEM}:{}", account_name("app-service"));
    for request in reads() {
        assert_eq!(request.impersonated.as_ref(), Some(&user), "{request}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one story on one cluster")]
async fn no_request_is_refused_and_no_right_is_granted_for_nothing() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    for namespace in [SYSTEM, "ingress-nginx"] {
        bench.namespace(namespace).await;
    }
    let kubeconfig = bench.account(SYSTEM, "host", &rights_of_an_acting_host()).await;
    let (mut granted, mut granted_to_host) = (Vec::new(), Vec::new());
    let mut arguments = [
        "run",
        "--identity",
        "impersonate",
        "--namespace",
        SYSTEM,
        "--kubeconfig",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(kubeconfig);
    for plugin in PLUGINS {
        let component = component(plugin);
        let documents = installed(&bench, &component, SYSTEM, "impersonate").await;
        granted.extend(grants(plugin, &account_name(plugin), &documents));
        for name in [watch_name(plugin), act_name(plugin)] {
            granted_to_host.extend(grants(plugin, &name, &documents));
        }
        arguments.extend(["--plugin".to_owned(), component]);
    }
    let mark = control_plane.mark().unwrap();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let host = Process::start(&arguments);

    bench.apply(&around()).await;
    let (primaries, more) = (primaries(), more_primaries());
    bench.apply(&primaries).await;
    bench.apply(&more).await;
    let [app, proxy, stream] = primaries;
    let [service, binding, resolver, udp, site] = more;
    for object in [&app, &proxy, &stream, &binding, &udp, &site] {
        let is_reconciled = async || bench.has_true(object, "Reconciled").await;
        until(&format!("{} is reconciled", object["kind"]), is_reconciled, || {
            host.log()
        })
        .await;
    }
    // One that is refused is reconciled too, and contributes nothing.
    for object in [&stream, &udp] {
        let is_accepted = async || bench.has_true(object, "Accepted").await;
        let name = &object["metadata"]["name"];
        until(&format!("StreamIngress {name} is accepted"), is_accepted, || host.log()).await;
    }
    let nodes: Api<Node> = Api::all(bench.client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "audit-node"}})).unwrap();
    assert!(nodes.create(&PostParams::default(), &node).await.is_ok());
    let ingress = named("Ingress", Some("default"), "front");
    until(
        "the Service gets an Ingress",
        async || bench.find(&ingress).await.is_some(),
        || host.log(),
    )
    .await;

    reads_past_the_cache(&bench, mark, &host).await;

    // Everything is edited by somebody else, and everything goes.
    let children = [
        (
            named("Deployment", Some("default"), "web"),
            json!({"spec": {"replicas": 3}}),
        ),
        (
            named("Service", Some("default"), "web"),
            json!({"metadata": {"ownerReferences": null}}),
        ),
    ];
    merge(&bench, &children[0].0, children[0].1.clone()).await;
    let is_reverted = async || bench.find(&children[0].0).await.unwrap()["spec"]["replicas"] == 1;
    until("the edit is reverted", is_reverted, || host.log()).await;
    // Where a child was deleted, its primary is looked at before it is made again: it may have gone with it.
    let proxied = ["ngx-tcpproxy-db", "ngx-proxy-site"].map(|name| named("Deployment", Some("default"), name));
    for child in proxied.iter().chain([&children[0].0, &ingress]) {
        let before = bench.find(child).await.unwrap()["metadata"]["uid"].clone();
        delete(&bench, child).await;
        let is_back = async || {
            let found = bench.find(child).await;
            found.is_some_and(|found| found["metadata"]["uid"] != before)
        };
        until(&format!("{} is made again", child["metadata"]["name"]), is_back, || {
            host.log()
        })
        .await;
    }
    merge(&bench, &app, json!({"spec": {"ports": []}})).await;
    until(
        "the Service is pruned",
        async || bench.find(&children[1].0).await.is_none(),
        || host.log(),
    )
    .await;
    merge(
        &bench,
        &service,
        json!({"metadata": {"annotations": {"ingress/http": null}}}),
    )
    .await;
    until(
        "the Ingress is pruned",
        async || bench.find(&ingress).await.is_none(),
        || host.log(),
    )
    .await;
    for object in [&proxy, &stream, &app, &binding, &udp, &site] {
        delete(&bench, object).await;
        let is_gone = async || bench.find(object).await.is_none();
        until(&format!("{} is gone", object["kind"]), is_gone, || host.log()).await;
    }
    let tcp = named("ConfigMap", Some("ingress-nginx"), "tcp-services");
    let is_given_up = async || bench.find(&tcp).await.unwrap()["data"]["7001"].is_null();
    until("the port is given up", is_given_up, || host.log()).await;
    delete(&bench, &service).await;
    delete(&bench, &resolver).await;
    let _ = nodes.delete("audit-node", &DeleteParams::default()).await.unwrap();

    let requests = control_plane.requests_since(mark).unwrap();
    let host_user = format!("system:serviceaccount:{SYSTEM}:host");
    let of_host: Vec<&Request> = requests.iter().filter(|request| request.account == host_user).collect();
    let refused: Vec<String> = of_host
        .iter()
        .filter(|request| request.code == 403)
        .map(ToString::to_string)
        .collect();
    assert_eq!(refused, Vec::<String>::new(), "{}", host.log());
    assert_eq!(host.lines(&["may not"]), Vec::<String>::new());

    let mut unused = BTreeSet::new();
    let mut excused = BTreeSet::new();
    for grant in &granted {
        let user = format!("system:serviceaccount:{SYSTEM}:{}", account_name(&grant.plugin));
        let is_used = of_host.iter().any(|request| {
            // Lists and watches are the host's; the account's right to them is what is reviewed.
            let is_its = if grant.is_watch() {
                request.impersonated.is_none()
            } else {
                request.impersonated.as_deref() == Some(&*user)
            };
            is_its && request.code < 400 && grant.is_used_by(request)
        });
        if is_used {
            continue;
        }
        let excuse = UNUSED.iter().find(|(plugin, verb, resource, _)| {
            let is_meant = |meant: &str, text: &str| meant.is_empty() || meant == text;
            is_meant(plugin, &grant.plugin) && *verb == grant.verb && is_meant(resource, &grant.resource)
        });
        match excuse {
            Some(exception) => _ = excused.insert(exception),
            None => _ = unused.insert(grant.clone()),
        }
    }
    assert!(unused.is_empty(), "granted and not used: {unused:#?}\n{}", host.log());
    assert!(granted.len() > 60, "the roles are read: {}", granted.len());
    let exceptions: BTreeSet<_> = UNUSED.iter().collect();
    assert_eq!(excused, exceptions, "an exception that is none any more");
    // Of the host's own rights for the plugins, too, each is used.
    let is_used = |grant: &&Grant| {
        of_host.iter().any(|request| {
            let account = request.impersonated.as_deref();
            match &*grant.verb {
                "impersonate" => account == Some(&*format!("system:serviceaccount:{SYSTEM}:{}", grant.name)),
                _ => account.is_none() && request.code < 400 && grant.is_used_by(request),
            }
        })
    };
    let unused: Vec<&Grant> = granted_to_host.iter().filter(|grant| !is_used(grant)).collect();
    assert!(unused.is_empty(), "granted to the host and not used: {unused:#?}");
    assert!(granted_to_host.len() > 20, "{granted_to_host:?}");
    // The host reviews each account, and acts as none of the others.
    let reviews = of_host
        .iter()
        .filter(|request| request.resource == "subjectaccessreviews");
    assert!(reviews.count() >= granted.len() - 10, "the rights are reviewed");
    let acted: BTreeSet<&str> = of_host
        .iter()
        .filter_map(|request| request.impersonated.as_deref())
        .collect();
    assert_eq!(acted.len(), PLUGINS.len(), "{acted:?}");
}
