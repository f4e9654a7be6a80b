//! The cluster, the host in this process, and the Plugin resource that names the component it runs: a new version is a
//! new file and a change of that resource, so the host swaps it as in production.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use pilothouse_cluster::Client;
use pilothouse_cluster::connect::{ClusterTarget, connect};
use pilothouse_core::admission::configuration::configuration_name;
use pilothouse_core::kubernetes::selector::Selector;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_host::compiling::notice;
use pilothouse_host::run::USER_AGENT;
use pilothouse_runtime::{Handle, Host, HostOptions, InstallCrds, Library, UnfinishedWork, WebhookOptions};
use pilothouse_sandbox::Sandbox;
use pilothouse_simulator::Options as SimulatorOptions;
use pilothouse_testhost::{stop_signal, webhooks};
use pilothouse_testkit::cluster::{Cluster, ClusterError};
use pilothouse_testkit::scenario::{Objects, Reference};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::plugin::Settings;

/// Field manager of the command's applies.
const MANAGER: &str = "pilothouse-dev";

/// The label of the Plugin resource that the command runs; its host runs no others.
const LABEL: &str = "pilothouse.dev/dev";

/// Namespace of the host's webhook certificates on a simulated cluster; no webhook reaches this namespace.
const HOST_NAMESPACE: &str = "pilothouse-system";
const WEBHOOK_SECRET: &str = "pilothouse-webhooks";

/// Time that the host may take until it serves the kinds of the applied objects.
pub(super) const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Time that the host may take to remove its finalizer from the Plugin resource at the end.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Time that the host may take to configure the webhooks of a running plugin. A plugin may opt out of them in its
/// manifest; then there is nothing to wait for, and this time passes once.
const ASKED_WITHIN: Duration = Duration::from_secs(5);

/// The webhook configurations that a component needs for what it exports.
const WEBHOOKS: [(&str, &str); 2] = [
    ("pilothouse:plugin/defaulter@", "MutatingWebhookConfiguration"),
    ("pilothouse:plugin/validator@", "ValidatingWebhookConfiguration"),
];

/// Parts of permanent refusals: an invalid object, a missing right, and an unknown field (code 500).
const FINAL: [&str; 4] = ["(422", "(403", "(400", "field not declared in schema"];

/// Pause between two attempts.
const TRY_INTERVAL: Duration = Duration::from_millis(50);

/// Cluster of the command.
pub(super) enum Place {
    /// A simulated one, at this port; 0 is a free one.
    Simulated { port: u16 },
    /// A real one.
    Real(ClusterTarget),
}

/// A host that runs.
pub(super) struct Session {
    pub(super) handle: Handle,
    /// Requests in the author's name.
    pub(super) objects: Objects,
    /// The name of the Plugin resource.
    pub(super) plugin: String,
    /// Set if requests put load on a real cluster.
    pub(super) is_real: bool,
    /// Address of the cluster, for people.
    pub(super) about: String,
    settings: Settings,
    sandbox: Sandbox,
    library: TempDir,
    versions: usize,
    /// Kinds of webhook configurations that are still awaited, and since when.
    unmade: Vec<&'static str>,
    ready: Option<Instant>,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<UnfinishedWork, String>>,
    /// Lives as long as the host.
    _cluster: Option<Cluster>,
    /// Kubeconfig that was written, deleted with the cluster.
    kubeconfig: Option<PathBuf>,
}

/// Outcome of an apply.
pub(super) enum Applied {
    Yes,
    /// Refused for now, for this reason; may succeed later.
    NotYet(String),
    /// Refused, for this reason.
    No(String),
}

/// A component that the host was given.
pub(super) struct GivenComponent {
    /// SHA-256 in hexadecimal digits.
    pub(super) digest: String,
    /// Message about a large component that has to be compiled: that takes seconds.
    pub(super) compiling: Option<String>,
}

/// Size from which on compiling a component takes noticeable time, in bytes.
const LARGE: usize = 1_000_000;

