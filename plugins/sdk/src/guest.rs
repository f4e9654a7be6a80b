//! Entry points of the component: the low level below [`export!`](crate::export), and the panic hook.

use std::marker::PhantomData;

use crate::raw::{Finalization, admission, types};

/// A plugin with the contract's own types, JSON as text. Authors implement [`Plugin`](crate::Plugin); this is for code
/// that needs every byte of the answer, tests of the host for example. Exported by [`export_raw!`](crate::export_raw).
pub trait RawPlugin {
    /// Returns the manifest, or the reason why the configuration can't be used.
    fn describe(configuration: Option<String>) -> Result<String, String>;

    /// Returns the desired objects, or the failure.
    fn reconcile(request: types::Request) -> Result<types::Outcome, types::Failure>;
}

/// The interface `finalizer` with the contract's own types.
pub trait RawFinalizer {
    /// Decides whether the object may be deleted, or returns the failure.
    fn finalize(request: types::Request) -> Result<Finalization, types::Failure>;
}

/// The interface `defaulter` with the contract's own types.
pub trait RawDefaulter {
    /// Returns the object with defaults, or the errors of its fields.
    fn apply_defaults(review: admission::Review) -> Result<String, Vec<admission::FieldError>>;
}

/// The interface `validator` with the contract's own types.
pub trait RawValidator {
    /// Returns warnings, or the errors of the object's fields.
    fn validate(review: admission::Review) -> Result<Vec<String>, Vec<admission::FieldError>>;
}

/// The interface `converter` with the contract's own types.
pub trait RawConverter {
    /// Returns the object in another version, or the reason why there is none.
    fn convert(object: String, api_version: String) -> Result<String, String>;
}

/// Adapter of a typed plugin to the low level.
#[derive(Debug)]
pub struct Typed<P>(PhantomData<P>);

#[cfg(target_family = "wasm")]
mod typed {
    use super::{RawConverter, RawDefaulter, RawFinalizer, RawPlugin, RawValidator, Typed};
    use crate::dispatch;
    use crate::raw::{self, admission, types};
    use crate::{Cluster, Failure, FieldError, Finalization};

    impl<P: crate::ExportedPlugin> RawPlugin for Typed<P> {
        fn describe(configuration: Option<String>) -> Result<String, String> {
            dispatch::describe::<P>(configuration.as_deref())
        }

        fn reconcile(request: types::Request) -> Result<types::Outcome, types::Failure> {
            dispatch::reconcile::<P>(&request, &Cluster::of_host()).map_err(Failure::lower)
        }
    }

    impl<P: crate::HasFinalizer> RawFinalizer for Typed<P> {
        fn finalize(request: types::Request) -> Result<raw::Finalization, types::Failure> {
            let answer = dispatch::optional::finalize::<P>(&request, &Cluster::of_host());
            match answer.map_err(Failure::lower)? {
                Finalization::Done => Ok(raw::Finalization::Done),
                Finalization::Pending(outcome) => {
                    outcome.lower().map(raw::Finalization::Pending).map_err(Failure::lower)
                }
            }
        }
    }

    impl<P: crate::HasDefaulter> RawDefaulter for Typed<P> {
        fn apply_defaults(review: admission::Review) -> Result<String, Vec<admission::FieldError>> {
            dispatch::optional::apply_defaults::<P>(&review, &Cluster::of_host()).map_err(lower)
        }
    }

    impl<P: crate::HasValidator> RawValidator for Typed<P> {
        fn validate(review: admission::Review) -> Result<Vec<String>, Vec<admission::FieldError>> {
            dispatch::optional::validate::<P>(&review, &Cluster::of_host()).map_err(lower)
        }
    }

    impl<P: crate::HasConverter> RawConverter for Typed<P> {
        fn convert(object: String, api_version: String) -> Result<String, String> {
            dispatch::optional::convert::<P>(&object, &api_version, &Cluster::of_host())
        }
    }

    fn lower(errors: Vec<FieldError>) -> Vec<admission::FieldError> {
        errors.into_iter().map(FieldError::lower).collect()
    }
}

/// Target of the generated exports.
#[derive(Debug)]
pub struct Exported<P>(PhantomData<P>);

