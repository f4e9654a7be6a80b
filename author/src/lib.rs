//! Commands of the program `pilothouse` for plugin authors, beside those of `pilothouse-host`: a module for each, and
//! their common parts. Compiling a plugin is in `pilothouse_build`.
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
