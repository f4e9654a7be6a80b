//! `pilothouse test`: selects tests, runs them, and returns the exit code. `select` finds the tests, `golden` and
//! `scenarios` run them, `report` and `junit` print the results.

mod golden;
pub mod junit;
mod report;
pub mod result;
mod scenarios;
mod select;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use pilothouse_host::plugins::CacheArguments;
use pilothouse_testkit::scenario::Scenario;

use self::golden::Plugins;
use self::report::Reporter;
use self::scenarios::Stage;
use self::select::Selection;
use crate::components::{ComponentFiles, ComponentLoader};
use crate::plugin::WasiArguments;
use crate::test::result::{FinishedTest, TestKind, TestOutput};
use crate::verdict::NotAsExpected;

/// Examples below the help.
const EXAMPLES: &str = "\
Examples:
  pilothouse test                                    # all tests of the project in this folder
  pilothouse test scenarios/created.yaml             # one scenario
  pilothouse test web.wasm tests/golden              # golden cases, against this component
  pilothouse test --update                           # write what is expected in golden cases
  pilothouse test --real --junit report.xml          # on a real control plane, with a report for CI
  pilothouse test web.wasm --wasi inert              # a component that imports WASI

Exit code: 0 all tests passed, 1 an error (also a mistake in a test file), 2 a wrong command line, 3 a test failed.";

/// `pilothouse test`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TestCommand {
    /// Components (.wasm), scenario files, golden cases, or folders of either (default: the component that was built here,
    /// scenarios/*.yaml and tests/golden/*)
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Run scenarios on a real control plane instead of the simulated cluster: etcd, kube-apiserver and
    /// kube-controller-manager from KUBEBUILDER_ASSETS, or built with Go the first time
    #[arg(long, conflicts_with = "isolated")]
    real: bool,

    /// Run golden cases only, which call the plugin without a cluster
    #[arg(long)]
    isolated: bool,

    #[command(flatten)]
    wasi: WasiArguments,

    #[command(flatten)]
    cache: CacheArguments,

    /// Write a JUnit report to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    /// Run only tests whose file or name contains this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Write what the plugin answers to the expected.yaml of golden cases that differ
    #[arg(long)]
    update: bool,

    /// The form of the output
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t = TestOutput::Text)]
    output: TestOutput,
}

impl TestCommand {
    /// Runs the tests and reports.
    pub fn execute(self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let project = std::env::current_dir().context("cannot find the folder that this program runs in")?;
        let Selection {
            components,
            mut scenarios,
            mut golden,
        } = select::select(&self.paths, &project)?;
        let is_found = components.is_empty();
        let components = ComponentFiles::find(&components, &project, self.wasi.or(None))?;
        if is_found && let Some(warning) = components.outdated(&project) {
            eprintln!("warning: {warning}");
        }
        if self.isolated {
            scenarios.clear();
        }
        if let Some(filter) = &self.filter {
            let is_meant = |path: &PathBuf| path.to_string_lossy().contains(filter.as_str());
            scenarios.retain(is_meant);
            golden.retain(is_meant);
        }
        if scenarios.is_empty() && golden.is_empty() {
            bail!("no test is selected; leave out --filter or --isolated, or name other files");
        }
        let scenarios = read(&scenarios, &components)?;
        // Checked before anything runs: a component that cannot be loaded is an error and not the failure of a test.
        let components = ComponentLoader {
            files: components,
            sandbox: self.cache.sandbox()?,
        };
        let has_scenarios = scenarios.iter().any(|scenario| !scenario.resources);
        let for_scenarios = has_scenarios.then(|| self.wasi.or(None));
        let plugins = Plugins::load(&components, !golden.is_empty(), for_scenarios)?;
        let mut reporter = Reporter::new(self.output);
        // A test that cannot be run is an error of its own; the others run, and all of them are reported.
        for case in &golden {
            let begun = Instant::now();
            let ended = golden::run(case, &plugins, self.wasi, self.update).unwrap_or_else(|error| {
                let name = case.file_name().unwrap_or_default().to_string_lossy();
                FinishedTest::not_run(case, &name, TestKind::Golden, begun.elapsed(), &error)
            });
            reporter.ended(ended);
        }
        if !scenarios.is_empty() {
            let stage = Stage::open(components, self.real).map_err(|error| format!("{error:#}"));
            let kind = if self.real { TestKind::Real } else { TestKind::Simulated };
            for scenario in &scenarios {
                let begun = Instant::now();
                let told = match &stage {
                    Ok(stage) => stage.run(scenario),
                    Err(error) => Err(anyhow!("{error}")),
                };
                reporter.ended(told.unwrap_or_else(|error| {
                    FinishedTest::not_run(&scenario.file, &scenario.name, kind, begun.elapsed(), &error)
                }));
            }
        }
        let tests = reporter.finish(begun.elapsed());
        if let Some(file) = &self.junit {
            let xml = junit::report(&tests, begun.elapsed());
            fs::write(file, xml).with_context(|| format!("cannot write the JUnit report to {}", file.display()))?;
        }
        let all = tests.len();
        let errors = tests.iter().filter(|test| test.error().is_some()).count();
        if errors > 0 {
            bail!("{errors} of {all} tests could not be run");
        }
        let failed = tests.iter().filter(|test| test.failure().is_some()).count();
        if failed > 0 {
            return Err(NotAsExpected(format!("{failed} of {all} tests failed")).into());
        }
        Ok(())
    }
}

/// Reads scenarios. The errors of all files are reported together.
fn read(files: &[PathBuf], components: &ComponentFiles) -> anyhow::Result<Vec<Scenario>> {
    let (mut scenarios, mut mistakes) = (Vec::new(), Vec::new());
    for file in files {
        match Scenario::read(file) {
            Ok(scenario) => scenarios.push(scenario),
            Err(error) => mistakes.push(error.to_string()),
        }
    }
    if !mistakes.is_empty() {
        bail!("{}", mistakes.join("\n"));
    }
    for scenario in &mut scenarios {
        match components.only() {
            Some(only) => scenario.run_by_default(only),
            None if scenario.plugins.is_none() => bail!(
                "{} does not say which of the components it runs; add `plugins: [NAME]` with one of {}",
                scenario.file.display(),
                components.names()
            ),
            None => {}
        }
    }
    Ok(scenarios)
}
