//! Rewrites the objects of a CRD in its storage version, and then removes the other versions from `status.storedVersions`.
//!
//! An API server stores an object in the storage version whenever it writes it. For a patch that changes nothing it writes if the
//! stored bytes would differ, which they do where the object is stored in another version: `GuaranteedUpdate` of
//! <https://github.com/kubernetes/kubernetes/blob/v1.34.0/staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go>. Such a patch undoes
//! nothing, so it has no precondition: whatever has changed meanwhile is stored in the storage version, too.

use std::sync::Arc;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use pilothouse_core::answer::KindFacts;
use pilothouse_core::kubernetes::served::is_called;
use pilothouse_core::{Kind, Name};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::discovery::ServedKind;
use crate::error::RequestError;
use crate::resources::install::read_crd;
use crate::resources::release::{Meta, list_metadata};
use crate::write::send::send;

/// The field manager of a migration.
const MANAGER: &str = "pilothouse-migrate-storage";

/// CRDs in a page of their list. A CRD may have 1 MiB.
const PAGE: u32 = 20;

/// Number of times that a CRD that changes meanwhile is read again.
const LOOKS: u32 = 5;

/// A CRD, as far as it decides how its objects are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKind {
    /// `plural.group`.
    pub crd: String,
    /// The storage version.
    pub storage: String,
    /// Versions in which objects are or were stored.
    pub stored: Vec<String>,
    served: Vec<String>,
    kind: Kind,
    names: Vec<String>,
    plural: String,
    namespaced: bool,
    uid: String,
    generation: i64,
    resource_version: String,
}

/// Reason why `status.storedVersions` stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum TrimError {
    /// The CRD is not the one for which objects were rewritten.
    #[error("CRD {0} was changed meanwhile, so objects may be stored in other versions again; run the command again")]
    Changed(String),
    /// The request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl StoredKind {
    /// Reads a CRD; `None` if it has no storage version.
    pub fn of(crd: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let texts = |list: &Value| -> Vec<String> { list.as_array().into_iter().flatten().map(text).collect() };
        let (metadata, spec) = (&crd["metadata"], &crd["spec"]);
        let versions = || spec["versions"].as_array().into_iter().flatten();
        let storage = text(&versions().find(|version| version["storage"] == true)?["name"]);
        let served = versions().filter(|version| version["served"] == true);
        let served = served.map(|version| text(&version["name"]));
        let names = &spec["names"];
        let mut called = texts(&names["shortNames"]);
        called.extend([text(&names["plural"]), text(&names["singular"])]);
        Some(Self {
            crd: text(&metadata["name"]),
            kind: Kind::new(text(&spec["group"]), &storage, text(&names["kind"])),
            storage,
            stored: texts(&crd["status"]["storedVersions"]),
            served: served.collect(),
            names: called,
            plural: text(&names["plural"]),
            namespaced: spec["scope"] == "Namespaced",
            uid: text(&metadata["uid"]),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            resource_version: text(&metadata["resourceVersion"]),
        })
    }

    /// The CRD of a cluster, if there is one of this name.
    pub async fn find(client: &Client, crd: &str) -> Result<Option<Self>, RequestError> {
        let found = read_crd(client, crd).await?;
        Ok(found.as_ref().and_then(Self::of))
    }

    /// All CRDs of a cluster.
    pub async fn list(client: &Client) -> Result<Vec<Self>, RequestError> {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let request = Request::get(format!("{path}?limit={PAGE}&continue={token}"));
            let request = request.body(Body::empty()).map_err(garbled)?;
            let (_, text) = send(client, request).await?;
            let page: Value = serde_json::from_str(&text).map_err(garbled)?;
            found.extend(page["items"].as_array().into_iter().flatten().filter_map(Self::of));
            match page["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => next.clone_into(&mut token),
                _ => return Ok(found),
            }
        }
    }

    /// Returns `true` if a user who writes this text means the kind, as for kubectl.
    pub fn is_called(&self, text: &str) -> bool {
        is_called(&self.kind, self.names.iter(), text)
    }

    /// Versions other than the storage version in which objects may be stored.
    pub fn left(&self) -> Vec<&str> {
        let left = self.stored.iter().filter(|version| **version != self.storage);
        left.map(String::as_str).collect()
    }

    /// The kind in the storage version.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The resource in each served version, the storage version first.
    fn resources(&self) -> impl Iterator<Item = ServedKind> {
        let mut versions: Vec<&String> = self.served.iter().collect();
        versions.sort_by_key(|version| **version != self.storage);
        versions.into_iter().map(|version| ServedKind {
            kind: Arc::new(Kind::new(&self.kind.group, version, &self.kind.kind)),
            short_names: Vec::new(),
            plural: self.plural.clone(),
            facts: KindFacts {
                namespaced: self.namespaced,
                has_status: false,
            },
        })
    }

    /// Lists the objects. A list fails as a whole where one object cannot be converted; another version, in which that
    /// object may be stored, needs no conversion of it.
    pub async fn objects(&self, client: &Client) -> Result<StoredObjects, RequestError> {
        let mut refusal = None;
        for served in self.resources() {
            match list_metadata(client, &served).await {
                Ok(listed) => return Ok(StoredObjects { served, listed }),
                Err(error) if error.is_missing_right() => return Err(error),
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| RequestError::Garbled(format!("CRD {} serves no version", self.crd))))
    }

    /// Removes all versions but the storage version from `status.storedVersions`, if the CRD still is as it was.
    pub async fn trim(&self, client: &Client) -> Result<(), TrimError> {
        let changed = || TrimError::Changed(self.crd.clone());
        let mut version = self.resource_version.clone();
        for _ in 0..LOOKS {
            match self.write_stored(client, &version).await {
                Ok(()) => return Ok(()),
                // Its status changes without its generation, for example when conditions are written.
                Err(error) if error.code() == Some(409) => {
                    let live = Self::find(client, &self.crd).await?.ok_or_else(changed)?;
                    if live.uid != self.uid || live.generation != self.generation {
                        return Err(changed());
                    }
                    version = live.resource_version;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(changed())
    }

    async fn write_stored(&self, client: &Client, version: &str) -> Result<(), RequestError> {
        let body = json!({
            "metadata": {"uid": self.uid, "resourceVersion": version}, "status": {"storedVersions": [self.storage]},
        });
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}/status",
            self.crd
        );
        send(client, patch(&path, &body)?).await.map(drop)
    }
}

