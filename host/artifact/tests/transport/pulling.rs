//! Pulling: resolving, manifests, blobs, tags, mirrors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pilothouse_artifact::{Credentials, Digest, ErrorKind, PluginManifest, Progress, Target, media_type};
use serde_json::json;

use pilothouse_test_registry::exchange::{Manner, reply};
use pilothouse_test_registry::proxy::Proxy;
use pilothouse_test_registry::{REPOSITORY, Registry, client, component, download, limits, plugin};

#[tokio::test]
async fn a_tag_is_resolved_once_and_later_requests_use_the_digest() {
    let registry = Registry::start().await;
    let old = plugin(&registry, "1.0.0", b"old component");
    let store = registry.store();
    let resolved = store.resolve(&Target::Tag("1.0.0".into())).await.unwrap();
    assert_eq!((resolved.digest, resolved.size), (old.digest, old.size));
    assert_eq!(resolved.media_type, media_type::MANIFEST);
    // The tag moves between resolving and pulling.
    plugin(&registry, "1.0.0", b"new component");
    let manifest = store.manifest(resolved.digest).await.unwrap();
    let manifest = PluginManifest::parse("plugin", &manifest, 1000).unwrap();
    assert_eq!(download(&store, &manifest.component).await.unwrap(), b"old component");
    assert_eq!(registry.count(&format!("GET /v2/{REPOSITORY}/manifests/1.0.0")), 0);
}

#[tokio::test]
async fn a_registry_without_head_or_headers_is_resolved_by_reading() {
    let registry = Registry::start().await;
    let manifest = plugin(&registry, "1", b"component");
    for status in [405, 200] {
        registry.hook(move |request, _| (request.method == "HEAD").then(|| reply(status, &[], "")));
        let resolved = registry.store().resolve(&Target::Tag("1".into())).await.unwrap();
        assert_eq!(resolved.digest, manifest.digest);
    }
}

#[derive(Default)]
struct Counter {
    total: AtomicU64,
    bytes: AtomicU64,
    done: AtomicUsize,
}

