//! Converts types of the contract into those of a recording, and back where a replay needs them.

use super::{
    RecordedAnswer, RecordedCondition, RecordedDesired, RecordedEvent, RecordedFailure, RecordedFieldError,
    RecordedGet, RecordedList, RecordedLog, RecordedOutcome, RecordedPhase, RecordedRequest, RecordedReview,
    RecordedUser, Tree,
};
use crate::kubernetes::key::Kind;
use crate::plugin::contract::{
    Condition, DefaulterResult, Desired, Event, EventType, FieldError, Finalization, ListOptions, LogLevel, Outcome,
    Ownership, Phase, Request, Review, UserInfo, ValidatorResult,
};
use crate::status::failure::{Blame, Failure, Retry};
use crate::status::reason::Reason;

impl From<&Request> for RecordedRequest {
    fn from(request: &Request) -> Self {
        let Request {
            object,
            configuration,
            attempt,
        } = request;
        Self {
            object: Tree::read(object),
            configuration: Tree::read(configuration),
            attempt: *attempt,
        }
    }
}

impl From<&RecordedRequest> for Request {
    fn from(request: &RecordedRequest) -> Self {
        let RecordedRequest {
            object,
            configuration,
            attempt,
        } = request;
        Self {
            object: object.text(),
            configuration: configuration.text(),
            attempt: *attempt,
        }
    }
}

impl From<&Review> for RecordedReview {
    fn from(review: &Review) -> Self {
        let Review {
            phase,
            kind: _,
            object,
            old_object,
            configuration,
            user_info,
            dry_run,
        } = review;
        let user = |user: &UserInfo| RecordedUser {
            username: user.username.clone(),
            groups: user.groups.clone(),
        };
        Self {
            phase: match phase {
                Phase::Create => RecordedPhase::Create,
                Phase::Update => RecordedPhase::Update,
                Phase::Delete => RecordedPhase::Delete,
                Phase::Reconcile => RecordedPhase::Reconcile,
            },
            object: object.as_deref().map(Tree::read),
            old_object: old_object.as_deref().map(Tree::read),
            configuration: Tree::read(configuration),
            user: user_info.as_ref().map(user),
            dry_run: *dry_run,
        }
    }
}

impl RecordedReview {
    /// The original review, of an object of this kind.
    pub fn review(&self, kind: &Kind) -> Review {
        let Self {
            phase,
            object,
            old_object,
            configuration,
            user,
            dry_run,
        } = self;
        let user_info = |user: &RecordedUser| UserInfo {
            username: user.username.clone(),
            groups: user.groups.clone(),
        };
        Review {
            phase: match phase {
                RecordedPhase::Create => Phase::Create,
                RecordedPhase::Update => Phase::Update,
                RecordedPhase::Delete => Phase::Delete,
                RecordedPhase::Reconcile => Phase::Reconcile,
            },
            kind: kind.clone(),
            object: object.as_ref().map(Tree::text),
            old_object: old_object.as_ref().map(Tree::text),
            configuration: configuration.text(),
            user_info: user.as_ref().map(user_info),
            dry_run: *dry_run,
        }
    }
}

impl RecordedGet {
    /// A read with its answer.
    pub fn new(kind: &Kind, namespace: Option<&str>, name: &str, answer: &Result<Option<String>, Failure>) -> Self {
        let (answer, failure) = match answer {
            Ok(answer) => (answer.as_deref().map(Tree::read), None),
            Err(failure) => (None, Some(failure.into())),
        };
        Self {
            kind: kind.clone(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            answer,
            failure,
        }
    }
}

impl RecordedList {
    /// A read with its answer.
    pub fn new(kind: &Kind, options: &ListOptions, answer: &Result<Vec<String>, Failure>) -> Self {
        let (answer, failure) = match answer {
            Ok(answer) => (answer.iter().map(|text| Tree::read(text)).collect(), None),
            Err(failure) => (Vec::new(), Some(failure.into())),
        };
        let ListOptions {
            namespace,
            label_selector,
            field_selector,
            limit,
        } = options.clone();
        Self {
            kind: kind.clone(),
            namespace,
            label_selector,
            field_selector,
            limit,
            answer,
            failure,
        }
    }

    /// The options of the list.
    pub fn options(&self) -> ListOptions {
        ListOptions {
            namespace: self.namespace.clone(),
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            limit: self.limit,
        }
    }
}

impl RecordedLog {
    /// A log line.
    pub fn new(level: LogLevel, message: &str, fields: &[(String, String)]) -> Self {
        let level = match level {
            LogLevel::Trace => "trace",
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        Self {
            level: level.to_owned(),
            message: message.to_owned(),
            fields: fields.to_vec(),
        }
    }
}

impl RecordedAnswer {
    /// The result of a reconcile.
    pub fn reconciled(result: &Result<Outcome, Failure>) -> Self {
        match result {
            Ok(outcome) => Self::Outcome(outcome.into()),
            Err(failure) => Self::Failed(failure.into()),
        }
    }

