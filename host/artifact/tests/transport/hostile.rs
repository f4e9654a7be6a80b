//! Registries that break the rules or just break: each failure is of its kind, in time, and says what to do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pilothouse_artifact::{ArtifactError, Credentials, Descriptor, Digest, ErrorKind, Target, media_type};
use serde_json::json;

use pilothouse_test_registry::exchange::{Manner, Reply, reply};
use pilothouse_test_registry::{REPOSITORY, Registry, client, component, download, limits, plugin};

fn tag() -> Target {
    Target::Tag("1".into())
}

/// Resolves against a registry that always gives this answer.
async fn resolved_with(answer: Reply) -> (Registry, ArtifactError) {
    let registry = Registry::start().await;
    registry.hook(move |_, _| Some(answer.clone()));
    let error = registry.store().resolve(&tag()).await.unwrap_err();
    (registry, error)
}

fn says(error: &ArtifactError, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
    assert!(!message.contains("error sending request"), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

#[tokio::test]
async fn statuses_become_kinds_with_the_next_step() {
    let name = format!("{REPOSITORY}:1");
    for (status, kind, next) in [
        (401, ErrorKind::Unauthorized, "docker login"),
        (403, ErrorKind::Forbidden, "other credentials"),
        (404, ErrorKind::NotFound, "check repository, tag and digest"),
        (418, ErrorKind::Protocol, "418"),
    ] {
        let (registry, error) = resolved_with(reply(status, &[], "")).await;
        assert_eq!(error.kind(), kind, "{error}");
        says(&error, &[&name, next]);
        assert!(!error.is_transient());
        let most = if kind == ErrorKind::Protocol { 2 } else { 1 };
        assert_eq!(registry.requests().len(), most, "nothing is tried again: {status}");
    }
    let (registry, error) = resolved_with(reply(503, &[], "")).await;
    assert_eq!(error.kind(), ErrorKind::Server);
    assert!(error.is_transient());
    assert_eq!(registry.requests().len(), 3);
}

#[tokio::test]
async fn what_a_registry_says_is_quoted_and_cut() {
    let registry = Registry::start().await;
    let text = format!("no\n\u{1b}[31m{}", "x".repeat(5000));
    registry.hook(move |_, _| {
        Some(reply(
            403,
            &[],
            json!({"errors": [{"code": "DENIED", "message": text}]}).to_string(),
        ))
    });
    let error = registry.store().manifest(Digest::of(b"")).await.unwrap_err();
    says(&error, &["DENIED no\\n\\u{1b}"]);
    assert!(error.to_string().len() < 700, "{error}");
}

#[tokio::test]
async fn too_many_requests_wait_as_long_as_the_registry_asks() {
    let registry = Registry::start().await;
    let manifest = plugin(&registry, "1", b"component");
    let refusals = AtomicUsize::new(0);
    registry.hook(move |_, _| {
        (refusals.fetch_add(1, Ordering::Relaxed) == 0).then(|| reply(429, &[("Retry-After", "1")], ""))
    });
    let begin = Instant::now();
    assert_eq!(registry.store().resolve(&tag()).await.unwrap().digest, manifest.digest);
    assert!(begin.elapsed() >= Duration::from_secs(1));

    let (_, error) = resolved_with(reply(429, &[("Retry-After", "0")], "")).await;
    assert_eq!(error.kind(), ErrorKind::TooManyRequests);
    says(&error, &["429", "mirror"]);
}

#[tokio::test]
async fn unknown_hosts_and_closed_ports_are_told_apart() {
    let open = |host: &str| {
        let location = format!("{host}/acme/plugin:1").parse().unwrap();
        let config = json!({"registries": [{"host": host, "plainHttp": true}]});
        client(config).open(&location, &Credentials::Anonymous).unwrap()
    };
    let error = open("registry.invalid").resolve(&tag()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownHost, "{error}");
    says(&error, &["registry.invalid/acme/plugin:1", "DNS"]);
    assert!(error.is_transient());

    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let error = open(&closed).resolve(&tag()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    says(&error, &["refuses connections"]);
}

#[tokio::test]
async fn a_certificate_needs_a_known_ca_and_plain_http_an_option() {
    let registry = Registry::start_tls().await;
    let manifest = plugin(&registry, "1", b"component");
    let location = registry.location(":1");
    let open = |config| client(config).open(&location, &Credentials::Anonymous).unwrap();

    let error = open(json!({})).resolve(&tag()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Certificate, "{error}");
    says(&error, &["not signed by a known authority", "certificateAuthorities"]);

    let directory = tempfile::tempdir().unwrap();
    let authority = directory.path().join("ca.pem");
    std::fs::write(&authority, registry.authority.as_ref().unwrap()).unwrap();
    let config = json!({"registries": [{"host": registry.host(), "certificateAuthorities": [authority]}]});
    assert_eq!(
        open(config.clone()).resolve(&tag()).await.unwrap().digest,
        manifest.digest
    );

    std::fs::write(&authority, "no certificate").unwrap();
    let Err(error) = client(config).open(&location, &Credentials::Anonymous) else {
        panic!("a file without certificates is refused");
    };
    says(&error, &["ca.pem", "no certificate"]);

    // A server on plain HTTP is not spoken to, local or not.
    let plain = Registry::start().await;
    let store = client(json!({}))
        .open(&plain.location(":1"), &Credentials::Anonymous)
        .unwrap();
    let error = store.resolve(&tag()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    says(&error, &["plainHttp: true"]);
    assert!(plain.requests().iter().all(|it| !it.contains("/v2/")));
}

#[tokio::test]
async fn a_manifest_of_another_digest_is_refused() {
    let registry = Registry::start().await;
    let manifest = plugin(&registry, "1", b"component");
    registry.hook(|_, _| Some(reply(200, &[], "{}")));
    let error = registry.store().manifest(manifest.digest).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DigestMismatch);
    says(&error, &[&manifest.digest.to_string(), "do not use"]);
}

#[tokio::test]
async fn an_endless_manifest_ends() {
    let piece = vec![b' '; 1 << 16];
    for answer in [
        reply(200, &[], piece).manner(Manner::Endless),
        reply(200, &[("Content-Length", "9999999999")], "x"),
    ] {
        let registry = Registry::start().await;
        registry.hook(move |_, _| Some(answer.clone()));
        let begin = Instant::now();
        let error = registry.store().manifest(Digest::of(b"")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert!(
            begin.elapsed() < limits().exchange,
            "it is the size and not the time that ends it"
        );
    }
}

#[tokio::test]
async fn a_registry_that_hangs_or_drips_is_left_in_time() {
    for manner in [Manner::Hang, Manner::Drip(Duration::from_millis(50))] {
        let registry = Registry::start().await;
        registry.hook(move |_, _| Some(reply(200, &[], vec![b' '; 10_000]).manner(manner)));
        let begin = Instant::now();
        let error = registry.store().manifest(Digest::of(b"")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.is_transient());
        assert!(begin.elapsed() < 2 * limits().exchange, "{:?}", begin.elapsed());

        let begin = Instant::now();
        let error = download(&registry.store(), &component(&[b' '; 10_000]))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(begin.elapsed() < 2 * limits().exchange, "{:?}", begin.elapsed());
        // What comes too slowly is left before the time for the whole is over.
        match manner {
            Manner::Drip(_) => says(&error, &["cannot download", "sends less than 1024 bytes"]),
            _ => says(&error, &["cannot download", "did not complete"]),
        }
    }
}

#[tokio::test]
async fn a_slow_download_with_progress_ends_at_its_total_time() {
    let registry = Registry::start().await;
    // Five times the minimum of progress, and yet a minute for the whole.
    registry.hook(|_, _| Some(reply(200, &[], vec![b' '; 1 << 20]).manner(Manner::Drip(Duration::from_micros(10)))));
    let mut limits = limits();
    limits.progress = 1;
    limits.transfer = Duration::from_secs(1);
    let config = pilothouse_artifact::RegistriesConfig::from_value(registry.config()).unwrap();
    let store = pilothouse_artifact::Client::new(config, limits)
        .open(&registry.location(""), &Credentials::Anonymous)
        .unwrap();
    let begin = Instant::now();
    let error = download(&store, &component(&vec![b' '; 1 << 20])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_blob_that_is_cut_too_long_or_other_is_refused() {
    let wanted = component(&[1; 10_000]);
    for (answer, kind) in [
        (reply(200, &[], vec![1; 9_999]), ErrorKind::Truncated),
        (reply(200, &[], vec![1; 10_001]), ErrorKind::TooLarge),
        (
            reply(200, &[], vec![1; 1 << 16]).manner(Manner::Endless),
            ErrorKind::TooLarge,
        ),
        (reply(200, &[], vec![2; 10_000]), ErrorKind::DigestMismatch),
        (
            reply(206, &[("Content-Range", "bytes 5-10004/10005")], vec![1; 10_000]),
            ErrorKind::Protocol,
        ),
        (
            reply(200, &[], vec![1; 10_000]).manner(Manner::CutAfter(0)),
            ErrorKind::Unreachable,
        ),
    ] {
        let registry = Registry::start().await;
        registry.hook(move |_, _| Some(answer.clone()));
        let mut sink = Vec::new();
        let silent = pilothouse_artifact::Silent;
        let error = registry.store().blob(&wanted, &mut sink, &silent).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(sink.len() as u64 <= wanted.size);
        says(&error, &[&wanted.digest.to_string(), REPOSITORY]);
    }
}

#[tokio::test]
async fn no_compression_is_requested_and_compressed_bodies_refused() {
    let registry = Registry::start().await;
    registry.hook(|_, _| Some(reply(200, &[("Content-Encoding", "gzip")], vec![0; 100])));
    for error in [
        registry.store().manifest(Digest::of(b"")).await.unwrap_err(),
        download(&registry.store(), &component(&[0; 100])).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        says(&error, &["Content-Encoding \"gzip\""]);
    }
    let state = registry.state.lock().unwrap();
    assert!(
        state
            .requests
            .iter()
            .all(|it| it.header("accept-encoding") == Some("identity"))
    );
}

#[tokio::test]
async fn the_urls_of_a_descriptor_are_not_followed() {
    let (registry, other) = (Registry::start().await, Registry::start().await);
    other.put_blob(*b"component");
    let mut descriptor = serde_json::to_value(component(b"component")).unwrap();
    let digest = Digest::of(b"component");
    descriptor["urls"] = json!([format!("http://{}/v2/a/blobs/{digest}", other.host())]);
    let descriptor: Descriptor = serde_json::from_value(descriptor).unwrap();
    let error = download(&registry.store(), &descriptor).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn redirects_are_followed_a_few_times_and_not_onto_plain_http() {
    let (registry, other) = (Registry::start().await, Registry::start().await);
    other.put_blob(*b"component");
    let target = format!("http://{}/v2/a/blobs/{}", other.host(), Digest::of(b"component"));
    registry.hook(move |_, _| Some(reply(307, &[("Location", &target)], "")));
    let plain = |registry: &Registry| json!({"host": registry.host(), "plainHttp": true});
    let config = json!({"registries": [plain(&registry), plain(&other)]});
    let store = client(config)
        .open(&registry.location(""), &Credentials::Anonymous)
        .unwrap();
    assert_eq!(download(&store, &component(b"component")).await.unwrap(), b"component");
    // The other host is not named, so nothing goes there.
    let asked = other.requests().len();
    let error = download(&registry.store(), &component(b"component")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    says(&error, &["plain HTTP"]);
    assert_eq!(other.requests().len(), asked);

    registry.hook(|request, _| Some(reply(307, &[("Location", &format!("{}x", request.path))], "")));
    let before = registry.requests().len();
    let error = download(&registry.store(), &component(b"component")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    says(&error, &["more than 5 times"]);
    assert_eq!(registry.requests().len() - before, 6);

    // From HTTPS to plain HTTP it never goes, named or not.
    let secure = Registry::start_tls().await;
    let target = format!("http://{}/", other.host());
    secure.hook(move |_, _| Some(reply(302, &[("Location", &target)], "")));
    let directory = tempfile::tempdir().unwrap();
    let authority = directory.path().join("ca.pem");
    std::fs::write(&authority, secure.authority.as_ref().unwrap()).unwrap();
    let config = json!({"registries": [plain(&other), {"host": secure.host(), "certificateAuthorities": [authority]}]});
    let store = client(config)
        .open(&secure.location(""), &Credentials::Anonymous)
        .unwrap();
    let error = download(&store, &component(b"component")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    says(&error, &["from HTTPS to plain HTTP"]);
    assert_eq!(other.requests().len(), asked);
}

#[tokio::test]
async fn hostile_lists_are_bounded() {
    let registry = Registry::start().await;
    let digest = Digest::of(b"subject");
    let entry = |place: usize| {
        let mut entry = Descriptor::new(media_type::MANIFEST, Digest::of(&place.to_le_bytes()), u64::MAX);
        entry.artifact_type = Some("text/x".into());
        entry
    };
    // More than the limit, with entries that cannot be read between them.
    let mut entries: Vec<_> = (0..1000)
        .map(|place| serde_json::to_value(entry(place)).unwrap())
        .collect();
    entries.insert(0, json!({"digest": "sha512:00", "mediaType": 1}));
    entries.insert(1, json!("x"));
    let index = json!({"schemaVersion": 2, "manifests": entries}).to_string();
    registry.hook(move |request, _| {
        request
            .path
            .contains("/referrers/")
            .then(|| reply(200, &[], index.clone()))
    });
    assert_eq!(
        registry.store().referrers(digest, None).await.unwrap().len(),
        limits().referrers
    );

    // More than anybody looks at, of what is no entry.
    let index = format!(
        "{{\"schemaVersion\": 2, \"manifests\": [{}1]}}",
        "[[]],".repeat(500_000)
    );
    registry.hook(move |request, _| {
        let is_list = request.path.contains("/referrers/") || request.path.contains("/sha256-");
        is_list.then(|| reply(200, &[], index.clone()))
    });
    assert!(registry.store().referrers(digest, None).await.unwrap().is_empty());

    // A list that always goes on, with and without entries.
    for body in [
        json!({"schemaVersion": 2, "manifests": []}),
        json!({"schemaVersion": 2, "manifests": [entry(1)]}),
    ] {
        registry.hook(move |request, _| {
            let next = format!("<{}1>; rel=\"next\"", request.path);
            request
                .path
                .contains("/referrers/")
                .then(|| reply(200, &[("Link", next.as_str())], body.to_string()))
        });
        let before = registry.requests().len();
        registry.store().referrers(digest, None).await.unwrap();
        assert!(registry.requests().len() - before <= limits().referrers + 2);
    }

    // A list that continues elsewhere or at itself.
    for next in ["<http://evil.example/>; rel=\"next\"", "<?n=1000>; rel=\"next\""] {
        registry.hook(move |_, _| Some(reply(200, &[("Link", next)], json!({"tags": ["a"]}).to_string())));
        let error = registry.store().tags().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    }
    let many: Vec<String> = (0..100).map(|it| it.to_string()).collect();
    registry.hook(move |_, _| Some(reply(200, &[], json!({"tags": many}).to_string())));
    assert_eq!(registry.store().tags().await.unwrap_err().kind(), ErrorKind::TooLarge);
    // No list at all.
    registry.hook(|_, _| Some(reply(200, &[], "<html>")));
    assert_eq!(registry.store().tags().await.unwrap_err().kind(), ErrorKind::Protocol);
    let error = registry.store().referrers(digest, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[tokio::test]
async fn a_log_in_page_is_told_by_its_media_type() {
    let registry = Registry::start().await;
    let manifest = plugin(&registry, "1", b"component");
    let page = || {
        reply(
            200,
            &[("Content-Type", "text/html; charset=utf-8")],
            "<!DOCTYPE html><p>Sign in</p>",
        )
    };
    registry.hook(move |_, _| Some(page()));
    let store = registry.store();
    let found = [
        store.resolve(&Target::Tag("1".into())).await.map(drop),
        store.manifest(manifest.digest).await.map(drop),
        store.tags().await.map(drop),
        download(&store, &component(b"component")).await.map(drop),
    ];
    for answer in found {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(
            error.to_string().contains("answered with text/html and not with"),
            "{error}"
        );
    }
    // A blob is what its digest says, whatever it is called.
    registry.hook(|request, _| {
        let is_blob = request.path.contains("/blobs/");
        is_blob.then(|| reply(200, &[("Content-Type", "text/html")], "component"))
    });
    assert_eq!(download(&store, &component(b"component")).await.unwrap(), b"component");
}

#[tokio::test]
async fn what_is_no_tag_among_the_tags_is_passed_over() {
    let registry = Registry::start().await;
    registry.hook(|_, _| {
        Some(reply(
            200,
            &[],
            r#"{"name": "a", "tags": ["1.0.0", null, 7, "no tag", "2"]}"#,
        ))
    });
    assert_eq!(registry.store().tags().await.unwrap(), ["1.0.0", "2"]);
    registry.hook(|_, _| Some(reply(200, &[], r#"{"name": "a", "tags": null}"#)));
    assert!(registry.store().tags().await.unwrap().is_empty());
}
