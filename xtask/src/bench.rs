//! Command lines of the benchmarks. Each measurement is in the `benches/` of its crate.
//!
//! Findings that explain the figures:
//!
//! - Memory (`host --only plugins`): an awake plugin takes 270 KiB before its first call and 420 KiB after it, nearly all of it pages of
//!   its code, because the kernel maps 64 KiB around each page that is touched. A plugin at rest takes 31 KiB where there are 100; the
//!   sandbox accounts for 9 of these. After a burst (`--only lifetime`) the heap is much larger than that of a host that starts with the
//!   same objects, and free pages do not explain it: `malloc_trim` returns 5 %.
//! - Processor (`--only lifetime`): for new objects the host takes 1.7 to 2 times the time of a client that only writes. Watch events, six for
//!   each object, take a third, the requests a quarter, the plan and the responses a fifth. The C library's allocator takes an eighth of
//!   all: mimalloc took an eighth less time and twice the memory. A single-threaded runtime took as long.
//! - Neighbours (`--only neighbours`): while one plugin handles 50 new objects per second, the p99 of another rises with the load of the
//!   machine, but not more than that of a client that makes the same writes without a host.
//! - A request rate of about 200 writes per second is what the API server accepts, so `--objects 10000` takes minutes for each part.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::author_bench::{self, AuthorOptions};
use crate::{plugins, programs};

/// Which benchmark to run.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum BenchOptions {
    /// Measure how long an author waits: from `pilothouse new` to green tests, `render`, `check`, and a swap in `dev`.
    Author(AuthorOptions),
    /// Compare reconciles in the sandbox, each on a fresh instance, with the same logic compiled natively.
    Call(CallOptions),
    /// Compare the host, on real control planes, with a client that makes the same writes and nothing else.
    Host(HostBenchOptions),
    /// Time the creation of a ReverseProxy on a real API server: with and without the host's webhooks, and with a long
    /// work queue.
    Admission(AdmissionOptions),
    /// Compare plugins from OCI artifacts with the same plugins from files, on a real API server and with a real registry:
    /// until one is ready, a push, a start, and memory.
    Artifacts(ArtifactsOptions),
    /// Measure an idle host on a real control plane: its memory, and the requests of a resync and of a restart.
    Idle,
    /// Compare an apply as the host with the same apply by impersonation, and measure the review of a right, on a real API
    /// server.
    Identity(TimesOptions<500>),
    /// Measure how long nobody leads after the leader was killed, and after it was stopped in order, on a real API server.
    Handover(TimesOptions<3>),
    /// Measure the size and the time of a scrape of /metrics.
    Scrape(ScrapeOptions),
    /// Measure the memory of one replica with the five plugins, and of each of four replicas with --shards, on a real API
    /// server.
    Memory(MemoryOptions),
}

/// How often something is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct TimesOptions<const TIMES: usize> {
    /// Number of measurements.
    #[arg(long, value_name = "NUMBER", default_value_t = NonZeroUsize::new(TIMES).expect("it is not zero"))]
    pub times: NonZeroUsize,
}

/// Options of `bench scrape`.
#[derive(Clone, Debug, clap::Args)]
pub struct ScrapeOptions {
    /// Number of plugins.
    #[arg(long, value_name = "NUMBER", default_value = "50")]
    pub plugins: NonZeroUsize,
}

/// Options of `bench memory`.
#[derive(Clone, Debug, clap::Args)]
pub struct MemoryOptions {
    /// Number of primaries of all plugins together; they are in 100 namespaces.
    #[arg(long, value_name = "NUMBER", default_value = "10000")]
    pub objects: NonZeroUsize,
    /// Measure with an API server that does not divide lists and watches, as they are without the feature gate
    /// ShardedListAndWatch.
    #[arg(long)]
    pub without_gate: bool,
    /// Measure the host as released, with link-time optimisation; the build takes long.
    #[arg(long)]
    pub dist: bool,
}

