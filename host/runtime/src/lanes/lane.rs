//! Holds the fixed properties of a lane: one controller of one plugin, with all that its reconciles need.

use std::sync::Arc;

use pilothouse_cluster::cache::decoding;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::facts::FactKeys;
use pilothouse_cluster::object::{CachedObject, MANAGER_PREFIX};
use pilothouse_cluster::write::FieldManagerClient;
use pilothouse_cluster::write::events::EventRecorder;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::plugin::grants::{Grant, Grants};
use pilothouse_core::plugin::inventory::{FormerKind, Inventory, Made, former_controller};
use pilothouse_core::plugin::manifest::{Access, Admission, Filter, TouchScope};
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::replicas::shards::{Division, HashRanges};
use pilothouse_core::rights::AdmissionExports;
use pilothouse_core::status::annotations::{PAUSED, RECONCILE_REQUESTED};
use pilothouse_core::text::depth::is_too_deep;
use pilothouse_core::{Kind, Limits, Name};
use pilothouse_sandbox::PluginComponent;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::lanes::access::LaneAccess;
use crate::lanes::cache_need::CacheNeed;
use crate::lanes::cached_namespaces::CachedNamespaces;
use crate::lanes::health::PluginHealth;
use crate::lanes::primary::LaneId;
use crate::lanes::served_kinds::ServedKinds;
use crate::process::call_slots::CallSlots;

/// A plugin that the host is configured to run.
#[derive(Clone)]
pub struct StaticPlugin {
    /// Identity of the plugin: its field manager, lanes and log use it. `None`: the name in its manifest.
    pub name: Option<String>,
    /// The loaded component.
    pub component: PluginComponent,
    /// Its configuration; `None`: the plugin's defaults.
    pub config: Option<Value>,
    /// Limits of its calls.
    pub limits: Limits,
    /// Number of its objects that are reconciled at once; `None`: the host's default.
    pub concurrency: Option<usize>,
    /// Mode in which it runs.
    pub mode: RunMode,
    /// Field managers of an earlier operator whose fields are taken over.
    pub former_managers: Vec<String>,
}

/// Mode of a running plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunMode {
    /// Desired state is applied and reported.
    #[default]
    Active,
    /// Changes are reported and not written.
    Preview,
    /// The plugin is being removed: primaries that are being deleted and have its finalizer are finalized, all others
    /// are left.
    Finishing,
}

/// One controller of one plugin.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Lane {
    /// Number of the lane.
    pub id: LaneId,
    /// The plugin's identity.
    pub plugin: Arc<str>,
    /// The controller's name in the manifest.
    pub controller: String,
    /// Rights that the manifest grants it.
    pub grants: Grants,
    /// Kinds that an earlier version owned or contributed to. Objects left of them are watched and cleaned up.
    pub former: Arc<[FormerKind]>,
    /// Set if only an earlier version had this controller. It reconciles nothing, and each of its primaries is treated
    /// as one that has left the filter.
    pub is_former: bool,
    /// Set if its plugin runs where the primary kind is not served; the lane is closed then.
    pub is_optional: bool,
    /// Selects the primaries that it reconciles.
    pub filter: Filter,
    /// Finalizer that its primaries get if the plugin has to clean up before one is deleted.
    pub finalizer: Option<String>,
    /// Finalizers that earlier versions may have set on its primaries. They are removed where the host has set them.
    pub former_finalizers: Arc<[String]>,
    /// Mode in which it runs.
    pub mode: RunMode,
    /// Field managers of an earlier operator whose fields are taken over.
    pub former_managers: Vec<String>,
    /// Only primaries in these namespaces; none means all.
    pub namespaces: Vec<String>,
    /// Set if children of primaries outside of these namespaces are pruned; otherwise they stay.
    pub prunes_unselected: bool,
    /// Admission functions that the component exports.
    pub asked: AdmissionExports,
    /// Admission requests for which API servers call the plugin; `None`: never.
    pub admission: Option<Admission>,
    /// CRDs of its plugin that have more than one version.
    pub converted: Arc<[String]>,
    /// Set if the CRD of its primary kind came with the plugin, so that conditions may be written.
    pub brings_crd: bool,
    /// Reason that `Reconciled` always has while it is false, for plugins whose users know that reason.
    pub failure_reason: Option<Arc<str>>,
    /// Set if that CRD does not accept the whole status that the host writes, so that its schema is read from the
    /// cluster.
    pub asks_for_schema: bool,
    /// The component.
    pub component: PluginComponent,
    /// The configuration as JSON text.
    pub config: String,
    /// Limits of its calls.
    pub limits: Limits,
    /// Number of its plugin's objects that are reconciled at once, over all its lanes; `None`: the host's default.
    pub concurrency: Option<usize>,
    /// Slots for concurrent calls of its plugin.
    pub calls: Arc<CallSlots>,
    /// Rights of its plugin's account.
    pub access: Arc<LaneAccess>,
    /// Writes under the plugin's name: what it owns, and statuses.
    pub writer: FieldManagerClient,
    /// Writes what the plugin contributes.
    pub contributor: FieldManagerClient,
    /// Emits events under the plugin's name.
    pub recorder: Arc<EventRecorder>,
    /// Health of the plugin.
    pub health: Arc<PluginHealth>,
    /// Served kinds that are watched, of all lanes.
    pub served: Arc<ServedKinds>,
    /// Namespaces of which the cache holds divisible kinds, of all lanes.
    pub cached: Arc<CachedNamespaces>,
}

