//! The program by the name by which kubectl finds its plugins. Running it through kubectl is left to tests/end-to-end, which has a
//! host to ask.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::program::{call, ended};

/// A folder with a link to the program, by the name that kubectl looks for.
fn folder_with_link() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    symlink(
        env!("CARGO_BIN_EXE_pilothouse"),
        folder.path().join("kubectl-pilothouse"),
    )
    .unwrap();
    folder
}

/// The line of a help text that says how a command is called.
fn usage(help: &str) -> &str {
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: "));
    usage.unwrap_or_else(|| panic!("there is no usage in {help}"))
}

#[test]
fn help_and_errors_speak_of_the_program_as_it_was_called() {
    let folder = folder_with_link();
    let by_kubectl = |arguments: &[&str]| ended(Command::new(folder.path().join("kubectl-pilothouse")).args(arguments));
    assert_eq!(usage(&by_kubectl(&["--help"]).ok()), "kubectl pilothouse <COMMAND>");
    assert_eq!(
        usage(&by_kubectl(&["status", "--help"]).ok()),
        "kubectl pilothouse status [OPTIONS]"
    );
    let said = by_kubectl(&["why"]).failed(2);
    assert_eq!(usage(&said), "kubectl pilothouse why <KIND/NAME>");
    // And by itself.
    let itself = call(folder.path(), &["status", "--help"]).ok();
    assert_eq!(usage(&itself), "pilothouse status [OPTIONS]");
}
