//! A Sigstore instance for tests: a certificate authority and a transparency log whose keys are made at run time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer, PublicKeyData as _,
    SanType, SigningKey as _, date_time_ymd,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sigstore_verify::crypto::compute_key_hint;
use sigstore_verify::types::{DerCertificate, DerPublicKey, SignatureBytes, pae};

use crate::content::digest::Digest;
use crate::trust::signature::SignatureMaterial;

pub const ISSUER: &str = "https://token.actions.githubusercontent.com";
pub const SUBJECT: &str = "https://github.com/example/plugins/.github/workflows/release.yml@refs/tags/v1.0.0";

/// Within the certificates' validity, which is the first of January 2024.
pub const WHILE_VALID: &str = "2024-01-01T12:00:00Z";
pub const AFTER_EXPIRY: &str = "2024-01-03T12:00:00Z";

/// An ECDSA P-256 key.
pub struct KeyPair(rcgen::KeyPair);

impl KeyPair {
    pub fn generate() -> Self {
        Self(rcgen::KeyPair::generate().unwrap())
    }

    pub fn sign(&self, message: &[u8]) -> SignatureBytes {
        SignatureBytes::new(self.0.sign(message).unwrap())
    }

    pub fn public_der(&self) -> DerPublicKey {
        DerPublicKey::new(self.0.subject_public_key_info())
    }
}

pub struct Instance {
    authority: Issuer<'static, rcgen::KeyPair>,
    authority_der: Vec<u8>,
    log: KeyPair,
}

/// A signer, and the verifier in its log entries, PEM.
pub struct Signer {
    pub key: KeyPair,
    /// `None`: by key.
    pub certificate: Option<DerCertificate>,
}

impl Signer {
    pub fn key() -> Self {
        Self {
            key: KeyPair::generate(),
            certificate: None,
        }
    }

    pub fn public_pem(&self) -> String {
        self.key.public_der().to_pem()
    }

    fn verifier(&self) -> String {
        self.certificate
            .as_ref()
            .map_or_else(|| self.public_pem(), DerCertificate::to_pem)
    }

    fn material(&self) -> Value {
        match &self.certificate {
            Some(certificate) => json!({ "certificate": { "rawBytes": certificate.to_base64() } }),
            None => json!({ "publicKey": { "hint": "" } }),
        }
    }
}

pub fn statement(digest: &Digest, predicate: &str) -> String {
    let subject = json!([{ "digest": { "sha256": digest.hex() } }]);
    json!({ "_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": predicate, "predicate": {} })
        .to_string()
}

pub fn payload(digest: &Digest) -> String {
    let critical = json!({
        "identity": { "docker-reference": "registry.example.com/a" },
        "image": { "docker-manifest-digest": digest.to_string() },
        "type": "cosign container image signature",
    });
    json!({ "critical": critical, "optional": null }).to_string()
}

