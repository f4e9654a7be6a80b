//! `pilothouse run`, which is all of `pilothouse-host`: its options, and its reaction to signals.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use pilothouse_cluster::Client;
use pilothouse_cluster::connect::{ClusterTarget, connect_bare, connect_through};
use pilothouse_cluster::error::chain;
use pilothouse_cluster::fence::WriteFence;
use pilothouse_cluster::write::identity::AccountTokens;
use pilothouse_core::kubernetes::selector::Selector;
use pilothouse_core::plugin::manifest::is_label;
use pilothouse_core::reads::reach::MAX_SCOPES;
use pilothouse_metrics::Metrics;
use pilothouse_runtime::{Host, HostOptions, Identity, InstallCrds, Library, UnfinishedWork};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::artifact::host::options::ArtifactArguments;
use crate::options::api::ApiArguments;
use crate::options::election::ElectionArguments;
use crate::options::identity::IdentityMode;
use crate::options::log_fields::OneLine;
use crate::options::metrics::{MetricsArguments, Monitoring};
use crate::options::settings;
use crate::options::traces::TraceArguments;
use crate::options::webhooks::WebhookArguments;
use crate::plugins::{self, CacheArguments, NamedFile, WasiGrant};
use crate::{Logged, WrongCommandLine};

/// User agent of requests to an API server.
pub const USER_AGENT: &str = concat!("pilothouse/", env!("CARGO_PKG_VERSION"));

/// Idle time after which the host returns memory to the kernel.
const REST: Duration = Duration::from_secs(5);

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse run --install-crds                                  # the plugins of the cluster's Plugin resources
  pilothouse run --plugin-dir target/plugins                     # the same, with components from this folder
  pilothouse run --plugin web.wasm --config web=web.yaml         # one plugin, without a Plugin resource
  pilothouse run --leader-election --namespace pilothouse-system # one of several replicas
  pilothouse run --watch-namespaces shop,stage --identity impersonate

SIGTERM and Ctrl-C end the host in order: running reconciles have the time of --grace.

Exit code: 0 after a signal, 1 if the host cannot start or cannot go on, 2 if the command line is wrong.";

/// `pilothouse run`, and `pilothouse-host`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RunCommand {
    /// A plugin's component: a file, or an OCI artifact as oci://HOST/REPOSITORY:TAG, oci-layout:DIRECTORY:TAG or
    /// oci-archive:FILE:TAG. NAME=FILE overrides the name in its manifest. May be repeated. Without this option, the host
    /// runs the plugins of the cluster's Plugin resources
    #[arg(long = "plugin", value_name = "[NAME=]FILE")]
    plugins: Vec<NamedFile>,

    /// The directory of the Plugin resources' components; spec.source.file is relative to it
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "plugins",
        conflicts_with = "plugins"
    )]
    plugin_dir: PathBuf,

    /// Run only the Plugin resources with these labels, such as `team=shop` or `tier in (a,b),!legacy`. Several hosts of one
    /// cluster have to select different Plugins
    #[arg(long, value_name = "SELECTOR", conflicts_with = "plugins", value_parser = Selector::parse)]
    plugin_selector: Option<Selector>,

    /// A plugin's configuration, YAML or JSON. May be repeated
    #[arg(long = "config", value_name = "PLUGIN=FILE", requires = "plugins")]
    configs: Vec<NamedFile>,

    /// A plugin's limits, YAML or JSON; limits that the file omits keep their defaults. May be repeated
    #[arg(long, value_name = "PLUGIN=FILE", requires = "plugins")]
    limits: Vec<NamedFile>,

    /// What a plugin of --plugin may import of WASI, or all of them without PLUGIN: `none` or `inert`, which links the interfaces
    /// of WASI 0.2 and gives access to nothing. May be repeated
    #[arg(long, value_name = "[PLUGIN=]GRANT", requires = "plugins")]
    wasi: Vec<WasiGrant>,

    /// Install the CRDs that the plugins include and, without --plugin, the CRD of Plugin; with =host the CRD of Plugin alone,
    /// as where `pilothouse install` and `upgrade` apply those of plugins
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    install_crds: Option<CrdsToInstall>,

    /// See and act in these namespaces only, so that Roles there are enough (default: all). A Plugin without spec.namespaces
    /// is for all of them. May be repeated; at most 32
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = namespace)]
    watch_namespaces: Vec<String>,

    /// Resync period: seconds after which an object is reconciled even if nothing has changed
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    resync: u64,

    /// In whose name the host writes for a plugin, and reads live objects for it: `none` is its own; with `impersonate` and
    /// `token` it acts as the plugin's ServiceAccount in --namespace (default: that of the pod, else pilothouse-system), reviews
    /// what that account may do, and needs the right to impersonate it or to request tokens for it (default: `impersonate`, and
    /// `none` with --plugin)
    #[arg(long, value_enum)]
    identity: Option<IdentityMode>,

    /// Maximum number of concurrent reconciles
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: u16,

    /// Number of seconds that running reconciles have to finish after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,

    /// Format of log lines; the environment variable PILOTHOUSE_LOG filters them, as in `info,pilothouse_runtime=debug`
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,

    #[command(flatten)]
    metrics: MetricsArguments,

    #[command(flatten)]
    api: ApiArguments,

    #[command(flatten)]
    traces: TraceArguments,

    #[command(flatten)]
    cluster: ClusterArguments,

    #[command(flatten)]
    cache: CacheArguments,

    #[command(flatten)]
    artifacts: ArtifactArguments,

    #[command(flatten)]
    election: ElectionArguments,

    #[command(flatten)]
    webhooks: WebhookArguments,
}

