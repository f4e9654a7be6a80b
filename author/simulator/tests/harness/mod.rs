//! Scripts of requests: reads them, plays them against a server, and normalises the responses for comparison.

mod hooks;
mod normalise;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http_body_util::{BodyExt as _, Full};
use pilothouse_simulator::{Controllers, Options, Simulator, Workloads};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub use normalise::difference;

/// Time that a real server may take to serve a new kind.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Controllers would change the objects between the steps: a real server must run none.
    #[serde(default)]
    pub bare: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: String,
    /// METHOD PATH?QUERY, with {ns} and {group} and captured values such as {web.uid}.
    request: String,
    /// apply, merge, json, strategic or a media type.
    content: Option<String>,
    body: Option<Value>,
    /// Remembers the answer's metadata under this name.
    capture: Option<String>,
    accept: Option<String>,
    /// Repeats while the kind is not served yet.
    #[serde(default)]
    retry: bool,
    /// Repeats until this is the status: a real server asks new webhooks a moment after it has them.
    until: Option<u16>,
    /// Compares the status alone.
    #[serde(default)]
    status_only: bool,
}

impl Script {
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)?;
        serde_saphyr::from_str(&text).with_context(|| format!("parse {}", path.display()))
    }
}

/// Response of the server.
pub struct Answer {
    pub status: u16,
    pub body: Value,
    pub warnings: Vec<String>,
}

pub struct Request {
    pub method: String,
    pub path: String,
    pub content: String,
    pub accept: String,
    pub body: Option<String>,
}

pub trait Server {
    fn send(&self, request: &Request) -> Result<Answer>;
    /// Names that no earlier run has used.
    fn names(&self) -> (String, String);
}

pub struct Real {
    agent: ureq::Agent,
    url: String,
    token: String,
}

impl Real {
    pub fn from_environment() -> Option<Self> {
        let url = std::env::var("PILOTHOUSE_REAL_URL").ok()?;
        let token = std::env::var("PILOTHOUSE_REAL_TOKEN").unwrap_or_default();
        let tls = ureq::tls::TlsConfig::builder().disable_verification(true).build();
        let agent = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .build();
        Some(Self {
            agent: agent.new_agent(),
            url: url.trim_end_matches('/').to_owned(),
            token,
        })
    }
}

impl Real {
    /// Returns `true` if the server's controllers run: they put a certificate into every namespace.
    pub fn has_controllers(&self) -> Result<bool> {
        let path = "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt";
        Ok(self.send(&request("GET", path, "application/json", None))?.status == 200)
    }
}

impl Server for Real {
    fn send(&self, request: &Request) -> Result<Answer> {
        let built = http::Request::builder()
            .method(request.method.as_str())
            .uri(format!("{}{}", self.url, request.path))
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Accept", &request.accept)
            .header("Content-Type", &request.content)
            .header("User-Agent", "differential/1.0");
        let mut response = match &request.body {
            Some(body) => self.agent.run(built.body(body.clone())?)?,
            None => self.agent.run(built.body(())?)?,
        };
        let warnings = response
            .headers()
            .get_all("warning")
            .iter()
            .filter_map(|value| value.to_str().ok().map(str::to_owned));
        let warnings = warnings.collect();
        let text = response.body_mut().read_to_string()?;
        Ok(Answer {
            status: response.status().as_u16(),
            body: parsed(&text),
            warnings,
        })
    }

    fn names(&self) -> (String, String) {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        (format!("diff-{now}"), format!("g{now}.example.com"))
    }
}

pub struct Simulated {
    simulator: Simulator,
    runtime: tokio::runtime::Runtime,
}

impl Simulated {
    pub fn new() -> Result<Self> {
        let controllers = Controllers {
            garbage_collector: true,
            namespace: false,
            workloads: Workloads::Ignored,
        };
        let simulator = Simulator::new(Options {
            controllers,
            ..Options::default()
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { simulator, runtime })
    }
}

impl Server for Simulated {
    fn send(&self, request: &Request) -> Result<Answer> {
        let built = http::Request::builder()
            .method(request.method.as_str())
            .uri(request.path.as_str())
            .header("Accept", &request.accept)
            .header("Content-Type", &request.content)
            .header("User-Agent", "differential/1.0")
            .body(Full::new(bytes::Bytes::from(request.body.clone().unwrap_or_default())))?;
        self.runtime.block_on(async {
            let response = self.simulator.service().oneshot(built).await?;
            let status = response.status().as_u16();
            let warnings = response
                .headers()
                .get_all("warning")
                .iter()
                .filter_map(|value| value.to_str().ok().map(str::to_owned));
            let warnings = warnings.collect();
            let bytes = response.into_body().collect().await?.to_bytes();
            Ok(Answer {
                status,
                body: parsed(&String::from_utf8_lossy(&bytes)),
                warnings,
            })
        })
    }

