//! Runs a program of others with a home of its own and without network access beyond loopback.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

/// Address without a listener: a request to another host than this one fails at once, instead of reaching the network.
const NO_PROXY: &str = "http://127.0.0.1:9";

/// Output of a successful program.
#[derive(Debug, Clone)]
pub struct Printed {
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

/// A program that did not end well.
#[derive(Debug, Clone)]
pub struct Failed {
    /// The program with its arguments.
    pub command: String,
    /// Exit status.
    pub status: ExitStatus,
    /// Output.
    pub printed: Printed,
}

/// A program with a home of its own, in which it keeps its configuration and credentials.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    program: PathBuf,
    home: PathBuf,
}

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            command,
            status,
            printed,
        } = self;
        write!(
            formatter,
            "`{command}` ended with {status}:\n{}{}",
            printed.errors, printed.output
        )
    }
}

impl std::error::Error for Failed {}

impl Tool {
    /// A program that uses this folder as its home.
    pub(crate) fn new(program: PathBuf, home: &Path) -> Self {
        Self {
            program,
            home: home.to_owned(),
        }
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Runs the program in a folder.
    pub(crate) fn run_in(&self, folder: &Path, arguments: &[&str]) -> Result<Printed, Failed> {
        self.call(folder, arguments, &[])
    }

    /// Runs the program in its home, with variables of the environment.
    pub(crate) fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Printed, Failed> {
        self.call(&self.home, arguments, variables)
    }

    fn call(&self, folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Printed, Failed> {
        let mut command = Command::new(&self.program);
        // Nothing of the machine's own settings: a proxy, a mirror or a login would change what is tested.
        command.env_clear().envs(variables.iter().copied());
        command
            .env("HOME", &self.home)
            .env("DOCKER_CONFIG", self.home.join(".docker"));
        for variable in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            command.env(variable, NO_PROXY);
        }
        command
            .env("NO_PROXY", "127.0.0.1,localhost")
            .env("no_proxy", "127.0.0.1,localhost");
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        let name = self.program.display();
        let output = command.output().unwrap_or_else(|error| panic!("run {name}: {error}"));
        let printed = Printed {
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        if output.status.success() {
            return Ok(printed);
        }
        Err(Failed {
            command: format!("{name} {}", arguments.join(" ")),
            status: output.status,
            printed,
        })
    }
}
