//! Owns the fence before the API server: no request that changes anything is sent by a replica that does not lead, or, where
//! the work is divided, that does not hold the shard of what it would change.
//!
//! It stands below everything else in the host, so that a mistake above it cannot make two replicas write at once. Whether
//! a replica leads, and which shards it holds, is decided in host/runtime.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request};
use parking_lot::Mutex;
use pilothouse_core::shards::{Division, Divisions, HashRanges, hash_of};
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};

/// Whether this process may change anything. Clones are the same fence.
#[derive(Clone, Debug, Default)]
pub struct WriteFence(Arc<Mutex<Passages>>);

#[derive(Debug, Default)]
struct Passages {
    /// For what exists once; for everything, if the work is not divided.
    leader: Passage,
    /// For what is divided; none if nothing is.
    divided: Option<DividedPassages>,
}

#[derive(Debug, Default)]
struct DividedPassages {
    /// For each shard that this replica holds.
    shards: HashMap<usize, (HashRanges, Passage)>,
    /// How the work of each controller is divided; nobody writes for one that is not in here.
    divisions: Arc<Divisions>,
    /// Until when that is known.
    known_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Passage {
    /// There is no election: who runs may write.
    #[default]
    Open,
    /// The replica holds the Lease until then, and abandons requests that are not answered by the second time.
    Until(Instant, Instant),
    /// Another replica holds the Lease, or none does.
    Closed,
}

impl Passage {
    /// Whether a request that is sent now passes, and until when its answer is waited for, if that is limited.
    fn pass(self) -> Result<Option<Instant>, NotLeading> {
        match self {
            Self::Open => Ok(None),
            Self::Until(begin, answered) if Instant::now() < begin => Ok(Some(answered)),
            Self::Until(..) | Self::Closed => Err(NotLeading),
        }
    }
}

/// A request was not sent, or its answer was not waited for, because the replica does not lead, or does not hold the shard.
#[derive(Debug, thiserror::Error)]
#[error("this replica does not lead, or does not hold the shard of the object, so it does not change it")]
pub struct NotLeading;

/// What a request changes, as its sender says. A request that does not say it is for the leader.
#[derive(Clone, Debug)]
pub(crate) enum WriteScope {
    /// An object of a controller (`plugin/controller`) in a namespace, or a cluster-scoped one.
    Object(Arc<str>, Option<Arc<str>>),
    /// Something that is the same whoever writes it, such as an event, whose name follows from what it says.
    Anywhere,
}

impl WriteFence {
    /// A fence that nothing passes before it is opened.
    pub fn closed() -> Self {
        Self(Arc::new(Mutex::new(Passages {
            leader: Passage::Closed,
            divided: None,
        })))
    }

    /// The same where each shard has a passage of its own.
    pub fn divided() -> Self {
        Self(Arc::new(Mutex::new(Passages {
            leader: Passage::Closed,
            divided: Some(DividedPassages::default()),
        })))
    }

    /// Lets the leader's requests pass that begin before a time, and waits for their answers until another. Others may take
    /// the Lease from the latter on.
    pub fn open_until(&self, begin: Instant, answered: Instant) {
        self.0.lock().leader = Passage::Until(begin, answered);
    }

    /// Lets nothing of the leader's pass any more.
    pub fn close(&self) {
        self.0.lock().leader = Passage::Closed;
    }

    /// The same as [`Self::open_until`] for what is in a shard.
    pub fn open_shard_until(&self, shard: usize, ranges: HashRanges, begin: Instant, answered: Instant) {
        let passages = &mut *self.0.lock();
        let divided = passages.divided.get_or_insert_default();
        divided.shards.insert(shard, (ranges, Passage::Until(begin, answered)));
    }

    /// From here on the work is divided so, as far as this replica knows until then.
    pub fn set_divisions(&self, divisions: Arc<Divisions>, known_until: Option<Instant>) {
        let passages = &mut *self.0.lock();
        let divided = passages.divided.get_or_insert_default();
        divided.divisions = divisions;
        divided.known_until = known_until;
    }

    /// Lets nothing of a shard pass any more.
    pub fn close_shard(&self, shard: usize) {
        if let Some(divided) = &mut self.0.lock().divided {
            divided.shards.remove(&shard);
        }
    }

