//! Details of an artifact that `pilothouse inspect` prints beside its component: digest, annotations, signatures,
//! attachments and the summary of the SBOM.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pilothouse_artifact::{Descriptor, Location};
use serde_json::{Value, json};

use super::fetch::{Found, find};
use super::sbom::{self, SBOM_LIMIT, Sbom};
use super::{RegistryArguments, wait_for};
use pilothouse_core::text::printable::printable;

/// An artifact's component and details.
pub struct FetchedArtifact {
    /// The reference with the digest.
    pub name: String,
    /// The component.
    pub component: Vec<u8>,
    /// The rest.
    pub details: ArtifactDetails,
}

/// Details of an artifact, none of them verified.
pub struct ArtifactDetails {
    reference: String,
    digest: String,
    annotations: BTreeMap<String, String>,
    signatures: usize,
    attachments: Vec<Attached>,
    sbom: Option<Sbom>,
}

struct Attached {
    artifact_type: String,
    digest: String,
}

/// Fetches an artifact and its details.
pub fn fetch(location: &Location, registries: RegistryArguments) -> anyhow::Result<FetchedArtifact> {
    let session = registries.session()?;
    wait_for(async {
        let found = find(&session, location).await?;
        let signatures = found.store.signatures(found.digest).await?.len();
        let mut attachments = Vec::new();
        let mut sbom = None;
        for referrer in found.store.referrers(found.digest, None).await? {
            let attached = attachment(&found, &referrer).await?;
            if sbom::MEDIA_TYPES.contains(&&*attached.artifact_type) && sbom.is_none() {
                sbom = summary_of(&found, &referrer).await?;
            }
            attachments.push(attached);
        }
        attachments.sort_by(|a, b| (&a.artifact_type, &a.digest).cmp(&(&b.artifact_type, &b.digest)));
        let component = found.component(&session).await?;
        let name = found.pinned.to_string();
        Ok(FetchedArtifact {
            component,
            details: ArtifactDetails {
                reference: name.clone(),
                digest: found.digest.to_string(),
                annotations: found.manifest.annotations,
                signatures,
                attachments,
                sbom,
            },
            name,
        })
    })
}

/// Returns a referrer with its true type: some registries list another.
async fn attachment(found: &Found, referrer: &Descriptor) -> anyhow::Result<Attached> {
    let manifest: Value = manifest(found, referrer).await?;
    let artifact_type = manifest["artifactType"].as_str().or(referrer.artifact_type.as_deref());
    Ok(Attached {
        artifact_type: artifact_type.unwrap_or("unknown").to_owned(),
        digest: referrer.digest.to_string(),
    })
}

async fn manifest(found: &Found, referrer: &Descriptor) -> anyhow::Result<Value> {
    let bytes = found.store.manifest(referrer.digest).await?;
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn summary_of(found: &Found, referrer: &Descriptor) -> anyhow::Result<Option<Sbom>> {
    let manifest = manifest(found, referrer).await?;
    let Ok(layer) = serde_json::from_value::<Descriptor>(manifest["layers"][0].clone()) else {
        return Ok(None);
    };
    let bytes = found.store.small_blob(&layer, SBOM_LIMIT).await?;
    Ok(Sbom::parse(&bytes).ok())
}

impl ArtifactDetails {
    /// Returns the details as JSON.
    pub fn as_json(&self) -> Value {
        let Self {
            reference,
            digest,
            annotations,
            signatures,
            attachments,
            sbom,
        } = self;
        let attachments: Vec<_> = attachments
            .iter()
            .map(|it| json!({"artifactType": it.artifact_type, "digest": it.digest}))
            .collect();
        json!({
            "reference": reference,
            "digest": digest,
            "annotations": annotations,
            "signatures": signatures,
            "attachments": attachments,
            "sbom": sbom.as_ref().map(Sbom::as_json),
        })
    }

    /// Returns the details as text, to be printed below the component's own description.
    pub fn as_text(&self) -> String {
        let mut text = format!("\nartifact {}\n", self.reference);
        for (key, value) in &self.annotations {
            let key = key.strip_prefix("org.opencontainers.image.").unwrap_or(key);
            let _ = writeln!(text, "  {:<12} {}", printable(key), printable(value));
        }
        let signatures = match self.signatures {
            0 => "none".to_owned(),
            count => format!("{count} found, not verified; `pilothouse verify` does that"),
        };
        let _ = writeln!(text, "  {:<12} {signatures}", "signatures");
        for Attached { artifact_type, digest } in &self.attachments {
            let _ = writeln!(text, "  {:<12} {} {digest}", "attached", printable(artifact_type));
        }
        if let Some(sbom) = &self.sbom {
            let _ = writeln!(text, "  {:<12} {}", "SBOM", sbom.as_text());
        }
        text
    }
}
