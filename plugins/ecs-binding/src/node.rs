//! The condition `Bound`: true if the node exists and has the address.

use std::net::IpAddr;

use pilothouse_plugin::{Cluster, Condition, Failure, Fields, Resource};
use serde::Deserialize;

use crate::resource::EcsBindingSpec;

/// The most addresses of a node that a message names.
const NAMED_ADDRESSES: usize = 8;

/// Fields that are read from a node: the addresses only, so that heartbeats do not trigger reconciles.
#[derive(Debug, Deserialize, Resource)]
#[resource(group = "", version = "v1", kind = "Node")]
pub struct Node {
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize, Fields)]
struct NodeStatus {
    #[serde(default)]
    #[resource(whole)]
    addresses: Vec<NodeAddress>,
}

#[derive(Debug, Deserialize)]
struct NodeAddress {
    address: String,
}

/// Looks up the node of a binding. The answer depends on the node, whether it exists or not.
pub fn bound(spec: &EcsBindingSpec, cluster: &Cluster) -> Result<Condition, Failure> {
    let EcsBindingSpec { nodename, innerip, .. } = spec;
    let Some(Node { status }) = cluster.get::<Node>(None, nodename)? else {
        let message = format!("there is no Node {nodename}; correct spec.nodename, or wait for the node to join");
        return Ok(Condition::is_false("Bound", "NodeNotFound", message));
    };
    if status.addresses.iter().any(|it| is_same(&it.address, innerip)) {
        let message = format!("Node {nodename} has the address {innerip}");
        return Ok(Condition::is_true("Bound", "AddressFound", message));
    }
    let all: Vec<&str> = status.addresses.iter().map(|it| it.address.as_str()).collect();
    let has = match all.split_at_checked(NAMED_ADDRESSES) {
        _ if all.is_empty() => "no addresses".to_owned(),
        Some((named, more)) if !more.is_empty() => format!("{} and {} more", named.join(", "), more.len()),
        _ => all.join(", "),
    };
    let message = format!("Node {nodename} has {has}, and not {innerip}; correct spec.innerip or spec.nodename");
    Ok(Condition::is_false("Bound", "AddressMismatch", message))
}

/// Reports whether two texts are the same address: IPv6 addresses can be written in many ways.
fn is_same(one: &str, other: &str) -> bool {
    one == other
        || one
            .parse::<IpAddr>()
            .is_ok_and(|one| other.parse::<IpAddr>().is_ok_and(|other| one == other))
}
