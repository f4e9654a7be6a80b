//! Sends requests as the host or as a ServiceAccount, so that API servers check the rights of that account. The host
//! impersonates it, or presents a token that it has requested for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::error::RequestError;
use crate::fence::Unfenced;
use crate::write::permissions::Permission;
use crate::write::send::send;

/// The header that names the user to be impersonated:
/// <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>.
const IMPERSONATE_USER: &str = "impersonate-user";

/// The requested lifetime of a token. The API server may shorten or extend it.
const LIFETIME: Duration = Duration::from_hours(1);

/// A ServiceAccount as which the host acts.
#[derive(Clone, Debug)]
pub struct Impersonation {
    namespace: String,
    name: String,
    user: HeaderValue,
    /// Tokens; none means impersonation. No groups are sent: the API server adds a ServiceAccount's groups itself, so
    /// the host needs the right to impersonate this account only, and no group.
    tokens: Option<AccountTokens>,
}

/// The tokens of ServiceAccounts, and a client without credentials of its own: a client certificate would take
/// precedence over a token.
#[derive(Clone)]
pub struct AccountTokens {
    bare: Client,
    known: Arc<Mutex<HashMap<(String, String), TokenSlot>>>,
}

/// The token of one account. The first caller requests it, and others wait for it.
type TokenSlot = Arc<tokio::sync::Mutex<Option<Token>>>;

#[derive(Clone)]
struct Token {
    value: HeaderValue,
    /// The time at which another token is requested.
    due: Instant,
}

impl fmt::Debug for AccountTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AccountTokens").finish_non_exhaustive()
    }
}

impl AccountTokens {
    /// Starts without tokens, for a client without credentials.
    pub fn new(bare: Client) -> Self {
        Self {
            bare,
            known: Arc::default(),
        }
    }

    fn slot(&self, namespace: &str, name: &str) -> TokenSlot {
        let mut known = self.known.lock();
        let key = (namespace.to_owned(), name.to_owned());
        known.entry(key).or_default().clone()
    }
}

impl Impersonation {
    /// A ServiceAccount by namespace and name; none if these are invalid in a header.
    pub fn of_service_account(namespace: &str, name: &str, tokens: Option<&AccountTokens>) -> Option<Self> {
        let user = HeaderValue::try_from(format!("system:serviceaccount:{namespace}:{name}"));
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            user: user.ok()?,
            tokens: tokens.cloned(),
        })
    }

    /// The namespace of the ServiceAccount.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the ServiceAccount.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user name at the API servers.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that API servers assign to every ServiceAccount of its namespace:
    pub(crate) fn groups(&self) -> [String; 3] {
        [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }

    /// The mode, as in `--identity`.
    pub fn mode(&self) -> &'static str {
        match self.tokens {
            None => "impersonate",
            Some(_) => "token",
        }
    }

    /// The right that the host needs to act so.
    pub fn permission(&self) -> Permission {
        let (resource, verb) = match self.tokens {
            None => ("serviceaccounts", "impersonate"),
            Some(_) => ("serviceaccounts/token", "create"),
        };
        Permission {
            group: String::new(),
            resource: resource.to_owned(),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            verb,
        }
    }

    /// Sends a request as this account.
    pub(crate) async fn send(
        &self,
        client: &Client,
        mut request: Request<Body>,
    ) -> Result<(StatusCode, String), RequestError> {
        let Some(tokens) = &self.tokens else {
            request.headers_mut().insert(IMPERSONATE_USER, self.user.clone());
            return send(client, request).await;
        };
        let slot = tokens.slot(&self.namespace, &self.name);
        let token = self.token(client, &slot).await?;
        request.headers_mut().insert(AUTHORIZATION, token.value.clone());
        let answer = send(&tokens.bare, request).await;
        if answer.as_ref().is_err_and(|error| error.code() == Some(401)) {
            // The token ended early, for example because the account was deleted and recreated.
            let mut slot = slot.lock().await;
            if slot.as_ref().is_some_and(|known| known.value == token.value) {
                *slot = None;
            }
        }
        answer
    }

    /// Credentials for requests as this account whose responses are longer than [`Impersonation::send`] reads.
    pub(crate) async fn reader(&self, client: &Client) -> Result<Reader, RequestError> {
        let Some(tokens) = &self.tokens else {
            return Ok(Reader {
                client: client.clone(),
                credentials: Some((HeaderName::from_static(IMPERSONATE_USER), self.user.clone())),
            });
        };
        let slot = tokens.slot(&self.namespace, &self.name);
        let token = self.token(client, &slot).await?;
        Ok(Reader {
            client: tokens.bare.clone(),
            credentials: Some((AUTHORIZATION, token.value)),
        })
    }

    /// The known token, or a new one. A token that is due is used if no new one is available.
    async fn token(&self, client: &Client, slot: &TokenSlot) -> Result<Token, RequestError> {
        let mut slot = slot.lock().await;
        if let Some(token) = slot.as_ref().filter(|token| Instant::now() < token.due) {
            return Ok(token.clone());
        }
        let token = self.request_token(client).await?;
        *slot = Some(token.clone());
        Ok(token)
    }

    /// Requests a token: <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/>.
    async fn request_token(&self, client: &Client) -> Result<Token, RequestError> {
        let begun = Instant::now();
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFETIME.as_secs()},
        });
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}/token",
            self.namespace, self.name
        );
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            // It changes nothing, so every replica may make it, whichever shard it has.
            .extension(Unfenced)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string().into_bytes()))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        let (_, text) = send(client, request).await.map_err(|error| self.no_token(error))?;
        let garbled = |problem: &str| RequestError::Garbled(format!("a token request: {problem}"));
        let answer: Value = serde_json::from_str(&text).map_err(|error| garbled(&error.to_string()))?;
        let value = answer["status"]["token"].as_str().unwrap_or_default();
        let value = HeaderValue::try_from(format!("Bearer {value}")).map_err(|_| garbled("this is no token"))?;
        let seconds = answer["spec"]["expirationSeconds"]
            .as_u64()
            .filter(|seconds| *seconds > 0);
        let lifetime = seconds.map_or(LIFETIME, Duration::from_secs);
        Ok(Token {
            value: sensitive(value),
            // As kubelet does it, with a fifth of the time left.
            due: begun + lifetime.mul_f64(0.8),
        })
    }

    /// Converts a refused token request, which says nothing about the object of the request.
    fn no_token(&self, error: RequestError) -> RequestError {
        let Some(code) = error.code() else { return error };
        let account = format!("{}/{}", self.namespace, self.name);
        let next = match code {
            404 => format!(
                "create it: kubectl create serviceaccount {} --namespace {}",
                self.name, self.namespace
            ),
            403 => "grant the host the verb create on serviceaccounts/token with this name".to_owned(),
            _ => "retrying".to_owned(),
        };
        RequestError::NoToken(format!(
            "there is no token for ServiceAccount {account}: {error}; {next}"
        ))
    }
}

