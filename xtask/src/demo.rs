//! `cargo xtask demo`: builds the plugins and the demo's program, then becomes that program. `pilothouse-demo` is a
//! program of its own: linked in, the host and the cluster would make every chore wait for their dependencies.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;

use crate::{cargo, plugins, recording, root};

/// The plugins that are shown.
const PLUGINS: [&str; 5] = [
    "app-service",
    "reverse-proxy",
    "service-ingress",
    "stream-ingress",
    "ecs-binding",
];

/// Folder of the applied resources, a file for each plugin, from the workspace's root.
const SAMPLES: &str = "deploy/samples";

/// The crate of the demo, whose program has the same name.
const PROGRAM: &str = "pilothouse-demo";

/// Options of `cargo xtask demo`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DemoOptions {
    /// Exit after the last step, with exit code 1 if a step did not behave as expected.
    #[arg(long)]
    once: bool,
    /// Run to the last step and draw docs/images/demo.svg, which README.md shows
    #[arg(long, conflicts_with = "once")]
    record: bool,
}

/// Builds the demo and shows it. Returns only where that fails: signals and the exit code are the demo's own.
pub fn run(options: &DemoOptions) -> Result<()> {
    let crates = crates()?;
    eprintln!(
        "xtask: building the host ({crates} crates) and {} plugins: about four minutes on two cores at first, then a second",
        PLUGINS.len()
    );
    // Both at once: each ends with work for a single core.
    let building = Building::start(crates)?;
    plugins::build(&plugins::PluginsOptions {
        only: PLUGINS.map(str::to_owned).to_vec(),
        ..plugins::PluginsOptions::default()
    })?;
    let program = building.finish()?;
    let mut demo = Command::new(program);
    demo.current_dir(root())
        .arg("--plugins")
        .arg(plugins::directory())
        .args(["--samples", SAMPLES, "--folder", "target/demo"]);
    if options.record {
        return record(&mut demo);
    }
    if options.once {
        demo.arg("--once");
    }
    Err(anyhow!(demo.exec()).context("run the demo"))
}

/// Draws the demo's output.
fn record(demo: &mut Command) -> Result<()> {
    let output = demo
        .arg("--once")
        .stderr(Stdio::inherit())
        .output()
        .context("run the demo")?;
    ensure!(output.status.success(), "the demo ended with {}", output.status);
    let drawing = recording::drawn(&String::from_utf8_lossy(&output.stdout))?;
    let file = root().join(recording::FILE);
    fs::write(&file, drawing).with_context(|| format!("write {}", file.display()))?;
    println!("{} is drawn anew", recording::FILE);
    Ok(())
}

/// Count of the crates of the demo's program.
fn crates() -> Result<usize> {
    let arguments = [
        "tree",
        "--package",
        PROGRAM,
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--no-dedupe",
        "--format",
        "{p}",
    ];
    let listed = cargo().args(arguments).stderr(Stdio::inherit()).output();
    let listed = listed.context("run cargo tree")?;
    ensure!(listed.status.success(), "cargo tree failed: {}", listed.status);
    let text = String::from_utf8_lossy(&listed.stdout);
    Ok(text.lines().collect::<BTreeSet<_>>().len())
}

/// Reports a build's progress at intervals. On a terminal cargo does so itself.
struct Progress {
    all: usize,
    done: BTreeSet<String>,
    begun: Instant,
    said: Instant,
}

impl Progress {
    fn of(all: usize) -> Self {
        let begun = Instant::now();
        Self {
            all,
            done: BTreeSet::new(),
            begun,
            said: begun,
        }
    }

    fn note(&mut self, message: &str) {
        let Ok(Message {
            package_id: Some(package),
            ..
        }) = serde_json::from_str(message)
        else {
            return;
        };
        let _ = self.done.insert(package);
        if self.said.elapsed() >= SAY_EVERY && !std::io::stderr().is_terminal() {
            self.said = Instant::now();
            let seconds = self.begun.elapsed().as_secs();
            eprintln!(
                "xtask: {} of {} crates are built after {seconds} s",
                self.done.len(),
                self.all
            );
        }
    }
}

/// Interval of the lines about the build's progress.
const SAY_EVERY: Duration = Duration::from_secs(15);

/// A cargo that builds the demo's program.
struct Building {
    cargo: Child,
    /// Reader of cargo's output; cargo would wait once the pipe is full.
    program: Option<JoinHandle<Result<Option<PathBuf>>>>,
}

impl Building {
    fn start(crates: usize) -> Result<Self> {
        let arguments = [
            "build",
            "--package",
            PROGRAM,
            "--message-format",
            "json-render-diagnostics",
        ];
        let mut command = cargo();
        let child = command.args(arguments).stdout(Stdio::piped()).spawn();
        let mut cargo = child.context("run cargo build")?;
        let messages = cargo.stdout.take().expect("it was asked for");
        let program = thread::spawn(move || {
            let (mut found, mut progress) = (None, Progress::of(crates));
            for message in BufReader::new(messages).lines() {
                let message = message.context("read what cargo built")?;
                progress.note(&message);
                found = program(&message).or(found);
            }
            Ok(found)
        });
        Ok(Self {
            cargo,
            program: Some(program),
        })
    }

    /// The program.
    fn finish(mut self) -> Result<PathBuf> {
        let program = self.program.take().expect("only this takes it");
        let program = program
            .join()
            .map_err(|_| anyhow!("reading what cargo built panicked"))?;
        let status = self.cargo.wait().context("wait for cargo build")?;
        ensure!(status.success(), "building {PROGRAM} failed: {status}");
        program?.with_context(|| format!("cargo built no program {PROGRAM}"))
    }
}

impl Drop for Building {
    /// Ends the build where the plugin can't be built.
    fn drop(&mut self) {
        // It fails when cargo has ended already, which is as well.
        let _ = self.cargo.kill();
        let _ = self.cargo.wait();
    }
}

/// The program, when this message of cargo's is about it.
fn program(message: &str) -> Option<PathBuf> {
    let Message {
        target,
        executable,
        package_id: _,
    } = serde_json::from_str(message).ok()?;
    executable.filter(|_| target.is_some_and(|target| target.name == PROGRAM))
}

#[derive(Debug, Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
    package_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_what_cargo_says() {
        let artifact = |name: &str, executable: &str| {
            format!(r#"{{"reason":"compiler-artifact","target":{{"name":"{name}"}},"executable":{executable}}}"#)
        };
        assert_eq!(
            program(&artifact(PROGRAM, r#""/t/demo""#)),
            Some(PathBuf::from("/t/demo"))
        );
        assert_eq!(program(&artifact("another", r#""/t/another""#)), None);
        assert_eq!(program(&artifact(PROGRAM, "null")), None);
        assert_eq!(program(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(program("not JSON"), None);
    }
}
