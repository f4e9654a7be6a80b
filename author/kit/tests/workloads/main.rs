//! Compares the statuses that the simulated controllers write with those of the real ones: for each case, the real object must
//! come to the status that the simulated one has. Times and hashes of templates are left aside.

use std::collections::BTreeMap;
use std::time::Duration;

use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::diff::diff;
use pilothouse_testkit::fate::Fate;
use pilothouse_testkit::scenario::{Objects, Reference};
use pilothouse_testkit::workloads::{Nodes, Workloads};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The time in which the simulated objects come to rest.
const REST: Duration = Duration::from_secs(20);

/// The time that the real ones have to come to the same.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    objects: BTreeMap<String, Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    object: String,
    #[serde(default)]
    with: Value,
    #[serde(default)]
    workloads: Workloads,
    fate: Option<Fate>,
    then: Option<Value>,
}

impl Cases {
    fn read() -> Self {
        serde_saphyr::from_str(include_str!("cases.yaml")).expect("the cases can be read")
    }

    /// The object of a case, and the object after its change.
    fn bodies(&self, case: &Case) -> Vec<Value> {
        let mut object = self.objects[&case.object].clone();
        merge(&mut object, &case.with);
        let mut bodies = vec![object.clone()];
        if let Some(change) = &case.then {
            merge(&mut object, change);
            bodies.push(object);
        }
        bodies
    }
}

fn merge(object: &mut Value, patch: &Value) {
    match patch {
        Value::Object(members) => members
            .iter()
            .for_each(|(name, member)| merge(&mut object[name], member)),
        Value::Null => {}
        value => *object = value.clone(),
    }
}

/// Returns the statuses of one object at rest, and after the change. With expected statuses, it waits for them.
async fn play(
    cluster: &Cluster,
    nodes: &Nodes,
    (namespace, case, bodies): (&str, &Case, &[Value]),
    expected: Option<&[Value]>,
) -> Vec<Value> {
    let mut objects = Objects::new(cluster.client().await.expect("a client"), namespace);
    let reference = Reference::of(&bodies[0]);
    if let Some(fate) = case.fate {
        nodes.decide(&reference, namespace, fate);
    }
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    objects.apply("test", &body).await.expect("a namespace");
    // Pods need the account that a controller makes.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    while objects
        .find(&Reference::of(&account))
        .await
        .expect("it is served")
        .is_none()
    {
        sleep(Duration::from_millis(20)).await;
    }
    let mut seen = Vec::new();
    for body in bodies {
        objects.apply("test", body).await.expect("the object");
        let begun = Instant::now();
        let status = loop {
            let object = objects.find(&reference).await.expect("it can be read");
            let status = object.map_or(Value::Null, |object| normalised(&object["status"]));
            let is_over = match expected {
                None => begun.elapsed() >= REST,
                Some(expected) => expected[seen.len()] == status || begun.elapsed() >= PATIENCE,
            };
            if is_over {
                break status;
            }
            sleep(Duration::from_millis(500)).await;
        };
        seen.push(status);
    }
    let _ = objects.remove(&Reference::of(&body)).await;
    seen
}

/// Without times and what stems from a hash.
fn normalised(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let is_kept = |(name, value): &(&String, &Value)| {
                !name.ends_with("Time") && !name.ends_with("Revision") && !value.is_null()
            };
            let kept = members.iter().filter(is_kept);
            let kept = kept.map(
                |(name, value)| match value.as_str().and_then(|text| text.split_once('"')) {
                    Some((before, _)) if name == "message" => (name.clone(), json!(before)),
                    _ => (name.clone(), normalised(value)),
                },
            );
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(normalised).collect(),
        other => other.clone(),
    }
}

/// Returns the statuses of all objects, those first whose pods become ready by themselves.
async fn play_all(cluster: &Cluster, all: &Cases, expected: Option<&[Vec<Value>]>) -> Vec<Vec<Value>> {
    let cases = &all.cases;
    let mut seen = vec![Vec::new(); cases.len()];
    for workloads in [Workloads::Ready, Workloads::Never] {
        let nodes = Nodes::start(cluster, workloads).await.expect("a node");
        let chosen: Vec<usize> = (0..cases.len())
            .filter(|index| cases[*index].workloads == workloads)
            .collect();
        let played = chosen.iter().map(async |index| {
            let namespace = format!("case-{index}");
            let expected = expected.map(|expected| &*expected[*index]);
            let case = &cases[*index];
            play(cluster, &nodes, (&namespace, case, &all.bodies(case)), expected).await
        });
        let played = futures::future::join_all(played).await;
        for (index, statuses) in chosen.into_iter().zip(played) {
            seen[index] = statuses;
        }
        nodes.stop().await;
    }
    seen
}

fn simulated(cases: &Cases) -> Vec<Vec<Value>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    let played = async { play_all(&Cluster::simulated(), cases, None).await };
    runtime.expect("a runtime").block_on(played)
}

mod real {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn controllers_come_to_the_same_statuses() {
        let Some(cluster) = Cluster::real_if_possible().await else {
            return;
        };
        let cluster = cluster.expect("the control plane starts");
        let cases = Cases::read();
        let expected = std::thread::scope(|scope| scope.spawn(|| simulated(&cases)).join()).expect("they were played");
        let seen = play_all(&cluster, &cases, Some(&expected)).await;
        let mut differences = Vec::new();
        for (case, (seen, expected)) in cases.cases.iter().zip(seen.iter().zip(&expected)) {
            println!("{}: {}", case.name, seen.last().unwrap_or(&Value::Null));
            if seen != expected {
                let difference = diff(&json!(expected), &json!(seen)).unwrap_or_default();
                differences.push(format!("{} (- simulated, + real)\n{difference}", case.name));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}
