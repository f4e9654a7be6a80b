//! Maintains the inventory of a plugin's versions in its resource: the kinds that they own and contribute to, and their
//! finalizers. It is written before anything is created, and shortened when nothing is left of undeclared entries. A
//! plugin of the command line has no resource, and the inventory of the host's options.
//!
//! Two hosts may run two versions of the plugin at the same time. So the resource is the source of truth, written only
//! if it is unchanged since it was read, and a running version restores its own entries if they were removed.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::error::chain;
use pilothouse_cluster::resources::host_resources::{HostResource, KINDS_MANAGER};
use pilothouse_cluster::resources::install::is_defined;
use pilothouse_core::Kind;
use pilothouse_core::plugin::grants::Grants;
use pilothouse_core::plugin::inventory::{Inventory, Made};
use serde_json::json;
use tokio::time::Instant;

use super::inventory_write::{Cleared, InventoryEntry, InventoryScan};
use crate::lanes::lane::{Lane, RunMode};
use crate::plugins::PluginContext;
use crate::plugins::plugin::{PluginResourceHandle, PluginTask, RunningVersion};
use crate::plugins::version::prepare::former_lanes;
use crate::state::tables::claims::GivenUp;

/// Interval of the checks for leftovers of earlier versions.
const LOOK: Duration = Duration::from_secs(10);

/// Time without leftovers before an entry is removed: another host may be about to make more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(20);

/// Time to wait for the resource as another write has left it.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// Reason why nothing was written.
enum SendError {
    /// The resource has changed since it was read.
    Outdated,
    /// The request failed.
    Failed(String),
}

/// Change of an inventory entry.
enum InventoryChange {
    /// Its last object is gone.
    Gone(Grants, Kind, Made),
    /// Its kind is served in another version.
    Moved(Grants, Kind, Kind),
    /// The kind of its primaries is served in another version.
    PrimaryMoved(Kind, Kind),
    /// No primary has the finalizer any more.
    Released(Kind, String),
}

impl InventoryChange {
    fn apply(&self, known: &Inventory) -> Inventory {
        match self {
            Self::Gone(grants, kind, made) => known.forget(grants, kind, *made),
            Self::Moved(grants, from, to) => known.moved(grants, from, to),
            Self::PrimaryMoved(from, to) => known.primary_moved(from, to),
            Self::Released(primary, finalizer) => known.forget_finalizer(primary, finalizer),
        }
    }
}

impl PluginTask {
    /// Kinds and finalizers that the plugin's versions use, or may use.
    pub fn known(&self) -> Inventory {
        let own = self.own.as_ref();
        own.map_or_else(
            || self.context.options.inventory.clone(),
            |own| self.written.known(&own.live.borrow()),
        )
    }

    /// Adds all that these lanes make to the inventory, before they take over. Nothing is made in preview.
    pub async fn remember(&self, lanes: &[Arc<Lane>]) {
        self.until_done(|| self.write(|known| made_by(known, lanes))).await;
    }

    /// Maintains the inventory for a running version; ends when another inventory has to be followed.
    pub async fn maintain_inventory(&self, running: &RunningVersion) {
        let Some(own) = &self.own else {
            return std::future::pending().await;
        };
        let mut live = own.live.clone();
        loop {
            live.borrow_and_update();
            let known = self.known();
            // Another host may have removed what this version makes.
            if !is_remembered(&known, &running.lanes) {
                self.write_or_say(|known| made_by(known, &running.lanes)).await;
            } else if !is_followed(&known, &running.lanes) {
                return;
            }
            let looks = running
                .lanes
                .iter()
                .any(|lane| lane.is_former || !lane.former.is_empty() || !lane.former_finalizers.is_empty());
            let gone = tokio::select! {
                changed = live.changed() => changed.is_err(),
                () = tokio::time::sleep_until(self.written.looked() + LOOK), if looks => {
                    // Boxed: the future of every running plugin would reserve space for it, and it runs rarely.
                    let changes = Box::pin(self.check_leftovers(&running.lanes)).await;
                    if !changes.is_empty() {
                        self.write_or_say(|known| changes.iter().fold(known.clone(), |known, change| change.apply(&known))).await;
                    }
                    false
                }
            };
            if gone {
                return std::future::pending().await;
            }
        }
    }

    /// Checks once for leftovers of all entries. Its observations outlive a version; a check that is cancelled is
    /// repeated.
    async fn check_leftovers(&self, lanes: &[Arc<Lane>]) -> Vec<InventoryChange> {
        let InventoryScan {
            mut cleared, mut asked, ..
        } = self.written.take_scan();
        let news = self.what_is_left(lanes, &mut cleared, &mut asked).await;
        self.written.put_scan(InventoryScan {
            cleared,
            asked,
            looked: Some(Instant::now()),
        });
        news
    }

