//! Owns what is fixed about a lane: one controller of one plugin, with all that its reconciles need.

use std::sync::Arc;

use pilothouse_cluster::cache::decoding;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::facts::FactKeys;
use pilothouse_cluster::object::{CachedObject, MANAGER_PREFIX};
use pilothouse_cluster::write::FieldManagerClient;
use pilothouse_cluster::write::events::EventRecorder;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::plugin::grants::{Grant, Grants};
use pilothouse_core::plugin::inventory::{FormerKind, Made, former_controller};
use pilothouse_core::plugin::manifest::{Access, Admission, Filter, TouchScope};
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::replicas::shards::{Division, HashRanges};
use pilothouse_core::rights::AdmissionExports;
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

/// A plugin that the host is told to run.
#[derive(Clone)]
pub struct StaticPlugin {
    /// Its identity: field manager, lanes and log hang on it. None: the name in its manifest.
    pub name: Option<String>,
    /// The loaded component.
    pub component: PluginComponent,
    /// Its configuration; none means the plugin's defaults.
    pub config: Option<Value>,
    /// What its calls may use.
    pub limits: Limits,
    /// How many of its objects are reconciled at once; none means as many as the host's options say.
    pub concurrency: Option<usize>,
    /// Whether it acts.
    pub mode: RunMode,
    /// Field managers of an earlier operator whose fields are taken over.
    pub former_managers: Vec<String>,
}

/// Whether a plugin that runs acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunMode {
    /// What is desired is applied and reported.
    #[default]
    Active,
    /// Nothing is written; what would be is told.
    Preview,
    /// The plugin ends: primaries that are being deleted and wait for its finalizer are seen to, all others are left.
    Finishing,
}

/// One controller of one plugin.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Lane {
    /// Its number.
    pub id: LaneId,
    /// The plugin's identity.
    pub plugin: Arc<str>,
    /// The controller's name in the manifest.
    pub controller: String,
    /// What it may touch.
    pub grants: Grants,
    /// Kinds that an earlier version owned or contributed to. What is left of that is watched for, and cleaned up.
    pub former: Arc<[FormerKind]>,
    /// Whether its controller is one that an earlier version had. It reconciles nothing, and each of its primaries is
    /// treated as one that has left the filter.
    pub is_former: bool,
    /// Which primaries it reconciles.
    pub filter: Filter,
    /// The finalizer that its primaries get, for plugins that have something to do before one goes.
    pub finalizer: Option<String>,
    /// Whether it acts.
    pub mode: RunMode,
    /// Field managers of an earlier operator whose fields are taken over.
    pub former_managers: Vec<String>,
    /// Only primaries in these namespaces; none means all.
    pub namespaces: Vec<String>,
    /// Whether children of primaries that are outside of these namespaces are pruned; else they stay as they are.
    pub prunes_unselected: bool,
    /// What the component is asked about a primary before it is stored and reconciled.
    pub asked: AdmissionExports,
    /// When an API server asks about a primary; none means never.
    pub admission: Option<Admission>,
    /// The CRDs of its plugin that have more than one version.
    pub converted: Arc<[String]>,
    /// Whether the CRD of its primary kind came with the plugin, so that conditions may be written.
    pub brings_crd: bool,
    /// The reason that `Reconciled` always has while it is false, for plugins whose users know it.
    pub failure_reason: Option<Arc<str>>,
    /// Whether that CRD does not take all of the status that the host writes, so that the cluster is asked what it takes.
    pub asks_for_schema: bool,
    /// The component.
    pub component: PluginComponent,
    /// The configuration as JSON text.
    pub config: String,
    /// What its calls may use.
    pub limits: Limits,
    /// How many objects of its plugin are reconciled at once, over all its lanes; none means the host's default.
    pub concurrency: Option<usize>,
    /// The calls of its plugin that may be under way at once.
    pub calls: Arc<CallSlots>,
    /// What the account of its plugin may do.
    pub access: Arc<LaneAccess>,
    /// Writes under the plugin's name: what it owns, and statuses.
    pub writer: FieldManagerClient,
    /// Writes what the plugin contributes.
    pub contributor: FieldManagerClient,
    /// Tells events under the plugin's name.
    pub recorder: Arc<EventRecorder>,
    /// What is remembered of the plugin's calls.
    pub health: Arc<PluginHealth>,
    /// How the cluster serves the kinds that are watched, of all lanes.
    pub served: Arc<ServedKinds>,
    /// The namespaces that the cache holds of what can be divided, of all lanes.
    pub cached: Arc<CachedNamespaces>,
}