/// Returns the slots for concurrent calls of one plugin: half of the cores, so that a plugin whose calls do not end
/// leaves the rest to others. A waiting call takes neither a thread nor guest memory.
pub fn calls_of_a_plugin() -> Arc<CallSlots> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(CallSlots::new((cores / 2).max(1)))
}

/// Returns the objects that must be listed so that a plugin can read a kind for a primary.
pub fn read_reach(grant: &Grant, primary: &Name) -> Reach {
    let reach = grant.seen(Reach::of(&grant.touch));
    match &primary.namespace {
        Some(namespace) if grant.touch.scope == TouchScope::Namespace => {
            reach.within_hashes(HashRanges::of_namespace(namespace))
        }
        _ => reach,
    }
}

/// Name in logs and in the shard plan: `plugin/controller`.
pub fn title_of(plugin: &str, controller: &str) -> String {
    format!("{plugin}/{controller}")
}

impl Lane {
    /// The field manager of a plugin's identity.
    pub fn manager_of(plugin: &str) -> String {
        format!("{MANAGER_PREFIX}{plugin}")
    }

    /// The field manager of what a plugin contributes. It differs from [`Lane::manager_of`] because an apply removes
    /// the fields that its manager held and does not name: owned and contributed fields stay independent.
    pub fn contributor_of(plugin: &str) -> String {
        format!("{MANAGER_PREFIX}{plugin}/contributed")
    }

    /// Decides how replicas divide its work. The leader alone previews, because it reports the result, and finishes a
    /// plugin, because that needs all objects the plugin made.
    pub fn division(&self) -> Division {
        let is_clean = self.former.is_empty() && self.mode == RunMode::Active;
        let touches = self.grants.touched().map(|grant| &grant.touch);
        if is_clean {
            Division::of(touches)
        } else {
            Division::Leader
        }
    }

    /// Name in logs and in the shard plan: `plugin/controller`.
    pub fn title(&self) -> String {
        title_of(&self.plugin, &self.controller)
    }

    /// Makes a lane of the same plugin for the primaries of a controller that it no longer has, with what the inventory
    /// lists of it.
    pub fn of_former_controller(
        &self,
        id: LaneId,
        primary: &Kind,
        finalizer: Option<String>,
        known: &Inventory,
    ) -> Self {
        let controller = former_controller(primary);
        let title: Arc<str> = title_of(&self.plugin, &controller.name).into();
        let grants = Grants::new(&controller);
        Self {
            id,
            former: known.former(&grants).into(),
            former_finalizers: known.former_finalizers(primary, finalizer.as_deref()).into(),
            grants,
            writer: self.writer.clone().working_for(title.clone()),
            contributor: self.contributor.clone().working_for(title),
            controller: controller.name,
            is_former: true,
            is_optional: false,
            filter: Filter::default(),
            finalizer,
            asked: AdmissionExports::default(),
            admission: None,
            brings_crd: false,
            // The plugin is not called here, and API servers check each write.
            access: Arc::new(LaneAccess::Unlimited),
            ..self.clone()
        }
    }

    /// Returns how the cluster serves a kind that the lane uses, if it does.
    pub fn served(&self, kind: &Kind) -> Option<ServedKind> {
        let declared = kind == self.grants.primary() || self.grants.get(kind).is_some();
        (declared || self.former_reach(kind).is_some())
            .then(|| self.served.get(kind))
            .flatten()
    }

