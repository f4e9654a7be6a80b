//! Owns how the host reaches a cluster: which kubeconfig, which time-outs, under which name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, NamedContext};
use kube::{Client, Config};
use pilothouse_metrics::RequestMetrics;
use tower::util::MapResultLayer;

use crate::connection_log::ConnectionLog;
use crate::error::chain;
use crate::fence::WriteFence;
use crate::meter::MeterLayer;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Who asks where there is no kubeconfig.
const POD_USER: &str = "the pod's service account";

/// What is wrong with a file that [`is_cut_utf16`] finds.
const CUT: &str = "it is UTF-16 and ends within a character";

/// Which cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterTarget {
    /// The kubeconfig; none means `KUBECONFIG`, `~/.kube/config`, or the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context; none means its current one.
    pub context: Option<String>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file cannot be read or parsed, or lacks what it refers to.
    #[error(
        "kubeconfig {path} cannot be used: {problem}; correct it, or give another file with --kubeconfig or another context with --context"
    )]
    Kubeconfig {
        /// Its path.
        path: String,
        /// Why not.
        problem: String,
    },
    /// Neither a kubeconfig nor a service account is there.
    #[error("no cluster is configured: {0}; give one with --kubeconfig, or set KUBECONFIG")]
    NoCluster(String),
    /// The configuration names certificates or credentials that cannot be used.
    #[error("cannot set up a connection to {server}: {problem}; check the kubeconfig's user and certificates")]
    Client {
        /// The server's address.
        server: String,
        /// Why not.
        problem: String,
    },
}

/// Makes a client whose changes nothing stops and whose requests nobody counts. No request is sent yet.
pub async fn connect(target: &ClusterTarget, user_agent: &str) -> Result<Client, ConnectError> {
    connect_through(target, user_agent, &WriteFence::default(), &RequestMetrics::default()).await
}

/// Makes a client whose changes go through a fence, and whose requests are counted. No request is sent yet.
pub async fn connect_through(
    target: &ClusterTarget,
    user_agent: &str,
    fence: &WriteFence,
    metrics: &RequestMetrics,
) -> Result<Client, ConnectError> {
    connect_as(target, user_agent, fence, metrics, Credentials::Own).await
}

/// The same without the credentials of the kubeconfig or of the pod: each request has to bring its own.
pub async fn connect_bare(
    target: &ClusterTarget,
    user_agent: &str,
    fence: &WriteFence,
    metrics: &RequestMetrics,
) -> Result<Client, ConnectError> {
    connect_as(target, user_agent, fence, metrics, Credentials::None).await
}

/// Which credentials a client has.
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
    let (mut config, user) = configuration(target).await?;
    if credentials == Credentials::None {
        config.auth_info = AuthInfo::default();
    }
    // kube's own retry repeats every method 15 times, creates included; the host retries by object, with back-off.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Who asks says how long an answer may take.
    config.read_timeout = None;
    let agent =
        http::HeaderValue::from_str(user_agent).expect("the user agent is made of the crate's name and version");
    config.headers.push((http::header::USER_AGENT, agent));
    let server = config.cluster_url.to_string();
    let builder = ClientBuilder::try_from(config).map_err(|error| ConnectError::Client {
        server: server.clone(),
        problem: chain(&error),
    })?;
    if credentials == Credentials::Own {
        tracing::info!(server, user, "using the cluster");
    }
    let log = Arc::new(ConnectionLog::new(server, user));
    let observe = MapResultLayer::new(move |result| {
        // What one account's token is not good for says nothing about the host's connection.
        if credentials == Credentials::Own {
            log.observe(&result);
        }
        result
    });
    // What the fence stops is no request, and says nothing about the connection.
    Ok(builder
        .with_layer(&observe)
        .with_layer(&MeterLayer::new(metrics))
        .with_layer(fence)
        .build())
}

/// What a kubeconfig says, or the pod, and who asks.
pub(crate) async fn configuration(target: &ClusterTarget) -> Result<(Config, String), ConnectError> {
    let options = KubeConfigOptions {
        context: target.context.clone(),
        ..KubeConfigOptions::default()
    };
    if let Some(path) = &target.kubeconfig {
        return from_file(path, &options).await;
    }
    refuse_cut_files(&default_files())?;
    from_environment(&options).await
}

/// From the files of `KUBECONFIG`, `~/.kube/config`, or the service account of the pod, in this order.
async fn from_environment(options: &KubeConfigOptions) -> Result<(Config, String), ConnectError> {
    let kubeconfig = match Kubeconfig::read() {
        Ok(kubeconfig) => kubeconfig,
        // A pod has no kubeconfig; a context can only be one of a kubeconfig.
        Err(missing) if options.context.is_none() => {
            return match Config::incluster() {
                Ok(config) => Ok((config, POD_USER.to_owned())),
                Err(_) => Err(ConnectError::NoCluster(format!(
                    "{}, and this is no pod with a service account",
                    chain(&missing)
                ))),
            };
        }
        Err(missing) => return Err(ConnectError::NoCluster(chain(&missing))),
    };
    from_kubeconfig(kubeconfig, options)
        .await
        .map_err(ConnectError::NoCluster)
}

