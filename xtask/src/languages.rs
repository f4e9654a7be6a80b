//! Builds the examples in other languages, each with its own tools. Where a program is missing, a message names it and
//! the tests of that language are left out; an example that does not build is a failure.
//! `tests/end-to-end/tests/languages` tests the components.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use pilothouse_programs::environment;

use crate::root;

/// One language: the module of its tests, its folder, the programs that it needs, and the builder of its plugins.
struct Language {
    module: &'static str,
    folder: &'static str,
    /// Programs, each with the arguments that print its version.
    needs: &'static [&'static [&'static str]],
    build: &'static [&'static [&'static str]],
}

const LANGUAGES: [Language; 4] = [
    Language {
        module: "javascript",
        folder: "website-js",
        needs: &[&["node", "--version"], &["npm", "--version"]],
        build: &[
            // Not `npm ci`: it refuses the lock file, because componentize-qjs names packages for platforms that were never published.
            // Without `--no-save`, npm would change the lock file.
            &["npm", "install", "--no-save", "--no-audit", "--no-fund"],
            &["npm", "run", "build"],
            &["node", "build.js", "fixtures/throwing.js", "build/throwing.wasm"],
            &["env", "KEEP_WASI=1", "node", "build.js", "plugin.js", "build/wasi.wasm"],
        ],
    },
    Language {
        module: "python",
        folder: "website-python",
        needs: &[&["python3", "--version"], &["make", "--version"]],
        build: &[
            &["make", "build"],
            &["make", "build", "ENTRY=throwing", "OUTPUT=build/throwing.wasm"],
            &["make", "build", "WASI=", "OUTPUT=build/wasi.wasm"],
        ],
    },
    Language {
        module: "golang",
        folder: "website-go",
        needs: &[&["go", "version"], &["python3", "--version"]],
        build: &[
            &["go", "run", "./tool"],
            &["go", "run", "./tool", "./fixtures/panicking", "build/throwing.wasm"],
            &["go", "run", "./tool", "./fixtures/fatal", "build/fatal.wasm"],
        ],
    },
    Language {
        module: "c",
        folder: "website-c",
        needs: &[&["python3", "--version"], &["make", "--version"], &["cc", "--version"]],
        build: &[
            &["make", "build"],
            &[
                "make",
                "build",
                "ENTRY=fixtures/panicking.c",
                "OUTPUT=build/throwing.wasm",
            ],
        ],
    },
];

/// Reason why an example is not built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotBuilt {
    /// A program is not installed.
    Missing(String),
    /// The build failed.
    Failed(String),
}

/// Builds all examples that can be built; returns the others, by the module of their tests.
pub(crate) fn build() -> Vec<(&'static str, NotBuilt)> {
    let not_built = |language: &Language| Some((language.module, build_one(language).err()?));
    LANGUAGES.iter().filter_map(not_built).collect()
}

fn build_one(language: &Language) -> Result<(), NotBuilt> {
    let Language {
        module,
        folder,
        needs,
        build,
    } = language;
    let folder = root().join("plugins/examples").join(folder);
    for need in *needs {
        let found = Command::new(need[0]).args(&need[1..]).output();
        let is_there = found.is_ok_and(|output| output.status.success());
        if !is_there {
            let program = need[0];
            let words = format!("the example in {module} is not built: there is no {program}; install it");
            return Err(NotBuilt::Missing(words));
        }
    }
    let failed = |words: String| NotBuilt::Failed(format!("the example in {module} is not built: {words}"));
    let venv = tools(module).map_err(|error| failed(format!("{error:#}")))?;
    for command in *build {
        println!("{}: {}", folder.display(), command.join(" "));
        let output = Command::new(command[0])
            .args(&command[1..])
            .current_dir(&folder)
            .env("VENV", &venv)
            .output()
            .map_err(|error| failed(format!("cannot run {}: {error}", command[0])))?;
        if !output.status.success() {
            let last = last_line(&output.stderr);
            return Err(failed(format!("`{}` failed: {last}", command.join(" "))));
        }
    }
    Ok(())
}

/// Returns the folder of a language's tools from PyPI, by the module of its tests.
///
/// # Errors
///
/// If there is no cache directory.
pub fn tools(module: &str) -> Result<PathBuf> {
    let cache = environment::cache().context("set HOME or XDG_CACHE_HOME, for the tools of other languages")?;
    Ok(cache.join("pilothouse/external").join(format!("venv-{module}")))
}

fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("it said nothing").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Copies of the CRD in the languages' folders, so that each folder is a project of its own.
    const CRDS: [&str; 4] = [
        "website-js/crd.yaml",
        "website-python/crd.yaml",
        "website-go/website/crd.yaml",
        "website-c/crd.yaml",
    ];

