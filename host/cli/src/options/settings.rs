//! Reads the command's own environment variables, and those of proxies for registries. The variables of others are read where their
//! files are: those of kubeconfigs in pilothouse-cluster (`connect`), those of docker's credentials in pilothouse-artifact (`registry::credentials`).

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use pilothouse_artifact::ProxyRule;
use pilothouse_cluster::connect::proxy;

/// Returns the default directory of compiled plugins: `$XDG_CACHE_HOME/pilothouse/plugins`, or below `~/.cache`.
pub fn default_cache_directory() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    cache
        .or_else(home)
        .map(|cache| cache.join("pilothouse").join("plugins"))
}

/// Returns the default registries file: `$XDG_CONFIG_HOME/pilothouse/registries.yaml`, or the same below `~/.config`.
pub fn default_registries_file() -> Option<PathBuf> {
    let configuration = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    configuration
        .or_else(home)
        .map(|configuration| configuration.join("pilothouse").join("registries.yaml"))
}

/// Returns the default file of the API key: `$XDG_RUNTIME_DIR/pilothouse/api-PORT.key`, or the same below `~/.cache`.
pub fn api_key_file(port: u16) -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    runtime
        .or_else(home)
        .map(|directory| directory.join("pilothouse").join(format!("api-{port}.key")))
}

/// Returns URLs of the proxies that requests to registries may use.
pub fn proxies() -> Vec<String> {
    let names = ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"];
    let names = names.iter().flat_map(|name| [(*name).to_owned(), name.to_lowercase()]);
    names.filter_map(|name| std::env::var(name).ok()).collect()
}

/// Selects the proxy for requests to registries by `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
pub fn registry_proxy() -> anyhow::Result<ProxyRule> {
    let select = |server: &str| {
        let server = server.parse().map_err(|_| format!("{server} is no URL"))?;
        proxy::for_registry(&server, &|name| std::env::var(name).ok())
    };
    // A value that cannot be used is refused before anything is sent.
    for server in ["https://registry.invalid", "http://registry.invalid"] {
        let _ = select(server).map_err(anyhow::Error::msg)?;
    }
    Ok(Arc::new(move |server: &str| Some(select(server).ok()??.to_string())))
}

/// Reports whether the user wants no colours; see <https://no-color.org>.
pub fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Returns the timestamp of a reproducible build; see <https://reproducible-builds.org/specs/source-date-epoch/>.
pub fn source_date_epoch() -> anyhow::Result<Option<Timestamp>> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map(Some)
        .context("SOURCE_DATE_EPOCH is not a number of seconds since 1970; correct it or give --created")
}

/// Returns the filter for log lines of commands that print a result: warnings about registries.
pub fn command_log_filter() -> String {
    std::env::var("PILOTHOUSE_LOG").unwrap_or_else(|_| "off,pilothouse_artifact=warn".to_owned())
}

/// Default log filter. kube would repeat at each retry a message that the host logs once.
const LOG_FILTER: &str = "info,kube_client=off";

/// Returns the filter for log lines, in the form of `tracing_subscriber`'s `EnvFilter`.
pub fn log_filter() -> String {
    std::env::var("PILOTHOUSE_LOG").unwrap_or_else(|_| LOG_FILTER.to_owned())
}

/// Returns the name of this process in events: the pod's, as Kubernetes sets it, or the program's.
pub fn instance() -> String {
    std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "pilothouse".to_owned())
}

/// Returns the address of this pod, if its manifest passes it by the downward API.
pub fn pod_ip() -> Option<String> {
    std::env::var("POD_IP").ok().filter(|ip| !ip.is_empty())
}

/// File in which Kubernetes publishes a pod's namespace.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Returns the namespace of the pod that this process runs in, if it runs in one.
pub fn pod_namespace() -> Option<String> {
    let namespace = std::fs::read_to_string(POD_NAMESPACE).ok()?;
    let namespace = namespace.trim();
    (!namespace.is_empty()).then(|| namespace.to_owned())
}

/// Reports whether this process runs in a pod: the kubelet sets the address of the API server for each container.
pub fn is_in_a_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}
