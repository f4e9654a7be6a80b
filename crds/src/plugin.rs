//! The `Plugin` resource (`pilothouse.dev/v1alpha1`, cluster scope): component, configuration, limits and status.

use std::collections::BTreeMap;

use pilothouse_core::Limits;
use pilothouse_core::plugin::inventory::{OwnedKind, SetFinalizer};
use pilothouse_core::plugin::wasi::Wasi;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::structural::structural_schema;

/// The API group of Pilothouse's own resources.
pub const GROUP: &str = "pilothouse.dev";

/// Version in which they are stored.
pub const VERSION: &str = "v1alpha1";

/// Annotation of a Plugin: whenever it gets another value, the host reconciles the plugin's failing objects at once.
pub const RECONCILE_FAILING: &str = "pilothouse.dev/reconcile-failing";

/// A plugin that the host is to run. The resource's name is the plugin's identity: field managers, accounts, lanes and
/// metrics hang on it, so one component may be installed twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginSpec {
    /// Where the component comes from.
    pub source: PluginSource,
    /// The plugin's configuration; its manifest has the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<BTreeMap<String, Value>>,
    /// What one call may use; each limit has a default.
    #[serde(default)]
    pub limits: Limits,
    /// Reconciles at once, over all controllers of the plugin, 1 to 1000.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1, max = 1000))]
    pub concurrency: u32,
    /// Only objects in these namespaces; none means all. The plugin reads and writes in no others, either, beside those of
    /// `accessNamespaces`.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Namespaces in which the plugin reads and writes besides, where it touches more than the namespaces of its objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_namespaces: Vec<String>,
    /// The ServiceAccount in the host's namespace as which a host with `--identity impersonate` writes for the plugin
    /// (default: pilothouse-plugin-NAME).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub service_account_name: Option<String>,
    /// What the component may import of WASI. Inert links the interfaces of WASI 0.2 and gives access to nothing: no files,
    /// no network, no environment; the same time and the same random numbers in every call.
    #[serde(default)]
    pub wasi: Wasi,
    /// Whether the plugin acts.
    #[serde(default)]
    pub mode: Mode,
    /// What becomes of the plugin's objects, and of what it contributes to others', when the Plugin goes.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Field managers of an earlier operator whose fields are taken over.
    #[serde(default)]
    pub former_managers: Vec<String>,
}

fn default_concurrency() -> u32 {
    16
}

/// Where a component comes from; exactly one is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginSource {
    /// A file below the host's plugin directory, or a directory there that has one component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// An OCI artifact in a registry, or in an OCI layout below the host's plugin directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciSource>,
    /// The digest that the component in `file` must have, `sha256:` and 64 hexadecimal digits. An artifact is pinned in
    /// `oci.reference` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
}

/// An OCI artifact, and when the host moves to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OciSource {
    /// The artifact: `HOST[:PORT]/REPOSITORY` with `@sha256:DIGEST` for Pinned, with `:TAG` for Tag, and with neither for
    /// SemVer. `oci-layout:PATH` in place of the repository names an OCI layout below the host's plugin directory.
    #[schemars(length(min = 1, max = 512))]
    pub reference: String,
    /// A Secret of type kubernetes.io/dockerconfigjson in the host's namespace with the registry's credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub pull_secret: Option<String>,
    /// When the host moves to another artifact.
    #[serde(default)]
    pub update_policy: UpdatePolicy,
    /// For SemVer: the versions that may run, such as `>=1.2.0, <2.0.0` or `^1.2`, in the notation of Cargo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub range: Option<String>,
    /// For Tag and SemVer: how often the registry is asked, such as `90s`, `10m` or `1h`; at least `10s`.
    #[serde(default = "default_interval")]
    #[schemars(regex(pattern = r"^([0-9]{1,6}(h|m|s))+$"), length(max = 32))]
    pub interval: String,
}

fn default_interval() -> String {
    "10m".to_owned()
}

/// When the host moves to another artifact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdatePolicy {
    /// Never: the reference has a digest.
    #[default]
    Pinned,
    /// When the reference's tag names another digest.
    Tag,
    /// When the repository has a newer tag within `range`, or the newest one names another digest.
    SemVer,
}

/// Whether a plugin acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// It reconciles.
    #[default]
    Active,
    /// Everything but the writes happens; what would be written is told.
    Preview,
    /// Nothing happens.
    Suspended,
}

/// What becomes of a plugin's objects, and of what it contributes to others', when the Plugin goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// Both stay as they are.
    #[default]
    Orphan,
    /// What is contributed is taken back and the objects are deleted, before the Plugin goes.
    Delete,
}