impl Session {
    /// Starts a cluster, if it is a simulated one, whose kubeconfig is written to the given folder, and the host on it.
    pub(super) async fn open(
        place: Place,
        sandbox: Sandbox,
        name: &str,
        settings: Settings,
        kubeconfig_folder: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let library = tempfile::Builder::new().prefix("pilothouse-dev-").tempdir();
        let library = library.context("cannot make a folder for components")?;
        let (client, own, cluster, about, kubeconfig) = match place {
            Place::Simulated { port } => {
                let cluster = simulated(port).await?;
                let file = kubeconfig(&cluster, kubeconfig_folder)?;
                let about = format!("simulated cluster; export KUBECONFIG={}", file.display());
                let own = cluster.client().await?;
                let kept = kubeconfig_folder.map(|_| file);
                (cluster.host_client().await?, own, Some(cluster), about, kept)
            }
            Place::Real(target) => {
                let client = connect(&target, USER_AGENT).await?;
                let about = "the cluster of the kubeconfig, which does not call the plugin's webhooks: its API server cannot reach \
                             this process, so the plugin validates and defaults only before each reconcile"
                    .to_owned();
                (client.clone(), client, None, about, None)
            }
        };
        let is_real = cluster.is_none();
        // If a real cluster already has this plugin, that one is not changed.
        let plugin = if is_real {
            format!("{name}-dev")
        } else {
            name.to_owned()
        };
        let mut objects = objects(own);
        let webhooks = if is_real {
            None
        } else {
            Some(admission(&mut objects).await?)
        };
        let host = Host::new(client, options(&plugin, webhooks)?);
        let handle = host.handle();
        let (stop, stopped) = stop_signal();
        let library_of_host = Library {
            sandbox: sandbox.clone(),
            directory: library.path().to_owned(),
            artifacts: None,
        };
        let ended = tokio::spawn(async move {
            let left = host.run_resources(library_of_host, stopped).await;
            left.map_err(|error| error.to_string())
        });
        Ok(Self {
            handle,
            objects,
            plugin,
            is_real,
            about,
            settings,
            sandbox,
            library,
            versions: 0,
            unmade: Vec::new(),
            ready: None,
            stop,
            ended,
            _cluster: cluster,
            kubeconfig,
        })
    }

    /// Makes the host run a component from now on.
    pub(super) async fn run_component(&mut self, component: &Path) -> anyhow::Result<GivenComponent> {
        let bytes = fs::read(component).with_context(|| format!("cannot read {}", component.display()))?;
        let digest = Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        self.versions += 1;
        let file = format!("{}-{}.wasm", self.plugin, self.versions);
        let path = self.library.path().join(&file);
        fs::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
        if !self.is_real {
            self.unmade = configurations(&self.sandbox, &path);
            self.ready = None;
        }
        // The host reports a component that cannot be loaded.
        let is_unknown = || matches!(self.sandbox.granting(Wasi::Inert).load_known(&path, None), Ok(None));
        let compiling = (bytes.len() >= LARGE && is_unknown()).then(|| notice(component, bytes.len() as u64));
        let mut plugin = json!({
            "apiVersion": "pilothouse.dev/v1alpha1",
            "kind": "Plugin",
            "metadata": {"name": self.plugin, "labels": {LABEL: self.plugin}},
            "spec": {"source": {"file": file}},
        });
        let Settings {
            configuration,
            wasi,
            limits,
        } = &self.settings;
        plugin["spec"]["limits"] = json!(limits);
        if let Some(configuration) = configuration {
            plugin["spec"]["configuration"] = configuration.clone();
        }
        if let Some(wasi) = wasi {
            plugin["spec"]["wasi"] = json!(wasi);
        }
        self.apply(&plugin).await?;
        Ok(GivenComponent { digest, compiling })
    }

    /// Reports whether a simulated cluster calls the plugin's webhooks by now; to be called when the plugin runs.
    /// Without webhooks an object that the validator refuses would be stored.
    pub(super) async fn is_asked(&mut self) -> bool {
        let ready = *self.ready.get_or_insert_with(Instant::now);
        if ready.elapsed() > ASKED_WITHIN {
            self.unmade.clear();
        }
        while let Some(kind) = self.unmade.last() {
            let configuration = Reference {
                api_version: "admissionregistration.k8s.io/v1".to_owned(),
                kind: (*kind).to_owned(),
                name: configuration_name(&self.plugin),
                namespace: None,
            };
            if !matches!(self.objects.find(&configuration).await, Ok(Some(_))) {
                return false;
            }
            self.unmade.pop();
        }
        true
    }

