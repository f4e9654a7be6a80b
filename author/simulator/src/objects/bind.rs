//! Binding a pod to a node, as a scheduler does.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Answer, Call, body};
use crate::failure::Failure;
use crate::state::State;

/// POST of a Binding.
pub(crate) fn bind(state: &mut State, call: &Call, text: &[u8]) -> Result<Answer, Failure> {
    let binding = body::parse(text)?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let name = call.name.as_deref().unwrap_or_default();
    if node.is_empty() {
        return Err(Failure::unclassified("target.name: Required value"));
    }
    let Some(stored) = state.store.get(&call.resource.storage, &call.key()).cloned() else {
        return Err(call.not_found());
    };
    let cause = if stored["metadata"]["deletionTimestamp"].is_string() {
        Some(format!("pod {name} is being deleted, cannot be assigned to a host"))
    } else {
        let bound = stored["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
        bound.map(|node| format!("pod {name} is already assigned to node \"{node}\""))
    };
    if let Some(cause) = cause {
        return Err(Failure::conflict("", "pods/binding", name, &cause));
    }
    let mut pod = (*stored).clone();
    pod["spec"]["nodeName"] = json!(node);
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|known| known["type"] != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": state.clock.timestamp(),
    }));
    pod["status"]["conditions"] = Value::Array(conditions);
    if !call.options.dry_run {
        // Past the book of managers and the generation, as on a real server.
        state.store.put(&call.resource.storage, pod);
    }
    Ok(Answer {
        code: StatusCode::CREATED,
        ..Answer::other(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
    })
}
