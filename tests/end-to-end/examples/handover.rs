//! Measures the time without a leader: two replicas on a real API server, of which the leader is killed, and then
//! stopped in order, several times (3, or as the argument says). `cargo xtask bench handover` runs it.

use std::error::Error;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use pilothouse_end_to_end::program::{Process, component};
use pilothouse_testkit::controlplane::{ControlPlane, Options};
use pilothouse_testkit::requests::TEST_ACCOUNT;
use rustix::process::Signal;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TIMES: usize = 3;

/// Interval of reading the Lease.
const LOOK: Duration = Duration::from_millis(10);

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_mins(1);

#[tokio::main]
async fn main() -> Outcome<()> {
    let times = std::env::args().nth(1).map_or(Ok(TIMES), |number| number.parse())?;
    let control_plane = ControlPlane::start(Options::default()).await?;
    let kubeconfig = control_plane.kubeconfig_file(TEST_ACCOUNT)?.display().to_string();
    let leases: Api<Lease> = Api::namespaced(Client::clone(&control_plane.client().await?), "default");
    let plugin = component("app-service");
    let start = || {
        let arguments = [
            "run",
            "--kubeconfig",
            &kubeconfig,
            "--install-crds",
            "--plugin",
            &plugin,
        ];
        Process::start(&[&arguments[..], &["--leader-election", "--namespace", "default"]].concat())
    };
    let mut leader = start();
    let mut holder = another(&leases, "").await?;
    for (what, signal) in [("killed", Signal::KILL), ("stopped in order", Signal::TERM)] {
        let mut taken = Vec::new();
        for _ in 0..times {
            let mut standby = start();
            standby.says(&["stands by"]).await;
            // Somewhere between two renewals.
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..2000))).await;
            let begun = Instant::now();
            leader.signal(signal);
            holder = another(&leases, &holder).await?;
            taken.push(begun.elapsed());
            leader = standby;
        }
        taken.sort_unstable();
        println!("{what}: another replica leads after {taken:.2?}");
    }
    Ok(())
}

/// Waits until another replica holds the Lease.
async fn another(leases: &Api<Lease>, before: &str) -> Outcome<String> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let lease = leases.get_opt("pilothouse").await?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        if !holder.is_empty() && holder != before {
            return Ok(holder);
        }
        tokio::time::sleep(LOOK).await;
    }
    Err("nobody takes the Lease".into())
}
