//! Sends the requests that change objects: server-side apply, status, finalizers, delete. Their reasons are decided
//! elsewhere.
//!
//! There may be a second host, a user, or a write of the host's own that takes effect after its response was lost. Therefore no write
//! addresses an object by its name alone ([`ApplyPrecondition`]):
//!
//! - **Create.** An apply without force that carries the resourceVersion `1`, which no stored object has. The API server creates what is
//!   absent and answers 409 otherwise, so nothing ever has to be taken back. It is no POST, so that the host gets an Apply entry. An
//!   API server of another make that ignores the resourceVersion answers 200; the host then reports `ForeignObject` and takes nothing back,
//!   because it cannot know what the object was before.
//! - **Update.** The forced apply carries the uid of the object for which it was decided. The server refuses it for any other. Where
//!   the decision depends on fields of others (an object is adopted, or yields fields), it carries the resourceVersion, too.
//! - **Delete.** uid and resourceVersion are preconditions.
//!
//! kube's own retry is off, because it repeats creates, too.

pub mod events;
pub mod identity;
pub mod openapi;
pub mod permissions;
pub mod reviews;
pub mod send;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::plugin::contract::Propagation;
use pilothouse_core::{Kind, Name};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::apart::apart;
use crate::discovery::ServedKind;
use crate::error::RequestError;
use crate::fence::WriteScope;
use crate::object::CachedObject;
use crate::write::identity::{Impersonation, Reader};
use crate::write::send::send;

/// The result of an apply.
#[derive(Debug)]
pub struct ApplyResponse {
    /// Set if the object did not exist before (201 rather than 200).
    pub created: bool,
    /// The object as the server stores it.
    pub object: CachedObject,
}

/// A live object.
#[derive(Debug)]
pub struct LiveObject {
    /// The object, with all fields visible.
    pub object: CachedObject,
    /// `metadata.managedFields`, of all managers.
    pub managers: Vec<Value>,
}

#[derive(Deserialize)]
struct Managers {
    metadata: ManagersMeta,
}

#[derive(Deserialize)]
struct ManagersMeta {
    #[serde(rename = "managedFields", default)]
    managed_fields: Vec<Value>,
}

/// The object for which an apply is meant. Without it an apply would recreate a deleted object, or change an object
/// that someone else has created under the name meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyPrecondition<'a> {
    /// None yet: the apply creates the object, and the server answers with a conflict if there is one. Fields are not
    /// forced.
    Absent,
    /// The object of this uid, which is ours: fields of other managers are taken over.
    Uid(&'a str),
    /// The object of this uid in this resourceVersion: fields of other managers are taken over.
    Version(&'a str, &'a str),
    /// The object that the body names by uid and resourceVersion; fields of other managers are a conflict.
    AsInBody,
}

/// A resourceVersion that no stored object has: etcd's first revision is that of the empty store. An apply that carries
/// it creates an object, because the server compares versions only where there is one to compare with, and is refused
/// with a conflict otherwise
/// (<https://github.com/kubernetes/apiserver/blob/v0.36.0/pkg/registry/generic/registry/store.go>, `Update`).
pub(crate) const NO_VERSION: &str = "1";

/// Writes with the field manager of one plugin.
#[derive(Clone)]
pub struct FieldManagerClient {
    client: Client,
    manager: Arc<str>,
    identity: Option<Impersonation>,
    /// The number of requests made.
    requests: Arc<AtomicU64>,
    controller: Option<Arc<str>>,
}

impl FieldManagerClient {
    /// A writer with a field manager of at most 128 bytes.
    pub fn new(client: Client, manager: Arc<str>) -> Self {
        Self {
            client,
            manager,
            identity: None,
            requests: Arc::default(),
            controller: None,
        }
    }

    /// The same for a controller (`plugin/controller`), whose work may be divided among replicas. Without a controller
    /// its writes are the leader's.
    #[must_use]
    pub fn working_for(self, controller: Arc<str>) -> Self {
        Self {
            controller: Some(controller),
            ..self
        }
    }

    /// The same, with this request counter.
    #[must_use]
    pub fn counted_by(self, requests: Arc<AtomicU64>) -> Self {
        Self { requests, ..self }
    }

    /// The same with another identity; none means the host's own.
    #[must_use]
    pub fn acting_as(self, identity: Option<Impersonation>) -> Self {
        Self { identity, ..self }
    }

    /// The identity of the requests; none means the host's own.
    pub fn identity(&self) -> Option<&Impersonation> {
        self.identity.as_ref()
    }

