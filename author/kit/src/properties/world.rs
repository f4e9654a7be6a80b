//! Cluster of one case: an API server with the plugin's kinds and the given objects, and the host's handling of an
//! answer on it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pilothouse_core::answer::CheckedAnswer;
use pilothouse_core::answer::desired::DesiredObject;
use pilothouse_core::diff::canonical::drop_nulls;
use pilothouse_core::diff::{body, rank};
use pilothouse_core::kubernetes::fields::{FieldSet, LeafSemantics};
use pilothouse_core::ownership::{KEEP_ANNOTATION, OWNER_LABEL, Owner, recreate};
use pilothouse_core::plugin::manifest::Access;
use pilothouse_core::status::host_conditions::HostConditions;
use pilothouse_core::status::{PluginPart, StatusInput, desired_status};
use pilothouse_core::{Kind, Name};
use pilothouse_simulator::rfc3339;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use super::judge::{Finding, title};
use super::source::{Schemas, is_built_in};
use super::taken_over::without_taken_over;
use crate::properties::property::Property;
use crate::{
    documents::{Document, identity},
    isolation::Isolated,
    store::{Refusal, Store},
};

/// Field manager of owned objects.
const MANAGER: &str = "pilothouse:checked";

/// Field manager of contributed fields.
const CONTRIBUTOR: &str = "pilothouse:checked:contributed";

/// Members of metadata that change with each write.
const NOISE: [&str; 2] = ["resourceVersion", "managedFields"];

/// A cluster with one primary.
pub(super) struct World<'a> {
    plugin: &'a Isolated,
    store: Store,
    owner: Owner,
    /// The time, in milliseconds since 1970.
    now: u64,
    /// Kinds that the plugin writes and of which nothing is known, so that the server takes whatever it is given.
    unknown: BTreeSet<Kind>,
}

/// Outcome of applying an answer.
#[derive(Default)]
pub(super) struct Applied {
    /// Findings about the answer.
    pub(super) findings: Vec<Finding>,
    /// Values that the server does not take, though they fit the schema of one of Kubernetes' own kinds.
    pub(super) refused: Vec<String>,
}

impl<'a> World<'a> {
    /// A cluster in which the plugin's kinds are served and these objects are, and the primary.
    pub(super) fn new(
        plugin: &'a Isolated,
        cluster: &[Document],
        runtime: Arc<Runtime>,
        now: u64,
        primary: &Value,
    ) -> Result<Self, Refusal> {
        let mut store = Store::new(runtime, now);
        for crd in &plugin.manifest().crds {
            store.install(&crd.definition)?;
        }
        let is_definition = |document: &&Document| document.kind.kind == "CustomResourceDefinition";
        for Document { object, .. } in cluster.iter().filter(is_definition) {
            store.install(object)?;
        }
        let mut unknown = BTreeSet::new();
        for controller in &plugin.manifest().manifest.controllers {
            let touched = controller.touches.iter().map(|touch| {
                let writes = touch.access.iter().any(|access| *access != Access::Read);
                (&touch.kind, writes)
            });
            for (kind, is_written) in touched.chain([(&controller.kind, false)]) {
                if store.served(kind).is_none() {
                    store.install_unknown(kind, plugin.served(kind).facts.namespaced)?;
                    unknown.extend(is_written.then(|| kind.clone()));
                }
            }
        }
        let others = cluster.iter().filter(|document| !is_definition(document));
        for Document { object, .. } in others {
            match store.put(object) {
                // Every cluster has some, such as the namespace `default`.
                Ok(()) | Err(Refusal { code: 409, .. }) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        let stored = store.create(primary)?;
        let (kind, name) = identity(&stored).map_err(|message| Refusal { code: 422, message })?;
        let uid = stored["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            plugin,
            store,
            owner: Owner { kind, name, uid },
            now,
            unknown,
        })
    }

    /// Returns `true` if a given CRD decides which objects are valid. The server knows more of Kubernetes' own kinds
    /// than their schemas say. A CRD that takes over their types, such as the variables of a container, cannot state
    /// it.
    fn has_crd(&self, kind: &Kind) -> bool {
        !self.unknown.contains(kind) && !is_built_in(kind)
    }

    /// The primary as it is stored; none once it is gone.
    pub(super) fn primary(&mut self) -> Option<Value> {
        let Owner { kind, name, uid: _ } = &self.owner;
        self.store.get(&kind.clone(), &name.clone())
    }

    /// The time, in milliseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// The same as RFC 3339.
    pub(super) fn time(&self) -> String {
        rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(self.now))
    }

