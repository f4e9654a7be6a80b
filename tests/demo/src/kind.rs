//! Kinds that the demo watches, and the short text that it shows of an object. Pure.

use kube::api::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// A kind that the demo watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Definition of a custom resource: CustomResourceDefinition.
    Definition,
    /// Custom resource of app-service.
    AppService,
    /// A child.
    Deployment,
    /// A child, and what users of service-ingress annotate.
    Service,
    /// A child.
    Ingress,
    /// Custom resource of reverse-proxy.
    ReverseProxy,
    /// Custom resource of reverse-proxy for TCP and UDP.
    TcpReverseProxy,
    /// Custom resource of stream-ingress.
    StreamIngress,
    /// Shared by StreamIngresses, and a child.
    ConfigMap,
    /// Custom resource of ecs-binding.
    EcsBinding,
    /// Subject of an EcsBinding.
    Node,
    /// Namespace of the other objects.
    Namespace,
}

impl Kind {
    /// Kinds that can be watched from the start: the others are served once the host has installed their CRDs.
    pub const EARLY: [Self; 6] = [
        Self::Definition,
        Self::Deployment,
        Self::Service,
        Self::Ingress,
        Self::ConfigMap,
        Self::Node,
    ];

    /// Kinds that a resource may own.
    pub const CHILDREN: [Self; 4] = [Self::ConfigMap, Self::Deployment, Self::Service, Self::Ingress];

    /// Name as it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Definition => "CRD",
            other => other.served().2,
        }
    }

    /// Resource in the API.
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = self.served();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// Returns `true` if its objects live in namespaces.
    pub fn is_namespaced(self) -> bool {
        !matches!(self, Self::Definition | Self::EcsBinding | Self::Node | Self::Namespace)
    }

    /// Group, version, kind and plural.
    fn served(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Definition => (
                "apiextensions.k8s.io",
                "v1",
                "CustomResourceDefinition",
                "customresourcedefinitions",
            ),
            Self::AppService => ("kosmos.io", "v1", "AppService", "appservices"),
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::Service => ("", "v1", "Service", "services"),
            Self::Ingress => ("networking.k8s.io", "v1", "Ingress", "ingresses"),
            Self::ReverseProxy => ("nginx.lin2ur.cn", "v1", "ReverseProxy", "reverseproxies"),
            Self::TcpReverseProxy => ("nginx.lin2ur.cn", "v1", "TCPReverseProxy", "tcpreverseproxies"),
            Self::StreamIngress => (
                "nginx-stream.jeffthecoder.xyz",
                "v1beta1",
                "StreamIngress",
                "streamingresses",
            ),
            Self::ConfigMap => ("", "v1", "ConfigMap", "configmaps"),
            Self::EcsBinding => ("hopegi.com", "v1", "EcsBinding", "ecsbinding"),
            Self::Node => ("", "v1", "Node", "nodes"),
            Self::Namespace => ("", "v1", "Namespace", "namespaces"),
        }
    }
}

/// Returns the state of an object in few words.
pub fn state(kind: Kind, object: &Value) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    let state = match kind {
        Kind::Definition => match condition(object, "Established") {
            Some("True") => "established".to_owned(),
            _ => "not established yet".to_owned(),
        },
        Kind::AppService => {
            let available = number(&status["availableReplicas"]);
            format!(
                "{available} of {} available{}",
                number(&spec["size"]),
                because(object, "Reconciled")
            )
        }
        Kind::Deployment => {
            let image = spec["template"]["spec"]["containers"][0]["image"]
                .as_str()
                .unwrap_or("no image");
            format!(
                "{image}, {} of {} ready",
                number(&status["readyReplicas"]),
                number(&spec["replicas"])
            )
        }
        Kind::Service => service(object),
        Kind::Ingress => {
            let rule = &spec["rules"][0];
            let path = &rule["http"]["paths"][0];
            let backend = &path["backend"]["service"];
            format!(
                "{}{} -> {}:{}",
                word(&rule["host"]),
                word(&path["path"]),
                word(&backend["name"]),
                number(&backend["port"]["number"])
            )
        }
        Kind::ReverseProxy => format!("{}{}", word(&spec["proxyPass"]), because(object, "Reconciled")),
        Kind::TcpReverseProxy => {
            let servers = spec["servers"].as_array();
            let servers = servers.into_iter().flatten();
            let servers: Vec<_> = servers.map(|server| word(&server["server"])).collect();
            format!("{}{}", servers.join(" "), because(object, "Reconciled"))
        }
        Kind::StreamIngress => {
            let upstream = &spec["upstream"];
            format!(
                "{} {} -> {}:{}{}",
                word(&spec["protocol"]),
                number(&spec["listen"]),
                word(&upstream["service"]),
                number(&upstream["port"]),
                because(object, "Accepted")
            )
        }
        Kind::ConfigMap => entries_of(object),
        Kind::EcsBinding => format!(
            "{} has {}{}",
            word(&spec["nodename"]),
            word(&spec["innerip"]),
            because(object, "Bound")
        ),
        Kind::Node => addresses_of(object),
        Kind::Namespace => word(&status["phase"]).to_owned(),
    };
    if object["metadata"]["deletionTimestamp"].is_null() {
        state
    } else {
        format!("{state}, being deleted")
    }
}

