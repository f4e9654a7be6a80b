//! Installs a plugin's CRDs, for a host with `--install-crds` and for installations, and compares them with those in the
//! cluster. A CRD in the cluster that is a superset of the plugin's stays: replacing it would drop fields of live objects.

use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use pilothouse_core::Kind;
use pilothouse_core::diff::canonical::{DESIRED_ANNOTATION, digest};
use pilothouse_core::kubernetes::crd_difference::difference;
use pilothouse_core::kubernetes::crd_superset::{shortfall, stays};
use pilothouse_core::plugin::manifest::BroughtCrd;
use serde_json::{Value, json};

use crate::error::RequestError;
use crate::write::NO_VERSION;
use crate::write::send::send;

/// The field manager of CRDs applied by hosts and installations.
pub const MANAGER: &str = "pilothouse";

/// The time limit for a CRD to become established.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// CRDs in a page of a list of their names.
const PAGE: u32 = 500;

/// The interval at which the established condition is polled.
const ESTABLISH_POLL: Duration = Duration::from_millis(100);

/// The reason why a CRD is not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The API server refused it, or the request failed.
    #[error("cannot install CRD {name}: {source}")]
    Request {
        /// `plural.group`.
        name: String,
        /// The error of the request.
        #[source]
        source: RequestError,
    },
    /// The API server accepted the CRD and does not serve it.
    #[error("CRD {name} is not established after {} s: {reason}", ESTABLISH_TIMEOUT.as_secs())]
    NotEstablished {
        /// `plural.group`.
        name: String,
        /// The message of its condition.
        reason: String,
    },
    /// Another Plugin needs the CRD as it is.
    #[error(
        "CRD {name} is also brought by Plugin {plugin}, and would no longer be what that one needs: {reason}; give both the same \
         CRD, or one that accepts all that the other one's accepts"
    )]
    OfAnother {
        /// `plural.group`.
        name: String,
        /// The other Plugin.
        plugin: String,
        /// The first reason.
        reason: String,
    },
}

impl InstallError {
    /// Reports whether the host lacks the right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Request { source, .. } if source.is_missing_right())
    }
}

/// The treatment of a CRD in the cluster that is not the brought one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrdPolicy {
    /// A superset stays, and one that was installed unchanged and edited since.
    Leave,
    /// A superset stays. One that was edited otherwise is applied again.
    Keep,
    /// The brought one is applied.
    Replace,
}

/// Decides whether a CRD is applied where the cluster has another one. `sharer` is another Plugin that brings it.
pub fn is_applied(
    crd: &BroughtCrd,
    live: Option<&Value>,
    policy: CrdPolicy,
    sharer: Option<&str>,
) -> Result<bool, InstallError> {
    let (Some(live), brought) = (live, &crd.definition) else {
        return Ok(true);
    };
    let is_other = || live["metadata"]["annotations"][DESIRED_ANNOTATION] != *digest(brought);
    let is_edited = || difference(live, brought).is_some();
    let applies = match policy {
        CrdPolicy::Leave => is_other() && !stays(live, brought),
        CrdPolicy::Keep => (is_other() || is_edited()) && !stays(live, brought),
        CrdPolicy::Replace => is_other() || is_edited() || shortfall(brought, live).is_some(),
    };
    let Some(plugin) = sharer.filter(|_| applies) else {
        return Ok(applies);
    };
    if policy != CrdPolicy::Replace && shortfall(live, brought).is_none() {
        return Ok(false);
    }
    shortfall(brought, live).map_or(Ok(true), |reason| {
        Err(InstallError::OfAnother {
            name: crd.name.clone(),
            plugin: plugin.to_owned(),
            reason,
        })
    })
}

fn path_of(crd: &BroughtCrd) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", crd.name)
}

/// Applies a CRD to the one in the cluster that was read, or creates it.
async fn apply(client: &Client, crd: &BroughtCrd, live: Option<&Value>, options: &str) -> Result<(), RequestError> {
    let mut body = crd.definition.clone();
    body["metadata"]["annotations"][DESIRED_ANNOTATION] = json!(digest(&crd.definition));
    let version = live.and_then(|live| live["metadata"]["resourceVersion"].as_str());
    body["metadata"]["resourceVersion"] = json!(version.unwrap_or(NO_VERSION));
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{}?fieldManager={MANAGER}&force=true{options}", path_of(crd)))
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(Body::from(body.to_string().into_bytes()))
        .map_err(|error| RequestError::Garbled(error.to_string()))?;
    send(client, request).await.map(drop)
}

