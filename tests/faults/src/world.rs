//! Shared state of one run's hosts and adversaries: the progress of the run, the faults still to come, and the fault of
//! each request. `wire` carries requests, `crew` has the hosts, and `somebody` acts as other users.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::Request;
use http_body_util::Full;
use pilothouse_simulator::{Fault as Injected, Rule, Simulator};
use pilothouse_testkit::requests::TEST_ACCOUNT;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::schedule::{Fault, Moment, Schedule, Strike};
use crate::somebody::{Errand, Errands};
use crate::target::Target;

/// A host of the run, by its number.
pub type Member = usize;

/// After so many writes hosts are taken not to come to rest at all: the longest story makes some hundreds.
const STORM: usize = 2_000;

/// Command to the hosts.
#[derive(Debug)]
pub enum Command {
    /// Another host is started after so long.
    Start(Duration),
    /// A host has died; another one is started after so long.
    Died(Member, Duration),
    /// A host ends in order after so long.
    End(Member, Duration),
}

/// Faults of one request.
#[derive(Debug, Default)]
pub struct Treatment {
    pub before: Duration,
    pub after: Duration,
    pub fate: Fate,
    /// Late writes that are carried out before it.
    pub late: Vec<Request<Full<Bytes>>>,
    /// Errands of other users once it is carried out.
    pub errands: Vec<Errand>,
}

/// Fate of the host that makes a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Fate {
    #[default]
    Lives,
    Dies {
        moment: Moment,
        again: Duration,
    },
    /// Dies, and the write is carried out when its successor has made so many requests.
    DiesEarly {
        requests: usize,
        again: Duration,
    },
    Stops {
        moment: Moment,
        lasts: Duration,
        replaced: bool,
    },
}

/// A write whose process has died before it was carried out.
struct Late {
    died: Member,
    /// Requests of the successor that are still to come before.
    requests: usize,
    request: Request<Full<Bytes>>,
}

struct Inner {
    strikes: Vec<Strike>,
    writes: usize,
    requests: usize,
    late: Vec<Late>,
    rng: Rng,
    latency: u64,
    /// Faults are over.
    is_over: bool,
}

/// Shared state of a run's hosts and adversaries.
pub struct World {
    pub simulator: Simulator,
    pub errands: Errands,
    /// Start of the hosts' wall clocks, in milliseconds since 1970.
    pub epoch: u64,
    commands: mpsc::UnboundedSender<Command>,
    inner: std::sync::Mutex<Inner>,
    /// Milliseconds that the hosts' wall clocks are ahead.
    skew: Arc<AtomicI64>,
    begun: Instant,
    launched: AtomicUsize,
    calls: AtomicUsize,
    storm: Notify,
    /// A mutating webhook changes what the hosts write.
    pub is_rewritten: bool,
}

impl World {
    pub fn new(
        simulator: Simulator,
        schedule: &Schedule,
        errands: Errands,
        epoch: u64,
        commands: mpsc::UnboundedSender<Command>,
    ) -> Arc<Self> {
        let inner = Inner {
            strikes: schedule.strikes.clone(),
            writes: 0,
            requests: 0,
            late: Vec::new(),
            rng: Rng::with_seed(schedule.seed ^ 0x01A7_E4C1),
            latency: 0,
            is_over: false,
        };
        Arc::new(Self {
            simulator,
            errands,
            epoch,
            commands,
            inner: inner.into(),
            skew: Arc::default(),
            begun: Instant::now(),
            launched: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            storm: Notify::new(),
            is_rewritten: schedule
                .strikes
                .iter()
                .any(|it| matches!(it.fault, Fault::Rewritten { .. })),
        })
    }

    /// Milliseconds that the hosts' wall clocks are ahead.
    pub fn skew(&self) -> Arc<AtomicI64> {
        self.skew.clone()
    }

    /// Start of the run.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// The number of the host that is started now.
    pub fn launch(&self) -> Member {
        self.launched.fetch_add(1, Ordering::SeqCst)
    }

