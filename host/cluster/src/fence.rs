//! The fence before the API server: a replica sends no changing request unless it is the leader or, where the work is
//! divided, holds the shard of the changed object.
//!
//! The fence is below everything else in the host, so that a bug above it cannot make two replicas write at once.
//! host/runtime decides whether a replica leads, and which shards it holds.
//!
//! The fence also tracks requests that were begun and never answered. They may take effect late, so the Lease by which
//! they passed must not be released at once ([`WriteFence::is_settled`]).

mod unanswered;

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::Either;
use parking_lot::Mutex;
use pilothouse_core::replicas::lease::LeaseTimes;
pub use pilothouse_core::replicas::member::Passage;
use pilothouse_core::replicas::shards::{Division, Divisions, HashRanges, hash_of};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};

use self::unanswered::{AnswerBody, InFlight, Unanswered, classified, is_definite};

/// The fence of this process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct WriteFence(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<FenceState>,
    /// Notified when a request has ended, answered or not.
    ended: Notify,
}

#[derive(Debug, Default)]
struct FenceState {
    /// The gate for undivided work; for all work, if it is not divided.
    leader: Gate,
    /// The gates for divided work; none if nothing is divided.
    divided: Option<DividedGates>,
    /// Set if nothing passes any more, whatever Leases the replica has.
    is_stopped: bool,
    unanswered: Unanswered,
}

#[derive(Debug, Default)]
struct DividedGates {
    /// The gate of each shard that this replica holds.
    shards: HashMap<usize, (HashRanges, Gate)>,
    /// The division of each controller; no replica writes for a controller that is missing here.
    divisions: Arc<Divisions>,
    /// The deadline until which the divisions are valid.
    known_until: Option<Instant>,
}

/// The time for which a renewed Lease lets requests pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerm {
    /// Deadline for beginning requests.
    pub begin: Instant,
    /// Deadline for responses. Requests without one are abandoned then. Others may take the Lease some time later.
    pub answered: Instant,
    /// The duration of the Lease.
    pub duration: Duration,
}

