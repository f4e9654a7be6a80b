//! Discovers served kinds: resource name, scope and status subresource.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Client;
use pilothouse_core::Kind;
use pilothouse_core::kubernetes::served::KindFacts;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::RequestError;
use crate::write::send::REQUEST_TIMEOUT;

pub use pilothouse_core::kubernetes::served::ServedKind;

/// Discovers the served kinds, with one request for each group and version. Concurrent callers share the response.
pub struct Discovery {
    client: Client,
    /// Results by `group/version`. The lock is held during a request, so that concurrent callers send only one.
    versions: Mutex<HashMap<String, Arc<Mutex<Option<GroupVersionKinds>>>>>,
}

/// The kinds of a group and version, and the time of the request.
struct GroupVersionKinds {
    asked: Instant,
    /// The resource's names and facts by kind; none if the group or version is not served.
    kinds: HashMap<String, ServedResource>,
}

/// The plural, the short names, and the facts.
type ServedResource = (String, Vec<String>, KindFacts);

impl Discovery {
    /// A discovery without results.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            versions: Mutex::default(),
        }
    }

    /// The served kind, if it is served. A response from before `since` is not used.
    pub async fn find(&self, kind: &Arc<Kind>, since: Instant) -> Result<Option<ServedKind>, RequestError> {
        let api_version = kind.api_version();
        let version = self
            .versions
            .lock()
            .await
            .entry(api_version.clone())
            .or_default()
            .clone();
        let mut version = version.lock().await;
        if version.as_ref().is_none_or(|version| version.asked < since) {
            let asked = Instant::now();
            let kinds = self.ask(&api_version).await?;
            *version = Some(GroupVersionKinds { asked, kinds });
        }
        let found = version.as_ref().and_then(|version| version.kinds.get(&kind.kind));
        Ok(found.map(|(plural, short_names, facts)| ServedKind {
            short_names: short_names.clone(),
            kind: kind.clone(),
            plural: plural.clone(),
            facts: *facts,
        }))
    }

    /// A kind in a served version, if there is one: its own, if that is served.
    pub async fn find_version(&self, kind: &Kind) -> Result<Option<Kind>, RequestError> {
        let since = Instant::now();
        let groups = tokio::time::timeout(REQUEST_TIMEOUT, self.client.list_api_groups())
            .await
            .map_err(|_| RequestError::Silent(REQUEST_TIMEOUT))??;
        let group = groups.groups.iter().find(|group| group.name == kind.group);
        let others = group.into_iter().flat_map(|group| &group.versions);
        for version in std::iter::once(&kind.version).chain(others.map(|version| &version.version)) {
            let kind = Kind::new(&kind.group, version, &kind.kind);
            if self.find(&Arc::new(kind.clone()), since).await?.is_some() {
                return Ok(Some(kind));
            }
        }
        Ok(None)
    }

    async fn ask(&self, api_version: &str) -> Result<HashMap<String, ServedResource>, RequestError> {
        let list = async {
            if api_version.contains('/') {
                self.client.list_api_group_resources(api_version).await
            } else {
                self.client.list_core_api_resources(api_version).await
            }
        };
        let list = tokio::time::timeout(REQUEST_TIMEOUT, list)
            .await
            .map_err(|_| RequestError::Silent(REQUEST_TIMEOUT))?;
        let resources = match list.map_err(RequestError::from) {
            Ok(list) => list.resources,
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(error),
        };
        let kinds = resources.iter().filter(|resource| !resource.name.contains('/'));
        Ok(kinds
            .map(|resource| {
                let status = format!("{}/status", resource.name);
                let facts = KindFacts {
                    namespaced: resource.namespaced,
                    has_status: resources.iter().any(|it| it.name == status),
                };
                let short_names = resource.short_names.clone().unwrap_or_default();
                (resource.kind.clone(), (resource.name.clone(), short_names, facts))
            })
            .collect())
    }
}
