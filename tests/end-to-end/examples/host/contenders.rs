//! Makes clusters with Bundles that the host or the baseline client converges, one cluster for each run, and checks
//! that both leave the same objects.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client};
use pilothouse_testkit::cluster::{Cluster, Mark};
use pilothouse_testkit::controlplane::Options;
use pilothouse_testkit::host::{ProcessHost, SteeredHost as _, SteeredPlugin};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Outcome;
use crate::steered::{self, NEVER, asked, at_rest, cpu_seconds, memory, process, program, until};

/// Requests in flight, as many as the host has for one plugin.
pub const IN_FLIGHT: usize = 16;

/// Bundles that are compared after each run.
const COMPARED: usize = 10;

/// Cost of one run.
#[derive(Debug)]
pub struct Run {
    /// Seconds from the start of the program to the last status seen.
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub writes: usize,
    /// Whole objects, without the parts that differ in every run.
    left: Vec<Value>,
}

/// A run of the host, and its memory.
#[derive(Debug)]
pub struct Hosted {
    pub run: Run,
    /// PSS in KiB: without an object, converged, and the greatest that was seen meanwhile.
    pub idle: f64,
    pub full: f64,
    pub peak: f64,
}

/// Report of the baseline client.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Said {
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub requests: usize,
}

/// A control plane of its own with the CRD and so many Bundles; and what the host uses with none.
pub async fn cluster(objects: usize) -> Outcome<(Cluster, f64)> {
    let cluster = Cluster::real_with(Options::default()).await?;
    let idle = prepare(&cluster, objects).await?;
    Ok((cluster, idle))
}

/// Creates the CRD and so many Bundles in a cluster, and returns the host's memory with none.
pub async fn prepare(cluster: &Cluster, objects: usize) -> Outcome<f64> {
    let mut host = steered::host(NEVER);
    let mark = cluster.mark()?;
    host.start(cluster, &[SteeredPlugin::from("bundle")]).await?;
    watching(cluster, &mut host, mark).await?;
    at_rest(cluster, &mut host).await?;
    let idle = memory(process(&host)?)?;
    host.stop().await?;
    baseline(cluster, "make", objects).await?;
    Ok(idle)
}

/// Waits until a host that was started at this mark watches all that it needs: its lists are over.
pub async fn watching(cluster: &Cluster, host: &mut ProcessHost, mark: Mark) -> Outcome<()> {
    until("the host to watch", host, async || {
        let requests = asked(cluster, mark)?;
        Ok(["bundles", "configmaps", "services", "deployments"].iter().all(|kind| {
            requests
                .iter()
                .any(|request| request.verb == "watch" && request.resource == *kind)
        }))
    })
    .await
}

/// The baseline client converges a cluster, and is watched at it as the host is: the watch costs the API server
/// something too.
pub async fn by_baseline(cluster: &Cluster, objects: usize) -> Outcome<Run> {
    let ready = Ready::watch(cluster.client().await?);
    let begun = Instant::now();
    let Said {
        seconds: _,
        cpu_seconds,
        requests,
    } = baseline(cluster, "write", objects).await?;
    until("all Bundles to be ready", &mut steered::host(NEVER), async || {
        Ok(ready.count() >= objects)
    })
    .await?;
    Ok(Run {
        seconds: begun.elapsed().as_secs_f64(),
        cpu_seconds,
        writes: requests,
        left: left(cluster).await?,
    })
}

/// The host, which does not run yet, converges a cluster and goes on running.
pub async fn by_host(cluster: &Cluster, host: &mut ProcessHost, objects: usize, idle: f64) -> Outcome<Hosted> {
    let ready = Ready::watch(cluster.client().await?);
    let mark = cluster.mark()?;
    let begun = Instant::now();
    host.start(cluster, &[SteeredPlugin::from("bundle")]).await?;
    let id = process(host)?;
    let mut peak = idle;
    until("all Bundles to be ready", host, async || {
        peak = peak.max(memory(id)?);
        Ok(ready.count() >= objects)
    })
    .await?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = cpu_seconds(id)?;
    at_rest(cluster, host).await?;
    let writes = asked(cluster, mark)?
        .iter()
        .filter(|request| request.is_write())
        .count();
    let run = Run {
        seconds,
        cpu_seconds: cpu,
        writes,
        left: left(cluster).await?,
    };
    let full = memory(id)?;
    Ok(Hosted { run, idle, full, peak })
}

