//! `pilothouse rights`: prints the account, the roles and the bindings of a plugin, to be reviewed or applied.

use clap::Args;
use pilothouse_core::rights::objects::Acting;

use super::{Format, PluginArguments, printed, tell_remarks};
use crate::artifact::wait_for;
use crate::run::ClusterArguments;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse rights app-service.wasm
  pilothouse rights stream-ingress.wasm --config config.yaml --namespaces shop --access-namespaces ingress-nginx
  pilothouse rights oci://ghcr.io/acme/app-service:0.1.0 -o json

The rights are those of the requests that a host makes for the plugin. A cluster is asked only about kinds whose CRD the
plugin does not bring and that are not Kubernetes' own.

Exit code: 0, 1 if the rights cannot be said, 2 if the command line is wrong.";

/// `pilothouse rights`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RightsCommand {
    #[command(flatten)]
    plugin: PluginArguments,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Yaml)]
    output: Format,

    #[command(flatten)]
    cluster: ClusterArguments,
}

impl RightsCommand {
    /// Prints.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            plugin,
            output,
            cluster,
        } = self;
        let is_quiet = plugin.is_quiet();
        let plugin = plugin.describe(Acting::Host)?;
        let rights = wait_for(plugin.rights(cluster.target()))?;
        if !is_quiet {
            tell_remarks(&rights);
        }
        print!("{}", printed(&plugin.grants(&rights), output)?);
        Ok(())
    }
}