    fn former_reach(&self, kind: &Kind) -> Option<Reach> {
        let former = self.former.iter().find(|former| former.kind == *kind);
        former.map(FormerKind::reach)
    }

    /// Returns `true` if contributions of an earlier version may be left on objects of this kind.
    pub fn gives_up(&self, kind: &Kind) -> bool {
        let former = self.former.iter().find(|former| former.kind == *kind);
        former.is_some_and(|former| former.contributed.is_some())
    }

    /// Returns `true` if the lane works without the kind: leftovers of it wait until the kind is served.
    pub fn is_only_former(&self, kind: &Kind) -> bool {
        let is_steered = kind == self.grants.primary() && !self.is_former;
        !is_steered && self.grants.get(kind).is_none()
    }

    /// Returns `true` if the lane is closed because the cluster does not serve its primary kind, which is optional. Its
    /// plugin runs without it.
    pub fn lacks_primary(&self) -> bool {
        self.is_optional && self.served.is_missing(self.grants.primary())
    }

    /// Kinds of which the lane's plugin has made objects, each once.
    pub fn owned_kinds(&self) -> impl Iterator<Item = &Kind> {
        let owns = |kind: &Kind| self.grants.get(kind).is_some_and(|grant| grant.allows(Access::Owned));
        let owned = self.grants.touched().map(|grant| &grant.touch.kind);
        let former = self
            .former
            .iter()
            .filter(|former| former.reach_of(Made::Owned).is_some());
        let former = former.map(|former| &former.kind).filter(move |kind| !owns(kind));
        owned.filter(move |kind| owns(kind)).chain(former)
    }

