//! Plugins as resources: they come, change, are exchanged, suspended and deleted while the host runs, and each says how it
//! fares.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use pilothouse_end_to_end::fleet;

mod access;
mod admission;
mod artifacts;
mod brought_crds;
mod contributions;
mod crash;
mod declared;
mod definitions;
mod dice;
mod disjoint;
mod drafts;
mod drift;
mod election;
mod emptied;
mod exclusive_kinds;
mod failing;
mod finish;
mod forged;
mod forwarding;
mod gitops_states;
mod health;
mod kstatus;
mod leftovers;
mod liveness;
mod metrics;
mod moved_clocks;
mod options;
mod orphaned;
mod ownership;
mod pausing;
mod permissions;
mod plugin_life_cycle;
mod proxy;
mod refused;
mod renamed_finalizer;
mod replicas;
mod restored;
mod rewritten;
mod selection;
mod shards;
mod statuses;
mod swap;
mod traces;
mod wasi;
mod watch_namespaces;
