//! Plays the nodes of a cluster that has none: binds pods to a node a second after they were made, and writes the statuses by
//! which Deployments, StatefulSets, DaemonSets and Jobs become available, complete or fail. All of it goes through the API, so it
//! is the same on a simulated and on a real control plane. Leaves what a status says to `pilothouse_simulator::kubelet`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::TryStreamExt as _;
use kube::{Client, core::WatchEvent};
use pilothouse_simulator::kubelet::{self, Outcome, has_finished};
use serde::Deserialize;
use serde_json::{Value, json};
// The clock of the runtime, so that a test may pause it.
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::Instant,
};

use crate::{
    cluster::Cluster,
    fate::Fate,
    scenario::{Objects, Reference},
};

/// The node that pods are bound to.
pub const NODE: &str = "node-1";

/// The time from the creation of a pod or a claim until it is ready, and until a failed request is tried again.
const DELAY: Duration = Duration::from_secs(1);

/// The most owners above a pod among which a decision is looked for.
const MAX_OWNERS: usize = 5;

/// Readiness of pods: by themselves, or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workloads {
    /// A second after they were made. Those that do not restart always succeed then, and claims are bound.
    #[default]
    Ready,
    /// Never, unless a step says so.
    Never,
}

/// API version, kind, namespace and name.
type Place = (String, String, String, String);

/// The players of a cluster's nodes. They end with the value.
pub struct Nodes {
    client: Client,
    decisions: Arc<Decisions>,
    players: JoinSet<()>,
}

#[derive(Default)]
struct Decisions {
    fates: Mutex<BTreeMap<Place, Fate>>,
    changed: Notify,
    /// Set while a pod or a claim is still to become ready.
    is_busy: AtomicBool,
}

