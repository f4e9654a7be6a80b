//! Finding signatures, in the forms in which cosign leaves them.

use std::sync::Arc;

use pilothouse_artifact::{
    ArtifactCache, Descriptor, Digest, ErrorKind, FetchError, Fetcher, SignatureMaterial, TrustSource,
    limits::SIGNATURES_LIMIT, media_type,
};
use serde_json::{Value, json};

use pilothouse_test_registry::exchange::reply;
use pilothouse_test_registry::{REPOSITORY, Registry, client, plugin};

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Pushes as cosign 3 does: a referrer with one layer.
fn put_bundle(registry: &Registry, subject: &Descriptor, json: &str, artifact_type: &str) -> Descriptor {
    registry.put_blob(json);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": media_type::MANIFEST, "artifactType": artifact_type,
        "config": Descriptor::of(media_type::EMPTY, b"{}"),
        "layers": [Descriptor::of(BUNDLE, json.as_bytes())],
        "subject": subject,
        "annotations": {"dev.sigstore.bundle.predicateType": "https://sigstore.dev/cosign/sign/v1"},
    });
    registry.put(
        &format!("untagged-{}", Digest::of(json.as_bytes()).hex()),
        media_type::MANIFEST,
        manifest.to_string(),
    )
}

/// Pushes as older versions do: a tag with a layer for each signature.
fn put_older(registry: &Registry, subject: &Descriptor, layers: &Value) {
    let manifest = json!({
        "schemaVersion": 2, "mediaType": media_type::MANIFEST,
        "config": Descriptor::of("application/vnd.oci.image.config.v1+json", b"{}"), "layers": layers,
    });
    registry.put(
        &format!("sha256-{}.sig", subject.digest.hex()),
        media_type::MANIFEST,
        manifest.to_string(),
    );
}

fn older_layer(payload: &str) -> Value {
    let layer = Descriptor::of("application/vnd.dev.cosign.simplesigning.v1+json", payload.as_bytes());
    let mut layer = serde_json::to_value(layer).unwrap();
    layer["annotations"] = json!({
        "dev.cosignproject.cosign/signature": "c2ln", "dev.sigstore.cosign/certificate": "PEM",
        "dev.sigstore.cosign/bundle": "{}",
    });
    layer
}

#[tokio::test]
async fn bundles_and_older_signatures_are_found_together() {
    let registry = Registry::start().await;
    let subject = plugin(&registry, "1", b"component");
    put_bundle(&registry, &subject, "{\"bundle\":1}", BUNDLE);
    // As some registries list it.
    put_bundle(&registry, &subject, "{\"bundle\":2}", media_type::EMPTY);
    put_bundle(&registry, &subject, "{\"other\":3}", "application/vnd.other");
    registry.put_blob("payload");
    put_older(&registry, &subject, &json!([older_layer("payload")]));
    let mut found = registry.store().signatures(subject.digest).await.unwrap();
    let older = found.pop().unwrap();
    assert_eq!(
        older,
        SignatureMaterial::SimpleSigning {
            payload: "payload".into(),
            signature: "c2ln".into(),
            certificate: Some("PEM".into()),
            chain: None,
            log_entry: Some("{}".into()),
            timestamp: None,
        }
    );
    let mut bundles: Vec<String> = found
        .into_iter()
        .map(|it| match it {
            SignatureMaterial::Bundle { json } => json,
            SignatureMaterial::SimpleSigning { .. } => panic!("one is older"),
        })
        .collect();
    bundles.sort();
    assert_eq!(bundles, ["{\"bundle\":1}", "{\"bundle\":2}"]);
}

#[tokio::test]
async fn without_the_api_the_fallback_tag_has_them() {
    let registry = Registry::start().await;
    let subject = plugin(&registry, "1", b"component");
    let mut bundle = put_bundle(&registry, &subject, "{\"bundle\":1}", BUNDLE);
    bundle.artifact_type = Some(BUNDLE.into());
    registry.change(|state| state.referrers_api = false);
    let index = json!({"schemaVersion": 2, "mediaType": media_type::INDEX, "manifests": [bundle]});
    registry.put(
        &format!("sha256-{}", subject.digest.hex()),
        media_type::INDEX,
        index.to_string(),
    );
    assert_eq!(registry.store().signatures(subject.digest).await.unwrap().len(), 1);
}

