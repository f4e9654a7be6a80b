//! Checks Services: ports, addresses, and what only some of their types may have.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{list, names, text};
use crate::allocate::is_external;
use crate::failure::FieldError;

/// Longest time, in seconds, for which a client keeps its pod.
const LONGEST_AFFINITY: i64 = 86_400;

pub(super) fn service(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    if let Some(old) = old {
        fixed_addresses(spec, &old["spec"], &mut errors);
        let (class, before) = (&spec["loadBalancerClass"], &old["spec"]["loadBalancerClass"]);
        if [spec, &old["spec"]].iter().all(|spec| spec["type"] == "LoadBalancer") && class != before {
            let detail = "may not change once set";
            errors.push(FieldError::invalid("spec.loadBalancerClass", class, detail));
        }
        // The server asks this of an update twice.
        errors.extend(class_is_allowed(spec));
    }
    let kind = text(&spec["type"]);
    let ports = list(&spec["ports"]);
    let headless = list(&spec["clusterIPs"]) == [json!("None")] || text(&spec["clusterIP"]) == "None";
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if headless && ["NodePort", "LoadBalancer"].contains(&kind) {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &json!("None"), detail));
    }
    if kind == "ExternalName" {
        for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if !spec[name].is_null() {
                let detail = "may not be set for ExternalName services";
                errors.push(FieldError::forbidden(format!("spec.{name}"), detail));
            }
        }
        let name = text(&spec["externalName"]);
        if name.is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        } else {
            let name = name.strip_suffix('.').unwrap_or(name);
            errors.extend(names::object_name(
                names::NameForm::Subdomain,
                name,
                "spec.externalName",
            ));
        }
    }
    let mut taken = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        service_port(port, &path, ports.len() > 1, &mut taken, &mut errors);
    }
    errors.extend(names::labels(&spec["selector"], "spec.selector"));
    affinity(spec, &mut errors);
    if kind != "ExternalName" {
        errors.extend(addresses(spec));
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported("spec.type", &spec["type"], &kinds));
    }
    if kind == "ClusterIP" {
        for (index, port) in ports.iter().enumerate() {
            if port["nodePort"].as_i64().unwrap_or(0) != 0 {
                let detail = "may not be used when `type` is 'ClusterIP'";
                errors.push(FieldError::forbidden(format!("spec.ports[{index}].nodePort"), detail));
            }
        }
    }
    duplicates(ports, &mut errors);
    of_types(spec, kind, &mut errors);
    policies(spec, kind, &mut errors);
    errors
}

/// An address is given once.
fn fixed_addresses(spec: &Value, before: &Value, errors: &mut Vec<FieldError>) {
    let headless = |spec: &Value| spec["clusterIP"] == "None";
    if [spec, before].iter().any(|spec| spec["type"] == "ExternalName") || headless(spec) && headless(before) {
        return;
    }
    for (name, path) in [("clusterIPs", "spec.clusterIPs"), ("ipFamilies", "spec.ipFamilies")] {
        if name == "ipFamilies" && (headless(spec) || headless(before)) {
            continue;
        }
        let (new, old) = (list(&spec[name]), list(&before[name]));
        for (index, value) in old.iter().enumerate() {
            if new.get(index).is_some_and(|new| new != value) {
                let index = if name == "ipFamilies" { 0 } else { index };
                let path = format!("{path}[{index}]");
                errors.push(FieldError::invalid(path, &spec[name], "may not change once set"));
            }
        }
    }
}

fn affinity(spec: &Value, errors: &mut Vec<FieldError>) {
    let affinities = ["ClientIP", "None"];
    let affinity = &spec["sessionAffinity"];
    if !affinities.contains(&text(affinity)) {
        errors.push(FieldError::not_supported("spec.sessionAffinity", affinity, &affinities));
    }
    let seconds = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if affinity == "ClientIP"
        && seconds
            .as_i64()
            .is_some_and(|seconds| !(1..=LONGEST_AFFINITY).contains(&seconds))
    {
        let detail = format!("must be greater than 0 and less than {LONGEST_AFFINITY}");
        let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        errors.push(FieldError::invalid(path, seconds, detail));
    }
}

