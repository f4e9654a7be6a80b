//! Tests of the decision, with artifacts signed by cosign (`tests/data/cosign`) and with signatures made here.

mod instance;

macro_rules! data {
    ($name:literal) => {
        include_str!(concat!("../../../tests/data/cosign/", $name))
    };
}

mod loading;

use serde_json::{Value, json};

use self::instance::{
    AFTER_EXPIRY, ISSUER, Instance, SUBJECT, Signer, WHILE_VALID, payload, statement, unlogged_bundle,
};
use super::*;
use crate::content::digest::Digest;

const REPOSITORY: &str = "registry.example.com/plugins/a";
const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";

/// The signed manifest.
const MANIFEST: &[u8] = data!("manifest.json").as_bytes();

fn manifest() -> Digest {
    Digest::of(MANIFEST)
}

/// JSON as text.
struct Json(String);

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self(value.to_string())
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        Self(value.to_string())
    }
}

fn bundle(json: impl Into<Json>) -> SignatureMaterial {
    let Json(json) = json.into();
    SignatureMaterial::Bundle { json }
}

fn legacy(payload: &str, signature: &str) -> SignatureMaterial {
    SignatureMaterial::SimpleSigning {
        payload: payload.to_owned(),
        signature: signature.to_owned(),
        certificate: None,
        chain: None,
        log_entry: None,
        timestamp: None,
    }
}

/// A policy whose only rule is for the test's repository.
fn policy(mut rule: Value) -> TrustPolicy {
    rule["match"] = json!("registry.example.com/plugins/*");
    TrustPolicy::load(&json!({ "repositories": [rule] }), Path::new("/nonexistent")).unwrap()
}

fn keys(keys: &[(&str, &str)]) -> TrustPolicy {
    let keys: Vec<Value> = keys
        .iter()
        .map(|(name, pem)| json!({ "name": name, "pem": pem }))
        .collect();
    policy(json!({ "keys": keys }))
}

fn first() -> TrustPolicy {
    keys(&[("first", data!("first.pub"))])
}

/// A rule that needs the trusted root of an instance.
fn rooted(instance: &Instance, mut rule: Value) -> TrustPolicy {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("root.json"), instance.trusted_root().to_string()).unwrap();
    rule["match"] = json!("registry.example.com/plugins/*");
    rule["trustedRoot"] = json!("root.json");
    TrustPolicy::load(&json!({ "repositories": [rule] }), directory.path()).unwrap()
}

fn keyless(instance: &Instance) -> TrustPolicy {
    let subject = "https://github.com/example/plugins/.github/workflows/release.yml@refs/tags/*";
    rooted(
        instance,
        json!({ "keyless": [{ "issuer": ISSUER, "subject": subject }] }),
    )
}

fn accepted(policy: &TrustPolicy, signatures: &[SignatureMaterial]) -> (String, SignatureFormat, Option<Timestamp>) {
    match policy.verify(REPOSITORY, MANIFEST, signatures).unwrap().outcome {
        Outcome::Signed {
            signer,
            format,
            signed_at,
        } => (signer, format, signed_at),
        other => panic!("{other:?}"),
    }
}

/// The refusal's kind and text, which always names what it is about and what is accepted.
fn refused(policy: &TrustPolicy, signatures: &[SignatureMaterial]) -> (TrustErrorKind, String) {
    let error = policy.verify(REPOSITORY, MANIFEST, signatures).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("{REPOSITORY}@{}", manifest())), "{text}");
    assert!(
        text.contains("registry.example.com/plugins/*") && text.contains(" accepts "),
        "{text}"
    );
    (error.kind(), text)
}

#[track_caller]
fn assert_refused(policy: &TrustPolicy, signature: SignatureMaterial, kind: TrustErrorKind, part: &str) {
    let (actual, text) = refused(policy, &[signature]);
    assert!(actual == kind && text.contains(part), "{actual:?}: {text}");
}

