//! Reads kubeconfigs by the rules of client-go (`tools/clientcmd`), and makes a client configuration of a context.
//! kube's own reader differs where an entry is empty, incomplete or wrapped, and in the precedence of credentials.

mod user;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::ByteString;
use kube::Config;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::user::User;
use crate::connect::credentials::Tokens;
use crate::connect::proxy;

/// The extension of a cluster with a helper's configuration.
const HELPER_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// One kubeconfig, or several merged ones. Entries are in the order of the files.
#[derive(Debug, Default)]
pub(crate) struct Kubeconfig {
    clusters: Vec<(String, Value)>,
    users: Vec<(String, Value)>,
    contexts: Vec<(String, Value)>,
    current_context: Option<String>,
}

/// A context's cluster and user, ready for a client.
pub(crate) struct Connection {
    pub(crate) config: Config,
    /// The user's name, for messages.
    pub(crate) user: String,
    /// The context's name, if there is a context.
    pub(crate) context: Option<String>,
    pub(crate) tokens: Option<Arc<Tokens>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: Option<String>,
    insecure_skip_tls_verify: bool,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
    tls_server_name: Option<String>,
    extensions: Vec<Value>,
}

impl Kubeconfig {
    /// Parses a file. Relative paths in it start at the directory of the file.
    pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<Self, String> {
        let text = text_of(bytes)?;
        let read = match serde_json::from_str(&text) {
            Ok(document) => vec![document],
            Err(_) => serde_saphyr::from_multiple::<Value>(&text).map_err(|error| error.to_string())?,
        };
        let directory = path.parent().unwrap_or(Path::new(""));
        let mut merged = Self::default();
        for document in read {
            merged.merge(Self::of(&without_nulls(document), directory)?);
        }
        Ok(merged)
    }

    fn of(document: &Value, directory: &Path) -> Result<Self, String> {
        if !document.is_object() && !document.is_null() {
            return Err("it is no mapping with clusters, users and contexts".to_owned());
        }
        let mut users = entries(document, "users", "user")?;
        let mut clusters = entries(document, "clusters", "cluster")?;
        for (_, cluster) in &mut clusters {
            resolve(cluster, "certificate-authority", directory);
        }
        for (_, user) in &mut users {
            for name in ["client-certificate", "client-key", "tokenFile"] {
                resolve(user, name, directory);
            }
            // A command without a slash is searched in PATH.
            if let Some(exec) = user.get_mut("exec")
                && exec["command"].as_str().is_some_and(|command| command.contains('/'))
            {
                resolve(exec, "command", directory);
            }
        }
        Ok(Self {
            clusters,
            users,
            contexts: entries(document, "contexts", "context")?,
            current_context: document["current-context"]
                .as_str()
                .filter(|it| !it.is_empty())
                .map(str::to_owned),
        })
    }

    /// Adds the entries that no earlier file has.
    pub(crate) fn merge(&mut self, later: Self) {
        let add = |entries: &mut Vec<(String, Value)>, later: Vec<(String, Value)>| {
            for (name, entry) in later {
                if find(entries, &name).is_none() {
                    entries.push((name, entry));
                }
            }
        };
        add(&mut self.clusters, later.clusters);
        add(&mut self.users, later.users);
        add(&mut self.contexts, later.contexts);
        self.current_context = self.current_context.take().or(later.current_context);
    }

