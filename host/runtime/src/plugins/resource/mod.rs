//! Follows the Plugin resource: its spec, and its status.
//!
//! The inventory in the status remembers owned kinds, kinds contributed to and finalizers of all versions. What the running version no
//! longer declares is watched until nothing of it is left. A removed controller keeps a lane without grants (`is_former`), which
//! prunes children, withdraws claims and removes finalizers. Anybody may have forged the status, so it acts only on what the objects' field
//! managers have under the plugin's names.
//!
//! Counts and warnings in the status are those of the host that wrote it last: the leader, while with `--shards` other replicas see failures
//! of their own.

pub mod desired;
pub mod inventory;
pub mod inventory_write;
pub mod no_host;
pub mod progress;
pub mod reporting;
pub mod resources;
pub mod state;
pub mod status_writer;
