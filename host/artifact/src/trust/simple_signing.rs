//! Verifies signatures in the "simple signing" form, which cosign before version 3 stored under the tag
//! `sha256-<digest>.sig`: a JSON payload that names the manifest's digest, and beside it the signature over exactly the
//! payload's bytes.
//!
//! `critical.identity.docker-reference` of the payload is not checked: it names the repository where the artifact was
//! signed, and a copy in another registry is the same artifact. `cosign verify` does not check it either.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use sigstore_verify::PublicKeyVerificationPolicy;
use sigstore_verify::types::{Bundle, DerCertificate, SignatureBytes};

use super::crypto::with_message;
use super::error::{Rejection, quoted};
use super::rule::{Claim, Key};
use crate::content::digest::Digest;
use crate::trust::accepted::{Accepted, Signers, evidence, signed_at};

/// The type in the payload of an image's signature.
const PAYLOAD_TYPE: &str = "cosign container image signature";

/// The highest number of certificates in a chain.
const MAX_CERTIFICATES: usize = 8;

/// The layer and its annotations.
pub(super) struct Layer<'a> {
    pub payload: &'a str,
    pub signature: &'a str,
    pub certificate: Option<&'a str>,
    pub chain: Option<&'a str>,
    pub log_entry: Option<&'a str>,
    pub timestamp: Option<&'a str>,
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// The annotation `dev.sigstore.cosign/bundle`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LogEntry {
    signed_entry_timestamp: String,
    payload: LogPayload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogPayload {
    body: String,
    integrated_time: i64,
    log_index: i64,
    #[serde(rename = "logID")]
    log_id: String,
}

/// The annotation `dev.sigstore.cosign/rfc3161timestamp`.
#[derive(Deserialize)]
struct Timestamp {
    #[serde(rename = "SignedRFC3161Timestamp")]
    token: String,
}

/// Verifies a layer.
pub(super) fn verify(layer: &Layer<'_>, manifest: &Digest, signers: &Signers<'_>) -> Result<Accepted, Rejection> {
    let payload: Payload =
        serde_json::from_str(layer.payload).map_err(|error| malformed(&format!("its payload: {error}")))?;
    let Payload {
        critical: Critical {
            image: Image { digest },
            kind,
        },
    } = payload;
    if kind != PAYLOAD_TYPE {
        return Err(Rejection::Unsupported(format!(
            "its payload is of type {}",
            quoted(&kind)
        )));
    }
    let signature =
        SignatureBytes::from_base64(layer.signature).map_err(|_| malformed("its signature is not base64"))?;
    let key = signers
        .keys
        .iter()
        .find(|key| key.verification.verify(layer.payload, &signature).is_ok());
    let is_other = digest != manifest.to_string();
    match (key, layer.certificate) {
        (Some(key), _) if is_other => Err(Rejection::OtherDigest {
            digest: quoted(&digest),
            signer: Some(key.name.clone()),
        }),
        (Some(key), _) => by_key(key, layer, &signature, manifest, signers),
        (None, _) if is_other => Err(Rejection::OtherDigest {
            digest: quoted(&digest),
            signer: None,
        }),
        (None, Some(_)) if signers.identities.is_empty() => Err(Rejection::OtherKind {
            found: "a keyless signature",
        }),
        (None, Some(certificate)) => keyless(certificate, layer, &signature, manifest, signers),
        (None, None) if signers.keys.is_empty() => Err(Rejection::OtherKind {
            found: "a signature by a key",
        }),
        (None, None) => Err(Rejection::UnknownKey { hint: None }),
    }
}

fn by_key(
    key: &Key,
    layer: &Layer<'_>,
    signature: &SignatureBytes,
    manifest: &Digest,
    signers: &Signers<'_>,
) -> Result<Accepted, Rejection> {
    let signer = key.name.clone();
    let Some(log) = signers.log else {
        return Ok(Accepted {
            signer,
            signed_at: None,
        });
    };
    let bundle = bundle(layer, signature, json!({ "publicKey": { "hint": key.hint } }))?;
    let policy = PublicKeyVerificationPolicy::new(key.der.clone());
    let payload = layer.payload.as_bytes();
    let verified = with_message(payload, || log.verifier.verify(payload, &bundle, &policy));
    let verified = verified.map_err(|error| evidence(&error, &signer, manifest))?;
    Ok(Accepted {
        signer,
        signed_at: signed_at(&verified),
    })
}

