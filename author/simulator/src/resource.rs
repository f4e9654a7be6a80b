//! Description of one resource of one group version: names and subresources, storage version, conversion, and the
//! fields that its requests cannot own.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use crate::custom::CustomKind;
use crate::decode::decode;
use crate::events;
use crate::fields::Set;
use crate::schema::{Node, Schema};

/// Resources whose update may create.
const CREATED_BY_UPDATE: &[&str] = &[
    "clusterrolebindings",
    "clusterroles",
    "endpoints",
    "events",
    "leases",
    "limitranges",
    "rolebindings",
    "roles",
    "services",
];

/// Built-in resources whose update needs a resourceVersion.
const NEED_RESOURCE_VERSION: &[&str] = &[
    "csidrivers",
    "csinodes",
    "csistoragecapacities",
    "customresourcedefinitions",
    "leases",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "poddisruptionbudgets",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
    "volumeattachments",
];

/// Resources whose deletion answers with the object instead of a status.
const RETURN_DELETED: &[&str] = &[
    "csidrivers",
    "csinodes",
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "storageclasses",
    "volumeattachments",
    "volumeattributesclasses",
];

/// Key of the place where objects are stored: two versions of a kind, or two groups, may share one storage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Storage {
    pub(crate) group: String,
    pub(crate) plural: String,
}

impl Storage {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
        }
    }
}

/// A part of a resource with a path of its own.
#[derive(Debug, Clone)]
pub(crate) struct Subresource {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// Group version of the kind where it is another one, as for `Scale`.
    pub(crate) group_version: Option<(String, String)>,
    pub(crate) verbs: Vec<String>,
}

/// One resource of one group version.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) verbs: Vec<String>,
    pub(crate) subresources: Vec<Subresource>,
    pub(crate) schema: Node,
    pub(crate) storage: Storage,
    /// None for built-in kinds.
    pub(crate) custom: Option<Arc<CustomKind>>,
}

impl Resource {
    /// `apps/v1`, or `v1` for the core group.
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    pub(crate) fn schema(&self) -> &Schema {
        self.schema.get()
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    pub(crate) fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|allowed| allowed == verb)
    }

    /// Returns `true` if it has a status subresource, so that writes of the main resource leave the status alone.
    pub(crate) fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub(crate) fn is_builtin(&self, group: &str, plural: &str) -> bool {
        self.custom.is_none() && self.group == group && self.plural == plural
    }

    pub(crate) fn update_creates(&self) -> bool {
        self.custom.is_none() && CREATED_BY_UPDATE.contains(&self.plural.as_str())
    }

    pub(crate) fn update_needs_resource_version(&self) -> bool {
        self.custom.is_some() || NEED_RESOURCE_VERSION.contains(&self.plural.as_str())
    }

    pub(crate) fn returns_deleted(&self) -> bool {
        self.custom.is_none() && RETURN_DELETED.contains(&self.plural.as_str())
    }

    /// A stored object as this version shows it.
    pub(crate) fn show<'v>(&self, stored: &'v Value) -> Cow<'v, Value> {
        if let Some(custom) = &self.custom {
            // A create has dropped the status, and the definition may have other defaults than when it was stored.
            let mut shown = stored.clone();
            custom.default_stored(&mut shown);
            shown["apiVersion"] = Value::String(self.api_version());
            return Cow::Owned(shown);
        }
        if stored["apiVersion"] == self.api_version().as_str() {
            return Cow::Borrowed(stored);
        }
        let mut shown = if self.storage.plural == "events" {
            events::to_events_group(stored)
        } else {
            stored.clone()
        };
        shown["apiVersion"] = Value::String(self.api_version());
        if self.storage.plural == "events" {
            // Brings in the fields that this form always writes.
            let _ = decode(self.schema(), &mut shown);
        }
        Cow::Owned(shown)
    }

    /// Reports whether a read of a stored object fills in defaults.
    pub(crate) fn lacks_defaults(&self, stored: &Value) -> bool {
        self.custom.as_ref().is_some_and(|custom| {
            let mut shown = stored.clone();
            custom.default_stored(&mut shown);
            shown != *stored
        })
    }

    /// An object without any field, as Go makes one: structs without pointers are there from the beginning.
    pub(crate) fn nothing(&self) -> Value {
        let mut object = json!({"apiVersion": self.api_version(), "kind": self.kind, "metadata": {}});
        if self.custom.is_none() {
            // Nothing is given, so nothing can have the wrong type.
            let _ = decode(self.schema(), &mut object);
        }
        object
    }

    /// An object of this version as it is stored.
    pub(crate) fn store(&self, mut object: Value) -> Value {
        if let Some(custom) = &self.custom {
            object["apiVersion"] = Value::String(group_version(&self.group, &custom.storage_version));
        } else if self.group == "events.k8s.io" {
            object = events::to_core(&object);
        }
        object
    }

    /// Returns the object's key in etcd; some errors name it.
    pub(crate) fn storage_key(&self, key: &Key) -> String {
        let place = match (self.custom.is_some(), self.plural.as_str()) {
            (true, plural) => format!("{}/{plural}", self.group),
            (false, "services") => "services/specs".to_owned(),
            (false, "endpoints") => "services/endpoints".to_owned(),
            (false, "ingresses") => "ingress".to_owned(),
            (false, "nodes") => "minions".to_owned(),
            (false, "customresourcedefinitions") => "apiextensions.k8s.io/customresourcedefinitions".to_owned(),
            (false, plural) => plural.to_owned(),
        };
        if self.namespaced {
            format!("/registry/{place}/{}/{}", key.namespace, key.name)
        } else {
            format!("/registry/{place}/{}", key.name)
        }
    }

    /// Returns the fields that requests to this part of the resource cannot own.
    pub(crate) fn reset(&self, subresource: &str) -> &'static Set {
        static NOTHING: LazyLock<Set> = LazyLock::new(Set::default);
        static STATUS: LazyLock<Set> = LazyLock::new(|| Set::of_fields(&[&["status"]]));
        static SPEC: LazyLock<Set> = LazyLock::new(|| Set::of_fields(&[&["spec"]]));
        static SPEC_AND_LABELS: LazyLock<Set> = LazyLock::new(|| Set::of_fields(&[&["spec"], &["metadata", "labels"]]));
        static ALL_BUT_STATUS: LazyLock<Set> = LazyLock::new(|| Set::of_fields(&[&["spec"], &["metadata"]]));
        static POD_STATUS: LazyLock<Set> = LazyLock::new(|| {
            Set::of_fields(&[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ])
        });
        match subresource {
            "" | "finalize" if self.has_status() => &STATUS,
            "status" if self.custom.is_some() => &ALL_BUT_STATUS,
            "status" => match self.plural.as_str() {
                "deployments" => &SPEC_AND_LABELS,
                "pods" => &POD_STATUS,
                "servicecidrs" | "validatingadmissionpolicies" | "volumeattachments" => &ALL_BUT_STATUS,
                _ => &SPEC,
            },
            _ => &NOTHING,
        }
    }
}

/// `apps/v1`, or `v1` for the core group.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// Splits `apps/v1`; the core group is empty.
pub(crate) fn split_group_version(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or(("", text))
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn of(object: &Value) -> Self {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        Self::new(text("namespace"), text("name"))
    }
}

/// The text of a value, empty where it is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
