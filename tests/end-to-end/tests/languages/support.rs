//! Runs an example: its own test runner, and its component in a host on the simulated cluster.

use std::path::PathBuf;
use std::process::Command;

use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_end_to_end::components;
use pilothouse_runtime::HostOptions;
use pilothouse_sandbox::{ComponentError, LoadError, PluginComponent, Sandbox};
use pilothouse_testhost::{Components, RuntimeHost, Tail, unhurried};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::isolation::Isolated;
use pilothouse_testkit::scenario::{self, Scenario};
use serde_json::json;

/// The component of an example, whatever a scenario calls it.
struct Example(PluginComponent);

impl Components for Example {
    fn sandbox(&self) -> Sandbox {
        components::sandbox().clone()
    }

    fn directory(&self) -> PathBuf {
        components::folder()
    }

    fn load(&self, _: &str) -> Result<PluginComponent, String> {
        Ok(self.0.clone())
    }
}

fn examples() -> PathBuf {
    components::root().join("plugins").join("examples")
}

/// Runs the tests that an example has in its own language.
pub fn run_tests(folder: &str, command: &[&str]) {
    let output = Command::new(command[0])
        .args(&command[1..])
        .current_dir(examples().join(folder))
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", command[0]));
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn load(folder: &str, file: &str, wasi: Wasi) -> Result<PluginComponent, LoadError> {
    let path = examples().join(folder).join("build").join(file);
    assert!(
        path.is_file(),
        "{} is missing: `cargo xtask test --only external` builds it",
        path.display()
    );
    components::sandbox().granting(wasi).load(&path)
}

/// Returns the log of an example's component that prints, and then throws.
pub fn log_of_throwing(folder: &str) -> Vec<String> {
    let component = examples().join(folder).join("build").join("throwing.wasm");
    let plugin = Isolated::load(&component).unwrap_or_else(|error| panic!("{error}"));
    let website = json!({
        "apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": "blog", "namespace": "default"},
        "spec": {"image": "nginx:1.27", "replicas": 1, "port": 80},
    });
    let failed = plugin.once().run(&website).expect_err("it throws");
    failed.log.iter().map(ToString::to_string).collect()
}

/// Plays a scenario with a component of an example.
pub async fn play(folder: &str, file: &str, wasi: Wasi, story: &str) {
    let component = load(folder, file, wasi).unwrap_or_else(|error| panic!("{error}"));
    let mut host = RuntimeHost::with(Example(component), HostOptions::default(), unhurried(), Tail::default());
    let scenario = Scenario::read(&examples().join(story)).expect("the scenario can be read");
    let result = scenario::run(&scenario, &Cluster::simulated(), &mut host).await;
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// Checks that a component is refused where it is granted nothing.
pub fn is_refused_without_a_grant(folder: &str, file: &str) {
    let refused = load(folder, file, Wasi::None);
    assert!(
        matches!(
            refused,
            Err(LoadError::Refused {
                problem: ComponentError::UngrantedWasi { .. },
                ..
            })
        ),
        "{refused:?}"
    );
}
