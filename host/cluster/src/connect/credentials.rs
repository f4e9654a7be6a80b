//! Presents the token of a kubeconfig's user: a fixed one, one from a file, or one from a credential helper (`exec`),
//! as client-go does. kube's own implementation panics on a token with a line feed, runs a helper three times, and does
//! not tell how to install a missing one.

use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Age at which a token file is read again.
const FILE_AGE: Duration = Duration::from_mins(1);
/// Remaining time at which a helper's token counts as expired.
const LEEWAY: Duration = Duration::from_secs(10);
/// Shortest time between two runs of a helper that a refused token causes.
const REFUSED_AGE: Duration = Duration::from_secs(10);
/// The expiration of a token that has none: long enough, and no overflow.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);

/// The credentials are not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CredentialError(String);

/// The origin of a token.
#[derive(Debug)]
pub(crate) enum Source {
    /// The kubeconfig itself.
    Fixed(String),
    /// A file that is rotated, and the fallback token while it cannot be read.
    File(PathBuf, Option<String>),
    /// A credential helper.
    Helper(Helper),
}

/// A credential helper.
#[derive(Clone, Debug)]
pub(crate) struct Helper {
    pub(crate) user: String,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// `client.authentication.k8s.io/` with a version.
    pub(crate) api_version: String,
    pub(crate) install_hint: Option<String>,
    /// Set if it may use the terminal.
    pub(crate) is_interactive: bool,
    /// The cluster's part of the kubeconfig, if the helper wants it.
    pub(crate) cluster: Option<Value>,
}

/// Credentials that a helper has made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) token: Option<String>,
    /// Certificate and key, PEM.
    pub(crate) certificate: Option<(String, String)>,
    expires: Option<SystemTime>,
}

/// The tokens of one user.
#[derive(Debug)]
pub(crate) struct Tokens {
    source: Source,
    known: Mutex<Option<Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    header: Option<HeaderValue>,
    since: Instant,
    due: Instant,
}

impl Tokens {
    /// The tokens of a source, of which one is available already.
    pub(crate) fn new(source: Source) -> Result<Self, CredentialError> {
        let tokens = Self {
            source,
            known: Mutex::default(),
        };
        match &tokens.source {
            Source::Helper(_) => {}
            Source::Fixed(_) | Source::File(..) => drop(tokens.read()?),
        }
        Ok(tokens)
    }

    /// The tokens of a helper that has run.
    pub(crate) fn of_helper(helper: Helper, first: &Credential) -> Result<Self, CredentialError> {
        let tokens = Self::new(Source::Helper(helper))?;
        tokens.keep(first)?;
        Ok(tokens)
    }

    /// The header with the current token; none if the helper makes certificates only.
    pub(crate) async fn header(self: &Arc<Self>) -> Result<Option<HeaderValue>, CredentialError> {
        if let Some(known) = self.current() {
            return Ok(known.header);
        }
        // A helper takes as long as it takes, and a file may be on a mount that hangs.
        let tokens = self.clone();
        let read = tokio::task::spawn_blocking(move || tokens.read()).await;
        read.map_err(|_| CredentialError("the thread that reads the credentials was lost".to_owned()))?
    }

    fn current(&self) -> Option<Known> {
        let known = self.known.lock();
        known.as_ref().filter(|it| Instant::now() < it.due).cloned()
    }

    /// Marks the token as refused: the next request fetches another, unless it has just been fetched.
    fn refuse(&self) {
        if let Some(known) = &mut *self.known.lock()
            && known.since.elapsed() >= REFUSED_AGE
        {
            known.due = Instant::now();
        }
    }

    fn read(&self) -> Result<Option<HeaderValue>, CredentialError> {
        match &self.source {
            Source::Fixed(token) => Ok(self.know(Some(header(token)?), FOR_EVER)),
            Source::File(path, otherwise) => {
                let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
                let read = read.and_then(|text| match text.trim() {
                    "" => Err("it is empty".to_owned()),
                    token => header(token).map_err(|CredentialError(problem)| problem),
                });
                let last = || self.known.lock().as_ref().and_then(|known| known.header.clone());
                let found = match (read.map_or_else(|problem| last().ok_or(problem), Ok), otherwise) {
                    (Ok(found), _) => found,
                    (Err(_), Some(token)) => header(token)?,
                    (Err(problem), None) => {
                        let problem = format!("the token file {} cannot be read: {problem}", path.display());
                        return Err(CredentialError(problem));
                    }
                };
                Ok(self.know(Some(found), FILE_AGE))
            }
            Source::Helper(helper) => self.keep(&helper.run()?),
        }
    }

    fn keep(&self, credential: &Credential) -> Result<Option<HeaderValue>, CredentialError> {
        let header = credential.token.as_deref().map(header).transpose()?;
        let lasts = credential.expires.map_or(FOR_EVER, |expires| {
            expires.duration_since(SystemTime::now()).unwrap_or_default()
        });
        Ok(self.know(header, lasts.min(FOR_EVER).saturating_sub(LEEWAY)))
    }

