//! One reconcile of app-service in the sandbox, on a fresh instance each, beside the same logic as native code.
//!
//! `cargo xtask bench call` builds the plugin and runs this. Both sides get the same bytes of JSON and make the same
//! objects as JSON, which is checked before anything is timed; both ask once for the Deployment, and there is none. The
//! native side does not do what the contract adds (reading the header to find the controller, the instance, lifting and
//! lowering): the ratio is the price of all of it.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a benchmark that cannot run may stop anywhere"
)]

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use app_service::{AppService, AppServicePlugin};
use pilothouse_core::contract::{Imports, LogLevel, Query, Request};
use pilothouse_core::{Failure, Kind, Limits};
use pilothouse_plugin::testing::{Answer, FakeCluster};
use pilothouse_plugin::{Controller, NoConfig};
use pilothouse_sandbox::{Compiler, Plugin, Sandbox, SandboxOptions};
use serde_json::Value;

/// Calls of one side before it is the other's turn.
const TURN: usize = 250;

/// Calls before anything is timed.
const WARM_UP: usize = 2000;

/// How often the plugin is put to sleep and woken, for each repetition.
const WAKES: usize = 50;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["compile-component", input, output] => compile(Path::new(input), Path::new(output)),
        [calls, repetitions] => measure(calls.parse().unwrap(), repetitions.parse().unwrap()),
        // What `cargo test --benches` does: that it runs at all.
        [] | ["--test"] => measure(TURN, 1),
        _ => {
            eprintln!("usage: call CALLS REPETITIONS");
            ExitCode::FAILURE
        }
    }
}

/// So that the compiler's memory is not this process's.
fn compile(input: &Path, output: &Path) -> ExitCode {
    match pilothouse_sandbox::compile_file(input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(calls: usize, repetitions: usize) -> ExitCode {
    let empty = Memory::now();
    let cache = tempfile::tempdir().unwrap();
    let compiler = Compiler::Child {
        program: std::env::current_exe().unwrap(),
    };
    let sandbox = Sandbox::new(SandboxOptions::new(cache.path(), compiler)).unwrap();
    let with_sandbox = Memory::now();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/plugins/app-service.wasm");
    let plugin = match sandbox.load(&path) {
        Ok(plugin) => plugin,
        Err(error) => {
            eprintln!("{error}\nrun `cargo xtask plugins` first");
            return ExitCode::FAILURE;
        }
    };
    let loaded = Memory::now();
    let request = request();
    let output = same_answers(&plugin, &request);
    let used = sandboxed(&plugin, &request).usage;
    for _ in 0..WARM_UP {
        std::hint::black_box(sandboxed(&plugin, &request));
        let _ = std::hint::black_box(native(&request, &FakeCluster::new()));
    }
    let called = Memory::now();
    let repetitions: Vec<_> = (0..repetitions).map(|_| repetition(&plugin, &request, calls)).collect();
    let measured = Memory::now();
    plugin.sleep();
    let asleep = Memory::now();

    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "one reconcile of app-service: {} B of JSON in, {output} B out, one read",
        request.object.len()
    );
    println!(
        "{} repetitions of {calls} calls a side, in turns of {TURN}, on one thread of {threads} cores",
        repetitions.len()
    );
    println!(
        "component {} KiB, compiled {} KiB\n",
        plugin.component_bytes() / 1024,
        plugin.code_bytes() / 1024
    );
    println!("{:34}{:>10}{:>10}{:>10}", "", "min", "median", "max");
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let row = |name: &str, value: &dyn Fn(&Repetition) -> f64| {
        let mut values: Vec<_> = repetitions.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let (least, middle, most) = (values[0], values[values.len() / 2], values[values.len() - 1]);
        println!("{name:34}{least:>10.2}{middle:>10.2}{most:>10.2}");
    };
    row("native p50, µs", &|repetition| micros(repetition.native.half));
    row("native p99, µs", &|repetition| micros(repetition.native.most));
    row("sandboxed p50, µs", &|repetition| micros(repetition.sandboxed.half));
    row("sandboxed p99, µs", &|repetition| micros(repetition.sandboxed.most));
    row("ratio of p50", &|repetition| {
        repetition.sandboxed.half.as_secs_f64() / repetition.native.half.as_secs_f64()
    });
    row("ratio of p99", &|repetition| {
        repetition.sandboxed.most.as_secs_f64() / repetition.native.most.as_secs_f64()
    });
    row("sandboxed calls/s, one thread", &|repetition| repetition.one_thread);
    row(&format!("sandboxed calls/s, {threads} threads"), &|repetition| {
        repetition.all_threads
    });
    row("wake p50, µs", &|repetition| micros(repetition.wake.half));
    row("wake p99, µs", &|repetition| micros(repetition.wake.most));

    println!("\nmemory, KiB: proportional set size, and what of it is private and dirty");
    for (name, memory) in [
        ("the empty process", empty),
        ("with a sandbox", with_sandbox),
        ("with the plugin loaded", loaded),
        ("after 2000 calls, native ones too", called),
        ("after all measurements", measured),
        ("with the plugin asleep", asleep),
    ] {
        println!("{name:34}{:>10}{:>10}", memory.proportional, memory.private_dirty);
    }
    println!("{:34}{:>10}", "linear memory of one call", used.memory_bytes / 1024);
    ExitCode::SUCCESS
}

struct Repetition {
    native: Times,
    sandboxed: Times,
    wake: Times,
    one_thread: f64,
    all_threads: f64,
}

/// p50 and p99.
struct Times {
    half: Duration,
    most: Duration,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self {
            half: times[times.len() / 2],
            most: times[times.len() * 99 / 100],
        }
    }
}

