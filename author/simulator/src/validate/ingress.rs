//! Checks Ingresses and NetworkPolicies.

use serde_json::{Value, json};

use super::{list, names, text};
use crate::failure::FieldError;

pub(super) fn ingress(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let form = names::NameForm::Subdomain;
    if list(&spec["rules"]).is_empty() && spec["defaultBackend"].is_null() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", &Value::Null, detail));
    }
    for (index, rule) in list(&spec["rules"]).iter().enumerate() {
        let path = format!("spec.rules[{index}]");
        let host = text(&rule["host"]);
        if host.parse::<std::net::IpAddr>().is_ok() {
            let detail = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(format!("{path}.host"), &rule["host"], detail));
        }
        if !host.is_empty() {
            errors.extend(names::host(host, &format!("{path}.host")));
        }
        if rule["http"].is_object() && list(&rule["http"]["paths"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.http.paths"), ""));
        }
        for (index, entry) in list(&rule["http"]["paths"]).iter().enumerate() {
            ingress_path(entry, &format!("{path}.http.paths[{index}]"), &mut errors);
        }
    }
    if spec["defaultBackend"].is_object() {
        backend(&spec["defaultBackend"], "spec.defaultBackend", &mut errors);
    }
    for (index, entry) in list(&spec["tls"]).iter().enumerate() {
        let path = format!("spec.tls[{index}]");
        for (index, host) in list(&entry["hosts"]).iter().enumerate() {
            errors.extend(names::host(text(host), &format!("{path}.hosts[{index}]")));
        }
        let name = text(&entry["secretName"]);
        if !name.is_empty() {
            errors.extend(names::object_name(form, name, &format!("{path}.secretName")));
        }
    }
    let class = &spec["ingressClassName"];
    if class.is_string() {
        errors.extend(names::object_name(form, text(class), "spec.ingressClassName"));
    }
    errors
}

/// Parts that no path contains, and endings that no path has.
const NOT_WITHIN: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const NOT_LAST: [&str; 2] = ["/..", "/."];

fn ingress_path(entry: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
    let kind = &entry["pathType"];
    let given = text(&entry["path"]);
    let mut refuse = |detail: String| {
        errors.push(FieldError::invalid(format!("{path}.path"), &json!(given), detail));
    };
    match text(kind) {
        "" => {
            let detail = "pathType must be specified";
            errors.push(FieldError::required(format!("{path}.pathType"), detail));
            return;
        }
        "Exact" | "Prefix" => {
            if !given.starts_with('/') {
                refuse("must be an absolute path".to_owned());
            }
            for part in NOT_WITHIN.into_iter().filter(|part| given.contains(part)) {
                refuse(format!("must not contain '{part}'"));
            }
            for end in NOT_LAST.into_iter().filter(|end| given.ends_with(end)) {
                refuse(format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !given.is_empty() && !given.starts_with('/') {
                refuse("must be an absolute path".to_owned());
            }
        }
        _ => errors.push(FieldError::not_supported(format!("{path}.pathType"), kind, &kinds)),
    }
    backend(&entry["backend"], &format!("{path}.backend"), errors);
}

fn backend(backend: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(path, &json!(""), detail));
    match (service.is_object(), resource.is_object()) {
        (true, true) => refuse("cannot set both resource and service backends"),
        (false, false) => refuse("resource or service backend is required"),
        (true, false) => service_backend(service, path, errors),
        (false, true) => {
            if let Some(group) = resource["apiGroup"].as_str() {
                let path = format!("{path}.resource.apiGroup");
                errors.extend(names::object_name(names::NameForm::Subdomain, group, &path));
            }
            for name in ["kind", "name"] {
                let path = format!("{path}.resource.{name}");
                match text(&resource[name]) {
                    "" => errors.push(FieldError::required(path, "")),
                    name => errors.extend(names::object_name(names::NameForm::PathSegment, name, &path)),
                }
            }
        }
    }
}

fn service_backend(service: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let name_path = format!("{path}.service.name");
    match text(&service["name"]) {
        "" => errors.push(FieldError::required(name_path, "")),
        name => errors.extend(names::label(name, &name_path)),
    }
    let port = &service["port"];
    let (number, name) = (port["number"].as_i64().unwrap_or(0), text(&port["name"]));
    match (number != 0, !name.is_empty()) {
        (false, false) => {
            let detail = "port name or number is required";
            errors.push(FieldError::required(path, detail));
        }
        (true, true) => {
            let detail = "cannot set both port name & port number";
            errors.push(FieldError::invalid(path, &json!(""), detail));
        }
        (true, false) => {
            let path = format!("{path}.service.port.number");
            errors.extend(names::port_number(&port["number"], &path));
        }
        (false, true) => errors.extend(names::port_name(name, &format!("{path}.service.port.name"))),
    }
}

pub(super) fn network_policy(spec: &Value) -> Vec<FieldError> {
    let mut errors = names::labels(&spec["podSelector"]["matchLabels"], "spec.podSelector.matchLabels");
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in list(&spec[rules]).iter().enumerate() {
            let path = format!("spec.{rules}[{index}]");
            for (index, port) in list(&rule["ports"]).iter().enumerate() {
                policy_port(port, &format!("{path}.ports[{index}]"), &mut errors);
            }
            for (index, item) in list(&rule[peers]).iter().enumerate() {
                peer(item, &format!("{path}.{peers}[{index}]"), &mut errors);
            }
        }
    }
    let kinds = ["Ingress", "Egress"];
    for (index, kind) in list(&spec["policyTypes"]).iter().enumerate() {
        if !kinds.contains(&text(kind)) {
            let path = format!("spec.policyTypes[{index}]");
            errors.push(FieldError::not_supported(path, kind, &kinds));
        }
    }
    errors
}

