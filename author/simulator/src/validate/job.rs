//! Checks Jobs and CronJobs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::workload::matches;
use super::{immutable, not_negative, pod, same, text};
use crate::failure::FieldError;

/// Members that never change, beside the template.
const FIXED: [&str; 6] = [
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
];

pub(super) fn job(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = job_spec(spec, "spec");
    let labels = &spec["template"]["metadata"]["labels"];
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if spec["selector"].is_null() || !matches(&spec["selector"], labels) {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, detail));
    }
    // The server checks a changed job twice: as if it were new, and as a change.
    if old.is_some() {
        errors.extend(errors.clone());
    }
    let uid = &object["metadata"]["uid"];
    let generated = json!({
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": object["metadata"]["name"],
        "controller-uid": uid, "job-name": object["metadata"]["name"],
    });
    if spec["manualSelector"] != true && spec["selector"].is_object() && !matches(&spec["selector"], &generated) {
        let detail = "`selector` not auto-generated";
        errors.push(FieldError::invalid("spec.selector", &spec["selector"], detail));
    }
    let Some(old) = old.map(|old| &old["spec"]) else {
        return errors;
    };
    let (completions, before) = (&spec["completions"], &old["completions"]);
    if spec["completionMode"] != "Indexed" {
        errors.extend(immutable("spec.completions", completions, Some(before)));
    } else if !same(completions, before) && completions != &spec["parallelism"] {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid("spec.completions", completions, detail));
    }
    // While it is suspended, what schedules its pods and what they ask for may change.
    let fixed = |template: &Value| {
        let mut template = template.clone();
        if old["suspend"] == true
            && let Some(members) = template["spec"].as_object_mut()
        {
            for name in ["nodeSelector", "tolerations", "schedulingGates", "affinity"] {
                members.remove(name);
            }
            for name in ["containers", "initContainers"] {
                for container in members
                    .get_mut(name)
                    .and_then(Value::as_array_mut)
                    .into_iter()
                    .flatten()
                {
                    container["resources"] = Value::Null;
                }
            }
        }
        template
    };
    if !same(&fixed(&spec["template"]), &fixed(&old["template"])) {
        errors.extend(immutable("spec.template", &spec["template"], Some(&old["template"])));
    }
    for name in FIXED {
        errors.extend(immutable(&format!("spec.{name}"), &spec[name], Some(&old[name])));
    }
    errors
}

fn job_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.extend(not_negative(&format!("{path}.{name}"), &spec[name]));
    }
    let mode = &spec["completionMode"];
    let modes = ["NonIndexed", "Indexed"];
    if mode.is_string() && !modes.contains(&text(mode)) {
        errors.push(FieldError::not_supported(
            format!("{path}.completionMode"),
            mode,
            &modes,
        ));
    }
    if mode == "Indexed" && spec["completions"].is_null() {
        let detail = "when completion mode is Indexed";
        errors.push(FieldError::required(format!("{path}.completions"), detail));
    }
    if mode.is_null() || mode == "NonIndexed" {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if spec[name].is_number() {
                let detail = "requires indexed completion mode";
                errors.push(FieldError::invalid(format!("{path}.{name}"), &spec[name], detail));
            }
        }
    }
    errors.extend(pod::template(
        &spec["template"],
        &format!("{path}.template"),
        &BTreeSet::new(),
    ));
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let path = format!("{path}.template.spec.restartPolicy");
    match text(policy) {
        "OnFailure" | "Never" => {}
        "" | "Always" => {
            let detail = "valid values: \"OnFailure\", \"Never\"";
            errors.push(FieldError::required(path, detail));
        }
        _ => errors.push(FieldError::not_supported(path, policy, &["OnFailure", "Never"])),
    }
    errors
}

pub(super) fn cron_job(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(&spec["schedule"]).is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    }
    for name in [
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ] {
        errors.extend(not_negative(&format!("spec.{name}"), &spec[name]));
    }
    let policy = &spec["concurrencyPolicy"];
    let policies = ["Allow", "Forbid", "Replace"];
    if !policies.contains(&text(policy)) {
        let shown = json!(text(policy));
        errors.push(FieldError::not_supported("spec.concurrencyPolicy", &shown, &policies));
    }
    errors.extend(job_spec(&spec["jobTemplate"]["spec"], "spec.jobTemplate.spec"));
    errors
}
