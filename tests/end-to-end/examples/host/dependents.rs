//! A change of one ConfigMap that every Bundle has read: how long until all of them have run again, which then find nothing
//! to write.

use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams, PostParams};
use pilothouse_testkit::host::{SteeredHost as _, SteeredPlugin};
use serde_json::json;

use crate::contenders::{self, Ready, collection};
use crate::figures::{heading, line, spread};
use crate::steered::{self, NEVER, asked, by_kind, cpu_seconds, process, settled, until};
use crate::{Outcome, Size};

/// The host's work is over when it has used nothing for so long.
const OVER: Duration = Duration::from_millis(300);

/// Measures and prints.
pub async fn measure(size: &Size) -> Outcome<()> {
    let Size {
        objects, repetitions, ..
    } = *size;
    let (cluster, _) = contenders::cluster(objects).await?;
    let client = cluster.client().await?;
    let config_maps = collection(client.clone(), "", "ConfigMap");
    let shared =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"payload": "p"}});
    config_maps
        .create(&PostParams::default(), &serde_json::from_value(shared)?)
        .await?;
    let mut host = steered::host(NEVER);
    let plugin = SteeredPlugin {
        configuration: Some(json!({"shared": true})),
        ..SteeredPlugin::from("bundle")
    };
    host.start(&cluster, &[plugin]).await?;
    let ready = Ready::watch(client);
    until("all Bundles to be ready", &mut host, async || {
        Ok(ready.count() >= objects)
    })
    .await?;
    drop(ready);
    settled(&cluster, &mut host).await?;

    let (mark, id) = (cluster.mark()?, process(&host)?);
    let (mut seconds, mut cpu) = (Vec::new(), Vec::new());
    for repetition in 0..repetitions {
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
    }
    let asked = asked(&cluster, mark)?;
    host.stop().await?;
    heading(&format!("a change of one ConfigMap that {objects} Bundles have read"));
    line("s until all of them have run again", &spread(&seconds, 2), "");
    line("CPU seconds of the host", &spread(&cpu, 2), "");
    line("requests of the host", &by_kind(&asked), "aim none");
    Ok(())
}
