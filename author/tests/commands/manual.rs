//! Completion and manual, which must know every command.

use std::fs;
use std::path::Path;

use crate::program::call;

/// The commands that the program's help lists.
fn commands() -> Vec<String> {
    let help = call(Path::new("."), &["--help"]).ok();
    let (_, listed) = help.split_once("Commands:\n").unwrap();
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let commands = lines
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '));
    let commands: Vec<_> = commands
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert!(commands.len() > 20, "{commands:?}");
    commands
}

#[test]
fn each_shell_completes_each_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = call(Path::new("."), &["completion", shell]).ok();
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
        assert!(script.contains("finalizer"), "{shell} knows no option of new");
    }
    let error = call(Path::new("."), &["completion", "cmd"]).failed(2);
    assert!(error.contains("bash") && error.contains("fish"), "{error}");
}

#[test]
fn each_command_has_a_page_with_its_examples() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    call(folder.path(), &["man", "man1"]).ok();
    for command in commands().into_iter().filter(|command| command != "help") {
        let page = fs::read_to_string(pages.join(format!("pilothouse-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}: {page}");
    }
    let build = fs::read_to_string(pages.join("pilothouse-build.1")).unwrap();
    assert!(build.contains("Examples:"), "{build}");
    let program = call(folder.path(), &["man"]).ok();
    assert!(program.contains("pilothouse\\-build(1)"), "{program}");
}
