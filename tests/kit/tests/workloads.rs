//! Compares the statuses that the simulated controllers write with those of the real ones: for each case, the real object must
//! come to the status that the simulated one has. Times and hashes of templates are left aside.

use std::time::Duration;

use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::diff::diff;
use pilothouse_testkit::scenario::{Objects, Reference};
use pilothouse_testkit::workloads::{Fate, Nodes, Workloads};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The time in which the simulated objects come to rest.
const REST: Duration = Duration::from_secs(20);

/// The time that the real ones have to come to the same.
const PATIENCE: Duration = Duration::from_secs(60);

struct Case {
    name: &'static str,
    object: Value,
    workloads: Workloads,
    fate: Option<Fate>,
    /// What is applied once the first object is at rest.
    then: Option<Value>,
}

fn template(restart: Option<&str>) -> Value {
    let mut spec = json!({"containers": [{"name": "a", "image": "a:1"}]});
    if let Some(policy) = restart {
        spec["restartPolicy"] = json!(policy);
    }
    json!({"metadata": {"labels": {"app": "a"}}, "spec": spec})
}

fn with(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        object.pointer_mut(parent).expect("its parent")[name] = value.clone();
    }
    object
}

fn workload(kind: &str, name: &str, changes: &[(&str, Value)]) -> Value {
    let object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template(None)},
    });
    with(object, changes)
}

fn job(name: &str, policy: &str, changes: &[(&str, Value)]) -> Value {
    let object = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template(Some(policy))},
    });
    with(object, changes)
}

