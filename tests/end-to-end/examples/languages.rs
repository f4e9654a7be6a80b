//! Measures the components of plugins/examples and, for comparison, a plugin in Rust: `cargo run --release -p
//! pilothouse-end-to-end --example languages`, after `cargo xtask plugins` and the examples' own builds. It prints the table of
//! docs/languages.md.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use pilothouse_core::plugin::contract::{Imports, ListOptions, LogLevel, Request};
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::{Failure, Kind, Limits};
use pilothouse_end_to_end::components;
use pilothouse_sandbox::PluginComponent;

const CALLS: usize = 300;
const WAKES: usize = 50;

const WEBSITE: &str = r#"{"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": "blog", "namespace": "shop"},
    "spec": {"image": "nginx:1.27", "replicas": 2, "port": 8080, "host": "blog.example.com"}}"#;

const APP_SERVICE: &str = r#"{"apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": "blog", "namespace": "shop",
    "uid": "1"}, "spec": {"image": "nginx:1.27", "size": 2, "ports": [{"port": 80, "targetPort": 8080}]}}"#;

/// Rows of the table: language, component, and the object that it reconciles.
const ROWS: [(&str, &str, &str); 5] = [
    ("Rust (app-service)", "target/plugins/app-service.wasm", APP_SERVICE),
    ("C", "plugins/examples/website-c/build/website.wasm", WEBSITE),
    ("JavaScript", "plugins/examples/website-js/build/website.wasm", WEBSITE),
    ("Go", "plugins/examples/website-go/build/website.wasm", WEBSITE),
    ("Python", "plugins/examples/website-python/build/website.wasm", WEBSITE),
];

/// An empty cluster.
struct Empty;

impl Imports for Empty {
    fn get(&mut self, _: &Kind, _: Option<&str>, _: &str) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    fn list(&mut self, _: &Kind, _: &ListOptions, _: u64) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    fn now(&mut self, granularity: u64) -> u64 {
        granularity
    }

    fn reached(&mut self, _: u64) -> bool {
        false
    }

    fn log(&mut self, _: LogLevel, _: &str, _: &[(String, String)]) {}
}

struct Figures {
    call: Duration,
    wake: Duration,
    memory: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("| language | component | compiled | wake p50 | call p50 | call, as a multiple of Rust's | memory |");
    println!("|---|---|---|---|---|---|---|");
    let mut rust = None;
    for (language, file, object) in ROWS {
        let path = components::root().join(file);
        if !path.is_file() {
            eprintln!("{language} is left out: {file} is not built");
            continue;
        }
        let component = load(&path)?;
        let Figures { call, wake, memory } = measure(&component, object)?;
        let first = *rust.get_or_insert(call);
        println!(
            "| {language} | {} | {} | {} ms | {} ms | {:.0} | {} |",
            size(component.component_bytes()),
            size(component.code_bytes()),
            milliseconds(wake),
            milliseconds(call),
            call.as_secs_f64() / first.as_secs_f64(),
            size(memory),
        );
    }
    Ok(())
}

fn load(path: &Path) -> Result<PluginComponent, Box<dyn Error>> {
    Ok(components::sandbox().granting(Wasi::Inert).load(path)?)
}

fn measure(component: &PluginComponent, object: &str) -> Result<Figures, Failure> {
    let request = Request {
        object: object.to_owned(),
        configuration: "{}".to_owned(),
        attempt: 0,
    };
    let limits = Limits {
        call_milliseconds: 10_000,
        ..Limits::default()
    };
    let call = || {
        let call = component.reconcile(&request, &limits, Empty);
        call.result.map(|_| call.usage)
    };
    let mut wakes = Vec::with_capacity(WAKES);
    for _ in 0..WAKES {
        component.sleep();
        wakes.extend(call()?.wake);
    }
    let mut memory = 0;
    let mut calls = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let usage = call()?;
        memory = memory.max(usage.memory_bytes);
        calls.push(usage.time);
    }
    Ok(Figures {
        call: median(calls),
        wake: median(wakes),
        memory,
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Formats milliseconds with two significant digits, as in the page.
fn milliseconds(time: Duration) -> String {
    let milliseconds = time.as_secs_f64() * 1000.0;
    let decimals = match milliseconds {
        ..0.1 => 3,
        ..1.0 => 2,
        ..10.0 => 1,
        _ => 0,
    };
    format!("{milliseconds:.decimals$}")
}

fn size(bytes: u64) -> String {
    if bytes < 1_000_000 {
        format!("{} KB", bytes.div_ceil(1000))
    } else {
        format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
    }
}
