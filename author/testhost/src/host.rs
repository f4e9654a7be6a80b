//! The host inside another process: starts it on a cluster's client, changes its options, queries it, and stops it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::resources::webhooks::SecretPlace;
use pilothouse_core::admission::configuration::Endpoint;
use pilothouse_core::{Kind, Limits, Name};
use pilothouse_runtime::api::documents::ObjectDocument;
use pilothouse_runtime::artifacts::ArtifactStore;
use pilothouse_runtime::{
    Handle, Host, HostOptions, InstallCrds, Library, Lifetimes, Maker, RunMode, StaticPlugin, UnfinishedWork,
    WebhookOptions,
};
use pilothouse_sandbox::{PluginComponent, Sandbox};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::host::{HostError, SteeredHost, SteeredPlugin, free_address};
use pilothouse_testkit::scenario::Reference;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::Layer as _;
use tracing::subscriber::DefaultGuard;

use crate::log::Tail;

/// Time that a start may take until every lane is open.
const OPEN_WITHIN: Duration = Duration::from_secs(30);

/// Source of components.
pub trait Components: Send + Sync {
    /// Returns the sandbox that loads them.
    fn sandbox(&self) -> Sandbox;

    /// Returns the directory with the files of Plugin resources.
    fn directory(&self) -> PathBuf;

    /// Loads the plugin of this name in scenarios.
    fn load(&self, name: &str) -> Result<PluginComponent, String>;
}

/// Returns the default limits, with so much time for a call that load on the machine changes nothing.
pub fn unhurried() -> Limits {
    Limits {
        call_milliseconds: 10_000,
        ..Limits::default()
    }
}

/// A host in this process, on this runtime, which is single-threaded if the host collects the log of its thread.
pub struct RuntimeHost<C> {
    components: C,
    options: HostOptions,
    limits: Limits,
    follows_resources: bool,
    artifacts: Option<Arc<dyn ArtifactStore>>,
    is_cut_off: Arc<AtomicBool>,
    running: Option<Running>,
    tail: Tail,
    _guard: Option<DefaultGuard>,
}

/// Work of a host.
enum Work {
    /// Loaded plugins.
    Plugins(Vec<StaticPlugin>),
    /// Plugins of Plugin resources, with components from this library.
    Resources(Library),
}

struct Running {
    handle: Handle,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<UnfinishedWork, String>>,
}

/// Uses limits that hold on a machine under load.
impl<C: Components + Default> Default for RuntimeHost<C> {
    fn default() -> Self {
        Self::new(HostOptions::default(), unhurried())
    }
}

impl<C: Components + Default> RuntimeHost<C> {
    /// Returns a host that installs CRDs, with these options and limits. It collects the log of this thread.
    pub fn new(options: HostOptions, limits: Limits) -> Self {
        let tail = Tail::default();
        let guard = tail.follow();
        Self {
            _guard: Some(guard),
            ..Self::with(C::default(), options, limits, tail)
        }
    }
}

impl<C: Components> RuntimeHost<C> {
    /// Returns a host that installs CRDs, with these components. The caller collects its log in the tail.
    pub fn with(components: C, options: HostOptions, limits: Limits, tail: Tail) -> Self {
        let options = HostOptions {
            install_crds: InstallCrds::All,
            ..options
        };
        Self {
            components,
            options,
            limits,
            follows_resources: false,
            artifacts: None,
            is_cut_off: Arc::default(),
            running: None,
            tail,
            _guard: None,
        }
    }

    /// Simulates a network partition: requests of a host with an election are lost from here on, or no longer. Earlier
    /// requests are answered, and watches continue.
    pub fn cut_off(&self, is_cut_off: bool) {
        self.is_cut_off.store(is_cut_off, Ordering::Relaxed);
    }

    /// Installs no CRDs from the next start on.
    pub fn install_no_crds(&mut self) {
        self.options.install_crds = InstallCrds::Nothing;
    }

