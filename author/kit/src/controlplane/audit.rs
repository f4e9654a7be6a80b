//! Reads the API server's audit log. `mod` decides where it is written.
//!
//! The log is written in the API server's blocking mode: an event is in the file before the next one of the same
//! request is sent. Watches are logged when they begin, everything else when it is answered.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use serde::Deserialize;

use crate::requests::{Request, parameter};

/// Everything that the kit needs to know, and nothing about the control plane's own traffic with itself.
pub(super) const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: [system:apiserver, pilothouse-controller-manager]
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: Metadata
"#;

/// The size of the log, which marks a moment.
pub(super) fn length(path: &Path) -> io::Result<u64> {
    match path.metadata() {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// The requests logged since then, each once.
pub(super) fn since(path: &Path, offset: u64) -> io::Result<Vec<Request>> {
    let mut text = String::new();
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    file.read_to_string(&mut text)?;
    let mut seen = HashSet::new();
    Ok(text
        .split_inclusive('\n')
        // A line that is still being written is left for the next look.
        .filter(|line| line.ends_with('\n'))
        .filter_map(|line| serde_json::from_str::<Event>(line).ok())
        .filter(|event| seen.insert(event.audit_id.clone()))
        .map(Request::from)
        .collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    audit_id: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectReference,
    #[serde(default)]
    response_status: ResponseStatus,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectReference {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl From<Event> for Request {
    fn from(event: Event) -> Self {
        let Event {
            audit_id: _,
            request_uri,
            verb,
            user,
            impersonated_user,
            user_agent,
            object_ref,
            response_status,
        } = event;
        Self {
            verb,
            account: user.username,
            impersonated: impersonated_user.map(|user| user.username),
            user_agent,
            field_manager: parameter(&request_uri, "fieldManager"),
            shard_selector: parameter(&request_uri, "shardSelector"),
            group: object_ref.api_group,
            resource: object_ref.resource,
            subresource: object_ref.subresource,
            namespace: object_ref.namespace,
            name: object_ref.name,
            dry_run: parameter(&request_uri, "dryRun").is_some(),
            code: response_status.code,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const APPLY: &str = r#"{"kind":"Event","level":"Metadata","auditID":"1","stage":"ResponseComplete","requestURI":"/apis/apps/v1/namespaces/shop/deployments/web?fieldManager=pilothouse%2Fapp-service&force=true","verb":"patch","user":{"username":"pilothouse-host","groups":["system:masters"]},"userAgent":"pilothouse/0.1","objectRef":{"resource":"deployments","namespace":"shop","name":"web","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201}}"#;
    const WATCH: &str = r#"{"auditID":"2","stage":"ResponseStarted","requestURI":"/api/v1/services?watch=true&shardSelector=a%28b%29","verb":"watch","user":{"username":"pilothouse-host"},"impersonatedUser":{"username":"system:serviceaccount:a:b"},"objectRef":{"resource":"services","apiVersion":"v1"},"responseStatus":{"code":200}}"#;

    #[test]
    fn an_event_says_who_asked_for_what() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(&path, format!("{APPLY}\n{WATCH}\n")).unwrap();
        let requests = since(&path, 0).unwrap();
        assert_eq!(
            requests[0].to_string(),
            "patch deployments.apps shop/web by pilothouse/app-service -> 201"
        );
        assert!(requests[0].is_write() && requests[0].is_by_host());
        assert_eq!(requests[1].impersonated.as_deref(), Some("system:serviceaccount:a:b"));
        assert_eq!(requests[1].shard_selector.as_deref(), Some("a(b)"));
        assert_eq!(requests[0].shard_selector, None);
        assert!(!requests[1].is_write());
    }

    #[test]
    fn two_audit_events_are_one_request_and_a_partial_line_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(&path, format!("{APPLY}\n{WATCH}\n{WATCH}\n{}", &APPLY[..40])).unwrap();
        let offset = u64::try_from(APPLY.len() + 1).unwrap();
        assert_eq!(since(&path, offset).unwrap().len(), 1);
        assert_eq!(length(&folder.path().join("absent")).unwrap(), 0);
    }
}
