//! Owns the list and watch of one kind: kube's watcher, read into [`Stored`] objects and handed to a [`Sink`].

use std::sync::Arc;

use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use pilothouse_core::path::Projection;
use pilothouse_core::{Kind, Name};

use crate::discovery::Served;
use crate::error::chain;
use crate::object::{RawObject, Stored};

/// Who is told what a watch sees. Nothing here may block: a watch waits for its sink.
pub trait Sink: Send + Sync + 'static {
    /// A list of the kind begins.
    fn list_begins(&self, kind: &Arc<Kind>);
    /// An object was listed, added or modified.
    fn observed(&self, kind: &Arc<Kind>, object: Stored);
    /// An object was deleted; `last` is its last state.
    fn deleted(&self, kind: &Arc<Kind>, last: Stored);
    /// The list is complete.
    fn list_ends(&self, kind: &Arc<Kind>);
    /// The watch has trouble and goes on trying; called at each try.
    fn trouble(&self, kind: &Arc<Kind>, trouble: &str);
    /// An object cannot be read. What the cache had of it stays.
    fn unreadable(&self, kind: &Arc<Kind>, name: &Name, problem: &str);
}

/// Objects in a page of a list.
const PAGE: u32 = 500;

/// Lists and watches a kind until it is dropped. Errors go to the sink and are tried again with back-off.
pub async fn watch(client: Client, served: Served, projection: Arc<Projection>, sink: Arc<dyn Sink>) {
    let resource = served.api_resource();
    let kind = served.kind;
    let api: Api<RawObject> = Api::all_with(client, &resource);
    let config = watcher::Config::default().page_size(PAGE);
    let stream = watcher::watcher(api, config).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let read = |object: &RawObject| match Stored::read(object.text(), &kind, &projection) {
        Ok(object) => Some(object),
        Err(error) => {
            let meta = kube::Resource::meta(object);
            let name = Name::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default());
            sink.unreadable(&kind, &name, &chain(&error));
            None
        }
    };
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Init) => sink.list_begins(&kind),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                if let Some(object) = read(&object) {
                    sink.observed(&kind, object);
                }
            }
            Ok(Event::Delete(object)) => {
                if let Some(object) = read(&object) {
                    sink.deleted(&kind, object);
                }
            }
            Ok(Event::InitDone) => sink.list_ends(&kind),
            Err(error) => sink.trouble(&kind, &chain(&error)),
        }
    }
}
