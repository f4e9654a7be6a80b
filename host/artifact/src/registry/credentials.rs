//! Provides credentials for registries: Docker's credential files and helpers for people, and pull secrets for a host.
//!
//! A pull secret comes from a user with rights in one namespace. It is data: no program that it names is ever run. The
//! user's own Docker configuration, in contrast, may name credential helpers, as with every other tool.

use std::collections::BTreeMap;
use std::fmt;

use docker_credential::{CredentialRetrievalError, DockerCredential};
use serde::{Deserialize, Serialize};

use crate::{ArtifactError, ErrorKind};

mod docker;

pub use docker::DockerConfig;

/// The largest pull secret, in bytes: that of a Kubernetes Secret.
const PULL_SECRET_LIMIT: usize = 1 << 20;

/// Docker Hub's name in credential files.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// The credentials for a registry. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Credentials {
    /// No credentials.
    #[default]
    Anonymous,
    /// A user's name and password, or equivalents.
    Basic {
        /// The user's name.
        username: String,
        /// The password.
        password: String,
    },
    /// A token that is exchanged for others at the registry's token service (Docker's identity token).
    IdentityToken(String),
    /// A token for the registry itself.
    Bearer(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic(redacted)",
            Self::IdentityToken(_) => "IdentityToken(redacted)",
            Self::Bearer(_) => "Bearer(redacted)",
        })
    }
}

impl Credentials {
    /// The user's credentials for a registry, from `$DOCKER_CONFIG/config.json` or `~/.docker/config.json`, or from the
    /// credential helper that it names, which is run. Anonymous if there are none.
    pub fn from_docker_config(host: &str) -> Result<Self, ArtifactError> {
        found(
            docker_credential::get_credential(&server(host)),
            host,
            "the Docker configuration",
        )
    }
}

/// Credentials by registry and repository.
pub trait Keychain: Send + Sync {
    /// The credentials for a repository of a registry; anonymous if there are none.
    fn credentials(&self, host: &str, repository: &str) -> Result<Credentials, ArtifactError>;
}

/// A registry's name in credential files.
fn server(host: &str) -> String {
    if host == "docker.io" {
        DOCKER_HUB.to_owned()
    } else {
        host.to_owned()
    }
}

fn found(
    answer: Result<DockerCredential, CredentialRetrievalError>,
    host: &str,
    place: &str,
) -> Result<Credentials, ArtifactError> {
    use CredentialRetrievalError as Problem;
    let problem = match answer {
        Ok(DockerCredential::UsernamePassword(username, password)) => {
            return Ok(match (username.as_str(), password.is_empty()) {
                ("", true) => Credentials::Anonymous,
                _ => Credentials::Basic { username, password },
            });
        }
        Ok(DockerCredential::IdentityToken(token)) if token.is_empty() => return Ok(Credentials::Anonymous),
        Ok(DockerCredential::IdentityToken(token)) => return Ok(Credentials::IdentityToken(token)),
        Err(Problem::NoCredentialConfigured | Problem::ConfigNotFound) => return Ok(Credentials::Anonymous),
        Err(Problem::ConfigReadError) if DockerConfig::is_absent() => return Ok(Credentials::Anonymous),
        // Helpers answer this way if they have nothing; its text is the protocol's.
        Err(Problem::HelperFailure { stdout, .. }) if stdout.contains("credentials not found") => {
            return Ok(Credentials::Anonymous);
        }
        Err(Problem::HelperFailure { helper, .. }) => format!("{helper} failed; run it to see why"),
        Err(Problem::HelperCommunicationError) => {
            "its credential helper cannot be run; install docker-credential-<name> in the PATH".to_owned()
        }
        Err(Problem::MalformedHelperResponse) => "its credential helper answered something else than JSON".to_owned(),
        Err(Problem::CredentialDecodingError) => "auth is not the base64 of username:password".to_owned(),
        Err(Problem::CredentialMismatchError) => "auth differs from username and password".to_owned(),
        Err(Problem::ConfigReadError) => "it is not JSON of Docker's form".to_owned(),
    };
    Err(ArtifactError::new(
        ErrorKind::Configuration,
        format!("cannot take the credentials for {host} from {place}: {problem}"),
    ))
}

/// A pull secret: the content of `.dockerconfigjson`.
#[derive(Clone)]
pub struct PullSecret {
    entries: Vec<(Key, Entry)>,
}

impl fmt::Debug for PullSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.entries.iter().map(|(key, _)| &key.host);
        formatter.debug_set().entries(hosts).finish()
    }
}

/// The registry and repositories of an entry.
#[derive(Clone)]
struct Key {
    host: String,
    prefix: String,
}

#[derive(Clone, Deserialize, Serialize)]
struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    auth: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identitytoken: Option<String>,
    #[serde(skip_serializing)]
    registrytoken: Option<String>,
}

/// The content of the file. `credsStore` and `credHelpers` are not read at all.
#[derive(Deserialize)]
struct Document {
    auths: BTreeMap<String, Entry>,
}

