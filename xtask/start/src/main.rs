//! Starts `xtask`, which is built first. This has no dependencies, so it is built within a second, and can say what the next
//! minute is for.

#![forbid(unsafe_code)]

use std::env;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Message about the duration of a first build of `xtask`, on two cores.
const FIRST: &str = "building the chores (xtask, about 90 crates: a minute on two cores, then a second)";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let is_built = env::current_exe().is_ok_and(|own| is_built_beside(&own));
    let mut run = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    run.arg("run");
    if is_built {
        run.arg("--quiet");
    } else {
        eprintln!("xtask: {FIRST}");
        if arguments.first().is_some_and(|chore| chore == "demo") {
            eprintln!(
                "xtask: then the host and five plugins are built, and the demo begins; five minutes in all on two cores"
            );
        }
    }
    let ended: io::Error = run.args(["--package", "xtask", "--"]).args(arguments).exec();
    eprintln!("xtask: cannot run cargo: {ended}");
    ExitCode::FAILURE
}

/// Returns `true` if there is an `xtask` beside this program, perhaps an older one.
fn is_built_beside(own: &Path) -> bool {
    own.parent().is_some_and(|folder| folder.join("xtask").is_file())
}
