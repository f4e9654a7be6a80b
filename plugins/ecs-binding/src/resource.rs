//! Owns the form of an EcsBinding as users write it. The CRD is generated from the types and comments of this file.
#![cfg_attr(
    test,
    allow(clippy::duplicated_attributes, reason = "each column of the definition has a type")
)]

use pilothouse_plugin::{Kind, ObjectMeta, Resource};
use serde::Deserialize;

/// An EcsBinding: the fields that the plugin looks at.
#[derive(Clone, Debug, Deserialize)]
pub struct EcsBinding {
    /// Name, uid and so on.
    pub metadata: ObjectMeta,
    /// What the user says.
    pub spec: EcsBindingSpec,
}

impl Resource for EcsBinding {
    const KIND: Kind = Kind::new("hopegi.com", "v1", "EcsBinding");
}

/// Which cloud host is which node.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema, kube::CustomResource))]
#[cfg_attr(
    test,
    kube(
        group = "hopegi.com",
        version = "v1",
        kind = "EcsBinding",
        root = "Definition",
        doc = "An EcsBinding records which cloud host (ECS) is which node of the cluster.",
        plural = "ecsbinding",
        singular = "ecsbinding",
        shortname = "ecsb",
        status = "pilothouse_definitions::ConditionsOnly",
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
        printcolumn(name = "NodeName", type_ = "string", json_path = ".spec.nodename"),
        printcolumn(name = "InnerIp", type_ = "string", json_path = ".spec.innerip"),
    )
)]
pub struct EcsBindingSpec {
    /// The identity of the cloud host at its provider, for example `i-bp1a2b3c4d5e6f7g8h9i`.
    #[cfg_attr(
        test,
        schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9][-A-Za-z0-9._:/]*$"))
    )]
    pub id: String,
    /// The name of the cloud host at its provider, in any language.
    #[cfg_attr(test, schemars(length(min = 1, max = 256), regex(pattern = r"^[^\pC]+$")))]
    pub name: String,
    /// The name of the node.
    #[cfg_attr(
        test,
        schemars(
            length(min = 1, max = 253),
            regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
        )
    )]
    pub nodename: String,
    /// The address of the cloud host within its network: it should be one of the node's addresses.
    #[cfg_attr(
        test,
        schemars(
            length(min = 1, max = 45),
            extend("x-kubernetes-validations" = [
                {"rule": "isIP(self)", "message": "give an IPv4 or IPv6 address, such as 192.168.0.10"},
            ])
        )
    )]
    pub innerip: String,
}
