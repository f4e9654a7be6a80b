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

/// The help of a command and of all commands below it, each with its words.
fn helps(words: &[&str], found: &mut Vec<(String, String)>) {
    let help = call(Path::new("."), &[words, &["--help"]].concat()).ok();
    let (_, listed) = help.split_once("Commands:\n").unwrap_or_default();
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let lines = lines.filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter_map(|line| line.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        helps(&[words, &[name]].concat(), found);
    }
    found.push((words.join(" "), help));
}

#[test]
fn the_help_of_each_command_ends_with_examples_and_exit_codes() {
    let mut found = Vec::new();
    helps(&[], &mut found);
    found.retain(|(command, _)| !command.is_empty());
    let known: Vec<&str> = found.iter().map(|(command, _)| command.as_str()).collect();
    assert!(known.len() >= 30 && known.contains(&"new kind"), "{known:?}");
    let mut missing = Vec::new();
    for (command, help) in &found {
        let example = format!("  pilothouse {command}");
        let (_, end) = help.split_once("\nExamples:\n").unwrap_or_default();
        if !end.lines().any(|line| line.starts_with(&example)) {
            missing.push(format!("{command}: Examples"));
        }
        if !end.contains("\n\nExit code: 0") {
            missing.push(format!("{command}: Exit code"));
        }
    }
    assert_eq!(missing, [""; 0]);
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
