//! Matches patterns of the trust file against repositories, selects the most specific pattern, and normalises the
//! spelling of repositories.

use std::cmp::Ordering;

/// The longest repository name or pattern, in bytes: registries allow 255 bytes of a name, and a host has 253.
const MAX_LENGTH: usize = 512;

/// The prefix of an OCI layout in place of a registry.
const LAYOUT: &str = "oci-layout:";

/// Other names of Docker Hub's registry.
const DOCKER_HUB: [&str; 3] = ["index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"];

/// A repository in its normalised form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository(Vec<String>);

/// A pattern of repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Segment>);

/// A path segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// `**`: any number of segments.
    Any,
    /// A text with at least one `*`.
    Glob(String),
    /// A text without `*`.
    Literal(String),
}

impl Repository {
    /// Normalises a repository; the error is the reason why it is invalid. The result is the same for every spelling of
    /// one repository: upper and lower case, the default ports 443 and 80, a dot behind the host, and Docker Hub's
    /// other names.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let segments = segments(text, false)?;
        Ok(Self(segments))
    }
}

impl Pattern {
    /// Parses a pattern. The error describes the problem.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let segments = segments(text, true)?;
        if segments.iter().filter(|segment| *segment == "**").count() > 4 {
            return Err("has more than four **");
        }
        let segment = |text: String| match text.as_str() {
            "**" => Ok(Segment::Any),
            _ if text.contains("**") => Err("has ** beside other characters; ** must be a segment of its own"),
            _ if text.contains('*') => Ok(Segment::Glob(text)),
            _ => Ok(Segment::Literal(text)),
        };
        Ok(Self(segments.into_iter().map(segment).collect::<Result<_, _>>()?))
    }

    /// Reports whether the pattern matches.
    pub fn matches(&self, repository: &Repository) -> bool {
        matches(&self.0, &repository.0)
    }

    /// Compares two patterns that match the same repository; the more specific one is `Greater`. The first segment that
    /// differs in kind decides: a literal segment before one with `*`, and that before `**`. Among two segments with
    /// `*`, the one with more other characters is more specific. If all are alike, the longer pattern is.
    pub fn compare(&self, other: &Self) -> Ordering {
        let rank = |segment: &Segment| match segment {
            Segment::Any => (0, 0),
            Segment::Glob(text) => (1, text.bytes().filter(|byte| *byte != b'*').count()),
            Segment::Literal(_) => (2, 0),
        };
        self.0.iter().map(rank).cmp(other.0.iter().map(rank))
    }
}

/// Reports whether a text matches a glob in which `*` stands for any characters but `/`.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        // The first place leaves the most for the parts behind it, and no `*` may step over a `/`.
        let Some(start) = rest.find(part) else { return false };
        if rest[..start].contains('/') {
            return false;
        }
        rest = &rest[start + part.len()..];
    }
    rest.strip_suffix(last).is_some_and(|skipped| !skipped.contains('/'))
}

