//! Waits until the host runs the version that was installed, and decides how long the rights of an earlier version
//! stay. While that version runs, it needs its rights: it continues to run if the new version cannot start, and the new
//! version prunes its objects with them. So rules are merged first, and narrowed when the new version runs and no
//! object of an earlier one is left.
//!
//! Subjects are never merged: a binding in a namespace may name subjects that any user with access to it has added.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pilothouse_cluster::resources::installer::{Installer, InstallerError};
use pilothouse_core::plugin::grants::Grants;
use pilothouse_core::plugin::inventory::Inventory;
use pilothouse_core::plugin::manifest::Manifest;
use serde_json::Value;

use pilothouse_core::text::printable::printable;

/// Interval at which the status is polled.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Time for which a refusal has to last until it counts: the host retries with back-off, and API servers may not know rights
/// yet that were granted a moment before.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(15);

/// Reason while no host has reconciled the Plugin's latest generation.
pub const UNSEEN: &str = "no host has looked at it";

/// A version that is to run, perhaps in place of a running one, or of one with objects left.
pub struct Takeover {
    /// The digest of its component, as the Plugin's status has it.
    digest: String,
    /// Kinds that its controllers access.
    grants: Vec<Grants>,
    /// The finalizers that they set.
    finalizers: BTreeSet<String>,
}

/// Outcome of a takeover.
#[derive(Debug, PartialEq, Eq)]
pub enum TakenOver {
    /// The new version runs, and no object of an earlier one is left.
    Completely,
    /// The new version runs; these objects of an earlier one are left, described for people.
    Partly(Vec<String>),
    /// The new version does not run, for this reason.
    NotYet(String),
    /// The host refuses the new version, for this reason.
    Refused(String),
    /// Nothing runs, because the Plugin is suspended.
    Suspended,
    /// Another user has changed or deleted the Plugin.
    Meanwhile,
}

impl Takeover {
    /// Returns the takeover by a component with this digest.
    pub fn by(digest: &str, manifest: &Manifest) -> Self {
        Self {
            digest: format!("sha256:{digest}"),
            grants: manifest.controllers.iter().map(Grants::new).collect(),
            finalizers: manifest
                .controllers
                .iter()
                .filter_map(|controller| controller.finalizer.clone())
                .collect(),
        }
    }

    /// Reports whether a version runs, or objects of an earlier one are left. The running version may be the same
    /// component with another configuration, under which it needs more rights.
    pub fn follows_another(&self, live: Option<&Value>) -> bool {
        live.is_some_and(|live| {
            let status = &live["status"];
            status["digest"].is_string() && !is_suspended(live) || !self.left(status).is_empty()
        })
    }

