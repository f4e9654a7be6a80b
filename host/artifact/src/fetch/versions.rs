//! Selects the newest version in a range from a repository's tags.

use semver::{Version, VersionReq};

/// The version in a tag: SemVer, optionally after `v`. A tag cannot contain `+`, so `_` replaces it, as in Helm.
pub fn version(tag: &str) -> Option<Version> {
    let text = tag.strip_prefix('v').unwrap_or(tag);
    Version::parse(&text.replace('_', "+")).ok()
}

/// The tag with the newest version in the range. A pre-release counts only if the range names a pre-release of the same
/// version, as in Cargo. Among tags with the same version, build metadata decides, and then the shorter tag, so that
/// the result does not depend on the registry's order.
pub fn newest<'a>(tags: impl IntoIterator<Item = &'a str>, range: &VersionReq) -> Option<&'a str> {
    tags.into_iter()
        .filter_map(|tag| Some((version(tag)?, tag)))
        .filter(|(version, _)| range.matches(version))
        .max_by(|(a, one), (b, other)| a.cmp(b).then_with(|| other.len().cmp(&one.len())))
        .map(|(_, tag)| tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(range: &str, tags: &[&'static str]) -> Option<&'static str> {
        newest(tags.iter().copied(), &range.parse().unwrap())
    }

    #[test]
    fn newest_version_in_range_wins_by_number_not_by_text() {
        assert_eq!(
            pick("^1", &["1.9.0", "1.10.0", "2.0.0", "latest", "1.2"]),
            Some("1.10.0")
        );
        assert_eq!(pick("~1.9", &["v1.9.1", "1.9.0", "v1.10.0"]), Some("v1.9.1"));
        assert_eq!(pick("^3", &["1.0.0", "sha256-00.sig", ""]), None);
    }

    #[test]
    fn prereleases_count_only_where_the_range_names_one() {
        assert_eq!(pick("^1", &["1.0.0", "1.1.0-rc.1"]), Some("1.0.0"));
        assert_eq!(pick(">=1.1.0-rc.0", &["1.0.0", "1.1.0-rc.1"]), Some("1.1.0-rc.1"));
        assert_eq!(pick("^1", &["1.1.0-rc.1"]), None);
    }

    #[test]
    fn the_answer_does_not_depend_on_the_order() {
        assert_eq!(pick("1", &["v1.0.0", "1.0.0"]), Some("1.0.0"));
        assert_eq!(pick("1", &["1.0.0", "v1.0.0"]), Some("1.0.0"));
        assert_eq!(pick("1", &["1.0.0_2", "1.0.0_10", "1.0.0"]), Some("1.0.0_10"));
        assert_eq!(version("1.0.0_linux").unwrap().build.as_str(), "linux");
    }
}
