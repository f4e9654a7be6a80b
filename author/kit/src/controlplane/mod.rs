//! Starts a real control plane without containers: etcd, kube-apiserver and kube-controller-manager on free ports of
//! 127.0.0.1. It is up in seconds and ends with the test process. `programs` finds the programs, and
//! `pilothouse_programs::supervisor` runs them.
//!
//! Nothing schedules or runs Pods here: a scenario has [`crate::workloads`] play that, and any other test that needs ready
//! replicas writes the Pods' status itself.

mod audit;
mod credentials;
mod programs;

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use pilothouse_programs::supervisor::Supervisor;
use rustix::process::Signal;
use thiserror::Error;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use self::credentials::Credentials;
pub use self::programs::{Availability, Programs, ProgramsError, availability};
use crate::requests::{Request, TEST_ACCOUNT};

/// The controllers that run by default; nothing else is needed to make and collect the children of operators.
pub const CONTROLLERS: [&str; 11] = [
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "ttl-after-finished-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "persistentvolumeclaim-protection-controller",
];

/// Interval between two polls of /readyz.
const READY_INTERVAL: Duration = Duration::from_millis(50);

/// Attempts to find free ports: they are requested and released, and another process may take them meanwhile.
const PORT_ATTEMPTS: usize = 3;

/// The program that runs the controllers, by the name of its log.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Message before it ends because the API server is not healthy after 10 s; on a busy machine that takes longer.
const TIRED_OF_WAITING: &str = "failed to wait for apiserver being healthy";

/// Options of a control plane.
#[derive(Debug, Clone)]
pub struct Options {
    /// The controllers that kube-controller-manager runs.
    pub controllers: Vec<String>,
    /// Range of the Services' addresses, wide enough that no test runs out of them.
    pub service_range: String,
    /// The time that the API server has to become ready.
    pub ready_within: Duration,
    /// Further arguments of kube-apiserver.
    pub apiserver_arguments: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controllers: CONTROLLERS.map(str::to_owned).to_vec(),
            service_range: "10.96.0.0/12".to_owned(),
            ready_within: Duration::from_mins(1),
            apiserver_arguments: Vec::new(),
        }
    }
}

