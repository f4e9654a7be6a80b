//! Owns the end of a plugin whose resource is deleted: its objects go first where that is wanted, and no primary keeps a
//! finalizer that nobody would ever take off. The Plugin itself has a finalizer for as long as there may be such work.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::error::chain;
use pilothouse_cluster::own::{OwnKind, OwnResource};
use pilothouse_crds::plugin::DeletionPolicy;
use tokio::sync::watch;

use super::bring::Candidates;
use super::life::{Life, Running};
use super::prepare::Described;
use super::wanted::{Order, Wanted};
use crate::lane::Lane;
use crate::reconcile::release_all;

/// The finalizer of Plugin resources.
const FINALIZER: &str = "pilothouse.dev/plugin";

/// How long a plugin that does not run may take to come up to where its objects are known. After that it goes without.
const PATIENCE: Duration = Duration::from_mins(1);

/// The Plugin resource of a plugin.
pub struct Own {
    /// Where it is written.
    pub kind: OwnKind,
    /// As it was seen last.
    pub live: watch::Receiver<Arc<OwnResource>>,
}

impl Life {
    /// Sees to it that the Plugin resource has the finalizer, if the plugin may leave something behind, and else not.
    pub async fn mind_the_end(&self, wanted: &Wanted, described: &Described) {
        let needed = wanted.deletion_policy == DeletionPolicy::Delete || described.has_finalizers();
        self.set_finalizer(needed).await;
    }

    /// Ends a plugin whose resource is being deleted.
    pub async fn finish(&self, running: Option<Running>, order: &Order) {
        let is_held = self.own.as_ref().is_some_and(|own| has_finalizer(&own.live.borrow()));
        if is_held && let Ok(wanted) = &order.wanted {
            if let Some(running) = &running {
                self.stop(&running.lanes).await;
                self.clear(wanted, &running.lanes).await;
            } else if let Ok(Some(lanes)) = tokio::time::timeout(PATIENCE, self.known_lanes(wanted)).await {
                self.clear(wanted, lanes.lanes()).await;
            } else {
                tracing::warn!(
                    plugin = &*self.identity.name,
                    "the Plugin is deleted, and its component cannot be used to find its objects; they stay as they are"
                );
            }
        }
        self.leave(running).await;
        self.set_finalizer(false).await;
    }

    /// The lanes of a plugin that does not run, with all that they need listed.
    async fn known_lanes(&self, wanted: &Wanted) -> Option<Candidates> {
        let loaded = self.load(&wanted.source, None).await.ok()?;
        let described = self.describe(&loaded, wanted).await.ok()?;
        let lanes = self.candidates(wanted, &described);
        self.listed(lanes.lanes()).await;
        Some(lanes)
    }

    async fn clear(&self, wanted: &Wanted, lanes: &[Arc<Lane>]) {
        if wanted.deletion_policy == DeletionPolicy::Delete {
            self.until_done(|| self.delete_children(lanes)).await;
        }
        for lane in lanes {
            self.until_done(|| async {
                release_all(&self.fleet.hub, lane)
                    .await
                    .map_err(|failure| failure.message)
            })
            .await;
        }
    }

    /// Deletes what the plugin made; what is still there is the error.
    async fn delete_children(&self, lanes: &[Arc<Lane>]) -> Result<(), String> {
        let mut left = 0;
        for lane in lanes {
            for (served, child) in self.fleet.hub.children_of(lane) {
                left += 1;
                if child.deleting {
                    continue;
                }
                match lane.writer.delete(&served, &child).await {
                    Ok(()) => {
                        tracing::info!(lane = lane.title(), object = %child.name, kind = %served.kind, "deleted");
                    }
                    // It went, or changed, meanwhile: the next look says which.
                    Err(error) if matches!(error.code(), Some(404 | 409)) => {}
                    Err(error) => {
                        let problem = chain(&error);
                        return Err(format!("cannot delete {} {}: {problem}", served.kind.kind, child.name));
                    }
                }
            }
        }
        if left == 0 {
            return Ok(());
        }
        Err(format!("{left} objects of the plugin are still there"))
    }

    async fn set_finalizer(&self, needed: bool) {
        let Some(own) = &self.own else { return };
        self.until_done(|| async {
            let live = own.live.borrow().clone();
            // None can be added to an object that is being deleted.
            if has_finalizer(&live) == needed || (needed && live.deleting) {
                return Ok(());
            }
            let mut finalizers = live.finalizers.clone();
            finalizers.retain(|finalizer| finalizer != FINALIZER);
            if needed {
                finalizers.push(FINALIZER.to_owned());
            }
            match own.kind.set_finalizers(&live, &finalizers).await {
                Ok(_) => Ok(()),
                Err(error) if error.is_not_found() => Ok(()),
                Err(error) => Err(format!("cannot write the finalizers of the Plugin: {}", chain(&error))),
            }
        })
        .await;
    }
}

fn has_finalizer(resource: &OwnResource) -> bool {
    resource.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
}
