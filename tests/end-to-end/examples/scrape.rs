//! Measures a scrape with many plugins (50, or as the argument says), each with one controller, on a simulated cluster
//! in one process: its size, and its time, both for printing it and for a whole HTTP request.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pilothouse_end_to_end::host::RuntimeHost;
use pilothouse_end_to_end::scrape::get;
use pilothouse_end_to_end::stage::{Stage, unhurried};
use pilothouse_metrics::Metrics;
use pilothouse_runtime::{EndpointServer, Endpoints, Heartbeat, HostOptions, StaticPlugin};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::host::HostError;
use serde_json::json;

const PLUGINS: usize = 50;

/// Repetitions of each measurement.
const TIMES: usize = 101;

/// An answer is given again for a second.
const FRESH: Duration = Duration::from_millis(1100);
const FETCHES: usize = 5;

fn main() -> Result<(), HostError> {
    let plugins = std::env::args().nth(1).map_or(Ok(PLUGINS), |number| number.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(measure(plugins))
}

async fn measure(plugins: usize) -> Result<(), HostError> {
    let metrics = Metrics::default();
    let options = HostOptions {
        metrics: metrics.clone(),
        ..HostOptions::default()
    };
    let mut stage = Stage {
        cluster: Cluster::simulated(),
        host: RuntimeHost::new(options, unhurried()),
    };
    let spec = stage.host.spec("service-ingress")?;
    let specs = (0..plugins).map(|number| StaticPlugin {
        name: Some(format!("plugin-{number:04}")),
        ..spec.clone()
    });
    stage.start(specs.collect()).await;
    stage.host.settled().await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "default", "annotations": {"ingress/http": "yes"}},
        "spec": {"ports": [{"port": 80}]},
    });
    stage.create(&service).await;
    stage.host.settled().await?;
    let handle = stage.host.handle().ok_or("the host runs")?.clone();
    let endpoints = Arc::new(Endpoints::new("0.0.0", metrics.clone(), Heartbeat::default()));
    endpoints.set_host(handle.clone());
    let server = EndpointServer::start(TcpListener::bind("127.0.0.1:0")?, endpoints)?;
    let mut text = String::new();
    let (mut taken, mut printed) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let begun = Instant::now();
        let figures = handle.figures();
        taken.push(begun.elapsed());
        text = metrics.print(&figures);
        printed.push(begun.elapsed());
    }
    let address = server.address();
    let fetch = move || -> std::io::Result<Vec<Duration>> {
        (0..FETCHES)
            .map(|_| {
                std::thread::sleep(FRESH);
                let begun = Instant::now();
                get(address, "/metrics")?;
                Ok(begun.elapsed())
            })
            .collect()
    };
    let fetched = tokio::task::spawn_blocking(fetch).await??;
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    println!("{plugins} plugins: {} bytes, {series} series", text.len());
    line("gauges taken", taken);
    line("gauges taken and all printed", printed);
    line("over HTTP", fetched);
    Ok(())
}

fn line(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!("{what}: {least:.1?} {median:.1?} {most:.1?} (minimum, median, maximum)");
}