#[cfg(target_family = "wasm")]
mod exports {
    use std::sync::Once;

    use super::{Exported, RawConverter, RawDefaulter, RawFinalizer, RawPlugin, RawValidator};
    use crate::bindings::converter::exports::pilothouse::plugin::converter;
    use crate::bindings::defaulter::exports::pilothouse::plugin::defaulter;
    use crate::bindings::exports::pilothouse::plugin::{manifest, reconciler};
    use crate::bindings::finalizer::exports::pilothouse::plugin::finalizer;
    use crate::bindings::validator::exports::pilothouse::plugin::validator;
    use crate::raw::{admission, types};

    impl<P: RawPlugin> manifest::Guest for Exported<P> {
        fn describe(configuration: Option<String>) -> Result<String, String> {
            log_panics();
            P::describe(configuration)
        }
    }

    impl<P: RawPlugin> reconciler::Guest for Exported<P> {
        fn reconcile(request: types::Request) -> Result<types::Outcome, types::Failure> {
            log_panics();
            P::reconcile(request)
        }
    }

    impl<P: RawFinalizer> finalizer::Guest for Exported<P> {
        fn finalize(request: types::Request) -> Result<finalizer::Finalization, types::Failure> {
            log_panics();
            P::finalize(request)
        }
    }

    impl<P: RawDefaulter> defaulter::Guest for Exported<P> {
        fn apply_defaults(review: admission::Review) -> Result<String, Vec<admission::FieldError>> {
            log_panics();
            P::apply_defaults(review)
        }
    }

    impl<P: RawValidator> validator::Guest for Exported<P> {
        fn validate(review: admission::Review) -> Result<Vec<String>, Vec<admission::FieldError>> {
            log_panics();
            P::validate(review)
        }
    }

    impl<P: RawConverter> converter::Guest for Exported<P> {
        fn convert(object: String, api_version: String) -> Result<String, String> {
            log_panics();
            P::convert(object, api_version)
        }
    }

