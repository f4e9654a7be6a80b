//! Determines the changes that a version of a plugin would make in a cluster: a host in this process runs it in
//! preview, with a client that changes nothing, until it has reconciled every object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use pilothouse_cluster::connect::{ClusterTarget, connect_through};
use pilothouse_cluster::fence::WriteFence;
use pilothouse_core::diff::preview::PreviewedChange;
use pilothouse_core::rights::Confinement;
use pilothouse_core::{Kind, Limits, Name};
use pilothouse_metrics::RequestMetrics;
use pilothouse_runtime::{Host, HostOptions, RunMode, StaticPlugin};
use pilothouse_sandbox::PluginComponent;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::artifact::wait_for;
use crate::run::{ClusterArguments, USER_AGENT};

/// Interval at which the host is polled for its end.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A version of a plugin, and its Plugin.
pub struct PreviewedVersion<'a> {
    /// The Plugin's name.
    pub name: &'a str,
    /// The component.
    pub component: PluginComponent,
    /// The configuration.
    pub config: Option<Value>,
    /// The spec of the live Plugin, for the options that the version shares with the one that runs.
    pub spec: &'a Value,
    /// The namespaces that the Plugin names.
    pub confinement: &'a Confinement,
}

/// Changes that a version would make.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PreviewedChanges {
    /// Number of objects that it reconciled.
    pub primaries: usize,
    /// Number of objects for which it fails.
    pub failing: usize,
    /// Messages of its failures, for as many of these objects as the host remembers.
    pub failures: BTreeMap<PreviewedObject, String>,
    /// Objects that would change, by their primary.
    pub changes: BTreeMap<PreviewedObject, Vec<ObjectChange>>,
}

/// An object that a controller of the plugin reconciles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PreviewedObject {
    /// The controller.
    pub controller: String,
    /// The kind, in the version that the controller names.
    pub kind: Kind,
    /// The object.
    pub name: Name,
}

impl fmt::Display for PreviewedObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.kind, self.name)
    }
}

/// An object that would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectChange {
    /// Description of the change.
    pub line: String,
    /// Digest of the desired object.
    pub digest: String,
}

/// The most namespaces that a host can be narrowed to.
const MOST_NAMESPACES: usize = 32;

/// Returns the changes of a component in a live cluster, if it ran there as the Plugin of this name, in all namespaces.
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
    /// Reconciles all objects.
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
        let host = Host::new(client, options(confinement));
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
        let (previews, failed) = (handle.previews(name), handle.failing(name));
        let _ = stop.send(());
        running.await?;
        let mut found = PreviewedChanges {
            primaries,
            failing,
            ..PreviewedChanges::default()
        };
        let selects = |primary: &Name| {
            let own = confinement.namespaces();
            own.is_empty()
                || primary
                    .namespace
                    .as_deref()
                    .is_some_and(|namespace| own.contains(namespace))
        };
        for (controller, kind, name, failure) in failed.into_iter().filter(|(_, _, primary, _)| selects(primary)) {
            let object = PreviewedObject { controller, kind, name };
            found.failures.insert(object, failure.message);
        }
        for (controller, kind, name, preview) in previews.into_iter().filter(|(_, _, primary, _)| selects(primary)) {
            let mut changes: Vec<ObjectChange> = preview.changes.iter().map(ObjectChange::of).collect();
            if preview.more > 0 {
                changes.push(ObjectChange {
                    line: format!("and {} more objects", preview.more),
                    digest: preview.basis,
                });
            }
            if !changes.is_empty() {
                let object = PreviewedObject { controller, kind, name };
                found.changes.insert(object, changes);
            }
        }
        Ok(found)
    }
}

/// Returns options of a host that keeps the changes of all primaries, confined to the Plugin's namespaces if possible.
fn options(confinement: &Confinement) -> HostOptions {
    let reached = if confinement.namespaces().is_empty() {
        BTreeSet::new()
    } else {
        confinement.reached()
    };
    HostOptions {
        previews: usize::MAX,
        watch_namespaces: if reached.len() > MOST_NAMESPACES {
            BTreeSet::new()
        } else {
            reached
        },
        ..HostOptions::default()
    }
}

impl ObjectChange {
    fn of(change: &PreviewedChange) -> Self {
        Self {
            line: change.to_string(),
            digest: change.digest.clone(),
        }
    }
}

impl PreviewedChanges {
    /// Keeps only changes that another version would not make, too.
    pub fn beyond(&mut self, other: &Self) {
        for (object, changes) in &mut self.changes {
            let known = other.changes.get(object).map(Vec::as_slice).unwrap_or_default();
            changes.retain(|change| !known.contains(change));
            for change in changes {
                // The difference is masked, shortened, or in an object that does not exist.
                if known.iter().any(|known| known.line == change.line) {
                    change.line.push_str(", with other values than the running version");
                }
            }
        }
        self.changes.retain(|_, changes| !changes.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(line: &str, digest: &str) -> ObjectChange {
        ObjectChange {
            line: line.to_owned(),
            digest: digest.to_owned(),
        }
    }

    fn object(name: &str) -> PreviewedObject {
        PreviewedObject {
            controller: "c".to_owned(),
            kind: Kind::new("test.dev", "v1", "C"),
            name: Name::new(Some("a"), name),
        }
    }

    fn changes(objects: &[(&str, &[(&str, &str)])]) -> PreviewedChanges {
        let all = objects.iter().map(|(object, changes)| {
            let changes = changes.iter().map(|(line, digest)| change(line, digest));
            (self::object(object), changes.collect())
        });
        PreviewedChanges {
            changes: all.collect(),
            ..PreviewedChanges::default()
        }
    }

    #[test]
    fn equal_changes_of_both_versions_are_no_difference() {
        let mut new = changes(&[
            ("x", &[("Update X", "1"), ("Create Y", "2")]),
            ("z", &[("Update Z", "3")]),
        ]);
        new.beyond(&changes(&[("x", &[("Update X", "1")]), ("z", &[("Update Z", "3")])]));
        assert_eq!(new, changes(&[("x", &[("Create Y", "2")])]));
    }

    #[test]
    fn different_changes_of_both_versions_are_a_difference() {
        let mut new = changes(&[("x", &[("Update Secret X; .data.key: *** becomes ***", "2")])]);
        new.beyond(&changes(&[(
            "x",
            &[("Update Secret X; .data.key: *** becomes ***", "1")],
        )]));
        let line = "Update Secret X; .data.key: *** becomes ***, with other values than the running version";
        assert_eq!(new, changes(&[("x", &[(line, "2")])]));
    }

    #[test]
    fn a_preview_sees_no_more_than_the_plugin() {
        let names = |count: usize| (0..count).map(|number| format!("n-{number}")).collect::<Vec<_>>();
        let seen = |namespaces: usize, access: usize| {
            let confinement = Confinement::new(&names(namespaces), &names(access)).unwrap();
            options(&confinement).watch_namespaces.len()
        };
        assert_eq!((seen(2, 3), seen(0, 0)), (3, 0));
        assert_eq!(seen(33, 0), 0, "a host watches that many one by one only up to a limit");
    }
}
