//! Pushing: blobs, manifests, and files that belong to an artifact.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use pilothouse_artifact::{
    ArtifactBuilder, Attachment, ComponentInfo, Content, Descriptor, Digest, ErrorKind, PluginManifest, Silent, Target,
    annotation, media_type,
};
use serde_json::{Value, json};

use pilothouse_test_registry::exchange::{Manner, reply};
use pilothouse_test_registry::{REPOSITORY, Registry, component, download, plugin};

fn readme(text: &str) -> Attachment {
    Attachment {
        artifact_type: "application/vnd.pilothouse.readme".into(),
        media_type: "text/markdown".into(),
        content: text.to_owned().into(),
        annotations: BTreeMap::from([(annotation::TITLE.to_owned(), "README.md".to_owned())]),
    }
}

#[tokio::test]
async fn what_is_pushed_can_be_pulled_and_is_not_sent_twice() {
    let registry = Registry::start().await;
    let store = registry.store();
    let artifact = ArtifactBuilder::new(&b"\0asm component"[..], ComponentInfo::default())
        .annotation(annotation::VERSION, Some("1.0.0"))
        .build();
    let pushed = artifact.push(&store, Some("1.0.0"), &Silent).await.unwrap();
    assert_eq!(pushed, artifact.descriptor);
    let resolved = store.resolve(&Target::Tag("1.0.0".into())).await.unwrap();
    let manifest = store.manifest(resolved.digest).await.unwrap();
    let manifest = PluginManifest::parse("plugin", &manifest, 1000).unwrap();
    assert_eq!(download(&store, &manifest.component).await.unwrap(), b"\0asm component");
    assert_eq!(store.tags().await.unwrap(), ["1.0.0"]);

    let uploads = registry.count("PUT /v2/acme/plugin/blobs/uploads");
    assert_eq!(uploads, 2);
    artifact.push(&store, Some("1.0.1"), &Silent).await.unwrap();
    assert_eq!(registry.count("PUT /v2/acme/plugin/blobs/uploads"), uploads);
}

#[tokio::test]
async fn a_file_is_sent_from_disk_and_a_broken_upload_restarts() {
    let registry = Registry::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("component.wasm");
    let bytes = vec![5; 200_000];
    std::fs::write(&path, &bytes).unwrap();
    let tries = AtomicUsize::new(0);
    registry.hook(move |request, _| {
        let broken = request.method == "PUT" && tries.fetch_add(1, Ordering::Relaxed) == 0;
        broken.then(|| reply(201, &[], "x").manner(Manner::CutAfter(0)))
    });
    registry
        .store()
        .push_blob(&component(&bytes), &Content::File(path), &Silent)
        .await
        .unwrap();
    assert_eq!(registry.count("POST"), 2);
    assert_eq!(registry.state.lock().unwrap().blobs[&Digest::of(&bytes)], bytes);
}

#[tokio::test]
async fn an_upload_to_nowhere_is_refused() {
    let registry = Registry::start().await;
    for location in [
        "http://[",
        "http://storage.example/upload",
        "ftp://storage.example/",
        "",
    ] {
        registry.hook(move |request, _| {
            (request.method == "POST").then(|| match location {
                "" => reply(202, &[], ""),
                location => reply(202, &[("Location", location)], ""),
            })
        });
        let content = Content::Bytes("x".into());
        let error = registry
            .store()
            .push_blob(&component(b"x"), &content, &Silent)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{location}: {error}");
    }
}

