//! Tests of `render`, `check` and `bench` as programs.

#[path = "../../../tests/end-to-end/tests/lifecycle/dice.rs"]
mod dice;
mod isolated;
mod simulated;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

const APP: &str = "\
apiVersion: kosmos.io/v1
kind: AppService
metadata: {name: web}
spec: {size: 2, image: 'web:1'}
";

/// The component of a plugin that `cargo xtask plugins` builds.
fn component(name: &str) -> String {
    let path = root().join("target/plugins").join(format!("{name}.wasm"));
    assert!(
        path.is_file(),
        "{} is missing; `cargo xtask plugins` builds it",
        path.display()
    );
    path.display().to_string()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files of one test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder can be made"))
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("the folder is ours");
        path.display().to_string()
    }
}

/// Outcome of a command.
struct Ended {
    code: i32,
    printed: String,
    said: String,
}

/// Runs the program to its end.
fn pilothouse(arguments: &[&str], input: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("PILOTHOUSE_LOG");
    // Who replays has no such option.
    if arguments[0] != "replay" {
        command.arg("--cache-dir").arg(root().join("target/test-code"));
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program that does not read its input may have ended already.
    let _ = child.stdin.take().expect("it has one").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("it speaks UTF-8");
    Ended {
        code: output.status.code().expect("it ends by itself"),
        printed: text(output.stdout),
        said: text(output.stderr),
    }
}

/// Returns the output of a successful command.
fn printed(arguments: &[&str]) -> String {
    let Ended { code, printed, said } = pilothouse(arguments, "");
    assert_eq!(code, 0, "{said}{printed}");
    printed
}

/// Returns the error of a command that fails before it has printed anything.
fn refused(arguments: &[&str]) -> String {
    let Ended { code, printed, said } = pilothouse(arguments, "");
    assert_eq!((code, printed.as_str()), (1, ""), "{said}");
    said
}
