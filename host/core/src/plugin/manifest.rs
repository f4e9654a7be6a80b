//! Parses a plugin's manifest once into a validated type.
//!
//! The schema in wit/manifest.schema.json is generated from the types here. Checking a controller's accesses against
//! its declarations is left to [`crate::plugin::grants`].

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::configuration;
use crate::kubernetes::key::Kind;
use crate::kubernetes::path::FieldPath;
use crate::kubernetes::selector::Selector;
use crate::status::reason::{MAX_REASON_BYTES, REASON_PATTERN, is_reason};
use crate::text::printable::shorten;

/// The longest accepted manifest, CRDs included.
pub const MAX_MANIFEST_BYTES: usize = 4 * 1024 * 1024;

/// The longest version of a plugin, in characters.
const MAX_VERSION: usize = 63;

/// The highest number of controllers in one plugin.
pub const MAX_CONTROLLERS: usize = 64;

/// The highest number of kinds that one controller may touch.
pub const MAX_TOUCHED_KINDS: usize = 256;

/// The highest number of annotations of which an object must have one. The cache keeps a fact for each, and a webhook tests each.
pub const MAX_FILTER_ANNOTATIONS: usize = 64;

/// The regular expression for [`is_label`]; the length is checked separately.
const LABEL_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// The longest timeout of a webhook that an API server accepts, in seconds.
pub const MAX_ADMISSION_SECONDS: u8 = 30;

/// The highest number of match conditions of one controller. The API server accepts 64, and the host adds its own.
pub const MAX_MATCH_CONDITIONS: usize = 60;

/// What `describe` answers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// The component's name, a DNS label.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_PATTERN))]
    pub name: String,
    /// The component's version, as semver.org defines it.
    #[schemars(length(min = 1, max = MAX_VERSION))]
    pub version: String,
    /// One sentence.
    #[serde(default)]
    pub description: String,
    /// At least one; no two with the same name or the same primary kind.
    #[schemars(length(min = 1, max = MAX_CONTROLLERS))]
    pub controllers: Vec<Controller>,
    /// The CustomResourceDefinitions that the plugin brings, each one YAML or JSON document.
    #[serde(default)]
    pub crds: Vec<String>,
    /// The JSON schema of the configuration; absent when the plugin takes none.
    #[serde(default)]
    pub configuration_schema: Option<Value>,
}

/// One primary kind and what its reconcile touches.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// A DNS label, unique in the plugin.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_PATTERN))]
    pub name: String,
    /// The primary kind.
    pub kind: Kind,
    /// Whether the plugin runs where the primary kind is not served: this controller waits for the kind, and the others run.
    #[serde(default)]
    pub optional: bool,
    /// The fields of the primary that are looked at; none means metadata only.
    #[serde(default)]
    pub fields: Vec<FieldPath>,
    /// Which objects are primaries; all when absent.
    #[serde(default)]
    pub filter: Filter,
    /// The finalizer's name, for plugins that export `finalizer`; qualified by a domain, as in `example.com/finalizer`.
    #[serde(default)]
    pub finalizer: Option<String>,
    /// Whether the plugin's `defaulter` has something to fill in for this kind. If false, the host does not ask it. When
    /// absent, the host asks if the component exports `defaulter`.
    #[serde(default)]
    pub defaulter: Option<bool>,
    /// Whether the plugin's `validator` judges this kind. If false, the host does not ask it. When absent, the host asks if
    /// the component exports `validator`.
    #[serde(default)]
    pub validator: Option<bool>,
    /// When an API server asks the plugin's `defaulter` and `validator`. Without it, about every primary whose CRD the
    /// plugin brings, and about no other.
    #[serde(default)]
    pub admission: Option<Admission>,
    /// The reason that the condition `Reconciled` always has while it is False, for plugins whose users know such a
    /// reason. The message then begins with the host's reason. Without it, the condition has the host's reason.
    #[serde(default, rename = "failureReason")]
    #[schemars(length(min = 1, max = MAX_REASON_BYTES), regex(pattern = REASON_PATTERN))]
    pub failure_reason: Option<String>,
    /// Every other kind that is read or written, each once.
    #[serde(default)]
    #[schemars(length(max = MAX_TOUCHED_KINDS))]
    pub touches: Vec<Touch>,
    /// The members of `options` that its desired objects may have. A host that does not know one of them refuses the plugin
    /// when it loads it.
    #[serde(default)]
    #[schemars(schema_with = "options_schema")]
    pub options: Vec<String>,
}

