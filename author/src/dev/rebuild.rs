//! Source of the component of `pilothouse dev`: a file as it is, or a project that is rebuilt on each change. The build
//! is left to `pilothouse build`, or to a command of the author, in a process of its own, though the former is in this
//! program too. So both have one path; all output of cargo, rustc and their children is captured, even if a live view
//! has the terminal; and a build can be ended.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, ensure};

use super::process::{BuildProcess, Said};
use crate::components::{BUILT, built_in, is_component};
use crate::new::Language;

/// The most lines of a failed build that are shown.
const MAX_LINES: usize = 60;

/// Settings that make cargo report its progress, though its output is no terminal. `pilothouse build` passes them on.
const CARGO_SETTINGS: [(&str, &str); 3] = [
    ("CARGO_TERM_COLOR", "never"),
    ("CARGO_TERM_PROGRESS_WHEN", "always"),
    ("CARGO_TERM_PROGRESS_WIDTH", "100"),
];

/// Source of the component.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A file that others write.
    File(PathBuf),
    /// A project, and its build command, if it is not `pilothouse build`, with its language, unless the author gave it.
    Project {
        folder: PathBuf,
        command: Option<String>,
        language: Option<&'static Language>,
    },
}

/// A component that was built, or existed.
#[derive(Clone, Debug)]
pub(super) struct BuiltComponent {
    pub(super) file: PathBuf,
    /// Time at which the build ended, or the file was written.
    pub(super) ended: SystemTime,
    /// Duration of the build.
    pub(super) took: std::time::Duration,
}

/// Error of a failed build.
#[derive(Debug, thiserror::Error)]
#[error("{command} failed ({status}){advice}")]
pub(super) struct FailedBuild {
    command: String,
    status: std::process::ExitStatus,
    /// Missing tool, and how to install it, if that is known.
    advice: String,
    /// The last lines of its output.
    pub(super) lines: Vec<String>,
}

impl Origin {
    /// Interprets a path: a component, or a project's folder.
    pub(super) fn find(path: &Path, command: Option<String>) -> anyhow::Result<Self> {
        if is_component(path) {
            ensure!(
                path.is_file(),
                "there is no component {}; build it first, or give the project's folder",
                path.display()
            );
            return Ok(Self::File(
                path.canonicalize().with_context(|| path.display().to_string())?,
            ));
        }
        ensure!(
            path.is_dir(),
            "there is no folder {}; give a project's folder, or a component (.wasm)",
            path.display()
        );
        let folder = path.canonicalize().with_context(|| path.display().to_string())?;
        let language = Language::of_project(&folder).filter(|_| command.is_none());
        let command = command.or_else(|| language.map(|it| it.build.to_owned()));
        ensure!(
            command.is_some() || folder.join("Cargo.toml").is_file(),
            "there is no Cargo.toml in {}: run this in a plugin's project, make one with `pilothouse new`, give a component \
             (.wasm), or, for a project in another language, the command that builds it with --build",
            path.display()
        );
        Ok(Self::Project {
            folder,
            command,
            language,
        })
    }

    /// Returns the paths that are watched for changes.
    pub(super) fn watched(&self) -> Vec<PathBuf> {
        match self {
            Self::File(file) => vec![file.clone()],
            Self::Project { folder, .. } => vec![folder.clone()],
        }
    }

    /// Returns the plugin's name until its manifest is read.
    pub(super) fn name(&self) -> String {
        let name = match self {
            Self::File(file) => file.file_stem(),
            Self::Project { folder, .. } => folder.file_name(),
        };
        let name = name.unwrap_or_default().to_string_lossy().to_lowercase();
        let letters = name
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
        let name: String = letters.take(MAX_NAME).collect();
        let name = name.trim_matches('-');
        if name.is_empty() {
            "plugin".to_owned()
        } else {
            name.to_owned()
        }
    }

    /// Reports whether there is a build.
    pub(super) fn is_built(&self) -> bool {
        matches!(self, Self::Project { .. })
    }

    /// Builds the component, if it has a build. Blocks, and passes the output on. The error is a [`FailedBuild`].
    pub(super) fn build(&self, process: &BuildProcess, heard: impl FnMut(Said)) -> anyhow::Result<BuiltComponent> {
        let begun = Instant::now();
        let file = match self {
            Self::File(file) => file.clone(),
            Self::Project {
                folder,
                command,
                language,
            } => {
                let built = run(folder, command.as_deref(), process, heard);
                built.map_err(|error| with_advice(error, *language, folder))?;
                newest(folder)?
            }
        };
        let written = file.metadata().and_then(|metadata| metadata.modified());
        let ended = match self {
            Self::File(_) => written.with_context(|| format!("cannot read {}", file.display()))?,
            Self::Project { .. } => SystemTime::now(),
        };
        Ok(BuiltComponent {
            file,
            ended,
            took: begun.elapsed(),
        })
    }
}

/// The longest name of a plugin.
const MAX_NAME: usize = 40;

