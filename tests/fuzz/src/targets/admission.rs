//! Target `admission`: a review of an API server, from the body to the response, without the call of the plugin. The
//! input is the body, and after a line `---` the plugin's answer.

use pilothouse_core::admission::field_errors::InvalidObject;
use pilothouse_core::admission::{conversion, match_condition, patch, review};
use pilothouse_core::kubernetes::path::{FieldPath, Projection};
use pilothouse_core::plugin::contract::{FieldError, FieldErrorKind};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::refused;

pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (body, answer) = text.split_once("\n---\n").unwrap_or((text, "{}"));
    reviewed(body, answer);
    converted(body, answer);
}

fn reviewed(body: &str, answer: &str) {
    let request = match review::parse(body.as_bytes()) {
        Ok(request) => request,
        Err(error) => return refused(&error, ""),
    };
    if let Err(error) = match_condition::is_asked(&request) {
        return refused(&error, "");
    }
    let Some(object) = &request.object else { return };
    let spec = FieldPath::parse(".spec").expect("it is a path");
    let projections = [Projection::whole(), Projection::new([&spec]), Projection::default()];
    let whole: Value = match serde_json::from_str(object.get()) {
        Ok(whole) => whole,
        Err(error) => return refused(&error, ""),
    };
    for projection in projections {
        let shown = match projection.project(object, &request.kind) {
            Ok(shown) => shown,
            Err(error) => return refused(&error, ""),
        };
        let shown: Value = serde_json::from_str(&shown).expect("what is shown of an object is JSON");
        match patch::with_defaults(&whole, &shown, answer) {
            Ok(defaulted) => {
                let patch = patch::difference(&whole, &defaulted);
                let answer = review::allowed(&request.uid, &[], &patch);
                assert_eq!(answer["response"]["uid"], *request.uid);
            }
            Err(failure) => refused(&failure, ""),
        }
    }
    let error = |kind| FieldError {
        kind,
        path: answer.lines().next().unwrap_or_default().to_owned(),
        message: answer.to_owned(),
    };
    let errors = [FieldErrorKind::Invalid, FieldErrorKind::Forbidden].map(error);
    let refusal = InvalidObject::new(&request.kind, &request.name, &errors, &whole);
    let answer = review::refused(&request.uid, &refusal);
    assert_eq!(answer["response"]["allowed"], false);
}

fn converted(body: &str, answer: &str) {
    let request = match conversion::parse(body.as_bytes()) {
        Ok(request) => request,
        Err(error) => return refused(&error, "ConversionReview"),
    };
    let answer = request.answer(|object| {
        let shown = object.shown();
        assert!(
            serde_json::from_str::<&RawValue>(&shown).is_ok(),
            "what is shown of an object is JSON"
        );
        let converted = object.converted(answer, &request.desired);
        if let Err(problem) = &converted {
            refused(problem, "converted object");
        }
        converted
    });
    let answer = match answer {
        Ok(answer) => serde_json::from_str::<Value>(&answer).expect("an answer is JSON"),
        Err(error) => return refused(&error, "ConversionReview"),
    };
    assert_eq!(answer["response"]["uid"], *request.uid);
}
