//! Regenerates every file that is generated from code, and reports stale ones. The test that compares a file makes it:
//! with `UPDATE` set, it writes instead.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use pilothouse_build::generated::{GENERATED, make_missing_below};

use crate::{builders, cargo, root};

/// Options of `cargo xtask generate`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct GenerateOptions {
    /// Write no file; fail if a generated file is out of date.
    #[arg(long)]
    check: bool,
    /// First read the Kubernetes API anew: from the folder api/openapi-spec/v3 in the sources of a version of Kubernetes.
    #[arg(long, value_name = "FOLDER", conflicts_with = "check")]
    openapi: Option<PathBuf>,
}

/// Writes or checks all generated files.
pub fn run(options: &GenerateOptions) -> Result<()> {
    if let Some(folder) = &options.openapi {
        builders::extract::run(folder)?;
    }
    builders::generated::run(options.check)?;
    if !options.check {
        // A new plugin includes the CRD that its test has yet to make.
        for folder in ["plugins", "tests/guests"] {
            make_missing_below(&root().join(folder))?;
        }
    }
    let mut command = cargo();
    // With the whole workspace's choice of features, as the tests are: the dependencies are not built again.
    command
        .args(["test", "--quiet", "--workspace", "--lib", "--"])
        .arg(GENERATED);
    if options.check {
        command.env_remove("UPDATE");
    } else {
        command.env("UPDATE", "1");
    }
    let status = command.status().context("run cargo test")?;
    ensure!(
        status.success(),
        "generated files are stale or can't be written; the test that failed names the file: run `cargo xtask generate`"
    );
    Ok(())
}
