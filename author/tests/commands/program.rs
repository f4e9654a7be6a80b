//! Runs the program. The tests of `pilothouse dev` include this file.
#![allow(dead_code, reason = "the tests of the commands and those of `dev` each use a part")]

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time limit of one step on a busy machine; a build is one step.
pub const WITHIN: Duration = Duration::from_mins(5);

/// Interval of polling whether a program has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Outcome of a call.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ended {
    /// Returns the output of a successful call.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}\n{}", self.out, self.err);
        self.out
    }

    /// Returns the standard error of a failed call.
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

/// Program that runs until it is dropped, and its output.
pub struct Lines {
    process: Child,
    printed: Receiver<String>,
    seen: Vec<String>,
}

impl Lines {
    /// Starts it.
    pub fn of(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, printed) = mpsc::channel();
        thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            process,
            printed,
            seen: Vec::new(),
        }
    }

    /// Waits for a line that has all these words.
    #[track_caller]
    pub fn wait_for(&mut self, words: &[&str]) -> String {
        let begun = Instant::now();
        while let Ok(line) = self.printed.recv_timeout(WITHIN.saturating_sub(begun.elapsed())) {
            self.seen.push(line.clone());
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
        panic!("no line has {words:?}:\n{}", self.seen.join("\n"));
    }

    /// Stops it as Ctrl-C does, so that it ends its children, and returns the exit code.
    #[track_caller]
    pub fn interrupt(mut self) -> Option<i32> {
        match self.end() {
            Some(status) => status.code(),
            None => panic!("it does not end:\n{}", self.seen.join("\n")),
        }
    }

    /// Returns the exit status if it ended in time.
    fn end(&mut self) -> Option<ExitStatus> {
        let begun = Instant::now();
        if let Some(status) = self.process.try_wait().ok()? {
            return Some(status);
        }
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)?;
        kill_process(id, Signal::INT).ok()?;
        while begun.elapsed() < WITHIN {
            if let Some(status) = self.process.try_wait().ok()? {
                return Some(status);
            }
            thread::sleep(LOOK_INTERVAL);
        }
        None
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if self.end().is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// The root of this repository, which is a checkout with the SDK.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
