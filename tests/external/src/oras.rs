//! Runs oras: pushes and pulls artifacts of any type, attaches one to another, and copies between registries and OCI
//! layouts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    command::{Failed, Printed, Tool},
    programs::Program,
    registry::Registry,
};

/// The time in every artifact that is pushed here, so that the same content has the same digest.
pub const CREATED: &str = "2026-01-01T00:00:00Z";

/// oras with a home of its own.
#[derive(Debug)]
pub struct Oras {
    tool: Tool,
    _home: TempDir,
}

/// A file of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer<'test> {
    /// The name that a pull gives to the file.
    pub name: &'test str,
    /// The media type.
    pub media_type: &'test str,
    /// Content.
    pub bytes: &'test [u8],
}

/// Artifact that `oras push` writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Artifact<'test> {
    /// The media type and the bytes of the config; the empty config where there is none.
    pub config: Option<(&'test str, &'test [u8])>,
    /// The artifact's type; only for the empty config, whose media type says nothing.
    pub artifact_type: Option<&'test str>,
    /// The layers in their order.
    pub layers: &'test [Layer<'test>],
    /// Annotations of the manifest.
    pub annotations: &'test [(&'test str, &'test str)],
}

/// Source or target of a copy.
#[derive(Debug, Clone, Copy)]
pub enum Place<'test> {
    /// `repository:tag` or `repository@digest` in a registry.
    Registry(&'test Registry, &'test str),
    /// A tag or a digest in a folder with an OCI layout.
    Layout(&'test Path, &'test str),
}

impl Default for Oras {
    fn default() -> Self {
        Self::new()
    }
}

impl Oras {
    /// oras with an empty home.
    pub fn new() -> Self {
        let home = tempfile::tempdir().expect("there is room for a folder");
        Self {
            tool: Tool::new(Program::Oras.path(), home.path()),
            _home: home,
        }
    }

    /// Pushes an artifact as `repository:tag`: its digest.
    pub fn push(&self, registry: &Registry, name: &str, artifact: &Artifact<'_>) -> Result<String, Failed> {
        let folder = self.folder();
        let mut arguments = beginning(&["push"], registry);
        arguments.push(registry.reference(name));
        if let Some((media_type, bytes)) = artifact.config {
            let config = Layer {
                name: "config",
                media_type,
                bytes,
            };
            arguments.extend(["--config".to_owned(), write(folder.path(), &config)]);
        }
        if let Some(artifact_type) = artifact.artifact_type {
            arguments.extend(["--artifact-type".to_owned(), artifact_type.to_owned()]);
        }
        arguments.extend(annotations(artifact.annotations));
        arguments.extend(artifact.layers.iter().map(|layer| write(folder.path(), layer)));
        self.digest_of(folder.path(), &arguments)
    }

    /// Attaches a file to what `repository:tag` or `repository@digest` names: the digest of the manifest that refers to it.
    pub fn attach(
        &self,
        registry: &Registry,
        subject: &str,
        artifact_type: &str,
        layer: &Layer<'_>,
    ) -> Result<String, Failed> {
        let folder = self.folder();
        let mut arguments = beginning(&["attach", "--artifact-type", artifact_type], registry);
        arguments.push(registry.reference(subject));
        arguments.extend(annotations(&[]));
        arguments.push(write(folder.path(), layer));
        self.digest_of(folder.path(), &arguments)
    }

    /// Pulls the layers that have a name, in alphabetical order of their names.
    pub fn pull(&self, registry: &Registry, name: &str) -> Result<Vec<(String, Vec<u8>)>, Failed> {
        let folder = self.folder();
        let mut arguments = beginning(&["pull"], registry);
        arguments.push(registry.reference(name));
        self.run_in(folder.path(), &arguments)?;
        let entries = fs::read_dir(folder.path()).expect("the folder can be read");
        let mut files: Vec<_> = entries
            .map(|entry| {
                let entry = entry.expect("the folder can be read");
                let bytes = fs::read(entry.path()).expect("oras pulls files");
                (entry.file_name().to_string_lossy().into_owned(), bytes)
            })
            .collect();
        files.sort();
        Ok(files)
    }

