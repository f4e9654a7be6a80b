//! Finds the list of accepted findings of a plugin's project, and leaves out what it accepts.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use pilothouse_core::plugin::description::Finding;
use pilothouse_core::plugin::description::accepted::{ACCEPTED_FILE, parse};
use serde_json::Value;

/// Levels above a component in which its project is searched: `pilothouse build` puts it into target/plugins.
const LEVELS: usize = 3;

/// The list of the project that a component, or a folder, is in: in the current folder, else in one of the folders above it.
pub fn file_of(component: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(component).ok()?;
    let above = absolute
        .ancestors()
        .take(LEVELS + 1)
        .map(|folder| folder.join(ACCEPTED_FILE));
    std::iter::once(PathBuf::from(ACCEPTED_FILE))
        .chain(above)
        .find(|file| file.is_file())
}

/// Reads a list.
pub fn read(file: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{} is no list of findings", file.display()))
}

/// The findings that the project of a component does not accept.
pub fn remaining(mut findings: Vec<Finding>, component: &Path) -> anyhow::Result<Vec<Finding>> {
    if findings.is_empty() {
        return Ok(findings);
    }
    if let Some(file) = file_of(component) {
        let accepted = parse(&read(&file)?).map_err(|problem| anyhow!("{}: {problem}", file.display()))?;
        findings.retain(|finding| !accepted.iter().any(|it| it.accepts(finding)));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use pilothouse_core::plugin::description::Severity;

    use super::*;

    #[test]
    fn the_list_of_the_project_above_a_component_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let component = folder.path().join("target/plugins/site.wasm");
        let finding = Finding {
            severity: Severity::Warning,
            name: "status-fields",
            message: "not taken".to_owned(),
        };
        let remaining = || remaining(vec![finding.clone()], &component);
        assert_eq!(remaining().unwrap().len(), 1);
        let write = |text: &str| std::fs::write(folder.path().join(ACCEPTED_FILE), text).unwrap();
        write("- {finding: status-fields, reason: published}\n");
        assert_eq!(remaining().unwrap(), []);
        write("- {finding: other, reason: published}\n");
        assert_eq!(remaining().unwrap().len(), 1);
        for (text, words) in [
            ("- {finding: a}\n", "entry 1: reason is empty"),
            ("- {", "is no list of findings"),
        ] {
            write(text);
            let error = format!("{:#}", remaining().unwrap_err());
            assert!(error.contains(ACCEPTED_FILE) && error.contains(words), "{error}");
        }
    }
}
