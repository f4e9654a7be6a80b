//! Reads and writes the ConfigMap with the plan of shards. [`pilothouse_core::replicas::shards`] decides its content.

use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use crate::error::RequestError;
use crate::resources::own_object::{OwnKind, OwnObject, is_ours};

/// The kind. Only the leader's writes pass the fence.
const CONFIG_MAP: OwnKind = OwnKind {
    api_version: "v1",
    kind: "ConfigMap",
    plural: "configmaps",
    is_unfenced: false,
};

/// The key of the plan.
const KEY: &str = "plan.json";

/// The ConfigMap as it was read.
#[derive(Clone, Debug)]
pub struct LivePlan(Value);

impl LivePlan {
    /// Reports whether a host has created it, and not other software.
    pub fn is_ours(&self) -> bool {
        is_ours(&self.0)
    }

    /// The plan's text; empty if there is none.
    pub fn text(&self) -> &str {
        self.0["data"][KEY].as_str().unwrap_or_default()
    }
}

/// The plan of one host's replicas.
#[derive(Clone)]
pub struct ShardPlanApi(OwnObject);

impl ShardPlanApi {
    /// The ConfigMap of this name, with a time-out for each request.
    pub fn new(client: Client, namespace: String, name: String, timeout: Duration) -> Self {
        Self(OwnObject {
            client,
            kind: CONFIG_MAP,
            namespace,
            name,
            timeout,
        })
    }

    /// Its namespace and name, for messages.
    pub fn title(&self) -> String {
        self.0.title()
    }

    /// The live plan, if there is one.
    pub async fn read(&self) -> Result<Option<LivePlan>, RequestError> {
        Ok(self.0.read().await?.map(LivePlan))
    }

    /// Writes the plan if it is unchanged, or still does not exist. False means that it has changed.
    pub async fn write(&self, live: Option<&LivePlan>, text: &str) -> Result<bool, RequestError> {
        let mut object = live.map_or_else(|| self.0.empty(), |live| live.0.clone());
        object["data"][KEY] = json!(text);
        Ok(self.0.write(&object, live.is_none()).await?.is_some())
    }

    /// Deletes the plan if it is unchanged.
    pub async fn delete(&self, live: &LivePlan) -> Result<(), RequestError> {
        self.0.delete(&live.0).await
    }
}
