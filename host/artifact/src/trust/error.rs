//! The errors for refused artifacts and unusable trust files, with their messages.

use std::fmt;
use std::path::PathBuf;

/// The highest number of found signatures that a message describes.
const DESCRIBED: usize = 4;

/// The longest text from a signature that a message repeats, in characters.
const QUOTED: usize = 160;

/// The reason why an artifact may not run.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// No rule of the trust file matches the repository, and its default refuses, or the text names no repository.
    #[error("{repository} is not an allowed repository: {cause}")]
    NotAllowed {
        /// The repository, as it was given.
        repository: String,
        /// The cause, and what to do.
        cause: String,
    },
    /// The rule needs a signature, and the artifact has none.
    #[error("{0}")]
    Unsigned(Box<Refusal>),
    /// The artifact has signatures, but none by a signer that the rule accepts.
    #[error("{0}")]
    UnknownSigner(Box<Refusal>),
    /// A signature claims an accepted signer or cannot be parsed, and is invalid: it is over another digest, was
    /// altered, its certificate had expired, or evidence is missing.
    #[error("{0}")]
    InvalidSignature(Box<Refusal>),
    /// The trust file itself cannot be used.
    #[error(transparent)]
    Policy(#[from] TrustPolicyError),
}

/// The kind of a [`TrustError`], which is the reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustErrorKind {
    /// The repository is not allowed.
    NotAllowed,
    /// There is no signature.
    Unsigned,
    /// No signature is by an accepted signer.
    UnknownSigner,
    /// A signature is invalid.
    InvalidSignature,
    /// The trust file cannot be used.
    Policy,
}

/// The found signatures of an artifact, and the signers that its rule accepts.
#[derive(Debug)]
pub struct Refusal {
    /// `repository@digest`.
    pub(super) artifact: String,
    /// The rule's description.
    pub(super) rule: String,
    /// The signers that the rule accepts.
    pub(super) accepts: String,
    /// The signatures, with the reason why each is refused, the most relevant one first.
    pub(super) found: Vec<Rejection>,
    /// The next step.
    pub(super) next: &'static str,
}

/// The reason why a signature is refused. Texts are quoted from the signature, which is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// The signature is longer than the limit.
    TooLarge { bytes: usize, limit: usize },
    /// The signature cannot be parsed.
    Malformed(String),
    /// The signature is well-formed, but its form is not supported.
    Unsupported(String),
    /// The statement is about the artifact but does not sign it.
    Attestation { predicate: String },
    /// The signature is a certificate's where keys are accepted, or the other way round.
    OtherKind { found: &'static str },
    /// The signature is by no accepted key.
    UnknownKey { hint: Option<String> },
    /// The certificate matches no accepted identity.
    UnknownIdentity { identity: String, issuer: String },
    /// The signature is over another digest; the signer is known if the signature itself is valid.
    OtherDigest { digest: String, signer: Option<String> },
    /// The signature names an accepted signer, but is not the signer's.
    Altered { signer: String },
    /// The certificate is not trusted.
    Certificate { signer: String, cause: String },
    /// The proof of the transparency log or of the time is missing or not trusted.
    Evidence { signer: String, cause: String },
}

impl TrustError {
    /// The kind of the error.
    pub fn kind(&self) -> TrustErrorKind {
        match self {
            Self::NotAllowed { .. } => TrustErrorKind::NotAllowed,
            Self::Unsigned(_) => TrustErrorKind::Unsigned,
            Self::UnknownSigner(_) => TrustErrorKind::UnknownSigner,
            Self::InvalidSignature(_) => TrustErrorKind::InvalidSignature,
            Self::Policy(_) => TrustErrorKind::Policy,
        }
    }

    /// The error for an artifact without an accepted signature; `has_file` is set if there is a trust file.
    pub(super) fn refused(
        artifact: String,
        rule: String,
        accepts: String,
        mut found: Vec<Rejection>,
        has_file: bool,
    ) -> Self {
        found.sort_by_key(|rejection| std::cmp::Reverse(rejection.rank()));
        let (make, next): (fn(Box<Refusal>) -> Self, _) = match found.first().map(Rejection::kind) {
            None | Some(TrustErrorKind::Unsigned) if !has_file => {
                (Self::Unsigned, "sign the artifact with cosign sign --key")
            }
            None | Some(TrustErrorKind::Unsigned) => (
                Self::Unsigned,
                "sign the artifact with cosign sign, or let the trust file accept the repository with unsigned: true",
            ),
            Some(TrustErrorKind::UnknownSigner) if !has_file => {
                (Self::UnknownSigner, "give the public key of whoever signed it")
            }
            Some(TrustErrorKind::UnknownSigner) => (
                Self::UnknownSigner,
                "sign the artifact as an accepted signer, or add its signer to the trust file",
            ),
            Some(_) => (
                Self::InvalidSignature,
                "do not run the artifact before its publisher has signed exactly this digest again",
            ),
        };
        make(Box::new(Refusal {
            artifact,
            rule,
            accepts,
            found,
            next,
        }))
    }
}

