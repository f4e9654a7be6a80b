//! Plugins of the command line while registries are slow, fail or are gone.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pilothouse_artifact::{Digest, TrustSource};
use pilothouse_test_registry::Registry;
use pilothouse_test_registry::exchange::{Manner, reply};

use super::{fetcher, plain, reference, registry_of};
use crate::artifact::host::command_line::{PATIENCE, fetch_all};
use crate::plugins::NamedFile;

fn named(registry: &Registry) -> NamedFile {
    format!("oci://{}", reference(registry)).parse().unwrap()
}

/// Fetches plugins and returns the content of each file, in their order.
async fn fetched(registries: &[&Registry], cache: &Path, patience: Duration) -> Vec<Vec<u8>> {
    let fetcher = fetcher(
        plain(registries.iter().copied()),
        TrustSource::accept_unsigned(),
        cache,
        1 << 20,
    );
    let plugins = registries.iter().map(|registry| named(registry)).collect();
    let (files, _holds) = fetch_all(Arc::new(fetcher), plugins, patience).await;
    let read = |plugin: &NamedFile| {
        let bytes = std::fs::read(&plugin.file).unwrap();
        assert_eq!(plugin.digest, Some(Digest::of(&bytes).hex()));
        assert_eq!(plugin.called.as_deref(), Some("plugin"));
        bytes
    };
    files.iter().map(read).collect()
}

/// Makes the registry fail so many times, and work then.
fn fails_at_first(registry: &Registry, times: usize) {
    let failed = AtomicUsize::new(0);
    registry.hook(move |_, _| (failed.fetch_add(1, Ordering::Relaxed) < times).then(|| reply(503, &[], "")));
}

#[tokio::test]
async fn plugins_are_fetched_at_the_same_time_and_keep_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let large = vec![1; 100 << 10];
    let (first, _) = registry_of(&large).await;
    let (second, _) = registry_of(b"second").await;
    // The first one takes more than a second for its component.
    let bytes = large.clone();
    first.hook(move |request, _| {
        let slowly = Manner::Bursts(20 << 10, Duration::from_millis(300));
        let is_blob = request.path.contains("/blobs/");
        is_blob.then(|| reply(200, &[], bytes.clone()).manner(slowly))
    });
    let component = folder.path().join("blobs/sha256").join(Digest::of(&large).hex());
    let was_beside = Arc::new(AtomicBool::new(false));
    let (noted, is_there) = (was_beside.clone(), move || component.exists());
    second.hook(move |_, _| {
        noted.fetch_or(!is_there(), Ordering::Relaxed);
        None
    });
    let fetched = fetched(&[&first, &second], folder.path(), PATIENCE).await;
    assert_eq!(fetched, [large, b"second".to_vec()]);
    assert!(
        was_beside.load(Ordering::Relaxed),
        "the second one waited for the first one"
    );
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_what_will_not_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (flaky, _) = registry_of(b"flaky").await;
    // More often than the client itself tries.
    fails_at_first(&flaky, 3);
    let (missing, _) = registry_of(b"missing").await;
    missing.hook(|_, _| Some(reply(404, &[], "")));
    let begun = Instant::now();
    assert_eq!(fetched(&[&missing, &flaky], folder.path(), PATIENCE).await, [b"flaky"]);
    assert_eq!(missing.requests().len(), 1, "{:?}", missing.requests());
    assert!(begun.elapsed() < PATIENCE / 4, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_registry_that_stays_down_delays_no_other_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let (down, _) = registry_of(b"down").await;
    down.hook(|_, _| Some(reply(503, &[], "")));
    let (good, _) = registry_of(b"good").await;
    let begun = Instant::now();
    let patience = Duration::from_secs(2);
    assert_eq!(fetched(&[&down, &good], folder.path(), patience).await, [b"good"]);
    assert!(begun.elapsed() < patience * 2, "{:?}", begun.elapsed());
    assert!(down.requests().len() > 2, "it was tried again");
}

#[tokio::test]
async fn what_a_tag_meant_last_runs_while_the_registry_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, _) = registry_of(b"first").await;
    assert_eq!(fetched(&[&registry], folder.path(), PATIENCE).await, [b"first"]);
    // The tag moves: the registry decides for as long as it answers.
    pilothouse_test_registry::plugin(&registry, "1", b"second");
    assert_eq!(fetched(&[&registry], folder.path(), PATIENCE).await, [b"second"]);
    registry.hook(|_, _| Some(reply(503, &[], "")));
    let begun = Instant::now();
    assert_eq!(fetched(&[&registry], folder.path(), PATIENCE).await, [b"second"]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // A permanent refusal of the registry is not covered up by the cache.
    registry.hook(|_, _| Some(reply(403, &[], "")));
    assert!(fetched(&[&registry], folder.path(), PATIENCE).await.is_empty());
}
