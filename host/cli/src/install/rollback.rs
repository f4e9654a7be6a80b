//! `pilothouse rollback`: goes back to an earlier version of a plugin, which the Plugin's status remembers, as an upgrade
//! to that version does.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use pilothouse_artifact::Digest;
use pilothouse_core::plugin::manifest::is_label;
use serde_json::Value;

use super::losses::CompareSchemas;
use super::upgrade::ChangeArguments;
use super::{InstallationArguments, PluginArguments};
use crate::artifact::{self, pinned_to};
use crate::plugins::NamedFile;
use pilothouse_core::text::printable::printable;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse rollback app-service
  pilothouse rollback app-service --to 0.1.0
  pilothouse rollback app-service --to sha256:6f2c... --dry-run

The Plugin's status lists the last 10 versions that have run (`kubectl get plugin NAME -o yaml`, status.history). Without --to the
command goes to the latest of them that the Plugin does not name now. It does all that `pilothouse upgrade` does: it shows what
changes, tries every write, applies CRDs, rights and the Plugin, and waits until the host runs the version. Options that are not
given stay as they are.

The Plugin is pinned to the version. If it followed a tag or a range, the command says so.

A CustomResourceDefinition stays if it accepts all that the earlier version's accepts, and keeps every field (--crds). Fields of the
Plugin that somebody else has set, such as `kubectl patch`, are taken over with --force-conflicts.

Exit code: 0, 1 if the plugin is not rolled back, does not run, or the change would lose data, 2 if the command line is wrong.";

/// `pilothouse rollback`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RollbackCommand {
    /// The Plugin's name
    #[arg(value_name = "NAME", value_parser = plugin_name)]
    name: String,

    /// The version, as its manifest names it, or a digest: of the component, or of the artifact (default: the version before)
    #[arg(long, value_name = "VERSION|DIGEST")]
    to: Option<String>,

    /// The component of the earlier version, for a Plugin with a file (default: the file of its name in this directory)
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    installation: InstallationArguments,

    #[command(flatten)]
    change: ChangeArguments,
}

/// An earlier version of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Earlier {
    /// An artifact: its reference, perhaps with a tag, and its digest.
    Artifact { reference: String, digest: String },
    /// A file, by the name that the Plugin gave, and the digest of the component.
    File { name: String, digest: String },
}

impl RollbackCommand {
    /// Rolls back, or prints the changes.
    pub fn execute(self, compare: CompareSchemas) -> anyhow::Result<()> {
        let Self {
            name,
            to,
            file,
            installation,
            change,
        } = self;
        let installed = change.installed(&name, installation.host_place())?;
        let live = installed.plugin.clone().unwrap_or_default();
        let earlier = earlier(&live, to.as_deref()).with_context(|| format!("Plugin {name} is not rolled back"))?;
        let plugin = match &earlier {
            Earlier::Artifact { reference, digest } => {
                let location = pinned_to(reference, digest)?;
                artifact::check(&location, installation.registries().clone()).with_context(|| {
                    format!(
                        "Plugin {name} is not rolled back, and nothing was changed: {location} cannot be fetched. Push it again, or \
                         go to another version of status.history with --to"
                    )
                })?;
                PathBuf::from(match location {
                    pilothouse_artifact::Location::Registry(_) => format!("oci://{location}"),
                    pilothouse_artifact::Location::Layout(_) => location.to_string(),
                })
            }
            Earlier::File { name: recorded, digest } => {
                let file = file.unwrap_or_else(|| PathBuf::from(recorded));
                check_file(&file, digest)
                    .with_context(|| format!("Plugin {name} is not rolled back, and nothing was changed"))?;
                file
            }
        };
        let plugin = PluginArguments {
            plugin: NamedFile {
                name: Some(name),
                file: plugin,
                called: None,
                digest: None,
            },
            installation,
        };
        change.execute("rollback", installed, (plugin, None, None), compare)
    }
}

fn plugin_name(text: &str) -> Result<String, String> {
    if is_label(text) {
        return Ok(text.to_owned());
    }
    Err("it is not the name of a Plugin, which is a DNS label; `kubectl get plugins` lists them".to_owned())
}

/// Checks that a file has the component of the earlier version.
fn check_file(file: &Path, digest: &str) -> anyhow::Result<()> {
    let bytes = std::fs::read(file).with_context(|| {
        format!(
            "the version came from a file of the host's plugin directory, and {} cannot be read; give the component with --file",
            file.display()
        )
    })?;
    let found = Digest::of(&bytes).to_string();
    ensure!(
        found == digest,
        "{} has {found}, and the version had {digest}; give its component with --file",
        file.display()
    );
    Ok(())
}

