//! Tests of the commands' prompts: nothing is done before the user has confirmed.

use std::process::Command;

use pilothouse_end_to_end::components::{program, root};
use pilothouse_end_to_end::program::component;
use serde_json::Value;

use super::Installed;
use crate::terminal::PseudoTerminal;

/// Runs `pilothouse COMMAND` in a terminal, answers its prompt, and waits until these words are on the screen and it
/// has ended: returns its exit code, and its output.
fn answered(arguments: &[&str], kubeconfig: &str, [question, answer, words]: [&str; 3]) -> (Option<i32>, String) {
    let mut command = Command::new(program());
    command
        .args(arguments)
        .args(["--kubeconfig", kubeconfig])
        .env_remove("KUBECONFIG")
        .env_remove("PILOTHOUSE_LOG");
    if arguments[0] != "uninstall" {
        command.arg("--cache-dir").arg(root().join("target/test-code"));
    }
    let mut terminal = PseudoTerminal::open();
    let mut process = terminal.run(&mut command);
    terminal.wait_for("the question", |shown| shown.contains(question));
    terminal.press(answer);
    let status = terminal.end_of(&mut process);
    // What it has written may not be read yet.
    terminal.wait_for(words, |shown| shown.contains(words));
    (status.code(), terminal.shown())
}

#[tokio::test(flavor = "multi_thread")]
async fn answering_no_changes_nothing_and_yes_applies() {
    let installed = Installed::bare().await;
    let plugin = format!("shop={}", component("app-service"));
    let kubeconfig = &installed.kubeconfig;
    let run = async |verb: &'static str, answer: &'static str, words: &'static str| {
        let (plugin, kubeconfig) = (plugin.clone(), kubeconfig.clone());
        let (arguments, question) = match verb {
            "install" => (
                vec!["install".to_owned(), plugin, "--wait=false".to_owned()],
                "Install it? [y/N]",
            ),
            _ => (vec!["uninstall".to_owned(), "shop".to_owned()], "Uninstall it? [y/N]"),
        };
        // The cluster is served by this runtime.
        let run = move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            answered(&arguments, &kubeconfig, [question, answer, words])
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let nothing = Vec::<Value>::new();
    // Enter alone is no consent.
    for answer in ["n\r", "\r"] {
        let (code, shown) = run("install", answer, "nothing was changed").await;
        assert_eq!(code, Some(1), "{shown}");
        let (explained, _) = shown.split_once("Install it?").unwrap();
        assert!(
            explained.contains("read, create, change, delete  deployments.apps"),
            "{shown}"
        );
        assert_eq!(installed.granted().await, nothing);
        assert!(!installed.has_definition().await, "{shown}");
    }
    let (code, shown) = run("install", "y\r", "Plugin shop created").await;
    assert_eq!(code, Some(0), "{shown}");
    let granted = installed.granted().await;
    assert_eq!(granted.len(), 5, "{granted:?}");
    assert!(installed.has_definition().await);

    let (code, shown) = run("uninstall", "n\r", "nothing was changed").await;
    assert_eq!(code, Some(1), "{shown}");
    assert_eq!(installed.granted().await, granted);
    let (code, shown) = run("uninstall", "y\r", "Plugin shop deleted").await;
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(installed.granted().await, nothing);
}
