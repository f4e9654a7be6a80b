//! A converged cluster, simulated and real: what a resync of it costs, what a restart writes, and whether what is new
//! waits behind what is old.

use std::time::{Duration, Instant};

use kube::api::PostParams;
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::controlplane::Options;
use pilothouse_testkit::host::{SteeredHost as _, SteeredPlugin};

use crate::contenders::{Ready, baseline, bundle, by_host, collection, prepare, watching};
use crate::figures::{heading, line, number, spread};
use crate::steered::{self, NEVER, QUIET, asked, by_kind, cpu_seconds, process, settled, until};
use crate::{Outcome, Size};

/// Resyncs that are measured together.
const RESYNCS: u32 = 4;

/// Between two of them; the host is quiet in between, which says that one is over.
const INTERVAL: Duration = Duration::from_secs(15);

/// Measures and prints.
pub async fn measure(size: &Size) -> Outcome<()> {
    converged(Cluster::simulated_over_http().await?, size).await?;
    converged(Cluster::real_with(Options::default()).await?, size).await
}

async fn converged(cluster: Cluster, size: &Size) -> Outcome<()> {
    let Size {
        objects, repetitions, ..
    } = *size;
    let idle = prepare(&cluster, objects).await?;
    let mut host = steered::host(NEVER);
    let hosted = by_host(&cluster, &mut host, objects, idle).await?;
    host.stop().await?;
    heading(&format!(
        "{objects} converged Bundles and their {} children on a {} API server",
        3 * objects,
        cluster.kind()
    ));
    let each = number(hosted.run.writes) / number(objects);
    line(
        "writes until they were, for each Bundle",
        &format!("{each:.3}"),
        "aim 4",
    );
    resync(&cluster).await?;
    restart(&cluster, objects, repetitions).await
}

async fn resync(cluster: &Cluster) -> Outcome<()> {
    let mut host = steered::host(INTERVAL);
    host.start(cluster, &[SteeredPlugin::from("bundle")]).await?;
    settled(cluster, &mut host).await?;
    let (mark, id) = (cluster.mark()?, process(&host)?);
    let before = cpu_seconds(id)?;
    tokio::time::sleep(INTERVAL * RESYNCS).await;
    let cpu = (cpu_seconds(id)? - before) / f64::from(RESYNCS);
    let asked = asked(cluster, mark)?;
    host.stop().await?;
    line("requests in four resyncs", &by_kind(&asked), "aim none");
    line("CPU seconds of one", &format!("{cpu:.2}"), "");
    Ok(())
}

/// Figures of the restarts, in seconds but for the writes.
#[derive(Default)]
struct Restarts {
    lists: Vec<f64>,
    /// Durations from the start to the status of a Bundle that was created then.
    early: Vec<f64>,
    /// Durations from the request that creates a Bundle to its status: while all the others are reconciled, and after
    /// that.
    late: Vec<f64>,
    quiet: Vec<f64>,
    /// Durations from the start until all have been reconciled.
    over: Vec<f64>,
    writes: usize,
}

async fn restart(cluster: &Cluster, objects: usize, repetitions: usize) -> Outcome<()> {
    let client = cluster.client().await?;
    let bundles = collection(client.clone(), "bench.example.dev", "Bundle");
    let create = async |name: &str| -> Outcome<Instant> {
        let begun = Instant::now();
        bundles.create(&PostParams::default(), &bundle(name)?).await?;
        Ok(begun)
    };
    let mut seen = Restarts::default();
    for repetition in 0..repetitions {
        let names = ["early", "late", "quiet"].map(|when| format!("{when}-{repetition}"));
        let [early, late, quiet] = &names;
        seen.lists.push(baseline(cluster, "list", 0).await?.seconds);
        let ready = Ready::watch(client.clone());
        let mut host = steered::host(NEVER);
        // The watch of the benchmark has its list behind it before the host needs the processors.
        while ready.count() < objects {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mark = cluster.mark()?;
        let begun = Instant::now();
        host.start(cluster, &[SteeredPlugin::from("bundle")]).await?;
        create(early).await?;
        watching(cluster, &mut host, mark).await?;
        let late_begun = create(late).await?;
        until("the new Bundles to be ready", &mut host, async || {
            Ok(ready.moment(early).is_some() && ready.moment(late).is_some())
        })
        .await?;
        settled(cluster, &mut host).await?;
        let over = begun.elapsed().saturating_sub(QUIET);
        let quiet_begun = create(quiet).await?;
        until("the last Bundle to be ready", &mut host, async || {
            Ok(ready.moment(quiet).is_some())
        })
        .await?;
        let since = |name: &str, begun: Instant| {
            ready
                .moment(name)
                .map(|moment| moment.duration_since(begun).as_secs_f64())
        };
        seen.early.extend(since(early, begun));
        seen.late.extend(since(late, late_begun));
        seen.quiet.extend(since(quiet, quiet_begun));
        seen.over.push(over.as_secs_f64());
        settled(cluster, &mut host).await?;
        let asked = asked(cluster, mark)?;
        seen.writes += asked
            .iter()
            .filter(|request| request.is_write() && !names.contains(&request.name))
            .count();
        host.stop().await?;
    }
    print(&seen, repetitions);
    Ok(())
}

fn print(seen: &Restarts, repetitions: usize) {
    let Restarts {
        lists,
        early,
        late,
        quiet,
        over,
        writes,
    } = seen;
    let ratios: Vec<_> = early.iter().zip(lists).map(|(early, lists)| early / lists).collect();
    let milliseconds = |seconds: &[f64]| seconds.iter().map(|seconds| seconds * 1000.0).collect::<Vec<_>>();
    line(
        &format!("{repetitions} restarts: writes to what was converged"),
        &writes.to_string(),
        "aim 0",
    );
    line("the lists alone, s", &spread(lists, 2), "");
    line("until a Bundle made at the start is ready, s", &spread(early, 2), "");
    line("the same, as a multiple of the lists", &spread(&ratios, 2), "");
    line("until all others have been looked at, s", &spread(over, 2), "");
    line(
        "a Bundle made right after the lists is ready after ms",
        &spread(&milliseconds(late), 0),
        "",
    );
    line("one made when all is quiet, ms", &spread(&milliseconds(quiet), 0), "");
}