    /// Copies an artifact with all that refers to it, but not the tags of older signatures, which refer to nothing.
    pub fn copy(&self, from: Place<'_>, to: Place<'_>) -> Result<Printed, Failed> {
        let mut arguments = vec!["cp".to_owned(), "--recursive".to_owned()];
        arguments.extend(from.arguments("from"));
        arguments.extend(to.arguments("to"));
        self.run_in(self.tool.home(), &arguments)
    }

    /// Returns the referrers of an artifact, as oras finds them: through the referrers API, or by the fallback tag.
    pub fn discover(&self, registry: &Registry, name: &str) -> Result<Value, Failed> {
        let mut arguments = beginning(&["discover", "--format", "json"], registry);
        arguments.push(registry.reference(name));
        let printed = self.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(serde_json::from_str(&printed.output).expect("oras prints JSON"))
    }

    /// Logs in as Docker does, trusting this authority: the file with the credentials.
    pub fn login(&self, registry: &Registry, ca: Option<&Path>) -> Result<PathBuf, Failed> {
        let mut arguments = vec!["login".to_owned(), registry.address()];
        arguments.extend(connection("", ca, registry));
        self.run_in(self.tool.home(), &arguments)?;
        Ok(self.tool.home().join(".docker/config.json"))
    }

    /// Runs any other command.
    pub fn run(&self, arguments: &[&str]) -> Result<Printed, Failed> {
        self.tool.run_in(self.tool.home(), arguments)
    }

    /// A folder for the files of one command: oras names layers by their paths below the working directory.
    fn folder(&self) -> TempDir {
        tempfile::tempdir_in(self.tool.home()).expect("there is room for a folder")
    }

    fn digest_of(&self, folder: &Path, arguments: &[String]) -> Result<String, Failed> {
        let printed = self.run_in(folder, arguments)?;
        let digest = printed.output.lines().find_map(|line| line.strip_prefix("Digest: "));
        Ok(digest.expect("oras prints the digest of what it pushes").to_owned())
    }

    fn run_in(&self, folder: &Path, arguments: &[String]) -> Result<Printed, Failed> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.tool.run_in(folder, &arguments)
    }
}

impl Place<'_> {
    fn arguments(self, side: &str) -> Vec<String> {
        match self {
            Self::Registry(registry, name) => {
                let mut arguments = connection(&format!("{side}-"), registry.ca_file(), registry);
                arguments.push(registry.reference(name));
                arguments
            }
            Self::Layout(folder, name) => {
                let separator = if name.contains(':') { '@' } else { ':' };
                vec![
                    format!("--{side}-oci-layout"),
                    format!("{}{separator}{name}", folder.display()),
                ]
            }
        }
    }
}

/// A command with how it reaches a registry.
fn beginning(command: &[&str], registry: &Registry) -> Vec<String> {
    let mut arguments: Vec<String> = command.iter().map(|argument| (*argument).to_owned()).collect();
    arguments.extend(connection("", registry.ca_file(), registry));
    arguments
}

/// Options by which oras reaches a registry: the authority or plain HTTP, and the credentials.
fn connection(side: &str, ca: Option<&Path>, registry: &Registry) -> Vec<String> {
    let mut arguments = match ca {
        Some(ca) => vec![format!("--{side}ca-file"), ca.display().to_string()],
        None => vec![format!("--{side}plain-http")],
    };
    if let Some((user, password)) = registry.credentials() {
        arguments.extend([format!("--{side}username"), user.to_owned()]);
        arguments.extend([format!("--{side}password"), password.to_owned()]);
    }
    arguments
}

fn annotations(more: &[(&str, &str)]) -> Vec<String> {
    let created = ("org.opencontainers.image.created", CREATED);
    let all = std::iter::once(&created).chain(more);
    all.flat_map(|(name, value)| ["--annotation".to_owned(), format!("{name}={value}")])
        .collect()
}

/// Writes a file for oras, and returns how oras is told about it.
fn write(folder: &Path, layer: &Layer<'_>) -> String {
    let path = folder.join(layer.name);
    fs::write(&path, layer.bytes).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
    format!("{}:{}", layer.name, layer.media_type)
}