    /// Installs only the CRD of Plugin from the next start on.
    pub fn install_own_crd(&mut self) {
        self.options.install_crds = InstallCrds::Host;
    }

    /// Fetches artifacts from a store, from the next start on.
    pub fn fetch_from(&mut self, store: Arc<dyn ArtifactStore>) {
        self.artifacts = Some(store);
    }

    /// Serves webhooks from the next start on.
    pub fn serve(&mut self, webhooks: WebhookOptions) {
        self.options.webhooks = Some(webhooks);
    }

    /// Starts with loaded plugins.
    pub async fn start_with(&mut self, cluster: &Cluster, specs: Vec<StaticPlugin>) -> Result<(), HostError> {
        self.begin(cluster, Work::Plugins(specs)).await
    }

    /// Starts with the plugins of Plugin resources, with components from a directory.
    pub async fn start_by_resources(&mut self, cluster: &Cluster, directory: PathBuf) -> Result<(), HostError> {
        let library = Library {
            sandbox: self.components.sandbox(),
            directory,
            artifacts: self.artifacts.clone(),
        };
        self.begin(cluster, Work::Resources(library)).await
    }

    async fn begin(&mut self, cluster: &Cluster, work: Work) -> Result<(), HostError> {
        let host = self.host(cluster).await?;
        let (stop, stopped) = stop_signal();
        let handle = host.handle();
        let ended = tokio::spawn(async move {
            match work {
                Work::Plugins(specs) => host.run(specs, stopped).await.map_err(|error| error.to_string()),
                Work::Resources(library) => {
                    let left = host.run_resources(library, stopped).await;
                    left.map_err(|error| error.to_string())
                }
            }
        });
        self.running = Some(Running { handle, stop, ended });
        Ok(())
    }

    async fn host(&self, cluster: &Cluster) -> Result<Host, HostError> {
        let client = cluster.host_client().await?;
        let client = match &self.options.election {
            Some(election) => {
                let is_cut_off = self.is_cut_off.clone();
                let send = tower::service_fn(move |request| {
                    let (client, is_cut_off) = (client.clone(), is_cut_off.clone());
                    async move {
                        if is_cut_off.load(Ordering::Relaxed) {
                            std::future::pending::<()>().await;
                        }
                        client.send(request).await
                    }
                });
                Client::new(election.fence.layer(send), "default")
            }
            None => client,
        };
        Ok(Host::new(client, self.options.clone()))
    }

    /// Ends the host like SIGKILL: no running work continues.
    pub async fn kill(&mut self) {
        if let Some(Running {
            handle: _,
            stop: _stop,
            ended,
        }) = self.running.take()
        {
            ended.abort();
            // It was aborted, which is its result.
            let _ = ended.await;
        }
    }

    /// Returns the handle of the running host.
    pub fn handle(&self) -> Option<&Handle> {
        self.running.as_ref().map(|running| &running.handle)
    }

