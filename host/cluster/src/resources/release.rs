//! Removes a finalizer that no plugin serves any more: a plugin that was lost, or that has changed its finalizer,
//! leaves objects that cannot be deleted.

use std::sync::Arc;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use pilothouse_core::answer::KindFacts;
use pilothouse_core::{Kind, Name};
use serde::Deserialize;
use serde_json::json;

use crate::discovery::ServedKind;
use crate::error::RequestError;
use crate::write::send::send;

/// The field manager of a release.
const MANAGER: &str = "pilothouse-release";

/// Objects in a page of a list.
const PAGE: u32 = 500;

/// An object that has the finalizer.
#[derive(Clone, Debug)]
pub struct FinalizerHolder {
    served: ServedKind,
    /// Its namespace and name.
    pub name: Name,
    version: String,
    finalizers: Vec<String>,
    /// Set if it is being deleted, and waits only for finalizers.
    pub deleting: bool,
}

impl FinalizerHolder {
    /// Its kind.
    pub fn kind(&self) -> &Kind {
        &self.served.kind
    }

    /// Its title in messages: `AppService default/web`.
    pub fn title(&self) -> String {
        format!("{} {}", self.served.kind.kind, self.name)
    }
}

/// The kinds that the cluster serves and that can be listed and changed, each in the server's preferred version. If
/// there are `names` (as for [`ServedKind::is_called`]), only those; a group that does not answer is then left out if a kind is found in
/// another.
pub async fn kinds(client: &Client, names: &[String]) -> Result<Vec<ServedKind>, RequestError> {
    let mut versions = vec!["v1".to_owned()];
    for group in client.list_api_groups().await?.groups {
        let preferred = group.preferred_version.or_else(|| group.versions.into_iter().next());
        versions.extend(preferred.map(|version| version.group_version));
    }
    let (mut found, mut silent) = (Vec::new(), None);
    for api_version in versions {
        let list = if api_version.contains('/') {
            client.list_api_group_resources(&api_version).await
        } else {
            client.list_core_api_resources(&api_version).await
        };
        let list = match list {
            Ok(list) => list,
            Err(error) if names.is_empty() => return Err(error.into()),
            Err(error) => {
                silent.get_or_insert(error);
                continue;
            }
        };
        for resource in list.resources {
            let can = |verb: &str| resource.verbs.iter().any(|it| it == verb);
            if resource.name.contains('/') || !can("list") || !can("patch") {
                continue;
            }
            let served = ServedKind {
                kind: Arc::new(Kind::from_api_version(&api_version, &resource.kind)),
                short_names: resource.short_names.unwrap_or_default(),
                plural: resource.name,
                facts: KindFacts {
                    namespaced: resource.namespaced,
                    has_status: false,
                },
            };
            if names.is_empty() || names.iter().any(|name| served.is_called(name)) {
                found.push(served);
            }
        }
    }
    match silent {
        Some(error) if found.is_empty() => Err(error.into()),
        _ => Ok(found),
    }
}

/// The objects of a kind that have a finalizer.
pub async fn find(client: &Client, served: &ServedKind, finalizer: &str) -> Result<Vec<FinalizerHolder>, RequestError> {
    let listed = list_metadata(client, served).await?.into_iter();
    let held = listed.filter(|metadata| metadata.finalizers.iter().any(|it| it == finalizer));
    let holder = |metadata: Meta| FinalizerHolder {
        served: served.clone(),
        name: metadata.name(),
        version: metadata.resource_version,
        finalizers: metadata.finalizers,
        deleting: metadata.deletion_timestamp.is_some(),
    };
    Ok(held.map(holder).collect())
}

/// The metadata of all objects of a kind.
pub(crate) async fn list_metadata(client: &Client, served: &ServedKind) -> Result<Vec<Meta>, RequestError> {
    let mut listed = Vec::new();
    let mut token = String::new();
    loop {
        let path = served.path(None, None);
        let request = Request::builder()
            .uri(format!("{path}?limit={PAGE}&continue={token}"))
            .header(
                http::header::ACCEPT,
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json",
            )
            .body(Body::empty())
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        let (_, text) = send(client, request).await?;
        let MetadataList { metadata, items } =
            serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))?;
        listed.extend(items.unwrap_or_default().into_iter().map(|item| item.metadata));
        match metadata.next {
            Some(next) if !next.is_empty() => token = next,
            _ => return Ok(listed),
        }
    }
}

/// Removes a finalizer from an object, if it is unchanged. An object that no longer exists needs nothing.
pub async fn release(client: &Client, held: &FinalizerHolder, finalizer: &str) -> Result<(), RequestError> {
    let Some(position) = held.finalizers.iter().position(|it| it == finalizer) else {
        return Ok(());
    };
    let path = format!("/metadata/finalizers/{position}");
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": held.version},
        {"op": "test", "path": path, "value": finalizer},
        {"op": "remove", "path": path},
    ]);
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!(
            "{}?fieldManager={MANAGER}",
            held.served.object_path(&held.name)
        ))
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(Body::from(patch.to_string().into_bytes()))
        .map_err(|error| RequestError::Garbled(error.to_string()))?;
    match send(client, request).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_object_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

#[derive(Deserialize)]
struct MetadataList {
    #[serde(default)]
    metadata: ListMeta,
    /// The items. Some kinds have null if there are none.
    items: Option<Vec<ListedItem>>,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct ListedItem {
    metadata: Meta,
}

/// The metadata of an object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    pub(crate) resource_version: String,
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl Meta {
    /// Its namespace and name.
    pub(crate) fn name(&self) -> Name {
        Name::new(self.namespace.as_deref(), &self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_have_null_in_the_place_of_no_items() {
        let MetadataList { metadata, items } = serde_json::from_str(r#"{"metadata":{},"items":null}"#).unwrap();
        assert!(items.is_none() && metadata.next.is_none());
    }
}
