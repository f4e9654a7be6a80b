//! Decides for which host a plugin is installed: the host's namespace and account, the identity with which it acts, and
//! whether it sees only some namespaces. The host's installation publishes this (`published`), and an annotation of the
//! Plugin records it. So a host keeps its rights when the plugin is reinstalled or upgraded and the command line does
//! not repeat the options.
//!
//! The Plugin is trusted, because it is cluster-scoped and protected by a policy. A host's own namespace is trusted
//! about the accounts in it. Labelled accounts, roles and bindings are not trusted: a user who may write in one
//! namespace could label their own there, and an administrator would grant rights to them.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::objects::{Acting, account_name, act_name, watch_name};
use super::published::PublishedHost;

/// The annotation of a Plugin that records the host for which it is installed, as JSON.
pub const INSTALLED_FOR: &str = "pilothouse.dev/installed-for";

/// The host's options on the command line. Missing ones keep their recorded values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOptions {
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its account.
    pub account: HostAccount,
    /// The identity with which it acts.
    pub acting: Option<Acting>,
    /// Set if it sees only the Plugin's namespaces.
    pub in_namespaces: Option<bool>,
}

/// The host's account on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostAccount {
    /// The account is not given.
    #[default]
    Unsaid,
    /// The account is granted nothing.
    Ungranted,
    /// The account's name.
    Named(String),
}

/// The host for which a plugin is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstalledHost {
    /// Its namespace, which has the plugin's account.
    pub namespace: String,
    /// Its account, if rights are granted to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The identity with which it acts.
    #[serde(default, rename = "identity")]
    pub acting: Acting,
    /// Set if it sees only the Plugin's namespaces.
    #[serde(default)]
    pub in_namespaces: bool,
}

/// A host that runs, as far as it knows itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnHost {
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its user name at the API server.
    pub account: Option<String>,
}

impl OwnHost {
    /// Returns `true` if a plugin is installed for another host: in another namespace, or with another ServiceAccount. A
    /// host that is no ServiceAccount, such as one on a machine of a developer, takes the plugins of its namespace.
    pub fn is_another(&self, installed: &InstalledHost) -> bool {
        let own = self.account.as_deref();
        let account = own.and_then(|user| user.strip_prefix("system:serviceaccount:")?.split_once(':'));
        let namespace = self.namespace.as_deref().or(account.map(|(namespace, _)| namespace));
        let is_of = |account: &str| account == installed.account.as_deref().unwrap_or(account);
        namespace.is_some_and(|namespace| namespace != installed.namespace)
            || account.is_some_and(|(_, account)| !is_of(account))
    }
}

/// The reason why the host of a plugin is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// No annotation records it, and objects are installed already.
    #[error(
        "Plugin {plugin} has no annotation {INSTALLED_FOR}, and {objects} may be installed for it; see whether they are meant, and \
         say for which host the plugin is installed, with --host-namespace, and with --host-account and --identity or with \
         --no-host-account"
    )]
    Unrecorded {
        /// The plugin.
        plugin: String,
        /// The installed objects, for messages.
        objects: String,
    },
    /// The annotation cannot be parsed.
    #[error(
        "the annotation {INSTALLED_FOR} of Plugin {plugin} cannot be read: {message}; if a newer pilothouse has written it, use that; \
         otherwise remove it, and say for which host the plugin is installed, with --host-namespace, --host-account and --identity"
    )]
    Record {
        /// The plugin.
        plugin: String,
        /// The problem.
        message: String,
    },
    /// No account is named to which to grant the rights.
    #[error("{0} is about the rights of the host's ServiceAccount; name it with --host-account")]
    NoAccount(&'static str),
    /// Several hosts publish their accounts.
    #[error(
        "several hosts run in this cluster: {0}; say for which one the plugin is installed, with --host-namespace and --host-account"
    )]
    SeveralHosts(String),
}