/// Marks a value as sensitive, so that it is not logged.
fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// The client and credentials for lists.
pub(crate) struct Reader {
    pub(crate) client: Client,
    pub(crate) credentials: Option<(HeaderName, HeaderValue)>,
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;

    use super::*;

    /// The requests that servers received: path and token.
    type Asked = Arc<Mutex<Vec<String>>>;

    /// A client whose server answers by what it was asked so far.
    fn client(
        name: &'static str,
        asked: &Asked,
        answer: impl Fn(usize) -> (u16, Value) + Clone + Send + 'static,
    ) -> Client {
        let asked = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let token = request.headers().get(AUTHORIZATION);
            let token = token.map(|token| token.to_str().expect("it is a text").to_owned());
            let line = format!("{name} {} {}", request.uri().path(), token.unwrap_or_default());
            let mut lines = asked.lock();
            let (code, body) = answer(lines.iter().filter(|line| line.starts_with(name)).count());
            lines.push(line.trim_end().to_owned());
            let response = Response::builder()
                .status(code)
                .body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(response.expect("it is a response")) }
        });
        Client::new(service, "default")
    }

    fn token(number: usize) -> (u16, Value) {
        (
            201,
            json!({"spec": {"expirationSeconds": 600}, "status": {"token": format!("t{number}")}}),
        )
    }

    fn acting(bare: Client) -> Impersonation {
        let acting = Impersonation::of_service_account("system", "web", Some(&AccountTokens::new(bare)));
        acting.expect("these are names")
    }

    async fn get(acting: &Impersonation, host: &Client) -> Result<(StatusCode, String), RequestError> {
        let request = Request::builder().uri("/api").body(Body::empty());
        acting.send(host, request.expect("it is a request")).await
    }

    const TOKEN_PATH: &str = "host /api/v1/namespaces/system/serviceaccounts/web/token";

    #[tokio::test(start_paused = true)]
    async fn a_token_is_requested_once_and_again_before_it_ends() {
        let asked = Asked::default();
        let host = client("host", &asked, token);
        let acting = acting(client("bare", &asked, |_| (200, json!({}))));
        for _ in 0..2 {
            assert!(get(&acting, &host).await.is_ok());
        }
        tokio::time::advance(Duration::from_secs(479)).await;
        assert!(get(&acting, &host).await.is_ok());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(get(&acting, &host).await.is_ok());
        let first = "bare /api Bearer t0";
        assert_eq!(
            *asked.lock(),
            [TOKEN_PATH, first, first, first, TOKEN_PATH, "bare /api Bearer t1"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_not_accepted_any_more_is_forgotten() {
        let asked = Asked::default();
        let host = client("host", &asked, token);
        let answer = |before| {
            if before == 0 {
                (401, json!({}))
            } else {
                (200, json!({}))
            }
        };
        let acting = acting(client("bare", &asked, answer));
        assert_eq!(get(&acting, &host).await.unwrap_err().code(), Some(401));
        assert!(get(&acting, &host).await.is_ok());
        assert_eq!(asked.lock().last().map(String::as_str), Some("bare /api Bearer t1"));
    }

    #[tokio::test(start_paused = true)]
    async fn missing_account_is_not_reported_as_missing_object() {
        let asked = Asked::default();
        let missing = json!({
            "code": 404, "message": "serviceaccounts \"web\" not found", "details": {"name": "web", "kind": "serviceaccounts"},
        });
        let host = client("host", &asked, move |_| (404, missing.clone()));
        let acting = acting(client("bare", &asked, |_| (200, json!({}))));
        let error = get(&acting, &host).await.unwrap_err();
        assert!(!error.is_not_found() && !error.is_object_not_found() && error.code().is_none());
        assert!(
            error
                .to_string()
                .contains("create it: kubectl create serviceaccount web --namespace system"),
            "{error}"
        );
    }
}
