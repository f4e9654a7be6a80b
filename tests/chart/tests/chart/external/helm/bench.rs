//! A real control plane with the chart installed, and a host outside of it that runs as the chart's pods would: with the
//! arguments of the Deployment, as the ServiceAccount of its pods. Nothing runs pods here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::{
    BoundObjectReference, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pilothouse_chart::folder;
use pilothouse_end_to_end::components;
use pilothouse_end_to_end::program::{Folder, Process, ended};
use pilothouse_external::helm::Helm;
use pilothouse_testkit::controlplane::{AuditMark, ControlPlane, Options};
use pilothouse_testkit::host::free_address;
use pilothouse_testkit::requests::{Request, TEST_ACCOUNT};
use serde_json::{Value, json};

/// The namespace and the name of the release.
pub const NAMESPACE: &str = "pilothouse-system";
pub const RELEASE: &str = "pilothouse";

/// Time limit of a wait.
const WITHIN: Duration = Duration::from_mins(2);

/// A control plane with an empty namespace for the chart, which takes only pods of the Pod Security Standard `restricted`.
pub struct Bench {
    pub control_plane: Arc<ControlPlane>,
    pub client: Client,
    pub admin: String,
    pub folder: Folder,
    /// The namespace of the release.
    pub namespace: &'static str,
    /// Folder that the host gets as the volume with components.
    pub plugins: String,
    /// Address of the host's API. None: it serves none, because several hosts run on this machine.
    pub asked_at: Option<SocketAddr>,
}

impl Bench {
    pub async fn new() -> Self {
        let control_plane = ControlPlane::start(Options::default()).await.unwrap();
        Self::on(Arc::new(control_plane), NAMESPACE).await
    }

    /// The same cluster, for a release in another namespace.
    pub async fn beside(&self, namespace: &'static str) -> Self {
        Self::on(Arc::clone(&self.control_plane), namespace).await
    }

