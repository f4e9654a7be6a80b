//! cosign's signatures in both formats, on both registries.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use pilothouse_external::cosign::{Cosign, Format, Key};
use pilothouse_external::oras::{Layer, Oras, Place};
use pilothouse_external::registry::Registry;
use serde_json::{Value, json};

use super::{BUNDLE, blob, digest_in, fallback_tag, on_both, push, referrers};

/// Predicate type of a statement in a bundle of `cosign sign`.
const SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";

fn keys(cosign: &Cosign) -> [Key; 2] {
    ["first", "second"].map(|name| cosign.generate_key(name).unwrap())
}

/// The tag of signatures in the older format.
fn signature_tag(artifact: &str) -> String {
    fallback_tag(artifact) + ".sig"
}

/// The in-toto statement in a bundle.
fn statement(bundle: &[u8]) -> Value {
    let bundle: Value = serde_json::from_slice(bundle).unwrap();
    let envelope = &bundle["dsseEnvelope"];
    assert_eq!(envelope["payloadType"], "application/vnd.in-toto+json");
    let payload = BASE64_STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
    serde_json::from_slice(&payload).unwrap()
}

#[test]
fn cosign_verifies_its_own_key_in_both_formats_and_no_other_key() {
    on_both(|registry| {
        let (cosign, oras) = (Cosign::new(), Oras::new());
        let [key, other] = keys(&cosign);
        for (format, repository) in [(Format::Bundle, "signed/bundle"), (Format::Tag, "signed/tag")] {
            let artifact = push(&oras, registry, repository);
            let unsigned = cosign.verify(registry, &artifact, &key, format).unwrap_err();
            assert!(unsigned.printed.errors.contains("no signatures found"), "{unsigned}");
            cosign.sign(registry, &artifact, &key, format, &[]).unwrap();
            cosign.verify(registry, &artifact, &key, format).unwrap();
            let refused = cosign.verify(registry, &artifact, &other, format).unwrap_err();
            assert!(refused.printed.errors.contains("no matching"), "{refused}");
        }
    });
}

#[test]
fn a_bundle_is_a_statement_in_a_referring_artifact() {
    on_both(|registry| {
        let (cosign, oras) = (Cosign::new(), Oras::new());
        let [key, _] = keys(&cosign);
        let artifact = push(&oras, registry, "signed/bundle");
        cosign
            .sign(registry, &artifact, &key, Format::Bundle, &[("team", "a")])
            .unwrap();
        let [manifest] = <[_; 1]>::try_from(referrers(registry, &artifact)).unwrap();
        assert_eq!(manifest["artifactType"], BUNDLE);
        assert_eq!(manifest["subject"]["digest"], digest_in(&artifact));
        let [layer] = <[_; 1]>::try_from(manifest["layers"].as_array().unwrap().clone()).unwrap();
        assert_eq!(layer["mediaType"], BUNDLE);
        let statement = statement(&blob(registry, &artifact, &layer));
        let hexadecimal = digest_in(&artifact).trim_start_matches("sha256:");
        let subject = json!([{"digest": {"sha256": hexadecimal}, "annotations": {"team": "a"}}]);
        assert_eq!(statement["subject"], subject);
        assert_eq!(statement["predicateType"], SIGNATURE);
        assert!(!registry.tags("signed/bundle").contains(&signature_tag(&artifact)));
    });
}

#[test]
fn the_older_format_has_one_tag_with_a_payload_for_each_key() {
    on_both(|registry| {
        let (cosign, oras) = (Cosign::new(), Oras::new());
        let artifact = push(&oras, registry, "signed/tag");
        for key in &keys(&cosign) {
            cosign.sign(registry, &artifact, key, Format::Tag, &[]).unwrap();
            cosign.verify(registry, &artifact, key, Format::Tag).unwrap();
        }
        let manifest = registry.manifest("signed/tag", &signature_tag(&artifact)).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 2);
        // Both keys sign the same payload, so the layers differ in nothing but the annotation.
        assert_eq!(layers[0]["digest"], layers[1]["digest"]);
        assert_ne!(layers[0]["annotations"], layers[1]["annotations"]);
        for layer in layers {
            assert_eq!(layer["mediaType"], "application/vnd.dev.cosign.simplesigning.v1+json");
            let payload: Value = serde_json::from_slice(&blob(registry, &artifact, layer)).unwrap();
            let critical = &payload["critical"];
            assert_eq!(critical["image"]["docker-manifest-digest"], digest_in(&artifact));
            assert_eq!(critical["type"], "cosign container image signature");
            assert_eq!(
                critical["identity"]["docker-reference"],
                registry.reference("signed/tag")
            );
            assert!(layer["annotations"]["dev.cosignproject.cosign/signature"].is_string());
        }
        assert!(!registry.tags("signed/tag").contains(&fallback_tag(&artifact)));
    });
}

