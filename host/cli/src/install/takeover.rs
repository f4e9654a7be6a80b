//! Owns how long the rights of an earlier version stay. While it runs, it needs what it was granted: it goes on if the new version
//! cannot start, and the new version prunes with its rights what it made. So grants are joined first, and narrowed when the new
//! version runs and nothing of an earlier one is left.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pilothouse_cluster::installer::{Installer, InstallerError};
use pilothouse_core::manifest::{Access, Manifest};
use serde_json::Value;

use crate::artifact::printable;

/// How often it is looked whether the new version runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The lists in which roles and bindings say what they grant, and to whom.
const GRANTS: [&str; 2] = ["rules", "subjects"];

/// A version that is to take over from one that runs.
pub struct Takeover {
    /// The digest of its component, as the Plugin's status has it.
    pub digest: String,
    /// The kinds of objects that it makes or contributes to, by API group and kind.
    kinds: BTreeSet<(String, String)>,
    /// The finalizers that it sets.
    finalizers: BTreeSet<String>,
}

/// What became of a takeover.
#[derive(Debug, PartialEq, Eq)]
pub enum TakenOver {
    /// The new version runs, and nothing of an earlier one is left.
    Completely,
    /// The new version runs; these kinds and finalizers of an earlier one are left.
    Partly(Vec<String>),
    /// The new version does not run, for this reason.
    NotYet(String),
}

impl Takeover {
    /// By a component with this digest; none if no version runs from which it could take over.
    pub fn from(live: Option<&Value>, digest: &str, manifest: &Manifest) -> Option<Self> {
        let live = live.filter(|live| live["status"]["digest"].is_string() && live["spec"]["mode"] != "Suspended")?;
        if !live["metadata"]["deletionTimestamp"].is_null() {
            return None;
        }
        let touches = manifest.controllers.iter().flat_map(|it| &it.touches);
        let made = touches.filter(|touch| touch.access.iter().any(|access| *access != Access::Read));
        let finalizers = manifest.controllers.iter().filter_map(|it| it.finalizer.clone());
        Some(Self {
            digest: format!("sha256:{digest}"),
            kinds: made
                .map(|touch| (touch.kind.group.clone(), touch.kind.kind.clone()))
                .collect(),
            finalizers: finalizers.collect(),
        })
    }

