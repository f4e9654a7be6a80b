//! Refuses a version that would delete objects of the version that ran before, until a user consents: another plugin's
//! component, or one that lacks a controller whose primaries have children.

use std::collections::BTreeSet;
use std::sync::Arc;

use pilothouse_core::ownership::consent::{ACCEPT, Consent};

use super::prepare::DescribedPlugin;
use crate::lanes::lane::{Lane, RunMode};
use crate::plugins::plugin::{PluginTask, RunningVersion};
use crate::plugins::resource::state::{StartupProblem, StartupStep};

/// Reason of a version without consent.
const NOT_ACCEPTED: &str = "NotAccepted";

impl PluginTask {
    /// Refuses a version with these lanes if there is no consent to what it deletes. For a version of an earlier
    /// process, the inventory in the status names its controllers, and the objects show what they made: the status
    /// alone proves nothing.
    pub fn check_consent(
        &self,
        running: Option<&RunningVersion>,
        described: &DescribedPlugin,
        lanes: &[Arc<Lane>],
    ) -> Result<(), StartupProblem> {
        let Some(own) = self
            .own
            .as_ref()
            .filter(|_| lanes.iter().all(|lane| lane.mode == RunMode::Active))
        else {
            return Ok(());
        };
        let has_controller = |dropped: &Lane| {
            let mut own = lanes.iter().filter(|lane| !lane.is_former);
            own.any(|lane| lane.grants.primary().same_kind(dropped.grants.primary()))
        };
        let before = running.map_or(lanes, |running| &running.lanes);
        let dropped = before
            .iter()
            .filter(|lane| lane.is_former == running.is_none() && !has_controller(lane));
        let (mut count, mut kinds) = (0, BTreeSet::new());
        for lane in dropped {
            let children = self.context.host.state.count_children(lane);
            if children > 0 {
                count += children;
                kinds.insert(lane.grants.primary().kind.clone());
            }
        }
        let other = running.filter(|running| running.name != described.name);
        if count == 0 && other.is_none() {
            return Ok(());
        }
        let said = own.live.borrow().annotations[ACCEPT]
            .as_str()
            .map(str::parse::<Consent>);
        let wrong = match said {
            Some(Ok(consent)) if consent.allows_deletes(count) => return Ok(()),
            Some(Err(error)) => format!("; what the annotation says is not understood: {error}"),
            _ => String::new(),
        };
        let what = match other {
            Some(running) => format!(
                "the component is of the plugin {}, and {} runs",
                described.name, running.name
            ),
            None => "the version has not all controllers that ran before".to_owned(),
        };
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
        let of = if kinds.is_empty() {
            kinds
        } else {
            format!(" of {kinds}")
        };
        Err(StartupProblem::new(
            StartupStep::Ready,
            NOT_ACCEPTED,
            format!(
                "{what}: it would delete {count} objects{of}; correct spec.source, or, if that is meant, annotate the Plugin with \
                 {ACCEPT}: deletes={count} (--accept deletes={count} of pilothouse upgrade){wrong}"
            ),
        ))
    }

    /// Waits until the annotation with the consent changes.
    pub async fn consent_changed(&self) {
        let Some(own) = &self.own else {
            return std::future::pending().await;
        };
        let mut live = own.live.clone();
        let before = live.borrow_and_update().annotations[ACCEPT].clone();
        while live.borrow_and_update().annotations[ACCEPT] == before {
            if live.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}
