//! Owns how the host reaches a cluster: which kubeconfig, which time-outs, under which name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::error::chain;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

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

/// Makes a client. No request is sent yet.
pub async fn connect(target: &ClusterTarget, user_agent: &str) -> Result<Client, ConnectError> {
    let options = KubeConfigOptions {
        context: target.context.clone(),
        ..KubeConfigOptions::default()
    };
    if target.kubeconfig.is_none() {
        refuse_cut_files(&default_files())?;
    }
    let mut config = match &target.kubeconfig {
        Some(path) => from_file(path, &options).await?,
        None if target.context.is_some() => Config::from_kubeconfig(&options)
            .await
            .map_err(|error| ConnectError::NoCluster(chain(&error)))?,
        None => Config::infer()
            .await
            .map_err(|error| ConnectError::NoCluster(chain(&error)))?,
    };
    // kube's own retry repeats every method 15 times, creates included; the host retries by object, with back-off.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Who asks says how long an answer may take.
    config.read_timeout = None;
    let agent =
        http::HeaderValue::from_str(user_agent).expect("the user agent is made of the crate's name and version");
    config.headers.push((http::header::USER_AGENT, agent));
    let server = config.cluster_url.to_string();
    tracing::info!(server, "this is the cluster's address");
    Client::try_from(config).map_err(|error| ConnectError::Client {
        server,
        problem: chain(&error),
    })
}

async fn from_file(path: &Path, options: &KubeConfigOptions) -> Result<Config, ConnectError> {
    let refuse = |problem: String| refused(path, problem);
    let bytes = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    if is_cut_utf16(&bytes) {
        return Err(refuse(CUT.to_owned()));
    }
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| refuse(chain(&error)))?;
    Config::from_custom_kubeconfig(kubeconfig, options)
        .await
        .map_err(|error| refuse(chain(&error)))
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