/// Finds the version to go to in the Plugin's history, which begins with the latest one.
fn earlier(live: &Value, to: Option<&str>) -> anyhow::Result<Earlier> {
    let history: &[Value] = live["status"]["history"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let entry = match to {
        None => history.iter().find(|entry| !is_wanted(live, entry)).with_context(|| {
            "its status remembers no other version (status.history); name one with --to, or give one to `pilothouse upgrade`"
        })?,
        Some(to) => {
            let is_meant = |entry: &&Value| {
                [&entry["version"], &entry["digest"], &entry["artifact"]["digest"]]
                    .into_iter()
                    .any(|name| name == to)
            };
            match history.iter().find(is_meant) {
                Some(entry) => entry,
                None => return unknown(live, history, to),
            }
        }
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let artifact = &entry["artifact"];
    if artifact["digest"].is_string() {
        return Ok(Earlier::Artifact {
            reference: text(&artifact["reference"]),
            digest: text(&artifact["digest"]),
        });
    }
    Ok(Earlier::File {
        name: text(&entry["file"]),
        digest: text(&entry["digest"]),
    })
}

/// Reports whether a version of the history is the one that the Plugin names now or, where it names a tag or a range, the
/// one that runs.
fn is_wanted(live: &Value, entry: &Value) -> bool {
    let source = &live["spec"]["source"];
    let pinned = source["oci"]["reference"].as_str().and_then(|it| it.rsplit_once('@'));
    match (pinned, source["digest"].as_str()) {
        (Some((_, digest)), _) => entry["artifact"]["digest"] == digest,
        (None, Some(digest)) => entry["digest"] == digest,
        (None, None) => entry["digest"] == live["status"]["digest"],
    }
}

/// Returns the version of a digest that the history does not have, from the repository of the present one.
fn unknown(live: &Value, history: &[Value], to: &str) -> anyhow::Result<Earlier> {
    if let (Ok(digest), Some(reference)) = (to.parse::<Digest>(), live["status"]["artifact"]["reference"].as_str()) {
        return Ok(Earlier::Artifact {
            reference: reference.to_owned(),
            digest: digest.to_string(),
        });
    }
    let known = history.iter().map(|entry| {
        let [version, digest] = [&entry["version"], &entry["digest"]].map(|it| it.as_str().unwrap_or_default());
        printable(&format!("{version} ({digest})"))
    });
    let known = known.collect::<Vec<_>>().join(", ");
    bail!(
        "its status does not remember {to}; it remembers {}",
        if known.is_empty() { "no version" } else { &known }
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn digest(of: &str) -> String {
        Digest::of(of.as_bytes()).to_string()
    }

    fn entry(version: &str) -> Value {
        let artifact =
            json!({"reference": format!("ghcr.io/acme/a:{version}"), "digest": digest(&format!("artifact {version}"))});
        json!({"version": version, "digest": digest(version), "artifact": artifact})
    }

    /// A Plugin that names the first version and has run the others.
    fn live(wanted: &str, history: &[&str]) -> Value {
        let history: Vec<Value> = history.iter().map(|version| entry(version)).collect();
        json!({
            "spec": {"source": {"oci": {"reference": format!("ghcr.io/acme/a@{}", digest(&format!("artifact {wanted}")))}}},
            "status": {"digest": history[0]["digest"], "artifact": history[0]["artifact"], "history": history},
        })
    }

    fn goes_to(live: &Value, to: Option<&str>) -> String {
        match earlier(live, to) {
            Ok(Earlier::Artifact { reference, .. }) => reference,
            Ok(Earlier::File { name, .. }) => name,
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn without_a_version_it_is_the_one_before() {
        assert_eq!(goes_to(&live("2", &["2", "1"]), None), "ghcr.io/acme/a:1");
        // The version that is wanted does not run.
        assert_eq!(goes_to(&live("3", &["2", "1"]), None), "ghcr.io/acme/a:2");
        assert_eq!(goes_to(&live("1", &["1", "2", "1"]), None), "ghcr.io/acme/a:2");
        assert!(goes_to(&live("2", &["2"]), None).contains("remembers no other version"));
        let mut followed = live("2", &["2", "1"]);
        followed["spec"]["source"] = json!({"oci": {"reference": "ghcr.io/acme/a:stable", "updatePolicy": "Tag"}});
        assert_eq!(goes_to(&followed, None), "ghcr.io/acme/a:1");
    }

    #[test]
    fn a_version_is_named_by_number_or_digest() {
        let live = live("3", &["3", "2", "1"]);
        for to in ["1", &digest("1"), &digest("artifact 1")] {
            assert_eq!(goes_to(&live, Some(to)), "ghcr.io/acme/a:1", "{to}");
        }
        let unknown = goes_to(&live, Some("0.9"));
        assert!(
            unknown.contains("does not remember 0.9; it remembers 3 (sha256:"),
            "{unknown}"
        );
        let other = digest("another one");
        let found = earlier(&live, Some(&other)).unwrap();
        let reference = "ghcr.io/acme/a:3".to_owned();
        assert_eq!(
            found,
            Earlier::Artifact {
                reference,
                digest: other
            }
        );
    }

    #[test]
    fn the_version_of_a_plugin_with_a_file_needs_the_file() {
        let history = [
            json!({"version": "2", "digest": digest("2"), "file": "a.wasm"}),
            json!({"version": "1", "digest": digest("1"), "file": "a.wasm"}),
        ];
        let live = json!({"spec": {"source": {"file": "a.wasm", "digest": digest("2")}}, "status": {"digest": digest("2"), "history": history}});
        let found = earlier(&live, None).unwrap();
        let (name, digest) = ("a.wasm".to_owned(), digest("1"));
        assert_eq!(
            found,
            Earlier::File {
                name,
                digest: digest.clone()
            }
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.wasm");
        let missing = format!("{:#}", check_file(&file, &digest).unwrap_err());
        assert!(missing.contains("give the component with --file"), "{missing}");
        std::fs::write(&file, "2").unwrap();
        let other = check_file(&file, &digest).unwrap_err().to_string();
        assert!(other.contains(&format!("and the version had {digest}")), "{other}");
        std::fs::write(&file, "1").unwrap();
        assert!(check_file(&file, &digest).is_ok());
    }
}
