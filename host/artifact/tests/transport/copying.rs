//! Copies between registries and OCI layouts.

use std::collections::BTreeMap;
use std::path::Path;

use pilothouse_artifact::{
    ArtifactStore, Attachment, Copied, Credentials, Descriptor, Digest, ErrorKind, Location, Silent, Target, copy,
    media_type,
};
use serde_json::{Value, json};

use pilothouse_test_registry::exchange::reply;
use pilothouse_test_registry::{Registry, client, component, download, plugin};

fn tag(tag: &str) -> Target {
    Target::Tag(tag.to_owned())
}

fn layout(location: &str) -> ArtifactStore {
    client(json!({}))
        .open(&location.parse().unwrap(), &Credentials::Anonymous)
        .unwrap()
}

fn attachment(text: &str) -> Attachment {
    Attachment {
        artifact_type: "application/vnd.cyclonedx+json".into(),
        media_type: "application/vnd.cyclonedx+json".into(),
        content: text.to_owned().into(),
        annotations: BTreeMap::new(),
    }
}

/// A plugin with an SBOM, a file that belongs to the SBOM, and an older signature.
async fn signed(registry: &Registry, version: &str, component: &[u8]) -> Descriptor {
    let store = registry.store();
    let subject = plugin(registry, version, component);
    let sbom = store
        .attach(&subject, &attachment(&format!("sbom of {version}")))
        .await
        .unwrap();
    store
        .attach(&sbom, &attachment(&format!("signature of the sbom of {version}")))
        .await
        .unwrap();
    let payload = format!("payload of {version}");
    registry.put_blob(payload.clone());
    let mut layer = Descriptor::of("application/vnd.dev.cosign.simplesigning.v1+json", payload.as_bytes());
    layer
        .annotations
        .insert("dev.cosignproject.cosign/signature".into(), "c2ln".into());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": media_type::MANIFEST,
        "config": Descriptor::of("application/vnd.oci.image.config.v1+json", b"{}"), "layers": [layer],
    });
    registry.put(
        &format!("sha256-{}.sig", subject.digest.hex()),
        media_type::MANIFEST,
        manifest.to_string(),
    );
    subject
}

