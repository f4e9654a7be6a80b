//! Validates the request for a plugin, from the command line or a Plugin resource, once and in the same form.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::resources::host_resources::HostResource;
use pilothouse_core::plugin::exclusive_kinds::PluginAge;
use pilothouse_core::plugin::limits::{LimitError, Limits};
use pilothouse_core::plugin::manifest::{is_label, is_subdomain};
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::rights::{Confinement, MAX_NAMESPACES, RightsError};
use pilothouse_core::text::depth::MAX_DEPTH;
use pilothouse_crds::plugin::{self as resource, DeletionPolicy, UpdatePolicy};
use pilothouse_sandbox::PluginComponent;
use semver::VersionReq;
use serde_json::Value;

use crate::artifacts::{ArtifactRequest, ArtifactUpdate};
use crate::lanes::lane::RunMode;

/// The longest name: with it, field managers stay within the 128 bytes that Kubernetes allows.
const LONGEST_NAME: usize = 63;

/// Bounds of the interval at which a registry is queried.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(10);
const LONGEST_INTERVAL: Duration = Duration::from_hours(24 * 365);

/// A request for a plugin, as far as it can be understood.
#[derive(Clone, Debug)]
pub struct PluginRequest {
    /// The Plugin resource; `None` for a plugin of the command line.
    pub resource: Option<PluginResource>,
    /// The desired plugin, or why it is invalid.
    pub wanted: Result<DesiredPlugin, PluginRequestError>,
}

/// Identity and state of a Plugin resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginResource {
    /// UID.
    pub uid: Arc<str>,
    /// The generation of the spec.
    pub generation: Option<i64>,
    /// Set if it is being deleted.
    pub deleting: bool,
}

/// A desired plugin.
#[derive(Clone, Debug)]
pub struct DesiredPlugin {
    /// Age, which decides between two plugins that want the same kind.
    pub age: PluginAge,
    /// Source of the component.
    pub source: ComponentSource,
    /// Configuration; `None`: the plugin's defaults.
    pub config: Option<Value>,
    /// Limits of one call.
    pub limits: Limits,
    /// Concurrent reconciles; `None`: the host's default.
    pub concurrency: Option<usize>,
    /// Namespaces of its primaries; empty: all.
    pub namespaces: Vec<String>,
    /// Namespaces of its primaries, and those that it reads and writes besides.
    pub confinement: Arc<Confinement>,
    /// Its ServiceAccount; `None`: the one named after it.
    pub service_account: Option<String>,
    /// WASI that its component may import.
    pub wasi: Wasi,
    /// Mode in which it runs.
    pub mode: RunMode,
    /// Set if it is suspended.
    pub is_suspended: bool,
    /// Field managers of an earlier operator whose fields are taken over.
    pub former_managers: Vec<String>,
    /// Treatment of its objects when it is deleted.
    pub deletion_policy: DeletionPolicy,
}

/// Source of a component.
#[derive(Clone, Debug)]
pub enum ComponentSource {
    /// A loaded component.
    Loaded(PluginComponent),
    /// A file, or a directory with one component, below the plugin directory.
    File {
        /// Relative to the plugin directory, without `..`.
        path: PathBuf,
        /// The SHA-256 that it must have, in hexadecimal digits.
        digest: Option<String>,
    },
    /// An OCI artifact.
    Artifact(Arc<ArtifactRequest>),
}

/// Reason why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginRequestError {
    /// The name is invalid.
    #[error("the name {0:?} cannot be used; it must be a DNS label of at most {LONGEST_NAME} characters")]
    Name(String),
    /// The spec does not have the expected form.
    #[error("spec: {0}; correct it")]
    Shape(String),
    /// The path leads out of the plugin directory.
    #[error("spec.source.file is {0:?}; it must be a path below the host's plugin directory, without ..")]
    Path(String),
    /// The update policy does not fit the reference.
    #[error("spec.source.oci: {0}")]
    Artifact(String),
    /// A limit is out of its range.
    #[error("spec.limits: {0}")]
    Limit(#[from] LimitError),
    /// A number is out of its range.
    #[error("spec.concurrency is {0}; it must be between 1 and 1000")]
    Concurrency(u32),
    /// The resource nests too deep.
    #[error("it nests deeper than {MAX_DEPTH} levels; make spec.configuration flatter")]
    TooDeep,
    /// The name of the ServiceAccount is invalid.
    #[error("spec.serviceAccountName is {0:?}; the name of a ServiceAccount is a DNS subdomain")]
    ServiceAccount(String),
    /// A list is too long.
    #[error("spec.namespaces and spec.accessNamespaces name {0} namespaces; the most are {MAX_NAMESPACES} in each")]
    Namespaces(usize),
    /// The host watches none of its namespaces.
    #[error(
        "spec.namespaces names none of the namespaces that this host sees (--watch-namespaces {0}); name one of them"
    )]
    NotWatched(String),
    /// A namespace name is invalid, or `accessNamespaces` has no namespaces to add to.
    #[error("spec.namespaces or spec.accessNamespaces: {0}")]
    Confinement(RightsError),
}

