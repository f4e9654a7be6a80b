//! Emits Events (events.k8s.io/v1): builds their fields and names, and emits none twice.
//!
//! An event's name is derived from its content, so a host that has forgotten it (after a restart) finds it by the same
//! name.
//!
//! Nothing depends on events: without the right to create them, or in a terminating namespace, none are emitted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use pilothouse_core::diff::canonical::digest;
use pilothouse_core::plugin::contract::{Event, EventType};
use pilothouse_core::{Kind, Name};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::RequestError;
use crate::fence::WriteScope;
use crate::write::send::send;

/// The time for which API servers keep events by default. After it the same event may be emitted again.
const KEPT: Duration = Duration::from_hours(1);

/// The time for which no event is tried in a namespace in which the host may not create any.
const DENIED: Duration = Duration::from_mins(10);

/// The events that one plugin may emit at once, and the interval at which it may emit one more.
const BURST: u32 = 50;
const REFILL: Duration = Duration::from_secs(2);

/// The same for one object: an object that never settles leaves room for others.
const OBJECT_BURST: u32 = 20;
const OBJECT_REFILL: Duration = Duration::from_secs(30);

/// The highest number of remembered events. Beyond it the oldest are forgotten.
const REMEMBERED: usize = 20_000;

/// The object of an event.
#[derive(Clone, Debug)]
pub struct Regarding<'a> {
    /// Its kind.
    pub kind: &'a Kind,
    /// Its namespace and name.
    pub name: &'a Name,
    /// Its uid.
    pub uid: &'a str,
}

/// Emits events for one plugin.
pub struct EventRecorder {
    client: Client,
    plugin: String,
    instance: String,
    /// The namespaces from which events are read back; all if empty.
    namespaces: Vec<String>,
    /// Notified when the right to read or create events turns out to be missing.
    pub denied: Notify,
    state: Mutex<RecorderState>,
}

#[derive(Default)]
struct RecorderState {
    /// Set if earlier events have been read back.
    recalled: bool,
    /// The namespaces in which no event may be created, each with the time of the refusal.
    denied: HashMap<String, Instant>,
    emitted: HashMap<String, Instant>,
    plugin: TokenBucket,
    /// Token buckets by uid; full ones are forgotten.
    objects: HashMap<String, TokenBucket>,
    dropped: u64,
    /// The number of dropped events that the log has reported.
    said: u64,
    /// Failures by uid, of objects whose status does not record their start.
    episodes: HashMap<String, Episodes>,
}

/// The failure episodes of one object.
#[derive(Clone, Copy, Default)]
struct Episodes {
    /// The number of episodes that have ended.
    ended: u32,
    is_failing: bool,
}

/// A token bucket: tokens are spent, and refilled with time.
#[derive(Clone, Copy, Default)]
struct TokenBucket {
    spent: u32,
    since: Option<Instant>,
}

impl TokenBucket {
    /// Refills the bucket, and returns whether a token is left.
    fn refill(&mut self, burst: u32, interval: Duration, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let refilled = u32::try_from(now.duration_since(since).as_millis() / interval.as_millis()).unwrap_or(u32::MAX);
        if refilled > 0 {
            self.spent = self.spent.saturating_sub(refilled);
            self.since = Some(since + interval.saturating_mul(refilled));
        }
        self.spent < burst
    }
}

impl EventRecorder {
    /// A recorder for the plugin of this name; `instance` identifies this host.
    pub fn new(client: Client, plugin: &str, instance: &str) -> Self {
        Self {
            client,
            plugin: plugin.to_owned(),
            instance: instance.to_owned(),
            namespaces: Vec::new(),
            denied: Notify::new(),
            state: Mutex::default(),
        }
    }

    /// Reads events back only from these namespaces; from all if empty.
    #[must_use]
    pub fn within(self, namespaces: Vec<String>) -> Self {
        Self { namespaces, ..self }
    }

