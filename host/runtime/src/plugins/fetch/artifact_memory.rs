//! Remembers the state of a plugin's artifact apart from the running version.

use parking_lot::Mutex;

use crate::artifacts::ResolvedArtifact;

/// State of a plugin's artifact apart from the running version.
#[derive(Default)]
pub struct ArtifactMemory(Mutex<ArtifactMemoryState>);

#[derive(Default)]
struct ArtifactMemoryState {
    /// The artifact last resolved, or taken at a start without the registry.
    last: Option<ResolvedArtifact>,
    /// Number of the trust policy at that time.
    trust: u64,
    /// Set if the registry has not been asked since the start.
    is_unasked: bool,
    /// Set if the reference resolves to another artifact, which has not taken over yet.
    has_moved: bool,
}

impl ArtifactMemory {
    /// Digest last resolved, and the number of the trust policy at that time.
    pub fn last(&self) -> Option<(String, u64)> {
        let state = self.0.lock();
        Some((state.last.as_ref()?.digest.clone(), state.trust))
    }

    /// Number of the trust policy when an artifact was last resolved.
    pub fn trust(&self) -> u64 {
        self.0.lock().trust
    }

    /// Records the resolved artifact, or that none is known.
    pub fn set(&self, last: Option<ResolvedArtifact>, trust: u64, is_unasked: bool) {
        let mut state = self.0.lock();
        (state.last, state.trust, state.is_unasked) = (last, trust, is_unasked);
    }

    /// Returns `true` if the registry has not been asked since the start.
    pub fn is_unasked(&self) -> bool {
        self.0.lock().is_unasked
    }

    /// Records that the registry has answered.
    pub fn record_resolved(&self) {
        self.0.lock().is_unasked = false;
    }

    /// Returns `true` if the reference resolves to another artifact than the running one.
    pub fn has_moved(&self) -> bool {
        self.0.lock().has_moved
    }

    /// Records whether the artifact has moved.
    pub fn record_move(&self, has_moved: bool) {
        self.0.lock().has_moved = has_moved;
    }
}
