//! Owns for which host a plugin is installed: the host's namespace and account, in whose name it acts, and whether it sees some
//! namespaces only. No Plugin records this. What the command line does not say is read from the roles and bindings that
//! were installed before, so that a host keeps its rights when the plugin is installed again or upgraded.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::objects::{Acting, account_name, act_name, watch_name};

/// What somebody says of the host. What is not said stays as it is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOptions {
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its account.
    pub account: HostAccount,
    /// In whose name it acts.
    pub acting: Option<Acting>,
    /// Whether it sees the Plugin's namespaces only.
    pub in_namespaces: Option<bool>,
}

/// What somebody says of the host's account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostAccount {
    /// Nothing.
    #[default]
    Unsaid,
    /// That it is granted nothing.
    Ungranted,
    /// Its name.
    Named(String),
}

/// The host that a plugin is installed for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledHost {
    /// Its namespace, in which the plugin's account is.
    pub namespace: String,
    /// Its account, if it is granted something.
    pub account: Option<String>,
    /// In whose name it acts.
    pub acting: Acting,
    /// Whether it sees the Plugin's namespaces only.
    pub in_namespaces: bool,
}

/// Why it is not known for which host a plugin is installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The objects do not agree.
    #[error("plugin {plugin} is installed for hosts in the namespaces {}; say with --host-namespace which it is", .namespaces.join(", "))]
    Namespaces {
        /// The plugin.
        plugin: String,
        /// All that are named.
        namespaces: Vec<String>,
    },
    /// The objects do not agree.
    #[error(
        "plugin {plugin} is installed for hosts with the ServiceAccounts {}; say with --host-account which it is, or \
         --no-host-account", .accounts.join(", ")
    )]
    Accounts {
        /// The plugin.
        plugin: String,
        /// All that are named.
        accounts: Vec<String>,
    },
    /// The objects do not agree, or some are missing.
    #[error(
        "what is installed for plugin {0} does not say in whose name its host makes the plugin's requests; say it with --identity"
    )]
    Acting(String),
    /// There is nobody to grant it to.
    #[error("{0} is about the rights of the host's ServiceAccount; name it with --host-account")]
    NoAccount(&'static str),
}

impl HostOptions {
    /// The host, given the live Plugin's spec (null where there is none) and the accounts, roles and bindings that were
    /// installed for the plugin.
    pub fn over(
        self,
        plugin: &str,
        spec: &Value,
        installed: &[Value],
        default_namespace: &str,
    ) -> Result<InstalledHost, HostError> {
        let Self {
            namespace,
            account,
            acting,
            in_namespaces,
        } = self;
        let found = Found::in_objects(plugin, installed);
        let namespace = match namespace {
            Some(namespace) => namespace,
            None if found.namespaces.len() > 1 => {
                return Err(HostError::Namespaces {
                    plugin: plugin.to_owned(),
                    namespaces: found.namespaces.into_iter().collect(),
                });
            }
            None => found
                .namespaces
                .first()
                .map_or(default_namespace, String::as_str)
                .to_owned(),
        };
        let is_said = !matches!(account, HostAccount::Unsaid);
        let account = match account {
            HostAccount::Named(account) => Some(account),
            HostAccount::Ungranted => None,
            HostAccount::Unsaid if found.accounts.len() > 1 => {
                return Err(HostError::Accounts {
                    plugin: plugin.to_owned(),
                    accounts: found.accounts.into_iter().collect(),
                });
            }
            HostAccount::Unsaid => found.accounts.first().cloned(),
        };
        if account.is_none() {
            for (option, is_meant) in [
                ("--identity", acting.is_some()),
                ("--host-in-namespaces", in_namespaces == Some(true)),
            ] {
                if is_meant {
                    return Err(HostError::NoAccount(option));
                }
            }
            return Ok(InstalledHost {
                namespace,
                ..InstalledHost::default()
            });
        }
        let acting = match (acting, found.acting.len()) {
            (Some(acting), _) => acting,
            (None, 1) => found.acting[0],
            // Nothing was granted to any host before.
            (None, 0) if is_said && found.accounts.is_empty() => Acting::default(),
            (None, _) => return Err(HostError::Acting(plugin.to_owned())),
        };
        Ok(InstalledHost {
            namespace,
            account,
            acting,
            in_namespaces: in_namespaces.unwrap_or_else(|| found.is_in_namespaces(spec)),
        })
    }
}

