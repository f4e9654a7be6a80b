//! Owns what a plugin's resource remembers of the kinds that its versions own: written before anything of them is made,
//! and shortened when nothing is left of a kind that is not owned any more. A plugin of the command line has no resource,
//! and remembers nothing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::own::KINDS_MANAGER;
use pilothouse_core::former::{self, OwnedKind};
use pilothouse_core::grants::Grants;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::Fleet;
use super::finish::Own;
use super::life::{Life, Running};
use crate::lane::{Lane, Mode};

/// How often it is looked whether anything is left of the kinds of earlier versions.
const LOOK: Duration = Duration::from_secs(10);

/// What is remembered, and of the resource with which uid; none before it was read.
#[derive(Default)]
pub struct Memory(Mutex<Option<(Arc<str>, Vec<OwnedKind>)>>);

impl Memory {
    fn known(&self, own: &Own) -> Vec<OwnedKind> {
        let live = own.live.borrow();
        let mut known = self.0.lock();
        match &*known {
            // What was written last may not have been seen yet.
            Some((uid, kinds)) if *uid == live.uid => kinds.clone(),
            _ => {
                let kinds = read(&live.status);
                *known = Some((live.uid.clone(), kinds.clone()));
                kinds
            }
        }
    }
}

impl Life {
    /// The kinds of which the plugin has made objects, or may have.
    pub fn owned_kinds(&self) -> Vec<OwnedKind> {
        self.own.as_ref().map(|own| self.memory.known(own)).unwrap_or_default()
    }

    /// Sees to it that the kinds which these lanes own are remembered, before they take over. In preview nothing is made.
    pub async fn remember(&self, lanes: &[Arc<Lane>]) {
        let makes = lanes.iter().filter(|lane| lane.mode != Mode::Preview);
        let controllers: Vec<&Grants> = makes.map(|lane| &lane.grants).collect();
        self.until_done(|| self.write(former::remember(&self.owned_kinds(), controllers.iter().copied())))
            .await;
    }

    /// Waits until it has forgotten a kind, because nothing is left of it.
    pub async fn forget(&self, running: &Running) {
        if running.lanes.iter().all(|lane| lane.former.is_empty()) {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(LOOK).await;
            // In a box of its own: every plugin that runs has room for this, and few ever come here.
            let known = Box::pin(self.what_is_left(&running.lanes)).await;
            if known == self.owned_kinds() {
                continue;
            }
            match self.write(known).await {
                Ok(()) => return,
                Err(problem) => tracing::warn!(plugin = &*self.identity.name, "{problem}; it is tried again"),
            }
        }
    }

    /// What there is to remember beside what these lanes own.
    async fn what_is_left(&self, lanes: &[Arc<Lane>]) -> Vec<OwnedKind> {
        let Fleet { hub, watches, .. } = &*self.fleet;
        let mut known = self.owned_kinds();
        for lane in lanes {
            for former in lane.former.iter() {
                let kind = &former.kind;
                let is_gone = if hub.served.is_missing(kind) {
                    match watches.served_version(kind).await {
                        Ok(Some(served)) => {
                            known = former::moved(&known, &lane.grants, kind, &served);
                            false
                        }
                        Ok(None) => true,
                        // It is asked for again.
                        Err(_) => false,
                    }
                } else {
                    hub.is_childless(lane, former)
                };
                if is_gone {
                    tracing::info!(lane = lane.title(), %kind, "nothing is left of a kind that is not owned any more");
                    known = former::forget(&known, &lane.grants, kind);
                }
            }
        }
        known
    }

    /// Watches for what is remembered, and for no other kind of earlier versions.
    pub fn follow_memory(&self, mut running: Running) -> Running {
        let known = self.owned_kinds();
        for lane in &mut running.lanes {
            let former = former::former(&known, &lane.grants);
            if *lane.former == *former {
                continue;
            }
            let other = Arc::new(Lane {
                former: former.into(),
                ..(**lane).clone()
            });
            self.fleet.hub.exchange_lane(&other);
            self.fleet.watches.add(&other);
            self.fleet.watches.remove(lane);
            *lane = other;
        }
        self.standing.set(|known| known.lanes.clone_from(&running.lanes));
        running
    }

    async fn write(&self, kinds: Vec<OwnedKind>) -> Result<(), String> {
        let Some(own) = &self.own else { return Ok(()) };
        if kinds == self.memory.known(own) {
            return Ok(());
        }
        let _turn = self.fleet.starting.acquire().await;
        let live = own.live.borrow().clone();
        let status = json!({"ownedKinds": kinds});
        match Box::pin(own.kind.apply_status(&live, &status, KINDS_MANAGER)).await {
            Ok(_) => {}
            // There is nothing to remember of a resource that is gone.
            Err(error) if error.is_not_found() => {}
            // What a server refuses for good, as one does whose CRD of Plugin is an older one, keeps no plugin from running.
            Err(error) if error.is_for_good() => tracing::warn!(
                plugin = &*live.name,
                problem = chain(&error),
                "the Plugin's status cannot remember which kinds it owns; install the CRD of this host (--install-crds does \
                 so): until then objects of kinds that a later version does not own may stay"
            ),
            Err(error) => {
                let problem = chain(&error);
                return Err(format!(
                    "cannot write to the Plugin's status which kinds it owns: {problem}"
                ));
            }
        }
        *self.memory.0.lock() = Some((live.uid.clone(), kinds));
        Ok(())
    }
}

/// What a status remembers. An entry that another version of the host wrote in another form is passed over.
fn read(status: &Value) -> Vec<OwnedKind> {
    let entries = status["ownedKinds"].as_array().into_iter().flatten();
    entries.filter_map(|entry| OwnedKind::deserialize(entry).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_cannot_be_read_does_not_hide_the_others() {
        let kind = |kind: &str| json!({"group": "", "version": "v1", "kind": kind});
        let status =
            json!({"ownedKinds": [{"primary": kind("P"), "kind": "A"}, {"primary": kind("P"), "kind": kind("B")}]});
        let known = read(&status);
        assert_eq!((known.len(), &*known[0].kind.kind), (1, "B"));
        assert!(read(&Value::Null).is_empty());
    }
}
