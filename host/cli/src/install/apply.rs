//! Owns `pilothouse install`: it says what a plugin will be able to do, asks, and applies all that the plugin needs in the
//! order in which a host may use it: CRDs, account, roles, bindings, and the Plugin last. Each step can be repeated.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use pilothouse_cluster::Client;
use pilothouse_cluster::install::{Edited, install_crd};
use pilothouse_cluster::installer::{Applied, Installer, title};
use pilothouse_core::crd_change::CrdChange;
use pilothouse_core::manifest::BroughtCrd;
use pilothouse_core::rights::rules::Place;
use pilothouse_core::rights::{Rights, words};
use serde_json::Value;

use super::losses::{CompareSchemas, Losses, losses};
use super::takeover::{TakenOver, Takeover, differs, joined, narrows};
use super::{DescribedPlugin, Format, LivePlugin, PluginArguments, client, confirm, printed, tell_remarks};
use crate::artifact::wait_for;
use crate::run::ClusterArguments;
use pilothouse_core::printable::printable;

/// The next step when something is refused half-way.
const AGAIN: &str = "what was applied stays; run the command again when it is corrected";

/// Help that stands below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse install app-service.wasm
  pilothouse install oci://ghcr.io/acme/app-service:0.1.0 --namespaces shop,stage --pull-secret ghcr --yes
  pilothouse install app-service.wasm -o yaml | kubectl apply --server-side -f -

A component that is given as a file has to be in the host's --plugin-dir under the same name, and a layout under the same path. An
artifact is pinned to its digest; `pilothouse verify` verifies its signature.

What is not said about the host (--host-namespace, --host-account, --identity, --host-in-namespaces) stays as the Plugin records it;
all else becomes what the command line says. With -o the cluster is not looked at, so say all of it.

A CustomResourceDefinition that drops a version in which objects are stored, or that does not accept live objects, is refused. While
another version runs, its rights stay until the host runs this one and has pruned what the other one made.

Exit code: 0, 1 if the plugin is not installed, 2 if the command line is wrong.";

/// `pilothouse install`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct InstallCommand {
    #[command(flatten)]
    plugin: PluginArguments,

    /// Print what would be applied, for kubectl or for a repository, and change nothing
    #[arg(long, short, value_enum)]
    output: Option<Format>,

    /// Install without asking
    #[arg(long)]
    yes: bool,

    /// Number of seconds that the host has to start this version and to prune what another one made, where that one has rights that
    /// this one does not need
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    wait: u64,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// What an installation changes.
pub(super) struct Plan {
    /// The CRDs that it brings, and those in the cluster.
    crds: Vec<(BroughtCrd, Option<Value>)>,
    /// What is applied, and what is there already.
    objects: Vec<(Value, Option<Value>)>,
    /// What an earlier installation granted and this one does not.
    pub(super) stale: Vec<Value>,
    /// The takeover from a version that runs with other rights.
    takeover: Option<Takeover>,
}

impl InstallCommand {
    /// Installs, or prints.
    pub fn execute(self, compare: CompareSchemas) -> anyhow::Result<()> {
        let Self {
            plugin,
            output,
            yes,
            wait,
            cluster,
        } = self;
        let plugin = plugin.describe_over(&Value::Null)?;
        plugin.check()?;
        plugin.check_source()?;
        let target = cluster.target();
        if let Some(format) = output {
            let plugin = plugin.hosted(&LivePlugin::default())?;
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
            let live = LivePlugin::find(&installer, plugin.name()).await?;
            let plugin = plugin.hosted(&live)?;
            let rights = plugin.rights(target.clone()).await?;
            let plan = plan(&installer, &plugin, &rights, Some(plugin.resource()?), live).await?;
            let losses = plan.losses(&installer, compare).await?;
            print!("{}", explained(&plugin, &rights, &plan, &losses));
            losses.refuse("installation")?;
            confirm("Install it?", yes).await?;
            plan.carry_out(&client, &installer, Duration::from_secs(wait)).await
        })
    }
}

/// Looks at the cluster, and refuses what cannot succeed before anything is changed. What was installed before is known.
pub(super) async fn plan(
    installer: &Installer,
    plugin: &DescribedPlugin,
    rights: &Rights,
    resource: Option<Value>,
    live: LivePlugin,
) -> anyhow::Result<Plan> {
    let mut namespaces = vec![plugin.host.namespace.as_str()];
    namespaces.extend(rights.account.places().filter_map(|(place, _)| match place {
        Place::Cluster => None,
        Place::Namespace(namespace) => Some(namespace.as_str()),
    }));
    for namespace in namespaces {
        installer.check_namespace(namespace).await?;
    }
    let mut crds = Vec::new();
    for crd in &plugin.checked.crds {
        crds.push((crd.clone(), installer.find(&crd.definition).await?));
    }
    let mut objects = Vec::new();
    for object in plugin.grants(rights).into_iter().chain(resource) {
        let live = installer.find(&object).await?;
        if let Some(live) = &live {
            installer.check(&object, live)?;
        }
        objects.push((object, live));
    }
    let is_wanted = |object: &Value| objects.iter().any(|(wanted, _)| title(wanted) == title(object));
    let LivePlugin {
        plugin: resource,
        installed,
    } = live;
    let stale: Vec<Value> = installed.into_iter().filter(|object| !is_wanted(object)).collect();
    let takeover = Takeover::from(resource.as_ref(), plugin.component.digest(), &plugin.checked.manifest);
    let plan = Plan {
        crds,
        objects,
        stale,
        takeover: None,
    };
    let is_narrower = !plan.stale.is_empty() || plan.changed().any(|(wanted, live)| narrows(wanted, live));
    Ok(Plan {
        takeover: takeover.filter(|_| is_narrower),
        ..plan
    })
}

