//! Signatures that a rule accepts, and the evidence for them.

use std::sync::Arc;

use jiff::Timestamp;
use sigstore_verify::{CertificateError, Error, VerificationResult};

use crate::content::digest::Digest;
use crate::trust::error::{Rejection, quoted};
use crate::trust::rule::{Claim, Identity, Key, Root};

/// An accepted signature.
pub(crate) struct Accepted {
    pub signer: String,
    pub signed_at: Option<Timestamp>,
}

/// The signed manifest.
pub(crate) struct Manifest<'a> {
    pub digest: Digest,
    pub bytes: &'a [u8],
}

impl<'a> Manifest<'a> {
    pub fn of(bytes: &'a [u8]) -> Self {
        Self {
            digest: Digest::of(bytes),
            bytes,
        }
    }
}

/// The signers that a rule accepts.
pub(crate) struct Signers<'a> {
    pub keys: &'a [Key],
    pub log: Option<&'a Arc<Root>>,
    pub identities: &'a [Identity],
}

impl Signers<'_> {
    /// The trusted root of the identity that matches a certificate's claim.
    pub fn root_for(&self, claim: &Claim) -> Result<&Root, Rejection> {
        let identity = self.identities.iter().find(|identity| identity.accepts(claim));
        identity
            .map(|identity| &*identity.root)
            .ok_or_else(|| Rejection::UnknownIdentity {
                identity: quoted(claim.identity.as_str()),
                issuer: quoted(&claim.issuer),
            })
    }
}

/// Converts an error of sigstore-verify for a signature whose signer is accepted.
pub(crate) fn evidence(error: &Error, signer: &str, manifest: &Digest) -> Rejection {
    let (signer, cause) = (signer.to_owned(), quoted(&error.to_string()));
    match error {
        Error::SignatureInvalid(_) => Rejection::Altered { signer },
        Error::ArtifactMismatch(_) => Rejection::Evidence {
            signer,
            cause: format!("it is not about {manifest}"),
        },
        Error::Certificate(CertificateError::Malformed(_)) | Error::InvalidBundle(_) | Error::Types(_) => {
            Rejection::Malformed(cause)
        }
        Error::Certificate(_) => Rejection::Certificate { signer, cause },
        Error::UnsupportedBundle(_) | Error::UnsupportedArtifact(_) => Rejection::Unsupported(cause),
        _ => Rejection::Evidence { signer, cause },
    }
}

/// The time of the signature, as stated by a trusted log or timestamp authority.
pub(crate) fn signed_at(verified: &VerificationResult) -> Option<Timestamp> {
    verified
        .integrated_time()
        .or_else(|| verified.verified_timestamps().iter().min().copied())
}
