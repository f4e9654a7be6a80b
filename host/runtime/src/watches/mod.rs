//! Connects the watches of the cluster with the shared state.

pub mod definitions;
pub mod informers;
pub mod namespaces;
pub mod watch_sink;
pub mod watchdog;
