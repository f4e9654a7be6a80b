//! New projects in other languages, plain ones and those with all that a project can have: their own tests pass, they build,
//! and they pass their scenario, in which, with everything, an object is refused, a default is filled in and a deletion runs
//! the finalizer.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

/// Lifecycle exceptions of the contract, and those in the helpers of all languages.
mod lifecycle {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use pilothouse_core::plugin::manifest::OPTIONS;

    fn file(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns the part of a file between two texts.
    fn part(path: &str, begin: &str, end: &str) -> String {
        let text = file(path);
        let (_, rest) = text
            .split_once(begin)
            .unwrap_or_else(|| panic!("{path} has no {begin:?}"));
        rest.split_once(end)
            .unwrap_or_else(|| panic!("{path} has no {end:?} after {begin:?}"))
            .0
            .to_owned()
    }

    /// Returns the first word of each line that is no comment, in lower case and without separators.
    fn names(text: &str) -> BTreeSet<String> {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with("//") && !line.starts_with('"'));
        let words = lines.filter_map(|line| line.split([' ', ':', '?', ',', '=']).next());
        words
            .filter(|word| word.starts_with(|letter: char| letter.is_alphabetic()))
            .map(plain)
            .collect()
    }

    /// Returns a name as the contract has it: `yield` is a keyword of Rust and Python.
    fn plain(word: &str) -> String {
        let word = word.trim_start_matches("PH_").to_lowercase().replace(['-', '_'], "");
        if word == "yields" { "yield".to_owned() } else { word }
    }

    #[test]
    fn every_language_has_each_exception_of_the_contract() {
        let mut contract = names(&part("wit/plugin.wit", "flags lifecycle {", "}"));
        assert_eq!(contract.len(), 3, "{contract:?}");
        contract.extend(OPTIONS.map(plain));
        let examples = "plugins/examples/website";
        let javascript = part(&format!("{examples}-js/pilothouse.js"), "const LIFECYCLE = [", "]");
        let of_javascript: BTreeSet<String> = javascript
            .split(", ")
            .map(|word| plain(word.trim_matches('"')))
            .collect();
        for (language, has) in [
            ("JavaScript", of_javascript),
            (
                "TypeScript",
                names(&part(
                    &format!("{examples}-js/pilothouse.d.ts"),
                    "export interface Lifecycle {",
                    "}",
                )),
            ),
            (
                "Python",
                names(&part(
                    &format!("{examples}-python/pilothouse.py"),
                    "class Lifecycle:\n",
                    "    def options",
                )),
            ),
            (
                "Go",
                names(&part(
                    &format!("{examples}-go/pilothouse/pilothouse.go"),
                    "type Lifecycle struct {",
                    "}",
                )),
            ),
            (
                "Rust",
                names(&part("plugins/sdk/src/outcome.rs", "pub struct Lifecycle {", "}").replace("pub ", "")),
            ),
        ] {
            assert_eq!(has, contract, "{language}");
        }
        // C has flags for what is true or false, and takes the other options as JSON.
        let of_c = names(&part(
            &format!("{examples}-c/pilothouse.h"),
            "// Exceptions to the life of an owned object.\ntypedef enum {",
            "}",
        ));
        assert!(of_c.is_subset(&contract) && of_c.len() == 4, "{of_c:?}");
    }
}

mod external {
    use std::path::Path;
    use std::process::Command;

