//! Runs on the real control plane with real processes: hosts are killed, stopped and doubled, the API server is killed
//! and started again, etcd is stopped. Nothing here is virtual, so a seed repeats only the faults and their times.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client};
use pilothouse_end_to_end::components;
use pilothouse_testkit::cluster::{Cluster, RealCluster};
use pilothouse_testkit::controlplane::{ControlPlane, Options};
use pilothouse_testkit::host::{HostError, Pause, ProcessHost, SteeredHost, SteeredPlugin};
use pilothouse_testkit::scenario::{Manner, Scenario, run_with};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::snapshot::{self, Snapshot};

/// The scenarios that are played, each with faults of its own; without those that take their own time, and webhooks.
const STORIES: [&str; 10] = [
    "app-service/child-deleted",
    "app-service/child-edited",
    "app-service/ports-changed",
    "ecs-binding/bound",
    "reverse-proxy/edited",
    "service-ingress/annotated",
    "sharer/shared",
    "stream-ingress/opened",
    "wisher/finalized",
    "wisher/kept",
];

/// Time limit of a wait.
const PATIENCE: Duration = Duration::from_mins(4);

/// Faults of one run.
const FAULTS: usize = 4;

/// A host that has asked for nothing for so long has come to rest: some of its resyncs.
const CALM: Duration = Duration::from_secs(7);

/// Resync interval of the hosts.
const RESYNC: Duration = Duration::from_secs(3);

/// Fault of a run.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// kill -9 of a host, which is started again.
    Killed,
    /// SIGSTOP of a host, and SIGCONT so many milliseconds later.
    Stopped(u64),
    /// Another host is started, and the old one ends in order.
    Upgraded,
    /// Another host is started, and both go on.
    Doubled,
    /// The API server is killed and started again.
    ServerKilled,
    /// The API server is stopped for so many milliseconds.
    ServerStopped(u64),
    /// etcd is stopped for so many milliseconds.
    StoreStopped(u64),
}

/// Plays the chosen schedules, from a seed on; whether all is as it should be.
pub fn run(first: u64, count: u64, wanted: Option<&str>) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(play_all(first, count, wanted))
}

async fn play_all(first: u64, count: u64, wanted: Option<&str>) -> Result<bool> {
    let program = components::program();
    let control_plane = Arc::new(ControlPlane::start(Options::default()).await?);
    let cluster = Cluster::Real(RealCluster::Own(control_plane.clone()));
    let stories: Vec<&str> = STORIES
        .into_iter()
        .filter(|story| wanted.is_none_or(|wanted| story.contains(wanted)))
        .collect();
    ensure!(
        !stories.is_empty(),
        "no such scenario is played here; there are {}",
        STORIES.join(", ")
    );
    let mut quiet = BTreeMap::new();
    let mut failed = 0;
    for seed in first..first + count {
        let story = stories[usize::try_from(seed).unwrap_or_default() % stories.len()];
        if !quiet.contains_key(story) {
            let (state, problems) = play(story, None, &cluster, &control_plane, &program).await?;
            ensure!(problems.is_empty(), "{story} without faults: {}", problems.join("\n"));
            quiet.insert(story, state);
        }
        let faults = draw(seed);
        let (state, mut problems) = play(story, Some(&faults), &cluster, &control_plane, &program).await?;
        if problems.is_empty() {
            problems = snapshot::differences(&state, &quiet[story]);
        }
        let verdict = if problems.is_empty() { "holds " } else { "FAILED" };
        println!("{verdict} {story} {faults:?}");
        if !problems.is_empty() {
            failed += 1;
            println!("  {}", problems.join("\n  "));
            println!("  repeat: cargo xtask faults --real --scenario {story} --seed {seed}");
        }
    }
    println!("{count} schedules on the real control plane: {failed} failed");
    Ok(failed == 0)
}

/// Faults with the milliseconds that pass before each.
fn draw(seed: u64) -> Vec<(u64, Fault)> {
    let mut rng = Rng::with_seed(seed);
    let fault = |rng: &mut Rng| {
        let lasts = rng.u64(200..6000);
        match rng.u32(..7) {
            0 => Fault::Killed,
            1 => Fault::Stopped(lasts),
            2 => Fault::Upgraded,
            3 => Fault::Doubled,
            4 => Fault::ServerKilled,
            5 => Fault::ServerStopped(lasts),
            _ => Fault::StoreStopped(lasts),
        }
    };
    (0..FAULTS).map(|_| (rng.u64(0..2500), fault(&mut rng))).collect()
}

