//! Target `watch`: responses of an API server to a list and to watches, through the real watch into the real store. The
//! input is the responses in turn, with lines `---` between them; when they are used up, the server fails.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
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

use crate::cluster::{chunks, client, runtime};
use crate::refused;

/// Virtual time for which the watch is followed: until the server has been silent for some time.
const FOLLOWED: Duration = Duration::from_mins(2);

const RESOURCES: &str = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"x.dev/v1","resources":[
    {"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["list","watch"]},
    {"name":"things/status","singularName":"","namespaced":true,"kind":"Thing","verbs":["get","patch"]}]}"#;

struct Seen(Mutex<Store>);

impl Sink for Seen {
    fn list_begins(&self, source: &WatchSource) {
        self.0.lock().begin_list(source);
    }

    fn observed(&self, source: &WatchSource, object: CachedObject) {
        read(&object);
        self.0.lock().upsert(source, object, &IndexValues::default());
    }

    fn deleted(&self, source: &WatchSource, name: &Name) {
        self.0.lock().remove(source, name);
    }

    fn list_ends(&self, source: &WatchSource, _: &str) {
        self.0.lock().end_list(source);
    }

    fn works(&self, _: &Arc<Kind>) {}

    fn trouble(&self, _: &Arc<Kind>, trouble: WatchError) {
        refused(&trouble.message, "");
    }

    fn unreadable(&self, source: &WatchSource, name: Option<&Name>, problem: &str) {
        refused(&problem, "Thing");
        if let Some(name) = name {
            self.0.lock().keep(source, name);
        }
    }

    fn panicked(&self, _: &Arc<Kind>, panic: &str) {
        panic!("{panic}");
    }
}

/// All that the host reads of an object.
fn read(object: &CachedObject) {
    let value = object.value();
    assert!(value.is_object(), "an object that is kept is an object");
    for of_status in [false, true] {
        if let Some(entry) = object.entry("pilothouse/p", of_status) {
            let fields = entry.field_set();
            let desired = value.as_object().cloned().unwrap_or_default();
            let _ = fields.surplus(&desired);
            let _ = fields.is_within(&value);
            for reading in [
                pilothouse_core::kubernetes::fields::LeafSemantics::AsApplied,
                pilothouse_core::kubernetes::fields::LeafSemantics::By(
                    &pilothouse_core::kubernetes::types::Types::default(),
                ),
            ] {
                let _ = fields.missing(&desired, reading);
            }
        }
    }
    assert!(object.has_text_of(&object.clone()));
}

pub(super) fn run(data: &[u8]) {
    let Some((form, data)) = data.split_first() else { return };
    let spec = FieldPath::parse(".spec").expect("it is a path");
    let projection = match form % 3 {
        0 => Projection::whole(),
        1 => Projection::new([&spec]),
        _ => Projection::default(),
    };
    let runtime = runtime();
    let _entered = runtime.enter();
    let answers: Arc<Mutex<VecDeque<Bytes>>> = Arc::new(Mutex::new(chunks(data).into()));
    let client = client(move |asked| {
        if asked.starts_with("/apis/x.dev/v1/things") || asked.starts_with("/apis/x.dev/v1/namespaces") {
            let next = answers.lock().pop_front();
            return next.map_or_else(|| (500, Bytes::new()), |next| (200, next));
        }
        (200, Bytes::from_static(RESOURCES.as_bytes()))
    });
    let kind = Arc::new(Kind::new("x.dev", "v1", "Thing"));
    let codec = Arc::new(ObjectCodec::new(kind.clone(), projection));
    let sink = Arc::new(Seen(Mutex::default()));
    let sources = sink.0.lock().open(codec.clone(), Reach::all(), true);
    let source = sources.into_iter().next().expect("all objects are one source");
    let watch = Reflector {
        discovery: Arc::new(Discovery::new(client.clone())),
        client,
        served: ServedKind {
            short_names: Vec::new(),
            kind: kind.clone(),
            plural: "things".to_owned(),
            facts: KindFacts {
                namespaced: true,
                has_status: true,
            },
        },
        source,
        detail: Detail::Whole,
        codec: codec.clone(),
        sink: sink.clone(),
        metrics: pilothouse_metrics::WatchMetrics::default(),
    };
    runtime.block_on(async {
        let _ = tokio::time::timeout(FOLLOWED, watch.follow()).await;
    });
    let store = sink.0.lock();
    for object in store.iter(&kind, None) {
        read(object);
        read(&codec.again(object));
    }
}
