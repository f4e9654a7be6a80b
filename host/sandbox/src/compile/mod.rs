//! Compiles a component in a child process with limits, so that one that is hard on the compiler costs neither the
//! host's memory nor its life. The component and its code are files in memory, so the compiler needs no disk.
//!
//! A container that reaches its memory limit loses its host even if the child was meant to be killed first (kubelets
//! set `memory.oom.group`). So the child's own limits are lower than what the container has left.
//!
//! The process that runs guests has an engine that cannot compile. The code is kept under its digest in a directory that only this
//! user may write to, and mapped from there while the plugin has something to do.

pub(crate) mod cache;
pub(crate) mod cgroup;
pub(crate) mod directory;
pub(crate) mod memory;
pub(crate) mod turns;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
#[cfg(feature = "compiler")]
use rustix::process::{getrlimit, setrlimit};

use crate::compile::cgroup::memory_left;
use crate::compile::turns::CompileTurn;
use crate::outcome::shorten;

/// Standard input and output of a child process as paths.
const CHILD_INPUT: &str = "/proc/self/fd/0";
const CHILD_OUTPUT: &str = "/proc/self/fd/1";

/// Wall-clock time of one compilation: most, least, and per second of processor time (other processes may be busy).
const MAX_TIME: Duration = Duration::from_mins(2);
const LEAST_TIME: Duration = Duration::from_secs(10);
const BUSY: u32 = 4;

/// Interval at which a compilation is polled for its end.
const POLL: Duration = Duration::from_millis(5);

/// Threads of one compilation: more would not make a plugin of usual size compile faster.
const MAX_THREADS: &str = "4";

/// Bytes of a compiler's standard error that are kept.
const MAX_WORDS: usize = 2048;

const MEBIBYTE: u64 = 1024 * 1024;

/// Memory of one compilation: data, stacks and heap. A Python component takes 360 MiB.
const MAX_MEMORY_BYTES: u64 = 2 * 1024 * MEBIBYTE;

/// Processor time of one compilation.
const MAX_CPU_SECONDS: u64 = 100;

/// The largest file that a compilation may write. It is in memory, too.
const MAX_CODE_BYTES: u64 = 1024 * MEBIBYTE;

/// Part of a container's remaining memory for the host, and for uncounted pages of the program and of the kernel.
const KEPT_BYTES: u64 = 48 * MEBIBYTE;

/// Divisor of the rest: one part in this many is for the code, the others are for compiling it.
const CODE_SHARE: u64 = 5;

/// Least memory with which the compiler is started.
const LEAST_MEMORY_BYTES: u64 = 32 * MEBIBYTE;

/// The process that compiles.
#[derive(Clone, Debug)]
pub enum Compiler {
    /// `program compile-component IN OUT`, a command that calls `compile_file` and writes its error
    /// to standard error. IN and OUT are its standard input and output, by their paths.
    Child {
        /// The program, usually the host's own.
        program: PathBuf,
    },
    /// The current process. Only for tests.
    #[cfg(feature = "compiler")]
    InProcess,
}

/// Reasons why a component was not compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The child process could not be started.
    #[error("cannot start the compiler {}: {source}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The child process did not succeed.
    #[error("the compiler ended with {status}: {words}")]
    Failed {
        /// Its exit status; a signal often means that it reached its limit of memory or of processor time.
        status: ExitStatus,
        /// Its standard error.
        words: String,
    },
    /// The container has too little memory left.
    #[error(
        "the container has {} MiB of memory left, and the compiler needs at least {}; raise the container's limit of memory",
        left / MEBIBYTE, (LEAST_MEMORY_BYTES * CODE_SHARE / (CODE_SHARE - 1) + KEPT_BYTES) / MEBIBYTE
    )]
    NoMemory {
        /// The bytes that are left.
        left: u64,
    },
    /// The component takes more processor time than the longest slice.
    #[error(
        "the component takes more than {seconds} s of processor time to compile; make it smaller, or its functions"
    )]
    OutOfTime {
        /// The longest slice.
        seconds: u64,
    },
    /// The child process took too long.
    #[error("the compiler was stopped after {} s: {words}; the component is too large to compile within the limit", .after.as_secs())]
    TimedOut {
        /// The time limit.
        after: Duration,
        /// Its standard error.
        words: String,
    },
    /// No file could be made in memory.
    #[error("cannot make a file in memory for the compiler: {source}")]
    Memory {
        /// The cause.
        source: io::Error,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// Read or write.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The process could not be limited.
    #[error("cannot limit the compiler's process: {source}")]
    Limit {
        /// The cause.
        source: io::Error,
    },
    /// The component is invalid, or uses a feature that the compiler does not support.
    #[error("the component does not compile: {message}")]
    Refused {
        /// The compiler's message.
        message: String,
    },
}

