//! Simulated API server that answers without waiting, for checks of one plugin alone: it decides whether an object can
//! be stored and in which form, and applies objects. `cluster` is the one for a host.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use pilothouse_core::answer::KindFacts;
use pilothouse_core::kubernetes::served::ServedKind;
use pilothouse_core::{Kind, Name};
use pilothouse_simulator::{Clock, Controllers, Options, Simulator, Workloads};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

use crate::documents;

/// The members of metadata that a server sets and that are taken from an object that has them already.
const SERVER_SET: [&str; 7] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

/// A simulated API server.
pub struct Store {
    simulator: Simulator,
    runtime: Arc<Runtime>,
    /// Served kinds, by group and version.
    served: BTreeMap<String, Vec<ServedKind>>,
    namespaces: HashSet<String>,
    /// Milliseconds since 1970; the time of a server that was there already is its own.
    now: Arc<AtomicU64>,
}

/// Refusal of a request by an API server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP code.
    pub code: u16,
    /// The server's words.
    pub message: String,
}

impl Refusal {
    /// Returns `true` if the object is malformed for its kind: a wrong type, an unknown field. Otherwise it has values
    /// that the server does not accept.
    pub fn is_structural(&self) -> bool {
        matches!(self.code, 400 | 415 | 500)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").finish_non_exhaustive()
    }
}

/// The runtime that stores share.
pub fn runtime() -> Arc<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    Arc::new(runtime.expect("a runtime without I/O needs nothing of the machine"))
}

impl Store {
    /// Creates a server with only the first namespaces. Its clock stands still between [`Self::set_now`]. It must not
    /// be called from within a task of another runtime.
    pub fn new(runtime: Arc<Runtime>, now_milliseconds: u64) -> Self {
        let now = Arc::new(AtomicU64::new(now_milliseconds));
        let clock = now.clone();
        let simulator = Simulator::new(Options {
            // Nothing runs Pods: a Deployment may want two billion of them.
            controllers: Controllers {
                workloads: Workloads::Ignored,
                ..Controllers::default()
            },
            clock: Clock::Custom(Arc::new(move || {
                SystemTime::UNIX_EPOCH + Duration::from_millis(clock.load(Ordering::Relaxed))
            })),
            ..Options::default()
        });
        Self {
            now,
            ..Self::of(simulator, runtime)
        }
    }

    /// Sets the time of a server that was made with one.
    pub fn set_now(&self, milliseconds: u64) {
        self.now.store(milliseconds, Ordering::Relaxed);
    }

    /// A simulated server that is there already.
    pub fn of(simulator: Simulator, runtime: Arc<Runtime>) -> Self {
        Self {
            simulator,
            runtime,
            served: BTreeMap::new(),
            namespaces: HashSet::from(["default".to_owned()]),
            now: Arc::default(),
        }
    }

