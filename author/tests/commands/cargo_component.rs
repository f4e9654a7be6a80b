//! A crate that needs nothing but the SDK also builds with cargo-component: a new project, and a plugin of this repository.

mod external {
    mod cargo_component {
        use std::path::{Path, PathBuf};
        use std::process::Command;
        use std::sync::{Mutex, PoisonError};

        use pilothouse_external::programs::Program;
        use serde_json::Value;

        use crate::program::{call, checkout, ended};

        /// The first build has rustup install a target, which fails if two do so at once.
        static BUILDS: Mutex<()> = Mutex::new(());

        /// Builds a crate as the README of a new project says; gives the component.
        fn build(folder: &Path, library: &str) -> PathBuf {
            let target = checkout().join("target/cargo-component").join(library);
            let cargo_component = Program::CargoComponent.path();
            let mut command = Command::new(cargo_component);
            command
                .args(["component", "build", "--release", "--target", "wasm32-unknown-unknown"])
                .current_dir(folder)
                .env("CARGO_TARGET_DIR", &target)
                // The one of these tests says what this workspace is built with.
                .env_remove("CARGO");
            let building = BUILDS.lock().unwrap_or_else(PoisonError::into_inner);
            ended(&mut command).ok();
            drop(building);
            target
                .join("wasm32-unknown-unknown/release")
                .join(format!("{library}.wasm"))
        }

        fn inspected(component: &Path) -> Value {
            let folder = component.parent().unwrap();
            let said = call(folder, &["inspect", component.to_str().unwrap(), "-o", "json"]).ok();
            serde_json::from_str(&said).unwrap()
        }

        #[test]
        fn builds_a_new_project_whose_component_passes_its_scenarios() {
            let folder = tempfile::tempdir().unwrap();
            let sdk = checkout().to_str().unwrap();
            let kind = "example.com/v1/Site";
            let new = [
                "new",
                "site",
                "--kind",
                kind,
                "--finalizer",
                "--admission",
                "--sdk",
                sdk,
            ];
            call(folder.path(), &new).ok();
            let project = folder.path().join("site");
            let component = build(&project, "site");
            let said = inspected(&component);
            assert_eq!(
                (&said["errors"], &said["wasi"]["grant"]),
                (&Value::from(Vec::<Value>::new()), &"None".into())
            );
            let interfaces = Value::from(["reconciler", "finalizer", "defaulter", "validator"].to_vec());
            assert_eq!(said["controllers"][0]["interfaces"], interfaces);
            let played = call(&project, &["test", component.to_str().unwrap(), "scenarios"]).ok();
            assert!(played.contains("passed"), "{played}");
        }

        #[test]
        fn builds_a_plugin_of_this_repository() {
            let component = build(&checkout().join("plugins/service-ingress"), "service_ingress");
            let said = inspected(&component);
            assert_eq!(said["manifest"]["name"], "service-ingress");
            assert_eq!(said["wasi"]["grant"], "None");
        }
    }
}