    /// Waits until the hosts have written so often that nothing will come of it.
    pub async fn storm(&self) {
        self.storm.notified().await;
    }

    /// Count of started hosts.
    pub fn launched(&self) -> usize {
        self.launched.load(Ordering::SeqCst)
    }

    /// Returns the duration of a guest's call, and counts the call.
    pub fn call(&self) -> Duration {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.lag()
    }

    /// Count of guest calls.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns the delay of a watch event, or of another piece of work.
    pub fn lag(&self) -> Duration {
        let mut inner = self.inner.lock().expect("no panic while it is held");
        inner.lag()
    }

    /// Those of the faults that never began.
    pub fn unstruck(&self) -> Vec<usize> {
        let inner = self.inner.lock().expect("no panic while it is held");
        inner.strikes.iter().map(|strike| strike.number).collect()
    }

    pub fn command(&self, command: Command) {
        // Nobody follows commands any more once the run is over.
        let _ = self.commands.send(command);
    }

    /// A host has died with a write on its way.
    pub fn leave(&self, died: Member, requests: usize, request: Request<Full<Bytes>>) {
        let mut inner = self.inner.lock().expect("no panic while it is held");
        inner.late.push(Late {
            died,
            requests,
            request,
        });
    }

    /// From now on nothing goes wrong; returns the writes that are still under way.
    pub fn end_faults(&self) -> Vec<Request<Full<Bytes>>> {
        let mut inner = self.inner.lock().expect("no panic while it is held");
        inner.is_over = true;
        inner.latency = 0;
        inner.strikes.clear();
        self.simulator.faults().clear();
        std::mem::take(&mut inner.late)
            .into_iter()
            .map(|late| late.request)
            .collect()
    }

    /// Returns the faults of the next request of a host.
    pub fn treat(&self, member: Member, target: &Target) -> Treatment {
        let mut inner = self.inner.lock().expect("no panic while it is held");
        let mut treatment = Treatment::default();
        inner.requests += 1;
        let (due, waiting) = std::mem::take(&mut inner.late)
            .into_iter()
            .partition(|late| late.died < member && late.requests == 0);
        inner.late = waiting;
        let due: Vec<Late> = due;
        treatment.late = due.into_iter().map(|late| late.request).collect();
        for late in &mut inner.late {
            if late.died < member {
                late.requests -= 1;
            }
        }
        if target.is_write() {
            let number = inner.writes;
            inner.writes += 1;
            if inner.writes == STORM {
                self.storm.notify_one();
            }
            let (due, waiting) = std::mem::take(&mut inner.strikes)
                .into_iter()
                .partition(|strike| strike.at <= number);
            inner.strikes = waiting;
            let due: Vec<Strike> = due;
            for strike in due {
                if let Some(again) = self.strike(&mut inner, member, target, strike, &mut treatment) {
                    inner.strikes.push(again);
                }
            }
        }
        treatment.before = inner.lag();
        treatment.after = inner.lag();
        treatment
    }

