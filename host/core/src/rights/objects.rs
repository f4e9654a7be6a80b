//! Builds the objects that grant a plugin's rights: its ServiceAccount, the roles and their bindings, and roles for the
//! people who use its kinds. Roles are named
//! after the plugin and have its label, so that an uninstall finds them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::rules::{Place, Rules, as_json};
use super::{OfferedResource, Rights};
use crate::admission::configuration::PLUGIN_LABEL;

/// The API group of roles and bindings.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Kubernetes' label for the program that created an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The value of [`MANAGED_BY_LABEL`].
pub const MANAGED_BY: &str = "pilothouse";

/// The accounts to which rights are granted.
#[derive(Clone, Copy, Debug)]
pub struct Grantee<'a> {
    /// The Plugin's name.
    pub plugin: &'a str,
    /// The host's namespace, in which the plugin's ServiceAccount is.
    pub namespace: &'a str,
    /// The existing ServiceAccount of the plugin; none: one is created.
    pub account: Option<&'a str>,
    /// The host's own ServiceAccount in this namespace, if rights are granted to it, too.
    pub host_account: Option<&'a str>,
    /// The identity with which the host makes the plugin's requests.
    pub acting: Acting,
}

/// The identity with which a host makes a plugin's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Acting {
    /// The host's own: it needs all rights of the plugin itself.
    #[default]
    #[serde(rename = "none")]
    Host,
    /// The plugin's ServiceAccount, which the host impersonates.
    #[serde(rename = "impersonate")]
    Impersonation,
    /// The plugin's ServiceAccount, with tokens that the host requests for it.
    Token,
}

/// The name of a plugin's ServiceAccount, and of its roles and bindings.
pub fn account_name(plugin: &str) -> String {
    format!("pilothouse-plugin-{plugin}")
}

/// The name of the roles for the watches that the host makes.
pub fn watch_name(plugin: &str) -> String {
    format!("{}-watch", account_name(plugin))
}

/// The name of the role by which the host acts as a plugin's ServiceAccount.
pub fn act_name(plugin: &str) -> String {
    format!("{}-act", account_name(plugin))
}

/// The name of the ClusterRole with which people see a plugin's kinds. No plugin's own roles have a colon in their names.
pub fn view_name(plugin: &str) -> String {
    format!("{}:view", account_name(plugin))
}

/// The name of the ClusterRole with which people change objects of a plugin's kinds.
pub fn edit_name(plugin: &str) -> String {
    format!("{}:edit", account_name(plugin))
}

/// The labels of everything that is installed for a plugin.
pub fn labels(plugin: &str) -> Value {
    json!({MANAGED_BY_LABEL: MANAGED_BY, PLUGIN_LABEL: plugin})
}

/// The label selector for these objects.
pub fn label_selector(plugin: &str) -> String {
    format!("{MANAGED_BY_LABEL}={MANAGED_BY},{PLUGIN_LABEL}={plugin}")
}

/// The ServiceAccount, the roles, and their bindings, in the order in which they are applied.
pub fn objects(grantee: Grantee<'_>, rights: &Rights) -> Vec<Value> {
    let Grantee {
        plugin,
        namespace,
        account,
        host_account,
        acting,
    } = grantee;
    let subject = |account: &str| json!({"kind": "ServiceAccount", "name": account, "namespace": namespace});
    let own = account_name(plugin);
    let named = account.unwrap_or(&own);
    let itself = host_account.filter(|_| acting == Acting::Host);
    let subjects: Vec<Value> = [Some(named), itself].into_iter().flatten().map(subject).collect();
    let mut metadata = metadata(plugin, &own, None);
    metadata["namespace"] = json!(namespace);
    let mut objects = Vec::new();
    if account.is_none() {
        objects.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata,
            // No pod runs as this account: the host impersonates it, or requests a token for it.
            "automountServiceAccountToken": false,
        }));
    }
    let mut bindings = Vec::new();
    let mut granted = roles(plugin, &own, &rights.account, &subjects);
    if let Some(account) = host_account {
        let watches = match acting {
            Acting::Host => rights.watches.beyond(&rights.account),
            Acting::Impersonation | Acting::Token => rights.watches.clone(),
        };
        let host = [subject(account)];
        granted.extend(roles(plugin, &watch_name(plugin), &watches, &host));
        granted.extend(act_role(plugin, namespace, named, acting, &host));
    }
    // Whoever confines a plugin to Roles may often not create ClusterRoles.
    let is_of_cluster = granted.iter().any(|(role, _)| role["kind"] == "ClusterRole");
    for (role, binding) in granted {
        objects.push(role);
        bindings.push(binding);
    }
    if is_of_cluster {
        objects.extend(aggregated_roles(plugin, &rights.offered));
    }
    objects.extend(bindings);
    objects
}

