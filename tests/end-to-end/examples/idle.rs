//! Measures the idle host: its memory, and the requests of a resync and of a restart, with converged AppServices on a
//! real control plane. `cargo xtask bench idle` runs it; benchmarks have no place in tests.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilothouse_end_to_end::components;
use pilothouse_testkit::cluster::{Cluster, Mark};
use pilothouse_testkit::host::{ProcessHost, SteeredHost};
use pilothouse_testkit::requests::Request;
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// AppServices that are made and converge.
const OBJECTS: usize = 100;

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_mins(2);

/// Rest of a quiet host before its memory is measured.
const REST: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Outcome<()> {
    let cluster = Cluster::real().await?;
    let program = components::root().join("target").join("release").join("pilothouse");
    let mut host = ProcessHost::new(program, components::folder());
    let plugins = ["app-service".into()];

    let begun = cluster.mark()?;
    host.start(&cluster, &plugins).await?;
    let services = app_services(&cluster).await?;
    wait_for("the lane to open", &mut host, async || {
        Ok(requests(&cluster, begun)?
            .keys()
            .any(|request| request.starts_with("watch appservices")))
    })
    .await?;
    quiet(&cluster, &mut host).await?;
    let empty = proportional_set_size(&host)?;

    let before = cluster.mark()?;
    for number in 0..OBJECTS {
        services.create(&PostParams::default(), &app_service(number)?).await?;
    }
    wait_for("all AppServices to be reconciled", &mut host, async || {
        converged(&services).await
    })
    .await?;
    quiet(&cluster, &mut host).await?;
    println!("{OBJECTS} AppServices converged; requests of the host meanwhile:");
    print(&requests(&cluster, before)?);
    let full = proportional_set_size(&host)?;

    let before = cluster.mark()?;
    host.resync().await?;
    host.resync().await?;
    println!("\nrequests of the host in at least two resyncs of {OBJECTS} converged AppServices:");
    print(&requests(&cluster, before)?);

    host.stop().await?;
    let before = cluster.mark()?;
    host.start(&cluster, &plugins).await?;
    host.resync().await?;
    quiet(&cluster, &mut host).await?;
    println!("\nrequests of the host after a restart with {OBJECTS} converged AppServices:");
    print(&requests(&cluster, before)?);
    let restarted = proportional_set_size(&host)?;

    println!("\nmemory of the host (PSS, KiB), with app-service:");
    println!("  0 objects {empty}, {OBJECTS} converged {full}, after a restart {restarted}");
    host.stop().await?;
    Ok(())
}

async fn app_services(cluster: &Cluster) -> Outcome<Api<DynamicObject>> {
    let kind = GroupVersionKind::gvk("kosmos.io", "v1", "AppService");
    Ok(Api::namespaced_with(
        cluster.client().await?,
        "default",
        &ApiResource::from_gvk(&kind),
    ))
}

fn app_service(number: usize) -> Outcome<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": format!("idle-{number}")},
        "spec": {"size": 0, "image": "web:1", "ports": [{"port": 80}]},
    }))?)
}

async fn converged(services: &Api<DynamicObject>) -> Outcome<bool> {
    let list = services.list(&kube::api::ListParams::default()).await?;
    let is_true = |condition: &Value| condition["type"] == "Reconciled" && condition["status"] == "True";
    let done = list.items.iter().filter(|service| {
        service.data["status"]["conditions"]
            .as_array()
            .is_some_and(|conditions| conditions.iter().any(is_true))
    });
    Ok(done.count() == OBJECTS)
}

async fn wait_for(what: &str, host: &mut ProcessHost, mut holds: impl AsyncFnMut() -> Outcome<bool>) -> Outcome<()> {
    let begun = Instant::now();
    while !holds().await? {
        if let Some(failure) = host.failure() {
            return Err(format!("{failure}\n{}", host.log_tail()).into());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("waited in vain for {what}\n{}", host.log_tail()).into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Waits until the host has sent no request for two seconds (the controllers of Deployments may still have been at
/// work), and has then returned the memory that only that needed.
async fn quiet(cluster: &Cluster, host: &mut ProcessHost) -> Outcome<()> {
    wait_for("the host to be quiet", host, async || {
        let mark = cluster.mark()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(requests(cluster, mark)?.is_empty())
    })
    .await?;
    tokio::time::sleep(REST).await;
    Ok(())
}

/// The host's requests since a mark, by what they ask and how they ended.
fn requests(cluster: &Cluster, since: Mark) -> Outcome<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for request in cluster.requests_since(since)?.into_iter().filter(Request::is_by_host) {
        let slash = if request.subresource.is_empty() { "" } else { "/" };
        let asked = if request.resource.is_empty() {
            "(discovery)"
        } else {
            &request.resource
        };
        let what = format!(
            "{} {asked}{slash}{} {}",
            request.verb, request.subresource, request.code
        );
        *counts.entry(what).or_default() += 1;
    }
    Ok(counts)
}

fn print(requests: &BTreeMap<String, usize>) {
    if requests.is_empty() {
        println!("  none");
    }
    for (what, count) in requests {
        println!("  {count:>5} {what}");
    }
}

/// Returns the memory of a process, with shared pages divided among the processes that share them.
fn proportional_set_size(host: &ProcessHost) -> Outcome<u64> {
    let id = host.process_id().ok_or("the host does not run")?;
    let text = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .ok_or("the kernel tells no PSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
