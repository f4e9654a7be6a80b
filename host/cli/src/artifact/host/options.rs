//! The host's options for OCI artifacts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use pilothouse_artifact::{ArtifactCache, Client, Fetcher, Hold, Limits, Replicas, TrustSource};
use pilothouse_cluster::Client as ClusterClient;

use super::command_line::{PATIENCE, fetch_all};
use crate::WrongCommandLine;
use crate::artifact::host::replicas::{CachedArtifacts, ReplicaArguments, ReplicaService};
use crate::artifact::host::store::HostArtifacts;
use crate::artifact::registries::configuration;
use crate::options::settings;
use crate::plugins::NamedFile;

/// The folder of artifacts in the cache directory.
const FOLDER: &str = "artifacts";

/// The largest component that the host downloads, in bytes: the sandbox would take no larger one.
const LARGEST_COMPONENT: u64 = 64 << 20;

/// Where artifacts come from, and which are trusted.
#[derive(Args)]
pub struct ArtifactArguments {
    /// The trust policy for OCI artifacts: which repositories are allowed, and whose signatures they need (YAML or JSON, as
    /// the page "OCI artifacts" of the documentation has it). With Plugin resources, the host reads it again when it changes. Without this option, every artifact is accepted, and
    /// reported as unsigned
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,

    /// How registries are reached: certificate authorities, mirrors, plain HTTP (YAML or JSON, as the page "OCI artifacts" of the documentation has it;
    /// default: $XDG_CONFIG_HOME/pilothouse/registries.yaml or ~/.config/pilothouse/registries.yaml, if it exists)
    #[arg(long, value_name = "FILE")]
    registries: Option<PathBuf>,

    /// The host's namespace: of the Secrets that spec.source.oci.pullSecret names, and of the plugins' ServiceAccounts (default:
    /// the namespace of the pod)
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// The size that the cache of artifacts may reach, in MiB. What is in use is never removed; if it fills the cache, nothing
    /// new is fetched
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    artifact_cache_size: u64,

    #[command(flatten)]
    replicas: ReplicaArguments,
}

/// Configuration that the options and their files amount to.
pub struct Artifacts {
    client: Client,
    trust: Arc<TrustSource>,
    folder: PathBuf,
    cache_bytes: u64,
    replicas: Option<ReplicaService>,
    /// The host's namespace, if it is known.
    pub namespace: Option<String>,
}

impl ArtifactArguments {
    /// Reads the files that the options name.
    pub fn open(self, cache_directory: &Path) -> anyhow::Result<Artifacts> {
        let Self {
            trust,
            registries,
            namespace,
            artifact_cache_size,
            replicas,
        } = self;
        let trust = match &trust {
            Some(file) => TrustSource::open(file)?,
            None => TrustSource::accept_unsigned(),
        };
        let registries = configuration(registries.as_deref())?;
        if namespace.as_deref() == Some("") {
            bail!("--namespace is empty; give the namespace that the host runs in");
        }
        let namespace = namespace.or_else(settings::pod_namespace);
        let limits = Limits {
            blob: LARGEST_COMPONENT,
            ..Limits::default()
        };
        Ok(Artifacts {
            client: Client::new(registries, limits).through(settings::registry_proxy()?),
            trust: Arc::new(trust),
            folder: cache_directory.join(FOLDER),
            cache_bytes: artifact_cache_size << 20,
            replicas: replicas.open(namespace.as_deref()).map_err(WrongCommandLine::of)?,
            namespace,
        })
    }
}

impl Artifacts {
    fn fetcher(&self, client: Client, replicas: Option<Arc<dyn Replicas>>) -> anyhow::Result<Fetcher> {
        let cache = ArtifactCache::open(&self.folder, self.cache_bytes)?;
        Ok(Fetcher::new(client, cache, self.trust.clone()).with_replicas(replicas))
    }

    fn others(&self, cluster: &ClusterClient) -> Option<Arc<dyn Replicas>> {
        Some(self.replicas.as_ref()?.through(cluster))
    }

    /// Returns what other replicas may take over.
    pub fn for_others(&self) -> anyhow::Result<Arc<CachedArtifacts>> {
        Ok(Arc::new(CachedArtifacts(self.fetcher(self.client.clone(), None)?)))
    }

    /// Makes a store for Plugin resources.
    pub fn store(&self, plugin_directory: &Path, cluster: &ClusterClient) -> anyhow::Result<Arc<HostArtifacts>> {
        Ok(Arc::new(HostArtifacts::new(
            self.fetcher(self.client.for_plugins(&settings::proxies()), self.others(cluster))?,
            plugin_directory.to_owned(),
        )))
    }

    /// Fetches the plugins that the command line names by reference, and puts their files in place of the references. A
    /// plugin that cannot be fetched is logged and left out. The returned holds keep the files in the cache.
    pub async fn fetch(
        &self,
        plugins: Vec<NamedFile>,
        cluster: &ClusterClient,
    ) -> anyhow::Result<(Vec<NamedFile>, Vec<Hold>)> {
        if plugins.iter().all(|plugin| plugin.reference().is_none()) {
            return Ok((plugins, Vec::new()));
        }
        Ok(fetch_all(
            Arc::new(self.fetcher(self.client.clone(), self.others(cluster))?),
            plugins,
            PATIENCE,
        )
        .await)
    }
}
