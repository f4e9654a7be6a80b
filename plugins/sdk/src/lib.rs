//! The SDK for Pilothouse plugins in Rust.
#![doc = include_str!("../README.md")]
//!
//! # The modules of this crate
//!
//! Authors implement the traits in `plugin`, `optional` and `object`; they return the types in `outcome`; reviews
//! before storing are in `admission`; reads in `cluster`, `selector` and `time`; the declarations of a plugin in
//! `manifest`, `admission_manifest` and, as far as types imply them, `declare` and `fields`. `k8s` has the builders of
//! objects, `crd` the definitions of a plugin's kinds. `dispatch` and `locate` convert JSON to the author's types,
//! `guest`, `bindings` and `allocator` are the component's side, and [`testing`] replaces the host in native tests.

#![allow(
    clippy::needless_pass_by_value,
    reason = "builders take references and temporaries alike"
)]

mod admission;
mod admission_manifest;
#[cfg(target_family = "wasm")]
#[allow(unsafe_code, reason = "an allocator hands out raw memory")]
mod allocator;
#[doc(hidden)]
#[allow(
    unsafe_code,
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    reason = "generated from wit/plugin.wit"
)]
pub mod bindings;
pub mod call;
mod cluster;
#[cfg(feature = "crd")]
pub mod crd;
mod declare;
mod dispatch;
mod fields;
mod guest;
#[cfg(feature = "k8s-meta")]
pub mod k8s;
mod locate;
mod log;
mod manifest;
pub mod names;
mod object;
mod optional;
mod outcome;
mod plugin;
mod selector;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
mod time;

#[doc(hidden)]
pub use crate::guest::{assert_plugin, assert_raw_plugin};
pub use crate::{
    admission::{FieldError, FieldErrorKind, Phase, Review, UserInfo},
    admission_manifest::{Admission, FailurePolicy},
    cluster::{Cluster, ListOptions},
    fields::Fields,
    log::{Level, log},
    manifest::{ControllerManifest, Manifest, Touch},
    object::{Kind, ObjectMeta, OwnerReference, Resource},
    optional::{
        Converter, Defaulter, ExportedPlugin, Finalization, Finalizer, HasConverter, HasDefaulter, HasFinalizer,
        HasValidator, Validator,
    },
    outcome::{
        Adopt, Condition, ConditionStatus, Event, EventType, Failure, Lifecycle, Outcome, Predecessor, Propagation,
    },
    plugin::{Controller, Controllers, NoConfig, Plugin, Request},
    selector::{LabelSelector, LabelSelectorError},
    time::Moment,
};

#[cfg(feature = "crd")]
pub use crate::crd::crd;
pub use pilothouse_plugin_derive::{Fields, Resource};
/// Makes a JSON value, for a status for example.
pub use serde_json::json;

/// Items that the code of the derives calls.
#[doc(hidden)]
pub mod derive {
    pub use crate::fields::{child, each, whole};
}

/// The contract itself, for code that needs details which the types of this crate hide. It grows as `wit/` does.
pub mod raw {
    pub use crate::bindings::admission::pilothouse::plugin::admission;
    pub use crate::bindings::finalizer::exports::pilothouse::plugin::finalizer::Finalization;
    pub use crate::bindings::pilothouse::plugin::{clock, cluster, log, types};
    #[doc(hidden)]
    pub use crate::dispatch::optional::kinds_of;
    pub use crate::dispatch::optional::{Converting, Defaulting, Finalizing, Handlers, Interface, Validating};
    pub use crate::guest::{Exported, RawConverter, RawDefaulter, RawFinalizer, RawPlugin, RawValidator, Typed};
    #[doc(hidden)]
    pub use crate::optional::Interfaces;
}
