//! Determines the changes that a version of a plugin would make in a cluster: a host in this process runs it in
//! preview, with a client that changes nothing, until it has reconciled every object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use pilothouse_cluster::Client;
use pilothouse_cluster::connect::crd_preview::{Convert, CrdPreview};
use pilothouse_cluster::connect::{ClusterTarget, connect_through};
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::fence::WriteFence;
use pilothouse_cluster::resources::install::{CrdInCluster, compare_crd};
use pilothouse_cluster::resources::installer::Installer;
use pilothouse_core::admission::conversion;
use pilothouse_core::diff::preview::{Preview, PreviewAction, PreviewedChange};
use pilothouse_core::plugin::inventory::Inventory;
use pilothouse_core::plugin::manifest::{self, BroughtCrd};
use pilothouse_core::rights::Confinement;
use pilothouse_core::text::printable::printable;
use pilothouse_core::{Kind, Limits, Name};
use pilothouse_metrics::RequestMetrics;
use pilothouse_runtime::host::PluginPreview;
use pilothouse_runtime::{Handle, Host, HostOptions, RunMode, StaticPlugin};
use pilothouse_sandbox::PluginComponent;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{client, find_plugin};
use crate::artifact::wait_for;
use crate::run::{ClusterArguments, USER_AGENT};

/// Interval at which the host is polled for its end.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Time after which a preview ends that has looked at all objects, although some of them change again and again.
const SETTLED: Duration = Duration::from_secs(1);

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
    /// The status of the live Plugin, which names the kinds that its versions owned.
    pub status: &'a Value,
    /// The namespaces that the Plugin names.
    pub confinement: &'a Confinement,
    /// The CustomResourceDefinitions that are to be applied; `None`: those that the cluster does not have, or that accept
    /// less there.
    pub applied: Option<Vec<BroughtCrd>>,
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
    /// Number of deletions that are not among the changes, because a primary has very many.
    pub unnamed_deletes: usize,
    /// Definitions that the cluster does not have, so that they have no objects.
    pub new_definitions: Vec<String>,
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
    /// The order of a deletion among others, and the object; none if the object stays.
    pub deletion: Option<(u8, String)>,
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
    let target = cluster.target();
    wait_for(async {
        let installer = Installer::new(client(&target).await?, name);
        let live = find_plugin(&installer, name).await.unwrap_or_else(|error| {
            eprintln!(
                "note: the Plugin cannot be read, so objects of kinds that only an earlier version owned are not looked at: {}",
                printable(&format!("{error:#}"))
            );
            None
        });
        let live = live.unwrap_or_default();
        let version = PreviewedVersion {
            name,
            component,
            config,
            spec: &Value::Null,
            status: &live["status"],
            confinement: &Confinement::default(),
            applied: None,
        };
        version.changes(&target, within).await
    })
}

impl PreviewedVersion<'_> {
    /// Reconciles all objects.
    pub async fn changes(self, target: &ClusterTarget, within: Duration) -> anyhow::Result<PreviewedChanges> {
        let Self {
            name,
            component,
            config,
            spec,
            status,
            confinement,
            applied,
        } = self;
        let limits = spec["limits"].clone();
        let limits: Limits = if limits.is_null() {
            Limits::default()
        } else {
            serde_json::from_value(limits).context("spec.limits of the Plugin cannot be read")?
        };
        let convert = converter(&component, &limits);
        let fence = WriteFence::closed();
        let client = connect_through(target, USER_AGENT, &fence, &RequestMetrics::default()).await?;
        let about = "cannot read the CustomResourceDefinitions of the cluster";
        let crds = if let Some(crds) = applied {
            crds
        } else {
            let crds = brought(&component, config.as_ref(), &limits)?;
            differing(&client, crds).await.context(about)?
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
        let shown = CrdPreview::new(&client, &crds, convert).await.context(about)?;
        let options = HostOptions {
            inventory: Inventory::of_status(status),
            ..options(confinement)
        };
        let host = Host::new(shown.client(client), options);
        let handle = host.handle();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = host.run(vec![plugin], async {
            let _ = stopped.await;
        });
        tokio::pin!(running);
        let progress = tokio::select! {
            ended = &mut running => {
                ended?;
                bail!("the plugin cannot be previewed; `pilothouse run --plugin` says why");
            }
            progress = complete(&handle, name, within) => progress?,
        };
        let previews = handle.previews(name);
        let _ = stop.send(());
        running.await?;
        Ok(PreviewedChanges::of(&progress, previews, &shown, confinement))
    }
}

