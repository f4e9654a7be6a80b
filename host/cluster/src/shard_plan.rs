//! Owns reading and writing the ConfigMap with the plan of shards. What is in it is decided in
//! [`pilothouse_core::shards`].

use std::time::Duration;

use http::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::error::RequestError;
use crate::write::send;

/// The label by which the plan is known to be one of Pilothouse, and its value.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "pilothouse");

/// The key of the plan.
const KEY: &str = "plan.json";

/// The ConfigMap as it was read or written.
#[derive(Clone, Debug)]
pub struct LivePlan {
    object: Value,
}

impl LivePlan {
    /// Whether a host has made it, and not other software.
    pub fn is_ours(&self) -> bool {
        let (label, value) = MANAGED_BY;
        self.object["metadata"]["labels"][label] == value
    }

    /// The plan's text; empty if there is none.
    pub fn text(&self) -> &str {
        self.object["data"][KEY].as_str().unwrap_or_default()
    }
}

/// The plan of one host's replicas.
#[derive(Clone)]
pub struct ShardPlanApi {
    client: Client,
    namespace: String,
    name: String,
    timeout: Duration,
}

impl ShardPlanApi {
    /// The ConfigMap of this name; each request may take so long.
    pub fn new(client: Client, namespace: String, name: String, timeout: Duration) -> Self {
        Self {
            client,
            namespace,
            name,
            timeout,
        }
    }

    /// Namespace and name, for people.
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The plan as it is now; none if there is none.
    pub async fn read(&self) -> Result<Option<LivePlan>, RequestError> {
        match self.exchange(Method::GET, &self.path(), None).await {
            Ok(plan) => Ok(Some(plan)),
            Err(error) if error.is_object_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the plan if it still is as it was read, or still is not there. False means that it is not. The request passes
    /// the fence for the leader alone.
    pub async fn write(&self, live: Option<&LivePlan>, text: &str) -> Result<bool, RequestError> {
        let (label, value) = MANAGED_BY;
        let mut object = live.map_or_else(
            || {
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"namespace": self.namespace, "name": self.name, "labels": {label: value}},
                })
            },
            |live| live.object.clone(),
        );
        object["data"][KEY] = json!(text);
        let written = match live {
            Some(_) => self.exchange(Method::PUT, &self.path(), Some(&object)).await,
            None => self.exchange(Method::POST, &self.collection(), Some(&object)).await,
        };
        match written {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(StatusCode::CONFLICT.as_u16()) => Ok(false),
            Err(error) if live.is_some() && error.is_object_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn exchange(&self, method: Method, path: &str, object: Option<&Value>) -> Result<LivePlan, RequestError> {
        let garbled = |error: &dyn std::fmt::Display| RequestError::Garbled(error.to_string());
        let body = object.map_or_else(Vec::new, |object| object.to_string().into_bytes());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| garbled(&error))?;
        let answer = tokio::time::timeout(self.timeout, send(&self.client, request)).await;
        let (_, text) = answer.unwrap_or(Err(RequestError::Silent(self.timeout)))?;
        let object = serde_json::from_str(&text).map_err(|error| garbled(&error))?;
        Ok(LivePlan { object })
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }
}
