//! Host in the demo's process: loads its plugins, logs to a file, starts and stops in order.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use pilothouse_cluster::connect::{ClusterTarget, connect};
use pilothouse_core::Limits;
use pilothouse_runtime::{Handle, Host, HostOptions, InstallCrds, RunMode, StaticPlugin, UnfinishedWork};
use pilothouse_sandbox::{Compiler, PluginComponent, Sandbox, SandboxOptions};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing_subscriber::EnvFilter;

/// User agent of the host's requests.
pub const USER_AGENT: &str = "pilothouse";

/// The file that the host's log goes to.
pub const LOG: &str = "host.log";

/// Plugins that the host can run.
pub struct Loaded {
    /// One line about each.
    pub about: Vec<String>,
    components: Vec<PluginComponent>,
    /// Lives as long as its plugins.
    sandbox: Sandbox,
}

/// Loads components; compiled code is kept, so that this takes long only once.
pub fn load(paths: &[PathBuf], folder: &Path) -> Result<Loaded> {
    let sandbox = Sandbox::new(SandboxOptions::new(folder.join("code"), Compiler::InProcess))?;
    let (mut about, mut components) = (Vec::new(), Vec::new());
    for path in paths {
        let started = Instant::now();
        let component = sandbox.load(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        about.push(format!(
            "{name}, {} KiB, ready to run after {} ms",
            component.component_bytes() / 1024,
            started.elapsed().as_millis()
        ));
        components.push(component);
    }
    Ok(Loaded {
        about,
        components,
        sandbox,
    })
}

/// A host that runs.
pub struct RunningHost {
    handle: Handle,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<UnfinishedWork>>,
    _sandbox: Sandbox,
}

impl RunningHost {
    /// Starts it on a cluster.
    pub async fn start(plugins: Loaded, kubeconfig: &Path, folder: &Path) -> Result<Self> {
        let Loaded {
            about: _,
            components,
            sandbox,
        } = plugins;
        log_to(&folder.join(LOG))?;
        let target = ClusterTarget {
            kubeconfig: Some(kubeconfig.to_owned()),
            context: None,
        };
        let client = connect(&target, USER_AGENT).await?;
        let host = Host::new(
            client,
            HostOptions {
                install_crds: InstallCrds::All,
                ..HostOptions::default()
            },
        );
        let handle = host.handle();
        let (stop, stopped) = oneshot::channel();
        let specs = components
            .into_iter()
            .map(|component| StaticPlugin {
                name: None,
                component,
                config: None,
                limits: Limits::default(),
                concurrency: None,
                mode: RunMode::Active,
                former_managers: Vec::new(),
            })
            .collect();
        let ended = tokio::spawn(async move {
            let stopped = async move {
                // Whoever holds the other end also stops the host by letting go of it.
                let _ = stopped.await;
            };
            Ok(host.run(specs, stopped).await?)
        });
        Ok(Self {
            handle,
            stop,
            ended,
            _sandbox: sandbox,
        })
    }

    /// A look into it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Resolves when the host ends by itself, with the reason.
    pub async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.ended).await {
            Ok(Ok(_)) => anyhow!("the host ended by itself"),
            Ok(Err(error)) => error.context("the host did not start"),
            Err(error) => anyhow!(error).context("the host broke down"),
        }
    }

    /// Stops it, and returns the abandoned work.
    pub async fn stop(self) -> Result<Vec<String>> {
        let Self {
            handle: _,
            stop,
            ended,
            _sandbox,
        } = self;
        if ended.is_finished() {
            return Ok(Vec::new());
        }
        let _ = stop.send(());
        let UnfinishedWork { abandoned, queued: _ } = ended.await.context("stop the host")??;
        Ok(abandoned
            .into_iter()
            .map(|(lane, object)| format!("{object} of {lane}"))
            .collect())
    }
}

fn log_to(path: &Path) -> Result<()> {
    let failed = || format!("write the host's log to {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    let file = File::create(path).with_context(failed)?;
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_env_filter(EnvFilter::new("info,pilothouse_runtime=debug,pilothouse_cluster=debug"))
        .with_writer(Mutex::new(file))
        .init();
    Ok(())
}