    /// True if nothing is configured, so that a pod uses its service account.
    pub(crate) fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.users.is_empty() && self.contexts.is_empty() && self.current_context.is_none()
    }

    /// The client configuration of the named context, or of the current one. Runs the user's credential helper.
    pub(crate) fn connection(
        &self,
        given: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Connection, String> {
        let Chosen { context, cluster, user } = self.choose(given)?;
        let (name, user_name) = (&context.cluster, &context.user);
        let about = |problem: String| format!("its cluster {name:?} {problem}");
        let mut config = cluster.config(variable).map_err(about)?;
        config.default_namespace = context.namespace.unwrap_or_else(|| "default".to_owned());
        let about = |problem: String| format!("its user {user_name:?} {problem}");
        config.auth_info = user.impersonation().map_err(about)?;
        // client-go shows no credentials in plain text either.
        let tokens = if config.cluster_url.scheme_str() == Some("https") {
            user.authenticate(user_name, &cluster, &mut config.auth_info)
                .map_err(about)?
        } else {
            None
        };
        let named = given.or(self.current_context.as_deref());
        Ok(Connection {
            context: named.map(str::to_owned),
            config,
            user: if user_name.is_empty() {
                "anonymous".to_owned()
            } else {
                user_name.clone()
            },
            tokens: tokens.map(Arc::new),
        })
    }

    fn choose(&self, context: Option<&str>) -> Result<Chosen, String> {
        let chosen = context.or(self.current_context.as_deref()).filter(|it| !it.is_empty());
        let Some(chosen) = chosen else {
            return Err(format!("it has no current-context; {}", known(&self.contexts)));
        };
        let Some(context) = find(&self.contexts, chosen) else {
            return Err(format!("it has no context {chosen:?}; {}", known(&self.contexts)));
        };
        let context: Context = typed(context, &format!("its context {chosen:?}"))?;
        let missing = |what: &str, name: &str, entries: &[(String, Value)]| {
            format!("its context {chosen:?} names {what} {name:?}; {}", known(entries))
        };
        let cluster = find(&self.clusters, &context.cluster)
            .ok_or_else(|| missing("cluster", &context.cluster, &self.clusters))?;
        let user = match find(&self.users, &context.user) {
            Some(user) => typed(user, &format!("its user {:?}", context.user))?,
            None if context.user.is_empty() => User::default(),
            None => return Err(missing("user", &context.user, &self.users)),
        };
        Ok(Chosen {
            cluster: typed(cluster, &format!("its cluster {:?}", context.cluster))?,
            context,
            user,
        })
    }
}

struct Chosen {
    context: Context,
    cluster: Cluster,
    user: User,
}

impl Cluster {
    fn config(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Config, String> {
        let server = self.server.as_deref().ok_or("has no server")?;
        let url = match server.split_once("://") {
            Some((scheme, rest)) => format!("{}://{rest}", scheme.to_ascii_lowercase()),
            None => format!("http://{server}"),
        };
        let url = url.parse::<http::Uri>().ok();
        let url = url.filter(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some());
        let url = url.ok_or_else(|| format!("has the server {server:?}; write https://HOST:PORT"))?;
        let proxy = match &self.proxy_url {
            Some(proxy) => Some(
                proxy::from_kubeconfig(proxy)
                    .map_err(|problem| format!("has a proxy-url that cannot be used: {problem}"))?,
            ),
            None => proxy::for_cluster(&url, variable)?,
        };
        let mut config = Config::new(url);
        config.proxy_url = proxy;
        config.root_cert = self.authorities()?;
        config.accept_invalid_certs = self.insecure_skip_tls_verify;
        if config.accept_invalid_certs && config.root_cert.is_some() {
            return Err(
                "has insecure-skip-tls-verify beside a certificate authority; remove one of the two".to_owned(),
            );
        }
        config.tls_server_name.clone_from(&self.tls_server_name);
        Ok(config)
    }

    fn authority(&self) -> Result<Option<Vec<u8>>, String> {
        match (&self.certificate_authority_data, &self.certificate_authority) {
            (Some(data), _) => decoded(data, "certificate-authority-data").map(Some),
            (None, Some(path)) => std::fs::read(path).map(Some).map_err(|error| {
                format!(
                    "names the certificate-authority {}, which cannot be read: {error}",
                    path.display()
                )
            }),
            (None, None) => Ok(None),
        }
    }

    /// The valid certificates, of which there must be at least one.
    fn authorities(&self) -> Result<Option<Vec<Vec<u8>>>, String> {
        let Some(pem) = self.authority()? else {
            return Ok(None);
        };
        let certificates = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
        let usable = certificates.filter(|it| RootCertStore::empty().add(it.clone()).is_ok());
        let usable: Vec<Vec<u8>> = usable.map(|it| it.to_vec()).collect();
        if usable.is_empty() {
            return Err("has a certificate authority without a certificate in PEM form".to_owned());
        }
        Ok(Some(usable))
    }

    /// The cluster in the form in which a credential helper receives it.
    fn helper_info(&self) -> Result<Value, String> {
        let config = self.extensions.iter().find(|it| it["name"] == HELPER_EXTENSION);
        let mut told = json!({
            "server": self.server,
            "tls-server-name": self.tls_server_name,
            "insecure-skip-tls-verify": self.insecure_skip_tls_verify,
            "certificate-authority-data": self.authority()?.map(ByteString),
            "proxy-url": self.proxy_url,
            "config": config.map(|it| it["extension"].clone()),
        });
        if let Some(members) = told.as_object_mut() {
            members.retain(|_, member| !member.is_null());
        }
        Ok(told)
    }
}

/// A list of named entries. `null` and empty texts count as missing.
fn entries(document: &Value, list: &str, member: &str) -> Result<Vec<(String, Value)>, String> {
    let mut found: Vec<(String, Value)> = Vec::new();
    let named = match &document[list] {
        Value::Null => &[][..],
        Value::Array(named) => named,
        _ => return Err(format!("its {list} are no list")),
    };
    for entry in named {
        let name = entry["name"].as_str().unwrap_or_default();
        if find(&found, name).is_some() {
            return Err(format!("it has the {member} {name:?} twice; remove one"));
        }
        let mut value = entry[member].clone();
        if let Value::Object(members) = &mut value {
            members.retain(|_, member| member.as_str() != Some(""));
        }
        found.push((name.to_owned(), value));
    }
    Ok(found)
}

fn find<'a>(entries: &'a [(String, Value)], name: &str) -> Option<&'a Value> {
    entries.iter().find(|(other, _)| other == name).map(|(_, entry)| entry)
}

