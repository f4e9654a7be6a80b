//! Owns compiling a component: in a child process with limits, so that a component that is hard on the compiler
//! costs neither the host's memory nor its life. The component and its code are files in memory: whether a disk can hold
//! them is no matter of the compiler.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::memory;
use crate::stop::shorten;

/// Standard input and output of a child process as paths.
const CHILD_INPUT: &str = "/proc/self/fd/0";
const CHILD_OUTPUT: &str = "/proc/self/fd/1";

/// Wall-clock time of one compilation. A Python component takes about 5 s on one core.
const MAX_TIME: Duration = Duration::from_mins(2);

/// How often a compilation is asked whether it is done.
const POLL: Duration = Duration::from_millis(5);

/// Threads of one compilation: more would not make a plugin of usual size compile faster.
const MAX_THREADS: &str = "4";

/// What is kept of a compiler's words.
const MAX_WORDS: usize = 2048;

/// Memory of one compilation: data, stacks and heap. A Python component takes 360 MiB.
#[cfg(feature = "compiler")]
const MAX_MEMORY_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// Processor time of one compilation.
#[cfg(feature = "compiler")]
const MAX_CPU_SECONDS: u64 = 100;

/// The largest file that a compilation may write.
#[cfg(feature = "compiler")]
const MAX_CODE_BYTES: u64 = 1024 * 1024 * 1024;

/// Who compiles.
#[derive(Clone, Debug)]
pub enum Compiler {
    /// `program compile-component IN OUT`, a command that calls `compile_file` and writes its error
    /// to standard error. IN and OUT are its standard input and output, by their paths.
    Child {
        /// The program, usually the host's own.
        program: PathBuf,
    },
    /// This process: for tests.
    #[cfg(feature = "compiler")]
    InProcess,
}

/// Why a component was not compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The child process could not be started.
    #[error("cannot start the compiler {}: {source}", .program.display())]
    Start {
        /// Whom to start.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The child process did not succeed.
    #[error("the compiler ended with {status}: {words}")]
    Failed {
        /// How it ended; a signal often means that it ran into its limit of memory or of processor time.
        status: ExitStatus,
        /// What it wrote to standard error.
        words: String,
    },
    /// The child process took too long.
    #[error("the compiler was stopped after {} s: {words}; the component is too large to compile within the limit", .after.as_secs())]
    TimedOut {
        /// How long it was given.
        after: Duration,
        /// What it wrote to standard error.
        words: String,
    },
    /// No file can be made in memory.
    #[error("cannot make a file in memory for the compiler: {source}")]
    Memory {
        /// Why not.
        source: io::Error,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// Read or write.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The process could not be limited.
    #[error("cannot limit the compiler's process: {source}")]
    Limit {
        /// Why not.
        source: io::Error,
    },
    /// The component is not valid, or more than the compiler does.
    #[error("the component does not compile: {message}")]
    Refused {
        /// The compiler's words.
        message: String,
    },
}

impl Compiler {
    /// The compiled form of a component, in a file in memory that nobody changes any more.
    pub(crate) fn compile(&self, component: &[u8]) -> Result<File, CompileError> {
        let memory = |source| CompileError::Memory { source };
        let input = memory::holding(component).map_err(memory)?;
        let output = memory::create().map_err(memory)?;
        match self {
            Self::Child { program } => {
                let written = output.try_clone().map_err(memory)?;
                let mut command = Command::new(program);
                command.args(["compile-component", CHILD_INPUT, CHILD_OUTPUT]);
                run(command.stdin(input).stdout(written), program, MAX_TIME)?;
            }
            #[cfg(feature = "compiler")]
            Self::InProcess => compile(&memory::path(&input), &memory::path(&output))?,
        }
        memory::seal(&output).map_err(memory)?;
        Ok(output)
    }
}

fn run(command: &mut Command, program: &Path, time: Duration) -> Result<(), CompileError> {
    // The child needs nothing of the host's environment, which may hold credentials.
    command.env_clear().env("RAYON_NUM_THREADS", MAX_THREADS);
    command.stderr(Stdio::piped());
    let start = |source| CompileError::Start {
        program: program.to_owned(),
        source,
    };
    let mut child = command.spawn().map_err(start)?;
    let words = child
        .stderr
        .take()
        .map(|stderr| thread::spawn(move || read_words(stderr)));
    let status = wait(&mut child, time).map_err(start)?;
    // A grandchild could hold the pipe open; the compiler starts none, and it has ended.
    let words = words.and_then(|words| words.join().ok()).unwrap_or_default();
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(CompileError::Failed { status, words }),
        None => Err(CompileError::TimedOut { after: time, words }),
    }
}

