//! Defaults of the kinds that make pods.

use serde_json::{Value, json};

use super::pod::template;
use super::{member, set};

pub(super) fn deployment(object: &mut Value) {
    let Some(spec) = member(object, "spec") else { return };
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
    set(spec, "strategy", json!({}));
    set(&mut spec["strategy"], "type", "RollingUpdate");
    rolling(
        &mut spec["strategy"],
        &json!({"maxUnavailable": "25%", "maxSurge": "25%"}),
    );
    template(&mut spec["template"]);
}

pub(super) fn replica_set(object: &mut Value) {
    let Some(spec) = member(object, "spec") else { return };
    set(spec, "replicas", 1);
    template(&mut spec["template"]);
}

pub(super) fn stateful_set(object: &mut Value) {
    let Some(spec) = member(object, "spec") else { return };
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "podManagementPolicy", "OrderedReady");
    set(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
    set(
        &mut spec["persistentVolumeClaimRetentionPolicy"],
        "whenDeleted",
        "Retain",
    );
    set(
        &mut spec["persistentVolumeClaimRetentionPolicy"],
        "whenScaled",
        "Retain",
    );
    set(spec, "updateStrategy", json!({}));
    set(&mut spec["updateStrategy"], "type", "RollingUpdate");
    rolling(&mut spec["updateStrategy"], &json!({"partition": 0}));
    for claim in super::items(spec, "volumeClaimTemplates") {
        set(claim, "apiVersion", "v1");
        set(claim, "kind", "PersistentVolumeClaim");
        set(&mut claim["spec"], "volumeMode", "Filesystem");
        set(&mut claim["status"], "phase", "Pending");
    }
    template(&mut spec["template"]);
}

/// Counts the templates that a DaemonSet has had.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn daemon_set(object: &mut Value) {
    if object["metadata"].get("annotations").is_none() {
        set(&mut object["metadata"], "annotations", json!({}));
    }
    set(&mut object["metadata"]["annotations"], TEMPLATE_GENERATION, "1");
    let Some(spec) = member(object, "spec") else { return };
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "updateStrategy", json!({}));
    set(&mut spec["updateStrategy"], "type", "RollingUpdate");
    rolling(
        &mut spec["updateStrategy"],
        &json!({"maxUnavailable": 1, "maxSurge": 0}),
    );
    template(&mut spec["template"]);
}

pub(super) fn replication_controller(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    let Some(spec) = member(object, "spec") else { return };
    set(spec, "replicas", 1);
    if labels.is_object() {
        set(spec, "selector", labels.clone());
        set(&mut object["metadata"], "labels", labels);
    }
    template(&mut object["spec"]["template"]);
}

pub(super) fn job(spec: &mut Value) {
    // With parallelism but without completions it is a work queue.
    if spec.get("parallelism").is_none() {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    set(spec, "backoffLimit", 6);
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    set(spec, "manualSelector", false);
    let on_failure = spec["podFailurePolicy"].is_object();
    set(
        spec,
        "podReplacementPolicy",
        if on_failure { "Failed" } else { "TerminatingOrFailed" },
    );
    template(&mut spec["template"]);
}

pub(super) fn cron_job(object: &mut Value) {
    let Some(spec) = member(object, "spec") else { return };
    set(spec, "concurrencyPolicy", "Allow");
    set(spec, "suspend", false);
    set(spec, "successfulJobsHistoryLimit", 3);
    set(spec, "failedJobsHistoryLimit", 1);
    // The job in it gets only the defaults of its pods.
    if let Some(job) = member(&mut spec["jobTemplate"], "spec") {
        template(&mut job["template"]);
    }
}

/// The limits of a rolling update, where it is one.
fn rolling(strategy: &mut Value, defaults: &Value) {
    if strategy["type"] != "RollingUpdate" {
        return;
    }
    set(strategy, "rollingUpdate", json!({}));
    for (name, value) in defaults.as_object().into_iter().flatten() {
        set(&mut strategy["rollingUpdate"], name, value.clone());
    }
}
