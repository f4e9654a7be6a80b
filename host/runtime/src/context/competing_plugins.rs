//! Decides whether another plugin that has applied an object still claims it. An object belongs to one plugin; another
//! one gets it only when the first is removed, or no longer selects the owner.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::diff::CompetingPlugin;
use pilothouse_core::ownership::Owner;

use crate::lanes::lane::Lane;
use crate::lanes::snapshot::Lanes;
use crate::state::tables::competing_waits::plugin_of;

/// The plugins of the cluster, as far as known.
#[derive(Default)]
pub struct KnownPlugins(Mutex<Plugins>);

#[derive(Default)]
struct Plugins {
    names: BTreeSet<Arc<str>>,
    /// Plugins that other hosts of the cluster run.
    elsewhere: BTreeSet<Arc<str>>,
    /// Set if these are all plugins of the cluster: the host follows the Plugin resources and has listed them.
    is_complete: bool,
}

impl KnownPlugins {
    /// Adds a plugin.
    pub fn enter(&self, name: &Arc<str>) {
        self.0.lock().names.insert(name.clone());
    }

    /// Removes a plugin.
    pub fn leave(&self, name: &str) {
        self.0.lock().names.remove(name);
    }

    /// Adds plugins that other hosts run.
    pub fn add_elsewhere(&self, names: &BTreeSet<Arc<str>>) {
        self.0.lock().elsewhere.extend(names.iter().cloned());
    }

    /// Replaces the plugins that other hosts run. Returns those that they no longer run.
    pub fn set_elsewhere(&self, names: BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        let mut plugins = self.0.lock();
        let before = std::mem::replace(&mut plugins.elsewhere, names);
        before.difference(&plugins.elsewhere).cloned().collect()
    }

    /// Records that the known plugins are all plugins of the cluster.
    pub fn set_complete(&self) {
        self.0.lock().is_complete = true;
    }

    /// Returns `true` if there may be a plugin of this name.
    pub fn may_have(&self, name: &str) -> bool {
        let plugins = self.0.lock();
        plugins.names.contains(name) || plugins.elsewhere.contains(name) || !plugins.is_complete
    }
}

/// Another plugin that applies a child of a lane's primary, if there is one. `primary` is the cached owner.
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
    // A plugin that claims the object takes precedence over one that does not.
    rivals.max_by_key(|rival| rival.claims)
}

/// Returns `true` if the plugin with this field manager selects the owner, or may select it.
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

/// Returns `true` if another plugin's lane reconciles an object of a lane's primary kind.
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
        known.set_complete();
        assert!(known.may_have("here") && !known.may_have("elsewhere"));
        known.add_elsewhere(&elsewhere);
        assert!(known.may_have("elsewhere"));
        // It moves here, and back.
        known.add_elsewhere(&BTreeSet::from(["here".into()]));
        known.leave("here");
        assert!(known.may_have("here"));
        assert_eq!(known.set_elsewhere(BTreeSet::from(["here".into()])), elsewhere);
        assert!(known.may_have("here") && !known.may_have("elsewhere"));
    }
}
