//! Verifies Sigstore bundles, which cosign 3 and later attach to an artifact. A bundle signs a manifest either with a
//! statement that names its digest (as `cosign sign` writes) or directly (as `cosign sign-blob` writes for the
//! manifest's bytes).

use sigstore_verify::PublicKeyVerificationPolicy;
use sigstore_verify::crypto::verify_signature;
use sigstore_verify::types::bundle::{MessageSignature, VerificationMaterialContent};
use sigstore_verify::types::{Bundle, DsseEnvelope, HashAlgorithm, Sha256Hash, SignatureContent, Statement};

use super::crypto::with_message;
use super::error::{Rejection, quoted};
use super::rule::{Claim, Key};
use crate::content::digest::Digest;
use crate::trust::accepted::{Accepted, Manifest, Signers, evidence, signed_at};

/// The predicate of `cosign sign`. Any other predicate is an attestation: it describes the artifact, perhaps that a
/// scan of it has failed, and gives no permission to run it. `cosign verify` itself ignores this.
const SIGNATURE_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// The payload type of a statement.
const STATEMENT_PAYLOAD: &str = "application/vnd.in-toto+json";

/// The types of in-toto statements, which differ in no member that is read here.
const STATEMENT_TYPES: [&str; 2] = ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"];

/// Verifies a bundle.
pub(super) fn verify(json: &str, manifest: &Manifest<'_>, signers: &Signers<'_>) -> Result<Accepted, Rejection> {
    let bundle = Bundle::from_json(json).map_err(|error| Rejection::Malformed(quoted(&error.to_string())))?;
    match &bundle.verification_material.content {
        VerificationMaterialContent::PublicKey(identifier) => {
            if signers.keys.is_empty() {
                return Err(Rejection::OtherKind {
                    found: "a signature by a key",
                });
            }
            by_key(&bundle, &identifier.hint, manifest, signers)
        }
        VerificationMaterialContent::Certificate(_) | VerificationMaterialContent::X509CertificateChain { .. } => {
            if signers.identities.is_empty() {
                return Err(Rejection::OtherKind {
                    found: "a keyless signature",
                });
            }
            keyless(&bundle, manifest, signers)
        }
        _ => Err(Rejection::Unsupported(
            "its verification material is of an unknown kind".to_owned(),
        )),
    }
}

fn by_key(bundle: &Bundle, hint: &str, manifest: &Manifest<'_>, signers: &Signers<'_>) -> Result<Accepted, Rejection> {
    // The hint is not signed: it only selects the key to name in a message, and decides nothing.
    let unknown = || match signers.keys.iter().find(|key| key.hint == hint) {
        Some(key) => Rejection::Altered {
            signer: format!("the key {}", key.name),
        },
        None => Rejection::UnknownKey {
            hint: (!hint.is_empty()).then(|| quoted(hint)),
        },
    };
    let key = match &bundle.content {
        SignatureContent::DsseEnvelope(envelope) => {
            // Before the signature is verified, so that an attestation is reported as one, whoever signed it.
            let statement = statement(envelope)?;
            let (signed, signature) = (envelope.pae(), &envelope.signature.sig);
            let is_signer = |key: &&Key| key.verification.verify(&signed, signature).is_ok();
            let key = signers.keys.iter().find(is_signer).ok_or_else(unknown)?;
            check_subject(&statement, &manifest.digest, || Some(key.name.clone()))?;
            key
        }
        SignatureContent::MessageSignature(signature) => {
            check_message(signature, &manifest.digest)?;
            let is_signer = |key: &&Key| message_holds(key, signature, manifest);
            signers.keys.iter().find(is_signer).ok_or_else(unknown)?
        }
        _ => return Err(unsupported_content()),
    };
    let signed_at = match signers.log {
        None => None,
        Some(log) => {
            let policy = PublicKeyVerificationPolicy::new(key.der.clone());
            let verified = with_message(manifest.bytes, || log.verifier.verify(manifest.bytes, bundle, &policy));
            signed_at(&verified.map_err(|error| evidence(&error, &key.name, &manifest.digest))?)
        }
    };
    Ok(Accepted {
        signer: key.name.clone(),
        signed_at,
    })
}

