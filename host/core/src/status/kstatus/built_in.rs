//! The rules for built-in kinds and for CustomResourceDefinitions.
//!
//! They follow `core.go` of sigs.k8s.io/cli-utils at commit 1ad68d5bbd6aee33e07a42291a7175ea6f8eb0b7
//! (<https://github.com/kubernetes-sigs/cli-utils/blob/1ad68d5bbd6aee33e07a42291a7175ea6f8eb0b7/pkg/kstatus/status/core.go>), except
//! for what runs to its end: there a Job is Current as soon as it has started or is suspended, and a Pod also when it has failed. What
//! comes after one of them waits for its result, so here only one that has succeeded is Current. Time plays no part: a Pod that
//! cannot be scheduled is in progress.

use serde_json::Value;

use super::{Computed, Status};
use crate::kubernetes::key::Kind;

/// The status of an object of a kind that has rules of its own, and that the rules for all kinds do not decide.
pub(super) fn compute(kind: &Kind, object: &Value) -> Option<Computed> {
    let compute: fn(&Object<'_>) -> Result<String, Computed> = match (&*kind.group, &*kind.kind) {
        ("apps", "Deployment") => deployment,
        ("apps", "StatefulSet") => stateful_set,
        ("apps", "DaemonSet") => daemon_set,
        ("apps", "ReplicaSet") => replica_set,
        ("batch", "Job") => job,
        ("", "Pod") => pod,
        ("", "PersistentVolumeClaim") => claim,
        ("", "Service") => service,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition,
        ("", "ConfigMap" | "Secret") | ("batch", "CronJob") | ("policy", "PodDisruptionBudget") => {
            return Some(Computed::new(Status::Current, "Resource is always ready"));
        }
        _ => return None,
    };
    let computed = compute(&Object(object));
    Some(computed.map_or_else(|other| other, |message| Computed::new(Status::Current, message)))
}

struct Object<'a>(&'a Value);

impl Object<'_> {
    fn number(&self, pointer: &str, default: i64) -> i64 {
        self.0.pointer(pointer).and_then(Value::as_i64).unwrap_or(default)
    }

    fn count(&self, member: &str) -> i64 {
        self.number(&format!("/status/{member}"), 0)
    }

    fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The condition of a type, as status, reason and message.
    fn condition(&self, type_: &str) -> Option<[&str; 3]> {
        let mut conditions = self.0["status"]["conditions"].as_array()?.iter();
        let condition = conditions.find(|condition| condition["type"] == type_)?;
        Some(["status", "reason", "message"].map(|member| condition[member].as_str().unwrap_or_default()))
    }

    fn is_true(&self, type_: &str) -> bool {
        matches!(self.condition(type_), Some(["True", ..]))
    }

    fn has_no_more(&self, replicas: i64) -> Result<(), Computed> {
        match self.count("replicas") - replicas {
            more @ 1.. => Err(in_progress(format!("Pending termination: {more}"))),
            _ => Ok(()),
        }
    }
}

/// Each pair has to have at least as many of the first as of the second.
fn has_enough<const N: usize>(pairs: [(&str, i64, i64); N]) -> Result<(), Computed> {
    match pairs.into_iter().find(|(_, has, wanted)| has < wanted) {
        Some((word, has, wanted)) => Err(in_progress(format!("{word}: {has}/{wanted}"))),
        None => Ok(()),
    }
}

fn in_progress(message: impl Into<String>) -> Computed {
    Computed::new(Status::InProgress, message)
}

fn failed(message: impl Into<String>) -> Computed {
    Computed::new(Status::Failed, message)
}