/// None if the time is up; the child has ended in any case.
fn wait(child: &mut Child, time: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= time {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// The first words on standard error; the rest is read too, so that the child does not wait for a reader.
fn read_words(mut stderr: impl Read) -> String {
    let mut words = Vec::new();
    let _ = stderr.by_ref().take(MAX_WORDS as u64).read_to_end(&mut words);
    let _ = io::copy(&mut stderr, &mut io::sink());
    let words = String::from_utf8_lossy(&words);
    let words = words.trim();
    if words.is_empty() {
        "it wrote nothing to standard error".to_owned()
    } else {
        shorten(words, MAX_WORDS)
    }
}

/// Limits this process, then compiles the component in `input` to `output`: the whole of the hidden command
/// `compile-component`, which must not do anything else afterwards.
#[cfg(feature = "compiler")]
pub fn compile_file(input: &Path, output: &Path) -> Result<(), CompileError> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limits = [
        // Not the address space: a thread's arena reserves far more of it than it uses.
        (Resource::Data, MAX_MEMORY_BYTES),
        (Resource::Cpu, MAX_CPU_SECONDS),
        (Resource::Fsize, MAX_CODE_BYTES),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        setrlimit(
            resource,
            Rlimit {
                current: Some(most),
                maximum: Some(most),
            },
        )
        .map_err(|error| CompileError::Limit { source: error.into() })?;
    }
    compile(input, output)
}

#[cfg(feature = "compiler")]
fn compile(input: &Path, output: &Path) -> Result<(), CompileError> {
    let refused = |error: wasmtime::Error| CompileError::Refused {
        message: shorten(&format!("{error:#}"), MAX_WORDS),
    };
    let bytes = std::fs::read(input).map_err(|source| CompileError::File {
        action: "read",
        path: input.to_owned(),
        source,
    })?;
    let engine = crate::engine::compiling().map_err(refused)?;
    let code = engine.precompile_component(&bytes).map_err(refused)?;
    std::fs::write(output, code).map_err(|source| CompileError::File {
        action: "write",
        path: output.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_takes_too_long_is_stopped() {
        let program = Path::new("sleep");
        let start = Instant::now();
        let error = run(Command::new(program).arg("1000"), program, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, CompileError::TimedOut { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(100), "it was not waited for");
    }

    #[test]
    fn a_compiler_that_says_too_much_is_cut_short() {
        let program = Path::new("sh");
        let script = "i=0; while [ $i -lt 20000 ]; do echo some words >&2; i=$((i+1)); done; exit 3";
        let error = run(Command::new(program).args(["-c", script]), program, MAX_TIME).unwrap_err();
        let CompileError::Failed { status, words } = error else {
            panic!("{error}")
        };
        assert_eq!(status.code(), Some(3));
        assert!(words.starts_with("some words") && words.len() <= MAX_WORDS, "{words}");
    }

    #[test]
    fn a_compiler_does_not_see_the_hosts_environment() {
        let program = Path::new("sh");
        let error = run(Command::new(program).args(["-c", "env >&2; exit 1"]), program, MAX_TIME).unwrap_err();
        assert!(!error.to_string().contains("CARGO"), "{error}");
        assert!(error.to_string().contains("RAYON_NUM_THREADS"), "{error}");
    }
}
