//! The commands of whoever writes a plugin, a module each. What they share with the commands of the host is in
//! `pilothouse_host`; how a plugin is compiled is in `pilothouse_build`.
#![forbid(unsafe_code)]

pub mod build;
pub mod manifests;
pub mod manual;
pub mod new;
