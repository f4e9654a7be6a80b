//! Controls that scenarios need of a host ([`SteeredHost`]), and the host as a process of its own. Hosts within the
//! test's process are implemented elsewhere.

use std::{
    error::Error,
    fmt, fs,
    future::Future,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::{Duration, Instant},
};

use pilothouse_programs::supervisor::Supervisor;
use rustix::process::Signal;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use tempfile::TempDir;
use thiserror::Error;

use crate::cluster::Cluster;
use crate::scenario::Reference;

/// Resync interval of a host that is a process.
const RESYNC: Duration = Duration::from_secs(2);

/// Time that a host has to end after a request to stop.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Interval between two polls of an ending process.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The variable that filters a host's log.
const LOG_FILTER: &str = "PILOTHOUSE_LOG";

/// Mark of a Rust panic in a log.
const PANIC_MARK: &str = "panicked at";

/// Marks of log lines that a guest wrote, or that report its trap. Panics in them are the guest's own.
const GUEST_MARKS: [&str; 2] = ["pilothouse::plugin", "GuestTrap"];

/// Any error of a host.
pub type HostError = Box<dyn Error + Send + Sync>;

/// A plugin that a host is to run. A file has its name, or its name and configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct SteeredPlugin {
    /// The name of its component.
    pub name: String,
    /// Its configuration; absent: the plugin's defaults.
    pub configuration: Option<Value>,
    /// Limits of its calls that differ from the host's; absent: none.
    pub limits: Option<Value>,
}

/// A plugin with more than its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WholePlugin {
    name: String,
    configuration: Option<Value>,
    limits: Option<Value>,
}

/// Written by hand because serde reports no error within an untagged enum.
impl<'de> Deserialize<'de> for SteeredPlugin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;

        impl<'de> Visitor<'de> for Written {
            type Value = SteeredPlugin;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the plugin's name, or its `name` and `configuration` or `limits`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<SteeredPlugin, E> {
                Ok(SteeredPlugin::from(name))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SteeredPlugin, A::Error> {
                let WholePlugin {
                    name,
                    configuration,
                    limits,
                } = WholePlugin::deserialize(MapAccessDeserializer::new(map))?;
                Ok(SteeredPlugin {
                    name,
                    configuration,
                    limits,
                })
            }
        }

        deserializer.deserialize_any(Written)
    }
}

impl From<&str> for SteeredPlugin {
    fn from(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            configuration: None,
            limits: None,
        }
    }
}

/// A moment of a scenario at which nothing else happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// All steps have been run, and the scenario's objects still exist.
    Told,
    /// The scenario's objects are deleted, and the host still runs.
    Cleaned,
}

/// A host that scenarios start, stop and make look again.
pub trait SteeredHost: Send {
    /// Starts the host with the plugins of a scenario.
    fn start(
        &mut self,
        cluster: &Cluster,
        plugins: &[SteeredPlugin],
    ) -> impl Future<Output = Result<(), HostError>> + Send;

    /// Makes the host serve webhooks from its next start on. It keeps their certificates in this namespace, which is
    /// its own.
    fn serve_webhooks(&mut self, namespace: &str) -> Result<(), HostError> {
        Err(format!("the host, whose namespace is to be {namespace}, has no webhooks to serve").into())
    }

    /// Makes the host follow Plugin resources from its next start on, or not.
    fn follow_resources(&mut self, follows: bool) -> Result<(), HostError> {
        if follows {
            return Err("the host follows no Plugin resources".into());
        }
        Ok(())
    }

    /// Makes the host reconcile every object, as its periodic resync does.
    fn resync(&mut self) -> impl Future<Output = Result<(), HostError>> + Send;

    /// Stops the host in order, and returns the errors: tasks or processes that had to be ended by force, panics, a bad
    /// exit status.
    fn stop(&mut self) -> impl Future<Output = Result<Vec<String>, HostError>> + Send;

    /// A moment of a scenario at which nothing else happens, for who wants to look.
    fn pause(&mut self, at: Pause) -> impl Future<Output = Result<(), HostError>> + Send {
        let _ = at;
        async { Ok(()) }
    }

    /// Returns the host's explanation of an object, as its API serves it (docs/api.md); for a child, also that of its
    /// primary. Empty where the host has no API.
    fn explain(&self, object: &Reference) -> Vec<Value> {
        let _ = object;
        Vec::new()
    }

    /// Returns `true` if the host is idle, and `None` where it can't tell. The scenario checks the log of requests as
    /// well.
    fn is_idle(&self) -> Option<bool> {
        None
    }

    /// Returns the reason if the host ended although nobody stopped it.
    fn failure(&mut self) -> Option<String>;

