//! Values of the chart: their types, allowed values and defaults. `plugins` has those about plugins, `pods` those about
//! the image and the pods.

mod monitoring;
mod plugins;
mod pods;

use std::collections::BTreeMap;

use pilothouse_artifact::{RegistriesConfig, TrustPolicy};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use monitoring::{Dashboard, Monitoring, PrometheusRule};
pub use plugins::{GuardedResources, Plugins, Policies, ReservedMetadata, StaticPlugin, Wasi};
pub use pods::{
    DnsPolicy, Image, Labels, NamedPart, PodDisruptionBudget, PriorityClass, PullPolicy, Quantity, Resources,
};

/// A part of a Kubernetes object that the chart passes on as it is.
type Verbatim = Map<String, Value>;

/// A name of a Kubernetes object: a DNS subdomain.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// The same, or nothing.
const OPTIONAL_SUBDOMAIN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$";

/// The beginning of the names of objects, or nothing. The name of a Service begins with a letter.
const OPTIONAL_NAME: &str = r"^([a-z]([-a-z0-9]*[a-z0-9])?)?$";

/// The name of a CRD: a resource and its API group.
const CRD: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$";

/// A DNS label.
const LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// The values of the chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Values {
    /// Values that a chart shares with its dependencies. This chart reads none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global: Option<Verbatim>,
    /// A part of the names of all objects. Default: the name of the chart.
    #[schemars(regex(pattern = OPTIONAL_NAME), length(max = 48))]
    pub name_override: String,
    /// The name of all objects. Default: the name of the release.
    #[schemars(regex(pattern = OPTIONAL_NAME), length(max = 48))]
    pub fullname_override: String,
    /// The image of the host.
    pub image: Image,
    /// The number of hosts: one writes, the others are warm standbys.
    #[schemars(range(min = 0, max = 9))]
    pub replicas: u32,
    /// How replicas choose the one that writes.
    pub leader_election: LeaderElection,
    /// How the host runs.
    pub host: Host,
    /// Which plugins the host runs.
    pub plugins: Plugins,
    /// Plugins from OCI artifacts.
    pub artifacts: Artifacts,
    /// The volume for compiled plugins and artifacts.
    pub cache: Cache,
    /// The CRDs.
    pub crds: Crds,
    /// Webhooks of plugins.
    pub webhooks: Webhooks,
    /// Metrics and probes.
    pub metrics: Metrics,
    /// Alerts and a dashboard.
    pub monitoring: Monitoring,
    /// The API that `kubectl pilothouse` asks.
    pub api: Api,
    /// Who may connect to the host.
    pub network_policy: NetworkPolicy,
    /// How many replicas may be evicted at the same time.
    pub pod_disruption_budget: PodDisruptionBudget,
    /// The resources of each host.
    pub resources: Resources,
    /// Labels of nodes over which replicas are spread where that is possible.
    #[schemars(extend("uniqueItems" = true))]
    pub topology_spread: Vec<String>,
    /// The PriorityClass of the pods.
    pub priority_class: PriorityClass,
    /// Labels of the nodes that pods may run on.
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that pods tolerate.
    pub tolerations: Vec<Verbatim>,
    /// The affinity of the pods.
    pub affinity: Verbatim,
    /// Labels of all objects, beside those of the chart.
    pub common_labels: Labels,
    /// Further labels of the pods.
    pub pod_labels: Labels,
    /// Further annotations of the pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Further volumes of the pods.
    pub extra_volumes: Vec<NamedPart>,
    /// Where the host finds volumes, in the form of a container's volumeMounts.
    pub extra_volume_mounts: Vec<NamedPart>,
    /// Whether the pods use the network of their nodes, for a control plane that reaches no pods.
    pub host_network: bool,
    /// How the pods resolve names. Default: `ClusterFirst`, and with `hostNetwork` `ClusterFirstWithHostNet`.
    pub dns_policy: DnsPolicy,
    /// The ServiceAccount of the host.
    pub service_account: ServiceAccount,
    /// The rights of the host.
    pub rbac: Rbac,
    /// What users of the cluster may write.
    pub policies: Policies,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            global: None,
            name_override: String::new(),
            fullname_override: String::new(),
            image: Image::default(),
            replicas: 2,
            leader_election: LeaderElection::default(),
            host: Host::default(),
            plugins: Plugins::default(),
            artifacts: Artifacts::default(),
            cache: Cache::default(),
            crds: Crds::default(),
            webhooks: Webhooks::default(),
            metrics: Metrics::default(),
            monitoring: Monitoring::default(),
            api: Api::default(),
            network_policy: NetworkPolicy::default(),
            pod_disruption_budget: PodDisruptionBudget::default(),
            resources: Resources::default(),
            topology_spread: ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
                .map(str::to_owned)
                .to_vec(),
            priority_class: PriorityClass::default(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            affinity: Verbatim::new(),
            common_labels: Labels::default(),
            pod_labels: Labels::default(),
            pod_annotations: BTreeMap::new(),
            extra_volumes: Vec::new(),
            extra_volume_mounts: Vec::new(),
            host_network: false,
            dns_policy: DnsPolicy::default(),
            service_account: ServiceAccount::default(),
            rbac: Rbac::default(),
            policies: Policies::default(),
        }
    }
}