    /// Sends a request about the object of this name.
    async fn send(&self, name: &Name, mut request: Request<Body>) -> Result<(StatusCode, String), RequestError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(controller) = &self.controller {
            let scope = WriteScope::Object(controller.clone(), name.namespace.clone());
            request.extensions_mut().insert(scope);
        }
        match &self.identity {
            Some(identity) => identity.send(&self.client, request).await,
            None => send(&self.client, request).await,
        }
    }

    /// The client and credentials for lists with this identity.
    pub(crate) async fn reader(&self) -> Result<Reader, RequestError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match &self.identity {
            Some(identity) => identity.reader(&self.client).await,
            None => Ok(Reader {
                client: self.client.clone(),
                credentials: None,
            }),
        }
    }

    /// The field manager.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// Applies an object under its name.
    pub async fn apply(
        &self,
        served: &ServedKind,
        name: &Name,
        body: &Map<String, Value>,
        target: ApplyPrecondition<'_>,
    ) -> Result<ApplyResponse, RequestError> {
        let (body, force) = on_condition(body, target);
        self.apply_at(served, name, served.object_path(name), &body, force)
            .await
    }

    /// Checks, by a dry run, whether the server would apply an object.
    pub async fn check_apply(
        &self,
        served: &ServedKind,
        name: &Name,
        body: &Map<String, Value>,
        target: ApplyPrecondition<'_>,
    ) -> Result<(), RequestError> {
        let (body, force) = on_condition(body, target);
        let options = if force { "&force=true&dryRun=All" } else { "&dryRun=All" };
        let path = served.object_path(name);
        self.apply_patch(name, &path, &body, options).await.map(drop)
    }

    /// Returns, by a dry run, the object that an apply to the one of this uid would store.
    pub async fn try_apply(
        &self,
        served: &ServedKind,
        name: &Name,
        body: &Map<String, Value>,
        uid: &str,
    ) -> Result<Value, RequestError> {
        let body = with_precondition(body, ("uid", uid));
        let path = served.object_path(name);
        let (_, text) = self.apply_patch(name, &path, &body, "&force=true&dryRun=All").await?;
        serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))
    }

    /// Applies the status of an object. The body has its uid, so that a successor of the same name is not changed, and
    /// optionally the resourceVersion that the object must still have.
    pub async fn apply_status(
        &self,
        served: &ServedKind,
        name: &Name,
        uid: &str,
        version: Option<&str>,
        status: &Map<String, Value>,
    ) -> Result<CachedObject, RequestError> {
        let mut body = identity(&served.kind, name);
        body["metadata"]["uid"] = json!(uid);
        if let Some(version) = version {
            body["metadata"]["resourceVersion"] = json!(version);
        }
        body["status"] = Value::Object(status.clone());
        let Value::Object(body) = body else {
            unreachable!("identity makes an object")
        };
        let path = format!("{}/status", served.object_path(name));
        Ok(self.apply_at(served, name, path, &body, true).await?.object)
    }

    /// Gives up all fields of an object that this manager holds by apply.
    pub async fn withdraw(&self, served: &ServedKind, name: &Name, uid: &str) -> Result<(), RequestError> {
        let mut body = identity(&served.kind, name);
        body["metadata"]["uid"] = json!(uid);
        let Value::Object(body) = body else {
            unreachable!("identity makes an object")
        };
        self.apply_at(served, name, served.object_path(name), &body, true)
            .await
            .map(drop)
    }

    /// Deletes an object, if its uid and resourceVersion are unchanged, with the propagation that this manager has applied.
    pub async fn delete(&self, served: &ServedKind, object: &CachedObject) -> Result<(), RequestError> {
        let propagation = object.propagation(&self.manager).unwrap_or(Propagation::Background);
        self.delete_with(served, object, propagation).await
    }

    /// Deletes an object, if its uid and resourceVersion are unchanged. The policy decides about its dependents.
    pub async fn delete_with(
        &self,
        served: &ServedKind,
        object: &CachedObject,
        propagation: Propagation,
    ) -> Result<(), RequestError> {
        self.send_delete(served, object, propagation, &[]).await
    }

    /// Checks, by a dry run, whether the server would delete an object.
    pub async fn try_delete(&self, served: &ServedKind, object: &CachedObject) -> Result<(), RequestError> {
        self.send_delete(served, object, Propagation::Background, &["All"])
            .await
    }

    async fn send_delete(
        &self,
        served: &ServedKind,
        object: &CachedObject,
        propagation: Propagation,
        dry_run: &[&str],
    ) -> Result<(), RequestError> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation.as_str(),
            "preconditions": {"uid": &*object.uid, "resourceVersion": &*object.resource_version},
            "dryRun": dry_run,
        });
        let request = Request::builder()
            .method(Method::DELETE)
            .uri(encode(&served.object_path(&object.name)))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(options.to_string().into_bytes()))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        self.send(&object.name, request).await.map(drop)
    }

    /// Reads the live object, past the cache.
    pub async fn live(&self, served: &ServedKind, name: &Name) -> Result<Option<LiveObject>, RequestError> {
        let garbled = |error: serde_json::Error| RequestError::Garbled(error.to_string());
        match self.read_live(served, name).await {
            Ok(text) => {
                let Managers { metadata } = serde_json::from_str(&text).map_err(garbled)?;
                Ok(Some(LiveObject {
                    object: read(&text, &served.kind)?,
                    managers: metadata.managed_fields,
                }))
            }
            Err(error) if error.is_object_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same as the server's whole JSON; none if it does not exist.
    pub async fn live_whole(&self, served: &ServedKind, name: &Name) -> Result<Option<Value>, RequestError> {
        match self.read_live(served, name).await {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .map_err(|error| RequestError::Garbled(error.to_string())),
            Err(error) if error.is_object_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read_live(&self, served: &ServedKind, name: &Name) -> Result<String, RequestError> {
        let request = Request::builder()
            .uri(encode(&served.object_path(name)))
            .body(Body::empty())
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        self.send(name, request).await.map(|(_, text)| text)
    }

    /// Replaces the finalizers of an object that is unchanged.
    pub async fn set_finalizers(
        &self,
        served: &ServedKind,
        object: &CachedObject,
        finalizers: &[String],
    ) -> Result<CachedObject, RequestError> {
        let add = json!({"op": "add", "path": "/metadata/finalizers", "value": finalizers});
        self.patch(served, object, None, &self.finalizer_manager(), vec![add])
            .await
    }

    /// Rewrites the managedFields of an object that is unchanged.
    pub async fn set_managers(
        &self,
        served: &ServedKind,
        object: &CachedObject,
        managers: Vec<Value>,
    ) -> Result<CachedObject, RequestError> {
        let replace = json!({"op": "replace", "path": "/metadata/managedFields", "value": managers});
        self.patch(served, object, None, &self.manager, vec![replace]).await
    }

    /// Replaces values of an object, or of its status, that is unchanged, by the operations of a JSON patch.
    pub async fn replace_values(
        &self,
        served: &ServedKind,
        object: &CachedObject,
        subresource: Option<&str>,
        operations: Vec<Value>,
    ) -> Result<CachedObject, RequestError> {
        self.patch(served, object, subresource, &self.manager, operations).await
    }

    /// Checks, by a dry run, whether the server would store an object in this form. `live` is the whole live object;
    /// its resourceVersion is a precondition.
    pub async fn try_update(
        &self,
        served: &ServedKind,
        name: &Name,
        live: &Value,
        wanted: &Value,
    ) -> Result<(), RequestError> {
        let is_main = |member: &str| !["apiVersion", "kind", "metadata", "status"].contains(&member);
        let (before, after) = (live.as_object(), wanted.as_object());
        let removed = before
            .into_iter()
            .flatten()
            .filter(|(member, _)| wanted.get(member).is_none());
        let removed = removed.map(|(member, _)| json!({"op": "remove", "path": format!("/{member}")}));
        let changed = after.into_iter().flatten().filter(|(member, _)| is_main(member));
        let changed = changed.map(|(member, value)| json!({"op": "add", "path": format!("/{member}"), "value": value}));
        let metadata = ["labels", "annotations"].into_iter().filter_map(|map| {
            let value = wanted["metadata"].get(map)?;
            Some(json!({"op": "add", "path": format!("/metadata/{map}"), "value": value}))
        });
        // A version that is not the stored one is a conflict; a failed test would be a refusal like any other.
        let version = &live["metadata"]["resourceVersion"];
        let version = json!({"op": "add", "path": "/metadata/resourceVersion", "value": version});
        let operations = removed.chain(changed).chain(metadata).chain([version]).collect();
        let path = served.object_path(name);
        let text = self.json_patch(name, &path, "&dryRun=All", &self.manager, operations);
        text.await.map(drop)
    }

    /// Checks, by a dry run, whether the server would create an object. If an object of the name exists, a server
    /// without other objections answers 409.
    pub async fn try_create(
        &self,
        served: &ServedKind,
        name: &Name,
        body: &Map<String, Value>,
    ) -> Result<(), RequestError> {
        let path = encode(&served.path(name.namespace.as_deref(), None));
        let text = serde_json::to_vec(body).expect("a JSON value is always text");
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!(
                "{path}?dryRun=All&fieldManager={}",
                self.manager.replace('/', "%2F")
            ))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(text))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        self.send(name, request).await.map(drop)
    }

    /// Replaces the owner of an object that is unchanged: members of its metadata with their new values; null removes
    /// one. No other field is changed.
    pub async fn set_metadata(
        &self,
        served: &ServedKind,
        object: &CachedObject,
        members: &[(&str, Value)],
    ) -> Result<CachedObject, RequestError> {
        let operation = |(name, value): &(&str, Value)| {
            let path = format!("/metadata/{name}");
            match value {
                Value::Null => json!({"op": "remove", "path": path}),
                value => json!({"op": "add", "path": path, "value": value}),
            }
        };
        let operations = members.iter().map(operation).collect();
        self.patch(served, object, None, &self.manager, operations).await
    }

    /// The field manager of finalizers, of their own because the next apply would remove what its manager omits.
    pub fn finalizer_manager(&self) -> String {
        let plugin = self.manager.rsplit('/').next().unwrap_or_default();
        format!("pilothouse-finalizer/{plugin}")
    }

    /// Changes an object by a JSON patch, if it is unchanged.
    async fn patch(
        &self,
        served: &ServedKind,
        object: &CachedObject,
        subresource: Option<&str>,
        manager: &str,
        mut operations: Vec<Value>,
    ) -> Result<CachedObject, RequestError> {
        let version = json!({"op": "test", "path": "/metadata/resourceVersion", "value": &*object.resource_version});
        operations.insert(0, version);
        let below = subresource.map_or_else(String::new, |name| format!("/{name}"));
        let path = format!("{}{below}", served.object_path(&object.name));
        let text = self.json_patch(&object.name, &path, "", manager, operations).await?;
        read(&text, &served.kind)
    }

    async fn json_patch(
        &self,
        name: &Name,
        path: &str,
        options: &str,
        manager: &str,
        operations: Vec<Value>,
    ) -> Result<String, RequestError> {
        let uri = format!("{}?fieldManager={}{options}", encode(path), manager.replace('/', "%2F"));
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(uri)
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(Body::from(Value::Array(operations).to_string().into_bytes()))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        self.send(name, request).await.map(|(_, text)| text)
    }

    async fn apply_at(
        &self,
        served: &ServedKind,
        name: &Name,
        path: String,
        body: &Map<String, Value>,
        force: bool,
    ) -> Result<ApplyResponse, RequestError> {
        let force = if force { "&force=true" } else { "" };
        let (status, text) = self.apply_patch(name, &path, body, force).await?;
        Ok(ApplyResponse {
            created: status == StatusCode::CREATED,
            object: read(&text, &served.kind)?,
        })
    }

    async fn apply_patch(
        &self,
        name: &Name,
        path: &str,
        body: &Map<String, Value>,
        options: &str,
    ) -> Result<(StatusCode, String), RequestError> {
        let manager = self.manager.replace('/', "%2F");
        let text = serde_json::to_vec(body).expect("a JSON value is always text");
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{}?fieldManager={manager}{options}", encode(path)))
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(Body::from(text))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        self.send(name, request).await
    }
}

/// The characters that are not escaped in a path: RFC 3986, section 3.3.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b':');

/// Escapes a path. Names come from plugins; the server refuses invalid ones with its own message.
fn encode(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// The body of an apply with its precondition, and whether the apply takes over fields of others.
fn on_condition(body: &Map<String, Value>, target: ApplyPrecondition<'_>) -> (Map<String, Value>, bool) {
    match target {
        ApplyPrecondition::AsInBody => (body.clone(), false),
        ApplyPrecondition::Absent => (with_precondition(body, ("resourceVersion", NO_VERSION)), false),
        ApplyPrecondition::Uid(uid) => (with_precondition(body, ("uid", uid)), true),
        ApplyPrecondition::Version(uid, version) => {
            let body = with_precondition(body, ("uid", uid));
            (with_precondition(&body, ("resourceVersion", version)), true)
        }
    }
}

/// A body with a precondition in its metadata.
fn with_precondition(body: &Map<String, Value>, (member, value): (&str, &str)) -> Map<String, Value> {
    let mut body = body.clone();
    if let Value::Object(metadata) = body.entry("metadata").or_insert_with(|| json!({})) {
        metadata.insert(member.to_owned(), json!(value));
    }
    body
}

fn identity(kind: &Kind, name: &Name) -> Value {
    let mut body = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": {"name": &*name.name},
    });
    if let Some(namespace) = &name.namespace {
        body["metadata"]["namespace"] = json!(&**namespace);
    }
    body
}

