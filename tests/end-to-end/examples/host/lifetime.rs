//! New objects, a resync and a restart, each beside what the floor needs for the same.

use std::time::{Duration, Instant};

use kube::api::PostParams;
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::host::{SteeredHost as _, SteeredPlugin};
use serde_json::json;

use crate::contenders::{self, Hosted, IN_FLIGHT, Run, by_floor, by_host, collection, compare, floor};
use crate::figures::{heading, line, mebibytes, number, spread};
use crate::steered::{self, NEVER, asked, by_kind, cpu_seconds, process, settled, until};
use crate::{Outcome, Size};

/// Bundles of the run that only compares.
const FEW: usize = 20;

/// Resyncs that are measured together.
const RESYNCS: u32 = 4;

/// Measures and prints.
pub async fn measure(size: &Size) -> Outcome<()> {
    let Size {
        objects, repetitions, ..
    } = *size;
    // Before anything is timed: both make the same.
    pair(FEW).await?;
    let mut pairs = Vec::new();
    let mut last = None;
    for _ in 0..repetitions {
        let (floor, hosted, cluster) = pair(objects).await?;
        pairs.push((floor, hosted));
        last = Some(cluster);
    }
    print_pairs(objects, &pairs);
    let Some(cluster) = last else { return Ok(()) };
    resync(&cluster, objects).await?;
    restart(&cluster, objects, repetitions).await
}

async fn pair(objects: usize) -> Outcome<(Run, Hosted, Cluster)> {
    let floor = {
        let (cluster, _) = contenders::cluster(objects).await?;
        by_floor(&cluster, objects).await?
    };
    let (cluster, idle) = contenders::cluster(objects).await?;
    let mut host = steered::host(NEVER);
    let hosted = by_host(&cluster, &mut host, objects, idle).await?;
    host.stop().await?;
    compare(&floor, &hosted.run)?;
    Ok((floor, hosted, cluster))
}

fn print_pairs(objects: usize, pairs: &[(Run, Hosted)]) {
    let each = |figure: &dyn Fn(&Run, &Hosted) -> f64, digits| {
        let figures: Vec<_> = pairs.iter().map(|(floor, hosted)| figure(floor, hosted)).collect();
        spread(&figures, digits)
    };
    let count = number(objects);
    heading(&format!(
        "{objects} new Bundles on a real API server; the floor is a client of its own with {IN_FLIGHT} requests in flight"
    ));
    line(
        "the floor: writes a second",
        &each(&|floor, _| number(floor.writes) / floor.seconds, 0),
        "",
    );
    line(
        "the host: share of the floor's rate",
        &each(&|floor, hosted| floor.seconds / hosted.run.seconds, 2),
        "aim 0.95",
    );
    line(
        "the host: write requests for each object",
        &each(&|_, hosted| number(hosted.run.writes) / count, 3),
        "aim 4",
    );
    line(
        "the floor: CPU seconds for 1000 objects",
        &each(&|floor, _| floor.cpu_seconds / count * 1000.0, 2),
        "",
    );
    line(
        "the host: the same, as a multiple of the floor's",
        &each(&|floor, hosted| hosted.run.cpu_seconds / floor.cpu_seconds, 2),
        "aim 1.3",
    );
    line(
        "the host: PSS idle, MiB",
        &each(&|_, hosted| mebibytes(hosted.idle), 1),
        "aim 10",
    );
    line(
        "the host: PSS converged, MiB",
        &each(&|_, hosted| mebibytes(hosted.full), 1),
        "aim 16 with 2,000, 30 with 10,000",
    );
    line(
        "the host: greatest PSS on the way, MiB",
        &each(&|_, hosted| mebibytes(hosted.peak), 1),
        "",
    );
}

async fn resync(cluster: &Cluster, objects: usize) -> Outcome<()> {
    let interval = Duration::from_secs(10);
    let mut host = steered::host(interval);
    host.start(cluster, &[SteeredPlugin::from("bundle")]).await?;
    // The lists and the first look at everything are over when one resync has passed.
    tokio::time::sleep(interval + interval / 2).await;
    let (mark, id) = (cluster.mark()?, process(&host)?);
    let before = cpu_seconds(id)?;
    tokio::time::sleep(interval * RESYNCS).await;
    let cpu = (cpu_seconds(id)? - before) / f64::from(RESYNCS);
    let asked = asked(cluster, mark)?;
    host.stop().await?;
    heading(&format!(
        "a resync of {objects} converged Bundles and their {} children",
        3 * objects
    ));
    line("requests in four of them", &by_kind(&asked), "aim none");
    line("CPU seconds of one", &format!("{cpu:.2}"), "");
    Ok(())
}

async fn restart(cluster: &Cluster, objects: usize, repetitions: usize) -> Outcome<()> {
    let (mut lists, mut served, mut writes) = (Vec::new(), Vec::new(), 0);
    for repetition in 0..repetitions {
        lists.push(floor(cluster, "list", 0).await?.seconds);
        let mark = cluster.mark()?;
        let name = format!("new-{repetition}");
        let mut host = steered::host(NEVER);
        let begun = Instant::now();
        host.start(cluster, &[SteeredPlugin::from("bundle")]).await?;
        let bundles = collection(cluster.client().await?, "bench.example.dev", "Bundle");
        let new = json!({
            "apiVersion": "bench.example.dev/v1", "kind": "Bundle", "metadata": {"name": name},
            "spec": {"payload": "new", "port": 80, "image": "web:1"},
        });
        bundles
            .create(&PostParams::default(), &serde_json::from_value(new)?)
            .await?;
        until("the new Bundle to be ready", &mut host, async || {
            Ok(bundles.get(&name).await?.data["status"]["ready"] == true)
        })
        .await?;
        served.push(begun.elapsed().as_secs_f64());
        settled(cluster, &mut host).await?;
        let others = asked(cluster, mark)?;
        writes += others
            .iter()
            .filter(|request| request.is_write() && request.name != name)
            .count();
        host.stop().await?;
    }
    let ratios: Vec<_> = served
        .iter()
        .zip(&lists)
        .map(|(served, lists)| served / lists)
        .collect();
    heading(&format!(
        "a restart with {objects} Bundles and their {} children",
        3 * objects
    ));
    line("writes to what was converged", &writes.to_string(), "aim 0");
    line("the lists alone, s", &spread(&lists, 2), "");
    line("until a Bundle made at the start is ready, s", &spread(&served, 2), "");
    line("the same, as a multiple of the lists", &spread(&ratios, 2), "");
    Ok(())
}