/// Checks, by a dry run, whether the server would apply a CRD to the one in the cluster, or create it.
pub async fn try_crd(client: &Client, crd: &BroughtCrd, live: Option<&Value>) -> Result<(), InstallError> {
    let tried = apply(client, crd, live, "&dryRun=All").await;
    tried.map_err(|source| InstallError::Request {
        name: crd.name.clone(),
        source,
    })
}

/// Applies a CRD, unless the one in the cluster stays, and waits until it is established. Returns whether it wrote.
pub async fn install_crd(
    client: &Client,
    crd: &BroughtCrd,
    policy: CrdPolicy,
    sharer: Option<&str>,
) -> Result<bool, InstallError> {
    let failed = |source| InstallError::Request {
        name: crd.name.clone(),
        source,
    };
    let path = path_of(crd);
    let live = get(client, &path).await.map_err(failed)?;
    let applies = is_applied(crd, live.as_ref(), policy, sharer)?;
    if applies {
        apply(client, crd, live.as_ref(), "").await.map_err(failed)?;
    }
    let wait = async {
        loop {
            let live = get(client, &path).await.map_err(failed)?.unwrap_or_default();
            match established(&live) {
                Ok(()) => return Ok(applies),
                Err(reason) => {
                    tracing::debug!(crd = crd.name, reason, "waiting for the CRD to be established");
                    tokio::time::sleep(ESTABLISH_POLL).await;
                }
            }
        }
    };
    if let Ok(done) = tokio::time::timeout(ESTABLISH_TIMEOUT, wait).await {
        return done;
    }
    let live = get(client, &path).await.map_err(failed)?.unwrap_or_default();
    let reason = established(&live)
        .err()
        .unwrap_or_else(|| "it came too late".to_owned());
    Err(InstallError::NotEstablished {
        name: crd.name.clone(),
        reason,
    })
}

/// The result of comparing a plugin's CRD with the one in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrdInCluster {
    /// The plugin can run with the CRD in the cluster: applying its own would change nothing, or take something away.
    Same,
    /// The cluster has no such CRD.
    Absent,
    /// The CRDs differ; the text describes the first difference.
    Differs(String),
}

/// Compares a CRD with the one in the cluster, of which a superset counts as the same. A CRD that `install`, `upgrade` or a host installed unchanged, and that
/// was edited since, counts as the same: another installation would not change it either.
pub async fn compare_crd(client: &Client, crd: &BroughtCrd) -> Result<CrdInCluster, RequestError> {
    let Some(live) = get(client, &path_of(crd)).await? else {
        return Ok(CrdInCluster::Absent);
    };
    let is_own = live["metadata"]["annotations"][DESIRED_ANNOTATION] == *digest(&crd.definition);
    if is_own || shortfall(&live, &crd.definition).is_none() {
        return Ok(CrdInCluster::Same);
    }
    Ok(difference(&live, &crd.definition).map_or(CrdInCluster::Same, CrdInCluster::Differs))
}

/// Reports whether the cluster has a definition of a kind, served or not.
pub async fn is_defined(client: &Client, kind: &Kind) -> Result<bool, RequestError> {
    const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let suffix = format!(".{}", kind.group);
    let mut next = String::new();
    loop {
        let request = Request::builder()
            .uri(format!(
                "{PATH}?limit={PAGE}&continue={}",
                utf8_percent_encode(&next, NON_ALPHANUMERIC)
            ))
            .header(
                http::header::ACCEPT,
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json",
            )
            .body(Body::empty())
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        let (_, text) = send(client, request).await?;
        let list: Value = serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))?;
        let names = list["items"].as_array().into_iter().flatten();
        for name in names.filter_map(|item| item["metadata"]["name"].as_str()) {
            if !name.ends_with(&suffix) {
                continue;
            }
            let definition = get(client, &format!("{PATH}/{name}")).await?.unwrap_or_default();
            if definition["spec"]["names"]["kind"] == *kind.kind {
                return Ok(true);
            }
        }
        match list["metadata"]["continue"].as_str() {
            Some(more) if !more.is_empty() => more.clone_into(&mut next),
            _ => return Ok(false),
        }
    }
}

