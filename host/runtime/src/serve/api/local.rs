//! Lets a process query the host that it runs itself. No rights are checked: whoever runs a host may see all that it
//! sees. `objects` makes the documents.

use std::sync::Arc;

use pilothouse_core::{Kind, Name};

use super::documents::ObjectDocument;
use super::objects::lookup;
use super::status::ProcessFacts;
use crate::host::Handle;
use crate::lanes::lane::Lane;

impl Handle {
    /// Explains an object, as docs/api.md describes, without the facts about the process.
    pub fn explain(&self, kind: &Kind, name: &Name) -> ObjectDocument {
        let parts = self.parts();
        let process = ProcessFacts {
            version: "",
            instance: String::new(),
            started: 0,
        };
        let known = lookup(&process, &parts.context, &parts.registry, kind, name);
        let places = known.places();
        known.told(&places)
    }

    /// The first objects that a plugin reconciles, by kind and name.
    pub fn primaries_of(&self, plugin: &str, most: usize) -> Vec<(Kind, Name)> {
        let context = self.parts().context;
        let lanes = context.state.lanes();
        let of_plugin = lanes.iter().filter(|lane| &*lane.plugin == plugin);
        let of_lane = |lane: &Arc<Lane>| {
            let kind = lane.grants.primary().clone();
            let primaries = context.state.primaries_of(lane).into_iter();
            let reconciled = primaries.filter(|object| lane.reconciles(object));
            let named = reconciled.map(move |object| (kind.clone(), object.name.clone()));
            named.collect::<Vec<_>>()
        };
        let mut primaries: Vec<(Kind, Name)> = of_plugin.flat_map(of_lane).collect();
        primaries.sort();
        primaries.dedup();
        primaries.truncate(most);
        primaries
    }
}
