//! Owns how plugins come up: described, checked against each other, and opened once the cluster serves what they need
//! and the cache has listed it.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::events::Recorder;
use pilothouse_cluster::install::install_crd;
use pilothouse_cluster::write::Writer;
use pilothouse_core::grants::Grants;
use pilothouse_core::manifest::{self, BroughtCrd, CheckedManifest};
use tokio::task::JoinSet;

use crate::host::HostOptions;
use crate::hub::Hub;
use crate::lane::{Lane, PluginSpec, calls_of_a_plugin};
use crate::watches::Watches;

/// The waits between two looks for what is missing.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// A plugin that can be used.
pub struct Prepared {
    name: Arc<str>,
    crds: Vec<BroughtCrd>,
    recorder: Arc<Recorder>,
    /// Its lanes.
    pub lanes: Vec<Arc<Lane>>,
}

/// Why a plugin cannot be used.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error("its describe call failed: {0}")]
    Describe(pilothouse_core::Failure),
    #[error(transparent)]
    Manifest(#[from] manifest::ManifestError),
    #[error("it is called {0}, as another plugin is; give it a name with --plugin NAME=FILE")]
    NameTaken(String),
    #[error("the name {0:?} cannot be used; it must be a DNS label")]
    Name(String),
    #[error("it brings the CRD of {kind}, which plugin {holder} brings already; run one of them")]
    KindTaken { kind: String, holder: Arc<str> },
    #[error(
        "controller {0} names a finalizer, but the component does not export the interface finalizer; export it, or leave the name out of the manifest"
    )]
    Finalizer(String),
    #[error(transparent)]
    Limit(#[from] pilothouse_core::limits::LimitError),
}

/// Describes the plugins. What cannot be used is logged and left out.
pub fn prepare(client: &Client, options: &HostOptions, hub: &Hub, plugins: Vec<PluginSpec>) -> Vec<Prepared> {
    let mut prepared: Vec<Prepared> = Vec::new();
    for spec in plugins {
        let component = spec.component.name().to_owned();
        match prepare_one(client, options, hub, spec, &prepared) {
            Ok(plugin) => prepared.push(plugin),
            Err(error) => tracing::error!(component, %error, "the plugin cannot be used"),
        }
    }
    prepared
}

fn prepare_one(
    client: &Client,
    options: &HostOptions,
    hub: &Hub,
    spec: PluginSpec,
    others: &[Prepared],
) -> Result<Prepared, PrepareError> {
    let PluginSpec {
        name,
        component,
        config,
        limits,
        concurrency,
        mode,
        former_managers,
    } = spec;
    limits.check()?;
    let config = config.map(|config| config.to_string());
    let described = component
        .describe(config.as_deref(), &limits)
        .map_err(PrepareError::Describe)?;
    let CheckedManifest { manifest, crds } = manifest::parse(&described)?;
    let name: Arc<str> = name.unwrap_or_else(|| manifest.name.clone()).into();
    if !manifest::is_label(&name) {
        return Err(PrepareError::Name(name.to_string()));
    }
    if others.iter().any(|other| other.name == name) {
        return Err(PrepareError::NameTaken(name.to_string()));
    }
    for crd in &crds {
        if let Some(other) = others
            .iter()
            .find(|other| other.crds.iter().any(|it| it.name == crd.name))
        {
            return Err(PrepareError::KindTaken {
                kind: crd.kind.clone(),
                holder: other.name.clone(),
            });
        }
    }
    if let Some(controller) = manifest
        .controllers
        .iter()
        .find(|controller| controller.finalizer.is_some() && !component.optional().finalizer)
    {
        return Err(PrepareError::Finalizer(controller.name.clone()));
    }
    let recorder = Arc::new(Recorder::new(client.clone(), &name, &options.instance));
    let writer = Writer::new(client.clone(), Lane::manager_of(&name).into());
    let calls = calls_of_a_plugin();
    let mut lanes = Vec::with_capacity(manifest.controllers.len());
    for controller in manifest.controllers {
        let id = hub.state.write().lanes.reserve();
        let brings_crd = crds
            .iter()
            .any(|crd| crd.group == controller.kind.group && crd.kind == controller.kind.kind);
        lanes.push(Arc::new(Lane {
            id,
            plugin: name.clone(),
            grants: Grants::new(&controller),
            controller: controller.name,
            filter: controller.filter,
            finalizer: controller.finalizer,
            mode,
            former_managers: former_managers.clone(),
            brings_crd,
            component: component.clone(),
            config: config.clone().unwrap_or_else(|| "{}".to_owned()),
            limits: limits.clone(),
            concurrency,
            calls: calls.clone(),
            writer: writer.clone(),
            recorder: recorder.clone(),
            served: hub.served.clone(),
        }));
    }
    tracing::info!(
        plugin = &*name,
        version = manifest.version,
        digest = component.digest(),
        "plugin described"
    );
    Ok(Prepared {
        name,
        crds,
        recorder,
        lanes,
    })
}

/// Starts bringing up every plugin; what is returned runs until it is dropped.
pub fn start(client: &Client, options: &HostOptions, hub: &Arc<Hub>, prepared: Vec<Prepared>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let watches = Arc::new(Watches::new(client.clone(), hub.clone()));
    for plugin in prepared {
        let (client, watches) = (client.clone(), watches.clone());
        let install = options.install_crds;
        tasks.spawn(async move {
            bring_up(&client, &watches, plugin, install).await;
            // The watches live as long as this task.
            std::future::pending::<()>().await;
        });
    }
    tasks
}

async fn bring_up(client: &Client, watches: &Watches, plugin: Prepared, install: bool) {
    let Prepared {
        name,
        crds,
        recorder,
        lanes,
    } = plugin;
    if install {
        for crd in &crds {
            let installed = until_done(&name, || async {
                install_crd(client, crd)
                    .await
                    .map_err(|error| pilothouse_cluster::error::chain(&error))
            });
            if installed.await {
                tracing::info!(plugin = &*name, crd = crd.name, "installed the CRD");
            }
        }
    }
    until_done(&name, || async {
        recorder.recall().await.map_err(|error| error.to_string())
    })
    .await;
    for lane in &lanes {
        watches.add(lane);
    }
}

/// Tries until it is done, with back-off; a message comes whenever the cause changes, not at each try.
async fn until_done<T, F: Future<Output = Result<T, String>>>(plugin: &str, mut attempt: impl FnMut() -> F) -> T {
    let mut wait = FIRST_WAIT;
    let mut said = None;
    loop {
        match attempt().await {
            Ok(done) => {
                if said.is_some() {
                    tracing::info!(plugin, "what was missing is there");
                }
                return done;
            }
            Err(problem) => {
                if said.as_ref() != Some(&problem) {
                    tracing::warn!(plugin, "waiting: {problem}");
                    said = Some(problem);
                }
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}
