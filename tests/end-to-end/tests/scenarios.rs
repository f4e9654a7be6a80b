//! Every scenario file, on the simulated cluster with the host in this process, and on the real control plane with the
//! host's own program.

use pilothouse_end_to_end::components;
use pilothouse_testkit::scenario::Scenario;

/// The scenarios of every folder below tests/scenarios.
fn scenarios() -> Vec<Scenario> {
    let folders = std::fs::read_dir(components::root().join("tests").join("scenarios")).expect("the folder is there");
    let mut folders: Vec<_> = folders.map(|entry| entry.expect("it can be read").path()).collect();
    folders.sort();
    let scenarios: Vec<_> = folders
        .iter()
        .flat_map(|folder| Scenario::read_folder(folder).expect("the scenarios can be read"))
        .collect();
    assert!(scenarios.len() > 10, "the scenario files are found");
    scenarios
}

fn report(failures: &[String], count: usize) {
    assert!(
        failures.is_empty(),
        "{} of {count} scenarios failed:\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

mod simulated {
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::scenario;

    /// Runs with paused time: waits cost none.
    #[tokio::test(start_paused = true)]
    async fn every_scenario_holds() {
        let scenarios = super::scenarios();
        let mut failures = Vec::new();
        for scenario in &scenarios {
            let result = scenario::run(scenario, &Cluster::simulated(), &mut RuntimeHost::default()).await;
            println!("{} {}", if result.is_ok() { "holds " } else { "FAILED" }, scenario.name);
            failures.extend(result.err().map(|error| error.to_string()));
        }
        super::report(&failures, scenarios.len());
    }
}

mod real {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use pilothouse_end_to_end::components;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::controlplane::Options;
    use pilothouse_testkit::host::ProcessHost;
    use pilothouse_testkit::scenario::{self, Manner};

    /// The machine may be busy with something else.
    const SLOWNESS: u32 = 4;

    /// Count of scenarios that run at the same time.
    const AT_ONCE: usize = 6;

    /// The scenario of a kind that is not served at first, so that no other may have brought it.
    const ALONE: &str = "awaited";

    /// Scenarios mostly wait, so several are played at once. Each host sees a whole cluster, so each has a control plane of its
    /// own.
    #[tokio::test(flavor = "multi_thread")]
    async fn every_scenario_holds() {
        let program = components::program();
        let scenarios = super::scenarios();
        let manner = Manner {
            slowness: SLOWNESS,
            ..Manner::default()
        };
        let next = AtomicUsize::new(0);
        let play = async || {
            let start = async || {
                let cluster = Cluster::real_with(Options::default()).await;
                cluster.expect("a control plane starts")
            };
            let cluster = start().await;
            let mut failures = Vec::new();
            while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut host = ProcessHost::new(&program, components::folder());
                let own = if scenario.name == ALONE {
                    Some(start().await)
                } else {
                    None
                };
                let cluster = own.as_ref().unwrap_or(&cluster);
                let result = scenario::run_with(scenario, cluster, &mut host, &manner).await;
                println!("{} {}", if result.is_ok() { "holds " } else { "FAILED" }, scenario.name);
                failures.extend(result.err().map(|error| error.to_string()));
            }
            failures
        };
        let failures = futures::future::join_all((0..AT_ONCE).map(|_| play())).await.concat();
        super::report(&failures, scenarios.len());
    }
}
