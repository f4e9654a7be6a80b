//! Traits that an author implements: a plugin and its controllers, and the input of each.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::call::Call;
use crate::cluster::Cluster;
use crate::manifest::Manifest;
use crate::object::{Kind, Resource};
use crate::outcome::{Failure, Outcome};

/// A plugin: its manifest, and its controllers.
///
/// A plugin of one kind is its own controller; one of several names them in a tuple:
///
/// ```
/// # use pilothouse_plugin::*;
/// # #[derive(serde::Deserialize)] struct ReverseProxy {}
/// # #[derive(serde::Deserialize)] struct TcpReverseProxy {}
/// # impl Resource for ReverseProxy { const KIND: Kind = Kind::new("nginx.lin2ur.cn", "v1", "ReverseProxy"); }
/// # impl Resource for TcpReverseProxy { const KIND: Kind = Kind::new("nginx.lin2ur.cn", "v1", "TCPReverseProxy"); }
/// #[derive(Default, serde::Deserialize)]
/// struct Settings {}
///
/// struct Nginx;
/// struct Http;
/// struct Tcp;
///
/// impl Plugin for Nginx {
///     type Config = Settings;
///     type Controllers = (Http, Tcp);
///
///     fn manifest(_: &Settings) -> Manifest {
///         Manifest::new("reverse-proxy", "0.1.0", "An nginx for each proxy.")
///             .controller(ControllerManifest::of::<ReverseProxy>("http").fields([".spec"]))
///             .controller(ControllerManifest::of::<TcpReverseProxy>("tcp").fields([".spec"]))
///     }
/// }
///
/// impl Controller for Http {
///     type Config = Settings;
///     type Object = ReverseProxy;
///
///     fn reconcile(_: Request<ReverseProxy, Settings>, _: &Cluster) -> Result<Outcome, Failure> {
///         Ok(Outcome::new())
///     }
/// }
///
/// impl Controller for Tcp {
///     type Config = Settings;
///     type Object = TcpReverseProxy;
///
///     fn reconcile(_: Request<TcpReverseProxy, Settings>, _: &Cluster) -> Result<Outcome, Failure> {
///         Ok(Outcome::new())
///     }
/// }
///
/// pilothouse_plugin::export!(Nginx);
/// # fn main() {}
/// ```
pub trait Plugin {
    /// The plugin's configuration, or [`NoConfig`]. Its `Default` is used if an installation gives no configuration.
    type Config: DeserializeOwned + Default;

    /// The plugin's controllers: one [`Controller`], or a tuple of up to eight. The manifest declares each of them, and no
    /// other; those that depend on the configuration by [`Manifest::controller_if`].
    type Controllers: Controllers<Self::Config>;

    /// Returns the plugin's description and the kinds that it reads or writes, with this configuration.
    fn manifest(config: &Self::Config) -> Manifest;

    /// Checks rules that the type of the configuration cannot express. The error explains the problem, by field.
    fn check(_config: &Self::Config) -> Result<(), String> {
        Ok(())
    }
}

/// The logic for one kind: derives the desired objects from a resource.
///
/// It is a pure function: the same resource, configuration and answers of the cluster give the same outcome.
pub trait Controller {
    /// The plugin's configuration.
    type Config;

    /// The kind, as a type with the fields that are read.
    type Object: Resource + DeserializeOwned;

    /// Returns the desired objects of the resource, or the failure of this call.
    fn reconcile(request: Request<Self::Object, Self::Config>, cluster: &Cluster) -> Result<Outcome, Failure>;
}

/// Input of a controller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request<Object, Config = NoConfig> {
    /// The resource.
    pub object: Object,
    /// The plugin's configuration.
    pub configuration: Config,
    /// Number of consecutive failures before this call.
    pub attempt: u32,
}

impl<Object, Config> Request<Object, Config> {
    /// Returns a first call; for tests that call a controller directly.
    pub fn new(object: Object, configuration: Config) -> Self {
        Self {
            object,
            configuration,
            attempt: 0,
        }
    }

    /// Returns the same request after this many consecutive failures.
    #[must_use]
    pub fn after_failures(self, attempt: u32) -> Self {
        Self { attempt, ..self }
    }
}

/// The configuration of a plugin that accepts none; giving it any member is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// The controllers of a plugin: any [`Controller`], or a tuple of up to eight of them.
pub trait Controllers<Config> {
    /// Appends the kinds that are reconciled.
    #[doc(hidden)]
    fn kinds(kinds: &mut Vec<Kind>);

    /// Answers the call if the object is of a kind that is reconciled here.
    #[doc(hidden)]
    fn reconcile(call: &Call<'_>, config: Config, cluster: &Cluster) -> Result<Result<Outcome, Failure>, Config>;
}

impl<C: Controller> Controllers<C::Config> for C {
    fn kinds(kinds: &mut Vec<Kind>) {
        kinds.push(C::Object::KIND);
    }

    fn reconcile(call: &Call<'_>, config: C::Config, cluster: &Cluster) -> Result<Result<Outcome, Failure>, C::Config> {
        if !call.is_for(&C::Object::KIND) {
            return Err(config);
        }
        Ok(call.object().and_then(|object| {
            C::reconcile(
                Request {
                    object,
                    configuration: config,
                    attempt: call.attempt(),
                },
                cluster,
            )
        }))
    }
}

macro_rules! controllers_of_tuple {
    ($($controller:ident)+) => {
        impl<Config, $($controller: Controllers<Config>),+> Controllers<Config> for ($($controller,)+) {
            fn kinds(kinds: &mut Vec<Kind>) {
                $($controller::kinds(kinds);)+
            }

            fn reconcile(
                call: &Call<'_>,
                config: Config,
                cluster: &Cluster,
            ) -> Result<Result<Outcome, Failure>, Config> {
                $(
                    let config = match <$controller as Controllers<Config>>::reconcile(call, config, cluster) {
                        Err(config) => config,
                        answered => return answered,
                    };
                )+
                Err(config)
            }
        }
    };
}

controllers_of_tuple!(A);
controllers_of_tuple!(A B);
controllers_of_tuple!(A B C);
controllers_of_tuple!(A B C D);
controllers_of_tuple!(A B C D E);
controllers_of_tuple!(A B C D E F);
controllers_of_tuple!(A B C D E F G);
controllers_of_tuple!(A B C D E F G H);