    /// Changes of all entries beyond what these lanes make.
    async fn what_is_left(
        &self,
        lanes: &[Arc<Lane>],
        cleared: &mut Cleared,
        asked: &mut GivenUp,
    ) -> Vec<InventoryChange> {
        let host = &self.context.host;
        let mut news = Vec::new();
        let mut is_over = |lane: &Lane, entry: InventoryEntry, is_cleared: bool| {
            let what = (lane.grants.primary().clone(), entry);
            if !is_cleared {
                cleared.remove(&what);
                return false;
            }
            cleared.entry(what).or_insert_with(Instant::now).elapsed() >= FORGOTTEN_AFTER
        };
        for lane in lanes {
            host.state.give_up(lane, asked);
            let primary = lane.grants.primary();
            if lane.is_former && host.kinds.is_missing(primary) {
                if let Some(served) = self.served_elsewhere(primary).await {
                    news.push(InventoryChange::PrimaryMoved(primary.clone(), served));
                    continue;
                }
                let is_undefined = matches!(is_defined(&self.context.client, primary).await, Ok(false));
                if is_over(lane, InventoryEntry::Kind(primary.clone(), Made::Owned), is_undefined) {
                    self.collect(lane).await;
                }
            }
            for former in lane.former.iter() {
                let kind = &former.kind;
                let is_missing = host.kinds.is_missing(kind);
                if is_missing && let Some(served) = self.served_elsewhere(kind).await {
                    news.push(InventoryChange::Moved(lane.grants.clone(), kind.clone(), served));
                    continue;
                }
                let is_gone = is_missing && self.is_served_nowhere(kind).await;
                for made in Made::ALL.into_iter().filter(|made| former.reach_of(*made).is_some()) {
                    if is_over(
                        lane,
                        InventoryEntry::Kind(kind.clone(), made),
                        is_gone || host.state.is_cleared(lane, former, made),
                    ) {
                        tracing::info!(
                            lane = lane.title(), %kind, ?made, "all objects of an earlier version of the plugin are gone"
                        );
                        news.push(InventoryChange::Gone(lane.grants.clone(), kind.clone(), made));
                    }
                }
            }
            let listed = lane.finalizer.iter().filter(|_| lane.is_former);
            for finalizer in listed.chain(lane.former_finalizers.iter()) {
                let is_gone = host.kinds.is_missing(primary) && self.is_served_nowhere(primary).await;
                let is_released = is_gone || host.state.is_released(lane, finalizer);
                if is_over(lane, InventoryEntry::Finalizer(finalizer.clone()), is_released) {
                    news.push(InventoryChange::Released(primary.clone(), finalizer.clone()));
                }
            }
        }
        news
    }

    /// Deletes the children of a controller whose primaries are all gone with their CRD, unless the garbage collector
    /// does. A failed deletion is retried in the next check.
    async fn collect(&self, lane: &Lane) {
        for (served, child) in self.context.host.state.left_behind(lane) {
            let (kind, object) = (&served.kind, &child.name);
            match lane.writer.delete(&served, &child).await {
                Ok(()) => {
                    tracing::info!(lane = lane.title(), %kind, %object, "collected, since the definition of its owner is gone");
                }
                Err(error) => tracing::debug!(lane = lane.title(), %kind, %object, %error, "cannot collect; retrying"),
            }
        }
    }

    /// The version in which a kind is served, if its own is not.
    async fn served_elsewhere(&self, kind: &Kind) -> Option<Kind> {
        // An error is retried in the next check.
        let served = self.context.informers.served_version(kind).await.ok().flatten();
        served.filter(|served| served != kind)
    }

    async fn is_served_nowhere(&self, kind: &Kind) -> bool {
        matches!(self.context.informers.served_version(kind).await, Ok(None))
    }

    /// Adapts the lanes to the inventory: exactly the listed kinds of earlier versions are watched.
    pub async fn follow_memory(&self, mut running: RunningVersion) -> RunningVersion {
        let PluginContext { host, informers, .. } = &*self.context;
        let known = self.known();
        let (mut lanes, formers): (Vec<_>, Vec<_>) = running.lanes.into_iter().partition(|lane| !lane.is_former);
        let mut left = formers;
        for wanted in former_lanes(&lanes, &known, host) {
            let same = |lane: &Arc<Lane>| lane.grants.primary() == wanted.grants.primary();
            if let Some(index) = left.iter().position(same) {
                let mut lane = left.swap_remove(index);
                self.exchange(&mut lane, |lane| Lane {
                    finalizer: wanted.finalizer.clone(),
                    former_finalizers: wanted.former_finalizers.clone(),
                    former: wanted.former.clone(),
                    ..lane.clone()
                });
                lanes.push(lane);
            } else {
                informers.add(&wanted);
                host.register_lane(&wanted);
                lanes.push(wanted);
            }
        }
        for lane in lanes.iter_mut().filter(|lane| !lane.is_former) {
            let former = known.former(&lane.grants);
            self.exchange(lane, |lane| Lane {
                former: former.into(),
                former_finalizers: known
                    .former_finalizers(lane.grants.primary(), lane.finalizer.as_deref())
                    .into(),
                ..lane.clone()
            });
        }
        self.remove(&left).await;
        running.lanes = lanes;
        self.plugin_state.set(|known| known.lanes.clone_from(&running.lanes));
        self.keep_series(&running.lanes);
        running
    }

