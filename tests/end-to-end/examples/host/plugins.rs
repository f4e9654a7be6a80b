//! Measures the cost of an idle plugin and of waking it: distinct components, of which no two share a page of code, in
//! a sandbox and in the released host on a real API server.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::StreamExt as _;
use kube::api::{DynamicObject, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use pilothouse_core::Limits;
use pilothouse_end_to_end::{components, variants};
use pilothouse_sandbox::{Compiler, PluginComponent, Sandbox, SandboxOptions};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::controlplane::Options;
use pilothouse_testkit::host::{ProcessHost, SteeredHost as _};
use serde_json::json;

use crate::contenders::collection;
use crate::figures::{heading, line, mebibytes, number, quantile};
use crate::steered::{self, NEVER, asked, at_rest, memory, process, program, until};
use crate::{Outcome, Size};

/// The plugin that they all are: it brings no kind of its own, and steers the Services that have its annotation.
const PLUGIN: &str = "service-ingress";
const ANNOTATION: &str = "ingress/http";

/// Memory into which a thousand plugins must fit, in MiB.
const ALL: f64 = 256.0;

/// Plugins that are woken.
const WOKEN: usize = 100;

/// Measures and prints.
pub async fn measure(size: &Size) -> Outcome<()> {
    let Size { plugins, .. } = *size;
    let folder = tempfile::tempdir()?;
    let files = distinct(plugins + 1, folder.path())?;
    heading(&format!("{plugins} distinct plugins with nothing to do"));
    // Beside the host, because only a sandbox can be told when to let a plugin sleep.
    in_a_sandbox(&files)?;
    let cluster = Cluster::real_with(Options::default()).await?;
    let one = Idle::of(&cluster, &files[..1]).await?;
    let all = Idle::of(&cluster, &files).await?;
    let each = (all.memory - one.memory) / number(plugins);
    line(
        "in the host, at rest: KiB for each plugin, lanes included",
        &format!("{each:.1}"),
        "aim 4",
    );
    line(
        "in the host, at rest: PSS of all, MiB",
        &format!("{:.1}", mebibytes(all.memory)),
        &format!("1000 within {ALL}"),
    );
    line("in the host: s until all are open", &format!("{:.1}", all.seconds), "");
    line(
        "in the host: open files, mappings",
        &format!("{}, {}", all.files, all.mappings),
        "",
    );
    wake(&cluster, &files[..files.len().min(WOKEN)]).await
}

/// Makes so many files with distinct components.
pub fn distinct(number: usize, folder: &Path) -> Outcome<Vec<PathBuf>> {
    let component = std::fs::read(components::folder().join(format!("{PLUGIN}.wasm")))?;
    (0..number)
        .map(|number| {
            let path = folder.join(format!("plugin-{number}.wasm"));
            // Within the data, so that the compiled code is another file too.
            std::fs::write(&path, variants::reworded(&component, ANNOTATION, &annotation(number)))?;
            Ok(path)
        })
        .collect()
}

/// The annotation of one of them, as long as the plugin's own.
fn annotation(number: usize) -> String {
    format!("ingress/{number:04}")
}

/// Folder in which compiled plugins are kept from run to run: compiling a thousand takes minutes.
fn cache() -> PathBuf {
    components::root().join("target").join("bench-code")
}

/// Memory for each of the files but the first, in KiB: mapped, called, and asleep; and how long it takes to wake one.
fn in_a_sandbox(files: &[PathBuf]) -> Outcome<()> {
    let compiler = Compiler::Child {
        program: program("pilothouse"),
    };
    let sandbox = Sandbox::new(SandboxOptions::new(cache(), compiler))?;
    let load = |file: &PathBuf| sandbox.load(file);
    // Once before, so that compiling is over when it counts.
    let compiled = files.iter().map(load).collect::<Result<Vec<_>, _>>()?;
    drop(compiled);
    let first = load(&files[0])?;
    let limits = Limits {
        call_milliseconds: 10_000,
        ..Limits::default()
    };
    let call = |plugin: &PluginComponent| plugin.describe(None, &limits).map_err(|failure| failure.to_string());
    call(&first)?;
    let before = memory(std::process::id())?;
    let others = files[1..].iter().map(load).collect::<Result<Vec<_>, _>>()?;
    let told = |what: &str, aim: &str| -> Outcome<()> {
        let each = (memory(std::process::id())? - before) / number(others.len());
        line(
            &format!("in a sandbox: KiB for each plugin, {what}"),
            &format!("{each:.1}"),
            aim,
        );
        Ok(())
    };
    told("loaded", "aim 64")?;
    for plugin in &others {
        call(plugin)?;
    }
    told("called once", "")?;
    others.iter().for_each(PluginComponent::sleep);
    told("asleep", "aim 4")?;
    let timed = |plugin: &PluginComponent| -> Outcome<f64> {
        let begun = Instant::now();
        call(plugin)?;
        Ok(begun.elapsed().as_secs_f64() * 1000.0)
    };
    let woken = others.iter().map(timed).collect::<Outcome<Vec<_>>>()?;
    let awake = others.iter().map(timed).collect::<Outcome<Vec<_>>>()?;
    line(
        "in a sandbox: ms of a call that wakes, p50 / p99",
        &percentiles(&woken),
        "",
    );
    line("in a sandbox: ms of the next call, p50 / p99", &percentiles(&awake), "");
    Ok(())
}

/// The host with nothing to do.
struct Idle {
    /// PSS in KiB.
    memory: f64,
    /// Seconds until all plugins were open.
    seconds: f64,
    files: usize,
    mappings: usize,
}

impl Idle {
    async fn of(cluster: &Cluster, files: &[PathBuf]) -> Outcome<Self> {
        let (mut host, seconds) = started(cluster, files).await?;
        let id = process(&host)?;
        let idle = Self {
            memory: memory(id)?,
            seconds,
            files: std::fs::read_dir(format!("/proc/{id}/fd"))?.count(),
            mappings: std::fs::read_to_string(format!("/proc/{id}/maps"))?.lines().count(),
        };
        host.stop().await?;
        Ok(idle)
    }
}

/// A host with these plugins that has come to rest, and how long it took until all were open.
async fn started(cluster: &Cluster, files: &[PathBuf]) -> Outcome<(ProcessHost, f64)> {
    let arguments = files.iter().enumerate().flat_map(|(number, file)| {
        let plugin = format!("plugin-{number}={}", file.display());
        ["--plugin".to_owned(), plugin]
    });
    let cache = ["--cache-dir".to_owned(), cache().display().to_string()];
    let mut host = steered::host(NEVER).with_arguments(arguments.chain(cache));
    let (mark, begun) = (cluster.mark()?, Instant::now());
    host.start(cluster, &[]).await?;
    // Each plugin reads its events back when it comes up.
    until("all plugins to come up", &mut host, async || {
        let events = asked(cluster, mark)?;
        Ok(events.iter().filter(|request| request.resource == "events").count() >= files.len())
    })
    .await?;
    let seconds = begun.elapsed().as_secs_f64();
    at_rest(cluster, &mut host).await?;
    Ok((host, seconds))
}

/// Creates a Service for each plugin while it sleeps, and then another one; measures from the request to the Ingress.
async fn wake(cluster: &Cluster, files: &[PathBuf]) -> Outcome<()> {
    let (mut host, _) = started(cluster, files).await?;
    let client = cluster.client().await?;
    let services = collection(client.clone(), "", "Service");
    let seen = Seen::watch(client);
    let (mut woken, mut awake) = (Vec::new(), Vec::new());
    for number in 0..files.len() {
        for (turn, times) in [("first", &mut woken), ("second", &mut awake)] {
            let name = format!("{turn}-{number}");
            let begun = Instant::now();
            create(&services, &name, &annotation(number)).await?;
            let seen = seen.until(&name, &mut host).await?;
            times.push(seen.duration_since(begun).as_secs_f64() * 1000.0);
        }
    }
    host.stop().await?;
    heading("a Service for a plugin that sleeps, and another one for the same plugin, until the Ingress is seen");
    line("ms for the one that wakes, p50 / p99", &percentiles(&woken), "");
    line("ms for the other one, p50 / p99", &percentiles(&awake), "");
    let difference = |part| quantile(&woken, part) - quantile(&awake, part);
    line(
        "the difference, ms, p50 / p99",
        &format!("{:.2} / {:.2}", difference(0.5), difference(0.99)),
        "aim 5",
    );
    Ok(())
}

async fn create(services: &Api<DynamicObject>, name: &str, annotation: &str) -> Outcome<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": {annotation: ""}},
        "spec": {"ports": [{"port": 80}]},
    });
    services
        .create(&PostParams::default(), &serde_json::from_value(service)?)
        .await?;
    Ok(())
}

/// First sight of each Ingress.
struct Seen(Arc<Mutex<HashMap<String, Instant>>>);

impl Seen {
    /// Begins to watch, until the program ends.
    fn watch(client: Client) -> Self {
        let moments = Arc::<Mutex<HashMap<String, Instant>>>::default();
        let seen = moments.clone();
        let ingresses = collection(client, "networking.k8s.io", "Ingress");
        tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(ingresses, watcher::Config::default()));
            while let Some(event) = events.next().await {
                if let Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) = event
                    && let Some(name) = object.metadata.name
                {
                    let mut seen = seen.lock().expect("no panic happens while it is held");
                    seen.entry(name).or_insert_with(Instant::now);
                }
            }
        });
        Self(moments)
    }

    async fn until(&self, name: &str, host: &mut ProcessHost) -> Outcome<Instant> {
        let moment = || {
            let moments = self.0.lock().expect("no panic happens while it is held");
            moments.get(name).copied()
        };
        until("the Ingress", host, async || Ok(moment().is_some())).await?;
        moment().ok_or_else(|| "it was seen".into())
    }
}

fn percentiles(times: &[f64]) -> String {
    format!("{:.2} / {:.2}", quantile(times, 0.5), quantile(times, 0.99))
}
