//! docs/metrics.md lists the metrics that a host prints, and those that the dashboard and the alerts query exist.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pilothouse_metrics::{
    ApiRequest, ArtifactStep, CallFunction, ControllerFigures, GuestFault, KindFigures, Metrics, PluginFigures,
    ProcessFigures, ReconcileOutcome, ReviewReads, ReviewResult, ReviewedFunction, ServedCertificate, StateFigures,
    WatchRestart,
};
use serde_json::Value;

/// A metric: its type and its labels.
#[derive(Debug, Default, PartialEq, Eq)]
struct Family {
    metric_type: String,
    labels: BTreeSet<String>,
}

/// Labels that Prometheus adds to each sample.
const OF_THE_SCRAPE: [&str; 4] = ["instance", "job", "namespace", "service"];

/// Prefixes of the names of metrics.
const PREFIXES: [&str; 2] = ["pilothouse_", "process_"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the metrics of a host that has a sample of every metric.
fn printed() -> String {
    let (metrics, took) = (Metrics::default(), Duration::from_millis(1));
    let plugins = metrics.plugins();
    let calls = plugins.enter(&"a".into());
    plugins.enter_controller("a", "c");
    plugins.reconciled("a", "c", ReconcileOutcome::Success, took, took);
    let reviews = metrics.reviews();
    reviews.ended(ReviewedFunction::Validate, ReviewResult::Denied, took);
    reviews.serves(ServedCertificate::Server, took);
    calls.ended(CallFunction::Reconcile, took, Some(GuestFault::Trap));
    let request = ApiRequest::new("GET", "/api/v1/pods", None, None);
    metrics.requests().ended(request, Some(200), took);
    metrics.watches().enter("Pod.v1");
    metrics.watches().ended("Pod.v1", WatchRestart::Closed);
    metrics.print(&StateFigures {
        version: "1",
        main_loop_age: Some(took),
        process: Some(ProcessFigures {
            max_descriptors: Some(1),
            ..ProcessFigures::default()
        }),
        is_leader: Some(true),
        shards: Some((1, 2)),
        mistakes: 1,
        plugins: vec![PluginFigures {
            name: "a".to_owned(),
            version: Some("1".to_owned()),
            digest: Some("d".to_owned()),
            wanted: Some(("1".to_owned(), "d".to_owned())),
            artifact_failures: Some(vec![ArtifactStep::Verify]),
            dropped_events: Some(1),
            ..PluginFigures::default()
        }],
        controllers: vec![ControllerFigures {
            plugin: "a".to_owned(),
            controller: "c".to_owned(),
            ..ControllerFigures::default()
        }],
        kinds: vec![KindFigures {
            kind: "Pod.v1".to_owned(),
            ..KindFigures::default()
        }],
    })
}

fn families() -> BTreeMap<String, Family> {
    let text = printed();
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, metric_type) = rest.split_once(' ').unwrap();
            name.clone_into(&mut current);
            let family = Family {
                metric_type: metric_type.to_owned(),
                labels: BTreeSet::new(),
            };
            assert!(
                families.insert(current.clone(), family).is_none(),
                "{current} is there twice"
            );
        } else if let Some((head, _)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            assert!(head.starts_with(&*current), "{line}");
            let labels = &line[head.len() + 1..line.rfind('}').unwrap()];
            let names = labels
                .split("\",")
                .filter_map(|pair| Some(pair.split_once("=\"")?.0.to_owned()));
            families
                .get_mut(&current)
                .unwrap()
                .labels
                .extend(names.filter(|name| name != "le"));
        }
    }
    families
}

#[test]
fn the_list_of_metrics_is_what_a_host_prints() {
    let text = read("docs/metrics.md");
    let is_metric = |line: &&str| PREFIXES.iter().any(|prefix| line.starts_with(&format!("| `{prefix}")));
    let rows = text.lines().filter(is_metric);
    let mut documented = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, metric_type, unit, labels, meaning] = cells[..] else {
            panic!("{row} has not five cells");
        };
        let name = name.trim_matches('`');
        let units = ["seconds", "bytes"]
            .into_iter()
            .find(|unit| name.ends_with(&format!("_{unit}")));
        assert_eq!(unit, units.unwrap_or_default(), "the unit of {name}");
        assert!(meaning.ends_with('.'), "the meaning of {name}");
        let labels = labels.split(", ").filter(|label| !label.is_empty());
        let family = Family {
            metric_type: metric_type.to_owned(),
            labels: labels.map(|label| label.trim_matches('`').to_owned()).collect(),
        };
        documented.insert(name.to_owned(), family);
    }
    assert_eq!(documented, families());
}

#[test]
fn every_value_of_a_closed_label_is_documented() {
    let text = read("docs/metrics.md");
    let values = text.split_once("### Values of labels").unwrap().1;
    let outcomes = ReconcileOutcome::ALL.iter().map(|it| it.as_str());
    let functions = CallFunction::ALL.iter().map(|it| it.as_str());
    let faults = GuestFault::ALL.iter().map(|it| it.as_str());
    let restarts = WatchRestart::ALL.iter().map(|it| it.as_str());
    let verbs = pilothouse_metrics::Verb::ALL.iter().map(|it| it.as_str());
    let answered = ReviewReads::ALL.iter().map(|it| it.as_str());
    let asked = ReviewedFunction::ALL.iter().map(|it| it.as_str());
    let results = ReviewResult::ALL.iter().map(|it| it.as_str());
    let certificates = ServedCertificate::ALL.iter().map(|it| it.as_str());
    let steps = ArtifactStep::ALL.iter().map(|it| it.as_str());
    let of_reviews = answered.chain(asked).chain(results).chain(certificates).chain(steps);
    let all = outcomes.chain(functions).chain(faults).chain(restarts).chain(verbs);
    for value in all.chain(of_reviews) {
        assert!(values.contains(&format!("`{value}`")), "{value} is not documented");
    }
}

