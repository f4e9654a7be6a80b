//! Watches of the demo on the cluster.

use std::time::Instant;

use futures::StreamExt as _;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::kind::Kind;
use crate::scene::{Change, News};

/// The objects of a kind, in all namespaces.
pub fn api(client: &Client, kind: Kind) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind.resource())
}

/// The objects of a kind in one namespace; in none for a kind of the cluster's scope.
pub fn api_in(client: &Client, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
        None => api(client, kind),
    }
}

/// Sends every change of a kind's objects, with the time of its arrival, until the receiver is dropped.
pub fn follow(
    client: &Client,
    kind: Kind,
    started: Instant,
    changes: mpsc::UnboundedSender<Change>,
) -> impl Future<Output = ()> + Send + 'static {
    let events = watcher(api(client, kind), watcher::Config::default()).default_backoff();
    async move {
        tokio::pin!(events);
        let mut list = Vec::new();
        while let Some(event) = events.next().await {
            let news = match event {
                Ok(Event::Init) => {
                    list.clear();
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    list.push(plain(&object));
                    continue;
                }
                Ok(Event::InitDone) => News::Listed(std::mem::take(&mut list)),
                Ok(Event::Apply(object)) => News::Applied(plain(&object)),
                Ok(Event::Delete(object)) => News::Deleted(plain(&object)),
                // The watch begins anew by itself; whoever waits says so when it takes too long.
                Err(error) => News::Broken(error.to_string()),
            };
            let at = started.elapsed();
            if changes.send(Change { at, kind, news }).is_err() {
                return;
            }
        }
    }
}

/// An object as JSON.
pub fn plain(object: &DynamicObject) -> Value {
    serde_json::to_value(object).expect("it came as JSON, so its keys are text")
}