#[test]
fn what_cosign_signs_with_a_key_is_accepted_in_both_forms() {
    for (pem, json) in [
        (data!("first.pub"), data!("first.bundle.json")),
        (data!("p384.pub"), data!("p384.bundle.json")),
        (data!("rsa.pub"), data!("rsa.bundle.json")),
        // cosign sign-blob of the manifest: the same consent in another form.
        (data!("first.pub"), data!("sign-blob-over-manifest.bundle.json")),
        // The hint is not signed and decides nothing.
        (data!("first.pub"), data!("first-with-hint-of-second.bundle.json")),
    ] {
        let (signer, format, signed_at) = accepted(&keys(&[("k", pem)]), &[bundle(json)]);
        assert_eq!((&*signer, format, signed_at), ("k", SignatureFormat::Bundle, None));
    }
    let signature = legacy(data!("first.payload.json"), data!("first.signature"));
    let (signer, format, _) = accepted(&first(), &[signature]);
    assert_eq!((&*signer, format), ("first", SignatureFormat::SimpleSigning));
}

#[test]
fn any_of_several_keys_is_enough_until_it_is_removed() {
    let both = keys(&[("second", data!("second.pub")), ("first", data!("first.pub"))]);
    let signatures = [bundle(data!("first.bundle.json"))];
    assert_eq!(accepted(&both, &signatures).0, "first");
    let second = keys(&[("second", data!("second.pub"))]);
    let (kind, text) = refused(&second, &signatures);
    assert_eq!(kind, TrustErrorKind::UnknownSigner);
    assert!(
        text.contains("unknown key Ls5pX9dVCSGBV325qt01UH/mULnrwDvq8PVcxUDP8mk="),
        "{text}"
    );
    assert!(text.contains("accepts the key second;"), "{text}");
    let old = legacy(data!("first.payload.json"), data!("first.signature"));
    assert_refused(&second, old, TrustErrorKind::UnknownSigner, "none of the accepted keys");
}

#[test]
fn a_signature_over_another_digest_is_refused() {
    for signature in [
        bundle(data!("first-over-other.bundle.json")),
        legacy(
            data!("first-over-other.payload.json"),
            data!("first-over-other.signature"),
        ),
    ] {
        let other =
            "by first over another digest, sha256:2992dbbe8ce936ba5ace81eda6268d26fad3cf90e748dbafbc2cbb873f3bdaf8";
        assert_refused(&first(), signature, TrustErrorKind::InvalidSignature, other);
    }
    // Over this digest, asked about another manifest.
    let error = first().verify(
        REPOSITORY,
        b"other",
        &[bundle(data!("sign-blob-over-manifest.bundle.json"))],
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("over another digest, sha256:05b6baa6")
    );
}

#[test]
fn a_signature_that_was_edited_is_refused() {
    let other = Digest::of(b"other");
    for signature in [
        bundle(data!("first-tampered-to-other.bundle.json")),
        bundle(data!("first.bundle.json").replace("MEUCIQD3", "MEUCIQD4")),
        bundle(data!("sign-blob-over-manifest.bundle.json").replace("MEQCIGJR", "MEQCIGJS")),
    ] {
        assert_refused(
            &first(),
            signature,
            TrustErrorKind::InvalidSignature,
            "names the key first and was not made by it",
        );
    }
    let edited = data!("first.payload.json").replace("127.0.0.1", "127.0.0.2");
    let signature = legacy(&edited, data!("first.signature"));
    assert_refused(
        &first(),
        signature,
        TrustErrorKind::UnknownSigner,
        "none of the accepted keys",
    );
    let edited = data!("first-over-other.payload.json").replace(
        "sha256:2992dbbe8ce936ba5ace81eda6268d26fad3cf90e748dbafbc2cbb873f3bdaf8",
        &manifest().to_string(),
    );
    let signature = legacy(&edited, data!("first-over-other.signature"));
    assert_refused(
        &first(),
        signature,
        TrustErrorKind::UnknownSigner,
        "none of the accepted keys",
    );
    // A message signature that claims to be over the manifest and is over something else.
    let signer = Signer::key();
    let bytes = signer.key.sign(b"other").to_base64();
    let mut forged: Value = serde_json::from_str(data!("sign-blob-over-manifest.bundle.json")).unwrap();
    forged["messageSignature"]["signature"] = json!(bytes);
    let policy = keys(&[("k", &signer.public_pem())]);
    assert_refused(&policy, bundle(&forged), TrustErrorKind::UnknownSigner, "unknown key");
    forged["messageSignature"]
        .as_object_mut()
        .unwrap()
        .remove("messageDigest");
    assert_refused(
        &policy,
        bundle(&forged),
        TrustErrorKind::InvalidSignature,
        "without naming their digest",
    );
    assert_ne!(other, manifest());
}

