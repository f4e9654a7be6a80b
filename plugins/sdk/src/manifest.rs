//! Builders of the manifest: a plugin's name, controllers and rights, as the JSON of the contract.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::admission_manifest::Admission;
use crate::declare;
use crate::object::{Kind, Resource};

/// Description of a plugin: its name and version, its controllers, and the CRDs that it brings.
///
/// ```
/// use pilothouse_plugin::{ControllerManifest, Kind, Manifest, Resource};
///
/// # struct AppService;
/// # impl Resource for AppService { const KIND: Kind = Kind::new("kosmos.io", "v1", "AppService"); }
/// # struct Deployment;
/// # impl Resource for Deployment { const KIND: Kind = Kind::new("apps", "v1", "Deployment"); }
/// let manifest = Manifest::new("app-service", "0.1.0", "A Deployment and a Service for each AppService.").controller(
///     ControllerManifest::of::<AppService>("app-service")
///         .owns_with::<Deployment>(|touch| touch.read([".status"])),
/// );
/// # drop(manifest);
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Manifest {
    name: String,
    version: String,
    description: String,
    pub(crate) controllers: Vec<ControllerManifest>,
    /// Kinds whose controllers the configuration switches off. The host does not see them.
    #[serde(skip)]
    pub(crate) switched_off: Vec<Kind>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) crds: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration_schema: Option<Box<RawValue>>,
}

impl Manifest {
    /// Returns a manifest with the plugin's name (a DNS label), its version and one sentence about it. The first two
    /// are the crate's own: `env!("CARGO_PKG_NAME")` and `env!("CARGO_PKG_VERSION")`.
    pub fn new(name: impl Into<String>, version: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            description: description.into(),
            controllers: Vec::new(),
            switched_off: Vec::new(),
            crds: Vec::new(),
            configuration_schema: None,
        }
    }

    /// Adds one controller.
    pub fn controller(mut self, controller: ControllerManifest) -> Self {
        self.controllers.push(controller);
        self
    }

    /// Adds one controller that the configuration can switch off:
    ///
    /// ```
    /// # use pilothouse_plugin::{ControllerManifest, Kind, Manifest, Resource};
    /// # struct HttpProxy;
    /// # struct TcpProxy;
    /// # impl Resource for HttpProxy { const KIND: Kind = Kind::new("example.com", "v1", "HttpProxy"); }
    /// # impl Resource for TcpProxy { const KIND: Kind = Kind::new("example.com", "v1", "TcpProxy"); }
    /// struct Settings {
    ///     tcp: bool,
    /// }
    ///
    /// fn manifest(settings: &Settings) -> Manifest {
    ///     Manifest::new("proxies", "0.1.0", "A Deployment for each proxy.")
    ///         .controller(ControllerManifest::of::<HttpProxy>("http"))
    ///         .controller_if(settings.tcp, ControllerManifest::of::<TcpProxy>("tcp"))
    /// }
    /// # drop(manifest(&Settings { tcp: false }));
    /// ```
    ///
    /// Each controller of [`Plugin::Controllers`](crate::Plugin::Controllers) has to be in the manifest or switched off in
    /// this way. If a configuration switches off a controller that ran before, the host prunes what the controller owned
    /// and releases its resources from its finalizer, as after any new version that no longer has the controller.
    pub fn controller_if(mut self, is_enabled: bool, controller: ControllerManifest) -> Self {
        if is_enabled {
            self.controllers.push(controller);
        } else {
            self.switched_off.push(controller.kind);
        }
        self
    }

    /// Adds the YAML of one CustomResourceDefinition that the plugin brings, usually by `include_str!`.
    pub fn crd(mut self, yaml: impl Into<String>) -> Self {
        self.crds.push(yaml.into());
        self
    }

    /// Sets the JSON schema of the configuration, usually by `include_str!`. Without it, none is accepted.
    ///
    /// # Panics
    ///
    /// If the text is not JSON.
    pub fn configuration_schema(mut self, json: impl ToString) -> Self {
        let schema = RawValue::from_string(json.to_string());
        self.configuration_schema = Some(schema.expect("the schema of the configuration is JSON"));
        self
    }
}

/// A kind that a plugin reconciles, and the kinds that its controller reads or writes.
#[derive(Clone, Debug, Serialize)]
#[must_use]
pub struct ControllerManifest {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    optional: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fields: Vec<String>,
    #[serde(skip_serializing_if = "Filter::is_empty")]
    pub(crate) filter: Filter,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finalizer: Option<String>,
    /// Set to true if a [`Defaulter`](crate::Defaulter) is for the kind, once the plugin exports one for any kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) defaulter: Option<bool>,
    /// Set to true if a [`Validator`](crate::Validator) is for the kind, in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) validator: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) admission: Option<Admission>,
    #[serde(rename = "failureReason", skip_serializing_if = "Option::is_none")]
    failure_reason: Option<String>,
    pub(crate) touches: Vec<Touch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    options: Vec<String>,
}

