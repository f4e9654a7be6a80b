//! Runs the tests in parts and adds up their results.
//!
//! Which part a test belongs to is said by the modules that it is in: `real::` needs a real control plane, `isolated::`
//! runs a plugin by itself, `simulated::` runs a host on the simulated cluster, `oracle::` asks a real nginx, `external::`
//! needs real registries and tools; all others are unit tests.
//!
//! A test that fails is run again, alone. If it passes then, the summary names it as unsteady: on a machine that is busy with
//! something else, a deadline may have passed, but it may also be a race, so it is to be looked into.

mod harness;

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use self::harness::{Failure, Report, TestCount};
use crate::languages::{self, NotBuilt};
use crate::{cargo, controlplane, faketime, minutes, nginx, plugins, programs};

/// With more failures than these in a part, none is run again: that many are no accident.
const MOST_AGAIN: usize = 4;

/// Count of tests on a real control plane that run at the same time in a binary: they wait for leases and back-offs more than
/// they compute.
const REAL_AT_ONCE: &str = "4";

/// Which tests to run.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TestOptions {
    /// Run only this part; may be repeated. Without it, every part but `external` is run.
    #[arg(long, value_enum, value_name = "PART")]
    pub only: Vec<TestPart>,
    /// Fail if what a part needs (a real control plane, nginx, registries and tools) is not available, instead of skipping
    /// its tests.
    #[arg(long)]
    pub require_real: bool,
}

/// A part of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TestPart {
    /// Tests that need neither a plugin nor a cluster.
    Unit,
    /// Tests of single plugins in the host's sandbox.
    Isolated,
    /// Tests of the host on the simulated cluster.
    Simulated,
    /// Tests that compare the plugins' validation with the real nginx.
    Oracle,
    /// Tests of the host on a real control plane.
    Real,
    /// Tests with real registries, cosign, oras, wkg, promtool, helm and kustomize, of the image, and of the plugins in other
    /// languages.
    External,
}

/// A part that is over.
#[derive(Debug)]
struct Done {
    part: TestPart,
    count: TestCount,
    /// Cargo's own verdict: tests may also fail to build.
    succeeded: bool,
    took: Duration,
    remark: Option<String>,
    failures: Vec<Failure>,
    /// Failures that passed when they were run again.
    unsteady: Vec<Failure>,
}

impl TestPart {
    const ALL: [Self; 6] = [
        Self::Unit,
        Self::Isolated,
        Self::Simulated,
        Self::Oracle,
        Self::Real,
        Self::External,
    ];

    /// Returns `true` if the part is run when none is named. The programs of `External` take too long to build.
    fn is_default(self) -> bool {
        self != Self::External
    }

    fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Isolated => "isolated",
            Self::Simulated => "simulated",
            Self::Oracle => "oracle",
            Self::Real => "real",
            Self::External => "external",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Unit => "what needs neither a plugin nor a cluster",
            Self::Isolated => "plugins by themselves, under the host's sandbox",
            Self::Simulated => "the host on the simulated cluster",
            Self::Oracle => "what plugins take for good, against the real nginx",
            Self::Real => "the host on a real control plane",
            Self::External => {
                "artifacts, metrics, the chart and the image with the programs that read them, and plugins in other languages"
            }
        }
    }

    /// The command that runs the tests; the filter follows it. Examples in the documentation are unit tests: rustdoc reads every
    /// crate to find them, also where the filter leaves none.
    fn command(self) -> Command {
        let mut command = cargo();
        command.args(["test", "--workspace", "--no-fail-fast"]);
        command.args((self != Self::Unit).then_some("--tests")).arg("--");
        command
    }

    /// Returns the filter arguments for the harness of each test binary.
    fn filter(self) -> &'static [&'static str] {
        match self {
            Self::Unit => &[
                "--skip",
                "isolated::",
                "--skip",
                "simulated::",
                "--skip",
                "oracle::",
                "--skip",
                "real::",
                "--skip",
                "external::",
            ],
            Self::Isolated => &["isolated::"],
            Self::Simulated => &["simulated::"],
            Self::Oracle => &["oracle::"],
            Self::Real => &["real::"],
            Self::External => &["external::"],
        }
    }
}