/// What the objects say.
#[derive(Default)]
struct Found {
    namespaces: BTreeSet<String>,
    accounts: BTreeSet<String>,
    acting: Vec<Acting>,
    /// What the host may watch in the whole cluster beside what the plugin may: API group and resource.
    everywhere: BTreeSet<(String, String)>,
    /// What the plugin or the host may in single namespaces.
    within: BTreeSet<(String, String)>,
    /// The namespaces in which the plugin has a Role.
    roles: BTreeSet<String>,
}

impl Found {
    fn in_objects(plugin: &str, installed: &[Value]) -> Self {
        let (own, watch, act) = (account_name(plugin), watch_name(plugin), act_name(plugin));
        let mut found = Self::default();
        for object in installed {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
            match object["kind"].as_str().unwrap_or_default() {
                "ServiceAccount" => found.namespaces.extend(namespace),
                "ClusterRoleBinding" | "RoleBinding" => found.binding(object, name == own),
                "Role" if name == act => found.act_role(object),
                "Role" if name == own || name == watch => {
                    found.within.extend(resources(object));
                    found.roles.extend(namespace.filter(|_| name == own));
                }
                "ClusterRole" if name == watch => found.everywhere.extend(resources(object)),
                _ => {}
            }
        }
        found
    }

    /// The first subject of a binding of the plugin's own roles is the plugin's account. A second one is the host's, which
    /// makes the requests in its own name.
    fn binding(&mut self, binding: &Value, is_own: bool) {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        for (index, subject) in subjects.enumerate() {
            let (Some(name), Some(namespace), "ServiceAccount") = (
                subject["name"].as_str(),
                subject["namespace"].as_str(),
                subject["kind"].as_str().unwrap_or_default(),
            ) else {
                continue;
            };
            self.namespaces.insert(namespace.to_owned());
            if is_own && index == 0 {
                continue;
            }
            self.accounts.insert(name.to_owned());
            if is_own {
                self.acts(Acting::Host);
            }
        }
    }

    fn act_role(&mut self, role: &Value) {
        for (_, resource) in resources(role) {
            match resource.as_str() {
                "serviceaccounts" => self.acts(Acting::Impersonation),
                "serviceaccounts/token" => self.acts(Acting::Token),
                _ => {}
            }
        }
    }

    fn acts(&mut self, acting: Acting) {
        if !self.acting.contains(&acting) {
            self.acting.push(acting);
        }
    }

    /// A host that sees all namespaces may watch in the whole cluster what the plugin, which is confined, may read in its
    /// namespaces only: its primaries at least.
    fn is_in_namespaces(&self, spec: &Value) -> bool {
        let mut namespaces = spec["namespaces"].as_array().into_iter().flatten().peekable();
        let has_role = |namespace: &Value| {
            namespace
                .as_str()
                .is_some_and(|namespace| self.roles.contains(namespace))
        };
        namespaces.peek().is_some() && namespaces.all(has_role) && self.everywhere.is_disjoint(&self.within)
    }
}

/// The API groups and resources of a role.
fn resources(role: &Value) -> Vec<(String, String)> {
    let texts = |value: &Value| -> Vec<String> {
        let values = value.as_array().into_iter().flatten();
        values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
    };
    let mut found = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in texts(&rule["apiGroups"]) {
            found.extend(texts(&rule["resources"]).into_iter().map(|it| (group.clone(), it)));
        }
    }
    found
}

