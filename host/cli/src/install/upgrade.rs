//! Owns `pilothouse upgrade`: it says how a new version differs from the installed one in rights, CRDs and the objects that
//! would change, refuses what loses data, asks, and applies it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use pilothouse_cluster::connect::ClusterTarget;
use pilothouse_cluster::installer::{Installer, InstallerError};
use pilothouse_core::Kind;
use pilothouse_core::crd_change::{CrdChange, common_version, losses};
use pilothouse_core::manifest::BroughtCrd;
use pilothouse_core::rights::objects::account_name;
use pilothouse_core::rights::rules::{Place, Rules};
use pilothouse_core::rights::{Rights, words};
use pilothouse_core::served::ServedKind;
use pilothouse_core::wasi::Wasi;
use serde_json::{Value, json};

use super::apply::{carry_out, plan, titles};
use super::preview::{PreviewedChanges, PreviewedVersion};
use super::{DescribedPlugin, LivePlugin, PluginArguments, client, confirm, tell_remarks};
use crate::artifact::{printable, wait_for};
use crate::compiling;
use crate::run::ClusterArguments;

/// The most objects that are named in one list.
const MOST_NAMED: usize = 20;

/// Help that stands below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse upgrade app-service=app-service.wasm
  pilothouse upgrade app-service=oci://ghcr.io/acme/app-service:0.2.0 --from app-service-0.1.0.wasm
  pilothouse upgrade app-service=app-service.wasm --dry-run

What the command line does not say stays: namespaces, configuration and account as the Plugin has them, and what the host may
(--host-namespace, --host-account, --identity, --host-in-namespaces) as its roles and bindings have it.

Which objects would change is found out by rendering every live object with the new version, in preview. Without --from the
result is compared with what is in the cluster, which is what the running version has made, or what others have made of it.
With --from every object is rendered with the old version, too, and what both versions would change is left out.

Patterns and rules of CRDs (x-kubernetes-validations) are not evaluated.

Exit code: 0, 1 if the plugin is not upgraded or the change would lose data, 2 if the command line is wrong.";

/// `pilothouse upgrade`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct UpgradeCommand {
    #[command(flatten)]
    plugin: PluginArguments,

    /// The component of the version that runs, a file. All objects are rendered with it, too, and what it would change as the new
    /// version does is not shown (default: compare with the objects in the cluster)
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not look at the objects that would change. That takes the right to list and watch all that the plugin touches
    #[arg(long, conflicts_with = "from")]
    no_objects: bool,

    /// Number of seconds in which all objects have to be looked at
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    wait: u64,

    /// Upgrade without asking
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// All that is to be known of an upgrade.
struct Differences {
    gained: Rules,
    lost: Rules,
    crds: Vec<(String, Option<CrdChange>)>,
    /// What speaks against it.
    refusals: Vec<String>,
    objects: Option<PreviewedChanges>,
    /// What was granted before and is not any more.
    stale: Vec<Value>,
}

