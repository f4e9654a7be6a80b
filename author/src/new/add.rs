//! Adds to an existing project: the files of a kind or of its admission, and the lines that name them in existing
//! files. Lines are inserted above a comment such as `// pilothouse:controllers`; if it is missing, they are printed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::template::{LANGUAGES, Language, MadeLines, Values};
use super::{KindOptions, NewKind, SPEC_INDENT, Scope, format_sources, samples, values, write};

/// Beginning of a marker, in a comment of its language.
const MARKER: &str = "pilothouse:";

/// Adds a kind.
pub fn kind(folder: &Path, kind: &NewKind, options: &KindOptions) -> anyhow::Result<()> {
    let project = Project::open(folder)?;
    let values = project.values(kind, options);
    let mut files = project.language.kind.to_vec();
    if options.admission {
        files.extend(project.language.admission);
    }
    let written = write(folder, &files, &values)?;
    let lines = lines(project.language, options.admission, &values);
    finish(folder, project.language, &written, &lines)?;
    say_what_is_needed(folder, options.admission);
    Ok(())
}

/// Adds a defaulter and a validator for a kind of the project.
pub fn admission(folder: &Path, kind: &str) -> anyhow::Result<()> {
    let project = Project::open(folder)?;
    let KnownKind { kind, scope } = project.kind(folder, kind)?;
    let options = KindOptions {
        scope,
        plural: None,
        finalizer: false,
        admission: true,
    };
    let mut values = project.values(&kind, &options);
    let sample = samples::spec_of(folder, &format!("{}/{}", kind.group, kind.version), &kind.kind);
    if let Some(spec) = &sample {
        values.texts.insert("spec", samples::in_rust(spec, SPEC_INDENT));
    }
    let written = write(folder, project.language.admission, &values)?;
    let lines = project.language.admission_lines.iter();
    let lines: Vec<_> = lines.filter_map(|lines| lines.made(&values)).collect();
    finish(folder, project.language, &written, &lines)?;
    say_what_is_needed(folder, true);
    if let (Some(file), None) = (with_spec(project.language, &values), sample) {
        println!(
            "\n{} tests with the spec {}, because no sample of the kind {} was found; write one there that the kind allows.",
            folder.join(file).display(),
            values.texts["spec"],
            kind.kind
        );
    }
    Ok(())
}

/// Returns the file of admission whose tests have a spec.
fn with_spec(language: &Language, values: &Values) -> Option<String> {
    let file = language.admission.iter().find(|file| file.text.contains("{{spec}}"))?;
    file.made(values).map(|(path, _)| path)
}

/// Returns the lines that name a kind in the files of a project.
pub fn lines(language: &Language, with_admission: bool, values: &Values) -> Vec<MadeLines> {
    let admission = if with_admission { language.admission_lines } else { &[] };
    let lines = language.kind_lines.iter().chain(admission);
    lines.filter_map(|lines| lines.made(values)).collect()
}

/// Facts about a project.
struct Project {
    name: String,
    language: &'static Language,
    /// Path of a Go module, the prefix of its imports.
    go_module: Option<String>,
}

/// A kind of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownKind {
    kind: NewKind,
    scope: Scope,
}

impl Project {
    fn open(folder: &Path) -> anyhow::Result<Self> {
        let shown = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        if let Some(language) = Language::of_project(folder) {
            let plugin = folder.join(language.plugin);
            let text = fs::read_to_string(&plugin).with_context(|| {
                format!(
                    "{} is no project that kinds can be added to: it has no {}, which says what the plugin consists of",
                    shown.display(),
                    language.plugin
                )
            })?;
            let name = plugin_name_in(&text).with_context(|| {
                format!(
                    "{} says no name of the plugin, as in `name: \"website\"`",
                    plugin.display()
                )
            })?;
            let go_module = fs::read_to_string(folder.join("go.mod")).ok();
            return Ok(Self {
                name,
                language,
                go_module: go_module.as_deref().and_then(go_module_in),
            });
        }
        let manifest = folder.join("Cargo.toml");
        ensure!(
            manifest.exists(),
            "{} is no project: it has no Cargo.toml, and no helper of another language; run the command in the folder of one",
            shown.display()
        );
        let text = fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
        let name = package_name(&text).with_context(|| {
            format!(
                "{} names no package; run the command in the folder of a plugin",
                manifest.display()
            )
        })?;
        let language = LANGUAGES
            .iter()
            .find(|it| it.name == "rust")
            .expect("there is a template for Rust");
        ensure!(
            folder.join(language.plugin).is_file(),
            "{} is no plugin: it has no {}",
            shown.display(),
            language.plugin
        );
        Ok(Self {
            name,
            language,
            go_module: None,
        })
    }

