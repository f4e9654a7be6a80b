//! Provides the current trust policy: read from its file at the start, and again when the file, or a file that it
//! names, has changed. If a file can no longer be read, the last policy stays in force.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use crate::{Digest, TrustPolicy, TrustPolicyError};

/// The interval at which the files are read again.
const INTERVAL: Duration = Duration::from_secs(5);

/// The largest trust file, and the largest file that it names, in bytes.
const LARGEST: u64 = 16 << 20;

/// The trust policy of a host.
pub struct TrustSource {
    file: Option<PathBuf>,
    current: Mutex<Loaded>,
    number: watch::Sender<u64>,
}

#[derive(Clone)]
struct Loaded {
    policy: Arc<TrustPolicy>,
    /// The digest of the file and of all files that it names.
    content: Digest,
}

/// The reason why there is no trust policy.
#[derive(Debug, thiserror::Error)]
pub enum TrustSourceError {
    /// The file cannot be read.
    #[error("cannot read the trust file {}: {problem}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The file is not a valid policy.
    #[error("the trust file {} cannot be used: {problem}", .file.display())]
    Policy {
        /// The file.
        file: PathBuf,
        /// The problem.
        problem: TrustPolicyError,
    },
}

impl TrustSource {
    /// Accepts every artifact, and reports it as unsigned.
    pub fn accept_unsigned() -> Self {
        Self {
            file: None,
            current: Mutex::new(Loaded {
                policy: Arc::new(TrustPolicy::accept_unsigned()),
                content: Digest::of(b""),
            }),
            number: watch::Sender::new(0),
        }
    }

    /// Reads a trust file, YAML or JSON.
    pub fn open(file: &Path) -> Result<Self, TrustSourceError> {
        Ok(Self {
            file: Some(file.to_owned()),
            current: Mutex::new(load(file, None)?.expect("nothing is loaded yet")),
            number: watch::Sender::new(0),
        })
    }

    /// The current policy.
    pub fn policy(&self) -> Arc<TrustPolicy> {
        self.lock().policy.clone()
    }

    /// The number of changes of the policy.
    pub fn number(&self) -> u64 {
        *self.number.borrow()
    }

    /// Waits until the policy is another one than that of this number.
    pub async fn changed(&self, since: u64) {
        let mut number = self.number.subscribe();
        // The sender is there for as long as this is.
        let _ = number.wait_for(|number| *number != since).await;
    }

    /// Follows the file for ever.
    pub async fn follow(&self) {
        let Some(file) = &self.file else {
            return std::future::pending().await;
        };
        let mut told = None;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let (read, before) = (file.clone(), self.lock().content);
            let load = move || load(&read, Some(before)).map_err(|error| error.to_string());
            let loaded = tokio::task::spawn_blocking(load).await;
            match loaded.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(loaded) => {
                    if told.take().is_some() {
                        tracing::info!(file = %file.display(), "the trust file can be read again");
                    }
                    if let Some(loaded) = loaded {
                        tracing::info!(file = %file.display(), "the trust policy has changed");
                        *self.lock() = loaded;
                        self.number.send_modify(|number| *number += 1);
                    }
                }
                Err(problem) if told.as_ref() != Some(&problem) => {
                    tracing::error!(
                        problem,
                        "the trust policy is not read again; the policy before stays in force"
                    );
                    told = Some(problem);
                }
                Err(_) => {}
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Loaded> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a trust file and the files that it names; none if all of that is loaded already.
fn load(file: &Path, loaded: Option<Digest>) -> Result<Option<Loaded>, TrustSourceError> {
    let unread = |problem: String| TrustSourceError::Read {
        file: file.to_owned(),
        problem,
    };
    let text = read(file).map_err(&unread)?;
    let value: Value =
        serde_saphyr::from_slice(&text).map_err(|error| unread(format!("it is neither YAML nor JSON: {error}")))?;
    let directory = file.parent().unwrap_or(Path::new("."));
    let mut named = BTreeSet::new();
    files(&value, &mut named);
    let mut content = Digest::of(&text).to_string();
    for name in named {
        // One that cannot be read is the policy's to refuse.
        let digest =
            read(&directory.join(&name)).map_or_else(|problem| problem, |bytes| Digest::of(&bytes).to_string());
        content.push_str(&digest);
    }
    let content = Digest::of(content.as_bytes());
    if loaded == Some(content) {
        return Ok(None);
    }
    let policy = TrustPolicy::load(&value, directory).map_err(|problem| TrustSourceError::Policy {
        file: file.to_owned(),
        problem,
    })?;
    Ok(Some(Loaded {
        policy: Arc::new(policy),
        content,
    }))
}

/// The files that a policy names.
fn files(value: &Value, named: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(file) if name == "file" || name == "trustedRoot" => {
                        named.insert(file.clone());
                    }
                    value => files(value, named),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| files(item, named)),
        _ => {}
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = opened.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it has more than {LARGEST} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pem() -> String {
        rcgen::KeyPair::generate().unwrap().public_key_pem()
    }

    #[tokio::test(start_paused = true)]
    async fn changed_policy_or_key_is_loaded_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (file, key) = (folder.path().join("trust.yaml"), folder.path().join("k.pub"));
        std::fs::write(&key, pem()).unwrap();
        let policy =
            json!({"default": "refuse", "repositories": [{"match": "a.example/*", "keys": [{"file": "k.pub"}]}]});
        std::fs::write(&file, policy.to_string()).unwrap();
        let source = Arc::new(TrustSource::open(&file).unwrap());
        let follower = source.clone();
        tokio::spawn(async move { follower.follow().await });
        let quiet = async |since: u64| tokio::time::timeout(INTERVAL * 3, source.changed(since)).await.is_err();
        assert!(quiet(0).await, "nothing has changed");
        std::fs::write(&key, pem()).unwrap();
        source.changed(0).await;
        std::fs::write(&file, "default: nothing").unwrap();
        assert!(quiet(1).await, "what cannot be read changes nothing");
        assert!(source.policy().rule_for("a.example/b").is_ok());
        std::fs::write(&file, "default: refuse").unwrap();
        source.changed(1).await;
        assert!(source.policy().rule_for("a.example/b").is_err());
    }

    #[test]
    fn a_trust_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trust.yaml");
        let opened = || TrustSource::open(&file).err().map(|error| error.to_string()).unwrap();
        assert!(opened().contains("trust.yaml: No such file"), "{}", opened());
        std::fs::write(&file, "{").unwrap();
        assert!(opened().contains("neither YAML nor JSON"), "{}", opened());
        std::fs::write(&file, "defaults: refuse").unwrap();
        assert!(
            opened().contains("cannot be used") && opened().contains("defaults"),
            "{}",
            opened()
        );
    }
}
