//! Counts the objects of a kind by namespace, past the cache: replicas that divide the work each cache only a part.

use std::collections::HashMap;

use http::{Request, header};
use kube::Client;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::discovery::ServedKind;
use crate::error::RequestError;
use crate::watch::pages::{PageSize, read_page};

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    #[serde(default)]
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMeta,
}

#[derive(Deserialize)]
struct ItemMeta {
    #[serde(default)]
    namespace: Option<String>,
}

/// The number of objects of a kind in each namespace, from paged lists of metadata.
pub async fn count_by_namespace(client: &Client, served: &ServedKind) -> Result<HashMap<String, u64>, RequestError> {
    let garbled = |error: &dyn std::fmt::Display| RequestError::Garbled(error.to_string());
    let (mut counts, mut next, mut pages) = (HashMap::new(), String::new(), PageSize::default());
    loop {
        let request = |objects| {
            Request::builder()
                .uri(format!("{}?limit={objects}&continue={next}", served.path(None, None)))
                .header(
                    header::ACCEPT,
                    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                )
                .body(Body::empty())
                .map_err(|error| garbled(&error))
        };
        let text = read_page(client, &mut pages, request).await?;
        let Page { metadata, items } = serde_json::from_str(&text).map_err(|error| garbled(&error))?;
        let items = items.unwrap_or_default();
        pages.had(items.len(), text.len());
        for item in items {
            *counts.entry(item.metadata.namespace.unwrap_or_default()).or_default() += 1;
        }
        match metadata.next {
            Some(token) if !token.is_empty() => next = utf8_percent_encode(&token, NON_ALPHANUMERIC).to_string(),
            _ => return Ok(counts),
        }
    }
}