/// The chosen context's cluster and the name of its user, or what is wrong with the kubeconfig.
async fn from_kubeconfig(kubeconfig: Kubeconfig, options: &KubeConfigOptions) -> Result<(Config, String), String> {
    let user = check_context(&kubeconfig, options)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, options).await;
    config.map(|config| (config, user)).map_err(|error| chain(&error))
}

/// Checks that the context, its cluster and its user are there, and says who the user is.
fn check_context(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Result<String, String> {
    let contexts: Vec<&str> = kubeconfig.contexts.iter().map(|it| &*it.name).collect();
    let chosen = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let Some(chosen) = chosen.filter(|chosen| !chosen.is_empty()) else {
        return Err(format!("it has no current-context; {}", known(&contexts)));
    };
    let named = kubeconfig.contexts.iter().find(|it| it.name == *chosen);
    let Some(NamedContext {
        context: Some(context), ..
    }) = named
    else {
        return Err(format!("it has no context {chosen:?}; {}", known(&contexts)));
    };
    let clusters: Vec<&str> = kubeconfig.clusters.iter().map(|it| &*it.name).collect();
    if !clusters.contains(&&*context.cluster) {
        let cluster = &context.cluster;
        return Err(format!(
            "its context {chosen:?} names cluster {cluster:?}; {}",
            known(&clusters)
        ));
    }
    let users: Vec<&str> = kubeconfig.auth_infos.iter().map(|it| &*it.name).collect();
    match context.user.as_deref() {
        Some(user) if !user.is_empty() && !users.contains(&user) => {
            Err(format!("its context {chosen:?} names user {user:?}; {}", known(&users)))
        }
        user => Ok(user.unwrap_or("anonymous").to_owned()),
    }
}

/// What can be chosen from.
fn known(names: &[&str]) -> String {
    if names.is_empty() {
        return "it has none".to_owned();
    }
    format!("it has {}", names.join(", "))
}

async fn from_file(path: &Path, options: &KubeConfigOptions) -> Result<(Config, String), ConnectError> {
    let refuse = |problem: String| refused(path, problem);
    let bytes = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    if is_cut_utf16(&bytes) {
        return Err(refuse(CUT.to_owned()));
    }
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| refuse(chain(&error)))?;
    from_kubeconfig(kubeconfig, options).await.map_err(refuse)
}

/// The kubeconfigs that are read where none is given, as kubectl has it: those of `KUBECONFIG`, or the one at home.
fn default_files() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG").filter(|files| !files.is_empty()) {
        Some(files) => std::env::split_paths(&files).collect(),
        None => std::env::home_dir()
            .map(|home| home.join(".kube/config"))
            .into_iter()
            .collect(),
    }
}

/// Refuses files that kube could not survive. One that cannot be read is kube's to refuse, or to do without.
fn refuse_cut_files(paths: &[PathBuf]) -> Result<(), ConnectError> {
    let is_cut = |path: &&PathBuf| std::fs::read(path).is_ok_and(|bytes| is_cut_utf16(&bytes));
    let cut = paths.iter().find(is_cut);
    cut.map_or(Ok(()), |path| Err(refused(path, CUT.to_owned())))
}

fn refused(path: &Path, problem: String) -> ConnectError {
    ConnectError::Kubeconfig {
        path: path.display().to_string(),
        problem,
    }
}

/// Whether bytes are UTF-16, as their byte order mark says, and too few by one. kube 5.0.0 reads over their end and
/// panics.
fn is_cut_utf16(bytes: &[u8]) -> bool {
    let has_mark = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    has_mark && bytes.len() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context_of(kubeconfig: &serde_json::Value, context: Option<&str>) -> Result<String, String> {
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        check_context(&serde_json::from_value(kubeconfig.clone()).unwrap(), &options)
    }

    #[test]
    fn a_context_that_is_missing_or_incomplete_is_refused_with_what_there_is() {
        let kubeconfig = serde_json::json!({
            "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
            "contexts": [
                {"name": "dev", "context": {"cluster": "here", "user": "me"}},
                {"name": "prod", "context": {"cluster": "there", "user": "me"}},
                {"name": "odd", "context": {"cluster": "here", "user": "you"}},
                {"name": "open", "context": {"cluster": "here"}},
            ],
            "current-context": "dev",
        });
        let refused = |context| context_of(&kubeconfig, Some(context)).unwrap_err();
        assert_eq!(context_of(&kubeconfig, None).unwrap(), "me");
        assert_eq!(context_of(&kubeconfig, Some("open")).unwrap(), "anonymous");
        assert_eq!(
            refused("nope"),
            "it has no context \"nope\"; it has dev, prod, odd, open"
        );
        assert_eq!(
            refused("prod"),
            "its context \"prod\" names cluster \"there\"; it has here"
        );
        assert_eq!(refused("odd"), "its context \"odd\" names user \"you\"; it has me");
        let empty = serde_json::json!({});
        assert_eq!(
            context_of(&empty, None).unwrap_err(),
            "it has no current-context; it has none"
        );
    }

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
}
