//! Objects that fail for a long time: the log has their causes once, and somebody can have them reconciled at once.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use pilothouse_end_to_end::program::ended;
use pilothouse_end_to_end::stage::{Stage, app_service, create};
use pilothouse_simulator::{Fault, Rule};
use pilothouse_testkit::cluster::Cluster;
use serde_json::json;

use crate::fleet::{Fleet, plugin};

const OBJECTS: usize = 3;

/// Objects whose Deployments a webhook denies.
async fn failing_fleet() -> Fleet {
    let fleet = Fleet::start().await;
    fleet.put("app-service", "it.wasm", 0);
    fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
    fleet.is_ready("it").await;
    let denied = Fault::Denied {
        code: 403,
        retry_after: 0,
    };
    let faults = fleet.stage.simulator().faults();
    faults.add(Rule::new(denied).resource("deployments").writes());
    for number in 0..OBJECTS {
        fleet.stage.create(&app_service(&format!("app-{number}"))).await;
    }
    fleet.until("all objects fail", |stage| failed(stage) == OBJECTS).await;
    fleet
}

/// Number of objects that say that they fail.
fn failed(stage: &Stage) -> usize {
    let reconciled =
        |object: &serde_json::Value| crate::fleet::condition(&object["status"], "Reconciled")["status"] == "False";
    stage
        .all("AppService")
        .iter()
        .filter(|object| reconciled(object))
        .count()
}

#[tokio::test(start_paused = true)]
async fn the_log_has_each_cause_once_and_counts_of_retries() {
    const WHILE: Duration = Duration::from_mins(30);
    let fleet = failing_fleet().await;
    let lines = |words: &str| fleet.stage.lines(&["WARN", words]).len();
    assert_eq!(lines("reconcile failed "), OBJECTS);
    let advice = fleet.stage.lines(&["reconcile failed ", "grant"]);
    assert!(advice.is_empty(), "{advice:?}");
    tokio::time::sleep(WHILE).await;
    assert_eq!(lines("reconcile failed "), OBJECTS, "the cause is the same");
    let counts = lines("reconciles failed again");
    assert!((5..=31).contains(&counts), "{counts}: {}", fleet.log());

    let faults = fleet.stage.simulator().faults();
    faults.clear();
    let away = Fault::Status {
        code: 503,
        retry_after: None,
    };
    faults.add(Rule::new(away).resource("deployments").writes());
    tokio::time::sleep(WHILE).await;
    assert_eq!(lines("reconcile failed "), 2 * OBJECTS, "another cause");
}

#[tokio::test(start_paused = true)]
async fn failing_objects_are_reconciled_when_the_annotation_changes() {
    let fleet = failing_fleet().await;
    // The back-off is minutes by now.
    tokio::time::sleep(Duration::from_hours(1)).await;
    fleet.stage.simulator().faults().clear();
    let ask = async |value: &str| {
        let asked = Patch::Merge(json!({"metadata": {"annotations": {"pilothouse.dev/reconcile-failing": value}}}));
        let plugins = fleet.plugins().await;
        plugins.patch("it", &PatchParams::default(), &asked).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    ask("").await;
    assert!(
        failed(&fleet.stage) > 0,
        "an annotation without a value asks for nothing"
    );
    ask("now").await;
    assert_eq!(failed(&fleet.stage), 0, "{}", fleet.log());

    // What does not fail is left alone. The counts in the Plugin's status are written first.
    tokio::time::sleep(Duration::from_mins(1)).await;
    let mark = fleet.stage.mark();
    ask("again").await;
    let writes = fleet.stage.host_writes_since(mark);
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_annotates_a_plugin_that_runs() {
    let cluster = Cluster::simulated_over_http().await.unwrap();
    let fleet = Fleet::start_with(cluster, pilothouse_runtime::HostOptions::default()).await;
    let client = fleet.client().await;
    let kubeconfig = fleet.stage.cluster.host_kubeconfig().unwrap();
    let run = async |name: &'static str| {
        let kubeconfig = kubeconfig.to_str().unwrap().to_owned();
        let run = move || ended(&["reconcile", "--failing", name, "--kubeconfig", &kubeconfig]);
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let (code, _, said) = run("absent").await;
    assert!(
        code == 1 && said.contains("there is no Plugin absent; `kubectl get plugins` lists them"),
        "{said}"
    );
    create(client, &plugin("broken", json!({"source": {"file": "broken.wasm"}}))).await;
    fleet.says("broken", "Ready", "False", "FetchFailed").await;
    let (code, _, said) = run("broken").await;
    assert!(
        code == 1 && said.contains("Plugin broken does not run: ") && said.contains("broken.wasm"),
        "{said}"
    );

    fleet.put("app-service", "it.wasm", 0);
    fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
    fleet.is_ready("it").await;
    let (code, printed, said) = run("it").await;
    assert_eq!(code, 0, "{said}");
    assert!(
        printed.contains("reconciles the failing objects of Plugin it now; its status counts 0 such objects"),
        "{printed}"
    );
    let annotation = |stage: &Stage| {
        stage.find("Plugin", "it").unwrap()["metadata"]["annotations"]["pilothouse.dev/reconcile-failing"].clone()
    };
    let first = annotation(&fleet.stage);
    assert!(first.is_string());
    assert_eq!(run("it").await.0, 0);
    assert_ne!(annotation(&fleet.stage), first, "each request counts");
}
