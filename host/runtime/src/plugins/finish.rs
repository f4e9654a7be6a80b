//! Finishes a plugin whose resource is deleted: primaries that are already being deleted are finalized, its objects and
//! contributions are deleted if the deletion policy says so, and its finalizer is removed from all primaries. The
//! Plugin itself has a finalizer as long as there may be such work.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::resources::host_resources::HostResource;
use pilothouse_core::diff::rank;
use pilothouse_core::plugin::contract::EventType;
use pilothouse_core::replicas::shards::Division;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Key, Retry};
use pilothouse_crds::plugin::DeletionPolicy;

use super::plugin::{PluginTask, RunningVersion};
use crate::lanes::lane::{Lane, RunMode};
use crate::plugins::resource::desired::{DesiredPlugin, PluginRequest};
use crate::plugins::version::prepare::DescribedPlugin;
use crate::plugins::version::staging::StagedLanes;
use crate::reconcile::{is_shared, release_all, release_child};
use crate::state::tables::claims::Contribution;

/// The finalizer of Plugin resources.
const FINALIZER: &str = "pilothouse.dev/plugin";

/// Time for a plugin that does not run to load and list its objects. After that it is deleted without.
const PATIENCE: Duration = Duration::from_mins(1);

/// Time for primaries that are already being deleted to be finalized. After that they are released.
const FINISHING: Duration = Duration::from_mins(2);

/// Time after which objects that are not deleted are left behind, if no other has been deleted meanwhile.
const GIVING_UP: Duration = Duration::from_mins(5);

/// The most objects that a message names.
const NAMED_OBJECTS: usize = 5;

