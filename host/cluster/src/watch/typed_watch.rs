//! Watches a kind for the host itself: the same [`Reflector`] as for the kinds of plugins, with a typed value for each
//! object in place of the compressed store. Changes are left to the [`TypedSink`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::status::backoff;
use pilothouse_core::{Kind, Name};
use pilothouse_metrics::WatchMetrics;
use tokio::time::{Instant, sleep};

use crate::cache::codec::ObjectCodec;
use crate::cache::store::WatchSource;
use crate::discovery::{Discovery, ServedKind};
use crate::error::{WatchError, chain};
use crate::object::CachedObject;
use crate::watch::reflector::{Detail, LONGEST_PAUSE, Reflector, Sink, WELL_AFTER, seed};

/// All objects of a kind by name.
pub type TypedObjects<T> = Arc<BTreeMap<Arc<str>, Arc<T>>>;

/// Receives the objects of one cluster-scoped kind as typed values. Like a [`Sink`], it must not block.
pub(crate) trait TypedSink: Send + 'static {
    /// The type of an object.
    type Object: Send + Sync + 'static;

    /// The requested part of each object.
    const DETAIL: Detail;

    fn read(object: &CachedObject) -> Self::Object;

    /// The objects were listed, or one has changed. `before` is none at the first list.
    fn changed(&mut self, before: Option<&TypedObjects<Self::Object>>, now: &TypedObjects<Self::Object>);

    /// See [`Sink::works`].
    fn works(&mut self) {}

    /// See [`Sink::trouble`]; also called while the cluster does not serve the kind.
    fn trouble(&mut self, _trouble: &str) {}

    /// See [`Sink::forbidden`].
    fn forbidden(&mut self, _problem: &str) -> Option<Duration> {
        None
    }
}

/// Lists and watches a cluster-scoped kind for ever. The kind is listed without discovery first; if it turns out not to
/// be served, discovery is repeated with back-off.
pub(crate) async fn follow(client: Client, mut served: ServedKind, sink: impl TypedSink) {
    let kind = served.kind.clone();
    let sink = Arc::new(TypedObjectSink(Mutex::new(Watched {
        sink,
        known: None,
        listed: BTreeMap::new(),
        is_listing: false,
    })));
    let discovery = Arc::new(Discovery::new(client.clone()));
    let mut failures = 0;
    loop {
        let begun = Instant::now();
        sink.watch(client.clone(), discovery.clone(), served).await;
        if begun.elapsed() >= WELL_AFTER {
            failures = 0;
        }
        served = loop {
            failures += 1;
            sleep(backoff::delay(failures, seed(&kind.kind)).min(LONGEST_PAUSE)).await;
            let problem = match discovery.find(&kind, Instant::now()).await {
                Ok(Some(served)) => break served,
                Ok(None) => not_served(&kind),
                Err(error) => chain(&error),
            };
            sink.0.lock().sink.trouble(&problem);
        };
    }
}

fn not_served(kind: &Kind) -> String {
    format!("the cluster does not serve {kind}; install its CRD (--install-crds does so)")
}

/// The known objects of the kind, and their sink.
struct Watched<S: TypedSink> {
    sink: S,
    /// None before the first list.
    known: Option<TypedObjects<S::Object>>,
    /// The objects of the list so far.
    listed: BTreeMap<Arc<str>, Arc<S::Object>>,
    is_listing: bool,
}

impl<S: TypedSink> Watched<S> {
    /// Reports the new state, and stores it. If the sink panics it is not stored: the next list shows the change again.
    fn change(&mut self, now: BTreeMap<Arc<str>, Arc<S::Object>>) {
        let now = Arc::new(now);
        self.sink.changed(self.known.as_ref(), &now);
        self.known = Some(now);
    }

    fn known(&self) -> BTreeMap<Arc<str>, Arc<S::Object>> {
        self.known.as_deref().cloned().unwrap_or_default()
    }
}

struct TypedObjectSink<S: TypedSink>(Mutex<Watched<S>>);

impl<S: TypedSink> TypedObjectSink<S> {
    /// Watches until the kind is no longer served as before.
    async fn watch(self: &Arc<Self>, client: Client, discovery: Arc<Discovery>, served: ServedKind) {
        let projection = match S::DETAIL {
            Detail::Whole => Projection::whole(),
            Detail::Metadata => Projection::default(),
        };
        let reflector = Reflector {
            client,
            discovery,
            source: WatchSource::all(served.kind.clone()),
            codec: Arc::new(ObjectCodec::new(served.kind.clone(), projection)),
            served,
            detail: S::DETAIL,
            sink: self.clone(),
            // The metrics count only the watches of kinds that plugins reconcile and read.
            metrics: WatchMetrics::default(),
        };
        reflector.follow().await;
    }
}

impl<S: TypedSink> Sink for TypedObjectSink<S> {
    fn list_begins(&self, _: &WatchSource) {
        let mut watched = self.0.lock();
        watched.listed.clear();
        watched.is_listing = true;
    }

    fn observed(&self, _: &WatchSource, object: CachedObject) {
        let mut watched = self.0.lock();
        let (name, read) = (object.name.name.clone(), Arc::new(S::read(&object)));
        if watched.is_listing {
            watched.listed.insert(name, read);
            return;
        }
        let mut now = watched.known();
        now.insert(name, read);
        watched.change(now);
    }

    fn deleted(&self, _: &WatchSource, name: &Name) {
        let mut watched = self.0.lock();
        let mut now = watched.known();
        if now.remove(&*name.name).is_some() {
            watched.change(now);
        }
    }

    fn list_ends(&self, _: &WatchSource, _: &str) {
        let mut watched = self.0.lock();
        watched.is_listing = false;
        let now = std::mem::take(&mut watched.listed);
        watched.change(now);
    }

    fn works(&self, _: &Arc<Kind>) {
        self.0.lock().sink.works();
    }

    fn trouble(&self, _: &Arc<Kind>, trouble: WatchError) {
        self.0.lock().sink.trouble(&trouble.message);
    }

    fn forbidden(&self, _: &Arc<Kind>, problem: &WatchError) -> Option<Duration> {
        self.0.lock().sink.forbidden(&problem.message)
    }

    fn unreadable(&self, source: &WatchSource, name: Option<&Name>, problem: &str) {
        tracing::warn!(kind = %source.kind, problem, "an object cannot be parsed and is skipped; what was known of it stays");
        let watched = &mut *self.0.lock();
        let known = name.zip(watched.known.as_ref());
        if let Some((name, object)) = known.and_then(|(name, known)| known.get_key_value(&*name.name)) {
            watched.listed.insert(name.clone(), object.clone());
        }
    }

    fn panicked(&self, kind: &Arc<Kind>, panic: &str) {
        tracing::error!(%kind, panic, "the watch panicked; this is a bug of the host: report it; the kind is listed again");
    }
}