/// End of a compilation without an error.
pub(crate) enum CompileEnd {
    /// The compiled code, in a sealed file in memory.
    Code(File),
    /// Its slice of processor time is used up.
    SliceOver,
    /// The compilation gave way to a component with a shorter slice.
    GaveWay,
}

impl Compiler {
    /// Compiles a component within its turn.
    pub(crate) fn compile(&self, component: &[u8], turn: &CompileTurn<'_>) -> Result<CompileEnd, CompileError> {
        let memory = |source| CompileError::Memory { source };
        let input = memory::holding(component).map_err(memory)?;
        let output = memory::create().map_err(memory)?;
        match self {
            Self::Child { program } => {
                let written = output.try_clone().map_err(memory)?;
                let limits = ChildLimits::within(memory_left(), turn.seconds())?;
                let mut command = Command::new(program);
                command.args(["compile-component", CHILD_INPUT, CHILD_OUTPUT]);
                command.stdin(input).stdout(written);
                match run(&mut command, program, &limits, || turn.gives_way())? {
                    ChildEnd::Done => {}
                    ChildEnd::SliceOver => return Ok(CompileEnd::SliceOver),
                    ChildEnd::GaveWay => return Ok(CompileEnd::GaveWay),
                }
            }
            #[cfg(feature = "compiler")]
            Self::InProcess => compile(&memory::path(&input), &memory::path(&output))?,
        }
        memory::seal(&output).map_err(memory)?;
        Ok(CompileEnd::Code(output))
    }
}

/// The limits of one compilation.
#[derive(Debug, PartialEq, Eq)]
struct ChildLimits {
    /// Data, stacks and heap, in bytes.
    data: u64,
    /// Largest file that it may write, in bytes.
    file: u64,
    /// Processor time, in seconds.
    seconds: u64,
    /// Wall-clock time.
    time: Duration,
    /// Set if the container has less memory left than a compiler may usually take.
    is_tight: bool,
}

impl ChildLimits {
    /// Returns limits that a child reaches before its container, which has `left` bytes of memory.
    fn within(left: Option<u64>, seconds: u64) -> Result<Self, CompileError> {
        let (data, file) = match left {
            None => (MAX_MEMORY_BYTES, MAX_CODE_BYTES),
            Some(left) => {
                let rest = left.saturating_sub(KEPT_BYTES);
                let file = rest / CODE_SHARE;
                (rest - file, file)
            }
        };
        if data < LEAST_MEMORY_BYTES {
            let left = left.unwrap_or_default();
            return Err(CompileError::NoMemory { left });
        }
        Ok(Self {
            data: data.min(MAX_MEMORY_BYTES),
            file: file.min(MAX_CODE_BYTES),
            seconds,
            time: MAX_TIME.min(LEAST_TIME + Duration::from_secs(seconds) * BUSY),
            is_tight: data < MAX_MEMORY_BYTES,
        })
    }