impl PluginRequest {
    /// Reads a Plugin resource, for a host that watches only these namespaces; empty: all.
    pub fn from_resource(resource: &HostResource, seen: &BTreeSet<String>) -> Self {
        Self {
            resource: Some(PluginResource {
                uid: resource.uid.clone(),
                generation: resource.generation,
                deleting: resource.deleting,
            }),
            wanted: read(resource, seen),
        }
    }

    /// Returns `true` if both are the same request. The generation of a resource identifies its spec: the server
    /// increments it with every change.
    pub fn is_same(&self, other: &Self) -> bool {
        self.resource == other.resource
    }

    /// The generation of the Plugin resource's spec.
    pub fn generation(&self) -> Option<i64> {
        self.resource.as_ref().and_then(|resource| resource.generation)
    }

    /// The file below the plugin directory that it names.
    pub fn file(&self) -> Option<String> {
        match &self.wanted.as_ref().ok()?.source {
            ComponentSource::File { path, .. } => Some(path.display().to_string()),
            ComponentSource::Loaded(_) | ComponentSource::Artifact(_) => None,
        }
    }
}

impl DesiredPlugin {
    /// Returns `true` if its source names a tag or a range, so that another artifact may be wanted at any time.
    pub fn is_followed(&self) -> bool {
        matches!(&self.source, ComponentSource::Artifact(request) if request.update != ArtifactUpdate::Pinned)
    }
}

/// Checks that this host can run a Plugin resource, as far as the resource itself tells.
pub fn check_plugin(resource: &HostResource) -> Result<(), PluginRequestError> {
    read(resource, &BTreeSet::new()).map(drop)
}

/// Confines a plugin to the namespaces that the host watches; empty: all.
pub fn confined(confinement: Confinement, seen: &BTreeSet<String>) -> Result<Confinement, PluginRequestError> {
    if seen.is_empty() {
        return Ok(confinement);
    }
    let within = confinement.within(seen);
    within.ok_or_else(|| {
        let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
        PluginRequestError::NotWatched(seen.join(","))
    })
}

fn read(resource: &HostResource, seen: &BTreeSet<String>) -> Result<DesiredPlugin, PluginRequestError> {
    if !is_label(&resource.name) {
        return Err(PluginRequestError::Name(resource.name.to_string()));
    }
    if resource.is_too_deep {
        return Err(PluginRequestError::TooDeep);
    }
    let spec: resource::PluginSpec =
        serde_json::from_value(resource.spec.clone()).map_err(|error| PluginRequestError::Shape(error.to_string()))?;
    let resource::PluginSpec {
        source,
        configuration,
        limits,
        concurrency,
        namespaces,
        access_namespaces,
        service_account_name,
        wasi,
        mode,
        deletion_policy,
        former_managers,
    } = spec;
    limits.check()?;
    if !(1..=1000).contains(&concurrency) {
        return Err(PluginRequestError::Concurrency(concurrency));
    }
    let confinement = Confinement::new(&namespaces, &access_namespaces).map_err(|error| match error {
        RightsError::TooMany(most) => PluginRequestError::Namespaces(most),
        error => PluginRequestError::Confinement(error),
    })?;
    let confinement = confined(confinement, seen)?;
    if let Some(name) = service_account_name.as_deref().filter(|name| !is_subdomain(name)) {
        return Err(PluginRequestError::ServiceAccount(name.to_owned()));
    }
    Ok(DesiredPlugin {
        age: (resource.created.as_str().into(), resource.uid.clone()),
        source: read_source(source)?,
        config: configuration.map(|members| Value::Object(members.into_iter().collect())),
        limits,
        concurrency: usize::try_from(concurrency).ok(),
        namespaces: confinement.namespaces().iter().cloned().collect(),
        confinement: Arc::new(confinement),
        service_account: service_account_name,
        wasi,
        mode: match mode {
            resource::Mode::Active | resource::Mode::Suspended => RunMode::Active,
            resource::Mode::Preview => RunMode::Preview,
        },
        is_suspended: mode == resource::Mode::Suspended,
        former_managers,
        deletion_policy,
    })
}

