//! Waits for CRDs that the host does not install itself: a version waits until the cluster has those that it brings. An
//! installer applies them, and nothing of the version is called before. The running version continues meanwhile.

use std::time::Duration;

use pilothouse_cluster::error::chain;
use pilothouse_cluster::resources::install::{CrdInCluster, compare_crd};
use pilothouse_cluster::write::permissions::{Permission, listed};
use pilothouse_core::plugin::manifest::BroughtCrd;
use tokio::time::Instant;

use super::prepare::DescribedPlugin;
use crate::plugins::access::named_source;
use crate::plugins::plugin::{LoadedComponent, PluginTask};
use crate::plugins::resource::desired::DesiredPlugin;

/// Reason of `Established` and `Ready` while the cluster has another CRD than the version brings.
pub const CRD_DIFFERS: &str = "CrdDiffers";

/// Reason of `Established` and `Ready` while the cluster has no such CRD.
pub const CRD_MISSING: &str = "CrdMissing";

/// Time until the CRD is read again if no change of it is observed: the host may lack the right to watch CRDs.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Subject of the warning that CRDs cannot be compared.
const COMPARING: &str = "comparing CRDs";

impl PluginTask {
    /// Waits until the cluster has all CRDs of a version, as the version brings them.
    pub async fn wait_for_crds(&self, wanted: &DesiredPlugin, described: &DescribedPlugin, loaded: &LoadedComponent) {
        for crd in &described.crds {
            self.wait_for_crd(crd, wanted, loaded).await;
        }
    }

    async fn wait_for_crd(&self, crd: &BroughtCrd, wanted: &DesiredPlugin, loaded: &LoadedComponent) {
        let plugin = &*self.identity.name;
        let mut definitions = self.context.host.definitions.subscribe();
        let mut leadership = self.context.host.leadership.follow();
        let (mut wait, mut said) = (FIRST_WAIT, None);
        loop {
            let seen = definitions.count(&crd.group);
            let turn = self.context.starting.acquire().await;
            let compared = compare_crd(&self.context.client, crd).await;
            drop(turn);
            let (reason, problem) = match compared {
                Ok(CrdInCluster::Same) => {
                    self.identity.health.clear(COMPARING);
                    break;
                }
                Ok(CrdInCluster::Absent) => (CRD_MISSING, self.missing_crd(crd, wanted, loaded)),
                Ok(CrdInCluster::Differs(difference)) => {
                    let problem = self.other_crd(crd, &difference, wanted, loaded);
                    (CRD_DIFFERS, problem)
                }
                // A host may run without the right to read cluster-scoped objects.
                Err(error) if error.code() == Some(403) => {
                    self.warn_uncompared(crd);
                    break;
                }
                Err(error) => ("Waiting", format!("cannot read CRD {}: {}", crd.name, chain(&error))),
            };
            // Replicas that do not lead wait as well, but do not log.
            if said.as_ref() != Some(&problem) {
                if self.context.host.leadership.leads() {
                    tracing::warn!(plugin, "waiting: {problem}");
                }
                self.report_waiting_for(reason, &problem);
                // The wait may take days, and the host's other plugins are ready.
                self.plugin_state.set(|known| known.busy = None);
                said = Some(problem);
            }
            tokio::select! {
                () = definitions.changed_since(&crd.group, seen) => wait = FIRST_WAIT,
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                _ = leadership.changed() => said = None,
            }
        }
        if said.is_some() {
            tracing::info!(
                plugin,
                crd = crd.name,
                "the CRD that the version brings is in the cluster now"
            );
            self.plugin_state.set(|known| known.busy = Some(Instant::now()));
        }
    }

    fn missing_crd(&self, crd: &BroughtCrd, wanted: &DesiredPlugin, loaded: &LoadedComponent) -> String {
        format!(
            "the cluster does not serve {}/{}: CRD {}, which the plugin brings, is not installed; {}",
            crd.group,
            crd.kind,
            crd.name,
            self.next_step(wanted, loaded)
        )
    }

    fn other_crd(
        &self,
        crd: &BroughtCrd,
        difference: &str,
        wanted: &DesiredPlugin,
        loaded: &LoadedComponent,
    ) -> String {
        format!(
            "CRD {} in the cluster is not the one that this version brings: {difference}; {}",
            crd.name,
            self.next_step(wanted, loaded)
        )
    }

    /// The command that applies the CRDs.
    fn next_step(&self, wanted: &DesiredPlugin, loaded: &LoadedComponent) -> String {
        let source = named_source(&self.identity.name, wanted, Some(loaded));
        let command = if self.own.is_some() {
            format!("`pilothouse upgrade {source}` does so, after it has said what changes")
        } else {
            format!("`pilothouse install {source} -o yaml` prints it, and a host with --install-crds does so by itself")
        };
        format!("apply the CRD: {command}")
    }

    /// Warns that the host may not read CRDs, and runs the version regardless.
    fn warn_uncompared(&self, crd: &BroughtCrd) {
        let right = Permission {
            group: "apiextensions.k8s.io".to_owned(),
            resource: "customresourcedefinitions".to_owned(),
            namespace: None,
            name: Some(crd.name.clone()),
            verb: "get",
        };
        let warning = format!(
            "the host cannot see whether the CRDs in the cluster are those that the plugin brings, and runs it all the same; \
             grant the host the right to {}",
            listed(&[right])
        );
        if self.identity.health.warn(COMPARING, &warning) {
            tracing::warn!(plugin = &*self.identity.name, "{warning}");
        }
    }
}
