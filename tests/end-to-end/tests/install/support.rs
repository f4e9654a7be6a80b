//! Accounts with few rights on a real control plane, and the commands run with them.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pilothouse_end_to_end::components::root;
use pilothouse_end_to_end::program::{Folder, ended};
use pilothouse_testkit::controlplane::ControlPlane;
use pilothouse_testkit::requests::TEST_ACCOUNT;
use serde_json::{Value, json};

/// Time limit of a wait on a busy machine.
pub const WITHIN: Duration = Duration::from_mins(3);

/// A control plane, and files for the commands.
pub struct Bench<'a> {
    pub control_plane: &'a ControlPlane,
    pub client: Client,
    pub admin: String,
    pub folder: Folder,
}

impl<'a> Bench<'a> {
    pub async fn new(control_plane: &'a ControlPlane) -> Self {
        let admin = control_plane.kubeconfig_file(TEST_ACCOUNT).unwrap();
        Self {
            control_plane,
            client: control_plane.client().await.unwrap(),
            admin: admin.display().to_string(),
            folder: Folder::new(),
        }
    }

    pub async fn namespace(&self, name: &str) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let (by, body) = (PatchParams::apply("test"), Patch::Apply(&body));
        let _ = namespaces.patch(name, &by, &body).await.unwrap();
    }

    /// Applies objects as an administrator, by server-side apply.
    pub async fn apply(&self, objects: &[Value]) {
        for object in objects {
            let api = self.api(object);
            let name = object["metadata"]["name"].as_str().unwrap();
            let (by, body) = (PatchParams::apply("test").force(), Patch::Apply(object));
            let applied = api.patch(name, &by, &body).await;
            let _ = applied.unwrap_or_else(|error| panic!("{object}: {error}"));
        }
    }

    /// The live object of this kind, namespace and name.
    pub async fn find(&self, object: &Value) -> Option<Value> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let found = self.api(object).get_opt(name).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    /// Returns `true` if an object has a condition of this type that is true.
    pub async fn has_true(&self, object: &Value, condition: &str) -> bool {
        let found = self.find(object).await.unwrap();
        let conditions = found["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == condition && it["status"] == "True")
    }

    /// Returns the API resource of an object's kind.
    pub fn resource(object: &Value) -> ApiResource {
        let (group, version) = object["apiVersion"]
            .as_str()
            .unwrap()
            .split_once('/')
            .unwrap_or(("", "v1"));
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        match kind.kind.as_str() {
            // Its CRD has no other name for many.
            "EcsBinding" => ApiResource::from_gvk_with_plural(&kind, "ecsbinding"),
            _ => ApiResource::from_gvk(&kind),
        }
    }

    pub fn api(&self, object: &Value) -> Api<DynamicObject> {
        let resource = Self::resource(object);
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// A ServiceAccount with these rules in the whole cluster, and a kubeconfig for it.
    pub async fn account(&self, namespace: &str, name: &str, rules: &Value) -> String {
        let rbac = "rbac.authorization.k8s.io";
        let (api_version, role) = (format!("{rbac}/v1"), format!("{namespace}-{name}"));
        self.namespace(namespace).await;
        self.apply(&[
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}),
            json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules}),
            json!({
                "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": {"name": role},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            }),
        ])
        .await;
        let token = self.token(namespace, name, None).await;
        let authority = STANDARD.encode(self.control_plane.certificate_authority());
        let server = self.control_plane.url();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        });
        self.folder.file(&format!("{role}.yaml"), kubeconfig.to_string())
    }

    /// A token of a ServiceAccount, for the API server unless it is for another audience.
    pub async fn token(&self, namespace: &str, name: &str, audience: Option<&str>) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: audience.map(|audience| vec![audience.to_owned()]),
                expiration_seconds: Some(3600),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let granted = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await;
        granted.unwrap().status.unwrap().token.unwrap()
    }

    /// Makes the pod of a host with its account, and the Service that leads to it, and to other replicas that listen elsewhere.
    /// The kubelet and the controller that would make the endpoints are not there.
    pub async fn serve_in_pod(&self, namespace: &str, name: &str, replicas: &[SocketAddr]) {
        let ip = replicas[0].ip().to_string();
        let metadata = json!({"name": name, "namespace": namespace});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {
                "serviceAccountName": name, "automountServiceAccountToken": false,
                "containers": [{"name": "host", "image": "pilothouse"}],
            },
        });
        let target = json!({"kind": "Pod", "name": name, "namespace": namespace});
        let subset = |at: &SocketAddr| json!({"addresses": [{"ip": ip, "targetRef": target}], "ports": [{"name": "api", "port": at.port()}]});
        let subsets: Vec<Value> = replicas.iter().map(subset).collect();
        self.apply(&[
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            pod.clone(),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"ports": [{"name": "api", "port": 8443}]},
            }),
            json!({
                "apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets,
            }),
        ])
        .await;
        let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
        let (pods, by, body) = (self.api(&pod), PatchParams::default(), Patch::Merge(status));
        let _ = pods.patch_status(name, &by, &body).await.unwrap();
    }
}

/// An address of this machine to which an API server proxies, which refuses loopback addresses, with a free port. No packet
/// is sent.
pub fn own_address() -> SocketAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").expect("the machine has a network");
    let address = socket.local_addr().unwrap().ip();
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap()
}

/// Runs `pilothouse COMMAND …` with a kubeconfig: returns its exit code, its output, and its standard error.
pub async fn command(arguments: &[&str], kubeconfig: &str) -> (i32, String, String) {
    let cache = root().join("target/test-code").display().to_string();
    let mut all = arguments.to_vec();
    all.extend(["--kubeconfig", kubeconfig]);
    if !["uninstall", "migrate-storage"].contains(&arguments[0]) {
        all.extend(["--cache-dir", &cache]);
    }
    let arguments: Vec<String> = all.into_iter().map(str::to_owned).collect();
    // The cluster may be served by this runtime.
    let run = move || ended(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool, log: impl Fn() -> String) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < WITHIN, "in vain: {what}\n{}", log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