    /// Serves the kinds of a CustomResourceDefinition.
    pub fn install(&mut self, definition: &Value) -> Result<(), Refusal> {
        let mut definition = definition.clone();
        // Nobody converts here: each version is stored as it is.
        if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("conversion");
        }
        self.create(&definition)?;
        self.served.clear();
        Ok(())
    }

    /// Serves a kind without a schema, which allows any fields.
    pub fn install_unknown(&mut self, kind: &Kind, is_namespaced: bool) -> Result<(), Refusal> {
        let Kind { group, version, kind } = kind;
        let plural = format!("{}s", kind.to_lowercase());
        self.install(&json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group,
                "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        }))
    }

    /// Returns the served form of a kind; none if it is not served.
    pub fn served(&mut self, kind: &Kind) -> Option<ServedKind> {
        let version = kind.api_version();
        if !self.served.contains_key(&version) {
            let prefix = if kind.group.is_empty() { "/api" } else { "/apis" };
            let list = self.ask("GET", &format!("{prefix}/{version}"), "", &Value::Null);
            let kinds = list.map(|list| kinds_of(&list, kind)).unwrap_or_default();
            self.served.insert(version.clone(), kinds);
        }
        let kinds = self.served.get(&version)?;
        kinds.iter().find(|served| *served.kind == *kind).cloned()
    }

    /// Returns the form in which an object would be stored: with the server's defaults and without fields that its
    /// schema does not know. Fields that a server sets stay as the object has them, and so does its status. Nothing is
    /// stored.
    pub fn stored_form(&mut self, object: &Value) -> Result<Value, Refusal> {
        let mut bare = object.clone();
        if let Some(Value::Object(metadata)) = bare.get_mut("metadata") {
            metadata.retain(|name, _| !SERVER_SET.contains(&name.as_str()));
        }
        let mut stored = self.post(&bare, "dryRun=All&fieldValidation=Strict")?;
        for name in SERVER_SET {
            if let Some(given) = object["metadata"].get(name) {
                stored["metadata"][name] = given.clone();
            }
        }
        if let Some(status) = object.get("status") {
            stored["status"] = status.clone();
        }
        Ok(stored)
    }

    /// Creates an object, and returns the stored one.
    pub fn create(&mut self, object: &Value) -> Result<Value, Refusal> {
        self.post(object, "fieldManager=pilothouse-check")
    }

    /// Stores an object as it is, with its status, as part of the state that a cluster is in.
    pub fn put(&mut self, object: &Value) -> Result<(), Refusal> {
        let mut bare = object.clone();
        if let Some(Value::Object(metadata)) = bare.get_mut("metadata") {
            metadata.retain(|name, _| !SERVER_SET.contains(&name.as_str()));
        }
        let mut stored = self.create(&bare)?;
        if let Some(status) = object.get("status") {
            stored["status"] = status.clone();
            let (served, name) = self.place(&stored)?;
            let path = format!("{}/status", served.object_path(&name));
            // A kind without this subresource has taken the status with the rest.
            let _ = self.ask("PUT", &path, "application/json", &stored);
        }
        Ok(())
    }

    /// Applies an object or, with a subresource, a part of it, as a field manager. Fields of others are taken.
    pub fn apply(&mut self, object: &Value, manager: &str, subresource: Option<&str>) -> Result<Value, Refusal> {
        self.apply_with(object, manager, subresource, "")
    }

    /// Returns the object that an apply would store. Nothing is stored.
    pub fn try_apply(&mut self, object: &Value, manager: &str) -> Result<Value, Refusal> {
        self.apply_with(object, manager, None, "&dryRun=All")
    }

    fn apply_with(
        &mut self,
        object: &Value,
        manager: &str,
        subresource: Option<&str>,
        options: &str,
    ) -> Result<Value, Refusal> {
        let (served, name) = self.place(object)?;
        self.make_namespace(&name)?;
        let subresource = subresource.map(|it| format!("/{it}")).unwrap_or_default();
        let path = format!(
            "{}{subresource}?fieldManager={manager}&force=true&fieldValidation=Strict{options}",
            served.object_path(&name)
        );
        self.ask("PATCH", &path, "application/apply-patch+yaml", object)
    }

    /// Replaces members of an object by a merge patch.
    pub fn merge(&mut self, object: &Value, patch: &Value) -> Result<Value, Refusal> {
        let (served, name) = self.place(object)?;
        self.ask(
            "PATCH",
            &served.object_path(&name),
            "application/merge-patch+json",
            patch,
        )
    }

    /// Deletes an object; its finalizers may keep it.
    pub fn delete(&mut self, object: &Value) -> Result<(), Refusal> {
        let (served, name) = self.place(object)?;
        match self.ask("DELETE", &served.object_path(&name), "application/json", &Value::Null) {
            Ok(_) | Err(Refusal { code: 404, .. }) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// The object of this kind and place, as it is stored.
    pub fn get(&mut self, kind: &Kind, name: &Name) -> Option<Value> {
        let served = self.served(kind)?;
        self.ask("GET", &served.object_path(name), "", &Value::Null).ok()
    }

    /// Everything that is stored.
    pub fn objects(&self) -> Vec<Value> {
        self.simulator.objects()
    }

    /// The same without the objects of one resource.
    pub fn objects_but(&self, plural: &str) -> Vec<Value> {
        self.simulator.objects_of(|its, _| its != plural)
    }

    fn post(&mut self, object: &Value, query: &str) -> Result<Value, Refusal> {
        let (served, name) = self.place(object)?;
        self.make_namespace(&name)?;
        let path = format!("{}?{query}", served.path(name.namespace.as_deref(), None));
        self.ask("POST", &path, "application/json", object)
    }

    fn place(&mut self, object: &Value) -> Result<(ServedKind, Name), Refusal> {
        let unusable = |message: String| Refusal { code: 400, message };
        let (kind, name) = documents::identity(object).map_err(unusable)?;
        let served = self.served(&kind);
        let served = served.ok_or_else(|| Refusal {
            code: 404,
            message: format!("the cluster does not serve {kind}"),
        })?;
        Ok((served, name))
    }

    fn make_namespace(&mut self, name: &Name) -> Result<(), Refusal> {
        let Some(namespace) = name.namespace.as_deref() else {
            return Ok(());
        };
        if !self.namespaces.insert(namespace.to_owned()) {
            return Ok(());
        }
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        match self.ask("POST", "/api/v1/namespaces", "application/json", &object) {
            Ok(_) | Err(Refusal { code: 409, .. }) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    fn ask(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Result<Value, Refusal> {
        let broken = |problem: &dyn fmt::Display| Refusal {
            code: 500,
            message: format!("{method} {path}: {problem}"),
        };
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("accept", "application/json");
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        let body = if body.is_null() {
            Bytes::new()
        } else {
            Bytes::from(body.to_string())
        };
        let request = request.body(Full::new(body)).map_err(|error| broken(&error))?;
        let service = self.simulator.service();
        let (code, bytes) = self.runtime.block_on(async {
            let response = service.oneshot(request).await.map_err(|error| broken(&error))?;
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(|error| broken(&error))?;
            Ok((code, body.to_bytes()))
        })?;
        let answer: Value = serde_json::from_slice(&bytes).map_err(|error| broken(&error))?;
        if (200..300).contains(&code) {
            return Ok(answer);
        }
        let message = answer["message"].as_str().unwrap_or("no message").to_owned();
        Err(Refusal { code, message })
    }
}

/// The kinds in a list of resources.
fn kinds_of(list: &Value, asked: &Kind) -> Vec<ServedKind> {
    let resources = list["resources"].as_array().into_iter().flatten();
    let name = |resource: &Value| resource["name"].as_str().unwrap_or_default().to_owned();
    let all: Vec<String> = resources.clone().map(name).collect();
    resources
        .filter(|resource| !name(resource).contains('/'))
        .map(|resource| ServedKind {
            short_names: Vec::new(),
            kind: Arc::new(Kind::new(
                &*asked.group,
                &*asked.version,
                resource["kind"].as_str().unwrap_or_default(),
            )),
            plural: name(resource),
            facts: KindFacts {
                namespaced: resource["namespaced"] == true,
                has_status: all.contains(&format!("{}/status", name(resource))),
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        Store::new(runtime(), 1_767_225_600_000)
    }

    fn service(port: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "x", "uid": "mine"},
               "spec": {"ports": [{"port": port}]}, "status": {"loadBalancer": {}}})
    }

    #[test]
    fn an_object_gets_defaults_and_keeps_server_set_fields() {
        let mut store = store();
        let stored = store.stored_form(&service(&json!(80))).unwrap();
        assert_eq!(stored["spec"]["ports"][0]["protocol"], "TCP");
        assert_eq!(stored["metadata"]["uid"], "mine");
        assert_eq!(
            store.get(&Kind::new("", "v1", "Service"), &Name::new(Some("x"), "a")),
            None
        );
    }

    #[test]
    fn what_a_server_refuses_is_told_in_its_words() {
        let mut store = store();
        let invalid = store.stored_form(&service(&json!(0))).unwrap_err();
        assert!(
            invalid.message.contains("spec.ports[0].port") && !invalid.is_structural(),
            "{invalid:?}"
        );
        let wrong = store.stored_form(&service(&json!("eighty"))).unwrap_err();
        assert!(wrong.is_structural(), "{wrong:?}");
        let unknown = json!({"apiVersion": "x.dev/v1", "kind": "X", "metadata": {"name": "a"}});
        let unknown = store.create(&unknown).unwrap_err();
        assert_eq!(unknown.message, "the cluster does not serve x.dev/v1 X");
    }

    #[test]
    fn a_kind_of_which_nothing_is_known_can_be_stored() {
        let mut store = store();
        store.install_unknown(&Kind::new("x.dev", "v1", "X"), true).unwrap();
        let object =
            json!({"apiVersion": "x.dev/v1", "kind": "X", "metadata": {"name": "a", "namespace": "x"}, "any": 1});
        let applied = store.apply(&object, "m", None).unwrap();
        assert_eq!(applied["any"], 1);
    }
}
