//! Follows the Plugin resource: its spec, and its status.

pub mod desired;
pub mod inventory;
pub mod inventory_write;
pub mod reporting;
pub mod resources;
pub mod state;
pub mod status_writer;
