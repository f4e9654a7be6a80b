//! Controllers, defaulters, validators and finalizer of both kinds, whose differences are in [`Proxy`].

use std::marker::PhantomData;

use pilothouse_plugin::{
    Cluster, Controller, Defaulter, Failure, FieldError, Finalization, Finalizer, Kind, ObjectMeta, Outcome, Request,
    Resource, Review, Validator,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::check::{Absent, Checked};
use crate::nginx::Configuration;
use crate::resource::{ReverseProxy, TcpReverseProxy, TcpReverseProxyLeaving};
use crate::settings::Settings;
use crate::{children, defaults};

/// A kind that manages an nginx.
pub(crate) trait Proxy: Resource + DeserializeOwned {
    /// Configuration of its nginx.
    type Configuration<'a>: Configuration
    where
        Self: 'a;

    fn metadata(&self) -> &ObjectMeta;

    /// Returns instance and configuration, or the problems, field by field.
    fn check<'a>(&'a self, absent: Absent<'a>) -> Checked<'a, Self::Configuration<'a>>;

    /// Fills in defaults of the fields that only this kind has.
    fn complete(spec: &mut Map<String, Value>);
}

/// Functions of a kind.
#[derive(Debug)]
pub struct Proxies<T>(PhantomData<T>);

/// Functions of ReverseProxy.
pub type Http = Proxies<ReverseProxy>;

/// Functions of TCPReverseProxy.
pub type Tcp = Proxies<TcpReverseProxy>;

impl<T: Proxy> Controller for Proxies<T> {
    type Config = Settings;
    type Object = T;

    fn reconcile(request: Request<T, Settings>, _: &Cluster) -> Result<Outcome, Failure> {
        let Request {
            object,
            configuration: settings,
            ..
        } = &request;
        let (instance, configuration) = object
            .check(Absent::Image(&settings.default_image))
            .map_err(|errors| refusal(object, &errors))?;
        Ok(children::outcome(&instance, &configuration.text()))
    }
}

/// Returns all problems of a resource as one failure, which is not retried until the resource is corrected.
fn refusal<T: Proxy>(object: &T, errors: &[FieldError]) -> Failure {
    let ObjectMeta { namespace, name, .. } = object.metadata();
    let namespace = namespace.as_deref().unwrap_or_default();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Failure::permanent(format!("{} {namespace}/{name}: {}", T::KIND.kind, errors.join("; ")))
}

impl<T: Proxy> Defaulter for Proxies<T> {
    type Config = Settings;

    const KIND: Kind = T::KIND;

    fn apply_defaults(review: Review<Value, Settings>, _: &Cluster) -> Result<Value, Vec<FieldError>> {
        let mut object = review.object;
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            defaults::image(spec, &review.configuration);
            T::complete(spec);
        }
        Ok(object)
    }
}

impl<T: Proxy> Validator for Proxies<T> {
    type Config = Settings;
    type Object = T;

    fn validate(review: Review<T, Settings>, _: &Cluster) -> Result<Vec<String>, Vec<FieldError>> {
        let (_, configuration) = review.object.check(Absent::Refused)?;
        Ok(configuration.warnings())
    }
}

impl Finalizer for Tcp {
    type Config = Settings;
    type Object = TcpReverseProxyLeaving;

    /// Desires no objects; the host waits until they are deleted.
    fn finalize(_: Request<TcpReverseProxyLeaving, Settings>, _: &Cluster) -> Result<Finalization, Failure> {
        Ok(Finalization::Done)
    }
}