    /// The result of a finalize.
    pub fn finalized(result: &Result<Finalization, Failure>) -> Self {
        match result {
            Ok(Finalization::Done) => Self::Done,
            Ok(Finalization::Pending(outcome)) => Self::Outcome(outcome.into()),
            Err(failure) => Self::Failed(failure.into()),
        }
    }

    /// The result of a defaulter.
    pub fn defaulted(result: &Result<DefaulterResult, Failure>) -> Self {
        match result {
            Ok(Ok(object)) => Self::Defaulted(Tree::read(object)),
            Ok(Err(errors)) => Self::Invalid(errors.iter().map(RecordedFieldError::from).collect()),
            Err(failure) => Self::Failed(failure.into()),
        }
    }

    /// The result of a validator.
    pub fn validated(result: &Result<ValidatorResult, Failure>) -> Self {
        match result {
            Ok(Ok(warnings)) => Self::Valid(warnings.clone()),
            Ok(Err(errors)) => Self::Invalid(errors.iter().map(RecordedFieldError::from).collect()),
            Err(failure) => Self::Failed(failure.into()),
        }
    }
}

impl From<&Outcome> for RecordedOutcome {
    fn from(outcome: &Outcome) -> Self {
        let Outcome {
            desired,
            status,
            conditions,
            events,
            requeue_after,
        } = outcome;
        Self {
            desired: desired.iter().map(RecordedDesired::from).collect(),
            status: status.as_deref().map(Tree::read),
            conditions: conditions.iter().map(RecordedCondition::from).collect(),
            events: events.iter().map(RecordedEvent::from).collect(),
            requeue_after: *requeue_after,
        }
    }
}

impl From<&Desired> for RecordedDesired {
    fn from(desired: &Desired) -> Self {
        let Desired {
            object,
            ownership,
            lifecycle,
            options,
        } = desired;
        let ownership = match ownership {
            Ownership::Owned => "owned",
            Ownership::Contributed => "contributed",
        };
        let how = [
            (true, ownership),
            (lifecycle.create_only, "create-only"),
            (lifecycle.keep, "keep"),
            (lifecycle.recreate, "recreate"),
        ];
        let how = how.into_iter().filter(|(holds, _)| *holds);
        Self {
            how: how.map(|(_, word)| word.to_owned()).collect(),
            object: Tree::read(object),
            options: Some(Tree::read(options)).filter(|options| *options != Tree::Object(Vec::new())),
        }
    }
}

impl From<&Condition> for RecordedCondition {
    fn from(condition: &Condition) -> Self {
        let Condition {
            type_,
            status,
            reason,
            message,
        } = condition;
        Self {
            type_: type_.clone(),
            status: status.as_str().to_owned(),
            reason: reason.clone(),
            message: message.clone(),
        }
    }
}

impl From<&Event> for RecordedEvent {
    fn from(event: &Event) -> Self {
        let Event { type_, reason, message } = event;
        let type_ = match type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        Self {
            type_: type_.to_owned(),
            reason: reason.clone(),
            message: message.clone(),
        }
    }
}

impl From<&FieldError> for RecordedFieldError {
    fn from(error: &FieldError) -> Self {
        let FieldError { kind, path, message } = error;
        Self {
            kind: format!("{kind:?}"),
            path: path.clone(),
            message: message.clone(),
        }
    }
}

impl From<&Failure> for RecordedFailure {
    fn from(failure: &Failure) -> Self {
        let Failure {
            blame,
            retry,
            at_least: _,
            reason,
            message,
        } = failure;
        Self {
            blame: blame.to_string(),
            reason: reason.to_string(),
            retry: match retry {
                Retry::Backoff => "backoff".to_owned(),
                Retry::Change => "change".to_owned(),
            },
            message: message.clone(),
        }
    }
}

impl RecordedFailure {
    /// The original failure. Unknown values of other host versions become a fault of the host.
    pub fn failure(&self) -> Failure {
        let Self {
            blame,
            reason,
            retry,
            message,
        } = self;
        let blames = [Blame::Guest, Blame::User, Blame::Cluster, Blame::Host];
        let blame = blames.into_iter().find(|it| it.to_string() == *blame);
        let reason = Reason::ALL.into_iter().find(|it| it.as_str() == reason);
        let mut failure = Failure::host(reason.unwrap_or(Reason::HostFault), message);
        failure.blame = blame.unwrap_or(Blame::Host);
        failure.retry(if retry == "change" {
            Retry::Change
        } else {
            Retry::Backoff
        })
    }
}
