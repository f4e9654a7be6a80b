//! Decides about an artifact: verifies each signature until one is accepted. Pure: no file, no network; the only clock
//! is that of sigstore-verify, which refuses log entries from the future.

use std::sync::Arc;

use jiff::Timestamp;
use sigstore_verify::{CertificateError, Error, VerificationResult};

use super::error::{Rejection, quoted};
use super::rule::{Claim, Identity, Key, Root};
use super::simple_signing::Layer;
use super::{SignatureFormat, bundle, simple_signing};
use crate::content::digest::Digest;
use crate::trust::signature::SignatureMaterial;

/// The longest signature with its evidence, in bytes. Bundles of cosign have 1 to 20 KiB.
const MAX_BYTES: usize = 512 << 10;

/// The highest number of verified signatures of an artifact.
const MAX_SIGNATURES: usize = 256;

/// The signed manifest.
pub(super) struct Manifest<'a> {
    pub digest: Digest,
    pub bytes: &'a [u8],
}

/// The signers that a rule accepts.
pub(super) struct Signers<'a> {
    pub keys: &'a [Key],
    pub log: Option<&'a Arc<Root>>,
    pub identities: &'a [Identity],
}

/// An accepted signature.
pub(super) struct Accepted {
    pub signer: String,
    pub signed_at: Option<Timestamp>,
}

impl<'a> Manifest<'a> {
    pub fn of(bytes: &'a [u8]) -> Self {
        Self {
            digest: Digest::of(bytes),
            bytes,
        }
    }
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

/// The first accepted signature; the error has the reasons why none is.
pub(super) fn first_accepted(
    manifest: &Manifest<'_>,
    signatures: &[SignatureMaterial],
    signers: &Signers<'_>,
) -> Result<(Accepted, SignatureFormat), Vec<Rejection>> {
    let mut rejections = Vec::new();
    for signature in signatures.iter().take(MAX_SIGNATURES) {
        match one(manifest, signature, signers) {
            Ok(accepted) => return Ok((accepted, format(signature))),
            Err(rejection) => rejections.push(rejection),
        }
    }
    Err(rejections)
}

fn one(manifest: &Manifest<'_>, signature: &SignatureMaterial, signers: &Signers<'_>) -> Result<Accepted, Rejection> {
    let bytes = bytes(signature);
    if bytes > MAX_BYTES {
        return Err(Rejection::TooLarge {
            bytes,
            limit: MAX_BYTES,
        });
    }
    match signature {
        SignatureMaterial::Bundle { json } => bundle::verify(json, manifest, signers),
        SignatureMaterial::SimpleSigning {
            payload,
            signature,
            certificate,
            chain,
            log_entry,
            timestamp,
        } => {
            let layer = Layer {
                payload,
                signature,
                certificate: certificate.as_deref(),
                chain: chain.as_deref(),
                log_entry: log_entry.as_deref(),
                timestamp: timestamp.as_deref(),
            };
            simple_signing::verify(&layer, &manifest.digest, signers)
        }
    }
}

fn bytes(signature: &SignatureMaterial) -> usize {
    match signature {
        SignatureMaterial::Bundle { json } => json.len(),
        SignatureMaterial::SimpleSigning {
            payload,
            signature,
            certificate,
            chain,
            log_entry,
            timestamp,
        } => {
            let optional = [certificate, chain, log_entry, timestamp]
                .into_iter()
                .flatten()
                .map(String::len);
            payload.len() + signature.len() + optional.sum::<usize>()
        }
    }
}

fn format(signature: &SignatureMaterial) -> SignatureFormat {
    match signature {
        SignatureMaterial::Bundle { .. } => SignatureFormat::Bundle,
        SignatureMaterial::SimpleSigning { .. } => SignatureFormat::SimpleSigning,
    }
}

/// The time of the signature, as stated by a trusted log or timestamp authority.
pub(super) fn signed_at(verified: &VerificationResult) -> Option<Timestamp> {
    verified
        .integrated_time()
        .or_else(|| verified.verified_timestamps().iter().min().copied())
}

/// Converts an error of sigstore-verify for a signature whose signer is accepted.
pub(super) fn evidence(error: &Error, signer: &str, manifest: &Digest) -> Rejection {
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