/// The available entries, for a message.
fn known(entries: &[(String, Value)]) -> String {
    let names: Vec<&str> = entries.iter().map(|(name, _)| &**name).collect();
    if names.is_empty() {
        return "it has none".to_owned();
    }
    format!("it has {}", names.join(", "))
}

fn typed<T: DeserializeOwned + Default>(entry: &Value, what: &str) -> Result<T, String> {
    if entry.is_null() {
        return Ok(T::default());
    }
    serde_json::from_value(entry.clone()).map_err(|error| format!("{what} cannot be read: {error}"))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let present = members.into_iter().filter(|(_, member)| !member.is_null());
            present.map(|(name, member)| (name, without_nulls(member))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Makes a path absolute, relative to the file's directory.
fn resolve(entry: &mut Value, name: &str, directory: &Path) {
    if let Some(Value::String(path)) = entry.get_mut(name)
        && let Some(whole) = directory.join(&*path).to_str()
    {
        whole.clone_into(path);
    }
}

/// Decodes base64, which may be wrapped.
fn decoded(data: &str, member: &str) -> Result<Vec<u8>, String> {
    let unwrapped: String = data.split_ascii_whitespace().collect();
    let bytes: Result<ByteString, _> = serde_json::from_value(Value::String(unwrapped));
    bytes
        .map(|it| it.0)
        .map_err(|_| format!("has {member} that is no base64"))
}

/// A file's text: UTF-8, or UTF-16 as PowerShell writes it.
fn text_of(bytes: &[u8]) -> Result<String, String> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let text = char::decode_utf16(pairs.iter().map(|pair| unit(*pair))).collect::<Result<String, _>>();
        text.ok().filter(|_| rest.is_empty())
    };
    let (text, encoding) = match bytes {
        [0xff, 0xfe, rest @ ..] => (wide(rest, u16::from_le_bytes), "UTF-16"),
        [0xfe, 0xff, rest @ ..] => (wide(rest, u16::from_be_bytes), "UTF-16"),
        _ => {
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            (String::from_utf8(bytes.to_vec()).ok(), "UTF-8")
        }
    };
    text.ok_or_else(|| format!("it is no {encoding} text, or ends within a character"))
}

#[cfg(test)]
mod tests;
