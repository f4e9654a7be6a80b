//! Small host for the kit's own tests: it copies every ConfigMap that carries its label, and can be given faults.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use pilothouse_testkit::{
    cluster::Cluster,
    host::{HostError, SteeredHost, SteeredPlugin},
};
use serde_json::json;
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
};

/// Fault of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The host writes even without a change.
    WritesAlways,
    /// The host ends by itself.
    Ends,
    /// The host leaves a task behind when it is stopped.
    LeavesTasks,
}

pub struct Mirror {
    fault: Fault,
    running: Option<(JoinHandle<()>, mpsc::Sender<()>)>,
    log: Arc<parking_lot::Mutex<String>>,
}

impl Mirror {
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            running: None,
            log: Arc::default(),
        }
    }
}

impl SteeredHost for Mirror {
    async fn start(&mut self, cluster: &Cluster, _: &[SteeredPlugin]) -> Result<(), HostError> {
        let client = cluster.host_client().await?;
        let (resync, resyncs) = mpsc::channel(1);
        let worker = Worker {
            client,
            fault: self.fault,
            log: self.log.clone(),
            seen: Arc::default(),
        };
        self.running = Some((tokio::spawn(worker.run(resyncs)), resync));
        Ok(())
    }

    async fn resync(&mut self) -> Result<(), HostError> {
        let (_, resync) = self.running.as_ref().ok_or("it does not run")?;
        Ok(resync.send(()).await?)
    }

    async fn stop(&mut self) -> Result<Vec<String>, HostError> {
        let (task, _) = self.running.take().ok_or("it does not run")?;
        task.abort();
        Ok(if self.fault == Fault::LeavesTasks {
            vec!["a task was left".to_owned()]
        } else {
            Vec::new()
        })
    }

    fn failure(&mut self) -> Option<String> {
        let (task, _) = self.running.as_ref()?;
        task.is_finished().then(|| "the host ended by itself".to_owned())
    }

    fn log_tail(&self) -> String {
        self.log.lock().clone()
    }
}

#[derive(Clone)]
struct Worker {
    client: Client,
    fault: Fault,
    log: Arc<parking_lot::Mutex<String>>,
    seen: Arc<Mutex<BTreeMap<(String, String), ConfigMap>>>,
}

impl Worker {
    async fn run(self, mut resyncs: mpsc::Receiver<()>) {
        let api: Api<ConfigMap> = Api::all(self.client.clone());
        let mut primaries = watcher(api.clone(), watcher::Config::default().labels("mirror=yes"))
            .default_backoff()
            .applied_objects()
            .boxed();
        let mut copies = watcher(api, watcher::Config::default().labels("mirror!=yes"))
            .default_backoff()
            .touched_objects()
            .boxed();
        loop {
            tokio::select! {
                Ok(Some(primary)) = primaries.try_next() => {
                    if self.fault == Fault::Ends {
                        return;
                    }
                    let key = (primary.namespace().unwrap_or_default(), primary.name_any());
                    self.seen.lock().await.insert(key, primary.clone());
                    self.copy(&primary).await;
                }
                Ok(Some(copy)) = copies.try_next() => {
                    let name = copy.name_any().trim_end_matches("-copy").to_owned();
                    let key = (copy.namespace().unwrap_or_default(), name);
                    let primary = self.seen.lock().await.get(&key).cloned();
                    if let Some(primary) = primary.filter(|_| self.fault == Fault::None) {
                        self.copy(&primary).await;
                    }
                }
                Some(()) = resyncs.recv() => {
                    let all: Vec<ConfigMap> = self.seen.lock().await.values().cloned().collect();
                    for primary in all {
                        self.copy(&primary).await;
                    }
                }
            }
        }
    }

    async fn copy(&self, primary: &ConfigMap) {
        let namespace = primary.namespace().unwrap_or_default();
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &namespace);
        let alive = api.get_opt(&primary.name_any()).await.ok().flatten();
        if alive.is_none_or(|alive| alive.metadata.deletion_timestamp.is_some()) {
            return;
        }
        let name = format!("{}-copy", primary.name_any());
        let existing = api.get_opt(&name).await.ok().flatten();
        if self.fault != Fault::WritesAlways && existing.is_some_and(|copy| copy.data == primary.data) {
            return;
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": [primary.controller_owner_ref(&())]},
            "data": primary.data,
        });
        let parameters = PatchParams::apply("pilothouse/mirror").force();
        let result = api.patch(&name, &parameters, &Patch::Apply(&body)).await;
        let line = match result {
            Ok(_) => format!("copied {}\n", primary.name_any()),
            Err(error) => format!("failed {}: {error}\n", primary.name_any()),
        };
        self.log.lock().push_str(&line);
    }
}
