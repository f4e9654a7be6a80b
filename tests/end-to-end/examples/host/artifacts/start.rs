//! The start of a host with many distinct plugins whose code is compiled: from files, and from a cache of artifacts whose
//! registry is gone.

use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::stage::Stage;
use crate::Outcome;
use crate::figures::{heading, line, spread};
use crate::plugins::distinct;

/// The same plugins from one sort of source.
struct Fleet {
    name: &'static str,
    sources: Vec<Value>,
    /// Has everything after the first start.
    cache: TempDir,
    /// Statuses after the first start, without their conditions.
    statuses: Vec<Value>,
    /// Seconds until all were ready: with empty caches, and afterwards.
    first: f64,
    seconds: Vec<f64>,
}

/// Measures and prints.
pub async fn measure(stage: &mut Stage, plugins: usize, repetitions: usize) -> Outcome<()> {
    let mut fleets = fleets(stage, plugins)?;
    for fleet in &mut fleets {
        fleet.fill(stage).await?;
    }
    stage.registry.stop()?;
    for repetition in 0..repetitions {
        for fleet in &mut fleets {
            let seconds = fleet.start(stage, repetition).await?;
            fleet.seconds.push(seconds);
        }
    }
    heading(&format!(
        "from the start of a host to the condition Ready of all of its {plugins} distinct plugins, s"
    ));
    for fleet in &fleets {
        let (name, first) = (fleet.name, [fleet.first]);
        line(&format!("{name}, caches empty (once)"), &spread(&first, 2), "");
    }
    for fleet in &fleets {
        line(&format!("{}, caches full", fleet.name), &spread(&fleet.seconds, 2), "");
    }
    Ok(())
}

/// The same components from files, which are the baseline, by digest and by tag.
fn fleets(stage: &Stage, plugins: usize) -> Outcome<Vec<Fleet>> {
    let (mut files, mut pinned, mut tagged) = (Vec::new(), Vec::new(), Vec::new());
    for (number, file) in distinct(plugins, &stage.plugin_directory())?.into_iter().enumerate() {
        let name = file.file_name().ok_or("a file has a name")?.to_string_lossy();
        files.push(json!({"file": name}));
        let reference = format!("bench/fleet-{number}:1");
        let digest = stage.push(&file, &reference)?;
        pinned.push(json!({"oci": {"reference": digest}}));
        let tag = stage.registry.reference(&reference);
        tagged.push(json!({"oci": {"reference": tag, "updatePolicy": "Tag"}}));
    }
    let fleet = |(name, sources)| -> Outcome<Fleet> {
        Ok(Fleet {
            name,
            sources,
            cache: stage.empty_cache()?,
            statuses: Vec::new(),
            first: 0.0,
            seconds: Vec::new(),
        })
    };
    [
        ("files", files),
        ("artifacts-pinned", pinned),
        ("artifacts-by-tag", tagged),
    ]
    .into_iter()
    .map(fleet)
    .collect()
}

impl Fleet {
    /// The first start, which fills the caches.
    async fn fill(&mut self, stage: &Stage) -> Outcome<()> {
        let names = self.create(stage, "first").await?;
        let begun = Instant::now();
        let mut host = stage.begin(self.cache.path()).await?;
        let ready = stage.until_ready(&names, &mut host).await?;
        self.first = ready.duration_since(begun).as_secs_f64();
        for name in &names {
            let mut status = stage.status(name).await?;
            let status_fields = status.as_object_mut().ok_or("a Plugin that is ready has a status")?;
            status_fields.remove("conditions");
            self.statuses.push(status);
        }
        stage.remove(&names, host).await
    }

    /// A start as after a restart, in seconds: the resources are new, so that Ready is seen, and have the status of before,
    /// which names the artifact.
    async fn start(&self, stage: &Stage, repetition: usize) -> Outcome<f64> {
        let names = self.create(stage, &repetition.to_string()).await?;
        for (name, status) in names.iter().zip(&self.statuses) {
            stage.put_status(name, status).await?;
        }
        let begun = Instant::now();
        let mut host = stage.begin(self.cache.path()).await?;
        let ready = stage.until_ready(&names, &mut host).await?;
        stage.remove(&names, host).await?;
        Ok(ready.duration_since(begun).as_secs_f64())
    }

    async fn create(&self, stage: &Stage, turn: &str) -> Outcome<Vec<String>> {
        let mut names = Vec::new();
        for (number, source) in self.sources.iter().enumerate() {
            let name = format!("{}-{number}-{turn}", self.name);
            stage.create(&name, source).await?;
            names.push(name);
        }
        Ok(names)
    }
}