/// Waits until every controller has looked at all of its objects.
async fn complete(handle: &Handle, name: &str, within: Duration) -> anyhow::Result<PluginPreview> {
    let begun = Instant::now();
    let mut complete_since: Option<Instant> = None;
    loop {
        let preview = handle.preview(name);
        let is_idle = handle.is_idle();
        if preview.is_complete() {
            let since = *complete_since.get_or_insert_with(Instant::now);
            if is_idle || since.elapsed() >= SETTLED {
                return Ok(preview);
            }
        } else {
            complete_since = None;
            if let Some(condition) = preview
                .condition
                .as_ref()
                .filter(|_| is_idle && preview.controllers.is_empty())
            {
                bail!(
                    "the version does not start, so it has looked at no object: {}",
                    printable(condition)
                );
            }
        }
        if begun.elapsed() > within {
            bail!(unfinished(&preview, &handle.missing_for_readiness(), within));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Describes a preview that has not looked at all objects.
fn unfinished(preview: &PluginPreview, missing: &[String], within: Duration) -> String {
    let seconds = within.as_secs();
    let mut text = format!("not all objects were looked at in {seconds} s");
    for controller in &preview.controllers {
        let (looked_at, objects) = (controller.preview.looked_at, controller.preview.objects);
        if controller.preview.is_open {
            let _ = write!(
                text,
                "; controller {} has looked at {looked_at} of {objects}",
                controller.controller
            );
        } else {
            let _ = write!(text, "; controller {} has looked at none", controller.controller);
        }
    }
    for problem in missing {
        text.push_str("; ");
        text.push_str(&printable(problem));
    }
    text + "; mend what is missing, or give more time with --wait"
}

/// Returns the definitions that a component brings.
fn brought(component: &PluginComponent, config: Option<&Value>, limits: &Limits) -> anyhow::Result<Vec<BroughtCrd>> {
    let text = config.map(ToString::to_string);
    let described = component
        .describe(text.as_deref(), limits)
        .context("the component cannot be described")?;
    Ok(manifest::parse_configured(&described, config)?.crds)
}

/// Returns those definitions for which the one in the cluster does not do.
async fn differing(client: &Client, crds: Vec<BroughtCrd>) -> Result<Vec<BroughtCrd>, RequestError> {
    let mut differing = Vec::new();
    for crd in crds {
        if compare_crd(client, &crd).await? != CrdInCluster::Same {
            differing.push(crd);
        }
    }
    Ok(differing)
}

/// Returns the plugin's own conversion between versions, if it has one.
fn converter(component: &PluginComponent, limits: &Limits) -> Option<Convert> {
    if !component.optional().converter {
        return None;
    }
    let (component, limits) = (component.clone(), limits.clone());
    let convert = move |object: &Value, api_version: &str| -> Result<Value, String> {
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "preview", "desiredAPIVersion": api_version, "objects": [object]},
        });
        let review = review.to_string();
        let request = conversion::parse(review.as_bytes()).map_err(|error| error.to_string())?;
        let answer = request.answer(|object| {
            let call = component.convert(&object.shown(), api_version, &limits);
            let converted = call.result.map_err(|failure| failure.message)??;
            object.converted(&converted, api_version)
        });
        let answer = answer.map_err(|error| error.to_string())?;
        let mut answer: Value = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
        match answer["response"]["convertedObjects"].get_mut(0) {
            Some(converted) => Ok(converted.take()),
            None => Err(answer["response"]["result"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned()),
        }
    };
    Some(Arc::new(convert))
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
            deletion: (change.act == PreviewAction::Delete).then(|| {
                let (rank, object) = change.deletion_order();
                (rank, object.to_owned())
            }),
        }
    }
}

impl PreviewedChanges {
    /// Returns the changes of the objects in these namespaces.
    fn of(
        progress: &PluginPreview,
        previews: Vec<(String, Kind, Name, Preview)>,
        shown: &CrdPreview,
        confinement: &Confinement,
    ) -> Self {
        let mut found = Self {
            new_definitions: shown.new_definitions(),
            ..Self::default()
        };
        let selects = |primary: &Name| {
            let own = confinement.namespaces();
            own.is_empty()
                || primary
                    .namespace
                    .as_deref()
                    .is_some_and(|namespace| own.contains(namespace))
        };
        let own = progress.controllers.iter().filter(|controller| !controller.is_former);
        found.primaries = own.map(|controller| controller.preview.objects).sum();
        for (controller, kind, name, preview) in previews.into_iter().filter(|(_, _, primary, _)| selects(primary)) {
            let object = PreviewedObject { controller, kind, name };
            let mut changes: Vec<ObjectChange> = preview.changes.iter().map(ObjectChange::of).collect();
            found.unnamed_deletes += preview.deletes - changes.iter().filter(|it| it.deletion.is_some()).count();
            if preview.more > 0 {
                changes.push(ObjectChange {
                    line: format!("and {} more objects", preview.more),
                    digest: preview.basis,
                    deletion: None,
                });
            }
            if let Some(failure) = preview.failure {
                found.failures.insert(object.clone(), failure);
            }
            if !changes.is_empty() {
                found.changes.insert(object, changes);
            }
        }
        for ((kind, name), problem) in shown.failures().into_iter().filter(|((_, name), _)| selects(name)) {
            found.primaries += 1;
            let object = PreviewedObject {
                controller: String::new(),
                kind,
                name,
            };
            found.failures.insert(object, problem);
        }
        found.failing = found.failures.len();
        found
    }

    /// Returns the objects that would be deleted: those with data that nothing restores first, then by name.
    pub fn deletions(&self) -> Vec<&str> {
        let mut deletions: Vec<_> = self
            .changes
            .values()
            .flatten()
            .filter_map(|it| it.deletion.as_ref())
            .collect();
        deletions.sort();
        deletions.into_iter().map(|(_, object)| object.as_str()).collect()
    }

    /// Returns the number of objects that would be deleted.
    pub fn deletes(&self) -> u64 {
        (self.deletions().len() + self.unnamed_deletes) as u64
    }

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
            deletion: None,
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
    fn deletions_of_all_objects_are_in_one_order() {
        let deletion =
            |object: &str| ObjectChange::of(&PreviewedChange::whole(PreviewAction::Delete, object.to_owned()));
        let mut found = changes(&[("x", &[("Update X", "1")])]);
        found
            .changes
            .insert(object("a"), vec![deletion("ConfigMap a/c"), deletion("Secret a/s")]);
        found
            .changes
            .insert(object("b"), vec![deletion("PersistentVolumeClaim b/p")]);
        assert_eq!(
            found.deletions(),
            ["PersistentVolumeClaim b/p", "Secret a/s", "ConfigMap a/c"]
        );
        assert_eq!(found.deletes(), 3);
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
