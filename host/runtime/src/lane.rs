//! Owns what is fixed about a lane: one controller of one plugin, with all that its reconciles need.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use pilothouse_cluster::discovery::Served;
use pilothouse_cluster::events::Recorder;
use pilothouse_cluster::object::{MANAGER_PREFIX, Stored};
use pilothouse_cluster::write::Writer;
use pilothouse_core::grants::Grants;
use pilothouse_core::manifest::Filter;
use pilothouse_core::path::Projection;
use pilothouse_core::selector::Selector;
use pilothouse_core::{Kind, Limits};
use pilothouse_sandbox::Plugin;
use serde_json::Value;
use serde_json::value::RawValue;

/// A plugin that the host is told to run.
#[derive(Clone)]
pub struct PluginSpec {
    /// Its identity: field manager, lanes and log hang on it. None: the name in its manifest.
    pub name: Option<String>,
    /// The loaded component.
    pub component: Plugin,
    /// Its configuration; none means the plugin's defaults.
    pub config: Option<Value>,
    /// What its calls may use.
    pub limits: Limits,
}

/// A lane's number, in the order in which lanes came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u32);

/// One controller of one plugin.
pub struct Lane {
    /// Its number.
    pub id: LaneId,
    /// The plugin's identity.
    pub plugin: Arc<str>,
    /// The controller's name in the manifest.
    pub controller: String,
    /// What it may touch.
    pub grants: Grants,
    /// Which primaries it steers.
    pub filter: Filter,
    /// Whether the CRD of its primary kind came with the plugin, so that conditions may be written.
    pub brings_crd: bool,
    /// The component.
    pub component: Plugin,
    /// The configuration as JSON text.
    pub config: String,
    /// What its calls may use.
    pub limits: Limits,
    /// Writes under the plugin's name.
    pub writer: Writer,
    /// Tells events under the plugin's name.
    pub recorder: Arc<Recorder>,
    /// Its kinds as the cluster serves them; set before the lane opens.
    pub served: OnceLock<HashMap<Arc<Kind>, Served>>,
    /// What the cache holds of each kind; set before the lane opens.
    pub cached: OnceLock<HashMap<Arc<Kind>, Arc<Projection>>>,
}

impl Lane {
    /// The field manager of a plugin's identity.
    pub fn manager_of(plugin: &str) -> String {
        format!("{MANAGER_PREFIX}{plugin}")
    }

    /// For logs: `plugin/controller`.
    pub fn title(&self) -> String {
        format!("{}/{}", self.plugin, self.controller)
    }

    /// How the cluster serves a kind, if it does.
    pub fn served(&self, kind: &Kind) -> Option<&Served> {
        self.served.get()?.get(kind)
    }

    /// Every kind that the lane needs: the primary and what it touches.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, bool)> {
        let touched = self
            .grants
            .touched()
            .map(|grant| (grant.touch.kind.clone(), grant.touch.optional));
        std::iter::once((self.grants.primary().clone(), false)).chain(touched)
    }

    /// What the cache has to hold of a kind for this lane.
    pub fn needs(&self, kind: &Kind) -> Projection {
        let mut projection = Projection::default();
        if kind == self.grants.primary() {
            projection = projection.union(self.grants.primary_projection());
            if self.brings_crd {
                let status = pilothouse_core::path::FieldPath::parse(".status").expect("this is a path");
                projection = projection.union(&Projection::new([&status]));
            }
        }
        if let Some(grant) = self.grants.get(kind) {
            projection = projection.union(&grant.projection);
        }
        projection
    }

    /// What the plugin sees of an object that its reconcile is about.
    pub fn show_primary(&self, object: &Stored) -> String {
        self.show(object, self.grants.primary(), self.grants.primary_projection())
    }

    /// What the plugin sees of an object that it reads, or nothing if its declaration does not reach that object.
    pub fn show_read(&self, kind: &Kind, object: &Stored) -> Option<String> {
        let grant = self.grants.get(kind)?;
        let within = grant
            .touch
            .labels
            .as_ref()
            .is_none_or(|labels| has_labels(object, labels));
        within.then(|| self.show(object, kind, &grant.projection))
    }

    fn show(&self, object: &Stored, kind: &Kind, projection: &Projection) -> String {
        let cached = self.cached.get().and_then(|cached| cached.get(kind));
        if cached.is_some_and(|cached| **cached == *projection) {
            return object.text.to_string();
        }
        let text: &RawValue = serde_json::from_str(&object.text).expect("the cache holds JSON");
        projection.project(text, kind).expect("the cache holds objects")
    }

    /// Whether an object of the primary kind is steered.
    pub fn steers(&self, object: &Stored) -> bool {
        let Filter { annotation, labels } = &self.filter;
        annotation.as_ref().is_none_or(|annotation| {
            let metadata: Value = metadata(object);
            metadata["annotations"].get(annotation).is_some()
        }) && labels.as_ref().is_none_or(|labels| has_labels(object, labels))
    }
}

/// An object's metadata.
pub fn metadata(object: &Stored) -> Value {
    #[derive(serde::Deserialize)]
    struct Head {
        metadata: Value,
    }
    serde_json::from_str::<Head>(&object.text)
        .expect("the cache holds objects")
        .metadata
}

/// Whether a selector matches an object's labels.
pub fn has_labels(object: &Stored, labels: &Selector) -> bool {
    let metadata = metadata(object);
    labels.matches(|key| metadata["labels"].get(key).and_then(Value::as_str))
}
