//! Writes the status of a Plugin resource: only if it differs, at once if a condition changes, and rarely if only
//! counts do.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::resources::host_resources::{HostResource, HostResourceApi, MANAGER};
use pilothouse_cluster::watch::reflector::is_before;
use pilothouse_core::diff::preview::{Preview, PreviewedChange};
use pilothouse_core::text::printable::shorten;
use pilothouse_crds::plugin::{ControllerStatus, PluginStatus, PreviewedPrimary, WaitedPrimary};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::state::{PluginFacts, PluginState, StatusFigures, status};
use crate::context::HostContext;
use crate::lanes::health::PluginHealth;
use crate::lanes::lane::Lane;

/// Minimum time between two writes.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time between two writes if the written status does not stay, for example because two hosts see different
/// things: the watch of one may be silent for minutes.
const LONGEST_INTERVAL: Duration = Duration::from_mins(1);

/// Minimum time between two writes that only change counts.
const COUNTS_INTERVAL: Duration = Duration::from_secs(15);

/// Time that a plugin may be starting before that is reported: a start that ends with the present status writes
/// nothing.
const PATIENCE: Duration = Duration::from_secs(3);

/// The most primaries whose previews a status shows; the log has all.
const MOST_PREVIEWS: usize = 20;

/// The most primaries not yet reconciled that are named.
const MOST_WAITED_FOR: usize = 20;

/// The most warnings that a status shows, and the longest of them, in bytes.
const MOST_WARNINGS: usize = 20;
const LONGEST_WARNING: usize = 2048;

/// The most changes of one primary that a status shows.
const MOST_CHANGES: usize = 20;

/// The longest line of a preview, in bytes.
const LONGEST_LINE: usize = 1024;

/// Writes the status of one plugin, until it is dropped.
pub struct PluginStatusWriter {
    /// API to write it.
    pub kind: HostResourceApi,
    /// Last observed state of the resource.
    pub live: watch::Receiver<Arc<HostResource>>,
    /// State of the startup.
    pub plugin_state: Arc<PluginState>,
    /// Health of the plugin.
    pub health: Arc<PluginHealth>,
    /// Host, which counts the objects.
    pub host: Arc<HostContext>,
}

/// The status last written.
struct WrittenStatus {
    status: PluginStatus,
    /// The server's answer, and its resourceVersion.
    left: Value,
    version: String,
}

/// State of the writer.
#[derive(Default)]
struct StatusWriterState {
    last: Option<Box<WrittenStatus>>,
    /// Time of the last write, successful or not.
    written: Option<Instant>,
    /// Number of writes in a row that did not stay, because another writer changed the status, or that were refused.
    unsuccessful: u32,
    /// Last count of the objects of primaries that the Plugin does not select.
    unselected: Option<UnselectedCount>,
}

/// A count of the objects of primaries that a Plugin does not select.
struct UnselectedCount {
    counted: Instant,
    /// Scope of the count: the selected namespaces, and the number of controllers.
    of: (Vec<String>, usize),
    count: u64,
    /// Set if events have occurred since.
    is_stale: bool,
}

impl StatusWriterState {
    /// Time of the next count of unselected objects: their changes do not wake this task.
    fn next_count(&self) -> Option<Instant> {
        let last = self.unselected.as_ref()?;
        (last.is_stale || last.count > 0).then(|| last.counted + COUNTS_INTERVAL)
    }
}