#[tokio::test]
async fn attached_files_are_found_with_and_without_referrers_api() {
    for referrers_api in [true, false] {
        let registry = Registry::start().await;
        registry.change(|state| state.referrers_api = referrers_api);
        let store = registry.store();
        let subject = plugin(&registry, "1", b"component");
        let one = store.attach(&subject, &readme("# One")).await.unwrap();
        store.attach(&subject, &readme("# Two")).await.unwrap();
        store.attach(&subject, &readme("# Two")).await.unwrap();
        let mut sbom = readme("{}");
        sbom.artifact_type = "application/vnd.cyclonedx+json".into();
        store.attach(&subject, &sbom).await.unwrap();

        let found = store
            .referrers(subject.digest, Some("application/vnd.pilothouse.readme"))
            .await
            .unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|it| it.annotations[annotation::TITLE] == "README.md"));
        assert!(found.iter().any(|it| it.digest == one.digest));
        assert_eq!(store.referrers(subject.digest, None).await.unwrap().len(), 3);
        let manifest: Value = serde_json::from_slice(&store.manifest(one.digest).await.unwrap()).unwrap();
        assert_eq!(manifest["layers"][0]["mediaType"], "text/markdown");
        assert_eq!(manifest["config"]["mediaType"], media_type::EMPTY);
        let fallback = format!("sha256-{}", subject.digest.hex());
        let has_tag = registry
            .state
            .lock()
            .unwrap()
            .manifests
            .contains_key(&(REPOSITORY.to_owned(), fallback));
        assert_eq!(has_tag, !referrers_api);
    }
}

#[tokio::test]
async fn a_referrer_listed_by_its_config_type_is_read_to_decide() {
    let registry = Registry::start().await;
    let store = registry.store();
    let subject = plugin(&registry, "1", b"component");
    store.attach(&subject, &readme("# One")).await.unwrap();
    // As go-containerregistry's registry does.
    registry.hook(|request, state| {
        let list = request.path.contains("/referrers/");
        let entries: Vec<Value> = state
            .manifests
            .iter()
            .filter(|((_, name), (_, bytes))| name.contains(':') && String::from_utf8_lossy(bytes).contains("subject"))
            .map(|(_, (media_type, bytes))| {
                let mut entry = Descriptor::of(media_type, bytes);
                entry.artifact_type = Some(media_type::EMPTY.into());
                serde_json::to_value(entry).unwrap()
            })
            .collect();
        list.then(|| reply(200, &[], json!({"schemaVersion": 2, "manifests": entries}).to_string()))
    });
    let found = store
        .referrers(subject.digest, Some("application/vnd.pilothouse.readme"))
        .await
        .unwrap();
    assert_eq!(found.len(), 1);
    assert!(
        store
            .referrers(subject.digest, Some("application/other"))
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn the_fallback_tag_keeps_concurrent_writes_of_others() {
    let registry = Registry::start().await;
    registry.change(|state| state.referrers_api = false);
    let subject = plugin(&registry, "1", b"component");
    let fallback = format!("sha256-{}", subject.digest.hex());
    let foreign = json!({"schemaVersion": 2, "mediaType": media_type::INDEX, "annotations": {"kept": "yes"}, "manifests": [
        {"mediaType": "x/y", "digest": "sha512:00", "size": 1},
        {"mediaType": media_type::MANIFEST, "digest": Digest::of(b"theirs"), "size": 6, "platform": {"os": "linux"}},
    ]});
    registry.put(&fallback, media_type::INDEX, foreign.to_string());
    // Somebody else's write replaces ours once.
    let writes = AtomicUsize::new(0);
    let path = format!("PUT /v2/{REPOSITORY}/manifests/{fallback}");
    registry.hook(move |request, _| {
        let is_index = format!("{} {}", request.method, request.path) == path;
        (is_index && writes.fetch_add(1, Ordering::Relaxed) == 0).then(|| reply(201, &[], ""))
    });
    let one = registry.store().attach(&subject, &readme("# One")).await.unwrap();
    let state = registry.state.lock().unwrap();
    let (_, bytes) = &state.manifests[&(REPOSITORY.to_owned(), fallback)];
    let index: Value = serde_json::from_slice(bytes).unwrap();
    assert_eq!(index["annotations"]["kept"], "yes");
    assert_eq!(index["manifests"][0], foreign["manifests"][0]);
    assert_eq!(index["manifests"][1], foreign["manifests"][1]);
    assert_eq!(index["manifests"][2]["digest"], one.digest.to_string());
    assert_eq!(
        index["manifests"][2]["artifactType"],
        "application/vnd.pilothouse.readme"
    );
}
