//! Builds the targets of `tests/fuzz` with the host's crates instrumented, and runs them for a time. libFuzzer searches
//! for inputs.
//!
//! Instrumenting needs no nightly compiler: it is a pass of LLVM that rustc runs for `-C passes`. Only the crates that are
//! fuzzed are compiled with it, by a wrapper around rustc (this program itself), so that dependencies are those of the
//! tests and are not built again.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::{env, thread};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{cargo, plugins, root};

/// Variable that makes this program wrap rustc.
const WRAPPER: &str = "PILOTHOUSE_FUZZ_RUSTC";

/// Names the target to the program that is built.
const TARGET: &str = "PILOTHOUSE_FUZZ_TARGET";

/// Instrumented crates: those that read input from outside.
const INSTRUMENTED: [&str; 5] = [
    "pilothouse_cluster",
    "pilothouse_core",
    "pilothouse_fuzz",
    "pilothouse_runtime",
    "pilothouse_sandbox",
];

/// Compiler flags for libFuzzer: a counter for each edge, their addresses, and traced comparisons.
const INSTRUMENTATION: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Copt-level=1",
];

/// The longest that one input may take, in seconds.
const LONGEST_RUN: u32 = 25;

/// What is fuzzed, and for how long.
#[derive(Clone, Debug, clap::Args)]
pub struct FuzzOptions {
    /// Fuzz only these targets (default: all).
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Number of seconds to fuzz each target.
    #[arg(long, default_value_t = 20, value_name = "NUMBER")]
    pub seconds: u32,
    /// Instead of fuzzing, run exactly one TARGET on the failing input in this file.
    #[arg(long, value_name = "FILE")]
    pub repeat: Option<PathBuf>,
    /// List the targets.
    #[arg(long, conflicts_with_all = ["repeat", "targets"])]
    pub list: bool,
    /// Add a minimal set of the new inputs that increase coverage to the repository's corpora.
    #[arg(long, conflicts_with = "repeat")]
    pub keep: bool,
}

impl Default for FuzzOptions {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            seconds: 20,
            repeat: None,
            list: false,
            keep: false,
        }
    }
}

/// Fuzzes. Says at the end which targets found something, and how to repeat it.
pub fn run(options: &FuzzOptions) -> Result<()> {
    let known = targets()?;
    if options.list {
        for target in &known {
            println!("{target}");
        }
        return Ok(());
    }
    for target in &options.targets {
        ensure!(
            known.contains(target),
            "there is no target {target:?}; there are {}",
            known.join(", ")
        );
    }
    let chosen: Vec<&String> = known
        .iter()
        .filter(|name| options.targets.is_empty() || options.targets.contains(name))
        .collect();
    if chosen.iter().any(|target| *target == "plugins") {
        plugins::run(&plugins::PluginsOptions::default())?;
    }
    let program = build()?;
    if let Some(input) = &options.repeat {
        let [target] = chosen.as_slice() else {
            bail!("--repeat needs the one target whose input the file is")
        };
        let status = Command::new(&program)
            .env(TARGET, target)
            .arg(input)
            .status()
            .context("run the target")?;
        ensure!(status.success(), "{target} fails with {} ({status})", input.display());
        return Ok(());
    }
    let mut failed = Vec::new();
    // As many at once as there are cores; each has one thread.
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    for several in chosen.chunks(at_once) {
        let running: Vec<_> = several
            .iter()
            .map(|target| Ok((*target, Fuzzing::start(&program, target, options.seconds)?)))
            .collect::<Result<_>>()?;
        for (target, fuzzing) in running {
            let ended = fuzzing.wait()?;
            println!("{target}: {}", ended.summary);
            if !ended.status.success() {
                println!("{}", ended.words);
                failed.push(target.as_str());
            } else if options.keep {
                keep(&program, target)?;
            }
        }
    }
    ensure!(
        failed.is_empty(),
        "{} found what breaks the host's promises: the input is named above and is kept below target/fuzz/failures; repeat it with \
         `cargo xtask fuzz TARGET --repeat FILE`",
        failed.join(", ")
    );
    println!("{} targets found nothing in {} s each", chosen.len(), options.seconds);
    Ok(())
}

/// Runs rustc if this program was started as its wrapper, and returns rustc's status.
pub fn as_rustc() -> Option<Result<ExitStatus>> {
    env::var_os(WRAPPER)?;
    let mut arguments = env::args_os().skip(1);
    let rustc = arguments.next()?;
    let mut arguments: Vec<OsString> = arguments.collect();
    let is_instrumented = arguments
        .windows(2)
        .any(|pair| pair[0] == "--crate-name" && INSTRUMENTED.iter().any(|name| pair[1] == *name))
        || arguments
            .windows(2)
            .any(|pair| pair[0] == "--crate-name" && pair[1] == "fuzz_engine");
    if is_instrumented {
        arguments.extend(INSTRUMENTATION.map(OsString::from));
    }
    Some(Command::new(rustc).args(arguments).status().context("run rustc"))
}

