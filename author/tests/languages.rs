//! New projects in other languages, plain ones and those with all that a project can have: their own tests pass, they build,
//! and they pass their scenario, in which, with everything, an object is refused, a default is filled in and a deletion runs
//! the finalizer.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod external {
    use std::path::Path;
    use std::process::Command;

    /// Runs a program, whose tools are those that the examples are built with.
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

    /// Makes projects, runs what their README says, and plays their scenario.
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
        fn kinds_and_admission_that_are_added_build_and_pass_their_tests() {
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
        fn kinds_and_admission_that_are_added_build_and_pass_their_tests() {
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
        fn kinds_and_admission_that_are_added_build_and_pass_their_tests() {
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
        fn kinds_and_admission_that_are_added_build_and_pass_their_tests() {
            super::add_and_play("c", "c", &[&["make", "test"], &["make", "build"]]);
        }
    }
}