/// How a plugin fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginStatus {
    /// The generation of the spec that the host decided on last: it runs, was refused, or wants nothing to run. It is behind
    /// `metadata.generation` while a change is tried or waited for, and -1 before the first decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The generation of the spec as which the plugin runs. It is behind `observedGeneration` while a change is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_generation: Option<i64>,
    /// The digest of the component that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The version that its manifest names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The artifact that runs, if the component comes from one. A host that restarts begins with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<ArtifactStatus>,
    /// The last 10 versions that have run, the latest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// The CRDs that the version brings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crds: Vec<String>,
    /// Primaries that it reconciles.
    pub objects: u64,
    /// Primaries whose last reconcile failed.
    pub failing: u64,
    /// Its controllers.
    pub controllers: Vec<ControllerStatus>,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// Objects that the plugin applied for primaries outside of `spec.namespaces`. They stay as they are, and the plugin
    /// does not write them any more; with `deletionPolicy: Delete` they are being deleted.
    #[serde(skip_serializing_if = "is_zero")]
    pub unselected_objects: u64,
    /// Primaries that are paused by the annotation `pilothouse.dev/paused`.
    #[serde(skip_serializing_if = "is_zero")]
    pub paused_objects: u64,
    /// Primaries that have not answered since the plugin began to run, or since they were paused. What it contributes and nobody
    /// claims stays until all have.
    #[serde(skip_serializing_if = "is_zero")]
    pub unanswered: u64,
    /// The first 20 of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waited_for: Vec<WaitedPrimary>,
    /// The kinds that its version owns, and those of earlier ones of which objects may be left: these go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owned_kinds: Vec<OwnedKind>,
    /// The kinds to whose objects its version contributes, and those of earlier ones where something of theirs may be
    /// left: it is given up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contributed_kinds: Vec<OwnedKind>,
    /// The finalizers that its versions have set on primaries. Those that its version no longer sets are taken off where the host
    /// has set them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<SetFinalizer>,
    /// What keeps the plugin from working in full, and what to do about it: a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// In mode Preview: what would be written for some primaries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub previews: Vec<PreviewedPrimary>,
    /// Fetched, Verified (of artifacts only), Compiled, Established (all its kinds are served and synced), Ready, and Granted
    /// (the plugin's account has the rights that it needs) where the plugin has an account of its own. Reconciling while the
    /// wanted version is tried or waited for, Stalled while it is refused, and UpToDate for a source that is followed.
    pub conditions: Vec<PluginCondition>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A version that runs, or has run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The digest of its component.
    pub digest: String,
    /// The version that its manifest names.
    pub version: String,
    /// The artifact that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<HistoryArtifact>,
    /// The file of the host's plugin directory that it came from, as `spec.source.file` named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// When it began to run, RFC 3339.
    pub since: String,
    /// When another version took over, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Why it began to run: Installed, Changed (the spec), Followed (its tag, its range or its file), or RolledBack (it had run
    /// before).
    pub reason: String,
}

/// The artifact of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryArtifact {
    /// `spec.source.oci.reference` as it was when the artifact was chosen.
    pub reference: String,
    /// The digest of the artifact's manifest.
    pub digest: String,
}

/// The artifact that a component comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactStatus {
    /// `spec.source.oci.reference` as it was when the artifact was chosen.
    pub reference: String,
    /// The tag that was chosen, unless the reference pins a digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The digest of the artifact's manifest: what signatures are about, and what `reference@digest` pins.
    pub digest: String,
    /// The size of the component, in bytes.
    pub size: u64,
    /// Who signed it: the name of a key, or the issuer and the subject of a certificate. None: no signature
    /// was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
}

/// A primary that has yet to say what it wants of other people's objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitedPrimary {
    /// The controller that reconciles it.
    pub controller: String,
    /// Which object, as `namespace/name`.
    pub object: String,
}

/// How one controller fares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// Its name in the manifest.
    pub name: String,
    /// Primaries that it reconciles.
    pub objects: u64,
    /// Primaries that wait for their turn.
    pub queued: u64,
    /// Primaries whose last reconcile failed.
    pub failing: u64,
}

/// What would be written for one primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewedPrimary {
    /// The controller that reconciles it.
    pub controller: String,
    /// Which object, as `namespace/name`.
    pub object: String,
    /// What would be done, a line for each object; values of Secrets are masked.
    pub changes: Vec<String>,
}

/// A failure, and whose matter it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    /// `guest`, `user`, `cluster` or `host`.
    pub blame: String,
    /// Which object, as `namespace/name`; none when the failure is not about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// What failed, why, and what to do.
    pub message: String,
    /// When it was first seen, RFC 3339.
    pub time: String,
}

