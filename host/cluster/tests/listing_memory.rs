//! Measures the memory of a list while it is received, in a process of its own: a kind of large objects of which almost
//! nothing is kept.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::alloc::System;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use cap::Cap;
use futures::stream;
use http_body_util::StreamBody;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use pilothouse_cluster::cache::codec::ObjectCodec;
use pilothouse_cluster::cache::store::{IndexValues, Store, WatchSource};
use pilothouse_cluster::discovery::{Discovery, ServedKind};
use pilothouse_cluster::error::WatchError;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::watch::reflector::{Detail, Reflector, Sink};
use pilothouse_core::answer::KindFacts;
use pilothouse_core::kubernetes::path::{FieldPath, Projection};
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::{Kind, Name};
use tokio::sync::Notify;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const MIB: usize = 1024 * 1024;

/// Objects of a MiB each.
const OBJECTS: usize = 300;

/// The most that the list may take beside the store.
const MOST: usize = 64 * MIB;

/// A part of an object's text; it is there once.
static PART: [u8; 64 * 1024] = [b'x'; 64 * 1024];

#[derive(Default)]
struct Cache {
    store: Mutex<Store>,
    done: Notify,
}

impl Sink for Cache {
    fn list_begins(&self, source: &WatchSource) {
        self.store.lock().begin_list(source);
    }

    fn observed(&self, source: &WatchSource, object: CachedObject) {
        self.store.lock().upsert(source, object, &IndexValues::default());
    }

    fn deleted(&self, _: &WatchSource, _: &Name) {}

    fn list_ends(&self, source: &WatchSource, _: &str) {
        self.store.lock().end_list(source);
        self.done.notify_one();
    }

    fn works(&self, _: &Arc<Kind>) {}

    fn trouble(&self, _: &Arc<Kind>, trouble: WatchError) {
        panic!("{}", trouble.message);
    }

    fn unreadable(&self, _: &WatchSource, _: Option<&Name>, problem: &str) {
        panic!("{problem}");
    }

    fn panicked(&self, _: &Arc<Kind>, panic: &str) {
        panic!("{panic}");
    }
}

fn number(query: &str, name: &str) -> Option<usize> {
    let value = query.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    value?.parse().ok()
}

/// A page of the list, made while it is read.
fn page(query: &str) -> impl Iterator<Item = Bytes> + use<> {
    let from = number(query, "continue").unwrap_or(0);
    let to = OBJECTS.min(from + number(query, "limit").unwrap());
    let next = if to < OBJECTS { to.to_string() } else { String::new() };
    let begin = format!(r#"{{"metadata":{{"resourceVersion":"1","continue":"{next}"}},"items":["#);
    let object = move |index: usize| {
        let comma = if index == from { "" } else { "," };
        let head = format!(
            r#"{comma}{{"metadata":{{"name":"o{index:03}","namespace":"a","uid":"{index}","resourceVersion":"1"}},"size":1,"data":""#
        );
        let parts = (0..MIB / PART.len()).map(|_| Bytes::from_static(&PART));
        std::iter::once(Bytes::from(head))
            .chain(parts)
            .chain([Bytes::from_static(b"\"}")])
    };
    std::iter::once(Bytes::from(begin))
        .chain((from..to).flat_map(object))
        .chain([Bytes::from_static(b"]}")])
}

#[tokio::test]
async fn a_kind_of_large_objects_is_listed_in_little_memory() {
    let peak = Arc::new(AtomicUsize::new(0));
    let noted = peak.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let noted = noted.clone();
        async move {
            if query.contains("watch=true") {
                std::future::pending::<()>().await;
            }
            let frames = page(&query).map(move |bytes| {
                noted.fetch_max(ALLOCATOR.allocated(), Ordering::Relaxed);
                Ok::<_, Infallible>(http_body::Frame::data(bytes))
            });
            Ok::<_, Infallible>(http::Response::new(StreamBody::new(stream::iter(frames))))
        }
    });
    let client = Client::new(service, "default");
    let kind = Arc::new(Kind::new("", "v1", "Large"));
    let size = Projection::new([&FieldPath::parse(".size").unwrap()]);
    let codec = Arc::new(ObjectCodec::new(kind.clone(), size));
    let cache = Arc::new(Cache::default());
    let source = cache.store.lock().open(codec.clone(), Reach::all(), true).remove(0);
    let before = ALLOCATOR.allocated();
    let watch = Reflector {
        discovery: Arc::new(Discovery::new(client.clone())),
        client,
        served: ServedKind {
            short_names: Vec::new(),
            kind: kind.clone(),
            plural: "larges".to_owned(),
            facts: KindFacts {
                namespaced: true,
                has_status: false,
            },
        },
        source,
        detail: Detail::Whole,
        codec,
        sink: cache.clone(),
        metrics: pilothouse_metrics::WatchMetrics::default(),
    };
    let following = tokio::spawn(watch.follow());
    cache.done.notified().await;
    following.abort();
    assert_eq!(cache.store.lock().len(&kind), OBJECTS);
    let took = peak.load(Ordering::Relaxed).saturating_sub(before);
    println!(
        "{OBJECTS} objects of 1 MiB were listed within {} MiB",
        took.div_ceil(MIB)
    );
    assert!(took < MOST, "{took} bytes");
}
