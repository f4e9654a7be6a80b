//! Connects to a cluster: finds the kubeconfig or the pod's service account, and sets time-outs and the user agent.
//!
//! A kubeconfig is read once, so a token or certificate within it that is exchanged needs a restart. Files that it names (`tokenFile`) are
//! read again.

pub(crate) mod connection_log;
pub(crate) mod credentials;
pub mod host_proxy;
pub(crate) mod kubeconfig;
pub mod meter;
pub mod proxy;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::client::{ClientBuilder, RustlsTlsError};
use kube::config::AuthInfo;
use kube::{Client, Config};
use pilothouse_metrics::RequestMetrics;
use tower::util::MapResultLayer;

use crate::connect::connection_log::ConnectionLog;
use crate::connect::credentials::{Source, TokenLayer, Tokens};
use crate::connect::kubeconfig::{Connection, Kubeconfig};
use crate::connect::meter::MeterLayer;
use crate::error::{AtServer, chain};
use crate::fence::WriteFence;

/// The time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The user in messages where there is no kubeconfig.
const POD_USER: &str = "the pod's service account";

/// The cluster to connect to.
#[derive(Clone, Debug, Default)]
pub struct ClusterTarget {
    /// The kubeconfig; none means `KUBECONFIG`, `~/.kube/config`, or the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context; none means its current one.
    pub context: Option<String>,
}

/// The reason why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file cannot be read or parsed, or lacks what it refers to.
    #[error(
        "kubeconfig {path} cannot be used: {problem}; correct it, or give another file with --kubeconfig or another context with --context"
    )]
    Kubeconfig {
        /// Its path.
        path: String,
        /// The problem.
        problem: String,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "no cluster is configured: {0}, and this is no pod with a service account; give one with --kubeconfig, or set KUBECONFIG"
    )]
    NoCluster(String),
    /// The configuration names certificates or credentials that cannot be used.
    #[error("cannot set up a connection to {server}: {problem}; check the kubeconfig's user and certificates")]
    Client {
        /// The server's address.
        server: String,
        /// The problem.
        problem: String,
    },
}

/// Makes a client without a fence and without metrics. Sends no request yet.
pub async fn connect(target: &ClusterTarget, user_agent: &str) -> Result<Client, ConnectError> {
    connect_through(target, user_agent, &WriteFence::default(), &RequestMetrics::default()).await
}

/// Makes a client whose changes pass a fence, and whose requests are counted. Sends no request yet.
pub async fn connect_through(
    target: &ClusterTarget,
    user_agent: &str,
    fence: &WriteFence,
    metrics: &RequestMetrics,
) -> Result<Client, ConnectError> {
    connect_as(target, user_agent, fence, metrics, Credentials::Own).await
}

/// The same without the credentials of the kubeconfig or of the pod: each request must bring its own.
pub async fn connect_bare(
    target: &ClusterTarget,
    user_agent: &str,
    fence: &WriteFence,
    metrics: &RequestMetrics,
) -> Result<Client, ConnectError> {
    connect_as(target, user_agent, fence, metrics, Credentials::None).await
}

/// The credentials of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Credentials {
    Own,
    None,
}

