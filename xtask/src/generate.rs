//! Owns making anew every file that is generated from code, and whether one is stale. Leaves how a file is made to the
//! test that compares it: with `UPDATE` set, it writes instead.

use anyhow::{Context as _, Result, ensure};

use crate::cargo;

/// The tests that compare a generated file with what the code gives: package, and part of the test's name.
const GENERATED: [(&str, &str); 7] = [
    ("app-service", "crd::"),
    ("ecs-binding", "generated::"),
    ("reverse-proxy", "generated::"),
    ("service-ingress", "generated::"),
    ("stream-ingress", "generated::"),
    ("pilothouse-core", "schema::"),
    ("pilothouse-crds", "crd_file"),
];

/// What to do about generated files.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Change nothing, and fail where a file is stale.
    #[arg(long)]
    check: bool,
}

/// Writes or checks all generated files.
pub fn run(options: &Options) -> Result<()> {
    for (package, name) in GENERATED {
        let mut command = cargo();
        command.args(["test", "--quiet", "--package", package, name]);
        if options.check {
            command.env_remove("UPDATE");
        } else {
            command.env("UPDATE", "1");
        }
        let status = command.status().context("run cargo test")?;
        ensure!(
            status.success(),
            "generated files of {package} are stale or can't be written: run `cargo xtask generate`"
        );
    }
    Ok(())
}
