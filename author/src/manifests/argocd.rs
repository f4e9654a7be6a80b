//! Health checks for Argo CD, which takes an object of a kind that it does not know for healthy as soon as it exists.

use std::collections::BTreeMap;

use pilothouse_host::install::DescribedPlugin;
use serde_json::{Value, json};

/// The check, in Lua. One script does for all kinds, because the host gives all the same conditions.
const HEALTH_CHECK: &str = include_str!("health.lua");

/// Group and name of the resource that runs a plugin.
const PLUGIN: (&str, &str) = ("pilothouse.dev", "Plugin");

/// Returns a part of the ConfigMap `argocd-cm`: the checks of Plugins, and of each kind that the plugin reconciles and whose
/// CRD it brings. The host writes no conditions on other kinds. There is no namespace, as in the manifests of Argo CD.
pub fn config_map(plugin: &DescribedPlugin) -> Value {
    let controllers = plugin.checked.manifest.controllers.iter();
    let kinds = controllers.map(|controller| (&*controller.kind.group, &*controller.kind.kind));
    let brought = kinds.filter(|(group, kind)| {
        let mut crds = plugin.checked.crds.iter();
        crds.any(|crd| crd.group == *group && crd.kind == *kind)
    });
    let checked = brought.chain([PLUGIN]);
    let checks: BTreeMap<String, &str> = checked
        .map(|(group, kind)| (format!("resource.customizations.health.{group}_{kind}"), HEALTH_CHECK))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm", "labels": {"app.kubernetes.io/part-of": "argocd"}},
        "data": checks,
    })
}