/// The supported members of a desired object's `options`.
pub const OPTIONS: [&str; 6] = [REPLACE, PROPAGATION, ADOPT, YIELD, AFTER, ONCE];

/// The option of an owned object that is recreated where the desired object changes.
pub const REPLACE: &str = "replace";

/// The option of an owned object that says how the host deletes it.
pub const PROPAGATION: &str = "propagation";

/// The option of an owned object that says whether an existing object of nobody is taken over.
pub const ADOPT: &str = "adopt";

/// The option of an owned object that names the fields that are left to other managers.
pub const YIELD: &str = "yield";

/// The option of an owned object that names the objects of the answer that have to be Current before it is made or changed.
pub const AFTER: &str = "after";

/// The option of an owned object that is made once for each token, whatever becomes of it.
pub const ONCE: &str = "once";

fn options_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "array", "default": [], "items": {"type": "string", "enum": OPTIONS}})
}

/// Which objects of the primary kind are reconciled; what is given must all hold.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Filter {
    /// An annotation that must be there, with any value.
    #[serde(default)]
    pub annotation: Option<String>,
    /// Annotations of which at least one must be there, with any value; none means all objects.
    #[serde(default)]
    #[schemars(length(max = MAX_FILTER_ANNOTATIONS))]
    pub annotations: Vec<String>,
    /// A label selector that must match.
    #[serde(default)]
    pub label_selector: Option<Selector>,
}

/// When an API server asks the plugin before it stores a primary; what is given must all hold.
///
/// Never asked about are kube-system, the host's own namespace, deletions, and changes of neither spec, labels nor
/// annotations.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Admission {
    /// What becomes of a request when the plugin cannot be asked, or fails.
    pub failure_policy: FailurePolicy,
    /// How long the API server waits for the plugin.
    #[schemars(range(min = 1, max = MAX_ADMISSION_SECONDS))]
    pub timeout_seconds: u8,
    /// A label selector for the objects.
    pub object_selector: Option<Selector>,
    /// A label selector for their namespaces.
    pub namespace_selector: Option<Selector>,
    /// Conditions in CEL, as in a webhook configuration.
    #[schemars(length(max = MAX_MATCH_CONDITIONS))]
    pub match_conditions: Vec<MatchCondition>,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            failure_policy: FailurePolicy::Fail,
            timeout_seconds: 5,
            object_selector: None,
            namespace_selector: None,
            match_conditions: Vec::new(),
        }
    }
}

/// What becomes of a request when the plugin cannot be asked, or fails.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It is refused.
    Fail,
    /// It passes.
    Ignore,
}

/// A condition in CEL.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct MatchCondition {
    /// What messages call it.
    pub name: String,
    /// True where the plugin is to be asked.
    pub expression: String,
}

/// A kind that is touched, and how.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Touch {
    /// Which kind.
    pub kind: Kind,
    /// How; at least one.
    #[schemars(length(min = 1))]
    pub access: BTreeSet<Access>,
    /// The fields that are looked at; none means metadata only.
    #[serde(default)]
    pub fields: Vec<FieldPath>,
    /// Only objects that this label selector matches.
    #[serde(default)]
    pub label_selector: Option<Selector>,
    /// In which namespaces.
    #[serde(default)]
    pub scope: TouchScope,
    /// Only these namespaces; none means all. They need the scope `Any`.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Only objects of these names; none means all.
    #[serde(default)]
    pub names: Vec<String>,
    /// Whether the plugin runs where the kind is not served: it sees nothing, and what it wants of it fails alone.
    #[serde(default)]
    pub optional: bool,
}

/// In which namespaces a kind is touched.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
pub enum TouchScope {
    /// The primary's own namespace. A cluster-scoped primary has none, so each of its touches needs `Any`.
    #[default]
    Namespace,
    /// Every namespace, or those that are listed, and cluster-scoped objects.
    Any,
}

