//! Holds the parts of one plugin: what all its versions share, its resource, and the running version. `task` drives
//! them.

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
    /// Shared with the other plugins.
    pub context: Arc<PluginContext>,
    /// Shared by all its versions.
    pub identity: PluginIdentity,
    /// State of its startup.
    pub plugin_state: Arc<PluginState>,
    /// Its resource, if it has one.
    pub own: Option<PluginResourceHandle>,
    /// Inventory last written to it.
    pub written: InventoryWrite,
    /// State of its artifact.
    pub artifact: ArtifactMemory,
    /// Last review of its account's rights.
    pub last_review: Mutex<Option<LastReview>>,
}

/// The running version.
pub struct RunningVersion {
    /// Request that it fulfils.
    pub request: Arc<PluginRequest>,
    /// Its component and source.
    pub loaded: LoadedComponent,
    /// CRDs that it has to itself: names, and the kinds for people. The rest of its description is in its lanes.
    pub crds: BTreeMap<Arc<str>, Arc<str>>,
    /// Name in its manifest.
    pub name: String,
    /// Its registered lanes.
    pub lanes: Vec<Arc<Lane>>,
}

impl RunningVersion {
    /// The lane for the same primary kind as another version's lane.
    pub fn lane_for(&self, other: &Lane) -> Option<&Arc<Lane>> {
        let same = |lane: &&Arc<Lane>| lane.grants.primary().same_kind(other.grants.primary());
        self.lanes.iter().find(same)
    }
}

/// A loaded component and its source.
#[derive(Clone)]
pub struct LoadedComponent {
    /// The component.
    pub component: PluginComponent,
    /// State of its source; `None` if it was loaded before.
    pub found: Option<SourceStamp>,
    /// Artifact of the component, if it comes from one.
    pub artifact: Option<Arc<LoadedArtifact>>,
}

impl LoadedComponent {
    /// The component of an artifact that the trust policy with this number accepts.
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
    /// The request for it.
    pub request: Arc<ArtifactRequest>,
    /// The artifact, which stays in the cache as long as this exists.
    pub fetched: FetchedArtifact,
}

/// State of a source, to notice changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceStamp {
    /// State of a file.
    File(ComponentFile),
    /// An artifact, by the digest of its manifest, and the number of the trust policy that accepted or rejected it.
    Artifact {
        /// The digest.
        digest: String,
        /// The number of the trust policy.
        trust: u64,
    },
}

/// The Plugin resource of a plugin.
pub struct PluginResourceHandle {
    /// API to write it.
    pub kind: HostResourceApi,
    /// Its last observed state.
    pub live: watch::Receiver<Arc<HostResource>>,
}