/// Checks the addresses of a service that has some.
pub(crate) fn addresses(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (address, all) = (text(&spec["clusterIP"]), list(&spec["clusterIPs"]));
    if !address.is_empty() && all.first().is_some_and(|first| first != address) {
        let detail = "first value must match `clusterIP`";
        errors.push(FieldError::invalid("spec.clusterIPs", &spec["clusterIPs"], detail));
    } else if address.is_empty() && !all.is_empty() {
        let detail = "must be empty when `clusterIP` is not specified";
        errors.push(FieldError::invalid("spec.clusterIPs", &spec["clusterIPs"], detail));
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    let policy = &spec["ipFamilyPolicy"];
    if policy.is_string() && !policies.contains(&text(policy)) {
        errors.push(FieldError::not_supported("spec.ipFamilyPolicy", policy, &policies));
    }
    for (index, address) in all.iter().enumerate() {
        let is_none = index == 0 && address == "None";
        if !is_none && text(address).parse::<std::net::IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(
                format!("spec.clusterIPs[{index}]"),
                address,
                detail,
            ));
        }
    }
    errors
}

const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

fn class_is_allowed(spec: &Value) -> Option<FieldError> {
    let is_wrong = spec["type"] != "LoadBalancer" && !spec["loadBalancerClass"].is_null();
    is_wrong.then(|| FieldError::forbidden("spec.loadBalancerClass", ONLY_LOAD_BALANCER))
}

/// Checks the fields that only services of some types may have.
fn of_types(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    if kind != "LoadBalancer" {
        if !list(&spec["loadBalancerSourceRanges"]).is_empty() {
            errors.push(FieldError::forbidden(
                "spec.LoadBalancerSourceRanges",
                ONLY_LOAD_BALANCER,
            ));
        }
        if !spec["allocateLoadBalancerNodePorts"].is_null() {
            errors.push(FieldError::forbidden(
                "spec.allocateLoadBalancerNodePorts",
                ONLY_LOAD_BALANCER,
            ));
        }
    }
    errors.extend(class_is_allowed(spec));
    let policy = &spec["externalTrafficPolicy"];
    let path = "spec.externalTrafficPolicy";
    let policies = ["Cluster", "Local"];
    if !is_external(spec) {
        if policy.is_string() {
            let detail = "may only be set for externally-accessible services";
            errors.push(FieldError::invalid(path, policy, detail));
        }
    } else if policy.is_null() {
        errors.push(FieldError::required(path, ""));
    } else if !policies.contains(&text(policy)) {
        errors.push(FieldError::not_supported(path, policy, &policies));
    }
    let health = &spec["healthCheckNodePort"];
    if health.is_number() && !(kind == "LoadBalancer" && policy == "Local") {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid("spec.healthCheckNodePort", health, detail));
    }
}

fn policies(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let policy = &spec["internalTrafficPolicy"];
    let path = "spec.internalTrafficPolicy";
    if policy.is_null() && ["ClusterIP", "NodePort", "LoadBalancer"].contains(&kind) {
        errors.push(FieldError::required(path, ""));
    }
    for (name, supported) in [
        ("internalTrafficPolicy", ["Cluster", "Local"].as_slice()),
        (
            "trafficDistribution",
            &["PreferClose", "PreferSameZone", "PreferSameNode"],
        ),
    ] {
        let value = &spec[name];
        if value.is_string() && !supported.contains(&text(value)) {
            errors.push(FieldError::not_supported(format!("spec.{name}"), value, supported));
        }
    }
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
    errors.extend(names::protocol(&port["protocol"], &format!("{path}.protocol")));
    errors.extend(names::port(&port["targetPort"], &format!("{path}.targetPort")));
    let application = text(&port["appProtocol"]);
    if !application.is_empty() {
        let faults = names::qualified_faults(application).into_iter();
        let path = format!("{path}.appProtocol");
        errors.extend(faults.map(|fault| FieldError::invalid(&path, &port["appProtocol"], fault)));
    }
}

/// Ports that say the same number and protocol twice.
fn duplicates(ports: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let number = port["nodePort"].as_i64().filter(|number| *number != 0);
        if number.is_some() && !numbers.insert((number, text(&port["protocol"]))) {
            errors.push(FieldError::duplicate(
                format!("spec.ports[{index}].nodePort"),
                &port["nodePort"],
            ));
        }
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
