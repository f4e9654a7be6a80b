//! Decides without a cluster whether a kind is namespaced.

use std::sync::Arc;

use pilothouse_core::Kind;
use pilothouse_core::answer::KindFacts;
use pilothouse_core::kubernetes::served::ServedKind;
use serde_json::Value;

use super::{Isolated, identity};

/// The kinds of Kubernetes itself that have no namespace. Of other kinds only the plugin's own CRDs are known.
const CLUSTER_SCOPED: [(&str, &str); 17] = [
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("networking.k8s.io", "IngressClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "StorageClass"),
];

impl Isolated {
    /// Returns `true` if the plugin reconciles a kind.
    pub fn reconciles(&self, kind: &Kind) -> bool {
        let mut controllers = self.manifest.manifest.controllers.iter();
        controllers.any(|controller| controller.kind == *kind)
    }

    /// Describes the controller's filter if it excludes an object of its kind.
    pub fn unselected(&self, object: &Value) -> Option<String> {
        let (kind, _) = identity(object).ok()?;
        let mut controllers = self.manifest.manifest.controllers.iter();
        let filter = &controllers.find(|controller| controller.kind == kind)?.filter;
        (!filter.selects_value(object)).then(|| filter.to_string())
    }

    /// The kinds that the plugin reconciles, for messages.
    pub fn kind_names(&self) -> String {
        let controllers = self.manifest.manifest.controllers.iter();
        let names: Vec<String> = controllers.map(|controller| controller.kind.to_string()).collect();
        names.join(", ")
    }

    /// Sets the namespace of an object, if its kind is namespaced and it has none.
    pub fn place(&self, object: &mut Value, namespace: &str) {
        let Ok((kind, name)) = identity(object) else { return };
        if name.namespace.is_none() && self.served(&kind).facts.namespaced {
            object["metadata"]["namespace"] = namespace.into();
        }
    }

    /// Returns a kind as a cluster would serve it.
    pub(crate) fn served(&self, kind: &Kind) -> ServedKind {
        let own = self
            .manifest
            .crds
            .iter()
            .find(|crd| crd.group == kind.group && crd.kind == kind.kind);
        let is_namespaced =
            |definition: &Value| definition.pointer("/spec/scope").and_then(Value::as_str) == Some("Namespaced");
        let namespaced = match own.map(|crd| &crd.definition).or_else(|| self.definition(kind)) {
            Some(definition) => is_namespaced(definition),
            None => !CLUSTER_SCOPED.contains(&(kind.group.as_str(), kind.kind.as_str())),
        };
        ServedKind {
            short_names: Vec::new(),
            kind: Arc::new(kind.clone()),
            plural: format!("{}s", kind.kind.to_lowercase()),
            facts: KindFacts {
                namespaced,
                has_status: true,
            },
        }
    }

    /// The definition of a kind among the objects of the cache.
    fn definition(&self, kind: &Kind) -> Option<&Value> {
        let defines = |definition: &Value| {
            let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
            text("/spec/group") == Some(&kind.group) && text("/spec/names/kind") == Some(&kind.kind)
        };
        let mut objects = self.objects.iter();
        let found = objects.find(|((its, _), object)| its.kind == "CustomResourceDefinition" && defines(&object.value));
        found.map(|(_, definition)| &definition.value)
    }
}
