//! Owns how cached objects are read again, when lanes come or go: copied out of the cache, read without the host's lock, and
//! put in place of what has not changed meanwhile.

use std::sync::Arc;

use pilothouse_cluster::codec::ObjectCodec;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Kind;

use crate::hub::Hub;
use crate::lane::Lane;

/// Has the cache know of each object that it holds what a lane asks for without reading the object.
pub fn learn_facts(hub: &Hub, lane: &Lane) {
    for (kind, _) in lane.kinds() {
        let codec = hub.state.read().store.codec(&kind);
        if let Some(codec) = codec {
            learn_facts_of(hub, lane, &codec);
        }
    }
}

/// The same for one kind.
pub fn learn_facts_of(hub: &Hub, lane: &Lane, codec: &ObjectCodec) {
    let kind = codec.kind();
    codec.ask(&lane.fact_keys(kind));
    let objects = hub.state.read().store.without_facts(kind);
    replace(hub, kind, objects, |object| codec.with_facts(object));
}

/// Trims what is cached of a kind to what its codec shows.
pub fn trim(hub: &Hub, codec: &ObjectCodec) {
    let kind = codec.kind();
    let objects = hub.state.write().store.untrimmed(kind);
    replace(hub, kind, objects, |object| codec.again(object));
}

fn replace(hub: &Hub, kind: &Kind, objects: Vec<Arc<CachedObject>>, read: impl Fn(&CachedObject) -> CachedObject) {
    if objects.is_empty() {
        return;
    }
    let objects = objects.into_iter().map(|old| {
        let new = read(&old);
        (old, new)
    });
    let objects = objects.collect();
    hub.state.write().store.replace(kind, objects);
}