impl ControllerManifest {
    /// Returns a controller with its name (a DNS label, unique in the plugin) and the kind that it reconciles.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
            optional: false,
            fields: Vec::new(),
            filter: Filter::default(),
            finalizer: None,
            defaulter: None,
            validator: None,
            admission: None,
            failure_reason: None,
            touches: Vec::new(),
            options: Vec::new(),
        }
    }

    /// Returns a controller like [`new`](Self::new), for the kind of a type and the fields that the type reads.
    ///
    /// The status is not among them, even if the type has a member for it: a plugin seldom reads its own status. One
    /// that stores state there adds the field: `.fields([".status.lastRun"])`.
    pub fn of<T: Resource>(name: impl Into<String>) -> Self {
        let mut fields = T::fields();
        fields.retain(|path| !declare::is_of_status(path));
        Self::new(name, T::KIND).fields(fields)
    }

    /// Adds fields of the resource that are read, such as `.spec.ports[].port`; `.` is all. Metadata is included.
    pub fn fields(mut self, fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.fields.extend(fields.into_iter().map(Into::into));
        self
    }

    /// Selects only resources with this annotation, whatever its value.
    pub fn with_annotation(mut self, name: impl Into<String>) -> Self {
        self.filter.annotation = Some(name.into());
        self
    }

    /// Selects only resources with at least one of these annotations, whatever its value. Each call adds to the set.
    pub fn with_any_annotation(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.filter.annotations.extend(names.into_iter().map(Into::into));
        self
    }

    /// Lets the plugin run where the cluster does not serve the kind. The controller begins once the kind is served, and
    /// stops when it is no longer; nothing is deleted for that.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Selects only resources that this label selector matches, for example `a=b,c in (d,e)`.
    pub fn with_labels(mut self, selector: impl Into<String>) -> Self {
        self.filter.label_selector = Some(selector.into());
        self
    }

    /// Sets the name of the finalizer that keeps a resource until its `finalize` is done.
    pub fn finalizer(mut self, name: impl Into<String>) -> Self {
        self.finalizer = Some(name.into());
        self
    }

    /// Sets when an API server calls the plugin's defaulter and validator before it stores a resource. By default, it
    /// calls them for every resource whose CRD the plugin brings, as with [`Admission::new`], and for no other.
    pub fn admission(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Sets a fixed reason of the condition `Reconciled` while it is False, for operators whose users depend on such a
    /// reason. The message then begins with the host's reason, as in `GuestTrap: ...`, unless that is `Failure`.
    /// Without a fixed reason the condition has the host's reason, one of those in docs/conditions.md.
    pub fn failure_reason(mut self, reason: impl Into<String>) -> Self {
        self.failure_reason = Some(reason.into());
        self
    }

    /// Adds options that objects of the outcome may have, beside the flags of the contract: `replace`, `propagation`,
    /// `adopt`, `yield`, `after` and `once` of [`Lifecycle`](crate::Lifecycle). A host that does not support one of them refuses the plugin
    /// when it loads it.
    pub fn options(mut self, options: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// Adds one kind that is read, owned or contributed to. For a kind with a type, [`owns`](Self::owns),
    /// [`reads`](Self::reads) and [`contributes`](Self::contributes) are shorter; do not use both for one kind.
    pub fn touches(mut self, touch: Touch) -> Self {
        self.touches.push(touch);
        self
    }
}

/// Filter of a controller's resources. All given conditions must hold.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Filter {
    #[serde(skip_serializing_if = "Option::is_none")]
    annotation: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_selector: Option<String>,
}

impl Filter {
    pub(crate) fn is_empty(&self) -> bool {
        self.annotation.is_none() && self.annotations.is_empty() && self.label_selector.is_none()
    }
}

/// A kind that a controller reads or writes, with the manner of access.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Touch {
    pub(crate) kind: Kind,
    pub(crate) access: Vec<Access>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fields: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_selector: Option<String>,
    #[serde(skip_serializing_if = "Scope::is_default")]
    scope: Scope,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    namespaces: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    optional: bool,
}

/// Manner of access to a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Access {
    Read,
    Owned,
    Contributed,
}

/// Namespaces of a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Scope {
    Namespace,
    Any,
}

impl Scope {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::Namespace
    }
}

impl Touch {
    /// Returns a kind in the resource's own namespace. One of the methods below has to set the manner of access.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            access: Vec::new(),
            fields: Vec::new(),
            label_selector: None,
            scope: Scope::Namespace,
            namespaces: Vec::new(),
            names: Vec::new(),
            optional: false,
        }
    }

    /// Returns a kind like [`new`](Self::new), from a type.
    pub fn of<T: Resource>() -> Self {
        Self::new(T::KIND)
    }

    /// Declares that objects of this kind are created for a resource, and belong to it.
    pub fn owned(self) -> Self {
        self.access(Access::Owned)
    }

    /// Declares that fields are contributed to objects of this kind that belong to another owner.
    pub fn contributed(self) -> Self {
        self.access(Access::Contributed)
    }

    /// Declares that objects of this kind are read: metadata and these fields (see [`ControllerManifest::fields`]).
    pub fn read(mut self, fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.fields.extend(fields.into_iter().map(Into::into));
        self.access(Access::Read)
    }

    /// Allows only objects that this label selector matches.
    pub fn with_labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = Some(selector.into());
        self
    }

    /// Allows objects in every namespace and cluster-scoped objects, such as Nodes. Without it, and without
    /// [`in_namespaces`](Self::in_namespaces), only objects in the resource's own namespace are allowed.
    pub fn anywhere(mut self) -> Self {
        self.scope = Scope::Any;
        self
    }

    /// Allows only objects in these namespaces, whatever namespace the resource is in.
    pub fn in_namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.namespaces.extend(namespaces.into_iter().map(Into::into));
        if !self.namespaces.is_empty() {
            self.scope = Scope::Any;
        }
        self
    }

    /// Allows only objects with these names.
    pub fn named(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Allows a cluster that does not serve this kind. While it does not, the plugin runs, and reads find no object.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Reports whether objects outside of the resource's own namespace are allowed.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn is_anywhere(&self) -> bool {
        self.scope == Scope::Any
    }

    fn access(mut self, access: Access) -> Self {
        if !self.access.contains(&access) {
            self.access.push(access);
        }
        self
    }
}
