//! Owns what is done for each resource of a kind: its controller, its defaulter, its validator, and its finalizer. What
//! differs between both kinds is in [`Proxy`].

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

/// A kind that stands for an nginx.
pub(crate) trait Proxy: Resource + DeserializeOwned {
    /// What its nginx is configured from.
    type Configuration<'a>: Configuration
    where
        Self: 'a;

    fn metadata(&self) -> &ObjectMeta;

    /// What both the pods and their nginx are made of, or what is wrong, field by field.
    fn check<'a>(&'a self, absent: Absent<'a>) -> Checked<'a, Self::Configuration<'a>>;

    /// Fills in what only this kind has.
    fn complete(spec: &mut Map<String, Value>);
}

/// What is done for each resource of a kind.
#[derive(Debug)]
pub struct Proxies<T>(PhantomData<T>);

/// What is done for each ReverseProxy.
pub type Http = Proxies<ReverseProxy>;

/// What is done for each TCPReverseProxy.
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

/// All that is wrong with a resource, as one failure: it stays until somebody corrects the resource.
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

    /// Nothing should exist any more; the host waits until that is so.
    fn finalize(_: Request<TcpReverseProxyLeaving, Settings>, _: &Cluster) -> Result<Finalization, Failure> {
        Ok(Finalization::Done)
    }
}