impl HostOptions {
    /// The host, given the live Plugin (if any), the accounts, roles and bindings with the plugin's label, and the
    /// hosts that publish their accounts. Values that are neither given, recorded nor published come from `default`.
    pub fn over(
        self,
        plugin: &str,
        live: Option<&Value>,
        installed: &[Value],
        published: &[PublishedHost],
        default: &InstalledHost,
    ) -> Result<InstalledHost, HostError> {
        let Self {
            namespace,
            account,
            acting,
            in_namespaces,
        } = self;
        let recorded = match live {
            Some(live) => InstalledHost::recorded(plugin, live)?,
            None => None,
        };
        let recorded_account = recorded.as_ref().and_then(|recorded| recorded.account.as_deref());
        let published = choose(published, &account, recorded_account)?;
        if recorded.is_none() && (namespace.is_none() || account == HostAccount::Unsaid) {
            let place = published.map_or(default, |published| &published.host);
            let unexplained = unexplained(plugin, installed, namespace.as_deref(), place);
            if !unexplained.is_empty() {
                return Err(HostError::Unrecorded {
                    plugin: plugin.to_owned(),
                    objects: Vec::from_iter(unexplained).join(", "),
                });
            }
        }
        let mut before = match (published, recorded) {
            (Some(published), _) => published.host.clone(),
            (None, Some(recorded)) => recorded,
            (None, None) => default.clone(),
        };
        if before.account.is_none() {
            before.acting = default.acting;
        }
        let account = match account {
            HostAccount::Named(account) => Some(account),
            HostAccount::Ungranted => None,
            HostAccount::Unsaid => before.account,
        };
        let namespace = namespace.unwrap_or(before.namespace);
        if account.is_none() {
            for (option, is_meant) in [
                ("--identity", acting.is_some()),
                ("--host-in-namespaces", in_namespaces == Some(true)),
            ] {
                if is_meant {
                    return Err(HostError::NoAccount(option));
                }
            }
            return Ok(Self::without_account(namespace));
        }
        Ok(InstalledHost {
            namespace,
            account,
            acting: acting.unwrap_or(before.acting),
            in_namespaces: in_namespaces.unwrap_or(before.in_namespaces),
        })
    }

    fn without_account(namespace: String) -> InstalledHost {
        InstalledHost {
            namespace,
            ..InstalledHost::default()
        }
    }
}

impl InstalledHost {
    /// The host recorded in a Plugin.
    pub fn recorded(plugin: &str, live: &Value) -> Result<Option<Self>, HostError> {
        let Some(text) = live["metadata"]["annotations"][INSTALLED_FOR].as_str() else {
            return Ok(None);
        };
        Self::parse(text).map(Some).map_err(|error| HostError::Record {
            plugin: plugin.to_owned(),
            message: error.to_string(),
        })
    }

    /// The host in a value of the annotation [`INSTALLED_FOR`].
    pub fn parse(record: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(record)
    }

    /// The value of the annotation [`INSTALLED_FOR`].
    pub fn record(&self) -> String {
        serde_json::to_string(self).expect("names and flags are JSON")
    }
}

