//! Lists and watches a kind: pages and events are read into [`CachedObject`] objects one by one and passed to a
//! [`Sink`].
//!
//! The requests are made here and not by kube's watcher. That one hides bookmarks (which distinguish a watch that has
//! gone silent from a quiet one), parses the head of each object a second time, and must know before it starts whether
//! whole objects or their metadata are wanted.

use std::any::Any;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use pilothouse_core::reads::reach::Scope;
use pilothouse_core::replicas::shards::HashRanges;
use pilothouse_core::status::backoff;
use pilothouse_core::{Kind, Name};
use pilothouse_metrics::{WatchMetrics, WatchRestart};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use crate::apart::apart;
use crate::cache::codec::ObjectCodec;
use crate::cache::store::WatchSource;
use crate::discovery::{Discovery, ServedKind};
use crate::error::{RequestError, WatchError, chain};
use crate::object::raw::RawObject;
use crate::object::{CachedObject, ObjectError};
use crate::watch::pages::{PageSize, read_page, refusal};
use crate::write::send::REQUEST_TIMEOUT;

/// The requested duration of a watch, in seconds.
const WATCH_SECONDS: u32 = 290;

/// The shortest watch after which the next one starts at once, if it has shown nothing.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);

/// The longest silence of a watch. A server sends a bookmark about every minute, so a watch without any event for so
/// long is dead, whatever its connection reports, and is restarted.
const LONGEST_SILENCE: Duration = Duration::from_secs(150);

/// The longest delay between two attempts.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The time after its list at which a watch counts as healthy. Earlier failures are forgotten then, and the next relist
/// has no longer delay than a first one.
pub(crate) const WELL_AFTER: Duration = Duration::from_mins(2);

/// The longest event of a watch, in bytes. No object is as large.
const LONGEST_EVENT: usize = 32 * 1024 * 1024;

/// The number of consecutive stale lists after which the cluster counts as reset, for example to a backup. A list that
/// is older than what a watch has shown comes from a server that lags behind, and is ignored until then.
const STALE_LISTS: u32 = 10;

/// Receives what a watch sees. No method may block: the watch waits for its sink.
pub trait Sink: Send + Sync + 'static {
    /// A list begins.
    fn list_begins(&self, source: &WatchSource);
    /// An object was listed, added or modified.
    fn observed(&self, source: &WatchSource, object: CachedObject);
    /// An object was deleted, or left the source.
    fn deleted(&self, source: &WatchSource, name: &Name);
    /// The list is complete; it shows the cluster at this resourceVersion.
    fn list_ends(&self, source: &WatchSource, version: &str);
    /// The watch is open: earlier failures are over.
    fn works(&self, kind: &Arc<Kind>);
    /// The server has sent a page of a list, an event or a bookmark.
    fn heard(&self) {}
    /// The watch fails and keeps retrying; called at each attempt.
    fn trouble(&self, kind: &Arc<Kind>, trouble: WatchError);
    /// The server does not let the host see the kind. A sink that can do without the kind returns the delay before the
    /// next attempt. Without one, this counts as any other failure.
    fn forbidden(&self, _kind: &Arc<Kind>, _problem: &WatchError) -> Option<Duration> {
        None
    }
    /// An object cannot be read, and is left out. Its cached state stays. `name` is given if it can be read.
    fn unreadable(&self, source: &WatchSource, name: Option<&Name>, problem: &str);
    /// The host panicked while it processed an event (a bug). The kind is listed again after a delay.
    fn panicked(&self, kind: &Arc<Kind>, panic: &str);
}

/// The requested part of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All of it.
    Whole,
    /// The metadata.
    Metadata,
}

/// One list and watch.
pub struct Reflector {
    /// The client.
    pub client: Client,
    /// Checks whether the kind is still served as before.
    pub discovery: Arc<Discovery>,
    /// The kind as it is served.
    pub served: ServedKind,
    /// The listed and watched objects.
    pub source: WatchSource,
    /// The requested part of each object.
    pub detail: Detail,
    /// The codec of the objects.
    pub codec: Arc<ObjectCodec>,
    /// The receiver of the events.
    pub sink: Arc<dyn Sink>,
    /// Counts restarts.
    pub metrics: WatchMetrics,
}

/// An object of which only the namespace and name are parsed.
#[derive(Deserialize)]
struct NamedObject<'a> {
    #[serde(borrow)]
    metadata: NamedMetadata<'a>,
}

#[derive(Deserialize)]
struct NamedMetadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
}

/// The reason why a watch ends.
enum WatchEnd {
    /// The resourceVersion has expired: the kind has to be listed again.
    Expired,
    /// The kind is not served, or not as it was.
    Unserved,
}