    /// Logs panics. Without a hook a panic is a trap without a message: a component has no standard error.
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
/// The plugin's optional interfaces follow it by name, each with the type that implements it, or a tuple of such types
/// for several kinds; a component only exports the named ones:
///
/// ```
/// # mod plugin {
/// # use pilothouse_plugin::*;
/// # #[derive(serde::Deserialize)] struct Web {}
/// # #[derive(serde::Deserialize)] struct Stream {}
/// # impl Resource for Web { const KIND: Kind = Kind::new("example.com", "v1", "Web"); }
/// # impl Resource for Stream { const KIND: Kind = Kind::new("example.com", "v1", "Stream"); }
/// # struct Proxies; struct Http; struct Tcp;
/// # impl Plugin for Proxies {
/// #     type Config = NoConfig;
/// #     type Controllers = (Http, Tcp);
/// #     fn manifest(_: &NoConfig) -> Manifest { Manifest::new("proxies", "0.1.0", "") }
/// # }
/// # impl Controller for Http {
/// #     type Config = NoConfig;
/// #     type Object = Web;
/// #     fn reconcile(_: Request<Web>, _: &Cluster) -> Result<Outcome, Failure> { Ok(Outcome::new()) }
/// # }
/// # impl Controller for Tcp {
/// #     type Config = NoConfig;
/// #     type Object = Stream;
/// #     fn reconcile(_: Request<Stream>, _: &Cluster) -> Result<Outcome, Failure> { Ok(Outcome::new()) }
/// # }
/// # impl Finalizer for Tcp {
/// #     type Config = NoConfig;
/// #     type Object = Stream;
/// #     fn finalize(_: Request<Stream>, _: &Cluster) -> Result<Finalization, Failure> { Ok(Finalization::Done) }
/// # }
/// # impl Validator for Http {
/// #     type Config = NoConfig;
/// #     type Object = Web;
/// #     fn validate(_: Review<Web>, _: &Cluster) -> Result<Vec<String>, Vec<FieldError>> { Ok(Vec::new()) }
/// # }
/// # impl Validator for Tcp {
/// #     type Config = NoConfig;
/// #     type Object = Stream;
/// #     fn validate(_: Review<Stream>, _: &Cluster) -> Result<Vec<String>, Vec<FieldError>> { Ok(Vec::new()) }
/// # }
/// pilothouse_plugin::export!(Proxies, finalizer: Tcp, validator: (Http, Tcp));
/// # }
/// ```
///
/// Natively it checks the types, and lets [`FakeCluster`](crate::testing::FakeCluster) call the interfaces.
#[macro_export]
macro_rules! export {
    ($plugin:ty $(, $interface:ident: $types:ty)* $(,)?) => {
        const _: () = $crate::assert_plugin::<$plugin>();
        impl $crate::ExportedPlugin for $plugin {
            fn interfaces() -> $crate::raw::Interfaces {
                <$crate::raw::Interfaces as ::core::default::Default>::default()
                    $(.$interface($crate::__kinds!($interface, $plugin, $types)))*
            }
        }
        $($crate::__has!($interface, $plugin, $types);)*
        $crate::__export!($crate::raw::Typed<$plugin>, $($interface)*);
    };
}

/// Exports a [`RawPlugin`](crate::raw::RawPlugin) from the component, with the optional interfaces that are named after
/// it. To be used once in a crate, at its root.
#[macro_export]
macro_rules! export_raw {
    ($plugin:ty $(, $interface:ident)* $(,)?) => {
        const _: () = $crate::assert_raw_plugin::<$plugin>();
        $crate::__export!($plugin, $($interface)*);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __has {
    (finalizer, $plugin:ty, $types:ty) => {
        impl $crate::HasFinalizer for $plugin {
            type Finalizers = $types;
        }
    };
    (defaulter, $plugin:ty, $types:ty) => {
        impl $crate::HasDefaulter for $plugin {
            type Defaulters = $types;
        }
    };
    (validator, $plugin:ty, $types:ty) => {
        impl $crate::HasValidator for $plugin {
            type Validators = $types;
        }
    };
    (converter, $plugin:ty, $types:ty) => {
        impl $crate::HasConverter for $plugin {
            type Converters = $types;
        }
    };
    ($interface:ident, $plugin:ty, $types:ty) => {
        compile_error!(concat!(
            "there is no optional interface `",
            stringify!($interface),
            "`; there are finalizer, defaulter, validator and converter"
        ));
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __kinds {
    (finalizer, $plugin:ty, $types:ty) => {
        $crate::raw::kinds_of::<$crate::raw::Finalizing, <$plugin as $crate::Plugin>::Config, $types>()
    };
    (defaulter, $plugin:ty, $types:ty) => {
        $crate::raw::kinds_of::<$crate::raw::Defaulting, <$plugin as $crate::Plugin>::Config, $types>()
    };
    (validator, $plugin:ty, $types:ty) => {
        $crate::raw::kinds_of::<$crate::raw::Validating, <$plugin as $crate::Plugin>::Config, $types>()
    };
    (converter, $plugin:ty, $types:ty) => {
        $crate::raw::kinds_of::<$crate::raw::Converting, (), $types>()
    };
    // `__has` lists the optional interfaces.
    ($interface:ident, $plugin:ty, $types:ty) => {
        ::std::vec::Vec::new()
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($raw_plugin:ty, $($interface:ident)*) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Exported = $crate::raw::Exported<$raw_plugin>;
            $crate::bindings::export_plugin_world!(Exported with_types_in $crate::bindings);
            $($crate::__export_interface!($interface);)*
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export_interface {
    (finalizer) => {
        $crate::bindings::finalizer::export_finalizer_world!(Exported with_types_in $crate::bindings::finalizer);
    };
    (defaulter) => {
        $crate::bindings::defaulter::export_defaulter_world!(Exported with_types_in $crate::bindings::defaulter);
    };
    (validator) => {
        $crate::bindings::validator::export_validator_world!(Exported with_types_in $crate::bindings::validator);
    };
    (converter) => {
        $crate::bindings::converter::export_converter_world!(Exported with_types_in $crate::bindings::converter);
    };
}

#[doc(hidden)]
pub const fn assert_plugin<P: crate::Plugin>() {}

#[doc(hidden)]
pub const fn assert_raw_plugin<P: RawPlugin>() {}
