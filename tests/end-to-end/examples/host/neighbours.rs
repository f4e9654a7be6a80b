//! Measures how long a plugin takes for a new object while another one of the same host is quiet, loops, traps, or
//! floods: from the request that creates the object to its status, as a watch sees it. A flood slows the API server as
//! well; a client that only makes the same writes shows by how much.

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
use crate::steered::{self, NEVER, program, settled, until};
use crate::{Outcome, Size};

/// The plugin that is measured, and the other one.
const PLUGINS: [&str; 2] = ["bundle", "hostile"];

/// New objects in each situation of each repetition.
const SAMPLES: usize = 150;

/// Between two of them.
const INTERVAL: Duration = Duration::from_millis(100);

/// The other plugin has nothing to do.
const QUIET: Situation = Situation {
    what: "the other one is quiet",
    behaviour: "config-map",
    rate: 0,
};

/// Behaviour of the other plugin.
const SITUATIONS: [Situation; 4] = [
    QUIET,
    Situation {
        what: "the other one loops, ten calls a second",
        behaviour: "loop",
        rate: 10,
    },
    Situation {
        what: "the other one traps, 50 calls a second",
        behaviour: "trap",
        rate: 50,
    },
    FLOOD,
];

/// The other plugin has much to do.
const FLOOD: Situation = Situation {
    what: "the other one has 50 new objects a second",
    behaviour: "config-map",
    rate: 50,
};

/// Behaviour of the other plugin, and the rate of its objects per second.
#[derive(Clone, Copy)]
struct Situation {
    what: &'static str,
    behaviour: &'static str,
    rate: u32,
}

/// Durations of each situation, in milliseconds for each Bundle.
type Took = Vec<(Situation, Vec<f64>)>;

/// Measures and prints.
pub async fn measure(size: &Size) -> Outcome<()> {
    let (mut hosted, mut baseline) = (Took::new(), Took::new());
    for _ in 0..size.repetitions {
        add(&mut hosted, by_host().await?);
        add(&mut baseline, by_baseline().await?);
    }
    let each = INTERVAL.as_millis();
    heading(&format!("ms until a new Bundle is ready, one every {each} ms"));
    print(&hosted, "of quiet, aim 1.2");
    heading("the same of a client that only makes the writes: what the API server does beside a flood");
    print(&baseline, "of quiet");
    Ok(())
}

async fn by_host() -> Outcome<Took> {
    let cluster = Cluster::real_with(Options::default()).await?;
    let mut host = steered::host(NEVER);
    host.start(&cluster, &PLUGINS.map(SteeredPlugin::from)).await?;
    let client = cluster.client().await?;
    let mut took = Took::new();
    for (number, situation) in SITUATIONS.into_iter().enumerate() {
        settled(&cluster, &mut host).await?;
        took.push((situation, beside(&client, &mut host, number, situation).await?));
    }
    host.stop().await?;
    Ok(took)
}

/// The host is only there to install the CRDs.
async fn by_baseline() -> Outcome<Took> {
    let cluster = Cluster::real_with(Options::default()).await?;
    let mut host = steered::host(NEVER);
    host.start(&cluster, &PLUGINS.map(SteeredPlugin::from)).await?;
    settled(&cluster, &mut host).await?;
    host.stop().await?;
    let _baseline = tokio::process::Command::new(program("pilothouse-baseline"))
        .arg("steer")
        .arg(cluster.host_kubeconfig()?)
        .args(["0", "0"])
        .kill_on_drop(true)
        .spawn()?;
    let client = cluster.client().await?;
    let mut took = Took::new();
    for (number, situation) in [QUIET, FLOOD].into_iter().enumerate() {
        tokio::time::sleep(2 * steered::QUIET).await;
        took.push((situation, beside(&client, &mut host, number, situation).await?));
    }
    Ok(took)
}

/// Measures new Bundles in a situation.
async fn beside(client: &Client, host: &mut ProcessHost, number: usize, situation: Situation) -> Outcome<Vec<f64>> {
    let stop = Arc::new(AtomicBool::new(false));
    let troubling = tokio::spawn(trouble(client.clone(), situation, number, stop.clone()));
    let took = latencies(client.clone(), host, number).await?;
    stop.store(true, Ordering::Relaxed);
    troubling.await??;
    Ok(took)
}

fn add(sum: &mut Took, more: Took) {
    for (index, (situation, took)) in more.into_iter().enumerate() {
        match sum.get_mut(index) {
            Some((_, known)) => known.extend(took),
            None => sum.push((situation, took)),
        }
    }
}

fn print(took: &Took, of_quiet: &str) {
    let mut quiet = None;
    for (Situation { what, .. }, took) in took {
        let (half, most) = (quantile(took, 0.5), quantile(took, 0.99));
        let quiet = *quiet.get_or_insert(most);
        let figures = format!("p50 {half:.0}  p99 {most:.0}");
        line(what, &figures, &format!("{:.2} {of_quiet}", most / quiet));
    }
}

/// Makes objects of the other plugin until it is told to stop.
async fn trouble(client: Client, situation: Situation, number: usize, stop: Arc<AtomicBool>) -> Outcome<()> {
    let (situation, Situation { behaviour, rate, .. }) = (number, situation);
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

/// Measures each of some new Bundles, in milliseconds. They are created at their times, however long the others take.
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