/// Interval at which this replica checks whether it has to finish a plugin.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl PluginTask {
    /// Adds the finalizer to the Plugin resource if the plugin may leave something behind, and removes it otherwise.
    pub async fn sync_plugin_finalizer(&self, wanted: &DesiredPlugin, described: &DescribedPlugin) {
        let has_finalizers = described.has_finalizers() || !self.known().finalizers.is_empty();
        let needed = wanted.deletion_policy == DeletionPolicy::Delete || has_finalizers;
        self.set_finalizer(needed).await;
    }

    /// Finishes a plugin whose resource is being deleted.
    pub async fn finish(&self, running: Option<RunningVersion>, request: &PluginRequest) {
        let is_held = self.own.as_ref().is_some_and(|own| has_finalizer(&own.live.borrow()));
        // The version that ran before the spec became invalid still knows what it made.
        let before = running
            .as_ref()
            .and_then(|running| running.request.wanted.as_ref().ok());
        let wanted = request.wanted.as_ref().ok().or(before);
        let is_wound_up = match (wanted, &running) {
            _ if !is_held => true,
            (Some(wanted), Some(running)) => {
                self.clean_up(wanted, &running.lanes).await;
                true
            }
            (Some(wanted), None) => self.clean_up_stopped(wanted).await,
            (None, _) => false,
        };
        if !is_wound_up {
            tracing::warn!(
                plugin = &*self.identity.name,
                "the Plugin is deleted, and its component cannot be used to find its objects; they stay as they are; \
                 `pilothouse release` takes its finalizer off them"
            );
        }
        self.leave(running).await;
        self.set_finalizer(false).await;
    }

    /// Cleans up after a plugin that does not run. Returns `false` if its objects cannot be found.
    async fn clean_up_stopped(&self, wanted: &DesiredPlugin) -> bool {
        let Ok(Some(candidates)) = tokio::time::timeout(PATIENCE, self.known_lanes(wanted)).await else {
            return false;
        };
        self.clean_up(wanted, candidates.lanes()).await;
        for lane in candidates.lanes() {
            self.context.host.remove_lane(lane.id);
        }
        true
    }

    /// Finalizes primaries, withdraws contributions, deletes children and releases finalizers, in this order.
    async fn clean_up(&self, wanted: &DesiredPlugin, lanes: &[Arc<Lane>]) {
        // Replicas that divide the work must agree on who finishes.
        let divisions = lanes.iter().map(|lane| (lane.title(), Division::Leader));
        self.context.host.finishing.lock().extend(divisions);
        self.wait_until_ours_to_finish(lanes).await;
        if wanted.mode != RunMode::Preview {
            self.finish_primaries(lanes).await;
        }
        self.stop(lanes).await;
        if wanted.deletion_policy == DeletionPolicy::Delete {
            let done = Mutex::default();
            self.until_none_is_left(|| self.take_back(lanes, &done)).await;
            self.until_none_is_left(|| self.delete_children(lanes)).await;
        }
        self.until_none_is_left(|| self.release(lanes)).await;
        let mut finishing = self.context.host.finishing.lock();
        finishing.retain(|controller, _| lanes.iter().all(|lane| lane.title() != *controller));
    }

    /// If replicas divide the work, waits until all of them know that the leader finishes, this one leads, and its
    /// cache holds all that the plugin made. Replicas that do not lead wait until the Plugin is deleted.
    async fn wait_until_ours_to_finish(&self, lanes: &[Arc<Lane>]) {
        let host = &self.context.host;
        let is_ours = || {
            let is_whole = |lane: &Arc<Lane>| lane.cached_namespaces().is_none() && host.state.leads(lane);
            lanes.iter().all(is_whole) && host.missing(lanes).is_empty()
        };
        while !is_ours() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Lets the plugin finalize the primaries that are already being deleted; all others are left.
    async fn finish_primaries(&self, lanes: &[Arc<Lane>]) {
        let host = &self.context.host;
        let unfinished = || {
            let of_lane = |lane: &Arc<Lane>| {
                let kind = &lane.grants.primary().kind;
                let names = host.state.unfinished(lane).into_iter();
                names.map(move |name| format!("{kind} {name}")).collect::<Vec<_>>()
            };
            match lanes.iter().flat_map(of_lane).collect::<Vec<_>>() {
                left if left.is_empty() => Ok(()),
                left => Err(format!(
                    "{} objects are being deleted and not finished, {} among them",
                    left.len(),
                    left[0]
                )),
            }
        };
        if unfinished().is_ok() {
            return;
        }
        // The periodic review has ended with the version.
        self.review_once(lanes).await;
        for lane in lanes {
            host.register_lane(&Arc::new(Lane {
                mode: RunMode::Finishing,
                ..(**lane).clone()
            }));
        }
        let finished = self.until_done(|| async { unfinished() });
        if tokio::time::timeout(FINISHING, finished).await.is_err() {
            tracing::warn!(
                plugin = &*self.identity.name,
                "the plugin has not finished in {} s; what is left is released",
                FINISHING.as_secs()
            );
        }
    }

    /// The lanes of a plugin that does not run, after all that they need has been listed.
    async fn known_lanes(&self, wanted: &DesiredPlugin) -> Option<StagedLanes> {
        let loaded = self.load(wanted, None).await.ok()?;
        let described = self.describe(&loaded, wanted).await.ok()?;
        let lanes = self.candidates(wanted, &described);
        self.listed(lanes.lanes()).await;
        Some(lanes)
    }

    /// Repeats until no object is left. Objects that are left when no other has been deleted for [`GIVING_UP`], because
    /// of finalizers of others or a refusal of the server, are left behind. A server that does not answer fails the
    /// attempt.
    async fn until_none_is_left<F>(&self, mut attempt: impl FnMut() -> F)
    where
        F: Future<Output = Result<Vec<RemainingObject>, String>>,
    {
        let progress = Mutex::new(Progress::default());
        let left = self.until_done(|| {
            let attempt = attempt();
            async {
                let left = attempt.await?;
                if left.is_empty() || progress.lock().check_stalled(left.len()) {
                    return Ok(left);
                }
                Err(what_is_left(&left))
            }
        });
        let left = left.await;
        if !left.is_empty() {
            let message = format!(
                "nothing more has gone for {} min, so these objects of the plugin are left behind: {}",
                GIVING_UP.as_secs() / 60,
                what_is_left(&left)
            );
            tracing::warn!(plugin = &*self.identity.name, "{message}");
            self.emit(EventType::Warning, "ObjectsLeft", message).await;
        }
    }

    /// Removes the plugin's finalizer from all primaries. Returns those that still have it.
    async fn release(&self, lanes: &[Arc<Lane>]) -> Result<Vec<RemainingObject>, String> {
        let mut left = Vec::new();
        for lane in lanes {
            for (title, failure) in release_all(&self.context.host, lane).await {
                if failure.reason != Reason::Forbidden && failure.retry == Retry::Backoff {
                    return Err(failure.message);
                }
                left.push(RemainingObject::refused(title, failure.message));
            }
        }
        Ok(left)
    }

    /// Withdraws the plugin's contributions. Returns the objects that still hold some. Objects whose fields are
    /// withdrawn, or whose server does not release them, are added to `done`: objects owned by others are not deleted
    /// for them.
    async fn take_back(&self, lanes: &[Arc<Lane>], done: &Mutex<HashSet<Key>>) -> Result<Vec<RemainingObject>, String> {
        let host = &self.context.host;
        if !host.state.close_claims(&self.identity.name) {
            return Err("what the plugin contributes is being written".to_owned());
        }
        let mut left = Vec::new();
        for Contribution { lane, served, object } in host.state.contributed_by(lanes) {
            let key = Key::new(served.kind.clone(), object.name.clone());
            if done.lock().contains(&key) {
                continue;
            }
            let title = key.to_string();
            match lane.contributor.withdraw(&served, &object.name, &object.uid).await {
                Ok(()) => {
                    tracing::info!(lane = lane.title(), object = title, "withdrew the contributed fields");
                    done.lock().insert(key);
                }
                // It was deleted or replaced meanwhile: the next attempt tells which.
                Err(error) if matches!(error.code(), Some(404 | 409)) => {
                    left.push(RemainingObject::refused(title, "it has changed meanwhile".to_owned()));
                }
                Err(error) => {
                    let failure = error.into_failure("take back what is contributed to", &title);
                    if failure.reason == Reason::Forbidden {
                        left.push(RemainingObject::refused(title, failure.message));
                    } else if failure.retry == Retry::Backoff {
                        return Err(failure.message);
                    } else {
                        tracing::warn!(
                            lane = lane.title(),
                            object = title,
                            problem = failure.message,
                            "cannot withdraw the contributed fields; they stay"
                        );
                        done.lock().insert(key);
                    }
                }
            }
        }
        Ok(left)
    }

    /// Deletes the plugin's children in the reverse order of their creation. Returns those that still exist. A child
    /// that another plugin applies, too, is left to that plugin. Replicas that divide the work delete their own part,
    /// and wait for each other. A server that does not answer is an error.
    async fn delete_children(&self, lanes: &[Arc<Lane>]) -> Result<Vec<RemainingObject>, String> {
        let children = |lane: &Arc<Lane>| {
            let children = self.context.host.state.children_of_lane(lane).into_iter();
            children
                .map(|(served, child)| (lane.clone(), served, child))
                .collect::<Vec<_>>()
        };
        let left: Vec<_> = lanes.iter().flat_map(children).collect();
        let Some(next) = left.iter().map(|(_, served, _)| rank(&served.kind)).max() else {
            return Ok(Vec::new());
        };
        let to_delete = |lane: &Lane, child: &CachedObject, served: &ServedKind| {
            rank(&served.kind) == next && !child.deleting && self.context.host.state.owns(lane, &child.name)
        };
        let mut remaining = Vec::with_capacity(left.len());
        for (lane, served, child) in &left {
            let mut refusal = None;
            if to_delete(lane, child, served) {
                let ended = if is_shared(lane, child) {
                    release_child(lane, served, child).await.map(drop)
                } else {
                    lane.writer.delete(served, child).await.inspect(|()| {
                        tracing::info!(lane = lane.title(), object = %child.name, kind = %served.kind, "deleted");
                    })
                };
                match ended {
                    Ok(()) => {}
                    // It was deleted or changed meanwhile: the next attempt tells which.
                    Err(error) if matches!(error.code(), Some(404 | 409 | 422)) => {}
                    // A refused deletion does not delay the others.
                    Err(error) if matches!(error.code(), Some(400..=428 | 430..=499)) => {
                        refusal = Some(format!("the server refuses to delete it: {}", chain(&error)));
                    }
                    Err(error) => {
                        let problem = chain(&error);
                        return Err(format!("cannot delete {} {}: {problem}", served.kind.kind, child.name));
                    }
                }
            }
            remaining.push(RemainingObject {
                title: format!("{} {}", served.kind.kind, child.name),
                finalizers: if child.deleting {
                    child.finalizers().into()
                } else {
                    Vec::new()
                },
                refusal,
            });
        }
        Ok(remaining)
    }

    async fn set_finalizer(&self, needed: bool) {
        let Some(own) = &self.own else { return };
        self.until_done(|| async {
            let live = own.live.borrow().clone();
            // No finalizer can be added to an object that is being deleted.
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

/// An object of a plugin that has to be deleted, and still exists.
struct RemainingObject {
    /// Kind and name.
    title: String,
    /// Finalizers that block it; empty if it is not being deleted.
    finalizers: Vec<Box<str>>,
    /// The server's refusal to delete it.
    refusal: Option<String>,
}

impl RemainingObject {
    fn refused(title: String, refusal: String) -> Self {
        Self {
            title,
            finalizers: Vec::new(),
            refusal: Some(refusal),
        }
    }
}

/// Message about the remaining objects: blocked ones first, with the cause and what to do.
fn what_is_left(left: &[RemainingObject]) -> String {
    let kept = left.iter().filter_map(|object| match object {
        RemainingObject {
            title,
            refusal: Some(refusal),
            ..
        } => Some(format!("{title}: {refusal}")),
        RemainingObject { title, finalizers, .. } if !finalizers.is_empty() => Some(format!(
            "{title} is being deleted, and kept by the finalizers {}",
            finalizers.join(", ")
        )),
        RemainingObject { .. } => None,
    });
    let kept: Vec<_> = kept.take(NAMED_OBJECTS).collect();
    let count = match left.len() {
        1 => "1 object of the plugin is still there".to_owned(),
        count => format!("{count} objects of the plugin are still there"),
    };
    if kept.is_empty() {
        return match left.first() {
            Some(first) => format!("{count}, {} among them", first.title),
            None => count,
        };
    }
    format!(
        "{count}: {}; have whoever set a finalizer finish, or take it off",
        kept.join("; ")
    )
}

/// Progress of the deletion of a plugin's objects.
#[derive(Default)]
struct Progress(Option<(usize, Instant)>);

impl Progress {
    /// Returns `true` if no object has been deleted for [`GIVING_UP`].
    fn check_stalled(&mut self, left: usize) -> bool {
        match self.0 {
            Some((before, since)) if left >= before => since.elapsed() >= GIVING_UP,
            _ => {
                self.0 = Some((left, Instant::now()));
                false
            }
        }
    }
}

fn has_finalizer(resource: &HostResource) -> bool {
    resource.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
}