/// Which cluster to connect to.
#[derive(Args, Clone)]
pub struct ClusterArguments {
    /// The kubeconfig file (default: KUBECONFIG, ~/.kube/config, or the service account of the pod)
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig (default: its current context)
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArguments {
    /// Returns the cluster that the options name.
    pub fn target(self) -> ClusterTarget {
        let Self { kubeconfig, context } = self;
        ClusterTarget { kubeconfig, context }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum CrdsToInstall {
    /// That of Plugin
    Host,
    /// Those of the plugins, too
    All,
}

impl From<CrdsToInstall> for InstallCrds {
    fn from(which: CrdsToInstall) -> Self {
        match which {
            CrdsToInstall::Host => Self::Host,
            CrdsToInstall::All => Self::All,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl RunCommand {
    /// Runs until a signal arrives. With `--log-format json` an error is a line of the log, too.
    pub fn execute(self) -> anyhow::Result<()> {
        let format = self.log_format;
        let ended = start_log(format).and_then(|()| self.run());
        let is_in_log = format == LogFormat::Json && tracing::enabled!(tracing::Level::ERROR);
        ended.map_err(|error| {
            if !is_in_log {
                return error;
            }
            tracing::error!(problem = chain(&*error), "the host ends");
            error.context(Logged)
        })
    }

    fn run(self) -> anyhow::Result<()> {
        pilothouse_sandbox::return_large_allocations();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            // One thread for requests and watches: their work is short, with several threads each request would be
            // handed to and fro between them, and plugins' calls have threads of their own.
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start the threads of the host")?;
        // A task of its own: on this thread, each wake-up of the main loop would be a switch between threads.
        let ended = runtime
            .block_on(runtime.spawn(self.run_host()))
            .context("the host ended in the middle; this is a bug of the host")?;
        // A thread that hangs in a file system, or an abandoned call, must not keep the process.
        runtime.shutdown_background();
        ended
    }

    #[expect(clippy::too_many_lines, reason = "a start from its beginning to its end")]
    async fn run_host(self) -> anyhow::Result<()> {
        let Self {
            plugins,
            plugin_dir,
            plugin_selector,
            configs,
            limits,
            wasi,
            install_crds,
            watch_namespaces,
            resync,
            identity,
            workers,
            grace,
            log_format: _,
            metrics,
            api,
            traces,
            cluster,
            cache,
            artifacts,
            election,
            webhooks,
        } = self;
        // From here on a signal ends the host in order, however long its plugins take to load.
        let stop = stopped()?;
        tokio::pin!(stop);
        // Bound first: an address in use is reported before any request is sent, and kubelet sees a starting host.
        let Monitoring {
            metrics,
            heartbeat,
            endpoints,
            server: _server,
        } = metrics.serve()?;
        let served_api = api.serve()?;
        let (exporter, traces) = traces.open()?;
        let watch_namespaces = seen(watch_namespaces).map_err(WrongCommandLine::of)?;
        let sandbox = cache.sandbox()?;
        let artifacts = artifacts.open(&cache.directory()?)?;
        let by_resources = plugins.is_empty();
        let identity = identity.unwrap_or(if by_resources {
            IdentityMode::Impersonate
        } else {
            IdentityMode::None
        });
        let accounts = identity.namespace(artifacts.namespace.as_deref(), by_resources);
        let accounts = accounts.map_err(WrongCommandLine::of)?;
        let workers = usize::from(workers);
        let mut webhooks = webhooks.options().map_err(WrongCommandLine::of)?;
        let election = election.options(artifacts.namespace.as_deref());
        let election = election.map_err(WrongCommandLine::of)?;
        let wanted = plugins.len();
        let fence = election
            .as_ref()
            .map_or_else(WriteFence::default, |election| election.fence.clone());
        let (client, identity) = connect(&cluster.target(), &fence, &metrics, identity, accounts).await?;
        let (plugins, _holds) = tokio::select! {
            fetched = artifacts.fetch(plugins, &client) => fetched?,
            () = &mut stop => return Ok(()),
        };
        let specs = plugins::load(&sandbox, &plugins, &configs, &limits, &wasi)?;
        if let Some(webhooks) = &mut webhooks {
            webhooks.has_unknown_plugins = specs.len() < wanted;
        }
        let options = HostOptions {
            install_crds: install_crds.map_or(InstallCrds::Nothing, InstallCrds::from),
            watch_namespaces,
            resync: Duration::from_secs(resync),
            workers,
            plugin_workers: workers.div_ceil(2),
            grace: Duration::from_secs(grace),
            instance: settings::instance(),
            namespace: artifacts.namespace.clone(),
            plugin_selector: plugin_selector.unwrap_or_default(),
            election,
            identity,
            webhooks,
            metrics,
            heartbeat,
            traces,
            allow_recording: served_api.allow_recording,
            give_back_after: Some(REST),
            ..HostOptions::default()
        };
        let store = artifacts.store(&plugin_dir, &client)?;
        let host = Host::new(client, options);
        endpoints.set_host(host.handle());
        served_api.set_host(&host.handle());
        served_api.set_artifacts(artifacts.for_others()?);
        let left = if by_resources {
            let directory = plugin_dir.clone();
            // Not awaited: the directory may be on a mount that hangs.
            tokio::task::spawn_blocking(move || say_if_missing(&directory));
            let library = Library {
                sandbox,
                directory: plugin_dir,
                artifacts: Some(store.clone()),
            };
            tokio::select! {
                left = host.run_resources(library, stop.as_mut()) => left?,
                () = store.follow_trust() => unreachable!("the trust file is followed for ever"),
            }
        } else {
            host.run(specs, stop.as_mut()).await?
        };
        say_what_is_left(&left);
        if let Some(exporter) = exporter {
            exporter.finish().await;
        }
        Ok(())
    }
}

/// Returns the client for the host's own requests, and the identity for those of plugins. No request is sent yet.
async fn connect(
    target: &ClusterTarget,
    fence: &WriteFence,
    metrics: &Metrics,
    mode: IdentityMode,
    accounts: Option<String>,
) -> anyhow::Result<(Client, Identity)> {
    let client = connect_through(target, USER_AGENT, fence, metrics.requests()).await?;
    let tokens = if mode == IdentityMode::Token {
        let bare = connect_bare(target, USER_AGENT, fence, metrics.requests()).await?;
        Some(AccountTokens::new(bare))
    } else {
        None
    };
    let identity = accounts.map_or(Identity::Host, |namespace| Identity::ServiceAccounts {
        namespace,
        tokens,
    });
    Ok((client, identity))
}

/// Returns the namespaces that the host watches.
fn seen(namespaces: Vec<String>) -> anyhow::Result<BTreeSet<String>> {
    let namespaces: BTreeSet<String> = namespaces.into_iter().collect();
    ensure!(
        namespaces.len() <= MAX_SCOPES,
        "--watch-namespaces names {} namespaces, and each takes watches of its own; name at most {MAX_SCOPES}, or grant the host \
         all namespaces and leave the option out",
        namespaces.len()
    );
    Ok(namespaces)
}

fn namespace(text: &str) -> Result<String, String> {
    if is_label(text) {
        return Ok(text.to_owned());
    }
    Err("the name of a namespace is a DNS label: a-z, 0-9 and '-'".to_owned())
}

fn say_if_missing(directory: &Path) {
    if !directory.is_dir() {
        let directory = directory.display();
        tracing::warn!(%directory, "there is no such directory for components; make it, or give another with --plugin-dir");
    }
}

fn start_log(format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(settings::log_filter()).context("PILOTHOUSE_LOG is not a filter");
    // What is wrong with it is logged, too.
    let (filter, wrong) = match filter {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    // Already filtered by the Plugin's annotation.
    let chosen = "pilothouse::plugin::chosen=trace"
        .parse()
        .context("the host's own filter is none")?;
    let filter = filter.add_directive(chosen);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines
            .fmt_fields(OneLine)
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .init(),
        LogFormat::Json => {
            lines.json().init();
            std::panic::set_hook(Box::new(
                |panic| tracing::error!(%panic, "a thread panicked; this is a bug of the host"),
            ));
        }
    }
    wrong.map_or(Ok(()), Err)
}

/// Resolves at the first SIGTERM or SIGINT; the second ends the process at once.
fn stopped() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; a second signal stops at once");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(1);
        });
    })
}

fn say_what_is_left(left: &UnfinishedWork) {
    let UnfinishedWork { abandoned, queued } = left;
    for (lane, object) in abandoned {
        tracing::warn!(lane, object, "abandoned a running reconcile; the next start repeats it");
    }
    tracing::info!(abandoned = abandoned.len(), queued, "stopped");
}