impl PluginStatusWriter {
    /// Writes the status whenever it has changed. State of a single write is on the heap, because there may be a
    /// thousand of these tasks, and nearly all of them wait.
    pub async fn run(mut self) {
        let begun = Instant::now();
        let mut writer_state = StatusWriterState::default();
        loop {
            self.host.leadership.leading().await;
            let due = match self.next_status(&mut writer_state, begun) {
                (due, Some(desired)) if due.is_some_and(|due| due <= Instant::now()) => {
                    let stayed = writer_state.last.as_ref().is_none_or(|last| self.has_stayed(last));
                    writer_state.written = Some(Instant::now());
                    let told = Box::pin(self.write(desired)).await;
                    writer_state.unsuccessful = if stayed && told.is_some() {
                        0
                    } else {
                        writer_state.unsuccessful + 1
                    };
                    writer_state.last = told.or(writer_state.last);
                    continue;
                }
                (later, _) => later,
            };
            tokio::select! {
                () = self.news() => {}
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }

    /// Returns the status to write, if it differs, and when that or the next count is due.
    fn next_status(
        &mut self,
        writer_state: &mut StatusWriterState,
        begun: Instant,
    ) -> (Option<Instant>, Option<Box<PluginStatus>>) {
        let known = self.plugin_state.known();
        let resource = self.live.borrow_and_update().clone();
        let figures = self.figures(&known, writer_state);
        let last = writer_state.last.as_ref();
        // Until the watch has caught up, the server's last answer is the present status.
        let ahead = last.filter(|last| is_before(&resource.resource_version, &last.version));
        let live = ahead.map_or(&resource.status, |last| &last.left);
        let mut live: PluginStatus = serde_json::from_value(live.clone()).unwrap_or_default();
        // The CRD of an earlier host drops the history; its times would be others each time.
        if let Some(last) = last.filter(|_| live.history.is_empty()) {
            live.history.clone_from(&last.status.history);
        }
        let desired = status(&known, figures, &live, &self.host.clock.seconds());
        let is_as_left = |last: &WrittenStatus| ahead.is_some() || last.left == resource.status;
        let is_told = desired == live || last.is_some_and(|last| last.status == desired && is_as_left(last));
        if is_told {
            return (writer_state.next_count(), None);
        }
        let due = due(&known, &desired, &live, begun, writer_state);
        (Some(due), Some(Box::new(desired)))
    }

    async fn write(&self, desired: Box<PluginStatus>) -> Option<Box<WrittenStatus>> {
        let resource = self.live.borrow().clone();
        match self
            .kind
            .apply_status(&resource, &written_part(&desired), MANAGER)
            .await
        {
            Ok(resource) => {
                return Some(Box::new(WrittenStatus {
                    status: *desired,
                    left: resource.status,
                    version: resource.resource_version,
                }));
            }
            Err(error) if error.is_not_found() || error.code() == Some(409) => {}
            Err(error) => tracing::warn!(
                plugin = &*resource.name,
                error = pilothouse_cluster::error::chain(&error),
                "cannot write the status of the Plugin; retrying"
            ),
        }
        None
    }

    /// Returns `true` if the status is as it was last written, as far as observed; the inventory has another writer.
    fn has_stayed(&self, last: &WrittenStatus) -> bool {
        let resource = self.live.borrow().clone();
        let parts = |status: &Value| serde_json::from_value(status.clone()).map(|status| written_part(&status));
        is_before(&resource.resource_version, &last.version)
            || parts(&resource.status).is_ok_and(|live| parts(&last.left).is_ok_and(|left| live == left))
    }

    async fn news(&mut self) {
        tokio::select! {
            () = self.plugin_state.changed.notified() => {}
            () = self.health.changed.notified() => {}
            changed = self.live.changed() => if changed.is_err() {
                // The resource is deleted, so no status is needed.
                std::future::pending::<()>().await;
            },
        }
    }

    /// Counts the objects of primaries that the Plugin does not select. It visits all of them, so it runs when the
    /// selection changes, and otherwise rarely.
    fn unselected(&self, known: &PluginFacts, writer_state: &mut StatusWriterState) -> u64 {
        let Some(lane) = known.lanes.first().filter(|lane| !lane.namespaces.is_empty()) else {
            writer_state.unselected = None;
            return 0;
        };
        if let Some(last) = &mut writer_state.unselected {
            let (namespaces, controllers) = &last.of;
            let is_of_now = *namespaces == lane.namespaces && *controllers == known.lanes.len();
            if is_of_now && last.counted.elapsed() < COUNTS_INTERVAL {
                last.is_stale = true;
                return last.count;
            }
        }
        let counts = known.lanes.iter().map(|lane| self.host.state.unselected_children(lane));
        let count = u64::try_from(counts.sum::<usize>()).unwrap_or(u64::MAX);
        writer_state.unselected = Some(UnselectedCount {
            counted: Instant::now(),
            of: (lane.namespaces.clone(), known.lanes.len()),
            count,
            is_stale: false,
        });
        count
    }

    fn figures(&self, known: &PluginFacts, writer_state: &mut StatusWriterState) -> StatusFigures {
        let controllers = known.lanes.iter().filter(|lane| !lane.is_former).map(|lane| {
            let (objects, depth) = self.host.state.count(lane);
            let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
            ControllerStatus {
                name: lane.controller.clone(),
                objects: self.host.divided_objects(lane).unwrap_or_else(|| count(objects)),
                queued: count(depth.ready + depth.running + depth.unseen),
                failing: count(depth.failing),
            }
        });
        let controllers = controllers.collect();
        let plugin = known.lanes.first().map(|lane| &*lane.plugin);
        let waited_for = plugin
            .map(|plugin| self.host.state.waited_for(plugin))
            .unwrap_or_default();
        let named = waited_for.iter().take(MOST_WAITED_FOR);
        StatusFigures {
            controllers,
            last_failure: self.health.last_failure(),
            slowed_for: self.health.slowed_for(),
            unselected_objects: self.unselected(known, writer_state),
            paused_objects: known.lanes.iter().map(|lane| self.host.state.paused(lane.id)).sum(),
            unanswered: u64::try_from(waited_for.len()).unwrap_or(u64::MAX),
            waited_for: named
                .map(|(controller, object)| WaitedPrimary {
                    controller: controller.clone(),
                    object: object.to_string(),
                })
                .collect(),
            warnings: self.warnings(),
            previews: self.previews(known),
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.health.warnings();
        let more = warnings.len().saturating_sub(MOST_WARNINGS);
        warnings.truncate(MOST_WARNINGS);
        if more > 0 {
            warnings.push(format!("and {more} more; see the log"));
        }
        warnings
            .into_iter()
            .map(|warning| shorten(warning, LONGEST_WARNING))
            .collect()
    }

    fn previews(&self, known: &PluginFacts) -> Vec<PreviewedPrimary> {
        let of_lane = |lane: &Arc<Lane>| {
            let previews = self.host.state.previews(lane).into_iter();
            let changing = previews.filter(|(_, preview)| !preview.changes.is_empty());
            let told = changing.map(|(name, preview)| PreviewedPrimary {
                controller: lane.controller.clone(),
                object: name.to_string(),
                changes: lines(&preview),
            });
            told.collect::<Vec<_>>()
        };
        known.lanes.iter().flat_map(of_lane).take(MOST_PREVIEWS).collect()
    }
}

/// The part of a status that this writer writes; the inventory has another writer.
pub(super) fn written_part(status: &PluginStatus) -> Value {
    let told = PluginStatus {
        owned_kinds: Vec::new(),
        contributed_kinds: Vec::new(),
        finalizers: Vec::new(),
        ..status.clone()
    };
    serde_json::to_value(told).expect("a status is always JSON")
}

/// A preview for people, one line per object.
fn lines(preview: &Preview) -> Vec<String> {
    let line = |change: &PreviewedChange| shorten(change.to_string(), LONGEST_LINE);
    let mut lines: Vec<_> = preview.changes.iter().take(MOST_CHANGES).map(line).collect();
    let more = preview.changes.len() - lines.len() + preview.more;
    if more > 0 {
        lines.push(format!("and {more} more objects"));
    }
    lines
}

/// Time at which a differing status is written.
fn due(
    known: &PluginFacts,
    desired: &PluginStatus,
    live: &PluginStatus,
    begun: Instant,
    writer_state: &StatusWriterState,
) -> Instant {
    let counts_only = PluginStatus {
        controllers: live.controllers.clone(),
        objects: live.objects,
        failing: live.failing,
        last_failure: live.last_failure.clone(),
        unselected_objects: live.unselected_objects,
        paused_objects: live.paused_objects,
        unanswered: live.unanswered,
        waited_for: live.waited_for.clone(),
        previews: live.previews.clone(),
        ..desired.clone()
    } == *live;
    let interval = if counts_only { COUNTS_INTERVAL } else { LEAST_INTERVAL };
    // The first two are free: the configuration may be edited while a host starts.
    let doublings = writer_state.unsuccessful.saturating_sub(2).min(16);
    let interval = (interval * 2u32.pow(doublings)).min(LONGEST_INTERVAL);
    let due = match writer_state.written {
        Some(written) => written + interval,
        // Counts settle after a start.
        None if counts_only => begun + COUNTS_INTERVAL,
        None => begun,
    };
    known.busy.map_or(due, |since| due.max(since + PATIENCE))
}