    /// Lets a fault begin; gives it back where it needs another write.
    #[expect(clippy::too_many_lines, reason = "an arm for each fault")]
    fn strike(
        &self,
        inner: &mut Inner,
        member: Member,
        target: &Target,
        strike: Strike,
        treatment: &mut Treatment,
    ) -> Option<Strike> {
        let seconds = Duration::from_secs;
        let is_taken = treatment.fate != Fate::Lives;
        match strike.fault {
            Fault::LostResponses { times } => self.inject(Rule::new(Injected::LoseResponse).times(times)),
            Fault::Refused { times } => self.inject(Rule::new(Injected::Refuse).times(times)),
            Fault::Failing {
                code,
                retry_after,
                times,
            } => self.inject(Rule::new(Injected::Status { code, retry_after }).times(times)),
            Fault::Conflicts { times } => {
                let conflict = Injected::Status {
                    code: 409,
                    retry_after: None,
                };
                // Of a create it would say that the object exists.
                let updates = Rule::new(conflict).writes().when(|asked| asked.verb != "create");
                self.inject(updates.times(times));
            }
            Fault::Slow { seconds: slow, times } => {
                self.inject(Rule::new(Injected::Delay(seconds(slow))).times(times));
            }
            Fault::Latency { milliseconds } => inner.latency = milliseconds,
            Fault::Gone { times } => {
                self.inject(Rule::new(Injected::GoneOnWatch).times(times));
                self.simulator.cut_every_watch();
            }
            Fault::Cut { after, times } => {
                self.inject(Rule::new(Injected::CutWatch { after }).times(times));
                self.simulator.cut_every_watch();
            }
            Fault::Silent { times } => {
                self.inject(Rule::new(Injected::SilentWatch).times(times));
                self.simulator.cut_every_watch();
            }
            Fault::Stale { changes, times } => {
                self.inject(Rule::new(Injected::Stale { changes }).times(times));
                self.simulator.cut_every_watch();
            }
            Fault::Compacted { pages } => {
                self.inject(Rule::new(Injected::GoneInList).times(2));
                self.inject(Rule::new(Injected::ShortPages { objects: pages }).times(20));
                self.simulator.compact();
                self.simulator.cut_every_watch();
            }
            Fault::Killed { .. } | Fault::LateWrite { .. } | Fault::Stopped { .. } if is_taken => {
                return Some(strike);
            }
            Fault::Killed { moment, again } => {
                treatment.fate = Fate::Dies {
                    moment,
                    again: seconds(again),
                }
            }
            Fault::LateWrite { requests, again } => {
                treatment.fate = Fate::DiesEarly {
                    requests,
                    again: seconds(again),
                }
            }
            Fault::Stopped {
                moment,
                seconds: lasts,
                replaced,
            } => {
                treatment.fate = Fate::Stops {
                    moment,
                    lasts: seconds(lasts),
                    replaced,
                }
            }
            Fault::Upgraded { overlap } => {
                self.command(Command::Start(Duration::ZERO));
                self.command(Command::End(member, seconds(overlap)));
            }
            // It is one from the beginning.
            Fault::Crowd { .. } => {}
            Fault::Clock { seconds } => {
                self.skew.fetch_add(seconds * 1000, Ordering::SeqCst);
            }
            Fault::Nested { .. } | Fault::Trapping { .. } | Fault::RetryAfter { .. } => {
                treatment.errands.push(Errand {
                    target: target.clone(),
                    fault: strike.fault,
                });
            }
            Fault::Deleted
            | Fault::Recreated { .. }
            | Fault::Marked { .. }
            | Fault::Forged { .. }
            | Fault::Rewritten { .. }
            | Fault::Impersonated
            | Fault::Intruded => {
                if !self.errands.suits(target) {
                    return Some(strike);
                }
                treatment.errands.push(Errand {
                    target: target.clone(),
                    fault: strike.fault,
                });
            }
        }
        None
    }

    /// Injects a rule, into hosts only.
    fn inject(&self, rule: Rule) {
        let faults = self.simulator.faults();
        faults.add(rule.when(|asked| asked.user_agent != TEST_ACCOUNT));
    }
}

impl Inner {
    fn lag(&mut self) -> Duration {
        match self.latency {
            0 => Duration::ZERO,
            most => Duration::from_millis(self.rng.u64(0..=most)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_what_a_request_is_about() {
        let target = |uri: &str| Target::of(&Request::patch(uri).body(()).unwrap());
        let status = target("/apis/apps/v1/namespaces/a/deployments/web/status?fieldManager=x");
        assert_eq!(
            (&*status.group, &*status.plural, &*status.namespace),
            ("apps", "deployments", "a")
        );
        assert_eq!((&*status.name, &*status.subresource), ("web", "status"));
        let namespace = target("/api/v1/namespaces/a");
        assert_eq!(
            (&*namespace.plural, &*namespace.name, &*namespace.namespace),
            ("namespaces", "a", "")
        );
        assert!(!target("/api/v1/namespaces/a/configmaps/b?dryRun=All").is_write());
    }
}
