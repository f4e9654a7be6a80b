//! Implements the artifact store of host/runtime by host/artifact, and gives each problem a reason for conditions.

use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use pilothouse_artifact::{
    ArtifactError, Choice, Credentials, Digest, DirectoryReads, ErrorKind, FetchError, FetchedComponent, Fetcher,
    Keychain, Location, Outcome, PullSecret, SignatureFormat, TrustErrorKind, TrustSource, Verification,
};
use pilothouse_runtime::artifacts::{
    ArtifactFuture, ArtifactProblem, ArtifactRequest, ArtifactStore, ArtifactUpdate, ArtifactVerification,
    FetchedArtifact, PullCredentials, ResolvedArtifact,
};
use semver::VersionReq;

/// The store of a host's artifacts.
pub struct HostArtifacts {
    fetcher: Fetcher,
    trust: Arc<TrustSource>,
    /// Layouts that Plugin resources name are below this directory.
    directory: PathBuf,
    reads: DirectoryReads,
}

/// The credentials of a Plugin: its pull secret, or none. The host's own Docker configuration is not for Plugins.
struct PluginKeychain(Option<PullSecret>);

impl Keychain for PluginKeychain {
    fn credentials(&self, host: &str, repository: &str) -> Result<Credentials, ArtifactError> {
        match &self.0 {
            Some(secret) => secret.credentials(host, repository),
            None => Ok(Credentials::Anonymous),
        }
    }
}

impl HostArtifacts {
    /// Makes a store for Plugin resources.
    pub fn new(fetcher: Fetcher, directory: PathBuf) -> Self {
        Self {
            trust: fetcher.trust().clone(),
            fetcher,
            directory,
            reads: DirectoryReads::default(),
        }
    }

    /// Watches the trust file for ever.
    pub async fn follow_trust(&self) {
        self.trust.follow().await;
    }

    /// Parses a reference of a Plugin resource. An OCI layout has to be below the plugin directory; its mount may hang.
    async fn location(&self, reference: &str) -> Result<Location, FetchError> {
        let mut location: Location = reference.parse()?;
        if let Location::Layout(layout) = &mut location {
            let (directory, path, named) = (self.directory.clone(), layout.path.clone(), reference.to_owned());
            let looking = self
                .reads
                .run(&self.directory, move || below(&directory, &path, &named));
            layout.path = looking.await??;
        }
        Ok(location)
    }
}

/// Resolves all links of a path below a directory. The trust file knows a layout by this name alone.
fn below(directory: &Path, path: &Path, reference: &str) -> Result<PathBuf, ArtifactError> {
    let refuse = |problem: &str| {
        let directory = directory.display();
        let message = format!(
            "{reference} {problem}; a Plugin may name layouts below the host's plugin directory {directory} only, by a \
             relative path"
        );
        ArtifactError::new(ErrorKind::Reference, message)
    };
    let is_below = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !path.components().all(is_below) {
        return Err(refuse("leads out of that directory"));
    }
    let whole = directory.join(path);
    let resolved = whole
        .canonicalize()
        .map_err(|error| ArtifactError::io("find the layout", &whole, &error))?;
    let root = directory
        .canonicalize()
        .map_err(|error| ArtifactError::io("find the plugin directory", directory, &error))?;
    if !resolved.starts_with(&root) {
        return Err(refuse("is a link that leads out of that directory"));
    }
    Ok(resolved)
}

fn keychain(credentials: Option<&PullCredentials>) -> Result<PluginKeychain, FetchError> {
    let secret = credentials.map(|credentials| PullSecret::parse(&credentials.0));
    Ok(PluginKeychain(secret.transpose()?))
}

fn choice(update: &ArtifactUpdate, reference: &str) -> Result<Choice, FetchError> {
    match update {
        ArtifactUpdate::Pinned | ArtifactUpdate::Tag => Ok(Choice::Target),
        ArtifactUpdate::SemVer(range) => VersionReq::parse(range).map(Choice::Newest).map_err(|error| {
            let message = format!("{reference}: {range:?} is not a range of versions: {error}");
            ArtifactError::new(ErrorKind::Reference, message).into()
        }),
    }
}

fn digest(resolved: &ResolvedArtifact) -> Result<Digest, FetchError> {
    let digest = resolved.digest.parse::<Digest>();
    digest.map_err(|error| ArtifactError::new(ErrorKind::Reference, error.to_string()).into())
}

fn fetched(component: FetchedComponent, resolved: &ResolvedArtifact) -> FetchedArtifact {
    let FetchedComponent {
        manifest: _,
        component,
        size,
        file,
        verification,
        holds,
    } = component;
    FetchedArtifact {
        resolved: resolved.clone(),
        file,
        component_digest: component.hex(),
        size,
        verification: described(&verification),
        hold: Arc::new(holds),
    }
}