/// How replicas choose the one that writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether they do. Without it there is one replica, which is stopped before its successor starts.
    pub enabled: bool,
    /// Seconds after which another replica takes the Lease.
    #[schemars(range(min = 1, max = 300))]
    pub lease_duration: u32,
    /// Seconds after which the leader stops writing; less than `leaseDuration`.
    #[schemars(range(min = 1, max = 299))]
    pub renew_deadline: u32,
    /// Seconds between two attempts; at most half of `renewDeadline`.
    #[schemars(range(min = 1, max = 149))]
    pub retry_period: u32,
    /// The number of shards into which the work is divided, so that all replicas work. 0: one replica works.
    #[schemars(range(min = 0, max = 128))]
    pub shards: u8,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            enabled: true,
            lease_duration: 15,
            renew_deadline: 10,
            retry_period: 2,
            shards: 0,
        }
    }
}

/// How the host runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Host {
    /// In whose name the host writes for a plugin.
    pub identity: Identity,
    /// Reconciles at once.
    #[schemars(range(min = 1, max = 1000))]
    pub workers: u32,
    /// Seconds after which an object is reconciled though nothing has changed.
    #[schemars(range(min = 1))]
    pub resync: u32,
    /// Seconds that running reconciles have to finish when the pod is stopped.
    #[schemars(range(min = 0, max = 3600))]
    pub grace: u32,
    /// The form of log lines.
    pub log_format: LogFormat,
    /// The filter of log lines. Default: info.
    pub log: String,
    /// Further options of the host.
    pub extra_arguments: Vec<String>,
    /// Further environment variables of the host, such as `HTTPS_PROXY`.
    pub extra_env: Vec<EnvironmentVariable>,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            identity: Identity::Impersonate,
            workers: 32,
            resync: 3600,
            grace: 10,
            log_format: LogFormat::Json,
            log: String::new(),
            extra_arguments: Vec::new(),
            extra_env: Vec::new(),
        }
    }
}

/// An environment variable of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvironmentVariable {
    /// Its name.
    #[schemars(regex(pattern = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"))]
    pub name: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where its value comes from: a key of a Secret or a ConfigMap, or a field of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<Verbatim>,
}

/// In whose name the host writes for a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Identity {
    /// As the plugin's ServiceAccount.
    Impersonate,
    /// As the plugin's ServiceAccount, with tokens of it.
    Token,
    /// As itself.
    None,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// A JSON object on each line.
    Json,
    /// Text for people.
    Text,
}

