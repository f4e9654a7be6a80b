//! Owns the end of a plugin whose resource is deleted: primaries that are being deleted already are finished, its objects
//! go where that is wanted, and with them what it contributes to others', and no primary keeps a finalizer that nobody
//! would ever take off. The Plugin itself has a finalizer for as long as there may be such work.

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

/// How long a plugin that does not run may take to come up to where its objects are known. After that it goes without.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long primaries that are being deleted already may take to be finished. After that they are released.
const FINISHING: Duration = Duration::from_mins(2);

/// Time after which objects that do not go are left behind, where no other has gone meanwhile.
const GIVING_UP: Duration = Duration::from_mins(5);

/// The most objects that a message names.
const NAMED_OBJECTS: usize = 5;

/// How often it is looked whether it is this replica's turn to finish a plugin.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl PluginTask {
    /// Sees to it that the Plugin resource has the finalizer, if the plugin may leave something behind, and else not.
    pub async fn sync_plugin_finalizer(&self, wanted: &DesiredPlugin, described: &DescribedPlugin) {
        let needed = wanted.deletion_policy == DeletionPolicy::Delete || described.has_finalizers();
        self.set_finalizer(needed).await;
    }

    /// Ends a plugin whose resource is being deleted.
    pub async fn finish(&self, running: Option<RunningVersion>, request: &PluginRequest) {
        let is_held = self.own.as_ref().is_some_and(|own| has_finalizer(&own.live.borrow()));
        // What ran before the spec was spoilt still knows what it made.
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

    /// Winds up a plugin that does not run; says no if its objects cannot be found.
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

    /// Finishes, takes back, deletes and releases, in this order.
    async fn clean_up(&self, wanted: &DesiredPlugin, lanes: &[Arc<Lane>]) {
        // Replicas that divide the work have to agree on whose work this is, too.
        let divisions = lanes.iter().map(|lane| (lane.title(), Division::Leader));
        self.context.host.finishing.lock().extend(divisions);
        self.is_ours_to_finish(lanes).await;
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

    /// Where replicas divide the work, waits until all of them know that it is the leader who finishes, this one leads, and its
    /// cache has all that the plugin made. Replicas that do not lead wait until the Plugin is gone.
    async fn is_ours_to_finish(&self, lanes: &[Arc<Lane>]) {
        let host = &self.context.host;
        let is_ours = || {
            let is_whole = |lane: &Arc<Lane>| lane.cached_namespaces().is_none() && host.state.leads(lane);
            lanes.iter().all(is_whole) && host.missing(lanes).is_empty()
        };
        while !is_ours() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Lets the plugin finish the primaries that are being deleted already, while all others are left as they are.
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
        // Nobody looks after them any more.
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

    /// The lanes of a plugin that does not run, with all that they need listed.
    async fn known_lanes(&self, wanted: &DesiredPlugin) -> Option<StagedLanes> {
        let loaded = self.load(wanted, None).await.ok()?;
        let described = self.describe(&loaded, wanted).await.ok()?;
        let lanes = self.candidates(wanted, &described);
        self.listed(lanes.lanes()).await;
        Some(lanes)
    }

    /// Tries until no object is left. What is still left when nothing more has gone for [`GIVING_UP`], because finalizers of
    /// others hold it or the server refuses it, is left behind. A server that does not answer is the error of an attempt.
    async fn until_none_is_left<F>(&self, mut attempt: impl FnMut() -> F)
    where
        F: Future<Output = Result<Vec<RemainingObject>, String>>,
    {
        let progress = Mutex::new(Progress::default());
        let left = self.until_done(|| {
            let attempt = attempt();
            async {
                let left = attempt.await?;
                if left.is_empty() || progress.lock().has_stalled(left.len()) {
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

    /// Takes the plugin's finalizer off all primaries; returns those that still have it.
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

    /// Gives up what the plugin contributes; returns the objects whose fields have not been given up yet. An object whose
    /// fields have been, or that the server does not let go of them, is `done`: what is owned by others is not deleted for
    /// it.
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
                // It went, or another has its name, meanwhile: the next look says which.
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

    /// Deletes what the plugin made, in the reverse of the order in which it is made; returns what is still there. An
    /// object that another plugin applies too stays, and is that plugin's. Replicas that divide the work delete what is
    /// theirs, and wait for each other. A server that does not answer is the error.
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
                    // It went, or changed, meanwhile: the next look says which.
                    Err(error) if matches!(error.code(), Some(404 | 409 | 422)) => {}
                    // One that the server does not let go holds up no other.
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

/// An object of a plugin that is to go, and is still there.
struct RemainingObject {
    /// Its kind and name.
    title: String,
    /// The finalizers that keep it; none where it is not being deleted.
    finalizers: Vec<Box<str>>,
    /// The server's refusal to let it go.
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

/// The objects that are still there, those first that something keeps, with what keeps each and what to do.
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
    /// Tells whether as many objects are still there as were for [`GIVING_UP`].
    fn has_stalled(&mut self, left: usize) -> bool {
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
