//! Owns what a version of a plugin would change in a cluster: a host in this process runs it in preview, with a client that
//! changes nothing, until it has looked at every object.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use pilothouse_cluster::connect::{ClusterTarget, connect_through};
use pilothouse_cluster::fence::WriteFence;
use pilothouse_core::rights::Confinement;
use pilothouse_core::{Limits, Name};
use pilothouse_metrics::RequestMetrics;
use pilothouse_runtime::{Host, HostOptions, RunMode, StaticPlugin};
use pilothouse_sandbox::PluginComponent;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::artifact::wait_for;
use crate::run::{ClusterArguments, USER_AGENT};

/// How often it is looked whether the host is done.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A version of a plugin, and the Plugin that it is for.
pub struct PreviewedVersion<'a> {
    /// The Plugin's name.
    pub name: &'a str,
    /// The component.
    pub component: PluginComponent,
    /// Its configuration.
    pub config: Option<Value>,
    /// The spec of the live Plugin, for what the version has in common with the one that runs.
    pub spec: &'a Value,
    /// The namespaces that the Plugin names.
    pub confinement: &'a Confinement,
}

/// What a version would change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PreviewedChanges {
    /// The objects that it looked at.
    pub primaries: usize,
    /// How many of them it fails for.
    pub failing: usize,
    /// By the object that it is for, a line for each object that would change.
    pub changes: BTreeMap<String, Vec<String>>,
}

/// What a component would change in a live cluster, if it ran there as the Plugin of this name, in all namespaces.
pub fn live_changes(
    name: &str,
    component: PluginComponent,
    config: Option<Value>,
    cluster: ClusterArguments,
    within: Duration,
) -> anyhow::Result<PreviewedChanges> {
    let version = PreviewedVersion {
        name,
        component,
        config,
        spec: &Value::Null,
        confinement: &Confinement::default(),
    };
    wait_for(version.changes(&cluster.target(), within))
}

impl PreviewedVersion<'_> {
    /// Looks at all objects.
    pub async fn changes(self, target: &ClusterTarget, within: Duration) -> anyhow::Result<PreviewedChanges> {
        let Self {
            name,
            component,
            config,
            spec,
            confinement,
        } = self;
        let limits = spec["limits"].clone();
        let limits: Limits = if limits.is_null() {
            Limits::default()
        } else {
            serde_json::from_value(limits).context("spec.limits of the Plugin cannot be read")?
        };
        let former = spec["formerManagers"].as_array().into_iter().flatten();
        let plugin = StaticPlugin {
            name: Some(name.to_owned()),
            component,
            config,
            limits,
            concurrency: None,
            mode: RunMode::Preview,
            former_managers: former.filter_map(|it| it.as_str().map(str::to_owned)).collect(),
        };
        let fence = WriteFence::closed();
        let client = connect_through(target, USER_AGENT, &fence, &RequestMetrics::default()).await?;
        let host = Host::new(client, HostOptions::default());
        let handle = host.handle();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = host.run(vec![plugin], async {
            let _ = stopped.await;
        });
        tokio::pin!(running);
        let begun = Instant::now();
        while !handle.is_idle() {
            if begun.elapsed() > within {
                bail!(
                    "the objects were not all looked at in {} s: {}; give more time with --wait",
                    within.as_secs(),
                    handle.missing_for_readiness().join("; ")
                );
            }
            tokio::select! {
                ended = &mut running => {
                    ended?;
                    bail!("the plugin cannot be previewed; `pilothouse run --plugin` says why");
                }
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
        let (primaries, failing) = handle.primaries(name);
        let previews = handle.previews(name);
        let _ = stop.send(());
        running.await?;
        let mut found = PreviewedChanges {
            primaries,
            failing,
            changes: BTreeMap::new(),
        };
        let selects = |primary: &Name| {
            let own = confinement.namespaces();
            own.is_empty()
                || primary
                    .namespace
                    .as_deref()
                    .is_some_and(|namespace| own.contains(namespace))
        };
        for (controller, primary, preview) in previews.into_iter().filter(|(_, primary, _)| selects(primary)) {
            let mut lines: Vec<String> = preview.changes.iter().map(ToString::to_string).collect();
            if preview.more > 0 {
                lines.push(format!("and {} more objects", preview.more));
            }
            if !lines.is_empty() {
                found.changes.insert(format!("{controller} {primary}"), lines);
            }
        }
        Ok(found)
    }
}

impl PreviewedChanges {
    /// The changes that another version would not make, too.
    pub fn beyond(&mut self, other: &Self) {
        for (object, lines) in &mut self.changes {
            let known = other.changes.get(object).map(Vec::as_slice).unwrap_or_default();
            lines.retain(|line| !known.contains(line));
        }
        self.changes.retain(|_, lines| !lines.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_versions_would_change_is_no_difference_between_them() {
        let changes = |objects: &[(&str, &[&str])]| PreviewedChanges {
            changes: objects
                .iter()
                .map(|(object, lines)| {
                    (
                        (*object).to_owned(),
                        lines.iter().map(|line| (*line).to_owned()).collect(),
                    )
                })
                .collect(),
            ..PreviewedChanges::default()
        };
        let mut new = changes(&[("c a/x", &["Update X", "Create Y"]), ("c a/z", &["Update Z"])]);
        new.beyond(&changes(&[("c a/x", &["Update X"]), ("c a/z", &["Update Z"])]));
        assert_eq!(new, changes(&[("c a/x", &["Create Y"])]));
    }
}