/// The queries of the dashboard and of the alerts, each with the labels that words about its result use.
fn queries() -> Vec<(String, Vec<String>)> {
    let mut queries = Vec::new();
    let dashboard: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let legend = target["legendFormat"].as_str().unwrap();
            let named = legend
                .split("{{")
                .skip(1)
                .map(|rest| rest.split_once("}}").unwrap().0.to_owned());
            queries.push((target["expr"].as_str().unwrap().to_owned(), named.collect()));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]
            .as_str()
            .and_then(|query| query.strip_prefix("label_values("))
        {
            let (selector, label) = query.trim_end_matches(')').rsplit_once(", ").unwrap();
            queries.push((selector.to_owned(), vec![label.to_owned()]));
        }
    }
    for rule in rules() {
        let description = rule["annotations"]["description"].as_str().unwrap_or_default();
        let named = description.split("$labels.").skip(1);
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let named = named.map(|rest| rest.split(|it| !is_name(it)).next().unwrap().to_owned());
        queries.push((rule["expr"].as_str().unwrap().to_owned(), named.collect()));
    }
    queries
}

/// The alerts and the recording rules.
fn rules() -> Vec<Value> {
    let alerts: Value = serde_saphyr::from_str(&read("deploy/monitoring/alerts.yaml")).unwrap();
    let groups = alerts["groups"].as_array().unwrap().iter();
    groups
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

/// The families that a query names, with the labels by which it selects.
fn selectors(query: &str) -> Vec<(String, Vec<String>)> {
    let mut selectors = Vec::new();
    let starts = PREFIXES.iter().flat_map(|prefix| query.match_indices(prefix));
    for (start, _) in starts {
        let rest = &query[start..];
        let end = rest
            .find(|it: char| !it.is_ascii_lowercase() && it != '_')
            .unwrap_or(rest.len());
        let matchers = rest[end..]
            .strip_prefix('{')
            .map_or("", |rest| rest.split_once('}').unwrap().0);
        let labels = matchers.split(',').filter(|matcher| !matcher.is_empty());
        let labels = labels.map(|matcher| matcher.split(['=', '!']).next().unwrap().trim().to_owned());
        selectors.push((rest[..end].to_owned(), labels.collect()));
    }
    selectors
}

/// The labels by which a query groups.
fn groups(query: &str) -> impl Iterator<Item = &str> {
    let groups = query.split("by (").skip(1);
    groups.flat_map(|rest| rest.split_once(')').unwrap().0.split(", "))
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_what_there_is() {
    let families = families();
    let mut asked = BTreeSet::new();
    for (query, named) in queries() {
        let mut known: BTreeSet<&str> = OF_THE_SCRAPE.into();
        for (metric, labels) in selectors(&query) {
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| metric.strip_suffix(suffix));
            let histogram = base.and_then(|base| families.get_key_value(base));
            let histogram = histogram.filter(|(_, family)| family.metric_type == "histogram");
            let (name, family) = histogram
                .or_else(|| families.get_key_value(&metric))
                .unwrap_or_else(|| panic!("{query} asks for {metric}, which no host prints"));
            assert!(
                histogram.is_some() || family.metric_type != "histogram",
                "{query} takes the histogram {metric} for a sample"
            );
            asked.insert(name.clone());
            known.extend(family.labels.iter().map(|label| &**label));
            known.extend(histogram.map(|_| "le"));
            for label in &labels {
                assert!(known.contains(&**label), "{metric} has no label {label}: {query}");
            }
        }
        // A metric of kube-state-metrics.
        known.extend(query.contains("kube_lease_renew_time").then_some("lease"));
        for label in groups(&query).chain(named.iter().map(|label| &**label)) {
            assert!(known.contains(label), "no metric of {query} has a label {label}");
        }
    }
    let unused: Vec<_> = families.keys().filter(|name| !asked.contains(*name)).collect();
    let known = [
        "pilothouse_plugin_awake",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
    ];
    assert_eq!(unused, known, "a metric that nobody looks at");
}

#[test]
fn each_alert_has_a_runbook_and_each_runbook_an_alert() {
    let runbooks = read("docs/runbooks.md");
    let headings: BTreeSet<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let alerts: Vec<Value> = rules().into_iter().filter(|rule| rule["alert"].is_string()).collect();
    let names: BTreeSet<&str> = alerts.iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    assert_eq!(names, headings);
    for rule in &alerts {
        let name = rule["alert"].as_str().unwrap();
        let link = format!("docs/runbooks.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], link.as_str());
        for text in [&rule["annotations"]["summary"], &rule["labels"]["severity"]] {
            assert!(text.as_str().is_some_and(|text| !text.is_empty()), "{name}");
        }
    }
}