/// Errors of starting a control plane or of reading from it.
#[derive(Debug, Error)]
pub enum ControlPlaneError {
    /// There are no programs.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// The files or processes could not be made.
    #[error("prepare a control plane: {0}")]
    Prepare(#[source] io::Error),
    /// A program ended by itself.
    #[error("{name} ended ({status}) while the control plane started; the end of its log:\n{tail}")]
    Ended {
        /// The program.
        name: &'static str,
        /// Exit status.
        status: std::process::ExitStatus,
        /// The end of its log.
        tail: String,
    },
    /// The API server was not ready in time.
    #[error("the control plane is not ready after {} s ({reason}); the ends of its logs:\n{logs}", .after.as_secs())]
    NotReady {
        /// The time that it had.
        after: Duration,
        /// Result of the last request.
        reason: String,
        /// The ends of all logs.
        logs: String,
    },
    /// The client could not be made.
    #[error("make a client for the control plane: {0}")]
    Client(String),
    /// The audit log could not be read.
    #[error("read the control plane's audit log: {0}")]
    Audit(#[source] io::Error),
}

/// A running control plane. Dropping it ends its processes and removes its files; so does the end of this process,
/// however it comes.
#[derive(Debug)]
pub struct ControlPlane {
    url: String,
    credentials: Credentials,
    supervisor: std::sync::Mutex<Supervisor>,
    host: Mutex<()>,
}

/// A moment in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditMark(u64);

impl ControlPlane {
    /// Starts a control plane, building its programs first where they are missing, and waits until it is ready.
    pub async fn start(options: Options) -> Result<Self, ControlPlaneError> {
        let programs = tokio::task::spawn_blocking(Programs::obtain)
            .await
            .map_err(|error| ControlPlaneError::Prepare(io::Error::other(error)))??;
        let mut attempt = 1;
        loop {
            match Self::start_once(&programs, &options).await {
                Err(ControlPlaneError::Ended { tail, .. })
                    if attempt < PORT_ATTEMPTS && tail.contains("address already in use") =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// The one control plane that all tests of this process share; each uses namespaces of its own. It ends with the
    /// process.
    pub async fn shared() -> Result<&'static Self, &'static ControlPlaneError> {
        static SHARED: OnceCell<Result<ControlPlane, ControlPlaneError>> = OnceCell::const_new();
        SHARED.get_or_init(|| Self::start(Options::default())).await.as_ref()
    }

    /// A client with the test's account. It belongs to the runtime that made it, so each test makes its own.
    pub async fn client(&self) -> Result<Client, ControlPlaneError> {
        self.client_as(TEST_ACCOUNT).await
    }

    /// A client with an account of its own: [`TEST_ACCOUNT`] or [`HOST_ACCOUNT`](crate::requests::HOST_ACCOUNT).
    pub async fn client_as(&self, account: &str) -> Result<Client, ControlPlaneError> {
        install_crypto_provider();
        let text = self.kubeconfig(account);
        let failed = |error: &dyn std::fmt::Display| ControlPlaneError::Client(error.to_string());
        let kubeconfig = Kubeconfig::from_yaml(&text).map_err(|error| failed(&error))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(|error| failed(&error))?;
        Client::try_from(config).map_err(|error| failed(&error))
    }

    /// A kubeconfig for an account, as YAML.
    pub fn kubeconfig(&self, account: &str) -> String {
        self.credentials.kubeconfig(&self.url, account)
    }

    /// A file with the kubeconfig of an account, for another process; it goes with the control plane.
    pub fn kubeconfig_file(&self, account: &str) -> Result<PathBuf, ControlPlaneError> {
        let name = format!("{account}.yaml");
        self.credentials
            .write(&name, &self.kubeconfig(account))
            .map_err(ControlPlaneError::Prepare)?;
        Ok(self.supervisor().folder().join(name))
    }

    /// The API server's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The bearer token of an account.
    pub fn token(&self, account: &str) -> String {
        self.credentials.token(account)
    }

    /// The authority that signed the API server's certificate, and the one that the API server shows to webhooks, as PEM.
    pub fn certificate_authority(&self) -> &str {
        self.credentials.ca()
    }

    /// The version of Kubernetes that is built where none is given.
    pub fn built_version() -> &'static str {
        programs::kubernetes_version()
    }

    /// The end of a program's log: `etcd`, `kube-apiserver` or `kube-controller-manager`.
    pub fn log_tail(&self, program: &str) -> String {
        self.supervisor().tail(program)
    }

    /// Now, for [`Self::requests_since`].
    pub fn mark(&self) -> Result<AuditMark, ControlPlaneError> {
        audit::length(&self.audit_log())
            .map(AuditMark)
            .map_err(ControlPlaneError::Audit)
    }

    /// Requests since the mark by all clients but the control plane itself, in the order of the answers.
    pub fn requests_since(&self, mark: AuditMark) -> Result<Vec<Request>, ControlPlaneError> {
        audit::since(&self.audit_log(), mark.0).map_err(ControlPlaneError::Audit)
    }

    /// Waits for the turn to run a host here: a host steers the whole cluster, so two would each do the other's work.
    pub async fn host_turn(&self) -> MutexGuard<'_, ()> {
        self.host.lock().await
    }

    /// Ends the processes and removes the files, as dropping does.
    pub fn stop(self) {
        drop(self);
    }

    /// Kills a program as SIGKILL does, and starts it again: `etcd`, `kube-apiserver` or `kube-controller-manager`.
    pub fn restart(&self, program: &str) -> Result<(), ControlPlaneError> {
        self.supervisor().restart(program).map_err(ControlPlaneError::Prepare)
    }

    /// Stops a program as SIGSTOP does, until [`Self::resume`].
    pub fn pause(&self, program: &str) -> Result<(), ControlPlaneError> {
        let stopped = self.supervisor().signal(program, Signal::STOP);
        stopped.map_err(ControlPlaneError::Prepare)
    }

    /// Continues a paused program.
    pub fn resume(&self, program: &str) -> Result<(), ControlPlaneError> {
        let resumed = self.supervisor().signal(program, Signal::CONT);
        resumed.map_err(ControlPlaneError::Prepare)
    }

    fn supervisor(&self) -> std::sync::MutexGuard<'_, Supervisor> {
        self.supervisor
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn audit_log(&self) -> PathBuf {
        self.supervisor().folder().join("audit.log")
    }

    async fn start_once(programs: &Programs, options: &Options) -> Result<Self, ControlPlaneError> {
        let started = Instant::now();
        let control_plane = Self::spawn(programs, options).map_err(ControlPlaneError::Prepare)?;
        let client = control_plane.client().await?;
        loop {
            let reason = match ready(&client).await {
                Ok(()) => return Ok(control_plane),
                Err(reason) => reason,
            };
            let ended = control_plane.supervisor().ended();
            if let Some((name, status)) = ended {
                let tail = control_plane.log_tail(name);
                if !(name == CONTROLLER_MANAGER && tail.contains(TIRED_OF_WAITING)) {
                    return Err(ControlPlaneError::Ended { name, status, tail });
                }
                control_plane.restart(name)?;
            }
            if started.elapsed() > options.ready_within {
                let tails = control_plane.supervisor().tails();
                let logs = tails
                    .iter()
                    .map(|(name, tail)| ["--- ", name, "\n", tail].concat())
                    .collect();
                return Err(ControlPlaneError::NotReady {
                    after: options.ready_within,
                    reason,
                    logs,
                });
            }
            tokio::time::sleep(READY_INTERVAL).await;
        }
    }

    fn spawn(programs: &Programs, options: &Options) -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("pilothouse-controlplane-")
            .tempdir()?
            .keep();
        let mut supervisor = Supervisor::new(folder.clone())?;
        let credentials = Credentials::create(&folder)?;
        credentials.write("audit-policy.yaml", audit::POLICY)?;
        let [client_port, peer_port, secure_port] = free_ports()?;
        let (store, peer) = (
            format!("http://127.0.0.1:{client_port}"),
            format!("http://127.0.0.1:{peer_port}"),
        );
        let url = format!("https://127.0.0.1:{secure_port}");
        // All three at once: the API server waits for the store, and the controllers for the API server.
        supervisor.spawn("etcd", &programs.etcd, &etcd_arguments(&folder, &store, &peer))?;
        supervisor.spawn(
            "kube-apiserver",
            &programs.apiserver,
            &apiserver_arguments(&folder, &credentials, &store, secure_port, options),
        )?;
        supervisor.spawn(
            CONTROLLER_MANAGER,
            &programs.controller_manager,
            &controller_manager_arguments(&credentials, &url, options)?,
        )?;
        Ok(Self {
            url,
            credentials,
            supervisor: supervisor.into(),
            host: Mutex::new(()),
        })
    }
}

/// The one cryptography provider of the process; a second call changes nothing.
pub(crate) fn install_crypto_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Checks that the API server serves, and that it has created the objects that every test relies on.
async fn ready(client: &Client) -> Result<(), String> {
    for path in [
        "/readyz",
        "/api/v1/namespaces/default",
        "/api/v1/namespaces/default/serviceaccounts/default",
    ] {
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|error| error.to_string())?;
        client
            .request_text(request)
            .await
            .map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// Ports that are free now. All are held until all are known, so that they differ.
fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

fn etcd_arguments(folder: &Path, store: &str, peer: &str) -> Vec<String> {
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={store}"),
        format!("--advertise-client-urls={store}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // What is lost in a power failure is the whole test anyway.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn apiserver_arguments(
    folder: &Path,
    credentials: &Credentials,
    store: &str,
    port: u16,
    options: &Options,
) -> Vec<String> {
    let mut arguments = vec![
        format!("--etcd-servers={store}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", credentials.path("serving.crt")),
        format!("--tls-private-key-file={}", credentials.path("serving.key")),
        format!("--service-account-key-file={}", credentials.path("service-account.pub")),
        format!(
            "--service-account-signing-key-file={}",
            credentials.path("service-account.key")
        ),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--token-auth-file={}", credentials.path("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        format!("--admission-control-config-file={}", credentials.path("admission.yaml")),
        format!("--service-cluster-ip-range={}", options.service_range),
        "--allow-privileged=true".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--audit-policy-file={}", folder.join("audit-policy.yaml").display()),
        format!("--audit-log-path={}", folder.join("audit.log").display()),
        "--audit-log-mode=blocking".to_owned(),
        // Megabytes; a log that is exchanged for a new one would lose what marks point into.
        "--audit-log-maxsize=10000".to_owned(),
    ];
    arguments.extend(options.apiserver_arguments.iter().cloned());
    arguments
}

fn controller_manager_arguments(credentials: &Credentials, url: &str, options: &Options) -> io::Result<Vec<String>> {
    Ok(vec![
        format!("--kubeconfig={}", credentials.controller_manager(url)?),
        format!("--controllers={}", options.controllers.join(",")),
        format!(
            "--service-account-private-key-file={}",
            credentials.path("service-account.key")
        ),
        format!("--root-ca-file={}", credentials.path("ca.crt")),
        "--use-service-account-credentials=true".to_owned(),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        // The default of 20 requests a second would make the controllers the slowest part of every test.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ])
}