/// News of pods and claims.
enum News {
    /// All objects of a kind.
    All(&'static str, Vec<Value>),
    Changed(&'static str, Value),
    Gone(&'static str, Value),
}

impl Nodes {
    /// Creates a node, and starts. The error is the server's message.
    pub async fn start(cluster: &Cluster, workloads: Workloads) -> Result<Self, String> {
        let client = cluster.client().await.map_err(|error| error.to_string())?;
        make_node(&client).await.map_err(|error| error.to_string())?;
        let decisions = Arc::new(Decisions::default());
        let (sender, news) = mpsc::unbounded_channel();
        let mut players = JoinSet::new();
        for plural in ["pods", "persistentvolumeclaims"] {
            players.spawn(follow(client.clone(), plural, sender.clone()));
        }
        let player = Player {
            cluster: cluster.clone(),
            objects: Objects::new(client.clone(), "default"),
            client: client.clone(),
            workloads,
            decisions: decisions.clone(),
            known: BTreeMap::new(),
        };
        players.spawn(player.play(news));
        Ok(Self {
            client,
            decisions,
            players,
        })
    }

    /// Decides the fate of an object's pods from now on, and its own if it is a pod.
    pub fn decide(&self, object: &Reference, namespace: &str, fate: Fate) {
        let mut fates = self.decisions.fates.lock().unwrap_or_else(PoisonError::into_inner);
        fates.insert(place(object, namespace), fate);
        self.decisions.changed.notify_one();
    }

    /// Returns `true` while a pod or a claim is still to become ready.
    pub fn is_busy(&self) -> bool {
        self.decisions.is_busy.load(Ordering::Relaxed)
    }

    /// Ends, and deletes the pods that would wait for its node for ever.
    pub async fn stop(self) {
        let Self { client, players, .. } = self;
        drop(players);
        let listed = send(&client, "GET", "/api/v1/pods", "", &Value::Null).await;
        let listed = listed.unwrap_or_default();
        for pod in listed["items"].as_array().into_iter().flatten() {
            if pod["spec"]["nodeName"].is_string() {
                let _ = end(&client, pod).await;
            }
        }
        let _ = send(&client, "DELETE", &format!("/api/v1/nodes/{NODE}"), "", &Value::Null).await;
    }
}

fn place(object: &Reference, namespace: &str) -> Place {
    let Reference {
        api_version,
        kind,
        name,
        ..
    } = object.clone();
    (api_version, kind, namespace.to_owned(), name)
}

async fn send(
    client: &Client,
    method: &str,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<Value, kube::Error> {
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = http::Request::builder().method(method).uri(path);
    let request = match content_type {
        "" => request,
        content_type => request.header(http::header::CONTENT_TYPE, content_type),
    };
    client
        .request(request.body(body).map_err(kube::Error::HttpError)?)
        .await
}

/// Creates the node. The server taints it until it is found ready.
async fn make_node(client: &Client) -> Result<(), kube::Error> {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"}},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    });
    match send(client, "POST", "/api/v1/nodes", "application/json", &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        made => drop(made?),
    }
    let untainted = json!({"spec": {"taints": null}});
    let path = format!("/api/v1/nodes/{NODE}");
    send(client, "PATCH", &path, "application/merge-patch+json", &untainted).await?;
    Ok(())
}

/// Deletes a pod whose kubelet has ended it.
async fn end(client: &Client, pod: &Value) -> Result<Value, kube::Error> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "preconditions": {"uid": pod["metadata"]["uid"]},
    });
    send(client, "DELETE", &path("pods", pod), "application/json", &options).await
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn path(plural: &str, object: &Value) -> String {
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    format!("/api/v1/namespaces/{namespace}/{plural}/{name}")
}

/// Reports all objects of a core resource and their changes, for ever.
async fn follow(client: Client, plural: &'static str, news: mpsc::UnboundedSender<News>) {
    loop {
        // A watch that ends or cannot start begins again with a list.
        let _ = follow_once(&client, plural, &news).await;
        tokio::time::sleep(DELAY).await;
    }
}

async fn follow_once(
    client: &Client,
    plural: &'static str,
    news: &mpsc::UnboundedSender<News>,
) -> Result<(), kube::Error> {
    let mut listed = send(client, "GET", &format!("/api/v1/{plural}"), "", &Value::Null).await?;
    let version = text(&listed["metadata"]["resourceVersion"]);
    if let Value::Array(items) = listed["items"].take() {
        let _ = news.send(News::All(plural, items));
    }
    let watch = http::Request::get(format!("/api/v1/{plural}?watch=true&resourceVersion={version}"));
    let watch = watch.body(Vec::new()).map_err(kube::Error::HttpError)?;
    let changes = client.request_events::<Value>(watch).await?;
    futures::pin_mut!(changes);
    while let Some(change) = changes.try_next().await? {
        let _ = news.send(match change {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => News::Changed(plural, object),
            WatchEvent::Deleted(object) => News::Gone(plural, object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(_) => return Ok(()),
        });
    }
    Ok(())
}

/// An object, and since when it is known.
struct Known {
    object: Value,
    since: Instant,
}

struct Player {
    cluster: Cluster,
    client: Client,
    objects: Objects,
    workloads: Workloads,
    decisions: Arc<Decisions>,
    /// Known objects, by plural and path.
    known: BTreeMap<(&'static str, String), Known>,
}

impl Player {
    async fn play(mut self, mut news: mpsc::UnboundedReceiver<News>) {
        let decisions = self.decisions.clone();
        loop {
            let next = self.act().await;
            decisions.is_busy.store(next.is_some(), Ordering::Relaxed);
            let wait = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                told = news.recv() => match told {
                    Some(told) => self.learn(told),
                    None => return,
                },
                () = decisions.changed.notified() => {}
                () = wait => {}
            }
            while let Ok(told) = news.try_recv() {
                self.learn(told);
            }
        }
    }

    fn learn(&mut self, news: News) {
        match news {
            News::All(plural, objects) => {
                let paths: Vec<String> = objects.iter().map(|object| path(plural, object)).collect();
                self.known
                    .retain(|(its, path), _| *its != plural || paths.contains(path));
                for object in objects {
                    self.keep(plural, object);
                }
            }
            News::Changed(plural, object) => self.keep(plural, object),
            News::Gone(plural, object) => drop(self.known.remove(&(plural, path(plural, &object)))),
        }
    }

    fn keep(&mut self, plural: &'static str, object: Value) {
        let key = (plural, path(plural, &object));
        let before = self.known.remove(&key);
        let before = before.filter(|known| known.object["metadata"]["uid"] == object["metadata"]["uid"]);
        let since = before.map_or_else(Instant::now, |known| known.since);
        self.known.insert(key, Known { object, since });
    }

    /// Does the due work, and returns the time of the next.
    async fn act(&mut self) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let keys: Vec<_> = self.known.keys().cloned().collect();
        for key in keys {
            let Some(Known { object, since }) = self.known.get(&key) else {
                continue;
            };
            let (object, due) = (object.clone(), *since + DELAY);
            let changed = match key.0 {
                "pods" => self.run(&object, due).await,
                _ => self.bind_claim(&object, due).await,
            };
            match changed {
                Ok(None) => {}
                Ok(Some(Turn::Later)) => next = Some(next.map_or(due, |next| next.min(due))),
                Ok(Some(Turn::Changed(object))) => {
                    if let Some(known) = self.known.get_mut(&key) {
                        known.object = object;
                    }
                }
                // It may be gone or have changed, of which there will be news; if not, it is tried again.
                Err(_) => {
                    if let Some(known) = self.known.get_mut(&key) {
                        known.since = Instant::now();
                        next = Some(next.map_or(known.since + DELAY, |next| next.min(known.since + DELAY)));
                    }
                }
            }
        }
        next
    }

    /// Acts as scheduler and kubelet for a pod.
    async fn run(&mut self, pod: &Value, due: Instant) -> Result<Option<Turn>, kube::Error> {
        let is_bound = pod["spec"]["nodeName"].is_string();
        if pod["metadata"]["deletionTimestamp"].is_string() {
            // What still holds it is not the kubelet's.
            if is_bound && pod["metadata"]["deletionGracePeriodSeconds"] != 0 {
                return Ok(Some(Turn::Changed(end(&self.client, pod).await?)));
            }
            return Ok(None);
        }
        let Some(outcome) = self.outcome(pod).await.filter(|_| !has_finished(pod)) else {
            return Ok(None);
        };
        let status = kubelet::status(pod, outcome, self.cluster.now());
        if is_bound && says(&pod["status"]) == says(&status) {
            return Ok(None);
        }
        if due > Instant::now() {
            return Ok(Some(Turn::Later));
        }
        if !is_bound {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node(pod)},
            });
            let path = format!("{}/binding", path("pods", pod));
            send(&self.client, "POST", &path, "application/json", &binding).await?;
        }
        self.write_status("pods", pod, &status).await
    }

    /// Binds a claim to its volume, and resizes a changed one.
    async fn bind_claim(&mut self, claim: &Value, due: Instant) -> Result<Option<Turn>, kube::Error> {
        let spec = &claim["spec"];
        let status = json!({
            "phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["resources"]["requests"],
        });
        if self.workloads == Workloads::Never
            || claim["metadata"]["deletionTimestamp"].is_string()
            || ["phase", "capacity"]
                .iter()
                .all(|name| claim["status"][*name] == status[*name])
        {
            return Ok(None);
        }
        if due > Instant::now() {
            return Ok(Some(Turn::Later));
        }
        self.write_status("persistentvolumeclaims", claim, &status).await
    }

    async fn write_status(&self, plural: &str, object: &Value, status: &Value) -> Result<Option<Turn>, kube::Error> {
        let path = format!("{}/status?fieldManager=kubelet", path(plural, object));
        let patch = json!({"metadata": {"uid": object["metadata"]["uid"]}, "status": status});
        let written = send(&self.client, "PATCH", &path, "application/merge-patch+json", &patch).await?;
        Ok(Some(Turn::Changed(written)))
    }

    async fn outcome(&mut self, pod: &Value) -> Option<Outcome> {
        match self.fate(pod).await {
            None => (self.workloads == Workloads::Ready).then(|| Outcome::of(pod)),
            Some(Fate::Available) => Some(Outcome::Ready),
            Some(Fate::Completed) => Some(Outcome::Succeeded),
            Some(Fate::Failed) => {
                // As often as a Job lets its pods be restarted.
                let owner = owner(pod);
                let found = match owner {
                    Some(owner) if pod["spec"]["restartPolicy"] == "OnFailure" => {
                        self.objects.find(&owner).await.ok()?
                    }
                    _ => None,
                };
                let limit = found.and_then(|owner| owner["spec"]["backoffLimit"].as_i64());
                let restarts = limit.unwrap_or(1).max(1);
                Some(Outcome::Failed { restarts })
            }
        }
    }

    /// Returns the fate that was decided for the pod, or for its nearest owner.
    async fn fate(&mut self, pod: &Value) -> Option<Fate> {
        let fates = self
            .decisions
            .fates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if fates.is_empty() {
            return None;
        }
        let namespace = text(&pod["metadata"]["namespace"]);
        let mut reference = Reference::of(pod);
        let mut object = pod.clone();
        for _ in 0..=MAX_OWNERS {
            if let Some(fate) = fates.get(&place(&reference, &namespace)) {
                return Some(*fate);
            }
            reference = owner(&object)?;
            object = self.objects.find(&reference).await.ok().flatten().unwrap_or_default();
        }
        None
    }
}

/// Result of examining an object.
enum Turn {
    /// The time has not come yet.
    Later,
    /// The object was changed to this.
    Changed(Value),
}

/// Returns the members of a pod's status, without times and server-set ones.
fn says(status: &Value) -> Vec<&Value> {
    let members = |list: &'static str, names: [&'static str; 2]| {
        let items = status[list].as_array().into_iter().flatten();
        items.flat_map(move |item| names.map(|name| &item[name]))
    };
    let states = members("containerStatuses", ["ready", "restartCount"]);
    std::iter::once(&status["phase"])
        .chain(members("conditions", ["type", "status"]))
        .chain(states)
        .collect()
}

/// The controller of an object.
fn owner(object: &Value) -> Option<Reference> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let controller = owners.iter().find(|owner| owner["controller"] == true)?;
    Some(Reference {
        api_version: text(&controller["apiVersion"]),
        kind: text(&controller["kind"]),
        name: text(&controller["name"]),
        namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
    })
}

/// The node that a DaemonSet's pod wants, or the one that there is.
fn node(pod: &Value) -> &str {
    let wanted = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0\
                  /matchFields/0/values/0";
    pod.pointer(wanted).and_then(Value::as_str).unwrap_or(NODE)
}
