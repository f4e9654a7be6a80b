//! Reads and writes the user's Docker configuration for `login` and `logout`: the file, or the helper that it names.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::{Credentials, Keychain, server};
use crate::{ArtifactError, ErrorKind};

/// The user's Docker configuration, as a keychain. It may run credential helpers.
#[derive(Clone, Copy, Debug, Default)]
pub struct DockerConfig;

impl Keychain for DockerConfig {
    fn credentials(&self, host: &str, _: &str) -> Result<Credentials, ArtifactError> {
        Credentials::from_docker_config(host)
    }
}

impl DockerConfig {
    /// The path of the file: `$DOCKER_CONFIG/config.json` or `~/.docker/config.json`.
    pub fn path() -> Option<PathBuf> {
        let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
        let directory = directory.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")));
        Some(directory?.join("config.json"))
    }

    pub(super) fn is_absent() -> bool {
        Self::path().is_none_or(|path| !path.exists())
    }
}

/// The place to which credentials were written, or from which they were removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The Docker configuration, from which every reader of the file can read them.
    File(PathBuf),
    /// A credential helper.
    Helper(String),
}

/// Stores credentials for a registry where Docker's tools find them.
pub fn login(host: &str, username: &str, password: &str) -> Result<Kept, ArtifactError> {
    login_in(&file()?, host, username, password)
}

/// Removes the credentials for a registry.
pub fn logout(host: &str) -> Result<Kept, ArtifactError> {
    logout_in(&file()?, host)
}

fn file() -> Result<PathBuf, ArtifactError> {
    DockerConfig::path().ok_or_else(|| {
        ArtifactError::new(
            ErrorKind::Configuration,
            "there is no place for credentials: neither DOCKER_CONFIG nor HOME is set",
        )
    })
}

fn login_in(path: &Path, host: &str, username: &str, password: &str) -> Result<Kept, ArtifactError> {
    let mut config = read(path)?;
    if let Some(helper) = helper(&config, host) {
        let request = json!({"ServerURL": server(host), "Username": username, "Secret": password});
        run(&helper, "store", request.to_string().as_bytes())?;
        return Ok(Kept::Helper(helper));
    }
    let auth = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
    let auths = config.entry("auths").or_insert_with(|| json!({}));
    let auths = auths
        .as_object_mut()
        .ok_or_else(|| broken(path, "auths is not an object"))?;
    auths.insert(server(host), json!({"auth": auth}));
    write(path, &config)?;
    Ok(Kept::File(path.to_owned()))
}

fn logout_in(path: &Path, host: &str) -> Result<Kept, ArtifactError> {
    let mut config = read(path)?;
    let auths = config.get_mut("auths").and_then(Value::as_object_mut);
    let removed = auths.is_some_and(|auths| auths.remove(&server(host)).is_some());
    if removed {
        write(path, &config)?;
    }
    if let Some(helper) = helper(&config, host) {
        run(&helper, "erase", server(host).as_bytes())?;
        return Ok(Kept::Helper(helper));
    }
    if !removed {
        return Err(ArtifactError::new(
            ErrorKind::NotFound,
            format!("{} has no credentials for {host}", path.display()),
        ));
    }
    Ok(Kept::File(path.to_owned()))
}

fn broken(path: &Path, problem: &str) -> ArtifactError {
    let message = format!(
        "{} is not a Docker configuration: {problem}; repair or remove it",
        path.display()
    );
    ArtifactError::new(ErrorKind::Configuration, message)
}

fn read(path: &Path) -> Result<Map<String, Value>, ArtifactError> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|_| broken(path, "it is not a JSON object")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Map::new()),
        Err(error) => Err(ArtifactError::io("read", path, &error)),
    }
}

/// Writes beside the file and renames, so that a reader sees the old or the new file. The target of a symbolic link is
/// replaced, not the link.
fn write(path: &Path, config: &Map<String, Value>) -> Result<(), ArtifactError> {
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let failed = |error: std::io::Error| ArtifactError::io("write", path, &error);
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).map_err(failed)?;
    // Its mode is 0600 from the beginning.
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    let mut text = serde_json::to_vec_pretty(config).expect("JSON is written as JSON");
    text.push(b'\n');
    file.write_all(&text).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// The credential helper for a registry.