/// Runs the tests, shows them, and ends with their summary.
pub fn run(options: &TestOptions) -> Result<()> {
    let mut parts = TestPart::ALL.to_vec();
    if options.only.is_empty() {
        parts.retain(|part| part.is_default());
    } else {
        parts.retain(|part| options.only.contains(part));
    }
    let mut done = Vec::new();
    for part in parts {
        heading(&format!("{}: {}", part.name(), part.about()));
        let started = Instant::now();
        done.push(run_part(part, options.require_real).unwrap_or_else(|error| {
            println!("{error:#}");
            let remark = Some(format!("{error:#}"));
            Done {
                part,
                count: TestCount::default(),
                succeeded: false,
                took: started.elapsed(),
                remark,
                failures: Vec::new(),
                unsteady: Vec::new(),
            }
        }));
    }
    let succeeded = done.iter().all(|done| done.succeeded);
    for line in summary(&done, options.only.is_empty()) {
        println!("{line}");
    }
    ensure!(succeeded, "not all tests passed");
    Ok(())
}

fn run_part(part: TestPart, require_real: bool) -> Result<Done> {
    let started = Instant::now();
    let (mut environment, mut without) = (Vec::new(), Vec::new());
    let mut is_broken = false;
    let missing = match part {
        TestPart::Unit | TestPart::Isolated | TestPart::Simulated => None,
        TestPart::External => match programs::find() {
            Ok(programs) => {
                environment.extend(programs.environment().iter().cloned());
                without = programs.missing().to_vec();
                for (module, not_built) in languages::build() {
                    let (NotBuilt::Missing(reason) | NotBuilt::Failed(reason)) = &not_built;
                    is_broken |= matches!(not_built, NotBuilt::Failed(_));
                    without.push((module, reason.clone()));
                }
                None
            }
            Err(error) => Some(format!("{error:#}")),
        },
        TestPart::Real => {
            environment.push(("RUST_TEST_THREADS", REAL_AT_ONCE.into()));
            match faketime::find() {
                Ok(library) => environment.push((faketime::VARIABLE, library)),
                Err(error) => without.push((faketime::MODULE, format!("{error:#}"))),
            }
            controlplane::missing()?
        }
        TestPart::Oracle => match nginx::find() {
            Ok(nginx) => {
                environment.extend(nginx.environment().map(|(name, path)| (name, path.to_owned())));
                None
            }
            Err(error) => Some(format!("{error:#}")),
        },
    };
    if let Some(reason) = missing {
        let skipped = listed(part.filter())?;
        heading(&format!("LEFT OUT: {skipped} tests. {reason}"));
        let count = TestCount {
            skipped,
            ..TestCount::default()
        };
        let remark = Some(reason);
        return Ok(Done {
            part,
            count,
            succeeded: !require_real,
            took: started.elapsed(),
            remark,
            failures: Vec::new(),
            unsteady: Vec::new(),
        });
    }
    let mut left_out = 0;
    for (program, reason) in &without {
        let tests = listed(&[&format!("{program}::")])?;
        heading(&format!("LEFT OUT: {tests} tests. {reason}"));
        left_out += tests;
    }
    prepare(part)?;
    let tests = || {
        let mut command = part.command();
        command.envs(environment.iter().cloned());
        command
    };
    let mut command = tests();
    command.args(part.filter());
    for (program, _) in &without {
        command.arg("--skip").arg(format!("{program}::"));
    }
    let (succeeded, report) = read_tests(command)?;
    let mut outcome = Outcome {
        succeeded,
        count: report.count,
        failures: report.failures.clone(),
        unsteady: Vec::new(),
    };
    if !succeeded && report.is_complete() && (1..=MOST_AGAIN).contains(&report.failures.len()) {
        outcome = run_again(tests(), outcome)?;
    }
    let Outcome {
        succeeded,
        mut count,
        failures,
        unsteady,
    } = outcome;
    let empty = count == TestCount::default();
    let succeeded = succeeded && !is_broken && (without.is_empty() || !require_real);
    let remark = (succeeded && empty).then(|| "there are no tests, which can't be right".to_owned());
    let reasons: Vec<String> = without.into_iter().map(|(_, reason)| reason).collect();
    let remark = remark.or_else(|| (!reasons.is_empty()).then(|| reasons.join("; ")));
    count.skipped += left_out;
    Ok(Done {
        part,
        count,
        succeeded: succeeded && !empty,
        took: started.elapsed(),
        remark,
        failures,
        unsteady,
    })
}

