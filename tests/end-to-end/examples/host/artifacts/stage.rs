//! Test bed of the artifact benchmarks: the real control plane, the registry, the hosts and the Plugin resources.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::StreamExt as _;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use pilothouse_external::registry::Registry;
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::controlplane::Options;
use pilothouse_testkit::host::{ProcessHost, SteeredHost as _};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Outcome;
use crate::steered::{self, NEVER, asked, program, until};

/// The condition that says that a plugin reconciles.
const READY: &str = "Ready";

/// A control plane with the CRD of Plugin, an empty registry, and folders.
pub struct Stage {
    pub registry: Registry,
    cluster: Cluster,
    plugins: Api<DynamicObject>,
    ready: ReadyPlugins,
    folder: TempDir,
}

impl Stage {
    /// Starts everything but a host.
    pub async fn set() -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("pilothouse-artifacts-").tempdir()?;
        let registry = Registry::with_referrers()?;
        let registries = json!({"registries": [{"host": registry.address(), "plainHttp": true}]});
        fs::write(folder.path().join("registries.yaml"), registries.to_string())?;
        fs::create_dir(folder.path().join("plugins"))?;
        let cluster = Cluster::real_with(Options::default()).await?;
        let client = cluster.client().await?;
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("pilothouse.dev", "v1alpha1", "Plugin"));
        let plugins: Api<DynamicObject> = Api::all_with(client, &kind);
        let mut host = steered::host(NEVER).with_arguments(arguments(folder.path(), &folder.path().join("first")));
        host.start(&cluster, &[]).await?;
        until("the CRD of Plugin", &mut host, async || {
            Ok(plugins.list(&ListParams::default()).await.is_ok())
        })
        .await?;
        host.stop().await?;
        Ok(Self {
            registry,
            cluster,
            ready: ReadyPlugins::watch(plugins.clone()),
            plugins,
            folder,
        })
    }

    /// A file in the host's plugin directory.
    pub fn file(&self, name: &str, component: &[u8]) -> Outcome<PathBuf> {
        let file = self.plugin_directory().join(name);
        fs::write(&file, component)?;
        Ok(file)
    }

    /// The host's plugin directory.
    pub fn plugin_directory(&self) -> PathBuf {
        self.folder.path().join("plugins")
    }

    /// A cache directory that is empty, for code and artifacts.
    pub fn empty_cache(&self) -> Outcome<TempDir> {
        Ok(tempfile::Builder::new()
            .prefix("cache-")
            .tempdir_in(self.folder.path())?)
    }

    /// A command of the program that is measured.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program("pilothouse"));
        command
            .args(arguments)
            .env("DOCKER_CONFIG", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Returns a command that reaches the registry.
    pub fn registry_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command
            .arg("--registries")
            .arg(self.folder.path().join("registries.yaml"));
        command
    }

    /// Pushes a component: the reference with the digest.
    pub fn push(&self, file: &Path, reference: &str) -> Outcome<String> {
        let cache = self.empty_cache()?;
        let (file, cache) = (file.display().to_string(), cache.path().display().to_string());
        let to = self.registry.reference(reference);
        let output = self
            .registry_command(&["push", &file, &to, "--cache-dir", &cache, "--quiet"])
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("the push to {to} ended with {}", output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    /// Starts a host that follows Plugin resources, and waits until it watches them.
    pub async fn start(&self, cache: &Path) -> Outcome<ProcessHost> {
        let mark = self.cluster.mark()?;
        let mut host = self.begin(cache).await?;
        until("the host to watch Plugins", &mut host, async || {
            let requests = asked(&self.cluster, mark)?;
            Ok(requests
                .iter()
                .any(|request| request.verb == "watch" && request.resource == "plugins"))
        })
        .await?;
        Ok(host)
    }

    /// Starts such a host and waits for nothing.
    pub async fn begin(&self, cache: &Path) -> Outcome<ProcessHost> {
        let mut host = steered::host(NEVER).with_arguments(arguments(self.folder.path(), cache));
        host.start(&self.cluster, &[]).await?;
        Ok(host)
    }

    /// Makes a Plugin resource: when the request began.
    pub async fn create(&self, name: &str, source: &Value) -> Outcome<Instant> {
        let plugin = json!({
            "apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": name},
            "spec": {"source": source},
        });
        let begun = Instant::now();
        self.plugins
            .create(&PostParams::default(), &serde_json::from_value(plugin)?)
            .await?;
        Ok(begun)
    }

    /// The status of a Plugin, which a host has written.
    pub async fn status(&self, name: &str) -> Outcome<Value> {
        Ok(self.plugins.get(name).await?.data["status"].take())
    }

    /// Writes an earlier Plugin's status to a Plugin.
    pub async fn put_status(&self, name: &str, status: &Value) -> Outcome<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.plugins.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until these Plugins are ready: the moment at which the last one was.
    pub async fn until_ready(&self, names: &[String], host: &mut ProcessHost) -> Outcome<Instant> {
        let mut last = None;
        until("the Plugins to be ready", host, async || {
            last = self.ready.last(names);
            Ok(last.is_some())
        })
        .await?;
        last.ok_or_else(|| "there are no Plugins to wait for".into())
    }

    /// Deletes Plugins while the host runs, which lets them go, and stops it.
    pub async fn remove(&self, names: &[String], mut host: ProcessHost) -> Outcome<()> {
        for name in names {
            self.plugins.delete(name, &DeleteParams::default()).await?;
        }
        until("the Plugins to be gone", &mut host, async || {
            Ok(self.plugins.list(&ListParams::default()).await?.items.is_empty())
        })
        .await?;
        host.stop().await?;
        Ok(())
    }
}

/// Arguments of a host.
fn arguments(folder: &Path, cache: &Path) -> impl Iterator<Item = String> {
    [
        ("--plugin-dir", folder.join("plugins")),
        ("--registries", folder.join("registries.yaml")),
        ("--cache-dir", cache.to_owned()),
    ]
    .into_iter()
    .flat_map(|(option, path)| [option.to_owned(), path.display().to_string()])
}

/// The Plugins that are ready, each with the moment at which a watch showed it so.
struct ReadyPlugins(Arc<Mutex<HashMap<String, Instant>>>);

impl ReadyPlugins {
    /// Begins to watch, until the program ends.
    fn watch(plugins: Api<DynamicObject>) -> Self {
        let moments = Arc::<Mutex<HashMap<String, Instant>>>::default();
        let seen = moments.clone();
        tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(plugins, watcher::Config::default()));
            while let Some(event) = events.next().await {
                let Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) = event else {
                    continue;
                };
                let conditions = object.data["status"]["conditions"].as_array();
                let mut conditions = conditions.into_iter().flatten();
                let is_ready = conditions.any(|condition| condition["type"] == READY && condition["status"] == "True");
                if let Some(name) = object.metadata.name
                    && is_ready
                {
                    let mut seen = seen.lock().expect("no panic happens while it is held");
                    seen.entry(name).or_insert_with(Instant::now);
                }
            }
        });
        Self(moments)
    }

    /// Returns the time at which the last one of these was ready; none while one is not. Each name is used once.
    fn last(&self, names: &[String]) -> Option<Instant> {
        let moments = self.0.lock().expect("no panic happens while it is held");
        let each: Option<Vec<_>> = names.iter().map(|name| moments.get(name).copied()).collect();
        each?.into_iter().max()
    }
}