fn deployment(object: &Object<'_>) -> Result<String, Computed> {
    // Without a deadline the controller does not report progress.
    let has_deadline = object.number("/spec/progressDeadlineSeconds", i64::from(i32::MAX)) != i64::from(i32::MAX);
    let progress = object.condition("Progressing");
    if let Some([_, "ProgressDeadlineExceeded", _]) = progress {
        return Err(failed("Progress deadline exceeded"));
    }
    let (wanted, updated) = (object.number("/spec/replicas", 1), object.count("updatedReplicas"));
    has_enough([
        ("Replicas", object.count("replicas"), wanted),
        ("Updated", updated, wanted),
    ])?;
    object.has_no_more(wanted)?;
    has_enough([
        ("Available", object.count("availableReplicas"), updated),
        ("Ready", object.count("readyReplicas"), wanted),
    ])?;
    if has_deadline && !matches!(progress, Some(["True", "NewReplicaSetAvailable", _])) {
        return Err(in_progress("ReplicaSet not Available"));
    }
    if !object.is_true("Available") {
        return Err(in_progress("Deployment not Available"));
    }
    Ok("Deployment is available".to_owned())
}

fn stateful_set(object: &Object<'_>) -> Result<String, Computed> {
    if object.text("/spec/updateStrategy/type") == "OnDelete" {
        return Ok("StatefulSet is using the ondelete update strategy".to_owned());
    }
    let wanted = object.number("/spec/replicas", 1);
    has_enough([
        ("Replicas", object.count("replicas"), wanted),
        ("Ready", object.count("readyReplicas"), wanted),
    ])?;
    object.has_no_more(wanted)?;
    let partition = object.number("/spec/updateStrategy/rollingUpdate/partition", -1);
    if partition != -1 {
        has_enough([("Updated", object.count("updatedReplicas"), wanted - partition)])?;
        return Ok("Partition rollout complete".to_owned());
    }
    has_enough([("Current", object.count("currentReplicas"), wanted)])?;
    if object.text("/status/currentRevision") != object.text("/status/updateRevision") {
        return Err(in_progress("Waiting for updated revision to match current"));
    }
    Ok("All replicas scheduled as expected".to_owned())
}

fn daemon_set(object: &Object<'_>) -> Result<String, Computed> {
    // Its controller always sets it.
    if object.number("/status/observedGeneration", -1) == -1 {
        return Err(in_progress("DaemonSet status.observedGeneration not found"));
    }
    let wanted = object.number("/status/desiredNumberScheduled", -1);
    if wanted == -1 {
        return Err(in_progress("Missing .status.desiredNumberScheduled"));
    }
    has_enough([
        ("Current", object.count("currentNumberScheduled"), wanted),
        ("Updated", object.count("updatedNumberScheduled"), wanted),
        ("Available", object.count("numberAvailable"), wanted),
        ("Ready", object.count("numberReady"), wanted),
    ])?;
    Ok("All replicas scheduled as expected".to_owned())
}

fn replica_set(object: &Object<'_>) -> Result<String, Computed> {
    if object.is_true("ReplicaFailure") {
        return Err(in_progress("Replica Failure condition. Check Pods"));
    }
    let wanted = object.number("/spec/replicas", 1);
    has_enough([
        ("Labelled", object.count("fullyLabeledReplicas"), wanted),
        ("Available", object.count("availableReplicas"), wanted),
        ("Ready", object.count("readyReplicas"), wanted),
    ])?;
    object.has_no_more(wanted)?;
    Ok("ReplicaSet is available".to_owned())
}

fn job(object: &Object<'_>) -> Result<String, Computed> {
    if object.is_true("Complete") {
        return Ok("Job Completed".to_owned());
    }
    if object.is_true("Failed") {
        return Err(failed("Job Failed"));
    }
    let state = if object.is_true("Suspended") {
        "Job is suspended"
    } else if object.text("/status/startTime").is_empty() {
        "Job not started"
    } else {
        "Job in progress"
    };
    Err(in_progress(state))
}

