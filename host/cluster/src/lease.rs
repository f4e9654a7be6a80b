//! Owns reading and writing the Leases by which replicas agree on a leader, and on who holds which shard. What is written is
//! decided in [`pilothouse_core::lease`].

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use pilothouse_core::lease::LeaseRecord;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::RequestError;
use crate::fence::Unfenced;
use crate::write::send;

/// The label by which a Lease is known to be one of Pilothouse, and its value.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "pilothouse");

/// A Lease as it was read or written.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveLease {
    /// What it says.
    pub record: LeaseRecord,
    /// All of it, so that what others have put there stays.
    object: Value,
}

impl LiveLease {
    /// Whether a host has made it, and not other software.
    pub fn is_ours(&self) -> bool {
        let (label, value) = MANAGED_BY;
        self.object["metadata"]["labels"][label] == value
    }

    /// The value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.object["metadata"]["annotations"][name].as_str()
    }
}

/// Annotations of a Lease, by name.
pub type LeaseAnnotations<'a> = [(&'a str, String)];

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i32>,
}

/// One Lease.
#[derive(Clone)]
pub struct LeaseApi {
    client: Client,
    namespace: String,
    name: String,
    timeout: Duration,
}

impl LeaseApi {
    /// The Lease of this name; each request may take so long.
    pub fn new(client: Client, namespace: String, name: String, timeout: Duration) -> Self {
        Self {
            client,
            namespace,
            name,
            timeout,
        }
    }

    /// Namespace and name, for people.
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The Lease as it is; none if it is not there.
    pub async fn read(&self) -> Result<Option<LiveLease>, RequestError> {
        match self.exchange(Method::GET, &self.path(), None).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.is_object_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the Lease if it still is as it was read, or still is not there. None means that it is not.
    pub async fn write(
        &self,
        live: Option<&LiveLease>,
        record: &LeaseRecord,
    ) -> Result<Option<LiveLease>, RequestError> {
        self.annotate(live, record, &[]).await
    }

    /// The same with annotations.
    pub async fn annotate(
        &self,
        live: Option<&LiveLease>,
        record: &LeaseRecord,
        annotations: &LeaseAnnotations<'_>,
    ) -> Result<Option<LiveLease>, RequestError> {
        let LeaseRecord {
            holder,
            duration_seconds,
            acquired,
            renewed,
            transitions,
        } = record;
        let (label, value) = MANAGED_BY;
        let mut object = live.map_or_else(
            || {
                json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"namespace": self.namespace, "name": self.name, "labels": {label: value}},
                })
            },
            |live| live.object.clone(),
        );
        object["spec"]["holderIdentity"] = json!(holder);
        object["spec"]["leaseDurationSeconds"] = json!(duration_seconds);
        object["spec"]["acquireTime"] = json!(acquired);
        object["spec"]["renewTime"] = json!(renewed);
        object["spec"]["leaseTransitions"] = json!(transitions);
        for (name, value) in annotations {
            object["metadata"]["annotations"][*name] = json!(value);
        }
        let written = match live {
            Some(_) => self.exchange(Method::PUT, &self.path(), Some(&object)).await,
            None => self.exchange(Method::POST, &self.collection(), Some(&object)).await,
        };
        match written {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.code() == Some(StatusCode::CONFLICT.as_u16()) => Ok(None),
            // Where it was to be made, it is the namespace that is not there.
            Err(error) if live.is_some() && error.is_object_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the Lease if it still is as it was read.
    pub async fn delete(&self, live: &LiveLease) -> Result<(), RequestError> {
        let metadata = &live.object["metadata"];
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        });
        match self.send(Method::DELETE, &self.path(), Some(&options)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_object_not_found() || error.code() == Some(409) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn exchange(&self, method: Method, path: &str, object: Option<&Value>) -> Result<LiveLease, RequestError> {
        let text = self.send(method, path, object).await?;
        let object = serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))?;
        read(object)
    }

    async fn send(&self, method: Method, path: &str, object: Option<&Value>) -> Result<String, RequestError> {
        let body = object.map_or_else(Vec::new, |object| object.to_string().into_bytes());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        request.extensions_mut().insert(Unfenced);
        let answer = tokio::time::timeout(self.timeout, send(&self.client, request)).await;
        let (_, text) = answer.unwrap_or(Err(RequestError::Silent(self.timeout)))?;
        Ok(text)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }
}

fn read(object: Value) -> Result<LiveLease, RequestError> {
    let spec = object.get("spec").cloned().unwrap_or_default();
    let spec: Option<LeaseSpec> =
        serde_json::from_value(spec).map_err(|error| RequestError::Garbled(error.to_string()))?;
    let spec = spec.unwrap_or_default();
    Ok(LiveLease {
        record: LeaseRecord {
            holder: spec.holder_identity.unwrap_or_default(),
            duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquired: spec.acquire_time,
            renewed: spec.renew_time,
            transitions: spec.lease_transitions.unwrap_or_default(),
        },
        object,
    })
}

/// The Leases whose names begin with the same words: those of one host's shards and replicas.
#[derive(Clone)]
pub struct LeaseGroup {
    all: LeaseApi,
}

impl LeaseGroup {
    /// The Leases of names that begin so; each request may take so long.
    pub fn new(client: Client, namespace: String, prefix: String, timeout: Duration) -> Self {
        Self {
            all: LeaseApi::new(client, namespace, prefix, timeout),
        }
    }

    /// One of them, by what follows the prefix.
    pub fn lease(&self, suffix: &str) -> LeaseApi {
        LeaseApi {
            name: format!("{}{suffix}", self.all.name),
            ..self.all.clone()
        }
    }

    /// Namespace and prefix, for people.
    pub fn title(&self) -> String {
        self.all.title()
    }

    /// All of them that a host has made, as they are now, by what follows the prefix.
    pub async fn list(&self) -> Result<BTreeMap<String, LiveLease>, RequestError> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Value>,
        }
        let (label, value) = MANAGED_BY;
        let path = format!("{}?labelSelector={label}%3D{value}", self.all.collection());
        let text = self.all.send(Method::GET, &path, None).await?;
        let List { items } = serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))?;
        let suffix = |object: &Value| {
            Some(
                object["metadata"]["name"]
                    .as_str()?
                    .strip_prefix(&self.all.name)?
                    .to_owned(),
            )
        };
        let leases = items
            .into_iter()
            .filter_map(|object| Some((suffix(&object)?, read(object))));
        leases.map(|(suffix, lease)| Ok((suffix, lease?))).collect()
    }
}