    /// All kinds that the lane needs, each with whether it is optional: the primary, touched kinds and leftovers of
    /// earlier versions.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, bool)> {
        let touched = self
            .grants
            .touched()
            .map(|grant| (grant.touch.kind.clone(), grant.touch.optional));
        let former = self.former.iter().map(|former| (former.kind.clone(), true));
        std::iter::once((self.grants.primary().clone(), self.is_former))
            .chain(touched)
            .chain(former)
    }

    /// Content that the cache needs of a kind for this lane.
    pub fn need(&self, kind: &Kind) -> CacheNeed {
        let is_primary = kind == self.grants.primary();
        let grant = self.grants.get(kind);
        let mut projection = Projection::default();
        if is_primary {
            projection = projection.union(self.grants.primary_projection());
            if self.brings_crd {
                let status = pilothouse_core::kubernetes::path::FieldPath::parse(".status").expect("this is a path");
                projection = projection.union(&Projection::new([&status]));
            }
        }
        if let Some(grant) = grant {
            projection = projection.union(&grant.projection);
            // The values show whether a claim is as it was applied, and whether retrying is worthwhile.
            if grant.allows(Access::Contributed) {
                projection = Projection::whole();
            }
        }
        let gives_up = self.gives_up(kind);
        if gives_up {
            projection = Projection::whole();
        }
        // A primary that leaves the filter has to be observed, but a watch with a label selector reports it as deleted:
        // so the filter does not narrow the watch of primaries.
        let declared = match grant {
            _ if is_primary => Some(Reach::all()),
            grant => grant.map(|grant| Reach::of(&grant.touch)),
        };
        let reach = match (declared, self.former_reach(kind)) {
            (Some(declared), Some(former)) => declared.union(&former),
            (Some(reach), None) => reach,
            (None, former) => former.unwrap_or_default(),
        };
        let reach = self.grants.confinement().seen(reach);
        let reach = match self.cached_namespaces() {
            Some(namespaces) if self.is_divided(kind) => reach.within_hashes(namespaces),
            _ => reach,
        };
        CacheNeed {
            projection,
            reach,
            whole: gives_up
                || grant.is_some_and(|grant| grant.allows(Access::Owned) || grant.allows(Access::Contributed)),
        }
    }

    /// Namespaces that the cache holds for this lane; `None`: all.
    pub fn cached_namespaces(&self) -> Option<HashRanges> {
        self.cached.of(|| self.title(), || self.division())
    }

    /// Returns `true` if a replica needs a kind only in its own namespaces.
    pub fn is_divided(&self, kind: &Kind) -> bool {
        let grant = self.grants.get(kind);
        grant.is_none_or(|grant| grant.touch.scope == TouchScope::Namespace)
    }

    /// Facts that the cache keeps beside each object's text, so that this lane can filter objects without parsing them.
    pub fn fact_keys(&self, kind: &Kind) -> FactKeys {
        let mut keys = FactKeys::default();
        if kind == self.grants.primary() {
            keys = self.filter.label_selector.iter().fold(keys, FactKeys::with_labels);
            keys = self
                .filter
                .annotations()
                .fold(keys, |keys, it| keys.with_annotation(it));
            keys = keys.with_text(PAUSED).with_text(RECONCILE_REQUESTED);
        }
        let labels = self
            .grants
            .get(kind)
            .and_then(|grant| grant.touch.label_selector.as_ref());
        labels.into_iter().fold(keys, FactKeys::with_labels)
    }

    /// The primary as the plugin sees it; `None` if it nests deeper than the plugin could read.
    pub fn show_primary(&self, object: &CachedObject) -> Option<String> {
        Self::show(object, self.grants.primary(), self.grants.primary_projection())
    }

    /// An object that the plugin reads, as it sees it; `None` if its declaration does not reach the object, or if it
    /// nests deeper than the plugin could read.
    pub fn show_read(&self, kind: &Kind, object: &CachedObject) -> Option<String> {
        let grant = self.grants.get(kind)?;
        let within = grant
            .touch
            .label_selector
            .as_ref()
            .is_none_or(|labels| object.has_labels(labels));
        if within && grant.reaches(object.name.namespace.as_deref()) {
            Self::show(object, kind, &grant.projection)
        } else {
            None
        }
    }

    /// Returns `true` if an object that the plugin reads is hidden from it because it nests too deep.
    pub fn hides(&self, kind: &Kind, object: &CachedObject) -> bool {
        let reads = self.grants.get(kind).is_some_and(|grant| grant.allows(Access::Read));
        // Such objects are few.
        object.is_too_deep() && reads && decoding::allowed(|| self.show_read(kind, object)).is_none()
    }

    fn show(object: &CachedObject, kind: &Kind, projection: &Projection) -> Option<String> {
        let text = object.text();
        let shown = if object.projection() == projection {
            text.into_owned()
        } else {
            let text: &RawValue = serde_json::from_str(&text).expect("the text was read through when it came");
            let shown = projection.project(text, kind);
            shown.expect("a path is less deep than what was read through")
        };
        let is_too_deep = object.is_too_deep() && is_too_deep(&shown).unwrap_or(true);
        (!is_too_deep).then_some(shown)
    }

    /// The lane's finalizer, and those that earlier versions may have set, as far as a primary has them.
    pub fn finalizers_of(&self, object: &CachedObject) -> impl Iterator<Item = &str> {
        let known = self.finalizer.iter().chain(self.former_finalizers.iter());
        known
            .map(String::as_str)
            .filter(|known| object.finalizers().iter().any(|present| **present == **known))
    }

    /// Returns `true` if a primary has this lane's finalizer, or one that an earlier version may have set.
    pub fn has_finalized(&self, object: &CachedObject) -> bool {
        self.finalizers_of(object).next().is_some()
    }

    /// Returns `true` if this is the finalizer that the plugin declares.
    pub fn declares(&self, finalizer: &str) -> bool {
        !self.is_former && self.finalizer.as_deref() == Some(finalizer)
    }

    /// Returns `true` if a primary is being deleted and waits for this lane's finalizer, or one of an earlier version.
    pub fn has_to_finish(&self, object: &CachedObject) -> bool {
        object.deleting && self.has_finalized(object)
    }

    /// Returns `true` if some primaries may be excluded.
    pub fn is_filtered(&self) -> bool {
        self.has_filter() || !self.namespaces.is_empty()
    }

    /// Returns `true` if some excluded primaries may have been reconciled before.
    pub fn has_filter(&self) -> bool {
        self.is_former || self.filter != Filter::default()
    }

    /// Returns `true` if the Plugin selects primaries of this namespace. Others may belong to another Plugin.
    pub fn selects(&self, primary: &Name) -> bool {
        let named = |namespace: &str| self.namespaces.iter().any(|it| it == namespace);
        self.namespaces.is_empty() || primary.namespace.as_deref().is_some_and(named)
    }

    /// Returns `true` if an object of the primary kind is reconciled.
    pub fn reconciles(&self, object: &CachedObject) -> bool {
        let (has_annotation, has_labels) = (
            |name: &str| object.has_annotation(name),
            |labels: &_| object.has_labels(labels),
        );
        !self.is_former && self.selects(&object.name) && self.filter.selects(has_annotation, has_labels)
    }
}