    /// Reads once which events this plugin emitted before this process started, so that none is emitted twice. Without
    /// the right to list events, a repeated event costs one more request: it has the same name.
    pub async fn recall(&self) -> Result<(), RequestError> {
        if self.lock().recalled {
            return Ok(());
        }
        match self.read_back().await {
            Ok(()) => self.lock().recalled = true,
            Err(error) if error.code() == Some(403) => self.denied.notify_one(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().expect("no panic happens while it is held")
    }

    async fn read_back(&self) -> Result<(), RequestError> {
        if self.namespaces.is_empty() {
            return self.read_back_at("/api/v1/events").await;
        }
        for namespace in &self.namespaces {
            self.read_back_at(&format!("/api/v1/namespaces/{namespace}/events"))
                .await?;
        }
        Ok(())
    }

    async fn read_back_at(&self, path: &str) -> Result<(), RequestError> {
        let mut token = String::new();
        loop {
            let query = format!(
                "limit=500&fieldSelector=reportingComponent%3D{}&continue={token}",
                self.controller_query()
            );
            let request = Request::builder()
                .uri(format!("{path}?{query}"))
                .header(
                    http::header::ACCEPT,
                    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json",
                )
                .body(Body::empty())
                .map_err(|error| RequestError::Garbled(error.to_string()))?;
            let (_, text) = send(&self.client, request).await?;
            let list: Value = serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))?;
            let mut state = self.lock();
            for item in list["items"].as_array().into_iter().flatten() {
                if let Some(name) = item["metadata"]["name"].as_str() {
                    state.emitted.insert(name.to_owned(), Instant::now());
                }
            }
            match list["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => next.clone_into(&mut token),
                _ => return Ok(()),
            }
        }
    }

    fn controller(&self) -> String {
        format!("pilothouse/{}", self.plugin)
    }

    fn controller_query(&self) -> String {
        self.controller().replace('/', "%2F")
    }

    /// Emits an event, unless it was emitted before or the plugin emits too many. Returns whether a request was made.
    pub async fn record(&self, regarding: &Regarding<'_>, event: &Event, now: &str) -> Result<bool, RequestError> {
        let name = self.name_of(&regarding.name.name, regarding.uid, event, None);
        self.emit_as(name, regarding, event, now).await
    }

    /// The name of an event, derived from its content and the object that it is `about`. `episode` distinguishes events
    /// with the same content.
    fn name_of(&self, prefix: &str, about: &str, event: &Event, episode: Option<&str>) -> String {
        let mut said = vec![
            &*self.plugin,
            about,
            type_name(event.type_),
            &event.reason,
            &event.message,
        ];
        said.extend(episode);
        format!("{}.{}", shorten_name(prefix), digest(&json!(said)))
    }

    /// Emits an event about a failure, once for as long as the object fails: an object that recovered and fails again
    /// in the same way gets a new event. `since` is the start of the failure in the object's status, so that all hosts,
    /// also after a restart, give the event the same name. If no status records it, [`Self::recovered`] distinguishes
    /// the failures while this process runs.
    pub async fn record_failure(
        &self,
        regarding: &Regarding<'_>,
        event: &Event,
        since: Option<&str>,
        now: &str,
    ) -> Result<bool, RequestError> {
        let ended = match since {
            Some(_) => 0,
            None => self.lock().fails(regarding.uid),
        };
        let ended = (ended > 0).then(|| ended.to_string());
        let name = self.name_of(&regarding.name.name, regarding.uid, event, since.or(ended.as_deref()));
        self.emit_as(name, regarding, event, now).await
    }

    /// Records that an object has recovered: its next failure is a new one.
    pub fn recovered(&self, uid: &str) {
        let mut state = self.lock();
        if let Some(episodes) = state.episodes.get_mut(uid)
            && std::mem::take(&mut episodes.is_failing)
        {
            episodes.ended += 1;
        }
    }

    /// Emits an event about the first object of a kind that gives reason to, and about no other.
    pub async fn record_for_kind(
        &self,
        regarding: &Regarding<'_>,
        event: &Event,
        now: &str,
    ) -> Result<bool, RequestError> {
        let name = self.name_of(&self.plugin, &regarding.kind.to_string(), event, None);
        self.emit_as(name, regarding, event, now).await
    }

