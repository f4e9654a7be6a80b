//! Plugins whose component is an OCI artifact: which one runs, when the host moves to another one, and what it says while
//! the registry, the signature or the pull secret is not as it should be. The store of these tests is in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_end_to_end::components;
use pilothouse_runtime::artifacts::{
    ArtifactFuture, ArtifactProblem, ArtifactRequest, ArtifactStore, ArtifactUpdate, ArtifactVerification,
    FetchedArtifact, PullCredentials, ResolvedArtifact,
};
use tokio::sync::Notify;

/// A registry with one repository, and a cache.
pub struct MemoryStore {
    state: Mutex<MemoryState>,
    trust_changed: Notify,
    folder: tempfile::TempDir,
}

#[derive(Default)]
struct MemoryState {
    tags: BTreeMap<String, String>,
    /// The component's file, digest and size, by the digest of the manifest.
    artifacts: BTreeMap<String, (PathBuf, String, u64)>,
    cached: BTreeSet<String>,
    is_down: bool,
    distrusted: BTreeSet<String>,
    trust: u64,
    /// The credentials of each request to the registry.
    asked: Vec<Option<Vec<u8>>>,
    /// Count of resolved references.
    resolved: usize,
}

impl MemoryStore {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            trust_changed: Notify::new(),
            folder: tempfile::tempdir().unwrap(),
        })
    }

    /// Pushes a built component under a tag; with another mark it is another artifact. Returns the digest.
    pub fn push(&self, component: &str, tag: &str, mark: u8) -> String {
        let mut bytes = std::fs::read(components::folder().join(format!("{component}.wasm"))).unwrap();
        bytes.extend([0, 3, 1, b'm', mark]);
        self.push_bytes(&bytes, tag)
    }

    /// Pushes any bytes under a tag.
    pub fn push_bytes(&self, bytes: &[u8], tag: &str) -> String {
        let component_digest = hex(bytes);
        let file = self.folder.path().join(format!("{component_digest}.wasm"));
        std::fs::write(&file, bytes).unwrap();
        let digest = format!("sha256:{}", hex(component_digest.as_bytes()));
        let mut state = self.state.lock();
        let size = bytes.len() as u64;
        state.artifacts.insert(digest.clone(), (file, component_digest, size));
        state.tags.insert(tag.to_owned(), digest.clone());
        digest
    }

    /// An artifact's component is not what it was.
    pub fn spoil(&self, digest: &str) {
        let file = self.state.lock().artifacts[digest].0.clone();
        std::fs::write(file, "spoilt").unwrap();
    }

    /// Puts the component of an artifact into another one, under a tag.
    pub fn name_again(&self, digest: &str, tag: &str) -> String {
        let mut state = self.state.lock();
        let artifact = state.artifacts[digest].clone();
        let again = format!("sha256:{}", hex(digest.as_bytes()));
        state.artifacts.insert(again.clone(), artifact);
        state.tags.insert(tag.to_owned(), again.clone());
        again
    }

    pub fn is_down(&self, is_down: bool) {
        self.state.lock().is_down = is_down;
    }

    /// Trusts or distrusts the key that signed an artifact.
    pub fn trust(&self, digest: &str, is_trusted: bool) {
        let mut state = self.state.lock();
        state.trust += 1;
        if is_trusted {
            state.distrusted.remove(digest);
        } else {
            state.distrusted.insert(digest.to_owned());
        }
        drop(state);
        self.trust_changed.notify_waiters();
    }

    pub fn asked(&self) -> Vec<Option<Vec<u8>>> {
        self.state.lock().asked.clone()
    }

    pub fn resolved(&self) -> usize {
        self.state.lock().resolved
    }

    /// The cache is lost, as with a pod that is gone.
    pub fn lose_cache(&self) {
        self.state.lock().cached.clear();
    }

    /// Returns `true` if an artifact has been fetched.
    pub fn has(&self, digest: &str) -> bool {
        self.state.lock().cached.contains(digest)
    }

    fn ask(&self, credentials: Option<&PullCredentials>, reference: &str) -> Result<(), ArtifactProblem> {
        let mut state = self.state.lock();
        if state.is_down {
            return Err(problem(
                false,
                "Unreachable",
                format!("cannot reach the registry of {reference}"),
            ));
        }
        state.asked.push(credentials.map(|credentials| credentials.0.clone()));
        Ok(())
    }

    fn resolve_now(
        &self,
        request: &ArtifactRequest,
        credentials: Option<&PullCredentials>,
    ) -> Result<ResolvedArtifact, ArtifactProblem> {
        if let Some((_, digest)) = request.reference.split_once('@') {
            let (digest, tag) = (digest.to_owned(), None);
            return Ok(ResolvedArtifact { digest, tag });
        }
        self.ask(credentials, &request.reference)?;
        let mut state = self.state.lock();
        state.resolved += 1;
        let tag = match &request.update {
            ArtifactUpdate::SemVer(range) => {
                let range = semver::VersionReq::parse(range).unwrap();
                let version = |tag: &&String| tag.parse::<semver::Version>().ok().filter(|it| range.matches(it));
                state
                    .tags
                    .keys()
                    .filter(|tag| version(tag).is_some())
                    .max_by_key(|tag| version(tag))
            }
            _ => state
                .tags
                .keys()
                .find(|tag| request.reference.ends_with(&format!(":{tag}"))),
        };
        let not_found = || problem(false, "NotFound", format!("{} does not exist", request.reference));
        let tag = tag.ok_or_else(not_found)?.clone();
        let digest = state.tags[&tag].clone();
        Ok(ResolvedArtifact { digest, tag: Some(tag) })
    }

    fn take(&self, digest: &str) -> Result<FetchedArtifact, ArtifactProblem> {
        let state = self.state.lock();
        if state.distrusted.contains(digest) {
            let message = format!("{digest} is signed by a key that no rule accepts");
            return Err(problem(true, "UnknownSigner", message));
        }
        let not_found = || problem(false, "NotFound", format!("{digest} does not exist"));
        let (file, component_digest, size) = state.artifacts.get(digest).ok_or_else(not_found)?.clone();
        Ok(FetchedArtifact {
            resolved: ResolvedArtifact {
                digest: digest.to_owned(),
                tag: None,
            },
            file,
            component_digest,
            size,
            verification: ArtifactVerification {
                signer: Some("release".to_owned()),
                detail: "in memory".to_owned(),
            },
            hold: Arc::new(()),
        })
    }

    fn fetch_now(&self, resolved: &ResolvedArtifact) -> Result<FetchedArtifact, ArtifactProblem> {
        let fetched = self.take(&resolved.digest)?;
        self.state.lock().cached.insert(resolved.digest.clone());
        let resolved = resolved.clone();
        Ok(FetchedArtifact { resolved, ..fetched })
    }
}