/// The state of the lists and watches of one source.
#[derive(Default)]
struct ReflectorState {
    /// Consecutive failed attempts, and relists soon after one another. They determine the next delay.
    failures: u32,
    /// Consecutive lists that were older than the last watch.
    stale: u32,
    /// The last resourceVersion that the watch has shown.
    seen: Option<String>,
    pages: PageSize,
}

impl Reflector {
    /// Lists and watches, if the source can have objects, until the kind is no longer served as before. Everything else
    /// is reported to the sink and retried with back-off, whatever ended the list or the watch.
    pub async fn follow(self) {
        if self.source.scope.is_empty() {
            self.sink.list_begins(&self.source);
            self.sink.list_ends(&self.source, "");
            return std::future::pending().await;
        }
        let mut state = ReflectorState::default();
        loop {
            match AssertUnwindSafe(self.list_and_watch(&mut state)).catch_unwind().await {
                Ok(()) => return,
                Err(panic) => {
                    self.restarts(WatchRestart::Panic);
                    self.sink.panicked(&self.source.kind, panic_message(&*panic));
                    self.pause(&mut state.failures).await;
                }
            }
        }
    }

    async fn list_and_watch(&self, state: &mut ReflectorState) {
        loop {
            let seen = state.seen.clone().filter(|_| state.stale < STALE_LISTS);
            match self.list(seen.as_deref(), &mut state.pages).await {
                Ok(Some(version)) => {
                    state.stale = 0;
                    let opened = Instant::now();
                    match self.watch(version).await {
                        (WatchEnd::Unserved, _) => return,
                        (WatchEnd::Expired, last) => state.seen = Some(last),
                    }
                    if opened.elapsed() >= WELL_AFTER {
                        state.failures = 0;
                    }
                    self.pause(&mut state.failures).await;
                }
                Ok(None) => {
                    state.stale += 1;
                    let trouble = "a list is older than what was seen already; the API server that gave it lags behind";
                    self.trouble(&mut state.failures, WatchError::other(trouble)).await;
                }
                // The list took longer than the server keeps its resourceVersion: list again from the beginning.
                Err(error) if error.code() == Some(410) && state.failures == 0 => {
                    self.restarts(WatchRestart::Expired);
                    self.pause(&mut state.failures).await;
                }
                Err(error) if let Some(wait) = self.forbidden(&error) => {
                    sleep(wait).await;
                    continue;
                }
                Err(error) => self.trouble(&mut state.failures, WatchError::from(&error)).await,
            }
            if !self.check_still_served(&mut state.failures).await {
                return;
            }
        }
    }

    fn restarts(&self, reason: WatchRestart) {
        self.metrics.ended(&self.source.kind.title(), reason);
    }

    /// The delay that the sink requests, if the host may not see the kind.
    fn forbidden(&self, error: &RequestError) -> Option<Duration> {
        if error.code() != Some(403) {
            return None;
        }
        self.sink.forbidden(&self.source.kind, &WatchError::from(error))
    }

    async fn trouble(&self, failures: &mut u32, trouble: WatchError) {
        self.restarts(WatchRestart::Error);
        self.sink.trouble(&self.source.kind, trouble);
        self.pause(failures).await;
    }

    /// Waits, each time longer.
    async fn pause(&self, failures: &mut u32) {
        *failures = failures.saturating_add(1);
        sleep(backoff::delay(*failures, self.seed()).min(LONGEST_PAUSE)).await;
    }

    /// The seed of the jitter, so that watches that failed together are retried at different times.
    fn seed(&self) -> u64 {
        seed(&format!("{:?}", self.source))
    }

    /// Asks discovery, with back-off, whether the kind is served as before.
    async fn check_still_served(&self, failures: &mut u32) -> bool {
        loop {
            match self.discovery.find(&self.source.kind, Instant::now()).await {
                Ok(served) => return served.as_ref() == Some(&self.served),
                Err(error) => self.trouble(failures, WatchError::from(&error)).await,
            }
        }
    }

    /// Lists everything, page by page. Returns the resourceVersion from which to watch; none if the list is older than
    /// `seen`, and then the sink has received nothing of it.
    async fn list(&self, seen: Option<&str>, pages: &mut PageSize) -> Result<Option<String>, RequestError> {
        let mut next: Option<String> = None;
        loop {
            let request = |objects| {
                let mut query = format!("limit={objects}");
                if let Some(next) = &next {
                    query = format!("{query}&continue={}", encoded(next));
                }
                self.request(&query, "List")
            };
            let text = read_page(&self.client, pages, request).await?;
            self.sink.heard();
            let is_first = next.is_none();
            let Some(PageMeta {
                resource_version,
                next: more,
            }) = apart(text.len(), || self.page(&text, is_first, seen, pages))?
            else {
                return Ok(None);
            };
            next = more.filter(|next| !next.is_empty());
            if next.is_none() {
                self.sink.list_ends(&self.source, &resource_version);
                return Ok(Some(resource_version));
            }
        }
    }

