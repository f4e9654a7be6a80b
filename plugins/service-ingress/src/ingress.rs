//! Owns the Ingress: what it is for a Service.

use pilothouse_plugin::{Kind, Resource};
use serde::Serialize;

use crate::settings::Settings;

/// The Ingress of a Service. The types list the fields that are ours and nothing else, so a class or a certificate that
/// somebody adds stays.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Debug, Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
}

#[derive(Debug, Serialize)]
struct Spec<'a> {
    rules: [Rule<'a>; 1],
}

#[derive(Debug, Serialize)]
struct Rule<'a> {
    host: &'a str,
    http: Http<'a>,
}

#[derive(Debug, Serialize)]
struct Http<'a> {
    paths: [PathRule<'a>; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PathRule<'a> {
    path: &'static str,
    path_type: &'static str,
    backend: Backend<'a>,
}

#[derive(Debug, Serialize)]
struct Backend<'a> {
    service: ServiceBackend<'a>,
}

#[derive(Debug, Serialize)]
struct ServiceBackend<'a> {
    name: &'a str,
    port: Port,
}

#[derive(Debug, Serialize)]
struct Port {
    number: u16,
}

impl Resource for Ingress<'_> {
    const KIND: Kind = Kind::new("networking.k8s.io", "v1", "Ingress");
}

impl<'a> Ingress<'a> {
    /// The Ingress that should exist for the Service of this name.
    pub fn of(name: &'a str, namespace: &'a str, settings: &'a Settings) -> Self {
        let port = Port {
            number: settings.service_port.get(),
        };
        let backend = Backend {
            service: ServiceBackend { name, port },
        };
        let path = PathRule {
            path: "/",
            path_type: "Prefix",
            backend,
        };
        let rule = Rule {
            host: &settings.host,
            http: Http { paths: [path] },
        };
        Self {
            api_version: "networking.k8s.io/v1",
            kind: "Ingress",
            metadata: Metadata { name, namespace },
            spec: Spec { rules: [rule] },
        }
    }
}