/// The ClusterRoles by which Kubernetes' own roles view, edit and admin hold for the kinds that a plugin brings. See
/// <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>.
fn aggregated_roles(plugin: &str, offered: &BTreeSet<OfferedResource>) -> Vec<Value> {
    if offered.is_empty() {
        return Vec::new();
    }
    let role = |name: &str, roles: &[&str], rules: Vec<Value>| {
        let mut metadata = metadata(plugin, name, None);
        for role in roles {
            metadata["labels"][format!("{RBAC_GROUP}/aggregate-to-{role}")] = json!("true");
        }
        json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules})
    };
    let views = offered.iter().map(|offered| {
        let status = offered.has_status.then(|| format!("{}/status", offered.plural));
        let resources: Vec<String> = [offered.plural.clone()].into_iter().chain(status).collect();
        json!({"apiGroups": [offered.group], "resources": resources, "verbs": ["get", "list", "watch"]})
    });
    let edits = offered.iter().map(|offered| {
        let verbs = ["create", "delete", "deletecollection", "patch", "update"];
        json!({"apiGroups": [offered.group], "resources": [offered.plural], "verbs": verbs})
    });
    vec![
        role(&view_name(plugin), &["view", "edit", "admin"], views.collect()),
        role(&edit_name(plugin), &["edit", "admin"], edits.collect()),
    ]
}

/// A role with its binding, for each place.
fn roles(plugin: &str, name: &str, rules: &Rules, subjects: &[Value]) -> Vec<(Value, Value)> {
    let of_place = |(place, rules): (&Place, _)| {
        let (kind, namespace) = match place {
            Place::Cluster => ("ClusterRole", None),
            Place::Namespace(namespace) => ("Role", Some(namespace.as_str())),
        };
        let api_version = format!("{RBAC_GROUP}/v1");
        let metadata = metadata(plugin, name, namespace);
        let role = json!({
            "apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": as_json(rules),
        });
        let binding = json!({
            "apiVersion": api_version, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": name},
            "subjects": subjects,
        });
        (role, binding)
    };
    rules.places().map(of_place).collect()
}

/// The role by which the host can act as this ServiceAccount and no other, with its binding.
fn act_role(
    plugin: &str,
    namespace: &str,
    account: &str,
    acting: Acting,
    subjects: &[Value],
) -> Option<(Value, Value)> {
    let (resource, verb) = match acting {
        Acting::Host => return None,
        Acting::Impersonation => ("serviceaccounts", "impersonate"),
        Acting::Token => ("serviceaccounts/token", "create"),
    };
    let rule = json!({"apiGroups": [""], "resources": [resource], "resourceNames": [account], "verbs": [verb]});
    let (api_version, name) = (format!("{RBAC_GROUP}/v1"), act_name(plugin));
    let metadata = metadata(plugin, &name, Some(namespace));
    let role = json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": [rule]});
    let binding = json!({
        "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": name},
        "subjects": subjects,
    });
    Some((role, binding))
}

fn metadata(plugin: &str, name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name, "labels": labels(plugin)});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}