fn pod(object: &Object<'_>) -> Result<String, Computed> {
    match object.text("/status/phase") {
        "Succeeded" => Ok("Pod has completed successfully".to_owned()),
        "Failed" => Err(failed("Pod has completed, but not successfully")),
        "Running" if object.is_true("Ready") => Ok("Pod is Ready".to_owned()),
        "Running" => {
            let containers = object.0["status"]["containerStatuses"].as_array();
            let mut waiting = containers.into_iter().flatten().map(|it| &it["state"]["waiting"]);
            if waiting.any(|waiting| waiting["reason"] == "CrashLoopBackOff") {
                return Err(failed("Containers in CrashLoop state"));
            }
            Err(in_progress("Pod is running but is not Ready"))
        }
        "Pending" => Err(in_progress("Pod is in the Pending phase")),
        _ => Err(in_progress("Pod phase not available")),
    }
}

fn claim(object: &Object<'_>) -> Result<String, Computed> {
    match object.text("/status/phase") {
        "Bound" => Ok("PVC is Bound".to_owned()),
        "" => Err(in_progress("PVC is not Bound. phase: unknown")),
        phase => Err(in_progress(format!("PVC is not Bound. phase: {phase}"))),
    }
}

fn service(object: &Object<'_>) -> Result<String, Computed> {
    if object.text("/spec/type") == "LoadBalancer" && object.text("/spec/clusterIP").is_empty() {
        return Err(in_progress("ClusterIP not set. Service type: LoadBalancer"));
    }
    Ok("Service is ready".to_owned())
}

