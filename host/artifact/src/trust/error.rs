//! Owns why an artifact or a trust file is refused, and how that is said.

use std::fmt;
use std::path::PathBuf;

/// How many of the signatures that were found a message describes.
const DESCRIBED: usize = 4;

/// The longest text from a signature that a message repeats.
const QUOTED: usize = 160;

/// An artifact may not run.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// No rule of the trust file matches the repository, and its default refuses, or the text is no repository's name.
    #[error("{repository} is not an allowed repository: {cause}")]
    NotAllowed {
        /// The repository, as it was asked for.
        repository: String,
        /// Why, and what to do.
        cause: String,
    },
    /// The rule needs a signature, and nobody has signed the artifact.
    #[error("{0}")]
    Unsigned(Box<Refusal>),
    /// There are signatures, and none by a signer that the rule accepts.
    #[error("{0}")]
    UnknownSigner(Box<Refusal>),
    /// A signature claims an accepted signer or can be read by nobody, and does not hold: it is over another digest, was
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
    /// A signature does not hold.
    InvalidSignature,
    /// The trust file cannot be used.
    Policy,
}

/// What was found of an artifact, and what its rule accepts.
#[derive(Debug)]
pub struct Refusal {
    /// `repository@digest`.
    pub(super) artifact: String,
    /// The rule's description.
    pub(super) rule: String,
    /// What the rule accepts.
    pub(super) accepts: String,
    /// The signatures, and why each is not accepted, the most telling one first.
    pub(super) found: Vec<Rejection>,
    /// What to do.
    pub(super) next: &'static str,
}

/// Why a signature is not accepted. Texts are quoted from the signature, which nobody vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// More bytes than are read.
    TooLarge { bytes: usize, limit: usize },
    /// It cannot be parsed.
    Malformed(String),
    /// It is of a form that is not supported, though well-formed.
    Unsupported(String),
    /// A statement about the artifact that is no signature of it.
    Attestation { predicate: String },
    /// A certificate's signature where keys are accepted, or the other way round.
    OtherKind { found: &'static str },
    /// No accepted key has made it.
    UnknownKey { hint: Option<String> },
    /// No accepted identity matches its certificate.
    UnknownIdentity { identity: String, issuer: String },
    /// It signs something else; the signer is known if the signature itself holds.
    OtherDigest { digest: String, signer: Option<String> },
    /// It names an accepted signer and is not the signer's.
    Altered { signer: String },
    /// The certificate is not trusted.
    Certificate { signer: String, cause: String },
    /// The proof of the transparency log or of the time is missing or not trusted.
    Evidence { signer: String, cause: String },
}

impl TrustError {
    /// What kind of refusal it is.
    pub fn kind(&self) -> TrustErrorKind {
        match self {
            Self::NotAllowed { .. } => TrustErrorKind::NotAllowed,
            Self::Unsigned(_) => TrustErrorKind::Unsigned,
            Self::UnknownSigner(_) => TrustErrorKind::UnknownSigner,
            Self::InvalidSignature(_) => TrustErrorKind::InvalidSignature,
            Self::Policy(_) => TrustErrorKind::Policy,
        }
    }

    /// The refusal of an artifact none of whose signatures is accepted; `has_file` says whether there is a trust file.
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

    /// How much a rejection says about why the artifact is refused: a failed signature of an accepted signer says more
    /// than one by somebody else, and that more than garbage, which anybody who may push can add.
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

/// A text that somebody unknown has written, in one line of bounded length.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTED).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTED).is_some() {
        quoted.push_str("...");
    }
    quoted
}

/// A trust file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustPolicyError {
    /// The file's fields are not those of a trust file.
    #[error("the trust file is not valid: {0}; docs/trust.schema.json describes its fields")]
    Form(String),
    /// A rule cannot be used.
    #[error("the trust file's rule repositories[{index}] is not valid: {cause}")]
    Rule {
        /// The rule's place in the list, from 0.
        index: usize,
        /// What is wrong, and what to do.
        cause: String,
    },
    /// The file of a key, which no trust file names, cannot be used.
    #[error("cannot use the key {}, {cause}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        cause: String,
    },
    /// A file that a rule names cannot be used.
    #[error("the trust file's rule repositories[{index}] names {}, {cause}", path.display())]
    File {
        /// The rule's place in the list, from 0.
        index: usize,
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        cause: String,
    },
}
