//! `pilothouse upgrade`: prints the differences of a new version from the installed one in rights, CRDs and the objects
//! that would change, refuses to lose data, asks for confirmation, and applies it.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use pilothouse_artifact::Location;
use pilothouse_cluster::resources::installer::Installer;
use pilothouse_core::ownership::consent::Consent;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::rights::objects::{Acting, account_name};
use pilothouse_core::rights::rules::{Place, Rules};
use pilothouse_core::rights::words;
use pilothouse_sandbox::PluginComponent;
use serde_json::{Value, json};

use super::apply::titles;
use super::follow::{Follow, FollowArguments, followed};
use super::losses::{CompareSchemas, Losses};
use super::plan::{Plan, PlannedCrd, plan};
use super::preview::{ObjectChange, PreviewedChanges, PreviewedVersion};
use super::{
    DescribedPlugin, HostPlace, HostWait, LivePlugin, PluginArguments, WriteArguments, client, confirm, tell_remarks,
};
use crate::artifact::{component, pinned_to, wait_for};
use crate::compiling;
use crate::plugins::NamedFile;
use crate::run::ClusterArguments;
use crate::{WouldChange, WrongCommandLine};
use pilothouse_core::text::printable::printable;

/// Time in which all objects have to be reconciled if the command does not wait for the host.
const LOOK: Duration = Duration::from_mins(2);

/// The most objects that are named in one list.
const MOST_NAMED: usize = 20;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse upgrade app-service=app-service.wasm
  pilothouse upgrade app-service=oci://ghcr.io/acme/app-service:0.2.0 --from app-service-0.1.0.wasm
  pilothouse upgrade app-service=app-service.wasm --dry-run

What the command line does not say stays: namespaces, configuration and account as the Plugin has them, and what the host may
(--host-namespace, --host-account, --identity, --host-in-namespaces) as the host publishes it in its namespace, or as the Plugin's
annotation pilothouse.dev/installed-for says.

Which objects would change is found out by rendering every live object with both versions, in preview; what both would change is
left out. The running version is the artifact that the Plugin's status names, or what --from gives. For a Plugin with a file and
without --from, the result of the new version is compared with the objects in the cluster.

Every write is tried first, by a dry run of the API server. If one would fail, nothing is applied. What cannot be tried is named.
A field of the Plugin that somebody else has set, such as `kubectl patch`, is taken over with --force-conflicts.

A CustomResourceDefinition in the cluster that accepts all that this version's accepts, and keeps every field, stays (--crds).

Rights that only the earlier version needs are taken away when the new version runs and nothing of the earlier one is left.

Live objects are checked against a changed CRD as an API server would, with patterns and rules (x-kubernetes-validations). Rules
that use CEL functions of Kubernetes, such as quantity(), are named and not evaluated.

Objects that the new version would delete are listed first. --yes alone does not accept that: --accept deletes=NUMBER does, with
exactly their number, and the Plugin records it in its annotation pilothouse.dev/accept.

Exit code: 0, 1 if the plugin is not upgraded, does not run, or the change would lose data, 2 if the command line is wrong, 3 if
--dry-run finds changes, 4 if objects would be deleted and --accept does not say how many.";

/// `pilothouse upgrade`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct UpgradeCommand {
    #[command(flatten)]
    plugin: PluginArguments,

    #[command(flatten)]
    follow: FollowArguments,

    /// The component of the version that runs. All objects are rendered with it, too, and what it would change as the new version
    /// does is not shown (default: the artifact that the Plugin's status names; for a Plugin with a file, the objects in the
    /// cluster take its place)
    #[arg(long, value_name = "FILE|REF", conflicts_with = "no_objects")]
    from: Option<NamedFile>,

    #[command(flatten)]
    change: ChangeArguments,
}

/// Options of the commands that put another version in the place of the installed one.
#[derive(Args)]
pub struct ChangeArguments {
    #[command(flatten)]
    writes: WriteArguments,

    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not look at the objects that would change. That takes the right to list and watch all that the plugin touches
    #[arg(long)]
    no_objects: bool,

