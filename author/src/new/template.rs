//! Owns the templates of projects, by language, and how a name is put into them.
//!
//! A template is a text with `{{name}}` for a value. The lines from `%if CONDITION` to `%else` or `%end` are there only if
//! the condition holds. The files are called `*.in`, so that no tool takes them for what they become.

use std::collections::{BTreeMap, BTreeSet};

/// What is put into templates.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// The values by name.
    pub texts: BTreeMap<&'static str, String>,
    /// The conditions that hold.
    pub holds: BTreeSet<&'static str>,
}

/// A file of a project.
#[derive(Clone, Copy, Debug)]
pub struct TemplateFile {
    /// Where it goes; a template, too.
    pub path: &'static str,
    /// What it contains.
    pub text: &'static str,
    /// The condition under which it is there.
    pub only_if: Option<&'static str>,
}

/// What can be written in a language.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// The name on the command line.
    pub name: &'static str,
    /// The files of a new project, beside those of its first kind.
    pub project: &'static [TemplateFile],
    /// The files of a kind.
    pub kind: &'static [TemplateFile],
    /// The files of a kind's defaulter and validator.
    pub admission: &'static [TemplateFile],
    /// What to run next in the folder of a new project.
    pub next: &'static [&'static str],
}

/// All languages in which `pilothouse new` writes. A language is added here, with a folder of `author/templates`.
pub const LANGUAGES: &[Language] = &[RUST];

macro_rules! file {
    ($path:literal, $template:literal) => {
        file!($path, $template, None)
    };
    ($path:literal, $template:literal, if $condition:literal) => {
        file!($path, $template, Some($condition))
    };
    ($path:literal, $template:literal, $condition:expr) => {
        TemplateFile {
            path: $path,
            text: include_str!(concat!("../../templates/", $template)),
            only_if: $condition,
        }
    };
}

const RUST: Language = Language {
    name: "rust",
    project: &[
        file!("Cargo.toml", "rust/Cargo.toml.in"),
        file!("src/lib.rs", "rust/lib.rs.in"),
        file!("sample.yaml", "rust/sample.yaml.in"),
        file!("README.md", "rust/README.md.in"),
        file!("rustfmt.toml", "rust/rustfmt.toml.in"),
        file!(".gitignore", "rust/gitignore.in"),
        file!(".github/workflows/ci.yaml", "rust/ci.yaml.in"),
    ],
    kind: &[
        file!("src/{{module}}.rs", "rust/kind.rs.in"),
        file!("crds/{{plural}}.{{group}}.yaml", "rust/crd.yaml.in"),
        file!("scenarios/{{label}}.yaml", "rust/scenario.yaml.in"),
    ],
    admission: &[file!("src/{{module}}_admission.rs", "rust/admission.rs.in")],
    next: &["cargo test", "pilothouse build", "pilothouse test", "pilothouse dev"],
};

impl Language {
    /// The language of this name, or an error that lists those that there are.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        let known = || LANGUAGES.iter().map(|it| it.name).collect::<Vec<_>>().join(", ");
        LANGUAGES.iter().find(|it| it.name == name).ok_or_else(|| {
            format!(
                "there is no template for {name}; there is one for {}. plugins/examples in the repository of Pilothouse has \
                 operators in other languages to begin with",
                known()
            )
        })
    }
}

impl TemplateFile {
    /// The path and the content; none where the file is not wanted.
    pub fn made(&self, values: &Values) -> Option<(String, String)> {
        let Self { path, text, only_if } = self;
        let is_wanted = only_if.is_none_or(|condition| values.holds.contains(condition));
        is_wanted.then(|| (expanded(path, values), expanded(text, values)))
    }
}

/// A template with its values.
///
/// # Panics
///
/// If the template names a value that there is not, or an `%if` has no `%end`. A test expands all of them.
fn expanded(template: &str, values: &Values) -> String {
    let mut lines = Vec::new();
    // Whether the lines are there, for each `%if` around them.
    let mut conditions: Vec<bool> = Vec::new();
    for line in template.split('\n') {
        if let Some(condition) = line.strip_prefix("%if ") {
            conditions.push(values.holds.contains(condition));
        } else if line == "%else" {
            let last = conditions.last_mut().expect("an %else stands behind an %if");
            *last = !*last;
        } else if line == "%end" {
            conditions.pop().expect("an %end stands behind an %if");
        } else if conditions.iter().all(|holds| *holds) {
            lines.push(line);
        }
    }
    assert!(conditions.is_empty(), "an %if has no %end");
    filled(&lines.join("\n"), values)
}

fn filled(template: &str, values: &Values) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").expect("a value's name ends");
        let value = values
            .texts
            .get(name)
            .unwrap_or_else(|| panic!("there is no value {name}"));
        text.push_str(value);
        text.push_str(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(holds: &[&'static str]) -> Values {
        Values {
            texts: [("name", "site".to_owned())].into(),
            holds: holds.iter().copied().collect(),
        }
    }

    #[test]
    fn lines_depend_on_conditions_and_values_on_names() {
        let template = "a {{name}}\n%if x\nb\n%if y\nc\n%end\n%else\nd {{name}}{{name}}\n%end\ne\n";
        assert_eq!(expanded(template, &values(&["x", "y"])), "a site\nb\nc\ne\n");
        assert_eq!(expanded(template, &values(&["x"])), "a site\nb\ne\n");
        assert_eq!(expanded(template, &values(&["y"])), "a site\nd sitesite\ne\n");
    }

    #[test]
    fn a_language_without_template_is_refused_with_those_that_there_are() {
        let error = Language::named("cobol").unwrap_err();
        assert!(
            error.starts_with("there is no template for cobol; there is one for rust"),
            "{error}"
        );
    }
}
