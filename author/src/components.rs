//! Owns where the components of a project are, and loading them by the names that scenarios have for them. Leaves making
//! them to `pilothouse build`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use pilothouse_sandbox::{PluginComponent, Sandbox};
use pilothouse_testkit::isolation;

/// Where builds leave components, below a project's folder: `pilothouse build`, and commands of authors.
pub const BUILT: [&str; 2] = ["target/plugins", "target/pilothouse"];

/// What the name of a component's file ends in.
const ENDING: &str = "wasm";

/// Components by the names of their files.
#[derive(Clone, Debug)]
pub struct ComponentFiles(BTreeMap<String, PathBuf>);

/// Whether a path names a component.
pub fn is_component(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == ENDING)
}

/// The components that were built in a project or in the workspace around it, by folder, the nearest first.
pub fn built_in(project: &Path) -> impl Iterator<Item = Vec<PathBuf>> {
    let folders = project
        .ancestors()
        .flat_map(|folder| BUILT.map(|built| folder.join(built)));
    folders.map(|folder| in_folder(&folder))
}

/// The components in a folder, by their names.
pub fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| is_component(path) && path.is_file());
    found.sort();
    found
}

impl ComponentFiles {
    /// These files, or those that are built in a project.
    pub fn find(given: &[PathBuf], project: &Path) -> anyhow::Result<Self> {
        let files = if given.is_empty() {
            let mut built = built_in(project);
            built.find(|files| !files.is_empty()).unwrap_or_default()
        } else {
            given.to_vec()
        };
        ensure!(
            !files.is_empty(),
            "there is no component in {}; build it with `pilothouse build`, or name its file: `pilothouse test FILE.wasm`",
            project.join(BUILT[0]).display()
        );
        let mut names = BTreeMap::new();
        for file in files {
            let file = fs::canonicalize(&file).with_context(|| {
                format!(
                    "there is no component {}; build it with `pilothouse build`",
                    file.display()
                )
            })?;
            let name = file
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default()
                .to_owned();
            if let Some(other) = names.insert(name.clone(), file.clone()) {
                bail!(
                    "{} and {} are both called {name}; give one of them",
                    other.display(),
                    file.display()
                );
            }
        }
        Ok(Self(names))
    }

    /// The files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.0.values().map(PathBuf::as_path)
    }

    /// The name of the only component.
    pub fn only(&self) -> Option<&str> {
        let mut names = self.0.keys();
        names.next().filter(|_| names.next().is_none()).map(String::as_str)
    }

    /// The names, for a message.
    pub fn names(&self) -> String {
        self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl pilothouse_testhost::Components for ComponentFiles {
    fn sandbox(&self) -> Sandbox {
        isolation::sandbox()
            .expect("a component was loaded by it before")
            .clone()
    }

    fn directory(&self) -> PathBuf {
        let first = self.0.values().next().and_then(|file| file.parent());
        first.map_or_else(|| PathBuf::from(BUILT[0]), Path::to_owned)
    }

    fn load(&self, name: &str) -> Result<PluginComponent, String> {
        let file = self.0.get(name).ok_or_else(|| {
            format!(
                "the scenario runs the plugin {name}, and the given components are {}; name the file {name}.wasm as well, or \
                 correct `plugins`",
                self.names()
            )
        })?;
        let sandbox = isolation::sandbox().map_err(|error| error.to_string())?;
        sandbox.load(file).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_what_was_built_in_it_and_its_folders_find_it() {
        let project = tempfile::tempdir().unwrap();
        let error = ComponentFiles::find(&[], project.path()).unwrap_err().to_string();
        assert!(error.contains("pilothouse build"), "{error}");
        let built = project.path().join(BUILT[0]);
        fs::create_dir_all(&built).unwrap();
        fs::write(built.join("web.wasm"), "").unwrap();
        fs::write(built.join("notes.txt"), "").unwrap();
        let found = ComponentFiles::find(&[], &project.path().join("scenarios")).unwrap();
        assert_eq!(found.only(), Some("web"));
        fs::write(built.join("other.wasm"), "").unwrap();
        let found = ComponentFiles::find(&[], project.path()).unwrap();
        assert_eq!((found.only(), found.names().as_str()), (None, "other, web"));
    }

    #[test]
    fn a_component_that_is_not_there_is_named() {
        let error = ComponentFiles::find(&[PathBuf::from("/nope/web.wasm")], Path::new(".")).unwrap_err();
        assert!(error.to_string().contains("/nope/web.wasm"), "{error}");
    }
}
