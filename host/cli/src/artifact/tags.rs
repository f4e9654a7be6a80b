//! `pilothouse tags`: lists the versions in a repository, in their order.

use std::cmp::Reverse;

use anyhow::bail;
use clap::Args;
use pilothouse_artifact::Location;
use pilothouse_artifact::fetch::versions;
use semver::VersionReq;
use serde_json::{Value, json};

use super::{RegistryArguments, wait_for};
use crate::output::Format;
use pilothouse_core::text::printable::printable;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse tags ghcr.io/acme/app-service
  pilothouse tags ghcr.io/acme/app-service --range '^0.1'
  pilothouse tags oci-layout:plugins -o json

Versions come first, the newest one last among them; then all other tags. With --range, the last line is what a Plugin
with updatePolicy SemVer and this range runs. A pre-release is in a range only if the range names one of the same version.
The tags under which signatures are kept (sha256-...) are left out. With -o json, the tags are in `tags`, each with its `tag` and, where it is one, its `version`.

Exit code: 0, 1 if the repository cannot be read or has no such tag, 2 if the command line is wrong.";

/// `pilothouse tags`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TagsCommand {
    /// HOST/REPOSITORY, oci-layout:DIRECTORY or oci-archive:FILE.tar
    #[arg(value_name = "REPOSITORY")]
    repository: Location,

    /// Only versions in this range, in the notation of Cargo, such as '^1.2' or '>=1.2, <1.5'
    #[arg(long, value_name = "RANGE")]
    range: Option<VersionReq>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,

    #[command(flatten)]
    registries: RegistryArguments,
}

impl TagsCommand {
    /// Prints a tag on each line, or a document.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            repository,
            range,
            output,
            registries,
        } = self;
        if repository.target().is_some() {
            bail!("{repository} names one artifact; leave tag and digest off to list the tags of its repository");
        }
        let session = registries.session()?;
        let tags = wait_for(async { Ok(session.open(&repository)?.tags().await?) })?;
        let tags = listed(&tags, range.as_ref());
        match (&range, tags.is_empty()) {
            (Some(range), true) => bail!("{repository} has no tag with a version in the range {range}"),
            (None, true) => bail!("{repository} has no tags"),
            _ => {}
        }
        match output {
            Format::Text => tags.iter().for_each(|tag| println!("{}", printable(tag))),
            Format::Json => println!("{:#}", document(&repository, &tags)),
        }
        Ok(())
    }
}

fn document(repository: &Location, tags: &[&str]) -> Value {
    let tag = |tag: &&str| match versions::version(tag) {
        Some(version) => json!({"tag": tag, "version": version.to_string()}),
        None => json!({"tag": tag}),
    };
    json!({
        "repository": repository.to_string(),
        "tags": tags.iter().map(tag).collect::<Vec<_>>(),
    })
}

/// Returns versions in their order, and then the other tags.
fn listed<'a>(tags: &'a [String], range: Option<&VersionReq>) -> Vec<&'a str> {
    let tags = tags
        .iter()
        .map(String::as_str)
        .filter(|tag| !tag.starts_with("sha256-"));
    let (mut versions, mut others) = (Vec::new(), Vec::new());
    for tag in tags {
        match versions::version(tag) {
            Some(version) if range.is_none_or(|range| range.matches(&version)) => versions.push((version, tag)),
            None if range.is_none() => others.push(tag),
            _ => {}
        }
    }
    // Among tags with the same version the host chooses the shorter one.
    versions.sort_by_key(|(version, tag)| (version.clone(), Reverse(tag.len())));
    others.sort_unstable();
    versions.into_iter().map(|(_, tag)| tag).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tag_in_a_range_is_the_one_that_the_host_runs() {
        let tags = [
            "latest",
            "1.10.0",
            "v1.9.0",
            "1.9.0",
            "2.0.0-rc.1",
            "sha256-00.sig",
            "0.1.0",
            "edge",
        ];
        let tags = tags.map(str::to_owned);
        assert_eq!(
            listed(&tags, None),
            ["0.1.0", "v1.9.0", "1.9.0", "1.10.0", "2.0.0-rc.1", "edge", "latest"]
        );
        for (range, expected) in [("^1", 3), ("~1.9", 2), (">=2.0.0-rc.0", 1), ("^2", 0)] {
            let range: VersionReq = range.parse().unwrap();
            let found = listed(&tags, Some(&range));
            assert_eq!(found.len(), expected, "{range}");
            assert_eq!(
                found.last().copied(),
                versions::newest(tags.iter().map(String::as_str), &range)
            );
        }
    }
}
