//! Generates the builders of `pilothouse_plugin::k8s` from the OpenAPI documents of Kubernetes' API server, as
//! client-go's apply configurations are generated.
//!
//! `schema` reads what is kept of these documents in `openapi.json`, `names` and `docs` turn names and descriptions into
//! Rust's, `emit` writes the code, `crd_schemas` the schemas for CustomResourceDefinitions, and `extract` makes `openapi.json` anew for another version of Kubernetes.
//!
//! Builders, and no structs, because only the setters that a plugin calls are linked: app-service is 7 KB larger than with structs written by
//! hand, while the types of k8s-openapi grow a plugin with three children from 193 to 585 KB.

mod crd_schemas;
mod docs;
mod emit;
pub mod extract;
pub mod generated;
mod names;
mod schema;

/// Path of the extract.
const EXTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/builders/openapi.json");

/// One group version: its module, the cargo feature that it comes with, and what its types are called in OpenAPI.
struct Group {
    /// The module below `k8s`, for example `apps::v1`.
    module: &'static str,
    /// The name of the OpenAPI v3 document; none if no kind of the group is built.
    document: Option<&'static str>,
    /// Prefix of the names of its schemas.
    prefix: &'static str,
}

const GROUPS: [Group; 10] = [
    Group::new(
        "apiextensions::v1",
        "apis__apiextensions.k8s.io__v1",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.",
    ),
    Group::new("apps::v1", "apis__apps__v1", "io.k8s.api.apps.v1."),
    Group::new("autoscaling::v2", "apis__autoscaling__v2", "io.k8s.api.autoscaling.v2."),
    Group::new("batch::v1", "apis__batch__v1", "io.k8s.api.batch.v1."),
    Group::new(
        "coordination::v1",
        "apis__coordination.k8s.io__v1",
        "io.k8s.api.coordination.v1.",
    ),
    Group::new("core::v1", "api__v1", "io.k8s.api.core.v1."),
    Group {
        module: "meta::v1",
        document: None,
        prefix: "io.k8s.apimachinery.pkg.apis.meta.v1.",
    },
    Group::new(
        "networking::v1",
        "apis__networking.k8s.io__v1",
        "io.k8s.api.networking.v1.",
    ),
    Group::new("policy::v1", "apis__policy__v1", "io.k8s.api.policy.v1."),
    Group::new("rbac::v1", "apis__rbac.authorization.k8s.io__v1", "io.k8s.api.rbac.v1."),
];

impl Group {
    const fn new(module: &'static str, document: &'static str, prefix: &'static str) -> Self {
        Self {
            module,
            document: Some(document),
            prefix,
        }
    }

    /// The generated file's name, for example `apps_v1.rs`.
    fn file(&self) -> String {
        format!("{}.rs", self.module.replace("::", "_"))
    }
}

/// Kinds that no plugin keeps in a cluster: they are requests, answers or outdated.
const NOT_BUILT: [&str; 11] = [
    "APIGroup",
    "Binding",
    "ComponentStatus",
    "DeleteOptions",
    "Event",
    "Eviction",
    "Scale",
    "Status",
    "TokenRequest",
    "WatchEvent",
    "Endpoints",
];