fn helper(config: &Map<String, Value>, host: &str) -> Option<String> {
    let own = config.get("credHelpers").and_then(|it| it.get(server(host)));
    let name = own.or_else(|| config.get("credsStore"))?.as_str()?;
    (!name.is_empty()).then(|| format!("docker-credential-{name}"))
}

fn run(helper: &str, action: &str, input: &[u8]) -> Result<(), ArtifactError> {
    let failed =
        |problem: String| ArtifactError::new(ErrorKind::Configuration, format!("{helper} {action} failed: {problem}"));
    let mut process = Command::new(helper)
        .arg(action)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(format!("it cannot be run ({error}); install it in the PATH")))?;
    // A helper that does not read its input closes the pipe; its exit status decides.
    let _ = process.stdin.take().map(|mut stdin| stdin.write_all(input));
    let output = process.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    // The protocol puts the reason on the standard output; the input is not repeated there.
    let reason = String::from_utf8_lossy(&output.stdout);
    Err(failed(crate::error::quoted(reason.trim())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn login_and_logout_keep_everything_else_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/config.json");
        login_in(&path, "ghcr.io", "user", "password").unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        std::fs::write(
            &path,
            json!({"proxies": {"a": 1}, "auths": {"quay.io": {"auth": "eDp5"}}}).to_string(),
        )
        .unwrap();
        login_in(&path, "ghcr.io", "user", "pass:word").unwrap();
        login_in(&path, "docker.io", "hub", "password").unwrap();
        let config = read(&path).unwrap();
        assert_eq!(config["proxies"], json!({"a": 1}));
        assert_eq!(config["auths"]["quay.io"], json!({"auth": "eDp5"}));
        let reader = || std::fs::File::open(&path).unwrap();
        assert_eq!(
            docker_credential::get_credential_from_reader(reader(), "ghcr.io"),
            Ok(docker_credential::DockerCredential::UsernamePassword(
                "user".into(),
                "pass:word".into()
            ))
        );
        assert!(docker_credential::get_credential_from_reader(reader(), &server("docker.io")).is_ok());

        assert_eq!(logout_in(&path, "ghcr.io"), Ok(Kept::File(path.clone())));
        assert_eq!(logout_in(&path, "ghcr.io").unwrap_err().kind(), ErrorKind::NotFound);
        let config = read(&path).unwrap();
        assert_eq!(config["auths"].as_object().unwrap().len(), 2);
        assert_eq!(config["proxies"], json!({"a": 1}));
    }

    #[test]
    fn a_file_that_is_no_configuration_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        for text in ["[]", "{", "{\"auths\": 1}"] {
            std::fs::write(&path, text).unwrap();
            let error = login_in(&path, "ghcr.io", "user", "hunter2").unwrap_err();
            assert!(
                error.to_string().contains("config.json") && !error.to_string().contains("hunter2"),
                "{error}"
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn helper_gets_credentials_on_standard_input_not_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let helper = directory.path().join("docker-credential-test");
        let log = directory.path().join("log");
        let script = format!(
            "#!/bin/sh\necho \"$1\" >> {0}\ncat >> {0}\n[ \"$1\" = store ] || {{ echo no such user; exit 1; }}\n",
            log.display()
        );
        std::fs::write(&helper, script).unwrap();
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let name = helper.to_str().unwrap();
        run(name, "store", b"{\"Secret\":\"hunter2\"}").unwrap();
        assert_eq!(
            std::fs::read_to_string(&log).unwrap(),
            "store\n{\"Secret\":\"hunter2\"}"
        );
        let error = run(name, "erase", b"ghcr.io").unwrap_err().to_string();
        assert!(error.contains("no such user"), "{error}");

        let path = directory.path().join("config.json");
        std::fs::write(&path, json!({"credsStore": "absent-here"}).to_string()).unwrap();
        let error = login_in(&path, "ghcr.io", "user", "hunter2").unwrap_err().to_string();
        assert!(
            error.contains("docker-credential-absent-here") && error.contains("PATH"),
            "{error}"
        );
        assert!(!std::fs::read_to_string(&path).unwrap().contains("auths"));
    }
}
