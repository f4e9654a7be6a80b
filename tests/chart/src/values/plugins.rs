//! Values about plugins: the plugins that the host runs, and the policies that guard them.

use pilothouse_core::plugin::limits::Limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{LABEL, OPTIONAL_SUBDOMAIN, Verbatim, unnamed};

/// A path below the volume with components, or nothing.
const OPTIONAL_FILE: &str = r"^([A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*)?$";

/// A reference to an OCI artifact in a registry, or nothing.
const OPTIONAL_ARTIFACT: &str = r"^(oci://[^\s,]+)?$";

/// Which plugins the host runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Plugins {
    /// Only the Plugins with these labels. Default: all.
    #[schemars(schema_with = "selector")]
    pub selector: String,
    /// The volume with the components of `spec.source.file` and of `static[].file`, without its name. Default: an empty one.
    #[schemars(schema_with = "unnamed")]
    pub volume: Verbatim,
    /// Plugins that the host runs in place of Plugin resources. Default: none; it runs the Plugin resources of the cluster.
    #[serde(rename = "static")]
    pub fixed: Vec<StaticPlugin>,
    /// The name of a Secret of the type `kubernetes.io/dockerconfigjson` with the credentials for `static[].artifact`.
    #[schemars(regex(pattern = OPTIONAL_SUBDOMAIN))]
    pub pull_secret: String,
}

/// A plugin that the host runs without a Plugin resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StaticPlugin {
    /// Its name.
    #[schemars(regex(pattern = LABEL), length(max = 63))]
    pub name: String,
    /// The component's file in `plugins.volume`. Each plugin has either a file or an artifact.
    #[serde(default)]
    #[schemars(regex(pattern = OPTIONAL_FILE))]
    pub file: String,
    /// The component's OCI artifact: `oci://HOST/REPOSITORY:TAG`, or with `@sha256:DIGEST`.
    #[serde(default)]
    #[schemars(regex(pattern = OPTIONAL_ARTIFACT))]
    pub artifact: String,
    /// Its configuration.
    #[serde(default)]
    pub configuration: Verbatim,
    /// Its limits, where they differ from the defaults.
    #[serde(default)]
    #[schemars(with = "Limits")]
    pub limits: Verbatim,
    /// What it may import of WASI.
    #[serde(default)]
    pub wasi: Wasi,
    /// What the host may do for it, as rules of a Role, which `pilothouse rights` prints: in each of `rbac.namespaces`, or in all
    /// namespaces if there are none. Default: nothing is granted here.
    #[serde(default)]
    #[schemars(with = "Vec<Rule>")]
    pub rules: Vec<Verbatim>,
}

/// A rule of a Role.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "for its schema")]
struct Rule {
    #[schemars(length(min = 1))]
    api_groups: Vec<String>,
    #[schemars(length(min = 1))]
    resources: Vec<String>,
    #[schemars(default)]
    resource_names: Vec<String>,
    #[schemars(length(min = 1))]
    verbs: Vec<String>,
}

/// A label selector in the notation of kubectl, as the host parses it, or nothing.
fn selector(_: &mut SchemaGenerator) -> Schema {
    const KEY: &str = r"([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?";
    const VALUE: &str = r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?";
    let requirement =
        format!(r"\s*(!\s*{KEY}|{KEY}(\s*(=|==|!=)\s*{VALUE}|\s+(in|notin)\s*\(\s*{VALUE}(\s*,\s*{VALUE})*\s*\))?)\s*");
    json_schema!({"type": "string", "maxLength": 4096, "pattern": format!(r"^(\s*|{requirement}(,{requirement})*)$")})
}

/// What a plugin may import of WASI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Wasi {
    /// Nothing.
    #[default]
    None,
    /// The interfaces of WASI 0.2, which give access to nothing.
    Inert,
}

/// ValidatingAdmissionPolicies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policies {
    /// Whether only users who may impersonate the ServiceAccount of a Plugin may create or change it. Without an effect where the
    /// host acts as no such account: with `host.identity: none`, and with `plugins.static`.
    pub plugins: bool,
    /// Whether `helm uninstall` is refused while there are Plugins that this host runs: nobody else removes their finalizers.
    pub uninstall: bool,
    /// Whether only Pilothouse may write the metadata by which it knows whose an object is.
    pub reserved_metadata: ReservedMetadata,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            plugins: true,
            uninstall: true,
            reserved_metadata: ReservedMetadata::default(),
        }
    }
}

/// The policy that reserves labels and field managers of Pilothouse.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReservedMetadata {
    /// Whether to install it.
    pub enabled: bool,
    /// The resources that the plugins own, which it concerns.
    pub resources: Vec<GuardedResources>,
    /// The namespaces of other releases, whose hosts write this metadata, too.
    #[schemars(inner(regex(pattern = LABEL), length(max = 63)), length(max = 32), extend("uniqueItems" = true))]
    pub other_hosts: Vec<String>,
}

/// Resources of an API group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuardedResources {
    /// The groups; `""` is the core group.
    #[schemars(length(min = 1))]
    pub api_groups: Vec<String>,
    /// The resources and subresources, such as `deployments` and `deployments/status`.
    #[schemars(length(min = 1), inner(regex(pattern = r"^[a-z0-9.-]+(/[a-z0-9.-]+)?$")))]
    pub resources: Vec<String>,
}