    fn know(&self, header: Option<HeaderValue>, lasts: Duration) -> Option<HeaderValue> {
        let since = Instant::now();
        let due = since + lasts;
        *self.known.lock() = Some(Known {
            header: header.clone(),
            since,
            due,
        });
        header
    }
}

/// The header of a token, without surrounding white space.
fn header(token: &str) -> Result<HeaderValue, CredentialError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| {
        CredentialError("the token has characters that no header may have, such as a line feed".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

impl Helper {
    /// Runs the helper.
    pub(crate) fn run(&self) -> Result<Credential, CredentialError> {
        let Self {
            user,
            command,
            args,
            env,
            api_version,
            install_hint,
            is_interactive,
            cluster,
        } = self;
        let failed =
            |problem: String| CredentialError(format!("the credential helper {command} of user {user:?} {problem}"));
        let mut spec = json!({"interactive": is_interactive});
        if let Some(cluster) = cluster {
            spec["cluster"] = cluster.clone();
        }
        let info = json!({"kind": "ExecCredential", "apiVersion": api_version, "spec": spec});
        let output = Command::new(command)
            .args(args)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(if *is_interactive {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .stderr(Stdio::inherit())
            .output();
        let output = output.map_err(|error| match (error.kind(), install_hint) {
            (std::io::ErrorKind::NotFound, Some(hint)) => {
                let hint: Vec<&str> = hint.split_whitespace().collect();
                failed(format!("is not installed: {}", hint.join(" ")))
            }
            (std::io::ErrorKind::NotFound, None) => failed("is not installed, or not in PATH; install it".to_owned()),
            _ => failed(format!("cannot be run: {error}")),
        })?;
        if !output.status.success() {
            return Err(failed(format!("failed with {}", output.status)));
        }
        Credential::read(&output.stdout, api_version).map_err(failed)
    }
}

impl Credential {
    /// Parses the output of a helper.
    fn read(printed: &[u8], api_version: &str) -> Result<Self, String> {
        // The output may be a secret, and is not shown.
        let printed = std::str::from_utf8(printed).ok();
        let found = printed.and_then(|text| serde_saphyr::from_str::<Value>(text).ok());
        let found = found.filter(|found| found["kind"] == "ExecCredential");
        let found = found.ok_or_else(|| "did not print an ExecCredential".to_owned())?;
        if found["apiVersion"] != api_version {
            return Err(format!(
                "printed another version than {api_version}, which the kubeconfig asks for"
            ));
        }
        let status = &found["status"];
        let text = |name: &str| status[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let certificate = match (text("clientCertificateData"), text("clientKeyData")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("printed a certificate without a key, or a key without a certificate".to_owned()),
        };
        let token = text("token");
        if token.is_none() && certificate.is_none() {
            return Err("printed neither a token nor a certificate with its key".to_owned());
        }
        let expires = match &status["expirationTimestamp"] {
            Value::Null => None,
            text => {
                let time: Result<Time, _> = serde_json::from_value(text.clone());
                let time = time.map_err(|_| "printed an expirationTimestamp that is no time".to_owned())?;
                let seconds = u64::try_from(time.0.as_second()).unwrap_or_default();
                Some(UNIX_EPOCH + Duration::from_secs(seconds))
            }
        };
        Ok(Self {
            token,
            certificate,
            expires,
        })
    }
}

/// Adds the token to each request that has none of its own.
#[derive(Clone, Debug)]
pub(crate) struct TokenLayer(pub(crate) Option<Arc<Tokens>>);

impl<S> Layer<S> for TokenLayer {
    type Service = WithToken<S>;

    fn layer(&self, inner: S) -> WithToken<S> {
        WithToken {
            inner,
            tokens: self.0.clone(),
            reading: None,
            header: Ok(None),
        }
    }
}

type Reading = Pin<Box<dyn Future<Output = Result<Option<HeaderValue>, CredentialError>> + Send>>;

/// A client with a user's token.
pub(crate) struct WithToken<S> {
    inner: S,
    tokens: Option<Arc<Tokens>>,
    /// The fetch of a token, if one is in progress.
    reading: Option<Reading>,
    /// The header for the next request. A failure is that request's: one of `poll_ready` would end the client.
    header: Result<Option<HeaderValue>, CredentialError>,
}

impl<S, B, R> Service<Request<B>> for WithToken<S>
where
    S: Service<Request<B>, Response = Response<R>, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if let Some(tokens) = &self.tokens {
            let reading = self.reading.get_or_insert_with(|| {
                let tokens = tokens.clone();
                Box::pin(async move { tokens.header().await })
            });
            self.header = ready!(reading.as_mut().poll(context));
            self.reading = None;
        }
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let header = match std::mem::replace(&mut self.header, Ok(None)) {
            Ok(header) => header,
            Err(problem) => return Box::pin(async move { Err(problem.into()) }),
        };
        let is_own = !request.headers().contains_key(AUTHORIZATION);
        if let (true, Some(header)) = (is_own, header) {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let (answer, tokens) = (self.inner.call(request), self.tokens.clone().filter(|_| is_own));
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into)?;
            if let (StatusCode::UNAUTHORIZED, Some(tokens)) = (answer.status(), tokens) {
                tokens.refuse();
            }
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    /// A server that accepts one token, and what it was shown.
    struct Server {
        accepted: &'static str,
        shown: Mutex<Vec<String>>,
    }

    async fn ask(server: &Arc<Server>, tokens: &Arc<Tokens>, own: Option<&str>) -> Result<StatusCode, String> {
        let server = server.clone();
        let answer = tower::service_fn(move |request: Request<()>| {
            let header = request.headers().get(AUTHORIZATION);
            let shown = header.map_or_else(String::new, |it| it.to_str().unwrap().to_owned());
            let status = if shown == server.accepted {
                StatusCode::OK
            } else {
                StatusCode::UNAUTHORIZED
            };
            server.shown.lock().push(shown);
            std::future::ready(Ok::<_, BoxError>(Response::builder().status(status).body(()).unwrap()))
        });
        let mut request = Request::new(());
        if let Some(own) = own {
            request.headers_mut().insert(AUTHORIZATION, own.parse().unwrap());
        }
        let answer = TokenLayer(Some(tokens.clone())).layer(answer).oneshot(request).await;
        answer.map(|answer| answer.status()).map_err(|error| error.to_string())
    }

    fn server(accepted: &'static str) -> Arc<Server> {
        Arc::new(Server {
            accepted,
            shown: Mutex::default(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_file_is_read_again_and_may_go() {
        let path = std::env::temp_dir().join(format!("token-file-{}", std::process::id()));
        std::fs::write(&path, "one\n").unwrap();
        let server = server("Bearer two");
        let tokens = Arc::new(Tokens::new(Source::File(path.clone(), None)).unwrap());
        std::fs::write(&path, "two").unwrap();
        assert_eq!(ask(&server, &tokens, None).await, Ok(StatusCode::UNAUTHORIZED));
        // A token that was refused at once after it was read is not read again at once.
        assert_eq!(ask(&server, &tokens, None).await, Ok(StatusCode::UNAUTHORIZED));
        tokio::time::advance(REFUSED_AGE).await;
        assert_eq!(ask(&server, &tokens, None).await, Ok(StatusCode::UNAUTHORIZED));
        assert_eq!(ask(&server, &tokens, None).await, Ok(StatusCode::OK));
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(FILE_AGE).await;
        assert_eq!(ask(&server, &tokens, None).await, Ok(StatusCode::OK));
        assert_eq!(
            ask(&server, &tokens, Some("Basic own")).await,
            Ok(StatusCode::UNAUTHORIZED)
        );
        assert_eq!(server.shown.lock().last().unwrap(), "Basic own");
    }

    #[tokio::test(start_paused = true)]
    async fn a_helper_runs_once_until_its_token_expires() {
        let runs = std::env::temp_dir().join(format!("helper-runs-{}", std::process::id()));
        let version = "client.authentication.k8s.io/v1";
        let expires = jiff_text(SystemTime::now() + Duration::from_secs(70));
        let script = format!(
            "test -e {0}.broken && exit 1; echo run >> {0}; echo '{{\"kind\": \"ExecCredential\", \"apiVersion\": \"{version}\", \
             \"status\": {{\"token\": \"made\", \"expirationTimestamp\": \"{expires}\"}}}}'",
            runs.display()
        );
        let helper = Helper {
            user: "me".to_owned(),
            command: "sh".to_owned(),
            args: vec!["-c".to_owned(), script],
            env: Vec::new(),
            api_version: version.to_owned(),
            install_hint: None,
            is_interactive: false,
            cluster: None,
        };
        let counted = || std::fs::read_to_string(&runs).unwrap().lines().count();
        let first = helper.run().unwrap();
        let tokens = Arc::new(Tokens::of_helper(helper, &first).unwrap());
        let server = server("Bearer made");
        for _ in 0..3 {
            assert_eq!(ask(&server, &tokens, None).await, Ok(StatusCode::OK));
        }
        assert_eq!(counted(), 1);
        // A helper that fails is one request's failure, and not the client's end.
        let broken = PathBuf::from(format!("{}.broken", runs.display()));
        std::fs::write(&broken, "").unwrap();
        tokio::time::advance(Duration::from_secs(61)).await;
        let problem = ask(&server, &tokens, None).await.unwrap_err();
        assert!(
            problem.contains("credential helper sh of user \"me\" failed"),
            "{problem}"
        );
        std::fs::remove_file(&broken).unwrap();
        assert_eq!(ask(&server, &tokens, None).await, Ok(StatusCode::OK));
        assert_eq!(counted(), 2);
        std::fs::remove_file(&runs).unwrap();
    }

    fn jiff_text(time: SystemTime) -> String {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let seconds = i64::try_from(seconds).unwrap();
        let time = k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap();
        serde_json::to_value(Time(time)).unwrap().as_str().unwrap().to_owned()
    }
}
