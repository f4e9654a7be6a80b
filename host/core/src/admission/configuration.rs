//! Builds the objects that make an API server call the host: the webhook configurations of a plugin, and the conversion
//! section of its CRDs. Every field that a server would default is set, so that a live object can be compared with
//! them.
//!
//! Whatever a plugin's manifest says, no configuration matches kube-system or the host's own namespace, deletions, or
//! changes that a plugin could not judge (`match_condition.rs`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{match_condition, review};
use crate::kubernetes::key::Kind;
use crate::kubernetes::selector::Selector;
use crate::plugin::manifest::{Admission, FailurePolicy, Filter, MatchCondition};

/// The label of every configuration that names its plugin.
pub const PLUGIN_LABEL: &str = "pilothouse.dev/plugin";

/// The label of every configuration that identifies the host: by the Secret that its processes share.
pub const HOST_LABEL: &str = "pilothouse.dev/webhooks";

/// The label by which a namespace is known in selectors.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// The namespace of a cluster's own components.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// The address at which an API server reaches the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A URL that begins with `https://`, without a slash at its end.
    Url(String),
    /// A Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
}

impl Endpoint {
    /// The names that the host's certificate has to carry.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Url(url) => vec![host_of(url).to_owned()],
            Self::Service { namespace, name, .. } => vec![
                format!("{name}.{namespace}.svc"),
                format!("{name}.{namespace}.svc.cluster.local"),
            ],
        }
    }

    fn client_config(&self, path: &str, bundle: &str) -> Value {
        let mut config = match self {
            Self::Url(url) => json!({"url": format!("{url}{path}")}),
            Self::Service { namespace, name, port } => {
                json!({"service": {"namespace": namespace, "name": name, "port": port, "path": path}})
            }
        };
        if !bundle.is_empty() {
            config["caBundle"] = json!(STANDARD.encode(bundle));
        }
        config
    }
}

/// The host of a URL, without its port.
fn host_of(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(v6),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

/// Admission webhooks of one controller.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The controller's name.
    pub controller: String,
    /// Its primary kind.
    pub kind: Kind,
    /// The kind's resource, such as `deployments`.
    pub plural: String,
    /// Selects the primaries that the controller reconciles. The webhooks match no others.
    pub filter: Filter,
    /// The namespaces that the plugin is held to; none means all.
    pub namespaces: Vec<String>,
    /// The admission section of the manifest.
    pub admission: Admission,
}

/// Values that all configurations of one plugin share.
#[derive(Clone, Copy, Debug)]
pub struct WebhookContext<'a> {
    /// The plugin's name.
    pub plugin: &'a str,
    /// The address at which the API server reaches the host.
    pub endpoint: &'a Endpoint,
    /// CA certificates of the host, PEM; empty where they are not known yet.
    pub bundle: &'a str,
    /// The namespace that the host runs in.
    pub own_namespace: &'a str,
    /// The host's identity: the value of [`HOST_LABEL`].
    pub host: &'a str,
}

/// The path at which a controller's defaulter answers.
pub fn default_path(plugin: &str, controller: &str) -> String {
    format!("/default/{plugin}/{controller}")
}

/// The path at which a controller's validator answers.
pub fn validate_path(plugin: &str, controller: &str) -> String {
    format!("/validate/{plugin}/{controller}")
}

/// The path at which a plugin's converter answers.
pub fn convert_path(plugin: &str) -> String {
    format!("/convert/{plugin}")
}

/// The name of both configurations of a plugin.
pub fn configuration_name(plugin: &str) -> String {
    format!("pilothouse-{plugin}")
}

/// The MutatingWebhookConfiguration for a plugin's defaulter.
pub fn mutating(common: &WebhookContext<'_>, hooks: &[Hook]) -> Value {
    configuration(common, "MutatingWebhookConfiguration", hooks, |hook| {
        let mut webhook = webhook(common, hook, "default", &default_path(common.plugin, &hook.controller));
        webhook["reinvocationPolicy"] = json!("IfNeeded");
        webhook
    })
}

/// The ValidatingWebhookConfiguration for a plugin's validator.
pub fn validating(common: &WebhookContext<'_>, hooks: &[Hook]) -> Value {
    configuration(common, "ValidatingWebhookConfiguration", hooks, |hook| {
        webhook(
            common,
            hook,
            "validate",
            &validate_path(common.plugin, &hook.controller),
        )
    })
}

/// The part of a CRD that has its objects converted by the host.
pub fn conversion(common: &WebhookContext<'_>, crd: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": crd, "labels": {HOST_LABEL: common.host}},
        "spec": {"conversion": {"strategy": "Webhook", "webhook": {
            "clientConfig": common.endpoint.client_config(&convert_path(common.plugin), common.bundle),
            "conversionReviewVersions": ["v1"],
        }}},
    })
}

/// The reference by which a ClusterRole owns a webhook configuration: Kubernetes' garbage collector then deletes the
/// configuration after the role.
pub fn owner_reference(cluster_role: &str, uid: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": cluster_role, "uid": uid})
}