    /// Number of seconds in which all objects have to be looked at, and in which the host has to start the new version and, where the
    /// earlier one has rights that this one does not need, to prune what that one made. With `false` the command ends when everything
    /// is applied
    #[arg(long, value_name = "SECONDS|false", default_value = "120")]
    wait: HostWait,

    /// Change it without asking
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Differences that an upgrade makes.
struct Differences<'a> {
    gained: Rules,
    lost: Rules,
    plan: &'a Plan,
    losses: Losses,
    objects: Option<PreviewedChanges>,
    /// Basis of the comparison of objects, described for people.
    basis: &'static str,
}

impl Differences<'_> {
    /// Reports whether the upgrade would change rights, definitions or objects. The Plugin itself does not count.
    fn has_changes(&self) -> bool {
        let objects = self.objects.as_ref();
        self.plan.crds.iter().any(PlannedCrd::is_changed)
            || !self.plan.stale.is_empty()
            || !self.gained.is_empty()
            || !self.lost.is_empty()
            || objects.is_some_and(|objects| !objects.changes.is_empty() || objects.failing > 0)
    }
}

impl UpgradeCommand {
    /// Upgrades, or prints the changes.
    pub fn execute(self, compare: CompareSchemas) -> anyhow::Result<()> {
        let Self {
            plugin,
            follow: FollowArguments { follow },
            from,
            change,
        } = self;
        let Some(name) = plugin.name().map(str::to_owned) else {
            let form = "say which Plugin is upgraded: pilothouse upgrade NAME=FILE; `kubectl get plugins` lists them";
            return Err(WrongCommandLine(form.to_owned()).into());
        };
        let installed = change.installed(&name, plugin.host_place())?;
        change.execute("upgrade", installed, (plugin, follow, from), compare)
    }
}

impl ChangeArguments {
    /// Returns the Plugin, and its installed objects.
    pub(super) fn installed(&self, name: &str, host: HostPlace) -> anyhow::Result<LivePlugin> {
        let target = self.cluster.clone().target();
        wait_for(async {
            let installer = Installer::new(client(&target).await?, name);
            let installed = LivePlugin::find(&installer, name, host).await?;
            ensure!(
                installed.plugin.is_some(),
                "there is no Plugin {name}; `pilothouse install` installs one"
            );
            Ok(installed)
        })
    }

