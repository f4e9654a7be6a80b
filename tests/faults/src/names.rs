//! Names of the clients and namespaces of a run.

/// Returns `true` if a client is one of the hosts.
pub fn is_host(user_agent: &str) -> bool {
    user_agent.starts_with(HOST_AGENT)
}

/// User agent of a run's hosts; a number follows.
pub const HOST_AGENT: &str = "pilothouse-host-";

/// The namespace in which the tenant has rights.
pub const TENANT: &str = "tenant";

/// Names an object for people: `plural namespace/name`.
pub fn place(plural: &str, namespace: &str, name: &str) -> String {
    format!("{plural} {namespace}/{name}")
}

/// The namespace of the neighbour, who does nothing wrong.
pub const NEIGHBOUR: &str = "neighbour";