/// How a kind is touched.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// `cluster.get` and `cluster.list`.
    Read,
    /// Objects that exist because of the primary.
    Owned,
    /// Fields in somebody else's object.
    Contributed,
}

/// A CustomResourceDefinition that a plugin brings, with the members that the host needs.
#[derive(Clone, Debug)]
pub struct BroughtCrd {
    /// `plural.group`.
    pub name: String,
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The whole definition.
    pub definition: Value,
}

impl BroughtCrd {
    /// Reports whether its objects have more than one version.
    pub fn has_several_versions(&self) -> bool {
        let versions = self.definition["spec"]["versions"].as_array();
        versions.is_some_and(|versions| versions.len() > 1)
    }
}

impl Filter {
    /// Reports whether the controller reconciles an object. The closures look up its annotations and match its labels.
    pub fn selects(&self, has_annotation: impl Fn(&str) -> bool, has_labels: impl FnOnce(&Selector) -> bool) -> bool {
        let Self {
            annotation,
            annotations,
            label_selector,
        } = self;
        annotation.as_deref().is_none_or(&has_annotation)
            && (annotations.is_empty() || annotations.iter().any(|name| has_annotation(name)))
            && label_selector.as_ref().is_none_or(has_labels)
    }

    /// All annotations that it names.
    pub fn annotations(&self) -> impl Iterator<Item = &String> {
        self.annotation.iter().chain(&self.annotations)
    }

    /// The same for an object as JSON.
    pub fn selects_value(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        self.selects(
            |name| metadata["annotations"].get(name).is_some(),
            |labels| labels.matches(|key| metadata["labels"].get(key).and_then(Value::as_str)),
        )
    }
}

/// Formats the filter for messages, as in `the annotation a.b/c and labels that match app=web`.
impl std::fmt::Display for Filter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            annotation,
            annotations,
            label_selector,
        } = self;
        let annotation = annotation.iter().map(|name| format!("the annotation {name}"));
        let any = (!annotations.is_empty()).then(|| format!("one of the annotations {}", annotations.join(", ")));
        let labels = label_selector
            .iter()
            .map(|labels| format!("labels that match {labels}"));
        let parts: Vec<String> = annotation.chain(any).chain(labels).collect();
        formatter.write_str(&parts.join(" and "))
    }
}

impl Controller {
    /// Reports whether the host writes the metadata of its primaries: a finalizer, or a note of what was made once.
    pub fn is_marked(&self) -> bool {
        self.finalizer.is_some() || self.options.iter().any(|option| option == ONCE)
    }

    /// The admission settings for its primaries. Kinds without a brought CRD are reviewed only if the manifest says so.
    pub fn effective_admission(&self, brings_crd: bool) -> Option<Admission> {
        self.admission.clone().or_else(|| brings_crd.then(Admission::default))
    }
}

/// A manifest that has been checked.
#[derive(Clone, Debug)]
pub struct CheckedManifest {
    /// The manifest as parsed.
    pub manifest: Manifest,
    /// Its CRDs, parsed.
    pub crds: Vec<BroughtCrd>,
}

impl CheckedManifest {
    /// Reports whether the plugin brings the CRD of this kind.
    pub fn brings(&self, kind: &Kind) -> bool {
        self.crds
            .iter()
            .any(|crd| crd.group == kind.group && crd.kind == kind.kind)
    }
}

/// The reason why a manifest cannot be used, or not with the given configuration.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Longer than [`MAX_MANIFEST_BYTES`].
    #[error("manifest has {size} bytes, the limit is {MAX_MANIFEST_BYTES}")]
    TooLarge {
        /// Its length.
        size: usize,
    },
    /// The text is not JSON, or has an unknown member or a wrong type.
    #[error("manifest does not fit wit/manifest.schema.json: {problem}")]
    Shape {
        /// The path and the problem.
        problem: String,
    },
    /// A member has a value that cannot be used.
    #[error("manifest member {member}: {problem}")]
    Member {
        /// The member's path.
        member: String,
        /// The problem, and what would be valid.
        problem: String,
    },
    /// The plugin has no schema for a configuration, and is given one.
    #[error("the plugin {0} takes no configuration; remove the one that it is given")]
    NoConfiguration(String),
    /// The configuration does not fit its schema.
    #[error(
        "the configuration does not fit the plugin's schema: {problems}; correct spec.configuration of the Plugin, or --config"
    )]
    Configuration {
        /// Members, each with what is wrong and what would be right.
        problems: String,
    },
}