fn problem(is_about_trust: bool, reason: &'static str, message: String) -> ArtifactProblem {
    ArtifactProblem {
        is_about_trust,
        reason,
        message,
    }
}

fn hex(bytes: &[u8]) -> String {
    pilothouse_artifact::Digest::of(bytes).hex()
}

impl ArtifactStore for MemoryStore {
    fn resolve<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        credentials: Option<&'a PullCredentials>,
    ) -> ArtifactFuture<'a, ResolvedArtifact> {
        Box::pin(async move { self.resolve_now(request, credentials) })
    }

    fn fetch<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        resolved: &'a ResolvedArtifact,
        credentials: Option<&'a PullCredentials>,
    ) -> ArtifactFuture<'a, FetchedArtifact> {
        Box::pin(async move {
            self.ask(credentials, &request.reference)?;
            self.fetch_now(resolved)
        })
    }

    fn fetch_offline<'a>(
        &'a self,
        _request: &'a ArtifactRequest,
        resolved: &'a ResolvedArtifact,
    ) -> ArtifactFuture<'a, Option<FetchedArtifact>> {
        Box::pin(async move {
            if !self.state.lock().cached.contains(&resolved.digest) {
                return Ok(None);
            }
            self.fetch_now(resolved).map(Some)
        })
    }

    fn trust_number(&self) -> u64 {
        self.state.lock().trust
    }

    fn trust_changed(&self, since: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let changed = self.trust_changed.notified();
                if self.trust_number() != since {
                    return;
                }
                changed.await;
            }
        })
    }
}

mod simulated {
    use std::sync::Arc;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Secret;
    use kube::Api;
    use kube::api::DeleteParams;
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::unhurried;
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use super::MemoryStore;
    use crate::election::simulated::options;
    use crate::fleet::Fleet;

    const REFERENCE: &str = "registry.example.com/plugins/hostile";