impl Instance {
    pub fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, "test authority");
        (parameters.not_before, parameters.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2040, 1, 1));
        let authority_der = parameters.self_signed(&key).unwrap().der().to_vec();
        let authority = Issuer::new(parameters, key);
        Self {
            authority,
            authority_der,
            log: KeyPair::generate(),
        }
    }

    /// A keyless signer with a certificate of the first of January 2024.
    pub fn signer(&self, subject: &str, issuer: &str) -> Signer {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.subject_alt_names = vec![SanType::URI(subject.try_into().unwrap())];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        (parameters.not_before, parameters.not_after) = (date_time_ymd(2024, 1, 1), date_time_ymd(2024, 1, 2));
        let mut text = vec![0x0c, u8::try_from(issuer.len()).unwrap()];
        text.extend_from_slice(issuer.as_bytes());
        parameters.custom_extensions = vec![CustomExtension::from_oid_content(
            &[1, 3, 6, 1, 4, 1, 57264, 1, 8],
            text,
        )];
        let certificate = parameters.signed_by(&key, &self.authority).unwrap();
        Signer {
            key: KeyPair(key),
            certificate: Some(DerCertificate::new(certificate.der().to_vec())),
        }
    }

    /// The trusted root. It lists no certificate transparency log, so none is required.
    pub fn trusted_root(&self) -> Value {
        let log = self.log.public_der();
        let valid = json!({ "start": "2020-01-01T00:00:00Z" });
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [{
                "baseUrl": "https://log.example.com",
                "hashAlgorithm": "SHA2_256",
                "publicKey": { "rawBytes": log.to_base64(), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": valid },
                "logId": { "keyId": STANDARD.encode(Digest::of(log.as_bytes()).as_bytes()) },
            }],
            "certificateAuthorities": [{
                "subject": { "organization": "example", "commonName": "test authority" },
                "uri": "https://authority.example.com",
                "certChain": { "certificates": [{ "rawBytes": STANDARD.encode(&self.authority_der) }] },
                "validFor": valid,
            }],
        })
    }

    /// The bundle of `cosign sign`, with an entry of the log.
    pub fn bundle(&self, signer: &Signer, statement: &str, at: &str) -> Value {
        let mut bundle = unlogged_bundle(signer, statement);
        let body = json!({
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": { "algorithm": "sha256", "value": "00".repeat(32) },
                "payloadHash": { "algorithm": "sha256", "value": Digest::of(statement.as_bytes()).hex() },
                "signatures": [{
                    "signature": bundle["dsseEnvelope"]["signatures"][0]["sig"],
                    "verifier": STANDARD.encode(signer.verifier()),
                }],
            },
        });
        bundle["verificationMaterial"]["tlogEntries"] = json!([self.entry(&body, at)]);
        bundle
    }

    /// The signature of `cosign sign --new-bundle-format=false`, with the log's promise.
    pub fn simple_signing(&self, signer: &Signer, payload: &str, at: &str) -> SignatureMaterial {
        let signature = signer.key.sign(payload.as_bytes());
        let body = json!({
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {
                "data": { "hash": { "algorithm": "sha256", "value": Digest::of(payload.as_bytes()).hex() } },
                "signature": {
                    "content": signature.to_base64(),
                    "publicKey": { "content": STANDARD.encode(signer.verifier()) },
                },
            },
        });
        let (promised, promise) = self.promise(&body, at);
        let log_entry = json!({ "SignedEntryTimestamp": promise.to_base64(), "Payload": promised });
        SignatureMaterial::SimpleSigning {
            payload: payload.to_owned(),
            signature: signature.to_base64(),
            certificate: signer.certificate.as_ref().map(DerCertificate::to_pem),
            chain: signer
                .certificate
                .as_ref()
                .map(|_| DerCertificate::new(self.authority_der.clone()).to_pem()),
            log_entry: Some(log_entry.to_string()),
            timestamp: None,
        }
    }

    fn log_id(&self) -> Digest {
        Digest::of(self.log.public_der().as_bytes())
    }

    /// The log's promise of inclusion, and its signature. The members are sorted, which is their canonical form.
    fn promise(&self, body: &Value, at: &str) -> (Value, SignatureBytes) {
        let time = at.parse::<Timestamp>().unwrap().as_second();
        let body = STANDARD.encode(body.to_string());
        let promised = json!({ "body": body, "integratedTime": time, "logID": self.log_id().hex(), "logIndex": 0 });
        let signature = self.log.sign(promised.to_string().as_bytes());
        (promised, signature)
    }

    /// An entry of a log that has this one only, so that its hash is the tree's root.
    fn entry(&self, body: &Value, at: &str) -> Value {
        let (promised, promise) = self.promise(body, at);
        let mut leaf = vec![0];
        leaf.extend_from_slice(body.to_string().as_bytes());
        let root = STANDARD.encode(Sha256::digest(&leaf));
        let note = format!("log.example.com\n1\n{root}\n");
        crate::trust::crypto::install();
        let mut signature = compute_key_hint(&self.log.public_der()).as_bytes().to_vec();
        signature.extend_from_slice(self.log.sign(note.as_bytes()).as_bytes());
        let checkpoint = format!("{note}\n\u{2014} log.example.com {}\n", STANDARD.encode(signature));
        json!({
            "logIndex": "0",
            "logId": { "keyId": STANDARD.encode(self.log_id().as_bytes()) },
            "kindVersion": { "kind": body["kind"], "version": body["apiVersion"] },
            "integratedTime": promised["integratedTime"].to_string(),
            "inclusionPromise": { "signedEntryTimestamp": promise.to_base64() },
            "inclusionProof": {
                "logIndex": "0", "treeSize": "1", "rootHash": root, "hashes": [],
                "checkpoint": { "envelope": checkpoint },
            },
            "canonicalizedBody": promised["body"],
        })
    }
}

/// The bundle of `cosign sign` without a log.
pub fn unlogged_bundle(signer: &Signer, statement: &str) -> Value {
    const TYPE: &str = "application/vnd.in-toto+json";
    let signature = signer.key.sign(&pae(TYPE, statement.as_bytes()));
    json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": signer.material(),
        "dsseEnvelope": {
            "payload": STANDARD.encode(statement),
            "payloadType": TYPE,
            "signatures": [{ "sig": signature.to_base64() }],
        },
    })
}
