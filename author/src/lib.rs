//! What the program `pilothouse` has beside the commands of `pilothouse-host`: the commands of whoever writes a plugin, a
//! module for each, and what they share.
#![forbid(unsafe_code)]

pub mod bench;
pub mod check;
pub mod command_line;
pub mod components;
pub mod dev;
pub mod plugin;
pub mod render;
pub mod replay;
pub mod test;
pub mod verdict;
