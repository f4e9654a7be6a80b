//! A plugin that is asked before its resources are stored: it fills in a colour, judges the size, converts between two
//! versions, and where `spec.behaviour` says so, misbehaves at it. Each resource desires a ConfigMap that shows what
//! reached reconcile. With `finalizer: true` in the configuration it has a finalizer, which lets a gate go that has a colour.
//!
//! It speaks the contract without the SDK, so that it is sure to say exactly what is written here.

#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

mod judge;

#[cfg(target_family = "wasm")]
#[allow(
    unsafe_code,
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    reason = "generated from wit/plugin.wit"
)]
mod component {
    //! Owns the component's side: the generated exports, and what they call.

    wit_bindgen::generate!({ path: "../../../wit", world: "plugin-with-everything" });

    use exports::pilothouse::plugin::{converter, defaulter, finalizer, manifest, reconciler, validator};
    use pilothouse::plugin::admission::{FieldErrorKind, Phase};
    use pilothouse::plugin::types::{
        Desired, Failure, GroupVersionKind, Lifecycle, ListOptions, Outcome, Ownership, Request,
    };

    use crate::judge;

    struct Gate;

    export!(Gate);

    impl manifest::Guest for Gate {
        fn describe(configuration: Option<String>) -> Result<String, String> {
            Ok(judge::manifest(configuration.as_deref()))
        }
    }

    impl reconciler::Guest for Gate {
        fn reconcile(request: Request) -> Result<Outcome, Failure> {
            Ok(Outcome {
                desired: vec![Desired {
                    object: judge::config_map(&request.object),
                    ownership: Ownership::Owned,
                    lifecycle: Lifecycle::empty(),
                    options: "{}".to_owned(),
                }],
                status: None,
                conditions: Vec::new(),
                events: Vec::new(),
                requeue_after: None,
                extensions: None,
            })
        }
    }

    impl finalizer::Guest for Gate {
        fn finalize(request: Request) -> Result<finalizer::Finalization, Failure> {
            if judge::is_complete(&request.object) {
                return Ok(finalizer::Finalization::Done);
            }
            Err(Failure::Permanent("the colour is not filled in".to_owned()))
        }
    }

    impl defaulter::Guest for Gate {
        fn apply_defaults(review: defaulter::Review) -> Result<String, Vec<defaulter::FieldError>> {
            Ok(judge::with_colour(
                &review.object.expect("it is never asked about deletions"),
            ))
        }
    }

    impl validator::Guest for Gate {
        fn validate(review: validator::Review) -> Result<Vec<String>, Vec<validator::FieldError>> {
            let object = review.object.expect("it is never asked about deletions");
            let config_map = GroupVersionKind {
                group: String::new(),
                version: "v1".to_owned(),
                kind: "ConfigMap".to_owned(),
            };
            let leave = |namespace: &str| {
                pilothouse::plugin::cluster::get(&config_map, Some(namespace), judge::LEAVE).is_some()
            };
            let coloured = |namespace: &str, colour: &str| {
                let options = ListOptions {
                    namespace: Some(namespace.to_owned()),
                    label_selector: None,
                    field_selector: vec![(".data.colour".to_owned(), colour.to_owned())],
                    limit: None,
                };
                pilothouse::plugin::cluster::list(&config_map, &options)
            };
            let is_reconcile = review.phase == Phase::Reconcile;
            judge::judge(&object, is_reconcile, leave, coloured)
                .map_err(|problems| problems.into_iter().map(lower).collect())
        }
    }

    fn lower(problem: judge::Problem) -> validator::FieldError {
        let judge::Problem { kind, path, message } = problem;
        validator::FieldError {
            kind: match kind {
                judge::Kind::Required => FieldErrorKind::Required,
                judge::Kind::Forbidden => FieldErrorKind::Forbidden,
                judge::Kind::NotFound => FieldErrorKind::NotFound,
                judge::Kind::Invalid => FieldErrorKind::Invalid,
            },
            path: path.to_owned(),
            message,
        }
    }

    impl converter::Guest for Gate {
        fn convert(object: String, api_version: String) -> Result<String, String> {
            for line in judge::said(&object) {
                pilothouse::plugin::log::log(pilothouse::plugin::log::Level::Info, &line, &[]);
            }
            judge::convert(&object, &api_version)
        }
    }
}
