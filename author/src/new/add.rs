//! Owns adding to a project that is there: the files of a kind or of its admission, and the lines of `src/lib.rs` that name
//! them. Where a comment such as `// pilothouse:controllers` marks the place, the lines are put above it; where it is missing,
//! they are printed.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use super::template::{LANGUAGES, Language, Values};
use super::{KindOptions, NewKind, format_sources, values, write};

/// What a marker begins with.
const MARKER: &str = "// pilothouse:";

/// The file that says what the plugin consists of.
const LIBRARY: &str = "src/lib.rs";

/// Adds a kind.
pub fn kind(folder: &Path, kind: &NewKind, options: &KindOptions) -> anyhow::Result<()> {
    let project = Project::open(folder)?;
    let mut values = values(&project.name, kind, options)?;
    // The scenario plays with the whole plugin; what is in Cargo.toml and README stays as it is.
    values.texts.insert("sdk", String::new());
    let mut files = project.language.kind.to_vec();
    if options.admission {
        files.extend(project.language.admission);
    }
    for path in write(folder, &files, &values)? {
        println!("{}", path.display());
    }
    let (module, type_name) = (kind.module(), kind.type_name());
    let mut insertions = vec![
        Insertion::new("modules", format!("pub mod {module};")),
        Insertion::new("controllers", format!("{module}::{type_name}Controller,")),
        Insertion::new("manifest", format!(".controller({module}::manifest())")),
        Insertion::new("manifest", format!(".crd({module}::CRD)")),
    ];
    if options.finalizer {
        insertions.push(Insertion::of_interface(
            "finalizer",
            &format!("{module}::{type_name}Controller"),
        ));
    }
    if options.admission {
        insertions.extend(of_admission(&module, &type_name));
    }
    finish(folder, &insertions, options.admission)
}

/// Adds a defaulter and a validator for a kind of the project.
pub fn admission(folder: &Path, kind: &str) -> anyhow::Result<()> {
    let project = Project::open(folder)?;
    let kind = project.kind(folder, kind)?;
    let is_of_cluster = is_of_cluster(folder, &kind);
    let options = KindOptions {
        scope: if is_of_cluster {
            super::Scope::Cluster
        } else {
            super::Scope::Namespaced
        },
        plural: None,
        finalizer: false,
        admission: true,
    };
    let values: Values = values(&project.name, &kind, &options)?;
    for path in write(folder, project.language.admission, &values)? {
        println!("{}", path.display());
    }
    finish(folder, &of_admission(&kind.module(), &kind.type_name()), true)
}

/// What of a project has to be known.
struct Project {
    name: String,
    language: &'static Language,
}

impl Project {
    fn open(folder: &Path) -> anyhow::Result<Self> {
        let manifest = folder.join("Cargo.toml");
        let shown = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        if let Some(Language { name, .. }) = Language::of_project(folder) {
            bail!(
                "{} is a project in {name}, and kinds and admission can be added to projects in Rust only; make a project \
                 with what this one lacks in another folder, as in `pilothouse new NAME --kind GROUP/VERSION/KIND --lang {name} \
                 --admission`, and take the files and lines from there in which the two differ",
                shown.display()
            );
        }
        let text = fs::read_to_string(&manifest).with_context(|| {
            format!(
                "{} is no project: it has no Cargo.toml; run the command in the folder of one",
                shown.display()
            )
        })?;
        let name = name_in(&text).with_context(|| {
            format!(
                "{} names no package; run the command in the folder of a plugin",
                manifest.display()
            )
        })?;
        ensure!(
            folder.join(LIBRARY).is_file(),
            "{} is no plugin: it has no {LIBRARY}",
            shown.display()
        );
        let language = LANGUAGES
            .iter()
            .find(|it| it.name == "rust")
            .expect("there is a template for Rust");
        Ok(Self { name, language })
    }