/// The objects that do not belong to this host: accounts elsewhere, and grants to accounts other than the plugin's and
/// the host's. A few of them, for messages.
fn unexplained(plugin: &str, installed: &[Value], namespace: Option<&str>, host: &InstalledHost) -> BTreeSet<String> {
    const MOST: usize = 5;
    let namespace = namespace.unwrap_or(&host.namespace);
    let (own, watch, act) = (account_name(plugin), watch_name(plugin), act_name(plugin));
    let is_host = |subject: &Value| {
        let account = host.account.as_deref();
        subject["namespace"] == host.namespace.as_str() && account.is_some_and(|account| subject["name"] == account)
    };
    let is_of_the_plugin = |object: &Value| {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        match object["kind"].as_str().unwrap_or_default() {
            "ServiceAccount" => metadata["namespace"] == namespace,
            "ClusterRoleBinding" | "RoleBinding" => {
                let subjects = object["subjects"].as_array().map(Vec::as_slice).unwrap_or_default();
                let others = subjects.iter().filter(|subject| !is_host(subject)).collect::<Vec<_>>();
                let is_here = |subject: &&Value| subject["namespace"] == namespace;
                let may_be_own = name == own && others.len() <= 1 && others.iter().all(is_here);
                may_be_own || (name == watch || name == act) && others.is_empty() && host.account.is_some()
            }
            _ => name != act || host.account.is_some() && metadata["namespace"] == namespace,
        }
    };
    let others = installed.iter().filter(|object| !is_of_the_plugin(object));
    let title = |object: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let place = metadata["namespace"].as_str().map(|place| format!("{place}/"));
        let (kind, name) = (text(&object["kind"]), text(&metadata["name"]));
        format!("{kind} {}{name}", place.unwrap_or_default())
    };
    others.map(title).take(MOST).collect()
}

/// The host with this account. If no account is given, the only host.
fn choose<'a>(
    published: &'a [PublishedHost],
    said: &HostAccount,
    recorded: Option<&str>,
) -> Result<Option<&'a PublishedHost>, HostError> {
    let of = |account: &str| published.iter().find(|it| it.host.account.as_deref() == Some(account));
    match said {
        HostAccount::Named(account) => return Ok(of(account)),
        HostAccount::Ungranted => return Ok(None),
        HostAccount::Unsaid => {}
    }
    match (recorded.and_then(of), published) {
        (Some(found), _) | (None, [found]) => Ok(Some(found)),
        (None, []) => Ok(None),
        (None, several) => {
            let names = several.iter().map(ToString::to_string);
            Err(HostError::SeveralHosts(names.collect::<Vec<_>>().join(", ")))
        }
    }
}

