//! From a Plugin resource to its condition Ready: the same component as a file, and as an artifact by digest and by tag.

use std::path::Path;

use pilothouse_end_to_end::components;
use serde_json::{Value, json};

use super::PLUGIN;
use super::stage::Stage;
use crate::Outcome;
use crate::figures::{heading, line, spread};

/// Source of a Plugin's component.
struct Source {
    name: &'static str,
    value: Value,
    /// Milliseconds with empty caches, and with full ones in a new process.
    cold: Vec<f64>,
    warm: Vec<f64>,
}

/// Measures and prints.
pub async fn measure(stage: &Stage, repetitions: usize) -> Outcome<()> {
    let component = std::fs::read(components::folder().join(format!("{PLUGIN}.wasm")))?;
    let mut sources = sources(stage, &component)?;
    // One more than is counted: the first creates the CRD that the plugin brings.
    for repetition in 0..=repetitions {
        for source in &mut sources {
            let cache = stage.empty_cache()?;
            for (state, times) in [("cold", &mut source.cold), ("warm", &mut source.warm)] {
                let name = format!("{}-{state}-{repetition}", source.name);
                let time = once(stage, cache.path(), name, &source.value).await?;
                if repetition > 0 {
                    times.push(time);
                }
            }
        }
    }
    heading(&format!(
        "from a Plugin resource to its condition Ready, ms; the component has {} KB",
        component.len() / 1000
    ));
    for Source { name, cold, warm, .. } in &sources {
        line(
            &format!("{name}, caches of artifacts and code empty"),
            &spread(cold, 0),
            "",
        );
        line(&format!("{name}, caches full, new process"), &spread(warm, 0), "");
    }
    let [file, others @ ..] = sources.as_slice() else {
        return Ok(());
    };
    for other in others {
        for (state, other_times, times) in [("empty", &other.cold, &file.cold), ("full", &other.warm, &file.warm)] {
            let pairs = other_times.iter().zip(times);
            let differences: Vec<_> = pairs.map(|(other, file)| other - file).collect();
            line(
                &format!("{} less file, caches {state}", other.name),
                &spread(&differences, 0),
                "",
            );
        }
    }
    Ok(())
}

/// The file is the baseline.
fn sources(stage: &Stage, component: &[u8]) -> Outcome<Vec<Source>> {
    let file = stage.file("ready.wasm", component)?;
    let reference = "bench/ready:1";
    let pinned = stage.push(&file, reference)?;
    let tag = stage.registry.reference(reference);
    Ok([
        ("file", json!({"file": "ready.wasm"})),
        ("oci-pinned", json!({"oci": {"reference": pinned}})),
        ("oci-tag", json!({"oci": {"reference": tag, "updatePolicy": "Tag"}})),
    ]
    .into_iter()
    .map(|(name, value)| Source {
        name,
        value,
        cold: Vec::new(),
        warm: Vec::new(),
    })
    .collect())
}

/// One Plugin on a host with nothing else to do, in milliseconds.
async fn once(stage: &Stage, cache: &Path, name: String, source: &Value) -> Outcome<f64> {
    let mut host = stage.start(cache).await?;
    let names = [name];
    let begun = stage.create(&names[0], source).await?;
    let ready = stage.until_ready(&names, &mut host).await?;
    stage.remove(&names, host).await?;
    Ok(ready.duration_since(begun).as_secs_f64() * 1000.0)
}
