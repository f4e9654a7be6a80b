//! Connection of one host to the cluster: it holds requests, responses and watch events while the host is stopped,
//! loses them when it is dead, and delays them as the schedule says. `world` chooses the fault of each request.
//!
//! A stopped host is cut off at this edge: nothing goes out and nothing comes in, but its timers run on. What a process that
//! was continued finds is the same: time has passed, and everything arrives at once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use pilothouse_simulator::{ResponseBody, TransportError};
use tokio::sync::watch;
use tower::ServiceExt as _;

use crate::names::HOST_AGENT;
use crate::schedule::Moment;
use crate::target::Target;
use crate::world::{Command, Fate, Member, World};

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// State of a host's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    Runs,
    Stopped,
    Dead,
}

/// Control by which a host is stopped, continued and killed.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<Running>>);

impl Gate {
    pub fn open() -> Self {
        Self(Arc::new(watch::Sender::new(Running::Runs)))
    }

    pub fn set(&self, running: Running) {
        self.0.send_if_modified(|now| {
            // Nothing brings a dead one back.
            let changes = *now != running && *now != Running::Dead;
            if changes {
                *now = running;
            }
            changes
        });
    }

    pub fn get(&self) -> Running {
        *self.0.borrow()
    }

    /// Waits until the host runs: for ever, if it is dead.
    async fn pass(&self) {
        let mut seen = self.0.subscribe();
        // The sender is this value's own.
        let _ = seen.wait_for(|now| *now == Running::Runs).await;
    }
}

/// The connection of one host.
#[derive(Clone)]
pub struct Wire {
    pub world: Arc<World>,
    pub member: Member,
    pub gate: Gate,
}

impl Wire {
    async fn carry(self, request: Request<kube::client::Body>) -> Result<Response<Carried>, TransportError> {
        self.gate.pass().await;
        let request = self.read(request).await?;
        let target = Target::of(&request);
        let treatment = self.world.treat(self.member, &target);
        for late in treatment.late {
            self.commit(late).await.ok();
        }
        tokio::time::sleep(treatment.before).await;
        self.gate.pass().await;
        match treatment.fate {
            Fate::Lives => {}
            Fate::Dies { moment, again } => {
                if moment == Moment::After {
                    self.commit(request).await.ok();
                }
                return self.die(again).await;
            }
            Fate::DiesEarly { requests, again } => {
                self.world.leave(self.member, requests, request);
                return self.die(again).await;
            }
            Fate::Stops {
                moment,
                lasts,
                replaced,
            } => {
                let late = (moment == Moment::Before).then_some(request.clone());
                let answer = match late {
                    None => Some(self.commit(request.clone()).await),
                    Some(_) => None,
                };
                self.stop(lasts, replaced);
                self.gate.pass().await;
                let answer = match answer {
                    Some(answer) => answer,
                    None => self.commit(request).await,
                };
                return answer.map(|response| self.respond(response));
            }
        }
        let answer = self.commit(request).await;
        for errand in treatment.errands {
            self.world.errands.run(errand);
        }
        tokio::time::sleep(treatment.after).await;
        self.gate.pass().await;
        answer.map(|response| self.respond(response))
    }

    async fn read(&self, request: Request<kube::client::Body>) -> Result<Request<Full<Bytes>>, TransportError> {
        let (mut parts, body) = request.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|error| TransportError::Body(error.to_string()))?;
        let name = format!("{HOST_AGENT}{}", self.member);
        if let Ok(name) = name.parse() {
            parts.headers.insert(http::header::USER_AGENT, name);
        }
        Ok(Request::from_parts(parts, Full::new(body.to_bytes())))
    }

    /// Has the server carry it out. Once it is there, it does not matter what becomes of who has sent it.
    async fn commit(&self, request: Request<Full<Bytes>>) -> Result<Response<ResponseBody>, TransportError> {
        let service = self.world.simulator.service();
        let done = tokio::spawn(service.oneshot(request)).await;
        done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    fn respond(&self, response: Response<ResponseBody>) -> Response<Carried> {
        response.map(|body| Carried {
            inner: body,
            wire: self.clone(),
            held: None,
            wait: None,
        })
    }

    async fn die<T>(&self, again: Duration) -> T {
        self.gate.set(Running::Dead);
        self.world.command(Command::Died(self.member, again));
        std::future::pending().await
    }

    fn stop(&self, lasts: Duration, replaced: bool) {
        self.gate.set(Running::Stopped);
        if replaced {
            self.world.command(Command::Start(Duration::ZERO));
            self.world.command(Command::End(self.member, lasts * 2));
        }
        let gate = self.gate.clone();
        tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            gate.set(Running::Runs);
        });
    }
}

impl tower::Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Carried>;
    type Error = TransportError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.clone().carry(request))
    }
}

/// The body of a response on its way.
pub struct Carried {
    inner: ResponseBody,
    wire: Wire,
    /// Frame that has left the server and has not arrived.
    held: Option<Frame<Bytes>>,
    /// Delay until which nothing arrives.
    wait: Option<Boxed>,
}

impl Body for Carried {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if let Some(wait) = &mut self.wait {
                std::task::ready!(wait.as_mut().poll(context));
                self.wait = None;
            }
            if self.wire.gate.get() != Running::Runs {
                let gate = self.wire.gate.clone();
                self.wait = Some(Box::pin(async move { gate.pass().await }));
                continue;
            }
            if let Some(frame) = self.held.take() {
                return Poll::Ready(Some(Ok(frame)));
            }
            match std::task::ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                None => return Poll::Ready(None),
                Some(Err(never)) => match never {},
                Some(Ok(frame)) => {
                    let lag = self.wire.world.lag();
                    if lag.is_zero() {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    self.held = Some(frame);
                    self.wait = Some(Box::pin(tokio::time::sleep(lag)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
