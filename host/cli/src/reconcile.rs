//! `pilothouse reconcile`: makes a host reconcile the failing objects of a plugin before their back-off ends. It sets an
//! annotation of the Plugin, so the API server decides who may do it, and every replica sees it.

use anyhow::{bail, ensure};
use clap::Args;
use pilothouse_cluster::connect::connect;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::resources::host_resources::{HostResource, HostResourceApi};
use pilothouse_core::Kind;
use pilothouse_core::text::printable::printable;
use pilothouse_crds::plugin::{GROUP, RECONCILE_FAILING, VERSION};

use crate::artifact::wait_for;
use crate::output::counted;
use crate::run::{ClusterArguments, USER_AGENT};

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse reconcile --failing app-service    # the cause is gone: do not wait for the back-off
  kubectl annotate plugin app-service pilothouse.dev/reconcile-failing=\"$(date)\" --overwrite    # the same

The user needs the rights get and patch on the Plugin. `pilothouse status` shows which objects still fail.

Exit code: 0, 1 if the Plugin does not exist or does not run, or the cluster cannot be asked, 2 if the command line is wrong.";

/// `pilothouse reconcile`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ReconcileCommand {
    /// Reconcile the objects whose last reconcile failed, at once
    #[arg(long, required = true)]
    failing: bool,

    /// The Plugin's name
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    cluster: ClusterArguments,
}

impl ReconcileCommand {
    /// Sets the annotation.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            failing: _,
            name,
            cluster,
        } = self;
        wait_for(async {
            let client = connect(&cluster.target(), USER_AGENT).await?;
            let api = HostResourceApi::new(client, Kind::new(GROUP, VERSION, "Plugin"), "plugins");
            let found = match api.find(&name).await {
                Ok(found) => found,
                Err(error) => bail!("cannot read Plugin {name}: {}", chain(&error)),
            };
            let Some(plugin) = found else {
                bail!("there is no Plugin {name}; `kubectl get plugins` lists them");
            };
            ensure!(
                plugin.status["digest"].is_string(),
                "Plugin {name} does not run: {}",
                why_not(&plugin)
            );
            let now = jiff::Timestamp::now().to_string();
            if let Err(error) = api.set_annotation(&plugin, RECONCILE_FAILING, Some(&now)).await {
                bail!("cannot annotate Plugin {name}: {}", chain(&error));
            }
            let failing = plugin.status["failing"].as_u64().unwrap_or_default();
            println!(
                "the host reconciles the failing objects of Plugin {name} now; its status counts {}",
                counted(failing, "such object", "such objects")
            );
            Ok(())
        })
    }
}

/// Message of the condition Ready of a Plugin that does not run.
fn why_not(plugin: &HostResource) -> String {
    let conditions = plugin.status["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    let message = ready.next().and_then(|ready| ready["message"].as_str());
    message.map_or_else(|| "no host has reported it; is one running?".to_owned(), printable)
}