/// Result of the tests of a part.
struct Outcome {
    succeeded: bool,
    count: TestCount,
    failures: Vec<Failure>,
    unsteady: Vec<Failure>,
}

/// Runs the tests that failed once more, one at a time.
fn run_again(mut command: Command, outcome: Outcome) -> Result<Outcome> {
    command.args(["--exact", "--test-threads=1"]);
    command.args(outcome.failures.iter().map(|failure| &failure.name));
    heading("What failed is run again, alone");
    let (succeeded, report) = read_tests(command)?;
    // Where a name stands for tests of two binaries, both have run, and either may have failed.
    let fails_again =
        |failure: &Failure| !report.is_complete() || report.failures.iter().any(|it| it.name == failure.name);
    let (failures, unsteady): (Vec<_>, Vec<_>) = outcome.failures.into_iter().partition(fails_again);
    let passed_again = report.count.passed >= unsteady.len();
    let count = TestCount {
        passed: outcome.count.passed + unsteady.len(),
        failed: failures.len(),
        ..outcome.count
    };
    Ok(Outcome {
        succeeded: succeeded && passed_again && failures.is_empty(),
        count,
        failures,
        unsteady,
    })
}

/// Runs tests and shows their output.
fn read_tests(mut command: Command) -> Result<(bool, Report)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("run cargo test")?;
    let mut report = Report::default();
    for line in BufReader::new(child.stdout.take().context("read what cargo test says")?).lines() {
        let line = line.context("read what cargo test says")?;
        if report.read(&line) {
            println!("{line}");
        }
    }
    let succeeded = child.wait().context("wait for cargo test")?.success();
    Ok((succeeded, report))
}

/// Builds the programs that a part's tests run.
fn prepare(part: TestPart) -> Result<()> {
    if part == TestPart::Oracle {
        return Ok(());
    }
    // `pilothouse push` reads the workspace's dependencies for WebAssembly, of which a build of the host downloads only some.
    let fetched = cargo()
        .args(["fetch", "--locked"])
        .status()
        .context("run cargo fetch")?;
    if !fetched.success() {
        eprintln!(
            "cargo fetch failed: tests that push a plugin fail where dependencies for other platforms are missing"
        );
    }
    if part != TestPart::Unit {
        plugins::run(&plugins::PluginsOptions::default()).context("build the plugins")?;
    }
    // Every part has tests that run the program. With the whole workspace's choice of features, as the tests are: the
    // dependencies are not built again.
    let mut build = cargo();
    build.args([
        "build",
        "--workspace",
        "--bin",
        "pilothouse",
        "--bin",
        "pilothouse-host",
    ]);
    let status = build.status().context("run cargo build")?;
    ensure!(status.success(), "the host does not build");
    Ok(())
}

