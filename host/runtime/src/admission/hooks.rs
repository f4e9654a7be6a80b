//! Determines the webhook configurations and conversions that the running lanes need. Makes no request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pilothouse_cluster::resources::webhooks::WebhookKind;
use pilothouse_core::admission::configuration::{Hook, WebhookContext, conversion, mutating, validating};
use serde_json::{Value, json};

use super::WebhookOptions;
use crate::lanes::lane::{Lane, RunMode};
use crate::lanes::snapshot::Lanes;

/// Webhook objects of one plugin.
#[derive(Default)]
pub(super) struct PluginWebhooks {
    /// The objects.
    pub(super) objects: Vec<(WebhookKind, Value)>,
    /// Set if they are complete: each kind is served, and the plugin is active. Other configurations then belong to
    /// another version.
    pub(super) is_all: bool,
}

impl PluginWebhooks {
    /// Sets the owner of the configurations, with which they are deleted. A CRD gets none: all its objects would be
    /// deleted, too.
    pub(super) fn set_owner(&mut self, owner: &Value) {
        for (asking, object) in &mut self.objects {
            if *asking != WebhookKind::Conversion {
                object["metadata"]["ownerReferences"] = json!([owner]);
            }
        }
    }
}

/// Webhook objects of every running plugin.
pub(super) fn plugin_webhooks(
    lanes: &Lanes,
    options: &WebhookOptions,
    bundle: &str,
) -> BTreeMap<Arc<str>, PluginWebhooks> {
    let mut by_plugin: BTreeMap<Arc<str>, Vec<&Arc<Lane>>> = BTreeMap::new();
    for lane in lanes.iter() {
        by_plugin.entry(lane.plugin.clone()).or_default().push(lane);
    }
    let host = options.secret.label();
    by_plugin
        .into_iter()
        .map(|(plugin, lanes)| {
            let common = WebhookContext {
                plugin: &plugin,
                endpoint: &options.endpoint,
                bundle,
                own_namespace: &options.own_namespace,
                host: &host,
            };
            let wanted = of_plugin(&common, &lanes);
            (plugin, wanted)
        })
        .collect()
}

fn of_plugin(common: &WebhookContext<'_>, lanes: &[&Arc<Lane>]) -> PluginWebhooks {
    let mut wanted = PluginWebhooks::default();
    let Some(optional) = lanes.first().map(|lane| lane.component.optional()) else {
        return wanted;
    };
    wanted.is_all = lanes.iter().all(|lane| {
        let is_served = lane.served(lane.grants.primary()).is_some();
        lane.mode == RunMode::Active && (is_served || lane.lacks_primary()) && !lane.access.is_unreviewed()
    });
    let hooks = |is_asked: fn(&Lane) -> bool| -> Vec<Hook> {
        let asked = lanes.iter().filter(|lane| is_asked(lane));
        asked.filter_map(|lane| hook(lane)).collect()
    };
    let defaulted = hooks(|lane| lane.asked.defaulter && lane.access.defaults());
    let validated = hooks(|lane| lane.asked.validator && lane.access.validates());
    if !defaulted.is_empty() {
        wanted
            .objects
            .push((WebhookKind::Mutating, mutating(common, &defaulted)));
    }
    if !validated.is_empty() {
        wanted
            .objects
            .push((WebhookKind::Validating, validating(common, &validated)));
    }
    if optional.converter && lanes.iter().all(|lane| lane.mode == RunMode::Active) {
        let crds = lanes
            .iter()
            .flat_map(|lane| lane.converted.iter())
            .collect::<BTreeSet<_>>();
        wanted.objects.extend(
            crds.into_iter()
                .map(|crd| (WebhookKind::Conversion, conversion(common, crd))),
        );
    }
    wanted
}

/// Webhook of a lane, if its account may be called; `None` if the manifest declares no admission, the kind is not
/// served yet, or the plugin is in preview.
fn hook(lane: &Lane) -> Option<Hook> {
    if lane.mode == RunMode::Preview {
        return None;
    }
    let kind = lane.grants.primary();
    Some(Hook {
        controller: lane.controller.clone(),
        kind: kind.clone(),
        plural: lane.served(kind)?.plural.clone(),
        filter: lane.filter.clone(),
        namespaces: lane.namespaces.clone(),
        admission: lane.admission.clone()?,
    })
}
