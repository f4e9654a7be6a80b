//! Adapter of version 0.1.0 of the contract: the bindings made from wit/, and the interfaces that a component exports.
//!
//! Each version that was ever released keeps such an adapter; all of them use the types of `core::contract`.

mod admission;
mod convert;
mod converter;
mod defaulter;
mod finalizer;
mod imports;
mod manifest;
mod reconciler;
mod validator;

use wasmtime::component::types::{Component as ComponentType, ComponentItem};
use wasmtime::component::{ComponentNamedList, HasSelf, InstancePre, Lift, Linker, Lower};
use wasmtime::{Engine, Error};

use pilothouse_core::plugin::contract::PACKAGE;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Retry};

use crate::optional::Optional;
use crate::state::CallState;

/// The version that this adapter speaks.
pub(crate) const VERSION: &str = "0.1.0";

/// Interfaces that a component may import.
pub(crate) const IMPORTS: &[&str] = &["types", "admission", "cluster", "log", "clock"];

/// Interfaces that a component must export.
pub(crate) const EXPORTS: &[&str] = &["manifest", "reconciler"];

pub(crate) mod bindings {
    //! Generated from wit/.
    #![allow(missing_docs, clippy::pedantic, reason = "generated")]

    wasmtime::component::bindgen!({
        world: "plugin",
        path: "wit",
        ownership: Borrowing { duplicate_if_necessary: true },
        imports: { default: trappable },
    });
}

/// A component that was found to speak this version, ready to be instantiated.
pub(crate) struct Adapter {
    pre: bindings::PluginPre<CallState>,
    finalizer: Option<finalizer::Indices>,
    defaulter: Option<defaulter::Indices>,
    validator: Option<validator::Indices>,
    converter: Option<converter::Indices>,
}

/// Adds this version's imports to the linker.
pub(crate) fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    bindings::Plugin::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
}

impl Adapter {
    /// Checks the types of all exports, the optional ones too.
    pub(crate) fn new(instance: InstancePre<CallState>) -> wasmtime::Result<Self> {
        let exports = Exports::new(&instance);
        manifest::check(&exports)?;
        reconciler::check(&exports)?;
        Ok(Self {
            finalizer: finalizer::find(&exports, &instance)?,
            defaulter: defaulter::find(&exports, &instance)?,
            validator: validator::find(&exports, &instance)?,
            converter: converter::find(&exports, &instance)?,
            pre: bindings::PluginPre::new(instance)?,
        })
    }

    /// Returns the optional interfaces that the component exports.
    pub(crate) fn optional(&self) -> Optional {
        Optional {
            finalizer: self.finalizer.is_some(),
            defaulter: self.defaulter.is_some(),
            validator: self.validator.is_some(),
            converter: self.converter.is_some(),
        }
    }
}

/// Returns the failure of calling a missing interface: the host's fault, as callers check [`Optional`] first.
fn absent(interface: &str) -> Failure {
    Failure::host(
        Reason::HostFault,
        format!("the plugin is asked for its {interface}, and exports none; this is a bug of the host"),
    )
    .retry(Retry::Change)
}

/// Exports of a component, to be checked before it is ever instantiated: wasmtime by itself checks types only then.
struct Exports {
    engine: Engine,
    component: ComponentType,
}

impl Exports {
    fn new(instance: &InstancePre<CallState>) -> Self {
        Self {
            engine: instance.engine().clone(),
            component: instance.component().component_type(),
        }
    }

    /// Reports whether the component exports the interface.
    fn has(&self, interface: &str) -> bool {
        self.component.get_export(&self.engine, &full_name(interface)).is_some()
    }

    /// Checks that an interface has a function of this type.
    fn check<Parameters, Answer>(&self, interface: &str, function: &str) -> wasmtime::Result<()>
    where
        Parameters: ComponentNamedList + Lower,
        Answer: ComponentNamedList + Lift,
    {
        let name = full_name(interface);
        let Some(ComponentItem::ComponentInstance(instance)) =
            self.component.get_export(&self.engine, &name).map(|export| export.ty)
        else {
            return Err(Error::msg(format!("its export {name} is not an interface")));
        };
        let Some(ComponentItem::ComponentFunc(found)) =
            instance.get_export(&self.engine, function).map(|export| export.ty)
        else {
            return Err(Error::msg(format!("its export {name} has no function {function}")));
        };
        found
            .typecheck::<Parameters, Answer>(&self.component.instance_type())
            .map_err(|error| Error::msg(format!("its function {function} of {name} has another type: {error:#}")))
    }
}

/// Returns an interface's name as components spell it.
fn full_name(interface: &str) -> String {
    format!("{PACKAGE}/{interface}@{VERSION}")
}