/// Options of `bench call`.
#[derive(Clone, Debug, clap::Args)]
pub struct CallOptions {
    /// Measure only this controller, named like its sample in deploy/samples; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Number of sandboxed calls, and of native calls, in one repetition.
    #[arg(long, value_name = "NUMBER", default_value = "20000")]
    pub calls: NonZeroUsize,
    /// Number of repetitions; the output shows the minimum, the median and the maximum.
    #[arg(long, value_name = "NUMBER", default_value = "5")]
    pub repetitions: NonZeroUsize,
}

/// Options of `bench admission`.
#[derive(Clone, Debug, clap::Args)]
pub struct AdmissionOptions {
    /// Number of reconciles that are queued during the second half.
    #[arg(long, value_name = "NUMBER", default_value = "10000")]
    pub queued: NonZeroUsize,
    /// Number of repetitions; the output shows the minimum, the median and the maximum.
    #[arg(long, value_name = "NUMBER", default_value = "5")]
    pub repetitions: NonZeroUsize,
}

/// Options of `bench artifacts`.
#[derive(Clone, Debug, clap::Args)]
pub struct ArtifactsOptions {
    /// Number of distinct plugins of a host that starts.
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    pub plugins: NonZeroUsize,
    /// Number of repetitions; the output shows the minimum, the median and the maximum.
    #[arg(long, value_name = "NUMBER", default_value = "5")]
    pub repetitions: NonZeroUsize,
}

/// Options of `bench host`.
#[derive(Clone, Debug, clap::Args)]
pub struct HostBenchOptions {
    /// Measure only this part; may be repeated.
    #[arg(long, value_enum, value_name = "PART")]
    pub only: Vec<HostPart>,
    /// Number of Bundle objects to create and reconcile.
    #[arg(long, value_name = "NUMBER", default_value = "2000")]
    pub objects: NonZeroUsize,
    /// Number of distinct idle plugins.
    #[arg(long, value_name = "NUMBER", default_value = "100")]
    pub plugins: NonZeroUsize,
    /// Number of runs of each comparison; the output shows the minimum, the median and the maximum.
    #[arg(long, value_name = "NUMBER", default_value = "3")]
    pub repetitions: NonZeroUsize,
    /// Measure the host as released, with link-time optimisation; the build takes long.
    #[arg(long)]
    pub dist: bool,
}

/// A part of the host's benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HostPart {
    /// Memory of distinct idle plugins.
    Plugins,
    /// Memory of cached objects.
    Cache,
    /// The cost of reconciling new objects.
    Lifetime,
    /// Resyncs and restarts of a converged cluster, simulated and real.
    Restart,
    /// A change of one object that all other objects depend on, simulated and real.
    Dependents,
    /// A plugin that shares the host with a misbehaving plugin.
    Neighbours,
}

