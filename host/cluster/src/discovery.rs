//! Owns what the cluster serves: for a kind, its resource's name, its scope and whether it has a status.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Client;
use kube::core::ApiResource;
use pilothouse_core::answer::KindFacts;
use pilothouse_core::{Kind, Name};

use crate::error::RequestError;

/// A kind that the cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The kind.
    pub kind: Arc<Kind>,
    /// The resource's name, such as `deployments`.
    pub plural: String,
    /// Scope and subresources.
    pub facts: KindFacts,
}

impl Served {
    /// The path of one object, or of the collection that it stands in.
    pub fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let root = if self.kind.group.is_empty() { "/api" } else { "/apis" };
        let mut path = format!("{root}/{}", self.kind.api_version());
        if let Some(namespace) = namespace {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(name);
        }
        path
    }

    /// The path of one object.
    pub fn object_path(&self, name: &Name) -> String {
        self.path(name.namespace.as_deref(), Some(&name.name))
    }

    /// As kube wants it.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.kind.group.clone(),
            version: self.kind.version.clone(),
            api_version: self.kind.api_version(),
            kind: self.kind.kind.clone(),
            plural: self.plural.clone(),
        }
    }
}

/// Asks for each kind whether it is served, with one request for each group and version.
///
/// A kind that is not served is absent from the answer.
pub async fn discover(
    client: &Client,
    kinds: impl IntoIterator<Item = Arc<Kind>>,
) -> Result<HashMap<Arc<Kind>, Served>, RequestError> {
    let mut by_version: HashMap<String, Vec<Arc<Kind>>> = HashMap::new();
    for kind in kinds {
        by_version.entry(kind.api_version()).or_default().push(kind);
    }
    let mut served = HashMap::new();
    for (api_version, kinds) in by_version {
        let list = if api_version.contains('/') {
            client.list_api_group_resources(&api_version).await
        } else {
            client.list_core_api_resources(&api_version).await
        };
        let list = match list.map_err(RequestError::from) {
            Ok(list) => list,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        for kind in kinds {
            let found = list
                .resources
                .iter()
                .find(|resource| resource.kind == kind.kind && !resource.name.contains('/'));
            if let Some(resource) = found {
                let status = format!("{}/status", resource.name);
                let facts = KindFacts {
                    namespaced: resource.namespaced,
                    has_status: list.resources.iter().any(|it| it.name == status),
                };
                served.insert(
                    kind.clone(),
                    Served {
                        kind,
                        plural: resource.name.clone(),
                        facts,
                    },
                );
            }
        }
    }
    Ok(served)
}
