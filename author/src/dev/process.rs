//! Process of a build: reads its output line by line, and ends it with all its children.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pilothouse_core::text::printable::printable;
use rustix::process::{Pid, Signal, kill_process_group};

/// The longest line that is kept whole.
const MAX_LINE_BYTES: usize = 4096;

/// Interval at which a process that has closed its output is polled for its end.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// Output of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// A complete line.
    Line(String),
    /// Progress, replaced by the next output.
    Progress(String),
}

/// The running build, if there is one.
#[derive(Clone, Default)]
pub(super) struct BuildProcess(Arc<Mutex<State>>);

/// Guard that ends the running build when the command ends, however it ends.
pub(super) struct EndOfBuilds(pub(super) BuildProcess);

#[derive(Default)]
struct State {
    child: Option<Child>,
    /// Set if no build may begin any more.
    is_over: bool,
}

impl BuildProcess {
    /// Runs a command to its end, in a process group of its own, and passes its output on as it arrives.
    pub(super) fn run(&self, mut command: Command, mut heard: impl FnMut(Said)) -> io::Result<ExitStatus> {
        let (output, input) = io::pipe()?;
        command
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input)
            .process_group(0);
        {
            let mut state = self.state();
            if state.is_over {
                return Err(io::Error::other("the command is ending"));
            }
            state.child = Some(command.spawn()?);
        }
        // It holds the write end of the pipe.
        drop(command);
        hear(output, &mut heard)?;
        self.ended()
    }

    /// Ends the running build, with cargo and the compiler; no other one begins.
    fn stop(&self) {
        let mut state = self.state();
        state.is_over = true;
        if let Some(child) = &state.child {
            // It may have ended by itself.
            let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
        }
    }

    /// Waits for the end. The lock is not held meanwhile, so that the process can be stopped; and until it is waited
    /// for, its process ID is not reused.
    fn ended(&self) -> io::Result<ExitStatus> {
        loop {
            let mut state = self.state();
            let Some(child) = &mut state.child else {
                return Err(io::Error::other("another build has begun"));
            };
            if let Some(status) = child.try_wait()? {
                state.child = None;
                return Ok(status);
            }
            drop(state);
            thread::sleep(END_INTERVAL);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EndOfBuilds {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Reads to the end of the output. Text that ends in a carriage return is overwritten by the next.
fn hear(mut output: impl Read, heard: &mut impl FnMut(Said)) -> io::Result<()> {
    let (mut buffer, mut line, mut is_returned) = ([0; 4096], Vec::new(), false);
    loop {
        let count = match output.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        for byte in buffer.iter().copied().take(count) {
            if std::mem::take(&mut is_returned) && byte != b'\n' {
                line.clear();
            }
            match byte {
                b'\n' => heard(Said::Line(text(&std::mem::take(&mut line)))),
                b'\r' => {
                    heard(Said::Progress(text(&line)));
                    is_returned = true;
                }
                byte if line.len() < MAX_LINE_BYTES => line.push(byte),
                _ => {}
            }
        }
    }
    if !line.is_empty() && !is_returned {
        heard(Said::Line(text(&line)));
    }
    Ok(())
}

/// Returns a line without colours and control characters, so that nothing in it moves the cursor.
fn text(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line).replace('\t', "    ");
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        // A control sequence of ECMA-48: parameters, then one letter from @ to ~.
        if letter == '\u{1b}' && letters.next_if_eq(&'[').is_some() {
            let _ = letters.find(|letter| ('@'..='~').contains(letter));
        } else {
            plain.push(letter);
        }
    }
    printable(plain.trim_end())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::*;

    fn heard(bytes: &[u8]) -> Vec<Said> {
        let mut all = Vec::new();
        hear(bytes, &mut |said| all.push(said)).unwrap();
        all
    }

    #[test]
    fn lines_stay_and_progress_is_overwritten() {
        let line = |text: &str| Said::Line(text.to_owned());
        let progress = |text: &str| Said::Progress(text.to_owned());
        assert_eq!(
            heard(b"  Compiling a\n  Building [=> ] 1/2\r  Building [==>] 2/2\rdone\r\nlast"),
            [
                line("  Compiling a"),
                progress("  Building [=> ] 1/2"),
                progress("  Building [==>] 2/2"),
                progress("done"),
                line("done"),
                line("last"),
            ]
        );
        assert_eq!(heard(b"\x1b[31;1merror\x1b[0m:\ta\x07\n"), [line("error:    a\\u{7}")]);
        let long = heard(&[b'x'; 10_000]);
        assert_eq!(long, [line(&"x".repeat(MAX_LINE_BYTES))]);
    }

    #[test]
    fn a_build_streams_its_output_and_ends_with_its_children() {
        let process = BuildProcess::default();
        let owner = EndOfBuilds(process.clone());
        let (sender, said) = std::sync::mpsc::channel();
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // The outer process waits for the inner one, which would continue alone.
        command.args(["-c", "echo begun; sh -c 'echo $$ > inner; sleep 60'; echo never"]);
        command.current_dir(folder.path());
        let runs = process.clone();
        let thread = thread::spawn(move || runs.run(command, |words| sender.send(words).unwrap()));
        assert_eq!(
            said.recv().unwrap(),
            Said::Line("begun".to_owned()),
            "before it has ended"
        );
        let begun = Instant::now();
        let inner = loop {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "the inner process does not begin"
            );
            match fs::read_to_string(folder.path().join("inner")) {
                Ok(number) if number.ends_with('\n') => break number.trim().to_owned(),
                _ => thread::sleep(END_INTERVAL),
            }
        };
        drop(owner);
        assert!(!thread.join().unwrap().unwrap().success());
        // An inner process that continues would hold the pipe until it ends.
        assert!(begun.elapsed() < Duration::from_secs(20), "the inner process goes on");
        assert!(said.try_recv().is_err(), "it says nothing more");
        let is_running = || {
            let state = fs::read_to_string(format!("/proc/{inner}/stat"));
            // A zombie waits for its new parent.
            state.is_ok_and(|state| !state.contains(") Z"))
        };
        while is_running() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the inner process goes on");
            thread::sleep(END_INTERVAL);
        }
        let late = process.run(Command::new("true"), |_| {});
        assert!(late.is_err(), "none begins after the end");
    }
}
