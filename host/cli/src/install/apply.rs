//! `pilothouse install`: prints the rights that a plugin will have, asks for confirmation, and applies CRDs, account,
//! roles, bindings, and the Plugin last, so that the host can use them. Each step can be repeated.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use pilothouse_cluster::Client;
use pilothouse_cluster::resources::install::install_crd;
use pilothouse_cluster::resources::installer::{Applied, Installer, title};
use pilothouse_cluster::resources::migrate::StoredKind;
use pilothouse_core::rights::objects::Acting;
use pilothouse_core::rights::{Rights, words};
use serde_json::Value;

use super::follow::FollowArguments;
use super::losses::{CompareSchemas, Losses};
use super::plan::{Plan, PlannedCrd, plan};
use super::takeover::{TakenOver, UNSEEN};
use super::{
    DescribedPlugin, Format, HostWait, LivePlugin, PluginArguments, WriteArguments, client, confirm, printed,
    tell_remarks,
};
use crate::artifact::wait_for;
use crate::run::ClusterArguments;
use pilothouse_core::text::printable::printable;

/// Next step after an error half-way.
const AGAIN: &str = "what was applied stays; run the command again when it is corrected";

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse install app-service.wasm
  pilothouse install oci://ghcr.io/acme/app-service:0.1.0 --namespaces shop,stage --pull-secret ghcr --yes
  pilothouse install app-service.wasm -o yaml | kubectl apply --server-side -f -

A component that is given as a file has to be in the host's --plugin-dir under the same name, and a layout under the same path. An
artifact is pinned to its digest; `pilothouse verify` verifies its signature.

The host's account and how it acts are found out: the chart publishes them in the host's namespace, and the Plugin records them;
--host-namespace, --host-account, --identity and --host-in-namespaces say otherwise. All else becomes what the command line says. With
-o the cluster is not looked at, so say all of it.

The command waits until the host runs the plugin, and says what keeps it from that.

Every write is tried first, by a dry run of the API server. If one would fail, nothing is applied. What cannot be tried is named.

A CustomResourceDefinition that drops a version in which objects are stored, or that does not accept live objects, is refused, and
one that would take away what another Plugin needs of it. While another version runs, its rights stay until the host runs this one and has pruned what the other one made.

Exit code: 0, 1 if the plugin is not installed or does not run, 2 if the command line is wrong.";

/// `pilothouse install`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct InstallCommand {
    #[command(flatten)]
    plugin: PluginArguments,

    #[command(flatten)]
    follow: FollowArguments,

    #[command(flatten)]
    writes: WriteArguments,

    /// Print what would be applied, for kubectl or for a repository, and change nothing
    #[arg(long, short, value_enum)]
    output: Option<Format>,

    /// Install without asking
    #[arg(long)]
    yes: bool,

    /// Number of seconds that the host has to start this version and, where another one has rights that this one does not need, to
    /// prune what that one made. With `false` the command ends when everything is applied
    #[arg(long, value_name = "SECONDS|false", default_value = "120")]
    wait: HostWait,

    #[command(flatten)]
    cluster: ClusterArguments,
}

impl InstallCommand {
    /// Installs, or prints.
    pub fn execute(self, compare: CompareSchemas) -> anyhow::Result<()> {
        let Self {
            plugin,
            follow: FollowArguments { follow },
            writes,
            output,
            yes,
            wait,
            cluster,
        } = self;
        let host = plugin.host_place();
        let plugin = plugin.describe_over(&Value::Null, follow.as_ref())?;
        plugin.check()?;
        plugin.check_source()?;
        let target = cluster.target();
        if let Some(format) = output {
            let plugin = plugin.hosted(&LivePlugin::default(), Acting::Impersonation)?;
            let rights = wait_for(plugin.rights(target))?;
            tell_remarks(&rights);
            let definitions = plugin.checked.crds.iter().map(|crd| crd.definition.clone());
            let grants = plugin.grants(&rights);
            let documents: Vec<Value> = definitions.chain(grants).chain([plugin.resource()?]).collect();
            print!("{}", printed(&documents, format)?);
            return Ok(());
        }
        wait_for(async {
            let client = client(&target).await?;
            let installer = Installer::new(client.clone(), plugin.name());
            let live = LivePlugin::find(&installer, plugin.name(), host).await?;
            let plugin = plugin.hosted(&live, Acting::Impersonation)?;
            let rights = plugin.rights(target.clone()).await?;
            let plan = plan(&installer, &plugin, &rights, Some(plugin.resource()?), live, &writes).await?;
            let losses = plan.losses(&installer, compare).await?;
            print!("{}", explained(&plugin, &rights, &plan, &losses));
            losses.refuse("installation")?;
            plan.try_out(&client, &installer).await?;
            confirm("Install it?", yes).await?;
            plan.carry_out(&client, &installer, &plugin, wait).await
        })
    }
}

