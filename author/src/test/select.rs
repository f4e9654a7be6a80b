//! Selects tests: by the paths of a command line, or, without any, those of the project.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::golden::INPUT;
use crate::components::is_component;

/// Folder of a project's tests.
const SCENARIOS: &str = "scenarios";
const GOLDEN: &str = "tests/golden";

/// Selected tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Components that were named.
    pub(super) components: Vec<PathBuf>,
    /// Scenario files.
    pub(super) scenarios: Vec<PathBuf>,
    /// Folders of golden cases.
    pub(super) golden: Vec<PathBuf>,
}

/// Sorts paths by their kind. Without a test among them, the tests are those of the project.
pub(super) fn select(paths: &[PathBuf], project: &Path) -> anyhow::Result<Selection> {
    let mut selection = Selection::default();
    for path in paths {
        if is_component(path) {
            if !path.exists() {
                bail!(
                    "there is no component {}; build it first, or correct the name",
                    path.display()
                );
            }
            selection.components.push(path.clone());
        } else if path.is_dir() {
            let before = selection.scenarios.len() + selection.golden.len();
            selection.add_folder(path)?;
            if selection.scenarios.len() + selection.golden.len() == before {
                bail!(
                    "there is no test in {}: neither a scenario (.yaml) nor a golden case (a folder with {INPUT})",
                    path.display()
                );
            }
        } else if path.is_file() {
            selection.scenarios.push(path.clone());
        } else {
            bail!(
                "there is no {}; name a component, a scenario, a golden case or a folder",
                path.display()
            );
        }
    }
    if selection.components.len() == paths.len() {
        for folder in [SCENARIOS, GOLDEN].map(|folder| project.join(folder)) {
            if folder.is_dir() {
                selection.add_folder(&folder)?;
            }
        }
        if selection.scenarios.is_empty() && selection.golden.is_empty() {
            bail!(
                "there are no tests: neither a scenario in {SCENARIOS}/ nor a golden case in {GOLDEN}/; run this in the \
                 project's folder, or name the files"
            );
        }
    }
    selection.scenarios.sort();
    selection.scenarios.dedup();
    selection.golden.sort();
    selection.golden.dedup();
    Ok(selection)
}

impl Selection {
    /// Adds a golden case, or a folder with scenarios or golden cases in it.
    fn add_folder(&mut self, folder: &Path) -> anyhow::Result<()> {
        if folder.join(INPUT).is_file() {
            self.golden.push(folder.to_owned());
            return Ok(());
        }
        let about = || format!("cannot read the folder {}", folder.display());
        for entry in fs::read_dir(folder).with_context(about)? {
            let path = entry.with_context(about)?.path();
            if path.join(INPUT).is_file() {
                self.golden.push(path);
            } else if path.is_file() && path.extension().is_some_and(|it| it == "yaml" || it == "yml") {
                self.scenarios.push(path);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("scenarios/created.yaml", ""),
            ("scenarios/notes.md", ""),
            ("tests/golden/smallest/input.yaml", ""),
            ("tests/golden/empty/README.md", ""),
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn without_paths_the_tests_are_those_of_the_project() {
        let project = project();
        let at = |path: &str| project.path().join(path);
        let of_project = Selection {
            components: Vec::new(),
            scenarios: vec![at("scenarios/created.yaml")],
            golden: vec![at("tests/golden/smallest")],
        };
        assert_eq!(select(&[], project.path()).unwrap(), of_project);
        let absent = select(&["x.wasm".into()], project.path()).unwrap_err().to_string();
        assert!(absent.starts_with("there is no component x.wasm"), "{absent}");
        let component = project.path().join("x.wasm");
        fs::write(&component, "").unwrap();
        let with_component = select(std::slice::from_ref(&component), project.path()).unwrap();
        assert_eq!(with_component.components, [component]);
        assert_eq!(with_component.scenarios, of_project.scenarios);
    }

    #[test]
    fn a_path_is_a_component_a_scenario_a_case_or_a_folder() {
        let project = project();
        let at = |path: &str| project.path().join(path);
        let only = select(&[at("tests/golden/smallest")], project.path()).unwrap();
        assert_eq!(
            (only.scenarios.len(), only.golden),
            (0, vec![at("tests/golden/smallest")])
        );
        let folder = select(&[at("scenarios")], project.path()).unwrap();
        assert_eq!(
            (folder.scenarios, folder.golden.len()),
            (vec![at("scenarios/created.yaml")], 0)
        );
    }

    #[test]
    fn what_selects_nothing_is_an_error() {
        let (project, empty) = (project(), tempfile::tempdir().unwrap());
        let refused = |paths: &[PathBuf], at: &Path| select(paths, at).unwrap_err().to_string();
        assert!(refused(&[], empty.path()).starts_with("there are no tests"));
        assert!(refused(&["/nope.yaml".into()], project.path()).starts_with("there is no /nope.yaml"));
        assert!(refused(&[empty.path().to_owned()], project.path()).starts_with("there is no test in"));
    }
}
