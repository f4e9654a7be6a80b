//! Labels of the pods that the plugin sets itself.

use serde_json::{Value, json};

/// Labels that users can't give to pods.
pub(crate) const OWN_LABELS: [&str; 3] = [MANAGED_BY, INSTANCE, CONFIG_SUM];

/// Label with the manager of an object.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Label that distinguishes the objects of one proxy from those of another.
pub(crate) const INSTANCE: &str = "app.kubernetes.io/instance";

/// Label with the hash of the configuration: it is on the pods too, so another configuration rolls them out again.
pub(crate) const CONFIG_SUM: &str = "nginx-operator/configsum";

/// Returns the rules for labels of pods, which exclude the operator's own.
pub(crate) fn pod_label_rules() -> Value {
    let rule = |label| json!({"rule": format!("!('{label}' in self)"), "message": format!("{label} is set by the operator; leave it out")});
    OWN_LABELS.map(rule).into_iter().collect()
}
