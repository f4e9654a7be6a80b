//! Owns `pilothouse install`: it says what a plugin will be able to do, asks, and applies all that the plugin needs in the
//! order in which a host may use it: CRDs, account, roles, bindings, and the Plugin last. Each step can be repeated.

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::Args;
use pilothouse_cluster::Client;
use pilothouse_cluster::install::install_crd;
use pilothouse_cluster::installer::{Applied, Installer, title};
use pilothouse_core::rights::rules::Place;
use pilothouse_core::rights::{Rights, words};
use serde_json::Value;

use super::{DescribedPlugin, Format, LivePlugin, PluginArguments, client, confirm, printed, tell_remarks};
use crate::artifact::{printable, wait_for};
use crate::run::ClusterArguments;

/// Help that stands below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse install app-service.wasm
  pilothouse install oci://ghcr.io/acme/app-service:0.1.0 --namespaces shop,stage --pull-secret ghcr --yes
  pilothouse install app-service.wasm -o yaml | kubectl apply --server-side -f -

A component that is given as a file has to be in the host's --plugin-dir under the same name, and a layout under the same path. An
artifact is pinned to its digest; `pilothouse verify` verifies its signature.

What is not said about the host (--host-namespace, --host-account, --identity, --host-in-namespaces) stays as the plugin is
installed already; all else becomes what the command line says. With -o the cluster is not looked at, so say all of it.

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

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// What an installation changes.
pub(super) struct Plan {
    /// The CRDs that are there already, by name.
    present_crds: Vec<String>,
    /// What is applied, and whether it is there already.
    objects: Vec<(Value, bool)>,
    /// What an earlier installation granted and this one does not.
    pub(super) stale: Vec<Value>,
}

impl InstallCommand {
    /// Installs, or prints.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            plugin,
            output,
            yes,
            cluster,
        } = self;
        let plugin = plugin.describe_over(&Value::Null)?;
        plugin.check()?;
        let target = cluster.target();
        let resource = plugin.resource()?;
        if let Some(format) = output {
            let plugin = plugin.hosted(&LivePlugin::default())?;
            let rights = wait_for(plugin.rights(target))?;
            tell_remarks(&rights);
            let definitions = plugin.checked.crds.iter().map(|crd| crd.definition.clone());
            let documents: Vec<Value> = definitions.chain(plugin.grants(&rights)).chain([resource]).collect();
            print!("{}", printed(&documents, format)?);
            return Ok(());
        }
        wait_for(async {
            let client = client(&target).await?;
            let installer = Installer::new(client.clone(), plugin.name());
            let live = LivePlugin::find(&installer, plugin.name()).await?;
            let plugin = plugin.hosted(&live)?;
            let rights = plugin.rights(target.clone()).await?;
            let plan = plan(&installer, &plugin, &rights, Some(resource), live.installed).await?;
            print!("{}", explained(&plugin, &rights, &plan));
            confirm("Install it?", yes).await?;
            carry_out(&client, &installer, &plugin, &plan).await
        })
    }
}

/// Looks at the cluster, and refuses what cannot succeed before anything is changed. What was installed before is known.
pub(super) async fn plan(
    installer: &Installer,
    plugin: &DescribedPlugin,
    rights: &Rights,
    resource: Option<Value>,
    installed: Vec<Value>,
) -> anyhow::Result<Plan> {
    let mut namespaces = vec![plugin.host.namespace.as_str()];
    namespaces.extend(rights.account.places().filter_map(|(place, _)| match place {
        Place::Cluster => None,
        Place::Namespace(namespace) => Some(namespace.as_str()),
    }));
    for namespace in namespaces {
        installer.check_namespace(namespace).await?;
    }
    let mut present_crds = Vec::new();
    for crd in &plugin.checked.crds {
        if installer.find(&crd.definition).await?.is_some() {
            present_crds.push(crd.name.clone());
        }
    }
    let mut objects = Vec::new();
    for object in plugin.grants(rights).into_iter().chain(resource) {
        let live = installer.find(&object).await?;
        if let Some(live) = &live {
            installer.check(&object, live)?;
        }
        objects.push((object, live.is_some()));
    }
    let is_wanted = |object: &Value| objects.iter().any(|(wanted, _)| title(wanted) == title(object));
    let stale = installed.into_iter().filter(|object| !is_wanted(object)).collect();
    Ok(Plan {
        present_crds,
        objects,
        stale,
    })
}

/// All that somebody has to know to say yes. What comes from the plugin cannot move the cursor.
fn explained(plugin: &DescribedPlugin, rights: &Rights, plan: &Plan) -> String {
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
        let _ = writeln!(text, "caution: {caution}");
    }
    for remark in &rights.remarks {
        let _ = writeln!(text, "note: {remark}");
    }
    if let Some(words) = plugin.wasi_words() {
        let _ = writeln!(text, "{words}");
    }
    if plugin.host.account.is_some() {
        let _ = writeln!(text, "{}", plugin.host);
    }
    text.push_str("\nThis applies\n");
    let state = |is_there| if is_there { ", which is there already" } else { "" };
    for crd in &plugin.checked.crds {
        let is_there = plan.present_crds.contains(&crd.name);
        let _ = writeln!(text, "  CustomResourceDefinition {}{}", crd.name, state(is_there));
    }
    for (object, is_there) in &plan.objects {
        let _ = writeln!(text, "  {}{}", title(object), state(*is_there));
    }
    if !plan.stale.is_empty() {
        text.push_str("and deletes what an earlier installation granted\n");
        text.push_str(&titles(&plan.stale));
    }
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

pub(super) async fn carry_out(
    client: &Client,
    installer: &Installer,
    plugin: &DescribedPlugin,
    plan: &Plan,
) -> anyhow::Result<()> {
    let again = "what was applied stays; run the command again when it is corrected";
    for crd in &plugin.checked.crds {
        let wrote = install_crd(client, crd).await.context(again)?;
        println!(
            "CustomResourceDefinition {} {}",
            crd.name,
            if wrote { "applied" } else { "unchanged" }
        );
    }
    // What is no longer granted goes first, and the Plugin comes last: no version has more than it is given.
    for object in &plan.stale {
        installer.delete(object).await.context(again)?;
        println!("{} deleted", title(object));
    }
    for (object, _) in &plan.objects {
        let applied = installer.apply(object).await.context(again)?;
        let word = match applied {
            Applied::Created => "created",
            Applied::Changed => "changed",
            Applied::Unchanged => "unchanged",
        };
        println!("{} {word}", title(object));
    }
    Ok(())
}