/// Builds the programs of a benchmark, runs it, and prints its figures.
pub fn run(options: &BenchOptions) -> Result<()> {
    let needed: &[&str] = match options {
        BenchOptions::Call(_) | BenchOptions::Memory(_) => &[
            "app-service",
            "ecs-binding",
            "reverse-proxy",
            "service-ingress",
            "stream-ingress",
        ],
        BenchOptions::Idle | BenchOptions::Handover(_) => &["app-service"],
        BenchOptions::Author(_) | BenchOptions::Identity(_) => &[],
        BenchOptions::Scrape(_) => &["service-ingress"],
        BenchOptions::Admission(_) => &["hostile", "reverse-proxy"],
        BenchOptions::Artifacts(_) => &["app-service", "service-ingress"],
        BenchOptions::Host(_) => &["bundle", "hostile", "service-ingress"],
    };
    // Without a name, all would be built.
    if !needed.is_empty() {
        plugins::build(&plugins::PluginsOptions {
            only: needed.iter().map(|name| (*name).to_owned()).collect(),
            ..plugins::PluginsOptions::default()
        })?;
    }
    match options {
        BenchOptions::Author(options) => author_bench::run(options),
        BenchOptions::Call(CallOptions {
            only,
            calls,
            repetitions,
        }) => {
            let mut arguments = vec![calls.to_string(), repetitions.to_string()];
            arguments.extend(only.iter().cloned());
            bench("pilothouse-sandbox", "call", &arguments)
        }
        BenchOptions::Idle => steer("release", "idle", &[], &[]),
        // What takes the time is the API server, or waiting.
        BenchOptions::Identity(TimesOptions { times }) => steer("dev", "identity", &[times.to_string()], &[]),
        BenchOptions::Handover(TimesOptions { times }) => steer("dev", "handover", &[times.to_string()], &[]),
        BenchOptions::Scrape(ScrapeOptions { plugins }) => {
            let example = [
                "run",
                "--quiet",
                "--release",
                "--package",
                "pilothouse-end-to-end",
                "--example",
                "scrape",
            ];
            let status = crate::cargo()
                .args(example)
                .args(["--", &plugins.to_string()])
                .status()
                .context("cannot start cargo")?;
            ensure!(status.success(), "cargo {} failed", example.join(" "));
            Ok(())
        }
        BenchOptions::Memory(MemoryOptions {
            objects,
            without_gate,
            dist,
        }) => {
            let profile = if *dist { "dist" } else { "release" };
            let gate = if *without_gate { "off" } else { "on" };
            let arguments = [profile.to_owned(), objects.to_string(), gate.to_owned()];
            steer(profile, "memory", &arguments, &[])
        }
        BenchOptions::Admission(AdmissionOptions { queued, repetitions }) => {
            let (queued, repetitions) = (queued.to_string(), repetitions.to_string());
            // As many plugins as it takes of its own.
            let arguments = [
                "release".to_owned(),
                queued,
                "0".to_owned(),
                repetitions,
                "admission".to_owned(),
            ];
            steer("release", "host", &arguments, &[])
        }
        BenchOptions::Artifacts(ArtifactsOptions { plugins, repetitions }) => {
            let (plugins, repetitions) = (plugins.to_string(), repetitions.to_string());
            let arguments = [
                "release".to_owned(),
                "0".to_owned(),
                plugins,
                repetitions,
                "artifacts".to_owned(),
            ];
            steer("release", "host", &arguments, &programs::go_programs()?)
        }
        BenchOptions::Host(HostBenchOptions {
            only,
            objects,
            plugins,
            repetitions,
            dist,
        }) => {
            let profile = if *dist { "dist" } else { "release" };
            let mut arguments = vec![profile.to_owned()];
            arguments.extend([objects, plugins, repetitions].map(ToString::to_string));
            let parts = only.iter().filter_map(clap::ValueEnum::to_possible_value);
            arguments.extend(parts.map(|part| part.get_name().to_owned()));
            steer(profile, "host", &arguments, &[])
        }
    }
}

/// The host, and the baseline client that it is compared with, built alike and steered by a program whose own speed does
/// not matter. The environment says where it finds programs of others.
fn steer(profile: &str, example: &str, arguments: &[String], environment: &[(&str, PathBuf)]) -> Result<()> {
    let measured = [
        "build",
        "--profile",
        profile,
        "--package",
        "pilothouse",
        "--package",
        "pilothouse-baseline",
    ];
    let status = crate::cargo().args(measured).status().context("cannot start cargo")?;
    ensure!(status.success(), "cargo {} failed", measured.join(" "));
    let mut steering = crate::example(example)?;
    let status = steering.args(arguments).envs(environment.iter().cloned()).status();
    let status = status.context("cannot start the benchmark")?;
    ensure!(status.success(), "the benchmark {example} failed ({status})");
    Ok(())
}

/// One benchmark of a crate, built as released.
fn bench(package: &str, name: &str, arguments: &[String]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask stands in a workspace")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(root)
        .args(["bench", "--quiet", "--package", package, "--bench", name, "--"])
        .args(arguments)
        .status()
        .context("cannot start cargo")?;
    ensure!(
        status.success(),
        "the benchmark {name} of {package} ended with {status}"
    );
    Ok(())
}