fn service(object: &Value) -> String {
    let spec = &object["spec"];
    let annotated = object["metadata"]["annotations"].get("ingress/http").is_some();
    let ports = spec["ports"].as_array();
    let ports = ports.into_iter().flatten().map(|port| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match port["nodePort"].as_u64() {
            Some(on_node) => format!(" {}:{on_node}/{protocol}", number(&port["port"])),
            None => format!(" {}/{protocol}", number(&port["port"])),
        }
    });
    format!(
        "{}{}{}",
        spec["type"].as_str().unwrap_or("no type"),
        ports.collect::<String>(),
        if annotated { ", annotated ingress/http" } else { "" }
    )
}

fn entries_of(object: &Value) -> String {
    let entries = object["data"].as_object();
    let entries = entries.into_iter().flatten();
    let shown = entries.map(|(key, value)| match word(value) {
        text if text.contains('\n') => format!("{key} of {} lines", text.lines().count()),
        word => format!("{key}={word}"),
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn addresses_of(node: &Value) -> String {
    let addresses = node["status"]["addresses"].as_array();
    let addresses: Vec<_> = addresses
        .into_iter()
        .flatten()
        .map(|address| word(&address["address"]))
        .collect();
    if addresses.is_empty() {
        "no addresses".to_owned()
    } else {
        addresses.join(" ")
    }
}

/// The status of one of an object's conditions.
pub fn condition<'object>(object: &'object Value, name: &str) -> Option<&'object str> {
    of_condition(object, name, "status")
}

/// Returns the reason of one of an object's conditions.
pub fn reason<'object>(object: &'object Value, name: &str) -> Option<&'object str> {
    of_condition(object, name, "reason")
}

fn of_condition<'object>(object: &'object Value, name: &str, field: &str) -> Option<&'object str> {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == name)?[field]
        .as_str()
}

/// A condition as the end of a state, with its reason where it does not hold.
fn because(object: &Value, name: &str) -> String {
    match (condition(object, name), reason(object, name)) {
        (None, _) => String::new(),
        (Some("True"), _) => format!(", {name}=True"),
        (Some(status), reason) => {
            let message = of_condition(object, name, "message").unwrap_or_default();
            let message = if message.is_empty() {
                String::new()
            } else {
                format!(": {message}")
            };
            format!(", {name}={status} {}{message}", reason.unwrap_or("for no reason"))
        }
    }
}

/// A text, which should be there.
fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// Returns a count; an absent one is zero: the API leaves it out.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_are_few_words() {
        let mut service =
            json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30002, "protocol": "TCP"}]}});
        assert_eq!(state(Kind::Service, &service), "NodePort 80:30002/TCP");
        service["metadata"] = json!({"annotations": {"ingress/http": ""}});
        assert_eq!(
            state(Kind::Service, &service),
            "NodePort 80:30002/TCP, annotated ingress/http"
        );
        let mut app = json!({"spec": {"size": 2}});
        assert_eq!(state(Kind::AppService, &app), "0 of 2 available");
        app["status"] = json!({"availableReplicas": 2, "conditions": [{"type": "Reconciled", "status": "True"}]});
        assert_eq!(state(Kind::AppService, &app), "2 of 2 available, Reconciled=True");
        app["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(
            state(Kind::AppService, &app),
            "2 of 2 available, Reconciled=True, being deleted"
        );
        let paths = json!([{"path": "/", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]);
        let ingress = json!({"spec": {"rules": [{"host": "example.com", "http": {"paths": paths}}]}});
        assert_eq!(state(Kind::Ingress, &ingress), "example.com/ -> web:80");
        assert_eq!(state(Kind::Definition, &json!({})), "not established yet");
        let mut stream = json!({"spec": {"protocol": "TCP", "listen": 1, "upstream": {"service": "db", "port": 2}}});
        assert_eq!(state(Kind::StreamIngress, &stream), "TCP 1 -> db:2");
        stream["status"] = json!({"conditions": [{"type": "Accepted", "status": "False", "reason": "PortConflict"}]});
        assert_eq!(
            state(Kind::StreamIngress, &stream),
            "TCP 1 -> db:2, Accepted=False PortConflict"
        );
        let map = json!({"data": {"5432": "shop/db:5432", "9": "by/hand:9"}});
        assert_eq!(state(Kind::ConfigMap, &map), "5432=shop/db:5432 9=by/hand:9");
        let map = json!({"data": {"nginx.conf": "events {\n}\n"}});
        assert_eq!(state(Kind::ConfigMap, &map), "nginx.conf of 2 lines");
        assert_eq!(state(Kind::Node, &json!({})), "no addresses");
    }
}