#[tokio::test]
async fn nothing_is_found_where_nothing_is() {
    let registry = Registry::start().await;
    let subject = plugin(&registry, "1", b"component");
    for referrers_api in [true, false] {
        registry.change(|state| state.referrers_api = referrers_api);
        assert!(registry.store().signatures(subject.digest).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn hostile_signatures_are_left_out_and_bounded() {
    let registry = Registry::start().await;
    let subject = plugin(&registry, "1", b"component");
    // Too large by declaration, absent, other bytes, not UTF-8, without a signature; and then more than anybody reads.
    let mut huge = older_layer("huge");
    huge["size"] = json!(u64::MAX);
    let binary = vec![0xff, 0xfe];
    registry.put_blob(binary.clone());
    let mut not_text = older_layer("");
    not_text["digest"] = json!(Digest::of(&binary));
    not_text["size"] = json!(2);
    let mut unsigned = older_layer("payload");
    unsigned["annotations"] = json!({});
    let mut layers = vec![huge, older_layer("absent"), not_text, unsigned];
    layers.extend((0..200).map(|_| older_layer("payload")));
    registry.put_blob("payload");
    put_older(&registry, &subject, &json!(layers));
    assert_eq!(
        registry.store().signatures(subject.digest).await.unwrap().len(),
        SIGNATURES_LIMIT
    );
    // No manifest at all.
    registry.put(
        &format!("sha256-{}.sig", subject.digest.hex()),
        media_type::MANIFEST,
        "[1]",
    );
    assert!(registry.store().signatures(subject.digest).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_registry_that_fails_is_not_one_without_signatures() {
    let registry = Registry::start().await;
    let subject = plugin(&registry, "1", b"component");
    put_bundle(&registry, &subject, "{\"bundle\":1}", BUNDLE);
    for part in ["/referrers/", "/blobs/", ".sig"] {
        registry.hook(move |request, _| request.path.contains(part).then(|| reply(500, &[], "")));
        let error = registry.store().signatures(subject.digest).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Server, "{part}");
        assert!(error.to_string().contains(REPOSITORY));
    }
}

/// Files that cosign has signed or made.
macro_rules! cosign {
    ($name:literal) => {
        include_str!(concat!("../data/cosign/", $name))
    };
}

/// The verdict of a host on the signed manifest; an error is one of the registry. The component is not there.
async fn is_accepted(registry: &Registry) -> Result<bool, ErrorKind> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("first.pub"), cosign!("first.pub")).unwrap();
    let trust = folder.path().join("trust.yaml");
    std::fs::write(&trust, "repositories: [{match: '**', keys: [{file: first.pub}]}]").unwrap();
    let cache = ArtifactCache::open(&folder.path().join("cache"), 1 << 20).unwrap();
    let fetcher = Fetcher::new(
        client(registry.config()),
        cache,
        Arc::new(TrustSource::open(&trust).unwrap()),
    );
    let manifest = Digest::of(cosign!("manifest.json").as_bytes());
    match fetcher.fetch(&registry.location(""), manifest, &()).await.err() {
        // Only what is trusted is asked for its component.
        Some(FetchError::Artifact(error)) if error.to_string().contains("cannot download") => Ok(true),
        Some(FetchError::Artifact(error)) => Err(error.kind()),
        _ => Ok(false),
    }
}

#[tokio::test]
async fn a_signature_is_valid_whatever_the_other_ways_answer() {
    let older = |registry: &Registry, subject: &Descriptor| {
        let payload = cosign!("first.payload.json");
        let mut layer = older_layer(payload);
        let signature = cosign!("first.signature").trim();
        layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
        registry.put_blob(payload);
        put_older(registry, subject, &json!([layer]));
    };
    // JFrog answers 403 for tags that are not there; others fail.
    for status in [403, 500, 401] {
        for (is_bundle, closed) in [
            (true, &["/manifests/sha256-"][..]),
            (false, &["/referrers/", "manifests/sha256-MANIFEST "]),
        ] {
            let registry = Registry::start().await;
            let subject = registry.put("1", media_type::MANIFEST, cosign!("manifest.json"));
            if is_bundle {
                // The first that is listed cannot be had.
                put_bundle(&registry, &subject, "{}", BUNDLE);
                put_bundle(&registry, &subject, cosign!("first.bundle.json"), BUNDLE);
            } else {
                older(&registry, &subject);
            }
            let lost = Digest::of(b"{}").to_string();
            let closed: Vec<String> = closed
                .iter()
                .map(|part| part.replace("MANIFEST", &subject.digest.hex()))
                .collect();
            let refuses = move |path: &str| {
                let path = format!("{path} ");
                path.contains(&format!("/blobs/{lost}")) || closed.iter().any(|part| path.contains(part))
            };
            registry.hook(move |request, _| refuses(&request.path).then(|| reply(status, &[], "")));
            assert_eq!(is_accepted(&registry).await, Ok(true), "{status} {is_bundle}");
            let found = registry.store().find_signatures(subject.digest).await;
            assert_eq!(found.signatures.len(), 1, "{status} {is_bundle}");
            assert!(found.problem.is_some(), "{status} {is_bundle}");
        }
    }
}

#[tokio::test]
async fn without_a_valid_signature_a_closed_way_is_told() {
    let registry = Registry::start().await;
    let subject = registry.put("1", media_type::MANIFEST, cosign!("manifest.json"));
    assert_eq!(is_accepted(&registry).await, Ok(false));
    put_bundle(&registry, &subject, "{}", BUNDLE);
    let closed = |request: &pilothouse_test_registry::exchange::Request| request.path.contains("manifests/sha256-");
    registry.hook(move |request, _| closed(request).then(|| reply(403, &[], "")));
    assert_eq!(is_accepted(&registry).await, Err(ErrorKind::Forbidden));
    // Where the API answers, the tag that stands for it is not missed.
    assert_eq!(registry.store().referrers(subject.digest, None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_fallback_tag_that_is_the_subject_itself_lists_nothing() {
    let registry = Registry::start().await;
    registry.change(|state| state.referrers_api = false);
    let child = plugin(&registry, "child", b"component");
    let index = json!({"schemaVersion": 2, "mediaType": media_type::INDEX, "manifests": [child]}).to_string();
    let subject = registry.put("1", media_type::INDEX, index.clone());
    registry.put(&format!("sha256-{}", subject.digest.hex()), media_type::INDEX, index);
    assert!(
        registry
            .store()
            .referrers(subject.digest, None)
            .await
            .unwrap()
            .is_empty()
    );
}