    /// The last lines that the host has logged.
    fn log_tail(&self) -> String;
}

/// The host's own program, run as `pilothouse run`.
#[derive(Debug)]
pub struct ProcessHost {
    program: PathBuf,
    /// Folder with `<name>.wasm` of each plugin.
    plugins: PathBuf,
    arguments: Vec<String>,
    /// Arguments about webhooks, where they are to be served.
    webhooks: Vec<String>,
    follows_resources: bool,
    resync: Duration,
    log_filter: Option<String>,
    running: Option<Supervisor>,
    /// The files with the plugins' configurations, while it runs.
    configurations: Option<TempDir>,
    /// Log of the run before, once stopped.
    last_log: String,
}

/// Errors of steering the host's process.
#[derive(Debug, Error)]
pub enum ProcessHostError {
    /// The program has not been built.
    #[error("{} is not there: build it with `cargo build -p pilothouse`", .0.display())]
    NoProgram(PathBuf),
    /// A plugin has not been built.
    #[error("{} is not there: build it with `cargo xtask plugins`", .0.display())]
    NoPlugin(PathBuf),
    /// The scenario wants the host started twice.
    #[error("start the host: it runs already")]
    Running,
    /// The host is not running.
    #[error("steer the host: it does not run")]
    NotRunning,
    /// The process could not be started or reached.
    #[error("steer the host's process: {0}")]
    Process(#[from] std::io::Error),
}

impl ProcessHost {
    /// The name of the process and its log.
    const NAME: &'static str = "pilothouse";

    /// The host's program and the folder that has the components as `<name>.wasm`.
    pub fn new(program: impl Into<PathBuf>, plugins: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            plugins: plugins.into(),
            arguments: Vec::new(),
            webhooks: Vec::new(),
            follows_resources: false,
            resync: RESYNC,
            log_filter: None,
            running: None,
            configurations: None,
            last_log: String::new(),
        }
    }

    /// Adds arguments to `pilothouse run`.
    #[must_use]
    pub fn with_arguments(mut self, arguments: impl IntoIterator<Item = String>) -> Self {
        self.arguments.extend(arguments);
        self
    }

    /// Sets another resync interval than two seconds, in whole seconds.
    #[must_use]
    pub fn with_resync(mut self, resync: Duration) -> Self {
        self.resync = resync;
        self
    }

    /// Sets the log filter, in place of the host's default.
    #[must_use]
    pub fn with_log_filter(mut self, filter: impl Into<String>) -> Self {
        self.log_filter = Some(filter.into());
        self
    }

    /// All that the host has logged while it runs.
    pub fn log(&self) -> Option<String> {
        Some(self.running.as_ref()?.log(Self::NAME))
    }

    /// Ends the process as SIGKILL does.
    pub fn kill(&mut self) {
        if let Some(supervisor) = self.running.take() {
            self.last_log = supervisor.tail(Self::NAME);
        }
        self.configurations = None;
    }

    /// Stops the process as SIGSTOP does, or lets it go on.
    pub fn pause(&mut self, is_paused: bool) -> Result<(), ProcessHostError> {
        let running = self.running.as_mut().ok_or(ProcessHostError::NotRunning)?;
        let signal = if is_paused { Signal::STOP } else { Signal::CONT };
        Ok(running.signal(Self::NAME, signal)?)
    }

    /// The number of the process while it runs, for those who measure it.
    pub fn process_id(&self) -> Option<u32> {
        self.running.as_ref()?.process_id(Self::NAME)
    }

    fn command_line(
        &self,
        kubeconfig: &Path,
        plugins: &[SteeredPlugin],
        configurations: &Path,
    ) -> Result<Vec<String>, ProcessHostError> {
        let mut arguments = vec!["run".to_owned()];
        for SteeredPlugin {
            name,
            configuration,
            limits,
        } in plugins
        {
            // The process has another working directory.
            let path = std::path::absolute(self.plugins.join(format!("{name}.wasm")))?;
            if !path.is_file() {
                return Err(ProcessHostError::NoPlugin(path));
            }
            arguments.extend(["--plugin".to_owned(), path.display().to_string()]);
            for (option, document) in [("config", configuration), ("limits", limits)] {
                if let Some(document) = document {
                    let file = configurations.join(format!("{name}-{option}.json"));
                    fs::write(&file, document.to_string())?;
                    arguments.extend([format!("--{option}"), format!("{name}={}", file.display())]);
                }
            }
        }
        if self.follows_resources {
            let directory = std::path::absolute(&self.plugins)?;
            arguments.extend(["--plugin-dir".to_owned(), directory.display().to_string()]);
        }
        arguments.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
        arguments.push("--install-crds".to_owned());
        arguments.extend(["--resync".to_owned(), self.resync.as_secs().to_string()]);
        if !self
            .arguments
            .iter()
            .any(|argument| argument.starts_with("--metrics-address"))
        {
            // In a pod, hosts that run side by side would all serve metrics at the same port.
            arguments.push("--metrics-address=off".to_owned());
        }
        if !self
            .arguments
            .iter()
            .any(|argument| argument.starts_with("--api-address"))
        {
            arguments.push("--api-address=off".to_owned());
        }
        arguments.extend(self.webhooks.iter().chain(&self.arguments).cloned());
        let has = |option: &str| arguments.iter().any(|argument| argument.starts_with(option));
        if has("--plugin-dir") && !has("--identity") {
            // Plugins of tests have no accounts.
            arguments.push("--identity=none".to_owned());
        }
        Ok(arguments)
    }
}