    /// Runs a program with the tools that the examples are built with.
    fn run(folder: &Path, module: &str, command: &[&str]) -> String {
        let output = Command::new(command[0])
            .args(&command[1..])
            .current_dir(folder)
            .env("VENV", xtask::languages::tools(module).unwrap())
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", command[0]));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}{complained}", command.join(" "));
        said
    }

    /// All that can be asked for.
    const EVERYTHING: [&str; 4] = ["--finalizer", "--admission", "--scope", "Cluster"];

    /// Makes projects, runs the commands of their README, and plays their scenario.
    fn make_and_play(module: &str, language: &str, commands: &[&[&str]]) {
        for options in [&[][..], &EVERYTHING] {
            make_and_play_one(module, language, options, commands);
        }
    }

    fn make_and_play_one(module: &str, language: &str, options: &[&str], commands: &[&[&str]]) {
        const PILOTHOUSE: &str = env!("CARGO_BIN_EXE_pilothouse");
        let folder = tempfile::tempdir().unwrap();
        let new = [
            PILOTHOUSE,
            "new",
            "site",
            "--kind",
            "example.com/v1/Site",
            "--lang",
            language,
        ];
        run(folder.path(), module, &[new.as_slice(), options].concat());
        let project = folder.path().join("site");
        for command in commands {
            run(&project, module, command);
        }
        let said = run(&project, module, &[PILOTHOUSE, "test"]);
        assert!(said.contains("scenarios/site.yaml"), "{said}");
        run(&project, module, &[PILOTHOUSE, "build", "target/plugins/site.wasm"]);
        let manifests = run(&project, module, &[PILOTHOUSE, "manifests"]);
        assert!(manifests.contains("kind: CustomResourceDefinition"), "{manifests}");
        let inspected = run(&project, module, &[PILOTHOUSE, "inspect", "target/plugins/site.wasm"]);
        for interface in ["finalizer", "defaulter", "validator"] {
            assert_eq!(
                inspected.contains(interface),
                !options.is_empty(),
                "{options:?}: {inspected}"
            );
        }
    }

    /// Adds a kind with everything to a project that has nothing, and admission to its first kind; then builds and tests all.
    fn add_and_play(module: &str, language: &str, commands: &[&[&str]]) {
        const PILOTHOUSE: &str = env!("CARGO_BIN_EXE_pilothouse");
        let folder = tempfile::tempdir().unwrap();
        let new = |folder: &Path, arguments: &[&str]| {
            let said = run(folder, module, &[&[PILOTHOUSE, "new"], arguments].concat());
            assert!(!said.contains("Add to"), "{said}");
        };
        new(
            folder.path(),
            &["site", "--kind", "example.com/v1/Site", "--lang", language],
        );
        let project = folder.path().join("site");
        new(
            &project,
            &[
                "kind",
                "shop.example.com/v1beta1/PhotoGallery",
                "--scope",
                "Cluster",
                "--finalizer",
                "--admission",
            ],
        );
        new(&project, &["admission", "Site"]);
        for command in commands {
            run(&project, module, command);
        }
        let said = run(&project, module, &[PILOTHOUSE, "test"]);
        for scenario in ["scenarios/site.yaml", "scenarios/photo-gallery.yaml"] {
            assert!(said.contains(scenario), "{said}");
        }
        let inspected = run(&project, module, &[PILOTHOUSE, "inspect", "target/plugins/site.wasm"]);
        let manifests = run(&project, module, &[PILOTHOUSE, "manifests"]);
        for name in ["sites.example.com", "photogalleries.shop.example.com"] {
            assert!(manifests.contains(&format!("name: {name}")), "{manifests}");
        }
        for interface in ["finalizer", "defaulter", "validator"] {
            assert!(inspected.contains(interface), "{inspected}");
        }
    }

    mod javascript {
        #[test]
        fn new_projects_build_and_pass_their_tests() {
            let install = ["npm", "install", "--no-audit", "--no-fund"];
            let commands = [
                &install[..],
                &["npm", "test"],
                &["npm", "run", "check"],
                &["npm", "run", "build"],
            ];
            super::make_and_play("javascript", "js", &commands);
        }

        #[test]
        fn added_kinds_and_admission_build_and_pass_their_tests() {
            let commands = [
                &["npm", "install", "--no-audit", "--no-fund"][..],
                &["npm", "test"],
                &["npm", "run", "check"],
                &["npm", "run", "build"],
            ];
            super::add_and_play("javascript", "js", &commands);
        }
    }

    mod python {
        #[test]
        fn new_projects_build_and_pass_their_tests() {
            super::make_and_play("python", "python", &[&["make", "test"], &["make", "build"]]);
        }

        #[test]
        fn added_kinds_and_admission_build_and_pass_their_tests() {
            super::add_and_play("python", "python", &[&["make", "test"], &["make", "build"]]);
        }
    }

    mod golang {
        #[test]
        fn new_projects_build_and_pass_their_tests() {
            let commands = [
                &["go", "vet", "./..."][..],
                &["go", "test", "./..."],
                &["go", "run", "./tool"],
            ];
            super::make_and_play("golang", "go", &commands);
        }

        #[test]
        fn added_kinds_and_admission_build_and_pass_their_tests() {
            let commands = [
                // The files that gofmt would change: none.
                &["sh", "-c", "test -z \"$(gofmt -l .)\""][..],
                &["go", "vet", "./..."],
                &["go", "test", "./..."],
                &["go", "run", "./tool"],
            ];
            super::add_and_play("golang", "go", &commands);
        }
    }

    mod c {
        #[test]
        fn new_projects_build_and_pass_their_tests() {
            super::make_and_play("c", "c", &[&["make", "test"], &["make", "build"]]);
        }

        #[test]
        fn added_kinds_and_admission_build_and_pass_their_tests() {
            super::add_and_play("c", "c", &[&["make", "test"], &["make", "build"]]);
        }
    }
}
