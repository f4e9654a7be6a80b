//! The program as a plugin of kubectl, which finds it by its name.

use std::env;
use std::os::unix::fs::symlink;
use std::path::Path;
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

/// kubectl itself runs it. Only where there is one.
#[test]
fn kubectl_runs_the_program_as_its_plugin() {
    let (folder, path) = (folder_with_link(), env::var_os("PATH").unwrap_or_default());
    let has_kubectl = |folder: &Path| folder.join("kubectl").is_file();
    if !env::split_paths(&path).any(|folder| has_kubectl(&folder)) {
        eprintln!("left out: there is no kubectl in PATH");
        return;
    }
    let folders = [folder.path().to_owned()].into_iter().chain(env::split_paths(&path));
    let path = env::join_paths(folders).unwrap();
    let kubectl = |arguments: &[&str]| ended(Command::new("kubectl").args(arguments).env("PATH", &path));
    let help = kubectl(&["pilothouse", "status", "--help"]).ok();
    assert_eq!(usage(&help), "kubectl pilothouse status [OPTIONS]");
    let version = kubectl(&["pilothouse", "--version"]).ok();
    assert_eq!(version, call(folder.path(), &["--version"]).ok());
}
