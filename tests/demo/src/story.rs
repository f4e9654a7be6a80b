//! Runs the demo: changes the cluster, waits for the results, and prints the summary. `acts` has each plugin's part.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use pilothouse_runtime::Handle;
use pilothouse_simulator::{Mark, Simulator};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::act::{Act, Place, Step};
use crate::host::USER_AGENT;
use crate::kind::{Kind, condition, state};
use crate::sample::Sample;
use crate::scene::{Change, Scene, key, uid};
use crate::terminal::{Terminal, table};
use crate::watch;

/// Field manager of the demo.
const SELF: &str = "demo";

/// Interval of polling whether the host is idle; watches wake the story by themselves.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A demo on its way.
pub struct Story {
    acts: Vec<(Act, Sample)>,
    simulator: Simulator,
    client: Client,
    terminal: Terminal,
    /// Time limit of each wait.
    patience: Duration,
    started: Instant,
    scene: Scene,
    followed: Vec<Kind>,
    watches: JoinSet<()>,
    sender: mpsc::UnboundedSender<Change>,
    changes: mpsc::UnboundedReceiver<Change>,
    told: bool,
}

impl Story {
    /// A story of this cluster; from now on time is counted.
    pub fn new(acts: Vec<(Act, Sample)>, simulator: Simulator, terminal: Terminal, patience: Duration) -> Self {
        // Without sockets between, what is seen here is seen when it happens.
        let client = Client::new(simulator.service(), "default");
        let (sender, changes) = mpsc::unbounded_channel();
        let (started, scene) = (Instant::now(), Scene::default());
        Self {
            acts,
            simulator,
            client,
            terminal,
            patience,
            started,
            scene,
            followed: Vec::new(),
            watches: JoinSet::new(),
            sender,
            changes,
            told: false,
        }
    }

    /// Returns `true` if the whole story has been told without an error.
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// Makes what has to be there, and watches it before the host is, so that nothing is missed.
    pub async fn begin(&mut self) -> Result<()> {
        for (kind, object) in self.acts.iter().flat_map(|(act, _)| (act.seeds)()) {
            let what = format!("make {} {}", kind.name(), key(&object));
            self.create(kind, object).await.context(what)?;
        }
        self.follow(Kind::EARLY);
        self.until("the watches to begin", |scene| {
            Kind::EARLY.into_iter().try_for_each(|kind| scene.watches(kind))
        })
        .await?;
        self.terminal.legend();
        self.deed("start the host");
        Ok(())
    }

    /// Runs the story from the start of the host to the summary.
    pub async fn tell(&mut self, host: &Handle) -> Result<()> {
        let kinds: Vec<Kind> = self.acts.iter().map(|(act, _)| act.kind).collect();
        let brought: Vec<Kind> = kinds.into_iter().filter(|kind| !Kind::EARLY.contains(kind)).collect();
        self.until("the plugins' CRDs to be installed", |scene| {
            brought.iter().try_for_each(|kind| defined(scene, *kind))
        })
        .await?;
        self.follow(brought.clone());
        self.until("the watches of the plugins' resources to begin", |scene| {
            brought.iter().try_for_each(|kind| scene.watches(*kind))
        })
        .await?;
        self.rest(host).await?;

        let acts = std::mem::take(&mut self.acts);
        for (act, sample) in &acts {
            self.terminal
                .plain(&[String::new(), format!("{}: {}", act.plugin, act.about)]);
            for step in (act.steps)(sample) {
                self.take_step(step, sample).await?;
            }
            self.settle(host).await?;
        }
        self.terminal.plain(&[String::new()]);
        self.resync(host).await?;
        self.sum(&acts)?;
        self.told = true;
        Ok(())
    }

    /// Continues to print changes until it is stopped.
    pub async fn go_on(&mut self) -> Result<()> {
        let hint = "The cluster stays until Ctrl-C. Try: kubectl delete service example-appservice";
        self.terminal.plain(&[String::new(), hint.to_owned()]);
        loop {
            let change = self.changes.recv().await.context("the watches ended")?;
            self.take(change);
        }
    }

    fn follow(&mut self, kinds: impl IntoIterator<Item = Kind>) {
        for kind in kinds {
            let watch = watch::follow(&self.client, kind, self.started, self.sender.clone());
            self.watches.spawn(watch);
            self.followed.push(kind);
        }
    }