impl LeaseTerm {
    /// The term of a Lease whose renewal was sent then.
    pub fn new(sent: Instant, times: LeaseTimes) -> Self {
        let LeaseTimes {
            duration,
            renew_deadline,
            retry_period: _,
        } = times;
        Self {
            begin: sent + renew_deadline,
            answered: sent + (renew_deadline + duration) / 2,
            duration,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gate {
    /// No election: any process may write.
    #[default]
    Open,
    /// The replica holds the Lease.
    Until(LeaseTerm),
    /// Another replica holds the Lease, or none does.
    Closed,
}

impl Gate {
    /// Decides whether a request that is sent now passes. Returns the term, if it is limited.
    fn pass(self) -> Result<Option<LeaseTerm>, NotLeading> {
        match self {
            Self::Open => Ok(None),
            Self::Until(term) if Instant::now() < term.begin => Ok(Some(term)),
            Self::Until(_) | Self::Closed => Err(NotLeading::Refused),
        }
    }
}

/// The pass of a request.
#[derive(Clone, Copy, Debug)]
struct Pass {
    term: LeaseTerm,
    /// The Lease that it needs; none if the request is the same from every sender.
    passage: Option<Passage>,
}

/// The request was not sent, or its response not awaited: the replica is not the leader, or lacks the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLeading {
    /// The request was not sent.
    #[error("this replica does not lead, or does not hold the shard of the object, so it does not change it")]
    Refused,
    /// The request was sent, and may take effect.
    #[error("the API server gave no answer while this replica was sure to lead, or to hold the shard of the object")]
    Unanswered,
}

/// The scope of a request, as declared by its sender. A request without a scope is the leader's.
#[derive(Clone, Debug)]
pub(crate) enum WriteScope {
    /// An object of a controller (`plugin/controller`) in a namespace, or a cluster-scoped one.
    Object(Arc<str>, Option<Arc<str>>),
    /// An object that is the same from every writer, such as an event, whose name follows from its content.
    Anywhere,
}

impl WriteFence {
    fn new(leader: Gate, divided: Option<DividedGates>) -> Self {
        let state = FenceState {
            leader,
            divided,
            ..FenceState::default()
        };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            ended: Notify::new(),
        }))
    }

    /// A fence that is closed until it is opened.
    pub fn closed() -> Self {
        Self::new(Gate::Closed, None)
    }

    /// The same, where each shard has a passage of its own.
    pub fn divided() -> Self {
        Self::new(Gate::Closed, Some(DividedGates::default()))
    }

    /// Lets the leader's requests pass for as long as the Lease allows.
    pub fn open_until(&self, term: LeaseTerm) {
        self.0.state.lock().leader = Gate::Until(term);
    }

    /// Closes the leader's gate.
    pub fn close(&self) {
        self.0.state.lock().leader = Gate::Closed;
    }

    /// The same as [`Self::open_until`] for the objects of a shard.
    pub fn open_shard_until(&self, shard: usize, ranges: HashRanges, term: LeaseTerm) {
        let state = &mut *self.0.state.lock();
        let divided = state.divided.get_or_insert_default();
        divided.shards.insert(shard, (ranges, Gate::Until(term)));
    }

    /// Sets the divisions of the work, and the deadline until which they are valid.
    pub fn set_divisions(&self, divisions: Arc<Divisions>, known_until: Option<Instant>) {
        let state = &mut *self.0.state.lock();
        let divided = state.divided.get_or_insert_default();
        divided.divisions = divisions;
        divided.known_until = known_until;
    }

    /// Closes the gate of a shard.
    pub fn close_shard(&self, shard: usize) {
        if let Some(divided) = &mut self.0.state.lock().divided {
            divided.shards.remove(&shard);
        }
    }

    /// Stops all requests, whatever Leases the replica has, as soon as none is in flight.
    pub async fn stop_when_idle(&self) {
        self.until(|state| {
            state.is_stopped |= state.unanswered.is_idle();
            state.is_stopped
        })
        .await;
    }

    /// Stops all requests, whatever Leases the replica has, and waits for the responses to those in flight.
    pub async fn stop(&self) {
        self.until(|state| {
            state.is_stopped = true;
            state.unanswered.is_idle()
        })
        .await;
    }

    /// Waits for the responses to requests in flight in a passage. Ends only if no more requests begin.
    pub async fn answered(&self, passage: Passage) {
        self.until(|state| !state.unanswered.is_in_flight(passage)).await;
    }

    /// Reports whether no request that passed by a Lease can take effect any more: each was answered, or has been
    /// abandoned for the duration of the Lease.
    pub fn is_settled(&self, passage: Passage) -> bool {
        !self.0.state.lock().unanswered.unsettled().any(|(by, _)| by == passage)
    }

    /// The Leases of requests that may still take effect, and the time at which each was begun.
    pub fn unsettled(&self) -> Vec<(Passage, Instant)> {
        self.0.state.lock().unanswered.unsettled().collect()
    }

    async fn until(&self, mut holds: impl FnMut(&mut FenceState) -> bool) {
        loop {
            let ended = self.0.ended.notified();
            if holds(&mut self.0.state.lock()) {
                return;
            }
            ended.await;
        }
    }

    /// Begins a request, if it still passes.
    fn begin(&self, scope: Option<&WriteScope>) -> Result<Option<BegunRequest>, NotLeading> {
        let state = &mut *self.0.state.lock();
        let Some(Pass { term, passage }) = state.pass(scope)? else {
            return Ok(None);
        };
        let request = |passage| InFlight {
            passage,
            begun: Instant::now(),
            duration: term.duration,
        };
        Ok(Some(BegunRequest {
            fence: self.clone(),
            number: passage.map(|passage| state.unanswered.begin(request(passage))),
            answered: term.answered,
        }))
    }
}

