//! Errors of single fields, worded as a real server words them.

use serde_json::Value;

/// Type of a field's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    Required,
    Invalid,
    /// The type differs from the schema's; shown like `Invalid`, but another cause.
    Type,
    NotSupported,
    Forbidden,
    Duplicate,
    NotFound,
    TooLong,
    TooMany,
}

impl Wrong {
    fn cause(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::Type => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::Type => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// One fault of an object, with its path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldError {
    kind: Wrong,
    pub(crate) field: String,
    /// Value as it is shown; None where the error's type shows no value.
    value: Option<String>,
    detail: String,
}

impl FieldError {
    pub(crate) fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind: Wrong::Required,
            field: field.into(),
            value: None,
            detail: detail.into(),
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self {
            kind: Wrong::Invalid,
            field: field.into(),
            value: Some(shown(value)),
            detail: detail.into(),
        }
    }

    /// Creates an error that shows a word for the value, not the value itself.
    pub(crate) fn with_shown(kind: Wrong, field: impl Into<String>, shown: &str, detail: impl Into<String>) -> Self {
        Self {
            kind,
            field: field.into(),
            value: Some(shown.to_owned()),
            detail: detail.into(),
        }
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind: Wrong::Forbidden,
            field: field.into(),
            value: None,
            detail: detail.into(),
        }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            kind: Wrong::Duplicate,
            field: field.into(),
            value: Some(shown(value)),
            detail: String::new(),
        }
    }

    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self {
            kind: Wrong::NotFound,
            field: field.into(),
            value: Some(shown(value)),
            detail: String::new(),
        }
    }

    pub(crate) fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let detail = format!("may not be more than {limit} bytes");
        Self {
            kind: Wrong::TooLong,
            field: field.into(),
            value: None,
            detail,
        }
    }

    pub(crate) fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        let detail = format!("must have at most {limit} items");
        Self {
            kind: Wrong::TooMany,
            field: field.into(),
            value: Some(actual.to_string()),
            detail,
        }
    }

    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self {
            kind: Wrong::NotSupported,
            field: field.into(),
            value: Some(shown(value)),
            detail,
        }
    }

    /// Returns `true` if rules cannot be evaluated over an object with this error.
    pub(crate) fn blocks_rules(&self) -> bool {
        matches!(
            self.kind,
            Wrong::NotSupported | Wrong::Required | Wrong::TooLong | Wrong::TooMany | Wrong::Type
        )
    }

    /// Returns the machine-readable cause.
    pub(crate) fn cause(&self) -> &'static str {
        self.kind.cause()
    }

    /// The message without the field.
    pub(crate) fn body(&self) -> String {
        let mut text = self.kind.words().to_owned();
        if let Some(value) = &self.value {
            text.push_str(": ");
            text.push_str(value);
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.field, self.body())
    }
}

/// A value as field errors show it: strings quoted, the rest as JSON.
fn shown(value: &Value) -> String {
    value.to_string()
}