    /// Waits until every lane is open and the host is idle.
    pub async fn settled(&self) -> Result<(), HostError> {
        let idle = async {
            while self.is_idle() != Some(true) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(OPEN_WITHIN, idle).await;
        in_time.map_err(|_| format!("the host does not settle\n{}", self.tail.text()).into())
    }

    /// Returns the options with which a built plugin runs here.
    pub fn spec(&self, name: &str) -> Result<StaticPlugin, HostError> {
        Ok(StaticPlugin {
            name: None,
            component: self.components.load(name)?,
            config: None,
            limits: self.limits.clone(),
            concurrency: None,
            mode: RunMode::Active,
            former_managers: Vec::new(),
        })
    }
}

/// Returns webhook options: a free port of this machine, with the certificates in a Secret of the host's own namespace.
pub fn webhooks(namespace: &str, secret: &str) -> std::io::Result<WebhookOptions> {
    // The port has to be known before the server listens.
    let listen = free_address()?;
    Ok(WebhookOptions {
        listen,
        peer_address: Some(listen),
        endpoint: Endpoint::Url(format!("https://{listen}")),
        secret: SecretPlace {
            namespace: namespace.to_owned(),
            name: secret.to_owned(),
        },
        client_ca: None,
        own_namespace: namespace.to_owned(),
        maker: Maker::Host,
        has_unknown_plugins: false,
        owner: None,
        lifetimes: Lifetimes::default(),
        settle: Duration::from_secs(30),
    })
}

/// Returns a sender that stops a host, and the future that the host waits for.
pub fn stop_signal() -> (oneshot::Sender<()>, impl Future<Output = ()>) {
    let (stop, stopped) = oneshot::channel();
    let stopped = async move {
        let _ = stopped.await;
    };
    (stop, stopped)
}

impl<C: Components> SteeredHost for RuntimeHost<C> {
    async fn start(&mut self, cluster: &Cluster, plugins: &[SteeredPlugin]) -> Result<(), HostError> {
        if self.follows_resources {
            return self.start_by_resources(cluster, self.components.directory()).await;
        }
        let steered = |plugin: &SteeredPlugin| {
            let SteeredPlugin {
                name,
                configuration,
                limits,
            } = plugin;
            let spec = self.spec(name)?;
            let limits = limits.clone().map(serde_json::from_value).transpose()?;
            Ok::<_, HostError>(StaticPlugin {
                config: configuration.clone(),
                limits: limits.unwrap_or(spec.limits),
                ..spec
            })
        };
        let specs = plugins.iter().map(steered).collect::<Result<_, _>>()?;
        self.start_with(cluster, specs).await
    }

    fn serve_webhooks(&mut self, namespace: &str) -> Result<(), HostError> {
        self.serve(webhooks(namespace, "webhooks")?);
        Ok(())
    }

    fn follow_resources(&mut self, follows: bool) -> Result<(), HostError> {
        self.follows_resources = follows;
        Ok(())
    }

    async fn resync(&mut self) -> Result<(), HostError> {
        self.handle().ok_or("the host does not run")?.resync();
        Ok(())
    }

    async fn stop(&mut self) -> Result<Vec<String>, HostError> {
        let Running { handle: _, stop, ended } = self.running.take().ok_or("the host does not run")?;
        let _ = stop.send(());
        let UnfinishedWork { abandoned, queued: _ } = ended.await??;
        Ok(abandoned
            .into_iter()
            .map(|(lane, object)| format!("{lane} abandoned {object}"))
            .collect())
    }

    fn explain(&self, object: &Reference) -> Vec<Value> {
        let Some(handle) = self.handle() else {
            return Vec::new();
        };
        let Reference {
            api_version,
            kind,
            name,
            namespace,
        } = object;
        let kind = Kind::from_api_version(api_version, kind);
        let look = |namespace: Option<&str>| handle.explain(&kind, &Name::new(namespace, name.as_str()));
        let document = look(namespace.as_deref());
        // Callers do not always know whether the kind is namespaced.
        let document = if document.exists { document } else { look(None) };
        let owners = document.made_for.iter().map(|maker| {
            let object = &maker.object;
            let kind = Kind::from_api_version(&object.kind.api_version, &object.kind.kind);
            handle.explain(&kind, &Name::new(object.namespace.as_deref(), object.name.as_str()))
        });
        let mut documents: Vec<ObjectDocument> = owners.collect();
        if documents.is_empty() && document.exists {
            documents.push(document);
        }
        documents
            .iter()
            .filter_map(|it| serde_json::to_value(it).ok())
            .collect()
    }

    fn is_idle(&self) -> Option<bool> {
        self.handle().map(Handle::is_idle)
    }

    fn failure(&mut self) -> Option<String> {
        let running = self.running.as_ref()?;
        running
            .ended
            .is_finished()
            .then(|| "the host has ended by itself".to_owned())
    }

    fn log_tail(&self) -> String {
        self.tail.text()
    }
}
