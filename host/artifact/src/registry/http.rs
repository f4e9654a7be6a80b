//! Sends HTTP requests to a registry: every exchange has a limit of bytes and of time, a bounded number of attempts,
//! and an error that names the artifact, the cause and the next step.
//!
//! Uses reqwest and http-auth and not oci-client, because a registry is not trusted. oci-client 0.18 reads manifests,
//! referrers, tokens and error texts of any size (`Response::bytes` and `text`), has no limit of total time (a byte per
//! second passes its read timeout), follows the `urls` of descriptors to any host, picks manifests out of indexes,
//! hides Retry-After and OCI-Subject, and panics on some responses (an upload's Location that is no URL, a token that
//! is no header). Without these, only the path of a repository in a URL would be left of it.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue,
    RETRY_AFTER,
};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Method, Response, StatusCode, Url};
use tokio::time::timeout;

use crate::error::quoted;
use crate::limits::RETRY_AFTER_LIMIT;
use crate::registry::client::ProxyRule;
use crate::registry::local::{LocalGuard, LocalHost, is_local};
use crate::registry::registries::RegistriesConfig;
use crate::{ArtifactError, ErrorKind, Limits};

/// The highest number of redirects of one request.
const REDIRECTS: usize = 5;
/// The longest part of an error's text that is read, in bytes.
const ERROR_TEXT: usize = 8 << 10;
/// The longest delay between two attempts, unless the registry requests another.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);

/// A registry as an HTTP server.
pub(crate) struct Endpoint {
    /// The host as references and configurations write it.
    pub(crate) host: String,
    /// `https://HOST/`.
    pub(crate) base: Url,
    pub(crate) limits: Limits,
    clients: Clients,
    plain_hosts: Arc<[String]>,
    guard: Option<LocalGuard>,
}

/// Connections, which registries with the same certificate authorities share.
#[derive(Clone)]
pub(crate) struct Clients {
    /// Follows redirects, within bounds.
    following: reqwest::Client,
    /// Follows no redirects: requests to a token service must not leave it.
    direct: reqwest::Client,
}

