//! Serves the host's API: the option, its default, and the key for the host's user to query it on the same machine.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use pilothouse_runtime::Handle;
use pilothouse_runtime::api::{ArtifactAnswers, ClientAccess, HostApi, HostApiServer};

use crate::options::metrics::{MetricsAddress, bind, parse_address};
use crate::options::settings;

/// Default address of a host in a pod: the API server's proxy connects from outside of it.
const IN_A_POD: MetricsAddress = MetricsAddress::AllAddresses(8443);

/// The bytes of randomness of a key.
const KEY_BYTES: usize = 32;

/// The options about the API.
#[derive(Args)]
pub struct ApiArguments {
    /// The address that serves the API that `pilothouse status`, `why` and `top` ask: IP:PORT, :PORT for all addresses, or
    /// off. At a loopback address the API is served over plain HTTP, and only to the user that the host runs as; elsewhere
    /// over TLS, to users of the cluster by their rights (default: :8443 in a pod, else off)
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    api_address: Option<MetricsAddress>,

    /// Let people with the right record the calls of plugins, with `pilothouse record`. A recording has all that a plugin reads,
    /// with the values of Secrets masked (default: nothing can be recorded)
    #[arg(long)]
    allow_recording: bool,

    /// The file to which the key for a loopback address is written (default: pilothouse/api-PORT.key below
    /// XDG_RUNTIME_DIR, or below ~/.cache)
    #[arg(long, value_name = "FILE", requires = "api_address")]
    api_key_file: Option<PathBuf>,
}

/// The API, if it is served.
pub struct ServedApi {
    /// The API of the host, set when the host exists.
    api: Option<Arc<HostApi>>,
    /// Set if calls may be recorded.
    pub allow_recording: bool,
    _server: Option<HostApiServer>,
    _key: Option<KeyFile>,
}

impl ServedApi {
    /// Sets the host.
    pub fn set_host(&self, host: &Handle) {
        if let Some(api) = &self.api {
            api.set_host(host, env!("CARGO_PKG_VERSION"), settings::instance());
        }
    }

    /// Sets the source of answers for other replicas.
    pub fn set_artifacts(&self, artifacts: Arc<dyn ArtifactAnswers>) {
        if let Some(api) = &self.api {
            api.set_artifacts(artifacts);
        }
    }
}

/// A file with a key, deleted when this is dropped.
struct KeyFile(PathBuf);

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl ApiArguments {
    /// Starts the server. An address that cannot be used is an error.
    pub fn serve(self) -> anyhow::Result<ServedApi> {
        let Self {
            api_address,
            allow_recording,
            api_key_file,
        } = self;
        let address = api_address.unwrap_or_else(|| default_address(settings::is_in_a_pod()));
        let next = "give another address with --api-address, or --api-address off";
        let listener = bind(address).with_context(|| format!("cannot serve the API on {address}; {next}"))?;
        let Some(listener) = listener else {
            ensure!(
                api_key_file.is_none(),
                "--api-key-file has no use without a loopback address in --api-address"
            );
            ensure!(
                !allow_recording,
                "--allow-recording has no use without the API; give its address with --api-address"
            );
            return Ok(ServedApi {
                api: None,
                allow_recording,
                _server: None,
                _key: None,
            });
        };
        let address = listener.local_addr().context("the API's address has gone")?;
        let is_local = is_loopback(address.ip());
        let (access, key) = if is_local {
            let path = match api_key_file {
                Some(path) => path,
                None => settings::api_key_file(address.port()).context(
                    "neither XDG_RUNTIME_DIR nor HOME is set; say with --api-key-file where to write the API's key",
                )?,
            };
            let key = write_key(&path).with_context(|| {
                format!(
                    "cannot write the API's key to {}; give another file with --api-key-file",
                    path.display()
                )
            })?;
            tracing::info!(%address, key = %path.display(), "serving the API to the user of this process");
            (ClientAccess::Key(key), Some(KeyFile(path)))
        } else {
            ensure!(
                api_key_file.is_none(),
                "--api-key-file is for a loopback address; at {address} users of the cluster show tokens"
            );
            tracing::info!(%address, "serving the API to users of the cluster");
            (ClientAccess::Tokens, None)
        };
        let api = Arc::new(HostApi::new(access));
        let server = api.serve(listener, is_local).context("cannot serve the API")?;
        Ok(ServedApi {
            api: Some(api),
            allow_recording,
            _server: Some(server),
            _key: key,
        })
    }
}

fn default_address(is_in_a_pod: bool) -> MetricsAddress {
    if is_in_a_pod { IN_A_POD } else { MetricsAddress::Off }
}

/// Reports whether an address is reachable from this machine only.
fn is_loopback(address: IpAddr) -> bool {
    // `::ffff:127.0.0.1` is IPv4's.
    address.to_canonical().is_loopback()
}

/// Makes a key and writes it to a file that only this user can read. An existing file is of an earlier process: two
/// processes cannot listen at one port.
fn write_key(path: &Path) -> io::Result<String> {
    let mut random = [0; KEY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let key = random.iter().fold(String::new(), |mut key, byte| {
        let _ = write!(key, "{byte:02x}");
        key
    });
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // `create_new` refuses a link that was put there meanwhile, and the mode keeps others from reading the file.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(key.as_bytes())?;
    Ok(key)
}

/// Reads the key of a host on this machine.
pub fn read_key(path: &Path) -> anyhow::Result<String> {
    match fs::read_to_string(path) {
        Ok(key) => Ok(key.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "there is no key in {}: run the host with --api-address at this port, as the same user, or give its file with \
             --api-key-file",
            path.display()
        ),
        Err(error) => bail!(
            "cannot read the key in {}: {error}; ask as the user that the host runs as",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_key_is_another_each_time_and_only_its_user_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below").join("key");
        let first = write_key(&path).unwrap();
        let second = write_key(&path).unwrap();
        assert_eq!((first.len(), second.len()), (2 * KEY_BYTES, 2 * KEY_BYTES));
        assert_ne!(first, second);
        assert_eq!(read_key(&path).unwrap(), second);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        drop(KeyFile(path.clone()));
        assert!(read_key(&path).unwrap_err().to_string().contains("--api-key-file"));
    }

    #[test]
    fn a_link_that_somebody_has_put_there_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("key"), folder.path().join("victim"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &path).unwrap();
        write_key(&path).unwrap();
        assert_eq!(fs::read_to_string(target).unwrap(), "precious");
    }

    #[test]
    fn only_loopback_addresses_are_this_machine() {
        for local in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(is_loopback(local.parse().unwrap()), "{local}");
        }
        for remote in ["0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "169.254.1.1"] {
            assert!(!is_loopback(remote.parse().unwrap()), "{remote}");
        }
        assert_eq!(default_address(true), MetricsAddress::AllAddresses(8443));
        assert_eq!(default_address(false), MetricsAddress::Off);
    }
}
