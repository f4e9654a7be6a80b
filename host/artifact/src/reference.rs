//! Names artifacts: references to registries, and OCI layouts on disk.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::quoted;
use crate::{ArtifactError, Digest, ErrorKind};

/// An example for messages.
const EXAMPLE: &str = "ghcr.io/acme/plugin:1.0.0";
/// The longest repository with its registry, as in Docker's reference grammar.
const LONGEST_NAME: usize = 255;
/// The longest tag, as in the OCI distribution specification.
const LONGEST_TAG: usize = 128;

/// An artifact in a registry: `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`, optionally after `oci://`. The host is required:
/// Docker Hub is no default.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    host: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// A reference to a repository, without tag and digest.
    pub fn new(host: &str, repository: &str) -> Result<Self, ArtifactError> {
        format!("{host}/{repository}").parse()
    }

    /// The registry: a host name or address, with the port if it has one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The repository within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest. It takes precedence over the tag.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Registry and repository, without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }

    /// The same repository with this digest and no tag.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self {
            tag: None,
            digest: Some(digest),
            ..self.clone()
        }
    }

    /// The same repository with this tag and no digest.
    pub fn with_tag(&self, tag: &str) -> Result<Self, ArtifactError> {
        check_tag(tag, tag)?;
        Ok(Self {
            tag: Some(tag.to_owned()),
            digest: None,
            ..self.clone()
        })
    }

    /// The target of the reference, the digest before the tag.
    pub fn target(&self) -> Option<Target> {
        target(self.tag.as_deref(), self.digest)
    }
}

/// The identifier of a manifest in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A name that its owner may move.
    Tag(String),
    /// The content itself.
    Digest(Digest),
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => formatter.write_str(tag),
            Self::Digest(digest) => digest.fmt(formatter),
        }
    }
}

fn target(tag: Option<&str>, digest: Option<Digest>) -> Option<Target> {
    digest
        .map(Target::Digest)
        .or_else(|| tag.map(|tag| Target::Tag(tag.to_owned())))
}

fn error(text: &str, problem: impl fmt::Display) -> ArtifactError {
    ArtifactError::new(
        ErrorKind::Reference,
        format!(
            "{} is not a reference: {problem}; an example is {EXAMPLE}",
            quoted(text)
        ),
    )
}

fn check_tag(tag: &str, text: &str) -> Result<(), ArtifactError> {
    if is_tag(tag) {
        return Ok(());
    }
    Err(error(
        text,
        format_args!(
            "the tag {} must have 1 to {LONGEST_TAG} letters, digits, '_', '.' or '-', and begin with neither '.' nor '-'",
            quoted(tag)
        ),
    ))
}

/// Reports whether the text has the form of a tag.
pub(crate) fn is_tag(tag: &str) -> bool {
    let mut bytes = tag.bytes();
    let first = bytes.next().is_some_and(|it| it.is_ascii_alphanumeric() || it == b'_');
    first && tag.len() <= LONGEST_TAG && bytes.all(|it| it.is_ascii_alphanumeric() || b"_.-".contains(&it))
}

/// Reports whether the text is a DNS name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        let inner = label.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
        inner && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    host.split('.').all(is_label)
}

/// Reports whether the text is a segment of a repository, as in the OCI distribution specification: alphanumeric words
/// with `.`, `_`, `__` or any number of `-` between them.
fn is_component(part: &str) -> bool {
    let is_word = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let ends = |it: Option<&u8>| it.is_some_and(|it| is_word(*it));
    let bytes = part.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .split(|it| is_word(*it))
            .all(|separator| matches!(separator, b"" | b"." | b"_" | b"__") || separator.iter().all(|it| *it == b'-'))
}

/// Splits `NAME[:TAG][@DIGEST]`; a colon before a slash belongs to the name.
fn split(rest: &str) -> (&str, Option<&str>, Option<&str>) {
    let (rest, digest) = match rest.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (rest, None),
    };
    match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag), digest),
        _ => (rest, None, digest),
    }
}