impl TrustErrorKind {
    /// The kind as the reason of a condition.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotAllowed => "NotAllowed",
            Self::Unsigned => "Unsigned",
            Self::UnknownSigner => "UnknownSigner",
            Self::InvalidSignature => "InvalidSignature",
            Self::Policy => "InvalidTrustPolicy",
        }
    }
}

impl Rejection {
    fn kind(&self) -> TrustErrorKind {
        match self {
            Self::Attestation { .. } => TrustErrorKind::Unsigned,
            Self::OtherKind { .. } | Self::UnknownKey { .. } | Self::UnknownIdentity { .. } => {
                TrustErrorKind::UnknownSigner
            }
            Self::TooLarge { .. }
            | Self::Malformed(_)
            | Self::Unsupported(_)
            | Self::OtherDigest { .. }
            | Self::Altered { .. }
            | Self::Certificate { .. }
            | Self::Evidence { .. } => TrustErrorKind::InvalidSignature,
        }
    }

    /// The relevance of a rejection for the refusal: an invalid signature of an accepted signer is more relevant than
    /// one of another signer, and that more than garbage, which anyone who may push can add.
    fn rank(&self) -> u8 {
        match self {
            Self::Altered { .. }
            | Self::Certificate { .. }
            | Self::Evidence { .. }
            | Self::OtherDigest { signer: Some(_), .. } => 5,
            Self::UnknownKey { .. } | Self::UnknownIdentity { .. } => 4,
            Self::OtherKind { .. } => 3,
            Self::OtherDigest { signer: None, .. } | Self::Unsupported(_) => 2,
            Self::TooLarge { .. } | Self::Malformed(_) => 1,
            Self::Attestation { .. } => 0,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            artifact,
            rule,
            accepts,
            found,
            next,
        } = self;
        match found.len() {
            0 => write!(formatter, "{artifact} has no signature")?,
            1 => write!(formatter, "{artifact} has no accepted signature; found {}", found[0])?,
            count => {
                write!(formatter, "{artifact} has no accepted signature; found {count}: ")?;
                for (index, rejection) in found.iter().take(DESCRIBED).enumerate() {
                    write!(formatter, "{}{rejection}", if index == 0 { "" } else { ", " })?;
                }
                if count > DESCRIBED {
                    write!(formatter, ", and {} more", count - DESCRIBED)?;
                }
            }
        }
        write!(formatter, "; {rule} accepts {accepts}; {next}")
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, limit } => {
                write!(formatter, "a signature of {bytes} bytes (at most {limit} are read)")
            }
            Self::Malformed(cause) => write!(formatter, "a signature that cannot be parsed ({cause})"),
            Self::Unsupported(cause) => write!(formatter, "a signature that is not supported ({cause})"),
            Self::Attestation { predicate } => {
                write!(
                    formatter,
                    "an attestation of type {predicate}, which is no signature of the artifact"
                )
            }
            Self::OtherKind { found } => write!(formatter, "{found}, which this rule does not accept"),
            Self::UnknownKey { hint: Some(hint) } => write!(formatter, "a signature by the unknown key {hint}"),
            Self::UnknownKey { hint: None } => write!(formatter, "a signature by none of the accepted keys"),
            Self::UnknownIdentity { identity, issuer } => {
                write!(
                    formatter,
                    "a signature by the identity {identity} of the issuer {issuer}"
                )
            }
            Self::OtherDigest {
                digest,
                signer: Some(signer),
            } => {
                write!(formatter, "a signature by {signer} over another digest, {digest}")
            }
            Self::OtherDigest { digest, signer: None } => {
                write!(formatter, "a signature over another digest, {digest}")
            }
            Self::Altered { signer } => write!(formatter, "a signature that names {signer} and was not made by it"),
            Self::Certificate { signer, cause } => {
                write!(
                    formatter,
                    "a signature by {signer} whose certificate is not trusted ({cause})"
                )
            }
            Self::Evidence { signer, cause } => {
                write!(formatter, "a signature by {signer} without trusted evidence ({cause})")
            }
        }
    }
}

/// An untrusted text on one line of bounded length.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTED).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTED).is_some() {
        quoted.push_str("...");
    }
    quoted
}

/// The trust file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustPolicyError {
    /// The file's fields are not those of a trust file.
    #[error("the trust file is not valid: {0}; docs/trust.schema.json describes its fields")]
    Form(String),
    /// A rule cannot be used.
    #[error("the trust file's rule repositories[{index}] is not valid: {cause}")]
    Rule {
        /// The rule's position in the list, from 0.
        index: usize,
        /// The problem, and what to do.
        cause: String,
    },
    /// The file of a key, which no trust file names, cannot be used.
    #[error("cannot use the key {}, {cause}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The problem, and what to do.
        cause: String,
    },
    /// A file that a rule names cannot be used.
    #[error("the trust file's rule repositories[{index}] names {}, {cause}", path.display())]
    File {
        /// The rule's position in the list, from 0.
        index: usize,
        /// The file.
        path: PathBuf,
        /// The problem, and what to do.
        cause: String,
    },
}
