//! Owns how Kubernetes serves its own kinds: the names of their resources, and whether their objects stand in namespaces.
//! Kinds of others are known from their CRDs, or from a cluster.

use std::sync::Arc;

use crate::key::Kind;
use crate::served::{KindFacts, ServedKind};

/// How an API server serves one of Kubernetes' own kinds, in whatever version. That it has a status is not known.
pub fn served(kind: &Kind) -> Option<ServedKind> {
    let found = BUILT_IN
        .iter()
        .find(|(group, name, ..)| *group == kind.group && *name == kind.kind);
    found.map(|(_, _, plural, namespaced)| ServedKind {
        kind: Arc::new(kind.clone()),
        plural: (*plural).to_owned(),
        facts: KindFacts {
            namespaced: *namespaced,
            has_status: false,
        },
    })
}

/// Group, kind, resource, and whether its objects stand in namespaces. A test in host/cluster compares it with k8s-openapi,
/// and one below with a real API server.
#[rustfmt::skip]
pub const BUILT_IN: &[(&str, &str, &str, bool)] = &[
    ("", "ComponentStatus", "componentstatuses", false),
    ("", "ConfigMap", "configmaps", true),
    ("", "Endpoints", "endpoints", true),
    ("", "Event", "events", true),
    ("", "LimitRange", "limitranges", true),
    ("", "Namespace", "namespaces", false),
    ("", "Node", "nodes", false),
    ("", "PersistentVolume", "persistentvolumes", false),
    ("", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("", "Pod", "pods", true),
    ("", "PodTemplate", "podtemplates", true),
    ("", "ReplicationController", "replicationcontrollers", true),
    ("", "ResourceQuota", "resourcequotas", true),
    ("", "Secret", "secrets", true),
    ("", "Service", "services", true),
    ("", "ServiceAccount", "serviceaccounts", true),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", false),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", false),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
    ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("apiregistration.k8s.io", "APIService", "apiservices", false),
    ("apps", "ControllerRevision", "controllerrevisions", true),
    ("apps", "DaemonSet", "daemonsets", true),
    ("apps", "Deployment", "deployments", true),
    ("apps", "ReplicaSet", "replicasets", true),
    ("apps", "StatefulSet", "statefulsets", true),
    ("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("batch", "CronJob", "cronjobs", true),
    ("batch", "Job", "jobs", true),
    ("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", false),
    ("certificates.k8s.io", "ClusterTrustBundle", "clustertrustbundles", false),
    ("certificates.k8s.io", "PodCertificateRequest", "podcertificaterequests", true),
    ("coordination.k8s.io", "Lease", "leases", true),
    ("coordination.k8s.io", "LeaseCandidate", "leasecandidates", true),
    ("discovery.k8s.io", "EndpointSlice", "endpointslices", true),
    ("events.k8s.io", "Event", "events", true),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", "flowschemas", false),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", "prioritylevelconfigurations", false),
    ("internal.apiserver.k8s.io", "StorageVersion", "storageversions", false),
    ("lifecycle.k8s.io", "Eviction", "evictions", true),
    ("lifecycle.k8s.io", "EvictionRequest", "evictionrequests", true),
    ("networking.k8s.io", "IPAddress", "ipaddresses", false),
    ("networking.k8s.io", "Ingress", "ingresses", true),
    ("networking.k8s.io", "IngressClass", "ingressclasses", false),
    ("networking.k8s.io", "NetworkPolicy", "networkpolicies", true),
    ("networking.k8s.io", "ServiceCIDR", "servicecidrs", false),
    ("node.k8s.io", "RuntimeClass", "runtimeclasses", false),
    ("policy", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", false),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io", "Role", "roles", true),
    ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", true),
    ("resource.k8s.io", "DeviceClass", "deviceclasses", false),
    ("resource.k8s.io", "DeviceTaintRule", "devicetaintrules", false),
    ("resource.k8s.io", "ResourceClaim", "resourceclaims", true),
    ("resource.k8s.io", "ResourceClaimTemplate", "resourceclaimtemplates", true),
    ("resource.k8s.io", "ResourcePoolStatusRequest", "resourcepoolstatusrequests", false),
    ("resource.k8s.io", "ResourceSlice", "resourceslices", false),
    ("scheduling.k8s.io", "CompositePodGroup", "compositepodgroups", true),
    ("scheduling.k8s.io", "PodGroup", "podgroups", true),
    ("scheduling.k8s.io", "PriorityClass", "priorityclasses", false),
    ("scheduling.k8s.io", "Workload", "workloads", true),
    ("storage.k8s.io", "CSIDriver", "csidrivers", false),
    ("storage.k8s.io", "CSINode", "csinodes", false),
    ("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities", true),
    ("storage.k8s.io", "StorageClass", "storageclasses", false),
    ("storage.k8s.io", "VolumeAttachment", "volumeattachments", false),
    ("storage.k8s.io", "VolumeAttributesClass", "volumeattributesclasses", false),
    ("storagemigration.k8s.io", "StorageVersionMigration", "storageversionmigrations", false),
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// `tests/simulator/schemas/resources.json` is what a real API server answers to discovery.
    #[test]
    fn the_table_says_what_a_real_api_server_says() {
        let text = include_str!("../../../../tests/simulator/schemas/resources.json");
        let lists: Vec<Value> = serde_json::from_str(text).unwrap();
        let mut compared = 0;
        for list in &lists {
            let version = list["groupVersion"].as_str().unwrap();
            for resource in list["resources"].as_array().unwrap() {
                let can_be_watched = resource["verbs"].as_array().unwrap().iter().any(|verb| verb == "watch");
                if !can_be_watched {
                    continue;
                }
                let kind = Kind::from_api_version(version, resource["kind"].as_str().unwrap());
                let served = served(&kind).unwrap_or_else(|| panic!("{kind} is missing"));
                assert_eq!(resource["name"], *served.plural, "{kind}");
                assert_eq!(resource["namespaced"], served.facts.namespaced, "{kind}");
                compared += 1;
            }
        }
        assert!(compared > 40, "{compared}");
        assert!(served(&Kind::new("kosmos.io", "v1", "AppService")).is_none());
    }
}