#[test]
fn an_attestation_is_no_signature() {
    let part = "an attestation of type https://example.com/built/v1";
    assert_refused(
        &first(),
        bundle(data!("attestation.bundle.json")),
        TrustErrorKind::Unsigned,
        part,
    );
    let instance = Instance::new();
    let signer = instance.signer(SUBJECT, ISSUER);
    let attestation = instance.bundle(
        &signer,
        &statement(&manifest(), "https://slsa.dev/provenance/v1"),
        WHILE_VALID,
    );
    assert_refused(
        &keyless(&instance),
        bundle(attestation),
        TrustErrorKind::Unsigned,
        "https://slsa.dev/provenance/v1",
    );
}

#[test]
fn statements_and_payloads_of_other_types_are_refused() {
    let signer = Signer::key();
    let policy = keys(&[("k", &signer.public_pem())]);
    let good = statement(&manifest(), SIGN);
    assert_eq!(accepted(&policy, &[bundle(unlogged_bundle(&signer, &good))]).0, "k");
    let other = good.replace("in-toto.io/Statement/v1", "in-toto.io/Statement/v9");
    assert_refused(
        &policy,
        bundle(unlogged_bundle(&signer, &other)),
        TrustErrorKind::InvalidSignature,
        "is of type",
    );
    let empty = good.replace(&json!([{ "digest": { "sha256": manifest().hex() } }]).to_string(), "[]");
    assert_refused(
        &policy,
        bundle(unlogged_bundle(&signer, &empty)),
        TrustErrorKind::InvalidSignature,
        "of no SHA-256",
    );
    let mut typed = unlogged_bundle(&signer, &good);
    typed["dsseEnvelope"]["payloadType"] = json!("text/plain");
    assert_refused(
        &policy,
        bundle(typed),
        TrustErrorKind::InvalidSignature,
        "its payload is of type text/plain",
    );
    let sign = |payload: &str| legacy(payload, &signer.key.sign(payload.as_bytes()).to_base64());
    assert_eq!(accepted(&policy, &[sign(&payload(&manifest()))]).0, "k");
    let other = payload(&manifest()).replace("cosign container image signature", "atomic container signature");
    assert_refused(
        &policy,
        sign(&other),
        TrustErrorKind::InvalidSignature,
        "is of type atomic",
    );
}

#[test]
fn unsigned_artifact_is_refused_where_a_signature_is_needed() {
    let (kind, text) = refused(&first(), &[]);
    assert_eq!(kind, TrustErrorKind::Unsigned);
    assert!(
        text.contains("has no signature;") && text.contains("cosign sign"),
        "{text}"
    );
}

#[test]
fn garbage_is_refused_in_one_bounded_line() {
    let deep = "[".repeat(100_000);
    let huge = format!("{{\"mediaType\":\"{}\"}}", "a".repeat(2 << 20));
    let long = format!("{{\"mediaType\":\"{}\\n\"}}", "a".repeat(4096));
    for (json, part) in [
        ("", "cannot be parsed"),
        ("{}", "cannot be parsed"),
        ("null", "cannot be parsed"),
        (&*deep, "cannot be parsed"),
        (&*huge, "a signature of 2097168 bytes (at most 524288 are read)"),
        (&*long, "cannot be parsed"),
        (&*data!("first.bundle.json").replace("v0.3", "v9.9"), "cannot be parsed"),
        (
            &*data!("first.bundle.json").replace("publicKey", "unknownKind"),
            "cannot be parsed",
        ),
    ] {
        let (kind, text) = refused(&first(), &[bundle(json)]);
        assert!(
            kind == TrustErrorKind::InvalidSignature && text.contains(part),
            "{text}"
        );
        assert!(text.len() < 2048 && !text.contains('\n'), "{text}");
        let (_, text) = refused(&first(), &[legacy(json, "AAAA")]);
        assert!(text.len() < 2048 && !text.contains('\n'), "{text}");
    }
    let signature = legacy(data!("first.payload.json"), "not base64!");
    assert_refused(
        &first(),
        signature,
        TrustErrorKind::InvalidSignature,
        "its signature is not base64",
    );
}

