//! Owns the component's entrance: the low level on which [`export!`](crate::export) stands, and the panic hook.

use std::marker::PhantomData;

use crate::raw::types;

/// A plugin in the contract's own words, JSON as text. [`Plugin`](crate::Plugin) is what authors write; this is for
/// those who need every byte of the answer, tests of the host for example. Exported by [`export_raw!`](crate::export_raw).
pub trait RawPlugin {
    /// The manifest, or why the configuration can't be used.
    fn describe(config: Option<String>) -> Result<String, String>;

    /// What should exist, or why that can't be said.
    fn reconcile(request: types::Request) -> Result<types::Outcome, types::Failure>;
}

/// A typed plugin on the low level.
#[derive(Debug)]
pub struct Typed<P>(PhantomData<P>);

#[cfg(target_family = "wasm")]
impl<P: crate::Plugin> RawPlugin for Typed<P> {
    fn describe(config: Option<String>) -> Result<String, String> {
        crate::dispatch::describe::<P>(config.as_deref())
    }

    fn reconcile(request: types::Request) -> Result<types::Outcome, types::Failure> {
        crate::dispatch::reconcile::<P>(&request, &crate::Cluster::of_host()).map_err(crate::Failure::lower)
    }
}

/// What the generated exports call.
#[derive(Debug)]
pub struct Exported<P>(PhantomData<P>);

#[cfg(target_family = "wasm")]
mod exports {
    use std::sync::Once;

    use super::{Exported, RawPlugin};
    use crate::bindings::exports::pilothouse::plugin::{manifest, reconciler};
    use crate::raw::types;

    impl<P: RawPlugin> manifest::Guest for Exported<P> {
        fn describe(config: Option<String>) -> Result<String, String> {
            log_panics();
            P::describe(config)
        }
    }

    impl<P: RawPlugin> reconciler::Guest for Exported<P> {
        fn reconcile(request: types::Request) -> Result<types::Outcome, types::Failure> {
            log_panics();
            P::reconcile(request)
        }
    }

    /// Without a hook a panic is a trap that says nothing: a component has no standard error.
    fn log_panics() {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            std::panic::set_hook(Box::new(|panic| {
                crate::log(crate::Level::Error, &panic.to_string(), &[]);
            }));
        });
    }
}

/// Exports a [`Plugin`](crate::Plugin) from the component. To be used once in a crate, at its root.
///
/// Natively it only checks that the type is a plugin.
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        const _: () = $crate::assert_plugin::<$plugin>();
        $crate::__export!($crate::raw::Typed<$plugin>);
    };
}

/// Exports a [`RawPlugin`](crate::raw::RawPlugin) from the component. To be used once in a crate, at its root.
#[macro_export]
macro_rules! export_raw {
    ($plugin:ty) => {
        const _: () = $crate::assert_raw_plugin::<$plugin>();
        $crate::__export!($plugin);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($raw_plugin:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Exported = $crate::raw::Exported<$raw_plugin>;
    $crate::bindings::export_plugin_world!(Exported with_types_in $crate::bindings);
        };
    };
}

#[doc(hidden)]
pub const fn assert_plugin<P: crate::Plugin>() {}

#[doc(hidden)]
pub const fn assert_raw_plugin<P: RawPlugin>() {}