fn cases() -> Vec<Case> {
    let new_image = ("/spec/template/spec/containers", json!([{"name": "a", "image": "a:2"}]));
    let three = ("/spec/replicas", json!(3));
    let claims = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }}]);
    let mounted = json!([{"name": "a", "image": "a:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]);
    let case = |name, object| Case {
        name,
        object,
        workloads: Workloads::Ready,
        fate: None,
        then: None,
    };
    let fated = |name, object, fate| Case {
        fate: Some(fate),
        ..case(name, object)
    };
    let updated = |name, object: Value, change: (&str, Value)| Case {
        then: Some(with(object.clone(), &[change])),
        ..case(name, object)
    };
    let never = |case| Case {
        workloads: Workloads::Never,
        ..case
    };
    let deployment = || workload("Deployment", "web", std::slice::from_ref(&three));
    let stateful = || {
        let containers = ("/spec/template/spec/containers", mounted.clone());
        let service = ("/spec/serviceName", json!("db"));
        workload(
            "StatefulSet",
            "db",
            &[three.clone(), containers, service, ("/spec/volumeClaimTemplates", claims.clone())],
        )
    };
    let daemon = || workload("DaemonSet", "agent", &[]);
    vec![
        case("a Deployment is available", deployment()),
        never(case("a Deployment never is", deployment())),
        fated("a Deployment fails", deployment(), Fate::Failed),
        updated("a Deployment has a new image", deployment(), new_image.clone()),
        updated("a Deployment shrinks", deployment(), ("/spec/replicas", json!(1))),
        updated(
            "a Deployment is recreated",
            with(deployment(), &[("/spec/strategy", json!({"type": "Recreate"}))]),
            new_image.clone(),
        ),
        case(
            "a Deployment waits until its pods are available",
            with(deployment(), &[("/spec/minReadySeconds", json!(3))]),
        ),
        Case {
            fate: Some(Fate::Failed),
            ..case(
                "a Deployment misses its deadline",
                with(deployment(), &[("/spec/progressDeadlineSeconds", json!(3))]),
            )
        },
        never(updated("a Deployment that never is available has a new image", deployment(), new_image.clone())),
        case("a StatefulSet is available", stateful()),
        never(case("a StatefulSet waits for its first pod", stateful())),
        never(case(
            "a StatefulSet makes all pods at once",
            with(stateful(), &[("/spec/podManagementPolicy", json!("Parallel"))]),
        )),
        fated("a StatefulSet fails", stateful(), Fate::Failed),
        updated("a StatefulSet has a new image", workload("StatefulSet", "db", &[three.clone()]), new_image.clone()),
        updated("a StatefulSet shrinks", stateful(), ("/spec/replicas", json!(1))),
        updated(
            "a StatefulSet has a new image in part",
            with(
                workload("StatefulSet", "db", &[three.clone()]),
                &[("/spec/updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}))],
            ),
            new_image.clone(),
        ),
        case("a DaemonSet is available", daemon()),
        never(case("a DaemonSet never is", daemon())),
        fated("a DaemonSet fails", daemon(), Fate::Failed),
        updated("a DaemonSet has a new image", daemon(), new_image.clone()),
        case(
            "a DaemonSet fits no node",
            with(daemon(), &[("/spec/template/spec/nodeSelector", json!({"disk": "fast"}))]),
        ),
        case("a Job completes", job("once", "Never", &[])),
        never(case("a Job is active", job("once", "Never", &[]))),
        fated("a Job runs", job("once", "Never", &[]), Fate::Available),
        fated("a Job fails", job("once", "Never", &[("/spec/backoffLimit", json!(0))]), Fate::Failed),
        fated("a Job fails once more", job("once", "Never", &[("/spec/backoffLimit", json!(1))]), Fate::Failed),
        fated("a Job whose pods restart fails", job("once", "OnFailure", &[]), Fate::Failed),
        case(
            "a Job completes three times",
            job("once", "Never", &[("/spec/completions", json!(3)), ("/spec/parallelism", json!(2))]),
        ),
        case(
            "an indexed Job completes",
            job(
                "once",
                "Never",
                &[("/spec/completions", json!(3)), ("/spec/parallelism", json!(3)), ("/spec/completionMode", json!("Indexed"))],
            ),
        ),
        never(case(
            "a Job misses its deadline",
            job("once", "Never", &[("/spec/activeDeadlineSeconds", json!(2))]),
        )),
        case("a Job is suspended", job("once", "Never", &[("/spec/suspend", json!(true))])),
        updated(
            "a Job is resumed",
            job("once", "Never", &[("/spec/suspend", json!(true))]),
            ("/spec/suspend", json!(false)),
        ),
        case("a Job goes after its time", job("once", "Never", &[("/spec/ttlSecondsAfterFinished", json!(2))])),
    ]
}

/// What one object says at rest, and after the change. With what is expected, it waits for that.
async fn play(cluster: &Cluster, nodes: &Nodes, (namespace, case): (&str, &Case), expected: Option<&[Value]>) -> Vec<Value> {
    let mut objects = Objects::new(cluster.client().await.expect("a client"), namespace);
    let reference = Reference::of(&case.object);
    if let Some(fate) = case.fate {
        nodes.decide(&reference, namespace, fate);
    }
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    objects.apply("test", &body).await.expect("a namespace");
    // Pods need the account that a controller makes.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    while objects.find(&Reference::of(&account)).await.expect("it is served").is_none() {
        sleep(Duration::from_millis(20)).await;
    }
    let mut seen = Vec::new();
    for body in std::iter::once(&case.object).chain(&case.then) {
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
            let is_kept =
                |(name, value): &(&String, &Value)| !name.ends_with("Time") && !name.ends_with("Revision") && !value.is_null();
            let kept = members.iter().filter(is_kept);
            let kept = kept.map(|(name, value)| match value.as_str().and_then(|text| text.split_once('"')) {
                Some((before, _)) if name == "message" => (name.clone(), json!(before)),
                _ => (name.clone(), normalised(value)),
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(normalised).collect(),
        other => other.clone(),
    }
}

/// What all of them say, those first whose pods become ready by themselves.
async fn play_all(cluster: &Cluster, cases: &[Case], expected: Option<&[Vec<Value>]>) -> Vec<Vec<Value>> {
    let mut seen = vec![Vec::new(); cases.len()];
    for workloads in [Workloads::Ready, Workloads::Never] {
        let nodes = Nodes::start(cluster, workloads).await.expect("a node");
        let chosen: Vec<usize> = (0..cases.len()).filter(|index| cases[*index].workloads == workloads).collect();
        let played = chosen.iter().map(async |index| {
            let namespace = format!("case-{index}");
            let expected = expected.map(|expected| &*expected[*index]);
            play(cluster, &nodes, (&namespace, &cases[*index]), expected).await
        });
        let played = futures::future::join_all(played).await;
        for (index, statuses) in chosen.into_iter().zip(played) {
            seen[index] = statuses;
        }
        nodes.stop().await;
    }
    seen
}

fn simulated(cases: &[Case]) -> Vec<Vec<Value>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let played = async { play_all(&Cluster::simulated(), cases, None).await };
    runtime.expect("a runtime").block_on(played)
}

mod real {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn controllers_come_to_the_same_statuses() {
        let Some(cluster) = Cluster::real_if_possible().await else { return };
        let cluster = cluster.expect("the control plane starts");
        let cases = cases();
        let expected = std::thread::scope(|scope| scope.spawn(|| simulated(&cases)).join()).expect("they were played");
        let seen = play_all(&cluster, &cases, Some(&expected)).await;
        let mut differences = Vec::new();
        for (case, (seen, expected)) in cases.iter().zip(seen.iter().zip(&expected)) {
            println!("{}: {}", case.name, seen.last().unwrap_or(&Value::Null));
            if seen != expected {
                let difference = diff(&json!(expected), &json!(seen)).unwrap_or_default();
                differences.push(format!("{} (- simulated, + real)\n{difference}", case.name));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}