    async fn take_step(&mut self, step: Step, sample: &Sample) -> Result<()> {
        match step {
            Step::Apply => {
                let text = format!("apply {}", sample.path.display());
                self.deed(&text);
                let api = watch::api_in(&self.client, sample.kind, sample.namespace.as_deref());
                let parameters = PatchParams::apply(SELF);
                let applied = api.patch(&sample.name, &parameters, &Patch::Apply(&sample.body)).await;
                applied.map(drop).context(text)
            }
            Step::Patch {
                text,
                object,
                subresource,
                body,
            } => {
                self.deed(&text);
                let Place { kind, namespace, name } = &object;
                let api = watch::api_in(&self.client, *kind, namespace.as_deref());
                let (parameters, body) = (PatchParams::default(), Patch::Merge(&body));
                let patched = match subresource {
                    None => api.patch(name, &parameters, &body).await,
                    Some(subresource) => api.patch_subresource(subresource, name, &parameters, &body).await,
                };
                patched.map(drop).context(text)
            }
            Step::Create { text, kind, body } => {
                self.deed(&text);
                self.create(kind, body).await.context(text)
            }
            Step::Delete { text, object } => {
                self.deed(&text);
                let Place { kind, namespace, name } = &object;
                let api = watch::api_in(&self.client, *kind, namespace.as_deref());
                let deleted = api.delete(name, &DeleteParams::default()).await;
                deleted.map(drop).context(text)
            }
            Step::Until { what, holds } => self.until(what, |scene| holds(scene, sample)).await,
        }
    }

    async fn create(&self, kind: Kind, object: Value) -> Result<()> {
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        let api = watch::api_in(&self.client, kind, namespace.as_deref());
        let object = serde_json::from_value(object).context("read it as an object")?;
        let parameters = PostParams {
            field_manager: Some(SELF.to_owned()),
            ..PostParams::default()
        };
        api.create(&parameters, &object).await?;
        Ok(())
    }

    /// Prints the demo's step.
    fn deed(&self, text: &str) {
        self.terminal.deed(self.started.elapsed(), text);
    }

    fn take(&mut self, change: Change) {
        for line in self.scene.take(change) {
            self.terminal.line(&line);
        }
    }

    /// Prints changes until a condition holds; the error is the missing part.
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

    /// The version of each object that is watched, as the cluster has it.
    async fn live(&self) -> Result<BTreeMap<(Kind, String), String>> {
        let mut versions = BTreeMap::new();
        for kind in self.followed.iter().copied() {
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
        let version = |object: &Value| {
            object["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let kinds = self.followed.iter().copied();
        kinds
            .flat_map(|kind| {
                self.scene
                    .of(kind)
                    .map(move |object| ((kind, key(object)), version(object)))
            })
            .collect()
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

    /// Prints the summary: each sample, its objects, and their states as the watches reported them.
    fn sum(&self, acts: &[(Act, Sample)]) -> Result<()> {
        let mut rows = Vec::new();
        for (act, sample) in acts {
            let object = self.scene.get(act.kind, sample.namespace(), &sample.name);
            let object = object.with_context(|| format!("{} {} is gone", act.kind.name(), sample.name))?;
            rows.push([format!("{} {}", act.kind.name(), key(object)), state(act.kind, object)]);
            for kind in Kind::CHILDREN {
                for child in self.scene.children(uid(object), kind) {
                    let name = format!("  {} {}", kind.name(), key(child));
                    rows.push([name, state(kind, child)]);
                }
            }
            for [place, state] in (act.contributed)(&self.scene, sample) {
                rows.push([format!("  {place}"), state]);
            }
        }
        let mut lines = vec![String::new()];
        lines.extend(table(["RESOURCE", "STATE"], &rows));
        lines.push(String::new());
        lines.push("Reconciled again with nothing changed, the host sent no request.".to_owned());
        self.terminal.plain(&lines);
        Ok(())
    }
}

/// A kind's definition is served.
fn defined(scene: &Scene, kind: Kind) -> Result<(), String> {
    let established = scene
        .of(Kind::Definition)
        .any(|crd| crd["spec"]["names"]["kind"] == kind.name() && condition(crd, "Established") == Some("True"));
    if established {
        Ok(())
    } else {
        Err(format!("no CRD of {} is established", kind.name()))
    }
}