fn read_source(source: resource::PluginSource) -> Result<ComponentSource, PluginRequestError> {
    let resource::PluginSource { file, oci, digest } = source;
    let file = match (file, oci) {
        (Some(file), None) => file,
        (None, Some(_)) if digest.is_some() => {
            return Err(PluginRequestError::Shape(
                "source.digest goes with file; pin an artifact with @sha256:... in source.oci.reference".to_owned(),
            ));
        }
        (None, Some(oci)) => {
            let request = read_artifact(oci).map_err(PluginRequestError::Artifact)?;
            return Ok(ComponentSource::Artifact(Arc::new(request)));
        }
        (Some(_), Some(_)) => return Err(PluginRequestError::Shape("source has both file and oci".to_owned())),
        (None, None) => {
            return Err(PluginRequestError::Shape("source has neither file nor oci".to_owned()));
        }
    };
    let path = Path::new(&file);
    let is_below = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if file.is_empty() || !is_below {
        return Err(PluginRequestError::Path(file));
    }
    let digest = digest.map(|digest| digest.trim_start_matches("sha256:").to_owned());
    Ok(ComponentSource::File {
        path: path.to_owned(),
        digest,
    })
}

/// Reads a reference and its update policy. The store checks the reference itself.
fn read_artifact(source: resource::OciSource) -> Result<ArtifactRequest, String> {
    let resource::OciSource {
        reference,
        pull_secret,
        update_policy,
        range,
        interval,
    } = source;
    let has_digest = reference.contains('@');
    let update = match (update_policy, range) {
        (UpdatePolicy::Pinned, None) if !has_digest => {
            return Err(format!(
                "updatePolicy Pinned needs a reference with a digest, and {reference} has none; append the @sha256:... that \
                 pilothouse inspect prints, or choose updatePolicy Tag"
            ));
        }
        (UpdatePolicy::Tag | UpdatePolicy::SemVer, _) if has_digest => {
            return Err(format!(
                "{reference} has a digest, which never moves; remove it, or choose updatePolicy Pinned"
            ));
        }
        (UpdatePolicy::Pinned, None) => ArtifactUpdate::Pinned,
        (UpdatePolicy::Tag, None) => ArtifactUpdate::Tag,
        (UpdatePolicy::Pinned | UpdatePolicy::Tag, Some(range)) => {
            return Err(format!("range {range:?} goes with updatePolicy SemVer only; remove it"));
        }
        (UpdatePolicy::SemVer, None) => {
            return Err("updatePolicy SemVer needs range, such as >=1.2.0, <2.0.0".to_owned());
        }
        (UpdatePolicy::SemVer, Some(range)) => match VersionReq::parse(&range) {
            Ok(_) => ArtifactUpdate::SemVer(range),
            Err(error) => {
                return Err(format!(
                    "range {range:?} is not a range of versions: {error}; write one such as >=1.2.0, <2.0.0"
                ));
            }
        },
    };
    Ok(ArtifactRequest {
        reference,
        update,
        interval: read_interval(&interval)?,
        pull_secret,
    })
}

