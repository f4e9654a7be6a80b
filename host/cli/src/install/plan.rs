//! What an installation, an upgrade or a rollback would write: decided from the cluster as it is, checked for lost data
//! and for the needs of other Plugins, and tried by dry runs before anything is applied.

use anyhow::{Context as _, bail};
use pilothouse_cluster::Client;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::resources::install::{CrdPolicy, is_applied, try_crd};
use pilothouse_cluster::resources::installer::{Installer, InstallerError, title};
use pilothouse_core::kubernetes::crd_change::CrdChange;
use pilothouse_core::kubernetes::crd_superset::{shortfall, stays};
use pilothouse_core::plugin::exclusive_kinds::sharer;
use pilothouse_core::plugin::manifest::BroughtCrd;
use pilothouse_core::rights::Rights;
use pilothouse_core::rights::rules::Place;
use pilothouse_core::text::printable::printable;
use serde_json::Value;

use super::losses::{CompareSchemas, Losses, losses};
use super::takeover::{Takeover, differs, joined, narrows};
use super::{Crds, DescribedPlugin, LivePlugin, WriteArguments};

/// A CRD of the plugin.
pub(super) struct PlannedCrd {
    /// The CRD that the version brings.
    pub(super) crd: BroughtCrd,
    /// The one in the cluster.
    pub(super) live: Option<Value>,
    /// Set if the version's is applied.
    applies: bool,
    /// Another Plugin that brings it, too.
    pub(super) sharer: Option<String>,
}

/// Changes of an installation.
pub(super) struct Plan {
    /// CRDs of the plugin.
    pub(super) crds: Vec<PlannedCrd>,
    /// How they take the place of others.
    pub(super) policy: CrdPolicy,
    /// Set if fields of the Plugin that others have set are taken over.
    pub(super) force: bool,
    /// Objects to apply, and their live versions.
    pub(super) objects: Vec<(Value, Option<Value>)>,
    /// Grants of an earlier installation that this one does not have.
    pub(super) stale: Vec<Value>,
    /// The takeover, perhaps from another version.
    pub(super) takeover: Takeover,
    /// Set if a version runs, or left objects, and has rights that this one does not need.
    pub(super) is_narrower: bool,
}

/// Reads the cluster, and returns errors before anything is changed. `live` has the earlier installation.
pub(super) async fn plan(
    installer: &Installer,
    plugin: &DescribedPlugin,
    rights: &Rights,
    resource: Option<Value>,
    live: LivePlugin,
    writes: &WriteArguments,
) -> anyhow::Result<Plan> {
    let mut namespaces = vec![plugin.host.namespace.as_str()];
    namespaces.extend(rights.account.places().filter_map(|(place, _)| match place {
        Place::Cluster => None,
        Place::Namespace(namespace) => Some(namespace.as_str()),
    }));
    for namespace in namespaces {
        installer.check_namespace(namespace).await?;
    }
    let policy = match writes.crds {
        Crds::Keep => CrdPolicy::Keep,
        Crds::Apply => CrdPolicy::Replace,
    };
    let crds = planned_crds(installer, plugin, live.plugin.as_ref(), policy).await?;
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
        published: _,
    } = live;
    let stale: Vec<Value> = installed.into_iter().filter(|object| !is_wanted(object)).collect();
    let takeover = Takeover::by(plugin.component.digest(), &plugin.checked.manifest);
    let follows_another = takeover.follows_another(resource.as_ref());
    let plan = Plan {
        crds,
        policy,
        force: writes.force_conflicts,
        objects,
        stale,
        takeover,
        is_narrower: false,
    };
    let is_narrower = !plan.stale.is_empty() || plan.changed().any(|(wanted, live)| narrows(wanted, live));
    Ok(Plan {
        is_narrower: follows_another && is_narrower,
        ..plan
    })
}

