//! The commands of `pilothouse` and of `cargo xtask` that the documentation shows, read by the real command lines and not
//! executed: an option that does not exist, or has another form, is found. What a command does is left to the tests that run it.

use std::fs;

use clap::error::ErrorKind;
use pilothouse_book::console::{Step, commands};
use pilothouse_book::{pages, root, shell};
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// The pages, from the root of the repository.
fn documents() -> Vec<String> {
    let mut found: Vec<String> = ["README.md", "CONTRIBUTING.md"].map(str::to_owned).into();
    for folder in ["docs", "plugins", "deploy", "tests"] {
        found.extend(pages(folder).expect("the folders are there"));
    }
    // What npm and pip have installed there.
    found.retain(|page| !page.contains("/node_modules/") && !page.contains("/.venv/"));
    found
}

/// Returns the commands of a page's consoles, and the examples of the generated help.
fn shown(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block = None::<(String, String)>;
    for event in Parser::new(page) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                block = Some((language.into_string(), String::new()));
            }
            Event::Text(text) => {
                if let Some((_, lines)) = &mut block {
                    lines.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                let Some((language, lines)) = block.take() else {
                    continue;
                };
                if language == "console" {
                    let lines: Vec<_> = lines.lines().collect();
                    found.extend(commands(&lines).into_iter().filter_map(|step| match step {
                        Step::Run { command, .. } => Some(command),
                        Step::Write { .. } => None,
                    }));
                } else if let Some((_, examples)) = lines.split_once("Examples:\n") {
                    // Where there is no `#` before a remark, wide space is.
                    let example = |line: &str| {
                        let line = line.strip_prefix("  ")?;
                        Some(line.split_once("   ").map_or(line, |(command, _)| command).to_owned())
                    };
                    found.extend(examples.lines().map_while(example));
                }
            }
            _ => {}
        }
    }
    found
}

/// The command line that reads a program's arguments, and these with its name; none for a program of others.
fn read_by(words: &[String]) -> Option<(clap::Command, Vec<String>)> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let (command, arguments) = match words.as_slice() {
        ["kubectl", "pilothouse", arguments @ ..] | ["cargo", "run", "-p", "pilothouse", "--", arguments @ ..] => {
            (pilothouse::command_line::command(), arguments)
        }
        ["cargo", "xtask", arguments @ ..] => (xtask::command_line::command(), arguments),
        [program, arguments @ ..] if *program == "pilothouse" || program.ends_with("/pilothouse") => {
            (pilothouse::command_line::command(), arguments)
        }
        _ => return None,
    };
    let name = command.get_name().to_owned();
    let arguments = arguments.iter().map(|it| (*it).to_owned());
    Some((command, std::iter::once(name).chain(arguments).collect()))
}

/// Returns the errors in the commands of a page, and the count of commands.
fn wrong(text: &str) -> (Vec<String>, usize) {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for line in shown(text) {
        // What stands for a value: a digest that is left out, and the variable of a reference.
        let line = line
            .replace("sha256:...", &format!("sha256:{}", "0".repeat(64)))
            .replace("$REFERENCE", "registry.example/app-service:0.1.0");
        for words in shell::programs(&line) {
            let Some((command, arguments)) = read_by(&words) else {
                continue;
            };
            count += 1;
            let Err(error) = command.try_get_matches_from(arguments) else {
                continue;
            };
            if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                wrong.push(format!("$ {line}\n{error}"));
            }
        }
    }
    (wrong, count)
}

#[test]
fn documented_commands_parse_with_the_real_command_lines() {
    let (mut found, mut count) = (Vec::new(), 0);
    for page in documents() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let (wrong, read) = wrong(&text);
        found.extend(wrong.into_iter().map(|it| format!("{page}: {it}")));
        count += read;
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    println!("{count} commands are read");
    // A reader of pages that finds nothing would pass.
    assert!(count > 150, "{count} commands are read");
}

#[test]
fn options_that_do_not_exist_are_found() {
    let of = |command: &str| wrong(&format!("```console\n$ {command}\n```\n")).0.len();
    for good in [
        "pilothouse test --junit a.xml",
        "cargo xtask test --only unit",
        "kubectl get pods",
    ] {
        assert_eq!(of(good), 0, "{good}");
    }
    for bad in [
        "pilothouse test --xunit a.xml",
        "kubectl pilothouse wherefore",
        "A=$(pilothouse push --nope a b)",
        "cat a | pilothouse render --nope",
        "cargo xtask test --only everything",
        "cargo run -p pilothouse -- run --nope",
    ] {
        assert_eq!(of(bad), 1, "{bad}");
    }
}