fn keyless(bundle: &Bundle, manifest: &Manifest<'_>, signers: &Signers<'_>) -> Result<Accepted, Rejection> {
    let Some(certificate) = bundle.signing_certificate() else {
        return Err(Rejection::Malformed("it has an empty certificate chain".to_owned()));
    };
    let claim = Claim::of(certificate)?;
    let root = signers.root_for(&claim)?;
    match &bundle.content {
        SignatureContent::DsseEnvelope(envelope) => check_subject(&statement(envelope)?, &manifest.digest, || None)?,
        SignatureContent::MessageSignature(signature) => check_message(signature, &manifest.digest)?,
        _ => return Err(unsupported_content()),
    }
    let verified = with_message(manifest.bytes, || {
        root.verifier.verify(manifest.bytes, bundle, &root.policy(&claim))
    });
    let verified = verified.map_err(|error| evidence(&error, &claim.signer(), &manifest.digest))?;
    Ok(Accepted {
        signer: claim.signer(),
        signed_at: signed_at(&verified),
    })
}

/// The statement of an envelope, if it signs an artifact.
fn statement(envelope: &DsseEnvelope) -> Result<Statement, Rejection> {
    if envelope.payload_type != STATEMENT_PAYLOAD {
        let cause = format!("its payload is of type {}", quoted(&envelope.payload_type));
        return Err(Rejection::Unsupported(cause));
    }
    let statement: Statement = serde_json::from_slice(envelope.payload.as_bytes())
        .map_err(|error| Rejection::Malformed(quoted(&format!("its statement: {error}"))))?;
    if !STATEMENT_TYPES.contains(&statement.type_.as_str()) {
        let cause = format!("its statement is of type {}", quoted(&statement.type_));
        return Err(Rejection::Unsupported(cause));
    }
    if statement.predicate_type != SIGNATURE_PREDICATE {
        return Err(Rejection::Attestation {
            predicate: quoted(&statement.predicate_type),
        });
    }
    Ok(statement)
}

/// Checks that a statement is about the manifest.
fn check_subject(
    statement: &Statement,
    manifest: &Digest,
    signer: impl FnOnce() -> Option<String>,
) -> Result<(), Rejection> {
    if statement.matches_sha256(&Sha256Hash::new(*manifest.as_bytes())) {
        return Ok(());
    }
    let digest = statement
        .subject
        .iter()
        .find_map(|subject| subject.digest.sha256.as_ref());
    let digest = digest.map_or_else(
        || "of no SHA-256".to_owned(),
        |digest| format!("sha256:{}", digest.to_hex()),
    );
    Err(Rejection::OtherDigest {
        digest,
        signer: signer(),
    })
}

/// Checks that a direct signature declares the manifest's SHA-256 digest, by which everything here names it.
fn check_message(signature: &MessageSignature, manifest: &Digest) -> Result<(), Rejection> {
    let Some(message) = &signature.message_digest else {
        return Err(Rejection::Unsupported(
            "it signs bytes without naming their digest".to_owned(),
        ));
    };
    if message.algorithm != HashAlgorithm::Sha2256 {
        let cause = format!("it signs a {} digest; sign with cosign sign", message.algorithm);
        return Err(Rejection::Unsupported(cause));
    }
    if message.digest.as_bytes() == manifest.as_bytes() {
        return Ok(());
    }
    let digest = <[u8; 32]>::try_from(message.digest.as_bytes());
    let digest = digest.map_or_else(
        |_| "of another length".to_owned(),
        |bytes| Digest::from_bytes(bytes).to_string(),
    );
    Err(Rejection::OtherDigest { digest, signer: None })
}

fn message_holds(key: &Key, signature: &MessageSignature, manifest: &Manifest<'_>) -> bool {
    let scheme = key.algorithm.resolve_signing_scheme(HashAlgorithm::Sha2256);
    scheme.is_ok_and(|scheme| verify_signature(&key.der, manifest.bytes, &signature.signature, scheme).is_ok())
}

fn unsupported_content() -> Rejection {
    Rejection::Unsupported("it has neither a message signature nor an envelope".to_owned())
}