/// Decides about each CRD that the plugin brings.
async fn planned_crds(
    installer: &Installer,
    plugin: &DescribedPlugin,
    resource: Option<&Value>,
    policy: CrdPolicy,
) -> anyhow::Result<Vec<PlannedCrd>> {
    let mut crds = Vec::new();
    if plugin.checked.crds.is_empty() {
        return Ok(crds);
    }
    let plugins = match installer.plugins().await {
        Ok(plugins) => plugins,
        // The lookup of the Plugin says what is missing.
        Err(InstallerError::NoPluginKind) => Vec::new(),
        Err(error @ InstallerError::Forbidden { .. }) => {
            eprintln!("note: whether another Plugin brings the same CRDs is not known: {error}");
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    let namespaces: Vec<String> = plugin.confinement.namespaces().iter().cloned().collect();
    // A Plugin that shares a kind already can be upgraded; the host decides which of the two has it.
    let is_there = resource.is_some_and(|live| {
        let mut before: Vec<&str> = live["spec"]["namespaces"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        before.sort_unstable();
        before == namespaces
    });
    for crd in &plugin.checked.crds {
        let live = installer.find(&crd.definition).await?;
        let sharer = sharer(&plugins, &plugin.name, &namespaces, &crd.name);
        if let Some(sharer) = sharer.as_ref().filter(|sharer| sharer.overlaps && !is_there) {
            bail!(
                "CustomResourceDefinition {} is brought by Plugin {} already, in namespaces in which Plugin {} would act, too, and \
                 only one of them can have the kind; nothing was changed. Give each namespaces of its own with --namespaces, or \
                 uninstall Plugin {}",
                crd.name,
                sharer.plugin,
                plugin.name,
                sharer.plugin
            );
        }
        let sharer = sharer.map(|sharer| sharer.plugin);
        let applies = is_applied(crd, live.as_ref(), policy, sharer.as_deref())
            .with_context(|| format!("Plugin {} cannot bring its CRD, and nothing was changed", plugin.name))?;
        let crd = crd.clone();
        crds.push(PlannedCrd {
            crd,
            live,
            applies,
            sharer,
        });
    }
    Ok(crds)
}

impl PlannedCrd {
    /// Reports whether the CRD in the cluster stays because it is a superset.
    pub(super) fn is_kept(&self) -> bool {
        let is_superset = |live: &Value| stays(live, &self.crd.definition);
        !self.applies && self.live.as_ref().is_some_and(is_superset)
    }

    /// Describes what becomes of the CRD in the cluster.
    pub(super) fn change(&self) -> String {
        let Some(live) = &self.live else {
            return "is new".to_owned();
        };
        if self.is_kept() {
            let more = shortfall(&self.crd.definition, live).unwrap_or_default();
            return format!(
                "stays as it is in the cluster, where it accepts all that this version's accepts, and more ({more}); --crds apply \
                 applies this version's"
            );
        }
        described(&CrdChange::between(live, &self.crd.definition))
    }
}

/// Describes the change of a definition.
fn described(change: &CrdChange) -> String {
    let CrdChange {
        added,
        dropped,
        dropped_stored: _,
        changed,
        unserved,
        storage,
    } = change;
    let mut parts = Vec::new();
    for (verb, versions) in [
        ("gets", added),
        ("loses", dropped),
        ("no longer serves", unserved),
        ("changes the schema of", changed),
    ] {
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

impl Plan {
    /// Returns the plugin's CRDs.
    pub(super) fn crds(&self) -> &[PlannedCrd] {
        &self.crds
    }

    /// Returns a role with its live rules, too, if an earlier version needs these until the new one runs.
    pub(super) fn joined(&self, object: &Value, live: Option<&Value>) -> Option<Value> {
        let live = live.filter(|live| self.is_narrower && narrows(object, live))?;
        Some(joined(object, live))
    }

    /// Tries all writes, by dry runs, before the first one is made. What cannot be tried is printed.
    pub(super) async fn try_out(&self, client: &Client, installer: &Installer) -> anyhow::Result<()> {
        let (mut failing, mut untried) = (Vec::new(), Vec::new());
        for PlannedCrd { crd, live, .. } in self.crds.iter().filter(|crd| crd.applies) {
            if let Err(error) = try_crd(client, crd, live.as_ref()).await {
                failing.push(anyhow::Error::from(error));
            }
        }
        for (object, live) in &self.objects {
            let joined = self.joined(object, live.as_ref());
            let written = joined.as_ref().unwrap_or(object);
            match installer.try_apply(written, live.as_ref(), self.force).await {
                Ok(reason) => untried.extend(reason.map(|reason| format!("{}: {reason}", title(object)))),
                Err(error) => failing.push(error.into()),
            }
        }
        for object in &self.stale {
            match installer.try_delete(object).await {
                Ok(reason) => untried.extend(reason.map(|reason| format!("{}: {reason}", title(object)))),
                Err(error) => failing.push(error.into()),
            }
        }
        for reason in untried {
            eprintln!("note: not tried before it is written: {}", printable(&reason));
        }
        if failing.is_empty() {
            return Ok(());
        }
        let reasons = failing
            .iter()
            .map(|error| format!("\n  {}", chain(&**error)))
            .collect::<String>();
        bail!("nothing was changed, because the API server would refuse this:{reasons}");
    }

    /// Returns existing objects that the plan changes.
    pub(super) fn changed(&self) -> impl Iterator<Item = (&Value, &Value)> {
        let present = self
            .objects
            .iter()
            .filter_map(|(wanted, live)| Some((wanted, live.as_ref()?)));
        present.filter(|(wanted, live)| differs(wanted, live))
    }

    /// Returns the data that live objects would lose with the CRDs.
    pub(super) async fn losses(&self, installer: &Installer, compare: CompareSchemas) -> anyhow::Result<Losses> {
        let mut all = Losses::default();
        for PlannedCrd { crd, live, .. } in self.crds.iter().filter(|crd| crd.applies) {
            if let Some(live) = live {
                let change = CrdChange::between(live, &crd.definition);
                all.extend(losses(installer, crd, live, &change, compare).await?);
            }
        }
        Ok(all)
    }
}
