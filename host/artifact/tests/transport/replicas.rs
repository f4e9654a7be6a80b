//! A replica that takes artifacts over from another one.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pilothouse_artifact::{
    ArtifactCache, Client, Digest, FetchError, FetchedComponent, Fetcher, Limits, Location, RegistriesConfig,
    ReplicaAnswer, ReplicaQuestion, Replicas, TrustErrorKind, TrustSource,
};
use pilothouse_test_registry::exchange::reply;
use pilothouse_test_registry::{Registry, plugin};
use serde_json::json;

/// A component of several parts.
fn component() -> Vec<u8> {
    (0..5_000_000_u32)
        .flat_map(|number| [number.to_le_bytes()[0]])
        .collect()
}

/// A change of an answer on its way.
type Change = fn(String) -> Result<String, String>;

/// Another replica, whose answers somebody may change.
struct Other {
    fetcher: Fetcher,
    asked: AtomicUsize,
    change: Mutex<Option<Change>>,
}

impl Replicas for Other {
    fn ask(&self, query: String) -> ReplicaAnswer<'_> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let question = ReplicaQuestion::parse(&query)?;
            let answer = self
                .fetcher
                .answer(&question)
                .await
                .map_err(|error| error.to_string())?;
            let answer = answer.ok_or("the cache does not have it")?;
            let change = *self.change.lock().unwrap();
            change.map_or(Ok(answer.clone()), |change| change(answer))
        })
    }
}

fn fetcher(registry: &Registry, cache: &Path, trust: TrustSource) -> Fetcher {
    let config = RegistriesConfig::from_value(registry.config()).unwrap();
    let cache = ArtifactCache::open(&cache.join("artifacts"), 64 << 20).unwrap();
    Fetcher::new(Client::new(config, Limits::default()), cache, Arc::new(trust))
}

/// A registry with an artifact that another replica has, and the folders of two caches.
async fn stage() -> (Registry, Digest, Arc<Other>, tempfile::TempDir) {
    let registry = Registry::start().await;
    let digest = plugin(&registry, "1", &component()).digest;
    let folder = tempfile::tempdir().unwrap();
    let other = fetcher(&registry, &folder.path().join("other"), TrustSource::accept_unsigned());
    drop(other.fetch_meant(&registry.location(":1"), &()).await.unwrap());
    let other = Other {
        fetcher: other,
        asked: AtomicUsize::new(0),
        change: Mutex::default(),
    };
    (registry, digest, Arc::new(other), folder)
}

fn is_whole(fetched: &FetchedComponent) -> bool {
    fetched.component == Digest::of(&component()) && std::fs::read(&fetched.file).unwrap() == component()
}

#[tokio::test]
async fn an_artifact_of_another_replica_needs_no_registry() {
    let (registry, digest, other, folder) = stage().await;
    registry.hook(|_, _| Some(reply(503, &[], "")));
    let new = |name: &str| {
        let own = fetcher(&registry, &folder.path().join(name), TrustSource::accept_unsigned());
        own.with_replicas(Some(other.clone()))
    };
    let location = registry.location(":1");
    let before = registry.count("GET");
    let own = new("one");
    assert!(is_whole(&own.fetch(&location, digest, &()).await.unwrap()));
    assert_eq!(registry.count("GET"), before, "the registry is not asked");
    let asked = other.asked.load(Ordering::SeqCst);
    assert_eq!(asked, 4, "the manifest, and three parts");
    // It is in the own cache afterwards.
    assert!(is_whole(&own.fetch(&location, digest, &()).await.unwrap()));
    assert_eq!(other.asked.load(Ordering::SeqCst), asked);
    // A tag is known to the other replica, too.
    assert!(is_whole(&new("two").fetch_last(&location).await.unwrap().unwrap()));
    let unknown: Location = registry.location(":2");
    assert!(new("three").fetch_last(&unknown).await.unwrap().is_none());
}

#[tokio::test]
async fn a_replica_that_answers_wrongly_is_no_source() {
    let (registry, digest, other, folder) = stage().await;
    let location = registry.location(":1");
    let changes: [Change; 5] = [
        |_| Err("503".to_owned()),
        |_| Ok("<html>".to_owned()),
        |answer| Ok(answer.replacen("schemaVersion", "schemaversion", 1)),
        // Other bytes of the same length, and none at all.
        |answer| Ok(answer.replacen("\"bytes\":\"AAEC", "\"bytes\":\"AAED", 1)),
        |answer| {
            Ok(if answer.contains("bytes") {
                json!({"bytes": ""}).to_string()
            } else {
                answer
            })
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        *other.change.lock().unwrap() = Some(change);
        let own = fetcher(
            &registry,
            &folder.path().join(number.to_string()),
            TrustSource::accept_unsigned(),
        );
        let before = registry.count("GET");
        let fetched = own
            .with_replicas(Some(other.clone()))
            .fetch(&location, digest, &())
            .await;
        assert!(is_whole(&fetched.unwrap()), "{number}");
        assert!(registry.count("GET") > before, "the registry gave it: {number}");
    }
}

#[tokio::test]
async fn the_own_trust_policy_decides_on_a_replicas_artifact() {
    let (registry, digest, other, folder) = stage().await;
    let location = registry.location(":1");
    let refuses = |policy: serde_json::Value| {
        let file = folder.path().join("trust.yaml");
        std::fs::write(&file, policy.to_string()).unwrap();
        TrustSource::open(&file).unwrap()
    };
    let pem = rcgen::KeyPair::generate().unwrap().public_key_pem();
    let signed = json!({"default": "refuse", "repositories": [{"match": "**", "keys": [{"pem": pem, "name": "k"}]}]});
    for (policy, kind, asks) in [
        (json!({"default": "refuse"}), TrustErrorKind::NotAllowed, 0),
        (signed, TrustErrorKind::Unsigned, 1),
    ] {
        let before = other.asked.load(Ordering::SeqCst);
        let own = fetcher(&registry, &folder.path().join("own"), refuses(policy));
        let fetched = own
            .with_replicas(Some(other.clone()))
            .fetch(&location, digest, &())
            .await;
        let Err(FetchError::Trust(error)) = fetched else {
            panic!("it is refused");
        };
        assert_eq!(
            (error.kind(), other.asked.load(Ordering::SeqCst) - before),
            (kind, asks)
        );
    }
}