/// All that somebody has to know to say yes. What comes from the plugin cannot move the cursor.
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
    if plugin.host.account.is_some() {
        let _ = writeln!(text, "{}", plugin.host);
    }
    text.push_str("\nThis applies\n");
    let state = |is_there| if is_there { ", which is there already" } else { "" };
    for (crd, live) in &plan.crds {
        let _ = writeln!(text, "  CustomResourceDefinition {}{}", crd.name, state(live.is_some()));
    }
    for (object, live) in &plan.objects {
        let _ = writeln!(text, "  {}{}", title(object), state(live.is_some()));
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

/// A line for each object.
pub(super) fn titles(objects: &[Value]) -> String {
    objects.iter().fold(String::new(), |mut text, object| {
        let _ = writeln!(text, "  {}", title(object));
        text
    })
}

impl Plan {
    /// The CRDs that the plugin brings, and those in the cluster.
    pub(super) fn crds(&self) -> impl Iterator<Item = &(BroughtCrd, Option<Value>)> {
        self.crds.iter()
    }

    /// What is there already and is applied in another form.
    pub(super) fn changed(&self) -> impl Iterator<Item = (&Value, &Value)> {
        let present = self
            .objects
            .iter()
            .filter_map(|(wanted, live)| Some((wanted, live.as_ref()?)));
        present.filter(|(wanted, live)| differs(wanted, live))
    }

    /// What live objects would lose with the CRDs.
    pub(super) async fn losses(&self, installer: &Installer, compare: CompareSchemas) -> anyhow::Result<Losses> {
        let mut all = Losses::default();
        for (crd, live) in &self.crds {
            if let Some(live) = live {
                let change = CrdChange::between(live, &crd.definition);
                all.extend(losses(installer, crd, live, &change, compare).await?);
            }
        }
        Ok(all)
    }

    /// Applies all of it.
    pub(super) async fn carry_out(
        &self,
        client: &Client,
        installer: &Installer,
        within: Duration,
    ) -> anyhow::Result<()> {
        for (crd, _) in &self.crds {
            let wrote = install_crd(client, crd, Edited::Restore).await.context(AGAIN)?;
            let word = if wrote { "applied" } else { "unchanged" };
            println!("CustomResourceDefinition {} {word}", crd.name);
        }
        let Some(takeover) = &self.takeover else {
            // What is no longer granted goes first, and the Plugin comes last: no version has more than it is given.
            delete(installer, &self.stale).await?;
            for (object, _) in &self.objects {
                apply(installer, object).await?;
            }
            return Ok(());
        };
        let mut joint = Vec::new();
        for (object, live) in &self.objects {
            let live = live.as_ref().filter(|live| narrows(object, live));
            apply(
                installer,
                &live.map_or_else(|| object.clone(), |live| joined(object, live)),
            )
            .await?;
            joint.extend(live.map(|_| object));
        }
        let Some((plugin, _)) = self.objects.last() else {
            return Ok(());
        };
        println!(
            "waiting until the host runs this version and has pruned what an earlier one made; until then the rights of both are \
             granted"
        );
        let plugin = installer.find(plugin).await.context(AGAIN)?.unwrap_or_default();
        match takeover.wait(installer, &plugin, within).await.context(AGAIN)? {
            TakenOver::Completely => {}
            TakenOver::Partly(left) => bail!(
                "of an earlier version these are left after {} s, so its rights stay, beside those of this version: {}; see that the \
                 Plugin is not suspended and that nobody holds these objects, and run the command again when they are gone",
                within.as_secs(),
                left.join(", ")
            ),
            TakenOver::NotYet(reason) => bail!(
                "this version does not run after {} s, so the earlier one keeps its rights, beside those of this version: {reason}; when \
                 that is corrected, run the command again",
                within.as_secs()
            ),
            TakenOver::Meanwhile => bail!(
                "somebody else has changed or deleted the Plugin meanwhile, so the rights of both versions stay; look at the Plugin, and \
                 run the command again"
            ),
        }
        delete(installer, &self.stale).await?;
        for object in joint {
            apply(installer, object).await?;
        }
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

async fn apply(installer: &Installer, object: &Value) -> anyhow::Result<()> {
    let word = match installer.apply(object).await.context(AGAIN)? {
        Applied::Created => "created",
        Applied::Changed => "changed",
        Applied::Unchanged => "unchanged",
    };
    println!("{} {word}", title(object));
    Ok(())
}