    /// Puts another version in the place of the installed one, or prints the changes. `verb` is the command's name.
    pub(super) fn execute(
        self,
        verb: &str,
        installed: LivePlugin,
        (plugin, follow, from): (PluginArguments, Option<Follow>, Option<NamedFile>),
        compare: CompareSchemas,
    ) -> anyhow::Result<()> {
        let Self {
            writes,
            dry_run,
            no_objects,
            wait,
            yes,
            cluster,
        } = self;
        let target = cluster.target();
        let live = installed.plugin.clone().unwrap_or_default();
        let before = if no_objects {
            None
        } else {
            running_version(from, &live, &plugin)?
        };
        let plugin = plugin.describe_over(&live["spec"], follow.as_ref())?;
        let plugin = plugin.hosted(&installed, Acting::Impersonation)?;
        plugin.check()?;
        plugin.check_same(&live)?;
        // An archive can be described, too, but not installed.
        let resource = match plugin.resource() {
            Err(_) if dry_run => None,
            resource => Some(resource?),
        };
        let within = wait.within().unwrap_or(LOOK);
        wait_for(async {
            let rights = plugin.rights(target.clone()).await?;
            tell_remarks(&rights);
            let client = client(&target).await?;
            let installer = Installer::new(client.clone(), &plugin.name);
            let granted = granted(&installed, &plugin);
            let plan = plan(&installer, &plugin, &rights, resource, installed, &writes).await?;
            let mut differences = Differences {
                gained: rights.account.beyond(&granted),
                lost: granted.beyond(&rights.account),
                losses: plan.losses(&installer, compare).await?,
                plan: &plan,
                objects: None,
                basis: if before.is_some() {
                    "the running version"
                } else {
                    "the objects in the cluster"
                },
            };
            if !no_objects {
                let version = |component, config, applied| PreviewedVersion {
                    name: &plugin.name,
                    component,
                    config,
                    spec: &live["spec"],
                    status: &live["status"],
                    confinement: &plugin.confinement,
                    applied,
                };
                let about = "cannot look at the objects that would change; with --no-objects the command does without";
                let applied = plan.crds.iter().filter(|crd| crd.applies).map(|crd| crd.crd.clone());
                let new = version(plugin.component.clone(), plugin.config.clone(), Some(applied.collect()))
                    .changes(&target, within)
                    .await;
                let mut new = new.context(about)?;
                if let Some(before) = before {
                    let config = Some(live["spec"]["configuration"].clone()).filter(|config| !config.is_null());
                    let old = version(before, config, None)
                        .changes(&target, within)
                        .await
                        .context(about)?;
                    new.beyond(&old);
                }
                differences.objects = Some(new);
            }
            print!("{}", explained(&plugin, &live, &differences));
            differences.losses.refuse(verb)?;
            if let Some(objects) = &differences.objects {
                Consent::check_deletes(plugin.accept.as_ref(), objects.deletes())?;
            }
            if dry_run {
                let is_change = differences.has_changes();
                return if is_change { Err(WouldChange.into()) } else { Ok(()) };
            }
            plan.try_out(&client, &installer).await?;
            let question = if verb == "rollback" {
                "Roll it back?"
            } else {
                "Upgrade it?"
            };
            confirm(question, yes).await?;
            plan.carry_out(&client, &installer, &plugin, wait).await
        })
    }
}

/// Returns the component of the running version: the given one, else the artifact that the Plugin's status names.
fn running_version(
    from: Option<NamedFile>,
    live: &Value,
    plugin: &PluginArguments,
) -> anyhow::Result<Option<PluginComponent>> {
    // It has been running with these grants.
    let sandbox = plugin.cache().sandbox()?.granting(Wasi::Inert);
    let fetched = |location: &Location| {
        let (pinned, bytes) = component(location, plugin.registries().clone())?;
        anyhow::Ok(compiling::load_bytes(&sandbox, &pinned.to_string(), &bytes)?)
    };
    if let Some(from) = from {
        let loaded = match from.reference() {
            None => compiling::load(&sandbox, &from.file)?,
            Some(reference) => fetched(&reference.parse()?)?,
        };
        return Ok(Some(loaded));
    }
    let artifact = &live["status"]["artifact"];
    let (Some(reference), Some(digest)) = (artifact["reference"].as_str(), artifact["digest"].as_str()) else {
        return Ok(None);
    };
    match pinned_to(reference, digest).and_then(|location| fetched(&location)) {
        Ok(running) => Ok(Some(running)),
        Err(error) => {
            eprintln!(
                "note: the running version cannot be fetched, so the objects in the cluster take its place; give it with --from to \
                 compare the two: {}",
                printable(&format!("{error:#}"))
            );
            Ok(None)
        }
    }
}

/// Returns the current rules of the plugin's account.
fn granted(installed: &LivePlugin, plugin: &DescribedPlugin) -> Rules {
    let mut granted = Rules::default();
    for role in &installed.installed {
        if role["metadata"]["name"] != account_name(&plugin.name) {
            continue;
        }
        let place = match role["metadata"]["namespace"].as_str() {
            Some(namespace) => Place::Namespace(namespace.to_owned()),
            None => Place::Cluster,
        };
        granted.add_role(&place, role);
    }
    granted
}

