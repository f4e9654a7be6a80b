//! Commands for OCI artifacts, and their common parts: access to registries, messages beside the result, and references
//! with digests. Artifacts and their transfer are implemented in pilothouse-artifact.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the comments of options are their help, in which [:TAG] is no link"
)]

#[cfg(test)]
mod bad_input;
mod cargo_package;
pub mod copy;
pub mod details;
mod fetch;
pub mod host;
mod progress;
pub mod pull;
pub mod push;
mod registries;
mod sbom;
pub mod tags;
pub mod verify;

use std::fmt::Display;

use anyhow::{Context as _, bail};
use pilothouse_artifact::{ArtifactStore, Client, Digest, DockerConfig, LayoutLocation, Limits, Location, Target};
use tracing_subscriber::EnvFilter;

use crate::options::log_fields::OneLine;
use crate::options::settings;
use progress::Bar;
pub use registries::RegistryArguments;

/// Context of a command: connections to registries, and output.
pub struct Session {
    client: Client,
    is_quiet: bool,
}

impl RegistryArguments {
    /// Reads the configuration of registries. No request is sent yet.
    pub fn session(self) -> anyhow::Result<Session> {
        let is_quiet = self.is_quiet();
        let filter = EnvFilter::try_new(settings::command_log_filter()).context("PILOTHOUSE_LOG is not a filter")?;
        let lines = tracing_subscriber::fmt()
            .fmt_fields(OneLine)
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .without_time()
            .with_target(false);
        // A second session of one process keeps the first one's log.
        let _ = lines.try_init();
        Ok(Session {
            client: Client::new(self.configuration()?, Limits::default()).through(settings::registry_proxy()?),
            is_quiet,
        })
    }
}

impl Session {
    /// Opens a location with the user's Docker credentials.
    pub fn open(&self, location: &Location) -> anyhow::Result<ArtifactStore> {
        Ok(self.client.open_with(location, &DockerConfig)?)
    }

    /// Prints a message for people. The result of a command goes to standard output instead.
    pub fn say(&self, text: impl Display) {
        if !self.is_quiet {
            eprintln!("{text}");
        }
    }

    /// Shows the progress of transfers, unless output is quiet.
    pub fn progress(&self, what: &'static str) -> Bar {
        Bar::new(what, self.is_quiet)
    }

    fn limits(&self) -> &Limits {
        self.client.limits()
    }
}

/// Runs a command's requests until they end or are interrupted; temporary files are removed afterwards.
pub fn wait_for<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the command")?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = work => done,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    });
    // A file system operation that hangs must not keep the process.
    runtime.shutdown_background();
    done
}

/// Fetches an artifact's component. Returns the location with its digest, and the component. Only digests are verified.
pub fn component(location: &Location, registries: RegistryArguments) -> anyhow::Result<(Location, Vec<u8>)> {
    let session = registries.session()?;
    wait_for(async {
        let found = fetch::find(&session, location).await?;
        let component = found.component(&session).await?;
        Ok((found.pinned, component))
    })
}

/// Checks that a location has a plugin's artifact.
pub fn check(location: &Location, registries: RegistryArguments) -> anyhow::Result<()> {
    let session = registries.session()?;
    wait_for(async { fetch::find(&session, location).await.map(drop) })
}

/// Returns the target of a location, or an error that says how to name one.
fn target_of(location: &Location) -> anyhow::Result<Target> {
    location.target().with_context(|| {
        format!(
            "{location} names no version; append :TAG or @sha256:DIGEST (`pilothouse tags {location}` lists the tags)"
        )
    })
}

/// Returns a reference with a digest, as in a Plugin's status.
pub fn pinned_to(reference: &str, digest: &str) -> anyhow::Result<Location> {
    Ok(pinned(&reference.parse()?, digest.parse()?))
}

/// Returns the location with a digest and without a tag, so that it always means the same artifact.
fn pinned(location: &Location, digest: Digest) -> Location {
    match location {
        Location::Registry(reference) => Location::Registry(reference.with_digest(digest)),
        Location::Layout(layout) => Location::Layout(LayoutLocation {
            tag: None,
            digest: Some(digest),
            ..layout.clone()
        }),
    }
}

/// Formats a size for people.
fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} bytes"),
        10_000..10_000_000 => format!("{} KiB", count >> 10),
        _ => format!("{} MiB", count >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_without_a_version_says_how_to_name_one() {
        let location: Location = "ghcr.io/acme/plugin".parse().unwrap();
        let error = target_of(&location).unwrap_err().to_string();
        assert!(error.contains("pilothouse tags ghcr.io/acme/plugin"), "{error}");
        let digest = Digest::of(b"");
        for (text, expected) in [
            ("ghcr.io/acme/plugin:1", "ghcr.io/acme/plugin"),
            ("oci-archive:a/b.tar:1", "oci-archive:a/b.tar"),
        ] {
            let location = pinned(&text.parse().unwrap(), digest);
            assert_eq!(location.to_string(), format!("{expected}@{digest}"));
        }
    }
}
