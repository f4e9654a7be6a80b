//! Answers monitoring: `/metrics`, `/livez` and `/readyz`. The server has a thread of its own and reads the host's
//! state on another one, so that it also answers while the host is stuck.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use pilothouse_metrics::{CONTENT_TYPE, Metrics, StateFigures};
use pilothouse_webhook::plain::{PlainHandler, PlainResponse, PlainServer};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::election::lease_task::LoggedProblems;
use crate::host::Handle;
use crate::process::heartbeat::Heartbeat;
use crate::process::usage::process_figures;

/// Time for which an answer is repeated, so that frequent clients cost no more than one, and slow readers hold few
/// copies.
const FRESH: Duration = Duration::from_secs(1);

/// Time limit for reading the shared state. It is locked for microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Body of the root.
const INDEX: &str = "/metrics: metrics in the text format of Prometheus\n/livez: whether the main loop turns\n\
                     /readyz: whether the caches have synced and the plugins run\n";

/// Endpoints of a host.
pub struct Endpoints {
    version: &'static str,
    metrics: Metrics,
    heartbeat: Heartbeat,
    started: SystemTime,
    /// The host, once it is set.
    host: OnceLock<Handle>,
    was_ready: AtomicBool,
    figures: Flight<Bytes>,
    missing: Flight<Vec<String>>,
    logged: Mutex<LoggedProblems>,
}

/// A running server; it stops on drop.
#[derive(Debug)]
pub struct EndpointServer(PlainServer);

impl EndpointServer {
    /// Serves connections of a listener.
    pub fn start(listener: TcpListener, endpoints: Arc<Endpoints>) -> io::Result<Self> {
        PlainServer::start(listener, endpoints).map(Self)
    }

    /// Address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

impl Endpoints {
    /// Makes the endpoints of a host that is set later, with these metrics and this heartbeat.
    pub fn new(version: &'static str, metrics: Metrics, heartbeat: Heartbeat) -> Self {
        Self {
            version,
            metrics,
            heartbeat,
            started: SystemTime::now(),
            host: OnceLock::new(),
            was_ready: AtomicBool::new(false),
            figures: Flight::default(),
            missing: Flight::default(),
            logged: Mutex::default(),
        }
    }

    /// Sets the host.
    pub fn set_host(&self, host: Handle) {
        // There is one host in a process.
        let _ = self.host.set(host);
    }

    async fn print(&self) -> PlainResponse {
        let (version, metrics, heartbeat) = (self.version, self.metrics.clone(), self.heartbeat.clone());
        let started = self.started;
        let body = match self.host.get().cloned() {
            None => None,
            Some(host) => {
                let print = move || {
                    let figures = StateFigures {
                        version,
                        main_loop_age: heartbeat.age(),
                        process: process_figures(started),
                        ..host.figures()
                    };
                    Bytes::from(metrics.print(&figures))
                };
                self.figures.take_part(print).await
            }
        };
        // Nothing here waits for the host: a stuck host still reports for how long it has been so.
        let body = body.unwrap_or_else(|| {
            let figures = StateFigures {
                version,
                main_loop_age: self.heartbeat.age(),
                process: process_figures(started),
                ..StateFigures::default()
            };
            Bytes::from(self.metrics.print(&figures))
        });
        PlainResponse {
            code: 200,
            content_type: CONTENT_TYPE,
            body,
        }
    }

    async fn readiness(&self) -> Result<(), String> {
        if self.heartbeat.is_stopping() {
            return Err("the host is stopping".to_owned());
        }
        self.heartbeat.check().map_err(|error| error.to_string())?;
        let Some(host) = self.host.get().cloned().filter(|_| self.heartbeat.age().is_some()) else {
            return Err("the host is starting: it loads its plugins".to_owned());
        };
        if self.was_ready.load(Ordering::Relaxed) {
            return host.lost_readiness().map_or(Ok(()), Err);
        }
        self.log_held_back(&host);
        match self.missing.take_part(move || host.missing_for_readiness()).await {
            None => Err(format!("the host's state has been locked for {} s", PATIENCE.as_secs())),
            Some(missing) if missing.is_empty() => {
                self.was_ready.store(true, Ordering::Relaxed);
                Ok(())
            }
            Some(missing) => Err(missing.join("\n")),
        }
    }

