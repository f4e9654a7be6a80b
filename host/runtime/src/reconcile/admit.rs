//! Runs the plugin's defaulter, then its validator, before each reconcile, as a part of the second stage. Whether they
//! ran at admission makes no difference: a second host, or the next process, could not know it, and would get another
//! result. A refusal becomes the condition. Reads the cache through the plugin's view.
//!
//! An object that is being deleted gets its defaults, too, but is never refused: an invalid object must remain
//! deletable. If the defaulter refuses it, it is finalized as it is.

use std::time::Duration;

use pilothouse_core::Failure;
use pilothouse_core::admission::field_errors::InvalidObject;
use pilothouse_core::admission::patch::with_defaults;
use pilothouse_core::plugin::contract::{FieldError, Phase, Request, Review};
use pilothouse_core::recording::{RecordedAnswer, RecordedInput};
use pilothouse_core::status::reason::Reason;
use serde_json::Value;

use crate::lanes::lane::Lane;
use crate::view::View;

/// Result of admission, with the usage of the calls.
pub struct Admitted {
    /// The request with defaults filled in, or why the object is refused.
    pub result: Result<Request, Failure>,
    /// The view, with the recorded reads.
    pub view: View,
    /// Time spent in the guest.
    pub used: Duration,
}

/// Calls the defaulter and the validator, if the plugin has them for this kind; only the defaulter for an object that
/// is being deleted. Blocks while they run.
pub fn admit(lane: &Lane, name: &str, is_deleting: bool, request: Request, view: View) -> Admitted {
    let Request {
        object,
        configuration,
        attempt,
    } = request;
    let mut review = Review {
        phase: Phase::Reconcile,
        kind: lane.grants.primary().clone(),
        object: Some(object.clone()),
        old_object: None,
        configuration: configuration.clone(),
        user_info: None,
        dry_run: false,
    };
    let (mut object, mut view, mut used) = (object, view, Duration::ZERO);
    if lane.asked.defaulter {
        let call = lane.component.apply_defaults(&review, &lane.limits, view);
        (view, used) = (call.imports, used + call.usage.time);
        view.record(
            || RecordedInput::ApplyDefaults((&review).into()),
            || RecordedAnswer::defaulted(&call.result),
            &call.usage,
        );
        match call.result.and_then(|answer| match answer {
            Ok(answer) => defaulted(&object, &answer),
            Err(_) if is_deleting => Ok(object.clone()),
            Err(errors) => Err(refused(lane, name, &errors, &object)),
        }) {
            Ok(defaulted) => {
                review.object = Some(defaulted.clone());
                object = defaulted;
            }
            Err(failure) => {
                let result = Err(failure);
                return Admitted { result, view, used };
            }
        }
    }
    if lane.asked.validator && !is_deleting {
        let call = lane.component.validate(&review, &lane.limits, view);
        (view, used) = (call.imports, used + call.usage.time);
        view.record(
            || RecordedInput::Validate((&review).into()),
            || RecordedAnswer::validated(&call.result),
            &call.usage,
        );
        let refusal = match call.result {
            Ok(Ok(warnings)) => {
                if !warnings.is_empty() {
                    tracing::debug!(lane = lane.title(), object = name, ?warnings, "the validator warns");
                }
                None
            }
            Ok(Err(errors)) => Some(refused(lane, name, &errors, &object)),
            Err(failure) => Some(failure),
        };
        if let Some(failure) = refusal {
            let result = Err(failure);
            return Admitted { result, view, used };
        }
    }
    let result = Ok(Request {
        object,
        configuration,
        attempt,
    });
    Admitted { result, view, used }
}

fn defaulted(shown: &str, answer: &str) -> Result<String, Failure> {
    let shown = parsed(shown)?;
    with_defaults(&shown, &shown, answer).map(|object| object.to_string())
}

fn refused(lane: &Lane, name: &str, errors: &[FieldError], object: &str) -> Failure {
    let object = match parsed(object) {
        Ok(object) => object,
        Err(failure) => return failure,
    };
    let refusal = InvalidObject::new(lane.grants.primary(), name, errors, &object);
    Failure::user(Reason::Invalid, format!("{}; correct the object", refusal.message()))
}

/// Parses an object. The plugin sees it as stored, so it may nest too deep or have a number that is too large.
fn parsed(object: &str) -> Result<Value, Failure> {
    serde_json::from_str(object).map_err(|error| {
        let problem = format!("the object cannot be read: {error}; reduce its nesting or the size of its numbers");
        Failure::user(Reason::Invalid, problem)
    })
}