    async fn fleet_of(store: &Arc<MemoryStore>) -> Fleet {
        let options = HostOptions {
            namespace: Some("pilothouse".to_owned()),
            ..HostOptions::default()
        };
        let mut host = RuntimeHost::new(options, unhurried());
        host.fetch_from(store.clone());
        Fleet::start_host_with(Cluster::simulated(), host).await
    }

    fn oci(source: &Value) -> Value {
        json!({"source": {"oci": source}})
    }

    fn tagged(tag: &str) -> Value {
        oci(&json!({"reference": format!("{REFERENCE}:{tag}"), "updatePolicy": "Tag", "interval": "10s"}))
    }

    /// Waits until a Plugin runs this artifact.
    async fn runs(fleet: &Fleet, name: &str, digest: &str) {
        let what = format!("{name} runs {digest}");
        let runs = |plugin: Value| plugin["status"]["artifact"]["digest"] == digest;
        fleet
            .until(&what, |stage| stage.find("Plugin", name).is_some_and(runs))
            .await;
    }

    fn moves(fleet: &Fleet) -> Vec<String> {
        let events = fleet.stage.all("Event").into_iter();
        let moves = events.filter(|event| event["reason"] == "ArtifactMoved");
        moves
            .map(|event| {
                event["message"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{event:#}"))
                    .to_owned()
            })
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_moved_tag_is_rolled_out_under_tag_and_not_under_pinned() {
        let store = MemoryStore::new();
        let one = store.push("hostile", "1", 1);
        let fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        let first = store.push("bundle", "first", 1);
        let pinned = oci(&json!({"reference": format!("{REFERENCE}@{first}")}));
        fleet.plugin("pinned", pinned).await;
        runs(&fleet, "pinned", &first).await;
        runs(&fleet, "it", &one).await;
        let fetched = fleet.says("it", "Fetched", "True", "Fetched").await;
        let message = fetched["message"].as_str().unwrap();
        assert!(message.contains(&one) && message.contains(" bytes"), "{message}");
        let verified = fleet.says("it", "Verified", "True", "Verified").await;
        assert!(
            verified["message"].as_str().unwrap().contains("signed by release"),
            "{verified}"
        );

        store.push("bundle", "first", 2);
        let two = store.push("hostile", "1", 2);
        runs(&fleet, "it", &two).await;
        fleet.is_ready("it").await;
        let told = moves(&fleet);
        assert!(
            told.iter()
                .any(|note| note.contains(&two) && note.contains(&format!("before it ran {one}"))),
            "{told:#?}"
        );
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(fleet.status("pinned")["artifact"]["digest"], first);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_version_in_the_range_runs() {
        let store = MemoryStore::new();
        store.push("hostile", "1.9.0", 1);
        let ten = store.push("hostile", "1.10.0", 2);
        store.push("hostile", "2.0.0", 3);
        store.push("hostile", "latest", 4);
        let fleet = fleet_of(&store).await;
        let source = json!({"reference": REFERENCE, "updatePolicy": "SemVer", "range": "^1", "interval": "10s"});
        fleet.plugin("it", oci(&source)).await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &ten).await;
        assert_eq!(fleet.status("it")["artifact"]["tag"], "1.10.0");
        let eleven = store.push("hostile", "1.11.0", 5);
        runs(&fleet, "it", &eleven).await;
        fleet.stage.stop().await;
    }

    /// The registry of the replica that stands by is ahead of the leader's, then behind it.
    #[tokio::test(start_paused = true)]
    async fn only_the_leader_resolves_a_tag_and_the_others_follow() {
        let (leaders, others) = (MemoryStore::new(), MemoryStore::new());
        let one = leaders.push("hostile", "1", 1);
        others.push("hostile", "1", 1);
        let replica = |identity: &str, store: &Arc<MemoryStore>| {
            let mut host = RuntimeHost::new(options(identity), unhurried());
            host.fetch_from(store.clone());
            host
        };
        let mut fleet = Fleet::start_host_with(Cluster::simulated(), replica("one", &leaders)).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &one).await;
        let mut second = replica("two", &others);
        second
            .start_by_resources(&fleet.stage.cluster, fleet.path(""))
            .await
            .unwrap();
        fleet.until("the second replica follows", |_| others.has(&one)).await;

        let two = others.push("hostile", "1", 2);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(fleet.status("it")["artifact"]["digest"], one);
        assert!(!others.has(&two), "a replica that does not lead moved by itself");

        leaders.push("hostile", "1", 2);
        runs(&fleet, "it", &two).await;
        fleet.until("the second replica follows", |_| others.has(&two)).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(others.resolved(), 0);
        assert_eq!(moves(&fleet).len(), 2, "{:#?}", moves(&fleet));

        let three = others.push("hostile", "1", 3);
        fleet.stage.host.stop().await.unwrap();
        runs(&fleet, "it", &three).await;
        let told = moves(&fleet);
        let is_last = |note: &String| note.contains(&three) && note.ends_with(&format!("before it ran {two}"));
        assert!(told.len() == 3 && told.iter().any(is_last), "{told:#?}");
        second.stop().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_artifact_of_an_unknown_key_never_replaces_the_old_one() {
        let store = MemoryStore::new();
        let one = store.push("hostile", "1", 1);
        let fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &one).await;
        let running = fleet.status("it")["digest"].clone();

        let forged = store.push("hostile", "1", 2);
        store.trust(&forged, false);
        let refused = fleet.says("it", "Verified", "False", "UnknownSigner").await;
        assert!(refused["message"].as_str().unwrap().contains(&forged), "{refused}");
        let ready = fleet.says("it", "Ready", "True", "PreviousVersion").await;
        assert!(
            ready["message"]
                .as_str()
                .unwrap()
                .contains("the version before goes on"),
            "{ready}"
        );
        tokio::time::sleep(Duration::from_hours(1)).await;
        let status = fleet.status("it");
        assert_eq!(
            (&status["artifact"]["digest"], &status["digest"]),
            (&json!(one), &running)
        );

        // It runs as soon as the key is taken.
        store.trust(&forged, true);
        runs(&fleet, "it", &forged).await;
        fleet.is_ready("it").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn code_of_a_revoked_key_goes_on_until_the_next_start() {
        let store = MemoryStore::new();
        let one = store.push("hostile", "1", 1);
        let mut fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &one).await;

        store.trust(&one, false);
        fleet.says("it", "Verified", "False", "UnknownSigner").await;
        fleet.says("it", "Ready", "True", "PreviousVersion").await;
        fleet.stage.host.stop().await.unwrap();
        fleet.start_host().await;
        fleet.says("it", "Ready", "False", "UnknownSigner").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_starts_from_the_cache_while_the_registry_is_down() {
        let store = MemoryStore::new();
        let one = store.push("hostile", "1", 1);
        let mut fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &one).await;
        fleet.stage.host.stop().await.unwrap();

        store.is_down(true);
        let two = store.push("hostile", "1", 2);
        let asked = store.asked().len();
        fleet.start_host().await;
        fleet.says("it", "Fetched", "False", "Unreachable").await;
        fleet.says("it", "Ready", "True", "Running").await;
        assert_eq!(fleet.status("it")["artifact"]["digest"], one);
        assert_eq!(store.asked().len(), asked, "nothing was fetched");

        store.is_down(false);
        runs(&fleet, "it", &two).await;
        fleet.says("it", "Fetched", "True", "Fetched").await;
        fleet.stage.stop().await;
    }

    /// The tag means a version by now that cannot run. Without a cache the one that ran before comes from the registry.
    #[tokio::test(start_paused = true)]
    async fn a_host_without_a_cache_starts_the_last_artifact_first() {
        let store = MemoryStore::new();
        let one = store.push("hostile", "1", 1);
        let mut fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &one).await;
        fleet.stage.host.stop().await.unwrap();

        store.lose_cache();
        store.push_bytes(b"this is no component", "1");
        fleet.start_host().await;
        fleet.says("it", "Ready", "True", "PreviousVersion").await;
        assert!(store.has(&one));
        assert_eq!(fleet.status("it")["artifact"]["digest"], one);
        let three = store.push("hostile", "1", 3);
        runs(&fleet, "it", &three).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_comes_from_a_file_again_forgets_its_artifact() {
        let store = MemoryStore::new();
        store.push("hostile", "1", 1);
        let fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        fleet.put("hostile", "a.wasm", 3);
        fleet
            .change("it", json!({"source": {"oci": null, "file": "a.wasm"}}))
            .await;
        fleet
            .until("the artifact is forgotten", |stage| {
                let plugin = stage.find("Plugin", "it").unwrap_or_default();
                plugin["status"]["artifact"].is_null() && plugin["status"]["digest"].is_string()
            })
            .await;
        fleet.is_ready("it").await;
        assert!(fleet.condition("it", "Verified").is_null());
        fleet.stage.stop().await;
    }

    fn errors(fleet: &Fleet) -> usize {
        let lines = fleet.stage.lines(&["ERROR"]);
        lines.iter().filter(|line| line.contains("cannot be used")).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_moved_tag_that_fails_its_trial_is_refused_once() {
        let store = MemoryStore::new();
        let one = store.push("hostile", "1", 1);
        let fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &one).await;
        // No component at all.
        let broken = store.push_bytes(b"this is no component", "1");
        fleet.says("it", "Ready", "True", "PreviousVersion").await;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(7)).await;
            assert_eq!(fleet.condition("it", "Ready")["reason"], "PreviousVersion");
        }
        assert_eq!(errors(&fleet), 1, "{}", fleet.log());
        assert_eq!(fleet.status("it")["artifact"]["digest"], one);
        assert!(
            fleet.condition("it", "Compiled").to_string().contains("False"),
            "{broken}"
        );
        let three = store.push("hostile", "1", 3);
        runs(&fleet, "it", &three).await;
        fleet.is_ready("it").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_recorded_artifact_that_fails_to_start_is_replaced() {
        let store = MemoryStore::new();
        let one = store.push("hostile", "1", 1);
        let mut fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &one).await;
        fleet.stage.host.stop().await.unwrap();
        store.spoil(&one);
        let two = store.push("hostile", "1", 2);
        fleet.start_host().await;
        runs(&fleet, "it", &two).await;
        fleet.is_ready("it").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_key_is_reported_although_the_registry_is_down() {
        let store = MemoryStore::new();
        let one = store.push("hostile", "1", 1);
        let fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &one).await;
        store.is_down(true);
        store.trust(&one, false);
        fleet.says("it", "Verified", "False", "UnknownSigner").await;
        fleet.says("it", "Ready", "True", "PreviousVersion").await;
        store.trust(&one, true);
        fleet.says("it", "Verified", "True", "Verified").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn another_manifest_of_the_same_component_is_recorded() {
        let store = MemoryStore::new();
        let one = store.push("hostile", "1", 1);
        let fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &one).await;
        let component = fleet.status("it")["digest"].clone();
        let again = store.name_again(&one, "1");
        runs(&fleet, "it", &again).await;
        assert_eq!(fleet.status("it")["digest"], component);
        assert!(moves(&fleet).iter().any(|note| note.contains(&again)));
        fleet.stage.stop().await;
    }

