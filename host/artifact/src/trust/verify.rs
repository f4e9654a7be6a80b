//! Decides about an artifact: verifies each signature until one is accepted. Pure: no file, no network; the only clock
//! is that of sigstore-verify, which refuses log entries from the future.

use super::error::Rejection;
use super::simple_signing::Layer;
use super::{SignatureFormat, bundle, simple_signing};
use crate::trust::accepted::{Accepted, Manifest, Signers};
use crate::trust::signature::SignatureMaterial;

/// The longest signature with its evidence, in bytes. Bundles of cosign have 1 to 20 KiB.
const MAX_BYTES: usize = 512 << 10;

/// The highest number of verified signatures of an artifact.
const MAX_SIGNATURES: usize = 256;

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
