//! Hosts of a run: started, killed, stopped and replaced as the schedule says, and steered together where a scenario
//! steers its host. `judge` judges them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kube::Client;
use pilothouse_core::Limits;
use pilothouse_end_to_end::components;
use pilothouse_end_to_end::log::Tail;
use pilothouse_end_to_end::stage::unhurried;
use pilothouse_runtime::clock::WallClock;
use pilothouse_runtime::{
    Blocking, Depth, Handle, Host, HostOptions, InstallCrds, Library, RunMode, StaticPlugin, UnfinishedWork,
    WebhookOptions,
};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::host::{HostError, Pause, SteeredHost, SteeredPlugin};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::judge::Judge;
use crate::wire::{Gate, Running, Wire};
use crate::world::{Command, Member, World};

/// A host that has been told to end has ended by then, or is killed: its grace and something.
const END_WITHIN: Duration = Duration::from_secs(30);

/// Time within which every effect of a fault shows: silent watches are abandoned, and the longest back-off is over. The
/// next events of such a watch have effects of their own: for 25 s after its definition has changed, discovery is
/// repeated in case a kind is served otherwise, and the status of a Plugin that two hosts have written in turns is
/// written again after a minute. Before that, Deployments that never become ready have passed their deadline of 600 s,
/// which changes their status.
const LONG: Duration = Duration::from_secs(1000);

/// After convergence nothing is asked for so long.
const CALM: Duration = Duration::from_secs(61);

/// All hosts of a run.
pub struct Crew {
    shared: Arc<Shared>,
    judge: Judge,
    patience: Duration,
    tail: Tail,
    ends: JoinHandle<()>,
    /// Time since when the hosts only wait for timers.
    waiting: Mutex<Option<Instant>>,
}

struct Shared {
    world: Arc<World>,
    hosts: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    members: Vec<Sailor>,
    /// Plugins that the hosts run, while they are to run.
    wanted: Option<Vec<SteeredPlugin>>,
    /// Counts starts and stops by the scenario, so that what was to happen in an earlier life does not.
    life: usize,
    /// Hosts that are to start later.
    coming: usize,
    webhooks: Option<WebhookOptions>,
    follows_resources: bool,
    loaded: HashMap<String, pilothouse_sandbox::PluginComponent>,
}

/// One host.
struct Sailor {
    number: Member,
    gate: Gate,
    handle: Handle,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<UnfinishedWork, String>>,
}

impl Crew {
    pub fn new(
        world: Arc<World>,
        commands: mpsc::UnboundedReceiver<Command>,
        hosts: usize,
        judge: Judge,
        patience: Duration,
        tail: Tail,
    ) -> Self {
        let shared = Arc::new(Shared {
            world,
            hosts,
            inner: Mutex::default(),
        });
        let ends = tokio::spawn(follow(shared.clone(), commands));
        Self {
            shared,
            judge,
            patience,
            tail,
            ends,
            waiting: Mutex::default(),
        }
    }

    /// Returns the errors found, and the facts of the run without faults for the others.
    pub fn end(self) -> Judge {
        self.ends.abort();
        self.judge
    }

    /// Nothing goes wrong any more; waits until the hosts have come to rest.
    async fn calm_down(&self) -> Result<(), HostError> {
        let world = &self.shared.world;
        for late in world.end_faults() {
            let _ = tower::ServiceExt::oneshot(world.simulator.service(), late).await;
        }
        for sailor in &self.shared.lock().members {
            sailor.gate.set(Running::Runs);
        }
        world.errands.end().await;
        // What was injected for an errand goes with it.
        world.simulator.faults().clear();
        if world.is_rewritten {
            // What a webhook has changed is applied again at the next resync, and that of writes that are on their way, too.
            self.settle().await?;
            for sailor in &self.shared.lock().members {
                sailor.handle.resync();
            }
        }
        self.settle().await
    }

    async fn settle(&self) -> Result<(), HostError> {
        let (begun, mut idle) = (Instant::now(), None::<Instant>);
        loop {
            if self.is_idle() == Some(false) {
                idle = None;
            } else if idle.get_or_insert_with(Instant::now).elapsed() >= Duration::from_secs(1) {
                break;
            }
            if begun.elapsed() > self.patience {
                return Err(format!("the hosts do not come to rest: {:?}", self.depths()).into());
            }
            tokio::time::sleep((begun.elapsed() / 20).clamp(Duration::from_millis(50), Duration::from_secs(10))).await;
        }
        Ok(())
    }