fn definition(object: &Object<'_>) -> Result<String, Computed> {
    match (object.condition("NamesAccepted"), object.condition("Established")) {
        (Some(["False", _, message]), _) => Err(failed(message)),
        (_, Some(["True", ..])) => Ok("CRD is established".to_owned()),
        (_, Some(["False", reason, message])) if reason != "Installing" => Err(failed(message)),
        _ => Err(in_progress("Install in progress")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pending(group: &str, kind: &str, spec: &Value, status: &Value) -> String {
        let object = json!({"metadata": {"generation": 1}, "spec": spec, "status": status});
        super::super::pending(&Kind::new(group, "v1", kind), &object).unwrap_or_default()
    }

    #[test]
    fn a_deployment_is_current_once_its_rollout_has_ended() {
        let rolled = |changes: Value| {
            let mut status = json!({
                "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2,
                "conditions": [
                    {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
                    {"type": "Available", "status": "True"},
                ],
            });
            for (name, value) in changes.as_object().unwrap() {
                status[name] = value.clone();
            }
            pending(
                "apps",
                "Deployment",
                &json!({"replicas": 2, "progressDeadlineSeconds": 600}),
                &status,
            )
        };
        assert_eq!(rolled(json!({})), "");
        assert_eq!(rolled(json!({"replicas": 1})), "InProgress: Replicas: 1/2");
        assert_eq!(rolled(json!({"updatedReplicas": 1})), "InProgress: Updated: 1/2");
        assert_eq!(rolled(json!({"replicas": 3})), "InProgress: Pending termination: 1");
        assert_eq!(rolled(json!({"availableReplicas": 1})), "InProgress: Available: 1/2");
        assert_eq!(rolled(json!({"readyReplicas": 0})), "InProgress: Ready: 0/2");
        assert!(rolled(json!({"observedGeneration": 0})).starts_with("InProgress"));
        assert_eq!(
            rolled(json!({"conditions": []})),
            "InProgress: ReplicaSet not Available"
        );
        let late = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
        assert_eq!(
            rolled(json!({"conditions": late})),
            "Failed: Progress deadline exceeded"
        );
        let no_status = pending("apps", "Deployment", &json!({}), &json!({}));
        assert_eq!(no_status, "InProgress: Replicas: 0/1", "its controller has not seen it");
    }

    #[test]
    fn a_job_is_current_once_it_has_succeeded() {
        let of = |status: Value| pending("batch", "Job", &json!({}), &status);
        let condition = |type_: &str| json!({"startTime": "t", "conditions": [{"type": type_, "status": "True"}]});
        assert_eq!(of(condition("Complete")), "");
        assert_eq!(of(condition("Failed")), "Failed: Job Failed");
        assert_eq!(of(condition("Suspended")), "InProgress: Job is suspended");
        assert_eq!(of(json!({})), "InProgress: Job not started");
        assert_eq!(
            of(json!({"startTime": "t", "active": 1})),
            "InProgress: Job in progress"
        );
    }

    #[test]
    fn other_workloads_are_current_once_all_replicas_are_ready() {
        let set = |status: Value| pending("apps", "StatefulSet", &json!({"replicas": 2}), &status);
        let ready = json!({"replicas": 2, "readyReplicas": 2, "currentReplicas": 2, "currentRevision": "a", "updateRevision": "a"});
        assert_eq!(set(ready.clone()), "");
        let mut rolling = ready;
        rolling["updateRevision"] = json!("b");
        assert!(set(rolling.clone()).contains("Waiting for updated revision"));
        rolling["currentReplicas"] = json!(1);
        assert_eq!(set(rolling), "InProgress: Current: 1/2");
        let by_hand = json!({"updateStrategy": {"type": "OnDelete"}});
        assert_eq!(pending("apps", "StatefulSet", &by_hand, &json!({})), "");
        let parted = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
        let status = |updated: i64| json!({"replicas": 3, "readyReplicas": 3, "updatedReplicas": updated});
        assert_eq!(pending("apps", "StatefulSet", &parted, &status(1)), "");
        assert_eq!(
            pending("apps", "StatefulSet", &parted, &status(0)),
            "InProgress: Updated: 0/1"
        );

        let daemons = |status: Value| pending("apps", "DaemonSet", &json!({}), &status);
        assert!(daemons(json!({})).contains("observedGeneration not found"));
        assert!(daemons(json!({"observedGeneration": 1})).contains("desiredNumberScheduled"));
        let none = json!({"observedGeneration": 1, "desiredNumberScheduled": 0});
        assert_eq!(daemons(none), "");
        let some = json!({"observedGeneration": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 1});
        assert_eq!(daemons(some), "InProgress: Updated: 0/1");

        let replicas = |status: Value| pending("apps", "ReplicaSet", &json!({}), &status);
        assert_eq!(
            replicas(json!({"fullyLabeledReplicas": 1, "availableReplicas": 1, "readyReplicas": 1, "replicas": 1})),
            ""
        );
        assert_eq!(replicas(json!({})), "InProgress: Labelled: 0/1");
    }

    #[test]
    fn what_has_a_phase_or_a_condition_is_judged_by_it() {
        let pod = |status: Value| pending("", "Pod", &json!({}), &status);
        assert_eq!(pod(json!({"phase": "Succeeded"})), "");
        assert!(pod(json!({"phase": "Failed"})).starts_with("Failed"));
        let ready = json!([{"type": "Ready", "status": "True"}]);
        assert_eq!(pod(json!({"phase": "Running", "conditions": ready})), "");
        let looping = json!([{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        assert!(pod(json!({"phase": "Running", "containerStatuses": looping})).starts_with("Failed"));
        assert!(pod(json!({"phase": "Running"})).starts_with("InProgress"));
        assert!(pod(json!({})).contains("not available"));

        let claim = |status: Value| pending("", "PersistentVolumeClaim", &json!({}), &status);
        assert_eq!(claim(json!({"phase": "Bound"})), "");
        assert!(claim(json!({"phase": "Pending"})).ends_with("Pending"));

        assert_eq!(pending("", "Service", &json!({}), &json!({})), "");
        let balanced = pending("", "Service", &json!({"type": "LoadBalancer"}), &json!({}));
        assert!(balanced.contains("ClusterIP not set"), "{balanced}");

        let crd = |conditions: Value| {
            let status = json!({"conditions": conditions});
            pending("apiextensions.k8s.io", "CustomResourceDefinition", &json!({}), &status)
        };
        assert_eq!(crd(json!([{"type": "Established", "status": "True"}])), "");
        assert!(crd(json!([])).contains("Install in progress"));
        let taken = json!([{"type": "NamesAccepted", "status": "False", "message": "taken"}]);
        assert_eq!(crd(taken), "Failed: taken");
        assert_eq!(pending("", "ConfigMap", &json!({}), &json!({})), "");
    }
}
