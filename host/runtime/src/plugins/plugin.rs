//! Owns the parts of one plugin: what all its versions share, its resource, and the version that runs. `task` decides what
//! happens to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_cluster::resources::host_resources::{HostResource, HostResourceApi};
use pilothouse_sandbox::PluginComponent;
use tokio::sync::watch;

use super::PluginContext;
use super::access::LastReview;
use crate::artifacts::{ArtifactRequest, FetchedArtifact};
use crate::lanes::lane::Lane;
use crate::plugins::fetch::artifact_memory::ArtifactMemory;
use crate::plugins::fetch::source::ComponentFile;
use crate::plugins::resource::desired::PluginRequest;
use crate::plugins::resource::inventory_write::InventoryWrite;
use crate::plugins::resource::state::PluginState;
use crate::plugins::version::prepare::PluginIdentity;

/// One plugin.
pub struct PluginTask {
    /// What it shares with the others.
    pub context: Arc<PluginContext>,
    /// What it has for all its versions.
    pub identity: PluginIdentity,
    /// What is known of it.
    pub plugin_state: Arc<PluginState>,
    /// Its resource, if it has one.
    pub own: Option<PluginResourceHandle>,
    /// What was written to it to be remembered.
    pub written: InventoryWrite,
    /// What is known of its artifact.
    pub artifact: ArtifactMemory,
    /// What was reviewed last of its account's rights.
    pub last_review: Mutex<Option<LastReview>>,
}

/// The version that runs.
pub struct RunningVersion {
    /// What it was brought for.
    pub request: Arc<PluginRequest>,
    /// Where it came from.
    pub loaded: LoadedComponent,
    /// The CRDs that it has to itself: their names, and the kinds for people. What else it said of itself is in its lanes.
    pub crds: BTreeMap<Arc<str>, Arc<str>>,
    /// The name that its manifest has.
    pub name: String,
    /// Its lanes, which are registered.
    pub lanes: Vec<Arc<Lane>>,
}

impl RunningVersion {
    /// The lane of the same primaries as another version's.
    pub fn lane_for(&self, other: &Lane) -> Option<&Arc<Lane>> {
        let same = |lane: &&Arc<Lane>| lane.grants.primary().same_kind(other.grants.primary());
        self.lanes.iter().find(same)
    }
}

/// A component that is loaded, and where it came from.
#[derive(Clone)]
pub struct LoadedComponent {
    /// The component.
    pub component: PluginComponent,
    /// What its source was; none if it was loaded before.
    pub found: Option<SourceStamp>,
    /// The artifact that it came from, if it is one.
    pub artifact: Option<Arc<LoadedArtifact>>,
}

impl LoadedComponent {
    /// The component of an artifact that the trust policy with this number takes.
    pub fn of_artifact(component: PluginComponent, artifact: LoadedArtifact, trust: u64) -> Self {
        Self {
            component,
            found: Some(SourceStamp::Artifact {
                digest: artifact.fetched.resolved.digest.clone(),
                trust,
            }),
            artifact: Some(Arc::new(artifact)),
        }
    }
}

/// An artifact whose component is loaded.
pub struct LoadedArtifact {
    /// What was asked for.
    pub request: Arc<ArtifactRequest>,
    /// The artifact, which keeps its place in the cache.
    pub fetched: FetchedArtifact,
}

/// A state of a source, by which another one is noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceStamp {
    /// A file as it was.
    File(ComponentFile),
    /// An artifact, by the digest of its manifest, and the number of the trust policy that took or refused it.
    Artifact {
        /// The digest.
        digest: String,
        /// The number of the trust policy.
        trust: u64,
    },
}

/// The Plugin resource of a plugin.
pub struct PluginResourceHandle {
    /// Where it is written.
    pub kind: HostResourceApi,
    /// As it was seen last.
    pub live: watch::Receiver<Arc<HostResource>>,
}