    async fn on(control_plane: Arc<ControlPlane>, namespace: &'static str) -> Self {
        let admin = control_plane.kubeconfig_file(TEST_ACCOUNT).unwrap();
        let bench = Self {
            client: control_plane.client().await.unwrap(),
            admin: admin.display().to_string(),
            control_plane,
            folder: Folder::new(),
            namespace,
            plugins: components::folder().display().to_string(),
            asked_at: None,
        };
        bench
            .apply(&json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
            }))
            .await;
        bench
    }

    pub fn helm(&self) -> Helm {
        Helm::new(&folder(), RELEASE, self.namespace).on(&self.admin)
    }

    /// Applies an object as an administrator.
    pub async fn apply(&self, object: &Value) {
        let (by, body) = (PatchParams::apply("test").force(), Patch::Apply(object));
        let applied = self.api(object).patch(name(object), &by, &body).await;
        let _ = applied.unwrap_or_else(|error| panic!("{object}: {error}"));
    }

    /// The live object of this kind, namespace and name.
    pub async fn find(&self, object: &Value) -> Option<Value> {
        let found = self.api(object).get_opt(name(object)).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    pub async fn delete(&self, object: &Value) {
        let deleted = self.api(object).delete(name(object), &DeleteParams::default()).await;
        let _ = deleted.unwrap_or_else(|error| panic!("{object}: {error}"));
    }

    pub fn api(&self, object: &Value) -> Api<DynamicObject> {
        let api_version = object["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let resource = ApiResource::from_gvk(&kind);
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Runs `pilothouse` as an administrator, and returns its output.
    pub async fn pilothouse(&self, arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments
            .iter()
            .copied()
            .chain(["--kubeconfig", &self.admin])
            .map(str::to_owned)
            .collect();
        let run = move || ended(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let (code, printed, said) = tokio::task::spawn_blocking(run).await.unwrap();
        assert_eq!(code, 0, "{said}{printed}");
        printed
    }

    /// Installs a plugin of `target/plugins`, with its rights and those of the host, which acts as its account.
    pub async fn install_plugin(&self, plugin: &str) {
        self.install_configured(plugin, &[]).await;
    }

    /// The same with more options.
    pub async fn install_configured(&self, plugin: &str, options: &[&str]) {
        let component = pilothouse_end_to_end::program::component(plugin);
        let cache = components::root().join("target/test-code").display().to_string();
        let arguments = [
            "install",
            &component,
            "--host-namespace",
            self.namespace,
            // The host starts after this.
            "--wait=false",
        ];
        let arguments = [arguments.as_slice(), &["--yes", "--cache-dir", &cache], options].concat();
        self.pilothouse(&arguments).await;
    }

    /// A token of the chart's ServiceAccount, which is valid for as long as this Secret is there.
    pub async fn token(&self, bound_to: &str) -> String {
        self.token_of(RELEASE, bound_to).await
    }

    /// The same for any ServiceAccount beside it.
    pub async fn token_of(&self, account: &str, bound_to: &str) -> String {
        let secret = named("v1", "Secret", Some(self.namespace), bound_to);
        self.apply(&secret).await;
        let uid = self.find(&secret).await.unwrap()["metadata"]["uid"]
            .as_str()
            .map(str::to_owned);
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(3600),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Secret".to_owned()),
                    name: Some(bound_to.to_owned()),
                    uid,
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let granted = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await;
        granted.unwrap().status.unwrap().token.unwrap()
    }

    /// Ends a token that is bound to this Secret, and waits until the API server, which remembers tokens for seconds, does not
    /// accept it any more.
    pub async fn ends(&self, bound_to: &str, token: &str) {
        self.delete(&named("v1", "Secret", Some(self.namespace), bound_to))
            .await;
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let is_refused = async || {
            let reviewed = reviews.create(&PostParams::default(), &review).await.unwrap();
            reviewed.status.unwrap().authenticated != Some(true)
        };
        until("the token is valid no more", is_refused, String::new).await;
    }

    /// A kubeconfig for the chart's ServiceAccount with this user entry.
    pub fn kubeconfig(&self, name: &str, user: &Value) -> String {
        let authority = STANDARD.encode(self.control_plane.certificate_authority());
        let server = self.control_plane.url();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "pod", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "pod"}}],
        });
        self.folder.file(name, kubeconfig.to_string())
    }

    /// A host with a token of the chart's account.
    pub async fn started(&self) -> Running {
        let token = self.token("host-token").await;
        let kubeconfig = self.kubeconfig("host.yaml", &json!({"token": token}));
        self.start(&kubeconfig).await
    }

    /// Starts a host as a pod of the Deployment would run it, with a kubeconfig in place of the token of a pod.
    pub async fn start(&self, kubeconfig: &str) -> Running {
        self.start_on(RELEASE, kubeconfig).await
    }

    /// The same in a pod of this name.
    pub async fn start_on(&self, pod: &str, kubeconfig: &str) -> Running {
        self.start_behind(None, pod, kubeconfig).await
    }

    /// The same for one of several replicas. API servers ask the one at `asked`, which stands for the Service: nothing here routes
    /// the addresses of Services (a node's kube-proxy does), so the configurations have a URL in its place.
    pub async fn start_behind(&self, asked: Option<SocketAddr>, pod: &str, kubeconfig: &str) -> Running {
        let arguments = self.arguments().await;
        let (metrics, webhooks) = (free_address().unwrap(), free_address().unwrap());
        let asked = asked.unwrap_or(webhooks);
        let plugins = &self.plugins;
        let mut given = vec![
            "--kubeconfig".to_owned(),
            kubeconfig.to_owned(),
            format!("--namespace={}", self.namespace),
        ];
        let has = |option: &str| arguments.iter().any(|argument| argument.starts_with(option));
        if has("--webhook-listen=") && has("--shards=") {
            // A pod has its address in the environment.
            given.push("--webhook-peer-address=127.0.0.1".to_owned());
        }
        for argument in arguments {
            let (option, _) = argument.split_once('=').unwrap_or((&argument, ""));
            given.push(match option {
                "--plugin-dir" => format!("{option}={plugins}"),
                "--plugin" => argument.replace("=/plugins/", &format!("={plugins}/")),
                "--config" | "--registries" | "--trust" => self.configuration(&argument).await,
                "--metrics-address" => format!("{option}={metrics}"),
                "--webhook-service" => format!("--webhook-url=https://{asked}"),
                "--webhook-listen" => format!("{option}={webhooks}"),
                "--api-address" => match self.asked_at {
                    Some(address) => format!("{option}={address}"),
                    None => format!("{option}=off"),
                },
                // The tests' own, which Process::start_host gives.
                "--cache-dir" => continue,
                _ => argument,
            });
        }
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        Running {
            process: Process::start_host_on(pod, &given),
            metrics,
            webhooks,
        }
    }

    /// An option that names a file of the chart's ConfigMap, with all files of it in the bench's folder: they name each other.
    async fn configuration(&self, argument: &str) -> String {
        let (option, path) = argument.rsplit_once('=').unwrap();
        let key = path.strip_prefix("/configuration/").unwrap();
        let map = named("v1", "ConfigMap", Some(self.namespace), RELEASE);
        let map = self.find(&map).await.unwrap();
        for (name, text) in map["data"].as_object().unwrap() {
            let _ = self.folder.file(name, text.as_str().unwrap());
        }
        format!("{option}={}", self.folder.path(key))
    }

    /// The arguments of the Deployment's container.
    pub async fn arguments(&self) -> Vec<String> {
        let deployment = named("apps/v1", "Deployment", Some(self.namespace), RELEASE);
        let deployment = self.find(&deployment).await.unwrap();
        let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
        let arguments = arguments.unwrap().iter();
        arguments
            .map(|argument| argument.as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until an object has the condition `Reconciled`.
    pub async fn is_reconciled(&self, object: &Value, running: &Running) {
        let holds = async || {
            let found = self.find(object).await.unwrap();
            let conditions = found["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == "Reconciled" && it["status"] == "True")
        };
        until(&format!("{} is reconciled", name(object)), holds, || {
            running.process.log()
        })
        .await;
    }
}

/// A host that runs.
pub struct Running {
    pub process: Process,
    pub metrics: SocketAddr,
    pub webhooks: SocketAddr,
}

impl Running {
    /// Ends it in order, as the kubelet does.
    pub async fn stop(mut self) {
        self.process.signal(rustix::process::Signal::TERM);
        assert_eq!(self.process.ended().await.code(), Some(0), "{}", self.process.log());
    }
}

/// helm for the chart with the rights of this kubeconfig.
pub fn helm_as(kubeconfig: &str) -> Helm {
    Helm::new(&folder(), RELEASE, NAMESPACE).on(kubeconfig)
}

/// Returns the requests of the host's account since the mark.
pub fn requests(bench: &Bench, mark: AuditMark) -> Vec<Request> {
    let account = format!("system:serviceaccount:{}:{RELEASE}", bench.namespace);
    let mut requests = bench.control_plane.requests_since(mark).unwrap();
    requests.retain(|request| request.account == account);
    requests
}

/// An object of a namespace by its names alone.
pub fn named(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

pub fn deployment() -> Value {
    named("apps/v1", "Deployment", Some(NAMESPACE), RELEASE)
}

pub fn secret(name: &str) -> Value {
    named("v1", "Secret", Some(NAMESPACE), name)
}

pub fn plugin(name: &str) -> Value {
    named("pilothouse.dev/v1alpha1", "Plugin", None, name)
}

/// An AppService, which has a Deployment and no Service.
pub fn app_service(name: &str) -> Value {
    let mut object = named("kosmos.io/v1", "AppService", Some("default"), name);
    object["spec"] = json!({"size": 1, "image": "nginx:1", "ports": []});
    object
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool, log: impl Fn() -> String) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < WITHIN, "in vain: {what}\n{}", log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
