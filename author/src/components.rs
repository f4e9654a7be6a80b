//! Finds the components of a project, and loads them by their names in scenarios. `pilothouse build` makes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use pilothouse_build::toolchain::target_directory;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_host::compiling;
use pilothouse_sandbox::{PluginComponent, Sandbox};

use crate::new::{Language, package_name};
use crate::sources::Sources;
use crate::test::result::shown;

/// Folders of build results, below a project's folder: of `pilothouse build`, and of authors' own commands.
pub const BUILT: [&str; 2] = ["target/plugins", "target/pilothouse"];

/// Extension of a component's file.
const ENDING: &str = "wasm";

/// Components by the names of their files, and their common grant.
#[derive(Clone, Debug)]
pub struct ComponentFiles {
    files: BTreeMap<String, PathBuf>,
    /// Components of other projects in the same folder, which a scenario may name.
    others: BTreeMap<String, PathBuf>,
    wasi: Wasi,
}

/// Components, and the sandbox that compiles and runs them.
#[derive(Clone)]
pub struct ComponentLoader {
    /// The components.
    pub files: ComponentFiles,
    /// The sandbox, whose cache all commands share.
    pub sandbox: Sandbox,
}

/// Reports whether a path names a component.
pub fn is_component(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == ENDING)
}

/// Returns the components that were built in a project or in the workspace around it, by folder, the nearest first.
pub fn built_in(project: &Path) -> impl Iterator<Item = Vec<PathBuf>> {
    let folders = project
        .ancestors()
        .flat_map(|folder| BUILT.map(|built| folder.join(built)));
    let shared = target_directory().map(|folder| folder.join("plugins"));
    let shared = shared.filter(|folder| own_plugin(project).is_some_and(|name| folder.join(name + ".wasm").is_file()));
    shared.into_iter().chain(folders).map(|folder| in_folder(&folder))
}

/// Returns the name of the crate that a folder is in; none outside of a crate, or in a workspace's root.
fn own_plugin(project: &Path) -> Option<String> {
    let project = fs::canonicalize(project).ok()?;
    let manifest = project
        .ancestors()
        .find_map(|folder| fs::read_to_string(folder.join("Cargo.toml")).ok())?;
    package_name(&manifest)
}

/// Returns the component of a project in a language other than Rust, built by its own tools. None if cargo builds it.
pub fn of_other_language(project: &Path) -> anyhow::Result<Option<PathBuf>> {
    let Some(language) = Language::of_project(project) else {
        return Ok(None);
    };
    let folder = project.join(BUILT[0]);
    let mut found = in_folder(&folder);
    ensure!(
        found.len() == 1,
        "{} is a project in {}, and {} has {} components instead of one; build it with `{}`, or name the file of its component",
        project.display(),
        language.name,
        folder.display(),
        found.len(),
        language.build
    );
    Ok(found.pop())
}

/// Returns the components in a folder, by their names.
pub fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| is_component(path) && path.is_file());
    found.sort();
    found
}

impl ComponentFiles {
    /// Returns these files, or those that are built in a project.
    pub fn find(given: &[PathBuf], project: &Path, wasi: Wasi) -> anyhow::Result<Self> {
        let files = if given.is_empty() {
            let mut built = built_in(project);
            built.find(|files| !files.is_empty()).unwrap_or_default()
        } else {
            given.to_vec()
        };
        ensure!(
            !files.is_empty(),
            "there is no component in {}; build it with `{}`, or name its file: `pilothouse test FILE.wasm`",
            project.join(BUILT[0]).display(),
            Language::of_project(project).map_or("pilothouse build", |it| it.build)
        );
        let mut names: BTreeMap<String, PathBuf> = BTreeMap::new();
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
        // A component that is not named is the project's own, if it exists.
        let own = own_plugin(project).filter(|name| given.is_empty() && names.contains_key(name));
        let (files, others) = names
            .into_iter()
            .partition(|(name, _)| own.as_ref().is_none_or(|own| own == name));
        Ok(Self { files, others, wasi })
    }

    /// Returns a warning if a source of this project was written after one of them.
    pub fn outdated(&self, project: &Path) -> Option<String> {
        let language = Language::of_project(project);
        // A workspace has sources of other crates, too.
        let is_crate = || fs::read_to_string(project.join("Cargo.toml")).is_ok_and(|text| text.contains("[package]"));
        if language.is_none() && !is_crate() {
            return None;
        }
        let sources = Sources {
            paths: vec![project.to_owned()],
            except: Vec::new(),
        };
        let (source, changed) = sources.newest()?;
        let is_older = |file: &&Path| {
            let built = file.metadata().and_then(|metadata| metadata.modified());
            built.is_ok_and(|built| built < changed)
        };
        let older = self.files().find(is_older)?;
        Some(format!(
            "{} is older than {}; build it with `{}`, or the tests say nothing about what has changed",
            shown(older),
            shown(&source),
            language.map_or("pilothouse build", |it| it.build)
        ))
    }

