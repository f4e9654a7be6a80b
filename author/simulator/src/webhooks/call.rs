//! Calls a webhook: HTTPS with the CA that its configuration names, and the server's messages where that fails.

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use rustls::CertificateError;
use serde_json::{Value, json};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::consultation::{Question, Reply};
use crate::state::State;

/// Resolves a webhook's `clientConfig` with the cluster's Service.
pub(super) fn resolved(state: &State, client: &Value) -> Value {
    let mut client = client.clone();
    let Some(service) = client.get("service").filter(|service| service.is_object()) else {
        return client;
    };
    let text = |name: &str| service[name].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let problem = match state.get("", "services", &namespace, &name) {
        None => format!("service {name:?} not found"),
        // Nothing in a simulated cluster is reached by a Service.
        Some(_) => "context deadline exceeded".to_owned(),
    };
    let port = service["port"].as_u64().unwrap_or(443);
    client["url"] = json!(format!("https://{name}.{namespace}.svc:{port}{}", text("path")));
    client["problem"] = json!(problem);
    client
}

/// Asks, and waits for the answer for no longer than the webhook may take. Blocks.
pub(crate) fn ask(question: &Question) -> Reply {
    let Question {
        client, timeout, body, ..
    } = question;
    let url = client["url"].as_str().unwrap_or_default();
    let url = format!("{url}?timeout={}s", timeout.as_secs());
    let failed = |problem: String| format!("Post {url:?}: {problem}");
    let address = url.trim_start_matches("https://").split(['/', '?']).next();
    let words = |error: &ureq::Error| words(error, address.unwrap_or_default());
    if let Some(problem) = client["problem"].as_str() {
        return Err(failed(problem.to_owned()));
    }
    let authorities = authorities(&client["caBundle"]);
    let mut response = agent(&authorities, *timeout)
        .post(&url)
        .header("content-type", "application/json")
        .header("accept", "application/json, */*")
        .send(body.to_string())
        .map_err(|error| failed(words(&error)))?;
    let status = response.status();
    let text = response
        .body_mut()
        .read_to_string()
        .map_err(|error| failed(words(&error)))?;
    if !status.is_success() {
        return Err(refused(status, text.trim()));
    }
    serde_json::from_str(&text).map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))
}

fn agent(authorities: &[Certificate<'static>], timeout: Duration) -> ureq::Agent {
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(authorities));
    let config = ureq::Agent::config_builder()
        .tls_config(tls.build())
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None);
    config.build().new_agent()
}

/// Returns the readable certificates of a `caBundle`.
fn authorities(bundle: &Value) -> Vec<Certificate<'static>> {
    let pem = STANDARD.decode(bundle.as_str().unwrap_or_default()).unwrap_or_default();
    let items = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    items.collect()
}

/// Words a transport error as Go does.
fn words(error: &ureq::Error, address: &str) -> String {
    match error {
        ureq::Error::Timeout(_) => "context deadline exceeded".to_owned(),
        ureq::Error::Rustls(error) => certificate_words(error),
        ureq::Error::Io(error) => {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match (tls, error.kind()) {
                (Some(tls), _) => certificate_words(tls),
                (None, io::ErrorKind::ConnectionRefused) => format!("dial tcp {address}: connect: connection refused"),
                (None, io::ErrorKind::TimedOut) => "context deadline exceeded".to_owned(),
                (None, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => "EOF".to_owned(),
                (None, _) => error.to_string(),
            }
        }
        ureq::Error::HostNotFound => format!("dial tcp: lookup {address}: no such host"),
        other => other.to_string(),
    }
}

fn certificate_words(error: &rustls::Error) -> String {
    let problem = match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "certificate signed by unknown authority"
        }
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "certificate has expired or is not yet valid"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "certificate is not valid for this name",
        other => return format!("tls: {other}"),
    };
    format!("tls: failed to verify certificate: x509: {problem}")
}

/// Words an unexpected response as client-go does.
fn refused(status: StatusCode, said: &str) -> String {
    match status.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        415 => said.to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        500.. => format!("an error on the server ({said:?}) has prevented the request from succeeding"),
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}
