//! Client of the simulated cluster without sockets, for the tests beside it.

use http_body_util::{BodyExt as _, Full};
use pilothouse_simulator::{Clock, Controllers, Options, ResponseBody, Simulator, TransportError};
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub struct Client(pub Simulator);

impl Client {
    pub fn new() -> Self {
        Self::with(Controllers::default())
    }

    /// Without controllers that write on their own.
    pub fn quiet() -> Self {
        let controllers = Controllers {
            namespace: false,
            ..Controllers::default()
        };
        Self::with(controllers)
    }

    pub fn with(controllers: Controllers) -> Self {
        let clock = Clock::virtual_time();
        Self(Simulator::new(Options {
            controllers,
            clock,
            ..Options::default()
        }))
    }

    pub async fn try_send(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(u16, http::HeaderMap, ResponseBody), TransportError> {
        let media = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media)
            .header("user-agent", "tests/1")
            .header("impersonate-user", "somebody")
            .body(Full::new(bytes::Bytes::from(body.to_owned())))
            .expect("the test's request is well formed");
        let response = self.0.service().oneshot(request).await?;
        let (parts, body) = response.into_parts();
        Ok((parts.status.as_u16(), parts.headers, body))
    }

    pub async fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (status, _, body) = self.try_send(method, path, &text).await.expect("no fault is injected");
        let bytes = body.collect().await.expect("bodies do not fail").to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, Value::Null).await
    }

    pub async fn config_map(&self, name: &str, extra: Value) -> Value {
        let mut metadata = json!({"name": name});
        for (name, value) in extra.as_object().into_iter().flatten() {
            metadata[name] = value.clone();
        }
        let (status, object) = self.send("POST", CONFIG_MAPS, json!({"metadata": metadata})).await;
        assert_eq!(status, 201, "{object}");
        object
    }

    pub async fn watch(&self, path: &str) -> Watch {
        let (status, _, body) = self
            .try_send("GET", path, "")
            .await
            .expect("no fault breaks the connection");
        assert_eq!(status, 200);
        Watch(body)
    }
}

pub struct Watch(ResponseBody);

impl Watch {
    /// The next event, or None when the watch has ended.
    pub async fn next(&mut self) -> Option<Value> {
        let frame = self.0.frame().await?.expect("bodies do not fail");
        let bytes = frame.into_data().expect("watches have no trailers");
        Some(serde_json::from_slice(&bytes).expect("an event is JSON"))
    }

    pub async fn kinds(&mut self, count: usize) -> Vec<String> {
        let mut kinds = Vec::new();
        for _ in 0..count {
            let event = self.next().await.expect("the watch goes on");
            kinds.push(event["type"].as_str().expect("an event has a type").to_owned());
        }
        kinds
    }
}

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"]
        .as_str()
        .expect("an object has a resource version")
}
