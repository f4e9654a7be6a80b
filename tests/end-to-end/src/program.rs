//! Runs the host's own program in tests: it is never left behind, and its output is at hand.
#![allow(clippy::missing_panics_doc, missing_docs, reason = "all of it is for tests")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::components::{folder, host_program, program, root};

/// Time limit of a wait on a busy machine.
const WITHIN: Duration = Duration::from_mins(3);

/// Interval between two polls.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The component of a plugin that `cargo xtask plugins` builds.
pub fn component(name: &str) -> String {
    let path = folder().join(format!("{name}.wasm"));
    assert!(
        path.is_file(),
        "{} is missing; `cargo xtask plugins` builds it",
        path.display()
    );
    path.display().to_string()
}

fn pilothouse(arguments: &[&str]) -> Command {
    alone(Command::new(program()), arguments)
}

/// A command with nothing of this process's environment that would change what it does.
fn alone(mut command: Command, arguments: &[&str]) -> Command {
    command
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("PILOTHOUSE_LOG")
        // In a pod, hosts that run side by side would all serve metrics at the same port.
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdin(Stdio::null());
    command
}

/// Folder in which tests keep the code of components.
fn code_directory() -> PathBuf {
    root().join("target").join("test-code")
}

/// The same for a command that loads components: their code is kept below `target`.
fn with_cache(arguments: &[&str]) -> Command {
    let mut command = pilothouse(arguments);
    command.arg("--cache-dir").arg(code_directory());
    command
}

/// `pilothouse-host` with the same cache.
fn host_with_cache(arguments: &[&str]) -> Command {
    of_host(&host_program(), arguments)
}

/// The same for a `pilothouse-host` somewhere else.
fn of_host(program: &Path, arguments: &[&str]) -> Command {
    let mut command = alone(Command::new(program), arguments);
    command.arg("--cache-dir").arg(code_directory());
    command
}

/// Runs a command to its end: returns its exit code, its output, and its standard error.
pub fn ended(arguments: &[&str]) -> (i32, String, String) {
    output(&mut pilothouse(arguments))
}

/// The same, where `KUBECONFIG` has a value.
pub fn ended_with_kubeconfig(arguments: &[&str], kubeconfig: &str) -> (i32, String, String) {
    output(pilothouse(arguments).env("KUBECONFIG", kubeconfig))
}

/// Runs a command that loads components to its end, which must be a success, and returns its output.
pub fn printed(arguments: &[&str]) -> String {
    let (code, printed, said) = output(&mut with_cache(arguments));
    assert_eq!(code, 0, "{said}");
    printed
}

/// Runs a command that loads components to its end, which must be a failure: returns its exit code and standard error.
pub fn refused(arguments: &[&str]) -> (i32, String) {
    let (code, printed, said) = output(&mut with_cache(arguments));
    assert!(printed.is_empty(), "errors go to standard error: {printed}");
    (code, said)
}

fn output(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let code = status.code().expect("it ends by itself");
    let [printed, said] = [stdout, stderr].map(|text| String::from_utf8(text).expect("it speaks UTF-8"));
    (code, printed, said)
}

/// Files for one test.
pub struct Folder(TempDir);

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder can be made"))
    }

    /// Path of a file.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Writes a file.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).expect("the folder is ours");
        self.path(name)
    }

    /// A kubeconfig for a server, with the context `there` and no current one but `current`.
    pub fn kubeconfig(&self, server: &str, current: &str) -> String {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {current}\nclusters:\n- name: it\n  cluster: {{server: \"{server}\"}}\n\
             users:\n- name: me\n  user: {{}}\ncontexts:\n- name: there\n  context: {{cluster: it, user: me}}\n"
        );
        self.file("kubeconfig.yaml", text)
    }
}

/// A running host.
pub struct Process {
    child: Child,
    log: PathBuf,
    _folder: Folder,
}

impl Process {
    pub fn start(arguments: &[&str]) -> Self {
        Self::spawn(with_cache(arguments))
    }

    /// Starts a host on a machine, or in a pod, of this name.
    pub fn start_on(name: &str, arguments: &[&str]) -> Self {
        Self::start_in(name, &[], arguments)
    }

