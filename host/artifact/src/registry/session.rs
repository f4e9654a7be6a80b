//! Authenticates at a repository: answers a registry's challenge, keeps the answer for the next request, and retries an
//! exchange.
//!
//! Credentials are sent to the registry that they are for, and to the token service that this registry names. They
//! reach no other host: a redirect drops them, and a token service's redirects are not followed.

use std::sync::Arc;

use bytes::Bytes;
use http_auth::ChallengeParser;
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::quoted;
use crate::registry::http::{Answer, Body, Endpoint, Request, error, pause, worth_another_attempt};
use crate::{ArtifactError, Credentials, ErrorKind};

/// The largest response of a token service, in bytes.
const TOKEN_LIMIT: u64 = 64 << 10;
/// The longest challenge that is read, in bytes.
const CHALLENGE_LIMIT: usize = 4 << 10;

/// The largest body that has the time limit of an exchange, in bytes; a larger one has that of a transfer.
const SMALL_BODY: usize = 64 << 10;

/// The scope of a token in the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Pull,
    Push,
}

/// A repository of a registry, with credentials.
pub(crate) struct Session {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) repository: String,
    credentials: Credentials,
    /// The Authorization headers that the registry accepted, for pull and for push.
    accepted: Mutex<[Option<HeaderValue>; 2]>,
}

enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

impl Session {
    pub(crate) fn new(endpoint: Arc<Endpoint>, repository: &str, credentials: Credentials) -> Self {
        Self {
            endpoint,
            repository: repository.to_owned(),
            credentials,
            accepted: Mutex::default(),
        }
    }