impl ManifestError {
    fn member(member: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Member {
            member: member.into(),
            problem: problem.into(),
        }
    }
}

/// Parses and checks what a plugin described that was given this configuration.
pub fn parse_configured(text: &str, configuration: Option<&Value>) -> Result<CheckedManifest, ManifestError> {
    let checked = parse(text)?;
    checked.manifest.check_configuration(configuration)?;
    Ok(checked)
}

impl Manifest {
    /// Holds a configuration against its schema; without one the plugin takes none. Returns the parts of the schema that the
    /// host cannot judge.
    pub fn check_configuration(&self, configuration: Option<&Value>) -> Result<Vec<String>, ManifestError> {
        let configuration = configuration.unwrap_or(&Value::Null);
        configuration::check(self.configuration_schema.as_ref(), &self.name, configuration)
    }
}

/// Parses and checks the answer of `describe`.
pub fn parse(text: &str) -> Result<CheckedManifest, ManifestError> {
    if text.len() > MAX_MANIFEST_BYTES {
        return Err(ManifestError::TooLarge { size: text.len() });
    }
    let manifest: Manifest = serde_json::from_str(text).map_err(|error| misfit(text, &error))?;
    check_label("name", &manifest.name)?;
    check_version(&manifest.version)?;
    if manifest.controllers.is_empty() || manifest.controllers.len() > MAX_CONTROLLERS {
        return Err(ManifestError::member(
            "controllers",
            format!("must have 1 to {MAX_CONTROLLERS} entries"),
        ));
    }
    for (index, controller) in manifest.controllers.iter().enumerate() {
        let member = format!("controllers[{index}]");
        check_controller(&member, controller)?;
        for earlier in &manifest.controllers[..index] {
            if earlier.name == controller.name {
                return Err(ManifestError::member(
                    member,
                    format!("a second controller named {}", controller.name),
                ));
            }
            if earlier.kind.same_kind(&controller.kind) {
                return Err(ManifestError::member(
                    member,
                    format!(
                        "controller {} already has {} as its primary kind",
                        earlier.name, controller.kind
                    ),
                ));
            }
        }
    }
    let crds = manifest
        .crds
        .iter()
        .enumerate()
        .map(|(index, text)| parse_crd(&format!("crds[{index}]"), text))
        .collect::<Result<Vec<_>, _>>()?;
    for (index, controller) in manifest.controllers.iter().enumerate() {
        check_scopes(&format!("controllers[{index}]"), controller, &crds)?;
    }
    Ok(CheckedManifest { manifest, crds })
}

/// Describes a mismatch by its path: the plugin's code makes the text, so its author has seen no lines or columns.
fn misfit(text: &str, error: &serde_json::Error) -> ManifestError {
    let found = serde_json::from_str::<Value>(text)
        .ok()
        .and_then(|value| serde_path_to_error::deserialize::<_, Manifest>(value).err());
    let problem = match found {
        Some(found) if found.path().iter().next().is_some() => format!("{}: {}", found.path(), found.inner()),
        Some(found) => found.into_inner().to_string(),
        // No JSON, or a member that is there twice.
        None => error.to_string(),
    };
    ManifestError::Shape { problem }
}

fn check_version(version: &str) -> Result<(), ManifestError> {
    let problem = match semver::Version::parse(version) {
        Ok(_) if version.len() <= MAX_VERSION => return Ok(()),
        Ok(_) => format!("has {} characters; at most {MAX_VERSION} are allowed", version.len()),
        Err(error) => format!("{version:?} is not a semantic version such as 1.2.3 (semver.org): {error}"),
    };
    Err(ManifestError::member("version", problem))
}