/// For people: what the host is granted; empty where that is nothing.
impl fmt::Display for InstalledHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            account,
            acting,
            in_namespaces,
        } = self;
        let Some(account) = account else { return Ok(()) };
        write!(formatter, "The host's ServiceAccount {namespace}/{account} may ")?;
        formatter.write_str(match acting {
            Acting::Host => "do the same itself",
            Acting::Impersonation => "impersonate this account",
            Acting::Token => "request tokens for this account",
        })?;
        formatter.write_str(", and list and watch what the plugin declares")?;
        if *in_namespaces {
            formatter.write_str(", in its namespaces only")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::objects::{Grantee, objects};
    use super::super::resources::{Resources, kinds};
    use super::super::{AdmissionExports, Confinement, ControllerNeeds, Rights};
    use super::*;
    use crate::manifest;

    const DEFAULT: &str = "pilothouse-system";

    fn host(account: Option<&str>, acting: Acting, in_namespaces: bool) -> InstalledHost {
        InstalledHost {
            namespace: "other".to_owned(),
            account: account.map(str::to_owned),
            acting,
            in_namespaces,
        }
    }

    /// What is installed for a host: the spec of the Plugin, and the objects. The plugin has cluster-scoped kinds, and such
    /// in namespaces that it names.
    fn installed(host: &InstalledHost, service_account: Option<&str>, namespaces: &[&str]) -> (Value, Vec<Value>) {
        let touch = |kind: &str, namespaces: Value| {
            json!({
                "kind": {"group": "", "version": "v1", "kind": kind}, "access": ["read"], "scope": "Any",
                "namespaces": namespaces,
            })
        };
        let manifest = json!({
            "name": "web", "version": "1.0.0",
            "controllers": [{
                "name": "webs", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                "touches": [touch("Node", json!([])), touch("ConfigMap", json!(["edge"]))],
            }],
        });
        let checked = manifest::parse(&manifest.to_string()).unwrap();
        let resources = Resources::of(&checked);
        assert_eq!(resources.unknown(kinds(&checked)), []);
        let names: Vec<String> = namespaces.iter().map(|&it| it.to_owned()).collect();
        let mut confinement = Confinement::new(&names, &[]).unwrap();
        if host.in_namespaces {
            confinement = confinement.within(&confinement.reached()).unwrap();
        }
        let controllers = ControllerNeeds::of(&checked, AdmissionExports::default());
        let rights = Rights::of(&controllers, &confinement, &resources).unwrap();
        let grantee = Grantee {
            plugin: "web",
            namespace: &host.namespace,
            account: service_account,
            host_account: host.account.as_deref(),
            acting: host.acting,
        };
        (json!({"namespaces": names}), objects(grantee, &rights))
    }

    fn read(spec: &Value, objects: &[Value]) -> Result<InstalledHost, HostError> {
        HostOptions::default().over("web", spec, objects, DEFAULT)
    }

    #[test]
    fn what_is_not_said_is_read_from_what_is_installed() {
        for acting in [Acting::Host, Acting::Impersonation, Acting::Token] {
            for (namespaces, in_namespaces) in [
                (&[][..], false),
                (&["shop"], false),
                (&["shop"], true),
                (&["shop", "edge"], true),
                (&["edge"], false),
            ] {
                for service_account in [None, Some("shared"), Some("pilothouse")] {
                    let host = host(Some("pilothouse"), acting, in_namespaces);
                    let (spec, objects) = installed(&host, service_account, namespaces);
                    assert_eq!(read(&spec, &objects), Ok(host), "{namespaces:?} {service_account:?}");
                }
            }
        }
        let without = host(None, Acting::Host, false);
        let (spec, objects) = installed(&without, None, &["shop"]);
        assert_eq!(read(&spec, &objects), Ok(without));
        let nothing = read(&Value::Null, &[]).unwrap();
        assert_eq!((&*nothing.namespace, nothing.account), (DEFAULT, None));
    }

    #[test]
    fn what_is_said_counts_and_the_rest_stays() {
        let before = host(Some("pilothouse"), Acting::Impersonation, true);
        let (spec, objects) = installed(&before, None, &["shop"]);
        let over = |options: HostOptions| options.over("web", &spec, &objects, DEFAULT);
        let said = over(HostOptions {
            namespace: Some("moved".to_owned()),
            ..HostOptions::default()
        });
        let namespace = "moved".to_owned();
        assert_eq!(
            said,
            Ok(InstalledHost {
                namespace,
                ..before.clone()
            })
        );
        let said = over(HostOptions {
            account: HostAccount::Named("another".to_owned()),
            ..HostOptions::default()
        });
        assert_eq!(said, Ok(host(Some("another"), Acting::Impersonation, true)));
        let said = over(HostOptions {
            acting: Some(Acting::Token),
            in_namespaces: Some(false),
            ..HostOptions::default()
        });
        assert_eq!(said, Ok(host(Some("pilothouse"), Acting::Token, false)));
        let said = over(HostOptions {
            account: HostAccount::Ungranted,
            ..HostOptions::default()
        });
        assert_eq!(said, Ok(host(None, Acting::Host, false)));
    }

    #[test]
    fn the_first_installation_for_a_host_says_all_or_has_the_defaults() {
        let options = HostOptions {
            account: HostAccount::Named("pilothouse".to_owned()),
            ..HostOptions::default()
        };
        let first = options.over("web", &Value::Null, &[], "other");
        assert_eq!(first, Ok(host(Some("pilothouse"), Acting::Host, false)));
        for (options, option) in [
            (
                HostOptions {
                    acting: Some(Acting::Token),
                    ..HostOptions::default()
                },
                "--identity",
            ),
            (
                HostOptions {
                    in_namespaces: Some(true),
                    ..HostOptions::default()
                },
                "--host-in-namespaces",
            ),
        ] {
            let refused = options.over("web", &Value::Null, &[], DEFAULT);
            assert_eq!(refused, Err(HostError::NoAccount(option)));
        }
    }

    #[test]
    fn what_does_not_agree_has_to_be_said() {
        let (spec, mut objects) = installed(&host(Some("pilothouse"), Acting::Impersonation, false), None, &[]);
        let plugin = "web".to_owned();
        let act = |object: &Value| object["metadata"]["name"] == "pilothouse-plugin-web-act";
        // Who may impersonate, and nobody knows any more whether it is that.
        let mut without = objects.clone();
        without.retain(|object| !act(object));
        assert_eq!(read(&spec, &without), Err(HostError::Acting(plugin.clone())));
        let binding = objects.iter_mut().rfind(|object| act(object)).unwrap();
        binding["subjects"][0]["name"] = json!("another");
        let accounts = vec!["another".to_owned(), "pilothouse".to_owned()];
        assert_eq!(
            read(&spec, &objects),
            Err(HostError::Accounts {
                plugin: plugin.clone(),
                accounts
            })
        );
        let binding = objects.iter_mut().rfind(|object| act(object)).unwrap();
        binding["subjects"][0] = json!({"kind": "ServiceAccount", "name": "pilothouse", "namespace": "elsewhere"});
        let namespaces = vec!["elsewhere".to_owned(), "other".to_owned()];
        assert_eq!(read(&spec, &objects), Err(HostError::Namespaces { plugin, namespaces }));
        // What is no ServiceAccount is no host.
        let binding = objects.iter_mut().rfind(|object| act(object)).unwrap();
        binding["subjects"][0] = json!({"kind": "User", "name": "somebody"});
        assert_eq!(
            read(&spec, &objects),
            Ok(host(Some("pilothouse"), Acting::Impersonation, false))
        );
    }

    #[test]
    fn a_plugin_that_was_confined_by_hand_has_a_host_that_sees_everything() {
        let wide = host(Some("pilothouse"), Acting::Host, false);
        let (_, objects) = installed(&wide, None, &[]);
        assert_eq!(read(&json!({"namespaces": ["shop"]}), &objects), Ok(wide));
    }
}