    /// A kind of the project by its name: its module says the group and the version.
    fn kind(&self, folder: &Path, name: &str) -> anyhow::Result<NewKind> {
        let mut known = Vec::new();
        let sources = folder.join("src");
        for entry in fs::read_dir(&sources).with_context(|| format!("cannot read {}", sources.display()))? {
            let path = entry?.path();
            let Ok(text) = fs::read_to_string(&path) else { continue };
            known.extend(kinds_in(&text));
        }
        known.sort_by(|one, other| one.kind.cmp(&other.kind));
        let names = || {
            known
                .iter()
                .map(|kind| kind.kind.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let Some(kind) = known.iter().find(|kind| kind.kind == name) else {
            bail!(
                "{} has no kind {name}; it has {}. `pilothouse new kind` adds one",
                self.name,
                if known.is_empty() { "none".to_owned() } else { names() }
            );
        };
        Ok(kind.clone())
    }
}

/// Whether a kind of the project is of the cluster's scope.
fn is_of_cluster(folder: &Path, kind: &NewKind) -> bool {
    let source = folder.join("src").join(format!("{}.rs", kind.module()));
    fs::read_to_string(source).is_ok_and(|text| text.contains("scope = \"Cluster\""))
}

/// The name of the package in a Cargo.toml.
fn name_in(manifest: &str) -> Option<String> {
    let (_, package) = manifest.split_once("[package]")?;
    let lines = package.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    let name = lines
        .filter_map(|line| line.split_once('='))
        .find(|(key, _)| key.trim() == "name");
    name.map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

/// The kinds whose CRD a source makes: those with the attribute `#[crd]`.
fn kinds_in(source: &str) -> Vec<NewKind> {
    let attributes = source.split("#[resource(").skip(1);
    let kinds = attributes.filter_map(|rest| {
        let (members, after) = rest.split_once(")]")?;
        after.trim_start().starts_with("#[crd(").then_some(())?;
        let member = |name: &str| {
            let (_, value) = members.split_once(&format!("{name} = \""))?;
            value.split_once('"').map(|(value, _)| value.to_owned())
        };
        Some(NewKind {
            group: member("group")?,
            version: member("version")?,
            kind: member("kind")?,
        })
    });
    kinds.collect()
}

fn of_admission(module: &str, type_name: &str) -> [Insertion; 3] {
    let handler = format!("{module}_admission::{type_name}Admission");
    [
        Insertion::new("modules", format!("pub mod {module}_admission;")),
        Insertion::of_interface("defaulter", &handler),
        Insertion::of_interface("validator", &handler),
    ]
}

/// Lines that belong above a marker.
#[derive(Debug)]
struct Insertion {
    marker: String,
    text: String,
    /// The marker and the text where the first marker is missing.
    otherwise: Option<(&'static str, String)>,
}

impl Insertion {
    fn new(marker: &str, text: String) -> Self {
        Self {
            marker: marker.to_owned(),
            text,
            otherwise: None,
        }
    }

    /// A type that has an optional interface; the interface is exported if none has had it yet.
    fn of_interface(interface: &str, handler: &str) -> Self {
        let marker = format!("{interface}s");
        let exported = format!("{interface}: (\n    {handler},\n    {MARKER}{marker}\n),");
        Self {
            marker,
            text: format!("{handler},"),
            otherwise: Some(("interfaces", exported)),
        }
    }

    /// The source with the lines; none where it has no marker.
    fn put(&self, source: &str) -> Option<String> {
        let found = above(source, &self.marker, &self.text);
        found.or_else(|| {
            let (marker, text) = self.otherwise.as_ref()?;
            above(source, marker, text)
        })
    }
}

/// The source with lines above a marker, indented as the marker is.
fn above(source: &str, marker: &str, text: &str) -> Option<String> {
    let marker = format!("{MARKER}{marker}");
    let place = source.lines().position(|line| line.trim() == marker)?;
    let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
    let indent: String = lines[place].chars().take_while(|it| it.is_whitespace()).collect();
    lines.splice(place..place, text.lines().map(|line| format!("{indent}{line}")));
    Some(lines.join("\n") + "\n")
}

/// Changes the library, and prints what could not be put into it.
fn finish(folder: &Path, insertions: &[Insertion], needs_serde_json: bool) -> anyhow::Result<()> {
    let path = folder.join(LIBRARY);
    let mut source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut left = Vec::new();
    for insertion in insertions {
        match insertion.put(&source) {
            Some(changed) => source = changed,
            None => left.push(insertion),
        }
    }
    fs::write(&path, source).with_context(|| format!("cannot write {}", path.display()))?;
    if left.len() < insertions.len() {
        println!("{} (changed)", path.display());
        format_sources(folder);
    }
    if !left.is_empty() {
        println!(
            "\nAdd to {}, which has no comment `{MARKER}...` for it:",
            path.display()
        );
        for Insertion {
            marker,
            text,
            otherwise,
        } in left
        {
            let text = otherwise.as_ref().map_or(text, |(_, text)| text);
            println!("  {marker}:  {}", text.replace('\n', "\n  "));
        }
    }
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    if needs_serde_json && !manifest.contains("serde_json") {
        println!("\nRun `cargo add serde_json`, which the new files need.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_above_their_marker_and_an_interface_is_exported_once() {
        let source = "export!(\n    Operator,\n    // pilothouse:interfaces\n);\n";
        let first = Insertion::of_interface("defaulter", "a::A").put(source).unwrap();
        let second = Insertion::of_interface("defaulter", "b::B").put(&first).unwrap();
        assert_eq!(
            second,
            "export!(\n    Operator,\n    defaulter: (\n        a::A,\n        b::B,\n        // pilothouse:defaulters\n    ),\n    \
             // pilothouse:interfaces\n);\n"
        );
        assert!(Insertion::new("modules", "mod a;".to_owned()).put(source).is_none());
    }

    #[test]
    fn the_name_of_the_package_is_read_and_not_that_of_another_table() {
        let manifest =
            "[lib]\nname = \"a\"\n[package]\nversion = \"1\"\nname = \"site\"\n[dependencies]\nname = \"b\"\n";
        assert_eq!(name_in(manifest).as_deref(), Some("site"));
        assert_eq!(name_in("[workspace]\n[package]\n[lib]\nname = \"a\"\n"), None);
    }

    #[test]
    fn the_kinds_of_a_source_are_those_that_it_defines() {
        let source = "#[resource(group = \"a.b\", version = \"v1\", kind = \"Site\")]\n#[crd(plural = \"sites\")]\nstruct Site;\n\
                      #[resource(group = \"apps\", version = \"v1\", kind = \"Deployment\")]\nstruct Live;\n";
        assert_eq!(kinds_in(source), ["a.b/v1/Site".parse().unwrap()]);
    }
}