/// Refuses namespaced touches of cluster-scoped primaries, which could never be used. For a kind without a brought CRD
/// the error appears only when a call touches something.
fn check_scopes(member: &str, controller: &Controller, crds: &[BroughtCrd]) -> Result<(), ManifestError> {
    let kind = &controller.kind;
    let is_cluster_scoped = crds
        .iter()
        .any(|crd| crd.group == kind.group && crd.kind == kind.kind && crd.definition["spec"]["scope"] == "Cluster");
    let narrow = |touch: &Touch| touch.scope == TouchScope::Namespace;
    match controller.touches.iter().position(narrow) {
        Some(index) if is_cluster_scoped => Err(ManifestError::member(
            format!("{member}.touches[{index}].scope"),
            format!("must be \"Any\": {kind} is cluster-scoped, so its objects have no namespace to stay in"),
        )),
        _ => Ok(()),
    }
}

fn check_controller(member: &str, controller: &Controller) -> Result<(), ManifestError> {
    check_label(&format!("{member}.name"), &controller.name)?;
    check_kind(&format!("{member}.kind"), &controller.kind)?;
    if let Some(finalizer) = &controller.finalizer
        && !(finalizer.contains('/') && finalizer.len() <= 253)
    {
        return Err(ManifestError::member(
            format!("{member}.finalizer"),
            format!("{finalizer:?} must be qualified by a domain, as in example.com/finalizer"),
        ));
    }
    if let Some(reason) = &controller.failure_reason
        && !is_reason(reason)
    {
        return Err(ManifestError::member(
            format!("{member}.failureReason"),
            format!("{reason:?} must be a CamelCase word of at most {MAX_REASON_BYTES} bytes, as in Failure"),
        ));
    }
    if controller.filter.annotations.len() > MAX_FILTER_ANNOTATIONS {
        return Err(ManifestError::member(
            format!("{member}.filter.annotations"),
            format!("must have at most {MAX_FILTER_ANNOTATIONS} entries"),
        ));
    }
    if let Some(admission) = &controller.admission {
        check_admission(&format!("{member}.admission"), admission)?;
    }
    for (index, option) in controller.options.iter().enumerate() {
        if !OPTIONS.contains(&option.as_str()) {
            let known = OPTIONS.join(", ");
            return Err(ManifestError::member(
                format!("{member}.options[{index}]"),
                format!(
                    "this host does not know the option {:?} of desired objects, only {known}; run a host that knows it, or a \
                     version of the plugin without it",
                    shorten(option.clone(), MAX_OPTION)
                ),
            ));
        }
    }
    if controller.touches.len() > MAX_TOUCHED_KINDS {
        return Err(ManifestError::member(
            format!("{member}.touches"),
            format!("must have at most {MAX_TOUCHED_KINDS} entries"),
        ));
    }
    for (index, touch) in controller.touches.iter().enumerate() {
        let member = format!("{member}.touches[{index}]");
        check_kind(&format!("{member}.kind"), &touch.kind)?;
        if touch.access.is_empty() {
            return Err(ManifestError::member(
                format!("{member}.access"),
                "must name at least one of read, owned, contributed",
            ));
        }
        if touch.scope == TouchScope::Namespace && !touch.namespaces.is_empty() {
            return Err(ManifestError::member(
                format!("{member}.namespaces"),
                "are listed, so scope must be \"Any\"; without it a touch is limited to the primary's own namespace",
            ));
        }
        if controller.touches[..index]
            .iter()
            .any(|earlier| earlier.kind.same_kind(&touch.kind))
        {
            return Err(ManifestError::member(
                member,
                format!("a second entry for {}; put all access to a kind into one", touch.kind),
            ));
        }
    }
    Ok(())
}

fn check_admission(member: &str, admission: &Admission) -> Result<(), ManifestError> {
    if !(1..=MAX_ADMISSION_SECONDS).contains(&admission.timeout_seconds) {
        return Err(ManifestError::member(
            format!("{member}.timeoutSeconds"),
            format!("must be 1 to {MAX_ADMISSION_SECONDS}"),
        ));
    }
    if admission.match_conditions.len() > MAX_MATCH_CONDITIONS {
        return Err(ManifestError::member(
            format!("{member}.matchConditions"),
            format!("must have at most {MAX_MATCH_CONDITIONS} entries"),
        ));
    }
    Ok(())
}