    /// Logs why a rollout waits for this replica: kubelet's events do not show the answer.
    fn log_held_back(&self, host: &Handle) {
        for problem in host.held_back() {
            if self.logged.lock().take_due(&problem) {
                tracing::warn!(problem, "this replica is not ready, so a rollout waits");
            }
        }
    }
}

impl PlainHandler for Endpoints {
    async fn get(&self, path: &str) -> PlainResponse {
        match path {
            "/metrics" => self.print().await,
            "/livez" => answer(self.heartbeat.check().map_err(|error| error.to_string())),
            "/readyz" => answer(self.readiness().await),
            "/" => PlainResponse::text(200, INDEX),
            _ => PlainResponse::text(404, format!("there is nothing at this path; there are\n{INDEX}")),
        }
    }
}

fn answer(check: Result<(), String>) -> PlainResponse {
    match check {
        Ok(()) => PlainResponse::text(200, "ok\n"),
        Err(problem) => PlainResponse::text(503, format!("{problem}\n")),
    }
}

/// A computation that runs once for all concurrent callers, on a blocking thread.
struct Flight<T> {
    last: RwLock<Option<(Instant, T)>>,
    running: tokio::sync::Mutex<Option<JoinHandle<T>>>,
}

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self {
            last: RwLock::new(None),
            running: tokio::sync::Mutex::new(None),
        }
    }
}

impl<T: Clone + Send + 'static> Flight<T> {
    /// Returns the result; `None` if it is late. A stuck computation is not started again until it ends.
    async fn take_part(&self, ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let part = async {
            let mut running = self.running.lock().await;
            if let Some(answer) = self.fresh() {
                return Some(answer);
            }
            let question = running.get_or_insert_with(|| tokio::task::spawn_blocking(ask));
            let answered = question.await;
            *running = None;
            let answer = answered.ok()?;
            *self.last.write() = Some((Instant::now(), answer.clone()));
            Some(answer)
        };
        tokio::time::timeout(PATIENCE, part).await.ok().flatten()
    }

    fn fresh(&self) -> Option<T> {
        let last = self.last.read();
        let fresh = last.as_ref().filter(|(when, _)| when.elapsed() < FRESH);
        fresh.map(|(_, answer)| answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn endpoints(heartbeat: &Heartbeat) -> Endpoints {
        Endpoints::new("1.2.3", Metrics::default(), heartbeat.clone())
    }

    fn said(answer: PlainResponse) -> (u16, String) {
        (answer.code, String::from_utf8(answer.body.into()).unwrap())
    }

    #[tokio::test]
    async fn a_starting_host_is_live_not_ready_and_has_metrics() {
        let endpoints = endpoints(&Heartbeat::default());
        assert_eq!(said(endpoints.get("/livez").await), (200, "ok\n".to_owned()));
        let (code, problem) = said(endpoints.get("/readyz").await);
        assert!(code == 503 && problem.contains("starting"), "{problem}");
        let (code, metrics) = said(endpoints.get("/metrics").await);
        assert!(
            code == 200 && metrics.contains("pilothouse_build_info{version=\"1.2.3\"} 1\n"),
            "{metrics}"
        );
        assert!(!metrics.contains("main_loop_age"), "{metrics}");
        let resident = metrics
            .lines()
            .find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
        assert!(resident.is_some(), "{metrics}");
        assert_eq!(endpoints.get("/metrics/").await.code, 404);
    }

    #[tokio::test]
    async fn a_stuck_host_is_not_live_and_a_stopping_one_is() {
        let heartbeat = Heartbeat::with_longest_turn(Duration::ZERO);
        let endpoints = endpoints(&heartbeat);
        heartbeat.turn();
        while heartbeat.check().is_ok() {
            std::thread::yield_now();
        }
        for path in ["/livez", "/readyz"] {
            let (code, problem) = said(endpoints.get(path).await);
            assert!(
                code == 503 && problem.contains("has not turned for"),
                "{path}: {problem}"
            );
        }
        assert!(
            said(endpoints.get("/metrics").await)
                .1
                .contains("pilothouse_main_loop_age_seconds")
        );
        heartbeat.stop();
        assert_eq!(endpoints.get("/livez").await.code, 200);
        assert_eq!(
            said(endpoints.get("/readyz").await),
            (503, "the host is stopping\n".to_owned())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_stuck_is_asked_once_and_answered_later() {
        let flight = Flight::<u32>::default();
        let (answer, wait) = mpsc::channel();
        let stuck = move || wait.recv().unwrap();
        // Paused time goes on only while no thread works, so the test moves it.
        let (first, ()) = tokio::join!(flight.take_part(stuck), tokio::time::advance(PATIENCE * 2));
        assert_eq!(first, None);
        answer.send(7).unwrap();
        tokio::time::resume();
        assert_eq!(flight.take_part(|| unreachable!("it is asked already")).await, Some(7));
        assert_eq!(flight.take_part(|| unreachable!("the answer is fresh")).await, Some(7));
    }
}
