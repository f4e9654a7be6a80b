//! One replica: a process of the host, its memory, and its `/metrics`.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use pilothouse_end_to_end::components;
use pilothouse_end_to_end::scrape::{Scrape, get};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::host::{ProcessHost, SteeredHost as _, SteeredPlugin, free_address};
use tempfile::TempDir;

use crate::Outcome;
use crate::objects::PLUGINS;

/// An interval that never comes.
const NEVER: Duration = Duration::from_hours(24);

/// A replica, which runs or does not.
pub struct Replica {
    host: ProcessHost,
    metrics: SocketAddr,
    _folder: TempDir,
}

/// Memory of a replica, and its parts.
pub struct Figures {
    /// Memory in MiB, with shared pages divided among the processes that share them.
    pub proportional: f64,
    /// Memory in MiB, with all that is shared.
    pub resident: f64,
    /// Objects in the cache, by kind.
    pub cached: BTreeMap<String, u64>,
    /// Shards that it holds, if the work is divided.
    pub shards: Option<u64>,
    pub leads: bool,
}

impl Replica {
    /// One with a program and a cache of its own: replicas run on different nodes, where they share no pages.
    pub fn new(profile: &str, more: &[&str]) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("pilothouse-replica-").tempdir()?;
        let program = folder.path().join("pilothouse");
        let built = components::root().join("target").join(profile).join("pilothouse");
        let _ = fs::copy(built, &program)?;
        let metrics = free_address()?;
        let own = [
            format!("--cache-dir={}", folder.path().join("cache").display()),
            format!("--metrics-address={metrics}"),
            "--namespace=default".to_owned(),
        ];
        let more = more.iter().map(|argument| (*argument).to_owned());
        let host = ProcessHost::new(program, components::folder())
            .with_resync(NEVER)
            .with_arguments(own.into_iter().chain(more));
        Ok(Self {
            host,
            metrics,
            _folder: folder,
        })
    }

    pub async fn start(&mut self, cluster: &Cluster) -> Outcome<()> {
        let plugins = PLUGINS.map(SteeredPlugin::from);
        self.host.start(cluster, &plugins).await
    }

    /// Ends it in order.
    pub async fn stop(&mut self) -> Outcome<()> {
        let left = self.host.stop().await?;
        if left.is_empty() {
            return Ok(());
        }
        Err(left.join("; ").into())
    }

    /// Fails if it has ended by itself.
    pub fn runs(&mut self) -> Outcome<()> {
        match self.host.failure() {
            Some(failure) => Err(format!("{failure}\n{}", self.host.log_tail()).into()),
            None => Ok(()),
        }
    }

    pub fn log_tail(&self) -> String {
        self.host.log_tail()
    }

    /// Reads its `/metrics`; empty until it serves them.
    pub fn scrape(&self) -> Outcome<Scrape> {
        match get(self.metrics, "/metrics") {
            Ok((_, text)) => Ok(Scrape(text)),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(Scrape(String::new())),
            Err(error) => Err(error.into()),
        }
    }

    pub fn figures(&self) -> Outcome<Figures> {
        let id = self.host.process_id().ok_or("the host does not run")?;
        let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup"))?;
        let mebibytes = |name: &str| -> Outcome<f64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name));
            let kibibytes: f64 = line.ok_or(name)?.trim().trim_end_matches(" kB").parse()?;
            Ok(kibibytes / 1024.0)
        };
        let scrape = self.scrape()?;
        let mut cached = BTreeMap::new();
        for line in scrape.0.lines() {
            let sample = line.strip_prefix("pilothouse_cached_objects{kind=\"");
            if let Some((kind, count)) = sample.and_then(|rest| rest.split_once("\"} ")) {
                cached.insert(kind.to_owned(), count.parse()?);
            }
        }
        Ok(Figures {
            proportional: mebibytes("Pss:")?,
            resident: mebibytes("Rss:")?,
            cached,
            shards: scrape.count("pilothouse_shards_held", &[]),
            leads: scrape.count("pilothouse_leader", &[]) == Some(1),
        })
    }
}
