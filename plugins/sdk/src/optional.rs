//! Owns what authors write beside controllers: the optional interfaces, each a trait that is implemented for one kind and
//! named in [`export!`](crate::export).

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::admission::{FieldError, Review};
use crate::cluster::Cluster;
use crate::dispatch::optional::{Converting, Defaulting, Finalizing, Handlers, Validating};
use crate::object::{Kind, Resource};
use crate::outcome::{Failure, Outcome};
use crate::plugin::{Plugin, Request};

/// What is to be done before a resource of one kind goes. The controller's manifest names the finalizer
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

    /// The kind, as a type that lists the fields that are looked at. It may be another type than the controller's: what
    /// has the wrong form for that should still be able to go.
    type Object: Resource + DeserializeOwned;

    /// Whether the resource may go, or what should still exist until it may.
    fn finalize(request: Request<Self::Object, Self::Config>, cluster: &Cluster) -> Result<Finalization, Failure>;
}

/// Whether a resource may go.
#[derive(Debug)]
#[must_use = "a finalization does something only when it is returned"]
pub enum Finalization {
    /// It is released once everything that it owned is gone.
    Done,
    /// Not yet: this is what should still exist.
    Pending(Outcome),
}

impl Finalization {
    /// Lets the resource go once its status says the last words: [`Done`](Self::Done) has none. Pending with the outcome until `status`,
    /// which is the status that the resource was read with, has what the outcome says of status and conditions.
    ///
    /// The type behind `finalizer:` reads the status as a [`Value`], and the manifest shows it: `.fields([".status"])`.
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

/// Fills in what users have left out, for one kind: at admission, and before each reconcile and finalize. What it refuses of an
/// object that is being deleted is finalized as it is.
pub trait Defaulter {
    /// The plugin's configuration.
    type Config;

    /// The kind whose objects are completed.
    const KIND: Kind;

    /// Completes the object, which may have any form, or says which fields make that impossible.
    ///
    /// The same again must change nothing, since the host may ask more than once.
    fn apply_defaults(review: Review<Value, Self::Config>, cluster: &Cluster) -> Result<Value, Vec<FieldError>>;
}

/// Says which objects of one kind are refused. It is not called for an object that is being deleted.
pub trait Validator {
    /// The plugin's configuration.
    type Config;

    /// The kind, as a type that lists the fields that are looked at. An object that has not this form is refused by the
    /// name of the field.
    type Object: Resource + DeserializeOwned;

    /// Warnings for whoever made the change, or why it is refused, field by field.
    fn validate(review: Review<Self::Object, Self::Config>, cluster: &Cluster) -> Result<Vec<String>, Vec<FieldError>>;
}

/// Turns objects of one kind into another version of it.
pub trait Converter {
    /// The kind; its version does not matter.
    const KIND: Kind;

    /// The object in the version that the `apiVersion` names, or why there is none.
    fn convert(object: Value, api_version: &str) -> Result<Value, String>;
}

/// A plugin that a component exports; [`export!`](crate::export) makes it one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not exported",
    note = "name it in `pilothouse_plugin::export!`, at the root of the crate"
)]
pub trait ExportedPlugin: Plugin {
    /// The optional interfaces that it has, and for which kinds.
    #[doc(hidden)]
    fn interfaces() -> Interfaces;
}

/// The kinds for which a plugin has the optional interfaces; none where it does not export the interface.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Interfaces {
    pub(crate) finalizer: Option<Vec<Kind>>,
    pub(crate) defaulter: Option<Vec<Kind>>,
    pub(crate) validator: Option<Vec<Kind>>,
    pub(crate) converter: Option<Vec<Kind>>,
}

impl Interfaces {
    /// The plugin exports `finalizer` for these kinds.
    #[must_use]
    pub fn finalizer(mut self, kinds: Vec<Kind>) -> Self {
        self.finalizer = Some(kinds);
        self
    }

    /// The plugin exports `defaulter` for these kinds.
    #[must_use]
    pub fn defaulter(mut self, kinds: Vec<Kind>) -> Self {
        self.defaulter = Some(kinds);
        self
    }

    /// The plugin exports `validator` for these kinds.
    #[must_use]
    pub fn validator(mut self, kinds: Vec<Kind>) -> Self {
        self.validator = Some(kinds);
        self
    }

    /// The plugin exports `converter` for these kinds.
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