    async fn emit_as(
        &self,
        name: String,
        regarding: &Regarding<'_>,
        event: &Event,
        now: &str,
    ) -> Result<bool, RequestError> {
        let Event { type_, reason, message } = event;
        let namespace = regarding.name.namespace.as_deref().unwrap_or("default");
        if self.is_denied(namespace) || !self.may_emit(&name, regarding.uid) {
            return Ok(false);
        }
        let mut object = json!({
            "kind": regarding.kind.kind,
            "apiVersion": regarding.kind.api_version(),
            "name": &*regarding.name.name,
            "uid": regarding.uid,
        });
        if let Some(namespace) = &regarding.name.namespace {
            object["namespace"] = json!(&**namespace);
        }
        let body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": now,
            "reportingController": self.controller(),
            "reportingInstance": self.instance,
            "action": "Reconcile",
            "type": type_name(*type_),
            "reason": reason,
            "note": one_line(message),
            "regarding": object,
        });
        let request = Request::builder()
            .method(Method::POST)
            .extension(WriteScope::Anywhere)
            .uri(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string().into_bytes()))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        match send(&self.client, request).await {
            // Emitted before this process began.
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(409) => Ok(true),
            // The object is being deleted, too.
            Err(error) if error.is_in_terminating_namespace() || error.is_not_found() => Ok(false),
            Err(error) if error.code() == Some(403) => {
                let mut state = self.lock();
                state.emitted.remove(&name);
                state.denied.retain(|_, since| since.elapsed() < DENIED);
                state.denied.insert(namespace.to_owned(), Instant::now());
                drop(state);
                tracing::debug!(plugin = self.plugin, namespace, %error, "cannot emit events");
                self.denied.notify_one();
                Ok(false)
            }
            Err(error) => {
                let mut state = self.lock();
                state.emitted.remove(&name);
                Err(error)
            }
        }
    }

    /// The number of events dropped by the rate limit since this process started.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    fn is_denied(&self, namespace: &str) -> bool {
        let state = self.lock();
        state
            .denied
            .get(namespace)
            .is_some_and(|since| since.elapsed() < DENIED)
    }

    fn may_emit(&self, name: &str, object: &str) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        if state
            .emitted
            .get(name)
            .is_some_and(|told| now.duration_since(*told) < KEPT)
        {
            return false;
        }
        if !state.spend(object, now) {
            state.dropped += 1;
            return false;
        }
        let missed = state.dropped - state.said;
        if missed > 0 {
            state.said = state.dropped;
            tracing::warn!(
                plugin = self.plugin,
                dropped = missed,
                "too many events; some were dropped"
            );
        }
        if state.emitted.len() >= REMEMBERED {
            state.emitted.retain(|_, told| now.duration_since(*told) < KEPT);
        }
        if state.emitted.len() >= REMEMBERED
            && let Some(oldest) = state
                .emitted
                .iter()
                .min_by_key(|(_, told)| **told)
                .map(|(name, _)| name.clone())
        {
            state.emitted.remove(&oldest);
        }
        state.emitted.insert(name.to_owned(), now);
        true
    }
}

/// A message on one line: kubectl shows only one line of an event.
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

impl RecorderState {
    /// Records that an object fails. Returns the number of its ended episodes.
    fn fails(&mut self, uid: &str) -> u32 {
        if self.episodes.len() >= REMEMBERED && !self.episodes.contains_key(uid) {
            // Those that have recovered; if none has, an event more or less does not matter any more.
            self.episodes.retain(|_, episodes| episodes.is_failing);
            if self.episodes.len() >= REMEMBERED {
                self.episodes.clear();
            }
        }
        let episodes = self.episodes.entry(uid.to_owned()).or_default();
        episodes.is_failing = true;
        episodes.ended
    }

    /// Takes a token of the plugin and one of the object, if both have one left.
    fn spend(&mut self, object: &str, now: Instant) -> bool {
        if !self.plugin.refill(BURST, REFILL, now) {
            return false;
        }
        if !self.objects.contains_key(object) {
            self.objects.retain(|_, bucket| {
                bucket.refill(OBJECT_BURST, OBJECT_REFILL, now);
                bucket.spent > 0
            });
        }
        let bucket = self.objects.entry(object.to_owned()).or_default();
        if !bucket.refill(OBJECT_BURST, OBJECT_REFILL, now) {
            return false;
        }
        bucket.spent += 1;
        self.plugin.spent += 1;
        true
    }
}