/// Reads an object that was just written, as a whole: it is dropped again once its ownership has been checked.
fn read(text: &str, kind: &Kind) -> Result<CachedObject, RequestError> {
    apart(text.len(), || CachedObject::read(text, kind, &Projection::whole()))
        .map_err(|error| RequestError::Garbled(crate::error::chain(&error)))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http_body_util::BodyExt as _;
    use pilothouse_core::rights::built_in;

    use super::*;

    /// A writer whose requests get this answer, and the bodies that it sends.
    fn writer(answer: &'static str) -> (FieldManagerClient, Arc<Mutex<Vec<Value>>>) {
        let sent = Arc::<Mutex<Vec<Value>>>::default();
        let bodies = sent.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let bodies = bodies.clone();
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                bodies.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(answer.as_bytes().to_vec())))
            }
        });
        (
            FieldManagerClient::new(Client::new(service, "default"), "pilothouse/p".into()),
            sent,
        )
    }

    #[tokio::test]
    async fn delete_withdraw_and_status_writes_carry_the_uid() {
        const OBJECT: &str = r#"{"metadata":{"name":"x","namespace":"a","uid":"u","resourceVersion":"7"}}"#;
        let (writer, sent) = writer(OBJECT);
        let served = built_in::served(&Kind::new("", "v1", "ConfigMap")).expect("it is in the table");
        let object = CachedObject::read(OBJECT, &served.kind, &Projection::default()).unwrap();
        writer.delete(&served, &object).await.unwrap();
        writer.withdraw(&served, &object.name, &object.uid).await.unwrap();
        let status = Map::new();
        let told = writer.apply_status(&served, &object.name, &object.uid, None, &status);
        told.await.unwrap();
        let sent = sent.lock().unwrap();
        assert_eq!(sent[0]["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!([&sent[1], &sent[2]].map(|body| &body["metadata"]["uid"]), ["u", "u"]);
    }

    #[tokio::test]
    async fn every_request_is_made_in_the_name_that_is_given() {
        const OBJECT: &str = r#"{"metadata":{"name":"x","namespace":"a","uid":"u","resourceVersion":"7"}}"#;
        let users = Arc::<Mutex<Vec<Option<String>>>>::default();
        let seen = users.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let user = request.headers().get("impersonate-user");
            seen.lock()
                .unwrap()
                .push(user.map(|user| user.to_str().unwrap().to_owned()));
            async { Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(OBJECT.as_bytes().to_vec()))) }
        });
        let host = FieldManagerClient::new(Client::new(service, "default"), "pilothouse/p".into());
        let account = Impersonation::of_service_account("system", "account", None);
        let served = built_in::served(&Kind::new("", "v1", "ConfigMap")).expect("it is in the table");
        let object = CachedObject::read(OBJECT, &served.kind, &Projection::default()).unwrap();
        let (name, body) = (&object.name, Map::new());
        for writer in [host.clone(), host.acting_as(account)] {
            let applied = writer.apply(&served, name, &body, ApplyPrecondition::Absent).await;
            drop(applied.unwrap());
            drop(writer.apply_status(&served, name, "u", None, &body).await.unwrap());
            writer.withdraw(&served, name, "u").await.unwrap();
            writer.delete(&served, &object).await.unwrap();
            drop(writer.live(&served, name).await.unwrap());
            drop(writer.live_whole(&served, name).await.unwrap());
            drop(
                writer
                    .set_finalizers(&served, &object, &["x.dev/f".to_owned()])
                    .await
                    .unwrap(),
            );
            drop(writer.set_managers(&served, &object, Vec::new()).await.unwrap());
        }
        let users = users.lock().unwrap();
        let (own, impersonated) = users.split_at(8);
        assert!(own.iter().all(Option::is_none), "{own:?}");
        let account = "system:serviceaccount:system:account";
        assert_eq!(impersonated.len(), 8);
        assert!(
            impersonated.iter().all(|user| user.as_deref() == Some(account)),
            "{impersonated:?}"
        );
    }

    #[test]
    fn what_a_path_cannot_hold_is_escaped() {
        assert_eq!(
            encode("/api/v1/namespaces/a/configmaps/b c?d%"),
            "/api/v1/namespaces/a/configmaps/b%20c%3Fd%25"
        );
    }
}