impl UpgradeCommand {
    /// Upgrades, or says what that would change.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            plugin,
            from,
            dry_run,
            no_objects,
            wait,
            yes,
            cluster,
        } = self;
        let Some(name) = plugin.name().map(str::to_owned) else {
            bail!("say which Plugin is upgraded: pilothouse upgrade NAME=FILE; `kubectl get plugins` lists them");
        };
        let target = cluster.target();
        let (live, installed) = wait_for(live_plugin(&target, &name))?;
        // It ran until now, with what it was granted.
        let sandbox = plugin.cache().sandbox()?.granting(Wasi::Inert);
        let before = from.map(|file| compiling::load(&sandbox, &file)).transpose()?;
        let plugin = plugin.describe_over(&live["spec"])?.hosted(&installed)?;
        plugin.check()?;
        // An archive can be looked at, too, but not installed.
        let resource = match plugin.resource() {
            Err(_) if dry_run => None,
            resource => Some(resource?),
        };
        let within = Duration::from_secs(wait);
        wait_for(async {
            let rights = plugin.rights(target.clone()).await?;
            tell_remarks(&rights);
            let client = client(&target).await?;
            let installer = Installer::new(client.clone(), &name);
            let mut differences = differences(&installer, &plugin, &rights, &installed.installed).await?;
            // Versions of a kind that is not served yet cannot be looked at.
            if !no_objects && differences.refusals.is_empty() {
                let version = |component, config| PreviewedVersion {
                    name: &name,
                    component,
                    config,
                    spec: &live["spec"],
                    confinement: &plugin.confinement,
                };
                let about = "cannot look at the objects that would change; with --no-objects the command does without";
                let new = version(plugin.component.clone(), plugin.config.clone())
                    .changes(&target, within)
                    .await;
                let mut new = new.context(about)?;
                if let Some(before) = before {
                    let config = Some(live["spec"]["configuration"].clone()).filter(|config| !config.is_null());
                    let old = version(before, config).changes(&target, within).await.context(about)?;
                    new.beyond(&old);
                }
                differences.objects = Some(new);
            }
            if !differences.refusals.is_empty() {
                print!("{}", explained(&plugin, &live, &differences));
                bail!("the upgrade would lose data, and is refused; nothing was changed");
            }
            let plan = plan(&installer, &plugin, &rights, resource, installed.installed).await?;
            differences.stale.clone_from(&plan.stale);
            print!("{}", explained(&plugin, &live, &differences));
            if dry_run {
                return Ok(());
            }
            confirm("Upgrade it?", yes).await?;
            carry_out(&client, &installer, &plugin, &plan).await
        })
    }
}

/// The Plugin, and what was installed for it.
async fn live_plugin(target: &ClusterTarget, name: &str) -> anyhow::Result<(Value, LivePlugin)> {
    let installer = Installer::new(client(target).await?, name);
    let named = json!({"apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": name}});
    let live = installer.find(&named).await?;
    let live =
        live.with_context(|| format!("there is no Plugin {name} to upgrade; `pilothouse install` installs one"))?;
    let installed = LivePlugin {
        spec: live["spec"].clone(),
        installed: installer.installed().await?,
    };
    Ok((live, installed))
}

/// Compares the installed version with the one that is to take its place. Changes nothing.
async fn differences(
    installer: &Installer,
    plugin: &DescribedPlugin,
    rights: &Rights,
    objects: &[Value],
) -> anyhow::Result<Differences> {
    let mut installed = Rules::default();
    for role in objects {
        if role["metadata"]["name"] != account_name(&plugin.name) {
            continue;
        }
        let place = match role["metadata"]["namespace"].as_str() {
            Some(namespace) => Place::Namespace(namespace.to_owned()),
            None => Place::Cluster,
        };
        installed.add_role(&place, role);
    }
    let mut crds = Vec::new();
    let mut refusals = Vec::new();
    for crd in &plugin.checked.crds {
        let change = match installer.find(&crd.definition).await? {
            None => None,
            Some(live) => {
                let change = CrdChange::between(&live, &crd.definition);
                refusals.extend(refused(installer, crd, &live, &change).await?);
                Some(change)
            }
        };
        crds.push((crd.name.clone(), change));
    }
    Ok(Differences {
        gained: rights.account.beyond(&installed),
        lost: installed.beyond(&rights.account),
        crds,
        refusals,
        objects: None,
        stale: Vec::new(),
    })
}