impl Key {
    /// Parses a registry, with or without a scheme and a path. Docker Hub's `/v1/` does not count as a path.
    fn read(text: &str) -> Self {
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"))
            .unwrap_or(text);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = match host {
            "index.docker.io" | "registry-1.docker.io" => "docker.io",
            host => host,
        };
        let prefix = path.trim_end_matches('/');
        let prefix = if matches!(prefix, "v1" | "v2") { "" } else { prefix };
        Self {
            host: host.to_ascii_lowercase(),
            prefix: prefix.to_owned(),
        }
    }

    fn covers(&self, host: &str, repository: &str) -> bool {
        let below = || {
            repository
                .strip_prefix(&self.prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.host == host && (self.prefix.is_empty() || below())
    }
}

impl PullSecret {
    /// Parses the value of `.dockerconfigjson`. The message of an error never contains any of it.
    pub fn parse(bytes: &[u8]) -> Result<Self, ArtifactError> {
        let invalid = |problem: &str| {
            ArtifactError::new(
                ErrorKind::Configuration,
                format!(
                    "the pull secret's .dockerconfigjson {problem}; create it with kubectl create secret docker-registry"
                ),
            )
        };
        if bytes.len() > PULL_SECRET_LIMIT {
            return Err(invalid("is larger than 1 MiB"));
        }
        let document: Document = serde_json::from_slice(bytes)
            .map_err(|_| invalid("is not JSON of the form {\"auths\": {HOST: {\"auth\": BASE64}}}"))?;
        let entries = document
            .auths
            .into_iter()
            .map(|(key, entry)| (Key::read(&key), entry))
            .collect();
        Ok(Self { entries })
    }
}

impl Keychain for PullSecret {
    fn credentials(&self, host: &str, repository: &str) -> Result<Credentials, ArtifactError> {
        let covering = self.entries.iter().filter(|(key, _)| key.covers(host, repository));
        let Some((_, entry)) = covering.max_by_key(|(key, _)| key.prefix.len()) else {
            return Ok(Credentials::Anonymous);
        };
        if let Some(token) = entry.registrytoken.as_ref().filter(|token| !token.is_empty()) {
            return Ok(Credentials::Bearer(token.clone()));
        }
        // docker_credential decodes the entry. It sees nothing else of the secret, so there is no helper that it could run.
        let document = serde_json::json!({"auths": {"registry": entry}}).to_string();
        let answer = docker_credential::get_credential_from_reader(document.as_bytes(), "registry");
        found(answer, host, "the pull secret")
    }
}

/// Anonymous access everywhere.
impl Keychain for () {
    fn credentials(&self, _: &str, _: &str) -> Result<Credentials, ArtifactError> {
        Ok(Credentials::Anonymous)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use serde_json::json;

    use super::*;

    fn auth(text: &str) -> String {
        base64::engine::general_purpose::STANDARD.encode(text)
    }

    fn basic(username: &str, password: &str) -> Credentials {
        Credentials::Basic {
            username: username.to_owned(),
            password: password.to_owned(),
        }
    }

    #[test]
    fn a_pull_secret_is_looked_up_by_registry_and_the_longest_path() {
        let secret = json!({"auths": {
            "https://index.docker.io/v1/": {"auth": auth("hub:1")},
            "ghcr.io": {"username": "all", "password": "2"},
            "ghcr.io/acme": {"auth": auth("acme:3:4")},
            "token.example": {"registrytoken": "direct"},
            "id.example:5000": {"auth": auth("x:"), "identitytoken": "identity"},
        }});
        let secret = PullSecret::parse(secret.to_string().as_bytes()).unwrap();
        let find = |host, repository| secret.credentials(host, repository).unwrap();
        assert_eq!(find("docker.io", "library/a"), basic("hub", "1"));
        assert_eq!(find("ghcr.io", "acmes/a"), basic("all", "2"));
        assert_eq!(find("ghcr.io", "acme/a"), basic("acme", "3:4"));
        assert_eq!(find("token.example", "a"), Credentials::Bearer("direct".into()));
        assert_eq!(
            find("id.example:5000", "a"),
            Credentials::IdentityToken("identity".into())
        );
        for host in ["id.example", "ghcr.io.evil.example", "evil.example"] {
            assert_eq!(find(host, "acme/a"), Credentials::Anonymous);
        }
    }

    #[test]
    fn a_pull_secret_that_is_broken_is_refused_without_showing_it() {
        for secret in ["", "{}", "[]", "{\"auths\": {\"a.io\": \"hunter2\"}}", "hunter2"] {
            let error = PullSecret::parse(secret.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let secret = json!({"auths": {"a.io": {"auth": "hunter2!"}}}).to_string();
        let secret = PullSecret::parse(secret.as_bytes()).unwrap();
        let error = secret.credentials("a.io", "a").unwrap_err().to_string();
        assert!(
            error.contains("base64") && error.contains("a.io") && !error.contains("hunter2"),
            "{error}"
        );
        let shown = format!("{secret:?} {:?}", basic("user", "hunter2"));
        assert!(!shown.contains("hunter2") && shown.contains("a.io"), "{shown}");
    }
}