/// Describes the plan for the user's confirmation. Texts from the plugin cannot move the cursor.
fn explained(plugin: &DescribedPlugin, rights: &Rights, plan: &Plan, losses: &Losses) -> String {
    let manifest = &plugin.checked.manifest;
    let mut text = format!("Plugin {}: {} {}", plugin.name, manifest.name, manifest.version);
    if !manifest.description.is_empty() {
        let _ = write!(text, ", {}", printable(&manifest.description));
    }
    let account = plugin.account();
    let _ = write!(
        text,
        "\nfrom {}\n\nWith the ServiceAccount {}/{account} it may,\n",
        printable(&plugin.origin),
        plugin.host.namespace
    );
    text.push_str(&words::explained(&rights.account));
    for caution in words::cautions(&rights.account) {
        let _ = writeln!(text, "caution: {}", printable(&caution));
    }
    for remark in &rights.remarks {
        let _ = writeln!(text, "note: {}", printable(&remark.to_string()));
    }
    if let Some(words) = plugin.wasi_words() {
        let _ = writeln!(text, "{words}");
    }
    let _ = writeln!(text, "{}", plugin.host);
    text.push_str("\nThis applies\n");
    let state = |is_there| if is_there { ", which is there already" } else { "" };
    for PlannedCrd { crd, live, .. } in plan.crds.iter().filter(|crd| !crd.is_kept()) {
        let _ = writeln!(text, "  CustomResourceDefinition {}{}", crd.name, state(live.is_some()));
    }
    for (object, live) in &plan.objects {
        let _ = writeln!(text, "  {}{}", title(object), state(live.is_some()));
    }
    for crd in plan.crds.iter().filter(|crd| crd.is_kept()) {
        let _ = writeln!(text, "CustomResourceDefinition {} {}", crd.crd.name, crd.change());
    }
    if !plan.stale.is_empty() {
        text.push_str("and deletes what an earlier installation granted\n");
        text.push_str(&titles(&plan.stale));
    }
    text.push_str(&losses.explained());
    text.push('\n');
    text.lines()
        .fold(String::new(), |text, line| text + &printable(line) + "\n")
}

/// Formats a line for each object.
pub(super) fn titles(objects: &[Value]) -> String {
    objects.iter().fold(String::new(), |mut text, object| {
        let _ = writeln!(text, "  {}", title(object));
        text
    })
}

impl Plan {
    /// Applies the plan, and waits until the host runs the plugin.
    pub(super) async fn carry_out(
        &self,
        client: &Client,
        installer: &Installer,
        plugin: &DescribedPlugin,
        wait: HostWait,
    ) -> anyhow::Result<()> {
        for PlannedCrd { crd, sharer, .. } in &self.crds {
            let wrote = install_crd(client, crd, self.policy, sharer.as_deref())
                .await
                .context(AGAIN)?;
            let word = if wrote { "applied" } else { "unchanged" };
            println!("CustomResourceDefinition {} {word}", crd.name);
        }
        self.say_what_is_due(client).await;
        if !self.is_narrower {
            // Stale grants go first, and the Plugin is applied last: no version has more rights than it is given.
            delete(installer, &self.stale).await?;
        }
        let mut joint = Vec::new();
        for (object, live) in &self.objects {
            let joined = self.joined(object, live.as_ref());
            self.apply(installer, joined.as_ref().unwrap_or(object)).await?;
            joint.extend(joined.map(|_| object));
        }
        let Some((resource, before)) = self.objects.last() else {
            return Ok(());
        };
        let Some(within) = wait.within() else {
            if self.is_narrower {
                println!(
                    "the rights of an earlier version stay, beside those of this one; run the command again without --wait=false"
                );
            }
            return Ok(());
        };
        let live = installer.find(resource).await.context(AGAIN)?.unwrap_or_default();
        let is_new = before
            .as_ref()
            .is_none_or(|before| before["metadata"]["generation"] != live["metadata"]["generation"]);
        self.runs(installer, plugin, &live, within, is_new).await?;
        if self.is_narrower {
            delete(installer, &self.stale).await?;
            for object in joint {
                self.apply(installer, object).await?;
            }
        }
        Ok(())
    }

