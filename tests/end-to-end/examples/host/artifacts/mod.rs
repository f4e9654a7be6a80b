//! Plugins as OCI artifacts, next to the same plugins as files: how long until one is ready, how long a push takes, how long
//! a host takes to start, and its memory. `cargo xtask bench artifacts` runs it.
//!
//! `stage` has the control plane, the registry and the hosts; each other file is a table.

mod memory;
mod push;
mod ready;
mod stage;
mod start;

use crate::{Outcome, Size};

/// The plugin that is pulled and pushed: 227 KB.
const PLUGIN: &str = "app-service";

/// Measures and prints.
pub async fn measure(size: &Size) -> Outcome<()> {
    let Size {
        plugins, repetitions, ..
    } = *size;
    let mut stage = stage::Stage::set().await?;
    ready::measure(&stage, repetitions).await?;
    push::measure(&stage, repetitions)?;
    memory::measure(&stage, repetitions).await?;
    // At the end, because it stops the registry.
    start::measure(&mut stage, plugins, repetitions).await
}
