//! Defaults of services and of the endpoints behind them.

use serde_json::{Value, json};

use super::{items, member, set};

/// Time that a client keeps its pod with session affinity.
const AFFINITY_SECONDS: i64 = 10_800;

pub(super) fn service(object: &mut Value) {
    let Some(spec) = member(object, "spec") else { return };
    set(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "ClientIP" {
        let client = json!({"clientIP": {}});
        set(spec, "sessionAffinityConfig", client);
        set(&mut spec["sessionAffinityConfig"], "clientIP", json!({}));
        set(
            &mut spec["sessionAffinityConfig"]["clientIP"],
            "timeoutSeconds",
            AFFINITY_SECONDS,
        );
    }
    if spec["sessionAffinity"] == "None"
        && let Some(members) = spec.as_object_mut()
    {
        members.remove("sessionAffinityConfig");
    }
    set(spec, "type", "ClusterIP");
    for port in items(spec, "ports") {
        set(port, "protocol", "TCP");
        let target = &port["targetPort"];
        if target.is_null() || *target == 0 || *target == "" {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    let external = spec["externalIPs"]
        .as_array()
        .is_some_and(|addresses| !addresses.is_empty());
    if kind == "NodePort" || kind == "LoadBalancer" || external && kind == "ClusterIP" {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if ["ClusterIP", "NodePort", "LoadBalancer"].contains(&kind.as_str()) {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
        for entry in items(&mut object["status"]["loadBalancer"], "ingress") {
            if entry["ip"].is_string() {
                set(entry, "ipMode", "VIP");
            }
        }
    }
}

pub(super) fn endpoints(object: &mut Value) {
    for subset in items(object, "subsets") {
        items(subset, "ports").for_each(|port| set(port, "protocol", "TCP"));
    }
}

pub(super) fn endpoint_slice(object: &mut Value) {
    for port in items(object, "ports") {
        set(port, "name", "");
        set(port, "protocol", "TCP");
    }
}
