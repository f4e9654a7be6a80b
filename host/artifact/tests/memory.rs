//! Bounds the memory that a hostile registry makes this process use. The allocator refuses more, which ends the
//! process.
#![allow(
    clippy::unwrap_used,
    reason = "if a registry of the tests cannot be set up, the test has failed"
)]

use std::alloc::System;

use cap::Cap;
use pilothouse_artifact::{Digest, ErrorKind, PluginManifest, limits::MANIFEST_LIMIT, media_type};
use serde_json::json;

use pilothouse_test_registry::exchange::{Manner, reply};
use pilothouse_test_registry::{Registry, component, download, limits};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Memory that one artifact may take beside the responses that the registry of this process keeps.
const MEMORY: usize = 32 << 20;

/// Returns a repeated text of as many bytes as a manifest may have.
fn long(beginning: &str, again: &str, end: &str) -> String {
    let times = usize::try_from(MANIFEST_LIMIT).unwrap() - beginning.len() - end.len();
    [beginning, &again.repeat(times / again.len()), end].concat()
}

#[tokio::test]
async fn answers_that_grow_when_they_are_read_do_not_fill_the_memory() {
    let registry = Registry::start().await;
    let digest = Digest::of(b"subject");
    let store = registry.store();
    let entry = json!({"mediaType": media_type::MANIFEST, "digest": digest, "size": 1, "annotations": {"a": "b"}});
    for body in [
        long("{\"schemaVersion\":2,\"manifests\":[", "[],", "1]}"),
        long("{\"schemaVersion\":2,\"manifests\":[", &format!("{entry},"), "1]}"),
        long("{\"schemaVersion\":2,\"manifests\":[],\"x\":[", "[],", "1]}"),
        long("{\"schemaVersion\":2,\"layers\":[", "[],", "1]}"),
        long(
            "{\"schemaVersion\":2,\"annotations\":{",
            "\"a\":\"\",",
            "\"b\":\"\"},\"layers\":[]}",
        ),
        long("{\"tags\":[", "\"a\",", "\"b\"]}"),
    ] {
        let body = bytes::Bytes::from(body);
        let answer = body.clone();
        registry.hook(move |_, _| Some(reply(200, &[], answer.to_vec())));
        ALLOCATOR.set_limit(ALLOCATOR.allocated() + MEMORY).unwrap();
        let _ = store.referrers(digest, None).await;
        let _ = store.tags().await;
        // Every manifest and every blob is this body, which has another digest.
        assert_eq!(
            store.manifest(digest).await.unwrap_err().kind(),
            ErrorKind::DigestMismatch
        );
        store.manifest(Digest::of(&body)).await.unwrap();
        assert!(PluginManifest::parse("plugin", &body, 1).is_err());
        store.signatures(Digest::of(&body)).await.unwrap();
        ALLOCATOR.set_limit(usize::MAX).unwrap();
    }
    // A blob is never held.
    let bytes = vec![1; usize::try_from(limits().blob).unwrap()];
    registry.hook(|_, _| Some(reply(200, &[], vec![1; 1 << 16]).manner(Manner::Endless)));
    ALLOCATOR.set_limit(ALLOCATOR.allocated() + MEMORY).unwrap();
    assert_eq!(
        download(&store, &component(&bytes)).await.unwrap_err().kind(),
        ErrorKind::TooLarge
    );
}