    fn secret(kind: &str, key: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull", "namespace": "pilothouse"},
            "type": kind, "stringData": {key: r#"{"auths": {}}"#}})
    }

    async fn delete_secret(fleet: &Fleet) {
        let secrets: Api<Secret> = Api::namespaced(fleet.client().await, "pilothouse");
        secrets.delete("pull", &DeleteParams::default()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pull_secret_that_is_missing_or_of_another_type_is_named() {
        let store = MemoryStore::new();
        let one = store.push("hostile", "1", 1);
        let fleet = fleet_of(&store).await;
        let mut spec = tagged("1");
        spec["source"]["oci"]["pullSecret"] = json!("pull");
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", spec).await;
        let missing = fleet.says("it", "Fetched", "False", "PullSecret").await;
        let words = [
            "pilothouse/pull does not exist",
            REFERENCE,
            "kubectl create secret docker-registry",
        ];
        let message = missing["message"].as_str().unwrap();
        assert!(words.iter().all(|words| message.contains(words)), "{message}");

        fleet
            .stage
            .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pilothouse"}}))
            .await;
        fleet.stage.create(&secret("Opaque", ".dockerconfigjson")).await;
        fleet
            .until("the type is named", |stage| {
                let plugin = stage.find("Plugin", "it").unwrap_or_default();
                plugin["status"]["conditions"]
                    .to_string()
                    .contains("pull has type Opaque; it must have type")
            })
            .await;
        assert!(store.asked().is_empty(), "no request goes out without the credentials");
        delete_secret(&fleet).await;
        fleet
            .stage
            .create(&secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson"))
            .await;
        fleet.is_ready("it").await;
        runs(&fleet, "it", &one).await;
        assert!(
            store
                .asked()
                .iter()
                .all(|asked| asked.as_deref() == Some(br#"{"auths": {}}"#)),
            "each request has the credentials"
        );
        // It is deleted: what runs goes on.
        delete_secret(&fleet).await;
        fleet.says("it", "Fetched", "False", "PullSecret").await;
        fleet.says("it", "Ready", "True", "Running").await;
        fleet.stage.stop().await;
    }
}