impl SteeredHost for ProcessHost {
    async fn start(&mut self, cluster: &Cluster, plugins: &[SteeredPlugin]) -> Result<(), HostError> {
        if self.running.is_some() {
            return Err(ProcessHostError::Running.into());
        }
        let program = std::path::absolute(&self.program)?;
        if !program.is_file() {
            return Err(ProcessHostError::NoProgram(program).into());
        }
        let configurations = tempfile::Builder::new()
            .prefix("pilothouse-configurations-")
            .tempdir()?;
        let arguments = self.command_line(&cluster.host_kubeconfig()?, plugins, configurations.path())?;
        let folder = tempfile::Builder::new().prefix("pilothouse-host-").tempdir()?.keep();
        let mut supervisor = Supervisor::new(folder)?;
        let filter = self.log_filter.as_deref().map(|filter| (LOG_FILTER, filter));
        supervisor.spawn_with(Self::NAME, &program, &arguments, filter)?;
        self.running = Some(supervisor);
        self.configurations = Some(configurations);
        Ok(())
    }

    fn serve_webhooks(&mut self, namespace: &str) -> Result<(), HostError> {
        let address = free_address()?;
        self.webhooks = vec![
            format!("--webhook-url=https://{address}"),
            format!("--webhook-listen={address}"),
            format!("--webhook-secret={namespace}/webhooks"),
        ];
        Ok(())
    }

    fn follow_resources(&mut self, follows: bool) -> Result<(), HostError> {
        self.follows_resources = follows;
        Ok(())
    }

    async fn resync(&mut self) -> Result<(), HostError> {
        if self.running.is_none() {
            return Err(ProcessHostError::NotRunning.into());
        }
        // It looks again by itself all the time. Nothing is seen of it from outside, so there is nothing else to wait for.
        tokio::time::sleep(self.resync + self.resync / 2).await;
        Ok(())
    }

    async fn stop(&mut self) -> Result<Vec<String>, HostError> {
        let mut supervisor = self.running.take().ok_or(ProcessHostError::NotRunning)?;
        let mut left = Vec::new();
        // One that has ended already is told by its status and log.
        if supervisor.ended().is_none() {
            supervisor.signal(Self::NAME, Signal::TERM)?;
        }
        let asked = Instant::now();
        let status = loop {
            match supervisor.ended() {
                Some((_, status)) => break Some(status),
                None if asked.elapsed() > STOP_WITHIN => break None,
                None => tokio::time::sleep(LOOK_INTERVAL).await,
            }
        };
        let log = supervisor.log(Self::NAME);
        // One that was asked before it had said a word, and so before it could listen, is ended by the system.
        let had_begun = |status: ExitStatus| status.signal() != Some(Signal::TERM.as_raw()) || !log.is_empty();
        match status {
            None => left.push(format!("it did not end within {} s of SIGTERM", STOP_WITHIN.as_secs())),
            Some(status) if !status.success() && had_begun(status) => left.push(format!("it ended with {status}")),
            Some(_) => {}
        }
        left.extend(
            log.lines()
                .filter(|line| line.contains(PANIC_MARK) && !GUEST_MARKS.iter().any(|mark| line.contains(mark)))
                .map(|line| format!("it panicked: {line}")),
        );
        self.last_log = supervisor.tail(Self::NAME);
        self.configurations = None;
        Ok(left)
    }

    fn failure(&mut self) -> Option<String> {
        let (_, status) = self.running.as_mut()?.ended()?;
        Some(format!("the host ended by itself ({status})"))
    }

    fn log_tail(&self) -> String {
        self.running
            .as_ref()
            .map_or_else(|| self.last_log.clone(), |running| running.tail(Self::NAME))
    }
}

/// Returns an address of this machine at which no process listens, for callers that need it before they listen.
pub fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