/// Count of the tests that a filter leaves.
fn listed(filter: &[&str]) -> Result<usize> {
    let mut command = cargo();
    command
        .args(["test", "--quiet", "--workspace", "--tests", "--"])
        .args(filter)
        .arg("--list");
    let output = command.output().context("run cargo test --list")?;
    ensure!(
        output.status.success(),
        "list the tests: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter(|line| line.ends_with(": test")).count())
}

fn heading(text: &str) {
    println!("\n=== {text}\n");
}

/// Returns the summary: the failures, a line for each part, a line for each part that was not requested, and, alone on
/// the last line, the sum.
fn summary(done: &[Done], default: bool) -> Vec<String> {
    let mut total = TestCount::default();
    let mut lines = Vec::new();
    for done in done {
        tell(&done.failures, "failed", &mut lines);
        tell(
            &done.unsteady,
            "failed, and passed when it was run again, alone",
            &mut lines,
        );
    }
    lines.extend([String::new(), "=== Summary".to_owned(), String::new()]);
    for Done {
        part,
        count,
        succeeded,
        took,
        remark,
        failures: _,
        unsteady,
    } in done
    {
        let mut count = *count;
        // A part that did not build has no failed test to show for it.
        if !succeeded && count.failed == 0 {
            count.failed = 1;
        }
        total.add(count);
        let TestCount {
            passed,
            failed,
            skipped,
        } = count;
        let verdict = if !succeeded {
            "FAILED"
        } else if passed == 0 && skipped > 0 {
            "left out"
        } else {
            "ok"
        };
        let remark = remark
            .as_ref()
            .map(|remark| format!("  ({remark})"))
            .unwrap_or_default();
        let again = match unsteady.len() {
            0 => String::new(),
            again => format!("  {again} of them UNSTEADY: passed when run again"),
        };
        lines.push(format!(
            "{:<10} {verdict:<8} {passed:>5} passed {failed:>3} failed {skipped:>3} skipped {:>5.1} min{again}{remark}",
            part.name(),
            minutes(*took)
        ));
    }
    for part in TestPart::ALL.into_iter().filter(|part| default && !part.is_default()) {
        let name = part.name();
        lines.push(format!(
            "{name:<10} not run: `cargo xtask test --only {name}` tests {}",
            part.about()
        ));
    }
    let TestCount {
        passed,
        failed,
        skipped,
    } = total;
    lines.push(String::new());
    lines.push(format!("{passed} passed, {failed} failed, {skipped} skipped"));
    lines
}

/// Lines for tests that are not as they should be.
fn tell(failures: &[Failure], what: &str, lines: &mut Vec<String>) {
    for Failure { name, message } in failures {
        lines.extend([String::new(), format!("=== {name} {what}")]);
        lines.extend(message.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(part: TestPart, count: TestCount, succeeded: bool) -> Done {
        Done {
            part,
            count,
            succeeded,
            took: Duration::from_secs(3),
            remark: None,
            failures: Vec::new(),
            unsteady: Vec::new(),
        }
    }

    #[test]
    fn what_failed_stands_before_the_table_with_its_message() {
        let failure = |name: &str| Failure {
            name: name.to_owned(),
            message: vec![format!("{name} says why")],
        };
        let count = TestCount {
            passed: 5,
            failed: 1,
            skipped: 0,
        };
        let mut real = done(TestPart::Real, count, false);
        real.failures.push(failure("real::a"));
        real.unsteady.push(failure("real::b"));
        let lines = summary(&[real], true);
        let at = |text: &str| lines.iter().position(|line| line.contains(text)).expect(text);
        assert!(at("=== real::a failed") < at("real::a says why") && at("real::b says why") < at("=== Summary"));
        assert!(lines[at("UNSTEADY")].starts_with("real       FAILED       5 passed   1 failed"));
    }

    #[test]
    fn the_sum_stands_alone_on_the_last_line() {
        let lines = summary(
            &[
                done(
                    TestPart::Unit,
                    TestCount {
                        passed: 5,
                        failed: 0,
                        skipped: 1,
                    },
                    true,
                ),
                done(
                    TestPart::Real,
                    TestCount {
                        passed: 0,
                        failed: 0,
                        skipped: 7,
                    },
                    true,
                ),
            ],
            true,
        );
        assert_eq!(lines.last().unwrap(), "5 passed, 0 failed, 8 skipped");
        assert!(
            lines.iter().any(|line| line.starts_with("real       left out")),
            "{lines:?}"
        );
    }

    #[test]
    fn only_a_default_run_says_which_part_it_has_not_run() {
        let not_run = |default| {
            summary(&[], default)
                .iter()
                .any(|line| line.starts_with("external   not run"))
        };
        assert!(not_run(true));
        assert!(!not_run(false));
    }

    #[test]
    fn every_test_belongs_to_one_part() {
        for part in TestPart::ALL.into_iter().filter(|part| *part != TestPart::Unit) {
            let module = [part.name(), "::"].concat();
            assert_eq!(part.filter(), [module.as_str()]);
            let skipped = TestPart::Unit
                .filter()
                .chunks(2)
                .any(|pair| pair == ["--skip", module.as_str()]);
            assert!(skipped, "the unit tests are without {module}");
        }
    }

    #[test]
    fn a_part_that_does_not_build_counts_as_failed() {
        let lines = summary(&[done(TestPart::Unit, TestCount::default(), false)], true);
        assert_eq!(lines.last().unwrap(), "0 passed, 1 failed, 0 skipped");
    }
}