impl FromStr for Reference {
    type Err = ArtifactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("oci://").unwrap_or(text);
        if rest.is_empty() {
            return Err(error(text, "it is empty"));
        }
        if let Some((scheme, _)) = rest.split_once("://") {
            return Err(error(
                text,
                format_args!("the scheme {}:// does not belong there", quoted(scheme)),
            ));
        }
        if rest.len() > 4 * LONGEST_NAME {
            return Err(error(text, "it is too long"));
        }
        let no_host = || error(text, "it has no registry host before the repository");
        let (host, _) = rest.split_once('/').ok_or_else(no_host)?;
        if !(host.contains(['.', ':']) || host == "localhost") {
            return Err(no_host());
        }
        let (name, tag, digest) = split(rest);
        if let Some(tag) = tag {
            check_tag(tag, text)?;
        }
        let digest = digest
            .map(str::parse::<Digest>)
            .transpose()
            .map_err(|problem| error(text, problem))?;
        if name.len() > LONGEST_NAME {
            return Err(error(
                text,
                format_args!("its name has more than {LONGEST_NAME} characters"),
            ));
        }
        let repository = name.split_once('/').map_or("", |(_, repository)| repository);
        if repository.bytes().any(|it| it.is_ascii_uppercase()) {
            return Err(error(text, "the repository must be in lower case"));
        }
        if repository.contains(':') {
            return Err(error(text, "it has two tags"));
        }
        let (host, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, Some(port)),
            _ => (host, None),
        };
        if !is_host(host) {
            return Err(error(text, format_args!("{} is not a host name", quoted(host))));
        }
        if port.is_some_and(|port| port.starts_with('+') || port.parse::<u16>().is_err()) {
            return Err(error(text, "the registry's port is not a number up to 65535"));
        }
        if !repository.split('/').all(is_component) {
            return Err(error(
                text,
                "the repository must have parts of letters, digits and separators ('.', '_', '__', '-'), with '/' between them",
            ));
        }
        // Docker Hub has several names, and its own images stand below library/.
        let host = match port {
            None if host == "index.docker.io" || host == "registry-1.docker.io" => "docker.io".to_owned(),
            None => host.to_ascii_lowercase(),
            Some(port) => format!("{}:{port}", host.to_ascii_lowercase()),
        };
        let repository = match repository {
            alone if host == "docker.io" && !alone.contains('/') => format!("library/{alone}"),
            repository => repository.to_owned(),
        };
        Ok(Self {
            host,
            repository,
            tag: tag.map(str::to_owned),
            digest,
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.host, self.repository)?;
        write_target(formatter, self.tag.as_deref(), self.digest)
    }
}

fn write_target(formatter: &mut fmt::Formatter<'_>, tag: Option<&str>, digest: Option<Digest>) -> fmt::Result {
    if let Some(tag) = tag {
        write!(formatter, ":{tag}")?;
    }
    digest.map_or(Ok(()), |digest| write!(formatter, "@{digest}"))
}

/// The location of artifacts: a registry, or an OCI layout on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A repository of a registry.
    Registry(Reference),
    /// An OCI layout.
    Layout(LayoutLocation),
}

/// An OCI layout: `oci-layout:DIRECTORY[:TAG][@DIGEST]` or `oci-archive:FILE.tar[:TAG][@DIGEST]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutLocation {
    /// The directory or the tar.
    pub path: PathBuf,
    /// Set if the path is a tar.
    pub archive: bool,
    /// The tag.
    pub tag: Option<String>,
    /// The digest. It takes precedence over the tag.
    pub digest: Option<Digest>,
}

impl Location {
    /// A layout in a directory, without tag and digest.
    pub fn directory(path: &Path) -> Self {
        Self::Layout(LayoutLocation {
            path: path.to_owned(),
            archive: false,
            tag: None,
            digest: None,
        })
    }

    /// The target of the location, the digest before the tag.
    pub fn target(&self) -> Option<Target> {
        match self {
            Self::Registry(reference) => reference.target(),
            Self::Layout(layout) => target(layout.tag.as_deref(), layout.digest),
        }
    }

    /// The tag.
    pub fn tag(&self) -> Option<&str> {
        match self {
            Self::Registry(reference) => reference.tag(),
            Self::Layout(layout) => layout.tag.as_deref(),
        }
    }
}

