//! What the host costs, beside what the same work costs a client that does nothing else: `cargo xtask bench host` runs it.
//! Every figure is of this run; what is repeated is shown with its least, its median and its greatest.
//!
//! `contenders` makes clusters with Bundles and lets the host or the floor converge them, `steered` is the host's process
//! seen from outside, and each other file is a part that `--only` can name.

mod cache;
mod contenders;
mod dependents;
mod figures;
mod lifetime;
mod neighbours;
mod plugins;
mod steered;

use std::error::Error;

/// What is measured, in this order.
const PARTS: [&str; 5] = ["plugins", "cache", "lifetime", "dependents", "neighbours"];

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How much is measured.
struct Size {
    /// Bundles.
    objects: usize,
    /// Distinct plugins.
    plugins: usize,
    /// How often what is compared is run.
    repetitions: usize,
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [cache::ALONE, kept] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return cache::alone(kept);
    }
    let [objects, plugins, repetitions, only @ ..] = arguments.as_slice() else {
        return Err("usage: host OBJECTS PLUGINS REPETITIONS [PART]...".into());
    };
    let size = Size {
        objects: objects.parse()?,
        plugins: plugins.parse()?,
        repetitions: repetitions.parse()?,
    };
    if let Some(unknown) = only.iter().find(|part| !PARTS.contains(&part.as_str())) {
        return Err(format!("there is no part {unknown}; there are {}", PARTS.join(", ")).into());
    }
    for part in PARTS {
        if !only.is_empty() && !only.iter().any(|name| name == part) {
            continue;
        }
        match part {
            "plugins" => plugins::measure(&size).await?,
            "cache" => cache::measure()?,
            "lifetime" => lifetime::measure(&size).await?,
            "dependents" => dependents::measure(&size).await?,
            _ => neighbours::measure(&size).await?,
        }
    }
    Ok(())
}
