//! Handle of a simulated cluster, and its API server as a service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::Value;

use crate::controllers;
use crate::exchange::Exchange;
use crate::faults::Faults;
use crate::inner::{Inner, TransportError};
use crate::journal::Entry;
use crate::kinds::Storage;
use crate::log::RequestLog;
use crate::options::Options;
use crate::rights::Rights;
use crate::state::State;
use crate::stream::ResponseBody;

/// A simulated cluster. Clones are handles to the same one.
#[derive(Debug, Clone)]
pub struct Simulator {
    inner: Arc<Inner>,
}

impl Simulator {
    /// A cluster with nothing in it but the first namespaces.
    pub fn new(options: Options) -> Self {
        let seed = options.seed;
        let mut state = State::new(options);
        controllers::settle(&mut state);
        let inner = Inner {
            state: Mutex::new(state),
            log: RequestLog::default(),
            faults: Faults::new(seed),
            rights: Rights::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The API server as a service, without sockets. Its futures and bodies need a tokio runtime with time.
    pub fn service(&self) -> ApiService {
        ApiService {
            inner: self.inner.clone(),
        }
    }

    /// Every request so far, and those to come.
    pub fn requests(&self) -> RequestLog {
        self.inner.log.clone()
    }

    /// Returns the injected faults.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// Returns the rights of all users.
    pub fn rights(&self) -> &Rights {
        &self.inner.rights
    }

    /// The cluster's time.
    pub fn now(&self) -> SystemTime {
        self.inner.now()
    }

    /// The newest resource version.
    pub fn revision(&self) -> u64 {
        self.inner.revision()
    }

    /// Forgets the past, as etcd's compaction does: watches from before now and lists in the middle of their pages get 410.
    pub fn compact(&self) {
        self.inner.state.lock().store.compact();
    }

    /// Ends every open watch of a resource.
    pub fn cut_watches(&self, group: &str, plural: &str) {
        let storage = Storage::new(group, plural);
        self.inner.state.lock().store.close_watches(&storage);
    }

    /// Keeps a journal of all changes from now on.
    pub fn keep_journal(&self) {
        self.inner.state.lock().store.journal.keep();
    }

    /// All changes since [`Self::keep_journal`], oldest first.
    pub fn journal(&self) -> Vec<Entry> {
        self.inner.state.lock().store.journal.entries().to_vec()
    }

    /// Ends every open watch.
    pub fn cut_every_watch(&self) {
        self.inner.state.lock().store.close_every_watch();
    }

    /// One stored object, as it is stored.
    pub fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.inner.state.lock().get(group, plural, namespace, name).cloned()
    }

    /// Every stored object, with its defaults and in a fixed order, as a test compares end states.
    pub fn objects(&self) -> Vec<Value> {
        self.objects_of(|_, _| true)
    }

    /// The same of some, by the plural of the resource and the object as it is stored.
    pub fn objects_of(&self, is_wanted: impl Fn(&str, &Value) -> bool) -> Vec<Value> {
        let state = self.inner.state.lock();
        let custom: Vec<_> = state.kinds.all().filter(|resource| resource.custom.is_some()).collect();
        let shown = |storage: &Storage, object: &Value| {
            let mut object = object.clone();
            let resource = custom.iter().find(|resource| resource.storage == *storage);
            if let Some(custom) = resource.and_then(|resource| resource.custom.as_ref()) {
                custom.default_stored(&mut object);
            }
            object
        };
        let mut objects: Vec<(String, String, Value)> = state
            .store
            .all()
            .filter(|(storage, object)| is_wanted(&storage.plural, object))
            .map(|(storage, object)| (storage.group.clone(), storage.plural.clone(), shown(storage, object)))
            .collect();
        let name = |object: &Value| {
            let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
            (text("namespace"), text("name"))
        };
        objects.sort_by_key(|(group, plural, object)| (group.clone(), plural.clone(), name(object)));
        objects.into_iter().map(|(_, _, object)| object).collect()
    }
}

/// The API server as a [`tower::Service`], usable for `kube::Client::new`.
#[derive(Clone)]
pub struct ApiService {
    inner: Arc<Inner>,
}

impl fmt::Debug for ApiService {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ApiService").finish_non_exhaustive()
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    type Response = Response<ResponseBody>;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let collected = body
                .collect()
                .await
                .map_err(|fault| TransportError::Body(fault.to_string()))?;
            Exchange::new(inner, parts, collected.to_bytes()).run().await
        })
    }
}