    /// Applies an object. Its kind may not be served yet, so this is retried for a while.
    async fn apply(&mut self, object: &Value) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            match self.try_apply(object).await? {
                Applied::Yes => return Ok(()),
                Applied::NotYet(_) if begun.elapsed() <= SERVED_WITHIN => tokio::time::sleep(TRY_INTERVAL).await,
                Applied::NotYet(words) | Applied::No(words) => bail!("{words}"),
            }
        }
    }

    /// Applies an object once; on a simulated cluster its namespace is made, too. An error ends the command.
    pub(super) async fn try_apply(&mut self, object: &Value) -> anyhow::Result<Applied> {
        let mut applied = self.objects.apply(MANAGER, object).await;
        let namespace = object["metadata"]["namespace"].as_str();
        if let Err(words) = &applied
            && let Some(namespace) = namespace.filter(|_| !self.is_real && words.contains("namespaces"))
        {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            if let Err(words) = self.objects.apply(MANAGER, &body).await {
                return Ok(Applied::No(format!("cannot make the namespace {namespace}: {words}")));
            }
            applied = self.objects.apply(MANAGER, object).await;
        }
        let Err(words) = applied else {
            return Ok(Applied::Yes);
        };
        if let Some(reason) = self.failure().await {
            bail!("{reason}");
        }
        let Reference { kind, name, .. } = Reference::of(object);
        let is_final = FINAL.iter().any(|part| words.contains(part));
        let words = format!("cannot apply {kind} {name}: {words}");
        Ok(if is_final {
            Applied::No(words)
        } else {
            Applied::NotYet(words)
        })
    }

    /// Returns the reason why the host has stopped.
    pub(super) async fn failure(&mut self) -> Option<String> {
        if !self.ended.is_finished() {
            return None;
        }
        Some(match (&mut self.ended).await {
            Ok(Ok(_)) => "the host ended by itself".to_owned(),
            Ok(Err(error)) => error,
            Err(error) => format!("the host broke down: {error}"),
        })
    }

    /// Stops the host. A real cluster keeps the objects; the Plugin resource is deleted.
    pub(super) async fn close(mut self) -> anyhow::Result<()> {
        if self.is_real && self.versions > 0 && !self.ended.is_finished() {
            let plugin = Reference {
                api_version: "pilothouse.dev/v1alpha1".to_owned(),
                kind: "Plugin".to_owned(),
                name: self.plugin.clone(),
                namespace: None,
            };
            let _ = self.objects.remove(&plugin).await;
            let begun = Instant::now();
            while begun.elapsed() < GONE_WITHIN && matches!(self.objects.find(&plugin).await, Ok(Some(_))) {
                tokio::time::sleep(TRY_INTERVAL).await;
            }
        }
        if let Some(file) = &self.kubeconfig {
            let _ = fs::remove_file(file);
        }
        if !self.ended.is_finished() {
            let _ = self.stop.send(());
            self.ended
                .await
                .context("stop the host")?
                .map_err(|error| anyhow!(error))?;
        }
        Ok(())
    }
}

/// Returns the kinds of the webhook configurations that the host makes for a component; none if it is unreadable.
fn configurations(sandbox: &Sandbox, component: &Path) -> Vec<&'static str> {
    let read = sandbox.read(component, None);
    let Ok(interfaces) = read.and_then(|component| component.interfaces()) else {
        return Vec::new();
    };
    let exports = |name: &str| interfaces.exports.iter().any(|export| export.starts_with(name));
    let needed = WEBHOOKS.into_iter().filter(|(name, _)| exports(name));
    needed.map(|(_, kind)| kind).collect()
}

fn objects(client: Client) -> Objects {
    let namespace = client.default_namespace().to_owned();
    Objects::new(client, &namespace)
}

/// Returns the host's webhook options on a simulated cluster, which calls webhooks at this machine's own address.
async fn admission(objects: &mut Objects) -> anyhow::Result<WebhookOptions> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOST_NAMESPACE}});
    let made = objects.apply(MANAGER, &namespace).await;
    made.map_err(|words| anyhow!("cannot make the namespace {HOST_NAMESPACE}: {words}"))?;
    webhooks(HOST_NAMESPACE, WEBHOOK_SECRET).context("cannot take a port of 127.0.0.1 for the plugin's webhooks")
}

fn options(plugin: &str, webhooks: Option<WebhookOptions>) -> anyhow::Result<HostOptions> {
    let selector = Selector::parse(&format!("{LABEL}={plugin}"));
    Ok(HostOptions {
        install_crds: InstallCrds::All,
        plugin_selector: selector.map_err(|error| anyhow!("{error}"))?,
        instance: MANAGER.to_owned(),
        webhooks,
        ..HostOptions::default()
    })
}

async fn simulated(port: u16) -> anyhow::Result<Cluster> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match Cluster::simulated_at(address, SimulatorOptions::default()).await {
        Ok(cluster) => Ok(cluster),
        Err(ClusterError::Serve(error)) => bail!(
            "cannot serve the simulated cluster at {address}: {error}; give another port with --port, or leave it out to take \
             a free one"
        ),
        Err(error) => Err(error.into()),
    }
}

/// Writes the kubeconfig for kubectl.
fn kubeconfig(cluster: &Cluster, folder: Option<&Path>) -> anyhow::Result<PathBuf> {
    let own = cluster.host_kubeconfig()?;
    let Some(folder) = folder else { return Ok(own) };
    let file = folder.join("kubeconfig.yaml");
    let copied = fs::create_dir_all(folder).and_then(|()| fs::copy(&own, &file));
    copied.with_context(|| format!("cannot write the kubeconfig to {}", file.display()))?;
    Ok(file)
}