/// Reads a duration such as `1h30m`.
fn read_interval(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "interval is {text:?}; write hours, minutes and seconds such as 90s, 10m or 1h30m, from {} s to {} h",
            SHORTEST_INTERVAL.as_secs(),
            LONGEST_INTERVAL.as_secs() / 3600
        )
    };
    let mut seconds = 0_u64;
    let mut rest = text;
    while let Some(end) = rest.find(|character: char| !character.is_ascii_digit()) {
        let number: u64 = rest[..end].parse().map_err(|_| wrong())?;
        let unit = match rest.as_bytes()[end] {
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(unit).ok_or_else(wrong)?;
        seconds = seconds.checked_add(part).ok_or_else(wrong)?;
        rest = &rest[end + 1..];
    }
    let interval = Duration::from_secs(seconds);
    if !rest.is_empty() || !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
        return Err(wrong());
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(name: &str, spec: Value) -> HostResource {
        HostResource {
            name: name.into(),
            uid: "u".into(),
            resource_version: "1".to_owned(),
            generation: Some(3),
            created: "2026-01-02T03:04:05Z".to_owned(),
            deleting: false,
            finalizers: Vec::new(),
            annotations: Value::Null,
            labels: std::collections::BTreeMap::new(),
            spec,
            status: Value::Null,
            is_too_deep: false,
        }
    }

    fn request(name: &str, spec: Value) -> Result<DesiredPlugin, String> {
        let request = PluginRequest::from_resource(&resource(name, spec), &BTreeSet::new());
        assert_eq!(request.generation(), Some(3));
        request.wanted.map_err(|error| error.to_string())
    }

    #[test]
    fn an_interval_has_units_and_bounds() {
        let read = |text: &str| read_interval(text).map(|interval| interval.as_secs());
        assert_eq!(
            (read("90s"), read("10m"), read("1h30m"), read("2m5s")),
            (Ok(90), Ok(600), Ok(5400), Ok(125))
        );
        let endless = "9".repeat(30) + "h";
        for text in [
            "",
            "10",
            "9s",
            "1d",
            "m",
            "-5m",
            "1h 5m",
            "9999999999h",
            "é5m",
            &endless,
        ] {
            assert!(read(text).unwrap_err().contains("write hours, minutes"), "{text}");
        }
    }

    #[test]
    fn a_resource_is_read_with_the_defaults() {
        let wanted = request("p", json!({"source": {"file": "a/b.wasm"}, "configuration": {"x": 1}})).unwrap();
        assert!(
            matches!(&wanted.source, ComponentSource::File { path, digest: None } if path == Path::new("a/b.wasm"))
        );
        assert_eq!(wanted.config, Some(json!({"x": 1})));
        assert_eq!((wanted.concurrency, wanted.mode), (Some(16), RunMode::Active));
        assert_eq!(&*wanted.age.0, "2026-01-02T03:04:05Z");
    }

    #[test]
    fn what_cannot_be_is_refused_by_the_name_of_the_field() {
        let good = json!({"file": "a.wasm"});
        for (name, spec, words) in [
            ("a.b", json!({"source": good}), "the name \"a.b\" cannot be used"),
            ("p", json!({"source": {}}), "source has neither file nor oci"),
            (
                "p",
                json!({"source": good, "serviceAccountName": "A/b"}),
                "spec.serviceAccountName is \"A/b\"",
            ),
            ("p", json!({"source": {"oci": "example.com/a"}}), "invalid type: string"),
            (
                "p",
                json!({"source": {"oci": {"reference": "example.com/a:1"}}}),
                "updatePolicy Pinned needs a reference with a digest, and example.com/a:1 has none",
            ),
            (
                "p",
                json!({"source": {"oci": {"reference": "example.com/a@sha256:0", "updatePolicy": "Tag"}}}),
                "has a digest, which never moves",
            ),
            (
                "p",
                json!({"source": {"oci": {"reference": "example.com/a", "updatePolicy": "SemVer"}}}),
                "updatePolicy SemVer needs range",
            ),
            (
                "p",
                json!({"source": {"oci": {"reference": "example.com/a", "updatePolicy": "SemVer", "range": "new"}}}),
                "range \"new\" is not a range of versions",
            ),
            (
                "p",
                json!({"source": {"oci": {"reference": "example.com/a:1", "updatePolicy": "Tag", "range": "1"}}}),
                "goes with updatePolicy SemVer only",
            ),
            (
                "p",
                json!({"source": {"oci": {"reference": "example.com/a@sha256:0"}, "digest": "sha256:0"}}),
                "source.digest goes with file",
            ),
            (
                "p",
                json!({"source": {"file": "../a.wasm"}}),
                "spec.source.file is \"../a.wasm\"",
            ),
            (
                "p",
                json!({"source": {"file": "/etc/a.wasm"}}),
                "below the host's plugin directory",
            ),
            ("p", json!({"source": good, "limts": {}}), "unknown field `limts`"),
            (
                "p",
                json!({"source": good, "limits": {"memoryBytes": 1}}),
                "limit memoryBytes is 1; it must be between",
            ),
            ("p", json!({"source": good, "concurrency": 0}), "spec.concurrency is 0"),
            (
                "p",
                json!({"source": good, "namespaces": ["a"], "accessNamespaces": ["B*"]}),
                "namespace \"B*\" is not a DNS label",
            ),
            (
                "p",
                json!({"source": good, "accessNamespaces": ["a"]}),
                "access namespaces have no use without namespaces",
            ),
        ] {
            let error = request(name, spec).unwrap_err();
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn a_resource_that_cannot_be_read_in_full_is_refused() {
        let resource = HostResource {
            is_too_deep: true,
            ..resource("p", json!({"source": {"file": "a.wasm"}}))
        };
        let error = check_plugin(&resource).unwrap_err().to_string();
        assert!(error.contains("deeper than 120 levels"), "{error}");
    }
}