/// Returns the targets. Each has a corpus, of at least its hand-written inputs.
fn targets() -> Result<Vec<String>> {
    let corpora = root().join("tests/fuzz/corpus");
    let mut names = Vec::new();
    for entry in fs::read_dir(&corpora).with_context(|| format!("read {}", corpora.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn build() -> Result<PathBuf> {
    let mut command = cargo();
    // With the whole workspace's choice of features, as the tests are: the dependencies are not built again.
    command
        .args([
            "build",
            "--workspace",
            "--bin",
            "fuzz-engine",
            "--features",
            "pilothouse-fuzz/engine",
        ])
        .env(
            "RUSTC_WORKSPACE_WRAPPER",
            env::current_exe().context("find this program")?,
        )
        .env(WRAPPER, "1");
    ensure!(
        command.status().context("run cargo")?.success(),
        "the fuzz targets do not build; libFuzzer needs a C++ compiler, c++ or what CXX names"
    );
    Ok(root().join("target/debug/fuzz-engine"))
}

/// The folder of a target, made where it is missing.
fn folder(kind: &str, target: &str) -> Result<PathBuf> {
    let folder = root().join("target/fuzz").join(kind).join(target);
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}

/// Returns the maximum input length of a target: four times that of its hand-written inputs, and at least this.
fn longest_input(target: &str) -> Result<u64> {
    const LEAST: u64 = 4096;
    let corpus = root().join("tests/fuzz/corpus").join(target);
    let mut longest = 0;
    for entry in fs::read_dir(&corpus)? {
        longest = longest.max(entry?.metadata()?.len());
    }
    Ok((longest * 4).max(LEAST))
}

/// A target that is being fuzzed.
struct Fuzzing {
    child: Child,
    log: PathBuf,
}

/// Outcome of fuzzing.
struct FuzzEnd {
    status: ExitStatus,
    summary: String,
    /// End of its output.
    words: String,
}

impl Fuzzing {
    /// Starts the program. Findings are kept below `target`; the repository's corpora are only read.
    fn start(program: &Path, target: &str, seconds: u32) -> Result<Self> {
        let (found, failures) = (folder("corpus", target)?, folder("failures", target)?);
        let log = folder("log", target)?.join("last.txt");
        let output = fs::File::create(&log).with_context(|| format!("make {}", log.display()))?;
        let child = Command::new(program)
            .env(TARGET, target)
            .arg(&found)
            .arg(root().join("tests/fuzz/corpus").join(target))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={}", longest_input(target)?))
            .arg(format!("-timeout={LONGEST_RUN}"))
            // The allocator has a limit of its own; threads' stacks and mapped code come on top.
            .arg("-rss_limit_mb=2048")
            .arg("-print_final_stats=1")
            .arg(format!("-artifact_prefix={}/", failures.display()))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("run the target")?;
        Ok(Self { child, log })
    }

    fn wait(mut self) -> Result<FuzzEnd> {
        let status = self.child.wait().context("wait for the target")?;
        let text = fs::read(&self.log).with_context(|| format!("read {}", self.log.display()))?;
        let text = String::from_utf8_lossy(&text);
        let stat = |name: &str| {
            let line = text
                .lines()
                .rev()
                .find(|line| line.starts_with(&format!("stat::{name}")));
            line.and_then(|line| line.split_whitespace().last())
                .unwrap_or("?")
                .to_owned()
        };
        let reached = text.lines().rev().find_map(|line| line.split_once(" cov: "));
        let edges = reached
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .unwrap_or("?");
        let summary = format!(
            "{} inputs, {edges} edges, {} MiB at most{}",
            stat("number_of_executed_units"),
            stat("peak_rss_mb"),
            if status.success() { "" } else { ", FAILED" },
        );
        let lines: Vec<&str> = text.lines().collect();
        let words = lines[lines.len().saturating_sub(60)..].join("\n");
        Ok(FuzzEnd { status, summary, words })
    }
}

/// Adds the inputs to a corpus that cover new code.
fn keep(program: &Path, target: &str) -> Result<()> {
    let status = Command::new(program)
        .env(TARGET, target)
        .arg("-merge=1")
        .arg(root().join("tests/fuzz/corpus").join(target))
        .arg(folder("corpus", target)?)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("merge the corpora")?;
    ensure!(status.success(), "the corpus of {target} cannot be merged ({status})");
    Ok(())
}
