//! What the program `pilothouse` has beside the commands of `pilothouse-host`: the commands of whoever writes a plugin, a
//! module for each, and what they share. How a plugin is compiled is in `pilothouse_build`.
#![forbid(unsafe_code)]

#[macro_use]
mod output;

pub mod bench;
pub mod build;
pub mod check;
pub mod command_line;
pub mod components;
pub mod dev;
pub mod manifests;
pub mod manual;
pub mod new;
pub mod plugin;
pub mod render;
pub mod replay;
pub mod schemas;
pub mod sources;
pub mod test;
pub mod verdict;
