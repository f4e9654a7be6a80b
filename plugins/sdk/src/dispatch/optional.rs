//! Dispatches the calls of the optional interfaces by the object's kind, to one of several types.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::admission::{FieldError, Phase, Review, UserInfo};
use crate::call::{Call, read_config};
use crate::cluster::Cluster;
use crate::locate;
use crate::object::{Kind, Resource};
use crate::optional::{
    Converter, Defaulter, Finalization, Finalizer, HasConverter, HasDefaulter, HasFinalizer, HasValidator, Validator,
};
use crate::outcome::Failure;
use crate::plugin::Request;
use crate::raw::{admission, types};

/// An optional interface: its call and its answer.
pub trait Interface {
    /// The call, before it is known which type answers it.
    type Call<'a>;
    /// The answer.
    type Answer;
}

/// Types that answer the calls of an interface: one, or a tuple of up to eight of them.
pub trait Handlers<I: Interface, Config> {
    /// Appends the kinds that they are for.
    #[doc(hidden)]
    fn kinds(kinds: &mut Vec<Kind>);

    /// Answers the call if it is for this kind; otherwise returns the configuration for the next one.
    #[doc(hidden)]
    fn handle(call: &I::Call<'_>, config: Config, cluster: &Cluster) -> Result<I::Answer, Config>;
}

/// The interface `finalizer`.
#[derive(Debug)]
pub enum Finalizing {}

/// The interface `defaulter`.
#[derive(Debug)]
pub enum Defaulting {}

/// The interface `validator`.
#[derive(Debug)]
pub enum Validating {}

/// The interface `converter`.
#[derive(Debug)]
pub enum Converting {}

impl Interface for Finalizing {
    type Call<'a> = Call<'a>;
    type Answer = Result<Finalization, Failure>;
}

impl Interface for Defaulting {
    type Call<'a> = ReviewCall<'a>;
    type Answer = Result<Value, Vec<FieldError>>;
}

impl Interface for Validating {
    type Call<'a> = ReviewCall<'a>;
    type Answer = Result<Vec<String>, Vec<FieldError>>;
}

impl Interface for Converting {
    type Call<'a> = ConvertCall<'a>;
    type Answer = Result<Value, String>;
}

/// A review with the text of the object that it is about.
#[derive(Debug)]
pub struct ReviewCall<'a> {
    review: &'a admission::Review,
    object: &'a str,
}

/// An object to be converted to another version.
#[derive(Debug)]
pub struct ConvertCall<'a> {
    object: Value,
    api_version: &'a str,
}

/// Returns the kinds of the handlers of one interface.
#[doc(hidden)]
pub fn kinds_of<I: Interface, Config, H: Handlers<I, Config>>() -> Vec<Kind> {
    let mut kinds = Vec::new();
    H::kinds(&mut kinds);
    kinds
}

/// Calls the plugin's finalizer for the object's kind.
pub(crate) fn finalize<P: HasFinalizer>(request: &types::Request, cluster: &Cluster) -> Result<Finalization, Failure> {
    let call = Call::read(request)?;
    let config = read_config::<P::Config>(&request.configuration).map_err(Failure::Permanent)?;
    P::Finalizers::handle(&call, config, cluster).unwrap_or_else(|_| {
        Err(Failure::Permanent(format!(
            "{call} is of a kind that this plugin has no finalizer for; its author has to add it"
        )))
    })
}

/// Calls the plugin's defaulter for the object's kind; without one the object stays unchanged.
pub(crate) fn apply_defaults<P: HasDefaulter>(
    review: &admission::Review,
    cluster: &Cluster,
) -> Result<String, Vec<FieldError>> {
    let call = ReviewCall::read(review)?;
    let config = call.config::<P::Config>()?;
    match P::Defaulters::handle(&call, config, cluster) {
        Ok(answer) => answer.map(|object| object.to_string()),
        Err(_) => Ok(call.object.to_owned()),
    }
}

/// Calls the plugin's validator for the object's kind; without one the object is accepted.
pub(crate) fn validate<P: HasValidator>(
    review: &admission::Review,
    cluster: &Cluster,
) -> Result<Vec<String>, Vec<FieldError>> {
    let call = ReviewCall::read(review)?;
    let config = call.config::<P::Config>()?;
    P::Validators::handle(&call, config, cluster).unwrap_or_else(|_| Ok(Vec::new()))
}

/// Calls the plugin's converter for the object's kind.
pub(crate) fn convert<P: HasConverter>(object: &str, api_version: &str, cluster: &Cluster) -> Result<String, String> {
    let object = serde_json::from_str(object)
        .map_err(|error| format!("the object cannot be read: {}", locate::explain(object, &error)))?;
    let call = ConvertCall { object, api_version };
    match P::Converters::handle(&call, (), cluster) {
        Ok(answer) => answer.map(|object| object.to_string()),
        Err(()) => Err(format!(
            "this plugin has no converter for {api_version}; its author has to add it"
        )),
    }
}

impl<'a> ReviewCall<'a> {
    fn read(review: &'a admission::Review) -> Result<Self, Vec<FieldError>> {
        match review.object.as_deref().or(review.old_object.as_deref()) {
            Some(object) => Ok(Self { review, object }),
            None => Err(vec![FieldError::invalid("", "the review has no object")]),
        }
    }