/// Checks that two runs have left the same objects.
pub fn compare(one: &Run, other: &Run) -> Outcome<()> {
    for (one, other) in one.left.iter().zip(&other.left) {
        if one != other {
            return Err(format!("the contenders do not make the same objects:\n{one:#}\n{other:#}").into());
        }
    }
    if one.left.len() == other.left.len() {
        return Ok(());
    }
    Err("the contenders do not make as many objects".into())
}

/// Runs the baseline client's program.
pub async fn baseline(cluster: &Cluster, task: &str, objects: usize) -> Outcome<Said> {
    let output = tokio::process::Command::new(program("pilothouse-baseline"))
        .arg(task)
        .arg(cluster.host_kubeconfig()?)
        .args([objects.to_string(), IN_FLIGHT.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .await?;
    if !output.status.success() {
        return Err(format!("the baseline client's program ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A Bundle beside those of the baseline client.
pub fn bundle(name: &str) -> Outcome<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "bench.example.dev/v1", "kind": "Bundle", "metadata": {"name": name},
        "spec": {"payload": "words", "port": 80, "image": "web:1"},
    }))?)
}

/// A collection of the namespace that everything is in.
pub fn collection(client: Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(client, "default", &resource)
}

/// Returns the children of the first Bundles.
async fn left(cluster: &Cluster) -> Outcome<Vec<Value>> {
    let client = cluster.client().await?;
    let mut left = Vec::new();
    for (group, kind) in [
        ("", "ConfigMap"),
        ("", "Service"),
        ("apps", "Deployment"),
        ("bench.example.dev", "Bundle"),
    ] {
        let objects = collection(client.clone(), group, kind);
        for number in 0..COMPARED {
            if let Some(object) = objects.get_opt(&format!("b-{number}")).await? {
                left.push(comparable(serde_json::to_value(object)?));
            }
        }
    }
    Ok(left)
}

/// An object without what the server sets, owner references and the host's own annotation.
fn comparable(mut object: Value) -> Value {
    let metadata = object["metadata"].take();
    object["metadata"] = json!({"name": metadata["name"], "labels": metadata["labels"]});
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if object["kind"] != "Bundle" {
        // It is the control plane's.
        object["status"].take();
    }
    for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"].take();
    }
    object
}

/// The Bundles that are ready, each with the moment at which a watch showed it so.
pub struct Ready {
    moments: Arc<Mutex<HashMap<String, Instant>>>,
    task: JoinHandle<()>,
}

impl Ready {
    /// Begins to watch.
    pub fn watch(client: Client) -> Self {
        let moments = Arc::<Mutex<HashMap<String, Instant>>>::default();
        let seen = moments.clone();
        let bundles = collection(client, "bench.example.dev", "Bundle");
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(bundles, watcher::Config::default()));
            while let Some(event) = events.next().await {
                if let Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) = event
                    && object.data["status"]["ready"] == true
                    && let Some(name) = object.metadata.name
                {
                    let mut seen = seen.lock().expect("no panic happens while it is held");
                    seen.entry(name).or_insert_with(Instant::now);
                }
            }
        });
        Self { moments, task }
    }

    /// Count of the Bundles that are converged.
    pub fn count(&self) -> usize {
        self.moments.lock().expect("no panic happens while it is held").len()
    }

    /// Returns the time since when a Bundle is converged, by its name.
    pub fn moment(&self, name: &str) -> Option<Instant> {
        let moments = self.moments.lock().expect("no panic happens while it is held");
        moments.get(name).copied()
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.task.abort();
    }
}
