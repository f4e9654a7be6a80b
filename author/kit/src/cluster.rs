//! One type for both test clusters, real and simulated: clients for the test and for the host, and the log of requests.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

use http::HeaderValue;
use kube::Client;
use pilothouse_simulator::{Clock, Controllers, Options as SimulatorOptions, Record, Serving, Simulator};
use tempfile::TempDir;
use thiserror::Error;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};
use tower::util::MapRequestLayer;

use crate::{
    controlplane::{AuditMark, Availability, ControlPlane, ControlPlaneError, Options, availability},
    requests::{HOST_ACCOUNT, Request, TEST_ACCOUNT, parameter},
};

/// The name of the host's kubeconfig for a simulated cluster.
const KUBECONFIG: &str = "host.yaml";

/// A cluster to test on.
#[derive(Debug, Clone)]
pub enum Cluster {
    /// A simulation within the process, of the test's own.
    Simulated(SimulatedCluster),
    /// etcd, kube-apiserver and kube-controller-manager, shared by all tests of the process.
    Real(RealCluster),
}

/// A simulated cluster and, for hosts that are processes of their own, its address.
#[derive(Debug, Clone)]
pub struct SimulatedCluster {
    simulator: Simulator,
    served: Option<Arc<Served>>,
    host: Arc<Mutex<()>>,
}

#[derive(Debug)]
struct Served {
    /// Ends with the value.
    _serving: Serving,
    folder: TempDir,
}

/// A real control plane, shared or of one's own.
#[derive(Debug, Clone)]
pub enum RealCluster {
    /// The one of the process.
    Shared(&'static ControlPlane),
    /// One for a test that needs other options.
    Own(Arc<ControlPlane>),
}

/// A moment in a cluster's log of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// In the log of a simulation.
    Simulated(pilothouse_simulator::Mark),
    /// In the audit log of a real API server.
    Real(AuditMark),
}

/// Errors of starting or reading a cluster.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// The shared control plane did not start; the reason is the same for every test.
    #[error("{0}")]
    Shared(String),
    /// The control plane failed.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// The simulated cluster could not be served over HTTP.
    #[error("serve the simulated cluster: {0}")]
    Serve(#[source] io::Error),
    /// A process can't reach a cluster that is not served.
    #[error("reach the simulated cluster from another process: make it with Cluster::simulated_over_http")]
    NotServed,
    /// The mark was made on another cluster.
    #[error("read the log of requests: the mark was made on a cluster of another kind")]
    ForeignMark,
}

impl Cluster {
    /// A simulated cluster within the process, which behaves as the real one does here: nothing runs Pods.
    pub fn simulated() -> Self {
        Self::simulated_with(like_the_real_one())
    }

    /// A simulated cluster with other options.
    pub fn simulated_with(options: SimulatorOptions) -> Self {
        Self::Simulated(SimulatedCluster::new(options))
    }

    /// A simulated cluster that other processes can reach on a free port of 127.0.0.1, as long as this runtime runs.
    pub async fn simulated_over_http() -> Result<Self, ClusterError> {
        Self::simulated_at((Ipv4Addr::LOCALHOST, 0).into(), like_the_real_one()).await
    }

    /// The same at another address and with other options.
    pub async fn simulated_at(address: SocketAddr, options: SimulatorOptions) -> Result<Self, ClusterError> {
        let mut simulated = SimulatedCluster::new(options);
        let serving = simulated.simulator.serve(address).await.map_err(ClusterError::Serve)?;
        let folder = tempfile::Builder::new()
            .prefix("pilothouse-simulated-")
            .tempdir()
            .map_err(ClusterError::Serve)?;
        fs::write(folder.path().join(KUBECONFIG), serving.kubeconfig()).map_err(ClusterError::Serve)?;
        simulated.served = Some(Arc::new(Served {
            _serving: serving,
            folder,
        }));
        Ok(Self::Simulated(simulated))
    }

    /// The shared real control plane; none, said aloud, on a machine that can't have one.
    pub async fn real_if_possible() -> Option<Result<Self, ClusterError>> {
        if let Availability::Unavailable(reason) = availability() {
            eprintln!("left out: {reason}");
            return None;
        }
        Some(Self::real().await)
    }

    /// The real control plane that all tests of the process share.
    pub async fn real() -> Result<Self, ClusterError> {
        match ControlPlane::shared().await {
            Ok(control_plane) => Ok(Self::Real(RealCluster::Shared(control_plane))),
            Err(error) => Err(ClusterError::Shared(error.to_string())),
        }
    }

    /// A real control plane of one's own; it ends when the last copy of the value is dropped.
    pub async fn real_with(options: Options) -> Result<Self, ClusterError> {
        Ok(Self::Real(RealCluster::Own(Arc::new(
            ControlPlane::start(options).await?,
        ))))
    }

