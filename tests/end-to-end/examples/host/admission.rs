//! Measures how long a real API server takes for a new ReverseProxy that the host's webhooks default and validate,
//! beside one in `kube-system`, about which webhooks are never called; while the host is idle, and while many
//! reconciles are queued. `cargo xtask bench admission` runs it.
//!
//! Nothing is stored (`dryRun`), one request follows the other, and both sorts take turns.

use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pilothouse_end_to_end::components;
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::controlplane::Options;
use pilothouse_testkit::host::{ProcessHost, SteeredHost as _};
use serde_json::{Value, json};

use crate::contenders::{IN_FLIGHT, collection};
use crate::figures::{heading, line, number, quantile, spread};
use crate::steered::{self, NEVER, settled, until};
use crate::{Outcome, Size};

/// Requests of each sort in one repetition.
const SAMPLES: usize = 500;

/// Rounds that the call of a queued object works: about a tenth of a second.
const ROUNDS: u64 = 150_000_000;

/// Objects beyond those that are to be queued: some are done while it is measured.
const RESERVE: usize = 2500;

/// The namespace of the Secret with the webhooks' certificates.
const HARBOUR: &str = "pilothouse-system";

/// Measures and prints.
pub async fn measure(size: &Size) -> Outcome<()> {
    let Size {
        objects, repetitions, ..
    } = *size;
    let cluster = Cluster::real_with(Options::default()).await?;
    let client = cluster.client().await?;
    let resources = Resources::of(&client);
    make(
        &resources.namespaces,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HARBOUR}}),
    )
    .await?;
    let mut host = with_webhooks()?;
    host.start(&cluster, &[]).await?;
    until("the CRD of Plugin", &mut host, async || {
        Ok(resources.plugins.list(&ListParams::default()).await.is_ok())
    })
    .await?;
    for name in ["reverse-proxy", "hostile"] {
        let spec = json!({"source": {"file": format!("{name}.wasm")}, "limits": {"callMilliseconds": 10_000}});
        let plugin = json!({"apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": name}, "spec": spec});
        make(&resources.plugins, plugin).await?;
        until("a plugin to be ready", &mut host, async || {
            Ok(says(&resources.plugins.get(name).await?, "Ready", "True"))
        })
        .await?;
    }
    let sample = components::root().join("deploy/samples/reverse-proxy.yaml");
    let asking = Asking::new(client.clone(), &sample)?;
    until("the API server to ask the webhooks", &mut host, async || {
        Ok(asking.refuses(&asking.asked).await)
    })
    .await?;
    if asking.refuses(&asking.unasked).await {
        return Err("the webhooks are asked about kube-system, so there is no baseline".into());
    }
    settled(&cluster, &mut host).await?;

    heading(&format!(
        "a dry-run create of a ReverseProxy on a real API server, {repetitions} times {SAMPLES} of each"
    ));
    let mut quiet = Vec::new();
    for _ in 0..repetitions {
        quiet.push(asking.times().await?);
    }
    print("nothing queued", &quiet);

    queue(&client, &resources.plugins, &mut host, objects).await?;
    let (mut busy, mut depths) = (Vec::new(), vec![depth(&resources.plugins).await?]);
    for _ in 0..repetitions {
        busy.push(asking.times().await?);
        depths.push(depth(&resources.plugins).await?);
    }
    print(&format!("{objects} queued"), &busy);
    let depths: Vec<_> = depths.into_iter().map(number).collect();
    line(
        "reconciles queued meanwhile",
        &spread(&depths, 0),
        &format!("at least {objects}"),
    );
    let ratio = |part: f64| {
        let figure = |times: &[Times]| -> Vec<f64> { times.iter().map(|it| quantile(&it.asked, part)).collect() };
        let pairs = figure(&busy).into_iter().zip(figure(&quiet));
        spread(&pairs.map(|(busy, quiet)| busy / quiet).collect::<Vec<_>>(), 2)
    };
    line("p50 with webhooks, of that with nothing queued", &ratio(0.5), "");
    line("p99 with webhooks, of that with nothing queued", &ratio(0.99), "");
    host.stop().await?;
    Ok(())
}

/// The released host, steered by Plugin resources, with webhooks on a free port.
fn with_webhooks() -> Outcome<ProcessHost> {
    // The port has to be known before the host has it.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let directory = std::path::absolute(components::folder())?.display().to_string();
    let arguments = [
        ("--plugin-dir", directory),
        ("--webhook-url", format!("https://{address}")),
        ("--webhook-listen", address.to_string()),
    ];
    Ok(steered::host(NEVER).with_arguments(arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value])))
}

/// Collections without a namespace.
struct Resources {
    plugins: Api<DynamicObject>,
    namespaces: Api<DynamicObject>,
}

