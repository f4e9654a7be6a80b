//! Starts the tests' control plane by hand: `cargo xtask controlplane`.

use std::{error::Error, process::ExitCode};

use pilothouse_testkit::{
    controlplane::{Availability, ControlPlane, Options, Programs, availability},
    requests::TEST_ACCOUNT,
};

#[tokio::main]
async fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let done = match argument.as_deref() {
        None => run().await,
        Some("--build") => build(),
        Some("--check") => check(),
        Some(other) => Err(format!("unknown argument {other}: give --build, --check or nothing").into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Says whether there is a control plane, without building one.
fn check() -> Result<(), Box<dyn Error>> {
    match availability() {
        Availability::Ready(programs) => println!("ready: {}", programs.apiserver.display()),
        Availability::Buildable => println!("to be built with Go on first use"),
        Availability::Unavailable(reason) => return Err(reason.into()),
    }
    Ok(())
}

fn build() -> Result<(), Box<dyn Error>> {
    let Programs {
        etcd,
        apiserver,
        controller_manager,
    } = Programs::obtain()?;
    for program in [etcd, apiserver, controller_manager] {
        println!("{}", program.display());
    }
    Ok(())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    println!(
        "Kubernetes {} serves at {}",
        ControlPlane::built_version(),
        control_plane.url()
    );
    println!(
        "export KUBECONFIG={}",
        control_plane.kubeconfig_file(TEST_ACCOUNT)?.display()
    );
    println!("Interrupt to end it.");
    tokio::signal::ctrl_c().await?;
    control_plane.stop();
    Ok(())
}
