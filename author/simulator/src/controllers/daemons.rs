//! The DaemonSet controller: a pod for each node that the template's node selector and tolerations fit, rolling updates by
//! deletion, and the status. Of a template's node affinity it knows nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::owned;
use super::pods::{self, share};
use crate::change::Change;
use crate::kinds::Storage;
use crate::kubelet::has_finished;
use crate::resource::Key;
use crate::state::State;

const REVISION: &str = "controller-revision-hash";

/// Troubles of nodes that every daemon tolerates.
const TOLERATED: [(&str, &str); 6] = [
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];

pub(super) fn run(state: &mut State, changes: &[Change]) {
    let (sets, nodes) = (Storage::new("apps", "daemonsets"), Storage::new("", "nodes"));
    if changes.iter().any(|change| change.storage == nodes) {
        let all: Vec<Key> = state.store.list(&sets).map(|set| Key::of(set)).collect();
        for key in all {
            state.store.touch(&sets, &key);
        }
    }
    for (key, set) in owned::concerned(state, changes, (&sets, "DaemonSet"), &pods::storage()) {
        let hash = pods::template_hash(&set["spec"]["template"]);
        let fitting: Vec<String> = state
            .store
            .list(&nodes)
            .filter(|node| fits(&set["spec"]["template"]["spec"], node))
            .map(|node| Key::of(node).name)
            .collect();
        manage(state, (&sets, &set), &fitting, &hash);
        write_status(state, (&sets, &key), &set, &fitting, &hash);
    }
}

fn tolerations(spec: &Value) -> Vec<Value> {
    let mut all = spec["tolerations"].as_array().cloned().unwrap_or_default();
    all.extend(TOLERATED.map(|(trouble, effect)| {
        json!({"key": format!("node.kubernetes.io/{trouble}"), "operator": "Exists", "effect": effect})
    }));
    all
}

fn fits(spec: &Value, node: &Value) -> bool {
    let mut wanted = spec["nodeSelector"].as_object().into_iter().flatten();
    let tolerations = tolerations(spec);
    let is_tolerated = |taint: &Value| {
        tolerations.iter().any(|toleration| {
            let same = |name: &str| toleration[name].is_null() || toleration[name] == taint[name];
            same("key")
                && same("effect")
                && (toleration["operator"] == "Exists" || toleration["value"] == taint["value"])
        })
    };
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut taints = taints.filter(|taint| taint["effect"] != "PreferNoSchedule");
    wanted.all(|(name, value)| node["metadata"]["labels"][name] == *value) && taints.all(is_tolerated)
}

/// The living pods of each node.
fn by_node(state: &State, set: &Value) -> BTreeMap<String, Vec<Arc<Value>>> {
    let mut found: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
    for pod in owned::children(state, set, &pods::storage()) {
        let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let node = pod["spec"]["nodeName"].as_str().or_else(|| {
            let name = pod.pointer(terms)?.pointer("/0/matchFields/0/values/0")?;
            name.as_str()
        });
        if let Some(node) = node.map(str::to_owned) {
            found.entry(node).or_default().push(pod);
        }
    }
    found
}

fn manage(state: &mut State, (sets, set): (&Storage, &Value), fitting: &[String], hash: &str) {
    let found = by_node(state, set);
    for (node, daemons) in &found {
        let surplus = daemons.iter().enumerate().filter(|(index, pod)| {
            has_finished(pod) || !pods::is_going(pod) && (*index > 0 || !fitting.contains(node))
        });
        for (_, pod) in surplus {
            pods::remove(state, pod);
        }
    }
    for node in fitting.iter().filter(|node| !found.contains_key(*node)) {
        make(state, set, node, hash);
    }
    let strategy = &set["spec"]["updateStrategy"];
    if strategy["type"] == "OnDelete" {
        return;
    }
    let all = i64::try_from(fitting.len()).unwrap_or(0);
    let most = share(&strategy["rollingUpdate"]["maxUnavailable"], all, true).max(1);
    let mut left = usize::try_from(most).unwrap_or(1);
    let daemons: Vec<Arc<Value>> = found
        .into_values()
        .flatten()
        .filter(|pod| pods::is_active(pod))
        .collect();
    let (bad, good): (Vec<_>, Vec<_>) = daemons
        .into_iter()
        .partition(|pod| !pods::available_or_requeue(state, (sets, set), pod));
    left = left.saturating_sub(fitting.len().saturating_sub(good.len()));
    let is_old = |pod: &&Arc<Value>| pod["metadata"]["labels"][REVISION] != hash;
    let replaced: Vec<_> = bad
        .iter()
        .filter(is_old)
        .chain(good.iter().filter(is_old).take(left))
        .collect();
    for pod in replaced {
        pods::remove(state, pod);
    }
}

fn make(state: &mut State, set: &Value, node: &str, hash: &str) {
    let mut pod = pods::of_template(set);
    pod["metadata"]["labels"][REVISION] = json!(hash);
    let generation = &set["metadata"]["annotations"][crate::defaults::TEMPLATE_GENERATION];
    pod["metadata"]["labels"]["pod-template-generation"] = generation.clone();
    pod["spec"]["tolerations"] = json!(tolerations(&pod["spec"]));
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": terms});
    pods::make(state, &pod);
}

fn write_status(state: &mut State, (sets, key): (&Storage, &Key), set: &Value, fitting: &[String], hash: &str) {
    let found = by_node(state, set);
    let running = fitting.iter().filter_map(|node| found.get(node)?.first().cloned());
    let running: Vec<Arc<Value>> = running.collect();
    let (ready, available) = pods::readiness(state, (sets, set), &running);
    let updated = running
        .iter()
        .filter(|pod| pod["metadata"]["labels"][REVISION] == hash)
        .count();
    let status = json!({
        "observedGeneration": set["metadata"]["generation"], "currentNumberScheduled": running.len(),
        "numberMisscheduled": found.keys().filter(|node| !fitting.contains(node)).count(),
        "desiredNumberScheduled": fitting.len(), "numberReady": ready,
    });
    let counts = [
        ("updatedNumberScheduled", updated),
        ("numberAvailable", available),
        ("numberUnavailable", fitting.len() - available),
    ];
    owned::write_status(state, ("apps", "daemonsets"), key, status, &counts);
}
