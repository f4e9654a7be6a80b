//! Owns what authors of defaulters and validators see: a review, and what is wrong with a field.

use std::fmt;

use crate::raw::admission;

/// What somebody is about to do to an object, looked at before it is done.
///
/// `Object` is what the author of a [`Validator`](crate::Validator) looks at, and JSON for a
/// [`Defaulter`](crate::Defaulter).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Review<Object, Config = crate::NoConfig> {
    /// What is about to be done.
    pub operation: Operation,
    /// The object as it would be; when it is deleted, as it was.
    pub object: Object,
    /// The object as it was; none when it is created, or when it had not the form of the type.
    pub old: Option<Object>,
    /// The plugin's configuration.
    pub config: Config,
    /// Who does it. Empty where defaulter and validator run before a reconcile, which they do each time: a rule about users
    /// has to let an object without one pass.
    pub username: String,
    /// The groups of the one who does it.
    pub groups: Vec<String>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

impl<Object, Config> Review<Object, Config> {
    /// The review of an object that is created; for tests that call a validator directly.
    pub fn create(object: Object, config: Config) -> Self {
        Self {
            operation: Operation::Create,
            object,
            old: None,
            config,
            username: String::new(),
            groups: Vec::new(),
            dry_run: false,
        }
    }

    /// The review of an object that is changed; for tests that call a validator directly.
    pub fn update(old: Object, object: Object, config: Config) -> Self {
        Self {
            operation: Operation::Update,
            old: Some(old),
            ..Self::create(object, config)
        }
    }
}

/// What is about to be done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It is taken away.
    Delete,
}

impl Operation {
    pub(crate) fn lift(operation: admission::Operation) -> Self {
        match operation {
            admission::Operation::Create => Self::Create,
            admission::Operation::Update => Self::Update,
            admission::Operation::Delete => Self::Delete,
        }
    }
}

/// What is wrong with one field of an object.
///
/// ```
/// use pilothouse_plugin::FieldError;
///
/// let error = FieldError::new("spec.proxyPass", r#"unknown "noexists" variable"#);
/// assert_eq!(error.to_string(), r#"spec.proxyPass: unknown "noexists" variable"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    /// The field, for example `spec.rewrite[0].regex`; empty when it is the object as a whole.
    pub path: String,
    /// What is wrong with it, without the path and the value, which the host adds.
    pub message: String,
}

impl FieldError {
    /// An error of a field.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }

    #[cfg(target_family = "wasm")]
    pub(crate) fn lower(self) -> admission::FieldError {
        let Self { path, message } = self;
        admission::FieldError { path, message }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, message } = self;
        if path.is_empty() {
            formatter.write_str(message)
        } else {
            write!(formatter, "{path}: {message}")
        }
    }
}
