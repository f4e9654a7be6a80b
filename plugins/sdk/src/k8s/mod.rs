//! Builders of Kubernetes objects, one cargo feature for each API group; `k8s` is all of them.
//!
//! They are generated from the API server's OpenAPI documents, like client-go's apply configurations. An object only
//! has the fields that were set: all others stay as the server or other field managers set them. A builder is a JSON
//! map, and only the setters that a plugin calls are in its component.
//!
#![cfg_attr(feature = "k8s-apps", doc = "```")]
#![cfg_attr(not(feature = "k8s-apps"), doc = "```ignore")]
//! use pilothouse_plugin::k8s::apps::v1::Deployment;
//! use pilothouse_plugin::k8s::core::v1::Container;
//!
//! let deployment = Deployment::new("web")
//!     .namespace("shop")
//!     .replicas(2)
//!     .pod_labels([("app", "web")])
//!     .container(Container::new("web").image("nginx:1.27"));
//! assert_eq!(
//!     serde_json::to_value(deployment).unwrap(),
//!     serde_json::json!({
//!         "apiVersion": "apps/v1", "kind": "Deployment",
//!         "metadata": {"name": "web", "namespace": "shop"},
//!         "spec": {
//!             "replicas": 2,
//!             "selector": {"matchLabels": {"app": "web"}},
//!             "template": {
//!                 "metadata": {"labels": {"app": "web"}},
//!                 "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]},
//!             },
//!         },
//!     })
//! );
//! ```
//!
//! - `new` takes the members that each such object has: a kind's name, a container's name, a Service port's number.
//! - A kind has the setters of its `spec`, and those of its metadata: `namespace`, `label(s)`, `annotation(s)`.
//! - A list has a setter for the whole and one that adds an element: `containers` and `container`. A map has one for
//!   several entries and one for a single one: `limits` and `limit`. If a name has no singular, the latter is called
//!   `add_env`, for example.
//! - Every setter also takes an `Option`; see [`Field`]. `None` and empty lists leave a field as it is.
//! - Quantities are strings (`"100m"`), enumerations too (`"IfNotPresent"`); the docs of the setter list the values.
//! - The builders of parts implement `Deserialize`, so that a custom resource can have a `template: PodTemplateSpec`. With
//!   the feature `crd` they have the API server's schemas.

mod field;
mod int_or_string;
mod macros;
mod members;
mod value;
#[cfg(feature = "k8s-apps")]
mod workloads;

pub use self::field::Field;
pub use self::int_or_string::IntOrString;
pub use self::value::FieldValue;

#[cfg(feature = "k8s-apiextensions")]
/// Types of the group `apiextensions.k8s.io`: CustomResourceDefinitions.
#[path = "generated"]
pub mod apiextensions {
    #[path = "apiextensions_v1.rs"]
    pub mod v1;
}

#[cfg(feature = "k8s-apps")]
/// Types of the group `apps`: Deployments, StatefulSets, DaemonSets.
#[path = "generated"]
pub mod apps {
    #[path = "apps_v1.rs"]
    pub mod v1;
}

#[cfg(feature = "k8s-autoscaling")]
/// Types of the group `autoscaling`: HorizontalPodAutoscalers.
#[path = "generated"]
pub mod autoscaling {
    #[path = "autoscaling_v2.rs"]
    pub mod v2;
}

#[cfg(feature = "k8s-batch")]
/// Types of the group `batch`: Jobs and CronJobs.
#[path = "generated"]
pub mod batch {
    #[path = "batch_v1.rs"]
    pub mod v1;
}

#[cfg(feature = "k8s-coordination")]
/// Types of the group `coordination.k8s.io`: Leases.
#[path = "generated"]
pub mod coordination {
    #[path = "coordination_v1.rs"]
    pub mod v1;
}

#[cfg(feature = "k8s-core")]
/// Types of the core group: Pods, Services, ConfigMaps, Secrets and so on.
#[path = "generated"]
#[allow(clippy::should_implement_trait, reason = "capabilities have a list `add`")]
pub mod core {
    #[path = "core_v1.rs"]
    pub mod v1;
}

/// Types of `meta/v1`: members that objects of all groups have.
#[path = "generated"]
pub mod meta {
    #[path = "meta_v1.rs"]
    pub mod v1;
}

#[cfg(feature = "k8s-networking")]
/// Types of the group `networking.k8s.io`: Ingresses and NetworkPolicies.
#[path = "generated"]
pub mod networking {
    #[path = "networking_v1.rs"]
    pub mod v1;
}

#[cfg(feature = "k8s-policy")]
/// Types of the group `policy`: PodDisruptionBudgets.
#[path = "generated"]
pub mod policy {
    #[path = "policy_v1.rs"]
    pub mod v1;
}

#[cfg(feature = "k8s-rbac")]
/// Types of the group `rbac.authorization.k8s.io`: Roles and their bindings.
#[path = "generated"]
pub mod rbac {
    #[path = "rbac_v1.rs"]
    pub mod v1;
}
