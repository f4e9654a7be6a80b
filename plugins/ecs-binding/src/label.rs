//! Owns the label that every EcsBinding is given. It is contributed: other labels are their owners'.

use pilothouse_plugin::Resource as _;
use serde::Serialize;

use crate::resource::EcsBinding;

/// An EcsBinding with its label and nothing else.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Labelled<'a> {
    api_version: String,
    kind: &'static str,
    metadata: Metadata<'a>,
}

#[derive(Debug, Serialize)]
struct Metadata<'a> {
    name: &'a str,
    labels: Labels<'a>,
}

#[derive(Debug, Serialize)]
struct Labels<'a> {
    #[serde(rename = "hopegi.com/cluster")]
    cluster: &'a str,
}

impl<'a> Labelled<'a> {
    /// What the EcsBinding of this name should have.
    pub fn of(name: &'a str, cluster: &'a str) -> Self {
        Self {
            api_version: EcsBinding::KIND.api_version(),
            kind: EcsBinding::KIND.kind,
            metadata: Metadata {
                name,
                labels: Labels { cluster },
            },
        }
    }
}