    /// Returns the values for the templates. Cargo.toml and README stay as they are.
    fn values(&self, kind: &NewKind, options: &KindOptions) -> Values {
        let mut values = values(&self.name, self.language, kind, options);
        values.texts.insert("sdk", String::new());
        if let Some(module) = &self.go_module {
            values.texts.insert("go_module", module.clone());
        }
        values
    }

    /// Returns a kind of the project by its name, found in the modules of a project in Rust, or in the CRDs where none is made from a
    /// type.
    fn kind(&self, folder: &Path, name: &str) -> anyhow::Result<KnownKind> {
        let of_types: fn(&str) -> Vec<KnownKind> = kinds_in;
        let sources = [("src", of_types), ("crds", kinds_in_crds)];
        let is_rust = self.language.helper.is_none();
        let mut known: Vec<KnownKind> = Vec::new();
        for (sources, kinds_in) in sources.into_iter().filter(|(sources, _)| is_rust || *sources == "crds") {
            let sources = folder.join(sources);
            if is_rust && !sources.is_dir() {
                continue;
            }
            for entry in fs::read_dir(&sources).with_context(|| format!("cannot read {}", sources.display()))? {
                let path = entry?.path();
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let found = kinds_in(&text);
                let is_new = |it: &KnownKind| known.iter().all(|known| known.kind.kind != it.kind.kind);
                let new: Vec<_> = found.into_iter().filter(is_new).collect();
                known.extend(new);
            }
        }
        known.sort_by(|one, other| one.kind.kind.cmp(&other.kind.kind));
        let names = || {
            known
                .iter()
                .map(|known| known.kind.kind.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let Some(kind) = known.iter().find(|known| known.kind.kind == name) else {
            bail!(
                "{} has no kind {name}; it has {}. `pilothouse new kind` adds one",
                self.name,
                if known.is_empty() { "none".to_owned() } else { names() }
            );
        };
        Ok(kind.clone())
    }
}

/// Returns the name of the package in a Cargo.toml.
pub(crate) fn package_name(manifest: &str) -> Option<String> {
    let (_, package) = manifest.split_once("[package]")?;
    let lines = package.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    let name = lines
        .filter_map(|line| line.split_once('='))
        .find(|(key, _)| key.trim() == "name");
    name.map(|(_, value)| value.trim().trim_matches(['"', '\'']).to_owned())
}

/// Returns the plugin's name in the file that lists its parts: the first member `name` with a string, which is written
/// `name: "a"` in JavaScript, `name="a"` in Python, `Name: "a"` in Go and `.name = "a"` in C.
fn plugin_name_in(source: &str) -> Option<String> {
    let members = source.lines().filter_map(|line| {
        let member = line.trim().trim_start_matches('.');
        let rest = member.strip_prefix("name").or_else(|| member.strip_prefix("Name"))?;
        let value = rest.trim_start().strip_prefix([':', '='])?;
        value.trim_start().strip_prefix('"')?.split_once('"')
    });
    let name = members.map(|(name, _)| name.to_owned()).next();
    name.filter(|name| !name.is_empty())
}

/// Returns the path of a module in its go.mod.
fn go_module_in(text: &str) -> Option<String> {
    let module = text.lines().find_map(|line| line.trim().strip_prefix("module "));
    module.map(|path| path.trim().trim_matches('"').to_owned())
}

/// Returns the kinds whose CRD a source makes: those with the attribute `#[crd]`.
fn kinds_in(source: &str) -> Vec<KnownKind> {
    let attributes = source.split("#[resource(").skip(1);
    let kinds = attributes.filter_map(|rest| {
        let (members, after) = rest.split_once(")]")?;
        let crd = after.trim_start().strip_prefix("#[crd(")?;
        let crd = crd.split_once(")]").map_or(crd, |(crd, _)| crd);
        let member = |name: &str| {
            let (_, value) = members.split_once(&format!("{name} = \""))?;
            value.split_once('"').map(|(value, _)| value.to_owned())
        };
        Some(KnownKind {
            kind: NewKind {
                group: member("group")?,
                version: member("version")?,
                kind: member("kind")?,
            },
            scope: scope_of(crd.contains("scope = \"Cluster\"")),
        })
    });
    kinds.collect()
}

/// Returns the kinds of the CRDs in a file, each in its stored version. Other objects are ignored.
fn kinds_in_crds(text: &str) -> Vec<KnownKind> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_default();
    let kinds = documents.iter().filter_map(|crd| {
        let text = |path: &str| crd.pointer(path)?.as_str().map(str::to_owned);
        let versions = crd.pointer("/spec/versions")?.as_array()?;
        let stored = versions.iter().find(|version| version["storage"] == true)?;
        Some(KnownKind {
            kind: NewKind {
                group: text("/spec/group")?,
                version: stored["name"].as_str()?.to_owned(),
                kind: text("/spec/names/kind")?,
            },
            scope: scope_of(text("/spec/scope")? == "Cluster"),
        })
    });
    kinds.collect()
}

fn scope_of(is_of_cluster: bool) -> Scope {
    if is_of_cluster {
        Scope::Cluster
    } else {
        Scope::Namespaced
    }
}

/// Returns a marker as a file of this name has it.
fn marker_in(path: &str, marker: &str) -> String {
    let comment = if Path::new(path).extension().is_some_and(|it| it == "py") {
        "#"
    } else {
        "//"
    };
    format!("{comment} {MARKER}{marker}")
}

/// Returns the source with the lines; none if it has no marker.
fn insert(lines: &MadeLines, source: &str) -> Option<String> {
    let MadeLines {
        path,
        marker,
        text,
        otherwise,
        is_shared,
    } = lines;
    let has = |line: &str| source.lines().any(|it| it.trim() == line.trim());
    if *is_shared && text.lines().all(has) {
        return Some(source.to_owned());
    }
    above(source, &marker_in(path, marker), text).or_else(|| {
        let (marker, text) = otherwise.as_ref()?;
        above(source, &marker_in(path, marker), text)
    })
}

/// Returns the source with lines above a marker, indented like the marker.
fn above(source: &str, marker: &str, text: &str) -> Option<String> {
    let place = source.lines().position(|line| line.trim() == marker)?;
    let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
    let indent: String = lines[place].chars().take_while(|it| it.is_whitespace()).collect();
    let indented = |line: &str| {
        if line.is_empty() {
            String::new()
        } else {
            format!("{indent}{line}")
        }
    };
    lines.splice(place..place, text.lines().map(indented));
    Some(lines.join("\n") + "\n")
}

/// Result of inserting lines.
#[derive(Debug)]
pub struct Put<'a> {
    /// The files that have changed.
    pub changed: Vec<&'a str>,
    /// The lines whose marker is missing.
    pub left: Vec<&'a MadeLines>,
}

