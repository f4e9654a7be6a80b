//! Fetching for a host: what a download that takes long keeps from others.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_artifact::{ArtifactCache, Choice, Client, Fetcher, Limits, RegistriesConfig, TrustSource};
use pilothouse_test_registry::exchange::{Manner, reply};
use pilothouse_test_registry::{Registry, plugin};

#[test]
fn a_slow_download_holds_no_thread_that_may_block() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let seen = runtime.block_on(async {
        let registry = Registry::start().await;
        let component = vec![1; 1 << 20];
        plugin(&registry, "1", &component);
        registry.hook(move |request, _| {
            let slowly = Manner::Bursts(400 << 10, Duration::from_mins(1));
            let is_blob = request.path.contains("/blobs/");
            is_blob.then(|| reply(200, &[], component.clone()).manner(slowly))
        });
        let folder = tempfile::tempdir().unwrap();
        let cache = ArtifactCache::open(folder.path(), 8 << 20).unwrap();
        let client = Client::new(
            RegistriesConfig::from_value(registry.config()).unwrap(),
            Limits::default(),
        );
        let fetcher = Fetcher::new(client, cache, Arc::new(TrustSource::accept_unsigned()));
        let location = registry.location(":1");
        let download = tokio::spawn(async move {
            let chosen = fetcher.choose(&location, &Choice::Target, &()).await.unwrap();
            fetcher.fetch(&location, chosen.digest, &()).await.map(drop)
        });
        // A part of it is on the disk, and the rest will not come for a minute.
        let begun = || {
            std::fs::read_dir(folder.path().join("partial"))
                .unwrap()
                .any(|file| file.unwrap().metadata().unwrap().len() > 0)
        };
        let within = Duration::from_secs(10);
        let waited = tokio::time::timeout(within, async {
            while !begun() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let is_begun = waited.await.is_ok();
        let other = tokio::task::spawn_blocking(|| ());
        let has_thread = tokio::time::timeout(within, other).await.is_ok();
        let is_under_way = !download.is_finished();
        download.abort();
        (is_begun, has_thread, is_under_way)
    });
    // A thread that is held does not keep the test from its end.
    runtime.shutdown_background();
    assert_eq!(seen, (true, true, true), "begun, has a thread, under way");
}
