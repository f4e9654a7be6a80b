//! A host with the plugin gate on a simulated cluster, in one process, that serves its webhooks on a free port until it is
//! interrupted; it prints the address and its own process id. `cargo run --package pilothouse-webhook --example flood` takes
//! both, and prints what a flood takes of memory.

use pilothouse_end_to_end::host::webhooks;
use pilothouse_end_to_end::stage::{Stage, unhurried};
use pilothouse_testkit::host::HostError;
use serde_json::json;

/// The namespace of the Secret with the webhooks' certificates.
const HARBOUR: &str = "harbour";

fn main() -> Result<(), HostError> {
    // As the host's own program does.
    pilothouse_sandbox::return_large_allocations();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve())
}

async fn serve() -> Result<(), HostError> {
    let mut stage = Stage::empty(unhurried());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HARBOUR}});
    stage.create(&namespace).await;
    let options = webhooks(HARBOUR, "webhooks")?;
    let address = options.listen;
    stage.host.serve(options);
    let specs = vec![stage.host.spec("gate")?];
    stage.start(specs).await;
    let asked = stage
        .until(|stage| stage.all("ValidatingWebhookConfiguration").pop())
        .await;
    if asked.is_none() {
        return Err("the webhooks do not come".into());
    }
    println!("{address} {}", std::process::id());
    std::future::pending().await
}