    /// Moves the clock of the cluster and the plugin.
    pub(super) fn set_now(&mut self, now: u64) {
        self.now = now;
        self.store.set_now(now);
    }

    /// The plugin on this cluster as it is now.
    pub(super) fn plugin(&self) -> Isolated {
        let plugin = self.plugin.clone().emptied().at(self.now);
        plugin
            .with_all(self.objects())
            .expect("what a server stores has a kind and a name")
    }

    /// Kinds that the plugin writes and of which nothing is known.
    pub(super) fn unknown(&self) -> &BTreeSet<Kind> {
        &self.unknown
    }

    /// The plugin on this cluster with the lists of other objects than the primary in another order, where their order has no
    /// meaning, and these objects. None if there is no such list.
    pub(super) fn reordered(&self, schemas: &Schemas<'_>) -> Option<(Isolated, Vec<String>)> {
        let (mut objects, mut names) = (self.objects(), Vec::new());
        for object in objects.iter_mut().filter(|it| it["metadata"]["uid"] != *self.owner.uid) {
            if schemas.reorder(object) {
                names.push(title(object));
            }
        }
        let plugin = self.plugin.clone().emptied().with_all(objects);
        let plugin = plugin.expect("what a server stores has a kind and a name");
        (!names.is_empty()).then_some((plugin, names))
    }

    /// Everything that is stored but definitions, which do not change and are large.
    fn objects(&self) -> Vec<Value> {
        self.store.objects_but("customresourcedefinitions")
    }

    /// Returns all stored objects, without members that change with each write.
    pub(super) fn state(&self) -> Vec<Value> {
        let mut objects = self.objects();
        for metadata in objects
            .iter_mut()
            .filter_map(|object| object["metadata"].as_object_mut())
        {
            metadata.retain(|name, _| !NOISE.contains(&name.as_str()));
        }
        objects
    }

    /// Returns the objects that the primary owns by an owner reference or by the host's label, and does not keep.
    pub(super) fn owned(&self) -> Vec<Value> {
        let mut objects = self.objects();
        objects.retain(|object| self.is_owned(object));
        objects
    }

    fn is_owned(&self, object: &Value) -> bool {
        let (uid, metadata) = (self.owner.uid.as_str(), &object["metadata"]);
        let mut references = metadata["ownerReferences"].as_array().into_iter().flatten();
        let is_labelled = metadata["labels"][OWNER_LABEL] == uid;
        let is_kept = metadata["annotations"][KEEP_ANNOTATION] == "true";
        (references.any(|reference| reference["uid"] == uid) || is_labelled) && !is_kept
    }

    /// Carries an answer out as a host does: applies, contributes, prunes, and writes the status.
    pub(super) fn carry_out(&mut self, answer: &CheckedAnswer) -> Applied {
        let mut applied = Applied::default();
        let mut owned: Vec<&DesiredObject> = answer.owned.iter().collect();
        owned.sort_by_key(|desired| rank(desired.kind()));
        for desired in &owned {
            self.apply(desired, &mut applied);
        }
        for desired in &answer.contributed {
            // An object to contribute to that is not there is waited for.
            if self.store.get(&desired.kind().clone(), &desired.name).is_some() {
                let body = Value::Object(desired.body.clone());
                let result = self.store.apply(&body, CONTRIBUTOR, None);
                applied.judge(&desired.title(), result.err(), self.has_crd(desired.kind()));
            }
        }
        for object in self.owned() {
            let Ok((kind, name)) = identity(&object) else { continue };
            let is_desired = |desired: &DesiredObject| desired.kind().same_kind(&kind) && desired.name == name;
            if !owned.iter().any(|desired| is_desired(desired)) {
                let _ = self.store.delete(&object);
            }
        }
        applied
    }