fn repetition(plugin: &Plugin, request: &Request, calls: usize) -> Repetition {
    let (mut ours, mut theirs) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
    while ours.len() < calls {
        for _ in 0..TURN {
            let start = Instant::now();
            std::hint::black_box(sandboxed(plugin, request));
            ours.push(start.elapsed());
        }
        // A cluster of its own for each turn, since it remembers every read.
        let cluster = FakeCluster::new();
        for _ in 0..TURN {
            let start = Instant::now();
            let _ = std::hint::black_box(native(request, &cluster));
            theirs.push(start.elapsed());
        }
    }
    let wakes = (0..WAKES).map(|_| {
        plugin.sleep();
        sandboxed(plugin, request).usage.wake.unwrap()
    });
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Repetition {
        native: Times::of(theirs),
        sandboxed: Times::of(ours),
        wake: Times::of(wakes.collect()),
        one_thread: rate(plugin, request, calls, 1),
        all_threads: rate(plugin, request, calls, threads),
    }
}

/// Calls per second of so many threads.
fn rate(plugin: &Plugin, request: &Request, calls: usize, threads: usize) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..calls).for_each(|_| drop(sandboxed(plugin, request))));
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "a number of calls is far below 2^52")]
    let calls = (calls * threads) as f64;
    calls / start.elapsed().as_secs_f64()
}

fn sandboxed(plugin: &Plugin, request: &Request) -> pilothouse_sandbox::Call<Reads> {
    plugin.reconcile(request, &Limits::default(), Reads::default())
}

fn native(request: &Request, cluster: &FakeCluster) -> pilothouse_plugin::Outcome {
    let object: AppService = serde_json::from_str(&request.object).unwrap();
    let request = pilothouse_plugin::Request::new(object, NoConfig::default());
    AppServicePlugin::reconcile(request, &cluster.cluster()).unwrap()
}

/// Panics unless both sides want the same objects; gives their size in bytes.
fn same_answers(plugin: &Plugin, request: &Request) -> usize {
    let ours = sandboxed(plugin, request).result.unwrap();
    let read = |object: &String| serde_json::from_str::<Value>(object).unwrap();
    let objects: Vec<_> = ours.desired.iter().map(|desired| read(&desired.object)).collect();
    let theirs = Answer::of(native(request, &FakeCluster::new())).unwrap();
    let expected: Vec<_> = theirs.desired.into_iter().map(|desired| desired.object).collect();
    assert_eq!(objects, expected);
    assert_eq!(ours.status.as_ref().map(read), theirs.status);
    ours.desired.iter().map(|desired| desired.object.len()).sum::<usize>()
        + ours.status.map_or(0, |status| status.len())
}

fn request() -> Request {
    let ports: Vec<_> = (0..3)
        .map(|number| serde_json::json!({"name": format!("port-{number}"), "port": 80 + number, "targetPort": 8080 + number}))
        .collect();
    let object = serde_json::json!({
        "apiVersion": "kosmos.io/v1",
        "kind": "AppService",
        "metadata": {
            "name": "shop", "namespace": "default", "uid": "8d2c9f4e-7a56-4c0f-9a53-0d6e4d0b8f11", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"team": "checkout", "environment": "production", "app.kubernetes.io/part-of": "storefront"},
            "annotations": {"example.com/note": "a note of the length that people write into annotations ".repeat(20)},
        },
        "spec": {"size": 2, "image": "registry.example.com/shop/storefront:1.27.3", "ports": ports},
    });
    Request {
        object: object.to_string(),
        config: "{}".to_owned(),
        attempt: 0,
    }
}

/// Remembers what was read, as the host does and as the native side's cluster does.
#[derive(Default)]
struct Reads(Vec<(Kind, Option<String>, String)>);

impl Imports for Reads {
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        self.0
            .push((kind.clone(), namespace.map(str::to_owned), name.to_owned()));
        Ok(None)
    }

    fn find(&mut self, _: &Kind, _: &Query) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    fn now(&mut self, _: u64) -> u64 {
        0
    }

    fn reached(&mut self, _: u64) -> bool {
        false
    }

    fn log(&mut self, level: LogLevel, message: &str, _: &[(String, String)]) {
        println!("{level:?}: {message}");
    }
}

/// This process's memory in KiB, as Linux counts it; elsewhere zero.
#[derive(Clone, Copy)]
struct Memory {
    proportional: u64,
    private_dirty: u64,
}

impl Memory {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
        let value = |name: &dyn Display| {
            let prefix = format!("{name}:");
            let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
                .unwrap_or(0)
        };
        Self {
            proportional: value(&"Pss"),
            private_dirty: value(&"Private_Dirty"),
        }
    }
}
