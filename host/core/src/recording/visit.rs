//! Visits all texts of a call. Each record is destructured without `..`, so that masking misses none.

use super::{
    RecordedAnswer, RecordedCall, RecordedCondition, RecordedDesired, RecordedEvent, RecordedFailure,
    RecordedFieldError, RecordedGet, RecordedInput, RecordedList, RecordedLog, RecordedOutcome, RecordedRead,
    RecordedRequest, RecordedReview, RecordedUser, Tree,
};
use crate::kubernetes::key::Kind;

/// A visitor that may change texts.
pub(super) trait Visitor {
    /// Visits a document; `kind` is that of the object, if known.
    fn document(&mut self, tree: &mut Tree, kind: Option<&Kind>);
    /// Visits any text.
    fn text(&mut self, text: &mut String);
    /// Visits the name of an object or of a namespace.
    fn name(&mut self, name: &mut String);
}

impl RecordedCall {
    /// Shows every text to a visitor.
    pub(super) fn visit(&mut self, visitor: &mut dyn Visitor) {
        let Self {
            number: _,
            controller: _,
            kind,
            namespace,
            name,
            time: _,
            input,
            reads,
            log,
            answer,
            usage: _,
        } = self;
        if let Some(namespace) = namespace {
            visitor.name(namespace);
        }
        visitor.name(name);
        match input {
            RecordedInput::Reconcile(request) | RecordedInput::Finalize(request) => {
                visit_request(request, kind, visitor);
            }
            RecordedInput::ApplyDefaults(review) | RecordedInput::Validate(review) => {
                visit_review(review, kind, visitor);
            }
        }
        for read in reads {
            visit_read(read, visitor);
        }
        for RecordedLog {
            level: _,
            message,
            fields,
        } in log
        {
            visitor.text(message);
            for (name, value) in fields {
                visitor.text(name);
                visitor.text(value);
            }
        }
        visit_answer(answer, kind, visitor);
    }
}

fn visit_request(request: &mut RecordedRequest, kind: &Kind, visitor: &mut dyn Visitor) {
    let RecordedRequest {
        object,
        configuration,
        attempt: _,
    } = request;
    visitor.document(object, Some(kind));
    visitor.document(configuration, None);
}

fn visit_review(review: &mut RecordedReview, kind: &Kind, visitor: &mut dyn Visitor) {
    let RecordedReview {
        phase: _,
        object,
        old_object,
        configuration,
        user,
        dry_run: _,
    } = review;
    for object in object.iter_mut().chain(old_object) {
        visitor.document(object, Some(kind));
    }
    visitor.document(configuration, None);
    if let Some(RecordedUser { username, groups }) = user {
        visitor.text(username);
        for group in groups {
            visitor.text(group);
        }
    }
}

fn visit_read(read: &mut RecordedRead, visitor: &mut dyn Visitor) {
    match read {
        RecordedRead::Get(RecordedGet {
            kind,
            namespace,
            name,
            answer,
            failure,
        }) => {
            if let Some(namespace) = namespace {
                visitor.name(namespace);
            }
            visitor.name(name);
            if let Some(object) = answer {
                visitor.document(object, Some(kind));
            }
            if let Some(failure) = failure {
                visit_failure(failure, visitor);
            }
        }
        RecordedRead::List(RecordedList {
            kind,
            namespace,
            label_selector,
            field_selector,
            limit: _,
            answer,
            failure,
        }) => {
            if let Some(namespace) = namespace {
                visitor.name(namespace);
            }
            if let Some(selector) = label_selector {
                visitor.text(selector);
            }
            for (_, value) in field_selector {
                visitor.text(value);
            }
            for object in answer {
                visitor.document(object, Some(kind));
            }
            if let Some(failure) = failure {
                visit_failure(failure, visitor);
            }
        }
        RecordedRead::Now { .. } | RecordedRead::Reached { .. } => {}
    }
}

fn visit_answer(answer: &mut RecordedAnswer, kind: &Kind, visitor: &mut dyn Visitor) {
    match answer {
        RecordedAnswer::Outcome(RecordedOutcome {
            desired,
            status,
            conditions,
            events,
            requeue_after: _,
        }) => {
            for RecordedDesired {
                how: _,
                object,
                options,
            } in desired
            {
                visitor.document(object, None);
                if let Some(options) = options {
                    visitor.document(options, None);
                }
            }
            if let Some(status) = status {
                visitor.document(status, None);
            }
            for RecordedCondition {
                type_,
                status: _,
                reason,
                message,
            } in conditions
            {
                for text in [type_, reason, message] {
                    visitor.text(text);
                }
            }
            for RecordedEvent {
                type_: _,
                reason,
                message,
            } in events
            {
                for text in [reason, message] {
                    visitor.text(text);
                }
            }
        }
        RecordedAnswer::Done => {}
        RecordedAnswer::Defaulted(object) => visitor.document(object, Some(kind)),
        RecordedAnswer::Valid(warnings) => {
            for warning in warnings {
                visitor.text(warning);
            }
        }
        RecordedAnswer::Invalid(errors) => {
            for RecordedFieldError { kind: _, path, message } in errors {
                visitor.text(path);
                visitor.text(message);
            }
        }
        RecordedAnswer::Failed(failure) => visit_failure(failure, visitor),
    }
}

fn visit_failure(failure: &mut RecordedFailure, visitor: &mut dyn Visitor) {
    let RecordedFailure {
        blame: _,
        reason: _,
        retry: _,
        message,
    } = failure;
    visitor.text(message);
}