    fn apply(&mut self, desired: &DesiredObject, applied: &mut Applied) {
        let live = self.store.get(&desired.kind().clone(), &desired.name);
        if let Some(live) = &live {
            // Somebody else's object stays as it is, and so does one that is only made.
            if !self.is_owned(live) || desired.lifecycle.create_only {
                return;
            }
        }
        let (body, _) = body(&mut desired.clone(), &self.owner);
        let body = Value::Object(body);
        let mut result = self.store.apply(&body, MANAGER, None);
        if let Some(live) = &live {
            let is_replaced = match &result {
                Ok(stored) => desired.lifecycle.replace && !recreate::has_same_content(live, stored),
                Err(_) => desired.lifecycle.replace || desired.lifecycle.recreate,
            };
            if is_replaced {
                let _ = self.store.delete(live);
                result = self.store.apply(&body, MANAGER, None);
            }
        }
        let problem = match result {
            Ok(stored) => not_canonical(desired, &body, &stored),
            Err(refusal) if refusal.is_structural() => Some(does_not_fit(&desired.title(), &refusal)),
            Err(refusal) => return applied.judge(&desired.title(), Some(refusal), self.has_crd(desired.kind())),
        };
        match problem {
            Some(problem) if self.is_taken_over(desired, &body) => applied.refused.push(problem),
            Some(problem) => applied.findings.push(Finding::new(Property::Valid, problem)),
            None => {}
        }
    }

    /// Returns `true` if the invalid parts of an object of one of Kubernetes' own kinds are copied from the primary,
    /// such as from a pod template: without these parts the object fits its schema and is stored as it is applied.
    fn is_taken_over(&mut self, desired: &DesiredObject, body: &Value) -> bool {
        if !is_built_in(desired.kind()) {
            return false;
        }
        let Some(rest) = self.primary().and_then(|primary| without_taken_over(body, &primary)) else {
            return false;
        };
        match self.store.try_apply(&rest, MANAGER) {
            Ok(stored) => not_canonical(desired, &rest, &stored).is_none(),
            Err(refusal) => !refusal.is_structural(),
        }
    }

    /// Writes the status as a host does, if the kind has one.
    pub(super) fn report(&mut self, answer: &CheckedAnswer, applied: &mut Applied) {
        let Some(primary) = self.primary() else { return };
        let kind = self.owner.kind.clone();
        let is_told = self.plugin.manifest().brings(&kind) || answer.status.is_some() || !answer.conditions.is_empty();
        let has_status = self.store.served(&kind).is_some_and(|served| served.facts.has_status);
        if !is_told || !has_status {
            return;
        }
        let plugin = PluginPart::Answered {
            status: answer.status.as_ref(),
            conditions: &answer.conditions,
        };
        let succeeded = HostConditions::succeeded("");
        let status = desired_status(&StatusInput {
            plugin,
            host: &succeeded,
            live: primary.get("status"),
            generation: primary["metadata"]["generation"].as_i64(),
            now: &self.time(),
            given: None,
        });
        if self.write_status(&kind, &status).is_ok() {
            return;
        }
        // The kind may have no place for what the host says; that is not what the plugin says.
        let mut alone = answer.status.clone().unwrap_or_default();
        drop_nulls(&mut alone);
        if let Err(refusal) = self.write_status(&kind, &alone) {
            let problem = format!("the status that the plugin gives does not fit its schema: {refusal}");
            applied.findings.push(Finding::new(Property::Valid, problem));
        }
    }

    fn write_status(&mut self, kind: &Kind, status: &Map<String, Value>) -> Result<Value, Refusal> {
        let Name { namespace, name } = &self.owner.name;
        let mut object = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": &**name}, "status": status,
        });
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = json!(&**namespace);
        }
        self.store.apply(&object, MANAGER, Some("status"))
    }

    /// Deletes the primary, which a finalizer keeps.
    pub(super) fn delete(&mut self, finalizer: &str) -> Result<(), Refusal> {
        let Some(primary) = self.primary() else { return Ok(()) };
        self.store
            .merge(&primary, &json!({"metadata": {"finalizers": [finalizer]}}))?;
        self.store.delete(&primary)
    }

    /// Removes all finalizers of the primary.
    pub(super) fn release(&mut self) -> Result<(), Refusal> {
        let Some(primary) = self.primary() else { return Ok(()) };
        self.store
            .merge(&primary, &json!({"metadata": {"finalizers": null}}))
            .map(drop)
    }
}

impl Applied {
    fn judge(&mut self, title: &str, refusal: Option<Refusal>, is_custom: bool) {
        match refusal {
            Some(refusal) if refusal.is_structural() => {
                self.findings
                    .push(Finding::new(Property::Valid, does_not_fit(title, &refusal)));
            }
            // Its schema and rules say all that is valid.
            Some(refusal) if refusal.code == 422 && is_custom => {
                let problem = format!("{title} does not fit the schema and the rules of its CRD: {refusal}");
                self.findings.push(Finding::new(Property::Valid, problem));
            }
            Some(refusal) => self.refused.push(format!("{title}: {refusal}")),
            None => {}
        }
    }
}