/// Puts lines into the files of a project.
pub fn put_all<'a>(folder: &Path, lines: &'a [MadeLines]) -> anyhow::Result<Put<'a>> {
    let mut paths: Vec<&str> = Vec::new();
    for MadeLines { path, .. } in lines {
        if !paths.contains(&path.as_str()) {
            paths.push(path);
        }
    }
    let mut result = Put {
        changed: Vec::new(),
        left: Vec::new(),
    };
    for path in paths {
        let own = lines.iter().filter(|lines| lines.path == path);
        let file = folder.join(path);
        if !file.is_file() {
            result.left.extend(own);
            continue;
        }
        let before = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut source = before.clone();
        for lines in own {
            match insert(lines, &source) {
                Some(changed) => source = changed,
                None => result.left.push(lines),
            }
        }
        if source != before {
            fs::write(&file, source).with_context(|| format!("cannot write {}", file.display()))?;
            result.changed.push(path);
        }
    }
    Ok(result)
}

/// Changes the files of a project, and prints the written and changed files, and the lines that could not be inserted.
fn finish(folder: &Path, language: &Language, written: &[PathBuf], lines: &[MadeLines]) -> anyhow::Result<()> {
    for path in written {
        println!("{}", path.display());
    }
    let Put { changed, left } = put_all(folder, lines)?;
    for path in changed.iter().map(|path| folder.join(path)) {
        if !written.contains(&path) {
            println!("{} (changed)", path.display());
        }
    }
    let changed = changed.iter().map(|path| folder.join(path));
    let touched: Vec<_> = written.iter().cloned().chain(changed).collect();
    format_sources(language, &touched);
    let mut before = None;
    for lines in left {
        let MadeLines {
            path,
            marker,
            text,
            otherwise,
            ..
        } = lines;
        if before != Some(path) {
            println!(
                "\nAdd to {}, which has no comment `{}` for it:",
                folder.join(path).display(),
                marker_in(path, "...")
            );
            before = Some(path);
        }
        let text = otherwise.as_ref().map_or(text, |(_, text)| text);
        println!("  {marker}:  {}", text.trim_end().replace('\n', "\n  "));
    }
    Ok(())
}

