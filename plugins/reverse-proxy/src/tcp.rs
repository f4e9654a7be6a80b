//! Owns the kind TCPReverseProxy: its controller, its finalizer, its defaulter and its validator.

use pilothouse_plugin::{
    Cluster, Controller, Defaulter, Failure, FieldError, Finalization, Finalizer, Kind, Outcome, Request, Resource,
    Review, Validator,
};
use serde_json::Value;

use crate::check::{self, Absent};
use crate::resource::{TcpReverseProxy, TcpReverseProxyLeaving};
use crate::settings::Settings;
use crate::{children, defaults, refusal};

/// The finalizer by which a TCPReverseProxy stays until its children are gone.
pub(crate) const FINALIZER: &str = "nginx.lin2ur.cn/finalizer";

/// What is done for each TCPReverseProxy.
#[derive(Debug)]
pub struct Tcp;

impl Controller for Tcp {
    type Config = Settings;
    type Object = TcpReverseProxy;

    fn reconcile(request: Request<TcpReverseProxy, Settings>, _: &Cluster) -> Result<Outcome, Failure> {
        let Request {
            object,
            configuration: settings,
            ..
        } = &request;
        let (instance, configuration) = check::tcp(object, Absent::Image(&settings.default_image))
            .map_err(|errors| refusal(TcpReverseProxy::KIND.kind, &object.metadata, &errors))?;
        Ok(children::outcome(&instance, &configuration.text()))
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

impl Defaulter for Tcp {
    type Config = Settings;

    const KIND: Kind = TcpReverseProxy::KIND;

    fn apply_defaults(review: Review<Value, Settings>, _: &Cluster) -> Result<Value, Vec<FieldError>> {
        let mut object = review.object;
        defaults::tcp(&mut object, &review.configuration);
        Ok(object)
    }
}

impl Validator for Tcp {
    type Config = Settings;
    type Object = TcpReverseProxy;

    fn validate(review: Review<TcpReverseProxy, Settings>, _: &Cluster) -> Result<Vec<String>, Vec<FieldError>> {
        if review.object.metadata.deletion_timestamp.is_none() {
            check::tcp(&review.object, Absent::Refused)?;
        }
        Ok(Vec::new())
    }
}