/// The calls that one plugin may have under way at once: half of the cores, so that one whose calls do not end leaves the
/// rest to its neighbours. A call that waits for its turn takes neither a thread nor memory of a guest.
pub fn calls_of_a_plugin() -> Arc<CallSlots> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(CallSlots::new((cores / 2).max(1)))
}

/// What has to be listed so that a plugin can read a kind for a primary.
pub fn read_reach(grant: &Grant, primary: &Name) -> Reach {
    let reach = grant.seen(Reach::of(&grant.touch));
    match &primary.namespace {
        Some(namespace) if grant.touch.scope == TouchScope::Namespace => {
            reach.within_hashes(HashRanges::of_namespace(namespace))
        }
        _ => reach,
    }
}

/// For logs, and for the plan of shards: `plugin/controller`.
pub fn title_of(plugin: &str, controller: &str) -> String {
    format!("{plugin}/{controller}")
}

impl Lane {
    /// The field manager of a plugin's identity.
    pub fn manager_of(plugin: &str) -> String {
        format!("{MANAGER_PREFIX}{plugin}")
    }

    /// The field manager of what a plugin contributes. It is another one, because an apply takes away what its manager
    /// held and does not name: so neither what is owned nor what is contributed to it has to know of the other.
    pub fn contributor_of(plugin: &str) -> String {
        format!("{MANAGER_PREFIX}{plugin}/contributed")
    }

    /// How replicas can divide its work. What a preview would do is told by the leader, so the leader does it; and a plugin that
    /// ends is ended by the leader, who has to see all that it made.
    pub fn division(&self) -> Division {
        let is_clean = self.former.is_empty() && self.mode == RunMode::Active;
        let touches = self.grants.touched().map(|grant| &grant.touch);
        if is_clean {
            Division::of(touches)
        } else {
            Division::Leader
        }
    }

    /// For logs, and for the plan of shards: `plugin/controller`.
    pub fn title(&self) -> String {
        title_of(&self.plugin, &self.controller)
    }

    /// A lane of the same plugin for the primaries of a controller that it has no more.
    pub fn of_former_controller(
        &self,
        id: LaneId,
        primary: &Kind,
        finalizer: Option<String>,
        former: Arc<[FormerKind]>,
    ) -> Self {
        let controller = former_controller(primary);
        let title: Arc<str> = title_of(&self.plugin, &controller.name).into();
        Self {
            id,
            grants: Grants::new(&controller),
            writer: self.writer.clone().working_for(title.clone()),
            contributor: self.contributor.clone().working_for(title),
            controller: controller.name,
            former,
            is_former: true,
            filter: Filter::default(),
            finalizer,
            asked: AdmissionExports::default(),
            admission: None,
            brings_crd: false,
            // The plugin is not called for it, and API servers check each write.
            access: Arc::new(LaneAccess::Unlimited),
            ..self.clone()
        }
    }

    /// How the cluster serves a kind that the lane has to do with, if it does.
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

    /// Whether there may be something left on objects of a kind that an earlier version contributed to.
    pub fn gives_up(&self, kind: &Kind) -> bool {
        let former = self.former.iter().find(|former| former.kind == *kind);
        former.is_some_and(|former| former.contributed.is_some())
    }

    /// Whether the lane can do without a kind that it cannot see: what is left of it waits then.
    pub fn is_only_former(&self, kind: &Kind) -> bool {
        let is_steered = kind == self.grants.primary() && !self.is_former;
        !is_steered && self.grants.get(kind).is_none()
    }