async fn connect_as(
    target: &ClusterTarget,
    user_agent: &str,
    fence: &WriteFence,
    metrics: &RequestMetrics,
    credentials: Credentials,
) -> Result<Client, ConnectError> {
    let Connection {
        mut config,
        user,
        context,
        mut tokens,
    } = configuration(target).await?;
    if credentials == Credentials::None {
        config.auth_info = AuthInfo::default();
        tokens = None;
    }
    // kube's own retry repeats every method 15 times, creates included; the host retries by object, with back-off.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Each caller sets the time limit of its response.
    config.read_timeout = None;
    let agent =
        http::HeaderValue::from_str(user_agent).expect("the user agent is made of the crate's name and version");
    config.headers.push((http::header::USER_AGENT, agent));
    let server = config.cluster_url.to_string();
    let builder = ClientBuilder::try_from(config).map_err(|error| ConnectError::Client {
        server: server.clone(),
        problem: client_problem(&error),
    })?;
    if credentials == Credentials::Own {
        tracing::info!(server, user, "using the cluster");
    }
    let place = match context {
        Some(context) => format!("{server}, context {context}"),
        None => server.clone(),
    };
    let log = Arc::new(ConnectionLog::new(server, user));
    let observe = MapResultLayer::new(move |result: Result<_, tower::BoxError>| {
        // A failure with another account's token says nothing about the host's connection.
        if credentials == Credentials::Own {
            log.observe(&result);
        }
        result.map_err(|source| -> tower::BoxError {
            let server = place.clone();
            AtServer { server, source }.into()
        })
    });
    // Requests that the fence stops are not sent, so they do not reach the log and the metrics.
    Ok(builder
        .with_layer(&TokenLayer(tokens))
        .with_layer(&observe)
        .with_layer(&MeterLayer::new(metrics))
        .with_layer(fence)
        .build())
}

/// The problem of a client that cannot be made.
fn client_problem(error: &kube::Error) -> String {
    match error {
        kube::Error::RustlsTls(RustlsTlsError::InvalidPrivateKey(rustls::Error::InconsistentKeys(_))) => {
            "the client's key does not belong to its certificate".to_owned()
        }
        kube::Error::RustlsTls(RustlsTlsError::InvalidPrivateKey(_)) => {
            "the client's key is of a kind that is not supported; ECDSA with P-256 or P-384, Ed25519, and RSA with 2048 to 8192 \
             bits are"
                .to_owned()
        }
        error => chain(error),
    }
}

/// The cluster that a kubeconfig or the pod names, and the user.
pub(crate) async fn configuration(target: &ClusterTarget) -> Result<Connection, ConnectError> {
    // Files may be on a mount that hangs, and a credential helper takes as long as it takes.
    let target = target.clone();
    let read = tokio::task::spawn_blocking(move || read_configuration(&target)).await;
    read.expect("reading a kubeconfig does not panic, and nobody ends it")
}

fn read_configuration(target: &ClusterTarget) -> Result<Connection, ConnectError> {
    let ClusterTarget { kubeconfig, context } = target;
    let variable = |name: &str| std::env::var(name).ok();
    let (files, is_explicit) = match kubeconfig {
        Some(file) => (vec![file.clone()], true),
        None => (default_files(), false),
    };
    let mut merged = Kubeconfig::default();
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for path in &files {
        match std::fs::read(path) {
            Ok(bytes) => {
                let read = Kubeconfig::parse(&bytes, path);
                merged.merge(read.map_err(|problem| refused(&path.display().to_string(), problem))?);
                found.push(path.display().to_string());
            }
            // One of several may be missing.
            Err(error) if error.kind() == ErrorKind::NotFound && !is_explicit => missing.push(path),
            Err(error) => return Err(refused(&path.display().to_string(), error.to_string())),
        }
    }
    // A context can only be one of a kubeconfig.
    if merged.is_empty() && !is_explicit && context.is_none() {
        if let Ok(config) = Config::incluster() {
            return in_cluster(config);
        }
        return Err(ConnectError::NoCluster(nothing_in(&found, &missing)));
    }
    if found.is_empty() {
        return Err(ConnectError::NoCluster(nothing_in(&found, &missing)));
    }
    let connection = merged.connection(context.as_deref(), &variable);
    connection.map_err(|problem| refused(&found.join(":"), problem))
}

/// The pod's service account, whose token the kubelet rotates. The API server of the pod's own cluster needs no proxy.
fn in_cluster(mut config: Config) -> Result<Connection, ConnectError> {
    let server = config.cluster_url.to_string();
    let file = config.auth_info.token_file.take().map(PathBuf::from);
    let tokens = file.map(|file| Tokens::new(Source::File(file, None))).transpose();
    let tokens = tokens.map_err(|problem| ConnectError::Client {
        server,
        problem: problem.to_string(),
    })?;
    Ok(Connection {
        config,
        user: POD_USER.to_owned(),
        context: None,
        tokens: tokens.map(Arc::new),
    })
}

