//! Searches for webhook objects that call this host's plugins while it serves no webhooks: with the failure policy
//! Fail, every change of the plugins' objects is then rejected. Each is reported with the command that removes it. It
//! is never removed here, because another host of the cluster may answer. Nothing else waits for this search.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::resources::webhooks;
use pilothouse_cluster::resources::webhooks::WebhookKind;
use pilothouse_core::admission::configuration::{PLUGIN_LABEL, convert_path};
use tokio::time::Instant;

use crate::context::HostContext;
use crate::plugins::PluginRegistry;
use crate::plugins::resource::state::ConditionState;

/// Interval at which the desired plugins are compared; this makes no request.
const GLANCE: Duration = Duration::from_secs(5);

/// Time until the cluster is searched again: others may have removed or made such objects.
const LOOK: Duration = Duration::from_hours(1);

/// Reason of the condition.
const REASON: &str = "WebhooksNotServed";

/// Webhook objects that call one plugin, each with the command that removes it.
type Strays = BTreeSet<(String, String)>;

/// Inputs of the search.
#[derive(PartialEq)]
struct StrayInputs {
    expected: Arc<BTreeSet<Arc<str>>>,
    /// CRDs with several versions, with their plugins.
    converted: BTreeSet<(String, Arc<str>)>,
}

/// Searches for ever.
pub async fn look_for_strays(client: Client, host: Arc<HostContext>, registry: Arc<PluginRegistry>) {
    let (mut said, mut refused) = (BTreeMap::new(), BTreeSet::new());
    loop {
        let Some(wanted) = stray_inputs(&host, &registry) else {
            tokio::time::sleep(GLANCE).await;
            continue;
        };
        // Without plugins there is nothing to search for.
        let found = if wanted.expected.is_empty() {
            BTreeMap::new()
        } else {
            search(&client, &wanted, &mut refused).await
        };
        report(&registry, &wanted, &found, &said);
        said = found;
        let looked = Instant::now();
        while looked.elapsed() < LOOK && stray_inputs(&host, &registry).as_ref() == Some(&wanted) {
            tokio::time::sleep(GLANCE).await;
        }
    }
}

fn stray_inputs(host: &HostContext, registry: &PluginRegistry) -> Option<StrayInputs> {
    let lanes = host.state.lanes();
    let converted = lanes.iter().flat_map(|lane| {
        let crds = lane.converted.iter();
        crds.map(|crd| (crd.clone(), lane.plugin.clone()))
    });
    Some(StrayInputs {
        expected: registry.expected()?,
        converted: converted.collect(),
    })
}

/// Searches once. Objects that the host may not read are logged once and skipped. Other failures are retried in the
/// next round.
async fn search(client: &Client, wanted: &StrayInputs, refused: &mut BTreeSet<String>) -> BTreeMap<Arc<str>, Strays> {
    let mut found: BTreeMap<Arc<str>, Strays> = BTreeMap::new();
    let mut unseen = |what: &str, error: &RequestError| {
        if error.code() != Some(403) {
            tracing::debug!(problem = %error, "cannot look for {what} that ask about this host's plugins; retrying");
        } else if refused.insert(what.to_owned()) {
            tracing::info!(
                problem = %error,
                "cannot look for {what} that ask about this host's plugins, which serves no webhooks; grant get and list \
                 on them to be told of such"
            );
        }
    };
    for asking in [WebhookKind::Mutating, WebhookKind::Validating] {
        let resource = match asking {
            WebhookKind::Mutating => "mutatingwebhookconfigurations",
            WebhookKind::Validating | WebhookKind::Conversion => "validatingwebhookconfigurations",
        };
        match webhooks::list(client, asking, PLUGIN_LABEL).await {
            Ok(configurations) => {
                for configuration in configurations {
                    let plugin = configuration.plugin.as_deref().unwrap_or_default();
                    if let Some(plugin) = wanted.expected.get(plugin) {
                        let object = format!("{resource}/{}", configuration.name);
                        let command = format!("kubectl delete {object}");
                        found.entry(plugin.clone()).or_default().insert((object, command));
                    }
                }
            }
            Err(error) => unseen(resource, &error),
        }
    }
    for (crd, plugin) in &wanted.converted {
        match webhooks::converts_at(client, crd).await {
            Ok(Some(at)) if at.ends_with(&convert_path(plugin)) => {
                let object = format!("customresourcedefinitions/{crd}");
                let command = format!(
                    "kubectl patch {object} --type=merge -p '{{\"spec\":{{\"conversion\":{{\"strategy\":\"None\",\"webhook\":null}}}}}}'"
                );
                found.entry(plugin.clone()).or_default().insert((object, command));
            }
            Ok(_) => {}
            Err(error) => unseen("customresourcedefinitions", &error),
        }
    }
    found
}

/// Reports changes, in the log and in the status of each Plugin.
fn report(
    registry: &PluginRegistry,
    wanted: &StrayInputs,
    found: &BTreeMap<Arc<str>, Strays>,
    said: &BTreeMap<Arc<str>, Strays>,
) {
    for plugin in wanted.expected.iter() {
        let strays = found.get(plugin);
        let warning = strays.map(|strays| ConditionState {
            holds: None,
            reason: REASON,
            message: message(strays),
        });
        if strays != said.get(plugin) {
            if let Some(warning) = &warning {
                tracing::warn!(plugin = &**plugin, "{}", warning.message);
            } else {
                tracing::info!(
                    plugin = &**plugin,
                    "no webhook configuration asks about the plugin's objects any more"
                );
            }
        }
        registry.warn(plugin, warning);
    }
}

fn message(strays: &Strays) -> String {
    let objects: Vec<&str> = strays.iter().map(|(object, _)| object.as_str()).collect();
    let commands: Vec<&str> = strays.iter().map(|(_, command)| command.as_str()).collect();
    format!(
        "this host serves no webhooks, but {} has API servers ask about the plugin's objects: unless another host answers, \
         their failure policy refuses every change, or lets it pass; serve webhooks with --webhook-service or --webhook-url, \
         or, if no host answers, remove it: {}",
        objects.join(", "),
        commands.join(" && ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_named_with_the_command_that_removes_it() {
        let stray = |name: &str| (name.to_owned(), format!("kubectl delete {name}"));
        let strays = [
            stray("mutatingwebhookconfigurations/a"),
            stray("validatingwebhookconfigurations/a"),
        ];
        let said = message(&strays.into());
        assert!(
            said.contains("mutatingwebhookconfigurations/a, validatingwebhookconfigurations/a has API servers ask"),
            "{said}"
        );
        assert!(
            said.ends_with(
                "kubectl delete mutatingwebhookconfigurations/a && kubectl delete validatingwebhookconfigurations/a"
            ),
            "{said}"
        );
    }
}