/// A condition, as metav1.Condition has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginCondition {
    /// The condition's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When the status changed last, RFC 3339.
    pub last_transition_time: String,
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Returns the CustomResourceDefinition of `Plugin`.
pub fn plugin_definition() -> Value {
    let mut spec = structural_schema::<PluginSpec>();
    spec["properties"]["source"]["x-kubernetes-validations"] = json!([
        {"rule": "has(self.file) != has(self.oci)", "message": "give either file or oci"},
        {
            "rule": "!has(self.oci) || !has(self.digest)",
            "message": "digest goes with file; pin an artifact with @sha256:... in oci.reference",
        },
    ]);
    spec["properties"]["source"]["properties"]["oci"]["x-kubernetes-validations"] = json!([
        {
            "rule": "(self.updatePolicy == 'Pinned') == self.reference.contains('@')",
            "message": "a reference with a digest goes with updatePolicy Pinned, and any other with Tag or SemVer",
        },
        {
            "rule": "(self.updatePolicy == 'SemVer') == has(self.range)",
            "message": "updatePolicy SemVer needs range, and range goes with no other policy",
        },
    ]);
    spec["properties"]["configuration"] = json!({
        "description": "The plugin's configuration; its manifest has the schema.",
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
    });
    for set in ["namespaces", "accessNamespaces", "formerManagers"] {
        spec["properties"][set]["x-kubernetes-list-type"] = json!("set");
    }
    let mut status = structural_schema::<PluginStatus>();
    for (list, key) in [("conditions", "type"), ("controllers", "name")] {
        status["properties"][list]["x-kubernetes-list-type"] = json!("map");
        status["properties"][list]["x-kubernetes-list-map-keys"] = json!([key]);
    }
    // kstatus takes a Plugin that no host has seen for InProgress.
    status["default"] = json!({"observedGeneration": -1});
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    let wide = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path, "priority": 1});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("plugins.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"kind": "Plugin", "listKind": "PluginList", "plural": "plugins", "singular": "plugin",
                "categories": ["pilothouse"]},
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
                    column("Reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason"),
                    column("Mode", "string", ".spec.mode"),
                    column("Version", "string", ".status.version"),
                    column("Objects", "integer", ".status.objects"),
                    column("Failing", "integer", ".status.failing"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                    wide("Message", ".status.conditions[?(@.type==\"Ready\")].message"),
                    wide("Digest", ".status.digest"),
                    wide("Artifact", ".status.artifact.digest"),
                ],
                "schema": {"openAPIV3Schema": {
                    "description": "A plugin that the host is to run. Its name is the plugin's identity.",
                    "type": "object",
                    "required": ["spec"],
                    "properties": {"spec": spec, "status": status},
                }},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn everything_but_the_source_has_a_default() {
        let spec: PluginSpec = serde_json::from_value(json!({"source": {"file": "app-service.wasm"}})).unwrap();
        assert_eq!(spec.limits, Limits::default());
        assert_eq!(
            (spec.mode, spec.deletion_policy, spec.concurrency),
            (Mode::Active, DeletionPolicy::Orphan, 16)
        );
    }

    #[test]
    fn an_artifact_is_pinned_unless_it_says_otherwise() {
        let spec = json!({"source": {"oci": {"reference": "example.com/a@sha256:0"}}});
        let spec: PluginSpec = serde_json::from_value(spec).unwrap();
        let oci = spec.source.oci.unwrap();
        assert_eq!((oci.update_policy, &*oci.interval), (UpdatePolicy::Pinned, "10m"));
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let error = serde_json::from_value::<PluginSpec>(json!({"source": {"file": "a"}, "limts": {}})).unwrap_err();
        assert!(error.to_string().contains("limts"), "{error}");
    }

    #[test]
    fn the_definition_says_the_defaults_and_which_lists_are_maps() {
        let definition = plugin_definition();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(schema["properties"]["spec"]["properties"]["mode"]["default"], "Active");
        assert_eq!(
            schema["properties"]["spec"]["properties"]["limits"]["default"]["callMilliseconds"],
            100
        );
        assert_eq!(
            schema["properties"]["status"]["default"],
            json!({"observedGeneration": -1})
        );
        assert_eq!(
            schema["properties"]["status"]["properties"]["conditions"]["x-kubernetes-list-map-keys"],
            json!(["type"])
        );
        assert!(
            !definition.to_string().contains("$ref")
                && !definition.to_string().contains("additionalProperties\":false")
        );
    }

    /// `UPDATE=1` writes the file instead.
    #[test]
    fn generated_crd_is_what_the_types_give() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("yaml")
            .join("plugins.pilothouse.dev.yaml");
        let generated = format!(
            "# Generated by `cargo xtask generate` from crds/src/plugin.rs.\n{}",
            serde_saphyr::to_string(&plugin_definition()).unwrap()
        );
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &generated).unwrap();
        }
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            found == generated,
            "{} is stale; `cargo xtask generate` writes it anew",
            file.display()
        );
    }
}
