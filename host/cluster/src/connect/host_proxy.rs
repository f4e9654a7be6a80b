//! Sends requests of a command, or of another replica, to the API of a host in the cluster, through the API server's
//! proxy to the host's Service. So the command needs nothing but a kubeconfig.
//!
//! The API server requires the right `get` on `services/proxy`, and does not forward the user: it removes
//! `Authorization`. So the token for the host is sent in a header of its own. Best is a token made for the host: it is
//! of no use elsewhere, while the token of the kubeconfig is worth as much as its user.

use std::time::Duration;

use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::connect::kubeconfig::Connection;
use crate::connect::{ClusterTarget, ConnectError, configuration};
use crate::error::RequestError;
use crate::write::send::{REQUEST_TIMEOUT, send};

/// The header in which the host expects a token.
pub const TOKEN_HEADER: &str = "pilothouse-authorization";

/// The lifetime of a token made for a request: the shortest that API servers allow.
const TOKEN_LIFETIME: Duration = Duration::from_mins(10);

/// The largest answer, in bytes: a recording is several times smaller.
const LARGEST_ANSWER: usize = 64 << 20;

/// The Service of a host's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name or number of its port.
    pub port: String,
}

/// The answer of the host, or of the API server in front of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedAnswer {
    /// The HTTP status code.
    pub code: u16,
    /// The body.
    pub body: String,
}

/// Requests a path with its query from a host, with a token.
pub async fn ask(
    client: &Client,
    service: &HostService,
    path: &str,
    token: Option<&str>,
) -> Result<ProxiedAnswer, RequestError> {
    let HostService { namespace, name, port } = service;
    let garbled = |error: &dyn std::fmt::Display| RequestError::Garbled(error.to_string());
    let mut request = Request::builder()
        .uri(format!(
            "/api/v1/namespaces/{namespace}/services/https:{name}:{port}/proxy{path}"
        ))
        .body(Body::empty())
        .map_err(|error| garbled(&error))?;
    if let Some(token) = token {
        let mut shown = HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| garbled(&error))?;
        shown.set_sensitive(true);
        request.headers_mut().insert(TOKEN_HEADER, shown);
    }
    let exchange = async {
        let response = client.send(request).await?;
        let code = response.status().as_u16();
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| garbled(&error))?;
        let body = String::from_utf8(body.to_bytes().into()).map_err(|error| garbled(&error))?;
        Ok(ProxiedAnswer { code, body })
    };
    tokio::time::timeout(REQUEST_TIMEOUT, exchange)
        .await
        .unwrap_or(Err(RequestError::Silent(REQUEST_TIMEOUT)))
}

/// Requests a token for a ServiceAccount that only the host accepts; it is valid for ten minutes.
pub async fn token_for(
    client: &Client,
    namespace: &str,
    account: &str,
    audience: &str,
) -> Result<String, RequestError> {
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [audience], "expirationSeconds": TOKEN_LIFETIME.as_secs()},
    });
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!(
            "/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        ))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string().into_bytes()))
        .map_err(|error| RequestError::Garbled(error.to_string()))?;
    let (_, text) = send(client, request).await?;
    let answer: Value = serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))?;
    let token = answer["status"]["token"].as_str();
    let token = token.ok_or_else(|| RequestError::Garbled("it has no status.token".to_owned()))?;
    Ok(token.to_owned())
}

/// The token of the kubeconfig's user for the API server; none if the user has a certificate, for example.
pub async fn own_token(target: &ClusterTarget) -> Result<Option<String>, ConnectError> {
    let Connection { config, tokens, .. } = configuration(target).await?;
    let Some(tokens) = tokens else {
        return Ok(None);
    };
    let header = tokens.header().await.map_err(|problem| ConnectError::Client {
        server: config.cluster_url.to_string(),
        problem: problem.to_string(),
    })?;
    let token = header
        .as_ref()
        .and_then(|header| header.to_str().ok()?.strip_prefix("Bearer "));
    Ok(token.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use http::Response;
    use http::header::AUTHORIZATION;

    use super::*;

    async fn token_of(user: Value) -> Option<String> {
        let path = std::env::temp_dir().join(format!("token-{}-{}.yaml", std::process::id(), user.to_string().len()));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": user}],
        });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let target = ClusterTarget {
            kubeconfig: Some(path.clone()),
            context: None,
        };
        let token = own_token(&target).await.unwrap();
        std::fs::remove_file(path).unwrap();
        token
    }

    #[tokio::test]
    async fn the_token_of_a_kubeconfig_is_found_where_it_has_one() {
        assert_eq!(token_of(json!({"token": "t"})).await.as_deref(), Some("t"));
        assert_eq!(token_of(json!({})).await, None);
        assert_eq!(token_of(json!({"username": "u", "password": "longer"})).await, None);
    }

    #[tokio::test]
    async fn host_gets_the_token_in_its_own_header_through_the_proxy() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let shown = request
                .headers()
                .get(TOKEN_HEADER)
                .map(|it| it.to_str().unwrap().to_owned());
            let told = json!({"uri": request.uri().to_string(), "shown": shown, "auth": request.headers().contains_key(AUTHORIZATION)});
            let response = Response::builder().status(418);
            Ok::<_, kube::Error>(response.body(Body::from(told.to_string().into_bytes())).unwrap())
        });
        let client = Client::new(service, "default");
        let host = HostService {
            namespace: "system".to_owned(),
            name: "pilothouse".to_owned(),
            port: "api".to_owned(),
        };
        let answer = ask(&client, &host, "/api/v1/objects?kind=a&name=b", Some("t"))
            .await
            .unwrap();
        assert_eq!(answer.code, 418);
        let told: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(
            told,
            json!({
                "uri": "/api/v1/namespaces/system/services/https:pilothouse:api/proxy/api/v1/objects?kind=a&name=b",
                "shown": "Bearer t", "auth": false,
            })
        );
    }
}