/// The objects of a kind, by their metadata.
#[derive(Debug)]
pub struct StoredObjects {
    served: ServedKind,
    listed: Vec<Meta>,
}

/// Result of rewriting an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// The API server stored it anew.
    Written,
    /// The storage version was that of the stored object already.
    Unchanged,
    /// Somebody has deleted it.
    Gone,
}

impl StoredObjects {
    /// Number of objects.
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Returns `true` if there is none.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Names of the objects.
    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.listed.iter().map(Meta::name)
    }

    /// Has the API server store an object, by its position in the list.
    pub async fn rewrite(&self, client: &Client, position: usize) -> Result<Rewrite, RequestError> {
        let listed = &self.listed[position];
        let path = self.served.object_path(&listed.name());
        match send(client, patch(&path, &json!({}))?).await {
            Ok((_, text)) => {
                let Answer { metadata } = serde_json::from_str(&text).map_err(garbled)?;
                let is_same = metadata.resource_version == listed.resource_version;
                Ok(if is_same { Rewrite::Unchanged } else { Rewrite::Written })
            }
            Err(error) if error.is_object_not_found() => Ok(Rewrite::Gone),
            Err(error) => Err(error),
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    metadata: Meta,
}

fn patch(path: &str, body: &Value) -> Result<Request<Body>, RequestError> {
    Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}?fieldManager={MANAGER}"))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .header(
            http::header::ACCEPT,
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json",
        )
        .body(Body::from(body.to_string().into_bytes()))
        .map_err(garbled)
}

fn garbled(error: impl std::fmt::Display) -> RequestError {
    RequestError::Garbled(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_tells_how_its_objects_are_stored() {
        let version =
            |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
        let mut crd = json!({
            "metadata": {"name": "sites.x.dev"},
            "spec": {
                "group": "x.dev", "scope": "Namespaced",
                "names": {"kind": "Site", "plural": "sites", "singular": "site", "shortNames": ["st"]},
                "versions": [version("v1", true, false), version("v2", true, true), version("v3", false, false)],
            },
            "status": {"storedVersions": ["v1", "v2"]},
        });
        let kind = StoredKind::of(&crd).unwrap();
        assert_eq!((kind.storage.as_str(), kind.left()), ("v2", vec!["v1"]));
        let versions: Vec<String> = kind.resources().map(|served| served.kind.version.clone()).collect();
        assert_eq!(versions, ["v2", "v1"]);
        for name in ["Site", "sites", "SITE", "st", "site.x.dev", "Sites.x.dev"] {
            assert!(kind.is_called(name), "{name}");
        }
        assert!(!kind.is_called("sites.y.dev") && !kind.is_called("x.dev"));
        crd["spec"]["versions"] = json!([]);
        assert_eq!(StoredKind::of(&crd), None);
    }
}
