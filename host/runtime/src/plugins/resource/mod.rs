//! Follows the Plugin resource: what is wanted, and what its status says.

pub mod desired;
pub mod inventory;
pub mod inventory_write;
pub mod reporting;
pub mod resources;
pub mod state;
pub mod status_writer;