impl Progress for Counter {
    fn started(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }
    fn advanced(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_download_that_breaks_is_resumed_where_it_broke() {
    for ranges in [true, false] {
        let registry = Registry::start().await;
        let bytes: Vec<u8> = (0..100_000_u32)
            .map(|it| it.to_le_bytes()[0] ^ it.to_le_bytes()[1])
            .collect();
        registry.put_blob(bytes.clone());
        registry.change(|state| state.ranges = ranges);
        let cut = AtomicUsize::new(0);
        registry.hook(move |request, state| {
            if !request.path.contains("/blobs/") || cut.fetch_add(1, Ordering::Relaxed) >= 2 {
                return None;
            }
            let bytes = state.blobs.values().next().unwrap().clone();
            let from = request
                .header("range")
                .and_then(|it| it.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
            let answer = match from.filter(|_| state.ranges) {
                Some(from) => {
                    let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
                    reply(206, &[("Content-Range", &range)], &bytes[from..])
                }
                None => reply(200, &[], bytes),
            };
            Some(answer.manner(Manner::CutAfter(40_000)))
        });
        let counter = Counter::default();
        let mut sink = Vec::new();
        registry
            .store()
            .blob(&component(&bytes), &mut sink, &counter)
            .await
            .unwrap();
        assert!(sink == bytes, "ranges: {ranges}");
        assert_eq!(counter.total.into_inner(), 100_000);
        assert_eq!(counter.bytes.into_inner(), 100_000, "no byte is told of twice");
        assert_eq!(counter.done.into_inner(), 1);
        let asked: Vec<Option<String>> = {
            let state = registry.state.lock().unwrap();
            state
                .requests
                .iter()
                .map(|it| it.header("range").map(str::to_owned))
                .collect()
        };
        assert_eq!(asked[0], None);
        assert_eq!(asked[1].as_deref(), Some("bytes=40000-"));
    }
}

#[tokio::test]
async fn tags_are_listed_over_all_pages_without_invalid_ones() {
    let registry = Registry::start().await;
    registry.hook(|request, _| {
        let page = |tags: &[&str], next: Option<&str>| {
            let body = json!({"name": REPOSITORY, "tags": tags}).to_string();
            match next {
                Some(next) => reply(200, &[("Link", next)], body),
                None => reply(200, &[], body),
            }
        };
        if !request.path.contains("/tags/list") {
            return None;
        }
        Some(if request.path.contains("last=b") {
            page(&["c"], None)
        } else {
            page(
                &["a", "b", "../evil", "x y"],
                Some("</v2/acme/plugin/tags/list?n=2&last=b>; rel=\"next\""),
            )
        })
    });
    assert_eq!(registry.store().tags().await.unwrap(), ["a", "b", "c"]);
}

#[tokio::test]
async fn a_repository_without_tags_has_none() {
    let registry = Registry::start().await;
    registry.hook(|_, _| Some(reply(200, &[], json!({"name": REPOSITORY, "tags": null}).to_string())));
    assert!(registry.store().tags().await.unwrap().is_empty());
}

#[tokio::test]
async fn mirrors_are_asked_in_order_before_the_registry() {
    let (original, empty, good) = (
        Registry::start().await,
        Registry::start().await,
        Registry::start().await,
    );
    let manifest = plugin(&good, "1", b"component");
    let moved = json!(good.host() + "/mirror");
    // The mirror has the repository behind a prefix.
    good.change(|state| {
        let moved = std::mem::take(&mut state.manifests).into_iter();
        state.manifests = moved
            .map(|((repository, name), it)| ((format!("mirror/{repository}"), name), it))
            .collect();
    });
    plugin(&original, "2", b"component two");
    let plain = |registry: &Registry| json!({"host": registry.host(), "plainHttp": true});
    let mut first = plain(&original);
    first["mirrors"] = json!([empty.host(), moved]);
    let config = json!({"registries": [first, plain(&empty), plain(&good)]});
    let credentials = Credentials::Basic {
        username: "user".into(),
        password: "hunter2".into(),
    };
    for registry in [&original, &empty] {
        registry.change(|state| state.basic = Some(("user".into(), "hunter2".into())));
    }
    let store = client(config).open(&original.location(":1"), &credentials).unwrap();

    let resolved = store.resolve(&Target::Tag("1".into())).await.unwrap();
    assert_eq!(resolved.digest, manifest.digest);
    assert_eq!(download(&store, &component(b"component")).await.unwrap(), b"component");
    assert!(original.requests().is_empty(), "the registry itself is not needed");
    assert!(empty.count("HEAD") > 0, "the first mirror was asked first");
    // What no mirror has comes from the registry.
    store.resolve(&Target::Tag("2".into())).await.unwrap();
    assert_eq!(
        download(&store, &component(b"component two")).await.unwrap(),
        b"component two"
    );
    // The registry's credentials are not the mirrors'.
    for mirror in [&empty, &good] {
        let state = mirror.state.lock().unwrap();
        assert!(state.requests.iter().all(|it| it.header("authorization").is_none()));
    }
}

#[tokio::test]
async fn a_blob_cut_off_by_a_mirror_is_continued_at_the_registry() {
    let (original, mirror) = (Registry::start().await, Registry::start().await);
    let bytes = vec![7; 50_000];
    original.put_blob(bytes.clone());
    mirror.hook(|_, _| Some(reply(200, &[], vec![7; 50_000]).manner(Manner::CutAfter(20_000))));
    let config = json!({"registries": [
        {"host": original.host(), "plainHttp": true, "mirrors": [mirror.host()]},
        {"host": mirror.host(), "plainHttp": true},
    ]});
    let store = client(config)
        .open(&original.location(""), &Credentials::Anonymous)
        .unwrap();
    assert_eq!(download(&store, &component(&bytes)).await.unwrap(), bytes);
    let ranges: Vec<Option<String>> = {
        let state = original.state.lock().unwrap();
        state
            .requests
            .iter()
            .map(|it| it.header("range").map(str::to_owned))
            .collect()
    };
    assert_eq!(ranges, [Some("bytes=20000-".to_owned())]);
    assert_eq!(mirror.requests().len(), 1, "a mirror has one attempt");
}

#[tokio::test]
async fn a_mirror_with_other_bytes_is_left_out_from_then_on() {
    let (original, mirror) = (Registry::start().await, Registry::start().await);
    let manifest = plugin(&original, "1", b"component");
    mirror.hook(|_, _| Some(reply(200, &[], "evil")));
    let config = json!({"registries": [
        {"host": original.host(), "plainHttp": true, "mirrors": [mirror.host()]},
        {"host": mirror.host(), "plainHttp": true},
    ]});
    let store = client(config)
        .open(&original.location(""), &Credentials::Anonymous)
        .unwrap();
    assert_eq!(
        Digest::of(&store.manifest(manifest.digest).await.unwrap()),
        manifest.digest
    );
    let asked = mirror.requests().len();
    store.manifest(manifest.digest).await.unwrap();
    assert_eq!(mirror.requests().len(), asked);
}

#[tokio::test]
async fn a_client_can_be_used_by_tasks() {
    let registry = Registry::start().await;
    let manifest = plugin(&registry, "1", b"component");
    let store = Arc::new(registry.store());
    let task = tokio::spawn(async move {
        store.signatures(manifest.digest).await.unwrap();
        download(&store, &component(b"component")).await
    });
    assert_eq!(task.await.unwrap().unwrap(), b"component");
}

#[tokio::test]
async fn a_declared_size_over_the_limit_is_refused_before_the_request() {
    let registry = Registry::start().await;
    let mut descriptor = component(b"component");
    descriptor.size = limits().blob + 1;
    let error = download(&registry.store(), &descriptor).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(registry.requests().is_empty());
}

#[tokio::test]
async fn a_registry_behind_a_proxy_is_reached() {
    for (is_tls, scheme, request) in [
        (
            false,
            "http://",
            "HEAD http://registry.invalid/v2/acme/plugin/manifests/1",
        ),
        (
            false,
            "http://u:p@",
            "HEAD http://registry.invalid/v2/acme/plugin/manifests/1 as Basic dTpw",
        ),
        (false, "socks5://", "SOCKS registry.invalid:80"),
        (true, "http://", "CONNECT registry.invalid:443"),
        (
            true,
            "http://u:p%40q@",
            "CONNECT registry.invalid:443 as Basic dTpwQHE=",
        ),
        (true, "https://u:p@", "CONNECT registry.invalid:443 as Basic dTpw"),
        (true, "socks5://", "SOCKS registry.invalid:443"),
        (true, "socks5h://u:p%40q@", "SOCKS registry.invalid:443 as u:p@q"),
    ] {
        let registry = if is_tls {
            Registry::start_tls().await
        } else {
            Registry::start().await
        };
        let _ = registry.put("1", media_type::MANIFEST, b"{}".as_slice());
        let proxy = if scheme.starts_with("https") {
            Proxy::start_tls(registry.address).await
        } else {
            Proxy::start(registry.address).await
        };
        let authorities = [&registry.authority, &proxy.authority].map(|it| it.clone().unwrap_or_default());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, authorities.concat()).unwrap();
        let config = if is_tls {
            json!({"registries": [{"host": "registry.invalid", "certificateAuthorities": [file]}]})
        } else {
            json!({"registries": [{"host": "registry.invalid", "plainHttp": true}]})
        };
        let url = format!("{scheme}{}", proxy.address);
        let client = client(config).through(Arc::new(move |_: &str| Some(url.clone())));
        // A Plugin's reference, whose registry is not on this machine.
        let client = client.for_plugins(&[format!("http://{}", proxy.address)]);
        let location = "registry.invalid/acme/plugin:1".parse().unwrap();
        let store = client.open(&location, &Credentials::Anonymous).unwrap();
        let found = store.resolve(&Target::Tag("1".into())).await;
        let _ = found.unwrap_or_else(|error| panic!("{scheme}: {error}"));
        assert_eq!(proxy.requests(), [request], "{scheme}");
    }
}

#[tokio::test]
async fn a_transfer_that_pauses_and_then_hurries_is_not_too_slow() {
    let registry = Registry::start().await;
    let bytes = vec![9; 40_000];
    registry.put_blob(bytes.clone());
    // 2,048 bytes in each interval of 300 ms, the rest of it silence; 1,024 are wanted.
    let pause = limits().progress_interval * 4 / 5;
    registry.hook(move |_, state| {
        let bytes = state.blobs.values().next().unwrap()[..12_000].to_vec();
        Some(reply(200, &[], bytes).manner(Manner::Bursts(2048, pause)))
    });
    let bytes = &bytes[..12_000];
    assert_eq!(download(&registry.store(), &component(bytes)).await.unwrap(), bytes);
}