    /// Returns the depths of the lanes of all hosts.
    fn depths(&self) -> Vec<(String, Depth)> {
        let inner = self.shared.lock();
        let depths = inner.members.iter().flat_map(|sailor| sailor.handle.depths());
        depths.collect()
    }

    /// Resyncs twice and lets a minute pass; a settled host sends no requests.
    async fn look_again(&self) -> Result<(), HostError> {
        for _ in 0..2 {
            for sailor in &self.shared.lock().members {
                sailor.handle.resync();
            }
            self.settle().await?;
        }
        tokio::time::sleep(CALM).await;
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while it is held")
    }

    fn launch(&self) -> Result<(), HostError> {
        let mut inner = self.lock();
        let Some(plugins) = inner.wanted.clone() else {
            return Ok(());
        };
        let number = self.world.launch();
        let specs: Vec<StaticPlugin> = plugins
            .iter()
            .map(|plugin| inner.spec(plugin))
            .collect::<Result<_, _>>()?;
        let gate = Gate::open();
        let wire = Wire {
            world: self.world.clone(),
            member: number,
            gate: gate.clone(),
        };
        let host = Host::new(Client::new(wire, "default"), self.options(&inner, number));
        let handle = host.handle();
        let (stop, stopped) = oneshot::channel();
        let stopped = async move {
            // Whoever drops the sender has ended the host by force.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let library = inner.follows_resources.then(|| Library {
            sandbox: components::sandbox().clone(),
            directory: components::folder(),
            artifacts: None,
        });
        let ended = tokio::spawn(async move {
            let ended = match library {
                Some(library) => host.run_resources(library, stopped).await,
                None => host.run(specs, stopped).await,
            };
            ended.map_err(|error| error.to_string())
        });
        tracing::info!(number, "a host starts");
        inner.members.push(Sailor {
            number,
            gate,
            handle,
            stop,
            ended,
        });
        Ok(())
    }

    fn options(&self, inner: &Inner, number: Member) -> HostOptions {
        // Where the plugin directory is followed, its files are read in turn, too, for as long as the run takes.
        let (world, reads_files) = (self.world.clone(), inner.follows_resources);
        HostOptions {
            install_crds: InstallCrds::All,
            instance: format!("pilothouse-{number}"),
            webhooks: inner.webhooks.clone(),
            clock: WallClock::FromTokio {
                start: self.world.epoch,
                since: self.world.begun(),
                set: self.world.skew(),
            },
            blocking: Blocking::InTurn(Arc::new(move || if reads_files { world.lag() } else { world.call() })),
            ..HostOptions::default()
        }
    }

    /// Starts another host later, unless the scenario stops them all before.
    fn launch_later(self: &Arc<Self>, after: Duration) {
        let life = {
            let mut inner = self.lock();
            inner.coming += 1;
            inner.life
        };
        let shared = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let is_due = {
                let mut inner = shared.lock();
                inner.coming -= 1;
                inner.life == life
            };
            if is_due && let Err(error) = shared.launch() {
                tracing::error!(error, "a host does not start");
            }
        });
    }

    fn take(&self, number: Member) -> Option<Sailor> {
        let mut inner = self.lock();
        let index = inner.members.iter().position(|sailor| sailor.number == number)?;
        Some(inner.members.remove(index))
    }
}

impl Inner {
    fn spec(&mut self, plugin: &SteeredPlugin) -> Result<StaticPlugin, HostError> {
        let SteeredPlugin {
            name,
            configuration,
            limits,
        } = plugin;
        let component = match self.loaded.get(name) {
            Some(component) => component.clone(),
            None => components::load(name)?,
        };
        self.loaded.insert(name.clone(), component.clone());
        let limits: Option<Limits> = limits.clone().map(serde_json::from_value).transpose()?;
        Ok(StaticPlugin {
            name: None,
            component,
            config: configuration.clone(),
            limits: limits.unwrap_or_else(unhurried),
            concurrency: None,
            mode: RunMode::Active,
            former_managers: Vec::new(),
        })
    }
}

