//! The EcsBinding as users write it. The CRD is generated from the types and comments of this file.
#![allow(clippy::duplicated_attributes, reason = "each column of the definition has a type")]

use pilothouse_plugin::{ObjectMeta, Resource};
use schemars::JsonSchema;
use serde::Deserialize;

/// An EcsBinding records which cloud host (ECS) is which node of the cluster.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(group = "hopegi.com", version = "v1", kind = "EcsBinding")]
#[crd(
    plural = "ecsbinding",
    shortname = "ecsb",
    scope = "Cluster",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "NodeName", type_ = "string", json_path = ".spec.nodename"),
    printcolumn(name = "InnerIp", type_ = "string", json_path = ".spec.innerip")
)]
pub struct EcsBinding {
    /// Name, uid and so on.
    pub metadata: ObjectMeta,
    /// What the user says.
    #[resource(whole)]
    pub spec: EcsBindingSpec,
}

/// Which cloud host is which node.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct EcsBindingSpec {
    /// The identity of the cloud host at its provider, for example `i-bp1a2b3c4d5e6f7g8h9i`.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9][-A-Za-z0-9._:/]*$"))]
    pub id: String,
    /// The name of the cloud host at its provider, in any language.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^\pC]+$"))]
    pub name: String,
    /// The name of the node.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub nodename: String,
    /// The address of the cloud host within its network: it should be one of the node's addresses.
    #[schemars(
        length(min = 1, max = 45),
        extend("x-kubernetes-validations" = [
            {"rule": "isIP(self)", "message": "give an IPv4 or IPv6 address, such as 192.168.0.10"},
        ])
    )]
    pub innerip: String,
}

#[test]
fn generated_crd_is_what_the_types_give() {
    pilothouse_plugin::crd::keep::<EcsBinding>(env!("CARGO_MANIFEST_DIR"));
}
