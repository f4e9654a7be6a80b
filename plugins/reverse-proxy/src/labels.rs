//! Labels of the pods that the plugin sets itself.

use serde_json::{Value, json};

/// The labels that users can't give to pods.
pub(crate) const OWN_LABELS: [&str; 3] = [MANAGED_BY, INSTANCE, CONFIG_SUM];

/// The label that says who keeps an object.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The label that tells the objects of one proxy from those of another.
pub(crate) const INSTANCE: &str = "app.kubernetes.io/instance";

/// The label with the hash of the configuration: it is on the pods too, so another configuration rolls them.
pub(crate) const CONFIG_SUM: &str = "nginx-operator/configsum";

/// The labels that pods have from the operator.
pub(crate) fn pod_label_rules() -> Value {
    let rule = |label| json!({"rule": format!("!('{label}' in self)"), "message": format!("{label} is set by the operator; leave it out")});
    OWN_LABELS.map(rule).into_iter().collect()
}