async fn has_everything(store: &ArtifactStore, subject: &Descriptor, component_bytes: &[u8]) {
    assert_eq!(
        download(store, &component(component_bytes)).await.unwrap(),
        component_bytes
    );
    let referrers = store
        .referrers(subject.digest, Some("application/vnd.cyclonedx+json"))
        .await
        .unwrap();
    assert_eq!(referrers.len(), 1);
    assert_eq!(store.referrers(referrers[0].digest, None).await.unwrap().len(), 1);
    assert_eq!(store.signatures(subject.digest).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_artifact_is_copied_with_its_parts_through_every_store() {
    for referrers_api in [true, false] {
        let (from, to) = (Registry::start().await, Registry::start().await);
        from.change(|state| state.referrers_api = referrers_api);
        to.change(|state| state.referrers_api = !referrers_api);
        let bytes = vec![3; 1_000_000];
        let subject = signed(&from, "1", &bytes).await;
        let directory = tempfile::tempdir().unwrap();
        let directory_layout = layout(&format!("oci-layout:{}/layout", directory.path().display()));
        let archive = layout(&format!("oci-archive:{}/layout.tar", directory.path().display()));
        let stores = [&from.store(), &directory_layout, &archive, &to.store()];
        for (from, to) in stores.iter().zip(&stores[1..]) {
            let copied = copy(from, to, subject.digest, Some("1"), &Silent).await.unwrap();
            to.finish().await.unwrap();
            assert_eq!((copied.manifests, copied.referrers), (4, 3), "{copied:?}");
            assert_eq!(to.resolve(&tag("1")).await.unwrap().digest, subject.digest);
            has_everything(to, &subject, &bytes).await;
            let again = copy(from, to, subject.digest, Some("1"), &Silent).await.unwrap();
            to.finish().await.unwrap();
            assert_eq!((again.blobs, again.bytes), (0, 0));
        }
    }
}

#[tokio::test]
async fn a_layout_has_the_form_that_other_tools_read() {
    let registry = Registry::start().await;
    let one = signed(&registry, "1", b"component one").await;
    let two = signed(&registry, "2", b"component two").await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("layout");
    let store = layout(&format!("oci-layout:{}", path.display()));
    copy(&registry.store(), &store, one.digest, Some("1"), &Silent)
        .await
        .unwrap();
    copy(&registry.store(), &store, two.digest, Some("2"), &Silent)
        .await
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(path.join("oci-layout")).unwrap(),
        "{\"imageLayoutVersion\":\"1.0.0\"}"
    );
    let index: Value = serde_json::from_slice(&std::fs::read(path.join("index.json")).unwrap()).unwrap();
    assert_eq!(index["schemaVersion"], 2);
    let tagged = |tag: &str| {
        let entries = index["manifests"].as_array().unwrap();
        entries
            .iter()
            .filter(|it| it["annotations"]["org.opencontainers.image.ref.name"] == tag)
            .count()
    };
    assert_eq!((tagged("1"), tagged("2")), (1, 1));
    for entry in std::fs::read_dir(path.join("blobs/sha256")).unwrap() {
        let entry = entry.unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        assert_eq!(entry.file_name().to_str().unwrap(), Digest::of(&bytes).hex());
    }
    let mut tags = store.tags().await.unwrap();
    tags.retain(|it| !it.starts_with("sha256-"));
    assert_eq!(tags, ["1", "2"]);

    // A tag moves to its new manifest and stands for no other.
    copy(&registry.store(), &store, two.digest, Some("1"), &Silent)
        .await
        .unwrap();
    assert_eq!(store.resolve(&tag("1")).await.unwrap().digest, two.digest);
    assert_eq!(store.resolve(&tag("2")).await.unwrap().digest, two.digest);
    store.manifest(one.digest).await.unwrap();
}

#[tokio::test]
async fn a_layout_with_several_plugins_is_a_mirror_for_each() {
    let (one, two) = (Registry::start().await, Registry::start().await);
    let first = signed(&one, "1", b"component one").await;
    let second = signed(&two, "1", b"component two").await;
    let directory = tempfile::tempdir().unwrap();
    let path = format!("oci-layout:{}/mirror", directory.path().display());
    let store = layout(&path);
    for (registry, subject) in [(&one, &first), (&two, &second)] {
        // As it travels into a cluster without a network.
        let archive = layout(&format!(
            "oci-archive:{}/{}.tar",
            directory.path().display(),
            subject.digest.hex()
        ));
        copy(&registry.store(), &archive, subject.digest, Some("1"), &Silent)
            .await
            .unwrap();
        archive.finish().await.unwrap();
        copy(&archive, &store, subject.digest, Some("1"), &Silent)
            .await
            .unwrap();
    }
    // The plain tag is both, so it is neither.
    assert_eq!(store.resolve(&tag("1")).await.unwrap_err().kind(), ErrorKind::Layout);
    for (registry, subject) in [(&one, &first), (&two, &second)] {
        let config = json!({"registries": [{"host": registry.host(), "plainHttp": true, "mirrors": [path]}]});
        registry.hook(|_, _| Some(reply(500, &[], "")));
        let mirrored = client(config)
            .open(&registry.location(":1"), &Credentials::Anonymous)
            .unwrap();
        assert_eq!(mirrored.resolve(&tag("1")).await.unwrap().digest, subject.digest);
        assert_eq!(mirrored.signatures(subject.digest).await.unwrap().len(), 1);
        assert_eq!(mirrored.resolve(&tag("2")).await.unwrap_err().kind(), ErrorKind::Server);
    }
}

#[tokio::test]
async fn an_archive_is_reproducible_and_either_whole_or_absent() {
    let registry = Registry::start().await;
    let one = signed(&registry, "1", b"component one").await;
    let two = signed(&registry, "2", b"component two").await;
    let directory = tempfile::tempdir().unwrap();
    let make = async |name: &str| {
        let path = directory.path().join(name);
        let store = layout(&format!("oci-archive:{}", path.display()));
        copy(&registry.store(), &store, one.digest, Some("1"), &Silent)
            .await
            .unwrap();
        assert!(!path.exists(), "nothing is there before it is finished");
        store.finish().await.unwrap();
        std::fs::read(path).unwrap()
    };
    assert!(make("a.tar").await == make("b.tar").await);
    // A second copy adds to it.
    let store = layout(&format!("oci-archive:{}/a.tar", directory.path().display()));
    copy(&registry.store(), &store, two.digest, Some("2"), &Silent)
        .await
        .unwrap();
    store.finish().await.unwrap();
    let store = layout(&format!("oci-archive:{}/a.tar", directory.path().display()));
    has_everything(&store, &one, b"component one").await;
    has_everything(&store, &two, b"component two").await;
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        2,
        "no temporary file stays"
    );
}

