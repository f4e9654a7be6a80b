//! The peak memory of a host that pulls a large artifact, next to a host that reads the same from a file and to one without
//! a plugin; and that of the process that compiles, to tell which of the two needs more.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pilothouse_end_to_end::{components, variants};
use serde_json::{Value, json};

use super::PLUGIN;
use super::stage::Stage;
use crate::Outcome;
use crate::figures::{heading, line, mebibytes, spread};
use crate::steered::process;

/// The size of a large component.
const LARGE: usize = 20_000_000;

/// Interval of reading the compiler's process; its peak only grows.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A host with at most one plugin.
struct Subject {
    name: String,
    source: Option<Value>,
    /// MiB: the host with empty caches, its compiler, and the host with full caches in a new process.
    cold: Vec<f64>,
    compiler: Vec<f64>,
    warm: Vec<f64>,
}

/// The greatest resident sets so far, in MiB.
struct Peaks {
    host: f64,
    compiler: f64,
}

/// Measures and prints.
pub async fn measure(stage: &Stage, repetitions: usize) -> Outcome<()> {
    let mut subjects = subjects(stage)?;
    for repetition in 0..repetitions {
        for (number, subject) in subjects.iter_mut().enumerate() {
            let cache = stage.empty_cache()?;
            let name = |state| format!("memory-{number}-{state}-{repetition}");
            let Peaks { host, compiler } = peaks(stage, cache.path(), name("cold"), subject.source.as_ref()).await?;
            subject.cold.push(host);
            subject.compiler.push(compiler);
            let Peaks { host, .. } = peaks(stage, cache.path(), name("warm"), subject.source.as_ref()).await?;
            subject.warm.push(host);
        }
    }
    heading("the peak of the resident set (VmHWM) when the plugin is ready, MiB");
    for Subject {
        name,
        source,
        cold,
        compiler,
        warm,
    } in &subjects
    {
        line(&format!("{name}: the host, caches empty"), &spread(cold, 1), "");
        if source.is_some() {
            line(&format!("{name}: the process that compiles"), &spread(compiler, 1), "");
            line(&format!("{name}: the host, caches full"), &spread(warm, 1), "");
        }
    }
    Ok(())
}

fn subjects(stage: &Stage) -> Outcome<Vec<Subject>> {
    let small = std::fs::read(components::folder().join(format!("{PLUGIN}.wasm")))?;
    let data = variants::padded(&small, "memory", LARGE - small.len());
    let code = variants::with_code(&small, "memory", LARGE - small.len());
    let mut subjects = vec![Subject::new("no plugin", "", None)];
    for (called, size, component) in [
        ("small", format!("{} KB", small.len() / 1000), small),
        ("data", format!("{} MB of data", LARGE / 1_000_000), data),
        ("code", format!("{} MB of code", LARGE / 1_000_000), code),
    ] {
        let file_name = format!("{called}.wasm");
        let file = stage.file(&file_name, &component)?;
        let pinned = stage.push(&file, &format!("bench/{called}:1"))?;
        subjects.push(Subject::new(&size, ", file", Some(json!({"file": file_name}))));
        let source = json!({"oci": {"reference": pinned}});
        subjects.push(Subject::new(&size, ", artifact", Some(source)));
    }
    Ok(subjects)
}

impl Subject {
    fn new(size: &str, kind: &str, source: Option<Value>) -> Self {
        Self {
            name: format!("{size}{kind}"),
            source,
            cold: Vec::new(),
            compiler: Vec::new(),
            warm: Vec::new(),
        }
    }
}

async fn peaks(stage: &Stage, cache: &Path, name: String, source: Option<&Value>) -> Outcome<Peaks> {
    let mut host = stage.start(cache).await?;
    let id = process(&host)?;
    let compiler = Arc::<AtomicU64>::default();
    let watched = compiler.clone();
    let watch = tokio::spawn(async move {
        loop {
            if let Some(peak) = children(id).into_iter().filter_map(compiler_peak).max() {
                watched.fetch_max(peak, Ordering::Relaxed);
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    });
    let mut names = Vec::new();
    if let Some(source) = source {
        stage.create(&name, source).await?;
        names.push(name);
        stage.until_ready(&names, &mut host).await?;
    }
    watch.abort();
    let peaks = Peaks {
        host: peak(id).map(megabytes).ok_or("the kernel tells no VmHWM")?,
        compiler: megabytes(compiler.load(Ordering::Relaxed)),
    };
    stage.remove(&names, host).await?;
    Ok(peaks)
}

/// The processes that a process has started and that have not ended.
fn children(id: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The peak of a process that compiles, in KiB; before it executes its program, a child has the peak of its parent.
fn compiler_peak(id: u32) -> Option<u64> {
    let command = std::fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
    command.contains("compile-component").then(|| peak(id))?
}

/// The greatest resident set of a process so far, in KiB.
fn peak(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

fn megabytes(kibibytes: u64) -> f64 {
    let kibibytes = u32::try_from(kibibytes).unwrap_or(u32::MAX);
    mebibytes(f64::from(kibibytes))
}
