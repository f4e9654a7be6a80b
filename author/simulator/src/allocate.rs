//! Allocates values that are unique in a cluster: cluster IPs and node ports of services.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::failure::{Failure, FieldError};
use crate::kinds::{Resource, Storage};
use crate::resource::{Key, text};
use crate::state::State;
use crate::validate::service_addresses;

/// Node ports are given out of this range.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;
/// Cluster IPs are of 10.96.0.0/12, as where the tests run a real server, so that thousands of services fit.
const CLUSTER_NETWORK: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const CLUSTER_ADDRESSES: u32 = 1 << 20;

/// Allocates addresses and node ports of a new service, which the server does before it checks the rest.
pub(crate) fn on_create(state: &mut State, resource: &Resource, object: &mut Value) -> Result<(), Failure> {
    if !resource.is_builtin("", "services") {
        return Ok(());
    }
    let spec = &object["spec"];
    if !text(&spec["clusterIP"]).is_empty() && spec["clusterIPs"].is_null() {
        object["spec"]["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    allocate(state, object, true)
}

/// Fills in what a client leaves out of an update, allocates new values that the service needs, and removes those that
/// its new type does not have, unless the client set them.
pub(crate) fn on_update(
    state: &mut State,
    resource: &Resource,
    object: &mut Value,
    old: &Value,
) -> Result<(), Failure> {
    if !resource.is_builtin("", "services") || !object["spec"].is_object() {
        return Ok(());
    }
    let before = &old["spec"];
    keep_allocated(&mut object["spec"], before);
    if let Some((protocol, number)) = number_taken_twice(&object["spec"]) {
        return Err(Failure::unclassified(format!(
            "duplicate nodePort: {{{protocol} {number}}}"
        )));
    }
    // An address that is there stays, whatever the client says.
    allocate(state, object, !has_address(before))?;
    drop_of_type(&mut object["spec"], before);
    if !has_address(&object["spec"]) {
        remove(&mut object["spec"], "internalTrafficPolicy");
    }
    if object["spec"]["type"] != "LoadBalancer" {
        object["status"]["loadBalancer"] = json!({});
    }
    Ok(())
}

fn allocate(state: &mut State, object: &mut Value, without_address: bool) -> Result<(), Failure> {
    if has_address(&object["spec"]) {
        families(object);
        let faults = service_addresses(&object["spec"]);
        if !faults.is_empty() {
            return Err(Failure::invalid(
                "",
                "Service",
                text(&object["metadata"]["name"]),
                &faults,
            ));
        }
        if without_address {
            addresses(state, object)?;
        }
    }
    node_ports(state, object)
}

fn has_address(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

fn has_node_ports(spec: &Value) -> bool {
    ["NodePort", "LoadBalancer"].contains(&text(&spec["type"]))
}

fn has_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

/// Returns `true` if the service can be reached from outside of the cluster.
pub(crate) fn is_external(spec: &Value) -> bool {
    let addresses = spec["externalIPs"]
        .as_array()
        .is_some_and(|addresses| !addresses.is_empty());
    has_node_ports(spec) || spec["type"] == "ClusterIP" && addresses
}

fn number_taken_twice(spec: &Value) -> Option<(&str, i64)> {
    let mut seen = BTreeSet::new();
    let ports = spec["ports"]
        .as_array()
        .filter(|_| has_node_ports(spec))
        .into_iter()
        .flatten();
    let mut numbers = ports.filter_map(|port| Some((text(&port["protocol"]), port["nodePort"].as_i64()?)));
    numbers.find(|number| !seen.insert(*number))
}

fn keep_allocated(spec: &mut Value, before: &Value) {
    if has_address(spec) && has_address(before) {
        for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if spec.get(name).is_none()
                && let Some(value) = before.get(name)
            {
                spec[name] = value.clone();
            }
        }
    }
    if has_node_ports(spec) && has_node_ports(before) {
        let numbers = |spec: &Value| -> BTreeSet<i64> {
            let ports = spec["ports"].as_array().into_iter().flatten();
            ports.filter_map(|port| port["nodePort"].as_i64()).collect()
        };
        let used: BTreeSet<i64> = numbers(spec).intersection(&numbers(before)).copied().collect();
        let named = before["ports"].as_array().into_iter().flatten();
        let named: HashMap<&str, &Value> = named.map(|port| (text(&port["name"]), &port["nodePort"])).collect();
        for port in spec["ports"].as_array_mut().into_iter().flatten() {
            let known = named.get(text(&port["name"])).and_then(|number| number.as_i64());
            if port.get("nodePort").is_none()
                && let Some(number) = known.filter(|number| !used.contains(number))
            {
                port["nodePort"] = json!(number);
            }
        }
    }
    if has_health_check(spec) && has_health_check(before) && spec.get("healthCheckNodePort").is_none() {
        spec["healthCheckNodePort"] = before["healthCheckNodePort"].clone();
    }
    // Who changes the one address and leaves the list of them alone means both.
    if spec["clusterIP"] != before["clusterIP"] && spec["clusterIPs"] == before["clusterIPs"] {
        match text(&spec["clusterIP"]) {
            "" => remove(spec, "clusterIPs"),
            address => spec["clusterIPs"] = json!([address]),
        }
    }
}

fn drop_of_type(spec: &mut Value, before: &Value) {
    let drop_same = |spec: &mut Value, names: &[&str]| {
        if names.iter().all(|name| spec.get(*name) == before.get(*name)) {
            for name in names {
                remove(spec, name);
            }
        }
    };
    if has_address(before) && !has_address(spec) {
        drop_same(spec, &["clusterIP", "clusterIPs"]);
        drop_same(spec, &["ipFamilies"]);
        drop_same(spec, &["ipFamilyPolicy"]);
    }
    if has_node_ports(before) && !has_node_ports(spec) {
        let old_ports = before["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut ports = spec["ports"]
            .as_array_mut()
            .map(Vec::as_mut_slice)
            .unwrap_or_default()
            .iter_mut();
        let is_known = |port: &Value| old_ports.iter().any(|old| old["nodePort"] == port["nodePort"]);
        if ports
            .as_slice()
            .iter()
            .all(|port| port.get("nodePort").is_none() || is_known(port))
        {
            ports.by_ref().for_each(|port| remove(port, "nodePort"));
        }
    }
    if has_health_check(before) && !has_health_check(spec) {
        drop_same(spec, &["healthCheckNodePort"]);
    }
    if before["type"] == "LoadBalancer" && spec["type"] != "LoadBalancer" {
        drop_same(spec, &["allocateLoadBalancerNodePorts"]);
        drop_same(spec, &["loadBalancerClass"]);
    }
    if is_external(before) && !is_external(spec) {
        drop_same(spec, &["externalTrafficPolicy"]);
    }
}

fn remove(object: &mut Value, name: &str) {
    if let Some(members) = object.as_object_mut() {
        members.remove(name);
    }
}

fn needs_node_ports(spec: &Value) -> bool {
    match text(&spec["type"]) {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

fn families(object: &mut Value) {
    let spec = &mut object["spec"];
    // Nobody knows the families of endpoints that somebody else makes.
    let any = text(&spec["clusterIP"]) == "None" && spec["selector"].is_null();
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = json!(if any { "RequireDualStack" } else { "SingleStack" });
    }
    if spec["ipFamilies"].is_null() {
        spec["ipFamilies"] = if any { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
    }
}

fn other_services<'a>(state: &'a State, object: &'a Value) -> impl Iterator<Item = &'a Value> {
    let storage = Storage::new("", "services");
    let uid = object["metadata"]["uid"].clone();
    state
        .store
        .list(&storage)
        .map(|service| &**service)
        .filter(move |service| service["metadata"]["uid"] != uid)
        .collect::<Vec<_>>()
        .into_iter()
}

fn invalid(object: &Value, error: FieldError) -> Failure {
    Failure::invalid("", "Service", text(&object["metadata"]["name"]), &[error])
}

fn addresses(state: &mut State, object: &mut Value) -> Result<(), Failure> {
    let given = text(&object["spec"]["clusterIP"]).to_owned();
    let address = if given == "None" {
        given
    } else if given.is_empty() {
        free_address(state, object).ok_or_else(|| Failure::internal("failed to allocate IP: range is full"))?
    } else {
        check_address(state, object, &given)?;
        given
    };
    object["spec"]["clusterIP"] = json!(address);
    object["spec"]["clusterIPs"] = json!([address]);
    Ok(())
}

fn free_address(state: &mut State, object: &Value) -> Option<String> {
    // The first one is the network's, the second the server's own, the last the broadcast's.
    let free = CLUSTER_ADDRESSES - 3;
    let start = u32::try_from(state.random.below(free.into())).unwrap_or_default();
    (0..free)
        .map(|offset| Ipv4Addr::from(CLUSTER_NETWORK + 2 + (start + offset) % free).to_string())
        .find(|address| !is_taken(state, object, address))
}

fn is_taken(state: &State, object: &Value, address: &str) -> bool {
    let holder = state.addresses.0.get(address);
    holder.is_some_and(|holder| *holder != Key::of(object))
}

fn check_address(state: &State, object: &Value, given: &str) -> Result<(), Failure> {
    let shown = json!([given]);
    let refuse = |detail: &str| Err(invalid(object, FieldError::invalid("spec.clusterIPs", &shown, detail)));
    let is_inside = given.parse::<Ipv4Addr>().is_ok_and(|address| {
        u32::from(address)
            .checked_sub(CLUSTER_NETWORK)
            .is_some_and(|offset| offset < CLUSTER_ADDRESSES)
    });
    if !is_inside {
        return refuse(&format!(
            "failed to allocate IP {given}: the provided network does not match the current range"
        ));
    }
    if is_taken(state, object, given) {
        let cause = format!("failed to allocate IP {given}: provided IP is already allocated");
        return refuse(&cause);
    }
    Ok(())
}

fn node_ports(state: &mut State, object: &mut Value) -> Result<(), Failure> {
    if !needs_node_ports(&object["spec"]) {
        return Ok(());
    }
    let used: BTreeSet<(i64, String)> = other_services(state, object)
        .flat_map(|service| service["spec"]["ports"].as_array().into_iter().flatten())
        .filter_map(|port| Some((port["nodePort"].as_i64()?, text(&port["protocol"]).to_owned())))
        .collect();
    let ports = object["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let mut own: BTreeSet<(i64, String)> = BTreeSet::new();
    // What is asked for by number goes first, so that nothing else is given it.
    for (index, port) in ports.iter().enumerate() {
        let number = port["nodePort"].as_i64().unwrap_or(0);
        if number == 0 {
            continue;
        }
        let path = format!("spec.ports[{index}].nodePort");
        if !NODE_PORTS.contains(&number) {
            let detail = format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                NODE_PORTS.start(),
                NODE_PORTS.end()
            );
            return Err(invalid(object, FieldError::invalid(path, &port["nodePort"], detail)));
        }
        let taken = (number, text(&port["protocol"]).to_owned());
        if used.contains(&taken) || own.contains(&taken) {
            return Err(invalid(
                object,
                FieldError::invalid(path, &port["nodePort"], "provided port is already allocated"),
            ));
        }
        own.insert((number, text(&port["protocol"]).to_owned()));
    }
    for (index, port) in ports.iter().enumerate() {
        if port["nodePort"].as_i64().unwrap_or(0) != 0 {
            continue;
        }
        let protocol = text(&port["protocol"]).to_owned();
        let size = NODE_PORTS.end() - NODE_PORTS.start() + 1;
        let start = i64::try_from(state.random.below(u64::try_from(size).unwrap_or(1))).unwrap_or(0);
        let free = (0..size)
            .map(|offset| NODE_PORTS.start() + (start + offset) % size)
            .find(|number| {
                // One number serves one port only, whatever the protocol, unless it was asked for.
                !used.iter().chain(&own).any(|(taken, _)| taken == number)
            })
            .ok_or_else(|| Failure::internal("failed to allocate a nodePort: range is full"))?;
        own.insert((free, protocol));
        object["spec"]["ports"][index]["nodePort"] = json!(free);
    }
    Ok(())
}