fn tar_of(entries: &[(&str, tar::EntryType, &[u8])], path: &Path) {
    let mut builder = tar::Builder::new(std::fs::File::create(path).unwrap());
    for (name, kind, bytes) in entries {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.finish().unwrap();
}

#[tokio::test]
async fn a_hostile_tar_is_refused() {
    use tar::EntryType;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("evil.tar");
    let store = || layout(&format!("oci-archive:{}", path.display()));
    for (name, kind, problem) in [
        ("../../etc/passwd", EntryType::Regular, "leads out"),
        ("/etc/passwd", EntryType::Regular, "leads out"),
        ("blobs/sha256/../../x", EntryType::Regular, "leads out"),
        ("blobs", EntryType::Symlink, "is a link"),
        ("blobs/sha256/x", EntryType::Link, "is a link"),
        ("device", EntryType::Block, "neither a file"),
        ("sparse", EntryType::GNUSparse, "neither a file"),
    ] {
        tar_of(&[("oci-layout", EntryType::Regular, b"{}"), (name, kind, b"")], &path);
        let error = store().resolve(&tag("1")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Layout, "{error}");
        assert!(error.to_string().contains(problem), "{name}: {error}");
    }
    tar_of(
        &[
            ("oci-layout", EntryType::Regular, b"{}"),
            ("./oci-layout", EntryType::Regular, b"{}"),
        ],
        &path,
    );
    assert!(
        store()
            .resolve(&tag("1"))
            .await
            .unwrap_err()
            .to_string()
            .contains("twice")
    );
    std::fs::write(&path, vec![b'x'; 2000]).unwrap();
    assert!(
        store()
            .resolve(&tag("1"))
            .await
            .unwrap_err()
            .to_string()
            .contains("not a tar")
    );
    // Cut off in the middle of a file.
    tar_of(&[("oci-layout", EntryType::Regular, &[b'x'; 5000])], &path);
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(2000)
        .unwrap();
    let error = store().resolve(&tag("1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Layout, "{error}");
    assert!(error.to_string().contains("cut off"), "{error}");
}

#[tokio::test]
async fn what_is_no_layout_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let location = format!("oci-layout:{}", directory.path().display());
    let absent = layout(&format!("{location}/absent"))
        .resolve(&tag("1"))
        .await
        .unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::NotFound, "{absent}");
    std::fs::write(directory.path().join("precious"), "x").unwrap();
    let error = layout(&location).resolve(&tag("1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Layout);
    assert!(error.to_string().contains("oci-layout"), "{error}");
    let content = pilothouse_artifact::Content::Bytes("x".into());
    let error = layout(&location)
        .push_blob(&component(b"x"), &content, &Silent)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("other files"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_layout_that_was_edited_by_hand_is_noticed() {
    let registry = Registry::start().await;
    let subject = plugin(&registry, "1", b"component");
    let directory = tempfile::tempdir().unwrap();
    let store = layout(&format!("oci-layout:{}", directory.path().display()));
    copy(&registry.store(), &store, subject.digest, Some("1"), &Silent)
        .await
        .unwrap();
    let blob = |digest: Digest| directory.path().join("blobs/sha256").join(digest.hex());
    let component = component(b"component");
    for (bytes, kind) in [
        (&b"Component"[..], ErrorKind::DigestMismatch),
        (b"comp", ErrorKind::Truncated),
        (b"component and more", ErrorKind::TooLarge),
    ] {
        std::fs::write(blob(component.digest), bytes).unwrap();
        assert_eq!(download(&store, &component).await.unwrap_err().kind(), kind);
    }
    std::fs::write(blob(subject.digest), "{}").unwrap();
    assert_eq!(
        store.manifest(subject.digest).await.unwrap_err().kind(),
        ErrorKind::DigestMismatch
    );
    // Another copy repairs both, also where the size is right.
    std::fs::write(blob(component.digest), b"Component").unwrap();
    copy(&registry.store(), &store, subject.digest, Some("1"), &Silent)
        .await
        .unwrap();
    assert_eq!(download(&store, &component).await.unwrap(), b"component");
    store.manifest(subject.digest).await.unwrap();
}

#[tokio::test]
async fn a_copy_within_a_registry_moves_no_bytes() {
    let registry = Registry::start().await;
    let subject = plugin(&registry, "1", b"component");
    let to: Location = format!("{}/acme/other", registry.host()).parse().unwrap();
    let to = client(registry.config()).open(&to, &Credentials::Anonymous).unwrap();
    // The other repository has no blobs of its own.
    registry.hook(|request, _| {
        let own = request.method == "HEAD" && request.path.starts_with("/v2/acme/other/blobs/");
        own.then(|| reply(404, &[], ""))
    });
    let copied = copy(&registry.store(), &to, subject.digest, Some("1"), &Silent)
        .await
        .unwrap();
    assert_eq!(
        copied,
        Copied {
            manifests: 1,
            skipped: 2,
            ..Copied::default()
        }
    );
    assert_eq!(registry.count("GET /v2/acme/plugin/blobs"), 0);
}

#[tokio::test]
async fn an_endless_family_of_manifests_ends() {
    // Each manifest has a new referrer.
    let registry = Registry::start().await;
    let subject = plugin(&registry, "1", b"component");
    registry.hook(|request, state| {
        let digest = request.path.split_once("/referrers/")?.1.split('?').next()?.to_owned();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media_type::MANIFEST, "artifactType": "x/y",
            "subject": {"mediaType": media_type::MANIFEST, "digest": digest, "size": 1},
        })
        .to_string();
        let descriptor = Descriptor::of(media_type::MANIFEST, manifest.as_bytes());
        let key = ("acme/plugin".to_owned(), descriptor.digest.to_string());
        state
            .manifests
            .insert(key, (media_type::MANIFEST.to_owned(), manifest.into_bytes()));
        Some(reply(
            200,
            &[],
            json!({"schemaVersion": 2, "manifests": [descriptor]}).to_string(),
        ))
    });
    let directory = tempfile::tempdir().unwrap();
    let to = layout(&format!("oci-layout:{}", directory.path().display()));
    let error = copy(&registry.store(), &to, subject.digest, Some("1"), &Silent)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(
        to.resolve(&tag("1")).await.unwrap_err().kind(),
        ErrorKind::NotFound,
        "no tag before all is there"
    );
    assert!(registry.requests().len() < 100, "it ends soon");
}

#[tokio::test]
async fn a_layout_that_has_an_artifact_says_all_that_belongs_to_it() {
    let registry = Registry::start().await;
    let unsigned = plugin(&registry, "1", b"component");
    let directory = tempfile::tempdir().unwrap();
    let path = format!("oci-layout:{}", directory.path().display());
    copy(&registry.store(), &layout(&path), unsigned.digest, Some("1"), &Silent)
        .await
        .unwrap();
    let config = json!({"registries": [{"host": registry.host(), "plainHttp": true, "mirrors": [path]}]});
    let mirrored = client(config)
        .open(&registry.location(":1"), &Credentials::Anonymous)
        .unwrap();
    let before = registry.requests().len();
    assert!(mirrored.signatures(unsigned.digest).await.unwrap().is_empty());
    assert_eq!(
        registry.requests().len(),
        before,
        "the registry, which may be far away, is not asked"
    );
}