    /// The kinds of which the lane's plugin has made objects, each once.
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

    /// Every kind that the lane needs, and whether it can do without: the primary, what it touches, and what is left of
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

    /// What the cache has to know of a kind for this lane.
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
            // Whether a claim is as it was applied, and whether it is worth another try, shows in the values.
            if grant.allows(Access::Contributed) {
                projection = Projection::whole();
            }
        }
        let gives_up = self.gives_up(kind);
        if gives_up {
            projection = Projection::whole();
        }
        // Who leaves the filter has to be seen leaving, and a label's watch calls that a deletion: the filter does not
        // narrow what is watched of the primary.
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

    /// The namespaces that the cache is to hold for this lane; none: all.
    pub fn cached_namespaces(&self) -> Option<HashRanges> {
        self.cached.of(|| self.title(), || self.division())
    }

    /// Whether a replica needs a kind only in the namespaces that it works at.
    pub fn is_divided(&self, kind: &Kind) -> bool {
        let grant = self.grants.get(kind);
        grant.is_none_or(|grant| grant.touch.scope == TouchScope::Namespace)
    }

    /// What the cache has to know of each object of a kind beside its text, so that this lane decides about it without
    /// reading it.
    pub fn fact_keys(&self, kind: &Kind) -> FactKeys {
        let mut keys = FactKeys::default();
        if kind == self.grants.primary() {
            let Filter {
                annotation,
                label_selector,
            } = &self.filter;
            keys = label_selector.iter().fold(keys, FactKeys::with_labels);
            keys = annotation.iter().fold(keys, |keys, it| keys.with_annotation(it));
        }
        let labels = self
            .grants
            .get(kind)
            .and_then(|grant| grant.touch.label_selector.as_ref());
        labels.into_iter().fold(keys, FactKeys::with_labels)
    }

    /// What the plugin sees of an object that its reconcile is about; none if that nests deeper than it could read.
    pub fn show_primary(&self, object: &CachedObject) -> Option<String> {
        Self::show(object, self.grants.primary(), self.grants.primary_projection())
    }

    /// What the plugin sees of an object that it reads, or nothing if its declaration does not reach that object, or if
    /// what it declares nests deeper than it could read.
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

    /// Whether an object that the lane's plugin reads is kept from it, because it could not read it.
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

    /// Whether an object of the primary kind has this lane's finalizer.
    pub fn has_finalized(&self, object: &CachedObject) -> bool {
        let mut present = object.finalizers().iter();
        let finalizer = self.finalizer.as_deref();
        finalizer.is_some_and(|finalizer| present.any(|it| **it == *finalizer))
    }

    /// Whether an object of the primary kind is being deleted and waits for this lane's finalizer to go.
    pub fn has_to_finish(&self, object: &CachedObject) -> bool {
        object.deleting && self.has_finalized(object)
    }

    /// Whether there may be objects of the primary kind that are not reconciled.
    pub fn is_filtered(&self) -> bool {
        self.has_filter() || !self.namespaces.is_empty()
    }

    /// Whether there may be objects of the primary kind that were reconciled once.
    pub fn has_filter(&self) -> bool {
        self.is_former || self.filter != Filter::default()
    }

    /// Whether the Plugin is for objects of the primary kind at this place. On others it does not act: they may be another
    /// Plugin's.
    pub fn selects(&self, primary: &Name) -> bool {
        let named = |namespace: &str| self.namespaces.iter().any(|it| it == namespace);
        self.namespaces.is_empty() || primary.namespace.as_deref().is_some_and(named)
    }

    /// Whether an object of the primary kind is reconciled.
    pub fn reconciles(&self, object: &CachedObject) -> bool {
        let (has_annotation, has_labels) = (
            |name: &str| object.has_annotation(name),
            |labels: &_| object.has_labels(labels),
        );
        !self.is_former && self.selects(&object.name) && self.filter.selects(has_annotation, has_labels)
    }
}
