//! The statuses that a kubelet writes: of a pod whose containers run, have succeeded or keep failing. Pure functions, for the
//! simulated cluster and for the test kit, which writes them to a real one.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::clock::rfc3339;

/// Fate of the containers of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of them run and are ready.
    Ready,
    /// All of them have exited with 0, for pods that do not restart always.
    Succeeded,
    /// All of them have exited with 1. Where the pod restarts them, they have been restarted this often.
    Failed {
        /// Count of restarts.
        restarts: i64,
    },
}

impl Outcome {
    /// Returns the default fate of a pod: it becomes ready, or succeeds if its containers are not restarted after that.
    pub fn of(pod: &Value) -> Self {
        match pod["spec"]["restartPolicy"].as_str() {
            Some("Never" | "OnFailure") => Self::Succeeded,
            _ => Self::Ready,
        }
    }
}

/// Returns `true` if nothing in the pod runs any more.
pub fn has_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Returns the pod's status with the outcome, as of `now`. Unchanged parts keep their times.
pub fn status(pod: &Value, outcome: Outcome, now: SystemTime) -> Value {
    let now = &rfc3339(now);
    let mut status = pod["status"].clone();
    let restarts = match outcome {
        // Containers that are never restarted end with the pod.
        Outcome::Failed { restarts } if pod["spec"]["restartPolicy"] != "Never" => Some(restarts),
        _ => None,
    };
    let (phase, reason) = match (outcome, restarts) {
        (Outcome::Ready, _) => ("Running", None),
        (Outcome::Succeeded, _) => ("Succeeded", Some("PodCompleted")),
        (Outcome::Failed { .. }, None) => ("Failed", Some("PodFailed")),
        (Outcome::Failed { .. }, Some(_)) => ("Running", Some("ContainersNotReady")),
    };
    let start = known(&status["startTime"]).unwrap_or_else(|| json!(now));
    let containers = |name: &str| pod["spec"][name].as_array().cloned().unwrap_or_default();
    let terminated = |code: i64| {
        let reason = if code == 0 { "Completed" } else { "Error" };
        json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": start, "finishedAt": now}})
    };
    let container = |container: &Value, is_ready: bool, state: Value, last: Value| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "", "ready": is_ready,
            "started": state["running"].is_object(), "restartCount": restarts.unwrap_or(0), "state": state, "lastState": last,
        })
    };
    let states: Vec<Value> = containers("containers")
        .iter()
        .map(|its| match (outcome, restarts) {
            (Outcome::Ready, _) => container(its, true, json!({"running": {"startedAt": start}}), json!({})),
            (Outcome::Succeeded, _) => container(its, false, terminated(0), json!({})),
            (Outcome::Failed { .. }, None) => container(its, false, terminated(1), json!({})),
            (Outcome::Failed { .. }, Some(_)) => {
                let message = "back-off 10s restarting failed container";
                let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
                container(its, false, waiting, terminated(1))
            }
        })
        .collect();
    let initialized: Vec<Value> = containers("initContainers")
        .iter()
        .map(|its| container(its, true, terminated(0), json!({})))
        .collect();
    let conditions: Vec<Value> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .into_iter()
        .map(|kind| {
            let reason = reason.filter(|_| kind.ends_with("Ready"));
            let value = if reason.is_some() { "False" } else { "True" };
            let listed = status["conditions"].as_array().into_iter().flatten();
            let before = listed.into_iter().find(|its| its["type"] == kind && its["status"] == value);
            let since = before.and_then(|its| known(&its["lastTransitionTime"]));
            let mut condition = json!({
                "type": kind, "status": value, "lastProbeTime": null, "lastTransitionTime": since.unwrap_or_else(|| json!(now)),
            });
            if let Some(reason) = reason {
                condition["reason"] = json!(reason);
            }
            condition
        })
        .collect();
    status["phase"] = json!(phase);
    status["startTime"] = start.clone();
    status["conditions"] = json!(conditions);
    status["containerStatuses"] = json!(states);
    if !initialized.is_empty() {
        status["initContainerStatuses"] = json!(initialized);
    }
    status
}

fn known(value: &Value) -> Option<Value> {
    value.is_string().then(|| value.clone())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn pod(policy: &str) -> Value {
        json!({"spec": {"restartPolicy": policy, "containers": [{"name": "a", "image": "a:1"}]}, "status": {"phase": "Pending"}})
    }

    #[test]
    fn a_pod_that_is_ready_stays_so_since_then() {
        let mut pod = pod("Always");
        pod["status"] = status(&pod, Outcome::of(&pod), NOW);
        assert_eq!(pod["status"]["phase"], "Running");
        assert_eq!(
            status(&pod, Outcome::Ready, NOW + Duration::from_secs(9)),
            pod["status"]
        );
    }

    #[test]
    fn containers_that_fail_are_restarted_unless_the_pod_never_does() {
        let failed = Outcome::Failed { restarts: 3 };
        for (policy, phase, count) in [
            ("Always", "Running", 3),
            ("OnFailure", "Running", 3),
            ("Never", "Failed", 0),
        ] {
            let status = status(&pod(policy), failed, NOW);
            assert_eq!(
                (
                    status["phase"].as_str(),
                    status["containerStatuses"][0]["restartCount"].as_i64()
                ),
                (Some(phase), Some(count)),
                "{policy}"
            );
            assert_eq!(status["conditions"][3]["status"], "False");
        }
    }
}