fn run(
    folder: &Path,
    command: Option<&str>,
    process: &BuildProcess,
    mut heard: impl FnMut(Said),
) -> anyhow::Result<()> {
    let (mut built, command) = if let Some(command) = command {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]);
        (shell, format!("`{command}`"))
    } else {
        let own = std::env::current_exe().context("cannot find the path of this program, which builds the plugin")?;
        let mut build = Command::new(own);
        build.arg("build").envs(CARGO_SETTINGS);
        (build, "`pilothouse build`".to_owned())
    };
    built.current_dir(folder);
    let mut lines = VecDeque::new();
    let status = process.run(built, |said| {
        if let Said::Line(line) = &said
            && !line.trim().is_empty()
        {
            if lines.len() == MAX_LINES {
                lines.pop_front();
            }
            lines.push_back(line.clone());
        }
        heard(said);
    });
    let status = status.with_context(|| format!("cannot run {command}"))?;
    if status.success() {
        return Ok(());
    }
    let lines = Vec::from(lines);
    let advice = String::new();
    Err(FailedBuild {
        command,
        status,
        advice,
        lines,
    }
    .into())
}

/// Adds the missing tool or packages of the language to an error: a shell only says that a command was not found.
fn with_advice(error: anyhow::Error, language: Option<&Language>, folder: &Path) -> anyhow::Error {
    let missing = language.and_then(Language::missing_tool);
    let Some(missing) = missing.or_else(|| missing_packages(folder)) else {
        return error;
    };
    match error.downcast::<FailedBuild>() {
        Ok(mut failed) => {
            failed.advice = format!(": {missing}");
            failed.lines.push(missing);
            failed.into()
        }
        Err(error) => error.context(missing),
    }
}

/// Returns the advice for a project of Node.js whose packages are not installed. They may be in a folder above.
fn missing_packages(folder: &Path) -> Option<String> {
    let are_installed = || folder.ancestors().any(|it| it.join("node_modules").is_dir());
    let is_missing = folder.join("package.json").is_file() && !are_installed();
    is_missing.then(|| "its packages are not installed; run `npm install` in the project's folder".to_owned())
}

fn newest(folder: &Path) -> anyhow::Result<PathBuf> {
    let files = built_in(folder).flatten();
    let written = |file: &PathBuf| file.metadata().and_then(|metadata| metadata.modified()).ok();
    let newest = files.max_by_key(written);
    newest.with_context(|| {
        format!(
            "the build left no component in {} or {} of {}",
            BUILT[0],
            BUILT[1],
            folder.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refused(path: &Path) -> String {
        Origin::find(path, None).unwrap_err().to_string()
    }

    #[test]
    fn a_project_without_its_packages_is_told_to_install_them() {
        let project = tempfile::tempdir().unwrap();
        assert_eq!(missing_packages(project.path()), None);
        fs::write(project.path().join("package.json"), "{}").unwrap();
        let failed = || {
            let error = run(project.path(), Some("exit 1"), &BuildProcess::default(), |_| {}).unwrap_err();
            with_advice(error, None, project.path()).to_string()
        };
        assert!(failed().contains("run `npm install`"), "{}", failed());
        fs::create_dir(project.path().join("node_modules")).unwrap();
        assert!(!failed().contains("npm"), "{}", failed());
    }

    #[test]
    fn a_path_without_component_or_project_is_refused_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refused(Path::new("/nope/web.wasm")).starts_with("there is no component /nope/web.wasm"));
        assert!(refused(Path::new("/nope")).starts_with("there is no folder /nope"));
        assert!(refused(folder.path()).starts_with("there is no Cargo.toml in"));
        assert!(Origin::find(folder.path(), Some("make".to_owned())).is_ok());
    }

    #[test]
    fn a_project_in_another_language_is_built_by_its_own_command() {
        let folder = tempfile::tempdir().unwrap();
        let command = |given: Option<&str>| match Origin::find(folder.path(), given.map(str::to_owned)).unwrap() {
            Origin::Project { command, .. } => command,
            Origin::File(file) => panic!("{} is no project", file.display()),
        };
        fs::write(folder.path().join("pilothouse.py"), "").unwrap();
        assert_eq!(command(None).as_deref(), Some("make build"));
        assert_eq!(command(Some("make all")).as_deref(), Some("make all"));
        fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        assert_eq!(command(None), None, "a crate that also has such a file");
    }

    #[test]
    fn a_plugin_is_called_after_its_file_or_folder() {
        let name = |file: &str| Origin::File(PathBuf::from(file)).name();
        assert_eq!(name("/a/web_site.wasm"), "web-site");
        assert_eq!(name("/a/_.wasm"), "plugin");
    }

    #[test]
    fn a_build_leaves_a_component_or_says_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let build = |command: &str| {
            let origin = Origin::find(folder.path(), Some(command.to_owned())).unwrap();
            origin.build(&BuildProcess::default(), |_| {})
        };
        let failed = build("echo 'error: no such type' >&2; echo; echo done; exit 7").unwrap_err();
        assert!(failed.to_string().contains("exit status: 7"), "{failed}");
        let FailedBuild { lines, .. } = failed.downcast_ref::<FailedBuild>().unwrap();
        assert_eq!(
            *lines,
            ["error: no such type", "done"],
            "in the order in which they were said"
        );
        let many = build("seq 100; false").unwrap_err();
        let FailedBuild { lines, .. } = many.downcast_ref::<FailedBuild>().unwrap();
        assert_eq!((lines.len(), lines[0].as_str()), (MAX_LINES, "41"), "the last ones");
        let none = build("true").unwrap_err().to_string();
        assert!(none.starts_with("the build left no component in"), "{none}");
        let built = build("mkdir -p target/pilothouse && echo x > target/pilothouse/web.wasm").unwrap();
        assert_eq!(fs::read_to_string(built.file).unwrap(), "x\n");
    }
}
