//! Serves a simulated cluster until it is interrupted: `cargo run -p pilothouse-simulator --example serve -- 127.0.0.1:8001`.
//!
//! Writes a kubeconfig to the path in the second argument, if there is one.

#![forbid(unsafe_code)]

use anyhow::{Context as _, Result};
use pilothouse_simulator::{Options, Simulator};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let address = address
        .parse()
        .with_context(|| format!("{address:?} is not an address such as 127.0.0.1:8001"))?;
    let simulator = Simulator::new(Options::default());
    let serving = simulator
        .serve(address)
        .await
        .with_context(|| format!("listen on {address}"))?;
    if let Some(path) = arguments.next() {
        std::fs::write(&path, serving.kubeconfig()).with_context(|| format!("write {path}"))?;
    }
    println!("{}", serving.url());
    std::future::pending::<()>().await;
    Ok(())
}