/// Plugins from OCI artifacts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Artifacts {
    /// The trust policy. Default: every artifact is accepted, and reported as unsigned.
    #[schemars(schema_with = "trust")]
    pub trust: Verbatim,
    /// How registries are reached.
    #[schemars(with = "RegistriesConfig")]
    pub registries: Verbatim,
    /// Files that the two name by relative paths: contents by names.
    #[schemars(schema_with = "files")]
    pub files: BTreeMap<String, String>,
    /// The names of the Secrets that Plugins name as `spec.source.oci.pullSecret`.
    #[schemars(inner(regex(pattern = SUBDOMAIN)), extend("uniqueItems" = true))]
    pub pull_secrets: Vec<String>,
    /// The size that the cache of artifacts may reach, in MiB.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub cache_size: u32,
}

/// The trust file's schema, whose definitions become those of the chart.
fn trust(generator: &mut SchemaGenerator) -> Schema {
    let text = TrustPolicy::json_schema()
        .to_string()
        .replace("#/$defs/", "#/definitions/");
    let mut schema: Map<String, Value> = serde_json::from_str(&text).expect("a schema is an object");
    if let Some(Value::Object(definitions)) = schema.remove("$defs") {
        generator.definitions_mut().extend(definitions);
    }
    schema.retain(|name, _| !matches!(&**name, "$schema" | "title"));
    schema.into()
}

/// Contents by names of keys of a ConfigMap.
fn files(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"pattern": "^[-._a-zA-Z0-9]{1,253}$"},
        "additionalProperties": {"type": "string"},
    })
}

impl Default for Artifacts {
    fn default() -> Self {
        Self {
            trust: Verbatim::new(),
            registries: Verbatim::new(),
            files: BTreeMap::new(),
            pull_secrets: Vec::new(),
            cache_size: 1024,
        }
    }
}

/// The volume for compiled plugins and artifacts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Cache {
    /// The most that it holds, if it is an empty one of the pod.
    pub size_limit: Quantity,
    /// Another volume, without its name, that keeps the cache when a pod goes. Default: an empty one of each pod.
    #[schemars(schema_with = "unnamed")]
    pub volume: Verbatim,
    /// The name of an existing PersistentVolumeClaim to use as the volume; for several replicas one that pods of several nodes can
    /// write to.
    #[schemars(regex(pattern = OPTIONAL_SUBDOMAIN))]
    pub existing_claim: String,
}

/// A volume without its name, which the chart gives it.
fn unnamed(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "maxProperties": 1, "properties": {"name": false}})
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            size_limit: Quantity::text("2Gi"),
            volume: Verbatim::new(),
            existing_claim: String::new(),
        }
    }
}

/// The CRDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Crds {
    /// Who installs the CRD of Plugin.
    pub installed_by: CrdInstaller,
}

impl Default for Crds {
    fn default() -> Self {
        Self {
            installed_by: CrdInstaller::Chart,
        }
    }
}

/// Who installs the CRD of Plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CrdInstaller {
    /// This chart, which keeps it when it is uninstalled.
    Chart,
    /// The host. The CRDs of plugins are applied by `pilothouse install` and `upgrade`.
    Host,
    /// Somebody else.
    Nobody,
}

/// Webhooks of plugins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Webhooks {
    /// Whether the host serves them.
    pub enabled: bool,
    /// The Plugins whose webhook configurations the host may change and delete.
    #[schemars(inner(regex(pattern = SUBDOMAIN)), extend("uniqueItems" = true))]
    pub plugins: Vec<String>,
    /// The CRDs, as `PLURAL.GROUP`, in which the host may set the conversion webhook.
    #[schemars(inner(regex(pattern = CRD)), extend("uniqueItems" = true))]
    pub converted_crds: Vec<String>,
    /// Who creates the webhook configurations.
    pub configurations: ConfigurationOwner,
    /// The port of the pods.
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
    /// A ConfigMap with the CA of the client certificates that API servers present, under the key `ca.crt`.
    #[schemars(regex(pattern = OPTIONAL_SUBDOMAIN))]
    pub client_ca: String,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            enabled: false,
            plugins: Vec::new(),
            converted_crds: Vec::new(),
            configurations: ConfigurationOwner::Host,
            port: 9443,
            client_ca: String::new(),
        }
    }
}