    /// Applies the limits to a process that was just started; they are only ever lowered.
    fn set(&self, child: &Child) -> io::Result<()> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        // At the soft limit the kernel asks a process to end; at the hard limit it kills it.
        let of = |current, maximum| Rlimit {
            current: Some(current),
            maximum: Some(maximum),
        };
        prlimit(Some(pid), Resource::Data, of(self.data, self.data))?;
        prlimit(Some(pid), Resource::Fsize, of(self.file, self.file))?;
        prlimit(Some(pid), Resource::Cpu, of(self.seconds, self.seconds + 1))?;
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ChildEnd {
    Done,
    SliceOver,
    GaveWay,
}

fn run(
    command: &mut Command,
    program: &Path,
    limits: &ChildLimits,
    gives_way: impl Fn() -> bool,
) -> Result<ChildEnd, CompileError> {
    // The child needs nothing of the host's environment, which may hold credentials.
    command.env_clear().env("RAYON_NUM_THREADS", MAX_THREADS);
    command.stderr(Stdio::piped());
    let start = |source| CompileError::Start {
        program: program.to_owned(),
        source,
    };
    let mut child = command.spawn().map_err(start)?;
    if let Err(source) = limits.set(&child)
        && child.try_wait().map_err(start)?.is_none()
    {
        end(&mut child).map_err(start)?;
        return Err(CompileError::Limit { source });
    }
    let words = child
        .stderr
        .take()
        .map(|stderr| thread::spawn(move || read_words(stderr)));
    let status = wait(&mut child, limits.time, gives_way).map_err(start)?;
    // A grandchild could hold the pipe open; but the compiler starts none, and it has ended.
    let mut words = words.and_then(|words| words.join().ok()).unwrap_or_default();
    match status {
        WaitEnd::Ended(status) if status.success() => Ok(ChildEnd::Done),
        WaitEnd::Ended(status) if status.signal() == Some(Signal::XCPU.as_raw()) => Ok(ChildEnd::SliceOver),
        WaitEnd::Ended(status) => {
            if limits.is_tight {
                let (data, code) = (limits.data / MEBIBYTE, limits.file / MEBIBYTE);
                words = format!(
                    "{words} (of what the container has left, the compiler may take {data} MiB, and its code {code} MiB; if that is \
                     too little, raise the container's limit of memory)"
                );
            }
            Err(CompileError::Failed { status, words })
        }
        WaitEnd::GaveWay => Ok(ChildEnd::GaveWay),
        WaitEnd::TimeIsUp if limits.seconds < MAX_CPU_SECONDS => Ok(ChildEnd::SliceOver),
        WaitEnd::TimeIsUp => {
            let after = limits.time;
            Err(CompileError::TimedOut { after, words })
        }
    }
}

enum WaitEnd {
    Ended(ExitStatus),
    TimeIsUp,
    GaveWay,
}

/// Waits for a child; on return it has ended in any case.
fn wait(child: &mut Child, time: Duration, gives_way: impl Fn() -> bool) -> io::Result<WaitEnd> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(WaitEnd::Ended(status));
        }
        let stopped = if start.elapsed() >= time {
            WaitEnd::TimeIsUp
        } else if gives_way() {
            WaitEnd::GaveWay
        } else {
            thread::sleep(POLL);
            continue;
        };
        end(child)?;
        return Ok(stopped);
    }
}

