//! Runs scenarios with a host in this process: on a simulated cluster of its own for each, with paused time, or on one
//! real control plane. The steps are left to the kit.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::Context as _;
use pilothouse_host::ask::why;
use pilothouse_runtime::HostOptions;
use pilothouse_runtime::api::documents::ObjectDocument;
use pilothouse_runtime::clock::WallClock;
use pilothouse_testhost::{RuntimeHost, Tail, unhurried};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::scenario::{self, Scenario, ScenarioError};
use tokio::runtime::{Builder, Runtime};

use crate::components::ComponentLoader;
use crate::test::result::{FinishedTest, TestFailure, TestKind, TestResult, shown};

/// Number of the host's last log lines that a failure shows.
const LOG_LINES: usize = 15;

/// Environment of scenarios.
pub(super) struct Stage {
    components: ComponentLoader,
    tail: Tail,
    /// The real control plane, and the threads that watch it.
    real: Option<(Runtime, Cluster)>,
}

impl Stage {
    /// Starts the control plane, if it is to be a real one. All of the host's log is kept from here on.
    pub(super) fn open(components: ComponentLoader, is_real: bool) -> anyhow::Result<Self> {
        let tail = Tail::default();
        tail.follow_all();
        let real = if is_real {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.context("cannot start the threads of the host")?;
            let cluster = runtime
                .block_on(Cluster::real())
                .context("there is no real control plane")?;
            Some((runtime, cluster))
        } else {
            None
        };
        Ok(Self { components, tail, real })
    }

    /// Runs a scenario.
    pub(super) fn run(&self, scenario: &Scenario) -> anyhow::Result<FinishedTest> {
        self.tail.clear();
        let begun = Instant::now();
        let host = |clock: WallClock| {
            let options = HostOptions {
                clock,
                ..HostOptions::default()
            };
            RuntimeHost::with(self.components.clone(), options, unhurried(), self.tail.clone())
        };
        let (told, kind) = if let Some((runtime, cluster)) = &self.real {
            let told = runtime.block_on(scenario::run(scenario, cluster, &mut host(WallClock::System)));
            (told, TestKind::Real)
        } else {
            // Waiting for time alone takes none.
            let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
            let runtime = runtime.context("cannot start the threads of the host")?;
            let told = runtime.block_on(async {
                // The plugin's clock follows the simulated time.
                let clock = WallClock::starting_at(WallClock::System.now());
                scenario::run(scenario, &Cluster::simulated(), &mut host(clock)).await
            });
            runtime.shutdown_background();
            (told, TestKind::Simulated)
        };
        Ok(FinishedTest {
            file: scenario.file.clone(),
            name: scenario.name.clone(),
            kind,
            took: begun.elapsed(),
            result: told.map_or_else(|error| TestResult::Failed(failure(&error)), |()| TestResult::Passed),
        })
    }
}

/// Returns the failed step, the host's state of the objects, and its log.
fn failure(error: &ScenarioError) -> TestFailure {
    let ScenarioError {
        file,
        step,
        cluster: _,
        cause,
        explained,
        host_log,
    } = error;
    let cause = cause.to_string();
    let place = step
        .as_ref()
        .map(|(line, step)| format!(":{line}: {step}"))
        .unwrap_or_default();
    let first = cause.lines().next().unwrap_or_default().trim_end_matches(':');
    let mut details = String::new();
    for line in cause.lines().skip(1) {
        let _ = writeln!(details, "{line}");
    }
    let documents = explained.iter().filter_map(|document| {
        let document: ObjectDocument = serde_json::from_value(document.clone()).ok()?;
        Some(why::text(&document, false))
    });
    for text in documents {
        let _ = write!(details, "\nWhat the host knows of it: {text}");
    }
    let lines: Vec<&str> = host_log.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    let _ = writeln!(
        details,
        "\nThe last lines of the host and the plugin:\n{}",
        last.join("\n")
    );
    TestFailure {
        message: format!("{}{place}: {first}", shown(file)),
        details,
    }
}