/// Describes the grants to the host, for messages.
impl fmt::Display for InstalledHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            account,
            acting,
            in_namespaces,
        } = self;
        let Some(account) = account else {
            return formatter.write_str("The host's own ServiceAccount is granted nothing (--host-account names one)");
        };
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

    use super::*;

    const DEFAULT: &str = "pilothouse-system";

    fn default_host() -> InstalledHost {
        InstalledHost {
            namespace: DEFAULT.to_owned(),
            ..InstalledHost::default()
        }
    }

    fn host(account: Option<&str>, acting: Acting, in_namespaces: bool) -> InstalledHost {
        InstalledHost {
            namespace: "other".to_owned(),
            account: account.map(str::to_owned),
            acting,
            in_namespaces,
        }
    }

    fn plugin_for(host: &InstalledHost) -> Value {
        json!({"metadata": {"name": "web", "annotations": {INSTALLED_FOR: host.record()}}})
    }

    fn account(namespace: &str) -> Value {
        json!({"kind": "ServiceAccount", "metadata": {"name": "pilothouse-plugin-web", "namespace": namespace}})
    }

    fn binding(place: Option<&str>, name: &str, subjects: &[(&str, &str)]) -> Value {
        let subject =
            |(namespace, name): &(&str, &str)| json!({"kind": "ServiceAccount", "namespace": namespace, "name": name});
        let subjects: Vec<Value> = subjects.iter().map(subject).collect();
        let kind = if place.is_some() {
            "RoleBinding"
        } else {
            "ClusterRoleBinding"
        };
        json!({"kind": kind, "metadata": {"name": name, "namespace": place}, "subjects": subjects})
    }

    #[test]
    fn what_is_not_said_is_what_the_plugin_records() {
        for acting in [Acting::Host, Acting::Impersonation, Acting::Token] {
            for before in [
                host(Some("pilothouse"), acting, false),
                host(Some("pilothouse"), acting, true),
                host(None, Acting::Host, false),
            ] {
                let live = plugin_for(&before);
                let read = HostOptions::default().over("web", Some(&live), &[], &[], &default_host());
                assert_eq!(read, Ok(before));
            }
        }
        let nothing = HostOptions::default()
            .over("web", None, &[], &[], &default_host())
            .unwrap();
        assert_eq!((&*nothing.namespace, nothing.account), (DEFAULT, None));
    }

    #[test]
    fn what_is_said_counts_and_the_rest_stays() {
        let before = host(Some("pilothouse"), Acting::Impersonation, true);
        let live = plugin_for(&before);
        let over = |options: HostOptions| options.over("web", Some(&live), &[], &[], &default_host());
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
    fn without_an_account_nothing_can_be_said_of_its_rights() {
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
            let refused = options.over("web", None, &[], &[], &default_host());
            assert_eq!(refused, Err(HostError::NoAccount(option)));
        }
    }

    /// A user who may write in a namespace can label objects of their own there.
    #[test]
    fn labelled_objects_decide_nothing() {
        let own = "pilothouse-plugin-web";
        let recorded = plugin_for(&host(Some("pilothouse"), Acting::Impersonation, false));
        for planted in [
            account("evil"),
            binding(Some("evil"), own, &[("evil", own)]),
            binding(Some("evil"), own, &[(DEFAULT, own), (DEFAULT, "chosen")]),
            binding(Some("evil"), "pilothouse-plugin-web-watch", &[(DEFAULT, "chosen")]),
            json!({"kind": "Role", "metadata": {"name": "pilothouse-plugin-web-act", "namespace": "evil"}}),
        ] {
            let planted = [planted];
            let read = HostOptions::default().over("web", Some(&recorded), &planted, &[], &default_host());
            assert_eq!(read, Ok(host(Some("pilothouse"), Acting::Impersonation, false)));
            for live in [None, Some(&json!({"metadata": {"name": "web"}}))] {
                let read = HostOptions::default().over("web", live, &planted, &[], &default_host());
                assert!(
                    matches!(read, Err(HostError::Unrecorded { .. })),
                    "{planted:?}: {read:?}"
                );
            }
            let said = HostOptions {
                namespace: Some("other".to_owned()),
                account: HostAccount::Ungranted,
                ..HostOptions::default()
            };
            let read = said.over("web", None, &planted, &[], &default_host());
            assert_eq!(read, Ok(host(None, Acting::Host, false)));
        }
    }

    #[test]
    fn an_installation_of_the_default_host_needs_no_record() {
        let own = "pilothouse-plugin-web";
        let installed = [
            account(DEFAULT),
            binding(None, own, &[(DEFAULT, own)]),
            binding(Some("shop"), own, &[(DEFAULT, own)]),
            json!({"kind": "Role", "metadata": {"name": own, "namespace": "shop"}}),
        ];
        let read = HostOptions::default()
            .over("web", None, &installed, &[], &default_host())
            .unwrap();
        assert_eq!((&*read.namespace, read.account), (DEFAULT, None));
    }

    fn published(account: &str, acting: Acting) -> PublishedHost {
        PublishedHost {
            host: host(Some(account), acting, false),
            namespaces: Vec::new(),
            selector: String::new(),
        }
    }

    #[test]
    fn what_the_host_publishes_counts_where_nobody_says_otherwise() {
        let runs = [published("pilothouse", Acting::Impersonation)];
        let over = |options: HostOptions, live: Option<&Value>| options.over("web", live, &[], &runs, &default_host());
        let expected = host(Some("pilothouse"), Acting::Impersonation, false);
        assert_eq!(over(HostOptions::default(), None), Ok(expected.clone()));
        // It was installed before the host published anything, or the host acts in another way now.
        for before in [
            host(None, Acting::Host, false),
            host(Some("pilothouse"), Acting::Host, false),
        ] {
            let live = plugin_for(&before);
            assert_eq!(over(HostOptions::default(), Some(&live)), Ok(expected.clone()));
        }
        let ungranted = HostOptions {
            account: HostAccount::Ungranted,
            ..HostOptions::default()
        };
        assert_eq!(over(ungranted, None).unwrap().account, None);
        let token = HostOptions {
            acting: Some(Acting::Token),
            ..HostOptions::default()
        };
        assert_eq!(over(token, None), Ok(host(Some("pilothouse"), Acting::Token, false)));
    }

    #[test]
    fn of_several_hosts_one_has_to_be_named() {
        let runs = [published("a", Acting::Impersonation), published("b", Acting::Token)];
        let over = |options: HostOptions, live: Option<&Value>| options.over("web", live, &[], &runs, &default_host());
        let refused = over(HostOptions::default(), None).unwrap_err().to_string();
        assert!(refused.contains("other/a, other/b"), "{refused}");
        let named = HostOptions {
            account: HostAccount::Named("b".to_owned()),
            ..HostOptions::default()
        };
        assert_eq!(over(named, None), Ok(host(Some("b"), Acting::Token, false)));
        let recorded = plugin_for(&host(Some("a"), Acting::Host, false));
        let read = over(HostOptions::default(), Some(&recorded));
        assert_eq!(read, Ok(host(Some("a"), Acting::Impersonation, false)));
    }

    #[test]
    fn grants_to_the_published_host_need_no_record() {
        let (own, watch, act) = (
            "pilothouse-plugin-web",
            "pilothouse-plugin-web-watch",
            "pilothouse-plugin-web-act",
        );
        let installed = [
            account("other"),
            binding(None, own, &[("other", own)]),
            binding(None, watch, &[("other", "pilothouse")]),
            binding(Some("other"), act, &[("other", "pilothouse")]),
            json!({"kind": "Role", "metadata": {"name": act, "namespace": "other"}}),
        ];
        let runs = [published("pilothouse", Acting::Impersonation)];
        let over = |installed: &[Value]| HostOptions::default().over("web", None, installed, &runs, &default_host());
        assert!(over(&installed).is_ok());
        let planted = [binding(None, watch, &[("other", "somebody")])];
        assert!(matches!(over(&planted), Err(HostError::Unrecorded { .. })));
    }

    #[test]
    fn a_record_that_is_none_is_an_error() {
        let live = json!({"metadata": {"annotations": {INSTALLED_FOR: "pilothouse-system"}}});
        let read = HostOptions::default().over("web", Some(&live), &[], &[], &default_host());
        let message = read.unwrap_err().to_string();
        assert!(
            message.contains("of Plugin web cannot be read") && message.contains("otherwise remove it"),
            "{message}"
        );
    }

    #[test]
    fn a_plugin_is_of_the_host_in_its_namespace_with_its_account() {
        let own = |namespace: Option<&str>, user: Option<&str>| OwnHost {
            namespace: namespace.map(str::to_owned),
            account: user.map(str::to_owned),
        };
        let account = |namespace: &str, name: &str| format!("system:serviceaccount:{namespace}:{name}");
        let recorded = host(Some("pilothouse"), Acting::Impersonation, false);
        let ungranted = host(None, Acting::Host, false);
        let itself = account("other", "pilothouse");
        for (own, is_another) in [
            (own(Some("other"), Some(&itself)), false),
            (own(None, Some(&itself)), false),
            (own(Some("other"), Some("kubernetes-admin")), false),
            (own(Some("other"), None), false),
            (own(None, None), false),
            (own(None, Some("kubernetes-admin")), false),
            (own(Some("other"), Some(&account("other", "second"))), true),
            (own(Some("elsewhere"), Some(&account("elsewhere", "pilothouse"))), true),
            (own(Some("elsewhere"), Some("kubernetes-admin")), true),
            (own(None, Some(&account("elsewhere", "pilothouse"))), true),
        ] {
            assert_eq!(own.is_another(&recorded), is_another, "{own:?}");
        }
        assert!(!own(Some("other"), Some(&account("other", "any"))).is_another(&ungranted));
        assert!(own(Some("elsewhere"), None).is_another(&ungranted));
    }
}
