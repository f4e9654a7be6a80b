//! Checks the metrics, the alerts and the dashboard with promtool.

use std::fs;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use kube::Client;
use pilothouse_end_to_end::components::root;
use pilothouse_end_to_end::program::{Folder, Process, component};
use pilothouse_end_to_end::scrape::get;
use pilothouse_end_to_end::stage::{create, hostile};
use pilothouse_external::programs::Program;
use pilothouse_simulator::{Options, Simulator};
use serde_json::{Value, json};

use crate::free_address;

/// Returns promtool's complaints about its input; nothing if there are none.
fn checked(arguments: &[&str], input: &str) -> String {
    let mut promtool = Command::new(Program::Promtool.path())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    let verdict = if output.status.success() { "" } else { "FAILED\n" };
    format!("{verdict}{said}")
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_accepts_the_metrics_of_a_sharded_host() {
    let (folder, simulator, address) = (Folder::new(), Simulator::new(Options::default()), free_address());
    let serving = simulator.serve((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let kubeconfig = folder.kubeconfig(&format!("http://{}", serving.address()), "there");
    let (plugin, listens) = (component("hostile"), address.to_string());
    let arguments = [
        "run",
        "--kubeconfig",
        &kubeconfig,
        "--install-crds",
        "--plugin",
        &plugin,
        "--metrics-address",
        &listens,
        "--namespace",
        "default",
        "--leader-election",
        "--shards",
        "4",
    ];
    let mut process = Process::start(&arguments);
    process.says(&["plugin ready"]).await;
    let client = Client::new(simulator.service(), "default");
    create(client.clone(), &hostile("a", &json!({"behaviour": "config-map"}))).await;
    create(client, &hostile("traps", &json!({"behaviour": "trap"}))).await;
    let text = process
        .until("it prints all that it ever prints", |_| {
            let text = get(address, "/metrics").ok()?.1;
            let has = |metric: &str| text.lines().any(|line| line.starts_with(metric));
            let all = [
                "pilothouse_leader 1",
                "pilothouse_shards 4",
                "pilothouse_shards_held 4",
                "pilothouse_main_loop_age_seconds ",
                "process_resident_memory_bytes ",
                "process_cpu_seconds_total ",
                "pilothouse_plugin_info{",
                "pilothouse_queue_oldest_age_seconds{",
                "pilothouse_reconcile_duration_seconds_bucket{",
                "pilothouse_guest_traps_total{",
                "pilothouse_cached_bytes{",
                "pilothouse_api_requests_total{",
            ];
            all.into_iter().all(has).then_some(text)
        })
        .await;
    assert_eq!(checked(&["check", "metrics"], &text), "");
    // Not because promtool does not look.
    let counter = "# HELP b B.\n# TYPE b counter\nb 1\n";
    assert!(checked(&["check", "metrics"], counter).contains("_total"));
}

#[test]
fn promtool_accepts_the_alerts() {
    let alerts = root().join("deploy/monitoring/alerts.yaml");
    let said = checked(&["check", "rules", "--lint-fatal", &alerts.display().to_string()], "");
    let text = fs::read_to_string(&alerts).unwrap();
    let rules = text
        .lines()
        .filter(|line| {
            ["- alert:", "- record:"]
                .iter()
                .any(|rule| line.trim_start().starts_with(rule))
        })
        .count();
    assert!(said.contains(&format!("SUCCESS: {rules} rules found")), "{said}");
}

#[test]
fn the_alerts_fire_only_for_their_own_release() {
    let tests = root().join("tests/end-to-end/tests/monitoring/alerts.yaml");
    let said = checked(&["test", "rules", &tests.display().to_string()], "");
    assert!(said.contains("SUCCESS") && !said.contains("FAILED"), "{said}");
}

/// The queries of the dashboard by the titles of their panels, for all plugins of all releases.
fn dashboard() -> Vec<(String, String)> {
    let dashboard = fs::read_to_string(root().join("deploy/monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let mut query = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
            query = query.replace("$job", "pilothouse");
            for variable in ["$namespace", "$service", "$plugin"] {
                query = query.replace(variable, ".*");
            }
            assert!(!query.contains('$'), "{query}");
            queries.push((panel["title"].as_str().unwrap().to_owned(), query));
        }
    }
    queries
}

/// Returns promtool's complaints about rules or tests of them, which are in a file of their own.
fn checked_file(arguments: &[&str], content: &Value) -> String {
    let folder = Folder::new();
    // JSON is YAML.
    let file = folder.file("rules.yaml", content.to_string());
    checked(&[arguments, &[&file]].concat(), "")
}

#[test]
fn promtool_accepts_the_queries_of_the_dashboard() {
    let rules = |queries: Vec<String>| {
        let rules = queries.into_iter().enumerate();
        let rules: Vec<Value> = rules
            .map(|(number, query)| json!({"record": format!("panel_{number}"), "expr": query}))
            .collect();
        json!({"groups": [{"name": "dashboard", "rules": rules}]})
    };
    let queries: Vec<String> = dashboard().into_iter().map(|(_, query)| query).collect();
    assert!(queries.len() > 20, "{queries:?}");
    let (count, said) = (
        queries.len(),
        checked_file(&["check", "rules", "--lint-fatal"], &rules(queries)),
    );
    assert!(said.contains(&format!("SUCCESS: {count} rules found")), "{said}");
    let wrong = checked_file(&["check", "rules"], &rules(vec!["sum by plugin (up)".to_owned()]));
    assert!(wrong.starts_with("FAILED"), "{wrong}");
}

/// Returns a test with two replicas of a release, of which the first leads, with so many objects in the queues, and the
/// expected value of the panels about queues.
fn queues(is_sharded: bool, expected: u32) -> Value {
    let release = "job=\"pilothouse\", namespace=\"a\", service=\"p\"";
    let mut series = Vec::new();
    for (instance, leads, value) in [("a1", 1, 3), ("a2", 0, 5)] {
        let mut add = |metric: &str, labels: &str, value: u32| {
            let labels = format!("{release}, instance=\"{instance}\"{labels}");
            series.push(json!({"series": format!("{metric}{{{labels}}}"), "values": format!("{value}x10")}));
        };
        add("pilothouse_leader", "", leads);
        if is_sharded {
            add("pilothouse_shards", "", 4);
        }
        for metric in ["depth", "delayed_objects", "held_objects"] {
            let of_controller = ", plugin=\"x\", controller=\"y\"";
            add(&format!("pilothouse_queue_{metric}"), of_controller, value);
        }
    }
    let about_queues = dashboard().into_iter().filter(|(_, query)| {
        let is_about = |metric: &str| query.contains(&format!("pilothouse_queue_{metric}"));
        ["depth", "delayed", "held"].into_iter().any(is_about)
    });
    let tests: Vec<Value> = about_queues
        .map(|(title, query)| {
            let labels = match &*title {
                "Queue depth" => "{plugin=\"x\", controller=\"y\"}",
                _ => "{}",
            };
            json!({"expr": query, "eval_time": "5m", "exp_samples": [{"labels": labels, "value": expected}]})
        })
        .collect();
    assert_eq!(tests.len(), 3);
    json!({"interval": "1m", "input_series": series, "promql_expr_test": tests})
}

#[test]
fn the_dashboard_counts_the_queues_of_the_replicas_that_work() {
    let tests = json!({"rule_files": [], "evaluation_interval": "1m", "tests": [queues(false, 3), queues(true, 8)]});
    let said = checked_file(&["test", "rules"], &tests);
    assert!(said.contains("SUCCESS") && !said.contains("FAILED"), "{said}");
}
