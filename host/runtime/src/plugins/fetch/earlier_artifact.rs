//! Selects the version that a host starts if the desired one may not run yet: the artifact that ran before, as a host
//! that was not restarted would keep it. For a plugin from a file there is only that file.

use std::sync::Arc;

use crate::artifacts::{ArtifactRequest, ResolvedArtifact};
use crate::lanes::lane::Lane;
use crate::plugins::plugin::{LoadedComponent, PluginTask};
use crate::plugins::resource::desired::{ComponentSource, DesiredPlugin, PluginRequest};
use crate::plugins::resource::state::StartupProblem;
use crate::plugins::version::prepare::DescribedPlugin;

/// A loaded version and its description.
pub type LoadedVersion = (LoadedComponent, DescribedPlugin);

impl PluginTask {
    /// The version that ran before in an earlier process, if the account lacks rights that the desired version needs.
    /// The desired version is tried beside it afterwards.
    pub async fn earlier_version(
        &self,
        (loaded, described): &LoadedVersion,
        wanted: &DesiredPlugin,
    ) -> Option<LoadedVersion> {
        let ComponentSource::Artifact(request) = &wanted.source else {
            return None;
        };
        let before = self.told()?;
        let digest = &loaded.artifact.as_ref()?.fetched.resolved.digest;
        let is_earlier = before.digest != *digest && repository(&before.reference) == repository(&request.reference);
        if !is_earlier || self.has_all_rights(described, wanted).await {
            return None;
        }
        let request = ArtifactRequest {
            reference: before.reference,
            ..ArtifactRequest::clone(request)
        };
        let resolved = ResolvedArtifact {
            digest: before.digest,
            tag: before.tag,
        };
        let plugin = &*self.identity.name;
        match self.load_earlier(request, resolved, wanted).await {
            Ok(earlier) => {
                tracing::warn!(
                    plugin,
                    digest = earlier.0.component.digest(),
                    "the plugin's account lacks rights that the wanted version needs; the version that ran before starts"
                );
                Some(earlier)
            }
            Err(problem) => {
                let problem = problem.message;
                tracing::warn!(
                    plugin,
                    problem,
                    "the plugin's account lacks rights that the wanted version needs, and the version that ran before cannot be started"
                );
                None
            }
        }
    }

    async fn load_earlier(
        &self,
        request: ArtifactRequest,
        resolved: ResolvedArtifact,
        wanted: &DesiredPlugin,
    ) -> Result<LoadedVersion, StartupProblem> {
        let loaded = self.load_recorded(request, resolved, wanted).await?;
        let described = self.describe(&loaded, wanted).await?;
        Ok((loaded, described))
    }

    /// The generation of the spec as which the artifact of an earlier process ran: an earlier one, if it is not recorded.
    pub fn earlier_generation(&self, request: &PluginRequest) -> Option<i64> {
        let recorded = self.told_status().and_then(|status| status.running_generation);
        recorded.or_else(|| Some(request.generation()? - 1))
    }

    /// Returns `true` if the account has all rights that a version needs, as far as known: kinds that are not served
    /// yet are awaited.
    pub async fn has_all_rights(&self, described: &DescribedPlugin, wanted: &DesiredPlugin) -> bool {
        let lanes: Vec<Arc<Lane>> = self.lanes(wanted, described);
        let served = self.look_up(&lanes, Some(described)).await;
        let served = |_: &Lane, kind: &pilothouse_core::Kind| served.get(kind).cloned().flatten();
        self.lacks_nothing(&lanes, served).await
    }
}

/// A reference without its tag and digest.
fn repository(reference: &str) -> &str {
    let unpinned = reference.split_once('@').map_or(reference, |(before, _)| before);
    let name = unpinned.rfind('/').map_or(0, |slash| slash + 1);
    match unpinned[name..].find(':') {
        Some(colon) => &unpinned[..name + colon],
        None => unpinned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_what_tags_and_digests_are_of() {
        let pinned = format!("registry.example.com:5000/a/b@sha256:{}", "0".repeat(64));
        for reference in [
            "registry.example.com:5000/a/b:1.0",
            "registry.example.com:5000/a/b:1@x",
            &pinned,
        ] {
            assert_eq!(repository(reference), "registry.example.com:5000/a/b");
        }
        assert_ne!(repository("example.com/a"), repository("example.com/b"));
    }
}