fn check_kind(member: &str, kind: &Kind) -> Result<(), ManifestError> {
    if kind.version.is_empty() || kind.kind.is_empty() {
        return Err(ManifestError::member(member, "version and kind must not be empty"));
    }
    Ok(())
}

/// Reports whether a text is a DNS label (RFC 1123): 1 to 63 of a-z, 0-9 and -, not - at an end.
pub fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= 63
        && label
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Reports whether a text is a DNS subdomain (RFC 1123): labels with dots between them, 253 characters at most.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

fn check_label(member: &str, label: &str) -> Result<(), ManifestError> {
    if is_label(label) {
        Ok(())
    } else {
        Err(ManifestError::member(
            member,
            format!("{label:?} must be a DNS label: 1 to 63 of a-z, 0-9 and -, not - at an end"),
        ))
    }
}

fn parse_crd(member: &str, text: &str) -> Result<BroughtCrd, ManifestError> {
    let definition: Value =
        serde_saphyr::from_str(text).map_err(|error| ManifestError::member(member, format!("is not YAML: {error}")))?;
    let text_at = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let (Some("CustomResourceDefinition"), Some("apiextensions.k8s.io/v1")) =
        (text_at("/kind").as_deref(), text_at("/apiVersion").as_deref())
    else {
        return Err(ManifestError::member(
            member,
            "must be an apiextensions.k8s.io/v1 CustomResourceDefinition",
        ));
    };
    let need = |pointer: &str| {
        text_at(pointer).ok_or_else(|| ManifestError::member(member, format!("lacks {}", pointer.replace('/', "."))))
    };
    // They stand in the paths of requests, and in rules of RBAC, where * means everything.
    let need_subdomain = |pointer: &str| {
        let name = need(pointer)?;
        if is_subdomain(&name) {
            return Ok(name);
        }
        let path = pointer.replace('/', ".");
        let problem = format!("has the {path} {name:?}, which is not a DNS subdomain, as in example.com");
        Err(ManifestError::member(member, problem))
    };
    Ok(BroughtCrd {
        name: need_subdomain("/metadata/name")?,
        group: need_subdomain("/spec/group")?,
        kind: need("/spec/names/kind")?,
        definition: definition.clone(),
    })
}

