//! Types for authors of defaulters and validators: a review, and the errors of its fields.

use std::fmt;

use crate::raw::admission;

/// The input of a defaulter or a validator: an object about to be created, updated, deleted or reconciled.
///
/// `Object` is the type of the [`Validator`](crate::Validator), and JSON for a [`Defaulter`](crate::Defaulter).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Review<Object, Config = crate::NoConfig> {
    /// Reason for the review.
    pub phase: Phase,
    /// The object as it would be stored or is reconciled; for a deletion, its last state.
    pub object: Object,
    /// The object before an update or a deletion; none in other phases, or if the type cannot read it.
    pub old_object: Option<Object>,
    /// The plugin's configuration.
    pub configuration: Config,
    /// The user who makes the request. None before a reconcile, where a rule about users has to accept the object.
    pub user_info: Option<UserInfo>,
    /// Set if the request is a dry run, which stores nothing.
    pub dry_run: bool,
}

impl<Object, Config> Review<Object, Config> {
    /// Returns the review of an object that is created; for tests that call a validator directly.
    pub fn create(object: Object, configuration: Config) -> Self {
        Self {
            phase: Phase::Create,
            object,
            old_object: None,
            configuration,
            user_info: Some(UserInfo::default()),
            dry_run: false,
        }
    }

    /// Returns the review of an object that is updated; for tests that call a validator directly.
    pub fn update(old_object: Object, object: Object, configuration: Config) -> Self {
        Self {
            phase: Phase::Update,
            old_object: Some(old_object),
            ..Self::create(object, configuration)
        }
    }

    /// Returns the review of an object that is about to be reconciled; for tests that call a validator directly.
    pub fn reconcile(object: Object, configuration: Config) -> Self {
        Self {
            phase: Phase::Reconcile,
            user_info: None,
            ..Self::create(object, configuration)
        }
    }
}

/// The user who makes a request, like UserInfo of authentication/v1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserInfo {
    /// The user's name.
    pub username: String,
    /// The groups that the user is in.
    pub groups: Vec<String>,
}

impl UserInfo {
    pub(crate) fn lift(user_info: &admission::UserInfo) -> Self {
        let admission::UserInfo { username, groups } = user_info;
        Self {
            username: username.clone(),
            groups: groups.clone(),
        }
    }
}

/// Reason for a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A request is about to create the object.
    Create,
    /// A request is about to update the object.
    Update,
    /// A request is about to delete the object. The host does not send such reviews today.
    Delete,
    /// The object is about to be reconciled. The host has each object reviewed then, because it may have been stored
    /// before the plugin or its webhooks were installed.
    Reconcile,
}

impl Phase {
    pub(crate) fn lift(phase: admission::Phase) -> Self {
        match phase {
            admission::Phase::Create => Self::Create,
            admission::Phase::Update => Self::Update,
            admission::Phase::Delete => Self::Delete,
            admission::Phase::Reconcile => Self::Reconcile,
        }
    }
}

/// Kind of a field's error, like `field.ErrorType` of apimachinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// The field is absent or empty.
    Required,
    /// The value occurs already.
    Duplicate,
    /// The field must not be set or changed.
    Forbidden,
    /// The value names something that does not exist.
    NotFound,
    /// The value is invalid for another reason.
    Invalid,
}

/// An error in one field of an object. The host reports it as the API server does, with the field's value: `spec.size:
/// Invalid value: -1: must not be negative`.
///
/// ```
/// use pilothouse_plugin::FieldError;
///
/// let error = FieldError::invalid("spec.proxyPass", r#"unknown "noexists" variable"#);
/// assert_eq!(error.to_string(), r#"spec.proxyPass: Invalid value: unknown "noexists" variable"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    /// Kind of the error.
    pub kind: FieldErrorKind,
    /// The field, for example `spec.rewrite[0].regex`; empty if the error is about the whole object.
    pub path: String,
    /// Description, without the path and the value, which the host adds; may be empty if the kind is enough.
    pub message: String,
}

impl FieldError {
    /// Returns the error of a field that is absent or empty.
    pub fn required(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, message)
    }

    /// Returns the error of a value that occurs already, in a list for example.
    pub fn duplicate(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, message)
    }

    /// Returns the error of a field that must not be set or changed.
    pub fn forbidden(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, message)
    }

    /// Returns the error of a value that names something that does not exist.
    pub fn not_found(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::NotFound, path, message)
    }

    /// Returns the error of a value that is invalid for another reason.
    pub fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, message)
    }

    fn new(kind: FieldErrorKind, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            path: path.into(),
            message: message.into(),
        }
    }

    #[cfg(target_family = "wasm")]
    pub(crate) fn lower(self) -> admission::FieldError {
        let Self { kind, path, message } = self;
        let kind = match kind {
            FieldErrorKind::Required => admission::FieldErrorKind::Required,
            FieldErrorKind::Duplicate => admission::FieldErrorKind::Duplicate,
            FieldErrorKind::Forbidden => admission::FieldErrorKind::Forbidden,
            FieldErrorKind::NotFound => admission::FieldErrorKind::NotFound,
            FieldErrorKind::Invalid => admission::FieldErrorKind::Invalid,
        };
        admission::FieldError { kind, path, message }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, path, message } = self;
        let kind = match kind {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::Invalid if path.is_empty() => "",
            FieldErrorKind::Invalid => "Invalid value",
        };
        let parts = [path, kind, message].into_iter().filter(|part| !part.is_empty());
        for (index, part) in parts.enumerate() {
            let separator = if index == 0 { "" } else { ": " };
            write!(formatter, "{separator}{part}")?;
        }
        Ok(())
    }
}
