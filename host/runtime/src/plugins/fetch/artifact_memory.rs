//! Owns what is known of a plugin's artifact beside the version that runs.

use parking_lot::Mutex;

use crate::artifacts::ResolvedArtifact;

/// What is known of a plugin's artifact beside what runs.
#[derive(Default)]
pub struct ArtifactMemory(Mutex<ArtifactMemoryState>);

#[derive(Default)]
struct ArtifactMemoryState {
    /// What was meant when the registry was asked last, or when a start did without it.
    last: Option<ResolvedArtifact>,
    /// The number of the trust policy at that time.
    trust: u64,
    /// Whether the registry has not been asked since the start.
    is_unasked: bool,
    /// Whether the registry means another artifact than the one that runs, which has not taken over yet.
    has_moved: bool,
}

impl ArtifactMemory {
    /// The digest that was meant last, and the number of the trust policy at that time.
    pub fn last(&self) -> Option<(String, u64)> {
        let state = self.0.lock();
        Some((state.last.as_ref()?.digest.clone(), state.trust))
    }

    /// The number of the trust policy when an artifact was meant last.
    pub fn trust(&self) -> u64 {
        self.0.lock().trust
    }

    /// An artifact is meant, or none is known to be.
    pub fn set(&self, last: Option<ResolvedArtifact>, trust: u64, is_unasked: bool) {
        let mut state = self.0.lock();
        (state.last, state.trust, state.is_unasked) = (last, trust, is_unasked);
    }

    /// Whether the registry has not been asked since the start.
    pub fn is_unasked(&self) -> bool {
        self.0.lock().is_unasked
    }

    /// The registry has answered.
    pub fn was_asked(&self) {
        self.0.lock().is_unasked = false;
    }

    /// Whether the registry means another artifact than the one that runs.
    pub fn has_moved(&self) -> bool {
        self.0.lock().has_moved
    }

    /// Notes whether it does.
    pub fn note_move(&self, has_moved: bool) {
        self.0.lock().has_moved = has_moved;
    }
}
