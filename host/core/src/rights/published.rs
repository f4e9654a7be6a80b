//! Reads the ConfigMap that a host's installation publishes in its namespace: the host's account, the identity with
//! which it acts, and its namespaces and Plugins. It can name only accounts of its own namespace.

use std::fmt;

use serde_json::Value;

use super::installed::InstalledHost;
use super::objects::Acting;
use crate::plugin::manifest::{is_label, is_subdomain};

/// The label selector for these ConfigMaps.
pub const SELECTOR: &str = "app.kubernetes.io/name=pilothouse,app.kubernetes.io/component=published-host";

/// A host as its ConfigMap describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedHost {
    /// Its namespace and account, and how it acts.
    pub host: InstalledHost,
    /// The only namespaces that it watches; empty means all.
    pub namespaces: Vec<String>,
    /// The label selector for its Plugins; an empty one matches all.
    pub selector: String,
}

/// The ConfigMap does not describe a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ConfigMap {name}, in which a host publishes its account, cannot be used: {problem}; correct it, or say for which host the plugin \
     is installed, with --host-namespace, --host-account and --identity"
)]
pub struct PublishedError {
    name: String,
    problem: String,
}

impl PublishedHost {
    /// Reads a ConfigMap.
    pub fn read(config_map: &Value) -> Result<Self, PublishedError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (metadata, data) = (&config_map["metadata"], &config_map["data"]);
        let namespace = text(&metadata["namespace"]);
        let wrong = |problem: String| PublishedError {
            name: format!("{namespace}/{}", text(&metadata["name"])),
            problem,
        };
        let account = text(&data["account"]);
        if !is_subdomain(&account) {
            return Err(wrong(format!(
                "its account {account:?} is not the name of a ServiceAccount"
            )));
        }
        let acting: Acting = serde_json::from_value(data["identity"].clone()).map_err(|_| {
            wrong(format!(
                "its identity {} is none of none, impersonate and token",
                data["identity"]
            ))
        })?;
        let names = text(&data["namespaces"]);
        let namespaces: Vec<String> = names
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        if let Some(name) = namespaces.iter().find(|name| !is_label(name)) {
            return Err(wrong(format!("{name:?} is not the name of a namespace")));
        }
        Ok(Self {
            host: InstalledHost {
                namespace: namespace.clone(),
                account: Some(account),
                acting,
                in_namespaces: !namespaces.is_empty(),
            },
            namespaces,
            selector: text(&data["selector"]),
        })
    }
}

/// Formats the host as `NAMESPACE/ACCOUNT`.
impl fmt::Display for PublishedHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = self.host.account.as_deref().unwrap_or_default();
        write!(formatter, "{}/{account}", self.host.namespace)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: &Value) -> Result<PublishedHost, String> {
        let config_map = json!({"metadata": {"name": "pilothouse-host", "namespace": "system"}, "data": data});
        PublishedHost::read(&config_map).map_err(|error| error.to_string())
    }

    #[test]
    fn a_host_is_read_from_its_config_map() {
        let all = read(&json!({"account": "pilothouse", "identity": "impersonate", "namespaces": "", "selector": ""}));
        let all = all.unwrap();
        assert_eq!(all.to_string(), "system/pilothouse");
        assert_eq!(
            (all.host.acting, all.host.in_namespaces),
            (Acting::Impersonation, false)
        );
        let some =
            read(&json!({"account": "a", "identity": "none", "namespaces": "shop,stage", "selector": "team=shop"}));
        let some = some.unwrap();
        assert_eq!((some.host.acting, some.host.in_namespaces), (Acting::Host, true));
        assert_eq!(
            (some.namespaces, &*some.selector),
            (vec!["shop".to_owned(), "stage".to_owned()], "team=shop")
        );
    }

    #[test]
    fn config_map_that_is_no_host_is_named_with_the_next_step() {
        for (data, problem) in [
            (json!(null), "its account \"\" is not the name"),
            (json!({"account": "A B", "identity": "none"}), "its account \"A B\""),
            (json!({"account": "a"}), "its identity null is none of"),
            (
                json!({"account": "a", "identity": "root"}),
                "its identity \"root\" is none of",
            ),
            (
                json!({"account": "a", "identity": "none", "namespaces": "a,b/c"}),
                "\"b/c\" is not the name",
            ),
        ] {
            let said = read(&data).unwrap_err();
            assert!(
                said.starts_with("ConfigMap system/pilothouse-host") && said.contains(problem),
                "{said}"
            );
            assert!(said.contains("with --host-namespace"), "{said}");
        }
    }
}