/// The longest shown part of an option's name, in bytes.
pub(crate) const MAX_OPTION: usize = 128;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest() -> Value {
        json!({
            "name": "app-service", "version": "0.1.0",
            "controllers": [{
                "name": "app-service",
                "kind": {"group": "kosmos.io", "version": "v1", "kind": "AppService"},
                "fields": [".spec"],
                "touches": [{"kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                             "access": ["owned", "read"], "fields": [".status"]}]
            }],
            "crds": ["apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: appservices.kosmos.io\nspec:\n  group: kosmos.io\n  names:\n    kind: AppService\n"]
        })
    }

    fn problem(change: impl FnOnce(&mut Value)) -> String {
        let mut manifest = manifest();
        change(&mut manifest);
        parse(&manifest.to_string()).unwrap_err().to_string()
    }

    #[test]
    fn an_option_that_this_host_does_not_know_is_refused_by_name() {
        let with = |options: Value| {
            let mut manifest = manifest();
            manifest["controllers"][0]["options"] = options;
            parse(&manifest.to_string())
                .map(drop)
                .map_err(|error| error.to_string())
        };
        assert_eq!(with(json!([])), Ok(()));
        assert_eq!(with(json!(["replace"])), Ok(()));
        let refused = with(json!(["replace", "defer"])).unwrap_err();
        let words = "manifest member controllers[0].options[1]: this host does not know the option \"defer\" of desired objects, only \
                     replace, propagation, adopt, yield, after, once; run a host that knows it";
        assert!(refused.starts_with(words), "{refused}");
    }

    #[test]
    fn a_filter_selects_by_annotation_and_labels_and_says_so() {
        let filter = |filter: Value| serde_json::from_value::<Filter>(filter).unwrap();
        let object = json!({"metadata": {"annotations": {"on": ""}, "labels": {"app": "web"}}});
        for (given, selects) in [
            (json!({}), true),
            (json!({"annotation": "on"}), true),
            (json!({"annotation": "off"}), false),
            (json!({"labelSelector": "app=web"}), true),
            (json!({"annotation": "on", "labelSelector": "app=db"}), false),
            (json!({"annotation": "off", "labelSelector": "app"}), false),
            (json!({"annotations": []}), true),
            (json!({"annotations": ["off", "on"]}), true),
            (json!({"annotations": ["off", "never"]}), false),
            (json!({"annotation": "off", "annotations": ["on"]}), false),
            (json!({"annotations": ["on"], "labelSelector": "app=db"}), false),
        ] {
            assert_eq!(filter(given.clone()).selects_value(&object), selects, "{given}");
        }
        let both = filter(json!({"annotation": "a.b/c", "labelSelector": "app=web,!old"}));
        assert_eq!(
            both.to_string(),
            "the annotation a.b/c and labels that match app=web,!old"
        );
        assert!(!both.selects_value(&json!({"metadata": {}})));
        let any = filter(json!({"annotations": ["a.b/c", "d"], "labelSelector": "app"}));
        assert_eq!(
            any.to_string(),
            "one of the annotations a.b/c, d and labels that match app"
        );
    }

    #[test]
    fn a_manifest_is_parsed_with_its_crds() {
        let checked = parse(&manifest().to_string()).unwrap();
        assert_eq!(checked.crds[0].name, "appservices.kosmos.io");
        assert!(checked.brings(&Kind::new("kosmos.io", "v1", "AppService")));
        assert!(!checked.brings(&Kind::new("apps", "v1", "Deployment")));
    }

    #[test]
    fn a_crd_whose_names_could_not_stand_in_a_path_is_refused() {
        for (good, bad) in [
            (
                "name: appservices.kosmos.io",
                "name: ../../../api/v1/namespaces/kube-system",
            ),
            ("name: appservices.kosmos.io", "name: appservices.kosmos.io?force=true"),
            ("group: kosmos.io", "group: \"*\""),
        ] {
            let said = problem(|it| {
                let crd = it["crds"][0].as_str().unwrap().replace(good, bad);
                it["crds"] = json!([crd]);
            });
            assert!(
                said.contains("crds[0]") && said.contains("not a DNS subdomain"),
                "{said}"
            );
        }
    }

    #[test]
    fn the_reason_of_failures_is_optional() {
        let mut manifest = manifest();
        let reason = |manifest: &Value| {
            let controllers = parse(&manifest.to_string()).unwrap().manifest.controllers;
            controllers[0].failure_reason.clone()
        };
        assert_eq!(reason(&manifest), None);
        manifest["controllers"][0]["failureReason"] = json!("Failure");
        assert_eq!(reason(&manifest).as_deref(), Some("Failure"));
    }

    #[test]
    fn each_unusable_member_is_named() {
        assert!(problem(|it| it["nmae"] = json!(1)).contains("nmae"));
        assert!(problem(|it| it["name"] = json!("App")).contains("manifest member name"));
        assert!(problem(|it| it["controllers"] = json!([])).contains("controllers"));
        assert!(problem(|it| it["controllers"][0]["fields"] = json!(["spec"])).contains("spec"));
        assert!(problem(|it| it["controllers"][0]["finalizer"] = json!("mine")).contains("finalizer"));
        assert!(problem(|it| it["controllers"][0]["touches"][0]["access"] = json!([])).contains("touches[0].access"));
        let write = problem(|it| it["controllers"][0]["touches"][0]["access"] = json!(["read", "write"]));
        let expected = "controllers[0].touches[0].access[1]: unknown variant `write`, expected one of `read`, `owned`, `contributed`";
        assert!(write.ends_with(expected), "{write}");
        let unknown = problem(|it| it["controllers"][0]["touches"][0]["acces"] = json!([]));
        assert!(
            unknown.contains("controllers[0].touches[0]") && unknown.contains("`acces`"),
            "{unknown}"
        );
        let text = manifest().to_string().replacen('{', r#"{"name": "b","#, 1);
        let twice = parse(&text).unwrap_err().to_string();
        assert!(twice.contains("duplicate field `name` at line 1"), "{twice}");
        for reason in ["", "not a word", "-", "9Lives", &"x".repeat(129)] {
            let said = problem(|it| it["controllers"][0]["failureReason"] = json!(reason));
            assert!(said.contains("controllers[0].failureReason"), "{said}");
        }
        let many = json!({"annotations": vec!["a"; MAX_FILTER_ANNOTATIONS + 1]});
        let said = problem(|it| it["controllers"][0]["filter"] = many);
        assert_eq!(
            said,
            "manifest member controllers[0].filter.annotations: must have at most 64 entries"
        );
        let seconds = json!({"timeoutSeconds": 31});
        assert!(problem(|it| it["controllers"][0]["admission"] = seconds).contains("admission.timeoutSeconds"));
        let policy = json!({"failurePolicy": "Perhaps"});
        assert!(problem(|it| it["controllers"][0]["admission"] = policy).contains("Perhaps"));
        assert!(problem(|it| it["crds"] = json!([": :"])).contains("crds[0]"));
        assert!(problem(|it| it["crds"] = json!(["kind: Pod"])).contains("CustomResourceDefinition"));
        let twice = problem(|it| {
            let touch = it["controllers"][0]["touches"][0].clone();
            it["controllers"][0]["touches"].as_array_mut().unwrap().push(touch);
        });
        assert!(twice.contains("touches[1]"), "{twice}");
        let twins = problem(|it| {
            let mut twin = it["controllers"][0].clone();
            twin["name"] = json!("other");
            it["controllers"].as_array_mut().unwrap().push(twin);
        });
        assert!(twins.contains("already has"), "{twins}");
    }

    #[test]
    fn a_version_that_is_not_semantic_is_refused_by_its_text() {
        for version in ["", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "latest", "1.2.3 "] {
            let problem = problem(|it| it["version"] = json!(version));
            assert!(problem.starts_with("manifest member version: "), "{problem}");
            assert!(
                problem.contains(&format!("{version:?} is not a semantic version")),
                "{problem}"
            );
        }
        let long = format!("1.2.3-{}", "a".repeat(60));
        assert!(problem(|it| it["version"] = json!(long)).contains("66 characters"));
        for version in ["0.1.0", "1.2.3-rc.1+build.7"] {
            let mut manifest = manifest();
            manifest["version"] = json!(version);
            assert_eq!(parse(&manifest.to_string()).unwrap().manifest.version, version);
        }
    }

    #[test]
    fn touch_is_limited_to_own_namespace_by_default() {
        let touches = |checked: CheckedManifest| checked.manifest.controllers[0].touches[0].scope;
        assert_eq!(touches(parse(&manifest().to_string()).unwrap()), TouchScope::Namespace);
        let mut anywhere = manifest();
        anywhere["controllers"][0]["touches"][0]["scope"] = json!("Any");
        anywhere["controllers"][0]["touches"][0]["namespaces"] = json!(["a"]);
        assert_eq!(touches(parse(&anywhere.to_string()).unwrap()), TouchScope::Any);
        assert!(problem(|it| it["controllers"][0]["touches"][0]["scope"] = json!("Cluster")).contains("Cluster"));
        let listed = problem(|it| it["controllers"][0]["touches"][0]["namespaces"] = json!(["a"]));
        assert!(
            listed.contains("touches[0].namespaces") && listed.contains("\"Any\""),
            "{listed}"
        );
        let clusterwide = problem(|it| {
            let crd = it["crds"][0]
                .as_str()
                .unwrap()
                .replace("  group:", "  scope: Cluster\n  group:");
            it["crds"] = json!([crd]);
        });
        assert!(
            clusterwide.contains("touches[0].scope") && clusterwide.contains("cluster-scoped"),
            "{clusterwide}"
        );
    }

    #[test]
    fn a_manifest_over_the_limit_is_not_parsed() {
        let text = " ".repeat(MAX_MANIFEST_BYTES + 1);
        assert!(matches!(parse(&text), Err(ManifestError::TooLarge { .. })));
    }
}
