//! Owns the life of one plugin: it follows what is wanted, takes over version after version, watches over the one that
//! runs, and ends. How a version comes up to where it can take over is `bring`'s matter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::events::Recorder;
use pilothouse_cluster::write::Writer;
use pilothouse_core::backoff;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Fleet;
use super::bring::{Arrival, Loaded, Problem};
use super::finish::Own;
use super::looks::Hung;
use super::memory::Written;
use super::prepare::{Identity, in_place_of};
use super::source::{Found, News};
use super::standing::{Fact, Standing, Step};
use super::wanted::{Order, Source, Wanted};
use crate::lane::{Lane, calls_of_a_plugin};

/// How often it is looked whether the plugin is idle.
const SLEEP_LOOK: Duration = Duration::from_secs(10);

/// One plugin.
pub struct Life {
    /// What it shares with the others.
    pub fleet: Arc<Fleet>,
    /// What it has for all its versions.
    pub identity: Identity,
    /// What is known of it.
    pub standing: Arc<Standing>,
    /// Its resource, if it has one.
    pub own: Option<Own>,
    /// What was written to it to be remembered.
    pub written: Written,
}

/// The version that runs.
pub struct Running {
    /// What it was brought for.
    pub order: Arc<Order>,
    /// Where it came from.
    pub loaded: Loaded,
    /// The CRDs that it has to itself: their names, and the kinds for people. What else it said of itself is in its lanes.
    pub crds: BTreeMap<Arc<str>, Arc<str>>,
    /// Its lanes, which are in the hub.
    pub lanes: Vec<Arc<Lane>>,
}

impl Running {
    /// The lane of the same primaries as another version's.
    pub fn lane_for(&self, other: &Lane) -> Option<&Arc<Lane>> {
        let same = |lane: &&Arc<Lane>| lane.grants.primary().same_kind(other.grants.primary());
        self.lanes.iter().find(same)
    }
}

/// What is to be done next.
enum Next {
    TakeOver(Box<Arrival>),
    /// Nothing is to run for now; the way up goes on.
    Leave,
    /// What it remembers of earlier versions has changed.
    FollowMemory,
    /// It was stopped because its calls crash.
    Crashed(Duration, String),
    /// It has been stopped for long enough, or something else is wanted of it.
    TryAgain,
    /// Its resource is being deleted.
    Finish,
    /// It cannot be used, and nothing will change that.
    GiveUp,
}

/// A plugin that was stopped waits before it is tried again, unless something else is wanted of it.
struct Penalty {
    until: Instant,
    order: Arc<Order>,
    found: Option<Found>,
}

impl Life {
    /// A plugin of which nothing is known yet.
    pub fn new(fleet: Arc<Fleet>, name: Arc<str>, own: Option<Own>) -> Self {
        let client = &fleet.client;
        let identity = Identity {
            writer: Writer::new(client.clone(), Lane::manager_of(&name).into()),
            contributor: Writer::new(client.clone(), Lane::contributor_of(&name).into()),
            recorder: Arc::new(Recorder::new(client.clone(), &name, &fleet.options.instance)),
            account: Arc::default(),
            calls: calls_of_a_plugin(),
            name: name.clone(),
        };
        let standing = Arc::<Standing>::default();
        fleet.hub.plugins.enter(&name);
        fleet.roster.enter(name, standing.clone());
        Self {
            fleet,
            identity,
            standing,
            own,
            written: Written::default(),
        }
    }

