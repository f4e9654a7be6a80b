//! Keeps the previews of plugins in preview, and tells how many of its objects a controller has looked at.

use pilothouse_core::Name;
use pilothouse_core::diff::preview::{Preview, Previews};

use crate::lanes::lane::Lane;
use crate::lanes::pause::is_paused;
use crate::lanes::primary::PrimaryRef;
use crate::state::SharedState;

/// Progress of the preview of one lane.
pub struct LanePreview {
    /// Set once the cache has what the lane needs.
    pub is_open: bool,
    /// Number of objects that it has to look at. Those that are being deleted or are paused do not count.
    pub objects: usize,
    /// Number of these that it has looked at.
    pub looked_at: usize,
}

impl SharedState {
    /// Previews of a lane's primaries, also of those that it no longer reconciles.
    pub fn previews(&self, lane: &Lane) -> Vec<(Name, Preview)> {
        let tables = self.tables.read();
        let previews = tables.previews.iter();
        let of_lane = previews.filter(|(primary_ref, _)| primary_ref.lane == lane.id);
        of_lane
            .map(|(primary_ref, preview)| (primary_ref.name.clone(), preview.clone()))
            .collect()
    }

    /// Number of a lane's primaries, and of those that it has looked at. A lane of an earlier controller looks at all.
    pub fn lane_preview(&self, lane: &Lane) -> LanePreview {
        let tables = self.tables.read();
        let primaries = tables.store.iter(lane.grants.primary(), None);
        let counted = primaries.filter(|object| {
            !object.deleting
                && !is_paused(object)
                && lane.selects(&object.name)
                && (lane.is_former || lane.reconciles(object))
        });
        let (mut objects, mut looked_at) = (0, 0);
        for object in counted {
            let primary_ref = PrimaryRef {
                lane: lane.id,
                name: object.name.clone(),
            };
            objects += 1;
            looked_at += usize::from(tables.previews.get(&primary_ref).is_some());
        }
        LanePreview {
            // Nothing is previewed of a kind that is optional and not served.
            is_open: tables.queue.is_open(lane.id) || lane.lacks_primary(),
            objects,
            looked_at,
        }
    }

    /// Limits the previews to this many primaries, and forgets all present ones.
    pub fn keep_previews(&self, most: usize) {
        self.tables.write().previews = Previews::of_at_most(most);
    }

    /// Returns `true` if the preview of a primary made from this basis is known.
    pub fn has_preview(&self, primary_ref: &PrimaryRef, basis: &str) -> bool {
        let tables = self.tables.read();
        let known = tables.previews.get(primary_ref);
        known.is_some_and(|known| known.basis == basis)
    }

    /// Stores the preview of a primary.
    pub fn put_preview(&self, primary_ref: &PrimaryRef, preview: Preview) {
        self.tables.write().previews.put(primary_ref.clone(), preview);
    }

    /// Stores that the changes of a primary are not known, unless its preview has this failure.
    pub fn fail_preview(&self, primary_ref: &PrimaryRef, failure: &str) {
        let mut tables = self.tables.write();
        let known = tables.previews.get(primary_ref);
        if known.is_none_or(|known| known.failure.as_deref() != Some(failure)) {
            tables
                .previews
                .put(primary_ref.clone(), Preview::failed(failure.to_owned()));
        }
    }
}
