//! `pilothouse uninstall`: prints the objects that are deleted with a plugin and those that stay, asks for
//! confirmation, and deletes the Plugin first, so that its host can still clean up with the plugin's rights.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use pilothouse_cluster::resources::installer::{Installer, title};
use pilothouse_core::plugin::manifest::is_label;
use serde_json::Value;

use super::{client, confirm, find_plugin};
use crate::artifact::wait_for;
use crate::run::ClusterArguments;
use pilothouse_core::text::printable::printable;

/// Interval at which the Plugin is polled until it is deleted.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse uninstall app-service
  pilothouse uninstall app-service --yes --wait 60

The host cleans up first, as the Plugin's deletionPolicy says. CustomResourceDefinitions and the objects of these kinds stay.

Exit code: 0, also if there is nothing to uninstall, 1 if something of the plugin is left, 2 if the command line is wrong.";

/// `pilothouse uninstall`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct UninstallCommand {
    /// The Plugin's name
    #[arg(value_name = "NAME", value_parser = plugin_name)]
    name: String,

    /// Uninstall without asking
    #[arg(long)]
    yes: bool,

    /// Number of seconds that the host has to clean up, if the Plugin waits for it
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    wait: u64,

    #[command(flatten)]
    cluster: ClusterArguments,
}

impl UninstallCommand {
    /// Uninstalls.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            name,
            yes,
            wait,
            cluster,
        } = self;
        wait_for(async {
            let installer = Installer::new(client(&cluster.target()).await?, &name);
            let plugin = find_plugin(&installer, &name).await?;
            let installed = installer.installed().await?;
            if plugin.is_none() && installed.is_empty() {
                println!("there is no Plugin {name}, and nothing that was installed for it");
                return Ok(());
            }
            print!("{}", explained(&name, plugin.as_ref(), &installed));
            confirm("Uninstall it?", yes).await?;
            if let Some(plugin) = &plugin {
                if plugin["metadata"]["deletionTimestamp"].is_null() {
                    installer.delete(plugin).await?;
                }
                until_gone(&installer, plugin, Duration::from_secs(wait)).await?;
                println!("Plugin {name} deleted");
            }
            for object in &installed {
                installer.delete(object).await?;
                println!("{} deleted", title(object));
            }
            Ok(())
        })
    }
}

fn plugin_name(text: &str) -> Result<String, String> {
    if is_label(text) {
        return Ok(text.to_owned());
    }
    Err("it is not the name of a Plugin, which is a DNS label; `kubectl get plugins` lists them".to_owned())
}

async fn until_gone(installer: &Installer, plugin: &Value, within: Duration) -> anyhow::Result<()> {
    let begun = Instant::now();
    let uid = &plugin["metadata"]["uid"];
    let is_there = |found: &Value| found["metadata"]["uid"] == *uid;
    while let Some(found) = installer.find(plugin).await?.filter(is_there) {
        if begun.elapsed() > within {
            let finalizers = found["metadata"]["finalizers"].as_array().into_iter().flatten();
            let finalizers: Vec<&str> = finalizers.filter_map(Value::as_str).collect();
            bail!(
                "{} is still there after {} s, and waits for {}; its rights stay until it is gone: see that its host runs, \
                 and run the command again",
                title(plugin),
                within.as_secs(),
                printable(&finalizers.join(", "))
            );
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}

/// Describes the objects that are deleted and those that stay.
fn explained(name: &str, plugin: Option<&Value>, installed: &[Value]) -> String {
    let mut text = "This deletes\n".to_owned();
    if plugin.is_some() {
        let _ = writeln!(text, "  Plugin {name}");
    }
    for object in installed {
        let _ = writeln!(text, "  {}", title(object));
    }
    if let Some(plugin) = plugin {
        let kinds = |list: &str| {
            let kinds = plugin["status"][list].as_array().into_iter().flatten();
            let mut kinds: Vec<&str> = kinds.filter_map(|kind| kind["kind"]["kind"].as_str()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            kinds.join(", ")
        };
        let (owned, contributed) = (kinds("ownedKinds"), kinds("contributedKinds"));
        let is_deleted = plugin["spec"]["deletionPolicy"] == "Delete";
        if is_deleted {
            text.push_str("and, before it, by its host\n");
        } else {
            text.push_str("Its deletionPolicy is Orphan, so there stay as they are\n");
        }
        if !owned.is_empty() {
            let _ = writeln!(text, "  the objects that it made: {owned}");
        }
        if !contributed.is_empty() {
            let _ = writeln!(text, "  the fields that it set in objects of others: {contributed}");
        }
        if is_deleted {
            text.push_str("There stay\n");
        }
    } else {
        text.push_str("There stay\n");
    }
    text.push_str("  its CustomResourceDefinitions, with all objects of these kinds\n\n");
    text.lines()
        .fold(String::new(), |text, line| text + &printable(line) + "\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_goes_and_what_stays_follows_from_the_deletion_policy() {
        let plugin = |policy: &str| {
            json!({
                "spec": {"deletionPolicy": policy},
                "status": {
                    "ownedKinds": [{"kind": {"kind": "Service"}}, {"kind": {"kind": "Deployment"}}, {"kind": {"kind": "Service"}}],
                },
            })
        };
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "b"}});
        let orphan = explained("web", Some(&plugin("Orphan")), &[account]);
        let (goes, stays) = orphan.split_once("stay as they are").unwrap();
        assert!(
            goes.contains("  Plugin web\n") && goes.contains("  ServiceAccount b/a\n"),
            "{goes}"
        );
        assert!(
            stays.contains("Deployment, Service") && stays.contains("CustomResourceDefinitions"),
            "{stays}"
        );
        let delete = explained("web", Some(&plugin("Delete")), &[]);
        let (goes, stays) = delete.split_once("There stay").unwrap();
        assert!(
            goes.contains("Deployment, Service") && !stays.contains("Deployment"),
            "{delete}"
        );
        assert!(stays.contains("CustomResourceDefinitions"), "{stays}");
    }
}
