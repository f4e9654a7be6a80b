//! Runs all checks of a change: formatting, lints, documentation, book, dependencies, generated files, packages, tests.
//! Each check is its tool's.
//!
//! A cold run takes 65 to 85 minutes on slow machines with two cores. Both are busy in nearly all parts: tests on a real control plane
//! wait, so several of them run at once. wasmparser, wit-parser and wit-component are compiled twice, with other features for macros
//! than for the rest (100 s of one core), and each is checked by clippy again.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo_tool::CargoTool;
use crate::{book, cargo, faults, fuzz, minutes, publish, root, test};

/// Checker of the dependencies; another version may judge otherwise.
const CARGO_DENY: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
    says: "cargo-deny 0.20.2",
    // It is built for one run of a few seconds.
    options: &["--debug"],
    takes: "about two minutes",
};

/// Options of `cargo xtask ci`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CiOptions {
    /// Skip the tests on a real control plane if none is available.
    #[arg(long)]
    without_real: bool,
}

/// Count of fault schedules that are played; they take less than five minutes on two cores.
const SEEDS: &str = "300";

/// Seconds for which each target is fuzzed: enough to read the corpora and to see that a target works.
const FUZZED: u32 = 8;

/// One check by its name.
type CiStep<'options> = (&'static str, Box<dyn Fn() -> Result<()> + 'options>);

/// Runs all checks, even after a failure, and reports the failed ones at the end.
pub fn run(options: &CiOptions) -> Result<()> {
    let steps: [CiStep<'_>; 10] = [
        ("form", Box::new(|| call(cargo().args(["fmt", "--all", "--check"])))),
        (
            "lints",
            Box::new(|| {
                call(cargo().args([
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--locked",
                    "--",
                    "--deny",
                    "warnings",
                ]))
            }),
        ),
        (
            "documentation",
            Box::new(|| {
                call(
                    cargo()
                        .args(["doc", "--workspace", "--no-deps"])
                        .env("RUSTDOCFLAGS", "--deny warnings"),
                )
            }),
        ),
        ("book", Box::new(|| book::run(&book::BookOptions::default()))),
        ("dependencies", Box::new(dependencies)),
        (
            "generated files",
            Box::new(|| call(cargo().args(["xtask", "generate", "--check"]))),
        ),
        (
            "packages",
            Box::new(|| {
                publish::run(&publish::PublishOptions {
                    dry_run: true,
                    allow_dirty: true,
                    ..publish::PublishOptions::default()
                })
            }),
        ),
        (
            "fuzzing",
            Box::new(|| {
                fuzz::run(&fuzz::FuzzOptions {
                    seconds: FUZZED,
                    ..fuzz::FuzzOptions::default()
                })
            }),
        ),
        ("faults", Box::new(|| faults::check(&["--seeds", SEEDS]))),
        (
            "tests",
            Box::new(|| {
                test::run(&test::TestOptions {
                    require_real: !options.without_real,
                    ..test::TestOptions::default()
                })
            }),
        ),
    ];
    let (mut failed, mut took) = (Vec::new(), Vec::new());
    let count = steps.len();
    for (position, (name, check)) in steps.into_iter().enumerate() {
        println!("\n=== check {} of {count}: {name}\n", position + 1);
        let started = Instant::now();
        if let Err(error) = check() {
            println!("\n=== {name} FAILED: {error:#}");
            failed.push(name);
        }
        took.push((name, started.elapsed()));
    }
    println!("\n=== Minutes of each check\n");
    for (name, took) in &took {
        println!("{name:<16} {:>6.1}", minutes(*took));
    }
    println!(
        "{:<16} {:>6.1}",
        "all",
        minutes(took.iter().map(|(_, took)| *took).sum())
    );
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    println!("\nAll {count} checks hold.");
    Ok(())
}

/// Licences, bans and sources need nothing but Cargo.lock; advisories need a database from the network.
fn dependencies() -> Result<()> {
    let program = CARGO_DENY.installed()?;
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(root()).args(arguments);
        command
    };
    call(&mut deny(&["check", "bans", "licenses", "sources"]))?;
    let fetched = deny(&["fetch", "db"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    let fetched = fetched.context("run cargo-deny")?;
    if fetched.status.success() {
        return call(&mut deny(&["check", "--disable-fetch", "advisories"]));
    }
    let reason = String::from_utf8_lossy(&fetched.stderr);
    println!("NOT CHECKED: known vulnerabilities, because the database can't be fetched.");
    println!("{}", reason.trim());
    Ok(())
}

fn call(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("run {program}"))?;
    if status.success() {
        return Ok(());
    }
    let arguments: Vec<_> = command
        .get_args()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    bail!("`cargo {}` ended with {status}", arguments.join(" "))
}