/// The CA bundles of such an object, as a partial object that is applied by itself.
pub fn bundles(object: &Value) -> Value {
    let mut part = json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {"name": object["metadata"]["name"]},
    });
    let bundle = |client: &Value| json!({"caBundle": client["caBundle"]});
    if let Some(webhooks) = object["webhooks"].as_array() {
        let webhooks = webhooks
            .iter()
            .map(|webhook| json!({"name": webhook["name"], "clientConfig": bundle(&webhook["clientConfig"])}));
        part["webhooks"] = webhooks.collect();
    } else {
        let client = &object["spec"]["conversion"]["webhook"]["clientConfig"];
        part["spec"] = json!({"conversion": {"webhook": {"clientConfig": bundle(client)}}});
    }
    part
}

/// Such an object without its CA bundles.
pub fn without_bundles(object: &Value) -> Value {
    let mut object = object.clone();
    let forget = |client: Option<&mut Value>| {
        if let Some(client) = client.and_then(Value::as_object_mut) {
            client.remove("caBundle");
        }
    };
    for webhook in object
        .get_mut("webhooks")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        forget(webhook.get_mut("clientConfig"));
    }
    forget(object.pointer_mut("/spec/conversion/webhook/clientConfig"));
    object
}

fn configuration(common: &WebhookContext<'_>, kind: &str, hooks: &[Hook], webhook: impl Fn(&Hook) -> Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": configuration_name(common.plugin), "labels": {PLUGIN_LABEL: common.plugin, HOST_LABEL: common.host}},
        "webhooks": hooks.iter().map(webhook).collect::<Vec<_>>(),
    })
}

fn webhook(common: &WebhookContext<'_>, hook: &Hook, verb: &str, path: &str) -> Value {
    let Hook {
        controller,
        kind,
        plural,
        filter,
        namespaces,
        admission,
    } = hook;
    let Admission {
        failure_policy,
        timeout_seconds,
        object_selector,
        namespace_selector,
        match_conditions,
    } = admission;
    let (_, version) = review::API_VERSION.split_once('/').expect("it has a group");
    json!({
        "name": format!("{verb}.{controller}.{}.pilothouse.dev", common.plugin),
        "clientConfig": common.endpoint.client_config(path, common.bundle),
        "rules": [{
            "apiGroups": [kind.group], "apiVersions": [kind.version], "resources": [plural],
            "operations": ["CREATE", "UPDATE"], "scope": "*",
        }],
        "admissionReviewVersions": [version],
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "failurePolicy": match failure_policy {
            FailurePolicy::Fail => "Fail",
            FailurePolicy::Ignore => "Ignore",
        },
        "timeoutSeconds": timeout_seconds,
        "objectSelector": selector([filter.label_selector.as_ref(), object_selector.as_ref()], Vec::new()),
        "namespaceSelector": selector([namespace_selector.as_ref()], places(common.own_namespace, namespaces)),
        "matchConditions": conditions(filter, match_conditions),
    })
}

/// The namespaces that no webhook matches.
pub fn excluded_namespaces(own: &str) -> Vec<&str> {
    let mut spared = vec![SYSTEM_NAMESPACE];
    if own != SYSTEM_NAMESPACE && !own.is_empty() {
        spared.push(own);
    }
    spared
}

/// The namespaces that the webhooks match, as requirements of a selector.
fn places(own: &str, namespaces: &[String]) -> Vec<Value> {
    let held = json!({"key": NAMESPACE_LABEL, "operator": "In", "values": namespaces});
    let mut places: Vec<Value> = (!namespaces.is_empty()).then_some(held).into_iter().collect();
    places.push(json!({"key": NAMESPACE_LABEL, "operator": "NotIn", "values": excluded_namespaces(own)}));
    places
}

fn selector<const N: usize>(selectors: [Option<&Selector>; N], more: Vec<Value>) -> Value {
    let expressions: Vec<Value> = selectors
        .into_iter()
        .flatten()
        .flat_map(Selector::expressions)
        .chain(more)
        .collect();
    if expressions.is_empty() {
        json!({})
    } else {
        json!({"matchExpressions": expressions})
    }
}