impl FromStr for Location {
    type Err = ArtifactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rest, archive) = match (text.strip_prefix("oci-layout:"), text.strip_prefix("oci-archive:")) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => return text.parse().map(Self::Registry),
        };
        let problem = |problem: &dyn fmt::Display| {
            ArtifactError::new(
                ErrorKind::Reference,
                format!(
                    "{} is not an OCI layout: {problem}; examples are oci-layout:plugins:1.0.0 and oci-archive:plugins.tar:1.0.0",
                    quoted(text)
                ),
            )
        };
        let (rest, digest) = match rest.rsplit_once("@sha256:") {
            Some((path, digits)) => {
                let digest = format!("sha256:{digits}")
                    .parse()
                    .map_err(|it: crate::DigestError| problem(&it))?;
                (path, Some(digest))
            }
            None => (rest, None),
        };
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (rest, None),
        };
        if path.is_empty() || path.contains('\0') {
            return Err(problem(&"it has no path"));
        }
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(problem(&format_args!("{} is not a tag", quoted(tag))));
        }
        Ok(Self::Layout(LayoutLocation {
            path: path.into(),
            archive,
            tag: tag.map(str::to_owned),
            digest,
        }))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(reference) => reference.fmt(formatter),
            Self::Layout(layout) => {
                let scheme = if layout.archive { "oci-archive" } else { "oci-layout" };
                write!(formatter, "{scheme}:{}", layout.path.display())?;
                write_target(formatter, layout.tag.as_deref(), layout.digest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn references_are_read_and_written_in_one_form() {
        for text in [
            "ghcr.io/acme/plugin",
            "ghcr.io/acme/plugin:1.0.0",
            "localhost/plugin:v1",
            "localhost:5000/a/b/c",
            "[::1]:5000/a:t",
            "a--b.example/c--d/e__f.g_h",
            "10.0.0.1:5000/a__b/c.d-e:T_1",
            &format!("registry.example/plugin@{DIGEST}"),
            &format!("registry.example:443/plugin:1@{DIGEST}"),
            "oci-layout:plugins",
            "oci-layout:/var/lib/plugins:1.0.0",
            &format!("oci-layout:./a:b/c:1@{DIGEST}"),
            "oci-archive:/tmp/plugins.tar:1.0.0",
            &format!("oci-archive:plugins.tar@{DIGEST}"),
        ] {
            let location: Location = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(location.to_string(), text);
            assert_eq!(
                format!("oci://{text}").parse::<Location>().is_ok(),
                !text.starts_with("oci-")
            );
        }
        let reference: Reference = format!("oci://[::1]:5000/acme/plugin:1.0@{DIGEST}").parse().unwrap();
        assert_eq!(reference.host(), "[::1]:5000");
        assert_eq!(reference.repository(), "acme/plugin");
        assert_eq!(reference.target(), Some(Target::Digest(DIGEST.parse().unwrap())));
        assert_eq!(
            "docker.io/nginx:1".parse::<Reference>().unwrap().repository(),
            "library/nginx"
        );
    }

    #[test]
    fn invalid_reference_is_refused_with_problem_and_example() {
        for (text, problem) in [
            ("", "empty"),
            ("oci://", "empty"),
            ("plugin", "no registry host"),
            ("plugin:1.0", "no registry host"),
            ("acme/plugin:1.0", "no registry host"),
            ("https://ghcr.io/acme/plugin", "scheme"),
            ("ghcr.io/Acme/plugin", "lower case"),
            ("ghcr.io/", "reference"),
            ("ghcr.io/a:", "tag"),
            ("ghcr.io/a:-x", "tag"),
            ("ghcr.io/a:b:c", "two tags"),
            ("ghcr.io/a@sha256:00", "digest"),
            ("ghcr.io/a@sha512:00", "SHA-256"),
            ("ghcr.io/a@b@c", "digest"),
            ("ghcr.io/a b", "parts"),
            ("ghcr.io/a..b", "parts"),
            ("ghcr.io/a___b", "parts"),
            ("ghcr.io/a//b", "parts"),
            ("gh_cr.io/a", "host name"),
            ("[::zz]:1/a", "host name"),
            ("ghcr.io/../a", "parts"),
            ("ghcr.io:99999/a", "port"),
            ("user:password@ghcr.io/a", "digest"),
        ] {
            let error = text.parse::<Reference>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Reference);
            let message = error.to_string();
            assert!(
                message.contains(problem) && message.contains(EXAMPLE),
                "{text}: {message}"
            );
        }
        for text in [
            "oci-layout:",
            "oci-layout::1",
            "oci-archive:a:b!",
            "oci-layout:a@sha256:1",
        ] {
            assert_eq!(text.parse::<Location>().expect_err(text).kind(), ErrorKind::Reference);
        }
        let long = format!("ghcr.io/{}", "a".repeat(100_000));
        assert!(long.parse::<Reference>().unwrap_err().to_string().len() < 1000);
    }

    #[test]
    fn parser_never_panics_and_round_trips() {
        let pieces = [
            "ghcr.io",
            "/",
            ":",
            "@",
            "sha256:",
            DIGEST,
            "oci://",
            "oci-layout:",
            "oci-archive:",
            "a",
            "A",
            "é",
            "\0",
            " ",
            "..",
            "-",
            "_",
            "[::1]",
            "5000",
            "localhost",
            "\n",
            "docker.io",
            "index.docker.io",
            "library",
        ];
        let mut random = fastrand::Rng::with_seed(12);
        let mut read = 0;
        for _ in 0..20_000 {
            let text: String = (0..random.usize(..8))
                .map(|_| pieces[random.usize(..pieces.len())])
                .collect();
            if let Ok(location) = text.parse::<Location>() {
                read += 1;
                assert_eq!(location.to_string().parse(), Ok(location), "{text}");
            }
        }
        assert!(read > 100, "some are references: {read}");
    }
}