/// Prints the dependencies that a project in Rust lacks.
fn say_what_is_needed(folder: &Path, needs_serde_json: bool) {
    let manifest = fs::read_to_string(folder.join("Cargo.toml"));
    if needs_serde_json && manifest.is_ok_and(|text| !text.contains("serde_json")) {
        println!("\nRun `cargo add serde_json`, which the new files need.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, marker: &'static str, text: &str) -> MadeLines {
        MadeLines {
            path: path.to_owned(),
            marker,
            text: text.to_owned(),
            otherwise: None,
            is_shared: false,
        }
    }

    #[test]
    fn lines_are_above_their_marker_and_exports_are_not_repeated() {
        let source = "export!(\n    Operator,\n    // pilothouse:interfaces\n);\n";
        let exported = |handler: &str| MadeLines {
            otherwise: Some((
                "interfaces",
                format!("defaulter: (\n    {handler},\n    // pilothouse:defaulters\n),"),
            )),
            ..lines("src/lib.rs", "defaulters", &format!("{handler},"))
        };
        let first = insert(&exported("a::A"), source).unwrap();
        let second = insert(&exported("b::B"), &first).unwrap();
        assert_eq!(
            second,
            "export!(\n    Operator,\n    defaulter: (\n        a::A,\n        b::B,\n        // pilothouse:defaulters\n    ),\n    \
             // pilothouse:interfaces\n);\n"
        );
        assert!(insert(&lines("src/lib.rs", "modules", "mod a;"), source).is_none());
    }

    #[test]
    fn markers_are_comments_and_shared_lines_are_not_repeated() {
        let python = "# pilothouse:exports\n";
        assert_eq!(
            insert(&lines("app.py", "exports", "a = b\n\n"), python).unwrap(),
            "a = b\n\n# pilothouse:exports\n"
        );
        assert_eq!(insert(&lines("main.go", "exports", "a"), python), None);
        let shared = MadeLines {
            is_shared: true,
            ..lines("wit/world.wit", "exports", "export a;\nexport b;")
        };
        let once = insert(&shared, "{\n    // pilothouse:exports\n}\n").unwrap();
        assert_eq!(once, "{\n    export a;\n    export b;\n    // pilothouse:exports\n}\n");
        assert_eq!(insert(&shared, &once).unwrap(), once);
        // Works even if the marker was removed.
        let without = once.replace("    // pilothouse:exports\n", "");
        assert_eq!(insert(&shared, &without).unwrap(), without);
    }

    #[test]
    fn the_name_is_read_from_the_table_package() {
        let manifest =
            "[lib]\nname = \"a\"\n[package]\nversion = \"1\"\nname = \"site\"\n[dependencies]\nname = \"b\"\n";
        assert_eq!(package_name(manifest).as_deref(), Some("site"));
        assert_eq!(package_name("[workspace]\n[package]\n[lib]\nname = \"a\"\n"), None);
    }

    #[test]
    fn the_name_of_a_plugin_is_read_in_each_language() {
        for source in [
            "export const operator = {\n  name: \"site\",\n",
            "PLUGIN = Plugin(\n    name=\"site\",\n",
            "\t\tName:        \"site\",\n\t\tVersion: \"1\",\n",
            "    .name = \"site\",\n",
        ] {
            assert_eq!(plugin_name_in(source).as_deref(), Some("site"), "{source}");
        }
        assert_eq!(plugin_name_in("names: \"site\"\nname: NAME\nname: \"\"\n"), None);
        let go = "// module of\nmodule example.com/a/site\n\ngo 1.24\n";
        assert_eq!(go_module_in(go).as_deref(), Some("example.com/a/site"));
    }

    #[test]
    fn the_kinds_of_a_source_are_those_that_it_defines() {
        let source = "#[resource(group = \"a.b\", version = \"v1\", kind = \"Site\")]\n\
                      #[crd(plural = \"sites\", scope = \"Cluster\")]\nstruct Site;\n\
                      #[resource(group = \"apps\", version = \"v1\", kind = \"Deployment\")]\nstruct Live;\n";
        let site = KnownKind {
            kind: "a.b/v1/Site".parse().unwrap(),
            scope: Scope::Cluster,
        };
        assert_eq!(kinds_in(source), std::slice::from_ref(&site));
        let crd = "spec:\n  group: a.b\n  names: {kind: Site}\n  scope: Cluster\n  versions:\n  - {name: v1beta1}\n  - {name: v1, \
                   storage: true}\n---\nkind: ConfigMap\n";
        assert_eq!(kinds_in_crds(crd), [site]);
        assert_eq!(kinds_in_crds("{"), []);
    }
}
