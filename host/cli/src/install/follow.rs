//! What a Plugin follows in place of one artifact (`--follow`): a tag, or the newest version in a range.

use std::str::FromStr;

use anyhow::{Context as _, ensure};
use pilothouse_artifact::Location;
use pilothouse_artifact::fetch::versions::newest;
use semver::VersionReq;
use serde_json::{Value, json};

use crate::artifact::{RegistryArguments, wait_for};

/// A tag or a range that the host follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The tag of the reference.
    Tag,
    /// The newest version in a range, among the tags of the repository.
    Range(VersionReq),
}

impl FromStr for Follow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::Tag);
        }
        let range = VersionReq::parse(text);
        let range = range.map_err(|error| format!("{error}; write a range such as '>=1.2.0, <2.0.0' or '^1.2'"))?;
        Ok(Self::Range(range))
    }
}

impl Follow {
    /// Returns the location of the artifact that the host would run now.
    pub fn artifact(&self, location: &Location, registries: &RegistryArguments) -> anyhow::Result<Location> {
        let Self::Range(range) = self else {
            ensure!(
                location.tag().is_some() && !location.to_string().contains('@'),
                "{location} names no tag that could be followed; append :TAG, or give a range: --follow='^1.2'"
            );
            return Ok(location.clone());
        };
        ensure!(
            location.target().is_none(),
            "{location} names one artifact, and --follow={range} chooses the newest version; leave the tag and the digest out"
        );
        let session = registries.clone().session()?;
        let tags = wait_for(async { Ok(session.open(location)?.tags().await?) })?;
        let newest = newest(tags.iter().map(String::as_str), range).with_context(|| {
            format!(
                "{location} has no tag in the range {range}, among {} tags; push one, or widen the range",
                tags.len()
            )
        })?;
        Ok(format!("{location}:{newest}").parse()?)
    }

    /// Writes the reference and the policy of a Plugin's source.
    pub fn write(&self, location: &Location, source: &mut Value) {
        source["oci"]["reference"] = json!(location.to_string());
        match self {
            Self::Tag => source["oci"]["updatePolicy"] = json!("Tag"),
            Self::Range(range) => {
                source["oci"]["updatePolicy"] = json!("SemVer");
                source["oci"]["range"] = json!(range.to_string());
            }
        }
    }
}

/// Describes what a Plugin with this spec follows; none if it is pinned, or has a file.
pub fn followed(spec: &Value) -> Option<String> {
    let oci = &spec["source"]["oci"];
    let reference = oci["reference"].as_str()?;
    match oci["updatePolicy"].as_str()? {
        "Tag" => Some(format!("the tag {reference}")),
        "SemVer" => Some(format!(
            "{reference} in the range {}",
            oci["range"].as_str().unwrap_or_default()
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_follows_a_tag_or_a_range() {
        let source = |follow: &str, reference: &str| {
            let mut source = json!({"oci": {"reference": "pinned", "pullSecret": "s"}});
            let follow: Follow = follow.parse().unwrap();
            follow.write(&reference.parse().unwrap(), &mut source);
            source
        };
        let tag = source("", "ghcr.io/acme/a:stable");
        assert_eq!(
            tag,
            json!({"oci": {"reference": "ghcr.io/acme/a:stable", "updatePolicy": "Tag", "pullSecret": "s"}})
        );
        let range = source(">=0.1, <0.3", "ghcr.io/acme/a");
        assert_eq!(
            range["oci"],
            json!({"reference": "ghcr.io/acme/a", "updatePolicy": "SemVer", "range": ">=0.1, <0.3", "pullSecret": "s"})
        );
        let words = |source: &Value| followed(&json!({"source": source}));
        assert_eq!(words(&tag).as_deref(), Some("the tag ghcr.io/acme/a:stable"));
        assert_eq!(
            words(&range).as_deref(),
            Some("ghcr.io/acme/a in the range >=0.1, <0.3")
        );
        assert_eq!(
            words(&json!({"oci": {"reference": "a@sha256:0", "updatePolicy": "Pinned"}})),
            None
        );
        assert_eq!(words(&json!({"file": "a.wasm"})), None);
        assert!("1.x.y.z".parse::<Follow>().unwrap_err().contains("write a range"));
    }
}