    /// Waits until the version that the live Plugin wants runs.
    pub async fn wait(
        &self,
        installer: &Installer,
        plugin: &Value,
        within: Duration,
    ) -> Result<TakenOver, InstallerError> {
        let begun = Instant::now();
        loop {
            let live = installer.find(plugin).await?.unwrap_or_default();
            let state = self.state(&live);
            if state == TakenOver::Completely || begun.elapsed() > within {
                return Ok(state);
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn state(&self, live: &Value) -> TakenOver {
        let status = &live["status"];
        let is_seen = status["observedGeneration"].as_i64() >= live["metadata"]["generation"].as_i64();
        if !is_seen {
            return TakenOver::NotYet("its host has not looked at the change; see that the host runs".to_owned());
        }
        if status["digest"] != *self.digest {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let mut wrong = conditions.filter(|condition| condition["status"] != "True");
            let message = wrong.find_map(|condition| condition["message"].as_str());
            return TakenOver::NotYet(printable(message.unwrap_or("`kubectl describe plugin` says why")));
        }
        let left = self.left(status);
        if left.is_empty() {
            TakenOver::Completely
        } else {
            TakenOver::Partly(left)
        }
    }

    /// What is remembered of earlier versions.
    fn left(&self, status: &Value) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kinds = ["ownedKinds", "contributedKinds"]
            .into_iter()
            .flat_map(|list| status[list].as_array().into_iter().flatten())
            .map(|entry| (text(&entry["kind"]["group"]), text(&entry["kind"]["kind"])))
            .filter(|kind| !self.kinds.contains(kind))
            .map(|(_, kind)| kind);
        let finalizers = status["finalizers"].as_array().into_iter().flatten();
        let finalizers = finalizers
            .map(|entry| text(&entry["finalizer"]))
            .filter(|finalizer| !self.finalizers.contains(finalizer));
        let left: BTreeSet<String> = kinds.chain(finalizers).map(|it| printable(&it)).collect();
        left.into_iter().collect()
    }
}

/// A role or a binding that grants what is wanted and what the live one grants.
pub fn joined(wanted: &Value, live: &Value) -> Value {
    let mut joined = wanted.clone();
    for list in GRANTS {
        let own = joined.get_mut(list).and_then(Value::as_array_mut);
        let (Some(own), Some(others)) = (own, live[list].as_array()) else {
            continue;
        };
        for other in others {
            if !own.iter().any(|it| is_same(it, other)) {
                own.push(other.clone());
            }
        }
    }
    joined
}

/// Whether a live role or binding grants something that the wanted one does not.
pub fn narrows(wanted: &Value, live: &Value) -> bool {
    GRANTS.iter().any(|list| {
        let wanted = wanted[*list].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut live = live[*list].as_array().into_iter().flatten();
        live.any(|live| !wanted.iter().any(|it| is_same(it, live)))
    })
}

/// Whether a live entry is the wanted one; the API server fills in empty groups.
fn is_same(wanted: &Value, live: &Value) -> bool {
    let (Some(wanted), Some(live)) = (wanted.as_object(), live.as_object()) else {
        return wanted == live;
    };
    let is_nothing = |value: &Value| value == "";
    let has_all = |one: &serde_json::Map<String, Value>, other: &serde_json::Map<String, Value>| {
        one.iter()
            .all(|(name, value)| other.get(name) == Some(value) || is_nothing(value))
    };
    has_all(wanted, live) && has_all(live, wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn takeover() -> Takeover {
        Takeover {
            digest: "sha256:new".to_owned(),
            kinds: [("apps".to_owned(), "Deployment".to_owned())].into(),
            finalizers: ["example.com/a".to_owned()].into(),
        }
    }

    fn live(status: &Value) -> Value {
        json!({"metadata": {"generation": 2}, "status": status})
    }

    #[test]
    fn a_version_has_taken_over_when_nothing_of_an_earlier_one_is_left() {
        let owned = |kinds: &[(&str, &str)]| -> Vec<Value> {
            let entry = |(group, kind): &(&str, &str)| json!({"kind": {"group": group, "version": "v1", "kind": kind}});
            kinds.iter().map(entry).collect()
        };
        let state = |digest: &str, generation: i64, kinds: &[(&str, &str)], finalizers: &Value| {
            takeover().state(&live(&json!({
                "observedGeneration": generation, "digest": digest, "ownedKinds": owned(kinds), "finalizers": finalizers,
                "conditions": [{"status": "True", "message": "fine"}, {"status": "False", "message": "it traps"}],
            })))
        };
        let (new, deployments) = ("sha256:new", ("apps", "Deployment"));
        let none = json!([]);
        assert_eq!(state(new, 2, &[deployments], &none), TakenOver::Completely);
        assert_eq!(
            state(
                new,
                2,
                &[deployments, ("", "Service")],
                &json!([{"finalizer": "example.com/b"}])
            ),
            TakenOver::Partly(vec!["Service".to_owned(), "example.com/b".to_owned()])
        );
        let refused = state("sha256:old", 2, &[deployments], &none);
        assert_eq!(refused, TakenOver::NotYet("it traps".to_owned()));
        assert!(matches!(state(new, 1, &[deployments], &none), TakenOver::NotYet(_)));
    }

    #[test]
    fn there_is_nothing_to_take_over_where_nothing_runs() {
        let manifest = json!({"name": "web", "version": "1.0.0", "controllers": []});
        let manifest: Manifest = serde_json::from_value(manifest).unwrap();
        let running = |live: &Value| Takeover::from(Some(live), "new", &manifest).is_some();
        let status = json!({"digest": "sha256:old"});
        assert!(running(&json!({"spec": {}, "status": status})));
        assert!(!running(&json!({"spec": {}, "status": {}})));
        assert!(!running(&json!({"spec": {"mode": "Suspended"}, "status": status})));
        assert!(Takeover::from(None, "new", &manifest).is_none());
    }

    #[test]
    fn grants_are_joined_until_the_earlier_version_is_gone() {
        let rule = |resource: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]});
        let subject = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": "a"});
        let mut of_the_server = subject("x");
        of_the_server["apiGroup"] = json!("");
        let wanted = json!({"rules": [rule("pods")], "subjects": [subject("x")]});
        let live = json!({"rules": [rule("secrets"), rule("pods")], "subjects": [of_the_server, subject("y")]});
        assert!(narrows(&wanted, &live));
        let joined = joined(&wanted, &live);
        assert_eq!(joined["rules"], json!([rule("pods"), rule("secrets")]));
        assert_eq!(joined["subjects"], json!([subject("x"), subject("y")]));
        assert!(!narrows(&joined, &live));
        let role = super::joined(&json!({"rules": []}), &json!({"rules": [rule("pods")]}));
        assert_eq!(role, json!({"rules": [rule("pods")]}), "a role has no subjects");
    }
}
