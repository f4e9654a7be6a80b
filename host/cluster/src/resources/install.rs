//! Installs a plugin's CRDs, if the host runs with `--install-crds`; otherwise compares them with those in the cluster.

use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use pilothouse_core::Kind;
use pilothouse_core::diff::canonical::{DESIRED_ANNOTATION, digest};
use pilothouse_core::kubernetes::crd_difference::difference;
use pilothouse_core::plugin::manifest::BroughtCrd;
use serde_json::{Value, json};

use crate::error::RequestError;
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
}

impl InstallError {
    /// Reports whether the host lacks the right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Request { source, .. } if source.is_missing_right())
    }
}

/// The treatment of a CRD that was installed unchanged, and edited since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    /// Keep the edited CRD.
    Keep,
    /// Apply the CRD again.
    Restore,
}

/// Applies a CRD unless the cluster has it unchanged, and waits until it is established. Returns whether it wrote.
pub async fn install_crd(client: &Client, crd: &BroughtCrd, edited: Edited) -> Result<bool, InstallError> {
    let failed = |source| InstallError::Request {
        name: crd.name.clone(),
        source,
    };
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", crd.name);
    let mut body = crd.definition.clone();
    let wanted = digest(&body);
    body["metadata"]["annotations"][DESIRED_ANNOTATION] = json!(wanted);
    let live = get(client, &path).await.map_err(failed)?;
    let differs = live.as_ref().is_none_or(|live| {
        live["metadata"]["annotations"][DESIRED_ANNOTATION] != *wanted
            || (edited == Edited::Restore && difference(live, &crd.definition).is_some())
    });
    if differs {
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{path}?fieldManager={MANAGER}&force=true"))
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(Body::from(body.to_string().into_bytes()))
            .map_err(|error| failed(RequestError::Garbled(error.to_string())))?;
        send(client, request).await.map_err(failed)?;
    }
    let wait = async {
        loop {
            let live = get(client, &path).await.map_err(failed)?.unwrap_or_default();
            match established(&live) {
                Ok(()) => return Ok(differs),
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
    /// Applying the plugin's CRD would change nothing.
    Same,
    /// The cluster has no such CRD.
    Absent,
    /// The CRDs differ; the text describes the first difference.
    Differs(String),
}

/// Compares a CRD with the one in the cluster. A CRD that `install`, `upgrade` or a host installed unchanged, and that
/// was edited since, counts as the same: another installation would not change it either.
pub async fn compare_crd(client: &Client, crd: &BroughtCrd) -> Result<CrdInCluster, RequestError> {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", crd.name);
    let Some(live) = get(client, &path).await? else {
        return Ok(CrdInCluster::Absent);
    };
    if live["metadata"]["annotations"][DESIRED_ANNOTATION] == *digest(&crd.definition) {
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
    fn a_crd_whose_names_are_taken_says_so() {
        let crd = json!({"status": {"conditions": [
            {"type": "NamesAccepted", "status": "False", "message": "\"apps\" is already in use"},
            {"type": "Established", "status": "False", "message": "not all names are accepted"}]}});
        assert_eq!(established(&crd), Err("\"apps\" is already in use".to_owned()));
        assert!(established(&json!({"status": {"conditions": [{"type": "Established", "status": "True"}]}})).is_ok());
        assert!(established(&json!({})).is_err());
    }
}
