//! The baseline of the benchmarks: it makes Bundles, writes what an operator has to write for them, or lists what an operator
//! has to list, and does nothing else. `cargo xtask bench host` runs it beside the host, with the same client and as many
//! requests in flight.
//!
//! A line of JSON says how long it took and what it cost. `steer` goes on until it is ended.

#![forbid(unsafe_code)]

mod bodies;
mod steer;

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::json;

use crate::bodies::{Bundle, Write};

/// Objects in a page of a list, as many as the host asks for.
const PAGE: usize = 500;

/// The collections that the host lists for Bundles.
const LISTS: [&str; 4] = [
    bodies::BUNDLES,
    "/api/v1/configmaps",
    "/api/v1/services",
    "/apis/apps/v1/deployments",
];

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, kubeconfig, number, in_flight] = arguments.as_slice() else {
        bail!("usage: pilothouse-baseline make|write|list|steer KUBECONFIG NUMBER IN_FLIGHT");
    };
    let (number, in_flight): (usize, usize) = (number.parse()?, in_flight.parse()?);
    let client = connect(kubeconfig).await?;
    let begun = Instant::now();
    let requests = match task.as_str() {
        "make" => send_all(&client, (0..number).map(bodies::make), in_flight).await?,
        "write" => {
            let bundles = list(&client, bodies::BUNDLES).await?;
            ensure!(
                bundles.len() == number,
                "there are {} Bundles, not {number}",
                bundles.len()
            );
            // One after the other for each Bundle, as an operator does.
            stream::iter(&bundles)
                .map(|bundle| send_all(&client, bodies::writes(bundle), 1))
                .buffer_unordered(in_flight)
                .try_fold(0, async |sum, sent| Ok(sum + sent))
                .await?
        }
        "list" => {
            let lists = LISTS.map(|path| list(&client, path));
            futures::future::try_join_all(lists).await?.len()
        }
        "steer" => steer::steer(&client).await?,
        other => bail!("there is no task {other}"),
    };
    let result = json!({
        "seconds": begun.elapsed().as_secs_f64(), "cpuSeconds": cpu_seconds()?, "requests": requests,
    });
    println!("{result}");
    Ok(())
}

async fn connect(kubeconfig: &str) -> Result<Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn send_all(client: &Client, writes: impl IntoIterator<Item = Write>, in_flight: usize) -> Result<usize> {
    stream::iter(writes)
        .map(|write| async move {
            let Write {
                method,
                path,
                kind,
                body,
            } = write;
            let request = http::Request::builder()
                .method(method)
                .uri(&path)
                .header(http::header::CONTENT_TYPE, kind)
                .body(body)?;
            client.request_text(request).await.context(path).map(drop)
        })
        .buffer_unordered(in_flight)
        .try_fold(0, async |sum, ()| Ok(sum + 1))
        .await
}

/// All objects of a collection, page by page.
async fn list(client: &Client, path: &str) -> Result<Vec<Bundle>> {
    #[derive(Deserialize)]
    struct List {
        metadata: ListMetadata,
        items: Vec<Bundle>,
    }
    #[derive(Deserialize)]
    struct ListMetadata {
        #[serde(rename = "continue", default)]
        next: String,
    }
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let request = http::Request::get(format!("{path}?limit={PAGE}&continue={next}")).body(Vec::new())?;
        let page: List = client.request(request).await?;
        all.extend(page.items);
        if page.metadata.next.is_empty() {
            return Ok(all);
        }
        next = page.metadata.next;
    }
}

/// Returns the processor time of this process.
fn cpu_seconds() -> Result<f64> {
    /// Unit of `/proc`, on every Linux.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("the name stands in brackets")?;
    let ticks = |index| -> Result<f64> { Ok(fields.split_whitespace().nth(index).context("no times")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}