impl FenceState {
    /// Decides whether a request that is sent now passes. Returns its pass, if it is limited.
    fn pass(&self, scope: Option<&WriteScope>) -> Result<Option<Pass>, NotLeading> {
        let Self {
            leader,
            divided,
            is_stopped,
            unanswered: _,
        } = self;
        if *is_stopped {
            return Err(NotLeading::Refused);
        }
        let by = |gate: &Gate, passage: Option<Passage>| Ok(gate.pass()?.map(|term| Pass { term, passage }));
        let as_leader = || by(leader, Some(Passage::Leader));
        let (Some(scope), Some(divided)) = (scope, divided) else {
            return match scope {
                Some(WriteScope::Anywhere) => by(leader, None),
                _ => as_leader(),
            };
        };
        let DividedGates {
            shards,
            divisions,
            known_until,
        } = divided;
        let is_known = known_until.is_some_and(|until| Instant::now() < until);
        match scope {
            WriteScope::Object(..) if !is_known => Err(NotLeading::Refused),
            WriteScope::Object(controller, namespace) => match (divisions.get(&**controller), namespace) {
                (Some(Division::Namespaces), Some(namespace)) => {
                    let hash = hash_of(namespace);
                    let held = shards.iter().find(|(_, (ranges, _))| ranges.contains(hash));
                    let (shard, (_, gate)) = held.ok_or(NotLeading::Refused)?;
                    by(gate, Some(Passage::Shard(*shard)))
                }
                (Some(_), _) => as_leader(),
                (None, _) => Err(NotLeading::Refused),
            },
            WriteScope::Anywhere => {
                let mut gates = std::iter::once(leader).chain(shards.values().map(|(_, gate)| gate));
                gates.find_map(|gate| by(gate, None).ok()).ok_or(NotLeading::Refused)
            }
        }
    }
}

/// A request that has passed. Dropping it before the response abandons the request.
struct BegunRequest {
    fence: WriteFence,
    /// Its number; none if it is not tracked.
    number: Option<u64>,
    answered: Instant,
}

impl BegunRequest {
    /// Records the response.
    fn ends<R>(&self, answer: &Result<Response<R>, BoxError>) {
        if let Some(number) = self.number
            && is_definite(answer)
        {
            self.fence.0.state.lock().unanswered.answer(number);
        }
    }
}

impl Drop for BegunRequest {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.fence.0.state.lock().unanswered.abandon(number);
            self.fence.0.ended.notify_waiters();
        }
    }
}

/// Marks the requests that acquire and renew leadership, and the report of the last replica that nobody leads any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfenced;

/// API groups whose reviews change nothing, whatever their method. A custom resource may be called a review, too.
const REVIEW_GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Reports whether a request changes nothing, or may be sent by any replica.
fn is_harmless<B>(request: &Request<B>) -> bool {
    let is_review = || {
        let mut parts = request.uri().path().trim_start_matches('/').split('/');
        let is_of_group =
            parts.next() == Some("apis") && parts.next().is_some_and(|group| REVIEW_GROUPS.contains(&group));
        let resource = parts.next_back().unwrap_or_default();
        *request.method() == Method::POST && is_of_group && resource.ends_with("reviews")
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

impl<S, B, R> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>, Response = Response<R>, Error: Into<BoxError>, Future: Send + 'static>,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<AnswerBody<R>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if is_harmless(&request) {
            let answer = self.inner.call(request);
            return Box::pin(async move { answer.await.map(|answer| answer.map(Either::Left)).map_err(Into::into) });
        }
        let scope = request.extensions().get::<WriteScope>().cloned();
        if let Err(refused) = self.fence.0.state.lock().pass(scope.as_ref()) {
            return Box::pin(async move { Err(refused.into()) });
        }
        let (fence, answer) = (self.fence.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = async move { classified(answer.await.map_err(Into::into)?).await };
            // Nothing is sent before this is awaited, and the fence may have closed since.
            let Some(begun) = fence.begin(scope.as_ref())? else {
                return answer.await;
            };
            let answer = before(begun.answered, answer).await;
            begun.ends(&answer);
            answer
        })
    }
}

