//! Owns the list and watch of a kind: pages and events are read into [`CachedObject`] objects one by one and handed to
//! a [`Sink`].
//!
//! The requests are made here and not by kube's watcher, because that one keeps bookmarks to itself (a watch that has
//! gone silent is told from a quiet one by them), reads the head of each object a second time, and has to be told before
//! it starts whether whole objects or their metadata are wanted.

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

/// How long the server is asked to keep a watch open.
const WATCH_SECONDS: u32 = 290;

/// A watch that ends sooner, without having said anything, is not made anew at once.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);

/// A server sends a bookmark about every minute. A watch that says nothing for so long is dead, whatever its connection
/// says, and is made anew.
const LONGEST_SILENCE: Duration = Duration::from_secs(150);

/// The longest wait between two tries.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A watch that has lasted so long after its list is well: what went wrong before it does not count any more, and the next
/// relist waits no longer than a first one.
pub(crate) const WELL_AFTER: Duration = Duration::from_mins(2);

/// The most bytes of one event of a watch. No object is as large, so what has more is no event.
const LONGEST_EVENT: usize = 32 * 1024 * 1024;

/// A list from before what a watch has shown comes from a server that lags behind, and is not taken. After so many in a
/// row it is the cluster that went back, to a backup for instance.
const STALE_LISTS: u32 = 10;

/// Who is told what a watch sees. Nothing here may block: a watch waits for its sink.
pub trait Sink: Send + Sync + 'static {
    /// A list begins.
    fn list_begins(&self, source: &WatchSource);
    /// An object was listed, added or modified.
    fn observed(&self, source: &WatchSource, object: CachedObject);
    /// An object was deleted, or left what the source is about.
    fn deleted(&self, source: &WatchSource, name: &Name);
    /// The list is complete; it shows the cluster at this resourceVersion.
    fn list_ends(&self, source: &WatchSource, version: &str);
    /// The watch is open: what trouble it had is over.
    fn works(&self, kind: &Arc<Kind>);
    /// The server has sent something: a page of a list, an event or a bookmark.
    fn heard(&self) {}
    /// The watch has trouble and goes on trying; called at each try.
    fn trouble(&self, kind: &Arc<Kind>, trouble: WatchError);
    /// The server does not let the host see the kind. A sink that can do without returns how long to wait before the next
    /// try. If it returns nothing, this counts as any other trouble.
    fn forbidden(&self, _kind: &Arc<Kind>, _problem: &WatchError) -> Option<Duration> {
        None
    }
    /// An object cannot be read, and is left out. What the cache had of it stays. Its place is given where that can be read.
    fn unreadable(&self, source: &WatchSource, name: Option<&Name>, problem: &str);
    /// The host made a mistake while it took in what the watch saw, and panicked. The kind is listed again after a wait.
    fn panicked(&self, kind: &Arc<Kind>, panic: &str);
}

/// What is asked for of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All of it.
    Whole,
    /// The metadata.
    Metadata,
}

/// One list and watch.
pub struct Reflector {
    /// The way to the cluster.
    pub client: Client,
    /// Whom to ask whether the kind is still served as it was.
    pub discovery: Arc<Discovery>,
    /// How the kind is served.
    pub served: ServedKind,
    /// What is listed and watched.
    pub source: WatchSource,
    /// What is asked for.
    pub detail: Detail,
    /// How objects are kept.
    pub codec: Arc<ObjectCodec>,
    /// Who is told.
    pub sink: Arc<dyn Sink>,
    /// Where restarts are counted.
    pub metrics: WatchMetrics,
}

/// An object of which only the place is read.
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

/// Why a watch ends.
enum WatchEnd {
    /// What it would have to go on from is not there any more: the kind has to be listed again.
    Expired,
    /// The kind is not served, or not as it was.
    Unserved,
}

/// How the lists and watches of one source have gone so far.
#[derive(Default)]
struct ReflectorState {
    /// Tries in a row that ended in trouble, and relists soon after one another: the next one waits for so long.
    failures: u32,
    /// Lists in a row that were older than what was seen.
    stale: u32,
    /// What the last watch has shown.
    seen: Option<String>,
    pages: PageSize,
}

