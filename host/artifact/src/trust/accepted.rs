//! Signatures that a rule accepts, and the evidence for them.

use crate::content::digest::Digest;
use crate::trust::error::{Rejection, quoted};
use crate::trust::rule::{Claim, Identity, Key, Root};
use jiff::Timestamp;
use sigstore_verify::{CertificateError, Error, VerificationResult};
use std::sync::Arc;

/// An accepted signature.
pub(crate) struct Accepted {
    pub signer: String,
    pub signed_at: Option<Timestamp>,
}

/// What has to be signed.
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

/// Whose signatures a rule accepts.
pub(crate) struct Signers<'a> {
    pub keys: &'a [Key],
    pub log: Option<&'a Arc<Root>>,
    pub identities: &'a [Identity],
}

impl Signers<'_> {
    /// The trusted root of the identity that accepts what a certificate claims.
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

/// What an error of sigstore-verify means for a signature whose signer is accepted.
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

/// When the signature was made, as a trusted log or timestamp authority says.
pub(crate) fn signed_at(verified: &VerificationResult) -> Option<Timestamp> {
    verified
        .integrated_time()
        .or_else(|| verified.verified_timestamps().iter().min().copied())
}
