//! Measures the cost of the host beside that of a client that only makes the same writes: `cargo xtask bench host` runs
//! it. Every figure is of this run; repeated measurements are shown with minimum, median and maximum.
//!
//! `contenders` makes clusters with Bundles and lets the host or the baseline client converge them, `steered` is the host's
//! process seen from outside, and each other file is a part that `--only` can name.

mod admission;
mod artifacts;
mod cache;
mod contenders;
mod dependents;
mod figures;
mod lifetime;
mod neighbours;
mod plugins;
mod restart;
mod steered;

use std::error::Error;

/// Parts that are measured, in order.
const PARTS: [&str; 6] = ["plugins", "cache", "lifetime", "restart", "dependents", "neighbours"];

/// Parts that are measured only where they are named: each has a command of its own.
const NAMED: [&str; 2] = ["admission", "artifacts"];

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Size of the measurements.
struct Size {
    /// Bundles; for admission, reconciles that are queued.
    objects: usize,
    /// Distinct plugins.
    plugins: usize,
    /// Count of repetitions of compared runs.
    repetitions: usize,
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [cache::ALONE, kept] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return cache::alone(kept);
    }
    let [profile, objects, plugins, repetitions, only @ ..] = arguments.as_slice() else {
        return Err("usage: host PROFILE OBJECTS PLUGINS REPETITIONS [PART]...".into());
    };
    steered::built_with(profile);
    let size = Size {
        objects: objects.parse()?,
        plugins: plugins.parse()?,
        repetitions: repetitions.parse()?,
    };
    let is_known = |part: &str| NAMED.contains(&part) || PARTS.contains(&part);
    if let Some(unknown) = only.iter().find(|part| !is_known(part)) {
        let known = [PARTS.as_slice(), &NAMED].concat().join(", ");
        return Err(format!("there is no part {unknown}; there are {known}").into());
    }
    for part in PARTS.into_iter().chain(NAMED) {
        let is_wanted = if only.is_empty() {
            !NAMED.contains(&part)
        } else {
            only.iter().any(|name| name == part)
        };
        if !is_wanted {
            continue;
        }
        match part {
            "plugins" => plugins::measure(&size).await?,
            "cache" => cache::measure()?,
            "lifetime" => lifetime::measure(&size).await?,
            "restart" => restart::measure(&size).await?,
            "dependents" => dependents::measure(&size).await?,
            "neighbours" => neighbours::measure(&size).await?,
            "artifacts" => artifacts::measure(&size).await?,
            _ => admission::measure(&size).await?,
        }
    }
    Ok(())
}