    /// Processes a page; none if the list is older than `seen`.
    fn page(
        &self,
        text: &str,
        is_first: bool,
        seen: Option<&str>,
        pages: &mut PageSize,
    ) -> Result<Option<PageMeta>, RequestError> {
        let page: Page<'_> = serde_json::from_str(text).map_err(|error| {
            RequestError::Garbled(format!("a list of {} has another form: {error}", self.source.kind))
        })?;
        let mut items = page.items.unwrap_or_default();
        pages.had(items.len(), text.len());
        items.retain(|item| !self.is_elsewhere(item));
        if is_first {
            if seen.is_some_and(|seen| is_before(&page.metadata.resource_version, seen)) {
                return Ok(None);
            }
            self.codec.learn(&items);
            self.sink.list_begins(&self.source);
        }
        for item in items {
            let object = self.readable(self.codec.read(item));
            if let Some(object) = object.filter(|object| self.source.scope.has(&object.name)) {
                self.sink.observed(&self.source, object);
            }
        }
        Ok(Some(page.metadata))
    }

    /// Watches from a resourceVersion. Returns the last one that was seen.
    async fn watch(&self, mut version: String) -> (WatchEnd, String) {
        let mut failures = 0;
        loop {
            let (before, opened) = (version.clone(), Instant::now());
            match self.watch_once(&mut version).await {
                // A server that only closes connections does not get requests without a pause.
                Ok(()) if version == before && opened.elapsed() < SHORTEST_WATCH => {
                    self.restarts(WatchRestart::Closed);
                    self.pause(&mut failures).await;
                }
                Ok(()) => {
                    self.restarts(WatchRestart::Closed);
                    failures = 0;
                }
                Err(error) if error.code() == Some(410) => {
                    self.restarts(WatchRestart::Expired);
                    return (WatchEnd::Expired, version);
                }
                Err(error) if let Some(wait) = self.forbidden(&error) => sleep(wait).await,
                Err(error) => {
                    if version != before {
                        failures = 0;
                    }
                    self.trouble(&mut failures, WatchError::from(&error)).await;
                    if error.is_not_found() && !self.check_still_served(&mut failures).await {
                        return (WatchEnd::Unserved, version);
                    }
                }
            }
        }
    }

    /// Runs one watch, until its server ends it.
    async fn watch_once(&self, version: &mut String) -> Result<(), RequestError> {
        let query = format!(
            "watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}",
            encoded(version)
        );
        let request = self.request(&query, "")?;
        let response = timeout(REQUEST_TIMEOUT, self.client.send(request))
            .await
            .map_err(|_| RequestError::Silent(REQUEST_TIMEOUT))??;
        let status = response.status();
        if status.is_success() {
            self.sink.works(&self.source.kind);
        }
        let mut body = response.into_body();
        let mut line = Vec::new();
        loop {
            let frame = timeout(LONGEST_SILENCE, body.frame())
                .await
                .map_err(|_| RequestError::Silent(LONGEST_SILENCE))?;
            let Some(frame) = frame else { break };
            let Ok(data) = frame?.into_data() else { continue };
            if status.is_success() {
                self.sink.heard();
            }
            let mut rest = &data[..];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n')
                && status.is_success()
            {
                line.extend_from_slice(&rest[..end]);
                apart(line.len(), || self.event(&line, version))?;
                line.clear();
                rest = &rest[end + 1..];
            }
            if line.len() + rest.len() > LONGEST_EVENT {
                let problem = format!("an event of {} has more than {LONGEST_EVENT} bytes", self.source.kind);
                return Err(RequestError::Garbled(problem));
            }
            line.extend_from_slice(rest);
        }
        if status.is_success() {
            return Ok(());
        }
        Err(refusal(status, &line))
    }

    fn event(&self, line: &[u8], version: &mut String) -> Result<(), RequestError> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let Ok(WatchEvent { kind, object }) = serde_json::from_slice::<WatchEvent<'_, RawObject<'_>>>(line) else {
            return self.odd_event(line);
        };
        match kind {
            "BOOKMARK" => version.replace_range(.., &object.metadata.resource_version),
            "ERROR" => return self.odd_event(line),
            kind => {
                let is_elsewhere = |name: Name| !self.source.scope.has(&name);
                if self.source.scope.hashes.is_some() && object.name().is_some_and(is_elsewhere) {
                    version.replace_range(.., &object.metadata.resource_version);
                    return Ok(());
                }
                let read = self.codec.read_parts(object);
                if let Ok(object) = &read {
                    version.replace_range(.., &object.resource_version);
                }
                self.report_object(kind == "DELETED", read);
            }
        }
        Ok(())
    }

    /// Handles an event without an object that can be split.
    fn odd_event(&self, line: &[u8]) -> Result<(), RequestError> {
        let garbled = |error: serde_json::Error| {
            RequestError::Garbled(format!("an event of {} has another form: {error}", self.source.kind))
        };
        let WatchEvent { kind, object } = serde_json::from_slice::<WatchEvent<'_, &RawValue>>(line).map_err(garbled)?;
        if kind == "ERROR" {
            let status: Status = serde_json::from_str(object.get()).map_err(garbled)?;
            return Err(RequestError::Answered(Box::new(status)));
        }
        self.report_object(kind == "DELETED", self.codec.read(object));
        Ok(())
    }

    /// Reports the object of an event to the sink.
    fn report_object(&self, is_deleted: bool, read: Result<CachedObject, ObjectError>) {
        match read {
            Ok(object) if is_deleted => self.sink.deleted(&self.source, &object.name),
            Ok(object) => self.sink.observed(&self.source, object),
            // Of one that is gone, nothing but its name has to be read.
            Err(ObjectError { name: Some(name), .. }) if is_deleted => self.sink.deleted(&self.source, &name),
            Err(error) => self.leave_out(&error),
        }
    }

    /// Reports whether an object belongs to another replica: a server that cannot divide lists by namespace sends all
    /// objects, and those of others are not decoded. An object whose name cannot be read does not count as another's,
    /// and is reported then.
    fn is_elsewhere(&self, object: &RawValue) -> bool {
        let scope = &self.source.scope;
        let is_elsewhere = |object: NamedObject<'_>| {
            let NamedMetadata { name, namespace } = object.metadata;
            !scope.has(&Name::new(namespace.as_deref(), &name))
        };
        scope.hashes.is_some() && serde_json::from_str(object.get()).is_ok_and(is_elsewhere)
    }

    fn readable(&self, read: Result<CachedObject, ObjectError>) -> Option<CachedObject> {
        read.map_err(|error| self.leave_out(&error)).ok()
    }

    fn leave_out(&self, error: &ObjectError) {
        self.sink.unreadable(&self.source, error.name.as_ref(), &chain(error));
    }

    fn request(&self, query: &str, list: &str) -> Result<Request<Body>, RequestError> {
        list_request(&self.served, &self.source.scope, self.detail, query, list)
    }
}

