//! Reads pull secrets: Secrets of type kubernetes.io/dockerconfigjson with the credentials of registries. Each is read
//! when a registry is accessed, and never stored.

use http::Request;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::client::Body;

use crate::error::{RequestError, chain};
use crate::write::send::send;

/// The type of a pull secret, and its only key.
const TYPE: &str = "kubernetes.io/dockerconfigjson";
const KEY: &str = ".dockerconfigjson";

/// The longest name of a Secret.
const LONGEST_NAME: usize = 253;

/// The reason why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum PullSecretError {
    /// The name is not valid for a Secret.
    #[error("the pull secret {0:?} cannot exist: its name is not a DNS subdomain; correct spec.source.oci.pullSecret")]
    Name(String),
    /// The Secret does not exist.
    #[error(
        "the pull secret {namespace}/{name} does not exist; create it with: kubectl create secret docker-registry {name} -n \
         {namespace} --docker-server=HOST --docker-username=USER --docker-password=PASSWORD"
    )]
    Missing {
        /// The host's namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The Secret has another type.
    #[error("the pull secret {namespace}/{name} has type {found}; it must have type {TYPE}")]
    Type {
        /// The host's namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The type that it has.
        found: String,
    },
    /// The Secret has no credentials.
    #[error(
        "the pull secret {namespace}/{name} has no key {KEY}; create it anew with kubectl create secret docker-registry"
    )]
    Empty {
        /// The host's namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The Secret cannot be read.
    #[error("cannot read the pull secret {namespace}/{name}: {problem}")]
    Request {
        /// The host's namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The problem.
        problem: String,
    },
}

/// Reads the value of a pull secret's key `.dockerconfigjson`.
pub async fn read_pull_secret(client: &Client, namespace: &str, name: &str) -> Result<Vec<u8>, PullSecretError> {
    if !is_subdomain(name) {
        return Err(PullSecretError::Name(name.chars().take(LONGEST_NAME).collect()));
    }
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    let secret = match get(client, &path).await {
        // serde's message may quote the Secret.
        Ok(text) => serde_json::from_str::<Secret>(&text).map_err(|_| "the answer is not a Secret".to_owned()),
        Err(error) if error.is_not_found() => return Err(PullSecretError::Missing { namespace, name }),
        Err(error) => Err(explain(&error)),
    };
    let secret = secret.map_err(|problem| PullSecretError::Request {
        namespace: namespace.clone(),
        name: name.clone(),
        problem,
    })?;
    if secret.type_.as_deref() != Some(TYPE) {
        return Err(PullSecretError::Type {
            namespace,
            name,
            found: secret.type_.unwrap_or_else(|| "Opaque".to_owned()),
        });
    }
    let value = secret.data.and_then(|mut data| data.remove(KEY));
    value
        .map(|value| value.0)
        .ok_or(PullSecretError::Empty { namespace, name })
}

async fn get(client: &Client, path: &str) -> Result<String, RequestError> {
    let request = Request::get(path)
        .body(Body::empty())
        .map_err(|error| RequestError::Garbled(error.to_string()))?;
    send(client, request).await.map(|(_, text)| text)
}

fn explain(error: &RequestError) -> String {
    if error.code() == Some(403) {
        return format!("{}; grant the host's account the verb get on this Secret", chain(error));
    }
    chain(error)
}

/// Reports whether a text is a DNS subdomain (RFC 1123), as names of Secrets are. Other texts are kept out of paths.
fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= LONGEST_NAME && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dns_subdomain_becomes_part_of_a_path() {
        assert!(is_subdomain("registry.example-1"));
        for text in [
            "",
            ".",
            "a..b",
            "../secrets",
            "a/b",
            "a?x=1",
            "A",
            "-a",
            "a-",
            "a%2f",
            &"a".repeat(254),
        ] {
            assert!(!is_subdomain(text), "{text}");
        }
    }
}
