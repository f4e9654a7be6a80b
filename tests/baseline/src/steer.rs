//! Smallest possible operator: as soon as a watch shows a new object, it makes the object's writes, without a cache, a
//! queue or a plugin. So the slowdown that it causes for other clients is the API server's.

use anyhow::{Context as _, Result};
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use kube::Client;
use serde::Deserialize;

use crate::bodies::{self, Bundle, Write};
use crate::send_all;

/// Needed part of an event.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Bundle,
}

/// Steers Bundles and Hostiles until it is ended.
pub async fn steer(client: &Client) -> Result<usize> {
    let bundles = follow(client, bodies::BUNDLES, |bundle| bodies::writes(bundle).into());
    let hostiles = follow(client, bodies::HOSTILES, |hostile| {
        bodies::writes_of_hostile(hostile).into()
    });
    futures::future::try_join(bundles, hostiles).await?;
    Ok(0)
}

async fn follow(client: &Client, collection: &str, writes: fn(&Bundle) -> Vec<Write>) -> Result<()> {
    let request = http::Request::get(format!("{collection}?watch=true")).body(Vec::new())?;
    let mut lines = client.request_stream(request).await?.lines();
    while let Some(line) = lines.try_next().await? {
        let Event { kind, object } = serde_json::from_str(&line).with_context(|| format!("an event: {line}"))?;
        if kind == "ADDED" {
            let (client, writes) = (client.clone(), writes(&object));
            tokio::spawn(async move {
                if let Err(error) = send_all(&client, writes, 1).await {
                    eprintln!("{error:#}");
                }
            });
        }
    }
    Ok(())
}