    /// Names the CRDs whose objects may be stored in a version that is not the storage version. That is no part of the installation,
    /// so a failed request is passed over.
    async fn say_what_is_due(&self, client: &Client) {
        for PlannedCrd { crd, .. } in &self.crds {
            let Ok(Some(stored)) = StoredKind::find(client, &crd.name).await else {
                continue;
            };
            let left = stored.left().join(", ");
            if !left.is_empty() {
                println!(
                    "objects of {} may be stored in {left}; when the plugin runs, `pilothouse migrate-storage {}` rewrites them in {}",
                    crd.name, crd.name, stored.storage
                );
            }
        }
    }

    async fn apply(&self, installer: &Installer, object: &Value) -> anyhow::Result<()> {
        let word = match installer.apply(object, self.force).await.context(AGAIN)? {
            Applied::Created => "created",
            Applied::Changed => "changed",
            Applied::Unchanged => "unchanged",
        };
        println!("{} {word}", title(object));
        Ok(())
    }

    /// Waits until the host runs the plugin, and has pruned the objects of an earlier version with more rights.
    async fn runs(
        &self,
        installer: &Installer,
        plugin: &DescribedPlugin,
        live: &Value,
        within: Duration,
        is_new: bool,
    ) -> anyhow::Result<()> {
        let (name, seconds) = (&plugin.name, within.as_secs());
        if let Some(unselected) = plugin.unselected(live) {
            bail!("Plugin {name} is applied, and no host runs it: {unselected}");
        }
        let purpose = if self.is_narrower {
            "runs it and has pruned what an earlier version made; until then the rights of both are granted"
        } else {
            "runs it"
        };
        println!("waiting until the host {purpose} ({seconds} s at most)");
        let explained = |reason: &str| {
            if reason == UNSEEN {
                return plugin.unseen();
            }
            reason.to_owned()
        };
        let show = |reason: &str| {
            if reason != UNSEEN {
                eprintln!("waiting: {reason}");
            }
        };
        let state = self
            .takeover
            .wait(installer, live, within, self.is_narrower, is_new, show);
        match state.await.context(AGAIN)? {
            TakenOver::Partly(left) if self.is_narrower => bail!(
                "of an earlier version these are left after {seconds} s, so its rights stay, beside those of this version: {}; see that \
                 the Plugin is not suspended and that nobody holds these objects, and run the command again when they are gone",
                left.join(", ")
            ),
            TakenOver::Completely | TakenOver::Partly(_) => {}
            TakenOver::Suspended => {
                println!("Plugin {name} is suspended (spec.mode), so the host does not run it");
                return Ok(());
            }
            TakenOver::Refused(reason) if self.is_narrower => bail!(
                "the host refuses this version, so the earlier one keeps its rights, beside those of this version: {reason}; when that is \
                 corrected, run the command again"
            ),
            TakenOver::Refused(reason) => bail!(
                "the host refuses this version of Plugin {name}: {reason}. What was applied stays, and the host starts the version when \
                 that is corrected"
            ),
            TakenOver::NotYet(reason) if self.is_narrower => bail!(
                "this version does not run after {seconds} s, so the earlier one keeps its rights, beside those of this version: {}; when \
                 that is corrected, run the command again",
                explained(&reason)
            ),
            TakenOver::NotYet(reason) => bail!(
                "Plugin {name} does not run after {seconds} s: {}. What was applied stays, and the host starts the plugin when that is \
                 corrected",
                explained(&reason)
            ),
            TakenOver::Meanwhile => bail!(
                "somebody else has changed or deleted Plugin {name} meanwhile, so all rights stay as they are; look at the Plugin, and run \
                 the command again"
            ),
        }
        let live = installer.find(live).await.context(AGAIN)?.unwrap_or_default();
        for warning in live["status"]["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            eprintln!("warning: {}", printable(warning));
        }
        let version = live["status"]["version"].as_str().unwrap_or_default();
        println!(
            "Plugin {name} runs: {} {}",
            plugin.checked.manifest.name,
            printable(version)
        );
        Ok(())
    }
}

async fn delete(installer: &Installer, objects: &[Value]) -> anyhow::Result<()> {
    for object in objects {
        installer.delete(object).await.context(AGAIN)?;
        println!("{} deleted", title(object));
    }
    Ok(())
}
