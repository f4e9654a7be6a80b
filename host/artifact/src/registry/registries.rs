//! The configuration of registries: certificate authorities, plain HTTP, and mirrors.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{ArtifactError, ErrorKind, LayoutLocation, Location, Reference};

/// The access to registries. A registry that is not listed is accessed by HTTPS with the system's certificate
/// authorities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegistriesConfig {
    /// Entries for the registries that need one.
    #[serde(default)]
    pub registries: Vec<RegistryConfig>,
}

/// The access to one registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegistryConfig {
    /// The registry as references write it: host name or address, with the port if it has one.
    #[schemars(regex(pattern = r"^([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]+)?$"))]
    pub host: String,
    /// Set if the registry is accessed by plain HTTP. No other registry ever is, `localhost` included.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain_http: bool,
    /// PEM files with certificate authorities that are trusted for this registry beside the system's, and for the hosts
    /// to which it redirects requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificate_authorities: Vec<PathBuf>,
    /// Mirrors that are read before the registry itself, in this order: a registry, or a registry and the beginning of
    /// the repository (`mirror.example/ghcr`, which has ghcr.io/acme/plugin as mirror.example/ghcr/acme/plugin), or
    /// `oci-layout:DIRECTORY`. Mirrors are never written to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<String>,
}

/// A mirror, which is read before the registry itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mirror {
    Registry(Reference),
    Layout(LayoutLocation),
}

impl RegistriesConfig {
    /// Parses and checks a configuration.
    pub fn from_value(value: serde_json::Value) -> Result<Self, ArtifactError> {
        let invalid = |problem: String| {
            ArtifactError::new(
                ErrorKind::Configuration,
                format!("the configuration of registries is not valid: {problem}"),
            )
        };
        let config: Self = serde_json::from_value(value).map_err(|error| invalid(error.to_string()))?;
        for (place, registry) in config.registries.iter().enumerate() {
            let host = &registry.host;
            let probe = Reference::new(host, "a").map_err(|_| {
                invalid(format!(
                    "registries[{place}].host {} is not a host; write HOST or HOST:PORT",
                    quoted(host)
                ))
            })?;
            if probe.host() != host {
                return Err(invalid(format!("write registries[{place}].host as {}", probe.host())));
            }
            if config.registries[..place].iter().any(|earlier| &earlier.host == host) {
                return Err(invalid(format!("it lists the host {host} twice")));
            }
            for mirror in &registry.mirrors {
                parse_mirror(mirror, &probe)
                    .map_err(|problem| invalid(format!("{host} has the mirror {mirror}: {problem}")))?;
            }
        }
        Ok(config)
    }

    pub(crate) fn registry(&self, host: &str) -> Option<&RegistryConfig> {
        self.registries.iter().find(|it| it.host == host)
    }

    pub(crate) fn is_plain(&self, host: &str) -> bool {
        self.registry(host).is_some_and(|it| it.plain_http)
    }

    /// The mirrors of a reference's registry, with the reference's repository.
    pub(crate) fn mirrors(&self, reference: &Reference) -> Vec<Mirror> {
        let mirrors = self.registry(reference.host()).map_or(&[][..], |it| &it.mirrors);
        mirrors
            .iter()
            .filter_map(|it| parse_mirror(it, reference).ok())
            .collect()
    }
}

fn parse_mirror(text: &str, reference: &Reference) -> Result<Mirror, ArtifactError> {
    if text.starts_with("oci-") {
        let problem = "a mirror layout is written oci-layout:DIRECTORY";
        return match text.parse()? {
            Location::Layout(layout) if layout.tag.is_none() && layout.digest.is_none() && !layout.archive => {
                Ok(Mirror::Layout(layout))
            }
            _ => Err(ArtifactError::new(ErrorKind::Reference, problem)),
        };
    }
    let (host, prefix) = text
        .trim_end_matches('/')
        .split_once('/')
        .unwrap_or((text.trim_end_matches('/'), ""));
    let repository = match prefix {
        "" => reference.repository().to_owned(),
        prefix => format!("{prefix}/{}", reference.repository()),
    };
    Reference::new(host, &repository).map(Mirror::Registry)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mirrors_keep_the_repository_behind_their_prefix() {
        let config = RegistriesConfig::from_value(json!({"registries": [{
            "host": "ghcr.io",
            "mirrors": ["mirror.example:5000/ghcr", "other.example", "oci-layout:/var/lib/plugins"],
        }]}))
        .unwrap();
        let reference: Reference = "ghcr.io/acme/plugin:1".parse().unwrap();
        let mirrors = config.mirrors(&reference);
        assert_eq!(mirrors.len(), 3);
        assert_eq!(
            mirrors[0],
            Mirror::Registry("mirror.example:5000/ghcr/acme/plugin".parse().unwrap())
        );
        assert_eq!(
            mirrors[1],
            Mirror::Registry("other.example/acme/plugin".parse().unwrap())
        );
        assert!(matches!(&mirrors[2], Mirror::Layout(layout) if layout.path.to_str() == Some("/var/lib/plugins")));
        assert!(config.mirrors(&"quay.io/a".parse().unwrap()).is_empty());
    }

    #[test]
    fn invalid_configuration_is_refused_and_http_is_no_default() {
        for (value, problem) in [
            (
                json!({"registries": [{"host": "ghcr.io", "insecure": true}]}),
                "insecure",
            ),
            (json!({"registries": [{"plainHttp": true}]}), "host"),
            (json!({"registries": [{"host": "https://ghcr.io"}]}), "is not a host"),
            (
                json!({"registries": [{"host": "index.docker.io"}]}),
                "write registries[0].host as docker.io",
            ),
            (json!({"registries": [{"host": "a.io"}, {"host": "a.io"}]}), "twice"),
            (
                json!({"registries": [{"host": "a.io", "mirrors": ["no-host"]}]}),
                "no-host",
            ),
            (
                json!({"registries": [{"host": "a.io", "mirrors": ["oci-archive:a.tar"]}]}),
                "oci-layout:DIRECTORY",
            ),
            (json!("ghcr.io"), "not valid"),
        ] {
            let error = RegistriesConfig::from_value(value.clone()).expect_err(&value.to_string());
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(error.to_string().contains(problem), "{error}");
        }
        let config =
            RegistriesConfig::from_value(json!({"registries": [{"host": "localhost:5000", "plainHttp": true}]}))
                .unwrap();
        assert!(config.is_plain("localhost:5000"));
        assert!(
            !config.is_plain("localhost") && !config.is_plain("localhost:5001") && !config.is_plain("127.0.0.1:5000")
        );
    }
}
