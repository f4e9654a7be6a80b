//! Values about the image, and about each pod's resources and disruption.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{OPTIONAL_SUBDOMAIN, SUBDOMAIN};

/// A repository of images, or nothing; without a scheme, a tag and a digest, which are values of their own.
const REPOSITORY: &str = r"^([A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+|[a-z0-9]+([._-]+[a-z0-9]+)*)?$";

/// The name of a label or an annotation.
const QUALIFIED_NAME: &str = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$";

/// The value of a label.
const LABEL_VALUE: &str = r"^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$";

/// Labels of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<String, String>);

impl JsonSchema for Labels {
    fn schema_name() -> Cow<'static, str> {
        "Labels".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "propertyNames": {"pattern": QUALIFIED_NAME},
            "additionalProperties": {"type": "string", "pattern": LABEL_VALUE},
        })
    }
}

/// A part of a pod that has a name, and is passed on as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedPart {
    /// The name of the volume.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// What Kubernetes defines.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// How pods resolve names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DnsPolicy {
    /// As the network of the pods needs it.
    #[default]
    #[serde(rename = "")]
    Automatic,
    /// With the cluster's DNS.
    ClusterFirst,
    /// With the cluster's DNS, in the network of the node.
    ClusterFirstWithHostNet,
    /// As the node does.
    Default,
}

/// The image of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Image {
    /// The registry and the repository. The chart renders nothing without them.
    #[schemars(regex(pattern = REPOSITORY))]
    pub repository: String,
    /// The tag. Default: the version of the chart.
    #[schemars(regex(pattern = r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$"))]
    pub tag: String,
    /// The digest that pins the image.
    #[schemars(regex(pattern = r"^(sha256:[0-9a-f]{64})?$"))]
    pub digest: String,
    /// When the kubelet pulls the image.
    pub pull_policy: PullPolicy,
    /// Names of Secrets with credentials for the image's registry.
    #[schemars(inner(regex(pattern = SUBDOMAIN)), extend("uniqueItems" = true))]
    pub pull_secrets: Vec<String>,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            repository: String::new(),
            tag: String::new(),
            digest: String::new(),
            pull_policy: PullPolicy::IfNotPresent,
            pull_secrets: Vec::new(),
        }
    }
}

/// When the kubelet pulls the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are those of Kubernetes")]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// An amount as Kubernetes writes it: a number, or a number with a unit such as 50m or 128Mi.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Quantity {
    /// A whole number.
    Number(u64),
    /// A number with or without a unit.
    Text(#[schemars(regex(pattern = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"))] String),
}

impl Quantity {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// How many replicas may be evicted at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PodDisruptionBudget {
    /// Whether to create a PodDisruptionBudget.
    pub enabled: bool,
    /// The number of replicas.
    pub max_unavailable: u32,
}

impl Default for PodDisruptionBudget {
    fn default() -> Self {
        Self {
            enabled: true,
            max_unavailable: 1,
        }
    }
}

/// The resources of each host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Resources {
    /// What is reserved.
    pub requests: BTreeMap<String, Quantity>,
    /// What may be used at most.
    pub limits: BTreeMap<String, Quantity>,
}

impl Default for Resources {
    fn default() -> Self {
        let amounts = |amounts: &[(&str, &str)]| {
            let amounts = amounts.iter();
            amounts
                .map(|(name, amount)| ((*name).to_owned(), Quantity::text(amount)))
                .collect()
        };
        Self {
            requests: amounts(&[("cpu", "50m"), ("memory", "128Mi")]),
            limits: amounts(&[("memory", "1Gi")]),
        }
    }
}

/// The PriorityClass of the pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PriorityClass {
    /// Its name. Default: none.
    #[schemars(regex(pattern = OPTIONAL_SUBDOMAIN))]
    pub name: String,
    /// Whether to create it.
    pub create: bool,
    /// Its value, if it is created.
    #[schemars(range(min = -2_147_483_648, max = 1_000_000_000))]
    pub value: i32,
}

impl Default for PriorityClass {
    fn default() -> Self {
        Self {
            name: String::new(),
            create: false,
            value: 1_000_000,
        }
    }
}
