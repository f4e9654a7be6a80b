//! Finds the artifact that a location points at: the digest first, and everything else by the digest.

use anyhow::Context as _;
use pilothouse_artifact::{ArtifactStore, Digest, Location, PluginManifest};

use super::{Session, pinned, target_of};

/// A plugin's artifact.
pub struct Found {
    /// Its store.
    pub store: ArtifactStore,
    /// The location with the artifact's digest.
    pub pinned: Location,
    /// The digest of its manifest.
    pub digest: Digest,
    /// The manifest.
    pub manifest: PluginManifest,
}

/// Finds a plugin's artifact.
pub async fn find(session: &Session, location: &Location) -> anyhow::Result<Found> {
    let target = target_of(location)?;
    let store = session.open(location)?;
    let resolved = store.resolve(&target).await?;
    let pinned = pinned(location, resolved.digest);
    let bytes = store.manifest(resolved.digest).await?;
    let manifest = PluginManifest::parse(&pinned.to_string(), &bytes, session.limits().blob)?;
    Ok(Found {
        store,
        pinned,
        digest: resolved.digest,
        manifest,
    })
}

impl Found {
    /// Fetches the component into memory, and checks that it has the digest that the manifest names.
    pub async fn component(&self, session: &Session) -> anyhow::Result<Vec<u8>> {
        let mut component = Vec::new();
        let progress = session.progress("fetching");
        let fetched = self.store.blob(&self.manifest.component, &mut component, &progress);
        fetched
            .await
            .with_context(|| format!("cannot fetch the component of {}", self.pinned))?;
        Ok(component)
    }
}
