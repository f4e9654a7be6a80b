//! Owns the order of events: what the demo does to the cluster, what it waits for, and the sum at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use pilothouse_runtime::Handle;
use pilothouse_simulator::{Mark, Simulator};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::expectations::{app_service, defined, fulfilled, fulfilled_again, the_only};
use crate::host::USER_AGENT;
use crate::sample::Sample;
use crate::scene::{Change, Kind, Scene, key, state, uid};
use crate::terminal::{Terminal, milliseconds, status_rows, table};
use crate::watch;

/// By this the demo's fields are known from other managers'.
const SELF: &str = "demo";

/// How often the host is asked whether it has anything to do; watches are looked at when they say something.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What is watched from the start; AppServices are not served before the host has installed their CRD.
const EARLY: [Kind; 3] = [Kind::Definition, Kind::Deployment, Kind::Service];

/// A demo on its way.
pub struct Story {
    sample: Sample,
    simulator: Simulator,
    client: Client,
    terminal: Terminal,
    /// How long anything may take.
    patience: Duration,
    started: Instant,
    scene: Scene,
    watches: JoinSet<()>,
    sender: mpsc::UnboundedSender<Change>,
    changes: mpsc::UnboundedReceiver<Change>,
    told: bool,
}

impl Story {
    /// A story of this cluster; from now on time is counted.
    pub fn new(sample: Sample, simulator: Simulator, terminal: Terminal, patience: Duration) -> Self {
        // Without sockets between, what is seen here is seen when it happens.
        let client = Client::new(simulator.service(), &sample.namespace);
        let (sender, changes) = mpsc::unbounded_channel();
        let (started, scene) = (Instant::now(), Scene::default());
        Self {
            sample,
            simulator,
            client,
            terminal,
            patience,
            started,
            scene,
            watches: JoinSet::new(),
            sender,
            changes,
            told: false,
        }
    }

    /// Whether all has been told and was as it should be.
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// Watches what is there before the host is, so that nothing is missed.
    pub async fn begin(&mut self) -> Result<()> {
        for kind in EARLY {
            self.follow(kind);
        }
        let watched = |scene: &Scene| EARLY.into_iter().try_for_each(|kind| scene.watches(kind));
        self.until("the watches to begin", watched).await?;
        self.terminal.plain(&[String::new(), "       ms".to_owned()]);
        self.deed("start the host");
        Ok(())
    }

    /// Tells it from the start of the host to the sum.
    pub async fn tell(&mut self, host: &Handle) -> Result<()> {
        self.until("the plugin's CRD to be installed", defined).await?;
        self.follow(Kind::AppService);
        self.until("the watch of AppServices to begin", |scene| {
            scene.watches(Kind::AppService)
        })
        .await?;
        self.rest(host).await?;

        let sample = self.sample.clone();
        let applied = self.apply(&sample).await?;
        self.until("the AppService to be fulfilled", |scene| fulfilled(scene, &sample))
            .await?;
        self.settle(host).await?;

        let first = self.deployment()?;
        let deleted = self.delete_deployment(&sample).await?;
        self.until("the Deployment to be back", |scene| {
            fulfilled_again(scene, &sample, &first)
        })
        .await?;
        self.settle(host).await?;

        self.resync(host).await?;
        fulfilled(&self.scene, &sample).map_err(|lacks| anyhow!("at the end, {lacks}"))?;
        let came = self.seen_after(applied, &first);
        let back = self.seen_after(deleted, &self.deployment()?);
        self.sum(came, back)?;
        self.told = true;
        Ok(())
    }

    /// Goes on telling what happens, for as long as it is asked to.
    pub async fn go_on(&mut self) -> Result<()> {
        let hint = format!(
            "The cluster stays until Ctrl-C. Try: kubectl delete service {}",
            self.sample.name
        );
        self.terminal.plain(&[String::new(), hint]);
        loop {
            let change = self.changes.recv().await.context("the watches ended")?;
            self.take(change);
        }
    }

    fn follow(&mut self, kind: Kind) {
        let watch = watch::follow(&self.client, kind, self.started, self.sender.clone());
        self.watches.spawn(watch);
    }

    /// Says what is done now, and when that is.
    fn deed(&self, text: &str) -> Duration {
        let now = self.started.elapsed();
        self.terminal.deed(now, text);
        now
    }

    fn take(&mut self, change: Change) {
        for line in self.scene.take(change) {
            self.terminal.line(&line);
        }
    }

