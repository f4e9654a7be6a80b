//! Builds the programs of a pinned Go module into the cache. The modules are defined by the users of the programs.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::environment;

/// Least interval between two progress reports of a build.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Lines of a failed build's output that are in the error.
const BUILD_TAIL_LINES: usize = 20;

/// A Go module with pinned versions, and its programs.
#[derive(Debug, Clone)]
pub struct GoModule {
    /// Name of the folder in the cache, and of the build in messages.
    pub name: &'static str,
    /// Files of the module with their paths, among them `go.mod` and `go.sum`, which pin versions and content.
    pub files: &'static [(&'static str, &'static str)],
    /// Programs, all built with one command.
    pub programs: Vec<GoProgram>,
    /// Build tags, separated by commas.
    pub tags: &'static str,
    /// Flags of the linker.
    pub linker_flags: String,
    /// Duration of a build in messages, for example "about six minutes on two cores".
    pub duration: &'static str,
}

/// A program of a Go module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoProgram {
    /// Package, as an argument of `go build`.
    pub package: &'static str,
    /// Name in the cache.
    pub name: &'static str,
}

/// Reasons why a Go module was not built.
#[derive(Debug, Error)]
pub enum GoError {
    /// There is no Go toolchain.
    #[error("go is not on the search path: install Go {0} or newer")]
    NoToolchain(&'static str),
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set.
    #[error("there is no folder for programs that are built: set HOME or XDG_CACHE_HOME")]
    NoCache,
    /// The cache could not be read or written.
    #[error("use the cache of programs at {}: {source}", .path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The Go toolchain could not be run.
    #[error("run go: {0}")]
    Run(io::Error),
    /// The build ended with an error.
    #[error("build {name} with go ({status}):\n{tail}")]
    Build {
        /// The module.
        name: &'static str,
        /// Exit status of go.
        status: ExitStatus,
        /// The last lines that it printed.
        tail: String,
    },
}

/// Reports whether there is a Go toolchain.
pub fn is_installed() -> bool {
    environment::program("go").is_some()
}

/// Returns the version of a module that the `go.mod` among these files requires.
pub fn required_version<'files>(files: &[(&str, &'files str)], module: &str) -> Option<&'files str> {
    go_mod(files).lines().find_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        let version = line.strip_prefix(module)?.strip_prefix(' ')?;
        version.split_whitespace().next()
    })
}

impl GoModule {
    /// Returns the folder with the programs, if they are built.
    pub fn built(&self) -> Option<PathBuf> {
        self.entry().filter(|entry| self.is_complete(entry))
    }

    /// Returns the folder with the programs, which are built if one is missing. A build shows its progress on standard
    /// error. Two processes never build at once: the second waits for the first.
    pub fn obtain(&self) -> Result<PathBuf, GoError> {
        let entry = self.entry().ok_or(GoError::NoCache)?;
        if self.is_complete(&entry) {
            return Ok(entry);
        }
        if !is_installed() {
            return Err(GoError::NoToolchain(self.go_version()));
        }
        let root = entry.parent().expect("a cache entry is a folder in the cache");
        fs::create_dir_all(root).map_err(cache_error(root))?;
        let lock_path = root.join("lock");
        let lock = File::create(&lock_path).map_err(cache_error(&lock_path))?;
        lock.lock().map_err(cache_error(&lock_path))?;
        // Another process may have built while this one waited for the lock, which is released when the file is closed.
        if !self.is_complete(&entry) {
            self.build(root, &entry)?;
        }
        Ok(entry)
    }

