//! The Job controller: pods until enough of them have succeeded or too many failed, deadlines, suspension, removal some time
//! after the end, and the status. It knows no policies of pods' failures and of success, and no limits per index.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::pods::{self, count, number};
use super::{MANAGER, owned};
use crate::change::Change;
use crate::kinds::Storage;
use crate::objects::delete::{delete_internally, set_finalizers};
use crate::objects::update;
use crate::resource::Key;
use crate::state::State;

/// Holds a pod that is not counted yet.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The pause after the first failed pod; each further one doubles it.
const BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(10);

fn storage() -> Storage {
    Storage::new("batch", "jobs")
}

pub(super) fn run(state: &mut State, changes: &[Change]) {
    for (key, job) in owned::concerned(state, changes, (&storage(), "Job"), &pods::storage()) {
        match finished(&job) {
            Some(end) => expire(state, &key, &job, end),
            None => sync(state, &key, &job),
        }
    }
    release_orphans(state, changes);
}

/// The condition by which a job has finished.
fn finished(job: &Value) -> Option<&Value> {
    let mut listed = conditions(job).iter();
    listed.find(|condition| {
        let kinds = ["Complete", "Failed"];
        kinds.iter().any(|kind| condition["type"] == *kind) && condition["status"] == "True"
    })
}

