//! Stands in for the controller that protects claims: one that is being deleted goes once no pod that is still to run uses it.

use serde_json::Value;

use super::MANAGER;
use crate::change::Change;
use crate::kinds::Storage;
use crate::objects::delete::set_finalizers;
use crate::objects::prepare::PROTECTION;
use crate::objects::update;
use crate::resource::Key;
use crate::state::State;

pub(super) fn run(state: &mut State, changes: &[Change]) {
    let (claims, pods) = (Storage::new("", "persistentvolumeclaims"), Storage::new("", "pods"));
    // A pod that goes or ends may have been the last user of a claim.
    let concerns = |change: &Change| change.storage == claims && !change.deleted || change.storage == pods;
    if !changes.iter().any(concerns) {
        return;
    }
    let going = state.store.list(&claims).filter(|claim| {
        let is_going = claim["metadata"]["deletionTimestamp"].is_string();
        is_going && is_protected(claim) && !state.store.list(&pods).any(|pod| uses(pod, claim))
    });
    let going: Vec<Key> = going.map(|claim| Key::of(claim)).collect();
    let Some(resource) = state.resource("", "persistentvolumeclaims") else {
        return;
    };
    for key in going {
        update::internally(state, &resource, &key, ("", MANAGER), |claim| {
            let mut finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            finalizers.retain(|name| name != PROTECTION);
            set_finalizers(claim, finalizers);
        });
    }
}

fn is_protected(claim: &Value) -> bool {
    let finalizers = claim["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|names| names.iter().any(|name| name == PROTECTION))
}

fn uses(pod: &Value, claim: &Value) -> bool {
    let has_ended = ["Succeeded", "Failed"]
        .iter()
        .any(|phase| pod["status"]["phase"] == *phase);
    let names = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut names = names.map(|volume| match &volume["ephemeral"] {
        Value::Null => volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned),
        _ => Some(format!(
            "{}-{}",
            pod["metadata"]["name"].as_str().unwrap_or_default(),
            volume["name"].as_str().unwrap_or_default()
        )),
    });
    !has_ended
        && pod["metadata"]["namespace"] == claim["metadata"]["namespace"]
        && names.any(|name| name.as_deref() == claim["metadata"]["name"].as_str())
}