    /// Parts of the examples and of the contract in the templates of `pilothouse new`: links, so that there is one
    /// text.
    const COPIES: [(&str, &str); 13] = [
        ("plugins/examples/website-js/pilothouse.js", "js/pilothouse.js.in"),
        ("plugins/examples/website-js/pilothouse.d.ts", "js/pilothouse.d.ts.in"),
        (
            "plugins/examples/website-python/pilothouse.py",
            "python/pilothouse.py.in",
        ),
        (
            "plugins/examples/website-go/pilothouse/pilothouse.go",
            "go/pilothouse.go.in",
        ),
        (
            "plugins/examples/website-go/pilothouse/component.go",
            "go/component.go.in",
        ),
        (
            "plugins/examples/website-go/pilothouse/finalizer_component.go",
            "go/finalizer_component.go.in",
        ),
        (
            "plugins/examples/website-go/pilothouse/admission_component.go",
            "go/admission_component.go.in",
        ),
        ("plugins/examples/website-go/tool/wasi.wat", "go/wasi.wat.in"),
        ("plugins/examples/website-go/tool/wasi.wit", "go/wasi.wit.in"),
        ("plugins/examples/website-c/pilothouse.h", "c/pilothouse.h.in"),
        ("plugins/examples/website-c/pilothouse.c", "c/pilothouse.c.in"),
        ("plugins/examples/website-c/component.c", "c/component.c.in"),
        ("wit/plugin.wit", "plugin.wit.in"),
    ];

    /// Writes the copy where `UPDATE` is set, and compares it.
    fn keep(original: &Path, copy: &Path) {
        let shared = fs::read_to_string(original).unwrap();
        if std::env::var_os("UPDATE").is_some() {
            fs::write(copy, &shared).unwrap();
        }
        let found = fs::read_to_string(copy).unwrap_or_default();
        assert!(
            found == shared,
            "{} is stale: run `cargo xtask generate`",
            copy.display()
        );
    }

    #[test]
    fn generated_templates_have_the_helpers_of_the_examples() {
        for (original, copy) in COPIES {
            keep(&root().join(original), &root().join("author/templates").join(copy));
            // That is how a template begins a value.
            assert!(
                !fs::read_to_string(root().join(original)).unwrap().contains("{{"),
                "{original}"
            );
        }
    }

    /// The names of an interface's members, as far as they are no functions.
    fn members_of(interface: &str, types: &str) -> Vec<String> {
        let (_, body) = types.split_once(&format!("export interface {interface}")).unwrap();
        let (_, body) = body.split_once('\n').unwrap();
        let (body, _) = body.split_once("\n}").unwrap();
        let member = |line: &str| {
            let name: String = line
                .trim_start()
                .chars()
                .take_while(char::is_ascii_alphabetic)
                .collect();
            let rest = line.trim_start().strip_prefix(&name)?;
            let is_member = rest.starts_with(':') || rest.starts_with("?:");
            (is_member && line.starts_with("  ") && !name.is_empty()).then_some(name)
        };
        body.lines().filter_map(member).collect()
    }

    #[test]
    fn the_types_for_javascript_have_the_members_of_the_manifest() {
        let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
        let types = read("plugins/examples/website-js/pilothouse.d.ts");
        let schema: serde_json::Value = serde_json::from_str(&read("wit/manifest.schema.json")).unwrap();
        for (definition, interface) in [
            ("/$defs/Touch", "Touch"),
            ("/$defs/Filter", "Filter"),
            ("/$defs/Admission", "Admission"),
            ("/$defs/Controller", "Controller"),
            ("", "Plugin"),
        ] {
            let properties = schema.pointer(definition).unwrap()["properties"].as_object().unwrap();
            // These two the helper fills in.
            let is_written = |name: &&String| !["defaulter", "validator"].contains(&name.as_str());
            let mut members = members_of(interface, &types);
            members.sort();
            let mut written: Vec<&String> = properties.keys().filter(is_written).collect();
            written.sort();
            assert_eq!(members.iter().collect::<Vec<_>>(), written, "{interface}");
        }
    }

    #[test]
    fn what_answers_for_wasi_in_go_logs_through_the_contract() {
        let log_of = |file: &str| {
            let text = fs::read_to_string(root().join(file)).unwrap();
            let (_, log) = text.split_once("interface log {").unwrap();
            log.split_once("\n}").unwrap().0.to_owned()
        };
        let copy = "plugins/examples/website-go/tool/wasi.wit";
        assert_eq!(log_of(copy), log_of("wit/plugin.wit"));
    }

    #[test]
    fn generated_each_example_has_the_crd_that_all_share() {
        let examples = root().join("plugins/examples");
        for copy in CRDS {
            keep(&examples.join("website.crd.yaml"), &examples.join(copy));
        }
    }

    #[test]
    fn an_example_that_does_not_build_is_no_missing_tool() {
        let built = |needs, build| {
            build_one(&Language {
                module: "shell",
                folder: "website-c",
                needs,
                build,
            })
        };
        let (shell, absent): (&[&[&str]], &[&[&str]]) =
            (&[&["sh", "-c", "true"]], &[&["no-such-compiler", "--version"]]);
        assert_eq!(built(shell, &[&["true"]]), Ok(()));
        let NotBuilt::Missing(words) = built(absent, &[&["true"]]).unwrap_err() else {
            panic!("the compiler is missing");
        };
        assert!(words.contains("there is no no-such-compiler; install it"), "{words}");
        let NotBuilt::Failed(words) = built(shell, &[&["true"], &["sh", "-c", "echo typo >&2; exit 2"]]).unwrap_err()
        else {
            panic!("all that it needs is there");
        };
        assert!(words.ends_with("failed: typo"), "{words}");
    }

    #[test]
    fn what_a_tool_said_last_is_the_reason() {
        assert_eq!(last_line(b"warning\nerror: no network\n\n"), "error: no network");
        assert_eq!(last_line(b""), "it said nothing");
    }
}
