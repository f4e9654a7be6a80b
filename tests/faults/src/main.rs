//! The fault suite: every scenario of every plugin under schedules of faults, drawn from a seed, that befall the host, its
//! connection, its watches, and the objects that it owns. `docs/reliability.md` says what it holds the host to.
//!
//! A run is a process of its own: what is random in a process (the order of hash maps, which branch `select!` tries first) is
//! the same in each, so that a seed repeats a run exactly.

#![deny(unsafe_code)]
#![allow(missing_docs, reason = "a program")]

mod copies;
mod crew;
mod entropy;
mod judge;
pub mod names;
mod play;
mod real;
mod rewriting;
mod schedule;
mod snapshot;
mod somebody;
mod suite;
pub mod target;
mod tenant;
mod wire;
mod world;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "cargo xtask faults", about = "Plays every scenario under faults")]
struct Arguments {
    #[command(flatten)]
    options: suite::Options,
    /// Runs one job, which it reads from standard input, and prints the report.
    #[arg(long, hide = true)]
    job: bool,
}

fn main() -> ExitCode {
    let Arguments { options, job } = Arguments::parse();
    let done = if job { suite::work() } else { suite::run(&options) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("faults: {error:#}");
            ExitCode::FAILURE
        }
    }
}