#[test]
fn a_good_signature_counts_whatever_lies_beside_it() {
    let mut signatures: Vec<_> = (0..64)
        .map(|index| bundle(format!("{{\"garbage\":{index}}}")))
        .collect();
    let (kind, text) = refused(&first(), &signatures);
    assert_eq!(kind, TrustErrorKind::InvalidSignature);
    assert!(text.contains("found 64:") && text.contains("and 60 more"), "{text}");
    signatures.push(bundle(data!("first-over-other.bundle.json")));
    // The most telling one comes first.
    assert!(
        refused(&first(), &signatures)
            .1
            .contains("found 65: a signature by first over another digest")
    );
    signatures.push(bundle(data!("first.bundle.json")));
    assert_eq!(accepted(&first(), &signatures).0, "first");
}

#[test]
fn each_rule_accepts_its_own_kind_only() {
    let instance = Instance::new();
    let signer = instance.signer(SUBJECT, ISSUER);
    let keyless_bundle = bundle(instance.bundle(&signer, &statement(&manifest(), SIGN), WHILE_VALID));
    let keyless_layer = instance.simple_signing(&signer, &payload(&manifest()), WHILE_VALID);
    for signature in [keyless_bundle.clone(), keyless_layer.clone()] {
        assert_refused(
            &first(),
            signature,
            TrustErrorKind::UnknownSigner,
            "a keyless signature, which this rule",
        );
    }
    for signature in [
        bundle(data!("first.bundle.json")),
        legacy(data!("first.payload.json"), data!("first.signature")),
    ] {
        assert_refused(
            &keyless(&instance),
            signature,
            TrustErrorKind::UnknownSigner,
            "a signature by a key, which this rule",
        );
    }
    let both = json!({
        "keys": [{ "name": "first", "pem": data!("first.pub") }],
        "keyless": [{ "issuer": ISSUER, "subject": SUBJECT }],
    });
    let both = rooted(&instance, both);
    assert_eq!(accepted(&both, &[bundle(data!("first.bundle.json"))]).0, "first");
    assert_eq!(accepted(&both, &[keyless_bundle]).0, format!("{SUBJECT} of {ISSUER}"));
    assert_eq!(accepted(&both, &[keyless_layer]).0, format!("{SUBJECT} of {ISSUER}"));
}

/// A keyless signature in both forms.
fn both_forms(instance: &Instance, signer: &Signer, digest: &Digest, at: &str) -> [SignatureMaterial; 2] {
    [
        bundle(instance.bundle(signer, &statement(digest, SIGN), at)),
        instance.simple_signing(signer, &payload(digest), at),
    ]
}

#[test]
fn keyless_signatures_are_verified_down_to_the_trusted_root() {
    let instance = Instance::new();
    let policy = keyless(&instance);
    let signer = instance.signer(SUBJECT, ISSUER);
    for signature in both_forms(&instance, &signer, &manifest(), WHILE_VALID) {
        let (name, _, signed_at) = accepted(&policy, &[signature]);
        assert_eq!(
            (name, signed_at),
            (format!("{SUBJECT} of {ISSUER}"), Some(WHILE_VALID.parse().unwrap()))
        );
    }
    let evil = SUBJECT.replace("release.yml", "evil.yml");
    for (subject, issuer) in [
        (&*evil, ISSUER),
        (SUBJECT, "https://issuer.example.com"),
        (&*SUBJECT.replace("refs/tags/", "refs/heads/"), ISSUER),
        (&*format!("{SUBJECT}/x"), ISSUER),
    ] {
        for signature in both_forms(&instance, &instance.signer(subject, issuer), &manifest(), WHILE_VALID) {
            let part = format!("by the identity {subject} of the issuer {issuer}");
            assert_refused(&policy, signature, TrustErrorKind::UnknownSigner, &part);
        }
    }
    for signature in both_forms(&instance, &signer, &manifest(), AFTER_EXPIRY) {
        assert_refused(
            &policy,
            signature,
            TrustErrorKind::InvalidSignature,
            "certificate is not trusted",
        );
    }
    for signature in both_forms(&instance, &signer, &Digest::of(b"other"), WHILE_VALID) {
        assert_refused(
            &policy,
            signature,
            TrustErrorKind::InvalidSignature,
            "over another digest",
        );
    }
    let other = Instance::new();
    for signature in both_forms(&other, &other.signer(SUBJECT, ISSUER), &manifest(), WHILE_VALID) {
        assert_refused(
            &policy,
            signature,
            TrustErrorKind::InvalidSignature,
            "signature by https://github.com/example",
        );
    }
    // A certificate of the right authority in a log that nobody trusts.
    for signature in both_forms(&other, &signer, &manifest(), WHILE_VALID) {
        assert_refused(
            &policy,
            signature,
            TrustErrorKind::InvalidSignature,
            "without trusted evidence",
        );
    }
    let unlogged = unlogged_bundle(&signer, &statement(&manifest(), SIGN));
    assert_refused(
        &policy,
        bundle(unlogged),
        TrustErrorKind::InvalidSignature,
        "without trusted evidence",
    );
    // Another statement in a bundle that was logged.
    let mut edited = instance.bundle(&signer, &statement(&Digest::of(b"other"), SIGN), WHILE_VALID);
    let swapped = unlogged_bundle(&Signer::key(), &statement(&manifest(), SIGN));
    edited["dsseEnvelope"]["payload"] = swapped["dsseEnvelope"]["payload"].clone();
    assert_refused(
        &policy,
        bundle(edited),
        TrustErrorKind::InvalidSignature,
        "was not made by it",
    );
}

