//! Owns whether another plugin, which has applied an object, still has to do with its owner. An object belongs to one
//! plugin; it passes to another only when the first is gone, or does not select the owner any more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_cluster::object::{CachedObject, MANAGER_PREFIX};
use pilothouse_core::diff::CompetingPlugin;
use pilothouse_core::ownership::Owner;

use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::lanes::snapshot::Lanes;

/// The plugins that there are.
#[derive(Default)]
pub struct KnownPlugins(Mutex<Plugins>);

#[derive(Default)]
struct Plugins {
    names: BTreeSet<Arc<str>>,
    /// Those that other hosts of the cluster run.
    elsewhere: BTreeSet<Arc<str>>,
    /// Whether these are all plugins of the cluster: the host follows the Plugin resources and has listed them.
    is_complete: bool,
}

impl KnownPlugins {
    /// There is a plugin of this name.
    pub fn enter(&self, name: &Arc<str>) {
        self.0.lock().names.insert(name.clone());
    }

    /// There is no plugin of this name any more.
    pub fn leave(&self, name: &str) {
        self.0.lock().names.remove(name);
    }

    /// Other hosts run these plugins, too.
    pub fn are_also_elsewhere(&self, names: &BTreeSet<Arc<str>>) {
        self.0.lock().elsewhere.extend(names.iter().cloned());
    }

    /// Other hosts run these plugins, and no others. Returns those that they no longer run.
    pub fn are_elsewhere(&self, names: BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        let mut plugins = self.0.lock();
        let before = std::mem::replace(&mut plugins.elsewhere, names);
        before.difference(&plugins.elsewhere).cloned().collect()
    }

    /// The plugins that have entered, and those elsewhere, are all plugins of the cluster.
    pub fn are_complete(&self) {
        self.0.lock().is_complete = true;
    }

    /// Whether there may be a plugin of this name.
    pub fn may_have(&self, name: &str) -> bool {
        let plugins = self.0.lock();
        plugins.names.contains(name) || plugins.elsewhere.contains(name) || !plugins.is_complete
    }
}

/// The primaries that wait because another plugin applies what they desire, by that plugin's name.
#[derive(Default)]
pub struct CompetingPluginWaits(HashMap<String, BTreeSet<PrimaryRef>>);

impl CompetingPluginWaits {
    /// A primary waits for the plugin with this field manager.
    pub fn wait_for(&mut self, manager: &str, primary_ref: &PrimaryRef) {
        self.0
            .entry(plugin_of(manager).to_owned())
            .or_default()
            .insert(primary_ref.clone());
    }

    /// A plugin is gone, or selects other primaries: those that waited for what it applied.
    pub fn take(&mut self, plugin: &str) -> BTreeSet<PrimaryRef> {
        self.0.remove(plugin).unwrap_or_default()
    }

    /// A primary is gone.
    pub fn forget(&mut self, primary_ref: &PrimaryRef) {
        self.0.retain(|_, waiting| {
            waiting.remove(primary_ref);
            !waiting.is_empty()
        });
    }
}

fn plugin_of(manager: &str) -> &str {
    manager.strip_prefix(MANAGER_PREFIX).unwrap_or(manager)
}

/// Another plugin that applies a child of a lane's primary, if there is one. `primary` is the owner as the cache has it.
pub fn competing_plugin<'a>(
    lanes: &Lanes,
    known: &KnownPlugins,
    lane: &Lane,
    (owner, primary): (&Owner, Option<&CachedObject>),
    child: &'a CachedObject,
) -> Option<CompetingPlugin<'a>> {
    let managers = child.appliers().filter(|manager| *manager != lane.writer.manager());
    let rivals = managers.map(|manager| CompetingPlugin {
        manager,
        claims: claims(lanes, known, manager, owner, primary),
    });
    // One that claims the object counts before one that does not.
    rivals.max_by_key(|rival| rival.claims)
}

/// Whether the plugin with this field manager selects the owner, or may do so.
fn claims(lanes: &Lanes, known: &KnownPlugins, manager: &str, owner: &Owner, primary: Option<&CachedObject>) -> bool {
    let plugin = plugin_of(manager);
    let mut lanes = lanes.iter().filter(|lane| *lane.plugin == *plugin).peekable();
    if lanes.peek().is_none() {
        return known.may_have(plugin);
    }
    lanes.any(|lane| {
        let steers = || primary.is_none_or(|primary| lane.reconciles(primary));
        lane.grants.primary().same_kind(&owner.kind) && lane.selects(&owner.name) && steers()
    })
}

/// Whether another plugin's lane reconciles an object of a lane's primary kind.
pub fn is_reconciled_by_another(lanes: &Lanes, lane: &Lane, object: &CachedObject) -> bool {
    lanes.iter().any(|other| {
        other.plugin != lane.plugin
            && other.grants.primary().same_kind(lane.grants.primary())
            && other.reconciles(object)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_another_host_runs_is_there() {
        let (known, here, elsewhere) = (
            KnownPlugins::default(),
            "here".into(),
            BTreeSet::from(["elsewhere".into()]),
        );
        known.enter(&here);
        known.are_complete();
        assert!(known.may_have("here") && !known.may_have("elsewhere"));
        known.are_also_elsewhere(&elsewhere);
        assert!(known.may_have("elsewhere"));
        // It moves here, and back.
        known.are_also_elsewhere(&BTreeSet::from(["here".into()]));
        known.leave("here");
        assert!(known.may_have("here"));
        assert_eq!(known.are_elsewhere(BTreeSet::from(["here".into()])), elsewhere);
        assert!(known.may_have("here") && !known.may_have("elsewhere"));
    }
}