fn matches(pattern: &[Segment], path: &[String]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((Segment::Any, rest)), _) => (0..=path.len()).any(|skipped| matches(rest, &path[skipped..])),
        (Some((Segment::Glob(text), pattern)), Some((segment, path))) => glob(text, segment) && matches(pattern, path),
        (Some((Segment::Literal(text), pattern)), Some((segment, path))) => text == segment && matches(pattern, path),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn segments(text: &str, is_pattern: bool) -> Result<Vec<String>, &'static str> {
    if text.len() > MAX_LENGTH {
        return Err("is longer than 512 bytes");
    }
    if let Some(path) = text.strip_prefix(LAYOUT) {
        return layout(path, is_pattern);
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_/:[]".contains(&byte) || (is_pattern && byte == b'*');
    if !text.bytes().all(allowed) {
        return Err("has characters that no repository has; leave out scheme, tag and digest");
    }
    let lower = text.to_ascii_lowercase();
    let mut segments: Vec<String> = lower.split('/').map(str::to_owned).collect();
    if segments.iter().any(String::is_empty) {
        return Err("has an empty path segment");
    }
    if segments.iter().any(|segment| segment == "." || segment == "..") {
        return Err("has . or .. as a path segment");
    }
    let is_host = |segment: &str| segment == "localhost" || segment.contains(['.', ':', '[']);
    if !is_host(&segments[0]) {
        if is_pattern && !segments[0].contains('*') {
            return Err("does not begin with a registry's host; for Docker Hub write docker.io/");
        }
        if !is_pattern {
            segments.insert(0, "docker.io".to_owned());
        }
    }
    if segments[1..].iter().any(|segment| segment.contains([':', '[', ']'])) {
        return Err("has a colon or a bracket behind the registry's host; leave out tag and digest");
    }
    if segments.len() == 1 && segments[0] != "**" {
        return Err("names a registry without a repository; for all of its repositories append /**");
    }
    segments[0] = host(&segments[0], is_pattern)?;
    // `docker.io/nginx` is short for `docker.io/library/nginx`.
    if segments[0] == "docker.io" && segments.len() == 2 && segments[1] != "**" {
        segments.insert(1, "library".to_owned());
    }
    Ok(segments)
}

/// The registry's host without a default port. The port of plain HTTP counts as a default too: a registry that is
/// accessed without TLS must not get another rule when its reference names the port that is used anyway.
fn host(text: &str, is_pattern: bool) -> Result<String, &'static str> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let port = match port {
        None | Some("") => None,
        Some(port) if is_pattern && port.contains('*') => Some(port.to_owned()),
        // A port is compared as a number: 0443 is 443.
        Some(port) => match port.parse::<u16>() {
            Ok(80 | 443) => None,
            Ok(port) => Some(port.to_string()),
            Err(_) => return Err("has a port that is no number"),
        },
    };
    let name = match name.trim_end_matches('.') {
        "" => return Err("has no registry's host"),
        name if DOCKER_HUB.contains(&name) => "docker.io",
        name => name,
    };
    Ok(match port {
        Some(port) => format!("{name}:{port}"),
        None => name.to_owned(),
    })
}