fn type_name(type_: EventType) -> &'static str {
    match type_ {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

/// Truncates a name: names of events are DNS subdomains of at most 253 bytes, and the digest needs 33 of them.
fn shorten_name(name: &str) -> &str {
    let mut end = name.len().min(200);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].trim_end_matches(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> EventRecorder {
        let service = tower_stub::never();
        EventRecorder::new(service, "p", "host-0")
    }

    mod tower_stub {
        use kube::client::Body;

        /// A client whose requests have no answer; the tests here make none.
        pub fn never() -> kube::Client {
            kube::Client::new(Never, "default")
        }

        #[derive(Clone)]
        struct Never;

        impl tower::Service<http::Request<Body>> for Never {
            type Response = http::Response<Body>;
            type Error = std::convert::Infallible;
            type Future = std::future::Pending<Result<Self::Response, Self::Error>>;

            fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn call(&mut self, _: http::Request<Body>) -> Self::Future {
                std::future::pending()
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_event_is_emitted_once_an_hour() {
        let recorder = recorder();
        assert!(recorder.may_emit("a", "u"));
        assert!(!recorder.may_emit("a", "u"));
        tokio::time::advance(KEPT).await;
        assert!(recorder.may_emit("a", "u"));
    }

    #[tokio::test]
    async fn a_failure_that_comes_back_is_another_one() {
        let recorder = recorder();
        let fails = || recorder.lock().fails("u");
        assert_eq!((fails(), fails()), (0, 0), "it goes on");
        recorder.recovered("u");
        recorder.recovered("u");
        recorder.recovered("never failed");
        assert_eq!((fails(), fails()), (1, 1));
        assert_eq!(recorder.lock().episodes.len(), 1);
    }

    #[test]
    fn objects_that_failed_are_remembered_up_to_a_bound() {
        let mut state = RecorderState::default();
        for number in 0..=REMEMBERED {
            state.fails(&number.to_string());
        }
        assert!(state.episodes.len() <= REMEMBERED);
    }

    #[test]
    fn a_message_of_an_event_is_one_line() {
        assert_eq!(
            one_line("panicked at src/lib.rs:1:2:\n  no size\n\nnote: x\r\n"),
            "panicked at src/lib.rs:1:2: no size note: x"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_emits_too_many_is_held_back_and_let_on_again() {
        let recorder = recorder();
        let told = (0..200)
            .filter(|number| recorder.may_emit(&format!("{number}"), &format!("u{number}")))
            .count();
        assert_eq!(told, BURST as usize);
        assert_eq!(recorder.dropped(), 200 - u64::from(BURST));
        tokio::time::advance(REFILL).await;
        assert!(recorder.may_emit("one more", "u") && !recorder.may_emit("but no two", "u"));
    }

    #[tokio::test(start_paused = true)]
    async fn one_object_leaves_room_for_the_others() {
        let recorder = recorder();
        let told = (0..200)
            .filter(|number| recorder.may_emit(&format!("{number}"), "loud"))
            .count();
        assert_eq!(told, OBJECT_BURST as usize);
        assert!(recorder.may_emit("a", "quiet"));
        tokio::time::advance(OBJECT_REFILL).await;
        assert!(recorder.may_emit("one more", "loud") && !recorder.may_emit("but no two", "loud"));
        tokio::time::advance(OBJECT_REFILL * OBJECT_BURST).await;
        assert!(recorder.may_emit("b", "quiet"));
        let objects = recorder.state.lock().unwrap().objects.len();
        assert!(objects <= 2, "{objects} objects are remembered");
    }

    #[test]
    fn names_of_events_fit_however_long_the_objects_name_is() {
        assert_eq!(shorten_name("web"), "web");
        assert_eq!(shorten_name(&format!("{}.b", "a".repeat(199))).len(), 199);
    }
}