async fn play(
    story: &str,
    faults: Option<&[(u64, Fault)]>,
    cluster: &Cluster,
    control_plane: &Arc<ControlPlane>,
    program: &std::path::Path,
) -> Result<(Snapshot, Vec<String>)> {
    let path = components::root().join("tests/scenarios").join(format!("{story}.yaml"));
    let mut scenario = Scenario::read(&path)?;
    scenario.workloads = pilothouse_testkit::workloads::Workloads::Never;
    let namespace = format!("faults-{}", story.replace('/', "-"));
    let client = cluster.client().await?;
    gone(&client, &namespace).await?;
    let mut crew = RealCrew {
        inner: Arc::default(),
        program: program.to_owned(),
        cluster: cluster.clone(),
        namespace: namespace.clone(),
        state: Snapshot::new(),
        chaos: None,
    };
    if let Some(faults) = faults {
        let (inner, control_plane) = (crew.inner.clone(), control_plane.clone());
        let (cluster, program, faults) = (cluster.clone(), program.to_owned(), faults.to_vec());
        crew.chaos = Some(tokio::spawn(async move {
            let mut problems = Vec::new();
            for (after, fault) in faults {
                tokio::time::sleep(Duration::from_millis(after)).await;
                if let Err(error) = strike(fault, &inner, &control_plane, &cluster, &program).await {
                    problems.push(format!("{fault:?}: {error}"));
                }
            }
            problems
        }));
    }
    let manner = Manner {
        namespace: Some(namespace),
        patience: Some(PATIENCE),
        ..Manner::default()
    };
    let mut problems = Vec::new();
    if let Err(error) = run_with(&scenario, cluster, &mut crew, &manner).await {
        problems.push(error.to_string());
    }
    if let Some(chaos) = crew.chaos.take() {
        chaos.abort();
    }
    Ok((crew.state, problems))
}

/// Shared data of all hosts of a run.
#[derive(Default)]
struct Inner {
    hosts: Vec<ProcessHost>,
    /// Logs of hosts that no longer run.
    logs: Vec<String>,
    wanted: Option<Vec<SteeredPlugin>>,
}

struct RealCrew {
    inner: Arc<Mutex<Inner>>,
    program: PathBuf,
    cluster: Cluster,
    namespace: String,
    state: Snapshot,
    chaos: Option<tokio::task::JoinHandle<Vec<String>>>,
}

async fn another(inner: &mut Inner, cluster: &Cluster, program: &std::path::Path) -> Result<(), HostError> {
    let Some(plugins) = inner.wanted.clone() else {
        return Ok(());
    };
    let mut host = ProcessHost::new(program, components::folder()).with_resync(RESYNC);
    host.start(cluster, &plugins).await?;
    inner.hosts.push(host);
    Ok(())
}

async fn strike(
    fault: Fault,
    inner: &Arc<Mutex<Inner>>,
    control_plane: &ControlPlane,
    cluster: &Cluster,
    program: &std::path::Path,
) -> Result<(), HostError> {
    match fault {
        Fault::Killed => {
            let mut inner = inner.lock().await;
            if let Some(mut host) = inner.hosts.pop() {
                host.kill();
                inner.logs.push(host.log_tail());
            }
            another(&mut inner, cluster, program).await?;
        }
        Fault::Stopped(lasts) => {
            if let Some(host) = inner.lock().await.hosts.first_mut() {
                host.pause(true)?;
            }
            tokio::time::sleep(Duration::from_millis(lasts)).await;
            for host in &mut inner.lock().await.hosts {
                let _ = host.pause(false);
            }
        }
        Fault::Upgraded => {
            another(&mut *inner.lock().await, cluster, program).await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let mut inner = inner.lock().await;
            if inner.hosts.len() > 1 {
                let mut old = inner.hosts.remove(0);
                let left = old.stop().await?;
                inner.logs.push(old.log_tail());
                if left.iter().any(|left| left.contains("panicked")) {
                    return Err(left.join("; ").into());
                }
            }
        }
        Fault::Doubled => another(&mut *inner.lock().await, cluster, program).await?,
        Fault::ServerKilled => control_plane.restart("kube-apiserver")?,
        Fault::ServerStopped(lasts) => {
            control_plane.pause("kube-apiserver")?;
            tokio::time::sleep(Duration::from_millis(lasts)).await;
            control_plane.resume("kube-apiserver")?;
        }
        Fault::StoreStopped(lasts) => {
            control_plane.pause("etcd")?;
            tokio::time::sleep(Duration::from_millis(lasts)).await;
            control_plane.resume("etcd")?;
        }
    }
    Ok(())
}