    /// Waits until the version that the Plugin wants runs and, with `prunes`, until no object of an earlier one is
    /// left. The Plugin is the one returned by the apply. Each new reason to wait is shown. A refusal ends the wait if the
    /// apply has changed the spec (`is_new`): a refusal of the same spec may be older than what was just corrected.
    pub async fn wait(
        &self,
        installer: &Installer,
        plugin: &Value,
        within: Duration,
        prunes: bool,
        is_new: bool,
        mut show: impl FnMut(&str),
    ) -> Result<TakenOver, InstallerError> {
        let (begun, mut shown) = (Instant::now(), None);
        let mut refused: Option<Instant> = None;
        loop {
            let live = installer.find(plugin).await?.unwrap_or_default();
            let state = self.progress(plugin, &live);
            let is_over = match &state {
                TakenOver::Completely | TakenOver::Meanwhile | TakenOver::Suspended => true,
                // No host prunes for a suspended Plugin.
                TakenOver::Partly(_) => !prunes || is_suspended(&live),
                TakenOver::Refused(_) => {
                    let since = refused.get_or_insert_with(Instant::now);
                    is_new && since.elapsed() > REFUSAL_PATIENCE
                }
                TakenOver::NotYet(_) => {
                    refused = None;
                    false
                }
            };
            if is_over || begun.elapsed() > within {
                return Ok(state);
            }
            if let TakenOver::NotYet(reason) | TakenOver::Refused(reason) = &state
                && shown.as_ref() != Some(reason)
            {
                show(reason);
                shown = Some(reason.clone());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn progress(&self, applied: &Value, live: &Value) -> TakenOver {
        let metadata = &live["metadata"];
        let is_same = |name: &str| metadata[name] == applied["metadata"][name];
        if !is_same("uid") || !is_same("generation") {
            return TakenOver::Meanwhile;
        }
        let status = &live["status"];
        if !is_suspended(live)
            && let Some(obstacle) = self.obstacle(metadata, status)
        {
            return obstacle;
        }
        let left = self.left(status);
        match (left.is_empty(), is_suspended(live)) {
            (true, false) => TakenOver::Completely,
            (true, true) => TakenOver::Suspended,
            (false, _) => TakenOver::Partly(left),
        }
    }

    /// Returns why the version does not run; none if it does.
    fn obstacle(&self, metadata: &Value, status: &Value) -> Option<TakenOver> {
        let conditions = || status["conditions"].as_array().into_iter().flatten();
        let is_of_now = |about: &Value| about["observedGeneration"].as_i64() >= metadata["generation"].as_i64();
        let explains = |kind: &str| {
            let mut found = conditions().filter(|it| it["type"] == kind && it["status"] == "True" && is_of_now(it));
            let message = found.next()?["message"].as_str()?;
            Some(printable(message))
        };
        if let Some(reason) = explains("Stalled") {
            return Some(TakenOver::Refused(reason));
        }
        if let Some(reason) = explains("Reconciling") {
            return Some(TakenOver::NotYet(reason));
        }
        if !is_of_now(status) {
            return Some(TakenOver::NotYet(UNSEEN.to_owned()));
        }
        let is_ready = conditions().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let runs_earlier = status["runningGeneration"].as_i64() < metadata["generation"].as_i64();
        if is_ready && status["digest"] == *self.digest && !runs_earlier {
            return None;
        }
        let with = |status: &str| conditions().find(|condition| condition["status"] == status);
        let ready = || conditions().find(|condition| condition["type"] == "Ready");
        let message = with("False").or_else(|| with("Unknown")).or_else(ready);
        let message = message.and_then(|condition| condition["message"].as_str());
        let reason = printable(message.unwrap_or("`kubectl describe plugin` says why"));
        Some(TakenOver::NotYet(reason))
    }

    /// Describes the recorded objects of earlier versions that are not this version's.
    fn left(&self, status: &Value) -> Vec<String> {
        fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
            let entries = value.as_array().into_iter().flatten();
            entries
                .filter_map(|entry| serde_json::from_value(entry.clone()).ok())
                .collect()
        }
        let inventory = Inventory {
            owned: list(&status["ownedKinds"]),
            contributed: list(&status["contributedKinds"]),
            finalizers: list(&status["finalizers"]),
        };
        let mut left = BTreeSet::new();
        let is_steered = |primary: &pilothouse_core::Kind| self.grants.iter().any(|it| it.primary().same_kind(primary));
        for grants in &self.grants {
            for former in inventory.former(grants) {
                if former.owned.is_some() {
                    left.insert(format!("objects of kind {}", former.kind.kind));
                }
                if former.contributed.is_some() {
                    left.insert(format!("fields in objects of kind {}", former.kind.kind));
                }
            }
        }
        let of_others = |kinds: &[pilothouse_core::plugin::inventory::OwnedKind], what: &str| -> Vec<String> {
            let others = kinds.iter().filter(|kind| !is_steered(&kind.primary));
            others.map(|kind| format!("{what} {}", kind.kind.kind)).collect()
        };
        left.extend(of_others(&inventory.owned, "objects of kind"));
        left.extend(of_others(&inventory.contributed, "fields in objects of kind"));
        let finalizers = inventory
            .finalizers
            .iter()
            .filter(|set| !self.finalizers.contains(&set.finalizer));
        left.extend(finalizers.map(|set| format!("the finalizer {} of {} objects", set.finalizer, set.primary.kind)));
        left.into_iter().map(|it| printable(&it)).collect()
    }
}

fn is_suspended(plugin: &Value) -> bool {
    plugin["spec"]["mode"] == "Suspended"
}

/// Returns a role that grants both the wanted and the live rules. Other objects are returned as wanted.
pub fn joined(wanted: &Value, live: &Value) -> Value {
    let mut joined = wanted.clone();
    let own = joined.get_mut("rules").and_then(Value::as_array_mut);
    if let (Some(own), Some(others)) = (own, live["rules"].as_array()) {
        for other in others {
            if !own.iter().any(|it| is_same(it, other)) {
                own.push(other.clone());
            }
        }
    }
    joined
}

/// Reports whether a live role grants something that the wanted one does not.
pub fn narrows(wanted: &Value, live: &Value) -> bool {
    has_more("rules", live, wanted)
}

/// Reports whether a live role or binding differs from the wanted one.
pub fn differs(wanted: &Value, live: &Value) -> bool {
    let mut lists = ["rules", "subjects"].iter();
    lists.any(|list| has_more(list, live, wanted) || has_more(list, wanted, live))
}

fn has_more(list: &str, one: &Value, other: &Value) -> bool {
    let other = other[list].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut one = one[list].as_array().into_iter().flatten();
    one.any(|entry| !other.iter().any(|it| is_same(it, entry)))
}

/// Reports whether two entries are equivalent; the API server fills in empty groups.
fn is_same(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    let is_nothing = |value: &Value| value == "";
    let has_all = |one: &serde_json::Map<String, Value>, other: &serde_json::Map<String, Value>| {
        one.iter()
            .all(|(name, value)| other.get(name) == Some(value) || is_nothing(value))
    };
    has_all(one, other) && has_all(other, one)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NEW: &str = "sha256:new";

    fn kind(group: &str, kind: &str) -> Value {
        json!({"group": group, "version": "v1", "kind": kind})
    }

    /// Deployments, and the Service `a`, for each Web.
    fn manifest() -> Manifest {
        let touch = |kind: Value, names: Value| json!({"kind": kind, "access": ["owned"], "names": names});
        let manifest = json!({
            "name": "web", "version": "1.0.0",
            "controllers": [{
                "name": "webs", "kind": kind("x.dev", "Web"), "finalizer": "x.dev/a",
                "touches": [touch(kind("apps", "Deployment"), json!([])), touch(kind("", "Service"), json!(["a"]))],
            }],
        });
        serde_json::from_value(manifest).unwrap()
    }

    fn owned(primary: &str, group: &str, owned: &str, names: &[&str]) -> Value {
        json!({"primary": kind("x.dev", primary), "kind": kind(group, owned), "names": names})
    }

    fn live(generation: i64, status: &Value) -> Value {
        json!({"metadata": {"uid": "u", "generation": generation}, "spec": {}, "status": status})
    }

    fn takeover() -> Takeover {
        Takeover::by("new", &manifest())
    }

    #[test]
    fn a_takeover_is_complete_when_no_earlier_object_is_left() {
        let state = |digest: &str, (observed, running): (i64, i64), owned: Value, finalizers: Value| {
            let status = json!({
                "observedGeneration": observed, "runningGeneration": running, "digest": digest, "ownedKinds": owned, "finalizers": finalizers,
                "conditions": [
                    {"type": "Ready", "status": "True", "message": "fine"}, {"type": "Compiled", "status": "False", "message": "it traps"},
                ],
            });
            takeover().progress(&live(2, &json!({})), &live(2, &status))
        };
        let own = [
            owned("Web", "apps", "Deployment", &[]),
            owned("Web", "", "Service", &["a"]),
        ];
        let finalizer = |name: &str| json!({"primary": kind("x.dev", "Web"), "finalizer": name});
        let is_done = state(NEW, (2, 2), json!(own), json!([finalizer("x.dev/a")]));
        assert_eq!(is_done, TakenOver::Completely);
        let more = json!([
            owned("Web", "apps", "Deployment", &[]),
            owned("Web", "", "Service", &["a", "b"]),
            owned("Old", "apps", "StatefulSet", &[]),
        ]);
        assert_eq!(
            state(NEW, (2, 2), more, json!([finalizer("x.dev/b")])),
            TakenOver::Partly(
                [
                    "objects of kind Service",
                    "objects of kind StatefulSet",
                    "the finalizer x.dev/b of Web objects"
                ]
                .map(str::to_owned)
                .to_vec()
            )
        );
        let refused = state("sha256:old", (2, 1), json!(own), json!([]));
        assert_eq!(refused, TakenOver::NotYet("it traps".to_owned()));
        let refused = state(NEW, (2, 1), json!(own), json!([]));
        let why = "the same component with the configuration before";
        assert_eq!(refused, TakenOver::NotYet("it traps".to_owned()), "{why}");
        assert!(matches!(
            state(NEW, (1, 1), json!(own), json!([])),
            TakenOver::NotYet(_)
        ));
        // The plugin runs, and the host may not read its kinds.
        let waits = json!({
            "observedGeneration": 2, "runningGeneration": 2, "digest": NEW,
            "conditions": [
                {"type": "Compiled", "status": "True", "message": "fine"}, {"type": "Established", "status": "False", "message": "no right"},
                {"type": "Ready", "status": "False", "message": "no right"},
            ],
        });
        let refused = takeover().progress(&live(2, &json!({})), &live(2, &waits));
        assert_eq!(refused, TakenOver::NotYet("no right".to_owned()));
        for (kind, generation, is_refused) in [("Stalled", 2, true), ("Stalled", 1, false), ("Reconciling", 2, false)] {
            let condition =
                json!({"type": kind, "status": "True", "message": "unsigned", "observedGeneration": generation});
            let ready = json!({"type": "Ready", "status": "True", "message": "fine"});
            let status = json!({
                "observedGeneration": 1, "runningGeneration": 1, "digest": "sha256:old", "conditions": [ready, condition],
            });
            let state = takeover().progress(&live(2, &json!({})), &live(2, &status));
            let expected = match (is_refused, generation) {
                (true, _) => TakenOver::Refused("unsigned".to_owned()),
                (false, 1) => TakenOver::NotYet(UNSEEN.to_owned()),
                (false, _) => TakenOver::NotYet("unsigned".to_owned()),
            };
            assert_eq!(state, expected);
        }
        let changed = takeover().progress(&live(2, &json!({})), &live(3, &json!({"digest": NEW})));
        assert_eq!(changed, TakenOver::Meanwhile);
        assert_eq!(
            takeover().progress(&live(2, &json!({})), &Value::Null),
            TakenOver::Meanwhile
        );
    }

    #[test]
    fn a_takeover_follows_a_version_that_runs_or_left_objects() {
        let is_meant = |spec: Value, status: &Value| {
            let mut live = live(1, status);
            live["spec"] = spec;
            takeover().follows_another(Some(&live))
        };
        let other = json!({"digest": "sha256:old"});
        let left = json!({"ownedKinds": [owned("Web", "", "ConfigMap", &[])]});
        let suspended = || json!({"mode": "Suspended"});
        assert!(is_meant(json!({}), &other) && is_meant(json!({}), &left));
        assert!(is_meant(suspended(), &left), "it is pruned when the Plugin is resumed");
        assert!(!is_meant(suspended(), &other));
        assert!(
            is_meant(json!({}), &json!({"digest": NEW})),
            "with another configuration"
        );
        assert!(!is_meant(json!({}), &json!({})));
        assert!(!takeover().follows_another(None));
    }

    #[test]
    fn rules_are_joined_and_subjects_are_not() {
        let rule = |resource: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]});
        let subject = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": "a"});
        let mut of_the_server = subject("x");
        of_the_server["apiGroup"] = json!("");
        let role = |rules: &[&str]| json!({"rules": rules.iter().map(|it| rule(it)).collect::<Vec<_>>()});
        assert!(narrows(&role(&["pods"]), &role(&["secrets", "pods"])));
        assert!(!narrows(&role(&["secrets", "pods"]), &role(&["pods"])));
        assert_eq!(
            joined(&role(&["pods"]), &role(&["secrets", "pods"])),
            role(&["pods", "secrets"])
        );
        let wanted = json!({"subjects": [subject("x")]});
        let planted = json!({"subjects": [of_the_server, subject("y")]});
        assert_eq!(joined(&wanted, &planted), wanted);
        assert!(!narrows(&wanted, &planted) && differs(&wanted, &planted));
        assert!(!differs(&wanted, &json!({"subjects": [of_the_server]})));
    }
}