    /// Returns the version of Go that `go.mod` requires.
    fn go_version(&self) -> &'static str {
        let mut lines = go_mod(self.files).lines();
        lines.find_map(|line| line.strip_prefix("go ")).unwrap_or_default()
    }

    fn entry(&self) -> Option<PathBuf> {
        Some(
            environment::cache()?
                .join("pilothouse")
                .join(self.name.replace(' ', ""))
                .join(self.digest()),
        )
    }

    /// Returns the name of a cache entry, a digest of everything that affects the build; not of files for tools.
    fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let texts = self.files.iter().map(|(_, text)| text);
        for text in texts.filter(|text| !text.starts_with("//go:build tools")) {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        let mut name = String::new();
        for byte in &hash.finalize()[..8] {
            let _ = write!(name, "{byte:02x}");
        }
        name
    }

    fn is_complete(&self, entry: &Path) -> bool {
        self.programs.iter().all(|program| entry.join(program.name).is_file())
    }

    /// Builds beside the entry and renames at the end, so that a program in an entry is always complete.
    fn build(&self, root: &Path, entry: &Path) -> Result<(), GoError> {
        let work = tempfile::Builder::new()
            .prefix("building-")
            .tempdir_in(root)
            .map_err(cache_error(root))?;
        let (module, output) = (work.path().join("module"), work.path().join("programs"));
        fs::create_dir(&output).map_err(cache_error(&output))?;
        for (name, text) in self.files {
            let path = module.join(name);
            let folder = path.parent().expect("the file is in the module's folder");
            fs::create_dir_all(folder).map_err(cache_error(folder))?;
            fs::write(&path, text).map_err(cache_error(&path))?;
        }
        self.run_go(&module, &output)?;
        fs::create_dir_all(entry).map_err(cache_error(entry))?;
        for program in &self.programs {
            let (built, path) = (output.join(program.built()), entry.join(program.name));
            fs::rename(built, &path).map_err(cache_error(&path))?;
        }
        Ok(())
    }

    fn run_go(&self, module: &Path, output: &Path) -> Result<(), GoError> {
        let names: Vec<&str> = self.programs.iter().map(|program| program.name).collect();
        self.print_progress(&format!("building {} once ({})", names.join(", "), self.duration));
        let started = Instant::now();
        let mut go = Command::new("go")
            .args([
                "build",
                "-v",
                "-trimpath",
                "-mod=readonly",
                "-tags",
                self.tags,
                "-ldflags",
            ])
            .args([&self.linker_flags, "-o"])
            .arg(output)
            .args(self.programs.iter().map(|program| program.package))
            .current_dir(module)
            .env("CGO_ENABLED", "0")
            .env("GOTOOLCHAIN", "local")
            .env("GOWORK", "off")
            .env("GOFLAGS", "")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(GoError::Run)?;
        let lines = BufReader::new(go.stderr.take().expect("standard error is piped")).lines();
        let (mut tail, mut packages, mut reported) = (Vec::new(), 0_usize, started);
        for line in lines {
            // go names each package as it is compiled, and prints errors and downloads in between.
            let line = line.map_err(GoError::Run)?;
            packages += 1;
            if reported.elapsed() >= PROGRESS_INTERVAL {
                reported = Instant::now();
                let seconds = started.elapsed().as_secs();
                self.print_progress(&format!("{packages} packages after {seconds} s: {line}"));
            }
            if tail.len() == BUILD_TAIL_LINES {
                tail.remove(0);
            }
            tail.push(line);
        }
        let status = go.wait().map_err(GoError::Run)?;
        if !status.success() {
            return Err(GoError::Build {
                name: self.name,
                status,
                tail: tail.join("\n"),
            });
        }
        self.print_progress(&format!("built after {} s", started.elapsed().as_secs()));
        Ok(())
    }

    /// Writes straight to standard error: the harness captures `eprintln`, and six silent minutes look like a hang.
    fn print_progress(&self, message: &str) {
        let _ = writeln!(io::stderr(), "{}: {message}", self.name);
    }
}

impl GoProgram {
    /// Returns Go's name of the program: the last element of its package's path that is not a major version.
    fn built(&self) -> &'static str {
        let is_version = |name: &str| name.strip_prefix('v').is_some_and(|rest| rest.parse::<u32>().is_ok());
        let mut elements = self.package.rsplit('/');
        elements.find(|name| !is_version(name)).unwrap_or(self.package)
    }
}

fn go_mod<'files>(files: &[(&str, &'files str)]) -> &'files str {
    let found = files.iter().find(|(name, _)| *name == "go.mod");
    found.map_or("", |(_, text)| text)
}

fn cache_error(path: &Path) -> impl FnOnce(io::Error) -> GoError + use<> {
    let path = path.to_owned();
    move |source| GoError::Cache { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "module test\n\ngo 1.26.7\n\nrequire example.com/alone v0.1.0\n\nrequire (\n\texample.com/one v1.2.3\n\texample.com/one/two v3.4.5 // indirect\n)\n";

    fn module(files: &'static [(&'static str, &'static str)]) -> GoModule {
        GoModule {
            name: "a test",
            files,
            programs: Vec::new(),
            tags: "",
            linker_flags: String::new(),
            duration: "no time",
        }
    }

    #[test]
    fn versions_are_read_from_the_module() {
        const FILES: &[(&str, &str)] = &[("go.sum", ""), ("go.mod", MODULE)];
        assert_eq!(required_version(FILES, "example.com/one"), Some("v1.2.3"));
        assert_eq!(required_version(FILES, "example.com/one/two"), Some("v3.4.5"));
        assert_eq!(required_version(FILES, "example.com/alone"), Some("v0.1.0"));
        assert_eq!(required_version(FILES, "example.com/on"), None);
        assert_eq!(module(FILES).go_version(), "1.26.7");
    }

    #[test]
    fn a_cache_entry_is_named_by_what_is_built() {
        let one = module(&[("go.mod", MODULE)]).digest();
        assert_ne!(one, module(&[("go.mod", MODULE), ("main.go", "package main")]).digest());
        assert_eq!(
            one,
            module(&[("go.mod", MODULE), ("tools.go", "//go:build tools\n")]).digest()
        );
        assert_eq!(one.len(), 16);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn go_names_a_program_by_its_package() {
        let built = |package| GoProgram { package, name: "" }.built();
        assert_eq!(built("go.etcd.io/etcd/server/v3"), "server");
        assert_eq!(built("github.com/sigstore/cosign/v3/cmd/cosign"), "cosign");
        assert_eq!(built("./registry"), "registry");
    }
}