    /// The same with more variables in its environment.
    pub fn start_in(name: &str, variables: &[(&str, String)], arguments: &[&str]) -> Self {
        let mut command = with_cache(arguments);
        command.env("HOSTNAME", name);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        Self::spawn(command)
    }

    /// Starts `pilothouse-host`.
    pub fn start_host(arguments: &[&str]) -> Self {
        Self::spawn(host_with_cache(arguments))
    }

    /// Starts a `pilothouse-host` that another version has built.
    pub fn start_other_host(program: &Path, arguments: &[&str]) -> Self {
        Self::spawn(of_host(program, arguments))
    }

    /// Starts `pilothouse-host` in a pod of this name.
    pub fn start_host_on(name: &str, arguments: &[&str]) -> Self {
        let mut command = host_with_cache(arguments);
        command.env("HOSTNAME", name);
        Self::spawn(command)
    }

    /// Starts any command that is the host.
    pub fn spawn(mut command: Command) -> Self {
        let folder = Folder::new();
        let log = PathBuf::from(folder.path("log"));
        let output = File::create(&log).expect("the folder is ours");
        let child = command.stdout(Stdio::null()).stderr(output).spawn();
        Self {
            child: child.expect("the program starts"),
            log,
            _folder: folder,
        }
    }

    /// Returns its log, with invalid UTF-8 replaced, or the reason why it cannot be read.
    pub fn log(&self) -> String {
        match fs::read(&self.log) {
            Ok(log) => String::from_utf8_lossy(&log).into_owned(),
            Err(error) => format!("cannot read the log {}: {error}", self.log.display()),
        }
    }

    /// Returns the kernel's view of the process and of each of its threads: its state, and its system call.
    fn state(&self) -> String {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let read = |path: PathBuf| match fs::read(&path) {
            Ok(text) => format!("{}: {}", path.display(), String::from_utf8_lossy(&text).trim_end()),
            Err(error) => format!("cannot read {}: {error}", path.display()),
        };
        let mut told = vec![read(process.join("status"))];
        match fs::read_dir(process.join("task")) {
            Ok(tasks) => {
                for task in tasks.flatten() {
                    let of_task = ["comm", "stat", "wchan", "syscall"].map(|file| read(task.path().join(file)));
                    told.extend(of_task);
                }
            }
            Err(error) => told.push(format!("cannot list its threads: {error}")),
        }
        told.join("\n")
    }

    /// The lines of the log that have all these words.
    pub fn lines(&self, words: &[&str]) -> Vec<String> {
        let log = self.log();
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        log.lines().filter(has_all).map(str::to_owned).collect()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process has a number"), signal).expect("it has not been waited for");
    }

    /// Waits until something holds, and fails with the log when it does not in time.
    pub async fn until<T>(&mut self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + WITHIN;
        loop {
            let status = self.child.try_wait().expect("it is our child");
            if let Some(seen) = look(self) {
                return seen;
            }
            assert!(
                status.is_none() && Instant::now() < deadline,
                "it does not come that {what}; {}:\n{}",
                status.map_or_else(
                    || format!("it runs:\n{}\nIts log", self.state()),
                    |status| format!("it has ended ({status})")
                ),
                self.log()
            );
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Waits until the log has a line with these words.
    pub async fn says(&mut self, words: &[&str]) -> String {
        self.until(&format!("{words:?} is said"), |process| process.lines(words).pop())
            .await
    }

    /// Waits for the end.
    pub async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + WITHIN;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log());
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_go_on_explains_itself() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "printf 'a\\377b' >&2; exec sleep 60"])
            .stdin(Stdio::null());
        let process = Process::spawn(command);
        let begun = Instant::now();
        while !process.state().contains("(sleep)") || process.log().is_empty() {
            assert!(begun.elapsed() < WITHIN, "{}", process.state());
            std::thread::sleep(LOOK_INTERVAL);
        }
        assert_eq!(process.log(), "a\u{fffd}b");
        let state = process.state();
        for words in ["State:", "/comm: sleep", "/stat: ", "/wchan", "/syscall"] {
            assert!(state.contains(words), "{words}: {state}");
        }
    }
}
