//! Ends a plugin's contributions: closes its claims, so that nothing more is contributed, and finds the fields that it
//! has contributed. Makes no request.

use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;

use super::unclaimed::contributed_to;
use crate::hub::Hub;
use crate::lane::Lane;

/// An object that has fields which a plugin contributes.
pub struct Contribution {
    /// A lane of the plugin.
    pub lane: Arc<Lane>,
    /// How the cluster serves the object's kind.
    pub served: ServedKind,
    /// The object as the cache has it.
    pub object: Arc<CachedObject>,
}

/// Closes the claims of a plugin whose lanes are closed. What no primary claims any more is left as it is. Says whether
/// nothing of it is being written.
pub fn close_books(hub: &Hub, plugin: &Arc<str>) -> bool {
    let contributions = &mut hub.state.write().contributions;
    contributions.plugins.remove(plugin);
    !contributions.target_queue.is_busy_with(plugin)
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
