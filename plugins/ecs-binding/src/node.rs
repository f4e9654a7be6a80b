//! Owns the condition `Bound`: whether the node is there and has the address.

use std::net::IpAddr;

use pilothouse_plugin::{Cluster, Condition, Failure, Kind, Resource};
use serde::Deserialize;

use crate::resource::EcsBindingSpec;

/// The most addresses of a node that a message names.
const NAMED_ADDRESSES: usize = 8;

/// What is read of a node.
#[derive(Debug, Deserialize)]
pub struct Node {
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    addresses: Vec<NodeAddress>,
}

#[derive(Debug, Deserialize)]
struct NodeAddress {
    address: String,
}

impl Resource for Node {
    const KIND: Kind = Kind::new("", "v1", "Node");
}

/// Looks for the node of a binding. Whatever is found, the answer depends on the node, there or not.
pub fn bound(spec: &EcsBindingSpec, cluster: &Cluster) -> Result<Condition, Failure> {
    let EcsBindingSpec {
        id: _,
        name: _,
        nodename,
        innerip,
    } = spec;
    let Some(Node { status }) = cluster.get::<Node>(None, nodename)? else {
        let message = format!("there is no Node {nodename}; correct spec.nodename, or wait for the node to join");
        return Ok(Condition::is_false("Bound", "NodeNotFound", message));
    };
    if status.addresses.iter().any(|it| is_same(&it.address, innerip)) {
        let message = format!("Node {nodename} has the address {innerip}");
        return Ok(Condition::is_true("Bound", "AddressFound", message));
    }
    let has = match &status.addresses[..] {
        [] => "no addresses".to_owned(),
        addresses => {
            let named: Vec<_> = addresses
                .iter()
                .take(NAMED_ADDRESSES)
                .map(|it| it.address.as_str())
                .collect();
            let more = addresses.len() - named.len();
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            format!("{}{more}", named.join(", "))
        }
    };
    let message = format!("Node {nodename} has {has}, and not {innerip}; correct spec.innerip or spec.nodename");
    Ok(Condition::is_false("Bound", "AddressMismatch", message))
}

/// Whether two texts are the same address: IPv6 addresses can be written in many ways.
fn is_same(one: &str, other: &str) -> bool {
    one == other
        || one
            .parse::<IpAddr>()
            .is_ok_and(|one| other.parse::<IpAddr>().is_ok_and(|other| one == other))
}