fn keyless(
    certificate: &str,
    layer: &Layer<'_>,
    signature: &SignatureBytes,
    manifest: &Digest,
    signers: &Signers<'_>,
) -> Result<Accepted, Rejection> {
    let mut certificates = certificates(certificate)?;
    if certificates.len() != 1 {
        return Err(malformed("its certificate annotation does not hold one certificate"));
    }
    let claim = Claim::of(&certificates[0])?;
    let root = signers.root_for(&claim)?;
    certificates.extend(self::certificates(layer.chain.unwrap_or_default())?);
    let certificates: Vec<Value> = certificates
        .iter()
        .map(|der| json!({ "rawBytes": der.to_base64() }))
        .collect();
    let material = json!({ "x509CertificateChain": { "certificates": certificates } });
    let bundle = bundle(layer, signature, material)?;
    let payload = layer.payload.as_bytes();
    let verified = with_message(payload, || root.verifier.verify(payload, &bundle, &root.policy(&claim)));
    let verified = verified.map_err(|error| evidence(&error, &claim.signer(), manifest))?;
    Ok(Accepted {
        signer: claim.signer(),
        signed_at: signed_at(&verified),
    })
}

/// The annotations as a Sigstore bundle, so that one verifier handles both forms. In version 0.1 the log entry is a
/// promise without a proof of inclusion, which is all that this form has.
fn bundle(layer: &Layer<'_>, signature: &SignatureBytes, mut material: Value) -> Result<Bundle, Rejection> {
    if let Some(entry) = layer.log_entry {
        material["tlogEntries"] = json!([log_entry(entry)?]);
    }
    if let Some(timestamp) = layer.timestamp {
        let Timestamp { token } =
            serde_json::from_str(timestamp).map_err(|error| malformed(&format!("its timestamp: {error}")))?;
        material["timestampVerificationData"] = json!({ "rfc3161Timestamps": [{ "signedTimestamp": token }] });
    }
    let version = if layer.log_entry.is_some() { "0.1" } else { "0.2" };
    let digest = STANDARD.encode(Digest::of(layer.payload.as_bytes()).as_bytes());
    let bundle = json!({
        "mediaType": format!("application/vnd.dev.sigstore.bundle+json;version={version}"),
        "verificationMaterial": material,
        "messageSignature": {
            "messageDigest": { "algorithm": "SHA2_256", "digest": digest },
            "signature": signature.to_base64(),
        },
    });
    serde_json::from_value(bundle).map_err(|error| malformed(&error.to_string()))
}

fn log_entry(annotation: &str) -> Result<Value, Rejection> {
    let invalid = |cause: &str| malformed(&format!("its log entry: {cause}"));
    let LogEntry {
        signed_entry_timestamp,
        payload,
    } = serde_json::from_str(annotation).map_err(|error| invalid(&error.to_string()))?;
    let LogPayload {
        body,
        integrated_time,
        log_index,
        log_id,
    } = payload;
    let decoded = STANDARD.decode(&body).map_err(|_| invalid("its body is not base64"))?;
    let decoded: Value = serde_json::from_slice(&decoded).map_err(|error| invalid(&error.to_string()))?;
    let log: Digest = format!("sha256:{log_id}")
        .parse()
        .map_err(|_| invalid("its log has no SHA-256 digest"))?;
    Ok(json!({
        "logIndex": log_index.to_string(),
        "logId": { "keyId": STANDARD.encode(log.as_bytes()) },
        "kindVersion": { "kind": decoded["kind"], "version": decoded["apiVersion"] },
        "integratedTime": integrated_time.to_string(),
        "inclusionPromise": { "signedEntryTimestamp": signed_entry_timestamp },
        "canonicalizedBody": body,
    }))
}

/// The certificates of a PEM text.
fn certificates(pem: &str) -> Result<Vec<DerCertificate>, Rejection> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let blocks = pem.match_indices(BEGIN).map(|(start, _)| start);
    let blocks: Vec<usize> = blocks.take(MAX_CERTIFICATES + 1).collect();
    if blocks.len() > MAX_CERTIFICATES {
        return Err(malformed("it has too many certificates"));
    }
    let end = |index: usize| blocks.get(index + 1).copied().unwrap_or(pem.len());
    let certificate = |(index, start): (usize, &usize)| {
        DerCertificate::from_pem(&pem[*start..end(index)]).map_err(|_| malformed("its certificates are no PEM"))
    };
    blocks.iter().enumerate().map(certificate).collect()
}

fn malformed(cause: &str) -> Rejection {
    Rejection::Malformed(quoted(cause))
}
