//! Objects whose owner waits until another plugin lets go of them.

use std::collections::{BTreeSet, HashMap};

use pilothouse_cluster::object::MANAGER_PREFIX;

use crate::lanes::primary::PrimaryRef;

/// Primaries that wait because another plugin applies what they desire, by that plugin's name.
#[derive(Default)]
pub struct CompetingPluginWaits(HashMap<String, BTreeSet<PrimaryRef>>);

impl CompetingPluginWaits {
    /// Lets a primary wait for the plugin with this field manager.
    pub fn wait_for(&mut self, manager: &str, primary_ref: &PrimaryRef) {
        self.0
            .entry(plugin_of(manager).to_owned())
            .or_default()
            .insert(primary_ref.clone());
    }

    /// Takes the primaries that waited for a plugin that was removed, or that now selects other primaries.
    pub fn take(&mut self, plugin: &str) -> BTreeSet<PrimaryRef> {
        self.0.remove(plugin).unwrap_or_default()
    }

    /// Forgets a deleted primary.
    pub fn forget(&mut self, primary_ref: &PrimaryRef) {
        self.0.retain(|_, waiting| {
            waiting.remove(primary_ref);
            !waiting.is_empty()
        });
    }
}

pub(crate) fn plugin_of(manager: &str) -> &str {
    manager.strip_prefix(MANAGER_PREFIX).unwrap_or(manager)
}
