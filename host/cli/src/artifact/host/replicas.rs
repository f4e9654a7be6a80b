//! Takes artifacts over from other replicas, and gives them, through the API server's proxy to the host's own Service:
//! so a replica needs no address of another one, and no port that only replicas use. Replicas that are not ready get no
//! questions from a Service.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pilothouse_artifact::{FetchError, Fetcher, ReplicaAnswer, ReplicaQuestion, Replicas};
use pilothouse_cluster::Client;
use pilothouse_cluster::connect::host_proxy::{HostService, ProxiedAnswer, ask};
use pilothouse_runtime::api::{ArtifactAnswers, Refusal};
use tokio::time::timeout;

/// Time limit of an answer: without other replicas, a start is not delayed for longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The options about other replicas.
#[derive(Args)]
pub struct ReplicaArguments {
    /// The Service of this host's API, in the host's namespace. An artifact that is not in the cache is taken over from another
    /// replica behind it, if one has it, before a registry is asked (default: registries are asked)
    #[arg(long, value_name = "NAME", requires = "replica_token")]
    replica_service: Option<String>,

    /// The file with a token of the host's ServiceAccount for the audience pilothouse.dev, which other replicas accept. It is read
    /// for each request
    #[arg(long, value_name = "FILE", requires = "replica_service")]
    replica_token: Option<PathBuf>,
}

impl ReplicaArguments {
    /// Returns the other replicas of a host in this namespace; none without the options.
    pub fn open(self, namespace: Option<&str>) -> anyhow::Result<Option<ReplicaService>> {
        let (Some(name), Some(token)) = (self.replica_service, self.replica_token) else {
            return Ok(None);
        };
        let namespace = namespace.ok_or_else(|| {
            anyhow::anyhow!("--replica-service names a Service in the host's namespace; give that with --namespace")
        })?;
        let service = HostService {
            namespace: namespace.to_owned(),
            name,
            port: "api".to_owned(),
        };
        Ok(Some(ReplicaService { service, token }))
    }
}

/// The Service in front of all replicas, and the file with the token for it.
#[derive(Clone)]
pub struct ReplicaService {
    service: HostService,
    token: PathBuf,
}

impl ReplicaService {
    /// Returns the replicas as this client reaches them.
    pub fn through(&self, client: &Client) -> Arc<dyn Replicas> {
        Arc::new(ProxiedReplicas {
            client: client.clone(),
            replicas: self.clone(),
        })
    }
}

struct ProxiedReplicas {
    client: Client,
    replicas: ReplicaService,
}

impl Replicas for ProxiedReplicas {
    fn ask(&self, query: String) -> ReplicaAnswer<'_> {
        Box::pin(async move {
            let ReplicaService { service, token } = &self.replicas;
            let read = tokio::fs::read_to_string(token).await;
            let token = read.map_err(|error| format!("cannot read {}: {error}", token.display()))?;
            let path = format!("/api/v1/artifacts?{query}");
            let answer = timeout(PATIENCE, ask(&self.client, service, &path, Some(token.trim()))).await;
            let answer = answer.map_err(|_| format!("no replica has answered within {} s", PATIENCE.as_secs()))?;
            match answer.map_err(|error| error.to_string())? {
                ProxiedAnswer { code: 200, body } => Ok(body),
                ProxiedAnswer { code, body } => Err(format!("{code}: {}", body.trim())),
            }
        })
    }
}

/// The cache of this replica, for the others.
pub struct CachedArtifacts(pub Fetcher);

impl ArtifactAnswers for CachedArtifacts {
    fn answer<'a>(&'a self, query: &'a str) -> Pin<Box<dyn Future<Output = Result<String, Refusal>> + Send + 'a>> {
        Box::pin(async move {
            let question = ReplicaQuestion::parse(query).map_err(|problem| Refusal::new(400, problem))?;
            let failed = |error: FetchError| Refusal::new(503, error.to_string());
            let answer = self.0.answer(&question).await.map_err(failed)?;
            answer.ok_or_else(|| Refusal::new(404, "this replica's cache does not have it"))
        })
    }
}