/// A request that can be sent several times.
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Body<'a>,
    /// The failed action in messages: "cannot resolve ghcr.io/acme/plugin:1.0.0".
    pub(crate) what: &'a str,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    None,
    Bytes(&'a Bytes),
    /// A file with its size, opened again for each attempt.
    File(&'a std::path::Path, u64),
}

/// A complete successful response.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Its URL, after redirects.
    pub(crate) url: Url,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl<'a> Request<'a> {
    pub(crate) fn new(method: Method, url: Url, what: &'a str) -> Self {
        Self {
            method,
            url,
            headers: Vec::new(),
            body: Body::None,
            what,
        }
    }

    pub(crate) fn accept(self, media_types: &'static str) -> Self {
        self.header(ACCEPT, HeaderValue::from_static(media_types))
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn body(mut self, body: Body<'a>) -> Self {
        self.body = body;
        self
    }
}

/// The error of a request.
pub(crate) fn error(kind: ErrorKind, what: &str, cause: &str) -> ArtifactError {
    ArtifactError::new(kind, format!("{what}: {cause}"))
}

fn plain_hosts(config: &RegistriesConfig) -> Arc<[String]> {
    let plain = config.registries.iter().filter(|it| it.plain_http);
    plain.map(|it| it.host.clone()).collect()
}

impl Clients {
    /// Opens connections that trust the system's certificate authorities and those configured for the host.
    pub(crate) fn new(
        host: &str,
        config: &RegistriesConfig,
        limits: &Limits,
        proxies: Option<&ProxyRule>,
        guard: Option<&LocalGuard>,
    ) -> Result<Self, ArtifactError> {
        // reqwest panics without a provider. An error means that one is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let invalid = |problem: String| ArtifactError::new(ErrorKind::Configuration, problem);
        let mut authorities = Vec::new();
        for path in config.registry(host).map_or(&[][..], |it| &it.certificate_authorities) {
            let pem = std::fs::read(path)
                .map_err(|error| ArtifactError::io("read the certificate authorities", path, &error))?;
            let bundle = reqwest::Certificate::from_pem_bundle(&pem).unwrap_or_default();
            if bundle.is_empty() {
                return Err(invalid(format!(
                    "{}, which certificateAuthorities of {host} names, has no certificate in PEM form",
                    path.display()
                )));
            }
            authorities.extend(bundle);
        }
        let builder = || {
            let builder = reqwest::Client::builder()
                .user_agent(concat!("pilothouse/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(limits.connect)
                .referer(false)
                .tls_certs_merge(authorities.iter().cloned());
            let builder = match proxies.cloned() {
                // curl and reqwest resolve names for socks5:// themselves; behind a proxy they mostly have no address.
                Some(rule) => builder.proxy(reqwest::Proxy::custom(move |url| {
                    rule(url.as_str()).map(|proxy| proxy.replacen("socks5://", "socks5h://", 1))
                })),
                None => builder.no_proxy(),
            };
            match guard {
                Some(guard) => builder.dns_resolver(Arc::new(guard.clone())),
                None => builder,
            }
        };
        let (plain, redirects) = (plain_hosts(config), guard.cloned());
        let following = builder()
            .redirect(Policy::custom(move |attempt| {
                follow(attempt, &plain, redirects.as_ref())
            }))
            .build();
        let direct = builder().redirect(Policy::none()).build();
        let broken = |error: reqwest::Error| {
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            invalid(format!(
                "cannot prepare TLS for {host}: {cause}; install the system's certificate authorities (ca-certificates), or \
                 name the registry's in the registries file under certificateAuthorities"
            ))
        };
        Ok(Self {
            following: following.map_err(broken)?,
            direct: direct.map_err(broken)?,
        })
    }
}

impl Endpoint {
    pub(crate) fn new(
        host: &str,
        config: &RegistriesConfig,
        limits: &Limits,
        clients: Clients,
        guard: Option<LocalGuard>,
    ) -> Result<Self, ArtifactError> {
        let scheme = if config.is_plain(host) { "http" } else { "https" };
        let server = if host == "docker.io" {
            "registry-1.docker.io"
        } else {
            host
        };
        let base = Url::parse(&format!("{scheme}://{server}/"))
            .map_err(|_| ArtifactError::new(ErrorKind::Reference, format!("{} is not a registry", quoted(host))))?;
        Ok(Self {
            host: host.to_owned(),
            base,
            limits: limits.clone(),
            clients,
            plain_hosts: plain_hosts(config),
            guard,
        })
    }

    /// Checks that a URL named by the registry may receive requests for the registry.
    pub(crate) fn may_visit(&self, url: &Url) -> Result<(), &'static str> {
        may_visit(url, &self.base, &self.plain_hosts, self.guard.as_ref())
    }

    /// Refuses a registry that a Plugin must not name.
    fn check_allowed(&self, what: &str) -> Result<(), ArtifactError> {
        match &self.guard {
            Some(guard) if !guard.allows(&self.base) => {
                let host = self.host.clone();
                Err(error(ErrorKind::NotAllowed, what, &LocalHost { host }.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Sends once. Returns the response's head, whatever its status.
    pub(crate) async fn send(
        &self,
        request: &Request<'_>,
        authorization: Option<&HeaderValue>,
        redirects: bool,
    ) -> Result<Response, ArtifactError> {
        self.check_allowed(request.what)?;
        let client = if redirects {
            &self.clients.following
        } else {
            &self.clients.direct
        };
        let mut builder = client.request(request.method.clone(), request.url.clone());
        // Nothing is decompressed here, so nothing can grow.
        builder = builder.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        if let Some(value) = authorization {
            builder = builder.header(AUTHORIZATION, value);
        }
        builder = match request.body {
            // Some registries refuse a POST without a length.
            Body::None if request.method == Method::POST => {
                builder.header(CONTENT_LENGTH, HeaderValue::from_static("0"))
            }
            Body::None => builder,
            Body::Bytes(bytes) => builder.body(bytes.clone()),
            Body::File(path, size) => {
                let file = tokio::fs::File::open(path).await;
                let file = file.map_err(|error| ArtifactError::io("read", path, &error))?;
                builder.header(CONTENT_LENGTH, size).body(file)
            }
        };
        let response = builder
            .send()
            .await
            .map_err(|error| self.broken(request.what, &error))?;
        let encoding = response.headers().get(CONTENT_ENCODING);
        if let Some(encoding) = encoding.filter(|it| it.as_bytes() != b"identity") {
            let encoding = quoted(&String::from_utf8_lossy(encoding.as_bytes()));
            return Err(error(
                ErrorKind::Protocol,
                request.what,
                &format!(
                    "{} answered with the Content-Encoding {encoding}, which nobody asked for; turn the compression off in the \
                     registry, or in the proxy before it",
                    self.host
                ),
            ));
        }
        Ok(response)
    }

    /// Reads a body of at most this many bytes.
    pub(crate) async fn read(&self, response: &mut Response, limit: u64, what: &str) -> Result<Bytes, ArtifactError> {
        let too_large = || {
            error(
                ErrorKind::TooLarge,
                what,
                &format!(
                    "the answer of {} is larger than {limit} bytes; check that the reference names a registry",
                    self.host
                ),
            )
        };
        if response.content_length().is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(what, &error))? {
            if (body.len() + chunk.len()) as u64 > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    /// Converts a response with an unsuccessful status into an error.
    pub(crate) async fn refused(&self, mut response: Response, what: &str, anonymous: bool) -> ArtifactError {
        let host = &self.host;
        let status = response.status();
        let wait = retry_after(response.headers());
        // The text is an explanation only: if it cannot be had soon, there is none.
        let patience = self.limits.exchange.min(Duration::from_secs(2));
        let text = timeout(patience, self.read(&mut response, ERROR_TEXT as u64, what)).await;
        let said = text.ok().and_then(Result::ok).and_then(|text| explanation(&text));
        let said = said.map_or_else(String::new, |text| format!(" and says {}", quoted(&text)));
        let (kind, cause) = match status.as_u16() {
            401 if anonymous => (
                ErrorKind::Unauthorized,
                format!(
                    "{host} wants credentials (401){said}; run `docker login {host}` or `oras login {host}`, or give the Plugin a pullSecret"
                ),
            ),
            401 => (
                ErrorKind::Unauthorized,
                format!(
                    "{host} does not accept the credentials (401){said}; check user name and password, or the pullSecret"
                ),
            ),
            403 => (
                ErrorKind::Forbidden,
                format!(
                    "{host} does not permit it (403){said}; ask the repository's owner for the right, or use other credentials"
                ),
            ),
            404 => (
                ErrorKind::NotFound,
                format!("{host} has no such thing (404){said}; check repository, tag and digest"),
            ),
            429 => (
                ErrorKind::TooManyRequests,
                format!("{host} takes no more requests for now (429){said}; wait, or use credentials or a mirror"),
            ),
            500.. => (
                ErrorKind::Server,
                format!("{host} failed ({status}){said}; retrying may help"),
            ),
            _ => (
                ErrorKind::Protocol,
                format!(
                    "{host} answered {status}{said}; check that the reference names a registry, and that no proxy answers for it"
                ),
            ),
        };
        error(kind, what, &cause).with_retry_after(wait)
    }

    /// The error for a successful response of another type: mostly the log-in page of a proxy.
    pub(crate) fn answered_otherwise(&self, what: &str, media_type: Option<&str>, wanted: &str) -> ArtifactError {
        let host = &self.host;
        let found = media_type.map_or_else(
            || "without a Content-Type".to_owned(),
            |it| format!("with {}", essence(it)),
        );
        let cause = format!(
            "{host} answered {found} and not with {wanted}; check that the reference names a registry, and that no log-in page or \
             proxy answers for it"
        );
        error(ErrorKind::Protocol, what, &cause)
    }

    /// The error for an exchange that took too long.
    pub(crate) fn late(&self, what: &str, limit: Duration) -> ArtifactError {
        error(
            ErrorKind::Timeout,
            what,
            &format!(
                "{} did not complete its answer within {limit:?}; check the network, or use a mirror",
                self.host
            ),
        )
    }

    /// Converts a transport error, without the library's chain of causes.
    pub(crate) fn broken(&self, what: &str, failure: &reqwest::Error) -> ArtifactError {
        let place = failure.url().and_then(Url::host_str).unwrap_or(&self.host);
        let (kind, cause) = classify(failure, place, &self.host);
        error(kind, what, &cause)
    }
}

/// A media type without its parameters, fit for a message.
fn essence(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.is_empty() && essence.len() <= 100 && essence.bytes().all(|it| it.is_ascii_graphic()) {
        essence.to_owned()
    } else {
        quoted(essence)
    }
}

fn classify(error: &reqwest::Error, place: &str, host: &str) -> (ErrorKind, String) {
    let mut text = None;
    let mut kind = None;
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(refusal) = current.downcast_ref::<Refusal>() {
            return (
                ErrorKind::Protocol,
                format!("{host} redirects where it must not: {refusal}"),
            );
        }
        if let Some(refused) = current.downcast_ref::<LocalHost>() {
            return (ErrorKind::NotAllowed, refused.to_string());
        }
        if let Some(error) = tls_error(current) {
            return tls(error, place, host);
        }
        kind = kind.or_else(|| innermost_kind(current));
        if current.to_string() == "dns error" {
            text = Some((
                ErrorKind::UnknownHost,
                format!("the host {place} is not known; check the name and the DNS, or the proxy's settings"),
            ));
        }
        cause = current.source();
    }
    if let Some(unknown) = text {
        return unknown;
    }
    if error.is_timeout() {
        return (
            ErrorKind::Unreachable,
            format!("{place} cannot be reached in time; check network and proxy"),
        );
    }
    if error.is_connect() && kind == Some(std::io::ErrorKind::UnexpectedEof) {
        return (
            ErrorKind::Unreachable,
            format!(
                "{place} closes the connection before TLS is agreed; {}",
                plain_hint(host)
            ),
        );
    }
    if error.is_connect() {
        let reason = match kind {
            Some(std::io::ErrorKind::ConnectionRefused) => "refuses connections",
            _ => "cannot be reached",
        };
        return (
            ErrorKind::Unreachable,
            format!("{place} {reason}; check that it runs, the network and the proxy"),
        );
    }
    (
        ErrorKind::Unreachable,
        format!("the connection to {place} broke; retrying may help"),
    )
}

/// The TLS error behind an error; I/O errors hide what they wrap from `source`.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let wrapped = |error: &'a std::io::Error| tls_error(error.get_ref()?);
    error
        .downcast_ref::<rustls::Error>()
        .or_else(|| error.downcast_ref::<std::io::Error>().and_then(wrapped))
}

fn innermost_kind(error: &(dyn std::error::Error + 'static)) -> Option<std::io::ErrorKind> {
    let error = error.downcast_ref::<std::io::Error>()?;
    error
        .get_ref()
        .and_then(|inner| innermost_kind(inner))
        .or(Some(error.kind()))
}

fn tls(error: &rustls::Error, place: &str, host: &str) -> (ErrorKind, String) {
    use rustls::CertificateError as Problem;
    let cause = match error {
        rustls::Error::InvalidCertificate(problem) => match problem {
            Problem::UnknownIssuer | Problem::BadSignature => format!(
                "the certificate of https://{place} is not signed by a known authority; name its CA in the registries file under \
                 certificateAuthorities of {host}"
            ),
            Problem::Expired | Problem::ExpiredContext { .. } => {
                format!("the certificate of https://{place} has expired")
            }
            Problem::NotValidYet | Problem::NotValidYetContext { .. } => {
                format!("the certificate of https://{place} is not valid yet; check the clock")
            }
            Problem::NotValidForName | Problem::NotValidForNameContext { .. } => {
                format!("the certificate of https://{place} is for another name")
            }
            _ => format!("the certificate of https://{place} is not valid"),
        },
        rustls::Error::InvalidMessage(_) => {
            return (
                ErrorKind::Unreachable,
                format!("{place} does not speak TLS; {}", plain_hint(host)),
            );
        }
        _ => format!("{place} and this host agree on no TLS connection"),
    };
    (ErrorKind::Certificate, cause)
}

fn plain_hint(host: &str) -> String {
    format!("if it is meant to speak plain HTTP, say plainHttp: true of {host} in the registries file")
}

/// The reason why a redirect is not followed.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("more than {REDIRECTS} times")]
    Many,
    #[error("{0}")]
    Forbidden(&'static str),
}

fn follow(attempt: Attempt<'_>, plain: &[String], guard: Option<&LocalGuard>) -> reqwest::redirect::Action {
    if attempt.previous().len() > REDIRECTS {
        return attempt.error(Refusal::Many);
    }
    let first = &attempt.previous()[0];
    let last = attempt.previous().last().unwrap_or(first);
    if last.scheme() == "https" && attempt.url().scheme() != "https" {
        return attempt.error(Refusal::Forbidden("from HTTPS to plain HTTP"));
    }
    match may_visit(attempt.url(), first, plain, guard) {
        Ok(()) => attempt.follow(),
        Err(problem) => attempt.error(Refusal::Forbidden(problem)),
    }
}

/// Checks that a URL named by the server at `from` may be requested. A registry must not reach the host's own network
/// interfaces or a cloud's metadata service through the host, nor make it send plain text.
fn may_visit(url: &Url, from: &Url, plain: &[String], guard: Option<&LocalGuard>) -> Result<(), &'static str> {
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "https" => {}
        "http" => {
            let named = url
                .port()
                .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
            if !plain.contains(&named) {
                return Err("to plain HTTP of a host for which the registries file does not say plainHttp: true");
            }
        }
        _ => return Err("to something else than HTTP"),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("to a URL with credentials");
    }
    let is_allowed = match guard {
        Some(guard) => guard.allows(url),
        None => !is_local(host) || from.host_str().is_some_and(is_local),
    };
    if !is_allowed {
        return Err("to a local address");
    }
    Ok(())
}

/// The registry's explanation of a refusal: the first error of the OCI form.
fn explanation(text: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    let error = value.get("errors")?.get(0)?;
    let part = |name| error.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
    let text = format!("{} {}", part("code"), part("message"));
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The delay that a registry requests: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if let Ok(seconds) = text.parse::<u64>() {
        Duration::from_secs(seconds)
    } else {
        let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        // A date in the past requests no delay.
        Duration::try_from(date.duration_since(jiff::Timestamp::now())).unwrap_or_default()
    };
    Some(wait.min(RETRY_AFTER_LIMIT))
}

/// Reports whether the client itself retries. Time-outs have used their time; unknown hosts are mostly misspelt.
pub(crate) fn worth_another_attempt(error: &ArtifactError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unreachable | ErrorKind::TooManyRequests | ErrorKind::Server | ErrorKind::Truncated
    )
}

/// The delay after this many failed attempts: the one that the registry requests, or a doubled delay of which up to a
/// half is random, so that hosts that failed together do not retry together.
pub(crate) fn pause(limits: &Limits, failed: u32, error: &ArtifactError) -> Duration {
    if let Some(wait) = error.retry_after() {
        return wait;
    }
    let longest = limits
        .back_off
        .saturating_mul(1 << failed.saturating_sub(1).min(16))
        .min(LONGEST_BACK_OFF);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_at_most_a_minute() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("86400"), Some(RETRY_AFTER_LIMIT));
        assert_eq!(read("99999999999999999999"), None);
        assert_eq!(read("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("Wed, 21 Oct 2499 07:28:00 GMT"), Some(RETRY_AFTER_LIMIT));
        let soon = jiff::Timestamp::now() + Duration::from_secs(20);
        let soon = jiff::fmt::rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&soon)
            .unwrap();
        let wait = read(&soon).unwrap();
        assert!(
            wait > Duration::from_secs(10) && wait <= Duration::from_secs(20),
            "{wait:?}"
        );
        assert_eq!(read("soon"), None);
    }

    #[test]
    fn registry_cannot_redirect_into_the_host_or_to_plain_http() {
        let visit = |to: &str, from: &str| {
            may_visit(
                &to.parse().unwrap(),
                &from.parse().unwrap(),
                &["plain.example:5000".to_owned()],
                None,
            )
            .is_ok()
        };
        let from = "https://registry.example/";
        assert!(visit("https://storage.example/blob", from));
        assert!(visit("https://10.0.0.1/blob", from));
        assert!(visit("http://plain.example:5000/token", from));
        assert!(visit("https://127.0.0.1:1/blob", "https://127.0.0.1:2/"));
        for to in [
            "http://storage.example/blob",
            "http://plain.example/blob",
            "https://127.0.0.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://localhost/",
            "https://0.0.0.0/",
            "https://2130706433/",
            "https://user:secret@storage.example/",
            "file:///etc/passwd",
        ] {
            assert!(!visit(to, from), "{to}");
        }
        let guard = LocalGuard::default();
        let (to, from) = (
            "https://127.0.0.1:1/".parse().unwrap(),
            "https://127.0.0.1:2/".parse().unwrap(),
        );
        assert!(may_visit(&to, &from, &[], Some(&guard)).is_err());
    }

    #[test]
    fn waits_double_up_to_a_limit() {
        let limits = Limits::default();
        let error = ArtifactError::new(ErrorKind::Server, "");
        for (failed, longest) in [(1, 500), (2, 1000), (3, 2000), (40, 30_000)] {
            let wait = pause(&limits, failed, &error);
            let longest = Duration::from_millis(longest);
            assert!(wait <= longest && wait >= longest / 2, "{failed}: {wait:?}");
        }
        let asked = error.with_retry_after(Some(Duration::from_secs(3)));
        assert_eq!(pause(&limits, 1, &asked), Duration::from_secs(3));
    }
}