/// Describes the upgrade for the user's confirmation. Texts from the plugin cannot move the cursor.
fn explained(plugin: &DescribedPlugin, live: &Value, differences: &Differences<'_>) -> String {
    let Differences {
        gained,
        lost,
        plan,
        losses,
        objects,
        basis,
    } = differences;
    let version = live["status"]["version"].as_str().unwrap_or("(not known)");
    let mut text = format!(
        "Plugin {}: version {version} becomes {}\nfrom {}\n\n",
        plugin.name, plugin.checked.manifest.version, plugin.origin
    );
    if let (Some(before), Ok(source)) = (followed(&live["spec"]), &plugin.source)
        && followed(&json!({"source": source})).is_none()
    {
        let _ = writeln!(
            text,
            "It no longer follows {before}, and is pinned; `pilothouse upgrade {}=REF --follow` has it follow again\n",
            plugin.name
        );
    }
    for (title, rules) in [("may, besides,", gained), ("may no longer", lost)] {
        if !rules.is_empty() {
            let account = plugin.account();
            let _ = writeln!(text, "Its ServiceAccount {}/{account} {title}", plugin.host.namespace);
            text.push_str(&words::explained(rules));
        }
    }
    if gained.is_empty() && lost.is_empty() {
        text.push_str("Its ServiceAccount may do what it may now\n");
    }
    let _ = writeln!(text, "{}", plugin.host);
    for caution in words::cautions(gained) {
        let _ = writeln!(text, "caution: {}", printable(&caution));
    }
    for crd in &plan.crds {
        let _ = writeln!(text, "CustomResourceDefinition {} {}", crd.crd.name, crd.change());
    }
    if let Some(objects) = objects {
        explain_objects(&mut text, objects, basis);
    }
    let changed: Vec<Value> = plan.changed().map(|(wanted, _)| wanted.clone()).collect();
    if !changed.is_empty() {
        text.push_str("This changes what an earlier installation granted\n");
        text.push_str(&titles(&changed));
    }
    if !plan.stale.is_empty() {
        text.push_str("This deletes what an earlier installation granted\n");
        text.push_str(&titles(&plan.stale));
    }
    text.push_str(&losses.explained());
    text.push('\n');
    text.lines()
        .fold(String::new(), |text, line| text + &printable(line) + "\n")
}

/// Describes the objects that would be deleted, fail or change.
fn explain_objects(text: &mut String, objects: &PreviewedChanges, basis: &str) {
    let PreviewedChanges {
        primaries,
        failing,
        failures,
        changes,
        unnamed_deletes,
        new_definitions,
    } = objects;
    let deletes = objects.deletes();
    if deletes > 0 {
        let _ = writeln!(text, "Objects that it would delete: {deletes}");
        for deletion in objects.deletions() {
            let _ = writeln!(text, "  {}", printable(deletion));
        }
        if *unnamed_deletes > 0 {
            let _ = writeln!(text, "  and {unnamed_deletes} more");
        }
    }
    for definition in new_definitions {
        let _ = writeln!(
            text,
            "The cluster has no CustomResourceDefinition {definition} yet, so there are no objects of its kind"
        );
    }
    let _ = writeln!(
        text,
        "Of its {primaries} objects, {} would change something, compared with {basis}",
        changes.len()
    );
    if *failing > 0 {
        let _ = writeln!(text, "caution: the new version fails for {failing} of them");
        for (object, message) in failures.iter().take(MOST_NAMED) {
            let _ = writeln!(text, "  {object}: {}", printable(message));
        }
        let named = failures.len().min(MOST_NAMED);
        if *failing > named {
            let _ = writeln!(text, "  and {} more", failing - named);
        }
    }
    for (object, lines) in changes.iter().take(MOST_NAMED) {
        let _ = writeln!(text, "  {object}");
        for ObjectChange { line, .. } in lines {
            let _ = writeln!(text, "    {}", printable(line));
        }
    }
    if changes.len() > MOST_NAMED {
        let _ = writeln!(text, "  and {} more", changes.len() - MOST_NAMED);
    }
}
