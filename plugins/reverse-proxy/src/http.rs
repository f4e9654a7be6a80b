//! Owns the kind ReverseProxy: its controller, its defaulter and its validator.

use pilothouse_plugin::{
    Cluster, Controller, Defaulter, Failure, FieldError, Kind, Outcome, Request, Resource, Review, Validator,
};
use serde_json::Value;

use crate::check::{self, Absent};
use crate::resource::ReverseProxy;
use crate::settings::Settings;
use crate::{children, defaults, refusal};

/// What is done for each ReverseProxy.
#[derive(Debug)]
pub struct Http;

impl Controller for Http {
    type Config = Settings;
    type Object = ReverseProxy;

    fn reconcile(request: Request<ReverseProxy, Settings>, _: &Cluster) -> Result<Outcome, Failure> {
        let Request {
            object,
            configuration: settings,
            ..
        } = &request;
        let (instance, configuration) = check::http(object, Absent::Image(&settings.default_image))
            .map_err(|errors| refusal(ReverseProxy::KIND.kind, &object.metadata, &errors))?;
        Ok(children::outcome(&instance, &configuration.text()))
    }
}

impl Defaulter for Http {
    type Config = Settings;

    const KIND: Kind = ReverseProxy::KIND;

    fn apply_defaults(review: Review<Value, Settings>, _: &Cluster) -> Result<Value, Vec<FieldError>> {
        let mut object = review.object;
        defaults::http(&mut object, &review.configuration);
        Ok(object)
    }
}

impl Validator for Http {
    type Config = Settings;
    type Object = ReverseProxy;

    fn validate(review: Review<ReverseProxy, Settings>, _: &Cluster) -> Result<Vec<String>, Vec<FieldError>> {
        if review.object.metadata.deletion_timestamp.is_some() {
            return Ok(Vec::new());
        }
        let (_, configuration) = check::http(&review.object, Absent::Refused)?;
        Ok(configuration.warnings())
    }
}