#[test]
fn each_key_that_signs_a_bundle_adds_an_artifact() {
    on_both(|registry| {
        let (cosign, oras) = (Cosign::new(), Oras::new());
        let artifact = push(&oras, registry, "signed/twice");
        for (already, key) in keys(&cosign).iter().enumerate() {
            cosign.sign(registry, &artifact, key, Format::Bundle, &[]).unwrap();
            assert_eq!(referrers(registry, &artifact).len(), already + 1);
            cosign.verify(registry, &artifact, key, Format::Bundle).unwrap();
        }
    });
}

#[test]
fn an_attestation_is_a_bundle_that_cosign_takes_as_signature() {
    let registry = Registry::with_referrers().unwrap();
    let (cosign, oras) = (Cosign::new(), Oras::new());
    let [key, _] = keys(&cosign);
    let artifact = push(&oras, &registry, "attested");
    let predicate = "https://example.com/scanned/v1";
    cosign
        .attest(&registry, &artifact, &key, predicate, r#"{"passed": false}"#)
        .unwrap();
    let [manifest] = <[_; 1]>::try_from(referrers(&registry, &artifact)).unwrap();
    assert_eq!(manifest["artifactType"], BUNDLE);
    let statement = statement(&blob(&registry, &artifact, &manifest["layers"][0]));
    assert_eq!(statement["predicateType"], predicate);
    // A reason to be stricter than cosign: whoever signs a bad report does not agree that the artifact runs.
    cosign.verify(&registry, &artifact, &key, Format::Bundle).unwrap();
}

#[test]
fn a_bundle_attached_to_another_artifact_does_not_verify() {
    on_both(|registry| {
        let (cosign, oras) = (Cosign::new(), Oras::new());
        let [key, _] = keys(&cosign);
        let signed = push(&oras, registry, "moved");
        cosign.sign(registry, &signed, &key, Format::Bundle, &[]).unwrap();
        let [manifest] = <[_; 1]>::try_from(referrers(registry, &signed)).unwrap();
        let bundle = Layer {
            name: "bundle.json",
            media_type: BUNDLE,
            bytes: &blob(registry, &signed, &manifest["layers"][0]),
        };
        let other = oras
            .attach(registry, &signed, "application/vnd.example.other", &bundle)
            .unwrap();
        let other = format!("moved@{other}");
        oras.attach(registry, &other, BUNDLE, &bundle).unwrap();
        let refused = cosign.verify(registry, &other, &key, Format::Bundle).unwrap_err();
        let reason = "provided artifact digest does not match any digest in statement";
        assert!(refused.printed.errors.contains(reason), "{refused}");
    });
}

#[test]
fn a_copied_bundle_verifies_in_the_other_registry() {
    let (from, to) = (Registry::docker().unwrap(), Registry::with_referrers().unwrap());
    let (cosign, oras) = (Cosign::new(), Oras::new());
    let [key, _] = keys(&cosign);
    let artifact = push(&oras, &from, "plugins/copied");
    cosign.sign(&from, &artifact, &key, Format::Bundle, &[]).unwrap();
    let copied = oras.copy(Place::Registry(&from, &artifact), Place::Registry(&to, "copied:1.0.0"));
    copied.unwrap();
    let copied = format!("copied@{}", digest_in(&artifact));
    cosign.verify(&to, &copied, &key, Format::Bundle).unwrap();
}

#[test]
fn a_key_on_p384_signs_with_sha384_and_cosign_has_to_be_told() {
    let registry = Registry::with_referrers().unwrap();
    let (cosign, oras) = (Cosign::new(), Oras::new());
    let artifact = push(&oras, &registry, "algorithms");
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let key = cosign.import_key("p384", &pair.serialize_pem()).unwrap();
    cosign.sign(&registry, &artifact, &key, Format::Bundle, &[]).unwrap();
    assert!(cosign.verify(&registry, &artifact, &key, Format::Bundle).is_err());
    let (public, reference) = (key.public_file().to_str().unwrap(), registry.reference(&artifact));
    let told = [
        "verify",
        "--insecure-ignore-tlog=true",
        "--signature-digest-algorithm=sha384",
        "--key",
    ];
    cosign.run(&[&told[..], &[public, &reference]].concat()).unwrap();
}

#[test]
fn a_program_reaches_nothing_but_loopback() {
    // The first would fetch Sigstore's trusted root, the second asks a registry for a digest.
    for arguments in [
        ["initialize", "--mirror=https://tuf.example"],
        ["triangulate", "registry.example/plugins/a:1"],
    ] {
        let error = Cosign::new().run(&arguments).unwrap_err().to_string();
        assert!(
            error.contains("dial tcp 127.0.0.1:9: connect: connection refused"),
            "{error}"
        );
    }
}

#[test]
fn a_signed_blob_is_a_bundle_without_an_envelope() {
    let cosign = Cosign::new();
    let [key, _] = keys(&cosign);
    let bundle: Value = serde_json::from_slice(&cosign.sign_blob(&key, b"anything").unwrap()).unwrap();
    assert_eq!(bundle["mediaType"], BUNDLE);
    assert!(bundle.get("dsseEnvelope").is_none());
    assert!(bundle["messageSignature"]["signature"].is_string());
}