fn conditions(filter: &Filter, more: &[MatchCondition]) -> Vec<Value> {
    let mut conditions = vec![json!({"name": "pilothouse-may-judge", "expression": match_condition::CONDITION})];
    // A JSON string is one of CEL as well.
    let has = |name: &String| format!("{} in object.metadata.annotations", Value::from(name.as_str()));
    let any: Vec<String> = filter.annotations.iter().map(has).collect();
    let any = (!any.is_empty()).then(|| format!("({})", any.join(" || ")));
    let annotated: Vec<String> = filter.annotation.iter().map(has).chain(any).collect();
    if !annotated.is_empty() {
        let expression = format!("has(object.metadata.annotations) && {}", annotated.join(" && "));
        conditions.push(json!({"name": "pilothouse-steers", "expression": expression}));
    }
    conditions.extend(
        more.iter()
            .map(|MatchCondition { name, expression }| json!({"name": name, "expression": expression})),
    );
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook() -> Hook {
        Hook {
            controller: "things".to_owned(),
            kind: Kind::new("x.dev", "v1", "Thing"),
            plural: "things".to_owned(),
            filter: Filter::default(),
            namespaces: Vec::new(),
            admission: Admission::default(),
        }
    }

    fn common(endpoint: &Endpoint) -> WebhookContext<'_> {
        WebhookContext {
            plugin: "shop",
            endpoint,
            bundle: "PEM",
            own_namespace: "harbour",
            host: "harbour.webhooks",
        }
    }

    fn service() -> Endpoint {
        Endpoint::Service {
            namespace: "harbour".to_owned(),
            name: "host".to_owned(),
            port: 443,
        }
    }

    fn rendered(hook: &Hook) -> Value {
        let endpoint = service();
        let common = common(&endpoint);
        validating(&common, std::slice::from_ref(hook))["webhooks"][0].clone()
    }

    #[test]
    fn deletions_system_namespaces_and_the_host_are_never_reviewed() {
        let mut hook = hook();
        hook.admission.namespace_selector = Some(Selector::parse("team=blue").unwrap());
        let webhook = rendered(&hook);
        assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
        assert_eq!(webhook["sideEffects"], "None");
        let expressions = webhook["namespaceSelector"]["matchExpressions"].as_array().unwrap();
        assert_eq!(
            expressions.last().unwrap(),
            &json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "harbour"]})
        );
        assert_eq!(expressions.len(), 2);
        assert_eq!(webhook["matchConditions"][0]["expression"], match_condition::CONDITION);
    }

    #[test]
    fn objects_outside_the_filter_are_not_reviewed() {
        let mut hook = hook();
        hook.filter = Filter {
            annotation: Some("a.b/\"c".to_owned()),
            annotations: Vec::new(),
            label_selector: Some(Selector::parse("app=web,!legacy,tier notin (a,b)").unwrap()),
        };
        let webhook = rendered(&hook);
        assert_eq!(
            webhook["objectSelector"]["matchExpressions"],
            json!([
                {"key": "app", "operator": "In", "values": ["web"]},
                {"key": "legacy", "operator": "DoesNotExist"},
                {"key": "tier", "operator": "NotIn", "values": ["a", "b"]},
            ])
        );
        assert_eq!(
            webhook["matchConditions"][1]["expression"],
            r#"has(object.metadata.annotations) && "a.b/\"c" in object.metadata.annotations"#
        );
        hook.filter = Filter {
            annotations: vec!["a".to_owned(), "b".to_owned()],
            ..Filter::default()
        };
        assert_eq!(
            rendered(&hook)["matchConditions"][1]["expression"],
            r#"has(object.metadata.annotations) && ("a" in object.metadata.annotations || "b" in object.metadata.annotations)"#
        );
    }

    #[test]
    fn a_service_or_a_url_leads_to_the_controllers_path() {
        let service = rendered(&hook());
        assert_eq!(
            service["clientConfig"],
            json!({"service": {"namespace": "harbour", "name": "host", "port": 443, "path": "/validate/shop/things"}, "caBundle": "UEVN"})
        );
        let endpoint = Endpoint::Url("https://10.0.0.1:9443/base".to_owned());
        let common = common(&endpoint);
        let defaulting = mutating(&common, &[hook()]);
        assert_eq!(
            defaulting["webhooks"][0]["clientConfig"]["url"],
            "https://10.0.0.1:9443/base/default/shop/things"
        );
        assert_eq!(
            conversion(&common, "things.x.dev")["spec"]["conversion"]["webhook"]["clientConfig"]["url"],
            "https://10.0.0.1:9443/base/convert/shop"
        );
    }

    #[test]
    fn who_vouches_for_the_host_is_a_part_of_its_own() {
        let endpoint = service();
        let common = common(&endpoint);
        let unknown = WebhookContext { bundle: "", ..common };
        for (with, without) in [
            (validating(&common, &[hook()]), validating(&unknown, &[hook()])),
            (
                conversion(&common, "things.x.dev"),
                conversion(&unknown, "things.x.dev"),
            ),
        ] {
            assert_ne!(with, without);
            assert_eq!(without_bundles(&with), without);
            assert_eq!(bundles(&with)["metadata"], json!({"name": with["metadata"]["name"]}));
        }
        assert_eq!(
            bundles(&validating(&common, &[hook()]))["webhooks"],
            json!([{"name": "validate.things.shop.pilothouse.dev", "clientConfig": {"caBundle": "UEVN"}}])
        );
    }

    #[test]
    fn the_certificate_has_the_names_of_the_endpoint() {
        let names = |url: &str| Endpoint::Url(url.to_owned()).names();
        assert_eq!(names("https://10.0.0.1:9443/base"), ["10.0.0.1"]);
        assert_eq!(names("https://[::1]:9443"), ["::1"]);
        assert_eq!(names("https://host.example"), ["host.example"]);
        assert!(service().names().contains(&"host.harbour.svc".to_owned()));
    }
}
