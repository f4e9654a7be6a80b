//! A change of one ConfigMap that every Bundle of a namespace has read, simulated and real: how long until all of them have
//! run again, which then find nothing to write, and that nobody else has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::controlplane::Options;
use pilothouse_testkit::host::{ProcessHost, SteeredHost as _, SteeredPlugin};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contenders::{IN_FLIGHT, Ready, bundle, collection, prepare};
use crate::figures::{heading, line, spread};
use crate::steered::{self, NEVER, asked, by_kind, cpu_seconds, process, settled, until};
use crate::{Outcome, Size};

/// The host's work is over when it has used nothing for so long.
const OVER: Duration = Duration::from_millis(300);

/// Count of Bundles for each bystander of each sort.
const BYSTANDERS: usize = 10;

/// The namespace of the Bundles that read another ConfigMap of the same name, which is not there.
const ASIDE: &str = "aside";

/// Each reconcile is a line.
const LOG_FILTER: &str = "info,kube_client=off,pilothouse_runtime::reconcile=debug";

/// Measures and prints.
pub async fn measure(size: &Size) -> Outcome<()> {
    depending(Cluster::simulated_over_http().await?, size).await?;
    depending(Cluster::real_with(Options::default()).await?, size).await
}

async fn depending(cluster: Cluster, size: &Size) -> Outcome<()> {
    let Size {
        objects, repetitions, ..
    } = *size;
    prepare(&cluster, objects).await?;
    let client = cluster.client().await?;
    let config_maps = collection(client.clone(), "", "ConfigMap");
    let shared =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"payload": "p"}});
    config_maps
        .create(&PostParams::default(), &serde_json::from_value(shared)?)
        .await?;
    let mut host = steered::host(NEVER)
        .with_log_filter(LOG_FILTER)
        .with_arguments(["--log-format", "json"].map(str::to_owned));
    let plugin = SteeredPlugin {
        configuration: Some(json!({"shared": true})),
        ..SteeredPlugin::from("bundle")
    };
    host.start(&cluster, &[plugin, SteeredPlugin::from("hostile")]).await?;
    let ready = Ready::watch(client.clone());
    until("all Bundles to be ready", &mut host, async || {
        Ok(ready.count() >= objects)
    })
    .await?;
    drop(ready);
    let bystanders = bystanders(client, objects.div_ceil(BYSTANDERS)).await?;
    settled(&cluster, &mut host).await?;

    // The log tells of all of them, so that silence about one means that it did not run.
    let first = Ran::since(0, &host);
    if first.readers.len() < objects || first.others < bystanders {
        return Err(format!(
            "the log tells of {} and {} objects only",
            first.readers.len(),
            first.others
        )
        .into());
    }
    let (mark, id) = (cluster.mark()?, process(&host)?);
    let (mut seconds, mut cpu, mut ran) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in 0..repetitions {
        let lines = host.log().unwrap_or_default().lines().count();
        let before = cpu_seconds(id)?;
        let begun = Instant::now();
        // Readers see it, and their answers are as before.
        let label = json!({"metadata": {"labels": {"repetition": repetition.to_string()}}});
        config_maps
            .patch("shared", &PatchParams::default(), &Patch::Merge(label))
            .await?;
        let (mut used, mut last) = (before, begun);
        while used <= before || last.elapsed() < OVER {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let now = cpu_seconds(id)?;
            if now > used {
                (used, last) = (now, Instant::now());
            }
        }
        seconds.push((last - begun).as_secs_f64());
        cpu.push(used - before);
        ran.push(Ran::since(lines, &host));
    }
    let asked = asked(&cluster, mark)?;
    host.stop().await?;
    heading(&format!(
        "a change of one ConfigMap that {objects} Bundles have read, on a {} API server",
        cluster.kind()
    ));
    line("s until all of them have run again", &spread(&seconds, 2), "");
    line("CPU seconds of the host", &spread(&cpu, 2), "");
    let each = |figure: &dyn Fn(&Ran) -> usize| {
        let counts: Vec<_> = ran.iter().map(|ran| figure(ran).to_string()).collect();
        counts.join(", ")
    };
    line(
        "readers that ran again, each time",
        &each(&|ran| ran.readers.len()),
        &format!("aim {objects}"),
    );
    line(
        "runs of theirs, each time",
        &each(&|ran| ran.runs),
        &format!("aim {objects}"),
    );
    line(
        &format!("others that ran, of {bystanders} of two plugins"),
        &each(&|ran| ran.others),
        "aim 0",
    );
    line("requests of the host", &by_kind(&asked), "aim none");
    Ok(())
}

/// Makes Bundles in another namespace, and as many objects of another plugin that may read ConfigMaps; says how many.
async fn bystanders(client: Client, each: usize) -> Outcome<usize> {
    let resource =
        |group: &str, version: &str, kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let namespaces: Api<DynamicObject> = Api::all_with(client.clone(), &resource("", "v1", "Namespace"));
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ASIDE}});
    namespaces
        .create(&PostParams::default(), &serde_json::from_value(namespace)?)
        .await?;
    let bundles: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), ASIDE, &resource("bench.example.dev", "v1", "Bundle"));
    let hostiles = collection(client, "hostile.test.dev", "Hostile");
    let parameters = PostParams::default();
    stream::iter(0..each)
        .map(async |number| -> Outcome<()> {
            let name = format!("bystander-{number}");
            bundles.create(&parameters, &bundle(&name)?).await?;
            let hostile = json!({
                "apiVersion": "hostile.test.dev/v1", "kind": "Hostile", "metadata": {"name": name},
                "spec": {"behaviour": "config-map", "text": "text"},
            });
            hostiles.create(&parameters, &serde_json::from_value(hostile)?).await?;
            Ok(())
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    Ok(2 * each)
}

/// Reconciled objects.
struct Ran {
    /// Objects that have read the ConfigMap.
    readers: BTreeSet<String>,
    /// Count of their reconciles.
    runs: usize,
    /// Count of all other reconciles.
    others: usize,
}

/// Needed part of a line of the host's log.
#[derive(Deserialize)]
struct Line {
    fields: BTreeMap<String, Value>,
}

impl Ran {
    /// Reads the log beyond so many lines.
    fn since(lines: usize, host: &ProcessHost) -> Self {
        let mut ran = Self {
            readers: BTreeSet::new(),
            runs: 0,
            others: 0,
        };
        for text in host.log().unwrap_or_default().lines().skip(lines) {
            let Ok(Line { fields }) = serde_json::from_str(text) else {
                continue;
            };
            let field = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
            if !field("message").starts_with("reconcile") {
                continue;
            }
            let object = field("object");
            if field("lane").starts_with("bundle/") && object.starts_with("default/") {
                ran.runs += 1;
                ran.readers.insert(object.to_owned());
            } else {
                ran.others += 1;
            }
        }
        ran
    }
}