#[test]
fn a_logs_promise_alone_is_not_enough_for_a_bundle() {
    let (instance, other) = (Instance::new(), Instance::new());
    let policy = keyless(&instance);
    let signer = instance.signer(SUBJECT, ISSUER);
    // The entry has to be in the tree that the log signed.
    let mut promised = instance.bundle(&signer, &statement(&manifest(), SIGN), WHILE_VALID);
    let mut proof = promised["verificationMaterial"]["tlogEntries"][0]["inclusionProof"].clone();
    let theirs = other.bundle(&signer, &statement(&manifest(), SIGN), WHILE_VALID);
    let theirs = &theirs["verificationMaterial"]["tlogEntries"][0]["inclusionProof"];
    // The same tree, signed by another log.
    proof["checkpoint"]["envelope"] = json!(
        proof["checkpoint"]["envelope"]
            .as_str()
            .unwrap()
            .split("\n\n")
            .next()
            .unwrap()
            .to_owned()
            + "\n\n"
            + theirs["checkpoint"]["envelope"]
                .as_str()
                .unwrap()
                .split("\n\n")
                .nth(1)
                .unwrap()
    );
    promised["verificationMaterial"]["tlogEntries"][0]["inclusionProof"] = proof;
    let part = "without trusted evidence (invalid checkpoint";
    assert_refused(&policy, bundle(&promised), TrustErrorKind::InvalidSignature, part);
    promised["verificationMaterial"]["tlogEntries"][0]["inclusionProof"] = Value::Null;
    assert_refused(
        &policy,
        bundle(promised),
        TrustErrorKind::InvalidSignature,
        "without trusted evidence",
    );
}

#[test]
fn a_keyless_layer_needs_its_log_entry_and_its_own_bytes() {
    let instance = Instance::new();
    let policy = keyless(&instance);
    let signer = instance.signer(SUBJECT, ISSUER);
    let change = |change: fn(&mut String, &mut Option<String>, &mut Option<String>)| {
        let mut layer = instance.simple_signing(&signer, &payload(&manifest()), WHILE_VALID);
        if let SignatureMaterial::SimpleSigning {
            payload,
            certificate,
            log_entry,
            ..
        } = &mut layer
        {
            change(payload, certificate, log_entry);
        }
        layer
    };
    assert!(policy.verify(REPOSITORY, MANIFEST, &[change(|_, _, _| ())]).is_ok());
    let invalid = TrustErrorKind::InvalidSignature;
    assert_refused(
        &policy,
        change(|_, _, entry| *entry = None),
        invalid,
        "without trusted evidence",
    );
    assert_refused(
        &policy,
        change(|_, _, entry| *entry = Some("{}".into())),
        invalid,
        "its log entry: missing field",
    );
    let later = |_: &mut String, _: &mut Option<String>, entry: &mut Option<String>| {
        *entry = entry.as_ref().map(|entry| entry.replace("1704110400", "1704110401"));
    };
    assert_refused(&policy, change(later), invalid, "without trusted evidence");
    assert_refused(
        &policy,
        change(|payload, _, _| payload.push(' ')),
        invalid,
        "was not made by it",
    );
    assert_refused(
        &policy,
        change(|_, certificate, _| *certificate = Some("x".into())),
        invalid,
        "one certificate",
    );
}