fn does_not_fit(title: &str, refusal: &Refusal) -> String {
    format!("{title} does not fit its schema: {refusal}")
}

/// Describes an object of which the host would miss a part as soon as it has applied it.
fn not_canonical(desired: &DesiredObject, body: &Value, stored: &Value) -> Option<String> {
    let lost = lost(desired, body, stored);
    let verb = if lost.len() == 1 { "is" } else { "are" };
    (!lost.is_empty()).then(|| {
        format!(
            "{} is not canonical, so the host would apply it again and again: {} {verb} not stored as applied",
            desired.title(),
            lost.join(", "),
        )
    })
}

/// Returns the parts that the host would miss in an object that it has just applied.
fn lost(desired: &DesiredObject, body: &Value, stored: &Value) -> Vec<String> {
    let entries = stored["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut entries = entries.filter(|entry| entry["manager"] == MANAGER && entry["operation"] == "Apply");
    let fields = entries.find_map(|entry| FieldSet::deserialize(&entry["fieldsV1"]).ok());
    let (Some(mut fields), Some(body)) = (fields, body.as_object()) else {
        return vec![".".to_owned()];
    };
    fields.order_as(stored);
    fields.missing(body, LeafSemantics::of(desired.kind(), None)).paths
}

#[cfg(test)]
mod tests {
    use pilothouse_core::plugin::contract::Lifecycle;
    use pilothouse_core::rights::built_in;

    use super::*;

    fn settings() -> DesiredObject {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"},
            "data": {"a": "1", "b": "2"}, "immutable": true});
        DesiredObject {
            served: built_in::served(&Kind::new("", "v1", "ConfigMap")).expect("it is in the table"),
            name: Name::new(Some("shop"), "settings"),
            body: body.as_object().expect("it is an object").clone(),
            lifecycle: Lifecycle::default(),
            yields: Vec::new(),
            after: Vec::new(),
            once: None,
        }
    }

    /// Returns the finding if a server records these fields for the manager.
    fn said(manager: &str, fields: &Value) -> Option<String> {
        let desired = settings();
        let body = Value::Object(desired.body.clone());
        let mut stored = body.clone();
        stored["metadata"]["managedFields"] = json!([
            {"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields},
        ]);
        not_canonical(&desired, &body, &stored)
    }

    #[test]
    fn an_object_is_not_canonical_if_the_server_drops_a_part() {
        let whole = json!({"f:data": {"f:a": {}, "f:b": {}}, "f:immutable": {}});
        assert_eq!(said(MANAGER, &whole), None);
        let begins = "ConfigMap shop/settings is not canonical, so the host would apply it again and again: ";
        for (fields, ends) in [
            (
                json!({"f:data": {"f:a": {}}, "f:immutable": {}}),
                ".data.b is not stored as applied",
            ),
            (
                json!({"f:data": {"f:a": {}}}),
                ".data.b, .immutable are not stored as applied",
            ),
        ] {
            assert_eq!(said(MANAGER, &fields), Some(format!("{begins}{ends}")));
        }
        let nothing = said("somebody-else", &whole);
        assert_eq!(nothing, Some(format!("{begins}. is not stored as applied")));
    }

    #[test]
    fn a_refusal_breaks_valid_where_a_crd_defines_validity() {
        let judged = |code: u16, is_custom: bool| {
            let mut applied = Applied::default();
            let refusal = Refusal {
                code,
                message: "no".to_owned(),
            };
            applied.judge("It", Some(refusal), is_custom);
            (applied.findings.len(), applied.refused.len())
        };
        assert_eq!((judged(422, true), judged(422, false)), ((1, 0), (0, 1)));
        assert_eq!((judged(400, false), judged(409, true)), ((1, 0), (0, 1)));
        let is_own = |group: &str, version: &str, kind: &str| is_built_in(&Kind::new(group, version, kind));
        assert!(
            is_own("", "v1", "Service")
                && is_own("networking.k8s.io", "v1", "Ingress")
                && is_own("apps", "v1", "Deployment")
        );
        assert!(!is_own("apps.example.com", "v1", "Deployment") && !is_own("example.com", "v1", "Service"));
    }
}
