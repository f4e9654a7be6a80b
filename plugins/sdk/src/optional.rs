//! Optional interfaces: each is a trait that an author implements for a kind and names in [`export!`](crate::export).

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::admission::{FieldError, Review};
use crate::cluster::Cluster;
use crate::dispatch::optional::{Converting, Defaulting, Finalizing, Handlers, Validating};
use crate::object::{Kind, Resource};
use crate::outcome::{Failure, Outcome};
use crate::plugin::{Plugin, Request};

/// Cleanup before a resource of one kind is deleted. The controller's manifest names the finalizer
/// ([`ControllerManifest::finalizer`](crate::ControllerManifest::finalizer)).
///
/// ```
/// # use pilothouse_plugin::*;
/// # #[derive(serde::Deserialize)] struct Volume {}
/// # impl Resource for Volume { const KIND: Kind = Kind::new("example.com", "v1", "Volume"); }
/// # struct Volumes;
/// # impl Plugin for Volumes {
/// #     type Config = NoConfig;
/// #     type Controllers = Self;
/// #     fn manifest(_: &NoConfig) -> Manifest {
/// #         Manifest::new("volumes", "0.1.0", "").controller(
/// #             ControllerManifest::of::<Volume>("volume").finalizer("example.com/volume"),
/// #         )
/// #     }
/// # }
/// # impl Controller for Volumes {
/// #     type Config = NoConfig;
/// #     type Object = Volume;
/// #     fn reconcile(_: Request<Volume>, _: &Cluster) -> Result<Outcome, Failure> { Ok(Outcome::new()) }
/// # }
/// impl Finalizer for Volumes {
///     type Config = NoConfig;
///     type Object = Volume;
///
///     fn finalize(_: Request<Volume>, _: &Cluster) -> Result<Finalization, Failure> {
///         Ok(Finalization::Done)
///     }
/// }
///
/// pilothouse_plugin::export!(Volumes, finalizer: Volumes);
/// # fn main() {}
/// ```
pub trait Finalizer {
    /// The plugin's configuration.
    type Config;

    /// The kind, as a type with the fields that are read. It may be another type than the controller's: a resource that
    /// does not have that type's form must still be deletable.
    type Object: Resource + DeserializeOwned;

    /// Decides whether the resource may be deleted, or returns the objects that should exist until then.
    fn finalize(request: Request<Self::Object, Self::Config>, cluster: &Cluster) -> Result<Finalization, Failure>;
}

/// Answer of a [`Finalizer`].
#[derive(Debug)]
#[must_use = "a finalization does something only when it is returned"]
pub enum Finalization {
    /// The finalizer is removed once all objects that the resource owned are deleted.
    Done,
    /// Not yet: these objects should still exist.
    Pending(Outcome),
}

impl Finalization {
    /// Returns [`Done`](Self::Done) once `status`, with which the resource was read, contains the outcome's status and
    /// conditions, else [`Pending`](Self::Pending) with the outcome. So a last status is shown before the resource is
    /// deleted, which `Done` alone cannot write.
    ///
    /// The type of `finalizer` reads the status as a [`Value`], which the manifest declares: `.fields([".status"])`.
    ///
    /// ```
    /// use pilothouse_plugin::{Condition, Finalization, Outcome, json};
    ///
    /// let last = || Outcome::new().condition(Condition::not_ready("Released", "the address is free again"));
    /// let before = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Held", "message": ""}]});
    /// assert!(matches!(Finalization::done_after(last(), Some(&before)), Finalization::Pending(_)));
    /// let shown = json!({"observedGeneration": 2, "conditions": [
    ///     {"type": "Ready", "status": "False", "reason": "Released", "message": "the address is free again"},
    ///     {"type": "Reconciled", "status": "True", "reason": "Success", "message": ""},
    /// ]});
    /// assert!(matches!(Finalization::done_after(last(), Some(&shown)), Finalization::Done));
    /// ```
    pub fn done_after(outcome: Outcome, status: Option<&Value>) -> Self {
        if outcome.is_said(status) {
            Self::Done
        } else {
            Self::Pending(outcome.at_least_once_more())
        }
    }
}

