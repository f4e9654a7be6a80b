//! Owns what authors of defaulters and validators see: a review, and what is wrong with a field.

use std::fmt;

use crate::raw::admission;

/// What a defaulter or a validator is given: an object that somebody is about to create, update or delete, or that is
/// about to be reconciled.
///
/// `Object` is what the author of a [`Validator`](crate::Validator) looks at, and JSON for a
/// [`Defaulter`](crate::Defaulter).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Review<Object, Config = crate::NoConfig> {
    /// Whether the object is about to be created, updated or deleted by somebody, or reconciled.
    pub phase: Phase,
    /// The object as it would be stored or is reconciled; when it is deleted, as it was.
    pub object: Object,
    /// The object as it was before an update or a deletion; none in other phases, or if the type cannot read it.
    pub old_object: Option<Object>,
    /// The plugin's configuration.
    pub configuration: Config,
    /// Who makes the request. None before a reconcile, where a rule about users has to accept the object.
    pub user_info: Option<UserInfo>,
    /// Whether the request is a dry run, of which nothing is stored.
    pub dry_run: bool,
}

impl<Object, Config> Review<Object, Config> {
    /// The review of an object that is created; for tests that call a validator directly.
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

    /// The review of an object that is changed; for tests that call a validator directly.
    pub fn update(old_object: Object, object: Object, configuration: Config) -> Self {
        Self {
            phase: Phase::Update,
            old_object: Some(old_object),
            ..Self::create(object, configuration)
        }
    }

    /// The review of an object that is about to be reconciled; for tests that call a validator directly.
    pub fn reconcile(object: Object, configuration: Config) -> Self {
        Self {
            phase: Phase::Reconcile,
            user_info: None,
            ..Self::create(object, configuration)
        }
    }
}

/// Who makes a request, as authentication/v1 UserInfo.
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

/// Why an object is reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Somebody is about to create it.
    Create,
    /// Somebody is about to update it.
    Update,
    /// Somebody is about to delete it. The host does not ask about deletions today.
    Delete,
    /// It is about to be reconciled. The host has each object reviewed then, because it may have been stored before the
    /// plugin or its webhooks were there.
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

/// How a field is wrong, as `field.ErrorType` of apimachinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// It is absent or empty.
    Required,
    /// Its value is there already.
    Duplicate,
    /// It must not be set or changed.
    Forbidden,
    /// Its value names something that does not exist.
    NotFound,
    /// Its value is wrong in another way.
    Invalid,
}

/// What is wrong with one field of an object. The host reports it in the API server's words, with the field's value:
/// `spec.size: Invalid value: -1: must not be negative`.
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
    /// How the field is wrong.
    pub kind: FieldErrorKind,
    /// The field, for example `spec.rewrite[0].regex`; empty when it is the object as a whole.
    pub path: String,
    /// What is wrong with it, without the path and the value, which the host adds; may be empty if the kind says it all.
    pub message: String,
}

impl FieldError {
    /// A field that is absent or empty.
    pub fn required(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, message)
    }

    /// A value that is there already, in a list for example.
    pub fn duplicate(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, message)
    }

    /// A field that must not be set or changed.
    pub fn forbidden(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, message)
    }

    /// A value that names something that does not exist.
    pub fn not_found(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::NotFound, path, message)
    }

    /// A value that is wrong in another way.
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
