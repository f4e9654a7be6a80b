//! Applies the events of each watch: first to the shared state, which queues the affected primaries, then to lanes that
//! open by them, and to reports.

use std::sync::Arc;

use pilothouse_cluster::cache::store::WatchSource;
use pilothouse_cluster::error::WatchError;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::watch::reflector::Sink;
use pilothouse_core::{Kind, Name};

use crate::context::HostContext;

impl Sink for HostContext {
    fn list_begins(&self, source: &WatchSource) {
        self.state.list_begins(source);
    }

    fn observed(&self, source: &WatchSource, object: CachedObject) {
        if let Some((object, lanes)) = self.state.observed(source, object) {
            self.too_deep.seen(&source.kind, &object, &lanes);
        }
    }

    fn deleted(&self, source: &WatchSource, name: &Name) {
        self.state.deleted(source, name);
    }

    fn list_ends(&self, source: &WatchSource, version: &str) {
        self.state.list_ends(source, version);
        self.settle_lanes_of(&source.kind);
    }

    fn works(&self, kind: &Arc<Kind>) {
        self.kinds.record_watch_recovery(kind);
    }

    fn heard(&self) {
        self.contact.heard();
    }

    fn trouble(&self, kind: &Arc<Kind>, trouble: WatchError) {
        if self.kinds.record_watch_failure(kind, &trouble) {
            self.settle_lanes_of(kind);
        }
    }

    fn unreadable(&self, source: &WatchSource, name: Option<&Name>, problem: &str) {
        tracing::warn!(kind = %source.kind, problem, "an object cannot be parsed and is skipped; its cached state stays");
        if let Some(name) = name {
            self.state.unreadable(source, name);
        }
    }

    fn panicked(&self, kind: &Arc<Kind>, panic: &str) {
        self.count_internal_error();
        tracing::error!(%kind, panic, "the watch panicked; this is a bug of the host: report it; the kind is listed again");
    }
}
