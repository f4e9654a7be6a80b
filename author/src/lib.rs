//! What the program `pilothouse` has beside the commands of `pilothouse-host`: the commands of whoever writes a plugin, a
//! module for each.
#![forbid(unsafe_code)]

pub mod bench;
pub mod check;
pub mod plugin;
pub mod render;
pub mod replay;
pub mod verdict;
