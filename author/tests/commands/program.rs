//! Owns calling the program.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// How a call ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// What was printed.
    pub out: String,
    /// What was said on standard error.
    pub err: String,
}

impl Ended {
    /// What a successful call printed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}\n{}", self.out, self.err);
        self.out
    }

    /// What a failed call said.
    #[track_caller]
    pub fn failed(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        self.err
    }
}

/// Calls the program in a folder.
pub fn call(folder: &Path, arguments: &[impl AsRef<OsStr>]) -> Ended {
    ended(program(folder).args(arguments))
}

/// The program, to be called in a folder.
pub fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.current_dir(folder);
    command
}

/// Runs a program to its end.
pub fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended {
        code: output.status.code().unwrap(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// The root of this repository, which is a checkout with the SDK.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