    /// `real` or `simulated`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Simulated(_) => "simulated",
            Self::Real(_) => "real",
        }
    }

    /// Reports whether it is a real control plane.
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real(_))
    }

    /// A client with the test's account.
    pub async fn client(&self) -> Result<Client, ClusterError> {
        self.client_as(TEST_ACCOUNT).await
    }

    /// A client with the host's account, by which its requests are known.
    pub async fn host_client(&self) -> Result<Client, ClusterError> {
        self.client_as(HOST_ACCOUNT).await
    }

    /// A kubeconfig with the host's account, for a host that is a process of its own.
    pub fn host_kubeconfig(&self) -> Result<PathBuf, ClusterError> {
        match self {
            Self::Simulated(simulated) => {
                let served = simulated.served.as_ref().ok_or(ClusterError::NotServed)?;
                Ok(served.folder.path().join(KUBECONFIG))
            }
            Self::Real(real) => Ok(real.control_plane().kubeconfig_file(HOST_ACCOUNT)?),
        }
    }

    /// The cluster's time.
    pub fn now(&self) -> SystemTime {
        match self {
            Self::Simulated(simulated) => simulated.simulator.now(),
            Self::Real(_) => SystemTime::now(),
        }
    }

    /// Now, for [`Self::requests_since`].
    pub fn mark(&self) -> Result<Mark, ClusterError> {
        match self {
            Self::Simulated(simulated) => Ok(Mark::Simulated(simulated.simulator.requests().mark())),
            Self::Real(real) => Ok(Mark::Real(real.control_plane().mark()?)),
        }
    }

    /// Requests since the mark, with their clients and results.
    pub fn requests_since(&self, mark: Mark) -> Result<Vec<Request>, ClusterError> {
        match (self, mark) {
            (Self::Simulated(simulated), Mark::Simulated(mark)) => Ok(simulated
                .simulator
                .requests()
                .since(mark)
                .into_iter()
                .map(request_of)
                .collect()),
            (Self::Real(real), Mark::Real(mark)) => Ok(real.control_plane().requests_since(mark)?),
            _ => Err(ClusterError::ForeignMark),
        }
    }

    /// Waits for the turn to run a host here; scenarios do so by themselves.
    pub async fn host_turn(&self) -> MutexGuard<'_, ()> {
        match self {
            Self::Simulated(simulated) => simulated.host.lock().await,
            Self::Real(real) => real.control_plane().host_turn().await,
        }
    }

    async fn client_as(&self, account: &'static str) -> Result<Client, ClusterError> {
        match self {
            Self::Simulated(simulated) => Ok(simulated.client_as(account)),
            Self::Real(real) => Ok(real.control_plane().client_as(account).await?),
        }
    }
}

impl SimulatedCluster {
    fn new(options: SimulatorOptions) -> Self {
        Self {
            simulator: Simulator::new(options),
            served: None,
            host: Arc::default(),
        }
    }

    /// Returns the simulator behind it, for faults and inspection.
    pub fn simulator(&self) -> &Simulator {
        &self.simulator
    }

    /// Returns a client of another account. The simulation requires no token; accounts are told apart by their user
    /// agents.
    fn client_as(&self, account: &'static str) -> Client {
        let name = HeaderValue::from_static(account);
        let named = MapRequestLayer::new(move |mut request: http::Request<kube::client::Body>| {
            request
                .headers_mut()
                .entry(http::header::USER_AGENT)
                .or_insert_with(|| name.clone());
            request
        });
        Client::new(tower::Layer::layer(&named, self.simulator.service()), "default")
    }
}

impl RealCluster {
    /// Returns the control plane behind it.
    pub fn control_plane(&self) -> &ControlPlane {
        match self {
            Self::Shared(control_plane) => control_plane,
            Self::Own(control_plane) => control_plane,
        }
    }
}

/// Returns options like those of a real control plane without nodes: replicas are created and never become ready.
fn like_the_real_one() -> SimulatorOptions {
    let controllers = Controllers {
        workloads: pilothouse_simulator::Workloads::NeverReady,
        ..Controllers::default()
    };
    // Where a test pauses time, the ages of objects go with it.
    let clock = Clock::Tokio {
        start: SystemTime::now(),
        origin: Instant::now(),
    };
    SimulatorOptions {
        controllers,
        clock,
        ..SimulatorOptions::default()
    }
}

/// Converts a record. A client without the test's user agent is the host: there is no other one.
fn request_of(record: Record) -> Request {
    let account = if record.user_agent == TEST_ACCOUNT {
        TEST_ACCOUNT
    } else {
        HOST_ACCOUNT
    };
    let writes = matches!(
        record.verb.as_str(),
        "create" | "update" | "patch" | "delete" | "deletecollection"
    );
    Request {
        dry_run: writes && !record.write,
        verb: record.verb,
        account: account.to_owned(),
        impersonated: record.user,
        user_agent: record.user_agent,
        field_manager: record.field_manager,
        shard_selector: parameter(&record.uri, "shardSelector"),
        group: record.group,
        resource: record.resource,
        subresource: record.subresource,
        namespace: record.namespace.unwrap_or_default(),
        name: record.name.unwrap_or_default(),
        code: record.status,
    }
}
