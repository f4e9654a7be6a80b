//! The error of all artifact operations: its kind, for decisions, and a message for people that names the reference,
//! the cause and the next step.

use std::time::Duration;

/// The kind of an error, as far as callers decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A text is not a reference or a location.
    Reference,
    /// A configuration or a pull secret is invalid.
    Configuration,
    /// The trust policy does not allow the artifact, or a Plugin must not name that host.
    NotAllowed,
    /// The registry's host name does not resolve.
    UnknownHost,
    /// The connection could not be established, or broke.
    Unreachable,
    /// The registry's certificate is not acceptable.
    Certificate,
    /// The registry requires other credentials (401).
    Unauthorized,
    /// The credentials do not permit the operation (403).
    Forbidden,
    /// The repository, tag, manifest or blob does not exist (404).
    NotFound,
    /// The registry throttles (429).
    TooManyRequests,
    /// The registry failed (5xx).
    Server,
    /// The response violates the protocol or this client's rules.
    Protocol,
    /// The registry took too long, for the whole response or for the next bytes.
    Timeout,
    /// A value exceeds its limit.
    TooLarge,
    /// A manifest is not that of a plugin, or cannot be read at all.
    NotAPlugin,
    /// Bytes do not have the requested digest.
    DigestMismatch,
    /// A blob ended before its declared size.
    Truncated,
    /// A directory or tar is not an OCI layout, or its index cannot be read.
    Layout,
    /// A file of this machine cannot be read or written.
    Io,
}

/// The reason why an artifact operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ArtifactError {
    kind: ErrorKind,
    message: String,
    retry_after: Option<Duration>,
}

impl ArtifactError {
    /// An error with a message that names the object, the cause and the next step.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }

    /// An error of a local file.
    pub fn io(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        let next = match error.kind() {
            std::io::ErrorKind::StorageFull => "; free space on that file system",
            std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
                "; check the permissions of the path"
            }
            _ => "",
        };
        Self::new(
            ErrorKind::Io,
            format!("cannot {what} {}: {error}{next}", path.display()),
        )
    }

    pub(crate) fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The delay that the registry requested, at most a minute.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Reports whether the same request may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::UnknownHost
                | ErrorKind::Unreachable
                | ErrorKind::TooManyRequests
                | ErrorKind::Server
                | ErrorKind::Timeout
                | ErrorKind::Truncated
        )
    }
}

/// An untrusted text, fit for a message: one line, printable, and of bounded length.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 200;
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}