impl SteeredHost for RealCrew {
    async fn start(&mut self, _: &Cluster, plugins: &[SteeredPlugin]) -> Result<(), HostError> {
        let mut inner = self.inner.lock().await;
        inner.wanted = Some(plugins.to_vec());
        another(&mut inner, &self.cluster, &self.program).await
    }

    async fn resync(&mut self) -> Result<(), HostError> {
        tokio::time::sleep(RESYNC + RESYNC / 2).await;
        Ok(())
    }

    async fn stop(&mut self) -> Result<Vec<String>, HostError> {
        let mut inner = self.inner.lock().await;
        inner.wanted = None;
        let mut left = Vec::new();
        for mut host in std::mem::take(&mut inner.hosts) {
            let _ = host.pause(false);
            let stopped = host.stop().await;
            inner.logs.push(host.log_tail());
            left.extend(stopped?);
        }
        // That it did not end in time while the API server was away is not told: it was abandoned and is taken up again.
        left.retain(|left| left.contains("panicked"));
        Ok(left)
    }

    async fn pause(&mut self, at: Pause) -> Result<(), HostError> {
        if at != Pause::Told {
            return Ok(());
        }
        if let Some(chaos) = self.chaos.take() {
            let problems = chaos.await?;
            if !problems.is_empty() {
                return Err(problems.join("; ").into());
            }
        }
        let begun = Instant::now();
        loop {
            let mark = self.cluster.mark()?;
            tokio::time::sleep(CALM).await;
            let mut requests = self.cluster.requests_since(mark)?;
            requests.retain(|request| request.is_by_host() && request.is_write());
            if requests.is_empty() {
                break;
            }
            if begun.elapsed() > PATIENCE {
                let lines: Vec<String> = requests.iter().take(10).map(ToString::to_string).collect();
                return Err(format!("the hosts do not come to rest:\n{}", lines.join("\n")).into());
            }
        }
        let client = self.cluster.client().await?;
        self.state = state(&client, &self.namespace)
            .await
            .map_err(|error| error.to_string())?;
        Ok(())
    }

    fn failure(&mut self) -> Option<String> {
        let mut inner = self.inner.try_lock().ok()?;
        inner.hosts.iter_mut().find_map(ProcessHost::failure)
    }

    fn log_tail(&self) -> String {
        let Ok(inner) = self.inner.try_lock() else {
            return String::new();
        };
        let logs = inner.hosts.iter().map(ProcessHost::log_tail);
        let logs: Vec<_> = inner
            .logs
            .iter()
            .cloned()
            .chain(logs)
            .filter(|log| !log.is_empty())
            .collect();
        logs.join("\n---\n")
    }
}

/// All that is in a namespace.
async fn state(client: &Client, namespace: &str) -> Result<Snapshot> {
    let discovery = Discovery::new(client.clone())
        .run()
        .await
        .context("ask what is served")?;
    let mut objects = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.scope != Scope::Namespaced || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            objects.extend(list(client, namespace, &resource).await?);
        }
    }
    Ok(snapshot::take_named(objects))
}

async fn list(client: &Client, namespace: &str, resource: &ApiResource) -> Result<Vec<serde_json::Value>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let Ok(found) = api.list(&ListParams::default()).await else {
        return Ok(Vec::new());
    };
    let mut objects = Vec::new();
    for object in found {
        let mut object = serde_json::to_value(object)?;
        object["apiVersion"] = resource.api_version.clone().into();
        object["kind"] = resource.kind.clone().into();
        objects.push(object);
    }
    Ok(objects)
}

/// Waits until a namespace of an earlier run is gone.
async fn gone(client: &Client, namespace: &str) -> Result<()> {
    let begun = Instant::now();
    let path = format!("/api/v1/namespaces/{namespace}");
    loop {
        let request = http::Request::get(&path).body(Vec::new())?;
        match client.request::<serde_json::Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            _ if begun.elapsed() > PATIENCE => anyhow::bail!("the namespace {namespace} does not go"),
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}