    fn exchange(&self, lane: &mut Arc<Lane>, change: impl FnOnce(&Lane) -> Lane) {
        let other = Arc::new(change(lane));
        let is_same = *other.former == *lane.former && other.finalizer == lane.finalizer;
        if is_same && other.former_finalizers == lane.former_finalizers {
            return;
        }
        let PluginContext { host, informers, .. } = &*self.context;
        host.state.exchange_lane(&other);
        informers.add(&other);
        informers.remove(lane);
        host.state.push_all(&other);
        *lane = other;
    }

    async fn write_or_say(&self, change: impl Fn(&Inventory) -> Inventory) {
        if let Err(problem) = self.write(change).await {
            tracing::debug!(plugin = &*self.identity.name, "{problem}; retrying");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Changes the inventory. If the resource has changed meanwhile, the change is applied to its new state.
    async fn write(&self, change: impl Fn(&Inventory) -> Inventory) -> Result<(), String> {
        let Some(own) = &self.own else { return Ok(()) };
        let mut seen = own.live.clone();
        loop {
            let live = seen.borrow_and_update().clone();
            let known = self.written.known(&live);
            let inventory = change(&known);
            if inventory == known {
                return Ok(());
            }
            let turn = self.context.starting.acquire().await;
            let sent = self.send(own, &live, &inventory).await;
            drop(turn);
            match sent {
                Ok(version) => {
                    self.written.written(live.uid.clone(), version, inventory);
                    return Ok(());
                }
                Err(SendError::Outdated) => {
                    if tokio::time::timeout(SEEN_WITHIN, seen.changed()).await.is_err() {
                        return Err("the Plugin changes faster than it is seen".to_owned());
                    }
                }
                Err(SendError::Failed(problem)) => {
                    return Err(format!("cannot write to the Plugin's status what it makes: {problem}"));
                }
            }
        }
    }

    /// Writes the inventory. Returns the resourceVersion that has it; `None` if the server cannot store it.
    async fn send(
        &self,
        own: &PluginResourceHandle,
        live: &HostResource,
        inventory: &Inventory,
    ) -> Result<Option<String>, SendError> {
        let Inventory {
            owned,
            contributed,
            finalizers,
        } = inventory;
        let whole = json!({"ownedKinds": owned, "contributedKinds": contributed, "finalizers": finalizers});
        // Fields of an older CRD.
        let least = json!({"ownedKinds": owned});
        let mut refusal = None;
        for status in [whole, least] {
            let written = Box::pin(own.kind.apply_unchanged_status(live, &status, KINDS_MANAGER)).await;
            match written {
                Ok(resource) if refusal.is_none() => return Ok(Some(resource.resource_version)),
                Ok(_) => break,
                // There is nothing to record for a deleted resource.
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) if error.is_for_good() => refusal = Some(chain(&error)),
                Err(error) if error.code() == Some(409) => return Err(SendError::Outdated),
                Err(error) => return Err(SendError::Failed(chain(&error))),
            }
        }
        // A permanent rejection does not prevent a plugin from running.
        tracing::warn!(
            plugin = &*live.name,
            problem = refusal,
            "the Plugin's status cannot remember which kinds it owns; install the CRD of this host (--install-crds does so): \
             until then what a later version does not declare any more may stay"
        );
        Ok(None)
    }
}

/// Adds all that lanes make to an inventory.
fn made_by(known: &Inventory, lanes: &[Arc<Lane>]) -> Inventory {
    known.and(making(lanes))
}

/// Returns `true` if an inventory has all that lanes make.
fn is_remembered(known: &Inventory, lanes: &[Arc<Lane>]) -> bool {
    known.covers(making(lanes))
}

fn making(lanes: &[Arc<Lane>]) -> impl Iterator<Item = (&Grants, Option<&str>)> {
    let makes = lanes
        .iter()
        .filter(|lane| lane.mode != RunMode::Preview && !lane.is_former);
    makes.map(|lane| (&lane.grants, lane.finalizer.as_deref()))
}

/// Returns `true` if lanes watch exactly the kinds of earlier versions that the inventory lists.
fn is_followed(known: &Inventory, lanes: &[Arc<Lane>]) -> bool {
    let own = lanes.iter().filter(|lane| !lane.is_former).map(|lane| &lane.grants);
    let left = known.without_controller(own);
    let formers = lanes.iter().filter(|lane| lane.is_former);
    let has_lane = |(primary, finalizer): &(Kind, Option<String>)| {
        let mut same = formers.clone();
        same.any(|lane| lane.grants.primary() == primary && lane.finalizer == *finalizer)
    };
    let follows = |lane: &Arc<Lane>| {
        let finalizers = known.former_finalizers(lane.grants.primary(), lane.finalizer.as_deref());
        *lane.former == *known.former(&lane.grants) && *lane.former_finalizers == *finalizers
    };
    lanes.iter().all(follows) && formers.clone().count() == left.len() && left.iter().all(has_lane)
}
