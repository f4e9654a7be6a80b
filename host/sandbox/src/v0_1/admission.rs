//! Shared parts of the optional interfaces `defaulter` and `validator`: bindings, the review that both receive, and the
//! bounds on a guest's refusals and warnings.

use pilothouse_core::Failure;
use pilothouse_core::plugin::contract;
use pilothouse_core::plugin::contract::{FieldError, FieldErrorKind, Phase, UserInfo};
use pilothouse_core::status::reason::Reason;

use crate::outcome::{MAX_GUEST_WORDS, shorten};
use bindings::pilothouse::plugin::{admission as guest, types};

pub(super) mod bindings {
    //! Generated from wit/.
    #![allow(missing_docs, clippy::pedantic, reason = "generated")]

    wasmtime::component::bindgen!({
        inline: "
            package pilothouse:optional-admission;
            world admission-only {
                export pilothouse:plugin/defaulter@0.1.0;
                export pilothouse:plugin/validator@0.1.0;
            }
        ",
        path: "wit",
    });
}

/// Most errors of a refusal, and most warnings, that are passed on to people; the last one counts the rest.
const MAX_TOLD: usize = 64;

/// Bytes of a field's path; longer ones are shortened.
const MAX_PATH: usize = 512;

/// Converts a review to the guest's type. This version has no extensions.
pub(super) fn review(review: &contract::Review) -> guest::Review {
    let contract::Review {
        phase,
        kind,
        object,
        old_object,
        configuration,
        user_info,
        dry_run,
    } = review;
    guest::Review {
        phase: match phase {
            Phase::Create => guest::Phase::Create,
            Phase::Update => guest::Phase::Update,
            Phase::Delete => guest::Phase::Delete,
            Phase::Reconcile => guest::Phase::Reconcile,
        },
        kind: types::GroupVersionKind {
            group: kind.group.clone(),
            version: kind.version.clone(),
            kind: kind.kind.clone(),
        },
        object: object.clone(),
        old_object: old_object.clone(),
        configuration: configuration.clone(),
        user_info: user_info.as_ref().map(|UserInfo { username, groups }| guest::UserInfo {
            username: username.clone(),
            groups: groups.clone(),
        }),
        dry_run: *dry_run,
        extensions: "{}".to_owned(),
    }
}

/// Returns the guest's reasons for refusing the object. A refusal without a reason is a failure of the plugin.
pub(super) fn refusal(errors: Vec<guest::FieldError>) -> Result<Vec<FieldError>, Failure> {
    if errors.is_empty() {
        return Err(Failure::guest(
            Reason::InvalidAnswer,
            "the plugin refuses the object with an empty list of errors; fix the plugin: say which field and why",
        ));
    }
    let over = errors.len().saturating_sub(MAX_TOLD);
    let told = errors.into_iter().take(MAX_TOLD).map(|error| FieldError {
        kind: kind(error.kind),
        path: shorten(&error.path, MAX_PATH),
        message: shorten(&error.message, MAX_GUEST_WORDS),
    });
    let more = (over > 0).then(|| FieldError {
        kind: FieldErrorKind::Invalid,
        path: String::new(),
        message: format!("and {over} more errors"),
    });
    Ok(told.chain(more).collect())
}

fn kind(kind: guest::FieldErrorKind) -> FieldErrorKind {
    match kind {
        guest::FieldErrorKind::Required => FieldErrorKind::Required,
        guest::FieldErrorKind::Duplicate => FieldErrorKind::Duplicate,
        guest::FieldErrorKind::Forbidden => FieldErrorKind::Forbidden,
        guest::FieldErrorKind::NotFound => FieldErrorKind::NotFound,
        guest::FieldErrorKind::Invalid => FieldErrorKind::Invalid,
    }
}

/// Returns the guest's warnings, shortened.
pub(super) fn warnings(warnings: Vec<String>) -> Vec<String> {
    let over = warnings.len().saturating_sub(MAX_TOLD);
    let told = warnings
        .into_iter()
        .take(MAX_TOLD)
        .map(|warning| shorten(&warning, MAX_GUEST_WORDS));
    let more = (over > 0).then(|| format!("and {over} more warnings"));
    told.chain(more).collect()
}