    fn names(&self) -> (String, String) {
        ("diff-1".to_owned(), "g1.example.com".to_owned())
    }
}

/// JSON, the lines of a watch as a list, or plain text.
fn parsed(text: &str) -> Value {
    if let Ok(value) = serde_json::from_str(text) {
        return value;
    }
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    lines.map_or_else(|_| json!(text), Value::from)
}

/// Plays a script; one comparable answer for each step.
pub fn play(script: &Script, server: &dyn Server) -> Result<Vec<Value>> {
    let (namespace, group) = server.names();
    let hooks = hooks::start()?;
    let mut known = BTreeMap::from([
        ("ns".to_owned(), namespace.clone()),
        ("group".to_owned(), group.clone()),
        ("hooks".to_owned(), hooks.url.clone()),
        ("authority".to_owned(), hooks.authority.clone()),
        ("stranger".to_owned(), hooks.stranger.clone()),
    ]);
    let chance = [
        (namespace.as_str(), "NAMESPACE"),
        (group.as_str(), "GROUP"),
        (hooks.url.as_str(), "HOOKS"),
        (hooks.authority.as_str(), "AUTHORITY"),
        (hooks.stranger.as_str(), "STRANGER"),
    ];
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}).to_string();
    let created = server.send(&request("POST", "/api/v1/namespaces", "application/json", Some(made)))?;
    if created.status != 201 {
        bail!("create the namespace {namespace}: {}", created.body);
    }
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}).to_string();
    // Already there where the controllers run.
    server.send(&request(
        "POST",
        &format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
        "application/json",
        Some(account),
    ))?;
    let mut answers = Vec::new();
    for step in &script.steps {
        let (method, path) = step
            .request
            .split_once(' ')
            .with_context(|| format!("{}: METHOD PATH", step.name))?;
        let path = filled(path, &known).replace(' ', "%20").replace('"', "%22");
        let content = match step.content.as_deref() {
            None => "application/json",
            Some("apply") => "application/apply-patch+yaml",
            Some("merge") => "application/merge-patch+json",
            Some("json") => "application/json-patch+json",
            Some("strategic") => "application/strategic-merge-patch+json",
            Some(other) => other,
        };
        let body = step.body.as_ref().map(|body| match body {
            Value::String(text) => filled(text, &known),
            other => filled(&other.to_string(), &known),
        });
        let mut sent = request(method, &path, content, body);
        if let Some(accept) = &step.accept {
            sent.accept.clone_from(accept);
        }
        let start = Instant::now();
        let mut answer = server.send(&sent)?;
        // A new kind is served a moment after its definition says so; there is nothing else to wait for.
        while step.retry && [404, 429].contains(&answer.status) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
            answer = server.send(&sent)?;
        }
        while step.until.is_some_and(|status| status != answer.status) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
            answer = server.send(&sent)?;
        }
        if let Some(name) = &step.capture {
            for field in ["uid", "resourceVersion", "name", "continue", "creationTimestamp"] {
                if let Some(text) = answer.body["metadata"][field].as_str() {
                    known.insert(format!("{name}.{field}"), text.to_owned());
                }
            }
        }
        let body = if step.status_only {
            Value::Null
        } else {
            normalise::normalised(&answer.body, &chance)
        };
        answers.push(json!({"step": step.name, "status": answer.status, "body": body, "warnings": answer.warnings}));
    }
    Ok(answers)
}

pub fn request(method: &str, path: &str, content: &str, body: Option<String>) -> Request {
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        content: content.to_owned(),
        accept: "application/json".to_owned(),
        body,
    }
}

fn filled(text: &str, known: &BTreeMap<String, String>) -> String {
    known.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}