    /// A URL of the repository.
    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.endpoint.base.clone();
        url.set_path(&format!("v2/{}/{path}", self.repository));
        url
    }

    /// Sends a request until it succeeds, with a response of at most this many bytes, or until a retry is of no use.
    pub(crate) async fn exchange(
        &self,
        request: &Request<'_>,
        scope: Scope,
        limit: u64,
    ) -> Result<Answer, ArtifactError> {
        self.attempt(request, scope, limit, self.endpoint.limits.attempts).await
    }

    /// The same, with a number of attempts.
    pub(crate) async fn attempt(
        &self,
        request: &Request<'_>,
        scope: Scope,
        limit: u64,
        attempts: u32,
    ) -> Result<Answer, ArtifactError> {
        let limits = &self.endpoint.limits;
        // An upload gets the time limit of a download.
        let time = match request.body {
            Body::None => limits.exchange,
            Body::Bytes(bytes) if bytes.len() <= SMALL_BODY => limits.exchange,
            Body::Bytes(_) | Body::File(..) => limits.transfer,
        };
        let mut failed = 0;
        loop {
            let deadline = Instant::now() + time;
            let attempt = timeout_at(deadline, async {
                let mut response = self.send(request, scope).await?;
                let body = match request.method {
                    Method::HEAD => Bytes::new(),
                    _ => self.endpoint.read(&mut response, limit, request.what).await?,
                };
                Ok(Answer {
                    status: response.status(),
                    headers: std::mem::take(response.headers_mut()),
                    body,
                    url: response.url().clone(),
                })
            });
            let error = match attempt.await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => self.endpoint.late(request.what, time),
            };
            failed += 1;
            if failed >= attempts || !worth_another_attempt(&error) {
                return Err(error);
            }
            let wait = pause(limits, failed, &error);
            tracing::debug!(%error, ?wait, "retrying a request to a registry");
            sleep(wait).await;
        }
    }

    /// Sends a request once, and once more with the authentication that the registry requires. The response has a
    /// successful status; its body is not read. The caller limits the time.
    pub(crate) async fn send(&self, request: &Request<'_>, scope: Scope) -> Result<Response, ArtifactError> {
        let known = self.accepted.lock()[scope as usize].clone();
        let mut anonymous = known.is_none();
        let mut response = self.endpoint.send(request, known.as_ref(), true).await?;
        // A challenge of another host behind a redirect does not get these credentials.
        if response.status() == StatusCode::UNAUTHORIZED && same_server(response.url(), &self.endpoint.base) {
            self.accepted.lock()[scope as usize] = None;
            if let Some(authorization) = self.answer(response.headers(), scope, request.what).await? {
                anonymous = self.credentials == Credentials::Anonymous;
                response = self.endpoint.send(request, Some(&authorization), true).await?;
                if response.status() != StatusCode::UNAUTHORIZED {
                    self.accepted.lock()[scope as usize] = Some(authorization);
                }
            }
        }
        if !response.status().is_success() {
            return Err(self.endpoint.refused(response, request.what, anonymous).await);
        }
        Ok(response)
    }

    /// The answer to a challenge, if the credentials have one.
    async fn answer(
        &self,
        headers: &HeaderMap,
        scope: Scope,
        what: &str,
    ) -> Result<Option<HeaderValue>, ArtifactError> {
        if let Credentials::Bearer(token) = &self.credentials {
            return self.bearer(token, what).map(Some);
        }
        for challenge in challenges(headers) {
            match (challenge, &self.credentials) {
                (Challenge::Bearer { realm, service }, _) => {
                    let token = self.token(&realm, service.as_deref(), scope, what).await?;
                    return self.bearer(&token, what).map(Some);
                }
                (Challenge::Basic, Credentials::Basic { username, password }) => {
                    return self.basic(username, password, what).map(Some);
                }
                (Challenge::Basic, _) => {}
            }
        }
        Ok(None)
    }

    fn basic(&self, username: &str, password: &str, what: &str) -> Result<HeaderValue, ArtifactError> {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
        self.secret(&format!("Basic {text}"), what)
    }

    fn bearer(&self, token: &str, what: &str) -> Result<HeaderValue, ArtifactError> {
        self.secret(&format!("Bearer {token}"), what)
    }

    fn secret(&self, text: &str, what: &str) -> Result<HeaderValue, ArtifactError> {
        let mut value = HeaderValue::from_str(text).map_err(|_| {
            let cause = format!(
                "the token for {} has characters that no header may have",
                self.endpoint.host
            );
            error(ErrorKind::Protocol, what, &cause)
        })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Requests a token from the token service that the registry names.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Scope,
        what: &str,
    ) -> Result<String, ArtifactError> {
        let endpoint = &self.endpoint;
        let wrong = |problem: &str| {
            let cause = format!(
                "{} names the token service {}, which is refused: {problem}",
                endpoint.host,
                quoted(realm)
            );
            error(ErrorKind::Protocol, what, &cause)
        };
        // A path alone is one of the registry itself.
        let mut url = endpoint.base.join(realm).map_err(|_| wrong("it is no URL"))?;
        endpoint
            .may_visit(&url)
            .map_err(|problem| wrong(&format!("it leads {problem}")))?;
        let actions = match scope {
            Scope::Pull => "pull",
            Scope::Push => "pull,push",
        };
        let scope = format!("repository:{}:{actions}", self.repository);
        let mut parameters = vec![("scope", scope.as_str())];
        parameters.extend(service.map(|service| ("service", service)));
        let form;
        let request = if let Credentials::IdentityToken(token) = &self.credentials {
            parameters.extend([
                ("grant_type", "refresh_token"),
                ("client_id", "pilothouse"),
                ("refresh_token", token.as_str()),
            ]);
            form = Bytes::from(encode(&parameters));
            Request::new(Method::POST, url, what)
                .header(
                    CONTENT_TYPE,
                    HeaderValue::from_static("application/x-www-form-urlencoded"),
                )
                .body(Body::Bytes(&form))
        } else {
            url.query_pairs_mut().extend_pairs(parameters);
            Request::new(Method::GET, url, what)
        };
        let authorization = match &self.credentials {
            Credentials::Basic { username, password } => Some(self.basic(username, password, what)?),
            _ => None,
        };
        let mut response = endpoint.send(&request, authorization.as_ref(), false).await?;
        if !response.status().is_success() {
            let anonymous = self.credentials == Credentials::Anonymous;
            return Err(endpoint.refused(response, what, anonymous).await);
        }
        let body = endpoint.read(&mut response, TOKEN_LIMIT, what).await?;
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let unusable = || endpoint.answered_otherwise(&format!("{what}: the token service"), media_type, "a token");
        let answer: TokenAnswer = serde_json::from_slice(&body).map_err(|_| unusable())?;
        // Some services name both, and one of them is empty.
        let tokens = [answer.token, answer.access_token].into_iter().flatten();
        tokens
            .map(|token| token.trim().to_owned())
            .find(|token| !token.is_empty())
            .ok_or_else(unusable)
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

fn encode(parameters: &[(&str, &str)]) -> String {
    let mut url = Url::parse("https://form/").expect("it is a URL");
    url.query_pairs_mut().extend_pairs(parameters);
    url.query().unwrap_or_default().to_owned()
}

pub(crate) fn same_server(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

/// The challenges of the registry, tokens before passwords.
fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let texts = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .filter_map(|it| it.to_str().ok());
    let mut found = Vec::new();
    for text in texts.filter(|text| text.len() <= CHALLENGE_LIMIT).take(8) {
        for challenge in ChallengeParser::new(text).map_while(Result::ok) {
            let parameter = |name: &str| {
                let mut parameters = challenge.params.iter();
                parameters
                    .find(|(key, _)| key.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value.to_unescaped())
            };
            if challenge.scheme.eq_ignore_ascii_case("basic") {
                found.push(Challenge::Basic);
            } else if challenge.scheme.eq_ignore_ascii_case("bearer")
                && let Some(realm) = parameter("realm")
            {
                let service = parameter("service");
                found.insert(0, Challenge::Bearer { realm, service });
            }
        }
    }
    found
}
