//! One reconcile of each controller in the sandbox, on a fresh instance each, beside the same logic as native code.
//!
//! `cargo xtask bench call` builds the plugins and runs this. The primaries are the samples of `deploy/samples`, in a
//! cluster where all that they need is there (`controllers`). Both sides get the same bytes of JSON, read the same
//! objects (`cache`) and make the same objects as JSON, which is checked before anything is timed. The native side does
//! not do what the contract adds (reading the header to find the controller, the instance, lifting and lowering): the
//! ratio is the price of all of it.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a benchmark that cannot run may stop anywhere"
)]

mod cache;
mod controllers;
mod times;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use pilothouse_sandbox::{Compiler, PluginComponent, Sandbox, SandboxOptions};

use crate::controllers::{CONTROLLERS, Case, Definition};
use crate::times::{TURN, WARM_UP, print};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["compile-component", input, output] => compile(Path::new(input), Path::new(output)),
        // What `cargo test --benches` does: that it runs at all.
        [] | ["--test"] => measure(TURN, 1, &[]),
        [calls, repetitions, only @ ..] => measure(calls.parse().unwrap(), repetitions.parse().unwrap(), only),
        [_] => {
            eprintln!("usage: call CALLS REPETITIONS [CONTROLLER]...");
            ExitCode::FAILURE
        }
    }
}

/// Compiles as a process of its own, so that the compiler's memory is not this process's.
fn compile(input: &Path, output: &Path) -> ExitCode {
    match pilothouse_sandbox::compile_file(input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(calls: usize, repetitions: usize, only: &[&str]) -> ExitCode {
    let names = CONTROLLERS.map(|controller| controller.name);
    if let Some(unknown) = only.iter().find(|name| !names.contains(name)) {
        eprintln!("there is no controller {unknown}; there are {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    let is_wanted = |definition: &&Definition| only.is_empty() || only.contains(&definition.name);
    let mut memory = vec![("the empty process", Memory::now())];
    let cache = tempfile::tempdir().unwrap();
    let compiler = Compiler::Child {
        program: std::env::current_exe().unwrap(),
    };
    let sandbox = Sandbox::new(SandboxOptions::new(cache.path(), compiler)).unwrap();
    memory.push(("with a sandbox", Memory::now()));
    let mut plugins = BTreeMap::<&str, PluginComponent>::new();
    for Definition { component, .. } in CONTROLLERS.iter().filter(is_wanted) {
        if plugins.contains_key(component) {
            continue;
        }
        let path = controllers::root().join(format!("target/plugins/{component}.wasm"));
        match sandbox.load(&path) {
            Ok(plugin) => plugins.insert(component, plugin),
            Err(error) => {
                eprintln!("{error}\nrun `cargo xtask plugins` first");
                return ExitCode::FAILURE;
            }
        };
    }
    memory.push(("with the plugins loaded", Memory::now()));
    let of = |definition: &Definition| Case::new(definition, plugins[definition.component].clone());
    let cases: Vec<_> = CONTROLLERS.iter().filter(is_wanted).map(of).collect();
    for case in &cases {
        case.same_answers();
        times::warm_up(case);
    }
    memory.push(("after the first calls, native ones too", Memory::now()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{repetitions} repetitions of {calls} calls a side, in turns of {TURN}, on one thread of {threads} cores");
    println!("after {WARM_UP} calls of each that are not counted; every call is made on a fresh instance");
    for case in &cases {
        print(case, calls, repetitions);
    }
    memory.push(("after all measurements", Memory::now()));
    plugins.values().for_each(PluginComponent::sleep);
    memory.push(("with the plugins asleep", Memory::now()));

    println!("\nmemory, KiB: proportional set size, and what of it is private and dirty");
    for (name, memory) in memory {
        println!("{name:40}{:>10}{:>10}", memory.proportional, memory.private_dirty);
    }
    ExitCode::SUCCESS
}

/// Memory of this process in KiB, as Linux counts it; elsewhere zero.
#[derive(Clone, Copy)]
struct Memory {
    proportional: u64,
    private_dirty: u64,
}

impl Memory {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
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
