//! Responses of a registry by the distribution specification.

use std::collections::BTreeMap;

use base64::Engine as _;
use pilothouse_artifact::{Descriptor, Digest, media_type};
use serde_json::{Value, json};

use crate::exchange::{Reply, Request, State, reply};

/// Returns the response of a registry by the specification.
pub(crate) fn answer(request: &Request, state: &mut State) -> Reply {
    if let Some((user, password)) = &state.basic {
        let expected = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        if request.header("authorization") != Some(&format!("Basic {expected}")) {
            return reply(401, &[("WWW-Authenticate", "Basic realm=\"registry\"")], "");
        }
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let Some(rest) = path.strip_prefix("/v2/") else {
        return reply(404, &[], "");
    };
    if rest.is_empty() {
        return reply(200, &[], "{}");
    }
    let method = request.method.as_str();
    if let Some((repository, name)) = rest.split_once("/manifests/") {
        return manifests(request, state, method, repository, name);
    }
    if let Some((repository, digest)) = rest.split_once("/referrers/") {
        return referrers(state, repository, digest);
    }
    if let Some(repository) = rest.strip_suffix("/tags/list") {
        let names = state
            .manifests
            .keys()
            .filter(|(of, name)| of == repository && !name.contains(':'));
        let tags: Vec<&String> = names.map(|(_, name)| name).collect();
        return reply(200, &[], json!({"name": repository, "tags": tags}).to_string());
    }
    if rest.ends_with("/blobs/uploads/") && method == "POST" {
        if let Some(mounted) = query.split('&').find_map(|it| it.strip_prefix("mount=")) {
            let digest: Digest = mounted.replace("%3A", ":").parse().unwrap();
            if state.blobs.contains_key(&digest) {
                return reply(201, &[("Location", "/v2/x/blobs/x")], "");
            }
        }
        return reply(202, &[("Location", &format!("/v2/{rest}session?state=1"))], "");
    }
    if rest.ends_with("/blobs/uploads/session") && method == "PUT" {
        let digest = query
            .split('&')
            .find_map(|it| it.strip_prefix("digest="))
            .unwrap()
            .replace("%3A", ":");
        if Digest::of(&request.body).to_string() != digest {
            return reply(
                400,
                &[],
                json!({"errors": [{"code": "DIGEST_INVALID", "message": "wrong"}]}).to_string(),
            );
        }
        state.blobs.insert(digest.parse().unwrap(), request.body.clone());
        return reply(201, &[("Location", "/v2/x/blobs/x")], "");
    }
    if let Some((_, digest)) = rest.split_once("/blobs/") {
        let Some(bytes) = digest.parse().ok().and_then(|digest| state.blobs.get(&digest)) else {
            return reply(
                404,
                &[],
                json!({"errors": [{"code": "BLOB_UNKNOWN", "message": "no blob"}]}).to_string(),
            );
        };
        if method == "HEAD" {
            return reply(200, &[("Content-Length", &bytes.len().to_string())], "");
        }
        let from = request
            .header("range")
            .and_then(|it| it.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        return match from.filter(|_| state.ranges) {
            Some(from) => {
                let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
                reply(206, &[("Content-Range", &range)], &bytes[from..])
            }
            None => reply(200, &[], bytes.clone()),
        };
    }
    reply(404, &[], "")
}

fn manifests(request: &Request, state: &mut State, method: &str, repository: &str, name: &str) -> Reply {
    if method == "PUT" {
        let media_type = request.header("content-type").unwrap().to_owned();
        let digest = Digest::of(&request.body).to_string();
        for name in [name.to_owned(), digest.clone()] {
            state.manifests.insert(
                (repository.to_owned(), name),
                (media_type.clone(), request.body.clone()),
            );
        }
        let document: Value = serde_json::from_slice(&request.body).unwrap();
        let mut reply = reply(201, &[("Location", "/v2/x")], "");
        if let Some(subject) = document["subject"]["digest"].as_str().filter(|_| state.referrers_api) {
            reply.headers.push(("OCI-Subject".to_owned(), subject.to_owned()));
        }
        return reply;
    }
    let Some((media_type, bytes)) = state.manifests.get(&(repository.to_owned(), name.to_owned())) else {
        return reply(
            404,
            &[],
            json!({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}).to_string(),
        );
    };
    let digest = Digest::of(bytes).to_string();
    let headers = [
        ("Content-Type", media_type.as_str()),
        ("Docker-Content-Digest", &digest),
        ("Content-Length", &bytes.len().to_string()),
    ];
    reply(200, &headers, bytes.clone())
}

fn referrers(state: &State, repository: &str, digest: &str) -> Reply {
    if !state.referrers_api {
        return reply(404, &[], "404 page not found");
    }
    let mut entries = BTreeMap::new();
    for ((of, _), (media_type, bytes)) in &state.manifests {
        let document: Value = serde_json::from_slice(bytes).unwrap_or_default();
        if of == repository && document["subject"]["digest"] == digest {
            let mut entry = serde_json::to_value(Descriptor::of(media_type, bytes)).unwrap();
            entry["artifactType"] = document["artifactType"].clone();
            if document["annotations"].is_object() {
                entry["annotations"] = document["annotations"].clone();
            }
            entries.insert(Digest::of(bytes), entry);
        }
    }
    let entries: Vec<&Value> = entries.values().collect();
    let index = json!({"schemaVersion": 2, "mediaType": media_type::INDEX, "manifests": entries});
    reply(200, &[("Content-Type", media_type::INDEX)], index.to_string())
}
