//! `pilothouse reconcile`: makes a host reconcile one object, or the failing objects of a plugin, before their back-off ends. It sets
//! an annotation of the object or of the Plugin, so the API server decides who may do it, and every replica sees it.

use anyhow::{bail, ensure};
use clap::Args;
use pilothouse_cluster::connect::connect;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::resources::host_resources::{HostResource, HostResourceApi};
use pilothouse_core::Kind;
use pilothouse_core::status::annotations::RECONCILE_REQUESTED;
use pilothouse_core::text::printable::printable;
use pilothouse_crds::plugin::{GROUP, RECONCILE_FAILING, VERSION};

use crate::artifact::wait_for;
use crate::ask::why::{parse_object, parse_plain};
use crate::output::counted;
use crate::primary::PrimaryArguments;
use crate::run::{ClusterArguments, USER_AGENT};

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse reconcile appservice/web -n shop   # the cause is gone: do not wait for the back-off
  kubectl annotate appservice web -n shop pilothouse.dev/reconcile-requested-at=\"$(date)\" --overwrite    # the same
  pilothouse reconcile --failing app-service    # all failing objects of a plugin
  kubectl annotate plugin app-service pilothouse.dev/reconcile-failing=\"$(date)\" --overwrite    # the same

The user needs the rights get and patch on the object, or on the Plugin. `pilothouse why` shows what came of it, and `pilothouse status`
which objects still fail.

Exit code: 0, 1 if the object does not exist or is paused, the Plugin does not exist or does not run, or the cluster cannot be asked, 2 if
the command line is wrong.";

/// `pilothouse reconcile`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ReconcileCommand {
    /// The object: KIND/NAME or KIND.GROUP/NAME, such as appservice/web. The plural or a short name will do for the kind
    #[arg(value_name = "KIND/NAME", required_unless_present = "failing", conflicts_with = "failing", value_parser = parse_object)]
    object: Option<(String, String)>,

    /// The object's namespace (default: the namespace of the kubeconfig's context). A cluster-scoped object is in none
    #[arg(long, short, value_name = "NAME", requires = "object", value_parser = parse_plain)]
    namespace: Option<String>,

    /// Reconcile the objects of this Plugin whose last reconcile failed
    #[arg(long, value_name = "NAME")]
    failing: Option<String>,

    #[command(flatten)]
    cluster: ClusterArguments,
}

impl ReconcileCommand {
    /// Sets the annotation.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            object,
            namespace,
            failing,
            cluster,
        } = self;
        let now = jiff::Timestamp::now().to_string();
        wait_for(async {
            match (object, failing) {
                (Some(object), _) => {
                    let arguments = PrimaryArguments {
                        object,
                        namespace,
                        cluster,
                    };
                    request(arguments, &now).await
                }
                (None, Some(name)) => request_failing(&name, cluster, &now).await,
                (None, None) => unreachable!("one of them is required"),
            }
        })
    }
}

/// Requests a reconcile of one object.
async fn request(arguments: PrimaryArguments, now: &str) -> anyhow::Result<()> {
    let primary = arguments.find().await?;
    let title = primary.title();
    ensure!(
        !primary.is_paused(),
        "{title} is paused; `pilothouse resume {}` resumes it, which reconciles it, too",
        primary.arguments()
    );
    primary.annotate(RECONCILE_REQUESTED, Some(now)).await?;
    println!(
        "the host reconciles {title} now; `pilothouse why {}` shows what came of it",
        primary.arguments()
    );
    Ok(())
}

/// Requests a reconcile of the failing objects of a Plugin.
async fn request_failing(name: &str, cluster: ClusterArguments, now: &str) -> anyhow::Result<()> {
    let client = connect(&cluster.target(), USER_AGENT).await?;
    let api = HostResourceApi::new(client, Kind::new(GROUP, VERSION, "Plugin"), "plugins");
    let found = match api.find(name).await {
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
    if let Err(error) = api.set_annotation(&plugin, RECONCILE_FAILING, Some(now)).await {
        bail!("cannot annotate Plugin {name}: {}", chain(&error));
    }
    let failing = plugin.status["failing"].as_u64().unwrap_or_default();
    println!(
        "the host reconciles the failing objects of Plugin {name} now; its status counts {}",
        counted(failing, "such object", "such objects")
    );
    Ok(())
}

/// Message of the condition Ready of a Plugin that does not run.
fn why_not(plugin: &HostResource) -> String {
    let conditions = plugin.status["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    let message = ready.next().and_then(|ready| ready["message"].as_str());
    message.map_or_else(|| "no host has reported it; is one running?".to_owned(), printable)
}