impl Resources {
    fn of(client: &Client) -> Self {
        let all = |group: &str, version: &str, kind: &str| {
            Api::all_with(
                client.clone(),
                &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
            )
        };
        Self {
            plugins: all("pilothouse.dev", "v1alpha1", "Plugin"),
            namespaces: all("", "v1", "Namespace"),
        }
    }
}

async fn make(objects: &Api<DynamicObject>, object: Value) -> Outcome<()> {
    objects
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    Ok(())
}

/// Returns `true` if a condition of an object has this status.
fn says(object: &DynamicObject, kind: &str, status: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == status)
}

/// Creates so many objects of the other plugin at once and some more, each of which takes its time.
async fn queue(client: &Client, plugins: &Api<DynamicObject>, host: &mut ProcessHost, objects: usize) -> Outcome<()> {
    let mode = async |mode: &str| {
        let patch = Patch::Merge(json!({"spec": {"mode": mode}}));
        plugins.patch("hostile", &PatchParams::default(), &patch).await
    };
    mode("Suspended").await?;
    until("the plugin to be suspended", host, async || {
        Ok(says(&plugins.get("hostile").await?, "Ready", "False"))
    })
    .await?;
    let hostiles = collection(client.clone(), "hostile.test.dev", "Hostile");
    stream::iter(0..objects + RESERVE)
        .map(|number| {
            let hostile = json!({
                "apiVersion": "hostile.test.dev/v1", "kind": "Hostile", "metadata": {"name": format!("h-{number}")},
                "spec": {"behaviour": "work", "count": ROUNDS},
            });
            make(&hostiles, hostile)
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    mode("Active").await?;
    until("the objects to be queued", host, async || {
        Ok(depth(plugins).await? >= objects)
    })
    .await
}

/// Count of the other plugin's waiting reconciles, by its status, which is written every 15 s.
async fn depth(plugins: &Api<DynamicObject>) -> Outcome<usize> {
    let plugin = plugins.get("hostile").await?;
    let queued = plugin.data["status"]["controllers"][0]["queued"].as_u64();
    Ok(usize::try_from(queued.unwrap_or_default())?)
}

/// A ReverseProxy as the API server is asked for it.
struct Asking {
    proxy: Value,
    /// Resources in a namespace where webhooks are called, and in one where they are not.
    asked: Api<DynamicObject>,
    unasked: Api<DynamicObject>,
}

/// Durations of the requests of one repetition, in milliseconds.
struct Times {
    asked: Vec<f64>,
    unasked: Vec<f64>,
}

impl Asking {
    fn new(client: Client, sample: &Path) -> Outcome<Self> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("nginx.lin2ur.cn", "v1", "ReverseProxy"));
        Ok(Self {
            proxy: serde_saphyr::from_str(&std::fs::read_to_string(sample)?)?,
            asked: Api::namespaced_with(client.clone(), "default", &resource),
            unasked: Api::namespaced_with(client, "kube-system", &resource),
        })
    }

    async fn create(&self, proxies: &Api<DynamicObject>, proxy: &Value) -> Outcome<()> {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        proxies.create(&dry, &serde_json::from_value(proxy.clone())?).await?;
        Ok(())
    }

    /// Returns `true` if a resource is refused that only the plugin can recognise as invalid.
    async fn refuses(&self, proxies: &Api<DynamicObject>) -> bool {
        let mut wrong = self.proxy.clone();
        wrong["spec"]["proxyPass"] = json!("http://$noexists");
        self.create(proxies, &wrong).await.is_err()
    }

    async fn times(&self) -> Outcome<Times> {
        let mut times = Times {
            asked: Vec::with_capacity(SAMPLES),
            unasked: Vec::with_capacity(SAMPLES),
        };
        for _ in 0..SAMPLES {
            for (proxies, took) in [(&self.unasked, &mut times.unasked), (&self.asked, &mut times.asked)] {
                let begun = Instant::now();
                self.create(proxies, &self.proxy).await?;
                took.push(begun.elapsed().as_secs_f64() * 1000.0);
            }
        }
        Ok(times)
    }
}

fn print(when: &str, times: &[Times]) {
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let each = |figure: &dyn Fn(f64, f64) -> f64| {
            let figures = times
                .iter()
                .map(|times| figure(quantile(&times.asked, part), quantile(&times.unasked, part)));
            spread(&figures.collect::<Vec<_>>(), 2)
        };
        line(
            &format!("{when}: {name} without webhooks, ms"),
            &each(&|_, unasked| unasked),
            "",
        );
        line(
            &format!("{when}: {name} with both webhooks, ms"),
            &each(&|asked, _| asked),
            "",
        );
        line(
            &format!("{when}: {name}, ratio"),
            &each(&|asked, unasked| asked / unasked),
            "",
        );
    }
}