async fn get(client: &Client, path: &str) -> Result<Option<Value>, RequestError> {
    let request = Request::builder()
        .uri(path)
        .body(Body::empty())
        .map_err(|error| RequestError::Garbled(error.to_string()))?;
    match send(client, request).await {
        Ok((_, text)) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| RequestError::Garbled(error.to_string())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that the CRD is served. The error is the message of the condition.
fn established(crd: &Value) -> Result<(), String> {
    let conditions = crd["status"]["conditions"].as_array();
    let find = |name: &str| {
        conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == name)
    };
    if find("Established").is_some_and(|condition| condition["status"] == "True") {
        return Ok(());
    }
    let refused = find("NamesAccepted").filter(|condition| condition["status"] == "False");
    Err(refused
        .and_then(|condition| condition["message"].as_str())
        .unwrap_or("it has no condition yet")
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superset_stays_unless_it_is_to_be_replaced() {
        let definition = |fields: &[&str], edited: bool| {
            let fields = fields
                .iter()
                .map(|name| ((*name).to_owned(), json!({"type": "string"})));
            let properties: serde_json::Map<String, Value> = fields.collect();
            let mut definition = json!({"metadata": {"name": "apps.x.dev"}, "spec": {
                "group": "x.dev", "scope": "Namespaced", "names": {"kind": "App", "plural": "apps"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                              "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}],
            }});
            if edited {
                definition["metadata"]["annotations"][DESIRED_ANNOTATION] = json!(digest(&definition_of_a()));
            }
            definition
        };
        fn definition_of_a() -> Value {
            json!({"metadata": {"name": "apps.x.dev"}, "spec": {
                "group": "x.dev", "scope": "Namespaced", "names": {"kind": "App", "plural": "apps"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                              "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}}}}}],
            }})
        }
        let brought = BroughtCrd {
            name: "apps.x.dev".to_owned(),
            group: "x.dev".to_owned(),
            kind: "App".to_owned(),
            definition: definition_of_a(),
        };
        let policies = [CrdPolicy::Leave, CrdPolicy::Keep, CrdPolicy::Replace];
        let decided = |live: Option<&Value>, sharer: Option<&str>| {
            policies.map(|policy| is_applied(&brought, live, policy, sharer).map_err(|error| error.to_string()))
        };
        assert_eq!(decided(None, Some("b")), [Ok(true), Ok(true), Ok(true)]);
        let unchanged = definition(&["a"], true);
        assert_eq!(decided(Some(&unchanged), None), [Ok(false), Ok(false), Ok(false)]);
        let of_others = definition(&["a"], false);
        assert_eq!(decided(Some(&of_others), None), [Ok(true), Ok(true), Ok(true)]);
        assert_eq!(decided(Some(&of_others), Some("b")), [Ok(false), Ok(false), Ok(true)]);
        let wider = definition(&["a", "b"], false);
        assert_eq!(decided(Some(&wider), None), [Ok(false), Ok(false), Ok(true)]);
        let by_hand = definition(&["a", "b"], true);
        assert_eq!(decided(Some(&by_hand), None), [Ok(false), Ok(false), Ok(true)]);
        let narrower = definition(&[], true);
        assert_eq!(decided(Some(&narrower), None), [Ok(false), Ok(true), Ok(true)]);
        assert_eq!(decided(Some(&narrower), Some("b")), [Ok(false), Ok(true), Ok(true)]);
        let [left, kept, replaced] = decided(Some(&definition(&["b"], false)), Some("b"));
        for refused in [left, kept, replaced] {
            let words = refused.unwrap_err();
            assert!(
                words.contains("CRD apps.x.dev is also brought by Plugin b")
                    && words.contains("properties.b is missing"),
                "{words}"
            );
        }
        assert!(
            decided(Some(&wider), Some("b"))[2].is_err(),
            "what the other one needs is not known"
        );
    }

    #[test]
    fn a_crd_whose_names_are_taken_says_so() {
        let crd = json!({"status": {"conditions": [
            {"type": "NamesAccepted", "status": "False", "message": "\"apps\" is already in use"},
            {"type": "Established", "status": "False", "message": "not all names are accepted"}]}});
        assert_eq!(established(&crd), Err("\"apps\" is already in use".to_owned()));
        assert!(established(&json!({"status": {"conditions": [{"type": "Established", "status": "True"}]}})).is_ok());
        assert!(established(&json!({})).is_err());
    }
}
