//! Owns the fence before the API server: no request that changes anything is sent by a replica that does not lead.
//!
//! It stands below everything else in the host, so that a mistake above it cannot make two replicas write at once. Whether
//! a replica leads is decided in host/runtime.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Whether this process may change anything. Clones are the same fence.
#[derive(Clone, Debug, Default)]
pub struct WriteFence(Arc<Mutex<Passage>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Passage {
    /// There is no election: who runs may write.
    #[default]
    Open,
    /// The replica leads until then, and abandons requests that are not answered by the second time.
    Until(Instant, Instant),
    /// Another replica leads, or none.
    Closed,
}

/// A request was not sent, or its answer was not waited for, because the replica does not lead.
#[derive(Debug, thiserror::Error)]
#[error("this replica does not lead, so it changes nothing")]
pub struct NotLeading;

impl WriteFence {
    /// A fence that nothing passes before it is opened.
    pub fn closed() -> Self {
        Self(Arc::new(Mutex::new(Passage::Closed)))
    }

    /// Lets requests pass that begin before a time, and waits for their answers until another. Others may take the Lease
    /// from the latter on.
    pub fn open_until(&self, begin: Instant, answered: Instant) {
        *self.0.lock() = Passage::Until(begin, answered);
    }

    /// Lets nothing pass any more.
    pub fn close(&self) {
        *self.0.lock() = Passage::Closed;
    }

    /// Whether a request that is sent now passes, and until when its answer is waited for, if that is limited.
    fn pass(&self) -> Result<Option<Instant>, NotLeading> {
        match *self.0.lock() {
            Passage::Open => Ok(None),
            Passage::Until(begin, answered) if Instant::now() < begin => Ok(Some(answered)),
            Passage::Until(..) | Passage::Closed => Err(NotLeading),
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
            self.fence.pass()
        };
        match passage {
            Ok(None) => {
                let answer = self.inner.call(request);
                Box::pin(async move { answer.await.map_err(Into::into) })
            }
            Ok(Some(answered)) => {
                let answer = self.inner.call(request);
                // The connection may not even be made yet: what is dropped before it is sent is never sent.
                Box::pin(async move {
                    let answer = tokio::time::timeout_at(answered, answer).await;
                    answer.map_err(|_| NotLeading)?.map_err(Into::into)
                })
            }
            Err(refused) => Box::pin(async move { Err(refused.into()) }),
        }
    }
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