    /// Follows the orders until there is none, or, where there will be no other, until it cannot be carried out. What
    /// happens seldom is on the heap while it does: there may be a thousand of these, and nearly all of them wait.
    pub async fn run(self, mut orders: watch::Receiver<Option<Arc<Order>>>) {
        let name = self.identity.name.clone();
        let mut running: Option<Running> = None;
        let mut penalty: Option<Penalty> = None;
        loop {
            let Some(order) = orders.borrow_and_update().clone() else {
                break;
            };
            let next = tokio::select! {
                biased;
                changed = orders.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => break,
                },
                next = self.watch_over(running.as_ref()) => next,
                next = self.advance(running.as_ref(), &order, penalty.as_ref()) => next,
            };
            match next {
                Next::TakeOver(arrival) => {
                    penalty = None;
                    running = Some(Box::pin(self.take_over(running.take(), *arrival)).await);
                }
                Next::Leave => Box::pin(self.leave(running.take())).await,
                Next::FollowMemory => {
                    if let Some(before) = running.take() {
                        running = Some(Box::pin(self.follow_memory(before)).await);
                    }
                }
                Next::Crashed(wait, why) => {
                    if let Some(running) = &running {
                        penalty = Some(Penalty {
                            until: Instant::now() + wait,
                            order: running.order.clone(),
                            found: running.loaded.found.clone(),
                        });
                    }
                    self.say_crashed(wait, &why);
                }
                Next::TryAgain => {
                    penalty = None;
                    self.go_on();
                    for lane in running.iter().flat_map(|running| &running.lanes) {
                        self.fleet.hub.push_all(lane);
                    }
                }
                Next::Finish => {
                    self.go_on();
                    Box::pin(self.finish(running.take(), &order)).await;
                    if orders.changed().await.is_err() {
                        break;
                    }
                }
                Next::GiveUp => break,
            }
        }
        Box::pin(self.leave(running.take())).await;
        self.fleet.hub.plugins.leave(&name);
        self.fleet.hub.rival_yields(&name);
        self.fleet.claims.give_up(&name);
        self.fleet.roster.leave(&name);
    }

    /// Goes on until something has to be done to be where the order wants the plugin.
    async fn advance(&self, running: Option<&Running>, order: &Arc<Order>, penalty: Option<&Penalty>) -> Next {
        self.standing.set(|known| known.generation = order.generation());
        if order.resource.as_ref().is_some_and(|resource| resource.deleting) {
            return Next::Finish;
        }
        let wanted = match &order.wanted {
            Ok(wanted) => wanted,
            Err(error) => {
                self.refuse(running, &problem(Step::Ready, "InvalidSpec", &error.to_string()))
                    .await;
                return std::future::pending().await;
            }
        };
        if wanted.is_suspended {
            if running.is_some() {
                return Next::Leave;
            }
            self.standing.set(|known| {
                known.set(
                    Step::Ready,
                    Fact::no("Suspended", "spec.mode is Suspended; its objects stay as they are"),
                );
                known.busy = None;
            });
            return std::future::pending().await;
        }
        if let Some(penalty) = penalty {
            if penalty.order.is_same(order) {
                tokio::select! {
                    () = tokio::time::sleep_until(penalty.until) => {}
                    () = self.source_changed(wanted, penalty.found.as_ref()) => self.identity.account.forgive(),
                }
            } else {
                self.identity.account.forgive();
            }
            return Next::TryAgain;
        }
        let mut failures = 0;
        loop {
            self.standing.set(|known| known.busy = Some(Instant::now()));
            let seen = self.seen(wanted).await;
            match Box::pin(self.bring(running, order, wanted)).await {
                Ok(Some(arrival)) => return Next::TakeOver(Box::new(arrival)),
                Ok(None) => {
                    failures = 0;
                    self.say_it_runs(running);
                    self.source_changed(wanted, seen.as_ref()).await;
                }
                Err(problem) => {
                    self.refuse(running, &problem).await;
                    if order.resource.is_none() {
                        return Next::GiveUp;
                    }
                    failures += 1;
                    let waits_for_others = problem.reason == KIND_TAKEN && running.is_none();
                    tokio::select! {
                        () = tokio::time::sleep(backoff::delay(failures, 0)), if !waits_for_others => {}
                        () = self.source_changed(wanted, seen.as_ref()) => failures = 0,
                        () = self.fleet.claims.granted(&self.identity.name), if waits_for_others => {}
                    }
                }
            }
        }
    }

    /// Looks after the version that runs: whether it has what it needs, whether it is allowed and sound, and whether it
    /// may sleep.
    async fn watch_over(&self, running: Option<&Running>) -> Next {
        let Some(running) = running else {
            return std::future::pending().await;
        };
        tokio::select! {
            (wait, why) = self.identity.account.stop() => Next::Crashed(wait, why),
            () = self.fleet.claims.lost(&self.identity.name) => Next::Leave,
            () = self.mind_memory(running) => Next::FollowMemory,
            () = self.mind_rights(running) => unreachable!("rights are minded for ever"),
            () = self.follow_kinds(running) => unreachable!("kinds are followed for ever"),
            () = self.let_sleep(running) => unreachable!("it may sleep for ever"),
        }
    }

    /// A new version takes over: from here on each object is the new one's, once what of it is under way has ended.
    async fn take_over(&self, before: Option<Running>, arrival: Arrival) -> Running {
        let Arrival {
            order,
            loaded,
            described,
            lanes,
        } = arrival;
        let (hub, watches) = (&self.fleet.hub, &self.fleet.watches);
        let (candidates, watched) = lanes.take();
        let mut left = before.as_ref().map(|before| before.lanes.clone()).unwrap_or_default();
        let mut lanes = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let same = |lane: &Arc<Lane>| lane.grants.primary().same_kind(candidate.grants.primary());
            if let Some(index) = left.iter().position(same) {
                let old = left.swap_remove(index);
                let lane = in_place_of(&candidate, old.id);
                hub.put_lane(&lane);
                // What the candidate needs is watched already, so none of this asks for a list.
                watches.remove(&old);
                watches.add(&lane);
                watches.remove(&candidate);
                lanes.push(lane);
            } else {
                hub.put_lane(&candidate);
                if !watched {
                    watches.add(&candidate);
                }
                lanes.push(candidate);
            }
        }
        if let Some(before) = &before {
            tracing::info!(
                plugin = &*self.identity.name,
                from = before.loaded.component.digest(),
                to = loaded.component.digest(),
                version = described.version,
                "a new version has taken over"
            );
            self.identity.account.forgive();
        }
        self.go_on();
        self.note_gaps(&described);
        self.remove(&left).await;
        self.standing.set(|known| {
            known.lanes.clone_from(&lanes);
            known.digest = Some(loaded.component.digest().to_owned());
            known.version = Some(described.version.clone());
        });
        Running {
            order,
            loaded,
            crds: described.exclusive(),
            lanes,
        }
    }

    /// Nobody waits any more because calls crashed.
    fn go_on(&self) {
        self.identity.account.resume();
        self.fleet.hub.resume(&self.identity.name);
    }

    /// The version that runs goes; its objects stay.
    pub async fn leave(&self, running: Option<Running>) {
        let Some(running) = running else { return };
        self.remove(&running.lanes).await;
        self.standing.set(|known| known.lanes.clear());
        tracing::info!(
            plugin = &*self.identity.name,
            "the plugin is unloaded; its objects stay as they are"
        );
    }

    /// Lanes go, once what is under way has ended.
    pub async fn remove(&self, lanes: &[Arc<Lane>]) {
        self.stop(lanes).await;
        for lane in lanes {
            self.fleet.hub.remove_lane(lane.id);
            self.fleet.watches.remove(lane);
        }
    }

    /// Nothing of these lanes is begun any more; what is under way has ended.
    pub async fn stop(&self, lanes: &[Arc<Lane>]) {
        let hub = &self.fleet.hub;
        for lane in lanes {
            hub.close_lane(lane.id);
        }
        for lane in lanes {
            hub.nothing_runs_in(lane.id).await;
        }
    }

    /// Says whether all kinds are served and listed, as long as it is watched over.
    async fn follow_kinds(&self, running: &Running) {
        loop {
            let settled = self.fleet.hub.settled.notified();
            self.say_it_runs(Some(running));
            settled.await;
        }
    }

    async fn let_sleep(&self, running: &Running) {
        let component = &running.loaded.component;
        let after = self.fleet.options.sleep_after;
        loop {
            tokio::time::sleep(SLEEP_LOOK.min(after)).await;
            self.identity.account.talk.tell(&self.identity.name);
            if component.is_awake() && component.idle() >= after {
                component.sleep();
                tracing::debug!(plugin = &*self.identity.name, "the plugin sleeps");
            }
        }
    }

    async fn seen(&self, wanted: &Wanted) -> Option<Found> {
        match (&wanted.source, &self.fleet.library) {
            (Source::File { path, .. }, Some(library)) => self.fleet.looks.find(&library.directory, path).await.ok(),
            _ => None,
        }
    }

    /// Waits until there is another component. While the file system hangs, the Plugin's status says so, and what runs goes
    /// on.
    async fn source_changed(&self, wanted: &Wanted, before: Option<&Found>) {
        let (Source::File { path, .. }, Some(library)) = (&wanted.source, &self.fleet.library) else {
            return std::future::pending().await;
        };
        let (directory, name) = (&library.directory, &*self.identity.name);
        let mut trouble: Option<(Hung, Option<Fact>)> = None;
        loop {
            let hung = trouble.as_ref().map(|(hung, _)| hung);
            let news = self.fleet.looks.changed(directory, path, before, hung).await;
            match (news, trouble.take()) {
                (News::Trouble(Some(hung)), _) => {
                    let path = directory.join(path);
                    let why = format!("cannot look at {}: {hung}", path.display());
                    tracing::warn!(
                        plugin = name,
                        problem = why,
                        "another version of the plugin would not be noticed"
                    );
                    let known = self.standing.known();
                    // Where nothing runs, the next try to bring it tells.
                    let fact = (!known.lanes.is_empty()).then(|| known.fact(Step::Fetched).clone());
                    if fact.is_some() {
                        self.standing
                            .set(|known| known.set(Step::Fetched, Fact::no("FetchFailed", why)));
                    }
                    trouble = Some((hung, fact));
                }
                (news, told) => {
                    if let Some((_, fact)) = told {
                        tracing::info!(plugin = name, "the file of the plugin can be looked at again");
                        if let Some(fact) = fact {
                            self.standing.set(|known| known.set(Step::Fetched, fact));
                        }
                    }
                    if news == News::Component {
                        return;
                    }
                }
            }
        }
    }
}

/// The reason of a problem that goes when somebody else goes.
pub const KIND_TAKEN: &str = "KindTaken";

fn problem(step: Step, reason: &'static str, message: &str) -> Problem {
    Problem {
        step,
        reason,
        message: message.to_owned(),
    }
}
