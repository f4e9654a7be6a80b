//! How long a plugin takes for a new object while another one of the same host is quiet, loops, traps, or floods: from
//! the request that makes the object to its status, as a watch sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::PostParams;
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::controlplane::Options;
use pilothouse_testkit::host::{ProcessHost, SteeredHost as _, SteeredPlugin};
use serde_json::json;

use crate::contenders::{Ready, collection};
use crate::figures::{heading, line, quantile};
use crate::steered::{self, NEVER, settled, until};
use crate::{Outcome, Size};

/// New objects in each situation.
const SAMPLES: usize = 150;

/// Between two of them.
const INTERVAL: Duration = Duration::from_millis(100);

/// What the other plugin does, and how many objects a second make it do so.
const SITUATIONS: [(&str, &str, u32); 4] = [
    ("the other one is quiet", "config-map", 0),
    ("the other one loops, ten calls a second", "loop", 10),
    ("the other one traps, 50 calls a second", "trap", 50),
    ("the other one has 50 new objects a second", "config-map", 50),
];

/// Measures and prints.
pub async fn measure(_: &Size) -> Outcome<()> {
    let cluster = Cluster::real_with(Options::default()).await?;
    let mut host = steered::host(NEVER);
    let plugins = ["bundle", "hostile"].map(SteeredPlugin::from);
    host.start(&cluster, &plugins).await?;
    let client = cluster.client().await?;
    let mut quiet = None;
    heading(&format!(
        "ms until a new Bundle is ready, one every {} ms",
        INTERVAL.as_millis()
    ));
    for (number, (what, behaviour, rate)) in SITUATIONS.into_iter().enumerate() {
        settled(&cluster, &mut host).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let troubling = tokio::spawn(trouble(client.clone(), behaviour, number, rate, stop.clone()));
        let took = latencies(client.clone(), &mut host, number).await?;
        stop.store(true, Ordering::Relaxed);
        troubling.await??;
        let (half, most) = (quantile(&took, 0.5), quantile(&took, 0.99));
        let quiet = *quiet.get_or_insert(most);
        line(
            what,
            &format!("p50 {half:.0}  p99 {most:.0}"),
            &format!("{:.2} of quiet, aim 1.2", most / quiet),
        );
    }
    host.stop().await?;
    Ok(())
}

/// Makes objects of the other plugin until it is told to stop.
async fn trouble(client: Client, behaviour: &str, situation: usize, rate: u32, stop: Arc<AtomicBool>) -> Outcome<()> {
    if rate == 0 {
        return Ok(());
    }
    let hostiles = collection(client, "hostile.test.dev", "Hostile");
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        ticks.tick().await;
        let object = json!({
            "apiVersion": "hostile.test.dev/v1", "kind": "Hostile", "metadata": {"name": format!("h-{situation}-{number}")},
            "spec": {"behaviour": behaviour, "text": "text"},
        });
        hostiles
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
    }
    Ok(())
}

/// How long each of some new Bundles takes, in milliseconds. They come at their times, however long the others take.
async fn latencies(client: Client, host: &mut ProcessHost, situation: usize) -> Outcome<Vec<f64>> {
    let bundles = collection(client.clone(), "bench.example.dev", "Bundle");
    let ready = Ready::watch(client);
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut made = Vec::with_capacity(SAMPLES);
    for number in 0..SAMPLES {
        ticks.tick().await;
        let name = format!("n-{situation}-{number}");
        let object = json!({
            "apiVersion": "bench.example.dev/v1", "kind": "Bundle", "metadata": {"name": name},
            "spec": {"payload": "words", "port": 80, "image": "web:1"},
        });
        made.push((name, Instant::now()));
        bundles
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
    }
    until("all Bundles to be ready", host, async || {
        Ok(made.iter().all(|(name, _)| ready.moment(name).is_some()))
    })
    .await?;
    let took = made
        .iter()
        .map(|(name, begun)| Some((ready.moment(name)? - *begun).as_secs_f64() * 1000.0));
    Ok(took.flatten().collect())
}