fn conditions(job: &Value) -> &[Value] {
    job["status"]["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Deletes a finished job when its time is up.
fn expire(state: &mut State, key: &Key, job: &Value, end: &Value) {
    let seconds = job["spec"]["ttlSecondsAfterFinished"].as_u64();
    let (Some(seconds), Some(end)) = (seconds, pods::moment(&end["lastTransitionTime"])) else {
        return;
    };
    if pods::passed_or_requeue(state, (&storage(), job), end, Duration::from_secs(seconds))
        && let Some(resource) = state.resource("batch", "jobs")
    {
        delete_internally(state, &resource, key, "Foreground");
    }
}

/// Releases pods whose job is gone or being deleted.
fn release_orphans(state: &mut State, changes: &[Change]) {
    for change in changes
        .iter()
        .filter(|change| change.storage == pods::storage() && !change.deleted)
    {
        let pod = &change.after;
        let is_jobs = |owner: &&Value| owner["kind"] == "Job";
        let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.into_iter().find(is_jobs).cloned();
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let lives = owner.is_some_and(|owner| {
            let name = owner["name"].as_str().unwrap_or_default();
            let job = state.get("batch", "jobs", namespace, name);
            job.is_some_and(|job| job["metadata"]["uid"] == owner["uid"] && !pods::is_going(job))
        });
        if pods::is_going(pod) && !lives {
            release(state, pod);
        }
    }
}

fn is_tracked(pod: &Value) -> bool {
    let finalizers = pod["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|names| names.iter().any(|name| name == TRACKING))
}

fn release(state: &mut State, pod: &Value) {
    let Some(resource) = state.resource("", "pods") else {
        return;
    };
    update::internally(state, &resource, &Key::of(pod), ("", MANAGER), |pod| {
        let mut finalizers = pod["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.retain(|name| name != TRACKING);
        set_finalizers(pod, finalizers);
    });
}

fn index(pod: &Value) -> Option<usize> {
    pod["metadata"]["annotations"][INDEX].as_str()?.parse().ok()
}

fn sync(state: &mut State, key: &Key, job: &Value) {
    let spec = &job["spec"];
    let is_suspended = spec["suspend"] == true;
    let now = state.clock.timestamp();
    let mut status = job["status"].clone();
    if status["startTime"].is_null() && !is_suspended {
        status["startTime"] = json!(now);
    }
    let own = owned::children(state, job, &pods::storage());
    let (active, mut others): (Vec<Arc<Value>>, Vec<Arc<Value>>) =
        own.into_iter().partition(|pod| pods::is_active(pod));
    let is_indexed = spec["completionMode"] == "Indexed";
    let mut indexes = completed_indexes(&status);
    let (mut succeeded, mut failed) = (count(&status["succeeded"]), count(&status["failed"]));
    for pod in others.iter().filter(|pod| is_tracked(pod)) {
        if pod["status"]["phase"] == "Succeeded" {
            succeeded += 1;
            indexes.extend(index(pod));
        } else if !is_suspended {
            failed += 1;
        }
    }
    if is_indexed {
        succeeded = indexes.len();
    }
    let mut end = end_of(state, job, &status, &active, failed);
    let mut left = active.len();
    if end.is_some() || is_suspended {
        if end.is_some() {
            // What a failed job removes counts as failed.
            failed += active.iter().filter(|pod| is_tracked(pod)).count();
            others.extend(active.iter().cloned());
        }
        left = 0;
    } else {
        left = match spec["completions"].as_u64() {
            None if succeeded > 0 => left,
            None => count(&spec["parallelism"]),
            Some(_) => count(&spec["parallelism"]).min(count(&spec["completions"]).saturating_sub(succeeded)),
        };
        let waits = left > active.len() && !retry_or_requeue(state, job, &others, failed);
        left = if waits { active.len() } else { left };
        for _ in active.len()..left {
            make(state, job, is_indexed.then_some(&indexes));
        }
        let enough = spec["completions"]
            .as_u64()
            .map_or(succeeded > 0, |_| succeeded >= count(&spec["completions"]));
        if enough && left == 0 {
            let message = "Reached expected number of succeeded pods";
            end = Some((
                "SuccessCriteriaMet",
                "Complete",
                "CompletionsReached".to_owned(),
                message.to_owned(),
            ));
        }
    }
    for pod in others.iter().filter(|pod| is_tracked(pod)) {
        release(state, pod);
    }
    for pod in active.iter().skip(left) {
        pods::remove(state, pod);
    }
    let own = owned::children(state, job, &pods::storage());
    let going = own.iter().filter(|pod| pods::is_going(pod)).count();
    let ready = own
        .iter()
        .filter(|pod| pods::is_active(pod) && pods::is_ready(pod))
        .count();
    for (name, number) in [("active", left), ("succeeded", succeeded), ("failed", failed)] {
        status[name] = json!(number);
        if number == 0
            && let Some(members) = status.as_object_mut()
        {
            members.remove(name);
        }
    }
    status["ready"] = json!(ready);
    status["terminating"] = json!(going);
    status["uncountedTerminatedPods"] = json!({});
    if is_indexed && !indexes.is_empty() {
        status["completedIndexes"] = json!(intervals(&indexes));
    }
    suspend(&mut status, is_suspended, &now);
    if let Some((first, last, reason, message)) = end {
        set_condition(&mut status, first, (true, &reason, &message), &now);
        if going == 0 {
            set_condition(&mut status, last, (true, &reason, &message), &now);
            if last == "Complete" {
                status["completionTime"] = json!(now);
            }
        }
    }
    owned::write_status(state, ("batch", "jobs"), key, status, &[]);
}

/// The conditions that announce and say the end of a job, with reason and message.
type End = (&'static str, &'static str, String, String);

/// Returns the reason if a job ends before it looks for pods to make.
fn end_of(state: &mut State, job: &Value, status: &Value, active: &[Arc<Value>], failed: usize) -> Option<End> {
    let spec = &job["spec"];
    for (first, last) in [("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")] {
        if let Some(known) = conditions(job).iter().find(|known| known["type"] == first) {
            let text = |name: &str| known[name].as_str().unwrap_or_default().to_owned();
            return Some((first, last, text("reason"), text("message")));
        }
    }
    let failure =
        |reason: &str, message: &str| Some(("FailureTarget", "Failed", reason.to_owned(), message.to_owned()));
    let limit = count(&spec["backoffLimit"]);
    let restarts: i64 = active
        .iter()
        .filter(|_| spec["template"]["spec"]["restartPolicy"] == "OnFailure")
        .flat_map(|pod| pod["status"]["containerStatuses"].as_array().into_iter().flatten())
        .map(|container| number(&container["restartCount"]))
        .sum();
    if failed > limit || restarts > 0 && restarts >= number(&spec["backoffLimit"]) {
        return failure("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    let (seconds, start) = (
        spec["activeDeadlineSeconds"].as_u64()?,
        pods::moment(&status["startTime"])?,
    );
    if spec["suspend"] != true && pods::passed_or_requeue(state, (&storage(), job), start, Duration::from_secs(seconds))
    {
        return failure("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    None
}

/// Returns `true` if the back-off after the last failure is over.
fn retry_or_requeue(state: &mut State, job: &Value, pods: &[Arc<Value>], failed: usize) -> bool {
    let ends = pods
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Failed")
        .filter_map(|pod| {
            let states = pod["status"]["containerStatuses"].as_array()?.iter();
            states
                .filter_map(|its| pods::moment(&its["state"]["terminated"]["finishedAt"]))
                .max()
        });
    let Some(last) = ends.max() else { return true };
    let doubled = u32::try_from(failed.saturating_sub(1)).unwrap_or(0).min(10);
    let pause = BACK_OFF.saturating_mul(1 << doubled).min(LONGEST_BACK_OFF);
    pods::passed_or_requeue(state, (&storage(), job), last, pause)
}

/// Creates a pod. Where the job has indexes, it gets the first one that is neither completed nor running.
fn make(state: &mut State, job: &Value, completed: Option<&BTreeSet<usize>>) {
    let mut pod = pods::of_template(job);
    pod["metadata"]["finalizers"] = json!([TRACKING]);
    if let Some(completed) = completed {
        let mut taken = completed.clone();
        let own = owned::children(state, job, &pods::storage());
        taken.extend(
            own.iter()
                .filter(|pod| pods::is_active(pod))
                .filter_map(|pod| index(pod)),
        );
        let free = (0..=taken.len())
            .find(|index| !taken.contains(index))
            .unwrap_or_default()
            .to_string();
        let name = job["metadata"]["name"].as_str().unwrap_or_default();
        pod["metadata"]["annotations"][INDEX] = json!(free);
        pod["metadata"]["labels"][INDEX] = json!(free);
        pod["metadata"]["generateName"] = json!(format!("{name}-{free}-"));
        pod["spec"]["hostname"] = json!(format!("{name}-{free}"));
    }
    pods::make(state, &pod);
}

/// The indexes of a text like `0-2,5`.
fn completed_indexes(status: &Value) -> BTreeSet<usize> {
    let text = status["completedIndexes"].as_str().unwrap_or_default();
    let mut indexes = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            indexes.extend(first..=last);
        }
    }
    indexes
}

fn intervals(indexes: &BTreeSet<usize>) -> String {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for &index in indexes {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => found.push((index, index)),
        }
    }
    let parts = found.iter().map(|(first, last)| {
        let separator = if *last == first + 1 { "," } else { "-" };
        if first == last {
            first.to_string()
        } else {
            format!("{first}{separator}{last}")
        }
    });
    parts.collect::<Vec<_>>().join(",")
}

fn suspend(status: &mut Value, is_suspended: bool, now: &str) {
    let listed = status["conditions"].as_array().into_iter().flatten();
    let known = listed.into_iter().find(|known| known["type"] == "Suspended").cloned();
    let was = known.as_ref().is_some_and(|known| known["status"] == "True");
    if was == is_suspended {
        return;
    }
    let (reason, message) = if is_suspended {
        ("JobSuspended", "Job suspended")
    } else {
        ("JobResumed", "Job resumed")
    };
    set_condition(status, "Suspended", (is_suspended, reason, message), now);
    if is_suspended {
        status.as_object_mut().map(|members| members.remove("startTime"));
    } else {
        status["startTime"] = json!(now);
    }
}

fn set_condition(status: &mut Value, kind: &str, (holds, reason, message): (bool, &str, &str), now: &str) {
    let value = if holds { "True" } else { "False" };
    let mut all = status["conditions"].as_array().cloned().unwrap_or_default();
    if all
        .iter()
        .any(|known| known["type"] == kind && known["status"] == value)
    {
        return;
    }
    all.retain(|known| known["type"] != kind);
    all.push(json!({
        "type": kind, "status": value, "reason": reason, "message": message, "lastProbeTime": now, "lastTransitionTime": now,
    }));
    status["conditions"] = Value::Array(all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_indexes_are_written_as_intervals() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7"] {
            let indexes = completed_indexes(&json!({"completedIndexes": text}));
            assert_eq!(intervals(&indexes), text);
        }
    }
}