/// Why the change of a CRD would lose data.
async fn refused(
    installer: &Installer,
    crd: &BroughtCrd,
    live: &Value,
    change: &CrdChange,
) -> Result<Vec<String>, InstallerError> {
    let mut refusals = Vec::new();
    if !change.dropped_stored.is_empty() {
        refusals.push(format!(
            "CustomResourceDefinition {} drops {}, in which objects are or were stored; keep the version, or migrate the stored \
             objects and remove it from status.storedVersions \
             (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/)",
            crd.name,
            change.dropped_stored.join(", ")
        ));
    }
    let Some(version) = common_version(live, &crd.definition).filter(|_| !change.is_none()) else {
        return Ok(refusals);
    };
    let kind = Kind::new(&crd.group, &version, &crd.kind);
    let Some(served) = ServedKind::of_crd(crd, &kind) else {
        return Ok(refusals);
    };
    let mut named = Vec::new();
    let mut more = 0_usize;
    installer
        .each(&served, |object| {
            let lost: BTreeSet<String> = losses(live, &crd.definition, &version, &object);
            if lost.is_empty() {
                return;
            }
            if named.len() == MOST_NAMED {
                more += 1;
                return;
            }
            let metadata = &object["metadata"];
            let place = metadata["namespace"].as_str().map(|namespace| format!("{namespace}/"));
            let paths: Vec<String> = lost.into_iter().collect();
            named.push(format!(
                "{}{}: {}",
                place.unwrap_or_default(),
                metadata["name"].as_str().unwrap_or_default(),
                paths.join(", ")
            ));
        })
        .await?;
    if !named.is_empty() {
        let rest = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        refusals.push(format!(
            "the new schema of CustomResourceDefinition {} does not take what {} objects have: {}{rest}; change these objects, or \
             the schema",
            crd.name,
            named.len() + more,
            named.join("; ")
        ));
    }
    Ok(refusals)
}

/// All that somebody has to know to say yes. What comes from the plugin cannot move the cursor.
fn explained(plugin: &DescribedPlugin, live: &Value, differences: &Differences) -> String {
    let Differences {
        gained,
        lost,
        crds,
        refusals,
        objects,
        stale,
    } = differences;
    let version = live["status"]["version"].as_str().unwrap_or("(not known)");
    let mut text = format!(
        "Plugin {}: version {version} becomes {}\nfrom {}\n\n",
        plugin.name, plugin.checked.manifest.version, plugin.origin
    );
    for (title, rules) in [("may, besides,", gained), ("may no longer", lost)] {
        if !rules.is_empty() {
            let account = plugin.account();
            let _ = writeln!(text, "Its ServiceAccount {}/{account} {title}", plugin.host.namespace);
            text.push_str(&words::explained(rules));
        }
    }
    if gained.is_empty() && lost.is_empty() {
        text.push_str("Its rights stay as they are\n");
    }
    if plugin.host.account.is_some() {
        let _ = writeln!(text, "{}", plugin.host);
    }
    for caution in words::cautions(gained) {
        let _ = writeln!(text, "caution: {caution}");
    }
    for (name, change) in crds {
        let _ = writeln!(text, "CustomResourceDefinition {name} {}", described(change.as_ref()));
    }
    if let Some(PreviewedChanges {
        primaries,
        failing,
        changes,
    }) = objects
    {
        let _ = writeln!(
            text,
            "Of its {primaries} objects, {} would change something",
            changes.len()
        );
        if *failing > 0 {
            let _ = writeln!(text, "caution: the new version fails for {failing} of them");
        }
        for (object, lines) in changes.iter().take(MOST_NAMED) {
            let _ = writeln!(text, "  {object}");
            for line in lines {
                let _ = writeln!(text, "    {line}");
            }
        }
        if changes.len() > MOST_NAMED {
            let _ = writeln!(text, "  and {} more", changes.len() - MOST_NAMED);
        }
    }
    if !stale.is_empty() {
        text.push_str("This deletes what an earlier installation granted\n");
        text.push_str(&titles(stale));
    }
    for refusal in refusals {
        let _ = writeln!(text, "refused: {refusal}");
    }
    text.push('\n');
    text.lines()
        .fold(String::new(), |text, line| text + &printable(line) + "\n")
}

/// How a definition changes, in words.
fn described(change: Option<&CrdChange>) -> String {
    let Some(change) = change else {
        return "is new".to_owned();
    };
    let CrdChange {
        added,
        dropped,
        dropped_stored: _,
        changed,
        storage,
    } = change;
    let mut parts = Vec::new();
    for (verb, versions) in [("gets", added), ("loses", dropped), ("changes the schema of", changed)] {
        if !versions.is_empty() {
            parts.push(format!("{verb} {}", versions.join(", ")));
        }
    }
    if let Some((before, after)) = storage {
        parts.push(format!("stores objects as {after} rather than {before}"));
    }
    if parts.is_empty() {
        return "keeps its versions and schemas".to_owned();
    }
    parts.join(", ")
}