impl Sailor {
    /// Ends in order; who does not within his grace is killed.
    async fn end(self) -> Option<String> {
        let Self {
            number,
            gate,
            handle: _,
            stop,
            mut ended,
        } = self;
        let _ = stop.send(());
        let result = tokio::time::timeout(END_WITHIN, &mut ended).await;
        gate.set(Running::Dead);
        match result {
            Ok(Ok(Ok(_))) => None,
            Ok(Ok(Err(error))) => Some(format!("host {number} ended: {error}")),
            Ok(Err(error)) => Some(format!("host {number} was lost: {error}")),
            Err(_) => {
                ended.abort();
                let _ = ended.await;
                None
            }
        }
    }
}

/// Does to the hosts what the schedule says.
async fn follow(shared: Arc<Shared>, mut commands: mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = commands.recv().await {
        match command {
            Command::Start(after) => shared.launch_later(after),
            Command::Died(number, again) => {
                tracing::info!(number, "a host is killed");
                if let Some(sailor) = shared.take(number) {
                    sailor.ended.abort();
                    let _ = sailor.ended.await;
                }
                shared.launch_later(again);
            }
            Command::End(number, after) => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    if let Some(sailor) = shared.take(number) {
                        tracing::info!(number, "a host is told to end");
                        sailor.end().await;
                    }
                });
            }
        }
    }
}

impl SteeredHost for Crew {
    async fn start(&mut self, _: &Cluster, plugins: &[SteeredPlugin]) -> Result<(), HostError> {
        self.shared.lock().wanted = Some(plugins.to_vec());
        for _ in 0..self.shared.hosts {
            self.shared.launch()?;
        }
        Ok(())
    }

    fn serve_webhooks(&mut self, namespace: &str) -> Result<(), HostError> {
        let options = pilothouse_end_to_end::host::webhooks(namespace, "webhooks")?;
        self.shared.lock().webhooks = Some(options);
        Ok(())
    }

    fn follow_resources(&mut self, follows: bool) -> Result<(), HostError> {
        self.shared.lock().follows_resources = follows;
        Ok(())
    }

    async fn resync(&mut self) -> Result<(), HostError> {
        for sailor in &self.shared.lock().members {
            sailor.handle.resync();
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<Vec<String>, HostError> {
        let members = {
            let mut inner = self.shared.lock();
            inner.life += 1;
            inner.wanted = None;
            std::mem::take(&mut inner.members)
        };
        for sailor in members {
            sailor.gate.set(Running::Runs);
            self.judge.problems.extend(sailor.end().await);
        }
        Ok(Vec::new())
    }

    async fn pause(&mut self, at: Pause) -> Result<(), HostError> {
        if at == Pause::Told {
            self.calm_down().await?;
        } else {
            self.settle().await?;
        }
        let begun = Instant::now();
        while !self.judge.is_as_expected(at, &self.shared.world.simulator) && begun.elapsed() < LONG {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        self.settle().await?;
        self.judge.look(at, &self.shared.world.simulator);
        if at == Pause::Told {
            tokio::time::sleep(LONG).await;
            let mark = self.shared.world.simulator.requests().mark();
            self.look_again().await?;
            self.judge.hear(&self.shared.world.simulator.requests().since(mark));
        }
        self.judge.weigh(at, &self.depths());
        Ok(())
    }

    fn is_idle(&self) -> Option<bool> {
        let inner = self.shared.lock();
        inner.wanted.as_ref()?;
        let is_there = inner.coming == 0 && !inner.members.is_empty();
        let rest = |sailor: &Sailor| sailor.gate.get() == Running::Runs && sailor.handle.is_idle();
        let is_idle = is_there && inner.members.iter().all(rest);
        let depths = inner.members.iter().flat_map(|sailor| sailor.handle.depths());
        let mut waits = depths.filter(|(_, depth)| depth.delayed + depth.unseen > 0);
        let mut waiting = self.waiting.lock().expect("no panic while it is held");
        if !is_idle || waits.next().is_none() {
            *waiting = None;
            return Some(is_idle);
        }
        // A back-off ends, an object that asked to be reconciled at a time is.
        Some(waiting.get_or_insert_with(Instant::now).elapsed() > LONG)
    }

    fn failure(&mut self) -> Option<String> {
        let inner = self.shared.lock();
        let lives = |sailor: &&Sailor| sailor.gate.get() != Running::Dead;
        let ended = inner
            .members
            .iter()
            .filter(lives)
            .find(|sailor| sailor.ended.is_finished());
        ended.map(|sailor| format!("host {} has ended by itself", sailor.number))
    }

    fn log_tail(&self) -> String {
        self.tail.text()
    }
}
