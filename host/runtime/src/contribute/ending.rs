//! Owns the end of a plugin's contributions: its books are closed, so that nothing is contributed any more, and what it
//! has contributed is found. Makes no request.

use std::sync::Arc;

use pilothouse_cluster::discovery::Served;
use pilothouse_cluster::object::Stored;

use super::answered::contributed_to;
use crate::hub::Hub;
use crate::lane::Lane;

/// An object that has fields which a plugin contributes.
pub struct Contribution {
    /// A lane of the plugin.
    pub lane: Arc<Lane>,
    /// How the cluster serves the object's kind.
    pub served: Served,
    /// The object as the cache has it.
    pub object: Arc<Stored>,
}

/// Closes the books of a plugin whose lanes are closed. What no primary claims any more is left as it is. Says whether
/// nothing of it is being written.
pub fn close_books(hub: &Hub, plugin: &Arc<str>) -> bool {
    let contributions = &mut hub.state.write().contributions;
    contributions.plugins.remove(plugin);
    !contributions.agenda.is_busy_with(plugin)
}

/// All that the plugin of these lanes contributes, as the cache has it; what several lanes may contribute to is named by
/// each of them.
pub fn all_contributed(hub: &Hub, lanes: &[Arc<Lane>]) -> Vec<Contribution> {
    let state = hub.state.read();
    let of_lane = |lane: &Arc<Lane>| {
        let objects = contributed_to(&state.store, lane).map(|(served, object)| Contribution {
            lane: lane.clone(),
            served,
            object: object.clone(),
        });
        objects.collect::<Vec<_>>()
    };
    lanes.iter().flat_map(of_lane).collect()
}