impl Reflector {
    /// Lists and watches, where the source can have objects, until the kind is not served any more, or not as it was. Everything else goes to the sink and
    /// is tried again with back-off, whatever ended the list or the watch.
    pub async fn follow(self) {
        if self.source.scope.is_empty() {
            self.sink.list_begins(&self.source);
            self.sink.list_ends(&self.source, "");
            return std::future::pending().await;
        }
        let mut state = ReflectorState::default();
        loop {
            match AssertUnwindSafe(self.go(&mut state)).catch_unwind().await {
                Ok(()) => return,
                Err(panic) => {
                    self.restarts(WatchRestart::Panic);
                    self.sink.panicked(&self.source.kind, panic_message(&*panic));
                    self.pause(&mut state.failures).await;
                }
            }
        }
    }

    async fn go(&self, state: &mut ReflectorState) {
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
                // The list took longer than the server remembers: from the beginning, while somebody else's is fresh.
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
            if !self.is_served_as_before(&mut state.failures).await {
                return;
            }
        }
    }

    fn restarts(&self, reason: WatchRestart) {
        self.metrics.ended(&self.source.kind.title(), reason);
    }

    /// How long the sink wants to wait, if the host may not see the kind.
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

    /// So that watches that failed together come back apart.
    fn seed(&self) -> u64 {
        seed(&format!("{:?}", self.source))
    }

    async fn is_served_as_before(&self, failures: &mut u32) -> bool {
        loop {
            match self.discovery.find(&self.source.kind, Instant::now()).await {
                Ok(served) => return served.as_ref() == Some(&self.served),
                Err(error) => self.trouble(failures, WatchError::from(&error)).await,
            }
        }
    }

    /// Lists everything, page by page. The answer is the resourceVersion to watch from; none if the list is older than
    /// `seen`, and then the sink has heard nothing of it.
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

    /// Takes in a page; none if the list is older than `seen`.
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

    /// Watches from a resourceVersion on; the answer is the last one that was seen.
    async fn watch(&self, mut version: String) -> (WatchEnd, String) {
        let mut failures = 0;
        loop {
            let (before, opened) = (version.clone(), Instant::now());
            match self.watch_once(&mut version).await {
                // A server that does nothing but hang up is not asked without a pause.
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
                    if error.is_not_found() && !self.is_served_as_before(&mut failures).await {
                        return (WatchEnd::Unserved, version);
                    }
                }
            }
        }
    }

    /// One watch, until its server ends it.
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
                self.take(kind == "DELETED", read);
            }
        }
        Ok(())
    }

    /// An event without an object that can be taken apart.
    fn odd_event(&self, line: &[u8]) -> Result<(), RequestError> {
        let garbled = |error: serde_json::Error| {
            RequestError::Garbled(format!("an event of {} has another form: {error}", self.source.kind))
        };
        let WatchEvent { kind, object } = serde_json::from_slice::<WatchEvent<'_, &RawValue>>(line).map_err(garbled)?;
        if kind == "ERROR" {
            let status: Status = serde_json::from_str(object.get()).map_err(garbled)?;
            return Err(RequestError::Answered(Box::new(status)));
        }
        self.take(kind == "DELETED", self.codec.read(object));
        Ok(())
    }

    /// An object that an event is about.
    fn take(&self, is_deleted: bool, read: Result<CachedObject, ObjectError>) {
        match read {
            Ok(object) if is_deleted => self.sink.deleted(&self.source, &object.name),
            Ok(object) => self.sink.observed(&self.source, object),
            // Of one that is gone, nothing but its name has to be read.
            Err(ObjectError { name: Some(name), .. }) if is_deleted => self.sink.deleted(&self.source, &name),
            Err(error) => self.leave_out(&error),
        }
    }

    /// Whether an object is in the part of another replica: a server that cannot divide lists by namespace sends all of it, and
    /// what is not kept is not decoded. One whose name cannot be read is, and is reported then.
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
        // A compressed stream comes in members of its own for each event, and readers stop after the first:
        // https://github.com/tower-rs/tower-http/issues/737
        request = request.header(header::ACCEPT_ENCODING, "identity");
    }
    request
        .body(Body::empty())
        .map_err(|error| RequestError::Garbled(error.to_string()))
}

/// A seed for the jitter of back-off, by what is watched: the same in each run, so that a run under faults can be repeated.
pub(crate) fn seed(of: &str) -> u64 {
    of.bytes()
        .fold(0, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// Whether a resourceVersion is older than another. They are ordered numbers (KEP-5504); where a server has others,
/// nothing is known of their order.
pub fn is_before(version: &str, other: &str) -> bool {
    matches!((version.parse::<u128>(), other.parse::<u128>()), (Ok(version), Ok(other)) if version < other)
}

/// What a panic says, where it says something.
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
    /// Go writes an empty list as null.
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