/// Awaits a response until a deadline. The connection may not even be established yet: a request dropped before it is
/// sent is never sent. So the deadline is checked each time before the request proceeds: a process that was suspended
/// sees the connection and the deadline at once.
async fn before<R>(answered: Instant, answer: impl Future<Output = Result<R, BoxError>>) -> Result<R, BoxError> {
    let (mut answer, mut late) = (pin!(answer), pin!(sleep_until(answered)));
    let answer = poll_fn(|context| {
        if Instant::now() >= answered || late.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        answer.as_mut().poll(context).map(Some)
    });
    answer.await.ok_or(NotLeading::Unanswered)?
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    type Nothing = http_body_util::Empty<Bytes>;

    fn request(method: &Method, path: &str) -> Request<()> {
        Request::builder().method(method).uri(path).body(()).unwrap()
    }

    /// A Lease of 20 s.
    fn term(begin: Instant, answered: Instant) -> LeaseTerm {
        LeaseTerm {
            begin,
            answered,
            duration: Duration::from_secs(20),
        }
    }

    fn patch() -> Request<()> {
        request(&Method::PATCH, "/api/v1/namespaces/a/configmaps/b")
    }

    /// Reports whether a request gets a response from a server that takes this long.
    async fn passes(fence: &WriteFence, request: Request<()>, takes: Duration) -> bool {
        let server = tower::service_fn(move |_: Request<()>| async move {
            tokio::time::sleep(takes).await;
            Ok::<_, BoxError>(Response::new(Nothing::new()))
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
        let local = "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews";
        assert!(passes(&fence, request(&Method::POST, local), soon).await);
        for custom in [
            "/apis/shop.example/v1/namespaces/a/bookreviews",
            "/apis/authorization.k8s.io.example/v1/subjectaccessreviews",
            "/api/v1/namespaces/authorization.k8s.io/reviews",
        ] {
            assert!(!passes(&fence, request(&Method::POST, custom), soon).await, "{custom}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn divided_replica_changes_objects_of_its_shards_only() {
        use pilothouse_core::replicas::shards::HashRange;

        let soon = Duration::from_millis(1);
        let patch = |scope: &Option<WriteScope>| {
            let mut request = patch();
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
        let begin = now + Duration::from_secs(10);
        let lease = term(begin, now + Duration::from_secs(14));
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
        fence.open_shard_until(3, shard, lease);
        assert_eq!(may(&fence).await, [false, true, false, false, false, false, false]);
        fence.set_divisions(Arc::new(divisions), Some(begin));
        assert_eq!(may(&fence).await, [false, true, true, false, false, false, false]);
        fence.open_until(lease);
        assert_eq!(may(&fence).await, [true, true, true, false, true, true, false]);
        fence.close_shard(3);
        assert_eq!(may(&fence).await, [true, true, false, false, true, true, false]);
        sleep_until(begin).await;
        assert_eq!(may(&fence).await, [false; 7]);
    }

    /// Like after SIGSTOP and SIGCONT: the process sees the established connection and the ended Lease at once.
    #[tokio::test(start_paused = true)]
    async fn request_waiting_for_connection_is_not_sent_after_deadline() {
        let fence = WriteFence::closed();
        let now = Instant::now();
        fence.open_until(term(now + Duration::from_secs(10), now + Duration::from_secs(12)));
        let (connected, is_sent) = (Arc::new(Notify::new()), Arc::new(Mutex::new(false)));
        let (waits_for, sends) = (connected.clone(), is_sent.clone());
        let server = tower::service_fn(move |_: Request<()>| {
            let (waits_for, sends) = (waits_for.clone(), sends.clone());
            async move {
                waits_for.notified().await;
                *sends.lock() = true;
                Ok::<_, BoxError>(Response::new(Nothing::new()))
            }
        });
        let mut service = fence.layer(server);
        let answer = tokio::spawn(service.call(patch()));
        tokio::task::yield_now().await;
        connected.notify_one();
        tokio::time::advance(Duration::from_mins(1)).await;
        let refused = answer.await.unwrap().unwrap_err();
        assert!(refused.is::<NotLeading>(), "{refused}");
        assert!(!*is_sent.lock());
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_by_itself() {
        let soon = Duration::from_millis(1);
        let fence = WriteFence::closed();
        let (begin, answered) = (Duration::from_secs(10), Duration::from_secs(14));
        let now = Instant::now();
        fence.open_until(term(now + begin, now + answered));
        assert!(passes(&fence, patch(), soon).await);
        assert!(passes(&fence, patch(), Duration::from_secs(9)).await);
        // 9 s have passed. What the server does not answer in time is abandoned.
        assert!(!passes(&fence, patch(), Duration::from_mins(1)).await);
        assert_eq!(Instant::now(), now + answered);
        assert!(!passes(&fence, patch(), soon).await);
        fence.open_until(term(Instant::now() + begin, Instant::now() + answered));
        assert!(passes(&fence, patch(), soon).await);
        fence.close();
        assert!(!passes(&fence, patch(), soon).await);
    }
    /// Sends a request to a server that answers with this status, or breaks the connection if there is none.
    async fn sends(fence: &WriteFence, request: Request<()>, status: Option<u16>) {
        let server = tower::service_fn(move |_: Request<()>| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let status = status.ok_or("the connection broke")?;
            Response::builder()
                .status(status)
                .body(Nothing::new())
                .map_err(BoxError::from)
        });
        let _ = fence.layer(server).oneshot(request).await;
    }

    fn leading() -> WriteFence {
        let fence = WriteFence::closed();
        let now = Instant::now();
        fence.open_until(term(now + Duration::from_mins(10), now + Duration::from_mins(11)));
        fence
    }

    #[tokio::test(start_paused = true)]
    async fn passage_is_settled_when_answered_or_after_lease_duration() {
        let fence = leading();
        for status in [200, 409, 429] {
            sends(&fence, patch(), Some(status)).await;
            assert!(fence.is_settled(Passage::Leader), "{status} is an answer");
        }
        for unclear in [Some(500), Some(502), Some(503), Some(504), None] {
            sends(&fence, patch(), unclear).await;
            assert!(!fence.is_settled(Passage::Leader), "{unclear:?}");
            // What comes later does not change that, nor do requests of others count.
            tokio::time::sleep(Duration::from_secs(15)).await;
            sends(&fence, patch(), Some(200)).await;
            assert!(!fence.is_settled(Passage::Leader), "{unclear:?}");
            assert!(fence.is_settled(Passage::Shard(0)));
            tokio::time::sleep(Duration::from_secs(4)).await;
            assert!(fence.is_settled(Passage::Leader), "{unclear:?}: 20 s later");
        }
        // Reads and reviews change nothing.
        sends(&fence, request(&Method::GET, "/api/v1/pods"), None).await;
        assert!(fence.is_settled(Passage::Leader));
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_request_may_take_effect_while_a_lease_lasts() {
        let fence = leading();
        let begun = Instant::now();
        let never = |fence: &WriteFence| {
            let server =
                tower::service_fn(|_: Request<()>| std::future::pending::<Result<Response<Nothing>, BoxError>>());
            fence.layer(server).oneshot(patch())
        };
        // One that was never polled was never sent.
        drop(never(&fence));
        assert!(fence.is_settled(Passage::Leader));
        let waited = tokio::time::timeout(Duration::from_secs(3), never(&fence)).await;
        assert!(waited.is_err());
        assert!(!fence.is_settled(Passage::Leader), "the sender has not waited");
        assert_eq!(fence.unsettled(), [(Passage::Leader, begun)]);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(fence.is_settled(Passage::Leader));

        let now = Instant::now();
        fence.open_until(term(now + Duration::from_secs(10), now + Duration::from_secs(12)));
        let late = never(&fence).await.unwrap_err();
        assert_eq!(late.downcast_ref(), Some(&NotLeading::Unanswered));
        assert_eq!(Instant::now(), now + Duration::from_secs(12));
        // Leadership that is lost and won again is the same passage.
        fence.close();
        fence.open_until(term(now + Duration::from_mins(1), now + Duration::from_mins(1)));
        tokio::time::sleep(Duration::from_secs(19)).await;
        assert!(!fence.is_settled(Passage::Leader), "the fence has not waited");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(fence.is_settled(Passage::Leader));
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_work_belongs_to_the_passage_under_which_it_began() {
        let fence = WriteFence::divided();
        let now = Instant::now();
        let lease = term(now + Duration::from_mins(1), now + Duration::from_mins(1));
        let divide = |division| {
            let divisions = Divisions::from([("it".to_owned(), division)]);
            fence.set_divisions(Arc::new(divisions), Some(lease.begin));
        };
        divide(Division::Namespaces);
        fence.open_until(lease);
        fence.open_shard_until(
            3,
            [pilothouse_core::replicas::shards::HashRange::ALL]
                .into_iter()
                .collect(),
            lease,
        );
        let write = |scope| {
            let mut request = patch();
            request.extensions_mut().insert(scope);
            sends(&fence, request, None)
        };
        let settled =
            || [Passage::Leader, Passage::Shard(3), Passage::Shard(4)].map(|passage| fence.is_settled(passage));
        write(WriteScope::Anywhere).await;
        assert_eq!(settled(), [true; 3], "it is the same whoever writes it");
        let object = || WriteScope::Object("it".into(), Some("a".into()));
        write(object()).await;
        assert_eq!(settled(), [true, false, true]);
        divide(Division::Leader);
        fence.close_shard(3);
        assert_eq!(settled(), [true, false, true], "however the work is divided now");
        write(object()).await;
        assert_eq!(settled(), [false, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_stops_when_nothing_is_in_flight() {
        let fence = leading();
        let soon = Duration::from_millis(1);
        let stops = async {
            let idle = tokio::time::timeout(Duration::from_secs(1), fence.stop_when_idle());
            assert!(idle.await.is_err(), "something is in flight");
            assert!(passes(&fence, patch(), soon).await);
            fence.stop_when_idle().await;
            assert!(!passes(&fence, patch(), soon).await);
        };
        let (is_answered, ()) = tokio::join!(passes(&fence, patch(), Duration::from_secs(4)), stops);
        assert!(is_answered);
        let now = Instant::now();
        fence.open_until(term(now + Duration::from_secs(10), now + Duration::from_secs(12)));
        assert!(
            !passes(&fence, patch(), Duration::from_millis(1)).await,
            "it has stopped"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn request_not_begun_when_fence_closes_is_not_sent() {
        let fence = leading();
        let is_sent = Arc::new(Mutex::new(false));
        let sends = is_sent.clone();
        let mut service = fence.layer(tower::service_fn(move |_: Request<()>| {
            let sends = sends.clone();
            async move {
                *sends.lock() = true;
                Ok::<_, BoxError>(Response::new(Nothing::new()))
            }
        }));
        let answer = service.call(patch());
        fence.close();
        assert_eq!(answer.await.unwrap_err().downcast_ref(), Some(&NotLeading::Refused));
        assert!(!*is_sent.lock());
    }

    /// Time is not paused, because a connection is really tried.
    #[tokio::test]
    async fn a_request_for_which_no_connection_was_made_is_settled() {
        use hyper_util::client::legacy::Client;
        use hyper_util::rt::TokioExecutor;

        // Nobody listens there any more.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let client = Client::builder(TokioExecutor::new()).build_http::<Nothing>();
        let request = Request::patch(format!("http://{address}/api/v1/namespaces/a/configmaps/b"));
        let fence = leading();
        let answer = fence.layer(client).oneshot(request.body(Nothing::new()).unwrap());
        assert!(answer.await.is_err());
        assert!(fence.is_settled(Passage::Leader));
    }
}