/// Who creates the webhook configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ConfigurationOwner {
    /// The host.
    Host,
    /// Somebody who applies what `pilothouse webhooks` prints; the host writes the caBundle.
    Installer,
}

/// Metrics and probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// The port of the pods that serves them.
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
    /// A ServiceMonitor of the Prometheus Operator.
    pub service_monitor: ServiceMonitor,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            port: 8080,
            service_monitor: ServiceMonitor::default(),
        }
    }
}

/// The API that `kubectl pilothouse` asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Api {
    /// Whether it is served, to users of the cluster by their rights.
    pub enabled: bool,
    /// The port of the pods that serves it.
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
    /// Whether people with the right `record` on a Plugin may record its calls, with the values of Secrets masked.
    pub recording: bool,
}

impl Default for Api {
    fn default() -> Self {
        Self {
            enabled: true,
            port: 8443,
            recording: false,
        }
    }
}

/// A ServiceMonitor of the Prometheus Operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServiceMonitor {
    /// Whether to create it.
    pub enabled: bool,
    /// The time between two scrapes.
    #[schemars(regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    pub interval: String,
    /// Labels by which a Prometheus selects it.
    pub labels: BTreeMap<String, String>,
}

impl Default for ServiceMonitor {
    fn default() -> Self {
        Self {
            enabled: false,
            interval: "30s".to_owned(),
            labels: BTreeMap::new(),
        }
    }
}

/// Who may connect to the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetworkPolicy {
    /// Whether to create a NetworkPolicy.
    pub enabled: bool,
    /// Who may read the metrics. Default: everybody.
    pub metrics_from: Vec<Verbatim>,
    /// Who may call the webhooks: a list of peers, or `any`. Needed with `webhooks.enabled`.
    pub webhooks_from: PeersOrAny,
    /// Who may ask the API. Default: everybody.
    pub api_from: Vec<Verbatim>,
    /// Rules for what the host may reach. Default: everything.
    pub egress: Vec<Verbatim>,
}

impl Default for NetworkPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            metrics_from: Vec::new(),
            webhooks_from: PeersOrAny::Peers(Vec::new()),
            api_from: Vec::new(),
            egress: Vec::new(),
        }
    }
}

/// Peers of a NetworkPolicy, or everybody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PeersOrAny {
    /// These.
    Peers(Vec<Verbatim>),
    /// Everybody.
    Any(AnyPeer),
}

/// The word for everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AnyPeer {
    /// Whoever reaches the pods.
    Any,
}

/// The ServiceAccount of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServiceAccount {
    /// Whether to create it.
    pub create: bool,
    /// Its name. Default: the name of all objects.
    #[schemars(regex(pattern = OPTIONAL_SUBDOMAIN))]
    pub name: String,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Default for ServiceAccount {
    fn default() -> Self {
        Self {
            create: true,
            name: String::new(),
            annotations: BTreeMap::new(),
        }
    }
}

/// The rights of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Rbac {
    /// Whether to create roles and bindings.
    pub create: bool,
    /// Whether there may be a ClusterRole. Without it the chart creates no object of cluster scope, and the host runs
    /// `plugins.static` in `namespaces`.
    pub cluster_role: bool,
    /// Whether people with Kubernetes' roles view, edit and admin in all namespaces may do the same with Plugins.
    pub aggregated_roles: bool,
    /// See and act in these namespaces only, at most 32, with Roles there for events. Default: in all.
    #[schemars(inner(regex(pattern = LABEL), length(max = 63)), length(max = 32), extend("uniqueItems" = true))]
    pub namespaces: Vec<String>,
}

impl Default for Rbac {
    fn default() -> Self {
        Self {
            create: true,
            cluster_role: true,
            aggregated_roles: true,
            namespaces: Vec::new(),
        }
    }
}