/// The reason why no file names a cluster.
fn nothing_in(found: &[String], missing: &[&PathBuf]) -> String {
    if !found.is_empty() {
        return format!("{} names none", found.join(":"));
    }
    let missing: Vec<String> = missing.iter().map(|path| path.display().to_string()).collect();
    match &missing[..] {
        [] => "there is no home directory".to_owned(),
        [file] => format!("{file} does not exist"),
        files => format!("{} do not exist", files.join(" and ")),
    }
}

/// The default kubeconfigs, as in kubectl: those in `KUBECONFIG`, or the one in the home directory.
fn default_files() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG").filter(|files| !files.is_empty()) {
        Some(files) => std::env::split_paths(&files)
            .filter(|file| !file.as_os_str().is_empty())
            .collect(),
        None => std::env::home_dir()
            .map(|home| home.join(".kube/config"))
            .into_iter()
            .collect(),
    }
}

fn refused(path: &str, problem: String) -> ConnectError {
    ConnectError::Kubeconfig {
        path: path.to_owned(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_test_registry::proxy::Proxy;
    use serde_json::{Value, json};

    use super::*;

    /// Keys that openssl has made for this test.
    const P521: &str = "-----BEGIN PRIVATE KEY-----\n\
        MIHuAgEAMBAGByqGSM49AgEGBSuBBAAjBIHWMIHTAgEBBEIAq5ws/a8Yf1YBGbvT\n\
        qmkLhUXYiNpyQHeSu1eCUGWyh1PeVgK//5qpXjcLoTPdAxsNIiuAZUZZao90g88p\n\
        YEZskMmhgYkDgYYABAHhT3z9QG5wcYXcP/epg6xGO3LQw51/pNgQxhForzvRmbPj\n\
        AN9JMjvE0Q7kWkEjZTGpTOrGKL5CNBDjEbgqrsqqlwGRpG8HCDlcl+Wy/fqJOZjh\n\
        oaTrrb+qEQxpAP5t526NwqigKah6DvyuAerB2Ve03TfPu1JtntW7PqJyG/3y6dXr\n\
        eg==\n\
        -----END PRIVATE KEY-----";
    const RSA_1024: &str = "-----BEGIN PRIVATE KEY-----\n\
        MIICdQIBADANBgkqhkiG9w0BAQEFAASCAl8wggJbAgEAAoGBAL0SKHyu1uTxPYZR\n\
        qpmuvG5GMdDfHiVLKUtszLt2gqpU8XAu3cEv1n6tXcMbmGjOKwSvR38NGIsGIKut\n\
        Lji+2LIXq8jWyraptKwdWNs48PGXknKj/P2Fezw3BXw+XHyqFTGe/p+8drwe057x\n\
        LQTXNVTsZDtqkBYADgOfUYcXWeALAgMBAAECgYB03RBhYMA66lGZAElujG6zyndo\n\
        H0DG1FpF4I37IRlKpw5ExPMUQblWu1nFCv19alF0p9KNWU7eP39aHcUAFhZhi6z9\n\
        EJogvDpgqYVDQ768sbXHDfYp/vaalbcOZkUILX2OHCIKx3uAA8MTgLFfVO1h5IAl\n\
        AR9j+ssQmpAs/4VroQJBAPqw72uwUDV9lqgTlO1XKlW5KLC9OSSTO9BLDIC+W1Uu\n\
        aLBa5Siw9Rw92jewKsOEF++/u+heoGAdH2StL3pnNTUCQQDBEym4NYQd17NgWk09\n\
        m9kz1CCLfx3O8Rea+DE3qwhDpnpN0FphlFW9YIKllm8bbFXS/sj2EccpL70jNBTH\n\
        Bag/AkAeXElSsHK2V7RkPKLfr5vH7/m2leQSwuYOjtg/y04CXfF90jRInk3BEtiX\n\
        v/Ud4qSHe6AFP1iK61v+9F54o4E1AkA8ug9ELijozgBQTPbAavVtFMpLtealQTVg\n\
        e7HXRYcq6ADN2ruit2okT2eoN2Go6XExFQwWQU84CBjgKrBiTMg3AkAjHma2ffg9\n\
        BiNhT9tdgyiqmUwghPC/t8AtH0Fh4xhB3IQ5deolYuSJ8usMHvf+uqvTyfJR2Adg\n\
        y/DQWFzebBYy\n\
        -----END PRIVATE KEY-----";

    #[tokio::test]
    async fn a_kubeconfig_cut_within_a_character_is_refused_by_name() {
        let path = std::env::temp_dir().join(format!("cut-{}.kubeconfig", std::process::id()));
        for mark in [[0xff, 0xfe], [0xfe, 0xff]] {
            std::fs::write(&path, [&mark[..], b"{"].concat()).unwrap();
            let target = ClusterTarget {
                kubeconfig: Some(path.clone()),
                context: None,
            };
            let error = connect(&target, "test/1").await.err().unwrap().to_string();
            assert!(
                error.contains("UTF-16") && error.contains(&*path.to_string_lossy()),
                "{error}"
            );
        }
        std::fs::remove_file(&path).unwrap();
    }

    /// A kubeconfig with this cluster and this user.
    fn kubeconfig(name: &str, cluster: &Value, user: &Value) -> ClusterTarget {
        let path = std::env::temp_dir().join(format!("{name}-{}.kubeconfig", std::process::id()));
        let kubeconfig = json!({
            "current-context": "c", "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": user}],
        });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        ClusterTarget {
            kubeconfig: Some(path),
            context: None,
        }
    }

    #[tokio::test]
    async fn a_token_with_a_line_feed_connects() {
        let server = json!({"server": "https://127.0.0.1:1"});
        for token in ["t\n", "\nt\r\n", "t"] {
            let target = kubeconfig("line-feed", &server, &json!({"token": token}));
            assert!(connect(&target, "test/1").await.is_ok(), "{token:?}");
        }
    }

    #[tokio::test]
    async fn a_clients_key_that_is_not_supported_is_named_so() {
        let pair = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["c.example".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&pair).unwrap().pem();
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let base64 = |text: &str| json!(k8s_openapi::ByteString(text.as_bytes().to_vec()));
        for (key, problem) in [
            (P521, "not supported; ECDSA with P-256 or P-384"),
            (RSA_1024, "RSA with 2048 to 8192 bits"),
            (&other, "does not belong to its certificate"),
        ] {
            let user = json!({"client-certificate-data": base64(&certificate), "client-key-data": base64(key)});
            let target = kubeconfig("key", &json!({"server": "https://127.0.0.1:1"}), &user);
            let error = connect(&target, "test/1").await.err().unwrap().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[tokio::test]
    async fn a_server_behind_a_proxy_is_reached() {
        let simulator = pilothouse_simulator::Simulator::new(pilothouse_simulator::Options::default());
        let serving = simulator.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (plain, tls) = (
            Proxy::start(serving.address()).await,
            Proxy::start_tls(serving.address()).await,
        );
        let authority = tls.authority.clone().unwrap().into_bytes();
        for (proxy, url, request) in [
            (&plain, "http://", "CONNECT k.example:6443"),
            (&plain, "http://u:p%40q@", "CONNECT k.example:6443 as Basic dTpwQHE="),
            (&tls, "https://", "CONNECT k.example:6443"),
            (&tls, "https://u:p@", "CONNECT k.example:6443 as Basic dTpw"),
            (&plain, "socks5://", "SOCKS k.example:6443"),
            (&plain, "socks5h://", "SOCKS k.example:6443"),
        ] {
            let cluster = json!({
                "server": "http://k.example:6443", "proxy-url": format!("{url}{}", proxy.address),
                "certificate-authority-data": k8s_openapi::ByteString(authority.clone()),
            });
            let target = kubeconfig("proxy", &cluster, &json!({}));
            let client = connect(&target, "test/1").await.unwrap();
            client
                .apiserver_version()
                .await
                .unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(proxy.requests().pop().as_deref(), Some(request), "{url}");
        }
    }
}