    fn config<Config: DeserializeOwned + Default>(&self) -> Result<Config, Vec<FieldError>> {
        read_config(&self.review.configuration).map_err(|error| vec![FieldError::invalid("", error)])
    }

    fn is_for(&self, wanted: &Kind) -> bool {
        let types::GroupVersionKind { group, version, kind } = &self.review.kind;
        wanted.group == group && wanted.version == version && wanted.kind == kind
    }

    /// Converts the review to the author's types; an object of another form is refused with its field.
    fn typed<Object: DeserializeOwned, Config>(&self, config: Config) -> Result<Review<Object, Config>, FieldError> {
        let admission::Review {
            phase,
            kind: _,
            object: _,
            old_object,
            configuration: _,
            user_info,
            dry_run,
            extensions: _,
        } = self.review;
        let object = serde_json::from_str(self.object).map_err(|error| unreadable(self.object, &error))?;
        let mut review = Review::create(object, config);
        review.phase = Phase::lift(*phase);
        // An object that was stored under an older definition may have any form, and must not prevent its correction.
        review.old_object = old_object.as_deref().and_then(|old| serde_json::from_str(old).ok());
        review.user_info = user_info.as_ref().map(UserInfo::lift);
        review.dry_run = *dry_run;
        Ok(review)
    }
}

/// Returns the error of the field by which an object does not have the author's form.
fn unreadable(object: &str, error: &serde_json::Error) -> FieldError {
    let (path, cause) = locate::find(object, error);
    let missing = cause
        .strip_prefix("missing field `")
        .and_then(|rest| rest.strip_suffix('`'));
    match missing {
        Some(field) if path.is_empty() => FieldError::required(field, ""),
        Some(field) => FieldError::required(format!("{path}.{field}"), ""),
        None => FieldError::invalid(path, cause),
    }
}

impl<F: Finalizer> Handlers<Finalizing, F::Config> for F {
    fn kinds(kinds: &mut Vec<Kind>) {
        kinds.push(F::Object::KIND);
    }

    fn handle(
        call: &Call<'_>,
        config: F::Config,
        cluster: &Cluster,
    ) -> Result<Result<Finalization, Failure>, F::Config> {
        if !call.is_for(&F::Object::KIND) {
            return Err(config);
        }
        Ok(call.object().and_then(|object| {
            let request = Request::new(object, config).after_failures(call.attempt());
            F::finalize(request, cluster)
        }))
    }
}

impl<D: Defaulter> Handlers<Defaulting, D::Config> for D {
    fn kinds(kinds: &mut Vec<Kind>) {
        kinds.push(D::KIND);
    }

    fn handle(
        call: &ReviewCall<'_>,
        config: D::Config,
        cluster: &Cluster,
    ) -> Result<Result<Value, Vec<FieldError>>, D::Config> {
        if !call.is_for(&D::KIND) {
            return Err(config);
        }
        Ok(match call.typed(config) {
            Ok(review) => D::apply_defaults(review, cluster),
            Err(error) => Err(vec![error]),
        })
    }
}

impl<V: Validator> Handlers<Validating, V::Config> for V {
    fn kinds(kinds: &mut Vec<Kind>) {
        kinds.push(V::Object::KIND);
    }

    fn handle(
        call: &ReviewCall<'_>,
        config: V::Config,
        cluster: &Cluster,
    ) -> Result<Result<Vec<String>, Vec<FieldError>>, V::Config> {
        if !call.is_for(&V::Object::KIND) {
            return Err(config);
        }
        Ok(match call.typed(config) {
            Ok(review) => V::validate(review, cluster),
            Err(error) => Err(vec![error]),
        })
    }
}

impl<C: Converter> Handlers<Converting, ()> for C {
    fn kinds(kinds: &mut Vec<Kind>) {
        kinds.push(C::KIND);
    }

    fn handle(call: &ConvertCall<'_>, (): (), _: &Cluster) -> Result<Result<Value, String>, ()> {
        let ConvertCall { object, api_version } = call;
        let group = |api_version: &str| {
            api_version
                .split_once('/')
                .map_or(String::new(), |(group, _)| group.to_owned())
        };
        if object["kind"] != C::KIND.kind || group(object["apiVersion"].as_str().unwrap_or_default()) != C::KIND.group {
            return Err(());
        }
        Ok(C::convert(object.clone(), api_version))
    }
}

macro_rules! handlers_of_tuple {
    ($($handler:ident)+) => {
        impl<I: Interface, Config, $($handler: Handlers<I, Config>),+> Handlers<I, Config> for ($($handler,)+) {
            fn kinds(kinds: &mut Vec<Kind>) {
                $(<$handler as Handlers<I, Config>>::kinds(kinds);)+
            }

            fn handle(call: &I::Call<'_>, config: Config, cluster: &Cluster) -> Result<I::Answer, Config> {
                $(
                    let config = match <$handler as Handlers<I, Config>>::handle(call, config, cluster) {
                        Err(config) => config,
                        answered => return answered,
                    };
                )+
                Err(config)
            }
        }
    };
}

handlers_of_tuple!(A);
handlers_of_tuple!(A B);
handlers_of_tuple!(A B C);
handlers_of_tuple!(A B C D);
handlers_of_tuple!(A B C D E);
handlers_of_tuple!(A B C D E F);
handlers_of_tuple!(A B C D E F G);
handlers_of_tuple!(A B C D E F G H);