    /// Whether a request that is sent now passes, and until when its answer is waited for, if that is limited.
    fn pass(&self, scope: Option<&WriteScope>) -> Result<Option<Instant>, NotLeading> {
        let Passages { leader, divided } = &*self.0.lock();
        let (Some(scope), Some(divided)) = (scope, divided) else {
            return leader.pass();
        };
        let DividedPassages {
            shards,
            divisions,
            known_until,
        } = divided;
        let is_known = known_until.is_some_and(|until| Instant::now() < until);
        match scope {
            WriteScope::Object(..) if !is_known => Err(NotLeading),
            WriteScope::Object(controller, namespace) => match (divisions.get(&**controller), namespace) {
                (Some(Division::Namespaces), Some(namespace)) => {
                    let hash = hash_of(namespace);
                    let passage = shards.values().find(|(ranges, _)| ranges.contains(hash));
                    passage.ok_or(NotLeading)?.1.pass()
                }
                (Some(_), _) => leader.pass(),
                (None, _) => Err(NotLeading),
            },
            WriteScope::Anywhere => {
                let mut passages = std::iter::once(leader).chain(shards.values().map(|(_, passage)| passage));
                passages.find_map(|passage| passage.pass().ok()).ok_or(NotLeading)
            }
        }
    }
}

/// Marks the requests by which leadership is won and kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfenced;

/// Whether a request changes nothing, or may be made by anybody. Reviews are questions, whatever their method.
fn is_harmless<B>(request: &Request<B>) -> bool {
    let is_review = || {
        let path = request.uri().path();
        let resource = path.rsplit('/').next().unwrap_or_default();
        *request.method() == Method::POST && resource.ends_with("reviews")
    };
    matches!(*request.method(), Method::GET | Method::HEAD)
        || request.extensions().get::<Unfenced>().is_some()
        || is_review()
}

impl<S> Layer<S> for WriteFence {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced {
            inner,
            fence: self.clone(),
        }
    }
}

/// A client behind a fence.
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    inner: S,
    fence: WriteFence,
}

impl<S, B> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>, Error: Into<BoxError>, Future: Send + 'static>,
    S::Response: 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let passage = if is_harmless(&request) {
            Ok(None)
        } else {
            self.fence.pass(request.extensions().get())
        };
        match passage {
            Ok(None) => {
                let answer = self.inner.call(request);
                Box::pin(async move { answer.await.map_err(Into::into) })
            }
            Ok(Some(answered)) => {
                let answer = self.inner.call(request);
                Box::pin(before(answered, async move { answer.await.map_err(Into::into) }))
            }
            Err(refused) => Box::pin(async move { Err(refused.into()) }),
        }
    }
}