#[test]
fn a_rule_can_require_that_a_keys_signature_is_logged() {
    let instance = Instance::new();
    let signer = Signer::key();
    let key = json!([{ "name": "k", "pem": signer.public_pem() }]);
    let policy = rooted(&instance, json!({ "keys": key, "transparencyLog": "required" }));
    for signature in both_forms(&instance, &signer, &manifest(), WHILE_VALID) {
        let (name, _, signed_at) = accepted(&policy, &[signature]);
        assert_eq!((&*name, signed_at), ("k", Some(WHILE_VALID.parse().unwrap())));
    }
    let unlogged = bundle(unlogged_bundle(&signer, &statement(&manifest(), SIGN)));
    let payload = payload(&manifest());
    let layer = legacy(&payload, &signer.key.sign(payload.as_bytes()).to_base64());
    for signature in [unlogged.clone(), layer.clone()] {
        assert_refused(
            &policy,
            signature,
            TrustErrorKind::InvalidSignature,
            "by k without trusted evidence",
        );
    }
    for signature in both_forms(&Instance::new(), &signer, &manifest(), WHILE_VALID) {
        assert_refused(
            &policy,
            signature,
            TrustErrorKind::InvalidSignature,
            "by k without trusted evidence",
        );
    }
    // The entry of another signature does not count for this one.
    let mut borrowed = unlogged_bundle(&signer, &statement(&manifest(), SIGN));
    let logged = instance.bundle(&signer, &statement(&Digest::of(b"other"), SIGN), WHILE_VALID);
    borrowed["verificationMaterial"]["tlogEntries"] = logged["verificationMaterial"]["tlogEntries"].clone();
    assert_refused(
        &policy,
        bundle(borrowed),
        TrustErrorKind::InvalidSignature,
        "by k without trusted evidence",
    );
    // Without the requirement, the key alone is enough.
    let policy = policy_of(&key);
    for signature in [unlogged, layer] {
        assert_eq!(accepted(&policy, &[signature]).0, "k");
    }
}

fn policy_of(keys: &Value) -> TrustPolicy {
    policy(json!({ "keys": keys }))
}

#[test]
fn a_bundle_of_the_public_instance_is_accepted_offline() {
    let directory = tempfile::tempdir().unwrap();
    let root = sigstore_verify::trust_root::SIGSTORE_PRODUCTION_TRUSTED_ROOT;
    std::fs::write(directory.path().join("root.json"), root).unwrap();
    let policy = |subject: &str| {
        let rule =
            json!({ "match": "**", "trustedRoot": "root.json", "keyless": [{ "issuer": ISSUER, "subject": subject }] });
        TrustPolicy::load(&json!({ "repositories": [rule] }), directory.path()).unwrap()
    };
    let subject = "https://github.com/trailofbits/rfc8785.py/.github/workflows/release.yml@refs/tags/*";
    let blob = include_bytes!("../../../tests/data/cosign/public-instance.whl");
    let signatures = [bundle(data!("public-instance.bundle.json"))];
    let verified = policy(subject).verify(REPOSITORY, blob, &signatures).unwrap();
    let Outcome::Signed { signer, signed_at, .. } = verified.outcome else {
        panic!()
    };
    assert!(
        signer.ends_with("@refs/tags/v0.1.2 of https://token.actions.githubusercontent.com"),
        "{signer}"
    );
    assert!(
        signed_at.is_some_and(|time| time.to_string().starts_with("2024-03-19T22:41")),
        "{signed_at:?}"
    );
    let error = policy(subject).verify(REPOSITORY, MANIFEST, &signatures).unwrap_err();
    assert_eq!(error.kind(), TrustErrorKind::InvalidSignature);
    let error = policy(&subject.replace("release", "other"))
        .verify(REPOSITORY, blob, &signatures)
        .unwrap_err();
    assert_eq!(error.kind(), TrustErrorKind::UnknownSigner);
}