/// Converts a verification to its form in a condition.
pub fn described(verification: &Verification) -> ArtifactVerification {
    let Verification { outcome, rule } = verification;
    let (signer, detail) = match outcome {
        Outcome::Unsigned => (None, format!("accepted by {rule}")),
        Outcome::Unverified { signatures } => (
            None,
            format!("accepted by {rule}; its {signatures} signatures are not verified"),
        ),
        Outcome::Signed {
            signer,
            format,
            signed_at,
        } => {
            let format = match format {
                SignatureFormat::Bundle => "a Sigstore bundle",
                SignatureFormat::SimpleSigning => "a simple signing payload",
            };
            let time = signed_at
                .map(|time| format!(", signed at {time:.0}"))
                .unwrap_or_default();
            (Some(signer.clone()), format!("accepted by {rule}; {format}{time}"))
        }
    };
    ArtifactVerification { signer, detail }
}

/// Converts an error to its form in a Plugin's condition.
fn problem(error: &FetchError, request: &ArtifactRequest) -> ArtifactProblem {
    let message = error.to_string();
    // Readers of the condition know the reference of the spec.
    let message = if message.contains(&request.reference) {
        message
    } else {
        format!("cannot fetch {}: {message}", request.reference)
    };
    ArtifactProblem {
        is_about_trust: matches!(error, FetchError::Trust(_)),
        reason: reason(error),
        message,
    }
}

/// Returns the reason of a condition.
fn reason(error: &FetchError) -> &'static str {
    match error {
        FetchError::Trust(error) if error.kind() == TrustErrorKind::Unsigned => "SignatureMissing",
        FetchError::Trust(error) => error.kind().reason(),
        FetchError::Cache(_) => "CacheFailed",
        FetchError::Artifact(error) => match error.kind() {
            ErrorKind::Reference => "InvalidReference",
            ErrorKind::Configuration => "InvalidCredentials",
            ErrorKind::NotAllowed => "NotAllowed",
            ErrorKind::UnknownHost => "UnknownHost",
            ErrorKind::Unreachable => "Unreachable",
            ErrorKind::Certificate => "UnknownCertificate",
            ErrorKind::Unauthorized => "Unauthorized",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::NotFound => "NotFound",
            ErrorKind::TooManyRequests => "TooManyRequests",
            ErrorKind::Server | ErrorKind::Protocol => "RegistryFailed",
            ErrorKind::Timeout => "Timeout",
            ErrorKind::TooLarge => "TooLarge",
            ErrorKind::NotAPlugin => "NotAPlugin",
            ErrorKind::DigestMismatch | ErrorKind::Truncated => "DigestMismatch",
            ErrorKind::Layout => "InvalidLayout",
            ErrorKind::Io => "FetchFailed",
        },
    }
}

impl ArtifactStore for HostArtifacts {
    fn resolve<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        credentials: Option<&'a PullCredentials>,
    ) -> ArtifactFuture<'a, ResolvedArtifact> {
        let resolve = async move {
            let location = self.location(&request.reference).await?;
            let (choice, keychain) = (choice(&request.update, &request.reference)?, keychain(credentials)?);
            let chosen = self.fetcher.choose(&location, &choice, &keychain).await?;
            Ok(ResolvedArtifact {
                digest: chosen.digest.to_string(),
                tag: chosen.tag,
            })
        };
        Box::pin(async move { resolve.await.map_err(|error| problem(&error, request)) })
    }

    fn fetch<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        resolved: &'a ResolvedArtifact,
        credentials: Option<&'a PullCredentials>,
    ) -> ArtifactFuture<'a, FetchedArtifact> {
        let fetch = async move {
            let location = self.location(&request.reference).await?;
            let (digest, keychain) = (digest(resolved)?, keychain(credentials)?);
            let component = self.fetcher.fetch(&location, digest, &keychain).await?;
            Ok(fetched(component, resolved))
        };
        Box::pin(async move { fetch.await.map_err(|error| problem(&error, request)) })
    }

    fn fetch_offline<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        resolved: &'a ResolvedArtifact,
    ) -> ArtifactFuture<'a, Option<FetchedArtifact>> {
        let fetch = async move {
            let location = self.location(&request.reference).await?;
            let component = self.fetcher.fetch_cached(&location, digest(resolved)?).await?;
            Ok(component.map(|component| fetched(component, resolved)))
        };
        Box::pin(async move { fetch.await.map_err(|error| problem(&error, request)) })
    }

    fn trust_number(&self) -> u64 {
        self.trust.number()
    }

    fn trust_changed(&self, since: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.trust.changed(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_names_layouts_below_the_plugin_directory_only() {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(root.path().join("layout")).unwrap();
        std::os::unix::fs::symlink(other.path(), root.path().join("link")).unwrap();
        let below = |path: &str| below(root.path(), Path::new(path), "oci-layout:x").map_err(|error| error.to_string());
        let resolved = root.path().canonicalize().unwrap().join("layout");
        assert_eq!(below("layout"), Ok(resolved.clone()));
        assert_eq!(below("./layout"), Ok(resolved));
        for path in ["../layout", "/etc", "link", "layout/../../x"] {
            let error = below(path).unwrap_err();
            assert!(
                error.contains("oci-layout:x") && error.contains("leads out"),
                "{path}: {error}"
            );
        }
        assert!(below("none").unwrap_err().contains("No such file"));
    }
}
