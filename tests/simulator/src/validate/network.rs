//! Owns the checks of services and ingresses.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::names;
use crate::failure::FieldError;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn service(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let ports = list(&spec["ports"]);
    let headless = text(&spec["clusterIP"]) == "None";
    let external = text(&spec["type"]) == "ExternalName";
    if ports.is_empty() && !headless && !external {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if external {
        let name = text(&spec["externalName"]);
        if name.is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        } else {
            errors.extend(names::host(name.trim_end_matches('.'), "spec.externalName"));
        }
    }
    if headless && ["NodePort", "LoadBalancer"].contains(&text(&spec["type"])) {
        let detail = format!("may not be set to 'None' for {} services", text(&spec["type"]));
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &json!("None"), detail));
    }
    let address = text(&spec["clusterIP"]);
    if !["", "None"].contains(&address) && address.parse::<std::net::IpAddr>().is_err() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &spec["clusterIP"], detail));
    }
    let mut taken = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        service_port(
            port,
            &format!("spec.ports[{index}]"),
            ports.len() > 1,
            &mut taken,
            &mut errors,
        );
    }
    let affinities = ["ClientIP", "None"];
    let affinity = &spec["sessionAffinity"];
    if !affinities.contains(&text(affinity)) {
        errors.push(FieldError::not_supported("spec.sessionAffinity", affinity, &affinities));
    }
    errors.extend(names::labels(&spec["selector"], "spec.selector"));
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&text(&spec["type"])) {
        errors.push(FieldError::not_supported("spec.type", &spec["type"], &kinds));
    }
    if text(&spec["type"]) == "ClusterIP" {
        for (index, port) in ports.iter().enumerate() {
            if port["nodePort"].as_i64().unwrap_or(0) != 0 {
                let detail = "may not be used when `type` is 'ClusterIP'";
                errors.push(FieldError::forbidden(format!("spec.ports[{index}].nodePort"), detail));
            }
        }
    }
    duplicates(ports, &mut errors);
    if let Some(old) = old
        && !text(&old["spec"]["clusterIP"]).is_empty()
        && !external
        && text(&old["spec"]["type"]) != "ExternalName"
        && spec["clusterIP"] != old["spec"]["clusterIP"]
    {
        let addresses = json!([spec["clusterIP"]]);
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            &addresses,
            "may not change once set",
        ));
    }
    errors
}

fn service_port<'a>(
    port: &'a Value,
    path: &str,
    name_required: bool,
    taken: &mut BTreeSet<&'a str>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(&port["name"]);
    if name.is_empty() && name_required {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else if !name.is_empty() {
        errors.extend(names::label(name, &format!("{path}.name")));
        if !taken.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &port["name"]));
        }
    }
    errors.extend(names::port_number(&port["port"], &format!("{path}.port")));
    let protocols = ["SCTP", "TCP", "UDP"];
    let protocol = &port["protocol"];
    if text(protocol).is_empty() {
        errors.push(FieldError::required(format!("{path}.protocol"), ""));
    } else if !protocols.contains(&text(protocol)) {
        errors.push(FieldError::not_supported(
            format!("{path}.protocol"),
            protocol,
            &protocols,
        ));
    }
    match &port["targetPort"] {
        Value::Number(_) => errors.extend(names::port_number(&port["targetPort"], &format!("{path}.targetPort"))),
        target => errors.extend(names::port_name(text(target), &format!("{path}.targetPort"))),
    }
}

/// Ports that say the same number and protocol twice.
fn duplicates(ports: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let key = (port["port"].as_i64(), text(&port["protocol"]));
        if !seen.insert(key) {
            // As Go shows a struct of which two fields are set.
            let shown = json!({
                "AppProtocol": null, "Name": "", "NodePort": 0, "Port": port["port"], "Protocol": port["protocol"],
                "TargetPort": 0,
            });
            errors.push(FieldError::duplicate(format!("spec.ports[{index}]"), &shown));
        }
    }
}

pub(super) fn ingress(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if list(&spec["rules"]).is_empty() && spec["defaultBackend"].is_null() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", &Value::Null, detail));
    }
    for (index, rule) in list(&spec["rules"]).iter().enumerate() {
        let path = format!("spec.rules[{index}]");
        let host = text(&rule["host"]);
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
    errors
}

fn ingress_path(entry: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
    let kind = &entry["pathType"];
    match text(kind) {
        "" => errors.push(FieldError::required(
            format!("{path}.pathType"),
            "pathType must be specified",
        )),
        "Exact" | "Prefix" if !text(&entry["path"]).starts_with('/') => {
            let value = json!(text(&entry["path"]));
            errors.push(FieldError::invalid(
                format!("{path}.path"),
                &value,
                "must be an absolute path",
            ));
        }
        other if !kinds.contains(&other) => {
            errors.push(FieldError::not_supported(format!("{path}.pathType"), kind, &kinds));
        }
        _ => {}
    }
    backend(&entry["backend"], &format!("{path}.backend"), errors);
}

fn backend(backend: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let service = &backend["service"];
    if service.is_null() {
        if backend["resource"].is_null() {
            errors.push(FieldError::required(path, "resource or service backend is required"));
        }
        return;
    }
    if text(&service["name"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.service.name"), ""));
    } else {
        let form = names::NameForm::Label1035;
        errors.extend(names::object_name(
            form,
            text(&service["name"]),
            &format!("{path}.service.name"),
        ));
    }
    let (number, name) = (
        service["port"]["number"].as_i64().unwrap_or(0),
        text(&service["port"]["name"]),
    );
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
            errors.extend(names::port_number(
                &service["port"]["number"],
                &format!("{path}.service.port.number"),
            ));
        }
        (false, true) => {}
    }
}