/// A request for a list, where `list` is `List`, or for a watch, where it is empty.
pub(crate) fn list_request(
    served: &ServedKind,
    scope: &Scope,
    detail: Detail,
    query: &str,
    list: &str,
) -> Result<Request<Body>, RequestError> {
    let mut uri = format!("{}?{query}", served.path(scope.namespace.as_deref(), None));
    if let Some(name) = &scope.name {
        uri = format!("{uri}&fieldSelector={}", encoded(&format!("metadata.name={name}")));
    }
    if !scope.labels.is_empty() {
        uri = format!("{uri}&labelSelector={}", encoded(&scope.labels.to_string()));
    }
    if let Some(selector) = scope.hashes.as_ref().and_then(HashRanges::selector) {
        uri = format!("{uri}&shardSelector={}", encoded(&selector));
    }
    let accept = match detail {
        Detail::Whole => "application/json".to_owned(),
        Detail::Metadata => format!("application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1"),
    };
    let mut request = Request::builder().uri(uri).header(header::ACCEPT, accept);
    if list.is_empty() {
        // A compressed stream has a member of its own for each event, and readers stop after the first one:
        // https://github.com/tower-rs/tower-http/issues/737
        request = request.header(header::ACCEPT_ENCODING, "identity");
    }
    request
        .body(Body::empty())
        .map_err(|error| RequestError::Garbled(error.to_string()))
}

/// A seed for the jitter of back-off, by the watched source: equal in each run, so that faults are reproducible.
pub(crate) fn seed(of: &str) -> u64 {
    of.bytes()
        .fold(0, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// Reports whether a resourceVersion is older than another. They are ordered numbers (KEP-5504); if a server has
/// others, their order is not known.
pub fn is_before(version: &str, other: &str) -> bool {
    matches!((version.parse::<u128>(), other.parse::<u128>()), (Ok(version), Ok(other)) if version < other)
}

/// The message of a panic, if it has one.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it did not say why")
}

pub(crate) fn encoded(value: &str) -> impl std::fmt::Display {
    utf8_percent_encode(value, NON_ALPHANUMERIC)
}

/// A page of a list.
#[derive(Deserialize)]
pub(crate) struct Page<'a> {
    pub(crate) metadata: PageMeta,
    /// The items. Go writes an empty list as null.
    #[serde(borrow)]
    pub(crate) items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    pub(crate) next: Option<String>,
}

#[derive(Deserialize)]
struct WatchEvent<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    object: T,
}