fn end(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

/// Returns the beginning of standard error; the rest is read too, so that the child does not block on the pipe.
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

/// Limits this process, then compiles the component in `input` to `output`. This is the whole hidden command
/// `compile-component`, which must not do anything else afterwards.
#[cfg(feature = "compiler")]
pub fn compile_file(input: &Path, output: &Path) -> Result<(), CompileError> {
    // If a container runs out of memory all the same, this process is killed first, unless the whole container is.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limits = [
        // Not the address space: a thread's arena reserves far more of it than it uses.
        (Resource::Data, MAX_MEMORY_BYTES),
        (Resource::Cpu, MAX_CPU_SECONDS + 1),
        (Resource::Fsize, MAX_CODE_BYTES),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        // The parent process may have set lower limits.
        let Rlimit { current, maximum } = getrlimit(resource);
        let lower = |set: Option<u64>| Some(set.map_or(most, |set| set.min(most)));
        let limit = Rlimit {
            current: lower(current),
            maximum: lower(maximum),
        };
        setrlimit(resource, limit).map_err(|error| CompileError::Limit { source: error.into() })?;
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

    fn limits(time: Duration) -> ChildLimits {
        ChildLimits {
            time,
            ..ChildLimits::within(None, MAX_CPU_SECONDS).unwrap()
        }
    }

    #[test]
    fn a_compiler_that_takes_too_long_is_stopped() {
        let program = Path::new("sleep");
        let start = Instant::now();
        let limits = limits(Duration::from_millis(50));
        let error = run(Command::new(program).arg("1000"), program, &limits, || false).unwrap_err();
        assert!(matches!(error, CompileError::TimedOut { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(100), "it was not waited for");
    }

    #[test]
    fn a_slice_ends_by_processor_time_and_a_compilation_gives_way() {
        let program = Path::new("sh");
        let ended = |seconds, gives_way| {
            let limits = ChildLimits {
                seconds,
                ..limits(MAX_TIME)
            };
            run(
                Command::new(program).args(["-c", "while :; do :; done"]),
                program,
                &limits,
                || gives_way,
            )
        };
        assert_eq!(ended(1, false).unwrap(), ChildEnd::SliceOver);
        assert_eq!(ended(MAX_CPU_SECONDS, true).unwrap(), ChildEnd::GaveWay);
    }

    #[test]
    fn a_compiler_gets_less_memory_than_its_container_has_left() {
        for mebibytes in [200, 500, 1000, 4000, 1_000_000] {
            let left = mebibytes * MEBIBYTE;
            let ChildLimits { data, file, .. } = ChildLimits::within(Some(left), 2).unwrap();
            assert!(
                data + file + KEPT_BYTES <= left && data <= MAX_MEMORY_BYTES,
                "{mebibytes}"
            );
        }
        let error = ChildLimits::within(Some(60 * MEBIBYTE), 2).unwrap_err().to_string();
        assert_eq!(
            error,
            "the container has 60 MiB of memory left, and the compiler needs at least 88; raise the container's limit of memory"
        );
    }

    #[test]
    fn a_compiler_reaches_its_own_limits_of_memory_and_of_its_file() {
        let program = Path::new("sh");
        let limits = ChildLimits::within(Some(200 * MEBIBYTE), 20).unwrap();
        let script = "ulimit -d >&2; ulimit -f >&2; sleep 0.2; ulimit -d >&2; exit 3";
        let error = run(Command::new(program).args(["-c", script]), program, &limits, || false).unwrap_err();
        let CompileError::Failed { words, .. } = error else {
            panic!("{error}")
        };
        let kibibytes = (limits.data / 1024).to_string();
        assert!(
            words.contains(&kibibytes) && words.contains("raise the container's limit of memory"),
            "{words}"
        );
    }

    #[test]
    fn a_compiler_that_says_too_much_is_cut_short() {
        let program = Path::new("sh");
        let script = "i=0; while [ $i -lt 20000 ]; do echo some words >&2; i=$((i+1)); done; exit 3";
        let error = run(
            Command::new(program).args(["-c", script]),
            program,
            &limits(MAX_TIME),
            || false,
        )
        .unwrap_err();
        let CompileError::Failed { status, words } = error else {
            panic!("{error}")
        };
        assert_eq!(status.code(), Some(3));
        assert!(words.starts_with("some words") && words.len() <= MAX_WORDS, "{words}");
    }

    #[test]
    fn a_compiler_does_not_see_the_hosts_environment() {
        let program = Path::new("sh");
        let error = run(
            Command::new(program).args(["-c", "env >&2; exit 1"]),
            program,
            &limits(MAX_TIME),
            || false,
        )
        .unwrap_err();
        assert!(!error.to_string().contains("CARGO"), "{error}");
        assert!(error.to_string().contains("RAYON_NUM_THREADS"), "{error}");
    }
}