/// Waits for an answer until a time. The connection may not even be made yet: what is dropped before it is sent is never sent.
/// So the time is looked at each time before the request may go on: a process that was stopped learns of the connection
/// and of the time at once.
async fn before<R>(answered: Instant, answer: impl Future<Output = Result<R, BoxError>>) -> Result<R, BoxError> {
    let (mut answer, mut late) = (pin!(answer), pin!(sleep_until(answered)));
    let answer = poll_fn(|context| {
        if Instant::now() >= answered || late.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        answer.as_mut().poll(context).map(Some)
    });
    answer.await.ok_or(NotLeading)?
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Response;
    use tower::ServiceExt as _;

    use super::*;

    fn request(method: &Method, path: &str) -> Request<()> {
        Request::builder().method(method).uri(path).body(()).unwrap()
    }

    /// Whether a request gets an answer from a server that takes so long.
    async fn passes(fence: &WriteFence, request: Request<()>, takes: Duration) -> bool {
        let server = tower::service_fn(move |_: Request<()>| async move {
            tokio::time::sleep(takes).await;
            Ok::<_, BoxError>(Response::new(()))
        });
        let answer = fence.layer(server).oneshot(request).await;
        match answer {
            Ok(_) => true,
            Err(error) => {
                assert!(error.is::<NotLeading>(), "{error}");
                false
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_lead_reads_and_changes_nothing() {
        const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
        let soon = Duration::from_millis(1);
        let fence = WriteFence::closed();
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(!passes(&fence, request(&method, LEASE), soon).await, "{method}");
            assert!(
                passes(&WriteFence::default(), request(&method, LEASE), soon).await,
                "{method}"
            );
            let mut marked = request(&method, LEASE);
            marked.extensions_mut().insert(Unfenced);
            assert!(passes(&fence, marked, soon).await, "{method}");
        }
        assert!(passes(&fence, request(&Method::GET, "/api/v1/pods?watch=1"), soon).await);
        let review = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        assert!(passes(&fence, request(&Method::POST, review), soon).await);
        assert!(!passes(&fence, request(&Method::DELETE, review), soon).await);
    }

    #[tokio::test(start_paused = true)]
    async fn where_the_work_is_divided_a_replica_changes_what_is_in_its_shards() {
        use pilothouse_core::shards::HashRange;

        let soon = Duration::from_millis(1);
        let patch = |scope: &Option<WriteScope>| {
            let mut request = request(&Method::PATCH, "/api/v1/namespaces/a/configmaps/b");
            if let Some(scope) = scope {
                request.extensions_mut().insert(scope.clone());
            }
            request
        };
        let of = |controller: &str, namespace: Option<&str>| {
            Some(WriteScope::Object(controller.into(), namespace.map(Arc::from)))
        };
        let divisions = Divisions::from([
            ("divided".to_owned(), Division::Namespaces),
            ("whole".to_owned(), Division::Leader),
        ]);
        let shard: HashRanges = HashRange::new(hash_of("a"), hash_of("a")).into_iter().collect();
        let now = Instant::now();
        let (begin, answered) = (now + Duration::from_secs(10), now + Duration::from_secs(14));
        let scopes = [
            None,
            Some(WriteScope::Anywhere),
            of("divided", Some("a")),
            of("divided", Some("b")),
            of("divided", None),
            of("whole", Some("a")),
            of("unknown", Some("a")),
        ];
        let may = async |fence: &WriteFence| {
            let mut may = Vec::new();
            for scope in &scopes {
                may.push(passes(fence, patch(scope), soon).await);
            }
            may
        };
        let fence = WriteFence::divided();
        assert_eq!(may(&fence).await, [false; 7]);
        fence.open_shard_until(3, shard, begin, answered);
        assert_eq!(may(&fence).await, [false, true, false, false, false, false, false]);
        fence.set_divisions(Arc::new(divisions), Some(begin));
        assert_eq!(may(&fence).await, [false, true, true, false, false, false, false]);
        fence.open_until(begin, answered);
        assert_eq!(may(&fence).await, [true, true, true, false, true, true, false]);
        fence.close_shard(3);
        assert_eq!(may(&fence).await, [true, true, false, false, true, true, false]);
        sleep_until(begin).await;
        assert_eq!(may(&fence).await, [false; 7]);
    }

    /// As after SIGSTOP and SIGCONT: the connection is made and the Lease has ended, and the process learns of both at once.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_a_connection_is_not_sent_when_its_time_is_over() {
        let fence = WriteFence::closed();
        let now = Instant::now();
        fence.open_until(now + Duration::from_secs(10), now + Duration::from_secs(12));
        let (connected, is_sent) = (Arc::new(tokio::sync::Notify::new()), Arc::new(Mutex::new(false)));
        let (waits_for, sends) = (connected.clone(), is_sent.clone());
        let server = tower::service_fn(move |_: Request<()>| {
            let (waits_for, sends) = (waits_for.clone(), sends.clone());
            async move {
                waits_for.notified().await;
                *sends.lock() = true;
                Ok::<_, BoxError>(Response::new(()))
            }
        });
        let mut service = fence.layer(server);
        let answer = tokio::spawn(service.call(request(&Method::PATCH, "/api/v1/namespaces/a/configmaps/b")));
        tokio::task::yield_now().await;
        connected.notify_one();
        tokio::time::advance(Duration::from_mins(1)).await;
        let refused = answer.await.unwrap().unwrap_err();
        assert!(refused.is::<NotLeading>(), "{refused}");
        assert!(!*is_sent.lock());
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_by_itself() {
        let patch = || request(&Method::PATCH, "/api/v1/namespaces/a/configmaps/b");
        let soon = Duration::from_millis(1);
        let fence = WriteFence::closed();
        let (begin, answered) = (Duration::from_secs(10), Duration::from_secs(14));
        let now = Instant::now();
        fence.open_until(now + begin, now + answered);
        assert!(passes(&fence, patch(), soon).await);
        assert!(passes(&fence, patch(), Duration::from_secs(9)).await);
        // 9 s have passed. What the server does not answer in time is abandoned.
        assert!(!passes(&fence, patch(), Duration::from_mins(1)).await);
        assert_eq!(Instant::now(), now + answered);
        assert!(!passes(&fence, patch(), soon).await);
        fence.open_until(Instant::now() + begin, Instant::now() + answered);
        assert!(passes(&fence, patch(), soon).await);
        fence.close();
        assert!(!passes(&fence, patch(), soon).await);
    }
}