/// Fills in the defaults of fields that users have left out, for one kind: at admission, and before each reconcile and
/// finalize. An object that is being deleted is finalized unchanged if this returns errors.
pub trait Defaulter {
    /// The plugin's configuration.
    type Config;

    /// The kind of the objects.
    const KIND: Kind;

    /// Completes the object, which may have any form, or returns the fields that make that impossible.
    ///
    /// A second call must change nothing, since the host may call it more than once.
    fn apply_defaults(review: Review<Value, Self::Config>, cluster: &Cluster) -> Result<Value, Vec<FieldError>>;
}

/// Validates the objects of one kind. It is not called for an object that is being deleted.
pub trait Validator {
    /// The plugin's configuration.
    type Config;

    /// The kind, as a type with the fields that are read. An object of another form is refused with the field's name.
    type Object: Resource + DeserializeOwned;

    /// Returns warnings for the user who made the change, or the reasons why it is refused, field by field.
    fn validate(review: Review<Self::Object, Self::Config>, cluster: &Cluster) -> Result<Vec<String>, Vec<FieldError>>;
}

/// Converts objects of one kind to another version of it.
pub trait Converter {
    /// The kind; its version does not matter.
    const KIND: Kind;

    /// Returns the object in the version of this `apiVersion`, or the reason why there is none.
    fn convert(object: Value, api_version: &str) -> Result<Value, String>;
}

/// A plugin that a component exports; [`export!`](crate::export) makes it one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not exported",
    note = "name it in `pilothouse_plugin::export!`, at the root of the crate"
)]
pub trait ExportedPlugin: Plugin {
    /// Returns the optional interfaces that it has, with their kinds.
    #[doc(hidden)]
    fn interfaces() -> Interfaces;
}

/// Kinds for which a plugin has the optional interfaces; none if it does not export the interface.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Interfaces {
    pub(crate) finalizer: Option<Vec<Kind>>,
    pub(crate) defaulter: Option<Vec<Kind>>,
    pub(crate) validator: Option<Vec<Kind>>,
    pub(crate) converter: Option<Vec<Kind>>,
}

impl Interfaces {
    /// Adds that the plugin exports `finalizer` for these kinds.
    #[must_use]
    pub fn finalizer(mut self, kinds: Vec<Kind>) -> Self {
        self.finalizer = Some(kinds);
        self
    }

    /// Adds that the plugin exports `defaulter` for these kinds.
    #[must_use]
    pub fn defaulter(mut self, kinds: Vec<Kind>) -> Self {
        self.defaulter = Some(kinds);
        self
    }

    /// Adds that the plugin exports `validator` for these kinds.
    #[must_use]
    pub fn validator(mut self, kinds: Vec<Kind>) -> Self {
        self.validator = Some(kinds);
        self
    }

    /// Adds that the plugin exports `converter` for these kinds.
    #[must_use]
    pub fn converter(mut self, kinds: Vec<Kind>) -> Self {
        self.converter = Some(kinds);
        self
    }
}

/// A plugin that exports `finalizer`; [`export!`](crate::export) makes it one.
pub trait HasFinalizer: ExportedPlugin {
    /// One [`Finalizer`], or a tuple of up to eight of them.
    type Finalizers: Handlers<Finalizing, Self::Config>;
}

/// A plugin that exports `defaulter`; [`export!`](crate::export) makes it one.
pub trait HasDefaulter: ExportedPlugin {
    /// One [`Defaulter`], or a tuple of up to eight of them.
    type Defaulters: Handlers<Defaulting, Self::Config>;
}

/// A plugin that exports `validator`; [`export!`](crate::export) makes it one.
pub trait HasValidator: ExportedPlugin {
    /// One [`Validator`], or a tuple of up to eight of them.
    type Validators: Handlers<Validating, Self::Config>;
}

/// A plugin that exports `converter`; [`export!`](crate::export) makes it one.
pub trait HasConverter: ExportedPlugin {
    /// One [`Converter`], or a tuple of up to eight of them.
    type Converters: Handlers<Converting, ()>;
}
