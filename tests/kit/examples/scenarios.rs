//! Owns running scenario files by hand, with the host's own program: `cargo run -p pilothouse-testkit --example scenarios
//! -- real tests/scenarios/app-service/created.yaml`. Leaves the story to the kit.

use std::{error::Error, path::Path, process::ExitCode, time::Instant};

use pilothouse_testkit::{
    cluster::Cluster,
    host::ProcessHost,
    scenario::{Scenario, run},
};

#[tokio::main]
async fn main() -> ExitCode {
    match tell().await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Tells all stories and counts those that do not hold.
async fn tell() -> Result<usize, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let mut scenarios = Vec::new();
    for argument in arguments {
        let path = Path::new(&argument);
        if path.is_dir() {
            scenarios.extend(Scenario::read_folder(path)?);
        } else {
            scenarios.push(Scenario::read(path)?);
        }
    }
    if scenarios.is_empty() {
        return Err("give `real` or `simulated`, then scenario files or folders".into());
    }
    let real = match kind.as_str() {
        "real" => Some(Cluster::real().await?),
        "simulated" => None,
        other => return Err(format!("{other:?} is neither `real` nor `simulated`").into()),
    };
    let mut failed = 0;
    for scenario in &scenarios {
        let cluster = match &real {
            Some(cluster) => cluster.clone(),
            None => Cluster::simulated_over_http().await?,
        };
        let started = Instant::now();
        let mut host = ProcessHost::new("target/release/pilothouse", "target/plugins");
        let result = run(scenario, &cluster, &mut host).await;
        let verdict = if result.is_ok() { "holds" } else { "FAILED" };
        println!("{verdict:<7} {} ({} ms)", scenario.name, started.elapsed().as_millis());
        if let Err(error) = result {
            println!("{error}\n");
            failed += 1;
        }
    }
    Ok(failed)
}