fn policy_port(port: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let protocols = ["TCP", "UDP", "SCTP"];
    let protocol = &port["protocol"];
    if protocol.is_string() && !protocols.contains(&text(protocol)) {
        let path = format!("{path}.protocol");
        errors.push(FieldError::not_supported(path, protocol, &protocols));
    }
    let (first, last) = (&port["port"], &port["endPort"]);
    let last_path = format!("{path}.endPort");
    if !first.is_null() {
        errors.extend(names::port(first, &format!("{path}.port")));
    }
    match (first.as_i64(), last.as_i64()) {
        (_, None) => {}
        (Some(number), Some(end)) => {
            if end < number {
                let detail = "must be greater than or equal to `port`";
                errors.push(FieldError::invalid(&last_path, first, detail));
            }
            errors.extend(names::port_number(last, &last_path));
        }
        (None, Some(_)) => {
            let fault = if first.is_null() {
                "not specified"
            } else {
                "non-numeric"
            };
            let detail = format!("may not be specified when `port` is {fault}");
            errors.push(FieldError::invalid(last_path, last, detail));
        }
    }
}

fn peer(peer: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let block = &peer["ipBlock"];
    let selectors = ["podSelector", "namespaceSelector"];
    let selects = selectors.iter().any(|name| peer[*name].is_object());
    if !selects && !block.is_object() {
        errors.push(FieldError::required(path, "must specify a peer"));
    } else if selects && block.is_object() {
        let detail = "may not specify both ipBlock and another peer";
        errors.push(FieldError::forbidden(path, detail));
    }
    if !block.is_object() {
        return;
    }
    let (whole, whole_path) = (&block["cidr"], format!("{path}.ipBlock.cidr"));
    if text(whole).is_empty() {
        errors.push(FieldError::required(whole_path, ""));
        return;
    }
    let invalid = |value: &Value, path: String| {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        FieldError::invalid(path, value, detail)
    };
    let Some(outer) = network(text(whole)) else {
        errors.push(invalid(whole, whole_path));
        return;
    };
    for (index, except) in list(&block["except"]).iter().enumerate() {
        let path = format!("{path}.ipBlock.except[{index}]");
        match network(text(except)) {
            None => errors.push(invalid(except, path)),
            Some(inner) if inner.1 <= outer.1 || bits_of(inner.0, outer.1) != bits_of(outer.0, outer.1) => {
                let detail = "must be a strict subset of `cidr`";
                errors.push(FieldError::invalid(path, except, detail));
            }
            Some(_) => {}
        }
    }
}

/// The address of a network and the number of its leading bits.
fn network(text: &str) -> Option<(std::net::IpAddr, u32)> {
    let (address, length) = text.split_once('/')?;
    let address: std::net::IpAddr = address.parse().ok()?;
    let length: u32 = length.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some((address, length))
}

/// The leading bits of an address, with its family.
fn bits_of(address: std::net::IpAddr, length: u32) -> (bool, u128) {
    let (is_v4, number, width) = match address {
        std::net::IpAddr::V4(address) => (true, u128::from(u32::from(address)), 32),
        std::net::IpAddr::V6(address) => (false, u128::from(address), 128),
    };
    (is_v4, number.checked_shr(width - length).unwrap_or(0))
}