    /// Returns their grant.
    pub fn wasi(&self) -> Wasi {
        self.wasi
    }

    /// Returns the files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.values().map(PathBuf::as_path)
    }

    /// Returns the name of the only component.
    pub fn only(&self) -> Option<&str> {
        let mut names = self.files.keys();
        names.next().filter(|_| names.next().is_none()).map(String::as_str)
    }

    /// Returns the names, for a message.
    pub fn names(&self) -> String {
        self.files.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl ComponentLoader {
    /// Loads one of the files, with any imports of WASI.
    pub fn load_inert(&self, file: &Path) -> anyhow::Result<PluginComponent> {
        compiling::load(&self.sandbox.granting(Wasi::Inert), file)
    }
}

impl pilothouse_testhost::Components for ComponentLoader {
    fn sandbox(&self) -> Sandbox {
        self.sandbox.clone()
    }

    fn directory(&self) -> PathBuf {
        let first = self.files.files().next().and_then(Path::parent);
        first.map_or_else(|| PathBuf::from(BUILT[0]), Path::to_owned)
    }

    fn load(&self, name: &str) -> Result<PluginComponent, String> {
        let ComponentFiles { files, others, .. } = &self.files;
        let file = files.get(name).or_else(|| others.get(name)).ok_or_else(|| {
            format!(
                "the scenario runs the plugin {name}, and the given components are {}; name the file {name}.wasm as well, or \
                 correct `plugins`",
                self.files.names()
            )
        })?;
        let loaded = compiling::load(&self.sandbox.granting(self.files.wasi), file);
        loaded.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_what_was_built_in_it_and_its_folders_find_it() {
        let project = tempfile::tempdir().unwrap();
        let error = ComponentFiles::find(&[], project.path(), Wasi::None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("pilothouse build"), "{error}");
        let built = project.path().join(BUILT[0]);
        fs::create_dir_all(&built).unwrap();
        fs::write(built.join("web.wasm"), "").unwrap();
        fs::write(built.join("notes.txt"), "").unwrap();
        let found = ComponentFiles::find(&[], &project.path().join("scenarios"), Wasi::None).unwrap();
        assert_eq!(found.only(), Some("web"));
        fs::write(built.join("other.wasm"), "").unwrap();
        let found = ComponentFiles::find(&[], project.path(), Wasi::None).unwrap();
        assert_eq!((found.only(), found.names().as_str()), (None, "other, web"));
    }

    #[test]
    fn a_crate_has_one_component_and_scenarios_may_name_others() {
        let project = tempfile::tempdir().unwrap();
        let built = project.path().join(BUILT[0]);
        fs::create_dir_all(&built).unwrap();
        for name in ["site", "other"] {
            fs::write(built.join(name).with_extension("wasm"), "").unwrap();
        }
        let manifest = "[workspace]\n\n[package]\nname = \"site\"\n\n[[bin]]\nname = \"tool\"\n";
        fs::write(project.path().join("Cargo.toml"), manifest).unwrap();
        let scenarios = project.path().join("scenarios");
        fs::create_dir(&scenarios).unwrap();
        for folder in [project.path(), &scenarios] {
            let found = ComponentFiles::find(&[], folder, Wasi::None).unwrap();
            assert_eq!((found.only(), found.others.len()), (Some("site"), 1));
        }
        let both = [built.join("site.wasm"), built.join("other.wasm")];
        let named = ComponentFiles::find(&both, project.path(), Wasi::None).unwrap();
        assert_eq!(named.names(), "other, site");
        fs::write(project.path().join("Cargo.toml"), "[workspace]\nmembers = []\n").unwrap();
        let found = ComponentFiles::find(&[], project.path(), Wasi::None).unwrap();
        assert_eq!(found.names(), "other, site");
    }

    #[test]
    fn a_component_that_is_not_there_is_named() {
        let error = ComponentFiles::find(&[PathBuf::from("/nope/web.wasm")], Path::new("."), Wasi::None).unwrap_err();
        assert!(error.to_string().contains("/nope/web.wasm"), "{error}");
    }
}
