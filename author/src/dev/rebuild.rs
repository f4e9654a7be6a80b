//! Owns where the component of `pilothouse dev` comes from: a file as it is, or a project that is built anew on each change.
//! Leaves the build to `pilothouse build`, or to a command of the author, in a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};

use crate::components::{BUILT, built_in, is_component};

/// The most lines of a failed build that are shown.
const MAX_LINES: usize = 60;

/// Where the component comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A file, which somebody else makes.
    File(PathBuf),
    /// A project, and the command that builds it, if it is not `pilothouse build`.
    Project { folder: PathBuf, command: Option<String> },
}

/// A component that was built, or was there.
#[derive(Clone, Debug)]
pub(super) struct BuiltComponent {
    pub(super) file: PathBuf,
    /// When there was something to build, or when the file was written.
    pub(super) ended: SystemTime,
    /// How long the build took.
    pub(super) took: std::time::Duration,
}

impl Origin {
    /// What a path means: a component, or a project's folder.
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
        ensure!(
            command.is_some() || folder.join("Cargo.toml").is_file(),
            "there is no Cargo.toml in {}: run this in a plugin's project, make one with `pilothouse new`, give a component \
             (.wasm), or, for a project in another language, the command that builds it with --build",
            path.display()
        );
        Ok(Self::Project { folder, command })
    }

    /// What is looked at for changes.
    pub(super) fn watched(&self) -> Vec<PathBuf> {
        match self {
            Self::File(file) => vec![file.clone()],
            Self::Project { folder, .. } => vec![folder.clone()],
        }
    }

    /// What the plugin is called until it says its name.
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

    /// Whether there is something to build.
    pub(super) fn is_built(&self) -> bool {
        matches!(self, Self::Project { .. })
    }

    /// Builds the component, if it is to be built. Blocks meanwhile. An error is what the build said.
    pub(super) fn build(&self) -> anyhow::Result<BuiltComponent> {
        let begun = Instant::now();
        let file = match self {
            Self::File(file) => file.clone(),
            Self::Project { folder, command } => {
                run(folder, command.as_deref())?;
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

fn run(folder: &Path, command: Option<&str>) -> anyhow::Result<()> {
    let (mut process, said) = if let Some(command) = command {
        let mut process = Command::new("sh");
        process.args(["-c", command]);
        (process, format!("`{command}`"))
    } else {
        let own = std::env::current_exe().context("cannot find the path of this program, which builds the plugin")?;
        let mut process = Command::new(own);
        process.arg("build");
        (process, "`pilothouse build`".to_owned())
    };
    let output = process.current_dir(folder).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {said}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(MAX_LINES)..];
    bail!("{said} failed ({}):\n{}", output.status, shown.join("\n"));
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
    fn what_is_neither_a_component_nor_a_project_is_refused_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refused(Path::new("/nope/web.wasm")).starts_with("there is no component /nope/web.wasm"));
        assert!(refused(Path::new("/nope")).starts_with("there is no folder /nope"));
        assert!(refused(folder.path()).starts_with("there is no Cargo.toml in"));
        assert!(Origin::find(folder.path(), Some("make".to_owned())).is_ok());
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
        let build = |command: &str| Origin::find(folder.path(), Some(command.to_owned())).unwrap().build();
        let failed = build("echo 'error: no such type' >&2; exit 7").unwrap_err().to_string();
        assert!(
            failed.contains("exit status: 7") && failed.contains("error: no such type"),
            "{failed}"
        );
        let none = build("true").unwrap_err().to_string();
        assert!(none.starts_with("the build left no component in"), "{none}");
        let built = build("mkdir -p target/pilothouse && echo x > target/pilothouse/web.wasm").unwrap();
        assert_eq!(fs::read_to_string(built.file).unwrap(), "x\n");
    }
}