    /// Shows changes until something holds; what it lacks is the error.
    async fn until(&mut self, what: &str, holds: impl Fn(&Scene) -> Result<(), String>) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        while let Err(lacks) = holds(&self.scene) {
            let late = || anyhow!("waited {} s for {what}, in vain: {lacks}", self.patience.as_secs());
            ensure!(Instant::now() < deadline, late());
            if let Ok(change) = timeout(LOOK_AGAIN, self.changes.recv()).await {
                self.take(change.context("the watches ended")?);
            }
        }
        Ok(())
    }

    /// Waits until the host has nothing to do.
    async fn rest(&mut self, host: &Handle) -> Result<()> {
        self.until("the host to come to rest", |_| {
            if host.is_idle() {
                Ok(())
            } else {
                Err(format!("its lanes are {:?}", host.depths()))
            }
        })
        .await
    }

    /// Waits until the host has nothing to do and the watches have brought here all that the cluster holds.
    async fn settle(&mut self, host: &Handle) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        loop {
            self.rest(host).await?;
            let live = self.live().await?;
            while let Ok(change) = self.changes.try_recv() {
                self.take(change);
            }
            if self.seen() == live && host.is_idle() {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the watches do not catch up with the cluster"
            );
            if let Ok(change) = timeout(LOOK_AGAIN, self.changes.recv()).await {
                self.take(change.context("the watches ended")?);
            }
        }
    }

    /// The version of each object that matters, as the cluster has it.
    async fn live(&self) -> Result<BTreeMap<(Kind, String), String>> {
        let mut versions = BTreeMap::new();
        for kind in std::iter::once(Kind::AppService).chain(Kind::CHILDREN) {
            let list = watch::api(&self.client, kind).list(&ListParams::default()).await;
            for object in list.with_context(|| format!("list {}s", kind.name()))? {
                let version = object.metadata.resource_version.clone().unwrap_or_default();
                versions.insert((kind, key(&watch::plain(&object))), version);
            }
        }
        Ok(versions)
    }

    /// The same as the watches have it.
    fn seen(&self) -> BTreeMap<(Kind, String), String> {
        let kinds = std::iter::once(Kind::AppService).chain(Kind::CHILDREN);
        let version = |object: &serde_json::Value| {
            object["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        kinds
            .flat_map(|kind| {
                self.scene
                    .of(kind)
                    .map(move |object| ((kind, key(object)), version(object)))
            })
            .collect()
    }

    /// Applies the sample, and gives the moment at which that began.
    async fn apply(&self, sample: &Sample) -> Result<Duration> {
        let what = format!("apply {}", sample.path.display());
        let began = self.deed(&what);
        let api = watch::api_in(&self.client, Kind::AppService, &sample.namespace);
        let parameters = PatchParams::apply(SELF);
        let applied = api.patch(&sample.name, &parameters, &Patch::Apply(&sample.body)).await;
        applied.context(what)?;
        Ok(began)
    }

    /// Deletes the Deployment, and gives the moment at which that began.
    async fn delete_deployment(&self, sample: &Sample) -> Result<Duration> {
        let what = format!("delete Deployment {} by hand", sample.name);
        let began = self.deed(&what);
        let api = watch::api_in(&self.client, Kind::Deployment, &sample.namespace);
        let deleted = api.delete(&sample.name, &DeleteParams::default()).await;
        deleted.context(what)?;
        Ok(began)
    }

    /// Has the host reconcile everything again, which may cost no request, as nothing has changed.
    async fn resync(&mut self, host: &Handle) -> Result<()> {
        self.deed("have the host reconcile everything again");
        let mark = self.simulator.requests().mark();
        host.resync();
        self.settle(host).await?;
        let asked = self.asked_by_host(mark);
        ensure!(
            asked.is_empty(),
            "nothing had changed, and yet the host sent requests: {}",
            asked.join(", ")
        );
        Ok(())
    }

    /// The host's requests but watches, which begin anew every few minutes.
    fn asked_by_host(&self, mark: Mark) -> Vec<String> {
        let requests = self.simulator.requests().since(mark).into_iter();
        let requests = requests.filter(|request| request.user_agent == USER_AGENT && request.verb != "watch");
        requests
            .map(|request| format!("{} {}", request.verb, request.uri))
            .collect()
    }

    /// The uid of the Deployment.
    fn deployment(&self) -> Result<String> {
        let app = app_service(&self.scene, &self.sample).map_err(|lacks| anyhow!(lacks))?;
        let deployment = the_only(&self.scene, app, Kind::Deployment).map_err(|lacks| anyhow!(lacks))?;
        Ok(uid(deployment).to_owned())
    }

    /// How long after a moment an object was first seen.
    fn seen_after(&self, moment: Duration, uid: &str) -> Duration {
        let seen = self.scene.seen(uid).unwrap_or_default();
        seen.saturating_sub(moment)
    }

    /// The status, the children, and how long things took, all as the watches had them.
    fn sum(&self, came: Duration, back: Duration) -> Result<()> {
        let app = app_service(&self.scene, &self.sample).map_err(|lacks| anyhow!(lacks))?;
        let mut lines = vec![String::new()];
        lines.extend(table(
            [&format!("STATUS of AppService {}", self.sample.name), ""],
            &status_rows(&app["status"]),
        ));
        lines.push(String::new());

        let mut rows = vec![[
            format!("AppService {}", key(app)),
            String::new(),
            state(Kind::AppService, app),
        ]];
        for kind in Kind::CHILDREN {
            for child in self.scene.children(uid(app), kind) {
                rows.push([
                    String::new(),
                    format!("{} {}", kind.name(), key(child)),
                    state(kind, child),
                ]);
            }
        }
        lines.extend(table(["RESOURCE", "CHILDREN", "STATE"], &rows));
        lines.push(String::new());

        lines.push(format!(
            "The Deployment was there {} ms after the sample was applied, and back {} ms after it was deleted.",
            milliseconds(came),
            milliseconds(back)
        ));
        lines.push("Reconciled again with nothing changed, the host sent no request.".to_owned());
        self.terminal.plain(&lines);
        Ok(())
    }
}
