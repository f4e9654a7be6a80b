//! Names a primary of a lane. A lane is one controller of one plugin, known by its number.

use pilothouse_core::Name;
use pilothouse_core::reads::dependencies::read::Grouped;

/// Number of a lane, in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u32);

/// A primary of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrimaryRef {
    /// The lane.
    pub lane: LaneId,
    /// The primary.
    pub name: Name,
}

impl PrimaryRef {
    /// The primary of this name.
    pub fn new(lane: LaneId, name: Name) -> Self {
        Self { lane, name }
    }
}

impl Grouped for PrimaryRef {
    type Group = LaneId;

    fn group(&self) -> LaneId {
        self.lane
    }
}