/// Normalises a layout's path. It keeps its case, and must be absolute, so that it has only one spelling.
fn layout(path: &str, is_pattern: bool) -> Result<Vec<String>, &'static str> {
    let path = path.trim_end_matches('/');
    if path
        .bytes()
        .any(|byte| byte.is_ascii_control() || (!is_pattern && byte == b'*'))
    {
        return Err("has characters that no layout's path may have");
    }
    let Some(rest) = path.strip_prefix('/') else {
        return Err("names an OCI layout without an absolute path");
    };
    let mut segments = vec![LAYOUT.to_owned()];
    segments.extend(rest.split('/').map(str::to_owned));
    if segments[1..]
        .iter()
        .any(|segment| matches!(segment.as_str(), "" | "." | ".."))
    {
        return Err("has an empty path segment, or . or ..");
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, repository: &str) -> bool {
        Pattern::parse(pattern)
            .unwrap()
            .matches(&Repository::parse(repository).unwrap())
    }

    #[test]
    fn a_star_stays_in_its_segment_and_two_cross() {
        for (pattern, repository, expected) in [
            ("example.com/a", "example.com/a", true),
            ("example.com/a", "example.com/a/b", false),
            ("example.com/*", "example.com/a", true),
            ("example.com/*", "example.com/a/b", false),
            ("example.com/**", "example.com/a/b", true),
            ("example.com/a/**", "example.com/a", true),
            ("example.com/a/**", "example.com/ab", false),
            ("example.com/**/b", "example.com/a/x/b", true),
            ("example.com/p-*", "example.com/p-1", true),
            ("example.com/p-*-x", "example.com/p-1-x", true),
            ("example.com/p-*-x", "example.com/p-x", false),
            ("*.example.com/**", "eu.example.com/a", true),
            ("*.example.com/**", "evil.com/x.example.com/a", false),
            ("**", "example.com/a", true),
            ("example.com:5000/**", "example.com/a", false),
            ("oci-layout:/srv/**", "oci-layout:/srv/a", true),
            ("**", "oci-layout:/srv/a", true),
            ("oci-layout:/srv/**", "oci-layout:/srv2/a", false),
        ] {
            assert_eq!(is_match(pattern, repository), expected, "{pattern} {repository}");
        }
    }

    #[test]
    fn other_spellings_of_a_repository_get_the_same_rule() {
        for (pattern, spellings) in [
            (
                "Example.com/plugins/**",
                &[
                    "example.com/plugins/a",
                    "EXAMPLE.com/plugins/a",
                    "example.com/Plugins/a",
                    "example.com:443/plugins/a",
                    "example.com:80/plugins/a",
                    "example.com./plugins/a",
                    "example.com.:443/plugins/a",
                    "example.com:0443/plugins/a",
                    "example.com:/plugins/a",
                ][..],
            ),
            (
                "docker.io/**",
                &["index.docker.io/a/b", "registry-1.docker.io:443/a/b", "a/b", "nginx"],
            ),
            (
                "docker.io/library/nginx",
                &[
                    "docker.io/nginx",
                    "nginx",
                    "library/nginx",
                    "registry.hub.docker.com/library/nginx",
                ],
            ),
            ("docker.io/nginx", &["nginx", "docker.io/library/nginx"]),
            ("[::1]:5000/**", &["[::1]:5000/a"]),
            ("[::1]/**", &["[::1]:443/a", "[::1]/a"]),
            ("oci-layout:/srv/plugins", &["oci-layout:/srv/plugins/"]),
        ] {
            for spelling in spellings {
                assert!(is_match(pattern, spelling), "{pattern} {spelling}");
            }
        }
    }

    #[test]
    fn what_is_no_repository_has_no_rule() {
        for text in [
            "",
            "/",
            "example.com",
            "example.com/",
            "example.com//a",
            "example.com/../a",
            "example.com/./a",
            "example.com/a:tag",
            "example.com:https/a",
            "example.com:65979/a",
            "./a",
            "example.com/a@sha256:00",
            "https://example.com/a",
            "example.com/a%2fb",
            "example.com/a b",
            "example.com/a\n",
            "example.com/*",
            "exämple.com/a",
            "oci-layout:srv",
            "oci-layout:/srv/../etc",
            "oci-layout:/srv//x",
            "oci-layout:/",
            &format!("example.com/{}", "a".repeat(600)),
        ] {
            assert!(Repository::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn patterns_that_cannot_be_meant_are_refused() {
        for text in [
            "plugins/*",
            "example.com",
            "example.com/a**",
            "example.com/a:1",
            "a.b/**/**/**/**/**",
            "",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_more_specific_pattern_is_greater() {
        let ordered = [
            "**",
            "*/**",
            "*.com/**",
            "example.com/**",
            "example.com/**/b",
            "example.com/*",
            "example.com/a*",
            "example.com/a/**",
            "example.com/a/*",
            "example.com/a/b",
        ]
        .map(|text| Pattern::parse(text).unwrap());
        for (index, pattern) in ordered.iter().enumerate() {
            for (other_index, other) in ordered.iter().enumerate() {
                assert_eq!(pattern.compare(other), index.cmp(&other_index), "{pattern:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_star_of_a_glob_never_matches_a_slash() {
        let workflow = "https://github.com/example/*/.github/workflows/release.yml@refs/tags/*";
        assert!(glob(
            workflow,
            "https://github.com/example/a/.github/workflows/release.yml@refs/tags/v1"
        ));
        let forged = "https://github.com/example/a/.github/workflows/other.yml@refs/heads/x/.github/workflows/release.yml@refs/tags/v1";
        assert!(!glob(workflow, forged));
        assert!(!glob("https://github.com/*", "https://github.com/a/b"));
        assert!(glob("*@example.com", "a@example.com"));
        assert!(!glob("*@example.com", "a@example.com.evil"));
        assert!(!glob("a*b*b", "ab"));
        assert!(glob("a*b*b", "abb"));
        assert!(glob("exact", "exact") && !glob("exact", "exactly"));
    }
}
